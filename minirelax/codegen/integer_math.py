"""Shifts and powers of integers as NumPy defines them, and fast division of sizes.

Shifting by the width or more (or by a negative count) gives 0, or -1 for the right shift of a negative number; the
processor would take the count modulo the width.  Powers wrap.  NumPy refuses negative exponents; a kernel cannot
raise, so here they give the true power cut off to an integer: 0, or for a base of 1 or -1 itself.
"""

from __future__ import annotations

from llvmlite import ir

SHIFTS = ("left_shift", "right_shift")


def emit_shift(builder: ir.IRBuilder, name: str, a: ir.Value, count: ir.Value, signed: bool) -> ir.Value:
    """``left_shift`` or ``right_shift`` of two integers of one width."""
    zero, last = ir.Constant(a.type, 0), ir.Constant(a.type, a.type.width - 1)
    inside = builder.icmp_unsigned("<=", count, last)
    safe = builder.select(inside, count, last)
    if name == "right_shift" and signed:
        return builder.ashr(a, safe)
    shifted = builder.shl(a, safe) if name == "left_shift" else builder.lshr(a, safe)
    return builder.select(inside, shifted, zero)


def emit_power(builder: ir.IRBuilder, base: ir.Value, exponent: ir.Value, signed: bool) -> ir.Value:
    """``base ** exponent`` by squaring: one round of a loop for each binary digit of the exponent."""
    kind = base.type
    zero, one = ir.Constant(kind, 0), ir.Constant(kind, 1)
    before = builder.block
    head, body, after = (builder.append_basic_block(f"power.{n}") for n in ("head", "body", "after"))
    if signed:
        negative = builder.icmp_signed("<", exponent, zero)
        # 1 or -1 to a negative power is itself to the power's lowest digit; anything else is cut off to 0.
        unit = builder.icmp_unsigned("<=", builder.add(base, one), ir.Constant(kind, 2))
        unit = builder.and_(unit, builder.icmp_signed("!=", base, zero))
        start = builder.select(builder.or_(builder.not_(negative), unit), one, zero)
        exponent = builder.select(negative, builder.and_(exponent, one), exponent)
    else:
        start = one
    builder.branch(head)
    builder.position_at_end(head)
    result, square, rest = builder.phi(kind), builder.phi(kind), builder.phi(kind)
    builder.cbranch(builder.icmp_unsigned("==", rest, zero), after, body)
    builder.position_at_end(body)
    odd = builder.icmp_unsigned("!=", builder.and_(rest, one), zero)
    following = (
        builder.mul(result, builder.select(odd, square, one)),
        builder.mul(square, square),
        builder.lshr(rest, one),
    )
    for phi, first, later in zip((result, square, rest), (start, base, exponent), following, strict=True):
        phi.add_incoming(first, before)
        phi.add_incoming(later, body)
    builder.branch(head)
    builder.position_at_end(after)
    return result


def emit_size_division(builder: ir.IRBuilder, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """``quotient`` or ``rest`` of a >= 0 by b >= 0, without the sign's corrections; by 0 as if by 1."""
    zero, one = ir.Constant(b.type, 0), ir.Constant(b.type, 1)
    safe = builder.select(builder.icmp_unsigned("==", b, zero), one, b)
    return builder.udiv(a, safe) if name == "quotient" else builder.urem(a, safe)

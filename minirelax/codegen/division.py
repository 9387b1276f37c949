"""Division, remainder and modulo as NumPy defines them, without the traps of the processor's instructions.

Integers: division by zero gives 0 and so does its remainder; the most negative number divided by -1 wraps to itself,
with remainder 0 (x86 raises a signal for both).  ``floordiv`` and ``mod`` round towards minus infinity, ``fmod``
keeps the sign of the dividend.  Floating point follows NumPy's ``npy_divmod``, including signs of zero, infinities and NaN;
it calls the C library's ``fmod`` (through LLVM's frem), which is exact but keeps a loop scalar.
"""

from __future__ import annotations

from llvmlite import ir

from minirelax.codegen.value import Value, intrinsic, select

NAMES = ("floordiv", "mod", "fmod")


def emit_integer(builder: ir.IRBuilder, name: str, a: ir.Value, b: ir.Value, signed: bool) -> ir.Value:
    """``floordiv``, ``mod`` or ``fmod`` of two integers of one width."""
    return (_signed if signed else _unsigned)(builder, name, a, b)


def _unsigned(builder: ir.IRBuilder, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    zero, one = ir.Constant(a.type, 0), ir.Constant(a.type, 1)
    by_zero = builder.icmp_unsigned("==", b, zero)
    safe = builder.select(by_zero, one, b)
    result = builder.udiv(a, safe) if name == "floordiv" else builder.urem(a, safe)
    return builder.select(by_zero, zero, result)


def _signed(builder: ir.IRBuilder, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    zero, one = ir.Constant(a.type, 0), ir.Constant(a.type, 1)
    by_zero = builder.icmp_signed("==", b, zero)
    by_minus_one = builder.icmp_signed("==", b, ir.Constant(a.type, -1))
    # Dividing by 1 instead: the remainder is then 0, as it should be in both cases.
    safe = builder.select(builder.or_(by_zero, by_minus_one), one, b)
    remainder = builder.srem(a, safe)
    if name == "fmod":
        return remainder
    differ = builder.icmp_signed("<", builder.xor(remainder, safe), zero)
    inexact = builder.and_(builder.icmp_signed("!=", remainder, zero), differ)
    if name == "mod":
        return builder.add(remainder, builder.select(inexact, safe, zero))
    quotient = builder.sub(builder.sdiv(a, safe), builder.zext(inexact, a.type))
    quotient = builder.select(by_minus_one, builder.sub(zero, a), quotient)
    return builder.select(by_zero, zero, quotient)


def emit_float(builder: ir.IRBuilder, name: str, a: ir.Value, b: ir.Value) -> ir.Value:
    """``floordiv``, ``mod`` or ``fmod`` of two f32 or f64."""
    x, y = Value(builder, a), Value(builder, b)
    remainder = Value(builder, builder.frem(a, b))
    if name == "fmod":
        return remainder.value
    exact = remainder == 0
    other_side = (remainder != 0) & ((y < 0) ^ (remainder < 0))
    if name == "mod":
        result = select(other_side, remainder + y, remainder)
        result = select(exact, intrinsic("copysign", y.constant(0.0), y), result)
        return select(y == 0, remainder, result).value
    quotient = (x - remainder) / y
    quotient = select(other_side, quotient - 1, quotient)
    floor = intrinsic("floor", quotient)
    # The quotient is an integer but for rounding, which may have gone below.
    floor = select(quotient - floor > 0.5, floor + 1, floor)
    result = select(quotient == 0, intrinsic("copysign", x.constant(0.0), x / y), floor)
    return select(y == 0, x / y, result).value

"""What code with bounds checks calls: ``inside`` and ``is_outside``, as Numba intrinsics (see `minirelax.codegen.bounds`)."""

from __future__ import annotations

from llvmlite import ir

from minirelax.codegen.bounds import FAILED, SPARE


def bounds_intrinsics() -> dict[str, object]:
    """``inside`` and ``is_outside`` by name.  Imports Numba."""
    from numba import types
    from numba.extending import intrinsic

    word = types.int64

    def inside(typing_context, error, pointer, index, extent, number, size):
        signature = word(types.CPointer(word), pointer, word, word, word, word)
        return signature, lambda context, builder, _, values: _emit_inside(builder, *values)

    def is_outside(typing_context, error, first, last, extent, number):
        signature = types.boolean(types.CPointer(word), word, word, word, word)
        return signature, lambda context, builder, _, values: _emit_is_outside(builder, *values)

    return {"inside": intrinsic(inside), "is_outside": intrinsic(is_outside)}


def _emit_inside(builder: ir.IRBuilder, error, pointer, index, extent, number, size) -> ir.Value:
    """``index``, or the one at which `pointer` is the spare word."""
    word = ir.IntType(64)
    fine = builder.icmp_unsigned("<", index, extent)
    with builder.if_then(builder.not_(fine), likely=False):
        _note(builder, error, number, index, extent)
    spare = builder.add(builder.ptrtoint(error, word), ir.Constant(word, 8 * SPARE))
    away = builder.sdiv(builder.sub(spare, builder.ptrtoint(pointer, word)), size)
    return builder.select(fine, index, away)


def _emit_is_outside(builder: ir.IRBuilder, error, first, last, extent, number) -> ir.Value:
    zero = ir.Constant(ir.IntType(64), 0)
    below, above = builder.icmp_signed("<", first, zero), builder.icmp_signed(">=", last, extent)
    wrong = builder.and_(builder.icmp_signed("<=", first, last), builder.or_(below, above))
    with builder.if_then(wrong, likely=False):
        _note(builder, error, number, builder.select(below, first, last), extent)
    return wrong


def _note(builder: ir.IRBuilder, error, number, index, extent) -> None:
    """Say what is wrong, if nothing was before: several threads may have something to say."""
    word = ir.IntType(64)
    state = builder.cmpxchg(error, ir.Constant(word, 0), ir.Constant(word, FAILED), "monotonic", "monotonic")
    with builder.if_then(builder.extract_value(state, 1)):
        for place, value in enumerate((number, index, extent), 1):
            builder.store(value, builder.gep(error, [ir.Constant(word, place)], source_etype=word))

"""Rules for integers, truth values and constant bounds: cheaper ops that give the same bits.

Integers wrap, so their algebra is exact where that of floats is not: ``x - x`` is 0 for integers, but NaN for an infinite float.
Rounding a quotient down is what an arithmetic shift does, for negative numbers, too: ``-7 // 4 == -7 >> 2``, and the remainder
that goes with it is what the mask keeps.

What is no law stays: ``power(x, -1)`` is not known to be rounded as ``1 / x`` is; ``negative(x - y)`` and ``y - x`` are zeros
of different signs where x and y are equal; ``exp(log(x))`` and ``sqrt(x) * sqrt(x)`` round, and are NaN for negative numbers;
``(x + a) + b`` rounds twice.

>>> from minirelax.ir.parser import parse
>>> from minirelax.passes.rules import rewrite
>>> main = parse('''
... def main(x: i32[n]) -> i32[n]:
...     with dataflow():
...         v0: i32[n] = floor_divide(x, 8)
...         output(v0)
...     return v0''')["main"]
>>> print(rewrite(main, STRENGTH_RULES))
def main(x: i32[n]) -> i32[n]:
    with dataflow():
        v0: i32[n] = right_shift(x, 3)
        output(v0)
    return v0
"""

from __future__ import annotations

import math
from dataclasses import replace

from minirelax.ir.graph import Atom, Const, Expr, Var
from minirelax.ops.arithmetic import Absolute, FloorDivide, Maximum, Minimum, Power, Remainder, Square, Subtract
from minirelax.ops.create import Full
from minirelax.ops.elementwise import Cast, Where
from minirelax.ops.logic import BitwiseAnd, BitwiseOr, BitwiseXor, LogicalAnd, LogicalOr, LogicalXor, RightShift
from minirelax.ops.movement import BroadcastTo
from minirelax.passes.rules import rule


@rule(lambda x, c: Power(x, c))
def power_zero(x, c):
    """One, whatever it is the power of: NaN and 0, too."""
    return filled_like(x, 1) if isinstance(c, Const) and c.value == 0 else None


@rule(lambda x, c: FloorDivide(x, c))
def divide_by_shift(x, c):
    places = _places(c)
    return x if places == 0 else places and RightShift(x, Const(places, c.dtype))


@rule(lambda x, c: Remainder(x, c))
def remainder_by_mask(x, c):
    places = _places(c)
    return filled_like(x, 0) if places == 0 else places and BitwiseAnd(x, Const(c.value - 1, c.dtype))


@rule(lambda x: Subtract(x, x))
def minus_itself(x):
    return None if x.type.dtype[0] in "fc" else filled_like(x, 0)


@rule(lambda x: BitwiseXor(x, x))
def xor_itself(x):
    return filled_like(x, 0)


@rule(lambda x: BitwiseAnd(x, x))
def and_itself(x):
    return x


@rule(lambda x: BitwiseOr(x, x))
def or_itself(x):
    return x


@rule(lambda x: LogicalAnd(x, x))
def both_itself(x):
    return truth(x)


@rule(lambda x: LogicalOr(x, x))
def either_itself(x):
    return truth(x)


@rule(lambda x: LogicalXor(x, x))
def differs_from_itself(x):
    return filled_like(x, 0, "bool")


@rule(lambda x: Absolute(Square(x)))
def absolute_square(x):
    """Not for signed integers, whose square wraps around to negative numbers, nor for complex numbers."""
    return None if x.type.dtype[0] in "ic" else Square(x)


STRENGTH_RULES = (
    power_zero,
    divide_by_shift,
    remainder_by_mask,
    minus_itself,
    xor_itself,
    and_itself,
    or_itself,
    both_itself,
    either_itself,
    differs_from_itself,
    absolute_square,
)


def bound_twice(value: Expr, definitions: dict[Var, Expr]) -> Expr | Atom | None:
    """Of two constants that bound one array from the same side, the closer one counts.

    Bounds that are NaN, or zeros of different signs, are left: which of those two zeros is larger is nowhere said.
    """
    if not isinstance(value, Maximum | Minimum):
        return None
    inner = definitions.get(value.y if isinstance(value.x, Const) else value.x)
    outer_bound, inner_bound = _bound(value), _bound(inner) if type(inner) is type(value) else None
    if outer_bound is None or inner_bound is None:
        return None
    a, b = outer_bound.value, inner_bound.value
    if a == b and math.copysign(1, a) != math.copysign(1, b):
        return None
    if (b >= a) if isinstance(value, Maximum) else (b <= a):
        return inner
    bounded = inner.y if inner.x == inner_bound else inner.x
    return replace(value, y=bounded) if isinstance(value.x, Const) else replace(value, x=bounded)


def decided_where(value: Expr, definitions: dict[Var, Expr]) -> Expr | Atom | None:
    """A choice by a constant is the chosen array, at the size of the result."""
    if not isinstance(value, Where):
        return None
    match value.condition if isinstance(value.condition, Const) else definitions.get(value.condition):
        case Const(value=holds) | Full(value=Const(value=holds)):
            chosen = value.x if holds else value.y
        case _:
            return None
    wanted = value.infer(*(a.type for a in value.operands()))
    return chosen if chosen.type == wanted else BroadcastTo(chosen, wanted.shape)


STRENGTH_FUNCTIONS = (bound_twice, decided_where)


def filled_like(x: Atom, value: int, dtype: str = "") -> Expr | Atom | None:
    """An array of the type of `x` (or of another dtype) with one value everywhere; None if its sizes are not known."""
    dtype, shape = dtype or x.type.dtype, x.type.shape
    if dtype is None or shape is None or None in shape:
        return None
    number = Const({"f": float, "b": bool, "c": complex}.get(dtype[0], int)(value), dtype)
    return Full(number, shape) if shape else number


def truth(x: Atom) -> Expr | Atom:
    """Is it true?  Whatever is not 0 is, NaN included."""
    return x if x.type.dtype == "bool" else Cast(x, "bool")


def _bound(value: Expr) -> Const | None:
    """The one constant operand of an op of two; None for NaN."""
    constants = [a for a in value.operands() if isinstance(a, Const)]
    return constants[0] if len(constants) == 1 and constants[0].value == constants[0].value else None


def _places(divisor: Atom) -> int | None:
    """The logarithm of an integer constant that is a power of two."""
    whole = isinstance(divisor, Const) and divisor.dtype[0] in "iu" and divisor.value > 0
    return divisor.value.bit_length() - 1 if whole and divisor.value & (divisor.value - 1) == 0 else None

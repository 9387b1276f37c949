"""Algebra: rewrite expressions that have a cheaper equal.

Every law here is exact in IEEE arithmetic, infinities, NaN and signed zeros included: ``x - 0.0`` is `x`, but ``x + 0.0`` is
not (for ``-0.0``), and ``power(x, 0.5)`` is not ``sqrt(x)`` (for ``-inf``).  Dividing by a power of two is multiplying by its
reciprocal, as both round the same number.  A product of complex numbers by one is more than one product of numbers: those stay.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: f32[n, m]) -> f32[n, m]:
...     with dataflow():
...         v0: f32[m, n] = transpose(x, axes=(1, 0))
...         v1: f32[n, m] = transpose(v0, axes=(1, 0))
...         v2: f32[n, m] = multiply(v1, 1.0)
...         v3: f32[n, m] = exp(v2)
...         output(v3)
...     return v3''')
>>> print(simplify(before))
def main(x: f32[n, m]) -> f32[n, m]:
    with dataflow():
        v0: f32[m, n] = transpose(x, axes=(1, 0))
        v3: f32[n, m] = exp(x)
        output(v3)
    return v3

The transpose that nobody reads any more goes in `eliminate_dead_code`; arithmetic on constants, in `fold_constants`.  The rules
for integers, logic and constant bounds are in `strength`; how transposes and reshapes meet, so that they cancel, in `move_axes`.
"""

from __future__ import annotations

import math

from minirelax.errors import CompileError
from minirelax.ir.graph import Atom, Const, Expr, Function, MatchCast, Var
from minirelax.ir.types import NUMPY_DTYPES, PARTS, is_known
from minirelax.ops.arithmetic import Absolute, Add, Divide, Maximum, Minimum, Multiply, Negative, Power, Square, Subtract
from minirelax.ops.create import Full
from minirelax.ops.elementwise import Cast, Elementwise, Where
from minirelax.ops.index import Slice
from minirelax.ops.linalg import Matmul
from minirelax.ops.logic import LogicalNot
from minirelax.ops.movement import BroadcastTo, Concatenate, Reshape, Transpose
from minirelax.ops.reduce import Reduction
from minirelax.ops.rules import COMPLEX
from minirelax.passes.base import function_pass
from minirelax.passes.move_axes import movement_rules
from minirelax.passes.rules import rewrite, rule
from minirelax.passes.strength import STRENGTH_FUNCTIONS, STRENGTH_RULES


@rule(lambda x: Multiply(x, 1))
def times_one(x):
    return real_only(x)


@rule(lambda x: Multiply(1, x))
def one_times(x):
    return real_only(x)


@rule(lambda x: Divide(x, 1))
def over_one(x):
    return real_only(x)


@rule(lambda x: Power(x, 1))
def power_one(x):
    return x


@rule(lambda x: Power(x, 2))
def power_two(x):
    """A power by two is one multiplication (and rounded better than a general power)."""
    return Square(x)


@rule(lambda x: Subtract(x, 0))
def minus_zero(x):
    return x


@rule(lambda x, c: Add(x, c))
def plus_zero(x, c):
    """Adding zero changes nothing; for floats that is -0.0, since -0.0 + 0.0 is 0.0."""
    zero = isinstance(c, Const) and c.value == 0 and c.dtype != "bool" and c.dtype not in COMPLEX
    return x if zero and (c.dtype[0] != "f" or math.copysign(1, c.value) < 0) else None


@rule(lambda x, c: Add(c, x))
def zero_plus(x, c):
    return plus_zero.build(x, c)


@rule(lambda x: Negative(Negative(x)))
def double_negative(x):
    return x


@rule(lambda x, y: Add(x, Negative(y)))
def plus_negative(x, y):
    return Subtract(x, y)


@rule(lambda x, y: Subtract(x, Negative(y)))
def minus_negative(x, y):
    return Add(x, y)


@rule(lambda x: Absolute(Negative(x)))
def absolute_negative(x):
    """Not for unsigned integers, whose negative wraps around to another value."""
    return None if x.type.dtype[0] == "u" else Absolute(x)


@rule(lambda x: Absolute(Absolute(x)))
def absolute_twice(x):
    return Absolute(x)


@rule(lambda x, c: Divide(x, c))
def over_power_of_two(x, c):
    """Both round the same real number, if the reciprocal is exact."""
    if not isinstance(c, Const) or c.dtype in COMPLEX or not math.isfinite(c.value) or c.value == 0:
        return None
    fraction, exponent = math.frexp(c.value)
    exact = abs(fraction) == 0.5 and abs(exponent) < (120 if c.dtype == "f32" else 1000)
    return Multiply(x, Const(1 / c.value, c.dtype)) if exact else None


@rule(lambda x: Maximum(x, x))
def maximum_itself(x):
    return x


@rule(lambda x: Minimum(x, x))
def minimum_itself(x):
    return x


@rule(lambda x: LogicalNot(LogicalNot(x)))
def not_twice(x):
    return x


@rule(lambda c, x: Where(c, x, x))
def same_branches(c, x):
    return x


@rule(lambda x, dtype: Cast(x, dtype))
def cast_to_same(x, dtype):
    return x


@rule(lambda x, a, b: Cast(Cast(x, a), b))
def cast_twice(x, a, b):
    """A cast on the way does not matter if its dtype holds every value of the first."""
    return Cast(x, b) if holds(a, x.type.dtype) else None


@rule(lambda x, p, q: Transpose(Transpose(x, p), q))
def transpose_twice(x, p, q):
    """Two transposes are one, and none at all if they undo each other."""
    axes = tuple(p[i] for i in q)
    return x if axes == tuple(range(len(axes))) else Transpose(x, axes)


@rule(lambda x, p: Transpose(x, p))
def transpose_nothing(x, p):
    return x if p == tuple(range(len(p))) else None


@rule(lambda x, a, b: Reshape(Reshape(x, a), b))
def reshape_twice(x, a, b):
    return Reshape(x, b)


@rule(lambda x, shape: Reshape(x, shape))
def reshape_to_same(x, shape):
    return x


@rule(lambda x, a, b: BroadcastTo(BroadcastTo(x, a), b))
def broadcast_twice(x, a, b):
    return BroadcastTo(x, b)


@rule(lambda x, shape: BroadcastTo(x, shape))
def broadcast_to_same(x, shape):
    return x


@rule(lambda x, starts, sizes, steps: Slice(x, starts, sizes, steps))
def slice_everything(x, starts, sizes, steps):
    return x if all(s == 0 for s in starts) and all(s == 1 for s in steps) else None


@rule(lambda xs, axis: Concatenate(xs, axis))
def concatenate_one(xs, axis):
    return xs[0] if len(xs) == 1 else None


RULES = (
    times_one,
    one_times,
    over_one,
    power_one,
    power_two,
    minus_zero,
    plus_zero,
    zero_plus,
    double_negative,
    plus_negative,
    minus_negative,
    absolute_negative,
    absolute_twice,
    over_power_of_two,
    maximum_itself,
    minimum_itself,
    not_twice,
    same_branches,
    cast_to_same,
    cast_twice,
    transpose_twice,
    transpose_nothing,
    reshape_twice,
    reshape_to_same,
    broadcast_twice,
    broadcast_to_same,
    slice_everything,
    concatenate_one,
    *STRENGTH_RULES,
)


@function_pass
def simplify(function: Function) -> Function:
    """`function` with cheaper expressions that are equal to the last bit."""
    function = rewrite(function, RULES, FUNCTIONS)
    moving = movement_rules(function)  # asked now: how often a value is read is known once the other rules are done
    return rewrite(function, RULES, (*FUNCTIONS, *moving)) if moving else function


def broadcast_by_itself(value: Expr, definitions: dict[Var, Expr]) -> Expr | None:
    """An op that broadcasts needs no operand broadcast for it, as long as the result has the same shape without."""
    if not isinstance(value, Elementwise | Matmul):
        return None
    for operand in value.operands():
        match definitions.get(operand) if isinstance(operand, Var) else None:
            case BroadcastTo(x=source):
                pass
            case Full(value=Const() as source) if isinstance(value, Elementwise):
                pass
            case _:
                continue
        new = value.map_operands(lambda a, old=operand, new=source: new if a == old else a)
        if _keeps_type(value, new):
            return new
    return None


def reduce_nothing(value: Expr, definitions: dict[Var, Expr]) -> Var | None:
    """A reduction over no axes is the array."""
    return value.x if isinstance(value, Reduction) and value.axes == () else None


def match_nothing(value: Expr, definitions: dict[Var, Expr]) -> Atom | None:
    """A match_cast to the very type that the value has cannot fail."""
    return value.value if isinstance(value, MatchCast) and value.type == value.value.type and is_known(value.type) else None


FUNCTIONS = (broadcast_by_itself, reduce_nothing, match_nothing, *STRENGTH_FUNCTIONS)


def real_only(x: Atom) -> Atom | None:
    """`x`, unless it is complex: a product by 1 has ``0 * inf`` in it, which is NaN."""
    return None if x.type.dtype in COMPLEX else x


def holds(wide: str, narrow: str) -> bool:
    """Is every value of dtype `narrow` a value of dtype `wide`?"""
    w, n = NUMPY_DTYPES[wide], NUMPY_DTYPES[narrow]
    if w == n or n.kind == "b":
        return True
    if w.kind == "c":
        return n.itemsize <= w.itemsize if n.kind == "c" else holds(PARTS[wide], narrow)
    if n.kind == "c":
        return False
    if w.kind == "f":
        return n.itemsize <= w.itemsize if n.kind == "f" else n.itemsize <= w.itemsize // 2
    signs = (w.kind, n.kind)
    return w.itemsize >= n.itemsize if signs in (("i", "i"), ("u", "u")) else signs == ("i", "u") and w.itemsize > n.itemsize


def _keeps_type(old: Expr, new: Expr) -> bool:
    try:
        return new.infer(*(a.type for a in new.operands())) == old.infer(*(a.type for a in old.operands()))
    except CompileError:
        return False

"""Sizes that users see while their function is traced: they calculate like integers and answer questions with facts.

Arithmetic keeps a size symbolic.  A question (``n > 16``, ``n == m``, ``range(n)``, ``int(n)``) is answered as in this
call, and the answer becomes a guard of the compiled program.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

import numpy as np

from minirelax.errors import ShapeError
from minirelax.ir.dim import Dim, floordiv, mod, names

if TYPE_CHECKING:
    from minirelax.frontend.builder import Builder


WHOLE = "use whole-array operations, or minirelax.fori_loop"
FREE = f"leave the size undeclared: each size is then compiled for; or {WHOLE}"
INNER = f"the size is known only while running: {WHOLE}"


class Size:
    """An integer that depends on the sizes of the arguments."""

    __slots__ = ("_dim", "builder", "_scope")

    def __init__(self, dim: Dim, builder: Builder):
        self._dim, self.builder, self._scope = dim, builder, builder.scope

    @property
    def dim(self) -> Dim:
        """The size as the IR knows it.  Raises ArgumentError for one that is gone with the branch or loop that it is from."""
        for scope in self._scope.outwards() if not self._scope.open else ():
            if not scope.open and names(self._dim) & scope.sizes:
                from minirelax.frontend.array import leaked

                raise leaked(f"the size {self._dim}", scope)
        return self._dim

    def __repr__(self) -> str:
        return str(self.builder.facts.resolve(self._dim))

    def __index__(self) -> int:
        facts = self.builder.facts
        d = facts.resolve(self.dim)
        if isinstance(d, int):
            return d
        found = facts.hint(d)
        if found is None or not facts.may_assume(d):
            raise ShapeError(f"the size {d} is used where only a number will do", INNER if names(d) & facts.inner else FREE)
        facts.assume_equal(d, found)
        return found

    __int__ = __trunc__ = __index__

    def __float__(self) -> float:
        return float(int(self))

    def __bool__(self) -> bool:
        return self.builder.facts.decide("!=", self.dim, 0)

    def __hash__(self) -> int:
        return hash(int(self))

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        return np.array(int(self), dtype)

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        from minirelax.frontend.array import array_ufunc

        return array_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, func, types, args, kwargs):
        from minirelax.frontend.functions.registry import array_function

        return array_function(func, args, kwargs)

    def __add__(self, other):
        return _arithmetic(_add, operator.add, self, other)

    def __sub__(self, other):
        return _arithmetic(_subtract, operator.sub, self, other)

    def __mul__(self, other):
        return _arithmetic(_multiply, operator.mul, self, other)

    def __floordiv__(self, other):
        return _arithmetic(_floordiv, operator.floordiv, self, other)

    def __mod__(self, other):
        return _arithmetic(_mod, operator.mod, self, other)

    def __divmod__(self, other):
        return self // other, self % other

    def __truediv__(self, other):
        return _arithmetic(None, operator.truediv, self, other)

    def __pow__(self, other):
        if isinstance(other, int) and 0 <= other <= 8:
            return math.prod([self] * other)
        return _arithmetic(None, operator.pow, self, other)

    def __radd__(self, other):
        return _arithmetic(_add, operator.add, other, self)

    def __rsub__(self, other):
        return _arithmetic(_subtract, operator.sub, other, self)

    def __rmul__(self, other):
        if isinstance(other, list | tuple):
            return other * int(self)
        return _arithmetic(_multiply, operator.mul, other, self)

    def __rfloordiv__(self, other):
        return _arithmetic(_floordiv, operator.floordiv, other, self)

    def __rmod__(self, other):
        return _arithmetic(_mod, operator.mod, other, self)

    def __rdivmod__(self, other):
        return other // self, other % self

    def __rtruediv__(self, other):
        return _arithmetic(None, operator.truediv, other, self)

    def __rpow__(self, other):
        return _arithmetic(None, operator.pow, other, self)

    def __neg__(self):
        return 0 - self

    def __pos__(self):
        return self

    def __abs__(self):
        return self if self >= 0 else -self

    def __round__(self, digits=None):
        return self

    __floor__ = __ceil__ = __pos__

    def __eq__(self, other):
        return _comparison("==", operator.eq, self, other)

    def __ne__(self, other):
        return _comparison("!=", operator.ne, self, other)

    def __lt__(self, other):
        return _comparison("<", operator.lt, self, other)

    def __le__(self, other):
        return _comparison("<=", operator.le, self, other)

    def __gt__(self, other):
        return _comparison(">", operator.gt, self, other)

    def __ge__(self, other):
        return _comparison(">=", operator.ge, self, other)


def _dim(value: object) -> Dim | None:
    """`value` as a size of the IR, None if it is not an integer."""
    if isinstance(value, Size):
        return value.builder.facts.resolve(value.dim)
    return int(value) if isinstance(value, int | np.integer) else None


def _arithmetic(on_sizes, on_numbers, left, right):
    """A new size, or a traced number where the result is no size."""
    builder = left.builder if isinstance(left, Size) else right.builder
    a, b = _dim(left), _dim(right)
    if a is not None and b is not None and on_sizes is not None:
        return builder.size(on_sizes(builder, a, b))
    if not isinstance(left, Size | int | float | complex) or not isinstance(right, Size | int | float | complex):
        return NotImplemented  # arrays know what to do with a size
    return on_numbers(*(builder.number(v.dim) if isinstance(v, Size) else v for v in (left, right)))


def _comparison(relation, on_numbers, left: Size, right):
    other = _dim(right)
    if other is not None:
        try:
            return left.builder.facts.decide(relation, left.dim, other)
        except ShapeError as e:
            return _undecided(on_numbers, left, right, e)
    if isinstance(right, float) and not math.isnan(right):
        return _against_float(left, relation, right)
    if relation in ("==", "!=") and (right is None or isinstance(right, str | tuple | list | float | complex)):
        return relation == "!="
    return NotImplemented


def _undecided(on_numbers, left: Size, right, error: ShapeError):
    """The answer as a traced bool: to be computed, or, where Python wants to know it, an error."""
    answer = on_numbers(*(left.builder.number(v.dim) if isinstance(v, Size) else v for v in (left, right)))
    answer.undecided = error
    return answer


def _against_float(left: Size, relation: str, right: float) -> bool:
    """An integer compares with 2.5 as it does with 2 or 3."""
    if math.isinf(right):
        return (relation in ("<", "<=", "!=")) if right > 0 else (relation in (">", ">=", "!="))
    if right == math.floor(right):
        return left.builder.facts.decide(relation, left.dim, int(right))
    if relation in ("==", "!="):
        return relation == "!="
    below = relation in ("<", "<=")
    return left.builder.facts.decide("<=" if below else ">=", left.dim, math.floor(right) if below else math.ceil(right))


def _add(_builder: Builder, a: Dim, b: Dim) -> Dim:
    return a + b


def _subtract(_builder: Builder, a: Dim, b: Dim) -> Dim:
    return a - b


def _multiply(_builder: Builder, a: Dim, b: Dim) -> Dim:
    return a * b


def _floordiv(builder: Builder, a: Dim, b: Dim) -> Dim:
    return floordiv(a, _divisor(builder, b))


def _mod(builder: Builder, a: Dim, b: Dim) -> Dim:
    return mod(a, _divisor(builder, b))


def _divisor(builder: Builder, b: Dim) -> Dim:
    """`b`, after making sure that it is not 0."""
    if b == 0 or builder.facts.decide("==", b, 0, default=False):
        raise ZeroDivisionError("integer division or modulo by zero")
    return b

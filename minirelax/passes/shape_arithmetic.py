"""What integer arrays are made of sizes and numbers alone: computed now, with sizes in the place of numbers.

Importers of other systems' models compute shapes with tensors: the shape of an array as a vector, an element taken, multiplied,
joined with others, and the result used as a shape.  An op's `numpy` rule works on arrays of sizes as on arrays of numbers, so
the vector's elements are found as expressions, and nothing of this is left to do while the program runs.

>>> from minirelax.ir.dim import symbol
>>> x, v0, v1 = Var("x", Tensor("f32", (symbol("n"), 4))), Var("v0", Tensor("i64", (2,))), Var("v1", Tensor("i64", (3,)))
>>> made = {"v0": Sizes((symbol("n"), 4)), "v1": Concatenate((v0, v0), 0)}
>>> sizes_in(v1, made, {})
array([n, 4, n, 4], dtype=object)
>>> sizes_in(x, made, {}) is None
True
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from minirelax.ir.dim import Dim, floordiv, maximum, minimum, mod
from minirelax.ir.graph import Atom, Const, Expr, Var
from minirelax.ir.op import Op
from minirelax.ir.types import Tensor
from minirelax.ops.arithmetic import Add, FloorDivide, Maximum, Minimum, Multiply, Negative, Remainder, Subtract
from minirelax.ops.create import SizeOf
from minirelax.ops.elementwise import Cast
from minirelax.ops.index import Slice, Take
from minirelax.ops.movement import BroadcastTo, Concatenate, Reshape, Transpose
from minirelax.ops.reduce import Prod, Sum
from minirelax.ops.shape import ShapeToTensor, Sizes

MOST = 64  # elements: more than any shape has axes


def sizes_in(atom: Atom, definitions: Mapping[str, Expr], constants: Mapping[str, np.ndarray]) -> np.ndarray | None:
    """The elements of an integer array as an array of sizes; None if something else than sizes and numbers goes into it.

    `definitions` say how values were made, by name; `constants` are the module's arrays.
    """
    match atom:
        case Const(value=int() as number) if not isinstance(number, bool):
            return _array(number)
        case Var(name=name) if name in constants:
            found = constants[name]
            return found.astype(object) if found.dtype == np.int64 and found.size <= MOST else None
        case Var(type=Tensor(dtype="i64")):
            return _made_by(definitions.get(atom.name), definitions, constants)
    return None


def _made_by(expr: Expr | None, definitions: Mapping[str, Expr], constants: Mapping[str, np.ndarray]) -> np.ndarray | None:
    match expr:
        case Sizes(values=values):
            return _array(values)
        case SizeOf(size=size):
            return _array(size)
        case ShapeToTensor(s=Var(type=shape)) if shape.values is not None:
            return _array(shape.values)
        case Op() if type(expr) in MEANING:
            operands = [sizes_in(a, definitions, constants) for a in expr.operands()]
            if any(o is None for o in operands):
                return None
            try:
                found = _array(MEANING[type(expr)](expr, *operands))
            except (TypeError, ValueError, IndexError):  # the rule asked a size for its number
                return None
            return found if found.size <= MOST else None
    return None


def _array(elements: Dim | tuple | np.ndarray) -> np.ndarray:
    return np.array(elements, object)


def _by_rule(op: Op, *operands: np.ndarray) -> np.ndarray:
    return op.numpy(*operands)


def _each(function: Callable[[Dim, Dim], Dim]) -> Callable[..., np.ndarray]:
    return lambda _, x, y: np.frompyfunc(function, 2, 1)(x, y)


def _positive(function: Callable[[Dim, Dim], Dim]) -> Callable[..., np.ndarray]:
    """A division: of the divisor it must be sure that it is not 0, for which NumPy has its own rule."""

    def on_arrays(_, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if not all(isinstance(d, int) and d > 0 for d in np.ravel(y)):
            raise ValueError("a divisor that may be 0")
        return np.frompyfunc(function, 2, 1)(x, y)

    return on_arrays


MEANING: dict[type[Op], Callable[..., np.ndarray]] = {
    **dict.fromkeys((Add, Subtract, Multiply, Negative, Prod, Sum), _by_rule),
    **dict.fromkeys((Concatenate, Reshape, Slice, Take, Transpose, BroadcastTo), _by_rule),
    Maximum: _each(maximum),
    Minimum: _each(minimum),
    FloorDivide: _positive(floordiv),
    Remainder: _positive(mod),
    Cast: lambda op, x: x,  # from i64 to i64: `sizes_in` looks at no other dtype
}

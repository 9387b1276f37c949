"""Shapes as values: the sizes of an array, sizes as numbers, numbers as sizes, and reshaping by a shape that is a value.

A shape value is a tuple of integers while a program runs.  Its type says its entries where they are known, so most of these ops
are gone after `passes.resolve_shapes`; what the data decides is left to the run.

>>> from minirelax.ir.types import Shape, f32, i64
>>> ShapeOf(None).infer(f32["n", 4]), TensorToShape(None).infer(i64[2]), ShapeToTensor(None).infer(Shape(ndim=2))
(Shape([n, 4]), Shape(ndim=2), i64[2])
>>> ReshapeTo(None, None).infer(f32["n", 4], Shape(["2*n", 2])), ReshapeTo(None, None).infer(f32["n", 4], Shape(ndim=3))
(f32[2*n, 2], f32[_, _, _])
"""
from __future__ import annotations

import math

import numpy as np

from minirelax.errors import ShapeError
from minirelax.ir.dim import Dim, is_nonnegative, product
from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.scalar import apply, literal, size_value
from minirelax.ir.tensor import KernelBuilder, TensorExpr
from minirelax.ir.types import Shape, Tensor, Type
from minirelax.ops.elementwise import sample
from minirelax.ops.rules import dtype_error, not_an_array, shape_error


@op
class ShapeOf(Op):
    """The sizes of an array."""

    x: Atom

    library = True

    def infer(self, x):
        check_array(self, (x,), x)
        known = x.shape is not None and None not in x.shape
        return Shape(x.shape) if known else Shape(ndim=x.ndim)

    def numpy(self, x):
        return np.shape(x)

    @classmethod
    def examples(cls):
        return [(cls(None), (sample("f32", *shape),)) for shape in ((2, 3), (), (0, 5), (7,))]


@op
class TensorToShape(Op):
    """The numbers of a vector as sizes.  Raises ShapeError while running if one is negative."""

    x: Atom

    library = True

    def infer(self, x):
        check_array(self, (x,), x)
        if x.dtype not in ("i64", None) or x.ndim not in (1, None):
            raise shape_error(self, (x,), "sizes come from a vector of i64", "take the values in one axis: x.reshape(-1)")
        return Shape(ndim=x.shape[0] if x.shape and isinstance(x.shape[0], int) else None)

    def numpy(self, x):
        found = tuple(x.tolist())
        if any(n < 0 for n in found):
            raise ShapeError(f"tensor_to_shape: {found} has a negative entry", "sizes are >= 0", where="")
        return found

    @classmethod
    def examples(cls):
        return [(cls(None), (np.array(values, np.int64),)) for values in ([3, 4], [], [0], [5, 1, 2])]


@op
class ShapeToTensor(Op):
    """Sizes as the numbers of a vector."""

    s: Atom

    library = True

    def infer(self, s):
        check_shape(self, (s,), s)
        return Tensor("i64", (s.ndim,))

    def numpy(self, s):
        return np.array(s, np.int64)

    @classmethod
    def examples(cls):
        return [(cls(None), (sizes,)) for sizes in ((3, 4), (), (0,), (5, 1, 2))]


@op
class Sizes(Op):
    """These sizes as the numbers of a vector."""

    values: tuple[Dim, ...]

    def infer(self):
        return Tensor("i64", (len(self.values),))

    def numpy(self):
        return np.array(self.values, np.int64)

    def lower(self, k: KernelBuilder) -> TensorExpr:
        def at(i):
            found = size_value(self.values[-1]) if self.values else literal(0, "i64")
            for place in range(len(self.values) - 2, -1, -1):
                here = apply("less", size_value(i), literal(place + 1, "i64"))
                found = apply("where", here, size_value(self.values[place]), found)
            return found
        return TensorExpr((len(self.values),), "i64", at)

    @classmethod
    def examples(cls):
        return [(cls(sizes), ()) for sizes in ((3, 4), (), (0,), (5, 1, 2))]


@op
class ReshapeTo(Op):
    """The same elements in row-major order under the shape `s`.  Raises ShapeError while running if there are not as many."""

    x: Atom
    s: Atom

    library = True

    def infer(self, x, s):
        check_array(self, (x, s), x)
        check_shape(self, (x, s), s)
        if s.values is None:
            return Tensor(x.dtype, None if s.ndim is None else (None,) * s.ndim)
        if x.shape is not None and None not in x.shape:
            given, wanted = product(x.shape), product(s.values)
            if is_nonnegative(given - wanted - 1) or is_nonnegative(wanted - given - 1):
                raise shape_error(self, (x, s), f"{given} elements never fill a shape of {wanted}", "give a shape of as many")
        return Tensor(x.dtype, s.values)

    def numpy(self, x, s):
        if (wanted := math.prod(map(int, s))) != x.size:
            what = f"reshape_to: an array of shape {x.shape} has {x.size} elements, the shape {tuple(s)} has {wanted}"
            raise ShapeError(what, where="")
        return np.reshape(x, s)

    @classmethod
    def examples(cls):
        return [(cls(None, None), (sample("f32", *old), new)) for old, new in (
            ((2, 3), (6,)), ((6,), (2, 3)), ((2, 0), (0, 3)), ((1,), ()))]


def check_array(op: Op, types: tuple[Type, ...], x: Type) -> None:
    """Raises DTypeError unless an operand is an array; its sizes need not be known."""
    if not isinstance(x, Tensor):
        raise not_an_array(op, types, x)


def check_shape(op: Op, types: tuple[Type, ...], s: Type) -> None:
    """Raises DTypeError unless an operand is a shape value."""
    if not isinstance(s, Shape):
        raise dtype_error(op, types, f"an operand is {s}, not a shape", "make one: shape(n, 4), shape_of(x), tensor_to_shape(x)")

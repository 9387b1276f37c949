"""Reductions: sum, product, extremes, truth of any or all, and the position of an extreme.

Axes are counted from 0 and sorted; `keepdims` leaves them as 1.

>>> from minirelax.ir.types import f32
>>> Sum(None, axes=(1,)).infer(f32["n", "m"]), Argmax(None, axis=0, keepdims=True).infer(f32["n", "m"])
(f32[n], i64[1, m])
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from minirelax.ir.dim import Dim
from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.scalar import apply, index_scalar
from minirelax.ir.tensor import KernelBuilder, TensorExpr
from minirelax.ir.types import Tensor
from minirelax.ops.elementwise import sample
from minirelax.ops.rules import ANY, COMPLEX, FLOATS, NUMBERS, accept, check_axes, shape_error, tensors


@dataclass(frozen=True)
class Reduction(Op):
    """Elements combined over `axes`."""

    x: Atom
    axes: tuple[int, ...]
    keepdims: bool = False

    ufunc = None                 # its `reduce` is the meaning
    accepts = ANY
    reduction = ""               # one of `loop.REDUCTIONS`
    on_bool = None               # the reduction of bools, if another

    def infer(self, x: Tensor) -> Tensor:
        tensors(self, (x,))
        accept(self, (x,), x.dtype, self.accepts)
        check_axes(self, (x,), self.axes, len(x.shape))
        return Tensor(x.dtype, reduced_shape(x.shape, self.axes, self.keepdims))

    def numpy(self, x):
        return self.ufunc.reduce(x, axis=self.axes, keepdims=self.keepdims, dtype=x.dtype)

    def lower(self, k: KernelBuilder, x: TensorExpr) -> TensorExpr:
        if not self.axes:
            return x
        reduction = self.on_bool if x.dtype == "bool" and self.on_bool else self.reduction
        return reduce_axes(k, reduction, x, self.axes, self.keepdims)

    @classmethod
    def examples(cls):
        dtypes = [t for t in ("f64", "i64", "u8", "bool", "c64") if t in cls.accepts]
        cases = [((2, 3, 5), (0, 2), True), ((3,), (0,), False), ((2, 1), (1,), True), ((0, 3), (1,), False), ((2, 3), (), False)]
        return [(cls(None, (1,)), (sample(t, 2, 13),)) for t in dtypes] + [
            (cls(None, axes, keepdims), (sample(dtypes[0], *shape),)) for shape, axes, keepdims in cases]


@op
class Sum(Reduction):
    """The sum over `axes`, in the dtype of `x`; 0 of no elements."""

    ufunc, accepts, reduction = np.add, (*NUMBERS, *COMPLEX), "sum"


@op
class Prod(Reduction):
    """The product over `axes`, in the dtype of `x`; 1 of no elements."""

    ufunc, accepts, reduction = np.multiply, (*NUMBERS, *COMPLEX), "prod"


@dataclass(frozen=True)
class Extreme(Reduction):
    """A reduction that has no value for no elements."""

    def infer(self, x):
        result = super().infer(x)
        if any(x.shape[a] == 0 for a in self.axes):
            fact = f"zero-size array to reduction operation {self.ufunc.__name__} which has no identity"
            raise shape_error(self, (x,), fact, "an empty array has no such element")
        return result


@op
class Max(Extreme):
    """The largest element over `axes`; NaN if any is NaN."""

    ufunc, reduction, on_bool = np.maximum, "max", "any"


@op
class Min(Extreme):
    """The smallest element over `axes`; NaN if any is NaN."""

    ufunc, reduction, on_bool = np.minimum, "min", "all"


@op
class Any(Reduction):
    """Is any element true?  False of no elements."""

    ufunc, accepts, reduction = np.logical_or, ("bool",), "any"


@op
class All(Reduction):
    """Are all elements true?  True of no elements."""

    ufunc, accepts, reduction = np.logical_and, ("bool",), "all"


@dataclass(frozen=True)
class Position(Op):
    """Where along `axis` an extreme is (``i64``): the first of equal ones, the first NaN if there is one."""

    x: Atom
    axis: int
    keepdims: bool = False

    extreme = ("", "")           # the reductions of numbers and of bools

    def infer(self, x: Tensor) -> Tensor:
        tensors(self, (x,))
        accept(self, (x,), x.dtype, ANY)
        check_axes(self, (x,), (self.axis,), len(x.shape))
        if x.shape[self.axis] == 0:
            fact = f"attempt to get {self.opname()} of an empty sequence"
            raise shape_error(self, (x,), fact, "an empty array has no such element")
        return Tensor("i64", reduced_shape(x.shape, (self.axis,), self.keepdims))

    def lower(self, k: KernelBuilder, x: TensorExpr) -> TensorExpr:
        best = reduce_axes(k, self.extreme[x.dtype == "bool"], x, (self.axis,), True)
        extent = x.shape[self.axis]

        def position(*i):
            value, top = x.at(*i), best.at(*i[:self.axis], 0, *i[self.axis + 1:])
            found = apply("equal", value, top)
            if x.dtype in FLOATS:
                found = apply("logical_or", found, apply("isnan", value))
            return apply("where", found, index_scalar(i[self.axis]), index_scalar(extent))
        return reduce_axes(k, "min", TensorExpr(x.shape, "i64", position), (self.axis,), self.keepdims)

    @classmethod
    def examples(cls):
        tied = np.array([[1, 3, 3], [2, 2, 0]])
        arrays = (tied.astype(np.float32), tied.astype(np.int8), tied > 1, np.where(tied == 3, np.nan, tied), sample("f64", 5, 1))
        return [(cls(None, axis, keepdims), (a,)) for axis, keepdims in ((1, False), (0, True)) for a in arrays]


@op
class Argmax(Position):
    """Where along `axis` the largest element is: the first of equal ones, the first NaN if there is one."""

    extreme = ("max", "any")

    def numpy(self, x):
        return np.argmax(x, axis=self.axis, keepdims=self.keepdims)


@op
class Argmin(Position):
    """Where along `axis` the smallest element is: the first of equal ones, the first NaN if there is one."""

    extreme = ("min", "all")

    def numpy(self, x):
        return np.argmin(x, axis=self.axis, keepdims=self.keepdims)


def reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> tuple[Dim, ...]:
    """`shape` without `axes`, or with 1 in their place."""
    return tuple(1 if a in axes else d for a, d in enumerate(shape) if keepdims or a not in axes)


def reduce_axes(k: KernelBuilder, reduction: str, x: TensorExpr, axes: tuple[int, ...], keepdims: bool) -> TensorExpr:
    """`x` reduced over `axes` into a local buffer."""
    shape = reduced_shape(x.shape, axes, keepdims)

    def value(*index):
        kept, summed = iter(index[:len(shape)]), iter(index[len(shape):])
        full = []
        for a in range(len(x.shape)):
            if keepdims and a in axes:
                next(kept)
            full.append(next(summed if a in axes else kept))
        return x.at(*full)
    return k.reduce(reduction, shape, tuple(x.shape[a] for a in axes), value, x.dtype)

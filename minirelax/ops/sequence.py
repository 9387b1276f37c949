"""Sorting, searching, selecting and running totals: library calls, since each step depends on the ones before.

Some results have a size that only the data decides, ``_``; match_cast gives it a name.

>>> from minirelax.ir.types import bool_, f32
>>> Sort(None, axis=0).infer(f32["n"]), Compress(None, None, axis=0).infer(bool_["n"], f32["n", 3])
(f32[n], f32[_, 3])
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.types import Tensor
from minirelax.ops.elementwise import sample
from minirelax.ops.rules import ANY, NUMBERS, accept, check_axes, dtype_error, equal_sizes, same_dtype, shape_error, tensors


@dataclass(frozen=True)
class AlongAxis(Op):
    """An array of the same shape, each line along `axis` on its own."""

    x: Atom
    axis: int

    library = True
    accepts = ANY
    result = None

    def infer(self, x):
        tensors(self, (x,))
        accept(self, (x,), x.dtype, self.accepts)
        check_axes(self, (x,), (self.axis,), len(x.shape))
        return Tensor(self.result or x.dtype, x.shape)

    @classmethod
    def examples(cls):
        return [(cls(None, axis), (sample(t, *shape),)) for t in ("f64", "i8", "bool") if t in cls.accepts
                for shape, axis in (((5,), 0), ((2, 7), 1), ((7, 2), 0), ((0, 3), 0))]


@op
class Sort(AlongAxis):
    """Ascending order along `axis`; NaN last."""

    def numpy(self, x):
        return np.sort(x, axis=self.axis)


@op
class Argsort(AlongAxis):
    """The indices that sort along `axis`; equal elements keep their order."""

    result = "i64"

    def numpy(self, x):
        return np.argsort(x, axis=self.axis, kind="stable")


@op
class Cumsum(AlongAxis):
    """Running sums along `axis`, in the dtype of `x`."""

    accepts = NUMBERS

    def numpy(self, x):
        return np.cumsum(x, axis=self.axis, dtype=x.dtype)


@op
class Cumprod(AlongAxis):
    """Running products along `axis`, in the dtype of `x`."""

    accepts = NUMBERS

    def numpy(self, x):
        return np.cumprod(x, axis=self.axis, dtype=x.dtype)


@op
class Compress(Op):
    """The slices of `x` along `axis` where `condition` is true."""

    condition: Atom
    x: Atom
    axis: int

    library = True

    def infer(self, condition, x):
        types = (condition, x)
        tensors(self, types)
        check_axes(self, types, (self.axis,), len(x.shape))
        if condition.dtype != "bool" or len(condition.shape) != 1:
            raise dtype_error(self, types, "the condition must be bool with one axis", "for a mask of several axes, flatten both")
        equal_sizes(self, types, condition.shape[0], x.shape[self.axis], "condition and axis have sizes")
        return Tensor(x.dtype, (*x.shape[:self.axis], None, *x.shape[self.axis + 1:]))

    def numpy(self, condition, x):
        return np.compress(condition, x, axis=self.axis)

    @classmethod
    def examples(cls):
        mask = np.array([True, False, True])
        return [(cls(None, None, axis), (condition, sample("f32", *shape))) for axis, condition, shape in (
            (0, mask, (3,)), (1, mask, (2, 3)), (0, mask & ~mask, (3, 2)))]


@op
class Nonzero(Op):
    """The indices of the elements that are not 0: one array for each axis, in row-major order."""

    x: Atom

    library = True

    def infer(self, x):
        tensors(self, (x,))
        if not x.shape:
            raise shape_error(self, (x,), "a scalar has no indices", "reshape it to one axis")
        return tuple(Tensor("i64", (None,)) for _ in x.shape)

    def numpy(self, x):
        return np.nonzero(x)

    @classmethod
    def examples(cls):
        cases = (("i8", (13,)), ("bool", (2, 3)), ("f32", (2, 3, 5)), ("f32", (0,)))
        return [(cls(None), (sample(t, *shape),)) for t, shape in cases]


@op
class Unique(Op):
    """The distinct elements, in ascending order; NaN once, last."""

    x: Atom

    library = True

    def infer(self, x):
        tensors(self, (x,))
        return Tensor(x.dtype, (None,))

    def numpy(self, x):
        return np.unique(x)

    @classmethod
    def examples(cls):
        cases = (("f64", (2, 13)), ("bool", (5,)), ("u8", (3, 7)), ("f32", (0,)), ("i64", ()))
        return [(cls(None), (sample(t, *shape),)) for t, shape in cases]


@op
class Searchsorted(Op):
    """Where each `v` would go into the ascending `a`: before equal elements (side "left") or after them ("right")."""

    a: Atom
    v: Atom
    side: str = "left"

    library = True

    def infer(self, a, v):
        same_dtype(self, (a, v))
        if len(a.shape) != 1 or self.side not in ("left", "right"):
            raise shape_error(self, (a, v), 'needs a sorted array of one axis, and side "left" or "right"', "flatten and sort it")
        return Tensor("i64", v.shape)

    def numpy(self, a, v):
        return np.searchsorted(a, v, side=self.side)

    @classmethod
    def examples(cls):
        a = np.array([1.0, 2.0, 2.0, 5.0])
        wanted = (np.array(2.0), np.array([[0.0, 2.0, 9.0]]), np.zeros((0,)))
        return [(cls(None, None, side), (a, v)) for side in ("left", "right") for v in wanted]

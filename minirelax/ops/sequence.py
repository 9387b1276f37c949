"""Sorting, searching and running totals: library calls, since each step depends on the ones before.

>>> from minirelax.ir.types import f32
>>> Sort(None, axis=0).infer(f32["n"]), Searchsorted(None, None).infer(f32["n"], f32[4])
(f32[n], i64[4])
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.types import Tensor
from minirelax.ops.elementwise import sample
from minirelax.ops.rules import ANY, COMPLEX, NUMBERS, accept, check_axes, same_dtype, shape_error, tensors


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
        return [(cls(None, axis), (sample(t, *shape),)) for t in ("f64", "i8", "bool", "c64") if t in cls.accepts
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

    accepts = (*NUMBERS, *COMPLEX)

    def numpy(self, x):
        return np.cumsum(x, axis=self.axis, dtype=x.dtype)


@op
class Cumprod(AlongAxis):
    """Running products along `axis`, in the dtype of `x`."""

    accepts = (*NUMBERS, *COMPLEX)

    def numpy(self, x):
        return np.cumprod(x, axis=self.axis, dtype=x.dtype)


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

"""Arrays from nothing but sizes: one value everywhere, the whole numbers from 0, a size itself.

>>> from minirelax.ir.dim import dim
>>> from minirelax.ir.types import f32
>>> Full(None, (dim("n"), 3)).infer(f32[()]), Iota(dim("n"), "i64").infer(), SizeOf(dim("2*n")).infer()
(f32[n, 3], i64[n], i64[()])
"""
from __future__ import annotations

import numpy as np

from minirelax.ir.dim import Dim
from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.scalar import cast, index_scalar, size_value
from minirelax.ir.tensor import KernelBuilder, TensorExpr
from minirelax.ir.types import NUMPY_DTYPES, Tensor
from minirelax.ops.rules import NUMBERS, accept, shape_error, tensors


@op
class Full(Op):
    """An array of `shape` with `value` everywhere."""

    value: Atom
    shape: tuple[Dim, ...]

    def infer(self, value):
        tensors(self, (value,))
        if value.shape != () or any(isinstance(d, int) and d < 0 for d in self.shape):
            raise shape_error(self, (value,), f"needs a scalar, and sizes >= 0: {self.shape}", "to repeat an array, broadcast")
        return Tensor(value.dtype, self.shape)

    def numpy(self, value):
        return np.full(self.shape, value, np.asarray(value).dtype)

    def lower(self, k: KernelBuilder, value: TensorExpr) -> TensorExpr:
        return TensorExpr(self.shape, value.dtype, lambda *i: value.at())

    @classmethod
    def examples(cls):
        return [(cls(None, shape), (np.array(value),)) for shape, value in (
            ((2, 3), 1.5), ((), 7), ((0, 5), True), ((3, 1), np.float32(-0.0)))]


@op
class Iota(Op):
    """``0, 1, ..., size - 1`` as numbers of `dtype`."""

    size: Dim
    dtype: str

    def infer(self):
        accept(self, (), self.dtype, NUMBERS)
        if isinstance(self.size, int) and self.size < 0:
            raise shape_error(self, (), f"a size cannot be {self.size}", "sizes are >= 0")
        return Tensor(self.dtype, (self.size,))

    def numpy(self):
        return np.arange(self.size).astype(NUMPY_DTYPES[self.dtype])

    def lower(self, k: KernelBuilder) -> TensorExpr:
        return TensorExpr((self.size,), self.dtype, lambda i: cast(index_scalar(i), self.dtype))

    @classmethod
    def examples(cls):
        return [(cls(size, t), ()) for size in (5, 0, 1) for t in ("i64", "f32", "u8")]


@op
class SizeOf(Op):
    """A size as a number, to compute with."""

    size: Dim

    @classmethod
    def opname(cls) -> str:
        return "size"

    def infer(self):
        return Tensor("i64", ())

    def numpy(self):
        return np.array(self.size, np.int64)

    def lower(self, k: KernelBuilder) -> TensorExpr:
        return TensorExpr((), "i64", lambda: size_value(self.size))

    @classmethod
    def examples(cls):
        return [(cls(6), ()), (cls(0), ())]

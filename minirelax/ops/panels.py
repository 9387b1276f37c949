"""The layout in which a matrix product reads its right operand fastest: panels of columns, `pack_panels`.

>>> from minirelax.ir.types import f32
>>> PackPanels(None, width=32).infer(f32[784, 100])
f32[4, 784, 32]
"""

from __future__ import annotations

import numpy as np

from minirelax.ir.dim import ceildiv, minimum
from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.scalar import apply, literal, size_value
from minirelax.ir.tensor import KernelBuilder, TensorExpr
from minirelax.ir.types import Tensor
from minirelax.ops.elementwise import sample
from minirelax.ops.rules import shape_error, tensors


@op
class PackPanels(Op):
    """``out[p, k, r] = x[k, p*width + r]``: panels of `width` columns, the last one filled up with zeros.

    A micro-kernel then reads `width` neighbouring values for each `k`, one cache line after the other.  With `transposed`,
    `x` is given as ``x[column, k]``.
    """

    x: Atom
    width: int
    transposed: bool = False

    def infer(self, x):
        tensors(self, (x,))
        if len(x.shape) != 2 or self.width < 1 or x.shape[0 if self.transposed else 1] == 0:
            raise shape_error(self, (x,), "needs a matrix with columns, and a positive width")
        inner, columns = reversed(x.shape) if self.transposed else x.shape
        return Tensor(x.dtype, (ceildiv(columns, self.width), inner, self.width))

    def numpy(self, x):
        matrix = np.asarray(x).T if self.transposed else np.asarray(x)
        inner, columns = matrix.shape
        panels = -(-columns // self.width)
        padded = np.zeros((inner, panels * self.width), matrix.dtype)
        padded[:, :columns] = matrix
        return np.ascontiguousarray(padded.reshape(inner, panels, self.width).transpose(1, 0, 2))

    def lower(self, k: KernelBuilder, x: TensorExpr) -> TensorExpr:
        type_, columns = self.infer(x.type), x.shape[0 if self.transposed else 1]

        def at(p, inner, r):
            column = p * self.width + r
            inside = minimum(column, columns - 1)
            value = x.at(inside, inner) if self.transposed else x.at(inner, inside)
            return apply("where", apply("less", size_value(column), size_value(columns)), value, literal(0, x.dtype))

        return TensorExpr(type_.shape, type_.dtype, at)

    @classmethod
    def examples(cls):
        return [
            (cls(None, 4, transposed), (sample(t, *shape),))
            for transposed, shape in ((False, (3, 4)), (False, (3, 10)), (True, (5, 3)), (False, (2, 1)), (False, (0, 5)))
            for t in ("f32", "f64")
        ]

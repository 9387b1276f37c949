"""Inverses, solutions of linear systems, factors and determinants: library calls, to LAPACK by way of NumPy.

>>> from minirelax.ir.types import f64
>>> Solve(None, None).infer(f64["n", "n"], f64["n"]), Det(None).infer(f64["b", 3, 3])
(f64[n], f64[b])
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.types import Tensor
from minirelax.ops.rules import INEXACT, accept, broadcast, equal_sizes, same_dtype, shape_error

POSITIVE = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])         # an example: symmetric, positive definite
SKEW = np.array([[0.0, 1, -0.5], [-1, 0, 0.25], [0.5, -0.25, 0]])                    # ... and what makes it Hermitian


@dataclass(frozen=True)
class OfMatrix(Op):
    """A function of square matrices of floats or complex numbers, on the last two axes."""

    x: Atom

    library = True

    def infer(self, x):
        check_square(self, (x,), x)
        return x

    @classmethod
    def examples(cls):
        return [(cls(None), (a,)) for a in (
            POSITIVE, POSITIVE.astype(np.float32), POSITIVE + 0.5j * SKEW, np.stack([POSITIVE, 2 * POSITIVE]),
            np.zeros((0, 3, 3)))]


@op
class Inv(OfMatrix):
    """The inverse; NumPy raises LinAlgError for a singular matrix."""

    def numpy(self, x):
        return np.linalg.inv(x)


@op
class Cholesky(OfMatrix):
    """The lower triangular factor of a positive definite symmetric matrix: ``x == factor @ factor.T.conj()``."""

    def numpy(self, x):
        return np.linalg.cholesky(x)


@op
class Det(OfMatrix):
    """The determinant."""

    def infer(self, x):
        return Tensor(super().infer(x).dtype, x.shape[:-2])

    def numpy(self, x):
        return np.linalg.det(x)


@op
class Solve(Op):
    """The `x` with ``a @ x == b``; `b` is one vector, or matrices whose leading axes broadcast with those of `a`."""

    a: Atom
    b: Atom

    library = True

    def infer(self, a, b):
        types = (a, b)
        same_dtype(self, types)
        check_square(self, types, a)
        if not b.shape:
            raise shape_error(self, types, "the right side is a scalar", "give it one axis for each unknown")
        rows = b.shape[0] if len(b.shape) == 1 else b.shape[-2]
        equal_sizes(self, types, a.shape[-1], rows, "unknowns and rows of the right side are")
        if len(b.shape) == 1:
            return Tensor(a.dtype, a.shape[:-1])
        batch = broadcast(self, (Tensor(a.dtype, a.shape[:-2]), Tensor(a.dtype, b.shape[:-2])))
        return Tensor(a.dtype, (*batch, *b.shape[-2:]))

    def numpy(self, a, b):
        return np.linalg.solve(a, b)

    @classmethod
    def examples(cls):
        a = POSITIVE
        return [(cls(None, None), arrays) for arrays in (
            (a, np.arange(3.0)), (a, np.ones((3, 2))), (a.astype(np.float32), np.ones(3, np.float32)),
            (a + 2j * SKEW, np.arange(3) * 1j),
            (np.stack([a, 2 * a]), np.ones((3, 5))), (np.stack([a, 2 * a]), np.arange(3.0)))]


def check_square(op: Op, types, x: Tensor) -> None:
    """Raises an error unless `x` is square matrices of floats or complex numbers."""
    same_dtype(op, types)
    accept(op, types, x.dtype, INEXACT)
    if len(x.shape) < 2:
        raise shape_error(op, types, "needs matrices: at least two axes", "reshape it")
    equal_sizes(op, types, x.shape[-2], x.shape[-1], "the matrix has rows and columns")

"""Matrix products by the BLAS that NumPy was built with.

Generated products are packed for one machine, take biases and activations in, and need no call into Python, so they win at most
sizes.  Where a library is faster for large batches only, ``blas(rows=64)`` keeps the generated code for smaller ones: single
rows (matrix times vector) are bound by memory, and BLAS has nothing to add there.

>>> import numpy as np
>>> import minirelax as mr
>>> f = mr.jit(lambda x, w: np.exp(x @ w.T), libraries=blas())
>>> f(np.zeros((2, 3)), np.zeros((2, 3)))
array([[1., 1.],
       [1., 1.]])
>>> print(f.stages["choose_libraries"].module)
def main(x: f64[n, m], w: f64[k, m]) -> f64[n, k]:
    with dataflow():
        v1: f64[n, k] = call_library("blas_matmul_nt", x, w)
        v2: f64[n, k] = exp(v1)
        output(v2)
    return v2
"""

from __future__ import annotations

import numpy as np

from minirelax.errors import ArgumentError
from minirelax.ops.linalg import Matmul
from minirelax.ops.movement import Transpose, swaps_matrices
from minirelax.ops.rules import INEXACT
from minirelax.passes.choose_libraries import LibraryRule
from minirelax.passes.patterns import Match


def matmul(a, b, out):
    np.matmul(a, b, out=out)


def matmul_nt(a, b, out):
    np.matmul(a, b.swapaxes(-1, -2), out=out)


def matmul_tn(a, b, out):
    np.matmul(a.swapaxes(-1, -2), b, out=out)


def matmul_tt(a, b, out):
    np.matmul(a.swapaxes(-1, -2), b.swapaxes(-1, -2), out=out)


ROUTINES = {"blas_matmul": matmul, "blas_matmul_nt": matmul_nt, "blas_matmul_tn": matmul_tn, "blas_matmul_tt": matmul_tt}

PATTERNS = {  # the largest first
    "blas_matmul_tt": lambda a, b, p, q: Matmul(Transpose(a, p), Transpose(b, q)),
    "blas_matmul_nt": lambda a, b, q: Matmul(a, Transpose(b, q)),
    "blas_matmul_tn": lambda a, b, p: Matmul(Transpose(a, p), b),
    "blas_matmul": lambda a, b: Matmul(a, b),
}


def blas(rows: int = 0, priority: float = 0, cost: str | None = None) -> tuple[LibraryRule, ...]:
    """Rules that hand matrix products of floats or complex numbers, batches and transposed operands too, to NumPy's BLAS.

    rows: only products of more rows than that, all matrices of a batch together; a call with fewer runs generated code.
    priority, cost: those of the rules, see LibraryRule: with ``cost="measured"``, BLAS is called where it is the faster way.
    Raises ArgumentError for a number of rows below 0, and for both a number and a cost.
    """
    if not isinstance(rows, int) or isinstance(rows, bool) or rows < 0:
        raise ArgumentError(f"blas(rows={rows!r}): not a number of rows", "blas(rows=8) keeps generated code up to 8 rows")
    when = (lambda match: (_rows(match), ">", rows)) if rows else None
    return tuple(LibraryRule(name, pattern, _is_fit, name, priority, when=when, cost=cost) for name, pattern in PATTERNS.items())


def _is_fit(match: Match) -> bool:
    """Does BLAS have the dtype, and do transposes swap the two axes of the matrices?"""
    swaps = (match.found[v] for v in ("p", "q") if v in match.found)
    return match.root.var.type.dtype in INEXACT and all(map(swaps_matrices, swaps))


def _rows(match: Match):
    """How many rows the result has."""
    *batch, rows, _ = match.root.var.type.shape
    for size in batch:
        rows = rows * size
    return rows


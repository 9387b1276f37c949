"""Linear systems: what is asked of an inverse, of a factor or of a determinant, by a routine that computes just that.

A program that multiplies with an inverse has the matrix factored, n right sides solved, and a product; the solution of the
system has the matrix factored, and as many right sides solved as there are.  It is also the more accurate: its error grows with
the condition of the matrix, the one of an inverse times a vector with that and with the size of the inverse.  So results are
the same to rounding, for matrices that are not singular to rounding.

What these rules cannot say: a determinant and a solution that share one factorisation are two values, and a region has one.

>>> import numpy as np
>>> import minirelax as mr
>>> f = mr.jit(lambda a, b: np.linalg.inv(a) @ b, libraries=linalg())
>>> f(np.array([[2.0, 0], [0, 4]]), np.ones((2, 1)))
array([[0.5 ],
       [0.25]])
>>> print(f.stages["choose_libraries"].module)
def main(a: f64[n, n], b: f64[n, m]) -> f64[n, m]:
    with dataflow():
        v1: f64[n, m] = call_library("linalg_solve", a, b)
        output(v1)
    return v1
"""

from __future__ import annotations

import numpy as np

from minirelax.ops.arithmetic import Absolute
from minirelax.ops.lapack import Cholesky, Det, Inv, Solve
from minirelax.ops.linalg import Matmul
from minirelax.ops.movement import Transpose, swaps_matrices
from minirelax.ops.transcendental import Log
from minirelax.passes.choose_libraries import LibraryRule
from minirelax.passes.patterns import Match

BLOCK = 64  # rows that are solved for at once: few enough that their dense factorisation is next to nothing


def linalg(priority: float = 0) -> tuple[LibraryRule, ...]:
    """Rules that replace compositions of `numpy.linalg`; all are opt-in, and of this priority.

    ``inv(a) @ b`` and its three transposed forms become solutions; ``solve(l, b)`` and ``solve(l.T, b)`` of a factor that
    `cholesky` gave, substitution; ``log(det(a))`` and ``log(abs(det(a)))``, a sum of logarithms.
    """
    return tuple(
        LibraryRule(name, pattern, check, priority=priority, sizes=sizes)
        for name, pattern, check, sizes in (
            ("linalg_solve_transposed", lambda a, b, p: Matmul(Transpose(Inv(a), p), b), _factored_once, None),
            ("linalg_solve", lambda a, b: Matmul(Inv(a), b), _factored_once, None),
            ("linalg_solve_right_transposed", lambda b, a, p: Matmul(b, Transpose(Inv(a), p)), _factored_once, None),
            ("linalg_solve_right", lambda b, a: Matmul(b, Inv(a)), _factored_once, None),
            ("linalg_log_abs_det", lambda a: Log(Absolute(Det(a))), None, None),
            ("linalg_log_det", lambda a: Log(Det(a)), None, None),
            ("linalg_substitute_back", lambda a, b, p: Solve(Transpose(a, p), b), _is_transposed_factor, None),
            ("linalg_substitute", lambda a, b: Solve(a, b), _is_factor, lambda match: (int(_is_lower(match)),)),
        )
    )


# ---- the routines


def solve(a, b, out):
    """``inv(a) @ b``.  A matrix that NumPy finds singular raises LinAlgError here as there: both start with the same factors."""
    out[...] = np.linalg.solve(a, b)


def solve_transposed(a, b, out):
    """``inv(a).T @ b``, since the inverse of a transpose is the transposed inverse."""
    out[...] = np.linalg.solve(a.swapaxes(-1, -2), b)


def solve_right(b, a, out):
    """``b @ inv(a)``, which is the transpose of ``inv(a).T @ b.T``."""
    out[...] = np.linalg.solve(a.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)


def solve_right_transposed(b, a, out):
    """``b @ inv(a).T``, which is the transpose of ``inv(a) @ b.T``."""
    out[...] = np.linalg.solve(a, b.swapaxes(-1, -2)).swapaxes(-1, -2)


def substitute(a, b, out, is_lower):
    """``solve(a, b)`` for a triangular matrix, without factoring it: it is its own factor.

    Block by block: a block of unknowns is solved for, and taken out of all equations that are left, which is a product.
    """
    x = out[..., None] if b.ndim == 1 else out
    x[...] = b[:, None] if b.ndim == 1 else b
    starts = range(0, a.shape[-1], BLOCK)
    for start in starts if is_lower else reversed(starts):
        here = slice(start, start + BLOCK)
        left = slice(start + BLOCK, None) if is_lower else slice(0, start)
        x[..., here, :] = np.linalg.solve(a[..., here, here], x[..., here, :])
        x[..., left, :] -= a[..., left, here] @ x[..., here, :]


def substitute_back(a, b, out):
    """``solve(a.T, b)`` for a lower triangular matrix."""
    substitute(a.swapaxes(-1, -2), b, out, is_lower=False)


def log_abs_det(a, out):
    """``log(abs(det(a)))``: the same to rounding, and also where the determinant itself is too large or too small to store."""
    np.copyto(out, np.linalg.slogdet(a)[1])


def log_det(a, out):
    """``log(det(a))``: NaN where the determinant is negative."""
    sign, size = np.linalg.slogdet(a)
    np.copyto(out, np.where(sign < 0, np.nan, size))


ROUTINES = {
    "linalg_solve": solve,
    "linalg_solve_transposed": solve_transposed,
    "linalg_solve_right": solve_right,
    "linalg_solve_right_transposed": solve_right_transposed,
    "linalg_substitute": substitute,
    "linalg_substitute_back": substitute_back,
    "linalg_log_abs_det": log_abs_det,
    "linalg_log_det": log_det,
}


# ---- what the rules look at


def _factored_once(match: Match) -> bool:
    """Has each product a matrix of its own?  One matrix for a batch of products is inverted once, but would be solved for each.

    A transpose is one of matrices.
    """
    batch = match.root.var.type.shape[:-2]
    return match["a"].type.shape[:-2] == batch and swaps_matrices(match.found.get("p", (1, 0)))


def _is_transposed_factor(match: Match) -> bool:
    return isinstance(match.definition(match["a"]), Cholesky) and swaps_matrices(match["p"])


def _is_factor(match: Match) -> bool:
    """Is the matrix what `cholesky` gives, or the transpose of that?

    The other triangle then holds zeros, so that substitution reads all there is of it.
    """
    made = match.definition(match["a"])
    is_transposed = isinstance(made, Transpose) and swaps_matrices(made.axes)
    return isinstance(match.definition(made.x) if is_transposed else made, Cholesky)


def _is_lower(match: Match) -> bool:
    return isinstance(match.definition(match["a"]), Cholesky)

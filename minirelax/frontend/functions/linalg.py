"""Linear algebra beyond products: norms, powers, inverses, solutions."""

from __future__ import annotations

import functools

import numpy as np

from minirelax.errors import ShapeError, UnsupportedError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.contract import matmul
from minirelax.frontend.functions.create import eye
from minirelax.frontend.functions.reduce import max_, min_, squared, sum_
from minirelax.frontend.functions.registry import function
from minirelax.frontend.operands import as_dtype, asarray, axes_tuple, broadcast_shape, conform, promoted_arrays, require_equal
from minirelax.frontend.promotion import floating
from minirelax.frontend.ufuncs import call_ufunc


@function("linalg.norm")
def norm(x, ord=None, axis=None, keepdims=False):
    """The length of vectors (any `ord`), or of matrices ("fro", 1, inf)."""
    x = _floats(x)
    axes = axes_tuple(axis, x.ndim)
    size = call_ufunc(np.absolute, (x,))
    if ord is None or (ord == "fro" and len(axes) == 2) or (ord == 2 and len(axes) == 1):
        return call_ufunc(np.sqrt, (sum_(squared(x), axes, keepdims=keepdims),))
    if len(axes) == 1:
        return _vector_norm(size, ord, axes, keepdims)
    if len(axes) == 2 and ord in (1, -1, np.inf, -np.inf):
        column, row = axes if axis is None else tuple(operands.axis_number(a, x.ndim) for a in axis)
        summed, best = (column, row) if abs(ord) == 1 else (row, column)
        totals = sum_(size, summed, keepdims=True)
        found = (max_ if ord > 0 else min_)(totals, best, True)
        return found if keepdims else found.squeeze(axes)
    raise UnsupportedError(f"np.linalg.norm(..., ord={ord!r}) is not supported in a compiled function")


@function("linalg.vector_norm")
def vector_norm(x, /, *, axis=None, keepdims=False, ord=2):
    """The length of vectors; over all axes if none is named."""
    x = _floats(x)
    axes = axes_tuple(axis, x.ndim)
    if ord == 2:
        return call_ufunc(np.sqrt, (sum_(squared(x), axes, keepdims=keepdims),))
    return _vector_norm(call_ufunc(np.absolute, (x,)), ord, axes, keepdims)


@function("linalg.matrix_norm")
def matrix_norm(x, /, *, keepdims=False, ord="fro"):
    """The size of matrices on the last two axes."""
    return norm(x, ord, (-2, -1), keepdims)


@function("linalg.matrix_power")
def matrix_power(a, n):
    """A square matrix times itself, `n` times; a negative `n` takes the inverse."""
    x = _square(a)
    if n < 0:
        return matrix_power(inv(x), -n)
    if n == 0:
        return operands.broadcast(eye(x.shape[-1], dtype=x.dtype), x.dims)
    result = None
    while n:
        if n & 1:
            result = x if result is None else matmul(result, x)
        n >>= 1
        x = matmul(x, x) if n else x
    return result


@function("linalg.multi_dot")
def multi_dot(arrays):
    """The product of several matrices, from left to right."""
    return functools.reduce(matmul, arrays)


@function("linalg.inv")
def inv(a):
    """The inverse of square matrices."""
    return _library("inv", _square(_floats(a)))


@function("linalg.det")
def det(a):
    """The determinant of square matrices."""
    return _library("det", _square(_floats(a)))


@function("linalg.cholesky")
def cholesky(a, /, *, upper=False):
    """The triangular factor of positive definite matrices."""
    found = _library("cholesky", _square(_floats(a)))
    return call_ufunc(np.conjugate, (found.mT,)) if upper else found


@function("linalg.solve")
def solve(a, b):
    """The solution of linear systems."""
    x, y = promoted_arrays(a, b)
    x, y = _square(_floats(x)), _floats(y)
    if not y.ndim:
        raise ShapeError("linalg.solve: the right side needs at least one axis")
    require_equal(x.dims[-1], y.dims[0] if y.ndim == 1 else y.dims[-2], "linalg.solve: unknowns and rows of the right side are")
    if y.ndim > 1:
        broadcast_shape(x.dims[:-2], y.dims[:-2])
        y = conform(y, (*y.dims[:-2], x.dims[-1], y.dims[-1]))
    return x.derived(x.builder.op("solve", x.atom, y.atom))


def _vector_norm(size: TracedArray, ord: object, axes: tuple[int, ...], keepdims: bool) -> TracedArray:
    if ord == np.inf:
        return max_(size, axes, keepdims)
    if ord == -np.inf:
        return min_(size, axes, keepdims)
    if ord == 0:
        return sum_(as_dtype(size != 0, size.type.dtype), axes, keepdims=keepdims)
    if not isinstance(ord, int | float):
        raise UnsupportedError(f"np.linalg.norm(..., ord={ord!r}) is not supported in a compiled function")
    return sum_(size if ord == 1 else size ** float(ord), axes, keepdims=keepdims) ** (1.0 / ord)


def _floats(a: object) -> TracedArray:
    x = asarray(a)
    return as_dtype(x, floating(x.type.dtype))


def _square(x: TracedArray) -> TracedArray:
    x = asarray(x)
    if x.ndim < 2:
        raise ShapeError(f"{x.ndim}-dimensional array given. Array must be at least two-dimensional")
    require_equal(x.dims[-2], x.dims[-1], "Last 2 dimensions of the array must be square; they are")
    return conform(x, (*x.dims[:-1], x.dims[-2]))


def _library(name: str, x: TracedArray) -> TracedArray:
    return x.derived(x.builder.op(name, x.atom))

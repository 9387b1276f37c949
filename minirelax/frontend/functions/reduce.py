"""Reductions: sums, products, extremes, means, variances, and where the extremes are.

Each takes `axis` (None: all), `keepdims`, and, where NumPy has them, `dtype`, `initial` and `where`.
"""

from __future__ import annotations

import numpy as np

from minirelax.errors import DTypeError, ShapeError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.registry import function
from minirelax.frontend.operands import as_dtype, asarray, axes_tuple, axis_number
from minirelax.frontend.promotion import accumulator, floating, name_of
from minirelax.frontend.ufuncs import call_ufunc, emit
from minirelax.frontend.views import reshape
from minirelax.ir.dim import product
from minirelax.ir.types import NUMPY_DTYPES, PARTS


@function("sum")
def sum_(a, axis=None, dtype=None, keepdims=False, initial=None, where=True):
    """The sum; narrow integers and bools are summed in 64 bits."""
    x = asarray(a)
    x = as_dtype(x, name_of(dtype) if dtype is not None else accumulator(x.type.dtype))
    if x.type.dtype == "bool":
        return any_(x, axis, keepdims)
    return _combined(_reduce("sum", _where(where, x, 0), axis, keepdims), np.add, initial)


@function("prod")
def prod(a, axis=None, dtype=None, keepdims=False, initial=None, where=True):
    """The product; narrow integers and bools are multiplied in 64 bits."""
    x = asarray(a)
    x = as_dtype(x, name_of(dtype) if dtype is not None else accumulator(x.type.dtype))
    return _combined(_reduce("prod", _where(where, x, 1), axis, keepdims), np.multiply, initial)


@function("max", "amax", real=True)
def max_(a, axis=None, keepdims=False, initial=None, where=True):
    """The largest element; NaN if any is.  Raises ShapeError (a ValueError) for no elements, unless there is an `initial`."""
    return _extreme("max", np.maximum, asarray(a), axis, keepdims, initial, where)


@function("min", "amin", real=True)
def min_(a, axis=None, keepdims=False, initial=None, where=True):
    """The smallest element; NaN if any is.  Raises ShapeError (a ValueError) for no elements, unless there is an `initial`."""
    return _extreme("min", np.minimum, asarray(a), axis, keepdims, initial, where)


@function("any")
def any_(a, axis=None, keepdims=False, where=True):
    """Is any element true?"""
    return _reduce("any", _where(where, as_dtype(a, "bool"), False), axis, keepdims)


@function("all")
def all_(a, axis=None, keepdims=False, where=True):
    """Are all elements true?"""
    return _reduce("all", _where(where, as_dtype(a, "bool"), True), axis, keepdims)


@function("argmax", real=True)
def argmax(a, axis=None, keepdims=False):
    """Where the largest element is: the first one, or the first NaN."""
    return _position("argmax", asarray(a), axis, keepdims)


@function("argmin", real=True)
def argmin(a, axis=None, keepdims=False):
    """Where the smallest element is: the first one, or the first NaN."""
    return _position("argmin", asarray(a), axis, keepdims)


@function("mean")
def mean(a, axis=None, dtype=None, keepdims=False, where=True):
    """The mean; of integers in float64."""
    x = asarray(a)
    x = as_dtype(x, name_of(dtype) if dtype is not None else floating(x.type.dtype))
    if where is not True:
        return sum_(x, axis, keepdims=keepdims, where=where) / as_dtype(_count_where(x, where, axis, keepdims), x.type.dtype)
    return _reduce("sum", x, axis, keepdims) / count(x, axis)


@function("var")
def var(a, axis=None, dtype=None, ddof=0, keepdims=False, *, mean=None, correction=None):
    """The mean squared distance from the mean."""
    x = asarray(a)
    x = as_dtype(x, name_of(dtype) if dtype is not None else floating(x.type.dtype))
    distance = x - (_mean(x, axis) if mean is None else mean)
    ddof = ddof if correction is None else correction
    squares = _reduce("sum", squared(distance), axis, keepdims)
    total = count(squares, axis, x)
    dtype = squares.type.dtype
    return squares / (call_ufunc(np.maximum, (total - as_dtype(ddof, dtype), as_dtype(0, dtype))) if ddof else total)


@function("std")
def std(a, axis=None, dtype=None, ddof=0, keepdims=False, *, mean=None, correction=None):
    """The square root of the variance."""
    return call_ufunc(np.sqrt, (var(a, axis, dtype, ddof, keepdims, mean=mean, correction=correction),))


@function("ptp", real=True)
def ptp(a, axis=None, keepdims=False):
    """Largest minus smallest element."""
    return max_(a, axis, keepdims) - min_(a, axis, keepdims)


@function("count_nonzero")
def count_nonzero(a, axis=None, *, keepdims=False):
    """How many elements are not 0."""
    return sum_(as_dtype(a, "bool"), axis, keepdims=keepdims)


@function("average")
def average(a, axis=None, weights=None, *, keepdims=False):
    """The weighted mean."""
    if weights is None:
        return mean(a, axis, keepdims=keepdims)
    x, w = operands.promoted(a, weights)
    x, w = (as_dtype(v, floating(v.type.dtype)) for v in (x, w))
    if w.ndim == 1 and x.ndim > 1:
        if axis is None:
            raise ShapeError("axis must be specified when shapes of a and weights differ")
        at = axis_number(axis, x.ndim)
        w = x.derived(reshape(w.builder, w.atom, tuple(w.dims[0] if i == at else 1 for i in range(x.ndim))))
    w = operands.broadcast(w, operands.broadcast_shape(x.dims, w.dims))
    return sum_(x * w, axis, keepdims=keepdims) / sum_(w, axis, keepdims=keepdims)


def squared(x: TracedArray) -> TracedArray:
    """The square of each magnitude."""
    return x * x if x.type.dtype not in PARTS else x.real * x.real + x.imag * x.imag


def count(x: TracedArray, axis: object, over: TracedArray | None = None) -> TracedArray:
    """How many elements a reduction of `over` (by default of `x`) over `axis` combines, in the dtype of `x`."""
    over = x if over is None else over
    total = x.builder.number(product([over.dims[i] for i in axes_tuple(axis, over.ndim)]))
    return as_dtype(total, x.type.dtype)


def _mean(x: TracedArray, axis: object) -> TracedArray:
    return _reduce("sum", x, axis, True) / count(x, axis)


def _count_where(x: TracedArray, where: object, axis: object, keepdims: bool) -> TracedArray:
    return sum_(operands.broadcast(as_dtype(where, "bool"), x.dims), axis, keepdims=keepdims)


def _reduce(name: str, x: TracedArray, axis: object, keepdims: bool) -> TracedArray:
    axes = axes_tuple(_any_axis(axis, x), x.ndim)
    return x.derived(x.builder.op(name, x.atom, axes=axes, keepdims=bool(keepdims)))


def _any_axis(axis: object, x: TracedArray) -> object:
    """`axis`; for an array without axes NumPy lets 0 and -1 pass in reductions, as if they were None."""
    return None if x.ndim == 0 and isinstance(axis, int) and axis in (0, -1) else axis


def _where(where: object, x: TracedArray, identity: object) -> TracedArray:
    """`x` with the identity of the reduction in the places that `where` leaves out."""
    return x if where is True else emit("where", as_dtype(where, "bool"), x, as_dtype(identity, x.type.dtype))


def _combined(x: TracedArray, ufunc: np.ufunc, initial: object) -> TracedArray:
    return x if initial is None or initial is np._NoValue else as_dtype(call_ufunc(ufunc, (x, initial)), x.type.dtype)


def _extreme(
    name: str, ufunc: np.ufunc, x: TracedArray, axis: object, keepdims: bool, initial: object, where: object
) -> TracedArray:
    if initial is not None and initial is not np._NoValue:
        return _extreme_from(name, ufunc, x, axis, keepdims, initial, where)
    if where is not True:
        raise ShapeError(f"reduction operation '{ufunc.__name__}' does not have an identity: to use where=, specify initial=")
    for i in axes_tuple(_any_axis(axis, x), x.ndim):
        what = f"zero-size array to reduction operation {ufunc.__name__} which has no identity"
        operands.require_nonempty(x.dims[i], what, "say what the result for no elements is: initial=")
    return _reduce(name, x, axis, keepdims)


def _extreme_from(name, ufunc, x, axis, keepdims, initial, where):
    """One more element, the initial value, along one of the axes: then there always is one."""
    start = as_dtype(initial, x.type.dtype)
    x = _where(where, x, start)
    axes = axes_tuple(_any_axis(axis, x), x.ndim)
    if not axes:
        return call_ufunc(ufunc, (x, start))
    widths = tuple((0, 1) if i == axes[0] else (0, 0) for i in range(x.ndim))
    padded = x.derived(x.builder.op("pad", x.atom, start.atom, widths=widths))
    return call_ufunc(ufunc, (_reduce(name, padded, axes, keepdims), start))


def _position(name: str, x: TracedArray, axis: object, keepdims: bool) -> TracedArray:
    if _any_axis(axis, x) is None:
        flat = x.derived(reshape(x.builder, x.atom, (product(x.dims),)))
        operands.require_nonempty(flat.dims[0], f"attempt to get {name} of an empty sequence")
        found = x.derived(x.builder.op(name, flat.atom, axis=0, keepdims=False))
        return x.derived(reshape(x.builder, found.atom, (1,) * x.ndim)) if keepdims else found
    at = axis_number(axis, x.ndim)
    operands.require_nonempty(x.dims[at], f"attempt to get {name} of an empty sequence")
    return x.derived(x.builder.op(name, x.atom, axis=at, keepdims=bool(keepdims)))


def largest(dtype: str) -> float | int | bool:
    """The largest value of a dtype, infinity for floats.  Raises DTypeError for others than numbers."""
    kind = NUMPY_DTYPES[dtype].kind
    if kind == "f":
        return float("inf")
    if kind in "iu":
        return int(np.iinfo(NUMPY_DTYPES[dtype]).max)
    raise DTypeError(f"{dtype} has no largest value")


def smallest(dtype: str) -> float | int | bool:
    """The smallest value of a dtype, minus infinity for floats."""
    return float("-inf") if NUMPY_DTYPES[dtype].kind == "f" else int(np.iinfo(NUMPY_DTYPES[dtype]).min)

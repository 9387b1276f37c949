"""Reductions that ignore NaN, and those that need the elements in order: median, quantiles."""

from __future__ import annotations

import numpy as np

from minirelax.errors import ArgumentError, ShapeError, UnsupportedError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.reduce import count_nonzero, largest, max_, mean, min_, prod, smallest, sum_
from minirelax.frontend.functions.registry import function
from minirelax.frontend.functions.scan import sort
from minirelax.frontend.operands import as_dtype, asarray, axes_tuple
from minirelax.frontend.promotion import floating
from minirelax.frontend.ufuncs import call_ufunc, emit
from minirelax.frontend.views import reshape
from minirelax.ir.dim import product


@function("nansum", real=True)
def nansum(a, axis=None, keepdims=False):
    """The sum of the elements that are not NaN."""
    return sum_(_replace(asarray(a), 0), axis, keepdims=keepdims)


@function("nanprod", real=True)
def nanprod(a, axis=None, keepdims=False):
    """The product of the elements that are not NaN."""
    return prod(_replace(asarray(a), 1), axis, keepdims=keepdims)


@function("nanmax", real=True)
def nanmax(a, axis=None, keepdims=False):
    """The largest element that is not NaN; NaN if there is none."""
    return _without_nan(asarray(a), max_, smallest, axis, keepdims)


@function("nanmin", real=True)
def nanmin(a, axis=None, keepdims=False):
    """The smallest element that is not NaN; NaN if there is none."""
    return _without_nan(asarray(a), min_, largest, axis, keepdims)


@function("nanmean", real=True)
def nanmean(a, axis=None, keepdims=False):
    """The mean of the elements that are not NaN."""
    x = as_dtype(a, floating(asarray(a).type.dtype))
    return nansum(x, axis, keepdims) / as_dtype(_present(x, axis, keepdims), x.type.dtype)


@function("nanvar", real=True)
def nanvar(a, axis=None, ddof=0, keepdims=False):
    """The variance of the elements that are not NaN."""
    x = as_dtype(a, floating(asarray(a).type.dtype))
    distance = x - nanmean(x, axis, keepdims=True)
    return nansum(distance * distance, axis, keepdims) / as_dtype(_present(x, axis, keepdims) - ddof, x.type.dtype)


@function("nanstd", real=True)
def nanstd(a, axis=None, ddof=0, keepdims=False):
    """The standard deviation of the elements that are not NaN."""
    return call_ufunc(np.sqrt, (nanvar(a, axis, ddof, keepdims),))


@function("nan_to_num", real=True)
def nan_to_num(x, copy=True, nan=0.0, posinf=None, neginf=None):
    """NaN and infinities replaced by numbers."""
    x = asarray(x)
    if x.dtype.kind != "f":
        return x.copy()
    info = np.finfo(x.dtype)
    for test, value in (
        (np.isnan, nan),
        (_is_posinf, float(info.max) if posinf is None else posinf),
        (_is_neginf, float(info.min) if neginf is None else neginf),
    ):
        where = call_ufunc(test, (x,)) if isinstance(test, np.ufunc) else test(x)
        x = emit("where", where, as_dtype(value, x.type.dtype), x)
    return x


@function("median", real=True)
def median(a, axis=None, keepdims=False):
    """The middle element, or the mean of the two; NaN if any is NaN."""
    x, at, restore = _last_line(as_dtype(a, floating(asarray(a).type.dtype)), axis, keepdims)
    operands.require_nonempty(x.dims[-1], "the median of no elements is not defined")
    n = x.shape[-1]
    ordered = sort(x, -1)
    return restore(_unless_nan(mean(_pair(ordered, (n - 1) // 2, n // 2), -1), ordered))


@function("quantile", real=True)
def quantile(a, q, axis=None, method="linear", keepdims=False):
    """The value below which a share `q` of the elements lies, by linear interpolation."""
    if method != "linear":
        raise UnsupportedError(f"np.quantile(..., method={method!r}) is not supported in a compiled function")
    x, at, restore = _last_line(as_dtype(a, floating(asarray(a).type.dtype)), axis, keepdims)
    share = asarray(q)
    if share.ndim:
        raise ShapeError("only one quantile at a time is supported", "call np.quantile for each and np.stack the results")
    if isinstance(q, int | float) and not 0 <= q <= 1:
        raise ArgumentError("Quantiles must be in the range [0, 1]")
    operands.require_nonempty(x.dims[-1], "a quantile of no elements is not defined")
    ordered = sort(x, -1)
    position = as_dtype(share, "f64") * as_dtype(x.builder.number(x.dims[-1] - 1), "f64")
    below = call_ufunc(np.floor, (position,))
    low = as_dtype(below, "i64")
    high = call_ufunc(np.minimum, (low + 1, as_dtype(x.builder.number(x.dims[-1] - 1), "i64")))
    lower, upper = ordered[..., low], ordered[..., high]
    weight = as_dtype(position - below, x.type.dtype)
    return restore(_unless_nan(lower + (upper - lower) * weight, ordered))


@function("percentile", real=True)
def percentile(a, q, axis=None, method="linear", keepdims=False):
    """The quantile at `q` per cent."""
    return quantile(a, q / 100 if isinstance(q, int | float) else asarray(q) / 100, axis, method, keepdims)


def _replace(x: TracedArray, value: object) -> TracedArray:
    return emit("where", call_ufunc(np.isnan, (x,)), as_dtype(value, x.type.dtype), x) if x.dtype.kind == "f" else x


def _present(x: TracedArray, axis, keepdims) -> TracedArray:
    return count_nonzero(call_ufunc(np.logical_not, (call_ufunc(np.isnan, (x,)),)), axis, keepdims=keepdims)


def _without_nan(x: TracedArray, reduction, identity, axis, keepdims) -> TracedArray:
    if x.dtype.kind != "f":
        return reduction(x, axis, keepdims)
    found = reduction(_replace(x, identity(x.type.dtype)), axis, keepdims)
    return emit("where", _present(x, axis, keepdims) == 0, as_dtype(float("nan"), x.type.dtype), found)


def _is_posinf(x: TracedArray) -> TracedArray:
    return x == float("inf")


def _is_neginf(x: TracedArray) -> TracedArray:
    return x == float("-inf")


def _last_line(x: TracedArray, axis, keepdims):
    """`x` with the reduced axes made one, last; and how to give the result its shape."""
    axes = axes_tuple(axis, x.ndim)
    kept = tuple(i for i in range(x.ndim) if i not in axes)
    shape = tuple(1 if i in axes else d for i, d in enumerate(x.dims))
    moved = x.derived(x.builder.op("transpose", x.atom, axes=(*kept, *axes)))
    flat = x.derived(reshape(x.builder, moved.atom, (*(x.dims[i] for i in kept), product([x.dims[i] for i in axes]))))
    return flat, axes, lambda y: y.derived(reshape(y.builder, y.atom, shape)) if keepdims else y


def _pair(x: TracedArray, low, high) -> TracedArray:
    from minirelax.frontend.functions.join import stack

    return stack([x[..., low], x[..., high]], axis=-1)


def _unless_nan(value: TracedArray, ordered: TracedArray) -> TracedArray:
    """NaN sorts last: if the last element is NaN, so is the result."""
    last = ordered[..., -1]
    return emit("where", call_ufunc(np.isnan, (last,)), last, value)

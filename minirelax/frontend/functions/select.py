"""Elements chosen by condition or index: where, take, clip, select, and writing to chosen places."""

from __future__ import annotations

import numpy as np

from minirelax.errors import ArgumentError, ShapeError, UnsupportedError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.move import swapaxes
from minirelax.frontend.functions.registry import function
from minirelax.frontend.indexing import Places, normalise
from minirelax.frontend.indexing import nonzero as nonzero_indices
from minirelax.frontend.operands import as_dtype, asarray, axis_number, broadcast_shape, conform, is_traced, kind
from minirelax.frontend.promotion import promote
from minirelax.frontend.size import Size
from minirelax.frontend.ufuncs import call_ufunc, emit, store
from minirelax.ir.dim import maximum, minimum
from minirelax.ir.graph import Const


@function("where")
def where(condition, x=None, y=None, /):
    """`x` where the condition holds, else `y`; with the condition alone, the indices of the places where it holds."""
    if x is None and y is None:
        return nonzero(condition)
    if x is None or y is None:
        raise ArgumentError("either both or neither of x and y should be given")
    dtype = promote((kind(x), kind(y)))
    return emit("where", as_dtype(condition, "bool"), *(as_dtype(asarray(v), dtype) for v in (x, y)))  # integers may wrap


@function("select")
def select(condlist, choicelist, default=0):
    """The choice of the first condition that holds."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ShapeError("list of cases must be same length as list of conditions")
    dtype = promote(tuple(map(kind, (*choicelist, default))))
    result = as_dtype(default, dtype)
    for condition, choice in zip(reversed(condlist), reversed(choicelist), strict=True):
        result = emit("where", as_dtype(condition, "bool"), as_dtype(choice, dtype), result)
    return result


@function("choose")
def choose(a, choices, mode="raise"):
    """For each index, the element of that choice at the same place."""
    from minirelax.frontend.functions.join import stack
    from minirelax.frontend.functions.move import broadcast_arrays

    index, *arrays = broadcast_arrays(a, *choices)
    return take_along_axis(stack(arrays), _by_mode(index[None], len(arrays), mode), 0)[0]


@function("clip", real=True)
def clip(a, a_min=None, a_max=None, *, min=None, max=None):
    """Elements limited to a range; either end may be None."""
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    x = asarray(a)
    if x.dtype.kind in "iu" and not x.weak:  # Python integers outside the dtype limit nothing
        low = None if type(low) is int and low <= np.iinfo(x.dtype).min else low
        high = None if type(high) is int and high >= np.iinfo(x.dtype).max else high
    x = x if low is None else call_ufunc(np.maximum, (x, low))
    return x.copy() if low is None and high is None else x if high is None else call_ufunc(np.minimum, (x, high))


@function("take")
def take(a, indices, axis=None, mode="raise"):
    """Elements (or slices along an axis) by index.  An index outside raises IndexError while running; see `mode`."""
    x, i = asarray(a), _indices(indices)
    if mode not in ("raise", "wrap", "clip"):
        raise ArgumentError(f"mode must be 'raise', 'wrap' or 'clip', not {mode!r}")
    if axis is None:
        x, axis = x.ravel(), 0
    return x.derived(x.builder.op("take", x.atom, i.atom, axis=axis_number(axis, x.ndim), mode=mode))


@function("take_along_axis")
def take_along_axis(arr, indices, axis=-1):
    """Elements by index along an axis, each line with its own indices."""
    x, i, axis = _along(arr, indices, axis)
    x, i = _same_lines(x, i, axis)
    return x.derived(x.builder.op("take_along_axis", x.atom, i.atom, axis=axis))


@function("put_along_axis")
def put_along_axis(arr, indices, values, axis):
    """Write to elements by index along an axis, in place."""
    x, i, axis = _along(arr, indices, axis)
    key = []
    for a in range(x.ndim):
        line = x.derived(x.builder.op("iota", size=x.dims[a], dtype="i64"))
        key.append(i if a == axis else line.reshape(tuple(-1 if b == a else 1 for b in range(x.ndim))))
    arr[tuple(key)] = values


@function("compress")
def compress(condition, a, axis=None):
    """The slices where the condition holds."""
    x, mask = asarray(a), as_dtype(condition, "bool")
    if axis is None:
        x, axis = x.ravel(), 0
    moved = swapaxes(x, 0, axis)
    short = moved.shape[0] if mask.dims == moved.dims[:1] else mask.shape[0]
    return swapaxes(moved[:short][mask], 0, axis)


@function("extract")
def extract(condition, arr):
    """The elements where the condition holds."""
    return compress(asarray(condition).ravel(), asarray(arr).ravel())


@function("delete")
def delete(arr, obj, axis=None):
    """The array without the slices that an index names: an integer, a slice, a mask or indices, which may be traced."""
    from minirelax.frontend.functions.join import concatenate

    x = asarray(arr)
    if axis is None:
        x, axis = x.ravel(), 0
    at = axis_number(axis, x.ndim)
    before, n = (slice(None),) * at, x.dims[at]
    if isinstance(n, int) and not is_traced(obj):
        return x.take(np.delete(np.arange(n), obj), at)
    (step,) = normalise(x, (*before, obj))[at : at + 1] if isinstance(obj, int | np.integer | slice | Size) else (None,)
    if isinstance(step, Places) and step.step == 1:
        start, stop = x.builder.size(step.start), x.builder.size(step.start + step.size)
        return concatenate((x[(*before, slice(None, start))], x[(*before, slice(stop, None))]), at)
    keep = x.derived(x.builder.op("full", Const(True, "bool"), shape=(n,)))
    keep[obj] = False
    return compress(keep, x, at)


@function("trim_zeros")
def trim_zeros(filt, trim="fb"):
    """A vector without the zeros at its front ("f") and back ("b")."""
    from minirelax.frontend.functions.scan import cumsum

    x = asarray(filt)
    if x.ndim != 1:
        raise UnsupportedError("np.trim_zeros of several axes is not supported in a compiled function", "trim one axis")
    inside, keep = x != 0, x.derived(x.builder.op("full", Const(True, "bool"), shape=x.dims))
    if "f" in trim.lower():
        keep = keep & (cumsum(inside) > 0)
    if "b" in trim.lower():
        keep = keep & (cumsum(inside[::-1]) > 0)[::-1]
    return x[keep]


@function("nonzero")
def nonzero(a):
    """The indices of the elements that are not 0, one array for each axis."""
    x = asarray(a)
    if not x.ndim:
        raise ShapeError("Calling nonzero on 0d arrays is not allowed. Use np.atleast_1d(scalar).nonzero() instead.")
    return nonzero_indices(x)


@function("flatnonzero")
def flatnonzero(a):
    """The indices, in the flattened array, of the elements that are not 0."""
    return nonzero(asarray(a).ravel())[0]


@function("argwhere")
def argwhere(a):
    """The indices of the elements that are not 0, one row for each."""
    from minirelax.frontend.functions.join import stack

    return stack(nonzero(a), axis=-1)


@function("copyto")
def copyto(dst, src, casting="same_kind", where=True):
    """Write into an array, where a mask holds."""
    store(asarray(src) if not isinstance(src, int | float) else as_dtype(src, dst.type.dtype), dst, where, "copyto")


@function("putmask")
def putmask(a, mask, values):
    """Write to the elements where a mask holds: one value, or an array of the same shape."""
    value = as_dtype(values, a.type.dtype)
    if value.ndim and value.dims != a.dims:
        raise UnsupportedError(
            "np.putmask with values of another shape is not supported in a compiled function", "write a[mask] = values"
        )
    a.assign(emit("where", as_dtype(mask, "bool"), value, a).atom)


@function("place")
def place(arr, mask, vals):
    """Write one value to the elements where a mask holds."""
    value = asarray(vals)
    arr[mask] = value[0] if value.ndim == 1 and value.dims == (1,) else value


@function("put")
def put(a, ind, v, mode="raise"):
    """Write to elements of the flattened array by index."""
    if mode != "raise":
        raise UnsupportedError(f"np.put(..., mode={mode!r}) is not supported in a compiled function")
    a.reshape(-1)[_indices(ind)] = v


@function("fill_diagonal")
def fill_diagonal(a, val, wrap=False):
    """Write to the diagonal, in place."""
    from minirelax.frontend.functions.create import _position

    if a.ndim != 2 or wrap or asarray(val).ndim:
        raise UnsupportedError("np.fill_diagonal of one value on a matrix is supported in a compiled function, nothing more")
    a.assign(emit("where", _position(*a.dims) == 0, as_dtype(val, a.type.dtype), a).atom)


@function("diagonal", "linalg.diagonal")
def diagonal(a, offset=0, axis1=0, axis2=1):
    """The elements of a diagonal, as the last axis."""
    from minirelax.frontend.functions.move import moveaxis

    x = asarray(a)
    if x.ndim < 2:
        raise ShapeError("diag requires an array of at least two dimensions")
    moved = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = moved.dims[-2:]
    first_row, first_column = max(-offset, 0), max(offset, 0)
    facts = x.builder.facts
    count = facts.resolve(maximum(minimum(rows - first_row, columns - first_column), 0))
    along = x.derived(x.builder.op("iota", size=count, dtype="i64"))
    found = moved[..., along + first_row, along + first_column]
    found.link(x)
    return found


@function("diag")
def diag(v, k=0):
    """The diagonal of a matrix, or a matrix with that diagonal."""
    from minirelax.frontend.functions.create import _position

    x = asarray(v)
    if x.ndim == 2:
        return diagonal(x, k)
    if x.ndim != 1:
        raise ShapeError("Input must be 1- or 2-d.")
    n = x.dims[0] + abs(k)
    wide = x.derived(x.builder.op("pad", x.atom, as_dtype(0, x.type.dtype).atom, widths=((max(k, 0), max(-k, 0)),)))
    return (
        emit("where", _position(n, n) == k, wide[None, :], as_dtype(0, x.type.dtype))
        if k >= 0
        else swapaxes(diag(x, -k), 0, 1).copy()
    )


@function("diagflat")
def diagflat(v, k=0):
    """A matrix with these elements on a diagonal."""
    return diag(asarray(v).ravel(), k)


@function("trace", "linalg.trace")
def trace(a, offset=0, axis1=0, axis2=1, dtype=None):
    """The sum of a diagonal."""
    from minirelax.frontend.functions.reduce import sum_

    return sum_(diagonal(a, offset, axis1, axis2), -1, dtype)


def _indices(indices: object) -> TracedArray:
    i = asarray(indices)
    if i.dtype.kind == "f" and 0 in i.dims:
        return as_dtype(i, "i64")  # np.take(x, []) is fine
    if i.dtype.kind == "b":
        return as_dtype(i, "i64")
    if i.dtype.kind not in "iu":
        raise ArgumentError(f"indices must be integers, not {i.dtype}", "cast them: i.astype(np.int64)")
    return i


def _by_mode(index: TracedArray, count: int, mode: str) -> TracedArray:
    return index if mode == "raise" else index % count if mode == "wrap" else clip(index, 0, count - 1)


def _along(arr, indices, axis):
    x, i = asarray(arr), _indices(indices)
    if axis is None:
        return x.ravel(), i, 0
    if x.ndim != i.ndim:
        raise ShapeError("`indices` and `arr` must have the same number of dimensions")
    return x, i, axis_number(axis, x.ndim)


def _same_lines(x: TracedArray, i: TracedArray, axis: int) -> tuple[TracedArray, TracedArray]:
    def others(a):
        return tuple(1 if n == axis else d for n, d in enumerate(a.dims))

    shape = broadcast_shape(others(x), others(i))
    return tuple(conform(a, tuple(a.dims[n] if n == axis else d for n, d in enumerate(shape))) for a in (x, i))

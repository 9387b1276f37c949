"""New arrays: filled with a value, counting, on a grid, or made from lists.

During a trace these give traced arrays, so that a function may fill them in place and sizes may be symbolic.
"""

from __future__ import annotations

import numpy as np

from minirelax.errors import ArgumentError, UnsupportedError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.registry import function
from minirelax.frontend.operands import as_dtype, asarray, is_traced, kind, shape_dims
from minirelax.frontend.promotion import name_of, promote
from minirelax.frontend.size import Size
from minirelax.frontend.ufuncs import call_ufunc, emit
from minirelax.ir.dim import Dim, ceildiv, maximum


@function("zeros", creates=True)
def zeros(shape, dtype=None, order="C", *, device=None):
    """An array of zeros."""
    return full(shape, 0, np.float64 if dtype is None else dtype)


@function("ones", creates=True)
def ones(shape, dtype=None, order="C", *, device=None):
    """An array of ones."""
    return full(shape, 1, np.float64 if dtype is None else dtype)


@function("empty", creates=True)
def empty(shape, dtype=None, order="C", *, device=None):
    """An array to be filled; of zeros, since every value here is defined."""
    return zeros(shape, dtype)


@function("full", creates=True)
def full(shape, fill_value, dtype=None, order="C", *, device=None):
    """An array with one value everywhere (or with an array broadcast to the shape)."""
    name = promote((kind(fill_value),)) if dtype is None else name_of(dtype)
    return filled(as_dtype(fill_value, name), shape_dims(shape))


@function("zeros_like")
def zeros_like(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
    """Zeros in the shape and dtype of an array."""
    return full_like(a, 0, dtype, shape=shape)


@function("ones_like")
def ones_like(a, dtype=None, order="K", subok=True, shape=None, *, device=None):
    """Ones in the shape and dtype of an array."""
    return full_like(a, 1, dtype, shape=shape)


@function("empty_like")
def empty_like(prototype, dtype=None, order="K", subok=True, shape=None, *, device=None):
    """An array to be filled, in the shape and dtype of another."""
    return full_like(prototype, 0, dtype, shape=shape)


@function("full_like")
def full_like(a, fill_value, dtype=None, order="K", subok=True, shape=None, *, device=None):
    """One value everywhere, in the shape and dtype of an array."""
    x = asarray(a)
    value = as_dtype(asarray(fill_value), x.type.dtype if dtype is None else name_of(dtype))
    return filled(value, x.dims if shape is None else shape_dims(shape))


@function("asarray", "asanyarray", "ascontiguousarray", creates=True)
def asarray_(a, dtype=None, order=None, *, device=None, copy=None):
    """A traced array of what is given, in place if it is one already."""
    x = asarray(a) if copy is not True else asarray(a).copy()
    if dtype is None:
        return x.derived(x.atom) if x.weak else x
    return as_dtype(x, name_of(dtype))


@function("array", creates=True)
def array(object, dtype=None, *, copy=True, ndmin=0):
    """A new array of what is given: numbers, arrays, nested lists of both."""
    x = asarray_(object, dtype)
    x = x.derived(x.atom)
    return x if x.ndim >= ndmin else x.reshape((1,) * (ndmin - x.ndim) + x.shape)


@function("arange", creates=True, real=True)
def arange(start, stop=None, step=1, dtype=None, *, device=None):
    """Numbers from `start` in steps, up to but without `stop`."""
    start, stop = (0, start) if stop is None else (start, stop)
    parts = (start, stop, step)
    if not any(map(is_traced, parts)):
        plain = np.arange(start, stop, step, dtype=None if dtype is None else name_numpy(dtype))
        if any(isinstance(p, float | np.floating) for p in parts):
            return asarray(plain)
        return _counted(start, len(plain), step, name_of(plain.dtype))
    if not all(isinstance(p, int | np.integer | Size) for p in parts):
        raise UnsupportedError("np.arange of traced values has no known size", "count with integers: start + step * np.arange(n)")
    return _counted(start, _count(start, stop, int(step)), int(step), "i64" if dtype is None else name_of(dtype))


@function("linspace", creates=True, real=True)
def linspace(start, stop, num=50, endpoint=True, dtype=None, axis=0):
    """`num` numbers from `start` to `stop` at equal distances."""
    if not any(map(is_traced, (start, stop, num))):
        return asarray(np.linspace(start, stop, num, endpoint, dtype=None if dtype is None else name_numpy(dtype)))
    if asarray(start).ndim or asarray(stop).ndim:
        raise UnsupportedError("np.linspace between arrays is not supported in a compiled function")
    count, b = shape_dims(num)[0], operands.builder()
    dtype_name = promote((kind(start), kind(stop), float))
    first, last, counts = (
        as_dtype(start, dtype_name),
        as_dtype(stop, dtype_name),
        TracedArray(b, b.op("iota", size=count, dtype=dtype_name)),
    )
    gaps = as_dtype(b.number(maximum(count - 1, 1) if endpoint else maximum(count, 1)), dtype_name)
    numbers = counts * ((last - first) / gaps) + first
    if endpoint:
        is_last = counts == as_dtype(b.number(maximum(count - 1, 1)), dtype_name)
        numbers = emit("where", is_last, last, numbers)
    return numbers if dtype is None else as_dtype(numbers, name_of(dtype))


@function("eye", creates=True)
def eye(N, M=None, k=0, dtype=float, order="C", *, device=None):
    """Ones on a diagonal."""
    rows, columns = shape_dims((N, N if M is None else M))
    return as_dtype(_position(rows, columns) == k, name_of(dtype))


@function("identity", creates=True)
def identity(n, dtype=None):
    """Ones on the diagonal."""
    return eye(n, dtype=float if dtype is None else dtype)


@function("tri", creates=True)
def tri(N, M=None, k=0, dtype=float):
    """Ones on and below a diagonal."""
    rows, columns = shape_dims((N, N if M is None else M))
    return as_dtype(_position(rows, columns) <= k, name_of(dtype))


@function("tril")
def tril(m, k=0):
    """The elements on and below a diagonal, zeros above."""
    x = _matrix(m)
    return emit("where", _position(*x.dims[-2:]) <= k, x, as_dtype(0, x.type.dtype))


@function("triu")
def triu(m, k=0):
    """The elements on and above a diagonal, zeros below."""
    x = _matrix(m)
    return emit("where", _position(*x.dims[-2:]) >= k, x, as_dtype(0, x.type.dtype))


@function("meshgrid")
def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    """Coordinates of a grid, one array for each axis."""
    from minirelax.frontend.functions.move import broadcast_arrays

    if indexing not in ("xy", "ij"):
        raise ArgumentError("Valid values for `indexing` are 'xy' and 'ij'.")
    n = len(xi)
    order = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    lines = [asarray(x).reshape(tuple(-1 if i == order[a] else 1 for i in range(n))) for a, x in enumerate(xi)]
    return tuple(lines) if sparse else tuple(g.copy() for g in broadcast_arrays(*lines))


@function("indices")
def indices(dimensions, dtype=int):
    """For each axis of a shape, the index along it at every place."""
    from minirelax.frontend.functions.join import stack

    lines = [arange(d, dtype=dtype) for d in dimensions]
    return stack(meshgrid(*lines, indexing="ij"))


def filled(value: TracedArray, dims: tuple[Dim, ...]) -> TracedArray:
    """`value` everywhere."""
    if value.ndim:
        return operands.broadcast(value, dims).copy()
    return value.derived(value.builder.op("full", value.atom, shape=dims))


def name_numpy(dtype: object) -> np.dtype:
    """A dtype as users write it, as NumPy's."""
    from minirelax.ir.types import NUMPY_DTYPES

    return NUMPY_DTYPES[name_of(dtype)]


def _count(start: object, stop: object, step: int) -> Dim:
    first, last = operands.builder().dims((start, stop))
    facts, length = operands.builder().facts, (last - first if step > 0 else first - last)
    return facts.resolve(ceildiv(length if facts.is_nonnegative(length) else maximum(length, 0), abs(step)))


def _counted(start: object, count: Dim, step: int, dtype: str) -> TracedArray:
    b = operands.builder()
    exact = "i64" if dtype[0] == "c" or dtype[0] == "f" and (start, step) != (0, 1) else dtype
    numbers = TracedArray(b, b.op("iota", size=count, dtype=exact))
    numbers = numbers if step == 1 else numbers * as_dtype(step, exact)
    numbers = numbers if isinstance(start, int) and start == 0 else numbers + as_dtype(start, exact)
    return as_dtype(numbers, dtype)


def _position(rows: Dim, columns: Dim) -> TracedArray:
    """Column minus row, at every place of a matrix."""
    b = operands.builder()
    i, j = (TracedArray(b, b.op("iota", size=d, dtype="i64")) for d in (rows, columns))
    return call_ufunc(np.subtract, (j[None, :], i[:, None]))


def _matrix(m: object) -> TracedArray:
    x = asarray(m)
    return operands.broadcast(x, (x.dims[0], x.dims[0])) if x.ndim == 1 else x

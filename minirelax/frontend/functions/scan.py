"""Along an axis: running totals, differences, sorting, searching."""

from __future__ import annotations

import numpy as np

from minirelax.errors import ShapeError, UnsupportedError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.registry import function
from minirelax.frontend.operands import as_dtype, asarray, axis_number, promoted_arrays
from minirelax.frontend.promotion import accumulator, floating, name_of
from minirelax.frontend.ufuncs import call_ufunc, emit


@function("cumsum")
def cumsum(a, axis=None, dtype=None):
    """Running sums."""
    return _running("cumsum", a, axis, dtype)


@function("cumprod")
def cumprod(a, axis=None, dtype=None):
    """Running products."""
    return _running("cumprod", a, axis, dtype)


@function("cumulative_sum")
def cumulative_sum(x, /, *, axis=None, dtype=None, include_initial=False):
    """Running sums, from 0 on if asked."""
    return _cumulative(cumsum, 0, x, axis, dtype, include_initial)


@function("cumulative_prod")
def cumulative_prod(x, /, *, axis=None, dtype=None, include_initial=False):
    """Running products, from 1 on if asked."""
    return _cumulative(cumprod, 1, x, axis, dtype, include_initial)


@function("diff")
def diff(a, n=1, axis=-1, prepend=np._NoValue, append=np._NoValue):
    """Differences of neighbours, `n` times."""
    from minirelax.frontend.functions.join import concatenate

    x = asarray(a)
    at = axis_number(axis, x.ndim)

    def end(value):
        y = asarray(value)
        return (
            operands.broadcast(y.derived(y.atom), tuple(1 if i == at else d for i, d in enumerate(x.dims))) if not y.ndim else y
        )

    parts = [*([] if prepend is np._NoValue else [end(prepend)]), x, *([] if append is np._NoValue else [end(append)])]
    x = concatenate(parts, at) if len(parts) > 1 else x
    for _ in range(n):
        before, after = ((slice(None),) * at + (s,) for s in (slice(None, -1), slice(1, None)))
        low, high = x[before], x[after]
        x = call_ufunc(np.not_equal if x.dtype.kind == "b" else np.subtract, (high, low))
    return x


@function("ediff1d")
def ediff1d(ary):
    """Differences of neighbours in the flattened array."""
    return diff(asarray(ary).ravel())


@function("gradient")
def gradient(f, *varargs, axis=None):
    """Central differences, one-sided at the ends; one distance for each axis, or one for all."""
    from minirelax.frontend.functions.join import concatenate

    x = asarray(f)
    x = as_dtype(x, floating(x.type.dtype))
    axes = operands.axes_tuple(axis, x.ndim)
    steps = list(varargs) or [1.0]
    if any(asarray(h).ndim for h in steps):
        raise UnsupportedError("np.gradient with coordinates is not supported in a compiled function", "give distances")
    steps = steps * len(axes) if len(steps) == 1 else steps
    found = []
    for at, h in zip(axes, steps, strict=True):
        if not x.shape[at] >= 2:
            raise ShapeError(
                "Shape of array too small to calculate a numerical gradient, at least (edge_order + 1) elements are required."
            )

        def cut(a, b, at=at):
            return x[(slice(None),) * at + (slice(a, b),)]

        n = x.shape[at]
        found.append(
            concatenate(
                [(cut(1, 2) - cut(0, 1)) / h, (cut(2, n) - cut(0, n - 2)) / (2.0 * h), (cut(n - 1, n) - cut(n - 2, n - 1)) / h],
                at,
            )
        )
    return found[0] if len(found) == 1 else tuple(found)


@function("trapezoid")
def trapezoid(y, x=None, dx=1.0, axis=-1):
    """The area below a curve through points."""
    y = asarray(y)
    at = axis_number(axis, y.ndim)
    low, high = (y[(slice(None),) * at + (s,)] for s in (slice(None, -1), slice(1, None)))
    width = dx if x is None else diff(x)
    if x is not None and y.ndim > 1:
        width = width.reshape(tuple(-1 if i == at else 1 for i in range(y.ndim)))
    return (width * (high + low) / 2.0).sum(at)


@function("sort", real=True)
def sort(a, axis=-1, kind=None, *, stable=None):
    """Ascending order along an axis; NaN last."""
    x, at = _line(a, axis)
    return x.derived(x.builder.op("sort", x.atom, axis=at))


@function("argsort", real=True)
def argsort(a, axis=-1, kind=None, *, stable=None):
    """The indices that sort, equal elements in their order."""
    x, at = _line(a, axis)
    return x.derived(x.builder.op("argsort", x.atom, axis=at))


@function("searchsorted", real=True)
def searchsorted(a, v, side="left"):
    """Where each value would go into an ascending array."""
    line, values = promoted_arrays(a, v)
    if line.ndim != 1:
        raise ShapeError("object too deep for desired array: searchsorted needs one axis")
    return line.derived(line.builder.op("searchsorted", line.atom, values.atom, side=side))


@function("digitize", real=True)
def digitize(x, bins, right=False):
    """The bin of each value; the bins must ascend."""
    return searchsorted(bins, x, "left" if right else "right")


@function("interp", real=True)
def interp(x, xp, fp):
    """Linear interpolation through points with ascending coordinates; constant outside them."""
    x, xs, ys = (as_dtype(v, "f64") for v in (x, xp, fp))
    operands.require_equal(xs.dims[0], ys.dims[0], "fp and xp have sizes")
    operands.require_nonempty(xs.dims[0], "array of sample points is empty")
    last = operands.builder().number(xs.dims[0] - 1)
    right = call_ufunc(np.minimum, (searchsorted(xs, x, "right"), last))
    left = call_ufunc(np.maximum, (right - 1, 0))
    x0, x1, y0, y1 = xs.take(left), xs.take(right), ys.take(left), ys.take(right)
    inside = y0 + (x - x0) * ((y1 - y0) / emit("where", x1 == x0, as_dtype(1.0, "f64"), x1 - x0))
    inside = emit("where", x >= xs[-1], ys[-1], inside)
    return emit("where", x <= xs[0], ys[0], inside)


def _running(name: str, a: object, axis: object, dtype: object) -> TracedArray:
    x, at = _line(a, axis)
    x = as_dtype(x, name_of(dtype) if dtype is not None else accumulator(x.type.dtype))
    return x.derived(x.builder.op(name, x.atom, axis=at))


def _cumulative(running, start: int, x, axis, dtype, include_initial) -> TracedArray:
    x = asarray(x)
    if axis is None and x.ndim > 1:
        raise ShapeError("For arrays which have more than one dimension ``axis`` argument is required.")
    at = axis_number(0 if axis is None else axis, x.ndim)
    found = running(x, at, dtype)
    if include_initial:
        pad = tuple((1, 0) if i == at else (0, 0) for i in range(x.ndim))
        found = found.derived(found.builder.op("pad", found.atom, as_dtype(start, found.type.dtype).atom, widths=pad))
    return found


def _line(a: object, axis: object) -> tuple[TracedArray, int]:
    x = asarray(a)
    if axis is None:
        return x.ravel(), 0
    return x, axis_number(axis, x.ndim)

"""Arrays put together and taken apart: concatenate, stack, split, tile, repeat, roll, pad."""

from __future__ import annotations

import itertools

import numpy as np

from minirelax.errors import ArgumentError, ShapeError, UnsupportedError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.move import atleast_1d, atleast_2d, atleast_3d, expand_dims, flip
from minirelax.frontend.functions.registry import function
from minirelax.frontend.operands import as_dtype, asarray, axis_number, conform, promoted_arrays, require_equal
from minirelax.frontend.promotion import name_of
from minirelax.frontend.size import Size
from minirelax.frontend.views import reshape
from minirelax.ir.dim import Dim
from minirelax.ir.graph import MatchCast
from minirelax.ir.types import Tensor


@function("concatenate", "concat")
def concatenate(arrays, /, axis=0, *, dtype=None):
    """Arrays one after the other along an axis (None: all flattened)."""
    xs = [asarray(x) for x in arrays]
    if not xs:
        raise ShapeError("need at least one array to concatenate")
    if axis is None:
        xs, axis = [x.ravel() for x in xs], 0
    if any(x.ndim != xs[0].ndim for x in xs) or not xs[0].ndim:
        raise ShapeError(
            "zero-dimensional arrays cannot be concatenated"
            if not xs[0].ndim
            else f"all the input arrays must have same number of dimensions, but they have {', '.join(str(x.ndim) for x in xs)}"
        )
    at = axis_number(axis, xs[0].ndim)
    for x, i in itertools.product(xs[1:], range(xs[0].ndim)):
        if i != at:
            require_equal(
                xs[0].dims[i],
                x.dims[i],
                f"all the input array dimensions except for the concatenation axis must match; axis {i} has",
                f"concatenate along axis {i}, or cut or pad one of them",
            )
    xs = [as_dtype(x, name_of(dtype)) for x in xs] if dtype is not None else list(promoted_arrays(*xs))
    shape = [next((d for d in ds if isinstance(d, int)), ds[0]) for ds in zip(*(x.dims for x in xs), strict=True)]
    xs = [conform(x, (*shape[:at], x.dims[at], *shape[at + 1 :])) for x in xs]
    return xs[0].derived(xs[0].builder.op("concatenate", tuple(x.atom for x in xs), axis=at))


@function("stack")
def stack(arrays, axis=0, *, dtype=None):
    """Arrays of one shape along a new axis."""
    xs = [asarray(x) for x in arrays]
    if not xs:
        raise ShapeError("need at least one array to stack")
    if all(x.weak for x in xs):  # Python numbers: their own promotion
        xs = list(promoted_arrays(*xs))
    if any(x.ndim != xs[0].ndim for x in xs):
        raise ShapeError("all input arrays must have the same shape")
    return concatenate([expand_dims(x.derived(x.atom), axis) for x in xs], axis, dtype=dtype)


@function("hstack")
def hstack(tup, *, dtype=None):
    """Arrays side by side."""
    xs = [atleast_1d(x) for x in tup]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, dtype=dtype)


@function("vstack", "row_stack")
def vstack(tup, *, dtype=None):
    """Arrays one below the other."""
    return concatenate([atleast_2d(x) for x in tup], 0, dtype=dtype)


@function("dstack")
def dstack(tup):
    """Arrays one behind the other."""
    return concatenate([atleast_3d(x) for x in tup], 2)


@function("column_stack")
def column_stack(tup):
    """Vectors as the columns of a matrix."""
    return concatenate([expand_dims(x, 1) if x.ndim == 1 else x for x in map(asarray, tup)], 1)


@function("append")
def append(arr, values, axis=None):
    """One array after the other."""
    return concatenate([arr, values], axis)


@function("block")
def block(arrays):
    """Nested lists of arrays joined: the innermost along the last axis."""
    depth = _depth(arrays)

    def join(part, level):
        if level == depth:
            x = asarray(part)
            return x.reshape((1,) * (depth - x.ndim) + x.shape) if x.ndim < depth else x
        return concatenate([join(p, level + 1) for p in part], -(depth - level))

    return join(arrays, 0)


@function("split")
def split(ary, indices_or_sections, axis=0):
    """Parts of equal size, or cut at the indices: views."""
    x = asarray(ary)
    at = axis_number(axis, x.ndim)
    if isinstance(indices_or_sections, int | Size):
        count = int(indices_or_sections)
        facts, d = x.builder.facts, x.dims[at]
        if not facts.decide("==", d % count, 0, declared=True):
            raise ShapeError("array split does not result in an equal division")
    return array_split(x, indices_or_sections, axis)


@function("array_split")
def array_split(ary, indices_or_sections, axis=0):
    """Parts of nearly equal size, or cut at the indices: views."""
    x = asarray(ary)
    at = axis_number(axis, x.ndim)
    n = x.shape[at]
    if isinstance(indices_or_sections, int | Size):
        count = int(indices_or_sections)
        each, extra = n // count, n % count
        if isinstance(extra, Size) and not x.builder.facts.is_equal(extra.dim, 0):
            extra = int(extra)  # a guard: where the parts end depends on it
        extra = 0 if isinstance(extra, Size) else extra
        cuts = [each * i + min(i, extra) for i in range(count + 1)]
    else:
        cuts = [0, *(c if isinstance(c, Size) else int(c) for c in indices_or_sections), None]
    return [x[(slice(None),) * at + (slice(a, b),)] for a, b in itertools.pairwise(cuts)]


@function("hsplit")
def hsplit(ary, indices_or_sections):
    """Parts side by side."""
    return split(ary, indices_or_sections, 0 if asarray(ary).ndim == 1 else 1)


@function("vsplit")
def vsplit(ary, indices_or_sections):
    """Parts one below the other."""
    return split(ary, indices_or_sections, 0)


@function("dsplit")
def dsplit(ary, indices_or_sections):
    """Parts one behind the other."""
    return split(ary, indices_or_sections, 2)


@function("unstack")
def unstack(x, /, *, axis=0):
    """The slices along an axis, whose size must be known (a guard)."""
    x = asarray(x)
    at = axis_number(axis, x.ndim)
    return tuple(x[(slice(None),) * at + (i,)] for i in range(int(x.shape[at])))


@function("tile")
def tile(A, reps):
    """The array repeated as a whole along each axis."""
    x = asarray(A)
    reps = reps if isinstance(reps, tuple | list) else (reps,)
    reps = x.builder.dims((*(1,) * (x.ndim - len(reps)), *reps))
    own = (*(1,) * (len(reps) - x.ndim), *x.dims)
    return _repeated(x, own, reps, before=True)


@function("repeat")
def repeat(a, repeats, axis=None):
    """Each element repeated.  With counts that are traced, only the data decides the size."""
    x = asarray(a)
    if axis is None:
        x, axis = x.ravel(), 0
    if not isinstance(repeats, int | np.integer | Size):
        if operands.is_traced(repeats):
            return _repeated_by(x, repeats, axis_number(axis, x.ndim))
        counts = np.asarray(repeats)
        if counts.size > 1:
            places = np.repeat(np.arange(counts.size), counts)
            require_equal(x.dims[axis_number(axis, x.ndim)], counts.size, "repeats and the axis have sizes")
            return x.take(places, axis)
        repeats = int(counts.reshape(-1)[0])
    at, (count,) = axis_number(axis, x.ndim), x.builder.dims((repeats,))
    return _repeated(x, x.dims, tuple(count if i == at else 1 for i in range(x.ndim)), before=False)


@function("roll")
def roll(a, shift, axis=None):
    """Elements moved along an axis, those that fall off coming back at the start."""
    x = asarray(a)
    if axis is None:
        return roll(x.ravel(), shift, 0).reshape(x.shape)
    shifts, axes = (v if isinstance(v, tuple | list) else (v,) for v in (shift, axis))
    pairs = [
        (s, a)
        for s, a in zip(
            shifts * (len(axes) if len(shifts) == 1 else 1), axes * (len(shifts) if len(axes) == 1 else 1), strict=True
        )
    ]
    for s, at in pairs:
        x = _rolled(x, s, axis_number(at, x.ndim))
    return x


@function("pad")
def pad(array, pad_width, mode="constant", *, constant_values=0):
    """Places added around an array: a constant, or its edge, reflected or repeated."""
    x = asarray(array)
    widths = _pad_widths(pad_width, x.ndim)
    if mode == "constant":
        if isinstance(constant_values, tuple | list):
            raise UnsupportedError(
                "np.pad with several constant_values is not supported in a compiled function", "pad in several steps"
            )
        value = as_dtype(constant_values, x.type.dtype)
        return x.derived(x.builder.op("pad", x.atom, value.atom, widths=tuple(tuple(x.builder.dims(w)) for w in widths)))
    if mode not in PAD_MODES:
        raise UnsupportedError(f"np.pad(..., mode={mode!r}) is not supported in a compiled function")
    for at, (before, after) in enumerate(widths):
        if not (isinstance(before, int) and before == 0 and isinstance(after, int) and after == 0):
            x = PAD_MODES[mode](x, at, before, after)
    return x


def _edge(x: TracedArray, at: int, before, after) -> TracedArray:
    operands.require_nonempty(x.dims[at], f"can't extend empty axis {at} using modes other than 'constant' or 'empty'")
    return concatenate([repeat(_cut(x, at, 0, 1), before, at), x, repeat(_cut(x, at, -1, None), after, at)], at)


def _reflect(x: TracedArray, at: int, before, after) -> TracedArray:
    return _mirror(x, at, before, after, 1)


def _symmetric(x: TracedArray, at: int, before, after) -> TracedArray:
    return _mirror(x, at, before, after, 0)


def _mirror(x: TracedArray, at: int, before, after, skip: int) -> TracedArray:
    n = x.shape[at]
    for width in (before, after):
        if not width + skip <= n:
            raise UnsupportedError(
                f"np.pad reflecting more than axis {at} has is not supported in a compiled function", "pad in several steps"
            )
    return concatenate([flip(_cut(x, at, skip, before + skip), at), x, flip(_cut(x, at, n - after - skip, n - skip), at)], at)


def _wrap(x: TracedArray, at: int, before, after) -> TracedArray:
    n = x.shape[at]
    for width in (before, after):
        if not width <= n:
            raise UnsupportedError(
                f"np.pad wrapping more than axis {at} has is not supported in a compiled function", "pad in several steps"
            )
    return concatenate([_cut(x, at, n - before, n), x, _cut(x, at, 0, after)], at)


PAD_MODES = {"edge": _edge, "reflect": _reflect, "symmetric": _symmetric, "wrap": _wrap}


def _cut(x: TracedArray, at: int, start, stop) -> TracedArray:
    return x[(slice(None),) * at + (slice(start, stop),)]


def _pad_widths(widths: object, ndim: int) -> list[tuple]:
    if isinstance(widths, dict):
        at = {axis_number(a, ndim): w if isinstance(w, tuple) else (w, w) for a, w in widths.items()}
        return [at.get(i, (0, 0)) for i in range(ndim)]
    if isinstance(widths, np.ndarray):
        widths = widths.tolist()
    if isinstance(widths, int | np.integer | Size):
        return [(widths, widths)] * ndim
    parts = list(widths)
    if all(isinstance(p, int | np.integer | Size) for p in parts):
        return [tuple(parts if len(parts) == 2 else parts * 2)] * ndim
    pairs = [tuple(p if len(p) == 2 else (*p, *p)) for p in parts]
    if len(pairs) not in (1, ndim):
        raise ArgumentError(f"np.pad: {len(pairs)} pairs of widths for {ndim} axes")
    return pairs * ndim if len(pairs) == 1 else pairs


def _repeated(x: TracedArray, own: tuple[Dim, ...], reps: tuple[Dim, ...], before: bool) -> TracedArray:
    """Repetition by broadcasting a new axis before (tile) or after (repeat) each axis and merging the two."""
    b = x.builder
    apart = tuple(d for pair in ((1, s) if before else (s, 1) for s in own) for d in pair)
    wide = tuple(d for pair in ((r, s) if before else (s, r) for r, s in zip(reps, own, strict=True)) for d in pair)
    spread = b.op("broadcast_to", reshape(b, x.atom, apart), shape=wide)
    return x.derived(reshape(b, spread, tuple(r * s for r, s in zip(reps, own, strict=True))))


def _repeated_by(x: TracedArray, repeats: object, at: int) -> TracedArray:
    """Repetition by an array of counts: a fresh size, which the same counts always give."""
    from minirelax.frontend.functions.sets import counting_numbers

    b, counts = x.builder, counting_numbers(repeats, "repeat")
    if counts.ndim > 1:
        raise ShapeError("object too deep for desired array: np.repeat needs counts along one axis")
    if counts.dims and counts.dims != (1,):
        require_equal(x.dims[at], counts.dims[0], "repeats and the axis have sizes")
    counts = operands.broadcast(counts, (x.dims[at],))
    key = ("repeat", b.meaning(counts.atom))
    if key not in b.memory:
        b.memory[key] = b.inner_size()
    shape = (*x.dims[:at], b.memory[key], *x.dims[at + 1 :])
    return x.derived(b.emit(MatchCast(b.op("repeat", x.atom, counts.atom, axis=at), Tensor(x.type.dtype, shape))))


def _rolled(x: TracedArray, shift: object, at: int) -> TracedArray:
    n = x.shape[at]
    if isinstance(shift, TracedArray):
        return x.take((_counting(x, at) - shift) % x.builder.number(x.dims[at]), at)
    if isinstance(n, int) and n == 0:
        return x.copy()
    if isinstance(n, Size) and not x.builder.facts.decide("!=", n.dim, 0, declared=True):
        return x.copy()
    cut = (-shift) % n
    return concatenate([_cut(x, at, cut, None), _cut(x, at, 0, cut)], at)


def _counting(x: TracedArray, at: int) -> TracedArray:
    return x.derived(x.builder.op("iota", size=x.dims[at], dtype="i64"))


def _depth(arrays: object) -> int:
    return 1 + max(map(_depth, arrays)) if isinstance(arrays, list) else 0

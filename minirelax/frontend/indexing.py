"""Reading and writing by index: slices, integers, new axes, arrays of integers, masks, in any combination NumPy allows.

A key is normalised to one `Axis` step per axis of the array; basic indexing gives a view, arrays of indices a copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import EllipsisType

import numpy as np

from minirelax.errors import IndexingError, ShapeError, UnsupportedError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.operands import as_dtype, asarray, broadcast_shape, conform
from minirelax.frontend.size import Size
from minirelax.frontend.ufuncs import emit
from minirelax.frontend.views import ReshapeView, SliceView
from minirelax.ir.dim import Dim, ceildiv, maximum, minimum, product
from minirelax.ir.graph import MatchCast
from minirelax.ir.types import Tensor

DYNAMIC = "take elements with np.take(x, start + np.arange(length)); name an integer argument in jit(static=...)"
COUNT = "indices count from 0, or from -1 at the end"


@dataclass(frozen=True)
class Places:
    """A basic index on one axis: `size` places ``start, start + step, ...``; a dropped axis is one of size 1."""

    start: Dim
    size: Dim
    step: int = 1
    dropped: bool = False


@dataclass(frozen=True)
class Chosen:
    """An array of indices on one axis."""

    array: TracedArray


HUGE = 2**62  # no axis is as long: such a bound means the end
NEW = None  # a new axis of size 1
Step = Places | Chosen | None


def get_item(x: TracedArray, key: object) -> TracedArray:
    """``x[key]``.  Raises IndexingError, as NumPy raises IndexError, for keys that do not fit."""
    if x.weak:
        raise IndexingError(f"a Python {x.weak.__name__} cannot be indexed")
    mask = _whole_mask(x, key)
    if mask is not None:
        return _compress(x, mask)
    steps = normalise(x, key)
    if not any(isinstance(s, Chosen) for s in steps):
        view = basic_view(x, steps)
        return view if view.ndim or _has_dots(key) else view.as_element()
    base, axes, arrays, position = _advanced(x, steps)
    return _gather(base, arrays, axes, position)


def set_item(x: TracedArray, key: object, value: object) -> None:
    """``x[key] = value``: gives `x` a new value; views of the same memory see it."""
    if x.weak:
        raise IndexingError(f"a Python {x.weak.__name__} cannot be written to")
    value = as_dtype(value, x.type.dtype)
    mask = _whole_mask(x, key, constant=True)
    if mask is not None and value.ndim <= x.ndim - mask.ndim:
        return _assign_where(x, mask, value)
    steps = normalise(x, key)
    if not any(isinstance(s, Chosen) for s in steps):
        view = basic_view(x, steps)
        return view.assign(_fit(value, view.dims).atom)
    base, axes, arrays, position = _advanced(x, steps)
    _scatter("scatter_set", base, arrays, axes, position, value)


def add_at(x: TracedArray, key: object, value: object) -> None:
    """``np.add.at(x, key, value)``: repeated indices add up."""
    value = as_dtype(value, x.type.dtype)
    steps = normalise(x, key)
    if not any(isinstance(s, Chosen) for s in steps):
        view = basic_view(x, steps)
        return view.assign((view + value).atom)
    base, axes, arrays, position = _advanced(x, steps)
    _scatter("scatter_add", base, arrays, axes, position, value)


def normalise(x: TracedArray, key: object) -> list[Step]:
    """One step for each axis of `x`, in order, and None where there is a new axis."""
    parts = list(key) if isinstance(key, tuple) else [key]
    parts = [_array_part(p) if isinstance(p, list | np.ndarray | TracedArray | tuple) else p for p in parts]
    used = sum(p.ndim if _is_mask(p) else 1 for p in parts if p is not None and not isinstance(p, EllipsisType))
    if used > x.ndim:
        raise IndexingError(f"too many indices for array: array is {x.ndim}-dimensional, but {used} were indexed")
    dots = [i for i, p in enumerate(parts) if isinstance(p, EllipsisType)]
    if len(dots) > 1:
        raise IndexingError("an index can only have a single ellipsis ('...')")
    at = dots[0] if dots else len(parts)
    parts[at : at + 1] = [slice(None)] * (x.ndim - used)
    steps: list[Step] = []
    for part in parts:
        axis = sum(s is not NEW for s in steps)
        steps += _steps(x, part, axis)
    return steps


def _has_dots(key: object) -> bool:
    """With an ellipsis NumPy gives an array without axes, which is a view; else a single element, which is not."""
    return any(isinstance(p, EllipsisType) for p in (key if isinstance(key, tuple) else (key,)))


def basic_view(x: TracedArray, steps: list[Step]) -> TracedArray:
    """The view that slices, integers and new axes select."""
    places = [s for s in steps if isinstance(s, Places)]
    full = all(p.start == 0 and p.step == 1 and p.size == d for p, d in zip(places, x.dims, strict=True))
    if not full:
        x = x.show(SliceView(tuple(p.start for p in places), tuple(p.size for p in places), tuple(p.step for p in places)))
    shape = tuple(1 if s is NEW else s.size for s in steps if s is NEW or not s.dropped)
    if shape == x.dims:
        return x.show(ReshapeView(shape)) if full else x
    return x.show(ReshapeView(shape))


def places(x: TracedArray, index: slice, axis: int) -> Places:
    """The places of a slice, clamped to the axis as Python clamps it."""
    facts, d = operands.builder().facts, x.dims[axis]
    step = _static_step(index.step)
    if step > 0:
        first = 0 if index.start is None else minimum(_bound(index.start, d, 0), d)
        last = d if index.stop is None else minimum(_bound(index.stop, d, 0), d)
        size = _extent(last - first, step)
    else:
        first = d - 1 if index.start is None else minimum(_bound(index.start, d, -1), d - 1)
        last = -1 if index.stop is None else minimum(_bound(index.stop, d, -1), d - 1)
        size = _extent(first - last, -step)
    return Places(facts.resolve(first), size, step)


def _steps(x: TracedArray, part: object, axis: int) -> list[Step]:
    """The steps of one part of a key; a mask of several axes gives several."""
    match part:
        case None:
            return [NEW]
        case slice():
            return [places(x, part, axis)]
        case bool() | np.bool_():
            raise UnsupportedError("indexing with a bool is not supported in a compiled function", "use None for a new axis")
        case int() | np.integer() | Size():
            if not isinstance(x.dims[axis], int) and not operands.builder().facts.may_assume(x.dims[axis], declared=True):
                return [Chosen(asarray(part))]  # a size that the data decides: checked while running
            return [Places(_integer(x, part, axis), 1, dropped=True)]
        case np.ndarray():
            _check_mask(x, asarray(part), axis)
            return [Chosen(asarray(i)) for i in np.nonzero(part)]
        case TracedArray() if _is_mask(part):
            _check_mask(x, part, axis)
            return [Chosen(i) for i in nonzero(part)]
        case TracedArray() if part.dtype.kind in "iu":
            return [Chosen(part)]
    shown = part.dtype if isinstance(part, TracedArray) else type(part).__name__
    raise IndexingError(
        "only integers, slices (`:`), ellipsis (`...`), np.newaxis (`None`) and integer or boolean arrays are valid indices, "
        f"not {shown}",
        "convert the index: i.astype(np.int64)" if isinstance(part, TracedArray) else "",
    )


def _array_part(part: object) -> object:
    """A list or array in a key, traced; an empty list is an array of integers."""
    if isinstance(part, TracedArray):
        return part
    if isinstance(part, np.ndarray) and part.ndim == 0 and part.dtype.kind in "iu":
        return int(part)
    if not operands.is_traced(part):
        part = np.asarray(part)
        if part.dtype.kind == "b" and part.ndim:
            return part
        part = part.astype(np.int64) if part.size == 0 and part.dtype.kind == "f" else part
    return asarray(part)


def _is_mask(part: object) -> bool:
    return isinstance(part, TracedArray | np.ndarray) and part.dtype.kind == "b"


def _integer(x: TracedArray, index: int | Size, axis: int) -> Dim:
    """An integer index counted from 0.  Raises IndexingError if it is outside the axis."""
    facts, d = operands.builder().facts, x.dims[axis]
    i = facts.resolve(index.dim) if isinstance(index, Size) else int(index)
    negative = not facts.decide("<=", 0, i, declared=True)
    outside = not facts.decide("<=", 0, i + d, declared=True) if negative else not facts.decide("<", i, d, declared=True)
    if outside:
        shown = facts.hint(d)
        size = d if shown is None or shown == d else f"{d} (here {shown})"
        raise IndexingError(f"index {index} is out of bounds for axis {axis} with size {size}", COUNT)
    return facts.resolve(i + d if negative else i)


def _static_step(step: object) -> int:
    if step is None:
        return 1
    if isinstance(step, TracedArray):
        raise IndexingError("the step of a slice must be known while tracing", DYNAMIC)
    step = int(step)
    if step == 0:
        raise ShapeError("slice step cannot be zero")
    return step


def _bound(bound: object, d: Dim, below: int) -> Dim:
    """A slice bound from the start of an axis of size `d`: negative ones count from the end, down to `below`."""
    if isinstance(bound, TracedArray):
        raise IndexingError("the bounds of a slice must be known while tracing, not values of an array", DYNAMIC)
    facts = operands.builder().facts
    i = facts.resolve(bound.dim) if isinstance(bound, Size) else bound.__index__()
    if isinstance(i, int) and abs(i) >= HUGE:
        return d if i > 0 else below
    if facts.decide("<=", 0, i, declared=True):
        return i
    if facts.known("<=", 0, i + d) is None and not facts.may_assume(i + d, declared=True):
        return d - minimum(d - below, -1 * i)  # a size that the data decides: clamped while running
    return i + d if facts.decide("<=", 0, i + d, declared=True) else below


def _extent(length: Dim, step: int) -> Dim:
    facts = operands.builder().facts
    length = facts.resolve(length)
    return facts.resolve(ceildiv(length if facts.is_nonnegative(length) else maximum(length, 0), step))


def _whole_mask(x: TracedArray, key: object, constant: bool = False) -> TracedArray | None:
    """The mask, if the key is one traced (or constant) mask over leading axes and nothing else."""
    if isinstance(key, tuple) and len(key) == 1:
        key = key[0]
    part = _array_part(key) if isinstance(key, list | np.ndarray | TracedArray) else None
    if not _is_mask(part) or not 0 < part.ndim <= x.ndim or not (constant or isinstance(part, TracedArray)):
        return None
    part = asarray(part)
    _check_mask(x, part, 0)
    return part


def _check_mask(x: TracedArray, mask: TracedArray, axis: int) -> None:
    for a, d in enumerate(mask.dims, axis):
        try:
            operands.require_equal(d, x.dims[a], f"boolean index did not match indexed array along axis {a}; sizes are")
        except ShapeError as e:
            raise IndexingError(e.what, e.hint) from None


def _compress(x: TracedArray, mask: TracedArray) -> TracedArray:
    """The elements (or slices) where the mask holds: a fresh size, which the same mask always gives."""
    b, rest = x.builder, x.dims[mask.ndim :]
    flat_mask = flatten(mask, mask.ndim)
    found = b.op("compress", flat_mask.atom, flatten(x, mask.ndim).atom, axis=0)
    return x.derived(b.emit(MatchCast(found, Tensor(x.type.dtype, (_count(mask), *rest)))))


def _count(mask: TracedArray) -> Dim:
    b = mask.builder
    key = ("count", b.meaning(mask.atom))
    if key not in b.memory:
        b.memory[key] = b.inner_size()
    return b.memory[key]


def nonzero(x: TracedArray) -> tuple[TracedArray, ...]:
    """The indices of the elements that are not 0, computed once for each value."""
    b = x.builder
    key = ("nonzero", b.meaning(x.atom))
    if key not in b.memory:
        size = _count(x)
        found = b.op("nonzero", x.atom)
        found = found if isinstance(found, tuple) else (found,)
        b.memory[key] = tuple(b.emit(MatchCast(i, Tensor("i64", (size,)))) for i in found)
    return tuple(TracedArray(b, i) for i in b.memory[key])


def flatten(x: TracedArray, count: int) -> TracedArray:
    """`x` with its first `count` axes made one."""
    from minirelax.frontend.views import reshape

    return x.derived(reshape(x.builder, x.atom, (product(x.dims[:count]), *x.dims[count:])))


def _assign_where(x: TracedArray, mask: TracedArray, value: TracedArray) -> None:
    """``x[mask] = value`` with one value for every place chosen: no index is needed."""
    wide = TracedArray(mask.builder, ReshapeView((*mask.dims, *(1,) * (x.ndim - mask.ndim))).read(mask.builder, mask.atom))
    x.assign(conform(emit("where", wide, _fit(value, x.dims[mask.ndim :], keep=True), x), x.dims).atom)


def _fit(value: TracedArray, shape: tuple[Dim, ...], keep: bool = False) -> TracedArray:
    """`value` in a form that broadcasts to exactly `shape`.  Raises ShapeError otherwise."""
    extra = value.ndim - len(shape)
    if extra > 0 and operands.fits(value.dims[:extra], (1,) * extra):  # NumPy drops leading axes of size 1
        value = conform(value, (*(1,) * extra, *value.dims[extra:]))
        value = TracedArray(value.builder, ReshapeView(value.dims[extra:]).read(value.builder, value.atom))
    if operands.fits(value.dims, shape):
        return conform(value, shape) if keep else operands.broadcast(value, shape)
    raise ShapeError(
        f"could not broadcast input array from shape {operands.shape_text(value.dims)} into shape {operands.shape_text(shape)}"
    )


def _advanced(x: TracedArray, steps: list[Step]) -> tuple[TracedArray, tuple[int, ...], list[TracedArray], int]:
    """Split a key with arrays into a basic view, the axes of it that the arrays index, and where their axes go.

    Integers count as arrays then.  The arrays' axes stand where the arrays stood, or first if something lay between them.
    """
    steps = [_as_chosen(x, s) if isinstance(s, Places) and s.dropped else s for s in steps]
    indexed = [i for i, s in enumerate(steps) if isinstance(s, Chosen)]
    together = indexed == list(range(indexed[0], indexed[-1] + 1))
    whole, axis = [], 0
    for s in steps:
        whole.append(Places(0, x.dims[axis]) if isinstance(s, Chosen) else s)
        axis += s is not NEW
    base = basic_view(x, whole)
    return base, tuple(indexed), [steps[i].array for i in indexed], indexed[0] if together else 0


def _as_chosen(x: TracedArray, place: Places) -> Chosen:
    return Chosen(x.builder.number(place.start))


def _gather(x: TracedArray, arrays: list[TracedArray], axes: tuple[int, ...], position: int) -> TracedArray:
    b = x.builder
    if len(arrays) == 1:
        return x.derived(b.op("take", x.atom, arrays[0].atom, axis=axes[0], mode="raise"))
    arrays = _together(arrays)
    return x.derived(b.op("gather", x.atom, tuple(a.atom for a in arrays), axes=axes, position=position))


def _scatter(
    name: str, x: TracedArray, arrays: list[TracedArray], axes: tuple[int, ...], position: int, value: TracedArray
) -> None:
    b, arrays = x.builder, _together(arrays)
    kept = [d for a, d in enumerate(x.dims) if a not in axes]
    shape = (*kept[:position], *broadcast_shape(*(a.dims for a in arrays)), *kept[position:])
    x.assign(b.op(name, x.atom, _fit(value, shape, keep=True).atom, tuple(a.atom for a in arrays), axes=axes, position=position))


def _together(arrays: list[TracedArray]) -> list[TracedArray]:
    """Index arrays that broadcast, in one dtype."""
    try:
        shape = broadcast_shape(*(a.dims for a in arrays))
    except ShapeError as e:
        raise IndexingError(f"shape mismatch: indexing arrays could not be broadcast together: {e.what}", e.hint) from None
    return [conform(as_dtype(a, "i64"), shape) for a in arrays]

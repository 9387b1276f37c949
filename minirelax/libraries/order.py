"""Parts of a sorted order: the rest is set apart in linear time, and only the part is sorted.

What is asked of an order is often its start or its end: the k smallest, the k nearest, the best one.  `numpy.partition` puts
the elements of a part where they belong, those below before them and those above behind them, and the part is then sorted.

Results are those of `numpy.sort` and of a stable `numpy.argsort`: NaN stands last, equal elements keep their order among
indices. As values, equal ones cannot be told apart, but for zeros of both signs, whose order `numpy.sort` leaves open, too.

Sorting by way of indices (``x[argsort(x)]``), and parts of at most half of an order, pay at every size that takes any time.

>>> import numpy as np
>>> import minirelax as mr
>>> f = mr.jit(lambda x: np.sort(x)[..., :2], libraries=sort())
>>> f(np.array([[3.0, 1, 2, 5, 4]]))
array([[1., 2.]])
>>> print(f.stages["choose_libraries"].module)
def main(x: f64[n, m]) -> f64[n, min(m, 2)]:
    with dataflow():
        v1: f64[n, min(m, 2)] = call_library("sort_part", x, sizes=(1, 0, 0))
        output(v1)
    return v1
"""

from __future__ import annotations

import numpy as np

from minirelax.ir.dim import Dim
from minirelax.ops.index import Slice, Take, TakeAlongAxis
from minirelax.ops.sequence import Argsort, Sort
from minirelax.passes.choose_libraries import LibraryRule
from minirelax.passes.patterns import Match

PART = (  # values: a slice of a sorted order, or of a slice of it; or what a slice of indices chooses
    lambda x, axis, s, n, t, s2, n2, t2: Slice(Slice(Sort(x, axis), s, n, t), s2, n2, t2),
    lambda x, axis, s, n, t: Slice(Sort(x, axis), s, n, t),
    lambda x, axis, s, n, t, s2, n2, t2: TakeAlongAxis(x, Slice(Slice(Argsort(x, axis), s, n, t), s2, n2, t2), axis),
    lambda x, axis, s, n, t: TakeAlongAxis(x, Slice(Argsort(x, axis), s, n, t), axis),
    lambda x, axis, s, n, t, s2, n2, t2: Take(x, Slice(Slice(Argsort(x, axis), s, n, t), s2, n2, t2), axis, "raise"),
    lambda x, axis, s, n, t: Take(x, Slice(Argsort(x, axis), s, n, t), axis, "raise"),
)
INDICES = (
    lambda x, axis, s, n, t, s2, n2, t2: Slice(Slice(Argsort(x, axis), s, n, t), s2, n2, t2),
    lambda x, axis, s, n, t: Slice(Argsort(x, axis), s, n, t),
)
WHOLE = (
    lambda x, axis: TakeAlongAxis(x, Argsort(x, axis), axis),
    lambda x, axis: Take(x, Argsort(x, axis), axis, "raise"),
)


def sort(priority: float = 0) -> tuple[LibraryRule, ...]:
    """Rules for parts of what `sort` and `argsort` give, ascending or reversed, and for sorting by indices.

    A part is a slice without gaps along the sorted axis, all of the other axes; its size may be known only at the call.
    """
    return (
        LibraryRule("sort_part", PART, _is_part, priority=priority, sizes=_place),
        LibraryRule("argsort_part", INDICES, _is_part, priority=priority, sizes=_place),
        LibraryRule("sort_values", WHOLE, _is_line_by_line, priority=priority, sizes=lambda match: (match["axis"],)),
    )


# ---- the routines


def sort_part(x, out, work, axis, low, is_reversed):
    """``sort(x, axis)`` from place `low` on along the axis, as much of it as `out` holds; `work` has room for a copy of `x`.

    The greatest alone is the maximum, as both are NaN if there is one; the least alone is the least that is not NaN (`fmin`).
    """
    n, k = x.shape[axis], out.shape[axis]
    if not out.size:
        return
    part = _along(axis, slice(low, low + k))
    if k == 1 and low == n - 1:
        np.maximum.reduce(x, axis, out=out, keepdims=True)
    elif k == 1 and low == 0:
        np.fmin.reduce(x, axis, out=out, keepdims=True)
    else:
        np.copyto(work, x)
        if 2 * k > n:
            work.sort(axis)
        else:
            work.partition([low, low + k - 1], axis)
            work[part].sort(axis)
        out[...] = np.flip(work[part], axis) if is_reversed else work[part]


def argsort_part(x, out, axis, low, is_reversed):
    """``argsort(x, axis, kind="stable")`` from place `low` on along the axis, as much of it as `out` holds.

    `numpy.argpartition` would choose any among equal elements; so the part is chosen by value, then in the order of places.
    """
    n, k = x.shape[axis], out.shape[axis]
    if not out.size:
        return
    if 2 * k > n:
        found = np.argsort(x, axis, kind="stable")[_along(axis, slice(low, low + k))]
    else:
        lines = np.moveaxis(x, axis, -1)
        chosen = _first(lines, low + k) & ~_first(lines, low)
        places = np.nonzero(chosen)[-1].reshape(*lines.shape[:-1], k)
        order = np.argsort(np.take_along_axis(lines, places, -1), -1, kind="stable")
        found = np.moveaxis(np.take_along_axis(places, order, -1), -1, axis)
    out[...] = np.flip(found, axis) if is_reversed else found


def sort_values(x, out, axis):
    """``take_along_axis(x, argsort(x, axis), axis)``: elements in the order of their indices are the elements in order."""
    np.copyto(out, x)
    out.sort(axis)


ROUTINES = {"sort_part": sort_part, "argsort_part": argsort_part, "sort_values": sort_values}
WORKSPACES = {"sort_part": lambda x, out, axis, low, is_reversed: x}


def _first(lines: np.ndarray, count: int) -> np.ndarray:
    """Which elements are among the `count` that a stable sort puts first in their line (the last axis)?

    >>> _first(np.array([2, 1, 2, 2, 0]), 3)
    array([ True,  True, False, False,  True])
    """
    if count in (0, lines.shape[-1]):
        return np.full(lines.shape, count > 0)
    last = np.partition(lines, count - 1)[..., count - 1 : count]
    below, equal = lines < last, lines == last
    if lines.dtype.kind == "f":
        below |= ~np.isnan(lines) & np.isnan(last)
        equal |= np.isnan(lines) & np.isnan(last)
    room = count - np.count_nonzero(below, axis=-1, keepdims=True)
    return below | equal & (equal.cumsum(-1) <= room)


def _along(axis: int, part: slice) -> tuple[slice, ...]:
    return (slice(None),) * axis + (part,)


# ---- what the rules look at


def _is_part(match: Match) -> bool:
    """Is this a part without gaps of whole lines?"""
    whole = all(_is_whole_elsewhere(match, *names) for names in _slices(match))
    return whole and abs(_step(match)) == 1 and _is_line_by_line(match)


def _is_line_by_line(match: Match) -> bool:
    """Are real numbers sorted, and chosen in the line that they stand in?  `take` does the latter only if there is one line."""
    x = match["x"].type
    is_ordered = x.dtype == "bool" or x.dtype[0] in "iuf"
    return is_ordered and (not isinstance(match.root.value, Take) or len(x.shape) == 1)


def _place(match: Match) -> tuple[Dim, ...]:
    """The axis, the first place of the sorted order that is in the part, and 1 if the part is in reverse."""
    axis, start, step = match["axis"], 0, 1
    for starts, sizes, steps in _slices(match):
        start, size, step = start + step * match[starts][axis], match[sizes][axis], step * match[steps][axis]
    return axis, start if step == 1 else start - (size - 1), int(step != 1)


def _step(match: Match) -> int:
    step = 1
    for _, _, steps in _slices(match):
        step *= match[steps][match["axis"]]
    return step


def _slices(match: Match) -> tuple[tuple[str, str, str], ...]:
    """The names of starts, sizes and steps of each slice, the first one first."""
    return (("s", "n", "t"), ("s2", "n2", "t2")) if "s2" in match.found else (("s", "n", "t"),)


def _is_whole_elsewhere(match: Match, starts: str, sizes: str, steps: str) -> bool:
    """Does the slice take all of the other axes, as they are?"""
    places = zip(match["x"].type.shape, match[starts], match[sizes], match[steps], strict=True)
    return all(a == match["axis"] or (start, size, step) == (0, d, 1) for a, (d, start, size, step) in enumerate(places))

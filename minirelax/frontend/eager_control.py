"""Branches and loops on real arrays, outside of any trace: in Python, with the results that a compiled program gives.

Functions get copies, so that what they write in place stays theirs.  The dtypes are those of the rounds that ran.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from minirelax.errors import ShapeError
from minirelax.frontend.carries import (
    FIXED,
    STACK,
    array_type,
    function_name,
    leaves_of,
    misfit,
    other_dtype,
    other_rank,
    pair,
    same_leaves,
    settled,
    type_text,
)
from minirelax.frontend.operands import asarray, is_traced, kind
from minirelax.frontend.tree import flatten


def own(value: object) -> object:
    """`value` with copies of its arrays."""
    leaves, tree = flatten(value)
    return tree.unflatten([x.copy() if isinstance(x, np.ndarray) else asarray(x) if is_traced(x) else x for x in leaves])


def run_while(test: Callable, body: Callable, init: object, truth: Callable[[object], bool]) -> object:
    """`init`, replaced by ``body(carried)`` while ``truth(test(carried))``."""
    carried = Carried("while_loop", body, init, "init_val")
    while truth(test(own(carried.value))):
        carried.set(body(carried.value))
    return carried.value


def run_fori(lower: int, upper: int, body: Callable, init: object) -> object:
    """`init`, replaced by ``body(i, carried)`` for each `i` from `lower` up to, not including, `upper`."""
    carried = Carried("fori_loop", body, init, "init_val")
    for i in range(lower, upper):
        carried.set(body(i, carried.value))
    return carried.value


def run_scan(f: Callable, init: object, xs: object, length: int, reverse: bool) -> tuple[object, object]:
    """The last carried value, and the results of all rounds, stacked."""
    carried, name = Carried("scan", f, init, "init", fixed=True), function_name(f, "the body")
    slices, tree = flatten(xs)
    slices = list(map(np.asarray, slices))
    rows, out = [], None
    for i in reversed(range(length)) if reverse else range(length):
        made, y = pair("scan", name, f(carried.value, own(tree.unflatten([x[i] for x in slices]))))
        carried.set(made)
        out = leaves_of("scan", f"the result of {name}", y)[1] if out is None else out
        rows.append(same_leaves("scan", out, y, name, "{} is the result of the first round"))
    if out is None:  # one call, on zeros, for the types of results
        with np.errstate(all="ignore"):
            y = pair("scan", name, f(own(carried.value), tree.unflatten([np.zeros(x.shape[1:], x.dtype)[()] for x in slices])))[1]
        row, out = leaves_of("scan", f"the result of {name}", y)
        return carried.value, out.unflatten([np.zeros((0, *np.shape(v)), np.asarray(v).dtype) for v in row])
    return carried.value, out.unflatten(list(_stacked(rows[::-1] if reverse else rows, out.paths(f"the result of {name}"))))


class Carried:
    """The value that a loop carries, with the checks that a trace makes."""

    def __init__(self, what: str, body: Callable, init: object, path: str, fixed: bool = False):
        self.what, self.name, self.fixed = what, function_name(body, "the body"), fixed
        self.leaves, self.tree = leaves_of(what, path, own(init))
        self.paths = self.tree.paths(path)

    @property
    def value(self) -> object:
        return self.tree.unflatten(self.leaves)

    def set(self, made: object) -> None:
        """Take what the body returns.  Raises what a trace would raise."""
        leaves = same_leaves(self.what, self.tree, made, self.name)
        self.leaves = [self._settled(*x) for x in zip(self.paths, self.leaves, leaves, strict=True)]

    def _settled(self, path: str, old: object, new: object) -> object:
        new = new if isinstance(new, np.generic | bool | int | float | complex) else np.asarray(new)
        start, made = (kind(old), array_type(old)), (kind(new), array_type(new))
        if start[1].ndim != made[1].ndim:
            raise other_rank(self.what, path, start, made, self.name)
        if self.fixed and start[1].shape != made[1].shape:
            raise misfit(self.what, path, type_text(*start), type_text(*made), self.name, ShapeError, FIXED)
        dtype = settled(start[0], made[0])
        if dtype is None:
            raise other_dtype(self.what, path, start, made, self.name)
        return np.array(new, dtype) if isinstance(new, np.ndarray) else dtype(new) if isinstance(dtype, type) else dtype.type(new)


def _stacked(rows: list[list], paths: list[str]) -> Iterator[np.ndarray]:
    for k, path in enumerate(paths):
        shapes = {np.shape(row[k]) for row in rows}
        if len(shapes) > 1:
            raise ShapeError(f"scan: {path} has other sizes in other rounds: {' and '.join(map(str, sorted(shapes)))}", STACK)
        yield np.stack([np.asarray(row[k]) for row in rows])

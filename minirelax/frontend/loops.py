"""Loops while a function is traced: the body runs on stand-ins for what is carried, again and again until their types stay.

A number that starts a loop takes the dtype that the body gives it.  A size that the body changes becomes a size of the body's
own, bound anew in each round; sizes that start equal and stay equal to each other remain one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from minirelax.errors import IndexingError, ShapeError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder
from minirelax.frontend.carries import FIXED, STACK, function_name, misfit, other_dtype, other_rank, settled, type_text
from minirelax.frontend.operands import as_dtype, asarray, kind
from minirelax.frontend.promotion import Kind
from minirelax.frontend.regions import Slot, add_region, after, captured, dtype_of, give, numpy_kind, same_size, value_of
from minirelax.frontend.scope import Scope
from minirelax.frontend.signature import identifier
from minirelax.ir.dim import Dim, DimExpr, names
from minirelax.ir.graph import Scan, Var, While
from minirelax.ir.types import Tensor


class Loop:
    """The carried values of a loop, and the scope of its body."""

    def __init__(
        self, b: Builder, what: str, body: Callable, init: Sequence[object], paths: Sequence[str], inside: Sequence[str]
    ):
        """`paths`: how messages reach the carried values; `inside`: how the body reaches them, and then the slices."""
        self.b, self.what, self.body, self.paths, self.inside = b, what, body, paths, inside
        self.body_name = function_name(body, "the body")
        self.init = [asarray(v).as_element() if isinstance(v, np.generic) else asarray(v) for v in init]
        self.atoms = [x.atom for x in self.init]
        self.kinds: list[Kind] = [kind(x) for x in self.init]
        self.sizes: dict[tuple[int, int], Dim] = {}  # by value and axis: those that the body changes, as the body calls them
        self.scope: Scope | None = None
        self.own: tuple[Var, ...] = ()
        self.made: list[TracedArray] = []

    def trace(
        self, rounds: Callable[[list[TracedArray]], list[object]], slices: Sequence[TracedArray] = (), fixed: bool = False
    ) -> list[TracedArray]:
        """Trace the body until what it carries keeps its type; what it returns besides.

        `rounds` takes stand-ins for the carried values and for `slices`; if `fixed`, no size may change.  A body that is wrong
        for the empty arrays that the loop starts with in this call may be right for those it is run with, if it changes them.
        """
        count, doubted = len(self.init), {}
        while True:
            undo = self.b.attempt()
            self.scope = self._scope(self.body_name)
            try:
                with self.b.inside(self.scope):
                    self.own = self._variables(slices)
                    made = list(map(asarray, rounds([*self.stand_ins(), *map(self._slice, self.own[count:])])))
            except (IndexingError, ShapeError):
                if fixed or doubted or not (doubted := self._empty()):
                    raise
                self._loosen({place: (d, d) for place, d in doubted.items()})
                undo()
                continue
            self.made = made[:count]
            if not self._changes(fixed) and not self._kept(doubted):
                return made[count:]
            undo()

    def stand_ins(self) -> list[TracedArray]:
        """Arrays of the current scope for the carried values."""
        found = []
        for v, k, x in zip(self.own, self.kinds, self.init, strict=False):
            array = TracedArray(self.b, v, k) if isinstance(k, type) else TracedArray(self.b, v)
            found.append(array.as_element() if x.element or x.weak else array)
        return found

    def while_node(self, test: Callable, condition: Callable[[list[TracedArray]], TracedArray]) -> list[TracedArray]:
        """The values after the loop, which goes on while `condition` of the carried values holds."""
        scope = self._scope(function_name(test, "the condition"))
        with self.b.inside(scope):
            flag = condition(self.stand_ins())
        slots = self.slots()
        results = give(self.b, self.scope, self.made, slots)
        flags = give(self.b, scope, [flag], [Slot(bool, (), ())])
        init = self._start()
        captures = captured(self.b, [(scope, self.own, flags), (self.scope, self.own, results)])
        tested = add_region(self.b, test, "test", scope, self.own, flags, packed=False)
        body = add_region(self.b, self.body, "body", self.scope, self.own, results, packed=True)
        return after(self.b, While(tested, body, captures, init), slots, packed=True)

    def scan_node(self, xs: list[TracedArray], ys: list[TracedArray], length: Dim, reverse: bool) -> list[TracedArray]:
        """The values after the scan: the carried ones, then the stacked results."""
        slots = [*self.slots(), *(Slot(numpy_kind((kind(y),)), y.type.shape, ()) for y in ys)]
        results = give(self.b, self.scope, [*self.made, *ys], slots)
        init = self._start()
        captures = captured(self.b, [(self.scope, self.own, results)])
        body = add_region(self.b, self.body, "body", self.scope, self.own, results, packed=True)
        stacked = [*slots[: len(init)], *(Slot(s.kind, (length, *s.shape), ()) for s in slots[len(init) :])]
        scan = Scan(body, captures, init, tuple(x.atom for x in xs), length, reverse)
        return after(self.b, scan, stacked, packed=True)

    def check_stackable(self, ys: list[TracedArray], paths: list[str]) -> None:
        """Raises ShapeError for a result whose size may be another one in each round."""
        for y, path in zip(ys, paths, strict=True):
            for d in y.type.shape:
                if isinstance(d, DimExpr) and names(d) & self.scope.sizes:
                    raise ShapeError(f"scan: {path} is {y.type}, and {d} may be another size in each round", STACK)

    def slots(self) -> list[Slot]:
        """The carried values as they are after the loop."""
        return [
            Slot(
                k,
                tuple(None if (i, axis) in self.sizes else d for axis, d in enumerate(self.b.type_of(atom).shape)),
                tuple(self.sizes.get((i, axis)) for axis in range(len(atom.type.shape))),
            )
            for i, (atom, k) in enumerate(zip(self.atoms, self.kinds, strict=True))
        ]

    def _scope(self, name: str) -> Scope:
        scope = Scope(name, self.b.scope, open=False)
        scope.sizes.update(str(d) for d in self.sizes.values())
        return scope

    def _variables(self, slices: Sequence[TracedArray]) -> tuple[Var, ...]:
        types = [
            Tensor(dtype_of(s.kind), tuple(self.sizes.get((i, axis), d) for axis, d in enumerate(s.shape)))
            for i, s in enumerate(self.slots())
        ]
        types += [Tensor(x.type.dtype, x.type.shape[1:]) for x in slices]
        return tuple(Var(self.b.unique(identifier(n)), t) for n, t in zip(self.inside, types, strict=True))

    def _slice(self, var: Var) -> TracedArray:
        return value_of(self.b, var, var.type.numpy_dtype)

    def _start(self) -> tuple:
        starts = zip(self.atoms, self.init, self.kinds, strict=True)
        return tuple(as_dtype(TracedArray(self.b, a, x.weak), dtype_of(k)).atom for a, x, k in starts)

    def _changes(self, fixed: bool) -> bool:
        """Does any carried value have another type after a round?  Then the types are those of the next attempt."""
        changed, loose = False, {}
        for i, (x, atom) in enumerate(zip(self.made, self.atoms, strict=True)):
            start, made = (self.kinds[i], self.own[i].type), (kind(x), x.type)
            if x.ndim != len(atom.type.shape):
                raise other_rank(self.what, self.paths[i], start, made, self.body_name)
            new = settled(self.kinds[i], kind(x))
            if new is None:
                raise other_dtype(self.what, self.paths[i], start, made, self.body_name)
            changed |= isinstance(new, type) != isinstance(self.kinds[i], type) or new != self.kinds[i]
            self.kinds[i] = new
            for axis, (d, e) in enumerate(zip(self.b.type_of(atom).shape, x.type.shape, strict=True)):
                if (i, axis) in self.sizes:
                    loose[i, axis] = self.sizes[i, axis], e
                elif same_size(self.b, d, e, [self.scope]) is None:
                    if fixed:
                        made_text = type_text(*made)
                        raise misfit(self.what, self.paths[i], type_text(*start), made_text, self.body_name, ShapeError, FIXED)
                    loose[i, axis] = d, e
        return self._loosen(loose) or changed

    def _empty(self) -> dict[tuple[int, int], Dim]:
        """The axes of carried values that have no elements in this call, and whose size the body is not known to change."""
        shapes = ((i, enumerate(self.b.type_of(atom).shape)) for i, atom in enumerate(self.atoms))
        places = (((i, axis), d) for i, dims in shapes for axis, d in dims)
        return {place: d for place, d in places if place not in self.sizes and self.b.facts.hint(d) == 0}

    def _kept(self, doubted: Iterable[tuple[int, int]]) -> bool:
        """Does the body leave some of these sizes as they are?  Then they are no longer taken for ones that it changes."""
        kept = [(i, axis) for i, axis in doubted if self.made[i].type.shape[axis] == self.sizes.get((i, axis))]
        for place in kept:
            del self.sizes[place]
        return bool(kept)

    def _loosen(self, loose: dict[tuple[int, int], tuple[Dim, Dim]]) -> bool:
        """Give one size to axes that start the round with equal sizes and end it with equal sizes; is any of these new?"""
        groups: dict[tuple[Dim, Dim], Dim] = {}
        taken, before = set(), dict(self.sizes)
        for place, (d, e) in loose.items():
            key = self.b.facts.resolve(d), self.b.facts.resolve(e)
            if key not in groups:
                old = before.get(place)
                groups[key] = self._new_size() if old is None or old in taken else old
                taken.add(groups[key])
            self.sizes[place] = groups[key]
        return self.sizes != before

    def _new_size(self) -> Dim:
        with self.b.inside(self.scope):
            return self.b.inner_size()

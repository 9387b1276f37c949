"""Find places for tensors in storages: two that are alive together never overlap.

A tensor asks for bytes from one statement to another.  It gets a place in a storage that exists: all of it, or what nobody
else needs of it meanwhile, if the sizes prove that it fits; the place that leaves the least room is taken.  A storage may be
enlarged, if that adds less than a new one would: one whose bytes are a number, to the larger number; one whose bytes may be
less or more than what the tensor needs, to the ``max`` of both, so that parts of the program whose sizes cannot be compared
take turns.  One that is known to be too small is left to others.  Else the tensor gets a new storage.

Who asks first matters.  In the order of the program, equal sizes share perfectly (this colours an interval graph); from the
largest down, small tensors find room where large ones were.  Both are tried, sizes that differ by little counting as equal,
and what takes less memory is kept.  Where some sizes cannot be compared, so is one storage for all, as long as the largest
end in it: then the parts of a program between which the sizes decide add nothing to each other.

Why it is right: a place is taken only if its bytes provably lie inside the storage and apart from those of every tensor in it
whose life meets this one's; storages only ever grow at their ends.

>>> from minirelax.ir.dim import dim
>>> from minirelax.ir.knowledge import Knowledge
>>> large, small, other = (Request(name, dim(size), *life) for name, size, life in
...                        [("a", "256*n", (0, 1)), ("b", "64*n", (2, 4)), ("c", "64*n", (3, 4))])
>>> storage, = place([large, small, other], Knowledge())
>>> storage.bytes, [(r.name, storage.offsets[r.name]) for r in storage.tenants]
(256*n, [('a', 0), ('b', 0), ('c', 64*n)])
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from minirelax.ir.dim import Dim, maximum, names, value
from minirelax.ir.knowledge import Knowledge

TYPICAL = (16, 256, 4096)  # sizes at which two plans are compared
SAMPLES = ((1,), (7,), (4096,), (1, 1000), (1000, 1, 30))  # sizes at which a claim is tried before it is proven
WORTH = 0.97  # of what a new storage would take: growing by more is not worth it
ALIKE = 1.125  # a ratio of sizes below which the order of the program decides


@dataclass(frozen=True)
class Request:
    """A tensor that wants memory: its bytes, and the first and the last statement that need it.

    The bytes of a `late` one are only known on the way: it shares with others of exactly its size.
    """

    name: str
    bytes: Dim
    first: int
    last: int
    late: bool = False

    def meets(self, other: Request) -> bool:
        """Are both needed by one statement?"""
        return self.first <= other.last and other.first <= self.last


@dataclass(eq=False)
class Place:
    """One storage: its bytes are the largest of its `ends`; and where its tenants are."""

    ends: list[Dim]
    late: bool = False
    tenants: list[Request] = field(default_factory=list)
    offsets: dict[str, Dim] = field(default_factory=dict)

    @property
    def bytes(self) -> Dim:
        """How much memory that is."""
        return functools.reduce(maximum, self.ends)


@dataclass(frozen=True, order=True)
class _Offer:
    """What taking a place costs: bytes that are added, then room that is left beside it."""

    added: float
    left: float
    number: int


def place(requests: Iterable[Request], known: Knowledge) -> list[Place]:
    """Storages in which all requests have places, in the order of the program."""
    requests = list(requests)
    prover = _Prover(known)
    orders = {tuple(requests): requests}
    by_size = sorted(requests, key=lambda r: -_rank(prover.typical(r.bytes, TYPICAL[-1])))  # stable: else the program's order
    orders.setdefault(tuple(by_size), by_size)
    tried = [_Placing(prover).run(order) for order in orders.values()]
    if not prover.can_order(r.bytes for r in requests if not r.late):
        tried += [_Placing(prover, True).run(order) for order in orders.values()]
    best = min(tried, key=lambda places: sum(math.log(max(1, prover.total(places, n))) for n in TYPICAL))
    for p in best:
        p.tenants.sort(key=lambda r: (r.first, r.last))
    return sorted(best, key=lambda p: p.tenants[0].first)


def _rank(size: float) -> int:
    return math.floor(math.log(max(1.0, size), ALIKE) + 0.5)


class _Prover:
    """Questions about sizes, each asked once."""

    def __init__(self, known: Knowledge):
        self.known = known
        self.samples: dict[frozenset[str], list[dict[str, int]]] = {}
        self.typical = functools.cache(self._typical)
        self.less_equal = functools.cache(self._less_equal)  # the same few sizes meet again and again

    def _less_equal(self, a: Dim, b: Dim) -> bool:
        d = b - a
        return d >= 0 if isinstance(d, int) else not self._is_refuted(d) and self.known.is_nonnegative(d)

    def _is_refuted(self, d: Dim) -> bool:
        """Is it negative at a few sizes that there can be?  Most of what does not hold is found so, and quickly."""
        used = names(d)
        if used not in self.samples:
            orders = [sorted(used), sorted(used, reverse=True)]
            points = [dict(zip(order, itertools.cycle(numbers), strict=False)) for order in orders for numbers in SAMPLES]
            self.samples[used] = [p for p in points if self._is_possible(p)]
        return any(value(d, p) < 0 for p in self.samples[used])

    def _is_possible(self, sizes: dict[str, int]) -> bool:
        try:
            return self.known.admits(sizes)
        except KeyError:  # there is a fact about another size, too
            return False

    def can_order(self, sizes: Iterable[Dim]) -> bool:
        """Is of any two one known to be the smaller?"""
        found = sorted(dict.fromkeys(sizes), key=lambda d: self.typical(d, TYPICAL[-1]))
        return all(self.less_equal(a, b) for a, b in itertools.pairwise(found))

    def apart(self, start: Dim, end: Dim, other: tuple[Dim, Dim]) -> bool:
        return self.less_equal(end, other[0]) or self.less_equal(other[1], start)

    def _typical(self, d: Dim, n: int) -> float:
        ends = {name: (self.known.lower.get(name, 0), self.known.upper.get(name, n)) for name in names(d)}
        return float(value(d, {name: max(low, min(n, high)) for name, (low, high) in ends.items()}))

    def added(self, ends: list[Dim], end: Dim, n: int) -> float:
        """The bytes by which a storage grows."""
        return max(0.0, self.typical(end, n) - max(self.typical(e, n) for e in ends))

    def total(self, places: Iterable[Place], n: int) -> float:
        return sum(max(self.typical(e, n) for e in p.ends) for p in places)


class _Placing:
    """Requests in one order, each given the best place there is by then."""

    def __init__(self, prover: _Prover, as_one: bool = False):
        self.prover, self.as_one = prover, as_one
        self.places: list[Place] = []

    def run(self, requests: Iterable[Request]) -> list[Place]:
        for r in requests:
            self._put(r)
        return self.places

    def _put(self, r: Request) -> None:
        found = min(self._offers(r), key=lambda pair: pair[0], default=None)
        if found is None:
            self.places.append(Place([r.bytes], r.late))
            where, offset = self.places[-1], 0
        else:
            where, offset = self.places[found[0].number], found[1]
            self._extend(where, offset + r.bytes)
        where.tenants.append(r)
        where.offsets[r.name] = offset

    def _extend(self, p: Place, end: Dim) -> None:
        if not self._reaches(p, end):
            p.ends = [*(e for e in p.ends if not self.prover.less_equal(e, end)), end]

    def _reaches(self, p: Place, end: Dim) -> bool:
        return any(self.prover.less_equal(end, e) for e in p.ends)

    def _offers(self, r: Request) -> Iterator[tuple[_Offer, Dim]]:
        for number, p in enumerate(self.places):
            taken = [(p.offsets[t.name], p.offsets[t.name] + t.bytes) for t in p.tenants if t.meets(r)]
            if r.late or p.late:
                if r.late and p.late and not taken and p.ends == [r.bytes]:
                    yield _Offer(0, 0, number), 0
                continue
            for offset in dict.fromkeys((0, *(end for _, end in taken))):
                if offer := self._offer(r, number, p, taken, offset):
                    yield offer, offset

    def _offer(self, r: Request, number: int, p: Place, taken: list[tuple[Dim, Dim]], offset: Dim) -> _Offer | None:
        prover, end, most = self.prover, offset + r.bytes, TYPICAL[-1]
        if not all(prover.apart(offset, end, other) for other in taken):
            return None
        added = 0.0
        if not self._reaches(p, end):
            if not self._may_grow(p, end, bool(taken)):
                return None
            added = sum(prover.added(p.ends, end, n) / max(1.0, prover.typical(r.bytes, n)) for n in TYPICAL)
            if added > WORTH * len(TYPICAL) and not self.as_one:
                return None
        after = [prover.typical(start, most) for start, _ in taken if prover.less_equal(end, start)]
        room = max(prover.typical(e, most) for e in p.ends)
        return _Offer(added, max(0.0, min((room, *after)) - prover.typical(end, most)), number)

    def _may_grow(self, p: Place, end: Dim, is_used: bool) -> bool:
        """Numbers may; of expressions, those that are not known to be smaller than all that is wanted."""
        if isinstance(end, int) and all(isinstance(e, int) for e in p.ends):
            return True
        return is_used or self.as_one or not all(self.prover.less_equal(e, end) for e in p.ends)

"""Find places for tensors in storages: two that are alive together never overlap.

A tensor asks for bytes from one statement to another.  It gets a place in a storage that exists: all of it, or what nobody
else needs of it meanwhile, if the sizes prove that it fits; the place that leaves the least room is taken.  A storage may be
enlarged, if that adds less than a new one would: one whose bytes are a number, to the larger number; one whose bytes may be
less or more than what the tensor needs, to the ``max`` of both, so that parts of the program whose sizes cannot be compared
take turns.  One that is known to be too small is left to others.  Else the tensor gets a new storage.

Who asks first matters.  In the order of the program, equal sizes share perfectly (this colours an interval graph); from the
largest down, small tensors find room where large ones were.  Both are tried, sizes that differ by little counting as equal,
and what takes less memory is kept.

Where some sizes cannot be compared, that wastes: what is largest depends on the call.  Then there is one storage, or a few of
which each has its own tensors, in which a tensor begins where the highest of those ends that `stack_tensors` puts below it.  Its
offset is the ``max`` of their ends, without those that are known to be no higher than another.  So the parts of a program
between which the sizes decide add nothing to each other.  Numbers of bytes are stacked, too, if that takes less.

Why it is right: a place is taken only if its bytes provably lie inside the storage and apart from those of every tensor in it
whose life meets this one's; storages only ever grow at their ends.  In a stack, of two whose lives meet one begins at a ``max``
of which the end of the other, or one that is higher, is a part.

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

from minirelax.ir.dim import Dim, dim, maximum, names, value
from minirelax.ir.knowledge import Knowledge
from minirelax.passes.stack_tensors import Level, stack_tensors

TYPICAL = (16, 256, 4096)  # sizes at which two plans are compared
EQUAL = (16, 1, 256, 2048)  # sizes at which stacks are compared: the same for all names,
APART = ((1, 256), (1, 1024), (16, 256), (1, 64), (8, 64))  # and for one name the second, for all others the first
ROUNDS = 4  # of reading an expression again, until it is as it was
POINTS, LARGEST = 40, 1 << 20  # at most so many
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


@functools.lru_cache(4096)
def largest(ends: tuple[Dim, ...]) -> Dim:
    """The ``max`` of some ends, as its own words are read again: beside other atoms, more of it may then be joined."""
    found = functools.reduce(maximum, ends)
    for _ in range(ROUNDS):
        if (again := dim(str(found))) == found:
            break
        found = again
    return found


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
        return largest(tuple(self.ends))


@dataclass(frozen=True, order=True)
class _Offer:
    """What taking a place costs: bytes that are added, then room that is left beside it."""

    added: float
    left: float
    number: int


def place(requests: Iterable[Request], known: Knowledge) -> list[Place]:
    """Storages in which all requests have places, in the order of the program."""
    requests = list(requests)
    prover = _Prover(known, frozenset().union(*(names(r.bytes) for r in requests)))
    early = [r for r in requests if not r.late]
    if prover.can_order(r.bytes for r in early):
        found = _shared(requests, prover)
        if early and all(isinstance(r.bytes, int) for r in early):
            late = [p for p in found if p.late]
            found = prover.smallest([found, late + _stacked(early, prover)])
    else:
        found = _Placing(prover).run(r for r in requests if r.late) + _stacked(early, prover)
    for p in found:
        p.tenants.sort(key=lambda r: (r.first, r.last))
    return sorted(found, key=lambda p: p.tenants[0].first)


def _shared(requests: list[Request], prover: _Prover) -> list[Place]:
    """Storages that tensors take one after the other, in the better one of two orders."""
    orders = {tuple(requests): requests}
    by_size = sorted(requests, key=lambda r: -_rank(prover.typical(r.bytes, TYPICAL[-1])))  # stable: else the program's order
    orders.setdefault(tuple(by_size), by_size)
    return prover.smallest([_Placing(prover).run(order) for order in orders.values()])


def _stacked(requests: list[Request], prover: _Prover) -> list[Place]:
    """One storage for each level of a stack."""
    points = prover.points(frozenset().union(*(names(r.bytes) for r in requests)))
    return [_level_place(level, requests, prover) for level in stack_tensors(requests, points)]


def _level_place(level: Level, requests: list[Request], prover: _Prover) -> Place:
    """A storage in which each tensor begins where the highest one below it ends."""
    ends: dict[int, tuple[Dim, ...]] = {}
    tenants, offsets = [], {}
    for i in level.members:
        r = requests[i]
        starts = prover.highest(frozenset(e for j in level.below[i] for e in ends[j])) or (0,)
        ends[i] = tuple(s + r.bytes for s in starts)
        tenants.append(r)
        offsets[r.name] = largest(starts)
    covered = frozenset().union(*level.below.values())
    return Place(list(prover.highest(frozenset(e for i in level.members if i not in covered for e in ends[i]))), False,
                 tenants, offsets)


def _rank(size: float) -> int:
    return math.floor(math.log(max(1.0, size), ALIKE) + 0.5)


class _Prover:
    """Questions about sizes, each asked once."""

    def __init__(self, known: Knowledge, used: frozenset[str]):
        self.known, self.names = known, used
        self.highest = functools.cache(self._highest)
        self.typical = functools.cache(self._typical)
        self.less_equal = functools.cache(self._less_equal)  # the same few sizes meet again and again

    def _less_equal(self, a: Dim, b: Dim) -> bool:
        return self._may_be(a, b) and self.known.is_nonnegative(b - a)

    def _may_be(self, a: Dim, b: Dim) -> bool:
        return self.known.may_be_less_equal(a, b, self.names)

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

    def _highest(self, ends: frozenset[Dim]) -> tuple[Dim, ...]:
        """Some ends without those that are soon found to be no larger than another."""
        kept: list[Dim] = []
        for e in sorted(ends, key=lambda e: (-self.typical(e, TYPICAL[-1]), str(e))):
            if not any(self.is_soon_less_equal(e, k) for k in kept):
                kept = [*(k for k in kept if not self.is_soon_less_equal(k, e)), e]
        return tuple(kept)

    def is_soon_less_equal(self, a: Dim, b: Dim) -> bool:
        """The same as `less_equal`, for who can do without an answer."""
        return self._may_be(a, b) and self.known.shows_at_once(b - a)

    def points(self, used: frozenset[str]) -> list[dict[str, int]]:
        """Numbers for sizes at which stacks are compared: all alike, then each one far from the others, as far as that may be."""
        rows = [dict.fromkeys(used, n) for n in EQUAL]
        rows += [dict.fromkeys(used, small) | {name: large} for name in sorted(used) for small, large in APART]
        ends = {name: (self.known.lower.get(name, 0), self.known.upper.get(name, LARGEST)) for name in used}
        found = [{name: max(ends[name][0], min(n, ends[name][1])) for name, n in row.items()} for row in rows]
        found = [row for at, row in enumerate(found) if row not in found[:at]][:POINTS]
        return [row for row in found if self._is_possible(row)] or found

    def _is_possible(self, sizes: dict[str, int]) -> bool:
        try:
            return self.known.admits(sizes)
        except KeyError:  # there is a fact about another size, too
            return False

    def smallest(self, plans: Iterable[list[Place]]) -> list[Place]:
        """The first of the plans that take the least memory, at several sizes together."""
        return min(plans, key=lambda places: sum(math.log(max(1, self.total(places, n))) for n in TYPICAL))

    def total(self, places: Iterable[Place], n: int) -> float:
        return sum(max(self.typical(e, n) for e in p.ends) for p in places)


class _Placing:
    """Requests in one order, each given the best place there is by then."""

    def __init__(self, prover: _Prover):
        self.prover = prover
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
            if added > WORTH * len(TYPICAL):
                return None
        after = [prover.typical(start, most) for start, _ in taken if prover.less_equal(end, start)]
        room = max(prover.typical(e, most) for e in p.ends)
        return _Offer(added, max(0.0, min((room, *after)) - prover.typical(end, most)), number)

    def _may_grow(self, p: Place, end: Dim, is_used: bool) -> bool:
        """Numbers may; of expressions, those that are not known to be smaller than all that is wanted."""
        if isinstance(end, int) and all(isinstance(e, int) for e in p.ends):
            return True
        return is_used or not all(self.prover.less_equal(e, end) for e in p.ends)

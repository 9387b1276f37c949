"""One storage for many tensors: of two that are alive together, one lies below the other.  Here it is decided which.

A *stack* says of each two tensors that are needed by one statement which of them is lower.  A tensor then begins where the
highest of those below it ends.  No two overlap, whatever the sizes are, because nothing else was used: a stack may be chosen
by numbers, and `place_tensors` writes its offsets as expressions.

It is chosen at a few *points*, numbers for all sizes, small and large ones and such in which one size is far from the others.
In some order, each tensor goes where it makes the storage least higher than the largest live set, which no plan can go below,
and then as near as it can to an end: to the bottom or onto one of those there already, to the top or below one of those there;
and past whatever it would meet there at some point.  So what lives long leaves room in the middle, and values that hand over to
each other, as from layer to layer, take turns at the two ends.  (Some programs are better off with all at the bottom: both is
tried.)  What the order should be depends on the program.  A few are tried: by the length of life, by size, by both, and as the
program has it.  If none is good, the best is repaired: a statement is looked for above which the storage is too high, and a few
of the tensors that are alive near it change their places in the order, alone or with their likes, of the same bytes, life and
companions.  What is no better is dropped, as soon as that is known; after a dozen in vain, another order is begun with.  The
random numbers are the same in each process, and the work is limited by a number of placements.

>>> from minirelax.ir.dim import dim
>>> from minirelax.passes.place_tensors import Request
>>> asked = [Request("a", dim("64*n"), 0, 1), Request("b", dim("64*m"), 1, 2), Request("c", dim("64*n + 64"), 2, 3)]
>>> stack_tensors(asked, [{"n": 1, "m": 100}, {"n": 100, "m": 1}])
[Level(members=(0, 2), below={0: (), 2: ()}), Level(members=(1,), below={1: ()})]
"""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from minirelax.ir.dim import Dim, value
from minirelax.ir.types import LINE

if TYPE_CHECKING:
    from minirelax.passes.place_tensors import Request

LARGE = 2.0**40  # no tensor counts as larger, so that sums are exact
GOOD = 1.005  # of the largest live set: better is not looked for
POWER = 8  # of the ratio to the largest live set: what is worst at a few points counts most
EACH = 0.02  # what a statement counts, where the worst one counts 1: repairing one of several places must show
PLACEMENTS, PER_TENSOR = 2000, 4  # how many placements a search may take: so many, and so many for each tensor
SEED = 1  # of the random numbers
PATIENCE = 12  # repairs in vain, after which another order is begun with
NEAR = 3  # statements from one
ALIKE = 1.125  # a ratio below which the order of the program decides
MANY = 32  # tensors in the way, above which equal ones are counted once


@dataclass(frozen=True)
class Level:
    """Part of a stack in which each tensor lies above all those of the part before: positions, from the bottom, and for each
    those right below it among `members`."""

    members: tuple[int, ...]
    below: Mapping[int, tuple[int, ...]]


def stack_tensors(requests: Sequence[Request], points: Sequence[Mapping[str, int]]) -> list[Level]:
    """Who lies below whom, in parts that lie one upon the other."""
    program = _Program(requests, points)
    found = _Search(program).run()
    return [Level(part, _right_below(part, program, found.start, found.end)) for part in _parts(found.start, found.end)]


class _Program:
    """The requests as numbers: arrays of (request, point)."""

    def __init__(self, requests: Sequence[Request], points: Sequence[Mapping[str, int]]):
        self.first, self.last = [r.first for r in requests], [r.last for r in requests]

        @functools.cache
        def numbers(d: Dim) -> list[float]:
            return [min(max(LINE, value(d, p)), LARGE) for p in points]

        self.bytes = np.array([numbers(r.bytes) for r in requests])
        alive = np.zeros((max(self.last) + 1, len(points)))
        for i in range(len(requests)):
            alive[self.first[i]:self.last[i] + 1] += self.bytes[i]
        self.least = alive.max(axis=0)
        self.near = self._near()
        self.likes = self._likes(requests)

    def _near(self) -> list[np.ndarray]:
        """For each request, those that it meets."""
        found: list[list[int]] = [[] for _ in self.first]
        alive: list[int] = []
        for i in sorted(range(len(self.first)), key=lambda i: self.first[i]):
            alive = [j for j in alive if self.last[j] >= self.first[i]]
            for j in alive:
                found[i].append(j)
                found[j].append(i)
            alive.append(i)
        return [np.array(sorted(near), dtype=np.intp) for near in found]

    def _likes(self, requests: Sequence[Request]) -> np.ndarray:
        """A number for each request, the same for those of equal bytes, length of life, and bytes of who comes meanwhile."""
        kinds: dict[Hashable, int] = {}
        bytes_of: dict[Dim, int] = {}
        kind = [bytes_of.setdefault(r.bytes, len(bytes_of)) for r in requests]
        keys = [(kind[i], r.last - r.first, tuple(sorted(kind[j] for j in self.near[i] if r.first <= self.first[j])))
                for i, r in enumerate(requests)]
        return np.array([kinds.setdefault(key, len(kinds)) for key in keys])


@dataclass(frozen=True, eq=False)
class _Stack:
    """Where each tensor starts and ends at each point, by which keys the order was sorted, and how high that is."""

    keys: np.ndarray
    both: bool
    order: np.ndarray
    start: np.ndarray
    end: np.ndarray
    height: np.ndarray  # of each statement: where the highest tensor ends that it needs
    score: float


class _Search:
    """The best stack so far, and the one that is being repaired."""

    def __init__(self, program: _Program):
        self.program, self.count = program, len(program.first)
        self.left = PLACEMENTS + PER_TENSOR * self.count
        self.random = random.Random(SEED)
        self.best: _Stack | None = None
        self.here: _Stack | None = None

    def run(self) -> _Stack:
        p = self.program
        share, life = (p.bytes / p.least).max(axis=1), 1.0 + np.array(p.last) - np.array(p.first)
        weight = life * np.sqrt(share)
        orders = [-np.floor(np.log(w) / np.log(ALIKE) + 0.5) for w in (life, weight, share, p.bytes[:, 0])]
        for keys, both in itertools.product([*orders, np.arange(self.count)], (True, False)):
            if not self.best or self.best.score > GOOD**POWER:
                self.offer(keys, both)
        in_vain = 0
        while self.left > 0 and self.best.score > GOOD**POWER:
            if in_vain == PATIENCE:
                self.here, in_vain = None, 0
            if self.here:
                is_better = self.offer(self._repaired(), self.here.both)
            else:
                is_better = self.offer(self._varied(weight), self.random.random() < 0.5)
            in_vain = 0 if is_better else in_vain + 1
        return self.best

    def offer(self, keys: np.ndarray, both: bool) -> bool:
        """Is this order better than the one that is being repaired?  Then it is the next to be."""
        found = self._placed(keys, both, self.here.score if self.here else np.inf)
        if found:
            self.here = found
            if not self.best or found.score < self.best.score:
                self.best = found
        return found is not None

    def _varied(self, weights: np.ndarray) -> np.ndarray:
        """From the largest weight down, but for a random factor for each kind."""
        factors = np.array([2 ** self.random.uniform(-2, 2) for _ in range(self.count)])
        return -weights * factors[self.program.likes]

    def _repaired(self) -> np.ndarray:
        """The order, but for a few tensors that are alive near a statement at which the stack is too high."""
        p, limit = self.program, GOOD * self.program.least
        points = np.flatnonzero(self.here.height.max(axis=0) > limit)
        point = self.random.choice(points if len(points) else range(len(limit)))
        high = np.flatnonzero(self.here.height[:, point] > limit[point])
        at = self.random.choice(high if len(high) else range(len(self.here.height)))
        near = [i for i in range(self.count) if p.first[i] <= at + NEAR and at - NEAR <= p.last[i]]
        keys = np.unique(self.here.keys, return_inverse=True)[1].astype(float).reshape(-1)
        for _ in range(self.random.choice((1, 1, 2, 3))) if near else ():
            one, key = self.random.choice(near), self.random.uniform(-1, keys.max() + 1)
            keys[p.likes == p.likes[one] if self.random.random() < 0.5 else one] = key
        return keys

    def _placed(self, keys: np.ndarray, both: bool, limit: float) -> _Stack | None:
        """All tensors, placed in the order of these numbers; None as soon as the score is not below the limit."""
        p, inverse = self.program, 1 / self.program.least
        start, end = np.zeros_like(p.bytes), np.zeros_like(p.bytes)
        done, top, order = np.zeros(self.count, dtype=bool), p.least, np.argsort(keys, kind="stable")
        same = order[:_common(order, self.here.order) if self.here and self.here.both == both else 0]
        if len(same):  # up to where the orders part, nothing is different
            start[same], end[same], done[same] = self.here.start[same], self.here.end[same], True
            top = np.maximum(top, end.max(axis=0))
        for i in order[len(same):]:
            self.left -= 1
            near = p.near[i][done[p.near[i]]]
            if len(near):
                places = _lowest(start[near], end[near], p.bytes[i])
                deep = places
                if both:  # the same seen from above
                    hung = top - p.bytes[i] - _lowest(top - end[near], top - start[near], p.bytes[i])
                    places = np.concatenate([places, hung[(hung >= 0).all(axis=1)]])
                    deep = np.minimum(places, np.maximum(0, top - p.bytes[i] - places))
                higher = np.maximum(0, places + p.bytes[i] - top)
                start[i] = places[((higher * 1000 + deep) @ inverse).argmin()]
            end[i] = start[i] + p.bytes[i]
            done[i] = True
            if (end[i] > top).any():
                top = np.maximum(top, end[i])
                if self._worst(top) >= limit:
                    return None
        height = self._height(end)
        score = self._worst(top) + EACH * sum(self._worst(np.maximum(height, p.least)) - 1)
        return _Stack(keys, both, order, start, end, height, score) if score < limit else None

    def _worst(self, top: np.ndarray) -> float | np.ndarray:
        return ((top / self.program.least) ** POWER).mean(axis=-1)

    def _height(self, end: np.ndarray) -> np.ndarray:
        """Where the highest tensor ends that a statement needs, for each statement and point."""
        p = self.program
        height = np.zeros((max(p.last) + 1, end.shape[1]))
        for i in range(self.count):
            np.maximum(height[p.first[i]:p.last[i] + 1], end[i], out=height[p.first[i]:p.last[i] + 1])
        return height


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """How many numbers at the beginning are the same."""
    differ = np.flatnonzero(a != b)
    return int(differ[0]) if len(differ) else len(a)


def _lowest(start: np.ndarray, end: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Where a tensor of this size may start: at the bottom, or above one of those there, and above all that it would meet so."""
    if len(start) > MANY:
        both = np.unique(np.concatenate([start, end], axis=1), axis=0)
        start, end = both[:, :start.shape[1]], both[:, start.shape[1]:]
    places = np.concatenate([np.zeros((1, len(size))), end])
    while True:
        in_way = ((places + size)[:, None] > start).any(axis=-1) & (end > places[:, None]).any(axis=-1)
        if not in_way.any():
            return places
        places = np.maximum(places, np.where(in_way[:, :, None], end, 0).max(axis=1))


def _parts(start: np.ndarray, end: np.ndarray) -> list[tuple[int, ...]]:
    """Positions from the bottom up, cut wherever nothing reaches across at any point."""
    order = np.lexsort((end[:, 0], start[:, 0]))
    reached = np.maximum.accumulate(end[order], axis=0)
    begun = np.minimum.accumulate(start[order][::-1], axis=0)[::-1]
    cuts = 1 + np.flatnonzero((reached[:-1] <= begun[1:]).all(axis=1))
    return [tuple(part.tolist()) for part in np.split(order, cuts)]


def _right_below(part: tuple[int, ...], program: _Program, start: np.ndarray, end: np.ndarray) -> dict[int, tuple[int, ...]]:
    """For each of a part those below it, without those below one of these."""
    members, every, found = set(part), {}, {}
    for i in part:
        near = program.near[i]
        every[i] = [j for j in near[(end[near] <= start[i]).all(axis=1)].tolist() if j in members]
        lower = set().union(*(every[j] for j in every[i]))
        found[i] = tuple(j for j in every[i] if j not in lower)
    return found

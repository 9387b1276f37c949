"""What can be shown about the sign of a size: a search for a lower bound that is plainly not negative.

>>> from minirelax.ir.polynomial import symbol
>>> is_nonnegative(4 * ((symbol("n") + 3) // 4) - symbol("n")), is_nonnegative(symbol("n") - 1)
(True, False)
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from math import gcd

from minirelax.ir.polynomial import Atom, Dim, DimExpr, Factor, Monomial, linear, names, normal, terms, value, without

Ranges = Mapping[str, "tuple[Dim, Dim | None]"]   # name -> (smallest, largest) value, both inclusive; None: no largest is known
Facts = tuple[Dim, ...]                           # sizes that are known to be >= 0


def is_nonnegative(d: Dim, ranges: Ranges | None = None, facts: Facts = ()) -> bool:
    """Can ``d >= 0`` be shown, for all named sizes >= 0, all names in `ranges` within theirs, and `facts` >= 0?

    False means unknown.

    >>> from minirelax.ir.dim import dim
    >>> is_nonnegative(dim("n - 1 - i"), {"i": (0, dim("n - 1"))})
    True
    >>> is_nonnegative(dim("9*n - 3"), facts=(dim("2*n - m"), dim("m - 1")))
    True
    """
    if isinstance(d, int):
        return d >= 0
    size = gcd(*(k for _, k in d.terms))
    d = d if size == 1 else DimExpr(tuple((mono, k // size) for mono, k in d.terms))
    return _decide_nonnegative(d, ranges or {}, facts) if ranges or facts else _is_always_nonnegative(d)


def less_equal(a: Dim, b: Dim, ranges: Ranges | None = None) -> bool:
    """Can ``a <= b`` be shown?"""
    return is_nonnegative(b - a, ranges)


PROOF_STEPS = 150            # how many bounds one proof may try: the answer "unknown" must come soon, too


SAMPLES = ((1, 1), (1000, 7), (0, 0), (1, 1000), (1000, 0), (0, 1000))     # numbers for sizes without a range, in turn


@functools.lru_cache(16384)
def _is_always_nonnegative(d: DimExpr) -> bool:
    return _decide_nonnegative(d, {}, ())


def _decide_nonnegative(d: DimExpr, ranges: Ranges, facts: Facts) -> bool:
    """A search for a proof is slow to give up: a counterexample among a few numbers saves most of the searches in vain."""
    steps = [PROOF_STEPS]
    return _is_plainly_nonnegative(d, ranges, steps) or (
        not _has_counterexample(d, ranges, facts) and _is_nonnegative(d, ranges, steps, facts))


def _has_counterexample(d: DimExpr, ranges: Ranges, facts: Facts) -> bool:
    for free in SAMPLES:
        for end in (0, 1):
            sizes = _Sample(ranges, free, end)
            try:
                if value(d, sizes) < 0 and all(value(f, sizes) >= 0 for f in facts) and not sizes.empty:
                    return True
            except (ZeroDivisionError, RecursionError):
                continue
    return False


class _Sample(dict):
    """Numbers for names, made when asked for: an end of a name's range, or one of two numbers in turn."""

    def __init__(self, ranges: Ranges, free: tuple[int, int], end: int):
        super().__init__()
        self.ranges, self.free, self.end, self.empty = ranges, free, end, False

    def __missing__(self, name: str) -> int:
        if name not in self.ranges:
            number = self.free[len(self) % 2]
        else:
            low, high = self.ranges[name]
            low = value(low, self)
            high = low + self.free[0] if high is None else value(high, self)
            self.empty |= low > high
            number = (low, high)[self.end]
        self[name] = number
        return number


def _is_nonnegative(d: Dim, ranges: Ranges, steps: list[int], facts: Facts = ()) -> bool:
    """Search for a lower bound of `d` in which every coefficient and every factor is >= 0, replacing one factor at a time."""
    if isinstance(d, int):
        return d >= 0
    seen, queue = {d}, [d]
    for bound in queue:                                              # grows while it is walked: breadth first
        if _is_plainly_nonnegative(bound, ranges, steps):
            return True
        for sides in itertools.chain(_lower_bounds(bound, ranges, steps), _less_a_fact(bound, ranges, steps, facts)):
            steps[0] -= 1
            if steps[0] < 0:
                return False
            if len(sides) > 1 and all(_is_nonnegative(s, ranges, steps, facts) for s in sides):
                return True
            if len(sides) == 1 and sides[0] not in seen:
                seen.add(sides[0])
                queue.append(sides[0])
    return False


def _is_plainly_nonnegative(d: Dim, ranges: Ranges, steps: list[int]) -> bool:
    return all(k >= 0 for _, k in terms(d)) and all(_factor_is_nonnegative(f, ranges, steps) for m, _ in terms(d) for f in m)


def _lower_bounds(d: Dim, ranges: Ranges, steps: list[int]) -> Iterator[tuple[Dim, ...]]:
    """Expressions that are >= 0 only if `d` is (up to a positive factor); of two, only if both are."""
    for mono, k in terms(d):
        for i, f in enumerate(mono):
            others = mono[:i] + mono[i + 1:]
            if (isinstance(f, str) and f not in ranges) or not all(_factor_is_nonnegative(o, ranges, steps) for o in others):
                continue
            other_terms, rest = d - normal({mono: k}), normal({others: k})
            if isinstance(f, str):
                end = ranges[f][0 if k > 0 else 1]
                if end is not None:                                 # a lower bound alone says nothing about how large it gets
                    yield (other_terms + end * rest,)
            elif f.op in ("min", "max"):
                sides = other_terms + f.left * rest, other_terms + f.right * rest
                yield from [sides] if (f.op == "min") == (k > 0) else [sides[:1], sides[1:]]
            else:
                yield from _division_bounds(f, others, k, other_terms, ranges, steps)


def _less_a_fact(d: Dim, ranges: Ranges, steps: list[int], facts: Facts) -> Iterator[tuple[Dim, ...]]:
    """``s*d - q*f`` with ``s, q >= 0``, for each fact ``f >= 0`` and each negative term of `d` that vanishes so.

    Products of more factors than `d` or a fact has are not looked at: they would only grow.
    """
    degree = max(len(mono) for side in (d, *facts) for mono, _ in terms(side)) if facts else 0
    for f in facts:
        for mono, k in terms(d):
            for m, c in terms(f):
                left = without(mono, m) if k < 0 and c < 0 and (m or not mono) else None
                if left is None or len(left) + max(len(other) for other, _ in terms(f)) > degree:
                    continue
                if all(_factor_is_nonnegative(o, ranges, steps) for o in left):
                    g = gcd(k, c)
                    yield (d * (-c // g) - f * normal({left: -k // g}),)


def _division_bounds(
        f: Atom, others: Monomial, k: int, other_terms: Dim, ranges: Ranges, steps: list[int]) -> Iterator[tuple[Dim, ...]]:
    """Bounds of ``other_terms + k*others*f`` for a quotient or remainder `f`; a divisor that has a value is not 0."""
    if not _is_nonnegative(f.right, ranges, steps):
        return
    rest = normal({others: k})
    if f.op == "//" and not others and abs(k) == 1:                 # x//c >= y is x >= c*y, and x//c <= y is x < c*(y + 1)
        yield (f.left + f.right * other_terms if k > 0 else f.right * other_terms + f.right - 1 - f.left,)
    if k < 0 and f.op == "%":
        yield (other_terms + (f.right - 1) * rest,)
    if k < 0 and _is_nonnegative(f.left, ranges, steps):
        yield (other_terms + f.left * rest,)
    if f.op == "//" and len(terms(f.right)) == 1:                   # x - c + 1 <= c*(x//c) <= x
        (mono, c), = terms(f.right)
        if (left := without(others, mono)) is not None:
            scale = c // gcd(k, c)
            bound = f.left if k < 0 else f.left - f.right + 1
            yield (other_terms * scale + bound * normal({left: k * scale // c}),)
    if f.op == "//":
        yield from ((other_terms + quotient * rest,) for quotient in _extreme_quotients(f, k < 0, ranges))


def _extreme_quotients(f: Atom, largest: bool, ranges: Ranges) -> Iterator[Dim]:
    """The quotient with one name at the end of its range: quotients grow with what is divided (the divisor is positive)."""
    from minirelax.ir.division import floordiv

    for name in sorted((names(f.left) - names(f.right)) & ranges.keys()):
        parts = linear(f.left, (name,))
        factor = parts[0].get(name) if parts else None
        end = ranges[name][largest == (factor > 0)] if isinstance(factor, int) else None
        if end is not None:
            yield floordiv(parts[1] + factor * end, f.right)


def _factor_is_nonnegative(f: Factor, ranges: Ranges, steps: list[int]) -> bool:
    if isinstance(f, str):
        return f not in ranges or _is_nonnegative(ranges[f][0], ranges, steps)
    right = _is_nonnegative(f.right, ranges, steps)
    if f.op == "%" or right == (f.op == "max"):
        return right
    return _is_nonnegative(f.left, ranges, steps)

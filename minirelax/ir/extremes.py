"""The laws of ``min`` and ``max`` on sizes.

>>> from minirelax.ir.polynomial import symbol
>>> n, m = symbol("n"), symbol("m")
>>> minimum(n, n + 1), minimum(4 * n + 4, 4 * m + 4), maximum(minimum(n, 8), minimum(n, 9))
(n, 4*min(m, n) + 4, min(n, 9))
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from math import gcd

from minirelax.ir.bounds import Ranges, is_nonnegative, less_equal
from minirelax.ir.polynomial import Atom, Dim, Monomial, apply, atom, normal, order, terms, without

OPPOSITE = {"min": "max", "max": "min"}
LessEqual = Callable[[Dim, Dim], bool]


def minimum(a: Dim, b: Dim, ranges: Ranges | None = None) -> Dim:
    """The smaller of the two; one of them if that can be shown."""
    return extreme("min", a, b, ranges)


def maximum(a: Dim, b: Dim, ranges: Ranges | None = None) -> Dim:
    """The larger of the two; one of them if that can be shown."""
    return extreme("max", a, b, ranges)


def extreme(op: str, a: Dim, b: Dim, ranges: Ranges | None = None) -> Dim:
    """``min(a, b)`` or ``max(a, b)`` in normal form, see `joined`."""
    if isinstance(a, int) and isinstance(b, int):
        return apply(op, a, b)
    if a == b:
        return a
    return joined(op, (*parts(op, a, ranges), *parts(op, b, ranges)), ranges)


def joined(op: str, wanted: Iterable[Dim], ranges: Ranges | None = None, shown: LessEqual | None = None) -> Dim:
    """The extreme of several sizes: those that no other makes superfluous, nested in one order.

    What they share is taken out until no coefficient is negative and one of each monomial is 0, so that equal sizes meet:
    ``min(n + 1, m + 1) == min(n, m) + 1``, ``max(n - 1, 0) == max(n, 1) - 1``, ``min(4*n, 4*m) == 4*min(n, m)``.
    `shown` decides ``<=`` (default: `less_equal` under `ranges`).
    """
    shown = shown or (lambda p, q: less_equal(p, q, ranges))
    kept = _needed(wanted, shown if op == "min" else lambda p, q: shown(q, p))
    if len(kept) == 1:
        return kept[0]
    summand = _common_part(kept)
    rests = [p - summand for p in kept]
    size, factor = _common_factor(rests, ranges)
    if factor or size > 1:                            # then more may be shown
        rests = [normal({without(mono, factor): k // size for mono, k in terms(p)}) for p in rests]
        return summand + joined(op, rests, ranges, shown) * normal({factor: size})
    flat = [p for rest in rests for p in parts(op, rest, ranges)]
    if len(flat) > len(rests):                        # what was taken out was the second of two extremes in one part
        return summand + joined(op, flat, ranges, shown)
    *first, last = sorted(rests, key=_place)
    return summand + functools.reduce(lambda rest, part: atom(op, part, rest), reversed(first), last)


def parts(op: str, d: Dim, ranges: Ranges | None = None) -> tuple[Dim, ...]:
    """The sizes whose extreme `d` is, ``min(n, m) + 1`` being ``min(n + 1, m + 1)`` and ``-max(n, m)`` being ``min(-n, -m)``.

    A sum of two extremes stays whole.
    """
    found = [(mono, k, i) for mono, k in terms(d) for i, f in enumerate(mono) if isinstance(f, Atom) and f.op in OPPOSITE]
    if len(found) != 1:
        return (d,)
    (mono, k, i), = found
    others = normal({mono[:i] + mono[i + 1:]: k})
    if mono[i].op != (op if k > 0 else OPPOSITE[op]) or not is_nonnegative(others if k > 0 else -others, ranges):
        return (d,)
    rest = d - normal({mono: k})
    return (*parts(op, rest + others * mono[i].left, ranges), *parts(op, rest + others * mono[i].right, ranges))


def sides(op: str, d: Dim) -> tuple[Dim, ...]:
    """The sizes whose extreme `d` is, like `parts`, but beside other atoms, too: ``max(n, m) + min(k, 3)`` has two.

    >>> from minirelax.ir.dim import dim
    >>> sides("max", dim("max(n, m) + min(k, 3)")), sides("max", dim("n - min(m, 3)"))
    ((m + min(k, 3), n + min(k, 3)), (-m + n, n - 3))
    """
    for mono, k in terms(d):
        for i, f in enumerate(mono):
            if isinstance(f, Atom) and f.op == (op if k > 0 else OPPOSITE.get(op)):
                rest, others = d - normal({mono: k}), normal({mono[:i] + mono[i + 1:]: k})
                if is_nonnegative(others if k > 0 else -1 * others):
                    return (*sides(op, rest + others * f.left), *sides(op, rest + others * f.right))
    return (d,)


def _common_part(kept: list[Dim]) -> Dim:
    """Per monomial, the smallest coefficient."""
    numbers = [dict(terms(p)) for p in kept]
    return normal({mono: min(k.get(mono, 0) for k in numbers) for k in numbers for mono in k})


def _needed(wanted: Iterable[Dim], decides: LessEqual) -> list[Dim]:
    """The parts that no other part makes superfluous; a part that decides over all others goes first."""
    kept: list[Dim] = []
    for part in sorted(set(wanted), key=_place):
        if not any(decides(k, part) for k in kept):
            kept = [*(k for k in kept if not decides(part, k)), part]
    return kept


def _place(d: Dim) -> tuple[bool, str]:
    return isinstance(d, int), str(d)


def _common_factor(rests: list[Dim], ranges: Ranges | None) -> tuple[int, Monomial]:
    """The largest number and the largest monomial, known to be >= 0, that divide all parts."""
    every = [t for p in rests for t in terms(p)]
    factor: list = []
    for f in every[0][0]:
        if all(without(mono, (*factor, f)) is not None for mono, _ in every) and is_nonnegative(normal({(f,): 1}), ranges):
            factor.append(f)
    return gcd(*(k for _, k in every)), tuple(sorted(factor, key=order))

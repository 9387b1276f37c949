"""Proofs by cases: ``min(a, b)`` is `a` or `b`, and ``n`` leaves one of a few remainders.

A case is what is known and one fact more; a claim that is shown in every case holds.  Claims that fail for some numbers are
given up at once: the number of cases is limited, but a proof in vain would try them all.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from math import lcm
from typing import TYPE_CHECKING

from minirelax.ir.comparable import comparable
from minirelax.ir.polynomial import Atom, Dim, DimExpr, atoms, names, symbol, value

if TYPE_CHECKING:
    from minirelax.ir.knowledge import Knowledge


def hold(known: Knowledge, d: Dim, shown: Callable[[Knowledge, Dim], bool], possible: Callable[[int], bool],
         budget: int) -> bool:
    """Is a claim about `d` shown, at once or in every one of at most `budget` cases?

    `shown` decides it in a single case; `possible` says whether a number could be `d`, if the claim holds.
    """
    if isinstance(d, int):
        return possible(d)
    if not all(map(possible, _values(known, d))):
        return False
    if shown(known, d):
        return True
    found = _cases(known, comparable(d, known.rules), budget)
    return bool(found) and all(hold(case, case.simplify(rest), shown, possible, budget // len(found)) for case, rest in found)


def _values(known: Knowledge, d: Dim) -> Iterator[int]:
    """What `d` is for some numbers that are not known to be impossible."""
    for sizes in known.samples(names(d)):
        try:
            yield value(d, sizes)
        except ZeroDivisionError:
            continue


def _cases(known: Knowledge, d: Dim, budget: int) -> list[tuple[Knowledge, Dim]]:
    """Each case with `d`; none if there is nothing to distinguish, or too much."""
    inside = list(atoms(d))
    for f in inside:
        if f.op == "min" and budget >= 2:
            return [(known.assuming("<=", f.left, f.right), d), (known.assuming("<", f.right, f.left), d)]
    periods = {name: c for name, c in _periods(inside).items() if c <= budget and not _is_split(known, name, c)}
    if not periods or isinstance(d, int):
        return []
    name, period = min(periods.items(), key=lambda p: (p[1], p[0]))
    return [(case := known.with_remainder(symbol(name), period, r), comparable(d, case.rules)) for r in range(period)]


def _is_split(known: Knowledge, name: str, period: int) -> bool:
    return any(x == symbol(name) and isinstance(c, int) and c % period == 0 for x, c in known.remainders)


def _periods(inside: list[Atom]) -> dict[str, int]:
    """For each name in a polynomial that is divided by numbers: by which ones, as their least common multiple."""
    found: dict[str, int] = {}
    for f in inside:
        if f.op == "//" and isinstance(f.right, int) and f.right > 1 and isinstance(f.left, DimExpr):
            for name in {n for mono, _ in f.left.terms for n in mono if isinstance(n, str)}:
                found[name] = lcm(found.get(name, 1), f.right)
    return found

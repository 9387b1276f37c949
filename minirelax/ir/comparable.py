"""A form in which more of the equal sizes meet than in the normal form: for comparing, not for reading.

Here no ``%`` and no ``max`` is left, and an atom ``x//c`` stands for all that differ from it by a multiple of `c` inside.

>>> from minirelax.ir.dim import dim
>>> comparable(dim("n//4*4 + n % 4")), comparable(dim("min(n, m) + max(n, m)"))
(n, m + n)
>>> comparable(dim("(m - n)//4 + (n - m + 3)//4")), comparable(dim("3*n//2 - n//2"))
(0, n)
>>> comparable(dim("min(n, 512)//4 - min(n//4, 128)")), comparable(dim("n//2 + (n + 1)//2"))
(0, n)
"""
from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from minirelax.ir.division import floordiv
from minirelax.ir.extremes import OPPOSITE, joined, parts
from minirelax.ir.polynomial import Atom, Dim, DimExpr, Monomial, atom, normal, order, single, symbol, terms, without


@dataclass(frozen=True)
class Rule:
    """``number*monomial == rest``, to be used from left to right."""

    monomial: Monomial
    number: int
    rest: Dim


@functools.lru_cache(8192)
def comparable(d: Dim, rules: tuple[Rule, ...] = ()) -> Dim:
    """A size equal to `d` wherever the rules hold; equal results mean equal sizes, different ones mean nothing.

    >>> from minirelax.ir.dim import dim
    >>> comparable(dim("(n + 3)//4*4 + n//8"), rules_of([dim("n - n//4*4")]))
    4*(n//4) + n//8
    """
    if isinstance(d, int):
        return d
    total: Dim = 0
    for mono, k in d.terms:
        term: Dim = k
        for f in mono:
            factor = symbol(f) if isinstance(f, str) else _atom(f.op, comparable(f.left, rules), comparable(f.right, rules))
            term = term * factor
        total = total + term
    for rule in rules:
        total = _replaced(total, rule)
    return _whole_sums(total)


def rules_of(zeros: Iterable[Dim]) -> tuple[Rule, ...]:
    """Rules for sizes that are 0, each written in what the ones before it leave."""
    rules: list[Rule] = []
    for zero in zeros:
        left = comparable(zero, tuple(rules))
        if isinstance(left, DimExpr):
            rules.append(_rule(left))
    return tuple(rules)


def _rule(zero: DimExpr) -> Rule:
    """The rule for one term of `zero`: with factor 1 if possible, without atoms if possible, then the longest, then by name."""
    def place(term: tuple[Monomial, int]):
        mono, k = term
        return abs(k) == 1, not any(isinstance(f, Atom) for f in mono), len(mono), tuple(map(order, mono))
    mono, k = max((t for t in zero.terms if t[0]), key=place)
    rest = normal({mono: k}) - zero
    return Rule(mono, abs(k), rest if k > 0 else -1 * rest)


def _replaced(d: Dim, rule: Rule) -> Dim:
    total: Dim = 0
    for mono, k in terms(d):
        others, times = without(mono, rule.monomial), k // rule.number
        if others is None or times == 0:
            total = total + normal({mono: k})
            continue
        again = _replaced(normal({others: times}), rule) if rule.number == 1 else normal({others: times})
        total = total + again * rule.rest + normal({mono: k - times * rule.number})
    return total


def _atom(op: str, left: Dim, right: Dim) -> Dim:
    match op:
        case "//":
            return _quotient(left, right)
        case "%":                                                  # x % c == x - x//c*c
            return left - _quotient(left, right) * right
        case "min":
            return joined("min", (*parts("min", left), *parts("min", right)))
    return -1 * _atom("min", -1 * left, -1 * right)


def _quotient(x: Dim, c: Dim) -> Dim:
    """``x//c`` with the numbers in `x` reduced by `c`, and of ``x//c`` and ``-((c - 1 - x)//c)`` one.

    A quotient of a minimum is the minimum of the quotients: dividing by a number > 0 keeps the order.
    """
    if not isinstance(c, int) or c <= 0 or isinstance(x, int):
        return _settled(x, c)
    for op in OPPOSITE:
        inside = parts(op, x)
        if len(inside) > 1:
            sign = 1 if op == "min" else -1
            return sign * joined("min", [sign * _quotient(p, c) for p in inside])
    quotient, rest = _reduced(x, c)
    if _is_large(rest, c):
        more, rest = _reduced(c - 1 - rest, c)
        return quotient - more - _settled(rest, c)
    return quotient + _settled(rest, c)


def _settled(x: Dim, c: Dim) -> Dim:
    """``x//c``, made comparable again if a law of `floordiv` changed it."""
    found = floordiv(x, c)
    return found if isinstance(found, int) or found == atom("//", x, c) else comparable(found)


def _reduced(x: Dim, c: int) -> tuple[Dim, Dim]:
    """``(q, r)`` with ``x == c*q + r`` and all numbers of `r` in ``range(c)``."""
    return normal({m: k // c for m, k in terms(x)}), normal({m: k % c for m, k in terms(x)})


def _is_large(x: Dim, c: int) -> bool:
    """Is the first number of `x` that decides above ``c/2``?  ``c - 1 - x`` then has it below, so that one of them is chosen."""
    return next((2 * k > c for mono, k in terms(x) if mono and 2 * k != c), 2 * (dict(terms(x)).get((), 0)) >= c)


def _whole_sums(d: Dim) -> Dim:
    """`d` with ``x//p + (x + 1)//p + ... + (x + p - 1)//p == x`` used (Hermite), for the last summand where all are there."""
    if sum(isinstance(f, Atom) and f.op == "//" for mono, _ in terms(d) for f in mono) < 2:
        return d
    families: dict[tuple[Monomial, Dim, int], dict[int, Atom]] = defaultdict(dict)
    for mono, _ in terms(d):
        for i, f in enumerate(mono):
            if isinstance(f, Atom) and f.op == "//" and isinstance(f.right, int) and f.right > 1:
                shift = dict(terms(f.left)).get((), 0)
                families[mono[:i] + mono[i + 1:], f.left - shift, f.right][shift] = f
    for (others, x, c), members in families.items():
        for p in (p for p in range(2, min(c, len(members)) + 1) if c % p == 0):
            step = c // p
            for first in range(step):
                shifts = range(first, c, step)
                if all(s in members for s in shifts):              # they add up to (x + first)//step
                    last = single(members[shifts[-1]])
                    rest = [single(members[s]) for s in shifts[:-1]]
                    k = _coefficient(d, others, members[shifts[-1]])
                    found = sum(rest, -1 * _quotient(x + first, step)) + last
                    return comparable(d - found * normal({others: k}))
    return d


def _coefficient(d: Dim, others: Monomial, f: Atom) -> int:
    (mono, _), = terms(normal({others: 1}) * single(f))
    return dict(terms(d))[mono]


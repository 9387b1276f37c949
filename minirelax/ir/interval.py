"""Between which numbers a size lies, if its names lie between numbers: interval arithmetic (Moore, 1966).

An end that is None is unknown: a lower bound alone says nothing about how large a size gets.

>>> from minirelax.ir.dim import dim
>>> interval(dim("4*n - m//2"), {"n": (1, 8), "m": (0, 10)}), interval(dim("n % 8 + m"), {"n": (1, None)})
((-1, 32), (0, None))
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from minirelax.ir.polynomial import Atom, Dim, symbol, terms

Interval = tuple[int | None, int | None]
_Ends = tuple[int | float, int | float]          # the same with infinities
ROUNDS = 3                           # how often facts are used in turn: chains are short
NAMED: Interval = (0, None)          # what is known of any named size


def interval(d: Dim, ends: Mapping[str, Interval]) -> Interval:
    """``(low, high)``, both inclusive, that `d` does not leave; sharp only if no name occurs twice."""
    low, high = _sum(d, ends)
    return None if low == -inf else low, None if high == inf else high


def common(a: Interval, b: Interval) -> Interval:
    """Where both hold."""
    low, high = [e for e in (a[0], b[0]) if e is not None], [e for e in (a[1], b[1]) if e is not None]
    return max(low, default=None), min(high, default=None)


def tightened(ends: Mapping[str, Interval], facts: Iterable[Dim]) -> dict[str, Interval]:
    """`ends` and what `facts` (sizes >= 0) add: from ``m - n >= 0`` and ``m <= 512``, ``n <= 512``.

    >>> from minirelax.ir.dim import dim
    >>> tightened({"m": (1, 512)}, [dim("m - 2*n")])
    {'m': (1, 512), 'n': (0, 256)}
    """
    found = dict(ends)
    single = [(f, mono[0], k) for f in facts for mono, k in terms(f) if len(mono) == 1 and isinstance(mono[0], str)]
    for _ in range(ROUNDS):
        for f, name, k in single:
            most = interval(f - k * symbol(name), found)[1]           # k*name >= -most
            if most is not None:
                found[name] = common(found.get(name, NAMED), (-(most // k), None) if k > 0 else (None, most // -k))
    return found


def _sum(d: Dim, ends: Mapping[str, Interval]) -> _Ends:
    low, high = 0, 0
    for mono, k in terms(d):
        term: _Ends = (k, k)
        for f in mono:
            term = _times(term, _named(ends.get(f, NAMED)) if isinstance(f, str) else _atom(f, ends))
        low, high = low + term[0], high + term[1]
    return low, high


def _named(ends: Interval) -> _Ends:
    low, high = ends
    return -inf if low is None else low, inf if high is None else high


def _atom(f: Atom, ends: Mapping[str, Interval]) -> _Ends:
    x, y = _sum(f.left, ends), _sum(f.right, ends)
    match f.op:
        case "min":
            return min(x[0], y[0]), min(x[1], y[1])
        case "max":
            return max(x[0], y[0]), max(x[1], y[1])
    if y[0] < 0:                                                  # a negative divisor says nothing here
        return -inf, inf
    return (_quotient if f.op == "//" else _remainder)(x, (max(y[0], 1), max(y[1], 1)))


def _quotient(x: _Ends, y: _Ends) -> _Ends:
    """Numbers >= 0 get smaller by a larger divisor, others larger, but not above -1."""
    return _divided(x[0], y[0 if x[0] < 0 else 1]), _divided(x[1], y[1 if x[1] < 0 else 0])


def _divided(a: int | float, b: int | float) -> int | float:
    if a in (-inf, inf):
        return a
    return a // b if b != inf else -1 if a < 0 else 0


def _remainder(x: _Ends, y: _Ends) -> _Ends:
    if y[0] == y[1] and inf not in (-x[0], x[1]) and x[0] // y[0] == x[1] // y[0]:
        return x[0] % y[0], x[1] % y[0]
    return 0, min(y[1] - 1, x[1]) if x[0] >= 0 else y[1] - 1


def _times(x: _Ends, y: _Ends) -> _Ends:
    products = [_product(a, b) for a in x for b in y]
    return min(products), max(products)


def _product(a: int | float, b: int | float) -> int | float:
    """``a*b``; 0 times what is not bounded is 0."""
    if a == 0 or b == 0:
        return 0
    if inf in (a, b, -a, -b):
        return inf if (a > 0) == (b > 0) else -inf
    return a * b

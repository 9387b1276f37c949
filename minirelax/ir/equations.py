"""What an equation of sizes says in simpler words: that one size is at most another, or that a remainder is a number.

>>> from minirelax.ir.dim import dim
>>> decided_by(dim("n - min(n, 512)")), remainder_of(dim("n % 4 - 3")), joint_remainder(4, 3, 6, 5)
((n, 512), (n, 4, 3), (12, 11))
"""
from __future__ import annotations

from collections.abc import Callable
from math import gcd, lcm

from minirelax.ir.division import floordiv
from minirelax.ir.polynomial import Atom, Dim, DimExpr, normal, single, terms, without


def decided_by(d: Dim) -> tuple[Dim, Dim] | None:
    """``(small, large)`` such that ``d == 0`` says no more and no less than ``small <= large``: ``s - min(s, 512)``."""
    for mono, k in terms(d):
        for f in mono[:1] if len(mono) == 1 else ():
            rest = single(f) * k - d                                    # k*f == rest
            other = floordiv(rest, k) if k > 0 else floordiv(-1 * rest, -k)
            if isinstance(f, Atom) and f.op in ("min", "max") and other * k == rest and other in (f.left, f.right):
                small, large = other, f.right if other == f.left else f.left
                return (small, large) if f.op == "min" else (large, small)
    return None


def remainder_of(d: Dim) -> tuple[Dim, Dim, int] | None:
    """``(x, y, r)`` such that ``d == 0`` says ``x % y == r``."""
    match d:
        case DimExpr(terms=((((Atom(op="%", left=x, right=y),), _),))):
            return x, y, 0
        case DimExpr(terms=(((), c), ((Atom(op="%", left=x, right=y),), k))) if c % k == 0 and -c // k >= 0:
            return x, y, -c // k
    return None


def shortened(d: Dim, is_positive: Callable[[DimExpr], bool]) -> Dim:
    """What ``d >= 0`` and ``d == 0`` say as well without the factors > 0 that all terms share, the number rounded down.

    >>> from minirelax.ir.dim import dim
    >>> shortened(dim("2*n*k - 2*m*k"), lambda f: f == dim("k")), shortened(dim("2*n - 3"), lambda f: False)
    (-m + n, n - 2)
    """
    size = gcd(*(k for mono, k in terms(d) if mono))
    if size > 1:
        d = normal({mono: k // size for mono, k in terms(d)})
    for f in terms(d)[0][0] if isinstance(d, DimExpr) else ():
        if all(f in mono for mono, _ in terms(d)) and is_positive(single(f)):
            d = normal({without(mono, (f,)): k for mono, k in terms(d)})
    return d


def joint_remainder(a: int, r: int, b: int, s: int) -> tuple[int, int] | None:
    """``(c, t)`` such that ``x % a == r`` and ``x % b == s`` say ``x % c == t``, for `a`, `b` > 0 (Chinese remainder theorem).

    None if no number leaves both.
    """
    shared = gcd(a, b)
    if (s - r) % shared:
        return None
    return lcm(a, b), r + a * ((s - r) // shared * pow(a // shared, -1, b // shared) % (b // shared))

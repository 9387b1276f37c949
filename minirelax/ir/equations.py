"""What an equation of sizes says in simpler words: that one size is at most another, or that a remainder is a number.

>>> from minirelax.ir.dim import dim
>>> decided_by(dim("n - min(n, 512)")), remainder_of(dim("n % 4 - 3")), joint_remainder(4, 3, 6, 5)
((n, 512), (n, 4, 3), (12, 11))
"""
from __future__ import annotations

from math import gcd, lcm

from minirelax.ir.division import floordiv
from minirelax.ir.polynomial import Atom, Dim, DimExpr, single, terms


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


def joint_remainder(a: int, r: int, b: int, s: int) -> tuple[int, int] | None:
    """``(c, t)`` such that ``x % a == r`` and ``x % b == s`` say ``x % c == t``, for `a`, `b` > 0 (Chinese remainder theorem).

    None if no number leaves both.
    """
    shared = gcd(a, b)
    if (s - r) % shared:
        return None
    return lcm(a, b), r + a * ((s - r) // shared * pow(a // shared, -1, b // shared) % (b // shared))

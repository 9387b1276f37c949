"""The laws of ``//`` and ``%`` on sizes.  They hold wherever the divisor is not 0.

>>> from minirelax.ir.polynomial import symbol
>>> n = symbol("n")
>>> floordiv(4 * n + 7, 4), mod(4 * n + 7, 4), floordiv(8 * n + 3, 16)
(n + 1, 3, n//2)
"""
from __future__ import annotations

import functools
from math import gcd

from minirelax.ir.bounds import Ranges, is_nonnegative
from minirelax.ir.polynomial import Atom, Dim, DimExpr, Monomial, atom, normal, order, terms, without


def floordiv(a: Dim, b: Dim, ranges: Ranges | None = None) -> Dim:
    """``a // b`` (rounding down).  Multiples of `b` in `a` are divided exactly: ``(b*q + r)//b == q + r//b``."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return a // b
    return _floordiv(a, b, ranges) if ranges else _plain_floordiv(a, b)


def mod(a: Dim, b: Dim, ranges: Ranges | None = None) -> Dim:
    """``a % b`` with the sign of `b`.  Multiples of `b` vanish: ``(b*q + r) % b == r % b``."""
    if isinstance(a, int) and isinstance(b, int) and b:
        return a % b
    return _mod(a, b, ranges) if ranges else _plain_mod(a, b)


def _floordiv(a: Dim, b: Dim, ranges: Ranges | None) -> Dim:
    if isinstance(b, int) and b < 0:                                 # one sign of divisor
        return floordiv(-1 * a, -b, ranges)
    quotient, rest = _divide(a, b)
    if rest != a:
        return quotient + floordiv(rest, b, ranges)
    if a == 0 or b == 1:
        return a
    if _is_less(a, b, ranges):
        return 0
    if _is_less(a + b, b, ranges):
        return -1
    if is_nonnegative(b, ranges):
        if merged := _nested_quotient(a, b):                         # (x//c + p)//b == (x + c*p)//(b*c)
            return floordiv(*merged, ranges)
        if split := _quotient_of_remainder(a, b, ranges):            # (x % (b*c))//b == (x//b) % c
            x, c = split
            return mod(floordiv(x, b, ranges), c, ranges)
    if shared := _shared_factor(a, b, ranges):                       # (g*q + r)//(g*c) == q//c when 0 <= r < g
        _, quotient, _, divisor = shared
        return floordiv(quotient, divisor, ranges)
    if isinstance(b, int) and b > 1 and all(k < 0 for mono, k in terms(a) if mono):       # (-x)//b == -((x + b - 1)//b)
        return -1 * floordiv(b - 1 - a, b, ranges)
    return atom("//", a, b)


def _mod(a: Dim, b: Dim, ranges: Ranges | None) -> Dim:
    if isinstance(b, int) and b < 0:                                 # the remainder has the sign of the divisor
        return -1 * mod(-1 * a, -b, ranges)
    _, rest = _divide(a, b)
    if rest != a:
        return mod(rest, b, ranges)
    if a == 0 or b == 1:
        return 0
    if _is_less(a, b, ranges):
        return a
    if _is_less(a + b, b, ranges):
        return a + b
    inner = _without_remainders(a, b)                                # (x % (b*c) + p) % b == (x + p) % b
    if inner != a:
        return mod(inner, b, ranges)
    if shared := _shared_factor(a, b, ranges):                       # (g*q + r) % (g*c) == g*(q % c) + r when 0 <= r < g
        factor, quotient, rest, divisor = shared
        return factor * mod(quotient, divisor, ranges) + rest
    return atom("%", a, b)


def _is_less(a: Dim, b: Dim, ranges: Ranges | None) -> bool:
    """Is ``0 <= a < b`` shown?  Where a divisor has a value and is not negative it is at least 1: ``(m - 1)//m == 0``."""
    if not is_nonnegative(b - 1 - a, ranges):
        return False
    if is_nonnegative(a, ranges):
        return True
    return isinstance(b, DimExpr) and is_nonnegative(b, ranges) and is_nonnegative(a, ranges, (b - 1,))


def _nested_quotient(a: Dim, b: Dim) -> tuple[Dim, Dim] | None:
    """``(x + c*p, b*c)`` for ``a == x//c + p`` (the only such term), where all is numbers or nothing is added."""
    found = [(mono, k) for mono, k in terms(a) if any(isinstance(f, Atom) and f.op == "//" for f in mono)]
    if len(found) != 1 or len(found[0][0]) != 1 or found[0][1] != 1:
        return None
    (inner,), _ = found[0]
    others = a - normal(dict(found))
    whole = isinstance(inner.right, int) and isinstance(b, int)
    return (inner.left + inner.right * others, b * inner.right) if whole or isinstance(others, int) else None


def _quotient_of_remainder(a: Dim, b: Dim, ranges: Ranges | None) -> tuple[Dim, Dim] | None:
    """``(x, c)`` for ``a == x % (b*c)``; more multiples of `b` are taken out before."""
    match a:
        case DimExpr(terms=((((Atom(op="%", left=x, right=whole),), 1),))):
            c, rest = _divide(whole, b)
            return (x, c) if rest == 0 and is_nonnegative(c, ranges) else None
    return None


def _without_remainders(a: Dim, b: Dim) -> Dim:
    """`a` with ``x % c`` taken for ``x`` in every term where ``c`` times the other factors is a multiple of `b`."""
    total: Dim = 0
    for mono, k in terms(a):
        term = normal({mono: k})
        for i, f in enumerate(mono):
            others = normal({mono[:i] + mono[i + 1:]: k})
            if isinstance(f, Atom) and f.op == "%" and _divide(f.right * others, b)[1] == 0:
                term = f.left * others
                break
        total = total + term
    return total


@functools.lru_cache(16384)
def _plain_floordiv(a: Dim, b: Dim) -> Dim:
    return _floordiv(a, b, None)


@functools.lru_cache(16384)
def _plain_mod(a: Dim, b: Dim) -> Dim:
    return _mod(a, b, None)


def _divide(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """``(q, r)`` with ``a == b*q + r``: `b`'s multiples in `a`, and the others; ``(0, a)`` if none are found."""
    divisor = terms(b)
    return (0, a) if not divisor else _divide_by_term(a, *divisor[0]) if len(divisor) == 1 else _divide_by_sum(a, b)


def _divide_by_term(a: Dim, mono: Monomial, k: int) -> tuple[Dim, Dim]:
    quotient, rest = 0, {}
    for m, c in terms(a):
        left = without(m, mono)
        if left is not None and c % k == 0:
            quotient = quotient + normal({left: c // k})
            continue
        if k > 0 and not mono and c // k and not m:              # the constant: 7 = 4*1 + 3
            quotient, c = quotient + c // k, c % k
        rest[m] = c
    return quotient, normal(rest)


def _divide_by_sum(a: Dim, b: DimExpr) -> tuple[Dim, Dim]:
    """Long division by the leading term.  Steps that do not shorten the rest are kept only if nothing remains at the end."""
    lead, k = max(b.terms, key=lambda t: _degree(t[0]))
    kept, quotient, rest = (0, a), 0, a
    while step := next(((left, c // k) for m, c in sorted(terms(rest), key=lambda t: _degree(t[0]), reverse=True)
                        if c % k == 0 and (left := without(m, lead)) is not None), None):
        quotient, rest = quotient + normal(dict([step])), rest - b * normal(dict([step]))
        if len(terms(rest)) < len(terms(kept[1])):
            kept = quotient, rest
    return kept


def _degree(mono: Monomial) -> tuple:
    """A monomial order (products keep it), so that long division ends: by degree, then by name."""
    return len(mono), tuple(map(order, mono))


def _shared_factor(a: Dim, b: Dim, ranges: Ranges | None) -> tuple[Dim, Dim, Dim, Dim] | None:
    """``(g, q, r, c)`` with ``a == g*q + r``, ``0 <= r < g`` and ``b == g*c``: the largest such ``g`` that is found, not 1."""
    if len(terms(b)) != 1 or isinstance(a, int) or terms(b)[0][1] <= 0:
        return None
    (mono, k), = terms(b)
    sizes = {gcd(k, c) for m, c in a.terms if m} | {k}
    subsets = {tuple(f for j, f in enumerate(mono) if i >> j & 1) for i in range(1 << min(len(mono), 6))}
    candidates = {(s, f) for s in sizes for f in subsets} - {(1, ()), (k, mono)}
    for size, factors in sorted(candidates, key=lambda c: (-len(c[1]), -c[0], tuple(map(order, c[1])))):
        factor = normal({factors: size})
        quotient, rest = _divide_by_term(a, factors, size)
        if quotient != 0 and is_nonnegative(factor, ranges) and (rest == 0 or _is_less(rest, factor, ranges)):
            return factor, quotient, rest, normal({without(mono, factors): k // size})
    return None


def join_remainders(d: Dim) -> Dim:
    """Replace ``c*(x//c) + x % c`` by ``x``."""
    for mono, k in terms(d):
        for i, f in enumerate(mono):
            if isinstance(f, Atom) and f.op == "%":
                others = normal({mono[:i] + mono[i + 1:]: k})
                quotient = floordiv(f.left, f.right) * f.right * others
                if quotient != 0 and set(terms(quotient)) <= set(terms(d)):
                    return join_remainders(d - quotient - normal({mono: k}) + f.left * others)
    return d

"""Integer polynomials over named sizes and over atoms, in one normal form: the data that sizes are, see `dim`.

>>> n = symbol("n")
>>> (n + 1) * (n - 1), sorted(names(n * symbol("m")))
(n*n - 1, ['m', 'n'])
"""
from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, repr=False)
class Atom:
    """An application of ``//``, ``%``, ``min`` or ``max`` that stays as it is."""

    op: str
    left: Dim
    right: Dim

    def __hash__(self) -> int:
        return _cached(self, "_hash", lambda a: hash((a.op, a.left, a.right)))

    def __str__(self) -> str:
        return _cached(self, "_text", _atom_text)

    __repr__ = __str__

    def __reduce__(self):                  # without the caches: hashes of strings differ between processes
        return Atom, (self.op, self.left, self.right)


Factor = str | Atom
Monomial = tuple[Factor, ...]          # ("m", "n", "n") stands for m*n*n; () stands for 1


@dataclass(frozen=True, repr=False)
class DimExpr:
    """A polynomial: the pairs (monomial, coefficient), sorted, with no zero coefficient; never a plain integer."""

    terms: tuple[tuple[Monomial, int], ...]

    def __hash__(self) -> int:
        return _cached(self, "_hash", lambda d: hash(d.terms))

    def __reduce__(self):
        return DimExpr, (self.terms,)

    def __add__(self, other: Dim) -> Dim:
        if not isinstance(other, int | DimExpr):
            return NotImplemented
        total = dict(self.terms)
        for mono, k in terms(other):
            total[mono] = total.get(mono, 0) + k
        return normal(total)

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, int | DimExpr):
            return NotImplemented
        total: dict[Monomial, int] = {}
        for a, j in self.terms:
            for b, k in terms(other):
                mono = tuple(sorted(a + b, key=order))
                total[mono] = total.get(mono, 0) + j * k
        return normal(total)

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __floordiv__(self, other: Dim) -> Dim:
        from minirelax.ir.division import floordiv
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        from minirelax.ir.division import floordiv
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        from minirelax.ir.division import mod
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        from minirelax.ir.division import mod
        return mod(other, self)

    __radd__, __rmul__ = __add__, __mul__

    def __str__(self) -> str:
        return _cached(self, "_text", _polynomial_text)

    __repr__ = __str__


Dim = int | DimExpr


def symbol(name: str) -> DimExpr:
    """The size called `name`."""
    return DimExpr((((name,), 1),))


def product(dims: tuple[Dim, ...] | list[Dim]) -> Dim:
    """The product of all sizes; 1 for none."""
    return functools.reduce(lambda a, b: a * b, dims, 1)


def names(d: Dim) -> frozenset[str]:
    """The named sizes that `d` mentions."""
    return frozenset() if isinstance(d, int) else _names(d)


def value(d: Dim, sizes: Mapping[str, int]) -> int:
    """The number that `d` stands for once every named size is known.  Raises KeyError for a name without a value."""
    if isinstance(d, int):
        return d
    total = 0
    for mono, k in d.terms:
        for f in mono:
            k *= sizes[f] if isinstance(f, str) else apply(f.op, value(f.left, sizes), value(f.right, sizes))
        total += k
    return total


def apply(op: str, a: int, b: int) -> int:
    """The number ``a op b`` for an atom's operation."""
    return {"//": lambda: a // b, "%": lambda: a % b, "min": lambda: min(a, b), "max": lambda: max(a, b)}[op]()


def linear(d: Dim, variables: tuple[str, ...] | list[str]) -> tuple[dict[str, Dim], Dim] | None:
    """``({v: coefficient}, rest)`` if `d` is linear in `variables` and no coefficient mentions them; else None.

    >>> from minirelax.ir.dim import dim
    >>> linear(dim("i*n + 4*k + n"), ("i", "k"))
    ({'i': n, 'k': 4}, n)
    """
    wanted, rest = set(variables), 0
    found: dict[str, Dim] = {}
    for mono, k in terms(d):
        inside = [f for f in mono if isinstance(f, str) and f in wanted]
        if len(inside) > 1 or any(isinstance(f, Atom) and (names(f.left) | names(f.right)) & wanted for f in mono):
            return None
        term = normal({tuple(f for f in mono if f not in inside): k})
        if inside:
            found[inside[0]] = found.get(inside[0], 0) + term
        else:
            rest = rest + term
    return {v: c for v, c in found.items() if c != 0}, rest


def atoms(d: Dim) -> Iterator[Atom]:
    """Every atom inside `d`, inner ones first."""
    for mono, _ in terms(d):
        for f in mono:
            if isinstance(f, Atom):
                yield from atoms(f.left)
                yield from atoms(f.right)
                yield f


def terms(d: Dim) -> tuple[tuple[Monomial, int], ...]:
    return d.terms if isinstance(d, DimExpr) else (((), d),) if d else ()


def normal(total: dict[Monomial, int]) -> Dim:
    terms = tuple(sorted(((mono, k) for mono, k in total.items() if k), key=lambda t: tuple(map(order, t[0]))))
    if not terms:
        return 0
    return terms[0][1] if len(terms) == 1 and terms[0][0] == () else DimExpr(terms)


def without(mono: Monomial, factors: Monomial) -> Monomial | None:
    """The monomial divided by `factors`, or None."""
    left = list(mono)
    for f in factors:
        if f not in left:
            return None
        left.remove(f)
    return tuple(left)


def atom(op: str, a: Dim, b: Dim) -> DimExpr:
    return single(Atom(op, a, b))


def single(factor: Factor) -> DimExpr:
    """A name or an atom as a size."""
    return DimExpr((((factor,), 1),))


def order(factor: Factor) -> tuple[int, str]:
    return (0, factor) if isinstance(factor, str) else (1, str(factor))


@functools.lru_cache(16384)
def _names(d: DimExpr) -> frozenset[str]:
    found: set[str] = set()
    for mono, _ in d.terms:
        for f in mono:
            found |= {f} if isinstance(f, str) else names(f.left) | names(f.right)
    return frozenset(found)


def _cached(node: Atom | DimExpr, name: str, compute: Callable):
    found = node.__dict__.get(name)
    if found is None:
        found = compute(node)
        object.__setattr__(node, name, found)
    return found


def _polynomial_text(d: DimExpr) -> str:
    text = _sum_text(d)
    negative = normal({mono: k for mono, k in d.terms if k < 0})
    extremes = [mono[0] for mono, k in d.terms if k == 1 and len(mono) == 1 and isinstance(mono[0], Atom)
                and mono[0].op in ("min", "max")]
    if negative != 0 and len(extremes) == 1:        # max(n, 1) - 1 is max(n - 1, 0) in the user's words
        f, = extremes
        others = d - negative - normal({(f,): 1})
        inside = _sum_text(others + atom(f.op, f.left + negative, f.right + negative))
        return inside if len(inside) <= len(text) else text
    return text


def _sum_text(d: DimExpr) -> str:
    text = ""
    for mono, k in sorted(d.terms, key=lambda t: (not t[0], -len(t[0]), tuple(map(order, t[0])))):
        sign = " - " if k < 0 else " + "
        size = [] if abs(k) == 1 and mono else [str(abs(k))]
        alone = len(mono) == 1 and not size
        factors = [str(f) if isinstance(f, str) or f.op in ("min", "max") or (alone and not (k < 0 and not text))
                   else f"({f})" for f in mono]
        text += (sign if text else "-" if k < 0 else "") + "*".join([*size, *factors])
    return text


def _atom_text(a: Atom) -> str:
    return f"{a.op}({a.left}, {a.right})" if a.op in ("min", "max") else f"{_tight(a.left)}{a.op}{_tight(a.right)}"


def _tight(d: Dim) -> str:
    text = str(d)
    simple = text.isidentifier() or text.isdigit() or (
        isinstance(d, DimExpr) and len(d.terms) == 1 and d.terms[0][1] == 1 and len(d.terms[0][0]) == 1
        and isinstance(d.terms[0][0][0], Atom) and d.terms[0][0][0].op in ("min", "max"))
    return text if simple else f"({text})"

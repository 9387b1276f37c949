"""Symbolic sizes: integer expressions kept in one normal form.

A size is an ``int`` or a `DimExpr`: a polynomial with integer coefficients over named sizes and over *atoms*, the
applications of ``//``, ``%``, ``min`` and ``max`` that no law removes.  Equal polynomials have equal normal forms, so ``==``
decides equality; graph level (shapes) and loop level (indices) share the same expressions.  Named sizes are never negative.
Where a divisor is 0 an expression has no value; the laws below hold wherever there is one.

>>> n, m = dim("n"), dim("m")
>>> (n + 1) * 2 - n
n + 2
>>> n * m == m * n
True
>>> (4 * n + 3) // 4, (4 * n + 3) % 4
(n, 3)
>>> minimum(n, n + 1), minimum(n, 512)
(n, min(n, 512))
>>> dim("(n + 3)//4*4")
4*((n + 3)//4)
>>> (n * m + m) // (n + 1), -(-n // 4)
(m, (n + 3)//4)
"""
from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import gcd

Ranges = Mapping[str, "tuple[Dim, Dim]"]          # name -> (smallest, largest) value, both inclusive


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
        for mono, k in _terms(other):
            total[mono] = total.get(mono, 0) + k
        return _normal(total)

    def __mul__(self, other: Dim) -> Dim:
        if not isinstance(other, int | DimExpr):
            return NotImplemented
        total: dict[Monomial, int] = {}
        for a, j in self.terms:
            for b, k in _terms(other):
                mono = tuple(sorted(a + b, key=_order))
                total[mono] = total.get(mono, 0) + j * k
        return _normal(total)

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + other * -1

    def __rsub__(self, other: Dim) -> Dim:
        return self * -1 + other

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    __radd__, __rmul__ = __add__, __mul__

    def __str__(self) -> str:
        return _cached(self, "_text", _polynomial_text)

    __repr__ = __str__


Dim = int | DimExpr


@functools.lru_cache(4096)
def dim(text: str) -> Dim:
    """The size called `text`, or the expression it spells: ``dim("2*n + 1")``.  Raises SyntaxError for anything else."""
    return from_ast(ast.parse(text.strip(), mode="eval").body)


def symbol(name: str) -> DimExpr:
    """The size called `name`."""
    return DimExpr((((name,), 1),))


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


def minimum(a: Dim, b: Dim, ranges: Ranges | None = None) -> Dim:
    """The smaller of the two; one of them if that can be shown."""
    return _extreme("min", a, b, ranges)


def maximum(a: Dim, b: Dim, ranges: Ranges | None = None) -> Dim:
    """The larger of the two; one of them if that can be shown."""
    return _extreme("max", a, b, ranges)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """``a / b`` rounded up, for positive `b`."""
    return floordiv(a + b - 1, b)


def product(dims: tuple[Dim, ...] | list[Dim]) -> Dim:
    """The product of all sizes; 1 for none."""
    return functools.reduce(lambda a, b: a * b, dims, 1)


def is_nonnegative(d: Dim, ranges: Ranges | None = None) -> bool:
    """Can ``d >= 0`` be shown, for all named sizes >= 0 and all names in `ranges` within theirs?  False means unknown.

    >>> is_nonnegative(dim("n - 1 - i"), {"i": (0, dim("n - 1"))})
    True
    """
    if isinstance(d, int):
        return d >= 0
    return _decide_nonnegative(d, ranges) if ranges else _is_always_nonnegative(d)


def less_equal(a: Dim, b: Dim, ranges: Ranges | None = None) -> bool:
    """Can ``a <= b`` be shown?"""
    return is_nonnegative(b - a, ranges)


def simplify(d: Dim, ranges: Ranges) -> Dim:
    """`d` with every atom reconsidered under `ranges`, and quotients joined with their remainders.

    >>> simplify(dim("(32*h + k)//32"), {"k": (0, 31)}), simplify(dim("i//n*n + i % n"), {})
    (h, i)
    """
    return _join_remainders(rebuild(d, symbol, ranges))


def substitute(d: Dim, values: Mapping[str, Dim], ranges: Ranges | None = None) -> Dim:
    """`d` with names replaced by other sizes."""
    if isinstance(d, int) or not (names(d) & values.keys()):
        return d
    return rebuild(d, lambda name: values[name] if name in values else symbol(name), ranges)


def rebuild(d: Dim, leaf: Callable[[str], Dim], ranges: Ranges | None = None) -> Dim:
    """`d` computed again from its leaves, applying the laws that `ranges` now allows."""
    if isinstance(d, int):
        return d
    total: Dim = 0
    for mono, k in d.terms:
        term: Dim = k
        for f in mono:
            term = term * (leaf(f) if isinstance(f, str) else _rebuild_atom(f, leaf, ranges))
        total = total + term
    return total


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

    >>> linear(dim("i*n + 4*k + n"), ("i", "k"))
    ({'i': n, 'k': 4}, n)
    """
    wanted, rest = set(variables), 0
    found: dict[str, Dim] = {}
    for mono, k in _terms(d):
        inside = [f for f in mono if isinstance(f, str) and f in wanted]
        if len(inside) > 1 or any(isinstance(f, Atom) and (names(f.left) | names(f.right)) & wanted for f in mono):
            return None
        term = _normal({tuple(f for f in mono if f not in inside): k})
        if inside:
            found[inside[0]] = found.get(inside[0], 0) + term
        else:
            rest = rest + term
    return {v: c for v, c in found.items() if c != 0}, rest


def atoms(d: Dim) -> Iterator[Atom]:
    """Every atom inside `d`, inner ones first."""
    for mono, _ in _terms(d):
        for f in mono:
            if isinstance(f, Atom):
                yield from atoms(f.left)
                yield from atoms(f.right)
                yield f


def from_ast(node: ast.expr) -> Dim:
    """The size that a Python expression spells; SyntaxError if it is not one."""
    match node:
        case ast.Constant(value=int() as k) if not isinstance(k, bool):
            return k
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return from_ast(operand) * -1
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](from_ast(left), from_ast(right))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[a, b], keywords=[]):
            return _extreme(name, from_ast(a), from_ast(b), None)
    raise SyntaxError(f"not a size: {ast.unparse(node)}")


_BINARY: dict[type, Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.FloorDiv: floordiv, ast.Mod: mod}


@functools.lru_cache(16384)
def _names(d: DimExpr) -> frozenset[str]:
    found: set[str] = set()
    for mono, _ in d.terms:
        for f in mono:
            found |= {f} if isinstance(f, str) else names(f.left) | names(f.right)
    return frozenset(found)


def _terms(d: Dim) -> tuple[tuple[Monomial, int], ...]:
    return d.terms if isinstance(d, DimExpr) else (((), d),) if d else ()


def _normal(total: dict[Monomial, int]) -> Dim:
    terms = tuple(sorted(((mono, k) for mono, k in total.items() if k), key=lambda t: tuple(map(_order, t[0]))))
    if not terms:
        return 0
    return terms[0][1] if len(terms) == 1 and terms[0][0] == () else DimExpr(terms)


def _order(factor: Factor) -> tuple[int, str]:
    return (0, factor) if isinstance(factor, str) else (1, str(factor))


def _cached(node: Atom | DimExpr, name: str, compute: Callable):
    found = node.__dict__.get(name)
    if found is None:
        found = compute(node)
        object.__setattr__(node, name, found)
    return found


def _polynomial_text(d: DimExpr) -> str:
    text = ""
    for mono, k in sorted(d.terms, key=lambda t: (not t[0], -len(t[0]), tuple(map(_order, t[0])))):
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


def _atom(op: str, a: Dim, b: Dim) -> Dim:
    return DimExpr((((Atom(op, a, b),), 1),))


def _floordiv(a: Dim, b: Dim, ranges: Ranges | None) -> Dim:
    quotient, rest = _divide(a, b)
    if rest != a:
        return quotient + floordiv(rest, b, ranges)
    if a == 0 or b == 1:
        return a
    if is_nonnegative(a, ranges) and is_nonnegative(b - 1 - a, ranges):
        return 0
    match a:
        case DimExpr(terms=((((Atom(op="//", left=x, right=int() as c),), 1),))) if isinstance(b, int) and b > 0 and c > 0:
            return floordiv(x, b * c, ranges)
    if shared := _shared_factor(a, b, ranges):                       # (g*q + r)//(g*c) == q//c when 0 <= r < g
        _, quotient, _, divisor = shared
        return floordiv(quotient, divisor, ranges)
    if isinstance(b, int) and b > 1 and all(k < 0 for mono, k in _terms(a) if mono):       # (-x)//b == -((x + b - 1)//b)
        return -1 * floordiv(b - 1 - a, b, ranges)
    return _atom("//", a, b)


def _mod(a: Dim, b: Dim, ranges: Ranges | None) -> Dim:
    _, rest = _divide(a, b)
    if rest != a:
        return mod(rest, b, ranges)
    if a == 0 or b == 1:
        return 0
    if is_nonnegative(a, ranges) and is_nonnegative(b - 1 - a, ranges):
        return a
    match a:
        case DimExpr(terms=((((Atom(op="%", left=x, right=c),), 1),))) if _divide(c, b)[1] == 0:
            return mod(x, b, ranges)
    if shared := _shared_factor(a, b, ranges):                       # (g*q + r) % (g*c) == g*(q % c) + r when 0 <= r < g
        factor, quotient, rest, divisor = shared
        return factor * mod(quotient, divisor, ranges) + rest
    return _atom("%", a, b)


@functools.lru_cache(16384)
def _plain_floordiv(a: Dim, b: Dim) -> Dim:
    return _floordiv(a, b, None)


@functools.lru_cache(16384)
def _plain_mod(a: Dim, b: Dim) -> Dim:
    return _mod(a, b, None)


def _divide(a: Dim, b: Dim) -> tuple[Dim, Dim]:
    """``(q, r)`` with ``a == b*q + r``: `b`'s multiples in `a`, and the others; ``(0, a)`` if none are found."""
    divisor = _terms(b)
    return (0, a) if not divisor else _divide_by_term(a, *divisor[0]) if len(divisor) == 1 else _divide_by_sum(a, b)


def _divide_by_term(a: Dim, mono: Monomial, k: int) -> tuple[Dim, Dim]:
    quotient, rest = 0, {}
    for m, c in _terms(a):
        left = _without(m, mono)
        if left is not None and c % k == 0:
            quotient = quotient + _normal({left: c // k})
            continue
        if k > 0 and not mono and c // k and not m:              # the constant: 7 = 4*1 + 3
            quotient, c = quotient + c // k, c % k
        rest[m] = c
    return quotient, _normal(rest)


def _divide_by_sum(a: Dim, b: DimExpr) -> tuple[Dim, Dim]:
    """Long division by the leading term.  Steps that do not shorten the rest are kept only if nothing remains at the end."""
    lead, k = max(b.terms, key=lambda t: _degree(t[0]))
    kept, quotient, rest = (0, a), 0, a
    while step := next(((left, c // k) for m, c in sorted(_terms(rest), key=lambda t: _degree(t[0]), reverse=True)
                        if c % k == 0 and (left := _without(m, lead)) is not None), None):
        quotient, rest = quotient + _normal(dict([step])), rest - b * _normal(dict([step]))
        if len(_terms(rest)) < len(_terms(kept[1])):
            kept = quotient, rest
    return kept


def _degree(mono: Monomial) -> tuple:
    """A monomial order (products keep it), so that long division ends: by degree, then by name."""
    return len(mono), tuple(map(_order, mono))


def _without(mono: Monomial, factors: Monomial) -> Monomial | None:
    """The monomial divided by `factors`, or None."""
    left = list(mono)
    for f in factors:
        if f not in left:
            return None
        left.remove(f)
    return tuple(left)


def _shared_factor(a: Dim, b: Dim, ranges: Ranges | None) -> tuple[Dim, Dim, Dim, Dim] | None:
    """``(g, q, r, c)`` with ``a == g*q + r``, ``0 <= r < g`` and ``b == g*c``: the largest such ``g`` that is found, not 1."""
    if len(_terms(b)) != 1 or isinstance(a, int) or _terms(b)[0][1] <= 0:
        return None
    (mono, k), = _terms(b)
    sizes = {gcd(k, c) for m, c in a.terms if m} | {k}
    subsets = {tuple(f for j, f in enumerate(mono) if i >> j & 1) for i in range(1 << min(len(mono), 6))}
    candidates = {(s, f) for s in sizes for f in subsets} - {(1, ()), (k, mono)}
    for size, factors in sorted(candidates, key=lambda c: (-len(c[1]), -c[0], tuple(map(_order, c[1])))):
        factor = _normal({factors: size})
        quotient, rest = _divide_by_term(a, factors, size)
        if quotient != 0 and is_nonnegative(factor, ranges) and (rest == 0 or (
                is_nonnegative(rest, ranges) and is_nonnegative(factor - 1 - rest, ranges))):
            return factor, quotient, rest, _normal({_without(mono, factors): k // size})
    return None


def _join_remainders(d: Dim) -> Dim:
    """Replace ``c*(x//c) + x % c`` by ``x``."""
    for mono, k in _terms(d):
        for i, f in enumerate(mono):
            if isinstance(f, Atom) and f.op == "%":
                others = _normal({mono[:i] + mono[i + 1:]: k})
                quotient = floordiv(f.left, f.right) * f.right * others
                if quotient != 0 and set(_terms(quotient)) <= set(_terms(d)):
                    return _join_remainders(d - quotient - _normal({mono: k}) + f.left * others)
    return d


def _extreme(op: str, a: Dim, b: Dim, ranges: Ranges | None) -> Dim:
    """The parts of nested ``min``s (or ``max``es) that no other part makes superfluous, nested again in one order."""
    if isinstance(a, int) and isinstance(b, int):
        return apply(op, a, b)

    def decides(p: Dim, q: Dim) -> bool:
        return less_equal(p, q, ranges) if op == "min" else less_equal(q, p, ranges)
    kept: list[Dim] = []
    for part in sorted({*_parts(op, a), *_parts(op, b)}, key=lambda d: (isinstance(d, int), str(d))):
        if not any(decides(k, part) for k in kept):
            kept = [*(k for k in kept if not decides(part, k)), part]
    *first, last = kept
    return functools.reduce(lambda rest, part: _atom(op, part, rest), reversed(first), last)


def _parts(op: str, d: Dim) -> tuple[Dim, ...]:
    match d:
        case DimExpr(terms=((((Atom(op=o, left=a, right=b),), 1),))) if o == op:
            return (*_parts(op, a), *_parts(op, b))
    return (d,)


def _rebuild_atom(f: Atom, leaf: Callable[[str], Dim], ranges: Ranges | None) -> Dim:
    left, right = rebuild(f.left, leaf, ranges), rebuild(f.right, leaf, ranges)
    match f.op:
        case "//":
            return floordiv(left, right, ranges)
        case "%":
            return mod(left, right, ranges)
    return _extreme(f.op, left, right, ranges)


PROOF_STEPS = 100            # how many bounds one proof may try: the answer "unknown" must come soon, too


@functools.lru_cache(16384)
def _is_always_nonnegative(d: DimExpr) -> bool:
    return _decide_nonnegative(d, {})


def _decide_nonnegative(d: DimExpr, ranges: Ranges) -> bool:
    """A search for a proof is slow to give up: a counterexample among a few numbers saves most of the searches in vain."""
    steps = [PROOF_STEPS]
    return _is_plainly_nonnegative(d, ranges, steps) or (
        not _has_counterexample(d, ranges) and _is_nonnegative(d, ranges, steps))


def _has_counterexample(d: DimExpr, ranges: Ranges) -> bool:
    for free in ((1, 1), (1000, 7)):
        for end in (0, 1):
            sizes = _Sample(ranges, free, end)
            try:
                if value(d, sizes) < 0 and not sizes.empty:
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
            low, high = (value(d, self) for d in self.ranges[name])
            self.empty |= low > high
            number = (low, high)[self.end]
        self[name] = number
        return number


def _is_nonnegative(d: Dim, ranges: Ranges, steps: list[int]) -> bool:
    """Search for a lower bound of `d` in which every coefficient and every factor is >= 0, replacing one factor at a time."""
    if isinstance(d, int):
        return d >= 0
    seen, queue = {d}, [d]
    for bound in queue:                                              # grows while it is walked: breadth first
        steps[0] -= 1
        if steps[0] < 0:
            return False
        if _is_plainly_nonnegative(bound, ranges, steps):
            return True
        for sides in _lower_bounds(bound, ranges, steps):
            if len(sides) > 1 and all(_is_nonnegative(s, ranges, steps) for s in sides):
                return True
            if len(sides) == 1 and sides[0] not in seen:
                seen.add(sides[0])
                queue.append(sides[0])
    return False


def _is_plainly_nonnegative(d: Dim, ranges: Ranges, steps: list[int]) -> bool:
    return all(k >= 0 for _, k in _terms(d)) and all(_factor_is_nonnegative(f, ranges, steps) for m, _ in _terms(d) for f in m)


def _lower_bounds(d: Dim, ranges: Ranges, steps: list[int]) -> Iterator[tuple[Dim, ...]]:
    """Expressions that are >= 0 only if `d` is (up to a positive factor); of two, only if both are."""
    for mono, k in _terms(d):
        for i, f in enumerate(mono):
            others = mono[:i] + mono[i + 1:]
            if (isinstance(f, str) and f not in ranges) or not all(_factor_is_nonnegative(o, ranges, steps) for o in others):
                continue
            without, rest = d - _normal({mono: k}), _normal({others: k})
            if isinstance(f, str):
                yield (without + ranges[f][0 if k > 0 else 1] * rest,)
            elif f.op in ("min", "max"):
                sides = without + f.left * rest, without + f.right * rest
                yield from [sides] if (f.op == "min") == (k > 0) else [sides[:1], sides[1:]]
            else:
                yield from _division_bounds(f, others, k, without, ranges, steps)


def _division_bounds(
        f: Atom, others: Monomial, k: int, without: Dim, ranges: Ranges, steps: list[int]) -> Iterator[tuple[Dim, ...]]:
    """Bounds of ``without + k*others*f`` for a quotient or remainder `f`; a divisor that has a value is not 0."""
    if not _is_nonnegative(f.right, ranges, steps):
        return
    rest = _normal({others: k})
    if k < 0 and f.op == "%":
        yield (without + (f.right - 1) * rest,)
    if k < 0 and _is_nonnegative(f.left, ranges, steps):
        yield (without + f.left * rest,)
    if f.op == "//" and len(_terms(f.right)) == 1:                   # x - c + 1 <= c*(x//c) <= x
        (mono, c), = _terms(f.right)
        if (left := _without(others, mono)) is not None:
            scale = c // gcd(k, c)
            bound = f.left if k < 0 else f.left - f.right + 1
            yield (without * scale + bound * _normal({left: k * scale // c}),)


def _factor_is_nonnegative(f: Factor, ranges: Ranges, steps: list[int]) -> bool:
    if isinstance(f, str):
        return f not in ranges or _is_nonnegative(ranges[f][0], ranges, steps)
    right = _is_nonnegative(f.right, ranges, steps)
    if f.op == "%" or right == (f.op == "max"):
        return right
    return _is_nonnegative(f.left, ranges, steps)

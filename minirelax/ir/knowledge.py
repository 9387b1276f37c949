"""What is known of sizes, from guards and bounds, and what follows from it: ``==``, ``<=``, divisibility, intervals.

Immutable: a further fact makes another `Knowledge`.  Every named size is >= 0.  A claim is shown by its `comparable` form, by
lower bounds (`bounds`), or by cases (`cases`), never by trying numbers; where neither a relation nor its opposite can be shown,
the answer is None.

>>> from minirelax.ir.dim import dim
>>> n, m = dim("n"), dim("m")
>>> prove("==", dim("n//2 + (n + 1)//2"), n), prove("<=", n, dim("(n + 7)//8*8")), prove("<", dim("n % m"), m)
(True, True, True)
>>> prove("==", n, m), prove("==", n, n + 1), prove("==", dim("n//4*4"), n, [("==", dim("n % 4"), 0)])
(None, False, True)
>>> k = Knowledge().assuming("<=", n, 512).assuming("<=", m + 1, n)
>>> k.simplify(dim("min(n, 600)")), k.interval(n - m), k.interval(2 * m), k.prove("==", m, n)
(n, (1, 512), (0, 1022), False)
"""
from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import nan
from typing import TYPE_CHECKING

from minirelax.ir import cases, interval
from minirelax.ir.bounds import Ranges, is_nonnegative
from minirelax.ir.comparable import Rule, comparable, rules_of
from minirelax.ir.dim import substitute
from minirelax.ir.division import floordiv, mod
from minirelax.ir.equations import decided_by, joint_remainder, remainder_of, shortened
from minirelax.ir.extremes import extreme, sides
from minirelax.ir.polynomial import Atom, Dim, DimExpr, atom, linear, names, symbol, value

if TYPE_CHECKING:
    from minirelax.ir.graph import Function

Fact = tuple[str, Dim, Dim]                         # (relation, left, right)
OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
MANY_CASES, FEW_CASES = 64, 16                      # for what is decided at once, and for what is searched for
SAMPLES = ((7, 1000), (1000, 7), (0,), (1,), (3, 5, 4), (24, 12, 36), (1, 0), (0, 1), (2, 9, 1), (13, 8, 5), (2,), (12,), (60,),
           (4096,), (1, 1000))
Bounds = Mapping[str, "tuple[int | None, int | None]"]


def prove(relation: str, a: Dim, b: Dim, facts: Iterable[Fact] = (), bounds: Bounds | None = None) -> bool | None:
    """Does ``a relation b`` hold for all sizes that satisfy `facts` and `bounds`?  None if that cannot be shown either way.

    `relation` is one of ``== != < <= > >=``.  False is a proof, too: the relation holds for none of them.
    """
    return Knowledge.of_facts(facts, bounds).prove(relation, a, b)


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Facts about sizes.  Build it with `of` or `of_facts`, extend it with `assuming`."""

    values: Mapping[str, Dim] = field(default_factory=dict)           # names that are replaced everywhere
    lower: Mapping[str, int] = field(default_factory=dict)
    upper: Mapping[str, int] = field(default_factory=dict)
    nonnegative: tuple[Dim, ...] = ()
    zero: tuple[Dim, ...] = ()
    nonzero: tuple[Dim, ...] = ()
    remainders: Mapping[tuple[Dim, Dim], int] = field(default_factory=dict)   # (x, y) -> x % y
    _simplified: dict[Dim, Dim] = field(default_factory=dict, init=False, repr=False)
    _samples: dict[frozenset[str], list[dict[str, int]]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _numbers: dict[tuple[Dim, frozenset[str]], list[float]] = field(default_factory=dict, init=False, repr=False, compare=False)
    _nonnegative: dict[Dim, bool] = field(default_factory=dict, init=False, repr=False, compare=False)

    @staticmethod
    def of(function: Function, bounds: Bounds | None = None) -> Knowledge:
        """What holds in `function` after its checks at entry: its guards, `bounds`, and that its parameters' sizes are >= 0."""
        sizes = {d for p in (*function.params, *function.bound) for d in getattr(p.type, "shape", None) or ()}
        entry = [("<=", 0, d) for d in sorted((d for d in sizes if isinstance(d, DimExpr)), key=str)]
        return Knowledge.of_facts([*entry, *((g.relation, g.left, g.right) for g in function.guards)], bounds)

    @staticmethod
    def of_facts(facts: Iterable[Fact], bounds: Bounds | None = None) -> Knowledge:
        """`bounds` gives, by size name, the smallest and largest value, None where unknown."""
        ends = [("<=", low, high) for name, (least, most) in (bounds or {}).items()
                for low, high in ((least, symbol(name)), (symbol(name), most)) if low is not None and high is not None]
        return functools.reduce(lambda known, fact: known.assuming(*fact), (*ends, *facts), Knowledge())

    # ---- what follows ----

    def prove(self, relation: str, a: Dim, b: Dim) -> bool | None:
        """Whether the relation holds, if that can be shown."""
        return True if self.shows(relation, a, b) else False if self.shows(OPPOSITE[relation], a, b) else None

    def shows(self, relation: str, a: Dim, b: Dim) -> bool:
        """Can the relation be shown?  False says nothing of its opposite."""
        match relation:
            case "==":
                return self.equal(a, b)
            case "!=":
                return self._is_apart(self.simplify(a - b))
            case "<=" | "<":
                return self.is_nonnegative(b - a - (relation == "<"))
        return self.is_nonnegative(a - b - (relation == ">"))

    def equal(self, a: Dim, b: Dim) -> bool:
        """Can ``a == b`` be shown?"""
        d = self.simplify(a - b)
        if isinstance(d, int) or comparable(d, self.rules) == 0:
            return d == 0 or isinstance(d, DimExpr)
        if cases.hold(self, d, Knowledge._is_shown_zero, lambda v: v == 0, MANY_CASES):
            return True
        return self.is_nonnegative(d) and self.is_nonnegative(-1 * d)

    def less_equal(self, a: Dim, b: Dim) -> bool:
        """Can ``a <= b`` be shown?  Of a ``max`` on the left that takes a proof for each side, of one on the right for one."""
        left, right = sides("max", a), sides("max", b)
        if len(left) * len(right) > 1 and all(low in right or any(self.is_nonnegative(r - low) for r in right) for low in left):
            return True
        return self.is_nonnegative(b - a)

    def shows_at_once(self, d: Dim) -> bool:
        """Can ``d >= 0`` be shown without distinguishing cases?  What cannot is said sooner than by `is_nonnegative`."""
        return self._is_shown(self.simplify(d))

    def is_nonnegative(self, d: Dim) -> bool:
        """Can ``d >= 0`` be shown?"""
        if d not in self._nonnegative:
            simple = self.simplify(d)
            self._nonnegative[d] = (
                simple >= 0
                if isinstance(simple, int)
                else cases.hold(self, simple, Knowledge._is_shown, lambda v: v >= 0, FEW_CASES)
            )
        return self._nonnegative[d]

    def divisible(self, a: Dim, k: Dim) -> bool:
        """Can ``a % k == 0`` be shown?

        >>> from minirelax.ir.dim import dim
        >>> four = Knowledge().assuming("==", dim("n % 4"), 0)
        >>> four.divisible(dim("n*m + 8"), 4), four.divisible(dim("n//2"), 2), four.divisible(dim("n"), 8)
        (True, True, False)
        """
        return self.equal(mod(self.simplify(a), self.simplify(k)), 0)

    def interval(self, d: Dim) -> interval.Interval:
        """``(low, high)``, both inclusive, that `d` does not leave; None for an end that is not known."""
        d = self.simplify(d)
        found = functools.reduce(interval.common, (interval.interval(f, self._ends) for f in (d, comparable(d, self.rules))))
        for f in self._facts:                                          # f >= 0: d - f <= d <= d + f
            found = interval.common(found, (interval.interval(d - f, self._ends)[0], interval.interval(d + f, self._ends)[1]))
        if (found[0] is None or found[0] < 0) and self.is_nonnegative(d):
            return 0, found[1]
        return found

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Are these numbers among those that this speaks about?  Raises KeyError for a name without a number."""
        def number(d: Dim) -> int:
            return value(d, sizes)
        try:
            return (all(self.lower.get(name, 0) <= n <= self.upper.get(name, n) for name, n in sizes.items())
                    and all(sizes[name] == number(d) for name, d in self.values.items() if name in sizes)
                    and all(number(d) >= 0 for d in self.nonnegative)
                    and not any(map(number, self.zero)) and all(map(number, self.nonzero))
                    and all(number(x) % number(y) == r for (x, y), r in self.remainders.items()))
        except ZeroDivisionError:
            return False

    def samples(self, used: frozenset[str]) -> list[dict[str, int]]:
        """A few of the numbers that this speaks about, for all of these names: a claim that one refutes needs no other proof."""
        if used not in self._samples:
            every = sorted(used.union(*map(names, (*self.mentioned, *self.values.values()))))
            found = []
            for row in SAMPLES:
                sizes = {name: self.lower.get(name, 0) + row[i % len(row)] for i, name in enumerate(every)}
                sizes = {name: min(k, self.upper.get(name, k)) for name, k in sizes.items()}
                if sizes not in found and self.admits(sizes):
                    found.append(sizes)
            self._samples[used] = found
        return self._samples[used]

    def may_be_less_equal(self, a: Dim, b: Dim, used: frozenset[str]) -> bool:
        """Is ``a <= b`` for a few numbers?  To be asked before proofs where most do not hold; `used` are all names there."""
        return not any(map(float.__gt__, self._numbers_of(a, used), self._numbers_of(b, used)))

    def _numbers_of(self, d: Dim, used: frozenset[str]) -> list[float]:
        if (d, used) not in self._numbers:
            self._numbers[d, used] = [_number(d, sizes) for sizes in self.samples(used)]
        return self._numbers[d, used]

    def simplify(self, d: Dim) -> Dim:
        """An equal size: replaced names replaced, known remainders and decided ``min``s and ``max``es gone."""
        if isinstance(d, int):
            return d
        found = self._simplified.get(d)
        if found is None:
            found = self._simplified[d] = self._simplify(d)
        return found

    # ---- more facts ----

    def assuming(self, relation: str, a: Dim, b: Dim) -> Knowledge:
        """This and one more fact; a name that the fact determines is not replaced, see `replacing`."""
        a, b = self.simplify(a), self.simplify(b)
        match relation:
            case "==":
                return self._with_zero(a - b)
            case "!=":
                return self._with_nonzero(a - b)
            case "<=" | "<":
                return self._with_nonnegative(b - a - (relation == "<"))
        return self._with_nonnegative(a - b - (relation == ">"))

    def replacing(self, name: str, d: Dim) -> Knowledge:
        """This and ``name == d``: from now on, `d` stands wherever `name` stood."""
        one = {name: d}
        values = {k: substitute(v, one) for k, v in self.values.items()} | one
        lower, upper = ({k: v for k, v in ends.items() if k != name} for ends in (self.lower, self.upper))
        remainders = {(substitute(x, one), substitute(y, one)): r for (x, y), r in self.remainders.items()}
        others = (_substituted(facts, one) for facts in (self.nonnegative, self.zero, self.nonzero))
        facts = Knowledge(values, lower, upper, *others, remainders)
        found = facts.assuming("<=", self.lower.get(name, 0), d)
        return found.assuming("<=", d, self.upper[name]) if name in self.upper else found

    def _with_zero(self, d: Dim) -> Knowledge:
        d = self._shortened(d)
        if isinstance(d, int):
            return self
        if ordered := decided_by(d):                                   # s == min(s, 512) says s <= 512
            return self.assuming("<=", *ordered)
        if remainder := remainder_of(d):
            return self.with_remainder(*remainder)
        found = replace(self, zero=(*self.zero, d), nonnegative=(*self.nonnegative, d, -1 * d))._with_ends(d)._with_ends(-1 * d)
        simpler = found.simplify(d)
        return found if simpler in (d, 0) else found._with_zero(simpler)   # the fact may have decided a min or max in itself

    def with_remainder(self, x: Dim, y: Dim, r: int) -> Knowledge:
        """This and ``x % y == r``."""
        for (other, c), s in self.remainders.items():
            if other == x and isinstance(y, int) and isinstance(c, int):
                y, r = joint_remainder(y, r, c, s) or (y, r)
        return replace(self, remainders=dict(self.remainders) | {(x, y): r})

    def _with_nonzero(self, d: Dim) -> Knowledge:
        if isinstance(d, int):
            return self
        found = replace(self, nonzero=(*self.nonzero, d))
        for side in (d, -1 * d):
            found = found._with_nonnegative(side - 1) if self._is_shown(side) else found
        return found

    def _with_nonnegative(self, d: Dim) -> Knowledge:
        d = self._shortened(d)
        if isinstance(d, int):
            return self
        found = self._with_ends(d)
        return found if found._is_shown(d) else replace(found, nonnegative=(*found.nonnegative, d))

    def _shortened(self, d: Dim) -> Dim:
        return shortened(d, lambda f: self._is_shown(f - 1))

    def _with_ends(self, d: Dim) -> Knowledge:
        """What ``d >= 0`` says of a single name."""
        if not isinstance(d, DimExpr) or len(d.terms) > 2 or not (parts := linear(d, tuple(names(d)))) or len(parts[0]) != 1:
            return self
        ((name, factor),), rest = parts[0].items(), parts[1]
        if not isinstance(factor, int) or not isinstance(rest, int):
            return self
        if factor > 0:
            return replace(self, lower=dict(self.lower) | {name: max(self.lower.get(name, 0), -(rest // factor))})
        return replace(self, upper=dict(self.upper) | {name: min(self.upper.get(name, rest // -factor), rest // -factor)})

    # ---- how it follows ----

    def _simplify(self, d: DimExpr) -> Dim:
        total: Dim = 0
        for mono, k in d.terms:
            term: Dim = k
            for f in mono:
                term = term * (self.values.get(f, symbol(f)) if isinstance(f, str) else self._simplified_atom(f))
            total = total + term
        return total

    def _simplified_atom(self, f: Atom) -> Dim:
        left, right = self.simplify(f.left), self.simplify(f.right)
        if f.op in ("//", "%"):
            known = self.remainders.get((left, right)) if f.op == "%" else None
            return self._divided(f.op, left, right) if known is None else known
        small, large = (left, right) if f.op == "min" else (right, left)
        return small if self._is_shown(right - left) else large if self._is_shown(left - right) else extreme(f.op, left, right)

    def _divided(self, op: str, left: Dim, right: Dim) -> Dim:
        """The quotient or remainder; bounds may say which number the quotient is."""
        found = (floordiv if op == "//" else mod)(left, right)
        if found == atom(op, left, right) and (self.upper or self.nonnegative):
            low, high = interval.interval(atom("//", left, right), self._ends)
            if low == 0 and low != high and self._is_shown(right - 1 - left):
                high = 0
            if low is not None and low == high:
                return low if op == "//" else left - low * right
        return found

    def _is_apart(self, d: Dim) -> bool:
        """Can ``d != 0`` be shown?"""
        known = any(comparable(d + side * z, self.rules) == 0 for z in self.nonzero for side in (1, -1))
        return known or self.is_nonnegative(d - 1) or self.is_nonnegative(-1 * d - 1)

    def _is_shown_zero(self, d: Dim) -> bool:
        return comparable(d, self.rules) == 0

    def _is_shown(self, d: Dim) -> bool:
        """Can ``d >= 0`` be shown in a single case?"""
        if isinstance(d, int) or self._follows(d):
            return isinstance(d, DimExpr) or d >= 0
        other = comparable(d, self.rules)
        return other != d and self._follows(other)

    def _follows(self, d: Dim) -> bool:
        """Shift every size by its lower bound: what remains of it is again any number >= 0."""
        if isinstance(d, int):
            return d >= 0
        facts, used = self._about(names(d))
        ranges: Ranges = {name: (0, k - self.lower.get(name, 0)) for name, k in self.upper.items() if name in used}
        shifts = {name: symbol(name) + k for name, k in self.lower.items() if name in used}
        return is_nonnegative(substitute(d, shifts), ranges, tuple(map(self._shifted.__getitem__, facts)))

    def _about(self, used: frozenset[str]) -> tuple[tuple[Dim, ...], frozenset[str]]:
        """The facts that speak of the names `used`, or of names in such facts, and all these names."""
        facts: tuple[Dim, ...] = ()
        while len(more := tuple(f for f in self._facts if names(f) & used)) > len(facts):
            facts, used = more, used.union(*map(names, more))
        return facts, used

    @functools.cached_property
    def _shifted(self) -> dict[Dim, Dim]:
        return {f: substitute(f, {name: symbol(name) + k for name, k in self.lower.items()}) for f in self._facts}

    @functools.cached_property
    def mentioned(self) -> tuple[Dim, ...]:
        """Every size in a fact that is not about a single name."""
        divided = (side for pair in self.remainders for side in pair)
        return (*self.nonnegative, *self.zero, *self.nonzero, *divided)

    @functools.cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The equalities, as `comparable` takes them."""
        remainders = [x - floordiv(x, y) * y - r for (x, y), r in self.remainders.items()]
        return rules_of((*remainders, *self.zero))

    @functools.cached_property
    def _facts(self) -> tuple[Dim, ...]:
        """What is >= 0, and the same by the rules."""
        found = dict.fromkeys(g for f in self.nonnegative for g in (f, comparable(f, self.rules)))
        return tuple(f for f in found if isinstance(f, DimExpr))

    @functools.cached_property
    def _ends(self) -> dict[str, interval.Interval]:
        given = {name: (self.lower.get(name, 0), self.upper.get(name)) for name in self.lower.keys() | self.upper.keys()}
        return interval.tightened(given, self._facts)


def _substituted(facts: tuple[Dim, ...], values: Mapping[str, Dim]) -> tuple[Dim, ...]:
    return tuple(e for f in facts if isinstance(e := substitute(f, values), DimExpr))


def _number(d: Dim, sizes: Mapping[str, int]) -> float:
    """What `d` is; not a number, which no number is larger or smaller than, where that divides by 0."""
    try:
        return float(value(d, sizes))
    except ZeroDivisionError:
        return nan

"""What one trace knows about the sizes: hints of the call, facts taken from them, and the guards that make them sound.

A fact that equates a bare symbol with an expression becomes a substitution, so the parameters' types imply it; any other
fact becomes a `Guard`.  Declared sizes take no facts, except where `declared=True` says that every call must satisfy them
or fail in NumPy's way.

>>> facts = Facts()
>>> n, m = facts.new(3), facts.new(3)
>>> facts.decide("==", n, m), facts.resolve(m + 1)
(True, n + 1)
>>> facts.decide("<=", n, 512), facts.resolve(minimum(n, 512)), [(g.left, g.relation, g.right) for g in facts.guards]
(True, n, [(n, '<=', 512)])
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from minirelax.errors import ShapeError, user_frame
from minirelax.ir.dim import (
    Atom,
    Dim,
    DimExpr,
    atoms,
    floordiv,
    is_nonnegative,
    linear,
    maximum,
    minimum,
    mod,
    names,
    substitute,
    symbol,
    value,
)
from minirelax.ir.graph import Guard, Source

LETTERS = ("n", "m", "k", "l", "p", "q", "r", "s", "t", "u", "w", "h", "d", "b", "c", "g", "z")
HOLDS = {"==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}
FLIPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
HINT = "leave the size undeclared, so that it may become a guard, or state the fact with minirelax.match_cast"
INNER_HINT = "state the fact with minirelax.match_cast, or decide while running: np.where, minirelax.cond, minirelax.while_loop"


def letters() -> Iterator[str]:
    """``n, m, k, ...``, then ``n2, m2, ...``"""
    yield from LETTERS
    yield from (f"{letter}{i}" for i in itertools.count(2) for letter in LETTERS)


class Facts:
    """Sizes by name, and everything that is known or assumed about them."""

    def __init__(self, taken: frozenset[str] = frozenset()):
        self.taken = set(taken)  # names that a new size must not have
        self.hints: dict[str, int] = {}  # the sizes of this call
        self.declared: set[str] = set()  # named by the user: no guards
        self.inner: set[str] = set()  # bound by a match_cast while running: no guards possible
        self.entries: set[str] = set()  # of shapes that are values: that they fit somewhere may be left to the run
        self.guards: list[Guard] = []  # checked at each call
        self.assumed: list[Guard] = []  # the same and those that the parameters' types imply
        self._values: dict[str, Dim] = {}
        self._birth: dict[str, int] = {}
        self._known: list[Dim] = []  # expressions that are >= 0
        self._zero: set[Dim] = set()  # expressions that are 0, besides those substituted
        self._nonzero: set[Dim] = set()
        self._lower: dict[str, int] = {}
        self._upper: dict[str, int] = {}
        self._divisible: set[tuple[Dim, Dim]] = set()
        self._resolved: dict[Dim, Dim] = {}

    def new(self, hint: int | None = None, name: str | None = None) -> DimExpr:
        """A fresh size; its hint is what it is in this call."""
        name = name or next(letter for letter in letters() if letter not in self.taken and letter not in self._birth)
        self._birth.setdefault(name, len(self._birth))
        if hint is not None:
            self.hints[name] = hint
        return symbol(name)

    def declare(self, name: str, hint: int | None = None) -> DimExpr:
        """A size that the user named."""
        self.declared.add(name)
        return self.new(hint, name)

    def bound(self, name: str, low: int, high: int) -> None:
        """Promise ``low <= name <= high``; the calls are checked for it."""
        self._assume("<=", low, symbol(name))
        self._assume("<=", symbol(name), high)

    def resolve(self, d: Dim) -> Dim:
        """`d` as it reads under all facts so far."""
        if isinstance(d, int):
            return d
        found = self._resolved.get(d)
        if found is None:
            found = self._resolved[d] = self._simplified(d)
        return found

    def substituted(self, d: Dim) -> Dim:
        """`d` with the names that are no longer used replaced, and nothing else: a guard must not be read under itself."""
        return substitute(d, self._values)

    def hint(self, d: Dim) -> int | None:
        """The number that `d` is in this call, if known."""
        d = self.resolve(d)
        try:
            return value(d, self.hints)
        except (KeyError, ZeroDivisionError):
            return None

    def is_nonnegative(self, d: Dim) -> bool:
        """Is ``d >= 0`` known, for all sizes that this program is for?"""
        d = self.resolve(d)
        return self._shown(d) or any(self._shown(d - f) for f in self._known)

    def is_equal(self, a: Dim, b: Dim) -> bool:
        """Is ``a == b`` known?"""
        d = self._cancelled(self.resolve(a - b))
        return d == 0 or d in self._zero or any(self.resolve(z) == d for z in self._zero)

    def known(self, relation: str, a: Dim, b: Dim) -> bool | None:
        """Whether the relation holds, if that is known."""
        match relation:
            case "==":
                if self.is_equal(a, b):
                    return True
                d = self._cancelled(self.resolve(a - b))
                if self.is_nonnegative(d) and self.is_nonnegative(-1 * d):
                    return True
                apart = (
                    any(self.resolve(z) == d for z in self._nonzero)
                    or isinstance(d, int)
                    or self.is_nonnegative(d - 1)
                    or self.is_nonnegative(-1 * d - 1)
                )
                return False if apart else None
            case "!=":
                same = self.known("==", a, b)
                return None if same is None else not same
            case "<=":
                return True if self.is_nonnegative(b - a) else False if self.is_nonnegative(a - b - 1) else None
            case "<":
                return self.known("<=", a + 1, b)
            case ">":
                return self.known("<=", b + 1, a)
        return self.known("<=", b, a)

    def decide(self, relation: str, a: Dim, b: Dim, declared: bool = False, default: bool = True) -> bool:
        """Whether the relation holds: known, or as in this call, and then assumed.

        With `declared`, facts about declared sizes may be assumed too; without a hint they are `default`.  Raises
        ShapeError where nothing may be assumed.
        """
        found = self.known(relation, a, b)
        if found is not None:
            return found
        found = self.truth(relation, a, b)
        if not self.may_assume(a - b, declared) or (found is None and not declared):
            hint = INNER_HINT if names(self.resolve(a - b)) & self.inner else HINT
            raise ShapeError(f"whether {self.resolve(a)} {relation} {self.resolve(b)} cannot be decided for all sizes", hint)
        found = default if found is None else found
        opposite = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
        self._assume(relation if found else opposite[relation], a, b)
        return found

    def truth(self, relation: str, a: Dim, b: Dim) -> bool | None:
        """Whether the relation holds for the sizes of this call, if they are known."""
        left, right = self.hint(a), self.hint(b)
        return None if left is None or right is None else HOLDS[relation](left, right)

    def may_assume(self, d: Dim, declared: bool = False) -> bool:
        """May a fact about `d` be assumed at all?"""
        used = names(self.resolve(d))
        return not used & self.inner and (declared or bool(used - self.declared))

    def assume_equal(self, a: Dim, b: Dim) -> None:
        """Take ``a == b`` as a fact (the caller has looked at the hints)."""
        if not self.is_equal(a, b):
            self._assume("==", a, b)

    def _assume(self, relation: str, a: Dim, b: Dim) -> None:
        a, b, found = self.resolve(a), self.resolve(b), user_frame()
        guard = Guard(*_tidy(relation, a, b), Source(*found) if found else None)
        self.assumed.append(guard)
        match relation:
            case "==":
                implied = self._equate(a, b, guard)
            case "!=":
                self._nonzero |= {a - b, b - a}
                implied = False
            case _:
                strict = 1 if relation in ("<", ">") else 0
                implied = self._order(a + strict, b) if relation[0] == "<" else self._order(b + strict, a)
        if not implied:
            self.guards.append(guard)
        self._resolved.clear()

    def _equate(self, a: Dim, b: Dim, guard: Guard) -> bool:
        """Make ``a == b`` known; True if the substitution alone says so (the parameters' types will)."""
        d = a - b
        if self._choose_extreme(d, guard):
            return True
        match d:
            case DimExpr(terms=((((Atom(op="%", left=x, right=y),), _),))):
                self._divisible.add((x, y))
                return False
        solved = self._solve(d)
        if solved is None:
            self._zero |= {d, -1 * d}
            self._known += [d, -1 * d]
            self._resolved.clear()
            simpler = self.resolve(d)
            if isinstance(simpler, DimExpr) and simpler != d:  # the fact itself may have decided a min or max in it
                self._equate(simpler, 0, guard)
            return False
        self._substitute(*solved)
        return True

    def _choose_extreme(self, d: Dim, guard: Guard) -> bool:
        """``s == min(s, 512)`` says no more and no less than ``s <= 512``."""
        for atom in [x for x in atoms(d) if x.op in ("min", "max")]:
            itself = DimExpr((((atom,), 1),))
            other = next((e for k in (1, -1) if atom not in set(atoms(e := itself - k * d))), None)
            if other is None or other not in (atom.left, atom.right):
                continue
            small, large = (other, atom.right if other == atom.left else atom.left)
            if atom.op == "max":
                small, large = large, small
            self._order(small, large)
            self.guards.append(Guard(*_tidy("<=", small, large), guard.source))
            self.assumed[-1] = self.guards[-1]
            return True
        return False

    def _solve(self, d: Dim) -> tuple[str, Dim] | None:
        """A symbol that ``d == 0`` determines as an expression in others: the youngest, preferring what is sure to be >= 0."""
        solutions = []
        for name in sorted(names(d) - self.declared, key=self._birth.__getitem__, reverse=True):
            parts = linear(d, (name,))
            if parts is None or not isinstance(parts[0].get(name), int):
                continue
            factor, rest = parts[0][name], parts[1]
            found = floordiv(-1 * rest, factor) if factor > 0 else floordiv(rest, -factor)
            if found * factor == -1 * rest and name not in names(found):
                solutions.append((name, found))
        solutions.sort(key=lambda s: not self.is_nonnegative(s[1]))
        return solutions[0] if solutions else None

    def _substitute(self, name: str, found: Dim) -> None:
        one = {name: found}
        self._values = {k: substitute(v, one) for k, v in self._values.items()} | one
        self._known = [e for f in self._known if not isinstance(e := substitute(f, one), int)]
        self._zero = {substitute(f, one) for f in self._zero}
        self._nonzero = {substitute(f, one) for f in self._nonzero}
        self._divisible = {(substitute(x, one), substitute(y, one)) for x, y in self._divisible}
        low, high = self._lower.pop(name, 0), self._upper.pop(name, None)
        self._order(low, found)
        if high is not None:
            self._order(found, high)

    def _order(self, small: Dim, large: Dim) -> bool:
        """Make ``small <= large`` known; False, since no type says so."""
        d = large - small
        if isinstance(d, DimExpr) and len(d.terms) <= 2 and (parts := linear(d, tuple(names(d)))) and len(parts[0]) == 1:
            ((name, factor),) = parts[0].items()
            if factor == 1 and isinstance(parts[1], int):
                self._lower[name] = max(self._lower.get(name, 0), -parts[1])
            elif factor == -1 and isinstance(parts[1], int):
                self._upper[name] = min(self._upper.get(name, parts[1]), parts[1])
        if isinstance(d, DimExpr) and not self._shown(d):
            self._known.append(d)
        self._resolved.clear()
        return False

    def _shown(self, d: Dim) -> bool:
        """Shift every size by its lower bound: what remains of it is again any number >= 0."""
        if isinstance(d, int):
            return d >= 0
        used = names(d)
        low = {name: symbol(name) + k for name, k in self._lower.items() if name in used}
        ranges = {name: (0, k - self._lower.get(name, 0)) for name, k in self._upper.items() if name in used}
        return is_nonnegative(substitute(d, low), ranges)

    def _simplified(self, d: DimExpr) -> Dim:
        total: Dim = 0
        for mono, k in d.terms:
            term: Dim = k
            for f in sorted(mono, key=lambda f: isinstance(f, Atom)):
                term = term * self._values.get(f, symbol(f)) if isinstance(f, str) else self._times_atom(term, f)
            total = total + term
        return total

    def _cancelled(self, d: Dim) -> Dim:
        """`d` with ``4*(n//4)`` taken for ``n`` where ``n % 4 == 0`` is known.  For comparing only: the IR knows no such law."""
        if isinstance(d, int) or not self._divisible:
            return d
        total: Dim = 0
        for mono, k in d.terms:
            term = DimExpr(((mono, k),))
            for f in mono:
                if isinstance(f, Atom) and f.op == "//" and (f.left, f.right) in self._divisible:
                    rest = floordiv(term, DimExpr((((f,), 1),)))
                    if (q := floordiv(rest, f.right)) * f.right == rest:
                        term = self._cancelled(q * f.left)
                        break
            total = total + term
        return total

    def _times_atom(self, term: Dim, atom: Atom) -> Dim:
        left, right = self.resolve(atom.left), self.resolve(atom.right)
        match atom.op:
            case "//":
                return term * floordiv(left, right)
            case "%":
                return 0 if (left, right) in self._divisible else term * mod(left, right)
        small, large = (left, right) if atom.op == "min" else (right, left)
        if self.is_nonnegative(right - left):
            return term * small
        if self.is_nonnegative(left - right):
            return term * large
        return term * (minimum if atom.op == "min" else maximum)(left, right)


def _tidy(relation: str, a: Dim, b: Dim) -> tuple[str, Dim, Dim]:
    """The relation with what both sides share taken out and names on the left: ``0 <= n - 2`` is ``n >= 2``."""
    plus, minus, rest = 0, 0, 0
    difference = a - b
    for mono, k in difference.terms if isinstance(difference, DimExpr) else (((), difference),):
        if not mono:
            rest = k
        elif k > 0:
            plus = plus + DimExpr(((mono, k),))
        else:
            minus = minus + DimExpr(((mono, -k),))
    if plus == 0:
        return FLIPPED[relation], minus, rest
    return (relation, plus, minus - rest) if rest <= 0 or minus == 0 else (relation, plus + rest, minus)

"""What one trace knows about the sizes: hints of the call, facts taken from them, and the guards that make them sound.

A fact that equates a bare symbol with an expression becomes a substitution, so the parameters' types imply it; any other
fact becomes a `Guard`.  Declared sizes take no facts, except where `declared=True` says that every call must satisfy them
or fail in NumPy's way.

>>> facts = Facts()
>>> n, m = facts.new(3), facts.new(3)
>>> facts.decide("==", n, m), facts.resolve(m + 1)
(True, n + 1)
>>> from minirelax.ir.dim import minimum
>>> facts.decide("<=", n, 512), facts.resolve(minimum(n, 512)), [(g.left, g.relation, g.right) for g in facts.guards]
(True, n, [(n, '<=', 512)])
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

from minirelax.errors import ShapeError, user_frame
from minirelax.ir.dim import Dim, DimExpr, floordiv, linear, names, substitute, symbol, value
from minirelax.ir.equations import decided_by
from minirelax.ir.graph import Guard, Source
from minirelax.ir.knowledge import OPPOSITE, Knowledge

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
        self.knowledge = Knowledge()  # what follows from them
        self._birth: dict[str, int] = {}

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

    def saved(self) -> Callable[[], None]:
        """What forgets the facts that are taken from here on."""
        known = self.knowledge, len(self.guards), len(self.assumed)

        def restore() -> None:
            self.knowledge, guards, assumed = known
            del self.guards[guards:], self.assumed[assumed:]

        return restore

    def resolve(self, d: Dim) -> Dim:
        """`d` as it reads under all facts so far."""
        return self.knowledge.simplify(d)

    def substituted(self, d: Dim) -> Dim:
        """`d` with the names that are no longer used replaced, and nothing else: a guard must not be read under itself."""
        return substitute(d, self.knowledge.values)

    def hint(self, d: Dim) -> int | None:
        """The number that `d` is in this call, if known."""
        d = self.resolve(d)
        try:
            return value(d, self.hints)
        except (KeyError, ZeroDivisionError):
            return None

    def is_nonnegative(self, d: Dim) -> bool:
        """Is ``d >= 0`` known, for all sizes that this program is for?  What this call refutes needs no search for a proof."""
        return self.truth(">=", d, 0) is not False and self.knowledge.is_nonnegative(d)

    def is_equal(self, a: Dim, b: Dim) -> bool:
        """Is ``a == b`` known?"""
        return self.truth("==", a, b) is not False and self.knowledge.equal(a, b)

    def known(self, relation: str, a: Dim, b: Dim) -> bool | None:
        """Whether the relation holds, if that is known."""
        found = self.truth(relation, a, b)
        if found is None:
            return self.knowledge.prove(relation, a, b)
        return found if self.knowledge.shows(relation if found else OPPOSITE[relation], a, b) else None

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
        self._assume(relation if found else OPPOSITE[relation], a, b)
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
        source = Source(*found) if found else None
        if relation == "==" and (ordered := decided_by(a - b)):  # s == min(s, 512) says no more than s <= 512
            relation, (a, b) = "<=", ordered
        guard = Guard(*_tidy(relation, a, b), source)
        self.assumed.append(guard)
        solved = self._solve(a - b) if relation == "==" else None
        if solved:  # the parameters' types will say so
            self.knowledge = self.knowledge.replacing(*solved)
        else:
            self.guards.append(guard)
            self.knowledge = self.knowledge.assuming(relation, a, b)

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

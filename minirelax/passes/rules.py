"""Rewrite rules, written as two functions of the same variables: a pattern and its replacement.

    @rule(lambda x: Negative(Negative(x)))
    def double_negative(x):
        return x

A variable matches an operand or an attribute; the same variable twice means equal values; a Python number stands for a
constant of any dtype.  The replacement is an atom, an op (whose operands may be ops again), or None to decline.  It
is used only where its type is the one that was there, so a rule need not think about broadcasting.

What fits no pattern of one tree is written as a plain function of an op and the definitions of all values so far, which
returns the same things as a replacement does (`rewrite`'s `functions`).

Rules are tried in program order on bindings whose operands are already rewritten; a binding is rewritten until no rule
fits.  That makes one walk, linear in the program.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

from minirelax.errors import CompileError
from minirelax.ir.graph import Atom, Binding, Const, Dataflow, Expr, Function, Var, fresh_names
from minirelax.ir.op import Op
from minirelax.ir.types import Type

LIMIT = 16  # rewrites of one binding: far above what algebra needs, a bound on rules that undo each other


@dataclass(frozen=True)
class Hole:
    """A variable of a pattern."""

    name: str


@dataclass(frozen=True)
class Rule:
    """A pattern (an op whose fields may be holes, numbers or patterns) and what builds its replacement."""

    name: str
    pattern: Op
    build: Callable[..., object]


def rule(pattern: Callable[..., Op]) -> Callable[[Callable], Rule]:
    """Decorator: the decorated function builds what replaces `pattern`; see the module's docstring."""
    holes = [Hole(p) for p in inspect.signature(pattern).parameters]

    def decorate(build: Callable[..., object]) -> Rule:
        return Rule(build.__name__, pattern(*holes), build)

    return decorate


def rewrite(function: Function, rules: tuple[Rule, ...], functions: tuple[Callable[..., object], ...] = ()) -> Function:
    """`function` with every binding of its dataflow blocks rewritten by the rules; values keep their names."""
    return _Rewriter(function, rules, functions).run()


def match(pattern: object, value: object, definitions: dict[Var, Expr], found: dict[str, object]) -> bool:
    """Does `value` have the form of `pattern`?  Fills `found` with what the holes stand for."""
    match pattern:
        case Hole(name=name):
            return found.setdefault(name, value) == value
        case Op():
            node = definitions.get(value) if isinstance(value, Var) else value
            return type(node) is type(pattern) and all(
                match(getattr(pattern, f.name), getattr(node, f.name), definitions, found) for f in fields(node)
            )
        case tuple() if isinstance(value, tuple):
            pairs = zip(pattern, value, strict=False)
            return len(value) == len(pattern) and all(match(p, v, definitions, found) for p, v in pairs)
        case int() | float() if isinstance(value, Const):
            if isinstance(value.value, complex):  # no law of a number holds for complex ones without a thought
                return False
            return value.value == pattern and math.copysign(1, value.value) == math.copysign(1, pattern)
    return pattern == value


class _Rewriter:
    """One walk over one function."""

    def __init__(self, function: Function, rules: tuple[Rule, ...], functions: tuple[Callable[..., object], ...]):
        self.function, self.functions = function, functions
        self.rules: dict[type, list[Rule]] = {}
        for r in rules:
            self.rules.setdefault(type(r.pattern), []).append(r)
        self.names = fresh_names(function)
        self.definitions: dict[Var, Expr] = {}
        self.alias: dict[Var, Atom] = {}
        self.changed = False

    def run(self) -> Function:
        body = tuple(self._block(part) if isinstance(part, Dataflow) else self._effect(part) for part in self.function.body)
        return replace(self.function, body=body, result=self._read(self.function.result)) if self.changed else self.function

    def _read(self, atom: Atom) -> Atom:
        return self.alias.get(atom, atom) if isinstance(atom, Var) else atom

    def _effect(self, binding: Binding) -> Binding:
        return replace(binding, value=binding.value.map_operands(self._read)) if self.alias else binding

    def _block(self, block: Dataflow) -> Dataflow:
        out: list[Binding] = []
        for binding in block.bindings:
            inner: list[Binding] = []
            value = self._rewrite(binding.value.map_operands(self._read) if self.alias else binding.value, binding, inner)
            if isinstance(value, Var | Const):
                self.alias[binding.var], self.changed = value, True
                continue
            self.changed |= value is not binding.value
            self.definitions[binding.var] = value
            out += [*inner, replace(binding, value=value) if value is not binding.value else binding]
        if not self.changed:
            return block
        here = {b.var for b in out}
        outputs = dict.fromkeys(v for v in map(self._read, block.outputs) if v in here)
        return Dataflow(tuple(out), tuple(outputs))

    def _rewrite(self, value: Expr, binding: Binding, inner: list[Binding]) -> Expr | Atom:
        for _ in range(LIMIT):
            new = self._first_fit(value, binding.var.type)
            if new is None or isinstance(new, Var | Const):
                return value if new is None else new
            value = new.map_operands(lambda a: self._named(a, binding, inner))
        return value

    def _first_fit(self, value: Expr, wanted: Type) -> Expr | Atom | None:
        for new in self._proposals(value):
            if new is not None and new != value and _type(new) == wanted:
                return new
        return None

    def _proposals(self, value: Expr) -> Iterator[Expr | Atom | None]:
        for r in self.rules.get(type(value), ()):
            found: dict[str, object] = {}
            if match(r.pattern, value, self.definitions, found):
                yield r.build(**found)
        for propose in self.functions:
            yield propose(value, self.definitions)

    def _named(self, operand: Atom | Op, binding: Binding, inner: list[Binding]) -> Atom:
        """An operand that is an op again gets a binding of its own."""
        if isinstance(operand, Var | Const):
            return operand
        value = operand.map_operands(lambda a: self._named(a, binding, inner))
        var = Var(next(self.names), _type(value))
        self.definitions[var] = value
        inner.append(Binding(var, value, binding.source))
        return var


def _type(value: Expr | Atom) -> Type | None:
    """The type of an atom or of a tree of ops; None where the ops do not fit together."""
    if isinstance(value, Var | Const):
        return value.type
    try:
        return value.infer(*map(_type, value.operands()))
    except CompileError:
        return None

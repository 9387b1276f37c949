"""Patterns of several ops, written as functions of variables, and where a program has them.

    lambda x, w, b: Maximum(Add(Matmul(x, w), b), 0)

A pattern is matched backwards, from the binding of its outermost op through the values that it reads; what a pattern may hold
is said in `minirelax.passes.rules`.  A tuple of functions is a pattern with alternatives: the first that fits counts.

A match is a *region*, bindings that can be replaced together: nothing outside of them reads what they compute, except for the
last.  That one stays where it is, and the others move down to it, so no value is used before it exists, and no binding moves
above a `match_cast` that binds one of its sizes.

>>> from minirelax.ir.parser import parse
>>> from minirelax.ops.arithmetic import Add
>>> from minirelax.ops.transcendental import Exp
>>> module = parse('''
... def main(x: f32[n], y: f32[n]) -> f32[n]:
...     with dataflow():
...         v0: f32[n] = exp(x)
...         v1: f32[n] = exp(y)
...         v2: f32[n] = add(v0, x)
...         v3: f32[n] = add(v1, v2)
...         v4: f32[n] = add(v1, v3)
...         output(v4)
...     return v4''')
>>> pattern, uses = Pattern.of("exp_plus", lambda a, b: Add(Exp(a), b)), DefUse(module["main"], module)
>>> bindings = module["main"].bindings
>>> found = uses.match(pattern, bindings[2])
>>> found["a"], found["b"], [b.var.name for b in found.bindings], found.escaping
(Var(name='x', type=f32[n]), Var(name='x', type=f32[n]), ['v0', 'v2'], ())
>>> uses.match(pattern, bindings[3]).escaping                # v4 reads v1, too
(Var(name='v1', type=f32[n]),)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from minirelax.errors import ArgumentError, CompileError, line_text
from minirelax.ir.graph import Atom, Binding, Const, Dataflow, Expr, Function, Module, Var
from minirelax.ir.op import Op
from minirelax.ir.printer import print_binding
from minirelax.passes.rules import Hole, match

AS_A_PATTERN = "a pattern is a function of its variables that returns an op: lambda x, w: Maximum(Matmul(x, w), 0)"


@dataclass(frozen=True)
class Pattern:
    """Alternatives: each an op whose fields may be holes, numbers or ops again, and the variables of it, in order."""

    alternatives: tuple[tuple[Op, tuple[str, ...]], ...]

    @staticmethod
    def of(rule: str, given: Callable[..., Op] | tuple[Callable[..., Op], ...]) -> Pattern:
        """The pattern of the rule of that name.  Raises ArgumentError, naming the rule, for what makes no pattern."""
        functions = given if isinstance(given, tuple) else (given,)
        if not functions:
            raise ArgumentError(f"rule {rule}: it has no pattern", AS_A_PATTERN)
        return Pattern(tuple(_alternative(rule, f) for f in functions))


def _alternative(rule: str, function: Callable[..., Op]) -> tuple[Op, tuple[str, ...]]:
    if not callable(function):
        raise ArgumentError(f"rule {rule}: its pattern is no function: {function!r}", AS_A_PATTERN)
    try:
        variables = tuple(inspect.signature(function).parameters)
        pattern = function(*map(Hole, variables))
    except Exception as e:
        raise ArgumentError(f"rule {rule}: its pattern raised {type(e).__name__}: {e}", AS_A_PATTERN) from e
    if not isinstance(pattern, Op):
        raise ArgumentError(f"rule {rule}: its pattern returned {type(pattern).__name__}, not an op", AS_A_PATTERN)
    return pattern, variables


@dataclass(frozen=True)
class Match:
    """A place where a program has a pattern: ``match["x"]`` is what the variable `x` stands for, an atom or an attribute.

    `bindings` are those that matched, in program order, the `root` last; `escaping`, the values of the others that are read
    elsewhere.
    """

    root: Binding
    bindings: tuple[Binding, ...]
    found: Mapping[str, object]
    escaping: tuple[Var, ...]
    uses: DefUse = field(repr=False, compare=False)

    def __getitem__(self, variable: str) -> object:
        return self.found[variable]

    @property
    def atoms(self) -> tuple[Atom, ...]:
        """What the variables stand for, in their order, without attributes."""
        return tuple(a for value in self.found.values() for a in _atoms(value))

    def definition(self, atom: Atom) -> Expr | None:
        """What computes a value; None for parameters, constants and literals."""
        return self.uses.definitions.get(atom)

    def readers(self, atom: Atom) -> tuple[Binding, ...]:
        """All bindings of the function that read a value."""
        return tuple(self.uses.readers.get(atom, ()))

    def is_weight(self, atom: Atom) -> bool:
        """Is this a constant, or a parameter that is fixed when the program is bound?"""
        return isinstance(atom, Const) or atom in self.uses.weights


class DefUse:
    """Who computes each value of a function, and who reads it."""

    def __init__(self, function: Function, module: Module):
        self.weights = {*function.bound, *(c.var for c in module.constants)}
        self.made = {b.var: (i, b) for i, b in enumerate(function.bindings) if b.var is not None}
        self.definitions: dict[Var, Expr] = {v: b.value for v, (_, b) in self.made.items()}
        self.readers: dict[Atom, list[Binding]] = {}
        self.leaving: set[Atom] = {function.result}
        for b in function.bindings:
            for a in dict.fromkeys(b.value.operands()):
                self.readers.setdefault(a, []).append(b)
        for part in function.body:
            if isinstance(part, Dataflow):
                self.leaving.update(part.outputs)

    def match(self, pattern: Pattern, root: Binding, inside: Mapping[Var, Expr] | None = None) -> Match | None:
        """The match that ends with `root`, if there is one; all it is made of is in `inside`, by default in the function."""
        for op, variables in pattern.alternatives:
            followed, found = _Followed(self.definitions if inside is None else inside), {}
            if type(op) is type(root.value) and match(op, root.value, followed, found):
                return self._match(root, list(followed.values), {v: found[v] for v in variables if v in found})
        return None

    def _match(self, root: Binding, inner: list[Var], found: dict[str, object]) -> Match:
        region = {v: self.made[v] for v in (*inner, root.var)}
        bindings = tuple(b for _, b in sorted(region.values(), key=lambda place: place[0]))
        escaping = (v for v in inner if v in self.leaving or any(r.var not in region for r in self.readers[v]))
        return Match(root, bindings, found, tuple(escaping), self)


class _Followed:
    """Definitions that remember which were asked for: in a match that holds, those of the values inside the pattern."""

    def __init__(self, definitions: Mapping[Var, Expr]):
        self.definitions, self.values = definitions, {}

    def get(self, var: Var) -> Expr | None:
        self.values[var] = None
        return self.definitions.get(var)


@contextmanager
def blaming(rule: str, part: str, binding: Binding) -> Iterator[None]:
    """What a user's function raises in here becomes a CompileError that names the rule, the binding and the user's line."""
    try:
        yield
    except Exception as e:
        what = f"rule {rule}: its {part} raised {type(e).__name__}: {e}"
        source = binding.source.leaves[-1] if binding.source else None
        where = line_text(source.file, source.line) if source else ""
        raise CompileError(what, f"it looked at {print_binding(binding)}", where) from e


def _atoms(value: object) -> tuple[Atom, ...]:
    """An atom, or the atoms of a tuple of atoms; nothing for an attribute."""
    if isinstance(value, tuple):
        return tuple(a for item in value for a in _atoms(item))
    return (value,) if isinstance(value, Var | Const) else ()

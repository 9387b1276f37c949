"""The program being traced: its bindings, names, constants and facts, and which trace is running in this thread.

Every value gets its name when it is born (``v0``, ``v1``, ...) and its binding remembers the user's line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from minirelax.errors import ArgumentError, CompileError, DTypeError, ShapeError, user_frame
from minirelax.frontend.facts import Facts
from minirelax.frontend.size import Size
from minirelax.ir.dim import Dim, DimExpr
from minirelax.ir.graph import Array, Atom, Binding, Const, Constant, Expr, MatchCast, Source, TupleItem, Var
from minirelax.ir.op import Op, map_dims
from minirelax.ir.types import Tensor, Tuple, Type, dtype_name
from minirelax.ops import OPS

if TYPE_CHECKING:
    from minirelax.frontend.array import TracedArray

_running = threading.local()


class Builder:
    """Collects what one trace does."""

    def __init__(self, taken: frozenset[str] = frozenset()):
        self.facts = Facts(taken)
        self.bindings: list[Binding] = []
        self.constants: list[Constant] = []
        self.user_sizes: dict[str, Dim] = {}  # the user's letters -> our sizes
        self.memory: dict[object, object] = {}  # results that must not be computed twice, such as the indices of a mask
        self.seen: list[tuple[Type, ...]] = []  # for each binding, its operands' types when it was made
        self.closed = False
        self._taken = {"inf", "nan"}
        self._count = 0
        self._by_identity: dict[int, tuple[np.ndarray, Atom]] = {}

    def unique(self, wanted: str) -> str:
        """`wanted`, or with a number appended if that name is taken; taken from now on."""
        name, i = wanted, 2
        while name in self._taken:
            name, i = f"{wanted}_{i}", i + 1
        self._taken.add(name)
        return name

    def emit(self, expr: Expr) -> Var | tuple[Var, ...]:
        """Bind the value of an expression; several variables for an op with several results."""
        if self.closed:
            raise ArgumentError(
                "a traced array was used after its trace had ended",
                "return arrays from the traced function; do not store them elsewhere",
            )
        expr = self._resolved(expr)
        types = self.infer(expr)
        if not isinstance(types, tuple):
            return self.bind(expr, types)
        whole = self.bind(expr, Tuple(types))
        return tuple(self.bind(TupleItem(whole, i), t) for i, t in enumerate(types))

    def op(self, name: str, *operands: Atom | tuple[Atom, ...], **attributes: object) -> Var | tuple[Var, ...]:
        """Bind the op with this name."""
        return self.emit(OPS[name](*operands, **attributes))

    def bind(self, expr: Expr, type_: Type) -> Var:
        """Bind an expression whose type is known."""
        found = user_frame()
        var = Var(self.fresh(), type_)
        self.seen.append(tuple(map(self.type_of, expr.operands())))
        self.bindings.append(Binding(var, expr, Source(*found) if found else None))
        return var

    def infer(self, expr: Expr) -> Type | tuple[Type, ...]:
        """The type (or types) of an expression on operands as they are known now."""
        if isinstance(expr, MatchCast):
            return expr.type
        try:
            return expr.infer(*(self.type_of(a) for a in expr.operands()))
        except CompileError as e:
            raise type(e)(e.what, e.hint) from None  # again, with the user's line

    def type_of(self, atom: Atom) -> Type:
        """The type of a value under all facts so far."""
        return self.resolve_type(atom.type)

    def resolve_type(self, type_: Type) -> Type:
        """`type_` under all facts so far."""
        match type_:
            case Tensor(dtype=dtype, shape=tuple() as shape) if any(isinstance(d, DimExpr) for d in shape):
                return Tensor(dtype, tuple(d if d is None else self.facts.resolve(d) for d in shape))
            case Tuple(items=items):
                return Tuple(tuple(map(self.resolve_type, items)))
        return type_

    def constant(self, value: np.ndarray | np.generic) -> Atom:
        """An array that the user's function refers to: a scalar in place, or a constant of the module (each kept once)."""
        known = self._by_identity.get(id(value))
        if known is not None:
            return known[1]
        name = dtype_name(value.dtype)
        if name is None:
            raise DTypeError(
                f"a constant of dtype {value.dtype} cannot be compiled", "use bool, an integer type, float32 or float64"
            )
        atom = Const(value.item(), name) if value.ndim == 0 else self._constant(Array(value))
        self._by_identity[id(value)] = (value, atom)  # keeps the array alive, so that its id stays its own
        return atom

    def size(self, d: Dim) -> Size | int:
        """What the user sees of a size."""
        d = self.facts.resolve(d)
        return d if isinstance(d, int) else Size(d, self)

    def number(self, d: Dim) -> TracedArray:
        """A size as a scalar that mixes with arrays as a Python integer would."""
        from minirelax.frontend.array import TracedArray

        d = self.facts.resolve(d)
        atom = Const(d, "i64") if isinstance(d, int) else self.op("size", size=d)
        return TracedArray(self, atom, weak=int)

    def dims(self, sizes) -> tuple[Dim, ...]:
        """Sizes as users give them, as sizes of the IR."""
        return tuple(self.facts.resolve(s.dim) if isinstance(s, Size) else s.__index__() for s in sizes)

    def meaning(self, atom: Atom) -> object:
        """What a value is, such that equal computations on equal values are equal: for `memory`."""
        return (
            next((b.value for b in reversed(self.bindings) if b.var.name == atom.name), atom) if isinstance(atom, Var) else atom
        )

    def finished_bindings(self) -> tuple[tuple[Binding, ...], dict[str, Var]]:
        """All bindings as they read under the final facts, and every variable's final form."""
        final: dict[str, Var] = {}

        def latest(atom: Atom) -> Atom:
            return final.get(atom.name) or replace(atom, type=self.resolve_type(atom.type)) if isinstance(atom, Var) else atom

        done: list[Binding] = []
        for b, seen in zip(self.bindings, self.seen, strict=True):
            expr = self._resolved(b.value).map_operands(latest)
            try:
                type_ = expr.infer(*(a.type for a in expr.operands())) if isinstance(expr, Op) else self.resolve_type(b.var.type)
            except ShapeError:
                expr = self._as_seen(b, latest, seen, done)
                type_ = expr.infer(*(a.type for a in expr.operands()))
            final[b.var.name] = Var(b.var.name, Tuple(type_) if isinstance(type_, tuple) else type_)
            done.append(replace(b, var=final[b.var.name], value=expr))
        return tuple(done), final

    def _as_seen(self, b: Binding, latest: Callable[[Atom], Atom], seen: tuple[Type, ...], done: list[Binding]) -> Expr:
        """The expression on operands with the sizes that they had when it was made, which fitted.

        Facts taken since may simplify two expressions of one size differently; a match_cast makes them one again.
        """
        types = {a: t for a, t in zip(b.value.operands(), seen, strict=True) if isinstance(t, Tensor)}

        def cast(atom: Atom) -> Atom:
            if atom not in types or isinstance(atom, Const):
                return latest(atom)
            shape = tuple(map(self.facts.substituted, types[atom].shape))
            var = Var(self.fresh(), Tensor(types[atom].dtype, shape))
            done.append(Binding(var, MatchCast(latest(atom), var.type), b.source))
            return var

        return map_dims(b.value, self.facts.substituted).map_operands(cast)

    def _resolved(self, expr: Expr) -> Expr:
        if isinstance(expr, MatchCast):
            return replace(expr, type=self.resolve_type(expr.type))
        return map_dims(expr, self.facts.resolve)

    def fresh(self) -> str:
        """The next name for a value."""
        while (name := f"v{self._count}") in self._taken:
            self._count += 1
        self._count += 1
        return name

    def _constant(self, array: Array) -> Var:
        for c in self.constants:
            if c.array == array:
                return c.var
        self.constants.append(Constant(self.unique(f"c{len(self.constants)}"), array))
        return self.constants[-1].var


def active() -> Builder | None:
    """The trace that runs in this thread, if any."""
    stack = getattr(_running, "stack", None)
    return stack[-1] if stack else None


@contextmanager
def tracing(builder: Builder) -> Iterator[Builder]:
    """Make `builder` the running trace of this thread."""
    if not hasattr(_running, "stack"):
        _running.stack = []
    _running.stack.append(builder)
    try:
        yield builder
    finally:
        _running.stack.pop()
        builder.closed = True

"""The program being traced: its bindings, names, constants and facts, and which trace is running in this thread.

Every value gets its name when it is born (``v0``, ``v1``, ...) and its binding remembers the user's line.  It goes to the scope
that is current: that of the traced function, or of a branch or a loop's body in it.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from minirelax.errors import ArgumentError, CompileError, DTypeError, user_frame
from minirelax.frontend.facts import Facts
from minirelax.frontend.parts import Parts
from minirelax.frontend.scope import Scope
from minirelax.frontend.size import Size
from minirelax.ir.dim import Dim, DimExpr
from minirelax.ir.graph import (
    Array,
    Atom,
    Binding,
    CallKernel,
    Const,
    Constant,
    Expr,
    MakeShape,
    MatchCast,
    Module,
    Source,
    TupleItem,
    Var,
)
from minirelax.ir.infer import infer_binding
from minirelax.ir.loop import Kernel
from minirelax.ir.op import map_dims
from minirelax.ir.types import Shape, Tensor, Tuple, Type, dtype_name
from minirelax.ops import OPS

if TYPE_CHECKING:
    from minirelax.frontend.array import TracedArray

VALUE = re.compile(r"v\d+")  # what values are called
_running = threading.local()


class Builder:
    """Collects what one trace does."""

    def __init__(self, taken: frozenset[str] = frozenset(), parts: Parts | None = None):
        self.facts = Facts(taken)
        self.scope = Scope()
        self.parts = Parts() if parts is None else parts
        self.closed = False
        self._taken = {"inf", "nan"}
        self._count = 0

    @property
    def constants(self) -> list[Constant]:
        """Those of the module."""
        return self.parts.constants

    @property
    def kernels(self) -> list[Kernel]:
        """Those of the module that the user wrote."""
        return self.parts.kernels

    @property
    def bindings(self) -> list[Binding]:
        """Those of the current scope."""
        return self.scope.bindings

    @property
    def user_sizes(self) -> MutableMapping[str, Dim]:
        """The user's letters -> our sizes; new ones are known in the current scope."""
        return self.scope.user_sizes

    @property
    def memory(self) -> MutableMapping[object, object]:
        """Results that must not be computed twice, such as the indices of a mask; new ones are known in the current scope."""
        return self.scope.memory

    @contextmanager
    def inside(self, scope: Scope) -> Iterator[Scope]:
        """Make `scope` the current one."""
        outer, was_open = self.scope, scope.open
        self.scope, scope.open = scope, True
        try:
            yield scope
        finally:
            self.scope, scope.open = outer, was_open

    def attempt(self) -> Callable[[], None]:
        """What undoes everything traced from here on in new scopes, and the facts taken for it."""
        known, restore, forget = (set(self._taken), self._count, self._length()), self.parts.saved(), self.facts.saved()

        def undo() -> None:
            self._taken, count, length = known
            restore()
            if self._length() == length:  # else views were read anew out here: their names are in use, and the facts, too
                self._count = count
                forget()

        return undo

    def _length(self) -> int:
        return sum(len(scope.bindings) for scope in self.scope.outwards())

    def inner_size(self, name: str | None = None) -> DimExpr:
        """A fresh size that is known only while running, in the current scope."""
        size = self.facts.new(None, name)
        self.facts.inner.add(str(size))
        self.scope.sizes.add(str(size))
        return size

    def unique(self, wanted: str) -> str:
        """`wanted`, or with a number appended if that name is taken; taken from now on."""
        name = _free(wanted, self._taken, self.parts.names)
        self._taken.add(name)
        self.parts.local.add(name)
        return name

    def emit(self, expr: Expr) -> Var | tuple[Var, ...]:
        """Bind the value of an expression; several variables for an op with several results."""
        if self.closed:
            raise ArgumentError(
                "a traced array was used after its trace had ended",
                "return arrays from the traced function; do not store them elsewhere",
            )
        expr = self.resolved(expr)
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
        self.scope.seen.append(tuple(map(self.type_of, expr.operands())))
        self.scope.bindings.append(Binding(var, expr, Source(*found) if found else None))
        return var

    def infer(self, expr: Expr) -> Type | tuple[Type, ...]:
        """The type (or types) of an expression on operands as they are known now."""
        if isinstance(expr, MatchCast):
            return expr.type
        if isinstance(expr, MakeShape):
            return Shape(expr.values)
        try:
            if isinstance(expr, CallKernel):
                current = expr.map_operands(lambda a: replace(a, type=self.type_of(a)))
                found = infer_binding(current, Module((), tuple(self.kernels)))
                return found.items if isinstance(found, Tuple) else found
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
            case Shape(values=tuple() as values):
                return Shape(tuple(map(self.facts.resolve, values)))
            case Tuple(items=items):
                return Tuple(tuple(map(self.resolve_type, items)))
        return type_

    def constant(self, value: np.ndarray | np.generic) -> Atom:
        """An array that the user's function refers to: a scalar in place, or a constant of the module (each kept once)."""
        known = self.parts.by_identity.get(id(value))
        if known is not None:
            return known[1]
        name = dtype_name(value.dtype)
        if name is None:
            raise DTypeError(
                f"a constant of dtype {value.dtype} cannot be compiled",
                "use bool, an integer type, float32, float64, complex64 or complex128"
            )
        atom = Const(value.item(), name) if value.ndim == 0 else self._constant(Array(value))
        self.parts.by_identity[id(value)] = (value, atom)  # keeps the array alive, so that its id stays its own
        return atom

    def kernel(self, kernel: Kernel) -> str:
        """The name under which the module has a kernel: its own, unless another one has that."""
        for known in self.kernels:
            if replace(known, name=kernel.name) == kernel:
                return known.name
        self.kernels.append(replace(kernel, name=self.function_name(kernel.name)))
        return self.kernels[-1].name

    def function_name(self, wanted: str) -> str:
        """A name for a function, kernel or constant of the module, like the one that is wanted."""
        name = _free(f"{wanted}_" if VALUE.fullmatch(wanted) else wanted, self._taken, self.parts.names, self.parts.local)
        self.parts.names.add(name)
        return name

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
        if not isinstance(atom, Var):
            return atom
        bindings = (b for scope in self.scope.outwards() for b in reversed(scope.bindings))
        return next((b.value for b in bindings if b.var.name == atom.name), atom)

    def resolved(self, expr: Expr) -> Expr:
        """`expr` with its sizes as they read under all facts so far."""
        if isinstance(expr, MatchCast):
            return replace(expr, type=self.resolve_type(expr.type))
        return map_dims(expr, self.facts.resolve)

    def fresh(self) -> str:
        """The next name for a value."""
        while (name := f"v{self._count}") in self._taken:  # no function or constant has such a name
            self._count += 1
        self._count += 1
        return name

    def _constant(self, array: Array) -> Var:
        for c in self.constants:
            if c.array == array:
                return c.var
        self.constants.append(Constant(self.function_name(f"c{len(self.constants)}"), array))
        return self.constants[-1].var


def _free(wanted: str, *taken: set[str]) -> str:
    """The name that is wanted, or with the first number after it that makes it a new one."""
    name, i = wanted, 2
    while any(name in names for names in taken):
        name, i = f"{wanted}_{i}", i + 1
    return name


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

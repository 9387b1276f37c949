"""Make every size that is used at run time a slot of the shape heap, and every shape check a statement.

At entry, `match_shape` compares each parameter's sizes with its type, those of arrays inside tuples and the entries of shapes
too, binding names on first sight.  Sizes like ``n + 1`` never bind `n`: they are looked at only in a second round, when `n` is
known (Relax, section 4.7).  Then every expression that can be known by now is evaluated once, into a slot of its own; and
likewise after each `match_cast`, which is such a statement itself.  Where a function declares a result with other sizes than
its type shows, the last statements compare them.

Slots are numbered in the order of these statements, one for each name that is bound and one for each ``heap[...]``;
`heap_slots` reads them back.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: Tuple[f32[m, n + 1], f32[n, 2]], s: Shape([n, k])) -> f32[2*m, k]:
...     v0: f32[2*m, n] = alloc_tensor()
...     return v0''')
>>> print(bind_shapes(before)["main"])
def main(x: Tuple[f32[m, n + 1], f32[n, 2]], s: Shape([n, k])) -> f32[2*m, k]:
    v1: f32[m, n + 1] = x[0]
    v2: f32[n, 2] = x[1]
    match_shape(v1, (m, _), binds=("m",))
    match_shape(v2, (n, 2), binds=("n",))
    match_shape(s, (n, k), binds=("k",))
    heap[3] = n + 1
    heap[4] = 2*m
    match_shape(v1, (m, n + 1))
    v0: f32[2*m, n] = alloc_tensor()
    match_shape(v0, (2*m, k))
    return v0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minirelax.ir.dim import Dim, DimExpr, names, symbol
from minirelax.ir.graph import (
    AllocStorage,
    AllocTensor,
    Binding,
    Dataflow,
    Function,
    Heap,
    MatchCast,
    MatchShape,
    Module,
    TupleItem,
    Var,
    View,
    fresh_names,
)
from minirelax.ir.lattice import Compatibility, bare_name, compatibility
from minirelax.ir.types import Shape, Tensor, Tuple, Type, symbols
from minirelax.passes.base import BIND


def bind_shapes(module: Module) -> Module:
    """`module` with shape checks and size computations as statements, in all functions without dataflow blocks."""
    return replace(
        module,
        functions=tuple(
            f if f.name == BIND or any(isinstance(p, Dataflow) for p in f.body) else _Heap(f).run() for f in module.functions
        ),
    )


def heap_slots(function: Function) -> dict[Dim, int]:
    """The slot of every size that the function computes, after `bind_shapes`."""
    slots: dict[Dim, int] = {}
    for b in function.bindings:
        match b.value:
            case MatchShape(pattern=pattern):
                patterns = [pattern]
            case MatchCast(type=type_):
                patterns = list(_patterns(type_))
            case Heap(slot=slot, value=value):
                slots[value], patterns = slot, []
            case _:
                patterns = []
        for name in (n for p in patterns for n in _bare_names(p)):
            slots.setdefault(symbol(name), len(slots))
    return slots


class _Heap:
    """The slots given so far, while the statements are written."""

    def __init__(self, function: Function):
        self.function = function
        self.names = fresh_names(function)
        self.slots: dict[Dim, int] = {}
        self.waiting = list(dict.fromkeys(d for d in _used_sizes(function) if isinstance(d, DimExpr)))
        self.out: list[Binding] = []

    def run(self) -> Function:
        """The function with its checks as statements."""
        params = [leaf for v in (*self.function.params, *self.function.bound) if symbols(v.type) for leaf in self._leaves(v)]
        later = self._match_parameters([v for v in params if symbols(v.type)])
        self._evaluate()
        for v in later:
            self._match(v, _pattern(v.type))
        for b in self.function.body:
            self.out.append(b)
            if isinstance(b.value, MatchCast):
                for pattern in _patterns(b.value.type):
                    self._bind(pattern)
                self._evaluate()
        if self.function.returns is not None and isinstance(self.function.result, Var):
            self._match_result(self.function.result, self.function.returns)
        return replace(self.function, body=tuple(self.out))

    def _leaves(self, value: Var) -> Iterator[Var]:
        """The arrays and shapes inside a value, each with a name."""
        if not isinstance(value.type, Tuple):
            yield value
            return
        for i, type_ in enumerate(value.type.items):
            item = Var(next(self.names), type_)
            self.out.append(Binding(item, TupleItem(value, i)))
            yield from self._leaves(item)

    def _match_parameters(self, params: list[Var]) -> list[Var]:
        """The first round: sizes that are known or bare names.  Gives the parameters that have to be looked at again."""
        plain = {v for v in params if all(d is None or isinstance(d, int) or bare_name(d) for d in _pattern(v.type))}
        shown = {n for v in plain for n in _bare_names(_pattern(v.type))}
        for v in params:
            pattern = tuple(d if isinstance(d, int) or bare_name(d) else None for d in _pattern(v.type))
            if v in plain or not shown.issuperset(_bare_names(pattern)):
                self._match(v, pattern)
                shown.update(_bare_names(pattern))
        return [v for v in params if v not in plain]

    def _match_result(self, value: Var, declared: Type) -> None:
        """Compare what the function returns with what it declares, where the type does not show that they are the same."""
        match value.type, declared:
            case (Tensor(), Tensor(shape=tuple() as pattern)) | (Shape(), Shape(values=tuple() as pattern)):
                if compatibility(declared, value.type) is not Compatibility.PASS:
                    self._match(value, pattern)
            case Tuple(items=items), Tuple(items=wanted):
                for i, (type_, want) in enumerate(zip(items, wanted, strict=False)):
                    if compatibility(want, type_) is not Compatibility.PASS:
                        item = Var(next(self.names), type_)
                        self.out.append(Binding(item, TupleItem(value, i)))
                        self._match_result(item, want)

    def _match(self, value: Var, pattern: tuple[Dim | None, ...]) -> None:
        self.out.append(Binding(None, MatchShape(value, pattern, self._bind(pattern))))

    def _bind(self, pattern: tuple[Dim | None, ...]) -> tuple[str, ...]:
        binds = tuple(n for n in _bare_names(pattern) if symbol(n) not in self.slots)
        for name in binds:
            self.slots[symbol(name)] = len(self.slots)
        return binds

    def _evaluate(self) -> None:
        """Give a slot to every waiting expression whose names are known."""
        still = []
        for d in self.waiting:
            if d in self.slots:
                continue
            if bare_name(d) or not all(symbol(n) in self.slots for n in names(d)):
                still.append(d)
                continue
            self.slots[d] = len(self.slots)
            self.out.append(Binding(None, Heap(self.slots[d], d)))
        self.waiting = still


def _bare_names(pattern: tuple[Dim | None, ...]) -> tuple[str, ...]:
    """The names that stand alone in a pattern, each once."""
    return tuple(dict.fromkeys(n for d in pattern if (n := bare_name(d))))


def _pattern(type_: Type) -> tuple[Dim | None, ...]:
    """The sizes of an array, or the entries of a shape."""
    match type_:
        case Tensor(shape=tuple() as dims) | Shape(values=tuple() as dims):
            return dims
    return ()


def _patterns(type_: Type) -> Iterator[tuple[Dim | None, ...]]:
    """The sizes of the arrays and shapes inside a value."""
    if isinstance(type_, Tuple):
        for item in type_.items:
            yield from _patterns(item)
    else:
        yield _pattern(type_)


def _used_sizes(function: Function) -> Iterator[Dim]:
    """The sizes that checks, allocations, views and calls need, in order."""
    for v in (*function.params, *function.bound):
        yield from _dims(v.type)
    for b in function.bindings:
        if isinstance(b.value, AllocTensor | View | MatchCast):
            yield from _dims(b.var.type)
        elif isinstance(b.value, AllocStorage):
            yield b.value.bytes
        for attribute in b.value.attributes().values():
            yield from _inside(attribute)
    if function.returns is not None:
        yield from _dims(function.returns)


def _dims(type_: Type) -> Iterator[Dim]:
    yield from (d for pattern in _patterns(type_) for d in pattern if d is not None)


def _inside(attribute: object) -> Iterator[Dim]:
    if isinstance(attribute, DimExpr):
        yield attribute
    elif isinstance(attribute, tuple):
        for item in attribute:
            yield from _inside(item)

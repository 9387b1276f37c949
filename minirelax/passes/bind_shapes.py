"""Make every size that is used at run time a slot of the shape heap, and every shape check a statement.

At entry, `match_shape` compares each parameter's sizes with its type, binding names on first sight.  Sizes like ``n + 1``
never bind `n`: a parameter with such a size is looked at only in a second round, when `n` is known (Relax, section 4.7).
Then every expression that can be known by now is evaluated once, into a slot of its own; and likewise after each
`match_cast`, which is such a statement itself.

Slots are numbered in the order of these statements, one for each name that is bound and one for each ``heap[...]``;
`heap_slots` reads them back.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... @kernel
... def tail(x: f32[n + 1], y: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = x[i + 1] + y[i]
...
... def main(x: f32[n + 1], y: f32[n]) -> f32[n]:
...     v0: f32[n] = alloc_tensor()
...     run_kernel(tail, x, y, out=(v0,), sizes=(n,))
...     return v0''')
>>> print(bind_shapes(before)["main"])
def main(x: f32[n + 1], y: f32[n]) -> f32[n]:
    match_shape(y, (n,), binds=("n",))
    heap[1] = n + 1
    match_shape(x, (n + 1,))
    v0: f32[n] = alloc_tensor()
    run_kernel(tail, x, y, out=(v0,), sizes=(n,))
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
    Var,
    View,
)
from minirelax.ir.types import Tensor, Type
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
            case MatchShape(pattern=pattern) | MatchCast(type=Tensor(shape=tuple() as pattern)):
                for name in _bare_names(pattern):
                    slots.setdefault(symbol(name), len(slots))
            case Heap(slot=slot, value=value):
                slots[value] = slot
    return slots


class _Heap:
    """The slots given so far, while the statements are written."""

    def __init__(self, function: Function):
        self.function = function
        self.slots: dict[Dim, int] = {}
        self.waiting = list(dict.fromkeys(d for d in _used_sizes(function) if isinstance(d, DimExpr)))
        self.out: list[Binding] = []

    def run(self) -> Function:
        later = self._match_parameters([v for v in (*self.function.params, *self.function.bound) if _has_symbols(v.type)])
        self._evaluate()
        for v in later:
            self._match(v, v.type.shape)
        for b in self.function.body:
            self.out.append(b)
            if isinstance(b.value, MatchCast) and isinstance(b.value.type, Tensor):
                self._bind(b.value.type.shape or ())
                self._evaluate()
        return replace(self.function, body=tuple(self.out))

    def _match_parameters(self, params: list[Var]) -> list[Var]:
        """Match the parameters whose sizes are known or bare names; give those that have to wait."""
        later = []
        for v in params:
            known = self.slots.keys() | {d for d in v.type.shape if _is_name(d)}
            if all(isinstance(d, int) or _is_name(d) for d in v.type.shape):
                self._match(v, v.type.shape)
            else:
                later.append(v)
                bare = [d for d in known if _is_name(d) and d not in self.slots]
                if bare and not self._bound_elsewhere(bare, params):
                    self._match(v, tuple(d if isinstance(d, int) or _is_name(d) else None for d in v.type.shape))
        return later

    def _bound_elsewhere(self, bare: list[Dim], params: list[Var]) -> bool:
        plain = {d for v in params if all(isinstance(d, int) or _is_name(d) for d in v.type.shape) for d in v.type.shape}
        return all(d in plain for d in bare)

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
            if _is_name(d) or not all(symbol(n) in self.slots for n in names(d)):
                still.append(d)
                continue
            self.slots[d] = len(self.slots)
            self.out.append(Binding(None, Heap(self.slots[d], d)))
        self.waiting = still


def _bare_names(pattern: tuple[Dim | None, ...]) -> tuple[str, ...]:
    """The names that stand alone in a pattern, each once."""
    return tuple(dict.fromkeys(str(d) for d in pattern if d is not None and _is_name(d)))


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


def _dims(type_: Type) -> Iterator[Dim]:
    if isinstance(type_, Tensor):
        yield from (d for d in type_.shape or () if d is not None)


def _inside(attribute: object) -> Iterator[Dim]:
    if isinstance(attribute, DimExpr):
        yield attribute
    elif isinstance(attribute, tuple):
        for item in attribute:
            yield from _inside(item)


def _has_symbols(type_: Type) -> bool:
    return isinstance(type_, Tensor) and any(isinstance(d, DimExpr) for d in type_.shape or ())


def _is_name(d: Dim) -> bool:
    return (
        isinstance(d, DimExpr)
        and len(d.terms) == 1
        and d.terms[0][1] == 1
        and len(d.terms[0][0]) == 1
        and isinstance(d.terms[0][0][0], str)
    )

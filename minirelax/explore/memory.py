"""The memory plan: which storages a program takes, which tensors live in each over time, and how many bytes that makes.

It is read off a module after the pass ``plan_memory``. A *step* is a kernel or library call, a branch or a loop; a tensor lives
from the step that writes it to the last one that reads it or a view of it; one that is written over another has its place.
Branches and loop bodies have storages of their own; of all that stand equally deep one runs at a time, so they take turns in
the same memory.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from minirelax.explore.view import View, html
from minirelax.ir.dim import Dim, maximum, names, product, substitute, value
from minirelax.ir.graph import (
    AllocStorage,
    AllocTensor,
    Atom,
    Binding,
    Function,
    Module,
    RunCond,
    RunKernel,
    RunLibrary,
    RunScan,
    RunWhile,
    Var,
    called_functions,
)
from minirelax.ir.graph import View as Reshaped
from minirelax.ir.infer import call_sizes
from minirelax.ir.types import Tensor, itemsize, whole_lines
from minirelax.passes.plan_memory import requests

if TYPE_CHECKING:
    from rich.console import Group


@dataclass(frozen=True)
class Tenant:
    """A tensor in memory, the first and last step at which it is needed, and from which byte of its storage on it lives."""

    name: str
    type: Tensor
    first: int
    last: int
    offset: Dim = 0

    @property
    def bytes(self) -> Dim:
        """How many bytes the tensor takes, as an expression in the sizes."""
        return product(self.type.shape) * itemsize(self.type.dtype)


@dataclass(frozen=True)
class StorageUse:
    """One storage: its name, its bytes, and its tenants in the order of their lives."""

    name: str
    bytes: Dim
    tenants: tuple[Tenant, ...]


@dataclass(frozen=True)
class Body:
    """A branch or a loop body: its function, how deep it stands, and its storages, whose bytes are in the outermost one's sizes.

    `unplanned` are the bytes that its tensors would take without sharing.
    """

    name: str
    depth: int
    bytes: Dim
    unplanned: Dim
    storages: tuple[StorageUse, ...]


@dataclass(frozen=True, repr=False)
class MemoryPlan(View):
    """`storages` are the arena's parts; `results` the tensors that are allocated one by one because the caller gets them.

    `bodies` are the plans of branches and loop bodies, each with how deep it stands, in the sizes of this function.  `alive`
    are the bytes of all planned tensors that one statement needs, for each statement where that differs.
    """

    steps: tuple[str, ...]
    storages: tuple[StorageUse, ...]
    results: tuple[Tenant, ...]
    sizes: tuple[tuple[str, int], ...] = ()
    bodies: tuple[Body, ...] = ()
    alive: tuple[Dim, ...] = ()

    __str__ = View.__str__
    __repr__ = View.__str__

    @property
    def peak(self) -> Dim:
        """Bytes of all storages together, as an expression in the sizes (without the results, which belong to the caller)."""
        deep: dict[int, Dim] = {}
        for body in self.bodies:
            deep[body.depth] = maximum(deep.get(body.depth, 0), body.bytes)
        return sum((s.bytes for s in self.storages), 0) + sum(deep.values(), 0)

    @property
    def unplanned(self) -> Dim:
        """Bytes that the same tensors would take without sharing, each in whole cache lines as storages are."""
        return _unplanned(self.storages) + sum((body.unplanned for body in self.bodies), 0)

    def peak_bytes(self, **sizes: int) -> int:
        """The number that `peak` stands for, given every size it mentions.  Raises KeyError for a size without a value."""
        return value(self.peak, sizes)

    def least_bytes(self, **sizes: int) -> int:
        """The largest live set at these sizes: no plan takes less.  Raises KeyError for a size without a value."""
        return max((value(d, sizes) for d in self.alive), default=0)

    def _repr_mimebundle_(self, include=None, exclude=None, **_) -> dict[str, str]:
        """Text anywhere; in a notebook with a picture above it: addresses downwards, steps to the right."""
        from minirelax.explore.memory_picture import memory_svg
        return {"text/plain": str(self), "text/html": memory_svg(self) + html(self.__rich__())}

    def at(self, **sizes: int) -> MemoryPlan:
        """The same plan, shown with the numbers of bytes at these sizes beside the expressions."""
        return replace(self, sizes=tuple(sizes.items()))

    def __rich__(self) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text
        table = Table("storage", "bytes", "tensors that live there (steps)", "over time", box=box.SIMPLE_HEAD)
        for s in self.storages:
            who = ", ".join(f"{t.name} ({t.first}-{t.last}{'' if t.offset == 0 else f' at {t.offset}'})" for t in s.tenants)
            table.add_row(Text(s.name), Text(self._bytes(s.bytes)), Text(who), Text(timeline(s, len(self.steps))))
        for body in self.bodies:
            who = "; ".join(f"{s.name}: {', '.join(t.name for t in s.tenants)}" for s in body.storages)
            table.add_row(Text(f"{'  ' * body.depth}{body.name}"), Text(self._bytes(body.bytes)), Text(who), Text(""))
        lines = [f"peak             {self._bytes(self.peak)} bytes"]
        if self.alive and {n for d in self.alive for n in names(d)} <= dict(self.sizes).keys():
            lines.append(f"largest live set {self.least_bytes(**dict(self.sizes)):,} bytes")
        lines.append(f"without sharing  {self._bytes(self.unplanned)} bytes")
        lines += [f"result           {self._bytes(t.bytes)} bytes   {t.name}: {t.type}" for t in self.results]
        return Group(table, Text("\n".join(lines)))

    def _bytes(self, d: Dim) -> str:
        known = dict(self.sizes)
        return f"{d} = {value(d, known):,}" if not isinstance(d, int) and names(d) <= known.keys() else str(d)


def timeline(storage: StorageUse, steps: int) -> str:
    """One character per step: who of the tenants is alive, by alternating shade; a dot where nobody is."""
    line = ["·"] * steps
    for i, t in enumerate(storage.tenants):
        line[t.first:t.last + 1] = ("█" if i % 2 == 0 else "▒") * len(line[t.first:t.last + 1])
    return "".join(line)


def memory_plan(module: Module, function: str | None = None) -> MemoryPlan:
    """The plan of `function` (by default the module's entry).  The module must be one after ``lower_calls``."""
    fn = module[function] if function else next(f for f in module.functions if not f.private)
    alive = tuple(dict.fromkeys(_alive(fn, module, {})))
    return MemoryPlan(*_storages(fn), bodies=tuple(_bodies(fn, module, {}, 1)), alive=alive)


def largest_live_set(module: Module, function: str | None = None, **sizes: int) -> int:
    """Bytes of the tensors, in whole cache lines, that must be there at once at these sizes: no plan takes less.

    What the function returns is its caller's, and not counted.  Raises KeyError for a size without a value.
    """
    return memory_plan(module, function).least_bytes(**sizes)


def _alive(fn: Function, module: Module, sizes: dict[str, Dim]) -> Iterator[Dim]:
    """The bytes that are needed at once, statement by statement, in the outermost function's sizes."""
    asked = [(r, substitute(r.bytes, sizes)) for r in requests(fn)]
    first, last = ({}, {})
    for r, needed in asked:
        first[r.first] = first.get(r.first, 0) + needed
        last[r.last] = last.get(r.last, 0) + needed
    total: Dim = 0
    for at, b in enumerate(fn.bindings):
        total = total + first.get(at, 0)
        if at in first:
            yield total
        if isinstance(b.value, CONTROL):
            for name in called_functions(b.value):
                known = {n: substitute(d, sizes) for n, d in call_sizes(module[name], _passed(b.value, name, module)).items()}
                yield from (total + inside for inside in _alive(module[name], module, known))
        total = total - last.get(at, 0)


def _storages(fn: Function) -> tuple[tuple[str, ...], tuple[StorageUse, ...], tuple[Tenant, ...]]:
    """The steps of a function, its storages, and the tensors that are in none."""
    bindings = fn.bindings
    home = dict(_homes(bindings, in_place := _written_views(bindings)))
    steps = [b for b in bindings if isinstance(b.value, RunKernel | RunLibrary | CONTROL)]
    lives = _lives(fn, steps, home)
    tenants: dict[str, list[Tenant]] = {b.var.name: [] for b in bindings if isinstance(b.value, AllocStorage)}
    results, memory = [], {}
    for b in bindings:
        if isinstance(b.value, AllocTensor):
            memory[b.var.name] = b.value
        elif b.var is not None and b.var.name in in_place:
            memory[b.var.name] = memory.get(home.get(b.value.value.name))
        if b.var is not None and memory.get(b.var.name) and isinstance(b.var.type, Tensor) and b.var.name in lives:
            where = memory[b.var.name]
            tenant = Tenant(b.var.name, b.var.type, *lives[b.var.name], where.offset)
            storage = where.storage[0].name if where.storage else None
            (results if storage is None else tenants[storage]).append(tenant)
    storages = tuple(StorageUse(b.var.name, b.value.bytes, tuple(sorted(tenants[b.var.name], key=lambda t: t.first)))
                     for b in bindings if isinstance(b.value, AllocStorage))
    return tuple(_step_name(b) for b in steps), storages, tuple(results)


def _unplanned(storages: tuple[StorageUse, ...]) -> Dim:
    return sum((whole_lines(t.bytes) for s in storages for t in s.tenants), 0)


CONTROL = RunCond | RunWhile | RunScan


def _bodies(fn: Function, module: Module, sizes: dict[str, Dim], depth: int) -> Iterator[Body]:
    """The branches and loop bodies of a function and, below each, its own; `sizes` are the function's in the outermost one's."""
    for b in fn.bindings:
        if isinstance(b.value, CONTROL):
            for name in called_functions(b.value):
                body = module[name]
                known = {n: substitute(d, sizes) for n, d in call_sizes(body, _passed(b.value, name, module)).items()}
                storages = _storages(body)[1]
                planned = sum((s.bytes for s in storages), 0)
                yield Body(name, depth, substitute(planned, known), substitute(_unplanned(storages), known), storages)
                yield from _bodies(body, module, known, depth + 1)


def _passed(value: RunCond | RunWhile | RunScan, name: str, module: Module) -> tuple[Atom, ...]:
    """What a body is called with: the slices of a scan have one axis less than the arrays."""
    match value:
        case RunCond(args=args):
            return args
        case RunWhile(args=args, init=init):
            return *args, *init
    slices = (Var(x.name, Tensor(x.type.dtype, x.type.shape[1:])) for x in value.xs)
    return *value.args, *value.init, *slices


def _step_name(binding: Binding) -> str:
    match binding.value:
        case RunKernel(kernel=name) | RunLibrary(routine=name):
            return name
        case RunCond() | RunWhile() | RunScan():
            return ", ".join(called_functions(binding.value))
    return ""


def _written_views(bindings: tuple[Binding, ...]) -> frozenset[str]:
    """The views that kernels write: tensors of their own, over others, if they are no parts of them."""
    written = {out.name for b in bindings if isinstance(b.value, RunKernel) for out in b.value.out}
    return frozenset(b.var.name for b in bindings if isinstance(b.value, Reshaped) and b.var.name in written
                     and product(b.var.type.shape) == product(b.value.value.type.shape))


def _homes(bindings: tuple[Binding, ...], in_place: frozenset[str]) -> Iterator[tuple[str, str]]:
    """For every tensor and every view (of a view ...) of it: the tensor's name."""
    home: dict[str, str] = {}
    for b in bindings:
        match b.value:
            case AllocTensor():
                home[b.var.name] = b.var.name
            case Reshaped(value=Var(name=name)) if name in home and b.var.name in in_place:
                home[b.var.name] = b.var.name
            case Reshaped(value=Var(name=name)) if name in home:
                home[b.var.name] = home[name]
    yield from home.items()


def _lives(fn: Function, steps: list[Binding], home: dict[str, str]) -> dict[str, tuple[int, int]]:
    """First and last step of each tensor; the ones that leave the function live to the end."""
    lives: dict[str, tuple[int, int]] = {}
    for i, step in enumerate(steps):
        for atom in step.value.operands():
            _extend(lives, home, atom, i)
    for atom in _leaving(fn):
        _extend(lives, home, atom, max(len(steps) - 1, 0))
    return lives


def _leaving(fn: Function) -> Iterator[Atom]:
    """The result, and what it is a tuple of."""
    made = {b.var.name: b.value for b in fn.bindings if b.var}
    stack: list[Atom] = [fn.result]
    while stack:
        atom = stack.pop()
        yield atom
        if isinstance(atom, Var) and not isinstance(atom.type, Tensor) and atom.name in made:
            stack.extend(made[atom.name].operands())


def _extend(lives: dict[str, tuple[int, int]], home: dict[str, str], atom: Atom, step: int) -> None:
    name = home.get(atom.name) if isinstance(atom, Var) else None
    if name is not None:
        first, last = lives.get(name, (step, step))
        lives[name] = (min(first, step), max(last, step))

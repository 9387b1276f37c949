"""Compute what is made of sizes and constants only at each of its readers, rather than once.

A number such as ``f32(size(m))``, or a range, costs less to make than to load, and it ties its readers together where they
could go into different kernels.  So each reader that can take it in gets its own copy; what nobody reads then is dropped.
`fuse_ops` does this before it groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minirelax.ir.graph import Atom, Binding, CallKernel, Dataflow, Var
from minirelax.passes.inline import CHEAP
from minirelax.passes.kernel_facts import Facts

ABSORBING = ("pointwise", "rows", "assembly")  # roles of kernels into which a cheap value can be composed


def recompute(block: Dataflow, facts: dict[str, Facts], names: Iterator[str]) -> Dataflow:
    """The block in which every cheap value without sources has one reader, as far as that is possible."""
    free = _cheap_without_sources(block, facts)
    if not free:
        return block
    out: list[Binding] = []
    for b in block.bindings:
        if b.var not in free and isinstance(b.value, CallKernel) and facts[b.value.kernel].role in ABSORBING:
            copies: dict[Atom, Var] = {}
            for a in b.value.args:
                _copy(a, free, names, copies, out)
            b = replace(b, value=b.value.map_operands(lambda a, copies=copies: copies.get(a, a))) if copies else b
        out.append(b)
    return _without_unread(Dataflow(tuple(out), block.outputs), free)


def _cheap_without_sources(block: Dataflow, facts: dict[str, Facts]) -> dict[Atom, Binding]:
    """The bindings that depend on no array and cost next to nothing, and have more than one reader."""
    costs: dict[Atom, int] = {}
    found: dict[Atom, Binding] = {}
    readers: dict[Atom, int] = {}
    for b in block.bindings:
        for a in b.value.operands():
            readers[a] = readers.get(a, 0) + 1
        if (
            isinstance(b.value, CallKernel)
            and facts[b.value.kernel].role == "pointwise"
            and all(a in costs for a in b.value.args)
        ):
            total = facts[b.value.kernel].cost + sum(costs[a] for a in b.value.args)
            if total <= CHEAP:
                costs[b.var], found[b.var] = total, b
    return found if any(readers.get(v, 0) > 1 for v in found) else {}


def _copy(value: Atom, free: dict[Atom, Binding], names: Iterator[str], copies: dict[Atom, Var], out: list[Binding]) -> None:
    if value not in free or value in copies:
        return
    made = free[value]
    for a in made.value.args:
        _copy(a, free, names, copies, out)
    copies[value] = Var(next(names), value.type)
    out.append(Binding(copies[value], made.value.map_operands(lambda a: copies.get(a, a)), made.source))


def _without_unread(block: Dataflow, candidates: dict[Atom, Binding]) -> Dataflow:
    read: set[Atom] = set(block.outputs)
    kept = []
    for b in reversed(block.bindings):
        if b.var in read or b.var not in candidates:
            kept.append(b)
            read.update(b.value.operands())
    return Dataflow(tuple(reversed(kept)), block.outputs)

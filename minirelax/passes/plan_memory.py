"""Let values that are never alive together share memory.

A tensor needs memory from its allocation to the last read of it, through any view (Relax, section 4.3).  Where it is then is
decided by `place_tensors`: in a storage of provably the same number of bytes, or in a part that nobody needs meanwhile of
one that is provably large enough under the function's guards and the bounds of its sizes; or, where sizes cannot be compared,
above all tensors that are needed meanwhile and lie below it.  Sizes are compared as polynomials, so ``n*2`` and ``2*n`` share.
With bounds for all sizes, bytes are numbers, and storages may be enlarged for who comes later; with bounds for some
(``m <= 20``), the others stay in the expressions.  A lower bound alone bounds nothing.

Results of the function are not planned: they are the caller's, who may keep them (branches and loop bodies write where
their caller says); an upper bound for their storage would only hold on to memory that the caller may never need.  Nor is
what a library call outside destination-passing style may hold on to.  A tensor whose size is only known on the way (after a
match_cast) shares with those of its size.  A pool belongs to one function, so memory of one branch is never that of another,
and is there before whatever uses it.  Bytes are multiples of 64, a cache line.

Why it is right: a tensor is written only after its allocation and read only up to its last read, and between these no other
tensor has a byte of its place.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... @kernel
... def exp(x: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = exp(x[i])
...
... def main(x: f32[16*n], y: f32[n]) -> f32[16*n]:
...     v0: f32[16*n] = alloc_tensor()
...     run_kernel(exp, x, out=(v0,), sizes=(16*n,))
...     v1: f32[16*n] = alloc_tensor()
...     run_kernel(exp, v0, out=(v1,), sizes=(16*n,))
...     v2: f32[16*n] = alloc_tensor()
...     run_kernel(exp, v1, out=(v2,), sizes=(16*n,))
...     v3: f32[16*n] = alloc_tensor()
...     run_kernel(exp, v2, out=(v3,), sizes=(16*n,))
...     return v3''')
>>> print(plan_memory()(before)["main"])
def main(x: f32[16*n], y: f32[n]) -> f32[16*n]:
    v4: Storage[64*n] = alloc_storage()
    v0: f32[16*n] = alloc_tensor(v4)
    run_kernel(exp, x, out=(v0,), sizes=(16*n,))
    v5: Storage[64*n] = alloc_storage()
    v1: f32[16*n] = alloc_tensor(v5)
    run_kernel(exp, v0, out=(v1,), sizes=(16*n,))
    v2: f32[16*n] = alloc_tensor(v4)
    run_kernel(exp, v1, out=(v2,), sizes=(16*n,))
    v3: f32[16*n] = alloc_tensor()
    run_kernel(exp, v2, out=(v3,), sizes=(16*n,))
    return v3
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from minirelax.ir.dim import Atom as DimAtom
from minirelax.ir.dim import Dim, DimExpr, floordiv, maximum, minimum, product, symbol
from minirelax.ir.dim import names as names_of
from minirelax.ir.graph import (
    Alias,
    AllocStorage,
    AllocTensor,
    Binding,
    CallFunction,
    CallLibrary,
    CallValue,
    Cond,
    Dataflow,
    Function,
    MakeTuple,
    MatchCast,
    Module,
    Scan,
    TupleItem,
    Var,
    View,
    While,
    fresh_names,
)
from minirelax.ir.knowledge import Knowledge
from minirelax.ir.types import Storage, Tensor, itemsize, symbols, whole_lines
from minirelax.passes.base import Pass, entry
from minirelax.passes.place_tensors import Request, place

MAY_BE_THE_SAME = (View, MatchCast, MakeTuple, TupleItem, Alias, CallFunction, CallValue, Cond, While, Scan)

Bounds = Mapping[str, "tuple[int | None, int | None]"]


def plan_memory(bounds: Bounds | None = None) -> Pass:
    """The pass; `bounds` gives, by size name, the smallest and largest value (inclusive, None where unknown).

    They are those of the function that a call enters: another one's sizes may have the same names and be larger.
    """

    def plan(module: Module) -> Module:
        main = entry(module)
        functions = (_planned(f, module, bounds or {} if f is main else {}) for f in module.functions)
        return replace(module, functions=tuple(functions))

    plan.__name__, plan.__doc__ = "plan_memory", plan_memory.__doc__
    return plan


def tensor_bytes(type_: Tensor, bounds: Bounds) -> Dim:
    """The bytes of a tensor, in whole cache lines: an upper bound of them as far as `bounds` go."""
    return whole_lines(upper_bound(itemsize(type_.dtype) * product(type_.shape), bounds))


def planned_bytes(function: Function) -> Dim:
    """All storage that a planned function allocates."""
    total: Dim = 0
    for b in function.bindings:
        if isinstance(b.value, AllocStorage):
            total = total + b.value.bytes
    return total


def upper_bound(d: Dim, bounds: Bounds) -> Dim:
    """Something that `d` never exceeds: bounded sizes replaced by their ends, others left.

    >>> from minirelax.ir.dim import dim
    >>> upper_bound(dim("4*m*n - n"), {"n": (1, 20)})
    80*m - 1
    """
    if isinstance(d, int) or not any(high is not None for _, high in bounds.values()):
        return d
    total: Dim = 0
    for mono, k in d.terms:
        term: Dim = k
        for f in mono:
            term = term * (_end(f, bounds, k > 0))
        total = total + term
    return total


def _end(factor: str | DimAtom, bounds: Bounds, upper: bool) -> Dim:
    if isinstance(factor, str):
        low, high = bounds.get(factor, (None, None))
        if high is None:  # a lower bound alone says nothing about how large it gets
            return symbol(factor)
        return high if upper else low or 0
    if upper and factor.op == "//" and isinstance(factor.right, int):
        return floordiv(upper_bound(factor.left, bounds), factor.right)
    if upper and factor.op == "%" and isinstance(factor.right, int):
        return factor.right - 1
    if upper and factor.op in ("min", "max"):
        smaller_or_larger = minimum if factor.op == "min" else maximum
        return smaller_or_larger(upper_bound(factor.left, bounds), upper_bound(factor.right, bounds))
    return DimExpr((((factor,), 1),))


def _planned(function: Function, module: Module, bounds: Bounds) -> Function:
    if any(isinstance(p, Dataflow) for p in function.body) or not any(isinstance(b.value, AllocTensor) for b in function.body):
        return function
    places = place(requests(function, bounds), Knowledge.of(function, bounds))
    home = {name: p for p in places for name in p.offsets}
    names, out, storages = fresh_names(function, module), [], {}
    for b in function.body:
        where = home.get(b.var.name) if b.var is not None and isinstance(b.value, AllocTensor) else None
        if where is not None and where not in storages:
            taken = where.bytes
            storages[where] = Var(next(names), Storage(taken))
            out.append(Binding(storages[where], AllocStorage(taken), b.source))
        if where is not None:
            b = replace(b, value=AllocTensor((storages[where],), where.offsets[b.var.name]))
        out.append(b)
    return replace(function, body=tuple(out))


def requests(function: Function, bounds: Bounds | None = None) -> list[Request]:
    """What the function's tensors ask for, in its order; those that outlive it, or may, ask for nothing."""
    last = last_reads(function, homes(function))
    known = frozenset().union(*(symbols(v.type) for v in function.params))
    found = []
    for at, b in enumerate(function.bindings):
        if isinstance(b.value, AllocTensor) and b.var in last:
            wanted = tensor_bytes(b.var.type, bounds or {})
            found.append(Request(b.var.name, wanted, at, last[b.var], not names_of(wanted) <= known))
    return found


def homes(function: Function) -> dict[Var, frozenset[Var]]:
    """For each value, the allocations whose memory it may be: a function may give back what it got, as a loop without rounds."""
    home: dict[Var, frozenset[Var]] = {}
    for b in function.bindings:
        match b.value:
            case AllocTensor():
                home[b.var] = frozenset((b.var,))
            case value if isinstance(value, MAY_BE_THE_SAME):
                home[b.var] = frozenset().union(*(home.get(a, frozenset()) for a in b.value.operands()))
    return home


def last_reads(function: Function, home: dict[Var, frozenset[Var]]) -> dict[Var, int]:
    """The statement that reads each allocation last; those that outlive the function, or may, are missing."""
    last: dict[Var, int] = {}
    kept = set(home.get(function.result, ()))
    for at, b in enumerate(function.bindings):
        for a in b.value.operands():
            last.update(dict.fromkeys(home.get(a, ()), at))
            if isinstance(b.value, CallLibrary):
                kept |= home.get(a, frozenset())
    return {v: at for v, at in last.items() if v not in kept}

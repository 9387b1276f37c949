"""Merge the kernels that a group function calls into one kernel, and call that instead.

The merged kernel is the list of all blocks, in order, over buffers named by the graph's values; what was a value between
two calls is a local buffer.  Pointwise blocks are then composed into their readers where that repeats no work
(`inline`), so a reduction is computed once and what two readers share is kept.  Axes are named by position, so leading axes
that blocks have in common have the same names: that is what lets the schedule share their loops.

Kernels that are equal up to names are kept once: the layers of a network share theirs.

>>> from minirelax.ir.parser import parse
>>> module = parse('''
... @kernel
... def exp(x: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = exp(x[i])
...
... def main(x: f32[2*n], y: f32[n]) -> f32[2*n]:
...     with dataflow():
...         v1: Shape([n]) = shape(n)
...         v0: f32[2*n] = fused_exp_exp(x, v1)
...         output(v0)
...     return v0
...
... @group
... def fused_exp_exp(x: f32[2*n], s: Shape([n])) -> f32[2*n]:
...     with dataflow():
...         v0: f32[2*n] = call_kernel(exp, x, sizes=(2*n,))
...         v1: f32[2*n] = call_kernel(exp, v0, sizes=(2*n,))
...         output(v1)
...     return v1''')
>>> print(fuse_kernels(module))
@kernel(pattern="elementwise")
def exp_exp(x: f32[2*n], out: f32[2*n], *, n):
    for i in range(2*n):
        out[i] = exp(exp(x[i]))
<BLANKLINE>
def main(x: f32[2*n], y: f32[n]) -> f32[2*n]:
    with dataflow():
        v0: f32[2*n] = call_kernel(exp_exp, x, sizes=(n,))
        output(v0)
    return v0
"""

from __future__ import annotations

from dataclasses import replace

from minirelax.ir.graph import (
    Atom,
    Binding,
    CallFunction,
    CallKernel,
    Dataflow,
    Function,
    MakeTuple,
    Module,
    TupleItem,
    Var,
    map_blocks,
)
from minirelax.ir.infer import call_sizes
from minirelax.ir.loop import Block, Kernel, with_sizes
from minirelax.ir.tensor import REDUCE_NAMES, SPATIAL_NAMES
from minirelax.ir.types import Shape, Tensor, is_known, substitute_type, symbols
from minirelax.passes.annotate_patterns import pattern_of
from minirelax.passes.assemblies import definition
from minirelax.passes.eliminate_dead_code import drop_dead_bindings
from minirelax.passes.inline import inline_producers, store_directly, tidy
from minirelax.passes.share_kernels import KernelTable, rename_block, size_arguments, unique


def fuse_kernels(module: Module) -> Module:
    """`module` with every group that only calls kernels merged into one kernel; unread kernels are dropped."""
    kernels = {k.name: k for k in module.kernels}
    groups = {f.name: f for f in module.functions if f.group and _calls_kernels_only(f)}
    others = tuple(f for f in module.functions if f.name not in groups)
    called = {b.value.kernel for f in others for b in f.bindings if isinstance(b.value, CallKernel)}
    table = KernelTable((k for k in module.kernels if k.name in called), (f.name for f in others))
    merged = {name: merge(f, kernels) for name, f in groups.items()}
    names = {name: table.add(k) for name, k in merged.items()}
    functions = tuple(map_blocks(f, lambda block: _with_kernel_calls(block, groups, merged, names)) for f in others)
    return drop_dead_bindings(replace(module, functions=functions, kernels=table.kernels)) if groups else module


def merge(function: Function, kernels: dict[str, Kernel]) -> Kernel:
    """One kernel that does what a straight line of kernel calls does."""
    return _Merge(function, kernels).run()


class _Merge:
    """The kernel of one group function, under construction."""

    def __init__(self, function: Function, kernels: dict[str, Kernel]):
        self.function, self.kernels = function, kernels
        self.items = {(b.value.value, b.value.index): b.var for b in function.bindings if isinstance(b.value, TupleItem)}
        self.results = self._results(function.result)
        self.params = tuple(p for p in function.params if isinstance(p.type, Tensor))
        self.sizes = {n for v in function.params for n in symbols(v.type)}
        self.names: dict[Atom, str] = {}
        self.types: dict[str, Tensor] = {}
        self.blocks: list[Block] = []

    def run(self) -> Kernel:
        function = self.function
        self._name_buffers()
        taken = self.sizes | set(self.names.values())
        axes = [_free_names(pool, taken) for pool in (SPATIAL_NAMES, REDUCE_NAMES)]
        for b in function.bindings:
            if isinstance(b.value, CallKernel):
                self._add(b.var, b.value, axes)
        outputs = tuple(Var(self.names[v], v.type) for v in self.results)
        kept = {v.name for v in outputs}
        blocks = [tidy(b) for b in store_directly(inline_producers(self.blocks, kept), kept)]
        inputs = tuple(Var(self.names[p], p.type) for p in self.params)
        local, blocks = self._renumbered_locals(blocks, {v.name for v in (*inputs, *outputs)}, taken)
        kernel = with_sizes(Kernel(function.name.removeprefix("fused_"), inputs, outputs, (), local, tuple(blocks)))
        return replace(kernel, pattern=pattern_of(kernel))

    def _results(self, result: Atom) -> tuple[Var, ...]:
        made = {b.var: b.value for b in self.function.bindings}
        value = made.get(result)
        return value.items if isinstance(value, MakeTuple) else (result,)

    def _name_buffers(self) -> None:
        taken = set(self.sizes)
        outputs = ("out",) if len(self.results) == 1 else tuple(f"out{i}" for i in range(len(self.results)))
        for var, name in (*((p, p.name) for p in self.params), *zip(self.results, outputs, strict=True)):
            self.names[var] = unique(name, taken)
            taken.add(self.names[var])

    def _add(self, var: Var, call: CallKernel, axes: list[list[str]]) -> None:
        kernel = self.kernels[call.kernel]
        sizes = dict(zip(kernel.sizes, call.sizes, strict=True))
        buffers = {v.name: self._buffer(a) for v, a in zip(kernel.inputs, call.args, strict=True)}
        made = [self.items.get((var, i)) for i in range(len(kernel.outputs))] if len(kernel.outputs) > 1 else [var]
        for v, result in zip((*kernel.outputs, *kernel.local), (*made, *(None for _ in kernel.local)), strict=True):
            buffers[v.name] = self._buffer(result) if result is not None else f"_{len(self.types)}"
            self.types[buffers[v.name]] = substitute_type(v.type, sizes)
        several = len(kernel.blocks) > 1 and var not in self.results
        whole = definition(kernel) if several else None                # what is read here is not put together first
        self.blocks += [rename_block(b, buffers, sizes, *axes) for b in (kernel.blocks if whole is None else (whole,))]

    def _buffer(self, value: Atom) -> str:
        if value not in self.names:  # until it is known which stay; no user's name starts like this
            self.names[value] = f"_{value.name}"
        return self.names[value]

    def _renumbered_locals(self, blocks: list[Block], public: set[str], taken: set[str]) -> tuple[tuple[Var, ...], list[Block]]:
        left = list(dict.fromkeys(b.buffer for b in blocks if b.buffer not in public))
        names = dict(zip(left, _free_names(("t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"), taken, "t"), strict=False))
        local = tuple(Var(names[buffer], self.types[buffer]) for buffer in left)
        return local, [rename_block(b, names, {}) for b in blocks] if names else blocks


def _with_kernel_calls(
    block: Dataflow, groups: dict[str, Function], merged: dict[str, Kernel], names: dict[str, str]
) -> Dataflow:
    out = []
    for b in block.bindings:
        if isinstance(b.value, CallFunction) and b.value.function in groups:
            function = groups[b.value.function]
            values = call_sizes(function, b.value.args)
            args = tuple(a for a in b.value.args if isinstance(a.type, Tensor))
            call = CallKernel(names[function.name], args, size_arguments(merged[function.name], values))
            b = Binding(b.var, call, b.source)
        out.append(b)
    return replace(block, bindings=tuple(out))


def _calls_kernels_only(function: Function) -> bool:
    return (
        all(isinstance(b.value, CallKernel | TupleItem | MakeTuple) for b in function.bindings)
        and len(function.body) == 1
        and all(isinstance(p.type, Shape) or is_known(p.type) for p in function.params)
        and any(isinstance(b.value, CallKernel) for b in function.bindings)
    )



def _free_names(pool: tuple[str, ...], taken: set[str], stem: str | None = None) -> list[str]:
    """Names for axes or buffers by position: those of the pool, then numbered ones, leaving out those taken."""
    return [n for n in (*pool, *(f"{stem or pool[0]}{i}" for i in range(8, 264))) if n not in taken]

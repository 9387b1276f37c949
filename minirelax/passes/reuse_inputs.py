"""Write a kernel's output over an input that nobody reads any more.

Where an elementwise kernel, or the end of a longer one, reads an element of an input, writes the same element of an output, and
the input dies there, both can be one memory: less to hold, and a line of the cache that is there anyway.  The output becomes a
view of the input, and the kernel a variant of itself that has both under one pointer (so that LLVM still makes vectors of it).

Why it is right: no element is written before its last read, in whatever order the schedule runs the kernel (`ir.in_place`); the
input is memory of this function, all of it, which no other operand of the statement is, and which is not read later, under this
or another name.  Results are left alone, since they are the caller's, and so is what a library may hold on to.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... @kernel
... def add(x: f32[n], y: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = x[i] + y[i]
...
... def main(x: f32[n]) -> f32[n]:
...     v0: f32[n] = alloc_tensor()
...     run_kernel(add, x, x, out=(v0,), sizes=(n,))
...     v1: f32[n] = alloc_tensor()
...     run_kernel(add, x, v0, out=(v1,), sizes=(n,))
...     v2: f32[n] = alloc_tensor()
...     run_kernel(add, v1, x, out=(v2,), sizes=(n,))
...     return v2''')
>>> print(reuse_inputs(before))
@kernel
def add(x: f32[n], y: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] + y[i]
<BLANKLINE>
@kernel(in_place={"y": "out"})
def add_in_place(x: f32[n], y: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] + y[i]
<BLANKLINE>
def main(x: f32[n]) -> f32[n]:
    v0: f32[n] = alloc_tensor()
    run_kernel(add, x, x, out=(v0,), sizes=(n,))
    v1: f32[n] = view(v0)
    run_kernel(add_in_place, x, v0, out=(v1,), sizes=(n,))
    v2: f32[n] = alloc_tensor()
    run_kernel(add, v1, x, out=(v2,), sizes=(n,))
    return v2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from minirelax.ir.graph import Binding, Dataflow, Function, Module, RunKernel, Var, View
from minirelax.ir.in_place import replaceable
from minirelax.ir.loop import Kernel
from minirelax.passes.base import BIND
from minirelax.passes.eliminate_dead_code import drop_unused
from minirelax.passes.plan_memory import homes, last_reads
from minirelax.passes.share_kernels import KernelTable


def reuse_inputs(module: Module) -> Module:
    """`module` with outputs that are written over inputs; kernels that nobody calls any more are dropped."""
    kernels = {k.name: k for k in module.kernels}
    table = KernelTable.of(module)

    def variant(name: str, pairs: tuple[tuple[str, str], ...]) -> str:
        return table.add(replace(kernels[name], name=f"{name}_in_place", in_place=pairs))

    functions = tuple(f if f.name == BIND else _rewritten(f, kernels, variant) for f in module.functions)
    if all(a is b for a, b in zip(functions, module.functions, strict=True)):
        return module
    return drop_unused(replace(module, functions=functions, kernels=table.kernels))


def _rewritten(function: Function, kernels: dict[str, Kernel], variant: Callable[..., str]) -> Function:
    if any(isinstance(part, Dataflow) for part in function.body):
        return function
    found = dict(_Reuse(function, kernels).run())
    if not found:
        return function
    moved = {out for pairs in found.values() for _, out, _ in pairs}
    body = []
    for at, b in enumerate(function.body):
        if b.var in moved:  # its memory is there already
            continue
        if at in found:
            body += [Binding(out, View(given), b.source) for given, out, _ in found[at]]
            b = replace(b, value=replace(b.value, kernel=variant(b.value.kernel, tuple(names for *_, names in found[at]))))
        body.append(b)
    return replace(function, body=tuple(body))


class _Reuse:
    """Which statements of a function write over which of their inputs."""

    def __init__(self, function: Function, kernels: dict[str, Kernel]):
        self.function, self.kernels = function, kernels
        self.home = homes(function)
        self.last = last_reads(function, self.home)
        self.moved: dict[Var, Var] = {}  # an allocation -> the one whose memory it takes

    def run(self) -> Iterator[tuple[int, list[tuple[Var, Var, tuple[str, str]]]]]:
        """Statements by number, each with arguments, outputs, and what the kernel calls them."""
        for at, b in enumerate(self.function.bindings):
            if isinstance(b.value, RunKernel) and not self.kernels[b.value.kernel].in_place:
                if pairs := list(self._pairs(at, b.value)):
                    yield at, pairs

    def _pairs(self, at: int, call: RunKernel) -> Iterator[tuple[Var, Var, tuple[str, str]]]:
        kernel = self.kernels[call.kernel]
        arguments = dict(zip((v.name for v in kernel.inputs), call.args, strict=True))
        outputs = dict(zip((v.name for v in kernel.outputs), call.out, strict=True))
        taken: set[str] = set()
        for x, name in replaceable(kernel):
            given, out = arguments[x], outputs[name]
            if name in taken or x in taken or not isinstance(given, Var) or given.type != out.type:
                continue
            memory = self._memory(given)
            if memory is None or out not in self.last or self.home.get(out) != {out} or self.last.get(memory) != at:
                continue
            if sum(self._memory(a) == memory for a in (*call.args, *call.out, *call.work)) > 1:
                continue
            taken |= {x, name}
            self.moved[out] = memory
            self.last[memory] = self.last[out]
            yield given, out, (x, name)

    def _memory(self, value: object) -> Var | None:
        """The one allocation that a value is, or that it took over."""
        found = self.home.get(value, frozenset())
        if len(found) != 1:
            return None
        memory, = found
        while memory in self.moved:
            memory = self.moved[memory]
        return memory

"""Give each kernel call the memory that its kernel works in as an operand, so that it is planned with everything else.

A scheduled kernel may need more memory than its inputs and outputs: panels packed for the register tiles, finished tiles of a
product, rows of intermediate results; each thread needs some of its own.  What the schedule of the kernel says it needs
becomes a tensor of bytes, one row per thread, that is allocated before the call and dead after it (Relax, section 4.4).  So
nothing allocates inside a kernel or behind the plan's back, dead tensors' storage serves as workspace, and the plan's peak is
all the memory that a call takes.

Why it is right: a workspace holds nothing before the call and is not looked at after it, so any memory will do that holds
nothing else meanwhile, which is what the plan gives to a tensor that is read by this statement alone.  The number of rows is
part of the program: no more threads than that run its kernels.  The interpreter ignores workspaces.

>>> from minirelax.ir.dim import symbol
>>> from minirelax.ir.parser import parse
>>> before = parse('''
... @kernel
... def spread(x: f32[n, m], out: f32[n, m], *, n, m):
...     t0 = local(f32[n, m])
...     for i in range(n):
...         for j in range(m):
...             t0[i, j] = exp(x[i, j])
...     for i in range(n):
...         for j in range(m):
...             out[i, j] = t0[i, m - 1 - j]
...
... def main(x: f32[n, 8]) -> f32[n, 8]:
...     v0: f32[n, 8] = alloc_tensor()
...     run_kernel(spread, x, out=(v0,), sizes=(n, 8))
...     return v0''')
>>> print(lift_workspaces(lambda kernel: (2, 4 * symbol("m")))(before)["main"])
def main(x: f32[n, 8]) -> f32[n, 8]:
    v0: f32[n, 8] = alloc_tensor()
    v1: u8[2, 64] = alloc_tensor()
    run_kernel(spread, x, out=(v0,), sizes=(n, 8), work=(v1,))
    return v0
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from minirelax.ir.dim import Dim, substitute
from minirelax.ir.graph import AllocTensor, Binding, Function, Module, RunKernel, Var, fresh_names
from minirelax.ir.loop import Kernel
from minirelax.ir.types import Tensor, whole_lines
from minirelax.passes.base import BIND, Pass


def lift_workspaces(workspace: Callable[[Kernel], tuple[int, Dim]]) -> Pass:
    """The pass; `workspace` gives how many threads may run a kernel, and the bytes that each needs, in the kernel's sizes."""

    def lift(module: Module) -> Module:
        kernels = {k.name: k for k in module.kernels}
        needed = functools.cache(lambda name: workspace(kernels[name]))
        functions = tuple(f if f.name == BIND else _lifted(f, module, kernels, needed) for f in module.functions)
        same = all(a is b for a, b in zip(functions, module.functions, strict=True))
        return module if same else replace(module, functions=functions)

    lift.__name__, lift.__doc__ = "lift_workspaces", lift_workspaces.__doc__
    return lift


def _lifted(function: Function, module: Module, kernels: dict[str, Kernel], needed) -> Function:
    """The function with workspaces; only statements outside dataflow blocks run kernels."""
    names, out = fresh_names(function, module), []
    for part in function.body:
        if isinstance(part, Binding) and isinstance(part.value, RunKernel) and not part.value.work:
            call = part.value
            threads, each = needed(call.kernel)
            each = whole_lines(substitute(each, dict(zip(kernels[call.kernel].sizes, call.sizes, strict=True))))
            if each != 0:
                work = Var(next(names), Tensor("u8", (threads, each)))
                out.append(Binding(work, AllocTensor(), part.source))
                part = replace(part, value=replace(call, work=(work,)))
        out.append(part)
    return function if len(out) == len(function.body) else replace(function, body=tuple(out))



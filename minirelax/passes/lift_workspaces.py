"""Give each call of a kernel or a library routine the memory that it works in as an operand, so that it is planned with the rest.

A scheduled kernel may need more memory than its inputs and outputs: panels packed for the register tiles, finished tiles of a
product, rows of intermediate results; each thread needs some of its own.  What the schedule of the kernel says it needs
becomes a tensor of bytes, one row per thread, that is allocated before the call and dead after it (Relax, section 4.4).  A
library routine says itself what it needs, when it is registered (`minirelax.ir.workspace`): one tensor, as LAPACK's copy of a
matrix that it overwrites. So nothing allocates inside a kernel or behind the plan's back, dead tensors' storage serves as
workspace, and the plan's peak is all the memory that a call takes.

Why it is right: a workspace holds nothing before the call and is not looked at after it, so any memory will do that holds
nothing else meanwhile, which is what the plan gives to a tensor that is read by this statement alone.  The number of rows is
part of the program: no more threads than that run its kernels.  The interpreter ignores workspaces: routines get new memory.

Raises CompileError, with the user's line, for a routine that cannot say what it needs.

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

>>> from minirelax.ir.library import register_library
>>> def halve(x, out, work, k): ...
>>> _ = register_library("halve", halve, workspace=lambda x, out, k: x)
>>> before = parse('''
... def main(x: f32[n, 8]) -> f32[n]:
...     v0: f32[n] = alloc_tensor()
...     run_library("halve", x, out=(v0,), sizes=(2,))
...     return v0''')
>>> print(lift_workspaces(lambda kernel: (1, 0))(before))
def main(x: f32[n, 8]) -> f32[n]:
    v0: f32[n] = alloc_tensor()
    v1: f32[n, 8] = alloc_tensor()
    run_library("halve", x, out=(v0,), sizes=(2,), work=(v1,))
    return v0
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

from minirelax.errors import CompileError, LibraryError, line_text
from minirelax.ir.dim import Dim, maximum, substitute
from minirelax.ir.graph import AllocTensor, Binding, Function, Module, RunKernel, RunLibrary, Var, fresh_names
from minirelax.ir.loop import Kernel
from minirelax.ir.op import OPS
from minirelax.ir.types import Tensor, whole_lines
from minirelax.ir.workspace import workspace_type
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
    """The function with workspaces; only statements outside dataflow blocks run kernels and routines."""
    names, out = fresh_names(function, module), []
    for part in function.body:
        if isinstance(part, Binding) and (type_ := _workspace(part, kernels, needed)) is not None:
            work = Var(next(names), type_)
            out.append(Binding(work, AllocTensor(), part.source))
            part = replace(part, value=replace(part.value, work=(work,)))
        out.append(part)
    return function if len(out) == len(function.body) else replace(function, body=tuple(out))


def _workspace(statement: Binding, kernels: dict[str, Kernel], needed) -> Tensor | None:
    """The type of the workspace that a statement needs and has not."""
    match statement.value:
        case RunKernel(kernel=name, sizes=sizes, work=()):
            threads, each = needed(name)
            each = whole_lines(substitute(each, dict(zip(kernels[name].sizes, sizes, strict=True))))
            return Tensor("u8", (threads, each)) if each != 0 else None
        case RunLibrary(routine=name, args=args, out=out, sizes=sizes, work=()) if name not in OPS:
            try:
                found = workspace_type(name, [a.type for a in args], [a.type for a in out], sizes)
            except LibraryError as e:
                source = statement.source.leaves[-1] if statement.source else None
                raise CompileError(e.what, e.hint, line_text(source.file, source.line) if source else "") from e.__cause__
            return found and replace(found, shape=tuple(maximum(d, 0) for d in found.shape))
    return None

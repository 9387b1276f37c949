"""Drop what nobody reads: bindings, and then constants, private functions and kernels.

One walk from last to first suffices: when a binding is reached, all its readers have been seen.  It is safe because a
dataflow block has no side effects, with one exception: a `match_cast` may fail, so it is never dead.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: f32[n]) -> f32[n]:
...     with dataflow():
...         v0: f32[n] = exp(x)
...         v1: f32[n] = multiply(v0, x)
...         v2: f32[n] = add(x, 1.0)
...         output(v2)
...     return v2''')
>>> print(eliminate_dead_code(before))
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v2: f32[n] = add(x, 1.0)
        output(v2)
    return v2
"""

from __future__ import annotations

from dataclasses import replace

from minirelax.ir.graph import Atom, Binding, CallFunction, CallKernel, Dataflow, Function, MatchCast, Module, RunKernel, Var
from minirelax.passes.base import function_pass


def eliminate_dead_code(module: Module) -> Module:
    """`module` without unread bindings, constants, private functions and kernels."""
    return drop_unused(drop_dead_bindings(module))


@function_pass
def drop_dead_bindings(function: Function) -> Function:
    """`function` without the bindings that nobody reads."""
    live: set[Atom] = {function.result}
    body: list[Dataflow | Binding] = []
    for part in reversed(function.body):
        if isinstance(part, Dataflow):
            outputs = tuple(v for v in part.outputs if v in live)
            kept = _live_bindings(part, live)
            if kept or outputs:
                body.append(part if len(kept) == len(part.bindings) and outputs == part.outputs else Dataflow(kept, outputs))
        else:  # outside of blocks there may be effects
            live.update(part.value.operands())
            body.append(part)
    body.reverse()
    same = len(body) == len(function.body) and all(a is b for a, b in zip(body, function.body, strict=True))
    return function if same else replace(function, body=tuple(body))


def drop_unused(module: Module) -> Module:
    """`module` without constants, private functions and kernels that no public function reaches."""
    named = {f.name: f for f in module.functions}
    reached = [f for f in module.functions if not f.private]
    functions, kernels, values = {f.name for f in reached}, set(), set()
    for f in reached:  # grows while it is walked
        values.add(f.result)
        for b in f.bindings:
            values.update(b.value.operands())
            match b.value:
                case CallFunction(function=name) if name not in functions:
                    functions.add(name)
                    reached.append(named[name])
                case CallKernel(kernel=name) | RunKernel(kernel=name):
                    kernels.add(name)
    return replace(
        module,
        functions=tuple(f for f in module.functions if f.name in functions),
        kernels=tuple(k for k in module.kernels if k.name in kernels),
        constants=tuple(c for c in module.constants if c.var in values),
    )


def _live_bindings(block: Dataflow, live: set[Var]) -> tuple[Binding, ...]:
    kept = []
    for b in reversed(block.bindings):
        if b.var in live or isinstance(b.value, MatchCast):
            kept.append(b)
            live.update(b.value.operands())
    return tuple(reversed(kept))

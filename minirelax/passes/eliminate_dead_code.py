"""Drop what nobody reads: bindings, and then constants, private functions and kernels.

One walk from last to first suffices: when a binding is reached, all its readers have been seen.  It is safe because a
dataflow block has no side effects, with one exception: a `match_cast` that says more than is known may fail, so neither it nor
a call of a function with one is ever dead.  Outside of blocks, calls and effects stay whatever they are; control flow goes as
in a block.

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

from collections.abc import Collection
from dataclasses import replace

from minirelax.ir.graph import (
    Alias,
    Atom,
    Binding,
    CallKernel,
    CallValue,
    Cond,
    Dataflow,
    Expr,
    Function,
    MakeShape,
    MakeTuple,
    MatchCast,
    Module,
    RunKernel,
    Scan,
    TupleItem,
    Var,
    While,
    called_functions,
)
from minirelax.ir.lattice import Compatibility, compatibility
from minirelax.ir.types import Callable
from minirelax.passes.base import function_pass

PURE = (Alias, Cond, MakeShape, MakeTuple, Scan, TupleItem, While)  # outside of a block, too


def eliminate_dead_code(module: Module) -> Module:
    """`module` without unread bindings, constants, private functions and kernels."""
    return drop_unused(drop_dead_bindings(module))


def drop_dead_bindings(module: Module) -> Module:
    """`module` without the bindings that nobody reads."""
    failing = _failing(module)
    return function_pass(lambda function: _without_dead(function, failing))(module)


def _failing(module: Module) -> frozenset[str]:
    """The functions that a match_cast, their own or one of a function that they call, may end with an error."""
    found: set[str] = set()
    while True:
        more = {f.name for f in module.functions if f.name not in found and (f.returns or any(
            _may_fail(b.value, found) for b in f.bindings))}
        if not more:
            return frozenset(found)
        found |= more


def _may_fail(value: Expr, failing: Collection[str]) -> bool:
    if isinstance(value, MatchCast):
        return compatibility(value.type, value.value.type) is not Compatibility.PASS
    return isinstance(value, CallValue) or any(name in failing for name in called_functions(value))


def _without_dead(function: Function, failing: Collection[str]) -> Function:
    live: set[Atom] = {function.result}
    body: list[Dataflow | Binding] = []
    for part in reversed(function.body):
        if isinstance(part, Dataflow):
            outputs = tuple(v for v in part.outputs if v in live)
            kept = _live_bindings(part, live, failing)
            if kept or outputs:
                body.append(part if len(kept) == len(part.bindings) and outputs == part.outputs else Dataflow(kept, outputs))
        elif part.var in live or not isinstance(part.value, PURE) or _may_fail(part.value, failing):
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
        if _is_function(f.result, named) and f.result.name not in functions:
            functions.add(f.result.name)
            reached.append(named[f.result.name])
        for b in f.bindings:
            values.update(b.value.operands())
            for name in (*called_functions(b.value), *(a.name for a in b.value.operands() if _is_function(a, named))):
                if name not in functions:
                    functions.add(name)
                    reached.append(named[name])
            if isinstance(b.value, CallKernel | RunKernel):
                kernels.add(b.value.kernel)
    return replace(
        module,
        functions=tuple(f for f in module.functions if f.name in functions),
        kernels=tuple(k for k in module.kernels if k.name in kernels),
        constants=tuple(c for c in module.constants if c.var in values),
    )


def _is_function(atom: Atom, functions: Collection[str]) -> bool:
    return isinstance(atom, Var) and isinstance(atom.type, Callable) and atom.name in functions


def _live_bindings(block: Dataflow, live: set[Var], failing: Collection[str]) -> tuple[Binding, ...]:
    kept = []
    for b in reversed(block.bindings):
        if b.var in live or _may_fail(b.value, failing):
            kept.append(b)
            live.update(b.value.operands())
    return tuple(reversed(kept))

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
    CallFunction,
    CallKernel,
    CallValue,
    Cond,
    Dataflow,
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
from minirelax.ir.lattice import Compatibility, bind_arguments, compatibility
from minirelax.ir.types import Callable, Type
from minirelax.passes.base import function_pass

PURE = (Alias, Cond, MakeShape, MakeTuple, Scan, TupleItem, While)  # outside of a block, too


def eliminate_dead_code(module: Module) -> Module:
    """`module` without unread bindings, constants, private functions and kernels."""
    return drop_unused(drop_dead_bindings(module))


def drop_dead_bindings(module: Module) -> Module:
    """`module` without the bindings that nobody reads."""
    failing = _Failing(module)
    return function_pass(lambda function: _without_dead(function, failing))(module)


class _Failing:
    """What may end with an error: checks, calls of functions with one, and calls whose arguments are checked at entry."""

    def __init__(self, module: Module):
        self.module = module
        self.functions = {f.name for f in module.functions if f.returns and _is_checked(f.returns, f.result.type)}
        while more := {f.name for f in module.functions if f.name not in self.functions and any(map(self.includes, f.bindings))}:
            self.functions |= more

    def includes(self, binding: Binding) -> bool:
        """May this binding end with an error?"""
        match binding.value:
            case MatchCast(value=value, type=type_):
                return _is_checked(type_, value.type)
            case CallValue():
                return True
            case CallFunction(function=name, args=args):
                signature = self.module[name].type
                return name in self.functions or bind_arguments(signature, [a.type for a in args])[1] < Compatibility.PASS
        return any(name in self.functions for name in called_functions(binding.value))


def _is_checked(wanted: Type, given: Type) -> bool:
    """Does the wanted type say more of a value than the one that is given?"""
    return compatibility(wanted, given) is not Compatibility.PASS


def _without_dead(function: Function, failing: _Failing) -> Function:
    live: set[Atom] = {function.result}
    body: list[Dataflow | Binding] = []
    for part in reversed(function.body):
        if isinstance(part, Dataflow):
            outputs = tuple(v for v in part.outputs if v in live)
            kept = _live_bindings(part, live, failing)
            if kept or outputs:
                body.append(part if len(kept) == len(part.bindings) and outputs == part.outputs else Dataflow(kept, outputs))
        elif part.var in live or not isinstance(part.value, PURE) or failing.includes(part):
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


def _live_bindings(block: Dataflow, live: set[Var], failing: _Failing) -> tuple[Binding, ...]:
    kept = []
    for b in reversed(block.bindings):
        if b.var in live or failing.includes(b):
            kept.append(b)
            live.update(b.value.operands())
    return tuple(reversed(kept))

"""Compute before a loop what every round would compute anew: what depends on the loop's arguments and on constants only.

A loop calls its functions (`body`, and the `test` of a while loop) with the same arguments in each round, and with carried values
that change.  An op of such a function that reads nothing but arguments gives the same in each round: it goes before the loop,
and its value is one more argument.  Loops in loops are done from the inside out, so a value goes out as far as it may; what
reaches `main` and is made of weights goes on to ``bind`` (`bind_parameters`).  Arguments that then nobody reads go.

Why it is right: dataflow blocks have no side effects, and arguments stay what they are.  But a loop may have no rounds, and what
it never came to must not fail before it: only ops go that have a value whatever their operands hold (sums, products, elementwise
functions, moves of elements) and, where sizes and guards show it, slices that lie inside and extremes of what is not empty.
Library calls, `match_cast`, indices from arrays and integer powers stay.  So does a value whose sizes a carried array decides,
as they may change, and one that takes far more memory than what it is made of.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: f32[n, m], w: f32[m, m]) -> Tuple[f32[n, m]]:
...     v0: Tuple[f32[n, m]] = while_loop(test, body, (w,), (x,))
...     return v0
...
... @private
... def test(w: f32[m, m], c: f32[n, m]) -> bool[()]:
...     with dataflow():
...         v0: f32[()] = sum(c, axes=(0, 1), keepdims=False)
...         v1: bool[()] = less(v0, 1.0)
...         output(v1)
...     return v1
...
... @private
... def body(w: f32[m, m], c: f32[n, m]) -> Tuple[f32[n, m]]:
...     with dataflow():
...         v0: f32[m, m] = exp(w)
...         v1: f32[n, m] = matmul(c, v0)
...         v2: Tuple[f32[n, m]] = (v1,)
...         output(v2)
...     return v2''')
>>> print(hoist_invariants(before))
def main(x: f32[n, m], w: f32[m, m]) -> Tuple[f32[n, m]]:
    with dataflow():
        v1: f32[m, m] = exp(w)
        output(v1)
    v0: Tuple[f32[n, m]] = while_loop(test, body, (v1,), (x,))
    return v0
<BLANKLINE>
@private
def test(v2: f32[m, m], c: f32[n, m]) -> bool[()]:
    with dataflow():
        v0: f32[()] = sum(c, axes=(0, 1), keepdims=False)
        v1: bool[()] = less(v0, 1.0)
        output(v1)
    return v1
<BLANKLINE>
@private
def body(v0: f32[m, m], c: f32[n, m]) -> Tuple[f32[n, m]]:
    with dataflow():
        v1: f32[n, m] = matmul(c, v0)
        v2: Tuple[f32[n, m]] = (v1,)
        output(v2)
    return v2
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from minirelax.ir.bounds import Facts
from minirelax.ir.dim import Dim
from minirelax.ir.graph import (
    Atom,
    Binding,
    Const,
    Dataflow,
    Function,
    Module,
    Scan,
    Var,
    While,
    called_functions,
    fresh_names,
)
from minirelax.ir.infer import bound_sizes
from minirelax.ir.op import substitute_dims
from minirelax.ir.types import substitute_type
from minirelax.passes.base import BIND
from minirelax.passes.bind_parameters import grows
from minirelax.passes.loop_functions import Called, facts_of_guard, is_known_tensor, sizes_at
from minirelax.passes.share_kernels import unique


def hoist_invariants(module: Module) -> Module:
    """`module` with what is the same in all rounds of a loop computed before it."""
    return _Hoisting(module).run()


class _Hoisting:
    """The functions as far as they are done: what a loop calls before the function with the loop."""

    def __init__(self, module: Module):
        self.module, self.functions = module, {f.name: f for f in module.functions}
        self.constants = {c.var for c in module.constants}
        self.taken = {*self.functions, *(k.name for k in module.kernels)}
        self.callers = Counter(n for f in module.functions for n in functions_read(f, self.functions))

    def run(self) -> Module:
        for name in _callees_first(self.functions):
            if name != BIND:
                self.functions[name] = self._rewritten(self.functions[name])
        functions = tuple(self.functions.values())
        return self.module if functions == self.module.functions else replace(self.module, functions=functions)

    def _rewritten(self, function: Function) -> Function:
        if not any(isinstance(part, Binding) and isinstance(part.value, While | Scan) for part in function.body):
            return function
        body: list[Dataflow | Binding] = []
        names, facts = _Names(function, self.constants), tuple(f for g in function.guards for f in facts_of_guard(g))
        for part in function.body:
            if isinstance(part, Binding) and isinstance(part.value, While | Scan):
                part = self._loop(part, body, names, facts)
            body.append(part)
        return replace(function, body=tuple(body))

    def _loop(self, loop: Binding, before: list[Dataflow | Binding], names: _Names, facts: Facts) -> Binding:
        """The loop with more arguments, for which bindings are added to the parts `before` it."""
        args = loop.value.args
        called = [Called(f, sizes_at(f, args), facts) for f in (self.functions[n] for n in called_functions(loop.value))]
        called = [self._with_invariants(c, args, [o for o in called if o is not c]) for c in called]
        moved: list[Binding] = []
        values = [self._moved(c, args, names, moved) for c in called]
        more = tuple(v for part in values for v in part)
        if not more:
            return loop
        _append(before, moved, more)
        changed = [_with_parameters(c, values, at, len(args), self.constants) for at, c in enumerate(called)]
        args, changed = _without_unread((*args, *more), changed, [c.sizes for c in called])
        made = [self._keep(f, c) for f, c in zip(changed, called, strict=True)]
        callees = dict(zip(("body",) if len(made) == 1 else ("test", "body"), made, strict=True))
        return replace(loop, value=replace(loop.value, args=args, **callees))

    def _with_invariants(self, called: Called, args: tuple[Atom, ...], others: list[Called]) -> Called:
        """With what depends on arguments alone, as far as the other functions of the loop know the sizes of its values."""
        function = called.function
        sources: dict[Atom, frozenset[Var]] = {
            p: frozenset((p,))
            for p, a in zip(function.params, args, strict=False)
            if is_known_tensor(p.type) and a.type == substitute_type(p.type, called.sizes)
        }
        found = []
        for part in function.body:
            for b in part.bindings if isinstance(part, Dataflow) else ():
                read = [a for a in b.value.operands() if isinstance(a, Var) and a not in self.constants]
                if all(a in sources for a in read) and called.never_fails(b):
                    sources[b.var] = frozenset().union(*(sources[a] for a in read))
                    found.append(b)
        inner = {b.var for b in found}
        outside = {a for b in function.bindings if b.var not in inner for a in b.value.operands()} | {function.result}
        results = []
        for b in reversed(found):
            if b.var not in outside:
                continue
            goes = sources[b.var] and b.var != function.result and not grows(b.var, sources[b.var])
            if goes and all(o.inside(substitute_type(b.var.type, called.sizes)) for o in others):
                results.append(b.var)
            else:
                outside.update(b.value.operands())  # computed here: so its operands are read here
        return replace(called, bindings=tuple(found), results=tuple(reversed(results)))

    def _moved(self, called: Called, args: tuple[Atom, ...], names: _Names, moved: list[Binding]) -> tuple[Var, ...]:
        """The results as values of the function with the loop; adds what computes them to `moved`."""
        new: dict[Atom, Atom] = dict(zip(called.function.params, args, strict=False))
        for b in _needed(called.bindings, called.results):
            new[b.var] = Var(names.free(b.var.name), substitute_type(b.var.type, called.sizes))
            value = substitute_dims(b.value, called.sizes).map_operands(lambda a: new.get(a, a))
            moved.append(Binding(new[b.var], value, b.source))
        return tuple(new[v] for v in called.results)

    def _keep(self, changed: Function, called: Called) -> str:
        """The name of the changed function: a new one, if others call it as it was."""
        name = changed.name
        if self.callers[name] > 1 or not changed.private:
            self.callers[name] -= 1
            name = unique(name, self.taken)
            self.taken.add(name)
            self.callers.update([name, *functions_read(called.function, self.functions)])
        self.functions[name] = replace(changed, name=name, private=True)
        return name


def _with_parameters(called: Called, values: Sequence[tuple[Var, ...]], at: int, count: int, constants: set[Var]) -> Function:
    """The function with a parameter, after its first `count`, for each value: those of its own in place of the bindings."""
    function, names = called.function, _Names(called.function, constants)
    params: list[Var] = []
    for i, part in enumerate(values):
        params += called.results if i == at else (Var(names.free(v.name), called.inside(v.type)) for v in part)
    invariant, body = {b.var for b in called.bindings}, []
    read: set[Atom] = {function.result}
    for part in reversed(function.body):
        if isinstance(part, Dataflow):
            kept = []
            for b in reversed(part.bindings):
                if b.var not in called.results and (b.var not in invariant or b.var in read or b.var in part.outputs):
                    kept.append(b)
                    read.update(b.value.operands())
            part = Dataflow(tuple(reversed(kept)), tuple(v for v in part.outputs if v not in called.results))
            body += [part] if kept else []
        else:
            read.update(part.value.operands())
            body.append(part)
    params = [*function.params[:count], *params, *function.params[count:]]
    return replace(function, params=tuple(params), body=tuple(reversed(body)))


def _without_unread(
    args: tuple[Atom, ...], functions: Sequence[Function], sizes: Sequence[dict[str, Dim]]
) -> tuple[tuple[Atom, ...], list[Function]]:
    """The arguments of a loop and its functions without those that none of these reads, or shows a size by, or checks."""
    dropped: set[int] = set()
    for i, a in enumerate(args):
        checked = any(a.type != substitute_type(f.params[i].type, s) for f, s in zip(functions, sizes, strict=True))
        if not checked and not any(_needs(f, i, dropped) for f in functions):
            dropped.add(i)
    kept = [tuple(p for i, p in enumerate(f.params) if i not in dropped) for f in functions]
    changed = [replace(f, params=params) for f, params in zip(functions, kept, strict=True)]
    return tuple(a for i, a in enumerate(args) if i not in dropped), changed


def _needs(function: Function, at: int, dropped: set[int]) -> bool:
    param = function.params[at]
    shown = (bound_sizes(p.type) for i, p in enumerate(function.params) if i != at and i not in dropped)
    read = param == function.result or any(param in b.value.operands() for b in function.bindings)
    return read or not bound_sizes(param.type) <= frozenset().union(*shown)


class _Names:
    """Names for values of one function."""

    def __init__(self, function: Function, constants: set[Var]):
        self.taken = {v.name for v in (*function.params, *function.bound, *constants)}
        self.taken |= {b.var.name for b in function.bindings if b.var}
        self.fresh = fresh_names(function)

    def free(self, wanted: str) -> str:
        """The wanted name, or else one that is free."""
        name = wanted if wanted not in self.taken else next(n for n in self.fresh if n not in self.taken)
        self.taken.add(name)
        return name


def _needed(bindings: tuple[Binding, ...], results: Sequence[Var]) -> list[Binding]:
    """The bindings that the results are made of."""
    wanted, kept = set(results), []
    for b in reversed(bindings):
        if b.var in wanted:
            kept.append(b)
            wanted.update(b.value.operands())
    return kept[::-1]


def _append(parts: list[Dataflow | Binding], bindings: list[Binding], outputs: tuple[Var, ...]) -> None:
    """Add bindings to the last block, or in a new one."""
    if parts and isinstance(parts[-1], Dataflow):
        block = parts.pop()
        parts.append(Dataflow((*block.bindings, *bindings), (*block.outputs, *outputs)))
    else:
        parts.append(Dataflow(tuple(bindings), outputs))


def functions_read(function: Function, functions: dict[str, Function]) -> Iterator[str]:
    """The functions of the module that a function calls or has as values, as often as it names them."""
    for b in function.bindings:
        yield from called_functions(b.value)
        yield from (a.name for a in b.value.operands() if _is_function(a, functions))
    if _is_function(function.result, functions):
        yield function.result.name


def _is_function(atom: Atom, functions: dict[str, Function]) -> bool:
    return not isinstance(atom, Const) and atom.name in functions and functions[atom.name].type == atom.type


def _callees_first(functions: dict[str, Function]) -> list[str]:
    """The names of all functions, those that a function calls before it, but where they call each other."""
    order: dict[str, None] = {}
    seen: set[str] = set()
    stack = [(name, False) for name in reversed(functions)]
    while stack:
        name, done = stack.pop()
        if done:
            order[name] = None
        elif name not in seen:
            seen.add(name)
            stack.append((name, True))
            stack += [(n, False) for b in functions[name].bindings for n in called_functions(b.value)]
    return list(order)

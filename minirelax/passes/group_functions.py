"""Turn groups of bindings into private functions and calls; groups that do the same share one function.

A group's function takes the values that the group reads, constants of the module too, under names that no constant has.
Sizes that it mentions and that no parameter's shape shows by themselves reach it in one more parameter, a `Shape` (Relax,
figure 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from minirelax.ir.dim import symbol
from minirelax.ir.graph import (
    Atom,
    Binding,
    CallFunction,
    CallKernel,
    Dataflow,
    Expr,
    Function,
    MakeShape,
    MakeTuple,
    Module,
    TupleItem,
    Var,
    fresh_names,
    joined,
    named_source,
)
from minirelax.ir.infer import free_sizes
from minirelax.ir.types import Shape, Tuple
from minirelax.passes.share_kernels import unique

NAMED = 8  # calls that a group's name mentions


class GroupFunctions:
    """The functions made so far, by what they do."""

    def __init__(self, module: Module):
        self.taken = {f.name for f in module.functions} | {k.name for k in module.kernels}
        self.constants = {c.var for c in module.constants}
        self.by_content: dict[tuple, Function] = {}

    @property
    def functions(self) -> tuple[Function, ...]:
        return tuple(self.by_content.values())

    def regroup(self, block: Dataflow, order: list[list[int]], names: Iterator[str]) -> Dataflow:
        """The block with its bindings in this order of groups, groups of several being calls; `names` for tuples of results."""
        out: list[Binding] = []
        read_last: dict[Var, int] = {v: len(order) for v in block.outputs}
        for at, members in enumerate(order):
            read_last.update(
                (a, max(at, read_last.get(a, 0)))
                for n in members
                for a in block.bindings[n].value.operands()
                if isinstance(a, Var)
            )
        for at, members in enumerate(order):
            bindings = [block.bindings[n] for n in members]
            if len(members) == 1 or _is_one_call(bindings):
                out += bindings
            else:
                out += self._call(bindings, [b.var for b in bindings if read_last.get(b.var, 0) > at], names)
        return Dataflow(tuple(out), block.outputs)

    def _call(self, bindings: list[Binding], results: list[Var], names: Iterator[str]) -> list[Binding]:
        function = self._function(bindings, results)
        args = read_from_outside(bindings)
        source, out = joined(named_source(b) for b in bindings if not isinstance(b.value, TupleItem)), []
        if len(function.params) > len(args):
            shape = Var(next(names), function.params[-1].type)
            out.append(Binding(shape, MakeShape(shape.type.values), source))
            args = (*args, shape)
        call = CallFunction(function.name, args)
        if len(results) == 1:
            return [*out, Binding(results[0], call, source)]
        whole = Var(next(names), Tuple(tuple(v.type for v in results)))
        out.append(Binding(whole, call, source))
        return [*out, *(Binding(v, TupleItem(whole, i), source) for i, v in enumerate(results))]

    def name(self, bindings: list[Binding]) -> str:
        """What a new function is called: what its kernels do."""
        return "_".join(_mentioned([b.value.kernel for b in bindings if isinstance(b.value, CallKernel)]))

    def _function(self, bindings: list[Binding], results: list[Var]) -> Function:
        params = read_from_outside(bindings)
        number: dict[Atom, int] = {v: i for i, v in enumerate((*params, *(b.var for b in bindings)))}
        key = (
            tuple(p.type for p in params),
            tuple(number[v] for v in results),
            tuple((*_what(b.value), tuple(number.get(a, a) for a in b.value.operands()), b.var.type) for b in bindings),
        )
        if key not in self.by_content:
            name = unique("fused_" + self.name(bindings), self.taken)
            self.taken.add(name)
            names = self._parameter_names(params, bindings)
            inside = [replace(b, value=b.value.map_operands(lambda a: names.get(a, a))) for b in bindings] if names else bindings
            self.by_content[key] = _function_of(name, tuple(names.get(p, p) for p in params), inside, results)
        return self.by_content[key]

    def _parameter_names(self, params: tuple[Var, ...], bindings: list[Binding]) -> dict[Atom, Var]:
        """Parameters to take the places of constants, whose names are visible in every function."""
        taken = {v.name for v in (*self.constants, *params, *(b.var for b in bindings))}
        names: dict[Atom, Var] = {}
        for p in params:
            if p in self.constants:
                names[p] = Var(unique(p.name, taken), p.type)
                taken.add(names[p].name)
        return names


def read_from_outside(bindings: Iterable[Binding]) -> tuple[Var, ...]:
    """The values that these bindings read and do not make, each once."""
    made = {b.var for b in bindings}
    return tuple(dict.fromkeys(a for b in bindings for a in b.value.operands() if isinstance(a, Var) and a not in made))


def _is_one_call(bindings: list[Binding]) -> bool:
    """Is this one kernel, whose outputs are taken from its tuple?"""
    call, *items = bindings
    return isinstance(call.value, CallKernel) and all(isinstance(b.value, TupleItem) and b.value.value == call.var for b in items)


def _what(value: Expr) -> tuple:
    """What a right-hand side does, whatever it reads: two of one kind with the same attributes do the same."""
    match value:
        case CallKernel(kernel=kernel, sizes=sizes):
            return kernel, sizes
    return type(value), repr(value.attributes())


def _function_of(name: str, params: tuple[Var, ...], bindings: list[Binding], results: list[Var]) -> Function:
    result, block = results[0], Dataflow(tuple(bindings), tuple(results))
    if len(results) > 1:
        draft = Function(name, params, (block,), result)
        result = Var(next(fresh_names(draft)), Tuple(tuple(v.type for v in results)))
        block = Dataflow((*bindings, Binding(result, MakeTuple(tuple(results)))), (result,))
    function = Function(name, params, (block,), result, private=True, group=True)
    return with_sizes(function, free_sizes(function))


def with_sizes(function: Function, free: tuple[str, ...], taken: Iterable[str] = ()) -> Function:
    """`function` with a further parameter that shows these sizes, if there are any; `taken` are names that it may not have."""
    if not free:
        return function
    taken = {*taken, *free, *(v.name for v in function.params), *(b.var.name for b in function.bindings)}
    return replace(function, params=(*function.params, Var(unique("s", taken), Shape(tuple(map(symbol, free))))))


def _mentioned(kernels: list[str]) -> list[str]:
    """The names of what the kernels do: without the number that tells two kernels of one op apart."""
    ops = [re.sub(r"_\d+$", "", k) for k in kernels]
    return ops if len(ops) <= NAMED else [*ops[: NAMED - 1], ops[-1]]

"""Turn groups of bindings into private functions and calls; groups that do the same share one function.

A group's function takes the values that the group reads, constants of the module too, under names that no constant has.
Sizes that it mentions and that no parameter's shape shows by themselves are passed as extra sizes, in the order of
`infer.extra_sizes` (Relax, figure 8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from minirelax.ir.dim import symbol
from minirelax.ir.graph import Atom, Binding, CallFunction, Dataflow, Function, MakeTuple, Module, TupleItem, Var, fresh_names
from minirelax.ir.infer import extra_sizes
from minirelax.ir.types import Tuple
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
            if len(members) == 1:
                out += bindings
            else:
                out += self._call(bindings, [b.var for b in bindings if read_last.get(b.var, 0) > at], names)
        return Dataflow(tuple(out), block.outputs)

    def _call(self, bindings: list[Binding], results: list[Var], names: Iterator[str]) -> list[Binding]:
        function = self._function(bindings, results)
        made = {b.var for b in bindings}
        args = tuple(dict.fromkeys(a for b in bindings for a in b.value.operands() if a not in made))
        call = CallFunction(function.name, args, tuple(map(symbol, extra_sizes(function))))
        source = bindings[-1].source
        if len(results) == 1:
            return [Binding(results[0], call, source)]
        whole = Var(next(names), Tuple(tuple(v.type for v in results)))
        return [Binding(whole, call, source), *(Binding(v, TupleItem(whole, i), source) for i, v in enumerate(results))]

    def _function(self, bindings: list[Binding], results: list[Var]) -> Function:
        made = {b.var for b in bindings}
        params = tuple(dict.fromkeys(a for b in bindings for a in b.value.operands() if a not in made))
        number: dict[Atom, int] = {v: i for i, v in enumerate((*params, *(b.var for b in bindings)))}
        key = (
            tuple(p.type for p in params),
            tuple(number[v] for v in results),
            tuple((b.value.kernel, tuple(number[a] for a in b.value.args), b.value.sizes, b.var.type) for b in bindings),
        )
        if key not in self.by_content:
            name = unique("fused_" + "_".join(_mentioned([b.value.kernel for b in bindings])), self.taken)
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


def _function_of(name: str, params: tuple[Var, ...], bindings: list[Binding], results: list[Var]) -> Function:
    if len(results) == 1:
        return Function(name, params, (Dataflow(tuple(bindings), tuple(results)),), results[0], private=True)
    draft = Function(name, params, (Dataflow(tuple(bindings), ()),), results[0], private=True)
    whole = Var(next(fresh_names(draft)), Tuple(tuple(v.type for v in results)))
    body = Dataflow((*bindings, Binding(whole, MakeTuple(tuple(results)))), (whole,))
    return Function(name, params, (body,), whole, private=True)


def _mentioned(kernels: list[str]) -> list[str]:
    """The names of what the kernels do: without the number that tells two kernels of one op apart."""
    ops = [re.sub(r"_\d+$", "", k) for k in kernels]
    return ops if len(ops) <= NAMED else [*ops[: NAMED - 1], ops[-1]]

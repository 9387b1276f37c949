"""Turn every op into a call: of a kernel made by its `lower` rule, or of a library routine.

The kernel is the op's meaning on tensor expressions, with scalar constants written into it.  Sizes of the graph that it
mentions become explicit parameters of the kernel, so that kernels that are equal up to names are one.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: f32[n], y: f32[2*m], z: f32[m]) -> f32[2*m]:
...     with dataflow():
...         v0: f32[n] = maximum(x, 0.0)
...         v1: f32[n] = sort(v0, axis=0)
...         v2: f32[2*m] = maximum(y, 0.0)
...         output(v1, v2)
...     return v2''')
>>> print(legalize(before))
@kernel
def maximum(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = maximum(x[i], 0.0)
<BLANKLINE>
@kernel
def maximum_2(y: f32[2*m], out: f32[2*m], *, m):
    for i in range(2*m):
        out[i] = maximum(y[i], 0.0)
<BLANKLINE>
def main(x: f32[n], y: f32[2*m], z: f32[m]) -> f32[2*m]:
    with dataflow():
        v0: f32[n] = call_kernel(maximum, x, sizes=(n,))
        v1: f32[n] = call_library("sort", v0, axis=0)
        v2: f32[2*m] = call_kernel(maximum_2, y, sizes=(m,))
        output(v1, v2)
    return v2

The binding's source takes the op's name and the value's along (``exp v3``), for who asks later what a kernel is made of.

A literal that the program returns, or gives to a kernel that the user wrote, becomes a value, made by a kernel like any other.

Every kernel computes one op; `fuse_ops` and `fuse_kernels` join them.  Reshapes become kernels too: those that are left
alone become views in `lower_calls`.  The function ``bind`` keeps its ops: it runs once, by their `numpy` rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minirelax.ir.dim import Dim, symbol
from minirelax.ir.graph import (
    Alias,
    Binding,
    CallFunction,
    CallKernel,
    CallLibrary,
    CallValue,
    Cond,
    Const,
    Dataflow,
    Expr,
    Function,
    MakeTuple,
    Module,
    Scan,
    Source,
    Var,
    While,
    fresh_names,
    joined,
    named_source,
)
from minirelax.ir.op import Op
from minirelax.ir.scalar import literal
from minirelax.ir.tensor import TensorExpr, lower_to_kernel
from minirelax.ir.types import symbols
from minirelax.ops.create import Full
from minirelax.passes.base import BIND
from minirelax.passes.grouping import names_inside
from minirelax.passes.share_kernels import KernelTable

NEEDS_VALUES = (Alias, CallFunction, CallKernel, CallValue, Cond, MakeTuple, Scan, While)


def legalize(module: Module) -> Module:
    """`module` in which no function but ``bind`` contains an op."""
    legalization = _Legalization(module)
    functions = tuple(f if f.name == BIND else legalization.function(f) for f in module.functions)
    return replace(module, functions=functions, kernels=legalization.table.kernels)


class _Legalization:
    """The kernels made so far, also by what they were made of."""

    def __init__(self, module: Module):
        self.module, self.table = module, KernelTable.of(module)
        self.known: dict[tuple, tuple[str, tuple[Dim, ...]]] = {}

    def function(self, function: Function) -> Function:
        names = fresh_names(function, self.module)
        body: list[Dataflow | Binding] = []
        for p in function.body:
            if isinstance(p, Dataflow):
                body.append(self._block(p, names))
            else:
                made, p = self._with_values(p, names)
                body += [*([Dataflow(tuple(made), tuple(b.var for b in made))] if made else []), self._binding(p)]
        result = function.result
        if isinstance(result, Const):
            made, result = self._value(result, names)
            body.append(Dataflow((made,), (result,)))
        return replace(function, body=tuple(body), result=result)

    def _block(self, block: Dataflow, names: Iterator[str]) -> Dataflow:
        out: list[Binding] = []
        for b in block.bindings:
            made, b = self._with_values(b, names)
            out += [*made, self._binding(b)]
        return Dataflow(tuple(out), block.outputs)

    def _with_values(self, b: Binding, names: Iterator[str]) -> tuple[list[Binding], Binding]:
        """The binding with a name for every literal that is stored or passed on."""
        if not isinstance(b.value, NEEDS_VALUES) or not any(isinstance(a, Const) for a in b.value.operands()):
            return [], b
        made = {a: self._value(a, names) for a in b.value.operands() if isinstance(a, Const)}
        b = replace(b, value=b.value.map_operands(lambda a: made[a][1] if a in made else a))
        return [binding for binding, _ in made.values()], b

    def _value(self, literal: Const, names: Iterator[str]) -> tuple[Binding, Var]:
        """A binding that gives a literal a name."""
        var = Var(next(names), literal.type)
        return Binding(var, self._call(Full(literal, ())), Source(name=f"full {var.name}")), var

    def _binding(self, binding: Binding) -> Binding:
        match binding.value:
            case Op():
                return replace(binding, value=self._call(binding.value), source=named_source(binding))
            case CallKernel() | CallLibrary():
                return replace(binding, source=named_source(binding))
            case CallFunction(function=name) if isinstance(group := self.module[name], Function) and group.group:
                return replace(binding, source=_of_group(binding, group))
        return binding

    def _call(self, op: Op) -> Expr:
        if op.library:
            return CallLibrary(op.opname(), op.operands(), tuple(op.attributes().items()))
        args = tuple(dict.fromkeys(a for a in op.operands() if isinstance(a, Var)))
        key = (
            type(op),
            repr(op.attributes()),
            tuple(a if isinstance(a, Const) else (args.index(a), a.type) for a in op.operands()),
        )
        if key not in self.known:
            self.known[key] = self._kernel(op, args)
        kernel, sizes = self.known[key]
        return CallKernel(kernel, args, sizes)

    def _kernel(self, op: Op, args: tuple[Var, ...]) -> tuple[str, tuple[Dim, ...]]:
        sizes = frozenset().union(*(symbols(a.type) for a in args))
        names = {a: _parameter_name(a.name, sizes) for a in args}
        params = tuple(_literal(a) if isinstance(a, Const) else Var(names[a], a.type) for a in op.operands())
        kernel = lower_to_kernel(op.opname(), op.lower, params, _all_names(op, sizes) | frozenset(names.values()))
        return self.table.add(kernel), tuple(map(symbol, kernel.sizes))


def _of_group(binding: Binding, group: Function) -> Source:
    """The source of a call of a group: its ops by name, at the lines of this call, or of the call that the group was made for."""
    inside = [b for b in group.bindings if isinstance(b.value, Op)]
    lines = binding.source.leaves if binding.source else ()
    if len(lines) == len(inside):
        inside = [replace(b, source=line) for b, line in zip(inside, lines, strict=True)]
    return joined(map(named_source, inside)) or Source()


def _literal(constant: Const) -> TensorExpr:
    return TensorExpr((), constant.dtype, lambda: literal(constant.value, constant.dtype))


def _parameter_name(name: str, sizes: frozenset[str]) -> str:
    """The value's own name, unless a size or the output has it."""
    return f"{name}_" if name in sizes or name.startswith("out") else name


def _all_names(op: Op, sizes: frozenset[str]) -> frozenset[str]:
    """The sizes that an op mentions, in its attributes too: no loop may have such a name."""
    return sizes | frozenset(n for a in op.attributes().values() for n in names_inside(a))

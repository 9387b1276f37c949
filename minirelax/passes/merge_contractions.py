"""Make one matrix product of several that multiply the same values with weights.

Attention multiplies its input with three weights: one product with the weights side by side reads the input once, has larger
panels to work on, and is one kernel call instead of three.  The weights are joined once: `bind_parameters` moves that out of
the call path, and constants are joined now.

That is right since a column of a product depends on the left operand and on the same column of the right one only, and on
nothing that is summed elsewhere.  The products have one left operand and weights otherwise, so none needs another's result,
and all can be computed where the first one was.

What the products were is then a slice of the joined result.  A slice must not cost a copy, so the products that are joined are
those whose single reader moves elements anyway (a transpose, a slice, a concatenation), or is a matrix product, and takes
the slice in as it reads.  On the way there may be the sum with a bias, which is joined likewise, and a reshape that splits the
columns into heads: the joined result is reshaped, at no cost, and its heads are sliced.  Where a product feeds arithmetic, that
is done while the product's rows are in registers, which a slice would prevent: such products stay apart.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: f32[n, 8], *, a: f32[8, 4], b: f32[8, 4]) -> f32[n, n]:
...     with dataflow():
...         v0: f32[n, 4] = matmul(x, a)
...         v1: f32[n, 4] = matmul(x, b)
...         v2: f32[4, n] = transpose(v1, axes=(1, 0))
...         v3: f32[n, n] = matmul(v0, v2)
...         output(v3)
...     return v3''')
>>> print(merge_contractions(before))
def main(x: f32[n, 8], *, a: f32[8, 4], b: f32[8, 4]) -> f32[n, n]:
    with dataflow():
        v4: f32[8, 8] = concatenate((a, b), axis=1)
        v5: f32[n, 8] = matmul(x, v4)
        v0: f32[n, 4] = slice(v5, starts=(0, 0), sizes=(n, 4), steps=(1, 1))
        v1: f32[n, 4] = slice(v5, starts=(0, 4), sizes=(n, 4), steps=(1, 1))
        v2: f32[4, n] = transpose(v1, axes=(1, 0))
        v3: f32[n, n] = matmul(v0, v2)
        output(v3)
    return v3
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from minirelax.ir.dim import Dim
from minirelax.ir.graph import (
    Array,
    Atom,
    Binding,
    Constant,
    Dataflow,
    Expr,
    Function,
    Module,
    Source,
    Var,
    fresh_names,
    joined,
    named_source,
)
from minirelax.ir.infer import mentioned_names
from minirelax.ir.op import Op
from minirelax.ir.types import Tensor, symbols
from minirelax.ops.arithmetic import Add
from minirelax.ops.index import Slice
from minirelax.ops.linalg import Matmul
from minirelax.ops.movement import Concatenate, Reshape, Transpose
from minirelax.passes.eliminate_dead_code import drop_dead_bindings

READERS = (Transpose, Slice, Concatenate, Matmul)  # take a slice in as they read


def merge_contractions(module: Module) -> Module:
    """`module` with one product for several of the same values with weights, where reading its parts costs nothing."""
    constants, live = {c.var: c for c in module.constants}, drop_dead_bindings(module)  # nobody waits for a dead reader
    functions = tuple(_Merge(f, module, constants).run() for f in live.functions)
    if all(a is b for a, b in zip(functions, live.functions, strict=True)):
        return module
    return replace(module, functions=functions, constants=tuple(constants.values()))


@dataclass(frozen=True)
class Branch:
    """A product that may be joined with others, and what belongs to it: `path` are its bindings, from the product to the last.

    `columns` are the product's; `tail` is the shape of one head, ``()`` without a reshape into heads.
    """

    path: tuple[Binding, ...]
    weight: Var
    bias: Var | None
    columns: int
    tail: tuple[int, ...]

    @property
    def end(self) -> Binding:
        """The binding that becomes a slice."""
        return self.path[-1]

    @property
    def count(self) -> int:
        """How many places it takes of the axis that is sliced: heads, or columns."""
        return self.columns // math.prod(self.tail)


class _Merge:
    """One function."""

    def __init__(self, function: Function, module: Module, constants: dict[Var, Constant]):
        self.function, self.constants = function, constants
        self.names = fresh_names(function, module)
        self.taken = {v.name for f in module.functions for v in (*f.params, *f.bound)} | {
            b.var.name for f in module.functions for b in f.bindings if b.var
        }
        self.weights = _weights(function, set(constants))
        self.readers: dict[Atom, list[Binding]] = {}
        self.read_outside: set[Atom] = {function.result}
        for part in function.body:
            for b in part.bindings if isinstance(part, Dataflow) else (part,):
                for a in b.value.operands():
                    self.readers.setdefault(a, []).append(b)
            self.read_outside.update(part.outputs if isinstance(part, Dataflow) else part.value.operands())

    def run(self) -> Function:
        """The function with the products of each block joined."""
        body = tuple(self._block(p) if isinstance(p, Dataflow) else p for p in self.function.body)
        return self.function if body == self.function.body else replace(self.function, body=body)

    def _block(self, block: Dataflow) -> Dataflow:
        groups: dict[tuple, list[Branch]] = {}
        for b in block.bindings:
            if branch := self._branch(b):
                key = (b.value.a, branch.weight in self.constants, _is_constant(branch.bias, self.constants), branch.tail)
                groups.setdefault(key, []).append(branch)
        groups = {key: found for key, found in groups.items() if len(found) > 1}
        if not groups:
            return block
        starts = {found[0].path[0].var: found for found in groups.values()}
        gone = {b.var for found in groups.values() for branch in found for b in branch.path}
        out = [b for b in block.bindings if b.var in self.weights]  # first: they need weights only
        for b in block.bindings:
            if b.var in starts:
                out += self._joined(starts[b.var])
            elif b.var not in gone and b.var not in self.weights:
                out.append(b)
        return Dataflow(tuple(out), block.outputs)

    def _branch(self, product: Binding) -> Branch | None:
        """The product with its bias and its reshape, if its reader takes a slice in."""
        match product.value:
            case Matmul(a=Var() as a, b=Var(type=Tensor(shape=(_, int() as columns))) as weight):
                if a in self.weights or weight not in self.weights or columns == 0:
                    return None
            case _:
                return None
        path, bias, tail = [product], None, ()
        reader = self._only_reader(product.var)
        match reader and reader.value:
            case Add(x=x, y=y):
                bias = y if x == product.var else x
                if bias not in self.weights or bias.type != Tensor(product.var.type.dtype, (columns,)):
                    return None
                path.append(reader)
                reader = self._only_reader(reader.var)
        match reader and reader.value:
            case Reshape(shape=shape):
                tail = _tail(product.var.type.shape, shape)
                if tail is None:
                    return None
                path.append(reader)
                reader = self._only_reader(reader.var)
        return Branch(tuple(path), weight, bias, columns, tail) if reader and isinstance(reader.value, READERS) else None

    def _only_reader(self, var: Var) -> Binding | None:
        found = self.readers.get(var, ())
        return found[0] if len(found) == 1 and var not in self.read_outside else None

    def _joined(self, branches: list[Branch]) -> Iterator[Binding]:
        """The joined weights, the product, the sum with the joined biases, the reshape, and a slice for each branch."""
        first, columns = branches[0], sum(b.columns for b in branches)
        product, count = first.path[0], sum(b.count for b in branches)
        lead, dtype = product.var.type.shape[:-1], product.var.type.dtype
        source = joined(named_source(b) for branch in branches for b in branch.path)
        weight = yield from self._side_by_side([b.weight for b in branches], 1, source)
        whole = Var(next(self.names), Tensor(dtype, (*lead, columns)))
        yield Binding(whole, Matmul(product.value.a, weight), source)
        if first.bias is not None:
            bias = yield from self._side_by_side([b.bias for b in branches], 0, source)
            yield Binding(summed := Var(next(self.names), whole.type), Add(whole, bias), source)
            whole = summed
        if first.tail:
            shape = (*lead, count, *first.tail)
            yield Binding(split := Var(next(self.names), Tensor(dtype, shape)), Reshape(whole, shape), source)
            whole = split
        start = 0
        for b in branches:
            yield Binding(b.end.var, _part(whole, len(lead), start, b.count), joined(map(named_source, b.path)))
            start += b.count

    def _side_by_side(self, parts: list[Var], axis: int, source: Source | None) -> Iterator[Binding]:
        """The parts as one array: a new constant of constants, else a binding."""
        if all(p in self.constants for p in parts):
            array = Array(np.concatenate([self.constants[p].array.value for p in parts], axis))
            constant = Constant(self._constant_name(), array)
            self.constants[constant.var] = constant
            return constant.var
        value = Concatenate(tuple(parts), axis)
        var = Var(next(self.names), value.infer(*(p.type for p in parts)))
        yield Binding(var, value, source)
        return var

    def _constant_name(self) -> str:
        taken = self.taken | {c.name for c in self.constants.values()}
        return next(name for i in range(len(taken) + 1) if (name := f"c{i}") not in taken)


def _weights(function: Function, constants: set[Var]) -> set[Atom]:
    """Constants, bound parameters, and what is computed from some of them: arrays of known sizes."""
    found: set[Atom] = constants | {v for v in function.bound if isinstance(v.type, Tensor) and not symbols(v.type)}
    for b in (b for part in function.body if isinstance(part, Dataflow) for b in part.bindings):
        operands = [a for a in b.value.operands() if isinstance(a, Var)]
        known = isinstance(b.value, Op) and isinstance(b.var.type, Tensor) and _is_known(b.var.type.shape)
        if known and not mentioned_names(tuple(b.value.attributes().values())):
            if all(a in found for a in operands) and any(a not in constants for a in operands):
                found.add(b.var)
    return found


def _is_known(shape: tuple[Dim | None, ...] | None) -> bool:
    return shape is not None and all(isinstance(d, int) for d in shape)


def _is_constant(bias: Var | None, constants: dict[Var, Constant]) -> bool | None:
    return None if bias is None else bias in constants


def _tail(shape: tuple[Dim, ...], new: tuple[Dim, ...]) -> tuple[int, ...] | None:
    """The shape of one head, if `new` is `shape` with the last axis split into heads."""
    lead = len(shape) - 1
    split = new[lead:]
    fits = new[:lead] == shape[:-1] and len(split) > 1 and _is_known(split) and math.prod(split) == shape[-1]
    return split[1:] if fits else None


def _part(whole: Var, axis: int, start: int, count: int) -> Expr:
    shape, rank = whole.type.shape, len(whole.type.shape)
    starts = tuple(start if a == axis else 0 for a in range(rank))
    return Slice(whole, starts, tuple(count if a == axis else d for a, d in enumerate(shape)), (1,) * rank)

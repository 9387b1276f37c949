"""Let what is only copied into a larger array be written there at once: a concatenation by the producers of its parts.

A kernel that does nothing but put blocks one after the other into an output (`concatenate` along the first axis that is longer
than 1, a stack) copies each input whole to a place that sizes tell.  Where such an input is memory of this function, the output
is allocated before it, the input becomes a view of its part, and the copy goes; so does the kernel, once it has nothing to do.

Why it is right: the blocks fill the output one after the other, each element once, so no other block writes to a part.  All
that writes the input runs before the statement and has no other part of this output among its operands; after the statement
the bytes are only read, as those of the input were.  An input that is a result, or goes where it may be held on to, is left.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... @kernel
... def exp(x: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = exp(x[i])
...
... @kernel
... def concatenate(a: f32[n], b: f32[m], out: f32[m + n], *, n, m):
...     for i in range(n):
...         out[i] = a[i]
...     for i in range(m):
...         out[i + n] = b[i]
...
... def main(x: f32[n], y: f32[m]) -> f32[m + n]:
...     v0: f32[m] = alloc_tensor()
...     run_kernel(exp, y, out=(v0,), sizes=(m,))
...     v1: f32[m + n] = alloc_tensor()
...     run_kernel(concatenate, x, v0, out=(v1,), sizes=(n, m))
...     return v1''')
>>> print(write_in_place(before))
@kernel
def exp(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = exp(x[i])
<BLANKLINE>
@kernel
def concatenate_rest(a: f32[n], out: f32[m + n], *, n, m):
    for i in range(n):
        out[i] = a[i]
<BLANKLINE>
def main(x: f32[n], y: f32[m]) -> f32[m + n]:
    v1: f32[m + n] = alloc_tensor()
    v0: f32[m] = view(v1, offset=n)
    run_kernel(exp, y, out=(v0,), sizes=(m,))
    run_kernel(concatenate_rest, x, out=(v1,), sizes=(n, m))
    return v1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from minirelax.ir.dim import Dim, less_equal, names, product, substitute, symbol
from minirelax.ir.graph import Binding, Dataflow, Function, Module, RunKernel, RunLibrary, Var, View
from minirelax.ir.infer import binding_sizes, bound_sizes
from minirelax.ir.loop import Axis, Block, Kernel, with_sizes
from minirelax.ir.scalar import LAZY, Apply, Index, Load, Scalar, as_index, substitute_axes, substitute_index
from minirelax.ir.types import symbols
from minirelax.passes.base import BIND
from minirelax.passes.eliminate_dead_code import drop_unused
from minirelax.passes.plan_memory import homes, last_reads
from minirelax.passes.share_kernels import KernelTable


def write_in_place(module: Module) -> Module:
    """`module` with parts of outputs that are written by what makes them; kernels that nobody calls any more are dropped."""
    table, kernels = KernelTable.of(module), {k.name: k for k in module.kernels}
    pieces = {k.name: found for k in module.kernels if (found := _pieces(k))}
    functions = tuple(f if f.name == BIND or any(isinstance(p, Dataflow) for p in f.body) else
                      _rewritten(f, kernels, pieces, table.add) for f in module.functions)
    if all(a is b for a, b in zip(functions, module.functions, strict=True)):
        return module
    return drop_unused(replace(module, functions=functions, kernels=table.kernels))


@dataclass(frozen=True)
class _Piece:
    """A block, from which element of the output on it writes, and the input of which it is a copy, or ""."""

    block: Block
    start: Dim
    copied: str


def _pieces(kernel: Kernel) -> tuple[_Piece, ...]:
    """The blocks of a kernel that fill its one output one after the other; none if it is not such a kernel, or copies nothing."""
    if kernel.local or kernel.in_place or len(kernel.outputs) != 1:
        return ()
    out, = kernel.outputs
    types, end, found = kernel.buffers, 0, []
    blocks = tuple(part for b in kernel.blocks for part in _split(b))
    read = [a.buffer for b in blocks for a in b.loads]
    for b in blocks:
        if b.over or out.name in (a.buffer for a in b.loads) or _flat(b.indices, out.type.shape) != _counted(b, end):
            return ()
        copied, value = "", b.value
        if isinstance(value, Load) and read.count(value.buffer) == 1 and types[value.buffer].dtype == out.type.dtype:
            shape = types[value.buffer].shape
            whole = product(shape) == product(a.extent for a in b.axes)
            copied = value.buffer if whole and _flat(value.indices, shape) == _counted(b, 0) else ""
        found.append(_Piece(b, end, copied))
        end = end + product(a.extent for a in b.axes)
    return tuple(found) if end == product(out.type.shape) and any(p.copied for p in found) else ()


def _split(block: Block) -> Iterator[Block]:
    """A block that chooses along its outermost axis between values, as one block for each."""
    match block.value:
        case Apply(function=name, args=(Apply(function="less", args=(at, limit)), yes, no)) if name == LAZY and (
            (end := _cut(block, as_index(at), as_index(limit))) is not None
        ):
            axis, *others = block.axes
            yield from _split(replace(block, axes=(Axis(axis.name, end), *others), value=yes))
            rest = replace(block, axes=(Axis(axis.name, axis.extent - end), *others))
            moved = {axis.name: symbol(axis.name) + end}
            yield from _split(replace(rest, value=substitute_axes(no, moved, rest.ranges),
                                      indices=tuple(substitute_index(i, moved, rest.ranges) for i in block.indices)))
        case _:
            yield block


def _cut(block: Block, at: Index, limit: Index) -> Dim | None:
    """For how many values of the outermost axis, the first ones, ``at < limit`` is true; None if that is unknown."""
    if not block.axes or block.over or isinstance(at, Scalar) or isinstance(limit, Scalar):
        return None
    axis = block.axes[0]
    end = limit - at + symbol(axis.name)
    outside = not names(end) & {a.name for a in block.axes}
    return end if outside and less_equal(0, end) and less_equal(end, axis.extent) else None


def _flat(indices: tuple[Index, ...], shape: tuple[Dim, ...]) -> Dim | None:
    """The number of an element in its array, if sizes and axes tell."""
    at: Dim = 0
    for i, size in zip(indices, shape, strict=True):
        if isinstance(i, Scalar):
            return None
        at = at * size + i
    return at


def _counted(block: Block, start: Dim) -> Dim:
    """The numbers that a block would have as it goes through the elements from `start` on, one by one."""
    at: Dim = 0
    for axis in block.axes:
        at = at * axis.extent + symbol(axis.name)
    return at + start


def _rewritten(function: Function, kernels: dict[str, Kernel], pieces: dict[str, tuple[_Piece, ...]],
               add: Callable[[Kernel], str]) -> Function:
    at = 0
    while at < len(function.body):
        call = function.body[at].value
        if isinstance(call, RunKernel) and call.kernel in pieces:
            kernel = kernels[call.kernel]
            if taken := _Parts(function, at, kernel, pieces[call.kernel]).taken():
                function, at = _moved(function, at, kernel, pieces[call.kernel], taken, add), -1  # begin again
        at += 1
    return function


class _Parts:
    """Which inputs of a statement can be written where it copies them to."""

    def __init__(self, function: Function, at: int, kernel: Kernel, pieces: tuple[_Piece, ...]):
        self.function, self.at, self.kernel, self.pieces = function, at, kernel, pieces
        self.call: RunKernel = function.body[at].value
        self.home = homes(function)
        self.planned = last_reads(function, self.home)
        self.bindings = function.bindings
        self.made = {b.var: n for n, b in enumerate(self.bindings) if b.var is not None}
        self.sizes = dict(zip(kernel.sizes, self.call.sizes, strict=True))

    def taken(self) -> dict[Var, _Piece]:
        """The allocations that become parts, in the order of the pieces; two that one statement has as operands do not both."""
        out, = self.call.out
        if self.home.get(out) != {out} or self._writes(out) != [self.at] or min(self._uses(out)) < self.at:
            return {}
        given = dict(zip((v.name for v in self.kernel.inputs), self.call.args, strict=True))
        found: dict[Var, _Piece] = {}
        busy: set[int] = set()
        for p in self.pieces:
            memory = self._memory(given[p.copied]) if p.copied else None
            if memory is None or memory in found or not self._allowed(memory, out, p):
                continue
            uses = {n for n in self._uses(memory) if n < self.at and not isinstance(self.bindings[n].value, View)}
            if not uses & busy:
                found[memory] = p
                busy |= uses
        return found

    def _memory(self, given: object) -> Var | None:
        """The allocation that all of an argument is, which only this argument of the statement is in."""
        home = self.home.get(given, frozenset())
        if len(home) != 1:
            return None
        memory, = home
        same = memory.type.dtype == given.type.dtype and product(memory.type.shape) == product(given.type.shape)
        alone = sum(memory in self.home.get(a, ()) for a in self.call.args) == 1
        return memory if same and alone else None

    def _allowed(self, memory: Var, out: Var, piece: _Piece) -> bool:
        if memory not in self.planned or not all(n < self.at for n in self._writes(memory)):
            return False
        if not all(isinstance(self.bindings[n].value, RunKernel | RunLibrary | View) for n in self._uses(memory)):
            return False
        known = set().union(*(bound_sizes(v.type) for v in (*self.function.params, *self.function.bound)),
                            *(binding_sizes(b.value) for b in self.bindings[:self.made[memory]]))
        return symbols(out.type) | names(substitute(piece.start, self.sizes)) <= known

    def _uses(self, memory: Var) -> list[int]:
        return [n for n, b in enumerate(self.bindings) if any(memory in self.home.get(a, ()) for a in b.value.operands())]

    def _writes(self, memory: Var) -> list[int]:
        return [n for n in self._uses(memory) for part in ("out", "spare", "work")
                for v in getattr(self.bindings[n].value, part, ()) if memory in self.home.get(v, ())]


def _moved(function: Function, at: int, kernel: Kernel, pieces: tuple[_Piece, ...], taken: dict[Var, _Piece],
           add: Callable[[Kernel], str]) -> Function:
    """The function with the output allocated before its parts, and the statement without what it need not copy."""
    call = function.body[at].value
    out, = call.out
    sizes, body, placed = dict(zip(kernel.sizes, call.sizes, strict=True)), [], False
    allocation = next(b for b in function.body if b.var == out)
    for n, b in enumerate(function.body):
        if b is allocation:
            continue
        if b.var in taken:
            body += [] if placed else [allocation]
            placed = True
            b = replace(b, value=View(out, substitute(taken[b.var].start, sizes)))
        if n == at:
            body += _rest(b, kernel, [p for p in pieces if p not in taken.values()], add)
        else:
            body.append(b)
    return replace(function, body=tuple(body))


def _rest(binding: Binding, kernel: Kernel, left: list[_Piece], add: Callable[[Kernel], str]) -> Iterator[Binding]:
    """The statement that does what is left of a kernel, if anything."""
    if not left:
        return
    call, read = binding.value, {a.buffer for p in left for a in p.block.loads}
    kept = [(v, a) for v, a in zip(kernel.inputs, call.args, strict=True) if v.name in read]
    small = with_sizes(replace(kernel, name=f"{kernel.name}_rest", inputs=tuple(v for v, _ in kept),
                               blocks=tuple(p.block for p in left)))
    sizes = dict(zip(kernel.sizes, call.sizes, strict=True))
    yield replace(binding, value=replace(call, kernel=add(small), args=tuple(a for _, a in kept),
                                         sizes=tuple(sizes[s] for s in small.sizes)))



"""Split long reductions into blocks, so that several threads can work on one.

Threads share the results of a kernel among them, so a reduction with few results and a long axis (the sum of a vector,
``x.T @ x`` with eight columns) runs on one.  Here it becomes two kernels: the first reduces each whole block of the axis to a
partial result, one row of a tensor ``parts``; the second combines the rows, takes in what is left of the axis behind the last
whole block, and goes on with whatever the kernel did with the result.  In a contraction, what is left is a third kernel, so
that every product is done by register tiles.  `parts` is an ordinary tensor: its memory is planned with all other.

Why it is right: a block's partial result combines the same terms in the same order, and the combination of all blocks combines
each term once.  Integers, booleans, largest and smallest do not depend on the order; sums and products of floating-point numbers
are associated in another way, as the schedule does anyway, with chains that are no longer than before.  A block's length is a
number that depends on the shapes alone, so results do not depend on how many threads there are.  An axis shorter than a block is
reduced by the second kernel alone.  Reductions whose length is known to be small are left as they are, and so are kernels that
are opaque, and contractions with weights, whose layout is worth more.

The kernel is taken apart by levels: what does not need a split reduction, the split reductions that need only that, what
needs only these, and so on; reductions of one level over the same axes share one kernel.

>>> from minirelax.ir.parser import parse
>>> module = parse('''
... @kernel(pattern="reduce")
... def mean(x: f32[n], out: f32[()], *, n):
...     t0 = local(f32[()])
...     t0[()] = 0.0
...     for k in range(n):
...         t0[()] += x[k]
...     out[()] = t0[()] / f32(n)
...
... def main(x: f32[n]) -> f32[()]:
...     with dataflow():
...         v0: f32[()] = call_kernel(mean, x, sizes=(n,))
...         output(v0)
...     return v0''')
>>> print(split_reductions(module))
@kernel(pattern="reduce")
def mean_parts(x: f32[n], parts: f32[n//16384], *, n):
    for i in range(n//16384):
        parts[i] = 0.0
        for k in range(16384):
            parts[i] += x[16384*i + k]
<BLANKLINE>
@kernel(pattern="reduce")
def mean(parts: f32[n//16384], x: f32[n], out: f32[()], *, n):
    total = local(f32[()])
    rest = local(f32[()])
    t0 = local(f32[()])
    total[()] = 0.0
    for k in range(n//16384):
        total[()] += parts[k]
    rest[()] = 0.0
    for k in range(n%16384):
        rest[()] += x[k + 16384*(n//16384)]
    t0[()] = total[()] + rest[()]
    out[()] = t0[()] / f32(n)
<BLANKLINE>
def main(x: f32[n]) -> f32[()]:
    with dataflow():
        v1: f32[n//16384] = call_kernel(mean_parts, x, sizes=(n,))
        v0: f32[()] = call_kernel(mean, v1, x, sizes=(n,))
        output(v0)
    return v0
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from minirelax.ir.dim import Dim, product, substitute
from minirelax.ir.graph import (
    Atom,
    Binding,
    CallKernel,
    Dataflow,
    Function,
    MakeTuple,
    Module,
    TupleItem,
    Var,
    fresh_names,
    map_blocks,
    uses,
)
from minirelax.ir.loop import REDUCTIONS, Block, Kernel, with_sizes
from minirelax.ir.scalar import apply, load
from minirelax.ir.tensor import REDUCE_NAMES, SPATIAL_NAMES
from minirelax.ir.types import Tensor, Tuple, substitute_type
from minirelax.passes.annotate_patterns import is_contraction, pattern_of
from minirelax.passes.base import BIND
from minirelax.passes.reduction_blocks import COLUMNS, Cut, cuts
from minirelax.passes.share_kernels import KernelTable, rename_block, size_arguments, unique


def split_reductions(module: Module) -> Module:
    """`module` with long reductions to few results in blocks."""
    return _Splitting(module).run()


class _Parts:
    """The kernels that take one's place, in order."""

    def __init__(self, kernel: Kernel, cuts: dict[str, Cut]):
        self.kernel, self.cuts = kernel, cuts
        self.types = kernel.buffers
        self.taken = {*self.types, *kernel.sizes}
        self.outputs = {v.name for v in kernel.outputs}
        self.parts: dict[str, str] = {}
        self.rests: dict[str, str] = {}  # what is left of a contraction
        self.stages: list[tuple[str, list[Block]]] = []

    def run(self) -> list[Kernel]:
        levels = self._levels()
        for level in range(max(levels.values()) + 2):
            blocks = [b for b in self.kernel.blocks if b.buffer in self.cuts and levels[b.buffer] == level - 1]
            whole = [step for b in blocks for step in self._whole(self.cuts[b.buffer])]
            others = [b for b in self.kernel.blocks if b.buffer not in self.cuts and levels[b.buffer] == level]
            self._rest_of_level(whole, others)
            self._split([self.cuts[b.buffer] for b in self.kernel.blocks if b.buffer in self.cuts and levels[b.buffer] == level])
        return [self._kernel(at) for at in range(len(self.stages))]

    def _levels(self) -> dict[str, int]:
        """For each buffer written here, how many split reductions stand one behind the other before it."""
        levels: dict[str, int] = {}
        for b in self.kernel.blocks:
            levels[b.buffer] = max((levels[r.buffer] + (r.buffer in self.cuts) for r in b.loads if r.buffer in levels), default=0)
        return levels

    def _split(self, cuts: list[Cut]) -> None:
        """The kernels of one level's partial results; cuts of the same axes share one."""
        groups: dict[tuple, list[Cut]] = {}
        for cut in cuts:
            shape = tuple(a.extent for a in (*cut.block.axes, *cut.inside))
            groups.setdefault((shape, cut.extent, cut.length, is_contraction(cut.block)), []).append(cut)
        for group in groups.values():
            if is_contraction(group[0].block):
                for cut in group:
                    self.stages.append((f"{self.kernel.name}_parts", [cut.part(self._new(cut, self.parts, "parts", cut.blocks))]))
                    if cut.rest != 0:
                        self.stages.append((f"{self.kernel.name}_rest", [cut.remainder(self._new(cut, self.rests, "rest"))]))
            else:
                blocks = [cut.part(self._new(cut, self.parts, "parts", cut.blocks)) for cut in group]
                self.stages.append((f"{self.kernel.name}_parts", blocks))

    def _new(self, cut: Cut, where: dict[str, str], wish: str, *rows: Dim) -> str:
        old = self.types[cut.block.buffer]
        name = unique(wish, self.taken)
        self.taken.add(name)
        self.types[name] = Tensor(old.dtype, (*rows, *old.shape))
        where[cut.block.buffer] = name
        return name

    def _whole(self, cut: Cut) -> Iterator[Block]:
        """The result of a split reduction from its parts and the rest."""
        block, parts = cut.block, self.parts[cut.block.buffer]
        dtype = self.types[block.buffer].dtype
        if cut.rest == 0:
            yield cut.total(parts, block.buffer, dtype)
            return
        total = self._new(cut, {}, "total")
        yield cut.total(parts, total, dtype)
        rest = self.rests.get(block.buffer)
        if rest is None:
            rest = self._new(cut, {}, "rest")
            yield cut.remainder(rest)
        both = apply(REDUCTIONS[block.reduction], load(total, block.indices, dtype), load(rest, block.indices, dtype))
        yield Block(block.axes, block.buffer, block.indices, both)

    def _rest_of_level(self, whole: list[Block], others: list[Block]) -> None:
        """Kernels of blocks that are not split: few results go together, and so do neighbours with the same axes."""
        runs: list[tuple[object, list[Block]]] = [("few", whole)] if whole else []
        for b in others:
            extents = tuple(a.extent for a in b.axes)
            count = product(extents) * product([a.extent for a in b.over])
            kind = "few" if isinstance(count, int) and count <= COLUMNS else extents
            if runs and runs[-1][0] == kind:
                runs[-1][1].append(b)
            else:
                runs.append((kind, [b]))
        self.stages += [(self.kernel.name, blocks) for _, blocks in runs]

    def _kernel(self, at: int) -> Kernel:
        name, blocks = self.stages[at]
        written = list(dict.fromkeys(b.buffer for b in blocks))
        later = {r.buffer for _, stage in self.stages[at + 1 :] for b in stage for r in b.loads}
        read = dict.fromkeys(r.buffer for b in blocks for r in b.loads if r.buffer not in written)
        out = [w for w in written if w in self.outputs or w in later]
        local = [w for w in written if w not in out]
        taken = {*self.kernel.sizes, *written, *read}
        spatial, reduction = ([n for n in pool if n not in taken] for pool in (SPATIAL_NAMES, REDUCE_NAMES))
        made = tuple(rename_block(b, {}, {}, spatial, reduction) for b in blocks)
        variables = (tuple(Var(n, self.types[n]) for n in group) for group in (read, out, local))
        inputs, outputs, own = variables
        kernel = with_sizes(Kernel(name, inputs, outputs, (), own, made))
        return replace(kernel, pattern=pattern_of(kernel))


class _Splitting:
    """The kernels of a module and their calls."""

    def __init__(self, module: Module):
        self.module = module
        self.kernels = {k.name: k for k in module.kernels}
        self.cuts = {k.name: cuts(k) for k in module.kernels}
        self.made: dict[str, list[Kernel]] = {}
        self.constants = {c.var for c in module.constants}

    def run(self) -> Module:
        calls = [(f, b.value) for f in self.module.functions for b in f.bindings if isinstance(b.value, CallKernel)]
        kept = [call.kernel for f, call in calls if not self._is_split(f, call)]
        if len(kept) == len(calls):
            return self.module
        self.table = KernelTable((k for k in self.module.kernels if k.name in kept), (f.name for f in self.module.functions))
        functions = tuple(map(self._function, self.module.functions))
        return replace(self.module, functions=functions, kernels=self.table.kernels)

    def _is_split(self, function: Function, call: CallKernel) -> bool:
        """Is any reduction of the call long, and none a contraction with a weight?"""
        cuts = self.cuts[call.kernel]
        if not cuts or function.name == BIND:
            return False
        weights = any(a in function.bound or a in self.constants for a in call.args)
        if weights and any(is_contraction(c.block) for c in cuts.values()):
            return False
        sizes = dict(zip(self.kernels[call.kernel].sizes, call.sizes, strict=True))
        return any(c.is_long(substitute(c.extent, sizes)) for c in cuts.values())

    def _function(self, function: Function) -> Function:
        if not any(isinstance(b.value, CallKernel) and self._is_split(function, b.value) for b in function.bindings):
            return function
        fresh, read = fresh_names(function, self.module), uses(function)

        def rewritten(block: Dataflow) -> Dataflow:
            items = {(b.value.value, b.value.index): b.var for b in block.bindings if isinstance(b.value, TupleItem)}
            out: list[Binding] = []
            gone: set[Var] = set()
            for b in block.bindings:
                if isinstance(b.value, CallKernel) and self._is_split(function, b.value):
                    out += self._calls(b, items, fresh, read)
                    gone |= {v for (whole, _), v in items.items() if whole == b.var}
                elif b.var not in gone:
                    out.append(b)
            return replace(block, bindings=tuple(out))

        return map_blocks(function, rewritten)

    def _calls(self, binding: Binding, items: dict, fresh: Iterator[str], read: dict[str, int]) -> Iterator[Binding]:
        """The calls that take one's place; they define the same variables."""
        call, kernel = binding.value, self.kernels[binding.value.kernel]
        if kernel.name not in self.made:
            self.made[kernel.name] = _Parts(kernel, self.cuts[kernel.name]).run()
        sizes = dict(zip(kernel.sizes, call.sizes, strict=True))
        values: dict[str, Atom] = dict(zip((v.name for v in kernel.inputs), call.args, strict=True))
        several = isinstance(binding.var.type, Tuple)
        named = {v.name: items.get((binding.var, i)) if several else binding.var for i, v in enumerate(kernel.outputs)}
        for part in self.made[kernel.name]:
            expr = CallKernel(self.table.add(part), tuple(values[v.name] for v in part.inputs), size_arguments(part, sizes))
            results = [named.get(v.name) or Var(next(fresh), substitute_type(v.type, sizes)) for v in part.outputs]
            values |= dict(zip((v.name for v in part.outputs), results, strict=True))
            if len(results) == 1:
                yield Binding(results[0], expr, binding.source)
                continue
            whole = Var(next(fresh), Tuple(tuple(v.type for v in results)))
            yield Binding(whole, expr, binding.source)
            yield from (Binding(v, TupleItem(whole, i), binding.source) for i, v in enumerate(results))
        mine = [v for (whole, _), v in items.items() if whole == binding.var]
        if several and read.get(binding.var.name, 0) > len(mine):
            yield Binding(binding.var, MakeTuple(tuple(values[v.name] for v in kernel.outputs)), binding.source)

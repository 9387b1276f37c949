"""Numba source of a row plan: loops over the rows of a tile range, and inside a row the blocks in order."""
from __future__ import annotations

from contextlib import ExitStack, contextmanager

from minirelax.codegen.kernel import KernelSource
from minirelax.codegen.scalars import FLOATS, ScalarWriter, index_source, literal_source
from minirelax.ir.dim import ceildiv, product, symbol
from minirelax.ir.loop import Axis, Block, neutral
from minirelax.ir.scalar import Apply, Load
from minirelax.schedule.rows import RowPlan, Step

SUM_BLOCK = 1024            # longer sums add up partial sums of this many elements in f64: as accurate as pairwise summation


def row_source(plan: RowPlan) -> KernelSource:
    """The kernel function of a row plan."""
    source = KernelSource(plan.kernel, tuple(a.name for b in (s.block for s in plan.steps) for a in (*plan.rows, *_own(plan), *b.axes, *b.over)))
    writer = _RowWriter(source, plan)
    with source.function():
        for s in plan.scratch:
            source.pointer(s.name, s.dtype, f"scratch + {source.dim(s.offset)}" if s.offset != 0 else "scratch")
        writer.tiles()
    return source


def _own(plan: RowPlan) -> tuple[Axis, ...]:
    return (plan.chunk,) if plan.chunk else ()


class _RowWriter:
    def __init__(self, source: KernelSource, plan: RowPlan):
        self.source, self.plan, self.out = source, plan, source.out
        self.types = plan.kernel.buffers

    def tiles(self) -> None:
        """The loops over tiles, rows and (in chunk form) the chunk's bounds."""
        plan, source = self.plan, self.source
        count = product([a.extent for a in plan.rows])
        with ExitStack() as stack:
            if plan.chunk is None:
                if plan.rows:
                    stack.enter_context(self._row_loop("lo", "hi", count))
                else:
                    stack.enter_context(self.out.block("if lo < hi:"))
            else:
                self._chunk_loops(stack, count)
            for step in plan.steps:
                self.step(step)
            if not plan.steps:
                source.out.line("pass")

    def _chunk_loops(self, stack: ExitStack, count) -> None:
        plan, source, out = self.plan, self.source, self.out
        chunk, width = plan.chunk, plan.width
        first, last = source.axis(f"{chunk.name}.first"), source.axis(f"{chunk.name}.last")
        if not plan.rows and not plan.scratch:                    # one contiguous run of chunks
            out.line(f"{first}, {last} = lo*{width}, min(hi*{width}, {source.dim(chunk.extent)})")
            stack.enter_context(out.block(f"if {first} < {last}:"))
            return
        stack.enter_context(out.block("for tile in range(lo, hi):"))
        out.line(f"chunks = {source.dim(ceildiv(chunk.extent, width))}")
        out.line("row_block = quotient(tile, chunks)")
        out.line(f"{first} = (tile - row_block*chunks)*{width}")
        out.line(f"{last} = min({first} + {width}, {source.dim(chunk.extent)})")
        if plan.rows:
            stack.enter_context(self._row_loop("row_block", "row_block + 1", count))

    @contextmanager
    def _row_loop(self, first: str, last: str, count):
        """``for row in ...``, with the row number split into the row axes' indices."""
        source, rows = self.source, self.plan.rows
        per_tile = source.dim(self.plan.rows_per_tile)
        self.out.line(f"rows_per_tile = {per_tile}")
        name = source.axis(rows[0].name) if len(rows) == 1 else "row"
        last = f"({last})" if " " in last else last
        with self.out.block(f"for {name} in range({first}*rows_per_tile, min({last}*rows_per_tile, {source.dim(count)})):"):
            rest = name
            for a in reversed(rows[1:]):
                index = source.axis(a.name)
                above = source.names.fresh("above")
                self.out.line(f"{above} = quotient({rest}, {source.dim(a.extent)})")
                self.out.line(f"{index} = {rest} - {above}*{source.factor(a.extent)}")
                rest = above
            if len(rows) > 1:
                self.out.line(f"{source.axis(rows[0].name)} = {rest}")
            yield

    # ------------------------------------------------------------------ one block

    def step(self, step: Step) -> None:
        """A block: an elementwise loop, a reduction into one scalar at a time, or a reduction of whole vectors."""
        if not step.over:
            with self._loops(self._inner(step)):
                self._store(step.block, self._scalars(step).value(step.block.value))
        elif step.over_is_innermost and not (self.plan.chunk and not step.inner):
            with self._loops(self._inner(step)):
                self._reduce_scalar(step)
        else:
            self._reduce_vector(step)

    def _inner(self, step: Step) -> tuple[Axis, ...]:
        return (*_own(self.plan), *step.inner)

    def _reduce_scalar(self, step: Step) -> None:
        block, out = step.block, self.out
        dtype, reduction = self.types[block.buffer].dtype, block.reduction
        total = self.source.names.fresh("total")
        last = step.over[-1].extent
        blocked = reduction == "sum" and dtype in FLOATS and not (isinstance(last, int) and last <= 2 * SUM_BLOCK)
        out.line(f"{total} = {literal_source(neutral(reduction, dtype).value, 'f64' if blocked and dtype == 'f32' else dtype)}")
        with self._loops(step.over[:-1]):
            if blocked:
                self._blocked_sum(step, total, dtype)
            else:
                with self._loops(step.over[-1:]):
                    self._accumulate(step, total, dtype)
        self._store(block, f"f32({total})" if blocked and dtype == "f32" else total)

    def _blocked_sum(self, step: Step, total: str, dtype: str) -> None:
        axis, out, source = step.over[-1], self.out, self.source
        first, part = source.names.fresh(f"{axis.name}_first"), source.names.fresh("part")
        extent = source.dim(axis.extent)
        with out.block(f"for {first} in range(0, {extent}, {SUM_BLOCK}):"):
            out.line(f"{part} = {literal_source(0, dtype)}")
            with out.block(f"for {source.axis(axis.name)} in range({first}, min({first} + {SUM_BLOCK}, {extent})):"):
                self._accumulate(step, part, dtype)
            out.line(f"{total} += {part}")

    def _accumulate(self, step: Step, total: str, dtype: str) -> None:
        """One step of a reduction on a scalar."""
        scalars, value, reduction = self._scalars(step), step.block.value, step.block.reduction
        match value:
            case Apply(function="multiply", args=(a, b)) if reduction == "sum" and dtype in FLOATS:
                self.out.line(f"{total} = fma_reassoc_{dtype}({total}, {scalars.value(a)}, {scalars.value(b)})")
            case _:
                self.out.line(f"{total} = {_combine(reduction, dtype, total, scalars.value(value), reorder=True)}")

    def _reduce_vector(self, step: Step) -> None:
        """Accumulate along the reduction axes into the row (or chunk) of results, which is the vectorised loop."""
        block, dtype = step.block, self.types[step.block.buffer].dtype
        with self._loops(self._inner(step)):
            self._store(block, literal_source(neutral(block.reduction, dtype).value, dtype))
        with self._loops((*step.over, *self._inner(step))):
            scalars = self._scalars(step)
            self._store(block, _combine(block.reduction, dtype, self._target(block, scalars), scalars.value(block.value), reorder=False))

    # ------------------------------------------------------------------ accesses

    @contextmanager
    def _loops(self, axes: tuple[Axis, ...]):
        with ExitStack() as stack:
            for a in axes:
                bounds = self.source.dim(a.extent)
                if self.plan.chunk and a.name == self.plan.chunk.name:
                    bounds = f"{self.source.axis(a.name + '.first')}, {self.source.axis(a.name + '.last')}"
                stack.enter_context(self.out.block(f"for {self.source.axis(a.name)} in range({bounds}):"))
            yield

    def _scalars(self, step: Step) -> ScalarWriter:
        ranges = dict(step.block.ranges) | {a.name: (0, a.extent - 1) for a in self.plan.rows}
        if self.plan.chunk:
            ranges[f"{self.plan.chunk.name}.first"] = (0, symbol(self.plan.chunk.name))
        writer = ScalarWriter(self.out, self.source.names, self._access, ranges)
        self._current = writer
        return writer

    def _access(self, load: Load) -> str:
        if load.buffer in self.plan.registers:
            return self.source.buffer(load.buffer)
        return self.source.element(load.buffer, index_source(load.indices[0], self._current), load.dtype)

    def _target(self, block: Block, scalars: ScalarWriter) -> str:
        dtype = self.types[block.buffer].dtype
        if block.buffer in self.plan.registers:
            return self.source.buffer(block.buffer)
        return self.source.element(block.buffer, index_source(block.indices[0], scalars), dtype)

    def _store(self, block: Block, value: str) -> None:
        if block.buffer in self.plan.registers:
            self.out.line(f"{self.source.buffer(block.buffer)} = {value}")
            return
        scalars = self._scalars(Step(block, (), block.over, True))
        self.source.store(block.buffer, index_source(block.indices[0], scalars), value, self.types[block.buffer].dtype)


def _combine(reduction: str, dtype: str, total: str, value: str, reorder: bool) -> str:
    """One step of a reduction as source; `reorder` lets floating-point sums and products be vectorised."""
    if dtype in FLOATS:
        match reduction:
            case "sum":
                return f"add_reassoc_{dtype}({total}, {value})" if reorder else f"{total} + {value}"
            case "prod":
                return f"mul_reassoc_{dtype}({total}, {value})" if reorder else f"{total} * {value}"
            case "max" | "min":
                return f"{'maximum' if reduction == 'max' else 'minimum'}_{dtype}({total}, {value})"
    if dtype == "bool":
        return f"({total} {'|' if reduction in ('any', 'max', 'sum') else '&'} {value})"
    match reduction:
        case "sum" | "prod":
            return f"{dtype}({total} {'+' if reduction == 'sum' else '*'} {value})"
    return f"select({total} {'>' if reduction == 'max' else '<'} {value}, {total}, {value})"

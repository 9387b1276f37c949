"""Numba source of a row plan: loops over the rows of a tile range, and inside a row the blocks in order."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

from minirelax.codegen.kernel import KernelSource
from minirelax.codegen.scalars import FLOATS, ScalarWriter, index_source, integer_arithmetic, literal_source
from minirelax.ir.dim import Dim, ceildiv, product, symbol
from minirelax.ir.loop import Axis, Block, neutral
from minirelax.ir.scalar import Apply, Load, load
from minirelax.ir.types import PARTS
from minirelax.schedule.rows import RowPlan
from minirelax.schedule.share_loops import Loop, Step

SUM_BLOCK = 1024  # longer sums add up partial sums of this many elements in f64: as accurate as pairwise summation


def row_source(plan: RowPlan) -> KernelSource:
    """The kernel function of a row plan."""
    source = KernelSource(
        plan.kernel, tuple(a.name for b in (s.block for s in plan.steps) for a in (*plan.rows, *_own(plan), *b.axes, *b.over))
    )
    writer = RowWriter(source, plan)
    with source.function():
        writer.scratch()
        writer.tiles()
    return source


def _own(plan: RowPlan) -> tuple[Axis, ...]:
    return (plan.chunk,) if plan.chunk else ()


class RowWriter:
    """Writes the loops of a plan: all of them (`tiles`), or those of one row that somebody else has come to (`row`)."""

    def __init__(self, source: KernelSource, plan: RowPlan):
        self.source, self.plan, self.out = source, plan, source.out
        self.types = plan.kernel.buffers

    def scratch(self) -> None:
        """Names for the local buffers that are kept in scratch memory."""
        for s in self.plan.scratch:
            start = f"scratch + {self.source.dim(s.offset)}" if s.offset != 0 else "scratch"
            self.source.pointer(s.name, s.dtype, start, s.elements)

    def tiles(self) -> None:
        """The loops over tiles, rows and (in chunk form) the chunk's bounds."""
        plan = self.plan
        count = product([a.extent for a in plan.rows])
        with ExitStack() as stack:
            if plan.chunk is None:
                if plan.rows:
                    stack.enter_context(self._row_loop("lo", "hi", count))
                else:
                    stack.enter_context(self.out.block("if lo < hi:"))
            else:
                self._chunk_loops(stack, count)
            self.row()

    def row(self) -> None:
        """The loops inside one row."""
        for loop in self.plan.loops:
            if loop.axis is not None:
                self.shared_loop(loop)
            else:
                self.step(loop.steps[0])
        if not self.plan.loops:
            self.out.line("pass")

    def _chunk_loops(self, stack: ExitStack, count) -> None:
        plan, source, out = self.plan, self.source, self.out
        chunk, width = plan.chunk, plan.width
        first, last = source.axis(f"{chunk.name}.first"), source.axis(f"{chunk.name}.last")
        if not plan.rows and not plan.scratch:  # one contiguous run of chunks
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

    def shared_loop(self, loop: Loop) -> None:
        """One loop in which elementwise steps store and reducing steps accumulate."""
        axis = loop.axis
        sums = {s.block.buffer: _Sum(self, s, axis.extent) for s in loop.steps if s.over}
        for total in sums.values():
            total.start()
        scalars = self._scalars(loop.steps[0])
        scalars.hoist([s.block.value for s in loop.steps], [axis.name])
        with self._accumulation(axis, tuple(sums.values())):
            self._iteration(loop, sums, scalars)
        for step in loop.steps:
            if step.over:
                self._store(step.block, sums[step.block.buffer].result())

    @contextmanager
    def _accumulation(self, axis: Axis, sums: tuple[_Sum, ...]):
        """The loop over a reduction's axis; in blocks, each with partial sums, if one of the sums is long."""
        if not any(total.blocked for total in sums):
            with self._loops((axis,)):
                yield
            return
        out, source = self.out, self.source
        first, extent = source.names.fresh(f"{axis.name}_first"), source.dim(axis.extent)
        with out.block(f"for {first} in range(0, {extent}, {SUM_BLOCK}):"):
            for total in sums:
                total.start_block()
            with out.block(f"for {source.axis(axis.name)} in range({first}, min({first} + {SUM_BLOCK}, {extent})):"):
                yield
            for total in sums:
                total.end_block()

    def _iteration(self, loop: Loop, sums: dict[str, _Sum], scalars: ScalarWriter) -> None:
        """The loop's body; what one step computes, later ones use by name."""
        read_later = {read.buffer for s in loop.steps for read in s.block.loads}
        for step in loop.steps:
            block = step.block
            if step.over:
                sums[block.buffer].add(scalars)
                continue
            value, dtype = scalars.value(block.value), self.types[block.buffer].dtype
            if block.buffer in read_later:
                value = value if value.isidentifier() else scalars.name(value)
                scalars.named[id(load(block.buffer, block.indices, dtype))] = value
            if block.buffer not in self.plan.unstored:
                self._store(block, value)

    def step(self, step: Step) -> None:
        """A block with loops of its own: elementwise, a reduction into one scalar at a time, or one of whole vectors."""
        if not step.over:
            inner = self._inner(step)
            with self._loops(inner[:-1]):
                scalars = self._scalars(step)
                scalars.hoist([step.block.value], [a.name for a in inner[-1:]])
                with self._loops(inner[-1:]):
                    self._store(step.block, scalars.value(step.block.value))
        elif step.over_is_innermost and not (self.plan.chunk and not step.inner):
            with self._loops(self._inner(step)):
                self._reduce_scalar(step)
        else:
            self._reduce_vector(step)

    def _inner(self, step: Step) -> tuple[Axis, ...]:
        return (*_own(self.plan), *step.inner)

    def _reduce_scalar(self, step: Step) -> None:
        total = _Sum(self, step, step.over[-1].extent)
        total.start()
        axis = step.over[-1]
        with self._loops(step.over[:-1]):
            scalars = self._scalars(step)
            scalars.hoist([step.block.value], [axis.name])
            with self._accumulation(axis, (total,)):
                total.add(scalars)
        self._store(step.block, total.result())

    def _reduce_vector(self, step: Step) -> None:
        """Accumulate along the reduction axes into the row (or chunk) of results, which is the vectorised loop."""
        block, dtype = step.block, self.types[step.block.buffer].dtype
        with self._loops(self._inner(step)):
            self._store(block, literal_source(neutral(block.reduction, dtype).value, dtype))
        with self._loops((*step.over, *self._inner(step))):
            scalars = self._scalars(step)
            self._store(
                block, _combine(block.reduction, dtype, self._target(block, scalars), scalars.value(block.value), reorder=False)
            )

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
        writer = ScalarWriter(self.out, self.source.names, lambda read: self._access(read, writer), ranges)
        return writer

    def _access(self, read: Load, writer: ScalarWriter) -> str:
        if read.buffer in self.plan.registers:
            return self.source.buffer(read.buffer)
        return self.source.element(read.buffer, index_source(read.indices[0], writer), read.dtype)

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


class _Sum:
    """A reduction into one scalar: long floating-point sums go block by block, so that their error stays small."""

    def __init__(self, writer: RowWriter, step: Step, extent: Dim):
        self.writer, self.step, self.out = writer, step, writer.out
        self.dtype, self.reduction = writer.types[step.block.buffer].dtype, step.block.reduction
        short = isinstance(extent, int) and extent <= 2 * SUM_BLOCK
        self.blocked = self.reduction == "sum" and (self.dtype in FLOATS or self.dtype in PARTS) and not short
        self.wide = ("c128" if self.dtype in PARTS else "f64") if self.blocked else self.dtype
        self.total = writer.source.names.fresh("total")
        self.part = writer.source.names.fresh("part") if self.blocked else self.total

    def start(self) -> None:
        self.out.line(f"{self.total} = {literal_source(neutral(self.reduction, self.dtype).value, self.wide)}")

    def start_block(self) -> None:
        if self.blocked:
            self.out.line(f"{self.part} = {literal_source(0, self.dtype)}")

    def end_block(self) -> None:
        if self.blocked:
            self.out.line(f"{self.total} = {_combine('sum', self.wide, self.total, self._widened(), reorder=False)}")

    def add(self, scalars: ScalarWriter) -> None:
        """One step: a product is accumulated fused."""
        match self.step.block.value:
            case Apply(function="multiply", args=(a, b)) if self.reduction == "sum" and self.dtype in FLOATS:
                a, b = scalars.values(a, b)
                self.out.line(f"{self.part} = fma_reassoc_{self.dtype}({self.part}, {a}, {b})")
            case value:
                self.out.line(
                    f"{self.part} = {_combine(self.reduction, self.dtype, self.part, scalars.value(value), reorder=True)}"
                )

    def result(self) -> str:
        if self.wide == self.dtype:
            return self.total
        return f"f32({self.total})" if self.dtype == "f32" else f"c64_of_c128({self.total})"

    def _widened(self) -> str:
        return f"c128_of_c64({self.part})" if (self.wide, self.dtype) == ("c128", "c64") else self.part


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
    if dtype in PARTS:
        return f"{'add' if reduction == 'sum' else 'multiply'}_{dtype}({total}, {value})"
    if dtype == "bool":
        return f"({total} {'|' if reduction in ('any', 'max', 'sum') else '&'} {value})"
    match reduction:
        case "sum" | "prod":
            return integer_arithmetic("+" if reduction == "sum" else "*", total, value, dtype)
    return f"select({total} {'>' if reduction == 'max' else '<'} {value}, {total}, {value})"

"""Numba source of a contraction plan: the loops around the register tiles, packing, and the epilogue.

The source is Goto's loop nest, once per tile of the plan: for each block of rows and each chunk of k, the register tiles sweep
over the tile's panels (`micro_kernels`); then the epilogue runs over the finished rows, as a plan of rows does (`codegen.rows`).
An unpacked B is copied into panels first, once for all blocks of rows.  A result that is nothing but the product is written
where it belongs at once, if the panels are whole.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

from minirelax.codegen.kernel import KernelSource
from minirelax.codegen.rows import RowWriter
from minirelax.codegen.scalars import ScalarWriter, index_source, literal_source
from minirelax.ir.dim import Dim, linear, product
from minirelax.ir.guards import facts
from minirelax.ir.loop import Axis
from minirelax.ir.scalar import LAZY, Apply, Load, Scalar, is_choice, walk
from minirelax.ir.types import itemsize
from minirelax.schedule.contraction import B_ROWS, DIRECT_CHUNK, K_CHUNK, RESULT, REUSE, ContractionPlan, Operand
from minirelax.schedule.flat import depends_on


def contraction_source(plan: ContractionPlan) -> KernelSource:
    """The kernel function of a contraction plan."""
    inner = (a for step in plan.epilogue.steps for a in (*step.inner, *step.over))
    source = KernelSource(plan.kernel, tuple(a.name for a in (*plan.outer, plan.m, plan.n, *plan.k, *inner)))
    with source.function():
        _ContractionWriter(source, plan).write()
    return source


class _ContractionWriter:
    def __init__(self, source: KernelSource, plan: ContractionPlan):
        self.source, self.plan, self.out = source, plan, source.out
        self.finish = RowWriter(source, plan.epilogue)
        self.size = itemsize(plan.dtype)
        self.width, self.rows = plan.tile.width, plan.tile.rows
        fresh = source.names.fresh
        self.m_count, self.n_count, self.k_count = fresh("m_count"), fresh("n_count"), fresh("k_count")
        self.first, self.last = source.names.give("first_row", "first_row"), source.names.give("last_row", "last_row")
        self.panel = source.names.give("panel", "panel")
        self.columns = source.names.give("columns", "columns")

    def write(self) -> None:
        plan, out, source = self.plan, self.out, self.source
        out.line(f"table = ptr_i64(args[{source.signature.table}])")
        out.line(
            f"{self.m_count}, {self.n_count}, {self.k_count} = {source.dim(plan.m.extent)}, {source.dim(plan.n.extent)}, "
            f"{source.dim(plan.k_extent)}"
        )
        self._extents()
        self.finish.scratch()
        out.line(f"result_start = scratch + {source.dim(plan.epilogue.scratch_bytes)}")
        out.line(f"a_copy = result_start + {source.dim(plan.c_bytes)}")
        out.line(f"b_copy = a_copy + {source.dim(plan.a_bytes)}")
        with out.block("for tile in range(lo, hi):"):
            self._tile_position()
            if plan.b.how == "packed":
                out.line(f"k_start, k_end = 0, {self.k_count}")
                self._row_blocks()
            else:
                with out.block(f"for k_start in range(0, max({self.k_count}, 1), {B_ROWS}):"):
                    out.line(f"k_end = min(k_start + {B_ROWS}, {self.k_count})")
                    if not plan.whole_rows:
                        self._copy_b()
                    self._row_blocks()

    def _extents(self) -> None:
        """How much of each axis a tile, a block of rows, and a pass over the panels have."""
        plan, out, source = self.plan, self.out, self.source
        out.line(f"panels = ({self.n_count} + {self.width - 1}) // {self.width}")
        out.line(f"panels_per_tile = {source.dim(plan.panels_per_tile)}")
        if not plan.whole_rows:
            out.line("groups = quotient(panels + panels_per_tile - 1, panels_per_tile)")
        out.line(f"rows_per_tile = {source.dim(plan.rows_per_tile)}")
        out.line(f"row_tiles = quotient({self.m_count} + rows_per_tile - 1, rows_per_tile)")
        out.line(f"tile_rows = quotient({self.m_count} + row_tiles - 1, max(row_tiles, 1))")
        out.line(f"row_blocks = quotient(tile_rows + {plan.block_rows - 1}, {plan.block_rows})")
        out.line("block_rows = max(quotient(tile_rows + row_blocks - 1, max(row_blocks, 1)), 1)")
        out.line(f"chunks = quotient({self.k_count} + {K_CHUNK - 1}, {K_CHUNK}) if block_rows > {self.rows} else 1")
        out.line(f"chunk = max((quotient({self.k_count}, max(chunks, 1)) + 7)//8*8, 8)")

    def _row_blocks(self) -> None:
        """The tile's rows, block by block: the product, then what comes after it."""
        plan, out = self.plan, self.out
        with out.block(f"for {self.first} in range(first_of_tile, last_of_tile, block_rows):"):
            out.line(f"{self.last} = min({self.first} + block_rows, last_of_tile)")
            if plan.a.how == "copy":
                with out.block("if k_start == 0:"):
                    self._copy_a()
            self._place_a()
            if plan.whole_rows and plan.b.how != "packed":
                with out.block("for first_panel in range(0, panels, panels_per_tile):"):
                    out.line("last_panel = min(first_panel + panels_per_tile, panels)")
                    self._copy_b()
                    self._product()
            else:
                self._product()
            with out.block(f"if k_end >= {self.k_count}{' and not in_place' if plan.store else ''}:"):
                self._epilogue()

    def _product(self) -> None:
        """The block of rows by the panels from `first_panel` on, in chunks of k."""
        out = self.out
        self._place_c()
        if self.plan.b.how == "direct":
            with out.block("if first_copied > first_panel:"):
                self._chunks(str(DIRECT_CHUNK), "first_panel", "first_copied", direct=True)
            with out.block("if last_panel > first_copied:"):
                self._chunks("chunk", "first_copied", "last_panel")
        else:
            self._chunks("chunk", "first_panel", "last_panel")

    def _chunks(self, chunk: str, first: str, last: str, direct: bool = False) -> None:
        out = self.out
        with out.block(f"for k_first in range(k_start, max(k_end, k_start + 1), {chunk}):"):
            out.line(f"k_rows = min(k_end - k_first, {chunk})")
            self._place_b(first, last, direct)
            out.line(
                f"call_sweep(table[0], a_address + {self.size}*k_first, a_stride, b_address, b_stride, b_panel, "
                f"c_address + {self.size * self.width}*({first} - {self.first_of_result}), c_stride, "
                f"{self.last} - {self.first}, {last} - {first}, k_rows, k_first, b_next)"
            )

    @property
    def first_of_result(self) -> str:
        """The panel at the start of a row of the tile's result."""
        return "0" if self.plan.whole_rows else "first_panel"

    def _place_c(self) -> None:
        """Where the tile's result goes: to scratch memory, or, if nothing comes after it, to its place."""
        plan, out, source = self.plan, self.out, self.source
        out.line(f"c_address, c_stride = result_start, {self.row}")
        if plan.store is None:
            return
        base, stride = plan.store.base, source.factor(plan.store.stride)
        out.line(f"in_place = last_panel*{self.width} <= {self.n_count}")
        with out.block("if in_place:"):
            place = f"{source.dim(base)} + {self.first}*{stride} + first_panel*{self.width}"
            if source.bounds:
                end = f"{source.dim(base)} + ({self.last} - 1)*{stride} + last_panel*{self.width} - 1"
                with out.block(f"if {self.last} > {self.first} and last_panel > first_panel:"):
                    source.bounds.refuse_range(plan.store.buffer, place, end)
            out.line(f"c_address = {self._start(plan.store)} + {self.size}*({place})")
            out.line(f"c_stride = {source.dim(plan.store.stride)}")

    def _tile_position(self) -> None:
        """Outer axes, block of rows and group of panels from the tile's number; panels vary fastest."""
        plan, out = self.plan, self.out
        if plan.whole_rows:
            out.line("above = tile")
            if plan.b.how == "packed":
                out.line("first_panel, last_panel = 0, panels")
        else:
            out.line("above = quotient(tile, groups)")
            out.line("group = tile - above*groups")
            out.line("first_panel = group*panels_per_tile")
            out.line("last_panel = min(first_panel + panels_per_tile, panels)")
        if plan.outer:
            out.line("batch = quotient(above, row_tiles)")
            out.line("row_tile = above - batch*row_tiles")
            self._split("batch", plan.outer)
        else:
            out.line("row_tile = above")
        out.line("first_of_tile = row_tile*tile_rows")
        out.line(f"last_of_tile = min(first_of_tile + tile_rows, {self.m_count})")

    def _split(self, number: str, axes: tuple[Axis, ...]) -> None:
        source, out, rest = self.source, self.out, number
        for a in reversed(axes[1:]):
            above = source.names.fresh("above")
            out.line(f"{above} = quotient({rest}, {source.dim(a.extent)})")
            out.line(f"{source.axis(a.name)} = {rest} - {above}*{source.factor(a.extent)}")
            rest = above
        out.line(f"{source.axis(axes[0].name)} = {rest}")

    @property
    def row(self) -> int:
        """Elements of a row of the tile's result in scratch."""
        return self.plan.row_panels * self.width

    def _place_a(self) -> None:
        """Address of the first row of A, and its row stride."""
        a, out, source = self.plan.a, self.out, self.source
        if a.how == "copy":
            out.line(f"a_address, a_stride = a_copy, {self.k_count}")
        else:
            base = f"({source.dim(a.base)} + {self.first}*{source.factor(a.stride)})"
            if source.bounds:
                self._check_rows(a, self.first, f"{self.last} - {self.first}", self.k_count)
            out.line(f"a_address, a_stride = {self._start(a)} + {self.size}*{base}, {source.dim(a.stride)}")

    def _check_rows(self, operand: Operand, row: str, rows: str, columns: str, column: str = "0") -> None:
        """Stop if some of these rows of an operand that is read in place are outside of it."""
        source = self.source
        first = f"{source.dim(operand.base)} + {row}*{source.factor(operand.stride)} + {column}"
        last = f"{first} + ({rows} - 1)*{source.factor(operand.stride)} + {columns} - 1"
        with self.out.block(f"if {rows} > 0 and {columns} > 0:"):
            source.bounds.refuse_range(operand.buffer, first, last)

    def _start(self, operand: Operand) -> str:
        """The address of an operand's first element."""
        return f"args[{self.source.signature.buffers.index(operand.buffer)}]"

    def _place_b(self, first: str, last: str, direct: bool) -> None:
        """The first panel of B at the chunk's first k, the strides from k to k and from panel to panel, and what is read next."""
        b, out, source, width = self.plan.b, self.out, self.source, self.width
        if direct:
            base = f"({source.dim(b.base)} + k_first*{source.factor(b.stride)} + {first}*{width})"
            if source.bounds:
                self._check_rows(b, "k_first", "k_rows", f"({last} - {first})*{width}", f"{first}*{width}")
            out.line(f"b_address = {self._start(b)} + {self.size}*{base}")
            out.line(f"b_stride, b_panel, b_next = {source.dim(b.stride)}, {width}, b_address")
            return
        if b.how == "packed":
            place = f"{first}*{self.k_count} + k_first"
            if source.bounds:
                end = f"{width}*(({last} - 1)*{self.k_count} + k_first + k_rows) - 1"
                with out.block(f"if {last} > {first} and k_rows > 0:"):
                    source.bounds.refuse_range(b.buffer, f"{width}*({place})", end)
            out.line(f"b_address = {self._start(b)} + {self.size * width}*({place})")
        else:
            place = f"({first} - first_panel)*{self._copied_rows} + k_first - k_start"
            out.line(f"b_address = b_copy + {self.size * width}*({place})")
        rows = self.k_count if b.how == "packed" else self._copied_rows
        out.line(f"b_stride, b_panel = {width}, {width}*{rows}")
        following = f"k_rows if k_first + k_rows < k_end else ({last} - {first})*{rows} - k_first + k_start"
        out.line(f"b_next = b_address + {self.size * width}*({following})")

    @property
    def _copied_rows(self) -> str:
        """How many rows a panel of the copied B has room for."""
        return f"min({self.k_count}, {B_ROWS})"

    def _copy_b(self) -> None:
        """Rows of B in scratch memory, panel by panel, with zeros in the columns that do not exist.

        Where B can be read in place, panels are copied only if enough rows of A use them, or if they are not whole.
        """
        plan, out, source = self.plan, self.out, self.source
        n, target = source.axis(plan.n.name), source.names.fresh("b_panels")
        out.line("first_copied = first_panel")
        if plan.b.how == "direct":
            rows = f"{self.last} - {self.first}" if plan.whole_rows else "last_of_tile - first_of_tile"
            with out.block(f"if {rows} < {REUSE}:"):
                out.line(f"first_copied = min(max(quotient({self.n_count}, {self.width}), first_panel), last_panel)")
        out.line(f"{target} = ptr_{plan.dtype}(b_copy)")
        with out.block("for k_row in range(k_end - k_start):"):
            self._k_indices()
            with out.block(f"for {self.panel} in range(first_copied, last_panel):"):
                out.line(f"{self.columns} = min({self.width}, {self.n_count} - {self.panel}*{self.width})")
                rows = self._copied_rows
                out.line(f"to = ({rows}*({self.panel} - first_panel) + k_row)*{self.width} - {self.panel}*{self.width}")
                with out.block(f"if {self.columns} == {self.width}:"):
                    if plan.b.how == "direct":
                        if source.bounds:
                            self._check_rows(plan.b, "(k_start + k_row)", "1", str(self.width), f"{self.panel}*{self.width}")
                        row = f"{source.dim(plan.b.base)} + (k_start + k_row)*{source.factor(plan.b.stride)}"
                        start = f"{self._start(plan.b)} + {self.size}*({row} + {self.panel}*{self.width})"
                        out.line(f"copy_{self.width * self.size}(b_copy + {self.size}*(to + {self.panel}*{self.width}), {start})")
                    elif is_choice(plan.b.value):
                        self._copy_run(f"{target}[to + ", plan.b.value, plan.n.name, f"{self.panel}*{self.width}", self._end())
                    else:
                        with out.block(f"for column in range({self.width}):"):  # a constant number is what vectorises best
                            out.line(f"{n} = {self.panel}*{self.width} + column")
                            out.line(f"{target}[to + {n}] = {self._scalars().value(plan.b.value)}")
                with out.block("else:"):
                    self._copy_run(f"{target}[to + ", plan.b.value, plan.n.name, f"{self.panel}*{self.width}", self.n_count)
                    with out.block(f"for {n} in range({self.n_count}, {self._end()}):"):
                        out.line(f"{target}[to + {n}] = {literal_source(0, plan.dtype)}")

    def _end(self) -> str:
        """The column behind the panel."""
        return f"({self.panel} + 1)*{self.width}"

    def _k_indices(self) -> None:
        """The reduction axes' indices at row ``k_start + k_row``."""
        source, out, axes = self.source, self.out, self.plan.k
        if len(axes) == 1:
            out.line(f"{source.axis(axes[0].name)} = k_start + k_row")
        else:
            out.line("k_flat = k_start + k_row")
            self._split("k_flat", axes)

    def _copy_a(self) -> None:
        """The block's rows of A in scratch, with k contiguous."""
        plan, out, source = self.plan, self.out, self.source
        target, m = source.names.fresh("a_rows"), source.axis(plan.m.name)
        out.line(f"{target} = ptr_{plan.dtype}(a_copy)")
        with out.block(f"for {m} in range({self.first}, {self.last}):"):
            if plan.a.rows:
                self._split(m, plan.a.rows)
            start = f"{target}[({m} - {self.first})*{self.k_count} + "
            if len(plan.k) == 1:
                self._copy_run(start, plan.a.value, plan.k[0].name, "0", self.k_count)
            else:
                with self._k_loops() as k:
                    out.line(f"{start}{k}] = {self._scalars().value(plan.a.value)}")

    def _copy_run(self, start: str, value: Scalar, axis: str, first: str, last: str) -> None:
        """A run of an operand along an axis.  What is chosen by the place on it becomes two runs; other choices are made once."""
        out, source = self.out, self.source
        match value:
            case Apply(function=function, args=(condition, yes, no)) if function == LAZY:
                reads = any(isinstance(s, Load) for s in walk(condition))  # which may be of nothing, where the run is empty
                if not reads and not depends_on(condition, axis):
                    for head, side in ((f"if {self._scalars().value(condition)}:", yes), ("else:", no)):
                        with out.block(head):
                            self._copy_run(start, side, axis, first, last)
                    return
                if (cut := _cut(condition, axis)) is not None:
                    at = source.names.fresh("cut")
                    out.line(f"{at} = min(max({source.dim(cut[0])}, {first}), {last})")
                    for side, run in zip((no, yes) if cut[1] else (yes, no), ((first, at), (at, last)), strict=True):
                        self._copy_run(start, side, axis, *run)
                    return
        with out.block(f"for {source.axis(axis)} in range({first}, {last}):"):
            out.line(f"{start}{source.axis(axis)}] = {self._scalars().value(value)}")

    @contextmanager
    def _k_loops(self):
        """Loops over the reduction axes; gives the flat index of k."""
        source, axes = self.source, self.plan.k
        with ExitStack() as stack:
            for a in axes:
                stack.enter_context(self.out.block(f"for {source.axis(a.name)} in range({source.dim(a.extent)}):"))
            flat = " + ".join(
                "*".join(
                    [
                        source.axis(a.name),
                        *([source.factor(product([b.extent for b in axes[i + 1 :]]))] if i + 1 < len(axes) else []),
                    ]
                )
                for i, a in enumerate(axes)
            )
            yield flat if len(axes) == 1 else f"({flat})"

    def _epilogue(self) -> None:
        """The blocks after the anchor, row by row of the finished panels."""
        plan, out, source = self.plan, self.out, self.source
        m, chunk = source.axis(plan.m.name), plan.epilogue.chunk
        if chunk:
            out.line(f"{source.axis(f'{chunk.name}.first')} = first_panel*{self.width}")
            out.line(f"{source.axis(f'{chunk.name}.last')} = min(last_panel*{self.width}, {self.n_count})")
        with out.block(f"for {m} in range({self.first}, {self.last}):"):
            source.pointer(RESULT, plan.dtype, f"result_start + {self.size * self.row}*({m} - {self.first})", self.row)
            self.finish.row()

    def _scalars(self) -> ScalarWriter:
        axes = (*self.plan.outer, self.plan.m, *self.plan.a.rows, self.plan.n, *self.plan.k)
        writer = ScalarWriter(
            self.out, self.source.names, lambda load: self._access(load, writer), {a.name: (0, a.extent - 1) for a in axes}
        )
        return writer

    def _access(self, load: Load, writer: ScalarWriter) -> str:
        return self.source.element(load.buffer, index_source(load.indices[0], writer), load.dtype)


def _cut(condition: Scalar, axis: str) -> tuple[Dim, bool] | None:
    """Where along the axis a condition changes, and whether it holds from there on; None if that is no single place."""
    needed = facts(condition, True)
    found = linear(needed[0], (axis,)) if len(needed) == 1 else None
    if found is None or found[0].get(axis) not in (1, -1):
        return None
    rises = found[0][axis] == 1
    return (0 - found[1] if rises else found[1] + 1), rises

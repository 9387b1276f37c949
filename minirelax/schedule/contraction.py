"""Plan the contractions (matmul, batched matmul, einsum) for register tiles called through a table.

The anchor block is ``sum over k of A * B``.  With n the last spatial axis (on which only B depends) and m the last one on
which only A depends, every other spatial axis is an outer loop.  A tile of the plan is a block of rows of m by some panels of
n: for each chunk of k and each panel, the register tiles sweep the rows while the panel of B is in the nearest cache; then the
*epilogue*, the blocks that follow the anchor, runs on the finished panels (Goto and van de Geijn 2008).

The epilogue is a plan of rows (`schedule.rows`) that reads the finished rows from scratch memory, in one of two forms.  If all
blocks run over the anchor's own axes, it is the chunk form: a chunk is the tile's panels.  If some have values of whole rows
(the mean and variance of a norm, the maximum and the sum of a softmax), it is the row form, and a tile has all panels: the
product of a block of rows is finished, and then each row of it.  That needs rows that are short for sure (`is_short_row`), and
smaller blocks of rows where m is small, since rows are all that threads can share then.

B is read in place when it is packed already (a weight) or when its rows are contiguous and few rows of A would reuse a
copy; else its panels are copied into the thread's scratch memory.  A is read in place when k is contiguous, else copied; what is
made of it by choices, as the windows of a convolution are, is evaluated then, and its rows may be several axes (`gathered_rows`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from minirelax.ir.dim import Dim, ceildiv, floordiv, linear, maximum, minimum, product, symbol
from minirelax.ir.loop import Axis, Block, Kernel
from minirelax.ir.scalar import Load, Scalar, load, substitute_index, transform
from minirelax.ir.types import itemsize, whole_lines
from minirelax.passes.contraction_rows import is_product_sum, is_short_row, matrix_roles
from minirelax.schedule.cost import block_cost
from minirelax.schedule.flat import flatten, merge_group
from minirelax.schedule.gathered_rows import merge_rows
from minirelax.schedule.rows import RowPlan, plan_epilogue

K_CHUNK = 512  # most rows of B between two passes over the result: 32 KiB of f32 for a panel of 16 columns
PANELS = 4  # panels of a tile, so that B is copied, and the epilogue runs, in long rows
TILES = 16  # but not so many that fewer tiles than this are left
ROW_SPLIT = 8  # tiles to aim at where B is copied: each copies its panels for itself
B_ROWS = 4096  # most rows of B that a tile has copies of
DIRECT_CHUNK = 16  # rows of B that are read side by side, all along, where B is not copied
ROWS_BUDGET = 65536  # elements of the rows of A that a panel meets: they stay in L2
ROWS, MAX_ROWS = 96, 256  # rows of A that share one pass over a panel
ROW_TILES = 8  # with whole rows, tiles that are worth more than long blocks of rows: some for each of a few threads
RESULT_BYTES = 262144  # of the finished rows of a tile: they stay in L2
TILE_FLOPS = 4_000_000  # work that makes a tile worth claiming
PICOSECONDS_PER_FLOP = {"f32": 16, "f64": 32}
RESULT = "tile.result"  # the buffer that holds the finished panels of a row
REUSE = 40  # rows from which copying a panel of an unpacked B pays


@dataclass(frozen=True)
class RegisterTile:
    """The machine's register tiles for a dtype: up to `rows` rows by `width` columns."""

    rows: int
    width: int


@dataclass(frozen=True)
class Operand:
    """How A or B is read: ``packed`` panels of a weight, ``direct`` at `base` + row * `stride`, or ``copy`` through scratch."""

    how: str
    value: Scalar
    buffer: str | None = None
    base: Dim = 0  # element offset with m (or n) and k at 0
    stride: Dim = 0  # elements from one row of A (one k of B) to the next
    rows: tuple[Axis, ...] = ()  # the axes that m stands for in `value`, if it is not one of them


@dataclass(frozen=True)
class ContractionPlan:
    """How a contraction runs: see the module."""

    kernel: Kernel
    dtype: str
    outer: tuple[Axis, ...]
    m: Axis
    n: Axis
    k: tuple[Axis, ...]
    a: Operand
    b: Operand
    epilogue: RowPlan  # of the blocks after the anchor; it reads the anchor's values from RESULT
    store: Operand | None  # where the result goes, if it is nothing but the product
    tile: RegisterTile
    rows_per_tile: Dim  # at most
    block_rows: int  # at most: rows of a tile that share a pass over its panels
    max_panels: int
    panels_per_tile: Dim  # as many as leave enough tiles for all threads; of whole rows: that are computed together
    row_panels: int  # panels in a row of RESULT
    tiles: Dim
    cost: Dim  # nanoseconds on one core
    c_bytes: Dim  # of scratch memory: the epilogue's buffers, then the result, then copied rows of A, then panels of B
    a_bytes: Dim
    scratch_bytes: Dim

    @property
    def whole_rows(self) -> bool:
        """Does a tile have all panels?"""
        return self.epilogue.chunk is None

    @property
    def k_extent(self) -> Dim:
        return product([a.extent for a in self.k])

    def __str__(self) -> str:
        outer = " x ".join(str(a.extent) for a in self.outer) or "1"
        columns = "all" if self.whole_rows else self.max_panels
        return (
            f"{self.kernel.name}: {self.m.extent} x {self.n.extent} x {self.k_extent}, outer {outer}, "
            f"A {self.a.how}, B {self.b.how}, register tile {self.tile.rows} x {self.tile.width}, "
            f"up to {self.rows_per_tile} rows by {columns} panels a tile"
        )


def plan_contraction(kernel: Kernel, tile: RegisterTile) -> ContractionPlan | None:
    """The plan, or None if the kernel is not a contraction with rows on both sides, of f32 or f64."""
    anchor = _anchor(kernel)
    if anchor is None:
        return None
    others = tuple(b for b in kernel.blocks if b is not anchor)
    whole_rows = any(b.axes != anchor.axes for b in others)
    if not all(_is_row_block(b, anchor) for b in others) or not _epilogue_is_local(kernel, anchor):
        return None
    if whole_rows and not is_short_row(anchor.axes[-1].extent, anchor.value.dtype):
        return None
    packed = _packed_buffer(kernel, anchor, tile.width)
    count = len(anchor.axes) - 1 if whole_rows else len(anchor.axes)
    at = kernel.blocks.index(anchor)
    blocks, rows, gathered = merge_rows(flatten(kernel).blocks, at, count)
    block, over = merge_group(blocks[at], blocks[at].over)
    roles = matrix_roles(block)
    if roles is None:  # as it is where there is nothing to sum: no index depends on anything then
        return None
    roles = roles if gathered is None else replace(roles, a=gathered)
    plan = _sized(kernel, block, roles, over, (*blocks[:at], *blocks[at + 1 :]), whole_rows, packed, tile)
    return replace(plan, a=replace(plan.a, rows=rows))


def _anchor(kernel: Kernel) -> Block | None:
    """The one block that is a matrix product: no other has as many axes and sums products, and it needs none of the others."""
    most, made = max((len(b.axes) for b in kernel.blocks), default=0), Counter(b.buffer for b in kernel.blocks)
    found = [b for b in kernel.blocks if is_product_sum(b) and len(b.axes) == most]
    if len(found) != 1 or matrix_roles(found[0]) is None or max(made.values()) > 1:
        return None
    return None if any(read.buffer in made for read in found[0].loads) else found[0]


def _is_row_block(block: Block, anchor: Block) -> bool:
    """Is this a value of each element of the anchor's rows, or one of each row?"""
    return block.axes == anchor.axes[:-1] or (block.axes == anchor.axes and not block.over)


def _sized(kernel, block, roles, over, epilogue, whole_rows, packed, tile) -> ContractionPlan:
    dtype, outer, m, n = block.value.dtype, roles.outer, roles.m, roles.n
    a, b = _operand_a(roles.a, m, over), _operand_b(roles.b, n, over, packed)
    size, k = itemsize(dtype), product([x.extent for x in over])
    batch, panels = product([x.extent for x in outer]), ceildiv(n.extent, tile.width)
    max_rows = _max_rows(m, k, RESULT_BYTES // max(panels * tile.width * size, 1) if whole_rows else MAX_ROWS, tile)
    per_panel = 2 * max_rows * tile.width * (k if isinstance(k, int) else 128)
    max_panels = max(1, min(4, TILE_FLOPS // max(per_panel * PANELS, 1))) * PANELS
    if isinstance(panels, int):
        max_panels = max(1, min(max_panels, panels))
    if whole_rows:
        rows_per_tile = maximum(tile.rows, minimum(max_rows, ceildiv(batch * m.extent, ROW_TILES)))
        row_blocks, row_panels, panels_per_tile = ceildiv(m.extent, rows_per_tile), max(panels, 1), max_panels
        tiles = row_blocks * batch
    else:
        row_blocks, row_panels = ceildiv(m.extent, max_rows), max_panels
        least = maximum(1, minimum(PANELS, floordiv(panels, 6)))  # what a tile of one row takes at once
        panels_per_tile = maximum(least, minimum(max_panels, floordiv(batch * row_blocks * panels, TILES)))
        groups = ceildiv(panels, panels_per_tile)
        rows_per_tile = max_rows
        if b.how != "packed" and (not isinstance(k, int) or k <= B_ROWS):
            has_all = minimum(1, floordiv(B_ROWS, maximum(k, 1)))  # rows of its panels: else each block needs them anew
            parts = ceildiv(ROW_SPLIT, maximum(1, floordiv(batch * panels, PANELS)))
            rows_per_tile = maximum(max_rows, has_all * ceildiv(m.extent, parts))
        tiles = ceildiv(m.extent, rows_per_tile) * groups * batch
    flops = 2 * batch * m.extent * n.extent * k
    cost = floordiv(flops * PICOSECONDS_PER_FLOP[dtype] + sum((block_cost(e) for e in epilogue), 0), 1000)
    finish = _epilogue(kernel, block, epilogue, n, None if whole_rows else max_panels * tile.width)
    block_rows = max_rows
    rows = minimum(m.extent, rows_per_tile if whole_rows else block_rows)  # small calls need little memory
    c_bytes = rows * whole_lines(row_panels * tile.width * size)
    a_bytes = whole_lines(rows * k * size) if a.how == "copy" else 0
    b_bytes = max_panels * minimum(k, B_ROWS) * tile.width * size if b.how != "packed" else 0
    return ContractionPlan(
        kernel,
        dtype,
        outer,
        m,
        n,
        over,
        a,
        b,
        finish,
        _store(kernel, block, epilogue, m, n),
        tile,
        rows_per_tile,
        block_rows,
        max_panels,
        panels_per_tile,
        row_panels,
        maximum(0, tiles),
        cost,
        c_bytes,
        a_bytes,
        finish.scratch_bytes + c_bytes + a_bytes + b_bytes,
    )


def _store(kernel: Kernel, anchor: Block, epilogue: tuple[Block, ...], m: Axis, n: Axis) -> Operand | None:
    """The place of the product, if it is all there is to compute, and an output with its columns side by side."""
    if epilogue or all(v.name != anchor.buffer for v in kernel.outputs):
        return None
    found = _strided(load(anchor.buffer, anchor.indices, anchor.value.dtype), m.name, n.name)
    return Operand("direct", anchor.value, anchor.buffer, found[0], found[1]) if found and found[2] == 1 else None


def _max_rows(m: Axis, k: Dim, most: int, tile: RegisterTile) -> int:
    """Rows that a tile may have: `most`, as the schedule's own limits allow, in whole register tiles."""
    rows = min(MAX_ROWS, max(ROWS, ROWS_BUDGET // max(k, 1))) if isinstance(k, int) else 128
    rows = max(1, min(rows, most))
    if isinstance(m.extent, int):  # no more scratch memory than there are rows to keep
        rows = min(rows, max(m.extent, 1))
    return -(-rows // tile.rows) * tile.rows


def _epilogue_is_local(kernel: Kernel, anchor: Block) -> bool:
    """Does everything after the anchor read the values made in this kernel only at its own position in its own row?"""
    made, n = {b.buffer: b for b in kernel.blocks}, anchor.axes[-1].name
    for block in kernel.blocks:
        for read in block.loads:
            writer = made.get(read.buffer)
            if writer is None:
                continue
            column = _column(block, n)
            if writer.axes == anchor.axes and column is None:
                return False
            here = {n: symbol(column)} if writer.axes == anchor.axes else {}
            if read.indices != tuple(substitute_index(i, here) for i in writer.indices):
                return False
    return True


def _column(block: Block, n: str) -> str | None:
    """The axis by which a block goes along the row: n itself, or what it reduces over."""
    if any(a.name == n for a in block.axes):
        return n
    return block.over[0].name if len(block.over) == 1 else None


def _operand_a(value: Scalar, m: Axis, over: tuple[Axis, ...]) -> Operand:
    if len(over) == 1 and (found := _strided(value, m.name, over[0].name)) and found[2] == 1:
        return Operand("direct", value, value.buffer, found[0], found[1])
    return Operand("copy", value)


def _operand_b(value: Scalar, n: Axis, over: tuple[Axis, ...], packed: str | None) -> Operand:
    if packed is not None:
        return Operand("packed", value, packed)
    if len(over) == 1 and (found := _strided(value, over[0].name, n.name)) and found[2] == 1:
        return Operand("direct", value, value.buffer, found[0], found[1])
    return Operand("copy", value)


def _strided(value: Scalar, row: str, column: str) -> tuple[Dim, Dim, Dim] | None:
    """Offset with both axes at 0, stride along `row`, stride along `column` of a plain load; None for anything else."""
    match value:
        case Load(indices=(index,)) if not isinstance(index, Scalar):
            found = linear(index, (row, column))
            if found is not None:
                return found[1], found[0].get(row, 0), found[0].get(column, 0)
    return None


def _packed_buffer(kernel: Kernel, anchor: Block, width: int) -> str | None:
    """The operand stored in panels: read at ``[n // width, k, n % width]`` (or ``[0, k, n]`` if there is one panel)."""
    if not anchor.axes or len(anchor.over) != 1:
        return None
    n, k = symbol(anchor.axes[-1].name), symbol(anchor.over[0].name)
    for factor in anchor.value.args:
        match factor:
            case Load(buffer=buffer, indices=(panel, row, column)) if row == k:
                shape = kernel.buffers[buffer].shape
                if shape[2] == width and (panel, column) in ((n // width, n % width), (0, n)):
                    return buffer
    return None


def _epilogue(kernel: Kernel, anchor: Block, blocks: tuple[Block, ...], n: Axis, width: int | None) -> RowPlan:
    """The plan of the blocks after the anchor: of whole rows, or of `width` columns.  All blocks are flat."""
    local = {v.name for v in kernel.local}
    along = {b.buffer for b in (anchor, *blocks) if any(a.name == n.name for a in b.axes)}  # one value for each column
    start = 0 if width is None else symbol(f"{n.name}.first")

    def place(buffer: str, block: Block) -> tuple[Dim]:
        return (symbol(_column(block, n.name)) - start if buffer in along else 0,)

    def in_tile(block: Block) -> Block:
        """The block with what is kept in scratch memory at its place in the row."""

        def relative(s: Scalar) -> Scalar:
            if isinstance(s, Load) and (s.buffer == anchor.buffer or (s.buffer in local and s.buffer in made)):
                return load(RESULT if s.buffer == anchor.buffer else s.buffer, place(s.buffer, block), s.dtype)
            return s

        block = replace(block, value=transform(block.value, relative))
        return replace(block, indices=place(block.buffer, block)) if block.buffer in local else block

    made = {b.buffer for b in blocks}
    copy = replace(anchor, over=(), reduction=None, value=load(anchor.buffer, anchor.indices, anchor.value.dtype))
    first = () if anchor.buffer in local else (copy,)
    rows = tuple(a for a in anchor.axes if a != n)
    chunk = n if width is not None else None
    return plan_epilogue(kernel, tuple(map(in_tile, (*first, *blocks))), rows, chunk, width or 0)

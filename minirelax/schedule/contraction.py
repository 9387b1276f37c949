"""Plan the contractions (matmul, batched matmul, einsum) for register tiles called through a table.

The anchor block is ``sum over k of A * B``.  With n the last spatial axis (on which only B depends) and m the last one on
which only A depends, every other spatial axis is an outer loop.  A tile of the plan is a block of rows of m by some panels of
n: for each chunk of k and each panel, the register tiles sweep the rows while the panel of B is in the nearest cache; then the
*epilogue*, the blocks that follow the anchor, runs on the finished panels (Goto and van de Geijn 2008).

B is read in place when it is packed already (a weight) or when its rows are contiguous and few rows of A would reuse a
copy; else its panels are copied into the thread's scratch memory.  A is read in place when k is contiguous, else copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minirelax.ir.dim import Dim, ceildiv, floordiv, linear, maximum, minimum, product, symbol
from minirelax.ir.loop import Axis, Block, Kernel
from minirelax.ir.scalar import Apply, Load, Scalar, load, transform
from minirelax.ir.types import itemsize, whole_lines
from minirelax.schedule.cost import block_cost
from minirelax.schedule.flat import depends_on, flatten, merge_group, merge_spatial

K_CHUNK = 384  # rows of B between two passes over the result: 48 KiB of f32 for a panel of 32 columns
PANELS = 4  # panels of a tile, so that B is copied, and the epilogue runs, in long rows
TILES = 16  # but not so many that fewer tiles than this are left
ROWS_BUDGET = 65536  # elements of the rows of A that a panel meets: they stay in L2
ROWS, MAX_ROWS = 96, 256  # rows of A that share one pass over a panel
TILE_FLOPS = 4_000_000  # work that makes a tile worth claiming
PICOSECONDS_PER_FLOP = {"f32": 16, "f64": 32}
RESULT = "tile.result"  # the buffer that holds the finished panel
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
    epilogue: tuple[Block, ...]  # flat; loads of RESULT and of `temporaries` are relative to the row of the panel
    temporaries: tuple[str, ...]
    tile: RegisterTile
    max_rows: int
    max_panels: int
    panels_per_tile: Dim  # as many as leave enough tiles for all threads
    tiles: Dim
    cost: Dim  # nanoseconds on one core
    temporary_bytes: int  # of scratch memory: rows of `temporaries`, then the result, then copied rows of A, then panels of B
    c_bytes: Dim
    a_bytes: Dim
    scratch_bytes: Dim

    @property
    def k_extent(self) -> Dim:
        return product([a.extent for a in self.k])

    def __str__(self) -> str:
        outer = " x ".join(str(a.extent) for a in self.outer) or "1"
        return (
            f"{self.kernel.name}: {self.m.extent} x {self.n.extent} x {self.k_extent}, outer {outer}, "
            f"A {self.a.how}, B {self.b.how}, register tile {self.tile.rows} x {self.tile.width}, "
            f"up to {self.max_rows} rows by {self.max_panels} panels a tile"
        )


def plan_contraction(kernel: Kernel, tile: RegisterTile) -> ContractionPlan | None:
    """The plan, or None if the kernel is not a contraction with rows on both sides, of f32 or f64."""
    found = [b for b in kernel.blocks if _is_product_sum(b)]
    if len(found) != 1 or kernel.blocks[0] is not found[0] or any(b.over for b in kernel.blocks[1:]):
        return None
    anchor = found[0]
    if any(b.axes != anchor.axes for b in kernel.blocks[1:]) or not _epilogue_is_local(kernel, anchor):
        return None
    packed = _packed_buffer(kernel, anchor, tile.width)
    blocks = merge_spatial(flatten(kernel).blocks).blocks
    block, over = merge_group(blocks[0], blocks[0].over)
    roles = _roles(block)
    if roles is None:
        return None
    outer, m, n, a, b = roles
    a_operand = _operand_a(a, m, over)
    b_operand = _operand_b(b, n, over, packed)
    return _sized(kernel, block, tuple(blocks[1:]), outer, m, n, over, a_operand, b_operand, tile)


def _sized(kernel, block, epilogue, outer, m, n, over, a, b, tile) -> ContractionPlan:
    dtype = block.value.dtype
    size, k = itemsize(dtype), product([x.extent for x in over])
    max_rows = min(MAX_ROWS, max(ROWS, ROWS_BUDGET // max(k, 1))) if isinstance(k, int) else 128
    if isinstance(m.extent, int):  # no more scratch memory than there are rows and panels to keep
        max_rows = min(max_rows, max(m.extent, 1))
    max_rows = -(-max_rows // tile.rows) * tile.rows
    per_panel = 2 * max_rows * tile.width * (k if isinstance(k, int) else 128)
    max_panels = max(PANELS, min(16, TILE_FLOPS // max(per_panel, 1)))
    batch, panels = product([x.extent for x in outer]), ceildiv(n.extent, tile.width)
    if isinstance(panels, int):
        max_panels = max(1, min(max_panels, panels))
    row_blocks = ceildiv(m.extent, max_rows)
    panels_per_tile = maximum(1, minimum(max_panels, floordiv(batch * row_blocks * panels, TILES)))
    tiles = row_blocks * ceildiv(panels, panels_per_tile) * batch
    flops = 2 * batch * m.extent * n.extent * k
    cost = floordiv(flops * PICOSECONDS_PER_FLOP[dtype] + sum((block_cost(e) for e in epilogue), 0), 1000)
    temporaries = tuple(v.name for v in kernel.local if v.name != block.buffer)
    kept = sum(whole_lines(max_panels * tile.width * itemsize(v.type.dtype)) for v in kernel.local if v.name in temporaries)
    rows = minimum(m.extent, max_rows)  # of a tile: small calls need little memory
    c_bytes = rows * whole_lines(max_panels * tile.width * size)
    a_bytes = whole_lines(rows * k * size) if a.how == "copy" else 0
    local = {v.name for v in kernel.local}
    first = () if block.buffer in local else (_output_copy(block, n),)
    chunk = min(k, K_CHUNK) if isinstance(k, int) else K_CHUNK
    b_bytes = max_panels * chunk * tile.width * size if b.how != "packed" else 0
    return ContractionPlan(
        kernel,
        dtype,
        outer,
        m,
        n,
        over,
        a,
        b,
        first + tuple(_local_epilogue(e, block.buffer, temporaries, n) for e in epilogue),
        temporaries,
        tile,
        max_rows,
        max_panels,
        panels_per_tile,
        maximum(0, tiles),
        cost,
        kept,
        c_bytes,
        a_bytes,
        kept + c_bytes + a_bytes + b_bytes,
    )


def _is_product_sum(block: Block) -> bool:
    match block.value:
        case Apply(function="multiply", dtype="f32" | "f64", args=(a, b)) if block.reduction == "sum":
            return all(any(depends_on(x, o.name) for o in block.over) for x in (a, b))
    return False


def _epilogue_is_local(kernel: Kernel, anchor: Block) -> bool:
    """Does everything after the anchor read the values made in this kernel only at its own position?"""
    stores = {b.buffer: b.indices for b in kernel.blocks}
    return all(read.indices == stores[read.buffer] for b in kernel.blocks[1:] for read in b.loads if read.buffer in stores)


def _roles(block: Block) -> tuple[tuple[Axis, ...], Axis, Axis, Scalar, Scalar] | None:
    """Outer axes, m, n, and the factors as (A, B); None if n or m does not exist."""
    if not block.axes:
        return None
    n, (x, y) = block.axes[-1], block.value.args
    if depends_on(x, n.name) == depends_on(y, n.name):
        return None
    a, b = (x, y) if depends_on(y, n.name) else (y, x)
    rows = [axis for axis in block.axes[:-1] if depends_on(a, axis.name) and not depends_on(b, axis.name)]
    if not rows:
        return None
    return tuple(axis for axis in block.axes[:-1] if axis != rows[-1]), rows[-1], n, a, b


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


def _output_copy(anchor: Block, n: Axis) -> Block:
    """The copy of a finished panel to the anchor's own buffer, for an anchor that is an output."""
    column = symbol(n.name) - symbol(f"{n.name}.first")
    return replace(anchor, over=(), reduction=None, value=load(RESULT, (column,), anchor.value.dtype))


def _local_epilogue(block: Block, anchor: str, temporaries: tuple[str, ...], n: Axis) -> Block:
    """Values made in this kernel are addressed by their column in the panel: the register tile's row, or a row of scratch."""
    column = symbol(n.name) - symbol(f"{n.name}.first")

    def relative(s: Scalar) -> Scalar:
        if isinstance(s, Load) and (s.buffer == anchor or s.buffer in temporaries):
            return load(RESULT if s.buffer == anchor else s.buffer, (column,), s.dtype)
        return s

    block = replace(block, value=transform(block.value, relative))
    return replace(block, indices=(column,)) if block.buffer in temporaries else block

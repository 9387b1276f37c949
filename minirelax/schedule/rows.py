"""Plan the kernels that walk over rows: elementwise chains, reductions, and multi-stage ones (softmax, norms).

All blocks of such a kernel share leading spatial axes, the *rows*.  Rows are independent, so they are what threads claim;
within a row the blocks run one after the other on data that is still in the nearest cache.  Two forms:

* ``row``: a block may have axes of its own inside a row; local buffers hold one row (a register if that is one element);
* ``chunk``: the last shared axis is contiguous and vectorised, a tile is some rows by a chunk of it (elementwise kernels,
  and reductions along any axis but the contiguous one, which accumulate whole vectors).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minirelax.ir.dim import Dim, ceildiv, floordiv, maximum, minimum, product, substitute, symbol
from minirelax.ir.loop import Axis, Block, Kernel
from minirelax.ir.scalar import Index, Load, Scalar, load, substitute_axes, transform
from minirelax.ir.types import itemsize, whole_lines
from minirelax.schedule.cost import TILE, block_cost
from minirelax.schedule.flat import flatten, merge_group, merge_spatial, stride_of
from minirelax.schedule.share_loops import Loop, Step, share_loops, unstored

CHUNK, LOCAL_CHUNK, COLUMN_CHUNK = 16384, 1024, 512  # elements
FAR = 16  # elements: a cache line of f32
TRANSPOSED_CHUNK = 64  # where a load jumps: so few columns that the next row still finds their cache lines


@dataclass(frozen=True)
class ScratchBuffer:
    """A local buffer in the thread's scratch memory: how many elements, and where (bytes)."""

    name: str
    dtype: str
    elements: Dim
    offset: Dim


@dataclass(frozen=True)
class RowPlan:
    """How a kernel of rows runs: see the module.  `registers` are local buffers of one element."""

    kernel: Kernel  # as it was
    rows: tuple[Axis, ...]
    chunk: Axis | None
    width: int
    loops: tuple[Loop, ...]
    registers: tuple[str, ...]
    unstored: frozenset[str]  # local buffers that only exist inside a loop
    scratch: tuple[ScratchBuffer, ...]
    rows_per_tile: Dim
    tiles: Dim
    cost: Dim  # nanoseconds on one core
    scratch_bytes: Dim

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(s for loop in self.loops for s in loop.steps)

    @property
    def form(self) -> str:
        return "chunk" if self.chunk else "row"

    def __str__(self) -> str:
        rows = " x ".join(f"{a.name}<{a.extent}" for a in self.rows) or "one"
        return (
            f"{self.kernel.name}: {self.form} form, rows {rows}"
            + (f", chunks of {self.width} of {self.chunk.name}" if self.chunk else "")
            + f", {self.rows_per_tile} rows a tile"
        )


def plan_rows(kernel: Kernel) -> RowPlan:
    """The plan of any kernel: what has no shared axes runs as a single row."""
    if not kernel.blocks:  # nothing is written: every output is empty
        return RowPlan(kernel, (), None, 0, (), (), frozenset(), (), 1, 0, 0, 0)
    shared = _shared_axes(kernel)
    flat = flatten(kernel)
    merged = merge_spatial(flat.blocks, len(shared)) if shared else None
    blocks = merged.blocks if merged else flat.blocks
    shared = blocks[0].axes[: len(shared) - len(merged.merges)] if merged else ()
    steps = tuple(_step(b, len(shared)) for b in blocks)
    chunk = shared[-1] if shared and _wants_chunks(steps, shared[-1]) else None
    rows = shared[:-1] if chunk else shared
    written = {b.buffer for b in kernel.blocks} - {v.name for v in kernel.outputs}
    steps = tuple(_localise(s, rows, chunk, written) for s in steps)
    width = _width(kernel, steps, rows, chunk) if chunk else 0
    elements = {v.name: _elements(v.name, blocks, rows, chunk, width, v.type.shape) for v in kernel.local if v.name in written}
    return _sized(kernel, rows, chunk, width, steps, blocks, elements)


def plan_epilogue(kernel: Kernel, blocks: Sequence[Block], rows: tuple[Axis, ...], chunk: Axis | None, width: int) -> RowPlan:
    """The plan of the blocks that finish rows which are computed elsewhere: whole ones, or chunks of `width` of them.

    The blocks are flat and share the axes `rows`; accesses to local buffers are relative to the row, and to the chunk's start.
    """
    steps = tuple(_step(b, len(rows) + (chunk is not None)) for b in blocks)
    local = {v.name for v in kernel.local}
    elements = {
        s.block.buffer: width if chunk else product([a.extent for a in s.inner]) for s in steps if s.block.buffer in local
    }
    return _sized(kernel, rows, chunk, width, steps, blocks, elements)


def _sized(kernel, rows, chunk, width, steps, blocks, elements: dict[str, Dim]) -> RowPlan:
    """The plan from its steps; `elements` says how many of each local buffer a row (or chunk) needs."""
    loops = share_loops(steps, chunk)
    skipped = unstored(loops, set(elements))
    registers = tuple(n for n, e in elements.items() if e == 1 and not chunk and n not in skipped)
    scratch, place = [], 0
    for v in kernel.local:
        if v.name in elements and v.name not in registers and v.name not in skipped:
            scratch.append(ScratchBuffer(v.name, v.type.dtype, elements[v.name], place))
            place = place + whole_lines(elements[v.name] * itemsize(v.type.dtype))
    cost = sum((block_cost(b) for b in blocks), 0)
    count = product([a.extent for a in rows])
    per_row = sum((block_cost(replace(b, axes=b.axes[len(rows) :])) for b in blocks), 0)
    rows_per_tile, tiles = _tiles(per_row, count, chunk, width)
    return RowPlan(
        kernel, rows, chunk, width, loops, registers, skipped, tuple(scratch), rows_per_tile, tiles, floordiv(cost, 1000), place
    )


def _tiles(per_row: Dim, count: Dim, chunk: Axis | None, width: int) -> tuple[Dim, Dim]:
    """Rows per tile, and tiles, so that a tile is about `TILE` of work, which is `per_row` picoseconds a row."""
    chunks = ceildiv(chunk.extent, width) if chunk else 1
    if count == 1:
        return 1, chunks
    if chunk:
        per_row = minimum(per_row, width * max(1, scalar_bound(per_row, chunk)))
    rows_per_tile = maximum(1, floordiv(TILE, maximum(1, per_row)))
    return rows_per_tile, ceildiv(count, rows_per_tile) * chunks


def scalar_bound(per_row: Dim, chunk: Axis) -> int:
    """Picoseconds per element of the chunk axis, where that is a number."""
    found = floordiv(per_row, chunk.extent) if chunk.extent != 0 else 0
    return found if isinstance(found, int) else 1000


def _shared_axes(kernel: Kernel) -> tuple[Axis, ...]:
    """The longest common prefix of all blocks' axes along which every value written here is read at the same row only."""
    prefix = list(kernel.blocks[0].axes)
    for b in kernel.blocks[1:]:
        same = 0
        while same < min(len(prefix), len(b.axes)) and prefix[same] == b.axes[same]:
            same += 1
        prefix = prefix[:same]
    while prefix and not all(_row_private(kernel, a, p) for p, a in enumerate(prefix)):
        prefix.pop()
    return tuple(prefix)


def _row_private(kernel: Kernel, axis: Axis, position: int) -> bool:
    """Is every buffer written in the kernel written and read only at its own position along `axis`?

    Local buffers must have `axis`, the row axis at `position`, in that place, so that a row of them is one piece.
    """
    local = {v.name: [d for d, size in enumerate(v.type.shape) if size != 1] for v in kernel.local}
    here = symbol(axis.name)
    where: dict[str, int] = {}  # buffer -> the dimension that `axis` walks along
    for b in kernel.blocks:
        dims = [d for d, i in enumerate(b.indices) if not isinstance(i, Scalar) and i == here]
        if len(dims) != 1 or where.setdefault(b.buffer, dims[0]) != dims[0]:
            return False
    if any(local[name][position : position + 1] != [d] for name, d in where.items() if name in local):
        return False
    return all(read.indices[where[read.buffer]] == here for b in kernel.blocks for read in b.loads if read.buffer in where)


def _step(block: Block, shared: int) -> Step:
    block, inner = merge_group(block, block.axes[shared:])
    block, over = merge_group(block, block.over)
    return Step(block, inner, over, bool(over) and not (inner and _jumps(block, inner[-1].name) < _jumps(block, over[-1].name)))


def _jumps(block: Block, axis: str) -> int:
    """How many loads do not stand still or move by one element along `axis`."""
    return sum(stride_of(read.indices[0], axis) not in (0, 1) for read in block.loads)


def _wants_chunks(steps: Sequence[Step], last: Axis) -> bool:
    if any(s.inner for s in steps):
        return False
    reducing = [s for s in steps if s.over]
    return all(_jumps(s.block, last.name) < _jumps(s.block, s.over[-1].name) for s in reducing) if reducing else True


def _width(kernel: Kernel, steps: Sequence[Step], rows: tuple[Axis, ...], chunk: Axis) -> int:
    if any(s.over for s in steps):
        return COLUMN_CHUNK
    if any(_is_transposed(read.indices[0], rows, chunk) for s in steps for read in s.block.loads):
        return TRANSPOSED_CHUNK
    return LOCAL_CHUNK if kernel.local else CHUNK


def _is_transposed(index: Index, rows: tuple[Axis, ...], chunk: Axis) -> bool:
    """Does a load jump along the chunk's axis, but move to a neighbour along a row axis?"""
    stride = stride_of(index, chunk.name)
    jumps = stride is not None and not (isinstance(stride, int) and abs(stride) < FAR)
    return jumps and any(stride_of(index, a.name) in (1, -1) for a in rows)


def _localise(step: Step, rows: tuple[Axis, ...], chunk: Axis | None, local: set[str]) -> Step:
    """Accesses to local buffers, relative to the row (and to the chunk's start, called ``<axis>.first``)."""
    here: dict[str, Index] = {a.name: 0 for a in rows}
    if chunk:
        here[chunk.name] = symbol(chunk.name) - symbol(f"{chunk.name}.first")

    def relative(s: Scalar) -> Scalar:
        if isinstance(s, Load) and s.buffer in local:
            return load(s.buffer, (_at(s.indices[0], here),), s.dtype)
        return s

    block = replace(step.block, value=transform(step.block.value, relative))
    if block.buffer in local:
        block = replace(block, indices=(_at(block.indices[0], here),))
    return replace(step, block=block)


def _at(index: Index, here: dict[str, Index]) -> Index:
    return substitute_axes(index, here) if isinstance(index, Scalar) else substitute(index, here)


def _elements(name: str, blocks: Sequence[Block], rows, chunk, width: int, shape) -> Dim:
    """Elements of a local buffer that one row (or chunk) needs."""
    store = next(b for b in blocks if b.buffer == name).indices[0]
    if chunk:
        return width
    return stride_of(store, rows[-1].name) if rows else product(shape)

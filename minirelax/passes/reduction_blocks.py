"""Reductions that are worth splitting, and the blocks of loops that each becomes.

A reduction is split if its results are few and known in number, and its axes long or of unknown length.  All its axes are split
as one where every read goes through them as through one; else only the first is.

>>> from minirelax.ir.parse_loops import parse_kernel
>>> kernel = parse_kernel('''
... @kernel
... def total(x: f32[n, m], out: f32[()], *, n, m):
...     out[()] = 0.0
...     for k in range(n):
...         for k1 in range(m):
...             out[()] += x[k, k1]''')
>>> cut = cuts(kernel)["out"]
>>> cut.length, cut.blocks, cut.rest
(16384, (m*n)//16384, (m*n)%16384)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from minirelax.ir.dim import Dim, floordiv, mod, names, product, symbol
from minirelax.ir.loop import Axis, Block, Kernel
from minirelax.ir.scalar import Load, Scalar, SizeValue, load, substitute_axes, walk
from minirelax.ir.types import Tensor
from minirelax.passes.annotate_patterns import is_contraction, pattern_of

ELEMENTS, LEAST_STEPS = 16384, 64  # of a block: terms, and steps of the axis
PRODUCTS, LEAST_PRODUCTS = 1 << 18, 1024  # of a block of a contraction
ROWS = 64  # results beyond which rows are enough for many threads
COLUMNS = 4096  # results beyond which columns, or a contraction's tiles, are
PANEL = 128  # columns beyond which a contraction has several panels
UNKNOWN = 64  # what an axis of unknown length counts for
ROW, STEP = "block.row", "block.step"  # axes, until they are named by their places


@dataclass(frozen=True)
class Cut:
    """How a reduction is split: its axes as one of `extent` steps (or the first of `over`), in blocks of `length` steps."""

    block: Block
    over: tuple[Axis, ...]  # the axes that are split, as one
    inside: tuple[Axis, ...]  # those that stay as they are
    length: int

    @property
    def extent(self) -> Dim:
        return product([a.extent for a in self.over])

    def is_long(self, extent: Dim) -> bool:
        """May so many steps be worth several blocks?"""
        return not isinstance(extent, int) or extent >= 2 * self.length

    @property
    def blocks(self) -> Dim:
        """The number of whole blocks."""
        return floordiv(self.extent, self.length)

    @property
    def rest(self) -> Dim:
        """The steps behind them."""
        return mod(self.extent, self.length)

    def part(self, buffer: str) -> Block:
        """The whole blocks, each reduced to a row of `buffer`."""
        row, step = symbol(ROW), symbol(STEP)
        ranges = {ROW: (0, self.blocks - 1), STEP: (0, self.length - 1)}
        value = self._at(row * self.length + step, ranges)
        axes, over = (Axis(ROW, self.blocks), *self.block.axes), (Axis(STEP, self.length), *self.inside)
        return Block(axes, buffer, (row, *self.block.indices), value, over, self.block.reduction)

    def remainder(self, buffer: str) -> Block:
        """What is behind the last whole block, reduced to `buffer`."""
        value = self._at(self.blocks * self.length + symbol(STEP), {STEP: (0, self.rest - 1)})
        return replace(self.block, buffer=buffer, value=value, over=(Axis(STEP, self.rest), *self.inside))

    def total(self, parts: str, buffer: str, dtype: str) -> Block:
        """All rows of `parts`, combined in `buffer`."""
        value = load(parts, (symbol(STEP), *self.block.indices), dtype)
        return replace(self.block, buffer=buffer, value=value, over=(Axis(STEP, self.blocks),))

    def _at(self, step: Dim, ranges) -> Scalar:
        """The reduction's term at a step of the axes."""
        values: dict[str, Dim] = {}
        for i, a in enumerate(self.over):
            below = product([b.extent for b in self.over[i + 1 :]])
            at = floordiv(step, below, ranges)
            values[a.name] = mod(at, a.extent, ranges) if i else at
        return substitute_axes(self.block.value, values, ranges)


def cuts(kernel: Kernel) -> dict[str, Cut]:
    """The reductions that are split, by the buffer that they write."""
    if "opaque" in (kernel.pattern, pattern_of(kernel)):
        return {}
    return {b.buffer: cut for b in kernel.blocks if b.reduction and (cut := _cut(b, kernel.buffers)) is not None}


def _cut(block: Block, types: dict[str, Tensor]) -> Cut | None:
    extents = [a.extent for a in block.axes]
    if not all(isinstance(d, int) for d in extents) or product(extents) == 0:
        return None
    results, contraction = product(extents), is_contraction(block)
    if results > (COLUMNS if contraction or not _reads_along(block) else ROWS) or (contraction and extents[-1] > PANEL):
        return None
    over, inside = (block.over, ()) if _is_one_axis(block, types) else (block.over[:1], block.over[1:])
    if contraction:
        length = min(ELEMENTS, max(LEAST_PRODUCTS, PRODUCTS // results // UNKNOWN * UNKNOWN))
    else:
        each = results * product([a.extent if isinstance(a.extent, int) and a.extent > 0 else UNKNOWN for a in inside])
        length = max(LEAST_STEPS, ELEMENTS // each)
    cut = Cut(block, over, inside, length)
    return cut if cut.is_long(cut.extent) else None


def _reads_along(block: Block) -> bool:
    """Does a read go along memory with the last reduction axis, so that there are no columns to share?"""
    return any(
        not isinstance(read.indices[-1], Scalar) and block.over[-1].name in names(read.indices[-1])
        for read in block.loads
        if read.indices
    )


def _is_one_axis(block: Block, types: dict[str, Tensor]) -> bool:
    """Do all reads go through the reduction axes as through one, or not use them?"""
    over = {a.name for a in block.over}
    if any(isinstance(s, SizeValue) and names(s.dim) & over for s in walk(block.value)):
        return len(over) == 1
    return len(over) == 1 or all(_goes_along(read, block.over, types[read.buffer].shape) for read in block.loads)


def _goes_along(read: Load, over: tuple[Axis, ...], shape: tuple[Dim, ...]) -> bool:
    names_over = {a.name for a in over}
    if any(isinstance(i, Scalar) for i in read.indices):
        return False
    places = [p for p, i in enumerate(read.indices) if names(i) & names_over]
    if not places:
        return True
    there = slice(places[0], places[0] + len(over))
    return (
        places == list(range(places[0], places[0] + len(over)))
        and read.indices[there] == tuple(symbol(a.name) for a in over)
        and shape[there][1:] == tuple(a.extent for a in over[1:])
    )

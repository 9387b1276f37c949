"""Flatten a kernel: every buffer one-dimensional, every access a row-major offset; merge axes that run on contiguously.

After flattening, the stride of an access along an axis is that axis's coefficient in the offset polynomial, and two axes
are one loop when every access advances through them without a jump.  Both facts are read off, never guessed.

>>> from minirelax.ir.tensor import lower_to_kernel, TensorExpr
>>> from minirelax.ir.scalar import apply
>>> from minirelax.ir.graph import Var
>>> from minirelax.ir.types import f32
>>> twice = lower_to_kernel("twice", lambda k, x: TensorExpr(x.shape, x.dtype, lambda *i: apply("add", x.at(*i), x.at(*i))),
...                         (Var("x", f32["n", "m"]),))
>>> flat = flatten(twice)
>>> flat.blocks[0].value.args[0].indices
(i*m + j,)
>>> merge_spatial(flat.blocks).blocks[0].axes
(Axis(name='i', extent=m*n),)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from minirelax.ir.dim import Dim, linear, names, product, simplify, substitute, symbol
from minirelax.ir.loop import Axis, Block, Kernel, block_dims
from minirelax.ir.scalar import (
    Index,
    Load,
    Scalar,
    apply,
    index_scalar,
    load,
    size_value,
    substitute_axes,
    transform,
)


def flatten(kernel: Kernel) -> Kernel:
    """`kernel` with one index per access: the row-major offset.  Buffer types keep their shapes."""
    shapes = {name: t.shape for name, t in kernel.buffers.items()}
    return replace(kernel, blocks=tuple(_flatten_block(b, shapes) for b in kernel.blocks))


def strides(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Row-major strides, in elements."""
    return tuple(product(shape[i + 1 :]) for i in range(len(shape)))


def offset(indices: tuple[Index, ...], shape: tuple[Dim, ...]) -> Index:
    """The row-major offset of an element, a polynomial unless an index depends on data."""
    total: Dim = 0
    gathered: list[Scalar] = []
    for index, stride in zip(indices, strides(shape), strict=True):
        if isinstance(index, Scalar):
            gathered.append(apply("multiply", index_scalar(index), size_value(stride)))
        else:
            total = total + index * stride
    if not gathered:
        return total
    scalar = gathered[0]
    for g in gathered[1:]:
        scalar = apply("add", scalar, g)
    return scalar if total == 0 else apply("add", scalar, size_value(total))


def _flatten_block(block: Block, shapes: dict[str, tuple[Dim, ...]]) -> Block:
    ranges = block.ranges

    def flat(s: Scalar) -> Scalar:
        return load(s.buffer, (_simple(offset(s.indices, shapes[s.buffer]), ranges),), s.dtype) if isinstance(s, Load) else s

    where = tuple(transform(i, flat) if isinstance(i, Scalar) else i for i in block.indices)
    return replace(block, value=transform(block.value, flat), indices=(_simple(offset(where, shapes[block.buffer]), ranges),))


def _simple(index: Index, ranges) -> Index:
    return index if isinstance(index, Scalar) else simplify(index, ranges)


@dataclass(frozen=True)
class Merged:
    """Blocks after merging, and what became of each removed axis: ``outer`` and ``inner`` are one loop called ``outer``."""

    blocks: tuple[Block, ...]
    merges: tuple[tuple[str, str], ...]


def merge_spatial(blocks: Sequence[Block], count: int | None = None) -> Merged:
    """Merge neighbouring spatial axes that all `blocks` share (the first `count` of them; default all of the first block's)."""
    blocks, merges = tuple(blocks), []
    count = len(blocks[0].axes) if count is None else count
    position = 0
    while position + 1 < count:
        outer, inner = blocks[0].axes[position : position + 2]
        if all(_mergeable(d, outer, inner) for b in blocks for d in _polynomials(b)):
            blocks = tuple(_merge_axes(b, outer, inner) for b in blocks)
            merges.append((outer.name, inner.name))
            count -= 1
        else:
            position += 1
    return Merged(blocks, tuple(merges))


def merge_group(block: Block, group: tuple[Axis, ...]) -> tuple[Block, tuple[Axis, ...]]:
    """Merge neighbours within `group` (consecutive axes of one block, spatial or reduction) where its accesses allow."""
    left = list(group)
    position = 0
    while position + 1 < len(left):
        outer, inner = left[position], left[position + 1]
        if all(_mergeable(d, outer, inner) for d in _polynomials(block)):
            block = _merge_axes(block, outer, inner)
            left[position : position + 2] = [Axis(outer.name, outer.extent * inner.extent)]
        else:
            position += 1
    return block, tuple(left)


def stride_of(index: Index, axis: str) -> Dim | None:
    """How far an access moves per step of `axis`; None if that is not constant (or depends on data)."""
    if isinstance(index, Scalar):
        return None if depends_on(index, axis) else 0
    found = linear(index, (axis,))
    return None if found is None else found[0].get(axis, 0)


def depends_on(value: Index, axis: str) -> bool:
    """Does an index or scalar mention `axis`?"""
    if not isinstance(value, Scalar):
        return axis in names(value)
    from minirelax.ir.scalar import SizeValue, walk

    for s in walk(value):
        match s:
            case Load(indices=indices) if any(axis in names(i) for i in indices if not isinstance(i, Scalar)):
                return True
            case SizeValue(dim=d) if axis in names(d):
                return True
    return False


def _polynomials(block: Block) -> list[Dim]:
    return list(block_dims(block))


def _mergeable(d: Dim, outer: Axis, inner: Axis) -> bool:
    if not names(d) & {outer.name, inner.name}:
        return True
    found = linear(d, (outer.name, inner.name))
    if found is None:
        return False
    return found[0].get(outer.name, 0) == found[0].get(inner.name, 0) * inner.extent


def _merge_axes(block: Block, outer: Axis, inner: Axis) -> Block:
    both = {outer.name: 0, inner.name: symbol(outer.name)}

    def merged(axes: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(a.name, outer.extent * inner.extent) if a == outer else a for a in axes if a != inner)

    def index(i: Index) -> Index:
        return substitute_axes(i, both) if isinstance(i, Scalar) else substitute(i, both)

    return replace(
        block,
        axes=merged(block.axes),
        over=merged(block.over),
        value=substitute_axes(block.value, both),
        indices=tuple(map(index, block.indices)),
    )

"""Rows of a contraction's A that lie in memory as several axes, as in the windows of a convolution, as one axis m.

Axes of a block are merged where every access goes through them as through one (`schedule.flat`).  The windows of images do not:
what a row reads depends on where in its image it is.  But A is copied before the product, row by row, and that is the only place
where the difference matters.  So the axes are merged as if A were a matrix in memory, and a row's number is split again where
the row is copied.  Many short products (one for each line of an image) become one with many rows.

>>> from minirelax.ir.parse_loops import parse_kernel
>>> from minirelax.schedule.flat import flatten
>>> blocks = flatten(parse_kernel('''
... @kernel
... def rows(x: f32[h, w], b: f32[9, 8], out: f32[h, w, 8], *, h, w):
...     for i in range(h):
...         for j in range(w):
...             for l in range(8):
...                 out[i, j, l] = 0.0
...                 for k in range(9):
...                     out[i, j, l] += (x[i, j - 1] if j > k else 0.0) * b[k, l]''')).blocks
>>> found, rows, value = merge_rows(blocks, 0, 3)
>>> print(*found[0].axes, rows, value, sep="\\n")
Axis(name='i', extent=h*w)
Axis(name='l', extent=8)
(Axis(name='i.row', extent=h), Axis(name='j.row', extent=w))
x[i.row*w + j.row - 1] if j.row > k else 0.0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from minirelax.ir.dim import Dim, symbol
from minirelax.ir.loop import Axis, Block
from minirelax.ir.scalar import Scalar, apply, is_choice, load, substitute_axes, walk
from minirelax.passes.contraction_rows import matrix_roles
from minirelax.schedule.flat import merge_spatial


def merge_rows(blocks: Sequence[Block], at: int, count: int) -> tuple[tuple[Block, ...], tuple[Axis, ...], Scalar | None]:
    """The (flat) blocks merged; where that needs A to be copied, the axes that its rows are split into, and A in their terms.

    `blocks[at]` is the contraction.
    """
    plain, anchor = merge_spatial(blocks, count), blocks[at]
    roles = matrix_roles(anchor)
    if roles is None or len(anchor.over) != 1 or not any(map(is_choice, walk(roles.a))):
        return plain.blocks, (), None
    row: Dim = 0
    for a in anchor.axes[:-1]:
        row = row * a.extent + symbol(a.name)
    matrix = load("rows of A", (row * anchor.over[0].extent + symbol(anchor.over[0].name),), anchor.value.dtype)
    product = replace(anchor, value=apply("multiply", matrix, roles.b))
    merged = merge_spatial((*blocks[:at], product, *blocks[at + 1 :]), count)
    found = matrix_roles(merged.blocks[at])
    parts = {a.name: [a] for a in anchor.axes}
    for outer, inner in merged.merges:
        parts[outer] += parts[inner]
    if found is None or len(merged.merges) == len(plain.merges) or any(len(parts[a.name]) > 1 for a in found.outer):
        return plain.blocks, (), None
    rows = {a.name: Axis(f"{a.name}.row", a.extent) for a in parts[found.m.name]}
    return merged.blocks, tuple(rows.values()), substitute_axes(roles.a, {name: symbol(a.name) for name, a in rows.items()})

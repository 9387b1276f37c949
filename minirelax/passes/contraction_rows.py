"""What a contraction's axes are to a matrix product, and whether its rows are short enough to be finished whole.

Fusion asks here before it puts a norm behind a product, and the schedule, which tiles the product by whole rows then, asks the
same, so neither promises what the other does not keep.

>>> from minirelax.ir.parser import parse_kernel
>>> block = parse_kernel('''
... @kernel
... def scores(q: f32[b, n, 64], k: f32[b, m, 64], out: f32[b, n, m], *, b, n, m):
...     for h in range(b):
...         for i in range(n):
...             for j in range(m):
...                 out[h, i, j] = 0.0
...                 for l in range(64):
...                     out[h, i, j] += q[h, i, l] * k[h, j, l]''').blocks[0]
>>> roles = matrix_roles(block)
>>> [a.name for a in roles.outer], roles.m.name, roles.n.name, str(roles.a)
(['h'], 'i', 'j', 'q[h, i, l]')
>>> is_short_row(384, "f32"), is_short_row(4096, "f32"), is_short_row(roles.n.extent, "f32")
(True, False, False)
"""

from __future__ import annotations

from dataclasses import dataclass

from minirelax.ir.dim import Dim, names
from minirelax.ir.loop import Axis, Block, scalar_dims
from minirelax.ir.scalar import Apply, Scalar
from minirelax.ir.types import itemsize

ROW_BYTES = 8192  # a finished row, another that is made of it, and one to write to stay in the nearest cache


@dataclass(frozen=True)
class MatrixRoles:
    """The last axis is `n`, on which only B depends, `m` the last one on which only A depends; all others are outer loops."""

    outer: tuple[Axis, ...]
    m: Axis
    n: Axis
    a: Scalar
    b: Scalar


def matrix_roles(block: Block) -> MatrixRoles | None:
    """The roles in a sum of products of f32 or f64; None for any other block, or if it has no m or no n."""
    if not is_product_sum(block) or not block.axes:
        return None
    n, (x, y) = block.axes[-1], block.value.args
    if _depends_on(x, n) == _depends_on(y, n):
        return None
    a, b = (x, y) if _depends_on(y, n) else (y, x)
    rows = [axis for axis in block.axes[:-1] if _depends_on(a, axis) and not _depends_on(b, axis)]
    if not rows:
        return None
    return MatrixRoles(tuple(axis for axis in block.axes[:-1] if axis != rows[-1]), rows[-1], n, a, b)


def is_product_sum(block: Block) -> bool:
    """Is it a sum of products of f32 or f64, both factors of which depend on what is summed over?"""
    match block.value:
        case Apply(function="multiply", dtype="f32" | "f64", args=(a, b)) if block.reduction == "sum":
            return all(any(_depends_on(x, o) for o in block.over) for x in (a, b))
    return False


def is_short_row(extent: Dim, dtype: str) -> bool:
    """May a tile have rows of this many elements whole?  Only a number can be known to be small."""
    return isinstance(extent, int) and extent * itemsize(dtype) <= ROW_BYTES


def _depends_on(value: Scalar, axis: Axis) -> bool:
    return any(axis.name in names(d) for d in scalar_dims(value))

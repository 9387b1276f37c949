"""An assembly (a concatenation, an array with values around it, an array with a part written over) as one expression.

An assembly is lowered to blocks that each write a box of the buffer, later ones over earlier ones: plain copies, which is what
is fast where the result is stored.  Where it is not stored, since its reader takes it in, the reader asks for one element
at a time: it is that of the last box that has this place, ``b[j - n] if j >= n else a[j]``.

Why it is right: only the chosen side is evaluated, so a part is read at places that it has, and one without elements is never
read.  The conditions that are left out are those that hold anyway, there; the last side has none, so that every place is in
some box.  If that cannot be shown, there is no expression.

>>> from minirelax.ir.parse_loops import parse_kernel
>>> both = parse_kernel('''
... @kernel
... def both(a: f32[n], b: f32[m], out: f32[n + m], *, n, m):
...     for i in range(n):
...         out[i] = a[i]
...     for i in range(m):
...         out[n + i] = b[i]''')
>>> print(definition(both).value)
b[i - n] if i >= n else a[i]
"""

from __future__ import annotations

from minirelax.ir.bounds import Facts
from minirelax.ir.dim import Dim, Ranges, linear, names, symbol
from minirelax.ir.guards import facts, holds
from minirelax.ir.loop import Axis, Block, Kernel
from minirelax.ir.scalar import Scalar, substitute_axes
from minirelax.ir.tensor import SPATIAL_NAMES
from minirelax.ops.place import Inside, where_all


def definition(kernel: Kernel) -> Block | None:
    """The one block that writes what all blocks of an assembly write, or None if the kernel is not shown to be one."""
    if len(kernel.outputs) != 1 or kernel.local or any(b.reduction or b.buffer != kernel.outputs[0].name for b in kernel.blocks):
        return None
    shape, taken = kernel.outputs[0].type.shape, {*kernel.sizes, *kernel.buffers}
    free = (n for n in (*SPATIAL_NAMES, *(f"i{p}" for p in range(8, 99))) if n not in taken)
    named = tuple(Axis(n, d) for n, d in zip(free, shape, strict=False))
    indices = tuple(0 if a.extent == 1 else symbol(a.name) for a in named)
    axes = tuple(a for a in named if a.extent != 1)
    value = _chosen(list(kernel.blocks), shape, indices, {a.name: (0, a.extent - 1) for a in axes})
    return None if value is None else Block(axes, kernel.outputs[0].name, indices, value)


def _chosen(blocks: list[Block], shape: tuple[Dim, ...], indices: tuple[Dim, ...], ranges: Ranges) -> Scalar | None:
    """The element at `indices`: of the last block that writes it."""
    known: Facts = ()
    found: list[tuple[list[Scalar], Scalar]] = []
    while blocks:
        block = blocks.pop()
        box = _Box.of(block, shape, indices)
        if box is None:
            return None
        value = substitute_axes(block.value, box.at, ranges)
        conditions = [c for c in box.conditions if holds(c, ranges, known) is not True]
        if not conditions:
            for condition, chosen in reversed(found):
                value = where_all(condition, chosen, value)
            return value
        if len(conditions) == 1:
            known = (*known, *facts(conditions[0], False))
        found.append((conditions, value))
    return None


class _Box:
    """Where a block writes: the conditions for a place to be there, and its own axes at that place."""

    def __init__(self, at: dict[str, Dim], conditions: list[Scalar]):
        self.at, self.conditions = at, conditions

    @staticmethod
    def of(block: Block, shape: tuple[Dim, ...], indices: tuple[Dim, ...]) -> _Box | None:
        """The box, or None if the block does not write each of its points at a place of its own, along the buffer's axes."""
        extents = {a.name: a.extent for a in block.axes}
        box = _Box({}, [])
        for stored, index, extent in zip(block.indices, indices, shape, strict=True):
            found = None if isinstance(stored, Scalar) else linear(stored, tuple(extents))
            if found is None or len(found[0]) > 1 or names(found[1]) & extents.keys():
                return None
            steps, start = found
            if not steps:
                inside = Inside(index, start, 1, 1, extent)
            else:
                (axis, step), = steps.items()
                if axis in box.at or not isinstance(step, int):
                    return None
                inside = Inside(index, start, step, extents[axis], extent)
                box.at[axis] = inside.own()
            box.conditions += inside.conditions()
        return box if box.at.keys() == extents.keys() else None

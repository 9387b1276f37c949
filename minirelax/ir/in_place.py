"""Which inputs of a kernel may be the memory that an output is written to.

An element may be overwritten once nobody reads it any more.  That is shown here for every order in which the schedule can run
the kernel: blocks one after the other, or, along axes that all of them begin with, row by row and spread over threads, or in one
loop, each step after the one before it.

>>> from minirelax.ir.parse_loops import parse_kernel
>>> kernel = parse_kernel('''
... @kernel
... def centre(x: f32[n, m], y: f32[n, m], out: f32[n, m], *, n, m):
...     t0 = local(f32[n])
...     for i in range(n):
...         t0[i] = 0.0
...         for k in range(m):
...             t0[i] += x[i, k]
...     for i in range(n):
...         for j in range(m):
...             out[i, j] = x[i, j] - t0[i] / m * y[i, m - 1 - j]''')
>>> replaceable(kernel)
(('x', 'out'),)
"""
from __future__ import annotations

import functools

from minirelax.ir.lattice import bare_name
from minirelax.ir.loop import Axis, Block, Kernel
from minirelax.ir.scalar import Load, Scalar
from minirelax.ir.types import Tensor


@functools.lru_cache(1024)
def replaceable(kernel: Kernel) -> tuple[tuple[str, str], ...]:
    """All pairs (input, output) of which the output may be written over the input."""
    return tuple((x.name, out.name) for x in kernel.inputs for out in kernel.outputs if is_replaceable(kernel, x.name, out.name))


def is_replaceable(kernel: Kernel, x: str, out: str) -> bool:
    """May `out` be the memory of `x`?  Both have one type.

    One block writes `out`, each element once, and reads `x` at that element only; no block after it reads `x`.  Blocks before it
    read `x` at its element, too, or run along a row of it by reduction axes of their own, in the same order.
    """
    types = kernel.buffers
    writers = [n for n, b in enumerate(kernel.blocks) if b.buffer == out]
    if len(writers) != 1 or types[x] != types[out]:
        return False
    last, writer = writers[0], kernel.blocks[writers[0]]
    if not _writes_each_once(writer, types[out]):
        return False
    shared = _common(kernel)
    for n, block in enumerate(kernel.blocks):
        reads = [read for read in block.loads if read.buffer == x]
        if n > last and reads:
            return False
        if not all(_follows(read, block, writer, shared if n < last else writer.axes) for read in reads):
            return False
    return True


def _writes_each_once(block: Block, type_: Tensor) -> bool:
    """Is each index an axis of the block, each axis once, and 0 where there is one element only?"""
    axes = [i for i, size in zip(block.indices, type_.shape, strict=True) if size != 1 or i != 0]
    return not block.over and sorted(map(str, axes)) == sorted(a.name for a in block.axes)


def _common(kernel: Kernel) -> tuple[Axis, ...]:
    """The axes that all blocks begin with."""
    prefix = kernel.blocks[0].axes
    for b in kernel.blocks:
        same = [mine == theirs for mine, theirs in zip(prefix, b.axes, strict=False)]
        prefix = prefix[: same.index(False) if False in same else len(same)]
    return prefix


def _follows(read: Load, block: Block, writer: Block, shared: tuple[Axis, ...]) -> bool:
    """Is this read at the writer's own element along the `shared` axes, and along the others by one axis of its block each?"""
    fixed = {a.name for a in shared}
    own = {a.name for a in (*block.axes, *block.over)} - fixed
    for here, there in zip(read.indices, writer.indices, strict=True):
        if isinstance(here, Scalar):
            return False
        if there == 0 or bare_name(there) in fixed:
            if here != there:
                return False
        elif (name := bare_name(here)) in own:
            own.remove(name)
        else:
            return False
    return True

"""Run neighbouring steps of a row in one loop: what one of them computes is used while it is still in a register.

A step joins the loop before it if it runs over an axis of the same extent, needs no reduction that this loop has not finished,
and reads what the loop writes at its own position only.  In softmax, ``exp`` and the sum of its results become one loop; in a
norm, the subtraction of the mean and the sum of squares.  A local buffer that nobody reads outside its loop is not stored at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from minirelax.ir.dim import symbol
from minirelax.ir.loop import Axis, Block
from minirelax.ir.scalar import Index, Scalar, substitute_axes, substitute_index


@dataclass(frozen=True)
class Step:
    """One block inside a row: its own spatial axes, its reduction axes, and which of them is the vectorised innermost."""

    block: Block
    inner: tuple[Axis, ...]
    over: tuple[Axis, ...]
    over_is_innermost: bool


@dataclass(frozen=True)
class Loop:
    """Steps that share their one loop (`axis`), or a single step with loops of its own (`axis` is None)."""

    axis: Axis | None
    steps: tuple[Step, ...]


def share_loops(steps: Sequence[Step], chunk: Axis | None) -> tuple[Loop, ...]:
    """Group steps into loops, in order; see the module."""
    loops: list[Loop] = []
    for step in steps:
        axis = _own_axis(step, chunk)
        last = loops[-1] if loops else None
        if axis is not None and last is not None and last.axis is not None and last.axis.extent == axis.extent:
            renamed = _rename(step, axis, last.axis)
            if _fits(renamed, last):
                loops[-1] = Loop(last.axis, (*last.steps, renamed))
                continue
        loops.append(Loop(axis, (step,)))
    return tuple(loops)


def unstored(loops: Iterable[Loop], local: set[str]) -> frozenset[str]:
    """Local buffers whose every reader shares the loop that computes them."""
    loops = tuple(loops)
    found = set()
    for name in local:
        writers = [loop for loop in loops if any(s.block.buffer == name for s in loop.steps)]
        readers = [loop for loop in loops if any(read.buffer == name for s in loop.steps for read in s.block.loads)]
        elementwise = all(not s.block.over for loop in writers for s in loop.steps if s.block.buffer == name)
        if len(writers) == 1 and elementwise and all(r is writers[0] and r.axis is not None for r in readers):
            found.add(name)
    return frozenset(found)


def _own_axis(step: Step, chunk: Axis | None) -> Axis | None:
    """The one axis that the step loops over: elementwise along it, or reducing along it into one value."""
    if chunk is not None:
        return chunk if not step.inner and not step.over else None
    if not step.over and len(step.inner) == 1:
        return step.inner[0]
    if not step.inner and len(step.over) == 1:
        return step.over[0]
    return None


def _rename(step: Step, old: Axis, new: Axis) -> Step:
    if old.name == new.name:
        return step
    values: dict[str, Index] = {old.name: symbol(new.name)}

    def axes(group: tuple[Axis, ...]) -> tuple[Axis, ...]:
        return tuple(Axis(new.name, a.extent) if a.name == old.name else a for a in group)

    block = replace(
        step.block,
        axes=axes(step.block.axes),
        over=axes(step.block.over),
        value=substitute_axes(step.block.value, values),
        indices=tuple(substitute_index(i, values) for i in step.block.indices),
    )
    return Step(block, axes(step.inner), axes(step.over), step.over_is_innermost)


def _fits(step: Step, loop: Loop) -> bool:
    """May `step` run in the same iteration as the loop's steps?"""
    written = {s.block.buffer: s for s in loop.steps}
    read_before = {read.buffer for s in loop.steps for read in s.block.loads}
    if step.block.buffer in {*written, *read_before} or any(isinstance(i, Scalar) for i in step.block.indices):
        return False
    for read in step.block.loads:
        writer = written.get(read.buffer)
        if writer is not None and (writer.over or read.indices != writer.block.indices):
            return False
    return True

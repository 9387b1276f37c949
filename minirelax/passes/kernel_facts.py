"""What grouping needs to know about one kernel: the extents it covers, and how it reads each of its inputs.

>>> from minirelax.ir.graph import Var
>>> from minirelax.ir.tensor import lower_to_kernel
>>> from minirelax.ir.types import f32
>>> x = Var("x", f32["n", "m"])
>>> total = lower_to_kernel("total", lambda k, x: k.reduce("sum", (x.shape[0],), (x.shape[1],), x.at, "f32"), (x,))
>>> facts = facts_of(total)
>>> facts.role, facts.rows, facts.reads["x"].aligned
('rows', (n,), 1)
"""

from __future__ import annotations

from dataclasses import dataclass

from minirelax.ir.dim import Atom, Dim, DimExpr, floordiv, linear, product, rebuild, symbol
from minirelax.ir.graph import Var
from minirelax.ir.loop import Block, Kernel, scalar_dims
from minirelax.ir.scalar import Load, Scalar, loads
from minirelax.ir.types import Tensor
from minirelax.passes.annotate_patterns import pattern_of
from minirelax.passes.assemblies import definition
from minirelax.passes.inline import compose, cost, is_definition, is_light, is_moved, moving, repeats


@dataclass(frozen=True)
class Read:
    """How a kernel reads one of its inputs, over all places where it does."""

    identity: bool  # only at the index being written, by blocks without reduction
    aligned: int  # how many leading axes, of every block that reads it, are the read's leading indices
    once: bool  # at one place, and each element at most once
    places: tuple[tuple[int, Load], ...]  # (block number, load)


@dataclass(frozen=True)
class Facts:
    """A kernel as a candidate for a group.

    `role`: pointwise (one block, no reduction; one for each of several outputs, over the same axes), rows (all blocks share
    leading axes of the extents `rows`, a reduction's axes being just those), contraction (one, then pointwise blocks over the
    same axes), assembly (blocks that each write a part of the output, as in a concatenation), or opaque.
    """

    kernel: Kernel
    role: str
    domain: tuple[Dim, ...]  # extents of the axes of the block that writes the output
    rows: tuple[Dim, ...]
    reads: dict[str, Read]
    cost: int
    light: bool  # no division, no transcendental function
    movement: bool  # moves (or converts) elements of its inputs, no more
    definition: Block | None  # the block that gives the element at any place: the only one, or that of an assembly
    flat_copy: bool  # the same elements in the same order: could be a view


def facts_of(kernel: Kernel) -> Facts:
    """The facts, read off the kernel's blocks."""
    last = kernel.blocks[-1]
    domain = _extents(last)
    role, rows = _role(kernel)
    single = len(kernel.blocks) == 1 and role == "pointwise"
    element = last if single else definition(kernel) if role == "assembly" else None
    return Facts(
        kernel,
        role,
        domain,
        rows,
        {v.name: _read(kernel, v) for v in kernel.inputs},
        sum(cost(b.value) for b in kernel.blocks),
        all(is_light(b.value) for b in kernel.blocks),
        element is not None and is_moved(element.value) and bool(loads(element.value)),
        element,
        single and is_flat_copy(kernel),
    )


def is_flat_copy(kernel: Kernel) -> bool:
    """Is the output just the single input's elements in the same row-major order, so that a view does?"""
    if len(kernel.blocks) != 1 or len(kernel.inputs) != 1 or len(kernel.outputs) != 1:
        return False
    block, x, out = kernel.blocks[0], kernel.inputs[0].type, kernel.outputs[0].type
    read = block.value
    if not isinstance(read, Load) or read.dtype != out.dtype or not is_definition(block):
        return False
    if product(x.shape) != product(out.shape) or any(isinstance(i, Scalar) for i in read.indices):
        return False
    there, here = _expanded(_flat(read.indices, x.shape)), _expanded(_flat(block.indices, out.shape))
    return there == here or rebuild(there, symbol, block.ranges) == here


def changes_only_unit_axes(kernel: Kernel) -> bool:
    """Does a flat copy only insert or drop axes of one element?"""
    block = kernel.blocks[0]
    return moving(block.value.indices) == moving(block.indices)


def is_affine_prologue(consumer: Facts, place: tuple[int, Load], producer: Block) -> bool:
    """Would reading the producer's value in place keep every index linear in the consumer's axes?

    The producer must be in the consumer's terms of sizes, and only move elements.
    """
    number, read = place
    block = consumer.kernel.blocks[number]
    probe = Block(block.axes, block.buffer, block.indices, read, block.over, block.reduction)
    axes = tuple(a.name for a in (*block.axes, *block.over))
    composed = compose(probe, Block(producer.axes, read.buffer, producer.indices, producer.value))
    gathered = any(isinstance(i, Scalar) for s in loads(composed.value) for i in s.indices)
    return not gathered and all(linear(d, axes) is not None for d in scalar_dims(composed.value))


def _role(kernel: Kernel) -> tuple[str, tuple[Dim, ...]]:
    pattern = kernel.pattern or pattern_of(kernel)
    last, several = kernel.blocks[-1], len(kernel.outputs) > 1
    if last.buffer not in {v.name for v in kernel.outputs} or several and pattern in ("opaque", "contraction"):
        return "opaque", ()
    reductions = [b for b in kernel.blocks if b.reduction is not None]
    if pattern == "opaque":
        return ("opaque" if reductions else "assembly"), ()
    if pattern == "contraction":
        fits = len(reductions) == 1 and all(_extents(b) == _extents(last) for b in kernel.blocks)
        return ("contraction" if fits and _local_reads_aligned(kernel, len(last.axes)) else "opaque"), ()
    if not reductions:
        alike = several and all(_extents(b) == _extents(last) for b in kernel.blocks)
        fits = len(kernel.blocks) == 1 or alike and _local_reads_aligned(kernel, len(last.axes))
        return ("pointwise" if fits else "opaque"), ()
    rows = _extents(reductions[0])
    fits = all(_extents(b) == rows for b in reductions) and all(_extents(b)[: len(rows)] == rows for b in kernel.blocks)
    return ("rows", rows) if fits and _local_reads_aligned(kernel, len(rows)) else ("opaque", ())


def _local_reads_aligned(kernel: Kernel, count: int) -> bool:
    local = {v.name for v in (*kernel.local, *kernel.outputs)}
    return all(_aligned(b, s, kernel.buffers[s.buffer]) >= count for b in kernel.blocks for s in b.loads if s.buffer in local)


def _read(kernel: Kernel, var: Var) -> Read:
    places = tuple((n, s) for n, b in enumerate(kernel.blocks) for s in b.loads if s.buffer == var.name)
    blocks = kernel.blocks
    extents = tuple(d for d in var.type.shape if d != 1)
    identity = all(
        blocks[n].reduction is None
        and _extents(blocks[n]) == extents
        and _aligned(blocks[n], s, var.type) == len(extents)
        and moving(s.indices) == moving(blocks[n].indices)
        for n, s in places
    )
    return Read(
        identity,
        min((_aligned(blocks[n], s, var.type) for n, s in places), default=0),
        len(places) == 1 and not repeats(blocks[places[0][0]], places[0][1]),
        places,
    )


def _aligned(block: Block, read: Load, type_: Tensor) -> int:
    count = 0
    for axis, index in zip(block.axes, (i for i, d in zip(read.indices, type_.shape, strict=True) if d != 1), strict=False):
        if isinstance(index, Scalar) or index != symbol(axis.name):
            break
        count += 1
    return count


def _extents(block: Block) -> tuple[Dim, ...]:
    return tuple(a.extent for a in block.axes)


def _flat(indices: tuple[Dim, ...], shape: tuple[Dim, ...]) -> Dim:
    total: Dim = 0
    for i, extent in zip(indices, shape, strict=True):
        total = total * extent + i
    return total


def _expanded(d: Dim) -> Dim:
    """`d` with ``x % q`` written as ``x - x//q*q``, and ``x//a//b`` as ``x//(a*b)`` (sizes are positive where elements exist)."""
    if isinstance(d, int):
        return d
    total: Dim = 0
    for mono, k in d.terms:
        term: Dim = k
        for f in mono:
            if isinstance(f, str):
                term = term * symbol(f)
            elif f.op == "%":
                x, q = _expanded(f.left), _expanded(f.right)
                term = term * (x - _divided(x, q) * q)
            elif f.op == "//":
                term = term * _divided(_expanded(f.left), _expanded(f.right))
            else:
                term = term * DimExpr((((f,), 1),))
        total = total + term
    return total


def _divided(x: Dim, q: Dim) -> Dim:
    match x:
        case DimExpr(terms=((((Atom(op="//", left=inner, right=a),), 1),))):
            return floordiv(inner, a * q)
    return floordiv(x, q)

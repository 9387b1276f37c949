"""The loop level: a kernel is a list of blocks over named axes, each with one typed scalar expression and one write.

A block stands for a perfect loop nest: for every point of its spatial axes it stores ``value``, or, with reduction
axes, combines ``value`` over them starting from the reduction's neutral element.  The blocks of a kernel run one after
the other; local buffers carry values between them.  That is the *meaning*; loops are shared, tiled and spread over threads
by `minirelax.schedule`.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from minirelax.ir.dim import Dim, Ranges, names
from minirelax.ir.graph import Var
from minirelax.ir.scalar import Index, Literal, Load, Scalar, literal, loads, walk
from minirelax.ir.types import Tensor, symbols

REDUCTIONS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "any": "logical_or", "all": "logical_and"}
KINDS = ("elementwise", "broadcast", "injective", "reduce", "contraction", "opaque")     # Relax's kinds, in the order of `max`


@dataclass(frozen=True)
class Axis:
    """A loop: its index's name and how many times it runs (from 0)."""

    name: str
    extent: Dim


@dataclass(frozen=True)
class Block:
    """``buffer[indices] = value`` for all `axes`; with `over`, `value` combined by `reduction` over those axes."""

    axes: tuple[Axis, ...]
    buffer: str
    indices: tuple[Index, ...]
    value: Scalar
    over: tuple[Axis, ...] = ()
    reduction: str | None = None

    @property
    def ranges(self) -> Ranges:
        """The smallest and largest value of each axis."""
        return {a.name: (0, a.extent - 1) for a in (*self.axes, *self.over)}

    @property
    def loads(self) -> tuple[Load, ...]:
        """The loads of the value, and of data-dependent store indices."""
        return loads(*(i for i in self.indices if isinstance(i, Scalar)), self.value)


@dataclass(frozen=True)
class Kernel:
    """A loop-level function: reads `inputs`, writes `outputs` (destination-passing), sizes are explicit parameters.

    `in_place` are pairs (input, output) that are one memory: the output is written over the input.
    """

    name: str
    inputs: tuple[Var, ...]
    outputs: tuple[Var, ...]
    sizes: tuple[str, ...]
    local: tuple[Var, ...]
    blocks: tuple[Block, ...]
    pattern: str | None = None                 # one of KINDS, put there by annotate_patterns
    in_place: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        from minirelax.ir.printer import print_kernel
        return print_kernel(self)

    def __rich__(self):
        from minirelax.explore import highlighted
        return highlighted(self)

    @property
    def buffers(self) -> dict[str, Tensor]:
        """The type of every buffer, by name."""
        return {v.name: v.type for v in (*self.inputs, *self.local, *self.outputs)}

    @property
    def types(self) -> tuple[Tensor, ...]:
        """The types of the outputs."""
        return tuple(v.type for v in self.outputs)


def neutral(reduction: str, dtype: str) -> Literal:
    """What a reduction starts from: ``sum`` 0, ``prod`` 1, ``max`` the smallest value of the dtype, ..."""
    import numpy as np

    from minirelax.ir.types import NUMPY_DTYPES
    numpy_dtype = NUMPY_DTYPES[dtype]
    if reduction in ("sum", "any"):
        return literal(0, dtype)
    if reduction in ("prod", "all"):
        return literal(1, dtype)
    if numpy_dtype.kind == "f":
        return literal(float("-inf") if reduction == "max" else float("inf"), dtype)
    if numpy_dtype.kind == "b":
        return literal(reduction == "min", dtype)
    bounds = np.iinfo(numpy_dtype)
    return literal(bounds.min if reduction == "max" else bounds.max, dtype)


def used_sizes(kernel: Kernel) -> tuple[str, ...]:
    """The size names that a kernel's buffers and blocks mention, in order of appearance."""
    found: dict[str, None] = {}
    for v in (*kernel.inputs, *kernel.outputs, *kernel.local):
        found.update(dict.fromkeys(_in_order(v.type)))
    for b in kernel.blocks:
        axis_names = {a.name for a in (*b.axes, *b.over)}
        for a in (*b.axes, *b.over):
            found.update(dict.fromkeys(sorted(names(a.extent))))
        for d in block_dims(b):
            found.update(dict.fromkeys(sorted(names(d) - axis_names)))
    return tuple(found)


def block_dims(block: Block) -> Iterator[Dim]:
    """Every index polynomial of a block."""
    yield from (i for i in block.indices if not isinstance(i, Scalar))
    yield from scalar_dims(*(i for i in block.indices if isinstance(i, Scalar)), block.value)


def scalar_dims(*roots: Scalar) -> Iterator[Dim]:
    """Every index polynomial inside scalars."""
    from minirelax.ir.scalar import SizeValue
    for s in walk(*roots):
        match s:
            case Load(indices=indices):
                yield from (i for i in indices if not isinstance(i, Scalar))
            case SizeValue(dim=d):
                yield d


def with_sizes(kernel: Kernel) -> Kernel:
    """`kernel` with `sizes` set to what it uses."""
    return replace(kernel, sizes=used_sizes(kernel))


def _in_order(type_: Tensor) -> list[str]:
    return [n for d in type_.shape for n in sorted(names(d))] if type_.shape is not None else sorted(symbols(type_))

"""An evaluator of kernels that reads their structure, not their text: what the blocks mean, by the slowest possible loops.

Strict where compiled code would be undefined: a load or store outside its buffer is an AssertionError, also one whose
value a `where` then drops, and so is reading an element that nothing has written.  Of ``a if c else b``, one is evaluated.
"""
from __future__ import annotations

import itertools
import math

import numpy as np

from minirelax.ir.dim import value
from minirelax.ir.loop import REDUCTIONS, Block, Kernel, neutral
from minirelax.ir.scalar import LAZY, Apply, Index, Literal, Load, Scalar, SizeValue, certain, walk
from minirelax.ir.types import NUMPY_DTYPES


def evaluate(kernel: Kernel, arrays, sizes: dict[str, int]) -> tuple[np.ndarray, ...]:
    """The outputs of `kernel` on `arrays`, with every named size known."""
    assert set(kernel.sizes) <= set(sizes)
    buffers = {v.name: np.asarray(a) for v, a in zip(kernel.inputs, arrays, strict=True)}
    written = {name: np.ones(a.shape, np.bool_) for name, a in buffers.items()}
    for v in (*kernel.local, *kernel.outputs):
        shape = tuple(value(d, sizes) for d in v.type.shape)
        buffers[v.name] = np.zeros(shape, v.type.numpy_dtype)
        written[v.name] = np.zeros(shape, np.bool_)
    with np.errstate(all="ignore"):
        for block in kernel.blocks:
            run_block(block, buffers, written, sizes)
    assert all(written[v.name].all() for v in kernel.outputs)
    return tuple(buffers[v.name] for v in kernel.outputs)


def run_block(block: Block, buffers, written, sizes) -> None:
    for point in points(block.axes, sizes):
        place = tuple(as_number(i, buffers, written, point) for i in block.indices)
        check_inside(place, buffers[block.buffer], block.buffer)
        buffers[block.buffer][place] = block_value(block, buffers, written, point)
        written[block.buffer][place] = True


def block_value(block: Block, buffers, written, point):
    if block.reduction is None:
        return scalar_value(block.value, buffers, written, point)
    start = neutral(block.reduction, block.value.dtype)
    total, combine = NUMPY_DTYPES[start.dtype].type(start.value), getattr(np, REDUCTIONS[block.reduction])
    for inner in points(block.over, point):
        total = combine(total, scalar_value(block.value, buffers, written, inner))
    return total


def points(axes, sizes):
    """Every assignment of numbers to `axes`, beside `sizes`."""
    for at in itertools.product(*(range(value(a.extent, sizes)) for a in axes)):
        yield {**sizes, **dict(zip((a.name for a in axes), at, strict=True))}


def scalar_value(root: Scalar, buffers, written, point):
    done = {}
    for s in walk(root, inside=certain):
        match s:
            case Literal(dtype=dtype, value=constant):
                done[id(s)] = NUMPY_DTYPES[dtype].type(constant)
            case SizeValue(dim=d):
                done[id(s)] = np.int64(value(d, point))
            case Load(buffer=buffer, indices=indices):
                place = tuple(int(done[id(i)]) if isinstance(i, Scalar) else value(i, point) for i in indices)
                check_inside(place, buffers[buffer], buffer)
                assert written[buffer][place], f"{buffer}{list(place)} is read before it is written"
                done[id(s)] = buffers[buffer][place]
            case Apply(function=function, args=(condition, yes, no)) if function == LAZY:
                done[id(s)] = scalar_value(yes if done[id(condition)] else no, buffers, written, point)
            case Apply(function=function, args=args):
                done[id(s)] = call(function, s.dtype, *(done[id(a)] for a in args))
        assert done[id(s)].dtype == NUMPY_DTYPES[s.dtype], f"{s.function if isinstance(s, Apply) else s} is not {s.dtype}"
    return done[id(root)]


def as_number(index: Index, buffers, written, point) -> int:
    return int(scalar_value(index, buffers, written, point)) if isinstance(index, Scalar) else value(index, point)


def call(function: str, dtype: str, *args):
    """A function of kernels on NumPy scalars."""
    match function:
        case "cast":
            return args[0].astype(NUMPY_DTYPES[dtype])
        case "complex":
            return np.array(args).view(NUMPY_DTYPES[dtype])[0]
        case "real" | "imag":
            return getattr(args[0], function)
        case "where":
            return args[1] if args[0] else args[2]
        case "erf":
            return NUMPY_DTYPES[dtype].type(math.erf(args[0]))
        case "check_index":
            if not 0 <= args[0] < args[1]:
                raise IndexError(f"index {args[0]} is out of bounds for size {args[1]}")
            return args[0]
    return getattr(np, function)(*args)


def check_inside(place: tuple[int, ...], array: np.ndarray, name: str) -> None:
    assert len(place) == array.ndim and all(0 <= i < d for i, d in zip(place, array.shape, strict=True)), \
        f"{name}{list(place)} is outside shape {array.shape}"

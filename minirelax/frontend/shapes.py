"""Shapes whose numbers only the run computes: an integer array as a tuple of sizes, to reshape by and to make arrays with.

A shape that is known while tracing needs nothing of this: ``x.shape`` is a tuple of sizes, which can be computed with, passed on,
stored and returned like any tuple of integers.
"""

from __future__ import annotations

import numpy as np

from minirelax.errors import DTypeError, ShapeError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.mismatch import checked
from minirelax.frontend.operands import as_dtype, asarray
from minirelax.frontend.size import Size
from minirelax.ir.boundary import Given, Known
from minirelax.ir.graph import MatchCast
from minirelax.ir.types import Shape
from minirelax.ops.rules import INTEGERS
from minirelax.ops.shape import TensorToShape


def tensor_to_shape(x: TracedArray | np.ndarray | tuple | list) -> tuple[int | Size, ...]:
    """The numbers of a vector as a tuple of sizes: ``x.reshape(tensor_to_shape(lengths))``.

    x: integers along one axis; how many, a compiled program is made for.  A traced array gives sizes that only the run knows: no
        Python code can ask about them, and that they fit is checked while running.  Raises ShapeError then, if one is negative.
    """
    if not isinstance(x, TracedArray) and not any(isinstance(n, Size | TracedArray) for n in x):
        checked((Given("tensor_to_shape", "the shape", Shape(), tuple(np.asarray(x).tolist())),), Known())
        return tuple(np.asarray(x).tolist())
    x = asarray(x)
    b = x.builder
    if x.type.dtype not in INTEGERS:
        raise DTypeError(f"tensor_to_shape: sizes are integers, not {x.dtype}", "convert them: x.astype(np.int64)")
    if x.ndim != 1:
        raise ShapeError(f"tensor_to_shape: {x.type} is no vector", "take the numbers along one axis: x.reshape(-1)")
    count = len(x)                                                 # how many axes there are is a fact about the call
    s = b.emit(TensorToShape(as_dtype(x, "i64").atom))
    sizes = tuple(b.inner_size() for _ in range(count))
    b.facts.entries.update(map(str, sizes))
    b.emit(MatchCast(s, Shape(sizes)))
    return tuple(map(b.size, sizes))

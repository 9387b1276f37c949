"""`match_cast`: a fact about an array's shape, or about a shape, that the user states and the compiled program checks."""

from __future__ import annotations

import numpy as np

from minirelax.errors import DTypeError, ShapeError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder
from minirelax.frontend.mismatch import checked
from minirelax.frontend.operands import asarray
from minirelax.frontend.size import Size
from minirelax.ir.boundary import Given, Known
from minirelax.ir.dim import Dim, DimExpr, names, substitute
from minirelax.ir.graph import MakeShape, MatchCast
from minirelax.ir.types import Shape, Tensor, dtype_name


def match_cast(x: TracedArray | np.ndarray | tuple, type: Tensor | Shape | tuple) -> TracedArray | np.ndarray | tuple:
    """`x`, whose type is from now on `type` (``f32["m", 784]``), or whose shape is the tuple `type` of sizes.

    Names that are new are bound to the sizes found while running; everything else is checked, and ShapeError is raised
    where it does not hold.  A shape, a tuple of sizes, is cast to ``Shape(["m", 4])``: the result is a tuple of these sizes.
    """
    if isinstance(type, Shape):
        return _shape_cast(tuple(x), type)
    shape = type.shape if isinstance(type, Tensor) else type
    if not isinstance(x, TracedArray) and not any(isinstance(d, Size) for d in shape or ()):
        return _checked(np.asarray(x), type if isinstance(type, Tensor) else Tensor(None, tuple(type)))
    x = asarray(x)
    b = x.builder
    if isinstance(type, Tensor) and type.dtype not in (None, x.type.dtype):
        raise DTypeError(f"match_cast: {x.type} is not {type}", "convert it first: x.astype(...)")
    if shape is None or len(shape) != x.ndim:
        raise ShapeError(f"match_cast: {x.type} has {x.ndim} axes, not those of {type}")
    dims = tuple(_size(b, d, old) for d, old in zip(shape, x.dims, strict=True))
    return x.derived(b.emit(MatchCast(x.atom, Tensor(x.type.dtype, dims))))


def _shape_cast(s: tuple, type_: Shape) -> tuple[int | Size, ...]:
    b = next((n.builder for n in s if isinstance(n, Size)), None)
    if b is None:
        checked((Given("match_cast", "the shape", type_, s),), Known())
        return s
    if type_.ndim not in (None, len(s)):
        raise ShapeError(f"match_cast: a shape with {len(s)} entries is not {type_}")
    old = b.dims(s)
    if type_.values is None:
        return s
    dims = tuple(map(_size, [b] * len(s), type_.values, old))
    if dims != old:
        b.emit(MatchCast(b.emit(MakeShape(old)), Shape(dims)))
    return tuple(map(b.size, dims))


def _size(b: Builder, d: object, old: Dim) -> Dim:
    """A size of the type: the user's letters stand for our sizes; a new letter is a new size."""
    if d is None:
        return old
    if isinstance(d, Size):
        return b.facts.resolve(d.dim)
    if not isinstance(d, DimExpr):
        return int(d)
    for name in names(d):
        if name not in b.user_sizes:
            free = name not in b.facts.taken and name not in b.facts.hints
            b.user_sizes[name] = b.inner_size(name if free else None)
            b.facts.declared |= names(b.user_sizes[name])
    return b.facts.resolve(substitute(d, b.user_sizes))


def _checked(x: np.ndarray, type_: Tensor) -> np.ndarray:
    """On a real array: the check alone."""
    checked((Given("match_cast", "the array", Tensor(type_.dtype or dtype_name(x.dtype), type_.shape), x),), Known())
    return x

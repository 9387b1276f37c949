"""`match_cast`: a fact about an array's shape that the user states and the compiled program checks."""

from __future__ import annotations

import numpy as np

from minirelax.errors import DTypeError, ShapeError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder
from minirelax.frontend.mismatch import explain_mismatch, sizes_of
from minirelax.frontend.operands import asarray
from minirelax.frontend.size import Size
from minirelax.ir.dim import Dim, DimExpr, names, substitute
from minirelax.ir.graph import Const, Function, MatchCast, Var
from minirelax.ir.types import NUMPY_DTYPES, Tensor, dtype_name


def match_cast(x: TracedArray | np.ndarray, type: Tensor | tuple) -> TracedArray | np.ndarray:
    """`x`, whose type is from now on `type` (``f32["m", 784]``), or whose shape is the tuple `type` of sizes.

    Names that are new are bound to the sizes found while running; everything else is checked, and ShapeError is raised
    where it does not hold.
    """
    if not isinstance(x, TracedArray):
        return _checked(np.asarray(x), type)
    x, b = asarray(x), x.builder
    shape = type.shape if isinstance(type, Tensor) else type
    if isinstance(type, Tensor) and type.dtype != x.type.dtype:
        raise DTypeError(f"match_cast: {x.type} is not {type}", "convert it first: x.astype(...)")
    if shape is None or len(shape) != x.ndim:
        raise ShapeError(f"match_cast: {x.type} has {x.ndim} axes, not those of {type}")
    dims = tuple(_size(b, d, old) for d, old in zip(shape, x.dims, strict=True))
    return x.derived(b.emit(MatchCast(x.atom, Tensor(x.type.dtype, dims))))


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
            b.user_sizes[name] = b.facts.new(None, name if free else None)
            b.facts.inner |= names(b.user_sizes[name])
            b.facts.declared |= names(b.user_sizes[name])
    return b.facts.resolve(substitute(d, b.user_sizes))


def _checked(x: np.ndarray, type_: Tensor | tuple) -> np.ndarray:
    """On a real array: the check alone."""
    if not isinstance(type_, Tensor):
        type_ = Tensor(dtype_name(x.dtype), tuple(type_))
    if x.dtype != NUMPY_DTYPES[type_.dtype]:
        raise DTypeError(f"match_cast: an array of dtype {x.dtype} is not {type_}")
    shape = (
        tuple(n if d is None else d for d, n in zip(type_.shape or x.shape, x.shape, strict=False))
        if type_.shape is not None
        else x.shape
    )
    probe = Function("match_cast", (Var("x", Tensor(type_.dtype, shape)),), (), Const(0, "i64"))
    if len(shape) != x.ndim or sizes_of(probe, (x,)) is None:
        raise explain_mismatch(probe, (x,))
    return x

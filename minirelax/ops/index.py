"""Reading and replacing parts: slices (sizes known by then), and elements chosen by arrays of indices.

>>> from minirelax.ir.dim import dim
>>> from minirelax.ir.types import f32, i64
>>> Slice(None, (0, dim("n - 1")), (8, dim("n")), (1, -1)).infer(f32[16, "n"])     # x[:8, ::-1]
f32[8, n]
>>> Take(None, None, axis=0).infer(f32[100, 32], i64["n"])
f32[n, 32]
"""
from __future__ import annotations

import numpy as np

from minirelax.ir.dim import Dim, is_nonnegative
from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.scalar import Index, Scalar, apply, as_index, cast, literal, size_value
from minirelax.ir.tensor import KernelBuilder, TensorExpr
from minirelax.ir.types import Tensor
from minirelax.ops.elementwise import sample
from minirelax.ops.place import place
from minirelax.ops.rules import (
    INTEGERS,
    broadcast,
    broadcast_at,
    broadcasts_to,
    check_axes,
    dtype_error,
    same_dtype,
    shape_error,
    tensors,
)


@op
class Slice(Op):
    """Along each axis, the `sizes` places ``starts, starts + steps, ...``.  Steps may be negative, not 0.

    The places must lie inside `x`: what is not plainly outside is taken on trust.
    """

    x: Atom
    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]

    def infer(self, x):
        tensors(self, (x,))
        check_places(self, (x,), x)
        return Tensor(x.dtype, self.sizes)

    def numpy(self, x):
        return np.asarray(x)[python_slices(self.starts, self.sizes, self.steps)]

    def lower(self, k: KernelBuilder, x: TensorExpr) -> TensorExpr:
        return TensorExpr(self.sizes, x.dtype, lambda *i: x.at(*(
            start + step * j for start, step, j in zip(self.starts, self.steps, i, strict=True))))

    @classmethod
    def examples(cls):
        return [(cls(None, *places), (sample("f32", *shape),)) for shape, places in PLACES]


@op
class SetSlice(Op):
    """A copy of `x` with the places of a slice replaced by `value`, which broadcasts to them; see `Slice`."""

    x: Atom
    value: Atom
    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]

    def infer(self, x, value):
        same_dtype(self, (x, value))
        check_places(self, (x, value), x)
        if not broadcasts_to(value.shape, self.sizes):
            raise shape_error(self, (x, value), f"the value cannot be shown to broadcast to {Tensor(x.dtype, self.sizes)}")
        return x

    def numpy(self, x, value):
        out = np.array(x)
        out[python_slices(self.starts, self.sizes, self.steps)] = value
        return out

    def lower(self, k: KernelBuilder, x: TensorExpr, value: TensorExpr) -> TensorExpr:
        part = TensorExpr(self.sizes, x.dtype, lambda *i: broadcast_at(value, i))
        return place(k, x, part, self.starts, self.steps)

    @classmethod
    def examples(cls):
        return [(cls(None, None, *places), (sample("f32", *shape), value)) for shape, places in PLACES
                for value in (sample("i64", *places[1]).astype(np.float32), np.array(42, np.float32))]


@op
class Take(Op):
    """Slices of `x` along `axis` chosen by an array of integers: ``out[a..., i..., b...] = x[a..., indices[i...], b...]``.

    `mode` for an index outside the axis: "raise" (negative ones count from the end), "wrap" around, or "clip" to the ends.
    """

    x: Atom
    indices: Atom
    axis: int
    mode: str = "raise"

    def infer(self, x, indices):
        types = (x, indices)
        tensors(self, types)
        check_indices(self, types, (indices,))
        check_axes(self, types, (self.axis,), len(x.shape))
        if self.mode not in ("raise", "wrap", "clip"):
            raise shape_error(self, types, f"there is no mode {self.mode!r}", 'use "raise", "wrap" or "clip"')
        return Tensor(x.dtype, (*x.shape[:self.axis], *indices.shape, *x.shape[self.axis + 1:]))

    def numpy(self, x, indices):
        return np.take(x, np.asarray(indices).astype(np.int64), axis=self.axis, mode=self.mode)

    def lower(self, k: KernelBuilder, x: TensorExpr, indices: TensorExpr) -> TensorExpr:
        type_, extent, rank = self.infer(x.type, indices.type), x.shape[self.axis], len(indices.shape)

        def at(*i):
            before, chosen, after = i[:self.axis], i[self.axis:self.axis + rank], i[self.axis + rank:]
            return x.at(*before, element_index(indices.at(*chosen), extent, self.mode), *after)
        return TensorExpr(type_.shape, type_.dtype, at)

    @classmethod
    def examples(cls):
        x, inside = sample("f32", 5, 3), np.array([[0, -1, 2], [-3, 1, 1]])
        return [(cls(None, None, axis), (x, indices)) for axis, indices in (
            (0, inside), (1, inside), (0, np.array(-2)), (1, np.array([2, 0], np.uint8)), (0, np.zeros((0,), np.int64)))] + [
            (cls(None, None, 0, mode), (x, np.array([7, -1, -11, 3]))) for mode in ("wrap", "clip")]


@op
class TakeAlongAxis(Op):
    """``out[..., i, ...] = x[..., indices[..., i, ...], ...]`` along `axis`; the other axes broadcast."""

    x: Atom
    indices: Atom
    axis: int

    def infer(self, x, indices):
        types = (x, indices)
        tensors(self, types)
        check_indices(self, types, (indices,))
        check_axes(self, types, (self.axis,), len(x.shape))
        if len(x.shape) != len(indices.shape):
            fact = f"has {len(x.shape)} axes, and indices with {len(indices.shape)}"
            raise shape_error(self, types, fact, "give both the same number of axes")
        others = Tensor(x.dtype, (*x.shape[:self.axis], 1, *x.shape[self.axis + 1:]))
        return Tensor(x.dtype, broadcast(self, (others, indices)))

    def numpy(self, x, indices):
        return np.take_along_axis(x, np.asarray(indices).astype(np.int64), axis=self.axis)

    def lower(self, k: KernelBuilder, x: TensorExpr, indices: TensorExpr) -> TensorExpr:
        type_, extent = self.infer(x.type, indices.type), x.shape[self.axis]

        def at(*i):
            chosen = element_index(broadcast_at(indices, i), extent, "raise")
            return x.at(*(chosen if a == self.axis else 0 if d == 1 else i[a] for a, d in enumerate(x.shape)))
        return TensorExpr(type_.shape, type_.dtype, at)

    @classmethod
    def examples(cls):
        return [(cls(None, None, axis), (sample("f32", *shape), indices)) for shape, axis, indices in (
            ((2, 3), 1, np.array([[0, -1], [2, 1]])), ((2, 3), 0, np.array([[1, 0, -2]])),
            ((1, 3), 1, np.array([[2, 0], [1, 1]])), ((5,), 0, np.array([4, -5])))]


@op
class Gather(Op):
    """Advanced indexing with integer arrays: axis ``axes[n]`` of `x` is indexed by ``indices[n]``; the index arrays broadcast.

    The axes that they span come at `position` among the axes of `x` that are left.

    >>> from minirelax.ir.types import f32, i64
    >>> Gather(None, (None, None), axes=(0, 2), position=0).infer(f32[3, 4, 5], i64["n"], i64["n"])    # x[i, :, j]
    f32[n, 4]
    """

    x: Atom
    indices: tuple[Atom, ...]
    axes: tuple[int, ...]
    position: int

    def infer(self, x, *indices):
        shape = gathered_shape(self, (x, *indices), x, indices)
        return Tensor(x.dtype, shape)

    def numpy(self, x, *indices):
        rank = np.broadcast(*indices).ndim
        found = axes_first(np.asarray(x), self.axes)[tuple(indices)]
        return np.moveaxis(found, range(rank), range(self.position, self.position + rank))

    def lower(self, k: KernelBuilder, x: TensorExpr, *indices: TensorExpr) -> TensorExpr:
        type_ = self.infer(x.type, *(i.type for i in indices))
        rank = len(type_.shape) - len(x.shape) + len(self.axes)

        def at(*i):
            chosen = i[self.position:self.position + rank]
            kept = iter(i[:self.position] + i[self.position + rank:])
            found = {a: element_index(broadcast_at(index, chosen), x.shape[a], "raise")
                     for a, index in zip(self.axes, indices, strict=True)}
            return x.at(*(found[a] if a in found else next(kept) for a in range(len(x.shape))))
        return TensorExpr(type_.shape, type_.dtype, at)

    @classmethod
    def examples(cls):
        return [(cls(None, (None,) * len(indices), axes, position), (sample("i64", *shape), *indices))
                for shape, axes, position, *indices in GATHERS]


def gathered_shape(op: Op, types, x: Tensor, indices) -> tuple[Dim, ...]:
    """The shape of ``x`` indexed along ``op.axes``, the span of the indices standing at ``op.position``."""
    tensors(op, types)
    check_indices(op, types, indices)
    check_axes(op, types, op.axes, len(x.shape))
    if len(indices) != len(op.axes) or not indices or not 0 <= op.position <= len(x.shape) - len(indices):
        fact = f"axes {op.axes} and position {op.position} do not fit {len(indices)} index arrays"
        raise shape_error(op, types, fact, "give one axis for each index array")
    kept = tuple(d for a, d in enumerate(x.shape) if a not in op.axes)
    return (*kept[:op.position], *broadcast(op, indices), *kept[op.position:])


def axes_first(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """A view with `axes` before all others."""
    return x.transpose((*axes, *(a for a in range(x.ndim) if a not in axes)))


def element_index(value: Scalar, extent: Dim, mode: str) -> Index:
    """An index along an axis of size `extent` from a number that may be outside it; see `Take`."""
    size, signed = size_value(extent), value.dtype[0] == "i"
    value = cast(value, "i64")
    if mode == "raise" and signed:
        value = apply("where", apply("less", value, literal(0, "i64")), apply("add", value, size), value)
    elif mode == "wrap":
        value = apply("remainder", value, size)
    elif mode == "clip":
        value = apply("minimum", apply("maximum", value, literal(0, "i64")), apply("subtract", size, literal(1, "i64")))
    if mode == "raise" or not is_nonnegative(extent - 1):          # an empty axis has nothing to wrap or clip to
        value = apply("check_index", value, size, dtype="i64")
    return as_index(value)


def python_slices(starts, sizes, steps) -> tuple[slice, ...]:
    """The Python slices of these places."""
    def one(start, size, step):
        stop = start + step * size
        return slice(0, 0) if size == 0 else slice(start, None if stop < 0 else stop, step)
    return tuple(map(one, starts, sizes, steps))


def check_places(op: Op, types, x: Tensor) -> None:
    """Raises ShapeError for a slice that has another number of axes than `x`, a step of 0, or a place plainly outside."""
    if not len(op.starts) == len(op.sizes) == len(op.steps) == len(x.shape) or 0 in op.steps:
        fact = f"needs a start, a size and a step (not 0) for each of {len(x.shape)} axes"
        raise shape_error(op, types, fact, "write x[start:stop:step]")
    for a, (d, start, size, step) in enumerate(zip(x.shape, op.starts, op.sizes, op.steps, strict=True)):
        ends = () if size == 0 else (start, start + step * (size - 1))
        if isinstance(size, int) and (size < 0 or any(_outside(e, d) for e in ends)):
            fact = f"{size} places from {start} in steps of {step} are not inside axis {a} of size {d}"
            raise shape_error(op, types, fact, "shorten the slice")


def check_indices(op: Op, types, indices) -> None:
    """Raises DTypeError unless all indices are integers."""
    for i in indices:
        if i.dtype not in INTEGERS:
            raise dtype_error(op, types, f"indices must be integers, not {i.dtype}", "cast them: i.astype(np.int64)")


def _outside(place: Dim, extent: Dim) -> bool:
    return is_nonnegative(place - extent) or is_nonnegative(-1 - place)


# examples of slices: a shape; starts, sizes and steps
PLACES = [((5,), ((1,), (3,), (1,))), ((5,), ((4,), (5,), (-1,))), ((7,), ((1,), (3,), (2,))), ((7,), ((6,), (3,), (-3,))),
          ((5,), ((2,), (0,), (1,))), ((2, 3), ((0, 1), (2, 2), (1, 1))), ((3, 5), ((2, 0), (3, 5), (-1, 1))), ((), ((), (), ())),
          ((3, 5), ((1, 3), (1, 2), (1, -2))), ((0, 3), ((0, 0), (0, 3), (1, 1))), ((1, 3), ((0, 2), (1, 1), (1, 1)))]

_I, _J = np.array([0, -1, 1]), np.array([[1], [-2]])
# examples of advanced indexing: a shape; axes, position; one index array for each axis
GATHERS = [((2, 3), (0, 1), 0, _I, _J), ((2, 3, 5), (0, 2), 0, _I, _I), ((2, 3, 5), (1, 2), 1, _I, _J), ((2, 3, 5), (1,), 1, _J),
           ((3,), (0,), 0, np.array(2)), ((2, 3, 5), (2, 0), 1, _I, np.array(1))]

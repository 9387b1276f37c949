"""Moving elements without computing: reshape, transpose, broadcast, concatenate, pad.

>>> from minirelax.ir.dim import dim
>>> from minirelax.ir.types import f32
>>> Reshape(None, (dim("n*m"), 4)).infer(f32["n", "m", 4])
f32[m*n, 4]
>>> Concatenate((None, None), axis=0).infer(f32["n"], f32["m"])
f32[m + n]
"""
from __future__ import annotations

import numpy as np

from minirelax.ir.dim import Dim, product
from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.scalar import apply, if_else, size_value
from minirelax.ir.tensor import KernelBuilder, TensorExpr
from minirelax.ir.types import Tensor
from minirelax.ops.elementwise import sample
from minirelax.ops.place import has_elements, place
from minirelax.ops.rules import (
    broadcast_at,
    broadcasts_to,
    check_axes,
    equal_sizes,
    same_dtype,
    shape_error,
    tensors,
)


@op
class Reshape(Op):
    """The same elements in row-major order under another shape.  Its size must be shown to be the same."""

    x: Atom
    shape: tuple[Dim, ...]

    def infer(self, x):
        tensors(self, (x,))
        if product(x.shape) != product(self.shape) or any(isinstance(d, int) and d < 0 for d in self.shape):
            fact = f"{product(x.shape)} elements cannot be shown to fill shape {_shape(self.shape)}"
            raise shape_error(self, (x,), fact, "write a size as a product or quotient of the others, or match_cast it")
        return Tensor(x.dtype, self.shape)

    def numpy(self, x):
        return np.reshape(x, self.shape)

    def lower(self, k: KernelBuilder, x: TensorExpr) -> TensorExpr:
        groups = matching_groups(x.shape, self.shape)

        def at(*index):
            old: list[Dim] = [0] * len(x.shape)
            for old_axes, new_axes in groups:
                flat = flatten([index[a] for a in new_axes], [self.shape[a] for a in new_axes])
                for a, i in zip(old_axes, unflatten(flat, [x.shape[a] for a in old_axes]), strict=True):
                    old[a] = i
            return x.at(*old)
        return TensorExpr(self.shape, x.dtype, at)

    @classmethod
    def examples(cls):
        return [(cls(None, new), (sample("f32", *old),)) for old, new in (
            ((2, 3), (6,)), ((6,), (2, 3)), ((2, 3, 5), (6, 5)), ((2, 15), (2, 3, 5)), ((2, 3), (3, 2)),
            ((2, 1, 3), (1, 2, 3, 1)), ((2, 3, 5), (15, 2)), ((1,), ()), ((), (1, 1)), ((2, 0), (0, 3)), ((0, 3), (5, 0)),
            ((4, 6, 5), (2, 2, 6, 5)), ((3, 3), (9,)))]


def swaps_matrices(axes: tuple[int, ...]) -> bool:
    """Does a transpose to these axes swap the last two, and leave those before?

    >>> swaps_matrices((0, 2, 1)), swaps_matrices((1, 0)), swaps_matrices((2, 1, 0)), swaps_matrices((0,))
    (True, True, False, False)
    """
    last = len(axes) - 1
    return last >= 1 and axes == (*range(last - 1), last, last - 1)


@op
class Transpose(Op):
    """Axes in another order: axis `d` of the result is axis ``axes[d]`` of `x`."""

    x: Atom
    axes: tuple[int, ...]

    def infer(self, x):
        tensors(self, (x,))
        check_axes(self, (x,), self.axes, len(x.shape))
        if len(self.axes) != len(x.shape):
            raise shape_error(self, (x,), f"axes {self.axes} are not an order of {len(x.shape)} axes", "name every axis once")
        return Tensor(x.dtype, tuple(x.shape[a] for a in self.axes))

    def numpy(self, x):
        return np.transpose(x, self.axes)

    def lower(self, k: KernelBuilder, x: TensorExpr) -> TensorExpr:
        place_of = [self.axes.index(a) for a in range(len(self.axes))]
        return TensorExpr(tuple(x.shape[a] for a in self.axes), x.dtype, lambda *i: x.at(*(i[p] for p in place_of)))

    @classmethod
    def examples(cls):
        return [(cls(None, axes), (sample("i8", *shape),)) for shape, axes in (
            ((2, 3), (1, 0)), ((2, 3, 5), (1, 2, 0)), ((2, 1, 3), (2, 0, 1)), ((), ()), ((0, 3), (1, 0)))]


@op
class BroadcastTo(Op):
    """`x` repeated along new leading axes and along its axes of size 1."""

    x: Atom
    shape: tuple[Dim, ...]

    def infer(self, x):
        tensors(self, (x,))
        if not broadcasts_to(x.shape, self.shape):
            raise shape_error(self, (x,), f"cannot be shown to broadcast to shape {_shape(self.shape)}")
        return Tensor(x.dtype, self.shape)

    def numpy(self, x):
        return np.broadcast_to(x, self.shape)

    def lower(self, k: KernelBuilder, x: TensorExpr) -> TensorExpr:
        return TensorExpr(self.shape, x.dtype, lambda *i: broadcast_at(x, i))

    @classmethod
    def examples(cls):
        return [(cls(None, new), (sample("f32", *old),)) for old, new in (
            ((3,), (2, 3)), ((2, 1), (2, 3)), ((), (2,)), ((1, 3), (0, 5, 3)), ((2, 3), (2, 3)), ((), ()), ((1,), (0,)))]


@op
class Concatenate(Op):
    """Arrays one after the other along an axis."""

    arrays: tuple[Atom, ...]
    axis: int

    def infer(self, *xs):
        if not xs:
            raise shape_error(self, (), "there is nothing to concatenate", "give it at least one array")
        dtype, first = same_dtype(self, xs), xs[0].shape
        check_axes(self, xs, (self.axis,), len(first))
        for x in xs[1:]:
            if len(x.shape) != len(first):
                raise shape_error(self, xs, f"operands have {len(first)} and {len(x.shape)} axes", "reshape them to as many axes")
            for a, (d, e) in enumerate(zip(first, x.shape, strict=True)):
                if a != self.axis:
                    equal_sizes(self, xs, d, e, f"axis {a} has sizes")
        return Tensor(dtype, (*first[:self.axis], _total(xs, self.axis), *first[self.axis + 1:]))

    def numpy(self, *arrays):
        return np.concatenate(arrays, axis=self.axis)

    def lower(self, k: KernelBuilder, *xs: TensorExpr) -> TensorExpr:
        type_ = self.infer(*(x.type for x in xs))
        ends, end = [], 0
        for x in xs:
            end = end + x.shape[self.axis]
            ends.append(end)
        starts = [e - x.shape[self.axis] for e, x in zip(ends, xs, strict=True)]
        parts = [(x, s, e) for x, s, e in zip(xs, starts, ends, strict=True) if x.shape[self.axis] != 0]
        if parts and all(has_elements((x.shape[self.axis],)) for x, _, _ in parts):
            return TensorExpr(type_.shape, type_.dtype, lambda *i: self._choose(parts, i))
        rank = len(type_.shape)
        return k.assemble(type_.shape, type_.dtype, tuple(
            (x, tuple(s if a == self.axis else 0 for a in range(rank)), (1,) * rank) for x, s, _ in parts))

    def _choose(self, parts, index):
        """The part that the index falls into."""
        def read(x, start):
            return x.at(*index[:self.axis], index[self.axis] - start, *index[self.axis + 1:])
        x, start, _ = parts[-1]
        value = read(x, start)
        for x, start, end in reversed(parts[:-1]):
            value = if_else(apply("less", size_value(index[self.axis]), size_value(end)), read(x, start), value)
        return value

    @classmethod
    def examples(cls):
        return [(cls((None,) * len(shapes), axis), tuple(sample("f32", *s) for s in shapes)) for axis, shapes in (
            (0, [(2,), (3,)]), (1, [(2, 3), (2, 5), (2, 1)]), (0, [(2, 3), (0, 3), (5, 3)]), (0, [(0,), (0,)]), (0, [(3,)]),
            (1, [(0, 2), (0, 3)]), (0, [(1,), (1,)]), (2, [(2, 3, 1), (2, 3, 1), (2, 3, 2)]))]


@op
class Pad(Op):
    """`x` with `value` around it: ``widths[a]`` is how many places go before and after, along axis `a`."""

    x: Atom
    value: Atom
    widths: tuple[tuple[Dim, Dim], ...]

    def infer(self, x, value):
        same_dtype(self, (x, value))
        negative = any(isinstance(w, int) and w < 0 for pair in self.widths for w in pair)
        if value.shape != () or len(self.widths) != len(x.shape) or negative:
            fact = f"needs one value, and two widths >= 0 for each axis, not {self.widths}"
            raise shape_error(self, (x, value), fact, "to cut places off, slice")
        return Tensor(x.dtype, tuple(before + d + after for d, (before, after) in zip(x.shape, self.widths, strict=True)))

    def numpy(self, x, value):
        return np.pad(x, self.widths, constant_values=value) if self.widths else np.array(x)     # np.pad refuses scalars

    def lower(self, k: KernelBuilder, x: TensorExpr, value: TensorExpr) -> TensorExpr:
        type_ = self.infer(x.type, value.type)
        base = TensorExpr(type_.shape, type_.dtype, lambda *i: value.at())
        return place(k, base, x, tuple(before for before, _ in self.widths), (1,) * len(self.widths))

    @classmethod
    def examples(cls):
        return [(cls(None, None, widths), (sample(t, *shape), sample(t))) for t in ("f32", "i8") for shape, widths in (
            ((3,), ((1, 2),)), ((2, 3), ((0, 0), (1, 0))), ((0, 3), ((2, 1), (0, 5))), ((2,), ((0, 0),)), ((), ()),
            ((1, 2), ((1, 1), (2, 3))))]


def matching_groups(old: tuple[Dim, ...], new: tuple[Dim, ...]) -> list[tuple[list[int], list[int]]]:
    """Axes of two shapes of equal size, in the shortest consecutive groups of equal products; axes of size 1 are in none.

    >>> from minirelax.ir.dim import dim
    >>> matching_groups((2, dim("n"), 12), (dim("2*n"), 3, 4))
    [([0, 1], [0]), ([2], [1, 2])]
    """
    if product(old) == 0:                                   # no elements, nothing is ever read
        return []
    old_axes, new_axes = ([a for a, d in enumerate(s) if d != 1] for s in (old, new))
    ends = {product([old[a] for a in old_axes[:e]]): e for e in range(1, len(old_axes) + 1)}
    groups, i, j = [], 0, 0
    for e in range(1, len(new_axes) + 1):
        end = ends.get(product([new[a] for a in new_axes[:e]]))
        if end is not None:
            groups.append((old_axes[i:end], new_axes[j:e]))
            i, j = end, e
    return groups


def flatten(index: list[Dim], sizes: list[Dim]) -> Dim:
    """The row-major position of an index."""
    flat: Dim = 0
    for i, d in zip(index, sizes, strict=True):
        flat = flat * d + i
    return flat


def unflatten(flat: Dim, sizes: list[Dim]) -> list[Dim]:
    """The index at a row-major position; the first entry needs no remainder."""
    strides = [product(sizes[a + 1:]) for a in range(len(sizes))]
    return [flat // s if a == 0 else flat // s % d for a, (s, d) in enumerate(zip(strides, sizes, strict=True))]


def _total(xs, axis: int) -> Dim:
    total: Dim = 0
    for x in xs:
        total = total + x.shape[axis]
    return total


def _shape(shape: tuple[Dim, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"

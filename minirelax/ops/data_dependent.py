"""Results with a size that only the data decides: ``_`` on that axis, and what is known on the others.

A match_cast gives the size a name.  Library calls, all of them: memory for a result can only be taken once it is there.

>>> from minirelax.ir.types import bool_, f32, i64
>>> Compress(None, None, axis=0).infer(bool_["n"], f32["n", 3]), Nonzero(None).infer(f32["n", 3])
(f32[_, 3], (i64[_], i64[_]))
>>> Repeat(None, None, axis=1).infer(f32["n", "m"], i64["m"])
f32[n, _]
>>> UniqueAll(None, axis=1).infer(f32["n", 3])
(f32[n, _], i64[_], i64[3], i64[_])
"""
from __future__ import annotations

import numpy as np

from minirelax.errors import ShapeError
from minirelax.ir.dim import Dim, is_nonnegative, product
from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.types import Tensor
from minirelax.ops.elementwise import sample
from minirelax.ops.rules import check_axes, dtype_error, equal_sizes, shape_error, tensors


@op
class Compress(Op):
    """The slices of `x` along `axis` where `condition` is true."""

    condition: Atom
    x: Atom
    axis: int

    library = True

    def infer(self, condition, x):
        types = (condition, x)
        tensors(self, types)
        check_axes(self, types, (self.axis,), len(x.shape))
        if condition.dtype != "bool" or len(condition.shape) != 1:
            raise dtype_error(self, types, "the condition must be bool with one axis", "for a mask of several axes, flatten both")
        equal_sizes(self, types, condition.shape[0], x.shape[self.axis], "condition and axis have sizes")
        return Tensor(x.dtype, (*x.shape[:self.axis], None, *x.shape[self.axis + 1:]))

    def numpy(self, condition, x):
        return np.compress(condition, x, axis=self.axis)

    @classmethod
    def examples(cls):
        mask = np.array([True, False, True])
        return [(cls(None, None, axis), (condition, sample("f32", *shape))) for axis, condition, shape in (
            (0, mask, (3,)), (1, mask, (2, 3)), (0, mask & ~mask, (3, 2)))]


@op
class Nonzero(Op):
    """The indices of the elements that are not 0: one array for each axis, in row-major order."""

    x: Atom

    library = True

    def infer(self, x):
        tensors(self, (x,))
        if not x.shape:
            raise shape_error(self, (x,), "a scalar has no indices", "reshape it to one axis")
        return tuple(Tensor("i64", (None,)) for _ in x.shape)

    def numpy(self, x):
        return np.nonzero(x)

    @classmethod
    def examples(cls):
        cases = (("i8", (13,)), ("bool", (2, 3)), ("f32", (2, 3, 5)), ("f32", (0,)))
        return [(cls(None), (sample(t, *shape),)) for t, shape in cases]


@op
class Unique(Op):
    """The distinct elements, in ascending order; NaN once, last."""

    x: Atom

    library = True

    def infer(self, x):
        tensors(self, (x,))
        return Tensor(x.dtype, (_count(product(x.shape)),))

    def numpy(self, x):
        return np.unique(x)

    @classmethod
    def examples(cls):
        cases = (("f64", (2, 13)), ("bool", (5,)), ("u8", (3, 7)), ("f32", (0,)), ("i64", ()))
        return [(cls(None), (sample(t, *shape),)) for t, shape in cases]


@op
class UniqueAll(Op):
    """The distinct elements in ascending order, or (with an axis) the distinct slices along it, in lexicographic order.

    With them: where each stands first, which of them each element (or slice) is, and how often each is there.  With
    ``equal_nan=False`` no NaN equals another.
    """

    x: Atom
    axis: int | None = None
    equal_nan: bool = True

    library = True

    def infer(self, x):
        tensors(self, (x,))
        if self.axis is None:
            count = _count(product(x.shape))
            return Tensor(x.dtype, (count,)), Tensor("i64", (count,)), Tensor("i64", x.shape), Tensor("i64", (count,))
        check_axes(self, (x,), (self.axis,), len(x.shape))
        before, size, after = x.shape[:self.axis], x.shape[self.axis], x.shape[self.axis + 1:]
        count = _count(size)
        values = Tensor(x.dtype, (*before, count, *after))
        return values, Tensor("i64", (count,)), Tensor("i64", (size,)), Tensor("i64", (count,))

    def numpy(self, x):
        values, *places = np.unique(x, True, True, True, axis=self.axis, equal_nan=self.equal_nan)
        index, inverse, counts = (p.astype(np.int64) for p in places)
        return values, index, inverse.reshape(x.shape if self.axis is None else (-1,)), counts

    @classmethod
    def examples(cls):
        cases = (("f64", (2, 13), None), ("bool", (5,), 0), ("u8", (3, 7), 1), ("i8", (3, 2), 0), ("f32", (0,), None),
                 ("i64", (), None))
        nan = np.array([np.nan, 1.0, np.nan])
        return [(cls(None, axis), (sample(t, *shape),)) for t, shape, axis in cases] + [(cls(None, None, False), (nan,))]


@op
class Repeat(Op):
    """Each slice of `x` along `axis` as often as `counts` says.  Raises ShapeError while running for a negative count."""

    x: Atom
    counts: Atom
    axis: int

    library = True

    def infer(self, x, counts):
        types = (x, counts)
        tensors(self, types)
        check_axes(self, types, (self.axis,), len(x.shape))
        if counts.dtype != "i64" or len(counts.shape) != 1:
            raise dtype_error(self, types, "the counts must be i64 with one axis", "cast and broadcast them")
        equal_sizes(self, types, counts.shape[0], x.shape[self.axis], "counts and axis have sizes")
        return Tensor(x.dtype, (*x.shape[:self.axis], None, *x.shape[self.axis + 1:]))

    def numpy(self, x, counts):
        if counts.size and counts.min() < 0:
            raise ShapeError("repeats may not contain negative values", "clip them: np.maximum(repeats, 0)", where="")
        return np.repeat(x, counts, axis=self.axis)

    @classmethod
    def examples(cls):
        return [(cls(None, None, axis), (sample("f32", *shape), np.array(counts, np.int64))) for shape, counts, axis in (
            ((3,), [2, 0, 3], 0), ((2, 3), [1, 0, 1], 1), ((2, 3), [0, 0], 0), ((0,), [], 0))]


@op
class Bincount(Op):
    """How often each of 0, 1, ... occurs in `x`, up to its greatest element, and at least `minlength` counts.

    Raises ShapeError while running for a negative element.
    """

    x: Atom
    minlength: Dim = 0

    library = True

    def infer(self, x):
        tensors(self, (x,))
        if x.dtype != "i64" or len(x.shape) != 1:
            raise dtype_error(self, (x,), "the values must be i64 with one axis", "cast and flatten them")
        if not is_nonnegative(self.minlength):
            raise shape_error(self, (x,), f"minlength is {self.minlength}", "a size is >= 0")
        return Tensor("i64", (self.minlength if x.shape == (0,) else None,))

    def numpy(self, x):
        if x.size and x.min() < 0:
            raise ShapeError("bincount: an element is negative", "shift them: x - x.min()", where="")
        return np.bincount(x, minlength=self.minlength).astype(np.int64)

    @classmethod
    def examples(cls):
        cases = (([1, 5, 1, 0], 0), ([1, 0], 7), ([], 0), ([], 2), ([2, 2, 2], 2))
        return [(cls(None, n), (np.array(values, np.int64),)) for values, n in cases]


def _count(size: Dim) -> Dim | None:
    """How many distinct ones there are among so many, if that is no question of the data."""
    return size if size in (0, 1) else None

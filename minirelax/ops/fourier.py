"""Discrete Fourier transforms along one axis: library calls of NumPy's FFT, which writes where the program says.

Transforms of several axes are made of these, one axis after the other, as NumPy's are.

>>> from minirelax.ir.dim import dim
>>> from minirelax.ir.types import c64, f32
>>> Rfft(None, 1).infer(f32["b", "n"]), Irfft(None, dim("n"), 1).infer(c64["b", "n//2 + 1"]), Fft(None, 0).infer(c64["n"])
(c64[b, n//2 + 1], f32[b, n], c64[n])
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.errors import ShapeError
from minirelax.ir.dim import Dim, floordiv
from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.types import PARTS, WHOLES, Tensor
from minirelax.ops.elementwise import sample
from minirelax.ops.rules import COMPLEX, FLOATS, accept, check_axes, shape_error, tensors

NORMS = ("backward", "ortho", "forward")
TOO_SHORT = "Invalid number of FFT data points (0) specified."       # NumPy's words
HINT = "a transform needs at least one point along its axis"


@dataclass(frozen=True)
class Transform(Op):
    """A transform along an axis; `norm` says which direction is divided by the number of points."""

    library = True
    accepts = COMPLEX

    def infer(self, x: Tensor) -> Tensor:
        tensors(self, (x,))
        accept(self, (x,), x.dtype, self.accepts)
        check_axes(self, (x,), (self.axis,), len(x.shape))
        if self.norm not in NORMS:
            raise shape_error(self, (x,), f"there is no norm {self.norm!r}", f"use one of {', '.join(NORMS)}")
        dtype, points, size = self.result(x)
        if points == 0:
            raise shape_error(self, (x,), TOO_SHORT, HINT)
        return Tensor(dtype, (*x.shape[:self.axis], size, *x.shape[self.axis + 1:]))

    def result(self, x: Tensor) -> tuple[str, Dim, Dim]:
        """The dtype of the result, the number of points of the transform, and the size of the result along the axis."""
        return x.dtype, x.shape[self.axis], x.shape[self.axis]

    def numpy(self, x):
        return self.into(np.asarray(x), None, self.points(np.shape(x)[self.axis]))

    def points(self, size: int) -> int:
        """The number of points of the transform of an array of this size."""
        return size

    def numpy_into(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write the transform to memory that is there, whose size says how many points it has."""
        self.into(x, out, out.shape[self.axis])

    def into(self, x: np.ndarray, out: np.ndarray | None, points: int) -> np.ndarray:
        """NumPy's transform.  Raises ShapeError for one of no points."""
        if points < 1:
            raise ShapeError(f"{self.opname()}: {TOO_SHORT}", HINT, "")
        return self.transform(x, points, out)

    def transform(self, x: np.ndarray, points: int, out: np.ndarray | None) -> np.ndarray:
        """NumPy's function."""
        raise TypeError(f"{self.opname()} has no transform")


@op
class Fft(Transform):
    """The transform of complex numbers."""

    x: Atom
    axis: int
    norm: str = "backward"
    inverse: bool = False

    def transform(self, x, points, out):
        return (np.fft.ifft if self.inverse else np.fft.fft)(x, axis=self.axis, norm=self.norm, out=out)

    @classmethod
    def examples(cls):
        cases = ((1, "backward", False), (0, "ortho", True), (1, "forward", True), (2, "backward", True))
        return [(cls(None, *case), (_finite(t, 2, 3, 5),)) for case in cases for t in COMPLEX] + [
            (cls(None, 1), (_finite("c64", 0, 7),)), (cls(None, 0), (_finite("c128", 1),))]


@op
class Rfft(Transform):
    """The transform of real numbers: the half of it that says the other."""

    x: Atom
    axis: int
    norm: str = "backward"

    accepts = FLOATS

    def result(self, x):
        return WHOLES[x.dtype], x.shape[self.axis], floordiv(x.shape[self.axis], 2) + 1

    def numpy_into(self, x, out):
        self.into(x, out, x.shape[self.axis])

    def transform(self, x, points, out):
        return np.fft.rfft(x, axis=self.axis, norm=self.norm, out=out)

    @classmethod
    def examples(cls):
        return [(cls(None, axis, norm), (_finite(t, 2, 3, 5),)) for axis, norm in ((0, "backward"), (1, "ortho"), (2, "forward"))
                for t in FLOATS] + [(cls(None, 1), (_finite("f32", 0, 7),)), (cls(None, 0), (_finite("f64", 1),))]


@op
class Irfft(Transform):
    """Real numbers, `size` of them, from the half of their transform that `rfft` gives, which is cut or filled up with zeros."""

    x: Atom
    size: Dim
    axis: int
    norm: str = "backward"

    def result(self, x):
        return PARTS[x.dtype], self.size, self.size

    def points(self, size):
        return self.size

    def transform(self, x, points, out):
        return np.fft.irfft(x, n=points, axis=self.axis, norm=self.norm, out=out)

    @classmethod
    def examples(cls):
        found = []
        for size, axis, norm in ((4, 2, "backward"), (5, 2, "ortho"), (2, 1, "forward"), (3, 1, "backward"), (1, 0, "backward")):
            shape = [2, 3, 5]
            shape[axis] = size // 2 + 1
            found += [(cls(None, size, axis, norm), (_finite(t, *shape),)) for t in COMPLEX]
        return [*found, (cls(None, 6, 1), (_finite("c64", 0, 4),))]


def _finite(dtype: str, *shape: int) -> np.ndarray:
    values = sample(dtype, *shape)
    return np.where(np.isfinite(values), values, 2).astype(values.dtype)


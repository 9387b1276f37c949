"""Views: how an array that shares another's memory reads it, and what writing to the view makes of the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from minirelax.errors import ShapeError
from minirelax.ir.dim import Dim, product
from minirelax.ir.graph import Atom, MatchCast
from minirelax.ir.types import Tensor

if TYPE_CHECKING:
    from minirelax.frontend.builder import Builder


@dataclass(frozen=True)
class View:
    """Base of all views."""

    def read(self, b: Builder, whole: Atom) -> Atom:
        """The view's value, from that of the array it looks at."""
        raise TypeError("a view without a rule for reading")

    def write(self, b: Builder, whole: Atom, part: Atom) -> Atom:
        """The other array's value after the view's has become `part`."""
        raise TypeError("a view without a rule for writing")

    def keeps_order(self, b: Builder, shape: tuple[Dim, ...]) -> bool:
        """Are the view's elements neighbours in row-major order if those of the array, which has this shape, are?"""
        return False


@dataclass(frozen=True)
class SliceView(View):
    """Every `step`-th element from `start`, `size` of them, along each axis."""

    starts: tuple[Dim, ...]
    sizes: tuple[Dim, ...]
    steps: tuple[int, ...]

    def read(self, b, whole):
        return b.op("slice", whole, starts=self.starts, sizes=self.sizes, steps=self.steps)

    def write(self, b, whole, part):
        return b.op("set_slice", whole, part, starts=self.starts, sizes=self.sizes, steps=self.steps)

    def keeps_order(self, b, shape):
        cut = [
            i
            for i, (s, d, k) in enumerate(zip(self.sizes, shape, self.steps, strict=True))
            if k != 1 or not b.facts.is_equal(s, d)
        ]
        return not cut or (self.steps[cut[-1]] == 1 and all(d == 1 for d in self.sizes[: cut[-1]]))


@dataclass(frozen=True)
class ReshapeView(View):
    """The same elements under another shape."""

    shape: tuple[Dim, ...]

    def read(self, b, whole):
        return reshape(b, whole, self.shape)

    def write(self, b, whole, part):
        return reshape(b, part, b.type_of(whole).shape)

    def keeps_order(self, b, shape):
        return True


@dataclass(frozen=True)
class TransposeView(View):
    """The axes in another order."""

    axes: tuple[int, ...]

    def read(self, b, whole):
        return b.op("transpose", whole, axes=self.axes)

    def write(self, b, whole, part):
        return b.op("transpose", part, axes=tuple(self.axes.index(i) for i in range(len(self.axes))))


@dataclass(frozen=True)
class PartView(View):
    """The real or the imaginary parts of complex numbers."""

    name: str

    def read(self, b, whole):
        return b.op(self.name, whole)

    def write(self, b, whole, part):
        return b.op("complex", part, b.op("imag", whole)) if self.name == "real" else b.op("complex", b.op("real", whole), part)


@dataclass(frozen=True)
class BroadcastView(View):
    """The elements repeated along new axes and axes of size 1: read-only, as NumPy's."""

    shape: tuple[Dim, ...]

    def read(self, b, whole):
        from minirelax.frontend.array import TracedArray
        from minirelax.frontend.operands import conform

        return b.op("broadcast_to", conform(TracedArray(b, whole), self.shape).atom, shape=self.shape)

    def write(self, b, whole, part):
        raise ShapeError("assignment destination is read-only: it is the result of broadcasting", "copy it first: x = x.copy()")


def reshape(b: Builder, whole: Atom, shape: tuple[Dim, ...]) -> Atom:
    """The elements of `whole` under another shape, which is known to have as many.

    Where that is known by a guard, not by arithmetic (``4*(n//4) == n``), a match_cast on the flat array tells the IR.
    """
    type_, shape = b.type_of(whole), tuple(map(b.facts.resolve, shape))
    if type_.shape == shape:
        return whole
    old, new = product(type_.shape), product(shape)
    if old != new:
        flat = whole if len(type_.shape) == 1 else b.op("reshape", whole, shape=(old,))
        whole = b.emit(MatchCast(flat, Tensor(type_.dtype, (new,))))
    return whole if b.type_of(whole).shape == shape else b.op("reshape", whole, shape=shape)

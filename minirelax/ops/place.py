"""Putting an array into a larger one at an offset: what `pad`, `set_slice` and `concatenate` do.

Two loop forms.  Where the part is shown to have elements, one expression chooses at every index, so that consumers can be fused
with it.  A part that may be empty is written by a block of its own, a plain copy; a consumer that takes such an assembly in
makes one expression of it (`passes.assemblies`).
"""
from __future__ import annotations

from minirelax.ir.dim import Dim, floordiv, is_nonnegative
from minirelax.ir.scalar import Scalar, apply, if_else, size_value
from minirelax.ir.tensor import KernelBuilder, TensorExpr


def place(k: KernelBuilder, base: TensorExpr, part: TensorExpr, starts: tuple[Dim, ...], steps: tuple[int, ...]) -> TensorExpr:
    """`base` with `part` written over it at ``starts + steps * index``."""
    if covers(part.shape, base.shape, steps):
        return TensorExpr(base.shape, base.dtype, lambda *i: part.at(*(
            (j - s) * step for j, s, step in zip(i, starts, steps, strict=True))))
    if not has_elements(part.shape):
        rank = len(base.shape)
        return k.assemble(base.shape, base.dtype, ((base, (0,) * rank, (1,) * rank), (part, starts, steps)))

    def at(*index):
        axes = [Inside(*a) for a in zip(index, starts, steps, part.shape, base.shape, strict=True)]
        conditions = [c for a in axes for c in a.conditions()]
        return where_all(conditions, part.at(*(a.own() for a in axes)), base.at(*index))
    return TensorExpr(base.shape, base.dtype, at)


def covers(part: tuple[Dim, ...], base: tuple[Dim, ...], steps: tuple[int, ...]) -> bool:
    """Does a part of this shape fill all of `base`, forwards or backwards?"""
    return part == base and all(s in (1, -1) for s in steps)


def has_elements(shape: tuple[Dim, ...]) -> bool:
    """Can every size be shown to be at least 1?"""
    return all(is_nonnegative(d - 1) for d in shape)


def where_all(conditions: list[Scalar], yes: Scalar, no: Scalar) -> Scalar:
    """`yes` where all conditions hold; only then is it evaluated."""
    if not conditions:
        return yes
    both = conditions[0]
    for c in conditions[1:]:
        both = apply("logical_and", both, c)
    return if_else(both, yes, no)


class Inside:
    """One axis: is `index` of the whole among the `size` places ``start + step * q``, and which `q` is it?"""

    def __init__(self, index: Dim, start: Dim, step: int, size: Dim, extent: Dim):
        self.backwards = step < 0
        self.start = start + step * (size - 1) if self.backwards else start
        self.index, self.step, self.size, self.extent = index, abs(step), size, extent

    def conditions(self) -> list[Scalar]:
        """What must hold for `index` to be inside; nothing that holds anyway."""
        after = self.start + self.step * (self.size - 1) + 1
        found = []
        if not is_nonnegative(0 - self.start):
            found.append(apply("greater_equal", size_value(self.index), size_value(self.start)))
        if not is_nonnegative(after - self.extent):
            found.append(apply("less", size_value(self.index), size_value(after)))
        if self.step > 1:
            found.append(apply("equal", size_value((self.index - self.start) % self.step), size_value(0)))
        return found

    def own(self) -> Dim:
        """`q`, if `index` is inside."""
        q = floordiv(self.index - self.start, self.step)
        return self.size - 1 - q if self.backwards else q

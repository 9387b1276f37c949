"""Writing to elements chosen by arrays of indices.  The order of writes matters where indices repeat, so there is no loop form.

>>> from minirelax.ir.types import f32, i64
>>> ScatterAdd(None, None, (None,), axes=(0,), position=0).infer(f32["n", 3], f32["k", 3], i64["k"])
f32[n, 3]
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.types import Tensor
from minirelax.ops.index import Gather, axes_first, gathered_shape
from minirelax.ops.rules import broadcasts_to, same_dtype, shape_error


@dataclass(frozen=True)
class Scatter(Op):
    """A copy of `x` changed at ``x[indices]``, addressed as in `Gather`; `value` broadcasts to what `Gather` gives."""

    x: Atom
    value: Atom
    indices: tuple[Atom, ...]
    axes: tuple[int, ...]
    position: int

    library = True

    def infer(self, x, value, *indices):
        types = (x, value, *indices)
        same_dtype(self, (x, value))
        shape = gathered_shape(self, types, x, indices)
        if not broadcasts_to(value.shape, shape):
            raise shape_error(self, types, f"the value cannot be shown to broadcast to {Tensor(x.dtype, shape)}")
        return x

    def numpy(self, x, value, *indices):
        out = np.array(x)
        places, span = axes_first(out, self.axes), np.broadcast(*indices).shape
        kept, p = places.shape[len(self.axes):], self.position
        spread = np.broadcast_to(value, (*kept[:p], *span, *kept[p:]))
        self.write(places, tuple(indices), np.moveaxis(spread, range(p, p + len(span)), range(len(span))))
        return out

    def write(self, places: np.ndarray, indices: tuple, value: np.ndarray) -> None:
        """Change `places` at `indices`, in place."""
        raise TypeError(f"{self.opname()} has no write rule")

    @classmethod
    def examples(cls):
        found = []
        for gather, (x, *indices) in Gather.examples():
            numbered = np.arange(gather.numpy(x, *indices).size).reshape(gather.numpy(x, *indices).shape)
            scatter = cls(None, None, gather.indices, gather.axes, gather.position)
            found += [(scatter, (x, value, *indices)) for value in (np.array(50), numbered)]
        return found


@op
class ScatterSet(Scatter):
    """A copy of `x` with ``x[indices] = value``; of several writes to one place the last wins."""

    def write(self, places, indices, value):
        places[indices] = value


@op
class ScatterAdd(Scatter):
    """A copy of `x` with `value` added at `indices`, once for each time that a place is named (``np.add.at``)."""

    def write(self, places, indices, value):
        np.add.at(places, indices, value)

"""Bounds checks of the code of kernels, for builds with ``MINIRELAX_BOUNDSCHECK=1``; other builds have no trace of them.

Every index of a load or store goes through the intrinsic ``inside``, which compares it with the number of elements of the buffer
and gives it back.  One that is outside is noted in the error word, and the access goes to a word beside that, so nothing else is
read or written.  Register tiles read whole rows, whose first and last index are looked at before (``is_outside``).

The error word is `FAILED`, then come the access (`access_number`), the index and the number of elements; word `SPARE` stands in
for what is not there.

>>> access_number("double", "x") == access_number("double", "x") != access_number("double", "out")
True
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from minirelax.ir.dim import Dim, product
from minirelax.ir.types import itemsize

if TYPE_CHECKING:
    from minirelax.codegen.kernel import KernelSource

FAILED = 2  # what the error word holds then; 1 is an index that the program itself checks
SPARE = 4
WORDS = 8  # of the error word and what follows it


def access_number(kernel: str, buffer: str) -> int:
    """The number by which code names a buffer of a kernel."""
    return zlib.crc32(f"{kernel} {buffer}".encode())


class BoundsChecks:
    """The checks of one kernel's source."""

    def __init__(self, source: KernelSource):
        self.source, self.sizes = source, {}

    def declare_all(self) -> None:
        """Lines with the numbers of elements of inputs and outputs."""
        types = self.source.kernel.buffers
        for name in self.source.signature.buffers:
            self.declare(name, product(types[name].shape))

    def declare(self, buffer: str, elements: Dim) -> None:
        """A line with the number of elements of a buffer."""
        self.sizes[buffer] = name = self.source.names.fresh("elements")
        self.source.out.line(f"{name} = {self.source.dim(elements)}")

    def index(self, buffer: str, index: str, dtype: str) -> str:
        """The index, checked."""
        pointer = self.source.buffer(buffer)
        return f"inside(error, {pointer}, {index}, {self.sizes[buffer]}, {self._number(buffer)}, {itemsize(dtype)})"

    def refuse_range(self, buffer: str, first: str, last: str) -> None:
        """Lines that stop the kernel if a range of indices is outside; an empty range is not."""
        checked = f"is_outside(error, {first}, {last}, {self.sizes[buffer]}, {self._number(buffer)})"
        with self.source.out.block(f"if {checked}:"):
            self.source.out.line("return")

    def _number(self, buffer: str) -> int:
        return access_number(self.source.kernel.name, buffer)

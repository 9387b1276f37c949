"""What every kernel must be: buffers declared, indices in number and scope, dtypes consistent, reads after writes.

>>> from minirelax.ir.parser import parse_kernel
>>> verify_kernel(parse_kernel('''
... @kernel
... def double(x: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = x[i, 0] * 2.0'''))
Traceback (most recent call last):
minirelax.errors.VerifyError: x: f32[n] has 2 indices
  at kernel double: out[i] = x[i, 0] * 2.0
"""
from __future__ import annotations

import keyword
import weakref
from collections.abc import Sequence

from minirelax.errors import VerifyError
from minirelax.ir.dim import Dim, names
from minirelax.ir.functions import MIXED, complaint
from minirelax.ir.in_place import is_replaceable
from minirelax.ir.loop import KINDS, REDUCTIONS, Block, Kernel
from minirelax.ir.print_loops import print_block
from minirelax.ir.scalar import LAZY, PREDICATES, Apply, Index, Load, Scalar, SizeValue, natural_dtype, walk
from minirelax.ir.syntax import INFIX, NUMBER_NAMES
from minirelax.ir.types import PARTS

_verified: weakref.WeakValueDictionary[int, Kernel] = weakref.WeakValueDictionary()


def verify_kernel(kernel: Kernel, places: Sequence[str] = ()) -> None:
    """Raises VerifyError if the kernel breaks an invariant.  Kernels cannot change, so each is looked at once.

    `places` say where errors are: of the kernel as a whole, then of each block; by default the kernel's own text.
    """
    if _verified.get(id(kernel)) is kernel:
        return
    _Verifier(kernel, places).run()
    _verified[id(kernel)] = kernel


def is_name(name: str) -> bool:
    """Can the text use this name for a value, a size, or an axis?"""
    return name.isidentifier() and not keyword.iskeyword(name) and name not in NUMBER_NAMES


class _Verifier:
    def __init__(self, kernel: Kernel, places: Sequence[str] = ()):
        self.places, self.place = places, places[0] if places else ""
        self.kernel, self.buffers, self.sizes = kernel, kernel.buffers, frozenset(kernel.sizes)
        self.written = {v.name for v in kernel.inputs}
        self.line = f"def {kernel.name}(...)"
        self.scope: frozenset[str] = self.sizes

    def fail(self, what: str, hint: str = "") -> None:
        raise VerifyError(what, hint, where=self.place or f"kernel {self.kernel.name}: {self.line}")

    def run(self) -> None:
        kernel = self.kernel
        self._check_names([*(v.name for v in (*kernel.inputs, *kernel.outputs, *kernel.local)), *kernel.sizes])
        for v in (*kernel.inputs, *kernel.outputs, *kernel.local):
            if v.type.shape is None or None in v.type.shape:
                self.fail(f"{v.name} has a size that is not known: {v.type}")
            for d in v.type.shape:
                self._check_size(d, f"the type of {v.name}")
        if kernel.pattern is not None and kernel.pattern not in KINDS:
            self.fail(f"there is no pattern {kernel.pattern!r}", f"patterns are {', '.join(KINDS)}")
        for i, block in enumerate(kernel.blocks, 1):
            self.place = self.places[i] if self.places else ""
            self._check_block(block)
        self.place = self.places[0] if self.places else ""
        for v in kernel.outputs:
            if v.name not in self.written:
                self.fail(f"nothing is stored to the output {v.name}")
        self._check_in_place()

    def _check_in_place(self) -> None:
        kernel, taken = self.kernel, set()
        for x, out in kernel.in_place:
            if x not in {v.name for v in kernel.inputs} or out not in {v.name for v in kernel.outputs} or taken & {x, out}:
                self.fail(f"in_place: {x}: {out} are not an input and an output, each named once")
            taken |= {x, out}
            if not is_replaceable(kernel, x, out):
                self.fail(f"{out} cannot be written over {x}", "each element of it is read before it is written, and not after")

    def _check_names(self, names_: list[str]) -> None:
        for i, name in enumerate(names_):
            if name in names_[:i]:
                self.fail(f"{name} is declared twice")
            if not is_name(name):
                self.fail(f"{name!r} cannot be a name")

    def _check_block(self, block: Block) -> None:
        if block.buffer not in {v.name for v in (*self.kernel.outputs, *self.kernel.local)}:
            self.fail(f"a block stores to {block.buffer}, which is not an output or a local buffer")
        taken = {*self.buffers, *self.sizes, *(a.name for a in (*block.axes, *block.over))}
        self.line = print_block(block, self.buffers[block.buffer].dtype, taken)[-1].strip()
        self._check_axes(block)
        self.scope = self.sizes | {a.name for a in block.axes}
        self._check_indices(block.buffer, block.indices)
        for s in walk(*(i for i in block.indices if isinstance(i, Scalar))):
            self._check_scalar(s, block)
        self.scope |= {a.name for a in block.over}
        for s in walk(block.value):
            self._check_scalar(s, block)
        if block.value.dtype != self.buffers[block.buffer].dtype:
            self.fail(f"a {block.value.dtype} is stored to {block.buffer}: {self.buffers[block.buffer]}", "cast it")
        self.written.add(block.buffer)

    def _check_axes(self, block: Block) -> None:
        seen = {*self.sizes, *self.buffers}
        for axis in (*block.axes, *block.over):
            if axis.name in seen or not is_name(axis.name):
                self.fail(f"the axis {axis.name} hides a size, a buffer, or another axis")
            seen.add(axis.name)
            self.scope = self.sizes
            self._check_size(axis.extent, f"the extent of {axis.name}")
        if (block.reduction is None) != (not block.over):
            self.fail("a block has a reduction if and only if it has axes to reduce over")
        if block.reduction is not None and block.reduction not in REDUCTIONS:
            self.fail(f"there is no reduction {block.reduction}", f"reductions are {', '.join(REDUCTIONS)}")

    def _check_size(self, d: Dim, what: str) -> None:
        if unknown := names(d) - self.scope:
            self.fail(f"{what} mentions {min(unknown)}, which is not in scope", "sizes are parameters of the kernel, after *")

    def _check_indices(self, buffer: str, indices: tuple[Index, ...]) -> None:
        if len(indices) != len(self.buffers[buffer].shape):
            self.fail(f"{buffer}: {self.buffers[buffer]} has {len(indices)} indices")
        for i in indices:
            if not isinstance(i, Scalar):
                self._check_size(i, f"an index of {buffer}")
            elif i.dtype != "i64":
                self.fail(f"an index of {buffer} has dtype {i.dtype}", "indices are i64: cast it")

    def _check_scalar(self, s: Scalar, block: Block) -> None:
        match s:
            case Load(buffer=buffer):
                if buffer not in self.buffers:
                    self.fail(f"there is no buffer {buffer}")
                if buffer not in self.written or buffer == block.buffer:
                    self.fail(f"{buffer} is read before it is written", "blocks run in order and read what earlier ones stored")
                if s.dtype != self.buffers[buffer].dtype:
                    self.fail(f"a load from {buffer}: {self.buffers[buffer]} has dtype {s.dtype}")
                self._check_indices(buffer, s.indices)
            case SizeValue(dim=d):
                self._check_size(d, "a scalar")
            case Apply():
                self._check_dtypes(s)

    def _check_dtypes(self, s: Apply) -> None:
        given = [a.dtype for a in s.args]
        if s.function in ("where", LAZY):
            fine = len(given) == 3 and given[0] == "bool" and given[1] == given[2] == s.dtype
        elif s.function in PREDICATES:
            fine = len(set(given)) == 1 and s.dtype == "bool"
        elif s.function in INFIX or s.function in ("maximum", "minimum", "negative"):
            fine = set(given) == {s.dtype}
        elif s.function in ("complex", "real", "imag"):
            fine = len(set(given)) == 1 and s.dtype == natural_dtype(s.function, s.args)
        elif s.function == "cast":
            fine = s.dtype in (*PARTS, "bool") or given[0] not in PARTS
        else:
            fine = s.function in MIXED or len(set(given)) == 1
        if what := complaint(s.function, tuple(given)):
            self.fail(what, "functions are called as NumPy's; convert an operand by its dtype: f32(x)")
        if not fine and s.function == "cast":
            self.fail(f"a {given[0]} cannot become {s.dtype}", "take a part of it: real(x), imag(x), or hypot(real(x), imag(x))")
        if not fine:
            self.fail(f"{s.function} of {', '.join(given)} cannot be {s.dtype}", "operands have one dtype: cast one of them")

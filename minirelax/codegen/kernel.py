"""The frame of a kernel's source: its function header, its arguments' names and pointers, accesses to buffers.

Every kernel is ``void kernel(int64* args, int64 lo, int64 hi, int64 scratch)``: it runs the tiles lo <= t < hi of its one
parallel loop.  ``args`` holds the addresses of inputs and outputs, the address of the error word, the address of the table of
register tiles, and the sizes, in this order; `Signature` says so once for code generation and program building.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from minirelax.codegen.bounds import BoundsChecks
from minirelax.codegen.scalars import dim_source
from minirelax.codegen.source import Names, SourceWriter
from minirelax.ir.checked import kernels_are_checked
from minirelax.ir.dim import Dim, DimExpr, is_nonnegative, names, product
from minirelax.ir.loop import Block, Kernel
from minirelax.ir.scalar import Apply, Literal, Scalar, SizeValue, certain, children, walk
from minirelax.ir.types import NUMPY_DTYPES

_DTYPES = tuple(NUMPY_DTYPES)
_CONTRACTION = """
    a_address a_copy a_stride above b_address b_copy b_next b_panel b_stride batch block_rows c_address c_stride chunk
    chunks column first_copied first_of_tile first_panel group groups in_place k_end k_first k_flat k_row k_rows k_start
    last_of_tile last_panel panels panels_per_tile result_start row_blocks row_tile row_tiles tile_rows to
""".split()
RESERVED = frozenset(  # what generated source says itself; a test compares
    {
        "args",
        "lo",
        "hi",
        "scratch",
        "tile",
        "chunks",
        "row_block",
        "rows_per_tile",
        "row",
        "error",
        "table",
        "range",
        "min",
        "max",
        "inf",
        "nan",
        "select",
        "quotient",
        "rest",
        "call_sweep",
        "inside",
        "is_outside",
        "not",
        *_DTYPES,
        *(f"ptr_{d}" for d in _DTYPES),
        *_CONTRACTION,
    }
)


@dataclass(frozen=True)
class Signature:
    """Where things stand in a kernel's ``args``."""

    buffers: tuple[str, ...]
    sizes: tuple[str, ...]

    @property
    def error(self) -> int:
        return len(self.buffers)

    @property
    def table(self) -> int:
        return len(self.buffers) + 1

    @property
    def first_size(self) -> int:
        return len(self.buffers) + 2


def signature(kernel: Kernel) -> Signature:
    """The argument layout of a kernel."""
    return Signature(tuple(v.name for v in (*kernel.inputs, *kernel.outputs)), kernel.sizes)


class KernelSource:
    """Collects the source of one kernel's function."""

    def __init__(self, kernel: Kernel, axes: tuple[str, ...]):
        self.kernel, self.signature = kernel, signature(kernel)
        self.out, self.names = SourceWriter(), Names(RESERVED)
        self.function_name = self.names.give(("function",), f"{kernel.name}_kernel")  # never a C function's name
        for size in kernel.sizes:
            self.names.give(size, size)
        for a in axes:
            self.names.give(a, a)
        for v in (*kernel.inputs, *kernel.outputs, *kernel.local):
            self.names.give(("buffer", v.name), v.name)
        self.bounds = BoundsChecks(self) if kernels_are_checked() else None
        self.spared = frozenset(self._spared_buffers())

    @contextmanager
    def function(self) -> Iterator[None]:
        """The function's header: pointers and sizes out of ``args``."""
        types = self.kernel.buffers
        with self.out.block(f"def {self.function_name}(args, lo, hi, scratch):"):
            memory = dict(self.kernel.in_place)
            for i, name in enumerate(self.signature.buffers):
                if name not in memory:
                    self.pointer(name, types[name].dtype, f"args[{i}]")
            for name, out in memory.items():  # one pointer: of two, LLVM would ask whether they overlap, and give up vectors
                self.out.line(f"{self.buffer(name)} = {self.buffer(out)}")
            if self.bounds or any(True for _ in self._checked_extents()):
                self.out.line(f"error = ptr_i64(args[{self.signature.error}])")
            for i, size in enumerate(self.signature.sizes):
                self.out.line(f"{self.names.of[size]} = args[{self.signature.first_size + i}]")
            if self.bounds:
                self.bounds.declare_all()
            self._replace_empty_buffers()
            self._refuse_empty_axes()
            yield

    def _refuse_empty_axes(self) -> None:
        """Nothing is inside an axis without elements: stop before a checked index falls back on element 0 of it."""
        seen: set[tuple[Dim, Dim]] = set()
        for block, extent in self._checked_extents(certain):
            rounds = product([a.extent for a in (*block.axes, *block.over)])
            if (extent, rounds) in seen or is_nonnegative(extent - 1):
                continue
            seen.add((extent, rounds))
            with self.out.block(f"if {self.dim(extent)} < 1 and {self.dim(rounds)} > 0:"):
                self.out.line("error[0] = 1")
                self.out.line("return")

    def _replace_empty_buffers(self) -> None:
        """Where a check that is not always made fails, element 0 is read: of the error word, if there is none."""
        types = self.kernel.buffers
        for i, name in enumerate(self.signature.buffers):
            if name in self.spared:
                address = self._spared(f"args[{i}]", product(types[name].shape))
                self.out.line(f"{self.buffer(name)} = ptr_{types[name].dtype}({address})")

    def _spared(self, address: str, elements: Dim) -> str:
        return f"select({self.dim(elements)} > 0, {address}, args[{self.signature.error}])"

    def _spared_buffers(self) -> Iterator[str]:
        """The buffers that may be empty, and are read under conditions at indices that are checked."""
        types = self.kernel.buffers
        for b in self.kernel.blocks:
            always = set(walk(*_roots(b), inside=certain))
            for s in b.loads:
                checked = s not in always and any(map(_is_check, children(s)))
                if checked and not is_nonnegative(product(types[s.buffer].shape) - 1):
                    yield s.buffer

    def pointer(self, buffer: str, dtype: str, address: str, elements: Dim | None = None) -> None:
        """A buffer at an address; `elements` is how many it has, of one that is in scratch memory."""
        if elements is not None and buffer in self.spared:
            address = self._spared(address, elements)
        self.out.line(f"{self.buffer(buffer)} = ptr_{dtype}({address})")
        if self.bounds and elements is not None:
            self.bounds.declare(buffer, elements)

    def buffer(self, name: str) -> str:
        return self.names.give(("buffer", name), name.replace(".", "_"))

    def axis(self, name: str) -> str:
        return self.names.give(name, name.replace(".", "_"))

    def dim(self, d: Dim) -> str:
        for name in sorted(names(d)):
            self.axis(name)
        return dim_source(d, self.names.of)

    def factor(self, d: Dim) -> str:
        """A size, in parentheses if it is a sum."""
        text = self.dim(d)
        return f"({text})" if isinstance(d, DimExpr) and len(d.terms) > 1 else text

    def element(self, buffer: str, index: str, dtype: str) -> str:
        """A load: bools are bytes in memory."""
        text = f"{self.buffer(buffer)}[{self._place(buffer, index, dtype)}]"
        return f"({text} != u8(0))" if dtype == "bool" else text

    def store(self, buffer: str, index: str, value: str, dtype: str) -> None:
        place = self._place(buffer, index, dtype)
        self.out.line(f"{self.buffer(buffer)}[{place}] = {dtype if dtype != 'bool' else 'u8'}({value})")

    def _place(self, buffer: str, index: str, dtype: str) -> str:
        """An index as it is, or checked."""
        return self.bounds.index(buffer, index, dtype) if self.bounds else index

    def _checked_extents(self, inside: Callable[[Scalar], tuple[Scalar, ...]] = children) -> Iterator[tuple[Block, Dim]]:
        """The extents that indices of the kernel's blocks are checked against."""
        for b in self.kernel.blocks:
            for s in walk(*_roots(b), inside=inside):
                match s:
                    case Apply(function="check_index", args=(_, SizeValue(dim=extent) | Literal(value=extent))):
                        yield b, extent


def _roots(block: Block) -> tuple[Scalar, ...]:
    return (block.value, *(i for i in block.indices if isinstance(i, Scalar)))


def _is_check(s: Scalar) -> bool:
    return isinstance(s, Apply) and s.function == "check_index"

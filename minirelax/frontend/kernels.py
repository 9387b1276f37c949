"""`kernel`: a loop-level function that the user writes, to be called in compiled functions like any function of arrays.

>>> import numpy as np
>>> from minirelax import f32, jit
>>> @kernel
... def blur(x: f32["n"], out: f32["n"], *, n):
...     for i in range(n):
...         out[i] = (x[max(i - 1, 0)] + x[i] + x[min(i + 1, n - 1)]) / 3.0
>>> blur(np.array([0, 3, 0, 0], np.float32))
array([1., 1., 1., 0.], dtype=float32)
>>> jit(lambda x: blur(x * 2), target="interpret")(np.array([0, 3, 0, 0], np.float32))
array([2., 2., 2., 0.], dtype=float32)
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Sequence

import numpy as np

from minirelax.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder, active
from minirelax.frontend.kernel_source import read_kernel
from minirelax.frontend.operands import as_dtype, asarray, is_nonnegative, require_equal
from minirelax.frontend.signature import as_argument
from minirelax.frontend.size import Size
from minirelax.ir.dim import Dim, DimExpr, substitute, symbol, value
from minirelax.ir.graph import CallKernel, Const, MatchCast, Var
from minirelax.ir.loop import KINDS, Kernel
from minirelax.ir.types import NUMPY_DTYPES, Tensor, dtype_name

WEAK = {bool: "biufc", int: "iufc", float: "fc", complex: "c"}  # kinds of dtypes that a Python number becomes


def kernel(source: Callable | str | None = None, *, pattern: str | None = None) -> KernelFunction | Callable:
    """Decorator: make a kernel of a function whose text is one.  Also takes the text itself.

    The text is that of printed kernels: inputs, then outputs (parameters that are stored to), then, after ``*``, the sizes; in
    it, ``t = local(f32[n])``, ``for i in range(n):``, ``s0 = scalar`` and ``buffer[i, j] = scalar``; a reduction is a store of
    its neutral element, loops, and an update such as ``out[i] += x[i, k]``.  Scalars are NumPy's functions of one dtype:
    ``f32(codes[i]) * exp(x[i])``.  Indices count from 0; those that cannot be shown to be inside are checked while running.
    Elements of an output that no store reaches are undefined.

    The kernel is fused with its neighbours, tiled and spread over threads like those that the compiler makes;
    ``pattern="opaque"`` leaves it alone.  (Other patterns are found by the compiler, whatever the text says.)

    Raises ParseError or VerifyError, with the line, for a text that is no kernel.
    """
    if pattern is not None and pattern not in KINDS:
        raise ArgumentError(f"there is no pattern {pattern!r}", f"patterns are {', '.join(KINDS)}")
    if source is None:
        return functools.partial(kernel, pattern=pattern)
    return KernelFunction(source, read_kernel(source, pattern))


class KernelFunction:
    """A kernel as a function of its inputs: ``y = decode(codes, scale)``; several outputs are a tuple.

    Inputs have the dtypes and shapes that the kernel declares; a Python number may stand for an array without axes.  Sizes are
    read off the inputs where they stand alone in a shape; others are given by name, ``decode(codes, n=x.shape[0])``.  Inside a
    compiled function the call becomes part of the program.  Outside, on NumPy arrays, the kernel's own text is executed:
    slow, with every index checked, for trying it out.  `ir` is the kernel as the compiler sees it, `str` its text.

    A call raises `ArgumentError`, `DTypeError` or `ShapeError`, naming kernel and parameter, for inputs that do not fit, and
    `IndexingError` (an IndexError) for an index out of range.
    """

    def __init__(self, source: Callable | str, ir: Kernel):
        self.ir = ir
        self.__name__ = self.__qualname__ = ir.name
        if isinstance(source, types.FunctionType):
            functools.update_wrapper(self, source)
        self.__signature__ = inspect.Signature(
            [inspect.Parameter(v.name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for v in ir.inputs]
            + [inspect.Parameter(s, inspect.Parameter.KEYWORD_ONLY, default=None) for s in ir.sizes]
        )

    def __call__(self, *args, **sizes):
        """The outputs for these inputs: traced arrays inside a compiled function, else NumPy arrays."""
        inputs, given = self._bound(args, sizes)
        b = active()
        found = self._run(inputs, given) if b is None else self._trace(b, inputs, given)
        return found[0] if len(found) == 1 else found

    def __str__(self) -> str:
        return str(self.ir)

    def __repr__(self) -> str:
        return f"<kernel {self.usage}>"

    def __rich__(self):
        from minirelax.explore import highlighted

        return highlighted(self)

    def __reduce__(self):
        return kernel, (str(self.ir),)

    @property
    def usage(self) -> str:
        """How it is called."""
        shown = {n for v in self.ir.inputs for d in v.type.shape if (n := _bare(d))}
        inputs = [f"{v.name}: {v.type}" for v in self.ir.inputs]
        return f"{self.ir.name}({', '.join([*inputs, *(f'{s}=...' for s in self.ir.sizes if s not in shown)])})"

    # ---- arguments

    def _bound(self, args: tuple, named: dict[str, object]) -> tuple[list, dict[str, object]]:
        """The inputs, in order, and the sizes given by name."""
        kernel_, inputs = self.ir, [v.name for v in self.ir.inputs]
        if len(args) > len(inputs):
            raise ArgumentError(f"{kernel_.name} takes {len(inputs)} inputs, {len(args)} are given", self._hint())
        found = dict(zip(inputs, args, strict=False))
        given = {}
        for name, value_ in named.items():
            if name in found or name not in (*inputs, *kernel_.sizes):
                what = "is given twice" if name in found else "is no input or size"
                raise ArgumentError(f"{kernel_.name}: {name} {what}", self._hint())
            if value_ is not None:
                (found if name in inputs else given)[name] = value_
        if missing := [name for name in inputs if name not in found]:
            raise ArgumentError(f"{kernel_.name}: the input {missing[0]} is missing", self._hint())
        return [found[name] for name in inputs], given

    def _hint(self) -> str:
        made = " and ".join(v.name for v in self.ir.outputs)
        return f"call it as {self.usage}; {made} {'is' if len(self.ir.outputs) == 1 else 'are'} what it returns"

    def _check_input(self, param: Var, dtype: str | None, shape: Sequence[Dim]) -> None:
        given = f"{dtype or 'an array of another dtype'}[{', '.join(map(str, shape)) or '()'}]"
        what = f"{self.ir.name}: {param.name} must be {param.type}, not {given}"
        if dtype != param.type.dtype:
            raise DTypeError(what, f"convert it: {param.name}.astype(np.{NUMPY_DTYPES[param.type.dtype]})")
        if len(shape) != len(param.type.shape):
            axes = "axis" if len(shape) == 1 else "axes"
            raise ShapeError(f"{what}: {len(shape)} {axes}, not {len(param.type.shape)}", "reshape it")

    def _sizes(self, shapes: Sequence[tuple[Dim, ...]], given: dict[str, Dim], equal: Callable) -> dict[str, Dim]:
        """The values of all sizes: those given, and those that inputs show.  ``equal(a, b, what)`` makes sure of the others."""
        sizes, homes = dict(given), dict.fromkeys(given, "as given")
        for param, shape in zip(self.ir.inputs, shapes, strict=True):
            for axis, (d, found) in enumerate(zip(param.type.shape, shape, strict=True)):
                if (name := _bare(d)) and name not in sizes:
                    sizes[name], homes[name] = found, f"axis {axis} of {param.name}"
        if missing := [s for s in self.ir.sizes if s not in sizes]:
            raise ArgumentError(
                f"{self.ir.name}: no input shows the size {missing[0]}",
                f"give it by name: {self.ir.name}(..., {missing[0]}=x.shape[0])",
            )
        for param, shape in zip(self.ir.inputs, shapes, strict=True):
            for axis, (d, found) in enumerate(zip(param.type.shape, shape, strict=True)):
                home = homes.get(str(d))
                text = f"{d} ({home})" if home else str(d)
                equal(substitute(d, sizes), found, f"{self.ir.name}: axis {axis} of {param.name} must be {text}; they are")
        return sizes

    # ---- inside a trace

    def _trace(self, b: Builder, inputs: list, given: dict[str, object]) -> tuple[TracedArray, ...]:
        arrays = [self._traced_input(b, p, x) for p, x in zip(self.ir.inputs, inputs, strict=True)]
        dims = {name: self._given(name, x, b) for name, x in given.items()}
        sizes = self._sizes([a.dims for a in arrays], dims, require_equal)
        sizes = {name: b.facts.resolve(d) for name, d in sizes.items()}
        self._check_nonnegative(sizes, dims, is_nonnegative, b.facts.hint)
        atoms = tuple(self._conformed(b, p, x, sizes) for p, x in zip(self.ir.inputs, arrays, strict=True))
        call = CallKernel(b.kernel(self.ir), atoms, tuple(b.facts.resolve(sizes[s]) for s in self.ir.sizes))
        found = b.emit(call)
        return tuple(TracedArray(b, v) for v in (found if isinstance(found, tuple) else (found,)))

    def _traced_input(self, b: Builder, param: Var, x: object) -> TracedArray:
        array = asarray(x)
        if array.weak and not array.ndim and param.type.numpy_dtype.kind in WEAK[array.weak]:
            array = as_dtype(x, param.type.dtype)
        self._check_input(param, array.type.dtype, array.dims)
        return array.derived(b.op("full", array.atom, shape=())) if isinstance(array.atom, Const) else array

    def _conformed(self, b: Builder, param: Var, x: TracedArray, sizes: dict[str, Dim]):
        """The input with its sizes written as the kernel's declaration says them; that they are equal is known."""
        wanted = Tensor(param.type.dtype, tuple(substitute(d, sizes) for d in param.type.shape))
        return x.atom if b.type_of(x.atom) == wanted else b.emit(MatchCast(x.atom, wanted))

    def _given(self, name: str, x: object, b: Builder | None = None) -> Dim:
        """A size that is given by name."""
        if isinstance(x, Size) and b is not None:
            return b.facts.resolve(x.dim)
        if isinstance(x, int | np.integer) and not isinstance(x, bool):
            return int(x)
        raise ArgumentError(f"{self.ir.name}: the size {name} must be an integer, not {type(x).__name__}", "x.shape[0], or 16")

    def _check_nonnegative(self, sizes: dict[str, Dim], given: dict[str, Dim], holds: Callable, number: Callable) -> None:
        """No size is negative: those given, and those of what the kernel makes; `number` is what a size is in this call."""
        for name, d in given.items():
            if not holds(d):
                raise ShapeError(f"{self.ir.name}: the size {name} is negative: {d}")
        for v in (*self.ir.outputs, *self.ir.local):
            for axis, d in enumerate(v.type.shape):
                if not holds(substitute(d, sizes)):
                    known = ", ".join(f"{n} = {number(sizes[n])}" for n in self.ir.sizes)
                    raise ShapeError(f"{self.ir.name}: axis {axis} of {v.name}: {v.type} is negative where {known}")

    # ---- outside

    def _run(self, inputs: list, given: dict[str, object]) -> tuple[np.ndarray, ...]:
        """Execute the kernel's text."""
        from minirelax.ir.execute import execute

        arrays = [self._array(p, x) for p, x in zip(self.ir.inputs, inputs, strict=True)]
        dims = {name: self._given(name, x) for name, x in given.items()}
        sizes = self._sizes([a.shape for a in arrays], dims, _require_same)
        self._check_nonnegative(sizes, dims, lambda d: d >= 0, lambda d: d)
        try:
            return execute(self.ir, tuple(arrays), **{name: value(d, {}) for name, d in sizes.items()})
        except IndexingError as e:
            raise IndexingError(f"{self.ir.name}: {e.what}", e.hint) from None

    def _array(self, param: Var, x: object) -> np.ndarray:
        python = next((t for t in WEAK if isinstance(x, t) and not isinstance(x, np.generic)), None)
        fits = python is not None and param.type.numpy_dtype.kind in WEAK[python]
        array, _ = as_argument(x, f"{param.name} of {self.ir.name}", Tensor(param.type.dtype, ()) if fits else None)
        self._check_input(param, dtype_name(array.dtype), array.shape)
        return array


def _require_same(a: int, b: int, what: str) -> None:
    if a != b:
        raise ShapeError(f"{what} {b} and {a}")


def _bare(d: Dim) -> str | None:
    """The name of a size that stands alone."""
    return str(d) if isinstance(d, DimExpr) and d == symbol(str(d)) else None

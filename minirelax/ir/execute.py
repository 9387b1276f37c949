"""The loop level's meaning: a kernel's text, executed as Python on NumPy arrays.

Every number is a NumPy scalar of its dtype, so overflow, rounding and NaN are NumPy's.  A load or store outside its
buffer is a RunError, also where a ``where`` then drops the value: both sides of a ``where`` are evaluated.

>>> from minirelax.ir.parser import parse_kernel
>>> double = parse_kernel('''
... @kernel
... def double(x: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = x[i] * 2.0''')
>>> execute(double, (np.array([1, 2], np.float32),), n=2)
(array([2., 4.], dtype=float32),)
"""
from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from minirelax.errors import OUT_OF_RANGE, IndexingError, RunError
from minirelax.ir.dim import value
from minirelax.ir.loop import Kernel
from minirelax.ir.print_loops import print_kernel
from minirelax.ir.types import NUMPY_DTYPES, Tensor


def execute(kernel: Kernel, inputs: tuple[np.ndarray, ...], /, **sizes: int) -> tuple[np.ndarray, ...]:
    """The kernel's outputs, freshly allocated.  Slow: one Python statement for each store."""
    outputs = tuple(allocate(v.type, sizes) for v in kernel.outputs)
    execute_into(kernel, inputs, outputs, sizes)
    return outputs


def execute_into(kernel: Kernel, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], sizes: Mapping[str, int]) -> None:
    """Run the kernel on arrays of the right dtypes and shapes, writing `outputs`."""
    params = (*kernel.inputs, *kernel.outputs)
    buffers = [_Buffer(v.name, kernel.name, a) for v, a in zip(params, (*inputs, *outputs), strict=True)]
    with np.errstate(all="ignore"):
        python_function(kernel)(*buffers, **{name: sizes[name] for name in kernel.sizes})


def allocate(type_: Tensor, sizes: Mapping[str, int]) -> np.ndarray:
    """An array full of values that give away a read before the first write: NaN, or the largest integer."""
    dtype = type_.numpy_dtype
    poison = np.nan if dtype.kind in "fc" else True if dtype.kind == "b" else np.iinfo(dtype).max
    return np.full(tuple(value(d, sizes) for d in type_.shape), poison, dtype)


@functools.lru_cache(512)
def python_function(kernel: Kernel) -> Callable:
    """The kernel's own text, compiled by Python; takes `_Buffer`s, then sizes by keyword."""
    tree = _Executable(kernel.name).visit(ast.parse(print_kernel(kernel, typed=True)))
    scope: dict[str, object] = {}
    exec(compile(ast.fix_missing_locations(tree), f"<kernel {kernel.name}>", "exec"), _Globals(kernel.name), scope)
    return scope[kernel.name]


class _Executable(ast.NodeTransformer):
    """Drops annotations, and renames what is called (``exp`` to ``@exp``): a buffer or a size may have the same name."""

    def __init__(self, kernel: str):
        self.kernel = kernel

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.decorator_list = []
        for a in node.args.args:
            a.annotation = None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name, dtype = node.func.id, NUMPY_DTYPES.get(node.func.id)
        if name == "local":
            return ast.Call(ast.Name("@local", ast.Load()), [ast.Constant(self.kernel), *self._buffer(node.args[0])], [])
        if dtype is not None and _is_number(node.args[0]):
            return ast.Name(f"@{ast.unparse(node)}", ast.Load())          # a constant: made once, by `_Globals`
        node.func = ast.Name(f"@{name}", ast.Load())
        node.keywords = [ast.keyword(k.arg, ast.Constant(k.value.id)) for k in node.keywords]
        node.args = [self.visit(a) for a in node.args]
        return node

    def _buffer(self, type_: ast.Subscript) -> list[ast.expr]:
        sizes = type_.slice.elts if isinstance(type_.slice, ast.Tuple) else [type_.slice]
        return [ast.Constant(type_.value.id), ast.Tuple([self.visit(s) for s in sizes], ast.Load())]


class _Globals(dict):
    """What a kernel's text calls, under ``@`` and its name, made when first asked for."""

    def __init__(self, kernel: str):
        super().__init__(__builtins__={"__build_class__": None})
        self.kernel = kernel

    def __missing__(self, name: str):
        if not name.startswith("@"):
            raise KeyError(name)
        self[name] = found = self._named(name[1:])
        return found

    def _named(self, name: str) -> object:
        if name.endswith(")"):                                          # f32(0.5)
            dtype, _, number = name[:-1].partition("(")
            return _convert(NUMPY_DTYPES[dtype], eval(number, {"inf": math.inf, "nan": math.nan, "complex": complex}))
        if name in NUMPY_DTYPES:
            return functools.partial(_convert, NUMPY_DTYPES[name])
        if name in FUNCTIONS:
            return FUNCTIONS[name]
        if not isinstance(function := getattr(np, name, None), np.ufunc):
            raise RunError(f"kernel {self.kernel} calls {name}, which is not a function of NumPy scalars", where="")
        return functools.partial(_call, function)


def _call(function: Callable, *args, dtype: str | None = None):
    return function(*args) if dtype is None else _convert(NUMPY_DTYPES[dtype], function(*args))


def _convert(dtype: np.dtype, x):
    return np.asarray(x).astype(dtype)[()]


def _where(condition, x, y):
    return x if condition else y


def _check_index(index, extent, dtype: str | None = None):
    if not 0 <= index < extent:
        raise IndexingError(f"index {index} is out of bounds for size {extent}", OUT_OF_RANGE, where="")
    return index


FUNCTIONS: dict[str, Callable] = {
    "range": range, "min": min, "max": max, "size": np.int64, "where": _where, "check_index": _check_index,
    "complex": lambda real, imag: np.array([real, imag]).view(np.result_type(real, np.complex64))[0],
    "real": np.real, "imag": np.imag,
    "cast": lambda x, dtype: _convert(NUMPY_DTYPES[dtype], x),
    "erf": lambda x: x.dtype.type(math.erf(x)),
    "local": lambda kernel, dtype, sizes: _Buffer("a local buffer", kernel, allocate(Tensor(dtype, tuple(map(int, sizes))), {}))}


class _Buffer:
    """An array whose indices are checked: negative ones do not count from the end."""

    __slots__ = ("array", "kernel", "name", "shape")

    def __init__(self, name: str, kernel: str, array: np.ndarray):
        self.name, self.kernel, self.array, self.shape = name, kernel, array, array.shape

    def __getitem__(self, index):
        self._check(index)
        return self.array[index]

    def __setitem__(self, index, value) -> None:
        self._check(index)
        self.array[index] = value

    def _check(self, index) -> None:
        at = index if isinstance(index, tuple) else (index,)
        if len(at) != len(self.shape) or not all(0 <= i < d for i, d in zip(at, self.shape, strict=True)):
            place = f"{self.name}[{', '.join(map(str, at))}]"
            raise RunError(f"kernel {self.kernel} uses {place}, outside its shape {self.shape}", where="")


def _is_number(node: ast.expr) -> bool:
    match node:
        case ast.Constant() | ast.Name(id="inf" | "nan"):
            return True
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _is_number(operand)
        case ast.Call(func=ast.Name(id="complex"), args=parts):
            return all(map(_is_number, parts))
    return False

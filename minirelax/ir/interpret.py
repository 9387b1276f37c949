"""Run a module with NumPy, at any stage: what the IR means.

Ops run by their own `numpy` rule, kernels by executing their text, library calls by what is registered.  Declared types
are checked against the arrays that come out, so a wrong `infer` rule or pass shows here.

>>> from minirelax.ir.parser import parse
>>> module = parse('''
... def main(x: f32[_]) -> Tuple[f32[n, 2], f32[_]]:
...     with dataflow():
...         v0: f32[n, 2] = match_cast(x, f32[n, 2])
...         v1: Tuple[f32[n, 2], f32[_]] = (v0, x)
...         output(v1)
...     return v1''')
>>> interpret(module, np.zeros(4, np.float32))
Traceback (most recent call last):
    ...
minirelax.errors.ShapeError: match_cast: expected f32[n, 2], got an array of shape (4,)
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minirelax.errors import OUT_OF_RANGE, ArgumentError, DTypeError, IndexingError, RunError, ShapeError, line_text
from minirelax.ir.dim import Dim, DimExpr, names, value
from minirelax.ir.execute import allocate, execute_into
from minirelax.ir.graph import (
    AllocStorage,
    AllocTensor,
    Atom,
    CallFunction,
    CallKernel,
    CallLibrary,
    Const,
    Expr,
    Function,
    Heap,
    MakeTuple,
    MatchCast,
    MatchShape,
    Module,
    RunKernel,
    RunLibrary,
    Source,
    TupleItem,
    View,
)
from minirelax.ir.infer import bound_sizes, extra_sizes
from minirelax.ir.library import library_op, routine
from minirelax.ir.loop import Kernel
from minirelax.ir.op import Op
from minirelax.ir.types import NUMPY_DTYPES, Shape, Tensor, Tuple, Type, dtype_name

Value = np.ndarray | tuple


def interpret(module: Module, *args: object, bound: Mapping[str, object] | Sequence[object] | None = None,
              function: str | None = None) -> Value:
    """The result of calling a function of the module (by default the first public one) on arrays.

    `bound` are the values of its bound parameters, in order or by name.  Guards are not checked.  Raises ArgumentError,
    DTypeError or ShapeError for arguments that do not fit, RunError for an index out of range.
    """
    chosen = module[function] if function else next(f for f in module.functions if not f.private)
    given = [bound[v.name] for v in chosen.bound] if isinstance(bound, Mapping) else list(bound or ())
    if len(args) != len(chosen.params) or len(given) != len(chosen.bound):
        raise ArgumentError(f"{chosen.name} takes {len(chosen.params)} arguments and {len(chosen.bound)} bound ones; "
                            f"{len(args)} and {len(given)} are given")
    return _Frame(module, chosen, (*args, *given), {}).run()


def match(type_: Type, given: Value, sizes: dict[str, int], what: str) -> None:
    """Check a value against a type; named sizes that stand alone get their number at first sight.

    Raises ShapeError or DTypeError, which say what was expected, what came, and where a size was known from.
    """
    if isinstance(type_, Tuple):
        if not isinstance(given, tuple) or len(given) != len(type_.items):
            raise ShapeError(f"{what}: expected {type_}, got {type(given).__name__}")
        for item, v in zip(type_.items, given, strict=True):
            match(item, v, sizes, what)
    elif isinstance(type_, Shape) and type_.values is not None:
        _match_sizes(type_, type_.values, tuple(map(int, given)), sizes, what)
    elif isinstance(type_, Tensor):
        if not isinstance(given, np.ndarray) or dtype_name(given.dtype) != type_.dtype:
            raise DTypeError(f"{what}: expected {type_}, got {getattr(given, 'dtype', type(given).__name__)}")
        if type_.shape is not None:
            _match_sizes(type_, type_.shape, given.shape, sizes, what)


def _match_sizes(type_: Type, dims: tuple[Dim | None, ...], shape: tuple[int, ...], sizes: dict[str, int], what: str) -> None:
    came = f"{what}: expected {type_}, got an array of shape {shape}"
    if len(dims) != len(shape):
        raise ShapeError(came, where="")
    alone = {str(d) for d in dims if isinstance(d, DimExpr)} & bound_sizes(Tensor("f32", dims))
    for d, actual in zip(dims, shape, strict=True):
        if str(d) in alone:
            sizes.setdefault(str(d), actual)
    for d, actual in zip(dims, shape, strict=True):
        if d is not None and (unknown := names(d) - sizes.keys()):
            raise ShapeError(f"{came}: {min(unknown)} is not known", where="")
        if d is not None and value(d, sizes) != actual:
            raise ShapeError(came + ("" if isinstance(d, int) else f": {d} is {value(d, sizes)}"), where="")


class _Frame:
    """One call of a function: the values and sizes known so far."""

    def __init__(self, module: Module, function: Function, args: tuple, sizes: dict[str, int]):
        self.module, self.function, self.sizes = module, function, dict(sizes)
        self.values: dict[str, Value] = {c.name: c.array.value for c in module.constants}
        params = (*function.params, *function.bound)
        arrays = [_array(a, v.type) for v, a in zip(params, args, strict=True)]
        for v, a in sorted(zip(params, arrays, strict=True), key=lambda p: not _shows_all(p[0].type)):
            match(v.type, a, self.sizes, f"{function.name}: argument {v.name}")
            self.values[v.name] = a

    def run(self) -> Value:
        for binding in self.function.bindings:
            if binding.var is None:
                self._effect(binding.value)
            else:
                try:
                    found = self._value(binding.value, binding.var.type)
                except (IndexError, ShapeError) as e:
                    raise _located(e, binding.source) from None
                match(binding.var.type, found, self.sizes, f"{self.function.name}: {binding.var.name}")
                self.values[binding.var.name] = found
        return self._read(self.function.result)

    def _read(self, atom: Atom) -> Value:
        return np.array(atom.value, NUMPY_DTYPES[atom.dtype]) if isinstance(atom, Const) else self.values[atom.name]

    def _all(self, atoms: tuple[Atom, ...]) -> tuple[Value, ...]:
        return tuple(map(self._read, atoms))

    def _number(self, size: object) -> object:
        """Attributes with sizes evaluated."""
        if isinstance(size, tuple):
            return tuple(map(self._number, size))
        return value(size, self.sizes) if isinstance(size, DimExpr) else size

    def _value(self, expr: Expr, type_: Type) -> Value:
        match expr:
            case Op():
                return _result(expr.with_sizes(self.sizes).numpy(*self._all(expr.operands())))
            case MatchCast(value=v, type=wanted):
                match(wanted, self._read(v), self.sizes, "match_cast")
                return self._read(v)
            case MakeTuple(items=items):
                return self._all(items)
            case TupleItem(value=v, index=index):
                return self._read(v)[index]
            case CallFunction(function=name, args=args, sizes=sizes):
                callee = self.module[name]
                given = dict(zip(extra_sizes(callee), map(self._number, sizes), strict=True))
                return _Frame(self.module, callee, self._all(args), given).run()
            case CallKernel(kernel=name, args=args, sizes=sizes):
                kernel = self.module[name]
                out = tuple(allocate(t, self._kernel_sizes(kernel, sizes)) for t in kernel.types)
                self._run_kernel(kernel, args, out, sizes)
                return out[0] if len(out) == 1 else out
            case CallLibrary():
                return self._library(expr)
            case AllocStorage(bytes=size):
                return np.full(self._number(size), 0xA5, np.uint8)
            case AllocTensor(storage=storage):
                return self._tensor(type_, storage)
            case View(value=v):
                return self._read(v).reshape(self._number(type_.shape))
        raise RunError(f"there is no way to run {type(expr).__name__}", where="")

    def _tensor(self, type_: Tensor, storage: tuple[Atom, ...]) -> np.ndarray:
        if not storage:
            return allocate(type_, self.sizes)
        shape = self._number(type_.shape)
        size = int(np.prod(shape, dtype=np.int64)) * type_.numpy_dtype.itemsize
        memory = self._read(storage[0])
        if size > memory.size:
            raise RunError(f"a tensor of {size} bytes does not fit into a storage of {memory.size}", where="")
        return memory[:size].view(type_.numpy_dtype).reshape(shape)

    def _effect(self, expr: Expr) -> None:
        match expr:
            case RunKernel(kernel=name, args=args, out=out, sizes=sizes):
                self._run_kernel(self.module[name], args, self._all(out), sizes)
            case RunLibrary(out=out):
                result = self._library(expr)
                for target, found in zip(self._all(out), result if isinstance(result, tuple) else (result,), strict=True):
                    target[...] = found
            case MatchShape(value=v, pattern=pattern):
                match(Tensor(v.type.dtype, pattern), self._read(v), self.sizes, "match_shape")
            case Heap(value=size):
                self._number(size)

    def _kernel_sizes(self, kernel: Kernel, sizes: tuple[Dim, ...]) -> dict[str, int]:
        return dict(zip(kernel.sizes, map(self._number, sizes), strict=True))

    def _run_kernel(self, kernel: Kernel, args: tuple[Atom, ...], out: tuple[np.ndarray, ...], sizes: tuple[Dim, ...]) -> None:
        numbers, inputs = self._kernel_sizes(kernel, sizes), self._all(args)
        for v, array in zip((*kernel.inputs, *kernel.outputs), (*inputs, *out), strict=True):
            match(v.type, array, dict(numbers), f"{kernel.name}: {v.name}")
        execute_into(kernel, inputs, out, numbers)

    def _library(self, expr: CallLibrary | RunLibrary) -> Value:
        arrays = self._all(expr.args)
        if op := library_op(expr):
            return _result(op.with_sizes(self.sizes).numpy(*arrays))
        return _result(routine(expr.routine)(*arrays, **{name: self._number(v) for name, v in expr.options}))


def _located(error: IndexError | ShapeError, source: Source | None) -> IndexError | ShapeError:
    """An index out of range, or a size that is not what was promised, with the user's line that asked for it."""
    where = line_text(source.file, source.line) if source else ""
    if isinstance(error, ShapeError):
        return error if error.where else ShapeError(error.what, error.hint, where)
    return error if isinstance(error, IndexingError) else IndexingError(str(error), OUT_OF_RANGE, where)


def _result(found: object) -> Value:
    return tuple(map(_result, found)) if isinstance(found, tuple | list) else np.asarray(found)


def _array(given: object, type_: Type) -> object:
    """An argument as an array; a Python number takes the declared dtype."""
    if isinstance(type_, Tensor):
        return np.asarray(given, type_.numpy_dtype if isinstance(given, bool | int | float) else None)
    if isinstance(type_, Tuple) and isinstance(given, tuple | list) and len(given) == len(type_.items):
        return tuple(map(_array, given, type_.items))
    return given


def _shows_all(type_: Type) -> bool:
    """Does a value of this type show all sizes that the type mentions?"""
    dims = getattr(type_, "shape", None) or ()
    return all(d is None or names(d) <= bound_sizes(type_) for d in dims)

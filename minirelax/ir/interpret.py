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
minirelax.errors.ShapeError: main: match_cast of x: expected f32[n, 2], got an array of shape (4,): 1 axis, not 2
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from minirelax.errors import (
    OUT_OF_RANGE,
    ArgumentError,
    CompileError,
    DTypeError,
    IndexingError,
    LibraryError,
    RunError,
    ShapeError,
    line_text,
)
from minirelax.ir.boundary import Given, Known, arguments, check, shape_value
from minirelax.ir.dim import Dim, DimExpr, names, value
from minirelax.ir.execute import allocate, execute_into
from minirelax.ir.graph import (
    Alias,
    AllocStorage,
    AllocTensor,
    Atom,
    CallFunction,
    CallKernel,
    CallLibrary,
    CallValue,
    Cond,
    Const,
    Expr,
    Function,
    Heap,
    MakeShape,
    MakeTuple,
    MatchCast,
    MatchShape,
    Module,
    RunCond,
    RunKernel,
    RunLibrary,
    RunScan,
    RunWhile,
    Scan,
    Source,
    TupleItem,
    View,
    While,
)
from minirelax.ir.library import call_into, call_returning, library_op, makes_room
from minirelax.ir.loop import Kernel
from minirelax.ir.op import Op
from minirelax.ir.types import NUMPY_DTYPES, Shape, Tensor, Tuple, Type

Value = np.ndarray | tuple


def interpret(module: Module, *args: object, bound: Mapping[str, object] | Sequence[object] | None = None,
              function: str | None = None, called: str | None = None) -> Value:
    """The result of calling a function of the module (by default the first public one) on arrays.

    `bound` are the values of its bound parameters, in order or by name; `called` is how errors call the function.  A shape is
    given as a tuple of integers, or an array of them.  Guards are not checked.  Raises ArgumentError, DTypeError or ShapeError
    for arguments that do not fit, RunError for an index out of range.
    """
    chosen = module[function] if function else next(f for f in module.functions if not f.private)
    given = [bound[v.name] for v in chosen.bound] if isinstance(bound, Mapping) else list(bound or ())
    if len(args) != len(chosen.params) or len(given) != len(chosen.bound):
        raise ArgumentError(f"{chosen.name} takes {len(chosen.params)} arguments and {len(chosen.bound)} bound ones; "
                            f"{len(args)} and {len(given)} are given")
    return _call(module, chosen, (*args, *given), called or chosen.name)


def _call(module: Module, function: Function, args: tuple, called: str = "") -> Value:
    """The function's result; RunError for a recursion that does not end soon enough."""
    try:
        return _Frame(module, function, args, called or function.name).run()
    except RecursionError:
        raise RunError(f"{function.name} calls itself too often", "more than Python's own limit on recursion", where="") from None


class _Frame:
    """One call of a function: the values and sizes known so far."""

    def __init__(self, module: Module, function: Function, args: tuple, called: str):
        self.module, self.function, self.called = module, function, called
        self.known = Known()
        self.sizes = self.known.sizes
        self.values: dict[str, Value] = {c.name: c.array.value for c in module.constants}
        params = (*function.params, *function.bound)
        values = [_argument(a, v.type) for v, a in zip(params, args, strict=True)]
        check(arguments(params, values, called), self.known)
        self.values |= {v.name: a for v, a in zip(params, values, strict=True)}

    def run(self) -> Value:
        for binding in self.function.bindings:
            if binding.var is None:
                try:
                    self._effect(binding.value)
                except LibraryError as e:
                    raise _located(e, binding.source) from e.__cause__
            else:
                try:
                    found = self._value(binding.value, binding.var.type)
                except LibraryError as e:
                    raise _located(e, binding.source) from e.__cause__
                except (IndexError, ShapeError, DTypeError) as e:
                    raise _located(e, binding.source) from None
                self._check(binding.var.name, binding.var.name, binding.var.type, found)
                self.values[binding.var.name] = found
        result, returns = self._read(self.function.result), self.function.returns
        if returns is not None:
            self._check("the result", "the result", returns, result)
        return result

    def _check(self, what: str, name: str, type_: Type, found: Value) -> None:
        check((Given(f"{self.called}: {what}", name, type_, found),), self.known)

    def _read(self, atom: Atom) -> Value:
        if isinstance(atom, Const):
            return np.array(atom.value, NUMPY_DTYPES[atom.dtype])
        if atom.name in self.values:
            return self.values[atom.name]
        function = self.module[atom.name]
        return lambda *args: _call(self.module, function, args)

    def _call(self, function: str, args: tuple) -> Value:
        return _call(self.module, self.module[function], args)

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
                found = expr.with_sizes(self.sizes).numpy(*self._all(expr.operands()))
                return found if isinstance(type_, Shape) else _result(found)
            case MatchCast(value=v, type=wanted):
                self._check(f"match_cast of {_text(v)}", _text(v), wanted, self._read(v))
                return self._read(v)
            case MakeTuple(items=items):
                return self._all(items)
            case TupleItem(value=v, index=index):
                return self._read(v)[index]
            case CallFunction(function=name, args=args):
                return self._call(name, self._all(args))
            case CallValue(callee=callee, args=args):
                return self._read(callee)(*self._all(args))
            case Cond() | While() | Scan():
                return self._control(expr)
            case MakeShape(values=values):
                return self._number(values)
            case Alias(value=v):
                return self._read(v)
            case CallKernel(kernel=name, args=args, sizes=sizes):
                kernel = self.module[name]
                out = tuple(allocate(t, self._kernel_sizes(kernel, sizes)) for t in kernel.types)
                self._run_kernel(kernel, args, out, sizes)
                return out[0] if len(out) == 1 else out
            case CallLibrary():
                return self._library(expr, type_)
            case AllocStorage(bytes=size):
                return np.full(self._number(size), 0xA5, np.uint8)
            case AllocTensor(storage=storage, offset=offset):
                return self._tensor(type_, storage, self._number(offset))
            case View(value=v, offset=offset):
                return _part(self._read(v), self._number(offset), self._number(type_.shape))
        raise RunError(f"there is no way to run {type(expr).__name__}", where="")

    def _tensor(self, type_: Tensor, storage: tuple[Atom, ...], offset: int = 0) -> np.ndarray:
        if not storage:
            return allocate(type_, self.sizes)
        shape = self._number(type_.shape)
        size = int(np.prod(shape, dtype=np.int64)) * type_.numpy_dtype.itemsize
        memory = self._read(storage[0])[offset:]
        if size > memory.size:
            raise RunError(f"a tensor of {size} bytes does not fit into a storage of {memory.size}", where="")
        return memory[:size].view(type_.numpy_dtype).reshape(shape)

    def _control(self, expr: Cond | While | Scan | RunCond | RunWhile | RunScan) -> Value:
        match expr:
            case Cond(condition=c, args=args) | RunCond(condition=c, args=args):
                return self._call(expr.then if self._read(c) else expr.otherwise, self._all(args))
            case While(test=test, body=body) | RunWhile(test=test, body=body):
                args, carried = self._all(expr.args), self._all(expr.init)
                while self._call(test, (*args, *carried)):
                    carried = self._call(body, (*args, *carried))
                return carried
        return self._scan(expr)

    def _scan(self, expr: Scan | RunScan) -> Value:
        args, carried, xs = self._all(expr.args), self._all(expr.init), self._all(expr.xs)
        length, count = self._number(expr.length), len(expr.init)
        if any(len(x) != length for x in xs):
            raise ShapeError(f"scan: {length} slices expected, the arrays have {', '.join(str(len(x)) for x in xs)}", where="")
        rows: list[tuple[np.ndarray, ...]] = []
        for i in reversed(range(length)) if expr.reverse else range(length):
            made = self._call(expr.body, (*args, *carried, *(np.asarray(x[i]) for x in xs)))
            carried = made[:count]
            rows.append(made[count:])
        rows = rows[::-1] if expr.reverse else rows
        types = self.module[expr.body].type.result.items[count:]
        return *carried, *(np.stack([r[k] for r in rows]) if rows else self._no_rows(t) for k, t in enumerate(types))

    def _no_rows(self, type_: Tensor) -> np.ndarray:
        """What stacking nothing gives; sizes that only a round would tell are 0, as no element has them."""
        shape = (0, *(value(d, self.sizes) if d is not None and names(d) <= self.sizes.keys() else 0 for d in type_.shape))
        return np.zeros(shape, type_.numpy_dtype)

    def _effect(self, expr: Expr) -> None:
        match expr:
            case RunKernel(kernel=name, args=args, out=out, sizes=sizes):
                self._run_kernel(self.module[name], args, self._all(out), sizes)
            case RunLibrary(out=out):
                self._library_into(expr, self._all(out))
            case RunCond(out=out) | RunWhile(out=out) | RunScan(out=out):
                result = self._control(expr)
                for target, found in zip(self._all(out), result if isinstance(result, tuple) else (result,), strict=True):
                    target[...] = found
            case MatchShape(value=v, pattern=pattern):
                wanted = Shape(pattern) if isinstance(v.type, Shape) else Tensor(v.type.dtype, pattern)
                self._check(f"the sizes of {_text(v)}", _text(v), wanted, self._read(v))
            case Heap(value=size):
                self._number(size)

    def _kernel_sizes(self, kernel: Kernel, sizes: tuple[Dim, ...]) -> dict[str, int]:
        return dict(zip(kernel.sizes, map(self._number, sizes), strict=True))

    def _run_kernel(self, kernel: Kernel, args: tuple[Atom, ...], out: tuple[np.ndarray, ...], sizes: tuple[Dim, ...]) -> None:
        numbers, inputs = self._kernel_sizes(kernel, sizes), self._all(args)
        for v, array in zip((*kernel.inputs, *kernel.outputs), (*inputs, *out), strict=True):
            check((Given(f"{kernel.name}: {v.name}", v.name, v.type, array),), Known(dict(numbers)))
        execute_into(kernel, inputs, out, numbers)

    def _library(self, expr: CallLibrary, type_: Type) -> Value:
        if op := library_op(expr):
            found = op.with_sizes(self.sizes).numpy(*self._all(expr.args))
            return found if isinstance(type_, Shape) else _result(found)
        types = type_.items if isinstance(type_, Tuple) else (type_,)
        if makes_room(type_):
            made = tuple(allocate(t, self.sizes) for t in types)
            self._library_into(expr, made)
        else:
            expected = [(getattr(t, "dtype", None), self._number(getattr(t, "shape", None))) for t in types]
            made = call_returning(expr.routine, self._all(expr.args), expected, self._number(expr.sizes))
        return made if isinstance(type_, Tuple) else made[0]

    def _library_into(self, expr: CallLibrary | RunLibrary, out: tuple[np.ndarray, ...]) -> None:
        arrays = self._all(expr.args)
        if op := library_op(expr):
            result = _result(op.with_sizes(self.sizes).numpy(*arrays))
            for target, found in zip(out, result if isinstance(result, tuple) else (result,), strict=True):
                target[...] = found
        else:
            call_into(expr.routine, arrays, out, self._number(expr.sizes))


def _part(array: np.ndarray, offset: int, shape: tuple[int, ...]) -> np.ndarray:
    """The elements of an array from number `offset` on, seen in this shape."""
    count = int(np.prod(shape, dtype=np.int64))
    if offset < 0 or offset + count > array.size:
        raise RunError(f"there are no {count} elements from {offset} on in an array of {array.size}", where="")
    return array.reshape(-1)[offset:offset + count].reshape(shape)


def _located(error: IndexError | CompileError, source: Source | None) -> IndexError | CompileError:
    """An index out of range, or a value that is not of the type that was promised, with the user's line that asked for it."""
    where = line_text(source.file, source.line) if source else ""
    if isinstance(error, LibraryError):
        return error if error.where else LibraryError(error.what, error.hint, error.routine, where)
    if isinstance(error, ShapeError | DTypeError):
        return error if error.where else type(error)(error.what, error.hint, where)
    if isinstance(error, IndexingError):
        return error if error.where else IndexingError(error.what, error.hint, where)
    return IndexingError(str(error), OUT_OF_RANGE, where)


def _result(found: object) -> Value:
    return tuple(map(_result, found)) if isinstance(found, tuple | list) else np.asarray(found)


def _argument(given: object, type_: Type) -> object:
    """An argument as a value of the IR: an array (a Python number takes the declared dtype), a shape as a tuple of integers."""
    if isinstance(type_, Tensor):
        number = isinstance(given, bool | int | float | complex) and type_.dtype is not None
        return np.asarray(given, type_.numpy_dtype if number else None)
    if isinstance(type_, Tuple) and isinstance(given, tuple | list) and len(given) == len(type_.items):
        return tuple(map(_argument, given, type_.items))
    return shape_value(given) if isinstance(type_, Shape) else given


def _text(atom: Atom) -> str:
    return repr(atom.value) if isinstance(atom, Const) else atom.name

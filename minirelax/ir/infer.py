"""The type of every right-hand side, from the types of its operands: forward, local, and the same at every stage.

>>> from minirelax.ir.graph import CallKernel, Module, Var
>>> from minirelax.ir.parser import parse_kernel
>>> from minirelax.ir.dim import dim
>>> kernel = parse_kernel('''
... @kernel
... def double(x: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = x[i] * 2.0''')
>>> infer_binding(CallKernel("double", (Var("x", Tensor("f32", (8,))),), (8,)), Module((), (kernel,)))
f32[8]
"""
from __future__ import annotations

import functools
from collections.abc import Iterator

from minirelax.errors import ShapeError, VerifyError
from minirelax.ir.dim import Dim, DimExpr, names
from minirelax.ir.graph import (
    AllocStorage,
    Atom,
    CallFunction,
    CallKernel,
    CallLibrary,
    Expr,
    Function,
    MakeTuple,
    MatchCast,
    MatchShape,
    Module,
    TupleItem,
    Var,
)
from minirelax.ir.library import library_op
from minirelax.ir.loop import Kernel
from minirelax.ir.op import Op
from minirelax.ir.types import Object, Shape, Storage, Tensor, Tuple, Type, substitute_type


def infer_binding(expr: Expr, module: Module) -> Type:
    """The type of `expr`'s value; `Object` where only the binding's annotation says it (allocations, views, unknown routines).

    Raises ShapeError, DTypeError or VerifyError if the operands do not fit.
    """
    match expr:
        case Op():
            return infer_op(expr)
        case CallKernel(kernel=name, args=args, sizes=sizes):
            return call_kernel_type(_kernel(module, name), args, sizes)
        case CallFunction(function=name, args=args, sizes=sizes):
            return call_function_type(_function(module, name), args, sizes)
        case CallLibrary():
            return infer_op(op) if (op := library_op(expr)) else Object()
        case MatchCast(value=value, type=type_):
            return check_match(value.type, type_)
        case MakeTuple(items=items):
            return Tuple(tuple(a.type for a in items))
        case TupleItem(value=value, index=index):
            return _item(value.type, index)
        case AllocStorage(bytes=size):
            return Storage(size)
    return Object()


@functools.lru_cache(16384)
def infer_op(op: Op) -> Type:
    """What the op's own rule says; several results are a tuple.  (Cached: between two passes most ops stay.)"""
    result = op.infer(*(a.type for a in op.operands()))
    return Tuple(result) if isinstance(result, tuple) else result


def call_kernel_type(kernel: Kernel, args: tuple[Atom, ...], sizes: tuple[Dim, ...]) -> Type:
    """The outputs' types at a call; VerifyError if the arguments do not fit the inputs."""
    values = kernel_sizes(kernel, sizes)
    check_buffers(kernel.name, kernel.inputs, args, values)
    types = tuple(_at_sizes(v.type, tuple(values.items())) for v in kernel.outputs)
    return types[0] if len(types) == 1 else Tuple(types)


def kernel_sizes(kernel: Kernel, sizes: tuple[Dim, ...]) -> dict[str, Dim]:
    """The values of the kernel's size parameters at a call."""
    if len(sizes) != len(kernel.sizes):
        raise VerifyError(f"{kernel.name} has the sizes ({', '.join(kernel.sizes)}), {len(sizes)} are given", where="")
    return dict(zip(kernel.sizes, sizes, strict=True))


def check_buffers(name: str, params: tuple[Var, ...], args: tuple[Atom, ...], values: dict[str, Dim]) -> None:
    """VerifyError if `args` are not of the parameters' types, sizes being `values`."""
    if len(params) != len(args):
        raise VerifyError(f"{name} takes {len(params)} arrays, {len(args)} are given", where="")
    at = tuple(values.items())
    for param, arg in zip(params, args, strict=True):
        if arg.type != (expected := _at_sizes(param.type, at)):
            raise VerifyError(f"{name} expects {expected} as {param.name}, not {arg.type}", where="")


@functools.lru_cache(16384)
def _at_sizes(type_: Type, values: tuple[tuple[str, Dim], ...]) -> Type:
    return substitute_type(type_, dict(values))


def call_function_type(function: Function, args: tuple[Atom, ...], sizes: tuple[Dim, ...]) -> Type:
    """The result's type at a call.  The callee's signature is all that counts: a size bound inside it is unknown outside."""
    params = (*function.params, *function.bound)
    if len(params) != len(args):
        raise VerifyError(f"{function.name} takes {len(params)} values, {len(args)} are given", where="")
    values = call_sizes(function, args, sizes)
    for param, arg in zip(params, args, strict=True):
        if not accepts(expected := substitute_type(param.type, values), arg.type):
            raise VerifyError(f"{function.name} expects {expected} as {param.name}, not {arg.type}", where="")
    return _outside(function.result.type, values)


def call_sizes(function: Function, args: tuple[Atom, ...], sizes: tuple[Dim, ...]) -> dict[str, Dim]:
    """What the function's named sizes are at a call: shown by the arguments' types, or given."""
    extra = extra_sizes(function)
    if len(extra) != len(sizes):
        raise VerifyError(f"{function.name} needs the sizes ({', '.join(extra)}), {len(sizes)} are given", where="")
    values = dict(zip(extra, sizes, strict=True))
    for param, arg in zip((*function.params, *function.bound), args, strict=True):
        for name, d in _shown(param.type, arg.type):
            values.setdefault(name, d)
    return values


@functools.lru_cache(4096)
def extra_sizes(function: Function) -> tuple[str, ...]:
    """The sizes that a function mentions and neither a parameter's shape nor a match_cast shows, in order of appearance."""
    found: dict[str, None] = {}
    for v in (*function.params, *function.bound):
        found.update(dict.fromkeys(mentioned(v.type)))
    for b in function.bindings:
        for a in b.value.attributes().values():
            found.update(dict.fromkeys(mentioned(a)))
        if b.var:
            found.update(dict.fromkeys(mentioned(b.var.type)))
    known = {n for v in (*function.params, *function.bound) for n in bound_sizes(v.type)}
    for b in function.bindings:
        known |= binding_sizes(b.value)
    return tuple(n for n in found if n not in known)


def binding_sizes(expr: Expr) -> frozenset[str]:
    """The names of sizes that a right-hand side gives a value to."""
    match expr:
        case MatchCast(type=type_):
            return bound_sizes(type_)
        case MatchShape(binds=binds):
            return frozenset(binds)
    return frozenset()


@functools.lru_cache(16384)
def bound_sizes(type_: Type) -> frozenset[str]:
    """The names of sizes that stand alone in a shape, so that a value of the type shows them."""
    match type_:
        case Tensor(shape=dims) | Shape(values=dims) if dims is not None:
            return frozenset(next(iter(names(d))) for d in dims if isinstance(d, DimExpr) and _is_name(d))
        case Tuple(items=items):
            return frozenset().union(*map(bound_sizes, items))
    return frozenset()


def mentioned(thing: object) -> Iterator[str]:
    """The names of sizes in a type, a size, or an attribute's value, in order."""
    match thing:
        case DimExpr():
            yield from sorted(names(thing))
        case Tensor(shape=dims) | Shape(values=dims) if dims is not None:
            for d in dims:
                yield from mentioned(d)
        case Tuple(items=inside) | tuple(inside):
            for t in inside:
                yield from mentioned(t)
        case Storage(bytes=size):
            yield from mentioned(size)


@functools.lru_cache(16384)
def mentioned_names(thing: object) -> frozenset[str]:
    """The names of sizes in a type, a size, or an attribute's value."""
    return frozenset(mentioned(thing))


def accepts(param: Type, arg: Type) -> bool:
    """Is every value of type `arg` one of type `param`?"""
    match param, arg:
        case Object(), _:
            return True
        case Tensor(), Tensor() if param.dtype == arg.dtype:
            return param.shape is None or (arg.shape is not None and len(arg.shape) == len(param.shape) and all(
                p is None or p == a for p, a in zip(param.shape, arg.shape, strict=True)))
        case Tuple(), Tuple():
            return len(param.items) == len(arg.items) and all(map(accepts, param.items, arg.items))
        case Shape(values=None), Shape():
            return param.ndim in (None, arg.ndim if arg.values is None else len(arg.values))
    return param == arg


def check_match(given: Type, wanted: Type) -> Type:
    """`wanted`, unless no value of type `given` can have it: then ShapeError."""
    match given, wanted:
        case Tensor(), Tensor():
            ranks = {len(t.shape) for t in (given, wanted) if t.shape is not None}
            sizes = zip(given.shape, wanted.shape, strict=True) if len(ranks) == 1 and given.shape and wanted.shape else ()
            differ = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in sizes)
            if given.dtype != wanted.dtype or len(ranks) > 1 or differ:
                raise ShapeError(f"match_cast: a value of type {given} is never {wanted}", where="")
        case Tuple(), Tuple() if len(given.items) == len(wanted.items):
            for a, b in zip(given.items, wanted.items, strict=True):
                check_match(a, b)
        case (Object(), _) | (_, Object()) | (Shape(), Shape()):
            pass
        case _:
            raise ShapeError(f"match_cast: a value of type {given} is never {wanted}", where="")
    return wanted


def _item(type_: Type, index: int) -> Type:
    if not isinstance(type_, Tuple) or not 0 <= index < len(type_.items):
        raise VerifyError(f"a value of type {type_} has no item {index}", where="")
    return type_.items[index]


def _shown(param: Type, arg: Type) -> Iterator[tuple[str, Dim]]:
    """Names that stand alone in a parameter's type, with what the argument has in their places."""
    match param, arg:
        case (Tensor(shape=dims), Tensor(shape=actual)) | (Shape(values=dims), Shape(values=actual)) if dims and actual:
            yield from ((str(d), a) for d, a in zip(dims, actual, strict=False)
                        if isinstance(d, DimExpr) and a is not None and _is_name(d))
        case Tuple(items=items), Tuple(items=actual):
            for p, a in zip(items, actual, strict=False):
                yield from _shown(p, a)


def _outside(type_: Type, values: dict[str, Dim]) -> Type:
    match type_:
        case Tensor(dtype=dtype, shape=shape) if shape is not None:
            return substitute_type(Tensor(dtype, tuple(
                d if d is not None and (isinstance(d, int) or names(d) <= values.keys()) else None for d in shape)), values)
        case Tuple(items=items):
            return Tuple(tuple(_outside(t, values) for t in items))
        case Shape(values=entries) if entries is not None and not frozenset().union(*map(names, entries)) <= values.keys():
            return Shape(ndim=len(entries))
    return substitute_type(type_, values)


def _is_name(d: DimExpr) -> bool:
    (mono, k), *more = d.terms
    return not more and k == 1 and len(mono) == 1 and isinstance(mono[0], str)


def _kernel(module: Module, name: str) -> Kernel:
    found = module._by_name.get(name)
    if not isinstance(found, Kernel):
        raise VerifyError(f"there is no kernel {name}", where="")
    return found


def _function(module: Module, name: str) -> Function:
    found = module._by_name.get(name)
    if not isinstance(found, Function):
        raise VerifyError(f"there is no function {name}", where="")
    return found

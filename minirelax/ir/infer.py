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
    Alias,
    AllocStorage,
    Atom,
    CallFunction,
    CallKernel,
    CallLibrary,
    CallValue,
    Cond,
    Expr,
    Function,
    MakeShape,
    MakeTuple,
    MatchCast,
    MatchShape,
    Module,
    Scan,
    TupleItem,
    Var,
    While,
)
from minirelax.ir.lattice import Compatibility, bare_name, bind, compatibility, derive_result, join
from minirelax.ir.library import library_op
from minirelax.ir.loop import Kernel
from minirelax.ir.op import Op
from minirelax.ir.types import Callable, Object, Shape, Storage, Tensor, Tuple, Type, substitute_type

FLAG = Tensor("bool", ())          # what conditions are


def infer_binding(expr: Expr, module: Module) -> Type:
    """The type of `expr`'s value; `Object` where only the binding's annotation says it (allocations, views, unknown routines).

    Raises ShapeError, DTypeError or VerifyError if the operands do not fit.
    """
    match expr:
        case Op():
            return infer_op(expr)
        case CallKernel(kernel=name, args=args, sizes=sizes):
            return call_kernel_type(_kernel(module, name), args, sizes)
        case CallFunction(function=name, args=args):
            return call_function_type(_function(module, name), tuple(a.type for a in args))
        case CallValue(callee=callee, args=args):
            return call_value_type(callee, tuple(a.type for a in args))
        case Cond():
            return cond_type(expr, module)
        case While():
            return while_type(expr, module)
        case Scan():
            return scan_type(expr, module)
        case MakeShape(values=values):
            return Shape(values)
        case Alias(value=value):
            return value.type
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


def call_function_type(function: Function, args: tuple[Type, ...]) -> Type:
    """The result's type at a call.  The callee's signature is all that counts: a size bound inside it is unknown outside."""
    parameters = tuple(v.name for v in (*function.params, *function.bound))
    return derive_result(function.type, args, function.name, parameters)


def call_value_type(callee: Atom, args: tuple[Type, ...]) -> Type:
    """The result's type when a value is called, by the signature in its type (Relax, figure 7)."""
    if not isinstance(callee.type, Callable):
        raise VerifyError(f"a value of type {callee.type} is called", "only a value of type Callable is a function", where="")
    return derive_result(callee.type, args, str(callee))


def cond_type(expr: Cond, module: Module) -> Type:
    """What both branches' results are: their least upper bound, in the caller's sizes."""
    if expr.condition.type != FLAG:
        raise VerifyError(f"the condition has type {expr.condition.type}, not {FLAG}", where="")
    args = tuple(a.type for a in expr.args)
    return join(*(call_function_type(_function(module, name), args) for name in (expr.then, expr.otherwise)))


def while_type(expr: While, module: Module) -> Tuple:
    """The carried values' types: as at the start, and coarser where the body makes them other."""
    args, body = tuple(a.type for a in expr.args), _function(module, expr.body)
    carried = stable_types(tuple(a.type for a in expr.init), lambda now: call_function_type(body, (*args, *now)), body)
    test = call_function_type(_function(module, expr.test), (*args, *carried))
    if test != FLAG:
        raise VerifyError(f"{expr.test} returns {test}, not {FLAG}", where="")
    return Tuple(carried)


def scan_type(expr: Scan, module: Module) -> Tuple:
    """The carried values' types, then those of the stacked results: a slice's, with `length` in front."""
    args, body = tuple(a.type for a in expr.args), _function(module, expr.body)
    slices = tuple(_slice_type(x.type, expr.length) for x in expr.xs)
    count = len(expr.init)
    carried = stable_types(
        tuple(a.type for a in expr.init), lambda now: _first(call_function_type(body, (*args, *now, *slices)), count), body)
    made = call_function_type(body, (*args, *carried, *slices)).items[count:]
    return Tuple((*carried, *(_stacked_type(t, expr.length, body) for t in made)))


def stable_types(start: tuple[Type, ...], step, body: Function) -> tuple[Type, ...]:
    """The least types from `start` up that `step` leads back to; sizes only get coarser, so this ends."""
    now = start
    while True:
        made = step(now)
        if not isinstance(made, Tuple) or len(made.items) != len(now):
            raise VerifyError(f"{body.name} returns {made}, not a tuple of {len(now)} carried values", where="")
        new = tuple(map(join, now, made.items))
        if new == now:
            return now
        now = new


def _first(made: Type, count: int) -> Type:
    return Tuple(made.items[:count]) if isinstance(made, Tuple) else made


def _slice_type(type_: Type, length: Dim) -> Type:
    if not isinstance(type_, Tensor) or not type_.shape:
        raise VerifyError(f"a value of type {type_} has no slices", "scan takes arrays with a first axis of known rank", where="")
    if compatibility(Tensor(type_.dtype, (length,)), Tensor(type_.dtype, type_.shape[:1])) <= Compatibility.MISMATCH:
        raise VerifyError(f"a value of type {type_} has not {length} slices", where="")
    return Tensor(type_.dtype, type_.shape[1:])


def _stacked_type(type_: Type, length: Dim, body: Function) -> Type:
    if not isinstance(type_, Tensor) or type_.shape is None:
        raise VerifyError(f"{body.name} returns a value of type {type_}, which cannot be stacked", where="")
    return Tensor(type_.dtype, (length, *type_.shape))


def call_sizes(function: Function, args: tuple[Atom, ...]) -> dict[str, Dim]:
    """What the function's named sizes are at a call, as far as the arguments' types show them."""
    values: dict[str, Dim] = {}
    for param, arg in zip((*function.params, *function.bound), args, strict=True):
        bind(param.type, arg.type, values)
    return values


@functools.lru_cache(4096)
def free_sizes(function: Function) -> tuple[str, ...]:
    """The sizes that a function mentions and neither a parameter nor a match_cast binds, in order of appearance."""
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
            return frozenset(n for d in dims if (n := bare_name(d)))
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
        case Callable():
            return                                                 # closed: its parameters bind its sizes
        case Tuple(items=inside) | tuple(inside):
            for t in inside:
                yield from mentioned(t)
        case Storage(bytes=size):
            yield from mentioned(size)


@functools.lru_cache(16384)
def mentioned_names(thing: object) -> frozenset[str]:
    """The names of sizes in a type, a size, or an attribute's value."""
    return frozenset(mentioned(thing))


def check_match(given: Type, wanted: Type) -> Type:
    """`wanted`, unless no value of type `given` can have it: then ShapeError."""
    if compatibility(wanted, given) is Compatibility.DISJOINT:
        raise ShapeError(f"match_cast: a value of type {given} is never {wanted}", where="")
    return wanted


def _item(type_: Type, index: int) -> Type:
    if not isinstance(type_, Tuple) or not 0 <= index < len(type_.items):
        raise VerifyError(f"a value of type {type_} has no item {index}", where="")
    return type_.items[index]


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

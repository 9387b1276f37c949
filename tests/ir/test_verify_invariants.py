"""Every invariant of a module, broken once: the whole message, and that no message of the verifier is without an example."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import replace

import pytest

from minirelax.errors import VerifyError
from minirelax.ir import infer, verify
from minirelax.ir.graph import Binding, CallValue, Const, Function, Module, Var
from minirelax.ir.parser import parse
from minirelax.ir.types import f32
from minirelax.ops.arithmetic import Add

KERNEL = """@kernel
def double(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] + x[i]

"""
IN_PLACE = """@kernel(in_place={"x": "out"})
def grow(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] * 2.0

"""
FUNCTIONS = """
@private
def flag(x: f32[n]) -> bool[()]:
    with dataflow():
        v0: f32[()] = sum(x, axes=(0,), keepdims=False)
        v1: bool[()] = greater(v0, 0.0)
        output(v1)
    return v1

@private
def same(x: f32[n]) -> f32[n]:
    return x

@private
def step(x: f32[n]) -> Tuple[f32[n]]:
    with dataflow():
        v0: Tuple[f32[n]] = (x,)
        output(v0)
    return v0

@private
def flat(x: f32[n]) -> Tuple[f32[n], Object]:
    with dataflow():
        v0: Object = call_library("anything", x)
        v1: Tuple[f32[n], Object] = (x, v0)
        output(v1)
    return v1
"""


def main(*lines: str, params: str = "x: f32[n]", result: str = "x", returns: str = "f32[n]", more: str = FUNCTIONS) -> str:
    body = "".join(f"    {line}\n" for line in lines)
    return f"{KERNEL}def main({params}) -> {returns}:\n{body}    return {result}\n{more}"


STORED = ("v0: Storage[64*n] = alloc_storage()", "v1: f32[n] = alloc_tensor(v0)", "run_kernel(double, x, out=(v1,), sizes=(n,))",
          "v2: f32[n] = alloc_tensor(v0)")

BROKEN = {
    "a value is read after its scope": (
        main("with dataflow():", "    v0: f32[n] = exp(x)", "    output()", "v1: f32[n] = exp(v0)"),
        "v0 is read, but not bound before\n  at main: v1: f32[n] = exp(v0)\n"
        "  hint: after a dataflow block only its outputs can be read"),
    "another tensor lives there by now": (
        main(*STORED, "run_kernel(double, v1, out=(v2,), sizes=(n,))"),
        "v1 is read, but v2 lives in its storage by now\n  at main: run_kernel(double, v1, out=(v2,), sizes=(n,))\n"
        "  hint: a storage is free after the last read of the tensor in it, through any view"),
    "also through a view and a tuple": (
        main(*STORED[:3], "v3: f32[n, 1] = view(v1)", "v4: Tuple[f32[n, 1]] = (v3,)", STORED[3], "v5: f32[n, 1] = v4[0]"),
        "v4 is read, but v2 lives in its storage by now\n  at main: v5: f32[n, 1] = v4[0]\n"
        "  hint: a storage is free after the last read of the tensor in it, through any view"),
    "a size is not bound yet": (
        main("v0: f32[k] = full(f32(0.0), shape=(k,))", "v1: f32[k] = match_cast(x, f32[k])"),
        "shape mentions the size k, which is not known here\n  at main: v0: f32[k] = full(f32(0.0), shape=(k,))\n"
        "  hint: a size is known once it stands alone in a parameter's shape or in a match_cast"),
    "a shape parameter binds only what stands alone": (
        main(params="x: f32[n], s: Shape([2*k])"),
        "the type of s mentions the size k, which is not known here\n  at main: def main(...)\n"
        "  hint: a size is known once it stands alone in a parameter's shape or in a match_cast"),
    "an effect inside a block": (
        main("with dataflow():", "    run_kernel(double, x, out=(x,), sizes=(n,))", "    output()"),
        "an effect inside a dataflow block\n  at main: run_kernel(double, x, out=(x,), sizes=(n,))\n"
        "  hint: effects stand outside, as statements of the function"),
    "a loop inside a block": (
        main("with dataflow():", "    v0: Tuple[f32[n]] = while_loop(flag, step, (), (x,))", "    output()"),
        "control flow inside a dataflow block\n  at main: v0: Tuple[f32[n]] = while_loop(flag, step, (), (x,))\n"
        "  hint: end the block before it, and begin another one after it"),
    "a kernel writes what it reads": (
        main("run_kernel(double, x, out=(x,), sizes=(n,))"),
        "x is read by the statement that writes it\n  at main: run_kernel(double, x, out=(x,), sizes=(n,))\n"
        "  hint: allocate another tensor for the output"),
    "an output lies where something is read": (
        main("v0: f32[n] = alloc_tensor()", "v1: f32[n] = view(v0)", "run_kernel(double, v0, out=(v1,), sizes=(n,))"),
        "v1 is written where v0 is read by the same statement\n  at main: run_kernel(double, v0, out=(v1,), sizes=(n,))\n"
        "  hint: allocate another tensor for the output"),
    "in place, but not in one place": (
        IN_PLACE + main("v0: f32[n] = alloc_tensor()", "v1: f32[n] = alloc_tensor()",
                        "run_kernel(grow, v0, out=(v1,), sizes=(n,))"),
        "v1 is not where v0 is, which it is written over\n  at main: run_kernel(grow, v0, out=(v1,), sizes=(n,))\n"
        "  hint: make it a view: v1 = view(v0)"),
    "read after another value was written over it": (
        IN_PLACE + main("v0: f32[n] = alloc_tensor()", "v1: f32[n] = view(v0)", "run_kernel(grow, v0, out=(v1,), sizes=(n,))",
                        "v2: f32[n, 1] = view(v0)"),
        "v0 is read, but v1 was written over it\n  at main: v2: f32[n, 1] = view(v0)\n"
        "  hint: what is read later needs memory of its own"),
    "a call that gives new memory to a kernel in place": (
        IN_PLACE + main("v0: f32[n] = call_kernel(grow, x, sizes=(n,))"),
        "grow works in place, and a call has new memory for its results\n"
        "  at main: v0: f32[n] = call_kernel(grow, x, sizes=(n,))\n  hint: run_kernel says where"),
    "in place, but not right": (
        IN_PLACE.replace("x[i]", "x[n - 1 - i]") + main(),
        "out cannot be written over x\n  at kernel grow: out[i] = x[-i + n - 1] * 2.0\n"
        "  hint: each element of it is read before it is written, and not after"),
    "in place, with names of nothing": (
        IN_PLACE.replace('"x"', '"y"') + main(),
        "in_place: y: out are not an input and an output, each named once\n  at kernel grow: out[i] = x[i] * 2.0"),
    "a loop's buffers are one": (
        main("v0: f32[n] = alloc_tensor()", "run_while(flag, step, (), (x,), out=(v0,), spare=(v0,))"),
        "v0 is written twice by one statement\n  at main: run_while(flag, step, (), (x,), out=(v0,), spare=(v0,))\n"
        "  hint: give each output memory of its own"),
    "the outputs of control flow": (
        main("v0: f32[n, 1] = alloc_tensor()", "run_cond(b, same, same, x, out=(v0,))", params="x: f32[n], b: bool[()]"),
        "the result has type f32[n], not that of the outputs\n  at main: run_cond(b, same, same, x, out=(v0,))"),
    "the spare buffers of a scan": (
        main("v0: f32[m] = alloc_tensor()", "v1: f32[n] = alloc_tensor()",
             "run_scan(step, (), (y,), (), out=(v0,), spare=(v1,), length=3)", params="x: f32[n], y: f32[m]"),
        "the result has type Tuple[f32[m]], not that of the outputs\n"
        "  at main: run_scan(step, (), (y,), (), out=(v0,), spare=(v1,), length=3, reverse=False)"),
    "a condition that is none": (
        main("v0: f32[n] = cond(x, same, same, x)"),
        "the condition has type f32[n], not bool[()]\n  at main: v0: f32[n] = cond(x, same, same, x)"),
    "a branch that is not there": (
        main("v0: f32[n] = cond(b, same, other, x)", params="x: f32[n], b: bool[()]"),
        "there is no function other\n  at main: v0: f32[n] = cond(b, same, other, x)"),
    "a branch with other parameters": (
        main("v0: f32[n] = cond(b, same, same)", params="x: f32[n], b: bool[()]"),
        "same takes 1 values, 0 are given\n  at main: v0: f32[n] = cond(b, same, same)"),
    "an argument of another kind": (
        main("v0: f32[n] = same(b)", params="x: f32[n], b: f64[n]"),
        "same expects f32[n] as x, not f64[n]\n  at main: v0: f32[n] = same(b)\n  hint: no value has both types"),
    "an argument of which too little is known": (
        main("v0: f32[_] = same(b)", params="x: f32[n], b: f32[...]"),
        "same expects f32[n] as x, not f32[...]\n  at main: v0: f32[_] = same(b)\n"
        "  hint: less is known of it: insert match_cast to f32[n]"),
    "a test that is none": (
        main("v0: Tuple[f32[n]] = while_loop(same, step, (), (x,))"),
        "same returns f32[n], not bool[()]\n  at main: v0: Tuple[f32[n]] = while_loop(same, step, (), (x,))"),
    "a body without its carried values": (
        main("v0: Tuple[f32[n]] = while_loop(flag, same, (), (x,))"),
        "same returns f32[n], not a tuple of 1 carried values\n  at main: v0: Tuple[f32[n]] = while_loop(flag, same, (), (x,))"),
    "slices of a scalar": (
        main("v0: Tuple[f32[n]] = scan(step, (), (), (b,), length=3)", params="x: f32[n], b: f32[()]"),
        "a value of type f32[()] has no slices\n"
        "  at main: v0: Tuple[f32[n]] = scan(step, (), (), (b,), length=3, reverse=False)\n"
        "  hint: scan takes arrays with a first axis of known rank"),
    "slices that are too few": (
        main("v0: Tuple[f32[4]] = scan(step, (), (), (b,), length=3)", params="x: f32[n], b: f32[2, 4]"),
        "a value of type f32[2, 4] has not 3 slices\n"
        "  at main: v0: Tuple[f32[4]] = scan(step, (), (), (b,), length=3, reverse=False)"),
    "results that do not stack": (
        main("v0: Tuple[f32[n], f32[3, n]] = scan(flat, (), (x,), (), length=3)"),
        "flat returns a value of type Object, which cannot be stacked\n"
        "  at main: v0: Tuple[f32[n], f32[3, n]] = scan(flat, (), (x,), (), length=3, reverse=False)"),
    "operands that a rule takes for granted": (
        main("v0: f32[n] = transpose(x, axes=3)"),
        "no type can be given to this: TypeError: 'int' object is not iterable\n  at main: v0: f32[n] = transpose(x, axes=3)"),
    "a name twice in a function": (
        main("v0: f32[n] = exp(x)", "v0: f32[n] = exp(x)"), "v0 is bound twice\n  at main: v0: f32[n] = exp(x)"),
    "an item that is not there": (
        main("v0: f32[n] = p[2]", params="x: f32[n], p: Tuple[f32[n], f32[n]]"),
        "a value of type Tuple[f32[n], f32[n]] has no item 2\n  at main: v0: f32[n] = p[2]"),
    "a result of another kind": (
        main(returns="i64[n]"), "a value of type f32[n] is never i64[n], as the function declares\n  at main: return x"),
    "nothing to call": (
        "@private\n" + main().removeprefix(KERNEL),
        "the module has no public function\n  hint: a call of the program runs the first one"),
    "a name twice in the module": (
        main(more="def double(x: f32[n]) -> f32[n]:\n    return x\n"), "double is defined twice in the module"),
    "a kernel that is not there": (
        main("v0: f32[n] = call_kernel(other, x, sizes=(n,))"),
        "there is no kernel other\n  at main: v0: f32[n] = call_kernel(other, x, sizes=(n,))"),
    "workspace": (
        main("v0: f32[n] = alloc_tensor()", "run_kernel(double, x, out=(v0,), sizes=(n,), work=(x,))"),
        "(x: f32[n]) is no workspace\n  at main: run_kernel(double, x, out=(v0,), sizes=(n,), work=(x,))\n"
        "  hint: a workspace has one row of bytes per thread: u8[2, 4096]"),
    "a routine's workspace": (
        main("v0: f32[n] = alloc_tensor()", 'run_library("smooth", x, out=(v0,), work=(x, x))'),
        '(x: f32[n], x: f32[n]) is no workspace\n  at main: run_library("smooth", x, out=(v0,), work=(x, x))\n'
        "  hint: a registered routine has one at most: work=(v0,)"),
    "an op's workspace": (
        main("v0: f32[n] = alloc_tensor()", "v1: f32[n] = alloc_tensor()",
             'run_library("sort", x, out=(v0,), axis=0, work=(v1,))'),
        '(v1: f32[n]) is no workspace\n  at main: run_library("sort", x, out=(v0,), axis=0, work=(v1,))\n'
        "  hint: a registered routine has one at most: work=(v0,)"),
    "a workspace that is read": (
        main("v0: f32[n] = alloc_tensor()", 'run_library("smooth", x, out=(v0,), work=(x,))'),
        'x is read by the statement that writes it\n  at main: run_library("smooth", x, out=(v0,), work=(x,))\n'
        "  hint: allocate another tensor for the output"),
    "a workspace that is an output": (
        main("v0: f32[n] = alloc_tensor()", 'run_library("smooth", x, out=(v0,), work=(v0,))'),
        'v0 is written twice by one statement\n  at main: run_library("smooth", x, out=(v0,), work=(v0,))\n'
        "  hint: give each output memory of its own"),
    "offset": (
        main("v0: Storage[64*n] = alloc_storage()", "v1: f32[n] = alloc_tensor(v0, offset=4)"),
        "a tensor cannot start at byte 4\n  at main: v1: f32[n] = alloc_tensor(v0, offset=4)\n"
        "  hint: offsets are multiples of 64, a cache line"),
    "an effect with a kernel that is not there": (
        main("run_kernel(other, x, out=(x,), sizes=(n,))"),
        "there is no kernel other\n  at main: run_kernel(other, x, out=(x,), sizes=(n,))"),
    "sizes of a kernel": (
        main("v0: f32[n] = call_kernel(double, x)"),
        "double has the sizes (n), 0 are given\n  at main: v0: f32[n] = call_kernel(double, x)"),
    "arrays of a kernel": (
        main("v0: f32[n] = call_kernel(double, x, x, sizes=(n,))"),
        "double takes 1 arrays, 2 are given\n  at main: v0: f32[n] = call_kernel(double, x, x, sizes=(n,))"),
    "an array of a kernel": (
        main("v0: f32[7] = call_kernel(double, x, sizes=(7,))"),
        "double expects f32[7] as x, not f32[n]\n  at main: v0: f32[7] = call_kernel(double, x, sizes=(7,))"),
    "a declared type": (
        main("v0: f32[m] = exp(x)"), "v0 is declared f32[m], but its value has type f32[n]\n  at main: v0: f32[m] = exp(x)"),
    "a view with more elements": (
        main("v0: f32[n, 2] = view(x)"),
        "a value of type f32[n] cannot be seen as f32[n, 2]\n  at main: v0: f32[n, 2] = view(x)\n"
        "  hint: a view has the same dtype, and no elements but those of the value"),
    "a view beyond the end": (
        main("v0: f32[n] = view(x, offset=1)"),
        "a value of type f32[n] cannot be seen as f32[n] from element 1 on\n  at main: v0: f32[n] = view(x, offset=1)\n"
        "  hint: a view has the same dtype, and no elements but those of the value"),
    "memory of an unknown size": (
        main("v0: f32[_] = alloc_tensor()"),
        "memory for a value of type f32[_] cannot be known\n  at main: v0: f32[_] = alloc_tensor()"),
    "a tensor that does not fit": (
        main("v0: Storage[4*n - 4] = alloc_storage()", "v1: f32[n] = alloc_tensor(v0)"),
        "a tensor of 4*n bytes does not fit into Storage[4*n - 4]\n  at main: v1: f32[n] = alloc_tensor(v0)"),
    "a match of another rank": (
        main("match_shape(s, (n, 2))", params="x: f32[n], s: Shape(ndim=3)"),
        "a value of type Shape(ndim=3) is matched with 2 sizes\n  at main: match_shape(s, (n, 2))"),
    "an output that is not bound in its block": (
        main("with dataflow():", "    output(x)"), "x is not bound in this block\n  at main: output(x)"),
    "a name that cannot be one": (
        main(params="x: f32[n], nan: f32[n]"), "'nan' cannot be a name\n  at main: def main(...)"),
}
X, V = Var("x", f32["n"]), Var("v0", f32["n"])


STORED_MODULE = parse(main(*STORED[:3], more=""))


def function(*bindings: Binding, name: str = "main", result: Var = X) -> Module:
    return Module((Function(name, (X,), bindings, result),))


BUILT = {      # what no text spells
    "an effect with a value": (
        function(replace(parse(main("run_kernel(double, x, out=(x,), sizes=(n,))"))["main"].bindings[0], var=V)),
        "an effect has no value"),
    "a value without a name": (function(Binding(None, Add(X, X))), "the value is bound to no name"),
    "a read with another type": (
        function(Binding(V, Add(Var("x", f32["m"]), X))), "x is read with type f32[m], but was bound with f32[n]"),
    "a call of what is no function": (function(Binding(V, CallValue(X, (X,)))), "a value of type f32[n] is called"),
    "a tensor in a storage that comes later": (
        replace(STORED_MODULE, functions=(replace(STORED_MODULE["main"], body=STORED_MODULE["main"].body[1:]),)),
        "v0 is read, but not bound before\n  at main: v1: f32[n] = alloc_tensor(v0)"),
    "a function's name": (function(name="no name"), "'no name' cannot be a name"),
    "a literal as a result": (function(result=Const(1.0, "f32")), None),
}


@pytest.mark.parametrize("text, message", BROKEN.values(), ids=BROKEN)
def test_message(text: str, message: str):
    with pytest.raises(VerifyError) as e:
        verify.verify(parse(text))
    assert str(e.value) == message


@pytest.mark.parametrize("module, what", BUILT.values(), ids=BUILT)
def test_message_of_what_no_text_spells(module: Module, what: str | None):
    if what is None:
        return verify.verify(module)
    with pytest.raises(VerifyError) as e:
        verify.verify(module)
    assert str(e.value).startswith(what)


def test_a_module_without_functions_is_well_formed():
    verify.verify(parse(KERNEL))


@pytest.mark.parametrize("source", [verify, infer])
def test_no_message_is_without_an_example(source):
    """The constant part of each message, in the texts above."""
    shown = "\n".join([*(m for _, m in BROKEN.values()), *(m or "" for _, m in BUILT.values())])
    for node in ast.walk(ast.parse(inspect.getsource(source))):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in ("fail", "VerifyError"):
            for text in _constant_parts(node.args[0]):
                assert re.search(text, shown), text


def _constant_parts(node: ast.expr):
    """Patterns for the strings that an expression may give."""
    match node:
        case ast.Constant(value=str() as text):
            yield re.escape(text)
        case ast.JoinedStr(values=parts):
            yield "".join(re.escape(p.value) if isinstance(p, ast.Constant) else ".*" for p in parts)
        case ast.IfExp(body=a, orelse=b):
            yield from _constant_parts(a)
            yield from _constant_parts(b)

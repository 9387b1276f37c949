"""One broken module for each invariant, with what `verify` says about it."""
from __future__ import annotations

from dataclasses import replace

import pytest

from minirelax.errors import VerifyError
from minirelax.ir.dim import symbol
from minirelax.ir.graph import Binding, Dataflow, Function, MakeTuple, Module, RunKernel, Var
from minirelax.ir.loop import Axis, Block, Kernel
from minirelax.ir.parser import parse
from minirelax.ir.scalar import apply, literal, load
from minirelax.ir.types import Tensor, f32
from minirelax.ir.verify import verify
from minirelax.ir.verify_kernel import verify_kernel
from minirelax.ops import OPS
from tests.ir.test_text import GRAPH

DOUBLE = """
@kernel
def double(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] * 2.0
"""


def main(*lines: str, params: str = "x: f32[n]", result: str = "x", type_: str = "f32[n]") -> str:
    """A module with the kernel `double` and a function of these lines."""
    body = "\n".join(f"    {line}" for line in (*lines, f"return {result}"))
    return f"{DOUBLE}\ndef main({params}) -> {type_}:\n{body}"


GOOD = [
    main("v0: f32[n] = call_kernel(double, x, sizes=(n,))", "v1: f32[_] = call_library(\"unique\", v0)",
         "v2: f32[m] = match_cast(v1, f32[m])", "v3: f32[n + m] = concatenate((x, v2), axis=0)", result="v2", type_="f32[m]"),
    main("guard(n > 3)", "heap[0] = n", "match_shape(x, (n,), binds=(\"n\",))", "v0: Storage[4*n] = alloc_storage()",
         "v1: f32[n] = alloc_tensor(v0)", "run_kernel(double, x, out=(v1,), sizes=(n,))", "v2: f32[n, 1] = view(v1)",
         "run_library(\"elsewhere\", v1, out=(x,))"),
    main("s: Shape([m]) = shape(m)", "v0: f32[2*m] = f(x, s)", params="x: f32[2*m], y: f32[m]", result="v0", type_="f32[2*m]") +
    "\n\n@private\ndef f(x: f32[2*k], s: Shape([k])) -> f32[2*k]:\n    v0: f32[2*k] = exp(x)\n    return v0",
    main("v0: f32[_] = f(x)") + "\n\n@private\ndef f(y: f32[k]) -> f32[m]:\n    v0: f32[m] = match_cast(y, f32[m])\n"
    "    return v0",
    main("v0: Tuple[f32[n], f32[()]] = (x, 1.0)", "v1: f32[()] = v0[1]", params="x: f32[n], y: f32[_], z: f32[...], t: Object"),
    main(params="x: f32[n + 1], y: f32[n]", type_="f32[n + 1]")]


@pytest.mark.parametrize("text", GOOD)
def test_good_modules(text):
    verify(parse(text))


@pytest.mark.parametrize("text, what, line", [
    # 1 a name is bound once
    (main("v0: f32[n] = exp(x)", "v0: f32[n] = exp(x)"), "v0 is bound twice", "v0: f32[n] = exp(x)"),
    (main("x: f32[n] = exp(x)"), "x is bound twice", "x: f32[n] = exp(x)"),
    (main(params="x: f32[n], nan: f32[n]"), "'nan' cannot be a name", "def main(...)"),
    ("c0: f32[1] = constant([1.0])\n" + main("c0: f32[n] = exp(x)"), "c0 is bound twice", "c0: f32[n] = exp(x)"),
    # 3 types are what infer gives
    (main("v0: f32[m] = exp(x)"), "v0 is declared f32[m], but its value has type f32[n]", "v0: f32[m] = exp(x)"),
    (main("v0: f64[n] = exp(x)"), "v0 is declared f64[n], but its value has type f32[n]", "v0: f64[n] = exp(x)"),
    (main("v0: f32[n] = x[0]"), "a value of type f32[n] has no item 0", "v0: f32[n] = x[0]"),
    (main("v0: i64[n] = match_cast(x, i64[n])"), "match_cast: a value of type f32[n] is never i64[n]",
     "v0: i64[n] = match_cast(x, i64[n])"),
    (main("v0: f32[3] = match_cast(x, f32[3])", "v1: f32[4] = match_cast(v0, f32[4])"),
     "match_cast: a value of type f32[3] is never f32[4]",
     "v1: f32[4] = match_cast(v0, f32[4])"),
    (main("v0: f32[n, 2] = view(x)"), "a value of type f32[n] cannot be seen as f32[n, 2]", "v0: f32[n, 2] = view(x)"),
    (main("v0: Storage[4] = alloc_storage()", "v1: f32[2] = alloc_tensor(v0)"),
     "a tensor of 8 bytes does not fit into Storage[4]",
     "v1: f32[2] = alloc_tensor(v0)"),
    # 4 sizes are bound before they are used
    (main(params="x: f32[n], y: f32[2*k]"), "the type of y mentions the size k, which is not known here", "def main(...)"),
    (main("guard(k > 3)"), "the guard mentions the size k, which is not known here", "guard(k > 3)"),
    (main("heap[0] = k"), "value mentions the size k, which is not known here", "heap[0] = k"),
    (main("v0: f32[k] = full(f32(1.0), shape=(k,))"), "shape mentions the size k, which is not known here",
     "v0: f32[k] = full(f32(1.0), shape=(k,))"),
    (main("v0: f32[k + 1] = match_cast(x, f32[k + 1])"), "type mentions the size k, which is not known here",
     "v0: f32[k + 1] = match_cast(x, f32[k + 1])"),
    # 2 and 5 reads are of earlier names, after a block of its outputs
    (main("with dataflow():", "    v0: f32[n] = exp(x)", "    output()", "v1: f32[n] = exp(v0)"),
     "v0 is read, but not bound before",
     "v1: f32[n] = exp(v0)"),
    (main("with dataflow():", "    v0: f32[n] = exp(x)", "    output()", result="v0"), "v0 is read, but not bound before",
     "return v0"),
    (main("with dataflow():", "    output(x)"), "x is not bound in this block", "output(x)"),
    # 6 calls fit
    (main("v0: f32[n] = call_kernel(other, x, sizes=(n,))"), "there is no kernel other",
     "v0: f32[n] = call_kernel(other, x, sizes=(n,))"),
    (main("v0: f32[n] = call_kernel(double, x)"), "double has the sizes (n), 0 are given", "v0: f32[n] = call_kernel(double, x)"),
    (main("v0: f32[n] = call_kernel(double, x, x, sizes=(n,))"), "double takes 1 arrays, 2 are given",
     "v0: f32[n] = call_kernel(double, x, x, sizes=(n,))"),
    (main("v0: f32[7] = call_kernel(double, x, sizes=(7,))"), "double expects f32[7] as x, not f32[n]",
     "v0: f32[7] = call_kernel(double, x, sizes=(7,))"),
    (main("v0: f32[7] = alloc_tensor()", "run_kernel(double, x, out=(v0,), sizes=(n,))"),
     "double expects f32[n] as out, not f32[7]",
     "run_kernel(double, x, out=(v0,), sizes=(n,))"),
    (main("run_kernel(other, x, out=(x,), sizes=(n,))"), "there is no kernel other",
     "run_kernel(other, x, out=(x,), sizes=(n,))"),
    (main("v0: f32[n] = call_function(f, x)"), "there is no function f", "v0: f32[n] = f(x)"),
    (main("v0: f32[n] = main(x, x)"), "main takes 1 values, 2 are given", "v0: f32[n] = main(x, x)"),
    (main("v0: f32[()] = add(f32(1.0), f32(2.0))", "v1: f32[()] = main(v0)"), "main expects f32[n] as x, not f32[()]",
     "v1: f32[()] = main(v0)"),
    (main("v0: f32[_] = main(x)"), "v0 is declared f32[_], but its value has type f32[n]", "v0: f32[_] = main(x)"),
    (main("f0: Callable[[f32[n]], f32[n]] = main", "v0: f32[_] = f0(x)"), "v0 is declared f32[_], but its value has type f32[n]",
     "v0: f32[_] = f0(x)"),
    (main("v0: f32[n] = y(x)", params="x: f32[n], y: Callable[[f32[n, m]], f32[n]]"),
     "y expects f32[n, m] as argument 0, not f32[n]", "v0: f32[n] = y(x)"),
    (main("s: Shape([n, 4]) = shape(n, 5)"), "s is declared Shape([n, 4]), but its value has type Shape([n, 5])",
     "s: Shape([n, 4]) = shape(n, 5)"),
    (main("s: Shape([k]) = shape(k)"), "values mentions the size k, which is not known here", "s: Shape([k]) = shape(k)"),
    (main("v0: f32[m] = x"), "v0 is declared f32[m], but its value has type f32[n]", "v0: f32[m] = x"),
    (main("v0: f32[n] = cond(x, main, main, x)"), "the condition has type f32[n], not bool[()]",
     "v0: f32[n] = cond(x, main, main, x)"),
    (main("v0: Tuple[f32[n]] = while_loop(main, main, (), (x,))"), "main returns f32[n], not a tuple of 1 carried values",
     "v0: Tuple[f32[n]] = while_loop(main, main, (), (x,))"),
    (main("match_shape(x, (n, 2))"), "a value of type f32[n] is matched with 2 sizes", "match_shape(x, (n, 2))"),
    (main('run_library("sort", x, out=(x, x), axis=0)'), "the result has type f32[n], not that of the outputs",
     'run_library("sort", x, out=(x, x), axis=0)'),
    # 7 no effects in dataflow blocks
    (main("with dataflow():", "    run_kernel(double, x, out=(x,), sizes=(n,))", "    output()"),
     "an effect inside a dataflow block",
     "run_kernel(double, x, out=(x,), sizes=(n,))"),
    (main("with dataflow():", "    v0: f32[n] = alloc_tensor()", "    output()"), "an effect inside a dataflow block",
     "v0: f32[n] = alloc_tensor()"),
    (main("with dataflow():", "    v0: f32[n] = cond(b, main, main, x)", "    output()", params="x: f32[n], b: bool[()]"),
     "control flow inside a dataflow block", "v0: f32[n] = cond(b, main, main, x)"),
    # 8 a result can be what the function declares
    (main(type_="f64[n]"), "a value of type f32[n] is never f64[n], as the function declares", "return x"),
    (main(type_="f32[n, 1]"), "a value of type f32[n] is never f32[n, 1], as the function declares", "return x"),
    (main(type_="f32[n + 1]"), "a value of type f32[n] is never f32[n + 1], as the function declares", "return x"),
    (main(type_="f32[k]"), "the declared result type mentions the size k, which is not known here", "return x")])
def test_broken_functions(text, what, line):
    with pytest.raises(VerifyError) as e:
        verify(parse(text))
    assert (e.value.what, e.value.where) == (what, f"main: {line}")


def test_errors_of_infer_keep_their_hint():
    with pytest.raises(VerifyError) as e:
        verify(parse(main("v0: f32[n] = add(x, y)", params="x: f32[n], y: f32[m]")))
    assert e.value.where == "main: v0: f32[n] = add(x, y)" and "n" in e.value.what and e.value.hint


def test_a_rule_that_takes_its_operands_for_granted():
    with pytest.raises(VerifyError, match="main: v0: f32"):
        verify(parse(main("v0: f32[n] = matmul(t, t)", params="x: f32[n], t: Object")))


def test_a_read_with_a_stale_type():
    x, stale = Var("x", f32["n"]), Var("x", f32["m"])
    function = Function("main", (x,), (Binding(Var("v0", f32["m"]), OPS["exp"](stale)),), x)
    with pytest.raises(VerifyError, match=r"x is read with type f32\[m\], but was bound with f32\[n\]"):
        verify(Module((function,)))


def test_values_and_effects_are_told_apart():
    x = Var("x", f32["n"])
    for binding, what in ((Binding(None, MakeTuple((x,))), "the value is bound to no name"),
                          (Binding(x, RunKernel("double", (x,), (x,), (symbol("n"),))), "an effect has no value")):
        with pytest.raises(VerifyError, match=what):
            verify(Module((Function("main", (x,), (binding,), x),), parse(DOUBLE).kernels))


def test_names_of_a_module_are_distinct():
    kernel, = parse(DOUBLE).kernels
    function = Function("double", (), (Dataflow((), ()),), parse(main()).functions[0].result)
    with pytest.raises(VerifyError, match="double is defined twice in the module"):
        verify(Module((function,), (kernel,)))
    with pytest.raises(VerifyError, match="'a b' cannot be a name"):
        verify(Module((), (replace(kernel, name="a b"),)))


KERNEL = "@kernel\ndef k(x: f32[n], y: i32[n], out: f32[n], *, n):\n    "


@pytest.mark.parametrize("text, what, line", [
    (KERNEL + "for i in range(n):\n        out[i] = x[i, 0]", "x: f32[n] has 2 indices", "out[i] = x[i, 0]"),
    (KERNEL + "for i in range(n):\n        out[i, 0] = x[i]", "out: f32[n] has 2 indices", "out[i, 0] = x[i]"),
    (KERNEL + "for i in range(n):\n        out[i] = x[y[i]]", "an index of x has dtype i32", "out[i] = x[y[i]]"),
    (KERNEL + "for i in range(n):\n        out[i] = y[i]", "a i32 is stored to out: f32[n]", "out[i] = y[i]"),
    (KERNEL + "for i in range(n):\n        out[i] = x[i] + y[i]", "add of f32, i32 cannot be i32", "out[i] = x[i] + y[i]"),
    (KERNEL + "for i in range(n):\n        out[i] = f32(x[i] < y[i])", "less of f32, i32 cannot be bool",
     "out[i] = f32(x[i] < y[i])"),
    (KERNEL + "for i in range(n):\n        out[i] = where(x[i], x[i], x[i])", "where of f32, f32, f32 cannot be f32",
     "out[i] = where(x[i], x[i], x[i])"),
    (KERNEL + "for i in range(n):\n        out[i] = f32(complex(x[i], x[i]))", "a c64 cannot become f32",
     "out[i] = f32(complex(x[i], x[i]))"),
    (KERNEL + "for i in range(n):\n        out[i] = real(x[i])", "real is for c64 and c128, not f32",
     "out[i] = real(x[i])"),
    (KERNEL + "for i in range(n):\n        out[i] = complex(x[i], f64(x[i]))", "complex of f32, f64 cannot be c128",
     "out[i] = complex(x[i], f64(x[i]))"),
    (KERNEL + "for i in range(n):\n        out[i] = arctan2(f64(x[i]), x[i])", "arctan2 of f64, f32 cannot be f32",
     "out[i] = arctan2(f64(x[i]), x[i])"),
    (KERNEL + "for i in range(n):\n        out[i] = out[i]", "out is read before it is written", "out[i] = out[i]"),
    (KERNEL + "t = local(f32[n])\n    for i in range(n):\n        out[i] = t[i]", "t is read before it is written",
     "out[i] = t[i]"),
    (KERNEL + "t = local(f32[n])\n    for i in range(n):\n        t[i] = x[i]\n    for i in range(m):\n        out[i] = x[i]",
     "the extent of i mentions m, which is not in scope", "out[i] = x[i]"),
    (KERNEL + "for n in range(n):\n        out[n] = x[n]", "the axis n hides a size, a buffer, or another axis", "out[n] = x[n]"),
    (KERNEL + "for i in range(n):\n        for i in range(n):\n            out[i] = x[i]",
     "the axis i hides a size, a buffer, or another axis", "out[i] = x[i]"),
    (KERNEL + "t = local(f32[m])\n    for i in range(n):\n        out[i] = x[i]",
     "the type of t mentions m, which is not in scope", "def k(...)"),
    (KERNEL + "x = local(f32[n])\n    for i in range(n):\n        out[i] = x[i]", "x is declared twice", "def k(...)"),
    (KERNEL.replace("@kernel", '@kernel(pattern="nice")') + "for i in range(n):\n        out[i] = x[i]",
     "there is no pattern 'nice'", "def k(...)")])
def test_broken_kernels(text, what, line):
    with pytest.raises(VerifyError) as e:
        verify(parse(text))
    assert (e.value.what, e.value.where) == (what, f"kernel k: {line}")


def test_broken_kernels_that_have_no_text():
    i, n = symbol("i"), symbol("n")
    good = parse(DOUBLE).kernels[0]
    block = good.blocks[0]
    wrong_dtype, elsewhere = load("x", (i,), "f64"), load("y", (i,), "f32")
    for kernel, what in (
            (replace(good, blocks=()), "nothing is stored to the output out"),
            (replace(good, blocks=(replace(block, buffer="x"),)),
             "a block stores to x, which is not an output or a local buffer"),
            (replace(good, blocks=(replace(block, value=wrong_dtype),)), r"a load from x: f32\[n\] has dtype f64"),
            (replace(good, blocks=(replace(block, value=elsewhere),)), "there is no buffer y"),
            (replace(good, blocks=(replace(block, reduction="sum"),)),
             "a block has a reduction if and only if it has axes to reduce over"),
            (replace(good, blocks=(replace(block, over=(Axis("k", n),)),)), "a block has a reduction if and only if"),
            (replace(good, outputs=(Var("out", Tensor("f32", (None,))),)), "out has a size that is not known")):
        with pytest.raises(VerifyError, match=what):
            verify_kernel(kernel)


def test_a_reduction_is_stored_at_its_spatial_axes():
    k, n = symbol("k"), symbol("n")
    block = Block((), "out", (k,), load("x", (k,), "f32"), (Axis("k", n),), "sum")
    kernel = Kernel("total", (Var("x", f32["n"]),), (Var("out", f32["n"]),), ("n",), (), (block,))
    with pytest.raises(VerifyError, match="an index of out mentions k, which is not in scope"):
        verify_kernel(kernel)


def test_each_kernel_is_looked_at_once():
    kernel, = parse(DOUBLE).kernels
    verify_kernel(kernel)
    object.__setattr__(kernel, "blocks", ())            # nobody may do this; it shows that the second look is skipped
    verify_kernel(kernel)
    with pytest.raises(VerifyError):
        verify_kernel(replace(kernel))


def test_kernels_of_a_whole_module_are_fine():
    for kernel in parse(GRAPH).kernels:
        verify_kernel(kernel)
    assert apply("add", literal(1.0, "f32"), literal(2.0, "f32")).dtype == "f32"

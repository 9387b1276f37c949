"""Text: what is printed reads back, for every construct; what is not IR is a ParseError with its line."""
from __future__ import annotations

import pickle
import random
from dataclasses import replace

import numpy as np
import pytest

from minirelax.errors import ParseError
from minirelax.ir.dim import dim, symbol
from minirelax.ir.graph import Array, Binding, CallFunction, Const, Constant, Dataflow, Function, Module, Source, Var
from minirelax.ir.loop import Axis, Block, Kernel
from minirelax.ir.parser import parse, parse_kernel
from minirelax.ir.printer import print_attribute, print_expr
from minirelax.ir.scalar import apply, cast, literal, load, size_value
from minirelax.ir.tensor import lower_to_kernel
from minirelax.ir.types import Tensor, dtype_name, f32, i64
from minirelax.ops import OPS

GRAPH = '''\
c0: f32[3] = constant([1.0, 0.1, -inf])
c1: bool[2, 1] = constant([[True], [False]])
c2: i64[()] = constant(7)
c3: f32[0, 3] = constant([])

@kernel(pattern="reduce")
def softmax(x: f32[n, m], out: f32[n, m], *, n, m):
    t0 = local(f32[n, 1])
    t1 = local(f32[n, 1])
    for i in range(n):
        t0[i, 0] = -inf
        for k in range(m):
            t0[i, 0] = maximum(t0[i, 0], x[i, k])
    for i in range(n):
        t1[i, 0] = 0.0
        for k in range(m):
            t1[i, 0] += exp(x[i, k] - t0[i, 0])
    for i in range(n):
        for j in range(m):
            s0 = x[i, j] - t0[i, 0]
            out[i, j] = exp(s0) * s0 / t1[i, 0]

@kernel
def two(x: f32[n], out0: f32[n], out1: i64[()], *, n):
    for i in range(n):
        out0[i] = x[i]
    out1[()] = 0
    for k in range(n):
        out1[()] += where(isnan(x[k]), size(k) * size(n), i64(x[k]) + k)

def main(x: f32[n, m], y: Object, *, w: f32[m, 10], z: Tuple[f32[()], Shape([n, 4])]) -> f32[_]:
    guard(n > 16)
    guard(2*n + 1 != m)
    with dataflow():
        v0: f32[n, 10] = matmul(x, w)
        v1: f32[n, 10] = maximum(v0, 0.0)
        v2: f32[n, 10] = add(f32(1.0), f32(2.0))
        v3: f32[n, m] = call_kernel(softmax, x, sizes=(n, m))
        v4: Tuple[f32[n], i64[()]] = call_kernel(two, v3, sizes=(n,))
        v5: f32[n] = v4[0]
        v6: Tuple[f32[n], Tuple[f32[n]]] = (v5, v5)
        v7: Tuple[f32[n]] = (v5,)
        v8: Tuple[()] = ()
        v9: f32[_] = call_library("unique", v5, axis=(0, -1), mode="a \\"b\\" \\n é", size=2*n + 1, eps=1e-06, flag=True, no=None)
        v10: f32[k] = match_cast(v9, f32[k])
        s: Shape([n, k//2]) = shape(n, k//2)
        v11: f32[n] = fused_add_exp(v5, v5, s)
        v12: f32[2*n] = concatenate((v5, v11), axis=0)
        v13: f32[n] = where(v5, 1.0, bool(True))
        f0: Callable[[f32[n]], f32[2*n]] = double
        v14: f32[2*n] = f0(v5)
        x1: Object = y
        output(v5, v9, v10, s)
    v15: f32[n] = call_function(exp, v5)
    v16: bool[()] = positive(v15)
    v17: f32[n] = cond(v16, exp, negated, v15)
    v18: Tuple[f32[n]] = while_loop(ongoing, step, (s,), (v5,))
    v19: Tuple[f32[n], f32[n, 2]] = scan(row, (), (v5,), (x,), length=n, reverse=True)
    v20: Callable[..., Object] = recursive(double)
    return v9

@group
def fused_add_exp(x: f32[n], y: f32[n], s: Shape([n, k])) -> f32[n]:
    with dataflow():
        v0: f32[n] = add(x, y)
        output(v0)
    return v0

@private
def exp(x: f32[n]) -> f32[n]:
    return x

@private
def positive(x: f32[n]) -> bool[()]:
    v0: bool[n] = greater(x, 0.0)
    v1: bool[()] = all(v0, axes=(0,), keepdims=False)
    return v1

@private
def double(x: f32[n]) -> f32[2*n]:
    v0: f32[2*n] = concatenate((x, x), axis=0)
    return v0

@private
def recursive(f: Callable[[f32[n]], f32[2*n]]) -> Callable[..., Object]:
    v0: Callable[..., Object] = recursive(f)
    return v0'''

DESTINATIONS = '''\
def main(x: f32[n]) -> f32[n]:
    match_shape(x, (n,), binds=("n",))
    match_shape(x, (n,))
    heap[3] = 2*n + 1
    v0: Storage[4*n] = alloc_storage()
    v1: f32[n] = alloc_tensor()
    v2: f32[n] = alloc_tensor(v0)
    run_kernel(softmax, x, 1.0, out=(v1,), sizes=(n, 10))
    run_kernel(plain, out=(v1, v2))
    run_library("sort", x, out=(v2,), axis=0)
    v3: f32[n, 1] = view(v2)
    run_cond(x, main, main, x, out=(v1,))
    run_while(main, main, (x,), (v1,), out=(v1,), spare=(v2,))
    run_scan(main, (), (v1,), (x,), out=(v1,), spare=(v2,), length=n, reverse=False)
    return v2'''


@pytest.mark.parametrize("text", [GRAPH, DESTINATIONS, "", "def main() -> f32[()]:\n    return f32(1.5)"])
def test_text_reads_back(text):
    assert str(parse(text)) == text
    assert parse(str(parse(text))) == parse(text)


@pytest.mark.parametrize("name", sorted(n for n, cls in OPS.items() if not cls.library))
def test_kernels_of_ops_read_back(name):
    """Scalars are shared again: the parsed kernel has the very same ones."""
    for op, arrays in OPS[name].examples():
        types = [Tensor(dtype_name(np.asarray(a).dtype), tuple(dim("n") if d == 3 else d for d in np.shape(a))) for a in arrays]
        if "n" in str(types) and any(not isinstance(a, str | bool | int) for a in op.attributes().values()):
            types = [Tensor(dtype_name(np.asarray(a).dtype), np.shape(a)) for a in arrays]
        kernel = lower_to_kernel(name, op.lower, tuple(Var(f"x{i}", t) for i, t in enumerate(types)))
        assert parse_kernel(str(kernel)) == kernel


@pytest.mark.parametrize("name", sorted(OPS))
def test_ops_read_back(name):
    """Every op with its attributes, on variables and, where it has several operands, a scalar."""
    for op, arrays in OPS[name].examples():
        params = [Var(f"x{i}", Tensor(dtype_name(np.asarray(a).dtype), np.shape(a))) for i, a in enumerate(arrays)]
        for last in {Const(2, "f32"), params[-1]} if len(params) > 1 else params[-1:]:
            given = iter([*params[:-1], last])
            fields = {n: tuple(next(given) for _ in v) if isinstance(v, tuple) else next(given)
                      for n, v in vars(op).items() if n not in op.attributes()}
            binding = Binding(Var("v0", f32["n"]), replace(op, **fields))
            module = Module((Function("main", tuple(params), (binding,), params[0] if params else Const(1.0, "f32")),))
            assert parse(str(module)) == module


def test_numbers_keep_their_bits():
    values = [0.0, -0.0, 1e-45, 3.4028235e38, float("inf"), float("nan"), 0.1, 1 / 3]
    for dtype in ("f32", "f64"):
        x = load("x", (symbol("i"),), dtype)
        for v in values:
            block = Block((Axis("i", 4),), "out", (symbol("i"),), apply("add", literal(v, dtype), x))
            kernel = Kernel("k", (Var("x", Tensor(dtype, (4,))),), (Var("out", Tensor(dtype, (4,))),), (), (), (block,))
            assert parse_kernel(str(kernel)) == kernel
        module = Module((), (), (Constant("c0", Array(np.array(values, dtype and Tensor(dtype, ()).numpy_dtype))),))
        assert parse(str(module)) == module and "constant([0.0, -0.0" in str(module)


def test_a_nan_with_a_payload_is_given_by_digest():
    constant = Constant("c0", Array(np.array([0x7fc00001], np.uint32).view(np.float32)))
    assert str(Module((), (), (constant,))) == f'c0: f32[1] = constant("{constant.array.digest}")'


def test_large_constants_are_found_by_digest_or_given():
    array = np.arange(17.0)
    module = Module((), (), (Constant("c0", Array(array)),))
    text = str(module)
    assert text == f'c0: f64[17] = constant("{module.constants[0].array.digest}")' and parse(text) == module
    del module
    assert parse(text, {"c0": array}).constants[0].array == parse(text, {"c0": Array(array)}).constants[0].array == Array(array)
    with pytest.raises(ParseError, match="the array c0 is not given"):
        parse(text)
    with pytest.raises(ParseError, match=r"the array c0 has type f64\[3\]"):
        parse(text, {"c0": np.zeros(3)})


def test_shared_scalars_are_printed_once():
    """A chain of squares would have 2**40 leaves if it were written out."""
    value = load("x", (symbol("i"),), "f32")
    for _ in range(40):
        value = apply("multiply", value, value)
    block = Block((Axis("i", symbol("n")),), "out", (symbol("i"),), value)
    kernel = Kernel("k", (Var("x", f32["n"]),), (Var("out", f32["n"]),), ("n",), (), (block,))
    assert len(str(kernel)) < 2000 and parse_kernel(str(kernel)).blocks[0].value is value


def test_deep_scalars_read_back():
    value = load("x", (symbol("i"),), "f32")
    for _ in range(2000):
        value = apply("subtract", literal(1.0, "f32"), value)
    block = Block((Axis("i", symbol("n")),), "out", (symbol("i"),), value)
    kernel = Kernel("k", (Var("x", f32["n"]),), (Var("out", f32["n"]),), ("n",), (), (block,))
    assert parse_kernel(str(kernel)).blocks[0].value is value


def test_names_of_shared_scalars_avoid_others():
    s0, n = load("s0", (symbol("s1"),), "f32"), symbol("n")
    e = apply("exp", s0)
    block = Block((Axis("s1", n),), "out", (symbol("s1"),), apply("multiply", e, e))
    kernel = Kernel("k", (Var("s0", f32["n"]),), (Var("out", f32["n"]),), ("n",), (), (block,))
    assert "s2 = exp(s0[s1])" in str(kernel) and parse_kernel(str(kernel)) == kernel


def test_indices_that_depend_on_data():
    i, n = symbol("i"), symbol("n")
    k = cast(load("k", (i,), "i32"), "i64")
    place = apply("check_index", apply("where", apply("less", k, literal(0, "i64")), apply("add", k, size_value(n)), k),
        size_value(n))
    block = Block((Axis("i", n),), "out", (place,), load("x", (place, literal(0, "i64"), 1, n - 1), "f32"), (Axis("j", n),),
        "prod")
    kernel = Kernel("k", (Var("k", Tensor("i32", (n,))), Var("x", Tensor("f32", (n, 1, 2, n)))), (Var("out", f32["n"]),), ("n",),
        (), (block,))
    assert str(kernel) == '''\
@kernel
def k(k: i32[n], x: f32[n, 1, 2, n], out: f32[n], *, n):
    for i in range(n):
        s0 = i64(k[i])
        s1 = check_index(where(s0 < 0, s0 + n, s0), n)
        out[s1] = 1.0
        for j in range(n):
            out[s1] *= x[s1, i64(0), 1, n - 1]'''
    assert parse_kernel(str(kernel)) == kernel


def test_blocks_without_loops_are_told_apart():
    zero, one = literal(0.0, "f32"), Axis("k", symbol("n"))
    plain = Block((), "out", (), zero)
    total = Block((), "out", (), load("x", (symbol("k"),), "f32"), (one,), "sum")
    biggest = Block((), "out", (), load("x", (symbol("k"),), "f32"), (one,), "max")
    for blocks in ((plain,), (plain, plain), (plain, total), (total, plain), (total, biggest, total, plain), (plain, biggest)):
        kernel = Kernel("k", (Var("x", f32["n"]),), (Var("out", f32[()]),), ("n",), (), blocks)
        assert parse_kernel(str(kernel)) == kernel


def test_calls_of_functions_named_like_ops():
    x = Var("x", f32["n"])
    assert print_expr(CallFunction("exp", (x,))) == "call_function(exp, x)" and print_expr(CallFunction("mine",
        (x,))) == "mine(x)"


def test_attributes():
    values = (1, -2, 0.5, True, None, "q\"\\\t", (), (1,), ((0, dim("n")), (dim("2*n + 1"), "x")), float("-inf"), -0.0)
    call = f'call_library("f", x, a={print_attribute(values)})'
    module = parse(f"def main(x: f32[n]) -> f32[n]:\n    v0: Object = {call}\n    return x")
    assert repr(module["main"].bindings[0].value.options) == repr((("a", values),))
    with pytest.raises(TypeError, match="an attribute is a number, a string, None, a size or a tuple of these, not list"):
        print_attribute([1])


def test_pickled_modules_are_equal_and_keep_sources():
    module = parse(GRAPH)
    function = module.functions[0]
    body = Dataflow((Binding(Var("a", i64["n"]), function.bindings[0].value, Source("f.py", 3)),), ())
    module = replace(module, functions=(replace(function, body=(body,)), *module.functions[1:]))
    again = pickle.loads(pickle.dumps(module))
    assert again == module and again.functions[0].bindings[0].source == Source("f.py", 3)
    assert again.kernels[0].blocks[2].value is module.kernels[0].blocks[2].value
    assert not again.constants[0].array.value.flags.writeable


MAIN = "def main(x: f32[n], b: bool[n]) -> f32[n]:\n    "
KERNEL = "@kernel\ndef k(x: f32[n], out: f32[n], *, n):\n    "


@pytest.mark.parametrize("text, line, what, hint", [
    ("def main(", 1, "not Python syntax: '(' was never closed", "IR text is a subset of Python's"),
    ("x = 1", 1, "not part of a module", "it has c0: f32[3] = constant([...]), kernels, functions"),
    ("def main(x) -> f32[n]:\n    return x", 1, "a type is missing", "write it after a colon: x: f32[n, 4]"),
    ("def main(x: f16[n]) -> f32[n]:\n    return x", 1, "not a type: f16[n]", "types are written"),
    (MAIN + "return y", 2, "there is no value y", "values in reach: x, b"),
    (MAIN + "v0: f32[n] = expp(x)\n    return v0", 2, "no op or function is called expp", "did you mean exp"),
    (MAIN + "v0: f32[n] = exp(exp(x))\n    return v0", 2, "a value is expected, not exp(x)",
     "one operation a line: name its operands"),
    (MAIN + "v0: f32[n] = exp(x, b)\n    return v0", 2, "these are not the operands of exp",
     "they are (x); attributes have names"),
    (MAIN + "v0: f32[n] = sum(x)\n    return v0", 2, "sum: attribute axes is missing", "attributes: axes, keepdims"),
    (MAIN + "v0: f32[n] = exp(x, axis=0)\n    return v0", 2, "exp: attribute axis is unknown", "attributes: none"),
    (MAIN + "v0: f32[n] = concatenate(x, axis=0)\n    return v0", 2, "these are not the operands of concatenate",
     "they are ((arrays, ...))"),
    (MAIN + "v0: f32[n] = add(1.0, 2.0)\n    return v0", 2, "1.0 has no dtype here", "spell it: f32(1.0)"),
    (MAIN + "v0: bool[n] = logical_and(b, 1.0)\n    return x", 2, "1.0 is no bool", "spell its dtype"),
    (MAIN + "v0: f32[n] = -x\n    return v0", 2, "not an operation: -x", "one operation a line"),
    (MAIN + "v0: f32[n] = z\n    return v0", 2, "there is no value z", "values in reach: x, b"),
    (MAIN + "v0: f32[n] = x(b)\n    return v0", 2, "no op or function is called x", ""),
    (MAIN + "v0: f32[n] = cond(b, main)\n    return v0", 2, "cond: otherwise is missing", "cond(v0, then, otherwise, x, y)"),
    (MAIN + "v0 = exp(x)\n    return v0", 2, "not a statement of a function", "a function has guards"),
    (MAIN + "with dataflow():\n        v0: f32[n] = exp(x)\n    return x", 3, "output(...) is missing at the end of the block",
     "name the values"),
    (MAIN + "guard(n)\n    return x", 2, "not a guard", "guard(n > 16)"),
    (MAIN + "v0: f32[n] = exp(x)", 2, "a return is missing at the end", "a function has"),
    (MAIN + 'v0: f32[n] = call_kernel("k", x)\n    return x', 2, "a kernel is expected here, by its name", ""),
    (MAIN + "v0: f32[n] = call_kernel(k, x, size=(n,))\n    return x", 2, "unknown keyword size", "sizes=(n, 4)"),
    (MAIN + "v0: f32[n] = call_kernel(k, x, sizes=(n))\n    return x", 2, "a tuple is expected here",
     "one element is written (x,)"),
    (MAIN + "run_kernel(k, x)\n    return x", 2, "out=(...) is missing", "name the tensors"),
    (MAIN + "v0: f32[n] = call_library('f', x, **x)\n    return x", 2, "** is no attribute", "name=value"),
    ("@jit\n" + MAIN + "return x", 1, "not a decorator of functions", "@private, @group or @kernel"),
    ("c0: f32[2] = constant([1.0])", 1, "an array of shape (1,)", "the type says f32[2]"),
    ("c0: i8[1] = constant([300])", 1, "300 is not an element of type i8", ""),
    ("c0: f32[n] = constant([1.0])", 1, "a constant cannot have type f32[n]", "its sizes are numbers"),
    (KERNEL + "for i in range(n):\n        out[i] = x[i] + y[i]", 4, "there is no buffer y", "there are x, out"),
    (KERNEL + "for i in range(n):\n        out[i] = x[i] + m", 4, "there is no axis, size or scalar m",
     "sizes are parameters after *"),
    (KERNEL + "for i in range(n):\n        out[i] = x", 4, "x is a buffer", "read an element of it"),
    (KERNEL + "for i in range(n):\n        out[i] = 1.0 + 2.0", 4, "1.0 has no dtype here", "spell it: f32(1.0)"),
    (KERNEL + "for i in range(n):\n        out[i] = f32(i) < True", 4, "True is no f32", "spell another dtype"),
    (KERNEL + "for i in range(n):\n        out[i] = x[i] * 1j", 4, "complex(0.0, 1.0) is no f32", "or convert the other"),
    (KERNEL + "for i in range(n):\n        out[i] = real(2j) + x[i]", 4, "complex(0.0, 2.0) has no dtype here", "c64("),
    (KERNEL + "for i in range(n):\n        out[1j] = x[i]", 4, "1j is no index", "indices are integers"),
    (KERNEL + "for i in range(n):\n        out[i] = i + 0.5", 4, "0.5 is no i64", "or cast: i64(f64(0.5))"),
    (KERNEL + "for i in range(n):\n        out[i] = min(x[i], 1)", 4, "min is for sizes", "use minimum and maximum"),
    (KERNEL + "for i in range(n):\n        out[i] = x[i] if n > 0 and i > 0 else x[0]", 4, "not a scalar: n > 0 and i > 0",
     "write logical_and(a, b)"),
    (KERNEL + "for i in range(n):\n        out[0.5] = x[i]", 4, "0.5 is no index", "indices are integers"),
    (KERNEL + "for i in range(1, n):\n        out[i] = x[i]", 3, "not a loop of a kernel", "for i in range(n):"),
    (KERNEL + "for i in range(n):\n        out[i] += x[i]", 4, "a store is expected here", "before its loops"),
    (KERNEL + "for i in range(n):\n        s0 = x[i]", 4, "a store is missing", "a kernel has"),
    (KERNEL + "for i in range(n):\n        out[i] = 1.0\n        for k in range(n):\n            out[i] += x[k]", 4,
     "a sum of f32 starts from f32(0.0)", "combine with other values"),
    (KERNEL + "for i in range(n):\n        out[i] = 0.0\n        for k in range(n):\n            out[k] += x[k]", 6,
     "the update is of another place than the store before the loops", "use equal indices"),
    (KERNEL + "for i in range(n):\n        out[i] = 0.0\n        out[i] = x[i]", 5, "a loop nest has one store", "after it"),
    (KERNEL + "for i in range(n):\n        out[i] = 0.0\n        for k in range(n):\n            out[i] -= x[k]", 6,
     "not an update of a reduction", "b += v"),
    ("@kernel\ndef k(out: f32[n], x: f32[n], *, n):\n    for i in range(n):\n        out[i] = x[i]", 2,
     "out is stored to, but stands before an input", "outputs come last"),
    ("@kernel\ndef k(x: f32[_], *, n):\n    pass", 2, "a buffer cannot have type f32[_]", "give all its sizes"),
    ("@kernel(kind=3)\ndef k(x: f32[n], *, n):\n    pass", 1, "not a decorator of kernels", "@kernel or")])
def test_errors_name_the_line_and_the_way_out(text, line, what, hint):
    with pytest.raises(ParseError) as e:
        parse(text)
    assert e.value.what == what and hint in e.value.hint
    assert e.value.where == f"line {line}   {text.splitlines()[line - 1].strip()}"


def test_an_expression_that_is_too_deep_is_an_error():
    with pytest.raises(ParseError):
        parse(KERNEL + "for i in range(n):\n        out[i] = " + "-" * 5000 + "x[i]")


def test_damaged_text_is_never_another_kind_of_error():
    """Delete, double and swap pieces of good text: it parses, or it is a ParseError."""
    random.seed(0)
    damaged = 0
    for _ in range(300):
        lines = (GRAPH + "\n\n" + DESTINATIONS.replace("main", "other")).split("\n")
        at = random.randrange(len(lines))
        words = lines[at].split(" ")
        cut = random.randrange(len(words))
        words[cut] = random.choice(["", "x", "n", "(", "1.0", "f32[n]", words[-1], "=", ",", "*", "v0[0]", "()", "not x", "None"])
        lines[at] = " ".join(words)
        try:
            parse("\n".join(lines))
        except ParseError:
            damaged += 1
    assert damaged > 100


def test_a_long_function_prints_and_reads_back():
    bindings, last = [], Var("x", f32["n"])
    for i in range(1000):
        var = Var(f"v{i}", f32["n"])
        bindings.append(Binding(var, OPS["add"](last, Const(1.0, "f32"))))
        last = var
    module = Module((Function("main", (Var("x", f32["n"]),), (Dataflow(tuple(bindings), (last,)),), last),))
    assert parse(str(module)) == module

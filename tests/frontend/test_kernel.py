"""Kernels that users write: reading, verifying and fusing them, calling them in compiled functions and outside; errors."""

# ruff: noqa: F821   (sizes are named in quotes, and a kernel's functions are the compiler's)
import pickle
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import minirelax as mr
from minirelax import bool_, f32, f64, i32, i64, u8
from minirelax.errors import ArgumentError, CompileError, DTypeError, IndexingError, ParseError, ShapeError, VerifyError

BITS = 4


@mr.kernel
def decode(codes: u8["n", "k"], scale: f32["n"], out: f32["n", "2*k"], *, n, k):
    """Two codes of four bits in each byte."""
    for i in range(n):
        for j in range(2 * k):
            out[i, j] = (f32((codes[i, j // 2] >> u8(j % 2 * BITS)) & 15) - 7.0) * scale[i]


def decoded(codes, scale):
    both = np.stack([codes & 15, codes >> 4], axis=-1).reshape(codes.shape[0], 2 * codes.shape[1])
    return (both.astype(np.float32) - 7) * scale[:, None]


@mr.kernel
def split(x: f32["n", "m"], total: f32["n"], above: bool_["n", "m"], *, n, m):
    for i in range(n):
        total[i] = 0.0
        for k in range(m):
            total[i] += x[i, k]
    for i in range(n):
        for j in range(m):
            above[i, j] = x[i, j] * f32(m) > total[i]


@mr.kernel
def fill(value: f32[()], out: f32["n - 2", "m"], *, n, m):
    for i in range(n - 2):
        for j in range(m):
            out[i, j] = value[()]


@mr.kernel
def pick(x: f32["n"], places: i64["k"], out: f32["k"], *, n, k):
    for i in range(k):
        out[i] = x[places[i]]


def codes_and_scale(n, k):
    rng = np.random.default_rng(n + k)
    return rng.integers(0, 256, (n, k), np.uint8), rng.random(n, np.float32)


# ---- alone


@pytest.mark.parametrize("n, k", [(0, 3), (1, 1), (3, 0), (5, 4)])
def test_eagerly(n, k):
    codes, scale = codes_and_scale(n, k)
    np.testing.assert_array_equal(decode(codes, scale), decoded(codes, scale))
    np.testing.assert_array_equal(decode(scale=scale, codes=np.asfortranarray(codes), n=n), decoded(codes, scale))


def test_several_outputs_are_a_tuple_and_numbers_are_arrays_without_axes():
    total, above = split(np.float32([[1, 3], [2, 2]]))
    assert total.tolist() == [4, 4] and above.tolist() == [[False, True], [False, False]]
    assert fill(2, n=4, m=1).tolist() == [[2], [2]] == fill(np.float32(2), n=np.int64(4), m=1).tolist()


def test_the_text_of_a_kernel_is_what_the_ir_prints():
    assert str(decode) == """\
@kernel
def decode(codes: u8[n, k], scale: f32[n], out: f32[n, 2*k], *, n, k):
    for i in range(n):
        for j in range(2*k):
            out[i, j] = (f32(codes[i, j//2] >> u8(4*(j%2)) & 15) - 7.0) * scale[i]"""
    codes, scale = codes_and_scale(2, 3)
    for again in (mr.kernel(str(decode)), pickle.loads(pickle.dumps(decode))):
        assert again.ir == decode.ir
        np.testing.assert_array_equal(again(codes, scale), decoded(codes, scale))
    assert repr(fill) == "<kernel fill(value: f32[()], n=..., m=...)>"
    assert decode.__name__ == "decode" and decode.__doc__ == "Two codes of four bits in each byte."


def test_names_of_the_users_scope():
    width, wide, dtype = 3, f32["n", 3], np.float32

    @mr.kernel
    def fn(x: wide, y: mr.f32["n", width], z: "f32[n]", c: f32, out: mr.f32["n", "3"], *, n: int) -> None:
        for i in range(n):
            for j in range(width):
                out[i, j] = np.maximum(dtype(x[i, j]), y[i, j]) * np.exp(z[i]) + mr.f32(width) * c[()]

    x, z = np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros(2, np.float32)
    np.testing.assert_array_equal(fn(x, 2 * x, z, 1.0), 2 * x + 3)
    assert [str(v.type) for v in fn.ir.inputs] == ["f32[n, 3]", "f32[n, 3]", "f32[n]", "f32[()]"]


# ---- in compiled functions


def test_a_call_becomes_a_binding_with_guards_and_the_kernel_goes_into_the_module():
    @mr.jit(target="interpret")
    def fn(codes, scale):
        return decode(codes, scale) + 1

    for n, k in ((3, 2), (4, 1), (0, 0)):
        codes, scale = codes_and_scale(n, k)
        np.testing.assert_array_equal(fn(codes, scale), decoded(codes, scale) + 1)
    assert len(fn.compilations) == 1
    assert str(fn.trace(codes, scale)) == f"""\
{decode}

def main(codes: u8[n, m], scale: f32[n]) -> f32[n, 2*m]:
    with dataflow():
        v0: f32[n, 2*m] = call_kernel(decode, codes, scale, sizes=(n, m))
        v1: f32[n, 2*m] = add(v0, 1.0)
        output(v1)
    return v1"""


def test_sizes_that_no_input_shows():
    @mr.kernel
    def pairs(x: f64["2*n"], out: f64["n"], *, n):
        for i in range(n):
            out[i] = 0.0
            for k in range(2):
                out[i] += x[2 * i + k]

    fn = mr.jit(lambda x: pairs(x, n=x.shape[0] // 2), target="interpret")
    assert fn(np.arange(6.0)).tolist() == [1, 5, 9] and fn(np.arange(4.0)).tolist() == [1, 5]
    with pytest.raises(ShapeError, match="pairs: axis 0 of x must be 2\\*n; they are .* which differ in this call: 4 and 5"):
        fn(np.arange(5.0))
    grown = mr.jit(lambda y: fill(y.sum(), n=y.shape[0], m=y.shape[1]), target="interpret")
    assert grown(np.ones((4, 2), np.float32)).tolist() == [[8, 8], [8, 8]]
    assert [(str(g.left), g.relation, g.right) for g in grown._all[0].traced.facts] == [("y.shape[0]", ">=", 2)]


def test_declared_sizes_take_no_guards():
    def fn(codes: u8["a", "b"], scale: f32["c"]):
        return decode(codes, scale)

    with pytest.raises(ShapeError, match="axis 0 of scale must be n .axis 0 of codes.; they are a and c, which cannot be shown"):
        mr.trace(fn, u8["a", "b"], f32["c"])


def test_kernels_of_one_name():
    def scaled_by(factor):
        @mr.kernel
        def scale(x: f32["n"], out: f32["n"], *, n):
            for i in range(n):
                out[i] = x[i] * factor

        return scale

    main = mr.kernel("def main(x: f32[n], out: f32[n], *, n):\n    for i in range(n):\n        out[i] = x[i] + 1.0")
    two, three, again = scaled_by(2.0), scaled_by(3.0), scaled_by(2.0)
    fn = mr.jit(lambda x: main(two(x) + three(again(x))), target="interpret")
    assert fn(np.float32([1, 2])).tolist() == [9, 17]
    assert [k.name for k in fn.trace(np.float32([1, 2])).kernels] == ["scale", "scale_2", "main_2"]


def test_kernels_that_are_equal_keep_their_names():
    one, two = (mr.kernel(f"def {name}(x: f32[n], out: f32[n], *, n):\n    for i in range(n):\n        out[i] = exp(x[i])")
                for name in ("one", "two"))
    fn = mr.jit(lambda x: np.sort(one(x)) + np.sort(two(x)))
    np.testing.assert_allclose(fn(np.float32([1, 0])), 2 * np.exp(np.float32([0, 1])), rtol=1e-6)


def test_weak_numbers_constants_and_literals_as_inputs():
    @mr.kernel
    def axpy(a: f32[()], x: f32["n"], y: f32["n"], out: f32["n"], *, n):
        for i in range(n):
            out[i] = a[()] * x[i] + y[i]

    x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
    fn = mr.jit(lambda x, t: axpy(2, x, y) + axpy(t, x, x), target="interpret")
    assert fn(x, 3).tolist() == [1, 7, 13] and fn(x, 0.5).tolist() == [1, 4.5, 8]
    literal = mr.jit(lambda x: axpy(2.5, x, x) + axpy(np.float32(2), x, x))
    assert literal(x).tolist() == [0, 6.5, 13]
    assert [k.name for k in literal.stages["legalize"].module.kernels] == ["axpy", "full", "full_2", "add"]


# ---- natively


def test_the_example(capsys):
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "own_kernel.py"), run_name="__main__")
    assert "Equal to NumPy at three sizes, with 1 compilation." in capsys.readouterr().out


@pytest.fixture(scope="module")
def layer():
    @mr.jit
    def layer(x, codes, scale, bias):
        return np.maximum(x @ decode(codes, scale).T + bias, 0)

    return layer


@pytest.mark.parametrize("n", [0, 1, 7, 64])
def test_four_bit_weights_are_decoded_inside_the_matrix_product(layer, n):
    for k in (0, 1, 7, 64):
        codes, scale = codes_and_scale(n, k)
        x, bias = np.random.default_rng(k).random((5, 2 * k), np.float32), np.linspace(-1, 1, n, dtype=np.float32)
        want = np.maximum(x @ decoded(codes, scale).T + bias, 0)
        np.testing.assert_allclose(layer(x, codes, scale, bias), want, rtol=1e-4, atol=1e-4)
    assert len(layer.compilations) == 1
    fused, = layer.stages["fuse_kernels"].module.kernels
    assert fused.name == "decode_transpose_matmul_add_maximum" and fused.pattern == "contraction"
    assert [str(v.type) for v in fused.local] == ["f32[n, k]"]  # the product; no decoded weights
    assert "B copy" in str(layer.tiling)  # they are decoded into the panels for the register tiles


def test_an_elementwise_kernel_fuses_with_its_neighbours():
    @mr.kernel
    def gate(x: f32["n"], y: f32["n"], out: f32["n"], *, n):
        for i in range(n):
            out[i] = x[i] / (1.0 + exp(-y[i]))

    fn = mr.jit(lambda x, y: gate(x * 2, y) + x)
    x = np.linspace(-3, 3, 20, dtype=np.float32)
    np.testing.assert_allclose(fn(x, x), x * 2 / (1 + np.exp(-x)) + x, rtol=1e-5)
    assert [(k.name, k.pattern) for k in fn.stages["fuse_kernels"].module.kernels] == [("multiply_gate_add", "elementwise")]


@mr.kernel
def transposed(x: f32["n", "m"], out: f32["m", "n"], *, n, m):
    t = local(f32["m", "n"])
    for i in range(n):
        for j in range(m):
            t[j, i] = x[i, j] + 1.0
    for i in range(n):
        for j in range(m):
            out[j, i] = t[j, i] * t[j, i]


@mr.kernel
def written_twice(x: f32["n"], out: f32["n"], *, n):
    for i in range(n):
        out[n - 1 - i] = x[i]
    for i in range(n):
        out[i] = x[i] * 10.0


@mr.kernel
def read_between_writes(x: f32["n"], backwards: f32["n"], tripled: f32["n"], *, n):
    t = local(f32["n"])
    for i in range(n):
        t[i] = x[i]
    for i in range(n):
        backwards[i] = t[n - 1 - i]
    for i in range(n):
        t[i] = x[i] * 3.0
    for i in range(n):
        tripled[i] = t[i]


@mr.kernel
def scatter(x: f32["n"], places: i32["n"], out: f32["n"], *, n):
    for i in range(n):
        out[i] = 0.0
    for i in range(n):
        out[where(places[i] < 0, i64(places[i]) + n, i64(places[i]))] = x[i]


@pytest.mark.parametrize("kernel", [transposed, written_twice, read_between_writes, scatter], ids=lambda k: k.ir.name)
def test_compiled_code_does_what_the_text_does(kernel):
    fn = mr.jit(kernel)
    for n in (0, 1, 6, 200):
        x = np.random.default_rng(n).random((n, 3) if kernel is transposed else n, np.float32)
        args = (x, np.arange(n, dtype=np.int32)[::-1] - n) if kernel is scatter else (x,)
        for got, want in zip(np.atleast_2d(fn(*args)), np.atleast_2d(kernel(*args)), strict=True):
            np.testing.assert_array_equal(got, want)
    assert len(fn.compilations) == 1


def test_parallel_tiles_write_in_no_order_of_their_own():
    """Blocks that write one buffer in different orders share no loop, so the last write to a place is the text's."""
    x = np.arange(100_000, dtype=np.float32)
    np.testing.assert_array_equal(mr.jit(written_twice)(x), x * 10)


def test_an_index_out_of_range_is_an_index_error_everywhere():
    x = np.float32([1, 2, 3])
    compiled, interpreted = mr.jit(lambda x, i: pick(x, i) + 1), mr.jit(lambda x, i: pick(x, i) + 1, target="interpret")
    for fn in (compiled, interpreted, lambda x, i: pick(x, i) + 1):
        assert fn(x, np.array([2, 0])).tolist() == [4, 2]
        for place in (3, -1, 2**40):
            with pytest.raises(IndexingError, match=f"index {place} is out of bounds for size 3\n  at test_kernel.py"):
                fn(x, np.array([0, place]))


def test_nothing_is_inside_an_empty_axis():
    """The fall-back of a checked index is element 0, which an empty axis has not: it must not be touched."""
    take = mr.jit(lambda x, i: x[i] * 2)
    with pytest.raises(IndexError):
        take(np.empty((0, 50_000_000), np.float32), np.array([0]))
    with pytest.raises(IndexingError):
        mr.jit(lambda x, i: pick(x, i))(np.float32([]), np.array([0]))


# ---- what goes wrong


def test_an_error_in_a_function_names_its_file_and_line():
    with pytest.raises(VerifyError) as e:
        @mr.kernel
        def fn(x: mr.u8["n"], out: mr.f32["n"], *, n):
            for i in range(n):
                out[i] = np.exp(x[i])
    assert re.sub(r"py:\d+", "py:0", str(e.value)) == """\
exp is for f32 and f64, not u8
  at test_kernel.py:0   out[i] = np.exp(x[i])
  hint: functions are called as NumPy's; convert an operand by its dtype: f32(x)"""
    assert f":{test_an_error_in_a_function_names_its_file_and_line.__code__.co_firstlineno + 5} " in str(e.value)


HEAD = "def f(x: f32[n], out: f32[n], *, n, k):\n    for i in range(n):\n        "


@pytest.mark.parametrize("text, error, message", [
    (HEAD + "if x[i] > 0:\n            out[i] = x[i]", ParseError,
     "a store is expected here\n  at line 3   if x[i] > 0:\n  hint: choose the value: out[i] = a if condition else b"),
    (HEAD + "out[i] = x[i] > 0 and x[i] < 1", ParseError,
     "not a scalar: x[i] > 0 and x[i] < 1\n  at line 3   out[i] = x[i] > 0 and x[i] < 1\n"
     "  hint: write logical_and(a, b) or logical_or(a, b)"),
    (HEAD + "return x[i]", ParseError, "a store is expected here\n  at line 3   return x[i]\n"
     "  hint: a kernel returns nothing: it stores to parameters that come last"),
    (HEAD + "while x[i] > 0:\n            out[i] = x[i]", ParseError,
     "a store is expected here\n  at line 3   while x[i] > 0:\n  hint: the number of rounds must be a size: for i in range(n):"),
    (HEAD + "out[i] = sqr(x[i])", VerifyError, "there is no function sqr of scalars: did you mean sqrt or square?\n"
     "  at line 3   out[i] = sqr(x[i])\n  hint: functions are called as NumPy's; convert an operand by its dtype: f32(x)"),
    (HEAD + "out[i] = hypot(x[i])", VerifyError, "hypot takes 2 operands, not 1\n  at line 3   out[i] = hypot(x[i])\n"
     "  hint: functions are called as NumPy's; convert an operand by its dtype: f32(x)"),
    (HEAD + "out[i] = x[i - n]", VerifyError, "x[i - n] is outside x: f32[n]\n  at line 3   out[i] = x[i - n]\n"
     "  hint: indices count from 0; clamp them, as in x[max(i - 1, 0)], or read only what is there: x[i - 1] if i > 0 else 0.0"),
    (HEAD + "out[i] = x[i // k]", VerifyError,
     "i//k divides by k, which may be 0\n  at line 3   out[i] = x[i // k]\n  hint: divide by max(k, 1)"),
    (HEAD + "t[i] = x[i]", ParseError, "there is no buffer t\n  at line 3   t[i] = x[i]\n  hint: there are x, out"),
    ("def f(x: f32[n], out: f32[n]):\n    for i in range(n):\n        out[i] = x[i]", VerifyError,
     "the type of x mentions n, which is not in scope\n  at line 1   def f(x: f32[n], out: f32[n]):\n"
     "  hint: sizes are parameters of the kernel, after *"),
    ("def f(x: f32[n], *, n):\n    pass", ParseError, "nothing is stored\n  at line 1   def f(x: f32[n], *, n):\n"
     "  hint: a kernel stores to its last parameters: out[i] = x[i]"),
    ("def f(x: f32[n], *, n) -> f32[n]:\n    pass", ParseError,
     "a kernel returns nothing\n  at line 1   def f(x: f32[n], *, n) -> f32[n]:\n"
     "  hint: declare what it stores to as its last parameters: out: f32['n']"),
    ("x = 3", ParseError, "a kernel is one function\n  at line 1   x = 3\n  hint: def f(x: f32['n'], out: f32['n'], *, n): ..."),
    ("", ParseError, "a kernel is one function\n  at the text\n  hint: def f(x: f32['n'], out: f32['n'], *, n): ...")])
def test_texts_that_are_no_kernel(text, error, message):
    with pytest.raises(error) as e:
        mr.kernel(text)
    assert str(e.value) == message


def test_functions_without_source_and_things_that_are_no_function():
    scope = {}
    exec("def made(x, out): pass", scope)
    for given, error, what in (
            (scope["made"], ParseError, "the source of made cannot be found"),
            (lambda x: x, ParseError, "a kernel is one function"),
            (3, ArgumentError, "a kernel is a function or its text, not of type int")):
        with pytest.raises(error) as e:
            mr.kernel(given)
        assert e.value.what == what and e.value.hint
    with pytest.raises(ArgumentError, match="there is no pattern 'nice'"):
        mr.kernel(pattern="nice")
    assert mr.kernel(str(decode), pattern="opaque").ir.pattern == "opaque"


CODES, SCALE = np.ones((3, 2), np.uint8), np.ones(3, np.float32)
USAGE = "call it as decode(codes: u8[n, k], scale: f32[n]); out is what it returns"


@pytest.mark.parametrize("call, error, what, hint", [
    (lambda: decode(CODES, SCALE, SCALE), ArgumentError, "decode takes 2 inputs, 3 are given", USAGE),
    (lambda: decode(CODES), ArgumentError, "decode: the input scale is missing", USAGE),
    (lambda: decode(CODES, SCALE, out=CODES), ArgumentError, "decode: out is no input or size", USAGE),
    (lambda: decode(CODES, codes=CODES), ArgumentError, "decode: codes is given twice", USAGE),
    (lambda: decode(SCALE, SCALE), DTypeError, "decode: codes must be u8[n, k], not f32[3]",
     "convert it: codes.astype(np.uint8)"),
    (lambda: decode(CODES[0], SCALE), ShapeError, "decode: codes must be u8[n, k], not u8[2]: 1 axis, not 2", "reshape it"),
    (lambda: decode(CODES, SCALE[:2]), ShapeError, "decode: axis 0 of scale must be n (axis 0 of codes); they are 2 and 3", ""),
    (lambda: decode(CODES, SCALE, n=4), ShapeError, "decode: axis 0 of codes must be n (as given); they are 3 and 4", ""),
    (lambda: fill(1, m=2), ArgumentError, "fill: no input shows the size n", "give it by name: fill(..., n=x.shape[0])"),
    (lambda: fill(1, n=1, m=2), ShapeError, "fill: axis 0 of out: f32[n - 2, m] is negative where n = 1, m = 2", ""),
    (lambda: fill(1, n=3, m=-2), ShapeError, "fill: the size m is negative: -2", ""),
    (lambda: fill(1, n=3, m=2.0), ArgumentError, "fill: the size m must be an integer, not float", "x.shape[0], or 16"),
    (lambda: fill(np.float16(1), n=3, m=2), DTypeError,
     "argument value of fill: an array of dtype float16 cannot be compiled",
     "use bool, an integer type, float32, float64, complex64 or complex128: x.astype(np.float32)"),
])
def test_calls_that_do_not_fit(call, error, what, hint):
    with pytest.raises(error) as e:
        call()
    assert (e.value.what, e.value.hint) == (what, hint) and e.value.where.startswith("test_kernel.py:")


def test_calls_that_do_not_fit_inside_a_compiled_function():
    for fn, error, what in (
            (lambda x: decode(x, x), DTypeError, "decode: codes must be u8[n, k], not f32[n]"),
            (lambda x: fill(x[0], n=x.shape[0] - 3, m=x), ArgumentError, "fill: the size m must be an integer, not TracedArray"),
            (lambda x: fill(x[0], n=x.shape[0] - 9, m=1), ShapeError, "fill: the size n is negative: n - 9")):
        with pytest.raises(CompileError) as e:
            mr.jit(fn, target="interpret")(SCALE)
        assert type(e.value) is error and e.value.what == what and e.value.where.startswith("test_kernel.py:")

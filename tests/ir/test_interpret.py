"""The meaning of modules: ops, kernels, calls, sizes, memory, and errors at the boundary of a call."""
from __future__ import annotations

import numpy as np
import pytest

from minirelax.errors import ArgumentError, DTypeError, IndexingError, LibraryError, RunError, ShapeError
from minirelax.ir.execute import execute
from minirelax.ir.graph import Var
from minirelax.ir.interpret import interpret
from minirelax.ir.library import ROUTINES, register_library
from minirelax.ir.parser import parse, parse_kernel
from minirelax.ir.tensor import lower_to_kernel
from minirelax.ir.types import Tensor, dtype_name
from minirelax.ir.verify import verify
from minirelax.ops import OPS
from tests.ir.test_text import GRAPH
from tests.ir.test_verify import DOUBLE

X = np.array([3, 1, 2, 1], np.float32)
DESTINATIONS = DOUBLE + '''
def main(x: f32[n]) -> Tuple[f32[n, 1], f32[n]]:
    match_shape(x, (n,), binds=("n",))
    heap[0] = 4*n
    v0: Storage[8*n] = alloc_storage()
    v1: f32[n] = alloc_tensor(v0)
    v2: f32[n] = alloc_tensor()
    run_kernel(double, x, out=(v1,), sizes=(n,))
    run_library("sort", v1, out=(v2,), axis=0)
    v3: f32[n, 1] = view(v1)
    v4: Tuple[f32[n, 1], f32[n]] = (v3, v2)
    return v4'''


def test_ops_sizes_and_tuples():
    module = parse('''
c0: f32[2] = constant([10.0, 20.0])
def main(x: f32[n], flag: bool[()]) -> Tuple[f32[m], f32[n + m], f32[()], f32[2]]:
    with dataflow():
        v0: f32[_] = call_library("unique", x)
        v1: f32[m] = match_cast(v0, f32[m])
        v2: f32[n + m] = concatenate((x, v1), axis=0)
        v3: f32[()] = where(flag, f32(1.0), f32(-1.0))
        v4: Tuple[f32[m], f32[n + m], f32[()], f32[2]] = (v1, v2, v3, c0)
        v5: f32[m] = v4[0]
        output(v4)
    return v4''')
    verify(module)
    unique, both, one, constant = interpret(module, X, True)
    assert unique.tolist() == [1, 2, 3] and both.tolist() == [3, 1, 2, 1, 1, 2, 3] and one == 1 and constant.tolist() == [10, 20]
    assert all(v.dtype == np.float32 for v in (unique, both, one, constant))


def test_kernels_with_several_results():
    module = parse(GRAPH.partition("def main")[0] + '''
def main(x: f32[n, m]) -> Tuple[f32[n, m], f32[3], i64[()]]:
    v0: f32[n, m] = call_kernel(softmax, x, sizes=(n, m))
    v1: Tuple[f32[3], i64[()]] = call_kernel(two, c0, sizes=(3,))
    v2: f32[3] = v1[0]
    v3: i64[()] = v1[1]
    v4: Tuple[f32[n, m], f32[3], i64[()]] = (v0, v2, v3)
    return v4''')
    verify(module)
    x = np.array([[1, 2, 3], [0, -1, 5]], np.float32)
    softmax, copied, total = interpret(module, x)
    e = x - x.max(1, keepdims=True)
    np.testing.assert_allclose(softmax, np.exp(e) * e / np.exp(e).sum(1, keepdims=True), rtol=1e-6)
    assert copied.tolist() == [1.0, np.float32(0.1), -np.inf] and total == 1 + 1 + np.iinfo(np.int64).min + 2


def test_functions_that_call_each_other():
    module = parse('''
def main(x: f32[2*n], y: f32[n]) -> f32[_]:
    s: Shape([n]) = shape(n)
    v0: f32[2*n] = f(x, s)
    v1: f32[_] = g(v0)
    return v1

@private
def f(x: f32[2*k], s: Shape([k])) -> f32[2*k]:
    v0: f32[2*k] = full(f32(1.0), shape=(2*k,))
    v1: f32[2*k] = add(x, v0)
    return v1

@private
def g(x: f32[n]) -> f32[m]:
    v0: f32[_] = call_library("unique", x)
    v1: f32[m] = match_cast(v0, f32[m])
    return v1''')
    verify(module)
    assert interpret(module, X, X[:2]).tolist() == [2, 3, 4]


def test_destination_passing_and_memory():
    module = parse(DESTINATIONS)
    verify(module)
    doubled, ordered = interpret(module, X)
    assert doubled.tolist() == [[6], [2], [4], [2]] and ordered.tolist() == [2, 2, 4, 6]
    with pytest.raises(RunError, match="a tensor of 16 bytes does not fit into a storage of 8"):
        interpret(parse(DESTINATIONS.replace("Storage[8*n]", "Storage[2*n]")), X)


def test_bound_parameters_and_functions_by_name():
    module = parse('''
def main(x: f32[n], *, w: f32[n], b: f32[()]) -> f32[n]:
    v0: f32[n] = multiply(x, w)
    v1: f32[n] = add(v0, b)
    return v1

def bind(w: f32[n]) -> f32[n]:
    v0: f32[n] = negative(w)
    return v0''')
    assert interpret(module, X, bound=(X, 1.0)).tolist() == interpret(module, X, bound={"b": 1.0, "w": X}).tolist() == [10, 2, 5,
        2]
    assert interpret(module, X, function="bind").tolist() == [-3, -1, -2, -1]
    with pytest.raises(ArgumentError, match="main takes 1 arguments and 2 bound ones; 1 and 0 are given"):
        interpret(module, X)


def test_registered_routines():
    module = parse('def main(x: f32[n]) -> f32[n]:\n    v0: f32[n] = call_library("scaled", x, sizes=(n,))\n    return v0')
    register_library("scaled", lambda x, out, by: np.multiply(x, np.float32(by), out=out) is None)
    try:
        with pytest.raises(LibraryError, match="the library routine scaled returned a value of type bool"):
            interpret(module, X)
        register_library("scaled", lambda x, out, by: np.copyto(out, x * by))
        assert interpret(module, X).tolist() == [12, 4, 8, 4]
    finally:
        del ROUTINES["scaled"]
    with pytest.raises(RunError, match="no library routine is called scaled"):
        interpret(module, X)


@pytest.mark.parametrize("args, error, what", [
    ((np.zeros((2, 3)), X), DTypeError,
     "main: argument x: expected f32[n, n + 1], got an array of shape (2, 3): dtype float64, not float32"),
    ((np.zeros((2, 4), np.float32), X), ShapeError,
     "main: argument x: expected f32[n, n + 1], got an array of shape (2, 4): axis 1 is 4, "
     "not n + 1 = 3 (n = 2 is the size of axis 0 of x)"),
    ((np.zeros(3, np.float32), X), ShapeError,
     "main: argument x: expected f32[n, n + 1], got an array of shape (3,): 1 axis, not 2"),
    ((np.zeros((2, 3), np.float32), X), ShapeError,
     "main: argument y: expected f32[2*n - 1], got an array of shape (4,): axis 0 is 4, "
     "not 2*n - 1 = 3 (n = 2 is the size of axis 0 of x)"),
    ((X,), ArgumentError, "main takes 2 arguments and 0 bound ones; 1 and 0 are given")])
def test_arguments_that_do_not_fit(args, error, what):
    module = parse("def main(x: f32[n, n + 1], y: f32[2*n - 1]) -> f32[n, n + 1]:\n    return x")
    with pytest.raises(error) as e:
        interpret(module, *args)
    assert e.value.what == what


def test_a_wrong_declaration_is_seen():
    module = parse("def main(x: f32[n]) -> f32[n, 1]:\n    v0: f32[n, 1] = exp(x)\n    return v0")
    with pytest.raises(ShapeError, match=r"main: v0: expected f32\[n, 1\], got an array of shape \(4,\)"):
        interpret(module, X)


KERNEL = "@kernel\ndef k(x: {0}[n], out: {0}[n], *, n):\n    for i in range(n):\n        out[i] = "


@pytest.mark.parametrize("index", ["i + 1", "i - 1", "i64(x[i])"])
def test_places_outside_a_buffer_are_errors(index):
    kernel = parse_kernel(KERNEL.format("f32") + f"where(i < 0, x[{index}], x[i])")
    with pytest.raises(RunError, match=r"kernel k uses x\[-?\d\], outside its shape \(2,\)"):
        execute(kernel, (np.array([2, 2], np.float32),), n=2)


def test_checked_indices():
    kernel = parse_kernel(KERNEL.format("i64") + "x[check_index(x[i], n)]")
    assert execute(kernel, (np.array([1, 0]),), n=2)[0].tolist() == [0, 1]
    with pytest.raises(IndexingError, match="index 2 is out of bounds for size 2"):
        execute(kernel, (np.array([1, 2]),), n=2)


@pytest.mark.parametrize("dtype, expression, given, expected", [
    ("i8", "x[i] + 100", [100, -128], [-56, -28]), ("i8", "-x[i]", [-128, 1], [-128, -1]), ("u8", "x[i] - 1", [0, 5], [255, 4]),
    ("i32", "x[i] // 0", [7, -7], [0, 0]), ("i32", "x[i] % -3", [7, -7], [-2, -1]), ("i64", "x[i] * size(n) + n", [1, 2], [4, 6]),
    ("i64", "(n + i) // 2 * x[i]", [1, 1], [1, 1]), ("i64", "size(n) // (size(i) - 1)", [0, 0], [-2, 0]),
    ("f32", "x[i] * 16777217.0", [1, 2], [16777216, 33554432]), ("f32", "f32(f64(x[i]) + 1e-9)", [1, 0], [1, 1e-9]),
    ("f32", "sqrt(where(x[i] > 0.0, f32(2.0), f32(3.0)))", [1, -1], np.sqrt(np.array([2, 3], np.float32))),
    ("f32", "maximum(x[i], nan)", [1, 2], [np.nan, np.nan]), ("f32", "where(isnan(x[i]), inf, -x[i])", [np.nan, 2], [np.inf, -2]),
    ("f64", "erf(x[i]) ** 2.0", [0, 1], [0, 0.8427007929497149 ** 2]), ("f32", "f32(i8(x[i]))", [-3.7, 100.9], [-3, 100]),
    ("bool", "logical_and(x[i], i < 1) == True", [True, True], [True, False]),
    ("u64", "x[i] >> 1 & 3 | ~x[i] << 63", [7, 4], [3, 2 + (1 << 63)]),
    ("f32", "f32(min(i + 1, n//2) - max(i, 1))", [0, 0], [0, 0]),
    ("f32", "divide(f32(1.0), x[i], dtype=f32)", [4, 0], [0.25, np.inf])])
def test_numbers_are_numpys(dtype, expression, given, expected):
    kernel = parse_kernel(KERNEL.format(dtype) + expression)
    numpy_dtype = Tensor(dtype, ()).numpy_dtype
    out, = execute(kernel, (np.array(given, numpy_dtype),), n=2)
    np.testing.assert_array_equal(out, np.array(expected, numpy_dtype))


def test_unknown_functions_and_names_that_hide_functions():
    with pytest.raises(RunError, match="kernel k calls frobnicate, which is not a function of NumPy scalars"):
        execute(parse_kernel(KERNEL.format("f32") + "frobnicate(x[i])"), (X,), n=4)
    hiding = parse_kernel('''
@kernel
def exp(exp: f32[range], size: f32[range], f32: f32[range], *, range):
    local = local(f32[range])
    for min in range(range):
        local[min] = exp(exp[min])
    for max in range(range):
        size[max] = local[max]
    for i in range(range):
        f32[i] = f32(size(i) * 2)''')
    first, second = execute(hiding, (X,), range=4)
    np.testing.assert_array_equal(first, np.exp(X))
    assert second.tolist() == [0, 2, 4, 6]


def test_reads_before_writes_show():
    kernel = parse_kernel("@kernel\ndef k(out: f32[2]):\n    t = local(f32[2])\n    for i in range(2):\n        out[i] = t[i]")
    assert np.isnan(execute(kernel, ())[0]).all()


@pytest.mark.parametrize("name", sorted(n for n, cls in OPS.items() if not cls.library))
def test_text_of_kernels_computes_what_numpy_does(name):
    op, arrays = OPS[name].examples()[0]
    arrays = tuple(map(np.asarray, arrays))
    kernel = lower_to_kernel(name, op.lower, tuple(Var(f"x{i}", Tensor(dtype_name(a.dtype), a.shape)) for i,
        a in enumerate(arrays)))
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(execute(kernel, arrays)[0], op.numpy(*arrays), rtol=4e-6, atol=1e-30)

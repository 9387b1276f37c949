"""Library routines: destination passing, several outputs, sizes, results of unknown size; what a routine can do wrong."""

# ruff: noqa: F821   (sizes are named in quotes)
import ctypes
import gc
import re

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32, f64, i64
from minirelax.errors import ArgumentError, LibraryError, RunError, ShapeError
from minirelax.ir.checked import is_checked
from minirelax.ir.library import ROUTINES
from minirelax.ir.parser import parse

TARGETS = pytest.mark.parametrize("target", ["cpu", "interpret"])


@pytest.fixture(autouse=True)
def routines():
    """A registry of this test's own."""
    before = dict(ROUTINES)
    mr.register_library("product", np.matmul)
    mr.register_library("moments", moments)
    mr.register_library("positive", lambda x, n: (x[x > 0], np.flatnonzero(x > 0) + n))
    yield
    ROUTINES.clear()
    ROUTINES.update(before)


def moments(x, mean, variance, scale):
    mean[...] = x.mean(axis=1)
    variance[...] = x.var(axis=1) * scale


def mixed(x, w):
    """Ops, a routine with one output, one with two and a size, one that returns what it alone knows the size of."""
    y = mr.call_library("product", (x * 2, w), f32[x.shape[0], w.shape[1]])
    mean, variance = mr.call_library("moments", [y], [f32[x.shape[0]], f32[x.shape[0]]], sizes=(x.shape[0],))
    found, places = mr.call_library("positive", (mean,), (f32["_"], i64["_"]), sizes=x.shape[:1])
    return y + 1, mean, variance, found * 2, places


@TARGETS
def test_all_kinds_of_routines_in_one_program(target):
    fn, rng = mr.jit(mixed, target=target), np.random.default_rng(0)
    for n in (3, 0, 1, 17):
        x, w = rng.standard_normal((n, 4), np.float32), rng.standard_normal((4, 5), np.float32)
        y, mean, variance, found, places = fn(x, w)
        np.testing.assert_allclose(y, x * 2 @ w + 1, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(mean, (x * 2 @ w).mean(1), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(variance, (x * 2 @ w).var(1) * n, rtol=1e-4)
        np.testing.assert_array_equal(found, mean[mean > 0] * 2)
        np.testing.assert_array_equal(places, np.flatnonzero(mean > 0) + n)
    assert len(fn.compilations) == 1


def test_the_text():
    module = mr.trace(mixed, f32["n", 4], f32[4, 5])
    assert str(module) == """\
def main(x: f32[n, 4], w: f32[4, 5]) -> Tuple[f32[n, 5], f32[n], f32[n], f32[m], i64[k]]:
    with dataflow():
        v0: f32[n, 4] = multiply(x, 2.0)
        v1: f32[n, 5] = call_library("product", v0, w)
        v2: Tuple[f32[n], f32[n]] = call_library("moments", v1, sizes=(n,))
        v3: f32[n] = v2[0]
        v4: f32[n] = v2[1]
        v5: Tuple[f32[_], i64[_]] = call_library("positive", v3, sizes=(n,))
        v6: f32[_] = v5[0]
        v7: i64[_] = v5[1]
        v8: f32[m] = match_cast(v6, f32[m])
        v9: i64[k] = match_cast(v7, i64[k])
        v10: f32[n, 5] = add(v1, 1.0)
        v11: f32[m] = multiply(v8, 2.0)
        v12: Tuple[f32[n, 5], f32[n], f32[n], f32[m], i64[k]] = (v10, v3, v4, v11, v9)
        output(v12)
    return v12"""
    last = mr.run(module, mr.pipeline.passes())[-1].module
    assert 'run_library("moments", v1, out=(v3, v4), sizes=(n,))' in str(last)
    assert parse(str(module)) == module and parse(str(last)) == last


@mr.kernel
def halves(x: f64["n"], out: f64["n"], *, n):
    for i in range(n):
        out[i] = x[i] / 2.0


def test_an_op_a_kernel_a_library_op_and_a_routine_in_one_module():
    mr.register_library("reverse", lambda x, out: np.copyto(out, x[::-1]))
    fn = mr.jit(lambda x: np.sort(mr.call_library("reverse", (halves(x + 1),), f64[x.shape[0]])) * 3)
    for x in (np.array([3.0, -1, 5]), np.zeros(0)):
        np.testing.assert_array_equal(fn(x), np.sort((x + 1) / 2) * 3)
    stages = {name: str(fn.stages[name].module["main"]) for name in ("trace", "legalize")}
    assert all(part in stages["trace"] for part in ("add(x, 1.0)", "call_kernel(halves,", 'call_library("reverse",', "sort(v2"))
    assert not re.search(r"= (add|sort|multiply)\(", stages["legalize"])


@TARGETS
def test_what_a_routine_is_given(target):
    seen = []

    def look(x, w, number, out, n, k):
        seen.append([(a.shape, a.flags.c_contiguous, a.flags.writeable, type(a)) for a in (x, w, number, out)])
        seen.append((n, type(n), k, number.dtype))
        out[...] = 0

    mr.register_library("look", look)

    class Sub(np.ndarray):
        pass

    @mr.jit(target=target)
    def fn(x, w):
        return mr.call_library("look", (x, w + 1, 2.5), f32[x.shape[0], 3], sizes=(x.shape[0] * 2, 7))

    fn(np.asfortranarray(np.ones((2, 3), np.float32)).view(Sub), np.ones(2))
    arrays, sizes = seen[-2:]
    assert arrays == [((2, 3), True, False, np.ndarray), ((2,), True, False, np.ndarray), ((), True, False, np.ndarray),
                      ((2, 3), True, True, np.ndarray)]
    assert sizes == (4, int, 7, np.float64)


def test_letters_stand_for_declared_sizes():
    def fn(x: f32["n", "k"], w: f32["k", "m"]):
        return mr.call_library("product", (x, w), f32["n", "m"])

    assert mr.jit(fn)(np.ones((2, 3), np.float32), np.ones((3, 4), np.float32)).tolist() == [[3] * 4] * 2


def test_eagerly():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(mr.call_library("product", (x, x.T), f32[2, x.shape[0]]), x @ x.T)
    found, places = mr.call_library("positive", (x.ravel(),), [f32["_"], i64["_"]], sizes=(1,))
    assert found.tolist() == [1, 2, 3, 4, 5] and places.tolist() == [2, 3, 4, 5, 6]
    single = mr.call_library("product", (x[0], x[1]), [f32[()]])
    assert isinstance(single, tuple) and single[0] == x[0] @ x[1]


def test_a_routine_on_weights_runs_once_unless_its_sizes_come_from_the_call():
    calls = []
    mr.register_library("doubled", lambda w, out: calls.append(1) or np.multiply(w, 2, out=out))
    mr.register_library("times", lambda w, out, n: np.multiply(w, n, out=out))
    p = {"w": np.arange(3.0)}
    fn = mr.jit(lambda p, x: mr.call_library("doubled", (p["w"],), f64[3]) + x, constants=("p",))
    scaled = mr.jit(lambda p, x: mr.call_library("times", (p["w"],), f64[3], sizes=(x.shape[0],)) + x.sum(), constants=("p",))
    last = mr.jit(lambda p, x: p["w"][x.shape[0] - 1] + x.sum(), constants=("p",))
    for n in (1, 2, 3):
        assert fn(p, np.full(1, n)).tolist() == [n, n + 2, n + 4]
        assert scaled(p, np.zeros(n)).tolist() == [0, n, 2 * n]
        assert last(p, np.zeros(n)) == n - 1
    assert len(calls) == 1


def test_a_program_finds_its_routine_when_it_runs():
    fn = mr.jit(lambda x: mr.call_library("changing", (x,), f64[x.shape[0]]))
    for factor in (2, 3):
        mr.register_library("changing", lambda x, out, factor=factor: np.multiply(x, factor, out=out))
        assert fn(np.ones(2)).tolist() == [factor] * 2
    del ROUTINES["changing"]
    with pytest.raises(RunError, match="no library routine is called changing\n.*hint: register it first"):
        fn(np.ones(2))


def test_a_routine_may_call_a_compiled_function():
    inner = mr.jit(lambda x: np.tanh(x) * 2)
    mr.register_library("nested", lambda x, out: np.copyto(out, inner(x)))
    fn = mr.jit(lambda x: mr.call_library("nested", (x + 1,), f64[x.shape[0]]) + 1)
    x = np.linspace(0, 1, 30_000)
    np.testing.assert_allclose(fn(x), np.tanh(x + 1) * 2 + 1)


def test_who_keeps_an_array_keeps_its_memory():
    kept = []

    def keep(x, out):
        kept.extend([x, out])
        out[...] = x

    mr.register_library("keep", keep)
    fn = mr.jit(lambda x: np.exp(mr.call_library("keep", (x * 2,), f64[x.shape[0]]) + 1))
    for n in (10, 1000, 200_000, 10):
        np.testing.assert_allclose(fn(np.zeros(n)), np.e)
    del fn
    gc.collect()
    for array in kept[1::2]:
        array[...] = 7
    assert [a.size for a in kept] == [10, 10, 1000, 1000, 200_000, 200_000, 10, 10]


# ---- what goes wrong


@pytest.mark.parametrize("fn, error, what, hint", [
    (lambda x: mr.call_library("produkt", (x, x), f32[3]), ArgumentError, "no library routine is called produkt",
     "did you mean product?"),
    (lambda x: mr.call_library("zz", (x,), f32[3]), ArgumentError, "no library routine is called zz",
     "register it first: minirelax.register_library('zz', function)"),
    (lambda x: mr.call_library("sort", (x,), f32[3]), ArgumentError, "no library routine is called sort",
     "sort is an operation of the compiler: call NumPy's function"),
    (lambda x: mr.call_library("product", x, f32[3]), ArgumentError, "call_library('product'): args is a TracedArray",
     "args is a tuple of arrays: (x,)"),
    (lambda x: mr.call_library("product", (x,), []), ArgumentError, "call_library('product'): no output is declared",
     'out=f32[x.shape[0], 10], or a list of such types; "_" is a size that only the routine knows'),
    (lambda x: mr.call_library("product", (x,), f32[...]), ArgumentError, "call_library('product'): an output cannot be f32[...]",
     'out=f32[x.shape[0], 10], or a list of such types; "_" is a size that only the routine knows'),
    (lambda x: mr.call_library("product", (x,), f32["n", 3]), ArgumentError,
     "call_library('product'): the size n of f32[n, 3] is not known",
     'no letter is bound here; use a size of an array, x.shape[0], or "_" for a size that only the routine knows'),
    (lambda x: mr.call_library("product", (x,), f32[x.shape[0] - 5]), ShapeError,
     "call_library('product'): f32[n - 5] has a negative size: n - 5 = -2 in this call", ""),
    (lambda x: mr.call_library("product", (x,), f32[3], sizes=(x,)), ArgumentError,
     "call_library('product'): a size must be an integer, not TracedArray",
     'out=f32[x.shape[0], 10], or a list of such types; "_" is a size that only the routine knows')])
def test_calls_that_cannot_be_made(fn, error, what, hint):
    with pytest.raises(error) as e:
        mr.jit(fn, target="interpret")(np.ones(3, np.float32))
    assert (e.value.what, e.value.hint) == (what, hint) and e.value.where.startswith("test_call_library.py:")


def test_registrations_that_cannot_be_made():
    for args, what in ((("sort", len), "register_library: sort is an operation of the compiler"),
                       (("mine", 3), "register_library('mine'): not a function: 3"),
                       (("", len), "the name of a library routine is a string, not ''")):
        with pytest.raises(ArgumentError) as e:
            mr.register_library(*args)
        assert e.value.what == what


@TARGETS
def test_a_routine_that_raises(target):
    calls = []
    mr.register_library("failing", lambda x, out: calls.append(1) or np.linalg.inv(x))
    fn = mr.jit(lambda x: mr.call_library("failing", (x,), f32[x.shape[0]]) + 1, target=target)
    for _ in range(2):                                             # the second call takes the short way
        with pytest.raises(LibraryError) as e:
            fn(np.ones(3, np.float32))
        assert re.sub(r"py:\d+", "py:0", str(e.value)) == """\
the library routine failing raised LinAlgError: 1-dimensional array given. Array must be at least two-dimensional
  at test_call_library.py:0   fn = mr.jit(lambda x: mr.call_library("failing", (x,), f32[x.shape[0]]) + 1, target=target)
  hint: it was called as failing(f32[3], f32[3])"""
        assert isinstance(e.value.__cause__, np.linalg.LinAlgError) and isinstance(e.value, RunError)
    assert len(calls) == 2                                         # it is not run again to find out where it failed


WRITES = "it is to write its outputs, the arguments after the inputs, and to return nothing"


@TARGETS
@pytest.mark.parametrize("routine, out, what, hint", [
    (lambda x, out: 3, f32[2], "returned a value of type int", WRITES),
    (lambda x, out: x + 1, f32[2], "returned f32[3]", WRITES),
    (lambda x: None, f32["_"], "returned nothing", "it is to return 1 array"),
    (lambda x: (x, x), f32["_"], "returned (f32[3], f32[3])", "it is to return 1 array"),
    (lambda x: x, (f32["_"], f32[3]), "returned f32[3]", "it is to return 2 arrays"),
    (lambda x: (x, x[1:]), (f32["_"], f32[3]), "returned f32[2] as result 1", "f32[3] was declared"),
    (lambda x: x[None], f32["_"], "returned f32[1, 3] as result 0", "f32[_] was declared"),
    (lambda x: x.astype(np.float64), f32["_"], "returned f64[3] as result 0", "f32[_] was declared"),
    (lambda x: x.astype(complex), f32["_"], "returned c128[3] as result 0", "f32[_] was declared"),
    (lambda x: x.astype(np.float16), f32["_"], "returned an array of dtype float16 as result 0", "f32[_] was declared"),
    (lambda x: "text", f32["_"], "returned a value of type str as result 0", "f32[_] was declared"),
    (lambda x, out: x.fill(1), f32[3], "raised ValueError: assignment destination is read-only",
     "it was called as wrong(f32[3], f32[3])")])
def test_a_routine_that_does_wrong(target, routine, out, what, hint):
    mr.register_library("wrong", routine)
    x = np.arange(3, dtype=np.float32)

    def call(x):
        return mr.call_library("wrong", (x,), out)

    for fn in (mr.jit(call, target=target), call):
        with pytest.raises(LibraryError) as e:
            fn(x)
        assert (e.value.what, e.value.hint) == (f"the library routine wrong {what}", hint)
        assert e.value.where.startswith("test_call_library.py:")
    assert x.tolist() == [0, 1, 2]


CHANGED = "it is to write the elements of the array that it is given"


def with_dtype(out):
    out.dtype = np.int32


def with_shape(out):
    out.shape = (1, 3)


def with_strides(out):
    out.strides = (0,)


@TARGETS
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("change, what, hint", [
    (with_dtype, "made i32[3] of its output 0, which is f32[3]", CHANGED),
    (with_shape, "made f32[1, 3] of its output 0, which is f32[3]", CHANGED),
    (with_strides, "made strides (0,) of its output 0, which is f32[3]", CHANGED),
    (lambda out: out.resize(5), "raised ValueError: cannot resize this array", "it was called as wrong(f32[3], f32[3])"),
    (lambda out: out.resize(5, refcheck=False), "raised ValueError: cannot resize", "it was called as wrong(f32[3], f32[3])")])
def test_a_routine_that_makes_another_array_of_its_output(target, change, what, hint):
    mr.register_library("wrong", lambda x, out: (out.fill(5), change(out), None)[-1])

    def call(x):
        y = mr.call_library("wrong", (x * 2,), f32[x.shape[0]])
        return np.sort(y + x)

    fn, x = mr.jit(call, target=target), np.arange(3, dtype=np.float32)
    for _ in range(2):                                             # a failure leaves nothing behind
        with pytest.raises(LibraryError) as e:
            fn(x)
        assert e.value.what.startswith(f"the library routine wrong {what}") and e.value.hint == hint
        assert re.sub(r"py:\d+", "py:0", e.value.where) == (
            'test_call_library.py:0   y = mr.call_library("wrong", (x * 2,), f32[x.shape[0]])')
    mr.register_library("wrong", lambda x, out: np.copyto(out, x))
    np.testing.assert_array_equal(fn(x), x * 3)


@TARGETS
def test_what_lies_behind_an_array_of_a_routine(target):
    """Neither its base nor the flags lead to the rest of the program's memory, or make an input writable."""
    seen = []

    def look(x, out):
        for a in (x, out):
            base = a
            while base is not None and not isinstance(base, memoryview):
                base = base.base
            owner = base.obj.base if isinstance(base.obj, np.ndarray) else base.obj
            seen.append((base.nbytes, getattr(owner, "owner", None)))
        with pytest.raises(ValueError, match="WRITEABLE"):
            x.flags.writeable = True
        assert not isinstance(x.base, np.ndarray) and not isinstance(out.base, np.ndarray)
        np.multiply(x, 2, out=out)

    mr.register_library("look", look)
    fn = mr.jit(lambda x: np.exp(mr.call_library("look", (x + 1,), f64[x.shape[0]])), target=target)
    np.testing.assert_allclose(fn(np.zeros(100)), np.exp(np.full(100, 2.0)))
    assert seen == [(800, None)] * 2


def test_the_line_of_the_call_that_fails_among_several():
    def picky(x, out):
        if x[0] > 2:
            raise ValueError("too large")
        out[...] = x

    mr.register_library("picky", picky)

    def fn(x):
        a = mr.call_library("picky", (x,), f64[x.shape[0]])
        b = mr.call_library("picky", (a + 2,), f64[x.shape[0]])
        return a + b

    f = mr.jit(fn)
    np.testing.assert_array_equal(f(np.zeros(2)), [2, 2])
    for start, line in ((5.0, "a = mr.call_library"), (1.0, "b = mr.call_library")):
        with pytest.raises(LibraryError, match="picky raised ValueError: too large") as e:
            f(np.full(2, start))
        assert line in e.value.where
    np.testing.assert_array_equal(f(np.zeros(2)), [2, 2])


def past(out, elements):
    """Native code that writes where it should not: `elements` behind the array, or in front of it."""
    at = out.ctypes.data + (out.nbytes if elements > 0 else out.itemsize * elements)
    ctypes.memset(at, 7, out.itemsize * abs(elements))


@pytest.mark.parametrize("how", ["environment", "validate", "interpret"])
@pytest.mark.parametrize("where, what", [(1, "wrote behind output 0, which is f32[3]"), (-2, "wrote in front of output 0"),
                                         (0, "wrote to its input 0, which is f32[3]")])
def test_guard_zones_find_what_native_code_does(how, where, what, monkeypatch):
    if how != "validate":
        monkeypatch.setenv("MINIRELAX_BOUNDSCHECK", "1")

    def native(x, out):
        out[...] = x
        if where == 0:
            ctypes.memset(x.ctypes.data, 7, 4)
        elif is_checked():                                         # else there is nothing around it that may be harmed
            past(out, where)

    mr.register_library("native", native)

    def call(x):
        return mr.call_library("native", (x + 1,), f32[x.shape[0]])

    with pytest.raises(LibraryError) as e:
        mr.jit(call, target="interpret" if how == "interpret" else "cpu", validate=how == "validate")(np.ones(3, np.float32))
    assert e.value.what.startswith(f"the library routine native {what}") and "return mr.call_library" in e.value.where


def test_watched_routines_give_the_same_results(monkeypatch):
    monkeypatch.setenv("MINIRELAX_BOUNDSCHECK", "1")
    test_all_kinds_of_routines_in_one_program("cpu")
    test_all_kinds_of_routines_in_one_program("interpret")


@TARGETS
def test_results_belong_to_the_caller(target):
    cache = np.arange(3, dtype=np.float32)
    mr.register_library("cached", lambda x: cache)
    mr.register_library("same", lambda x: x)
    x = np.arange(3, dtype=np.float32)
    for name in ("cached", "same"):
        result = mr.jit(lambda x, name=name: mr.call_library(name, (x,), f32["_"]), target=target)(x)
        result[...] = 9
    assert x.tolist() == cache.tolist() == [0, 1, 2]

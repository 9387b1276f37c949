"""The jitted function: when it compiles, what it keeps, what it shows; on the interpreting target, which needs no compiler."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from minirelax import f32
from minirelax.errors import ArgumentError, DTypeError
from minirelax.jit import JitFunction, jit


def double(x, y=2.0):
    """Twice, or so."""
    return x * y


def test_decorator_forms_and_metadata():
    assert isinstance(jit(double), JitFunction)
    assert isinstance(jit(target="interpret")(double), JitFunction)
    f = jit(double, target="interpret")
    assert f.__name__ == "double" and f.__doc__ == "Twice, or so." and f.__wrapped__ is double
    assert repr(f) == "<jit of double, 0 compilations>"


def test_one_compilation_per_kind_of_argument():
    f = jit(double, target="interpret")
    f(np.ones(3))
    f(np.ones(4))
    f(np.ones(3), 3.0)
    assert len(f.compilations) == 1
    f(np.ones(3, np.float32))
    f(np.ones((3, 3)))
    f(np.ones(3), 3)
    assert len(f.compilations) == 4
    assert [c.arguments for c in f.compilations][:3] == [
        "x: f64[n], y: f64[()]",
        "x: f32[n], y: f64[()]",
        "x: f64[n, m], y: f64[()]",
    ]


def test_results_are_scalars_arrays_and_python_numbers_as_in_numpy():
    f = jit(lambda x, k: (x.sum(), x[0], x, x.shape[0], k + 1, k / 2, k > 1, np.sqrt(k)), target="interpret")
    total, first, same, n, k, half, more, root = f(np.ones(3, np.float32), 2)
    assert type(total) is np.float32 and type(first) is np.float32 and type(same) is np.ndarray
    assert type(n) is int and type(k) is int and type(half) is float and type(more) is bool and type(root) is np.float64
    assert jit(lambda x: x.max(), target="interpret")(np.ones(3)).shape == ()


def test_keywords_defaults_and_variadics():
    def f(x, *more, scale=1.0, **named):
        return (x + sum(more)) * scale + named.get("bias", 0.0)

    g = jit(f, target="interpret")
    x = np.arange(3.0)
    np.testing.assert_array_equal(g(x), x)
    np.testing.assert_array_equal(g(x, x, x, scale=2.0), x * 6)
    np.testing.assert_array_equal(g(x, bias=np.ones(3)), x + 1)


def test_static_arguments():
    def f(x, axis, mode="sum"):
        return x.sum(axis) if mode == "sum" else x.max(axis)

    g = jit(f, static=("axis",), target="interpret")
    x = np.arange(6.0).reshape(2, 3)
    for axis in (0, 1, (0, 1), None):
        np.testing.assert_array_equal(g(x, axis), x.sum(axis))
    np.testing.assert_array_equal(g(x, 0, mode="max"), x.max(0))
    assert len(g.compilations) == 5
    with pytest.raises(ArgumentError, match="the static argument axis cannot be hashed: list"):
        g(x, [0])
    with pytest.raises(ArgumentError, match="f has no parameter 'axes'"):
        jit(f, static=("axes",))


def test_methods():
    class Model:
        def __init__(self, w):
            self.w = w

        @jit(static=("self",), target="interpret")
        def __call__(self, x):
            return x @ self.w

    m = Model(np.ones((3, 2)))
    np.testing.assert_array_equal(m(np.ones((4, 3))), np.full((4, 2), 3.0))


def test_weights_are_bound_by_identity():
    f = jit(lambda p, x: x * p["w"], constants=("p",), target="interpret")
    p, x = {"w": np.full(2, 3.0)}, np.ones(2)
    np.testing.assert_array_equal(f(p, x), [3, 3])
    p["w"] = np.full(2, 5.0)
    np.testing.assert_array_equal(f(p, x), [5, 5])
    np.testing.assert_array_equal(f({"w": np.full(2, 7.0)}, x), [7, 7])
    assert len(f.compilations) == 1
    np.testing.assert_array_equal(f({"w": np.full((2, 1), 7.0)}, x), np.full((2, 2), 7))
    assert len(f.compilations) == 2
    f.rebind()
    np.testing.assert_array_equal(f(p, x), [5, 5])


def test_trace_lower_compile_stop_early():
    f = jit(double, target="interpret")
    assert str(f.trace(f32["n"], 3.0)).startswith("def main(x: f32[n], y: f64[()]) -> f32[n]:")
    assert len(f.compilations) == 0
    assert f.compile(np.ones(3)) is f and len(f.compilations) == 1
    f(np.ones(5))
    assert len(f.compilations) == 1
    assert f.stages.names == ("trace",)


def test_nothing_to_show_before_the_first_call():
    with pytest.raises(ArgumentError, match="double has not been compiled yet"):
        jit(double, target="interpret").stages  # noqa: B018
    f = jit(double, target="interpret").compile(np.ones(3))
    with pytest.raises(ArgumentError, match="compiles nothing, so there is no source"):
        f.source  # noqa: B018
    with pytest.raises(ArgumentError, match="there is no such target"):
        jit(double, target="tpu")


def test_bad_calls():
    f = jit(double, target="interpret")
    with pytest.raises(ArgumentError, match=r"double\(\): missing a required argument: 'x'"):
        f()
    with pytest.raises(ArgumentError, match="too many positional arguments"):
        f(1.0, 2.0, 3.0)
    with pytest.raises(DTypeError, match="argument x: an array of dtype float16 cannot be compiled"):
        f(np.ones(2, np.float16))
    with pytest.raises(DTypeError, match="argument x: an array of dtype <U1 cannot be compiled"):
        f(np.array(["a"]))
    with pytest.raises(DTypeError, match="argument x: an array of dtype object cannot be compiled"):
        f(np.array([object()]))
    with pytest.raises(ArgumentError, match="argument x: MaskedArray is not supported"):
        f(np.ma.array([1.0, 2.0], mask=[True, False]))

    def declared(x: f32["n", 2]):
        return x

    with pytest.raises(ArgumentError, match="argument x: parts of different lengths cannot become an array"):
        jit(declared, target="interpret")([[1.0, 2.0], [3.0]])
    np.testing.assert_array_equal(jit(declared, target="interpret")([[1.0, 2.0]]), [[1, 2]])


def test_any_layout_and_byte_order():
    f = jit(lambda x: x * 2 + x.T.sum(), target="interpret")
    base = np.arange(16.0).reshape(4, 4)
    for x in (
        base.T,
        np.asfortranarray(base),
        base[::-1, ::2][:, ::-1],
        base.astype(">f8"),
        np.broadcast_to(base[0], (4, 4)),
        base[1:3],
    ):
        np.testing.assert_array_equal(f(x), x * 2 + x.sum())
    assert len(f.compilations) == 1


def test_a_failing_trace_leaves_nothing_behind():
    def f(x, flag):
        if flag == "bad":
            return x.nothing
        return x + 1

    g = jit(f, target="interpret")
    with pytest.raises(AttributeError):
        g(np.ones(2), "bad")
    np.testing.assert_array_equal(g(np.ones(2), "good"), [2, 2])
    assert len(g.compilations) == 1


def test_threads_share_compilations():
    f = jit(lambda x: (x * 2).sum(), target="interpret")
    got, start = [], threading.Barrier(8)

    def work(n):
        start.wait()
        got.append((n, f(np.ones(n))))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert sorted(got) == [(n, 2.0 * n) for n in range(8)]
    assert len(f.compilations) == 1


def test_recursion_between_jitted_functions_in_one_trace():
    @jit(static=("k",), target="interpret")
    def power(x, k):
        return x if k == 1 else x * power(x, k - 1)

    np.testing.assert_array_equal(power(np.full(2, 3.0), 4), [81, 81])


def test_pickles_as_its_function():
    f = pickle.loads(pickle.dumps(jit(double, target="interpret")))
    np.testing.assert_array_equal(f(np.ones(2)), [2, 2])


def test_compilations_print_the_asking_line():
    def f(x):
        return x * 2 if x.shape[0] > 3 else x

    g = jit(f, target="interpret")
    g(np.ones(2))
    assert "return x * 2 if x.shape[0] > 3 else x" in str(g.compilations)
    assert "x.shape[0] <= 3" in str(g.compilations)


def test_numba_is_not_imported_to_trace_and_interpret():
    code = (
        "import sys, numpy as np, minirelax as mr\n"
        "f = mr.jit(lambda x: np.exp(x).sum(), target='interpret'); f(np.ones(3))\n"
        "assert 'numba' not in sys.modules and 'rich' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

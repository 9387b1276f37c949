"""Long reductions in blocks: which are split, into what, and that the results are right at every size."""

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32, f64, i32, i64
from minirelax.ir.graph import CallKernel
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.passes.split_reductions import split_reductions
from minirelax.pipeline import GRAPH_PASSES, KERNEL_PASSES, compile_module, passes, run


def split(function, *types):
    """The module after split_reductions."""
    return next(s.module for s in run(mr.trace(function, *types), passes()) if s.name == "split_reductions")


def calls(module) -> list[str]:
    return [b.value.kernel for f in module.functions for b in f.bindings if isinstance(b.value, CallKernel)]


def test_the_sum_of_a_vector():
    module = split(lambda x: np.sum(x), f32["n"])
    assert calls(module) == ["sum_parts", "sum"]
    assert str(module["sum_parts"]) == '''@kernel(pattern="reduce")
def sum_parts(x: f32[n], parts: f32[n//16384], *, n):
    for i in range(n//16384):
        parts[i] = 0.0
        for k in range(16384):
            parts[i] += x[16384*i + k]'''


def test_a_contraction_keeps_its_form():
    module = split(lambda x: x.T @ x, f32["n", 8])
    parts, rest, total = (module[k] for k in calls(module))
    assert (parts.pattern, rest.pattern, total.pattern) == ("contraction", "contraction", "reduce")
    assert "parts[i, j, l] += x[4096*i + k, j] * x[4096*i + k, l]" in str(parts)
    assert "rest[i, j] += x[k + 4096*(n//4096), i] * x[k + 4096*(n//4096), j]" in str(rest)


def test_several_axes_are_one():
    parts = split(lambda x: np.mean(x), f64["n", "m", 3])
    assert "parts: f64[(3*m*n)//16384]" in str(parts)


def test_a_known_length_without_rest_needs_no_remainder():
    module = split(lambda x: np.max(x), f32[4 * 16384])
    assert "rest" not in str(module) and calls(module) == ["max_parts", "max"]


def test_reductions_of_the_same_axes_share_a_kernel():
    text = """
@kernel
def spread(x: f32[n], out: f32[()], *, n):
    t0 = local(f32[()])
    t1 = local(f32[()])
    t0[()] = -inf
    for k in range(n):
        t0[()] = maximum(t0[()], x[k])
    t1[()] = inf
    for k in range(n):
        t1[()] = minimum(t1[()], x[k])
    out[()] = t0[()] - t1[()]

def main(x: f32[n]) -> f32[()]:
    with dataflow():
        v0: f32[()] = call_kernel(spread, x, sizes=(n,))
        output(v0)
    return v0
"""
    module = split_reductions(parse(text))
    assert calls(module) == ["spread_parts", "spread"] and len(module["spread_parts"].outputs) == 2
    x = np.random.default_rng(0).standard_normal(40000).astype(np.float32)
    assert interpret(module, x) == x.max() - x.min()


def test_what_follows_a_reduction_elementwise_is_a_kernel_of_its_own():
    text = """
@kernel
def scaled(x: f32[n], out: f32[n], *, n):
    t0 = local(f32[()])
    t1 = local(f32[n])
    t0[()] = 0.0
    for k in range(n):
        t0[()] += x[k]
    for i in range(n):
        t1[i] = x[i] / t0[()]
    for i in range(n):
        out[i] = exp(t1[i])

def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = call_kernel(scaled, x, sizes=(n,))
        output(v0)
    return v0
"""
    module = split_reductions(parse(text))
    assert calls(module) == ["scaled_parts", "scaled", "scaled_2"]
    x = np.random.default_rng(0).random(40000).astype(np.float32)
    np.testing.assert_allclose(interpret(module, x), np.exp(x / x.sum(dtype=np.float64)), rtol=1e-6)


def test_several_results_keep_their_names():
    text = """
@kernel
def both(x: f32[n], out0: f32[()], out1: f32[()], *, n):
    out0[()] = 0.0
    for k in range(n):
        out0[()] += x[k]
    out1[()] = out0[()] / 2.0

def main(x: f32[n]) -> Tuple[f32[()], f32[()], Tuple[f32[()], f32[()]]]:
    with dataflow():
        v0: Tuple[f32[()], f32[()]] = call_kernel(both, x, sizes=(n,))
        v1: f32[()] = v0[1]
        output(v0, v1)
    v2: Tuple[f32[()], f32[()], Tuple[f32[()], f32[()]]] = (v1, v1, v0)
    return v2
"""
    module = split_reductions(parse(text))
    assert calls(module) == ["both_parts", "both"]
    half, again, (whole, other) = interpret(module, np.ones(50000, np.float32))
    assert (half, again, whole, other) == (25000, 25000, 50000, 25000)


@pytest.mark.parametrize(
    "function, types",
    [
        (lambda x: np.sum(x, axis=1), (f32["n", "m"],)),  # enough rows, for all that is known
        (lambda x: np.sum(x), (f32[20000],)),  # too short
        (lambda x: np.sum(x, axis=1), (f32[500, "n"],)),  # enough rows
        (lambda x, y: x @ y, (f32["n", "k"], f32["k", 8])),
        (lambda x, y: x @ y, (f32[8, "k"], f32["k", 3000])),  # enough columns
        (lambda x: np.cumsum(x), (f32["n"],)),
    ],
)
def test_left_alone(function, types):
    assert not any("parts" in k for k in calls(split(function, *types)))


def test_weights_are_left_to_their_panels():
    text = """
def main(x: f32[4, 8192], *, w: f32[8192, 32]) -> f32[4, 32]:
    with dataflow():
        v0: f32[4, 32] = matmul(x, w)
        output(v0)
    return v0
"""
    stages = run(parse(text), passes())
    assert any("w_packed" in str(s.module) for s in stages) and not any("parts" in str(s.module) for s in stages)


def test_a_call_that_is_short_is_left_alone():
    text = """
@kernel
def total(x: f32[n], out: f32[()], *, n):
    out[()] = 0.0
    for k in range(n):
        out[()] += x[k]

def main(x: f32[100], y: f32[n]) -> Tuple[f32[()], f32[()]]:
    with dataflow():
        v0: f32[()] = call_kernel(total, x, sizes=(100,))
        v1: f32[()] = call_kernel(total, y, sizes=(n,))
        v2: Tuple[f32[()], f32[()]] = (v0, v1)
        output(v2)
    return v2
"""
    assert calls(split_reductions(parse(text))) == ["total", "total_parts", "total_2"]


# length of a block -> function, type of the argument
BLOCK = {
    "sum": (16384, lambda x: np.sum(x), f32["n"]),
    "sum f64": (16384, lambda x: np.sum(x), f64["n"]),
    "sum i64": (16384, lambda x: np.sum(x), i64["n"]),
    "prod i32": (16384, lambda x: np.prod(x), i32["n"]),
    "prod": (16384, lambda x: np.prod(1 + x / 1000), f64["n"]),
    "max": (16384, lambda x: np.max(x), f32["n"]),
    "min": (16384, lambda x: np.min(x), i32["n"]),
    "any": (16384, lambda x: np.any(x > 2.9), f32["n"]),
    "all": (16384, lambda x: np.all(x < 2.9), f32["n"]),
    "mean": (16384, lambda x: np.mean(x), f32["n"]),
    "var": (16384, lambda x: np.var(x), f64["n"]),
    "argmax": (16384, lambda x: np.argmax(x), f32["n"]),
    "argmin": (16384, lambda x: np.argmin(x), i64["n"]),
    "dot": (16384, lambda x: x @ x, f64["n"]),
    "columns": (5461, lambda x: np.sum(x, axis=0), f64["n", 3]),
    "rows": (8192, lambda x: np.max(x, axis=1), f64[2, "n"]),
    "gram": (4096, lambda x: x.T @ x, f64["n", 8]),
    "all axes": (16384, lambda x: np.sum(x * 2), f64["n", 3]),
    "transposed": (256, lambda x: np.sum(x + x.T[0, 0]), f64["n", "n"]),
}
EMPTY_IS_AN_ERROR = {"max", "min", "argmax", "argmin", "rows", "transposed"}
MAY_DIVIDE_BY_ZERO = {"mean", "var"}


def sizes(length: int) -> tuple[int, ...]:
    return (0, 1, length - 1, length, length + 1, 3 * length + 5)


def argument(type_, n: int):
    shape = tuple(n if not isinstance(d, int) else d for d in type_.shape)
    rng = np.random.default_rng(n)
    return (rng.integers(-9, 9, shape) if type_.dtype[0] == "i" else rng.standard_normal(shape)).astype(type_.numpy_dtype)


def exact(function, x):
    with np.errstate(all="ignore"):
        return function(x.astype(np.float64) if x.dtype.kind == "f" else x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", BLOCK)
def test_every_size_by_definition(name):
    length, function, type_ = BLOCK[name]
    length = 100 if name == "transposed" else length
    module = split(function, type_)
    assert any("parts" in k for k in calls(module))
    for n in sizes(length):
        if n or name not in EMPTY_IS_AN_ERROR | MAY_DIVIDE_BY_ZERO:
            x = argument(type_, n)
            got = interpret(module, x)
            np.testing.assert_allclose(got, exact(function, x), rtol=1e-4 if x.dtype == np.float32 else 1e-9, atol=1e-3)


@pytest.mark.parametrize("name", ["sum", "sum i64", "max", "var", "gram", "columns", "all axes"])
def test_every_size_natively(name):
    length, function, type_ = BLOCK[name]
    executable = compile_module(mr.trace(function, type_))
    for n in sizes(length):
        if n or name not in EMPTY_IS_AN_ERROR | MAY_DIVIDE_BY_ZERO:
            x = argument(type_, n)
            (got,) = executable(x)
            np.testing.assert_allclose(got, exact(function, x), rtol=2e-6 if x.dtype == np.float32 else 1e-12, atol=1e-4)


def test_long_sums_are_accurate():
    executable = compile_module(mr.trace(lambda x: np.sum(x), f32["n"]))
    x = np.random.default_rng(1).random(3_000_000).astype(np.float32)
    want = x.sum(dtype=np.float64)
    assert abs(executable(x)[0] - want) <= 2 * abs(np.sum(x) - want) + 1e-6 * want


@pytest.mark.parametrize("name", ["sum", "gram"])
def test_the_bits_do_not_depend_on_threads(name):
    _, function, type_ = BLOCK[name]
    executable, x, found, before = compile_module(mr.trace(function, type_)), argument(type_, 300_007), [], mr.get_num_threads()
    try:
        for threads in (1, 2, 1):
            mr.set_num_threads(threads)
            found += [executable(x)[0].tobytes() for _ in range(5)]
    finally:
        mr.set_num_threads(before)
    assert len(set(found)) == 1


def test_inside_loops():
    def function(x):
        return mr.fori_loop(0, 3, lambda i, c: c / np.sum(c), x)

    module = split(function, f64["n"])
    assert any("parts" in k for k in calls(module))
    x = np.random.default_rng(0).random(40000)
    np.testing.assert_allclose(interpret(module, x), x / x.sum(), rtol=1e-9)


def test_it_can_be_left_out():
    stages = run(mr.trace(lambda x: np.sum(x), f32["n"]), (*GRAPH_PASSES, *KERNEL_PASSES[:-1]))
    assert not any("parts" in str(s.module) for s in stages)

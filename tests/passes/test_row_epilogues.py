"""Norms are fused behind the product whose rows they are of, if rows are short for sure; and they compute the same."""

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32, f64
from minirelax.codegen.numba_cpu import kernel_plan
from minirelax.ir.graph import CallKernel, RunKernel
from minirelax.ir.parser import parse
from minirelax.passes import fuse_ops
from minirelax.passes.annotate_patterns import is_contraction
from minirelax.passes.contraction_rows import ROW_BYTES, matrix_roles
from minirelax.pipeline import GRAPH_PASSES, KERNEL_PASSES, passes, run
from minirelax.runtime import pool
from minirelax.schedule.contraction import ContractionPlan
from tests.passes.programs import PROGRAMS
from tests.passes.test_meaning import assert_same_meaning
from tests.passes.test_no_recomputation import layer_norm, log_softmax, rms_norm, softmax

LONG = ROW_BYTES // 4


def add_norm(x, w, b, r, g, h):
    return layer_norm(x @ w + b + r, g, h)


def both_read(x, w, b, r, g, h):
    total = x @ w + b + r
    return total, layer_norm(total, g, h)


def read_later(x, w, b, r, g, h):
    total = x @ w + b + r
    return np.tanh(layer_norm(total, g, h)) @ w.T + total @ w.T


DENSE = (f32["b", "s", 6], f32[6, 5], f32[5], f32["b", "s", 5], f32[5], f32[5])
BACK = (f32["n", 6], f32[6, 5], f32[5], f32["n", 5], f32[5], f32[5])
ONE = {
    "layer norm": (add_norm, *DENSE),
    "softmax": (lambda x, w: softmax(x @ w), f32["n", "k"], f32["k", 10]),
    "of a transposed weight": (lambda x, w: log_softmax(x @ w.T), f32["n", "k"], f32[10, "k"]),
    "of a transposed input": (lambda x, w: softmax(x.T @ w), f32["k", "n"], f32["k", 10]),
    "double": (lambda x, w, g: rms_norm(np.tanh(x @ w), g), f64["n", "k"], f64["k", 33], f64[33]),
    "scores": (lambda q, k: softmax(q @ np.swapaxes(k, -1, -2) / 8.0), f32["b", 2, "n", 4], f32["b", 2, 9, 4]),
    "a value of each row": (lambda x, w: np.tanh(np.mean(x @ w, axis=-1)), f32["n", "k"], f32["k", 10]),
    "several values of each row": (
        lambda x, w: (lambda y: np.max(y, -1) + np.min(y, -1) * np.prod(y, -1))(x @ w), f32["n", "k"], f32["k", 10]),
    "any and all": (lambda x, w: (lambda y: np.any(y > 0, -1) & np.all(y < 1, -1))(x @ w), f32["n", "k"], f32["k", 10]),
    "a turned value that two readers share": (  # it is kept as it is read, not as it was
        lambda x, w, r: (lambda y, e: np.tanh(y + e) * np.sum(np.abs(y * e), -1, keepdims=True))(np.tanh(x @ w), np.exp(r).T),
        f32["n", "k"], f32["k", 10], f32[10, "n"]),
    "rows without elements": (lambda x, w: np.sum(x @ w, axis=-1), f32["n", "k"], f32["k", 0]),
    "nothing to sum": (lambda x, w: softmax(x @ w), f32["n", 0], f32[0, 10]),
}
EMPTY = ("rows without elements", "nothing to sum")  # no index depends on anything: there is no product to plan
APART = {
    "rows of any length": (lambda x, w: softmax(x @ w), f32["n", "k"], f32["k", "m"]),
    "long rows": (lambda x, w: softmax(x @ w), f32["n", "k"], f32["k", LONG + 1]),
    "a long sum": (lambda x, w: softmax(x @ w), f32["n", fuse_ops.ROW_EPILOGUE + 1], f32[fuse_ops.ROW_EPILOGUE + 1, 10]),
    "another axis": (lambda x, w: np.sum(x @ w, axis=0), f32["n", "k"], f32["k", 10]),
    "a column": (lambda x, w: (lambda y: y - y[:, :1])(np.tanh(x @ w)), f32["n", "k"], f32["k", 10]),
    "a mirrored row": (lambda x, w: (lambda y: y[:, ::-1] - np.sum(y, -1, keepdims=True))(np.tanh(x @ w)),
                       f32["n", "k"], f32["k", 10]),
    "the sum is a result, too": (both_read, *BACK),
    "the sum is read later": (read_later, *BACK),
    "integers": (lambda x, w: np.sum(x @ w, axis=-1), mr.i64["n", "k"], mr.i64["k", 10]),
}
SIZES = [
    dict(b=2, s=3, n=5, k=4, m=3),
    dict(b=1, s=1, n=1, k=1, m=1),
    dict(b=0, s=2, n=0, k=3, m=1),
    dict(b=2, s=0, n=3, k=0, m=2),
]


def calls(module) -> list:
    """The kernels that main calls."""
    return [module[b.value.kernel] for b in module["main"].bindings if isinstance(b.value, CallKernel | RunKernel)]


def fused(function, *types):
    stages = run(mr.trace(function, *types), (*GRAPH_PASSES, *KERNEL_PASSES))
    return calls(next(s.module for s in stages if s.name == "fuse_kernels"))


@pytest.mark.parametrize("name", ONE)
def test_one_kernel(name):
    kernel, = fused(*ONE[name])
    if name not in EMPTY:
        assert kernel_plan(kernel).whole_rows


@pytest.mark.parametrize("name", APART)
def test_not_one_kernel(name):
    kernels = fused(*APART[name])
    assert len(kernels) > 1
    assert not any(b.reduction for k in kernels if any(map(is_contraction, k.blocks)) for b in k.blocks if not is_contraction(b))


@pytest.mark.parametrize("name", [*ONE, *(name for name in APART if "long" not in name)])  # what is interpreted is small
def test_every_stage_means_the_same(name):
    function, *types = (ONE | APART)[name]
    stages = run(mr.trace(function, *types), passes())
    for sizes in SIZES:
        assert_same_meaning(stages, sizes)


def test_the_text():
    function, *types = ONE["softmax"]
    kernel, = fused(function, *types)
    assert str(kernel) == """\
@kernel(pattern="contraction")
def matmul_max_subtract_exp_sum_divide(x: f32[n, k], w: f32[k, 10], out: f32[n, 10], *, n, k):
    t0 = local(f32[n, 10])
    t1 = local(f32[n, 1])
    t2 = local(f32[n, 10])
    t3 = local(f32[n, 1])
    for i in range(n):
        for j in range(10):
            t0[i, j] = 0.0
            for k1 in range(k):
                t0[i, j] += x[i, k1] * w[k1, j]
    for i in range(n):
        t1[i, 0] = -inf
        for k1 in range(10):
            t1[i, 0] = maximum(t1[i, 0], t0[i, k1])
    for i in range(n):
        for j in range(10):
            t2[i, j] = exp(t0[i, j] - t1[i, 0])
    for i in range(n):
        t3[i, 0] = 0.0
        for k1 in range(10):
            t3[i, 0] += t2[i, k1]
    for i in range(n):
        for j in range(10):
            out[i, j] = t2[i, j] / t3[i, 0]"""


def test_the_switch(monkeypatch):
    monkeypatch.setattr(fuse_ops, "ROW_EPILOGUE", 0)
    assert len(fused(*ONE["softmax"])) == 2
    monkeypatch.setattr(fuse_ops, "ROW_EPILOGUE", 1 << 30)
    assert len(fused(*APART["a long sum"])) == 1


def test_an_epilogue_may_be_a_users_kernel_of_rows():
    """A kernel of one block is as good as an operation's; what reads the product at another place is left alone."""
    text = """
@kernel
def norms(x: f32[n, {m}], out: f32[n], *, n):
    for i in range(n):
        out[i] = 0.0
        for k in range(6):
            out[i] += x[i, {at}] * x[i, {at}]

def main(x: f32[n, 8], w: f32[8, {m}]) -> f32[n]:
    with dataflow():
        v0: f32[n, {m}] = matmul(x, w)
        v1: f32[n] = call_kernel(norms, v0, sizes=(n,))
        output(v1)
    return v1"""
    for at, m, count in (("k", 6, 1), ("k", 7, 1), ("k + 1", 7, 2), ("5 - k", 6, 2)):
        stages = run(parse(text.format(at=at, m=m)), passes())
        assert len(calls(stages[-1].module)) == count
        for n in (3, 1, 0):
            assert_same_meaning(stages, {"n": n})


def test_every_product_is_planned_for_register_tiles():
    """No fused kernel with a matrix product in it falls back to loops over its elements."""
    programs = [mr.trace(f, *types) for f, *types in (*ONE.values(), *APART.values())] + [parse(t) for t, _ in PROGRAMS.values()]
    seen = 0
    for module in programs:
        for kernel in next(s.module for s in run(module, passes()) if s.name == "fuse_kernels").kernels:
            there = [b for b in kernel.blocks if 0 not in (a.extent for a in (*b.axes, *b.over))]
            products = [b for b in there if is_contraction(b) and matrix_roles(b)]
            seen += len(products)
            assert not products or isinstance(kernel_plan(kernel), ContractionPlan), str(kernel)
    assert seen > 20


def test_a_long_sum_of_few_results_is_still_split():
    """The norm goes with the combination of the partial sums."""

    def classes(x: f32[4, "k"], w: f32["k", 8]):
        return softmax(x @ w)

    compiled, rng = mr.jit(classes), np.random.default_rng(0)
    for k in (20_000, 0, 30):
        x, w = rng.standard_normal((4, k)).astype("f4") / 100, rng.standard_normal((k, 8)).astype("f4")
        np.testing.assert_allclose(compiled(x, w), softmax(x.astype("f8") @ w), rtol=1e-4, atol=1e-5)
        assert_same_meaning(compiled.stages[:-1], {"k": min(k, 30)})
    assert [k.name.endswith("_parts") for k in calls(compiled.stages["split_reductions"].module)] == [True, False, False]


@pytest.fixture
def threads():
    """set_num_threads, undone afterwards."""
    before = pool.get_num_threads()
    yield pool.set_num_threads
    pool.set_num_threads(before)


def test_compiled_with_bound_weights_on_one_thread_and_two(threads, monkeypatch):
    monkeypatch.setattr(fuse_ops, "ROW_EPILOGUE", 1 << 30)

    def dense(p, x, r):
        return layer_norm(x @ p["w"] + p["b"] + r, p["g"], p["b"])

    rng = np.random.default_rng(0)
    p = {n: rng.standard_normal(s).astype("f4") for n, s in (("w", (400, 100)), ("b", 100), ("g", 100))}
    compiled = mr.jit(dense, constants="p")
    for n in (1, 0, 5, 130, 1000):
        x, r = rng.standard_normal((n, 400)).astype("f4"), rng.standard_normal((n, 100)).astype("f4")
        found = [threads(count) or compiled(p, x, r) for count in (1, 2)]
        np.testing.assert_array_equal(*found)
        exact = dense({k: v.astype("f8") for k, v in p.items()}, x.astype("f8"), r)
        np.testing.assert_allclose(found[0], exact, rtol=1e-4, atol=1e-4)
    plan, = compiled.tiling
    assert plan.whole_rows and plan.b.how == "packed" and len(compiled.compilations) == 1

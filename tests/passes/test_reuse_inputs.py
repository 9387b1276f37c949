"""Outputs written over inputs: when that is right, when it is not, and that programs compute the same then."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirelax as mr
from minirelax import f32
from minirelax.codegen.numba_cpu import kernel_code
from minirelax.explore.memory import memory_plan
from minirelax.explore.timing import threads
from minirelax.ir.graph import RunKernel, View
from minirelax.ir.in_place import replaceable
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse, parse_kernel
from minirelax.ir.verify import verify
from minirelax.passes.options import Options
from minirelax.passes.plan_memory import plan_memory
from minirelax.passes.reuse_inputs import reuse_inputs
from minirelax.pipeline import compile_module, module_stages

SUM = """\
    t0 = local(f32[n])
    for i in range(n):
        t0[i] = 0.0
        for k in range(m):
            t0[i] += {read}
"""


def kernel(value: str, before: str = "", out: str = "f32[n, m]", x: str = "f32[n, m]"):
    """A kernel whose last block stores `value` for all i and j."""
    body = f"    for i in range(n):\n        for j in range(m):\n            out[i, j] = {value}\n"
    return parse_kernel(f"@kernel\ndef k(x: {x}, y: f32[m, n], out: {out}, *, n, m):\n{before}{body}")


RIGHT = {
    "an element": kernel("x[i, j] + y[j, i]"),
    "a row read before": kernel("x[i, j] / t0[i]", before=SUM.format(read="x[i, k]")),
    "only read before": kernel("y[j, i] * t0[i]", before=SUM.format(read="x[i, k]")),
    "in another order of the loops": parse_kernel("""
@kernel
def k(x: f32[n, m], out: f32[n, m], *, n, m):
    for j in range(m):
        for i in range(n):
            out[i, j] = exp(x[i, j])"""),
}
WRONG = {
    "a neighbour": kernel("x[i, j] + x[i, (j + 1) % m]"),
    "reversed": kernel("x[i, m - 1 - j]"),
    "transposed": kernel("x[j, i] + y[j, i]", x="f32[m, n]"),
    "another type": kernel("f64(x[i, j])", out="f64[n, m]"),
    "another row read before": kernel("x[i, j] / t0[i]", before=SUM.format(read="x[n - 1 - i, k]")),
    "one element of the row read before": kernel("x[i, j] / t0[i]", before=SUM.format(read="x[i, m - 1 - k] * x[i, 0]")),
    "the row backwards": kernel("x[i, j] + t0[i]", before=SUM.format(read="x[i, m - 1 - k]")),
    "read after it": parse_kernel("""
@kernel
def k(x: f32[n], out: f32[n], more: f32[n], *, n):
    for i in range(n):
        out[i] = exp(x[i])
    for i in range(n):
        more[i] = out[i] + x[i]"""),
    "accumulated": parse_kernel("""
@kernel
def k(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = 0.0
        for k in range(3):
            out[i] += x[i]"""),
    "written twice": parse_kernel("""
@kernel
def k(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i]
    for i in range(n//2):
        out[2*i] = x[2*i] + 1.0"""),
    "gathered": parse_kernel("""
@kernel
def k(x: f32[n], at: i64[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[check_index(at[i], n)]"""),
    "an operand of a product": parse_kernel("""
@kernel
def k(x: f32[n, 4], w: f32[4, 4], out: f32[n, 4], *, n):
    t0 = local(f32[n, 4])
    for i in range(n):
        for j in range(4):
            t0[i, j] = 0.0
            for k in range(4):
                t0[i, j] += x[i, k] * w[k, j]
    for i in range(n):
        for j in range(4):
            out[i, j] = t0[i, j] + 1.0"""),
}


@pytest.mark.parametrize("name", RIGHT)
def test_may_be_written_over(name):
    assert ("x", "out") in replaceable(RIGHT[name])
    again = str(RIGHT[name]).replace("@kernel", '@kernel(in_place={"x": "out"})')
    assert str(parse_kernel(again)) == again


@pytest.mark.parametrize("name", WRONG)
def test_may_not(name):
    assert ("x", "out") not in replaceable(WRONG[name])


def test_the_memory_behind_a_norm():
    """Two products whose results are finished in their own memory: one tensor less is held."""
    def f(x, w):
        a = x @ w
        b = a / (1.0 + np.abs(a).sum(axis=1, keepdims=True))
        return b @ w

    bytes_ = {}
    for without in ((), ("reuse_inputs",)):
        compiled = mr.jit(f, without=without)
        x, w = np.ones((5, 600), np.float32), np.ones((600, 600), np.float32)
        np.testing.assert_allclose(compiled(x, w), f(x.astype(float), w), rtol=1e-5)
        plan = memory_plan(compiled.stages["plan_memory"].module)
        bytes_[without] = plan.least_bytes(n=1000, **{s: 600 for s in "mk"})
        if not without:
            both = [t for s in plan.storages for t in zip(s.tenants, s.tenants[1:], strict=False) if t[0].offset == t[1].offset]
            assert any(first.last == second.first for first, second in both)  # where one ends, in the same step, another begins
    assert bytes_[()] < 0.7 * bytes_["reuse_inputs",]


BOTH = "Tuple[f32[n], f32[n]]"
MAIN = """@kernel
def add(x: f32[n], y: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] + y[i]

def main(x: f32[n]) -> {result}:
    v0: f32[n] = alloc_tensor()
    run_kernel(add, x, x, out=(v0,), sizes=(n,))
    {before}
    v1: f32[n] = alloc_tensor()
    run_kernel(add, {arguments}, out=(v1,), sizes=(n,))
    v2: f32[n] = alloc_tensor()
    run_kernel(add, v1, {last}, out=(v2,), sizes=(n,))
    {end}
    return {value}"""


@pytest.mark.parametrize("why, arguments, changes", [
    ("", "v0, x", {}),
    ("", "x, v0", {}),
    ("", "v3, x", {"before": "v3: f32[n] = view(v0)"}),
    ("read later", "v0, x", {"last": "v0"}),
    ("read later through a view", "v0, x", {"before": "v3: f32[n] = view(v0)", "last": "v3"}),
    ("read twice", "v0, v0", {}),
    ("read twice through a view", "v0, v3", {"before": "v3: f32[n] = view(v0)"}),
    ("a parameter", "x, x", {"last": "v0"}),
    ("a result", "v0, x", {"end": f"v4: {BOTH} = (v2, v0)", "value": "v4", "result": BOTH}),
    ("a result over it", "v0, x", {"end": f"v4: {BOTH} = (v2, v1)", "value": "v4", "result": BOTH}),
])
def test_only_what_dies_and_is_nobody_elses(why, arguments, changes):
    text = MAIN.format(arguments=arguments, **{"before": "v9: f32[n] = view(x)", "last": "x", "result": "f32[n]", "value": "v2",
                                               "end": "v8: f32[n] = view(x)", **changes})
    before = parse(text)
    after = plan_memory()(reuse_inputs(before))
    done = [b.value.kernel for b in after["main"].bindings if isinstance(b.value, RunKernel)]
    assert (done[1] == "add_in_place") == (not why), done
    verify(after)
    assert str(parse(str(after))) == str(after)
    x = np.arange(7, dtype=np.float32)
    for a, b in zip(np.atleast_2d(interpret(before, x)), np.atleast_2d(interpret(after, x)), strict=True):
        np.testing.assert_array_equal(a, b)


STEPS = {
    "scale": lambda x, y: x * 2.0 + y, "tanh": lambda x, y: np.tanh(x),
    "centre": lambda x, y: x - np.mean(x, axis=1, keepdims=True),
    "softmax": lambda x, y: (e := np.exp(x - np.max(x, axis=1, keepdims=True))) / np.sum(e, axis=1, keepdims=True),
    "reverse": lambda x, y: x[:, ::-1] + y, "shift": lambda x, y: np.roll(x, 1, axis=1) - x,
    "columns": lambda x, y: x - np.sum(x, axis=0),
    "product": lambda x, y: x @ (y.T @ y) + x, "sorted": lambda x, y: np.sort(x, axis=1),
}


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(sorted(STEPS)), min_size=2, max_size=5), st.integers(0, 2**32 - 1))
def test_programs_mean_the_same(names, seed):
    """Unfused, so that values pass through memory between any two steps."""
    def f(x, y):
        for name in names:
            x = STEPS[name](x, y)
        return x

    module = mr.trace(f, f32["n", "m"], f32["n", "m"])
    stages = {s.name: s.module for s in module_stages(module, Options.of({}, without=("fuse_ops",)))}
    rng = np.random.default_rng(seed)
    for n, m in ((0, 3), (1, 1), (3, 4)):
        x, y = (rng.standard_normal((n, m)).astype(np.float32) for _ in "xy")
        np.testing.assert_array_equal(interpret(stages["bind_shapes"], x, y), interpret(stages["lift_workspaces"], x, y))


@pytest.mark.parametrize("names", [
    ("scale", "centre", "softmax"), ("tanh", "reverse", "columns", "scale"), ("product", "softmax", "sorted")])
def test_compiled(names):
    def f(x, y):
        for name in names:
            x = STEPS[name](x, y)
        return x * 1.5

    program = compile_module(mr.trace(f, f32["n", "m"], f32["n", "m"]), without=("fuse_ops",))
    module = next(s.module for s in program.stages if s.name == "reuse_inputs")
    assert any(isinstance(b.value, View) for b in module["main"].bindings) and any(k.in_place for k in module.kernels)
    rng = np.random.default_rng(0)
    for n, m in ((0, 4), (1, 1), (33, 70), (200, 300)):
        x, y = (rng.standard_normal((n, m)).astype(np.float32) for _ in "xy")
        want = f(x.astype(float), y.astype(float))
        for count in (1, 2):
            with threads(count):
                got, = program(x, y)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * max(1.0, np.abs(want).max(initial=0.0)))


def test_the_loop_is_vectorised():
    """One pointer for both: no check whether they overlap, no scalar loop to fall back to."""
    k = parse_kernel('@kernel(in_place={"x": "out"})\ndef k(x: f32[n], y: f32[n], out: f32[n], *, n):\n    for i in range(n):\n'
                     "        out[i] = x[i] * y[i]")
    assert "    x = out\n" in kernel_code(k).source and "args[0]" not in kernel_code(k).source

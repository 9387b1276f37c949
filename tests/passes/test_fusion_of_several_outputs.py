"""Kernels with several outputs in groups: with their readers and writers, results that leave, and where they stay alone."""

import numpy as np
import pytest

import minirelax as mr
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.passes.annotate_patterns import annotate_patterns
from minirelax.passes.kernel_facts import facts_of
from minirelax.pipeline import GRAPH_PASSES, KERNEL_PASSES, compile_module, run
from tests.passes.test_fusion import calls, fused

POLAR = """
@kernel
def polar(x: f32[n, m], y: f32[n, m], r: f32[n, m], s: f32[n, m], *, n, m):
    for i in range(n):
        for j in range(m):
            r[i, j] = sqrt(x[i, j] * x[i, j] + y[i, j] * y[i, j])
    for i in range(n):
        for j in range(m):
            s[i, j] = x[i, j] + y[i, j]
"""

MOMENTS = """
@kernel
def moments(x: f32[n, m], least: f32[n, 1], total: f32[n, 1], *, n, m):
    for i in range(n):
        least[i, 0] = inf
        for k in range(m):
            least[i, 0] = minimum(least[i, 0], x[i, k])
    for i in range(n):
        total[i, 0] = 0.0
        for k in range(m):
            total[i, 0] += x[i, k]
"""

READ = "v0: Tuple[f32[n, m], f32[n, m]] = call_kernel(polar, x, y, sizes=(n, m))\n        v1: f32[n, m] = v0[0]\n" + \
       "        v2: f32[n, m] = v0[1]"
ROWS = READ.replace("polar, x, y", "moments, x").replace("Tuple[f32[n, m], f32[n, m]]", "Tuple[f32[n, 1], f32[n, 1]]").replace(
    ": f32[n, m] = v0", ": f32[n, 1] = v0")


def program(kernel: str, *lines: str, result: str, type_: str = "f32[n, m]") -> str:
    body = "".join(f"        {line}\n" for line in lines)
    head = f"def main(x: f32[n, m], y: f32[n, m]) -> {type_}:\n    with dataflow():\n"
    return f"{kernel}\n{head}{body}        output({result})\n    return {result}"


PROGRAMS = {
    "one before, two behind": (
        program(POLAR, "v9: f32[n, m] = exp(x)", READ.replace("x, y", "v9, y"), "v3: f32[n, m] = tanh(v1)",
                "v4: f32[n, m] = add(v3, v2)", result="v4"), ["exp_polar_tanh_add"]),
    "both read at one place": (program(POLAR, READ, "v3: f32[n, m] = multiply(v1, v2)", result="v3"), ["polar_multiply"]),
    "one is read": (program(POLAR, READ.split("\n        v2")[0], "v3: f32[n, m] = exp(v1)", result="v3"), ["polar_exp"]),
    "one leaves": (
        program(POLAR, READ, "v3: f32[n, m] = exp(v1)", "v4: Tuple[f32[n, m], f32[n, m]] = (v3, v2)", result="v4",
                type_="Tuple[f32[n, m], f32[n, m]]"), ["polar_exp"]),
    "one of the other": (
        program(POLAR, READ, READ.replace("v2", "v12").replace("v1:", "v11:").replace("v0", "v10").replace("x, y", "v1, v2"),
                "v3: f32[n, m] = multiply(v11, v12)", result="v3"), ["polar_polar_multiply"]),
    "inside a softmax": (
        program(POLAR, READ, "v3: f32[n, 1] = max(v1, axes=(1,), keepdims=True)", "v4: f32[n, m] = subtract(v1, v3)",
                "v5: f32[n, m] = add(v4, v2)", "v6: f32[n, 1] = sum(v5, axes=(1,), keepdims=True)",
                "v7: f32[n, m] = divide(v5, v6)", result="v7"), ["polar_max_subtract_add_sum_divide"]),
    "behind a product": (
        program(POLAR, "v8: f32[m, n] = transpose(y, axes=(1, 0))", "v9: f32[n, n] = matmul(x, v8)",
                "v7: f32[n, m] = matmul(v9, y)", READ.replace("x, y", "v7, y"), "v3: f32[n, m] = multiply(v1, v2)", result="v3"),
        ["transpose_matmul", "matmul_2", "polar_multiply"]),
    "rows": (
        program(MOMENTS, ROWS, "v3: f32[n, m] = subtract(x, v1)", "v4: f32[n, m] = divide(v3, v2)", result="v4"),
        ["moments_subtract_divide"]),
    "rows, one before": (
        program(MOMENTS, "v9: f32[n, m] = multiply(x, y)", ROWS.replace("x, sizes", "v9, sizes"),
                "v3: f32[n, m] = subtract(v9, v1)", "v4: f32[n, m] = multiply(v3, v2)", result="v4"),
        ["multiply_moments_subtract_multiply"]),
    "rows, with a sibling": (
        program(MOMENTS, ROWS, "v3: f32[n, 1] = max(x, axes=(1,), keepdims=True)",
                "v4: Tuple[f32[n, 1], f32[n, 1], f32[n, 1]] = (v1, v2, v3)", result="v4",
                type_="Tuple[f32[n, 1], f32[n, 1], f32[n, 1]]"), ["moments_max"]),
    "behind a sort": (
        program(POLAR, READ, "v3: f32[n, m] = sort(v1, axis=1)", "v4: f32[n, m] = add(v3, v2)", result="v4"), ["polar", "add"]),
    "the tuple itself": (
        program(POLAR, READ, "v3: f32[n, m] = exp(v1)",
                "v4: Tuple[Tuple[f32[n, m], f32[n, m]], f32[n, m]] = (v0, v3)", result="v4",
                type_="Tuple[Tuple[f32[n, m], f32[n, m]], f32[n, m]]"), ["polar", "exp"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_groups_and_what_they_mean(name):
    text, kernels = PROGRAMS[name]
    stages = run(parse(text), (*GRAPH_PASSES, *KERNEL_PASSES))
    assert calls(stages[-1].module) == kernels
    for n, m in ((3, 4), (1, 1), (0, 3), (4, 1)):
        args = np.random.default_rng(n).random((2, n, m), np.float32) + 0.5
        want = flat(interpret(stages[0].module, *args))
        for stage in stages[-4:]:
            assert parse(str(stage.module)) == stage.module
            for found, wanted in zip(flat(interpret(stage.module, *args)), want, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["rows, one before", "rows, with a sibling", "inside a softmax"])
def test_compiled(name):
    module = parse(PROGRAMS[name][0])
    executable = compile_module(module)
    for n, m in ((3, 4), (0, 3), (40, 70)):
        args = np.random.default_rng(n).random((2, n, m), np.float32) + 0.5
        for found, wanted in zip(executable(*args), flat(interpret(module, *args)), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def flat(value) -> list[np.ndarray]:
    return [a for v in value for a in flat(v)] if isinstance(value, tuple) else [value]


def test_the_text():
    text = PROGRAMS["one leaves"][0]
    assert str(fused(text)) == """\
@kernel(pattern="elementwise")
def polar_exp(x: f32[n, m], y: f32[n, m], out0: f32[n, m], out1: f32[n, m], *, n, m):
    for i in range(n):
        for j in range(m):
            out0[i, j] = x[i, j] + y[i, j]
    for i in range(n):
        for j in range(m):
            out1[i, j] = exp(sqrt(x[i, j] * x[i, j] + y[i, j] * y[i, j]))

def main(x: f32[n, m], y: f32[n, m]) -> Tuple[f32[n, m], f32[n, m]]:
    with dataflow():
        v5: Tuple[f32[n, m], f32[n, m]] = call_kernel(polar_exp, x, y, sizes=(n, m))
        v2: f32[n, m] = v5[0]
        v3: f32[n, m] = v5[1]
        v4: Tuple[f32[n, m], f32[n, m]] = (v3, v2)
        output(v4)
    return v4"""


def test_roles():
    def role(text: str) -> str:
        return facts_of(annotate_patterns(parse(text + "\ndef main(x: f32[n]) -> f32[n]:\n    return x")).kernels[0]).role

    assert (role(POLAR), role(MOMENTS)) == ("pointwise", "rows")
    assert role(POLAR.replace("s[i, j] = x[i, j]", "s[i, j] = r[i, j]")) == "pointwise"  # an output is read where it was written
    assert role(POLAR.replace("s[i, j] = x[i, j]", "s[i, j] = r[n - 1 - i, j]")) == "opaque"
    again = POLAR[POLAR.index("    for i") :].split("    for i")[1]
    assert role(POLAR + "    for i" + again) == "opaque"  # one is written twice
    assert role(MOMENTS.replace("total[i, 0] += x[i, k]", "total[i, 0] += x[i, k] * least[n - 1 - i, 0]")) == "opaque"
    transposed = MOMENTS.replace("total: f32[n, 1]", "total: f32[m, 1]").replace(
        "    for i in range(n):\n        total[i, 0] = 0.0\n        for k in range(m):\n            total[i, 0] += x[i, k]",
        "    for j in range(m):\n        total[j, 0] = 0.0\n        for k in range(n):\n            total[j, 0] += x[k, j]")
    assert transposed != MOMENTS and role(transposed) == "opaque"


def test_sizes_of_the_caller():
    text = POLAR + """
def main(x: f32[2*k, 3], y: f32[2*k, 3], z: f32[k]) -> f32[2*k, 3]:
    with dataflow():
        v0: Tuple[f32[2*k, 3], f32[2*k, 3]] = call_kernel(polar, x, y, sizes=(2*k, 3))
        v1: f32[2*k, 3] = v0[0]
        v2: f32[2*k, 3] = v0[1]
        v3: f32[2*k, 3] = multiply(v1, v2)
        output(v3)
    return v3"""
    module = fused(text)
    assert calls(module) == ["polar_multiply"] and "sizes=(k,)" in str(module)
    x, y = np.random.default_rng(0).random((2, 6, 3), np.float32)
    np.testing.assert_allclose(interpret(module, x, y, np.zeros(3, np.float32)), np.hypot(x, y) * (x + y), rtol=1e-5)


HEAD = "def sum_and_difference(x: f32[n, m], y: f32[n, m], up: f32[n, m], down: f32[n, m], *, n, m):\n"
LOOPS = "    for i in range(n):\n        for j in range(m):\n            {}\n"
EACH = "up[i, j] = x[i, j] + y[i, j]", "down[i, j] = x[i, j] - y[i, j]"


def test_compiled_with_a_users_kernel():
    both = mr.kernel(HEAD + "".join(map(LOOPS.format, EACH)))

    def fn(x, y):
        up, down = both(np.exp(x), y)
        return np.sqrt(np.abs(up * down)), down

    compiled = mr.jit(fn)
    for n, m in ((3, 4), (0, 3), (1, 1), (50, 70)):
        x, y = np.random.default_rng(n).random((2, n, m), np.float32)
        for found, wanted in zip(compiled(x, y), fn(x, y), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
    (kernel,) = compiled.kernels
    assert kernel.kernel == "exp_sum_and_difference_multiply_absolute_sqrt"

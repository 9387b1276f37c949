"""Which calls become one kernel, and what the kernels look like."""

import numpy as np
import pytest

from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.passes.annotate_patterns import annotate_patterns, pattern_of
from minirelax.passes.fuse_ops import fuse_ops
from minirelax.passes.grouping import MOST_BUFFERS, Groups
from minirelax.passes.legalize import legalize
from minirelax.pipeline import GRAPH_PASSES, KERNEL_PASSES, run
from tests.passes.programs import PROGRAMS
from tests.passes.test_meaning import inputs


def fused(text: str):
    """The module after fuse_kernels."""
    return next(s.module for s in run(parse(text), (*GRAPH_PASSES, *KERNEL_PASSES)) if s.name == "fuse_kernels")


def calls(module) -> list[str]:
    """The kernels that main calls, in order."""
    return [b.value.kernel for b in module["main"].bindings if hasattr(b.value, "kernel")]


@pytest.mark.parametrize(
    "name, kernels",
    [
        ("softmax", ["max_subtract_exp_sum_divide"]),
        ("column_softmax", ["max", "subtract_exp", "sum", "divide"]),
        ("vector_softmax", ["max", "subtract_exp", "sum", "divide"]),
        ("mlp", ["matmul_add_multiply_multiply_erf_add_multiply", "matmul_add_add"]),
        ("argmax", ["multiply_argmax"]),
        ("gather_norm", ["take_add_max_divide"]),
        ("gated", ["add_square_sum_multiply_add_sqrt_divide_multiply", "matmul", "matmul_negative_exp_add_divide_multiply"]),
        ("rotary", ["cos_sin_slice_slice_negative_concatenate_multiply_add", "concatenate_2", "transpose_matmul"]),
    ],
)
def test_groups(name, kernels):
    assert calls(fused(PROGRAMS[name][0])) == kernels


def test_a_residual_sum_is_a_second_result():
    module = fused(PROGRAMS["layer_norm"][0])
    kernel = module.kernels[-1]
    assert [v.name for v in kernel.outputs] == ["out0", "out1"]
    assert sum(b.reduction == "sum" for b in kernel.blocks) == 2


def test_attention_reads_heads_in_place():
    module = fused(PROGRAMS["attention"][0])
    scores, softmax, context = (module[k] for k in calls(module)[2:5])
    assert (scores.pattern, softmax.pattern, context.pattern) == ("contraction", "reduce", "contraction")
    assert "t0[i, j, l, p] += v23[i, l, j, k] * v23[i, p, j + 2, k]" in str(scores)


def test_no_reduction_is_repeated():
    for text, _ in PROGRAMS.values():
        stages = run(parse(text), (*GRAPH_PASSES, *KERNEL_PASSES))
        before, after = ({s.name: s.module for s in stages}[name] for name in ("annotate_patterns", "fuse_kernels"))
        count = [sum(b.reduction is not None for call in calls(m) for b in m[call].blocks) for m in (before, after)]
        assert count[0] == count[1]


def test_leading_axes_have_the_same_names():
    module = fused(PROGRAMS["softmax"][0])
    assert {b.axes[0].name for b in module[calls(module)[0]].blocks} == {"i"}


def test_equal_layers_share_kernels():
    layer = "v{0}: f32[n, 8] = matmul({1}, w)\n        v{2}: f32[n, 8] = tanh(v{0})"
    body = "\n        ".join(layer.format(2 * i, f"v{2 * i - 1}" if i else "x", 2 * i + 1) for i in range(6))
    module = fused(
        f"def main(x: f32[n, 8], w: f32[8, 8]) -> f32[n, 8]:\n    with dataflow():\n        {body}\n"
        "        output(v11)\n    return v11"
    )
    assert calls(module) == ["matmul_tanh"] * 6 and len(module.kernels) == 1


def test_a_group_has_one_contraction():
    module = fused("""
def main(x: f32[n, 8], w: f32[8, 8], u: f32[8, 8]) -> f32[n, 8]:
    with dataflow():
        v0: f32[n, 8] = matmul(x, w)
        v1: f32[n, 8] = matmul(x, u)
        v2: f32[n, 8] = multiply(v0, v1)
        output(v2)
    return v2""")
    assert calls(module) == ["matmul", "matmul_multiply"]


def test_an_expensive_value_is_not_computed_once_per_row():
    module = fused("""
def main(x: f32[n, m], y: f32[m]) -> Tuple[f32[n, m], f32[n, m]]:
    with dataflow():
        v0: f32[m] = exp(y)
        v1: f32[n, m] = add(x, v0)
        v2: f32[m] = multiply(y, 2.0)
        v3: f32[n, m] = add(x, v2)
        v4: Tuple[f32[n, m], f32[n, m]] = (v1, v3)
        output(v4)
    return v4""")
    assert calls(module) == ["exp", "add", "multiply_add"]


def test_groups_are_convex():
    """exp and add must not be joined around the sort between them."""
    module = fused("""
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = exp(x)
        v1: f32[n] = sort(v0, axis=0)
        v2: f32[n] = add(v0, v1)
        output(v2)
    return v2""")
    assert calls(module) == ["exp", "add"]


def test_no_call_moves_above_the_match_cast_that_binds_its_size():
    text = """
def main(x: f32[n], y: f32[_]) -> f32[m]:
    with dataflow():
        v0: f32[()] = sum(x, axes=(0,), keepdims=False)
        v1: f32[()] = sqrt(v0)
        v2: f32[_] = unique(x)
        v3: f32[m] = match_cast(v2, f32[m])
        v4: f32[m] = full(f32(2.0), shape=(m,))
        v5: f32[m] = multiply(v4, v1)
        v6: f32[m] = tanh(v5)
        output(v6)
    return v6"""
    module = fused(text)  # `run` verifies
    names = [str(b.var) for b in module["main"].bindings]
    assert names.index("v3") < names.index("v6")


def test_sizes_that_no_parameter_shows_are_passed():
    module = fused("""
def main(x: f32[2*n], y: f32[n]) -> f32[2*n]:
    with dataflow():
        v0: f32[2*n] = exp(x)
        v1: f32[2*n] = sqrt(v0)
        output(v1)
    return v1""")
    call = module["main"].bindings[-1].value
    assert str(call.sizes) == "(n,)" and module.kernels[0].sizes == ("n",)


def test_sizes_and_values_called_like_loops():
    text = """
def main(i: f32[k, j], k: f32[k, j]) -> f32[k]:
    with dataflow():
        v0: f32[k, j] = add(i, k)
        v1: f32[k, j] = tanh(v0)
        v2: f32[k] = sum(v1, axes=(1,), keepdims=False)
        output(v2)
    return v2"""
    module = fused(text)
    args, _ = inputs(parse(text), dict(k=3, j=4))
    assert calls(module) == ["add_tanh_sum"]
    assert abs(interpret(module, *args) - interpret(parse(text), *args)).max() < 1e-6


@pytest.mark.parametrize(
    "statement, kind",
    [
        ("out[i, j] = x[i, j]", "elementwise"),
        ("out[i, j] = x[i, j] + y[j]", "elementwise"),
        ("out[i, j] = y[j]", "broadcast"),
        ("out[i, j] = x[i, j] + z[j, i]", "injective"),
        ("out[i, j] = 1.0", "elementwise"),
        ("out[j, i] = z[i, j]", "injective"),
    ],
)
def test_patterns(statement, kind):
    rows, columns = ("m", "n") if statement.startswith("out[j") else ("n", "m")
    module = parse(f"""
@kernel
def k(x: f32[n, m], y: f32[m], z: f32[m, n], out: f32[n, m], *, n, m):
    for i in range({rows}):
        for j in range({columns}):
            {statement}

def main(x: f32[n]) -> f32[n]:
    return x""")
    assert pattern_of(module.kernels[0]) == kind


def test_a_size_is_made_where_it_is_read():
    module = fused("""
def main(x: f32[n, m]) -> f32[n, m]:
    with dataflow():
        v0: i64[()] = size(size=m)
        v1: f32[()] = cast(v0, dtype="f32")
        v2: f32[n, 1] = sum(x, axes=(1,), keepdims=True)
        v3: f32[n, 1] = divide(v2, v1)
        v4: f32[n, m] = subtract(x, v3)
        v5: f32[n, m] = divide(v4, v1)
        output(v5)
    return v5""")
    assert len(calls(module)) == 1 and "/ f32(m)" in str(module.kernels[0])


def test_a_user_kernel_takes_part():
    module = fused("""
@kernel
def scaled(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] * 3.0

def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = exp(x)
        v1: f32[n] = call_kernel(scaled, v0, sizes=(n,))
        output(v1)
    return v1""")
    assert calls(module) == ["exp_scaled"]


def test_a_fused_function_has_no_parameter_named_as_a_constant():
    module = parse("""
c0: f32[20] = constant([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])

def main(x: f32[20]) -> f32[20]:
    with dataflow():
        v0: f32[20] = add(x, c0)
        v1: f32[20] = multiply(v0, c0)
        output(v1)
    return v1
""")
    stages = run(module, KERNEL_PASSES)
    x = np.arange(20, dtype=np.float32)
    for stage in stages:
        np.testing.assert_array_equal(interpret(stage.module, x), (x + np.arange(20) % 10) * (np.arange(20) % 10))


def test_a_kernel_has_a_bounded_number_of_buffers():
    """A sum of 100 arrays becomes a few kernels, each of up to `MOST_BUFFERS` arguments."""
    count = 100
    params = ", ".join(f"x{i}: f32[n]" for i in range(count))
    adds = "\n        ".join(f"v{i}: f32[n] = add({f'v{i - 1}' if i > 1 else 'x0'}, x{i})" for i in range(1, count))
    last = f"v{count - 1}"
    text = f"def main({params}) -> f32[n]:\n    with dataflow():\n        {adds}\n        output({last})\n    return {last}"
    module = fused(text)
    buffers = [len(module[k].inputs) + len(module[k].outputs) for k in calls(module)]
    assert max(buffers) <= MOST_BUFFERS and len(buffers) == 4
    xs = [np.full(3, i, "f4") for i in range(count)]
    np.testing.assert_array_equal(interpret(module, *xs), np.full(3, 4950))


def test_merging_a_chain_looks_at_each_call_about_as_often(monkeypatch):
    """A chain twice as long takes about twice the work: members looked at when groups are merged."""
    seen = []
    buffers = Groups._buffers
    monkeypatch.setattr(Groups, "_buffers", lambda self, inside: seen.append(len(inside)) or buffers(self, inside))

    def work(count: int) -> int:
        seen.clear()
        lines = "\n        ".join(f"v{i}: f32[n] = tanh({f'v{i - 1}' if i else 'x'})" for i in range(count))
        module = parse(f"def main(x: f32[n]) -> f32[n]:\n    with dataflow():\n        {lines}\n        output(v{count - 1})\n"
                       f"    return v{count - 1}")
        fuse_ops(annotate_patterns(legalize(module)))
        return sum(seen)

    assert 0 < work(2000) <= 2.2 * work(1000)

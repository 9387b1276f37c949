"""Transposes and reshapes move towards the results and cancel, where that adds no work."""

import numpy as np
import pytest

from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.passes.eliminate_dead_code import eliminate_dead_code
from minirelax.passes.simplify import simplify


def moved(params: str, *lines: str, sizes: dict[str, int] | None = None) -> list[str]:
    """The right-hand sides that `simplify` leaves of a program; checks that it computes the same as before."""
    name, type_ = lines[-1].split(" = ")[0].split(": ")
    body = "\n".join(f"        {line}" for line in lines)
    module = parse(f"def main({params}) -> {type_}:\n    with dataflow():\n{body}\n        output({name})\n    return {name}\n")
    left = eliminate_dead_code(simplify(module))
    rng = np.random.default_rng(0)
    sizes = sizes or dict(n=2, m=3, k=4)
    arrays = [rng.standard_normal([sizes.get(d, d) for d in map(_size, v.type.shape)]).astype(v.type.numpy_dtype)
              for v in module["main"].params]
    np.testing.assert_array_equal(interpret(left, *arrays), interpret(module, *arrays))
    return [line.split(" = ")[1] for line in str(left).splitlines() if " = " in line]


def _size(d):
    return d if isinstance(d, int) else str(d)


def test_transposes_cancel_across_elementwise_ops():
    assert moved(
        "x: f32[n, m], s: f32[()]",
        "v0: f32[m, n] = transpose(x, axes=(1, 0))",
        "v1: f32[m, n] = multiply(v0, s)",
        "v2: f32[m, n] = exp(v1)",
        "v3: f32[n, m] = transpose(v2, axes=(1, 0))",
    ) == ["multiply(x, s)", "exp(v4)"]


def test_operands_transposed_alike_are_transposed_once():
    assert moved(
        "x: f32[n, m, k], y: f32[n, 1, k]",
        "v0: f32[k, n, m] = transpose(x, axes=(2, 0, 1))",
        "v1: f32[k, n, 1] = transpose(y, axes=(2, 0, 1))",
        "v2: f32[k, n, m] = add(v0, v1)",
    ) == ["add(x, y)", "transpose(v3, axes=(2, 0, 1))"]


def test_operands_transposed_in_other_ways_stay():
    lines = (
        "v0: f32[n, n] = transpose(x, axes=(1, 0))",
        "v1: f32[n, n] = add(v0, x)",
    )
    assert moved("x: f32[n, n]", *lines) == ["transpose(x, axes=(1, 0))", "add(v0, x)"]


def test_a_transpose_that_others_read_stays():
    assert moved(
        "x: f32[n, m]",
        "v0: f32[m, n] = transpose(x, axes=(1, 0))",
        "v1: f32[m, n] = exp(v0)",
        "v2: f32[m, n] = sort(v0, axis=0)",
        "v3: f32[m, n] = add(v1, v2)",
    ) == ["transpose(x, axes=(1, 0))", "exp(v0)", "sort(v0, axis=0)", "add(v1, v2)"]


def test_a_reader_that_is_dead_does_not_count():
    assert moved(
        "x: f32[n, m]",
        "v0: f32[m, n] = transpose(x, axes=(1, 0))",
        "v1: f32[m, n] = sort(v0, axis=0)",
        "v2: f32[m, n] = exp(v0)",
        "v3: f32[n, m] = transpose(v2, axes=(1, 0))",
    ) == ["exp(x)"]


def test_reshapes_cancel_across_elementwise_ops():
    assert moved(
        "x: f32[n, m], y: f32[n, m]",
        "v0: f32[m*n] = reshape(x, shape=(m*n,))",
        "v1: f32[m*n] = reshape(y, shape=(m*n,))",
        "v2: f32[m*n] = maximum(v0, v1)",
        "v3: f32[n, m] = reshape(v2, shape=(n, m))",
    ) == ["maximum(x, y)"]


def test_reshapes_of_other_shapes_stay():
    lines = (
        "v0: f32[m*n] = reshape(x, shape=(m*n,))",
        "v1: f32[m*n] = reshape(y, shape=(m*n,))",
        "v2: f32[m*n] = maximum(v0, v1)",
    )
    assert len(moved("x: f32[n, m], y: f32[m, n]", *lines)) == 3


def test_casts_and_comparisons_change_the_dtype_before_the_movement():
    assert moved(
        "x: f32[n, m]",
        "v0: f32[m, n] = transpose(x, axes=(1, 0))",
        "v1: bool[m, n] = less(v0, 0.0)",
        'v2: i32[m, n] = cast(v1, dtype="i32")',
        "v3: i32[n, m] = transpose(v2, axes=(1, 0))",
    ) == ["less(x, 0.0)", 'cast(v4, dtype="i32")']


@pytest.mark.parametrize(
    "line, left",
    [
        ("f32[k, m] = max(v0, axes=(1,), keepdims=False)", ["max(x, axes=(0,), keepdims=False)", "transpose(v2, axes=(1, 0))"]),
        ("f32[k, 1, m] = max(v0, axes=(1,), keepdims=True)",
         ["max(x, axes=(0,), keepdims=True)", "transpose(v2, axes=(2, 0, 1))"]),
        ("f32[m] = max(v0, axes=(0, 1), keepdims=False)", ["max(x, axes=(0, 2), keepdims=False)"]),
        ("f32[n, m] = min(v0, axes=(0,), keepdims=False)", ["min(x, axes=(2,), keepdims=False)"]),
        ("f32[1, 1, m] = max(v0, axes=(0, 1), keepdims=True)",
         ["max(x, axes=(0, 2), keepdims=True)", "reshape(v2, shape=(1, 1, m))"]),
        ("i64[n, m] = argmax(v0, axis=0, keepdims=False)", ["argmax(x, axis=2, keepdims=False)"]),
        ("i64[k, m] = argmin(v0, axis=1, keepdims=False)", ["argmin(x, axis=0, keepdims=False)", "transpose(v2, axes=(1, 0))"]),
    ],
)
def test_a_reduction_of_a_transposed_array(line, left):
    assert moved("x: f32[n, m, k]", "v0: f32[k, n, m] = transpose(x, axes=(2, 0, 1))", f"v1: {line}") == left


def test_a_softmax_of_a_transposed_array_keeps_its_form():
    lines = moved(
        "x: f32[n, m]",
        "v0: f32[m, n] = transpose(x, axes=(1, 0))",
        "v1: f32[m, 1] = max(v0, axes=(1,), keepdims=True)",
        "v2: f32[m, n] = subtract(v0, v1)",
    )
    assert lines == ["transpose(x, axes=(1, 0))", "max(v0, axes=(1,), keepdims=True)", "subtract(v0, v1)"]


def test_a_product_of_transposed_matrices_that_is_transposed():
    assert moved(
        "x: f32[m, n], y: f32[k, 2, m]",
        "v0: f32[n, m] = transpose(x, axes=(1, 0))",
        "v1: f32[k, m, 2] = transpose(y, axes=(0, 2, 1))",
        "v2: f32[k, n, 2] = matmul(v0, v1)",
        "v3: f32[k, 2, n] = transpose(v2, axes=(0, 2, 1))",
    ) == ["matmul(y, x)"]


def test_a_product_that_others_read_is_not_computed_twice():
    lines = moved(
        "x: f32[n, n], y: f32[n, n]",
        "v0: f32[n, n] = transpose(x, axes=(1, 0))",
        "v1: f32[n, n] = transpose(y, axes=(1, 0))",
        "v2: f32[n, n] = matmul(v0, v1)",
        "v3: f32[n, n] = transpose(v2, axes=(1, 0))",
        "v4: f32[n, n] = add(v3, v2)",
    )
    assert sum("matmul" in line for line in lines) == 1


def test_a_transpose_of_axes_of_one_element_is_a_reshape():
    assert moved("x: f32[n, 1, m]", "v0: f32[1, n, m] = transpose(x, axes=(1, 0, 2))") == ["reshape(x, shape=(1, n, m))"]
    assert moved("x: f32[n, 1, m]", "v0: f32[m, 1, n] = transpose(x, axes=(2, 1, 0))") == ["transpose(x, axes=(2, 1, 0))"]


def test_and_is_still_one_with_a_transpose_after_it():
    assert moved(
        "x: f32[n, 1, m]",
        "v0: f32[1, n, m] = transpose(x, axes=(1, 0, 2))",
        "v1: f32[1, m, n] = transpose(v0, axes=(0, 2, 1))",
    ) == ["transpose(x, axes=(1, 2, 0))"]


def test_the_result_is_a_reader():
    """A transposed value that is itself a result stays, and is not moved past what else reads it."""
    module = parse("""
def main(x: f32[n, m]) -> Tuple[f32[m, n], f32[m, n]]:
    with dataflow():
        v0: f32[m, n] = transpose(x, axes=(1, 0))
        v1: f32[m, n] = exp(v0)
        v2: Tuple[f32[m, n], f32[m, n]] = (v0, v1)
        output(v2)
    return v2""")
    assert simplify(module) == module

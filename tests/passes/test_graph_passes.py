"""fold_constants, merge_common, eliminate_dead_code, bind_parameters: what they must leave alone."""

import numpy as np
import pytest

from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify
from minirelax.passes.bind_parameters import bind_parameters
from minirelax.passes.eliminate_dead_code import eliminate_dead_code
from minirelax.passes.fold_constants import fold_constants
from minirelax.passes.merge_common import merge_common


def test_symbolic_sizes_are_not_folded():
    module = parse("""
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = iota(size=n, dtype="f32")
        v1: i64[()] = size(size=2*n)
        v2: f32[()] = cast(v1, dtype="f32")
        v3: f32[n] = multiply(v0, v2)
        output(v3)
    return v3""")
    assert fold_constants(module) == module


def test_a_large_array_of_one_value_is_not_kept():
    module = parse("""
def main(x: f32[n]) -> f32[100, 1000]:
    with dataflow():
        v0: f32[100, 1000] = full(f32(1.0), shape=(100, 1000))
        output(v0)
    return v0""")
    assert fold_constants(module) == module


def test_folding_to_the_result():
    module = parse("""
def main(x: f32[n]) -> i64[()]:
    with dataflow():
        v0: i64[()] = multiply(i64(6), i64(7))
        output(v0)
    return v0""")
    assert interpret(fold_constants(module), np.zeros(2, np.float32)) == 42
    assert not fold_constants(module)["main"].bindings


@pytest.mark.parametrize(
    "expression, type_, want",
    [
        ('take(c0, c1, axis=0, mode="raise")', "f32[2]", [3, 1]),
        ("slice(c0, starts=(2,), sizes=(2,), steps=(-2,))", "f32[2]", [3, 1]),
        ('cast(c0, dtype="i8")', "i8[3]", [1, 2, 3]),
        ("concatenate((c0, c0), axis=0)", "f32[6]", [1, 2, 3, 1, 2, 3]),
        ("concatenate((c0, c2), axis=0)", "f32[3]", [1, 2, 3]),
        ("transpose(c3, axes=(1, 0))", "f32[2, 1]", [[5], [6]]),
        ("reshape(c3, shape=(2,))", "f32[2]", [5, 6]),
        ("set_slice(c0, 9.0, starts=(1,), sizes=(2,), steps=(1,))", "f32[3]", [1, 9, 9]),
        ("sum(c0, axes=(0,), keepdims=True)", "f32[1]", [6]),
        ("matmul(c3, c4)", "f32[1, 1]", [[17]]),
        ("sum(c2, axes=(0,), keepdims=True)", "f32[1]", [0]),
    ],
)
def test_ops_on_constants_fold(expression, type_, want):
    module = parse(f"""
c0: f32[3] = constant([1.0, 2.0, 3.0])
c1: i64[2] = constant([2, 0])
c2: f32[0] = constant([])
c3: f32[1, 2] = constant([[5.0, 6.0]])
c4: f32[2, 1] = constant([[1.0], [2.0]])

def main(x: f32[n]) -> {type_}:
    with dataflow():
        v0: {type_} = {expression}
        output(v0)
    return v0""")
    folded = fold_constants(module)
    assert not folded["main"].bindings
    found = interpret(folded, np.zeros(1, np.float32))
    np.testing.assert_array_equal(found, want)
    assert found.dtype == module["main"].result.type.numpy_dtype


def test_folding_goes_on_in_later_blocks():
    module = parse("""
c0: f32[2] = constant([4.0, 9.0])

def main(x: f32[2]) -> f32[2]:
    with dataflow():
        v0: f32[2] = sqrt(c0)
        v1: f32[2] = exp(x)
        output(v0, v1)
    f0: f32[2] = helper(v0)
    with dataflow():
        v2: f32[2] = add(v0, 1.0)
        v3: f32[2] = multiply(v1, v2)
        v4: f32[2] = add(v3, f0)
        output(v4)
    return v4

@private
def helper(x: f32[2]) -> f32[2]:
    with dataflow():
        v0: f32[2] = sqrt(x)
        output(v0)
    return v0""")
    folded = fold_constants(module)
    verify(folded)
    assert "multiply(v1, c2)" in str(folded) and "helper(c1)" in str(folded) and "sqrt(c0)" not in str(folded)
    x = np.ones(2, np.float32)
    np.testing.assert_array_equal(interpret(folded, x), interpret(module, x))


def test_folding_what_fails_is_left_to_run_time():
    module = parse("""
def main(x: f32[n]) -> f32[1]:
    with dataflow():
        v0: f32[3] = full(f32(1.0), shape=(3,))
        v1: i64[1] = full(i64(7), shape=(1,))
        v2: f32[1] = take(v0, v1, axis=0, mode="raise")
        output(v2)
    return v2""")
    assert fold_constants(module) == module


def test_zeros_of_both_signs_stay_apart():
    module = parse("""
def main(x: f32[n]) -> Tuple[f32[n], f32[n]]:
    with dataflow():
        v0: f32[n] = copysign(x, 0.0)
        v1: f32[n] = copysign(x, -0.0)
        v2: Tuple[f32[n], f32[n]] = (v0, v1)
        output(v2)
    return v2""")
    assert merge_common(module) == module


def merged(dtype: str, first: str, second: str, result: str = "") -> bool:
    """Are two expressions of x and y, arrays of a dtype, computed once?"""
    type_ = f"{result or dtype}[n]"
    module = parse(f"""
def main(x: {dtype}[n], y: {dtype}[n]) -> Tuple[{type_}, {type_}]:
    with dataflow():
        v0: {type_} = {first}
        v1: {type_} = {second}
        v2: Tuple[{type_}, {type_}] = (v0, v1)
        output(v2)
    return v2""")
    return "(v0, v0)" in str(merge_common(module))


@pytest.mark.parametrize(
    "dtype, op, result",
    [
        ("f32", "add", "f32"),
        ("f32", "multiply", "f32"),
        ("f32", "equal", "bool"),
        ("f32", "not_equal", "bool"),
        ("f32", "logical_and", "bool"),
        ("i8", "logical_or", "bool"),
        ("bool", "logical_xor", "bool"),
        ("i8", "bitwise_and", "i8"),
        ("u8", "bitwise_or", "u8"),
        ("bool", "bitwise_xor", "bool"),
    ],
)
def test_operands_that_may_be_exchanged(dtype, op, result):
    assert merged(dtype, f"{op}(x, y)", f"{op}(y, x)", result)


def test_a_comparison_from_the_other_side():
    assert merged("f32", "less(x, y)", "greater(y, x)", "bool")
    assert merged("f32", "greater_equal(x, 1.0)", "less_equal(1.0, x)", "bool")
    assert not merged("f32", "less(x, y)", "greater(x, y)", "bool")
    assert not merged("f32", "less(x, y)", "greater_equal(y, x)", "bool")


@pytest.mark.parametrize("op", ["subtract", "divide", "power", "copysign", "fmod", "maximum", "minimum", "fmax", "fmin"])
def test_operands_that_may_not_be_exchanged(op):
    assert not merged("f32", f"{op}(x, y)", f"{op}(y, x)") and merged("f32", f"{op}(x, y)", f"{op}(x, y)")


def test_what_an_earlier_block_gives_out_is_known_later():
    module = parse("""
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = exp(x)
        v1: f32[n] = tanh(x)
        v2: f32[n] = add(v0, v1)
        output(v0, v2)
    f0: f32[n] = helper(v2)
    with dataflow():
        v3: f32[n] = exp(x)
        v4: f32[n] = tanh(x)
        v5: f32[n] = add(v3, v4)
        v6: f32[n] = add(v5, f0)
        output(v3, v6)
    v7: f32[n] = helper(v3)
    with dataflow():
        v8: f32[n] = add(v6, v7)
        v9: f32[n] = tanh(x)
        v10: f32[n] = multiply(v8, v9)
        output(v10)
    return v10

@private
def helper(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = sqrt(x)
        output(v0)
    return v0""")
    after = merge_common(module)
    verify(after)
    text = str(after["main"])
    assert text.count("exp(x)") == 1 and text.count("tanh(x)") == 3, "what is no output of its block is computed again"
    assert "add(v0, v4)" in text and "helper(v0)" in text
    x = np.linspace(0, 1, 5, dtype=np.float32)
    np.testing.assert_array_equal(interpret(after, x), interpret(module, x))


def test_equal_calls_of_a_registered_routine_are_made_once():
    module = parse("""
def main(x: f32[n], y: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = call_library("solver", x, y)
        v1: f32[n] = call_library("solver", x, y)
        v2: f32[n] = call_library("solver", y, x)
        v3: f32[n] = add(v0, v1)
        v4: f32[n] = add(v3, v2)
        output(v4)
    return v4""")
    assert str(merge_common(module)).count("call_library") == 2


def test_equal_constants_become_one():
    module = parse("""
c0: f32[2] = constant([1.0, 2.0])
c1: f32[2] = constant([1.0, 2.0])
c2: f32[2] = constant([1.0, 3.0])

def main(x: f32[2]) -> f32[2]:
    with dataflow():
        v0: f32[2] = add(x, c0)
        v1: f32[2] = add(v0, c1)
        v2: f32[2] = add(v1, c2)
        output(v2)
    return v2""")
    merged = merge_common(module)
    assert [c.name for c in merged.constants] == ["c0", "c2"]
    assert "add(v0, c0)" in str(merged)


def test_a_match_cast_is_never_dead():
    module = parse(
        """
def main(x: f32[_]) -> f32[_]:
    with dataflow():
        v0: f32[n, 2] = match_cast(x, f32[n, 2])
        v1: f32[n, 2] = exp(v0)
        output()
    return x""".replace("f32[_]", "f32[_, _]")
    )
    assert [str(b.var) for b in eliminate_dead_code(module)["main"].bindings] == ["v0"]


def test_unreachable_parts_are_dropped():
    module = parse("""
c0: f32[2] = constant([1.0, 2.0])

@kernel
def unread(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i]

def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = helper(x)
        output(v0)
    return v0

@private
def helper(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = exp(x)
        output(v0)
    return v0

@private
def lost(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = call_kernel(unread, x, sizes=(n,))
        output(v0)
    return v0""")
    left = eliminate_dead_code(module)
    assert [f.name for f in left.functions] == ["main", "helper"] and not left.kernels and not left.constants


def test_what_grows_is_computed_at_use():
    """Weights that are decoded to more than twice their memory stay packed."""
    module = parse("""
def main(x: f32[n, 4096], *, w: u8[4096, 512]) -> f32[n, 512]:
    with dataflow():
        v0: f32[4096, 512] = cast(w, dtype="f32")
        v1: f32[4096, 512] = subtract(v0, 8.0)
        v2: f32[n, 512] = matmul(x, v1)
        output(v2)
    return v2""")
    bound = bind_parameters(module)
    assert [str(v) for v in bound["main"].bound] == ["w"] and len(bound["main"].bindings) == 3


def test_what_depends_on_an_argument_is_not_bound():
    module = parse("""
def main(x: f32[4], *, w: f32[4], u: f32[4]) -> f32[4]:
    with dataflow():
        v0: f32[4] = exp(w)
        v1: f32[4] = add(v0, x)
        v2: f32[4] = sqrt(v0)
        v3: f32[4] = add(v1, v2)
        output(v3)
    return v3""")
    bound = bind_parameters(module)
    assert [str(v) for v in bound["main"].bound] == ["v0", "v2"]
    x, w = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    values = interpret(bound, w, w, function="bind")
    np.testing.assert_array_equal(interpret(bound, x, bound=values), interpret(module, x, bound=(w, w)))


def test_weights_are_prepared_through_casts_and_several_blocks():
    module = parse("""
def main(x: f32[n, 4], *, w: i8[3, 4], s: f32[3, 1]) -> f32[n, 3]:
    with dataflow():
        v0: f32[3, 4] = cast(w, dtype="f32")
        v1: f32[3, 4] = multiply(v0, s)
        v2: f32[n, 4] = exp(x)
        output(v1, v2)
    f0: f32[n, 4] = helper(v2)
    with dataflow():
        v3: f32[4, 3] = transpose(v1, axes=(1, 0))
        v4: f32[4, 3] = add(v3, 0.5)
        v5: f32[n, 3] = matmul(f0, v4)
        output(v5)
    return v5

@private
def helper(x: f32[n, 4]) -> f32[n, 4]:
    with dataflow():
        v0: f32[n, 4] = sqrt(x)
        output(v0)
    return v0""")
    bound = bind_parameters(module)
    verify(bound)
    assert [str(v) for v in bound["main"].bound] == ["v4"]
    assert [str(b.var) for b in bound["main"].bindings] == ["v2", "f0", "v5"]
    x, w, s = np.ones((2, 4), np.float32), np.arange(12, dtype=np.int8).reshape(3, 4), np.full((3, 1), 0.5, np.float32)
    values = interpret(bound, w, s, function="bind")
    np.testing.assert_array_equal(interpret(bound, x, bound=values), interpret(module, x, bound=(w, s)))

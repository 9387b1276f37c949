"""fold_constants, merge_common, eliminate_dead_code, bind_parameters: what they must leave alone."""

import numpy as np

from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
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

"""The loop forms in detail: affine indices, places that may be empty, indices outside, what NumPy's corner cases become."""
from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirelax.ir.dim import DimExpr, atoms, dim
from minirelax.ir.graph import Var
from minirelax.ir.loop import Kernel
from minirelax.ir.scalar import Apply, Load, literal, walk
from minirelax.ir.tensor import TensorExpr, lower_to_kernel
from minirelax.ir.types import Tensor, bool_, f32, f64, i64, u8
from minirelax.ops import OPS
from minirelax.ops.movement import Reshape, matching_groups
from tests.ops.evaluate import evaluate

SIZES = frozenset("nmkb")


def lowered(op, *params) -> Kernel:
    """The op's kernel; a parameter is a type (an input) or a tensor expression."""
    variables = tuple(Var(f"a{i}", p) if isinstance(p, Tensor) else p for i, p in enumerate(params))
    return lower_to_kernel(op.opname(), op.lower, variables, SIZES)


def loads(kernel: Kernel) -> list[Load]:
    return [s for block in kernel.blocks for s in walk(block.value) if isinstance(s, Load)]


def functions(kernel: Kernel) -> list[str]:
    return [s.function for block in kernel.blocks for s in walk(block.value) if isinstance(s, Apply)]


def scalar_constant(value, dtype) -> TensorExpr:
    return TensorExpr((), dtype, lambda: literal(value, dtype))


@pytest.mark.parametrize("old, new, indices", [
    (("b", "n", 768), ("b", "n", 12, 64), ("i", "j", "64*l + p")),                    # split heads
    (("b", "n", 12, 64), ("b", "n", 768), ("i", "j", "l//64", "l%64")),               # merge them
    (("n", "m", 4), ("n*m", 4), ("i//m", "i%m", "j")),
    (("n*m", 4), ("n", "m", 4), ("i*m + j", "l")),
    (("n", 1, "m"), ("n", "m", 1), ("i", "0", "j")),
    ((6, "n"), (2, 3, "n"), ("3*i + j", "l")),
    ((4, 6), (6, 4), ("(4*i + j)//6", "(4*i + j)%6"))])
def test_reshape_indices(old, new, indices):
    old, new = (tuple(dim(str(d)) for d in s) for s in (old, new))
    kernel = lowered(Reshape(None, new), Tensor("f32", old))
    assert loads(kernel)[0].indices == tuple(map(dim, indices))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=4), st.randoms(use_true_random=False))
def test_reshape_groups_fit_and_cover(factors, random):
    old, new = list(factors), list(factors)
    for shape in (old, new):                                   # merge some neighbours, so that both have the same size
        random.shuffle(shape)
        while len(shape) > 1 and random.random() < 0.5:
            at = random.randrange(len(shape) - 1)
            shape[at:at + 2] = [shape[at] * shape[at + 1]]
    groups = matching_groups(tuple(old), tuple(new))
    assert all(math.prod(old[a] for a in left) == math.prod(new[a] for a in right) for left, right in groups)
    assert [a for left, _ in groups for a in left] == [a for a, d in enumerate(old) if d != 1]
    assert [a for _, right in groups for a in right] == [a for a, d in enumerate(new) if d != 1]
    array = np.arange(math.prod(old)).reshape(old)
    assert np.array_equal(evaluate(lowered(Reshape(None, tuple(new)), i64[tuple(old)]), [array], {})[0], array.reshape(new))


@pytest.mark.parametrize("n, m, k", [*itertools.product((0, 1, 2), (0, 3), (0, 1))])
def test_concatenate_parts_that_may_be_empty(n, m, k):
    kernel = lowered(OPS["concatenate"]((None,) * 3, 0), f32["n", 2], f32["m", 2], f32["k", 2])
    parts = [np.full((size, 2), size, np.float32) for size in (n, m, k)]
    assert np.array_equal(evaluate(kernel, parts, {"n": n, "m": m, "k": k})[0], np.concatenate(parts))


@pytest.mark.parametrize("n", [0, 1, 4])
def test_pad_what_may_be_empty(n):
    kernel = lowered(OPS["pad"](None, None, ((2, dim("n")), (0, 1))), f32["n", 2], scalar_constant(9.0, "f32"))
    x = np.arange(2 * n, dtype=np.float32).reshape(n, 2)
    assert np.array_equal(evaluate(kernel, [x], {"n": n})[0], np.pad(x, ((2, n), (0, 1)), constant_values=9))


@pytest.mark.parametrize("n, step", [*itertools.product((1, 2, 5, 8), (1, 2, 3))])
def test_set_slice_that_may_be_empty(n, step):
    size = dim(f"(n + {step - 2})//{step}")                                        # x[1::step]
    kernel = lowered(OPS["set_slice"](None, None, (1,), (size,), (step,)), i64["n"], scalar_constant(-1, "i64"))
    want = np.arange(n)
    want[1::step] = -1
    assert np.array_equal(evaluate(kernel, [np.arange(n)], {"n": n})[0], want)


def test_a_whole_slice_replaced_does_not_read_the_old():
    kernel = lowered(OPS["set_slice"](None, None, (dim("n - 1"),), (dim("n"),), (-1,)), f32["n"], f32["n"])
    assert [ld.buffer for ld in loads(kernel)] == ["a1"] and loads(kernel)[0].indices == (dim("n - i - 1"),)


def test_parts_with_elements_stay_one_expression():
    """So that consumers can be fused with them; a part that may be empty is a block of its own."""
    assert len(lowered(OPS["concatenate"]((None, None), 1), f32["n", 3], f32["n", 4]).blocks) == 1
    assert len(lowered(OPS["concatenate"]((None, None), 0), f32["n", 3], f32["m", 3]).blocks) == 2
    assert len(lowered(OPS["pad"](None, None, ((1, 1),)), f32[4], scalar_constant(0.0, "f32")).blocks) == 1
    assert len(lowered(OPS["pad"](None, None, ((1, 1),)), f32["n"], scalar_constant(0.0, "f32")).blocks) == 2


def test_first_and_last_parts_need_one_bound():
    kernel = lowered(OPS["concatenate"]((None, None), 0), f32["n + 1"], f32["m + 1"])
    assert [str(ld.indices[0]) for ld in loads(kernel)] == ["i", "i - n - 1"]


@pytest.mark.parametrize("index", [5, -6, 2**40])
def test_take_refuses_an_index_outside(index):
    x = np.zeros((5, 2), np.float32)
    for name, op in (("take", OPS["take"](None, None, 0)), ("gather", OPS["gather"](None, (None,), (0,), 0))):
        with pytest.raises(IndexError):
            evaluate(lowered(op, f32["n", 2], i64[1]), [x, np.array([index])], {"n": 5})
        with pytest.raises(IndexError):
            OPS[name].numpy(op, x, np.array([index]))


@pytest.mark.parametrize("mode", ["wrap", "clip"])
def test_take_from_an_axis_that_may_be_empty_is_checked(mode):
    op = OPS["take"](None, None, 0, mode)
    assert "check_index" in functions(lowered(op, f32["n"], i64["m"]))
    assert "check_index" not in functions(lowered(op, f32["n + 1"], i64["m"]))
    with pytest.raises(IndexError):
        evaluate(lowered(op, f32["n"], i64["m"]), [np.zeros(0, np.float32), np.array([1])], {"n": 0, "m": 1})


def test_unsigned_indices_do_not_count_from_the_end():
    assert "where" in functions(lowered(OPS["take"](None, None, 0), f32["n"], i64["m"]))
    assert functions(lowered(OPS["take"](None, None, 0), f32["n"], u8["m"])) == ["cast", "check_index"]


@pytest.mark.parametrize("exponent, want", [
    (1.0, []), (2.0, ["multiply"]), (3.0, ["multiply"] * 2), (4.0, ["multiply"] * 2), (0.5, ["power"])])
def test_small_constant_powers_are_products(exponent, want):
    assert functions(lowered(OPS["power"](None, None), f32["n"], scalar_constant(exponent, "f32"))) == want


@pytest.mark.parametrize("name, function", [
    ("add", "logical_or"), ("multiply", "logical_and"), ("maximum", "logical_or"), ("minimum", "logical_and"),
    ("bitwise_and", "logical_and"), ("bitwise_or", "logical_or"), ("bitwise_xor", "logical_xor")])
def test_bools_use_logic(name, function):
    assert functions(lowered(OPS[name](None, None), bool_["n"], bool_["n"])) == [function]


def test_matmul_is_one_reduction_of_a_product():
    (block,) = lowered(OPS["matmul"](None, None), f32["b", "n", 8], f32[8, "m"]).blocks
    assert block.reduction == "sum" and [a.extent for a in block.over] == [8]
    assert [str(a.extent) for a in block.axes] == ["b", "n", "m"]


def test_einsum_sums_all_absent_letters_in_one_reduction():
    (block,) = lowered(OPS["einsum"]((None,) * 3, "ij,jk,k->i"), f64["n", "m"], f64["m", 4], f64[4]).blocks
    assert [str(a.extent) for a in block.over] == ["m", "4"]


def test_shared_scalars_are_shared():
    (block,) = lowered(OPS["square"](None), f32["n"]).blocks
    assert block.value.args[0] is block.value.args[1]


def test_slices_stay_affine():
    kernel = lowered(OPS["slice"](None, (0, dim("n - 1")), (dim("m"), dim("n")), (2, -1)), f32["2*m", "n"])
    (found,) = loads(kernel)
    assert found.indices == (dim("2*i"), dim("n - j - 1"))
    assert not any(list(atoms(i)) for i in found.indices if isinstance(i, DimExpr))

"""Faults that people reported of other array compilers, as programs of ours: the compiled result is NumPy's, or what is said.

Each test names the report.  The programs and words here are our own; what they have in common with the reports is the fault.
"""

from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
import minirelax.numpy as mnp


def check(fn, *args, compiled=None):
    """Compile (or use `compiled`), compare value, shape and dtype with NumPy, and see that the arguments are untouched."""
    before = [a.copy() for a in args]
    with np.errstate(all="ignore"):
        want, got = fn(*args), (compiled or mr.jit(fn))(*args)
    wants, gots = (r if isinstance(r, tuple) else (r,) for r in (want, got))
    assert len(wants) == len(gots)
    for w, g in zip(wants, gots, strict=True):
        assert (g.dtype, g.shape) == (np.asarray(w).dtype, np.asarray(w).shape)
        tolerance = {"f": 2e-6 if g.dtype == np.float32 else 1e-12}.get(g.dtype.kind, 0)
        np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance)
    for a, b in zip(args, before, strict=True):
        np.testing.assert_array_equal(a, b)
    return got


def normal(*shape, dtype="f4"):
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


# ---- memory


def test_memory_of_a_value_whose_view_is_still_needed():
    """https://github.com/apache/tvm/issues/20190: a buffer was reused although an alias of it was read later."""
    def fn(x):
        rows = np.exp(x)
        flat = rows.reshape(-1)  # shows the memory of `rows`
        other = np.sort(x * 2, axis=0)
        more = np.sort(other - 1, axis=1)
        return flat.sum() + more, np.cumsum(flat), other

    compiled = mr.jit(fn)
    for n in (4, 1, 9):
        check(fn, normal(n, 6), compiled=compiled)


def test_reshapes_on_both_sides_of_a_choice():
    """https://github.com/apache/tvm/issues/20191: storage planned for one branch was used in the other."""
    def fn(choose, x):
        n, m = x.shape
        there_and_back = x.reshape(n * m).reshape(m, n).reshape(n, m)
        return np.where(choose, there_and_back, np.sqrt(np.abs(x)).reshape(-1).reshape(n, m))

    compiled = mr.jit(fn)
    for choose in (True, False):
        check(fn, np.array(choose), normal(3, 5), compiled=compiled)


def test_an_argument_is_returned_and_the_start_of_a_sum():
    """https://github.com/iree-org/iree/issues/16168: an argument was overwritten by the accumulation that started from it."""
    def fn(start, x, w):
        total = start + x @ w
        return start, total, total + start

    start = normal(4, 3)
    same, total, _ = check(fn, start, normal(4, 5), normal(5, 3))
    total[:] = 0
    assert not np.shares_memory(same, start)
    np.testing.assert_array_equal(same, start)


def test_a_result_and_a_value_made_from_it():
    """https://github.com/pytorch/pytorch/issues/93497: input and output of a kernel were one buffer, declared not to overlap."""
    def fn(x):
        shifted = x - 3
        squared = shifted * shifted
        return shifted, squared / (squared + shifted), -squared

    check(fn, normal(17))
    check(fn, np.array([3.0, 0.0, 4.0]))


# ---- nothing to work on


def test_sums_over_no_elements():
    """https://github.com/apache/tvm/issues/19578: an empty contraction returned memory that nobody had written."""
    def fn(x, y):
        return x @ y, x.sum(axis=1), x.prod(axis=1), (x == 0).all(axis=1), np.einsum("ik,kj->", x, y)

    compiled = mr.jit(fn)
    for n, k, m in ((3, 0, 5), (0, 4, 2), (2, 3, 0), (0, 0, 0), (2, 3, 4)):
        check(fn, normal(n, k), normal(k, m), compiled=compiled)
    largest = mr.jit(lambda x: x.max(axis=0))
    assert largest(normal(2, 3)).shape == (3,)
    with pytest.raises(ValueError, match="no identity"):
        largest(normal(0, 3))


def test_axes_kept_by_a_sum_over_no_elements():
    """https://github.com/microsoft/onnxruntime/issues/8146: the kept axis of an empty sum had size 0."""
    def fn(x):
        return x.sum(keepdims=True), x.sum(axis=0, keepdims=True), x.sum((0, 1), keepdims=True), x.mean(axis=1, keepdims=True)

    compiled = mr.jit(fn)
    for shape in ((0, 3), (3, 4), (0, 1)):
        check(fn, normal(*shape), compiled=compiled)


# ---- sizes and indices


def test_sizes_as_numbers():
    """https://github.com/pytorch/pytorch/issues/108067: a symbolic size in arithmetic with an array broke the generated code."""
    def fn(x):
        n, m = x.shape
        return x * n - m, n / (x * x + m), mnp.full((2, 2), n * m + 1), np.minimum(x, n // 2), x.sum() / (n * m)

    compiled = mr.jit(fn)
    for n in (6, 1, 11):
        check(fn, normal(n, 4), compiled=compiled)
    assert len(compiled.compilations) <= 2


def test_slices_that_reach_outside():
    """https://github.com/apache/tvm/issues/20262: the bounds were clipped where the loop ends but not where it reads."""
    def fn(x):
        n = x.shape[0]
        return x[n - 2 : n + 7], x[-50:3], x[n + 2 :], x[n + 5 :: -2], x[2:500], x[-3:-400:-2], x[n:0:-3]

    compiled = mr.jit(fn)
    for n in (3, 4, 9, 30):
        check(fn, np.arange(n, dtype="f4"), compiled=compiled)


def test_rows_outside_a_table():
    """https://github.com/jax-ml/jax/issues/3774: an index outside was clamped, so a table that was too small went unnoticed."""
    table = normal(4, 3)
    fn = mr.jit(lambda table, i: table[i] * 2)
    np.testing.assert_array_equal(fn(table, np.array([3, -4, 0])), table[[3, -4, 0]] * 2)
    for outside in (4, -5, 2**62, -(2**63)):
        with pytest.raises(IndexError, match="out of bounds for axis 0 with size 4"):
            fn(table, np.array([0, outside]))
    np.testing.assert_array_equal(fn(table, np.array([1])), table[[1]] * 2)


def test_the_largest_integer_as_the_end_of_a_slice():
    """https://github.com/pytorch/pytorch/pull/103511: it was cut to 32 bits."""
    def fn(x):
        return x[: 2**63 - 1], x[1 : 2**63 - 1 : 2], x[2**31 :], x[-(2**63) : 2], x[2**63 - 1 :: -1]

    check(fn, normal(5))


# ---- numbers


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8", "f4", "f8"])
def test_signs_of_remainders(dtype):
    """https://github.com/numba/numba/issues/8574: fmod had the sign of the divisor, as remainder has."""
    def fn(x, y):
        return np.remainder(x, y), np.fmod(x, y), x // y, x % y

    x = np.arange(-9, 10).astype(dtype)
    y = np.array([-5, -2, -1, 1, 3, 4]).astype(dtype)
    check(fn, x[:, None], y[None, :])


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])
def test_the_smallest_integer_divided_by_minus_one(dtype):
    """https://github.com/numba/numba/issues/10845: the processor's trap ended the process; NumPy wraps around."""
    def fn(x, y):
        return x // y, x % y, np.fmod(x, y), -x, np.abs(x)

    low = np.iinfo(dtype).min
    check(fn, np.array([low, low, low + 1, 5, low], dtype), np.array([-1, 1, -1, -1, 0], dtype))


def test_unsigned_64_bit_integers_stay_exact():
    """https://github.com/numba/numba/issues/4631: a constant made them floats, and the low bits were gone."""
    def fn(x):
        return x - (2**60 - 3), np.where(x > 2**62, x % 1000003, x * 3), x >> 1, x // 7

    check(fn, np.array([2**63 + 1, 2**60 + 5, 2**64 - 1], "u8"))
    mixed = mr.jit(lambda x, y: x + y)
    for a, b in (("i8", "u8"), ("i4", "f4"), ("u1", "i1"), ("u4", "i8"), ("?", "i1"), ("i8", "f4")):
        check(mixed.fn, np.ones(2, a), np.ones(2, b), compiled=mixed)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_nan_wins_every_extreme(dtype):
    """https://github.com/numba/numba/issues/5788: a vector comparison passes over NaN; NumPy returns it, and where it is."""
    def fn(x):
        return x.max(), x.min(), x.argmax(), x.argmin(), x.max(axis=1), x.argmin(axis=0), np.maximum(x, 0), np.minimum(0, x)

    compiled = mr.jit(fn)
    for at in (0, 5, 36, 69):
        x = normal(7, 10, dtype=dtype)
        x.flat[at] = np.nan
        check(fn, x, compiled=compiled)
        x.flat[69 - at] = np.nan  # the first of two counts
        check(fn, x, compiled=compiled)


# ---- fusion and layout


def test_orders_of_axes_around_a_matrix_product():
    """https://github.com/microsoft/onnxruntime/issues/32228: an order that changes nothing was folded in as a transpose."""
    def fn(x, w):
        return x.transpose(0, 1) @ w, x.T @ w.transpose(1, 0), np.transpose(x.T, (1, 0)) @ np.transpose(w, (0, 1)) + w, (x @ w).T

    check(fn, normal(6, 6), normal(6, 6).T.copy())


def test_layout_of_a_result_at_a_later_size():
    """https://github.com/tinygrad/tinygrad/issues/11852: the result of a later call had the strides of an earlier one."""
    def fn(x):
        return (x * 2).T.reshape(-1), np.swapaxes(x - 1, 0, 1)

    compiled = mr.jit(fn)
    for n in (2, 7, 1, 3, 64):
        check(fn, normal(5, n), compiled=compiled)
    assert len(compiled.compilations) == 1


def test_views_as_arguments():
    """https://github.com/pytorch/pytorch/issues/193966: a kernel took every argument to be packed."""
    def fn(x, w):
        return np.tanh(x) @ w, x.max(axis=0) - w.sum(), x * x

    compiled, memory = mr.jit(fn), normal(12, 12)
    views = (memory[:4, :6], memory.T[:4, :6], memory[8:, 6:], memory[:8:2, ::2], memory[3::-1, 5::-1])
    for x in (*views, np.broadcast_to(memory[0, :6], (4, 6))):
        check(fn, x, memory[:6, ::4], compiled=compiled)


def test_letters_behind_an_ellipsis():
    """https://github.com/pytorch/pytorch/issues/45854: operands with different numbers of axes there were refused."""
    def fn(x, y):
        return np.einsum("...ik,kj->...ij", x, y), np.einsum("a...,a...->...", x, x), np.einsum("...ii->...i", x[:, :2, :2])

    check(fn, normal(2, 3, 4), normal(4, 5))
    check(lambda x, y: np.einsum("i...,j...->ij...", x, y), normal(2, 1, 3), normal(4, 3))


@pytest.mark.parametrize("axis", [0, 1, 2, -2])
def test_softmax_over_each_axis(axis):
    """https://github.com/pytorch/pytorch/issues/93718: reductions and what is broadcast back were joined along the wrong axis."""
    def fn(x):
        e = np.exp(x - x.max(axis=axis, keepdims=True))
        return e / e.sum(axis=axis, keepdims=True), np.log(e.sum(axis=axis)) + x.max(axis=axis)

    compiled = mr.jit(fn)
    check(fn, normal(4, 5, 6), compiled=compiled)
    check(fn, normal(1, 7, 2), compiled=compiled)


# ---- what depends on data


def test_sums_and_selections_by_a_mask():
    """https://github.com/jax-ml/jax/issues/4471: how many elements a mask selects is known only while running."""
    def fn(x):
        inside = np.abs(x) < 1
        return x[inside], x[inside].sum(), np.where(inside, x, 0).sum(axis=0), np.count_nonzero(inside)

    compiled = mr.jit(fn)
    for x in (normal(5, 4), normal(5, 4) + 100, normal(5, 4) * 0):
        check(fn, x, compiled=compiled)


def test_overwriting_where_a_mask_says():
    """https://github.com/jax-ml/jax/issues/21994: refused, although no size depends on the data."""
    def fn(x):
        y = x.copy()
        y[x < 0] = 0
        y[:, 1] = np.where(x[:, 0] > 0, -1, y[:, 1])
        return y, np.concatenate([np.where(x[:2] % 2 == 0, 7, x[:2]), y[2:]])

    check(fn, np.arange(-6, 6).reshape(4, 3))
    check(fn, normal(4, 3))

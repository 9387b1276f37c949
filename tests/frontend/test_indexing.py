"""Indexing means what NumPy's indexing means, for reading and writing, whatever the key; checked on random ones."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minirelax.numpy as mnp
from minirelax.errors import BranchError, CompileError, IndexingError
from minirelax.jit import jit

FEW = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
integers = st.integers(-5, 5)
bounds = st.none() | integers
slices = st.builds(slice, bounds, bounds, st.sampled_from([None, 1, 2, -1, -2, 3]))


def filled(shape: tuple[int, ...]) -> np.ndarray:
    return np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)


@st.composite
def keys(draw, arrays: bool = True):
    """A shape and a key that often fits it."""
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    parts, axis = [], 0
    while axis < len(shape) and len(parts) < 5:
        kind = draw(st.sampled_from(["slice", "slice", "int", "new", "stop", *(["array", "mask"] if arrays else [])]))
        match kind:
            case "slice":
                parts.append(draw(slices))
            case "int":
                parts.append(draw(st.integers(-shape[axis], max(shape[axis] - 1, 0))))
            case "new":
                parts.append(None)
                continue
            case "array":
                inside = st.integers(-shape[axis], shape[axis] - 1) if shape[axis] else st.just(0)
                size = draw(st.sampled_from([1, 2])) if shape[axis] else 0
                parts.append(np.array(draw(st.lists(inside, min_size=size, max_size=size)), dtype=np.int64))
            case "mask":
                parts.append(np.array(draw(st.lists(st.booleans(), min_size=shape[axis], max_size=shape[axis])), dtype=bool))
            case "stop":
                break
        axis += 1
    if draw(st.booleans()):
        parts.insert(len(parts) if arrays else draw(st.integers(0, len(parts))), Ellipsis)
    return shape, tuple(parts)


def outcome(fn, *args):
    """The result, or the kind of error."""
    try:
        return fn(*args)
    except (IndexError, ValueError) as e:
        return IndexError if isinstance(e, IndexError) else ValueError


def agree(got, want):
    if isinstance(want, type):
        assert got is want
        return
    assert not isinstance(got, type), f"{got.__name__}, where NumPy gives {want}"
    assert np.shape(got) == np.shape(want)
    np.testing.assert_array_equal(got, want)


@FEW
@given(keys())
def test_reading(case):
    shape, key = case
    x = filled(shape)
    agree(outcome(jit(lambda x: x[key], target="interpret"), x), outcome(lambda x: x[key].copy(), x))


@FEW
@given(keys(), st.booleans())
def test_writing(case, one_value):
    shape, key = case
    x, y = filled(shape), filled(shape)
    value = np.float32(-1) if one_value else outcome(lambda: -1 - filled(x[key].shape))
    if isinstance(value, type):
        return

    def write(x):
        x[key] = value

    want = outcome(write, y)
    got = outcome(jit(write, target="interpret"), x)
    assert isinstance(got, type) == isinstance(want, type)
    np.testing.assert_array_equal(x, y)


@FEW
@given(keys(arrays=False), integers)
def test_one_program_serves_all_sizes_that_fit_its_guards(case, shift):
    shape, key = case
    f = jit(lambda x: x[key], target="interpret")
    for other in (shape, tuple(max(d + shift, 0) for d in shape), tuple(d + 7 for d in shape), tuple(d + 9 for d in shape)):
        x = filled(other)
        agree(outcome(f, x), outcome(lambda x: x[key].copy(), x))


@FEW
@given(st.integers(0, 6), st.integers(0, 6), integers, integers, st.sampled_from([1, 2, -1, -3]))
def test_symbolic_bounds(n, m, a, b, step):
    def f(x, y):
        s = y.shape[0]
        return x[s + a : 2 * s + b : step], x[:s:step], x[s:], x[-s - 1 :]

    x, y = filled((n,)), filled((m,))
    for got, want in zip(jit(f, target="interpret")(x, y), f(x, y), strict=True):
        agree(got, want)


def test_slices_of_undeclared_sizes_take_few_guards():
    f = jit(lambda x: (x[:512], x[1:], x[::2], x[::-1], x[3:7]), target="interpret")
    for n in (0, 1, 5, 600):
        for got, want in zip(f(filled((n,))), (lambda x: (x[:512], x[1:], x[::2], x[::-1], x[3:7]))(filled((n,))), strict=True):
            agree(got, want)
    assert len(f.compilations) == 1 and not f.compilations[0].guards


def test_traced_indices():
    def f(x, i, k):
        return x[i], x[i[0]], x[i, k], x[:, k], x[i[:, None], k], x[i, :, None], x[1, k], x[..., k, 0]

    x, i, k = filled((4, 3, 2)), np.array([0, -1, 2]), np.array([1, 0, -1])
    for got, want in zip(jit(f, target="interpret")(x, i, k), f(x, i, k), strict=True):
        agree(got, want)


def test_masks():
    def f(x, y):
        m = x > 2
        z = x * 1
        z[m] = 0
        w = x + 0
        w[x > 5] += 10
        rows = y[x[:, 0] > 2]
        return x[m], x[m].sum(), x[~m] + 1, z, w, rows, x[m][:1], y[m], x[x[:, 0] > 2, 1]

    x, y = filled((4, 3)), filled((4, 3, 2))
    for got, want in zip(jit(f, target="interpret")(x, y), f(x, y), strict=True):
        agree(got, want)


def test_selections_by_equal_masks_have_equal_sizes():
    f = jit(lambda x, y: x[x > 0] + y[x > 0], target="interpret")
    x = np.array([1.0, -1.0, 2.0])
    agree(f(x, x * 2), np.array([3.0, 6.0]))


def test_np_add_at_counts_repeated_indices():
    def f(x, i):
        y = np.zeros_like(x)
        np.add.at(y, i, x[i])
        np.subtract.at(y, (i,), 1)
        return y

    x, i = filled((4,)), np.array([1, 1, 3])
    agree(jit(f, target="interpret")(x, i), f(x, i))


@pytest.mark.parametrize(
    "key, message",
    [
        (5, "index 5 is out of bounds for axis 0 with size n (here 3)"),
        (-4, "index -4 is out of bounds for axis 0 with size n (here 3)"),
        ((0, 0), "too many indices for array: array is 1-dimensional, but 2 were indexed"),
        ((Ellipsis, Ellipsis), "an index can only have a single ellipsis ('...')"),
        (
            1.5,
            "only integers, slices (`:`), ellipsis (`...`), np.newaxis (`None`) and integer or boolean arrays are valid indices, "
            "not float",
        ),
    ],
)
def test_bad_keys(key, message):
    with pytest.raises(IndexingError) as e:
        jit(lambda x: x[key], target="interpret")(filled((3,)))
    assert e.value.what == message
    assert "test_indexing.py" in e.value.where


def test_values_cannot_bound_slices():
    with pytest.raises(IndexingError, match="the bounds of a slice must be known while tracing"):
        jit(lambda x, i: x[i[0] :], target="interpret")(filled((3,)), np.array([1]))


def test_out_of_range_while_running():
    f = jit(lambda x, i: x[i], target="interpret")
    agree(f(filled((3,)), np.array([2, -3])), np.array([2, 0]))
    for bad in ([3], [-4]):
        with pytest.raises(IndexError):
            f(filled((3,)), np.array(bad))


def test_data_dependent_sizes_take_no_guards():
    def f(x):
        y = x[x > 0]
        return y + x

    with pytest.raises(CompileError, match="cannot be shown equal"):
        jit(f, target="interpret")(np.array([1.0, 2.0]))


@settings(FEW, max_examples=40)
@given(slices, st.lists(st.sampled_from([-1.0, 1.0, 2.0]), max_size=6))
def test_slices_of_data_dependent_sizes(key, values):
    x = np.array(values)
    f = jit(lambda x: (x[x > 0][key], x[x > 0][:-1] * x[x > 0][1:]), target="interpret")
    for given_x in (x, np.append(x, 3.0), x[:0]):
        kept = given_x[given_x > 0]
        agree(f(given_x)[0], kept[key])
        agree(f(given_x)[1], kept[:-1] * kept[1:])


def test_iteration_unrolls_and_membership_is_a_branch():
    f = jit(lambda x: sum(row * (i + 1) for i, row in enumerate(x)), target="interpret")
    agree(f(filled((3, 2))), sum(row * (i + 1) for i, row in enumerate(filled((3, 2)))))
    agree(f(filled((2, 2))), sum(row * (i + 1) for i, row in enumerate(filled((2, 2)))))
    assert len(f.compilations) == 2
    with pytest.raises(BranchError):
        jit(lambda x: mnp.where(1 in x, 1, 0), target="interpret")(filled((3,)))

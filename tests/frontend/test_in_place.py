"""In-place code means what it means in NumPy: views alias, and writes to arguments reach the caller."""

from __future__ import annotations

import numpy as np
import pytest

import minirelax.numpy as mnp
from minirelax.errors import ArgumentError, ShapeError, UnsupportedError
from minirelax.jit import jit


def both(fn, *arrays):
    """Results and arguments of NumPy and of the compiled function must agree."""
    mine, numpys = [a.copy() for a in arrays], [a.copy() for a in arrays]
    want = fn(*numpys)
    got = jit(fn, target="interpret")(*mine)
    for g, w in zip((got, *mine), (want, *numpys), strict=True):
        if w is not None:
            np.testing.assert_array_equal(g, w)


X = np.arange(12, dtype=np.float32).reshape(3, 4)


def view_of_view(x):
    x[1:][0] = -1
    return x.sum()


def chain(x):
    y = x.T[1:3].reshape(2, 3, 1)
    y[0] = 7
    z = x[::-1, ::2]
    z += 100
    return x * 1


def reading_a_view_later(x):
    row, column, flat = x[0], x[:, 1], x.ravel()
    x[0, 1] = 50
    row[2] = 60
    flat[-1] = 70
    return row.sum() + column.sum() * 1000 + flat[1]


def operators(x):
    y = x * 1
    a = y
    a += 1
    a -= x
    a *= 3
    a /= 2
    a **= 2
    return y


def swap(x):
    x[0], x[1] = x[1].copy(), x[0].copy()
    return None


def stencil(x):
    for _ in range(3):
        x[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    return x.copy()


def masked(x):
    x[x > 5] = 0
    x[x == 3] *= -1
    np.copyto(x, 9, where=x == 1)
    np.putmask(x, x == 2, 8)
    return None


def scattered(x):
    x[[0, 2], [1, 3]] = 5
    x[:, np.array([0, 2])] += 1
    np.add.at(x, (np.array([1, 1]), 0), 2)
    return None


def outs(x):
    y = np.zeros_like(x)
    np.add(x, 1, out=y)
    np.multiply(y, 2, out=y, where=np.array([True, False, True, False]))
    np.exp(x, out=x)
    np.sum(y, axis=0, out=x[0])
    return y


def methods(x):
    x[0].fill(4)
    x[1].sort()
    x[2, ::-1].sort()
    x.sort(0)
    return None


def diagonal(x):
    np.fill_diagonal(x, 42)
    return None


def broadcast_value(x):
    x[...] = x[0]
    x[:, 1:2] = np.array([[9.0]])
    x[2] = [1, 2, 3, 4]
    return None


def dropped_axes(x):
    x[0][1:][0] = 5
    x[None, 1, :, None][0, 2, 0] = 6
    np.swapaxes(x, 0, 1)[3, 2] = 8
    np.moveaxis(x, 0, -1)[0, 0] = 11
    np.squeeze(x[1:2], 0)[3] = 13
    return None


@pytest.mark.parametrize(
    "fn",
    [
        view_of_view,
        chain,
        reading_a_view_later,
        operators,
        swap,
        stencil,
        masked,
        scattered,
        outs,
        methods,
        diagonal,
        broadcast_value,
        dropped_axes,
    ],
    ids=lambda f: f.__name__,
)
def test_as_in_numpy(fn):
    both(fn, X)


def test_only_written_arguments_change():
    def f(x, y):
        x[0] = y[1]
        y = y + 1
        y[0] = 0
        return y

    both(f, X, X + 1)


def test_split_gives_views():
    def f(x):
        a, b = np.split(x, 2, axis=1)
        a[:] = b
        return None

    both(f, X)


def test_a_written_argument_that_is_returned_is_the_argument():
    def f(x):
        x += 1
        return x, x[0]

    x = X.copy()
    got, row = jit(f, target="interpret")(x)
    assert got is x
    np.testing.assert_array_equal(row, X[0] + 1)


def test_results_own_their_memory():
    f = jit(lambda x: (x, x, x[0], x.T), target="interpret")
    x = X.copy()
    a, b, row, t = f(x)
    assert a is b and a is not x
    a[:] = 0
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(row, X[0])
    np.testing.assert_array_equal(t, X.T)


def test_arrays_made_inside_can_be_filled():
    def f(x):
        out = mnp.zeros((x.shape[0], 2), dtype=x.dtype)
        out[:, 0] = x.sum(1)
        out[:, 1] = x.max(1)
        return out

    np.testing.assert_array_equal(jit(f, target="interpret")(X), np.stack([X.sum(1), X.max(1)], 1))


def test_results_of_broadcasting_are_read_only():
    def f(x):
        y = np.broadcast_to(x, (2, 3, 4))
        y[0] = 1

    with pytest.raises(ShapeError, match="assignment destination is read-only"):
        jit(f, target="interpret")(X)


def test_shapes_that_do_not_fit():
    def f(x):
        x[:2] = x

    with pytest.raises(ShapeError, match=r"could not broadcast input array from shape \(n, m\) into shape \(min\(n, 2\), m\)"):
        jit(f, target="interpret")(X)


def test_a_reshape_that_copies_or_not_is_noticed():
    def harmless(x):
        y = x.T.reshape(-1)
        y += 1
        return y

    np.testing.assert_array_equal(jit(harmless, target="interpret")(X), X.T.reshape(-1) + 1)

    def unclear(x):
        x = x * 1
        y = x.T.reshape(-1)
        y += 1
        return x

    with pytest.raises(UnsupportedError, match="depends on its strides"):
        jit(unclear, target="interpret")(X)


def test_arguments_that_cannot_be_written_back():
    def f(x, y):
        x[0] = y[1]

    g = jit(f, target="interpret")
    readonly = X.copy()
    readonly.flags.writeable = False
    with pytest.raises(ArgumentError, match="argument x is written to, but is read-only"):
        g(readonly, X)
    x = X.copy()
    with pytest.raises(ArgumentError, match="argument x is written to and shares memory with y"):
        g(x, x)

    def h(x):
        x.reshape(-1)[0] = 1

    with pytest.raises(ArgumentError, match="written to through a reshape"):
        jit(h, target="interpret")(np.asfortranarray(X))
    both(h, X)


def test_writing_through_any_layout_of_an_argument():
    wide = np.zeros((6, 8), np.float32)
    part = wide[::2, ::2]

    def f(x):
        x[1] = 5
        x += 1

    jit(f, target="interpret")(part)
    want = np.zeros((6, 8), np.float32)
    f(want[::2, ::2])
    np.testing.assert_array_equal(wide, want)


def single_elements(x):
    first = x[0]
    first += 1  # a new number: x stays
    total = x.sum()
    same = total
    total *= 2
    x[1] *= 2.5  # in float64, then converted
    view = x[2, ...]
    view -= 1
    return first, total, same, x.copy()


@pytest.mark.parametrize("target", ["interpret", "cpu"])
def test_updating_a_single_element_changes_no_array(target):
    x, y = np.arange(4, dtype=np.int32), np.arange(4, dtype=np.int32)
    for got, want in zip(jit(single_elements, target=target)(x), single_elements(y), strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(x, y)


def test_leading_axes_of_one_element_are_dropped_by_assignment():
    def f(x, y):
        x[1:, 0] = y
        return x

    x, y = np.zeros((3, 2)), np.array([[4.0, 5.0]])
    np.testing.assert_array_equal(jit(f, target="interpret")(x.copy(), y), f(x, y))


def test_two_axes_of_one_size_that_is_one():
    def f(x, y):
        x[:, 2:2] = y @ y.T
        return x

    x, y = np.zeros((1, 3)), np.ones((1, 2))
    np.testing.assert_array_equal(jit(f, target="interpret")(x.copy(), y), f(x, y))

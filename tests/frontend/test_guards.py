"""Sizes are symbolic until a fact is needed; facts become guards, and calls that break them are traced anew."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import numpy as np
import pytest

import minirelax.numpy as mnp
from minirelax import f32
from minirelax.errors import ShapeError
from minirelax.jit import jit


def z(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


def facts(f):
    """The facts of every compilation, as text."""
    return [[f"{g.left} {g.relation} {g.right}" for g in c.guards] for c in f.compilations]


def check(fn, *calls, **options):
    """Call with several sizes, compare with NumPy, return the compiled function."""
    f = jit(fn, target="interpret", **options)
    for args in calls:
        np.testing.assert_allclose(f(*args), fn(*args), rtol=1e-6)
    return f


def test_one_program_for_all_sizes():
    f = check(lambda x: np.exp(x).sum(-1), (z(3, 4),), (z(1, 1),), (z(0, 7),), (z(5, 0),))
    assert facts(f) == [[]]


def test_equal_sizes_even_if_both_are_one():
    f = check(lambda x, y: x + y, (z(1), z(1)), (z(4), z(4)), (z(3), z(1)), (z(1), z(3)), (z(5), z(1)))
    assert facts(f) == [["x.shape[0] == y.shape[0]"], ["y.shape[0] == 1"], ["x.shape[0] == 1"]]
    assert [c.arguments for c in f.compilations] == ["x: f32[n], y: f32[n]", "x: f32[n], y: f32[1]", "x: f32[1], y: f32[n]"]


def test_sizes_that_differ():
    f = jit(lambda x, y: x + y, target="interpret")
    with pytest.raises(ShapeError, match="which differ in this call: 3 and 4"):
        f(z(3), z(4))
    assert not f.compilations


def test_branches_on_sizes():
    def f(x):
        return x * 2 if x.shape[0] > 16 else x + 1

    g = check(f, (z(20),), (z(17),), (z(16),), (z(0),))
    assert facts(g) == [["x.shape[0] > 16"], ["x.shape[0] <= 16"]]
    assert g.compilations[0].guards[0].source.line == f.__code__.co_firstlineno + 1


def test_iteration_over_a_size():
    def f(x):
        total = 0
        for i in range(x.shape[0]):
            total = total + x[i] * i
        return total

    g = check(f, (z(3, 2),), (z(3, 5),), (z(4, 2),))
    assert facts(g) == [["x.shape[0] == 3"], ["x.shape[0] == 4"]]


def test_only_the_narrowest_of_several_guards_is_checked():
    f = jit(lambda x: x[0] + x[3] + x[1], target="interpret")
    assert [(str(g.left), g.relation, g.right) for g in f.trace(z(5)).functions[0].guards] == [("n", ">", 3)]


def test_questions_are_asked_once():
    def f(x):
        n = x.shape[0]
        return x * 2 if n > 2 and n > 1 and n >= 3 and n != 0 and n + 1 > 3 and bool(n) and 2 * n > 5 else x

    assert facts(check(f, (z(5),), (z(3),))) == [["x.shape[0] > 2"]]


def test_equal_expressions_by_substitution():
    def f(x, y):
        return x[1:] + y

    g = check(f, (z(5), z(4)), (z(9), z(8)))
    assert facts(g) == [["x.shape[0] == y.shape[0] + min(x.shape[0], 1)"]]


def test_shape_comparison():
    def f(x, y):
        return x + y if x.shape == y.shape else x.sum() + y.sum()

    g = check(f, (z(2, 3), z(2, 3)), (z(2, 3), z(3, 2)), (z(4, 4), z(4, 4)))
    assert len(g.compilations) == 2


def test_position_table_needs_one_guard():
    table = z(512, 4)

    def f(x):
        return x + mnp.asarray(table)[: x.shape[0]]

    g = check(f, (z(5, 4),), (z(512, 4),), (z(1, 4),))
    assert facts(g) == [["x.shape[1] == 4", "x.shape[0] <= 512"]]
    with pytest.raises(ShapeError):
        g(z(513, 4))


def test_reshape_divides():
    def f(x):
        y = x.reshape(-1, 4)
        return (y * 2).reshape(-1) + x

    g = check(f, (z(8),), (z(12),), (z(0),))
    assert facts(g) == [["(x.shape[0])%4 == 0"]]
    assert [str(guard.left) for guard in g.trace(z(8)).functions[0].guards] == ["n%4"]
    with pytest.raises(ShapeError, match="cannot reshape array of shape"):
        g(z(7))


def test_merging_and_splitting_axes_takes_no_guard():
    def f(x):
        n, m, k = x.shape
        return x.reshape(n * m, k).reshape(n, m, k).transpose(1, 0, 2).reshape(m, n * k)

    assert facts(check(f, (z(2, 3, 4),), (z(1, 1, 1),), (z(0, 3, 2),))) == [[]]


def test_products_that_are_equal_by_chance_become_a_guard():
    f = check(lambda x, y: x.reshape(-1) + y.reshape(-1), (z(2, 6), z(3, 4)), (z(6, 2), z(4, 3)))
    assert len(f.compilations) == 1
    with pytest.raises(ShapeError):
        f(z(2, 6), z(5, 5))


def test_empty_axes():
    f = jit(lambda x: x.max(0), target="interpret")
    np.testing.assert_array_equal(f(z(2, 3)), z(3))
    with pytest.raises(ValueError, match="zero-size array to reduction operation maximum which has no identity"):
        f(z(0, 3))
    assert facts(f) == [["x.shape[0] > 0"]]


def test_declared_sizes_take_no_guards():
    def f(x: f32["n"], y: f32["m"]):
        return x + y

    with pytest.raises(ShapeError) as e:
        jit(f, target="interpret")(z(3), z(3))
    assert str(e.value).splitlines()[0] == "add(x, y): axis -1 has sizes n and m, which cannot be shown equal"
    assert "say so with minirelax.match_cast" in str(e.value)

    def g(x: f32["n"]):
        return x if x.shape[0] > 16 else -x

    with pytest.raises(ShapeError, match="whether n > 16 cannot be decided for all sizes"):
        jit(g, target="interpret")(z(3))


def test_declared_and_fresh_sizes_together():
    def f(x: f32["n", 4], y):
        return x * y

    g = check(f, (z(2, 4), z(4)), (z(3, 4), z(2, 4)[:1]))
    assert len(g.compilations) == 2


def test_declared_sizes_must_not_be_empty_where_numpy_forbids_it():
    def f(x: f32["n"]):
        return x.max(), x[0], x[:-1].sum()

    g = jit(f, target="interpret")
    assert g(z(3))[0] == 1
    with pytest.raises(ValueError, match="zero-size array"):
        g(z(0))


def test_bounds_prove_what_they_can():
    table = z(512, 4)

    def f(x: f32["s", 4]):
        return x + mnp.asarray(table)[: x.shape[0]]

    g = check(f, (z(5, 4),), (z(512, 4),), bounds={"s": (1, 512)})
    assert facts(g) == [["s >= 1", "s <= 512"]]
    with pytest.raises(ShapeError, match="the size s is 513, outside its bounds 1 to 512"):
        g(z(513, 4))


def test_a_size_must_fit_a_narrow_dtype():
    f = jit(lambda x: x + x.shape[0], target="interpret")
    assert f(np.zeros(3, np.uint8))[0] == 3
    with pytest.raises(TypeError, match="out of bounds for uint8"):
        f(np.zeros(300, np.uint8))


def test_match_cast_states_facts():
    def f(x, y):
        kept = mnp.match_cast(x[x > 0], f32["n"])
        also = mnp.match_cast(y, (kept.shape[0],))
        return kept + also

    g = jit(f, target="interpret")
    np.testing.assert_array_equal(g(np.array([1, -1, 2], np.float32), z(2)), [2, 3])
    with pytest.raises(ShapeError, match="match_cast"):
        g(np.array([1, 1, 2], np.float32), z(2))


def test_match_cast_on_real_arrays():
    assert mnp.match_cast(z(3), f32["n"]).shape == (3,)
    with pytest.raises(ShapeError, match="axis 0 is 3, not 4"):
        mnp.match_cast(z(3), f32[4])


def test_sizes_are_integers_to_python():
    def f(x):
        n, m = x.shape
        q, r = divmod(n, 2)
        assert (n + 1) - 1 == n and 0 * n == 0 and isinstance(0 * n, int)
        assert repr(n * m) in ("m*n", "24", "16")
        assert max(n, 0) == n and min(n, 0) == 0 and abs(n) == n
        assert n > 0.5 and n != 2.5 and n < float("inf") and n != "a"
        assert q * 2 + r <= n + 1
        return x.reshape(-1)[: n * m // 2] * (q + r)

    check(f, (z(4, 6),), (z(8, 2),))


def test_static_values_and_dictionaries_keyed_by_sizes():
    def f(x, axis):
        return x.sum(axis) * {3: 1.0, 4: 2.0}[x.shape[0]]

    g = check(f, (z(3, 2), 0), (z(3, 5), 0), (z(4, 2), 1), static=("axis",))
    assert len(g.compilations) == 2

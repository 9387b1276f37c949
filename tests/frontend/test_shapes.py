"""Shapes as values: stored, computed with, passed in and out, from arrays of numbers; what does not fit, in words."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
import minirelax.numpy as mnp
from minirelax import Shape, f32, i64
from minirelax.errors import ArgumentError, DTypeError, ShapeError
from minirelax.ir.interpret import interpret

X = np.arange(12, dtype=np.float32)
interpreted = mr.jit(target="interpret")


def reshaped(x, s: Shape(ndim=2)):
    return x.reshape(s)


def same(got, want) -> bool:
    """Equal values of equal types, tuples of Python integers included."""
    if isinstance(want, tuple):
        return type(got) is tuple and len(got) == len(want) and all(map(same, got, want))
    return type(got) is type(want) and np.array_equal(got, want)


# ---- shapes of arrays


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.shape,
        lambda x: (x.shape[0], x.shape[1:], x.shape[::-1], len(x.shape)),
        lambda x: {"shape": x.shape, "size": x.size, "both": (*x.shape, *x.T.shape)}["both"],
        lambda x: x.shape[0] * x.shape[1] + 2 * x.shape[0] // 3 - x.shape[1] % 4,
        lambda x: np.zeros_like(x, shape=x.shape[:1] + (2,)) + x.shape[1],
        lambda x: x.reshape(x.shape[::-1]),
        lambda x: x.reshape((*x.shape[:1], 1, *x.shape[1:])),
        lambda x: x.shape == x.T.shape[::-1],
        lambda x: np.broadcast_to(x[0], (x.shape[1], *x.shape[1:])) if x.shape[0] < x.shape[1] else x,
        lambda x: [n + 1 for n in x.shape][0],
    ],
)
def test_the_shape_of_an_array_is_a_tuple(fn):
    compiled = interpreted(fn)
    for shape in ((3, 4), (4, 7)):
        x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        assert same(compiled(x), fn(x))


def test_a_shape_goes_through_functions_and_containers():
    def pick(shapes, i):
        return shapes["all"][i]

    @interpreted
    def f(x, y):
        shapes = {"all": [x.shape, y.shape]}
        return pick(shapes, 0) + pick(shapes, 1), mnp.ones(pick(shapes, 1)[::-1])

    sizes, ones = f(np.zeros((2, 3)), np.zeros((4, 5)))
    assert same(sizes, (2, 3, 4, 5)) and ones.shape == (5, 4)


def test_sizes_are_not_recomputed_for_another_shape():
    f = interpreted(lambda x: (x.shape, x.size))
    assert same(f(np.zeros((2, 3))), ((2, 3), 6)) and same(f(np.zeros((5, 7))), ((5, 7), 35)) and len(f.compilations) == 1


# ---- shapes as arguments


def test_a_shape_argument_is_a_tuple_of_sizes():
    f = interpreted(reshaped)
    for s in ((3, 4), (2, 6), [12, 1], np.array([1, 12]), (np.int64(4), 3)):
        assert np.array_equal(f(X, s), X.reshape(s))
    assert len(f.compilations) == 1 and "s: Shape([m, n])" in str(f.executable.module)


def test_what_shape_arguments_are_for():
    @interpreted
    def f(x, s: Shape(ndim=2), t: Shape(["n", 2]), *, u: Shape):
        return mnp.zeros(s) + mnp.broadcast_to(x, s), mnp.ones(t), s[0] * s[1], t + u, max(s)

    zeros, ones, size, joined, largest = f(X[:4], (3, 4), (5, 2), u=(7, 8, 9))
    assert zeros.shape == (3, 4) and ones.shape == (5, 2) and same((size, joined, largest), (12, (5, 2, 7, 8, 9), 4))
    assert "x: f32[m], s: Shape([k, m]), t: Shape([n, 2]), u: Shape([l, p, q])" in str(f.executable.module)


def test_letters_are_shared_with_arrays():
    @interpreted
    def f(x: f32["n"], s: Shape(["n", "m"])):
        return mnp.zeros(s) + x[:, None]

    assert f(X, (12, 2)).shape == (12, 2)
    assert "def main(x: f32[n], s: Shape([n, m])) -> f64[n, m]:" in str(f.executable.module)


def test_a_letter_may_stand_in_a_shape_only():
    @interpreted
    def f(x: f32["n + 1"], s: Shape(["n"])):
        return x[: s[0]]

    assert f(X, (11,)).shape == (11,)


def test_shapes_inside_containers():
    @interpreted
    def f(p: {"x": f32["n"], "shapes": (Shape(ndim=2), Shape(["n"]))}):
        return p["x"].reshape(p["shapes"][0]), p["shapes"][1]

    got, sizes = f({"x": X, "shapes": ((3, 4), (12,))})
    assert got.shape == (3, 4) and same(sizes, (12,))


def test_a_tuple_type_declares_a_tuple():
    @interpreted
    def f(pair: mr.Tuple[f32["n"], Shape(["n", 2])]):
        return pair[0].sum() + pair[1][1]

    assert f((X, (12, 2))) == 68


def test_another_number_of_entries_is_another_program():
    @interpreted
    def f(x, s: Shape):
        return x.reshape(s)

    assert f(X, (3, 4)).shape == (3, 4) and f(X, (2, 3, 2)).shape == (2, 3, 2) and len(f.compilations) == 2


def test_questions_about_entries_are_guards():
    @interpreted
    def f(x, s: Shape(ndim=2)):
        return x.sum() if s[0] > 2 else x.reshape(s)

    assert f(X, (3, 4)) == 66 and f(X, (2, 6)).shape == (2, 6) and f(X, (9, 1)) == 66 and len(f.compilations) == 2


@pytest.mark.parametrize("target", ["interpret", "cpu"])
def test_what_is_not_declared_is_as_it_comes(target):
    """A dtype, a rank, or whatever an annotation for somebody else leaves open."""

    def f(x: mr.Tensor["n"], y: f32[...], z: mr.Object, s: Shape):
        return x * 2, y.shape, z + x, s[-1]

    g = mr.jit(f, target=target)
    doubled, shape, total, last = g(np.arange(3), np.zeros((2, 3), np.float32), X[:3], (4, 5, 6))
    assert doubled.dtype == np.int64 and same((shape, last), ((2, 3), 6)) and total.tolist() == [0, 2, 4]
    assert same(g(X[:2], X, X[:2], (7,))[1:2], ((12,),))
    with pytest.raises(ShapeError, match="f: argument x: expected .*: 2 axes, not 1"):
        g(np.zeros((2, 2)), X, X, (1,))


def test_weights_and_mutation_beside_shapes():
    @mr.jit(target="interpret", constants="w")
    def f(w, x, s: Shape(ndim=2)):
        x[0] = s[0]
        return x.reshape(s) * w

    x = X.copy()
    assert f(np.float32(2), x, (3, 4))[0, 0] == 6 and x[0] == 3


# ---- tracing types


def test_traced_from_types():
    assert (
        str(mr.trace(reshaped, f32["n", 4], Shape(ndim=2)))
        == """\
def main(x: f32[n, 4], s: Shape([m, k])) -> f32[m, k]:
    with dataflow():
        v0: f32[4*n] = reshape(x, shape=(4*n,))
        v1: f32[k*m] = match_cast(v0, f32[k*m])
        v2: f32[m, k] = reshape(v1, shape=(m, k))
        output(v2)
    return v2"""
    )
    assert "def main(x: f32[n], s: Shape([n, 4])) -> f64[n, 4]:" in str(
        mr.trace(lambda x, s: mnp.zeros(s) + x[:, None], f32["n"], Shape(["n", 4]))
    )
    pair = mr.Tuple[f32["n"], Shape(["n", "m"])]
    assert "t_0: f32[n], t_1: Shape([n, m])" in str(mr.trace(lambda t: t[0].sum() + t[1][1], pair))


def test_a_value_beside_types_is_what_its_annotation_says():
    module = mr.trace(reshaped, f32["n"], (3, 4))
    assert "s: Shape([m, k])" in str(module) and interpret(module, X, (3, 4)).shape == (3, 4)


def test_declared_sizes_leave_the_check_to_the_run():
    @interpreted
    def f(x: f32["n", 4], s: Shape(["a", "b"])):
        return x.reshape(s)

    assert f(X.reshape(3, 4), (2, 6)).shape == (2, 6)
    assert "match_cast(v0, f32[a*b])" in str(f.executable.module)


@pytest.mark.parametrize(
    "x, s", [(f32["n"], Shape), (f32["n"], Shape()), (f32[...], Shape(ndim=2)), (mr.Tensor["n"], Shape(["n"]))]
)
def test_types_must_say_ranks_and_dtypes(x, s):
    with pytest.raises(ArgumentError, match="must be known"):
        mr.trace(reshaped, x, s)


# ---- shapes made of numbers


def test_an_array_of_numbers_as_a_shape():
    @interpreted
    def f(x, t):
        return x.reshape(t), mnp.zeros(t).shape, mr.tensor_to_shape(t + 1)

    for t in ([3, 4], [2, 6]):
        got, sizes, more = f(X, np.array(t))
        assert got.shape == tuple(t) and same(sizes, tuple(t)) and same(more, (t[0] + 1, t[1] + 1))
    assert len(f.compilations) == 1
    with pytest.raises(ShapeError, match=r"expected f32\[k\*m\], got an array of shape \(12,\): axis 0 is 12, not k\*m = 14"):
        f(X, np.array([2, 7]))
    with pytest.raises(ShapeError, match="negative entry") as e:
        f(X, np.array([-3, -4]))
    assert "return x.reshape(t)" in e.value.where


def test_tensor_to_shape_on_real_values():
    assert mr.tensor_to_shape(np.array([3, 4])) == mr.tensor_to_shape([3, 4]) == (3, 4)
    with pytest.raises(ShapeError, match="entry 1 is -4, and sizes are >= 0"):
        mr.tensor_to_shape([3, -4])
    with pytest.raises(DTypeError, match="entry 0 is of type float"):
        mr.tensor_to_shape(np.array([0.5]))


@pytest.mark.parametrize("t, error, what", [(f32[2], DTypeError, "sizes are integers"), (i64[2, 2], ShapeError, "is no vector")])
def test_tensor_to_shape_of_something_else(t, error, what):
    with pytest.raises(error, match=what):
        mr.trace(lambda t: mnp.zeros(mr.tensor_to_shape(t)), t)


def test_match_cast_of_a_shape():
    @interpreted
    def f(x, s: Shape(ndim=2)):
        n, m = mr.match_cast(s, Shape(["a", 4]))
        return mnp.ones((n, m)) * x, mr.match_cast(s, Shape(ndim=2))

    ones, s = f(X[:4], (3, 4))
    assert ones.shape == (3, 4) and same(s, (3, 4)) and "Shape([a, 4]) = match_cast" in str(f.executable.module)
    with pytest.raises(ShapeError, match=r"expected Shape\(\[a, 4\]\), got \(3, 5\): entry 1 is 5, not 4"):
        f(X[:4], (3, 5))
    assert mr.match_cast((3, 4), Shape(["n", 4])) == (3, 4)
    with pytest.raises(ShapeError, match=r"match_cast: expected Shape\(\[n, n\]\), got \(3, 4\): entry 1 is 4, not n = 3"):
        mr.match_cast((3, 4), Shape(["n", "n"]))


# ---- what does not fit


def declared(x: f32["n", "m"], s: Shape(["n", "m + 1"]), t: Shape(["n", 4])):
    return mnp.zeros(s) + mnp.zeros(t).sum() + x.sum()


SQUARE = X.reshape(3, 4)
MISFITS = [
    ((SQUARE, (3, 5), (3, 5)), ShapeError, "declared: argument t: expected Shape([n, 4]), got (3, 5): entry 1 is 5, not 4"),
    (
        (SQUARE, (2, 5), (3, 4)),
        ShapeError,
        "declared: argument s: expected Shape([n, m + 1]), got (2, 5): entry 0 is 2, not n = 3 (the size of axis 0 of x)",
    ),
    (
        (SQUARE, (3, 4), (3, 4)),
        ShapeError,
        "declared: argument s: expected Shape([n, m + 1]), got (3, 4): entry 1 is 4, "
        "not m + 1 = 5 (m = 4 is the size of axis 1 of x)",
    ),
    ((SQUARE, (3,), (3, 4)), ShapeError, "declared: argument s: expected Shape([n, m + 1]), got (3,): 1 entry, not 2"),
    ((SQUARE, (3, 5), (3, 4, 1)), ShapeError, "declared: argument t: expected Shape([n, 4]), got (3, 4, 1): 3 entries, not 2"),
    (
        (SQUARE, (3, -5), (3, 4)),
        ShapeError,
        "declared: argument s: expected Shape([n, m + 1]), got (3, -5): entry 1 is -5, and sizes are >= 0",
    ),
    (
        (SQUARE, (3, 5.0), (3, 4)),
        DTypeError,
        "declared: argument s: expected Shape([n, m + 1]), got (3, 5.0): entry 1 is of type float, not an integer",
    ),
    ((SQUARE, 3, (3, 4)), DTypeError, "declared: argument s: expected Shape([n, m + 1]), got a value of type int"),
    ((SQUARE, (3, 5), None), ArgumentError, "argument t: expected the parts t, got None"),
]


@pytest.mark.parametrize("target", ["interpret", "cpu"])
@pytest.mark.parametrize("args, error, what", MISFITS)
def test_a_shape_that_does_not_fit(args, error, what, target):
    f = mr.jit(declared, target=target)
    with pytest.raises(error) as e:
        f(*args)
    assert e.value.what == what and "f(*args)" in e.value.where
    assert f(SQUARE, (3, 5), (3, 4)).shape == (3, 5)
    with pytest.raises(error) as e:                                # a program exists now, and must not take them
        f(*args)
    assert e.value.what == what


def test_elements_that_do_not_fill_a_shape():
    f = interpreted(reshaped)
    f(X, (3, 4))
    with pytest.raises(ShapeError) as e:
        f(X, (3, 5))
    assert e.value.what == (
        "cannot reshape array of shape (n,) into shape (m, k): n and k*m, which differ in this call: 12 and 15 elements"
    )


def test_a_declaration_that_cannot_be_read():
    def f(x, s: "mr.Shape(ndim=undefined)"):  # noqa: F821
        return x.reshape(s)

    with pytest.raises(ArgumentError, match="the declaration mr.Shape"):
        mr.jit(f)


def test_the_types_are_public():
    assert str(mr.Callable[[Shape(["n"]), mr.Tensor["n"]], mr.Tuple[f32["n"], mr.Object]]) == (
        "Callable[[Shape([n]), Tensor[n]], Tuple[f32[n], Object]]"
    )

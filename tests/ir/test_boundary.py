"""Boundary checks: every kind of mistake in words, the same for arguments, results, match_casts, and jitted functions."""
# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32
from minirelax.errors import DTypeError, ShapeError
from minirelax.frontend.mismatch import explain_mismatch, sizes_of
from minirelax.ir.boundary import Given, Known, arguments, check, fits, shape_value
from minirelax.ir.dim import dim
from minirelax.ir.graph import Function, Var
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.reader import parse_type


def z(*shape: int, dtype=np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


def found(known: Known = None, **values: tuple[str, object]) -> Known:
    """What `check` finds for arguments of a function f: ``name=(type, value)``."""
    params = [Var(name, parse_type(text)) for name, (text, _) in values.items()]
    known = known or Known()
    check(arguments(params, [v for _, v in values.values()], "f"), known)
    return known


@pytest.mark.parametrize("values, sizes", [
    ({"x": ("f32[n, 4]", z(3, 4))}, {"n": 3}),
    ({"x": ("f32[n + 1, 2*n]", z(4, 6)), "y": ("f32[n]", z(3))}, {"n": 3}),                          # compound sizes come last
    ({"x": ("Tuple[f32[m, n + 1], f32[n, 2]]", (z(5, 4), z(3, 2)))}, {"m": 5, "n": 3}),              # two rounds
    ({"x": ("f32[n*m]", z(6)), "t": ("Tuple[Tuple[f32[n]], Shape([m])]", ((z(2),), (3,)))}, {"n": 2, "m": 3}),
    ({"s": ("Shape([n, 2*n, 4])", (3, 6, 4)), "x": ("f32[n]", z(3))}, {"n": 3}),
    ({"s": ("Shape([n])", [7])}, {"n": 7}), ({"s": ("Shape([n])", np.array([7]))}, {"n": 7}), ({"s": ("Shape()", ())}, {}),
    ({"x": ("f32[_, 2]", z(9, 2)), "y": ("Tensor[n]", z(2, dtype=int)), "w": ("f32[...]", z(1, 1, 1))}, {"n": 2}),
    ({"x": ("Object", "anything"), "f": ("Callable[[f32[n]], f32[m]]", len), "y": ("Tensor[...]", z(0))}, {}),
    ({"x": ("f32[n, n]", z(2, 2)), "y": ("f32[m//2, n % 2]", z(3, 0)), "s": ("Shape([m])", (7,))}, {"n": 2, "m": 7})])
def test_what_fits(values, sizes):
    assert found(**values).sizes == sizes


MISTAKES = [
    ({"y": ("f32[n + 1]", z(5)), "x": ("f32[n]", z(3))}, ShapeError,
     "f: argument y: expected f32[n + 1], got an array of shape (5,): axis 0 is 5, "
     "not n + 1 = 4 (n = 3 is the size of axis 0 of x)"),
    ({"x": ("f32[n, 4]", z(3, 4)), "y": ("f32[n]", z(5))}, ShapeError,
     "f: argument y: expected f32[n], got an array of shape (5,): axis 0 is 5, not n = 3 (the size of axis 0 of x)"),
    ({"x": ("f32[n, 4]", z(3, 5))}, ShapeError,
     "f: argument x: expected f32[n, 4], got an array of shape (3, 5): axis 1 is 5, not 4"),
    ({"x": ("f32[n]", z(3)), "y": ("f32[m]", z(2)), "w": ("f32[m*n]", z(5))}, ShapeError,
     "f: argument w: expected f32[m*n], got an array of shape (5,): axis 0 is 5, "
     "not m*n = 6 (m = 2 is the size of axis 0 of y, n = 3 is the size of axis 0 of x)"),
    ({"x": ("f32[n]", z(3, 1))}, ShapeError, "f: argument x: expected f32[n], got an array of shape (3, 1): 2 axes, not 1"),
    ({"x": ("f32[()]", z(1))}, ShapeError, "f: argument x: expected f32[()], got an array of shape (1,): 1 axis, not 0"),
    ({"x": ("f32[_, _]", z(1))}, ShapeError, "f: argument x: expected f32[_, _], got an array of shape (1,): 1 axis, not 2"),
    ({"x": ("f32[n]", z(3, dtype=np.float64))}, DTypeError,
     "f: argument x: expected f32[n], got an array of shape (3,): dtype float64, not float32"),
    ({"x": ("f32[n]", z(3, dtype=complex))}, DTypeError,
     "f: argument x: expected f32[n], got an array of shape (3,): dtype complex128, not float32"),
    ({"x": ("f32[n]", (z(3),))}, DTypeError, "f: argument x: expected f32[n], got a tuple of 1 value"),
    ({"x": ("f32[n]", None)}, DTypeError, "f: argument x: expected f32[n], got a value of type NoneType"),
    # inside tuples
    ({"t": ("Tuple[f32[m, n + 1], f32[n, 2]]", (z(5, 3), z(3, 2)))}, ShapeError,
     "f: argument t[0]: expected f32[m, n + 1], got an array of shape (5, 3): axis 1 is 3, "
     "not n + 1 = 4 (n = 3 is the size of axis 0 of t[1])"),
    ({"t": ("Tuple[f32[n], Tuple[f32[n]]]", (z(2), (z(3),)))}, ShapeError,
     "f: argument t[1][0]: expected f32[n], got an array of shape (3,): axis 0 is 3, not n = 2 (the size of axis 0 of t[0])"),
    ({"t": ("Tuple[f32[n], f32[n]]", (z(2),))}, ShapeError,
     "f: argument t: expected Tuple[f32[n], f32[n]], got a tuple of 1 value, not 2"),
    ({"t": ("Tuple[f32[n]]", z(2))}, DTypeError, "f: argument t: expected Tuple[f32[n]], got an array of shape (2,)"),
    ({"t": ("Tuple[f32[n]]", 3)}, DTypeError, "f: argument t: expected Tuple[f32[n]], got a value of type int"),
    # shapes
    ({"x": ("f32[n]", z(3)), "s": ("Shape([4, n])", (4, 5))}, ShapeError,
     "f: argument s: expected Shape([4, n]), got (4, 5): entry 1 is 5, not n = 3 (the size of axis 0 of x)"),
    ({"s": ("Shape([n, 2*n])", (4, 5))}, ShapeError,
     "f: argument s: expected Shape([n, 2*n]), got (4, 5): entry 1 is 5, not 2*n = 8 (n = 4 is entry 0 of s)"),
    ({"s": ("Shape(ndim=2)", (4,))}, ShapeError, "f: argument s: expected Shape(ndim=2), got (4,): 1 entry, not 2"),
    ({"s": ("Shape(ndim=1)", (-4,))}, ShapeError,
     "f: argument s: expected Shape(ndim=1), got (-4,): entry 0 is -4, and sizes are >= 0"),
    ({"s": ("Shape()", (4, 0.5))}, DTypeError,
     "f: argument s: expected Shape(), got (4, 0.5): entry 1 is of type float, not an integer"),
    ({"s": ("Shape()", z(2, 2))}, DTypeError, "f: argument s: expected Shape(), got an array of shape (2, 2)"),
    # functions, and what nothing shows
    ({"g": ("Callable[..., Object]", 3)}, DTypeError, "f: argument g: expected Callable[..., Object], got a value of type int"),
    ({"x": ("f32[2*k]", z(4))}, ShapeError, "f: argument x: expected f32[2*k], got an array of shape (4,): k is not known"),
    ({"x": ("f32[n]", z(0)), "y": ("f32[8//n]", z(1))}, ShapeError,
     "f: argument y: expected f32[8//n], got an array of shape (1,): axis 0 is 1, not 8//n (n = 0 is the size of axis 0 of x)")]


@pytest.mark.parametrize("values, error, what", MISTAKES)
def test_mistakes(values, error, what):
    with pytest.raises(error) as e:
        found(**values)
    assert (e.value.what, e.value.where) == (what, "")
    assert not fits(arguments([Var(n, parse_type(t)) for n, (t, _) in values.items()], [v for _, v in values.values()]), Known())


def test_sizes_that_are_known_from_before():
    known = found(x=("f32[n]", z(3)))
    with pytest.raises(ShapeError, match=r"axis 0 is 4, not n = 3 \(the size of axis 0 of x\)"):
        found(known, y=("f32[n]", z(4)))
    assert known.number(dim("2*n")) == 6 and known.number(dim("m")) is None and known.in_words(7) == "7"
    with pytest.raises(ShapeError, match=r"axis 0 is 4, not k = 5$"):
        found(Known({"k": 5}), y=("f32[k]", z(4)))


def test_a_part_of_what_was_declared():
    given = Given("argument x", "x", parse_type("f32[...]"), z(3, dtype=int), parse_type("f32[n, 4]"))
    with pytest.raises(DTypeError, match=r"argument x: expected f32\[n, 4\], got an .*\(3,\): dtype int64, not float32"):
        check((given,), Known())


def test_shape_values():
    assert shape_value([np.int64(3), 4]) == shape_value(np.array([3, 4])) == shape_value((3, 4)) == (3, 4)
    assert shape_value("ab") == "ab" and shape_value((0.5,)) == (0.5,)


# ---- where values come in: arguments, match_cast, results, of a module and of a jitted function

TEXT = """
def f(x: f32[n], y: Object, s: Shape([n])) -> Tuple[f32[n + 1], Shape([n, 2*n])]:
    v0: Tuple[f32[k], Shape(ndim=2)] = match_cast(y, Tuple[f32[k], Shape(ndim=2)])
    return v0"""


@pytest.mark.parametrize("y, s, error, what", [
    ((z(4), (3, 6)), (4,), ShapeError,
     "f: argument s: expected Shape([n]), got (4,): entry 0 is 4, not n = 3 (the size of axis 0 of x)"),
    (z(4), (3,), DTypeError, "f: match_cast of y: expected Tuple[f32[k], Shape(ndim=2)], got an array of shape (4,)"),
    ((z(4, 1), (3, 6)), (3,), ShapeError, "f: match_cast of y[0]: expected f32[k], got an array of shape (4, 1): 2 axes, not 1"),
    ((z(4), (3, 6, 9)), (3,), ShapeError, "f: match_cast of y[1]: expected Shape(ndim=2), got (3, 6, 9): 3 entries, not 2"),
    ((z(5), (3, 6)), (3,), ShapeError, "f: the result[0]: expected f32[n + 1], got an array of shape (5,): axis 0 is 5, "
     "not n + 1 = 4 (n = 3 is the size of axis 0 of x)"),
    ((z(4), (3, 5)), (3,), ShapeError, "f: the result[1]: expected Shape([n, 2*n]), got (3, 5): entry 1 is 5, "
     "not 2*n = 6 (n = 3 is the size of axis 0 of x)")])
def test_in_a_module(y, s, error, what):
    module = parse(TEXT)
    assert interpret(module, z(3), (z(4), (3, 6)), (3,))[1] == (3, 6)
    with pytest.raises(error) as e:
        interpret(module, z(3), y, s)
    assert e.value.what == what


def test_a_size_that_a_match_cast_has_bound():
    module = parse("""
def f(x: f32[_], y: f32[_]) -> f32[k]:
    v0: f32[k] = match_cast(x, f32[k])
    v1: f32[k] = match_cast(y, f32[k])
    return v1""")
    with pytest.raises(ShapeError) as e:
        interpret(module, z(3), z(4))
    assert e.value.what == (
        "f: match_cast of y: expected f32[k], got an array of shape (4,): axis 0 is 4, not k = 3 (the size of axis 0 of x)")


@pytest.mark.parametrize("target", ["interpret", "cpu"])
def test_a_jitted_function_says_the_same(target):
    def f(x: f32["n"], y: f32["n + 1"]) -> f32["n"]:
        return y[1:] + x

    compiled = mr.jit(f, target=target)
    assert compiled(z(3), z(4)).shape == (3,)
    module = parse("def f(x: f32[n], y: f32[n + 1]) -> f32[n]:\n    return x")
    for args in ((z(3), z(5)), (z(3, 1), z(4)), (z(3), z(4, dtype=int))):
        with pytest.raises((ShapeError, DTypeError)) as mine:
            compiled(*args)
        with pytest.raises(type(mine.value)) as theirs:
            interpret(module, *args)
        assert mine.value.what == theirs.value.what and mine.value.hint and "compiled(*args)" in mine.value.where


def test_explained_for_users():
    s = Var("s", parse_type("Shape([n])"))
    f = Function("main", (Var("p_x", parse_type("f32[n]")), s), (), s)
    assert sizes_of(f, (z(3), (3,))) == {"n": 3} and sizes_of(f, (z(3), (4,))) is None
    error = explain_mismatch(f, (z(3), (4,)), ["p['x']", "s"], "f")
    assert error.what == "f: argument s: expected Shape([n]), got (4,): entry 0 is 4, not n = 3 (the size of axis 0 of p['x'])"
    assert error.hint == "pass a tuple with these sizes, or declare another"

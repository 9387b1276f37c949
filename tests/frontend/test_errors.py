"""Errors say what, where in the user's file, and what to do; never a traceback of ours for a mistake of theirs."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import math

import numpy as np
import pytest

import minirelax.numpy as mnp
from minirelax import f32
from minirelax.errors import ArgumentError, BranchError, CompileError, DTypeError, ShapeError, UnsupportedError
from minirelax.jit import jit

X = np.ones((3, 4), np.float32)


def message(error: type[CompileError], fn, *args, **options) -> str:
    """The text of the error, with the line number taken out (and checked to be in this file)."""
    with pytest.raises(error) as e:
        jit(fn, target="interpret", **options)(*args)
    assert type(e.value) is error
    where = [line for line in str(e.value).splitlines() if line.startswith("  at ")]
    assert len(where) == 1 and where[0].startswith("  at test_errors.py:")
    return "\n".join(
        line if line not in where else "  at test_errors.py   " + line.split("   ", 1)[1] for line in str(e.value).splitlines()
    )


def test_branch_on_a_value():
    def f(x):
        if x.sum() > 0:
            return x
        return -x

    assert (
        message(BranchError, f, X)
        == """\
the truth value of a traced array (bool[()]) is not known while the function is traced
  at test_errors.py   if x.sum() > 0:
  hint: choose values with np.where(x > 0, x, -x), computations with minirelax.cond; loop with minirelax.while_loop"""
    )


def test_value_of_an_argument():
    def f(x, n):
        return x * math.sqrt(n)

    assert (
        message(BranchError, f, X, 2)
        == """\
the value of a traced array (i64[()]) is not known while the function is traced
  at test_errors.py   return x * math.sqrt(n)
  hint: keep it an array: NumPy's functions take it where float(), int() and the module math do not; \
or name the argument in jit(static=...), to compile for each of its values"""
    )


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: float(x[0, 0]),
        lambda x: int(x[0, 0]),
        lambda x: bool(x[0, 0]),
        lambda x: x[0, 0].item(),
        lambda x: x.tolist(),
        lambda x: [1, 2][x[0, 0]],
        lambda x: 1 in x,
        lambda x: math.exp(x[0, 0]),
        lambda x: np.asarray(x),
        lambda x: x[0, 0] and 1,
        lambda x: list(range(x[0, 0])),
        lambda x: mnp.zeros(x[0, 0].astype(int)),
        lambda x: x.reshape(x[0, 0].astype(int), -1),
    ],
)
def test_questions_about_values(fn):
    with pytest.raises(BranchError):
        jit(fn, target="interpret")(X)


def test_sizes_that_differ():
    def f(x, y):
        return x + y

    assert (
        message(ShapeError, f, X, X[:, :3])
        == """\
add(x, y): axis -1 has sizes m and l, which differ in this call: 4 and 3
  where x: f32[n, m], y: f32[k, l]
  at test_errors.py   return x + y
  hint: sizes broadcast if they are equal, or one of them is 1"""
    )


def test_inner_sizes():
    def f(x, y):
        return x @ y

    assert (
        message(ShapeError, f, X, X)
        == """\
matmul(x, y): inner sizes are m and k, which differ in this call: 4 and 3
  at test_errors.py   return x @ y
  hint: the last axis of one and the last but one of the other (of a vector: its only one) have one size"""
    )


def test_declarations():
    def f(x: f32["n", 4], y: f32["n"]):
        return x.sum(1) + y

    call = 'jit(fn, target="interpret", **options)(*args)'
    assert (
        message(ShapeError, f, X, np.ones(5, np.float32))
        == f"""\
f: argument y: expected f32[n], got an array of shape (5,): axis 0 is 5, not n = 3 (the size of axis 0 of x)
  at test_errors.py   {call}
  hint: pass an array of the declared shape, or declare another"""
    )
    assert (
        message(ShapeError, f, X[:, :2], np.ones(3, np.float32))
        == f"""\
f: argument x: expected f32[n, 4], got an array of shape (3, 2): axis 1 is 2, not 4
  at test_errors.py   {call}
  hint: pass an array of the declared shape, or declare another"""
    )
    assert (
        message(ShapeError, f, X[0], np.ones(3, np.float32))
        == f"""\
f: argument x: expected f32[n, 4], got an array of shape (4,): 1 axis, not 2
  at test_errors.py   {call}
  hint: pass an array of the declared shape, or declare another"""
    )
    assert (
        message(DTypeError, f, X.astype(float), np.ones(3, np.float32))
        == f"""\
f: argument x: expected f32[n, 4], got an array of shape (3, 4): dtype float64, not float32
  at test_errors.py   {call}
  hint: convert it: x.astype(np.float32)"""
    )


def test_a_declaration_that_cannot_be_read():
    def f(x: "f32[undefined]"):  # noqa: F821
        return x

    with pytest.raises(ArgumentError, match="the declaration f32\\[undefined\\] cannot be read: name 'undefined' is not defined"):
        jit(f)


def test_functions_and_options_that_are_missing():
    assert message(UnsupportedError, lambda x: np.histogram(x), X).startswith(
        "np.histogram is not supported in a compiled function\n"
    )
    assert message(UnsupportedError, lambda x: np.linalg.svd(x), X).startswith(
        "np.linalg.svd is not supported in a compiled function\n"
    )
    assert message(UnsupportedError, lambda x: np.linalg.svd(x), X).startswith(
        "np.linalg.svd is not supported in a compiled function\n"
    )
    assert message(UnsupportedError, lambda x: np.sort(x, order="f"), X).startswith("np.sort(..., order='f') is not supported")
    assert message(UnsupportedError, lambda x: np.quantile(x, 0.5, method="lower"), X).startswith(
        "np.quantile(..., method='lower') is not supported"
    )
    assert message(UnsupportedError, lambda x: np.intersect1d(x, x, return_indices=True), X).startswith(
        "np.intersect1d(..., return_indices=True) is not supported"
    )
    assert message(UnsupportedError, lambda x: x.view(np.int32), X).startswith(
        "ndarray.view is not supported in a compiled function"
    )
    assert message(UnsupportedError, lambda x: np.spacing(x), X).startswith("np.spacing is not supported in a compiled function")
    assert message(UnsupportedError, lambda x: np.gcd.reduce(x), X.astype(int)).startswith("np.gcd.reduce is not supported")
    assert message(ArgumentError, lambda x: mnp.sum(x, nonsense=1), X).startswith(
        "np.sum: got an unexpected keyword argument 'nonsense'"
    )
    assert jit(lambda x: np.sum(x, 0, None, None, False), target="interpret")(X).shape == (4,)


def test_filling_an_ordinary_array():
    def f(x):
        out = np.zeros(3)
        out[0] = x[0, 0]
        return out

    assert (
        message(UnsupportedError, f, X)
        == """\
a traced value cannot be written into an ordinary NumPy array
  at test_errors.py   out[0] = x[0, 0]
  hint: make the array with minirelax.numpy.zeros or np.zeros_like inside the compiled function, or pass it as an argument"""
    )

    def g(x):
        out = np.zeros(4)
        out += x[0]
        return out

    assert message(UnsupportedError, g, X).startswith("a traced value cannot be written into an ordinary NumPy array")


def test_arrays_that_outlive_their_trace():
    kept = []

    def leak(x):
        kept.append(x)
        return x

    jit(leak, target="interpret")(X)
    assert message(ArgumentError, lambda x: x + kept[0], X).startswith("a traced array was used outside its trace")
    with pytest.raises(ArgumentError, match="outside its trace"):
        kept[0] + 1


def test_weights_are_not_written_to():
    def f(p, x):
        p[0] = 1
        return x

    assert message(UnsupportedError, f, X[0], X, constants=("p",)).startswith("the weights p cannot be written to")


def test_the_users_own_errors_pass_unchanged():
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        jit(f, target="interpret")(X)


def test_shape_errors_are_value_errors_and_index_errors_index_errors():
    with pytest.raises(ValueError):
        jit(lambda x: x.reshape(5, 5), target="interpret")(X)
    with pytest.raises(IndexError):
        jit(lambda x: x[7], target="interpret")(X)
    with pytest.raises(TypeError):
        jit(lambda x: x & x, target="interpret")(X)
    with pytest.raises(ZeroDivisionError):
        jit(lambda x: x.shape[0] // (x.shape[0] - 3), target="interpret")(X)

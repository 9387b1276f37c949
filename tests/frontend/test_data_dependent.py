"""Results whose size only the data decides: each has a fresh size, those that belong together share it, the rest stays known."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32, i64
from minirelax.errors import ArgumentError, CompileError, DTypeError, IndexingError, ShapeError
from minirelax.ir.parser import parse

NAN = float("nan")
X = np.array([[3, 1, 3], [1, 1, 2], [3, 1, 3]], np.float32)
N = np.array([NAN, 1.0, NAN, 2.0])
K = np.array([2, 0, 3])
M = np.array([True, False, True])

CASES = {
    "unique": (lambda x: np.unique(x), X),
    "unique counts": (lambda x: np.unique(x, return_counts=True), X),
    "unique rows": (lambda x: np.unique(x, axis=0), X),
    "unique columns": (lambda x: np.unique(x, return_index=True, return_inverse=True, return_counts=True, axis=-1), X),
    "unique inverse": (lambda x: np.unique(x, return_inverse=True), X),
    "unique of one": (lambda x: np.unique(x[0, 0], return_counts=True), X),
    "unique of none": (lambda x: np.unique(x[:0], return_counts=True), X),
    "nan once": (lambda n: np.unique(n, return_counts=True), N),
    "nan each": (lambda n: np.unique(n, equal_nan=False), N),
    "unique_counts": (lambda n: np.unique_counts(n), N),
    "unique_inverse": (lambda x: np.unique_inverse(x), X),
    "unique_all": (lambda x: np.unique_all(x), X),
    "repeat rows": (lambda x, k: np.repeat(x, k, axis=0), X, K),
    "repeat columns": (lambda x, k: x.repeat(k, -1) + 1, X, K),
    "repeat by one": (lambda x, k: (np.repeat(x, k[0]), np.repeat(x, k[:1], axis=1)), X, K),
    "repeat by mask": (lambda x, m: np.repeat(x[0], m), X, M),
    "repeat twice": (lambda x, k: np.repeat(x, k, axis=0) + np.repeat(x * 2, k, axis=0), X, K),
    "compress": (lambda x, m: (np.compress(m, x, axis=1), x[m], x[:, m], x[m][:, m], np.extract(x > 1, x)), X, M),
    "nonzero": (lambda x: (*np.nonzero(x > 1), np.argwhere(x > 1), np.flatnonzero(x > 1), *np.where(x[0])), X),
    "bincount": (lambda k: (np.bincount(k), np.bincount(k, minlength=9), np.bincount(k[:0])), K),
    "weighted bincount": (lambda x, k: np.bincount(k, weights=x[0], minlength=2), X, K),
    "union": (lambda x, k: np.union1d(x, k), X, K),
    "intersection": (lambda x, k: np.intersect1d(x, k), X, K),
    "difference": (lambda x, k: (np.setdiff1d(k, x), np.setdiff1d(x[0], k[:1], assume_unique=True)), X, K),
    "exclusive": (lambda x, n: (np.setxor1d(x, n), np.setxor1d(n, n)), X, N),
    "delete one": (lambda x: (np.delete(x, 1, axis=0), np.delete(x, -1), np.delete(x, 2, 1)), X),
    "delete several": (lambda x, k: (np.delete(x, [0, 5]), np.delete(x, slice(None, None, 2), 0), np.delete(x, k[:2], 1)), X, K),
    "delete slice": (lambda x: (np.delete(x, slice(1, 2), axis=0), np.delete(x, slice(5, 9), axis=0)), X),
    "delete mask": (lambda x, m: np.delete(x, m, axis=1), X, M),
    "trim": (lambda k: (np.trim_zeros(k % 3), np.trim_zeros(k % 2, "f"), np.trim_zeros(k % 3, "b"), np.trim_zeros(k * 0)), K)}


def leaves(value) -> list:
    return list(value) if isinstance(value, tuple) else [value]


@pytest.mark.parametrize("name", CASES)
def test_results_are_numpys(name):
    fn, *args = CASES[name]
    compiled = mr.jit(fn, target="interpret")
    for _ in range(2):                                  # other data of the same sizes: the same program, results of other sizes
        got, want = compiled(*args), fn(*args)
        assert type(got) is type(want)
        for g, w in zip(leaves(got), leaves(want), strict=True):
            assert g.dtype == w.dtype and g.shape == w.shape
            np.testing.assert_array_equal(g, w)
        args = [np.sort(a, axis=None).reshape(a.shape) * (a.dtype != bool) for a in args]
    assert len(compiled.compilations) <= 2


def test_unique_values_are_numpys_in_some_order():
    np.testing.assert_array_equal(mr.jit(np.unique_values, target="interpret")(N), np.sort(np.unique_values(N)))


@pytest.mark.parametrize("name", ["unique columns", "repeat rows", "weighted bincount", "delete several"])
def test_compiled_results_are_numpys(name):
    fn, *args = CASES[name]
    for g, w in zip(leaves(mr.jit(fn)(*args)), leaves(fn(*args)), strict=True):
        np.testing.assert_array_equal(g, w)


def stage(fn, *types) -> str:
    module = mr.trace(fn, *types)
    assert parse(str(module)) == module
    return str(module)


def test_results_that_belong_together_share_a_size():
    text = stage(lambda x: np.add(*np.unique(x, return_counts=True)), f32["n"])
    assert "v0: Tuple[f32[_], i64[_], i64[n], i64[_]] = unique_all(x, axis=None, equal_nan=True)" in text
    assert text.count("match_cast") == 2 and "match_cast(v1, f32[m])" in text and "match_cast(v4, i64[m])" in text


def test_what_is_known_stays_known():
    text = stage(lambda x, k: np.repeat(x, k, axis=1), f32["n", "m", 4], i64["m"])
    assert "f32[n, _, 4] = repeat(x, k, axis=1)" in text and "match_cast(v0, f32[n, l, 4])" in text
    assert "-> f32[1]" in stage(lambda x: np.unique(x), f32[()]) and "match_cast" not in stage(lambda x: np.unique(x), f32[0])
    assert "-> f32[n - 1, 4]" in stage(lambda x: np.delete(x, 0, axis=0), f32["n", 4])


def test_a_cast_names_the_size():
    f = mr.jit(lambda x, y: mr.match_cast(np.unique(x), f32["k"]) + mr.match_cast(np.unique(y), f32["k"]), target="interpret")
    assert f(X, X + 1).tolist() == [3, 5, 7]
    with pytest.raises(ShapeError, match="match_cast"):
        f(X, X[:1])


ERRORS = [
    (lambda x, k: np.repeat(x, k, axis=1), ShapeError, "the axis have sizes m and l, which differ in this call: 4 and 3"),
    (lambda x, k: np.repeat(x, x > 0, axis=0), ShapeError, "np.repeat needs counts along one axis"),
    (lambda x, k: np.repeat(x, x[0], axis=0), DTypeError, "according to the rule 'safe'"),
    (lambda x, k: np.repeat(x, k - 9, axis=0), ShapeError, "repeats may not contain negative values"),
    (lambda x, k: np.bincount(k - 9), ShapeError, "an element is negative"),
    (lambda x, k: np.bincount(x), DTypeError, "Cannot cast array data from dtype('float32')"),
    (lambda x, k: np.bincount(k[0]), ArgumentError, "object of too small depth for desired array"),
    (lambda x, k: np.bincount(k, k[:2]), ShapeError, "which differ in this call: 3 and 2"),
    (lambda x, k: np.unique(x, axis=2), ShapeError, "axis 2 is out of bounds"),
    (lambda x, k: np.delete(x, 3, axis=0), IndexingError, "out of bounds for axis 0")]


@pytest.mark.parametrize("fn, error, what", ERRORS)
def test_errors(fn, error, what):
    with pytest.raises(CompileError) as e:
        mr.jit(fn, target="interpret")(np.ones((3, 4), np.float32), K)
    assert isinstance(e.value, error) and what in e.value.what

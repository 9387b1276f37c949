"""Compiled integer arithmetic at the ends of every range: it wraps, as NumPy's does, also inside comparisons and sums."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import minirelax as mr

DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def ends(dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    found = [info.min, info.min + 1, 0, 1, 2, 7, info.max // 2, info.max - 1, info.max]
    return np.array(found + ([-1, -7] if info.min < 0 else []), dtype)


def arithmetic(x, y):
    results = x + y, x - y, x * y, -x, abs(x), np.square(x), x // y, x % y, x << 3, x >> 1
    compared = x - y < 0, x + y > y, (x * y) // 2, abs(-x) >= 0
    return *results, *compared, (x + y).sum(), x.sum(dtype=x.dtype), (x | 1).prod(), (x + 1).max()


@pytest.mark.parametrize("dtype", DTYPES)
def test_overflow_wraps(dtype):
    e = ends(dtype)
    x, y = np.repeat(e, len(e)), np.tile(e, len(e))
    with np.errstate(all="ignore"):
        wanted = arithmetic(x, y)
    for got, want in zip(mr.jit(arithmetic)(x, y), wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floats_become_integers_as_in_numpy(dtype):
    small = np.array([0, 1.5, -1.5, 100.7, -100.2, 127.9], dtype)
    large = np.array([2.0**31, -(2.0**31), 2.0**40, 2.0**62, 2.0**63, 1.5 * 2.0**63], dtype)

    def convert(small, large):
        return *(small.astype(d) for d in ("int8", "int16", "int32", "int64")), large.astype(np.uint64), small.astype(np.uint64)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = convert(small, large)
    for got, want in zip(mr.jit(convert)(small, large), wanted, strict=True):
        np.testing.assert_array_equal(got, want)

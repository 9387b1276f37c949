"""NEP 50: traced arrays promote as NumPy's, for every pair of dtypes and for Python numbers."""

from __future__ import annotations

import itertools
import operator

import numpy as np
import pytest

import minirelax.numpy as mnp
from minirelax import f32
from minirelax.errors import DTypeError
from minirelax.frontend.trace import trace
from minirelax.ir.types import NUMPY_DTYPES, dtype_name
from minirelax.jit import jit

OPERATORS = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lt,
    operator.eq,
    operator.and_,
    operator.lshift,
    np.maximum,
    np.arctan2,
    np.logical_or,
    np.hypot,
)
ORDERED = (operator.lt, np.maximum)  # NumPy orders complex numbers by their real parts first, Python does not, nor do we
PAIRS = list(itertools.product(NUMPY_DTYPES, repeat=2))
NUMBERS = (True, 2, 2.5, 2j, np.float32(1.5), np.float64(1.5), np.int8(3), np.uint16(7), np.bool_(True), np.complex64(1j))


def dtype_or_error(fn, *args):
    """The dtype of a result, or DTypeError where there is none (for NumPy: or one that we do not have)."""
    try:
        with np.errstate(all="ignore"):
            found = fn(*args)
    except TypeError:
        return DTypeError
    ordered = fn in ORDERED and any(np.asarray(a).dtype.kind == "c" for a in args)
    return DTypeError if ordered or dtype_name(found.dtype) is None else found.dtype


def traced_dtype(fn, *args):
    try:
        result = trace(lambda *xs: fn(*xs), *args)
    except DTypeError:
        return DTypeError
    return NUMPY_DTYPES[result.main.result.type.dtype]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fn", OPERATORS, ids=lambda f: f.__name__)
def test_arrays(fn):
    for a, b in PAIRS:
        x, y = np.ones(2, NUMPY_DTYPES[a]), np.ones(2, NUMPY_DTYPES[b])
        assert traced_dtype(fn, x, y) == dtype_or_error(fn, x, y), f"{fn.__name__}({a}, {b})"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("fn", OPERATORS, ids=lambda f: f.__name__)
def test_numbers_written_in_the_function(fn):
    for name, number in itertools.product(NUMPY_DTYPES, NUMBERS):
        x = np.ones(2, NUMPY_DTYPES[name])
        for pair in (lambda x, n=number: (x, n), lambda x, n=number: (n, x)):
            got = traced_dtype(lambda x, pair=pair: fn(*pair(x)), x)
            assert got == dtype_or_error(fn, *pair(x)), f"{fn.__name__}({name}, {number!r})"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_numbers_given_as_arguments_are_weak():
    def f(x, n):
        ordered = () if np.iscomplexobj(x) else (x > n, np.maximum(x, n))
        return x + n, n * x, x / n, n + 1, n / 2, n * 2.0, n // 2, -n, n == 2, n * 1j, *ordered

    for name, number in itertools.product(("i8", "u8", "i64", "f32", "f64", "c64"), (True, 2, 2.5)):
        x = np.ones(2, NUMPY_DTYPES[name])
        if number is True and name != "i64":
            continue
        for got, want in zip(jit(f, target="interpret")(x, number), f(x, number), strict=True):
            assert type(got) is type(want), (name, number)
            assert np.asarray(got).dtype == np.asarray(want).dtype
            np.testing.assert_allclose(got, want)


def test_numpy_scalars_are_strong():
    f = jit(lambda x, n: x + n, target="interpret")
    x = np.ones(2, np.float32)
    assert f(x, 1.0).dtype == np.float32
    assert f(x, np.float64(1.0)).dtype == np.float64
    assert f(x, np.float32(1.0)).dtype == np.float32


def test_sizes_are_weak():
    def f(x):
        n = x.shape[0]
        return x * n, n * x, x / n, np.sqrt(n), n / 2, n * 0.5 * x, x + n / 2

    for t in (np.float32, np.float64, np.uint8, np.int64):
        x = np.ones(3, t)
        for got, want in zip(jit(f, target="interpret")(x), f(x), strict=True):
            assert np.asarray(got).dtype == np.asarray(want).dtype
            np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("number, fits", [(255, True), (256, False), (-1, False)])
def test_an_integer_must_fit_the_array(number, fits):
    x = np.ones(2, np.uint8)
    if fits:
        np.testing.assert_array_equal(jit(lambda x: x + number, target="interpret")(x), x + np.uint8(number))
    else:
        with pytest.raises(DTypeError, match=f"Python integer {number} out of bounds for uint8"):
            jit(lambda x: x + number, target="interpret")(x)


@pytest.mark.parametrize(
    "fn", [operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge], ids=lambda f: f.__name__
)
def test_comparisons_are_exact(fn):
    signed = np.array([-1, 0, 5, 2**62, -(2**63), 2**63 - 1])
    unsigned = np.array([2**64 - 1, 0, 5, 2**62, 2**63, 2**63], np.uint64)
    for a, b in ((signed, unsigned), (unsigned, signed)):
        want = np.array([fn(int(p), int(q)) for p, q in zip(a, b, strict=True)])
        np.testing.assert_array_equal(jit(lambda a, b: fn(a, b), target="interpret")(a, b), want)
    for number in (-1, 300, 5, 2**70):
        want = np.array([fn(int(p), number) for p in (0, 5, 255)])
        np.testing.assert_array_equal(
            jit(lambda x, n=number: fn(x, n), static=("n",), target="interpret")(np.array([0, 5, 255], np.uint8)), want
        )


def test_in_place_keeps_the_dtype():
    def f(x):
        x = x + 0
        x += 1
        x *= 2.5
        return x

    assert jit(f, target="interpret")(np.ones(2, np.float32)).dtype == np.float32
    with pytest.raises(DTypeError, match="cannot cast the result of np.multiply from float64 to int64 in place"):
        jit(f, target="interpret")(np.ones(2, np.int64))


def test_float16_is_refused_where_it_arises():
    with pytest.raises(DTypeError) as e:
        jit(lambda x: np.sqrt(x), target="interpret")(np.ones(2, np.int8))
    assert str(e.value).splitlines()[0] == "np.sqrt computes in float16, which cannot be compiled"


def test_text_of_casts():
    module = trace(lambda x: mnp.sum(x > 0) / x.shape[0] * x, f32["n"]).module
    assert (
        str(module)
        == """\
def main(x: f32[n]) -> f64[n]:
    with dataflow():
        v0: bool[n] = greater(x, 0.0)
        v1: i64[n] = cast(v0, dtype="i64")
        v2: i64[()] = sum(v1, axes=(0,), keepdims=False)
        v3: f64[()] = cast(v2, dtype="f64")
        v4: i64[()] = size(size=n)
        v5: f64[()] = cast(v4, dtype="f64")
        v6: f64[()] = divide(v3, v5)
        v7: f64[n] = cast(x, dtype="f64")
        v8: f64[n] = multiply(v6, v7)
        output(v8)
    return v8"""
    )

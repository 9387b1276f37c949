"""Arguments in every layout NumPy has, and values that are not ordinary numbers: what NumPy computes, and nothing written to.

The expected results are NumPy's on the same arguments.
"""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import minirelax as mr
from minirelax.errors import ArgumentError

# ---- layouts


@mr.jit
def standardise(x):
    """Elementwise, both reductions, a transpose: kernels that walk their inputs in several orders."""
    centred = x - x.mean(axis=0)
    return centred / np.sqrt((centred * centred).sum(axis=1, keepdims=True) + 1), (2 * x).T, x.max(axis=1)


@mr.jit
def product(x, w):
    return x @ w + w.sum(axis=0)


def strided(a):
    """The same values with gaps in both axes."""
    wide = np.full((2 * a.shape[0], 3 * a.shape[1]), 77, a.dtype)
    wide[::2, ::3] = a
    return wide[::2, ::3]


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def unaligned(a):
    return np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape)


class Sub(np.ndarray):
    """A subclass with nothing of its own."""


LAYOUTS = {
    "C order": np.copy,
    "Fortran order": np.asfortranarray,
    "transposed view": lambda a: np.ascontiguousarray(a.T).T,
    "strided": strided,
    "negative strides": lambda a: np.ascontiguousarray(a[::-1, ::-1])[::-1, ::-1],
    "window": lambda a: np.pad(a, 1)[1:-1, 1:-1],
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
    "read-only": read_only,
    "byte-swapped": lambda a: a.astype(a.dtype.newbyteorder()),
    "unaligned": unaligned,
    "subclass": lambda a: a.view(Sub),
    "unpickled": lambda a: pickle.loads(pickle.dumps(a)),
}
SHAPES = [(5, 7), (1, 7), (5, 1), (33, 20)]


def base(shape, dtype="f4"):
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def check(fn, *args, rtol=2e-5):
    """The compiled function's results are NumPy's (compared in the dtype of the result), and the arguments are as before."""
    before = [np.array(a) for a in args]
    with np.errstate(all="ignore"):
        want = fn.fn(*(np.array(a, a.dtype.newbyteorder("=")) for a in args))
        got = fn(*args)
    pairs = list(zip(got, want, strict=True)) if isinstance(want, tuple) else [(got, want)]
    for g, w in pairs:
        assert g.dtype == np.asarray(w).dtype and g.dtype.isnative
        np.testing.assert_allclose(g, w, rtol=rtol, atol=rtol)
        assert not any(np.may_share_memory(g, a) for a in args)
    for a, b in zip(args, before, strict=True):
        np.testing.assert_array_equal(a, b)
    return got


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_layouts(layout, shape):
    make = LAYOUTS[layout]
    check(standardise, make(base(shape)))
    check(product, make(base(shape)), make(base((shape[1], 9))))


def test_layouts_compile_nothing_of_their_own():
    """Whatever the layout of the first call, its program serves all others."""
    for first in LAYOUTS.values():
        fn = mr.jit(lambda x: (x * 3).sum(axis=0))
        for make in (first, *LAYOUTS.values()):
            check(fn, make(base((4, 6))))
        assert len(fn.compilations) == 1


@pytest.mark.parametrize("dtype", [np.longlong, np.ulonglong, np.intc, np.uintc], ids=lambda t: t.__name__)
def test_other_names_of_the_integers(dtype):
    """C's types: some have a dtype object of their own, though they are equal to int64 and the like."""
    fn = mr.jit(lambda x: x // 2 + 1)
    x = np.arange(5, dtype=dtype)
    np.testing.assert_array_equal(fn(x), x // 2 + 1)
    assert fn(x).dtype == x.dtype


@pytest.mark.filterwarnings("ignore:the matrix subclass")
@pytest.mark.parametrize("special", [lambda a: np.ma.array(a, mask=a > 0), np.asmatrix], ids=["masked", "matrix"])
def test_arrays_that_mean_something_else_are_refused_at_every_call(special):
    fn = mr.jit(lambda x: x * x)
    for _ in range(2):
        with pytest.raises(ArgumentError, match="is not supported"):
            fn(special(base((3, 3))))
        check(fn, base((3, 3)))


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0, 0)], ids=str)
def test_no_elements(shape):
    @mr.jit
    def fn(x):
        return np.exp(x).sum(axis=0), x.T * 2, (x * x).sum()

    for make in (np.copy, np.asfortranarray, lambda a: a[::-1, ::-1]):
        check(fn, make(base(shape)))
    check(product, base((3, 0)), base((0, 4)))


def test_arrays_without_axes():
    @mr.jit
    def fn(x, y):
        return x * y + 1

    got = check(fn, np.array(2.5, "f4"), base((3,)))
    assert got.shape == (3,)
    for a, b in ((np.array(2.5), np.array(4.0)), (np.float64(2.5), np.array(4.0)), (2.5, np.array(4.0))):
        got = fn(a, b)
        assert got == 11 and type(got) is np.float64
    strange = np.broadcast_to(np.array([2.5], ">f8"), (3,))[1:2].reshape(())
    assert fn(strange, np.array(4.0)) == 11


def test_arguments_that_overlap():
    """Views of one array may be given to a program that only reads; its results are arrays of their own."""
    @mr.jit
    def fn(x, y, z):
        return x + y.T, y, z.sum(axis=0) - x[0]

    memory = base((6, 6))
    check(fn, memory[:4, :4], memory[1:5, 2:6], memory[::-1, 1:5])
    check(fn, memory, memory, memory)
    first, second, _ = fn(memory, memory, memory)
    second[:] = 0
    np.testing.assert_array_equal(memory, base((6, 6)))
    np.testing.assert_array_equal(first, memory + memory.T)


@pytest.mark.parametrize("layout", ["Fortran order", "strided", "negative strides", "byte-swapped", "unaligned"])
def test_writing_to_an_argument_in_any_layout(layout):
    @mr.jit
    def fn(x):
        x *= 2
        x[0] = 1
        return x.sum(axis=1)

    x = LAYOUTS[layout](base((3, 4)))
    x = x if x.flags.writeable else x.copy(order="K")
    expected = np.array(x, "f4") * 2
    expected[0] = 1
    np.testing.assert_allclose(fn(x), expected.sum(axis=1), rtol=1e-6)
    np.testing.assert_array_equal(x, expected)


# ---- values that are not ordinary numbers

nan, inf = np.nan, np.inf
SPECIAL = np.array([nan, inf, -inf, -0.0, 0.0, 1.0, -1.5, 1e-45, -1e-40, 3e38, -3e38, 88.8, -104.0], "f4")
ROWS = np.array(
    [[1, 2, 3, 4], [nan, 1, 2, 3], [1, inf, 2, -1], [1, -inf, 2, 0], [inf, -inf, 1, 2], [-0.0, 0.0, -0.0, 0.0], [-inf] * 4,
     [nan] * 4, [3e38, 3e38, 1, 1], [inf, nan, 0, 1], [0, 0, inf, inf], [-1, -2, -0.0, nan]],
    "f4",
)  # fmt: skip


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


CORPUS = {
    "arithmetic": (lambda x, y: (x + y, x - y, x * y, x / y), SPECIAL[:, None], SPECIAL[None, :]),
    "maximum": (lambda x, y: (np.maximum(x, y), np.minimum(x, y), np.fmax(x, y), np.fmin(x, y)), SPECIAL[:, None], SPECIAL),
    "comparisons": (lambda x, y: (x < y, x <= y, x == y, x != y, x > y), SPECIAL[:, None], SPECIAL),
    "where": (lambda x: (np.where(x > 0, x, -x), np.where(np.isnan(x), 0, x), np.where(x == 0, 1 / x, x)), SPECIAL),
    "signs": (lambda x: (np.abs(x), -x, np.sign(x), np.signbit(x), np.copysign(np.float32(2), x)), SPECIAL),
    "kinds": (lambda x: (np.isnan(x), np.isinf(x), np.isfinite(x), np.nan_to_num(x)), SPECIAL),
    "exponentials": (lambda x: (np.exp(x), np.exp2(x), np.expm1(x), np.log(x), np.log2(x), np.log1p(x), np.tanh(x)), SPECIAL),
    "roots and rounding": (lambda x: (np.sqrt(x), np.square(x), np.reciprocal(x), np.floor(x), np.ceil(x), np.rint(x)), SPECIAL),
    "angles": (lambda x: (np.sin(x), np.cos(x), np.arctan(x), np.arctan2(x, -x)), SPECIAL[:7]),
    "powers": (lambda x, y: np.power(x, y), SPECIAL[:7, None], SPECIAL[:7]),
    "remainders": (lambda x, y: (np.remainder(x, y), np.fmod(x, y), np.floor_divide(x, y)), SPECIAL[:7, None], SPECIAL[:7]),
    "clip": (lambda x: (np.clip(x, -1, 1), np.maximum(x, 0)), SPECIAL),
    "sums": (lambda x: (x.sum(axis=1), x.prod(axis=1), x.mean(axis=1), x.sum(axis=0), x.sum()), ROWS),
    "extremes": (lambda x: (x.max(axis=1), x.min(axis=1), x.max(axis=0), x.min(), x.argmax(axis=1), x.argmin(axis=1)), ROWS),
    "extremes without nan": (lambda x: (np.nanmax(x), np.nansum(x, axis=1)), ROWS),
    "truth": (lambda x: ((x > 1).any(axis=1), (x == x).all(axis=1), x.any(axis=0)), ROWS),
    "sums so far": (lambda x: (np.cumsum(x, axis=1), np.cumprod(x, axis=1)), ROWS),
    "sorting": (lambda x: (np.sort(x, axis=1), np.argsort(x, axis=1, kind="stable")), ROWS),
    "softmax": (softmax, ROWS),
    "softmax of a masked row": (lambda x, keep: softmax(np.where(keep, x, -np.inf)), ROWS[:1], np.array([[1, 0, 1, 0]], bool)),
    "matrix product": (lambda x, w: x @ w, ROWS, np.array([[1, 0, -1], [0, 1, 2], [2, 0, 0], [1, 1, -0.0]], "f4")),
    "product with a zero": (lambda x, w: np.maximum(x @ w, 0), ROWS, np.zeros((4, 2), "f4")),
    "normalisation": (lambda x: (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5), ROWS),
}
SIGNED_ZEROS = ("arithmetic", "where", "signs", "roots and rounding", "clip")  # results whose zeros have NumPy's sign


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", CORPUS)
def test_nan_and_infinity_flow_as_in_numpy(name, dtype):
    fn, *args = CORPUS[name]
    args = [a.astype(dtype) if a.dtype.kind == "f" else a for a in args]
    check(mr.jit(fn), *args, rtol=2e-5 if dtype == "f4" else 1e-9)
    if name in SIGNED_ZEROS:
        with np.errstate(all="ignore"):
            got, want = mr.jit(fn)(*args), fn(*args)
        for g, w in zip(got, want, strict=True):
            if w.dtype.kind == "f":
                known = ~np.isnan(w)
                np.testing.assert_array_equal(np.signbit(g[known]), np.signbit(w[known]))


@pytest.mark.parametrize("value", [nan, inf, -inf])
@pytest.mark.parametrize("n", [1, 3, 8, 31, 100])
def test_one_special_value_anywhere_in_a_long_row(value, n):
    """Vector loops have bodies and tails: the value is seen in either."""
    fn = mr.jit(lambda x: (x.max(), x.min(), x.sum(), x.argmax(), np.exp(x - x.max()), np.abs(x).max()))
    for at in sorted({0, n // 2, n - 1}):
        x = np.linspace(-2, 2, n, dtype="f4")
        x[at] = value
        check(fn, x)

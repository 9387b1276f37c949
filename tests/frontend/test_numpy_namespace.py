"""Every function of minirelax.numpy means what NumPy's means: value, dtype and shape, on traced arrays and on real ones."""

from __future__ import annotations

import numpy as np
import pytest

import minirelax.numpy as mnp
from minirelax.jit import jit

A = np.array([[1.5, -2.0, 0.25], [3.0, 0.5, -1.25]], np.float32)
B = np.array([[0.5, 4.0, -0.5], [1.0, -3.0, 2.5]], np.float32)
V = np.array([3.0, -1.0, 2.0, 0.5, 7.0], np.float64)
I = np.array([[3, -4, 5], [7, 0, -2]], np.int32)  # noqa: E741
U = np.array([3, 200, 7], np.uint8)
M = np.array([[True, False, True], [False, False, True]])
C = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.25], [0.5, 0.25, 2.0]])
N = np.array([[1.0, np.nan, 3.0], [np.inf, -2.0, np.nan]])
K = np.array([2, 0, 1])

CASES = {
    "arithmetic": (lambda xp, a, b: (a + b, a - b, a * b, a / b, a // b, a % b, -a, abs(a), +a, a**2, 2 - a, 1 / b), A, B),
    "integers": (
        lambda xp, i: (
            i + 1,
            i // 2,
            i % 3,
            i / 2,
            i**2,
            -i,
            abs(i),
            i & 3,
            i | 4,
            i ^ 1,
            ~i,
            i << 1,
            i >> 1,
            7 - i,
            divmod(i, 3),
        ),
        I,
    ),
    "unsigned": (lambda xp, u: (u + 1, u * 2, u / 2, u - u, u // 7, u.astype(np.int8), u > 5, u < 300, u == -1, u >= -1), U),
    "comparisons": (lambda xp, a, b: (a < b, a <= b, a > b, a >= b, a == b, a != b, 0 < a, a == 0.25), A, B),
    "logical": (
        lambda xp, a, m: (
            xp.logical_and(a, m),
            xp.logical_or(a, m),
            xp.logical_not(a),
            xp.logical_xor(a, m),
            m & (a > 0),
            ~m,
            m | m,
            m + m,
            m * m,
        ),
        A,
        M,
    ),
    "exponential": (
        lambda xp, a: (
            xp.exp(a),
            xp.expm1(a),
            xp.exp2(a),
            xp.log(abs(a)),
            xp.log2(abs(a)),
            xp.log10(abs(a)),
            xp.log1p(abs(a)),
            xp.sqrt(abs(a)),
            xp.cbrt(a),
        ),
        A,
    ),
    "trigonometric": (
        lambda xp, a: (
            xp.sin(a),
            xp.cos(a),
            xp.tan(a),
            xp.arctan(a),
            xp.sinh(a),
            xp.cosh(a),
            xp.tanh(a),
            xp.arcsin(a / 4),
            xp.arccos(a / 4),
            xp.arctan2(a, a + 1),
            xp.arcsinh(a),
            xp.arccosh(abs(a) + 1),
            xp.arctanh(a / 4),
            xp.hypot(a, a),
        ),
        A,
    ),
    "rounding": (
        lambda xp, a, i: (
            xp.floor(a),
            xp.ceil(a),
            xp.trunc(a),
            xp.rint(a),
            xp.round(a, 1),
            a.round(),
            xp.fix(a),
            xp.floor(i),
            xp.round(i),
            xp.around(a),
        ),
        A,
        I,
    ),
    "signs": (
        lambda xp, a, b: (
            xp.sign(a),
            xp.absolute(a),
            xp.fabs(a),
            xp.copysign(a, b),
            xp.signbit(a),
            xp.negative(a),
            xp.positive(a),
            xp.reciprocal(a),
            xp.square(a),
        ),
        A,
        B,
    ),
    "extremes": (
        lambda xp, a, b: (
            xp.maximum(a, b),
            xp.minimum(a, 0),
            xp.fmax(a, b),
            xp.fmin(a, b),
            xp.clip(a, -1, 1),
            a.clip(0),
            xp.clip(a, None, b),
        ),
        A,
        B,
    ),
    "tests": (
        lambda xp, n, i: (
            xp.isnan(n),
            xp.isinf(n),
            xp.isfinite(n),
            xp.isnan(i),
            xp.isfinite(i),
            xp.isposinf(n),
            xp.isneginf(n),
            xp.isclose(n, n),
            xp.allclose(i, i),
            xp.isclose(n, n, equal_nan=True),
            xp.array_equal(i, i),
            xp.isreal(n),
        ),
        N,
        I,
    ),
    "float helpers": (
        lambda xp, a, b: (
            xp.degrees(a),
            xp.radians(a),
            xp.deg2rad(a),
            xp.logaddexp(a, b),
            xp.logaddexp2(a, b),
            xp.heaviside(a, 0.5),
            xp.fmod(a, b),
            xp.remainder(a, b),
            xp.float_power(abs(a), b),
            xp.power(abs(a), b),
            xp.modf(a),
            xp.ldexp(a, 2),
            xp.sinc(a),
            xp.nextafter(a, b),
            xp.nan_to_num(a),
        ),
        A,
        B,
    ),
    "sums": (
        lambda xp, c: (
            c.sum(),
            xp.sum(c, 1),
            xp.sum(c, axis=(0, 2)),
            c.sum(-1, keepdims=True),
            c.prod(0),
            c.mean(),
            c.mean((0, 1)),
            xp.mean(c, axis=2, keepdims=True),
        ),
        C,
    ),
    "sums of integers": (
        lambda xp, i, u, m: (
            i.sum(),
            u.sum(),
            m.sum(0),
            xp.prod(u),
            i.mean(1),
            m.mean(),
            xp.sum(i, dtype=np.float32),
            xp.sum(u, dtype=np.uint8),
        ),
        I,
        U,
        M,
    ),
    "spread": (
        lambda xp, c, i: (
            c.var(),
            c.std(0),
            xp.var(c, 1, ddof=1),
            xp.std(c, axis=(1, 2), keepdims=True),
            i.var(),
            xp.ptp(c, 0),
            xp.average(c, 1),
            xp.average(c, weights=c + 1),
            xp.average(c, axis=1, weights=np.array([1.0, 2, 3])),
        ),
        C,
        I,
    ),
    "largest": (
        lambda xp, c, i, m: (
            c.max(),
            c.min(1),
            xp.max(i, 0),
            i.min(),
            m.max(1),
            xp.amax(c, (0, 1)),
            c.argmax(),
            c.argmin(1),
            xp.argmax(i, 0),
            xp.argmax(i, 1, keepdims=True),
            xp.max(c, initial=100),
            xp.min(c, axis=0, initial=5),
        ),
        C,
        I,
        M,
    ),
    "any all": (lambda xp, m, i: (m.any(), m.all(1), xp.any(i, 0), xp.all(i), xp.count_nonzero(i), xp.count_nonzero(m, 1)), M, I),
    "where in sums": (
        lambda xp, a, m: (
            xp.sum(a, where=m),
            xp.prod(a, 0, where=m),
            xp.max(a, where=m, initial=-9),
            xp.sum(a, initial=3.0),
            xp.mean(a, where=m),
            xp.any(a, where=m),
        ),
        A,
        M,
    ),
    "nan": (
        lambda xp, n: (
            xp.nansum(n),
            xp.nanmax(n, 1),
            xp.nanmin(n),
            xp.nanmean(n, 0),
            xp.nanprod(n),
            xp.nan_to_num(n),
            xp.max(n),
            xp.nan_to_num(n, nan=2, posinf=9),
        ),
        N,
    ),
    "nan spread": (lambda xp, n: (xp.nanvar(n[:, :2], 1), xp.nanstd(n, 0)), np.array([[1.0, np.nan, 3.0], [4.0, -2.0, 5.0]])),
    "median": (
        lambda xp, v, c, n: (
            xp.median(v),
            xp.median(c, 1),
            xp.median(c, (0, 2), keepdims=True),
            xp.median(n, 1),
            xp.quantile(v, 0.3),
            xp.percentile(c, 25, axis=2),
            xp.quantile(c, 0.5, axis=1, keepdims=True),
        ),
        V,
        C,
        N,
    ),
    "shapes": (
        lambda xp, c: (
            c.reshape(6, 4),
            c.reshape(-1),
            xp.reshape(c, (4, -1)),
            c.ravel(),
            c.flatten(),
            c.T,
            c.transpose(1, 0, 2),
            xp.transpose(c, (2, 0, 1)),
            c.swapaxes(0, 1),
            xp.moveaxis(c, 0, -1),
            xp.rollaxis(c, 2),
            c[None],
            xp.expand_dims(c, (0, -1)),
            xp.squeeze(c[:1], 0),
            c.mT,
            xp.matrix_transpose(c),
            xp.permute_dims(c, (1, 2, 0)),
            c.reshape(3, 8, order="F"),
            c.ravel(order="F"),
        ),
        C,
    ),
    "atleast": (lambda xp, v: (xp.atleast_1d(v), xp.atleast_2d(v), xp.atleast_3d(v), xp.atleast_2d(v.sum(), v)), V),
    "broadcasting": (
        lambda xp, v: (
            xp.broadcast_to(v, (2, 5)),
            xp.broadcast_arrays(v, v[:, None]),
            v + v[:, None],
            v[:, None] * np.ones((2, 5, 5)),
        ),
        V,
    ),
    "flips": (
        lambda xp, c: (
            xp.flip(c),
            xp.flip(c, 1),
            xp.fliplr(c),
            xp.flipud(c),
            xp.rot90(c),
            xp.rot90(c, 2),
            xp.rot90(c, 3),
            xp.rot90(c, -1, (1, 2)),
        ),
        C,
    ),
    "joining": (
        lambda xp, a, b, v: (
            xp.concatenate([a, b]),
            xp.concatenate((a, b), axis=1),
            xp.stack([a, b]),
            xp.stack([a, b], -1),
            xp.hstack([a, b]),
            xp.vstack([a, b]),
            xp.dstack([a, b]),
            xp.column_stack([v, v]),
            xp.append(a, b),
            xp.concat([a, b], axis=0),
            xp.concatenate([a, b], axis=None),
            xp.block([[a, b], [b, a]]),
        ),
        A,
        B,
        V,
    ),
    "joining dtypes": (
        lambda xp, a, i, u: (
            xp.concatenate([a, i]),
            xp.stack([u, u]).sum(),
            xp.hstack([u, [1.5]]),
            xp.concatenate([u, u], dtype=np.int64),
        ),
        A,
        I,
        U,
    ),
    "splitting": (
        lambda xp, c: (
            *xp.split(c, 2),
            *xp.split(c, [1], axis=1),
            *xp.array_split(c, 2, axis=2),
            *xp.array_split(c, 2, axis=1),
            *xp.hsplit(c, 3),
            *xp.vsplit(c, 2),
            *xp.dsplit(c, 2),
            *xp.unstack(c),
        ),
        C,
    ),
    "repeating": (
        lambda xp, a: (
            xp.tile(a, 2),
            xp.tile(a, (2, 1)),
            xp.tile(a, (2, 1, 3)),
            xp.repeat(a, 2),
            xp.repeat(a, 3, axis=0),
            a.repeat(2, 1),
            xp.repeat(a, [1, 0, 2], axis=1),
        ),
        A,
    ),
    "rolling": (lambda xp, c: (xp.roll(c, 1), xp.roll(c, -2, 1), xp.roll(c, (1, 2), (0, 2)), xp.roll(c, 10, 0)), C),
    "padding": (
        lambda xp, a: (
            xp.pad(a, 1),
            xp.pad(a, ((0, 1), (2, 0))),
            xp.pad(a, (1, 2), constant_values=7),
            xp.pad(a, 1, mode="edge"),
            xp.pad(a, 1, mode="reflect"),
            xp.pad(a, ((1, 1), (2, 2)), mode="symmetric"),
            xp.pad(a, 1, mode="wrap"),
        ),
        A,
    ),
    "choosing": (
        lambda xp, a, b, m: (
            xp.where(m, a, b),
            xp.where(m, a, 0),
            xp.where(a > 0, 1, 0),
            xp.where(m, 1.5, 2),
            xp.select([a > 1, a > 0], [a, b], 9),
            xp.where(m[0], a, b),
        ),
        A,
        B,
        M,
    ),
    "choose": (
        lambda xp, k, v: (
            xp.choose(k, [v, v + 1, v + 2]),
            xp.choose(k + 1, [v, v * 2], mode="wrap"),
            k.choose([v, v + 1, v + 2]),
        ),
        K,
        V[:3],
    ),
    "taking": (
        lambda xp, c, k: (
            xp.take(c, k % 2, 0),
            xp.take(c, [1, -1], axis=1),
            xp.take(c, k),
            c.take([[0, 1], [2, 3]], 2),
            xp.take(c, 1, axis=1),
            xp.take(c, k + 5, 1, mode="wrap"),
            xp.take(c, k + 5, axis=1, mode="clip"),
            xp.take_along_axis(c, c.argmax(1, keepdims=True), 1),
        ),
        C,
        K,
    ),
    "diagonals": (
        lambda xp, a, c, v: (
            xp.diagonal(a),
            xp.diag(a),
            xp.diag(v),
            xp.diag(v, 1),
            xp.diag(v, -2),
            xp.trace(a),
            xp.tril(a),
            xp.triu(a, 1),
            xp.tril(c, -1),
            c.diagonal(1, 1, 2),
            a.trace(1),
            xp.diag(a, -1),
            xp.diagflat(v),
            xp.tril(v),
        ),
        A,
        C,
        V,
    ),
    "creating like": (
        lambda xp, a: (
            xp.zeros_like(a),
            xp.ones_like(a, dtype=np.int32),
            xp.full_like(a, 7),
            xp.empty_like(a) * 0,
            xp.zeros_like(a, shape=(4,)),
        ),
        A,
    ),
    "creating": (
        lambda xp, a: (
            xp.zeros(a.shape),
            xp.ones(a.shape[0], dtype=np.int8),
            xp.full(a.shape, 2.5, np.float32),
            xp.full((2,), 7),
            xp.arange(a.shape[1]),
            xp.arange(1, 10, 3),
            xp.arange(a.shape[0], dtype=np.float32),
            xp.arange(0.0, 1.0, 0.25),
            xp.eye(3),
            xp.eye(a.shape[0], a.shape[1], 1),
            xp.identity(2),
            xp.tri(3, 4),
            xp.linspace(0, 1, 5),
            xp.linspace(0.0, 2.0, a.shape[1]),
            xp.linspace(0, 1, 4, endpoint=False),
            xp.array([1, 2]),
            xp.asarray([1.5]),
            xp.arange(5, 0, -2),
            xp.arange(a.shape[1], 0, -1),
            xp.arange(2, a.shape[1] * 2, 2),
        ),
        A,
    ),
    "grids": (
        lambda xp, v, k: (
            *xp.meshgrid(v, k),
            *xp.meshgrid(v, k, indexing="ij"),
            *xp.meshgrid(v, k, sparse=True),
            xp.indices((2, 3)),
        ),
        V,
        K,
    ),
    "products": (
        lambda xp, a, b, v: (
            a @ b.T,
            xp.matmul(a, b.T),
            xp.dot(a, b.T),
            a.dot(b[0]),
            xp.dot(v, v),
            v @ v,
            xp.inner(a, b),
            xp.outer(v, v),
            xp.vdot(a, b),
            xp.tensordot(a, b),
            xp.tensordot(a, b, ([0], [0])),
            xp.kron(a, b),
            xp.vecdot(a, b),
            a[0] @ b.T,
            a @ b[0],
            xp.dot(a, 2.0),
            xp.linalg.outer(v, v),
        ),
        A,
        B,
        V,
    ),
    "batched products": (
        lambda xp, c, i: (
            c @ c.swapaxes(1, 2),
            xp.dot(c, c[0].T),
            xp.matmul(c, c[0].T),
            xp.tensordot(c, c, ((2,), (2,))),
            xp.inner(c, c[0]),
            i @ i.T,
        ),
        C,
        I,
    ),
    "einsum": (
        lambda xp, a, b, c: (
            xp.einsum("ij,kj->ik", a, b),
            xp.einsum("ij->j", a),
            xp.einsum("ij,ij", a, b),
            xp.einsum("bij,bkj->bik", c, c),
            xp.einsum("...ij->...ji", c),
            xp.einsum("ij->", a),
            xp.einsum("i,j->ij", a[:, 0], b[0]),
            xp.einsum("...j,kj->...k", c[..., :3], a),
        ),
        A,
        B,
        C,
    ),
    "norms": (
        lambda xp, a, v: (
            xp.linalg.norm(a),
            xp.linalg.norm(v, 1),
            xp.linalg.norm(a, axis=1),
            xp.linalg.norm(v, np.inf),
            xp.linalg.norm(a, 1),
            xp.linalg.norm(a, np.inf),
            xp.linalg.norm(v, 3),
            xp.linalg.norm(a, axis=0, keepdims=True),
            xp.linalg.norm(v, 0),
            xp.linalg.vector_norm(a, axis=1),
            xp.linalg.matrix_norm(a),
        ),
        A,
        V,
    ),
    "linear systems": (
        lambda xp, s: (
            xp.linalg.inv(s),
            xp.linalg.det(s),
            xp.linalg.solve(s, s[0]),
            xp.linalg.cholesky(s),
            xp.linalg.matrix_power(s, 3),
            xp.linalg.matrix_power(s, 0),
            xp.linalg.multi_dot([s, s, s]),
            xp.linalg.solve(s, s),
        ),
        S,
    ),
    "cross": (lambda xp, s: (xp.cross(s, s[::-1]), xp.cross(s[0], s[1])), S),
    "scans": (
        lambda xp, c, u: (
            c.cumsum(),
            xp.cumsum(c, 1),
            xp.cumprod(c + 1, 2),
            u.cumsum(),
            xp.cumulative_sum(u),
            xp.cumulative_sum(c, axis=1, include_initial=True),
            xp.diff(c),
            xp.diff(c, axis=0),
            xp.diff(u),
            xp.diff(u, 2),
            xp.diff(u, prepend=0),
            xp.ediff1d(u),
        ),
        C,
        U,
    ),
    "sorting": (
        lambda xp, a, v, n: (
            xp.sort(a),
            xp.sort(a, 0),
            xp.sort(a, axis=None),
            v.argsort(),
            xp.argsort(a, 0),
            xp.sort(n),
            xp.searchsorted(xp.sort(v), a),
            xp.unique(a > 0),
            xp.digitize(v, np.array([0.0, 1.0, 5.0])),
            xp.unique(xp.sign(a)),
        ),
        A,
        V,
        N,
    ),
    "finding": (
        lambda xp, i, m: (
            *xp.nonzero(i),
            xp.flatnonzero(i),
            xp.argwhere(m),
            *xp.where(m),
            i[m],
            xp.compress([True, False], i, 0),
            xp.extract(m, i),
            i.nonzero(),
            xp.isin(i, [3, 0]),
        ),
        I,
        M,
    ),
    "curves": (
        lambda xp, v: (
            xp.gradient(v),
            xp.gradient(v, 0.5),
            xp.trapezoid(v),
            xp.trapezoid(v, dx=2.0),
            xp.interp(v, np.array([0.0, 1.0, 4.0]), np.array([1.0, 3.0, -1.0])),
        ),
        V,
    ),
    "gradient": (lambda xp, c: (*xp.gradient(c), xp.gradient(c, axis=2)), C),
    "convolve": (
        lambda xp, v, k: (
            xp.convolve(v, k),
            xp.convolve(v, k, "same"),
            xp.convolve(v, k, "valid"),
            xp.correlate(v, k),
            xp.correlate(v, k, "full"),
        ),
        V,
        np.array([1.0, 2.0, -1.0]),
    ),
    "reduce methods": (
        lambda xp, a: (
            np.add.reduce(a),
            np.multiply.reduce(a, axis=1),
            np.maximum.reduce(a, axis=None),
            np.add.accumulate(a, 1),
            np.subtract.outer(a[0], a[1]),
        ),
        A,
    ),
    "casting": (
        lambda xp, a, i: (
            a.astype(np.int32),
            a.astype("float64"),
            i.astype(bool),
            xp.astype(a, np.float64),
            i.astype(np.uint8),
            a.astype(float),
        ),
        A,
        I,
    ),
    "sizes": (
        lambda xp, c: (
            c * c.shape[0],
            c.sum() / c.size,
            c.ndim,
            c.shape[1] + 1,
            c / len(c),
            xp.ones(3, np.float32) * c.shape[0],
            c.shape[0] / c.shape[1],
            xp.sqrt(c.shape[2]),
            c.shape[0] // 2,
            c.shape[1] ** 2,
            -c.shape[0],
            c[..., : c.shape[2] // 2],
            c.shape[0] * 0.5 * c[0],
            xp.shape(c),
            xp.size(c),
            xp.size(c, 1),
        ),
        C,
    ),
    "axes named by keyword": (
        lambda xp, a: (xp.sum(a=a, axis=0), xp.reshape(a, shape=(3, 2)), xp.take(a=a, indices=[0], axis=1)),
        A,
    ),
    "dtypes of weak numbers": (
        lambda xp, a, i, u: (
            a + 1,
            a + 1.5,
            i + 1.5,
            i * True,
            u + True,
            a * np.float64(2),
            i + np.int64(1),
            a + np.float32(1),
            u * 2.0,
            a**2.0,
            xp.where(a > 0, a, 1.0),
        ),
        A,
        I,
        U,
    ),
}


def same(got: object, want: object) -> None:
    if isinstance(want, tuple | list):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            same(g, w)
        return
    assert np.asarray(got).dtype == np.asarray(want).dtype
    assert np.shape(got) == np.shape(want)
    rtol = 1e-5 if np.asarray(want).dtype == np.float32 else 1e-10
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=rtol, atol=rtol)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_traced_means_numpy(name):
    fn, *arrays = CASES[name]
    want = fn(np, *arrays)
    want = tuple(w for w in want)
    got = jit(lambda *xs: fn(mnp, *xs), target="interpret")(*arrays)
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        try:
            same(g, w)
        except AssertionError as e:
            raise AssertionError(f"result {i}: {e}") from None


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", CASES)
def test_real_arrays_give_numpys_result(name):
    fn, *arrays = CASES[name]
    same(fn(mnp, *arrays), fn(np, *arrays))


def test_dispatch_from_numpy_itself():
    def f(a, b):
        return (
            np.concatenate([np.exp(a), np.where(a > 0, a, b)], axis=0).sum(0),
            np.einsum("ij,ij->i", a, b),
            np.linalg.norm(a, axis=1),
        )

    same(jit(f, target="interpret")(A, B), f(A, B))


def test_erf_is_the_only_name_that_numpy_lacks():
    x = np.array([-1.0, 0.0, 0.5])
    want = np.array([-0.8427007929497149, 0.0, 0.5204998778130465])
    np.testing.assert_allclose(mnp.erf(x), want, rtol=1e-14)
    np.testing.assert_allclose(jit(mnp.erf, target="interpret")(x), want, rtol=1e-14)
    assert not [n for n in mnp.__all__ if n not in ("erf", "linalg", "match_cast") and not hasattr(np, n)]


def test_names_that_are_not_there():
    with pytest.raises(AttributeError, match="numpy.histogram is not supported in a compiled function"):
        mnp.histogram  # noqa: B018
    with pytest.raises(AttributeError, match="numpy has no relu"):
        mnp.relu  # noqa: B018
    with pytest.raises(AttributeError, match="numpy.linalg.svd is not supported"):
        mnp.linalg.svd  # noqa: B018


def test_array_namespace():
    def f(x):
        xp = x.__array_namespace__()
        return xp.sum(x, axis=0), xp is mnp

    got, here = jit(f, target="interpret")(A)
    same(got, A.sum(0))
    assert here is True

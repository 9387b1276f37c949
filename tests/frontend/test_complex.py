"""Complex numbers from tracing to machine code: functions of them give what NumPy gives, at every size."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import minirelax as mr
import minirelax.numpy as mnp
from minirelax import c64, c128
from minirelax.frontend.trace import trace
from minirelax.ir.interpret import interpret
from minirelax.pipeline import GRAPH_PASSES, KERNEL_PASSES

TOLERANCE = {"f": {4: 2e-5, 8: 1e-12}, "c": {8: 2e-5, 16: 1e-12}}
SINGLE, DOUBLE = np.complex64, np.complex128
rng = np.random.default_rng(7)


def numbers(*shape: int, dtype=DOUBLE) -> np.ndarray:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def same(got, want) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind not in "fc":
        return np.testing.assert_array_equal(got, want)
    tolerance = TOLERANCE[want.dtype.kind][want.dtype.itemsize]
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


def arithmetic(x, y):
    return x + y, x - y, x * y, x / y, -x, +x, x**2, x**3, x**-1, x**-3, x**0, x**0.5, x**y, np.power(x, 5), np.float_power(x, y)


def functions(x, y):
    rest = np.reciprocal(y), np.square(x), np.tan(x), np.arctanh(y * 0.1), np.sign(x), np.log10(y)
    return np.exp(x), np.exp(1j * y), np.sqrt(x), np.log(y), np.sin(x), np.cos(y), np.sinh(x), *rest


def parts(x, y):
    angles = np.angle(x), np.angle(y, deg=True), np.angle(x.real)
    return x.real, x.imag, np.real(x), np.imag(y), x.real.imag, abs(x), np.conj(x), x.conj(), x.conjugate(), *angles


def questions(x, y):
    whole = np.where(x.real > 0, x, y * 0 + 3)
    found = x == y, x != y, np.isnan(x), np.isinf(y), np.isfinite(x), np.iscomplex(whole), np.isreal(whole)
    return *found, np.isclose(x, x + 1e-9), np.array_equal(x, x), x.astype(bool), np.logical_and(x, y), np.logical_not(x)


def mixed(x, y):
    cast = x.imag.astype(SINGLE), x.astype(SINGLE)
    return 1j * x, x * (2 - 1j), x + 1, 2.0 / x, x * np.float32(2), x.real * 1j, x.real + y, *cast


def reductions(x, y):
    spread = np.var(x), np.std(x, axis=1), np.mean(y, axis=0, dtype=DOUBLE), np.cumsum(x, axis=1), np.cumprod(y[:, :3], axis=1)
    return np.sum(x), np.sum(y, axis=1), x.sum(0), np.prod(x, axis=1), np.mean(x), np.any(x), np.all(y, axis=0), *spread


def products(x, y):
    ones = np.einsum("ij,kj->ik", x, y), np.einsum("i,j->ij", x[0], y[0]), np.outer(x[0], y[1]), np.kron(x[:2, :2], y[:2])
    norms = np.linalg.norm(x), np.linalg.norm(y, axis=0), np.linalg.norm(x, 1, axis=1), np.linalg.vector_norm(y)
    vectors = np.vdot(x, y), np.vecdot(x, y), np.inner(x, y), np.correlate(x[0], y[0, :2]), np.convolve(x[0], y[0, :3])
    return x @ y.T, x.real @ y.T, x.conj().T @ y, x @ x[0], np.dot(x, y.T), np.tensordot(x, y), *ones, *norms, *vectors


def systems(x, y):
    a = x[:3, :3] + 4 * np.eye(3)
    definite = a @ a.conj().T
    factors = np.linalg.cholesky(definite), np.linalg.cholesky(definite, upper=True)
    return np.linalg.inv(a), np.linalg.det(a), np.linalg.solve(a, y[:3, 0]), np.linalg.matrix_power(a, 3), *factors


def moved(x, y):
    new = mnp.zeros(x.shape, dtype=complex) + x, mnp.full(3, 1j), mnp.eye(3, dtype=SINGLE) * 2, mnp.arange(3, dtype=complex)
    taken = x[1:, None, ::-2], x[..., 0], x[[1, 0]], x[x.real > 0], np.take(y, [2, 0], 1), np.roll(x, 1), np.tile(y, 2)
    joined = np.concatenate([x, y.real], axis=1), np.stack([x, y]), np.pad(x, 1, constant_values=2), np.diff(x), np.tril(y)
    return x.T, x.reshape(-1), np.zeros_like(x), np.ones_like(x, shape=2), np.array([1j, 2]) + x[0, 0], *new, *taken, *joined


def in_place(x, y):
    x = x.copy()
    x.real[1:] = 5
    x.imag *= 2
    x.real += y.imag
    x[0] = 7j
    x[:, 1] += 1j
    x.T.imag[2] = y.real[:, 2]
    part = x.real
    x[1, 1] = 9
    return x, part


PROGRAMS = (arithmetic, functions, parts, questions, mixed, reductions, products, systems, moved, in_place)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_numpys_results_for_all_sizes(program):
    f = mr.jit(program, target="interpret")
    for (n, m), dtypes in itertools.product(((4, 5), (3, 7), (5, 3)), ((SINGLE, SINGLE), (DOUBLE, DOUBLE), (SINGLE, DOUBLE))):
        x, y = (numbers(n, m, dtype=t) for t in dtypes)
        for got, want in zip(f(x, y), program(x, y), strict=True):
            same(got, want)


@pytest.mark.parametrize("dtype", (SINGLE, DOUBLE))
def test_compiled(dtype):
    """One program with a step of each kind in machine code, also for sums that go block by block."""

    def program(x, y):
        z = np.exp(0.5j * x) * y / (x - 2j)
        z = np.where(np.abs(z) > 1, z.conj(), z**3)
        return np.sum(z * x), np.sum(z, axis=0), np.prod(z[:, :2], axis=1), z.real, np.angle(y), z @ x.T, np.mean(z), x == y

    f = mr.jit(program)
    for n, m in ((3, 5), (4, 4100), (0, 2), (1, 1)):
        x, y = numbers(n, m, dtype=dtype), numbers(n, m, dtype=dtype)
        with np.errstate(all="ignore"), pytest.warns() if n == 0 else np.errstate():
            want = program(x, y)
        for got, w in zip(f(x, y), want, strict=True):
            tolerance = 1e-3 if dtype == SINGLE else 1e-10
            assert np.asarray(got).dtype == w.dtype
            np.testing.assert_allclose(got, w, rtol=tolerance, atol=tolerance)
    for stage in f.stages:
        if isinstance(stage.module, mr.ir.graph.Module):
            assert mr.parse(str(stage.module), constants={c.name: c.array for c in stage.module.constants}) == stage.module


@pytest.mark.parametrize("target", ("interpret", "cpu"))
def test_infinities_zeros_and_nan(target):
    """Products are the plain formula, quotients Smith's, exp C's: special values are where NumPy has them."""
    special = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan]
    x = np.array([complex(a, b) for a in special for b in special])

    def program(x, y):
        found = x * y, x / y, x + y, x - y, np.reciprocal(x), np.exp(x), np.abs(x), x.conj(), x**2, x**3, x**-1
        return tuple(part for z in found for part in (z.real, z.imag))

    with np.errstate(all="ignore"):
        for got, want in zip(mr.jit(program, target=target)(x[:, None], x[None]), program(x[:, None], x[None]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-12)
            if want.shape[0] == 1:
                np.testing.assert_array_equal(np.signbit(got), np.signbit(want))


def test_large_exponents_overflow_no_earlier_than_the_result():
    x = np.array([709.9 + 1.5707963j, 745 - 1.570796326j, -745 + 1j, 1000 + 0j, 720 + 3j])
    with np.errstate(all="ignore"):
        got, want = mr.jit(lambda x: np.exp(x), target="interpret")(x), np.exp(x)
    np.testing.assert_allclose(got.real, want.real, rtol=1e-10)
    np.testing.assert_allclose(got.imag, want.imag, rtol=1e-10)


@pytest.mark.parametrize("target", ("interpret", "cpu"))
def test_pythons_complex_numbers_are_weak(target):
    def program(x, z):
        alone = abs(z), z.real, z.imag, z.conjugate(), z == 1j, -z, z + 1, z * 2.0
        return x * z, z * z, z / 2, z**2, *alone, x.shape[0] * 1j, 2j**x

    f = mr.jit(program, target=target)
    for x in (np.float32([1, 2]), numbers(3), numbers(2, dtype=SINGLE)):
        for got, want in zip(f(x, 2 - 1j), program(x, 2 - 1j), strict=True):
            assert type(got) is type(want)
            same(got, want)


@pytest.mark.parametrize("target", ("interpret", "cpu"))
def test_branches_loops_calls_and_weights(target):
    @mr.jit(inline=False)
    def turned(z: c128["n"], w: c128[()]):  # noqa: F821, UP037
        return z * w

    def program(x, w):
        grown = mr.fori_loop(0, 3, lambda i, c: turned(c, w) + i, x)
        size = mr.while_loop(lambda c: abs(c) < 10, lambda c: c * (1 + 1j), 1)
        last, sums = mr.scan(lambda c, e: (c + e, c * e), 0j, x)
        return grown, size, mr.cond(x[0].real > 0, lambda y: y * 1j, lambda y: y, x), last, sums

    x, w = numbers(4), np.complex128(0.5 - 1j)
    f = mr.jit(program, constants="w", target=target)
    for got, want in zip(f(x, w), program(x, w), strict=True):
        same(got, want)


def test_a_kernel_of_complex_numbers():
    @mr.kernel
    def turn(x: c64["n"], by: c64[()], out: c64["n"], *, n):  # noqa: F821, UP037
        for i in range(n):
            out[i] = x[i] * by[()] - complex(imag(x[i]), 2.0) + 1j / x[i]  # noqa: F821

    x = numbers(5, dtype=SINGLE)
    want = x * SINGLE(2j) - (x.imag + SINGLE(2j)) + SINGLE(1j) / x
    same(turn(x, 2j), want)
    same(mr.jit(lambda x: turn(x, 2j) * 1)(x), want)
    assert mr.parse(str(trace(lambda x: turn(x, 2j), x).module)).kernels[0] == turn.ir


def test_text():
    module = trace(lambda z: z.real * 1j + np.array([complex(-0.0, np.nan), 1j]), c128[2]).module
    assert str(module) == """\
c0: c128[2] = constant([complex(-0.0, nan), complex(0.0, 1.0)])

def main(z: c128[2]) -> c128[2]:
    with dataflow():
        v0: f64[2] = real(z)
        v1: c128[2] = cast(v0, dtype="c128")
        v2: c128[2] = multiply(v1, complex(0.0, 1.0))
        v3: c128[2] = add(v2, c0)
        output(v3)
    return v3"""
    assert mr.parse(str(module)) == module


def test_saved_with_complex_weights(tmp_path):
    f = mr.jit(lambda x, p: x @ p["w"] + p["b"], constants="p")
    x, p = numbers(3, 4, dtype=SINGLE), {"w": numbers(4, 2, dtype=SINGLE), "b": numbers(2, dtype=SINGLE)}
    want = f(x, p)
    f.executable.save(tmp_path / "f.mrx", weights=p)
    same(mr.Executable.load(tmp_path / "f.mrx")(x)[0], want)


def test_validation_sees_a_wrong_imaginary_part():
    f = mr.jit(lambda x: np.sum(np.exp(1j * x) * x), validate=True)
    x = numbers(50)
    same(f(x), np.sum(np.exp(1j * x) * x))

    def improve(module):
        return mr.parse(str(module).replace("conjugate", "negative"))

    with pytest.raises(mr.errors.RunError, match="improve changed result 0 of the program by up to"):
        mr.validate(mr.run(trace(lambda x: x.conj(), x).module, (improve,)), x)


def test_laws_of_real_numbers_are_not_used():
    def program(x):
        return x * 1, x + 0, x / 1, x - x, np.abs(x * x), x / 2, 1 * x, x * (1 + 0j), x / (2 + 0j)

    x = np.array([complex(np.inf, 1), complex(-0.0, -0.0), 1 + 2j])
    with np.errstate(all="ignore"):
        for got, want in zip(mr.jit(program, target="interpret")(x), program(x), strict=True):
            np.testing.assert_array_equal(got, want)


UNARY = (np.negative, np.conj, np.square, lambda z: np.exp(z * 0.1), lambda z: z.real, lambda z: 1j * z.imag, np.abs,
         lambda z: z / (np.abs(z) + 1), lambda z: z[::-1], lambda z: np.sum(z, axis=1, keepdims=True) * 0.1,
         lambda z: np.where(z.real > 0, z, -1j), lambda z: np.sqrt(z + 0j), lambda z: np.mean(z, axis=0))  # fmt: skip
BINARY = (np.add, np.subtract, np.multiply, lambda a, b: a / (b + 3j), lambda a, b: (a @ b.T) @ b * 0.01,
          lambda a, b: np.concatenate([a, b + 0j], axis=0)[1:1 + a.shape[0]], lambda a, b: np.where(a == b, a, b))  # fmt: skip


def drawn(seed: int):
    """A function of two arrays of one shape, made of steps that are drawn."""
    draw = np.random.default_rng(seed)
    steps = [(draw.integers(len(UNARY)), draw.integers(len(BINARY)), *draw.integers(0, 99, 2)) for _ in range(6)]

    def program(x, y):
        made = [x, y]
        for one, two, i, j in steps:
            value = BINARY[two](UNARY[one](made[i % len(made)]) + 0 * x, made[j % len(made)])
            made.append(value / (1 + np.max(np.abs(value))))
        return made[-1], made[-2]

    return program


@pytest.mark.parametrize("seed", range(12))
def test_every_stage_of_drawn_programs(seed):
    program, dtype = drawn(seed), (SINGLE, DOUBLE)[seed % 2]
    x, y = numbers(2, 3, dtype=dtype), numbers(2, 3, dtype=dtype)
    want = program(x, y)
    for stage in mr.run(trace(program, x, y).module, GRAPH_PASSES + KERNEL_PASSES):
        assert mr.parse(str(stage.module), constants={c.name: c.array for c in stage.module.constants}) == stage.module
        for got, w in zip(interpret(stage.module, x, y), want, strict=True):
            same(got, w)


@pytest.mark.parametrize("seed", (100, 101, 102))
def test_compiled_drawn_programs(seed):
    program = drawn(seed)
    f = mr.jit(program)
    for n, m in ((3, 3), (2, 17), (1, 2)):
        x, y = numbers(n, m), numbers(n, m)
        for got, want in zip(f(x, y), program(x, y), strict=True):
            same(got, want)

"""Fourier transforms: NumPy's results for odd, even and prime sizes, cut and filled up, along any axes."""

from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
import minirelax.numpy as mnp
from minirelax import c64, f32
from minirelax.errors import ArgumentError, DTypeError, ShapeError
from minirelax.ops import OPS
from minirelax.ops.fourier import TOO_SHORT

SHAPES = ((4, 6), (5, 7), (3, 2), (1, 2), (2, 3), (8, 11))
rng = np.random.default_rng(3)


def numbers(shape, dtype=np.complex128) -> np.ndarray:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)


def same(got, want) -> None:
    got = np.asarray(got)
    assert got.dtype == want.dtype and got.shape == want.shape
    tolerance = 1e-4 if want.dtype in (np.float32, np.complex64) else 1e-12
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 10)


def complex_transforms(x):
    several = np.fft.fft2(x), np.fft.ifft2(x, s=(2, 3)), np.fft.ifftn(x, norm="forward"), np.fft.fftn(x, s=(4, 9), axes=(0, 1))
    one = np.fft.fft(x), np.fft.ifft(x, axis=0), np.fft.fft(x, 7), np.fft.ifft(x, 3, norm="ortho"), np.fft.fft(x[0])
    symmetric = np.fft.hfft(x), np.fft.hfft(x, 5, axis=0, norm="forward")
    return *one, *several, *symmetric, np.fft.fftn(x, axes=(1, 1)), np.fft.fft(x, 1)


def real_transforms(x):
    r = x.real
    halves = np.fft.rfft(r), np.fft.rfft(r, 8, axis=0), np.fft.rfft2(r), np.fft.ihfft(r)
    whole = np.fft.irfft(x), np.fft.irfft(x, 5), np.fft.irfft(x, x.shape[-1]), np.fft.irfft(x, 1, 0), np.fft.irfft2(x)
    inverses = np.fft.irfftn(x, s=(3, 4), axes=(1, 0), norm="ortho"), np.fft.irfftn(x, axes=(1,))
    several = np.fft.rfftn(r, s=(3, 5), axes=(0, 1)), *inverses
    there_and_back = np.fft.irfft(np.fft.rfft(r), n=r.shape[1]), np.fft.irfftn(np.fft.rfftn(r), s=r.shape, axes=(0, 1))
    return *halves, *whole, *there_and_back, *several


def of_other_dtypes(x):
    whole = (x.real * 5).astype(np.int8)
    moved = np.fft.fftshift(x), np.fft.ifftshift(x, axes=1), np.fft.ifftshift(np.fft.fftshift(x, axes=(0,)), axes=0)
    return np.fft.fft(whole), np.fft.rfft(x.real > 0), np.fft.irfft(x.real), np.fft.fft(x.real), *moved


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("target", ("interpret", "cpu"))
@pytest.mark.parametrize("program", (complex_transforms, real_transforms, of_other_dtypes), ids=lambda f: f.__name__)
def test_numpys_results(program, target):
    for dtype in (np.complex64, np.complex128) if target == "interpret" else (np.complex64,):
        f = mr.jit(program, target=target)
        for shape in SHAPES:
            x = numbers(shape, dtype)
            for got, want in zip(f(x), program(x), strict=True):
                same(got, want)
        assert len(f.compilations) == 1


def test_frequencies():
    f = mr.jit(lambda x: (mnp.fft.fftfreq(x.shape[0], 0.5), mnp.fft.rfftfreq(x.shape[0]), mnp.fft.fftfreq(9)), target="interpret")
    for n in (1, 2, 5, 8):
        for got, want in zip(f(np.zeros(n)), (np.fft.fftfreq(n, 0.5), np.fft.rfftfreq(n), np.fft.fftfreq(9)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-15)
    np.testing.assert_array_equal(mnp.fft.fftfreq(4), np.fft.fftfreq(4))


def test_one_program_cuts_and_fills_up():
    """Sixteen points of any number of elements: no guard asks which is more, and memory is written in place."""
    module = mr.trace(lambda x: np.fft.irfft(np.fft.rfft(x, 16), 16), f32["n"])
    executable = mr.compile(module)
    for n in (0, 1, 5, 16, 40):
        x = rng.standard_normal(n).astype(np.float32)
        if n:
            same(executable(x)[0], np.fft.irfft(np.fft.rfft(x, 16), 16))
        else:
            same(executable(x)[0], np.zeros(16, np.float32))
    last = next(s.module for s in executable.stages if s.name == "bind_shapes")
    assert 'run_library("irfft"' in str(last) and mr.parse(str(last)) == last


def test_results_are_written_into_memory_that_is_there():
    def program(x):
        out = np.zeros_like(x)
        np.fft.fft(x, out=out)
        return out + 1

    x = numbers(6)
    same(mr.jit(program, target="interpret")(x), program(x))


@pytest.mark.parametrize("fn, error, message", [
    (lambda x: np.fft.fft(x, 0), ShapeError, TOO_SHORT),
    (lambda x: np.fft.fft(x[:0]), ShapeError, TOO_SHORT),
    (lambda x: np.fft.irfft(x[:1]), ShapeError, TOO_SHORT),
    (lambda x: np.fft.fft(x, -3), ShapeError, "Invalid number of FFT data points (-3) specified."),
    (lambda x: np.fft.rfft(x), DTypeError, "a complex64 is not converted to float64: its imaginary part would be lost"),
    (lambda x: np.fft.fft(x, axis=1), ShapeError, "axis 1 is out of bounds for array of dimension 1"),
    (lambda x: np.fft.fft(x, norm="both"), ArgumentError, "Invalid norm value both;"),
    (lambda x: np.fft.fftn(x, s=(1, 2), axes=(0,)), ShapeError, "Shape and axes have different lengths."),
    (lambda x: mnp.fft.fftfreq(2.5) + x, ArgumentError, "n should be an integer"),
])  # fmt: skip
def test_mistakes(fn, error, message):
    with pytest.raises(error) as e:
        mr.jit(fn, target="interpret")(numbers(4, np.complex64))
    assert str(e.value).startswith(message) and "test_fourier.py" in str(e.value)


def test_no_points_are_an_error_at_the_call():
    f = mr.jit(lambda x: np.fft.rfft(x), target="interpret")
    same(f(np.ones(3)), np.fft.rfft(np.ones(3)))
    with pytest.raises(ShapeError, match="data points"):
        f(np.ones(0))
    module = mr.parse('''
def main(x: c64[n]) -> c64[n]:
    with dataflow():
        v0: c64[n] = fft(x, axis=0, norm="backward", inverse=False)
        output(v0)
    return v0''')
    for target in ("interpret", "cpu"):
        run = mr.compile(module) if target == "cpu" else lambda x: (mr.ir.interpret.interpret(module, x),)
        same(run(np.ones(2, np.complex64))[0], np.array([2, 0], np.complex64))
        with pytest.raises(ShapeError, match="fft: Invalid number of FFT data points"):
            run(np.ones(0, np.complex64))


@pytest.mark.parametrize("op, type_, error, message", [
    (OPS["rfft"](None, 0), c64["n"], DTypeError, "not defined for c64"),
    (OPS["fft"](None, 2), c64["n"], ShapeError, "are not distinct axes"),
    (OPS["fft"](None, 0, "both"), c64["n"], ShapeError, "there is no norm 'both'"),
    (OPS["irfft"](None, 0, 0), c64[4], ShapeError, TOO_SHORT),
    (OPS["fft"](None, 0), c64[0], ShapeError, TOO_SHORT),
])  # fmt: skip
def test_ops_are_strict(op, type_, error, message):
    with pytest.raises(error, match=message.replace("(", r"\(").replace(")", r"\)")):
        op.infer(type_)

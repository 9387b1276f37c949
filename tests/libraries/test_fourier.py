"""Fourier transforms and convolutions by SciPy."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import numpy as np
import pytest

import minirelax as mr
from minirelax.errors import ArgumentError, LibraryError
from minirelax.frontend.trace import trace
from minirelax.ir.interpret import interpret
from minirelax.libraries import blas, fft
from minirelax.passes.choose_libraries import choose_libraries
from minirelax.pipeline import GRAPH_PASSES, run

rng = np.random.default_rng(5)


def numbers(*shape: int, dtype=np.float32) -> np.ndarray:
    x = rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return (x if np.dtype(dtype).kind == "c" else x.real).astype(dtype)


def chosen(fn, *arrays):
    """The module that the rules make of the program for these arrays, its results for them, and what was noted."""
    stage = run(trace(fn, *arrays).module, (*GRAPH_PASSES, choose_libraries(fft() + blas())))[-1]
    assert mr.parse(str(stage.module)) == stage.module
    return stage.module, interpret(stage.module, *arrays), " ".join(n for n in stage.notes if "never matched" not in n)


def same(got, want) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    tolerance = 1e-4 if want.dtype in (np.float32, np.complex64) else 1e-12
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance * 10)


def convolution(a, b):
    n = a.shape[-1] + b.shape[-1] - 1
    return np.fft.irfft(np.fft.rfft(a, n) * np.fft.rfft(b, n), n)


def test_every_transform():
    def program(x, z):
        real = np.fft.rfft(x), np.fft.rfft(x, axis=0, norm="ortho"), np.fft.irfft(z), np.fft.irfft(z, 5, axis=0, norm="forward")
        return *real, np.fft.fft(z, axis=0), np.fft.ifft(z, norm="ortho"), np.fft.fft2(z), np.fft.irfftn(z, s=(4, 3), axes=(0, 1))

    for real, whole in ((np.float32, np.complex64), (np.float64, np.complex128)):
        for n, m in ((4, 6), (7, 5), (1, 2), (2, 13)):
            x, z = numbers(n, m, dtype=real), numbers(n, m, dtype=whole)
            module, found, _ = chosen(program, x, z)
            for got, want in zip(found, program(x, z), strict=True):
                same(got, want)
            text = str(module)
            assert [text.count(f'call_library("scipy_{name}"') for name in ("fft", "rfft", "irfft")] == [5, 2, 3]
            assert text.count("call_library") == 10


def test_a_convolution_is_one_call():
    for batch_a, batch_b in (((), ()), ((3,), (3,)), ((), (2,)), ((2, 1), (3,)), ((4, 1), (1,))):
        for n, k in ((8, 3), (1, 1), (5, 7)):
            for dtype in (np.float32, np.float64):
                a, b = numbers(*batch_a, n, dtype=dtype), numbers(*batch_b, k, dtype=dtype)
                module, found, notes = chosen(convolution, a, b)
                same(found, convolution(a, b))
                assert "scipy_convolve: taken at" in notes and "c64" not in str(module) and "c128" not in str(module)


def test_a_compiled_convolution():
    f = mr.jit(lambda a, b: np.tanh(convolution(a, b)), libraries=fft())
    for n, k in ((30, 7), (2, 2), (1000, 101)):
        a, b = numbers(3, n), numbers(k)
        same(f(a, b), np.tanh(convolution(a, b)))
    assert len(f.compilations) == 1


@pytest.mark.parametrize("fn, shape", [
    (lambda a, b: np.fft.irfft(np.fft.rfft(a, axis=0) * np.fft.rfft(b.T), 9, axis=0), (9, 5)),
    (lambda a, b: np.fft.irfft(np.fft.rfft(a) * np.fft.rfft(b, norm="ortho"), 9), (3, 9)),
    (lambda a, b: np.fft.irfft(np.fft.rfft(a) * np.fft.rfft(b), 9, axis=0), (5, 9)),
])  # fmt: skip
def test_what_is_no_convolution_keeps_its_transforms(fn, shape):
    a, b = numbers(*shape, dtype=np.float64), numbers(*shape, dtype=np.float64)
    module, found, notes = chosen(fn, a, b)
    assert "scipy_convolve: taken" not in notes and str(module).count("scipy_rfft") == 2
    same(found, fn(a, b))


def test_a_spectrum_that_is_read_elsewhere_stays():
    def program(a, b):
        spectrum = np.fft.rfft(a)
        return np.fft.irfft(spectrum * np.fft.rfft(b), a.shape[0]), np.abs(spectrum)

    a, b = numbers(12), numbers(12)
    module, found, _ = chosen(program, a, b)
    for got, want in zip(found, program(a, b), strict=True):
        same(got, want)
    assert "scipy_convolve" not in str(module)


def test_a_saved_program_finds_the_routines(tmp_path):
    f = mr.jit(convolution, libraries=fft())
    a, b = np.arange(4.0), np.array([1.0, -1.0])
    same(f(a, b), convolution(a, b))
    f.executable.save(tmp_path / "convolution.mr")
    program = (f"import numpy as np, minirelax as mr; f = mr.Executable.load({str(tmp_path / 'convolution.mr')!r}); "
               "print(f(np.arange(4.0), np.array([1.0, -1.0]))[0].round(6).tolist())")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str(convolution(a, b).round(6).tolist()), done.stderr


def test_no_points_name_the_routine():
    module = mr.parse('''
def main(x: c64[n]) -> c64[n]:
    with dataflow():
        v0: c64[n] = call_library("scipy_fft", x, sizes=(0, 0, 0))
        output(v0)
    return v0''')
    with pytest.raises(LibraryError, match="the library routine scipy_fft raised ValueError"):
        interpret(module, np.zeros(0, np.complex64))


def test_without_scipy(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ArgumentError, match="libraries.fft.. needs SciPy, which is not installed") as e:
        fft()
    assert "pip install 'minirelax[scipy]'" in str(e.value)

"""Discrete Fourier transforms: NumPy's `fft`, of one axis and of several.

>>> from minirelax.frontend.trace import trace
>>> from minirelax.ir.types import f32
>>> print(trace(lambda x: np.fft.irfft(np.fft.rfft(x) * 2, n=x.shape[0]), f32["n"]).main)
def main(x: f32[n]) -> f32[n]:
    guard(n > 0)
    with dataflow():
        v0: c64[n//2 + 1] = rfft(x, axis=0, norm="backward")
        v1: c64[n//2 + 1] = multiply(v0, complex(2.0, 0.0))
        v2: f32[n] = irfft(v1, size=n, axis=0, norm="backward")
        output(v2)
    return v2
"""

from __future__ import annotations

import numpy as np

from minirelax.errors import ArgumentError, ShapeError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.create import arange
from minirelax.frontend.functions.join import roll
from minirelax.frontend.functions.registry import function
from minirelax.frontend.operands import as_dtype, asarray, axis_number, cast
from minirelax.frontend.promotion import floating
from minirelax.frontend.size import Size
from minirelax.frontend.ufuncs import call_ufunc, emit
from minirelax.ir.dim import Dim, maximum, minimum
from minirelax.ir.graph import MatchCast
from minirelax.ir.types import WHOLES, Tensor
from minirelax.ops.fourier import HINT, NORMS

OTHER_DIRECTION = {"backward": "forward", "ortho": "ortho", "forward": "backward"}


@function("fft.fft")
def fft(a, n=None, axis=-1, norm=None):
    """The transform along an axis, of `n` points: the array is cut to that many, or filled up with zeros."""
    return _complex(_whole(a), n, axis, norm, False)


@function("fft.ifft")
def ifft(a, n=None, axis=-1, norm=None):
    """The inverse of `fft`."""
    return _complex(_whole(a), n, axis, norm, True)


@function("fft.rfft")
def rfft(a, n=None, axis=-1, norm=None):
    """The first half of the transform of real numbers, of `n` points."""
    x = asarray(a)
    x = as_dtype(x, floating(x.type.dtype) if x.dtype.kind != "c" else "f64")
    at = axis_number(axis, x.ndim)
    x = _sized(x, _points(n, x.dims[at]), at)
    return x.derived(x.builder.op("rfft", x.atom, axis=at, norm=_norm(norm)))


@function("fft.irfft")
def irfft(a, n=None, axis=-1, norm=None):
    """The inverse of `rfft`: `n` real numbers, by default an even number of them."""
    x = _whole(a)
    at = axis_number(axis, x.ndim)
    points = _points(n, 2 * (x.dims[at] - 1))
    return x.derived(x.builder.op("irfft", x.atom, size=points, axis=at, norm=_norm(norm)))


@function("fft.hfft")
def hfft(a, n=None, axis=-1, norm=None):
    """The transform of a signal that is conjugate symmetric: real numbers."""
    return irfft(call_ufunc(np.conjugate, (_whole(a),)), n, axis, OTHER_DIRECTION[_norm(norm)])


@function("fft.ihfft")
def ihfft(a, n=None, axis=-1, norm=None):
    """The inverse of `hfft`."""
    return call_ufunc(np.conjugate, (rfft(a, n, axis, OTHER_DIRECTION[_norm(norm)]),))


@function("fft.fftn")
def fftn(a, s=None, axes=None, norm=None):
    """The transform along several axes, by default all of them."""
    return _along_each(fft, _whole(a), s, axes, norm)


@function("fft.ifftn")
def ifftn(a, s=None, axes=None, norm=None):
    """The inverse of `fftn`."""
    return _along_each(ifft, _whole(a), s, axes, norm)


@function("fft.rfftn")
def rfftn(a, s=None, axes=None, norm=None):
    """`rfft` along the last of several axes, `fft` along the others."""
    x = asarray(a)
    sizes, axes = _sizes_and_axes(x, s, axes)
    x = rfft(x, sizes[-1], axes[-1], norm)
    return _along_each(fft, x, sizes[:-1], axes[:-1], norm) if len(axes) > 1 else x


@function("fft.irfftn")
def irfftn(a, s=None, axes=None, norm=None):
    """The inverse of `rfftn`."""
    x, shapeless = _whole(a), s is None
    sizes, axes = _sizes_and_axes(x, s, axes)
    if len(axes) > 1:
        x = _along_each(ifft, x, sizes[:-1], axes[:-1], norm, forwards=True)
    return irfft(x, None if shapeless else sizes[-1], axes[-1], norm)


@function("fft.fft2")
def fft2(a, s=None, axes=(-2, -1), norm=None):
    """The transform along two axes."""
    return fftn(a, s, axes, norm)


@function("fft.ifft2")
def ifft2(a, s=None, axes=(-2, -1), norm=None):
    """The inverse of `fft2`."""
    return ifftn(a, s, axes, norm)


@function("fft.rfft2")
def rfft2(a, s=None, axes=(-2, -1), norm=None):
    """The transform of real numbers along two axes."""
    return rfftn(a, s, axes, norm)


@function("fft.irfft2")
def irfft2(a, s=None, axes=(-2, -1), norm=None):
    """The inverse of `rfft2`."""
    return irfftn(a, s, axes, norm)


@function("fft.fftshift")
def fftshift(x, axes=None):
    """The zero frequency moved to the middle."""
    return _shifted(asarray(x), axes, 1)


@function("fft.ifftshift")
def ifftshift(x, axes=None):
    """The inverse of `fftshift`."""
    return _shifted(asarray(x), axes, -1)


@function("fft.fftfreq", creates=True)
def fftfreq(n, d=1.0, *, device=None):
    """The frequencies of a transform of `n` points at distance `d`: positive ones, then negative ones."""
    _check_count(n)
    i, half = arange(n), (n - 1) // 2 + 1
    counts = emit("where", i < half, i, i - n)
    return counts * (1.0 / (n * d))


@function("fft.rfftfreq", creates=True)
def rfftfreq(n, d=1.0, *, device=None):
    """The frequencies of the first half of a transform of `n` points."""
    _check_count(n)
    return arange(n // 2 + 1) * (1.0 / (n * d))


def _complex(x: TracedArray, n: object, axis: object, norm: object, inverse: bool) -> TracedArray:
    at = axis_number(axis, x.ndim)
    x = _sized(x, _points(n, x.dims[at]), at)
    return x.derived(x.builder.op("fft", x.atom, axis=at, norm=_norm(norm), inverse=inverse))


def _along_each(one, x: TracedArray, s: object, axes: object, norm: object, forwards: bool = False) -> TracedArray:
    """A transform of one axis for each of several: the last first, as NumPy does."""
    pairs = list(zip(*_sizes_and_axes(x, s, axes), strict=True))
    for n, axis in pairs if forwards else reversed(pairs):
        x = one(x, n, axis, norm)
    return x


def _sizes_and_axes(x: TracedArray, s: object, axes: object) -> tuple[list, list]:
    """The number of points and the axis of each transform."""
    if axes is None:
        axes = range(-len(s), 0) if s is not None else range(x.ndim)
    axes = [axis_number(a, x.ndim) for a in (axes if isinstance(axes, tuple | list | range) else (axes,))]
    sizes = list(s) if s is not None else [-1] * len(axes)
    if len(sizes) != len(axes):
        raise ShapeError("Shape and axes have different lengths.")
    if not axes:
        raise ArgumentError("a transform along no axes is not supported in a compiled function", "name an axis")
    return [x.shape[a] if isinstance(n, int) and n == -1 else n for n, a in zip(sizes, axes, strict=True)], axes


def _shifted(x: TracedArray, axes: object, direction: int) -> TracedArray:
    axes = range(x.ndim) if axes is None else axes if isinstance(axes, tuple | list) else (axes,)
    for axis in axes:
        x = roll(x, direction * (x.shape[axis_number(axis, x.ndim)] // 2), axis)
    return x


def _whole(a: object) -> TracedArray:
    """An array of complex numbers, in single precision if it was."""
    x = asarray(a)
    dtype = floating(x.type.dtype)
    return x.derived(cast(x.builder, x.atom, WHOLES.get(dtype, dtype)))


def _norm(norm: object) -> str:
    if norm is not None and norm not in NORMS:
        raise ArgumentError(f'Invalid norm value {norm}; should be "backward", "ortho" or "forward".')
    return norm or "backward"


def _points(n: object, default: Dim) -> Dim:
    """How many points a transform has: at least one, by a guard if need be."""
    facts = operands.builder().facts
    points = facts.resolve(default if n is None else operands.builder().dims((n,))[0])
    number = points if isinstance(points, int) else facts.hint(points)
    operands.require_nonempty(points, f"Invalid number of FFT data points ({number}) specified.", HINT)
    return facts.resolve(points)


def _sized(x: TracedArray, n: Dim, at: int) -> TracedArray:
    """`x` cut to `n` elements along an axis, or filled up with zeros: for any two sizes."""
    b = x.builder
    size, before = b.facts.resolve(x.dims[at]), x.dims
    if b.facts.is_equal(size, n):
        return operands.conform(x, (*before[:at], n, *before[at + 1 :]))
    kept = size if b.facts.known("<=", size, n) else n if b.facts.known("<=", n, size) else minimum(size, n)
    atom = x.atom
    if kept != size:
        sizes = (*before[:at], kept, *before[at + 1 :])
        atom = b.op("slice", atom, starts=(0,) * x.ndim, sizes=sizes, steps=(1,) * x.ndim)
    if kept != n:
        missing = n - size if kept == size else maximum(n - size, 0)
        widths = tuple((0, missing) if i == at else (0, 0) for i in range(x.ndim))
        atom = b.op("pad", atom, as_dtype(0, x.type.dtype).atom, widths=widths)
        if b.type_of(atom).shape[at] != n:
            atom = b.emit(MatchCast(atom, Tensor(x.type.dtype, (*before[:at], n, *before[at + 1 :]))))
    return x.derived(atom)


def _check_count(n: object) -> None:
    if not isinstance(n, int | np.integer | Size):
        raise ArgumentError("n should be an integer")
    if not n >= 1:
        raise ShapeError("frequencies of a transform of no points", HINT)

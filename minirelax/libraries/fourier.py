"""Fourier transforms by SciPy, and convolutions by transforms as one routine.

Transforms are library calls of NumPy's FFT without any rule.  SciPy's, by the same author, takes several lines of an array at
once with vector instructions, where NumPy's takes one after the other; results are the same to rounding.  A convolution
``irfft(rfft(a) * rfft(b))`` becomes one call: the two spectra and their product, complex numbers of half the size, are then no
arrays of the program, with memory in its plan and a kernel between three calls, but are gone when the routine returns.

>>> import numpy as np
>>> import minirelax as mr
>>> from minirelax.passes.choose_libraries import choose_libraries
>>> def convolve(a, b):
...     return np.fft.irfft(np.fft.rfft(a) * np.fft.rfft(b), a.shape[0])
>>> mr.jit(convolve, libraries=fft())(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0])).round(6)
array([3., 1., 2.])
>>> print(mr.run(mr.trace(convolve, mr.f64["n"], mr.f64["n"]), (choose_libraries(fft()),))[-1].module)
def main(a: f64[n], b: f64[n]) -> f64[n]:
    guard(n > 0)
    with dataflow():
        v3: f64[n] = call_library("scipy_convolve", a, b, sizes=(1, 0))
        output(v3)
    return v3
"""

from __future__ import annotations

import importlib.util

from minirelax.errors import ArgumentError
from minirelax.ops.arithmetic import Multiply
from minirelax.ops.fourier import NORMS, Fft, Irfft, Rfft
from minirelax.passes.choose_libraries import LibraryRule
from minirelax.passes.patterns import Match


def fft(priority: float = 0) -> tuple[LibraryRule, ...]:
    """Rules that hand transforms, and convolutions made of three of them, to SciPy; all are of this priority.

    Raises ArgumentError where SciPy is not installed.
    """
    if importlib.util.find_spec("scipy") is None:
        raise ArgumentError("libraries.fft() needs SciPy, which is not installed", "pip install 'minirelax[scipy]'")
    return tuple(
        LibraryRule(name, pattern, check, priority=priority, arguments=_arrays, sizes=sizes)
        for name, pattern, check, sizes in (
            (
                "scipy_convolve",
                lambda a, b, n, i, j, k, p: Irfft(Multiply(Rfft(a, i, p), Rfft(b, j, p)), n, k, p),
                _is_along_one_axis,
                lambda match: (_from_the_end(match, match["k"]), NORMS.index(match["p"])),
            ),
            ("scipy_fft", lambda x, i, p, d: Fft(x, i, p, d), None, lambda match: (*_sizes(match), int(match["d"]))),
            ("scipy_rfft", lambda x, i, p: Rfft(x, i, p), None, _sizes),
            ("scipy_irfft", lambda x, n, i, p: Irfft(x, n, i, p), None, _sizes),
        )
    )


# ---- the routines: SciPy's functions give new arrays, which are copied to where the program wants them


def convolve(a, b, out, back, norm):
    """``irfft(rfft(a) * rfft(b), n)`` along the axis that is so many from the end."""
    from scipy import fft as scipy_fft

    spectrum = scipy_fft.rfft(a, axis=-back, norm=NORMS[norm]) * scipy_fft.rfft(b, axis=-back, norm=NORMS[norm])
    out[...] = scipy_fft.irfft(spectrum, out.shape[-back], axis=-back, norm=NORMS[norm], overwrite_x=True)


def transform(x, out, axis, norm, is_inverse):
    """The transform of complex numbers, or its inverse."""
    from scipy import fft as scipy_fft

    out[...] = (scipy_fft.ifft if is_inverse else scipy_fft.fft)(x, axis=axis, norm=NORMS[norm])


def real_transform(x, out, axis, norm):
    """The half of the transform of real numbers."""
    from scipy import fft as scipy_fft

    out[...] = scipy_fft.rfft(x, axis=axis, norm=NORMS[norm])


def inverse_real_transform(x, out, axis, norm):
    """Real numbers from the half of their transform."""
    from scipy import fft as scipy_fft

    out[...] = scipy_fft.irfft(x, out.shape[axis], axis=axis, norm=NORMS[norm])


ROUTINES = {
    "scipy_convolve": convolve,
    "scipy_fft": transform,
    "scipy_rfft": real_transform,
    "scipy_irfft": inverse_real_transform,
}


# ---- what the rules look at


def _arrays(match: Match) -> list:
    """What the routine reads: the arrays, without sizes."""
    return [match[name] for name in ("a", "b", "x") if name in match.found]


def _sizes(match: Match) -> tuple[int, int]:
    return match["i"], NORMS.index(match["p"])


def _from_the_end(match: Match, axis: int) -> int:
    return len(match.root.var.type.shape) - axis


def _is_along_one_axis(match: Match) -> bool:
    """Are all three transforms along the axis that is so many from the end?  Products align arrays there."""
    back = _from_the_end(match, match["k"])
    return all(len(match[x].type.shape) - match[axis] == back for x, axis in (("a", "i"), ("b", "j")))


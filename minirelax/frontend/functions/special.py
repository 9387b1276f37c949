"""Elementwise functions that are no ufuncs in NumPy: rounding to digits, comparisons with a tolerance, erf."""

from __future__ import annotations

import math

import numpy as np

from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.reduce import all_
from minirelax.frontend.functions.registry import function
from minirelax.frontend.operands import as_dtype, asarray, kind, promoted
from minirelax.frontend.promotion import floating, loop
from minirelax.frontend.ufuncs import call_ufunc, emit
from minirelax.ops import OPS


def _erf(x):
    """The error function of real arrays."""
    x = np.asarray(x)
    return OPS["erf"](None).numpy(x if x.dtype.kind == "f" else x.astype(np.float64))[()]


@function("erf", eager=_erf, real=True)
def erf(x, /):
    """The error function: the probability that a normal variable lies within ``sqrt(2)*x`` deviations, with the sign of `x`."""
    return emit("erf", as_dtype(x, loop(np.exp, (kind(x),))[1]))


@function("round", "around", real=True)
def round_(a, decimals=0):
    """Rounded to decimals, halves to even."""
    x = asarray(a)
    if x.dtype.kind in "iub" and decimals >= 0:
        return as_dtype(x, "i64") if x.weak else x.copy()
    dtype = x.type.dtype
    x = as_dtype(x, floating(dtype))
    if decimals == 0:
        return call_ufunc(np.rint, (x,))
    scale = 10.0 ** abs(decimals)
    found = call_ufunc(np.rint, (x * scale if decimals > 0 else x / scale,))
    return as_dtype(found / scale if decimals > 0 else found * scale, dtype)


@function("fix", real=True)
def fix(x):
    """Rounded toward zero."""
    return call_ufunc(np.trunc, (x,))


@function("sinc", real=True)
def sinc(x):
    """``sin(pi*x) / (pi*x)``, 1 at 0."""
    x = as_dtype(x, floating(asarray(x).type.dtype))
    y = emit("where", x == 0, as_dtype(1.0e-20, x.type.dtype), x) * math.pi
    return call_ufunc(np.sin, (y,)) / y


@function("isclose")
def isclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Is each pair equal within a tolerance?"""
    x, y = promoted(a, b)
    if x.dtype.kind not in "fc":
        x, y = as_dtype(x, "f64"), as_dtype(y, "f64")
    near = call_ufunc(np.absolute, (x - y,)) <= call_ufunc(np.absolute, (y,)) * rtol + atol
    finite = call_ufunc(np.isfinite, (y,))
    close = emit("where", finite, near, x == y)
    if equal_nan:
        both = call_ufunc(np.logical_and, (call_ufunc(np.isnan, (x,)), call_ufunc(np.isnan, (y,))))
        close = call_ufunc(np.logical_or, (close, both))
    return close


@function("allclose")
def allclose(a, b, rtol=1e-5, atol=1e-8, equal_nan=False):
    """Are all pairs equal within a tolerance?  A traced value: Python cannot branch on it."""
    return all_(isclose(a, b, rtol, atol, equal_nan))


@function("array_equal")
def array_equal(a1, a2, equal_nan=False):
    """Are two arrays equal, in shape and everywhere?"""
    x, y = asarray(a1), asarray(a2)
    facts = operands.builder().facts
    if x.ndim != y.ndim or not all(facts.decide("==", d, e, declared=True) for d, e in zip(x.dims, y.dims, strict=True)):
        return TracedArray(x.builder, as_dtype(False, "bool").atom)
    same = x == y
    if equal_nan and x.dtype.kind in "fc" and y.dtype.kind in "fc":
        same = call_ufunc(
            np.logical_or, (same, call_ufunc(np.logical_and, (call_ufunc(np.isnan, (x,)), call_ufunc(np.isnan, (y,)))))
        )
    return all_(same)


@function("isposinf", real=True)
def isposinf(x):
    """Is each element infinity?"""
    return asarray(x) == float("inf")


@function("isneginf", real=True)
def isneginf(x):
    """Is each element minus infinity?"""
    return asarray(x) == float("-inf")


@function("iscomplex")
def iscomplex(x):
    """Where is the imaginary part another number than 0?"""
    return call_ufunc(np.not_equal, (asarray(x).imag, 0))


@function("isreal")
def isreal(x):
    """Where is the imaginary part 0?"""
    return call_ufunc(np.equal, (asarray(x).imag, 0))

"""Elementwise functions of floats: roots, exponentials, logarithms, angles.  Integers are cast before they come here."""
from __future__ import annotations

import math

import numpy as np

from minirelax.ir.op import op
from minirelax.ir.scalar import apply, literal
from minirelax.ops.complex_scalars import exp as complex_exp
from minirelax.ops.elementwise import FloatBinary, FloatUnary
from minirelax.ops.rules import COMPLEX, INEXACT


@op
class Sqrt(FloatUnary):
    """The square root."""

    ufunc = np.sqrt


@op
class Cbrt(FloatUnary):
    """The cube root."""

    ufunc = np.cbrt


@op
class Exp(FloatUnary):
    """e to the power of `x`, a float or a complex number."""

    ufunc, accepts = np.exp, INEXACT

    def scalar(self, x):
        return complex_exp(x) if x.dtype in COMPLEX else super().scalar(x)


@op
class Exp2(FloatUnary):
    """2 to the power of `x`."""

    ufunc = np.exp2


@op
class Expm1(FloatUnary):
    """``exp(x) - 1``, exact near 0."""

    ufunc = np.expm1


@op
class Log(FloatUnary):
    """The natural logarithm."""

    ufunc = np.log


@op
class Log2(FloatUnary):
    """The logarithm to base 2."""

    ufunc = np.log2


@op
class Log10(FloatUnary):
    """The logarithm to base 10."""

    ufunc = np.log10


@op
class Log1p(FloatUnary):
    """``log(1 + x)``, exact near 0."""

    ufunc = np.log1p


@op
class Sin(FloatUnary):
    """The sine of `x` radians."""

    ufunc = np.sin


@op
class Cos(FloatUnary):
    """The cosine of `x` radians."""

    ufunc = np.cos


@op
class Tan(FloatUnary):
    """The tangent of `x` radians."""

    ufunc = np.tan


@op
class Arcsin(FloatUnary):
    """The angle in radians with sine `x`."""

    ufunc = np.arcsin


@op
class Arccos(FloatUnary):
    """The angle in radians with cosine `x`."""

    ufunc = np.arccos


@op
class Arctan(FloatUnary):
    """The angle in radians with tangent `x`."""

    ufunc = np.arctan


@op
class Sinh(FloatUnary):
    """The hyperbolic sine."""

    ufunc = np.sinh


@op
class Cosh(FloatUnary):
    """The hyperbolic cosine."""

    ufunc = np.cosh


@op
class Tanh(FloatUnary):
    """The hyperbolic tangent."""

    ufunc = np.tanh


@op
class Arcsinh(FloatUnary):
    """The inverse of `sinh`."""

    ufunc = np.arcsinh


@op
class Arccosh(FloatUnary):
    """The inverse of `cosh`."""

    ufunc = np.arccosh


@op
class Arctanh(FloatUnary):
    """The inverse of `tanh`."""

    ufunc = np.arctanh


@op
class Erf(FloatUnary):
    """The error function: ``2/sqrt(pi)`` times the integral of ``exp(-t*t)`` from 0 to `x`."""

    def numpy(self, x):
        return np.vectorize(math.erf, otypes=[np.float64])(x).astype(np.asarray(x).dtype)


@op
class Arctan2(FloatBinary):
    """The angle in radians of the point ``(y, x)``; the first operand is the ordinate."""

    ufunc = np.arctan2


@op
class Hypot(FloatBinary):
    """``sqrt(x*x + y*y)`` without overflow on the way."""

    ufunc = np.hypot


@op
class Logaddexp(FloatBinary):
    """``log(exp(x) + exp(y))`` without overflow on the way."""

    ufunc = np.logaddexp

    def scalar(self, x, y):
        # max + log1p(exp(-|x - y|)); equal operands apart, because inf - inf is NaN
        distance = apply("absolute", apply("subtract", x, y))
        apart = apply("add", apply("maximum", x, y), apply("log1p", apply("exp", apply("negative", distance))))
        return apply("where", apply("equal", x, y), apply("add", x, literal(math.log(2.0), x.dtype)), apart)

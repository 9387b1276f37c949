"""Functions of complex numbers as scalars of their parts, with the results that NumPy has for infinities, NaN and zeros.

Sums, differences, products and quotients are scalars of their own (`minirelax.codegen.complex_math` says how they are computed);
what is here is made of them and of functions of real numbers.

>>> from minirelax.ir.dim import symbol
>>> from minirelax.ir.scalar import load
>>> print(absolute(load("x", (symbol("i"),), "c64")))
hypot(real(x[i]), imag(x[i]))
"""
from __future__ import annotations

import math

from minirelax.ir.scalar import Scalar, apply, complex_of, literal, parts_of

LARGEST_EXPONENT = {"f32": 80.0, "f64": 700.0}       # e to this power is finite, also after one more product


def absolute(x: Scalar) -> Scalar:
    """The distance from 0, without overflow on the way."""
    return apply("hypot", *parts_of(x))


def conjugate(x: Scalar) -> Scalar:
    """The imaginary part negated."""
    real, imag = parts_of(x)
    return complex_of(real, apply("negative", imag))


def equal(x: Scalar, y: Scalar) -> Scalar:
    """Are both parts equal?"""
    (a, b), (c, d) = parts_of(x), parts_of(y)
    return apply("logical_and", apply("equal", a, c), apply("equal", b, d))


def either(function: str, x: Scalar) -> Scalar:
    """Does a predicate hold for one of the parts?"""
    real, imag = parts_of(x)
    return apply("logical_or", apply(function, real), apply(function, imag))


def both(function: str, x: Scalar) -> Scalar:
    """Does a predicate hold for both parts?"""
    real, imag = parts_of(x)
    return apply("logical_and", apply(function, real), apply(function, imag))


def reciprocal(x: Scalar) -> Scalar:
    """``1 / x``, scaled by the larger part (Smith 1962); ``nan+nanj`` for 0, as NumPy's function has it."""
    real, imag = parts_of(x)
    one = literal(1, real.dtype)
    flat = apply("less_equal", apply("absolute", imag), apply("absolute", real))
    ratio = apply("where", flat, apply("divide", imag, real), apply("divide", real, imag))
    scaled = apply("where", flat, apply("multiply", imag, ratio), apply("multiply", real, ratio))
    whole = apply("add", apply("where", flat, real, imag), scaled)
    return complex_of(apply("divide", apply("where", flat, one, ratio), whole),
                      apply("divide", apply("negative", apply("where", flat, ratio, one)), whole))


def exp(x: Scalar) -> Scalar:
    """``e**real * (cos(imag) + 1j*sin(imag))``: a real number's is real, and large ones overflow no earlier than the result."""
    real, imag = parts_of(x)
    dtype, zero, inf = real.dtype, literal(0, real.dtype), literal(math.inf, real.dtype)
    most = literal(LARGEST_EXPONENT[dtype], dtype)
    large = apply("greater", real, most)
    power = apply("exp", apply("where", large, apply("subtract", real, most), real))
    scale = apply("where", large, literal(math.exp(most.value), dtype), literal(1, dtype))
    turned = [apply("multiply", apply("multiply", power, apply(f, imag)), scale) for f in ("cos", "sin")]
    no_angle = apply("logical_not", apply("isfinite", imag))
    least, largest = (apply("logical_and", no_angle, apply("equal", real, end)) for end in (literal(-math.inf, dtype), inf))
    is_real = apply("equal", imag, zero)
    found = []
    alone_real, nan = apply("multiply", power, scale), literal(math.nan, dtype)
    for part, alone, at_infinity in ((turned[0], alone_real, inf), (turned[1], imag, nan)):
        part = apply("where", largest, at_infinity, apply("where", least, zero, part))
        found.append(apply("where", is_real, alone, part))
    return complex_of(*found)


def whole_power(x: Scalar, exponent: int) -> Scalar:
    """A power with a whole exponent, -100 to 100, by repeated squares in NumPy's order."""
    if exponent == 0:
        return literal(1, x.dtype)
    if exponent in (1, 2, 3):
        return [x, apply("multiply", x, x), apply("multiply", x, apply("multiply", x, x))][exponent - 1]
    one = literal(1, x.dtype)
    found, square, rest = one, x, abs(exponent)
    while rest:
        if rest & 1:
            found = apply("multiply", found, square)
        rest >>= 1
        square = apply("multiply", square, square) if rest else square
    return apply("divide", one, found) if exponent < 0 else found


def is_whole_power(exponent: complex) -> bool:
    """Does `whole_power` have this exponent?"""
    exponent = complex(exponent)
    return exponent.imag == 0 and abs(exponent.real) < 100 and exponent.real == int(exponent.real)

"""Arithmetic of complex numbers as NumPy's loops have it, and their parts: LLVM structs of two floats.

Products are the plain formula, without a second look at infinities, as C has with ``-fcx-limited-range``; quotients are scaled by
the larger part of the divisor (Smith, *Algorithm 116: complex division*, 1962).  ``(inf + 0j) * 1`` is ``inf + nanj``, therefore.

>>> sorted(table())[:3]
['add_c128', 'add_c64', 'c128_of_c64']
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from minirelax.codegen.value import F32, F64, Value, intrinsic, select
from minirelax.ir.types import PARTS


def real(z: Value) -> Value:
    return Value(z.builder, z.builder.extract_value(z.value, 0))


def imag(z: Value) -> Value:
    return Value(z.builder, z.builder.extract_value(z.value, 1))


def complex_of(a: Value, b: Value) -> Value:
    pair = ir.Constant(ir.LiteralStructType([a.type, a.type]), ir.Undefined)
    for place, part in enumerate((a, b)):
        pair = a.builder.insert_value(pair, part.value, place)
    return Value(a.builder, pair)


def add(x: Value, y: Value) -> Value:
    return complex_of(real(x) + real(y), imag(x) + imag(y))


def subtract(x: Value, y: Value) -> Value:
    return complex_of(real(x) - real(y), imag(x) - imag(y))


def negative(x: Value) -> Value:
    return complex_of(-real(x), -imag(x))


def multiply(x: Value, y: Value) -> Value:
    a, b, c, d = real(x), imag(x), real(y), imag(y)
    return complex_of(a * c - b * d, a * d + b * c)


def divide(x: Value, y: Value) -> Value:
    """``x / y``; by zero, both parts are divided by zero."""
    a, b, c, d = real(x), imag(x), real(y), imag(y)
    wide, high = intrinsic("fabs", c), intrinsic("fabs", d)
    flat = wide >= high
    large, small = select(flat, c, d), select(flat, d, c)
    ratio = small / large
    scale = 1 / (large + small * ratio)
    first = select(flat, a + b * ratio, a * ratio + b) * scale
    second = select(flat, b - a * ratio, b * ratio - a) * scale
    zero = (wide == 0) & (high == 0)
    return complex_of(select(zero, a / wide, first), select(zero, b / wide, second))


def widened(z: Value, kind: ir.Type) -> Value:
    return complex_of(real(z).convert(kind), imag(z).convert(kind))


def table() -> dict[str, tuple[Callable[..., Value], str, tuple[str, ...]]]:
    """name -> (function, result dtype, argument dtypes)."""
    found: dict[str, tuple[Callable[..., Value], str, tuple[str, ...]]] = {
        "c64_of_c128": (lambda z: widened(z, F32), "c64", ("c128",)),
        "c128_of_c64": (lambda z: widened(z, F64), "c128", ("c64",)),
    }
    for whole, part in PARTS.items():
        found |= {f"{f.__name__}_{whole}": (f, whole, (whole, whole)) for f in (add, subtract, multiply, divide)}
        found |= {f"{f.__name__}_{whole}": (f, part, (whole,)) for f in (real, imag)}
        found[f"negative_{whole}"] = (negative, whole, (whole,))
        found[f"complex_{whole}"] = (complex_of, whole, (part, part))
    return found

"""Elementwise arithmetic: sums, products, quotients, powers, the larger and the smaller.

Integers wrap.  Division of an integer by zero gives 0, as in NumPy.  ``bool`` has the ops that NumPy gives it: ``add``
is *or*, ``multiply`` is *and*, ``maximum`` is *or*, ``minimum`` is *and*; there is no ``subtract``.
"""
from __future__ import annotations

import numpy as np

from minirelax.ir.graph import Const
from minirelax.ir.op import op
from minirelax.ir.scalar import Literal, apply, literal
from minirelax.ir.types import PARTS, Tensor
from minirelax.ops.complex_scalars import absolute, is_whole_power, reciprocal, whole_power
from minirelax.ops.elementwise import Binary, FloatBinary, FloatUnary, Unary, sample
from minirelax.ops.rules import ANY, COMPLEX, EVERY, FLOATS, INEXACT, NUMBERS, dtype_error


class OnBool:
    """For an op that is a logical function on ``bool``: `on_bool` names that function."""

    on_bool: str

    def scalar(self, x, y):
        return apply(self.on_bool if x.dtype == "bool" else self.opname(), x, y, dtype=x.dtype)


@op
class Add(OnBool, Binary):
    """``x + y``."""

    ufunc, accepts, on_bool = np.add, EVERY, "logical_or"


@op
class Subtract(Binary):
    """``x - y``."""

    ufunc, accepts = np.subtract, (*NUMBERS, *COMPLEX)


@op
class Multiply(OnBool, Binary):
    """``x * y``."""

    ufunc, accepts, on_bool = np.multiply, EVERY, "logical_and"


@op
class Divide(FloatBinary):
    """``x / y``, of floats or complex numbers."""

    ufunc, accepts = np.divide, INEXACT


@op
class FloorDivide(Binary):
    """``x // y``: the quotient rounded down."""

    ufunc = np.floor_divide


@op
class Remainder(Binary):
    """``x % y``: what `floor_divide` leaves, with the sign of `y`."""

    ufunc = np.remainder


@op
class Fmod(Binary):
    """What division rounded toward zero leaves, with the sign of `x`."""

    ufunc = np.fmod


@op
class Power(Binary):
    """``x ** y``.  Integers to negative powers are an error in NumPy and undefined in kernels.

    Complex numbers have whole constant exponents below 100 here; for others there is `complex_power`.
    """

    ufunc, accepts = np.power, (*NUMBERS, *COMPLEX)

    def infer(self, x, y):
        found = super().infer(x, y)
        if found.dtype in COMPLEX and not (isinstance(self.y, Const) and is_whole_power(self.y.value)):
            raise dtype_error(self, (x, y), "a complex power needs a whole constant exponent", "use complex_power")
        return found

    def scalar(self, x, y):
        # small constant powers are products: exact for integers, within two roundings for floats, and far cheaper than pow
        if x.dtype in COMPLEX:
            return whole_power(x, int(complex(y.value).real))
        match y:
            case Literal(value=1):
                return x
            case Literal(value=2):
                return apply("multiply", x, x)
            case Literal(value=3):
                return apply("multiply", apply("multiply", x, x), x)
            case Literal(value=4):
                square = apply("multiply", x, x)
                return apply("multiply", square, square)
        return super().scalar(x, y)

    @classmethod
    def examples(cls):
        return [(cls(None, None), arrays) for arrays in (
            (sample("f32", 13, 1), sample("f32", 13)), (sample("i64", 2, 3), np.array([0, 1, 5])),
            (sample("u8", 5), sample("u8", 5)))]


@op
class Maximum(OnBool, Binary):
    """The larger of the two; NaN if either is."""

    ufunc, accepts, on_bool = np.maximum, ANY, "logical_or"


@op
class Minimum(OnBool, Binary):
    """The smaller of the two; NaN if either is."""

    ufunc, accepts, on_bool = np.minimum, ANY, "logical_and"


@op
class Fmax(Binary):
    """The larger of the two; the other if one is NaN."""

    ufunc = np.fmax

    def scalar(self, x, y):
        return apply("fmax" if x.dtype in FLOATS else "maximum", x, y)


@op
class Fmin(Binary):
    """The smaller of the two; the other if one is NaN."""

    ufunc = np.fmin

    def scalar(self, x, y):
        return apply("fmin" if x.dtype in FLOATS else "minimum", x, y)


@op
class Negative(Unary):
    """``-x``."""

    ufunc, accepts = np.negative, (*NUMBERS, *COMPLEX)


@op
class Absolute(Unary):
    """``|x|``; the smallest integer stays as it is.  Of a complex number it is real."""

    ufunc, accepts = np.absolute, EVERY

    def infer(self, x):
        found = super().infer(x)
        return Tensor(PARTS.get(found.dtype, found.dtype), found.shape)

    def scalar(self, x):
        return absolute(x) if x.dtype in COMPLEX else x if x.dtype[0] in "bu" else super().scalar(x)


@op
class Sign(Unary):
    """-1, 0 or 1; NaN for NaN."""

    ufunc = np.sign


@op
class Reciprocal(FloatUnary):
    """``1 / x``, of floats or complex numbers."""

    ufunc, accepts = np.reciprocal, INEXACT

    def scalar(self, x):
        return reciprocal(x) if x.dtype in COMPLEX else apply("divide", literal(1, x.dtype), x)


@op
class Square(Unary):
    """``x * x``."""

    ufunc, accepts = np.square, (*NUMBERS, *COMPLEX)

    def scalar(self, x):
        return apply("multiply", x, x)


@op
class Copysign(FloatBinary):
    """The magnitude of `x` with the sign of `y`."""

    ufunc = np.copysign


@op
class Nextafter(FloatBinary):
    """The float next to `x` in the direction of `y`."""

    ufunc, library = np.nextafter, True

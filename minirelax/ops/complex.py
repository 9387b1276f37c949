"""Complex numbers: their parts, what is made of parts, and functions that NumPy computes.

>>> from minirelax.ir.types import c64, f32
>>> Real(None).infer(c64["n"]), Complex(None, None).infer(f32["n", 1], f32[3]), ComplexFunction(None, "sqrt").infer(c64["n"])
(f32[n], c64[n, 3], c64[n])
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.scalar import complex_of, parts_of
from minirelax.ir.types import PARTS, WHOLES, Tensor
from minirelax.ops.complex_scalars import conjugate
from minirelax.ops.elementwise import FloatBinary, Unary, sample
from minirelax.ops.rules import COMPLEX, accept, broadcast, dtype_error, same_dtype

FUNCTIONS = ("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cos", "cosh", "exp2", "expm1", "log", "log10",
             "log1p", "log2", "rint", "sign", "sin", "sinh", "sqrt", "tan", "tanh")


@dataclass(frozen=True)
class Part(Unary):
    """One part of complex numbers."""

    accepts = COMPLEX

    @classmethod
    def example_dtypes(cls):
        return COMPLEX

    def infer(self, x):
        return Tensor(PARTS[super().infer(x).dtype], x.shape)


@op
class Real(Part):
    """The real part."""

    def numpy(self, x):
        return np.array(np.real(x))

    def scalar(self, x):
        return parts_of(x)[0]


@op
class Imag(Part):
    """The imaginary part."""

    def numpy(self, x):
        return np.array(np.imag(x))

    def scalar(self, x):
        return parts_of(x)[1]


@op
class Complex(FloatBinary):
    """The complex numbers with the real parts `x` and the imaginary parts `y`."""

    def infer(self, x, y):
        dtype = accept(self, (x, y), same_dtype(self, (x, y)), self.accepts)
        return Tensor(WHOLES[dtype], broadcast(self, (x, y)))

    def numpy(self, x, y):
        x, y = np.broadcast_arrays(x, y)
        return np.stack([x, y], axis=-1).view(np.result_type(x, np.complex64))[..., 0]

    def scalar(self, x, y):
        return complex_of(x, y)


@op
class Conjugate(Unary):
    """The imaginary part negated."""

    ufunc, accepts = np.conjugate, COMPLEX

    def scalar(self, x):
        return conjugate(x)


@op
class ComplexFunction(Op):
    """NumPy's function of that name of complex numbers: where parts need care near branch cuts, it is not written anew."""

    x: Atom
    function: str

    library = True

    def infer(self, x):
        accept(self, (x,), same_dtype(self, (x,)), COMPLEX)
        if self.function not in FUNCTIONS:
            what = f"there is no function {self.function} of complex numbers"
            raise dtype_error(self, (x,), what, f"there are {', '.join(FUNCTIONS)}")
        return x

    def numpy(self, x):
        return np.asarray(getattr(np, self.function)(x))

    @classmethod
    def examples(cls):
        whole = [(cls(None, f), (sample(t, 13),)) for f in FUNCTIONS for t in COMPLEX]
        return [*whole, (cls(None, "sqrt"), (sample("c64", 2, 0),))]


@op
class ComplexPower(Op):
    """``x ** y`` of complex numbers, by NumPy.  A whole constant exponent is a `power`, of products."""

    x: Atom
    y: Atom

    library = True

    def infer(self, x, y):
        dtype = accept(self, (x, y), same_dtype(self, (x, y)), COMPLEX)
        return Tensor(dtype, broadcast(self, (x, y)))

    def numpy(self, x, y):
        return np.asarray(np.power(x, y))

    @classmethod
    def examples(cls):
        return [(cls(None, None), (sample(t, *a), sample(t, *b))) for t in COMPLEX for a, b in (((13, 1), (13,)), ((5,), ()))]

"""Elementwise ops: what they have in common, and the two that choose or convert: `where` and `cast`.

An elementwise op names its NumPy ufunc, the dtypes that it accepts, and its result's dtype if that is not the operands'.
Operands have one dtype and broadcast against each other.

>>> from minirelax.ir.types import bool_, f32
>>> from minirelax.ops import OPS
>>> OPS["exp"](None).infer(f32["n"]), OPS["less"](None, None).infer(f32["n", 1], f32[3])
(f32[n], bool[n, 3])
>>> Where(None, None, None).infer(bool_["n"], f32["n"], f32[()])
f32[n]
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.scalar import Scalar, apply, cast
from minirelax.ir.tensor import KernelBuilder, TensorExpr
from minirelax.ir.types import NUMPY_DTYPES, Tensor
from minirelax.ops.rules import (
    COMPLEX,
    EVERY,
    FLOATS,
    NUMBERS,
    PARTS_HINT,
    accept,
    broadcast,
    broadcast_at,
    dtype_error,
    same_dtype,
)

SAMPLES = {"f": (-2.5, -1.0, -0.5, -0.0, 0.0, 0.3, 0.75, 1.0, 1.5, 2.0, float("inf"), float("-inf"), float("nan")),
           "i": (-128, -7, -3, -2, -1, 0, 1, 2, 3, 5, 7, 100, 127), "u": (0, 1, 2, 3, 4, 5, 6, 7, 8, 100, 200, 254, 255),
           "b": (False, True),
           "c": (1 + 2j, -1.5 - 0.5j, complex(0.0, -0.0), complex(-0.0, 3.0), 0.75j, complex(float("inf"), 1.0), -2.5 + 0j,
                 complex(2.0, float("-inf")), complex(0.3, -0.3), complex(float("nan"), 1.0), complex(1.0, float("nan")), 3 + 4j,
                 1 + 0j)}


@dataclass(frozen=True)
class Elementwise(Op):
    """One scalar function at every index."""

    ufunc = None                 # the NumPy function
    accepts = NUMBERS            # dtypes of the operands
    result = None                # dtype of the result; None: that of the operands

    def infer(self, *types: Tensor) -> Tensor:
        dtype = accept(self, types, same_dtype(self, types), self.accepts)
        return Tensor(self.result or dtype, broadcast(self, types))

    def numpy(self, *arrays):
        return self.ufunc(*arrays)

    def lower(self, k: KernelBuilder, *args: TensorExpr) -> TensorExpr:
        type_ = self.infer(*(a.type for a in args))
        return TensorExpr(type_.shape, type_.dtype, lambda *i: self.scalar(*(broadcast_at(a, i) for a in args)))

    def scalar(self, *args: Scalar) -> Scalar:
        """The value at one index, from the operands' values there."""
        return apply(self.opname(), *args, dtype=self.result or args[0].dtype)

    @classmethod
    def example_dtypes(cls) -> tuple[str, ...]:
        """A few of the accepted dtypes: one of each kind."""
        return tuple(t for t in ("f32", "f64", "i8", "u8", "bool", "c64") if t in cls.accepts)


@dataclass(frozen=True)
class Unary(Elementwise):
    """An elementwise op of one operand."""

    x: Atom

    @classmethod
    def examples(cls):
        return [(cls(None), (sample(t, *shape),)) for t in cls.example_dtypes() for shape in ((13,), (2, 0))]


@dataclass(frozen=True)
class Binary(Elementwise):
    """An elementwise op of two operands."""

    x: Atom
    y: Atom

    @classmethod
    def examples(cls):
        return [(cls(None, None), arrays) for t in cls.example_dtypes()
                for arrays in ((sample(t, 13, 1), sample(t, 13)), (sample(t, 2, 3), sample(t, 3)), (sample(t, 5), sample(t)))]


@dataclass(frozen=True)
class FloatUnary(Unary):
    """A function of one float."""

    accepts = FLOATS


@dataclass(frozen=True)
class FloatBinary(Binary):
    """A function of two floats."""

    accepts = FLOATS


@op
class Where(Elementwise):
    """`x` where `condition` is true, else `y`."""

    condition: Atom
    x: Atom
    y: Atom

    def infer(self, condition, x, y):
        types = (condition, x, y)
        shape = broadcast(self, types)
        if condition.dtype != "bool" or x.dtype != y.dtype:
            raise dtype_error(self, types, "needs a bool condition and values of one dtype", "compare or cast: x.astype(...)")
        return Tensor(x.dtype, shape)

    def numpy(self, condition, x, y):
        return np.where(condition, x, y)

    def scalar(self, condition, x, y):
        return x if x is y else apply("where", condition, x, y)

    @classmethod
    def examples(cls):
        dtypes = ("f32", "u8", "bool", "c128")
        return [(cls(None, None, None), (sample("bool", 2, 3), sample(t, 3), sample(t, 2, 1))) for t in dtypes]


@op
class Cast(Elementwise):
    """Each element converted to `dtype` as NumPy's ``astype`` converts: floats truncate toward zero, integers wrap.

    A complex number is true where it is not 0; it becomes no real number, which NumPy does with a warning: take its real part.
    """

    x: Atom
    dtype: str
    accepts = EVERY

    def infer(self, x):
        super().infer(x)
        if self.dtype not in NUMPY_DTYPES:
            raise dtype_error(self, (x,), f"there is no dtype {self.dtype}", f"use one of {', '.join(NUMPY_DTYPES)}")
        if x.dtype in COMPLEX and self.dtype not in (*COMPLEX, "bool"):
            raise dtype_error(self, (x,), f"{x.dtype} is not converted to {self.dtype}", PARTS_HINT)
        return Tensor(self.dtype, x.shape)

    def numpy(self, x):
        return np.asarray(x).astype(NUMPY_DTYPES[self.dtype])

    def scalar(self, x):
        return cast(x, self.dtype)

    @classmethod
    def examples(cls):
        finite = np.array([-3.7, -0.5, 0.0, 0.9, 100.4], np.float32)
        return [(cls(None, to), (x,)) for to, x in (
            ("i32", finite), ("i8", finite), ("f64", finite), ("f32", finite), ("i8", sample("i64", 13) * 100),
            ("u8", sample("i64", 13)), ("f32", sample("bool", 2, 3)), ("bool", sample("f64", 13)), ("bool", sample("c64", 13)),
            ("c128", sample("c64", 13)), ("c64", sample("c128", 2, 3)), ("c64", sample("f64", 13)), ("c128", sample("bool", 3)))]


def sample(dtype: str, *shape: int) -> np.ndarray:
    """An array with ordinary and extreme values of its dtype; a shape of none is a scalar."""
    numpy_dtype = NUMPY_DTYPES[dtype]
    values = np.array(SAMPLES[numpy_dtype.kind]).astype(numpy_dtype)
    return np.resize(np.roll(values, -5 * len(shape)), shape) if shape else np.array(values[9 % len(values)])

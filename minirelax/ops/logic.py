"""Elementwise logic: on truth values, and on the bits of integers."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.ir.op import op
from minirelax.ir.scalar import apply, cast
from minirelax.ops.elementwise import Binary, Elementwise, Unary, sample
from minirelax.ops.rules import EVERY, INTEGERS


@dataclass(frozen=True)
class Logical(Elementwise):
    """A function of truth values: an operand of another dtype is true where it is not 0."""

    accepts, result = EVERY, "bool"

    def scalar(self, *args):
        return apply(self.opname(), *(cast(a, "bool") for a in args), dtype="bool")


@dataclass(frozen=True)
class Bitwise(Elementwise):
    """A function of each bit; on ``bool``, the logical function `on_bool`."""

    accepts = ("bool", *INTEGERS)

    def scalar(self, *args):
        return apply(self.on_bool if args[0].dtype == "bool" else self.opname(), *args, dtype=args[0].dtype)


@op
class LogicalAnd(Logical, Binary):
    """Are both true?"""

    ufunc = np.logical_and


@op
class LogicalOr(Logical, Binary):
    """Is either true?"""

    ufunc = np.logical_or


@op
class LogicalXor(Logical, Binary):
    """Is exactly one true?"""

    ufunc = np.logical_xor


@op
class LogicalNot(Logical, Unary):
    """Is it false?"""

    ufunc = np.logical_not


@op
class BitwiseAnd(Bitwise, Binary):
    """``x & y``."""

    ufunc, on_bool = np.bitwise_and, "logical_and"


@op
class BitwiseOr(Bitwise, Binary):
    """``x | y``."""

    ufunc, on_bool = np.bitwise_or, "logical_or"


@op
class BitwiseXor(Bitwise, Binary):
    """``x ^ y``."""

    ufunc, on_bool = np.bitwise_xor, "logical_xor"


@op
class Invert(Bitwise, Unary):
    """``~x``: every bit flipped."""

    ufunc, on_bool = np.invert, "logical_not"


@dataclass(frozen=True)
class Shift(Binary):
    """Bits moved by `y` places; by the width or more (or by a negative count), all of them fall out."""

    accepts = INTEGERS

    @classmethod
    def examples(cls):
        return [(cls(None, None), (sample(t, 13), np.arange(13).astype(sample(t).dtype))) for t in ("i8", "u8", "i64")]


@op
class LeftShift(Shift):
    """``x << y``."""

    ufunc = np.left_shift


@op
class RightShift(Shift):
    """``x >> y``; a negative `x` fills with its sign."""

    ufunc = np.right_shift

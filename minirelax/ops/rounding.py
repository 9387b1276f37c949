"""Elementwise rounding of floats to whole numbers.  Integers need none, so they never come here."""
from __future__ import annotations

import numpy as np

from minirelax.ir.op import op
from minirelax.ops.elementwise import FloatUnary


@op
class Floor(FloatUnary):
    """The largest whole number not above `x`."""

    ufunc = np.floor


@op
class Ceil(FloatUnary):
    """The smallest whole number not below `x`."""

    ufunc = np.ceil


@op
class Trunc(FloatUnary):
    """`x` without its fraction: rounded toward zero."""

    ufunc = np.trunc


@op
class Rint(FloatUnary):
    """The nearest whole number; halves go to the even one."""

    ufunc = np.rint

"""Elementwise comparisons and predicates: their results are ``bool``."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.ir.op import op
from minirelax.ops.elementwise import Binary, Unary
from minirelax.ops.rules import ANY, FLOATS


@dataclass(frozen=True)
class Comparison(Binary):
    """A question about two values of any one dtype."""

    accepts, result = ANY, "bool"


@dataclass(frozen=True)
class Predicate(Unary):
    """A question about a float."""

    accepts, result = FLOATS, "bool"


@op
class Equal(Comparison):
    """``x == y``; NaN equals nothing."""

    ufunc = np.equal


@op
class NotEqual(Comparison):
    """``x != y``."""

    ufunc = np.not_equal


@op
class Less(Comparison):
    """``x < y``."""

    ufunc = np.less


@op
class LessEqual(Comparison):
    """``x <= y``."""

    ufunc = np.less_equal


@op
class Greater(Comparison):
    """``x > y``."""

    ufunc = np.greater


@op
class GreaterEqual(Comparison):
    """``x >= y``."""

    ufunc = np.greater_equal


@op
class Isnan(Predicate):
    """Is it NaN?"""

    ufunc = np.isnan


@op
class Isinf(Predicate):
    """Is it infinite?"""

    ufunc = np.isinf


@op
class Isfinite(Predicate):
    """Is it neither infinite nor NaN?"""

    ufunc = np.isfinite


@op
class Signbit(Predicate):
    """Is the sign bit set?  True for -0.0."""

    ufunc = np.signbit

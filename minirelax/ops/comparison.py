"""Elementwise comparisons and predicates: their results are ``bool``."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from minirelax.ir.op import op
from minirelax.ir.scalar import apply
from minirelax.ops.complex_scalars import both, either, equal
from minirelax.ops.elementwise import Binary, Unary
from minirelax.ops.rules import ANY, COMPLEX, EVERY, FLOATS, INEXACT


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

    ufunc, accepts = np.equal, EVERY

    def scalar(self, x, y):
        return equal(x, y) if x.dtype in COMPLEX else super().scalar(x, y)


@op
class NotEqual(Comparison):
    """``x != y``."""

    ufunc, accepts = np.not_equal, EVERY

    def scalar(self, x, y):
        return apply("logical_not", equal(x, y)) if x.dtype in COMPLEX else super().scalar(x, y)


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
    """Is it NaN?  A complex number is if one of its parts is."""

    ufunc, accepts = np.isnan, INEXACT

    def scalar(self, x):
        return either("isnan", x) if x.dtype in COMPLEX else super().scalar(x)


@op
class Isinf(Predicate):
    """Is it infinite?  A complex number is if one of its parts is."""

    ufunc, accepts = np.isinf, INEXACT

    def scalar(self, x):
        return either("isinf", x) if x.dtype in COMPLEX else super().scalar(x)


@op
class Isfinite(Predicate):
    """Is it neither infinite nor NaN?"""

    ufunc, accepts = np.isfinite, INEXACT

    def scalar(self, x):
        return both("isfinite", x) if x.dtype in COMPLEX else super().scalar(x)


@op
class Signbit(Predicate):
    """Is the sign bit set?  True for -0.0."""

    ufunc = np.signbit

"""Arrays as sets: distinct elements, how often each occurs, unions, intersections and differences.

How many elements a result has, only the data decides: each result has a fresh size, and results that belong together share it.
"""

from __future__ import annotations

import functools

import numpy as np

from minirelax.errors import ArgumentError, DTypeError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.join import concatenate
from minirelax.frontend.functions.registry import function
from minirelax.frontend.indexing import add_at
from minirelax.frontend.operands import as_dtype, asarray, axis_number, promoted_arrays
from minirelax.frontend.ufuncs import call_ufunc
from minirelax.ir.dim import Dim
from minirelax.ir.graph import Const, MatchCast
from minirelax.ir.types import Tensor


@function("unique", real=True)
def unique(ar, return_index=False, return_inverse=False, return_counts=False, axis=None, *, equal_nan=True, sorted=True):
    """The distinct elements (or slices along an axis), ascending; if asked, where each is first, which each is, how often."""
    x = asarray(ar)
    at = None if axis is None else axis_number(axis, x.ndim)
    wanted = (True, bool(return_index), bool(return_inverse), bool(return_counts))
    if at is None and equal_nan and not any(wanted[1:]):
        found = (x.builder.op("unique", x.atom),)
    else:
        found = x.builder.op("unique_all", x.atom, axis=at, equal_nan=bool(equal_nan))
        found = tuple(f for f, w in zip(found, wanted, strict=True) if w)
    results = _sized(x, ("unique", x.builder.meaning(x.atom), at, bool(equal_nan)), found)
    return results if len(results) > 1 else results[0]


@function("unique_values", real=True)
def unique_values(x):
    """The distinct elements; each NaN is one."""
    return unique(x, equal_nan=False)


@function("unique_counts", real=True)
def unique_counts(x):
    """The distinct elements and how often each occurs."""
    return _result_class("unique_counts")(*unique(x, return_counts=True, equal_nan=False))


@function("unique_inverse", real=True)
def unique_inverse(x):
    """The distinct elements and, for each element, which of them it is."""
    return _result_class("unique_inverse")(*unique(x, return_inverse=True, equal_nan=False))


@function("unique_all", real=True)
def unique_all(x):
    """The distinct elements, where each stands first, which of them each element is, and how often each occurs."""
    return _result_class("unique_all")(*unique(x, True, True, True, equal_nan=False))


@function("bincount", real=True)
def bincount(x, /, weights=None, minlength=0):
    """How often each of 0, 1, ... occurs, or the sum of the weights of its occurrences."""
    values = counting_numbers(x, "bincount")
    if values.ndim != 1:
        raise ArgumentError("object too deep for desired array" if values.ndim else "object of too small depth for desired array")
    b, (least,) = values.builder, operands.builder().dims((minlength,))
    found = b.op("bincount", values.atom, minlength=least)
    counts = _sized(values, ("bincount", b.meaning(values.atom), least), (found,))[0]
    if weights is None:
        return counts
    w = as_dtype(weights, "f64")
    operands.require_equal(values.dims[0], w.dims[0] if w.ndim else 1, "the weights and the values have sizes")
    sums = values.derived(b.op("full", Const(0.0, "f64"), shape=counts.dims))
    add_at(sums, values, w)
    return sums


@function("isin", real=True)
def isin(element, test_elements, assume_unique=False, invert=False):
    """Is each element among the others?"""
    from minirelax.frontend.functions.reduce import any_

    x, tests = asarray(element), asarray(test_elements)
    found = any_(x[..., None] == tests.ravel(), -1)
    return call_ufunc(np.logical_not, (found,)) if invert else found


@function("union1d", real=True)
def union1d(ar1, ar2):
    """The distinct elements of both, ascending."""
    return unique(concatenate((asarray(ar1), asarray(ar2)), axis=None))


@function("intersect1d", real=True)
def intersect1d(ar1, ar2, assume_unique=False):
    """The distinct elements that both have, ascending."""
    a, b = promoted_arrays(ar1, ar2)
    a = unique(a)
    return a[isin(a, b)]


@function("setdiff1d", real=True)
def setdiff1d(ar1, ar2, assume_unique=False):
    """The distinct elements of the first that the second lacks, ascending (or as they are, if said to be distinct)."""
    a = asarray(ar1).ravel() if assume_unique else unique(ar1)
    return a[isin(a, ar2, invert=True)]


@function("setxor1d", real=True)
def setxor1d(ar1, ar2, assume_unique=False):
    """The distinct elements that only one of the two has, ascending."""
    from minirelax.frontend.functions.scan import sort

    a, b = map(unique, promoted_arrays(ar1, ar2))
    return sort(concatenate((a[isin(a, b, invert=True)], b[isin(b, a, invert=True)])))


def counting_numbers(x: object, name: str) -> TracedArray:
    """Integers (or bools) as i64, as NumPy's rule "safe" casts them.  Raises DTypeError for others."""
    found = asarray(x)
    if found.type.dtype == "u64" or found.dtype.kind not in "iub":
        what = f"np.{name}: Cannot cast array data from {found.dtype!r} to dtype('int64') according to the rule 'safe'"
        raise DTypeError(what, "cast it: x.astype(np.int64)")
    return as_dtype(found, "i64")


def _sized(x: TracedArray, key: object, found: tuple) -> tuple[TracedArray, ...]:
    """Results of one op, the one size that the data decides named: the name that the same values always give."""
    b = x.builder

    def named() -> Dim:
        if key not in b.memory:
            b.memory[key] = b.inner_size()
        return b.memory[key]

    results = []
    for atom in found:
        type_ = b.type_of(atom)
        if None in type_.shape:
            atom = b.emit(MatchCast(atom, Tensor(type_.dtype, tuple(named() if d is None else d for d in type_.shape))))
        results.append(x.derived(atom))
    return tuple(results)


@functools.cache
def _result_class(name: str) -> type:
    """The named tuple that NumPy's function of this name returns."""
    return type(getattr(np, name)(np.zeros(1)))

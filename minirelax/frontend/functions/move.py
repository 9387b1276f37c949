"""Views of the same elements: other shapes, other orders of axes, reversed and repeated axes, other dtypes."""

from __future__ import annotations

import numpy as np

from minirelax.errors import ArgumentError, ShapeError, UnsupportedError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.registry import function
from minirelax.frontend.operands import as_dtype, asarray, axes_tuple, axis_number, broadcast_shape, require_equal, shape_dims
from minirelax.frontend.promotion import name_of
from minirelax.frontend.ufuncs import call_ufunc
from minirelax.frontend.views import BroadcastView, ReshapeView, TransposeView
from minirelax.ir.dim import Dim, floordiv, mod, names, product


@function("reshape")
def reshape(a, /, shape, order="C", *, copy=None):
    """The same elements in another shape; one size may be -1.  There must be as many elements (a guard, if need be)."""
    x = asarray(a)
    if order not in ("C", "F", "A"):
        raise UnsupportedError(f"np.reshape(..., order={order!r}) is not supported in a compiled function")
    if order == "F":
        wanted = tuple(shape) if isinstance(shape, tuple | list) else (shape,)
        return transpose(reshape(transpose(x), wanted[::-1])).copy()
    dims = _wanted_shape(x, shape)
    found = _reshaped(x, dims)
    return found.copy() if copy else found


@function("ravel")
def ravel(a, order="C"):
    """All elements along one axis."""
    return reshape(a, (-1,), "C" if order in ("K", "A") else order)


@function("transpose", "permute_dims")
def transpose(a, axes=None):
    """The axes in another order; reversed if none is given."""
    x = asarray(a)
    axes = tuple(reversed(range(x.ndim))) if axes is None else axes if isinstance(axes, tuple | list) else (axes,)
    order = tuple(axis_number(i, x.ndim) for i in axes)
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(f"axes {axes} don't match array with {x.ndim} axes")
    return x.show(TransposeView(order))


@function("matrix_transpose", "linalg.matrix_transpose")
def matrix_transpose(x, /):
    """The last two axes exchanged."""
    return swapaxes(x, -1, -2)


@function("swapaxes")
def swapaxes(a, axis1, axis2):
    """Two axes exchanged."""
    x = asarray(a)
    order = list(range(x.ndim))
    i, j = axis_number(axis1, x.ndim), axis_number(axis2, x.ndim)
    order[i], order[j] = order[j], order[i]
    return transpose(x, order)


@function("moveaxis")
def moveaxis(a, source, destination):
    """Axes moved to other places, the others kept in order."""
    x = asarray(a)
    source, destination = (
        [axis_number(i, x.ndim) for i in (s if isinstance(s, tuple | list) else (s,))] for s in (source, destination)
    )
    if len(source) != len(destination):
        raise ShapeError("`source` and `destination` arguments must have the same number of elements")
    order = [i for i in range(x.ndim) if i not in source]
    for to, fro in sorted(zip(destination, source, strict=True)):
        order.insert(to, fro)
    return transpose(x, order)


@function("rollaxis")
def rollaxis(a, axis, start=0):
    """One axis moved before another."""
    x = asarray(a)
    at = axis_number(axis, x.ndim)
    start = start + x.ndim if start < 0 else start
    return moveaxis(x, at, start - (at < start))


@function("squeeze")
def squeeze(a, axis=None):
    """Axes of size 1 left out: all of them, or those named."""
    x = asarray(a)
    if axis is None:
        gone = tuple(i for i, d in enumerate(x.dims) if operands.builder().facts.decide("==", d, 1))
    else:
        gone = axes_tuple(axis, x.ndim)
        for i in gone:
            require_equal(x.dims[i], 1, f"cannot select an axis to squeeze out: axis {i} and 1 are")
    return _reshaped(x, tuple(d for i, d in enumerate(x.dims) if i not in gone))


@function("expand_dims")
def expand_dims(a, axis):
    """New axes of size 1."""
    x = asarray(a)
    ndim = x.ndim + (len(axis) if isinstance(axis, tuple | list) else 1)
    new, old = axes_tuple(axis, ndim), iter(x.dims)
    return _reshaped(x, tuple(1 if i in new else next(old) for i in range(ndim)))


@function("atleast_1d")
def atleast_1d(*arys):
    """Arrays with at least one axis."""
    return _each(arys, lambda x: x if x.ndim else _reshaped(x, (1,)))


@function("atleast_2d")
def atleast_2d(*arys):
    """Arrays with at least two axes; new ones come first."""
    return _each(arys, lambda x: x if x.ndim >= 2 else _reshaped(x, (1,) * (2 - x.ndim) + x.dims))


@function("atleast_3d")
def atleast_3d(*arys):
    """Arrays with at least three axes."""

    def three(x):
        shape = {0: lambda d: (1, 1, 1), 1: lambda d: (1, *d, 1), 2: lambda d: (*d, 1)}
        return x if x.ndim >= 3 else _reshaped(x, shape[x.ndim](x.dims))

    return _each(arys, three)


@function("broadcast_to")
def broadcast_to(array, shape):
    """The elements repeated to a larger shape: read-only."""
    x, dims = asarray(array), shape_dims(shape)
    if not operands.fits(x.dims, dims):
        raise ShapeError(f"cannot broadcast an array of shape {operands.shape_text(x.dims)} to shape {operands.shape_text(dims)}")
    return x.show(BroadcastView(dims))


@function("broadcast_arrays")
def broadcast_arrays(*args):
    """All arrays repeated to their common shape."""
    arrays = [asarray(a) for a in args]
    shape = broadcast_shape(*(a.dims for a in arrays))
    return tuple(a.show(BroadcastView(shape)) for a in arrays)


@function("broadcast_shapes")
def broadcast_shapes(*args):
    """The common shape of several shapes."""
    return tuple(map(operands.builder().size, broadcast_shape(*map(shape_dims, args))))


@function("flip")
def flip(m, axis=None):
    """The elements in reverse order along some axes, or all."""
    x = asarray(m)
    axes = axes_tuple(axis, x.ndim)
    return x[tuple(slice(None, None, -1 if i in axes else None) for i in range(x.ndim))]


@function("fliplr")
def fliplr(m):
    """The elements in reverse order along axis 1."""
    return flip(m, 1)


@function("flipud")
def flipud(m):
    """The elements in reverse order along axis 0."""
    return flip(m, 0)


@function("rot90")
def rot90(m, k=1, axes=(0, 1)):
    """A quarter turn, `k` times, in the plane of two axes."""
    x, k = asarray(m), int(k) % 4
    i, j = (axis_number(a, x.ndim) for a in axes)
    if k == 0:
        return x[...]
    if k == 2:
        return flip(flip(x, i), j)
    return swapaxes(flip(x, j), i, j) if k == 1 else flip(swapaxes(x, i, j), j)


@function("astype")
def astype(x, dtype, /, *, copy=True):
    """The elements in another dtype; a copy unless nothing changes and `copy` is false."""
    x, name = asarray(x), name_of(dtype)
    if x.type.dtype == name and not x.weak:
        return x.copy() if copy else x
    return as_dtype(x.derived(x.atom), name)


@function("copy")
def copy(a, order="K", subok=False):
    """A new array with the same elements."""
    x = asarray(a)
    return x.derived(x.atom)


@function("shape")
def shape(a):
    """The sizes."""
    return asarray(a).shape


@function("ndim")
def ndim(a):
    """The number of axes."""
    return asarray(a).ndim


@function("size")
def size(a, axis=None):
    """The number of elements, or the size of an axis."""
    x = asarray(a)
    return x.size if axis is None else x.shape[axis_number(axis, x.ndim)]


@function("real")
def real(val):
    """The real parts; of real numbers, the array itself."""
    return asarray(val).real


@function("imag")
def imag(val):
    """The imaginary parts; of real numbers, zeros."""
    return asarray(val).imag


@function("angle")
def angle(z, deg=False):
    """The angle of each number from the positive real axis, in radians or in degrees."""
    x = asarray(z)
    real_, imag_ = (x.real, x.imag) if iscomplexobj(x) else (x, 0)
    found = call_ufunc(np.arctan2, (imag_, real_))
    return found * (180 / np.pi) if deg else found


@function("conj", "conjugate")
def conjugate(x, /):
    """The imaginary part of each number negated."""
    return call_ufunc(np.conjugate, (asarray(x),))


@function("iscomplexobj")
def iscomplexobj(x):
    """Is the dtype a complex one?"""
    return asarray(x).dtype.kind == "c"


@function("isrealobj")
def isrealobj(x):
    """Is the dtype a real one?"""
    return asarray(x).dtype.kind != "c"


def _each(arrays, fn):
    done = tuple(fn(asarray(a)) for a in arrays)
    return done[0] if len(done) == 1 else done


def _wanted_shape(x: TracedArray, shape: object) -> tuple[Dim, ...]:
    """The new shape with -1 replaced, and shown (or guarded) to have as many elements."""
    sizes = operands.as_sizes(shape)
    for s in sizes:
        if not hasattr(s, "__index__"):
            raise ArgumentError(f"a shape consists of integers, not {type(s).__name__}")
    dims, facts = list(x.builder.dims(sizes)), x.builder.facts
    unknown = [i for i, d in enumerate(dims) if d == -1]
    if len(unknown) > 1:
        raise ShapeError("can only specify one unknown dimension")
    total = product(x.dims)
    if unknown:
        rest = product([d for d in dims if d != -1])
        dims[unknown[0]] = _exact_quotient(total, rest, x, shape)
    elif not facts.is_equal(total, product(dims)) and not _same_axes(x, dims):
        if facts.truth("==", total, product(dims)) and facts.may_assume(total - product(dims)):
            facts.assume_equal(total, product(dims))
        elif not _found_while_running(x, total, product(dims)):
            raise _does_not_fit(x, shape, total, product(dims))
    return tuple(map(facts.resolve, dims))


def _found_while_running(x: TracedArray, total: Dim, wanted: Dim) -> bool:
    """May it be left to the run whether there are as many elements?  Of a shape that is a value nobody has said more."""
    facts = x.builder.facts
    differ = facts.known("==", total, wanted) is False or facts.truth("==", total, wanted) is False
    return not differ and bool(names(facts.resolve(wanted)) & facts.entries)


def _same_axes(x: TracedArray, dims: list[Dim]) -> bool:
    """Is the new shape the old one, but for axes of size 1, in this call?  Then that is the fact to take."""
    facts = x.builder.facts
    pairs = list(zip([d for d in x.dims if d != 1], [d for d in dims if d != 1], strict=False))
    if len(pairs) != sum(d != 1 for d in x.dims) or len(pairs) != sum(d != 1 for d in dims):
        return False
    if not all(facts.is_equal(d, e) or facts.truth("==", d, e) and facts.may_assume(d - e) for d, e in pairs):
        return False
    for d, e in pairs:
        facts.assume_equal(d, e)
    return True


def _exact_quotient(total: Dim, rest: Dim, x: TracedArray, shape: object) -> Dim:
    facts = x.builder.facts
    if facts.known("==", rest, 0):
        raise ShapeError(f"cannot reshape array of shape {operands.shape_text(x.dims)} into shape {shape}: -1 is not determined")
    found = floordiv(total, rest)
    if found * rest == total:
        if not isinstance(rest, int) and facts.known("!=", rest, 0) is None and facts.may_assume(rest):
            facts.decide("!=", rest, 0)
        return found
    remainder = facts.resolve(mod(total, rest))
    if facts.is_equal(remainder, 0):
        return found
    if not facts.may_assume(remainder, declared=True) or facts.truth("==", remainder, 0) is False:
        raise _does_not_divide(x, shape, total, rest)
    facts.decide("==", remainder, 0, declared=True)
    return found


def _does_not_fit(x: TracedArray, shape: object, total: Dim, wanted: Dim) -> ShapeError:
    return ShapeError(
        f"cannot reshape array of shape {operands.shape_text(x.dims)} into shape {shape}: "
        f"{operands.sizes_text(total, wanted) if wanted != total else total} elements",
        operands.differ_hint(total, wanted, "write -1 for one of the sizes, or pass another array"),
    )


def _does_not_divide(x: TracedArray, shape: object, total: Dim, rest: Dim) -> ShapeError:
    facts = x.builder.facts
    elements, parts = (d if (n := facts.hint(d)) is None or n == d else f"{d} (here {n})" for d in (total, rest))
    return ShapeError(
        f"cannot reshape array of shape {operands.shape_text(x.dims)} into shape {shape}: "
        f"{elements} elements are not a multiple of {parts}",
        "choose sizes that divide the number of elements, or pass another array",
    )


def _reshaped(x: TracedArray, dims: tuple[Dim, ...]) -> TracedArray:
    """A view where NumPy gives one.  Where that depends on strides, a copy, linked so that writing to either is noticed."""
    new, old = ([d for d in shape if d != 1] for shape in (dims, x.dims))
    adds_ones_only = len(new) == len(old) and all(map(x.builder.facts.is_equal, new, old))
    if x.in_order or adds_ones_only:
        if not adds_ones_only:
            x.root.reshaped = True
        return x.show(ReshapeView(dims))
    copied = x.derived(ReshapeView(dims).read(x.builder, x.atom))
    copied.link(x)
    return copied

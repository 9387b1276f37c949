"""Products summed over shared axes: matmul, dot, tensordot, einsum and their kin."""

from __future__ import annotations

import string

import numpy as np

from minirelax.errors import ArgumentError, ShapeError, UnsupportedError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.functions.registry import function
from minirelax.frontend.operands import as_dtype, asarray, axis_number, broadcast_shape, conform, promoted_arrays, require_equal
from minirelax.frontend.ufuncs import call_ufunc
from minirelax.frontend.views import reshape
from minirelax.ir.dim import product

INNER = "the last axis of one and the last but one of the other (of a vector: its only one) have one size"


@function("matmul", "linalg.matmul")
def matmul(x1, x2, /):
    """The matrix product over the last two axes; leading axes broadcast, vectors are rows and columns."""
    a, b = promoted_arrays(x1, x2)
    if not a.ndim or not b.ndim:
        raise ShapeError("matmul: a scalar has no axis to sum over", "use * to multiply by a number")
    require_equal(a.dims[-1], b.dims[-1 if b.ndim == 1 else -2], f"matmul({a.atom}, {b.atom}): inner sizes are", INNER)
    left = a if a.ndim > 1 else a.derived(reshape(a.builder, a.atom, (1, *a.dims)))
    right = b if b.ndim > 1 else b.derived(reshape(b.builder, b.atom, (*b.dims, 1)))
    batch = broadcast_shape(left.dims[:-2], right.dims[:-2])
    left = conform(left, (*batch, *left.dims[-2:]))
    right = conform(right, (*batch, left.dims[-1], right.dims[-1]))
    found = left.derived(left.builder.op("matmul", left.atom, right.atom))
    gone = ([] if a.ndim > 1 else [-2]) + ([] if b.ndim > 1 else [-1])
    return (
        found.derived(
            reshape(found.builder, found.atom, tuple(d for i, d in enumerate(found.dims, -found.ndim) if i not in gone))
        )
        if gone
        else found
    )


@function("dot")
def dot(a, b):
    """Matrix product, inner product of vectors, or (for more axes) the sum over the last axis and the second-last."""
    x, y = promoted_arrays(a, b)
    if not x.ndim or not y.ndim:
        return x * y
    if x.ndim <= 2 and y.ndim <= 2 or y.ndim == 1:
        return matmul(x, y)
    return tensordot(x, y, ((x.ndim - 1,), (y.ndim - 2,)))


@function("vdot")
def vdot(a, b, /):
    """The inner product of the flattened arrays, the first one conjugated."""
    x, y = call_ufunc(np.conjugate, (asarray(a),)).ravel(), asarray(b).ravel()
    return matmul(x, y)


@function("vecdot", "linalg.vecdot")
def vecdot(x1, x2, /, *, axis=-1):
    """Inner products along an axis, the first vectors conjugated; the others broadcast."""
    from minirelax.frontend.functions.move import moveaxis

    x, y = (moveaxis(v, axis, -1) for v in promoted_arrays(x1, x2))
    require_equal(x.dims[-1], y.dims[-1], "vecdot: the axes summed over have sizes")
    return matmul(call_ufunc(np.conjugate, (x,))[..., None, :], y[..., :, None])[..., 0, 0]


@function("inner")
def inner(a, b, /):
    """The sum over the last axes of both."""
    x, y = promoted_arrays(a, b)
    return x * y if not x.ndim or not y.ndim else tensordot(x, y, ((x.ndim - 1,), (y.ndim - 1,)))


@function("outer", "linalg.outer")
def outer(a, b):
    """Every product of an element of one with one of the other."""
    x, y = asarray(a).ravel(), asarray(b).ravel()
    return x[:, None] * y[None, :]


@function("kron")
def kron(a, b):
    """Every block ``a[i, j] * b``, side by side."""
    x, y = asarray(a), asarray(b)
    n = max(x.ndim, y.ndim)
    x, y = (v.reshape((1,) * (n - v.ndim) + v.shape) for v in (x, y))
    wide = x[tuple(v for _ in range(n) for v in (slice(None), None))] * y[tuple(v for _ in range(n) for v in (None, slice(None)))]
    return wide.derived(reshape(wide.builder, wide.atom, tuple(p * q for p, q in zip(x.dims, y.dims, strict=True))))


@function("tensordot", "linalg.tensordot")
def tensordot(a, b, axes=2):
    """The sum over several axes of both."""
    x, y = promoted_arrays(a, b)
    if isinstance(axes, int):
        left, right = tuple(range(x.ndim - axes, x.ndim)), tuple(range(axes))
    else:
        left, right = (
            tuple(axis_number(i, v.ndim) for i in (s if isinstance(s, tuple | list) else (s,)))
            for s, v in zip(axes, (x, y), strict=True)
        )
    for i, j in zip(left, right, strict=True):
        require_equal(x.dims[i], y.dims[j], "tensordot: the axes summed over have sizes")
    kept_left, kept_right = ([i for i in range(v.ndim) if i not in s] for v, s in ((x, left), (y, right)))
    summed = product([x.dims[i] for i in left])
    rows = x.transpose(*kept_left, *left) if x.ndim else x
    columns = y.transpose(*right, *kept_right) if y.ndim else y
    rows = rows.derived(reshape(rows.builder, rows.atom, (product([x.dims[i] for i in kept_left]), summed)))
    columns = columns.derived(reshape(columns.builder, columns.atom, (summed, product([y.dims[i] for i in kept_right]))))
    found = matmul(rows, columns)
    return found.derived(reshape(found.builder, found.atom, (*(x.dims[i] for i in kept_left), *(y.dims[i] for i in kept_right))))


@function("einsum")
def einsum(subscripts, /, *operands_, dtype=None, optimize=False):
    """Einstein's summation, with ``...``; letters that appear on the left only are summed over."""
    if not isinstance(subscripts, str):
        raise UnsupportedError(
            "np.einsum with lists of axes is not supported in a compiled function",
            'write the subscripts as a string: "ij,jk->ik"',
        )
    xs = [asarray(x) for x in operands_]
    xs = [as_dtype(x, operands.promote((np.dtype(dtype),))) for x in xs] if dtype is not None else list(promoted_arrays(*xs))
    terms, result = _expanded(subscripts.replace(" ", ""), xs)
    xs = _letters_agree(terms, xs)
    return xs[0].derived(xs[0].builder.op("einsum", tuple(x.atom for x in xs), subscripts=f"{','.join(terms)}->{result}"))


@function("cross", "linalg.cross")
def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    """The vector product in three dimensions."""
    from minirelax.frontend.functions.join import stack
    from minirelax.frontend.functions.move import moveaxis

    if axis is not None:
        axisa = axisb = axisc = axis
    x, y = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    for v in (x, y):
        require_equal(v.dims[-1], 3, "cross: both vectors need size 3; sizes are")
    parts = [x[..., i] * y[..., j] - x[..., j] * y[..., i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return moveaxis(stack(parts, axis=-1), -1, axisc)


@function("convolve")
def convolve(a, v, mode="full"):
    """The discrete convolution of two sequences, the second of a known size (a guard)."""
    return _convolved(*promoted_arrays(a, v), mode)


@function("correlate")
def correlate(a, v, mode="valid"):
    """The cross-correlation of two sequences, the second of a known size (a guard)."""
    x, y = promoted_arrays(a, v)
    return _convolved(x, call_ufunc(np.conjugate, (y[::-1],)), mode)


def _convolved(x: TracedArray, y: TracedArray, mode: str) -> TracedArray:
    from minirelax.frontend.functions.join import pad

    if mode not in ("full", "same", "valid"):
        raise ArgumentError(f"mode must be 'full', 'same' or 'valid', not {mode!r}")
    n, k = x.shape[0], int(y.shape[0])
    if k == 0 or not n >= 1:
        raise ShapeError("convolve: an array is empty")
    if not n >= k:
        if k > 4096:
            raise UnsupportedError(
                "np.convolve with the longer array second is not supported in a compiled function", "exchange them"
            )
        x, y, n, k = y, x, k, int(n)
    before = {"full": k - 1, "same": k // 2 if k % 2 else k // 2, "valid": 0}[mode]
    after = {"full": k - 1, "same": k - 1 - before, "valid": 0}[mode]
    wide = pad(x, (before, after))
    count = {"full": n + k - 1, "same": n, "valid": n - k + 1}[mode]
    total = None
    for i in range(k):
        part = wide[k - 1 - i : k - 1 - i + count] * y[i]
        total = part if total is None else total + part
    return total


def _expanded(subscripts: str, xs: list[TracedArray]) -> tuple[list[str], str]:
    """The subscripts with an arrow, and letters in place of ``...``."""
    left, arrow, right = subscripts.partition("->")
    terms = left.split(",")
    if len(terms) != len(xs):
        raise ArgumentError(f"einsum: {len(terms)} subscripts for {len(xs)} operands")
    free = [c for c in string.ascii_letters if c not in subscripts]
    hidden = [x.ndim - len(t.replace("...", "")) if "..." in t else 0 for t, x in zip(terms, xs, strict=True)]
    if any(h < 0 or ("..." not in t and len(t) != x.ndim) for h, t, x in zip(hidden, terms, xs, strict=True)):
        raise ShapeError(f"einsum: subscripts {subscripts!r} do not match the operands' axes")
    dots = "".join(free[: max(hidden, default=0)])
    terms = [t.replace("...", dots[len(dots) - h :]) for t, h in zip(terms, hidden, strict=True)]
    if arrow:
        return terms, right.replace("...", dots)
    letters = "".join(terms)
    return terms, dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1 and c not in dots))


def _letters_agree(terms: list[str], xs: list[TracedArray]) -> list[TracedArray]:
    """Take the facts that make each letter one size (or 1)."""
    sizes: dict = {}
    for term, x in zip(terms, xs, strict=True):
        for c, d in zip(term, x.dims, strict=True):
            common = operands.common_size(sizes.get(c, 1), d)
            if common is None:
                raise ShapeError(
                    f"einsum: index {c} has sizes {operands.sizes_text(sizes[c], d)}",
                    operands.differ_hint(sizes[c], d, "axes that share a letter have one size"),
                )
            sizes[c] = common
    return [conform(x, tuple(sizes[c] for c in term)) for term, x in zip(terms, xs, strict=True)]

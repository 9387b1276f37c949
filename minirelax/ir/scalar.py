"""Scalars of the loop level: typed expressions over loads, indices and sizes, each kept once.

Scalars are interned: building the same expression twice gives the same object, so ``is`` decides equality and a shared
subexpression is shared in memory.  An *index* of a load or store is a `Dim` over axis names and sizes where it is an
integer polynomial (so that strides can be read off), or an ``i64`` scalar where it depends on data (a gather).

>>> x = load("x", (symbol("i"),), "f32")
>>> print(apply("multiply", x, literal(2.0, "f32")))
x[i] * 2.0
>>> apply("exp", x) is apply("exp", x)
True
"""
from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from minirelax.ir.dim import Dim, DimExpr, Ranges, names, simplify, substitute, symbol
from minirelax.ir.types import NUMPY_DTYPES, PARTS, WHOLES

_interned: weakref.WeakValueDictionary[tuple, Scalar] = weakref.WeakValueDictionary()


@dataclass(frozen=True, eq=False)
class Scalar:
    """Base: a value of one dtype at one point of the loops.  Never construct directly: use the functions below."""

    dtype: str

    def __str__(self) -> str:
        from minirelax.ir.printer import print_scalar
        return print_scalar(self)

    def __reduce__(self):                  # as a flat table: interned again when read, and no recursion
        return _restore, (_table(self),)


@dataclass(frozen=True, eq=False)
class Literal(Scalar):
    """A constant."""

    value: complex | float | int | bool


@dataclass(frozen=True, eq=False)
class SizeValue(Scalar):
    """An integer polynomial over sizes and axes, as a number (``i64``)."""

    dim: Dim


@dataclass(frozen=True, eq=False)
class Load(Scalar):
    """One element of a buffer, at one index per axis of it."""

    buffer: str
    indices: tuple[Index, ...]


@dataclass(frozen=True, eq=False)
class Apply(Scalar):
    """A function of scalars, called by the name of the NumPy ufunc it stands for; also ``where``, ``cast`` and `LAZY`."""

    function: str
    args: tuple[Scalar, ...]


Index = int | DimExpr | Scalar
LAZY = "if_else"                           # ``a if condition else b``: only the one is evaluated, so only its loads happen

COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
PREDICATES = (*COMPARISONS, "logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite", "signbit")


def literal(value: complex | float | int | bool, dtype: str) -> Literal:
    """A constant of the given dtype; the value is rounded or wrapped to it as NumPy's ``astype`` does."""
    with np.errstate(all="ignore"):
        value = np.asarray(value).astype(NUMPY_DTYPES[dtype]).item()
    return _intern(Literal, dtype, (type(value).__name__, repr(value)), value)


def size_value(d: Dim) -> Scalar:
    """A size or index polynomial as an ``i64`` number."""
    return literal(d, "i64") if isinstance(d, int) else _intern(SizeValue, "i64", d, d)


def load(buffer: str, indices: tuple[Index, ...], dtype: str) -> Load:
    """``buffer[indices]``; `dtype` is the buffer's."""
    return _intern(Load, dtype, (buffer, indices), buffer, indices)


def apply(function: str, *args: Scalar, dtype: str | None = None) -> Scalar:
    """``function(*args)``; the dtype follows from the function."""
    dtype = natural_dtype(function, args) if dtype is None else dtype
    return _intern(Apply, dtype, (function, args), function, args)


def natural_dtype(function: str, args: tuple[Scalar, ...]) -> str:
    """The dtype of a result: bool of predicates, that of a part or the whole of complex numbers, else the last argument's."""
    if function in PREDICATES:
        return "bool"
    found = args[-1].dtype
    change = PARTS if function in ("real", "imag") else WHOLES if function == "complex" else {}
    return change.get(found, found)


def complex_of(real: Scalar, imag: Scalar) -> Scalar:
    """The complex number with these two parts, of one dtype."""
    if isinstance(real, Literal) and isinstance(imag, Literal):
        return literal(complex(real.value, imag.value), WHOLES[real.dtype])
    return apply("complex", real, imag)


def parts_of(value: Scalar) -> tuple[Scalar, Scalar]:
    """The real and the imaginary part of a complex number."""
    match value:
        case Literal(value=v, dtype=dtype):
            v = complex(v)
            return literal(v.real, PARTS[dtype]), literal(v.imag, PARTS[dtype])
        case Apply(function="complex", args=(real, imag)):
            return real, imag
    return apply("real", value), apply("imag", value)


def cast(value: Scalar, dtype: str) -> Scalar:
    """`value` converted as NumPy's ``astype`` converts; nothing if it has that dtype already."""
    if value.dtype == dtype:
        return value
    return literal(value.value, dtype) if isinstance(value, Literal) else apply("cast", value, dtype=dtype)


def if_else(condition: Scalar, yes: Scalar, no: Scalar) -> Scalar:
    """``yes if condition else no``; what is not chosen is not evaluated, and may have indices outside their buffers."""
    return yes if yes is no else apply(LAZY, condition, yes, no)


def index_scalar(index: Index) -> Scalar:
    """An index as an ``i64`` scalar."""
    return index if isinstance(index, Scalar) else size_value(index)


def as_index(value: Scalar) -> Index:
    """An integer scalar as an index: a `Dim` where it is one."""
    match value:
        case SizeValue(dim=d):
            return d
        case Literal(value=int() as k):
            return k
        case Apply(function="cast", args=(SizeValue(dim=d),)):
            return d
    return cast(value, "i64")


def children(s: Scalar) -> tuple[Scalar, ...]:
    """The scalars directly inside `s`."""
    match s:
        case Apply(args=args):
            return args
        case Load(indices=indices):
            return tuple(i for i in indices if isinstance(i, Scalar))
    return ()


def is_choice(s: Scalar) -> bool:
    """Is it ``a if condition else b``, of which one side is evaluated?"""
    return isinstance(s, Apply) and s.function == LAZY


def certain(s: Scalar) -> tuple[Scalar, ...]:
    """The scalars directly inside `s` that are evaluated whenever `s` is: of ``a if condition else b``, the condition."""
    return s.args[:1] if is_choice(s) else children(s)


def walk(*roots: Scalar, inside: Callable[[Scalar], tuple[Scalar, ...]] = children) -> Iterator[Scalar]:
    """Every scalar inside `roots`, once, operands before their users."""
    seen: set[int] = set()
    stack: list[tuple[Scalar, bool]] = [(r, False) for r in reversed(roots)]
    while stack:
        node, ready = stack.pop()
        if ready:
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            stack.append((node, True))
            stack += [(c, False) for c in reversed(inside(node))]


def loads(*roots: Scalar) -> tuple[Load, ...]:
    """The distinct loads inside `roots`, in evaluation order."""
    return tuple(s for s in walk(*roots) if isinstance(s, Load))


def transform(root: Scalar, fn: Callable[[Scalar], Scalar], index: Callable[[Dim], Index] = lambda d: d) -> Scalar:
    """Rebuild `root` from its leaves: `index` maps polynomials, then `fn` maps every rebuilt node."""
    done: dict[int, Scalar] = {}
    for node in walk(root):
        match node:
            case Apply(dtype=dtype, function=function, args=args):
                new = apply(function, *(done[id(a)] for a in args), dtype=dtype)
            case Load(dtype=dtype, buffer=buffer, indices=indices):
                new = load(buffer, tuple(done[id(i)] if isinstance(i, Scalar) else index(i) for i in indices), dtype)
            case SizeValue(dim=d):
                new = index_scalar(index(d))
            case _:
                new = node
        done[id(node)] = fn(new)
    return done[id(root)]


def substitute_axes(root: Scalar, values: Mapping[str, Index], ranges: Ranges | None = None) -> Scalar:
    """`root` with axis (or size) names replaced by other indices.

    A name replaced by a data-dependent index must stand alone wherever it is used as an index; inside a larger
    polynomial, the polynomial becomes scalar arithmetic.
    """
    return transform(root, lambda s: s, lambda d: substitute_index(d, values, ranges))


def substitute_index(d: Index, values: Mapping[str, Index], ranges: Ranges | None = None) -> Index:
    """An index with names replaced; see `substitute_axes`."""
    if isinstance(d, Scalar):
        return substitute_axes(d, values, ranges)
    used = names(d) & values.keys()
    if not any(isinstance(values[u], Scalar) for u in used):
        return substitute(d, values, ranges) if used else d
    if len(used) == 1 and d == symbol(next(iter(used))):
        return values[next(iter(used))]
    return _polynomial(d, values)


def rename_sizes(root: Scalar, values: Mapping[str, Dim]) -> Scalar:
    """`root` with size names replaced by sizes everywhere."""
    return substitute_axes(root, values)


def simplify_indices(root: Scalar, ranges: Ranges) -> Scalar:
    """`root` with every index polynomial simplified under the axes' ranges."""
    return transform(root, lambda s: s, lambda d: d if isinstance(d, int) else simplify(d, ranges))


def _polynomial(d: Dim, values: Mapping[str, Index]) -> Scalar:
    """A polynomial as scalar arithmetic, for names that stand for data-dependent indices."""
    if isinstance(d, int):
        return literal(d, "i64")
    total: Scalar | None = None
    for mono, k in d.terms:
        term: Scalar | None = None if k == 1 and mono else literal(k, "i64")
        for f in mono:
            factor = (index_scalar(values.get(f, symbol(f))) if isinstance(f, str) else apply(
                {"//": "floor_divide", "%": "remainder", "min": "minimum", "max": "maximum"}[f.op],
                _polynomial(f.left, values), _polynomial(f.right, values)))
            term = factor if term is None else apply("multiply", term, factor)
        total = term if total is None else apply("add", total, term)
    return total


def _table(root: Scalar) -> tuple[tuple, ...]:
    """`root` and all inside it, operands first; scalars inside a row are given by the number of their row in a 1-tuple."""
    rows: list[tuple] = []
    number: dict[int, tuple[int]] = {}
    for s in walk(root):
        match s:
            case Literal(dtype=dtype, value=content) | SizeValue(dtype=dtype, dim=content):
                row = (type(s).__name__, dtype, content)
            case Load(dtype=dtype, buffer=buffer, indices=indices):
                row = ("Load", dtype, buffer, tuple(number[id(i)] if isinstance(i, Scalar) else i for i in indices))
            case Apply(dtype=dtype, function=function, args=args):
                row = ("Apply", dtype, function, tuple(number[id(a)] for a in args))
        number[id(s)] = (len(rows),)
        rows.append(row)
    return tuple(rows)


def _restore(rows: tuple[tuple, ...]) -> Scalar:
    made: list[Scalar] = []
    for kind, dtype, content, *inside in rows:
        operands = tuple(made[i[0]] if isinstance(i, tuple) else i for i in inside[0]) if inside else ()
        made.append(literal(content, dtype) if kind == "Literal" else size_value(content) if kind == "SizeValue" else
                    load(content, operands, dtype) if kind == "Load" else apply(content, *operands, dtype=dtype))
    return made[-1]


def _intern(cls: type, dtype: str, key: object, *content: object):
    full = (cls, dtype, key)
    found = _interned.get(full)
    if found is None:
        found = _interned[full] = cls(dtype, *content)
    return found

"""Checks at the boundaries of a function, its arguments, its result and every match_cast: do values have the types they should?

Inside a function types are taken as true; where values come in, they are looked at, in two rounds (Lai et al., "Relax", ASPLOS
2025, section 4.7).  The first one, over all values, checks kinds, dtypes and ranks, and the sizes that are numbers or bare names:
a name takes the size found where it first stands alone.  The second compares compound sizes, which may name what a later
value shows.  An error says what was expected and found, where, and where a named size is from.

>>> from minirelax.ir.reader import parse_type as t
>>> x, y = np.zeros((3, 4), np.float32), np.zeros(5, np.float32)
>>> known = Known()
>>> check((Given("argument y", "y", t("f32[n + 1]"), y[:4]), Given("argument x", "x", t("f32[n, 4]"), x)), known)
>>> known.sizes
{'n': 3}
>>> check((Given("f: argument y", "y", t("f32[n + 1]"), y),), known)     # doctest: +NORMALIZE_WHITESPACE
Traceback (most recent call last):
minirelax.errors.ShapeError: f: argument y: expected f32[n + 1], got an array of shape (5,):
    axis 0 is 5, not n + 1 = 4 (n = 3 is the size of axis 0 of x)
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from minirelax.errors import DTypeError, ShapeError
from minirelax.ir.dim import Dim, names, value
from minirelax.ir.graph import Var
from minirelax.ir.lattice import bare_name
from minirelax.ir.types import Callable, Shape, Tensor, Tuple, Type, dtype_name


@dataclass
class Known:
    """The named sizes found so far in one call of a function: their numbers, and in words where each was found."""

    sizes: dict[str, int] = field(default_factory=dict)
    homes: dict[str, str] = field(default_factory=dict)

    def number(self, d: Dim) -> int | None:
        """What a size is, if that is known."""
        try:
            return value(d, self.sizes)
        except (KeyError, ZeroDivisionError):
            return None

    def in_words(self, d: Dim) -> str:
        """A size with its number and where that is from: ``n + 1 = 4 (n = 3 is the size of axis 0 of x)``."""
        if isinstance(d, int):
            return str(d)
        number = self.number(d)
        equals = str(d) if number is None else f"{d} = {number}"
        if (name := bare_name(d)) is not None:
            return equals + (f" ({self.homes[name]})" if name in self.homes else "")
        where = ", ".join(f"{n} = {self.sizes[n]} is {self.homes[n]}" for n in sorted(names(d)) if n in self.homes)
        return equals + (f" ({where})" if where else "")


@dataclass(frozen=True)
class Given:
    """A value where one of type `type` is wanted: how an error about it begins, and what it is called ("argument x", "x").

    `declared` is the whole type that was wanted, where only a part of it is to be checked now.
    """

    what: str
    name: str
    type: Type
    value: object
    declared: Type | None = None


def arguments(params: Iterable[Var], values: Iterable[object], function: str = "", paths: Iterable[str] | None = None
              ) -> tuple[Given, ...]:
    """The arguments of a call, for `check`; `paths` are the parameters' names for users, where they have other ones."""
    params = tuple(params)
    begin = f"{function}: " if function else ""
    return tuple(Given(f"{begin}argument {path}", path, p.type, v) for p, path, v in zip(
        params, paths or (p.name for p in params), values, strict=True))


def check(given: Iterable[Given], known: Known) -> None:
    """Compare values with types; names of sizes that stand alone in a type become known.

    Raises DTypeError for a value of another kind or dtype, ShapeError for one of another rank or with other sizes.
    """
    leaves = [leaf for g in given for leaf in _leaves(g)]
    for leaf in leaves:
        _first_round(leaf, known)
    for leaf in leaves:
        _second_round(leaf, known)


def fits(given: Iterable[Given], known: Known) -> bool:
    """Does `check` find nothing wrong?"""
    try:
        check(given, known)
    except (DTypeError, ShapeError):
        return False
    return True


def shape_value(value: object) -> object:
    """A shape value as it is while a program runs, a tuple of integers; compiled programs take and give an array of them."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "iu":
        return tuple(value.tolist())
    if isinstance(value, tuple | list):
        return tuple(n.__index__() if hasattr(n, "__index__") else n for n in value)
    return value


def _leaves(given: Given) -> Iterator[Given]:
    """The value, or those inside a tuple."""
    if not isinstance(given.type, Tuple):
        yield given
        return
    items = given.value
    if not isinstance(items, tuple | list):
        raise _wrong_kind(given)
    if len(items) != len(given.type.items):
        count = len(given.type.items)
        raise ShapeError(f"{given.what}: expected {given.type}, got {_values(len(items))}, not {count}", where="")
    for i, (type_, item) in enumerate(zip(given.type.items, items, strict=True)):
        yield from _leaves(Given(f"{given.what}[{i}]", f"{given.name}[{i}]", type_, item))


def _first_round(leaf: Given, known: Known) -> None:
    """Kind, dtype and rank; sizes that are numbers; bare names, which become known or are compared."""
    if not _is_of_kind(leaf):
        raise _wrong_kind(leaf)
    dims, found = _sizes(leaf)
    if leaf.type.__class__ is Shape:
        _check_entries(leaf, found)
    rank = len(dims) if dims is not None else getattr(leaf.type, "ndim", None)
    if rank is not None and rank != len(found):
        raise ShapeError(f"{_got(leaf)}: {_axes(leaf, len(found))}, not {rank}", where="")
    for i, (d, n) in enumerate(zip(dims or (), found, strict=False)):
        if (name := bare_name(d)) is not None and name not in known.sizes:
            known.sizes[name], known.homes[name] = n, _place(leaf, i)
        elif d is not None and (isinstance(d, int) or name is not None):
            _compare(leaf, i, d, n, known)


def _second_round(leaf: Given, known: Known) -> None:
    """Compound sizes."""
    dims, found = _sizes(leaf)
    for i, (d, n) in enumerate(zip(dims or (), found, strict=False)):
        if d is not None and not isinstance(d, int) and bare_name(d) is None:
            _compare(leaf, i, d, n, known)


def _is_of_kind(leaf: Given) -> bool:
    match leaf.type:
        case Tensor(dtype=dtype):
            return isinstance(leaf.value, np.ndarray) and dtype in (None, dtype_name(leaf.value.dtype))
        case Shape():
            return isinstance(shape_value(leaf.value), tuple)
        case Callable():
            return callable(leaf.value)
    return True


def _sizes(leaf: Given) -> tuple[tuple[Dim | None, ...] | None, tuple[int, ...]]:
    """The sizes that the type says, and those that the value has."""
    match leaf.type:
        case Tensor(shape=dims):
            return dims, leaf.value.shape
        case Shape(values=dims):
            return dims, shape_value(leaf.value)
    return None, ()


def _check_entries(leaf: Given, found: tuple) -> None:
    for i, n in enumerate(found):
        if not isinstance(n, int):
            raise DTypeError(f"{_got(leaf)}: entry {i} is of type {type(n).__name__}, not an integer", where="")
        if n < 0:
            raise ShapeError(f"{_got(leaf)}: entry {i} is {n}, and sizes are >= 0", where="")


def _compare(leaf: Given, i: int, d: Dim, n: int, known: Known) -> None:
    if unknown := sorted(names(d) - known.sizes.keys()):
        raise ShapeError(f"{_got(leaf)}: {unknown[0]} is not known", where="")
    if known.number(d) != n:
        part = "entry" if isinstance(leaf.type, Shape) else "axis"
        raise ShapeError(f"{_got(leaf)}: {part} {i} is {n}, not {known.in_words(d)}", where="")


def _place(leaf: Given, i: int) -> str:
    return f"entry {i} of {leaf.name}" if isinstance(leaf.type, Shape) else f"the size of axis {i} of {leaf.name}"


def _axes(leaf: Given, count: int) -> str:
    one, several = ("entry", "entries") if isinstance(leaf.type, Shape) else ("axis", "axes")
    return f"{count} {one if count == 1 else several}"


def _got(leaf: Given) -> str:
    """How an error about a value of the right kind begins."""
    found = f"an array of shape {leaf.value.shape}" if isinstance(leaf.type, Tensor) else shape_value(leaf.value)
    return f"{leaf.what}: expected {leaf.declared or leaf.type}, got {found}"


def _wrong_kind(given: Given) -> DTypeError:
    if isinstance(given.type, Tensor) and isinstance(given.value, np.ndarray):
        return DTypeError(f"{_got(given)}: dtype {given.value.dtype}, not {given.type.numpy_dtype}", where="")
    match given.value:
        case np.ndarray():
            found = f"an array of shape {given.value.shape}"
        case tuple():
            found = _values(len(given.value))
        case other:
            found = f"a value of type {type(other).__name__}"
    return DTypeError(f"{given.what}: expected {given.declared or given.type}, got {found}", where="")


def _values(count: int) -> str:
    return f"a tuple of {count} value{'s' * (count != 1)}"

"""Types of values: a dtype and a shape, written ``f32[n, 784]``; tuples, shape values, callables, opaque objects.

>>> f32["n", 784]
f32[n, 784]
>>> f32["n + 1", "_"]            # "_" is a size known only at run time
f32[n + 1, _]
>>> f32[()], f32[...]            # a scalar; unknown rank
(f32[()], f32[...])
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minirelax.ir.dim import Dim, dim, names, substitute

NUMPY_DTYPES: dict[str, np.dtype] = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64)}
NAMES = {d: name for name, d in NUMPY_DTYPES.items()}


@dataclass(frozen=True, repr=False)
class Type:
    """Base of all types; `Object`, the type of anything, is the top of the lattice (digest 1.1)."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, repr=False)
class Object(Type):
    """Any run-time value."""

    def __str__(self) -> str:
        return "Object"


@dataclass(frozen=True, repr=False)
class Tensor(Type):
    """An array: dtype name, and its sizes; None in `shape` is a size known only at run time, a shape of None is unknown rank."""

    dtype: str
    shape: tuple[Dim | None, ...] | None
    _hash: int | None = field(default=None, compare=False, repr=False, init=False)

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.dtype, self.shape)))
        return self._hash

    def __reduce__(self):                  # without the cached hash: hashes of strings differ between processes
        return Tensor, (self.dtype, self.shape)

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype}[...]"
        dims = ", ".join("_" if d is None else str(d) for d in self.shape)
        return f"{self.dtype}[{dims}]" if dims else f"{self.dtype}[()]"

    @property
    def ndim(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def numpy_dtype(self) -> np.dtype:
        return NUMPY_DTYPES[self.dtype]


@dataclass(frozen=True, repr=False)
class Shape(Type):
    """A first-class shape value: its entries, or only how many there are."""

    values: tuple[Dim, ...] | None = None
    ndim: int | None = None

    def __str__(self) -> str:
        return f"Shape([{', '.join(map(str, self.values))}])" if self.values is not None else f"Shape(ndim={self.ndim})"


@dataclass(frozen=True, repr=False)
class Tuple(Type):
    """A fixed number of values."""

    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"Tuple[{', '.join(map(str, self.items))}]" if self.items else "Tuple[()]"


@dataclass(frozen=True, repr=False)
class Callable(Type):
    """A function value: parameter types and result type."""

    params: tuple[Type, ...]
    result: Type

    def __str__(self) -> str:
        return f"Callable[[{', '.join(map(str, self.params))}], {self.result}]"


@dataclass(frozen=True, repr=False)
class Storage(Type):
    """Raw memory of so many bytes, the home of one or more tensors in turn."""

    bytes: Dim

    def __str__(self) -> str:
        return f"Storage[{self.bytes}]"


class DType:
    """``f32["n", 4]`` builds a `Tensor` type; this object is also an annotation for scalars when used bare."""

    def __init__(self, name: str):
        self.name = name

    def __getitem__(self, dims: object) -> Tensor:
        if dims is Ellipsis:
            return Tensor(self.name, None)
        return Tensor(self.name, tuple(_dimension(d) for d in (dims if isinstance(dims, tuple) else (dims,))))

    def __repr__(self) -> str:
        return self.name


def _dimension(d: object) -> Dim | None:
    if d is None or d == "_":
        return None
    return dim(d) if isinstance(d, str) else d


bool_, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64 = map(DType, NUMPY_DTYPES)
DTYPES = {t.name: t for t in (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64)}


def dtype_name(dtype: object) -> str | None:
    """Our name for a NumPy dtype (or anything ``np.dtype`` accepts, or one of `DTYPES`), None if there is none.

    >>> dtype_name(np.float32), dtype_name("int64"), dtype_name(np.complex64)
    ('f32', 'i64', None)
    """
    if isinstance(dtype, DType):
        return dtype.name
    if isinstance(dtype, str) and dtype in NUMPY_DTYPES:
        return dtype
    return NAMES.get(np.dtype(dtype).newbyteorder("="))


def itemsize(dtype: str) -> int:
    """Bytes per element."""
    return NUMPY_DTYPES[dtype].itemsize


def symbols(type_: Type) -> frozenset[str]:
    """The named sizes that a type mentions."""
    match type_:
        case Tensor(shape=shape) if shape is not None:
            return frozenset().union(*(names(d) for d in shape if d is not None))
        case Shape(values=values) if values is not None:
            return frozenset().union(*map(names, values))
        case Tuple(items=items):
            return frozenset().union(*map(symbols, items))
        case Storage(bytes=size):
            return names(size)
    return frozenset()


def substitute_type(type_: Type, values: dict[str, Dim]) -> Type:
    """`type_` with named sizes replaced."""
    match type_:
        case Tensor(dtype=dtype, shape=shape) if shape is not None:
            return Tensor(dtype, tuple(d if d is None else substitute(d, values) for d in shape))
        case Shape(values=entries) if entries is not None:
            return Shape(tuple(substitute(d, values) for d in entries))
        case Tuple(items=items):
            return Tuple(tuple(substitute_type(t, values) for t in items))
        case Storage(bytes=size):
            return Storage(substitute(size, values))
    return type_

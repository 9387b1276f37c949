"""Types of values: a dtype and a shape, written ``f32[n, 784]``; tuples, shape values, callables, opaque objects.

Each has one spelling, in Python annotations (names of sizes in quotes) and in IR text (without), see `reader.parse_type`.

>>> f32["n", 784]
f32[n, 784]
>>> f32["n + 1", "_"]            # "_" is a size known only at run time
f32[n + 1, _]
>>> f32[()], f32[...]            # a scalar; unknown rank
(f32[()], f32[...])
>>> Tensor["n", 4], Tensor[...]  # unknown dtype
(Tensor[n, 4], Tensor[...])
>>> Shape(["n", 4]), Shape(ndim=2), Shape()
(Shape([n, 4]), Shape(ndim=2), Shape())
>>> Tuple[f32, Object], Callable[[Shape(["n", "m"])], f32["n*m"]], Callable[..., Object]
(Tuple[f32[()], Object], Callable[[Shape([n, m])], f32[m*n]], Callable[..., Object])
"""
from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minirelax.errors import DTypeError, ShapeError
from minirelax.ir.dim import Dim, ceildiv, dim, names, substitute

NUMPY_DTYPES: dict[str, np.dtype] = {
    "bool": np.dtype(np.bool_),
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "f32": np.dtype(np.float32), "f64": np.dtype(np.float64),
    "c64": np.dtype(np.complex64), "c128": np.dtype(np.complex128)}
NAMES = {d: name for name, d in NUMPY_DTYPES.items()}
PARTS = {"c64": "f32", "c128": "f64"}              # dtype of the real and the imaginary part
WHOLES = {part: whole for whole, part in PARTS.items()}


@dataclass(frozen=True, repr=False)
class Type:
    """Base of all types; `Object`, the type of anything, is the top of the lattice (Relax, table 1)."""

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, repr=False)
class Object(Type):
    """Any run-time value."""

    def __str__(self) -> str:
        return "Object"


@dataclass(frozen=True, repr=False)
class Tensor(Type):
    """An array: dtype name, and its sizes.

    What only the run shows is None: the dtype, a size in `shape`, or, for unknown rank, the whole `shape`.
    """

    dtype: str | None
    shape: tuple[Dim | None, ...] | None
    _hash: int | None = field(default=None, compare=False, repr=False, init=False)

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.dtype, self.shape)))
        return self._hash

    def __reduce__(self):                  # without the cached hash: hashes of strings differ between processes
        return Tensor, (self.dtype, self.shape)

    def __class_getitem__(cls, dims: object) -> Tensor:
        """``Tensor["n", 4]``: an array of unknown dtype."""
        return Tensor(None, _sizes(dims))

    def __str__(self) -> str:
        name = self.dtype or "Tensor"
        if self.shape is None:
            return f"{name}[...]"
        dims = ", ".join("_" if d is None else str(d) for d in self.shape)
        return f"{name}[{dims}]" if dims else f"{name}[()]"

    @property
    def ndim(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def numpy_dtype(self) -> np.dtype:
        """NumPy's dtype.  Raises DTypeError if it is unknown."""
        if self.dtype is None:
            raise DTypeError(f"the dtype of {self} is known only at run time", 'say what it is: match_cast(x, f32["n"])')
        return NUMPY_DTYPES[self.dtype]


@dataclass(frozen=True, repr=False)
class Shape(Type):
    """A first-class shape value: its entries, or only how many there are (`ndim`, also set if the entries are known), or neither.

    Entries may be given as text: ``Shape(["n", "2*n"])``.  Raises ShapeError if only some are known, or `ndim` is another number.
    """

    values: tuple[Dim, ...] | None = None
    ndim: int | None = None

    def __post_init__(self):
        if self.values is not None:
            values = tuple(map(_dimension, self.values))
            if None in values:
                raise ShapeError("only some entries of a Shape are known", "say how many there are: Shape(ndim=2)")
            if self.ndim not in (None, len(values)):
                raise ShapeError(f"a Shape has {len(values)} entries and ndim={self.ndim}", "leave ndim out")
            object.__setattr__(self, "values", values)
            object.__setattr__(self, "ndim", len(values))

    def __str__(self) -> str:
        if self.values is not None:
            return f"Shape([{', '.join(map(str, self.values))}])"
        return "Shape()" if self.ndim is None else f"Shape(ndim={self.ndim})"


@dataclass(frozen=True, repr=False)
class Tuple(Type):
    """A fixed number of values."""

    items: tuple[Type, ...]

    def __class_getitem__(cls, items: object) -> Tuple:
        """``Tuple[f32["n"], Object]``."""
        return Tuple(tuple(map(as_type, items if isinstance(items, tuple) else (items,))))

    def __str__(self) -> str:
        return f"Tuple[{', '.join(map(str, self.items))}]" if self.items else "Tuple[()]"


@dataclass(frozen=True, repr=False)
class Callable(Type):
    """A function value: parameter types (None: any) and result type.

    It is closed: the sizes it names are its own, bound by its parameters at each call, and mean nothing outside.
    """

    params: tuple[Type, ...] | None
    result: Type

    def __class_getitem__(cls, signature: tuple[object, object]) -> Callable:
        """``Callable[[f32["n"]], f32["2*n"]]``, ``Callable[..., Object]``."""
        return Callable(*signature)

    def __post_init__(self):
        object.__setattr__(self, "params", None if self.params in (None, ...) else tuple(map(as_type, self.params)))
        object.__setattr__(self, "result", as_type(self.result))

    def __str__(self) -> str:
        return f"Callable[{'...' if self.params is None else '[' + ', '.join(map(str, self.params)) + ']'}, {self.result}]"


LINE = 64  # bytes of a cache line: what lies in a storage starts on one, and shares none with anything else


def whole_lines(count: Dim) -> Dim:
    """So many bytes, rounded up to cache lines."""
    return ceildiv(count, LINE) * LINE


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
        return Tensor(self.name, _sizes(dims))

    def __repr__(self) -> str:
        return self.name


def as_type(annotation: object) -> Type:
    """The type that a Python annotation says: a type, a bare dtype (a scalar), or a bare class.  Raises DTypeError otherwise.

    >>> as_type(f32), as_type(Object), as_type(Shape), as_type(f32["n"])
    (f32[()], Object, Shape(), f32[n])
    """
    match annotation:
        case Type():
            return annotation
        case DType():
            return Tensor(annotation.name, ())
    bare = {Object: Object(), Shape: Shape(), Tensor: Tensor(None, None)}
    if not isinstance(annotation, type) or annotation not in bare:
        raise DTypeError(f"not a type: {annotation!r}", 'types are written f32["n", 4], Shape(["n", 4]), Tuple[...], Object')
    return bare[annotation]


def _sizes(dims: object) -> tuple[Dim | None, ...] | None:
    return None if dims is Ellipsis else tuple(map(_dimension, dims if isinstance(dims, tuple) else (dims,)))


def _dimension(d: object) -> Dim | None:
    if d is None or isinstance(d, str) and d.strip() == "_":
        return None
    return dim(d) if isinstance(d, str) else d


bool_, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, c64, c128 = map(DType, NUMPY_DTYPES)
DTYPES = {t.name: t for t in (bool_, i8, i16, i32, i64, u8, u16, u32, u64, f32, f64, c64, c128)}


def dtype_name(dtype: object) -> str | None:
    """Our name for a NumPy dtype (or anything ``np.dtype`` accepts, or one of `DTYPES`), None if there is none.

    >>> dtype_name(np.float32), dtype_name("int64"), dtype_name(np.complex64), dtype_name(np.float16)
    ('f32', 'i64', 'c64', None)
    """
    if isinstance(dtype, DType):
        return dtype.name
    if isinstance(dtype, str) and dtype in NUMPY_DTYPES:
        return dtype
    return NAMES.get(np.dtype(dtype).newbyteorder("="))


def itemsize(dtype: str) -> int:
    """Bytes per element."""
    return NUMPY_DTYPES[dtype].itemsize


def is_known(type_: Type) -> bool:
    """Are all sizes of the array, or of all arrays in the tuple, named or numbers?

    >>> is_known(f32["n", 4]), is_known(Tuple[f32["n"], f32["_"]]), is_known(f32[...])
    (True, False, False)
    """
    if isinstance(type_, Tuple):
        return bool(type_.items) and all(map(is_known, type_.items))
    return isinstance(type_, Tensor) and type_.shape is not None and None not in type_.shape


def symbols(type_: Type) -> frozenset[str]:
    """The named sizes that a type mentions; those of a `Callable` are its own and do not count."""
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
    """`type_` with named sizes replaced; a `Callable` has none that an outer name could mean."""
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

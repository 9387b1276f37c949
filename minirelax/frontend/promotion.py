"""NumPy's promotion rules (NEP 50): the dtype an operation computes in.

Python numbers (and sizes, and traced Python arguments) are *weak*: they take the dtype of the arrays they meet.  NumPy
itself is asked, so the tables are never copied.

>>> promote((np.dtype("float32"), float)), promote((np.dtype("int8"), np.dtype("uint8"))), promote((int, bool))
('f32', 'i16', 'i64')
>>> loop(np.divide, (np.dtype("int32"), int))
(('f64', 'f64'), 'f64')
"""

from __future__ import annotations

import numpy as np

from minirelax.errors import DTypeError
from minirelax.ir.types import PARTS, dtype_name
from minirelax.ops.rules import PARTS_HINT

Kind = np.dtype | type  # a dtype, or the Python type of a weak scalar
ZERO = {bool: False, int: 0, float: 0.0, complex: 0j}
WEAK_DTYPE = {bool: "bool", int: "i64", float: "f64", complex: "c128"}  # the narrowest first


def promote(kinds: tuple[Kind, ...]) -> str:
    """The common dtype of operands of these kinds, as ``np.result_type`` has it."""
    if all(isinstance(k, type) for k in kinds):
        return WEAK_DTYPE[widest(kinds)]
    return name_of(np.result_type(*(ZERO[k] if isinstance(k, type) else k for k in kinds)))


def widest(kinds: tuple[type, ...]) -> type:
    """Of Python's types of numbers, the one that holds the others."""
    return max(kinds, key=tuple(WEAK_DTYPE).index)


def loop(ufunc: np.ufunc, kinds: tuple[Kind, ...]) -> tuple[tuple[str, ...], str]:
    """The dtypes that a ufunc casts its operands to, and that of its result.  Raises DTypeError where NumPy has no loop."""
    wanted = tuple(np.dtype(bool) if k is bool else k for k in kinds)
    try:
        found = ufunc.resolve_dtypes((*wanted, *(None,) * ufunc.nout))
    except TypeError:
        raise DTypeError(
            f"np.{ufunc.__name__} is not defined for {', '.join(map(kind_name, kinds))}",
            PARTS_HINT if any(np.dtype(k).kind == "c" for k in kinds) else "convert first: x.astype(...)",
        ) from None
    return tuple(name_of(d, ufunc.__name__) for d in found[: ufunc.nin]), name_of(found[ufunc.nin], ufunc.__name__)


def accumulator(dtype: str) -> str:
    """The dtype in which NumPy sums and multiplies: narrow integers and bool widen to 64 bits."""
    if dtype in ("bool", "i8", "i16", "i32"):
        return "i64"
    return "u64" if dtype in ("u8", "u16", "u32") else dtype


def floating(dtype: str) -> str:
    """The dtype in which NumPy takes a mean: float64 for integers."""
    return dtype if dtype in ("f32", "f64", *PARTS) else "f64"


def name_of(dtype: object, where: str = "") -> str:
    """Our name for a dtype as users write it.  Raises DTypeError for one that cannot be compiled."""
    try:
        name = WEAK_DTYPE.get(dtype) if isinstance(dtype, type) else None
        name = name or dtype_name(dtype)
    except TypeError:
        raise DTypeError(f"{dtype!r} is not a dtype") from None
    if name is None:
        of = f"np.{where} computes in" if where else "there is no compiled"
        raise DTypeError(
            f"{of} {np.dtype(dtype)}" + (", which cannot be compiled" if where else ""),
            "use bool, an integer type, float32, float64, complex64 or complex128: x.astype(np.float32)",
        )
    return name


def kind_name(kind: Kind) -> str:
    """A kind as the user knows it: ``float32``, or ``Python int``."""
    return f"Python {kind.__name__}" if isinstance(kind, type) else str(kind)

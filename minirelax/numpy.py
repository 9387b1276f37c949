"""NumPy's namespace for compiled functions: the same names, on real and on traced arrays.

On real arrays the functions are NumPy's.  During a trace, those that make arrays (`zeros`, `arange`, `full`, ...) accept
symbolic sizes and give arrays that may be filled in place.  It is also the namespace of the array API standard.

>>> import minirelax.numpy as mnp
>>> mnp.sum(mnp.ones((2, 3))), mnp.maximum is np.maximum, mnp.float32 is np.float32
(np.float64(6.0), True, True)
"""

from __future__ import annotations

import numpy as np

from minirelax.frontend.casts import match_cast  # noqa: F401  part of the namespace
from minirelax.frontend.functions import FUNCTIONS, public
from minirelax.frontend.ufuncs import OPNAMES, SPECIAL
from minirelax.ops import OPS

DTYPES = (
    "bool_",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "complex64",
    "complex128",
    "intp",
    "double",
    "single",
)
PLAIN = (
    "pi",
    "e",
    "inf",
    "nan",
    "newaxis",
    "euler_gamma",
    "dtype",
    "finfo",
    "iinfo",
    "isdtype",
    "result_type",
    "can_cast",
    "promote_types",
    "ndarray",
    "generic",
    "number",
    "integer",
    "floating",
    "errstate",
    "isscalar",
    "ndindex",
    "asarray",
    "s_",
    "index_exp",
)


class Inner:
    """NumPy's functions of an inner module, such as ``linalg``, that can be traced."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str):
        raise _unknown(f"{self._name}.{name}")


def _unknown(name: str) -> AttributeError:
    where, _, last = f"numpy.{name}".rpartition(".")
    inner = name.rpartition(".")[0]
    known = hasattr(getattr(np, inner) if inner else np, last)
    return AttributeError(
        f"minirelax.{name} does not exist: {where} has no {last}"
        if not known
        else f"{where}.{last} is not supported in a compiled function"
    )


def _ufuncs() -> dict[str, np.ufunc]:
    """NumPy's ufuncs, under all their names, that have an op or are made of such."""
    found = {name: fn for name in dir(np) if isinstance(fn := getattr(np, name), np.ufunc)}
    return {name: fn for name, fn in found.items() if fn in SPECIAL or OPNAMES.get(fn.__name__, fn.__name__) in OPS}


linalg, fft = Inner("linalg"), Inner("fft")
for _name in (*DTYPES, *PLAIN):
    globals()[_name] = getattr(np, _name)
bool = np.bool_
for _name, _fn in _ufuncs().items():
    globals()[_name] = _fn
for _name in FUNCTIONS:
    _outer, _, _inner = _name.rpartition(".")
    if _outer:
        setattr(globals()[_outer], _inner, public(_name))
    else:
        globals()[_name] = public(_name)


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    raise _unknown(name)


_PRIVATE = ("annotations", "np", "FUNCTIONS", "OPS", "OPNAMES", "SPECIAL", "DTYPES", "PLAIN", "public", "Inner")
__all__ = sorted(n for n in globals() if n.isidentifier() and not n.startswith("_") and n not in _PRIVATE)

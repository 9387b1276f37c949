"""Workspaces of library routines: memory that a routine may use while it runs, which it gets in place of allocating its own.

A routine says what it needs when it is registered: a function of the types of its inputs and outputs and of its sizes, in the
order in which the routine gets them.  It gives the type of one array, or a number of bytes, in the sizes of those types.  While a
program is compiled these are symbols, so that the memory is planned with all other (`lift_workspaces`) and shared with what is
dead by then; at a call they are numbers.  The routine is called as ``routine(*inputs, *outputs, work, *sizes)``, with whatever
the memory holds.

Memory that fits is never taken on trust: a call asks what the routine needs, and where the program brings something else, since
another function is registered now or nothing was planned, it makes a new array.

>>> from minirelax.ir.dim import symbol
>>> from minirelax.ir.types import f64
>>> WORKSPACES["halve"] = lambda x, out, k: f64[x.shape[0] + k]
>>> workspace_type("halve", (f64["n"],), (f64["n"],), (3,))
f64[n + 3]
>>> del WORKSPACES["halve"]
>>> print(workspace_type("halve", (f64["n"],), (f64["n"],), (3,)))
None
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np

from minirelax.errors import LibraryError
from minirelax.ir.bounds import is_nonnegative
from minirelax.ir.dim import Dim, DimExpr, names
from minirelax.ir.types import NUMPY_DTYPES, DType, Tensor, dtype_name, symbols

WORKSPACES: dict[str, Callable] = {}  # of the routines that have one

NEEDED = "it is to give a type with known sizes, such as f64[x.shape[0]], or a number of bytes"


def workspace_type(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], sizes: Sequence[Dim]) -> Tensor | None:
    """The type of the routine's workspace for arguments of these types; None if it has none.

    Raises LibraryError, naming the routine and the call, for whatever its function raises, and for what is no such type.
    """
    needed = _declared(name)
    return None if needed is None else _asked(name, needed, tuple(inputs), tuple(outputs), tuple(sizes))


def workspace_at(
    name: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], sizes: Sequence[int], given: np.ndarray | None
) -> np.ndarray | None:
    """The array that a call is to pass as workspace: the given one if it is what the routine needs, else a new one."""
    needed = _declared(name)
    if needed is None:
        return None
    shape, dtype = _asked_at(name, needed, *(tuple((a.dtype, a.shape) for a in side) for side in (inputs, outputs)), tuple(sizes))
    fits = given is not None and (given.shape, given.dtype) == (shape, dtype)
    return given if fits else np.empty(shape, dtype)


def _declared(name: str) -> Callable | None:
    from minirelax.ir.library import ROUTINES

    if name in ROUTINES:
        return WORKSPACES.get(name)
    return WORKSPACES.get(name) or _built_in(name)


def _built_in(name: str) -> Callable | None:
    from minirelax.libraries import WORKSPACES as built_in  # only here: it is far ahead in the order of the package

    return built_in.get(name)


@functools.lru_cache(1024)
def _asked_at(name: str, needed: Callable, inputs: tuple, outputs: tuple, sizes: tuple) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype for arrays of these dtypes and shapes; asked once, since it depends on nothing else."""
    kinds = [tuple(Tensor(dtype_name(dtype), shape) for dtype, shape in side) for side in (inputs, outputs)]
    found = _asked(name, needed, *kinds, sizes)
    return found.shape, NUMPY_DTYPES[found.dtype]


def _asked(name: str, needed: Callable, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], sizes: tuple) -> Tensor:
    call = f"it was asked about {name}({', '.join(map(str, (*inputs, *outputs, *sizes)))})"
    try:
        found = needed(*inputs, *outputs, *sizes)
    except Exception as e:
        what = f"the workspace of the library routine {name} raised {type(e).__name__}: {e}"
        hint = f"{call}; sizes are symbols, for which +, -, *, // and minirelax.ir.dim's minimum and maximum are there"
        raise LibraryError(what, hint if any(map(_is_symbolic, (*inputs, *outputs, *sizes))) else call, name) from e
    made = _as_type(found)
    if made is None:
        raise LibraryError(f"the workspace of the library routine {name} is {found!r}", f"{NEEDED}; {call}", name)
    if any(is_nonnegative(-1 - d) for d in made.shape):
        raise LibraryError(f"the workspace of the library routine {name} has a negative size: {made}", call, name)
    known = {n for t in (*inputs, *outputs) for n in symbols(t)} | {n for s in sizes if isinstance(s, DimExpr) for n in names(s)}
    if unknown := sorted(symbols(made) - known):
        what = f"the workspace of the library routine {name} mentions the size {unknown[0]}, which no argument has"
        raise LibraryError(what, call, name)
    return made


def _is_symbolic(part: Tensor | Dim) -> bool:
    return isinstance(part, DimExpr) or isinstance(part, Tensor) and bool(symbols(part))


def _as_type(found: object) -> Tensor | None:
    """What a workspace function gave, as a type; None if it is nothing that memory can be taken for."""
    match found:
        case bool():
            return None
        case int() | DimExpr():
            return Tensor("u8", (found,))
        case DType():
            return Tensor(found.name, ())
        case Tensor(dtype=str(), shape=tuple(shape)) if all(isinstance(d, int | DimExpr) for d in shape):
            return found
    return None

"""`call_library`: a routine that is not a program of this compiler, called from a compiled function.

>>> import numpy as np
>>> from minirelax import f64, jit
>>> from minirelax.ir.library import register_library
>>> def smooth_into(x, out, width):
...     out[...] = np.convolve(x, np.ones(width) / width, "same")
>>> _ = register_library("smooth", smooth_into)
>>> call_library("smooth", (np.array([0.0, 3, 0, 0]),), f64[4], sizes=(3,))
array([1., 1., 1., 0.])
>>> f = jit(lambda x: call_library("smooth", (x,), f64[x.shape[0]], sizes=(3,)) * 2, target="interpret")
>>> f(np.array([0.0, 3, 0]))
array([2., 2., 2.])
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import numpy as np

from minirelax.errors import ArgumentError, LibraryError, ShapeError, user_line
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder, active
from minirelax.frontend.operands import asarray, is_nonnegative, is_traced
from minirelax.frontend.signature import as_argument
from minirelax.frontend.size import Size
from minirelax.ir.dim import Dim, DimExpr, names, substitute
from minirelax.ir.graph import CallLibrary, MatchCast, TupleItem, Var
from minirelax.ir.library import ROUTINES, call_into, call_returning, makes_room
from minirelax.ir.op import OPS
from minirelax.ir.types import NUMPY_DTYPES, DType, Tensor, Tuple

OUT = 'out=f32[x.shape[0], 10], or a list of such types; "_" is a size that only the routine knows'


def call_library(name: str, args: Sequence, out: Tensor | Sequence[Tensor], sizes: Sequence[int | Size] = ()):
    """What the registered routine `name` makes of `args`: an array of type `out`, or a tuple of them for a list of types.

    args: arrays (numbers become arrays without axes), passed read-only and C-contiguous.
    out: types whose sizes are numbers, sizes of arrays (``x.shape[0]``), or letters that declarations have bound.  The routine
        is called as ``routine(*args, *outputs, *sizes)`` and writes its outputs.  If any size is ``"_"``, which only the
        routine knows, it is called as ``routine(*args, *sizes)`` and returns its outputs.
    sizes: further arguments, passed as Python integers.

    Works on NumPy arrays, too, outside of compiled functions.  How routines are to behave: `minirelax.ir.library`.

    Raises ArgumentError for a name that is not registered or a type that cannot be made, ShapeError for a negative size, and,
    when it runs, `LibraryError` (a RunError) for whatever the routine raises or does wrong.
    """
    _check_name(name)
    if not isinstance(args, tuple | list):
        raise ArgumentError(f"call_library({name!r}): args is a {type(args).__name__}", "args is a tuple of arrays: (x,)")
    several = isinstance(out, tuple | list)
    types = [_type(name, t) for t in (out if several else [out])]
    if not types:
        raise ArgumentError(f"call_library({name!r}): no output is declared", OUT)
    b = active()
    if b is None and not is_traced(list(args)):
        found = _run(name, args, types, sizes)
    else:
        found = _trace(b, name, [asarray(a) for a in args], types, sizes)
    return tuple(found) if several else found[0]


def _check_name(name: str) -> None:
    if name in ROUTINES:
        return
    close = difflib.get_close_matches(str(name), ROUTINES, 3)
    hint = f"did you mean {' or '.join(close)}?"
    if not close:
        hint = f"register it first: minirelax.register_library({name!r}, function)"
    if name in OPS:
        hint = f"{name} is an operation of the compiler: call NumPy's function"
    raise ArgumentError(f"no library routine is called {name}", hint)


def _type(name: str, given: object) -> Tensor:
    """An output's type."""
    given = Tensor(given.name, ()) if isinstance(given, DType) else given
    if not isinstance(given, Tensor) or given.dtype is None or given.shape is None:
        raise ArgumentError(f"call_library({name!r}): an output cannot be {given!r}", OUT)
    return given


def _integer(name: str, d: object) -> int:
    if isinstance(d, int | np.integer) and not isinstance(d, bool):
        return int(d)
    raise ArgumentError(f"call_library({name!r}): a size must be an integer, not {type(d).__name__}", OUT)


# ---- inside a trace


def _trace(b: Builder, name: str, args: list[TracedArray], types: list[Tensor], sizes: Sequence) -> list[TracedArray]:
    extra = tuple(_dim(b, name, s, "sizes") for s in sizes)
    known = [Tensor(t.dtype, tuple(None if d is None else _dim(b, name, d, str(t)) for d in t.shape)) for t in types]
    for t in known:
        if negative := [d for d in t.shape if d is not None and not is_nonnegative(d)]:
            number = "" if isinstance(negative[0], int) else f" = {b.facts.hint(negative[0])} in this call"
            raise ShapeError(f"call_library({name!r}): {t} has a negative size: {negative[0]}{number}")
    call = CallLibrary(name, tuple(a.atom for a in args), (), extra)
    if len(known) == 1:
        made = [b.bind(call, known[0])]
    else:
        whole = b.bind(call, Tuple(tuple(known)))
        made = [b.bind(TupleItem(whole, i), t) for i, t in enumerate(known)]
    return [_sized(b, v) for v in made]


def _sized(b: Builder, v: Var) -> TracedArray:
    """An array with a fresh size for each that only the routine knows."""
    if not makes_room(v.type):
        shape = tuple(b.inner_size() if d is None else d for d in v.type.shape)
        v = b.emit(MatchCast(v, Tensor(v.type.dtype, shape)))
    return TracedArray(b, v)


def _dim(b: Builder, name: str, d: object, where: str) -> Dim:
    """A size as the IR knows it: the user's letters stand for our sizes."""
    if isinstance(d, Size):
        return b.facts.resolve(d.dim)
    if not isinstance(d, DimExpr):
        return _integer(name, d)
    if unknown := sorted(names(d) - b.user_sizes.keys()):
        known = f"letters that are bound: {', '.join(sorted(b.user_sizes))}" if b.user_sizes else "no letter is bound here"
        what = f"call_library({name!r}): the size {unknown[0]} of {where} is not known"
        raise ArgumentError(what, f"{known}; use a size of an array, x.shape[0], or \"_\" for a size that only the routine knows")
    return b.facts.resolve(substitute(d, dict(b.user_sizes)))


# ---- outside


def _run(name: str, args: Sequence, types: list[Tensor], sizes: Sequence) -> list[np.ndarray]:
    """Allocate and call.  Raises LibraryError with the user's line."""
    try:
        return _call(name, args, types, sizes)
    except LibraryError as e:
        raise LibraryError(e.what, e.hint, e.routine, user_line()) from e.__cause__


def _call(name: str, args: Sequence, types: list[Tensor], sizes: Sequence) -> list[np.ndarray]:
    arrays = [as_argument(a, f"{i} of {name}", None)[0] for i, a in enumerate(args)]
    extra = [_integer(name, s) for s in sizes]
    shapes = [tuple(None if d is None else _number(name, d, t) for d in t.shape) for t in types]
    if any(None in shape for shape in shapes):
        return list(call_returning(name, arrays, [(t.dtype, s) for t, s in zip(types, shapes, strict=True)], extra))
    made = [np.empty(shape, NUMPY_DTYPES[t.dtype]) for t, shape in zip(types, shapes, strict=True)]
    call_into(name, arrays, made, extra)
    return made


def _number(name: str, d: object, type_: Tensor) -> int:
    if isinstance(d, DimExpr):
        what = f"call_library({name!r}): the size {d} of {type_} is not known outside of a compiled function"
        raise ArgumentError(what, "use numbers: x.shape[0]")
    if (number := _integer(name, d)) < 0:
        raise ShapeError(f"call_library({name!r}): {type_} has a negative size: {number}")
    return number

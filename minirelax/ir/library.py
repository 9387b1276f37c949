"""The routines that library calls can name: functions of arrays that somebody else wrote, registered under a name.

There is one contract, *destination passing*: a routine is called as ``routine(*inputs, *outputs, *sizes)`` and writes its
outputs, which are there already; it returns nothing (or, as NumPy's functions do, its outputs).  Inputs are read-only; arrays
are C-contiguous; sizes are Python integers.  Where the caller does not know the size of an output (``f32[_]``), nobody can
make room for it: then the routine is called as ``routine(*inputs, *sizes)`` and returns its outputs, an array or a tuple of
arrays.  A routine must depend on nothing but its arguments, since equal calls are made once and unread ones never, and must
keep none of them.

An op with ``library = True`` is not registered: it is called under its own name by its `numpy` rule.

>>> import numpy as np
>>> def add_into(x, y, out, n):
...     np.add(x, y, out=out)
>>> register_library("add_into", add_into) is add_into
True
>>> out = np.empty(3)
>>> call_into("add_into", [np.ones(3), np.arange(3.0)], [out], [3])
>>> out
array([1., 2., 3.])
"""
from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import numpy as np

from minirelax.errors import ArgumentError, LibraryError, RunError
from minirelax.ir.graph import Atom, CallLibrary, RunLibrary, operand_names, tuple_operands
from minirelax.ir.op import OPS, Op
from minirelax.ir.types import NUMPY_DTYPES, Tensor, Tuple, Type, dtype_name

ROUTINES: dict[str, Callable] = {}

Expected = tuple[str | None, tuple[int | None, ...] | None]        # of an output that is returned: dtype, sizes, as far as known


def register_library(name: str, function: Callable) -> Callable:
    """Make `function` known as the library routine `name`, and return it; see the module for how it is called.

    Programs find a routine when they call it: registering another function under the name replaces it in all of them.  Raises
    ArgumentError for a name that an op of the compiler has, and for what is not a function.
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"the name of a library routine is a string, not {name!r}", "register_library('my_solver', function)")
    if not callable(function):
        raise ArgumentError(f"register_library({name!r}): not a function: {function!r}", "pass the function itself")
    if name in OPS:
        raise ArgumentError(f"register_library: {name} is an operation of the compiler", f"choose another name: 'my_{name}'")
    ROUTINES[name] = function
    return function


def routine(name: str) -> Callable:
    """The registered function.  Raises RunError, with the names that are most like it, if there is none."""
    found = ROUTINES.get(name)
    if found is None:
        close = difflib.get_close_matches(name, ROUTINES, 3)
        guess = f"did you mean {' or '.join(close)}? else " if close else ""
        hint = f"{guess}register it first: minirelax.register_library({name!r}, function)"
        raise RunError(f"no library routine is called {name}", hint, where="")
    return found


def makes_room(type_: Type) -> bool:
    """Are all sizes of a library call's result known before it, so that the routine writes where its caller says?"""
    if isinstance(type_, Tuple):
        return bool(type_.items) and all(map(makes_room, type_.items))
    return isinstance(type_, Tensor) and type_.dtype is not None and type_.shape is not None and None not in type_.shape


def call_into(name: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], sizes: Sequence[int] = ()) -> None:
    """Let a registered routine write `outputs`.  Raises LibraryError for whatever it raises, and if it returns something."""
    found = _called(name, [*map(_read_only, inputs), *outputs], sizes)
    returned = found if isinstance(found, tuple) else (found,)
    if found is not None and not all(any(r is o for o in outputs) for r in returned):
        what = f"the library routine {name} returned {_kind(found)}"
        raise LibraryError(what, "it is to write its outputs, the arguments after the inputs, and to return nothing", name)


def call_returning(name: str, inputs: Sequence[np.ndarray], expected: Sequence[Expected],
                   sizes: Sequence[int] = ()) -> tuple[np.ndarray, ...]:
    """What a registered routine returns, as new arrays.  Raises LibraryError for whatever it raises, and for other results."""
    found = _called(name, list(map(_read_only, inputs)), sizes)
    arrays = found if isinstance(found, tuple | list) else (found,)
    if found is None or len(arrays) != len(expected):
        what = f"the library routine {name} returned {_kind(found)}"
        raise LibraryError(what, f"it is to return {len(expected)} array{'s' * (len(expected) > 1)}", name)
    return tuple(_checked(name, i, a, e) for i, (a, e) in enumerate(zip(arrays, expected, strict=True)))


def _called(name: str, arrays: list[np.ndarray], sizes: Sequence[int]) -> object:
    function = routine(name)
    try:
        return function(*arrays, *sizes)
    except Exception as e:
        given = ", ".join([*map(_kind, arrays), *map(str, sizes)])
        what = f"the library routine {name} raised {type(e).__name__}: {e}"
        raise LibraryError(what, f"it was called as {name}({given})", name) from e


def _read_only(array: np.ndarray) -> np.ndarray:
    view = (array if array.flags.c_contiguous else np.array(array, order="C")).view(np.ndarray)
    view.flags.writeable = False
    return view


def _checked(name: str, position: int, found: object, expected: Expected) -> np.ndarray:
    """A returned array as a new one, if it is what was declared."""
    dtype, shape = expected
    fits = isinstance(found, np.ndarray | np.generic) and dtype_name(found.dtype) and (
        dtype in (None, dtype_name(found.dtype)) and (shape is None or len(shape) == found.ndim and all(
            d is None or d == n for d, n in zip(shape, found.shape, strict=True))))
    if not fits:
        what = f"the library routine {name} returned {_kind(found)} as result {position}"
        raise LibraryError(what, f"{Tensor(dtype, shape)} was declared", name)
    return np.array(found, NUMPY_DTYPES[dtype_name(found.dtype)], order="C", subok=False)


def _kind(found: object) -> str:
    """What was passed or returned, in words: ``f32[3, 4]``, or the name of its class."""
    if isinstance(found, tuple | list):
        return f"({', '.join(map(_kind, found))})"
    if not isinstance(found, np.ndarray | np.generic):
        return "nothing" if found is None else f"a value of type {type(found).__name__}"
    name = dtype_name(found.dtype)
    return str(Tensor(name, found.shape)) if name else f"an array of dtype {found.dtype}"


def library_op(call: CallLibrary | RunLibrary) -> Op | None:
    """The op that a library call stands for, if its routine is an op's name."""
    cls = OPS.get(call.routine)
    return None if cls is None else cls(**_grouped(cls, call.args), **dict(call.options))


def _grouped(cls: type[Op], args: tuple[Atom, ...]) -> dict[str, Atom | tuple[Atom, ...]]:
    """Arguments by operand field; one field may hold several, it takes what the others leave."""
    names, several = operand_names(cls), tuple_operands(cls)
    spare, rest, found = len(args) - len(names) + 1, list(args), {}
    for name in names:
        count = spare if name in several else 1
        found[name] = tuple(rest[:count]) if name in several else rest[0]
        rest = rest[count:]
    return found

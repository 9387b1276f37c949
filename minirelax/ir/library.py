"""The routines that `call_library` can name: functions of arrays that somebody else wrote.

An op with ``library = True`` is one of them under its own name; others are registered here.

>>> import numpy as np
>>> register("matrix_rank", np.linalg.matrix_rank)
>>> routine("matrix_rank")(np.eye(3))
np.int64(3)
"""
from __future__ import annotations

from collections.abc import Callable

from minirelax.errors import RunError
from minirelax.ir.graph import Atom, CallLibrary, RunLibrary, operand_names, tuple_operands
from minirelax.ir.op import OPS, Op

LIBRARY: dict[str, Callable] = {}


def register(name: str, function: Callable) -> None:
    """Make `function` (arrays in, an array or a tuple of arrays out; options by keyword) known as `name`."""
    LIBRARY[name] = function


def routine(name: str) -> Callable:
    """The registered function.  Raises RunError if there is none."""
    if name not in LIBRARY:
        raise RunError(f"no library routine is called {name}", f"register it: library.register({name!r}, function)", where="")
    return LIBRARY[name]


def library_op(call: CallLibrary | RunLibrary) -> Op | None:
    """The op that a library call stands for, if its routine is an op's name."""
    cls = OPS.get(call.routine)
    return None if cls is None or call.routine in LIBRARY else cls(**_grouped(cls, call.args), **dict(call.options))


def _grouped(cls: type[Op], args: tuple[Atom, ...]) -> dict[str, Atom | tuple[Atom, ...]]:
    """Arguments by operand field; one field may hold several, it takes what the others leave."""
    names, several = operand_names(cls), tuple_operands(cls)
    spare, rest, found = len(args) - len(names) + 1, list(args), {}
    for name in names:
        count = spare if name in several else 1
        found[name] = tuple(rest[:count]) if name in several else rest[0]
        rest = rest[count:]
    return found

"""The arrays that a program is given by hand, checked against its parameters: weights when they are bound, arguments at a call.

>>> from minirelax.ir.types import f32
>>> check_weights((Var("w", f32[2]), Var("b", f32[()])), {"w": np.ones(2, np.float32), "b": 3})
(array([1., 1.], dtype=float32), array(3., dtype=float32))
>>> check_weights((Var("w", f32[2]),), [np.ones(3, np.float32)])
Traceback (most recent call last):
minirelax.errors.ShapeError: argument w: expected f32[2], got an array of shape (3,): axis 0 is 3, not 2
...
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from minirelax.errors import ArgumentError
from minirelax.frontend.mismatch import explain_mismatch, sizes_of
from minirelax.frontend.signature import as_argument
from minirelax.frontend.tree import flatten
from minirelax.ir.graph import Const, Function, Var
from minirelax.ir.types import Shape, Tensor, Tuple, Type

if TYPE_CHECKING:
    from minirelax.runtime.calls import Bound

SHOWN = 4  # parameters that an error lists


def check_weights(params: Sequence[Var], weights: object) -> tuple[np.ndarray, ...]:
    """The arrays for bound parameters: the leaves of `weights`, a sequence or any nested container, in order.

    Raises ArgumentError, DTypeError or ShapeError if they are not what the parameters say.
    """
    leaves = flatten(weights)[0]
    if len(leaves) != len(params):
        what = f"{_counted(len(params), 'weight')} expected, {len(leaves)} given"
        raise ArgumentError(what, f".bind(weights) takes {_listed(params)}")
    return _checked(Function("bind", tuple(params), (), Const(0, "i64")), leaves)


def call(program: Bound, main: Function, values: Sequence[object]) -> tuple:
    """The results of a program whose parameters and guards are those of `main`.

    Raises ArgumentError, DTypeError or ShapeError for arguments that do not fit, naming the argument and both sizes.
    """
    if len(values) != len(main.params):
        what = f"{_counted(len(main.params), 'argument')} expected, {len(values)} given"
        raise ArgumentError(what, f"they are {_listed(main.params)}")
    found = program(values) if all(isinstance(p.type, Tensor) for p in main.params) else None
    if found is None:
        values = _checked(main, values)
        found = program([leaf for p, v in zip(main.params, values, strict=True) for leaf in _leaves(p.type, v)])
    if found is None:
        raise explain_mismatch(main, values)
    return found


def _leaves(type_: Type, value: object) -> Iterator[object]:
    """A value as the program takes it: tuples item by item, shapes as vectors."""
    if isinstance(type_, Tuple):
        for item, part in zip(type_.items, value, strict=True):
            yield from _leaves(item, part)
    else:
        yield np.array(value, np.int64) if isinstance(type_, Shape) else value


def _checked(function: Function, values: Sequence[object]) -> tuple:
    """Arguments as arrays of the parameters' types."""
    values = tuple(_as_declared(p.type, v, p.name) for v, p in zip(values, function.params, strict=True))
    if sizes_of(function, values) is None:
        raise explain_mismatch(function, values)
    return values


def _as_declared(type_: Type, value: object, path: str) -> object:
    """An argument as arrays of the declared types; what has not their form stays, to be explained."""
    match type_:
        case Tensor() | Shape():
            return as_argument(value, path, type_)[0]
        case Tuple(items=items) if isinstance(value, tuple | list) and len(value) == len(items):
            return tuple(_as_declared(t, v, f"{path}[{i}]") for i, (t, v) in enumerate(zip(items, value, strict=True)))
    return value


def _counted(number: int, thing: str) -> str:
    """``1 weight``, ``2 weights``."""
    return f"{number or 'no'} {thing}{'s' * (number != 1)}"


def _listed(params: Sequence[Var]) -> str:
    """``x: f32[n], y: f32[n]``."""
    shown = ", ".join(f"{p.name}: {p.type}" for p in params[:SHOWN]) or "nothing"
    return shown + (f", and {len(params) - SHOWN} more" if len(params) > SHOWN else "")

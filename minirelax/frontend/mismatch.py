"""Do values fit the parameters and guards of a function, and if not, why: in the words of `ir.boundary`, with a way out.

>>> from minirelax.ir.graph import Function, Var
>>> from minirelax.ir.types import f32
>>> x, w = Var("x", f32["n", 4]), Var("w", f32["n"])
>>> f = Function("main", (x, w), (), x)
>>> sizes_of(f, (np.zeros((3, 4), np.float32), np.zeros(3, np.float32)))
{'n': 3}
>>> print(explain_mismatch(f, (np.zeros((3, 4), np.float32), np.zeros(5, np.float32)), name="f").what)
f: argument w: expected f32[n], got an array of shape (5,): axis 0 is 5, not n = 3 (the size of axis 0 of x)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minirelax.errors import DTypeError, ShapeError
from minirelax.frontend.facts import HOLDS
from minirelax.ir.boundary import Given, Known, arguments, check
from minirelax.ir.dim import Dim
from minirelax.ir.graph import Function
from minirelax.ir.types import Shape, Tensor

DECLARED = "pass an array of the declared shape, or declare another"
DECLARED_SHAPE = "pass a tuple with these sizes, or declare another"


def sizes_of(function: Function, values: Sequence[np.ndarray]) -> dict[str, int] | None:
    """The named sizes of a call; None if the values do not fit the parameters, or a guard does not hold."""
    known = Known()
    try:
        check(arguments(function.params, values), known)
    except (DTypeError, ShapeError):
        return None
    if not all(holds(g.relation, g.left, g.right, known) for g in function.guards):
        return None
    return known.sizes


def explain_mismatch(
    function: Function, values: Sequence[np.ndarray], paths: Sequence[str] | None = None, name: str = ""
) -> ShapeError | DTypeError:
    """The error for values that do not fit: which argument and axis, what was expected, what came, where the size is from.

    `paths` are the parameters' names for users, `name` is the function's.
    """
    given, known = arguments(function.params, values, name, paths), Known()
    try:
        checked(given, known)
    except (DTypeError, ShapeError) as e:
        return e
    for g in function.guards:
        if not holds(g.relation, g.left, g.right, known):
            both = f"{known.in_words(g.left)}, {known.in_words(g.right)}"
            return ShapeError(f"{name and f'{name}: '}{g.left} {g.relation} {g.right} does not hold: {both}")
    return ShapeError("the arguments do not fit")


def checked(given: Sequence[Given], known: Known) -> None:
    """`boundary.check`, its errors with the user's line and a hint."""
    try:
        check(given, known)
    except (DTypeError, ShapeError) as e:
        about = next((g for g in given if e.what.startswith(g.what)), None)
        raise type(e)(e.what, "" if about is None else _hint(e, about)) from None


def holds(relation: str, left: Dim, right: Dim, known: Known) -> bool:
    """Does the relation hold for these sizes?  False where a size has no value."""
    a, b = known.number(left), known.number(right)
    return a is not None and b is not None and HOLDS[relation](a, b)


def _hint(error: ShapeError | DTypeError, about: Given) -> str:
    if isinstance(error, DTypeError) and isinstance(about.type, Tensor) and isinstance(about.value, np.ndarray):
        return f"convert it: {about.name}.astype(np.{about.type.numpy_dtype})"
    return DECLARED_SHAPE if isinstance(about.type, Shape) else DECLARED

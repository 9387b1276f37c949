"""Do arrays fit the parameters of a function, and if not, why: in words that name the argument, the axis and both sizes.

>>> from minirelax.ir.graph import Function, Var
>>> from minirelax.ir.types import f32
>>> x, w = Var("x", f32["n", 4]), Var("w", f32["n"])
>>> f = Function("main", (x, w), (), x)
>>> sizes_of(f, (np.zeros((3, 4), np.float32), np.zeros(3, np.float32)))
{'n': 3}
>>> print(explain_mismatch(f, (np.zeros((3, 4), np.float32), np.zeros(5, np.float32))).what)
argument w: expected f32[n], got an array of shape (5,): axis 0 is 5, not n = 3 (the size of axis 0 of x)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minirelax.errors import ShapeError
from minirelax.frontend.facts import HOLDS
from minirelax.ir.dim import Dim, DimExpr, names, symbol, value
from minirelax.ir.graph import Function, Var

DECLARED = "pass an array of the declared shape, or declare another"


def sizes_of(function: Function, arrays: Sequence[np.ndarray]) -> dict[str, int] | None:
    """The named sizes of a call; None if the arrays do not fit the parameters, or a guard does not hold."""
    sizes, _ = bound_sizes(function.params, arrays)
    for p, a in zip(function.params, arrays, strict=True):
        if len(p.type.shape) != a.ndim or any(_number(d, sizes) != n for d, n in zip(p.type.shape, a.shape, strict=True)):
            return None
    if not all(holds(g.relation, g.left, g.right, sizes) for g in function.guards):
        return None
    return sizes


def explain_mismatch(function: Function, arrays: Sequence[np.ndarray], paths: Sequence[str] | None = None) -> ShapeError:
    """The error for arrays that do not fit: which argument and axis, what was expected, what came, where the size is from."""
    sizes, homes = bound_sizes(function.params, arrays)
    paths = paths or [p.name for p in function.params]
    for p, a, path in zip(function.params, arrays, paths, strict=True):
        got = f"argument {path}: expected {p.type}, got an array of shape {a.shape}"
        if len(p.type.shape) != a.ndim:
            return ShapeError(f"{got}: {a.ndim} {'axis' if a.ndim == 1 else 'axes'}, not {len(p.type.shape)}", DECLARED)
        for axis, (d, n) in enumerate(zip(p.type.shape, a.shape, strict=True)):
            if _number(d, sizes) != n:
                return ShapeError(f"{got}: axis {axis} is {n}, not {_in_words(d, sizes, homes)}", DECLARED)
    for g in function.guards:
        if not holds(g.relation, g.left, g.right, sizes):
            both = f"{_in_words(g.left, sizes, homes)}, {_in_words(g.right, sizes, homes)}"
            return ShapeError(f"{g.left} {g.relation} {g.right} does not hold: {both}")
    return ShapeError("the arguments do not fit")


def bound_sizes(params: Sequence[Var], arrays: Sequence[np.ndarray]) -> tuple[dict[str, int], dict[str, str]]:
    """The value of each size where it first stands alone, and where that is."""
    sizes: dict[str, int] = {}
    homes: dict[str, str] = {}
    for p, a in zip(params, arrays, strict=True):
        for axis, (d, n) in enumerate(zip(p.type.shape, a.shape, strict=False)):
            if isinstance(d, DimExpr) and (name := str(d)).isidentifier() and d == symbol(name) and name not in sizes:
                sizes[name], homes[name] = n, f"axis {axis} of {p.name}"
    return sizes, homes


def holds(relation: str, left: Dim, right: Dim, sizes: dict[str, int]) -> bool:
    """Does the relation hold for these sizes?  False where a size has no value."""
    a, b = _number(left, sizes), _number(right, sizes)
    return a is not None and b is not None and HOLDS[relation](a, b)


def _number(d: Dim, sizes: dict[str, int]) -> int | None:
    try:
        return value(d, sizes)
    except (KeyError, ZeroDivisionError):
        return None


def _in_words(d: Dim, sizes: dict[str, int], homes: dict[str, str]) -> str:
    if isinstance(d, int):
        return str(d)
    where = ", ".join(
        f"the size of {homes[n]}" if d == symbol(n) else f"{n} = {sizes[n]} is the size of {homes[n]}"
        for n in sorted(names(d))
        if n in homes
    )
    return f"{d} = {_number(d, sizes)}" + (f" ({where})" if where else "")

"""What is carried through branches and loops: which leaves may be, how their dtypes settle, what to say where they do not fit.

A Python number that starts a loop takes the dtype that the body makes of it; an array keeps its own, and numbers adapt to it.

>>> settled(int, float), settled(float, np.dtype("float32")), settled(np.dtype("float32"), float)
(<class 'float'>, dtype('float32'), dtype('float32'))
>>> settled(np.dtype("float32"), np.dtype("float64")) is None
True
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import numpy as np

from minirelax.errors import ArgumentError, CompileError, DTypeError, ShapeError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.promotion import Kind, kind_name, promote, widest
from minirelax.frontend.size import Size
from minirelax.frontend.tree import Tree, flatten
from minirelax.ir.types import NUMPY_DTYPES, Tensor, dtype_name

VALUES = TracedArray | Size | np.ndarray | np.bool_ | np.number | bool | int | float | complex
STACK = "say what it is with minirelax.match_cast, or give results of one size, filled up with zeros"
FIXED = "scan keeps all sizes: begin with the final size and fill it, or use minirelax.while_loop, where sizes may change"


def settled(start: Kind, made: Kind) -> Kind | None:
    """The kind of value that a loop carries where it starts with one and its body makes another of it; None if there is none."""
    if isinstance(start, type):
        return widest((start, made)) if isinstance(made, type) else NUMPY_DTYPES[promote((start, made))]
    return start if start == made or isinstance(made, type) and NUMPY_DTYPES[promote((start, made))] == start else None


def check_callable(what: str, name: str, fn: object) -> None:
    """Raises ArgumentError for what cannot be called."""
    if not callable(fn):
        raise ArgumentError(
            f"{what}: {name} is no function, but of type {type(fn).__name__}", f"pass a function: {what} calls it where needed"
        )


def check_leaf(what: str, path: str, leaf: object) -> None:
    """Raises ArgumentError for what is neither an array nor a number."""
    if not isinstance(leaf, VALUES) and not hasattr(leaf, "__array__"):
        raise ArgumentError(
            f"{what}: {path} is of type {type(leaf).__name__}, neither an array nor a number",
            "a function sees everything else where it is defined",
        )


def leaves_of(what: str, path: str, value: object) -> tuple[list, Tree]:
    """The arrays and numbers of a value, and its structure."""
    leaves, tree = flatten(value)
    for place, leaf in zip(tree.paths(path), leaves, strict=True):
        check_leaf(what, place, leaf)
    return leaves, tree


def same_leaves(what: str, tree: Tree, made: object, name: str, fact: str = "{} is carried") -> list:
    """The leaves of what the function `name` returns, which must have the structure `tree`, as the `fact` says."""
    leaves = tree.take(made)
    if leaves is None:
        raise ArgumentError(
            f"{what}: {fact.format(_text(tree))}, but {name} returns {_text(flatten(made)[1])}",
            "return the same containers; each * is an array or a number",
        )
    for path, leaf in zip(tree.paths("the result"), leaves, strict=True):
        check_leaf(what, f"{path} of {name}", leaf)
    return leaves


def pair(what: str, name: str, made: object) -> tuple[object, object]:
    """The two things that the function of a scan returns."""
    if not isinstance(made, tuple | list) or len(made) != 2:
        raise ArgumentError(
            f"{what}: {name} returns {_text(flatten(made)[1])}, not a pair",
            "return the next carry and the round's result: carry, y; a round without a result returns carry, None",
        )
    return made


def _text(tree: Tree) -> str:
    return str(tree) if tree.cls else "one value"


def misfit(what: str, path: str, start: str, made: str, name: str, error: type[CompileError], hint: str) -> CompileError:
    """The error for a carried value that its body makes another kind of value of."""
    return error(f"{what}: {path} is carried as {start}, but {name} returns {made} for it", hint)


def other_dtype(what: str, path: str, start: tuple[Kind, Tensor], made: tuple[Kind, Tensor], name: str) -> CompileError:
    """The error for a dtype that would change."""
    hint = f"convert what is returned, .astype(np.{NUMPY_DTYPES[start[1].dtype]}), or start with the other dtype"
    return misfit(what, path, type_text(*start), type_text(*made), name, DTypeError, hint)


def other_rank(what: str, path: str, start: tuple[Kind, Tensor], made: tuple[Kind, Tensor], name: str) -> CompileError:
    """The error for a number of axes that would change."""
    hint = "the number of axes stays the same: start with an array that has as many, such as np.zeros_like(...)"
    return misfit(what, path, type_text(*start), type_text(*made), name, ShapeError, hint)


def type_text(kind: Kind, type_: Tensor) -> str:
    """How messages call the type of a value."""
    return f"a {kind_name(kind)}" if isinstance(kind, type) else str(type_)


def array_type(x: np.ndarray | np.generic | float) -> Tensor:
    """The type of a real array or number."""
    x = np.asarray(x)
    return Tensor(dtype_name(x.dtype), x.shape)


def function_name(fn: Callable, default: str) -> str:
    """The function's own name, if it has one."""
    name = getattr(fn, "__name__", "")
    return name if name.isidentifier() else default


def parameter_names(fn: Callable, *defaults: str) -> list[str]:
    """What the function calls its first parameters."""
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):  # written in C
        return list(defaults)
    named = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return [*named, *defaults[len(named) :]][: len(defaults)]

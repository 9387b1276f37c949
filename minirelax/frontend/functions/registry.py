"""The functions that can be traced, by NumPy's name, and how a call finds its way to one.

A call with an option that only NumPy has is an error that names the option, unless it has its default value.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable

import numpy as np

from minirelax.errors import ArgumentError, DTypeError, UnsupportedError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import active
from minirelax.frontend.operands import is_traced
from minirelax.frontend.ufuncs import store

FUNCTIONS: dict[str, Callable] = {}  # "sum", "linalg.norm": the traced form
EAGER: dict[str, Callable] = {}  # the same on real arrays, where NumPy has no such function
ELEMENTS = ("reduce", "statistics", "contract", "linalg")  # modules whose functions give elements, not arrays without axes
CREATES: set[str] = set()  # functions that make arrays, which are traced arrays during a trace


def function(*names: str, creates: bool = False, eager: Callable | None = None, real: bool = False) -> Callable:
    """Decorator: the traced form of the NumPy functions `names`; `out=` and unknown options are dealt with here.

    `real` says that the function is for real numbers only.
    """

    def register(fn: Callable) -> Callable:
        for name in names:
            FUNCTIONS[name] = _checked(fn, name, real)
            if creates:
                CREATES.add(name)
            if eager is not None:
                EAGER[name] = eager
        return fn

    return register


def array_function(func: Callable, args: tuple, kwargs: dict):
    """What NumPy's functions do when one of their arguments is traced."""
    name = _names().get(func)
    if name is None:
        where = "" if (module := getattr(func, "__module__", "numpy")) == "numpy" else module.removeprefix("numpy.") + "."
        raise UnsupportedError(f"np.{where}{func.__name__} is not supported in a compiled function")
    return FUNCTIONS[name](*args, **kwargs)


def public(name: str) -> Callable:
    """The function for `minirelax.numpy`: traced on traced arrays, NumPy's own on real ones."""
    traced, eager = FUNCTIONS[name], EAGER.get(name) or numpy_function(name)

    def call(*args, **kwargs):
        if (name in CREATES and active() is not None) or any(map(is_traced, args)) or any(map(is_traced, kwargs.values())):
            return traced(*args, **kwargs)
        return eager(*args, **kwargs)

    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    call.__doc__ = f"As ``numpy.{name}``, on real and on traced arrays." if numpy_function(name) else traced.__doc__
    return call


@functools.cache
def numpy_function(name: str) -> Callable | None:
    """NumPy's function of this (dotted) name, if it has one."""
    found: object = np
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


@functools.cache
def _names() -> dict[Callable, str]:
    return {fn: name for name in FUNCTIONS if (fn := numpy_function(name)) is not None}


def _checked(fn: Callable, name: str, real: bool = False) -> Callable:
    signature = inspect.signature(fn)
    takes_out = "out" in signature.parameters
    gives_elements = fn.__module__.rpartition(".")[2] in ELEMENTS

    @functools.wraps(fn)
    def call(*args, **kwargs):
        out = None if takes_out else kwargs.pop("out", None)
        try:
            signature.bind(*args, **kwargs)
        except TypeError as e:
            args, kwargs = _known_options(signature, name, args, kwargs, e)
            out = kwargs.pop("out", None) if not takes_out else out
        if real:
            _refuse_complex(name, (*args, *kwargs.values()))
        result = fn(*args, **kwargs)
        if out is not None:
            return store(result, out, name=name)
        return result.as_element() if gives_elements and isinstance(result, TracedArray) else result

    return call


def _refuse_complex(name: str, args: tuple) -> None:
    """Raises DTypeError for a complex number among the arguments of a function of real ones."""
    for a in args:
        if isinstance(a, list | tuple):
            _refuse_complex(name, tuple(a))
        elif isinstance(a, complex) or isinstance(a, TracedArray | np.ndarray | np.generic) and a.dtype.kind == "c":
            what = f"np.{name} of complex numbers is not supported in a compiled function"
            raise DTypeError(what, "compute with x.real and x.imag, or with np.abs(x)")


def _known_options(signature: inspect.Signature, name: str, args: tuple, kwargs: dict, error: TypeError) -> tuple[tuple, dict]:
    """The arguments by name, as NumPy's own signature has them, without those at their defaults.

    Raises UnsupportedError for an option that only NumPy knows, ArgumentError for one that nobody knows.
    """
    try:
        theirs = inspect.signature(numpy_function(name))
        given = theirs.bind(*args, **kwargs).arguments
    except ValueError:  # a C function without a signature
        unknown = [k for k in kwargs if k not in signature.parameters]
        raise UnsupportedError(
            f"np.{name}(..., {unknown[0]}=...) is not supported in a compiled function" if unknown else f"np.{name}: {error}"
        ) from None
    except TypeError as e:
        raise ArgumentError(f"np.{name}: {e}") from None
    kept = {}
    for key, value in given.items():
        if key in signature.parameters or key == "out":
            kept[key] = value
        elif value is not theirs.parameters[key].default and value != theirs.parameters[key].default:
            raise UnsupportedError(f"np.{name}(..., {key}={value!r}) is not supported in a compiled function")
    try:
        signature.bind(**{k: v for k, v in kept.items() if k != "out"})
    except TypeError as e:
        raise ArgumentError(f"np.{name}: {e}") from None
    return (), kept

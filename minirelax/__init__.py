"""minirelax: a compiler for NumPy functions with symbolic sizes, small enough to read and fast enough to use.

>>> import numpy as np
>>> @jit
... def scaled(x):
...     return x * 2 + 1
>>> scaled(np.arange(3.0))
array([1., 3., 5.])
"""
from __future__ import annotations

from minirelax import errors
from minirelax.frontend.casts import match_cast
from minirelax.frontend.control import cond, fori_loop, scan, while_loop
from minirelax.frontend.shapes import tensor_to_shape
from minirelax.ir.types import (
    Callable,
    Object,
    Shape,
    Tensor,
    Tuple,
    bool_,
    c64,
    c128,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from minirelax.jit import JitFunction, jit, trace

__version__ = "0.1.0"

# Names whose modules are only loaded when asked for: a program that only calls compiled functions never needs them.
_LATER = {
    "kernel": "minirelax.frontend.kernels",
    "call_library": "minirelax.frontend.library_calls",
    "register_library": "minirelax.ir.library",
    "LibraryRule": "minirelax.passes.choose_libraries",
    "library_rule": "minirelax.passes.choose_libraries",
    "GroupRule": "minirelax.passes.group_patterns",
    "parse": "minirelax.ir.parser",
    "run": "minirelax.pipeline",
    "compile": "minirelax.pipeline",
    "Executable": "minirelax.runtime.executable",
    "validate": "minirelax.runtime.validate",
    "set_num_threads": "minirelax.runtime.pool",
    "get_num_threads": "minirelax.runtime.pool",
}


def __getattr__(name: str):
    import importlib
    if name in ("numpy", "explore", "libraries", "pipeline"):
        return importlib.import_module(f"minirelax.{name}")
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), {"compile": "compile_module"}.get(name, name))
    raise AttributeError(f"module 'minirelax' has no attribute {name!r}")


__all__ = [
    "Callable", "JitFunction", "Object", "Shape", "Tensor", "Tuple", "bool_", "c64", "c128", "cond", "errors", "f32", "f64",
    "fori_loop", "i8", "i16", "i32", "i64", "jit", "match_cast", "scan", "tensor_to_shape", "trace", "u8", "u16", "u32", "u64",
    "while_loop", *sorted(_LATER),
]

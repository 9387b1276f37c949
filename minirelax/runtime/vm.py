"""The virtual machine: compiles the native loop once, keeps it in the object cache, and makes it callable.

>>> from minirelax.runtime.frame import Context
>>> from minirelax.runtime.instructions import Assembler, Status
>>> a = Assembler()
>>> n, twice = a.slot("n"), a.slot("twice")
>>> a.add(twice, n, n)
>>> program = a.finish()
>>> context = Context(program, program.link({}), threads=1)
>>> context.slots[n] = 21
>>> status = machine().run(context.address, context.code_address, 0, pool.address())
>>> Status(status & 255).name, int(context.slots[twice])
('RETURN', 42)
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from dataclasses import dataclass

from minirelax.runtime import frame, instructions, object_cache, pool
from minirelax.runtime.instructions import Comparison, Match, Opcode, Status
from minirelax.runtime.intrinsics import FUTEX
from minirelax.runtime.machine_code import DEFAULT, ObjectCode, compile_functions

# Result and arguments of the functions of native_loop.py: i int64, p pointer to int64.
SIGNATURES = {
    "run": "i(piii)",
    "gather": "i(ppi)",
    "load_integer": "i(ii)",
    "stop": "i(piiiii)",
    "run_parallel": "i(piii)",
    "set_counters": "i(piiiii)",
    "run_region": "i(piiiii)",
    "worker": "i(i)",
    "wake": "i(ii)",
    "nanoseconds": "i(i)",
    "enter": "i(ipi)",
    "enter_released": "i(ipi)",
}


@dataclass(frozen=True)
class Machine:
    """The native loop's entries. All take addresses as Python integers, and trust them.

    * ``run(frame, code, pc, pool)`` -> status + (pc << 8), through ctypes, without the interpreter's lock;
    * ``run_locked(...)``: the same, keeping the lock (for what takes less than a microsecond);
    * ``enter(frame, code, pc, pool, *objects)``: a native builtin, about five times cheaper to call; it stores the
      addresses of `objects` in the frame's first slots, keeps no reference, and keeps the lock;
    * ``enter_released(...)``: the same without the lock while the program runs.

    `worker` is the address of the pool's thread function and ``wake(pool, threads)`` ends the workers' sleep.
    """

    run: Callable[[int, int, int, int], int]
    run_locked: Callable[[int, int, int, int], int]
    enter: Callable[..., int]
    enter_released: Callable[..., int]
    worker: int
    wake: Callable[[int, int], int]


@functools.cache
def machine() -> Machine:
    """The machine of this process; compiled with Numba if no process with the same processor and versions has done so."""
    constants = _constants()
    source, helpers = (_text(name) for name in ("native_loop.py", "intrinsics.py"))
    key = "\n".join(["native loop", DEFAULT.text, repr(SIGNATURES), repr(constants), source, helpers])
    addresses = object_cache.load_or_compile(key, lambda: _compile(source, constants))
    word = ctypes.c_int64
    prototype = ctypes.CFUNCTYPE(word, word, word, word, word)
    locked = ctypes.PYFUNCTYPE(word, word, word, word, word)
    return Machine(
        prototype(addresses["run"]), locked(addresses["run"]),
        _builtin("enter", addresses["enter"]), _builtin("enter_released", addresses["enter_released"]),
        addresses["worker"], ctypes.CFUNCTYPE(word, word, word)(addresses["wake"]))


def _compile(source: str, constants: dict[str, int]) -> ObjectCode:
    from minirelax.runtime.intrinsics import intrinsics

    return compile_functions(source, tuple(SIGNATURES), {**intrinsics(), **constants}, signatures=SIGNATURES)


def _text(name: str) -> str:
    with open(os.path.join(os.path.dirname(__file__), name), encoding="utf-8") as file:
        return file.read()


def _constants() -> dict[str, int]:
    """The numbers that native_loop.py knows by name."""
    # NumPy's array object (numpy/ndarraytypes.h, PyArrayObject_fields): the object header, then data, int nd, dimensions,
    # strides, base, descr, int flags. CPython's header ends with the type.
    header = object.__basicsize__ // 8
    array = {"OBJECT_TYPE": header - 1, "ARRAY_DATA": header, "ARRAY_NDIM": header + 1, "ARRAY_DIMENSIONS": header + 2,
             "ARRAY_DTYPE": header + 5, "ARRAY_FLAGS": header + 6, "ARRAY_IN_ORDER": 0x0001 | 0x0100}  # C_CONTIGUOUS, ALIGNED
    words = {name: getattr(frame, name) for name in (
        "HEADER", "MESSAGE", "FOUND", "EXPECTED", "ARGUMENTS", "ARGUMENT_BYTES",
        "COUNTERS", "COUNTED_CALLS", "THREADS")}
    shared = {name: getattr(pool, name) for name in dir(pool) if name.startswith(("JOB_", "RECORD_"))}
    shared |= {f"POOL_{name}": getattr(pool, name) for name in (
        "GATE", "SIGNAL", "SLEEPERS", "DEBT", "THREADS", "AWAKE", "ASLEEP", "CHUNK", "SPIN")}
    shared |= {f"GATE_{name}": getattr(pool, name) for name in ("INSIDE", "OPEN", "OWNED", "EPOCH")}
    return {
        **array, **words, **shared, "FUTEX": FUTEX or 0,
        **{name: getattr(instructions, name) for name in ("NO_MESSAGE", "DIVIDED_BY_ZERO", "OVERFLOW")},
        **{opcode.name: int(opcode) for opcode in Opcode},
        **{relation.name: int(relation) for relation in Comparison},
        **{f"STATUS_{status.name}": int(status) for status in Status},
        **{f"MATCH_{kind.name}": int(kind) for kind in Match},
    }


class _Method(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = [("name", ctypes.c_char_p), ("function", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p)]


METH_FASTCALL = 0x80
_methods: list[_Method] = []  # CPython keeps pointers to them


def _builtin(name: str, function: int) -> Callable[..., int]:
    """A builtin function of CPython from a native one."""
    method = _Method(name.encode(), function, METH_FASTCALL, None)
    _methods.append(method)
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return make(ctypes.addressof(method), None, None)

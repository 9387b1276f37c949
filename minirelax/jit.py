"""What a user touches: `jit` makes a function that is traced and compiled when called, once for all sizes that allow it.

>>> import numpy as np
>>> @jit(target="interpret")
... def softmax(x):
...     e = np.exp(x - np.max(x, axis=-1, keepdims=True))
...     return e / np.sum(e, axis=-1, keepdims=True)
>>> softmax(np.zeros((2, 4))), softmax(np.zeros((1, 2))), len(softmax.compilations)
(array([[0.25, 0.25, 0.25, 0.25],
       [0.25, 0.25, 0.25, 0.25]]), array([[0.5, 0.5]]), 1)
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from minirelax.errors import (
    ArgumentError,
    BoundsError,
    CompileError,
    IndexingError,
    LibraryError,
    MemoryLimitError,
    RunError,
    ShapeError,
    line_text,
    without_internals,
)
from minirelax.frontend.array import TracedArray
from minirelax.frontend.calls import call as call_kept
from minirelax.frontend.mismatch import explain_mismatch
from minirelax.frontend.reference import ReferenceExecutable
from minirelax.frontend.signature import Call, Signature
from minirelax.frontend.size import Size
from minirelax.frontend.trace import TraceResult, trace_call
from minirelax.frontend.trace import trace as trace_function
from minirelax.frontend.tree import LEAF, flatten
from minirelax.ir.checked import checking
from minirelax.ir.graph import CallLibrary, Module
from minirelax.ir.types import Shape
from minirelax.passes.options import Options

if TYPE_CHECKING:
    from minirelax.explore import Compilations, Diff, MemoryPlan, Origins, Stages

TARGETS = ("cpu", "interpret")
MOST_PLAIN = 8  # programs tried without looking at the signature


class Entry:
    """One compilation: the trace, the executable, and the program bound to the latest weights."""

    def __init__(self, traced: TraceResult, executable, milliseconds: float, tracing: float):
        self.traced, self.executable = traced, executable
        self.milliseconds, self.tracing = milliseconds, tracing  # all of it, and the trace alone
        self.weights: tuple | None = None
        self.program: Callable | None = None
        t = traced
        converted = any(p.bound or p.python or isinstance(p.type, Shape) for p in t.params)
        self.plain = not t.mutations and not converted  # arrays go in
        self.one_array = t.out_tree is LEAF and t.results[0].output is not None and not t.results[0].python and bool(
            getattr(t.main.result.type, "shape", None)
        )  # one array that is not a scalar comes out

    def bind(self, weights: tuple[np.ndarray, ...]) -> Callable:
        """The program for these weights: bound anew if any is another array than last time."""
        program, known = self.program, self.weights
        if (
            program is None
            or known is None
            or len(known) != len(weights)
            or any(a is not b for a, b in zip(known, weights, strict=True))
        ):
            program = self.executable.bind(weights)
            self.weights, self.program = weights, program
        return program

    def located(self, error: CompileError, arrays: tuple[np.ndarray, ...], name: str) -> CompileError:
        """A failure of the running program as the user's line that it comes from raises it: the trace, run with NumPy."""
        from minirelax.ir.interpret import interpret

        try:
            with np.errstate(all="ignore"):
                interpret(self.traced.module, *arrays, bound=self.weights, called=name)
        except (IndexingError, ShapeError) as found:
            return found
        return error

    def result(self, outputs: tuple[np.ndarray, ...], arguments: tuple) -> object:
        """What the user's function returns, and its writes to arguments carried out."""
        traced = self.traced
        for i, k in traced.mutations:
            np.copyto(arguments[i], outputs[k])
        leaves = []
        for r in traced.results:
            if r.output is None:
                leaves.append(r.value if r.argument is None else arguments[r.argument])
            else:
                out = outputs[r.output]
                leaves.append(r.python(out) if r.python else out if out.ndim else out[()])
        return traced.out_tree.unflatten(leaves)


class JitFunction:
    """A function that is compiled at its first call, and again only when a call does not fit what was assumed.

    Called like the function itself, with the same arguments: arrays of any shape and layout with elements of type bool, int8 to
    int64, uint8 to uint64, float32, float64, complex64 or complex128; Python numbers and NumPy scalars; nested lists, tuples,
    dicts, named tuples and dataclasses of those; strings, types, functions, slices and None are taken as they are.  It returns
    what the function returns, with NumPy arrays (C-contiguous, sharing no memory with arguments or each other), NumPy scalars
    where NumPy has them, and Python numbers for sizes and for arithmetic on Python numbers.  Arguments that the function writes
    to are written to, and returned as they are where it returns them; no others are.

    A call raises `ArgumentError`, `ShapeError`, `DTypeError`, `BranchError`, `UnsupportedError` or `IndexingError` of
    `minirelax.errors` for a mistake in the call or in the function, with the line that made it, `RunError` for a size that
    cannot be computed, and `LibraryError` (a RunError) for a library routine that fails.  What the function itself raises
    passes through, as does NumPy's ``LinAlgError``.

    Thread-safe.  `.stages`, `.source` and the like describe the latest compilation; before the first one they raise
    `ArgumentError`.
    """

    def __init__(
        self,
        fn: Callable,
        *,
        static: str | tuple[str, ...] = (),
        constants: str | tuple[str, ...] = (),
        bounds: Mapping[str, tuple[int, int]] | None = None,
        target: str = "cpu",
        validate: bool = False,
        inline: bool = True,
        **options: object,
    ):
        if target not in TARGETS:
            raise ArgumentError(f"jit(..., target={target!r}): there is no such target", f"use one of {', '.join(TARGETS)}")
        functools.update_wrapper(self, fn)
        self.fn, self.target, self.validate, self.inline = fn, target, validate, inline
        self.options = Options.of(bounds, **options)
        self.bounds = self.options.bounds
        self.signature = Signature(fn, static, constants)
        self._entries: dict[tuple, list[Entry]] = {}
        self._all: list[Entry] = []
        self._plain: tuple[tuple[Callable, int, Callable | None], ...] = ()
        self._lock = threading.RLock()

    def __call__(self, *args, **kwargs):
        """The function's result for these arguments, by a compiled program: the class says what goes in, comes out, is raised."""
        try:
            if not kwargs:  # the programs themselves find out whether the arguments are arrays, and fit
                for program, count, finish in self._plain:
                    if count == len(args):
                        try:
                            found = program(args)
                        except (LibraryError, MemoryLimitError):
                            raise
                        except (IndexingError, RunError, ShapeError):
                            break  # once more, to find out where
                        if found is not None:
                            return found[0] if finish is None else finish(found, args)
            return self._call(args, kwargs)
        except LibraryError as e:
            raise without_internals(self._placed(e)) from e.__cause__
        except CompileError as e:
            raise without_internals(e)  # noqa: B904   it is the same error

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)

    def __repr__(self) -> str:
        return f"<jit of {self.signature.name}, {len(self._all)} compilations>"

    def __reduce__(self):
        return _again, (
            self.fn,
            {
                "static": tuple(self.signature.static),
                "constants": tuple(self.signature.constants),
                **vars(self.options),
                "target": self.target,
                "validate": self.validate,
                "inline": self.inline,
            },
        )

    # ---- as in JAX: stop after tracing, lowering, compiling

    def trace(self, *args, **kwargs) -> Module:
        """The traced module for these arguments, before any pass.

        Each argument is a value, or a type such as ``f32["n", 4]``, whose letters are then sizes that may be anything.
        Raises what a call raises while tracing; nothing is compiled, and `compilations` stays as it is.
        """
        return self._traced(args, kwargs).module

    def lower(self, *args, **kwargs) -> Module:
        """The module after all passes, for these arguments, which are as in `trace`.  Nothing is compiled."""
        from minirelax.pipeline import passes, run

        return run(self._traced(args, kwargs).module, passes(self.options))[-1].module

    def compile(self, *args, **kwargs) -> JitFunction:
        """Compile for arguments like these (values: their types count, and sizes as examples) now, and return this function.

        Raises what a call raises, except for what is only found while running.
        """
        self._entry(self.signature.bind(args, kwargs))
        return self

    def rebind(self) -> None:
        """Prepare the weights again at the next call, because arrays of `constants` arguments were changed in place.

        New arrays are noticed without this.  Waits for a compilation that is going on in another thread.
        """
        with self._lock:
            for entry in self._all:
                entry.program = entry.weights = None

    # ---- what was made

    @property
    def compilations(self) -> Compilations:
        """One entry per compilation, oldest first: argument types, the facts it rests on, the lines that asked for them."""
        from minirelax.explore import Compilation, Compilations

        return Compilations(Compilation(e.traced.arguments, e.traced.facts, e.milliseconds) for e in self._all)

    @property
    def executable(self):
        """The latest executable: a `minirelax.Executable`, which can be saved and pickled, or what interprets the trace."""
        return self._latest.executable

    @property
    def stages(self) -> Stages:
        """The module after each pass of the latest compilation, by name (``stages["fuse_ops"].module``) or number."""
        from minirelax.explore import Stages
        from minirelax.passes.base import Stage

        latest = self._latest
        own = [s for s in latest.executable.stages if s.name != "trace"]
        return Stages([Stage("trace", latest.traced.module, latest.tracing), *own])

    def diff(self, name: str, since: str | None = None) -> Diff:
        """What the pass `name` changed, as a difference of texts; with `since`, everything from after that stage on.

        Raises KeyError, with the names there are, for a stage that does not exist.
        """
        return self.stages.diff(name, since)

    @property
    def source(self) -> str:
        """The generated code of the latest compilation: Numba source, one function per kernel."""
        return self._compiled("source")

    @property
    def memory(self) -> MemoryPlan:
        """The memory plan of the latest compilation: which values share storage, and the peak in bytes as a formula."""
        from minirelax.explore import memory_plan

        return memory_plan(self.stages["plan_memory"].module)

    @property
    def kernels(self) -> Origins:
        """Every call of a kernel or routine in the latest compilation, with the ops that it came from, and the user's lines."""
        return self._compiled("kernels")

    @property
    def tiling(self):
        """The tiles chosen in the latest compilation, and why."""
        return self._compiled("tiling")

    # ---- calls

    def _call(self, args: tuple, kwargs: dict) -> object:
        if _holds_traced(args) or kwargs and _holds_traced(tuple(kwargs.values())):
            return self.fn(*args, **kwargs) if self.inline else call_kept(self.signature, args, kwargs)
        call = self.signature.bind(args, kwargs)
        for entry in self._entries.get(call.key, ()):
            outputs = self._run(entry, call)
            if outputs is not None:
                return entry.result(outputs, call.arguments)
        entry = self._entry(call)
        outputs = self._run(entry, call)
        if outputs is None:
            raise RunError(
                f"{self.signature.name}: the program compiled for these arguments does not accept them: "
                f"{explain_mismatch(entry.traced.main, call.arrays, call.paths).what}"
            )
        return entry.result(outputs, call.arguments)

    def _placed(self, error: LibraryError) -> LibraryError:
        """A library routine's failure with the user's line that calls it, if only one does."""
        bindings = (b for e in self._all for f in e.traced.module.functions for b in f.bindings if b.source)
        lines = {b.source for b in bindings if isinstance(b.value, CallLibrary) and b.value.routine == error.routine}
        if error.where or len(lines) != 1:
            return error
        source = lines.pop()
        placed = LibraryError(error.what, error.hint, error.routine, line_text(source.file, source.line))
        return placed.with_traceback(error.__traceback__)

    def _run(self, entry: Entry, call: Call) -> tuple[np.ndarray, ...] | None:
        """The outputs of a program, or None if the arguments do not fit it."""
        _check_writable(entry, call)
        try:
            program = entry.bind(call.weights)
            if self.validate:
                with checking():
                    outputs = program(call.arrays)
            else:
                outputs = program(call.arrays)
        except (LibraryError, BoundsError, MemoryLimitError):
            raise  # nothing is run again: a routine has failed, and says why; or a check, and says where; or there is no room
        except (IndexingError, RunError, ShapeError) as e:
            raise entry.located(e, call.arrays, self.signature.name) from None
        if outputs is not None and self.validate:
            from minirelax.passes.base import Stage
            from minirelax.runtime.validate import validate

            stages = entry.executable.stages or (Stage("trace", entry.traced.module, entry.tracing),)
            validate(stages, *call.arrays, weights=call.weights, outputs=outputs)
        return outputs

    def _entry(self, call: Call) -> Entry:
        """A new compilation for a call, or one that another thread has made meanwhile."""
        with self._lock:
            for entry in self._entries.get(call.key, ()):
                if entry.bind(call.weights)(call.arrays) is not None and not entry.traced.mutations:
                    return entry
            start = time.perf_counter()
            traced = trace_call(self.signature, call, self.bounds)
            tracing = 1e3 * (time.perf_counter() - start)
            entry = Entry(traced, self._executable(traced.module), 1e3 * (time.perf_counter() - start), tracing)
            self._entries.setdefault(call.key, []).append(entry)
            self._all.append(entry)
            if entry.plain and not call.static and not self.validate and all(tree is LEAF for tree in call.trees.values()):
                finish = None if entry.one_array else entry.result
                program = entry.bind(())
                run = getattr(program, "run", program)
                self._plain = ((run, len(call.arrays), finish), *self._plain)[:MOST_PLAIN]
            return entry

    def _executable(self, module: Module):
        if self.target == "interpret":
            return ReferenceExecutable(module, self.signature.name)
        from minirelax.runtime import program_cache

        return program_cache.compiled(module, self.options)

    def _traced(self, args: tuple, kwargs: dict) -> TraceResult:
        return trace_function(
            self.fn,
            *args,
            static=tuple(self.signature.static),
            constants=tuple(self.signature.constants),
            bounds=self.bounds,
            **kwargs,
        )

    @property
    def _latest(self) -> Entry:
        if not self._all:
            raise ArgumentError(f"{self.signature.name} has not been compiled yet", "call it, or use .compile(*args)")
        return self._all[-1]

    def _compiled(self, name: str):
        if self.target == "interpret":
            raise ArgumentError(f'target="interpret" compiles nothing, so there is no {name}', 'use target="cpu"')
        return getattr(self._latest.executable, name)


def jit(
    fn: Callable | None = None,
    *,
    static: str | tuple[str, ...] = (),
    constants: str | tuple[str, ...] = (),
    bounds: Mapping[str, tuple[int, int]] | None = None,
    target: str = "cpu",
    validate: bool = False,
    inline: bool = True,
    libraries: tuple = (),
    groups: tuple = (),
    without: str | tuple[str, ...] = (),
    memory_limit: int | None = None,
) -> JitFunction:
    """Compile an array function written with NumPy: ``@jit``, ``@jit(static="axis")`` or ``jit(fn)``.

    fn: takes and returns arrays, Python numbers, and nested containers of them (see `JitFunction`).  An annotation such as
        ``x: f32["n", 784]`` declares a dtype and sizes: numbers, or letters, which may take any value, the same one wherever
        the letter stands.  ``s: Shape(ndim=2)`` declares a shape, passed as a tuple of integers, which the function sees as a
        tuple of sizes; ``-> f32["n"]``, a result, which is checked.  Undeclared arguments have sizes of their own, and what the
        function asks about them (``x.shape[0] > 16``, equal sizes in a sum) is kept as a guard.
    static: names of arguments that are ordinary, hashable Python values: each new value is compiled for.
    constants: names of arguments that hold weights, with the shapes they have: transposed and packed once, and again only
        when other arrays come, or after `rebind`.
    bounds: the smallest and largest value of declared sizes, ``{"n": (1, 512)}``: other sizes are refused, and memory is
        planned with them.
    target: "cpu", or "interpret" to run the trace with NumPy, op by op, with nothing compiled.
    validate: at each call, interpret the module after every pass, and compare the results with the trace's and the compiled
        program's: slow.  Raises `RunError`, which names the first pass that changed a result.

    inline: what a call inside another compiled function becomes.  By default the lines of this one, as if they stood there; with
        False a function of the same program, which is traced and compiled once for all calls with arguments of the same types
        (sizes may differ).  Where a call would not mean the same, the lines it is: see `minirelax.frontend.calls`.
    libraries: rules that hand parts of the program to routines of yours: `minirelax.LibraryRule`.
    groups: patterns that become one kernel before anything else is grouped: `minirelax.GroupRule`.
    without: names of passes to leave out, such as "fuse_ops", to see what each is worth.
    memory_limit: bytes that a call may take beyond its results: one that needs more raises `MemoryLimitError` before it starts.

    Raises `ArgumentError` for names of arguments that `fn` does not have, a target or a pass that does not exist, or a
    declaration that cannot be read.
    """
    options = {"static": static, "constants": constants, "bounds": bounds, "target": target, "validate": validate,
               "inline": inline, "libraries": libraries, "groups": groups, "without": without, "memory_limit": memory_limit}
    return functools.partial(jit, **options) if fn is None else JitFunction(fn, **options)


def trace(fn: Callable, *args: object, **options: object) -> Module:
    """The graph module of `fn` for these types (``f32["n", 4]``) or values; see `minirelax.frontend.trace.trace`."""
    fn = fn.fn if isinstance(fn, JitFunction) else fn
    return trace_function(fn, *args, **options).module


def _again(fn: Callable, options: dict) -> JitFunction:
    return JitFunction(fn, **options)


def _holds_traced(args: tuple) -> bool:
    """Is any argument, or part of one, a stand-in of a running trace?"""
    for x in args:
        if isinstance(x, TracedArray | Size):
            return True
        if isinstance(x, dict | list | tuple) or hasattr(x, "__dataclass_fields__"):
            if any(isinstance(leaf, TracedArray | Size) for leaf in flatten(x, lambda v: isinstance(v, TracedArray | Size))[0]):
                return True
    return False


def _check_writable(entry: Entry, call: Call) -> None:
    """Arguments that will be written to must be writable arrays that share no memory, in a layout that reshapes as traced."""
    traced = entry.traced
    for i, _ in traced.mutations:
        path, given = traced.params[i].path, call.arguments[i]
        if not isinstance(given, np.ndarray) or not given.flags.writeable:
            raise ArgumentError(
                f"argument {path} is written to, but is {'read-only' if isinstance(given, np.ndarray) else 'no array'}",
                f"pass a copy: np.array({path})",
            )
        if i in traced.in_order and not given.flags.c_contiguous:
            raise ArgumentError(
                f"argument {path} is written to through a reshape, which NumPy does only for contiguous arrays",
                f"pass np.ascontiguousarray({path})",
            )
        for k, other in enumerate(call.arguments):
            if k != i and isinstance(other, np.ndarray) and np.may_share_memory(given, other):
                raise ArgumentError(
                    f"argument {path} is written to and shares memory with {traced.params[k].path}", f"pass a copy: {path}.copy()"
                )


__all__ = ["JitFunction", "jit", "trace"]

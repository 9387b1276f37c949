"""An executable: a compiled program that can be bound to weights, saved, pickled and inspected; `calls` runs it."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np

from minirelax.errors import ArgumentError
from minirelax.ir.graph import Module, Var
from minirelax.ir.types import NUMPY_DTYPES
from minirelax.passes.options import Options
from minirelax.runtime.built import Built
from minirelax.runtime.calls import Bound
from minirelax.runtime.compile_kernels import kernel_addresses


class Executable:
    """A built program.  ``executable(x, y)`` runs it, with the weights that were saved with it; `bind` gives it others.

    `prepare` is a module with the function ``bind`` (if weights have to be prepared) and the constants.  `stages` are all
    intermediate modules, or a function that makes them when somebody looks.  `origin` is the module that was compiled, and
    the options that were given: what is saved, and pickled.
    """

    def __init__(self, built: Built, prepare: Module, stages: tuple | Callable[[], tuple], on_kernel=None,
                 origin: tuple[Module, Options] | None = None):
        self.built, self.prepare, self.origin = built, prepare, origin
        self.weights: tuple[np.ndarray, ...] | None = None
        self._stages = stages
        self._addresses = kernel_addresses(built.sources, on_kernel)
        self._program: Bound | None = None

    def __call__(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        """The results for these arrays, always as a tuple.

        Raises ArgumentError, DTypeError or ShapeError if they do not fit the parameters, or if the program needs weights and
        has none (see `bind`), and IndexingError and RunError for what is only found while running.
        """
        from minirelax.passes.base import entry
        from minirelax.runtime.arguments import call

        if self._program is None:
            self._program = self.bind()
        return call(self._program, entry(self.origin[0] if self.origin else self.module), arrays)

    def __repr__(self) -> str:
        params = ", ".join(f"{p.name}: {p.type}" for p in self.built.params)
        return f"<executable ({params}), {len(self.weight_parameters)} weights>"

    # ---- as a file

    def save(self, path: str | os.PathLike, weights: object = None) -> None:
        """Write the program to one file, which another process of this version of minirelax loads without the source.

        With `weights`, as `bind` takes them, those lie in the file as well; so do the ones that this executable was loaded
        with.  What the file is, and what is trusted: `minirelax.runtime.saved`.  The file appears whole or not at all; raises
        OSError if it cannot be written, and what `bind` raises for weights that do not fit.
        """
        from minirelax.runtime import saved

        saved.write(path, self._saved(weights))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Executable:
        """The executable in a file, with its weights, if they were saved.  Machine code comes from the cache, or is made now.

        A saved executable is a program: load it only from where you would run a program.  Nothing in it is unpickled.  Raises
        FileError, before anything of it runs, for a file that is damaged, of another version, or something else; OSError for
        one that cannot be read.
        """
        from minirelax.runtime import saved

        return _loaded(saved.read(path))

    def _saved(self, weights: object = None):
        from minirelax.passes.base import entry
        from minirelax.runtime.arguments import check_weights
        from minirelax.runtime.saved import Saved

        if self.origin is None:
            raise ArgumentError("this executable does not know what it was compiled from", "compile with minirelax.compile")
        module, options = self.origin
        found = self.weights if weights is None else check_weights(entry(module).bound, weights)
        if options.has_rules:  # they have done their work; what they made of the program is saved
            module, options = self._after_rules(), Options.of(options, libraries=(), groups=())
        return Saved(module, options, found)

    def _after_rules(self) -> Module:
        """The program as rules of a user's left it, before anything is lowered."""
        return next(s.module for s in reversed(self.stages) if s.name in ("choose_libraries", "group_patterns"))

    def __reduce__(self):
        from minirelax.runtime.saved import pack

        return _unpickled, (pack(self._saved()),)

    # ---- what it is

    @property
    def stages(self) -> tuple:
        """Every stage, from the trace to the build."""
        if callable(self._stages):
            self._stages = self._stages()
        return self._stages

    def keep(self, stages: tuple) -> None:
        """Remember the stages that led here, with the time that each took."""
        self._stages = stages

    @property
    def module(self) -> Module:
        """The module that was built."""
        return self.stages[-2].module

    @property
    def source(self) -> str:
        """The Numba source of all kernels."""
        return "\n".join(self.built.sources.values())

    @property
    def kernels(self):
        """Every call of a kernel or routine, with the ops that it came from, and the user's lines."""
        from minirelax.explore import Origins

        return Origins(self.module)

    @property
    def tiling(self):
        """How each kernel is split into tiles, and what that is reckoned to cost."""
        from minirelax.codegen.numba_cpu import kernel_code
        from minirelax.explore import Tiling

        codes = self.built.codes or tuple(kernel_code(k) for k in self.module.kernels)
        return Tiling(c.plan for c in codes)

    @property
    def table(self) -> str:
        """The instruction table as text."""
        return self.built.program.text()

    @property
    def weight_parameters(self) -> tuple[Var, ...]:
        """What `bind` takes: the names and types of the weights."""
        if self.prepare.functions:
            return self.prepare.functions[0].params
        return self.built.bound[: len(self.built.bound) - len(self.prepare.constants)]

    def bind(self, weights: object = None) -> Bound:
        """The program with its weights: arrays for the bound parameters, in order, or in a container as `jit` was given.

        By default they are those that it was saved with.  Raises ArgumentError, DTypeError or ShapeError if they do not fit.
        """
        weights = self.weights if weights is None else weights
        return Bound(self, self._prepare(() if weights is None else weights))

    def _prepare(self, weights: object) -> list[np.ndarray]:
        """Run ``bind`` (transposes, packing) on the user's weights; constants of the module follow."""
        from minirelax.runtime.arguments import check_weights

        arrays = check_weights(self.weight_parameters, weights)
        if self.prepare.functions:
            from minirelax.ir.interpret import interpret

            prepared = interpret(self.prepare, *arrays, function="bind")
            arrays = prepared if isinstance(prepared, tuple) else (prepared,)
        found = [*arrays, *(c.array.value for c in self.prepare.constants)]
        return [
            np.ascontiguousarray(a, NUMPY_DTYPES[v.type.dtype]).reshape(v.type.shape)
            for a, v in zip(found, self.built.bound, strict=True)
        ]


def _loaded(saved) -> Executable:
    """The executable that a file describes."""
    from minirelax.runtime import program_cache

    found = program_cache.compiled(saved.module, saved.options)
    found.weights = saved.weights
    return found


def _unpickled(data: bytes) -> Executable:
    from minirelax.runtime.saved import unpack

    return _loaded(unpack(data, "a pickle"))


def preparation(module: Module) -> Module:
    """The part of a module that binding weights needs: the function ``bind`` and the constants."""
    return Module(tuple(f for f in module.functions if f.name == "bind"), (), module.constants)

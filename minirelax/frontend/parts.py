"""What the functions of a module that is being traced have in common: constants, kernels, functions that are called, names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from minirelax.ir.graph import Atom, Constant, Function
from minirelax.ir.loop import Kernel


@dataclass(eq=False)
class Parts:
    """The module so far, but for the function that is traced first; and where calls find what they need of its functions."""

    constants: list[Constant] = field(default_factory=list)
    kernels: list[Kernel] = field(default_factory=list)  # written by the user
    functions: dict[str, Function] = field(default_factory=dict)  # that jitted functions became; those inside them too
    callees: dict[tuple, list] = field(default_factory=dict)  # what calls need to know of them
    running: dict[tuple, str] = field(default_factory=dict)  # the calls that are being traced, and their functions
    recursive: set[object] = field(default_factory=set)  # jitted functions that call themselves
    by_identity: dict[int, tuple[np.ndarray, Atom]] = field(default_factory=dict)  # arrays that are constants already
    names: set[str] = field(default_factory=lambda: {"main", "bind"})  # of constants, kernels and functions
    local: set[str] = field(default_factory=set)  # of values and sizes, in whatever function

    def saved(self) -> Callable[[], None]:
        """What brings back the module as it is now."""
        lists, tables = (self.constants, self.kernels), (self.functions, self.by_identity)
        sizes, copies, names = [len(x) for x in lists], [dict(x) for x in tables], set(self.names)
        callees = {key: len(found) for key, found in self.callees.items()}

        def restore() -> None:
            for x, size in zip(lists, sizes, strict=True):
                del x[size:]
            for x, copy in zip(tables, copies, strict=True):
                x.clear()
                x.update(copy)
            for key, found in self.callees.items():
                del found[callees.get(key, 0) :]
            self.names.clear()
            self.names.update(names)

        return restore

    @contextmanager
    def call(self, key: tuple, name: str) -> Iterator[None]:
        """While the function of a call is traced."""
        self.running[key] = name
        try:
            yield
        finally:
            del self.running[key]

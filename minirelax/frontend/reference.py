"""The target "interpret": a traced program that NumPy runs, op by op, with nothing compiled.

It has the interface of a compiled executable, checks the same sizes and guards, and is the meaning that those are compared with.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from minirelax.frontend.mismatch import sizes_of
from minirelax.ir.graph import Module
from minirelax.ir.interpret import interpret


class ReferenceExecutable:
    """A module ready to be interpreted; `name` is how errors call its entry."""

    def __init__(self, module: Module, name: str = "main"):
        self.module, self.name = module, name
        self.stages: tuple = ()

    def bind(self, weights: Sequence[np.ndarray] = ()) -> ReferenceProgram:
        """The program with its weights."""
        return ReferenceProgram(self.module, tuple(weights), self.name)


class ReferenceProgram:
    """Call it with arrays: the results as a tuple, or None if dtypes, sizes or guards do not hold for them."""

    def __init__(self, module: Module, weights: tuple[np.ndarray, ...], name: str = "main"):
        self.module, self.main, self.weights, self.name = module, module.functions[0], weights, name

    def __call__(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...] | None:
        if sizes_of(self.main, arrays) is None:
            return None
        native = [a.astype(a.dtype.newbyteorder("="), copy=False) for a in arrays]
        with np.errstate(all="ignore"):
            found = interpret(self.module, *native, bound=self.weights, called=self.name)
        given: set[int] = {id(a) for a in (*arrays, *native, *self.weights)}
        return tuple(_own(a, given) for a in (found if isinstance(found, tuple) else (found,)))


def _own(array: np.ndarray, given: set[int]) -> np.ndarray:
    """The array, or a copy if it shares memory with an argument or another result."""
    array = np.asarray(array)
    owner = array if array.base is None else array.base
    if id(owner) in given or not array.flags.writeable or array.base is not None:
        array = array.copy()
    given.add(id(array))
    return array

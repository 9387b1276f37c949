"""What a pass is, a function from module to module, and the record of running a row of them.

>>> from minirelax.ir.parser import parse
>>> from minirelax.passes.eliminate_dead_code import eliminate_dead_code
>>> module = parse('''
... def main(x: f32[n]) -> f32[n]:
...     with dataflow():
...         v0: f32[n] = exp(x)
...         output()
...     return x''')
>>> [stage.name for stage in run(module, (eliminate_dead_code,))]
['trace', 'eliminate_dead_code']
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from minirelax.errors import VerifyError
from minirelax.ir.graph import Function, Module
from minirelax.ir.safe_kernel import refuse_outside
from minirelax.ir.verify import verify

Pass = Callable[[Module], Module]
BIND = "bind"  # the function that computes main's bound parameters from the arrays that a user binds


@dataclass(frozen=True)
class Stage:
    """A module as one pass left it, how long that took, and what the pass has to say about it."""

    name: str
    module: Module
    milliseconds: float
    notes: tuple[str, ...] = ()


class Noted:
    """A pass that has something to say: a function from a module to a module and lines, which are the `notes` of the last run."""

    def __init__(self, name: str, rewrite: Callable[[Module], tuple[Module, tuple[str, ...]]]):
        self.__name__, self.rewrite, self.notes = name, rewrite, ()

    def __call__(self, module: Module) -> Module:
        module, self.notes = self.rewrite(module)
        return module


def function_pass(rewrite: Callable[[Function], Function]) -> Pass:
    """Make a pass of a rewrite that looks at one function at a time."""

    @functools.wraps(rewrite)
    def run_on_each(module: Module) -> Module:
        functions = tuple(map(rewrite, module.functions))
        return (
            module
            if all(a is b for a, b in zip(functions, module.functions, strict=True))
            else replace(module, functions=functions)
        )

    return run_on_each


def run(module: Module, passes: tuple[Pass, ...], on_stage: Callable[[Stage], None] | None = None) -> tuple[Stage, ...]:
    """Every intermediate module, the given one first (called ``trace``).

    Raises VerifyError if a kernel of the given module has an index that is always out of range, or, naming the pass, if one
    breaks an invariant; whether passes keep what a program computes is found by `minirelax.validate`.  `on_stage` is called with
    each stage as soon as it exists: to print it, say.
    """
    stages: list[Stage] = []

    def record(name: str, module: Module, milliseconds: float, notes: tuple[str, ...] = ()) -> None:
        stages.append(Stage(name, module, milliseconds, notes))
        if on_stage:
            on_stage(stages[-1])

    verify(module)
    for kernel in module.kernels:  # those that somebody wrote
        refuse_outside(kernel)
    record("trace", module, 0.0)
    for step in passes:
        start = time.perf_counter()
        changed = step(module)
        milliseconds = 1e3 * (time.perf_counter() - start)
        if changed is not module:
            _verify_after(step.__name__, changed)
        module = changed
        record(step.__name__, module, milliseconds, step.notes if isinstance(step, Noted) else ())
    return tuple(stages)


def _verify_after(name: str, module: Module) -> None:
    try:
        verify(module)
    except VerifyError as e:
        raise VerifyError(f"{name} made an invalid module: {e.what}", e.hint, e.where) from e


def entry(module: Module) -> Function:
    """The function that a call of the program runs: the first public one."""
    return next(f for f in module.functions if not f.private)


def with_function(module: Module, function: Function) -> Module:
    """`module` with the function of that name replaced."""
    return replace(module, functions=tuple(function if f.name == function.name else f for f in module.functions))

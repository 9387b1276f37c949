"""How long a library routine takes on this machine: measured once, and kept beside the object code.

>>> from minirelax.ir.types import f64
>>> nanoseconds("no such routine, but it is known", (f64[2],), (f64[2],), (), lambda *arrays: None) > 0
True
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from minirelax.ir.library import routine
from minirelax.ir.types import Tensor
from minirelax.ir.workspace import workspace_type
from minirelax.runtime import object_cache, pool

BUDGET = 10_000_000  # nanoseconds for one measurement, if a single call does not take longer
MOST_CALLS = 50


def nanoseconds(
    name: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], sizes: tuple[int, ...], function: Callable | None = None
) -> float:
    """The fastest of some calls of a routine, on random arrays of these types, whose sizes are numbers.

    What is kept belongs to the routine's name, its code and the types: a routine that is registered anew is measured anew.
    """
    function = function or routine(name)
    code = getattr(getattr(function, "__code__", None), "co_code", b"").hex()
    key = f"routine {name} {code} {inputs} {outputs} {sizes} numpy {np.__version__} {pool.most_threads()}"
    if (kept := object_cache.read(key)) is not None:
        return float(kept)
    rng = np.random.default_rng(0)
    given = [rng.random(t.shape).astype(t.numpy_dtype) for t in inputs]
    work = workspace_type(name, inputs, outputs, sizes)
    made = [np.empty(t.shape, t.numpy_dtype) for t in (*outputs, *([work] if work else []))]
    found = fastest(lambda: function(*given, *made, *sizes))
    object_cache.write(key, repr(found).encode())
    return found


def fastest(call: Callable[[], object]) -> float:
    """Nanoseconds of the fastest of some calls, after one that is not counted."""
    call()
    best, start = float("inf"), time.perf_counter_ns()
    for _ in range(MOST_CALLS):
        before = time.perf_counter_ns()
        call()
        best = min(best, max(time.perf_counter_ns() - before, 1))
        if time.perf_counter_ns() - start > BUDGET:
            break
    return float(best)

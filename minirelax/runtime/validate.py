"""Run every stage of a compilation on the same arguments and name the first one whose results differ.

Stages are interpreted: graph ops by NumPy, kernels by executing their text.  That is slow, and exact enough to find the
pass that broke a program.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from minirelax.errors import RunError
from minirelax.ir.graph import Module
from minirelax.ir.interpret import interpret

TOLERANCE = {"f": {4: 1e-4, 8: 1e-9}}  # relative to the largest value; sums may be taken in another order


def validate(
    stages: Iterable, arrays: Sequence[np.ndarray], weights: Sequence[np.ndarray], outputs: Sequence[np.ndarray]
) -> None:
    """Compare the results of all stages (each with a `name` and a `module`), and `outputs`, those of the compiled program.

    Raises RunError, naming the stage, the result and the size of the difference.
    """
    want: tuple[np.ndarray, ...] | None = None
    for stage in stages:
        if isinstance(stage.module, Module):
            got = results(stage.module, arrays, weights)
            if want is None:
                want = got
            compare(stage.name, want, got)
    if want is not None:
        compare("build", want, tuple(outputs))


def results(module: Module, arrays: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
    """The results of a module's entry; weights go through its function ``bind`` if it has one."""
    with np.errstate(all="ignore"):
        if any(f.name == "bind" for f in module.functions):
            prepared = interpret(module, *weights, function="bind")
            weights = prepared if isinstance(prepared, tuple) else (prepared,)
        found = interpret(module, *(a.copy() for a in arrays), bound=weights)
    return found if isinstance(found, tuple) else (found,)


def compare(stage: str, want: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> None:
    """Raises RunError if any result differs by more than rounding explains."""
    for i, (w, g) in enumerate(zip(want, got, strict=True)):
        tolerance = TOLERANCE.get(w.dtype.kind, {}).get(w.dtype.itemsize, 0)
        finite = w[np.isfinite(w)]
        scale = float(np.max(np.abs(finite), initial=1)) if tolerance and finite.size else 0
        same = (
            w.shape == g.shape
            and w.dtype == g.dtype
            and np.allclose(w, g, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        )
        if not same:
            shapes = w.shape != g.shape or w.dtype != g.dtype
            size = (
                f"{g.dtype}{g.shape} in place of {w.dtype}{w.shape}"
                if shapes
                else f"by up to {np.nanmax(np.abs(np.subtract(g, w, dtype=np.float64)))}"
            )
            raise RunError(f"{stage} changed result {i} of the program: {size}", f'look at .diff("{stage}")')

"""When a library routine is faster than what the compiler makes of the same ops.

Both costs are in nanoseconds on this machine.  Ours is what the plans of the region's kernels say, a formula in the sizes: the
region is lowered and fused as if it were a program.  The routine's is measured at a few sizes, once per machine.  Where all
sizes are known, the two are compared.  Else the routine's cost is taken to be ``a + b * ours`` (it does the same work, at
another speed, after another overhead); then it is faster where ``ours > a / (1 - b)``, which is a comparison of sizes, made at
each call, and nowhere if ``b >= 1``.

>>> fit((100.0, 1000.0, 10000.0), (550.0, 1000.0, 5500.0))
(500.0, 0.5)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minirelax.ir.dim import Dim, substitute, value
from minirelax.ir.graph import CallKernel, CallLibrary, Dataflow, Function, Module
from minirelax.ir.infer import free_sizes, mentioned_names
from minirelax.ir.loop import Kernel
from minirelax.ir.types import Tensor, Tuple, itemsize
from minirelax.passes.annotate_patterns import annotate_patterns
from minirelax.passes.choose_by_size import Comparison
from minirelax.passes.fuse_kernels import fuse_kernels
from minirelax.passes.fuse_ops import fuse_ops
from minirelax.passes.group_functions import read_from_outside, with_sizes
from minirelax.passes.legalize import legalize
from minirelax.passes.patterns import Match

SIZES = (4, 16, 64, 256, 1024)  # what free sizes are when a routine is measured
MOST_BYTES = 1 << 25  # of all its arguments


@dataclass(frozen=True)
class Costs:
    """What this machine takes, in nanoseconds: for a kernel, and for a call of a routine with inputs, outputs and sizes."""

    kernel: Callable[[Kernel], Dim]
    routine: Callable[[str, tuple[Tensor, ...], tuple[Tensor, ...], tuple[int, ...]], float]


def faster(match: Match, call: CallLibrary, module: Module, costs: Costs) -> bool | Comparison:
    """When `call` is faster than the ops of the match: always, never, or where a comparison of sizes holds."""
    ours = generated_cost(match, module, costs)
    free = mentioned_names((ours, tuple(a.type for a in call.args), match.root.var.type, call.sizes))
    if not free:
        measured = _measured(match, call, {}, costs)
        return measured is not None and ours > measured
    points = []
    for n in SIZES:
        sizes = dict.fromkeys(free, n)
        if (measured := _measured(match, call, sizes, costs)) is not None:
            points.append((float(value(ours, sizes)), measured))
    if len(points) < 2:
        return False
    overhead, slope = fit(*zip(*points, strict=True))
    if slope >= 1:
        return False
    found = Comparison(ours, ">", int(overhead / (1 - slope)))
    return found if found.decided is None else found.decided


def fit(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """`a` and `b` so that `theirs` is about ``a + b * ours``, with small relative errors; neither is negative."""
    import numpy as np

    x, y = np.array(ours), np.array(theirs)
    columns = np.stack([np.ones_like(x), x], axis=1) / y[:, None]
    (a, b), *_ = np.linalg.lstsq(columns, np.ones_like(x), rcond=None)
    if a < 0:
        a, b = 0.0, 1 / np.mean(x / y)
    if b < 0:
        a, b = 1 / np.mean(1 / y), 0.0
    return round(float(a), 6), round(float(b), 6)


def generated_cost(match: Match, module: Module, costs: Costs) -> Dim:
    """What the plans of the kernels that the region becomes say, together; calls of libraries inside are not counted."""
    read = read_from_outside(match.bindings)
    constants = tuple(c for c in module.constants if c.var in read)
    params = tuple(a for a in read if a not in {c.var for c in constants})
    region = Function("region", params, (Dataflow(match.bindings, (match.root.var,)),), match.root.var)
    lowered = Module((with_sizes(region, free_sizes(region), (v.name for v in read)),), (), constants)
    for step in (legalize, annotate_patterns, fuse_ops, fuse_kernels):
        lowered = step(lowered)
    total: Dim = 0
    for b in lowered["region"].bindings:
        if isinstance(b.value, CallKernel):
            kernel = lowered[b.value.kernel]
            total = total + substitute(costs.kernel(kernel), dict(zip(kernel.sizes, b.value.sizes, strict=True)))
    return total


def _measured(match: Match, call: CallLibrary, sizes: dict[str, int], costs: Costs) -> float | None:
    """The routine's cost at these sizes; None where they are impossible, or take too much memory."""
    root = match.root.var.type
    types = [a.type for a in call.args], list(root.items if isinstance(root, Tuple) else (root,))
    inputs, outputs = (tuple(Tensor(t.dtype, tuple(value(d, sizes) for d in t.shape)) for t in side) for side in types)
    if any(d < 0 for t in (*inputs, *outputs) for d in t.shape):
        return None
    if sum(_bytes(t) for t in (*inputs, *outputs)) > MOST_BYTES:
        return None
    return costs.routine(call.routine, inputs, outputs, tuple(value(d, sizes) for d in call.sizes))


def _bytes(type_: Tensor) -> int:
    total = itemsize(type_.dtype)
    for d in type_.shape:
        total *= d
    return total

"""The memory that a call takes while it runs: planned, unplanned, and NumPy's.

For each workload and size, in bytes: the arena of the memory plan; what its tensors would take without sharing; the largest set
of tensors that are needed at the same time, which no plan can go below; and NumPy's own peak, by tracemalloc.  Results belong to
the caller and are in none of the first three, so that for the comparison with NumPy, where they count, they are added.

    python examples/benchmarks/memory.py
"""
from __future__ import annotations

import argparse
import sys
import tracemalloc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import minirelax as mr
from minirelax.explore.view import View
from minirelax.ir.dim import value
from minirelax.passes.base import entry

sys.path.insert(0, str(Path(__file__).resolve().parent))

from workloads import WORKLOADS, Sizes, Workload, chosen  # noqa: E402

if TYPE_CHECKING:
    from rich.table import Table

DEFAULT = ("minilm", "llama")


@dataclass(frozen=True)
class Row:
    """Bytes of one workload at one size."""

    workload: str
    sizes: Sizes
    arena: int
    unplanned: int
    least: int
    results: int
    numpy: int


class Memory(View):
    """The rows, in KiB and as ratios to the arena."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        table = Table("workload", "sizes", box=box.SIMPLE_HEAD)
        for heading in ("arena KiB", "arena / unplanned", "arena / largest live set", "arena and results / NumPy"):
            table.add_column(heading, justify="right")
        for r in self.rows:
            ratios = (r.arena / max(r.unplanned, 1), r.arena / max(r.least, 1), (r.arena + r.results) / max(r.numpy, 1))
            table.add_row(r.workload, str(r.sizes), f"{r.arena / 1024:.0f}", *(f"{ratio:.2f}" for ratio in ratios))
        return table


def size_values(compiled: mr.JitFunction, arguments: Sequence) -> dict[str, int]:
    """The sizes of the program, by name, for these arguments."""
    params = entry(compiled.stages["plan_memory"].module).params
    arrays = [a for a in arguments if not isinstance(a, dict)]
    return {str(d): n for v, a in zip(params, arrays, strict=True) for d, n in zip(v.type.shape, a.shape, strict=True)}


def numpy_peak(workload: Workload, arguments: Sequence) -> int:
    """The most bytes that NumPy holds at a time during a call, beyond the arguments."""
    workload.function(*arguments)
    tracemalloc.start()
    try:
        workload.function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def measured(workload: Workload, compiled: mr.JitFunction, sizes: Sizes) -> Row:
    """One row."""
    args = workload.arguments(sizes)
    compiled(*args)
    plan, values = compiled.memory, size_values(compiled, args)
    return Row(workload.name, sizes, plan.peak_bytes(**values), value(plan.unplanned, values), plan.least_bytes(**values),
               sum(value(t.bytes, values) for t in plan.results), numpy_peak(workload, args))


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", default=DEFAULT, metavar="WORKLOAD",
                         help=f"of {', '.join(WORKLOADS)} (default: {' '.join(DEFAULT)})")
    rows = []
    for workload in chosen(options.parse_args(arguments).workloads):
        compiled = workload.jit()
        rows += [measured(workload, compiled, sizes) for sizes in workload.sizes]
    print(Memory(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

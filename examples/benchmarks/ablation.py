"""What each pass is worth: every workload with one pass left out at a time, against all passes.

Four ratios to the program that all passes made, above 1 where the pass helps: the time of a call (paired, on one thread), the
bytes that a call allocates (memory plan and results), the calls of kernels and routines, and the time to compile, in a process
of its own where nothing of the program is cached.  Time and memory are geometric means over the workload's sizes.  Each program
is compared with NumPy in float64, too; the status is 1 if one is wrong.

    python examples/benchmarks/ablation.py                                       # all workloads and passes: an hour
    python examples/benchmarks/ablation.py softmax --passes fuse_ops plan_memory
    python examples/benchmarks/ablation.py --quick                               # that it works
"""
from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import minirelax as mr
from minirelax.explore.memory import memory_plan
from minirelax.explore.timing import geometric_mean, paired, threads, without_overrides
from minirelax.explore.view import View
from minirelax.ir.dim import value
from minirelax.ir.graph import Module
from minirelax.passes.base import entry
from minirelax.passes.options import OPTIONAL
from minirelax.pipeline import passes

sys.path.insert(0, str(Path(__file__).resolve().parent))

from workloads import WORKLOADS, Afresh, Workload, chosen, compile_machine, normal  # noqa: E402

if TYPE_CHECKING:
    from rich.console import Group

MEASURED = ("time", "memory", "calls", "compile")
SMALLEST = 0.03                                   # a ratio this close to 1 is no difference


@dataclass(frozen=True)
class Row:
    """One program: the workload, the pass that it lacks (or ""), and its numbers: all of them >= 0.

    `time` is a ratio to the program that lacks none (there, seconds); the others are a geometric mean of bytes over the sizes,
    a count, and seconds.  `error` is the largest one from NumPy in float64, `wrong` whether that is too much.
    """

    workload: str
    without: str
    time: float
    memory: float
    calls: float
    compile: float
    error: float
    wrong: bool


class Ablation(View):
    """The rows as ratios, their means, and below them the passes that make no difference anywhere."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def ratios(self, row: Row) -> tuple[float, ...]:
        """What leaving the pass out costs: time, memory, calls, compile time."""
        whole = next(r for r in self.rows if r.workload == row.workload and not r.without)
        return row.time, *(getattr(row, m) / max(getattr(whole, m), 1e-9) for m in MEASURED[1:])

    @property
    def idle(self) -> tuple[str, ...]:
        """The passes without which no workload's time, memory or number of calls is another."""
        seen = {r.without: True for r in self.rows if r.without}
        for row in self.rows:
            if row.without and any(abs(ratio - 1) > SMALLEST for ratio in self.ratios(row)[:3]):
                seen[row.without] = False
        return tuple(name for name, alike in seen.items() if alike)

    @property
    def means(self) -> dict[str, tuple[float, ...]]:
        """For each pass, the geometric means of its ratios over the workloads, if there are several."""
        if len({r.workload for r in self.rows}) < 2:
            return {}
        found: dict[str, list[tuple[float, ...]]] = {}
        for row in self.rows:
            if row.without:
                found.setdefault(row.without, []).append(self.ratios(row))
        return {name: tuple(map(geometric_mean, zip(*ratios, strict=True))) for name, ratios in found.items()}

    def __rich__(self) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text
        table = Table("workload", "without", box=box.SIMPLE_HEAD)
        for heading in (*MEASURED, "error"):
            table.add_column(heading, justify="right")
        for row in self.rows:
            cells = [f"{r:.2f}" for r in self.ratios(row)] if row.without else _whole(row)
            verdict = f"{row.error:.0e}{' WRONG' if row.wrong else ''}"
            name = row.without or "(nothing)"
            table.add_row(*map(Text, (row.workload if not row.without else "", name, *cells, verdict)))
        for i, (name, ratios) in enumerate(self.means.items()):
            table.add_row(*map(Text, ("" if i else "all of them", name, *(f"{r:.2f}" for r in ratios), "")))
        lines = [f"cannot be left out: {', '.join(n for p in passes() if (n := p.__name__) not in OPTIONAL)}"]
        if self.idle:
            lines.append(f"time, memory and calls are the same without: {', '.join(self.idle)}")
        return Group(table, Text("\n".join(lines)))


def _whole(row: Row) -> list[str]:
    return [f"{1e6 * row.time:.0f} us", f"{row.memory / 1024:.0f} KiB", f"{row.calls:.0f}", f"{row.compile:.1f} s"]


# ---------------------------------------------------------------- one program

def shares(x):
    """What share of its row each number is, beyond an even one."""
    return np.abs(x) / np.sum(np.abs(x), axis=1, keepdims=True) * x.shape[1] - 1.0


SMALL = Workload("shares", shares, lambda n, m: (normal(n, m),), ((8, 40),))          # for --quick



def allocated_bytes(compiled: mr.JitFunction, arguments: Sequence) -> int:
    """Bytes that one call allocates: the storages of the plan, and every tensor that is in none, such as the results."""
    module = planned_module(compiled)
    arrays = [a for a in arguments if not isinstance(a, dict)]
    sizes = {str(d): n for v, a in zip(entry(module).params, arrays, strict=True)
             for d, n in zip(v.type.shape, a.shape, strict=True)}
    plan = memory_plan(module)
    return value(plan.peak, sizes) + sum(value(t.bytes, sizes) for t in plan.results)


def planned_module(compiled: mr.JitFunction) -> Module:
    """The program with its allocations, as far as they are planned."""
    return next(s.module for s in reversed(compiled.stages) if s.name in ("plan_memory", "lower_calls"))


def print_compile_seconds(workload: Workload, without: str) -> None:
    """What a fresh process does: compile, and print the seconds that it takes, without what every program needs."""
    compile_machine()
    compiled, args = workload.jit(without=(without,) if without else ()), workload.arguments(workload.sizes[0])
    start = time.perf_counter()
    compiled.compile(*args)
    print(time.perf_counter() - start)


def measured(workload: Workload, without: str, whole: mr.JitFunction, rounds: int, afresh: Afresh) -> Row:
    """One row of the table; `whole` is the function with all passes."""
    compiled = workload.jit(without=(without,)) if without else whole
    times, memory, errors = [], [], []
    for s in workload.sizes:
        args = workload.arguments(s)
        errors.append(workload.error(compiled, s))
        pair = paired(lambda: compiled(*args), lambda: whole(*args), rounds)  # noqa: B023 (called at once)
        times.append(pair.ratio if without else pair.seconds)
        memory.append(max(1, allocated_bytes(compiled, args)))
    calls, error = len(memory_plan(planned_module(compiled)).steps), max(errors)
    wrong = error > workload.tolerance or math.isnan(error)
    seconds = float(afresh.run(__file__, workload.name, "--compile", without))
    return Row(workload.name, without, geometric_mean(times), geometric_mean(memory), calls, seconds, error, wrong)


def ablation(workloads: Iterable[Workload], left_out: Sequence[str], rounds: int) -> Ablation:
    """Every workload with all passes, and without each of `left_out`; says on standard error how far it is."""
    table = Ablation()
    with Afresh() as afresh:
        for workload in workloads:
            whole = workload.jit()
            for without in ("", *left_out):
                print(f"{workload.name} without {without or 'nothing'}", file=sys.stderr, flush=True)
                table.rows.append(measured(workload, without, whole, rounds, afresh))
    return table


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)} (default: all)")
    options.add_argument("--passes", nargs="+", default=OPTIONAL, choices=OPTIONAL, metavar="PASS", help="which to leave out")
    options.add_argument("--rounds", type=int, default=11, help="rounds of each measurement (default: 11)")
    options.add_argument("--quick", action="store_true", help="a small workload of one size, two passes, once")
    options.add_argument("--compile", metavar="PASS", help=argparse.SUPPRESS)
    args = options.parse_args(arguments)
    if args.compile is not None:
        print_compile_seconds({**WORKLOADS, SMALL.name: SMALL}[args.workloads[0]], args.compile)
        return 0
    if args.quick:
        table = ablation([SMALL], ("fuse_ops", "plan_memory"), 1)
    else:
        without_overrides()
        with threads(1):
            table = ablation(chosen(args.workloads), tuple(args.passes), args.rounds)
    print(table)
    return 1 if any(row.wrong for row in table.rows) else 0


if __name__ == "__main__":
    sys.exit(main())

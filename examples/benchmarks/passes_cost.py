"""What share of compiling the passes take, and how both grow with the program: 1, 2, 4 and 8 transformer layers, and MiniLM.

Each program is compiled in a process of its own, and nothing of it is cached, only what every program needs, such as the loop
that runs the tables.  Identical kernels are one: the number of kernels should not grow with the layers, nor what is spent on
machine code; the passes should take time in proportion to the layers.

    python examples/benchmarks/passes_cost.py
    python examples/benchmarks/passes_cost.py --layers 1 2 --passes         # and how long each pass takes
"""
from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from minirelax.explore.view import View
from minirelax.ir.graph import RunKernel
from minirelax.passes.base import entry

sys.path.insert(0, str(Path(__file__).resolve().parent))

from workloads import WORKLOADS, Afresh, Workload, chosen, compile_machine, encoder_of  # noqa: E402

if TYPE_CHECKING:
    from rich.table import Table

ELSEWHERE = ("trace", "build")                    # stages that are no passes


class Costs(View):
    """A line for each program."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict]] = []

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        table = Table("program", box=box.SIMPLE_HEAD)
        for heading in ("calls", "kernels", "trace ms", "passes ms", "all ms", "passes / all"):
            table.add_column(heading, justify="right")
        for name, found in self.rows:
            stages, total = found["stages"], found["total"]
            passes = sum(ms for stage, ms in stages.items() if stage not in ELSEWHERE)
            table.add_row(name, str(found["calls"]), str(found["kernels"]), f"{stages['trace']:.0f}", f"{passes:.0f}",
                          f"{total:.0f}", f"{passes / total:.0%}")
        return table


class Passes(View):
    """Milliseconds of each pass, a column for each program."""

    def __init__(self, rows: Sequence[tuple[str, dict]]) -> None:
        self.rows = rows

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        table = Table("stage (ms)", box=box.SIMPLE_HEAD)
        for name, _ in self.rows:
            table.add_column(name, justify="right")
        for stage in self.rows[0][1]["stages"]:
            table.add_row(stage, *(f"{found['stages'].get(stage, 0.0):.1f}" for _, found in self.rows))
        return table


def compile_here(workload: Workload) -> dict:
    """Compile, and say how long each stage took in milliseconds, and how many kernels there are and are called."""
    compile_machine()
    compiled, args = workload.jit(), workload.arguments(workload.sizes[0])
    start = time.perf_counter()
    compiled.compile(*args)
    total = 1e3 * (time.perf_counter() - start)
    module = compiled.stages["bind_shapes"].module
    calls = sum(isinstance(b.value, RunKernel) for b in entry(module).bindings)
    return {"total": total, "calls": calls, "kernels": len(module.kernels),
            "stages": {s.name: s.milliseconds for s in compiled.stages}}


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--layers", nargs="*", type=int, default=(1, 2, 4, 8), help="numbers of layers (default: 1 2 4 8)")
    options.add_argument("--workloads", nargs="*", default=("minilm",), help=f"of {', '.join(WORKLOADS)} (default: minilm)")
    options.add_argument("--passes", action="store_true", help="show each pass")
    options.add_argument("--here", metavar="NAME", help=argparse.SUPPRESS)
    args = options.parse_args(arguments)
    if args.here:
        print(json.dumps(compile_here(encoder_of(int(args.here)) if args.here.isdigit() else WORKLOADS[args.here])))
        return 0
    costs, names = Costs(), [w.name for w in chosen(args.workloads)] if args.workloads else []
    with Afresh() as afresh:
        for name in (*map(str, args.layers), *names):
            found = json.loads(afresh.run(__file__, "--here", name))
            costs.rows.append((f"{name} layer{'s' * (name != '1')}" if name.isdigit() else name, found))
    print(costs)
    if args.passes and costs.rows:
        print(Passes(costs.rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())

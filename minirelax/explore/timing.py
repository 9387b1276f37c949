"""Paired times: two ways of doing the same, measured in turn in one process, compared round by round.

A machine's speed drifts by more than what one wants to see; the ratio of two neighbouring measurements hardly does.

>>> pair = paired(lambda: sum(range(2000)), lambda: sum(range(1000)), rounds=5)
>>> pair.ratio > 0 and pair.seconds > 0 and pair.reference_seconds > 0
True
>>> geometric_mean([0.5, 2.0])
1.0
>>> table = Comparison("n", reference="NumPy")
>>> table.add(100, pair=Pair(0.5, 1e-5, 2e-5))
>>> print(table)
    n   NumPy us   minirelax us   ratio
 ───────────────────────────────────────
  100       20.0           10.0    0.50
<BLANKLINE>
geometric mean of the 1 ratios (below 1: faster than NumPy): 0.50
"""
from __future__ import annotations

import contextlib
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minirelax.explore.view import View

if TYPE_CHECKING:
    from rich.console import Group

SETTLE = 0.15           # seconds; after a call OpenBLAS's threads spin for about 0.1 s on a core that the other side then lacks
OVERRIDES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")          # would make NumPy slower than it is


@dataclass(frozen=True)
class Pair:
    """Median over rounds of ``time / reference time`` (below 1 is faster than the reference), and the median times in seconds."""

    ratio: float
    seconds: float
    reference_seconds: float


def paired(run: Callable[[], object], reference: Callable[[], object], rounds: int = 15, at_least: float = 2e-4) -> Pair:
    """Time `run` against `reference`, alternating which goes first; each measurement repeats its call for `at_least` seconds.

    With several threads, each waits until the other's threads have stopped spinning for more work, and then warms up.
    """
    import minirelax as mr
    settle = SETTLE if mr.get_num_threads() > 1 else 0.0
    run(), reference()
    repeats = [_repeats(f, at_least) for f in (run, reference)]
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(rounds):
        for which in (0, 1) if i % 2 == 0 else (1, 0):
            if settle:
                time.sleep(settle)
                (run, reference)[which]()
            times[which].append(_seconds((run, reference)[which], repeats[which]))
    ratios = [a / b for a, b in zip(*times, strict=True)]
    return Pair(statistics.median(ratios), statistics.median(times[0]), statistics.median(times[1]))


def geometric_mean(values: Iterable[float]) -> float:
    """The geometric mean: the right average of ratios."""
    logs = [math.log(v) for v in values]
    return math.exp(sum(logs) / len(logs))


class Comparison(View):
    """A table of pairs, one per line, with the geometric mean of their ratios below."""

    def __init__(self, *headings: str, reference: str, ours: str = "minirelax"):
        self.headings, self.reference, self.ours = headings, reference, ours
        self.rows: list[tuple[tuple[object, ...], Pair]] = []

    def add(self, *labels: object, pair: Pair) -> None:
        """One more line: a label under each heading, and the pair."""
        self.rows.append((labels, pair))

    @property
    def mean(self) -> float:
        """The geometric mean of the ratios."""
        return geometric_mean(pair.ratio for _, pair in self.rows)

    def __rich__(self) -> Group:
        from rich import box
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text
        table = Table(box=box.SIMPLE_HEAD)
        for heading in (*self.headings, f"{self.reference} us", f"{self.ours} us", "ratio"):
            table.add_column(heading, justify="right")
        for labels, pair in self.rows:
            cells = (*map(str, labels), f"{1e6 * pair.reference_seconds:.1f}", f"{1e6 * pair.seconds:.1f}", f"{pair.ratio:.2f}")
            table.add_row(*map(Text, cells))
        return Group(table, Text(
            f"geometric mean of the {len(self.rows)} ratios (below 1: faster than {self.reference}): {self.mean:.2f}"))


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Both NumPy's matrix library and minirelax on `count` threads.

    NumPy's are pinned with threadpoolctl; ModuleNotFoundError, naming it, where that is not installed.
    """
    from threadpoolctl import threadpool_limits

    import minirelax as mr
    before = mr.get_num_threads()
    with threadpool_limits(count):
        mr.set_num_threads(count)
        try:
            yield
        finally:
            mr.set_num_threads(before)


def without_overrides() -> None:
    """Start this script again without the environment variables that slow NumPy's matrix library down, if any is set."""
    if any(name in os.environ for name in OVERRIDES):
        kept = {name: text for name, text in os.environ.items() if name not in OVERRIDES}
        sys.stdout.flush()
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], kept)


def _repeats(call: Callable[[], object], at_least: float) -> int:
    repeats = 1
    while repeats < 10_000 and _seconds(call, repeats) * repeats < at_least:
        repeats *= 2
    return repeats


def _seconds(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats

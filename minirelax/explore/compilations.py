"""Which programs a function has been compiled to, and which line of the user's asked for each assumption.

>>> from minirelax.ir.dim import dim
>>> from minirelax.ir.graph import Guard
>>> print(Compilations([Compilation("x: f32[n, m]", (Guard("==", dim("m"), 3),))]))
      arguments      only if   because of
 ─────────────────────────────────────────
  0   x: f32[n, m]   m == 3
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minirelax.errors import line_text
from minirelax.explore.view import View
from minirelax.ir.graph import Guard, Source

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True)
class Compilation:
    """One compiled program: the types of its arguments as text, and the facts about sizes under which it is used."""

    arguments: str
    guards: tuple[Guard, ...] = ()
    milliseconds: float | None = None


class Compilations(View, Sequence):
    """One entry per compilation, oldest first."""

    def __init__(self, compilations: Iterable[Compilation]):
        self.compilations = tuple(compilations)

    def __getitem__(self, index):
        return self.compilations[index]

    def __len__(self) -> int:
        return len(self.compilations)

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text
        table = Table("", "arguments", "only if", "because of", box=box.SIMPLE_HEAD)
        for i, c in enumerate(self.compilations):
            rows = [(guard_text(g), source_text(g.source)) for g in c.guards] or [("", "")]
            for number, (fact, line) in enumerate(rows):
                table.add_row("" if number else str(i), Text("" if number else c.arguments), Text(fact), Text(line))
        return table


def guard_text(guard: Guard) -> str:
    """A guard as a comparison: ``n > 16``."""
    return f"{guard.left} {guard.relation} {guard.right}"


def source_text(source: Source | None) -> str:
    """``file.py:12   the line``; empty where the line is unknown."""
    return "" if source is None else line_text(source.file, source.line)

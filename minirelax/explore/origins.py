"""What every kernel of a program is made of: the ops that became it, by name, and the user's lines that they stand in.

It is read off the bindings' sources (`minirelax.ir.graph.Source`), which every pass hands on.  A *step* is a call of a kernel or
of a library routine, in the order in which a function makes them; those of branches and loop bodies come under the names of
their functions.

>>> from minirelax.ir.parser import parse
>>> from minirelax.passes.legalize import legalize
>>> print(Origins(legalize(parse('''
... def main(x: f32[n, m]) -> f32[n]:
...     with dataflow():
...         v0: f32[n, m] = exp(x)
...         v1: f32[n] = sum(v0, axes=(1,), keepdims=False)
...         output(v1)
...     return v1'''))))
      kernel   pattern   made of   lines
 ────────────────────────────────────────
  0   exp                exp v0
  1   sum                sum v1
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from minirelax.errors import line_text
from minirelax.explore.view import View
from minirelax.ir.graph import Binding, CallKernel, CallLibrary, Function, Module, RunKernel, RunLibrary, Source

if TYPE_CHECKING:
    from rich.table import Table

LIBRARY = "library"                                          # instead of a pattern: nobody knows what a routine does


@dataclass(frozen=True)
class Call:
    """A step: the `kernel` (or routine) that it calls, its pattern, and the sources of the ops that it came from."""

    function: str
    step: int
    kernel: str
    pattern: str
    sources: tuple[Source, ...] = ()

    @property
    def ops(self) -> tuple[str, ...]:
        """Ops and the values that they made, as in ``exp v3``."""
        return tuple(s.name for s in self.sources if s.name)

    @property
    def lines(self) -> tuple[str, ...]:
        """The user's lines, each once: ``file.py:3   e = np.exp(x)``."""
        return tuple(dict.fromkeys(filter(None, (line_text(s.file, s.line) for s in self.sources))))


class Origins(View, Sequence):
    """The calls of a module, function by function.  Index by number, or by the kernel's name for its first call."""

    def __init__(self, module: Module):
        self.calls = tuple(c for f in module.functions for c in _calls(module, f))

    def __getitem__(self, index):
        if not isinstance(index, str):
            return self.calls[index]
        found = next((c for c in self.calls if c.kernel == index), None)
        if found is None:
            raise KeyError(f"no kernel {index!r}; there are {', '.join(dict.fromkeys(c.kernel for c in self.calls))}")
        return found

    def __len__(self) -> int:
        return len(self.calls)

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text
        table = Table("", "kernel", "pattern", "made of", "lines", box=box.SIMPLE_HEAD)
        several = len({c.function for c in self.calls}) > 1
        for c in self.calls:
            step = f"{c.function} {c.step}" if several else str(c.step)
            for row, (line, ops) in enumerate(_by_line(c.sources).items() or [("", ())]):
                first = (step, c.kernel, c.pattern) if row == 0 else ("", "", "")
                table.add_row(*map(Text, (*first, ", ".join(ops), line)))
        return table


def _calls(module: Module, function: Function) -> Iterator[Call]:
    """The steps of one function.  A group is one step of its caller, unless it is still there after calls are lowered."""
    steps = (RunKernel, RunLibrary) if function.group else (RunKernel, RunLibrary, CallKernel, CallLibrary)
    for step, b in enumerate(b for b in function.bindings if isinstance(b.value, steps)):
        name, leaves = _called(b), b.source.leaves if b.source else ()
        is_kernel = isinstance(b.value, RunKernel | CallKernel)
        yield Call(function.name, step, name, (module[name].pattern or "") if is_kernel else LIBRARY, leaves)


def _called(b: Binding) -> str:
    """The kernel or routine that a binding calls; empty for any other."""
    match b.value:
        case RunKernel(kernel=name) | CallKernel(kernel=name) | RunLibrary(routine=name) | CallLibrary(routine=name):
            return name
    return ""


def _by_line(sources: tuple[Source, ...]) -> dict[str, list[str]]:
    """Ops by the line that they stand in."""
    found: dict[str, list[str]] = {}
    for s in sources:
        found.setdefault(line_text(s.file, s.line), []).extend([s.name] if s.name else [])
    return found

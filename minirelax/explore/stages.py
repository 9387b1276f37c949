"""All stages of one compilation: a sequence, an index by pass name, and a table of what each pass did.

>>> from types import SimpleNamespace
>>> stages = Stages([SimpleNamespace(name="trace", module="v0 = exp(x)", milliseconds=1.0),
...                  SimpleNamespace(name="simplify", module="", milliseconds=0.25)])
>>> stages["simplify"] is stages[1], stages.names
(True, ('trace', 'simplify'))
>>> print(stages.diff("simplify"))
--- trace
+++ simplify
@@ -1 +0,0 @@
-v0 = exp(x)
"""
from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, overload

from minirelax.explore.diff import Diff
from minirelax.explore.view import View

if TYPE_CHECKING:
    from rich.table import Table

# Stages that are not passes: the module whose docstring says what happens.
_ELSEWHERE = {"trace": "minirelax.frontend.trace", "build": "minirelax.codegen"}


class Stages(View, Sequence):
    """The stages, in order.  Each has a `name`, a `module` (whose ``str`` is the text), `milliseconds` and `notes`."""

    def __init__(self, stages: Iterable):
        self.stages = tuple(stages)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return tuple(s.name for s in self.stages)

    @overload
    def __getitem__(self, key: str | int): ...
    @overload
    def __getitem__(self, key: slice) -> Stages: ...

    def __getitem__(self, key):
        """By position, by slice, or by name.  Raises KeyError, naming the stages there are, for an unknown name."""
        if isinstance(key, str):
            return self.stages[self._position(key)]
        return Stages(self.stages[key]) if isinstance(key, slice) else self.stages[key]

    def __len__(self) -> int:
        return len(self.stages)

    def __contains__(self, key: object) -> bool:
        return key in self.names if isinstance(key, str) else key in self.stages

    def diff(self, name: str, since: str | None = None) -> Diff:
        """What the pass `name` changed: its text against the stage before it, or against the stage `since`."""
        position = self._position(name)
        before = self.stages[self._position(since) if since is not None else max(position - 1, 0)]
        return Diff(before.module, self.stages[position].module, before.name, name)

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text
        table = Table(box=box.SIMPLE_HEAD)
        table.add_column("stage", style="bold")
        table.add_column("what it does")
        for heading in ("bindings", "kernels", "ms"):
            table.add_column(heading, justify="right")
        for s in self.stages:
            said = "\n".join([what_it_does(s.name), *getattr(s, "notes", ())])
            table.add_row(Text(s.name), Text(said), *counts(s.module), f"{s.milliseconds:.2f}")
        return table

    def _position(self, name: str) -> int:
        if name not in self.names:
            raise KeyError(f"no stage {name!r}; there are {', '.join(self.names)}")
        return self.names.index(name)


def counts(module: object) -> tuple[str, str]:
    """How many bindings and kernels a module has; blanks for a stage that is something else."""
    if not hasattr(module, "kernels"):
        return "", ""
    return str(sum(len(f.bindings) for f in module.functions)), str(len(module.kernels))


def what_it_does(name: str) -> str:
    """The first sentence of a pass's documentation; empty for a pass that has none (or lives elsewhere).

    >>> what_it_does("no such pass")
    ''
    """
    try:
        module = importlib.import_module(_ELSEWHERE.get(name, f"minirelax.passes.{name}"))
    except ImportError:
        return ""
    return first_sentence(module.__doc__ or "")


def first_sentence(docstring: str) -> str:
    """The text up to the first full stop that ends a sentence, or to the first empty line, on one line.

    >>> first_sentence("Drop the bindings\\nwhose value nobody reads.  One walk suffices.")
    'Drop the bindings whose value nobody reads.'
    """
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    return paragraph.partition(". ")[0].rstrip(".:") + "." if paragraph else ""

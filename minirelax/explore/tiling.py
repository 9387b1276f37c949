"""How every kernel of a program is split into tiles, and what the schedule reckons a call costs.

>>> from types import SimpleNamespace
>>> plan = SimpleNamespace(kernel=SimpleNamespace(name="exp"), tiles=4, cost=100)
>>> Tiling([plan]).names
('exp',)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from minirelax.explore.view import View

if TYPE_CHECKING:
    from rich.table import Table


class Tiling(View):
    """The plans of a program's kernels, in the order of the kernels.  Index by kernel name, or iterate."""

    def __init__(self, plans: Iterable):
        self.plans = tuple(plans)

    @property
    def names(self) -> tuple[str, ...]:
        """The kernels' names."""
        return tuple(p.kernel.name for p in self.plans)

    def __getitem__(self, name: str):
        """The plan of a kernel.  Raises KeyError, naming the kernels there are."""
        if name not in self.names:
            raise KeyError(f"no kernel {name!r}; there are {', '.join(self.names)}")
        return self.plans[self.names.index(name)]

    def __iter__(self):
        return iter(self.plans)

    def __len__(self) -> int:
        return len(self.plans)

    def __rich__(self) -> Table:
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table("kernel", "how it runs", "tiles", "nanoseconds on one core", box=box.SIMPLE_HEAD)
        for p in self.plans:
            table.add_row(Text(p.kernel.name), Text(str(p).partition(": ")[2]), Text(str(p.tiles)), Text(str(p.cost)))
        return table

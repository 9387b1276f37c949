"""Where bindings go while a function is traced: the function itself, or a branch or a body of a loop inside it.

Scopes nest.  What is known in a scope is known in those inside it; what is born in one is gone with it: its values and the
sizes that only its running tells.  Names are unique in the whole trace, so that a value has one name in all scopes.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterator
from dataclasses import dataclass, field

from minirelax.ir.dim import Dim
from minirelax.ir.graph import Atom, Binding, Var
from minirelax.ir.types import Type


@dataclass(eq=False)
class Scope:
    """The bindings of one function that is being traced; `name` is how messages call it, `parent` is what it stands in."""

    name: str = "the function"
    parent: Scope | None = None
    open: bool = True  # is its function running?
    bindings: list[Binding] = field(default_factory=list)
    seen: list[tuple[Type, ...]] = field(default_factory=list)  # for each binding, its operands' types when it was made
    sizes: set[str] = field(default_factory=set)  # those born here: of its own parameters, and bound while it runs
    regions: dict[str, Region] = field(default_factory=dict)  # by the names that the bindings use

    def __post_init__(self):
        outer = self.parent
        self.memory: ChainMap[object, object] = ChainMap({}, *outer.memory.maps) if outer else ChainMap()
        self.user_sizes: ChainMap[str, Dim] = ChainMap({}, *outer.user_sizes.maps) if outer else ChainMap()

    def outwards(self) -> Iterator[Scope]:
        """This scope, the one it stands in, and so on."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent


@dataclass(frozen=True, eq=False)
class Region:
    """A scope that has become a function: it takes what it captures, then its `own` values, and gives `results`.

    `packed`: the results are a tuple even if there is only one.
    """

    name: str
    scope: Scope
    own: tuple[Var, ...]
    results: tuple[Atom, ...]
    packed: bool

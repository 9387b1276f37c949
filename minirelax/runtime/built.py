"""A built program as plain data: the instruction table, kernel sources, and what Python does before, between and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minirelax.ir.graph import Var
from minirelax.ir.types import Tuple
from minirelax.runtime.instructions import Program

if TYPE_CHECKING:  # a warm process writes no source
    from minirelax.codegen.numba_cpu import KernelCode


@dataclass(frozen=True)
class Placed:
    """A tensor that the program makes: its dtype, the slots of its sizes, and the slot of its address."""

    dtype: str
    sizes: tuple[int, ...]
    address: int


@dataclass(frozen=True)
class Result:
    """Where one result comes from, by `kind`.

    ``output`` a new array; ``argument``, ``bound`` those arrays; ``value`` what a library or a function gave, ``view`` the same
    in another shape; ``shape`` the numbers in the slots `sizes`; ``function`` the function of the module called `dtype`.
    """

    kind: str
    index: int
    dtype: str
    sizes: tuple[int, ...]


# How Python finds what it passes on: ("argument" | "bound" | "value", index), ("memory", Placed), ("literal", (number, dtype)),
# ("shape", slots of the entries), ("function", name), ("entries", how Python finds the int64 array of a shape's entries).
Source = tuple[str, object]


@dataclass(frozen=True)
class Library:
    """Call a library routine on arrays, into `out` or for fresh values; `sizes` are slots of further, integer arguments.

    `expected` has the dtype and the slots of the sizes of each fresh value, None where they are not known before; `result` is
    the name of the (first) value in the module, by which the user's line is found; `work` is the routine's workspace, if it has
    one.
    """

    routine: str
    args: tuple[Source, ...]
    out: tuple[Placed, ...]
    values: tuple[tuple[int, int], ...]  # per fresh value: its index, the slot for the array object
    options: tuple[tuple[str, object], ...]
    sizes: tuple[int, ...] = ()
    expected: tuple[tuple[str | None, tuple[int | None, ...] | None], ...] = ()
    result: str = ""
    work: Placed | None = None


@dataclass(frozen=True)
class Allocate:
    """Make an array whose sizes were not known at entry: the value `value`, its object in `slot`."""

    placed: Placed
    value: int
    slot: int


@dataclass(frozen=True)
class Reserve:
    """Make the memory of a branch or loop body at least as large as the slot `bytes` says."""

    bytes: int
    address: int
    capacity: int


@dataclass(frozen=True)
class Invoke:
    """Call another function of the module: one by name, or the function that `callee` is; `values` as in `Library`."""

    callee: Source
    args: tuple[Source, ...]
    values: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Choose:
    """A branch whose result has a size that only running it tells: one of two functions is called."""

    condition: Source
    then: str
    otherwise: str
    args: tuple[Source, ...]
    values: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Repeat:
    """A while loop whose carried values change their sizes: its functions are called in turn."""

    test: str
    body: str
    args: tuple[Source, ...]
    init: tuple[Source, ...]
    values: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Sweep:
    """A scan with results of a size that only running it tells: its body is called for each slice; `length` is a slot."""

    body: str
    args: tuple[Source, ...]
    init: tuple[Source, ...]
    xs: tuple[Source, ...]
    length: int
    reverse: bool
    stacked: tuple[tuple[str, int], ...]  # dtype and number of axes of each stacked result
    values: tuple[tuple[int, int], ...]


Action = Library | Allocate | Reserve | Invoke | Choose | Repeat | Sweep


@dataclass(frozen=True)
class Check:
    """What a message index of the table stands for: an argument's rank and dtype, one of its sizes, or a guard."""

    kind: str  # "array", "size", "guard"
    subject: str
    axis: int = -1
    expected: str = ""
    function: str = ""  # the function at whose boundary it is checked, or "match_cast"


@dataclass(frozen=True)
class Built:
    """Everything that `Executable` needs; plain data that pickles."""

    program: Program
    sources: dict[str, str]  # kernel function -> its source
    params: tuple[Var, ...]  # tuples taken apart
    bound: tuple[Var, ...]
    bound_slots: tuple[int, ...]
    outputs: tuple[Placed, ...]
    results: tuple[Result, ...]
    actions: tuple[Action, ...]
    checks: tuple[Check, ...]
    tables: dict[str, int]  # dtype -> slot of the address of its register tiles
    error_slot: int
    arena_slot: int
    arena_bytes: int  # slot
    numbers: dict[int, int]  # slot -> the literal that it holds in every call
    cells: dict[int, int] = field(default_factory=dict)  # slot -> the slot whose address it holds in every call
    threads: int = 0  # how many threads the kernels' workspaces have room for; 0: any number
    functions: dict[str, Built] = field(default_factory=dict)  # those that this program calls, and those that they call
    codes: tuple[KernelCode, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        texts = [f"{name}:\n{built.program.text()}" for name, built in self.functions.items()]
        return "\n\n".join([self.program.text(), *texts])


def leaves(var: Var) -> Iterator[Var]:
    """A parameter taken apart: a tuple's items are ``x.0``, ``x.1``, ..."""
    if isinstance(var.type, Tuple):
        for i, item in enumerate(var.type.items):
            yield from leaves(Var(f"{var.name}.{i}", item))
    else:
        yield var

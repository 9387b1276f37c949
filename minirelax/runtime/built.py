"""A built program as plain data: the instruction table, kernel sources, and what Python does before, between and after."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from minirelax.ir.graph import Var
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
    """Where one result comes from: a new array (``output``), an argument, a bound array, or a library's result (``value``)."""

    kind: str
    index: int
    dtype: str
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Action:
    """What Python does when the table says LIBRARY: call `routine` on arrays, into `out` or for fresh values."""

    routine: str  # "" allocates `out` (its sizes were not known at entry)
    args: tuple[tuple[str, int | Placed], ...]  # ("argument" | "bound" | "value", index) or ("memory", Placed)
    out: tuple[Placed, ...]
    values: tuple[tuple[int, int], ...]  # per fresh value: its index, the slot for the array object
    options: tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Check:
    """What a message index of the table stands for: an argument's rank and dtype, one of its sizes, or a guard."""

    kind: str  # "array", "size", "guard"
    subject: str
    axis: int = -1
    expected: str = ""


@dataclass(frozen=True)
class Built:
    """Everything that `Executable` needs; plain data that pickles."""

    program: Program
    sources: dict[str, str]  # kernel function -> its source
    params: tuple[Var, ...]
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
    codes: tuple[KernelCode, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return self.program.text()

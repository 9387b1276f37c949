"""The instruction table: its opcodes, an assembler that builds it and a disassembler that prints it.

A program is an ``int64`` array of instructions, each ``[opcode, length in words, operands...]``. Operands are slots of the
frame (see `frame.py`), immediates, or positions in the table; `LAYOUT` says which. `vm.py` runs the table.

>>> a = Assembler()
>>> x, n, rows = a.slot("x"), a.slot("n"), a.slot("rows")
>>> a.match(x, axis=0, kind=Match.STORE, operand=n)
>>> a.const(rows, 4)
>>> a.mul(rows, rows, n)
>>> a.call("relu", tiles=rows, slots=[x, n])
>>> a.ret()
>>> print(a.finish(["x", "n"]).text())
  0  MATCH x axis 0 store n
  7  CONST rows 4
 11  MUL rows rows n
 16  CALL relu tiles=rows cost=0 work=0 (x, n)
 26  RETURN
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from minirelax.runtime.frame import HEADER, ZERO


class Opcode(IntEnum):
    """What an instruction does. ADD to MAX and GUARD, COMPARE stand together for the native loop, which tests ranges."""

    RETURN = 0
    PAUSE = 1
    LIBRARY = 2
    JUMP = 3
    BRANCH = 4
    ARRAY = 5
    MATCH = 6
    DATA = 7
    LOAD = 8
    CONST = 9
    MOVE = 10
    ADD = 11
    SUB = 12
    MUL = 13
    FLOORDIV = 14
    MOD = 15
    MIN = 16
    MAX = 17
    ADDRESS = 18
    ALIGN = 19
    GUARD = 20
    COMPARE = 21
    CALL = 22
    PARALLEL = 23
    END = 24
    COPY = 25


class Status(IntEnum):
    """Why the native loop came back: the low 8 bits of its result."""

    RETURN = 0
    FAIL = 1  # a size did not match, a division by zero, an overflow
    GUARD = 2
    NOT_CONTIGUOUS = 3
    LIBRARY = 4
    PAUSE = 5
    ARRAY = 6  # not an ndarray of exactly the expected number of axes and dtype object
    INVALID = 7  # no such opcode


class Match(IntEnum):
    """What MATCH does with the size that it reads."""

    STORE = 0
    IMMEDIATE = 1
    SLOT = 2


class Comparison(IntEnum):
    """The relation of GUARD and COMPARE: bit 0 less, bit 1 equal, bit 2 greater."""

    LT = 1
    EQ = 2
    LE = 3
    GT = 4
    NE = 5
    GE = 6


ANY = -1  # the number of axes that ARRAY does not look at
NO_MESSAGE = -1  # the message word when a status says everything
DIVIDED_BY_ZERO = -2
OVERFLOW = -3

# Operand names per opcode; the kind of each: s slot, d destination slot, i immediate, p position in the table.
LAYOUT: dict[Opcode, tuple[str, ...]] = {
    Opcode.RETURN: (),
    Opcode.PAUSE: (),
    Opcode.LIBRARY: ("i:index",),
    Opcode.JUMP: ("p:target",),
    Opcode.BRANCH: ("s:condition", "p:target"),
    Opcode.ARRAY: ("s:array", "i:ndim", "i:dtype", "i:type", "i:message"),
    Opcode.MATCH: ("s:array", "i:axis", "i:kind", "i:operand", "i:message"),
    Opcode.DATA: ("d:result", "s:array"),
    Opcode.GUARD: ("i:kind", "i:message", "s:a", "s:b"),
    Opcode.CONST: ("d:result", "i:value"),
    Opcode.MOVE: ("d:result", "s:a"),
    **{op: ("d:result", "s:a", "s:b") for op in
       (Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.FLOORDIV, Opcode.MOD, Opcode.MIN, Opcode.MAX)},
    Opcode.ALIGN: ("d:result", "s:a"),
    Opcode.COMPARE: ("i:kind", "d:result", "s:a", "s:b"),
    Opcode.ADDRESS: ("d:result", "s:base", "s:offset"),
    Opcode.LOAD: ("d:result", "s:address", "i:kind"),
    Opcode.CALL: ("i:function", "s:tiles", "s:cost", "s:work", "s:stride", "i:nargs"),  # then nargs slots
    Opcode.PARALLEL: ("s:cost", "p:end", "i:calls"),
    Opcode.END: (),
    Opcode.COPY: ("s:target", "s:source", "s:bytes"),
}


class Label:
    """A position in the table that is not known yet; see `Assembler.place`."""

    __slots__ = ("position",)

    def __init__(self) -> None:
        self.position: int | None = None


@dataclass(frozen=True)
class Program:
    """A finished table, not yet linked: plain data that pickles.

    `words` has zeros where an address belongs; `relocations` says which symbol each of these words waits for. Symbols are
    kernels' names, or ``dtype:<str>`` and ``type:ndarray``, which `link` resolves by itself.
    """

    words: tuple[int, ...]
    slots: tuple[str, ...]  # names; the number of a slot is HEADER + its place here
    relocations: tuple[tuple[int, str], ...]
    arguments: int  # most arguments of a call
    parallel_calls: int  # most calls between PARALLEL and END

    @property
    def frame_words(self) -> int:
        """Length of a frame, header included, in 8-byte words."""
        return HEADER + len(self.slots)

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels that are called, each once, in order."""
        return tuple(dict.fromkeys(symbol for _, symbol in self.relocations if ":" not in symbol))

    def link(self, addresses: Mapping[str, int]) -> np.ndarray:
        """The table with every address in place, as a read-only ``int64`` array that `machine().run` takes.

        Raises KeyError for a kernel without an address.
        """
        code = np.array(self.words, np.int64)
        for position, symbol in self.relocations:
            code[position] = _own_symbol(symbol) if ":" in symbol else addresses[symbol]
        code.flags.writeable = False
        return code

    def text(self) -> str:
        """The table as text, with names for slots and kernels."""
        return disassemble(self.words, self.slots, dict(self.relocations))


def _own_symbol(symbol: str) -> int:
    kind, _, name = symbol.partition(":")
    return id(np.ndarray) if kind == "type" else id(np.dtype(name))


class Assembler:
    """Builds a `Program` call by call. A slot operand left out (None) reads as zero."""

    def __init__(self) -> None:
        self._words: list[int | Label] = []
        self._slots: list[str] = []
        self._relocations: list[tuple[int, str]] = []
        self._arguments = 0
        self._parallel_calls = 0
        self._falls_through = True  # whether the end of the table can be reached
        self._region: tuple[int, Label] | None = None  # where PARALLEL keeps its number of calls, and its end

    # --- slots and positions

    def slot(self, name: str) -> int:
        """A new slot of the frame. The first ones hold the arguments' addresses, in order (see `vm.py`, bind)."""
        self._slots.append(name)
        return HEADER + len(self._slots) - 1

    def label(self) -> Label:
        return Label()

    def place(self, label: Label) -> None:
        """Let the label stand for the next instruction."""
        if label.position is not None:
            raise ValueError("a label is placed once")
        label.position = len(self._words)
        self._falls_through = True

    # --- arguments

    def array(self, array: int, ndim: int | None, dtype: object | None, message: int = NO_MESSAGE) -> None:
        """Status ARRAY unless the object at `array` is a plain ndarray with `ndim` axes and NumPy's own `dtype` object.

        None stands for any.  The test is by identity, so Python may still accept what it refuses (equal dtype, subclass) and
        go on.
        """
        at = self._emit(Opcode.ARRAY, array, ANY if ndim is None else ndim, 0, 0, message)
        self._relocations.append((at + 5, "type:ndarray"))
        if dtype is not None:
            self._relocations.append((at + 4, f"dtype:{np.dtype(dtype).str}"))

    def match(self, array: int, axis: int, kind: Match, operand: int, message: int = NO_MESSAGE) -> None:
        """Read the size of one axis; store it in slot `operand`, or status FAIL unless it is `operand` (or the slot's value)."""
        self._emit(Opcode.MATCH, array, axis, int(kind), operand, message)

    def data(self, result: int, array: int) -> None:
        """The address of the array's first element; status NOT_CONTIGUOUS unless it is in C order and aligned."""
        self._emit(Opcode.DATA, result, array)

    def load(self, result: int, address: int, dtype: object) -> None:
        """The integer or bool of `dtype` at an address, widened to int64 (uint64 keeps its bits)."""
        dtype = np.dtype(dtype)
        if dtype.kind not in "iub" or not dtype.isnative:
            raise ValueError(f"LOAD takes an integer or a bool, not {dtype}")
        self._emit(Opcode.LOAD, result, address, dtype.itemsize if dtype.kind == "i" else -dtype.itemsize)

    # --- sizes

    def const(self, result: int, value: int) -> None:
        self._emit(Opcode.CONST, result, int(value))

    def move(self, result: int, a: int) -> None:
        self._emit(Opcode.MOVE, result, a)

    def add(self, result: int, a: int, b: int) -> None:
        self._emit(Opcode.ADD, result, a, b)

    def sub(self, result: int, a: int, b: int) -> None:
        self._emit(Opcode.SUB, result, a, b)

    def mul(self, result: int, a: int, b: int) -> None:
        self._emit(Opcode.MUL, result, a, b)

    def floordiv(self, result: int, a: int, b: int) -> None:
        """Rounds towards minus infinity, as Python does; status FAIL for a divisor of zero."""
        self._emit(Opcode.FLOORDIV, result, a, b)

    def mod(self, result: int, a: int, b: int) -> None:
        """Has the divisor's sign, as Python's; status FAIL for a divisor of zero."""
        self._emit(Opcode.MOD, result, a, b)

    def minimum(self, result: int, a: int, b: int) -> None:
        self._emit(Opcode.MIN, result, a, b)

    def maximum(self, result: int, a: int, b: int) -> None:
        self._emit(Opcode.MAX, result, a, b)

    def align(self, result: int, a: int) -> None:
        """Round up to a multiple of 64 (bytes of a cache line)."""
        self._emit(Opcode.ALIGN, result, a)

    def compare(self, kind: Comparison, result: int, a: int, b: int) -> None:
        """1 if the relation holds, else 0."""
        self._emit(Opcode.COMPARE, int(kind), result, a, b)

    def address(self, result: int, base: int, offset: int) -> None:
        """An address plus a number of bytes; unlike `add` it may wrap."""
        self._emit(Opcode.ADDRESS, result, base, offset)

    def copy(self, target: int, source: int, count: int) -> None:
        """Copy frame[count] bytes from one address to another; nothing if they are the same."""
        self._emit(Opcode.COPY, target, source, count)

    # --- the course of the program

    def guard(self, kind: Comparison, a: int, b: int, message: int) -> None:
        """Status GUARD with `message` unless the relation holds."""
        self._emit(Opcode.GUARD, int(kind), message, a, b)

    def jump(self, target: Label) -> None:
        self._emit(Opcode.JUMP, target)

    def branch_if_zero(self, condition: int, target: Label) -> None:
        self._emit(Opcode.BRANCH, condition, target)

    def pause(self) -> None:
        """Leave the loop with status PAUSE, so that Python can allocate outputs; it goes on behind."""
        self._emit(Opcode.PAUSE)

    def library(self, index: int) -> None:
        """Leave the loop so that Python runs library routine `index`; it goes on behind."""
        self._emit(Opcode.LIBRARY, index)

    def ret(self) -> None:
        self._emit(Opcode.RETURN)

    # --- kernels

    def call(self, kernel: str, tiles: int, slots: Sequence[int], cost: int | None = None,
             work: tuple[int, int] | None = None) -> None:
        """Run a kernel on tiles 0 to frame[tiles] - 1 with the values of `slots` as its arguments.

        `cost` is a slot with the estimated nanoseconds of the whole call on one thread; `work`, slots with the address of the
        kernel's workspace, and with the bytes of it that each thread has to itself.
        """
        work, cost = work or (ZERO, ZERO), ZERO if cost is None else cost
        at = self._emit(Opcode.CALL, 0, tiles, cost, *work, len(slots), *slots)
        self._relocations.append((at + 2, kernel))
        self._arguments = max(self._arguments, len(slots))
        if self._region:
            self._words[self._region[0]] += 1  # type: ignore[operator]

    def parallel(self, cost: int) -> None:
        """Open a region of calls that several threads may run, if frame[cost] nanoseconds are worth it."""
        if self._region:
            raise ValueError("PARALLEL does not nest")
        end = Label()
        at = self._emit(Opcode.PARALLEL, cost, end, 0)
        self._region = (at + 4, end)

    def end(self) -> None:
        """Close the region."""
        if not self._region:
            raise ValueError("END without PARALLEL")
        calls, end = self._region
        self._region = None
        self._parallel_calls = max(self._parallel_calls, self._words[calls])  # type: ignore[type-var]
        self.place(end)
        self._emit(Opcode.END)

    def finish(self, check: Iterable[str] = ()) -> Program:
        """The program. `check` names slots that must exist; raises ValueError for a label that was never placed."""
        missing = set(check) - set(self._slots)
        if missing or self._region:
            raise ValueError(f"no slot named {', '.join(sorted(missing))}" if missing else "PARALLEL without END")
        if self._falls_through:
            self.ret()
        words = tuple(_position(word) for word in self._words)
        return Program(words, tuple(self._slots), tuple(self._relocations), self._arguments, self._parallel_calls)

    def _emit(self, opcode: Opcode, *operands: int | Label) -> int:
        if self._region and opcode not in (Opcode.CALL, Opcode.END):
            raise ValueError(f"{opcode.name} is not allowed between PARALLEL and END")
        at = len(self._words)
        self._falls_through = opcode not in (Opcode.RETURN, Opcode.JUMP)
        self._words += [int(opcode), 2 + len(operands), *operands]
        return at


def _position(word: int | Label) -> int:
    if not isinstance(word, Label):
        return int(word)
    if word.position is None:
        raise ValueError("a label was used but never placed")
    return word.position


def disassemble(code: Sequence[int], names: Sequence[str] = (), symbols: Mapping[int, str] | None = None) -> str:
    """One line per instruction: its position, name and operands.

    `names[i]` is the name of slot HEADER + i; `symbols` names what stands at a position of the table (kernels).

    >>> print(disassemble([9, 4, 16, 7, 0, 2], ["n"]))
      0  CONST n 7
      4  RETURN
    """
    lines, pc = [], 0
    while pc < len(code):
        opcode, length = Opcode(int(code[pc])), int(code[pc + 1])
        operands = [int(word) for word in code[pc + 2 : pc + length]]
        lines.append(f"{pc:3d}  {_line(opcode, operands, lambda slot: _slot_name(slot, names), symbols or {}, pc)}")
        pc += length
    return "\n".join(lines)


def _slot_name(slot: int, names: Sequence[str]) -> str:
    if slot == ZERO:
        return "0"
    return names[slot - HEADER] if 0 <= slot - HEADER < len(names) else f"s{slot}"


def _line(opcode: Opcode, operands: list[int], name: Callable[[int], str], symbols: Mapping[int, str], pc: int) -> str:
    match opcode:
        case Opcode.CALL:
            function, tiles, cost, work, stride, _, *slots = operands
            kernel, own = symbols.get(pc + 2, hex(function)), f" each {name(stride)}" if work != ZERO else ""
            return (f"CALL {kernel} tiles={name(tiles)} cost={name(cost)} work={name(work)}{own} "
                    f"({', '.join(map(name, slots))})")
        case Opcode.MATCH:
            array, axis, kind, operand, message = operands
            right = str(operand) if kind == Match.IMMEDIATE else name(operand)
            return " ".join(["MATCH", name(array), f"axis {axis}", Match(kind).name.lower(), right, *_message(message)])
        case Opcode.ARRAY:
            array, ndim, _, _, message = operands
            dtype = symbols.get(pc + 4, "").removeprefix("dtype:")
            axes = "any" if ndim == ANY else f"{ndim}d"
            return " ".join(["ARRAY", name(array), axes, *([dtype] if dtype else []), *_message(message)])
        case Opcode.GUARD:
            kind, message, *slots = operands
            return " ".join(["GUARD", Comparison(kind).name.lower(), *map(name, slots), *_message(message)])
        case Opcode.COMPARE:
            kind, *slots = operands
            return " ".join(["COMPARE", Comparison(kind).name.lower(), *map(name, slots)])
        case Opcode.PARALLEL:
            return f"PARALLEL cost={name(operands[0])} to {operands[1]} ({operands[2]} calls)"
        case _:
            return " ".join([opcode.name, *_plain(operands, name, LAYOUT[opcode])])


def _plain(operands: list[int], name: Callable[[int], str], layout: tuple[str, ...]) -> list[str]:
    kinds = (entry[0] for entry in layout)
    return [name(operand) if kind in "sd" else f"to {operand}" if kind == "p" else str(operand)
            for kind, operand in zip(kinds, operands, strict=True)]


def _message(message: int) -> list[str]:
    return [] if message == NO_MESSAGE else [f"message {message}"]

"""The code of one function while it is written into the instruction table: what is where, and a line of kernels at a time.

A program has one `Table`; its main function and every branch and loop body that runs in it have a `Scope` each, with sizes
and memory of their own.  `Main` (build.py) is the scope that arguments enter; `Body` (control.py), one inside another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from minirelax.errors import CodegenError
from minirelax.ir.dim import Dim, names, product, substitute
from minirelax.ir.graph import (
    Alias,
    AllocStorage,
    AllocTensor,
    Atom,
    Binding,
    CallFunction,
    CallLibrary,
    CallValue,
    Cond,
    Const,
    Function,
    Heap,
    MakeShape,
    MakeTuple,
    MatchCast,
    MatchShape,
    Module,
    RunCond,
    RunKernel,
    RunLibrary,
    RunScan,
    RunWhile,
    Scan,
    TupleItem,
    Var,
    View,
    While,
)
from minirelax.ir.infer import mentioned_names
from minirelax.ir.lattice import bare_name
from minirelax.ir.library import result_name
from minirelax.ir.types import (
    NUMPY_DTYPES,
    Callable,
    Object,
    Shape,
    Storage,
    Tensor,
    Tuple,
    Type,
    is_known,
    itemsize,
    symbols,
    whole_lines,
)
from minirelax.passes.plan_memory import tensor_bytes
from minirelax.runtime.built import Action, Allocate, Check, Choose, Invoke, Library, Placed, Repeat, Source, Sweep
from minirelax.runtime.instructions import Assembler, Comparison, Match
from minirelax.runtime.size_slots import SizeSlots

if TYPE_CHECKING:
    from minirelax.codegen.numba_cpu import KernelCode

NOTHING_TO_RUN = (Heap, MatchShape, View, MakeTuple, TupleItem, MakeShape, Alias)


class Table:
    """What all functions that are written into one table share."""

    def __init__(self, module: Module, codes: dict[str, KernelCode]):
        self.module, self.codes, self.asm = module, codes, Assembler()
        self.literals: dict[int, int] = {}  # number -> slot
        self.checks: list[Check] = []
        self.actions: list[Action] = []
        self.cells: dict[int, int] = {}  # slot -> the slot whose address it holds
        self.chunks: list[tuple[int, int]] = []  # by depth, memory of bodies: the slots of its address and of its size
        self.called: dict[str, None] = {}  # functions that become programs of their own
        self.constants: dict[str, tuple[int, Source]] = {}  # of the module: slot of the address, how Python finds the array
        self.values = 0
        self.threads = 0  # how many threads the workspaces have room for, 0 while there are none
        self.may_fail = any(c.may_fail for c in codes.values())  # may an index be out of range?

    def start(self) -> None:
        """The slots that are filled in every call; after those of the arguments, which come first."""
        asm = self.asm
        self.arena, self.error = asm.slot("arena"), asm.slot("error")
        dtypes = dict.fromkeys(c.table_dtype for c in self.codes.values())
        self.tables = {d: asm.slot(f"tiles.{d}") for d in dtypes if d}

    def check(self, kind: str, subject: str, axis: int = -1, expected: str = "", function: str = "") -> int:
        """The number of a message."""
        self.checks.append(Check(kind, subject, axis, expected, function))
        return len(self.checks) - 1

    def action(self, action: Action) -> None:
        """Let Python do something here."""
        self.actions.append(action)
        self.asm.library(len(self.actions) - 1)

    def value(self) -> int:
        """The number of one more array that Python will hold."""
        self.values += 1
        return self.values - 1

    def cell(self) -> int:
        """The slot of the address of 8 bytes of the frame: room for a scalar."""
        address = self.asm.slot("cell.address")
        self.cells[address] = self.asm.slot("cell")
        return address

    def chunk(self, depth: int) -> tuple[int, int]:
        """The memory of bodies at this depth: of all that stand there, one runs at a time."""
        while len(self.chunks) < depth:
            at = len(self.chunks) + 1
            self.chunks.append((self.asm.slot(f"chunk{at}"), self.asm.slot(f"chunk{at}.bytes")))
        return self.chunks[depth - 1]


class Scope:
    """One function's values: slots of addresses, of array objects, of sizes."""

    def __init__(self, table: Table, function: Function, depth: int = 0):
        self.table, self.asm, self.function, self.depth = table, table.asm, function, depth
        self.sizes = SizeSlots(table.asm, table.literals)
        self.addresses: dict[str, int] = {}  # variable -> slot of its address
        self.objects: dict[str, Source] = {}  # variable -> how Python finds its array, where Python has one
        self.arrays: dict[str, int] = {}  # variable -> slot of that array object
        self.alias: dict[str, str] = {}  # variable -> the one whose memory it is
        self.reshaped: set[str] = set()  # variables that see that memory under another shape
        self.starts: dict[str, Dim] = {}  # a variable -> at which byte of that memory it begins, if not the first
        self.parts: set[str] = set()  # variables that see some of it only
        self.shifted: dict[tuple[str, Dim], int] = {}  # that variable and byte -> slot of the address
        self.tuples: dict[str, tuple[Atom, ...]] = {}
        self.sized: dict[str, Type] = {}  # a variable of unknown size -> the known type of what it is an alias of
        self.storages: dict[str, Dim] = {}  # storage (or unplanned tensor) -> offset in this scope's memory
        self.storage_of: dict[str, tuple[str, Dim]] = {}  # tensor -> its storage, and where in that
        self.total: Dim = 0  # bytes of this scope's memory
        self.output_of: dict[str, int] = {}  # variable -> which result is written where it is
        self.entry_symbols = {n for v in function.params for n in mentioned_names(v.type)}
        self.addresses |= {name: slot for name, (slot, _) in table.constants.items()}
        self.objects |= {name: source for name, (_, source) in table.constants.items()}
        for v in function.params:
            self._take_apart(v)
        self._find_aliases()

    # ------------------------------------------------------------------ which variable is whose memory

    def _find_aliases(self) -> None:
        """Views, tuple items, match_casts and aliases are the same memory as what they come from."""
        for b in self.function.bindings:
            match b.value:
                case View(value=Var() as v, offset=offset):
                    self._same(b.var, v, True, offset)
                    if product(b.var.type.shape) != product(v.type.shape):
                        self.parts.add(b.var.name)
                case MatchCast(value=Var() as v) | Alias(value=Var() as v):
                    self._same(b.var, v)
                case MakeTuple(items=items):
                    self.tuples[b.var.name] = items
                case TupleItem(value=Var(name=name), index=i):
                    self._same(b.var, self.tuples[name][i])
                case _ if b.var is not None:
                    self._take_apart(b.var)

    def _take_apart(self, v: Var) -> None:
        if isinstance(v.type, Tuple):
            items = tuple(Var(f"{v.name}.{i}", t) for i, t in enumerate(v.type.items))
            self.tuples[v.name] = items
            for item in items:
                self._take_apart(item)

    def _same(self, new: Var, old: Var, reshaped: bool = False, offset: Dim = 0) -> None:
        if isinstance(new.type, Tuple) and old.name in self.tuples:
            self.tuples[new.name] = tuple(Var(f"{new.name}.{i}", t) for i, t in enumerate(new.type.items))
            for mine, theirs in zip(self.tuples[new.name], self.tuples[old.name], strict=True):
                self._same(mine, theirs)
        else:
            self.alias[new.name] = self.root(old.name)
            start = self.starts.get(old.name, 0)
            if offset != 0:
                start = start + offset * itemsize(new.type.dtype)
            if start != 0:
                self.starts[new.name] = start
            if old.name in self.parts:
                self.parts.add(new.name)
            if not is_known(new.type) and is_known(before := self.known_type(old)):
                self.sized[new.name] = before
            if reshaped or old.name in self.reshaped:
                self.reshaped.add(new.name)

    def root(self, name: str) -> str:
        """The variable that owns the memory."""
        return self.alias.get(name, name)

    def known_type(self, v: Var) -> Type:
        """Its type; where that leaves sizes open, the type of the same array under another name that does not."""
        return self.sized.get(v.name, v.type)

    def flat(self, atom: Atom) -> Iterator[Atom]:
        """A value's parts that are no tuples."""
        if isinstance(atom, Var) and isinstance(atom.type, Tuple) and atom.name in self.tuples:
            for item in self.tuples[atom.name]:
                yield from self.flat(item)
        else:
            yield atom

    def allocated(self) -> set[str]:
        """The variables that are memory of this function."""
        return {b.var.name for b in self.function.bindings if isinstance(b.value, AllocTensor)}

    # ------------------------------------------------------------------ sizes

    def size(self, d: Dim) -> int:
        """The slot that holds a size expression; emits its evaluation the first time."""
        return self.sizes.slot(d)

    def known(self, type_: Type) -> bool:
        """Are all sizes known at entry?"""
        return is_known(type_) and symbols(type_) <= self.entry_symbols

    def bytes_of(self, type_: Tensor) -> int:
        """The slot that holds the bytes of a tensor."""
        return self.size(product(type_.shape) * itemsize(type_.dtype))

    def match(self, value: Var, type_: Type, where: str) -> None:
        """Compare a value with a type, binding sizes that are new: those of its array object, or those known without it."""
        match type_:
            case Tuple(items=items):
                for part, t in zip(self.tuples[value.name], items, strict=True):
                    self.match(part, t, where)
            case Tensor():
                self._match_tensor(value, type_, where)
            case Shape():
                self._match_shape(value, type_, where)

    def _match_tensor(self, value: Var, type_: Tensor, where: str) -> None:
        slot, given = self.object_slot(value), value.type
        unknown = not isinstance(given, Tensor) or (given.dtype is None and type_.dtype) or (
            given.shape is None and type_.shape is not None)
        if unknown:
            dtype = None if type_.dtype is None else NUMPY_DTYPES[type_.dtype]
            self.asm.array(self._needed(slot, value), type_.ndim, dtype, self._check("array", value, -1, str(type_), where))
        for axis, d in enumerate(type_.shape or ()):
            known = None if unknown or given.shape is None else given.shape[axis]
            if d is not None:
                self._match_size(value, axis, known, d, slot, where)

    def _match_size(self, value: Var, axis: int, known: Dim | None, d: Dim, slot: int | None, where: str) -> None:
        message = self._check("size", value, axis, str(d), where)
        is_new = bare_name(d) is not None and d not in self.sizes
        if known is not None and (slot is None or known == d) or slot is None:
            if known is None:
                raise CodegenError(f"axis {axis} of {value.name} has no size to look at", "this is a mistake in a pass")
            if is_new:
                self.sizes.bind(d, self.size(known))
            elif known != d:
                self.asm.guard(Comparison.EQ, self.size(known), self.size(d), message)
        elif isinstance(d, int):
            self.asm.match(slot, axis, Match.IMMEDIATE, d, message)
        elif is_new:
            self.sizes.bind(d, self.asm.slot(str(d)))
            self.asm.match(slot, axis, Match.STORE, self.size(d), message)
        else:
            self.asm.match(slot, axis, Match.SLOT, self.size(d), message)

    def _match_shape(self, value: Var, type_: Shape, where: str) -> None:
        entries = self._entries(value, type_, where)
        for i, d in enumerate(type_.values or ()):
            if bare_name(d) is not None and d not in self.sizes:
                self.sizes.bind(d, entries[i])
            elif not isinstance(value.type, Shape) or value.type.values is None or value.type.values[i] != d:
                self.asm.guard(Comparison.EQ, entries[i], self.size(d), self._check("size", value, i, str(d), where))

    def _entries(self, value: Var, type_: Shape, where: str) -> list[int]:
        """The slots of a shape value's entries: its type's, or read from the int64 array that it is."""
        if isinstance(value.type, Shape) and value.type.values is not None:
            return [self.size(d) for d in value.type.values]
        if type_.ndim is None:
            return []
        root = self.root(value.name)
        self.asm.array(self._needed(self.arrays.get(root), value), 1, NUMPY_DTYPES["i64"],
                       self._check("array", value, -1, str(type_), where))
        self.asm.match(self.arrays[root], 0, Match.IMMEDIATE, type_.ndim, self._check("array", value, -1, str(type_), where))
        found = []
        for i in range(type_.ndim):
            found.append(self.asm.slot(f"{value.name}[{i}]"))
            at = self.asm.slot(f"{value.name}[{i}].address")
            self.asm.address(at, self.addresses[root], self.size(8 * i))
            self.asm.load(found[-1], at, NUMPY_DTYPES["i64"])
        return found

    def _check(self, kind: str, value: Var, axis: int, expected: str, where: str) -> int:
        return self.table.check(kind, value.name, axis, expected, where)

    def object_slot(self, var: Var) -> int | None:
        """The slot of the array object that has the sizes of `var`; None for what the program made itself, and for views."""
        return None if var.name in self.reshaped else self.arrays.get(self.root(var.name))

    def _needed(self, slot: int | None, value: Var) -> int:
        if slot is None:
            raise CodegenError(f"nothing is known of {value.name}: {value.type}", "cast it where it comes from")
        return slot

    # ------------------------------------------------------------------ memory

    def plan(self) -> None:
        """Offsets in this scope's memory, for all storage whose size is known at entry."""
        for b in self.function.bindings:
            match b.value:
                case AllocStorage(bytes=size):
                    self._place(b.var.name, size)
                case AllocTensor(storage=(Var(name=name),), offset=offset):
                    self.storage_of[b.var.name] = name, offset
                case AllocTensor() if self.root(b.var.name) not in self.output_of:
                    if self.known(b.var.type):
                        self._place(b.var.name, tensor_bytes(b.var.type, {}))

    def _place(self, name: str, size: Dim) -> None:
        if names(size) <= self.entry_symbols:
            self.storages[name] = self.total
            self.total = self.total + whole_lines(size)

    def place_storages(self, base: int) -> None:
        """The addresses of this scope's memory, which starts at the address in slot `base`."""
        for name, offset in self.storages.items():
            slot = self.addresses.setdefault(name, self.asm.slot(f"{name}.data"))
            self.asm.address(slot, base, self.size(offset))
        for var, (storage, offset) in self.storage_of.items():
            if storage in self.addresses:
                self._place_in(var, storage, offset)

    def _place_in(self, var: str, storage: str, offset: Dim) -> None:
        """The address of a tensor in a storage that has one."""
        if offset == 0:
            self.addresses[var] = self.addresses[storage]
        else:
            self.addresses[var] = self.asm.slot(f"{var}.data")
            self.asm.address(self.addresses[var], self.addresses[storage], self.size(offset))

    def address(self, atom: Atom) -> int:
        """The slot of a tensor's address."""
        root = self.root(atom.name)
        if root not in self.addresses:
            raise CodegenError(f"{atom.name} has no memory", "this is a mistake in a pass: its definition was dropped or moved")
        start = self.starts.get(atom.name, 0)
        if start == 0:
            return self.addresses[root]
        if (root, start) not in self.shifted:
            self.shifted[root, start] = self.asm.slot(f"{atom.name}.data")
            self.asm.address(self.shifted[root, start], self.addresses[root], self.size(start))
        return self.shifted[root, start]

    def placed(self, var: Var) -> Placed:
        """A tensor in memory of the program."""
        type_ = self.known_type(var)
        return Placed(type_.dtype, tuple(map(self.size, type_.shape)), self.address(var))

    # ------------------------------------------------------------------ the function's statements

    def statements(self) -> None:
        """Runs of kernel calls become parallel regions; whatever else there is to do stands between them."""
        run: list[RunKernel] = []
        for b in self.function.bindings:
            if isinstance(b.value, RunKernel):
                run.append(b.value)
            elif self._does_something(b):
                self._parallel(run)
                run = []
                self._step(b)
        self._parallel(run)

    def _does_something(self, b: Binding) -> bool:
        if isinstance(b.value, AllocTensor | AllocStorage):
            late = not isinstance(b.value, AllocTensor) or not b.value.storage
            return late and self.root(b.var.name) not in self.addresses
        return not isinstance(b.value, NOTHING_TO_RUN)

    def _step(self, b: Binding) -> None:
        from minirelax.runtime.control import emit_cond, emit_scan, emit_while

        match b.value:
            case AllocTensor() | AllocStorage():
                self._allocate_late(b.var)
            case MatchCast(value=value, type=type_):
                self.match(value, type_, "match_cast")
            case RunLibrary() | CallLibrary():
                self._library(b)
            case RunCond():
                emit_cond(self, b.value)
            case RunWhile():
                emit_while(self, b.value)
            case RunScan():
                emit_scan(self, b.value)
            case CallFunction() | CallValue() | Cond() | While() | Scan():
                self._python_control(b)
            case other:
                raise CodegenError(f"no instruction for {type(other).__name__}", "lower the module with the whole pipeline first")

    def _parallel(self, calls: list[RunKernel]) -> None:
        if not calls:
            return
        asm, prepared, total = self.asm, [], None
        for call in calls:
            sizes, tiles, cost = self.call_sizes(call)
            code = self.table.codes[call.kernel]
            table = self.table.tables.get(code.table_dtype, self.table.error)
            slots = [self.address(a) for a in (*call.args, *call.out)] + [self.table.error, table, *sizes]
            prepared.append((code.function, tiles, slots, cost, self._workspace(call, code)))
            if total is None:
                total = cost
            else:
                summed = asm.slot("cost")
                asm.add(summed, total, cost)
                total = summed
        asm.parallel(total)
        for function, tiles, slots, cost, work in prepared:
            asm.call(function, tiles, slots, cost, work)
        asm.end()

    def _workspace(self, call: RunKernel, code: KernelCode) -> tuple[int, int] | None:
        """The slots of the address of a call's workspace and of each thread's bytes; for how many threads it is, is noted."""
        if not call.work:
            if code.scratch_bytes != 0:
                raise CodegenError(f"kernel {call.kernel} has no workspace", "run the pass lift_workspaces before")
            return None
        (work,) = call.work
        threads, each = work.type.shape
        if code.tiles != 1:  # one tile is the first thread's
            self.table.threads = min(threads, self.table.threads or threads)
        return self.address(work), self.size(each)

    def call_sizes(self, call: RunKernel) -> tuple[list[int], int, int]:
        """The slots of a call's sizes, and of its number of tiles and cost."""
        code = self.table.codes[call.kernel]
        values = dict(zip(code.signature.sizes, call.sizes, strict=True))
        sizes = [self.size(values[n]) for n in code.signature.sizes]
        return sizes, *(self.size(substitute(d, values)) for d in (code.tiles, code.cost))

    # ------------------------------------------------------------------ what Python does

    def _library(self, b: Binding) -> None:
        call = b.value
        sizes = tuple(map(self.size, call.sizes))
        if isinstance(call, RunLibrary):
            out, work = tuple(map(self.placed, call.out)), self.placed(call.work[0]) if call.work else None
            made = Library(call.routine, self.sources(call.args), out, (), call.options, sizes, (), result_name(b), work)
            self.table.action(made)
        else:
            expected = tuple(map(self._expected, self.flat(b.var)))
            made = Library(call.routine, self.sources(call.args), (), (), call.options, sizes, expected, result_name(b))
            self._with_results(b.var, made)

    def _expected(self, var: Var) -> tuple[str | None, tuple[int | None, ...] | None]:
        """What is known of an array before the library routine that makes it has run."""
        dtype, shape = getattr(var.type, "dtype", None), getattr(var.type, "shape", None)
        return dtype, None if shape is None else tuple(None if d is None else self.size(d) for d in shape)

    def _python_control(self, b: Binding) -> None:
        """Calls of functions; control flow whose results have sizes that only running it tells."""
        called, sources = self.table.called, self.sources
        match b.value:
            case CallFunction(function=name, args=args):
                called[name] = None
                self._with_results(b.var, Invoke(("function", name), sources(args), ()))
            case CallValue(callee=callee, args=args):
                action = Invoke(self.source(callee), sources(args), ())
                self._with_results(b.var, action, f"the result of {callee}")
            case Cond(condition=c, then=then, otherwise=otherwise, args=args):
                called |= {then: None, otherwise: None}
                self._with_results(b.var, Choose(self.source(c), then, otherwise, sources(args), ()))
            case While(test=test, body=body, args=args, init=init):
                called |= {test: None, body: None}
                self._with_results(b.var, Repeat(test, body, sources(args), sources(init), ()))
            case Scan(body=body, args=args, init=init, xs=xs, length=length, reverse=reverse):
                called[body] = None
                stacked = tuple((t.dtype, t.ndim) for t in b.var.type.items[len(init):])
                parts = map(sources, (args, init, xs))
                self._with_results(b.var, Sweep(body, *parts, self.size(length), reverse, stacked, ()))

    def _with_results(self, var: Var, action: Action, checked: str = "") -> None:
        """An action of Python's that gives fresh arrays: where they are from then on.

        `checked` is how errors call results of which only a type that the caller wrote is known.
        """
        results = list(self.flat(var))
        values = tuple((self.table.value(), self.asm.slot(f"{v.name}.object")) for v in results)
        self.table.action(replace(action, values=values))
        for v, (index, slot) in zip(results, values, strict=True):
            if checked and isinstance(v.type, Tensor | Shape):
                self.asm.array(slot, None, None, self._check("array", v, -1, str(v.type), checked))
            self.bind_value(v, index, slot)
            if checked:
                self.match(Var(v.name, Object()), v.type, checked)

    def bind_value(self, var: Var, index: int, slot: int) -> None:
        """`var` is the array that Python holds as value `index`, with its object in `slot`."""
        self.objects[var.name] = ("value", index)
        self.arrays[var.name] = slot
        if isinstance(var.type, Tensor | Shape | Storage):
            self.addresses[var.name] = self.asm.slot(f"{var.name}.data")
            self.asm.data(self.addresses[var.name], slot)

    def _allocate_late(self, var: Var) -> None:
        """A tensor or storage whose size only became known on the way: Python allocates it."""
        index, slot = self.table.value(), self.asm.slot(f"{var.name}.object")
        dtype, shape = ("u8", (var.type.bytes,)) if isinstance(var.type, Storage) else (var.type.dtype, var.type.shape)
        self.table.action(Allocate(Placed(dtype, tuple(map(self.size, shape)), 0), index, slot))
        self.bind_value(var, index, slot)
        for tensor, (storage, offset) in self.storage_of.items():
            if storage == var.name:
                self._place_in(tensor, storage, offset)

    def sources(self, atoms: tuple[Atom, ...]) -> tuple[Source, ...]:
        """How Python finds these values, tuples taken apart."""
        return tuple(self.source(leaf) for a in atoms for leaf in self.flat(a))

    def source(self, a: Atom) -> Source:
        """How Python finds a value."""
        if isinstance(a, Const):
            return "literal", (a.value, a.dtype)
        root = self.root(a.name)
        if isinstance(a.type, Callable) and root not in self.objects:
            self.table.called[root] = None
            return "function", root
        if isinstance(a.type, Shape) and a.type.values is not None:
            return "shape", tuple(map(self.size, a.type.values))
        if root in self.objects and a.name not in self.reshaped:
            found = self.objects[root]
            return ("entries", found) if isinstance(a.type, Shape) else found
        return "memory", self.placed(a)


__all__ = ["Scope", "Table"]

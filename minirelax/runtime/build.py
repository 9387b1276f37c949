"""Turn a planned module into a program: the instruction table, the kernels' code, and what Python has to do around them.

Why it is right: sizes are evaluated before anything that needs them, each expression once (digest 1.12); kernels run in the
module's order, and a parallel region ends before Python, or a later region, looks at what it wrote.

The table has two parts.  The first, cheap one runs with the interpreter's lock: it checks the arguments (rank, dtype, sizes,
contiguity, guards), fills the shape heap and evaluates every size expression.  Then Python allocates the results, and the
second part runs the kernels, between library calls in regions that several threads execute in lockstep.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... @kernel(pattern="elementwise")
... def double(x: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = x[i] + x[i]
...
... def main(x: f32[2*n, 4], y: f32[n]) -> f32[n]:
...     v0: f32[n] = alloc_tensor()
...     run_kernel(double, y, out=(v0,), sizes=(n,))
...     return v0''')
>>> print(build(before))
  0  ARRAY x 2d <f4 message 0
  7  MATCH x axis 1 immediate 4 message 1
 14  ARRAY y 1d <f4 message 2
 21  MATCH y axis 0 store n message 3
 28  MUL 2*n n 2
 33  MATCH x axis 0 slot 2*n message 4
 40  DATA x.data x
 44  DATA y.data y
 48  ADD n + 16383 16383 n
 53  FLOORDIV (n + 16383)//16384 n + 16383 16384
 58  MUL 31*n n 31
 63  FLOORDIV (31*n)//100 31*n 100
 68  PAUSE
 70  DATA v0.data v0.object
 74  PARALLEL cost=(31*n)//100 to 91 (1 calls)
 79  CALL double_kernel tiles=(n + 16383)//16384 cost=(31*n)//100 scratch=0 (y.data, v0.data, error, error, n)
 91  END
 93  RETURN
"""

from __future__ import annotations

from minirelax.codegen.numba_cpu import KernelCode, kernel_code
from minirelax.errors import CodegenError
from minirelax.ir.dim import Dim, ceildiv, names, substitute
from minirelax.ir.graph import (
    AllocStorage,
    AllocTensor,
    Binding,
    CallLibrary,
    Const,
    Function,
    Heap,
    MakeTuple,
    MatchCast,
    MatchShape,
    Module,
    RunKernel,
    RunLibrary,
    TupleItem,
    Var,
    View,
)
from minirelax.ir.types import NUMPY_DTYPES, Storage, Tensor, Tuple, symbols
from minirelax.passes.plan_memory import LINE, tensor_bytes
from minirelax.runtime.built import Action, Built, Check, Placed, Result
from minirelax.runtime.instructions import Assembler, Comparison, Match
from minirelax.runtime.size_slots import SizeSlots, bare_name

COMPARISONS = {
    "==": Comparison.EQ,
    "!=": Comparison.NE,
    "<": Comparison.LT,
    "<=": Comparison.LE,
    ">": Comparison.GT,
    ">=": Comparison.GE,
}


def build(module: Module, on_kernel=None) -> Built:
    """The program of a module in destination-passing form with planned memory.

    Raises CodegenError for a kernel that cannot be compiled.  `on_kernel(i, k, name)` is told of each kernel.
    """
    main = next(f for f in module.functions if f.name == "main")
    codes = {}
    for i, kernel in enumerate(module.kernels):
        if on_kernel:
            on_kernel(i, len(module.kernels), kernel.name)
        codes[kernel.name] = kernel_code(kernel)
    return _Builder(module, main, codes).build()


class _Builder:
    def __init__(self, module: Module, main: Function, codes: dict[str, KernelCode]):
        self.module, self.main, self.codes = module, main, codes
        self.asm = Assembler()
        self.sizes = SizeSlots(self.asm)
        self.addresses: dict[str, int] = {}  # variable -> slot of its address
        self.objects: dict[str, tuple[str, int]] = {}  # variable -> where Python has it: argument, bound, value
        self.alias: dict[str, str] = {}  # variable -> the one whose memory it is
        self.reshaped: set[str] = set()  # variables that see that memory under another shape
        self.checks: list[Check] = []
        self.actions: list[Action] = []
        self.storages: dict[str, Dim] = {}  # storage (or unplanned tensor) -> offset in the arena
        self.storage_of: dict[str, str] = {}  # tensor -> its storage
        self.output_addresses: list[int] = []
        self.value_of: dict[str, int] = {}  # what a library call made -> its number
        self.value_slots: dict[str, int] = {}  # ... -> the slot of its array object
        self.arena_total: Dim = 0
        self.entry_symbols = {n for v in main.params for d in v.type.shape or () if d is not None for n in names(d)}

    def build(self) -> Built:
        main, asm = self.main, self.asm
        self._aliases()
        self.param_slots = [asm.slot(v.name) for v in main.params]
        results = self._result_vars()
        self.output_vars = self._output_vars(results)
        output_slots = [asm.slot(f"{v.name}.object") for v in self.output_vars]
        self.arena = asm.slot("arena")
        self.error = asm.slot("error")
        self.tables = {d: asm.slot(f"tiles.{d}") for d in dict.fromkeys(c.table_dtype for c in self.codes.values()) if d}
        bound = (*main.bound, *(c.var for c in self.module.constants))
        for i, v in enumerate(bound):
            self.addresses[v.name] = asm.slot(v.name)
            self.objects[v.name] = ("bound", i)
        self._parameters()
        self._guards()
        self._plan_segments()
        arena_bytes = self.size(self.arena_total)
        outputs = tuple(self._output(v, s) for v, s in zip(self.output_vars, output_slots, strict=True))
        result_list = tuple(self._result(r) for r in results)
        asm.pause()
        for out, slot in zip(outputs, output_slots, strict=True):
            asm.data(out.address, slot)
        self._storage_addresses()
        self._emit_segments()
        asm.ret()
        program = asm.finish()
        used = {c.function: c.source for c in self.codes.values()}
        return Built(
            program,
            used,
            main.params,
            bound,
            tuple(self.addresses[v.name] for v in bound),
            outputs,
            result_list,
            tuple(self.actions),
            tuple(self.checks),
            self.tables,
            self.error,
            self.arena,
            arena_bytes,
            self.sizes.numbers,
            tuple(self.codes.values()),
        )

    # ------------------------------------------------------------------ which variable is whose memory

    def _aliases(self) -> None:
        """Views, tuple items and match_casts are the same memory as what they come from."""
        tuples: dict[str, tuple] = {}
        for b in self.main.bindings:
            match b.value:
                case View(value=Var(name=name)) | MatchCast(value=Var(name=name)):
                    self.alias[b.var.name] = self.root(name)
                    if isinstance(b.value, View) or name in self.reshaped:
                        self.reshaped.add(b.var.name)
                case MakeTuple(items=items):
                    tuples[b.var.name] = items
                case TupleItem(value=Var(name=name), index=i) if name in tuples and isinstance(tuples[name][i], Var):
                    self.alias[b.var.name] = self.root(tuples[name][i].name)
        self.tuples = tuples

    def root(self, name: str) -> str:
        """The variable that owns the memory."""
        return self.alias.get(name, name)

    def _result_vars(self) -> list[Var | Const]:
        result = self.main.result
        if isinstance(result, Var) and isinstance(result.type, Tuple):
            return self._flat(self.tuples[result.name])
        return [result]

    def _flat(self, items) -> list[Var | Const]:
        found = []
        for i in items:
            found += self._flat(self.tuples[i.name]) if isinstance(i, Var) and isinstance(i.type, Tuple) else [i]
        return found

    def _output_vars(self, results) -> list[Var]:
        """One new array per distinct allocated root among the results, with the shape of its first use."""
        allocated = {b.var.name for b in self.main.bindings if isinstance(b.value, AllocTensor)}
        found: dict[str, Var] = {}
        for r in results:
            if isinstance(r, Var) and self.root(r.name) in allocated and self._known(r.type):
                found.setdefault(self.root(r.name), r)
        self.output_of = {root: i for i, root in enumerate(found)}
        return list(found.values())

    # ------------------------------------------------------------------ the first part: arguments and sizes

    def _parameters(self) -> None:
        """Digest 1.12's two rounds: sizes that stand alone are stored on first sight, then everything else is compared."""
        asm, later = self.asm, []
        for i, (v, slot) in enumerate(zip(self.main.params, self.param_slots, strict=True)):
            shape = v.type.shape
            asm.array(slot, len(shape), NUMPY_DTYPES[v.type.dtype], self._check("array", v.name, -1, str(v.type)))
            for axis, d in enumerate(shape):
                if isinstance(d, int):
                    asm.match(slot, axis, Match.IMMEDIATE, d, self._check("size", v.name, axis, str(d)))
                elif d is not None and (name := bare_name(d)) and d not in self.sizes:
                    self.sizes.bind(d, asm.slot(name))
                    asm.match(slot, axis, Match.STORE, self.size(d), self._check("size", v.name, axis, str(d)))
                elif d is not None:
                    later.append((slot, v.name, axis, d))
            self.objects[v.name] = ("argument", i)
        for slot, name, axis, d in later:
            asm.match(slot, axis, Match.SLOT, self.size(d), self._check("size", name, axis, str(d)))
        for v, slot in zip(self.main.params, self.param_slots, strict=True):
            self.addresses[v.name] = asm.slot(f"{v.name}.data")
            asm.data(self.addresses[v.name], slot)

    def _guards(self) -> None:
        for g in self.main.guards:
            message = self._check("guard", f"{g.left} {g.relation} {g.right}")
            self.asm.guard(COMPARISONS[g.relation], *(self.size(_in_range(d)) for d in (g.left, g.right)), message)

    def _check(self, kind: str, subject: str, axis: int = -1, expected: str = "") -> int:
        self.checks.append(Check(kind, subject, axis, expected))
        return len(self.checks) - 1

    def _known(self, type_) -> bool:
        """Are all sizes known at entry?"""
        return type_.shape is not None and None not in type_.shape and symbols(type_) <= self.entry_symbols

    def size(self, d: Dim) -> int:
        """The slot that holds a size expression; emits its evaluation the first time."""
        return self.sizes.slot(d)

    # ------------------------------------------------------------------ memory

    def _plan_segments(self) -> None:
        """Storage offsets in the arena, sizes and tile counts of every call whose sizes are known at entry."""
        for b in self.main.bindings:
            match b.value:
                case AllocStorage(bytes=size):
                    self._place(b.var.name, size)
                case AllocTensor(storage=(Var(name=name),)):
                    self.storage_of[b.var.name] = name
                case AllocTensor() if self.root(b.var.name) not in self.output_of:
                    if self._known(b.var.type):
                        self._place(b.var.name, tensor_bytes(b.var.type, {}))
                case RunKernel() as call if all(names(d) <= self.entry_symbols for d in call.sizes):
                    self._call_sizes(call)
        for name, offset in self.storages.items():
            self.size(offset)
            self.addresses.setdefault(name, self.asm.slot(f"{name}.data"))

    def _place(self, name: str, size: Dim) -> None:
        if names(size) <= self.entry_symbols:
            self.storages[name] = self.arena_total
            self.arena_total = self.arena_total + ceildiv(size, LINE) * LINE

    def _storage_addresses(self) -> None:
        """Addresses of what lies in the arena, and of results, now that Python has allocated both."""
        for name, offset in self.storages.items():
            self.asm.address(self.addresses[name], self.arena, self.size(offset))
        for root, i in self.output_of.items():
            self.addresses[root] = self.output_addresses[i]
        for var, storage in self.storage_of.items():
            if storage in self.addresses:
                self.addresses[var] = self.addresses[storage]

    def _output(self, var: Var, slot: int) -> Placed:
        placed = Placed(var.type.dtype, tuple(map(self.size, var.type.shape)), self.asm.slot(f"{var.name}.data"))
        self.output_addresses.append(placed.address)
        return placed

    def _result(self, r: Var | Const) -> Result:
        if isinstance(r, Const):
            raise CodegenError(
                "a program's result must be a value, not a literal", "this is a mistake in a pass: name the literal with full()"
            )
        root = self.root(r.name)
        if root in self.output_of:
            return Result("output", self.output_of[root], r.type.dtype, tuple(map(self.size, r.type.shape)))
        if root in self.objects:
            kind, index = self.objects[root]
            return Result(kind, index, r.type.dtype, tuple(map(self.size, r.type.shape)) if self._known(r.type) else ())
        return Result("value", self._value_index(root), r.type.dtype, ())

    def _value_index(self, name: str) -> int:
        """The number of a value that only a library call makes."""
        return self.value_of.setdefault(name, len(self.value_of))

    # ------------------------------------------------------------------ the second part: kernels and library calls

    def _call_sizes(self, call: RunKernel) -> tuple[list[int], int, int, int]:
        code = self.codes[call.kernel]
        values = dict(zip(code.signature.sizes, call.sizes, strict=True))
        sizes = [self.size(values[n]) for n in code.signature.sizes]
        return sizes, *(self.size(substitute(d, values)) for d in (code.tiles, code.cost, code.scratch_bytes))

    def _emit_segments(self) -> None:
        """Runs of kernel calls become parallel regions; whatever Python does stands between them."""
        run: list[RunKernel] = []
        for b in self.main.bindings:
            match b.value:
                case RunKernel() as call:
                    run.append(call)
                case RunLibrary() | CallLibrary() | MatchCast():
                    self._emit_region(run)
                    run = []
                    self._python_step(b)
                case AllocTensor(storage=()) | AllocStorage() if self.root(b.var.name) not in self.addresses:
                    self._emit_region(run)
                    run = []
                    self._late_memory(b)
                case Heap() | MatchShape() | AllocStorage() | AllocTensor() | View() | MakeTuple() | TupleItem():
                    pass
                case other:
                    raise CodegenError(
                        f"no instruction for {type(other).__name__}", "lower the module with the whole pipeline first"
                    )
        self._emit_region(run)

    def _emit_region(self, calls: list[RunKernel]) -> None:
        if not calls:
            return
        asm, prepared = self.asm, []
        total = None
        for call in calls:
            sizes, tiles, cost, scratch = self._call_sizes(call)
            code = self.codes[call.kernel]
            table = self.tables.get(code.table_dtype, self.error)
            slots = [self._address(a) for a in (*call.args, *call.out)] + [self.error, table, *sizes]
            prepared.append((code.function, tiles, slots, cost, scratch))
            if total is None:
                total = cost
            else:
                summed = asm.slot("cost")
                asm.add(summed, total, cost)
                total = summed
        asm.parallel(total)
        for function, tiles, slots, cost, scratch in prepared:
            asm.call(function, tiles, slots, cost, scratch)
        asm.end()

    def _address(self, atom) -> int:
        root = self.root(atom.name)
        if root not in self.addresses:
            raise CodegenError(f"{atom.name} has no memory", "this is a mistake in a pass: its definition was dropped or moved")
        return self.addresses[root]

    def _python_step(self, binding: Binding) -> None:
        value = binding.value
        match value:
            case RunLibrary(routine=routine, args=args, out=out, options=options):
                self.actions.append(Action(routine, self._arguments(args), tuple(self._placed(o) for o in out), (), options))
                self.asm.library(len(self.actions) - 1)
            case CallLibrary(routine=routine, args=args, options=options):
                values = self._fresh_values(binding.var)
                self.actions.append(Action(routine, self._arguments(args), (), tuple(v[:2] for v in values), options))
                self.asm.library(len(self.actions) - 1)
                for _, slot, var in values:
                    self._bind_value(var, slot)
            case MatchCast(value=Var() as source, type=Tensor() as type_):
                self._match_cast(source, type_)
            case MatchCast():
                raise CodegenError(
                    "match_cast of what is not a tensor cannot run natively", "cast the tensors inside it one by one"
                )

    def _arguments(self, args) -> tuple[tuple[str, int | Placed], ...]:
        found = []
        for a in args:
            if isinstance(a, Const):
                found.append(("literal", (a.value, a.dtype)))
            elif self.objects.get(self.root(a.name), ("", 0))[0] in ("argument", "bound", "value") and a.name == self.root(
                a.name
            ):
                found.append(self.objects[a.name])
            else:
                found.append(("memory", self._placed(a)))
        return tuple(found)

    def _placed(self, var: Var) -> Placed:
        return Placed(var.type.dtype, tuple(map(self.size, var.type.shape)), self._address(var))

    def _fresh_values(self, var: Var) -> list[tuple[int, int, Var]]:
        """The arrays that a library call returns: their numbers, the slots for their objects, and their variables."""
        if isinstance(var.type, Tuple):
            items = {b.value.index: b.var for b in self.main.bindings if isinstance(b.value, TupleItem) and b.value.value == var}
            variables = [items.get(i) or Var(f"{var.name}.{i}", t) for i, t in enumerate(var.type.items)]
        else:
            variables = [var]
        return [(self._value_index(v.name), self.asm.slot(f"{v.name}.object"), v) for v in variables]

    def _bind_value(self, var: Var, slot: int) -> None:
        self.objects[var.name] = ("value", self._value_index(var.name))
        self.value_slots[var.name] = slot
        self.addresses[var.name] = self.asm.slot(f"{var.name}.data")
        self.asm.data(self.addresses[var.name], slot)

    def _match_cast(self, source: Var, type_: Tensor) -> None:
        """Compare or bind the sizes of a value: those of the array that Python holds, or those that are known without it."""
        slot = self._object_slot(source)
        for axis, d in enumerate(type_.shape or ()):
            if d is None:
                continue
            message = self._check("size", source.name, axis, str(d))
            is_new = bare_name(d) is not None and d not in self.sizes
            if slot is None:
                known = source.type.shape[axis]
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

    def _object_slot(self, var: Var) -> int | None:
        """The slot of the array object that has the sizes of `var`; None for what the program made itself, and for views."""
        root = self.root(var.name)
        kind, index = self.objects.get(root, ("", 0))
        if var.name in self.reshaped:
            return None
        return self.param_slots[index] if kind == "argument" else self.value_slots.get(root)

    def _late_memory(self, binding: Binding) -> None:
        """A tensor or storage whose size only became known after a library call: Python allocates it."""
        var = binding.var
        index, slot = self._value_index(var.name), self.asm.slot(f"{var.name}.object")
        dtype, shape = ("u8", (var.type.bytes,)) if isinstance(var.type, Storage) else (var.type.dtype, var.type.shape)
        placed = Placed(dtype, tuple(map(self.size, shape)), 0)
        self.actions.append(Action("", (), (placed,), ((index, slot),), ()))
        self.asm.library(len(self.actions) - 1)
        self._bind_value(var, slot)
        for tensor, storage in self.storage_of.items():
            if storage == var.name:
                self.addresses[tensor] = self.addresses[storage]


def _in_range(d: Dim) -> Dim:
    """A number to compare sizes with, cut to 64 bits: no size is that large anyway."""
    return max(-(2**63), min(d, 2**63 - 1)) if isinstance(d, int) else d

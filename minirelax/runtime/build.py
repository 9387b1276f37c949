"""Turn a planned module into a program: the instruction table, the kernels' code, and what Python has to do around them.

Why it is right: sizes are evaluated before anything that needs them, each expression once (Relax, section 4.7); kernels run
in the module's order, and a parallel region ends before Python, or a later region, looks at what it wrote.

The table has two parts.  The first, cheap one runs with the interpreter's lock: it checks the arguments (rank, dtype, sizes,
contiguity, guards), fills the shape heap and evaluates every size expression.  Then Python allocates the results, and the
second part runs the kernels, between library calls in regions that several threads execute in lockstep.  Branches and loops
are written in place (`control`); a function that is called, or is a value, becomes a program of its own.

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
 74  PARALLEL cost=(31*n)//100 to 92 (1 calls)
 79  CALL double_kernel tiles=(n + 16383)//16384 cost=(31*n)//100 work=0 (y.data, v0.data, error, error, n)
 92  END
 94  RETURN
"""

from __future__ import annotations

from dataclasses import replace

from minirelax.codegen.numba_cpu import KernelCode, kernel_code
from minirelax.errors import CodegenError
from minirelax.ir.dim import Dim, names
from minirelax.ir.graph import Atom, Const, Function, Module, RunKernel, Var
from minirelax.ir.lattice import bare_name
from minirelax.ir.types import NUMPY_DTYPES, Callable, Shape, Tensor
from minirelax.runtime.built import Built, Placed, Result, leaves
from minirelax.runtime.instructions import Comparison, Match
from minirelax.runtime.scope import Scope, Table

COMPARISONS = {
    "==": Comparison.EQ,
    "!=": Comparison.NE,
    "<": Comparison.LT,
    "<=": Comparison.LE,
    ">": Comparison.GT,
    ">=": Comparison.GE,
}


def build(module: Module, on_kernel=None) -> Built:
    """The program of a module in destination-passing form with planned memory: of its first public function.

    Raises CodegenError for a kernel that cannot be compiled.  `on_kernel(i, k, name)` is told of each kernel.
    """
    codes = {}
    for i, kernel in enumerate(module.kernels):
        if on_kernel:
            on_kernel(i, len(module.kernels), kernel.name)
        codes[kernel.name] = kernel_code(kernel)
    main = next(f for f in module.functions if not f.private)
    built, waiting = _build_function(module, main, codes)
    functions: dict[str, Built] = {}
    while waiting:
        name = waiting.pop()
        if name not in functions:
            functions[name], more = _build_function(module, module[name], codes)
            waiting += more
    sources = {c.function: c.source for c in codes.values()}
    return replace(built, functions=functions, sources=sources, codes=tuple(codes.values()))


def _build_function(module: Module, function: Function, codes: dict[str, KernelCode]) -> tuple[Built, list[str]]:
    """One function as a program, and the functions that it calls through Python."""
    table = Table(module, codes)
    main = Main(table, function)
    return main.build(), list(table.called)


class Main(Scope):
    """The function that arguments enter."""

    def __init__(self, table: Table, function: Function):
        self.params = [leaf for v in function.params for leaf in leaves(v)]
        self.param_slots = [table.asm.slot(v.name) for v in self.params]
        super().__init__(table, function)

    def build(self) -> Built:
        asm, table = self.asm, self.table
        results = list(self.flat(self.function.result))
        outputs = self._outputs(results)
        output_slots = [asm.slot(f"{v.name}.object") for v in outputs]
        table.start()
        bound = (*self.function.bound, *(c.var for c in table.module.constants))
        self._bound(bound)
        self._parameters()
        self._guards()
        self.plan()
        arena_bytes = self.size(self.total)
        for offset in (*self.storages.values(), *(offset for name, offset in self.storage_of.values() if name in self.storages)):
            self.size(offset)
        self._sizes_of_calls()
        placed = tuple(self._output(v) for v in outputs)
        types = {r: self.known_type(r) for r in results if isinstance(r, Var)}
        known = {r: tuple(map(self.size, t.shape)) for r, t in types.items() if self.known(t)}
        asm.pause()
        for out, slot in zip(placed, output_slots, strict=True):
            asm.data(out.address, slot)
        self.place_storages(table.arena)
        self.statements()
        self._returns()
        found = tuple(self._result(r, known) for r in results)
        asm.ret()
        numbers = {slot: number for number, slot in table.literals.items()} | {capacity: 0 for _, capacity in table.chunks}
        return Built(
            asm.finish(),
            {},
            tuple(self.params),
            bound,
            tuple(self.addresses[v.name] for v in bound),
            placed,
            found,
            tuple(table.actions),
            tuple(table.checks),
            table.tables,
            table.error,
            table.arena,
            arena_bytes,
            numbers,
            table.cells,
            table.threads,
        )

    def _outputs(self, results: list[Atom]) -> list[Var]:
        """One new array per distinct allocated root among the results, with the shape of its first use."""
        mine = self.allocated()
        found: dict[str, Var] = {}
        for r in results:
            if isinstance(r, Var) and r.name in self.parts:
                raise CodegenError(f"{r.name} is a part of a value, which cannot be a result", "copy it into a tensor of its own")
            if isinstance(r, Var) and self.root(r.name) in mine and self.known(self.known_type(r)):
                found.setdefault(self.root(r.name), Var(r.name, self.known_type(r)))
        self.output_of = {root: i for i, root in enumerate(found)}
        return list(found.values())

    def _output(self, var: Var) -> Placed:
        placed = Placed(var.type.dtype, tuple(map(self.size, var.type.shape)), self.asm.slot(f"{var.name}.data"))
        self.addresses[self.root(var.name)] = placed.address
        return placed

    def _bound(self, bound: tuple[Var, ...]) -> None:
        for i, v in enumerate(bound):
            self.addresses[v.name] = self.asm.slot(v.name)
            self.objects[v.name] = ("bound", i)
        for c in self.table.module.constants:
            self.table.constants[c.name] = self.addresses[c.name], self.objects[c.name]

    # ------------------------------------------------------------------ the first part: arguments and sizes

    def _parameters(self) -> None:
        """Two rounds (Relax, section 4.7): sizes that stand alone are stored on first sight, then everything else is compared."""
        later = []
        for i, (v, slot) in enumerate(zip(self.params, self.param_slots, strict=True)):
            self.objects[v.name] = ("argument", i)
            self.arrays[v.name] = slot
            match v.type:
                case Tensor(dtype=dtype, shape=shape):
                    later += self._parameter(v, slot, None if dtype is None else NUMPY_DTYPES[dtype], shape)
        for v in self.params:
            if isinstance(v.type, Tensor | Shape):
                self.addresses[v.name] = self.asm.slot(f"{v.name}.data")
        self._shapes()
        for v, axis, d in later:
            message = self._check("size", v, axis, str(d), self.function.name)
            kind, operand = (Match.IMMEDIATE, d) if isinstance(d, int) else (Match.SLOT, self.size(d))
            self.asm.match(self.arrays[v.name], axis, kind, operand, message)
        for v, slot in zip(self.params, self.param_slots, strict=True):
            if isinstance(v.type, Tensor):
                self.asm.data(self.addresses[v.name], slot)

    def _parameter(self, v: Var, slot: int, dtype, shape) -> list[tuple[Var, int, Dim]]:
        """The first round for one array; gives what has to wait for the second."""
        asm, later = self.asm, []
        message = self._check("array", v, -1, str(v.type), self.function.name)
        asm.array(slot, None if shape is None else len(shape), dtype, message)
        for axis, d in enumerate(shape or ()):
            if isinstance(d, int):
                asm.match(slot, axis, Match.IMMEDIATE, d, self._check("size", v, axis, str(d), self.function.name))
            elif d is not None and (name := bare_name(d)) and d not in self.sizes:
                self.sizes.bind(d, asm.slot(name))
                asm.match(slot, axis, Match.STORE, self.size(d), self._check("size", v, axis, str(d), self.function.name))
            elif d is not None:
                later.append((v, axis, d))
        return later

    def _shapes(self) -> None:
        """Shape parameters are int64 arrays: their entries are sizes, too."""
        self.shape_entries = []
        for v in self.params:
            if isinstance(v.type, Shape):
                message = self._check("array", v, -1, str(v.type), self.function.name)
                self.asm.array(self.arrays[v.name], 1, NUMPY_DTYPES["i64"], message)
                self.asm.data(self.addresses[v.name], self.arrays[v.name])
                entries = self._entries(Var(v.name, Shape(ndim=v.type.ndim)), v.type, self.function.name)
                self.shape_entries.append((v, entries))
        for v, entries in self.shape_entries:
            for d, slot in zip(v.type.values or (), entries, strict=False):
                if bare_name(d) is not None and d not in self.sizes:
                    self.sizes.bind(d, slot)

    def _guards(self) -> None:
        for v, entries in self.shape_entries:
            for i, (d, slot) in enumerate(zip(v.type.values or (), entries, strict=False)):
                if self.size(d) != slot:
                    self.asm.guard(Comparison.EQ, slot, self.size(d), self._check("size", v, i, str(d), self.function.name))
        for g in self.function.guards:
            message = self.table.check("guard", f"{g.left} {g.relation} {g.right}")
            self.asm.guard(COMPARISONS[g.relation], *(self.size(_in_range(d)) for d in (g.left, g.right)), message)

    def _sizes_of_calls(self) -> None:
        """Sizes and tile counts of every call whose sizes are known at entry."""
        for b in self.function.bindings:
            if isinstance(b.value, RunKernel) and all(names(d) <= self.entry_symbols for d in b.value.sizes):
                self.call_sizes(b.value)

    # ------------------------------------------------------------------ results

    def _returns(self) -> None:
        """The result against the type that the function declares for it."""
        result, declared = self.function.result, self.function.returns
        if declared is not None and isinstance(result, Var):
            self.match(result, declared, f"{self.function.name}: the result")

    def _result(self, r: Atom, known: dict[Var, tuple[int, ...]]) -> Result:
        if isinstance(r, Const):
            raise CodegenError(
                "a program's result must be a value, not a literal", "this is a mistake in a pass: name the literal with full()"
            )
        root = self.root(r.name)
        if isinstance(r.type, Callable) and root not in self.objects:
            self.table.called[root] = None
            return Result("function", 0, root, ())
        if isinstance(r.type, Shape):
            return Result("shape", 0, "i64", self._shape_slots(r))
        if root in self.output_of:
            return Result("output", self.output_of[root], r.type.dtype, known[r])
        kind, index = self.objects.get(root, ("value", 0))
        if kind == "value" and r.name in self.reshaped:
            return Result("view", index, r.type.dtype, tuple(map(self.size, r.type.shape)))
        return Result(kind, index, getattr(r.type, "dtype", None) or "", known.get(r, ()))

    def _shape_slots(self, r: Var) -> tuple[int, ...]:
        if r.type.values is not None:
            return tuple(map(self.size, r.type.values))
        return tuple(self._entries(r, r.type, f"{self.function.name}: the result"))


def _in_range(d: Dim) -> Dim:
    """A number to compare sizes with, cut to 64 bits: no size is that large anyway."""
    return max(-(2**63), min(d, 2**63 - 1)) if isinstance(d, int) else d

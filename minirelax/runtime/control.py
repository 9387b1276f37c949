"""Branches and loops in the instruction table: bodies are written in place, with jumps around them.

A body's results go where its caller says, as a kernel's do; its temporary memory is reserved once and kept; and a loop's
carried values are in one of two buffers each, which change roles after every round: no round allocates.

>>> from minirelax.ir.parser import parse
>>> from minirelax.runtime.build import build
>>> print(build(parse('''
... @kernel(pattern="elementwise")
... def positive(s: f32[n], out: bool[()], *, n):
...     out[()] = s[0] > 0.0
...
... @kernel(pattern="elementwise")
... def less(s: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = s[i] - 1.0
...
... @private
... def test(s: f32[n]) -> bool[()]:
...     v0: bool[()] = alloc_tensor()
...     run_kernel(positive, s, out=(v0,), sizes=(n,))
...     return v0
...
... @private
... def step(s: f32[n]) -> Tuple[f32[n]]:
...     v0: f32[n] = alloc_tensor()
...     run_kernel(less, s, out=(v0,), sizes=(n,))
...     v1: Tuple[f32[n]] = (v0,)
...     return v1
...
... def main(x: f32[n]) -> f32[n]:
...     v0: f32[n] = alloc_tensor()
...     v1: f32[n] = alloc_tensor()
...     run_while(test, step, (), (x,), out=(v0,), spare=(v1,))
...     return v0''')))
  0  ARRAY x 1d <f4 message 0
  7  MATCH x axis 0 store n message 1
 14  DATA x.data x
 18  ADD n + 15 15 n
 23  FLOORDIV (n + 15)//16 n + 15 16
 28  MUL 64*((n + 15)//16) (n + 15)//16 64
 33  PAUSE
 35  DATA v0.data v0.object
 39  ADDRESS v1.data arena 0
 44  MUL 4*n n 4
 49  COPY v0.data x.data 4*n
 54  MOVE v0.now v0.data
 58  MOVE v0.next v1.data
 62  PARALLEL cost=0 to 80 (1 calls)
 67  CALL positive_kernel tiles=1 cost=0 work=0 (v0.now, cell.address, error, error, n)
 80  END
 82  LOAD flag cell.address -1
 87  BRANCH flag to 146
 91  ADD n + 16383 16383 n
 96  FLOORDIV (n + 16383)//16384 n + 16383 16384
101  MUL 31*n n 31
106  FLOORDIV (31*n)//100 31*n 100
111  PARALLEL cost=(31*n)//100 to 129 (1 calls)
116  CALL less_kernel tiles=(n + 16383)//16384 cost=(31*n)//100 work=0 (v0.now, v0.next, error, error, n)
129  END
131  MOVE kept v0.now
135  MOVE v0.now v0.next
139  MOVE v0.next kept
143  JUMP to 62
146  COPY v0.data v0.now 4*n
151  RETURN
"""

from __future__ import annotations

from dataclasses import dataclass

from minirelax.errors import CodegenError
from minirelax.ir.dim import Dim, product
from minirelax.ir.graph import Atom, Const, RunCond, RunScan, RunWhile, Var
from minirelax.ir.lattice import Compatibility, bare_name, bind
from minirelax.ir.types import NUMPY_DTYPES, Callable, Shape, Tensor, Type, itemsize
from minirelax.runtime.built import Reserve, Source, leaves
from minirelax.runtime.frame import ZERO
from minirelax.runtime.instructions import Comparison
from minirelax.runtime.scope import Scope, Table


@dataclass(frozen=True)
class Given:
    """A value that a body takes over from its caller, who has evaluated its sizes: slots, None where they are unknown."""

    type: Type
    sizes: tuple[int | None, ...]
    address: int | None
    source: Source | None = None
    array: int | None = None


class Body(Scope):
    """A branch or a loop's body, written in place."""

    def __init__(self, table: Table, name: str, depth: int):
        super().__init__(table, table.module[name], depth)

    def run(self, given: list[Given], targets: list[int | None]) -> None:
        """Write the body: on these arguments, its results to the addresses in the slots `targets` (None: nowhere)."""
        params = [leaf for v in self.function.params for leaf in leaves(v)]
        known: dict[str, Dim] = {}
        for v, g in zip(params, given, strict=True):
            self._take(v, g)
            bind(v.type, g.type, known)
        for v, g in zip(params, given, strict=True):
            if bind(v.type, g.type, known) < Compatibility.PASS:
                self._compare(v, g)
        results = list(self.flat(self.function.result))
        copied = self._direct(results, targets)
        self.plan()
        self._reserve()
        self.statements()
        for at in copied:
            self._copy(results[at], targets[at])

    def unchanged(self, start: int, count: int) -> set[int]:
        """Which of `count` carried values, the parameters from `start` on, the body gives back as they came."""
        params = [leaf for v in self.function.params for leaf in leaves(v)][start:start + count]
        results = list(self.flat(self.function.result))[:count]
        return {i for i, (p, r) in enumerate(zip(params, results, strict=True))
                if self.root(r.name) == p.name and r.name not in self.reshaped}

    def _take(self, v: Var, g: Given) -> None:
        """Where a parameter is; names that stand alone in its type get the caller's slots."""
        if g.address is not None:
            self.addresses[v.name] = g.address
        if g.source is not None:
            self.objects[v.name] = g.source
        if g.array is not None:
            self.arrays[v.name] = g.array
        for d, slot in zip(_dims(v.type), g.sizes, strict=False):
            if slot is not None and d is not None and bare_name(d) and d not in self.sizes:
                self.sizes.bind(d, slot)

    def _compare(self, v: Var, g: Given) -> None:
        """What the argument's type leaves open about a parameter is looked at, and bound, at run time."""
        for axis, (d, slot) in enumerate(zip(_dims(v.type), g.sizes, strict=False)):
            if slot is not None and d is not None and self.size(d) != slot:
                message = self.table.check("size", v.name, axis, str(d), self.function.name)
                self.asm.guard(Comparison.EQ, slot, self.size(d), message)
        if None in g.sizes or (not g.sizes and _dims(v.type)):
            seen = g.type
            if g.sizes and isinstance(v.type, Tensor):
                dims = (None if slot is None else d for d, slot in zip(v.type.shape, g.sizes, strict=True))
                seen = Tensor(g.type.dtype, tuple(dims))
            self.match(Var(v.name, seen), v.type, self.function.name)

    def _direct(self, results: list[Atom], targets: list[int | None]) -> list[int]:
        """Let what is allocated for a result be its target.  Gives the results that have to be copied there."""
        mine, copied = self.allocated(), []
        for at, (leaf, target) in enumerate(zip(results, targets, strict=True)):
            root = self.root(leaf.name)
            if target is None:
                continue
            if root in mine and root not in self.output_of and leaf.name not in self.parts:
                self.output_of[root] = at
                self.addresses[root] = target
            else:
                copied.append(at)
        return copied

    def _reserve(self) -> None:
        if self.total == 0:
            return
        asm, needed = self.asm, self.size(self.total)
        base, capacity = self.table.chunk(self.depth)
        short, enough = asm.slot("short"), asm.label()
        asm.compare(Comparison.GT, short, needed, capacity)
        asm.branch_if_zero(short, enough)
        self.table.action(Reserve(needed, base, capacity))
        asm.place(enough)
        self.place_storages(base)

    def _copy(self, result: Var, target: int) -> None:
        self.asm.copy(target, self.address(result), self.bytes_of(result.type))


def emit_cond(scope: Scope, expr: RunCond) -> None:
    """A branch: both functions on the same arguments, with the same targets."""
    asm, given, targets = scope.asm, _given(scope, expr.args), [scope.address(o) for o in expr.out]
    otherwise, end = asm.label(), asm.label()
    flag = asm.slot("flag")
    asm.load(flag, scope.address(expr.condition), NUMPY_DTYPES["bool"])
    asm.branch_if_zero(flag, otherwise)
    Body(scope.table, expr.then, scope.depth + 1).run(given, targets)
    asm.jump(end)
    asm.place(otherwise)
    Body(scope.table, expr.otherwise, scope.depth + 1).run(given, targets)
    asm.place(end)


class _Carried:
    """The carried values of a loop: two buffers each, and the slots that say which is read and which is written."""

    def __init__(self, scope: Scope, init: tuple[Atom, ...], out: tuple[Var, ...], spare: tuple[Var, ...]):
        asm = self.asm = scope.asm
        self.out = [scope.address(o) for o in out]
        self.bytes = [scope.bytes_of(o.type) for o in out]
        self.now = [asm.slot(f"{o.name}.now") for o in out]
        self.next = [asm.slot(f"{o.name}.next") for o in out]
        for at, (start, other) in enumerate(zip(init, spare, strict=True)):
            asm.copy(self.out[at], scope.address(start), self.bytes[at])
            asm.move(self.now[at], self.out[at])
            asm.move(self.next[at], scope.address(other))
        self.given = [Given(o.type, tuple(map(scope.size, o.type.shape)), slot) for o, slot in zip(out, self.now, strict=True)]

    def round(self, body: Body, args: list[Given], slices: list[Given], written: list[int]) -> None:
        """Write one round: what it writes is read in the next one.  What it gives back as it came stays where it is."""
        fixed = body.unchanged(len(args), len(self.now))
        targets = [None if i in fixed else slot for i, slot in enumerate(self.next)]
        body.run([*args, *self.given, *slices], [*targets, *written])
        kept = self.asm.slot("kept")
        for i, (now, following) in enumerate(zip(self.now, self.next, strict=True)):
            if i not in fixed:
                self.asm.move(kept, now)
                self.asm.move(now, following)
                self.asm.move(following, kept)

    def finish(self) -> None:
        """The last values where the caller wants them."""
        for out, now, count in zip(self.out, self.now, self.bytes, strict=True):
            self.asm.copy(out, now, count)


def emit_while(scope: Scope, expr: RunWhile) -> None:
    """A loop: test, body, and back; an index out of range ends it, since what the test looks at then means nothing."""
    asm, table, args = scope.asm, scope.table, _given(scope, expr.args)
    carried = _Carried(scope, expr.init, expr.out, expr.spare)
    again, done, flag, cell = asm.label(), asm.label(), asm.slot("flag"), table.cell()
    asm.place(again)
    Body(table, expr.test, scope.depth + 1).run([*args, *carried.given], [cell])
    asm.load(flag, cell, NUMPY_DTYPES["bool"])
    asm.branch_if_zero(flag, done)
    if table.may_fail:
        failed, fine = asm.slot("failed"), asm.slot("fine")
        asm.load(failed, table.error, NUMPY_DTYPES["i64"])
        asm.compare(Comparison.EQ, fine, failed, ZERO)
        asm.branch_if_zero(fine, done)
    carried.round(Body(table, expr.body, scope.depth + 1), args, [], [])
    asm.jump(again)
    asm.place(done)
    carried.finish()


def emit_scan(scope: Scope, expr: RunScan) -> None:
    """A loop over slices: addresses that advance by the bytes of one slice."""
    asm, count = scope.asm, len(expr.init)
    args, length = _given(scope, expr.args), scope.size(expr.length)
    carried = _Carried(scope, expr.init, expr.out[:count], expr.spare)
    for x in expr.xs:
        if x.type.shape[0] != expr.length:
            message = scope.table.check("size", x.name, 0, str(expr.length), "scan")
            asm.guard(Comparison.EQ, scope.size(x.type.shape[0]), length, message)
    first = asm.slot("first")
    asm.sub(first, length, scope.size(1)) if expr.reverse else asm.move(first, scope.size(0))
    read = [_slices(scope, x, first, expr.reverse) for x in expr.xs]
    written = [_slices(scope, y, first, expr.reverse) for y in expr.out[count:]]
    slices = [_one_slice(scope, x.type, at) for x, (at, _) in zip(expr.xs, read, strict=True)]
    done, again, i, more = asm.label(), asm.label(), asm.slot("round"), asm.slot("more")
    one = scope.size(1)
    asm.move(i, scope.size(0))
    asm.place(again)
    asm.compare(Comparison.LT, more, i, length)
    asm.branch_if_zero(more, done)
    carried.round(Body(scope.table, expr.body, scope.depth + 1), args, slices, [at for at, _ in written])
    for at, step in (*read, *written):
        asm.address(at, at, step)
    asm.add(i, i, one)
    asm.jump(again)
    asm.place(done)
    carried.finish()


def _slices(scope: Scope, x: Var, first: int, reverse: bool) -> tuple[int, int]:
    """The slot of the address of the first slice that is visited, and that of the bytes to the next one."""
    asm, count = scope.asm, product(x.type.shape[1:]) * itemsize(x.type.dtype)
    step, offset, at = scope.size(-1 * count if reverse else count), asm.slot("offset"), asm.slot(f"{x.name}.slice")
    asm.mul(offset, first, scope.size(count))
    asm.address(at, scope.address(x), offset)
    return at, step


def _one_slice(scope: Scope, type_: Tensor, address: int) -> Given:
    """A slice of an array of this type, as the body's argument."""
    return Given(Tensor(type_.dtype, type_.shape[1:]), tuple(map(scope.size, type_.shape[1:])), address)


def _given(scope: Scope, args: tuple[Atom, ...]) -> list[Given]:
    """The arguments of a body, tuples taken apart, with their sizes evaluated before any jump."""
    return [_one(scope, leaf) for a in args for leaf in scope.flat(a)]


def _one(scope: Scope, v: Atom) -> Given:
    if isinstance(v, Const):
        raise CodegenError(f"the literal {v.value} is no value", "this is a mistake in a pass: name it with full()")
    root = scope.root(v.name)
    sizes = tuple(None if d is None else scope.size(d) for d in _dims(v.type))
    if isinstance(v.type, Callable) and root not in scope.objects:
        return Given(v.type, (), None, scope.source(v))
    held = root in scope.objects and v.name not in scope.reshaped
    address = scope.address(v) if v.name in scope.starts else scope.addresses.get(root)
    return Given(v.type, sizes, address, scope.objects[root] if held else None,
                 scope.arrays.get(root) if held else None)


def _dims(type_: Type) -> tuple:
    return (type_.shape if isinstance(type_, Tensor) else type_.values if isinstance(type_, Shape) else None) or ()


__all__ = ["Body", "Given", "emit_cond", "emit_scan", "emit_while"]

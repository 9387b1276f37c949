"""Say where results go: allocate, then run (destination-passing style).

``v = call_kernel(f, x)`` becomes ``v = alloc_tensor()`` and ``run_kernel(f, x, out=(v,))``: kernels never allocate, so that
memory can be planned.  Control flow likewise writes what the caller allocated: ``run_cond``, ``run_while`` (whose body
writes one of two buffers while it reads the other), ``run_scan``.  A library call, or control flow, whose result has a size
that only the data decides stays as it is, and so does a call of another function.  A kernel that
copies all elements in the same order (a reshape that nothing was fused with) becomes a `view`: no copy.

What a program returns is the caller's: a result that would share memory with an argument, a weight, a constant or another
result is copied (one that *is* an argument is left to the executable).

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... @kernel
... def exp(x: f32[n, 2], out: f32[n, 2], *, n):
...     for i in range(n):
...         for j in range(2):
...             out[i, j] = exp(x[i, j])
...
... @kernel
... def reshape(x: f32[n, 2], out: f32[2*n], *, n):
...     for i in range(2*n):
...         out[i] = x[i//2, i%2]
...
... def main(x: f32[n, 2]) -> f32[2*n]:
...     with dataflow():
...         v0: f32[n, 2] = call_kernel(exp, x, sizes=(n,))
...         v1: f32[2*n] = call_kernel(reshape, v0, sizes=(n,))
...         output(v1)
...     return v1''')
>>> print(lower_calls(before)["main"])
def main(x: f32[n, 2]) -> f32[2*n]:
    v0: f32[n, 2] = alloc_tensor()
    run_kernel(exp, x, out=(v0,), sizes=(n,))
    v1: f32[2*n] = view(v0)
    return v1
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

from minirelax.ir.dim import symbol
from minirelax.ir.graph import (
    AllocTensor,
    Atom,
    Binding,
    CallKernel,
    CallLibrary,
    Cond,
    Expr,
    Function,
    MakeTuple,
    MatchCast,
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
    fresh_names,
)
from minirelax.ir.tensor import lower_to_kernel
from minirelax.ir.types import Tensor, Tuple, is_known, symbols
from minirelax.passes.base import BIND
from minirelax.passes.eliminate_dead_code import drop_unused
from minirelax.passes.kernel_facts import is_flat_copy
from minirelax.passes.share_kernels import KernelTable


def lower_calls(module: Module) -> Module:
    """`module` in destination-passing style; kernels that became views are dropped."""
    kernels = {k.name: k for k in module.kernels}
    copies = functools.cache(lambda name: is_flat_copy(kernels[name]))
    table = functools.cache(lambda: KernelTable.of(module))  # only needed for copies, which are rare
    functions = tuple(f if f.name == BIND else _Lowering(f, module, copies, table).run() for f in module.functions)
    return drop_unused(
        replace(module, functions=functions, kernels=table().kernels if table.cache_info().currsize else module.kernels)
    )


class _Lowering:
    """The statements of one function."""

    def __init__(self, function: Function, module: Module, copies: Callable[[str], bool], table: Callable[[], KernelTable]):
        self.function, self.table = function, table
        self.names: Iterator[str] = fresh_names(function, module)
        self.definitions = {b.var: b for b in function.bindings if b.var is not None}
        self.outside = {*function.params, *function.bound, *(c.var for c in module.constants)}
        self.views = {
            b.var: b.value.args[0]
            for b in function.bindings
            if isinstance(b.value, CallKernel) and isinstance(b.var.type, Tensor) and copies(b.value.kernel)
        }
        self.items = self._tuple_items()
        self.returned: set[Var] = set()
        self.out: list[Binding] = []

    def run(self) -> Function:
        duplicates = self._separate_results()
        whole = {
            a
            for b in self.function.bindings
            for a in b.value.operands()
            if isinstance(a, Var) and isinstance(a.type, Tuple) and not isinstance(b.value, TupleItem)
        } | {self.function.result}
        for b in self.function.bindings:
            self._lower(b, whole, duplicates)
        return replace(self.function, body=tuple(self.out))

    def _lower(self, b: Binding, whole: set[Atom], duplicates: set[Var]) -> None:
        match b.value:
            case CallKernel(kernel=kernel, args=args, sizes=sizes):
                if b.var in self.views:
                    self._emit(b, b.var, View(args[0]))
                else:
                    out = self._allocate(b)
                    self._emit(b, None, RunKernel(kernel, args, out, sizes))
                    self._as_tuple(b, out, whole)
            case CallLibrary(routine=routine, args=args, options=options, sizes=sizes) if is_known(b.var.type):
                out = self._allocate(b)
                self._emit(b, None, RunLibrary(routine, args, out, options, sizes))
                self._as_tuple(b, out, whole)
            case Cond() | While() | Scan() if is_known(b.var.type):
                out = self._allocate(b)
                self._emit(b, None, self._control(b, out))
                self._as_tuple(b, out, whole)
            case TupleItem() if self.items.get((b.value.value, b.value.index)) == b.var:
                pass  # was allocated under this name
            case TupleItem(value=value, index=index) if (value, index) in self.items:
                self._emit(b, b.var, View(self.items[value, index]))
            case MakeTuple(items=items) if duplicates.intersection(items):
                self._emit(b, b.var, MakeTuple(tuple(self._first_or_copy(b, a) if a in duplicates else a for a in items)))
            case _:
                self.out.append(b)

    def _control(self, b: Binding, out: tuple[Var, ...]) -> Expr:
        """Control flow that writes `out`; carried values get a second buffer each."""
        match b.value:
            case Cond(condition=condition, then=then, otherwise=otherwise, args=args):
                return RunCond(condition, then, otherwise, args, out)
            case While(test=test, body=body, args=args, init=init):
                return RunWhile(test, body, args, init, out, self._spare(b, out))
            case Scan(body=body, args=args, init=init, xs=xs, length=length, reverse=reverse):
                return RunScan(body, args, init, xs, out, self._spare(b, out[:len(init)]), length, reverse)
        raise TypeError(type(b.value).__name__)

    def _spare(self, b: Binding, carried: tuple[Var, ...]) -> tuple[Var, ...]:
        spare = tuple(Var(next(self.names), v.type) for v in carried)
        for v in spare:
            self._emit(b, v, AllocTensor())
        return spare

    def _allocate(self, b: Binding) -> tuple[Var, ...]:
        types = b.var.type.items if isinstance(b.var.type, Tuple) else (b.var.type,)
        out = []
        for i, type_ in enumerate(types):
            var = self.items.get((b.var, i)) if isinstance(b.var.type, Tuple) else b.var
            if var is None:
                var = self.items[b.var, i] = Var(next(self.names), type_)
            out.append(var)
            self._emit(b, var, AllocTensor())
        return tuple(out)

    def _as_tuple(self, b: Binding, out: tuple[Var, ...], whole: set[Atom]) -> None:
        if isinstance(b.var.type, Tuple) and b.var in whole:
            self._emit(b, b.var, MakeTuple(out))

    def _first_or_copy(self, b: Binding, value: Var) -> Var:
        if value not in self.returned:
            self.returned.add(value)
            return value
        new = Var(next(self.names), value.type)
        taken = symbols(value.type) | {value.name}
        kernel = lower_to_kernel("copy", lambda k, x: x, (Var("x" if "x" not in taken else "x_", value.type),), frozenset(taken))
        self._emit(b, new, AllocTensor())
        kernel = replace(kernel, pattern="elementwise")
        self._emit(b, None, RunKernel(self.table().add(kernel), (value,), (new,), tuple(map(symbol, kernel.sizes))))
        return new

    def _emit(self, b: Binding, var: Var | None, value) -> None:
        self.out.append(Binding(var, value, b.source))

    def _tuple_items(self) -> dict[tuple[Var, int], Var]:
        """For tuples that become separate allocations, the first name that each item is given."""
        items: dict[tuple[Var, int], Var] = {}
        for b in self.function.bindings:
            if isinstance(b.value, TupleItem) and b.value.value in self.definitions:
                made = self.definitions[b.value.value]
                if isinstance(made.value, CallKernel | CallLibrary | Cond | While | Scan) and is_known(made.var.type):
                    items.setdefault((b.value.value, b.value.index), b.var)
        return items

    def _separate_results(self) -> set[Var]:
        """Keep the copy of a result that would share memory as a view.  Gives the results that are returned twice as they are."""
        results = [v for v in self._leaves(self.function.result) if isinstance(v, Var)]
        taken: set[Var] = set()
        for v in sorted(dict.fromkeys(results), key=lambda v: self._viewed(v) is not None):
            while (root := self._root(v)) in taken or (root in self.outside and root != v):
                nearest = self._viewed(v)
                if nearest is None:
                    break
                del self.views[nearest]
            taken.add(root)
        return {v for v in results if results.count(v) > 1 and v not in self.outside}

    def _leaves(self, atom: Atom) -> list[Atom]:
        made = self.definitions.get(atom)
        return (
            [leaf for a in made.value.items for leaf in self._leaves(a)] if made and isinstance(made.value, MakeTuple) else [atom]
        )

    def _viewed(self, v: Var) -> Var | None:
        """The nearest view on the way from a value to its memory."""
        while v not in self.views:
            made = self.definitions.get(v)
            if made is None or not isinstance(made.value, MatchCast):
                return None
            v = made.value.value
        return v

    def _root(self, v: Var) -> Var:
        """The value whose memory this is."""
        while True:
            made = self.definitions.get(v)
            if v in self.views:
                v = self.views[v]
            elif made is not None and isinstance(made.value, MatchCast):
                v = made.value.value
            else:
                return v

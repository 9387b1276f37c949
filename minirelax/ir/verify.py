"""What every module must be, checked after every pass.

1. A name is bound once in a function.  2. Every read is of an earlier name, with the type it was bound with.  3. A binding's
type is what `infer` gives.  4. A size is bound before it is used: by standing alone in a parameter's shape (or `Shape`) or in a
match_cast.  5. After a dataflow block only its outputs are read.  6. Calls fit what they call.  7. A dataflow block has no
effects and no control flow.  8. A result can be what the function declares.  9. A statement writes each of its outputs once and
reads none of them (but over an input that a kernel declares: then that is not read any more), and a tensor is not read once
another one lives in its storage.  10. Kernels are well formed
(`verify_kernel`), and there is a public function.

>>> from minirelax.ir.parser import parse
>>> verify(parse('''
... def main(x: f32[n]) -> f32[k]:
...     with dataflow():
...         v0: f32[k] = match_cast(x, f32[m])
...         output(v0)
...     return v0'''))
Traceback (most recent call last):
minirelax.errors.VerifyError: v0 is declared f32[k], but its value has type f32[m]
  at main: v0: f32[k] = match_cast(x, f32[m])
"""
from __future__ import annotations

import functools
from collections.abc import Callable

from minirelax.errors import CompileError, VerifyError
from minirelax.ir.dim import Dim, less_equal, names, product
from minirelax.ir.graph import (
    Alias,
    AllocStorage,
    AllocTensor,
    Atom,
    Binding,
    CallKernel,
    Cond,
    Dataflow,
    Expr,
    Function,
    Heap,
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
from minirelax.ir.infer import (
    binding_sizes,
    bound_sizes,
    check_buffers,
    infer_binding,
    infer_op,
    kernel_sizes,
    mentioned,
    mentioned_names,
)
from minirelax.ir.knowledge import Knowledge
from minirelax.ir.lattice import Compatibility, compatibility
from minirelax.ir.library import library_op
from minirelax.ir.loop import Kernel
from minirelax.ir.printer import print_binding, print_guard
from minirelax.ir.types import LINE, Object, Shape, Storage, Tensor, Tuple, Type, itemsize, whole_lines
from minirelax.ir.verify_kernel import is_name, verify_kernel

CONTROL = (Cond, While, Scan)
EFFECTS = (RunKernel, RunLibrary, RunCond, RunWhile, RunScan, Heap, MatchShape)      # bindings without a variable
NOT_DATAFLOW = (*EFFECTS, AllocStorage, AllocTensor)               # memory has an identity: two allocations are never one


def verify(module: Module) -> None:
    """Raises VerifyError, with the line of IR, if the module breaks an invariant."""
    seen: set[str] = set()
    for name in (*(c.name for c in module.constants), *(k.name for k in module.kernels), *(f.name for f in module.functions)):
        if name in seen:
            raise VerifyError(f"{name} is defined twice in the module", where="")
        if not is_name(name):
            raise VerifyError(f"{name!r} cannot be a name", where="")
        seen.add(name)
    if module.functions and all(f.private for f in module.functions):
        raise VerifyError("the module has no public function", "a call of the program runs the first one", where="")
    for kernel in module.kernels:
        verify_kernel(kernel)
    for function in module.functions:
        _Verifier(module, function).run()


class _Verifier:
    """One function: `scope` is what can be read now, `bound` every name so far, `sizes` the known sizes."""

    def __init__(self, module: Module, function: Function):
        self.module, self.function = module, function
        self.scope: dict[str, Var] = {c.name: c.var for c in module.constants}
        self.bound: set[str] = set(self.scope)
        self.functions = {f.name: f for f in module.functions}
        self.sizes: set[str] = set()
        self.homes: dict[str, frozenset[str]] = {}          # a value -> the tensors in planned memory that it may be
        self.tenants: dict[str, list[tuple[str, Dim, Dim]]] = {}     # a storage -> who lives there now, from and to which byte
        self.evicted: dict[str, str] = {}                   # a tensor that has lost its memory -> who lives there now
        self.overwritten: dict[str, str] = {}               # a value that another one was written over -> that one
        self.at: Binding | str = f"def {function.name}(...)"

    def fail(self, what: str, hint: str = "") -> None:
        line = self.at if isinstance(self.at, str) else print_binding(self.at)
        raise VerifyError(what, hint, where=f"{self.function.name}: {line}")

    def run(self) -> None:
        function = self.function
        for v in (*function.params, *function.bound):
            self._bind(v)
            self.sizes |= bound_sizes(v.type)
        for v in (*function.params, *function.bound):
            self._check_sizes(v.type, f"the type of {v.name}")
        for guard in function.guards:
            self.at = print_guard(guard)
            self._check_sizes((guard.left, guard.right), "the guard")
        for part in function.body:
            if isinstance(part, Dataflow):
                self._check_block(part)
            else:
                self._check_binding(part)
        self.at = f"return {getattr(function.result, 'name', function.result)}"
        self._read(function.result)
        self._check_returns(function)

    def _check_returns(self, function: Function) -> None:
        if function.returns is None:
            return
        self._check_sizes(function.returns, "the declared result type")
        if compatibility(function.returns, function.result.type) is Compatibility.DISJOINT:
            self.fail(f"a value of type {function.result.type} is never {function.returns}, as the function declares")

    def _check_block(self, block: Dataflow) -> None:
        outside = dict(self.scope)
        for binding in block.bindings:
            if isinstance(binding.value, NOT_DATAFLOW):
                self.at = binding
                self.fail("an effect inside a dataflow block", "effects stand outside, as statements of the function")
            if isinstance(binding.value, CONTROL):
                self.at = binding
                self.fail("control flow inside a dataflow block", "end the block before it, and begin another one after it")
            self._check_binding(binding)
        self.at = f"output({', '.join(v.name for v in block.outputs)})"
        for v in block.outputs:
            self._read(v)
            if v.name in outside:
                self.fail(f"{v.name} is not bound in this block")
            outside[v.name] = v
        self.scope = outside

    def _check_binding(self, binding: Binding) -> None:
        self.at, value = binding, binding.value
        for atom in value.operands():
            self._read(atom)
        if (binding.var is None) != isinstance(value, EFFECTS):
            self.fail("an effect has no value" if binding.var else "the value is bound to no name")
        new = binding_sizes(value)
        self.sizes |= new
        for name, attribute in value.attributes().items():
            self._check_sizes(attribute, name)
        if binding.var is None:
            self._check_effect(value)
            return self._check_written(value)
        self._check_type(binding.var, value)
        self._settle(binding.var, value)
        self._check_sizes(binding.var.type, f"the type of {binding.var.name}")
        self._bind(binding.var)

    def _settle(self, var: Var, value: Expr) -> None:
        """Note where a value lives: a tensor moves into its storage; what shows others is where they are."""
        match value:
            case AllocTensor(storage=()):
                self.homes[var.name] = frozenset((var.name,))
            case AllocTensor(storage=(Var(name=storage),), offset=offset):
                self.homes[var.name] = frozenset((var.name,))
                here = offset, offset + whole_lines(product(var.type.shape) * itemsize(var.type.dtype))
                stay = []
                for tenant in self.tenants.get(storage, ()):
                    if self._apart(here, tenant[1:]):
                        stay.append(tenant)
                    else:
                        self.evicted[tenant[0]] = var.name
                self.tenants[storage] = [*stay, (var.name, *here)]
            case View() | MatchCast() | Alias() | MakeTuple() | TupleItem():
                found = [self.homes[a.name] for a in value.operands() if isinstance(a, Var) and a.name in self.homes]
                if found:
                    self.homes[var.name] = frozenset().union(*found)

    def _apart(self, here: tuple[Dim, Dim], there: tuple[Dim, Dim]) -> bool:
        """Have two pieces of a storage no byte in common?  Those at different numbers are apart by the plan's bounds."""
        if here[0] == here[1] or there[0] == there[1]:  # one has no byte at all
            return True
        if here[0] == there[0]:
            return False
        if isinstance(here[0], int) and isinstance(there[0], int):
            first, second = sorted((here, there), key=lambda piece: piece[0])
            return not self.known.shows(">", first[1], second[0])
        return any(self.known.may_be_less_equal(a[1], b[0], self._named) and self.known.less_equal(a[1], b[0])
                   for a, b in ((here, there), (there, here)))

    @functools.cached_property
    def _named(self) -> frozenset[str]:
        """The sizes that offsets in storages and tensors there are made of."""
        placed = [b for b in self.function.bindings if isinstance(b.value, AllocTensor) and isinstance(b.var.type, Tensor)]
        sizes = (d for b in placed for d in (b.value.offset, *(b.var.type.shape or ())) if d is not None)
        return frozenset().union(*map(names, sizes))

    @functools.cached_property
    def known(self) -> Knowledge:
        """What the function's parameters and guards say of sizes."""
        return Knowledge.of(self.function)

    def _check_type(self, var: Var, value: Expr) -> None:
        if isinstance(value, CallKernel) and getattr(self.module._by_name.get(value.kernel), "in_place", ()):
            self.fail(f"{value.kernel} works in place, and a call has new memory for its results", "run_kernel says where")
        inferred = self._inferred(lambda: infer_binding(value, self.module))
        if isinstance(inferred, Object) and isinstance(value, View | AllocTensor):
            self._check_memory(var.type, value)
        elif not isinstance(inferred, Object) and var.type != inferred:
            self.fail(f"{var.name} is declared {var.type}, but its value has type {inferred}")

    def _inferred(self, infer) -> Type:
        """What `infer` returns; its errors become errors about this line."""
        try:
            return infer()
        except CompileError as e:
            return self.fail(e.what, e.hint)
        except (TypeError, ValueError, AttributeError, IndexError, KeyError) as e:       # a rule took its operands for granted
            return self.fail(f"no type can be given to this: {type(e).__name__}: {e}")

    def _check_memory(self, type_: Type, value: View | AllocTensor) -> None:
        if not isinstance(type_, Tensor) or type_.shape is None or None in type_.shape:
            return self.fail(f"memory for a value of type {type_} cannot be known")
        if isinstance(value, View):
            given = value.value.type
            unknown = not isinstance(given, Tensor) or given.shape is None or None in given.shape
            if unknown or given.dtype != type_.dtype or not self._inside(value.offset, type_.shape, given.shape):
                where = "" if value.offset == 0 else f" from element {value.offset} on"
                self.fail(f"a value of type {given} cannot be seen as {type_}{where}",
                          "a view has the same dtype, and no elements but those of the value")
        for storage in getattr(value, "storage", ()):
            needed = value.offset + product(type_.shape) * itemsize(type_.dtype)
            if isinstance(value.offset, int) and value.offset % LINE:
                self.fail(f"a tensor cannot start at byte {value.offset}", "offsets are multiples of 64, a cache line")
            if not isinstance(storage.type, Storage) or less_equal(storage.type.bytes + 1, needed):
                self.fail(f"a tensor of {needed} bytes does not fit into {storage.type}")

    def _inside(self, offset: Dim, part: tuple[Dim, ...], whole: tuple[Dim, ...]) -> bool:
        """Are the elements from `offset` on, as many as `part` has, among those of `whole`?"""
        count, all_ = product(part), product(whole)
        return offset == 0 and count == all_ or less_equal(0, offset) and less_equal(offset + count, all_)

    def _check_written(self, value: Expr) -> None:
        """No output is written twice, or read by the statement that writes it, unless a kernel is made for that."""
        places = (getattr(value, part, ()) for part in ("out", "spare", "work"))
        written = [v.name for part in places for v in part if isinstance(v, Var)]
        others = [a.name for a in value.operands() if isinstance(a, Var)]
        in_place = self._written_in_place(value)
        for name in written:
            if written.count(name) > 1:
                self.fail(f"{name} is written twice by one statement", "give each output memory of its own")
            if others.count(name) > 1:
                self.fail(f"{name} is read by the statement that writes it", "allocate another tensor for the output")
        for name in written:
            home = self.homes.get(name, frozenset())
            for other in others:
                if other != name and (other, name) not in in_place and home & self.homes.get(other, frozenset()):
                    what = f"{name} is written where {other} is read by the same statement"
                    self.fail(what, "allocate another tensor for the output")
            self.overwritten.pop(name, None)
        for given, out in in_place:
            home = self.homes.get(out, frozenset())
            if len(home) != 1 or self.homes.get(given) != home:
                self.fail(f"{out} is not where {given} is, which it is written over", f"make it a view: {out} = view({given})")
            self.overwritten.update((n, out) for n, there in self.homes.items() if n != out and there & home)

    def _written_in_place(self, value: Expr) -> list[tuple[str, str]]:
        """The pairs (argument, output) that a kernel has as one memory."""
        if not isinstance(value, RunKernel):
            return []
        kernel = self.module[value.kernel]
        names = {v.name: a.name for v, a in zip((*kernel.inputs, *kernel.outputs), (*value.args, *value.out), strict=True)
                 if isinstance(a, Var)}
        return [(names.get(x, ""), names[out]) for x, out in kernel.in_place]

    def _check_effect(self, value: Expr) -> None:
        match value:
            case RunKernel(kernel=name, args=args, out=out, sizes=sizes, work=work):
                self._check_workspace(work, lambda t: t.dtype == "u8" and len(t.shape) == 2 and isinstance(t.shape[0], int),
                                      "a workspace has one row of bytes per thread: u8[2, 4096]")
                kernel = self.module._by_name.get(name)
                if not isinstance(kernel, Kernel):
                    self.fail(f"there is no kernel {name}")
                self._inferred(lambda: [check_buffers(name, params, given, kernel_sizes(kernel, sizes))
                                        for params, given in ((kernel.inputs, args), (kernel.outputs, out))])
            case RunCond(condition=c, then=a, otherwise=b, args=args, out=out):
                self._check_outputs(self._inferred(lambda: infer_binding(Cond(c, a, b, args), self.module)), out)
            case RunWhile(test=test, body=body, args=args, init=init, out=out, spare=spare):
                made = self._inferred(lambda: infer_binding(While(test, body, args, init), self.module))
                self._check_outputs(made, out)
                self._check_outputs(made, spare)
            case RunScan(body=body, args=args, init=init, xs=xs, out=out, spare=spare, length=length):
                made = self._inferred(lambda: infer_binding(Scan(body, args, init, xs, length), self.module))
                self._check_outputs(made, out)
                self._check_outputs(Tuple(made.items[:len(init)]), spare)
            case RunLibrary(out=out, work=work):
                self._check_workspace(work, lambda t: not library_op(value), "a registered routine has one at most: work=(v0,)")
                if op := library_op(value):
                    self._check_outputs(self._inferred(lambda: infer_op(op)), out)
            case MatchShape(value=v, pattern=pattern):
                rank = v.type.ndim if isinstance(v.type, Tensor | Shape) else -1
                if rank is not None and rank != len(pattern):
                    self.fail(f"a value of type {v.type} is matched with {len(pattern)} sizes")

    def _check_workspace(self, work: tuple[Atom, ...], fits: Callable[[Tensor], bool], hint: str) -> None:
        """At most one, a tensor of known dtype and sizes that `fits`."""
        match work:
            case ():
                return
            case (Var(type=Tensor(dtype=str(), shape=tuple(shape)) as type_),) if None not in shape and fits(type_):
                return
        shown = ", ".join(f"{a}: {a.type}" for a in work)
        self.fail(f"({shown}) is no workspace", hint)

    def _check_outputs(self, made: Type, out: tuple[Atom, ...]) -> None:
        if getattr(made, "items", (made,)) != tuple(o.type for o in out):
            self.fail(f"the result has type {made}, not that of the outputs")

    def _read(self, atom) -> None:
        if isinstance(atom, Var):
            known = self.scope.get(atom.name)
            if known is None and atom.name in self.functions:
                known = self.functions[atom.name].var
            if known is None:
                hint = "after a dataflow block only its outputs can be read" if atom.name in self.bound else ""
                self.fail(f"{atom.name} is read, but not bound before", hint)
            if known is not atom and known.type != atom.type:
                self.fail(f"{atom.name} is read with type {atom.type}, but was bound with {known.type}")
            if over := self.overwritten.get(atom.name):
                self.fail(f"{atom.name} is read, but {over} was written over it", "what is read later needs memory of its own")
            for tensor in self.homes.get(atom.name, ()):
                if tenant := self.evicted.get(tensor):
                    self.fail(f"{atom.name} is read, but {tenant} lives in its storage by now",
                              "a storage is free after the last read of the tensor in it, through any view")

    def _bind(self, var: Var) -> None:
        if var.name in self.bound:
            self.fail(f"{var.name} is bound twice")
        if not is_name(var.name):
            self.fail(f"{var.name!r} cannot be a name")
        self.bound.add(var.name)
        self.scope[var.name] = var

    def _check_sizes(self, thing: object, what: str) -> None:
        if mentioned_names(thing) <= self.sizes:
            return
        for name in mentioned(thing):
            if name not in self.sizes:
                self.fail(f"{what} mentions the size {name}, which is not known here",
                          "a size is known once it stands alone in a parameter's shape or in a match_cast")

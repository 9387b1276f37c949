"""Store the weights of matrix products as panels of columns, once per binding.

A contraction reads its right operand ``w[k, j]`` along `j` in steps of a register tile; as ``w_packed[j//W, k, j%W]`` those
reads follow each other in memory.  That costs a copy, so it pays where the copy is made once: for bound parameters,
packed in the function ``bind``, and for constants, packed now.  The kernel and its calls are rewritten together; it
computes the same sums of the same products.  A weight that is read as it was elsewhere stays as well.

The functions of loops and branches get weights as arguments, the same in each round, and panels in the same way, in place of a
weight that they read no more.  A function that several loops or branches share keeps its weights as they are.

>>> from minirelax.ir.parser import parse
>>> module = parse('''
... @kernel(pattern="contraction")
... def matmul(x: f32[n, 8], w: f32[8, 48], out: f32[n, 48], *, n):
...     for i in range(n):
...         for j in range(48):
...             out[i, j] = 0.0
...             for k in range(8):
...                 out[i, j] += x[i, k] * w[k, j]
...
... def main(x: f32[n, 8], *, w: f32[8, 48]) -> f32[n, 48]:
...     with dataflow():
...         v0: f32[n, 48] = call_kernel(matmul, x, w, sizes=(n,))
...         output(v0)
...     return v0''')
>>> print(pack_weights()(module))
@kernel(pattern="contraction")
def matmul(x: f32[n, 8], w_packed: f32[2, 8, 32], out: f32[n, 48], *, n):
    for i in range(n):
        for j in range(48):
            out[i, j] = 0.0
            for k in range(8):
                out[i, j] += x[i, k] * w_packed[j//32, k, j%32]
<BLANKLINE>
def main(x: f32[n, 8], *, w_packed: f32[2, 8, 32]) -> f32[n, 48]:
    with dataflow():
        v0: f32[n, 48] = call_kernel(matmul, x, w_packed, sizes=(n,))
        output(v0)
    return v0
<BLANKLINE>
def bind(w: f32[8, 48]) -> Tuple[f32[2, 8, 32]]:
    with dataflow():
        w_packed: f32[2, 8, 32] = pack_panels(w, width=32, transposed=False)
        v0: Tuple[f32[2, 8, 32]] = (w_packed,)
        output(v0)
    return v0
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from minirelax.ir.dim import floordiv, mod, symbol
from minirelax.ir.graph import (
    Array,
    Atom,
    Binding,
    CallKernel,
    Cond,
    Constant,
    Dataflow,
    Function,
    MakeTuple,
    Module,
    Scan,
    Var,
    While,
    called_functions,
    map_blocks,
)
from minirelax.ir.loop import Block, Kernel
from minirelax.ir.scalar import Load, Scalar, load, transform
from minirelax.ir.types import Tensor
from minirelax.ops.panels import PackPanels
from minirelax.passes.annotate_patterns import contraction_factors
from minirelax.passes.base import BIND, Pass, entry, with_function
from minirelax.passes.bind_parameters import bind_function
from minirelax.passes.eliminate_dead_code import drop_unused
from minirelax.passes.hoist_invariants import functions_read
from minirelax.passes.share_kernels import KernelTable, unique

WIDTHS = {"f32": 32, "f64": 16}  # columns of a panel, where the schedule does not say
LEAST_INNER = 8  # a shorter sum is not worth a copy of its weights


def pack_weights(width: Callable[[str], int] = WIDTHS.__getitem__) -> Pass:
    """The pass; `width` gives the columns of a panel for a dtype (f32 or f64)."""

    def pack(module: Module) -> Module:
        return _Packing(module, width).run()

    pack.__name__, pack.__doc__ = "pack_weights", pack_weights.__doc__
    return pack


def packable_inputs(kernel: Kernel) -> dict[int, bool]:
    """The inputs, by position, that only a contraction reads, as a matrix ``[k, j]`` (False) or ``[j, k]`` (True: transposed)."""
    found: dict[int, bool] = {}
    for block in kernel.blocks:
        factors = contraction_factors(block) if len(block.over) == 1 and block.axes else None
        for read in (f for f in factors or () if isinstance(f, Load)):
            position = next((p for p, v in enumerate(kernel.inputs) if v.name == read.buffer), None)
            k, j = symbol(block.over[0].name), symbol(block.axes[-1].name)
            if (
                position is not None
                and read.indices in ((k, j), (j, k))
                and sum(read.buffer == s.buffer for b in kernel.blocks for s in b.loads) == 1
            ):
                found[position] = read.indices == (j, k)
    return found


def with_packed_input(kernel: Kernel, position: int, transposed: bool, type_: Tensor) -> Kernel:
    """The kernel reading panels of this type in place of the matrix at `position`."""
    old = kernel.inputs[position]
    new = Var(unique(f"{old.name}_packed", {*kernel.buffers, *kernel.sizes}), type_)
    width = type_.shape[-1]

    def panel(s: Scalar) -> Scalar:
        if not (isinstance(s, Load) and s.buffer == old.name):
            return s
        k, j = reversed(s.indices) if transposed else s.indices
        return load(new.name, (floordiv(j, width), k, mod(j, width)), s.dtype)

    def rewritten(block: Block) -> Block:
        return replace(block, value=transform(block.value, panel))

    inputs = tuple(new if p == position else v for p, v in enumerate(kernel.inputs))
    return replace(kernel, inputs=inputs, blocks=tuple(map(rewritten, kernel.blocks)))


class _Panels(dict[tuple[Var, bool], Var]):
    """By weight, and whether it is transposed: the value of one function that holds its panels."""

    def __init__(self, function: Function):
        super().__init__()
        self.taken = {v.name for v in (*function.params, *function.bound)} | {b.var.name for b in function.bindings if b.var}


class _Packing:
    """What has been packed so far, for one module."""

    def __init__(self, module: Module, width: Callable[[str], int]):
        self.module, self.width, self.main = module, width, entry(module)
        self.kernels = {k.name: k for k in module.kernels}
        self.functions = {f.name: f for f in module.functions}
        self.calls = Counter(n for f in module.functions for n in functions_read(f, self.functions))
        self.positions = functools.cache(lambda name: packable_inputs(self.kernels[name]))
        self.constants = {c.var: c.array for c in module.constants}
        self.made = _Panels(self.main)
        self.new_kernels: dict[tuple, Kernel] = {}
        self.names = {v.name for v in self.constants}  # which all functions see
        self.taken = self.names.union(*(_Panels(f).taken for f in module.functions))

    def run(self) -> Module:
        weights = {v: v for v in (*self.main.bound, *self.constants)}
        self.functions[self.main.name] = self._function(self.main, weights, self.made)
        if not self.made:
            return self.module
        functions = tuple(self.functions.values())
        called = {b.value.kernel for f in functions for b in f.bindings if isinstance(b.value, CallKernel)}
        module = replace(self.module, functions=functions, constants=(*self.module.constants, *self._new_constants()))
        module = self._with_bind(module)
        return drop_unused(self._with_kernels(module, called))

    def _function(self, function: Function, weights: dict[Atom, Var], panels: _Panels) -> Function:
        """The function on panels, which are added to `panels`; `weights` are those of its values that are weights of `main`."""
        body: list[Dataflow | Binding] = []
        for part in function.body:
            if isinstance(part, Dataflow):
                part = replace(part, bindings=tuple(self._binding(b, weights, panels) for b in part.bindings))
            elif isinstance(part.value, Cond | While | Scan):
                part = self._control(part, weights, panels)
            body.append(part)
        return replace(function, body=tuple(body))

    def _control(self, binding: Binding, weights: dict[Atom, Var], panels: _Panels) -> Binding:
        """A loop or a branch, if it passes weights to functions of its own, with their panels as further arguments."""
        args, names = binding.value.args, called_functions(binding.value)
        if any(self.calls[n] > 1 or not self.functions[n].private for n in names):
            return binding
        inner: list[tuple[Function, _Panels]] = []
        for f in map(self.functions.__getitem__, names):
            own = {p: weights[a] for p, a in zip(f.params, args, strict=False) if a in weights and a.type == p.type}
            made = _Panels(f)
            inner.append((self._function(f, own | {c: c for c in self.constants}, made), made))
        made_inside = dict.fromkeys(key for _, made in inner for key in made)
        more = [key for key in made_inside if key[0] not in self.constants]
        for key in made_inside:
            self._panels(key, panels)
        packed = {weight for weight, _ in more}
        unread = [i for i, a in enumerate(args) if weights.get(a) in packed and not any(_needs(f, i, a) for f, _ in inner)]
        for name, (f, made) in zip(names, inner, strict=True):
            new = tuple(self._panels(key, made) for key in more)
            kept = tuple(p for i, p in enumerate(f.params[: len(args)]) if i not in unread)
            self.functions[name] = replace(f, params=(*kept, *new, *f.params[len(args) :]))
        kept = tuple(a for i, a in enumerate(args) if i not in unread)
        return replace(binding, value=replace(binding.value, args=(*kept, *(panels[key] for key in more))))

    def _binding(self, binding: Binding, weights: dict[Atom, Var], panels: _Panels) -> Binding:
        call = binding.value
        if not isinstance(call, CallKernel):
            return binding
        kernel, args = self.kernels[call.kernel], list(call.args)
        todo = [(p, t) for p, t in self.positions(call.kernel).items() if self._is_worth_packing(weights.get(args[p]), t)]
        if not todo:
            return binding
        key = (call.kernel, tuple((p, t, weights[args[p]].type) for p, t in todo))
        for p, transposed in todo:
            args[p] = self._panels((weights[args[p]], transposed), panels)
            if key not in self.new_kernels:
                kernel = with_packed_input(kernel, p, transposed, args[p].type)
        kernel = self.new_kernels.setdefault(key, kernel)
        return replace(binding, value=CallKernel(_placeholder(key), tuple(args), call.sizes))

    def _is_worth_packing(self, weight: Var | None, transposed: bool) -> bool:
        if weight is None:
            return False
        shape = weight.type.shape
        if weight.type.dtype not in WIDTHS or len(shape) != 2 or not all(isinstance(d, int) for d in shape):
            return False
        inner, columns = reversed(shape) if transposed else shape
        return inner >= LEAST_INNER and 2 * columns >= self.width(weight.type.dtype)

    def _panels(self, key: tuple[Var, bool], panels: _Panels) -> Var:
        """The value with the panels of a weight in the function that `panels` belong to: a constant is everywhere."""
        weight, transposed = key
        is_constant = weight in self.constants
        if key not in panels and is_constant and panels is not self.made:
            panels[key] = self._panels(key, self.made)
        if key not in panels:
            name = unique(f"{weight.name}_packed", self.taken if is_constant else panels.taken | self.names)
            panels[key] = Var(name, self._op(weight, transposed).infer(weight.type))
            panels.taken.add(name)
            self.taken.add(name)
            self.names |= {name} if is_constant else set()
        return panels[key]

    def _op(self, weight: Atom, transposed: bool) -> PackPanels:
        return PackPanels(weight, self.width(weight.type.dtype), transposed)

    def _new_constants(self) -> tuple[Constant, ...]:
        return tuple(
            Constant(new.name, Array(self._op(w, t).numpy(self.constants[w].value)))
            for (w, t), new in self.made.items()
            if w in self.constants
        )

    def _with_kernels(self, module: Module, called: set[str]) -> Module:
        """Give the new kernels their names: that of the old one, if it is called no more."""
        table = KernelTable((k for k in module.kernels if k.name in called), (f.name for f in module.functions))
        names = {_placeholder(key): table.add(k) for key, k in self.new_kernels.items()}

        def renamed(binding: Binding) -> Binding:
            call = binding.value
            return (
                replace(binding, value=replace(call, kernel=names[call.kernel]))
                if isinstance(call, CallKernel) and call.kernel in names
                else binding
            )

        def with_names(function: Function) -> Function:
            return map_blocks(function, lambda block: replace(block, bindings=tuple(map(renamed, block.bindings))))

        return replace(module, functions=tuple(map(with_names, module.functions)), kernels=table.kernels)

    def _with_bind(self, module: Module) -> Module:
        """Make ``bind`` compute the panels, and `main` take them for those weights that it no longer reads."""
        main = entry(module)
        packed = {new: key for key, new in self.made.items() if key[0] not in self.constants}
        if not packed:
            return module
        read = {a for b in main.bindings for a in b.value.operands()} | {main.result}
        bound = (*(v for v in main.bound if v in read), *packed)
        bind = next((f for f in module.functions if f.name == BIND), None)
        old = bind or bind_function(main.bound, (), main.bound)
        module = with_function(module, replace(main, bound=bound))
        new = self._bind(old, self.main.bound, bound, packed)
        return with_function(module, new) if bind else replace(module, functions=(*module.functions, new))

    def _bind(
        self, bind: Function, old_bound: tuple[Var, ...], bound: tuple[Var, ...], packed: dict[Var, tuple[Var, bool]]
    ) -> Function:
        *before, last = bind.bindings
        value_of = dict(zip(old_bound, last.value.items if isinstance(last.value, MakeTuple) else (), strict=True))
        made = [Binding(new, self._op(value_of[w], transposed)) for new, (w, transposed) in packed.items()]
        return bind_function(bind.params, (*before, *made), tuple(value_of.get(v, v) for v in bound))


def _needs(function: Function, at: int, weight: Atom) -> bool:
    """Does the function read a weight that it is given, or know sizes by it?"""
    param = function.params[at]
    read = param == function.result or any(param in b.value.operands() for b in function.bindings)
    return read or param.type != weight.type


def _placeholder(key: tuple) -> str:
    """What a kernel on panels is called until it is known which names are free."""
    return f"{key[0]}/{key[1:]}"

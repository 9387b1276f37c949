"""Store the weights of matrix products as panels of columns, once per binding.

A contraction reads its right operand ``w[k, j]`` along `j` in steps of a register tile; as ``w_packed[j//W, k, j%W]`` those
reads follow each other in memory.  That costs a copy, so it pays where the copy is made once: for bound parameters,
packed in the function ``bind``, and for constants, packed now.  The kernel and its calls are rewritten together; it
computes the same sums of the same products.  A weight that is read as it was elsewhere stays as well.

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
from collections.abc import Callable
from dataclasses import replace

from minirelax.ir.dim import floordiv, mod, symbol
from minirelax.ir.graph import Array, Atom, Binding, CallKernel, Constant, Function, MakeTuple, Module, Var, map_blocks
from minirelax.ir.loop import Block, Kernel
from minirelax.ir.scalar import Load, Scalar, load, transform
from minirelax.ir.types import Tensor
from minirelax.ops.panels import PackPanels
from minirelax.passes.annotate_patterns import contraction_factors
from minirelax.passes.base import BIND, Pass, entry, with_function
from minirelax.passes.bind_parameters import bind_function
from minirelax.passes.eliminate_dead_code import drop_unused
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


class _Packing:
    """What has been packed so far, for one module."""

    def __init__(self, module: Module, width: Callable[[str], int]):
        self.module, self.width, self.main = module, width, entry(module)
        self.kernels = {k.name: k for k in module.kernels}
        self.positions = functools.cache(lambda name: packable_inputs(self.kernels[name]))
        self.constants = {c.var: c.array for c in module.constants}
        self.made: dict[tuple[Var, bool], Var] = {}
        self.new_kernels: dict[tuple, Kernel] = {}
        self.taken = {v.name for v in (*self.main.params, *self.main.bound, *self.constants)} | {
            b.var.name for f in module.functions for b in f.bindings if b.var
        }

    def run(self) -> Module:
        main = map_blocks(self.main, lambda block: replace(block, bindings=tuple(map(self._binding, block.bindings))))
        if not self.made:
            return self.module
        others = (f for f in self.module.functions if f.name != main.name)
        called = {b.value.kernel for f in (main, *others) for b in f.bindings if isinstance(b.value, CallKernel)}
        module = replace(with_function(self.module, main), constants=(*self.module.constants, *self._new_constants()))
        module = self._with_bind(module)
        return drop_unused(self._with_kernels(module, called))

    def _binding(self, binding: Binding) -> Binding:
        call = binding.value
        if not isinstance(call, CallKernel):
            return binding
        kernel, args = self.kernels[call.kernel], list(call.args)
        todo = [(p, t) for p, t in self.positions(call.kernel).items() if self._is_worth_packing(args[p], t)]
        if not todo:
            return binding
        key = (call.kernel, tuple(todo))
        for p, transposed in todo:
            args[p] = self._packed(args[p], transposed)
            if key not in self.new_kernels:
                kernel = with_packed_input(kernel, p, transposed, args[p].type)
        kernel = self.new_kernels.setdefault(key, kernel)
        return replace(binding, value=CallKernel(f"{call.kernel}/{todo}", tuple(args), call.sizes))

    def _is_worth_packing(self, weight: Atom, transposed: bool) -> bool:
        if weight not in self.main.bound and weight not in self.constants:
            return False
        shape = weight.type.shape
        if weight.type.dtype not in WIDTHS or len(shape) != 2 or not all(isinstance(d, int) for d in shape):
            return False
        inner, columns = reversed(shape) if transposed else shape
        return inner >= LEAST_INNER and 2 * columns >= self.width(weight.type.dtype)

    def _packed(self, weight: Var, transposed: bool) -> Var:
        key = (weight, transposed)
        if key not in self.made:
            type_ = self._op(weight, transposed).infer(weight.type)
            self.made[key] = Var(unique(f"{weight.name}_packed", self.taken), type_)
            self.taken.add(self.made[key].name)
        return self.made[key]

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
        names = {f"{name}/{list(todo)}": table.add(k) for (name, todo), k in self.new_kernels.items()}

        def renamed(binding: Binding) -> Binding:
            call = binding.value
            return (
                replace(binding, value=replace(call, kernel=names[call.kernel]))
                if isinstance(call, CallKernel) and call.kernel in names
                else binding
            )

        main = map_blocks(entry(module), lambda block: replace(block, bindings=tuple(map(renamed, block.bindings))))
        return replace(with_function(module, main), kernels=table.kernels)

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

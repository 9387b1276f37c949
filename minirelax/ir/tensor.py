"""Between graph and loops: a tensor expression is a shape and a function from indices to the scalar found there.

An op's `lower` rule takes and returns tensor expressions.  Elementwise rules compose functions; a rule that needs a value
computed once (a reduction, or a stage) asks the `KernelBuilder`, which adds a block with a local buffer.
"""
from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from minirelax.ir.dim import Dim, symbol
from minirelax.ir.graph import Var
from minirelax.ir.loop import Axis, Block, Kernel, used_sizes, with_sizes
from minirelax.ir.scalar import Index, Load, Scalar, literal, load, simplify_indices
from minirelax.ir.types import Tensor

SPATIAL_NAMES = ("i", "j", "l", "p", "q", "r", "s", "t")
REDUCE_NAMES = ("k", "k1", "k2", "k3", "k4", "k5", "k6", "k7")


@dataclass(frozen=True)
class TensorExpr:
    """A shape, a dtype, and the scalar at any index (one `Index` per axis)."""

    shape: tuple[Dim, ...]
    dtype: str
    at: Callable[..., Scalar]

    @property
    def type(self) -> Tensor:
        return Tensor(self.dtype, self.shape)


Part = tuple[TensorExpr, tuple[Dim, ...], tuple[int, ...]]


class KernelBuilder:
    """Collects the inputs and blocks of one kernel.

    `taken` are names that axes must not have: the sizes in scope, so that an axis never hides a size.
    """

    def __init__(self, taken: frozenset[str] = frozenset()):
        self.taken = taken
        self.inputs: list[Var] = []
        self.local: list[Var] = []
        self.blocks: list[Block] = []

    def input(self, var: Var) -> TensorExpr:
        """A kernel parameter, readable at any index."""
        if var not in self.inputs:
            self.inputs.append(var)
        return _read(var)

    def stage(self, expr: TensorExpr) -> TensorExpr:
        """Compute `expr` once into a local buffer and read it from there."""
        return self._block(expr.shape, expr.dtype, (), lambda *i: expr.at(*i), None)

    def reduce(self, reduction: str, shape: tuple[Dim, ...], over: tuple[Dim, ...], value: Callable[..., Scalar],
               dtype: str) -> TensorExpr:
        """``out[i...] = reduction of value(i..., k...)`` over the extents `over`; reductions are those of `loop.REDUCTIONS`."""
        return self._block(shape, dtype, over, value, reduction)

    def assemble(self, shape: tuple[Dim, ...], dtype: str, parts: Sequence[Part]) -> TensorExpr:
        """A local buffer written part by part, one block each, later parts over earlier ones; together they must cover it.

        A part ``(expr, starts, steps)`` puts the element of `expr` at `index` at ``starts + steps * index``.  Parts may be empty.
        """
        local = self._new_local(shape, dtype)
        if not parts:                                                # then there is no element, but every buffer has a block
            self._emit(local.name, shape, (), lambda *_: literal(0, dtype), None)
        for expr, starts, steps in parts:
            self._emit(local.name, expr.shape, (), expr.at, None, tuple(zip(starts, steps, strict=True)))
        return _read(local)

    def finish(self, name: str, outputs: tuple[TensorExpr, ...], names: tuple[str, ...] | None = None) -> Kernel:
        """The kernel that computes `outputs`; a local buffer that is returned as it is becomes the output itself."""
        names = names or (("out",) if len(outputs) == 1 else tuple(f"out{i}" for i in range(len(outputs))))
        names = tuple(self._free(n) for n in names)
        out, renamed = [], {}
        for out_name, expr in zip(names, outputs, strict=True):
            local = self._returned_local(expr)
            if local is None or local.name in renamed:
                self._emit(out_name, expr.shape, (), expr.at, None)
            else:
                renamed[local.name] = out_name
                self.local.remove(local)
            out.append(Var(out_name, expr.type))
        blocks = tuple(_rename_buffers(b, renamed) for b in self.blocks)
        return with_sizes(Kernel(name, tuple(self.inputs), tuple(out), (), tuple(self.local), blocks))

    def _block(self, shape, dtype, over, value, reduction) -> TensorExpr:
        local = self._new_local(shape, dtype)
        self._emit(local.name, shape, over, value, reduction)
        return _read(local)

    def _new_local(self, shape, dtype) -> Var:
        taken = {v.name for v in (*self.inputs, *self.local)} | self.taken
        name = next(n for n in (f"t{i}" for i in itertools.count()) if n not in taken)
        self.local.append(Var(name, Tensor(dtype, shape)))
        return self.local[-1]

    def _emit(self, buffer, shape, over, value, reduction, placed=()) -> None:
        axes = tuple(Axis(n, d) for n, d in zip(self._names(SPATIAL_NAMES), shape, strict=False))
        reduce_axes = tuple(Axis(n, d) for n, d in zip(self._names(REDUCE_NAMES), over, strict=False))
        indices = tuple(0 if a.extent == 1 else symbol(a.name) for a in axes)
        axes_used = tuple(a for a in axes if a.extent != 1)
        ks = tuple(0 if a.extent == 1 else symbol(a.name) for a in reduce_axes)
        stored = tuple(start + step * i for i, (start, step) in zip(indices, placed, strict=True)) if placed else indices
        block = Block(axes_used, buffer, stored, value(*indices, *ks), tuple(a for a in reduce_axes if a.extent != 1), reduction)
        if reduction is not None and not block.over:                 # a reduction over sizes 1 is the value itself
            block = replace(block, reduction=None)
        self.blocks.append(replace(block, value=simplify_indices(block.value, block.ranges)))

    def _names(self, pool: tuple[str, ...]):
        return (n for n in (*pool, *(f"{pool[0]}{i}" for i in range(8, 40))) if n not in self.taken)

    def _free(self, name: str) -> str:
        while name in self.taken:
            name += "_"
        return name

    def _returned_local(self, expr: TensorExpr) -> Var | None:
        probe = tuple(symbol(f"_{i}") for i in range(len(expr.shape)))
        straight = tuple(0 if d == 1 else p for d, p in zip(expr.shape, probe, strict=True))
        match expr.at(*probe):
            case Load(buffer=buffer, indices=indices) if indices == straight:
                return next((v for v in self.local if v.name == buffer and v.type == expr.type), None)
        return None


def lower_to_kernel(name: str, rule: Callable, params: tuple[Var | TensorExpr, ...],
                    taken: frozenset[str] = frozenset()) -> Kernel:
    """The kernel of one op: `rule(builder, *expressions)` applied to its parameters (a Var is an input buffer)."""
    builder = KernelBuilder(taken)
    args = [builder.input(p) if isinstance(p, Var) else p for p in params]
    result = rule(builder, *args)
    return builder.finish(name, result if isinstance(result, tuple) else (result,))


def _read(var: Var) -> TensorExpr:
    def at(*index: Index) -> Scalar:
        return load(var.name, tuple(0 if d == 1 else i for d, i in zip(var.type.shape, index, strict=True)), var.type.dtype)
    return TensorExpr(var.type.shape, var.type.dtype, at)


def _rename_buffers(block: Block, renamed: dict[str, str]) -> Block:
    from minirelax.ir.scalar import transform

    def rename(s: Scalar) -> Scalar:
        return load(renamed[s.buffer], s.indices, s.dtype) if isinstance(s, Load) and s.buffer in renamed else s
    return replace(block, buffer=renamed.get(block.buffer, block.buffer), value=transform(block.value, rename),
                   indices=tuple(transform(i, rename) if isinstance(i, Scalar) else i for i in block.indices))


__all__ = ["KernelBuilder", "TensorExpr", "lower_to_kernel", "used_sizes"]

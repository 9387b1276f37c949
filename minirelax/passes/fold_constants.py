"""Compute what depends on constants only.

An op whose operands are all constants is evaluated now, by its `numpy` rule, which is its meaning.  A scalar result becomes a
`Const`, an array a constant of the module.  Ops with symbolic sizes are left, as are those whose result would take
much more memory than what it is made of (`GROWTH` bytes): a large `full` is cheaper to write than to keep.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... c0: f32[2] = constant([1.0, 3.0])
...
... def main(x: f32[n, 2]) -> f32[n, 2]:
...     with dataflow():
...         v0: f32[()] = sqrt(f32(4.0))
...         v1: f32[2] = divide(c0, v0)
...         v2: f32[n, 2] = multiply(x, v1)
...         output(v2)
...     return v2''')
>>> print(fold_constants(before))
c0: f32[2] = constant([1.0, 3.0])
c1: f32[2] = constant([0.5, 1.5])
<BLANKLINE>
def main(x: f32[n, 2]) -> f32[n, 2]:
    with dataflow():
        v2: f32[n, 2] = multiply(x, c1)
        output(v2)
    return v2
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from minirelax.ir.dim import DimExpr
from minirelax.ir.graph import Array, Atom, Binding, Const, Constant, Dataflow, Expr, Function, Module, Var
from minirelax.ir.op import Op
from minirelax.ir.types import NUMPY_DTYPES, Tensor
from minirelax.ops.create import Full
from minirelax.ops.movement import BroadcastTo

GROWTH = 64 * 1024  # bytes that a result may have beyond twice those of its operands


def fold_constants(module: Module) -> Module:
    """`module` with constant expressions computed; new constants are called ``c0, c1, ...``."""
    fold = _Fold(module)
    functions = tuple(map(fold.function, module.functions))
    return replace(module, functions=functions, constants=tuple(fold.constants.values())) if fold.changed else module


class _Fold:
    """The constants known so far: those of the module, and what was computed from them."""

    def __init__(self, module: Module):
        self.constants = {c.var: c for c in module.constants}
        taken = {v.name for f in module.functions for v in (*f.params, *f.bound)} | {
            b.var.name for f in module.functions for b in f.bindings if b.var
        }
        self.names = _free("c", taken | {c.name for c in module.constants})
        self.scalars: dict[Var, Atom] = {
            c.var: Const(c.array.value.item(), c.array.type.dtype) for c in module.constants if c.array.type.shape == ()
        }
        self.changed = False

    def function(self, function: Function) -> Function:
        self.alias = dict(self.scalars)  # two functions may have values of one name
        body = tuple(
            self._block(p) if isinstance(p, Dataflow) else replace(p, value=p.value.map_operands(self._read))
            for p in function.body
        )
        result = self._read(function.result)
        return replace(function, body=body, result=result) if self.changed or result != function.result else function

    def _block(self, block: Dataflow) -> Dataflow:
        out: list[Binding] = []
        for b in block.bindings:
            value = b.value.map_operands(self._read) if self.alias else b.value
            array = self._value(value, b.var.type)
            if array is None:
                out.append(b if value is b.value else replace(b, value=value))
                continue
            self.changed = True
            if array.shape == ():
                self.alias[b.var] = Const(array.item(), b.var.type.dtype)
            else:
                constant = Constant(next(self.names), Array(array))
                self.constants[constant.var] = constant
                self.alias[b.var] = constant.var
        here = {b.var for b in out}
        return Dataflow(tuple(out), tuple(v for v in block.outputs if v in here))

    def _read(self, atom: Atom) -> Atom:
        return self.alias.get(atom, atom) if isinstance(atom, Var) else atom

    def _value(self, value: Expr, type_: Tensor) -> np.ndarray | None:
        operands = value.operands()
        if (
            not isinstance(value, Op)
            or not isinstance(type_, Tensor)
            or type_.shape is None
            or not all(isinstance(d, int) for d in type_.shape)
        ):
            return None
        arrays = [self._array(a) for a in operands]
        if any(a is None for a in arrays) or _is_symbolic(tuple(value.attributes().values())):
            return None
        bytes_ = int(np.prod(type_.shape)) * type_.numpy_dtype.itemsize
        if type_.shape and isinstance(value, Full | BroadcastTo) or bytes_ > GROWTH + 2 * sum(a.nbytes for a in arrays):
            return None
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(value.numpy(*arrays))
        except Exception:  # whatever is wrong with it, it is the user's to see when the program runs
            return None
        return found if Tensor(type_.dtype, found.shape) == type_ and found.dtype == type_.numpy_dtype else None

    def _array(self, atom: Atom) -> np.ndarray | None:
        if isinstance(atom, Const):
            return np.array(atom.value, NUMPY_DTYPES[atom.dtype])
        return self.constants[atom].array.value if atom in self.constants else None


def _is_symbolic(attribute: object) -> bool:
    return isinstance(attribute, DimExpr) or isinstance(attribute, tuple) and any(map(_is_symbolic, attribute))


def _free(prefix: str, taken: set[str]) -> Iterator[str]:
    for i in range(len(taken) + 1_000_000):
        if f"{prefix}{i}" not in taken:
            yield f"{prefix}{i}"

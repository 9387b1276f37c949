"""Compute with shape values now, as far as types say what they are.

A type knows sizes as expressions, so ``shape_of(x)`` is ``shape(n, 4)``, a shape as a vector is one that a kernel writes, and a
vector made of sizes alone is a shape again, however it was computed (`shape_arithmetic`).  A `reshape_to` becomes a reshape: of a
shape with known entries at once; if only their number is known, a `match_cast` gives the entries names first.  Where arithmetic
does not show that there are as many elements as before, a `match_cast` of the flat array checks it.

It is right because a type's sizes are the value's sizes.  What only the data decides is left to the run: the sizes of arrays
with unknown ones, and vectors of computed numbers.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: f32[n, m, 4], y: f32[k], s: Shape(ndim=2)) -> Tuple[f32[n*m, 4], f32[_, _]]:
...     with dataflow():
...         v0: Shape([n, m, 4]) = shape_of(x)
...         v1: i64[3] = shape_to_tensor(v0)
...         v2: i64[()] = take(v1, i64(0), axis=0)
...         v3: i64[()] = take(v1, i64(1), axis=0)
...         v4: i64[()] = multiply(v2, v3)
...         v5: i64[1] = reshape(v4, shape=(1,))
...         v6: i64[1] = slice(v1, starts=(2,), sizes=(1,), steps=(1,))
...         v7: i64[2] = concatenate((v5, v6), axis=0)
...         v8: Shape(ndim=2) = tensor_to_shape(v7)
...         v9: f32[_, _] = reshape_to(x, v8)
...         v10: f32[n*m, 4] = match_cast(v9, f32[n*m, 4])
...         v11: f32[_, _] = reshape_to(y, s)
...         v12: Tuple[f32[n*m, 4], f32[_, _]] = (v10, v11)
...         output(v12)
...     return v12''')
>>> from minirelax.passes.eliminate_dead_code import eliminate_dead_code
>>> print(eliminate_dead_code(resolve_shapes(before)))
def main(x: f32[n, m, 4], y: f32[k], s: Shape(ndim=2)) -> Tuple[f32[m*n, 4], f32[_, _]]:
    with dataflow():
        v14: f32[m*n, 4] = reshape(x, shape=(m*n, 4))
        v15: Shape([l, p]) = match_cast(s, Shape([l, p]))
        v16: f32[l*p] = match_cast(y, f32[l*p])
        v17: f32[l, p] = reshape(v16, shape=(l, p))
        v18: Tuple[f32[m*n, 4], f32[l, p]] = (v14, v17)
        output(v18)
    return v18
"""

from __future__ import annotations

from dataclasses import replace

from minirelax.frontend.facts import letters
from minirelax.ir.dim import Dim, is_nonnegative, product, symbol
from minirelax.ir.graph import (
    Atom,
    Binding,
    Dataflow,
    Expr,
    Function,
    MakeShape,
    MakeTuple,
    MatchCast,
    Module,
    TupleItem,
    Var,
    fresh_names,
)
from minirelax.ir.infer import mentioned
from minirelax.ir.types import Shape, Tensor, Tuple, Type
from minirelax.ops.movement import Reshape
from minirelax.ops.shape import ReshapeTo, ShapeOf, ShapeToTensor, Sizes, TensorToShape
from minirelax.passes.shape_arithmetic import sizes_in

RESOLVED = (ShapeOf, ShapeToTensor, TensorToShape, ReshapeTo)


def resolve_shapes(module: Module) -> Module:
    """`module` without the operations on shape values whose results are known now."""
    if not any(isinstance(b.value, RESOLVED) for f in module.functions for b in f.bindings):
        return module
    return replace(module, functions=tuple(_Resolver(f, module).run() for f in module.functions))


class _Resolver:
    """One walk over one function.

    A value keeps its name and its type, on which later bindings rely.  Where more becomes known, a new value has the finer type;
    the old one is a `match_cast` of it, and later operations look at the finer one.  If the result is one of these, the old type
    is what the function declares, on which its callers rely.
    """

    def __init__(self, function: Function, module: Module):
        self.function = function
        self.constants = {c.name: c.array.value for c in module.constants}
        self.names = fresh_names(function, module)
        self.definitions: dict[str, Expr] = {}
        self.finer: dict[str, Atom] = {}
        self.same: dict[str, Atom] = {}
        values = (*function.params, *function.bound, *(b.var for b in function.bindings if b.var))
        taken = {n for v in values for n in (v.name, *mentioned(v.type))}
        taken |= {n for b in function.bindings for a in b.value.attributes().values() for n in mentioned(a)}
        self.sizes = (letter for letter in letters() if letter not in taken)
        self.out: list[Binding] = []

    def run(self) -> Function:
        """The function with everything replaced that is known."""
        parts: list[Dataflow | Binding] = []
        for part in self.function.body:
            self.out = []
            for b in part.bindings if isinstance(part, Dataflow) else (part,):
                self._binding(b)
            outputs = tuple(map(self._read, part.outputs)) if isinstance(part, Dataflow) else ()
            parts += [Dataflow(tuple(self.out), outputs)] if isinstance(part, Dataflow) else self.out
        result, function = self._finest(self._read(self.function.result)), self.function
        returns = function.returns or function.type.result
        returns = None if returns == result.type else returns
        return replace(function, body=_with_outputs(parts, result), result=result, returns=returns)

    def _binding(self, b: Binding) -> None:
        b = replace(b, value=b.value.map_operands(self._read))
        match b.value:
            case ShapeOf(x=x):
                self._shape_of(b, self._finest(x))
            case ShapeToTensor(s=s):
                self._shape_to_tensor(b, self._finest(s))
            case TensorToShape(x=x):
                self._tensor_to_shape(b, x)
            case ReshapeTo(x=x, s=s):
                self._reshape_to(b, x, s)
            case MatchCast(value=v, type=type_):
                self._is(b, finest) if (finest := self._finest(v)).type == type_ else self._keep(b, MatchCast(finest, type_))
            case MakeTuple(items=items):
                self._keep(b, b.value)
                if (finest := tuple(map(self._finest, items))) != items:
                    self.finer[b.var.name] = self._new(b, MakeTuple(finest), Tuple(tuple(a.type for a in finest)))
            case TupleItem(value=Var(name=name), index=index):
                self._keep(b, b.value)
                if isinstance(whole := self.definitions.get(name), MakeTuple):
                    self.finer[b.var.name] = self._finest(whole.items[index])
            case value:
                self._keep(b, value)

    def _shape_of(self, b: Binding, x: Atom) -> None:
        if x.type.shape is None or None in x.type.shape:
            self._keep(b, ShapeOf(x))
        else:
            self._becomes(b, MakeShape(x.type.shape), Shape(x.type.shape))

    def _shape_to_tensor(self, b: Binding, s: Atom) -> None:
        made = self.definitions.get(s.name)
        if s.type.values is None and isinstance(made, TensorToShape):
            self._is(b, made.x)
        elif s.type.ndim is None:
            self._keep(b, ShapeToTensor(s))
        else:
            self._becomes(b, Sizes(self._named(s, b).type.values), Tensor("i64", (s.type.ndim,)))

    def _tensor_to_shape(self, b: Binding, x: Atom) -> None:
        made = self.definitions.get(x.name) if isinstance(x, Var) else None
        elements = sizes_in(x, self.definitions, self.constants)
        if isinstance(made, ShapeToTensor):
            self._is(b, self._finest(made.s))
        elif elements is None:
            self._keep(b, TensorToShape(x))
        elif all(map(is_nonnegative, elements)):
            self._becomes(b, MakeShape(tuple(elements)), Shape(tuple(elements)))
        else:                                                      # the run must check that no entry is negative
            self._keep(b, TensorToShape(x))
            type_ = Shape(tuple(elements))
            self.finer[b.var.name] = self._new(b, MatchCast(b.var, type_), type_)

    def _reshape_to(self, b: Binding, x: Atom, s: Atom) -> None:
        x, s = self._finest(x), self._finest(s)
        if s.type.ndim is None or x.type.shape is None:
            return self._keep(b, ReshapeTo(x, s))
        x, shape = self._named(x, b), self._named(s, b).type.values
        old, new = product(x.type.shape), product(shape)
        if old != new:
            flat = x if len(x.type.shape) == 1 else self._reshaped(b, x, (old,))
            x = self._new(b, MatchCast(flat, Tensor(x.type.dtype, (new,))), Tensor(x.type.dtype, (new,)))
        self._is(b, x if x.type.shape == shape else self._reshaped(b, x, shape))

    def _reshaped(self, b: Binding, x: Atom, shape: tuple[Dim, ...]) -> Var:
        return self._new(b, Reshape(x, shape), Tensor(x.type.dtype, shape))

    def _named(self, value: Atom, b: Binding) -> Atom:
        """An array of known rank, or a shape with a known number of entries, with names for the sizes that had none."""
        match value.type:
            case Shape(values=None, ndim=count):
                type_: Type = Shape(tuple(symbol(next(self.sizes)) for _ in range(count)))
            case Tensor(dtype=dtype, shape=shape) if None in shape:
                type_ = Tensor(dtype, tuple(symbol(next(self.sizes)) if d is None else d for d in shape))
            case _:
                return value
        named = self._new(b, MatchCast(value, type_), type_)
        if isinstance(value, Var):
            self.finer[value.name] = named                         # later readers use the same names
        return named

    def _read(self, atom: Atom) -> Atom:
        return self.same.get(atom.name, atom) if isinstance(atom, Var) else atom

    def _finest(self, atom: Atom) -> Atom:
        while isinstance(atom, Var) and atom.name in self.finer:
            atom = self.finer[atom.name]
        return atom

    def _keep(self, b: Binding, value: Expr) -> None:
        self.definitions[b.var.name if b.var else ""] = value
        self.out.append(replace(b, value=value))

    def _new(self, b: Binding, value: Expr, type_: Type) -> Var:
        var = Var(next(self.names), type_)
        self._keep(replace(b, var=var), value)
        return var

    def _becomes(self, b: Binding, value: Expr, type_: Type) -> None:
        """The value is that of another expression, whose type may be finer."""
        self._keep(b, value) if type_ == b.var.type else self._is(b, self._new(b, value, type_))

    def _is(self, b: Binding, value: Atom) -> None:
        """The value is another one, whose type may be finer."""
        if value.type == b.var.type:
            self.same[b.var.name] = value
        else:
            self._keep(b, MatchCast(value, b.var.type))
            self.finer[b.var.name] = value


def _with_outputs(parts: list[Dataflow | Binding], result: Atom) -> tuple[Dataflow | Binding, ...]:
    """The parts, blocks giving what is read after them: what became of a value may be read where the value was not."""
    read, done = {result}, []
    for part in reversed(parts):
        bindings = part.bindings if isinstance(part, Dataflow) else (part,)
        if isinstance(part, Dataflow):
            wanted = read.union(part.outputs)
            part = replace(part, outputs=tuple(b.var for b in bindings if b.var in wanted))
        done.append(part)
        read.update(a for b in bindings for a in b.value.operands())
    return tuple(reversed(done))

"""A function that a loop calls: its sizes, seen from the loop, and which of its ops cannot fail.

The arguments of a loop are the same in each round, so what they show of the function's sizes is, too.  What is asked about
sizes is asked in those of the loop, where the guards of its function hold.

>>> from minirelax.ir.dim import dim
>>> from minirelax.ir.graph import Var
>>> from minirelax.ir.types import f32
>>> step = Function("step", (Var("w", f32["k", "k"]), Var("c", f32["n", "k"])), (), Var("c", f32["n", "k"]))
>>> called = Called(step, sizes_at(step, (Var("u", f32["m + 1", "m + 1"]),)), ())
>>> called.sizes, called.is_nonnegative(dim("k - 1")), called.is_nonnegative(dim("k - 2"))
({'k': m + 1}, True, False)
"""

from __future__ import annotations

from dataclasses import dataclass

from minirelax.ir.bounds import Facts, is_nonnegative
from minirelax.ir.dim import Dim, substitute, symbol
from minirelax.ir.graph import Atom, Binding, Function, Guard, Var
from minirelax.ir.infer import bound_sizes, mentioned_names
from minirelax.ir.lattice import bare_name, bind
from minirelax.ir.types import Tensor, Type, substitute_type, symbols
from minirelax.ops.arithmetic import Power
from minirelax.ops.create import Full, Iota, SizeOf
from minirelax.ops.elementwise import Elementwise
from minirelax.ops.index import Slice
from minirelax.ops.linalg import Einsum, Matmul
from minirelax.ops.movement import BroadcastTo, Concatenate, Pad, Reshape, Transpose
from minirelax.ops.reduce import All, Any, Extreme, Position, Prod, Sum

WHOLE = (Sum, Prod, Any, All, Matmul, Einsum, Reshape, Transpose, BroadcastTo, Concatenate, Pad, Full, Iota, SizeOf)


@dataclass(frozen=True)
class Called:
    """A function that a loop calls: what it computes from its arguments alone, and the `results` of that which are worth moving.

    `sizes` are its sizes in those of the loop, as far as its arguments show them; `facts`, what is known of those.
    """

    function: Function
    sizes: dict[str, Dim]
    facts: Facts
    bindings: tuple[Binding, ...] = ()
    results: tuple[Var, ...] = ()

    def inside(self, type_: Type) -> Type | None:
        """A type of the loop's in the sizes of this function; None if its arguments do not show them all."""
        letters = {name: symbol(own) for own, d in self.sizes.items() if (name := bare_name(d))}
        return substitute_type(type_, letters) if symbols(type_) <= letters.keys() else None

    def is_nonnegative(self, d: Dim) -> bool:
        """Is this size of the function's, which its arguments show, surely not negative?"""
        return is_nonnegative(substitute(d, self.sizes), facts=self.facts)

    def never_fails(self, b: Binding) -> bool:
        """Has a binding of the function a value, of known sizes, whatever its operands hold?"""
        if not (symbols(b.var.type) | mentioned_names(tuple(b.value.attributes().values())) <= self.sizes.keys()):
            return False
        if not is_known_tensor(b.var.type) or not all(map(self.is_nonnegative, b.var.type.shape)):
            return False
        match b.value:
            case Power():
                return b.var.type.dtype[0] == "f"
            case Slice(x=x, starts=starts, sizes=sizes, steps=steps):
                return all(map(self._is_inside, x.type.shape, starts, sizes, steps))
            case Extreme(x=x, axes=axes):
                return all(self.is_nonnegative(x.type.shape[a] - 1) for a in axes)
            case Position(x=x, axis=axis):
                return self.is_nonnegative(x.type.shape[axis] - 1)
        return isinstance(b.value, (Elementwise, *WHOLE)) and not b.value.library

    def _is_inside(self, extent: Dim, start: Dim, size: Dim, step: int) -> bool:
        """Are all places of a slice inside an axis?"""
        last = start + step * (size - 1)
        lowest, highest = (start, last) if step > 0 else (last, start)
        return self.is_nonnegative(lowest) and self.is_nonnegative(extent - 1 - highest)


def sizes_at(function: Function, args: tuple[Atom, ...]) -> dict[str, Dim]:
    """What the function's sizes are at a loop, as far as the arguments that are the same in each round show them."""
    sizes: dict[str, Dim] = {}
    params = function.params[: len(args)]
    for p, a in zip(params, args, strict=True):
        bind(p.type, a.type, sizes)
    known = {n for p in params for n in bound_sizes(p.type)}
    return {n: d for n, d in sizes.items() if n in known and d is not None}


def is_known_tensor(type_: Type) -> bool:
    return isinstance(type_, Tensor) and type_.dtype is not None and type_.shape is not None and None not in type_.shape


def facts_of_guard(guard: Guard) -> tuple[Dim, ...]:
    """What a guard says of sizes, as sizes that are >= 0."""
    more, less = guard.left - guard.right, guard.right - guard.left
    return {">=": (more,), ">": (more - 1,), "<=": (less,), "<": (less - 1,), "==": (more, less)}.get(guard.relation, ())

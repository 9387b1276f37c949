"""Rules for transposes and reshapes: move them towards the results, where they meet and cancel.

What only moves elements commutes with what looks at one element at a time: ``exp(transpose(x))`` is ``transpose(exp(x))``, and
a sum over an axis of a transposed array is a sum over another axis of the array itself.  So the normal form has the work first
and the movement after it, and `simplify` makes one of two movements that meet, or none.  A movement is moved only if nobody else
reads its result: then it is gone where it was, and no rule adds work.  All of it is exact, since the same numbers are combined;
only a reduction over several axes may see them in another order, which no reduction promises.

>>> from minirelax.ir.parser import parse
>>> from minirelax.passes.rules import rewrite
>>> main = parse('''
... def main(x: f32[n, m]) -> f32[m, n]:
...     with dataflow():
...         v0: f32[m, n] = transpose(x, axes=(1, 0))
...         v1: f32[m, n] = multiply(v0, 2.0)
...         output(v1)
...     return v1''')["main"]
>>> print(rewrite(main, (), movement_rules(main)))
def main(x: f32[n, m]) -> f32[m, n]:
    with dataflow():
        v0: f32[m, n] = transpose(x, axes=(1, 0))
        v2: f32[n, m] = multiply(x, 2.0)
        v1: f32[m, n] = transpose(v2, axes=(1, 0))
        output(v1)
    return v1
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from minirelax.ir.graph import Atom, Dataflow, Expr, Function, MatchCast, Var
from minirelax.ir.types import Tensor
from minirelax.ops.elementwise import Elementwise
from minirelax.ops.linalg import Matmul
from minirelax.ops.movement import Reshape, Transpose, swaps_matrices
from minirelax.ops.reduce import Position, Reduction

Definitions = dict[Var, Expr]


def movement_rules(function: Function) -> tuple[Callable[[Expr, Definitions], Expr | None], ...]:
    """The rules for `function`, as `rules.rewrite` takes them; none if nothing moves there."""
    if not any(isinstance(b.value, Transpose | Reshape) for b in function.bindings):
        return ()
    rules = _Movement(live_reads(function))
    return rules.elementwise, rules.reduction, rules.matmul, reshape_of_transpose, transpose_of_reshape


class _Movement:
    """The rules that need to know how often a value is read: by so many bindings that count."""

    def __init__(self, reads: Counter[Atom]):
        self.reads = reads

    def elementwise(self, value: Expr, definitions: Definitions) -> Expr | None:
        """An op of arrays that were all moved alike, and of scalars: first the op, then the movement."""
        if not isinstance(value, Elementwise) or not _tensors(value):
            return None
        arrays = dict.fromkeys(a for a in value.operands() if a.type.shape != ())
        moves = [self._movement(a, definitions) for a in arrays]
        if not moves or None in moves or not self._goes(arrays):
            return None
        if value.infer(*(a.type for a in value.operands())).shape not in [a.type.shape for a in arrays]:
            return None  # broadcast against each other, they are smaller than what would be moved
        first = moves[0]
        alike = all(type(m) is type(first) and m.attributes() == first.attributes() for m in moves)
        if not alike or isinstance(first, Reshape) and len({m.x.type.shape for m in moves}) > 1:
            return None
        source = {a: m.x for a, m in zip(arrays, moves, strict=True)}
        return replace(first, x=value.map_operands(lambda a: source.get(a, a)))

    def reduction(self, value: Expr, definitions: Definitions) -> Expr | None:
        """Reduce the array as it was, and transpose what is left of it if its axes are in another order."""
        match value:
            case Reduction(x=x, axes=axes):
                pass
            case Position(x=x, axis=axis):
                axes = (axis,)
            case _:
                return None
        move = self._movement(x, definitions)
        if not isinstance(move, Transpose) or not self._goes((x,)):
            return None
        p = move.axes
        mapped = tuple(sorted(p[a] for a in axes))
        field = {"axis": mapped[0]} if isinstance(value, Position) else {"axes": mapped}
        kept = [p[a] for a in range(len(p)) if value.keepdims or a not in axes]
        order = tuple(sorted(kept).index(a) for a in kept)
        reduced = replace(value, x=move.x, **field)
        return reduced if order == tuple(range(len(order))) else Transpose(reduced, order)

    def matmul(self, value: Expr, definitions: Definitions) -> Expr | None:
        """``(a.T @ b.T).T`` is ``b @ a``."""
        if not isinstance(value, Transpose) or not _swaps_last(value) or self.reads[value.x] != 1:
            return None
        product = definitions.get(value.x)
        if not isinstance(product, Matmul):
            return None
        a, b = definitions.get(product.a), definitions.get(product.b)
        return Matmul(b.x, a.x) if _swaps_last(a) and _swaps_last(b) else None

    def _movement(self, atom: Atom, definitions: Definitions) -> Transpose | Reshape | None:
        found = definitions.get(atom)
        return found if isinstance(found, Transpose | Reshape) and isinstance(found.x.type, Tensor) else None

    def _goes(self, moved: dict[Atom, None] | tuple[Atom, ...]) -> bool:
        """Is one of the movements gone if this reader reads it no more?"""
        return any(self.reads[a] == 1 for a in moved)


def reshape_of_transpose(value: Expr, definitions: Definitions) -> Expr | None:
    """A transpose that only moves axes of one element leaves all elements in their order."""
    if not isinstance(value, Transpose):
        return None
    shape = value.x.type.shape
    longer = [a for a in value.axes if shape[a] != 1]
    return Reshape(value.x, tuple(shape[a] for a in value.axes)) if longer == sorted(longer) else None


def transpose_of_reshape(value: Expr, definitions: Definitions) -> Expr | None:
    """A transpose of a reshape that only moves axes of one element is a transpose, too."""
    made = definitions.get(value.x) if isinstance(value, Transpose) else None
    if not isinstance(made, Reshape):
        return None
    (old, old_ones), (new, new_ones) = map(_axes_by_extent, (made.x.type.shape, made.shape))
    if len(old_ones) != len(new_ones) or [made.x.type.shape[a] for a in old] != [made.shape[a] for a in new]:
        return None
    source = dict(zip(new + new_ones, old + old_ones, strict=True))
    return Transpose(made.x, tuple(source[a] for a in value.axes))


def live_reads(function: Function) -> Counter[Atom]:
    """How many bindings that count for the result read each value, the result itself being one more."""
    reads: Counter[Atom] = Counter((function.result,))
    for part in reversed(function.body):
        for b in reversed(part.bindings if isinstance(part, Dataflow) else (part,)):
            if b.var is None or reads[b.var] or not isinstance(part, Dataflow) or isinstance(b.value, MatchCast):
                reads.update(set(b.value.operands()))
    return reads


def _axes_by_extent(shape: tuple) -> tuple[list[int], list[int]]:
    """The axes that may have more than one element, and those that have one."""
    return [a for a, d in enumerate(shape) if d != 1], [a for a, d in enumerate(shape) if d == 1]


def _swaps_last(value: Expr | None) -> bool:
    """Is it a transpose of matrices, each for itself?"""
    return isinstance(value, Transpose) and swaps_matrices(value.axes)


def _tensors(value: Expr) -> bool:
    return all(isinstance(a.type, Tensor) and a.type.shape is not None for a in value.operands())

"""Two ways to compute one value, of which a call takes the one that suits its sizes.

A region of ops and a call that computes the same become the two branches of a `cond` on a comparison of sizes.  Control flow
stands between dataflow blocks, so the block is cut in two there: what the branches read, and what later bindings read, leaves
the first half.  A comparison that holds for all sizes, or for none, is decided now, and costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from minirelax.ir.bounds import is_nonnegative
from minirelax.ir.dim import Dim, symbol
from minirelax.ir.graph import Binding, Cond, Const, Dataflow, Function, MakeShape, Module, Var
from minirelax.ir.infer import free_sizes
from minirelax.ir.types import Shape, Tensor
from minirelax.ops.comparison import Greater, GreaterEqual, Less, LessEqual
from minirelax.ops.create import SizeOf
from minirelax.passes.group_functions import read_from_outside, with_sizes
from minirelax.passes.share_kernels import unique

RELATIONS = {">": Greater, ">=": GreaterEqual, "<": Less, "<=": LessEqual}


@dataclass(frozen=True)
class Comparison:
    """``left relation right``, of sizes.

    >>> Comparison(symbol("n") + 1, ">", 0).decided, Comparison(symbol("n"), ">", 8).decided, Comparison(3, ">", 8).decided
    (True, None, False)
    """

    left: Dim
    relation: str
    right: Dim

    @property
    def decided(self) -> bool | None:
        """Whether it holds, if that is the same for all sizes."""
        difference = self.right - self.left if self.relation[0] == "<" else self.left - self.right
        strict = len(self.relation) == 1
        if is_nonnegative(difference - strict):
            return True
        return False if is_nonnegative(-difference - (not strict)) else None


class Branches:
    """The functions made so far for one module."""

    def __init__(self, module: Module):
        self.taken = {f.name for f in module.functions} | {k.name for k in module.kernels}
        self.constants = {c.var for c in module.constants}
        self.functions: list[Function] = []

    def choice(self, at: Binding, condition: Comparison, ways: Sequence[tuple[str, Sequence[Binding]]],
               names: Iterator[str]) -> list[Binding]:
        """Bindings of which the last one is `at`, computed the first of two ways if the condition holds, else the other.

        A way is a name and bindings, which end with one of the value of `at`.
        """
        flag, made = _flag(condition, at, names)
        then, otherwise, args, shape = self._functions(at, ways, names)
        made += [Binding(shape, MakeShape(shape.type.values), at.source)] if shape else []
        return [*made, replace(at, value=Cond(flag, then, otherwise, args))]

    def _functions(self, at: Binding, ways: Sequence[tuple[str, Sequence[Binding]]], names: Iterator[str]):
        """The names of two functions of the same parameters, the arguments for them, and the shape among these, if any."""
        read = read_from_outside([b for _, bindings in ways for b in bindings])
        args = tuple(a for a in read if a not in self.constants)
        drafts = [Function(unique(name, self.taken), args, (Dataflow(tuple(bindings), (at.var,)),), at.var, private=True)
                  for name, bindings in ways]
        free = tuple(dict.fromkeys(n for f in drafts for n in free_sizes(f)))
        shape = Var(next(names), Shape(tuple(map(symbol, free)))) if free else None
        drafts = [with_sizes(f, free, (c.name for c in self.constants)) for f in drafts]
        self.functions += drafts
        self.taken.update(f.name for f in drafts)
        return (*(f.name for f in drafts), (*args, shape) if shape else args, shape)


def cut(bindings: Sequence[Binding], outputs: tuple[Var, ...]) -> tuple[Dataflow | Binding, ...]:
    """Parts of a body: the bindings in blocks, control flow between them; each value that is read later leaves its block."""
    runs: list[list[Binding]] = [[]]
    for b in bindings:
        if isinstance(b.value, Cond):
            runs += [[b], []]
        else:
            runs[-1].append(b)
    parts: list[Dataflow | Binding] = []
    read = set(outputs)
    for i, run in reversed(list(enumerate(runs))):
        if i % 2:
            parts += run
        elif run:
            parts.append(Dataflow(tuple(run), tuple(b.var for b in run if b.var in read)))
        read.update(a for b in run for a in b.value.operands())
    return tuple(reversed(parts))


def _flag(condition: Comparison, at: Binding, names: Iterator[str]) -> tuple[Var, list[Binding]]:
    """The comparison as a value: of the difference with zero."""
    size, flag = Var(next(names), Tensor("i64", ())), Var(next(names), Tensor("bool", ()))
    compare = RELATIONS[condition.relation](size, Const(0, "i64"))
    return flag, [Binding(size, SizeOf(condition.left - condition.right), at.source), Binding(flag, compare, at.source)]

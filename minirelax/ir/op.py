"""What an op is: one frozen dataclass that says everything about itself.

    @op
    class Negative(Op):
        '''Minus each element.'''
        x: Atom
        def infer(self, x): ...            # types in, type out (a tuple of types for several results)
        def numpy(self, x): ...            # arrays in, array out: the meaning
        def lower(self, k, x): ...         # tensor expressions in, tensor expression out; k: KernelBuilder

The three rules take the operands as arguments and read the attributes from self.  Ops are strict: operands have equal
dtypes, axes are non-negative; `minirelax.frontend` normalises what users write.  An op without a loop form sets
``library = True`` in place of `lower`: it becomes a library call of its `numpy` rule; if it has a rule
``numpy_into(self, x, out)``, too, the compiled program calls that one, to write into memory that is there.
"""
from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from minirelax.ir.dim import DimExpr, substitute, value
from minirelax.ir.graph import Expr

OPS: dict[str, type[Op]] = {}


@dataclass(frozen=True)
class Op(Expr):
    """Base of all ops."""

    library = False

    @classmethod
    def opname(cls) -> str:
        """The class name in snake case: what the IR prints."""
        return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", cls.__name__).lower()

    def infer(self, *types):
        raise TypeError(f"{self.opname()} has no infer rule")

    def numpy(self, *arrays):
        raise TypeError(f"{self.opname()} has no numpy rule")

    def with_sizes(self, sizes: dict[str, int]) -> Op:
        """This op with every symbolic attribute replaced by its number."""
        return map_dims(self, lambda d: value(d, sizes))


def map_dims(node: Expr, fn) -> Expr:
    """`node` with ``fn`` applied to every symbolic size among its attributes (also inside tuples)."""
    def mapped(a):
        return fn(a) if isinstance(a, DimExpr) else tuple(map(mapped, a)) if isinstance(a, tuple) else a
    changed = {n: m for n, a in node.attributes().items() if (m := mapped(a)) is not a and m != a}
    return replace(node, **changed) if changed else node


def substitute_dims(node: Expr, values: dict) -> Expr:
    """`node` with named sizes among its attributes replaced."""
    return map_dims(node, lambda d: substitute(d, values))


def op(cls: type) -> type[Op]:
    """Class decorator: freeze, check that the definition is whole, and add it to `OPS`."""
    missing = [rule for rule in ("infer", "numpy") if getattr(cls, rule) is getattr(Op, rule)]
    if not cls.library and not hasattr(cls, "lower"):
        missing.append("lower")
    if missing or not cls.__dict__.get("__doc__"):
        raise TypeError(f"op {cls.__name__} lacks {', '.join(missing) or 'a docstring'}")
    if cls.__dict__.get("__annotations__") or len(cls.__bases__) > 1:      # else the one base's methods do
        cls = dataclass(frozen=True)(cls)
    if cls.opname() in OPS and OPS[cls.opname()].__module__ != cls.__module__:
        raise TypeError(f"two ops are called {cls.opname()}")
    OPS[cls.opname()] = cls
    return cls


def attribute_names(cls: type[Op]) -> tuple[str, ...]:
    """The attribute fields of an op class, in declaration order."""
    from minirelax.ir.graph import operand_names
    return tuple(f.name for f in fields(cls) if f.name not in operand_names(cls))

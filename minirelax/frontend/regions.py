"""Control flow while a function is traced: branches and bodies run in scopes of their own, and become functions of the module.

What a region reads from outside it captures: those values are passed to its function.  Where branches give arrays of different
sizes, or a body changes the size of what it carries, that size is known only while running: the type has ``_`` there, and a
match_cast after the branch or loop gives it a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from minirelax.errors import ShapeError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder
from minirelax.frontend.carries import function_name, leaves_of, same_leaves, type_text
from minirelax.frontend.operands import as_dtype, asarray, kind
from minirelax.frontend.promotion import WEAK_DTYPE, Kind, name_of, promote, widest
from minirelax.frontend.scope import Region, Scope
from minirelax.ir.dim import Dim, DimExpr, names
from minirelax.ir.graph import Atom, Cond, Const, Expr, MatchCast, TupleItem, Var
from minirelax.ir.types import NUMPY_DTYPES, Tensor, Tuple

SAME_RANK = "give both as many axes: np.reshape, np.broadcast_to"


@dataclass(frozen=True)
class Slot:
    """A value after a branch or loop.  A size of `shape` that only the run tells is None; those with equal `keys` are equal."""

    kind: Kind
    shape: tuple[Dim | None, ...]
    keys: tuple[object, ...]

    @property
    def type(self) -> Tensor:
        return Tensor(dtype_of(self.kind), self.shape)


def trace_cond(b: Builder, flag: TracedArray, branches: Sequence[Callable], operands: Callable[[], tuple]) -> object:
    """The value of ``branches[0](*operands())`` or, where the flag is not set, of the other branch."""
    defaults, scopes, made = ("then", "otherwise"), [], []
    for fn, default in zip(branches, defaults, strict=True):
        scopes.append(Scope(function_name(fn, f"the branch {default}"), b.scope, open=False))
        with b.inside(scopes[-1]):
            made.append(fn(*operands()))
    first, second = (scope.name for scope in scopes)
    leaves, tree = leaves_of("cond", f"the result of {first}", made[0])
    pairs = [leaves, same_leaves("cond", tree, made[1], second, f"{first} returns {{}}")]
    for scope, side in zip(scopes, pairs, strict=True):
        with b.inside(scope):
            side[:] = map(asarray, side)
    slots = [_slot(b, path, scopes, *sides) for path, *sides in zip(tree.paths("the result"), *pairs, strict=True)]
    if not slots:
        return tree.unflatten([])
    results = [give(b, scope, side, slots) for scope, side in zip(scopes, pairs, strict=True)]
    captures = captured(b, [(scope, (), r) for scope, r in zip(scopes, results, strict=True)])
    packed = len(slots) > 1
    functions = [
        add_region(b, fn, default, scope, (), r, packed)
        for fn, default, scope, r in zip(branches, defaults, scopes, results, strict=True)
    ]
    return tree.unflatten(after(b, Cond(flag.atom, *functions, captures), slots, packed))


def _slot(b: Builder, path: str, scopes: Sequence[Scope], x: TracedArray, y: TracedArray) -> Slot:
    """What `x` in one branch and `y` in the other are after both.  Raises ShapeError for a different number of axes."""
    kinds = kind(x), kind(y)
    if x.ndim != y.ndim:
        one, other = (f"{type_text(k, v.type)} by {s.name}" for k, v, s in zip(kinds, (x, y), scopes, strict=True))
        raise ShapeError(f"cond: {path} is {one}, but {other}", SAME_RANK)
    shape, keys = [], []
    for d, e in zip(x.type.shape, y.type.shape, strict=True):
        shape.append(same_size(b, d, e, scopes))
        keys.append((b.facts.resolve(d), b.facts.resolve(e)))
    weak = isinstance(kinds[0], type) and isinstance(kinds[1], type)
    return Slot(widest(kinds) if weak else numpy_kind(kinds), tuple(shape), tuple(keys))


def same_size(b: Builder, d: Dim, e: Dim, scopes: Iterable[Scope]) -> Dim | None:
    """The size that `d` and `e` both are for all calls of this program; None if they differ, or only the scopes know them."""
    if any(names(s) & scope.sizes for s in (d, e) if isinstance(s, DimExpr) for scope in scopes):
        return None
    if not b.facts.is_equal(d, e):
        if not (b.facts.truth("==", d, e) and b.facts.may_assume(d - e)):
            return None
        b.facts.assume_equal(d, e)
    return b.facts.resolve(d)


def numpy_kind(kinds: tuple[Kind, ...]) -> Kind:
    """The common dtype of values of these kinds, as ``np.where`` has it."""
    return NUMPY_DTYPES[promote(kinds)]


def dtype_of(k: Kind) -> str:
    """The dtype of a value of this kind."""
    return WEAK_DTYPE[k] if isinstance(k, type) else name_of(k)


def value_of(b: Builder, atom: Atom, k: Kind) -> TracedArray:
    """A value as the user sees it: a number that is weak, an element, or an array."""
    return TracedArray(b, atom, k) if isinstance(k, type) else TracedArray(b, atom).as_element()


def give(b: Builder, scope: Scope, made: Iterable[TracedArray], slots: Iterable[Slot]) -> tuple[Var, ...]:
    """The results of a scope in the types that they have outside; sizes only known inside stay as they are."""
    with b.inside(scope):
        return tuple(_given(b, as_dtype(x, dtype_of(s.kind)), s.shape) for x, s in zip(made, slots, strict=True))


def _given(b: Builder, x: TracedArray, shape: tuple[Dim | None, ...]) -> Var:
    shape = tuple(own if d is None else b.facts.resolve(d) for d, own in zip(shape, x.dims, strict=True))
    if x.dims != shape:  # equal by a guard, not by arithmetic
        return b.emit(MatchCast(x.atom, Tensor(x.type.dtype, shape)))
    return b.op("full", x.atom, shape=()) if isinstance(x.atom, Const) else x.atom


def captured(b: Builder, regions: Iterable[tuple[Scope, Sequence[Var], Sequence[Atom]]]) -> tuple[Var, ...]:
    """What scopes read that is neither theirs (born in them, or their own parameters) nor a constant of the module."""
    constants = {c.name for c in b.constants}
    found: dict[str, Var] = {}
    for scope, own, results in regions:
        inside = {v.name for v in own} | {x.var.name for x in scope.bindings} | constants
        read = (*(a for x in scope.bindings for a in x.value.operands()), *results)
        found.update((a.name, a) for a in read if isinstance(a, Var) and a.name not in inside and a.name not in found)
    return tuple(found.values())


def add_region(
    b: Builder, fn: Callable, default: str, scope: Scope, own: tuple[Var, ...], results: tuple[Var, ...], packed: bool
) -> str:
    """The name of the function that a scope of the current one becomes: the user's function's, or a default for a lambda."""
    name = b.function_name(function_name(fn, default))
    b.scope.regions[name] = Region(name, scope, own, results, packed)
    return name


def after(b: Builder, expr: Expr, slots: Sequence[Slot], packed: bool) -> list[TracedArray]:
    """The values of a branch or loop, as arrays of the current scope."""
    types = tuple(s.type for s in slots)
    whole = b.bind(expr, Tuple(types) if packed else types[0])
    parts = [b.bind(TupleItem(whole, i), t) for i, t in enumerate(types)] if packed else [whole]
    sizes: dict[object, Dim] = {}
    found = []
    for part, slot in zip(parts, slots, strict=True):
        if None in slot.shape:
            for key in (k for d, k in zip(slot.shape, slot.keys, strict=True) if d is None and k not in sizes):
                sizes[key] = b.inner_size()
            shape = tuple(sizes[k] if d is None else d for d, k in zip(slot.shape, slot.keys, strict=True))
            part = b.emit(MatchCast(part, Tensor(slot.type.dtype, shape)))
        found.append(value_of(b, part, slot.kind))
    return found

"""Move what depends on weights only out of the call path.

`main`'s bound parameters hold weights: arrays that are given once and stay.  Whatever is computed from them and from
constants alone goes into the function ``bind``, which runs once per binding; `main` takes the results as its bound
parameters.  That is right since dataflow blocks have no side effects and bound arrays do not change.

A result that takes more than twice the memory of the weights that it is made of stays where it is (4-bit weights are
decoded at use), unless it is small.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: f32[n, 8], *, w: f32[4, 8]) -> f32[n, 4]:
...     with dataflow():
...         v0: f32[8, 4] = transpose(w, axes=(1, 0))
...         v1: f32[n, 4] = matmul(x, v0)
...         output(v1)
...     return v1''')
>>> print(bind_parameters(before))
def main(x: f32[n, 8], *, v0: f32[8, 4]) -> f32[n, 4]:
    with dataflow():
        v1: f32[n, 4] = matmul(x, v0)
        output(v1)
    return v1
<BLANKLINE>
def bind(w: f32[4, 8]) -> Tuple[f32[8, 4]]:
    with dataflow():
        v0: f32[8, 4] = transpose(w, axes=(1, 0))
        v1: Tuple[f32[8, 4]] = (v0,)
        output(v1)
    return v1
"""

from __future__ import annotations

from dataclasses import replace

from minirelax.ir.dim import DimExpr, product, value
from minirelax.ir.graph import Atom, Binding, CallLibrary, Dataflow, Function, MakeTuple, Module, Var, fresh_names
from minirelax.ir.infer import mentioned_names
from minirelax.ir.op import Op
from minirelax.ir.types import Tensor, Tuple, itemsize, symbols
from minirelax.passes.base import BIND, entry, with_function

SMALL = 1 << 20  # bytes that a bound value may have whatever it is made of


def bind_parameters(module: Module) -> Module:
    """`module` with a function ``bind`` for the values that depend on bound parameters alone, if there are any of those."""
    main = entry(module)
    if not main.bound or any(f.name == BIND for f in module.functions):
        return module
    hoisted = _hoistable(main, module)
    moved = {b.var for b in hoisted}
    body = tuple(_without(part, moved) for part in main.body)
    rest = replace(main, body=body)
    read = {a for b in rest.bindings for a in b.value.operands()} | {main.result}
    bound = tuple(v for v in (*main.bound, *(b.var for b in hoisted)) if v in read)
    needed = _needed(hoisted, set(bound))
    changed = with_function(module, replace(rest, bound=bound))
    return replace(changed, functions=(*changed.functions, bind_function(main.bound, needed, bound)))


def bind_function(params: tuple[Var, ...], bindings: tuple[Binding, ...], results: tuple[Var, ...]) -> Function:
    """The function ``bind``: weights in, a tuple of `main`'s bound parameters out."""
    draft = Function(BIND, params, (Dataflow(bindings, ()),), params[0])
    whole = Var(next(fresh_names(draft)), Tuple(tuple(v.type for v in results)))
    return replace(draft, body=(Dataflow((*bindings, Binding(whole, MakeTuple(results))), (whole,)),), result=whole)


def _hoistable(main: Function, module: Module) -> list[Binding]:
    """The bindings, in order, that depend on bound parameters and constants only and are worth keeping."""
    sources: dict[Atom, frozenset[Var]] = {v: frozenset((v,)) for v in main.bound}  # the weights each value is made of
    constants = {c.var for c in module.constants}
    sizes = frozenset().union(*(symbols(v.type) for v in main.bound))
    found = []
    for b in main.bindings:
        operands = [a for a in b.value.operands() if isinstance(a, Var) and a not in constants]
        if (
            isinstance(b.value, Op | CallLibrary)
            and operands
            and all(a in sources for a in operands)
            and symbols(b.var.type) | mentioned_names(tuple(b.value.attributes().values())) <= sizes
            and not _is_unknown(b.var.type)
        ):
            sources[b.var] = frozenset().union(*(sources[a] for a in operands))
            found.append(b)
    kept, read_outside = set(), {a for b in main.bindings if b.var not in sources for a in b.value.operands()} | {main.result}
    for b in reversed(found):
        if b.var in read_outside and grows(b.var, sources[b.var]):
            read_outside.update(b.value.operands())  # computed at use: so its operands are read there
        else:
            kept.add(b.var)
    return [b for b in found if b.var in kept]


def grows(var: Var, weights: frozenset[Var]) -> bool:
    """Does a value take far more memory than what it is made of, so that it is better computed where it is used?"""
    made, given = _bytes(var), sum(map(_bytes, weights))
    return made > SMALL and made > 2 * given


def _bytes(var: Var) -> int:
    """The bytes of a value, sizes that are not known counting as 1024: only for comparing."""
    if not isinstance(var.type, Tensor):
        return 0
    elements = product(var.type.shape)
    return itemsize(var.type.dtype) * (
        value(elements, dict.fromkeys(symbols(var.type), 1024)) if isinstance(elements, DimExpr) else elements
    )


def _is_unknown(type_) -> bool:
    return not isinstance(type_, Tensor) or type_.shape is None or None in type_.shape


def _without(part: Dataflow | Binding, moved: set[Var]) -> Dataflow | Binding:
    if isinstance(part, Binding):
        return part
    return Dataflow(tuple(b for b in part.bindings if b.var not in moved), tuple(v for v in part.outputs if v not in moved))


def _needed(bindings: list[Binding], wanted: set[Atom]) -> tuple[Binding, ...]:
    kept = []
    for b in reversed(bindings):
        if b.var in wanted:
            kept.append(b)
            wanted.update(b.value.operands())
    return tuple(reversed(kept))

"""Compute equal expressions once.

Two bindings of a dataflow block with the same op, operands and attributes have the same value, since nothing there has
side effects.  The first one stays.  Attributes are compared by their text, so that 0.0 and -0.0 differ.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: f32[n]) -> f32[n]:
...     with dataflow():
...         v0: f32[n] = exp(x)
...         v1: f32[n] = exp(x)
...         v2: f32[n] = add(v0, v1)
...         output(v2)
...     return v2''')
>>> print(merge_common(before))
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = exp(x)
        v2: f32[n] = add(v0, v0)
        output(v2)
    return v2
"""

from __future__ import annotations

from dataclasses import replace

from minirelax.ir.graph import Atom, Binding, Dataflow, Function, Module, Var
from minirelax.passes.base import function_pass

SMALL = 64 * 1024  # bytes up to which constants are compared by content, which means hashing them


def merge_common(module: Module) -> Module:
    """`module` with one binding, and one constant, for equal ones."""
    return _merge_bindings(_merge_constants(module))


@function_pass
def _merge_bindings(function: Function) -> Function:
    alias: dict[Var, Atom] = {}
    known: dict[tuple, Var] = {}
    body = tuple(_block(p, alias, known) if isinstance(p, Dataflow) else _renamed(p, alias) for p in function.body)
    return replace(function, body=body, result=alias.get(function.result, function.result)) if alias else function


def _block(block: Dataflow, alias: dict[Var, Atom], known: dict[tuple, Var]) -> Dataflow:
    known.clear()  # after a block only its outputs are readable
    out = []
    for b in block.bindings:
        b = _renamed(b, alias)
        key = (type(b.value), b.value.operands(), repr(b.value.attributes()), b.var.type)
        first = known.setdefault(key, b.var)
        if first is b.var:
            out.append(b)
        else:
            alias[b.var] = first
    return Dataflow(tuple(out), tuple(dict.fromkeys(alias.get(v, v) for v in block.outputs)))


def _renamed(binding: Binding, alias: dict[Var, Atom]) -> Binding:
    if not any(a in alias for a in binding.value.operands()):
        return binding
    return replace(binding, value=binding.value.map_operands(lambda a: alias.get(a, a)))


def _merge_constants(module: Module) -> Module:
    first: dict[object, Var] = {}
    alias: dict[Var, Atom] = {}
    for c in module.constants:
        kept = first.setdefault(c.array if c.array.value.nbytes <= SMALL else id(c.array), c.var)
        if kept != c.var:
            alias[c.var] = kept
    if not alias:
        return module
    functions = tuple(
        replace(
            f,
            result=alias.get(f.result, f.result),
            body=tuple(
                Dataflow(tuple(_renamed(b, alias) for b in p.bindings), p.outputs)
                if isinstance(p, Dataflow)
                else _renamed(p, alias)
                for p in f.body
            ),
        )
        for f in module.functions
    )
    return replace(module, functions=functions, constants=tuple(c for c in module.constants if c.var not in alias))

"""Compute equal expressions once.

Two bindings of dataflow blocks with the same op, operands and attributes have the same value, since nothing there has side
effects, and a library routine depends on nothing but its arguments.  The first one stays; a later block reads it if it is an
output of its own.  Attributes are compared by their text, so that 0.0 and -0.0 differ.

Operands that may be exchanged are compared in one order: those of sums, products, and logic, and of ``x < y``, which is
``y > x``.  The results have the same bits, but for what a NaN carries.  `maximum` and `minimum` are not among them: of 0.0 and
-0.0, each may give either.

>>> from minirelax.ir.parser import parse
>>> before = parse('''
... def main(x: f32[n]) -> f32[n]:
...     with dataflow():
...         v0: f32[n] = multiply(x, 2.0)
...         v1: f32[n] = multiply(2.0, x)
...         v2: f32[n] = add(v0, v1)
...         output(v2)
...     return v2''')
>>> print(merge_common(before))
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = multiply(x, 2.0)
        v2: f32[n] = add(v0, v0)
        output(v2)
    return v2
"""

from __future__ import annotations

from dataclasses import replace

from minirelax.ir.graph import Atom, Binding, Dataflow, Expr, Function, Module, Var
from minirelax.ops.arithmetic import Add, Multiply
from minirelax.ops.comparison import Equal, Greater, GreaterEqual, Less, LessEqual, NotEqual
from minirelax.ops.logic import BitwiseAnd, BitwiseOr, BitwiseXor, LogicalAnd, LogicalOr, LogicalXor
from minirelax.passes.base import function_pass

SMALL = 64 * 1024  # bytes up to which constants are compared by content, which means hashing them
COMMUTATIVE = (Add, Multiply, Equal, NotEqual, LogicalAnd, LogicalOr, LogicalXor, BitwiseAnd, BitwiseOr, BitwiseXor)
MIRRORED = {Greater: Less, GreaterEqual: LessEqual}


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
    out = []
    for b in block.bindings:
        b = _renamed(b, alias)
        first = known.setdefault((*_key(b.value), b.var.type), b.var)
        if first is b.var:
            out.append(b)
        else:
            alias[b.var] = first
    here = {b.var for b in out}
    outputs = tuple(dict.fromkeys(v for v in (alias.get(v, v) for v in block.outputs) if v in here))
    for key in [k for k, v in known.items() if v in here and v not in outputs]:
        del known[key]  # after a block only its outputs are readable
    return Dataflow(tuple(out), outputs)


def _key(value: Expr) -> tuple:
    """Equal for expressions of equal value."""
    kind, operands = type(value), value.operands()
    if kind in MIRRORED:
        kind, operands = MIRRORED[kind], operands[::-1]
    elif kind in COMMUTATIVE:
        operands = tuple(sorted(operands, key=repr))
    return kind, operands, repr(value.attributes())


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

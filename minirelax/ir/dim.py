"""Symbolic sizes: integer expressions kept in one normal form.

A size is an ``int`` or a `DimExpr`: a polynomial with integer coefficients over named sizes and over *atoms*, the
applications of ``//``, ``%``, ``min`` and ``max`` that no law removes.  Equal polynomials have equal normal forms, so ``==``
decides equality; graph level (shapes) and loop level (indices) share the same expressions.  Named sizes are never negative.
Where a divisor is 0 an expression has no value; the laws below hold wherever there is one.

>>> n, m = dim("n"), dim("m")
>>> (n + 1) * 2 - n
n + 2
>>> n * m == m * n
True
>>> (4 * n + 3) // 4, (4 * n + 3) % 4
(n, 3)
>>> minimum(n, n + 1), minimum(n, 512)
(n, min(n, 512))
>>> dim("(n + 3)//4*4")
4*((n + 3)//4)
>>> (n * m + m) // (n + 1), -(-n // 4)
(m, (n + 3)//4)
"""
from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping

from minirelax.ir.bounds import Ranges, is_nonnegative, less_equal
from minirelax.ir.division import floordiv, join_remainders, mod
from minirelax.ir.polynomial import Atom, Dim, DimExpr, apply, atom, atoms, linear, names, product, symbol, value

__all__ = ["Atom", "Dim", "DimExpr", "Ranges", "apply", "atoms", "ceildiv", "dim", "floordiv", "from_ast", "is_nonnegative",
           "less_equal", "linear", "maximum", "minimum", "mod", "names", "product", "rebuild", "simplify", "substitute",
           "symbol", "value"]


@functools.lru_cache(4096)
def dim(text: str) -> Dim:
    """The size called `text`, or the expression it spells: ``dim("2*n + 1")``.  Raises SyntaxError for anything else."""
    return from_ast(ast.parse(text.strip(), mode="eval").body)


def minimum(a: Dim, b: Dim, ranges: Ranges | None = None) -> Dim:
    """The smaller of the two; one of them if that can be shown."""
    return _extreme("min", a, b, ranges)


def maximum(a: Dim, b: Dim, ranges: Ranges | None = None) -> Dim:
    """The larger of the two; one of them if that can be shown."""
    return _extreme("max", a, b, ranges)


def ceildiv(a: Dim, b: Dim) -> Dim:
    """``a / b`` rounded up, for positive `b`."""
    return floordiv(a + b - 1, b)


def simplify(d: Dim, ranges: Ranges) -> Dim:
    """`d` with every atom reconsidered under `ranges`, and quotients joined with their remainders.

    >>> simplify(dim("(32*h + k)//32"), {"k": (0, 31)}), simplify(dim("i//n*n + i % n"), {})
    (h, i)
    """
    return join_remainders(rebuild(d, symbol, ranges))


def substitute(d: Dim, values: Mapping[str, Dim], ranges: Ranges | None = None) -> Dim:
    """`d` with names replaced by other sizes."""
    if isinstance(d, int) or not (names(d) & values.keys()):
        return d
    return rebuild(d, lambda name: values[name] if name in values else symbol(name), ranges)


def rebuild(d: Dim, leaf: Callable[[str], Dim], ranges: Ranges | None = None) -> Dim:
    """`d` computed again from its leaves, applying the laws that `ranges` now allows."""
    if isinstance(d, int):
        return d
    total: Dim = 0
    for mono, k in d.terms:
        term: Dim = k
        for f in mono:
            term = term * (leaf(f) if isinstance(f, str) else _rebuild_atom(f, leaf, ranges))
        total = total + term
    return total


def from_ast(node: ast.expr) -> Dim:
    """The size that a Python expression spells; SyntaxError if it is not one."""
    match node:
        case ast.Constant(value=int() as k) if not isinstance(k, bool):
            return k
        case ast.Name(id=name):
            return symbol(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return from_ast(operand) * -1
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](from_ast(left), from_ast(right))
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[a, b], keywords=[]):
            return _extreme(name, from_ast(a), from_ast(b), None)
    raise SyntaxError(f"not a size: {ast.unparse(node)}")


_BINARY: dict[type, Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.FloorDiv: floordiv, ast.Mod: mod}


def _extreme(op: str, a: Dim, b: Dim, ranges: Ranges | None) -> Dim:
    """The parts of nested ``min``s (or ``max``es) that no other part makes superfluous, nested again in one order."""
    if isinstance(a, int) and isinstance(b, int):
        return apply(op, a, b)

    def decides(p: Dim, q: Dim) -> bool:
        return less_equal(p, q, ranges) if op == "min" else less_equal(q, p, ranges)
    kept: list[Dim] = []
    for part in sorted({*_parts(op, a), *_parts(op, b)}, key=lambda d: (isinstance(d, int), str(d))):
        if not any(decides(k, part) for k in kept):
            kept = [*(k for k in kept if not decides(part, k)), part]
    *first, last = kept
    return functools.reduce(lambda rest, part: atom(op, part, rest), reversed(first), last)


def _parts(op: str, d: Dim) -> tuple[Dim, ...]:
    match d:
        case DimExpr(terms=((((Atom(op=o, left=a, right=b),), 1),))) if o == op:
            return (*_parts(op, a), *_parts(op, b))
    return (d,)


def _rebuild_atom(f: Atom, leaf: Callable[[str], Dim], ranges: Ranges | None) -> Dim:
    left, right = rebuild(f.left, leaf, ranges), rebuild(f.right, leaf, ranges)
    match f.op:
        case "//":
            return floordiv(left, right, ranges)
        case "%":
            return mod(left, right, ranges)
    return _extreme(f.op, left, right, ranges)

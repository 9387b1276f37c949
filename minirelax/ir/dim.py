"""Symbolic sizes: integer expressions kept in one normal form.

A size is an ``int`` or a `DimExpr`: a polynomial with integer coefficients over named sizes and over *atoms*, the
applications of ``//``, ``%``, ``min`` and ``max`` that no law removes.  Equal polynomials have equal normal forms, so ``==``
decides equality; graph level (shapes) and loop level (indices) share the same expressions.  A normal form is printed in words
that spell it again.  What is equal for deeper reasons, ``n//2 + (n + 1)//2`` and ``n``, or by a guard, `knowledge.prove` finds.

Named sizes are never negative.  Where a divisor is 0 an expression has no value; the laws hold wherever there is one.

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
>>> (n * m + m) // (n + 1), -(-n // 4), ceildiv(ceildiv(n, 2), 3)
(m, (n + 3)//4, (n + 5)//6)
>>> minimum(n + 1, m + 1) - minimum(n, m), maximum(n - 1, 0) + 1
(1, max(n, 1))
"""
from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping

from minirelax.ir.bounds import Ranges, is_nonnegative, less_equal
from minirelax.ir.division import floordiv, join_remainders, mod
from minirelax.ir.extremes import extreme, maximum, minimum
from minirelax.ir.polynomial import Atom, Dim, DimExpr, apply, atoms, linear, names, product, symbol, value

__all__ = ["Atom", "Dim", "DimExpr", "Ranges", "apply", "atoms", "ceildiv", "dim", "floordiv", "from_ast", "is_nonnegative",
           "less_equal", "linear", "maximum", "minimum", "mod", "names", "product", "rebuild", "simplify", "substitute",
           "symbol", "value"]


@functools.lru_cache(4096)
def dim(text: str) -> Dim:
    """The size called `text`, or the expression it spells: ``dim("2*n + 1")``.  Raises SyntaxError for anything else."""
    return from_ast(ast.parse(text.strip(), mode="eval").body)


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
            return extreme(name, from_ast(a), from_ast(b))
    raise SyntaxError(f"not a size: {ast.unparse(node)}")


_BINARY: dict[type, Callable[[Dim, Dim], Dim]] = {
    ast.Add: lambda a, b: a + b, ast.Sub: lambda a, b: a - b, ast.Mult: lambda a, b: a * b, ast.FloorDiv: floordiv, ast.Mod: mod}


def _rebuild_atom(f: Atom, leaf: Callable[[str], Dim], ranges: Ranges | None) -> Dim:
    left, right = rebuild(f.left, leaf, ranges), rebuild(f.right, leaf, ranges)
    match f.op:
        case "//":
            return floordiv(left, right, ranges)
        case "%":
            return mod(left, right, ranges)
    return extreme(f.op, left, right, ranges)

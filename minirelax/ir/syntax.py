"""The operators of scalar text and how tightly they bind; what the printer and the parser of kernels must agree on.

Precedences are Python's.  A polynomial over sizes and axes is a single scalar (`scalar.SizeValue`), not arithmetic on scalars:
``i + n`` is a size; arithmetic that happens to have only sizes as operands says so, ``size(i) + size(n)``.
"""
from __future__ import annotations

import ast

from minirelax.ir.scalar import Literal, Scalar

CHOICE, COMPARISON, SUM, PRODUCT, UNARY, POWER, ATOM = -1, 0, 5, 6, 7, 8, 9          # precedences that are mentioned by name

INFIX: dict[str, tuple[str, int, type[ast.operator]]] = {
    "bitwise_or": ("|", 1, ast.BitOr), "bitwise_xor": ("^", 2, ast.BitXor), "bitwise_and": ("&", 3, ast.BitAnd),
    "left_shift": ("<<", 4, ast.LShift), "right_shift": (">>", 4, ast.RShift),
    "add": ("+", SUM, ast.Add), "subtract": ("-", SUM, ast.Sub),
    "multiply": ("*", PRODUCT, ast.Mult), "divide": ("/", PRODUCT, ast.Div),
    "floor_divide": ("//", PRODUCT, ast.FloorDiv), "remainder": ("%", PRODUCT, ast.Mod), "power": ("**", POWER, ast.Pow)}
COMPARE: dict[str, tuple[str, type[ast.cmpop]]] = {
    "less": ("<", ast.Lt), "less_equal": ("<=", ast.LtE), "greater": (">", ast.Gt), "greater_equal": (">=", ast.GtE),
    "equal": ("==", ast.Eq), "not_equal": ("!=", ast.NotEq)}
PREFIX: dict[str, tuple[str, type[ast.unaryop]]] = {"negative": ("-", ast.USub), "invert": ("~", ast.Invert)}

SIZE_ARITHMETIC = ("add", "subtract", "multiply", "floor_divide", "remainder", "negative")     # what sizes can do themselves
UPDATES = {"sum": "+=", "prod": "*="}                      # reductions written as Python's in-place operators
NUMBER_NAMES = {"inf": float("inf"), "nan": float("nan")}


def number_text(value: complex | float | int | bool) -> str:
    """A number as text that reads back to the last bit; that of Python, but both parts of a complex number are always there.

    >>> number_text(0.5), number_text(complex(-0.0, float("nan")))
    ('0.5', 'complex(-0.0, nan)')
    """
    return f"complex({value.real!r}, {value.imag!r})" if isinstance(value, complex) else repr(value)


def sibling_dtype(args: tuple[Scalar, ...]) -> str | None:
    """The dtype that a bare number among `args` has: that of the first other argument that is not a bool, or bool if all are."""
    dtypes = [a.dtype for a in args if not isinstance(a, Literal)]
    return next((d for d in dtypes if d != "bool"), dtypes[0] if dtypes else None)

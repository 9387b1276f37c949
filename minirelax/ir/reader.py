"""What both parsers need: the text with its places, and the readers of types, sizes and numbers.

>>> parse_type("f32[n + 1, _]"), parse_type("Tuple[bool[()], Shape([n, 4])]")
(f32[n + 1, _], Tuple[bool[()], Shape([n, 4])])
"""
from __future__ import annotations

import ast
import functools

import numpy as np

from minirelax.errors import ParseError
from minirelax.ir.dim import Dim, from_ast, names
from minirelax.ir.syntax import NUMBER_NAMES
from minirelax.ir.types import NUMPY_DTYPES, Callable, Object, Shape, Storage, Tensor, Tuple, Type


class Reader:
    """A text, its syntax tree, and errors that show the line they are about."""

    def __init__(self, text: str):
        self.lines = text.split("\n")
        self.encoded = [line.encode("utf-8", "surrogatepass") for line in self.lines]      # ast counts columns in UTF-8 bytes
        try:
            self.tree = ast.parse(text)
        except SyntaxError as e:
            raise self._error_at(e.lineno or 0, f"not Python syntax: {e.msg}", "IR text is a subset of Python's") from None
        except (ValueError, RecursionError, MemoryError) as e:
            raise ParseError(f"not Python syntax: {e}", "IR text is a subset of Python's", where="") from None

    def error(self, node: ast.AST, what: str, hint: str = "") -> ParseError:
        """A ParseError about the line of `node`."""
        return self._error_at(getattr(node, "lineno", 0), what, hint)

    def _error_at(self, line: int, what: str, hint: str) -> ParseError:
        return ParseError(what, hint, where=self.place(line))

    def place(self, line: int) -> str:
        """A line as errors show it."""
        shown = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return f"line {line}   {shown}" if line else "the text"

    def type(self, node: ast.expr | None, of: ast.AST) -> Type:
        """The type that an annotation spells."""
        if node is None:
            raise self.error(of, "a type is missing", "write it after a colon: x: f32[n, 4]")
        try:
            if node.lineno == node.end_lineno:                     # most types occur often: read each text once
                return parse_type(self.encoded[node.lineno - 1][node.col_offset:node.end_col_offset].decode())
            return _type(node)
        except SyntaxError as e:
            raise self.error(node, e.what if isinstance(e, ParseError) else e.msg, TYPE_HINT) from None

    def size(self, node: ast.expr) -> Dim:
        """The size that an expression spells."""
        try:
            return from_ast(node)
        except SyntaxError as e:
            raise self.error(node, e.msg, "sizes are made of names, integers, + - * // %, min and max") from None

    def sizes(self, node: ast.expr) -> tuple[Dim, ...]:
        """A tuple of sizes."""
        return tuple(self.size(n) for n in self.items(node))

    def items(self, node: ast.expr) -> list[ast.expr]:
        """The elements of a tuple."""
        if not isinstance(node, ast.Tuple):
            raise self.error(node, "a tuple is expected here", "one element is written (x,)")
        return node.elts

    def name(self, node: ast.expr, what: str) -> str:
        """A bare name."""
        if not isinstance(node, ast.Name):
            raise self.error(node, f"{what} is expected here, by its name")
        return node.id

    def string(self, node: ast.expr, what: str) -> str:
        """A literal string."""
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            raise self.error(node, f"{what} is expected here, in quotes")
        return node.value


TYPE_HINT = ("types are written f32[n, 784], f32[_, 4], f32[()], f32[...], Tensor[n, 4], Shape([n, 4]), Shape(ndim=2), "
             "Tuple[...], Callable[[f32[n]], f32[2*n]], Callable[..., Object], Storage[4*n], Object")


def number(node: ast.expr) -> complex | float | int | bool | None:
    """The Python number that a node spells (also ``-1``, ``inf``, ``-inf``, ``nan``, ``complex(1.0, -0.0)``), or None."""
    match node:
        case ast.Constant(value=bool() | int() | float() | complex() as value):
            return value
        case ast.Name(id=name) if name in NUMBER_NAMES:
            return NUMBER_NAMES[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            inside = number(operand)
            return None if inside is None or isinstance(inside, bool) else -inside
        case ast.Call(func=ast.Name(id="complex"), args=[real, imag], keywords=[]):
            parts = number(real), number(imag)
            return complex(*parts) if all(isinstance(p, float) for p in parts) else None
    return None


def fits(value: complex | float | int | bool, dtype: str) -> bool:
    """Is a bare number a value of the dtype?  (An integer is also a float, a float a complex number; not the other way round.)"""
    kind = NUMPY_DTYPES[dtype].kind
    if kind == "b" or isinstance(value, bool):
        return kind == "b" and isinstance(value, bool)
    if kind == "c" or isinstance(value, complex):
        return kind == "c" and (isinstance(value, complex | float) or abs(value) < 1 << 1000)
    if kind == "f":
        return isinstance(value, float) or abs(value) < 1 << 1000
    bounds = np.iinfo(NUMPY_DTYPES[dtype])
    return isinstance(value, int) and int(bounds.min) <= value <= int(bounds.max)


@functools.lru_cache(4096)
def parse_type(text: str) -> Type:
    """The type that a text spells: the inverse of ``str``.  Raises ParseError."""
    try:
        return _type(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
        raise ParseError(getattr(e, "msg", None) or str(e), TYPE_HINT, where=text) from None


def _type(node: ast.expr) -> Type:
    match node:
        case ast.Name(id="Object"):
            return Object()
        case ast.Subscript(value=ast.Name(id=dtype), slice=inside) if dtype in NUMPY_DTYPES or dtype == "Tensor":
            return Tensor(None if dtype == "Tensor" else dtype, _shape(inside))
        case ast.Subscript(value=ast.Name(id="Tuple"), slice=inside):
            return Tuple(tuple(map(_type, inside.elts if isinstance(inside, ast.Tuple) else [inside])))
        case ast.Subscript(value=ast.Name(id="Storage"), slice=inside):
            return Storage(_size(inside))
        case ast.Subscript(value=ast.Name(id="Callable"), slice=ast.Tuple(elts=[ast.List(elts=params), result])):
            return Callable(tuple(map(_type, params)), _type(result))
        case ast.Subscript(value=ast.Name(id="Callable"), slice=ast.Tuple(elts=[ast.Constant(value=v), result])) if v is ...:
            return Callable(None, _type(result))
        case ast.Call(func=ast.Name(id="Shape"), args=[], keywords=[]):
            return Shape()
        case ast.Call(func=ast.Name(id="Shape"), args=[ast.List(elts=values)], keywords=[]):
            return Shape(tuple(map(_size, values)))
        case ast.Call(func=ast.Name(id="Shape"), args=[], keywords=[ast.keyword(arg="ndim", value=ast.Constant(value=int(ndim)))]
                      ) if not isinstance(ndim, bool):
            return Shape(ndim=ndim)
    raise SyntaxError(f"not a type: {ast.unparse(node)}")


def _shape(node: ast.expr) -> tuple[Dim | None, ...] | None:
    match node:
        case ast.Constant(value=value) if value is ...:
            return None
        case ast.Tuple(elts=sizes):
            return tuple(map(_dimension, sizes))
    return (_dimension(node),)


def _dimension(node: ast.expr) -> Dim | None:
    match node:
        case ast.Name(id="_") | ast.Constant(value="_"):
            return None
    return _size(node)


def _size(node: ast.expr) -> Dim:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):       # as Python annotations have it: f32["n", 4]
        node = ast.parse(node.value, mode="eval").body
    size = from_ast(node)
    if "_" in names(size):
        raise SyntaxError("_ is a size without a name: it is the whole size of an axis, or is left out: f32[_, 4], Shape(ndim=2)")
    return size

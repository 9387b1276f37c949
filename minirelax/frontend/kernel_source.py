"""From a Python function, or a text, to the kernel that it spells; errors name the user's file and line.

What a kernel says is the printed text of kernels.  A function may say it as Python programmers do: functions of NumPy and of
`math` under their modules' names, dtypes of this package or NumPy's under any name, and Python numbers of the scopes around
it, which are constants with the value that they have now.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
import types
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from minirelax.errors import ArgumentError, ParseError, line_text
from minirelax.ir.loop import Kernel
from minirelax.ir.parse_loops import KernelParser
from minirelax.ir.reader import TYPE_HINT, Reader, parse_type
from minirelax.ir.safe_kernel import safe_kernel
from minirelax.ir.syntax import number_text
from minirelax.ir.types import NUMPY_DTYPES, DType, Tensor, Type, dtype_name
from minirelax.ir.verify_kernel import verify_kernel

MODULES = ("numpy", "math", "minirelax")
ONE_FUNCTION = "def f(x: f32['n'], out: f32['n'], *, n): ..."
NO_SOURCE = "write it in a file or a notebook cell, or pass its text: minirelax.kernel('''def f(...): ...''')"


def read_kernel(source: types.FunctionType | str, pattern: str | None = None) -> Kernel:
    """The kernel, verified and safe for all sizes (see `safe_kernel`); ``pattern="opaque"`` marks it as not to be fused.

    Raises ParseError for text that is not a kernel and VerifyError for a kernel that breaks a rule.
    """
    if isinstance(source, str):
        reader, scope, declared = Reader(textwrap.dedent(source)), {}, {}
    elif isinstance(source, types.FunctionType):
        reader, scope, declared = _function_reader(source), _scope(source), source.__annotations__
    else:
        raise ArgumentError(f"a kernel is a function or its text, not of type {type(source).__name__}", ONE_FUNCTION)
    node = _definition(reader, source)
    node = ast.fix_missing_locations(_InPlainNames(scope, declared, _own_names(node)).visit(node))
    return _checked(reader, node, pattern)


def _checked(reader: Reader, node: ast.FunctionDef, pattern: str | None) -> Kernel:
    try:
        parser = KernelParser(reader, node)
        kernel = replace(parser.kernel(), pattern=None, in_place=())
    except RecursionError:
        raise reader.error(node, "an expression is nested too deeply", "name its parts: s0 = ...") from None
    if not kernel.outputs:
        raise reader.error(node, "nothing is stored", "a kernel stores to its last parameters: out[i] = x[i]")
    places = [reader.place(line) for line in (node.lineno, *parser.lines)]
    verify_kernel(kernel, places)
    kernel = safe_kernel(kernel, places)
    verify_kernel(kernel)
    return replace(kernel, pattern="opaque") if pattern == "opaque" else kernel


class SourceReader(Reader):
    """A function's text, whose lines stand in a file."""

    def __init__(self, text: str, file: str, first: int):
        self.file, self.first = file, first
        super().__init__(text)

    def place(self, line: int) -> str:
        """File, line and text."""
        shown = self.lines[line - 1].strip() if 0 < line <= len(self.lines) else ""
        return f"{os.path.basename(self.file)}:{self.first + max(line, 1) - 1}   {shown}".rstrip()

    def type(self, node: ast.expr | None, of: ast.AST) -> Type:
        """The type that an annotation, in plain names, spells."""
        if node is None:
            return super().type(node, of)
        try:
            return parse_type(ast.unparse(node))
        except ParseError as e:
            raise self.error(of, e.what, TYPE_HINT) from None


def _function_reader(function: types.FunctionType) -> Reader:
    code = function.__code__
    try:
        lines, first = inspect.getsourcelines(function)
    except (OSError, TypeError):
        where = line_text(code.co_filename, code.co_firstlineno)
        raise ParseError(f"the source of {function.__name__} cannot be found", NO_SOURCE, where) from None
    return SourceReader(textwrap.dedent("".join(lines)), code.co_filename, max(first, 1))


def _definition(reader: Reader, source: types.FunctionType | str) -> ast.FunctionDef:
    match reader.tree.body:
        case [ast.FunctionDef() as node]:
            pass
        case [node, *_]:
            raise reader.error(node, "a kernel is one function", ONE_FUNCTION)
        case _:
            raise ParseError("a kernel is one function", ONE_FUNCTION, where="the text")
    if len(node.decorator_list) > 1:
        raise reader.error(node.decorator_list[1], "a kernel has no other decorator", "its text is read; it is never called")
    if node.returns is not None and not (isinstance(node.returns, ast.Constant) and node.returns.value is None):
        raise reader.error(node, "a kernel returns nothing", "declare what it stores to as its last parameters: out: f32['n']")
    if not isinstance(source, str) and (node.name, _parameters(node)) != (source.__name__, _parameters_of(source)):
        raise reader.error(node, f"this is not the source of {source.__name__}: the file has changed", "import it again")
    node.decorator_list, node.returns = [], None
    return node


def _parameters(node: ast.FunctionDef) -> list[str]:
    a = node.args
    return [p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)]


def _parameters_of(function: types.FunctionType) -> list[str]:
    code = function.__code__
    return list(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount])


def _own_names(node: ast.FunctionDef) -> frozenset[str]:
    """The names that mean something of the kernel's own: parameters, loop indices, locals."""
    stored = (n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return frozenset((*_parameters(node), *stored))


def _scope(function: types.FunctionType) -> dict[str, object]:
    """What names mean where the function is defined."""
    scope = dict(function.__globals__)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    return scope


class _InPlainNames(ast.NodeTransformer):
    """Rewrites what names of the user's scope mean: ``np.exp`` to ``exp``, ``mr.f32`` to ``f32``, ``WIDTH`` to ``16``."""

    def __init__(self, scope: Mapping[str, object], declared: Mapping[str, object], own: frozenset[str]):
        self.scope, self.declared, self.own = scope, declared, own

    def visit_arg(self, node: ast.arg) -> ast.arg:
        annotation, known = node.annotation, self.declared.get(node.arg)
        if isinstance(known, Tensor | DType):  # Python has evaluated it
            annotation = _expression(str(known), node)
        elif isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.copy_location(ast.parse(annotation.value.strip(), mode="eval").body, annotation)
            except SyntaxError:
                return node  # the parser says what is wrong with it
        if annotation is not None:
            found = self.visit(annotation)
            is_scalar = isinstance(found, ast.Name) and found.id in NUMPY_DTYPES
            node.annotation = _expression(f"{found.id}[()]", node) if is_scalar else found
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        func = node.func if isinstance(node.func, ast.Name) and node.func.id in self.own else self.visit(node.func)
        node.func = func if isinstance(func, ast.Name) else node.func
        node.args = [self.visit(a) for a in node.args]
        node.keywords = [ast.keyword(k.arg, self.visit(k.value)) for k in node.keywords]
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        match node.value:
            case ast.Name(id=name) if name not in self.own and self._is_module(name):
                return self._meaning(getattr(self.scope.get(name, np), node.attr, None), node, node.attr)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.own or not isinstance(node.ctx, ast.Load) or node.id not in self.scope:
            return node
        return self._meaning(self.scope[node.id], node, node.id)

    def _is_module(self, name: str) -> bool:
        if not self.scope:  # a text
            return name in ("np", "mr", *MODULES)
        found = self.scope.get(name)
        return isinstance(found, types.ModuleType) and found.__name__ in MODULES

    def _meaning(self, found: object, node: ast.expr, name: str) -> ast.expr:
        match found:
            case DType():
                return _expression(found.name, node)
            case Tensor():
                return _expression(str(found), node)
            case type() if issubclass(found, np.generic) and dtype_name(found):
                return _expression(dtype_name(found), node)
            case np.generic() if dtype_name(found.dtype):
                return _expression(f"{dtype_name(found.dtype)}({number_text(found.item())})", node)
            case bool() | int() | float() | complex() if type(found) in (bool, int, float, complex):
                return _expression(number_text(found), node)
            case np.ufunc():
                return _expression(found.__name__, node)
        return ast.copy_location(ast.Name(name, ast.Load()), node)


def _expression(text: str, at: ast.expr) -> ast.expr:
    """The syntax tree of an expression, as if it stood where `at` stands."""
    tree = ast.parse(text, mode="eval").body
    for n in ast.walk(tree):
        ast.copy_location(n, at)
    return tree

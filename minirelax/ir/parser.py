"""Text to IR: the inverse of the printer, on top of Python's own `ast`.

>>> text = '''
... def main(x: f32[_]) -> f32[n]:
...     guard(n > 16)
...     with dataflow():
...         v0: f32[n] = match_cast(x, f32[n])
...         output(v0)
...     return v0'''
>>> str(parse(text)) == text.strip()
True
>>> parse("def main(x: f32[n]) -> f32[n]:\\n    return y")
Traceback (most recent call last):
minirelax.errors.ParseError: there is no value y
  at line 2   return y
  hint: values in reach: x
"""
from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping
from dataclasses import MISSING, fields

import numpy as np

from minirelax.ir.graph import (
    Alias,
    AllocStorage,
    AllocTensor,
    Array,
    Atom,
    Binding,
    CallFunction,
    CallKernel,
    CallLibrary,
    CallValue,
    Const,
    Constant,
    Dataflow,
    Expr,
    Function,
    Guard,
    Heap,
    MakeShape,
    MakeTuple,
    MatchCast,
    MatchShape,
    Module,
    RunKernel,
    RunLibrary,
    TupleItem,
    Var,
    View,
    operand_names,
    tuple_operands,
)
from minirelax.ir.op import OPS, Op
from minirelax.ir.parse_loops import kernel_from_ast, parse_kernel
from minirelax.ir.printer import CONTROL, KEYWORDS, bare_dtype
from minirelax.ir.reader import Reader, fits, number, parse_type
from minirelax.ir.syntax import number_text
from minirelax.ir.types import NUMPY_DTYPES, Callable, Storage, Tensor, Type

__all__ = ["parse", "parse_kernel", "parse_type"]

RELATIONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
STATEMENTS = "a function has guards, `with dataflow():`, `v0: f32[n] = op(x)`, effects (run_kernel(...)), and a return at its end"


def parse(text: str, constants: Mapping[str, np.ndarray | Array] | None = None) -> Module:
    """The module that the text spells.  Raises ParseError with the line.

    `constants` are the arrays, by name, of constants that the text gives by digest; without it, those still alive are found.
    """
    return ModuleParser(Reader(text), constants or {}).module()


class ModuleParser:
    """Reads the statements of a module."""

    def __init__(self, reader: Reader, arrays: Mapping[str, np.ndarray | Array]):
        self.reader, self.arrays, self.error = reader, arrays, reader.error
        self.functions = {n.name: n for n in reader.tree.body if isinstance(n, ast.FunctionDef) and not _is_kernel(n)}
        self.constants: dict[str, Constant] = {}

    def module(self) -> Module:
        """Everything, in the order of the text."""
        kernels, functions = [], []
        for node in self.reader.tree.body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(func=ast.Name(id="constant"), args=[content])):
                    self.constants[name] = Constant(name, self._array(name, self.reader.type(node.annotation, node), content))
                case ast.FunctionDef() if _is_kernel(node):
                    kernels.append(kernel_from_ast(self.reader, node))
                case ast.FunctionDef():
                    functions.append(FunctionParser(self, node).function())
                case _:
                    raise self.error(node, "not part of a module", "it has c0: f32[3] = constant([...]), kernels, functions")
        return Module(tuple(functions), tuple(kernels), tuple(self.constants.values()))

    def function_value(self, name: str) -> Var:
        """A function of the module as a value: its type is what its header says."""
        node = self.functions[name]
        params = tuple(self.reader.type(a.annotation, a) for a in (*node.args.args, *node.args.kwonlyargs))
        return Var(name, Callable(params, self.reader.type(node.returns, node)))

    def _array(self, name: str, type_: Type, content: ast.expr) -> Array:
        """A constant's array: from its numbers, from `arrays`, or a living one with that digest."""
        if not isinstance(type_, Tensor) or type_.shape is None or not all(isinstance(d, int) for d in type_.shape):
            raise self.error(content, f"a constant cannot have type {type_}", "its sizes are numbers: f32[3, 4]")
        if not (isinstance(content, ast.Constant) and isinstance(content.value, str)):
            return self._written_out(type_, content)
        given = self.arrays.get(name)
        found = given if isinstance(given, Array) else Array.recall(content.value) if given is None else Array(given)
        if found is None:
            raise self.error(content, f"the array {name} is not given", "parse(text, constants={name: array})")
        if found.type != type_:
            raise self.error(content, f"the array {name} has type {found.type}", f"the text says {type_}")
        return found

    def _written_out(self, type_: Tensor, content: ast.expr) -> Array:
        try:
            array = np.array(self._numbers(content, type_.dtype), type_.numpy_dtype)
        except (ValueError, OverflowError) as e:
            raise self.error(content, f"not an array of {type_.dtype}: {e}") from None
        if array.size != np.prod(type_.shape, dtype=int) or (array.size and array.shape != type_.shape):
            raise self.error(content, f"an array of shape {array.shape}", f"the type says {type_}")
        return Array(array.reshape(type_.shape))

    def _numbers(self, node: ast.expr, dtype: str) -> object:
        if isinstance(node, ast.List):
            return [self._numbers(n, dtype) for n in node.elts]
        value = number(node)
        if value is None or not fits(value, dtype):
            raise self.error(node, f"{ast.unparse(node)} is not an element of type {dtype}")
        return value


class FunctionParser:
    """Reads one graph-level function; `scope` maps the names so far to their variables."""

    def __init__(self, module: ModuleParser, node: ast.FunctionDef):
        self.module, self.node, self.reader, self.error = module, node, module.reader, module.error
        self.scope: dict[str, Var] = {name: c.var for name, c in module.constants.items()}

    def function(self) -> Function:
        """The whole function."""
        node, a = self.node, self.node.args
        if a.posonlyargs or a.vararg or a.kwarg or a.defaults or any(a.kw_defaults):
            raise self.error(node, "a function has plain parameters", "then * and the bound ones: (x: f32[n], *, w: f32[4])")
        params, bound = tuple(map(self._param, a.args)), tuple(map(self._param, a.kwonlyargs))
        declared = self.reader.type(node.returns, node)
        *body, last = node.body
        guards = []
        while body and _called(body[0]) == "guard":
            guards.append(self._guard(body.pop(0)))
        parts = tuple(self._part(s) for s in body)
        if not isinstance(last, ast.Return) or last.value is None:
            raise self.error(last, "a return is missing at the end", STATEMENTS)
        result, = self._resolved([(last.value, self._operand(last.value))])
        returns = None if result.type == declared else declared
        private, group = self._decorators()
        return Function(node.name, params, parts, result, bound, tuple(guards), private, returns, group)

    def _param(self, node: ast.arg) -> Var:
        self.scope[node.arg] = Var(node.arg, self.reader.type(node.annotation, node))
        return self.scope[node.arg]

    def _decorators(self) -> tuple[bool, bool]:
        """Is the function private, and is it a group?"""
        match self.node.decorator_list:
            case []:
                return False, False
            case [ast.Name(id="private" | "group" as name)]:
                return True, name == "group"
        raise self.error(self.node.decorator_list[0], "not a decorator of functions", "@private, @group or @kernel")

    def _guard(self, statement: ast.Expr) -> Guard:
        match statement.value.args:
            case [ast.Compare(left=left, ops=[op], comparators=[right])] if type(op) in RELATIONS:
                return Guard(RELATIONS[type(op)], self.reader.size(left), self.reader.size(right))
        raise self.error(statement, "not a guard", "guard(n > 16)")

    def _part(self, statement: ast.stmt) -> Dataflow | Binding:
        if not isinstance(statement, ast.With):
            return self._binding(statement)
        if len(statement.items) != 1 or _call_name(statement.items[0].context_expr) != "dataflow":
            raise self.error(statement, "not a block of a function", "with dataflow():")
        *body, last = statement.body
        bindings = tuple(map(self._binding, body))
        if _called(last) != "output":
            raise self.error(last, "output(...) is missing at the end of the block", "name the values that are read after it")
        return Dataflow(bindings, tuple(self._variable(a) for a in last.value.args))

    def _binding(self, statement: ast.stmt) -> Binding:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                type_ = self.reader.type(annotation, statement)
                binding = Binding(Var(name, type_), self._expr(value, type_))
                self.scope[name] = binding.var
                return binding
            case ast.Assign(targets=[ast.Subscript(value=ast.Name(id="heap"), slice=ast.Constant(value=int() as slot))]):
                return Binding(None, Heap(slot, self.reader.size(statement.value)))
            case ast.Expr(value=ast.Call(func=ast.Name(id=name)) as call) if name in EFFECTS:
                return Binding(None, getattr(self, EFFECTS[name])(call))
            case ast.Expr(value=ast.Call(func=ast.Name(id="run_cond" | "run_while" | "run_scan" as name)) as call):
                return Binding(None, self._control(call, name))
        raise self.error(statement, "not a statement of a function", STATEMENTS)

    def _expr(self, node: ast.expr, type_: Type) -> Expr:
        match node:
            case ast.Tuple(elts=items):
                return MakeTuple(self._atoms(items))
            case ast.Subscript(value=value, slice=ast.Constant(value=int() as index)):
                return TupleItem(self._variable(value), index)
            case ast.Name():
                return Alias(self._variable(node))
            case ast.Call(func=ast.Name(id=name), args=args) if isinstance(getattr(self.scope.get(name), "type", None), Callable):
                return CallValue(self.scope[name], self._atoms(args))
            case ast.Call(func=ast.Name(id=name), args=args):
                return self._call(node, name, args, type_)
        raise self.error(node, f"not an operation: {ast.unparse(node)}", "one operation a line: v0: f32[n] = add(x, y)")

    def _call(self, node: ast.Call, name: str, args: list[ast.expr], type_: Type) -> Expr:
        match name, args:
            case "match_cast", [value, target]:
                return MatchCast(*self._atoms([value]), self.reader.type(target, node))
            case "call_kernel", [kernel, *operands]:
                return CallKernel(self.reader.name(kernel, "a kernel"), self._atoms(operands), self._sizes(node))
            case "call_library", [routine, *operands]:
                name = self.reader.string(routine, "a routine")
                return CallLibrary(name, self._atoms(operands), *self._options_and_sizes(node))
            case "call_function", [function, *operands]:
                return CallFunction(self.reader.name(function, "a function"), self._atoms(operands))
            case "shape", sizes if not node.keywords:
                return MakeShape(tuple(map(self.reader.size, sizes)))
            case "cond" | "while_loop" | "scan", _:
                return self._control(node, name)
            case "alloc_storage", [] if isinstance(type_, Storage):
                return AllocStorage(type_.bytes)
            case "alloc_tensor", [] | [_]:
                offsets = [self.reader.size(k.value) for k in node.keywords if k.arg == "offset" and args]
                return AllocTensor(self._atoms(args), *offsets)
            case "view", [value]:
                return View(self._variable(value), *(self.reader.size(k.value) for k in node.keywords if k.arg == "offset"))
        if name in OPS:
            return self._op(node, OPS[name])
        if name in self.module.functions:
            if node.keywords:
                raise self.error(node, f"{name} takes no keywords", "pass sizes that no tensor shows as a value: shape(n, m)")
            return CallFunction(name, self._atoms(args))
        known = [*OPS, *self.module.functions, *KEYWORDS]
        close = difflib.get_close_matches(name, known, 3)
        what = f"{name} cannot be called so" if name in KEYWORDS else f"no op or function is called {name}"
        raise self.error(node, what, f"did you mean {' or '.join(close)}?" if close and name not in KEYWORDS else "")

    def _op(self, node: ast.Call, cls: type[Op]) -> Op:
        """An op: operands by position, attributes by keyword; attributes with a default may be left out."""
        names, several = operand_names(cls), tuple_operands(cls)
        if [isinstance(a, ast.Tuple) for a in node.args] != [n in several for n in names]:
            shown = ", ".join(f"({n}, ...)" if n in several else n for n in names)
            raise self.error(node, f"these are not the operands of {cls.opname()}", f"they are ({shown}); attributes have names")
        flat = iter(self._atoms([e for a in node.args for e in (a.elts if isinstance(a, ast.Tuple) else [a])]))
        operands = {n: tuple(next(flat) for _ in a.elts) if isinstance(a, ast.Tuple) else next(flat)
                    for n, a in zip(names, node.args, strict=True)}
        attributes = dict(self._options(node.keywords))
        rest = {f.name: f.default is MISSING and f.default_factory is MISSING for f in fields(cls) if f.name not in names}
        wrong = [*(a for a in attributes if a not in rest), *(a for a, needed in rest.items() if needed and a not in attributes)]
        if wrong:
            raise self.error(node, f"{cls.opname()}: attribute {wrong[0]} is {'missing' if wrong[0] in rest else 'unknown'}",
                             f"attributes: {', '.join(rest) or 'none'}")
        return cls(**operands, **attributes)

    def _control(self, node: ast.Call, name: str) -> Expr:
        """Control flow: the fields in order, those after the operands by keyword; a `Cond` has its operands one by one."""
        cls, rest, given = CONTROL[name], list(node.args), {k.arg: k.value for k in node.keywords}
        found: dict[str, object] = {}
        for field in fields(cls):
            if field.name in ("out", "spare", "length", "reverse"):
                part = given.pop(field.name, None)
            elif field.name == "args" and "then" in found:
                part, rest = ast.Tuple(rest), []
            else:
                part = rest.pop(0) if rest else None
            if part is None and field.default is not MISSING:
                continue
            if part is None:
                raise self.error(node, f"{name}: {field.name} is missing", CONTROL_HINT[name.removeprefix("run_")])
            found[field.name] = self._control_field(field.name, part)
        if rest or given:
            raise self.error(node, f"{name} has too many parts", CONTROL_HINT[name.removeprefix("run_")])
        return cls(**found)

    def _control_field(self, name: str, node: ast.expr) -> object:
        match name:
            case "then" | "otherwise" | "test" | "body":
                return self.reader.name(node, "a function")
            case "condition":
                return self._atoms([node])[0]
            case "length":
                return self.reader.size(node)
            case "reverse":
                return self._attribute(node) is True
        return self._atoms(self.reader.items(node))

    def _run_kernel(self, node: ast.Call) -> RunKernel:
        if not node.args:
            raise self.error(node, "a kernel's name is missing", "run_kernel(kernel, x, out=(y,), sizes=(n,))")
        inputs, out = self._with_out(node, node.args[1:])
        name, sizes = self.reader.name(node.args[0], "a kernel"), self._sizes(node, ("out", "work"))
        return RunKernel(name, inputs, out, sizes, self._work(node))

    def _work(self, node: ast.Call) -> tuple[Atom, ...]:
        return next((self._atoms(self.reader.items(k.value)) for k in node.keywords if k.arg == "work"), ())

    def _run_library(self, node: ast.Call) -> RunLibrary:
        if not node.args:
            raise self.error(node, "a routine's name is missing", 'run_library("sort", x, out=(y,))')
        inputs, out = self._with_out(node, node.args[1:])
        name = self.reader.string(node.args[0], "a routine")
        return RunLibrary(name, inputs, out, *self._options_and_sizes(node, ("out", "work")), self._work(node))

    def _options_and_sizes(self, node: ast.Call, others: tuple[str, ...] = ()) -> tuple[tuple, tuple]:
        """What follows the operands of a library call: an op's attributes, a routine's sizes; `others` are keywords besides."""
        options = self._options([k for k in node.keywords if k.arg not in ("sizes", *others)])
        return options, self._sizes(node, tuple(k.arg for k in node.keywords))

    def _match_shape(self, node: ast.Call) -> MatchShape:
        if len(node.args) != 2:
            raise self.error(node, "not a check of sizes", 'match_shape(x, (n, 784), binds=("n",))')
        binds = dict(self._options(node.keywords)).get("binds", ())
        if not (isinstance(binds, tuple) and all(isinstance(b, str) for b in binds)):
            raise self.error(node, "binds are the names of sizes", 'binds=("n",)')
        sizes = self.reader.items(node.args[1])
        pattern = tuple(None if isinstance(n, ast.Name) and n.id == "_" else self.reader.size(n) for n in sizes)
        return MatchShape(self._variable(node.args[0]), pattern, binds)

    def _with_out(self, node: ast.Call, inputs: list[ast.expr]) -> tuple[tuple[Atom, ...], tuple[Atom, ...]]:
        out = next((k.value for k in node.keywords if k.arg == "out"), None)
        if out is None:
            raise self.error(node, "out=(...) is missing", "name the tensors that are written")
        atoms = self._atoms([*inputs, *self.reader.items(out)])
        return atoms[:len(inputs)], atoms[len(inputs):]

    def _sizes(self, node: ast.Call, others: tuple[str, ...] = ()) -> tuple:
        unknown = [k.arg for k in node.keywords if k.arg not in ("sizes", *others)]
        if unknown:
            raise self.error(node, f"unknown keyword {unknown[0]}", "sizes=(n, 4) are the size parameters' values")
        return next((self.reader.sizes(k.value) for k in node.keywords if k.arg == "sizes"), ())

    def _options(self, keywords: list[ast.keyword]) -> tuple[tuple[str, object], ...]:
        named = tuple((k.arg, self._attribute(k.value)) for k in keywords if k.arg is not None)
        if len(named) != len(list(keywords)):
            raise self.error(next(k for k in keywords if k.arg is None), "** is no attribute", "write each as name=value")
        return named

    def _attribute(self, node: ast.expr) -> object:
        """A number, string, None, size, or tuple of these; a bare name is a size."""
        if (value := number(node)) is not None:
            return value
        match node:
            case ast.Constant(value=str() | None as value):
                return value
            case ast.Tuple(elts=items):
                return tuple(map(self._attribute, items))
        return self.reader.size(node)

    def _atoms(self, nodes: list[ast.expr]) -> tuple[Atom, ...]:
        return self._resolved([(n, self._operand(n)) for n in nodes])

    def _resolved(self, operands: list[tuple[ast.expr, Atom | float | int | bool]]) -> tuple[Atom, ...]:
        """Operands, with bare numbers given the dtype of the first array (see `printer.bare_dtype`)."""
        bare = None
        if any(not isinstance(a, Var) for _, a in operands):
            bare = bare_dtype([a for _, a in operands if isinstance(a, Var)])
        return tuple(a if isinstance(a, Var | Const) else self._const(node, a, bare) for node, a in operands)

    def _const(self, node: ast.expr, value: float | int | bool, dtype: str | None) -> Const:
        if dtype is None:
            text, example = number_text(value), "c64" if isinstance(value, complex) else "f32"
            raise self.error(node, f"{text} has no dtype here", f"spell it: {example}({text})")
        if not fits(value, dtype):
            text, example = number_text(value), "c128" if isinstance(value, complex) else "f64"
            raise self.error(node, f"{text} is no {dtype}", f"spell its dtype: {example}({text}), and cast an operand")
        return Const(value, dtype)

    def _operand(self, node: ast.expr) -> Atom | float | int | bool:
        """A variable, a scalar with its dtype, or a bare number."""
        match node:
            case ast.Call(func=ast.Name(id=dtype), args=[inside]) if dtype in NUMPY_DTYPES and number(inside) is not None:
                return self._const(inside, number(inside), dtype)
            case ast.Name(id=name) if name in self.scope:
                return self.scope[name]
        value = number(node)
        return self._variable(node) if value is None else value

    def _variable(self, node: ast.expr) -> Var:
        match node:
            case ast.Name(id=name):
                if name in self.scope:
                    return self.scope[name]
                if name in self.module.functions:
                    return self.module.function_value(name)
                names = list(self.scope)
                close = difflib.get_close_matches(name, names, 5) or names[-5:]
                raise self.error(node, f"there is no value {name}", f"values in reach: {', '.join(close) or 'none'}")
        raise self.error(node, f"a value is expected, not {ast.unparse(node)}", "one operation a line: name its operands first")


CONTROL_HINT = {
    "cond": "cond(v0, then, otherwise, x, y)", "while_loop": "while_loop(test, body, (x,), (v0, v1))",
    "while": "run_while(test, body, (x,), (v0,), out=(v1,), spare=(v2,))",
    "scan": "scan(body, (x,), (v0,), (xs,), length=n, reverse=False)"}
EFFECTS = {"run_kernel": "_run_kernel", "run_library": "_run_library", "match_shape": "_match_shape"}


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any("kernel" in (_call_name(d), getattr(d, "id", None)) for d in node.decorator_list)


def _call_name(node: ast.expr) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


def _called(statement: ast.stmt) -> str | None:
    return _call_name(statement.value) if isinstance(statement, ast.Expr) else None



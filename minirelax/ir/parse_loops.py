"""Text to loop level: kernels and their scalars.

>>> print(parse_kernel('''
... @kernel
... def total(x: f32[n, m], out: f32[n], *, n, m):
...     for i in range(n):
...         out[i] = 0.0
...         for k in range(m):
...             out[i] += x[i, k]''').blocks[0].reduction)
sum
"""
from __future__ import annotations

import ast
import operator

from minirelax.errors import ParseError
from minirelax.ir.dim import Dim, DimExpr, floordiv, maximum, minimum, mod, symbol
from minirelax.ir.graph import Var
from minirelax.ir.loop import REDUCTIONS, Axis, Block, Kernel, neutral
from minirelax.ir.reader import Reader, fits, number
from minirelax.ir.scalar import LAZY, Index, Scalar, apply, literal, load, size_value
from minirelax.ir.syntax import COMPARE, INFIX, PREFIX, UPDATES, number_text, sibling_dtype
from minirelax.ir.types import NUMPY_DTYPES, Tensor

Value = complex | int | float | bool | DimExpr | Scalar           # a number without a dtype, a size, or a scalar

REDUCTION_OF = {function: reduction for reduction, function in REDUCTIONS.items()}
INFIX_NAMES = {node: name for name, (_, _, node) in INFIX.items()}
COMPARE_NAMES = {node: name for name, (_, node) in COMPARE.items()}
PREFIX_NAMES = {node: name for name, (_, node) in PREFIX.items()}
ON_SIZES = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: floordiv, ast.Mod: mod}
STATEMENTS = "a kernel has `t = local(type)`, `for i in range(n):`, `s0 = scalar` and `buffer[i] = scalar`"
INSTEAD = {                                                # Python that people write, and what a kernel has for it
    ast.If: "choose the value: out[i] = a if condition else b",
    ast.BoolOp: "write logical_and(a, b) or logical_or(a, b)", ast.Not: "write logical_not(a)",
    ast.Compare: "one comparison at a time: logical_and(a < b, b < c)",
    ast.AugAssign: "a reduction starts with a store before its loops: out[i] = 0.0, then for k in range(m): out[i] += x[i, k]",
    ast.Return: "a kernel returns nothing: it stores to parameters that come last",
    ast.While: "the number of rounds must be a size: for i in range(n):"}


def parse_kernel(text: str) -> Kernel:
    """The one kernel that the text defines.  Raises ParseError."""
    reader = Reader(text)
    match reader.tree.body:
        case [ast.FunctionDef() as node]:
            return kernel_from_ast(reader, node)
    raise ParseError("one kernel is expected", "@kernel, then def name(buffers...):", where="the text")


def kernel_from_ast(reader: Reader, node: ast.FunctionDef) -> Kernel:
    """The kernel that a function definition spells; its decorator is ``kernel``, alone or with a pattern and what is in place."""
    try:
        return KernelParser(reader, node).kernel()
    except RecursionError:
        raise reader.error(node, "an expression is nested too deeply", "name its parts: s0 = ...") from None


class KernelParser:
    """Reads one kernel, statement by statement."""

    def __init__(self, reader: Reader, node: ast.FunctionDef):
        self.reader, self.node, self.error = reader, node, reader.error
        arguments = node.args
        if arguments.posonlyargs or arguments.vararg or arguments.kwarg or arguments.defaults or any(arguments.kw_defaults):
            raise self.error(node, "a kernel has plain parameters", "buffers, then * and the sizes: (x: f32[n], *, n)")
        self.params = [Var(a.arg, self._buffer_type(a.annotation, a)) for a in arguments.args]
        self.sizes = tuple(a.arg for a in arguments.kwonlyargs)
        self.local: list[Var] = []
        self.types: dict[str, Tensor] = {v.name: v.type for v in self.params}
        self.shared: dict[str, Scalar] = {}
        self.axes: list[str] = []
        self.blocks: list[Block] = []
        self.lines: list[int] = []                         # of each block's store

    def kernel(self) -> Kernel:
        """The whole kernel; a parameter is an output if a block stores to it."""
        self._statements(self.node.body)
        stored = {b.buffer for b in self.blocks}
        inputs = tuple(v for v in self.params if v.name not in stored)
        outputs = tuple(v for v in self.params if v.name in stored)
        if (*inputs, *outputs) != tuple(self.params):
            raise self.error(self.node, f"{outputs[0].name} is stored to, but stands before an input", "outputs come last")
        return Kernel(self.node.name, inputs, outputs, self.sizes, tuple(self.local), tuple(self.blocks), **self._facts())

    def _facts(self) -> dict[str, object]:
        """What the decorator says."""
        match self.node.decorator_list:
            case [] | [ast.Name(id="kernel")]:
                return {}
            case [ast.Call(func=ast.Name(id="kernel"), args=[], keywords=keywords)]:
                return {k.arg: self._fact(k) for k in keywords}
        raise self._no_decorator()

    def _fact(self, keyword: ast.keyword) -> object:
        match keyword:
            case ast.keyword(arg="pattern", value=value):
                return self.reader.string(value, "a pattern")
            case ast.keyword(arg="in_place", value=ast.Dict(keys=keys, values=values)) if None not in keys:
                return tuple((self.reader.string(k, "an input"), self.reader.string(v, "an output"))
                             for k, v in zip(keys, values, strict=True))
        raise self._no_decorator()

    def _no_decorator(self) -> ParseError:
        hint = '@kernel or @kernel(pattern="reduce", in_place={"x": "out"})'
        return self.error(self.node.decorator_list[0], "not a decorator of kernels", hint)

    def _statements(self, statements: list[ast.stmt]) -> None:
        """The kernel's own level: local buffers and loop nests."""
        rest = list(statements)
        while rest:
            match rest[0]:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="local"), args=[type_])):
                    self.local.append(Var(name, self._buffer_type(type_, rest[0])))
                    self.types[name] = self.local[-1].type
                    rest = rest[1:]
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    rest = rest[1:]
                case ast.For():
                    self._nest(rest[:1], ())
                    rest = rest[1:]
                case _:                                               # a nest without loops, or with reduction loops only
                    size = next((i + 1 for i, s in enumerate(rest) if _is_store(s)), len(rest))
                    size += size < len(rest) and isinstance(rest[size], ast.For) and _is_update_of(rest[size - 1], rest[size])
                    self._nest(rest[:size], ())
                    rest = rest[size:]

    def _nest(self, body: list[ast.stmt], axes: tuple[Axis, ...]) -> None:
        """One loop nest: loops, then a store; or a store of the neutral element, then reduction loops and an update."""
        if len(body) == 1 and isinstance(body[0], ast.For):
            return self._nest(body[0].body, (*axes, self._axis(body[0])))
        self.axes, self.shared = [a.name for a in axes], {}
        store, *rest = self._share(body)
        if not _is_store(store):
            raise self.error(store, "a store is expected here", INSTEAD.get(type(store), STATEMENTS))
        self.lines.append(store.lineno)
        if not rest:
            return self.blocks.append(self._plain(store, axes))
        if len(rest) != 1 or not isinstance(rest[0], ast.For):
            raise self.error(rest[0], "a loop nest has one store", "after it come only the loops of a reduction into it")
        over: tuple[Axis, ...] = ()
        while len(rest) == 1 and isinstance(rest[0], ast.For):
            over, rest = (*over, self._axis(rest[0])), rest[0].body
        self.axes += [a.name for a in over]
        update, *more = self._share(rest)
        if more:
            raise self.error(more[0], "a reduction has one update, at the end", STATEMENTS)
        self.blocks.append(self._reduction(store, update, axes, over))

    def _plain(self, store: ast.Assign, axes: tuple[Axis, ...]) -> Block:
        buffer, indices, dtype = self._target(store.targets[0])
        return Block(axes, buffer, indices, self.scalar(store.value, dtype))

    def _reduction(self, store: ast.Assign, update: ast.stmt, axes: tuple[Axis, ...], over: tuple[Axis, ...]) -> Block:
        buffer, indices, dtype = self._target(store.targets[0])
        reduction, target, value = self._update(update)
        if (buffer, indices) != self._target(target)[:2]:
            raise self.error(update, "the update is of another place than the store before the loops", "use equal indices")
        start = neutral(reduction, dtype)
        if self.scalar(store.value, dtype) is not start:
            raise self.error(store, f"a {reduction} of {dtype} starts from {start}", "combine with other values in another nest")
        return Block(axes, buffer, indices, self.scalar(value, dtype), over, reduction)

    def _update(self, statement: ast.stmt) -> tuple[str, ast.expr, ast.expr]:
        """Reduction, target and value of ``b += v``, ``b *= v``, ``b = maximum(b, v)`` and the like."""
        match statement:
            case ast.AugAssign(target=target, op=op, value=value):
                for reduction, symbol_ in UPDATES.items():
                    if INFIX[REDUCTIONS[reduction]][2] is type(op) and symbol_:
                        return reduction, target, value
            case ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id=name), args=[first, value], keywords=[])):
                if name in REDUCTION_OF and _same(first, target):
                    return REDUCTION_OF[name], target, value
        raise self.error(statement, "not an update of a reduction", "b += v, b *= v, or b = maximum(b, v) and the like")

    def _share(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Read the leading ``s0 = ...`` lines; what follows them."""
        rest = list(body)
        while rest:
            match rest[0]:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    found = self._value(value)
                    self.shared[name] = found if isinstance(found, Scalar) else self._typed(value, found, None)
                    rest.pop(0)
                case _:
                    return rest
        raise self.error(body[-1] if body else self.node, "a store is missing", STATEMENTS)

    def _axis(self, loop: ast.For) -> Axis:
        match loop:
            case ast.For(target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[extent]), orelse=[]):
                return Axis(name, self.reader.size(extent))
        raise self.error(loop, "not a loop of a kernel", "for i in range(n):")

    def _target(self, node: ast.expr) -> tuple[str, tuple[Index, ...], str]:
        """Buffer, indices and dtype of ``buffer[indices]``."""
        if not (isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name)):
            raise self.error(node, "an element of a buffer is expected", "buffer[i, j]; the element of a scalar buffer is b[()]")
        if node.value.id not in self.types:
            raise self.error(node, f"there is no buffer {node.value.id}", f"there are {', '.join(self.types) or 'none'}")
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return node.value.id, tuple(map(self._index, indices)), self.types[node.value.id].dtype

    def _index(self, node: ast.expr) -> Index:
        found = self._value(node)
        if isinstance(found, complex | float | bool):
            raise self.error(node, f"{found} is no index", "indices are integers")
        return found

    def scalar(self, node: ast.expr, dtype: str | None) -> Scalar:
        """The scalar that an expression spells where a value of `dtype` is expected."""
        if isinstance(node, ast.IfExp):
            return self._choice(node.test, (node.body, node.orelse), dtype)
        return self._typed(node, self._value(node), dtype)

    def _choice(self, test: ast.expr, sides: tuple[ast.expr, ast.expr], dtype: str | None) -> Scalar:
        """``a if condition else b``; a bare number has the dtype of the other side, or that which is expected."""
        condition = self.scalar(test, None)
        values = [self._choice(n.test, (n.body, n.orelse), dtype) if isinstance(n, ast.IfExp) else self._value(n) for n in sides]
        sibling = sibling_dtype(tuple(v for v in values if isinstance(v, Scalar))) or dtype
        return apply(LAZY, condition, *(self._typed(n, v, sibling) for n, v in zip(sides, values, strict=True)))

    def _typed(self, node: ast.expr, value: Value, dtype: str | None) -> Scalar:
        """A number gets its dtype; a size becomes a scalar."""
        if isinstance(value, Scalar):
            return value
        if isinstance(value, DimExpr):
            return size_value(value)
        if dtype is None:
            text, example = number_text(value), "c64" if isinstance(value, complex) else "f32"
            raise self.error(node, f"{text} has no dtype here", f"spell it: {example}({text})")
        if not fits(value, dtype):
            text = number_text(value)
            hint = "convert the other: c64(...)" if isinstance(value, complex) else f"cast: {dtype}(f64({text}))"
            raise self.error(node, f"{text} is no {dtype}", f"spell another dtype, or {hint}")
        return literal(value, dtype)

    def _value(self, node: ast.expr) -> Value:
        if (found := number(node)) is not None:
            return found
        match node:
            case ast.Name(id=name):
                return self._named(node, name)
            case ast.Subscript():
                return load(*self._target(node))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in PREFIX_NAMES:
                inside = self._value(operand)
                sized = isinstance(op, ast.USub) and isinstance(inside, DimExpr)
                return -inside if sized else apply(PREFIX_NAMES[type(op)], self._typed(operand, inside, None))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in INFIX_NAMES:
                a, b = self._value(left), self._value(right)
                if _is_size(a) and _is_size(b) and type(op) in ON_SIZES:
                    return ON_SIZES[type(op)](a, b)
                return self._apply(INFIX_NAMES[type(op)], [left, right], [a, b])
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in COMPARE_NAMES:
                return self._apply(COMPARE_NAMES[type(op)], [left, right], [self._value(left), self._value(right)])
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self._choice(test, (yes, no), None)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if args:
                return self._call(node, name, args, keywords)
        hint = INSTEAD.get(type(getattr(node, "op", node)), INSTEAD.get(type(node), "arithmetic, one comparison, or a call f(x)"))
        raise self.error(node, f"not a scalar: {ast.unparse(node)}", hint)

    def _named(self, node: ast.expr, name: str) -> Value:
        if name in self.shared:
            return self.shared[name]
        if name in self.axes or name in self.sizes:
            return symbol(name)
        if name in self.types:
            raise self.error(node, f"{name} is a buffer", f"read an element of it: {name}[...], or {name}[()]")
        raise self.error(node, f"there is no axis, size or scalar {name}", "sizes are parameters after *; scalars: s0 = ...")

    def _call(self, node: ast.expr, name: str, args: list[ast.expr], keywords: list[ast.keyword]) -> Value:
        values = [self._value(a) for a in args]
        if name in ("size", "min", "max"):
            return self._size_call(node, name, values)
        if name in NUMPY_DTYPES and len(args) == 1 and not keywords:
            value = values[0]
            if isinstance(value, bool | int | float | complex):
                return self._typed(node, value, name)
            return apply("cast", self._typed(args[0], value, None), dtype=name)
        match keywords:
            case []:
                return self._apply(name, args, values)
            case [ast.keyword(arg="dtype", value=ast.Name(id=dtype))] if dtype in NUMPY_DTYPES:
                return self._apply(name, args, values, dtype)
        raise self.error(node, f"{name} has an unknown keyword", "only dtype=f32 (or another dtype) is known here")

    def _size_call(self, node: ast.expr, name: str, values: list[Value]) -> Dim | Scalar:
        if not all(map(_is_size, values)) or len(values) != (1 if name == "size" else 2):
            raise self.error(node, f"{name} is for sizes", "on scalars, use minimum and maximum")
        return size_value(values[0]) if name == "size" else (minimum if name == "min" else maximum)(*values)

    def _apply(self, function: str, nodes: list[ast.expr], values: list[Value], dtype: str | None = None) -> Scalar:
        known = tuple(v if isinstance(v, Scalar) else size_value(v) for v in values if isinstance(v, Scalar | DimExpr))
        sibling = sibling_dtype(known)
        return apply(function, *(self._typed(n, v, sibling) for n, v in zip(nodes, values, strict=True)), dtype=dtype)

    def _buffer_type(self, node: ast.expr | None, of: ast.AST) -> Tensor:
        found = self.reader.type(node, of)
        if not isinstance(found, Tensor) or found.shape is None or None in found.shape:
            raise self.error(of, f"a buffer cannot have type {found}", "give all its sizes: f32[n, 4]")
        return found


def _is_size(value: Value) -> bool:
    return isinstance(value, int | DimExpr) and not isinstance(value, bool)


def _is_store(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Subscript)


def _is_update_of(store: ast.stmt, loop: ast.stmt) -> bool:
    """Is `loop` a nest without a start of its own that updates the place of `store`?"""
    while isinstance(loop, ast.For) and len(loop.body) == 1 and isinstance(loop.body[0], ast.For):
        loop = loop.body[0]
    match [s for s in loop.body if not (isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name))]:
        case [ast.AugAssign()]:
            return True
        case [ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id=name), args=[first, _]))]:
            return name in REDUCTION_OF and _same(first, target) and _is_store(store) and _same(store.targets[0], target)
    return False


def _same(a: ast.expr, b: ast.expr) -> bool:
    return ast.unparse(a) == ast.unparse(b)

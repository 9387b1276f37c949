"""Scalar expressions of the loop IR as Numba source, with NumPy's meaning for every dtype.

Numba widens where NumPy does not (``int32 + int32`` is an int64, a Python float makes an f32 expression f64), divides
integers with an exception for zero, takes for granted that int64 does not overflow, and loses NaN in ``max``.  So every
literal and every narrow integer result is spelled with its dtype, int64 is calculated in uint64, and what differs goes
through the helpers of `minirelax.codegen.intrinsics`.

>>> from minirelax.ir.scalar import apply, literal, load
>>> from minirelax.ir.dim import symbol
>>> x = load("x", (symbol("i"),), "f32")
>>> writer = ScalarWriter(SourceWriter(), Names(frozenset()), lambda l: "x[i]", {})
>>> writer.value(apply("maximum", apply("multiply", x, literal(2, "f32")), literal(0, "f32")))
'maximum_f32(s0, f32(0.0))'
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from minirelax.codegen.source import Names, SourceWriter
from minirelax.codegen.vector_math import SUPPORTED
from minirelax.errors import CodegenError
from minirelax.ir.dim import Atom, Dim, Ranges, is_nonnegative
from minirelax.ir.scalar import LAZY, Apply, Literal, Load, Scalar, SizeValue, certain, index_scalar, walk
from minirelax.ir.types import PARTS
from minirelax.schedule.flat import depends_on

_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "equal": "==",
    "not_equal": "!=",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "bitwise_and": "&",
    "bitwise_or": "|",
    "bitwise_xor": "^",
    "logical_and": "&",
    "logical_or": "|",
    "logical_xor": "^",
}
LIBM = {  # NumPy's names of what the C library computes, and the C names
    "sin": "sin",
    "cos": "cos",
    "tan": "tan",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "sinh": "sinh",
    "cosh": "cosh",
    "tanh": "tanh",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "exp": "exp",
    "expm1": "expm1",
    "log": "log",
    "log2": "log2",
    "log10": "log10",
    "log1p": "log1p",
    "erf": "erf",
    "hypot": "hypot",
    "exp2": "exp2",
    "power": "pow",
    "cbrt": "cbrt",
    "float_power": "pow",
}
_WRITES_TWICE = frozenset(
    {"square", "sign", "fmax", "fmin", "isnan", "absolute", "maximum", "minimum"}
)  # templates that repeat an operand
_DIVISION = {"floor_divide": "floordiv", "remainder": "mod", "fmod": "fmod"}
FLOATS = ("f32", "f64")


class ScalarWriter:
    """Writes one block's scalars: shared subexpressions become lines ``s0 = ...``, the rest is inline text."""

    def __init__(self, out: SourceWriter, names: Names, access: Callable[[Load], str], ranges: Ranges):
        self.out, self.names, self.access, self.ranges = out, names, access, ranges
        self.named: dict[int, str] = {}

    def value(self, root: Scalar) -> str:
        """The text of `root`'s value; writes the lines it needs first."""
        return self.values(root)[0]

    def values(self, *roots: Scalar) -> list[str]:
        """The texts of several values that are used together: what they share is written once."""
        nodes = list(walk(*roots, inside=certain))
        users = Counter(id(child) for node in nodes for child in certain(node))
        users.update(map(id, roots))
        repeated = {id(a) for n in nodes if isinstance(n, Apply) and n.function in _WRITES_TWICE for a in n.args}
        texts: dict[int, str] = {}
        for node in nodes:
            if id(node) not in self.named:
                text = self._node(node, texts)
                if text.isidentifier() or isinstance(node, Literal):
                    texts[id(node)] = text
                    if _is_written(node):
                        self.named[id(node)] = text
                    continue
                if users[id(node)] <= 1 and len(text) <= 100 and id(node) not in repeated:
                    texts[id(node)] = text
                    continue
                self.named[id(node)] = self.name(text)
            texts[id(node)] = self.named[id(node)]
        return [texts[id(r)] for r in roots]

    def hoist(self, roots: Iterable[Scalar], axes: Iterable[str]) -> None:
        """Write what a loop over `axes` would only repeat and LLVM would not move: checked indices that do not depend on them."""
        for node in walk(*roots, inside=certain):
            if isinstance(node, Apply) and node.function == "check_index" and not any(depends_on(node, a) for a in axes):
                self.value(node)

    def dim(self, d: Dim) -> str:
        """A size or index polynomial as integer source."""
        return dim_source(d, self.names.of, self.ranges)

    def name(self, text: str) -> str:
        """Write ``s0 = text``; gives the name."""
        name = self.names.fresh("s")
        self.out.line(f"{name} = {text}")
        return name

    def _node(self, node: Scalar, texts: Mapping[int, str]) -> str:
        match node:
            case Literal(value=v, dtype=dtype):
                return literal_source(v, dtype)
            case SizeValue(dim=d):
                text = self.dim(d)
                return text if text.isidentifier() else f"({text})"
            case Load():
                return self.access(node)
            case Apply(function=function, args=(condition, yes, no)) if function == LAZY:
                return self._choice(texts[id(condition)], yes, no)
            case Apply(function=function, args=args, dtype=dtype):
                return self._apply(function, [texts[id(a)] for a in args], [a.dtype for a in args], dtype)
        raise CodegenError(f"no source for the scalar {node!r}")

    def _apply(self, function: str, args: list[str], dtypes: list[str], dtype: str) -> str:
        operand = dtypes[-1]
        if function == "check_index":
            return self._checked(*args)
        if function == "cast":
            return _cast(args[0], dtypes[0], dtype)
        if function == "where":
            return f"select({', '.join(args)})"
        if function.startswith("logical_"):
            args = [a if t == "bool" else f"({a} != {literal_source(0, t)})" for a, t in zip(args, dtypes, strict=True)]
            return f"(not {args[0]})" if function == "logical_not" else f"({args[0]} {_INFIX[function]} {args[1]})"
        if operand == "bool":
            return _on_bools(function, args)
        if operand in PARTS or dtype in PARTS:
            return _on_parts(function, args, operand, dtype)
        text = _on_floats(function, args, operand) if operand in FLOATS else _on_integers(function, args, operand)
        if text is None:
            raise CodegenError(f"no source for {function} on {operand}", "cast the operand to a dtype that has it")
        return text

    def _choice(self, condition: str, *sides: Scalar) -> str:
        """A branch: what is not chosen is not evaluated.  Where it only loads along memory, LLVM makes masked loads of it."""
        name = self.names.fresh("s")
        for head, side in zip((f"if {condition}:", "else:"), sides, strict=True):
            known = dict(self.named)
            with self.out.block(head):
                self.out.line(f"{name} = {self.value(side)}")
            self.named = known
        return name

    def _checked(self, index: str, extent: str) -> str:
        """Index inside 0..extent-1, else the program's error word is set and 0 is used: kernels cannot raise."""
        name = self.name(index)
        with self.out.block(f"if {name} < 0 or {name} >= {extent}:"):
            self.out.line("error[0] = 1")
            self.out.line(f"{name} = 0")
        return name


def dim_source(d: Dim, names: Mapping[object, str], ranges: Ranges = {}) -> str:  # noqa: B006 (never changed)
    """A polynomial as integer source; divisions of what is never negative are plain machine divisions."""
    if isinstance(d, int):
        return str(d)
    parts: list[str] = []
    for mono, k in sorted(d.terms, key=lambda t: (not t[0], -len(t[0]))):
        factors = [names.get(f, f) if isinstance(f, str) else _atom_source(f, names, ranges) for f in mono]
        if abs(k) != 1 or not mono:
            factors.insert(0, str(abs(k)))
        text = "*".join(factors)
        parts.append(text if not parts and k > 0 else f"-{text}" if not parts else f"{'-' if k < 0 else '+'} {text}")
    return " ".join(parts)


def literal_source(value: complex | float | int | bool, dtype: str) -> str:
    """A constant that Numba types as `dtype`."""
    if dtype == "bool":
        return str(bool(value))
    if dtype in FLOATS:
        text = (
            "nan" if math.isnan(value) else "inf" if value == math.inf else "-inf" if value == -math.inf else repr(float(value))
        )
        return f"f32({text})" if dtype == "f32" else text
    if dtype in PARTS:
        value = complex(value)
        return f"complex_{dtype}({literal_source(value.real, PARTS[dtype])}, {literal_source(value.imag, PARTS[dtype])})"
    return str(value) if dtype == "i64" and value > -(2**63) else f"{dtype}({value})"


def _is_written(node: Scalar) -> bool:
    """Is the value set by statements of its own, which are written once?"""
    return isinstance(node, Apply) and node.function in ("check_index", LAZY)


def _atom_source(atom: Atom, names: Mapping[object, str], ranges: Ranges) -> str:
    left, right = dim_source(atom.left, names, ranges), dim_source(atom.right, names, ranges)
    if atom.op in ("min", "max"):
        return f"{atom.op}({left}, {right})"
    helper = {"//": "floordiv_i64", "%": "mod_i64"}[atom.op]
    if is_nonnegative(atom.left, ranges) and is_nonnegative(atom.right, ranges):
        helper = {"//": "quotient", "%": "rest"}[atom.op]
    return f"{helper}({left}, {right})"


def _on_bools(function: str, args: list[str]) -> str:
    if function in ("maximum", "add", "bitwise_or"):
        return f"({args[0]} | {args[1]})"
    if function in ("minimum", "multiply", "bitwise_and"):
        return f"({args[0]} & {args[1]})"
    if function in ("not_equal", "bitwise_xor"):
        return f"({args[0]} ^ {args[1]})"
    if function == "equal":
        return f"(not ({args[0]} ^ {args[1]}))"
    if function == "invert":
        return f"(not {args[0]})"
    if function in _INFIX:  # order: False < True
        return f"(u8({args[0]}) {_INFIX[function]} u8({args[1]}))"
    raise CodegenError(f"no source for {function} on bool", "cast the operand to a number first")


def _on_floats(function: str, args: list[str], dtype: str) -> str | None:
    one, zero = literal_source(1, dtype), literal_source(0, dtype)
    if function in _INFIX and not function.startswith("bitwise"):
        return f"({args[0]} {_INFIX[function]} {args[1]})"
    a = args[0]
    match function:
        case "maximum" | "minimum" | "copysign" | "fmod":
            return f"{function}_{dtype}({', '.join(args)})"
        case "floor_divide" | "remainder":
            return f"{_DIVISION[function]}_{dtype}({', '.join(args)})"
        case "fmax" | "fmin":
            b, inner = args[1], f"{'maximum' if function == 'fmax' else 'minimum'}_{dtype}({a}, {args[1]})"
            return f"select({a} != {a}, {b}, select({b} != {b}, {a}, {inner}))"
        case "negative":
            return f"(-{a})"
        case "absolute" | "fabs":
            return f"fabs_{dtype}({a})"
        case "square":
            return f"({a} * {a})"
        case "reciprocal":
            return f"({one} / {a})"
        case "sign":
            return f"select({a} > {zero}, {one}, select({a} < {zero}, -{one}, select({a} != {a}, {a}, {zero})))"
        case "sqrt" | "floor" | "ceil" | "trunc" | "rint":
            return f"{function}_{dtype}({a})"
        case "isnan":
            return f"({a} != {a})"
        case "isinf":
            return f"(fabs_{dtype}({a}) == {literal_source(math.inf, dtype)})"
        case "isfinite":
            return f"(fabs_{dtype}({a}) < {literal_source(math.inf, dtype)})"
        case "signbit":
            return f"(copysign_{dtype}({one}, {a}) < {zero})"
    native = "pow" if function in ("power", "float_power") else function
    if (native, dtype) in SUPPORTED:
        return f"{native}_{dtype}({', '.join(args)})"
    if function in LIBM:
        return f"{dtype}(math_{LIBM[function]}({', '.join(args)}))"
    return None


def _on_parts(function: str, args: list[str], operand: str, dtype: str) -> str:
    """Of complex numbers, or of the parts of one."""
    match function:
        case "complex":
            return f"complex_{dtype}({', '.join(args)})"
        case "real" | "imag" | "add" | "subtract" | "multiply" | "divide" | "negative":
            return f"{function}_{operand}({', '.join(args)})"
    raise CodegenError(f"no source for {function} on {operand}", "compute with the real and the imaginary part")


def _on_integers(function: str, args: list[str], dtype: str) -> str | None:
    a = args[0]
    narrow = (lambda text: text) if dtype in ("i64", "u64") else (lambda text: f"{dtype}({text})")
    if function in ("equal", "not_equal") or function.startswith(("less", "greater")):
        return f"({a} {_INFIX[function]} {args[1]})"
    if function in ("add", "subtract", "multiply"):
        return integer_arithmetic(_INFIX[function], a, args[1], dtype)
    if function in _INFIX and function != "divide":
        return narrow(f"({a} {_INFIX[function]} {args[1]})")
    zero, one = literal_source(0, dtype), literal_source(1, dtype)
    match function:
        case "floor_divide" | "remainder" | "fmod":
            return f"{_DIVISION[function]}_{dtype}({a}, {args[1]})"
        case "maximum" | "minimum" | "fmax" | "fmin":
            return f"select({a} {'>' if function in ('maximum', 'fmax') else '<'} {args[1]}, {a}, {args[1]})"
        case "negative":
            return integer_arithmetic("-", zero, a, dtype)
        case "absolute":
            return a if dtype[0] == "u" else f"select({a} < {zero}, {integer_arithmetic('-', zero, a, dtype)}, {a})"
        case "sign":
            return f"select({a} > {zero}, {one}, select({a} < {zero}, {narrow(f'({zero} - {one})')}, {zero}))"
        case "square":
            return integer_arithmetic("*", a, a, dtype)
        case "invert":
            return narrow(f"(~{a})")
        case "left_shift" | "right_shift":
            return f"{function}_{dtype}({a}, {args[1]})"
        case "power":
            return f"power_{dtype}({a}, {args[1]})"
        case "floor" | "ceil" | "trunc" | "rint":
            return a
        case "isnan" | "isinf":
            return "False"
        case "isfinite":
            return "True"
        case "signbit":
            return f"({a} < {zero})"
    return None


def integer_arithmetic(sign: str, a: str, b: str, dtype: str) -> str:
    """``a + b``, ``a - b`` or ``a * b`` as source; overflow wraps, where Numba would leave it undefined for int64."""
    return f"i64(u64({a}) {sign} u64({b}))" if dtype == "i64" else f"{dtype}({a} {sign} {b})"


def _cast(text: str, old: str, new: str) -> str:
    if new == old:
        return text
    if new == "bool":
        return f"({text} != {literal_source(0, old)})"
    if new in PARTS:
        part = PARTS[new]
        if old in PARTS:
            return f"{new}_of_{old}({text})"
        return f"complex_{new}({_cast(text, old, part)}, {literal_source(0, part)})"
    if old in FLOATS and new == "u64":
        return f"as_u64_{old}({text})"
    if old in FLOATS and new not in FLOATS:  # as C does on x86: through the next wider signed integer
        through = {"i8": "i32", "u8": "i32", "i16": "i32", "u16": "i32", "u32": "i64"}.get(new)
        return f"{new}({through}({text}))" if through else f"{new}({text})"
    return f"{new}({text})"


def index_source(index: Dim | Scalar, writer: ScalarWriter) -> str:
    """An access's offset as source."""
    return writer.value(index_scalar(index)) if isinstance(index, Scalar) else writer.dim(index)

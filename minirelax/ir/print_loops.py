"""Loop level to text: kernels as Python functions, one loop nest per block.

A scalar that a block uses more than once is printed once, as ``s0 = ...`` before the store, so the text is as long as
the scalars are in memory; parsing shares them again.  Expressions that would nest very deeply are cut in the same way.
What only ``a if condition else b`` may come to is printed in its place, since a line before the store would evaluate it always.

>>> from minirelax.ir.dim import symbol
>>> from minirelax.ir.scalar import apply, literal, load
>>> e = apply("exp", load("x", (symbol("i"),), "f32"))
>>> print(print_scalar(apply("divide", e, apply("add", e, literal(1.0, "f32")))))
s0 = exp(x[i])
s0 / (s0 + 1.0)
"""
from __future__ import annotations

import itertools
import json

import numpy as np

from minirelax.ir.dim import Atom, DimExpr
from minirelax.ir.loop import REDUCTIONS, Axis, Block, Kernel, neutral
from minirelax.ir.scalar import LAZY, Apply, Index, Literal, Load, Scalar, SizeValue, certain, children, natural_dtype, walk
from minirelax.ir.syntax import (
    ATOM,
    CHOICE,
    COMPARE,
    COMPARISON,
    INFIX,
    POWER,
    PREFIX,
    PRODUCT,
    SIZE_ARITHMETIC,
    SUM,
    UNARY,
    UPDATES,
    number_text,
    sibling_dtype,
)

DEEPEST = 24             # operations nested in one expression
TAB = "    "


def print_kernel(kernel: Kernel, typed: bool = False) -> str:
    """The kernel as a Python function.  With `typed`, every number is spelled with its dtype (for execution)."""
    facts = [] if kernel.pattern is None else [f"pattern={quoted(kernel.pattern)}"]
    if kernel.in_place:
        facts.append(f"in_place={{{', '.join(f'{quoted(x)}: {quoted(out)}' for x, out in kernel.in_place)}}}")
    params = [f"{v.name}: {v.type}" for v in (*kernel.inputs, *kernel.outputs)]
    sizes = ["*", *kernel.sizes] if kernel.sizes else []
    lines = [f"@kernel({', '.join(facts)})" if facts else "@kernel", f"def {kernel.name}({', '.join([*params, *sizes])}):"]
    lines += [f"{TAB}{v.name} = local({v.type})" for v in kernel.local]
    taken = {*kernel.buffers, *kernel.sizes, *(a.name for b in kernel.blocks for a in (*b.axes, *b.over))}
    for block in kernel.blocks:
        lines += print_block(block, kernel.buffers[block.buffer].dtype, taken, typed)
    return "\n".join(lines if kernel.local or kernel.blocks else [*lines, f"{TAB}pass"])


def print_block(block: Block, dtype: str, taken: set[str], typed: bool = False) -> list[str]:
    """The lines of one loop nest, indented once; `dtype` is the buffer's, `taken` are names that no scalar may have."""
    indices = tuple(i for i in block.indices if isinstance(i, Scalar))
    scalars = ScalarPrinter((*indices, block.value), taken, typed)
    lines, tab = _loops(block.axes, TAB)
    if block.reduction:
        lines += _indented(scalars.share(*indices), tab)
        target = scalars.element(block.buffer, block.indices)
        lines.append(f"{tab}{target} = {scalars.root(neutral(block.reduction, dtype), dtype)}")
        loops, tab = _loops(block.over, tab)
        lines += [*loops, *_indented(scalars.share(block.value), tab)]
        return [*lines, f"{tab}{_update(block.reduction, target, scalars.root(block.value, dtype))}"]
    lines += _indented(scalars.share(*indices, block.value), tab)
    return [*lines, f"{tab}{scalars.element(block.buffer, block.indices)} = {scalars.root(block.value, dtype)}"]


def print_scalar(scalar: Scalar) -> str:
    """The expression, after a line for each part that it uses more than once."""
    printer = ScalarPrinter((scalar,), set())
    return "\n".join([*printer.share(scalar), printer.root(scalar, None)])


class ScalarPrinter:
    """Prints scalars with `roots` as all uses there are; `share` first, then the expressions."""

    def __init__(self, roots: tuple[Scalar, ...], taken: set[str], typed: bool = False):
        self.typed = typed
        self.names = (name for name in (f"s{i}" for i in itertools.count()) if name not in taken)
        self.text: dict[int, tuple[str, int, int]] = {}               # scalar -> text, precedence, depth
        self.uses: dict[int, int] = {}
        for s in (*roots, *(c for user in walk(*roots) for c in children(user))):
            self.uses[id(s)] = self.uses.get(id(s), 0) + 1

    def share(self, *roots: Scalar) -> list[str]:
        """Print everything inside `roots`; the lines for the parts that have a name."""
        lines = []
        for s in walk(*roots, inside=certain):
            if id(s) in self.text or not isinstance(s, Apply | Load):
                continue
            text, precedence = self._texts(s)
            inside = certain(s)
            depth = 1 + max((self.text[id(c)][2] for c in inside if id(c) in self.text), default=0)
            if inside and (self.uses[id(s)] > 1 or depth > DEEPEST) and (isinstance(s, Apply) or depth > 1):
                name = next(self.names)
                lines.append(f"{name} = {text}")
                text, precedence, depth = name, ATOM, 0
            self.text[id(s)] = text, precedence, depth
        return lines

    def _choice(self, s: Apply) -> str:
        """``a if condition else b``; inside of `a` and `b` nothing is named."""
        condition, *sides = s.args
        known, texts = dict(self.text), []
        for side in sides:
            for inside in walk(side):
                if id(inside) not in self.text and isinstance(inside, Apply | Load):
                    self.text[id(inside)] = *self._texts(inside), 0
            texts.append(self._operand(side, sibling_dtype(s.args[1:])))
            self.text = dict(known)
        return f"{_wrapped(texts[0], COMPARISON)} if {_wrapped(self._operand(condition, None), COMPARISON)} else {texts[1][0]}"

    def _texts(self, s: Apply | Load) -> tuple[str, int]:
        return self._apply(s) if isinstance(s, Apply) else (self.element(s.buffer, s.indices), ATOM)

    def root(self, scalar: Scalar, dtype: str | None) -> str:
        """`scalar` where a value of `dtype` is expected."""
        return self._operand(scalar, dtype)[0]

    def element(self, buffer: str, indices: tuple[Index, ...]) -> str:
        """``buffer[indices]``."""
        inside = [str(i) if not isinstance(i, Scalar) else self._operand(i, None, sizes_wrapped=True)[0] for i in indices]
        return f"{buffer}[{', '.join(inside) or '()'}]"

    def _operand(self, scalar: Scalar, dtype: str | None, sizes_wrapped: bool = False) -> tuple[str, int]:
        match scalar:
            case Literal():
                text = literal_text(scalar)
                if scalar.dtype != dtype or self.typed:
                    return f"{scalar.dtype}({text})", ATOM
                return text, UNARY if text.startswith("-") else ATOM
            case SizeValue(dim=d):
                return (f"size({d})", ATOM) if sizes_wrapped or self.typed else (str(d), _size_precedence(d))
        return self.text[id(scalar)][:2]

    def _apply(self, s: Apply) -> tuple[str, int]:
        """Text and precedence of an application, its operands being known."""
        if s.function == LAZY:
            return self._choice(s), CHOICE
        name, args, default = s.function, s.args, natural_dtype(s.function, s.args)
        only_sizes = all(isinstance(a, SizeValue | Literal) for a in args)
        operands = [self._operand(a, sibling_dtype(args), only_sizes and name in SIZE_ARITHMETIC) for a in args]
        if name == "cast" and len(args) == 1 and not isinstance(args[0], Literal):
            return f"{s.dtype}({operands[0][0]})", ATOM
        if s.dtype == default and len(args) == 2 and name in INFIX:
            symbol, precedence, _ = INFIX[name]
            left, right = (POWER + 1, UNARY) if name == "power" else (precedence, precedence + 1)
            return f"{_wrapped(operands[0], left)} {symbol} {_wrapped(operands[1], right)}", precedence
        if s.dtype == default and len(args) == 2 and name in COMPARE:
            return f"{_wrapped(operands[0], 1)} {COMPARE[name][0]} {_wrapped(operands[1], 1)}", COMPARISON
        if s.dtype == default and len(args) == 1 and name in PREFIX:
            return f"{PREFIX[name][0]}{_wrapped(operands[0], UNARY)}", UNARY
        dtype = [] if s.dtype == default and name != "cast" else [f"dtype={s.dtype}"]
        return f"{name}({', '.join([*(text for text, _ in operands), *dtype])})", ATOM


def literal_text(scalar: Literal) -> str:
    """The shortest number that gives this value at its dtype: ``0.1`` for the f32 nearest to it."""
    if scalar.dtype == "f32":
        return repr(_shortest(scalar.value))
    if scalar.dtype == "c64":
        return number_text(complex(_shortest(scalar.value.real), _shortest(scalar.value.imag)))
    return number_text(scalar.value)


def _shortest(value: float) -> float:
    """The number with the fewest digits whose nearest f32 is `value`."""
    short = float(str(np.float32(value)))
    return short if repr(float(np.float32(short))) == repr(value) else value


def quoted(text: str) -> str:
    """A string in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def _loops(axes: tuple[Axis, ...], tab: str) -> tuple[list[str], str]:
    return [f"{tab}{TAB * i}for {a.name} in range({a.extent}):" for i, a in enumerate(axes)], tab + TAB * len(axes)


def _indented(lines: list[str], tab: str) -> list[str]:
    return [tab + line for line in lines]


def _update(reduction: str, target: str, value: str) -> str:
    if reduction in UPDATES:
        return f"{target} {UPDATES[reduction]} {value}"
    return f"{target} = {REDUCTIONS[reduction]}({target}, {value})"


def _wrapped(operand: tuple[str, int], precedence: int) -> str:
    """The operand in parentheses if it binds less tightly than `precedence`."""
    return operand[0] if operand[1] >= precedence else f"({operand[0]})"


def _size_precedence(d: DimExpr) -> int:
    (mono, k), *more = d.terms
    if more or k < 0:
        return SUM
    alone = k == 1 and len(mono) == 1
    return ATOM if alone and (not isinstance(mono[0], Atom) or mono[0].op in ("min", "max")) else PRODUCT

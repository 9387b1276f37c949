"""The kinds of kernels: those that the analysis finds are those that brute force over small index spaces finds."""

# ruff: noqa: F821   (a kernel's sizes and functions are the compiler's)
from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirelax as mr
from minirelax import f32, i64, u8
from minirelax.ir.dim import DimExpr, symbol
from minirelax.ir.graph import Module, Var
from minirelax.ir.loop import KINDS, Axis, Block, Kernel, with_sizes
from minirelax.ir.parser import parse_kernel
from minirelax.ir.scalar import Load, Scalar, apply, literal, load
from minirelax.ir.types import Tensor, substitute_type
from minirelax.ir.verify_kernel import verify_kernel
from minirelax.passes.annotate_patterns import annotate_patterns, pattern_of
from minirelax.passes.share_kernels import rename_block
from minirelax.pipeline import module_stages
from tests.passes.relations import kind_by_brute_force

GENERAL = [{"n": 2, "m": 3, "p": 4}, {"n": 3, "m": 4, "p": 2}]       # no two equal, none degenerate
DEGENERATE = [{"n": 1, "m": 3, "p": 2}, {"n": 2, "m": 1, "p": 1}, {"n": 0, "m": 2, "p": 1}]
INDICES = ("strided", "reversed", "halved", "shifted", "gather")
EXTENTS = (symbol("n"), symbol("m"), symbol("p"))


@dataclass
class Drawn:
    """A kernel in the making; `coarse` once something was drawn that an analysis of index expressions may overrate."""

    draw: object
    inputs: list[Var] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    made: list[Var] = field(default_factory=list)
    coarse: bool = False

    def choose(self, *choices):
        return self.draw(st.sampled_from(choices))

    def input(self, dtype: str, shape: tuple) -> Var:
        self.inputs.append(Var(f"x{len(self.inputs)}", Tensor(dtype, tuple(shape))))
        return self.inputs[-1]

    def axes(self, prefix: str, count: int) -> tuple[Axis, ...]:
        extents = list(EXTENTS) if prefix == "i" else [*EXTENTS, 2]
        return tuple(Axis(f"{prefix}{k}", self.choose(*extents)) for k in range(count))

    def read(self, axes: tuple[Axis, ...]) -> Scalar:
        """A load at some of the axes, straight or through one of many kinds of index."""
        chosen = [a for a in axes if self.draw(st.integers(0, 3))]
        if self.choose(True, False, False):
            chosen = list(self.draw(st.permutations(chosen)))
        shape, indices = [], []
        for a in chosen:
            extent, index = self.index(a, self.choose(*["bare"] * 4, *INDICES))
            shape.append(extent)
            indices.append(index)
        if self.choose(True, False, False, False):
            place = self.draw(st.integers(0, len(shape)))
            shape.insert(place, self.choose(1, 1, symbol("n") + 1))
            indices.insert(place, 0)
        x = self.input("f64", tuple(shape))
        return load(x.name, tuple(indices), "f64")

    def index(self, a: Axis, how: str):
        i = symbol(a.name)
        match how:
            case "strided":
                return 2 * a.extent + 1, 2 * i + 1
            case "reversed":
                return a.extent, a.extent - 1 - i
            case "halved":
                return a.extent, i // 2
            case "shifted":
                return a.extent + 1, i + 1
            case "gather":
                return a.extent, load(self.input("i64", (a.extent,)).name, (i,), "i64")
        return a.extent, i

    def whole(self, axes: tuple[Axis, ...]) -> tuple[tuple, tuple]:
        """Shape and indices of a buffer that is written once and whole: the axes in any order, and axes of one element."""
        order = self.draw(st.permutations(axes)) if self.choose(True, False, False) else axes
        shape, indices = [a.extent for a in order], [symbol(a.name) for a in order]
        if self.choose(True, False, False, False):
            place = self.draw(st.integers(0, len(shape)))
            shape.insert(place, 1)
            indices.insert(place, 0)
        return tuple(shape), tuple(indices)

    def store(self, axes: tuple[Axis, ...]) -> tuple[tuple, tuple]:
        """Mostly whole; now and then somewhere else."""
        how = self.choose("whole", "whole", "whole", "whole", "whole", "scatter", "shifted", "diagonal", "part", "reversed")
        shape, indices = self.whole(axes)
        if not axes or how == "whole":
            return shape, indices
        at = next(k for k, i in enumerate(indices) if isinstance(i, DimExpr))
        i, d = indices[at], shape[at]
        axis = next(a for a in axes if symbol(a.name) == i)
        match how:
            case "scatter":
                i = load(self.input("i64", (axis.extent,)).name, (i,), "i64")
            case "shifted":
                d, i = d + 1, i + 1
            case "diagonal":
                return (d, *shape), (i, *indices)
            case "part":
                return (symbol("n") + 1, *shape), (0, *indices)
            case "reversed":                                           # each element once, but not at its own index
                self.coarse, i = True, d - 1 - i
        return (*shape[:at], d, *shape[at + 1 :]), (*indices[:at], i, *indices[at + 1 :])

    def earlier(self) -> list[Scalar]:
        """Reads of what earlier blocks made."""
        return [v for v in self.made if self.choose(True, False)]

    def block(self) -> None:
        kind = self.choose("map", "map", "map", "reduce", "contraction", "window")
        axes = self.axes("i", self.draw(st.integers(0, 3)))
        over = self.axes("k", self.draw(st.integers(1, 2))) if kind != "map" else ()
        reduction = self.choose("sum", "sum", "max", "prod") if kind in ("reduce", "window") else "sum" if over else None
        if kind == "contraction":
            value = apply("multiply", self.factor(axes, over), self.factor(axes, over))
        elif kind == "window" and axes:
            a, k = axes[-1], over[0]
            x = self.input("f64", (*(b.extent for b in axes[:-1]), a.extent + k.extent))
            value = load(x.name, (*(symbol(b.name) for b in axes[:-1]), symbol(a.name) + symbol(k.name)), "f64")
        else:
            value = self.expression((*axes, *over))
        shape, indices = self.store(axes)
        self.made.append(Var(f"out{len(self.made)}", Tensor("f64", shape)))
        self.blocks.append(Block(axes, self.made[-1].name, indices, value, over, reduction))

    def factor(self, axes: tuple[Axis, ...], over: tuple[Axis, ...]) -> Scalar:
        """A load at all the axes to sum over and at some of the others."""
        chosen = [*[a for a in axes if self.choose(True, False)], *over]
        x = self.input("f64", tuple(a.extent for a in chosen))
        return load(x.name, tuple(symbol(a.name) for a in chosen), "f64")

    def expression(self, axes: tuple[Axis, ...]) -> Scalar:
        found = [self.read(axes) for _ in range(self.draw(st.integers(0, 3)))]
        for v in self.earlier():
            matching = [next((symbol(a.name) for a in axes if a.extent == d), 0) for d in v.type.shape]
            found.append(load(v.name, tuple(matching), "f64"))
        value = found[0] if found else literal(3.0, "f64")
        for x in found[1:]:
            value = apply(self.choose("add", "maximum", "subtract"), value, x)
        return apply("exp", value) if self.choose(True, False, False, False) else value


@st.composite
def kernels(draw) -> tuple[Kernel, bool]:
    drawn = Drawn(draw)
    for _ in range(draw(st.integers(1, 3))):
        drawn.block()
    local = tuple(v for v in drawn.made[:-1] if drawn.choose(True, False))
    if drawn.choose(*[False] * 7, True):                               # a second block for a buffer
        drawn.blocks.append(replace(drawn.blocks[-1], value=literal(1.0, "f64"), over=(), reduction=None))
    outputs = tuple(v for v in drawn.made if v not in local)
    kernel = with_sizes(Kernel("drawn", tuple(drawn.inputs), outputs, (), local, tuple(drawn.blocks)))
    verify_kernel(kernel)
    return kernel, drawn.coarse


@settings(max_examples=150, deadline=None)
@given(kernels())
def test_the_kind_is_that_of_the_relations(drawn):
    kernel, coarse = drawn
    found, wanted = pattern_of(kernel), kind_by_brute_force(kernel, GENERAL)
    assert KINDS.index(found) >= KINDS.index(wanted), f"{found}, by brute force {wanted}\n{kernel}"
    assert coarse or found == wanted, f"{found}, by brute force {wanted}\n{kernel}"


@settings(max_examples=60, deadline=None)
@given(kernels())
def test_the_kind_is_large_enough_for_sizes_of_one_and_none(drawn):
    kernel, _ = drawn
    for sizes in DEGENERATE:
        assert KINDS.index(pattern_of(kernel)) >= KINDS.index(kind_by_brute_force(kernel, [sizes]))


@settings(max_examples=100, deadline=None)
@given(kernels(), st.sampled_from(["n", "m", "p"]))
def test_a_size_that_is_written_one_does_not_count(drawn, name):
    """Loops of one round over axes of one element change no kind; only a sum of one term is still called a sum."""
    kernel, coarse = drawn
    ones = {name: 1}
    typed = {part: tuple(Var(v.name, substitute_type(v.type, ones)) for v in getattr(kernel, part))
             for part in ("inputs", "outputs", "local")}
    kernel = with_sizes(replace(kernel, blocks=tuple(rename_block(b, {}, ones) for b in kernel.blocks), **typed))
    found, wanted = pattern_of(kernel), kind_by_brute_force(kernel, GENERAL)
    assert KINDS.index(found) >= KINDS.index(wanted), f"{found}, by brute force {wanted}\n{kernel}"
    if not coarse and all(_is_plain(b) for b in kernel.blocks):
        assert found == wanted, f"{found}, by brute force {wanted}\n{kernel}"


def _is_plain(block: Block) -> bool:
    """No reduction, and indices that are axes or 0."""
    indices = (*block.indices, *(i for s in block.loads if isinstance(s, Load) for i in s.indices))
    names = {a.name for a in block.axes}
    return block.reduction is None and all(i == 0 or str(i) in names for i in indices)


def lowered(function, *types) -> Kernel:
    """The only kernel that a function compiles to, as `fuse_kernels` leaves it."""
    (kernel,) = next(s.module for s in module_stages(mr.trace(function, *types)) if s.name == "fuse_kernels").kernels
    return kernel


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


@pytest.mark.parametrize(("function", "types", "kind"), [
    (lambda x, y: x + y, (f32["n", "m"], f32["n", "m"]), "elementwise"),
    (lambda x, b: x + b, (f32["n", "m"], f32["m"]), "elementwise"),
    (lambda b: np.broadcast_to(b, (3, 4)) + np.float32(1), (f32[4],), "broadcast"),
    (lambda x: x.T, (f32["n", "m"],), "injective"),
    (lambda x: x[::2, 0], (f32["n", "m"],), "injective"),
    (lambda x, i: x[i], (f32["n", "m"], i64["p"]), "injective"),
    (lambda x: np.sum(x, axis=1), (f32["n", "m"],), "reduce"),
    (lambda x: np.sum(x, axis=0), (f32["n", "m"],), "reduce"),
    (softmax, (f32["n", "m"],), "reduce"),
    (lambda x, y: x @ y, (f32["n", "m"], f32["m", "p"]), "contraction"),
    (lambda x, y, b: np.maximum(x @ y + b, 0), (f32["n", "m"], f32["m", "p"], f32["p"]), "contraction"),
    (lambda x, y: np.concatenate([x, y]), (f32["n"], f32["m"]), "opaque"),
])
def test_kinds_of_numpy_functions(function, types, kind):
    kernel = lowered(function, *types)
    assert kernel.pattern == pattern_of(kernel) == kind == kind_by_brute_force(kernel, GENERAL)


@mr.kernel
def decode_q4(codes: u8[n, m], scale: f32[n], out: f32[n, 2*m], *, n, m):
    for i in range(n):
        for j in range(2 * m):
            out[i, j] = (f32((codes[i, j // 2] >> u8(j % 2 * 4)) & 15) - 7.0) * scale[i]


@mr.kernel
def pool(x: f32[2*n, 2*m], out: f32[n, m], *, n, m):
    for i in range(n):
        for j in range(m):
            out[i, j] = -inf
            for k in range(2):
                for l in range(2):  # noqa: E741
                    out[i, j] = maximum(out[i, j], x[2 * i + k, 2 * j + l])


@mr.kernel
def scatter(x: f32[n], places: i64[n], out: f32[n], *, n):
    for i in range(n):
        out[places[i]] = x[i]


@mr.kernel
def histogram(x: f32[n, m], places: i64[n], out: f32[n], *, n, m):
    for i in range(n):
        out[places[i]] = 0.0
        for k in range(m):
            out[places[i]] += x[i, k]


@mr.kernel
def both(x: f32[n, m], total: f32[n], above: f32[n, m], *, n, m):
    for i in range(n):
        total[i] = 0.0
        for k in range(m):
            total[i] += x[i, k]
    for i in range(n):
        for j in range(m):
            above[i, j] = x[i, j] - total[i]


@mr.kernel
def single_rounds(x: f32[1, n], out: f32[n, 1], *, n):
    for i in range(n):
        for j in range(1):
            out[i, j] = x[j, i] * 2.0


@pytest.mark.parametrize(("kernel", "kind"), [
    (decode_q4, "injective"), (pool, "reduce"), (scatter, "opaque"), (histogram, "opaque"), (both, "reduce"),
    (single_rounds, "elementwise")])
def test_kinds_of_kernels_that_users_write(kernel, kind):
    found = kernel.ir
    assert pattern_of(found) == kind
    assert found.pattern in (None, "opaque") and annotated(found).pattern == kind
    if kernel is not decode_q4:                                        # its bits are not among what brute force is tried on
        assert kind_by_brute_force(found, GENERAL) == kind


TEXTS = {
    "opaque": """
@kernel
def half(x: f32[n], out: f32[n + 1], *, n):
    for i in range(n):
        out[i] = x[i]""",
    "injective": """
@kernel
def first_row(x: f32[n, m], out: f32[m], *, n, m):
    for i in range(m):
        out[i] = x[0, i]""",
    "elementwise": """
@kernel
def row(x: f32[1, m], out: f32[m, 1], *, m):
    for i in range(1):
        for j in range(m):
            out[j, i] = x[i, j] + x[0, j]""",
}


@pytest.mark.parametrize("kind", TEXTS)
def test_kinds_of_kernels_given_as_text(kind):
    kernel = parse_kernel(TEXTS[kind])
    assert pattern_of(kernel) == kind == kind_by_brute_force(kernel, GENERAL)


def annotated(kernel: Kernel) -> Kernel:
    return annotate_patterns(Module((), (kernel,))).kernels[0]


def test_a_declared_pattern_is_never_too_small():
    kernel = parse_kernel(TEXTS["injective"])
    assert annotated(replace(kernel, pattern="elementwise")).pattern == "injective"
    assert annotated(replace(kernel, pattern="opaque")).pattern == "opaque"
    once = annotated(kernel)
    assert annotated(once) is once

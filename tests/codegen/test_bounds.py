"""Builds that check bounds: an access outside a buffer is found, touches nothing, and is named; other builds have no checks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import minirelax as mr
from minirelax.codegen.bounds import FAILED
from minirelax.codegen.numba_cpu import kernel_code
from minirelax.errors import BoundsError, IndexingError, RunError, VerifyError
from minirelax.ir.checked import VARIABLE
from minirelax.ir.graph import Module
from minirelax.ir.loop import Kernel
from minirelax.ir.parser import parse, parse_kernel
from minirelax.ir.safe_kernel import refuse_outside
from minirelax.ir.scalar import Load, load, transform
from minirelax.passes.base import Stage
from minirelax.passes.options import Options
from minirelax.runtime.build import build
from minirelax.runtime.executable import Executable, preparation
from minirelax.runtime.program_cache import key_text
from tests.codegen.native import run_natively

SHIFTED = """
@kernel
def shifted(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i + 2] * 2.0"""
STORED = """
@kernel
def stored(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i - 1] = x[i]"""
SUMMED = """
@kernel
def summed(x: f32[n, m], out: f32[n], *, n, m):
    for i in range(n):
        out[i] = 0.0
        for k in range(m):
            out[i] += x[i, k + 3]"""
COLUMNS = """
@kernel
def columns(x: f32[n, m], out: f32[m], *, n, m):
    for j in range(m):
        out[j] = 0.0
        for k in range(n + 1):
            out[j] += x[k, j]"""
GATHERED = """
@kernel
def gathered(x: f32[n], places: i64[m], out: f32[m], *, n, m):
    for i in range(m):
        out[i] = x[places[i]]"""
PRODUCT = """
@kernel
def product(x: f32[n, m], y: f32[m, k], out: f32[n, k], *, n, m, k):
    for i in range(n):
        for j in range(k):
            out[i, j] = 0.0
            for l in range({depth}):
                out[i, j] += x[i{row}, l] * y[l{line}, j]"""
STAGED = """
@kernel
def staged(x: f32[n, m], out: f32[n, m], *, n, m):
    t0 = local(f32[n, m])
    for i in range(n):
        for j in range(m):
            t0[i, j] = exp(x[i, j])
    for i in range(n):
        for j in range(m):
            out[i, j] = t0[i, j] + x[i, j + {far}]"""

rng = np.random.default_rng(0)


def filled(*shape):
    return rng.random(shape, np.float32)


@pytest.fixture
def checked(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")


CASES = [
    (SHIFTED, [filled(5)], {"n": 5}, "x"),
    (STORED, [filled(5)], {"n": 5}, "out"),
    (SUMMED, [filled(3, 4)], {"n": 3, "m": 4}, "x"),
    (COLUMNS, [filled(3, 4)], {"n": 3, "m": 4}, "x"),
    (GATHERED, [filled(3), np.array([0, 3, 1])], {"n": 3, "m": 3}, "x"),
    (GATHERED, [filled(3), np.array([0, -1, 1])], {"n": 3, "m": 3}, "x"),
    (GATHERED, [filled(0), np.array([0, 1])], {"n": 0, "m": 2}, "x"),
    (PRODUCT.format(depth="m + 1", row="", line=""), [filled(50, 7), filled(7, 70)], {"n": 50, "m": 7, "k": 70}, None),
    (PRODUCT.format(depth="m", row=" + 1", line=""), [filled(50, 7), filled(7, 70)], {"n": 50, "m": 7, "k": 70}, "x"),
    (PRODUCT.format(depth="m", row="", line=" + 1"), [filled(50, 7), filled(7, 70)], {"n": 50, "m": 7, "k": 70}, "y"),
    (PRODUCT.format(depth="m", row="", line=" + 1"), [filled(2, 7), filled(7, 70)], {"n": 2, "m": 7, "k": 70}, "y"),
    (STAGED.format(far=1), [filled(3, 4)], {"n": 3, "m": 4}, "x"),
]


@pytest.mark.parametrize(("text", "arrays", "sizes", "buffer"), CASES)
def test_an_access_outside_is_found(checked, text, arrays, sizes, buffer):
    kernel = parse_kernel(text)
    code = kernel_code(kernel)
    assert code.may_fail and "inside(error, " in code.source
    _, error = run_natively(kernel, arrays, sizes)
    assert error == FAILED


@pytest.mark.parametrize(("text", "arrays", "sizes"), [
    (PRODUCT.format(depth="m", row="", line=""), [filled(50, 7), filled(7, 70)], {"n": 50, "m": 7, "k": 70}),
    (PRODUCT.format(depth="m", row="", line=""), [filled(2, 700), filled(700, 70)], {"n": 2, "m": 700, "k": 70}),
    (PRODUCT.format(depth="m", row="", line=""), [filled(2, 0), filled(0, 70)], {"n": 2, "m": 0, "k": 70}),
    (PRODUCT.format(depth="m", row="", line=""), [filled(0, 3), filled(3, 70)], {"n": 0, "m": 3, "k": 70}),
    (STAGED.format(far=0), [filled(3, 4)], {"n": 3, "m": 4}),
    (STAGED.format(far=0), [filled(0, 4)], {"n": 0, "m": 4}),
])
def test_what_is_right_passes_and_gives_the_same(monkeypatch, text, arrays, sizes):
    kernel = parse_kernel(text)
    expected, _ = run_natively(kernel, arrays, sizes)
    monkeypatch.setenv(VARIABLE, "1")
    found, error = run_natively(kernel, arrays, sizes)
    assert error == 0
    np.testing.assert_array_equal(found[0], expected[0])


def test_other_builds_have_no_checks(monkeypatch):
    kernel, module = parse_kernel(SHIFTED), parse(program(SHIFTED))
    monkeypatch.delenv(VARIABLE, raising=False)
    plain, key = kernel_code(kernel), key_text(module, Options())
    monkeypatch.setenv(VARIABLE, "0")
    assert kernel_code(kernel).source == plain.source and not plain.may_fail and "inside" not in plain.source
    monkeypatch.setenv(VARIABLE, "1")
    assert kernel_code(kernel).source != plain.source and key_text(module, Options()) != key


def program(kernel: str) -> str:
    """A program that calls a kernel of one f32[n] on twice its argument, by a distance that only the call knows."""
    name = kernel.split("def ")[1].split("(")[0]
    kernel = kernel.replace("*, n", "*, n, far").replace("i + 2", "i + far").replace("i - 1", "i - far")
    return f"""{kernel}

def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = add(x, x)
        v1: f32[n] = call_kernel({name}, v0, sizes=(n, 2))
        v2: f32[n] = sort(v1, axis=0)
        output(v2)
    return v2"""


@pytest.mark.parametrize("text", [SHIFTED, STORED])
def test_a_compiled_program_names_kernel_buffer_index_and_extent(checked, text):
    executable = mr.compile(parse(program(text)))
    for _ in range(2):                                             # a failure leaves nothing behind
        with pytest.raises(BoundsError) as e:
            executable(np.ones(4, np.float32))
        assert isinstance(e.value, IndexingError) and e.value.kernel in {k.name for k in executable.module.kernels}
        assert e.value.what == f"kernel {e.value.kernel} uses element {e.value.index} of {e.value.buffer}, which has 4"
        assert not 0 <= e.value.index < 4 == e.value.elements


@pytest.mark.parametrize("text", [SHIFTED, STORED])
def test_validation_names_kernel_and_place_before_anything_runs_natively(text):
    module = parse(program(text))
    with pytest.raises(RunError, match=r"kernel \w+ uses \w+\[-?\d+\], outside its shape \(4,\)"):
        mr.validate(mr.compile(module), np.ones(4, np.float32))


@mr.kernel
def picked(x: f32[n], places: i64[m], out: f32[m], *, n, m):  # noqa: F821
    for i in range(m):
        out[i] = x[places[i]]


def test_an_index_out_of_range_of_a_users_kernel_is_found_by_validation(monkeypatch):
    x, places = np.ones(3, np.float32), np.array([0, 3])
    for validate in (True, False):
        with pytest.raises(IndexingError) as e:
            mr.jit(lambda x, places: np.exp(picked(x, places)), validate=validate)(x, places)
        assert "lambda x, places: np.exp(picked(x, places))" in e.value.where and "index 3" in e.value.what


def scaled(x):
    y = np.exp(x)
    return y * 3


def shifts_reads(module: Module) -> Module:
    """A pass that is wrong: every kernel reads its inputs one element further."""
    def shifted(s):
        return load(s.buffer, (s.indices[0] + 1, *s.indices[1:]), s.dtype) if isinstance(s, Load) else s

    def broken(kernel: Kernel) -> Kernel:
        return replace(kernel, blocks=tuple(replace(b, value=transform(b.value, shifted)) for b in kernel.blocks))

    return replace(module, kernels=tuple(map(broken, module.kernels)))


def test_a_pass_that_breaks_a_kernel_is_found_with_the_lines_it_came_from(checked):
    stages = mr.run(mr.trace(scaled, mr.f32["n"]), (*mr.pipeline.passes(), shifts_reads))
    built = build(stages[-1].module)
    executable = Executable(built, preparation(stages[-1].module), (*stages, Stage("build", built, 0.0)))
    with pytest.raises(BoundsError, match="uses element 100000 of x, which has 100000") as e:
        executable(np.ones(100_000, np.float32))                       # by several threads
    first = scaled.__code__.co_firstlineno
    assert e.value.where.split("\n     ") == [
        f"test_bounds.py:{first + 1}   y = np.exp(x)", f"test_bounds.py:{first + 2}   return y * 3"]


@pytest.mark.parametrize(("text", "what"), [
    (SHIFTED, "x[i + 2] is outside x: f32[n] where i = n - 1"),
    (STORED, "out[i - 1] is outside out: f32[n] where i = 0"),
    (SUMMED, "x[i, k + 3] is outside x: f32[n, m] where k = m - 1"),
    (COLUMNS, "x[k, j] is outside x: f32[n, m] where k = n"),
    (STAGED.format(far=5).replace("j + 5", "5 + n*0 - 6"), "x[i, -1] is outside x: f32[n, m]"),
])
def test_what_is_always_outside_is_refused_before_anything_is_compiled(text, what):
    kernel = parse_kernel(text)
    module = replace(parse("def main(x: f32[n]) -> f32[n]:\n    return x"), kernels=(kernel,))
    with pytest.raises(VerifyError) as e:
        mr.compile(module)
    assert (e.value.what, e.value.where) == (what, f"kernel {kernel.name}")


@pytest.mark.parametrize("text", [GATHERED, STAGED.format(far=0), PRODUCT.format(depth="m", row="", line=""), """
@kernel
def padded(x: f32[n], out: f32[n + 2], *, n):
    for i in range(n + 2):
        out[i] = x[min(max(i - 1, 0), n - 1)]""", """
@kernel
def halves(x: f32[2*n + 1], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[2*i + 1]"""])
def test_what_may_be_inside_is_not_refused(text):
    refuse_outside(parse_kernel(text))


LOOP = """
@kernel
def far_away(x: f32[n], out: f32[n], *, n, far):
    for i in range(n):
        out[i] = x[i + far] - 1.0

@private
def positive(s: f32[n]) -> bool[()]:
    with dataflow():
        v0: f32[()] = max(s, axes=(0,), keepdims=False)
        v1: bool[()] = greater(v0, -1.0)
        output(v1)
    return v1

@private
def step(s: f32[n]) -> Tuple[f32[n]]:
    with dataflow():
        v0: f32[n] = call_kernel(far_away, s, sizes=(n, 1))
        v1: f32[n] = maximum(v0, 0.0)
        v2: Tuple[f32[n]] = (v1,)
        output(v2)
    return v2

def main(x: f32[n]) -> f32[n]:
    v0: Tuple[f32[n]] = while_loop(positive, step, (), (x,))
    v1: f32[n] = v0[0]
    return v1"""


def test_a_loop_ends_when_a_check_fails(checked):
    """What its test looks at means nothing then: this one would go on for ever."""
    with pytest.raises(BoundsError, match="uses element 5 of"):
        mr.compile(parse(LOOP))(np.ones(5, np.float32))

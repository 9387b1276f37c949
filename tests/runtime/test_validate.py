"""Validation: whatever pass is wrong, and however, it is named; so are the generated code and the program's own failures."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import minirelax as mr
from minirelax import pipeline
from minirelax.errors import ArgumentError, IndexingError, RunError, ShapeError, VerifyError
from minirelax.ir.parser import parse
from minirelax.passes.base import Stage
from minirelax.runtime.validate import compare

X = np.arange(6.0).reshape(2, 3)


def fn(x, w):
    y = x @ w - 2
    return y, np.exp(y - y.max(axis=1, keepdims=True)).sum(axis=1)


W = np.random.default_rng(0).standard_normal((3, 4))
MODULE = """
def main(x: f64[n, 3], w: f64[3, 4]) -> Tuple[f64[n, 4], f64[n]]:
    with dataflow():
        v0: f64[n, 4] = matmul(x, w)
        v1: f64[n, 4] = subtract(v0, 2.0)
        v2: f64[n] = sum(v1, axes=(1,), keepdims=False)
        v3: Tuple[f64[n, 4], f64[n]] = (v1, v2)
        output(v3)
    return v3
"""


def wrong(old: str, new: str):
    """A pass that takes one thing for another, in the text of whatever it gets."""

    def mistaken(module):
        text = str(module)
        assert re.search(old, text), f"no {old} in\n{text}"
        return parse(re.sub(old, new, text))

    return mistaken


def after(name: str, mistaken):
    """All passes, and a mistaken one after the one of that name."""
    passes = pipeline.passes()
    at = [p.__name__ for p in passes].index(name) + 1
    return (*passes[:at], mistaken, *passes[at:])


def failure(passes, *args, **options) -> str:
    with pytest.raises(RunError) as caught:
        mr.validate(mr.run(parse(MODULE), passes), *args, **options)
    return str(caught.value)


MISTAKES = {
    "an op, before fusion": ("simplify", r"subtract\(", "add(", "by up to 4.0"),
    "a scalar of a kernel": ("fuse_kernels", r"- 2\.0", "- 3.0", "by up to 1.0"),
    "an op of a kernel": ("fuse_kernels", r"- 2\.0", "+ 2.0", "by up to 4.0"),
    "a kernel's indices": ("fuse_kernels", r"w\[k, j\]", "w[k, 3 - j]", "by up to "),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_the_mistaken_pass_is_named(name):
    place, old, new, what = MISTAKES[name]
    assert failure(after(place, wrong(old, new)), X, W).startswith(f"mistaken changed result 0 of the program {what}")


def test_a_mistaken_memory_plan_is_named():
    """A matrix product that is written over its own operand."""
    text = """
def main(x: f64[n, 3], w: f64[3, 3]) -> f64[n, 3]:
    with dataflow():
        v0: f64[n, 3] = matmul(x, w)
        v1: f64[n, 3] = matmul(v0, w)
        v2: f64[n, 3] = matmul(v1, w)
        output(v2)
    return v2
"""
    with pytest.raises(VerifyError, match="v0 is read, but v1 lives in its storage by now") as e:
        mr.run(parse(text), after("plan_memory", wrong(
            r"v1: f64\[n, 3\] = alloc_tensor\(v6, .*\)", "v1: f64[n, 3] = alloc_tensor(v6)")))
    assert "mistaken" in str(e.value)


def test_passes_that_are_right_are_not_blamed():
    mr.validate(mr.run(parse(MODULE), pipeline.passes()), X, W)
    mr.validate(mr.run(parse(MODULE), ()), X, W)
    assert mr.validate(mr.compile(parse(MODULE)), X, W) is None


def test_message():
    assert re.sub(r":\d+ ", ": ", failure(after("simplify", wrong(r"subtract\(", "add(")), np.zeros((2, 3)), W)) == """\
mistaken changed result 0 of the program by up to 4.0: it is 2.0 at [0, 0] in place of -2.0
  at test_validate.py:   mr.validate(mr.run(parse(MODULE), passes), *args, **options)
  hint: see what it did: .diff("mistaken") of the function, or of minirelax.explore.Stages(stages)"""


def test_a_pass_that_changes_a_result_s_dtype():
    text = """
def main(x: f64[n]) -> f64[n]:
    with dataflow():
        v0: f64[n] = exp(x)
        output(v0)
    return v0
"""
    narrow = """
def main(x: f64[n]) -> f32[n]:
    with dataflow():
        v0: f64[n] = exp(x)
        v1: f32[n] = cast(v0, dtype="f32")
        output(v1)
    return v1
"""
    tall = """
def main(x: f64[n]) -> f64[n, 1]:
    with dataflow():
        v0: f64[n] = exp(x)
        v1: f64[n, 1] = reshape(v0, shape=(n, 1))
        output(v1)
    return v1
"""
    twice = """
def main(x: f64[n]) -> Tuple[f64[n], f64[n]]:
    with dataflow():
        v0: f64[n] = exp(x)
        v1: Tuple[f64[n], f64[n]] = (v0, v0)
        output(v1)
    return v1
"""
    for other, what in (
        (narrow, "result 0 of the program: float32[3] in place of float64[3]"),
        (tall, "result 0 of the program: float64[3, 1] in place of float64[3]"),
        (twice, "the number of the program's results: 2 in place of 1"),
    ):

        def mistaken(_, other=other):
            return parse(other)

        with pytest.raises(RunError, match=re.escape(f"mistaken changed {what}")):
            mr.validate(mr.run(parse(text), (pipeline.simplify, mistaken)), np.ones(3))


def test_a_pass_whose_program_fails():
    """Sizes that only hold at run time: verified, and wrong."""

    def mistaken(module):
        return parse(str(module).replace("v0: f64[n, 4] = matmul(x, w)", "v9: f64[_, _] = match_cast(x, f64[_, _])\n"
                     "        v8: f64[n, 4] = match_cast(v9, f64[n, 4])\n        v0: f64[n, 4] = add(v8, 0.0)"))  # fmt: skip

    message = failure((mistaken,), X, W)
    assert re.match(r"mistaken made a program that cannot run: ShapeError: .*expected f64\[n, 4\], got an array", message)


def test_a_pass_that_makes_an_invalid_module():
    with pytest.raises(VerifyError, match="^mistaken made an invalid module: v1 is declared f64.n, 5., but its value has type"):
        mr.run(parse(MODULE), after("simplify", wrong(r"v1: f64\[n, 4\]", "v1: f64[n, 5]")))


def test_weights():
    """They are prepared by each stage's own function ``bind``."""
    text = MODULE.replace(", w:", ", *, w:")
    stages = mr.run(parse(text), pipeline.passes())
    for weights in ([W], {"w": W}):
        mr.validate(stages, X, weights=weights)
    mr.validate(mr.compile(parse(text)), X, weights=[W])

    def mistaken(module):
        begin = "    with dataflow():\n"
        negated = begin + "        w2: f64[3, 4] = negative(w)\n"
        return parse(str(module).replace(f"{begin}        v0: Tuple", f"{negated}        v0: Tuple").replace("= (w,)", "= (w2,)"))

    with pytest.raises(RunError, match="^mistaken changed result 0"):
        mr.validate(mr.run(parse(text), after("bind_parameters", mistaken)), X, weights=[W])
    with pytest.raises(ArgumentError, match="1 weight expected, 0 given"):
        mr.validate(stages, X)


def test_a_loaded_executable_brings_its_weights(tmp_path):
    f = mr.jit(fn, constants="w")
    f(X, W)
    f.executable.save(tmp_path / "fn.mrx", W)
    mr.validate(mr.Executable.load(tmp_path / "fn.mrx"), X)


# ---- the generated code


def test_wrong_code_is_named_build(monkeypatch, tmp_path):
    """A code generator that takes a minus for a plus."""
    from minirelax.runtime import build

    right = build.kernel_code

    def mistaken(kernel, *rest):
        code = right(kernel, *rest)
        return replace(code, source=code.source.replace(" - 2.0", " + 2.0"))

    monkeypatch.setenv("MINIRELAX_CACHE_DIR", str(tmp_path))  # a wrong program must not be found by others
    monkeypatch.setattr(build, "kernel_code", mistaken)
    broken = mr.compile(parse(MODULE))
    assert " + 2.0" in broken.source
    with pytest.raises(RunError) as caught:
        mr.validate(broken, X, W)
    assert caught.value.what.startswith("build changed result 0 of the program by up to 4.0: it is ")
    assert caught.value.hint == "compare its last stage with the code in .source"


def test_jit_validates_every_call(monkeypatch, tmp_path):
    """A pass that takes a sum for a product gives a program that verifies, and computes something else."""
    mistaken = wrong(r"subtract\(", "add(")
    monkeypatch.setenv("MINIRELAX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(pipeline, "GRAPH_PASSES", (*pipeline.GRAPH_PASSES[:1], mistaken, *pipeline.GRAPH_PASSES[1:]))
    expected = """\
mistaken changed result 0 of the program by up to 4.0: it is 2.0 at [0, 0] in place of -2.0
  at test_validate.py   f(X)
  hint: see what it did: .diff("mistaken") of the function, or of minirelax.explore.Stages(stages)"""
    f = mr.jit(lambda x: x.T * 3 - 2, validate=True)
    for _ in range(2):
        with pytest.raises(RunError) as caught:
            f(X)
        assert re.sub(r"test_validate.py:\d+", "test_validate.py", str(caught.value)) == expected
    assert "-        v2: f64[m, n] = subtract(v1, 2.0)\n+        v2: f64[m, n] = add(v1, 2.0)" in str(f.diff("mistaken"))
    assert mr.jit(f.fn)(X).shape == (3, 2)  # without validation nobody notices


@pytest.mark.parametrize("target", ["cpu", "interpret"])
def test_jit_returns_what_is_right(target):
    f = mr.jit(fn, constants="w", validate=True, target=target)
    for n in (2, 0, 5):
        x = np.random.default_rng(n).standard_normal((n, 3))
        for got, want in zip(f(x, W), fn(x, W) if n else (np.zeros((0, 4)), np.zeros(0)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9)


# ---- what is the program's own


def test_the_program_s_own_failures_come_through():
    text = """
def main(x: f32[n], i: i64[k]) -> f32[k]:
    with dataflow():
        v0: f32[k] = take(x, i, axis=0, mode="raise")
        output(v0)
    return v0
"""
    x, outside = np.ones(3, "f4"), np.array([0, 7])
    for stages in (mr.run(parse(text), pipeline.passes()), mr.compile(parse(text))):
        with pytest.raises(IndexingError):
            mr.validate(stages, x, outside)
        with pytest.raises(ShapeError):
            mr.validate(stages, np.ones((3, 3), "f4"), outside)
        with pytest.raises(ArgumentError):
            mr.validate(stages, x)


def test_arguments_are_not_changed():
    x, w = X.copy(), W.copy()
    mr.validate(mr.compile(parse(MODULE)), x, w)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(w, W)


VALUES = {
    "rounding": (np.float32([1, 1000]), np.float32([1.01, 1000]), True),
    "more than rounding": (np.float32([1, 1000]), np.float32([1.2, 1000]), False),
    "rounding in f64": (np.float64([1, 2]), np.float64([1, 2 + 1e-10]), True),
    "more in f64": (np.float64([1, 2]), np.float64([1, 2 + 1e-7]), False),
    "nan": (np.float64([np.nan, np.inf]), np.float64([np.nan, np.inf]), True),
    "nan in place of a number": (np.float64([0, 1]), np.float64([np.nan, 1]), False),
    "a number in place of nan": (np.float64([np.nan, 1]), np.float64([0, 1]), False),
    "the other infinity": (np.float64([np.inf]), np.float64([-np.inf]), False),
    "large integers": (np.array([2**62]), np.array([2**62 + 1]), False),
    "no axes": (np.array(3), np.array(4), False),
    "bools": (np.array([True, False]), np.array([True, True]), False),
    "nothing": (np.zeros((0, 3)), np.zeros((0, 3)), True),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_counts_as_the_same(name):
    want, got, same = VALUES[name]
    if same:
        compare("some_pass", [want], [got])
    else:
        with pytest.raises(RunError, match="^some_pass changed result 0 of the program by up to .*: it is .* in place of"):
            compare("some_pass", [want], [got])


def test_stages_of_any_kind():
    """Anything with a name and a module is a stage; what is no module is passed over."""
    module = parse(MODULE)
    mr.validate([Stage("trace", module, 0.0), Stage("build", object(), 0.0)], X, W)
    with pytest.raises(RunError, match="^build changed result 0"):
        mr.validate([Stage("trace", module, 0.0)], X, W, outputs=[np.zeros((2, 4)), np.zeros(2)])

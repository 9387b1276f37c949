"""What functions look like once traced: the text is the interface."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import numpy as np
import pytest

import minirelax.numpy as mnp
from minirelax import f32, i64
from minirelax.errors import ArgumentError
from minirelax.frontend.trace import trace
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify
from minirelax.jit import jit


def text(fn, *args, **options) -> str:
    module = trace(fn, *args, **options).module
    verify(module)
    assert parse(str(module), {c.name: c.array for c in module.constants}) == module
    return str(module)


def test_softmax():
    def softmax(x):
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        return e / np.sum(e, axis=-1, keepdims=True)

    assert (
        text(softmax, np.zeros((3, 4), np.float32))
        == """\
def main(x: f32[n, m]) -> f32[n, m]:
    guard(m > 0)
    with dataflow():
        v0: f32[n, 1] = max(x, axes=(1,), keepdims=True)
        v1: f32[n, m] = subtract(x, v0)
        v2: f32[n, m] = exp(v1)
        v3: f32[n, 1] = sum(v2, axes=(1,), keepdims=True)
        v4: f32[n, m] = divide(v2, v3)
        output(v4)
    return v4"""
    )


def test_sizes_are_lettered_in_order_once_facts_are_known():
    def layer(x, w, b):
        return np.maximum(x @ w + b, 0)

    assert text(layer, np.zeros((2, 3)), np.zeros((3, 4)), np.zeros(4)).startswith(
        "def main(x: f64[n, m], w: f64[m, k], b: f64[k]) -> f64[n, k]:"
    )


def test_declarations_also_postponed_and_from_an_enclosing_function():
    width = 7

    @jit(target="interpret")
    def f(x: f32["n", width], w: "f32[7, 'm']", s: f32):
        return x @ w * s

    assert str(f.trace(np.zeros((2, 7), np.float32), np.zeros((7, 3), np.float32), 2.0)).startswith(
        "def main(x: f32[n, 7], w: f32[7, m], s: f32[()]) -> f32[n, m]:"
    )


def test_constants_are_kept_once():
    w = np.arange(3, dtype=np.float32)
    again = w.copy()
    assert (
        text(lambda x: x * w + w - again, f32["n", 3])
        == """\
c0: f32[3] = constant([0.0, 1.0, 2.0])

def main(x: f32[n, 3]) -> f32[n, 3]:
    with dataflow():
        v0: f32[n, 3] = multiply(x, c0)
        v1: f32[n, 3] = add(v0, c0)
        v2: f32[n, 3] = subtract(v1, c0)
        output(v2)
    return v2"""
    )


def test_weights_are_bound_parameters_of_known_size():
    def f(p, x):
        return x @ p["w"] + p["b"]

    p = {"w": np.zeros((4, 2), np.float32), "b": np.zeros(2, np.float32)}
    assert (
        text(f, p, np.zeros((3, 4), np.float32), constants=("p",))
        == """\
def main(x: f32[n, 4], *, p_w: f32[4, 2], p_b: f32[2]) -> f32[n, 2]:
    with dataflow():
        v0: f32[n, 2] = matmul(x, p_w)
        v1: f32[n, 2] = add(v0, p_b)
        output(v1)
    return v1"""
    )


def test_types_of_weights():
    module = trace(lambda x, p: x @ p["w"] + p["b"], f32["n", 16], {"w": f32[16, "m"], "b": f32["m"]}, constants="p").module
    assert str(module).splitlines()[0] == "def main(x: f32[n, 16], *, p_w: f32[16, m], p_b: f32[m]) -> f32[n, m]:"
    mixed = trace(lambda x, w: x @ w, f32["n", 16], np.zeros((16, 64), "f4"), constants="w").module
    assert str(mixed).splitlines()[0] == "def main(x: f32[n, 16], *, w: f32[16, 64]) -> f32[n, 64]:"


def test_a_selection_binds_its_size():
    assert (
        text(lambda x: x[x > 0].sum(), np.zeros(3, np.float32))
        == """\
def main(x: f32[n]) -> f32[()]:
    with dataflow():
        v0: bool[n] = greater(x, 0.0)
        v1: f32[_] = compress(v0, x, axis=0)
        v2: f32[m] = match_cast(v1, f32[m])
        v3: f32[()] = sum(v2, axes=(0,), keepdims=False)
        output(v3)
    return v3"""
    )


def test_match_cast_names_a_size():
    assert "f32[kept] = match_cast(v2, f32[kept])" in text(lambda x: mnp.match_cast(x[x > 0], f32["kept"]) * 2, f32["n"])


def test_creation_with_symbolic_sizes():
    def f(x):
        n = x.shape[0]
        return mnp.arange(n) * mnp.full((n,), 2) + mnp.zeros(n, dtype=mnp.int64)

    assert (
        text(f, f32["n"])
        == """\
def main(x: f32[n]) -> i64[n]:
    with dataflow():
        v0: i64[n] = iota(size=n, dtype="i64")
        v1: i64[n] = full(i64(2), shape=(n,))
        v2: i64[n] = multiply(v0, v1)
        v3: i64[n] = full(i64(0), shape=(n,))
        v4: i64[n] = add(v2, v3)
        output(v4)
    return v4"""
    )


def test_several_results():
    module = trace(lambda x: (x + 1, {"y": x * 2, "n": x.shape[0]}), f32["n"]).module
    assert str(module.functions[0].result.type) == "Tuple[f32[n], f32[n], i64[()]]"
    verify(module)


def test_names_of_arguments_sizes_and_values_do_not_collide():
    module = trace(lambda n, v0, inf, m: n + v0 + inf + m, *(np.zeros(3, np.float32) for _ in range(4))).module
    assert str(module).startswith("def main(n: f32[k], v0: f32[k], inf_2: f32[k], m: f32[k]) -> f32[k]:")
    verify(module)


def test_every_binding_knows_the_users_line():
    def f(x):
        y = np.exp(x)
        return y + 1

    bindings = trace(f, f32["n"]).main.bindings
    first = f.__code__.co_firstlineno
    assert [(b.source.file, b.source.line) for b in bindings] == [(__file__, first + 1), (__file__, first + 2)]


def test_jitted_functions_inside_others_are_inlined():
    inner = jit(lambda x: x * 2, target="interpret")
    outer = jit(lambda x: inner(x) + inner(x + 1), target="interpret")
    np.testing.assert_array_equal(outer(np.arange(3.0)), np.arange(3.0) * 4 + 2)
    assert not inner.compilations and len(outer.trace(np.arange(3.0)).functions) == 1


def test_types_mix_with_values():
    result = trace(lambda x, n: x * n, f32["n"], 3)
    assert str(result.main.params[1].type) == "i64[()]" and result.main.result.type.dtype == "f32"


def test_a_declared_size_must_stand_alone_somewhere():
    with pytest.raises(ArgumentError, match="the size n of f32\\[2\\*n\\] stands alone in no argument's shape"):
        trace(lambda x: x, f32["2*n"])


def test_integer_declarations():
    assert text(lambda i: i + 1, i64["n"]).startswith("def main(i: i64[n]) -> i64[n]:")

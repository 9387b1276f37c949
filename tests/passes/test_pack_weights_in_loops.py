"""Weights that loops and branches pass to their functions are packed once, when the program is bound."""

import numpy as np
import pytest

import minirelax as mr
from minirelax.ir.graph import CallKernel, Cond, Scan, While
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify
from minirelax.passes.pack_weights import pack_weights
from minirelax.pipeline import run

W, U = np.random.default_rng(0).standard_normal((2, 24, 24)).astype(np.float32) / 5
TABLE = np.random.default_rng(1).standard_normal((24, 24)).astype(np.float32) / 5


def repeated(x, w, u):
    return mr.fori_loop(0, 3, lambda i, c: np.tanh(c @ w), x)


def transposed(x, w, u):
    return mr.fori_loop(0, 3, lambda i, c: np.tanh(c @ w.T), x)


def nested(x, w, u):
    return mr.fori_loop(0, 3, lambda i, c: np.tanh(mr.fori_loop(0, 2, lambda j, c: c @ w.T, c) @ u), x)


def branch(x, w, u):
    return mr.cond(x.sum() > 0, lambda x: x @ w, lambda x: x @ u, x)


def scanned(x, w, u):
    return mr.scan(lambda c, row: (c @ w + row, c @ u), x, np.stack([x, x * 2]))


def constant(x, w, u):
    return mr.fori_loop(0, 3, lambda i, c: np.tanh(c @ TABLE), x)


def read_elsewhere(x, w, u):
    return mr.fori_loop(0, 3, lambda i, c: np.tanh(c @ w) + w[0], x)


def in_test_only(x, w, u):
    return mr.while_loop(lambda c: np.sum(np.abs(c @ w)) > 1, lambda c: c * 0.5, x)


PROGRAMS = {  # what the program is bound to after the pass, and how many arguments its outermost control flow has
    repeated: (["w_packed"], 1),
    transposed: (["v0_packed"], 1),
    nested: (["v0_packed", "u_packed"], 2),
    branch: (["w_packed", "u_packed"], 3),
    scanned: (["w_packed", "u_packed"], 2),
    constant: ([], 0),
    read_elsewhere: (["w_packed"], 2),
    in_test_only: (["w_packed"], 1),
}


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_panels_reach_the_functions(fn):
    compiled = mr.jit(fn, constants=("w", "u"))
    for n in (3, 1, 0, 70):
        x = np.random.default_rng(n).standard_normal((n, 24)).astype(np.float32)
        found, want = compiled(x, W, U), fn(x, W, U)
        for a, b in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, want)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    module = compiled.stages["pack_weights"].module
    bound, count = PROGRAMS[fn]
    assert [v.name for v in module["main"].bound if v.name.endswith("_packed")] == bound
    (control,) = (b.value for b in module["main"].bindings if isinstance(b.value, Cond | While | Scan))
    assert len(control.args) == count
    called = {b.value.kernel for f in module.functions for b in f.bindings if isinstance(b.value, CallKernel)}
    products = [module[name] for name in called if "matmul" in name]
    assert products and all(any("_packed" in v.name for v in k.inputs) for k in products)
    assert parse(str(module), constants={c.name: c.array.value for c in module.constants}) == module


def test_every_stage_means_the_same():
    module = mr.jit(nested, constants=("w", "u"))
    x = np.random.default_rng(0).standard_normal((3, 24)).astype(np.float32)
    module(x, W, U)
    for stage in list(module.stages)[:-1]:
        bound = interpret(stage.module, W, U, function="bind") if "def bind(" in str(stage.module) else (W, U)
        np.testing.assert_allclose(interpret(stage.module, x, bound=bound), nested(x, W, U), rtol=1e-4, atol=1e-5)


SHARED = """
@kernel(pattern="contraction")
def matmul(x: f32[n, 24], w: f32[24, 24], out: f32[n, 24], *, n):
    for i in range(n):
        for j in range(24):
            out[i, j] = 0.0
            for k in range(24):
                out[i, j] += x[i, k] * w[k, j]

def main(x: f32[n, 24], *, w: f32[24, 24], u: f32[24, 24]) -> f32[n, 24]:
    v0: Tuple[f32[n, 24]] = scan(step, (w,), (x,), (), length=2, reverse=False)
    with dataflow():
        v1: f32[n, 24] = v0[0]
        output(v1)
    v2: Tuple[f32[n, 24]] = scan({second}, (u,), (v1,), (), length=2, reverse=False)
    with dataflow():
        v3: f32[n, 24] = v2[0]
        output(v3)
    return v3

@private
def step(w: f32[24, 24], c: f32[n, 24]) -> Tuple[f32[n, 24]]:
    with dataflow():
        v0: f32[n, 24] = call_kernel(matmul, c, w, sizes=(n,))
        v1: Tuple[f32[n, 24]] = (v0,)
        output(v1)
    return v1
"""


def test_a_function_of_two_loops_keeps_its_weights():
    module = parse(SHARED.format(second="step"))
    assert pack_weights()(module) is module
    two = SHARED + SHARED[SHARED.index("\n@private") :].replace("step", "other")
    packed = run(parse(two.format(second="other")), (pack_weights(),))[-1].module
    verify(packed)
    assert [k.name for k in packed.kernels] == ["matmul"] and [v.name for v in packed["main"].bound] == ["w_packed", "u_packed"]
    x = np.random.default_rng(0).standard_normal((3, 24)).astype(np.float32)
    bound = interpret(packed, W, U, function="bind")
    np.testing.assert_allclose(interpret(packed, x, bound=bound), x @ W @ W @ U @ U, rtol=1e-3, atol=1e-4)

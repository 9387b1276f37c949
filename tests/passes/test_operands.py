"""What a contraction's operand is made of is computed where the operand is packed: no matrix is stored for it."""

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32, u8
from minirelax.ir.graph import AllocStorage, AllocTensor, RunKernel
from minirelax.passes.grouping import MOST_BUFFERS
from minirelax.pipeline import passes
from minirelax.schedule.contraction import ContractionPlan


@mr.kernel
def decode(codes: u8["n", "k"], scale: f32["n"], out: f32["n", "2*k"], *, n, k):  # noqa: F821
    for i in range(n):
        for j in range(2 * k):
            out[i, j] = (f32((codes[i, j // 2] >> u8(j % 2 * 4)) & 15) - 7.0) * scale[i]


def decoded(codes, scale):
    return (np.stack([codes & 15, codes >> 4], -1).reshape(len(codes), 2 * codes.shape[1]) - 7.0) * scale[:, None]


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("f4")


def codes_and_scale(n, k):
    return np.random.default_rng(1).integers(0, 256, (n, k), np.uint8), floats(n)


SIZES = ((0, 3, 2), (1, 1, 1), (5, 0, 3), (7, 33, 20), (50, 64, 40))
PROGRAMS = {
    "left": (lambda c, s, w: decode(c, s) @ w, lambda m, k, n: (*codes_and_scale(m, k), floats(2 * k, n)),
             lambda c, s, w: decoded(c, s) @ w),
    "right": (lambda x, c, s: x @ decode(c, s), lambda m, k, n: (floats(m, k), *codes_and_scale(k, n)),
              lambda x, c, s: x @ decoded(c, s)),
    "transposed": (lambda x, c, s: x @ decode(c, s).T, lambda m, k, n: (floats(m, 2 * k), *codes_and_scale(n, k)),
                   lambda x, c, s: x @ decoded(c, s).T),
    "converted": (lambda x, w: x @ (w.astype(np.float32) * np.float32(0.5) + np.float32(1)),
                  lambda m, k, n: (floats(m, k), np.arange(k * n, dtype=np.int8).reshape(k, n)), None),
    "gathered": (lambda x, t, i: x @ np.take(t, i, axis=0),
                 lambda m, k, n: (floats(m, k), floats(9, n), np.arange(k) % 9), None),
    "both": (lambda x, y, s: (x - np.float32(1)) @ (y * s), lambda m, k, n: (floats(m, k), floats(k, n), floats(n)), None),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_kernel_and_no_matrix_for_the_operand(name):
    function, arguments, numpy = PROGRAMS[name]
    compiled = mr.jit(function)
    for m, k, n in SIZES:
        given = arguments(m, k, n)
        exact = (numpy or function)(*(a.astype(float) if a.dtype.kind == "f" else a for a in given))
        np.testing.assert_allclose(compiled(*given), exact, rtol=1e-4, atol=1e-4)
    for executable in {id(e.executable): e.executable for e in compiled._all}.values():
        main = executable.module["main"]
        assert sum(isinstance(b.value, RunKernel) for b in main.bindings) == 1
        plan, = executable.tiling
        assert isinstance(plan, ContractionPlan) and "copy" in (plan.a.how, plan.b.how)
        assert all(len(v.type.shape) == 2 and v.type.shape == plan.kernel.outputs[0].type.shape for v in plan.kernel.local)


def test_what_costs_more_is_computed_once():
    """A transcendental function would be evaluated each time that the operand is packed."""
    module = mr.run(mr.trace(lambda x, w: np.exp(x) @ w, f32["m", "k"], f32["k", "n"]), passes())[-1].module
    assert [b.value.kernel for b in module["main"].bindings if isinstance(b.value, RunKernel)] == ["exp", "matmul"]


def test_what_others_read_too_is_stored():
    module = mr.run(mr.trace(lambda x, w: (x * 2) @ w + np.sum(x * 2), f32["m", "k"], f32["k", "n"]), passes())[-1].module
    assert any(k.name.startswith("multiply") for k in module.kernels)


def test_a_kernel_has_a_limited_number_of_buffers():
    def total(arrays):
        return sum(a * (i + 1) for i, a in enumerate(arrays))

    arrays = [floats(5) for _ in range(100)]
    compiled = mr.jit(total)
    np.testing.assert_allclose(compiled(arrays), total(arrays), rtol=1e-5)
    kernels = compiled.stages["fuse_kernels"].module.kernels
    assert len(kernels) > 3 and all(len(k.inputs) + len(k.outputs) <= MOST_BUFFERS for k in kernels)


def test_reductions_of_the_same_rows_read_them_once():
    def several(x):
        return np.mean(x, axis=-1), np.max(x, axis=-1), np.sum(x * x, axis=-1)

    compiled = mr.jit(several)
    for shape in ((3, 70), (0, 4), (1, 1)):
        x = floats(*shape)
        for got, want in zip(compiled(x), several(x.astype(float)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    kernel, = compiled.stages["fuse_kernels"].module.kernels
    assert len(kernel.outputs) == 3 and len(kernel.inputs) == 1


def test_reductions_of_other_rows_stay_apart():
    module = mr.run(mr.trace(lambda x: (np.sum(x, axis=0), np.sum(x, axis=1)), f32["m", "n"]), passes())[-1].module
    assert sum(isinstance(b.value, RunKernel) for b in module["main"].bindings) == 2
    assert not any(isinstance(b.value, AllocStorage) for b in module["main"].bindings)
    assert sum(isinstance(b.value, AllocTensor) for b in module["main"].bindings) >= 2

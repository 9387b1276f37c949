"""Users may name sizes and arguments as they like: also as kernels name their own buffers, axes and variables."""

import numpy as np
import pytest

import minirelax as mr


def sizes_named_as_buffers(t0: mr.f32["out", "t0"], lambda_: mr.f32["t0", "s0"], out: mr.f32["args", "lo"]):  # noqa: F821
    q = np.exp(t0 - t0.max(1, keepdims=True))
    product = t0 @ lambda_ + 1
    joined = np.concatenate([out, out])
    return q / q.sum(1, keepdims=True), product, t0[:, ::-1] + 1, t0.sum(0) + t0.shape[0], out.argmax(0), joined


def test_names_that_kernels_use_themselves():
    r = np.random.default_rng(0)
    arrays = [r.random(shape, dtype="f4") for shape in ((3, 4), (4, 5), (2, 5))]
    for got, want in zip(mr.jit(sizes_named_as_buffers)(*arrays), sizes_named_as_buffers(*arrays), strict=True):
        np.testing.assert_allclose(got, want, 1e-5)


def test_a_size_cannot_be_called_like_a_number():
    def f(x: mr.f32["inf"]):  # noqa: F821
        return x + 1

    with pytest.raises(mr.errors.ArgumentError, match="a size cannot be called 'inf'"):
        mr.jit(f)(np.ones(3, np.float32))

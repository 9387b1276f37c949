"""Users may name sizes and arguments as they like: also as kernels name their own buffers, axes and variables."""

import ast

import numpy as np
import pytest

import minirelax as mr
from minirelax.codegen.contraction import contraction_source
from minirelax.codegen.kernel import RESERVED
from minirelax.codegen.numba_cpu import kernel_plan, source_globals
from minirelax.codegen.rows import row_source
from minirelax.ir.parser import parse
from minirelax.pipeline import panel_width, passes, run
from minirelax.schedule.contraction import ContractionPlan
from tests.passes.programs import PROGRAMS


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


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_name_of_the_source_is_reserved_or_given(name):
    """A name that the writer of a kernel just uses could be one of the user's."""
    for kernel in run(parse(PROGRAMS[name][0]), passes(None, panel_width))[-1].module.kernels:
        plan = kernel_plan(kernel)
        source = contraction_source(plan) if isinstance(plan, ContractionPlan) else row_source(plan)
        used = {n.id for n in ast.walk(ast.parse(str(source.out))) if isinstance(n, ast.Name)}
        assert used <= RESERVED | source_globals().keys() | source.names.taken


def batched(batch: mr.f32["batch", "group", "to"], groups: mr.f32["to", "panels"], panels: mr.f32["group", "panels"]):  # noqa: F821
    return batch @ groups + panels * batch.shape[0]


def test_names_that_matrix_products_use_themselves():
    r = np.random.default_rng(0)
    for b, m, k, n in ((2, 5, 7, 9), (3, 100, 8, 70)):
        given = r.random((b, m, k), dtype="f4"), r.random((k, n), dtype="f4"), r.random((m, n), dtype="f4")
        np.testing.assert_allclose(mr.jit(batched)(*given), batched(*given), 1e-4)

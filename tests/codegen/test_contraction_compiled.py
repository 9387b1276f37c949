"""Contractions through register tiles: every layout of the operands, every remainder, epilogues, against float64 NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from minirelax.codegen.numba_cpu import kernel_code, register_tiles
from minirelax.ir.dim import dim
from minirelax.ir.graph import Var
from minirelax.ir.scalar import apply, load
from minirelax.ir.tensor import TensorExpr, lower_to_kernel
from minirelax.ir.types import f32, f64
from minirelax.ops import OPS
from minirelax.schedule.contraction import B_ROWS, ContractionPlan
from tests.codegen.native import run_natively

SIZES = [
    (1, 1, 1), (2, 33, 5), (3, 64, 0), (13, 31, 17), (15, 32, 385), (97, 70, 40), (141, 129, 800), (300, 5, 9),
    (0, 4, 4), (4, 0, 4),
    (3, 400, 20), (45, 64, B_ROWS + 3), (700, 33, B_ROWS + 1), (700, 96, 530),      # tiles of several panels, chunks and blocks
]


def einsum(subscripts: str, *types):
    params = tuple(Var(name, t) for name, t in zip("xyz", types, strict=False))
    op = OPS["einsum"](params, subscripts)
    return lower_to_kernel("einsum", op.lower, params, frozenset({"m", "n", "k", "b", "h"}))


LAYOUTS = {
    "plain": (einsum("mk,kn->mn", f32["m", "k"], f32["k", "n"]), "direct", "direct"),
    "right transposed": (einsum("mk,nk->mn", f32["m", "k"], f32["n", "k"]), "direct", "copy"),
    "left transposed": (einsum("km,kn->mn", f32["k", "m"], f32["k", "n"]), "copy", "direct"),
    "both transposed": (einsum("km,nk->mn", f32["k", "m"], f32["n", "k"]), "copy", "copy"),
    "result transposed": (einsum("mk,kn->nm", f32["m", "k"], f32["k", "n"]), "copy", "copy"),
    "double": (einsum("mk,kn->mn", f64["m", "k"], f64["k", "n"]), "direct", "direct"),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    kernel, a_how, b_how = LAYOUTS[layout]
    plan = kernel_code(kernel).plan
    assert isinstance(plan, ContractionPlan) and (plan.a.how, plan.b.how) == (a_how, b_how)
    rng = np.random.default_rng(0)
    for m, n, k in SIZES:
        sizes = {"m": m, "n": n, "k": k}
        x, y = (rng.standard_normal([sizes[str(d)] for d in v.type.shape]).astype(v.type.numpy_dtype) for v in kernel.inputs)
        want = contracted(kernel, x, y)
        for split in (None, 1):
            (got,), _ = run_natively(kernel, (x, y), sizes, split)
            assert_close(got, want, k)


def contracted(kernel, x, y):
    letters = ["".join(str(d) for d in v.type.shape) for v in (*kernel.inputs, *kernel.outputs)]
    return np.einsum(f"{letters[0]},{letters[1]}->{letters[2]}", x.astype("f8"), y.astype("f8"))


def assert_close(got, want, k):
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=(2e-6 if got.dtype == np.float32 else 1e-14) * max(1, k))


@pytest.mark.parametrize("subscripts, types", [
    ("bmk,bkn->bmn", (f32["b", "m", "k"], f32["b", "k", "n"])),
    ("bhmk,bhnk->bhmn", (f32["b", 3, "m", "k"], f32["b", 3, "n", "k"])),
    ("bmhk,bnhk->bhmn", (f32["b", "m", 3, "k"], f32["b", "n", 3, "k"])),
    ("bmk,kn->bmn", (f32["b", "m", "k"], f32["k", "n"])),
    ("mkp,kpn->mn", (f32["m", "k", 3], f32["k", 3, "n"])),
    ("mkp,pkn->mn", (f32["m", "k", 3], f32[3, "k", "n"])),
])
def test_batches_and_several_reduction_axes(subscripts, types):
    kernel = einsum(subscripts, *types)
    assert isinstance(kernel_code(kernel).plan, ContractionPlan)
    rng = np.random.default_rng(1)
    for b, m, n, k in [(1, 1, 1, 1), (2, 5, 33, 7), (3, 100, 32, 64), (2, 0, 3, 4), (0, 3, 3, 3)]:
        sizes = {"b": b, "m": m, "n": n, "k": k}
        shapes = [[d if isinstance(d, int) else sizes[str(d)] for d in v.type.shape] for v in kernel.inputs]
        arrays = [rng.standard_normal(shape).astype("f4") for shape in shapes]
        (got,), _ = run_natively(kernel, arrays, sizes)
        assert_close(got, np.einsum(subscripts, *(a.astype("f8") for a in arrays)), 3 * k)


def test_a_plain_product_is_written_where_it_belongs():
    """Whole panels go to the result itself; a result of another dtype, or in another order, is written from scratch memory."""
    plan = kernel_code(LAYOUTS["plain"][0]).plan
    assert (plan.store.buffer, str(plan.store.stride)) == ("out", "n")

    def rule(k, x, y):
        total = k.reduce("sum", (x.shape[0], y.shape[1]), (x.shape[1],),
                         lambda i, j, r: apply("multiply", x.at(i, r), y.at(r, j)), "f32")
        return TensorExpr(total.shape, "f32", lambda i, j: apply("add", total.at(i, j), total.at(i, j)))
    twice = lower_to_kernel("twice", rule, (Var("x", f32["m", "k"]), Var("y", f32["k", "n"])), frozenset({"m", "n", "k"}))
    assert kernel_code(twice).plan.store is None


def test_packed_weight_with_bias_activation_and_residual():
    """The epilogue reads the finished tile; the sum itself may be an output as well."""
    width = register_tiles()["f32"].width
    columns = 3 * width // 2

    def rule(k, x, w, bias, residual):
        def term(b, i, j, r):
            return apply("multiply", x.at(b, i, r), load("w", (j // width, r, j % width), "f32"))
        product = k.reduce("sum", (*x.shape[:2], columns), (x.shape[2],), term, "f32")
        biased = k.stage(TensorExpr(product.shape, "f32", lambda b, i, j: apply("add", product.at(b, i, j), bias.at(j))))
        shown = TensorExpr(product.shape, "f32", lambda b, i, j: apply(
            "add", apply("maximum", biased.at(b, i, j), apply("negative", biased.at(b, i, j))), residual.at(b, i, j)))
        return product, shown
    kernel = lower_to_kernel("mlp", rule, (Var("x", f32["b", "m", "k"]), Var("w", f32[2, "k", width]), Var("bias", f32[columns]),
                                           Var("residual", f32["b", "m", columns])), frozenset({"b", "m", "k"}))
    plan = kernel_code(kernel).plan
    assert plan.b.how == "packed" and plan.a.how == "direct" and len(plan.outer) == 0 and plan.m.extent == dim("b*m")
    rng = np.random.default_rng(2)
    for b, m, k in [(1, 1, 3), (2, 50, 400), (3, 70, 16)]:
        x, bias = rng.standard_normal((b, m, k)).astype("f4"), rng.standard_normal(columns).astype("f4")
        w, residual = rng.standard_normal((k, columns)).astype("f4"), rng.standard_normal((b, m, columns)).astype("f4")
        packed = np.zeros((2, k, width), "f4")
        packed[0], packed[1, :, :columns - width] = w[:, :width], w[:, width:]
        (product, shown), _ = run_natively(kernel, (x, packed, bias, residual), {"b": b, "m": m, "k": k})
        want = x.astype("f8") @ w
        assert_close(product, want, k)
        assert_close(shown, np.abs(want + bias) + residual, k)

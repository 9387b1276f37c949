"""Norms behind a matrix product, in one kernel: every norm, layout and remainder, against NumPy in float64."""

from __future__ import annotations

import textwrap

import numpy as np
import pytest

from minirelax.codegen.numba_cpu import kernel_code, register_tiles
from minirelax.ir.checked import VARIABLE
from minirelax.ir.dim import value
from minirelax.ir.parser import parse_kernel
from minirelax.ir.types import NUMPY_DTYPES
from minirelax.passes.contraction_rows import ROW_BYTES
from minirelax.schedule.contraction import K_CHUNK, ROW_TILES, ContractionPlan
from minirelax.schedule.machine import Machine
from minirelax.schedule.rows import RowPlan
from tests.codegen.native import run_natively

HEAD = """
@kernel
def norm(x: {dtype}[n, k], w: {w}, b: {dtype}[{columns}], r: {dtype}[n, {columns}], out: {dtype}[{out}], *, n, k):
    t0 = local({dtype}[n, {columns}])
    t1 = local({dtype}[n, {columns}])
    t2 = local({dtype}[n, 1])
    t3 = local({dtype}[n, {columns}])
    t4 = local({dtype}[n, 1])
    for i in range(n):
        for j in range({columns}):
            t0[i, j] = 0.0
            for l in range(k):
                t0[i, j] += x[i, l] * w[{at}]
    for i in range(n):
        for j in range({columns}):
            t1[i, j] = t0[i, j] + b[j] + r[i, j]
"""
SUM = """
    for i in range(n):
        {to}[i, 0] = 0.0
        for q in range({columns}):
            {to}[i, 0] += {what}
"""
ALL = """
    for i in range(n):
        for j in range({columns}):
            {to}[i, j] = {what}
"""
MAX = """
    for i in range(n):
        t2[i, 0] = -inf
        for q in range({columns}):
            t2[i, 0] = maximum(t2[i, 0], t1[i, q])
"""


def total(to: str, what: str) -> str:
    return SUM.replace("{to}", to).replace("{what}", what)


def each(to: str, what: str) -> str:
    return ALL.replace("{to}", to).replace("{what}", what)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


NORMS = {
    "layer norm": (
        total("t2", "t1[i, q]")
        + each("t3", "t1[i, j] - t2[i, 0] / {columns}.0")
        + total("t4", "t3[i, q] * t3[i, q]")
        + each("out", "t3[i, j] / sqrt(t4[i, 0] / {columns}.0 + 0.00001)"),
        lambda x: (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5),
    ),
    "rms norm": (
        total("t2", "t1[i, q] * t1[i, q]") + each("out", "t1[i, j] / sqrt(t2[i, 0] / {columns}.0 + 0.00001)"),
        lambda x: x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
    ),
    "softmax": (
        MAX + each("t3", "exp(t1[i, j] - t2[i, 0])") + total("t4", "t3[i, q]") + each("out", "t3[i, j] / t4[i, 0]"),
        softmax,
    ),
    "log softmax": (
        MAX
        + each("t3", "t1[i, j] - t2[i, 0]")
        + total("t4", "exp(t3[i, q])")
        + "\n    for i in range(n):\n        t5[i, 0] = log(t4[i, 0])\n"
        + each("out", "t3[i, j] - t5[i, 0]"),
        lambda x: np.log(softmax(x)),
    ),
    "sum": (SUM.replace("{to}[i, 0]", "out[i]").replace("{what}", "t1[i, q]"), lambda x: x.sum(-1)),
}


def norm_kernel(name: str, columns: int, dtype: str = "f32", packed: bool = False):
    width = register_tiles()[dtype].width
    w = f"{dtype}[{-(-columns // width)}, k, {width}]" if packed else f"{dtype}[k, {columns}]"
    at = f"j//{width}, l, j%{width}" if packed else "l, j"
    out = "n" if name == "sum" else f"n, {columns}"
    text = HEAD.replace("    t0 = local", "    t5 = local({dtype}[n, 1])\n    t0 = local", 1) if name == "log softmax" else HEAD
    text = (text + NORMS[name][0]).format(columns=columns, dtype=dtype, w=w, at=at, out=out)
    unread = [t for t in ("t3", "t4", "t2") if text.count(f"{t}[") == 0]
    return parse_kernel("\n".join(line for line in text.splitlines() if not any(f"{t} = local" in line for t in unread)))


def packed_panels(w, width: int):
    k, columns = w.shape
    panels = -(-columns // width)
    padded = np.zeros((k, panels * width), w.dtype)
    padded[:, :columns] = w
    return padded.reshape(k, panels, width).transpose(1, 0, 2)


def check(kernel, name: str, n: int, k: int, columns: int, dtype: str = "f32", packed: bool = False):
    rng = np.random.default_rng(n + k)
    shapes = ((n, k), (k, columns), (columns,), (n, columns))
    x, w, b, r = (rng.standard_normal(shape).astype(NUMPY_DTYPES[dtype]) for shape in shapes)
    given = packed_panels(w, register_tiles()[dtype].width) if packed else w
    sizes = {"n": n, "k": k}
    (got,), error = run_natively(kernel, (x, given, b, r), sizes)
    (again,), _ = run_natively(kernel, (x, given, b, r), sizes, 1)
    want = NORMS[name][1](x.astype("f8") @ w + b + r) if n else np.zeros(got.shape)
    tolerance = (2e-5 if dtype == "f32" else 1e-12) * max(1, k) ** 0.5
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(got, again)  # whoever runs which tiles
    assert error == 0


@pytest.mark.parametrize(("name", "packed"), [*((name, False) for name in NORMS), ("layer norm", True), ("softmax", True)])
def test_norms(name, packed):
    kernel = norm_kernel(name, 70, packed=packed)
    plan = kernel_code(kernel).plan
    assert isinstance(plan, ContractionPlan) and plan.whole_rows and plan.b.how == ("packed" if packed else "direct")
    for n, k in [(0, 3), (1, 5), (7, 0), (13, K_CHUNK + 1), (300, 40)]:
        check(kernel, name, n, k, 70, packed=packed)


@pytest.mark.parametrize(("columns", "dtype"), [(1, "f32"), (3, "f64"), (600, "f32"), (ROW_BYTES // 8, "f64")])
def test_short_and_long_rows(columns, dtype):
    """Rows of less than a panel, and of so many panels that they are computed in several groups."""
    kernel = norm_kernel("layer norm", columns, dtype)
    plan = kernel_code(kernel).plan
    assert plan.whole_rows and (columns < 600 or plan.row_panels > plan.max_panels)
    for n, k in [(0, 3), (1, 9), (90, 17), (41, 500)]:
        check(kernel, "layer norm", n, k, columns, dtype)


def test_scratch_memory_is_enough_and_every_access_inside(monkeypatch):
    monkeypatch.setenv(VARIABLE, "1")
    for name, n, k in [("layer norm", 90, 17), ("softmax", 5, K_CHUNK + 7)]:
        check(norm_kernel(name, 70), name, n, k, 70)
        check(norm_kernel(name, 40, packed=True), name, n, k, 40, packed=True)


def test_tiles_are_blocks_of_rows():
    """Enough for several threads where there are rows, none with fewer rows than a register tile, and none with too many."""
    plan = kernel_code(norm_kernel("softmax", 384)).plan

    def tiles(n: int) -> int:
        return value(plan.tiles, {"n": n, "k": 64})

    rows = plan.tile.rows
    assert (tiles(0), tiles(1), tiles(rows), tiles(rows + 1), tiles(3 * rows)) == (0, 1, 1, 2, 3)
    assert tiles(100 * rows) >= ROW_TILES and tiles(100_000) > 300


SEVERAL = """
@kernel
def scaled(q: f32[h, d, n], w: f32[h, 50, d], product: f32[h, n, 50], out: f32[h, n, 50], *, h, d, n):
    t0 = local(f32[h, n])
    for i in range(h):
        for j in range(n):
            for l in range(50):
                product[i, j, l] = 0.0
                for k in range(d):
                    product[i, j, l] += q[i, k, j] * w[i, l, k]
    for i in range(h):
        for j in range(n):
            t0[i, j] = 0.0
            for k in range(50):
                t0[i, j] += absolute(product[i, j, k])
    for i in range(h):
        for j in range(n):
            for l in range(50):
                out[i, j, l] = product[i, j, l] / (t0[i, j] + 1.0)
"""


def test_outer_axes_copied_operands_and_the_product_as_a_result():
    kernel = parse_kernel(SEVERAL)
    plan = kernel_code(kernel).plan
    assert plan.whole_rows and (plan.a.how, plan.b.how) == ("copy", "copy") and [a.name for a in plan.outer] == ["i"]
    rng = np.random.default_rng(0)
    for h, d, n in [(1, 1, 1), (3, 8, 40), (2, 400, 7), (0, 3, 3), (3, 3, 0)]:
        q, w = rng.standard_normal((h, d, n)).astype("f4"), rng.standard_normal((h, 50, d)).astype("f4")
        want = np.einsum("hdn,hld->hnl", q.astype("f8"), w)
        for split in (None, 1):
            (product, out), _ = run_natively(kernel, (q, w), {"h": h, "d": d, "n": n}, split)
            np.testing.assert_allclose(product, want, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(out, want / (np.abs(want).sum(-1, keepdims=True) + 1), rtol=1e-4, atol=1e-5)


def test_what_is_no_row_epilogue_is_a_plan_of_rows():
    """Rows of any length, rows too long, and values that are read at another place in the row."""
    free = str(norm_kernel("softmax", 71)).replace("71", "m").replace("n, k):", "n, k, m):")
    swapped = str(norm_kernel("softmax", 70)).replace("t3[i, j] / t4[i, 0]", "t3[i, 69 - j] / t4[i, 0]")
    for kernel in (parse_kernel(free), norm_kernel("softmax", ROW_BYTES // 4 + 1), parse_kernel(swapped)):
        assert isinstance(kernel_code(kernel).plan, RowPlan)


def test_the_text():
    """The product of a block of rows, then each row as a plan of rows would do it: three loops, two rows of scratch."""
    code = kernel_code(norm_kernel("layer norm", 70, packed=False), Machine("haswell", "avx2"))
    assert str(code.plan) == (
        "norm: n x 70 x k, outer 1, A direct, B direct, register tile 6 x 16, "
        "up to max(min((n + 7)//8, 132), 6) rows by all panels a tile"
    )
    assert textwrap.dedent(code.source[code.source.index("                    for i in"):]) == """\
for i in range(first_row, last_row):
    tile_result = ptr_f32(result_start + 320*(i - first_row))
    total0 = f32(0.0)
    for j in range(70):
        s0 = ((tile_result[j] + b[j]) + r[70*i + j])
        t1[j] = f32(s0)
        total0 = add_reassoc_f32(total0, s0)
    t2 = total0
    total1 = f32(0.0)
    for j in range(70):
        s1 = (t1[j] - (t2 / f32(70.0)))
        t3[j] = f32(s1)
        total1 = fma_reassoc_f32(total1, s1, s1)
    t4 = total1
    for j in range(70):
        out[70*i + j] = f32((t3[j] / sqrt_f32(((t4 / f32(70.0)) + f32(9.999999747378752e-06)))))
"""

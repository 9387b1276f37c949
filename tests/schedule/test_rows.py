"""How kernels of rows are planned: which axes are shared, which is vectorised, what is kept in registers or not at all."""
from __future__ import annotations

from minirelax.ir.dim import dim
from minirelax.ir.parser import parse_kernel
from minirelax.schedule.flat import merge_spatial, stride_of
from minirelax.schedule.rows import CHUNK, COLUMN_CHUNK, TRANSPOSED_CHUNK, plan_rows


def plan(text: str):
    return plan_rows(parse_kernel(text))


def test_an_elementwise_kernel_is_one_contiguous_loop():
    p = plan("""
@kernel
def double(x: f32[n, m], out: f32[n, m], *, n, m):
    for i in range(n):
        for j in range(m):
            out[i, j] = x[i, j] + x[i, j]
""")
    assert (p.form, p.rows, p.chunk.extent, p.width) == ("chunk", (), dim("m*n"), CHUNK)


def test_a_broadcast_operand_keeps_the_rows():
    p = plan("""
@kernel
def add(x: f32[n, m], w: f32[m], out: f32[n, m], *, n, m):
    for i in range(n):
        for j in range(m):
            out[i, j] = x[i, j] + w[j]
""")
    assert [a.name for a in p.rows] == ["i"] and p.chunk.name == "j" and p.width == CHUNK


def test_a_transposed_operand_gets_narrow_chunks():
    p = plan("""
@kernel
def transpose(x: f32[m, n], out: f32[n, m], *, n, m):
    for i in range(n):
        for j in range(m):
            out[i, j] = x[j, i]
""")
    assert p.form == "chunk" and p.width == TRANSPOSED_CHUNK


def test_a_reduction_along_the_rows_accumulates_vectors():
    p = plan("""
@kernel
def column_sums(x: f32[n, m], out: f32[m], *, n, m):
    for j in range(m):
        out[j] = 0.0
        for k in range(n):
            out[j] += x[k, j]
""")
    assert (p.form, p.chunk.name, p.width) == ("chunk", "j", COLUMN_CHUNK)


def test_a_reduction_along_the_contiguous_axis_is_a_scalar_loop():
    p = plan("""
@kernel
def row_sums(x: f32[n, m], out: f32[n], *, n, m):
    for i in range(n):
        out[i] = 0.0
        for k in range(m):
            out[i] += x[i, k]
""")
    assert p.form == "row" and p.steps[0].over_is_innermost


SOFTMAX = """
@kernel
def softmax(x: f32[n, m], out: f32[n, m], *, n, m):
    t0 = local(f32[n, 1])
    t1 = local(f32[n, m])
    t2 = local(f32[n, 1])
    for i in range(n):
        t0[i, 0] = -inf
        for k in range(m):
            t0[i, 0] = maximum(t0[i, 0], x[i, k])
    for i in range(n):
        for j in range(m):
            t1[i, j] = exp(x[i, j] - t0[i, 0])
    for i in range(n):
        t2[i, 0] = 0.0
        for k in range(m):
            t2[i, 0] += t1[i, k]
    for i in range(n):
        for j in range(m):
            out[i, j] = t1[i, j] / t2[i, 0]
"""


def test_softmax_shares_rows_and_loops():
    """Row results are registers, the exponentials a row of scratch, written and summed in one loop."""
    p = plan(SOFTMAX)
    assert [a.name for a in p.rows] == ["i"] and set(p.registers) == {"t0", "t2"} and not p.unstored
    assert [len(loop.steps) for loop in p.loops] == [1, 2, 1]
    assert [(s.name, s.elements) for s in p.scratch] == [("t1", dim("m"))]


def test_a_value_that_only_its_loop_reads_is_not_stored():
    p = plan(SOFTMAX.replace("out[i, j] = t1[i, j] / t2[i, 0]", "out[i, j] = x[i, j] / t2[i, 0]"))
    assert p.unstored == {"t1"} and not p.scratch


def test_rows_are_shared_only_where_values_stay_in_their_row():
    """The second block reads the first one's result at another row: there is one row, the whole."""
    p = plan("""
@kernel
def mirrored(x: f32[n, m], out: f32[n, m], *, n, m):
    t0 = local(f32[n, m])
    for i in range(n):
        for j in range(m):
            t0[i, j] = exp(x[i, j])
    for i in range(n):
        for j in range(m):
            out[i, j] = t0[n - 1 - i, j]
""")
    assert p.rows == () and [(s.name, s.elements) for s in p.scratch] == [("t0", dim("m*n"))]


def test_axes_merge_only_where_every_access_runs_on():
    kernel = parse_kernel("""
@kernel
def add(x: f32[n, m, k], y: f32[m, k], out: f32[n, m, k], *, n, m, k):
    for i in range(n):
        for j in range(m):
            for l in range(k):
                out[i, j, l] = x[i, j, l] + y[j, l]
""")
    p = plan_rows(kernel)
    assert [a.extent for a in p.rows] == [dim("n")] and p.chunk.extent == dim("k*m")
    blocks = merge_spatial(p.kernel.blocks[:0] or [s.block for s in p.steps]).blocks
    assert stride_of(blocks[0].indices[0], blocks[0].axes[0].name) == dim("k*m")

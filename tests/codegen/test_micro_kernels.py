"""Every register tile, against NumPy in float64."""

import ctypes

import llvmlite.binding as llvm
import numpy as np
import pytest

from minirelax.codegen import micro_kernels
from minirelax.schedule.machine import Machine, detect

NUMPY = {"f32": np.float32, "f64": np.float64}
TOLERANCE = {"f32": 2e-5, "f64": 1e-13}


@pytest.fixture(scope="module")
def tiles():
    yield from load(detect())


def load(machine):
    """Callable tiles by symbol name, from the object code."""
    code = micro_kernels.object_code(machine)
    target_machine = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target_machine)
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    shapes = [micro_kernels.tile_shape(machine, dtype) for dtype in micro_kernels.DTYPES]
    names = [f"sweep_{s.dtype}" for s in shapes]
    names += [micro_kernels.symbol(s, rows, n) for s in shapes for rows in range(1, s.mr_max + 1) for n in {1, s.panels(rows)}]
    signatures = {name: ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * (12 if name.startswith("sweep") else 11)) for name in names}
    yield {name: signatures[name](engine.get_function_address(name)) for name in names}
    del engine


def run(tile, a, b, c, kc, accumulate, panel=0, every=0):
    lda, ldb, ldc = (x.strides[0] // x.itemsize for x in (a, b, c))
    tile(a.ctypes.data, lda, b.ctypes.data, ldb, panel, c.ctypes.data, ldc, kc, accumulate, 4096, every)


@pytest.mark.parametrize("dtype", micro_kernels.DTYPES)
@pytest.mark.parametrize("kc", [0, 1, 3, 4, 7, 64, 131])
def test_every_tile(tiles, dtype, kc):
    shape = micro_kernels.tile_shape(detect(), dtype)
    rng = np.random.default_rng(kc)
    for rows in range(1, shape.mr_max + 1):
        for panels in {1, shape.panels(rows)}:
            name, width = micro_kernels.symbol(shape, rows, panels), panels * shape.width
            a = rng.standard_normal((rows, kc + 5)).astype(NUMPY[dtype])
            b = rng.standard_normal((panels, kc + 1, shape.width)).astype(NUMPY[dtype])
            c = rng.standard_normal((rows + 1, width + 3)).astype(NUMPY[dtype])
            product = a[:, :kc].astype(np.float64) @ np.hstack(b[:, :kc].astype(np.float64))
            for accumulate, every in ((0, 1), (1, 0)):
                out = c.copy()
                run(tiles[name], a, b[0], out, kc, accumulate, (kc + 1) * shape.width, every)
                want = product + accumulate * c[:rows, :width].astype(np.float64)
                np.testing.assert_allclose(out[:rows, :width], want, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype] * 10)
                out[:rows, :width] = c[:rows, :width]
                np.testing.assert_array_equal(out, c, err_msg=f"{name} wrote outside its tile")


@pytest.mark.parametrize("dtype", micro_kernels.DTYPES)
@pytest.mark.parametrize("panels", [0, 1, 2, 3, 4, 7])
def test_sweep_over_rows_and_panels(tiles, dtype, panels):
    shape = micro_kernels.tile_shape(detect(), dtype)
    rng, most, width = np.random.default_rng(panels), shape.mr_max, panels * shape.width
    for rows, k in [*((rows, rows % 9) for rows in range(4 * most + 2)), (3 * most - 1, 33), (6 * most + 1, 6)]:
        a = rng.standard_normal((rows, k + 3)).astype(NUMPY[dtype])
        b = rng.standard_normal((panels, k + 1, shape.width)).astype(NUMPY[dtype])
        want = a[:, :k].astype(np.float64) @ np.hstack([np.zeros((k, 0)), *b[:, :k]])
        for accumulate in (0, 1):
            c = np.full((rows + 1, width + 2), 7, NUMPY[dtype])
            operands = (a.ctypes.data, k + 3, b.ctypes.data, shape.width, (k + 1) * shape.width, c.ctypes.data, width + 2)
            tiles[f"sweep_{dtype}"](*operands, rows, panels, k, accumulate, b.ctypes.data)
            assert (c[:rows, width:] == 7).all()
            got, tolerance = c[:rows, :width], TOLERANCE[dtype]
            np.testing.assert_allclose(got, want + 7 * accumulate, rtol=tolerance, atol=100 * tolerance)
            assert (c[rows:] == 7).all()


def test_overwriting_ignores_what_was_there(tiles):
    shape = micro_kernels.tile_shape(detect(), "f32")
    a, b = np.ones((2, 8), np.float32), np.ones((8, shape.width), np.float32)
    c = np.full((2, shape.width), np.nan, np.float32)
    run(tiles["tile_f32_2x1"], a, b, c, 8, 0)
    assert (c == 8).all()


def test_b_need_not_be_packed(tiles):
    shape = micro_kernels.tile_shape(detect(), "f64")
    rng = np.random.default_rng(0)
    a, wide = rng.standard_normal((3, 20)), rng.standard_normal((20, 3 * shape.width))
    b = wide[:, 5 : 5 + shape.width]
    c = np.empty((3, shape.width))
    run(tiles["tile_f64_3x1"], a, b, c, 20, 0)
    np.testing.assert_allclose(c, a @ b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("dtype", micro_kernels.DTYPES)
def test_bits_of_a_row_do_not_depend_on_the_rows_beside_it(tiles, dtype):
    shape = micro_kernels.tile_shape(detect(), dtype)
    rng = np.random.default_rng(1)
    a = rng.standard_normal((shape.mr_max, 37)).astype(NUMPY[dtype])
    b = rng.standard_normal((37, shape.width)).astype(NUMPY[dtype])
    together = np.empty((shape.mr_max, shape.width), NUMPY[dtype])
    run(tiles[f"tile_{dtype}_{shape.mr_max}x1"], a, b, together, 37, 0)
    for rows in range(1, shape.mr_max):
        alone = np.empty((rows, shape.width), NUMPY[dtype])
        run(tiles[f"tile_{dtype}_{rows}x1"], a, b, alone, 37, 0)
        np.testing.assert_array_equal(alone, together[:rows])
        if shape.panels(rows) > 1:
            wide = np.empty((rows, shape.panels(rows) * shape.width), NUMPY[dtype])
            run(tiles[micro_kernels.symbol(shape, rows, shape.panels(rows))], a, b, wide, 37, 0)  # every panel is b
            np.testing.assert_array_equal(wide, np.tile(together[:rows], shape.panels(rows)))


@pytest.mark.skipif(detect().isa not in ("avx512", "avx2"), reason="runs older x86 code")
@pytest.mark.parametrize("name, isa", [("haswell", "avx2"), ("x86-64", "sse")])
def test_code_for_an_older_processor(name, isa):
    machine = Machine(name, isa)
    shape = micro_kernels.tile_shape(machine, "f32")
    for tiles in load(machine):
        a, b = np.ones((shape.mr_max, 9), np.float32), np.full((9, shape.width), 0.5, np.float32)
        c = np.empty((shape.mr_max, shape.width), np.float32)
        run(tiles[f"tile_f32_{shape.mr_max}x1"], a, b, c, 9, 0)
        assert (c == 4.5).all()


@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse", "neon", "generic"])
def test_tiles_fit_the_registers_of_every_instruction_set(isa):
    machine = Machine("any", isa)
    for dtype in micro_kernels.DTYPES:
        shape = micro_kernels.tile_shape(machine, dtype)
        used = shape.mr_max * shape.nv + shape.nv + 1
        assert used <= machine.vector_registers < used + shape.nv
        assert shape.width * NUMPY[dtype]().itemsize == shape.nv * machine.vector_bytes
    llvm.parse_assembly(str(micro_kernels.tile_module(machine))).verify()


def test_no_sum_leaves_the_registers():
    """No tile's loops may spill: no vector is stored before the result is."""
    machine = detect()
    if machine.isa not in ("avx512", "avx2"):
        pytest.skip("reads x86 assembly")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    target_machine = target.create_target_machine(cpu=machine.name, features=machine.features, opt=3)
    shape = micro_kernels.tile_shape(machine, "f32")
    text = target_machine.emit_assembly(llvm.parse_assembly(str(micro_kernels.tile_module(machine))))
    register = "zmm" if machine.isa == "avx512" else "ymm"
    for rows in range(1, shape.mr_max + 1):
        for panels in {1, shape.panels(rows)}:
            body = text.split(f"\n{micro_kernels.symbol(shape, rows, panels)}:")[1].split(".size")[0]
            spilled = [line for line in body.splitlines() if "movups\t%" + register in line and "(%rsp)" in line]
            assert not spilled, (rows, panels)
            assert body.count("vfmadd") >= (micro_kernels.UNROLL + 1) * rows * panels * shape.nv

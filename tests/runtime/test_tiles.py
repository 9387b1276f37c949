"""The table of register tiles, through the object-code cache."""

import ctypes
import subprocess
import sys

import numpy as np
import pytest

from minirelax.codegen import micro_kernels
from minirelax.runtime import object_cache, tiles
from minirelax.schedule.machine import detect

SWEEP = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 12)


@pytest.mark.parametrize("dtype, kind", [("f32", np.float32), ("f64", np.float64)])
def test_tiles_multiply(dtype, kind, tmp_path, monkeypatch):
    monkeypatch.setenv("MINIRELAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(object_cache, "_loaded", {})
    tiles._addresses.cache_clear()
    sweep, shape = tiles.sweep_address(dtype), micro_kernels.tile_shape(detect(), dtype)
    assert sweep
    assert object_cache.info().entries == 1
    rng = np.random.default_rng(0)
    for rows in range(1, 3 * shape.mr_max):
        a, b = rng.standard_normal((rows, 10)).astype(kind), rng.standard_normal((10, shape.width)).astype(kind)
        c = np.empty((rows, shape.width), kind)
        operands = (a.ctypes.data, 10, b.ctypes.data, shape.width, 0, c.ctypes.data, shape.width)
        SWEEP(sweep)(*operands, rows, 1, 10, 0, b.ctypes.data)
        np.testing.assert_allclose(c, a.astype("f8") @ b.astype("f8"), rtol=1e-4, atol=1e-5)


def test_other_dtypes_have_no_tiles():
    with pytest.raises(KeyError):
        tiles.sweep_address("i32")


def test_a_warm_process_does_not_import_numba():
    load = "from minirelax.runtime.tiles import sweep_address; sweep_address('f32')"
    program = f"import sys; {load}; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)

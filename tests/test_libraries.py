"""Matrix products by NumPy's BLAS: every layout, batches, the sizes at which generated code stays."""

import math
import subprocess
import sys

import numpy as np
import pytest

import minirelax as mr
from minirelax import c64, f32
from minirelax.errors import ArgumentError, CompileError
from minirelax.ir.dim import product
from minirelax.ir.interpret import interpret
from minirelax.libraries import blas
from minirelax.ops.linalg import Matmul
from minirelax.passes.choose_libraries import choose_libraries
from minirelax.passes.library_cost import Costs
from minirelax.pipeline import run
from minirelax.runtime.routine_cost import nanoseconds

LAYOUTS = {
    "blas_matmul": (lambda a, b: a @ b, ("mk", "kn")),
    "blas_matmul_nt": (lambda a, b: a @ np.swapaxes(b, -1, -2), ("mk", "nk")),
    "blas_matmul_tn": (lambda a, b: np.swapaxes(a, -1, -2) @ b, ("km", "kn")),
    "blas_matmul_tt": (lambda a, b: np.swapaxes(a, -1, -2) @ np.swapaxes(b, -1, -2), ("km", "nk")),
}


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_every_layout(name, dtype):
    fn, (a_axes, b_axes) = LAYOUTS[name]
    for batch_a, batch_b in (((), ()), ((2,), (2,)), ((3, 1), (2,))):
        compiled, rng = mr.jit(lambda a, b: fn(a, b) + 1, libraries=blas()), np.random.default_rng(0)
        for sizes in ({"m": 3, "k": 4, "n": 5}, {"m": 1, "k": 1, "n": 2}, {"m": 0, "k": 2, "n": 3}, {"m": 2, "k": 0, "n": 3}):
            a = rng.standard_normal((*batch_a, *(sizes[s] for s in a_axes))).astype(dtype)
            b = rng.standard_normal((*batch_b, *(sizes[s] for s in b_axes))).astype(dtype)
            np.testing.assert_allclose(compiled(a, b), fn(a, b) + 1, rtol=1e-4, atol=1e-5)
        assert f"{name}: taken at " in " ".join(compiled.stages["choose_libraries"].notes)


def test_complex_products():
    traced = mr.trace(lambda a, b: a @ np.swapaxes(b, -1, -2), c64["m", "k"], c64["n", "k"])
    module = run(traced, (choose_libraries(blas()),))[-1].module
    assert 'call_library("blas_matmul_nt", a, b)' in str(module)
    a, b = (np.random.default_rng(i).standard_normal((3, 4, 2)).astype(np.float32).view(np.complex64)[..., 0] for i in (0, 1))
    np.testing.assert_allclose(interpret(module, a, b), a @ b.T, rtol=1e-5)


def test_integers_and_other_transposes_are_not_for_blas():
    compiled = mr.jit(lambda a, b: a @ b, libraries=blas())
    a = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(compiled(a, a.T), a @ a.T)
    assert all("taken" not in note for note in compiled.stages["choose_libraries"].notes)
    module = mr.trace(lambda a, b: a @ np.transpose(b, (1, 0, 2)), f32["h", "n", 4], f32[4, "h", 8])
    notes = run(module, (choose_libraries(blas()),))[-1].notes
    assert "blas_matmul_nt: not at v1: its check declined" in notes and "blas_matmul: taken at v1" in notes


def test_few_rows_stay_generated(monkeypatch):
    from minirelax import libraries

    calls = []
    product = libraries.ROUTINES["blas_matmul"]
    monkeypatch.setitem(libraries.ROUTINES, "blas_matmul", lambda a, b, out: (calls.append(len(a)), product(a, b, out))[1])
    fn = mr.jit(lambda x, w: np.maximum(x @ w, 0) * 2, libraries=blas(rows=8), validate=False)
    w = np.random.default_rng(0).standard_normal((5, 6), np.float32)
    for n in (1, 8, 9, 0, 20):
        x = np.random.default_rng(n).standard_normal((n, 5), np.float32)
        np.testing.assert_allclose(fn(x, w), np.maximum(x @ w, 0) * 2, rtol=1e-4, atol=1e-5)
    assert calls == [9, 20] and len(fn.compilations) == 1


@pytest.mark.parametrize("rows", [-1, 1.5, True, "8"])
def test_what_is_no_number_of_rows(rows):
    with pytest.raises(ArgumentError, match="not a number of rows"):
        blas(rows=rows)


def test_a_saved_program_finds_the_routines(tmp_path):
    fn = mr.jit(lambda x, w: x @ w + 1, libraries=blas())
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(fn(x, x.T), x @ x.T + 1)
    fn.executable.save(tmp_path / "product.mr")
    program = (f"import numpy as np, minirelax as mr; x = np.arange(6, dtype=np.float32).reshape(2, 3); "
               f"print(mr.Executable.load({str(tmp_path / 'product.mr')!r})(x, x.T.copy())[0].tolist())")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == str((x @ x.T + 1).tolist()), done.stderr


def notes_at(cost, libraries, fn, *types):
    """The text and the notes of the pass, where a routine takes ``cost`` of its result's shape, and kernels 1 for an element."""
    module = mr.trace(fn, *types)
    costs = Costs(lambda kernel: product(kernel.outputs[0].type.shape), lambda name, inputs, outputs, _: cost(outputs[0].shape))
    stage = run(module, (choose_libraries(libraries, costs),))[-1]
    return str(stage.module), " ".join(stage.notes)


def test_the_faster_way_is_taken():
    rules, fn = blas(cost="measured"), lambda a, b: a @ b
    known, free = (f32[20, 4], f32[4, 5]), (f32["n", 4], f32[4, 5])
    assert "blas_matmul: taken at v0" in notes_at(lambda shape: 99.0, rules, fn, *known)[1]
    assert "blas_matmul: not at v0: the routine is slower" in notes_at(lambda shape: 100.0, rules, fn, *known)[1]
    half = notes_at(lambda shape: 40 + 0.5 * math.prod(shape), rules, fn, *free)[0]
    assert "size(size=5*n - 80)" in half and "greater(" in half and "cond(" in half
    assert "the routine is slower" in notes_at(lambda shape: 40 + 1.5 * math.prod(shape), rules, fn, *free)[1]


def test_a_measured_product_is_right():
    fn, rng = mr.jit(lambda a, b: np.exp(a @ b), libraries=blas(cost="measured")), np.random.default_rng(0)
    for n, m in ((3, 4), (0, 2), (1, 1), (70, 30)):
        a, b = rng.standard_normal((n, m)), rng.standard_normal((m, 5))
        np.testing.assert_allclose(fn(a, b), np.exp(a @ b), rtol=1e-9)
    assert nanoseconds("blas_matmul", (f32[4, 4], f32[4, 4]), (f32[4, 4],), ()) > 0


def test_a_routine_that_cannot_be_measured_names_its_rule():
    rule = mr.LibraryRule("fails", lambda a, b: Matmul(a, b), cost="measured")
    mr.register_library("fails", lambda a, b, out: 1 / 0)
    with pytest.raises(CompileError, match="rule fails: its cost raised ZeroDivisionError"):
        mr.jit(lambda a, b: a @ b, libraries=rule)(np.ones((2, 2)), np.ones((2, 2)))
    with pytest.raises(ArgumentError, match="rule fails: its cost is measured, but no costs"):
        choose_libraries((rule,))
    with pytest.raises(ArgumentError, match="cost='guessed'"):
        mr.LibraryRule("fails", lambda a, b: Matmul(a, b), cost="guessed")

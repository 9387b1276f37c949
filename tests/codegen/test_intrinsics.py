"""Numba intrinsics: NumPy's division for every dtype, pointers, reductions that vectorise, special values."""

import re
import subprocess
import sys

import llvmlite.binding as llvm
import numpy as np
import pytest

from minirelax.codegen import division, intrinsics, micro_kernels, vector_math
from minirelax.schedule.machine import detect

NUMPY = {d: np.dtype(bool) if d == "bool" else np.dtype(f"{d[0]}{int(d[1:]) // 8}") for d in intrinsics.POINTEES}
UFUNC = {"floordiv": np.floor_divide, "mod": np.remainder, "fmod": np.fmod}
EXTREMES = [np.inf, -np.inf, np.nan, 0.0, -0.0]


def compile_source(source):
    """Numba's compilation of a function ``run`` whose globals are the intrinsics."""
    import numba

    scope = {**intrinsics.numba_intrinsics(), "np": np}
    exec(source, scope)
    return numba.njit(error_model="numpy")(scope["run"])


def addresses(arrays):
    return np.array([a.ctypes.data for a in arrays], np.int64)


def operands(dtype):
    """All pairs of some ordinary and all the awkward numbers."""
    kind = NUMPY[dtype]
    rng = np.random.default_rng(0)
    if kind.kind == "f":
        values = np.array([*EXTREMES, 1, -1, 0.1, -0.1, 2.5, -2.5, 7, -7, 3, 1e30, -1e30, 1e-40, *rng.uniform(-50, 50, 20)], kind)
    else:
        limits = np.iinfo(kind)
        awkward = [v for v in (-7, -3, -2, -1, 0, 1, 2, 3, 7) if v >= limits.min]
        ends = [limits.min, limits.min + 1, limits.max - 1, limits.max]
        values = np.concatenate([np.array(awkward + ends, kind), rng.integers(limits.min, limits.max, 20, dtype=kind)])
    return [np.ascontiguousarray(g.ravel()) for g in np.meshgrid(values, values)]


@pytest.mark.parametrize("dtypes", [intrinsics.SIGNED, intrinsics.UNSIGNED, intrinsics.FLOATS], ids=lambda dtypes: dtypes[0])
def test_division_is_numpys(dtypes):
    lines, arrays = ["def run(a, n):"], []
    for d in dtypes:
        a, b = operands(d)
        results = [np.empty_like(a) for _ in division.NAMES]
        names = ("x", "y", *(f"out_{name}" for name in division.NAMES))
        lines += [f"    {name}_{d} = ptr_{d}(a[{len(arrays) + i}])" for i, name in enumerate(names)]
        lines += [f"    for i in range(n[{dtypes.index(d)}]):"]
        lines += [f"        out_{name}_{d}[i] = {name}_{d}(x_{d}[i], y_{d}[i])" for name in division.NAMES]
        arrays += [a, b, *results]
    compile_source("\n".join(lines))(addresses(arrays), np.array([arrays[5 * i].size for i in range(len(dtypes))]))
    for d, group in zip(dtypes, (arrays[i : i + 5] for i in range(0, len(arrays), 5)), strict=True):
        a, b, *results = group
        for name, got in zip(division.NAMES, results, strict=True):
            with np.errstate(all="ignore"):
                want = UFUNC[name](a, b)
            np.testing.assert_array_equal(got, want, err_msg=f"{name}_{d}")
            number = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(want[number]), err_msg=f"{name}_{d}")


INTEGERS = """
def run(x, y, z, n):
    a, b, o = ptr_{d}(x), ptr_{d}(y), ptr_{d}(z)
    for i in range(n):
        o[i], o[n + i], o[2 * n + i] = left_shift_{d}(a[i], b[i]), right_shift_{d}(a[i], b[i]), power_{d}(a[i], b[i])
"""


@pytest.mark.parametrize("dtype", ["i8", "u16", "i64", "u64"])
def test_shifts_and_powers_are_numpys(dtype):
    kind = NUMPY[dtype]
    a, b = operands(dtype)
    exponents = np.arange(a.size).astype(kind) % 70
    for shifts in (b, exponents):
        out = np.empty((3, a.size), kind)
        compile_source(INTEGERS.format(d=dtype))(a.ctypes.data, shifts.ctypes.data, out.ctypes.data, a.size)
        np.testing.assert_array_equal(out[0], np.left_shift(a, shifts))
        np.testing.assert_array_equal(out[1], np.right_shift(a, shifts))
        positive = shifts >= 0
        np.testing.assert_array_equal(out[2][positive], np.power(a[positive], shifts[positive]))
        for base, exponent, got in np.stack([a, shifts, out[2]])[:, ~positive].T.tolist():
            assert got == (base if base == -1 and exponent % 2 else 1 if base in (1, -1) else 0)


def test_sizes_and_select():
    larger = "select(a > b, np.float32(a), np.float32(b))"
    run = compile_source(f"def run(a, b): return quotient(a, b), rest(a, b), {larger}, select(a < b, True, False)")
    assert run(17, 5) == (3, 2, 17.0, False)
    assert run(0, 3) == (0, 0, 3.0, True)
    assert run(2**62, 2**31) == (2**31, 0, 2.0**62, False)
    assert run(9, 0)[:2] == (9, 0)


def test_every_pointer_reads_and_writes():
    lines, arrays = ["def run(a):"], []
    for d in intrinsics.POINTEES:
        source = np.array([0, 1, 1, 0]).astype(NUMPY[d]) if d == "bool" else np.array([3, 100, 7, 1], NUMPY[d])
        lines += [f"    x_{d} = ptr_{d}(a[{len(arrays)}])", f"    y_{d} = ptr_{d}(a[{len(arrays) + 1}])"]
        lines += ["    for i in range(4):", f"        y_{d}[3 - i] = x_{d}[i]"]
        arrays += [source, np.zeros_like(source)]
    compile_source("\n".join(lines))(addresses(arrays))
    for source, copy in zip(arrays[::2], arrays[1::2], strict=True):
        np.testing.assert_array_equal(copy, source[::-1])


REDUCTIONS = """
def run(x, y, out, n):
    a, b, o = ptr_{d}(x), ptr_{d}(y), ptr_{d}(out)
    total = dot = o[0]
    product, large, small = o[1], a[0], a[0]
    for k in range(n):
        total = add_reassoc_{d}(total, a[k])
    for k in range(n):
        dot = fma_reassoc_{d}(dot, a[k], b[k])
    for k in range(n):
        product = mul_reassoc_{d}(product, b[k])
    for k in range(n):
        large = maximum_{d}(large, a[k])
    for k in range(n):
        small = minimum_{d}(small, a[k])
    o[2], o[3], o[4], o[5], o[6] = total, dot, product, large, small
"""


@pytest.mark.parametrize("dtype", intrinsics.FLOATS)
def test_reductions_are_vectorised_and_keep_nan_and_infinity(dtype):
    kind = NUMPY[dtype]
    run = compile_source(REDUCTIONS.format(d=dtype))
    rng = np.random.default_rng(0)

    def reduce(x, y):
        out = np.array([0, 1, *[9] * 5], kind)
        run(x.ctypes.data, y.ctypes.data, out.ctypes.data, x.size)
        return out[2:]

    x, y = (rng.uniform(0.9, 1.1, 1003).astype(kind) for _ in range(2))
    want = [x.sum(dtype="f8"), x.astype("f8") @ y, np.prod(y, dtype="f8"), x.max(), x.min()]
    np.testing.assert_allclose(reduce(x, y), want, rtol=2e-5 if dtype == "f32" else 1e-12)
    x[500] = np.inf
    assert reduce(x, y)[[0, 1, 3]].tolist() == [np.inf] * 3
    x[501] = np.nan
    assert np.isnan(reduce(x, y)[[0, 1, 3, 4]]).all()

    text = next(iter(run.inspect_llvm().values()))
    vector = rf"<\d+ x {'float' if dtype == 'f32' else 'double'}>"
    for operation in ("fadd reassoc", "fmul reassoc", r"@llvm.maximum.v\d+", r"@llvm.minimum.v\d+"):
        pattern = rf"{operation} {vector}" if operation.startswith("f") else rf"{vector} {operation}"
        assert re.search(pattern, text), operation
    assert "nnan" not in text and "ninf" not in text and " fast " not in text


ROUNDING = ("rint", "floor", "ceil", "trunc", "fabs", "sqrt")
ELEMENTWISE = """
def run(x, y, z, f, n):
    a, b, o, floats = ptr_{d}(x), ptr_{d}(y), ptr_{d}(z), ptr_{d}(f)
    for i in range(n):
        o[i], o[n + i], o[2 * n + i] = rint_{d}(a[i]), floor_{d}(a[i]), ceil_{d}(a[i])
        o[3 * n + i], o[4 * n + i], o[5 * n + i] = trunc_{d}(a[i]), fabs_{d}(a[i]), sqrt_{d}(a[i])
        o[6 * n + i], o[7 * n + i] = maximum_{d}(a[i], b[i]), minimum_{d}(a[i], b[i])
        o[8 * n + i], o[9 * n + i] = copysign_{d}(a[i], b[i]), fma_{d}(a[i], b[i], a[i])
        o[10 * n + i] = exp_{d}(a[i])
        floats[i] = bitcast_{i}_{d}(bitcast_{d}_{i}(a[i]))
        floats[n + i] = bitcast_{u}_{d}(bitcast_{d}_{u}(a[i]))
"""


@pytest.mark.parametrize("dtype, i, u", [("f32", "i32", "u32"), ("f64", "i64", "u64")])
def test_elementwise(dtype, i, u):
    kind = NUMPY[dtype]
    a, b = (g.ravel() for g in np.meshgrid(*[np.array([*EXTREMES, 0.5, 1.5, 2.5, -0.5, -1.7, 3, 9], kind)] * 2))
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    out, same = np.empty((11, a.size), kind), np.empty((2, a.size), kind)
    compile_source(ELEMENTWISE.format(d=dtype, i=i, u=u))(*(v.ctypes.data for v in (a, b, out, same)), a.size)
    with np.errstate(all="ignore"):
        want = [getattr(np, name)(a) for name in ROUNDING]
        want += [np.maximum(a, b), np.minimum(a, b), np.copysign(a, b)]
        for name, got, expected in zip([*ROUNDING, "maximum", "minimum", "copysign"], out, want, strict=False):
            np.testing.assert_array_equal(got, expected, err_msg=name)
        np.testing.assert_allclose(out[9], a * b + a, rtol=4 * np.finfo(kind).eps)
        np.testing.assert_allclose(out[10], np.exp(a), rtol=4 * np.finfo(kind).eps)
    np.testing.assert_array_equal(out[3], np.trunc(a))
    np.testing.assert_array_equal(np.signbit(out[0]), np.signbit(np.rint(a)))
    np.testing.assert_array_equal(same[0].view(f"i{kind.itemsize}"), a.view(f"i{kind.itemsize}"))
    np.testing.assert_array_equal(same[0], same[1])


def test_call_sweep_runs_register_tiles():
    machine = detect()
    shape = micro_kernels.tile_shape(machine, "f32")
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(micro_kernels.object_code(machine)))
    engine.finalize_object()
    sweep = engine.get_function_address("sweep_f32")
    source = "def run(t, a, lda, b, ldb, c, ldc, rows, k): call_sweep(t, a, lda, b, ldb, 0, c, ldc, rows, 1, k, 0, b)"
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype("f4") for s in ((2, 9), (9, shape.width)))
    c = np.empty((2, shape.width), "f4")
    compile_source(source)(sweep, a.ctypes.data, 9, b.ctypes.data, shape.width, c.ctypes.data, shape.width, 2, 9)
    np.testing.assert_allclose(c, a.astype("f8") @ b, rtol=1e-5, atol=1e-5)


def test_names_cover_the_supported_functions():
    names = intrinsics.numba_intrinsics()
    assert {f"{name}_{dtype}" for name, dtype in vector_math.SUPPORTED} <= set(names)
    assert {f"ptr_{d}" for d in intrinsics.POINTEES} <= set(names)


def test_importing_does_not_import_numba():
    modules = "minirelax.codegen.intrinsics, minirelax.codegen.micro_kernels"
    program = f"import sys; import {modules}; assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)

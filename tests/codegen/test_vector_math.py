"""The emitted functions: accuracy in units of the last place, special values, and vector instructions."""

import ctypes
import math
import platform

import llvmlite.binding as llvm
import numpy as np
import pytest
from llvmlite import ir

from minirelax.codegen import vector_math
from minirelax.schedule.machine import detect

NUMPY = {"f32": np.float32, "f64": np.float64}
INTEGER = {"f32": np.int32, "f64": np.int64}
LLVM = {"f32": ir.FloatType(), "f64": ir.DoubleType()}
UNARY = sorted(vector_math.SUPPORTED - {("pow", "f32")})
ULP = {"tanh": 3, "erf": 2.5}  # the others: 2; the reference for erf may itself be off by one in f64

# Where the function varies: uniform samples from there, beside samples of all bit patterns.
RANGE = {
    "exp": {"f32": 110, "f64": 750},
    "exp2": {"f32": 155, "f64": 1100},
    "expm1": {"f32": 100, "f64": 720},
    "tanh": {"f32": 12, "f64": 25},
    "erf": {"f32": 5, "f64": 7},
}


def array_function(module, name, dtype):
    """``void name_dtype(x..., out, n)``: the function of every element."""
    arity = 2 if name == "pow" else 1
    i64, kind = ir.IntType(64), LLVM[dtype]
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [ir.PointerType()] * (arity + 1) + [i64]), f"{name}_{dtype}")
    for pointer in function.args[:-1]:
        pointer.add_attribute("noalias")
    entry, loop, end = (function.append_basic_block() for _ in range(3))
    builder = ir.IRBuilder(entry)
    builder.cbranch(builder.icmp_signed(">", function.args[-1], i64(0)), loop, end)
    builder.position_at_end(loop)
    i = builder.phi(i64)
    *inputs, out = (builder.gep(p, [i], source_etype=kind) for p in function.args[:-1])
    builder.store(vector_math.emit(builder, name, *(builder.load(p, typ=kind) for p in inputs)), out)
    following = builder.add(i, i64(1))
    i.add_incoming(i64(0), entry)
    i.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, function.args[-1]), loop, end)
    builder.position_at_end(end)
    builder.ret_void()


class Compiled:
    """All functions, compiled for one processor: callable on arrays, and the optimised text of each."""

    def __init__(self, cpu, features):
        module = ir.Module()
        for name, dtype in sorted(vector_math.SUPPORTED):
            array_function(module, name, dtype)
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_triple(llvm.get_process_triple())
        machine = target.create_target_machine(cpu=cpu, features=features, opt=3, jit=True)
        optimised = llvm.parse_assembly(str(module))
        optimised.verify()
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        options.loop_vectorization = True
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(optimised, builder)
        self.text = {f.name: str(f) for f in optimised.functions}
        self.engine = llvm.create_mcjit_compiler(optimised, machine)
        self.engine.finalize_object()

    def __call__(self, name, *arrays):
        dtype = {np.dtype("f4"): "f32", np.dtype("f8"): "f64"}[arrays[0].dtype]
        out = np.empty_like(arrays[0])
        address = self.engine.get_function_address(f"{name}_{dtype}")
        signature = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (len(arrays) + 1), ctypes.c_int64)
        signature(address)(*(a.ctypes.data for a in arrays), out.ctypes.data, out.size)
        return out


@pytest.fixture(scope="module")
def compiled():
    return Compiled(detect().name, detect().features)


def reference(name, x):
    """The function in more precision than x has."""
    with np.errstate(all="ignore"):
        if name == "erf":
            return np.array([math.erf(v) for v in x.tolist()])
        return getattr(np, name)(x.astype(np.float64 if x.dtype == np.float32 else np.longdouble))


def ulps(got, want):
    """Distance in units of the last place of `want` rounded to got's type; infinite where a special value is wrong."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        finite = np.isfinite(rounded)
        unit = np.spacing(np.where(finite, np.abs(rounded), 1)).astype(want.dtype)
        distance = np.abs(got.astype(want.dtype) - want) / unit
        special = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(finite, np.where(np.isnan(distance), np.inf, distance), np.where(special, 0, np.inf))


def samples(name, dtype, count=20000):
    kind, integer = NUMPY[dtype], INTEGER[dtype]
    rng = np.random.default_rng(0)
    limit = RANGE.get(name, {}).get(dtype, 3)
    information = np.iinfo(integer)
    limits = np.finfo(kind)
    special = [0.0, 1, np.inf, np.nan, limits.tiny, limits.max, limits.smallest_subnormal, 1 + limits.eps, 0.5, limit]
    parts = [
        rng.integers(information.min, information.max, count, dtype=integer).view(kind),
        rng.uniform(-limit, limit, count),
        1 + rng.uniform(-0.6, 0.6, count),
        rng.uniform(-1, 1, count) * limits.tiny,
        np.array(special),
        -np.array(special),
    ]
    with np.errstate(all="ignore"):
        return np.concatenate([p.astype(kind) for p in parts])


@pytest.mark.parametrize("name, dtype", UNARY)
def test_accuracy(compiled, name, dtype):
    x = samples(name, dtype)
    got = compiled(name, x)
    error = ulps(got, reference(name, x))
    worst = int(np.argmax(error))
    assert error[worst] <= ULP.get(name, 2), f"{name}({x[worst]!r}) = {got[worst]!r}"


@pytest.mark.parametrize("name, dtype", [(n, d) for n, d in UNARY if n in ("sin", "tanh", "erf", "expm1", "log1p")])
def test_odd_functions_keep_the_sign_of_zero(compiled, name, dtype):
    got = compiled(name, np.array([0.0, -0.0], NUMPY[dtype]))
    assert got.tolist() == [0, 0] and np.signbit(got).tolist() == [False, True]


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_angles_of_every_size(compiled, name):
    exponents = np.arange(-30, 128, dtype=np.float64)
    x = np.concatenate([(2.0**exponents * m).astype(np.float32) for m in (1, 1.2345678, 1.9999999)])
    # The float32 nearest to a multiple of pi/2 lose most digits to cancellation.
    near = np.concatenate([(np.arange(1, 4000) * np.pi / 2).astype(np.float32), [np.float32(16367173 * 2.0**72)]])
    for angles in (x[np.isfinite(x)], near.astype(np.float32)):
        want = reference(name, angles)
        assert np.max(ulps(compiled(name, angles), want)) < 2


def test_exponentials_become_denormal_and_overflow(compiled):
    x = np.array([-87.5, -100, -103.9, -104.1, 88.7, 88.8, -np.inf, np.inf], np.float32)
    with np.errstate(all="ignore"):
        want = np.exp(x)
    np.testing.assert_allclose(compiled("exp", x), want, rtol=3e-7, atol=1.5e-45)
    assert compiled("exp2", np.array([-149, -150, 127, 128], np.float32)).tolist() == [2.0**-149, 0, 2.0**127, np.inf]
    assert compiled("exp2", np.array([-1074, -1076, 1023, 1024.0])).tolist() == [2.0**-1074, 0, 2.0**1023, np.inf]


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_powers_are_exact_where_they_can_be(compiled, dtype):
    n = np.arange(-100, 100)
    assert compiled("exp2", n.astype(NUMPY[dtype])).tolist() == [2.0**i for i in n.tolist()]
    assert compiled("log2", (2.0**n).astype(NUMPY[dtype])).tolist() == n.tolist()


def test_pow(compiled):
    special = [0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1e30, -1e30, 2.0**24 + 2, -(2.0**23 + 1), 1e-40]
    rng = np.random.default_rng(0)
    base, power = (g.ravel().astype(np.float32) for g in np.meshgrid(special, special))
    base = np.concatenate([base, rng.uniform(0, 30, 20000), rng.uniform(-9, 9, 2000)]).astype(np.float32)
    power = np.concatenate([power, rng.uniform(-30, 30, 20000), rng.integers(-9, 9, 2000)]).astype(np.float32)
    got = compiled("pow", base, power)
    with np.errstate(all="ignore"):
        want = np.power(base.astype(np.float64), power.astype(np.float64))
        rounded = want.astype(np.float32)
    assert np.max(ulps(got, want)) < 1
    number = ~np.isnan(rounded)
    np.testing.assert_array_equal(np.signbit(got[number]), np.signbit(rounded[number]))


@pytest.mark.parametrize("name, dtype", sorted(vector_math.SUPPORTED))
def test_loops_become_vector_code(compiled, name, dtype):
    if detect().isa not in ("avx512", "avx2"):
        pytest.skip("this processor's vectors may not pay")
    text = compiled.text[f"{name}_{dtype}"]
    kind, dtype = ("float", "f32") if (name, dtype) in UNARY and dtype == "f32" else ("double", "f64")  # pow works in f64
    assert any(f"fmul <{lanes} x {kind}>" in text or f"fmuladd.v{lanes}{dtype}" in text for lanes in (4, 8, 16))
    assert not [line for line in text.splitlines() if "call" in line and "@llvm." not in line]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names an x86 processor")
def test_without_fused_multiply_add():
    plain = Compiled("x86-64", "")
    for name, dtype in UNARY:
        x = samples(name, dtype, 4000)
        assert np.max(ulps(plain(name, x), reference(name, x))) <= ULP.get(name, 2), name


def test_unsupported_functions_are_refused():
    function = ir.Function(ir.Module(), ir.FunctionType(LLVM["f64"], [LLVM["f64"]]), "f")
    builder = ir.IRBuilder(function.append_basic_block())
    assert ("sin", "f64") not in vector_math.SUPPORTED
    with pytest.raises(KeyError):
        vector_math.emit(builder, "sin", function.args[0])

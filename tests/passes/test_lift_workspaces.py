"""Workspaces: kernels' scratch memory is tensors of the program, planned and counted with everything else."""

import pickle

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32, f64
from minirelax.errors import CodegenError, VerifyError
from minirelax.explore.memory import memory_plan
from minirelax.ir.dim import dim
from minirelax.ir.graph import AllocStorage, AllocTensor, RunKernel
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify
from minirelax.passes.base import Stage
from minirelax.passes.lift_workspaces import lift_workspaces
from minirelax.pipeline import GRAPH_PASSES, KERNEL_PASSES, all_stages, compile_module, passes, run
from minirelax.runtime.build import build

TEXT = """
@kernel
def double(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] + x[i]

def main(x: f32[16*n], y: f32[n]) -> f32[16*n]:
    v0: f32[16*n] = alloc_tensor()
    run_kernel(double, x, out=(v0,), sizes=(16*n,))
    v1: f32[16*n] = alloc_tensor()
    run_kernel(double, v0, out=(v1,), sizes=(16*n,))
    v2: f32[16*n] = alloc_tensor()
    run_kernel(double, v1, out=(v2,), sizes=(16*n,))
    return v2
"""


def reversed_exp(x):
    """Row by row: the last element first, so that a row has to be kept."""
    y = np.exp(x)
    return y[:, ::-1] / np.sum(y, axis=1, keepdims=True) + np.max(y, axis=1, keepdims=True)


def products(x, y):
    return (x @ y) @ y


def lifted(text: str, threads: int, size):
    return lift_workspaces(lambda kernel: (threads, size))(parse(text))


def workspaces(module) -> list[str]:
    return [str(a.type) for f in module.functions for b in f.bindings if isinstance(b.value, RunKernel) for a in b.value.work]


@pytest.fixture
def threads():
    """Sets the number of threads, and restores it."""
    before = mr.get_num_threads()
    yield mr.set_num_threads
    mr.set_num_threads(before)


def test_text_reads_back():
    module = lifted(TEXT, 3, 4 * dim("n"))
    assert workspaces(module) == ["u8[3, 64*n]"] * 3
    assert "run_kernel(double, x, out=(v0,), sizes=(16*n,), work=(v3,))" in str(module)
    assert parse(str(module)) == module
    verify(module)


def test_whole_lines_for_each_thread():
    assert workspaces(lifted(TEXT, 2, 100)) == ["u8[2, 128]"] * 3
    assert workspaces(lifted(TEXT, 2, dim("n + 1"))) == ["u8[2, 64*(n//4) + 64]"] * 3


def test_nothing_for_kernels_without():
    module = parse(TEXT)
    assert lift_workspaces(lambda kernel: (2, 0))(module) is module


def test_dead_tensors_are_workspace():
    """The storage of the first result, dead by then, serves the third call, of as many bytes."""
    plan = next(p for p in passes() if p.__name__ == "plan_memory")
    kernel = TEXT[: TEXT.index("def main")].replace("double", "mirrored").replace("x[i] + x[i]", "x[max(n - 1 - i, 0)]")
    text = kernel + TEXT.replace("run_kernel(double, v1", "run_kernel(mirrored, v1")
    lift = lift_workspaces(lambda kernel: (2, 2 * dim("n") if kernel.name == "mirrored" else 0))
    module = plan(lift(parse(text.replace("16*n", "32*n"))))
    verify(module)
    storages = [b.var for b in module["main"].bindings if isinstance(b.value, AllocStorage)]
    homes = {b.var.name: b.value.storage for b in module["main"].bindings if isinstance(b.value, AllocTensor)}
    assert len(storages) == 2 and homes["v3"] == homes["v0"]


@pytest.mark.parametrize("work", ["x", "v0, v0"])
def test_what_is_no_workspace(work):
    text = TEXT.replace("sizes=(16*n,))", f"sizes=(16*n,), work=({work},))", 1)
    with pytest.raises(VerifyError, match="is no workspace"):
        verify(parse(text))


def test_a_kernel_without_its_workspace_is_a_mistake():
    stages = run(mr.trace(products, f32["n", 8], f32[8, 8]), passes())
    without = run(stages[0].module, tuple(p for p in passes() if p.__name__ != "lift_workspaces"))
    with pytest.raises(CodegenError, match="has no workspace"):
        build(without[-1].module)


def test_interpreter_ignores_workspaces():
    x, y = np.random.default_rng(0).standard_normal((2, 8, 8))
    for stage in run(mr.trace(products, f64["n", 8], f64[8, 8]), passes())[-4:]:
        np.testing.assert_allclose(interpret(stage.module, x, y), x @ y @ y)
    assert mr.validate(compile_module(mr.trace(products, f64["n", 8], f64[8, 8])), x, y) is None


def test_the_plan_counts_workspaces():
    module = run(mr.trace(products, f32["n", 64], f32[64, 64]), passes())[-1].module
    calls = [b.value for b in module["main"].bindings if isinstance(b.value, RunKernel)]
    (threads, each), others = calls[0].work[0].type.shape, {c.work[0].type for c in calls}
    assert len(others) == 1  # of the same size, so that they share one storage
    assert memory_plan(module).peak - dim("256*n") == threads * each


def test_all_scratch_memory_is_in_the_plan():
    executable = compile_module(mr.trace(products, f32["n", 64], f32[64, 64]))
    x, y = np.ones((50, 64), np.float32), np.ones((64, 64), np.float32)
    executable(x, y)
    (call,) = executable._program._free
    assert call.slots[executable.built.arena_bytes] == memory_plan(executable.module).peak_bytes(n=50)
    assert call.context._arguments.nbytes <= 64 * 64 * mr.runtime.pool.most_threads()


@pytest.mark.parametrize("function, types", [(products, (f32["n", 64], f32[64, 64])), (reversed_exp, (f32["n", "m"],))])
def test_any_number_of_threads(threads, function, types):
    """Fewer threads than the plan has room for, and more."""
    threads(2)
    executable = compile_module(mr.trace(function, *types))
    rng = np.random.default_rng(0)
    for n in (0, 1, 7, 400):
        args = [rng.standard_normal((n, 64)).astype(np.float32), rng.standard_normal((64, 64)).astype(np.float32)][: len(types)]
        want = function(*(a.astype(np.float64) for a in args)) if n else np.zeros((0, 64))
        for count in (1, 2, 5, 2):
            threads(count)
            np.testing.assert_allclose(executable(*args)[0], want, rtol=2e-4, atol=2e-4)


def test_a_program_for_more_threads_is_another_program(threads):
    from minirelax.runtime.program_cache import key_text

    module = mr.trace(products, f32["n", 64], f32[64, 64])
    keys = []
    for count in (1, 40, 41):
        threads(count)
        keys.append(key_text(module, mr.jit(products).options))
    assert len(set(keys)) >= 2 and keys[1] != keys[2]


def test_more_threads_than_the_plan_is_for_stay_outside(threads):
    threads(3)
    executable = compile_module(mr.trace(products, f32["n", 64], f32[64, 64]))
    planned = executable.built.threads
    assert planned >= 3
    threads(planned + 4)
    x, y = np.ones((3000, 64), np.float32), np.ones((64, 64), np.float32)
    for _ in range(5):
        assert (executable(x, y)[0] == 4096).all()
    assert executable._program._free[0].context.slots[8] == planned


def test_one_tile_needs_one_workspace():
    """A kernel that one thread runs: its scratch memory is there once."""
    text = """
@kernel
def spread(x: f32[n], out: f32[n], *, n):
    t0 = local(f32[n])
    for i in range(n):
        t0[i] = exp(x[i])
    for i in range(n):
        out[i] = t0[max(n - 1 - i, 0)]

def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = call_kernel(spread, x, sizes=(n,))
        output(v0)
    return v0
"""
    executable = compile_module(parse(text))
    assert workspaces(executable.module) == ["u8[1, 64*((n + 15)//16)]"] and executable.built.threads == 0
    x = np.arange(100, dtype=np.float32) / 100
    np.testing.assert_allclose(executable(x)[0], np.exp(x)[::-1], rtol=1e-6)


def test_bodies_of_control_flow():
    def function(x, y):
        return mr.fori_loop(0, 3, lambda i, c: c @ y, x)

    module = mr.trace(function, f64["n", 32], f64[32, 32])
    executable = compile_module(module)
    assert any(f.private and "work=" in str(f) for f in executable.module.functions)
    x, y = np.random.default_rng(0).standard_normal((2, 32, 32))
    for n in (0, 1, 32):
        np.testing.assert_allclose(executable(x[:n], y)[0], x[:n] @ y @ y @ y, atol=1e-9)


def test_sizes_that_come_late():
    """A product of what a match_cast gave its size: its workspace is allocated then."""
    def function(x, y):
        z = mr.match_cast(np.unique(x), f64["m"])
        return z.reshape(-1, 1) * np.ones((1, 8)) @ y

    executable = compile_module(mr.trace(function, f64["n"], f64[8, 8]))
    x, y = np.array([3.0, 1, 3, 2]), np.random.default_rng(0).standard_normal((8, 8))
    np.testing.assert_allclose(executable(x, y)[0], np.unique(x)[:, None] * np.ones((1, 8)) @ y)


def test_functions_that_are_called():
    executable = pickle.loads(pickle.dumps(compile_module(mr.trace(products, f32["n", 8], f32[8, 8]))))
    x = np.eye(8, dtype=np.float32)
    np.testing.assert_array_equal(executable(x, 2 * x)[0], 4 * x)


def test_without_a_memory_plan():
    executable = compile_module(mr.trace(products, f32["n", 8], f32[8, 8]), without=("plan_memory",))
    x = np.eye(8, dtype=np.float32)
    np.testing.assert_array_equal(executable(x, 2 * x)[0], 4 * x)


def test_stages_show_it():
    module = mr.trace(products, f32["n", 8], f32[8, 8])
    names = [s.name for s in all_stages(module) if isinstance(s, Stage)]
    assert names[names.index("write_in_place") + 1] == "lift_workspaces"
    assert "work=" not in str(run(module, (*GRAPH_PASSES, *KERNEL_PASSES))[-1].module)

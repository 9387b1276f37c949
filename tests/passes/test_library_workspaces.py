"""Workspaces that library routines declare: in the text, in the plan, at calls; and functions that cannot say what is needed."""

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32, f64
from minirelax.errors import ArgumentError, CompileError, LibraryError
from minirelax.explore.memory import memory_plan
from minirelax.ir.checked import is_checked
from minirelax.ir.dim import dim, maximum
from minirelax.ir.graph import AllocStorage, AllocTensor, RunLibrary
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.libraries import sort
from minirelax.ops.transcendental import Tanh
from minirelax.passes.lift_workspaces import lift_workspaces
from minirelax.pipeline import compile_module, passes, run
from minirelax.runtime.program_cache import key_text
from tests.frontend.test_call_library import past

seen: list[np.ndarray] = []


def smooth(x, out, work, width):
    """Means of so many neighbours, by way of running sums."""
    seen.append(work)
    work[:width] = 0
    np.cumsum(x, out=work[width:])
    out[...] = (work[width:] - work[:-width]) / width


def sums(x, out, width):
    return f64[x.shape[0] + width]


def program(x):
    return mr.call_library("smooth", (x + 1,), f64[x.shape[0]], sizes=(3,)) * 2


def wanted(x):
    running = np.concatenate([np.zeros(3), np.cumsum(x + 1)])
    return (running[3:] - running[:-3]) / 3 * 2


@pytest.fixture(autouse=True)
def registered():
    mr.register_library("smooth", smooth, workspace=sums)
    seen.clear()


def test_the_text():
    module = run(mr.trace(program, f64["n"]), passes())[-1].module
    assert "v3: f64[n + 3] = alloc_tensor(" in str(module)
    assert 'run_library("smooth", v0, out=(v1,), sizes=(3,), work=(v3,))' in str(module)
    assert parse(str(module)) == module


def test_every_stage_means_the_same_at_all_sizes():
    stages, compiled = run(mr.trace(program, f64["n"]), passes()), mr.jit(program)
    for n in (5, 1, 0, 300):
        x = np.random.default_rng(n).standard_normal(n)
        for stage in stages:
            np.testing.assert_allclose(interpret(stage.module, x), wanted(x), atol=1e-12)
        np.testing.assert_allclose(compiled(x), wanted(x), atol=1e-12)
        np.testing.assert_allclose(program(x), wanted(x), atol=1e-12)  # outside of a compiled function
    assert len(compiled.compilations) == 1


def test_the_plan_has_no_more_than_a_routine_needs():
    executable = compile_module(mr.trace(program, f64["n"]))
    tenants = {t.name: t for s in memory_plan(executable.module).storages for t in s.tenants}
    (call,) = (b.value for b in executable.module["main"].bindings if isinstance(b.value, RunLibrary))
    tenant = tenants[call.work[0].name]
    assert tenant.bytes == dim("8*n + 24") and tenant.first == tenant.last == 1
    executable(np.ones(100))
    (state,) = executable._program._free
    assert state.slots[executable.built.arena_bytes] == memory_plan(executable.module).peak_bytes(n=100)


def test_a_workspace_serves_again():
    """Two calls, one after the other, work in the same memory; it is not that of what they read or write."""

    def twice(x):
        y = mr.call_library("smooth", (x + 1,), f64[x.shape[0]], sizes=(3,))
        return mr.call_library("smooth", (y * 2,), f64[x.shape[0]], sizes=(3,)) * 2

    module = run(mr.trace(twice, f64["n"]), passes())[-1].module
    homes = {b.var: b.value.storage for b in module["main"].bindings if isinstance(b.value, AllocTensor)}
    first, second = (b.value for b in module["main"].bindings if isinstance(b.value, RunLibrary))
    assert homes[first.work[0]] == homes[second.work[0]]
    assert sum(isinstance(b.value, AllocStorage) for b in module["main"].bindings) == 3
    compiled = mr.jit(twice)
    compiled(np.ones(50))
    assert seen[0].ctypes.data == seen[1].ctypes.data
    once = mr.jit(program)
    np.testing.assert_allclose(compiled(x := np.arange(50.0)), once(once(x) / 2 * 2 - 1) * 1, atol=1e-9)


def test_in_loops_and_with_sizes_from_data():
    def loop(x):
        return mr.fori_loop(0, 3, lambda i, c: mr.call_library("smooth", (c,), f64[c.shape[0]], sizes=(3,)), x)

    def positive(x):
        y = x[x > 0]
        return mr.call_library("smooth", (y,), f64[y.shape[0]], sizes=(3,))

    x = np.random.default_rng(0).standard_normal(40)
    for fn in (loop, positive):
        executable = mr.jit(fn)
        np.testing.assert_allclose(executable(x), fn(x))
        assert "work=(" in str(executable.stages["bind_shapes"].module)


def test_a_number_of_bytes_and_bounds():
    mr.register_library("bytes", lambda x, out, work: seen.append(work) or np.copyto(out, x), workspace=lambda x, out: 5)

    @mr.jit(bounds={"n": (0, 64)})
    def fn(x: f32["n"]):  # noqa: F821   n is a size
        return mr.call_library("bytes", (x * 2,), f32[x.shape[0]]) + 1

    np.testing.assert_array_equal(fn(np.ones(3, np.float32)), [3, 3, 3])
    assert seen[0].dtype == np.uint8 and seen[0].shape == (5,)
    bindings = fn.stages["plan_memory"].module["main"].bindings
    assert {type(b.value.bytes) for b in bindings if isinstance(b.value, AllocStorage)} == {int}


def test_another_routine_under_the_name_gets_what_it_needs():
    """What was planned is passed only where it is what is declared at the call."""
    compiled, x = mr.jit(program), np.arange(6.0)
    compiled(x)
    mr.register_library("smooth", lambda x, out, work, width: seen.append(work) or np.copyto(out, x),
                        workspace=lambda x, out, width: f32[7])
    np.testing.assert_array_equal(compiled(x), (x + 1) * 2)
    assert seen[-1].dtype == np.float32 and seen[-1].shape == (7,)
    mr.register_library("smooth", lambda x, out, width: np.copyto(out, x))
    np.testing.assert_array_equal(compiled(x), (x + 1) * 2)
    module = mr.trace(program, f64["n"])
    without = key_text(module, compiled.options)
    mr.register_library("smooth", smooth, workspace=sums)
    assert key_text(module, compiled.options) != without


@pytest.mark.parametrize("how", ["environment", "validate", "interpret"])
def test_guard_zones_around_a_workspace(how, monkeypatch):
    if how != "validate":
        monkeypatch.setenv("MINIRELAX_BOUNDSCHECK", "1")

    def native(x, out, work):
        out[...] = x
        if is_checked():  # else there is nothing around it that may be harmed
            past(work, 1)

    mr.register_library("past", native, workspace=lambda x, out: f64[4])
    compiled = mr.jit(lambda x: mr.call_library("past", (x + 1,), f64[x.shape[0]]),
                      target="interpret" if how == "interpret" else "cpu", validate=how == "validate")
    with pytest.raises(LibraryError, match=r"the library routine past wrote behind workspace, which is f64\[4\]"):
        compiled(np.ones(3))


def test_a_workspace_keeps_its_layout():
    def reshaped(x, out, work):
        work.shape = (2, 2)

    mr.register_library("reshaped", reshaped, workspace=lambda x, out: f64[4])
    with pytest.raises(LibraryError, match=r"made f64\[2, 2\] of its workspace, which is f64\[4\]"):
        mr.call_library("reshaped", (np.ones(3),), f64[3])


MISTAKES = {
    "raises": (lambda x, out, width: x.shape[7], "the workspace of the library routine smooth raised IndexError"),
    "compares": (lambda x, out, width: max(x.shape[0], 4), "raised TypeError: '>' not supported"),
    "is nothing": (lambda x, out, width: None, "the workspace of the library routine smooth is None"),
    "is a flag": (lambda x, out, width: True, "the workspace of the library routine smooth is True"),
    "is unknown": (lambda x, out, width: f64["_"], "the workspace of the library routine smooth is f64[_]"),
    "is negative": (lambda x, out, width: f64[-x.shape[0] - 1], "smooth has a negative size: f64[-n - 1]"),
    "is of no size here": (lambda x, out, width: f64["q"], "mentions the size q, which no argument has"),
    "takes too few": (lambda x: x, "raised TypeError"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_is_no_workspace(name):
    workspace, said = MISTAKES[name]
    mr.register_library("smooth", smooth, workspace=workspace)
    with pytest.raises(CompileError) as error:
        mr.jit(program)(np.ones(4))
    assert said in error.value.what and "return mr.call_library" in error.value.where
    assert "smooth(f64[n], f64[n], 3)" in error.value.hint


def test_what_is_no_workspace_at_a_call():
    mr.register_library("smooth", smooth, workspace=lambda x, out, width: f64[x.shape[0] - 5])
    with pytest.raises(LibraryError, match=r"negative size: f64\[-1\]"):
        mr.jit(program)(np.ones(4))
    with pytest.raises(LibraryError, match=r"negative size: f64\[-1\]"):
        program(np.ones(4))
    with pytest.raises(ArgumentError, match="workspace is not a function: 8"):
        mr.register_library("smooth", smooth, workspace=8)


def test_a_size_that_may_be_negative_is_planned_as_none():
    mr.register_library("smooth", smooth, workspace=lambda x, out, width: f64[maximum(x.shape[0] - 5, 0)])
    module = run(mr.trace(program, f64["n"]), passes())[-1].module
    assert "f64[max(n - 5, 0)]" in str(module)
    text = """
def main(x: f64[n]) -> f64[n]:
    v0: f64[n] = alloc_tensor()
    run_library("smooth", x, out=(v0,), sizes=(3,))
    return v0"""
    mr.register_library("smooth", smooth, workspace=lambda x, out, width: x.shape[0] - 5)
    assert "u8[max(n - 5, 0)]" in str(lift_workspaces(lambda kernel: (1, 0))(parse(text)))


def test_a_rule_declares_one_with_its_routine():
    @mr.library_rule(lambda x: Tanh(x), workspace=lambda x, out: x)
    def tanh_in_place(x, out, work):
        np.tanh(x, out=work)
        np.copyto(out, work)

    compiled = mr.jit(lambda x: np.tanh(x * 2) + 1, libraries=tanh_in_place)
    np.testing.assert_allclose(compiled(x := np.ones((2, 3))), np.tanh(x * 2) + 1)
    assert "work=(" in str(compiled.stages["lift_workspaces"].module)


def test_a_part_of_an_order_copies_into_the_plan():
    compiled = mr.jit(lambda x: np.sort(x * 2)[..., :3] + 1, libraries=sort())
    np.testing.assert_array_equal(compiled(x := np.random.default_rng(0).random((4, 20))), np.sort(x * 2)[..., :3] + 1)
    (call,) = (b.value for b in compiled.stages["lift_workspaces"].module["main"].bindings if isinstance(b.value, RunLibrary))
    assert call.work[0].type == f64["n", "m"]


def test_saved_and_loaded(tmp_path):
    compiled = mr.jit(program)
    x = np.arange(6.0)
    compiled(x)
    compiled.executable.save(tmp_path / "smooth.mrx")
    loaded = mr.Executable.load(tmp_path / "smooth.mrx")
    np.testing.assert_allclose(loaded(x)[0], wanted(x))
    assert "work=(" in str(loaded.module)

"""The native loop and its threads."""

from __future__ import annotations

import functools
import math
import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirelax.runtime import frame, pool
from minirelax.runtime.frame import Context
from minirelax.runtime.instructions import DIVIDED_BY_ZERO, OVERFLOW, Assembler, Comparison, Match, Status
from minirelax.runtime.vm import machine

INT64 = st.one_of(st.sampled_from([0, 1, -1, 2, 63, 64, 2**63 - 1, -(2**63)]), st.integers(-(2**63), 2**63 - 1))


def start(program, addresses=None, threads=1):
    return Context(program, program.link(addresses or {}), threads)


def run(context, pc=0, *objects, released=False):
    """Status, position to go on at, and the header's note."""
    enter = machine().enter_released if released else machine().enter
    word = enter(context.address, context.code_address, pc, pool.address(), *objects)
    note = context.slots[[frame.MESSAGE, frame.FOUND, frame.EXPECTED]].tolist()
    return Status(word & 255), word >> 8, note


@pytest.fixture
def threads():
    """set_num_threads, undone afterwards."""
    before = pool.get_num_threads()
    yield pool.set_num_threads
    pool.set_num_threads(before)


@pytest.fixture
def eager(threads):
    """Go parallel whatever the work costs, and claim tile by tile."""
    words = pool._memory()
    before = words[pool.AWAKE : pool.CHUNK + 1].copy()
    words[pool.AWAKE : pool.CHUNK + 1] = 0, 0, 1
    yield threads
    words[pool.AWAKE : pool.CHUNK + 1] = before


# --- sizes

def wrapped(value):
    return -(2**63) <= value < 2**63


ARITHMETIC = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "minimum": min, "maximum": max,
}


@functools.cache
def binary_programs():
    made = {}
    for name in ARITHMETIC:
        a = Assembler()
        x, y, result = a.slot("x"), a.slot("y"), a.slot("result")
        getattr(a, name)(result, x, y)
        made[name] = start(a.finish())
    return made


@settings(deadline=None)  # the first example compiles the machine
@given(name=st.sampled_from(sorted(ARITHMETIC)), a=INT64, b=INT64)
def test_arithmetic_is_pythons_or_fails(name, a, b):
    context = binary_programs()[name]
    context.slots[frame.HEADER : frame.HEADER + 2] = a, b
    status, _, note = run(context)
    if name in ("floordiv", "mod") and b == 0:
        assert status == Status.FAIL and note == [DIVIDED_BY_ZERO, a, b]
    elif not wrapped(expected := ARITHMETIC[name](a, b)):
        assert status == Status.FAIL and note == [OVERFLOW, a, b]
    else:
        assert status == Status.RETURN and context.slots[frame.HEADER + 2] == expected


RELATIONS = {Comparison.EQ: "==", Comparison.NE: "!=", Comparison.LT: "<", Comparison.LE: "<=", Comparison.GT: ">",
             Comparison.GE: ">="}


@pytest.mark.parametrize("kind", Comparison)
@pytest.mark.parametrize("pair", [(1, 2), (2, 2), (3, 2), (-(2**63), 2**63 - 1)])
def test_compare_and_guard(kind, pair):
    a = Assembler()
    x, y, result = a.slot("x"), a.slot("y"), a.slot("result")
    a.compare(kind, result, x, y)
    a.guard(kind, x, y, message=9)
    context = start(a.finish())
    context.slots[[x, y]] = pair
    expected = eval(f"{pair[0]} {RELATIONS[kind]} {pair[1]}")
    status, _, note = run(context)
    assert context.slots[result] == expected
    assert status == (Status.RETURN if expected else Status.GUARD)
    assert expected or note == [9, *pair]


def test_move_align_address():
    a = Assembler()
    x, y, moved, rounded, address = (a.slot(name) for name in "x y moved rounded address".split())
    a.move(moved, x)
    a.align(rounded, x)
    a.address(address, x, y)
    context = start(a.finish())
    for value, up in [(0, 0), (1, 64), (64, 64), (65, 128)]:
        context.slots[[x, y]] = value, 8
        run(context)
        assert context.slots[[moved, rounded, address]].tolist() == [value, up, value + 8]


def test_loop_and_branch():
    a = Assembler()
    n, one, total = a.slot("n"), a.slot("one"), a.slot("total")
    a.const(one, 1)
    a.const(total, 0)
    again, done = a.label(), a.label()
    a.place(again)
    a.branch_if_zero(n, done)
    a.add(total, total, n)
    a.sub(n, n, one)
    a.jump(again)
    a.place(done)
    context = start(a.finish())
    context.slots[n] = 100
    assert run(context)[0] == Status.RETURN and context.slots[total] == 5050


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_load_widens(dtype):
    a = Assembler()
    address, result = a.slot("address"), a.slot("result")
    a.load(result, address, dtype)
    context = start(a.finish())
    values = [True, False] if dtype == "?" else [0, 1, int(np.iinfo(dtype).max), int(np.iinfo(dtype).min)]
    for value in values:
        scalar = np.array(value, dtype)
        context.slots[address] = scalar.ctypes.data
        run(context)
        assert context.slots[result] == np.array(value, dtype).astype(np.int64)


# --- arguments

def binder():
    a = Assembler()
    x, n, m, data = a.slot("x"), a.slot("n"), a.slot("m"), a.slot("data")
    a.array(x, 2, "f8", message=1)
    a.match(x, 0, Match.STORE, n)
    a.match(x, 1, Match.IMMEDIATE, 3, message=2)
    a.data(data, x)
    a.pause()
    a.match(x, 0, Match.SLOT, m, message=3)
    return start(a.finish()), n, m, data


def test_arguments_are_read_natively():
    context, n, m, data = binder()
    x = np.zeros((5, 3))
    status, pc, _ = run(context, 0, x)
    assert status == Status.PAUSE and context.slots[n] == 5 and context.slots[data] == x.ctypes.data
    context.slots[m] = 5
    assert run(context, pc)[0] == Status.RETURN
    context.slots[m] = 4
    assert run(context, pc)[::2] == (Status.FAIL, [3, 5, 4])


class Subclass(np.ndarray):
    pass


@pytest.mark.parametrize("x", [
    np.zeros((5, 3), "f4"), np.zeros(5), np.zeros((5, 3, 1)), np.zeros((5, 3)).view(Subclass), np.zeros((5, 3), ">f8"),
    1.5, None, "text"])
def test_other_objects_are_refused(x):
    context, *_ = binder()
    status, pc, note = run(context, 0, x)
    assert status == Status.ARRAY and note[0] == 1 and pc == 7


def test_python_may_accept_what_identity_refuses():
    context, n, *_ = binder()
    status, pc, _ = run(context, 0, np.ones((4, 3)).view(Subclass))
    assert status == Status.ARRAY and run(context, pc)[0] == Status.PAUSE and context.slots[n] == 4


def test_a_wrong_size_names_both():
    context, *_ = binder()
    assert run(context, 0, np.zeros((5, 4)))[::2] == (Status.FAIL, [2, 4, 3])


def misaligned():
    memory = np.zeros(8 * 6 + 1, np.uint8)[1:]
    return memory.view("f8").reshape(2, 3)


@pytest.mark.parametrize("x", [np.zeros((3, 5)).T, np.zeros((5, 6))[:, ::2], np.zeros((5, 3))[::-1], misaligned()])
def test_arrays_out_of_order_stop_and_resume(x):
    context, _, _, data = binder()
    status, pc, note = run(context, 0, x)
    assert status == Status.NOT_CONTIGUOUS and note[0] == frame.HEADER
    copy = np.ascontiguousarray(x).copy()
    context.slots[note[0]] = id(copy)
    assert run(context, pc)[0] == Status.PAUSE and context.slots[data] == copy.ctypes.data


@pytest.mark.parametrize("x", [
    np.zeros((1, 6))[:, ::2], np.zeros((0, 3)), np.zeros((9, 3))[:1], np.asfortranarray(np.zeros((1, 3)))])
def test_numpys_flags_decide_for_small_arrays(x):
    context, *_ = binder()
    expected = Status.PAUSE if x.flags.c_contiguous else Status.NOT_CONTIGUOUS
    assert run(context, 0, x)[0] == expected


# --- leaving the loop

def test_library_leaves_and_goes_on_behind():
    a = Assembler()
    x = a.slot("x")
    a.library(7)
    a.const(x, 1)
    context = start(a.finish())
    status, pc, note = run(context)
    assert status == Status.LIBRARY and note[1] == 7 and context.slots[x] == 0
    assert run(context, pc)[0] == Status.RETURN and context.slots[x] == 1


def test_unknown_opcode_is_reported():
    a = Assembler()
    program = a.finish()
    context = Context(program, np.array([99, 2], np.int64), 1)
    assert run(context)[0] == Status.INVALID


def test_every_entry_runs_the_same():
    a = Assembler()
    x = a.slot("x")
    a.add(x, x, x)
    context = start(a.finish())
    context.slots[x] = 1
    where = (context.address, context.code_address, 0, pool.address())
    entries = machine()
    results = {entry(*where) for entry in (entries.run, entries.run_locked, entries.enter, entries.enter_released)}
    assert results == {Status.RETURN | 7 << 8} and context.slots[x] == 16


# --- kernels

def chain(kernels, threads, length=6, loops=1):
    """`length` calls between PARALLEL and END, each reading what all tiles of the one before wrote; `loops` times."""
    a = Assembler()
    tiles, cost, x, y, count, one = (a.slot(name) for name in "tiles cost x y count one".split())
    a.const(one, 1)
    a.const(count, loops)
    again = a.label()
    a.place(again)
    a.parallel(cost)
    for i in range(length):
        a.call("follow", tiles, [x, y, tiles] if i % 2 == 0 else [y, x, tiles], cost=cost)
    a.end()
    a.sub(count, count, one)
    done = a.label()
    a.branch_if_zero(count, done)
    a.jump(again)
    a.place(done)
    return start(a.finish(), kernels, threads), (tiles, cost, x, y)


def reference(x, steps):
    for _ in range(steps):
        x = x[::-1] + np.arange(len(x))
    return x


def call_chain(context, slots, values, cost=10**9):
    x, y = values.copy(), np.zeros_like(values)
    context.slots[list(slots)] = len(x), cost, x.ctypes.data, y.ctypes.data
    assert run(context, released=True)[0] == Status.RETURN
    return x


@pytest.mark.parametrize("threads_here", [1, 2, 4])
@pytest.mark.parametrize("tiles", [0, 1, 2, 3, 7, 1000])
def test_results_do_not_depend_on_threads(kernels, eager, threads_here, tiles):
    eager(threads_here)
    context, slots = chain(kernels, threads_here, loops=3)
    values = np.random.default_rng(tiles).normal(size=tiles)
    for _ in range(20):
        assert np.array_equal(call_chain(context, slots, values), reference(values, 18))


def test_workers_take_part(kernels, eager):
    eager(2)
    context, slots = chain(kernels, 2)
    before = pool.tiles_by_workers()
    values = np.zeros(20_000)
    for _ in range(2000):  # a busy machine may keep the worker away for a while
        call_chain(context, slots, values)
        if pool.tiles_by_workers() > before:
            break
    assert pool.tiles_by_workers() > before


def test_cheap_work_stays_with_the_caller(kernels, threads):
    threads(2)
    context, slots = chain(kernels, 2)
    before = pool.tiles_by_workers()
    for _ in range(50):
        call_chain(context, slots, np.zeros(100), cost=10)
    assert pool.tiles_by_workers() == before


def test_a_context_for_fewer_threads_than_the_pool(kernels, eager):
    eager(4)
    context, slots = chain(kernels, 2)
    values = np.arange(300.0)
    for _ in range(20):
        assert np.array_equal(call_chain(context, slots, values), reference(values, 6))


def test_concurrent_callers(kernels, eager):
    eager(3)
    failures = []

    def caller(seed):
        context, slots = chain(kernels, 3)
        values = np.random.default_rng(seed).normal(size=200 + seed)
        expected = reference(values, 6)
        for _ in range(100):
            if not np.array_equal(call_chain(context, slots, values), expected):
                failures.append(seed)

    callers = [threading.Thread(target=caller, args=(seed,)) for seed in range(4)]
    for thread in callers:
        thread.start()
    for thread in callers:
        thread.join()
    assert failures == []


def test_contexts_come_and_go_while_workers_look(kernels, eager):
    eager(4)
    values = np.arange(50.0)
    for _ in range(100):
        context, slots = chain(kernels, 4, length=2)
        assert np.array_equal(call_chain(context, slots, values), reference(values, 2))
        del context


def test_the_pool_shrinks_and_grows(kernels, eager):
    values = np.arange(400.0)
    for count in (3, 1, 2, 5, 1):
        eager(count)
        assert pool.get_num_threads() == count and len(pool._threads) == (count - 1 if pool.FUTEX else 0)
        context, slots = chain(kernels, 5)
        assert np.array_equal(call_chain(context, slots, values), reference(values, 6))
    with pytest.raises(ValueError, match="between 1 and"):
        pool.set_num_threads(0)


@pytest.mark.parametrize("parallel", [False, True])
def test_each_thread_has_its_part_of_the_workspace(kernels, eager, parallel):
    eager(4)
    a = Assembler()
    out, tiles, length, work, each, cost = (a.slot(name) for name in "out tiles length work each cost".split())
    if parallel:
        a.parallel(cost)
    a.call("private", tiles, [out, length], cost=cost, work=(work, each))
    if parallel:
        a.end()
    context = start(a.finish(), kernels, 4)
    result, memory = np.zeros(500), np.zeros((4, 1000))
    context.slots[[out, tiles, length, work, each, cost]] = result.ctypes.data, 500, 1000, memory.ctypes.data, 8000, 10**9
    assert run(context)[0] == Status.RETURN
    assert memory.any() and (parallel or not memory[1:].any())
    assert np.array_equal(result, np.arange(500) * 1000.0 + 499500)


def test_serial_calls_pass_slots(kernels):
    a = Assembler()
    x, out, rows, columns, factor = (a.slot(name) for name in "x out rows columns factor".split())
    a.call("scale", rows, [x, out, columns, factor])
    context = start(a.finish(), kernels)
    values, result = np.arange(12.0).reshape(3, 4), np.zeros((3, 4))
    context.slots[[x, out, rows, columns, factor]] = values.ctypes.data, result.ctypes.data, 3, 4, -2
    assert run(context)[0] == Status.RETURN and np.array_equal(result, values * -2)


def test_kernels_may_use_libm_and_division(kernels):
    a = Assembler()
    x, out, tiles, divisor = (a.slot(name) for name in "x out tiles divisor".split())
    a.call("exponential", tiles, [x, out, divisor])
    context = start(a.finish(), kernels)
    values, result = np.linspace(-5, 5, 40), np.zeros(40)
    context.slots[[x, out, tiles, divisor]] = values.ctypes.data, result.ctypes.data, 40, 7
    run(context)
    expected = [math.exp(v) + math.atan2(v, 2.0) + t // 7 + t % 7 for t, v in enumerate(values)]
    np.testing.assert_allclose(result, expected, rtol=1e-14)


# --- processes

PRELUDE = """
    import sys, os
    import numpy as np
    from minirelax.runtime import pool
    from minirelax.runtime.frame import Context
    from minirelax.runtime.instructions import Assembler
    from minirelax.runtime.vm import machine
    pool.set_num_threads(3)
    a = Assembler(); x = a.slot("x"); a.add(x, x, x); a.parallel(x); a.end(); program = a.finish()
    context = Context(program, program.link({}), 3)
    def go():
        context.slots[x] = 10**9
        assert machine().run(context.address, context.code_address, 0, pool.address()) & 255 == 0
        return int(context.slots[x])
    assert go() == 2 * 10**9 and len(pool._threads) == 2
"""


def in_process(body, timeout=60):
    text = textwrap.dedent(PRELUDE) + textwrap.dedent(body)
    return subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=timeout, env=os.environ)


def test_a_process_with_workers_ends():
    done = in_process("print('end')")
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_a_process_ends_while_a_thread_runs():
    done = in_process("""
        import threading, time
        def busy():
            own = Context(program, program.link({}), 3)
            while True:
                own.slots[x] = 10**9
                machine().enter_released(own.address, own.code_address, 0, pool.address())
        for _ in range(2):
            threading.Thread(target=busy, daemon=True).start()
        time.sleep(0.05)
        print('end')
    """)
    assert (done.stdout, done.stderr, done.returncode) == ("end\n", "", 0)


def test_a_forked_child_makes_its_own_pool():
    done = in_process("""
        child = os.fork()
        if child == 0:
            assert pool._threads == []
            ok = go() == 2 * 10**9 and len(pool._threads) == 2
            sys.stdout.write(f"child {ok}\\n"); sys.stdout.flush()
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        print("parent", status, go() == 2 * 10**9)
    """)
    assert (done.stdout, done.stderr) == ("child True\nparent 0 True\n", "")


def test_a_fork_during_runs_of_other_threads():
    done = in_process("""
        import threading
        stop = threading.Event()
        def busy():
            own = Context(program, program.link({}), 3)
            while not stop.is_set():
                own.slots[x] = 10**9
                machine().run(own.address, own.code_address, 0, pool.address())
        thread = threading.Thread(target=busy); thread.start()
        for _ in range(10):
            child = os.fork()
            if child == 0:
                os._exit(0 if go() == 2 * 10**9 else 1)
            assert os.waitpid(child, 0)[1] == 0
        stop.set(); thread.join()
        print("end")
    """)
    assert done.stdout == "end\n", done.stderr


def test_a_warm_process_does_not_import_numba():
    machine()  # in the cache from here on
    done = in_process("print([name for name in ('numba', 'asyncio', 'hashlib', 'importlib.metadata') if name in sys.modules])")
    assert done.stdout == "[]\n", done.stderr


def test_the_number_of_threads_follows_the_environment(monkeypatch):
    monkeypatch.setenv("MINIRELAX_NUM_THREADS", "1")
    done = subprocess.run([sys.executable, "-c", "from minirelax.runtime import pool; print(pool.get_num_threads())"],
                          capture_output=True, text=True, env=os.environ)
    assert done.stdout == "1\n"

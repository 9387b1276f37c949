"""Branches and loops as a user writes them, run natively: memory, errors, weights, threads, files; what fuzzing has found."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import minirelax as mr
import minirelax.numpy as mnp
from minirelax import f32, f64
from minirelax.errors import IndexingError, ShapeError
from minirelax.frontend.tree import flatten
from minirelax.runtime import executable as runtime
from tests.control_flow import z


def same(found: object, wanted: object) -> None:
    """Equal structures, types and shapes, and nearly equal numbers."""
    (a, tree), (b, other) = flatten(found), flatten(wanted)
    assert str(tree) == str(other)
    for x, y in zip(a, b, strict=True):
        assert type(x) is type(y) and np.asarray(x).dtype == np.asarray(y).dtype
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def check(f: Callable, *calls: tuple, **options) -> mr.jit:
    """The native program of `f` gives what its trace means, at each call, and again."""
    native, meant = mr.jit(f, **options), mr.jit(f, target="interpret", **options)
    for args in (*calls, *calls):
        same(native(*args), meant(*args))
    return native


@pytest.fixture
def actions(monkeypatch) -> Iterator[Counter]:
    """How often Python had to do what, by kind."""
    counted: Counter = Counter()
    act = runtime._Call._act
    monkeypatch.setattr(runtime._Call, "_act", lambda self, a, arrays: (counted.update([type(a).__name__]), act(self, a, arrays))[1])
    yield counted


@pytest.fixture
def poisoned(monkeypatch) -> None:
    """Memory of programs is full of NaN before it is written."""
    grow, reserve = runtime._Call.grow, runtime._Call._reserve

    def grown(self, size):
        grow(self, size)
        self.arena[...] = 255

    def reserved(self, needed, address, capacity):
        reserve(self, needed, address, capacity)
        self.chunks[address][...] = 255

    monkeypatch.setattr(runtime._Call, "grow", grown)
    monkeypatch.setattr(runtime._Call, "_reserve", reserved)


# ---- memory


def gated(x, w):
    """A scan with temporaries, of sizes that stay."""

    def step(h, row):
        mixed = np.tanh(h @ w + row)
        scaled = mixed - np.max(mixed)
        return scaled / np.sum(np.exp(scaled)), (mixed, np.sum(scaled * mixed))

    return mr.scan(step, x[0], x)


def nested(x):
    """Loops in loops; carried values that are views of what they were made of; a branch inside."""

    def outer(i, s):
        turned = mr.fori_loop(0, 3, lambda j, t: (t.T * 0.5 + j).reshape(t.shape), s)
        chosen = mr.cond(np.sum(turned) > 0, lambda: turned / (1.0 + np.max(turned)), lambda: turned + i)
        _, rows = mr.scan(lambda c, row: (c + row, c * row), chosen[0], chosen, reverse=True)
        return rows.reshape(-1)[::-1].reshape(s.shape)

    return mr.fori_loop(0, 20, outer, x)


def test_rounds_of_a_scan_do_not_allocate(actions):
    g = check(gated, (z(20, 5), z(5, 5)))
    assert actions == {"Reserve": 1}
    g(z(9, 5), z(5, 5))
    assert actions == {"Reserve": 1}
    g(z(9, 40), z(40, 40))
    assert actions == {"Reserve": 2}  # a larger size; where a call brings the same or less, nothing


def test_rounds_of_loops_in_loops_do_not_allocate(actions):
    g = check(nested, (z(4, 3),))
    assert actions["Reserve"] <= 3 and set(actions) == {"Reserve"}  # one for each depth
    before = actions["Reserve"]
    g(z(4, 3))
    g(z(2, 3))
    assert actions["Reserve"] == before


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_written_before_it_is_read(threads):
    before = mr.get_num_threads()
    mr.set_num_threads(threads)
    try:
        check(gated, *((z(n, m), z(m, m)) for n, m in ((3, 2), (1, 1), (50, 200), (4, 0))))
        check(nested, *((z(n, m),) for n, m in ((4, 3), (1, 1), (2, 70), (300, 40), (3, 0))))
    finally:
        mr.set_num_threads(before)


def halved(x, k):
    """A loop whose values change their size, so that Python runs its rounds, with a loop of fixed size inside."""

    def step(s):
        x, n = s
        kept = x[np.cumsum(x) > n]
        return kept[1:] + mr.fori_loop(0, 3, lambda i, t: t * 0.5 + np.sum(x), 0.0), n - 1

    return mr.while_loop(lambda s: s[1] > 0, step, (x, k))


def peak(f: Callable, *args: object) -> int:
    """Bytes that a call of `f` takes at most."""
    f(*args)
    tracemalloc.start()
    try:
        f(*args)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_rounds_leave_nothing_behind():
    g = check(halved, (np.ones(40), 5))
    assert peak(g, np.ones(30), 400) < peak(g, np.ones(30), 40) + 20_000
    h = check(lambda x, n: mr.fori_loop(0, n, lambda i, s: np.sort(s * 0.5)[::-1] + i, x), (np.ones(4), 3))
    assert peak(h, np.ones(30), 3000) < peak(h, np.ones(30), 30) + 20_000


def test_many_rounds_of_little():
    g = mr.jit(lambda n: mr.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 0.5 + 1), (0, 0.0)))
    assert g(200_000) == (200_000, 2.0)


# ---- results are the caller's


def test_a_loop_without_rounds_gives_copies():
    def f(x, k):
        start = k * 2  # lies in memory that the program uses again
        y, n, m = mr.while_loop(lambda s: s[1] < 0, lambda s: (s[0][1:], s[1] + 1, s[2]), (x, start, x))
        return y, n, m, mr.cond(k > 1, lambda: x, lambda: x[1:]), x * (k + 1)

    g = check(f, (z(4), 3), (z(3), 1))
    x = z(4)
    first = g(x, 3)
    kept = [np.copy(a) for a in first]
    g(x + 1, 5)
    assert all(np.array_equal(a, b) for a, b in zip(first, kept, strict=True))
    assert not any(np.shares_memory(a, x) for a in first)


def test_a_scan_without_slices_gives_copies():
    def f(x):
        last, rows = mr.scan(lambda c, row: (c, np.unique(row)), x[0] * 1.5, x[1:])
        return last, rows, np.sort(x[0] * 3)

    g = mr.jit(f)
    first = g(z(1, 4))
    assert first[1].shape == (0, 0)
    kept = first[0].copy()
    g(z(1, 4) + 5)
    assert np.array_equal(first[0], kept) and np.array_equal(kept, z(1, 4)[0] * np.float32(1.5))


def test_results_share_no_memory():
    def f(x):
        y = x[x > 0]
        return y, mr.match_cast(y, f32["k"]), y.reshape(1, -1), y

    g = check(f, (z(7),))
    found = g(z(7))
    assert not any(np.shares_memory(found[i], found[j]) for i in range(4) for j in range(i))


def test_another_shape_of_what_a_call_gives():
    @mr.jit(inline=False)
    def settled(x):
        return mr.while_loop(lambda s: np.sum(s) < 9, lambda s: s * 2 + 1, x)

    def f(x):
        return settled(x).reshape(-1), settled(x + 1).reshape(x.shape[1], x.shape[0]), settled(np.unique(x)).reshape(1, -1)

    check(f, (z(2, 3),), (z(1, 5),))


def test_what_a_call_gives_in_another_shape_inside_another_call():
    """The result of the inner call is returned as a view, by a program of its own."""

    @mr.jit(inline=False)
    def settled(x, n):
        return mr.while_loop(lambda s: s[1] < n, lambda s: (s[0] * 2, s[1] + 1), (x, 0)), x.shape

    @mr.jit(inline=False)
    def around(x, shape):
        (y, n), own = settled(x, 3)
        return y.reshape(shape), n, own, (own[0] * 2, x.size)

    def f(x, y):
        a, b = around(x, (x.shape[1], x.shape[0])), around(y, (y.size, 1))
        c = mr.fori_loop(0, 2, lambda i, s: settled(s, i)[0][0] + a[0].sum(), y)
        d = mr.cond(x.sum() > 0, lambda: settled(x, 2)[0][0], lambda: around(x, x.shape)[0])
        return a, b, c, d, a[2][0] + b[3][1]

    g = check(f, (z(2, 3), z(4, 5)), (z(3, 3) + 9, z(1, 1)), (z(0, 3), z(2, 2)))
    assert len(g.compilations) <= 2


# ---- sizes and bounds


def test_bounds_are_for_the_sizes_of_the_function_that_is_called():
    @mr.jit(inline=False)
    def running(x: f32["n"]):
        return np.cumsum(np.sort(np.exp(x)) * 2)[::-1] + np.sort(x)

    def f(x: f32["n"], y: f32["m"]):
        return running(y) * 2, running(np.concatenate([x, x])), mr.fori_loop(0, 2, lambda i, s: np.sort(np.tanh(s)), x)

    check(f, (z(3), z(3000)), (z(1), z(2)), bounds={"n": (1, 4)})


def test_a_loop_that_begins_with_nothing():
    """A body that does not fit empty arrays is never run with them, if it changes their size."""

    def f(x):
        return mr.while_loop(lambda s: s[0].shape[0] > 0, lambda s: (s[0][s[0] > s[0][0]], s[1] + s[0][0]), (x, 0.0))

    for first, other in ((np.zeros(0), np.arange(5.0)), (np.arange(5.0), np.zeros(0))):
        g = check(f, (first,), (other,))
        assert len(g.compilations) == 1 and "> 0" not in str(g.compilations)
    with pytest.raises(IndexingError, match="index 0 is out of bounds"):
        mr.jit(lambda x: mr.fori_loop(0, 2, lambda i, s: s + s[0], x))(np.zeros(0))


# ---- errors


ENDLESS = """
import numpy as np
import minirelax as mr

@mr.jit
def walk(following, at):
    return mr.while_loop(lambda s: s[0] != -1, lambda s: (following[s[0]], s[1] + 1), (at, 0))

@mr.jit
def started(x, i):
    return mr.while_loop(lambda s: s > 0, lambda s: s * 1.0, x[i])

@mr.jit(inline=False)
def loop(x):
    return mr.while_loop(lambda s: s[0] > 0, lambda s: np.unique(s), x)

print(walk(np.array([1, 2, 3, -1]), np.int64(0)), started(np.array([1.0, -1.0]), np.int64(1)))
for f, args in (
    (walk, (np.array([1, 2, 7, -1]), np.int64(0))),
    (started, (np.array([1.0, -1.0]), np.int64(9))),
    (mr.jit(lambda x, i: loop(x[i] + np.zeros(2))), (np.array([1.0, -1.0]), np.int64(9))),
):
    try:
        f(*args)
    except IndexError as e:
        print(str(e).splitlines()[0])
"""


def run(code: str, **environment: str) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(mr.__file__).parent.parent), **environment}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.splitlines()


def test_an_index_out_of_range_ends_a_loop_that_would_not():
    assert run(ENDLESS) == [
        "(np.int64(-1), 4) -1.0",
        "index 7 is out of bounds for axis 0 with size 4",
        *2 * ["index 9 is out of bounds for axis 0 with size 2"],
    ]


def reads(x, k):
    return mr.fori_loop(0, 3, lambda i, s: s + x[k + i], 0.0)  # this line reads


def writes(x, k):
    def body(i, s):
        s[k + i] = 1.0  # this line writes
        return s

    return mr.fori_loop(0, 3, body, x)


def deep(x, k):
    def outer(i, s):
        return mr.cond(i > 1, lambda: mr.scan(lambda c, r: (c + x[k + r], None), s, mnp.arange(3))[0], lambda: s)  # this line is deep

    return mr.fori_loop(0, 3, outer, 0.0)


def grows(x, k):
    def step(s):
        y, n = s
        return np.concatenate([y, x[k + n][None]]), n + 1  # this line grows

    return mr.while_loop(lambda s: s[1] < 3, step, (x, 0))


@pytest.mark.parametrize("f", [reads, writes, deep, grows])
def test_an_index_out_of_range_is_shown_where_it_is_used(f):
    g = check(f, (z(5), 1), (z(5), 2))
    line = {reads: "reads", writes: "writes", deep: "is deep", grows: "grows"}[f]
    with pytest.raises(IndexingError, match=rf"index 5 is out of bounds for axis 0 with size 5\n.*this line {line}"):
        g(z(5), 3)
    same(g(z(5), 2), mr.jit(f, target="interpret")(z(5), 2))


def test_a_failing_match_cast_inside():
    def body_cast(x):
        return mr.fori_loop(0, 3, lambda i, s: s + mr.match_cast(x[x > i], f64[3]).sum(), 0.0)  # this line

    def branch_cast(x, p):
        return mr.cond(p, lambda: mr.match_cast(x[x > 2], f64[3]), lambda: x[:3])  # this line

    def after_loop(x):
        y, u, _ = mr.while_loop(lambda s: s[2] < 2, lambda s: (s[0][s[0] > s[2]], s[1][1:], s[2] + 1), (x, x, 0))
        return mr.match_cast(y, f64["q"]) + mr.match_cast(u, f64["q"])  # this line

    x = np.arange(5.0)
    with pytest.raises(ShapeError, match=r"expected f64\[3\], got an array of shape \(4,\)(.|\n)*this line"):
        mr.jit(body_cast)(x)
    g = mr.jit(branch_cast)
    same(g(x, False), x[:3])
    same(g(x + 1, True), x[2:] + 1)
    with pytest.raises(ShapeError, match=r"expected f64\[3\], got an array of shape \(2,\)(.|\n)*this line"):
        g(x, True)
    h = mr.jit(after_loop)
    same(h(x), np.array([4.0, 6, 8])[: len(x[x > 1])] + 0)
    with pytest.raises(ShapeError, match="expected f64.q., got an array of shape"):
        h(x * 0 + 3)


def test_a_library_that_fails_in_a_loop():
    def f(x):
        return mr.fori_loop(0, 3, lambda i, s: np.linalg.solve(s - i * mnp.eye(2), s), x)

    try:
        g = mr.jit(f).compile(np.diag([1.0, 2.0]))
    except Exception as error:  # there is no such routine here
        pytest.skip(str(error))
    with pytest.raises(np.linalg.LinAlgError):
        g(np.diag([1.0, 2.0]))


# ---- weights, static arguments, threads, files


def weights(n: int) -> dict[str, np.ndarray]:
    return {"into": z(3, n) * 0.5, "own": z(n, n)[::-1] * 0.5, "shift": z(n)}


@mr.jit(inline=False)
def decayed(x, n):
    return mr.while_loop(lambda s: (s[1] < n) & (np.sum(s[0]) < 100), lambda s: (s[0] * 0.5, s[1] + 1), (x, 0))[0]


TABLE = z(4, 2)


def cell(w, x, n, squash):
    def step(h, row):
        h = squash(row @ w["into"] + h @ w["own"].T + w["shift"])
        h = mr.cond(h.sum() > 0, lambda: h @ w["own"], lambda: decayed(h, n) * w["shift"] + TABLE[n].sum())
        return h, h @ w["into"].T

    last, rows = mr.scan(step, mnp.zeros(w["own"].shape[0], np.float32), x)
    return last, rows, mr.fori_loop(0, n, lambda i, s: s @ w["own"], last)


def test_weights_that_bodies_read():
    one, other = weights(5), weights(5)
    other["own"] = other["own"] + 1
    calls = [(one, z(4, 3), 2, np.tanh), (other, z(2, 3), 3, np.tanh), (one, z(0, 3), 0, np.tanh), (one, z(1, 3), 1, np.sin)]
    g = check(cell, *calls, constants="w", static="squash")
    assert len(g.compilations) == 2
    one["own"][...] = 0.25
    g.rebind()
    same(g(*calls[0]), mr.jit(cell, target="interpret", static="squash")(*calls[0]))


def test_an_executable_with_loops_is_pickled_and_saved(tmp_path):
    w, x = weights(5), z(4, 3)
    g = mr.jit(cell, constants="w", static="squash")
    wanted = g(w, x, 2, np.tanh)
    g.executable.save(tmp_path / "cell.mrx", [w["into"], w["own"], w["shift"]])
    copies = mr.Executable.load(tmp_path / "cell.mrx"), pickle.loads(pickle.dumps(g.executable)).bind([w["into"], w["own"], w["shift"]])
    same(copies[0](x, np.int64(2)), wanted)
    same(copies[1]((x, np.asarray(2))), wanted)


LOOPS = """
import sys
import numpy as np
import minirelax as mr
import minirelax.numpy as mnp

@mr.jit(inline=False)
def settle(x, n):
    return mr.while_loop(lambda s: (s[1] < n) & (s[0].sum() < 100), lambda s: (s[0] * 2, s[1] + 1), (x, 0))

@mr.jit
def f(w, x, n):
    h, rows = mr.scan(lambda h, r: (np.tanh(h @ w + r), settle(h, n)[0]), mnp.zeros(w.shape[0]), x)
    grown = mr.while_loop(lambda s: s.shape[0] < 9, lambda s: np.concatenate([s, s]), h)
    return h, rows, mr.cond(n > 1, lambda: np.sort(h), lambda: h @ w), grown

w = np.arange(16.0).reshape(4, 4) / 16
print(*(part.sum() for k, n in ((3, 2), (5, 0), (0, 1)) for part in f(w, w[:1] * np.ones((k, 1)), np.int64(n))))
print("numba" in sys.modules, "minirelax.pipeline" in sys.modules)
"""


def test_a_second_process_compiles_no_loop(tmp_path):
    first, second = (run(LOOPS, MINIRELAX_CACHE_DIR=str(tmp_path)) for _ in range(2))
    assert first == [second[0], "True True"] and second[1] == "False False"


def mixed(x, k):
    """All kinds of control flow, on sizes that stay and sizes that change."""
    kept = x[x > 0]
    grown = mr.while_loop(lambda s: s.shape[0] < 12, lambda s: np.concatenate([s, s[:1] + 1]), np.concatenate([kept, x[:1]]))
    total, rows = mr.scan(lambda c, row: (c * 0.5 + row, c), x[0], x)
    return grown, total, rows, mr.fori_loop(0, k, lambda i, s: np.sort(s)[::-1] * 0.5 + i, x)


def test_calls_at_the_same_time():
    calls = [(z(n), k) for n, k in ((3, 2), (9, 0), (1, 5), (30, 1))]
    wanted, g, wrong = [mr.jit(mixed, target="interpret")(*c) for c in calls], mr.jit(mixed), []

    def work(start: int) -> None:
        for i in range(12):
            at = (start + i) % len(calls)
            try:
                same(g(*calls[at]), wanted[at])
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong, wrong[0]


def test_every_stage_is_compared():
    check(mixed, (z(4), 2), (z(2), 0), validate=True)


def test_threads_change_nothing():
    def f(x, k):
        return mr.fori_loop(0, k, lambda i, s: np.tanh(s) * 0.5 + np.max(s, axis=0) @ s.T @ s, x)

    before, found = mr.get_num_threads(), []
    try:
        g = mr.jit(f)
        for threads in (1, 2):
            mr.set_num_threads(threads)
            found.append(g(z(400, 300), 3))
    finally:
        mr.set_num_threads(before)
    assert np.array_equal(*found)

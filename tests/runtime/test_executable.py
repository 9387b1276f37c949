"""Executables: results that alias, library calls between kernels, sizes known late, odd inputs, pickling, concurrent calls."""
from __future__ import annotations

import pickle
import threading

import numpy as np
import pytest

import minirelax as mr
from minirelax.ir.parser import parse
from minirelax.pipeline import compile_module


def program(text: str):
    return compile_module(parse(text))


LATE = program("""
def main(x: f32[n], keep: bool[n]) -> Tuple[f32[m], f32[n]]:
    with dataflow():
        v0: f32[_] = call_library("compress", keep, x, axis=0)
        v1: f32[m] = match_cast(v0, f32[m])
        v2: f32[m] = exp(v1)
        v3: f32[m] = sort(v2, axis=0)
        v4: f32[n] = add(x, 1.0)
        v5: Tuple[f32[m], f32[n]] = (v3, v4)
        output(v5)
    return v5
""")


def test_sizes_known_only_after_a_library_call():
    run = LATE.bind()
    for n in (0, 1, 7, 300):
        x = np.random.default_rng(n).random(n, "f4")
        kept, plus = run((x, x > 0.5))
        np.testing.assert_allclose(kept, np.sort(np.exp(x[x > 0.5])), rtol=1e-6)
        np.testing.assert_array_equal(plus, x + np.float32(1))


def test_a_match_cast_that_fails_says_what_was_found():
    run = program("""
def main(x: f32[n], keep: bool[n]) -> f32[3]:
    with dataflow():
        v0: f32[_] = call_library("compress", keep, x, axis=0)
        v1: f32[3] = match_cast(v0, f32[3])
        v2: f32[3] = exp(v1)
        output(v2)
    return v2
""").bind()
    x = np.ones(5, "f4")
    assert run((x, np.array([1, 0, 1, 1, 0], bool)))[0].shape == (3,)
    with pytest.raises(mr.errors.RunError, match="axis 0 of v0 is 2, expected 3"):
        run((x, np.array([1, 0, 1, 0, 0], bool)))


ALIASES = program("""
def main(x: f32[n, 2]) -> Tuple[f32[n, 2], f32[2, n], f32[2*n], f32[n, 2]]:
    with dataflow():
        v0: f32[n, 2] = exp(x)
        v1: f32[2, n] = reshape(v0, shape=(2, n))
        v2: f32[2*n] = reshape(x, shape=(2*n,))
        v3: Tuple[f32[n, 2], f32[2, n], f32[2*n], f32[n, 2]] = (v0, v1, v2, x)
        output(v3)
    return v3
""")


def test_results_share_no_memory_with_each_other_or_with_arguments():
    x = np.arange(6, dtype="f4").reshape(3, 2)
    results = ALIASES.bind()((x,))
    for got, want in zip(results, (np.exp(x), np.exp(x).reshape(2, 3), x.reshape(6), x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    arrays = [x, *results]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
    results[0][...] = 0
    np.testing.assert_allclose(ALIASES.bind()((x,))[0], np.exp(x), rtol=1e-6)


LAYOUTS = {
    "fortran": np.asfortranarray,
    "negative strides": lambda a: a[::-1, ::-1],
    "big-endian": lambda a: a.astype(">f4"),
    "every other row": lambda a: np.repeat(a, 2, 0)[::2],
    "subclass": lambda a: a.view(Sub),
    "unaligned": lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view("f4").reshape(a.shape),
    "broadcast": lambda a: np.broadcast_to(a[:1], a.shape),
}


@pytest.mark.parametrize("make", LAYOUTS.values(), ids=LAYOUTS)
def test_inputs_in_any_layout(make):
    x = make(np.random.default_rng(0).random((5, 2), "f4"))
    before = np.array(x)
    np.testing.assert_allclose(ALIASES.bind()((x,))[0], np.exp(np.array(x, "f4")), rtol=1e-6)
    np.testing.assert_array_equal(x, before)


class Sub(np.ndarray):
    """A subclass with nothing of its own."""


def test_what_does_not_fit_is_refused_and_explained():
    run = LATE.bind()
    x, keep = np.ones(4, "f4"), np.ones(4, bool)
    for bad in ((x, keep[:3]), (x[None], keep), (x.astype("f8"), keep), (x, x)):
        assert run(bad) is None
    assert run.explain((x, keep[:3])) == "axis 0 of keep: n expected, found 3"
    assert run.explain((x, keep)) is None


def test_pickles():
    again = pickle.loads(pickle.dumps(LATE))
    x = np.random.default_rng(0).random(9, "f4")
    for got, want in zip(again.bind()((x, x > 0.3)), LATE.bind()((x, x > 0.3)), strict=True):
        np.testing.assert_array_equal(got, want)
    assert again.module == LATE.module and again.tiling.names == LATE.tiling.names


def test_an_index_out_of_range_raises_and_the_program_stays_usable():
    run = program("""
def main(x: f32[n, 3], i: i64[k]) -> f32[k, 3]:
    with dataflow():
        v0: f32[k, 3] = take(x, i, axis=0, mode="raise")
        output(v0)
    return v0
""").bind()
    x = np.arange(12, dtype="f4").reshape(4, 3)
    for bad in (4, -5, 2**40):
        with pytest.raises(IndexError, match="out of range"):
            run((x, np.array([0, bad])))
        np.testing.assert_array_equal(run((x, np.array([3, -4])))[0], x[[3, 0]])


def test_concurrent_calls_from_many_threads():
    """Each call has memory of its own; results do not depend on who else runs."""
    run = program("""
def main(x: f32[n, m]) -> f32[n, m]:
    with dataflow():
        v0: f32[n, m] = exp(x)
        v1: f32[n, 1] = sum(v0, axes=(1,), keepdims=True)
        v2: f32[m, n] = transpose(v0, axes=(1, 0))
        v3: f32[n, n] = matmul(v0, v2)
        v4: f32[n, m] = matmul(v3, v0)
        v5: f32[n, m] = divide(v4, v1)
        output(v5)
    return v5
""").bind()
    inputs = [np.random.default_rng(i).random((20 + 13 * i, 8 + i), "f4") for i in range(6)]
    alone = [run((x,))[0] for x in inputs]
    wrong = []

    def work(x, want):
        for _ in range(40):
            if not np.array_equal(run((x,))[0], want):
                wrong.append(x.shape)
    threads = [threading.Thread(target=work, args=a) for a in zip(inputs, alone, strict=True)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not wrong


def test_threads_do_not_change_results():
    x = np.random.default_rng(0).random((400, 300), "f4")
    f = mr.jit(lambda x: np.tanh(x @ x.T).sum(axis=1) + np.exp(x).mean())
    before = mr.get_num_threads()
    try:
        results = []
        for count in (1, 2, 4):
            mr.set_num_threads(count)
            results.append(f(x))
    finally:
        mr.set_num_threads(before)
    assert all(np.array_equal(results[0], r) for r in results)


def test_a_library_call_between_kernels_reads_and_writes_planned_memory():
    f = mr.jit(lambda x: np.cumsum(x * 2)[::-1] + 1)
    for n in (4, 0, 1000):
        np.testing.assert_array_equal(f(np.arange(n)), np.cumsum(np.arange(n) * 2)[::-1] + 1)
    assert len(f.compilations) == 1

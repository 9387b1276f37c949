"""The memory of a call: limits, bounds and their ends, sizes of zero, and what successive calls take."""

# ruff: noqa: F821   (sizes are named in quotes)
import numpy as np
import pytest

import minirelax as mr
from minirelax import f32
from minirelax.errors import MemoryLimitError, ShapeError
from minirelax.explore import memory_plan


def sorts(x: f32["n", 4]):
    """Several values that are alive in turn, none of which can be fused."""
    y = np.cumsum(np.sort(x * 2, axis=0), axis=0)
    return np.concatenate([np.sort(y, axis=0), np.cumsum(y, axis=1)])


def grown(x):
    return mr.fori_loop(0, 3, lambda i, c: np.cumsum(np.sort(c, axis=0), axis=0), x)


def numbers(n):
    return np.random.default_rng(n).standard_normal((n, 4)).astype("f4")


@pytest.fixture(scope="module")
def bounded():
    return mr.jit(sorts, bounds={"n": (0, 64)})


@pytest.mark.parametrize("n", [0, 1, 63, 64])
def test_sizes_of_zero_and_at_their_bounds(bounded, n):
    np.testing.assert_allclose(bounded(numbers(n)), sorts(numbers(n).astype(float)), rtol=1e-4, atol=1e-4)


def test_a_size_beyond_its_bound_is_refused(bounded):
    with pytest.raises(ShapeError) as e:
        bounded(numbers(65))
    assert "n" in e.value.what and "64" in str(e.value) and "65" in str(e.value)


def test_with_bounds_memory_does_not_grow(bounded):
    plan = bounded.compile(numbers(3)).memory
    assert isinstance(plan.peak, int)
    program = bounded._latest.program
    taken = set()
    for n in (1, 64, 2, 30, 64):
        bounded(numbers(n))
        taken |= {call.arena.nbytes for call in program._free}
    assert len(taken) == 1


@pytest.mark.parametrize("function", [sorts, grown])
def test_a_call_beyond_its_limit_does_not_start(function):
    limited = mr.jit(function, memory_limit=8192)
    np.testing.assert_allclose(limited(numbers(20)), function(numbers(20)), rtol=1e-3)
    for _ in range(2):
        with pytest.raises(MemoryLimitError, match=r"more than its limit of 8,192, for arguments of shapes x: \(5000, 4\)"):
            limited(numbers(5000))
    np.testing.assert_allclose(limited(numbers(21)), function(numbers(21)), rtol=1e-3)


def test_a_limit_is_a_number_of_bytes():
    with pytest.raises(mr.errors.ArgumentError, match="not a number of bytes"):
        mr.jit(sorts, memory_limit="1 GiB")


def test_partly_bounded_sizes_are_numbers_in_the_plan():
    def both(x: f32["m", "n"]):
        return np.sort(np.cumsum(np.sort(x, axis=1), axis=0), axis=1)

    compiled = mr.jit(both, bounds={"m": (0, 16)})
    for m, n in ((0, 5), (16, 0), (16, 33), (1, 1), (7, 64)):
        x = np.random.default_rng(m).standard_normal((m, n)).astype("f4")
        np.testing.assert_allclose(compiled(x), both(x), rtol=1e-4, atol=1e-4)
    assert str(compiled.memory.peak) == "128*n"


def test_the_lower_bound_is_below_the_plan():
    module = mr.jit(sorts).lower(f32["n", 4])
    plan = memory_plan(module)
    for n in (0, 1, 100, 1000):
        assert mr.explore.largest_live_set(module, n=n) <= plan.peak_bytes(n=n)
    assert plan.peak_bytes(n=1000) <= 1.1 * mr.explore.largest_live_set(module, n=1000)


def test_the_picture_shows_every_tensor():
    plan = memory_plan(mr.jit(sorts).lower(f32["n", 4])).at(n=1000)
    html = plan._repr_mimebundle_()["text/html"]
    assert html.count("<rect") >= sum(len(s.tenants) for s in plan.storages) and "<svg" in html

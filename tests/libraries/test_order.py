"""Parts of a sorted order: NaN, equal elements, empty and clipped parts, every axis; what is not a part stays as it is."""

from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32, f64
from minirelax.ir.interpret import interpret
from minirelax.ir.types import Tensor, dtype_name
from minirelax.libraries import sort
from minirelax.passes.choose_libraries import choose_libraries
from minirelax.pipeline import GRAPH_PASSES, run

ROWS = f64["n", "m"]


def chosen(fn, *types):
    """The traced function after the rules have chosen, and the lines that they noted."""
    stage = run(mr.trace(fn, *types), (*GRAPH_PASSES, choose_libraries(sort())))[-1]
    return stage.module, stage.notes


def lines(n: int, m: int, seed: int = 0) -> np.ndarray:
    """Few different numbers, zeros of one sign, NaN among them, a line of NaN alone."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-3, 4, (n, m)).astype(np.float64)
    x[rng.random((n, m)) < 0.2] = np.nan
    x[-1:] = np.nan
    return x


SIZES = [(4, 9), (3, 1), (3, 2), (1, 30), (2, 100), (0, 9), (5, 3)]

VALUES = {
    "least": lambda x: np.sort(x)[..., :3],
    "greatest": lambda x: np.sort(x)[..., -3:],
    "from greatest": lambda x: np.sort(x)[..., ::-1][..., :3],
    "greatest, turned": lambda x: np.sort(x)[..., -1:][..., ::-1],
    "all but one": lambda x: np.sort(x, axis=-1)[:, 1:],
    "columns": lambda x: np.sort(x, axis=-2)[:2],
    "first": lambda x: np.sort(x)[..., 0],
    "last": lambda x: np.sort(x)[..., -1],
    "none": lambda x: np.sort(x)[..., :0],
    "by indices": lambda x: np.take_along_axis(x, np.argsort(x)[:, :3], -1),
    "by indices, turned": lambda x: np.take_along_axis(x, np.argsort(x, axis=0)[::-1][:2], 0),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name):
    fn = VALUES[name]
    module, notes = chosen(fn, ROWS)
    assert "sort_part: taken at" in notes[0], notes
    at_least = {"greatest": 3}.get(name, 0)  # guards of the program
    for n, m in SIZES:
        if m >= at_least:
            np.testing.assert_array_equal(interpret(module, x := lines(n, m)), fn(x))


def test_a_middle_part_and_a_size_from_the_call():
    def middle(x, k):
        return np.sort(x)[..., 2 : 2 + k.shape[0]]

    module, notes = chosen(middle, ROWS, f64["k"])
    assert "sort_part: taken at v1" in notes[0]
    for m, k in ((30, 3), (30, 27), (30, 28), (30, 99), (3, 0), (1, 2), (2, 2), (0, 4)):
        np.testing.assert_array_equal(interpret(module, x := lines(3, m), y := np.zeros(k)), middle(x, y))


INDICES = {
    "least": lambda x, **stable: np.argsort(x, **stable)[..., :3],
    "greatest": lambda x, **stable: np.argsort(x, **stable)[..., -3:],
    "turned": lambda x, **stable: np.argsort(x, **stable)[..., ::-1][..., :3],
    "middle": lambda x, **stable: np.argsort(x, **stable)[:, 2:7],
    "columns": lambda x, **stable: np.argsort(x, axis=-2, **stable)[:2],
    "first": lambda x, **stable: np.argsort(x, **stable)[..., 0],
}


@pytest.mark.parametrize("name", INDICES)
def test_indices_are_those_of_a_stable_sort(name):
    module, notes = chosen(INDICES[name], ROWS)
    assert "argsort_part: taken at" in notes[1], notes
    for seed, (n, m) in enumerate([*SIZES, (9, 40), (40, 9)]):
        if m >= {"greatest": 3}.get(name, 0):
            x = lines(n, m, seed)
            np.testing.assert_array_equal(interpret(module, x), INDICES[name](x, stable=True))


@pytest.mark.parametrize("dtype", [np.float32, np.int8, bool, np.uint64])
def test_other_dtypes(dtype):
    def fn(x):
        return np.sort(x)[..., :2], np.sort(x, 0)[0], np.sort(x, 0)[::-1][0], np.argsort(x)[..., :2], x[0][np.argsort(x[0])]

    x = np.random.default_rng(0).integers(0, 5, (4, 11)).astype(dtype)
    module, notes = chosen(fn, Tensor(dtype_name(x.dtype), x.shape))
    found, wanted = interpret(module, x), fn(x)
    for a, b in zip(found[:3] + found[4:], wanted[:3] + wanted[4:], strict=True):
        np.testing.assert_array_equal(a, b, strict=True)
    np.testing.assert_array_equal(found[3], np.argsort(x, stable=True)[..., :2])
    assert all("taken" in note for note in notes)


def test_sorting_by_indices_is_sorting():
    for fn, types in ((lambda x: np.take_along_axis(x, np.argsort(x, 0), 0), ROWS), (lambda x: x[np.argsort(x)], f32["n"])):
        module, notes = chosen(fn, types)
        assert "sort_values: taken at v1" in notes[2], notes
        x = lines(5, 7) if types is ROWS else lines(2, 11)[0].astype(np.float32)
        np.testing.assert_array_equal(interpret(module, x), fn(x))
        np.testing.assert_array_equal(interpret(module, x[:0]), fn(x[:0]))


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: np.sort(x)[..., ::2],  # gaps
        lambda x: np.sort(x)[:1, :3],  # not all lines
        lambda x: np.sort(x)[::-1],  # lines in another order
        lambda x: (y := np.sort(x), y[..., :3]),  # all of it is there anyway
        lambda x: np.take_along_axis(x + 1, np.argsort(x), -1),  # by the order of another array
        lambda x: np.take(x, np.argsort(x, 0), 0),  # not in its own line
        lambda x: np.take_along_axis(x, np.argsort(x, 0), 1),  # along another axis
        lambda x: np.sort(x) + 1,
    ],
)
def test_what_is_not_a_part_stays(fn):
    module, notes = chosen(fn, f64["n", "n"])
    assert not any("taken" in note for note in notes) and "call_library" not in str(module), notes


def test_values_of_a_part_whose_indices_are_read_too():
    def best(x):
        at = np.argsort(x)[:3]
        return x[at], at

    module, notes = chosen(best, f64["n"])
    assert "argsort_part: taken at v1" in notes[1] and "v1 is read elsewhere" in notes[0]
    x = lines(2, 12)[0]
    for found, wanted in zip(interpret(module, x), best(x), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_compiled_for_all_sizes():
    fn = mr.jit(lambda x: (np.sort(x * 2)[..., :3] + 1, np.argsort(-x)[..., 0]), libraries=sort())
    for n, m in ((4, 9), (3, 1), (0, 9), (1, 50)):
        x = lines(n, m)
        for found, wanted in zip(fn(x), (np.sort(x * 2)[..., :3] + 1, np.argsort(-x, stable=True)[..., 0]), strict=True):
            np.testing.assert_array_equal(found, wanted)
    assert len(fn.compilations) == 1

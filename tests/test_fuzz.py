"""Differential fuzzing: random NumPy programs do compiled what they do in NumPy, errors included."""

from __future__ import annotations

import random
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import minirelax as mr
from minirelax.errors import CompileError, UnsupportedError
from minirelax.frontend.tree import flatten
from tests.fuzz_control import write_control
from tests.fuzz_programs import Program, write_program

FAMILIES = (ValueError, IndexError, TypeError, ZeroDivisionError)
TOLERANCE = {"float32": 2e-4, "float64": 1e-9}


def outcome(function, arrays) -> object:
    """What a call gives: its result, or its exception."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*arrays)
    except Exception as error:
        return error


def check(program: Program, compiled, sizes: dict[str, int] | None = None) -> None:
    """One call of a program, compiled and with NumPy: same structure, shapes, dtypes, values, or class of exception."""
    expected, found = (outcome(f, program.inputs(sizes)) for f in (program.function(), compiled))
    if isinstance(found, UnsupportedError):
        return
    if isinstance(expected, IndexError) and not isinstance(found, Exception):
        return  # nobody reads the value that an index out of range would have given
    if isinstance(expected, Exception) or isinstance(found, Exception):
        # tracing sees all shapes before any index, so it may find the second of two mistakes first
        fits = isinstance(expected, FAMILIES) and isinstance(found, FAMILIES)
        assert fits, f"{program.text}{sizes}: {found!r} instead of {expected!r}"
        return
    (wanted, tree), (got, found_tree) = (flatten(x, lambda v: False) for x in (expected, found))
    assert str(tree) == str(found_tree), program.text
    for w, g in zip(wanted, got, strict=True):
        if isinstance(w, np.ndarray | np.generic):  # a single element may come as a scalar or as an array without axes
            assert isinstance(g, type(w) if w.ndim else np.ndarray | np.generic), f"{program.text}{sizes}: {type(g)}"
            assert (g.dtype, g.shape) == (w.dtype, w.shape), f"{program.text}{sizes}: {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
            tolerance = TOLERANCE.get(w.dtype.name, 0)
            scale = float(np.abs(w, dtype=np.float64).max()) if tolerance and w.size else 0.0
            np.testing.assert_allclose(g, w, rtol=tolerance, atol=tolerance * max(1.0, scale), err_msg=f"{program.text}{sizes}")
        else:
            assert g == w, program.text


def check_program(r: random.Random, lines: int, target: str) -> None:
    """A program at the sizes that it was written for, and at others."""
    program = write_program(r, lines)
    compiled = mr.jit(program.function(), target=target)
    check(program, compiled)
    check(program, compiled)
    name = r.choice(sorted(program.sizes))
    check(program, compiled, program.sizes | {name: r.choice((0, 1, 2, 3, 6))})


FEW = settings(deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))


@given(st.randoms(use_true_random=False))
@settings(FEW, max_examples=80)
def test_traced_programs(r):
    check_program(r, 12, "interpret")


@pytest.mark.parametrize("seed", range(8))
def test_compiled_programs(seed):
    check_program(random.Random(seed), 20, "cpu")


def check_control(seed: int, target: str) -> bool:
    """Random control flow against plain Python, twice.  False if it was refused: tracing asks for more than one run needs."""
    program = write_control(random.Random(seed), 4, sizes_change=seed % 2 == 0)
    compiled = mr.jit(program.function(), target=target)
    if isinstance(outcome(compiled, program.inputs(None)), CompileError):
        return False
    check(program, compiled)
    return True


@pytest.mark.parametrize("target, seeds", [*(("interpret", range(i, i + 10)) for i in (0, 10, 20, 30)), ("cpu", range(40, 48))])
def test_branches_and_loops(target, seeds):
    assert sum(check_control(seed, target) for seed in seeds) >= len(seeds) // 2

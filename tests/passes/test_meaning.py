"""Every stage of every program means the same: the passes are right, also where a size is zero or one."""

import numpy as np
import pytest

from minirelax.ir.dim import value
from minirelax.ir.graph import Module
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.passes.base import BIND
from minirelax.pipeline import passes, run
from tests.passes.programs import PROGRAMS

BOUNDS = {size: (0, 16) for size in "nmbskp"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_stage_means_the_same(name):
    text, assignments = PROGRAMS[name]
    stages = (*run(parse(text), passes()), *run(parse(text), passes(BOUNDS))[-2:])
    for sizes in assignments:
        assert_same_meaning(stages, sizes)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_stage_reads_back(name):
    for stage in run(parse(PROGRAMS[name][0]), passes()):
        assert parse(str(stage.module)) == stage.module


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_share_no_memory(name):
    text, (sizes, *_) = PROGRAMS[name]
    module = run(parse(text), passes())[-1].module
    args, bound = inputs(parse(text), sizes)
    results = leaves(interpret(module, *args, bound=bound_values(module, bound)))
    for i, result in enumerate(results):
        assert not any(np.shares_memory(result, other) for other in (*args, *bound, *results[:i]))


def assert_same_meaning(stages, sizes: dict[str, int]) -> None:
    """Every stage gives what the first one gives, on random arguments of these sizes."""
    first, *others = stages
    args, bound = inputs(first.module, sizes)
    want = leaves(interpret(first.module, *args, bound=bound))
    for stage in others:
        got = leaves(interpret(stage.module, *args, bound=bound_values(stage.module, bound)))
        for w, g in zip(want, got, strict=True):
            assert (w.shape, w.dtype) == (g.shape, g.dtype), stage.name
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6, err_msg=f"{stage.name} at {sizes}")


def inputs(module: Module, sizes: dict[str, int]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Random arguments and bound arguments of the module's main function."""
    rng = np.random.default_rng(0)

    def array(type_):
        shape = [value(d, sizes) for d in type_.shape]
        return (rng.integers(-3, 7, shape) if type_.dtype[0] == "i" else rng.standard_normal(shape)).astype(type_.numpy_dtype)

    main = module["main"]
    return [array(v.type) for v in main.params], [array(v.type) for v in main.bound]


def bound_values(module: Module, bound: list[np.ndarray]):
    """What the bound parameters of `main` are, given what the user binds."""
    return interpret(module, *bound, function=BIND) if any(f.name == BIND for f in module.functions) else bound


def leaves(values) -> list[np.ndarray]:
    """The arrays of a nested tuple."""
    return [leaf for v in values for leaf in leaves(v)] if isinstance(values, tuple) else [values]

"""Each program of the corpus: the compiled function on all sizes, and every stage's meaning on small ones."""
from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
import tests.control_programs  # noqa: F401   more programs
from minirelax.ir.graph import Module
from minirelax.ir.interpret import interpret
from tests.programs import PROGRAMS, Program, compare

programs = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@programs
def test_reference_runs_at_every_size(program: Program):
    for sizes in program.sizes:
        program.expected(*program.inputs(sizes))


@programs
def test_compiled_is_numpy_at_every_size(program: Program):
    compiled = mr.jit(program.function)
    for sizes in program.sizes:
        args = program.inputs(sizes)
        kept = [a.copy() for a in args]
        compare(program, compiled(*args), program.expected(*args))
        assert all(np.array_equal(a, b) for a, b in zip(args, kept, strict=True)), "an argument was changed"
    assert len(compiled.compilations) == program.compilations, str(compiled.compilations)


@programs
def test_every_stage_means_the_same(program: Program):
    compiled = mr.jit(program.function)
    compiled.compile(*program.inputs(program.sizes[0]))
    args = program.inputs(program.small)
    expected, before = program.expected(*args), None
    modules = [stage.module for stage in compiled.stages if isinstance(stage.module, Module)]       # the last one is machine code
    assert len(modules) >= 10
    for module in modules:
        if module != before:                            # a pass that changed nothing changed no meaning
            compare(program, interpret(module, *args), expected)
        before = module

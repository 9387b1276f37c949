"""Every op with a loop form, compiled: machine code of its kernel for symbolic sizes gives what NumPy gives."""
from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from minirelax.ir.graph import Var, operand_names
from minirelax.ir.tensor import lower_to_kernel
from tests.codegen.native import run_natively
from tests.ops.test_ops import LOOPS, SIZES, assert_same, distribute, symbolic, symbolic_type, type_of


@pytest.mark.parametrize("op, arrays", LOOPS)
def test_machine_code_means_what_numpy_does(op, arrays):
    params = tuple(Var(f"a{i}", symbolic_type(type_of(a))) for i, a in enumerate(arrays))
    named = symbolic(op)
    named = replace(named, **dict(zip(operand_names(type(op)), distribute(named, params), strict=True)))
    kernel = lower_to_kernel(op.opname(), named.lower, params, frozenset(SIZES))
    with np.errstate(all="ignore"):
        want = op.numpy(*arrays)
    (got,), error = run_natively(kernel, arrays, SIZES)
    assert error == 0
    with np.errstate(all="ignore"):
        assert_same(got, np.asarray(want))

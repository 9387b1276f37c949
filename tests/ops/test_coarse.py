"""Operands of which too little is known are refused, with the way out; results of which little is known say so."""
from __future__ import annotations

import pytest

from minirelax.errors import DTypeError, ShapeError
from minirelax.ir.types import Object, Shape, Tensor, Tuple, dtype_name, f32
from minirelax.ops import OPS

EXAMPLES = [pytest.param(op, arrays, id=name) for name, cls in OPS.items() for op, arrays in cls.examples()[:1] if arrays]
RUN_TIME = ("shape_of", "tensor_to_shape", "reshape_to")               # these only look at the array while running


@pytest.mark.parametrize("op, arrays", EXAMPLES)
def test_coarse_operands_are_refused_with_the_way_out(op, arrays):
    types = [Shape(a) if isinstance(a, tuple) else Tensor(dtype_name(a.dtype), a.shape) for a in arrays]
    for i, t in enumerate(types):
        if isinstance(t, Shape):
            continue
        for coarse, error, what in (
                (Tensor(None, t.shape), DTypeError, "the dtype of"), (Tensor(t.dtype, None), ShapeError, "the rank of"),
                (Tensor[...], DTypeError, "the dtype of"), (Object(), DTypeError, "an operand is Object, not an array")):
            if op.opname() in RUN_TIME and isinstance(coarse, Tensor):
                assert op.infer(*types[:i], coarse, *types[i + 1:]) is not None
                continue
            with pytest.raises(error, match=what) as e:
                op.infer(*types[:i], coarse, *types[i + 1:])
            assert "match_cast" in e.value.hint


def test_other_values_have_other_ways_out():
    for type_, hint in ((Tuple[f32["n"]], "take the arrays out of the tuple"), (Shape(["n"]), "shape_to_tensor(s)")):
        with pytest.raises(DTypeError) as e:
            OPS["exp"](None).infer(type_)
        assert hint in e.value.hint

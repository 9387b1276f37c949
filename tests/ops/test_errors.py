"""What ops refuse, and what they say."""
from __future__ import annotations

import numpy as np
import pytest

from minirelax.errors import DTypeError, ShapeError
from minirelax.ir.dim import dim
from minirelax.ir.graph import Atom, Const, Var
from minirelax.ir.op import Op, op
from minirelax.ir.types import Tuple, bool_, c64, f32, f64, i64, u8
from minirelax.ops import OPS

SHAPES = [
    (OPS["add"](Var("x", f32["n"]), Const(1.0, "f32")), (f32["_"], f32[()]), "a size of f32[_] is known only at run time"),
    (OPS["add"](None, None), (f32["n", 2], f32["n", 3]), "axis -1 has sizes 2 and 3, which differ"),
    (OPS["add"](None, None), (f32["n", 2], f32["m", 1]), "axis -2 has sizes n and m, which cannot be shown equal"),
    (OPS["exp"](None), (f32[...],), "the rank of f32[...] is known only at run time"),
    (OPS["max"](None, (0,)), (f32[0],), "zero-size array to reduction operation maximum which has no identity"),
    (OPS["min"](None, (1,)), (f32["n", 0],), "zero-size array to reduction operation minimum which has no identity"),
    (OPS["argmax"](None, 0), (f32[0, 3],), "attempt to get argmax of an empty sequence"),
    (OPS["sum"](None, (0, 0)), (f32[2, 3],), "(0, 0) are not distinct axes of an array with 2"),
    (OPS["sum"](None, (-1,)), (f32[2, 3],), "(-1,) are not distinct axes of an array with 2"),
    (OPS["matmul"](None, None), (f32["n", 3], f32["m", 3]), "inner sizes are 3 and m, which cannot be shown equal"),
    (OPS["matmul"](None, None), (f32[3], f32[3, 2]), "needs at least two axes each"),
    (OPS["einsum"]((None, None), "ij,jk->ik"), (f32[2, "n"], f32["m", 4]),
     "index j has sizes n and m, which cannot be shown equal"),
    (OPS["einsum"]((None,), "ij->j"), (f32[2],), "subscripts 'ij->j' do not match the axes"),
    (OPS["einsum"]((None,), "ij->k"), (f32[2, 2],), "subscripts 'ij->k' do not define a result"),
    (OPS["reshape"](None, (dim("n"), 2)), (f32["n", 3],), "3*n elements cannot be shown to fill shape (n, 2)"),
    (OPS["transpose"](None, (0,)), (f32[2, 3],), "axes (0,) are not an order of 2 axes"),
    (OPS["broadcast_to"](None, (2, dim("n"))), (f32["m"],), "cannot be shown to broadcast to shape (2, n)"),
    (OPS["concatenate"]((None, None), 0), (f32["n", 2], f32["n", 3]), "axis 1 has sizes 2 and 3, which differ"),
    (OPS["concatenate"]((), 0), (), "there is nothing to concatenate"),
    (OPS["pad"](None, None, ((0, -1),)), (f32[3], f32[()]), "needs one value, and two widths >= 0 for each axis, not ((0, -1),)"),
    (OPS["slice"](None, (1,), (5,), (1,)), (f32[5],), "5 places from 1 in steps of 1 are not inside axis 0 of size 5"),
    (OPS["slice"](None, (1,), (3,), (-1,)), (f32["n"],), "3 places from 1 in steps of -1 are not inside axis 0 of size n"),
    (OPS["slice"](None, (0,), (1,), (0,)), (f32[5],), "needs a start, a size and a step (not 0) for each of 1 axes"),
    (OPS["set_slice"](None, None, (0,), (2,), (1,)), (f32[5], f32[3]), "the value cannot be shown to broadcast to f32[2]"),
    (OPS["gather"](None, (None,), (0, 1), 0), (f32[2, 2], i64[3]), "axes (0, 1) and position 0 do not fit 1 index arrays"),
    (OPS["scatter_add"](None, None, (None,), (0,), 0), (f32["n"], f32["m"], i64[3]),
     "the value cannot be shown to broadcast to f32[3]"),
    (OPS["iota"](-1, "i64"), (), "a size cannot be -1"),
    (OPS["full"](None, (-1,)), (f32[()],), "needs a scalar, and sizes >= 0: (-1,)"),
    (OPS["nonzero"](None), (f32[()],), "a scalar has no indices"),
    (OPS["compress"](None, None, 0), (bool_["n"], f32["m"]),
     "condition and axis have sizes n and m, which cannot be shown equal"),
    (OPS["solve"](None, None), (f64["n", "n"], f64["m"]),
     "unknowns and rows of the right side are n and m, which cannot be shown equal"),
    (OPS["inv"](None), (f64["n", "m"],), "the matrix has rows and columns n and m, which cannot be shown equal"),
    (OPS["take"](None, None, 0, "ignore"), (f32[3], i64[2]), "there is no mode 'ignore'")]

DTYPES = [
    (OPS["add"](None, None), (f32["n"], f64["n"]), "operands have dtypes f32 and f64"),
    (OPS["subtract"](None, None), (bool_["n"], bool_["n"]), "not defined for bool"),
    (OPS["negative"](None), (bool_["n"],), "not defined for bool"),
    (OPS["divide"](None, None), (i64["n"], i64["n"]), "not defined for i64"),
    (OPS["exp"](None), (u8["n"],), "not defined for u8"),
    (OPS["invert"](None), (f32["n"],), "not defined for f32"),
    (OPS["sum"](None, (0,)), (bool_["n"],), "not defined for bool"),
    (OPS["any"](None, (0,)), (f32["n"],), "not defined for f32"),
    (OPS["cholesky"](None), (i64[2, 2],), "not defined for i64"),
    (OPS["where"](None, None, None), (f32[2], f32[2], f32[2]), "needs a bool condition and values of one dtype"),
    (OPS["cast"](None, "f16"), (f32[2],), "there is no dtype f16"),
    (OPS["cast"](None, "f32"), (c64[2],), "c64 is not converted to f32"),
    (OPS["less"](None, None), (c64[2], c64[2]), "not defined for c64"),
    (OPS["argmax"](None, 0), (c64[2],), "not defined for c64"),
    (OPS["real"](None), (f32[2],), "not defined for f32"),
    (OPS["complex"](None, None), (f32[2], f64[2]), "operands have dtypes f32 and f64"),
    (OPS["power"](None, None), (c64[2], c64[2]), "a complex power needs a whole constant exponent"),
    (OPS["complex_function"](None, "floor"), (c64[2],), "there is no function floor of complex numbers"),
    (OPS["take"](None, None, 0), (f32[2], f32[2]), "indices must be integers, not f32"),
    (OPS["compress"](None, None, 0), (i64[2], f32[2]), "the condition must be bool with one axis"),
    (OPS["exp"](None), (Tuple((f32[2],)),), "an operand is Tuple[f32[2]], not an array")]


@pytest.mark.parametrize("op, types, fact", SHAPES)
def test_shape_errors(op, types, fact):
    with pytest.raises(ShapeError) as found:
        op.infer(*types)
    assert f"): {fact}" in found.value.what and found.value.hint


@pytest.mark.parametrize("op, types, fact", DTYPES)
def test_dtype_errors(op, types, fact):
    with pytest.raises(DTypeError) as found:
        op.infer(*types)
    assert f"): {fact}" in found.value.what and found.value.hint


def test_an_error_shows_the_call_its_types_and_the_way_out():
    add = OPS["add"](Var("v3", f32["n", 4]), Var("bias", f32["m"]))
    with pytest.raises(ShapeError) as found:
        add.infer(f32["n", 4], f32["m"])
    assert found.value.what == ("add(v3, bias): axis -1 has sizes 4 and m, which cannot be shown equal\n"
                                "  where v3: f32[n, 4], bias: f32[m]")
    assert found.value.hint == "if they are equal at run time, say so with match_cast"
    assert "test_errors.py" in found.value.where


def test_numpy_agrees_that_an_empty_extreme_is_an_error():
    for name, axis in (("max", (0,)), ("min", (0,)), ("argmax", 0), ("argmin", 0)):
        op_ = OPS[name](None, axis)
        with pytest.raises(ShapeError) as ours:
            op_.infer(f32[0, 3])
        with pytest.raises(ValueError) as theirs:
            op_.numpy(np.zeros((0, 3), np.float32))
        assert str(theirs.value) in ours.value.what


def test_an_op_must_be_whole():
    with pytest.raises(TypeError, match="op Half lacks infer, numpy, lower"):
        @op
        class Half(Op):
            """Half of it."""

            x: Atom
    with pytest.raises(TypeError, match="two ops are called exp"):
        op(type("Exp", (OPS["exp"],), {"__doc__": "Another.", "__module__": __name__, "__annotations__": {}}))
    assert "half" not in OPS and OPS["exp"].__module__ == "minirelax.ops.transcendental"

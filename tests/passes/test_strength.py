"""Cheaper ops that give the same bits: each law is applied, no more than the law is, and the values are compared."""

import re

import numpy as np
import pytest

from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.types import NUMPY_DTYPES
from minirelax.passes.eliminate_dead_code import eliminate_dead_code
from minirelax.passes.simplify import simplify
from minirelax.passes.strength import STRENGTH_FUNCTIONS, STRENGTH_RULES

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of overflows and invalid values: they are meant

SPECIAL = {
    "f32": [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.5, -1.5, 3.4e38],
    "i8": [-128, -127, -9, -8, -1, 0, 1, 7, 8, 127],
    "u8": [0, 1, 2, 7, 8, 9, 100, 128, 254, 255],
    "bool": [False, True] * 5,
}


def simplified(dtype: str, *lines: str) -> list[str]:
    """The right-hand sides that are left of lines on x and y of a dtype; checks that they give the same bits."""
    name, type_ = lines[-1].split(" = ")[0].split(": ")
    body = "\n".join(f"        {line}" for line in lines)
    module = parse(f"def main(x: {dtype}[n], y: {dtype}[n]) -> {type_}:\n    with dataflow():\n{body}\n"
                   f"        output({name})\n    return {name}\n")
    left = eliminate_dead_code(simplify(module))
    values = np.array(SPECIAL[dtype], NUMPY_DTYPES[dtype])
    x, y = np.repeat(values, len(values)), np.tile(values, len(values))
    want, got = interpret(module, x, y), interpret(left, x, y)
    np.testing.assert_array_equal(got, want)
    assert got.dtype == want.dtype
    if dtype == "f32":
        np.testing.assert_array_equal(np.signbit(np.nan_to_num(got)), np.signbit(np.nan_to_num(want)))
    text = str(left["main"]).splitlines()
    return [bare(line.split(" = ")[1]) for line in text if " = " in line] or [text[-1].strip()]


def bare(text: str) -> str:
    """The text without the dtypes of constants."""
    return re.sub(r"\b(?:f32|i8|u8|bool)\(([^()]*)\)", r"\1", text)


@pytest.mark.parametrize(
    "dtype, expression, better",
    [
        ("f32", "power(x, 0.0)", "full(1.0, shape=(n,))"),
        ("f32", "power(x, -0.0)", "full(1.0, shape=(n,))"),
        ("i8", "power(x, i8(0))", "full(i8(1), shape=(n,))"),
        ("u8", "floor_divide(x, u8(16))", "right_shift(x, u8(4))"),
        ("i8", "floor_divide(x, i8(4))", "right_shift(x, i8(2))"),
        ("i8", "floor_divide(x, i8(1))", "return x"),
        ("u8", "remainder(x, u8(8))", "bitwise_and(x, u8(7))"),
        ("i8", "remainder(x, i8(64))", "bitwise_and(x, i8(63))"),
        ("i8", "remainder(x, i8(1))", "full(i8(0), shape=(n,))"),
        ("i8", "subtract(x, x)", "full(i8(0), shape=(n,))"),
        ("u8", "bitwise_xor(x, x)", "full(u8(0), shape=(n,))"),
        ("bool", "bitwise_xor(x, x)", "full(False, shape=(n,))"),
        ("u8", "bitwise_and(x, x)", "return x"),
        ("bool", "bitwise_or(x, x)", "return x"),
        ("bool", "where(bool(True), x, y)", "return x"),
        ("f32", "where(bool(False), x, y)", "return y"),
        ("f32", "where(bool(True), 2.0, y)", "broadcast_to(2.0, shape=(n,))"),
    ],
)
def test_is_cheaper(dtype, expression, better):
    assert simplified(dtype, f"v0: {dtype}[n] = {expression}") == [bare(better)]


@pytest.mark.parametrize(
    "dtype, expression, better",
    [
        ("f32", "logical_and(x, x)", 'cast(x, dtype="bool")'),
        ("i8", "logical_or(x, x)", 'cast(x, dtype="bool")'),
        ("f32", "logical_xor(x, x)", "full(False, shape=(n,))"),
        ("bool", "logical_and(x, x)", "return x"),
    ],
)
def test_a_truth_value_of_itself(dtype, expression, better):
    assert simplified(dtype, f"v0: bool[n] = {expression}") == [bare(better)]


@pytest.mark.parametrize(
    "dtype, expression",
    [
        ("f32", "subtract(x, x)"),
        ("f32", "power(x, -1.0)"),
        ("f32", "floor_divide(x, 4.0)"),
        ("f32", "floor_divide(x, 1.0)"),
        ("f32", "remainder(x, 4.0)"),
        ("i8", "floor_divide(x, i8(-4))"),
        ("i8", "floor_divide(x, i8(6))"),
        ("i8", "floor_divide(x, i8(0))"),
        ("i8", "remainder(x, i8(-4))"),
        ("u8", "remainder(x, u8(0))"),
        ("i8", "fmod(x, i8(4))"),
    ],
)
def test_is_no_law(dtype, expression):
    assert simplified(dtype, f"v0: {dtype}[n] = {expression}") == [bare(expression)]


@pytest.mark.parametrize(
    "first, second",
    [
        ("subtract(x, y)", "negative(v0)"),
        ("log(x)", "exp(v0)"),
        ("sqrt(x)", "multiply(v0, v0)"),
        ("add(x, 0.1)", "add(v0, 0.2)"),
        ("multiply(x, 0.1)", "divide(v0, 0.1)"),
        ("maximum(x, 1.0)", "minimum(v0, 2.0)"),
        ("maximum(x, 0.0)", "maximum(v0, -0.0)"),
        ("maximum(x, 1.0)", "maximum(v0, nan)"),
        ("maximum(x, nan)", "maximum(v0, 1.0)"),
        ("maximum(x, y)", "maximum(v0, 1.0)"),
    ],
)
def test_two_that_stay(first, second):
    assert simplified("f32", f"v0: f32[n] = {first}", f"v1: f32[n] = {second}") == [first, second]


@pytest.mark.parametrize(
    "first, second, left",
    [
        ("maximum(x, 1.0)", "maximum(v0, 2.0)", "maximum(x, 2.0)"),
        ("maximum(x, 2.0)", "maximum(v0, 1.0)", "maximum(x, 2.0)"),
        ("maximum(2.0, x)", "maximum(v0, 2.0)", "maximum(2.0, x)"),
        ("maximum(x, -1.0)", "maximum(-0.0, v0)", "maximum(-0.0, x)"),
        ("minimum(x, inf)", "minimum(v0, 0.0)", "minimum(x, 0.0)"),
        ("minimum(-3.0, x)", "minimum(v0, 0.0)", "minimum(-3.0, x)"),
        ("square(x)", "absolute(v0)", "square(x)"),
    ],
)
def test_two_become_one(first, second, left):
    assert simplified("f32", f"v0: f32[n] = {first}", f"v1: f32[n] = {second}") == [left]


def test_the_square_of_a_signed_integer_may_be_negative():
    lines = simplified("i8", "v0: i8[n] = square(x)", "v1: i8[n] = absolute(v0)")
    assert lines == ["square(x)", "absolute(v0)"]


def test_a_choice_by_an_array_of_one_value_is_decided():
    lines = simplified("f32", "v0: bool[n] = full(bool(True), shape=(n,))", "v1: f32[n] = where(v0, x, y)")
    assert lines == ["return x"]


def test_rules_have_different_names():
    assert len({r.name for r in STRENGTH_RULES} | {f.__name__ for f in STRENGTH_FUNCTIONS}) == len(STRENGTH_RULES) + 2

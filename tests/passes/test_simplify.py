"""Each law is applied, and what is no law in IEEE arithmetic is not."""

import pytest

from minirelax.ir.parser import parse
from minirelax.passes.eliminate_dead_code import eliminate_dead_code
from minirelax.passes.simplify import RULES, holds, simplify


def simplified(*lines: str, params: str = "x: f32[n, m], y: f32[n, m], c: bool[n, m]", result: str = "f32[n, m]") -> list[str]:
    """The right-hand sides that are left of a program, and its result last."""
    name = lines[-1].split(":")[0]
    body = "\n".join(f"        {line}" for line in lines)
    module = parse(f"def main({params}) -> {result}:\n    with dataflow():\n{body}\n        output({name})\n    return {name}\n")
    main = eliminate_dead_code(simplify(module))["main"]
    text = str(main).splitlines()
    return [line.split(" = ")[1] for line in text if " = " in line] + [text[-1].strip()]


@pytest.mark.parametrize(
    "expression",
    [
        "multiply(x, 1.0)",
        "multiply(1.0, x)",
        "divide(x, 1.0)",
        "power(x, 1.0)",
        "subtract(x, 0.0)",
        "add(x, -0.0)",
        "maximum(x, x)",
        "minimum(x, x)",
        "where(c, x, x)",
        "transpose(x, axes=(0, 1))",
        "reshape(x, shape=(n, m))",
        "broadcast_to(x, shape=(n, m))",
        'cast(x, dtype="f32")',
        "slice(x, starts=(0, 0), sizes=(n, m), steps=(1, 1))",
        "concatenate((x,), axis=0)",
        "sum(x, axes=(), keepdims=False)",
    ],
)
def test_is_the_operand(expression):
    assert simplified(f"v0: f32[n, m] = {expression}") == ["return x"]


@pytest.mark.parametrize(
    "expression, better",
    [("power(x, 2.0)", "square(x)"), ("divide(x, 8.0)", "multiply(x, 0.125)"), ("divide(x, -0.5)", "multiply(x, -2.0)")],
)
def test_is_cheaper(expression, better):
    assert simplified(f"v0: f32[n, m] = {expression}") == [better, "return v0"]


@pytest.mark.parametrize(
    "expression",
    [
        "add(x, 0.0)",
        "subtract(x, -0.0)",
        "power(x, 0.5)",
        "divide(x, 3.0)",
        "divide(x, 0.0)",
        "divide(x, inf)",
        "multiply(x, 0.0)",
        "subtract(x, x)",
        "divide(x, 1e-45)",
        "maximum(x, y)",
        "where(c, x, y)",
        "slice(x, starts=(0, 0), sizes=(n, m), steps=(1, -1))",
    ],
)
def test_is_no_law(expression):
    assert simplified(f"v0: f32[n, m] = {expression}") == [expression, "return v0"]


@pytest.mark.parametrize(
    "first, second, left",
    [
        ("f32[n, m] = negative(x)", "f32[n, m] = negative(v0)", ["return x"]),
        ("f32[n, m] = negative(y)", "f32[n, m] = add(x, v0)", ["subtract(x, y)", "return v1"]),
        ("f32[n, m] = negative(y)", "f32[n, m] = subtract(x, v0)", ["add(x, y)", "return v1"]),
        ("f32[n, m] = negative(y)", "f32[n, m] = absolute(v0)", ["absolute(y)", "return v1"]),
        ("f32[n, m] = absolute(y)", "f32[n, m] = absolute(v0)", ["absolute(y)", "return v1"]),
        ("f32[m, n] = transpose(x, axes=(1, 0))", "f32[n, m] = transpose(v0, axes=(1, 0))", ["return x"]),
        ("f32[m*n] = reshape(x, shape=(m*n,))", "f32[n, m] = reshape(v0, shape=(n, m))", ["return x"]),
        ('f64[n, m] = cast(x, dtype="f64")', 'f32[n, m] = cast(v0, dtype="f32")', ["return x"]),
    ],
)
def test_two_become_fewer(first, second, left):
    assert simplified(f"v0: {first}", f"v1: {second}") == left


def test_the_negative_of_an_unsigned_number_has_another_absolute_value():
    lines = simplified("v0: u8[n] = negative(x)", "v1: u8[n] = absolute(v0)", params="x: u8[n]", result="u8[n]")
    assert lines == ["negative(x)", "absolute(v0)", "return v1"]


def test_a_lossy_cast_stays():
    lines = simplified('v0: i32[n, m] = cast(x, dtype="i32")', 'v1: f32[n, m] = cast(v0, dtype="f32")')
    assert lines == ['cast(x, dtype="i32")', 'cast(v0, dtype="f32")', "return v1"]


def test_an_op_that_broadcasts_reads_what_was_broadcast():
    assert simplified(
        "v0: f32[n, m] = broadcast_to(z, shape=(n, m))", "v1: f32[n, m] = add(x, v0)", params="x: f32[n, m], z: f32[m]"
    ) == ["add(x, z)", "return v1"]
    assert simplified("v0: f32[n, m] = full(f32(2.0), shape=(n, m))", "v1: f32[n, m] = add(x, v0)") == [
        "add(x, 2.0)",
        "return v1",
    ]


def test_a_broadcast_that_gives_the_shape_stays():
    lines = simplified("v0: f32[n, m] = broadcast_to(z, shape=(n, m))", "v1: f32[n, m] = exp(v0)", params="z: f32[m], x: f32[n]")
    assert lines == ["broadcast_to(z, shape=(n, m))", "exp(v0)", "return v1"]


def test_a_result_keeps_its_shape():
    """x*1 is not x if the 1 makes it larger."""
    lines = simplified("v0: f32[n, m] = where(c, z, z)", params="c: bool[n, m], z: f32[m]")
    assert lines == ["where(c, z, z)", "return v0"]


def test_it_is_done_after_one_walk():
    module = parse("""
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = negative(x)
        v1: f32[n] = negative(v0)
        v2: f32[n] = power(v1, 2.0)
        v3: f32[n] = divide(v2, 4.0)
        output(v3)
    return v3""")
    assert simplify(simplify(module)) == simplify(module)


def test_which_dtypes_hold_which():
    assert holds("f64", "f32") and holds("f64", "i32") and holds("f32", "i16") and holds("i64", "u32") and holds("i8", "bool")
    assert not (holds("f64", "i64") or holds("f32", "i32") or holds("i64", "u64") or holds("u64", "i8") or holds("f32", "f64"))


def test_rules_have_different_names():
    assert len({r.name for r in RULES}) == len(RULES)

"""Scalars of the loop level: kept once, rewritten, pickled."""
from __future__ import annotations

import gc
import pickle
import weakref

import pytest

from minirelax.ir import scalar as module
from minirelax.ir.dim import dim, symbol
from minirelax.ir.scalar import (
    apply,
    as_index,
    cast,
    children,
    index_scalar,
    literal,
    load,
    loads,
    rename_sizes,
    simplify_indices,
    size_value,
    substitute_axes,
    transform,
    walk,
)

i, j, n = map(symbol, "ijn")
x, y = load("x", (i, j), "f32"), load("y", (j,), "f32")


def test_equal_scalars_are_one():
    assert apply("add", x, y) is apply("add", x, y) and load("x", (i, j), "f32") is x and size_value(n + 1) is size_value(1 + n)
    assert apply("add", x, y) is not apply("add", y, x) and literal(1, "i64") is not literal(1, "i32")
    assert literal(0.0, "f32") is not literal(-0.0, "f32") and literal(float("nan"), "f32") is literal(float("nan"), "f32")
    assert literal(1, "f32") is literal(1.0, "f32") and size_value(3) is literal(3, "i64")


def test_literals_are_rounded_and_wrapped_as_numpy_does():
    assert literal(0.1, "f32").value == 0.10000000149011612
    assert literal(300, "u8").value == 44 and literal(2, "bool").value is True


def test_scalars_that_nobody_holds_are_forgotten():
    reference, before = weakref.ref(apply("exp", load("forgotten", (i,), "f32"))), len(module._interned)
    gc.collect()
    assert reference() is None and len(module._interned) <= before


def test_dtypes_follow_from_functions():
    assert apply("less", x, y).dtype == apply("isnan", x).dtype == "bool"
    assert apply("where", apply("less", x, y), x, y).dtype == "f32"
    assert cast(x, "f32") is x and cast(x, "f64").dtype == "f64" and cast(literal(1.5, "f32"), "i64") is literal(1, "i64")


def test_indices_and_scalars():
    assert as_index(size_value(n)) == n and as_index(literal(3, "i64")) == 3 and as_index(cast(size_value(n), "i32")) == n
    assert as_index(load("k", (i,), "i32")) is cast(load("k", (i,), "i32"), "i64") and index_scalar(n) is size_value(n)


def test_walk_sees_everything_once_operands_first():
    e = apply("exp", x)
    total = apply("add", e, apply("multiply", e, load("z", (cast(y, "i64"), 0), "f32")))
    order = list(walk(total))
    assert len(order) == len(set(map(id, order))) and order[-1] is total
    assert all(order.index(c) < order.index(s) for s in order for c in children(s))
    assert loads(total) == (x, y, load("z", (cast(y, "i64"), 0), "f32"))


def test_substitution_of_axes():
    e = apply("add", x, load("z", (i * 4 + j,), "f32"))
    assert substitute_axes(e, {"i": j + 1}) is apply("add", load("x", (j + 1, j), "f32"), load("z", (j * 5 + 4,), "f32"))
    chosen = load("k", (j,), "i64")
    inside = apply("add", apply("multiply", literal(4, "i64"), chosen), size_value(j))
    assert substitute_axes(e, {"i": chosen}) is apply("add", load("x", (chosen, j), "f32"), load("z", (inside,), "f32"))
    assert substitute_axes(e, {"q": chosen}) is e
    assert rename_sizes(size_value(n * i), {"n": 2 * n}) is size_value(2 * n * i)


def test_substitution_of_data_into_every_kind_of_polynomial():
    k = load("k", (), "i64")
    found = substitute_axes(load("x", (dim("min(i, 3) + i//2 - i % n"),), "f32"), {"i": k})
    assert str(found.indices[0]) == "-1 * (k[()] % n) + k[()] // 2 + minimum(k[()], 3)"


def test_simplification_and_transformation():
    e = load("x", ((i * 32 + j) // 32,), "f32")
    assert simplify_indices(e, {"j": (0, 31)}) is load("x", (i,), "f32")
    doubled = transform(apply("add", x, y), lambda s: apply("multiply", s, literal(2.0, "f32")) if s is x else s)
    assert doubled is apply("add", apply("multiply", x, literal(2.0, "f32")), y)


def test_pickled_scalars_are_interned_again():
    e = apply("divide", apply("exp", x), apply("exp", x))
    e = apply("where", apply("less", size_value(i), size_value(n)), e, load("z", (cast(y, "i64"), j, 3), "f32"))
    assert pickle.loads(pickle.dumps(e)) is e


def test_deep_scalars_are_walked_printed_and_pickled_without_recursion():
    e = x
    for _ in range(3000):
        e = apply("add", e, y)
    assert len(list(walk(e))) == 3002 and pickle.loads(pickle.dumps(e)) is e
    assert max(map(len, str(e).splitlines())) < 500


@pytest.mark.parametrize("scalar, text", [
    (apply("subtract", x, apply("subtract", y, x)), "x[i, j] - (y[j] - x[i, j])"),
    (apply("subtract", apply("subtract", x, y), x), "x[i, j] - y[j] - x[i, j]"),
    (apply("power", apply("negative", x), literal(-2.0, "f32")), "(-x[i, j]) ** -2.0"),
    (apply("negative", apply("power", x, apply("power", x, y))), "-x[i, j] ** x[i, j] ** y[j]"),
    (apply("power", apply("power", x, y), y), "(x[i, j] ** y[j]) ** y[j]"),
    (apply("multiply", literal(-1.0, "f32"), x), "-1.0 * x[i, j]"),
    (apply("less", apply("add", x, y), literal(float("inf"), "f32")), "x[i, j] + y[j] < inf"),
    (apply("equal", apply("less", x, y), literal(True, "bool")), "(x[i, j] < y[j]) == True"),
    (apply("add", size_value(n), size_value(i)), "size(n) + size(i)"),
    (apply("add", size_value(n + i), literal(1, "i64")), "size(i + n) + 1"),
    (apply("negative", size_value(n)), "-size(n)"), (size_value(-n), "-n"),
    (apply("less", size_value(n + 1), size_value(i)), "n + 1 < i"),
    (apply("multiply", cast(size_value(n - 1), "f32"), x), "f32(n - 1) * x[i, j]"),
    (apply("multiply", size_value(n - 1), cast(x, "i64")), "(n - 1) * i64(x[i, j])"),
    (apply("where", apply("isnan", x), literal(0.1, "f32"), x), "where(isnan(x[i, j]), 0.1, x[i, j])"),
    (apply("where", apply("isnan", x), literal(1.0, "f32"), literal(0.0, "f32")), "where(isnan(x[i, j]), f32(1.0), f32(0.0))"),
    (apply("add", literal(1.0, "f64"), cast(x, "f64")), "1.0 + f64(x[i, j])"),
    (apply("divide", x, y, dtype="f64"), "divide(x[i, j], y[j], dtype=f64)"),
    (apply("cast", literal(0.5, "f64"), dtype="f32"), "cast(f64(0.5), dtype=f32)"),
    (load("x", (literal(1, "i64"), size_value(n)), "f32"), "x[i64(1), size(n)]"), (load("z", (), "f32"), "z[()]"),
    (apply("invert", apply("bitwise_or", load("a", (), "u8"), literal(3, "u8"))), "~(a[()] | 3)"),
    (literal(0.1, "f32"), "f32(0.1)"), (literal(float("-inf"), "f64"), "f64(-inf)"), (literal(True, "bool"), "bool(True)"),
    (literal(16777217.0, "f64"), "f64(16777217.0)"), (literal(3.4028234663852886e38, "f32"), "f32(3.4028235e+38)")])
def test_text(scalar, text):
    assert str(scalar) == text

"""bind_shapes: one slot for each expression, two rounds of checks, checks of results; as text, and when it runs."""

from __future__ import annotations

import numpy as np
import pytest

from minirelax.errors import ShapeError
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify
from minirelax.passes.bind_shapes import bind_shapes, heap_slots


def bound(text: str) -> str:
    """The text after the pass, which verifies and reads back."""
    after = bind_shapes(parse(text))
    verify(after)
    assert parse(str(after)) == after
    return str(after)


def f32(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


PAIR = """
def f(x: Tuple[f32[m, n + 1], f32[n, 2]]) -> f32[n, 2]:
    v0: f32[n, 2] = x[1]
    return v0"""
SHAPES = """
def f(x: f32[2*n, m + 1], s: Shape([n, m]), t: Shape(ndim=1)) -> Shape([n, m]):
    v0: Shape([k]) = match_cast(t, Shape([k]))
    v1: f32[k + m] = alloc_tensor()
    v2: f32[m + k, 1] = view(v1)
    return s"""
RESULTS = """
def f(x: f32[n], y: f32[m], s: Shape([k])) -> Tuple[f32[n], f32[2*k], Shape([n]), f32[_]]:
    v0: Tuple[f32[m], f32[m], Shape([k]), f32[n]] = (y, y, s, x)
    return v0"""


def test_fields_of_a_tuple_in_two_rounds():
    """Digest 1.12: the second field says what n is, of which the first one needs n + 1."""
    assert (
        bound(PAIR)
        == """\
def f(x: Tuple[f32[m, n + 1], f32[n, 2]]) -> f32[n, 2]:
    v1: f32[m, n + 1] = x[0]
    v2: f32[n, 2] = x[1]
    match_shape(v1, (m, _), binds=("m",))
    match_shape(v2, (n, 2), binds=("n",))
    heap[2] = n + 1
    match_shape(v1, (m, n + 1))
    v0: f32[n, 2] = x[1]
    return v0"""
    )
    module = bind_shapes(parse(PAIR))
    assert interpret(module, (f32(5, 4), f32(3, 2))).shape == (3, 2)
    with pytest.raises(ShapeError, match=r"axis 1 is 3, not n \+ 1 = 4 \(n = 3 is the size of axis 0 of x\[1\]\)"):
        interpret(module, (f32(5, 3), f32(3, 2)))


def test_shapes_bind_sizes_and_each_expression_has_one_slot():
    assert (
        bound(SHAPES)
        == """\
def f(x: f32[2*n, m + 1], s: Shape([n, m]), t: Shape(ndim=1)) -> Shape([n, m]):
    match_shape(s, (n, m), binds=("n", "m"))
    heap[2] = 2*n
    heap[3] = m + 1
    match_shape(x, (2*n, m + 1))
    v0: Shape([k]) = match_cast(t, Shape([k]))
    heap[5] = k + m
    v1: f32[k + m] = alloc_tensor()
    v2: f32[k + m, 1] = view(v1)
    return s"""
    )
    slots = heap_slots(bind_shapes(parse(SHAPES))["f"])
    assert {str(d): slot for d, slot in slots.items()} == {"n": 0, "m": 1, "2*n": 2, "m + 1": 3, "k": 4, "k + m": 5}
    assert interpret(bind_shapes(parse(SHAPES)), f32(4, 4), (2, 3), (7,)) == (2, 3)


def test_results_are_compared_with_what_is_declared():
    assert (
        bound(RESULTS).split(")\n", 1)[1]
        == """\
    match_shape(y, (m,), binds=("m",))
    match_shape(s, (k,), binds=("k",))
    heap[3] = 2*k
    v0: Tuple[f32[m], f32[m], Shape([k]), f32[n]] = (y, y, s, x)
    v1: f32[m] = v0[0]
    match_shape(v1, (n,))
    v2: f32[m] = v0[1]
    match_shape(v2, (2*k,))
    v3: Shape([k]) = v0[2]
    match_shape(v3, (n,))
    return v0"""
    )
    module = bind_shapes(parse(RESULTS))
    assert len(interpret(module, f32(0), f32(0), (0,))) == 4
    with pytest.raises(ShapeError, match=r"the sizes of v2: .*: axis 0 is 2, not 2\*k = 4 \(k = 2 is entry 0 of s\)"):
        interpret(module, f32(2), f32(2), (2,))


def test_what_is_equal_or_unknown_is_not_compared():
    text = """
def f(x: f32[n], y: Object) -> Tuple[f32[_], Object]:
    v0: Tuple[f32[n], Object] = (x, y)
    return v0"""
    assert "heap" not in bound(text) and bound(text).count("match_shape") == 1

"""Nested containers come apart and go together again; functions take and return them."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minirelax.errors import ArgumentError
from minirelax.frontend.tree import LEAF, flatten
from minirelax.jit import jit

Pair = namedtuple("Pair", "first second")


@dataclass
class Layer:
    weight: np.ndarray
    bias: np.ndarray
    name: str = "layer"
    notes: list = field(default_factory=list)


nested = st.recursive(
    st.integers() | st.none() | st.text(max_size=2),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.builds(Pair, inner, inner),
        st.builds(Layer, inner, inner),
    ),
    max_leaves=8,
)


@given(nested)
def test_flatten_then_unflatten(value):
    leaves, tree = flatten(value)
    assert tree.unflatten(leaves) == value
    assert len(tree.paths("x")) == len(leaves)
    assert hash(tree) == hash(flatten(value)[1]) and tree == flatten(value)[1]


def test_a_leaf():
    assert flatten(3) == ([3], LEAF)


def test_paths_are_python():
    value = {"a": [1, (2, Pair(3, Layer(4, 5)))]}
    leaves, tree = flatten(value)
    assert [eval(path, {"value": value}) for path in tree.paths("value")] == leaves
    assert tree.paths("value")[3] == "value['a'][1][1].second.weight"


def test_functions_of_containers():
    @jit(target="interpret")
    def f(p, layers, pair):
        h = layers[0].weight @ p["x"] + layers[0].bias
        return {
            "h": h,
            "all": [h, None, (pair.first * 2, "done", 3)],
            "pair": Pair(h, pair),
            "layer": Layer(h, h, layers[0].name),
        }

    x, w, b = np.ones(3), np.ones((2, 3)), np.ones(2)
    got = f({"x": x}, [Layer(w, b, "first")], Pair(x, b))
    assert got["all"][1] is None and got["all"][2][1:] == ("done", 3)
    np.testing.assert_array_equal(got["h"], [4, 4])
    assert got["all"][0] is got["h"] and got["layer"].name == "first" and isinstance(got["pair"], Pair)
    np.testing.assert_array_equal(got["pair"].second.first, x)


def test_taking_the_leaves_of_a_known_structure():
    _, tree = flatten({"a": 1, "b": [Pair(2, None), ()]})
    assert tree.take({"b": [Pair(5, None), ()], "a": 4}) == [4, 5]
    others = {"a": 1}, {"a": 1, "b": [Pair(2, 3), ()]}, {"a": 1, "b": (Pair(2, None), ())}, {"a": 1, "c": 2}, 1, None
    for other in (*others, {"a": 1, "b": [Pair(2, None), (), 3]}, {"a": (), "b": [Pair(2, None), ()]}):
        assert tree.take(other) is None
    assert str(tree) == "{'a': *, 'b': [Pair(first=*, second=None), ()]}"


def test_another_structure_is_another_program():
    f = jit(lambda xs: sum(x.sum() for x in xs), target="interpret")
    assert f([np.ones(2)]) == 2 and f([np.ones(2), np.ones(3)]) == 5 and f((np.ones(2),)) == 2
    assert len(f.compilations) == 3


def test_an_empty_result():
    assert jit(lambda x: None, target="interpret")(np.ones(2)) is None
    assert jit(lambda x: [], target="interpret")(np.ones(2)) == []
    assert jit(lambda: 5, target="interpret")() == 5


def test_objects_are_not_arrays():
    with pytest.raises(ArgumentError, match=r"argument p\['x'\]: 'object' is not an array type"):
        jit(lambda p: p, target="interpret")({"x": object()})

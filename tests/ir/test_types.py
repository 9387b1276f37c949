"""Types: text, dtypes, substitution."""
from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings

from minirelax.errors import DTypeError, ShapeError
from minirelax.ir.dim import dim
from minirelax.ir.reader import parse_type
from minirelax.ir.types import (
    DTYPES,
    Callable,
    Object,
    Shape,
    Tensor,
    Tuple,
    as_type,
    bool_,
    dtype_name,
    f32,
    i64,
    itemsize,
    substitute_type,
    symbols,
)
from tests.types_drawn import TYPES

TEXTS = ["f32[n, 784]", "f32[()]", "f32[...]", "f32[_]", "bool[n + 1, _]", "u8[2*n + m//4]", "i64[min(n, 512)]", "Object",
         "Tuple[()]", "Tuple[f32[n], Tuple[i64[()]]]", "Shape([n, 4])", "Shape([])", "Shape(ndim=2)", "Shape()",
         "Tensor[n, 4]", "Tensor[...]", "Tensor[()]",
         "Storage[4*n]", "Callable[..., Object]", "Callable[[f32[n], Object], f32[n]]", "Callable[[], Tuple[f32[n], f32[m]]]"]


@pytest.mark.parametrize("text", TEXTS)
def test_text_reads_back(text):
    assert str(parse_type(text)) == repr(parse_type(text)) == text
    assert pickle.loads(pickle.dumps(parse_type(text))) == parse_type(text)


@pytest.mark.parametrize("text, what", [
    ("f16[n]", "not a type: f16[n]"), ("f32", "not a type: f32"), ("f32[n/2]", "not a size: n / 2"),
    ("Shape(2)", "not a type: Shape(2)"), ("f32[n", "'[' was never closed"),
    ("Tuple[f32]", "not a type: f32"), ("", "invalid syntax"),
    ("Callable[f32[n], f32[n]]", "not a type: Callable[f32[n], f32[n]]"),
    ("Callable[...]", "not a type: Callable[...]"), ("Shape(ndim=n)", "not a type: Shape(ndim=n)"),
    ("Shape(ndim=True)", "not a type: Shape(ndim=True)"), ("Shape(ndim=None)", "not a type: Shape(ndim=None)"),
    *((text, "_ is a size without a name: it is the whole size of an axis, or is left out: f32[_, 4], Shape(ndim=2)")
      for text in ("f32[_ + 1]", "Shape([n, _])", "Storage[_]"))])
def test_text_that_is_no_type(text, what):
    with pytest.raises(SyntaxError) as e:
        parse_type(text)
    assert e.value.what == what and "f32[n, 784]" in e.value.hint


@settings(max_examples=100, deadline=None)
@given(TYPES)
def test_drawn_text_reads_back(type_):
    assert parse_type(str(type_)) == type_ and hash(parse_type(str(type_))) == hash(type_)
    assert pickle.loads(pickle.dumps(type_)) == type_ and substitute_type(type_, {}) == type_


@pytest.mark.parametrize("annotation, text", [
    (Shape(["n", "2*n"]), "Shape([n, 2*n])"), (Shape(("n", 4)), "Shape([n, 4])"), (Shape([]), "Shape([])"),
    (Shape(ndim=2), "Shape(ndim=2)"), (Shape, "Shape()"), (Object, "Object"), (f32, "f32[()]"),
    (Tensor["n", "_"], "Tensor[n, _]"),
    (Tensor, "Tensor[...]"), (Tensor[()], "Tensor[()]"), (Tuple[f32["n"], Object, Shape], "Tuple[f32[n], Object, Shape()]"),
    (Tuple[f32], "Tuple[f32[()]]"), (Tuple[()], "Tuple[()]"), (Callable[..., Object], "Callable[..., Object]"),
    (Callable([Shape(["n", "m"])], f32["m*n"]), "Callable[[Shape([n, m])], f32[m*n]]"),
    (Callable[[f32["n"], Callable[[], i64]], Tuple[f32["n"], Object]],
     "Callable[[f32[n], Callable[[], i64[()]]], Tuple[f32[n], Object]]"), (Callable(..., f32["n"]), "Callable[..., f32[n]]")])
def test_python_annotations_and_text_are_spelled_alike(annotation, text):
    assert str(as_type(annotation)) == text and as_type(annotation) == parse_type(text)
    assert hash(as_type(annotation)) == hash(parse_type(text))


@pytest.mark.parametrize("make, error, what", [
    (lambda: Shape(["n", "_"]), ShapeError, "only some entries of a Shape are known"),
    (lambda: Shape([4], 2), ShapeError, "a Shape has 1 entries and ndim=2"),
    (lambda: Tuple[f32["n"], int], DTypeError, "not a type: <class 'int'>"),
    (lambda: Callable[[f32["n"]], "f32"], DTypeError, "not a type: 'f32'"), (lambda: as_type(Tuple), DTypeError, "not a type: "),
    (lambda: Tensor["n"].numpy_dtype, DTypeError, "the dtype of Tensor[n] is known only at run time")])
def test_annotations_that_are_no_types(make, error, what):
    with pytest.raises(error) as e:
        make()
    assert what in e.value.what and e.value.hint


def test_a_shapes_rank_is_known_with_its_entries():
    assert Shape((4, dim("n"))).ndim == 2 and Shape(()).ndim == 0 and Shape().ndim is None and Shape((4,), 1) == Shape([4])


def test_annotations_build_types():
    assert f32["n", 784] == Tensor("f32", (dim("n"), 784)) and f32[dim("n"), "_"] == Tensor("f32", (dim("n"), None))
    assert f32[...].ndim is None and f32[()].ndim == 0 and bool_["n"].numpy_dtype == np.bool_
    assert hash(f32["n"]) == hash(f32["n"]) and f32["n"] != i64["n"] and repr(f32) == "f32"


def test_dtype_names_are_numpys_dtypes():
    for name, dtype in DTYPES.items():
        assert dtype_name(dtype) == dtype_name(np.zeros(1, dtype_name(dtype) and Tensor(name, ()).numpy_dtype).dtype) == name
        assert itemsize(name) == Tensor(name, ()).numpy_dtype.itemsize
    assert dtype_name(np.dtype(">f4")) == "f32" and dtype_name(np.float16) is None


def test_symbols_and_substitution():
    t = parse_type("Tuple[f32[n + m, _], Shape([k]), Storage[4*j]]")
    assert symbols(t) == {"n", "m", "k", "j"}
    values = {"n": 2, "m": dim("n"), "k": 3, "j": 1}
    assert str(substitute_type(t, values)) == "Tuple[f32[n + 2, _], Shape([3]), Storage[4]]"
    assert substitute_type(f32[...], values) == f32[...] and symbols(f32[...]) == frozenset()


def test_a_callables_sizes_are_its_own():
    t = parse_type("Tuple[Callable[[f32[n]], f32[2*n]], f32[n]]")
    assert symbols(t) == {"n"} and symbols(t.items[0]) == frozenset()
    assert str(substitute_type(t, {"n": 3})) == "Tuple[Callable[[f32[n]], f32[2*n]], f32[3]]"

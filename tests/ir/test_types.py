"""Types: text, dtypes, substitution."""
from __future__ import annotations

import pickle

import numpy as np
import pytest

from minirelax.ir.dim import dim
from minirelax.ir.reader import parse_type
from minirelax.ir.types import DTYPES, Tensor, bool_, dtype_name, f32, i64, itemsize, substitute_type, symbols

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
    ("Tuple[f32]", "not a type: f32"), ("", "invalid syntax")])
def test_text_that_is_no_type(text, what):
    with pytest.raises(SyntaxError) as e:
        parse_type(text)
    assert e.value.what == what and "f32[n, 784]" in e.value.hint


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

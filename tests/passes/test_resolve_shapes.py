"""resolve_shapes: shape graphs as importers write them, what only the run knows, and what must not change."""

from __future__ import annotations

import numpy as np
import pytest

from minirelax.errors import ShapeError
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify
from minirelax.passes.resolve_shapes import resolve_shapes
from minirelax.pipeline import GRAPH_PASSES, run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
ONE, TWO = "starts=({},), sizes=(1,), steps=(1,)", "starts=({},), sizes=(2,), steps=(1,)"


def resolved(text: str):
    """The module after the pass, verified, and after all passes on graphs."""
    module = parse(text)
    after = resolve_shapes(module)
    verify(after)
    return module, after, run(module, GRAPH_PASSES)[-1].module


def names(module) -> list[str]:
    """What the bindings of the entry do."""
    return [type(b.value).__name__ for b in module.functions[0].bindings]


def body(*lines: str, params: str = "x: f32[n, m, 4]", result: str = "v9", type_: str = "f32[_, _]") -> str:
    text = "\n".join(f"        {line}" for line in (*lines, f"output({result})"))
    return f"def main({params}) -> {type_}:\n    with dataflow():\n{text}\n    return {result}"


FLATTEN_LAST = body(  # ONNX: Reshape(x, Concat(Shape(x)[0:1], [12])), TVM #19971
    "v0: Shape([n, m, 4]) = shape_of(x)",
    "v1: i64[3] = shape_to_tensor(v0)",
    f"v2: i64[1] = slice(v1, {ONE.format(0)})",
    "v3: i64[2] = concatenate((v2, c0), axis=0)",
    "v4: Shape(ndim=2) = tensor_to_shape(v3)",
    "v9: f32[_, _] = reshape_to(x, v4)",
)
FLATTEN_LAST = "c0: i64[1] = constant([12])\n\n" + FLATTEN_LAST
SQUARES = body(  # arithmetic on sizes: (n*m, 4*n//n) and back
    "v0: Shape([n, m, 4]) = shape_of(x)",
    "v1: i64[3] = shape_to_tensor(v0)",
    f"v2: i64[2] = slice(v1, {TWO.format(0)})",
    "v3: i64[1] = prod(v2, axes=(0,), keepdims=True)",
    f"v4: i64[1] = slice(v1, {ONE.format(2)})",
    "v5: i64[1] = multiply(v4, 2)",
    "v6: i64[1] = floor_divide(v5, 2)",
    "v7: i64[2] = concatenate((v3, v6), axis=0)",
    "v8: Shape(ndim=2) = tensor_to_shape(v7)",
    "v9: f32[_, _] = reshape_to(x, v8)",
)
TAKEN = body(  # the sizes of another array: Reshape(y, Shape(x)[[2, 0]]), TVM #17892
    "v0: Shape([n, m, 4]) = shape_of(x)",
    "v1: i64[3] = shape_to_tensor(v0)",
    "v2: i64[2] = take(v1, c0, axis=0)",
    "v3: Shape(ndim=2) = tensor_to_shape(v2)",
    "v9: f32[_, _] = reshape_to(y, v3)",
    params="x: f32[n, m, 4], y: f32[k]",
)
TAKEN = "c0: i64[2] = constant([2, 0])\n\n" + TAKEN


@pytest.mark.parametrize(
    "text, args, shape, checked",
    [(FLATTEN_LAST, (X,), (2, 12), True), (SQUARES, (X,), (6, 4), False), (TAKEN, (X, X[0, :2].ravel()), (4, 2), True)],
)
def test_a_shape_computed_with_tensors_is_a_shape(text, args, shape, checked):
    module, after, end = resolved(text)
    for m in (module, after, end):
        assert interpret(m, *args).shape == shape
    left = names(end)
    assert "Reshape" in left and not {"ShapeOf", "ShapeToTensor", "TensorToShape", "ReshapeTo", "Slice", "Take"} & set(left)
    casts = [b.var.type for b in end.functions[0].bindings if type(b.value).__name__ == "MatchCast"]
    assert any(len(t.shape) == 1 for t in casts) == checked  # of the flat array: that it has as many elements


def test_elements_that_do_not_fit_are_found_while_running():
    for module in resolved(TAKEN):
        with pytest.raises(ShapeError):
            interpret(module, X, X[0, 0])
    module = resolved(FLATTEN_LAST)[2]
    with pytest.raises(ShapeError, match=r"expected f32\[12\*n\], got an array of shape \(16,\): axis 0 is 16, not 12\*n = 24"):
        interpret(module, np.zeros((2, 2, 4), np.float32))


def test_a_runtime_shape_tensor():
    """TVM #20174: the numbers of the shape come with the data."""
    text = body("v0: Shape(ndim=2) = tensor_to_shape(t)", "v9: f32[_, _] = reshape_to(x, v0)", params="x: f32[n], t: i64[2]")
    module, after, end = resolved(text)
    assert names(end) == ["TensorToShape", "MatchCast", "MatchCast", "Reshape"]
    for m in (module, after, end):
        assert interpret(m, X.ravel(), np.array([4, 6])).shape == (4, 6)
        with pytest.raises(ShapeError, match="negative entry"):
            interpret(m, X.ravel(), np.array([-4, -6]))
        with pytest.raises(ShapeError):
            interpret(m, X.ravel(), np.array([4, 7]))


def test_a_vector_of_shapes_of_unknown_entries_goes_back_and_forth():
    text = body(
        "v0: i64[2] = shape_to_tensor(s)",
        "v1: Shape(ndim=2) = tensor_to_shape(v0)",
        "v2: i64[2] = shape_to_tensor(v1)",
        "v9: Tuple[Shape(ndim=2), i64[2]] = (v1, v2)",
        params="s: Shape(ndim=2)",
        type_="Tuple[Shape(ndim=2), i64[2]]",
    )
    module, after, end = resolved(text)
    assert "TensorToShape" not in names(end) and names(end).count("Sizes") == 1
    for m in (module, after, end):
        shape, vector = interpret(m, (3, 4))
        assert shape == (3, 4) and vector.tolist() == [3, 4]


def test_sizes_that_may_be_negative_are_checked_while_running():
    text = body(
        "v0: Shape([n]) = shape_of(x)",
        "v1: i64[1] = shape_to_tensor(v0)",
        "v2: i64[1] = subtract(v1, 3)",
        "v3: i64[2] = concatenate((v2, v2), axis=0)",
        "v4: Shape(ndim=2) = tensor_to_shape(v3)",
        "v9: f32[_, _] = reshape_to(y, v4)",
        params="x: f32[n], y: f32[k]",
    )
    module, after, end = resolved(text)
    for m in (module, after, end):
        assert interpret(m, X.ravel()[:5], X.ravel()[:4]).shape == (2, 2)
        with pytest.raises(ShapeError, match="negative entry"):
            interpret(m, X.ravel()[:1], X.ravel()[:4])


def test_what_has_no_known_rank_stays():
    lines = "v0: Shape() = shape_of(x)", "v9: f32[...] = reshape_to(y, v0)"
    text = body(*lines, params="x: f32[...], y: f32[k]", type_="f32[...]")
    module, after, end = resolved(text)
    assert after == module and names(end) == ["ShapeOf", "ReshapeTo"]
    assert interpret(end, X, X.ravel()).shape == (2, 3, 4)


def test_unknown_sizes_get_names():
    text = body("v9: f32[n, 2] = reshape_to(x, s)", params="x: f32[_, 4], s: Shape([n, 2])", type_="f32[n, 2]")
    module, after, end = resolved(text)
    assert [str(b.var.type) for b in after.functions[0].bindings] == ["f32[m, 4]", "f32[4*m]", "f32[2*n]", "f32[n, 2]"]
    for m in (module, end):
        assert interpret(m, X[0], (6, 2)).shape == (6, 2)


def test_shapes_in_tuples_keep_what_is_known():
    text = body(
        "v0: Shape([n, m, 4]) = shape_of(x)",
        "v1: Tuple[f32[n, m, 4], Shape([n, m, 4])] = (x, v0)",
        "v2: Shape([n, m, 4]) = v1[1]",
        "v3: i64[3] = shape_to_tensor(v2)",
        "v4: Shape(ndim=3) = tensor_to_shape(v3)",
        "v5: Tuple[Shape(ndim=3)] = (v4,)",
        "v6: Shape(ndim=3) = v5[0]",
        "v9: f32[_, _, _] = reshape_to(y, v6)",
        params="x: f32[n, m, 4], y: f32[n, m, 4]",
        type_="f32[_, _, _]",
    )
    _, _, end = resolved(text)
    assert names(end) == [] and interpret(end, X, X).shape == X.shape
    assert str(end.functions[0].type.result) == "f32[_, _, _]"  # what callers rely on


def test_a_finer_value_may_be_read_after_its_block():
    text = """
def main(x: f32[k], s: Shape(ndim=2)) -> Tuple[f32[_, _], i64[2]]:
    with dataflow():
        v0: f32[_, _] = reshape_to(x, s)
        output(v0)
    v1: Shape(ndim=2) = shape_of(v0)
    v2: i64[2] = shape_to_tensor(v1)
    v3: Tuple[f32[_, _], i64[2]] = (v0, v2)
    return v3"""
    module, after, end = resolved(text)
    for m in (module, after, end):
        found, sizes = interpret(m, X.ravel(), (6, 4))
        assert found.shape == (6, 4) and sizes.tolist() == [6, 4]


def test_symbolic_shapes_are_never_folded():
    """TVM #20260: a shape as a tensor looks constant, and its elements are not."""
    text = body(
        "v0: Shape([n, m, 4]) = shape_of(x)",
        "v1: i64[3] = shape_to_tensor(v0)",
        "v2: i64[3] = multiply(v1, 2)",
        "v9: Tuple[i64[3], i64[3]] = (v1, v2)",
        type_="Tuple[i64[3], i64[3]]",
    )
    end = resolved(text)[2]
    assert not end.constants and [a.tolist() for a in interpret(end, X)] == [[2, 3, 4], [4, 6, 8]]
    static = resolved(text.replace("n, m, 4", "2, 3, 4"))[2]
    assert len(static.constants) == 2 and [a.tolist() for a in interpret(static, X)] == [[2, 3, 4], [4, 6, 8]]


def test_a_module_without_shape_values_is_left_alone():
    module = parse(body("v9: f32[n, m, 4] = exp(x)", type_="f32[n, m, 4]"))
    assert resolve_shapes(module) is module

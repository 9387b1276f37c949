"""Products of the same values with weights become one, where that costs no copy; the others stay as they are."""

import numpy as np
import pytest

import minirelax as mr
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.passes.eliminate_dead_code import eliminate_dead_code
from minirelax.passes.merge_contractions import merge_contractions
from minirelax.pipeline import passes, run
from tests.passes.programs import ATTENTION, GATED

HEADS = """
def main(x: f32[n, 6], *, p: f32[4, 6], a: f32[4], q: f32[8, 6], b: f32[8]) -> Tuple[f32[2, n, 2], f32[4, 2, n]]:
    with dataflow():
        v0: f32[6, 4] = transpose(p, axes=(1, 0))
        v1: f32[n, 4] = matmul(x, v0)
        v2: f32[n, 4] = add(v1, a)
        v3: f32[n, 2, 2] = reshape(v2, shape=(n, 2, 2))
        v4: f32[2, n, 2] = transpose(v3, axes=(1, 0, 2))
        v5: f32[6, 8] = transpose(q, axes=(1, 0))
        v6: f32[n, 8] = matmul(x, v5)
        v7: f32[n, 8] = add(b, v6)
        v8: f32[n, 4, 2] = reshape(v7, shape=(n, 4, 2))
        v9: f32[4, 2, n] = transpose(v8, axes=(1, 2, 0))
        v10: Tuple[f32[2, n, 2], f32[4, 2, n]] = (v4, v9)
        output(v10)
    return v10"""

MERGED_HEADS = """\
def main(x: f32[n, 6], *, p: f32[4, 6], a: f32[4], q: f32[8, 6], b: f32[8]) -> Tuple[f32[2, n, 2], f32[4, 2, n]]:
    with dataflow():
        v0: f32[6, 4] = transpose(p, axes=(1, 0))
        v5: f32[6, 8] = transpose(q, axes=(1, 0))
        v11: f32[6, 12] = concatenate((v0, v5), axis=1)
        v12: f32[n, 12] = matmul(x, v11)
        v13: f32[12] = concatenate((a, b), axis=0)
        v14: f32[n, 12] = add(v12, v13)
        v15: f32[n, 6, 2] = reshape(v14, shape=(n, 6, 2))
        v3: f32[n, 2, 2] = slice(v15, starts=(0, 0, 0), sizes=(n, 2, 2), steps=(1, 1, 1))
        v8: f32[n, 4, 2] = slice(v15, starts=(0, 2, 0), sizes=(n, 4, 2), steps=(1, 1, 1))
        v4: f32[2, n, 2] = transpose(v3, axes=(1, 0, 2))
        v9: f32[4, 2, n] = transpose(v8, axes=(1, 2, 0))
        v10: Tuple[f32[2, n, 2], f32[4, 2, n]] = (v4, v9)
        output(v10)
    return v10"""

CONSTANTS = """
c0: i64[2, 1] = constant([[1], [2]])
c1: i64[2, 2] = constant([[3, 4], [5, 6]])

def main(x: i64[n, 2]) -> i64[3, n]:
    with dataflow():
        v0: i64[n, 1] = matmul(x, c0)
        v1: i64[n, 2] = matmul(x, c1)
        v2: i64[n, 3] = concatenate((v0, v1), axis=1)
        v3: i64[3, n] = transpose(v2, axes=(1, 0))
        output(v3)
    return v3"""

MERGED_CONSTANTS = """\
c2: i64[2, 3] = constant([[1, 3, 4], [2, 5, 6]])

def main(x: i64[n, 2]) -> i64[3, n]:
    with dataflow():
        v4: i64[n, 3] = matmul(x, c2)
        v0: i64[n, 1] = slice(v4, starts=(0, 0), sizes=(n, 1), steps=(1, 1))
        v1: i64[n, 2] = slice(v4, starts=(0, 1), sizes=(n, 2), steps=(1, 1))
        v2: i64[n, 3] = concatenate((v0, v1), axis=1)
        v3: i64[3, n] = transpose(v2, axes=(1, 0))
        output(v3)
    return v3"""


def test_heads_with_biases_and_weights_that_come_late():
    assert str(merge_contractions(parse(HEADS))) == MERGED_HEADS


def test_constants_are_joined_now():
    assert str(eliminate_dead_code(merge_contractions(parse(CONSTANTS)))) == MERGED_CONSTANTS


@pytest.mark.parametrize("text", [HEADS, CONSTANTS, ATTENTION], ids=["heads", "constants", "attention"])
@pytest.mark.parametrize("n", [5, 1, 0])
def test_means_the_same(text, n):
    module = parse(text)
    merged = merge_contractions(module)
    assert merged != module
    rng, sizes, main = np.random.default_rng(0), {"n": n, "s": n, "b": 2}, module["main"]
    arrays = [
        rng.integers(-9, 9, [sizes.get(str(d), d) for d in v.type.shape]).astype(v.type.numpy_dtype)
        for v in (*main.params, *main.bound)
    ]
    if n == 0 and text == ATTENTION:  # NumPy has no largest one of nothing
        return
    args, bound = arrays[: len(main.params)], arrays[len(main.params) :]
    want, got = interpret(module, *args, bound=bound), interpret(merged, *args, bound=bound)
    for w, g in zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]:
        np.testing.assert_allclose(g, w, rtol=1e-5)


PRODUCTS = """
def main(x: f32[n, 4], y: f32[n, 4], z: f32[4, 2], *, a: f32[4, 2], b: f32[4, 2], c: f32[3, 4, 2], d: f32[n]) -> f32[n, n]:
    with dataflow():
{}
        v9: f32[n, n] = matmul(v0, v8)
        output(v9)
    return v9"""


def chain(second: str, *more: str) -> str:
    """A program with the product v0 of `x` and `a`, and the binding `second` of v1, read by what makes v8 of it."""
    first, last = ("v0: f32[n, 2] = matmul(x, a)", "v8: f32[2, n] = transpose(v1, axes=(1, 0))")
    lines = [first, f"v1: f32[n, 2] = {second}", *(more or (last,))]
    return PRODUCTS.format("\n".join(f"        {line}" for line in lines))


def test_the_chain_itself_is_merged():
    module = parse(chain("matmul(x, b)"))
    assert "f32[n, 4] = matmul(x, v" in str(merge_contractions(module))


@pytest.mark.parametrize(
    "text",
    [
        chain("matmul(y, b)"),  # another left operand
        chain("matmul(x, z)"),  # not a weight
        chain("matmul(v0, v4)", "v8: f32[2, n] = transpose(v1, axes=(1, 0))").replace(  # needs the other's result
            "        v1:", "        v4: f32[2, 2] = slice(a, starts=(0, 0), sizes=(2, 2), steps=(1, 1))\n        v1:"
        ),
        chain("matmul(x, b)", "v2: f32[n, 2] = exp(v1)", "v8: f32[2, n] = transpose(v2, axes=(1, 0))"),  # arithmetic
        chain("matmul(x, b)", "v2: f32[n, 2] = add(v1, v1)", "v8: f32[2, n] = transpose(v2, axes=(1, 0))"),
        chain("matmul(x, b)", "v2: f32[n, 2] = add(v1, y)", "v8: f32[2, n] = transpose(v2, axes=(1, 0))").replace(
            "y: f32[n, 4]", "y: f32[n, 2]"
        ),  # a sum with an argument
        chain("matmul(x, b)", "v2: f32[n, 2] = add(v1, 2.0)", "v8: f32[2, n] = transpose(v2, axes=(1, 0))"),
        chain("matmul(x, b)", "v2: f32[2*n] = reshape(v1, shape=(2*n,))", "v8: f32[2, n] = reshape(v2, shape=(2, n))"),
        chain("matmul(x, b)", "v8: f32[2, n] = transpose(v1, axes=(1, 0))").replace(  # read twice
            "v9: f32[n, n] = matmul(v0, v8)", "v7: f32[n, 2] = transpose(v8, axes=(1, 0))\n        v6: f32[n, 2] = exp(v1)\n"
            "        v5: f32[n, 2] = multiply(v7, v6)\n        v4: f32[n, 2] = multiply(v5, v0)\n"
            "        v9: f32[n, n] = matmul(v4, v8)"
        ),
    ],
)
def test_stays_apart(text):
    module = parse(text)
    assert merge_contractions(module) is module


def test_the_results_of_a_block_stay_apart():
    text = chain("matmul(x, b)").replace("output(v9)", "output(v9, v1)")
    text = text.replace("-> f32[n, n]", "-> Tuple[f32[n, n], f32[n, 2]]")
    module = parse(text.replace("    return v9", "    v10: Tuple[f32[n, n], f32[n, 2]] = (v9, v1)\n    return v10"))
    assert merge_contractions(module) is module


def test_arithmetic_on_the_products_stays_in_their_kernels():
    """A gated layer's products are multiplied while they are in registers: a joined one would be stored first."""
    module = parse(GATED)
    assert merge_contractions(module) is module


def test_a_slice_is_read_in_place():
    """Nobody stores a slice: each is in the kernel of what reads it."""
    stages = {s.name: s.module for s in run(parse(ATTENTION), passes())}
    calls = [line.split("call_kernel(")[1].split(",")[0] for line in str(stages["fuse_kernels"]["main"]).splitlines()
             if "call_kernel(" in line]
    assert sum("slice" in name for name in calls) == 2 and all("matmul" in name for name in calls if "slice" in name), calls


def attention(p, x):
    q, k, v = (np.reshape(x @ p[name] + p[name][0], (*x.shape[:2], 2, 4)).transpose(0, 2, 1, 3) for name in "qkv")
    scores = np.exp(q @ np.swapaxes(k, -1, -2) / 4)
    return (scores / np.sum(scores, axis=-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape)


@pytest.mark.parametrize("weights", ["bound", "constants"])
def test_compiled(weights):
    rng = np.random.default_rng(0)
    p = {name: rng.standard_normal((8, 8), np.float32) / 3 for name in "qkv"}
    exact = {name: w.astype(np.float64) for name, w in p.items()}
    compiled = mr.jit(attention, constants=("p",)) if weights == "bound" else mr.jit(lambda x: attention(p, x))
    first = (p,) if weights == "bound" else ()
    for shape in ((2, 5, 8), (1, 1, 8), (3, 17, 8), (0, 2, 8), (2, 0, 8)):
        x = rng.standard_normal(shape, np.float32)
        np.testing.assert_allclose(compiled(*first, x), attention(exact, x.astype(np.float64)), rtol=1e-4, atol=1e-5)
    text = str(compiled.stages["merge_contractions"].module["main"])
    assert len(compiled.compilations) == 1 and "f32[n, m, 24] = matmul(" in text
    assert "concatenate" not in str(compiled.stages["bind_parameters"].module["main"])

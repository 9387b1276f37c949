"""The programs on which the passes are tested, as text, each with the sizes to run it at."""

from __future__ import annotations

SOFTMAX = """
def main(x: f32[n, m]) -> f32[n, m]:
    with dataflow():
        v0: f32[n, 1] = max(x, axes=(1,), keepdims=True)
        v1: f32[n, m] = subtract(x, v0)
        v2: f32[n, m] = exp(v1)
        v3: f32[n, 1] = sum(v2, axes=(1,), keepdims=True)
        v4: f32[n, m] = divide(v2, v3)
        output(v4)
    return v4
"""

COLUMN_SOFTMAX = SOFTMAX.replace("axes=(1,)", "axes=(0,)").replace("[n, 1]", "[1, m]")

VECTOR_SOFTMAX = """
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[()] = max(x, axes=(0,), keepdims=False)
        v1: f32[n] = subtract(x, v0)
        v2: f32[n] = exp(v1)
        v3: f32[()] = sum(v2, axes=(0,), keepdims=False)
        v4: f32[n] = divide(v2, v3)
        output(v4)
    return v4
"""

# a residual sum that is normalised, and read again later
LAYER_NORM = """
def main(x: f32[b, s, 16], y: f32[b, s, 16], *, g: f32[16], h: f32[16]) -> f32[b, s, 16]:
    with dataflow():
        v0: f32[b, s, 16] = add(x, y)
        v1: f32[b, s, 1] = sum(v0, axes=(2,), keepdims=True)
        v2: f32[b, s, 1] = divide(v1, 16.0)
        v3: f32[b, s, 16] = subtract(v0, v2)
        v4: f32[b, s, 16] = square(v3)
        v5: f32[b, s, 1] = sum(v4, axes=(2,), keepdims=True)
        v6: f32[b, s, 1] = divide(v5, 16.0)
        v7: f32[b, s, 1] = add(v6, 1e-05)
        v8: f32[b, s, 1] = sqrt(v7)
        v9: f32[b, s, 16] = divide(v3, v8)
        v10: f32[b, s, 16] = multiply(v9, g)
        v11: f32[b, s, 16] = add(v10, h)
        v12: f32[b, s, 16] = sort(v11, axis=2)
        v13: f32[b, s, 16] = add(v12, v0)
        output(v13)
    return v13
"""

MLP = """
def main(x: f32[n, 16], *, w1: f32[32, 16], b1: f32[32], w2: f32[32, 16], b2: f32[16]) -> f32[n, 16]:
    with dataflow():
        v0: f32[16, 32] = transpose(w1, axes=(1, 0))
        v1: f32[n, 32] = matmul(x, v0)
        v2: f32[n, 32] = add(v1, b1)
        v3: f32[n, 32] = multiply(v2, 0.5)
        v4: f32[n, 32] = multiply(v2, 0.70710677)
        v5: f32[n, 32] = erf(v4)
        v6: f32[n, 32] = add(v5, 1.0)
        v7: f32[n, 32] = multiply(v3, v6)
        v8: f32[n, 16] = matmul(v7, w2)
        v9: f32[n, 16] = add(v8, b2)
        v10: f32[n, 16] = add(v9, x)
        output(v10)
    return v10
"""

ATTENTION = """
def main(x: f32[b, s, 16], mask: f32[b, s], *, wq: f32[16, 16], wk: f32[16, 16], wv: f32[16, 16]) -> f32[b, s, 16]:
    with dataflow():
        v0: f32[b, s, 16] = matmul(x, wq)
        v1: f32[b, s, 16] = matmul(x, wk)
        v2: f32[b, s, 16] = matmul(x, wv)
        v3: f32[b, s, 2, 8] = reshape(v0, shape=(b, s, 2, 8))
        v4: f32[b, s, 2, 8] = reshape(v1, shape=(b, s, 2, 8))
        v5: f32[b, s, 2, 8] = reshape(v2, shape=(b, s, 2, 8))
        v6: f32[b, 2, s, 8] = transpose(v3, axes=(0, 2, 1, 3))
        v7: f32[b, 2, 8, s] = transpose(v4, axes=(0, 2, 3, 1))
        v8: f32[b, 2, s, 8] = transpose(v5, axes=(0, 2, 1, 3))
        v9: f32[b, 2, s, s] = matmul(v6, v7)
        v10: f32[b, 2, s, s] = divide(v9, 2.5)
        v11: f32[b, 1, 1, s] = reshape(mask, shape=(b, 1, 1, s))
        v12: f32[b, 2, s, s] = add(v10, v11)
        v13: f32[b, 2, s, 1] = max(v12, axes=(3,), keepdims=True)
        v14: f32[b, 2, s, s] = subtract(v12, v13)
        v15: f32[b, 2, s, s] = exp(v14)
        v16: f32[b, 2, s, 1] = sum(v15, axes=(3,), keepdims=True)
        v17: f32[b, 2, s, s] = divide(v15, v16)
        v18: f32[b, 2, s, 8] = matmul(v17, v8)
        v19: f32[b, s, 2, 8] = transpose(v18, axes=(0, 2, 1, 3))
        v20: f32[b, s, 16] = reshape(v19, shape=(b, s, 16))
        output(v20)
    return v20
"""

ARGMAX = """
def main(x: f32[n, m]) -> i64[n]:
    with dataflow():
        v0: f32[n, m] = multiply(x, 2.0)
        v1: i64[n] = argmax(v0, axis=1, keepdims=False)
        output(v1)
    return v1
"""

CONCATENATION = """
def main(x: f32[n, 3], y: f32[m, 3]) -> Tuple[f32[m + n, 3], f32[n, 3]]:
    with dataflow():
        v0: f32[n, 3] = exp(x)
        v1: f32[m, 3] = tanh(y)
        v2: f32[m + n, 3] = concatenate((v0, v1), axis=0)
        v3: f32[m + n, 3] = multiply(v2, 3.0)
        v4: Tuple[f32[m + n, 3], f32[n, 3]] = (v3, v0)
        output(v4)
    return v4
"""

# the size of a library call's result is bound half way
DATA_DEPENDENT = """
def main(x: f32[n]) -> f32[k + 1]:
    with dataflow():
        v0: f32[n] = multiply(x, 0.5)
        v1: f32[_] = unique(v0)
        v2: f32[k] = match_cast(v1, f32[k])
        v3: f32[k] = exp(v2)
        v4: f32[1] = full(f32(7.0), shape=(1,))
        v5: f32[k + 1] = concatenate((v3, v4), axis=0)
        v6: f32[k + 1] = add(v5, 1.0)
        output(v6)
    return v6
"""

# results that are an argument, a view of one, and twice the same value
ALIASES = """
def main(x: f32[n, 2]) -> Tuple[f32[2*n], f32[n, 2], f32[n, 2], f32[2*n]]:
    with dataflow():
        v0: f32[2*n] = reshape(x, shape=(2*n,))
        v1: f32[n, 2] = exp(x)
        v2: f32[2*n] = reshape(v1, shape=(2*n,))
        v3: Tuple[f32[2*n], f32[n, 2], f32[n, 2], f32[2*n]] = (v0, v1, v1, v2)
        output(v3)
    return v3
"""

GATHER_NORM = """
def main(ids: i64[n], *, table: f32[50, 8], place: f32[64, 8]) -> f32[n, 8]:
    with dataflow():
        v0: f32[n, 8] = take(table, ids, axis=0, mode="raise")
        v1: f32[n, 8] = add(v0, 1.0)
        v2: f32[n, 1] = max(v1, axes=(1,), keepdims=True)
        v3: f32[n, 8] = divide(v1, v2)
        output(v3)
    return v3
"""

# root-mean-square normalisation of a residual sum, then a gated layer, as in Llama
GATED = """
def main(x: f32[n, 16], y: f32[n, 16], *, g: f32[16], w1: f32[16, 32], w3: f32[16, 32]) -> Tuple[f32[n, 32], f32[n, 16]]:
    with dataflow():
        v0: f32[n, 16] = add(x, y)
        v1: f32[n, 16] = square(v0)
        v2: f32[n, 1] = sum(v1, axes=(1,), keepdims=True)
        v3: f32[n, 1] = multiply(v2, 0.0625)
        v4: f32[n, 1] = add(v3, 1e-06)
        v5: f32[n, 1] = sqrt(v4)
        v6: f32[n, 16] = divide(v0, v5)
        v7: f32[n, 16] = multiply(v6, g)
        v8: f32[n, 32] = matmul(v7, w1)
        v9: f32[n, 32] = negative(v8)
        v10: f32[n, 32] = exp(v9)
        v11: f32[n, 32] = add(1.0, v10)
        v12: f32[n, 32] = divide(v8, v11)
        v13: f32[n, 32] = matmul(v7, w3)
        v14: f32[n, 32] = multiply(v12, v13)
        v15: Tuple[f32[n, 32], f32[n, 16]] = (v14, v0)
        output(v15)
    return v15
"""

# a key cache that grows, halves swapped and negated as in rotary embedding, products with it
ROTARY = """
def main(cache: f32[p, 4], x: f32[s, 4], angle: f32[s, 4]) -> Tuple[f32[p + s, 4], f32[s, p + s]]:
    with dataflow():
        v0: f32[s, 4] = cos(angle)
        v1: f32[s, 4] = sin(angle)
        v2: f32[s, 2] = slice(x, starts=(0, 0), sizes=(s, 2), steps=(1, 1))
        v3: f32[s, 2] = slice(x, starts=(0, 2), sizes=(s, 2), steps=(1, 1))
        v4: f32[s, 2] = negative(v3)
        v5: f32[s, 4] = concatenate((v4, v2), axis=1)
        v6: f32[s, 4] = multiply(x, v0)
        v7: f32[s, 4] = multiply(v5, v1)
        v8: f32[s, 4] = add(v6, v7)
        v9: f32[p + s, 4] = concatenate((cache, v8), axis=0)
        v10: f32[4, p + s] = transpose(v9, axes=(1, 0))
        v11: f32[s, p + s] = matmul(v8, v10)
        v12: Tuple[f32[p + s, 4], f32[s, p + s]] = (v9, v11)
        output(v12)
    return v12
"""

SMALL_SIZES = (dict(n=3, m=4), dict(n=1, m=1), dict(n=5, m=1), dict(n=0, m=3), dict(n=2, m=0))
# name -> (text, sizes)
# a dense layer with a residual and a norm, with weights that are bound
DENSE_NORM = """
def main(x: f32[b, s, 24], r: f32[b, s, 20], *, w: f32[24, 20], g: f32[20]) -> f32[b, s, 20]:
    with dataflow():
        v0: f32[b, s, 20] = matmul(x, w)
        v1: f32[b, s, 20] = add(v0, g)
        v2: f32[b, s, 20] = add(v1, r)
        v3: f32[b, s, 1] = sum(v2, axes=(2,), keepdims=True)
        v4: f32[b, s, 1] = divide(v3, 20.0)
        v5: f32[b, s, 20] = subtract(v2, v4)
        v6: f32[b, s, 20] = square(v5)
        v7: f32[b, s, 1] = sum(v6, axes=(2,), keepdims=True)
        v8: f32[b, s, 1] = divide(v7, 20.0)
        v9: f32[b, s, 1] = add(v8, 1e-05)
        v10: f32[b, s, 1] = sqrt(v9)
        v11: f32[b, s, 20] = divide(v5, v10)
        v12: f32[b, s, 20] = multiply(v11, g)
        output(v12)
    return v12
"""

PROGRAMS: dict[str, tuple[str, tuple[dict[str, int], ...]]] = {
    "softmax": (SOFTMAX, SMALL_SIZES[:4]),
    "column_softmax": (COLUMN_SOFTMAX, (*SMALL_SIZES[:3], SMALL_SIZES[4])),
    "vector_softmax": (VECTOR_SOFTMAX, (dict(n=7), dict(n=1))),
    "layer_norm": (LAYER_NORM, (dict(b=2, s=3), dict(b=1, s=1), dict(b=0, s=2), dict(b=2, s=0))),
    "mlp": (MLP, (dict(n=3), dict(n=1), dict(n=0))),
    "attention": (ATTENTION, (dict(b=2, s=3), dict(b=1, s=1), dict(b=0, s=2))),
    "argmax": (ARGMAX, (dict(n=3, m=4), dict(n=1, m=1), dict(n=0, m=2))),
    "concatenation": (CONCATENATION, SMALL_SIZES),
    "data_dependent": (DATA_DEPENDENT, (dict(n=6), dict(n=1), dict(n=0))),
    "aliases": (ALIASES, (dict(n=3), dict(n=1), dict(n=0))),
    "gated": (GATED, (dict(n=3), dict(n=1), dict(n=0))),
    "rotary": (ROTARY, (dict(p=3, s=2), dict(p=0, s=1), dict(p=2, s=0))),
    "dense_norm": (DENSE_NORM, (dict(b=2, s=3), dict(b=1, s=1), dict(b=0, s=2), dict(b=2, s=0))),
    "gather_norm": (GATHER_NORM, (dict(n=3), dict(n=1), dict(n=0))),
}

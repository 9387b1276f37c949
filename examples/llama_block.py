"""One decoder block of a Llama: RMS norm, rotary positions, grouped-query attention over a cache, SwiGLU; every length free.

`block` is an ordinary NumPy function.  The same one reads a prompt (many new tokens, an empty cache) and writes the next token
(one new token, a cache of any length), and so does what ``mr.jit(block, constants=("p",))`` makes of it.  The weights
are random; their sizes are those of SmolLM2-135M.

    python examples/llama_block.py             # prompts and single tokens against NumPy in float64
    python examples/llama_block.py --time      # paired times against NumPy, on one thread
"""
from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass

import numpy as np

import minirelax as mr

HEAD, EPSILON, THETA = 64, 1e-5, 100_000.0       # numbers in a head; what keeps norms finite; the base of the angles
SIZES = ((1, 64, 0), (1, 1, 64), (1, 1, 256), (2, 7, 0), (2, 1, 7), (3, 5, 20), (1, 1, 0))          # (batch, new tokens, cached)


@dataclass(frozen=True)
class Configuration:
    """The sizes of a block."""

    hidden: int = 576
    heads: int = 9
    key_heads: int = 3                            # each is shared by ``heads // key_heads`` of the heads
    inner: int = 1536


SMOLLM2_135M = Configuration()


# ---------------------------------------------------------------- the model

def rms_norm(x, weight):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + EPSILON) * weight


def silu(x):
    return x / (1.0 + np.exp(-x))


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def rotate(x, positions):
    """Rotary embedding (Su et al. 2021): numbers i and i + 32 of a head are a point, turned by an angle of its position's."""
    half = HEAD // 2
    angles = positions.astype(x.dtype)[:, None] * (THETA ** (-np.arange(half) / half)).astype(x.dtype)
    cosine, sine = np.cos(angles), np.sin(angles)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate((a * cosine - b * sine, b * cosine + a * sine), axis=-1)


def split_heads(x):
    """(batch, length, heads * 64) -> (batch, heads, length, 64)."""
    b, s, width = x.shape
    return np.transpose(np.reshape(x, (b, s, width // HEAD, HEAD)), (0, 2, 1, 3))


def attention(p, x, keys, values):
    """Attention of the new tokens `x` to the cached ones and to each other, and the cache with them."""
    b, s, _ = x.shape
    cached, count = keys.shape[2], keys.shape[1]
    positions = np.arange(cached, cached + s, like=x)          # like=x: else it would be an array at once, of one length
    q = rotate(split_heads(x @ p["self_attn.q_proj.weight"].T), positions)
    k = rotate(split_heads(x @ p["self_attn.k_proj.weight"].T), positions)
    keys = np.concatenate((keys, k), axis=2)
    values = np.concatenate((values, split_heads(x @ p["self_attn.v_proj.weight"].T)), axis=2)
    heads = q.shape[1]
    q = np.reshape(q, (b, count, heads // count, s, HEAD))
    scores = q @ np.swapaxes(keys, 2, 3)[:, :, None] / HEAD ** 0.5
    seen = np.arange(cached + s, like=x) <= positions[:, None]
    context = softmax(np.where(seen, scores, -1e30)) @ values[:, :, None]
    context = np.reshape(np.transpose(np.reshape(context, (b, heads, s, HEAD)), (0, 2, 1, 3)), (b, s, heads * HEAD))
    return context @ p["self_attn.o_proj.weight"].T, keys, values


def mlp(p, x):
    return (silu(x @ p["mlp.gate_proj.weight"].T) * (x @ p["mlp.up_proj.weight"].T)) @ p["mlp.down_proj.weight"].T


def block(p, x, keys, values):
    """``x`` (batch, new, hidden), the cached `keys` and `values` (batch, key heads, cached, 64) -> the block's output, the cache.

    The cache that is returned has the new tokens, too; one that is empty has length 0.
    """
    attended, keys, values = attention(p, rms_norm(x, p["input_layernorm.weight"]), keys, values)
    x = x + attended
    return x + mlp(p, rms_norm(x, p["post_attention_layernorm.weight"])), keys, values


compiled = mr.jit(block, constants=("p",))


# ---------------------------------------------------------------- weights and inputs

def random_weights(c: Configuration = SMOLLM2_135M, seed: int = 0) -> dict[str, np.ndarray]:
    """Random float32 weights, stored as (outputs, inputs), of a size that keeps activations near one."""
    rng = np.random.default_rng(seed)

    def linear(outputs: int, inputs: int) -> np.ndarray:
        return rng.standard_normal((outputs, inputs), np.float32) / np.float32(inputs) ** 0.5

    return {
        "input_layernorm.weight": 1 + rng.standard_normal(c.hidden, np.float32) / 10,
        "self_attn.q_proj.weight": linear(c.heads * HEAD, c.hidden),
        "self_attn.k_proj.weight": linear(c.key_heads * HEAD, c.hidden),
        "self_attn.v_proj.weight": linear(c.key_heads * HEAD, c.hidden),
        "self_attn.o_proj.weight": linear(c.hidden, c.heads * HEAD),
        "post_attention_layernorm.weight": 1 + rng.standard_normal(c.hidden, np.float32) / 10,
        "mlp.gate_proj.weight": linear(c.inner, c.hidden),
        "mlp.up_proj.weight": linear(c.inner, c.hidden),
        "mlp.down_proj.weight": linear(c.hidden, c.inner),
    }


def random_inputs(batch: int, new: int, cached: int, c: Configuration = SMOLLM2_135M, seed: int = 0) -> tuple[np.ndarray, ...]:
    """New tokens, cached keys and cached values."""
    rng = np.random.default_rng((seed, batch, new, cached))
    cache = (batch, c.key_heads, cached, HEAD)
    return tuple(rng.standard_normal(shape, np.float32) for shape in ((batch, new, c.hidden), cache, cache))


# ---------------------------------------------------------------- what to do with it

def check(p, sizes=SIZES, c: Configuration = SMOLLM2_135M) -> int:
    """Print the largest error at each size; status 1 unless all are small and one compilation served them."""
    exact = {name: w.astype(np.float64) for name, w in p.items()}
    largest = 0.0
    for batch, new, cached in sizes:
        args = random_inputs(batch, new, cached, c)
        wanted = block(exact, *(a.astype(np.float64) for a in args))
        error = max(float(np.max(np.abs(a - b), initial=0)) for a, b in zip(compiled(p, *args), wanted, strict=True))
        largest = max(largest, error)
        print(f"batch {batch:3}  new {new:4}  cached {cached:4}  largest difference {error:.1e}", flush=True)
    count = len(compiled.compilations)
    print(f"{len(sizes)} sizes, {count} compilation(s), largest difference from NumPy in float64: {largest:.1e}")
    return 0 if largest <= 1e-4 and count == 1 else 1


def generate(p, prompt: np.ndarray, count: int, run=block) -> np.ndarray:
    """Outputs of `count` more tokens, each fed the last one's output: a prompt once, and then token by token over the cache.

    What a token costs is then one row of each product, whatever came before it.
    """
    empty = np.zeros((prompt.shape[0], p["self_attn.k_proj.weight"].shape[0] // HEAD, 0, HEAD), prompt.dtype)
    x, keys, values = run(p, prompt, empty, empty)
    outputs = []
    for _ in range(count):
        x, keys, values = run(p, x[:, -1:], keys, values)
        outputs.append(x)
    return np.concatenate(outputs, axis=1)


def measure(p, rounds: int) -> None:
    """Print paired times against NumPy in float32, one thread for both."""
    from minirelax.explore.timing import Comparison, paired, threads
    table = Comparison("batch", "new", "cached", reference="NumPy")
    with threads(1):
        for sizes in SIZES:
            args = random_inputs(*sizes)
            table.add(*sizes, pair=paired(lambda: compiled(p, *args), lambda: block(p, *args), rounds))   # noqa: B023 (called at once)
    print(table)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--time", action="store_true", help="paired times against NumPy")
    options.add_argument("--rounds", type=int, default=11, help="rounds of each measurement (default: 11)")
    args = options.parse_args()
    p = random_weights()
    if args.time:
        from minirelax.explore.timing import without_overrides
        without_overrides()
        measure(p, args.rounds)
        return 0
    status = check(p)
    prompt = random_inputs(1, 8, 0)[0]
    difference = np.max(np.abs(generate(p, prompt, 16, compiled) - generate(p, prompt, 16)))
    print(f"16 tokens after a prompt of 8, one by one: largest difference from NumPy {difference:.1e}")
    return status


if __name__ == "__main__":
    sys.exit(main())

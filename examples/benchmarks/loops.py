"""Loops of `examples/control_flow.py`, compiled whole, against the same loops of NumPy calls in Python, at several sizes."""
from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import minirelax as mr
from minirelax.explore.timing import Comparison, paired, threads, without_overrides

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import control_flow as loops  # noqa: E402   a script beside this folder


def cases(rng: np.random.Generator):
    """Function, its NumPy loop, options of jit, and arguments with what their sizes are called."""
    calls = [(f"{n} rows of {i}, width {w}", (loops.network(rng, i, w), rng.standard_normal((n, i), dtype=np.float32)))
             for n, i, w in ((10, 8, 8), (100, 16, 32), (1000, 64, 128), (100, 256, 512))]
    yield loops.recurrent, loops.recurrent_in_numpy, {"constants": "p"}, calls
    calls = [(f"{n} numbers", (np.exp(rng.standard_normal(n)),)) for n in (1, 100, 10_000, 1_000_000)]
    yield loops.roots, loops.roots_in_numpy, {}, calls
    calls = [(f"{n} rows of {c}, {k} centres", (*loops.blobs(rng, n, c, k), 10))
             for n, c, k in ((50, 2, 3), (1000, 8, 5), (20_000, 16, 20))]
    yield loops.cluster, loops.cluster_in_numpy, {}, calls


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=15)
    rounds = options.parse_args().rounds
    without_overrides()
    for function, plain, how, calls in cases(np.random.default_rng(0)):
        compiled = mr.jit(function, **how)
        table = Comparison("threads", "sizes", reference="NumPy")
        for count in (1, 2):
            with threads(count):
                for sizes, args in calls:
                    table.add(count, sizes, pair=paired(lambda: compiled(*args), lambda: plain(*args), rounds))   # noqa: B023
        print(f"{function.__name__}, {len(compiled.compilations)} compilation(s)\n{table}\n", flush=True)


if __name__ == "__main__":
    main()

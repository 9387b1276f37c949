"""Matrix products ``x @ w`` for every number of rows, on one and on two threads, against NumPy's matrix library.

The weight is either an ordinary argument, or one bound as constant and packed once, as in a model.
"""
from __future__ import annotations

import argparse

import numpy as np

import minirelax as mr
from minirelax.explore.timing import Comparison, paired, threads, without_overrides

ROWS = (1, 2, 3, 5, 7, 8, 13, 16, 31, 32, 48, 64, 77, 100, 128, 200, 256, 381, 512)
WEIGHTS = ((768, 768), (768, 3072), (3072, 768))


def product(x, w):
    return x @ w


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=11)
    rounds = options.parse_args().rounds
    without_overrides()
    rng = np.random.default_rng(0)
    for bound in (True, False):
        compiled = mr.jit(product, constants=("w",) if bound else ())
        for k, n in WEIGHTS:
            w = rng.standard_normal((k, n), dtype=np.float32)
            table = Comparison("threads", "m", "k", "n", reference="NumPy")
            for count in (1, 2):
                with threads(count):
                    for m in ROWS:
                        x = rng.standard_normal((m, k), dtype=np.float32)
                        table.add(count, m, k, n, pair=paired(lambda: compiled(x, w), lambda: product(x, w), rounds))   # noqa: B023
            print(f"{'bound' if bound else 'ordinary'} weight\n{table}\n", flush=True)
        print(f"{len(compiled.compilations)} compilation(s)", flush=True)


if __name__ == "__main__":
    main()

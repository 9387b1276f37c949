"""From the start of a process to its first result: with an empty cache, with a filled one, and NumPy alone.

Each measurement is a process of its own.  The second process of a program must not import Numba, and this prints whether
it did.  Times are those inside the process: from the first line of the script, without the start of Python itself.
"""
from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

MINILM = """
import json, sys, time
start = time.perf_counter()
sys.path.insert(0, sys.argv[2])
import minilm
weights = minilm.load_weights()
function = minilm.compiled if sys.argv[1] == "minirelax" else minilm.encode
function(weights, *minilm.random_tokens(2, 7))
print(json.dumps({"ms": 1e3 * (time.perf_counter() - start), "numba": "numba" in sys.modules}))
"""
SOFTMAX = """
import json, sys, time
start = time.perf_counter()
import numpy as np
def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)
x = np.random.default_rng(0).standard_normal((64, 100), dtype=np.float32)
function = softmax
if sys.argv[1] == "minirelax":
    import minirelax as mr
    function = mr.jit(softmax)
function(x)
print(json.dumps({"ms": 1e3 * (time.perf_counter() - start), "numba": "numba" in sys.modules}))
"""


def process(program: str, who: str, cache: str) -> dict:
    """What one process says about itself."""
    examples = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run([sys.executable, "-c", program, who, examples], env={**os.environ, "MINIRELAX_CACHE_DIR": cache},
                          check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--minilm", action="store_true", help="the model of examples/minilm.py (its weights must be installed), not a softmax")
    args = options.parse_args()
    rounds, program = args.rounds, MINILM if args.minilm else SOFTMAX
    first, second, alone = [], [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as cache:
            first.append(process(program, "minirelax", cache))
            second.append(process(program, "minirelax", cache))
            alone.append(process(program, "numpy", cache))
    print(f"medians of {rounds} rounds, each with a cache directory of its own")
    for name, runs in (("first process", first), ("second process", second), ("NumPy alone", alone)):
        numba = ", ".join(sorted({"yes" if r["numba"] else "no" for r in runs}))
        print(f"{name:<16}{statistics.median(r['ms'] for r in runs):9.0f} ms   Numba imported: {numba}")
    gains = [f["ms"] / s["ms"] for f, s in zip(first, second, strict=True)]
    print(f"first process / second process: {statistics.median(gains):.1f} (median of the rounds' ratios)")
    ratios = [s["ms"] / a["ms"] for s, a in zip(second, alone, strict=True)]
    print(f"second process / NumPy alone: {statistics.median(ratios):.2f} (median of the rounds' ratios)")


if __name__ == "__main__":
    main()

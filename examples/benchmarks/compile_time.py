"""How long a compilation takes, stage by stage, with an empty cache and with a filled one, each in a process of its own."""
from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

PROGRAM = """
import json, sys, time
import numpy as np
import minirelax as mr

def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)

def mlp(x, a, b):
    h = x @ a
    return (0.5 * h * (1.0 + np.tanh(0.7978845608028654 * (h + 0.044715 * h * h * h)))) @ b

def attention(q, k, v):
    return softmax(q @ np.swapaxes(k, -1, -2) / 8.0) @ v

def normal(*shape):
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)

programs = {"softmax": (softmax, (normal(7, 33),)), "mlp": (mlp, (normal(5, 24), normal(24, 96), normal(96, 24))),
            "attention": (attention, tuple(normal(2, 3, 9, 64) for _ in range(3)))}
if sys.argv[1] == "minilm":
    sys.path.insert(0, sys.argv[2])
    import minilm
    args = (minilm.load_weights(), *minilm.random_tokens(2, 7))
    compiled = minilm.compiled
else:
    function, args = programs[sys.argv[1]]
    compiled = mr.jit(function)
start = time.perf_counter()
compiled(*args)
total = 1e3 * (time.perf_counter() - start)
stages = {s.name: s.milliseconds for s in compiled.stages}
print(json.dumps({"first call": total, **stages}))
"""


def process(program: str, cache: str) -> dict[str, float]:
    """Milliseconds by stage, and of the whole first call."""
    examples = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run([sys.executable, "-c", PROGRAM, program, examples], env={**os.environ, "MINIRELAX_CACHE_DIR": cache},
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("programs", nargs="*", default=["softmax", "mlp", "attention"],
                         help="of softmax, mlp, attention, minilm (which needs its weights; see examples/minilm.py)")
    for program in options.parse_args().programs:
        with tempfile.TemporaryDirectory() as cache:
            empty, filled = process(program, cache), process(program, cache)
        print(f"{program:<24}{'empty cache':>14}{'filled cache':>14}   (ms)")
        for name in empty:
            print(f"  {name:<22}{empty[name]:14.2f}{filled.get(name, 0.0):14.2f}")


if __name__ == "__main__":
    main()

"""The second process that runs a program finds it in the cache: it imports neither Numba, nor rich, nor any pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import minirelax as mr

PROGRAM = """
import json, sys
import numpy as np
import minirelax as mr

@mr.jit(constants=("p",))
def fn(p, x):
    h = np.maximum(x @ p["w"] + p["b"], 0)
    return h / h.sum(axis=-1, keepdims=True), np.sort(x, axis=0)

p = {"w": np.arange(12.0).reshape(3, 4), "b": np.ones(4)}
total = sum(float(part.sum()) for n in (2, 7) for part in fn(p, np.arange(n * 3.0).reshape(n, 3)))
heavy = ("numba", "rich", "minirelax.explore", "minirelax.pipeline", "minirelax.codegen.numba_cpu", "minirelax.passes.fuse_ops")
imported = [name for name in heavy if name in sys.modules]
stages = {name: str(fn.stages[name].module) for name in fn.stages.names if name != "build"}
json.dump({"total": total, "imported": imported, "stages": stages, "source": fn.source}, sys.stdout)
"""


def run(cache: Path) -> dict:
    environment = {**os.environ, "MINIRELAX_CACHE_DIR": str(cache), "PYTHONPATH": str(Path(mr.__file__).parent.parent)}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout)


def test_a_warm_process_compiles_nothing(tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    assert "numba" in first.pop("imported")
    assert second.pop("imported") == []
    assert second == first  # the stages too: they are not stored, but made again when somebody looks
    assert len(first["stages"]) > 10 and next(iter(first["stages"])) == "trace"

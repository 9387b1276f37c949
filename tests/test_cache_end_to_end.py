"""A compiled function in a new process whose cache is damaged or cannot be used: one warning, and the right result."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import minirelax as mr
from minirelax.runtime import object_cache

PROGRAM = """
import json, sys, warnings
import numpy as np
import minirelax as mr

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    @mr.jit
    def fn(x):
        return np.exp(x - x.max(axis=1, keepdims=True)), x.sum(axis=0)
    results = [fn(np.arange(n * 3.0).reshape(n, 3)) for n in (2, 5)]
json.dump({
    "warnings": [f"{type(w.message).__name__}: {w.message}" for w in caught],
    "results": [[r.tolist() for r in pair] for pair in results],
    "compiled": "numba" in sys.modules,
}, sys.stdout)
"""


def run(cache: Path) -> dict:
    """What the program finds in a process with this cache directory; its results are checked."""
    import json

    here = Path(mr.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False,
        env={**os.environ, "MINIRELAX_CACHE_DIR": str(cache), "PYTHONPATH": str(here)},
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    found = json.loads(done.stdout)
    for n, (first, second) in zip((2, 5), found["results"], strict=True):
        x = np.arange(n * 3.0).reshape(n, 3)
        np.testing.assert_allclose(first, np.exp(x - x.max(axis=1, keepdims=True)), rtol=1e-12)
        np.testing.assert_allclose(second, x.sum(axis=0), rtol=1e-12)
    return found


@pytest.fixture
def filled(tmp_path, monkeypatch) -> Path:
    """A cache directory with the entries of that program, as another process would have left them."""
    monkeypatch.setenv("MINIRELAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(object_cache, "_loaded", {})

    @mr.jit
    def fn(x):
        return np.exp(x - x.max(axis=1, keepdims=True)), x.sum(axis=0)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fn(np.arange(6.0).reshape(2, 3))
    assert object_cache.info().entries >= 2
    return tmp_path / "cache"


DAMAGE = {
    "truncated": (lambda data: data[: len(data) // 2], "damaged"),
    "of another version": (lambda data: b"mrobj00\n" + data[8:], "written by another version"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_entries_that_cannot_be_used_are_made_again(filled, kind):
    damage, words = DAMAGE[kind]
    before = {entry: entry.read_bytes() for entry in filled.glob("*.obj")}
    for entry, data in before.items():
        entry.write_bytes(damage(data))
    found = run(filled)
    assert len(found["warnings"]) == 1 and found["compiled"]
    (warning,) = found["warnings"]
    assert warning.startswith("CacheWarning: object-code cache: cannot use ")
    assert warning.endswith(f"{words}; compiling again")
    for entry, data in before.items():
        object_cache._unpack(bytes.fromhex(entry.stem), entry.read_bytes())  # whole again, and of this version
        assert entry.read_bytes()[:40] == data[:40]


def test_a_directory_that_cannot_be_written(tmp_path):
    """Permissions do not stop the superuser, under whom tests may run; a file in the directory's place stops everybody."""
    (tmp_path / "file").write_text("in the way")
    found = run(tmp_path / "file" / "cache")
    assert len(found["warnings"]) == 1 and found["compiled"]
    assert found["warnings"][0].startswith("CacheWarning: object-code cache: cannot ")
    assert (tmp_path / "file").read_text() == "in the way"

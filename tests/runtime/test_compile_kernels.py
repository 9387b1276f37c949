"""Kernels compiled by several processes: the same code, whatever happens to a helper."""

import pytest

from minirelax.errors import CodegenError
from minirelax.runtime import compile_kernels
from minirelax.runtime.machine_code import Options, load

BODY = "    for i in range(lo, hi):\n        args[i] = i"
SOURCES = {f"f{i}": f"def f{i}(args, lo, hi, scratch):\n{BODY} + {i}\n" for i in range(4)}


@pytest.fixture
def one_helper(monkeypatch):
    monkeypatch.setattr(compile_kernels, "helper_count", lambda kernels: 1)


def compiled(sources, told=None):
    return compile_kernels._Compilation(sources, Options(), told).run()


def test_every_kernel_is_compiled_once(one_helper):
    told = []
    done = compiled(SOURCES, lambda i, k, name: told.append((i, k, name)))
    assert done.keys() == SOURCES.keys() and all(done[n].symbols == (n,) for n in done)
    assert sorted(name for _, _, name in told) == sorted(SOURCES) and {k for _, k, _ in told} == {4}
    assert load(done.values()).keys() == SOURCES.keys()


def test_a_helper_compiles_what_this_process_would(one_helper, monkeypatch):
    """This process takes nothing until the helper has done all."""
    here = compiled(SOURCES)
    monkeypatch.setattr(compile_kernels._Compilation, "_compile_here", lambda self: _wait(self))
    assert compiled(SOURCES) == here


def _wait(work):
    import time

    while len(work.done) < len(work.sources):
        time.sleep(0.01)


@pytest.mark.parametrize("start", ["raise SystemExit", "import sys; sys.stdout.buffer.write(b'no pickle')",
                                   "import pickle, sys; pickle.dump(1, sys.stdout.buffer); sys.stdout.flush()"])
def test_a_helper_that_dies_is_not_missed(one_helper, monkeypatch, start):
    monkeypatch.setattr(compile_kernels, "START", start)
    assert compiled(SOURCES).keys() == SOURCES.keys()


def test_a_kernel_that_cannot_be_compiled(one_helper):
    with pytest.raises(CodegenError, match="Numba cannot compile bad"):
        compiled({**SOURCES, "bad": "def bad(args, lo, hi, scratch):\n    return args.nothing\n"})


def test_few_kernels_need_no_helper():
    assert compile_kernels.helper_count(compile_kernels.KERNELS_PER_HELPER - 1) == 0

"""The command line: what it prints, and that a mistake is one message and never a traceback."""
from __future__ import annotations

import pytest

from minirelax import cli

PROGRAM = """
import numpy as np

def layer(x, w):
    return np.maximum(x @ w, 0.0)

def mixed(x, ids, scale=2.0):
    return x[ids] * scale
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "layers.py"
    file.write_text(PROGRAM)
    return str(file)


def test_explain_prints_every_stage(program, capsys):
    assert cli.main(["explain", f"{program}:layer", "--shapes", "x=5x8,w=8x3"]) == 0
    out = capsys.readouterr().out
    for word in ("after trace", "after fuse_kernels", "matmul", "@kernel", "the kernels' source", "memory"):
        assert word in out
    assert "\x1b[" not in out


def test_explain_names_the_ops_and_lines_of_every_kernel(program, capsys):
    assert cli.main(["explain", f"{program}:layer", "--shapes", "x=5x8,w=8x3"]) == 0
    out = capsys.readouterr().out
    part = out[out.index("what the kernels are made of"):]
    row = next(line for line in part.splitlines() if "matmul_maximum" in line)
    assert row.split()[:4] == ["0", "matmul_maximum", "contraction", "matmul"]
    assert "matmul v0, maximum v1" in row and row.endswith("layers.py:5   return np.maximum(x @ w, 0.0)")


def test_explain_one_stage_prints_ir_that_parses(program, capsys):
    from minirelax.ir.parser import parse
    assert cli.main(["explain", f"{program}:mixed", "--shapes", "x=5x8,ids=4:i64", "--stage", "trace"]) == 0
    out = capsys.readouterr().out
    assert "ids: i64[" in out and str(parse(out)).strip() == out.strip()


@pytest.mark.parametrize(("arguments", "message"), [
    (["{}", "--shapes", "x=5"], "expected FILE:FUNCTION, got"),
    (["nowhere.py:f"], "no file 'nowhere.py'"),
    (["{}:f"], "has no function 'f'; it has layer, mixed"),
    (["{}:layer", "--shapes", "x=5xq"], "expected NAME=5x8 in --shapes, got 'x=5xq'"),
    (["{}:layer", "--shapes", "x=5x8:f16"], "no dtype 'f16' in 'x=5x8:f16'"),
    (["{}:layer", "--shapes", "x=5x8"], "--shapes says nothing about w; for example --shapes w=5x8"),
    (["{}:layer", "--shapes", "x=5x8,v=3"], "layer has no argument 'v'; it has x, w"),
    (["{}:layer", "--shapes", "x=5x8,w=8x3", "--stage", "fuse"], "no stage 'fuse'; there are trace, "),
    (["{}:layer", "--shapes", "x=5x8,w=7x3"], "ShapeError"),
])
def test_mistakes_are_one_message(program, capsys, arguments, message):
    assert cli.main(["explain", *(a.format(program) for a in arguments)]) == 2
    err = capsys.readouterr().err
    assert message in err and "Traceback" not in err


def test_cache_info_and_clear(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MINIRELAX_CACHE_DIR", str(tmp_path))
    (tmp_path / "0.obj").write_bytes(b"x" * 2**20)
    assert cli.main(["cache", "info"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}: 1 entries, 1.0 MiB\n"
    assert cli.main(["cache", "clear"]) == 0
    assert capsys.readouterr().out == f"1 entries removed from {tmp_path}\n" and not list(tmp_path.iterdir())


def test_demo_checks_every_size(capsys):
    from minirelax import demo
    assert demo.main(rounds=1) == 0
    out = capsys.readouterr().out
    assert "20 sizes, 1 compilation\n" in out and "after plan_memory" in out

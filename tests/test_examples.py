"""Examples: what they check of themselves holds, and they print what they say."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from examples import control_flow, llama_block


def test_control_flow(capsys):
    control_flow.main()
    shown = capsys.readouterr().out
    assert all(f"{name}: equal to NumPy at three sizes, 1 compilation" in shown for name in ("recurrent", "roots", "cluster"))
    assert "scan(cell, (p_w, p_u, p_b), (v0,), (x,), length=n, reverse=False)" in shown and "cell    0" in shown


def test_llama_block(capsys):
    small = llama_block.Configuration(hidden=96, heads=4, key_heads=2, inner=160)
    p = llama_block.random_weights(small)
    assert llama_block.check(p, ((1, 5, 0), (2, 1, 5), (1, 3, 4), (1, 1, 0), (0, 2, 3)), small) == 0
    assert "5 sizes, 1 compilation(s)" in capsys.readouterr().out
    prompt = llama_block.random_inputs(2, 3, 0, small)[0]
    exact = {name: w.astype(np.float64) for name, w in p.items()}
    generated = llama_block.generate(p, prompt, 3, llama_block.compiled)
    np.testing.assert_allclose(generated, llama_block.generate(exact, prompt.astype(np.float64), 3), rtol=1e-4, atol=1e-4)


def test_ablation_runs():
    """One workload, one size, two passes: the table has a line for each, and every program is right."""
    script = Path(__file__).parent.parent / "examples" / "benchmarks" / "ablation.py"
    done = subprocess.run([sys.executable, script, "--quick"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [line[0] for line in lines[3:5]] == ["fuse_ops", "plan_memory"], done.stdout
    calls = float(lines[3][3])
    assert calls > 1 and "WRONG" not in done.stdout

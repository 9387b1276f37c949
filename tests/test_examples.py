"""Examples: what they check of themselves holds, and they print what they say."""
from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np

from examples import control_flow, llama_block, own_routine


def test_control_flow(capsys):
    control_flow.main()
    shown = capsys.readouterr().out
    assert all(f"{name}: equal to NumPy at three sizes, 1 compilation" in shown for name in ("recurrent", "roots", "cluster"))
    assert "scan(cell, (p_w, p_u, p_b), (v0,), (x,), length=n, reverse=False)" in shown
    assert re.search(r"^ +cell +\d+ ", shown, re.M)


def test_own_routine(capsys):
    own_routine.main()
    shown = capsys.readouterr().out
    assert "Equal to NumPy at four sizes, with 1 compilation" in shown and "squared_distances: taken at v4" in shown


def test_llama_block(capsys):
    small = llama_block.Configuration(hidden=96, heads=4, key_heads=2, inner=160)
    p = llama_block.random_weights(small)
    assert llama_block.check(p, ((1, 5, 0), (2, 1, 5), (1, 3, 4), (1, 1, 0), (0, 2, 3)), small) == 0
    assert "5 sizes, 1 compilation(s)" in capsys.readouterr().out
    prompt = llama_block.random_inputs(2, 3, 0, small)[0]
    exact = {name: w.astype(np.float64) for name, w in p.items()}
    generated = llama_block.generate(p, prompt, 3, llama_block.compiled)
    np.testing.assert_allclose(generated, llama_block.generate(exact, prompt.astype(np.float64), 3), rtol=1e-4, atol=1e-4)


BENCHMARKS = Path(__file__).parent.parent / "examples" / "benchmarks"


def test_ablation_runs():
    """One workload, one size, two passes: the table has a line for each, and every program is right."""
    command = [sys.executable, BENCHMARKS / "ablation.py", "--quick"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0 and [line[0] for line in lines[3:5]] == ["fuse_ops", "plan_memory"], done.stdout
    calls = float(lines[3][3])
    assert calls > 1 and "WRONG" not in done.stdout


def test_memory_and_cost_of_passes(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import ablation
    import memory
    import passes_cost

    small = ablation.SMALL
    row = memory.measured(small, small.jit(without="fuse_ops"), small.sizes[0])
    assert row.unplanned >= row.arena >= row.least > 0 and row.results == 8 * 40 * 4 and row.numpy > row.results
    assert len(str(memory.Memory([row])).splitlines()) == 3
    found = passes_cost.compile_here(small)
    assert found["calls"] == found["kernels"] == 1 and found["total"] > 0 and found["stages"]["fuse_ops"] > 0
    costs = passes_cost.Costs()
    costs.rows.append(("small", found))
    assert "small" in str(costs) and "fuse_ops" in str(passes_cost.Passes(costs.rows))


def test_a_workload_says_how_wrong_it_is(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import ablation

    small = ablation.SMALL
    assert small.error(small.function, small.sizes[0]) < small.tolerance
    assert small.error(lambda x: small.function(x) * np.float32(1.01), small.sizes[0]) > small.tolerance


def test_ablation_finds_what_makes_no_difference(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import ablation

    table = ablation.Ablation()
    for workload in ("a", "b"):
        table.rows += [ablation.Row(workload, "", 1e-3, 1024, 4, 2.0, 0.0, False),
                       ablation.Row(workload, "idle", 1.01, 1024, 4, 3.0, 0.0, False),
                       ablation.Row(workload, "busy", 2.0 if workload == "a" else 0.5, 4096, 8, 2.0, 1.0, True)]
    assert table.idle == ("idle",) and table.means["busy"] == (1.0, 4.0, 2.0, 1.0)
    lines = str(table).splitlines()
    assert lines[2].split() == ["a", "(nothing)", "1000", "us", "1", "KiB", "4", "2.0", "s", "0e+00"] and "WRONG" in lines[4]
    assert lines[-1] == "time, memory and calls are the same without: idle"

"""Examples: what they check of themselves holds, and they print what they say."""
from __future__ import annotations

from examples import control_flow


def test_control_flow(capsys):
    control_flow.main()
    shown = capsys.readouterr().out
    assert all(f"{name}: equal to NumPy at three sizes, 1 compilation" in shown for name in ("recurrent", "roots", "cluster"))
    assert "scan(cell, (p_w, p_u, p_b), (v0,), (x,), length=n, reverse=False)" in shown and "cell    0" in shown

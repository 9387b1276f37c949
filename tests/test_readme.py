"""README tells the truth: its example prints what it shows, and the continuous integration runs its commands."""
from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def blocks(language: str) -> list[str]:
    """The contents of README's code blocks in a language."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


def test_example_prints_what_is_shown():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(blocks("python")[0], "README.md", "exec"), {"__name__": "readme"})
    assert out.getvalue().strip() == blocks("text")[0].strip()


def test_example_is_ten_lines():
    assert len(blocks("python")[0].strip().splitlines()) <= 10


def test_continuous_integration_runs_the_commands():
    commands = [line.removeprefix("$ ") for line in blocks("console")[0].splitlines()]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert len(commands) == 2
    assert [line for line in script if line in commands] == commands


def test_named_files_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    named = [name for name in re.findall(r"`((?:minirelax|tutorials|examples)/[\w/.]*)`", text)]
    assert len(named) >= 8
    assert not [name for name in named if not (ROOT / name).exists()]

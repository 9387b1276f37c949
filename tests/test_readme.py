"""README tells the truth: its example prints what it shows, and the continuous integration runs its commands."""
from __future__ import annotations

import ast
import contextlib
import io
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The contents of README's code blocks in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def test_example_prints_what_is_shown():
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(blocks("python")[0], "README.md", "exec"), {"__name__": "readme"})
    assert out.getvalue().strip() == blocks("text")[0].strip()


def test_programs_as_files(tmp_path, monkeypatch):
    """The blocks after the first, which go on where it stops."""
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "readme"}
    for block in blocks("python"):
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block, "README.md", "exec"), scope)
    assert {p.name for p in tmp_path.iterdir()} == {"softmax.mrx", "module.txt", "module.npz"}
    assert scope["y"].shape == (3, 5) and abs(scope["y"] - 0.2).max() < 1e-6
    assert scope["same"] == scope["module"]


def test_example_is_ten_lines():
    assert len(blocks("python")[0].strip().splitlines()) <= 10


def test_control_flow_example():
    first, second, *_ = blocks("python")
    *lines, call = second.strip().splitlines()
    assert len(lines) < 15
    scope = {"__name__": "readme"}
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(first, "README.md", "exec"), scope)
    exec(compile("\n".join(lines), "README.md", "exec"), scope)
    found, rounds = eval(call, scope)
    assert f"{found:.3f}" in call and abs(found - (5 + 5**0.5) / 2) < 1e-9 and 2 < rounds < 100


def test_continuous_integration_runs_the_commands():
    commands = [line.removeprefix("$ ") for line in blocks("console")[0].splitlines()]
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert len(commands) == 2
    assert [line for line in script if line in commands] == commands


def test_named_functions_commands_and_variables_exist():
    import minirelax as mr
    from minirelax.cli import parser

    names = re.findall(r"`[^`\n]*?\b(?:mr|minirelax)\.([A-Za-z_.]+)", TEXT)
    assert {"numpy", "errors.CacheWarning", "set_num_threads"} <= set(names)
    for name in names:
        found = mr
        for part in name.split("."):
            found = getattr(found, part)
    compiled = re.findall(r"`f\.(\w+)", TEXT)
    assert len(compiled) >= 7 and all(hasattr(mr.JitFunction, name) for name in compiled)
    commands = re.findall(r"`python -m minirelax ([^`]+)`", TEXT)
    assert len(commands) >= 3 and all(parser().parse_args(command.split()) for command in commands)
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "minirelax").rglob("*.py"))
    assert all(name in source for name in re.findall(r"MINIRELAX_\w+", TEXT))


def test_the_cache_is_as_private_as_described(tmp_path, monkeypatch):
    from minirelax.runtime import object_cache

    assert "(directory 0700, files 0600)" in TEXT
    monkeypatch.setenv("MINIRELAX_CACHE_DIR", str(tmp_path / "cache"))
    object_cache.write("key", b"content")
    (entry,) = (tmp_path / "cache").iterdir()
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700 and entry.stat().st_mode & 0o777 == 0o600
    assert object_cache.read("key") == b"content"


def test_named_files_exist():
    named = re.findall(r"`((?:minirelax|tutorials|examples)/[\w/.]*)`", TEXT)
    assert len(named) >= 8
    assert not [name for name in named if not (ROOT / name).exists()]


def test_what_is_ticked_is_tested():
    """Every line of the tables of features names tests, and every test that is named exists."""
    section = TEXT.split("## What of the two papers is here")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ") and "---" not in line and "shown by" not in line]
    assert len(lines) >= 29
    for line in lines:
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", line)
        assert named and len(named) == line.count("::"), line
        assert not [f"{path}::{name}" for path, name in named if name not in functions(ROOT / path)]


def functions(path: Path) -> set[str]:
    """The functions that a file defines, by its text."""
    return {node.name for node in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(node, ast.FunctionDef)}

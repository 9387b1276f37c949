"""What a slow compilation shows: one line on a terminal, erased at the end; nothing in a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import minirelax

PROGRAM = """
import sys, threading
from minirelax.explore import Progress
from minirelax.explore import progress

shown = threading.Event()
original = progress.Progress._show
def show(self):
    original(self)
    shown.set()
progress.Progress._show = show

with Progress(patience=0.01) as report:
    report("compiling softmax", 2, 5)
    if sys.stderr.isatty():
        assert shown.wait(120)
print("rich" in sys.modules)
"""


def start(stderr: int) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": str(Path(minirelax.__file__).parent.parent), "TERM": "xterm", "COLUMNS": "80"}
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):  # rich listens to these
        environment.pop(name, None)
    return subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=stderr, env=environment, text=True)


def test_a_terminal_shows_what_is_going_on():
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    process = start(theirs)
    os.close(theirs)
    found = b""
    while chunk := _read(ours):
        found += chunk
    os.close(ours)
    assert process.communicate(timeout=120)[0] == "True\n" and process.returncode == 0
    text = found.decode()
    assert "minirelax: compiling softmax: 2 of 5" in text
    assert text.rstrip().endswith("\x1b[2K")  # the line is erased


def test_a_pipe_gets_nothing():
    process = start(subprocess.PIPE)
    out, err = process.communicate(timeout=120)
    assert (out, err, process.returncode) == ("False\n", "", 0)


def _read(descriptor: int) -> bytes:
    """What the terminal got; nothing once the process has closed its side, which Linux reports as an error."""
    try:
        return os.read(descriptor, 4096)
    except OSError:
        return b""

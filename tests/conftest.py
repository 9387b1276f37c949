"""``golden``: compare text with ``tests/golden/<file>.<test>.txt``; ``pytest --update-golden`` rewrites the files."""
from __future__ import annotations

import re
from pathlib import Path

import pytest


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="rewrite the golden files")


@pytest.fixture
def golden(request):
    test = re.sub(r"[^\w.=-]+", "_", request.node.name).strip("_")
    path = Path(__file__).parent / "golden" / f"{request.path.stem}.{test}.txt"

    def check(text: object) -> None:
        text = f"{text}\n"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no {path.name}: run pytest --update-golden, then read what it wrote"
        assert text == path.read_text(encoding="utf-8")
    return check

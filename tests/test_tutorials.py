"""Tutorials: each notebook is its source with outputs, and every cell runs."""
from __future__ import annotations

import json
import linecache

import pytest

from tutorials.build import cells, sources

tutorials = pytest.mark.parametrize("source", sources(), ids=lambda path: path.stem)


def test_there_are_tutorials():
    assert sources()


@tutorials
def test_notebook_has_the_cells_of_its_source(source):
    notebook = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    found = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert found == cells(source.read_text(encoding="utf-8")), "run: python tutorials/build.py"


@tutorials
def test_notebook_was_executed_without_errors(source):
    notebook = json.loads(source.with_suffix(".ipynb").read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["execution_count"] == i + 1 for i, cell in enumerate(code))
    assert not [o for cell in code for o in cell["outputs"] if o["output_type"] == "error"]
    assert any("data" in o and "text/html" in o["data"] for cell in code for o in cell["outputs"])


@tutorials
def test_every_cell_runs(source):
    names = {"__name__": "tutorial"}
    for i, (kind, body) in enumerate(cells(source.read_text(encoding="utf-8"))):
        if kind == "code":
            file = f"<{source.stem} cell {i}>"
            linecache.cache[file] = (len(body), None, body.splitlines(keepends=True), file)
            exec(compile(body, file, "exec"), names)

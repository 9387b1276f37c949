"""Make the notebooks from the percent-format sources by running them:  ``python tutorials/build.py [NAME ...]``.

The ``.py`` files are the source; the ``.ipynb`` files are what they look like when run.  Needs ``pip install '.[notebook]'``.
"""
from __future__ import annotations

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def sources() -> list[Path]:
    """The tutorials, in reading order."""
    return sorted(HERE.glob("[0-9]*.py"))


def cells(text: str) -> list[tuple[str, str]]:
    """The cells of a percent-format file: (``"markdown"`` or ``"code"``, source).

    >>> cells("# %% [markdown]\\n# # Title\\n#\\n# text\\n\\n# %%\\nx = 1\\n\\n\\n# %%\\nx\\n")
    [('markdown', '# Title\\n\\ntext'), ('code', 'x = 1'), ('code', 'x')]
    """
    found = []
    for part in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if "[markdown]" in head:
            found.append(("markdown", re.sub(r"^# ?", "", body.strip(), flags=re.MULTILINE)))
        else:
            found.append(("code", body.strip()))
    return found


def build(source: Path) -> Path:
    """Write the notebook of one tutorial, executed."""
    import nbformat
    from nbclient import NotebookClient
    new = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}
    notebook = nbformat.v4.new_notebook(cells=[
        new[kind](body, id=f"cell-{i}") for i, (kind, body) in enumerate(cells(source.read_text(encoding="utf-8")))])
    searched = filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH")))
    os.environ["PYTHONPATH"] = os.pathsep.join(searched)                # the kernel imports this source tree
    NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(HERE)}}).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)                # times of day would differ at each build
    notebook.metadata = {"language_info": {"name": "python"},
                         "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    target = source.with_suffix(".ipynb")
    nbformat.write(notebook, target)
    return target


if __name__ == "__main__":
    for path in sources():
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            print(build(path))

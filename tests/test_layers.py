"""Data flows one way: a folder may import, at module level, only what stands before it in `ORDER`."""
from __future__ import annotations

import ast
from pathlib import Path

import pytest

import minirelax

ROOT = Path(minirelax.__file__).parent
ORDER = ["errors", "ir", "ops", "frontend", "passes", "libraries", "schedule", "codegen", "runtime", "pipeline", "jit", "explore"]
FILES = sorted(ROOT.rglob("*.py"))


def layer(module: str) -> int:
    """Where a module stands; what is not listed (the package itself, the command line) is above everything."""
    name = module.split(".")[1] if "." in module else ""
    return ORDER.index(name) if name in ORDER else len(ORDER)


def imported(tree: ast.AST):
    """Names of modules that are imported when the file is: not inside functions, not for type checkers only."""
    for node in ast.iter_child_nodes(tree):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                continue
            case ast.Import(names=names):
                yield from (n.name for n in names)
            case ast.ImportFrom(module=module, names=names, level=0):
                yield from (f"{module}.{n.name}" if module == "minirelax" else module for n in names)
            case ast.ImportFrom():
                yield "a relative import"
            case _:
                yield from imported(node)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_back(path):
    relative = path.relative_to(ROOT).with_suffix("")
    here = layer(".".join(("minirelax", *relative.parts)) if relative.name != "__init__" or relative.parent.name else "minirelax")
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        assert name != "a relative import", "imports are absolute"
        assert name.partition(".")[0] != "numba", "numba is slow to import: import it inside a function"
        if name.partition(".")[0] == "minirelax":
            assert layer(name) <= here, f"{relative} imports {name}"


def test_the_order_is_that_of_the_folders():
    assert {p.relative_to(ROOT).parts[0] for p in FILES if len(p.relative_to(ROOT).parts) > 1} <= set(ORDER)

"""The command line: ``demo``, ``explain FILE:FUNCTION --shapes x=5x8,w=8x3``, ``cache info|clear``."""
from __future__ import annotations

import argparse
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Sequence

import numpy as np

from minirelax.errors import CompileError
from minirelax.ir.types import NUMPY_DTYPES


class UsageError(Exception):
    """Something on the command line that does not fit; its text is what the user reads."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.  Returns the exit status: 0, or 2 with one message on the standard error, never a traceback."""
    args = parser().parse_args(argv)
    try:
        return args.run(args)
    except (UsageError, CompileError) as e:
        print(f"{type(e).__name__ + ': ' if isinstance(e, CompileError) else 'error: '}{e}", file=sys.stderr)
        return 2
    except BrokenPipeError:                                 # the reader of our pipe, `head` say, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parser() -> argparse.ArgumentParser:
    """The commands and their options."""
    top = argparse.ArgumentParser(prog="python -m minirelax",
                                  description="A compiler for NumPy functions whose sizes change on every call.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    demo = commands.add_parser("demo", help="one function through every pass, then twenty sizes against NumPy")
    demo.set_defaults(run=run_demo)
    explain = commands.add_parser("explain", help="what the compiler does with a function of yours")
    explain.add_argument("target", metavar="FILE:FUNCTION", help="a Python file and a function in it that takes arrays")
    explain.add_argument("--shapes", default="", metavar="x=5x8,w=8x3",
                         help="a shape for each array argument, x=5x8:i64 for another dtype, s=() for a scalar array")
    explain.add_argument("--dtype", default="f32", choices=sorted(NUMPY_DTYPES), help="the dtype of the others (default: f32)")
    explain.add_argument("--stage", help="print only the program after this pass")
    explain.set_defaults(run=run_explain)
    cache = commands.add_parser("cache", help="the object code kept on disk")
    cache.add_argument("action", choices=("info", "clear"))
    cache.set_defaults(run=run_cache)
    return top


def run_demo(args: argparse.Namespace) -> int:
    """``demo``."""
    from minirelax import demo
    return demo.main()


def run_cache(args: argparse.Namespace) -> int:
    """``cache info`` and ``cache clear``."""
    from minirelax.runtime import object_cache
    try:
        if args.action == "clear":
            print(f"{object_cache.clear()} entries removed from {object_cache.directory()}")
        else:
            found = object_cache.info()
            print(f"{found.directory}: {found.entries} entries, {found.bytes / 2**20:.1f} MiB")
    except OSError as e:
        raise UsageError(f"the cache directory: {e}") from None
    return 0


def run_explain(args: argparse.Namespace) -> int:
    """``explain``: compile a function for example arguments, and print every stage and what was generated."""
    import minirelax as mr
    from minirelax.demo import heading, show_stages
    from minirelax.explore.highlight import highlighted
    from minirelax.explore.view import show
    function = load(args.target)
    arguments = example_arguments(function, parse_shapes(args.shapes, args.dtype))
    compiled = function if hasattr(function, "stages") else mr.jit(function)
    compiled.compile(*arguments)
    if args.stage:
        if args.stage not in compiled.stages:
            raise UsageError(f"no stage {args.stage!r}; there are {', '.join(compiled.stages.names)}")
        show(highlighted(compiled.stages[args.stage].module))
        return 0
    show(compiled.stages)
    show_stages(compiled.stages)
    for title, view in (("what the kernels are made of", compiled.kernels),
                        ("the kernels' source", highlighted(compiled.source)), ("tiles", compiled.tiling),
                        ("memory", compiled.memory), ("this program is used when", compiled.compilations)):
        heading(title)
        show(view)
    return 0


def load(target: str) -> Callable:
    """The function that ``FILE:FUNCTION`` names."""
    path, colon, name = target.rpartition(":")
    if not colon or not name.isidentifier():
        raise UsageError(f"expected FILE:FUNCTION, got {target!r}")
    if not os.path.isfile(path):
        raise UsageError(f"no file {path!r}")
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    sys.modules[spec.name] = module                          # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        there = ", ".join(n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == spec.name)
        raise UsageError(f"{path} has no function {name!r}" + (f"; it has {there}" if there else ""))
    return function


def parse_shapes(text: str, dtype: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shapes and dtypes by argument name.

    >>> parse_shapes("x=5x8,ids=5:i64,s=()", "f32")
    {'x': ((5, 8), 'f32'), 'ids': ((5,), 'i64'), 's': ((), 'f32')}
    """
    shapes: dict[str, tuple[tuple[int, ...], str]] = {}
    for item in filter(None, text.split(",")):
        name, equals, shape = item.partition("=")
        shape, colon, own = shape.partition(":")
        sizes = [] if shape in ("", "()") else shape.split("x")
        if not equals or not name.isidentifier() or not all(s.isdigit() for s in sizes):
            raise UsageError(f"expected NAME=5x8 in --shapes, got {item!r}")
        if colon and own not in NUMPY_DTYPES:
            raise UsageError(f"no dtype {own!r} in {item!r}; there are {', '.join(NUMPY_DTYPES)}")
        shapes[name] = (tuple(map(int, sizes)), own if colon else dtype)
    return shapes


def example_arguments(function: Callable, shapes: dict[str, tuple[tuple[int, ...], str]]) -> list[np.ndarray]:
    """An array for each parameter.  Parameters with a default may be left out, from the first such one on."""
    parameters = inspect.signature(function).parameters
    unknown = [name for name in shapes if name not in parameters]
    if unknown:
        raise UsageError(f"{function.__name__} has no argument {unknown[0]!r}; it has {', '.join(parameters)}")
    missing = [name for name, p in parameters.items() if name not in shapes and p.default is p.empty]
    if missing:
        raise UsageError(f"--shapes says nothing about {', '.join(missing)}; for example --shapes {missing[0]}=5x8")
    gap = next((name for name, p in zip(parameters, shapes, strict=False) if name not in shapes), None)
    if gap is not None:
        raise UsageError(f"--shapes says nothing about {gap}, which stands before arguments that it names")
    rng = np.random.default_rng(0)
    return [example(rng, *shapes[name]) for name in parameters if name in shapes]


def example(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Normally distributed numbers, or small integers that are valid indices of almost anything."""
    numpy_dtype = NUMPY_DTYPES[dtype]
    values = rng.standard_normal(shape) if numpy_dtype.kind in "fc" else rng.integers(0, 2, shape)
    values = values + 1j * rng.standard_normal(shape) if numpy_dtype.kind == "c" else values
    return np.asarray(values).astype(numpy_dtype)

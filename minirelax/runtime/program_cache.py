"""Built programs by the text of their trace, kept beside the object code: a warm process runs no pass at all.

An entry holds the built program and what prepares its weights, pickled.  It lies in the object-code cache under the same
rules (written by this user only, verified before use), so it is trusted exactly as much as the machine code there.  The key
is the traced module's text, the options, for how many threads memory is planned, what workspaces its library routines have, and
every source file of this package: whoever edits a pass gets a new program.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
from dataclasses import replace

from minirelax.errors import PACKAGE, LibraryError
from minirelax.ir.checked import kernels_are_checked
from minirelax.ir.graph import CallLibrary, Module
from minirelax.ir.library import makes_room
from minirelax.ir.op import OPS
from minirelax.ir.types import Tuple
from minirelax.ir.workspace import workspace_type
from minirelax.passes.options import Options
from minirelax.runtime import object_cache, pool
from minirelax.runtime.executable import Executable, preparation


def key_text(module: Module, options: Options) -> str:
    """What decides the program that a traced module becomes."""
    machine = f"{options.key} {pool.most_threads()}"
    return f"program{' with checks' * kernels_are_checked()}\n{machine}\n{_workspaces(module)}{_package()}\n{module}"


def compiled(module: Module, options: Options) -> Executable:
    """The program of a traced module: the one that is kept, or else compiled and kept; with rules of a user's always compiled.

    What takes longer than a second shows a line about it on a terminal.  Raises what `pipeline.compile_module` raises.
    """
    key = "" if options.has_rules else key_text(module, options)
    found = load(key, module, options) if key else None
    if found is None:
        from minirelax.explore import Progress
        from minirelax.pipeline import compile_module

        with Progress() as report:
            found = compile_module(module, options, progress=report)
        if key:
            store(key, found)
    return found


def load(key: str, module: Module, options: Options) -> Executable | None:
    """The executable stored under a key, or None.  It makes the stages from `module` again, should anybody ask for them."""
    data = object_cache.read(key)
    if data is None:
        return None
    try:
        built, prepare = pickle.loads(data)
    except Exception:  # whole, but of classes that are no more: the key should have told, compiling again always helps
        return None

    def stages():
        from minirelax.pipeline import all_stages

        return all_stages(module, options)

    return Executable(built, prepare, stages, origin=(module, options))


def store(key: str, executable: Executable) -> None:
    """Keep an executable under a key."""
    built = replace(executable.built, codes=())
    object_cache.write(key, pickle.dumps((built, preparation(executable.module)), protocol=pickle.HIGHEST_PROTOCOL))


def _workspaces(module: Module) -> str:
    """A line for each routine that has a workspace; one that cannot say what it needs fails when the program is compiled."""
    lines = {}
    for b in (b for f in module.functions for b in f.bindings):
        if isinstance(b.value, CallLibrary) and b.value.routine not in OPS and makes_room(b.var.type):
            outputs = b.var.type.items if isinstance(b.var.type, Tuple) else (b.var.type,)
            with contextlib.suppress(LibraryError):
                call = b.value
                if needed := workspace_type(call.routine, [a.type for a in call.args], outputs, call.sizes):
                    lines[f"{b.var.name}: {call.routine} works in {needed}\n"] = None
    return "".join(lines)


@functools.cache
def _package() -> str:
    """Name, size and time of every source file of this package."""
    found = []
    for folder, _, files in os.walk(PACKAGE):
        for name in files:
            if name.endswith(".py"):
                status = os.stat(os.path.join(folder, name))
                found.append(f"{folder[len(PACKAGE):]}/{name} {status.st_size} {status.st_mtime_ns}")
    return "\n".join(sorted(found))

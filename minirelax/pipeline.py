"""The compiler on one page: what happens to a program, in order.

Each entry is a function from module to module, documented where it is defined; `run` applies them one by one, verifies
after each, and keeps every stage.

>>> [p.__name__ for p in passes()]             # doctest: +NORMALIZE_WHITESPACE
['resolve_shapes', 'simplify', 'fold_constants', 'hoist_invariants', 'merge_common', 'merge_contractions',
 'eliminate_dead_code', 'bind_parameters', 'legalize', 'annotate_patterns', 'fuse_ops', 'fuse_kernels',
 'split_reductions', 'pack_weights', 'lower_calls', 'write_in_place', 'lift_workspaces', 'reuse_inputs', 'plan_memory',
 'bind_shapes']
"""

from __future__ import annotations

import time
from collections.abc import Callable

from minirelax.codegen.numba_cpu import kernel_plan, register_tiles
from minirelax.ir.dim import Dim, floordiv
from minirelax.ir.graph import Module
from minirelax.ir.loop import Kernel
from minirelax.passes.annotate_patterns import annotate_patterns
from minirelax.passes.base import Pass, Stage, run
from minirelax.passes.bind_parameters import bind_parameters
from minirelax.passes.bind_shapes import bind_shapes
from minirelax.passes.choose_libraries import choose_libraries
from minirelax.passes.eliminate_dead_code import eliminate_dead_code
from minirelax.passes.fold_constants import fold_constants
from minirelax.passes.fuse_kernels import fuse_kernels
from minirelax.passes.fuse_ops import fuse_ops
from minirelax.passes.group_patterns import group_patterns
from minirelax.passes.hoist_invariants import hoist_invariants
from minirelax.passes.legalize import legalize
from minirelax.passes.library_cost import Costs
from minirelax.passes.lift_workspaces import lift_workspaces
from minirelax.passes.lower_calls import lower_calls
from minirelax.passes.merge_common import merge_common
from minirelax.passes.merge_contractions import merge_contractions
from minirelax.passes.options import Options
from minirelax.passes.pack_weights import WIDTHS, pack_weights
from minirelax.passes.plan_memory import Bounds, plan_memory
from minirelax.passes.resolve_shapes import resolve_shapes
from minirelax.passes.reuse_inputs import reuse_inputs
from minirelax.passes.simplify import simplify
from minirelax.passes.split_reductions import split_reductions
from minirelax.passes.write_in_place import write_in_place
from minirelax.runtime.build import build
from minirelax.runtime.executable import Executable, preparation
from minirelax.runtime.pool import most_threads
from minirelax.runtime.routine_cost import nanoseconds

GRAPH_PASSES: tuple[Pass, ...] = (  # on ops
    resolve_shapes,
    simplify,
    fold_constants,
    hoist_invariants,
    merge_common,
    merge_contractions,
    eliminate_dead_code,
    bind_parameters,
)
KERNEL_PASSES: tuple[Pass, ...] = (legalize, annotate_patterns, fuse_ops, fuse_kernels, split_reductions)  # ops become kernels


def call_passes(bounds: Bounds | None = None, width: Callable[[str], int] = WIDTHS.__getitem__) -> tuple[Pass, ...]:
    """From kernel calls to statements on planned memory; `bounds` as in `plan_memory`, `width` as in `pack_weights`."""
    memory = write_in_place, lift_workspaces(workspace), reuse_inputs, plan_memory(bounds)
    return pack_weights(width), lower_calls, *memory, bind_shapes


def rule_passes(options: Options) -> tuple[Pass, ...]:
    """The passes that apply a user's rules, if there are any: libraries first."""
    libraries = (choose_libraries(options.libraries, Costs(kernel_cost, nanoseconds)),) if options.libraries else ()
    return libraries + ((group_patterns(options.groups),) if options.groups else ())


def passes(options: Options | Bounds | None = None, width: Callable[[str], int] = WIDTHS.__getitem__) -> tuple[Pass, ...]:
    """All passes, in order, but for those that the options leave out; bounds alone are options, too."""
    options = Options.of(options)
    *graph, last = GRAPH_PASSES  # weights are prepared after the rules
    every = (*graph, *rule_passes(options), last, *KERNEL_PASSES, *call_passes(options.bounds, width))
    return tuple(p for p in every if p.__name__ not in options.without)


def compile_module(
    module: Module,
    bounds: Options | Bounds | None = None,
    progress: Callable[..., None] | None = None,
    **options: object,
) -> Executable:
    """A traced module as a program that runs natively, with all its stages.

    Further `options` are those of `minirelax.passes.options.Options`: ``without=("fuse_ops",)``.  `progress` is told
    ``(stage, done, total)`` as the work goes on.  Raises CodegenError for a kernel that cannot be compiled, and ArgumentError for
    an option that does not exist.
    """
    tell, chosen = progress or (lambda stage, done=0, total=0: None), Options.of(bounds, **options)
    stages = module_stages(module, chosen, lambda stage: tell(stage.name))
    start = time.perf_counter()
    built = build(stages[-1].module, lambda i, k, name: tell(f"planning {name}", i + 1, k))
    prepare = preparation(stages[-1].module)
    executable = Executable(built, prepare, (), lambda i, k, name: tell(f"compiling {name}", i + 1, k),
                            (module, chosen))
    executable.keep((*stages, Stage("build", built, 1e3 * (time.perf_counter() - start))))
    return executable


def module_stages(
    module: Module, options: Options | Bounds | None = None, on_stage: Callable[[Stage], None] | None = None
) -> tuple[Stage, ...]:
    """A traced module after each pass, for this machine."""
    return run(module, passes(options, panel_width), on_stage)


def all_stages(module: Module, options: Options | Bounds | None = None) -> tuple[Stage, ...]:
    """The same, and the built program: what `compile_module` keeps."""
    stages = module_stages(module, options)
    return *stages, Stage("build", build(stages[-1].module), 0.0)


def panel_width(dtype: str) -> int:
    """Columns in a packed panel: what this machine's register tiles take."""
    return register_tiles()[dtype].width


def kernel_cost(kernel: Kernel) -> Dim:
    """Nanoseconds that a kernel is planned to take, its tiles shared by all threads."""
    plan = kernel_plan(kernel)
    return plan.cost if plan.tiles == 1 else floordiv(plan.cost, most_threads())


def workspace(kernel: Kernel) -> tuple[int, Dim]:
    """How many threads of this machine may run a kernel, and the bytes that each needs."""
    plan = kernel_plan(kernel)
    return 1 if plan.tiles == 1 else most_threads(), plan.scratch_bytes


__all__ = ["GRAPH_PASSES", "KERNEL_PASSES", "Stage", "call_passes", "compile_module", "passes", "run"]

"""Choose the plan of a kernel: register tiles for contractions of f32 and f64, rows for everything else."""

from __future__ import annotations

from collections.abc import Mapping

from minirelax.ir.loop import Kernel
from minirelax.schedule.contraction import ContractionPlan, RegisterTile, plan_contraction
from minirelax.schedule.rows import RowPlan, plan_rows

Plan = ContractionPlan | RowPlan


def plan_kernel(kernel: Kernel, tiles: Mapping[str, RegisterTile]) -> Plan:
    """The plan of any kernel; `tiles` are the machine's register tiles by dtype."""
    for block in kernel.blocks[:1]:
        if block.value.dtype in tiles:
            plan = plan_contraction(kernel, tiles[block.value.dtype])
            if plan is not None:
                return plan
    return plan_rows(kernel)

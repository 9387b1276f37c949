"""Kernels for the CPU: plan, Numba source, and what the source's names mean.

`kernel_code` needs no Numba: a warm process finds the object code of the source in the cache and never compiles.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

from minirelax.codegen.contraction import contraction_source
from minirelax.codegen.intrinsics import SIGNED, UNSIGNED, numba_intrinsics
from minirelax.codegen.kernel import Signature
from minirelax.codegen.micro_kernels import DTYPES, tile_shape
from minirelax.codegen.rows import row_source
from minirelax.codegen.scalars import LIBM
from minirelax.ir.dim import Dim
from minirelax.ir.loop import Kernel
from minirelax.schedule.contraction import ContractionPlan, RegisterTile
from minirelax.schedule.machine import Machine, detect
from minirelax.schedule.plan import Plan, plan_kernel


@dataclass(frozen=True)
class KernelCode:
    """A kernel ready to compile: its plan, its source (one function called `function`), its argument layout."""

    kernel: Kernel
    plan: Plan
    source: str
    function: str
    signature: Signature

    @property
    def tiles(self) -> Dim:
        """How many tiles a call has, in the kernel's sizes."""
        return self.plan.tiles

    @property
    def cost(self) -> Dim:
        """Estimated nanoseconds on one core, in the kernel's sizes."""
        return self.plan.cost

    @property
    def scratch_bytes(self) -> Dim:
        """Scratch memory per thread, in the kernel's sizes."""
        return self.plan.scratch_bytes

    @property
    def may_fail(self) -> bool:
        """Does it look for indices that are out of range?"""
        return "error[0]" in self.source or "(error, " in self.source

    @property
    def table_dtype(self) -> str | None:
        """The dtype whose register tiles the kernel calls, if any."""
        return self.plan.dtype if isinstance(self.plan, ContractionPlan) else None


@functools.cache
def register_tiles(machine: Machine | None = None) -> dict[str, RegisterTile]:
    """The register tiles of a machine (default: this one) by dtype."""
    machine = machine or detect()
    shapes = {d: tile_shape(machine, d) for d in DTYPES}
    return {d: RegisterTile(s.mr_max, s.width) for d, s in shapes.items()}


@functools.lru_cache(1024)
def kernel_plan(kernel: Kernel, machine: Machine | None = None) -> Plan:
    """The plan of a kernel for a machine (default: this one)."""
    return plan_kernel(kernel, register_tiles(machine))


def kernel_code(kernel: Kernel, machine: Machine | None = None) -> KernelCode:
    """Plan a kernel and write its source."""
    plan = kernel_plan(kernel, machine)
    source = contraction_source(plan) if isinstance(plan, ContractionPlan) else row_source(plan)
    return KernelCode(kernel, plan, str(source.out), source.function_name, source.signature)


@functools.cache
def source_globals() -> dict[str, object]:
    """The meaning of every name that kernel source uses.  Imports Numba."""
    import numba
    from numba import types

    casts = {"f32": types.float32, "f64": types.float64, "c64": types.complex64, "c128": types.complex128}
    casts |= {d: getattr(types, d.replace("i", "int")) for d in SIGNED}
    casts |= {d: getattr(types, d.replace("u", "uint")) for d in UNSIGNED}
    libm = {f"math_{n}": getattr(math, n) for n in LIBM.values()}
    return {
        **numba_intrinsics(),
        **casts,
        **libm,
        "inf": math.inf,
        "nan": math.nan,
        "math_exp2": numba.njit(_exp2),
        "math_cbrt": numba.njit(_cbrt),
    }


def _exp2(x):
    return 2.0**x


def _cbrt(x):
    root = math.copysign(abs(x) ** (1.0 / 3.0), x)
    return root if root == 0.0 or math.isinf(root) or math.isnan(root) else root - (root * root * root - x) / (3.0 * root * root)

"""Addresses of the register tiles' sweeps: compiled once per machine, kept in the object-code cache, loaded once per process.

>>> sweep = sweep_address("f32")
>>> sweep == sweep_address("f32") != 0
True
"""

from __future__ import annotations

import functools

from minirelax.codegen import micro_kernels
from minirelax.runtime import object_cache
from minirelax.runtime.machine_code import ObjectCode
from minirelax.schedule.machine import Machine, detect


def sweep_address(dtype: str) -> int:
    """The address of the sweep for ``"f32"`` or ``"f64"`` on this machine (KeyError otherwise); see `codegen.micro_kernels`."""
    return _addresses(detect())[dtype]


@functools.cache
def _addresses(machine: Machine) -> dict[str, int]:
    names = tuple(micro_kernels.SWEEPS.values())
    key = f"register tiles {micro_kernels.VERSION} {machine.name} {machine.isa} {machine.features} {' '.join(names)}"
    found = object_cache.load_or_compile(key, lambda: ObjectCode(micro_kernels.object_code(machine), names))
    return {dtype: found[name] for dtype, name in micro_kernels.SWEEPS.items()}

"""Addresses of the register tiles: compiled once per machine, kept in the object-code cache, loaded once per process.

>>> table = tile_table("f32")
>>> len(table.addresses) == table.mr_max + 1
True
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from minirelax.codegen import micro_kernels
from minirelax.runtime import object_cache
from minirelax.runtime.machine_code import ObjectCode
from minirelax.schedule.machine import Machine, detect


@dataclass(frozen=True, eq=False)
class TileTable:
    """The tiles of one dtype: `addresses[r]` is the tile with r rows, `addresses[0]` the sweep over many rows (int64).

    A tile is nv vectors of `lanes` elements wide; see `codegen.micro_kernels` for what it computes.
    """

    lanes: int
    nv: int
    mr_max: int
    addresses: np.ndarray

    @property
    def width(self) -> int:
        """Columns of a tile, and of a packed panel of b."""
        return self.nv * self.lanes


def tile_table(dtype: str) -> TileTable:
    """The tiles for ``"f32"`` or ``"f64"`` on this machine (KeyError otherwise); the array cannot be written to."""
    return _tables(detect())[dtype]


@functools.cache
def _tables(machine: Machine) -> dict[str, TileTable]:
    names = micro_kernels.symbols(machine)
    flat = tuple(name for group in names.values() for name in group)
    key = f"register tiles {micro_kernels.VERSION} {machine.name} {machine.isa} {machine.features} {' '.join(flat)}"
    found = object_cache.load_or_compile(key, lambda: ObjectCode(micro_kernels.object_code(machine), flat))
    shapes = {dtype: micro_kernels.tile_shape(machine, dtype) for dtype in names}
    return {dtype: _table(shapes[dtype], [found[name] for name in group]) for dtype, group in names.items()}


def _table(shape: micro_kernels.TileShape, addresses: list[int]) -> TileTable:
    array = np.array(addresses, np.int64)
    array.flags.writeable = False
    return TileTable(shape.lanes, shape.nv, shape.mr_max, array)

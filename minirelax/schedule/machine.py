"""The machine that a program is compiled for: instruction set, vector registers, caches and cores.

A `Machine` is plain data.  `detect` fills one in for this process; another can be written by hand, to reason
about a processor that is not here or to compile for it.

>>> laptop = Machine("laptop", "avx2", caches=(Cache(1, 32768), Cache(2, 524288)), cores=4)
>>> laptop.lanes("f32"), laptop.lanes("f64"), laptop.vector_registers
(8, 4, 16)
>>> print(laptop)
laptop: avx2, 16 registers of 32 bytes (8 f32, 4 f64), 4 cores
  L1  32 KiB, lines of 64 bytes
  L2  512 KiB, lines of 64 bytes
>>> with using(laptop):
...     detect().name
'laptop'
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

Isa = Literal["avx512", "avx2", "sse", "neon", "generic"]

# Bytes in a vector register, and how many of them the instruction set has.  "generic" assumes the least that any
# 64-bit processor offers; LLVM splits or scalarises what the processor lacks.
_VECTORS = {"avx512": (64, 32), "avx2": (32, 16), "sse": (16, 16), "neon": (16, 32), "generic": (16, 16)}
_ITEM_BYTES = {"bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8} | {
    "c64": 8, "c128": 16}
_CPU_FOLDER = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Cache:
    """One level of data cache: its number, capacity and line in bytes, and whether several cores share it."""

    level: int
    bytes: int
    line: int = 64
    shared: bool = False

    def __str__(self) -> str:
        size = f"{self.bytes // 1024} KiB" if self.bytes < 2**20 else f"{self.bytes / 2**20:g} MiB"
        return f"L{self.level}  {size}, lines of {self.line} bytes" + (", shared" if self.shared else "")


# What is assumed where the system does not tell; small enough to be safe on any processor of the last decade.
_ASSUMED_CACHES = (Cache(1, 32 * 1024), Cache(2, 256 * 1024), Cache(3, 4 * 2**20, shared=True))


@dataclass(frozen=True)
class Machine:
    """A processor as the compiler sees it.

    `name` is LLVM's name of the processor and `features` LLVM's feature string (``"+avx2,+fma"``; empty: what the
    name implies).  `caches` lists the data caches from the core outwards, `cores` counts those this process may use.
    """

    name: str
    isa: Isa = "generic"
    caches: tuple[Cache, ...] = _ASSUMED_CACHES
    cores: int = 1
    features: str = ""

    @property
    def vector_bytes(self) -> int:
        """Bytes in one vector register."""
        return _VECTORS[self.isa][0]

    @property
    def vector_registers(self) -> int:
        """Number of vector registers."""
        return _VECTORS[self.isa][1]

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` (``"f32"``, ``"i64"``, ...) in one vector register.  KeyError: not a dtype."""
        return self.vector_bytes // _ITEM_BYTES[dtype]

    def cache(self, level: int) -> Cache:
        """The cache of this level, or the outermost one if there are fewer levels."""
        return next((c for c in self.caches if c.level == level), self.caches[-1])

    def __str__(self) -> str:
        head = (
            f"{self.name}: {self.isa}, {self.vector_registers} registers of {self.vector_bytes} bytes "
            f"({self.lanes('f32')} f32, {self.lanes('f64')} f64), {self.cores} core{'s' * (self.cores != 1)}"
        )
        return "\n".join([head, *(f"  {c}" for c in self.caches)])


_override: Machine | None = None


def detect() -> Machine:
    """The machine to compile for: the one set by `using`, else this processor (found once per process)."""
    return _override or _detect_host()


@contextmanager
def using(machine: Machine) -> Iterator[Machine]:
    """Within the ``with`` block, `detect` returns `machine`, in every thread."""
    global _override
    previous, _override = _override, machine
    try:
        yield machine
    finally:
        _override = previous


@cache
def _detect_host() -> Machine:
    import llvmlite.binding as llvm  # 50 ms, and only needed when something is compiled or scheduled

    try:
        features = llvm.get_host_cpu_features()
    except RuntimeError:  # LLVM does not know this kind of processor
        features = llvm.FeatureMap()
    return Machine(
        name=llvm.get_host_cpu_name(),
        isa=_isa(features, llvm.get_process_triple()),
        caches=_read_caches() or _ASSUMED_CACHES,
        cores=_usable_cores(),
        features=features.flatten(),
    )


def _isa(features: dict[str, bool], triple: str) -> Isa:
    """The widest instruction set that the features allow; AVX-512 without its DQ and VL parts counts as AVX2."""
    if triple.startswith(("x86_64", "amd64")):
        if all(features.get(f"avx512{part}") for part in ("f", "dq", "vl", "bw")):
            return "avx512"
        return "avx2" if features.get("avx2") and features.get("fma") else "sse"
    return "neon" if triple.startswith(("aarch64", "arm64")) else "generic"


def _read_caches(folder: Path = _CPU_FOLDER / "cpu0" / "cache") -> tuple[Cache, ...]:
    """The data caches listed by Linux, or () where there is no such list."""
    found = {}
    for index in sorted(folder.glob("index*")):
        try:
            names = ("type", "level", "size", "coherency_line_size", "shared_cpu_list")
            kind, level, size, line, cpus = ((index / name).read_text().strip() for name in names)
            if kind != "Instruction":
                found[int(level)] = Cache(int(level), _parse_size(size), int(line), shared="-" in cpus or "," in cpus)
        except (OSError, ValueError):
            continue
    return tuple(found[level] for level in sorted(found))


def _parse_size(text: str) -> int:
    """Linux writes ``32K`` or ``1M``; a plain number counts bytes."""
    unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:], 0)
    return int(text[:-1]) * unit if unit else int(text)


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1

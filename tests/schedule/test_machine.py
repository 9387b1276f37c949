"""The description of the machine: detected, written by hand, printed."""

import os

import pytest

from minirelax.schedule import machine as machines
from minirelax.schedule.machine import Cache, Machine, detect, using


def test_detected_machine_is_plausible_and_cached():
    found = detect()
    assert found is detect()
    assert found.name and found.cores >= 1
    if hasattr(os, "sched_getaffinity"):
        assert found.cores == len(os.sched_getaffinity(0))
    sizes = [c.bytes for c in found.caches]
    assert sizes == sorted(sizes) and sizes[0] >= 8 * 1024
    assert [c.level for c in found.caches] == sorted({c.level for c in found.caches})


def test_lanes_follow_the_vector_width():
    wide = Machine("any", "avx512")
    assert [wide.lanes(d) for d in ("f32", "f64", "i8", "i16", "bool", "u64")] == [16, 8, 64, 32, 64, 8]
    assert Machine("any", "neon").lanes("f32") == 4
    with pytest.raises(KeyError):
        wide.lanes("f16")


def test_using_another_machine_is_undone_even_after_an_error():
    host, other = detect(), Machine("other", "sse", cores=3)
    with pytest.raises(ZeroDivisionError), using(other):
        assert detect() is other
        1 / 0  # noqa: B018
    assert detect() is host


@pytest.mark.parametrize(
    "features, triple, isa",
    [
        (dict.fromkeys(("avx512f", "avx512dq", "avx512vl", "avx512bw", "avx2", "fma"), True), "x86_64-linux", "avx512"),
        ({"avx512f": True, "avx2": True, "fma": True}, "x86_64-linux", "avx2"),
        ({"avx2": True}, "x86_64-linux", "sse"),
        ({}, "aarch64-unknown-linux-gnu", "neon"),
        ({}, "riscv64-unknown-linux-gnu", "generic"),
    ],
)
def test_instruction_set(features, triple, isa):
    assert machines._isa(features, triple) == isa


def test_caches_are_read_from_the_system_folder(tmp_path):
    def level(index, **files):
        (tmp_path / f"index{index}").mkdir()
        for name, text in files.items():
            (tmp_path / f"index{index}" / name).write_text(text + "\n")

    level(0, type="Data", level="1", size="48K", coherency_line_size="64", shared_cpu_list="0")
    level(1, type="Instruction", level="1", size="32K", coherency_line_size="64", shared_cpu_list="0")
    level(2, type="Unified", level="2", size="2M", coherency_line_size="128", shared_cpu_list="0-3")
    level(3, type="Unified", level="3", size="unknown", coherency_line_size="64", shared_cpu_list="0-3")
    assert machines._read_caches(tmp_path) == (Cache(1, 49152), Cache(2, 2**21, 128, shared=True))
    assert machines._read_caches(tmp_path / "missing") == ()


def test_cache_by_level_falls_back_to_the_outermost():
    small = Machine("small", caches=(Cache(1, 1024), Cache(2, 4096)))
    assert (small.cache(1).bytes, small.cache(2).bytes, small.cache(3).bytes) == (1024, 4096, 4096)


def test_printing():
    text = str(Machine("box", "neon", caches=(Cache(1, 65536), Cache(2, 3 * 2**20, 64, shared=True)), cores=1))
    assert text.splitlines() == [
        "box: neon, 32 registers of 16 bytes (4 f32, 2 f64), 1 core",
        "  L1  64 KiB, lines of 64 bytes",
        "  L2  3 MiB, lines of 64 bytes, shared",
    ]

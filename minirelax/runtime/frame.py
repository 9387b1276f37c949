"""The frame: the layout of one call's memory, and the context that owns it.

A frame is an array of 8-byte words. The first HEADER words belong to the native loop (below); every value of the running
program is a slot behind them. A context is a frame together with the memory that its threads use:

* a workspace per thread: room for one call's arguments, then the scratch memory of its kernel (64-byte aligned);
* the claim counters of a parallel region: per call one line with what is done, then one line per thread with its range
  of tiles. A line is 64 bytes.

A context serves one call at a time.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from minirelax.runtime.instructions import Program

HEADER = 16  # words; slots are numbered from here

# Word of the header  # what stands there
ZERO = 0  # always 0: the slot to name where an operand is not needed
MESSAGE = 1  # after FAIL, GUARD, ARRAY: the message index or DIVIDED_BY_ZERO, OVERFLOW; after NOT_CONTIGUOUS: the array's slot
FOUND = 2  # after FAIL, GUARD: the left value; after SCRATCH: the bytes that are needed per thread
EXPECTED = 3  # after FAIL, GUARD: the right value; after SCRATCH: the bytes that there are
WORKSPACE = 4  # address of the first thread's workspace
WORKSPACE_STRIDE = 5  # bytes from one thread's workspace to the next
SCRATCH_OFFSET = 6  # bytes of a workspace before its scratch memory
SCRATCH_BYTES = 7  # bytes of scratch memory per thread
COUNTERS = 8  # address of the claim counters
COUNTED_CALLS = 9  # how many calls of one region the counters have room for
THREADS = 10  # how many threads the workspaces and counters have room for

LINE = 64  # bytes of a cache line


def aligned_words(count: int) -> np.ndarray:
    """`count` zeroed int64 words that start on a cache line.

    >>> aligned_words(3).ctypes.data % 64
    0
    """
    memory = np.zeros(count + LINE // 8, np.int64)
    start = -memory.ctypes.data % LINE // 8
    return memory[start : start + count]


class Context:
    """Frame, workspaces and counters for one call of `program` by at most `threads` threads.

    `address` is the frame's; `slots` views it as int64 (index it with slot numbers); `code` is the linked table, which the
    context keeps alive, as it does its memory, until no worker can still look at it.
    """

    def __init__(self, program: Program, code: np.ndarray, threads: int, scratch_bytes: int = 0):
        self.code, self.code_address = code, code.ctypes.data
        self.slots = aligned_words(program.frame_words)
        self.address = self.slots.ctypes.data
        self._argument_bytes = _round(8 * program.arguments)
        calls = program.parallel_calls if threads > 1 else 0
        self._counters = aligned_words(max(1, calls * (1 + threads)) * LINE // 8)
        self.slots[COUNTERS], self.slots[COUNTED_CALLS] = self._counters.ctypes.data, calls
        self.slots[THREADS] = threads
        self.reserve_scratch(scratch_bytes)
        self._finalizer = weakref.finalize(self, _release, self.address, [self.slots, self._counters, code])
        self._finalizer.atexit = False  # the pool ends its workers then

    def reserve_scratch(self, bytes_per_thread: int) -> None:
        """Make the scratch memory at least this large; the answer to status SCRATCH, whose FOUND word is the argument."""
        scratch = _round(bytes_per_thread)
        stride = self._argument_bytes + scratch
        self._workspace = aligned_words(max(LINE, stride * int(self.slots[THREADS])) // 8)
        self.slots[WORKSPACE], self.slots[WORKSPACE_STRIDE] = self._workspace.ctypes.data, stride
        self.slots[SCRATCH_OFFSET], self.slots[SCRATCH_BYTES] = self._argument_bytes, scratch


def _round(count: int) -> int:
    return (count + LINE - 1) // LINE * LINE


def _release(address: int, memory: list[np.ndarray]) -> None:
    # A worker that came late may still be looking for tiles in the counters; it leaves within microseconds.
    from minirelax.runtime import pool

    pool.quiesce(address)
    memory.clear()

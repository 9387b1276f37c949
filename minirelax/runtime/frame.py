"""The frame: the layout of one call's memory, and the context that owns it.

A frame is an array of 8-byte words. The first HEADER words belong to the native loop (below); every value of the running
program is a slot behind them. A context is a frame together with the memory that its threads use to share the work:

* an argument area per thread: room for one call's arguments (64-byte aligned); what else kernels write is memory of the plan;
* the claim counters of a parallel region: per call one line with what is done, then one line per thread with its range
  of tiles. A line is 64 bytes.

A context serves one call at a time.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np

from minirelax.ir.types import LINE, whole_lines

if TYPE_CHECKING:
    from minirelax.runtime.instructions import Program

HEADER = 16  # words; slots are numbered from here

# Word of the header  # what stands there
ZERO = 0  # always 0: the slot to name where an operand is not needed
MESSAGE = 1  # after FAIL, GUARD, ARRAY: the message index or DIVIDED_BY_ZERO, OVERFLOW; after NOT_CONTIGUOUS: the array's slot
FOUND = 2  # after FAIL, GUARD: the left value
EXPECTED = 3  # after FAIL, GUARD: the right value
ARGUMENTS = 4  # address of the first thread's argument area
ARGUMENT_BYTES = 5  # bytes from one thread's argument area to the next
COUNTERS = 6  # address of the claim counters
COUNTED_CALLS = 7  # how many calls of one region the counters have room for
THREADS = 8  # how many threads the argument areas, the counters and the kernels' workspaces have room for


def aligned_words(count: int) -> np.ndarray:
    """`count` zeroed int64 words that start on a cache line.

    >>> aligned_words(3).ctypes.data % 64
    0
    """
    memory = np.zeros(count + LINE // 8, np.int64)
    start = -memory.ctypes.data % LINE // 8
    return memory[start : start + count]


class Context:
    """Frame, argument areas and counters for one call of `program` by at most `threads` threads.

    `address` is the frame's; `slots` views it as int64 (index it with slot numbers); `code` is the linked table, which the
    context keeps alive, as it does its memory, until no worker can still look at it.
    """

    def __init__(self, program: Program, code: np.ndarray, threads: int):
        self.code, self.code_address = code, code.ctypes.data
        self.slots = aligned_words(program.frame_words)
        self.address = self.slots.ctypes.data
        calls = program.parallel_calls if threads > 1 else 0
        self._counters = aligned_words(max(1, calls * (1 + threads)) * LINE // 8)
        self.slots[COUNTERS], self.slots[COUNTED_CALLS] = self._counters.ctypes.data, calls
        self.slots[THREADS], stride = threads, whole_lines(8 * program.arguments)
        self._arguments = aligned_words(max(LINE, stride * threads) // 8)
        self.slots[ARGUMENTS], self.slots[ARGUMENT_BYTES] = self._arguments.ctypes.data, stride
        self._finalizer = weakref.finalize(self, _release, self.address, [self.slots, self._counters, self._arguments, code])
        self._finalizer.atexit = False  # the pool ends its workers then


def _release(address: int, memory: list[np.ndarray]) -> None:
    # A worker that came late may still be looking for tiles in the counters; it leaves within microseconds.
    from minirelax.runtime import pool

    pool.quiesce(address)
    memory.clear()

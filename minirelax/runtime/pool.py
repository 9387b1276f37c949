"""The pool: native threads that help with parallel regions, and the memory through which callers reach them.

Threads are made with pthread_create and run `worker` of `native_loop.py`: no Python in them. They look for work for some
50 us after the last, then sleep on a futex. The pool's memory is at one address for the life of the process.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import threading
import time

import numpy as np

from minirelax.runtime.frame import aligned_words
from minirelax.runtime.intrinsics import FUTEX

# Words of the pool's memory; what threads write often has a line (8 words) of its own.
GATE = 0
SIGNAL = 8  # its low half is the futex
SLEEPERS = 16
DEBT = 24  # nanoseconds of work done alone because the workers slept
JOB_FRAME, JOB_CODE, JOB_BEGIN, JOB_END, JOB_THREADS = range(32, 37)
THREADS, AWAKE, ASLEEP, CHUNK, SPIN = range(40, 45)  # pool size; nanoseconds
RECORDS = 64  # one line pair per worker
RECORD_WORDS = 16
RECORD_POOL, RECORD_INDEX, RECORD_TILES, RECORD_CLOCK = range(4)  # the clock takes two words

# The gate (see native_loop.py).
INSIDE = 0xFFFF
OPEN, OWNED, EPOCH = 1 << 16, 1 << 17, 1 << 18

MAX_THREADS = 256
AWAKE_NANOSECONDS = 8_000  # going parallel costs the caller about 2 us when the workers are awake,
ASLEEP_NANOSECONDS = 60_000  # and they come after about 30 us when they sleep
CHUNK_NANOSECONDS = 2_000  # work worth a claim
SPIN_NANOSECONDS = 50_000

_lock = threading.Lock()
_threads: list[ctypes.c_ulong] = []
_wanted: int | None = None  # set_num_threads; None: the default
_started = False


@functools.cache
def _memory() -> np.ndarray:
    """Never freed: a worker may still look at it while the process ends."""
    words = aligned_words(RECORDS + RECORD_WORDS * MAX_THREADS)
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(words))
    words[THREADS : SPIN + 1] = 1, AWAKE_NANOSECONDS, ASLEEP_NANOSECONDS, CHUNK_NANOSECONDS, SPIN_NANOSECONDS
    return words


def address() -> int:
    """The pool's memory, with its threads running: the last argument of the native loop."""
    return _address() if _started else _start()


@functools.cache
def _address() -> int:
    return _memory().ctypes.data


def get_num_threads() -> int:
    """How many threads a parallel region may use, the calling one included."""
    return _wanted if _wanted is not None else _default()


def set_num_threads(count: int) -> None:
    """Let parallel regions use up to `count` threads. Results do not depend on it.

    Raises ValueError unless 1 <= count <= 256. Contexts have room for a number of threads of their own, which they got when
    they were made; a region uses no more than that.
    """
    global _wanted
    if not 1 <= count <= MAX_THREADS:
        raise ValueError(f"the number of threads is between 1 and {MAX_THREADS}, not {count}")
    with _lock:
        _wanted = int(count)
        if _started:
            _resize(_wanted)


@functools.cache
def _default() -> int:
    """MINIRELAX_NUM_THREADS, but not more than the processors that this process may use."""
    usable = usable_cores()
    text = os.environ.get("MINIRELAX_NUM_THREADS", "")
    return max(1, min(int(text) if text.isdecimal() else usable, usable, MAX_THREADS))


def most_threads() -> int:
    """How many threads there may be: all processors, or more if somebody asked for more."""
    return max(get_num_threads(), usable_cores())


def usable_cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tiles_by_workers() -> int:
    """How many tiles the workers have executed so far (the callers' not counted)."""
    records = _memory()[RECORDS:].reshape(MAX_THREADS, RECORD_WORDS)
    return int(records[:, RECORD_TILES].sum())


def quiesce(frame: int) -> None:
    """Return when no worker can look at this frame, its counters or its code any more. Not to be called during its run."""
    memory = _memory()
    while memory[GATE] & INSIDE and memory[JOB_FRAME] == frame:
        time.sleep(0)


# --- starting and stopping

def _start() -> int:
    global _started
    with _lock:
        if not _started:
            _resize(get_num_threads())
            _started = True
    return _address()


def _resize(count: int) -> None:
    """Make or end workers until there are count - 1. The lock is held."""
    if FUTEX is None:  # not Linux on x86-64 or AArch64: every region runs on its caller
        count = 1
    memory = _memory()
    memory[THREADS] = min(count, len(_threads) + 1)
    _end_workers(_threads[max(0, count - 1) :])
    del _threads[max(0, count - 1) :]
    while len(_threads) < count - 1 and _add_worker(len(_threads) + 1):
        memory[THREADS] = len(_threads) + 1


def _add_worker(index: int) -> bool:
    """One more thread; False if the system has none to give."""
    import signal

    from minirelax.runtime import vm

    record = _memory()[RECORDS + RECORD_WORDS * index :]
    record[RECORD_POOL], record[RECORD_INDEX] = _address(), index
    thread = ctypes.c_ulong()
    create = ctypes.CDLL(None).pthread_create
    create.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    # The worker leaves as soon as its index is outside the pool, so the pool has to include it first.
    _memory()[THREADS] = index + 1
    # Signals are for Python's threads, but for those that a thread causes itself (faulthandler reports them).
    faults = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - faults)
    try:
        failed = create(ctypes.byref(thread), None, vm.machine().worker, record.ctypes.data)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if failed:
        _memory()[THREADS] = index
        return False
    _threads.append(thread)
    return True


def _end_workers(threads: list[ctypes.c_ulong], patience: float | None = None) -> None:
    """Wait for workers whose index is outside the pool by now; at most `patience` seconds each."""
    if not threads:
        return
    from minirelax.runtime import vm

    vm.machine().wake(_address(), len(_threads))
    libc = ctypes.CDLL(None)
    for thread in threads:
        limit = time.monotonic() + patience if patience is not None else None
        while libc.pthread_tryjoin_np(thread, None) and (limit is None or time.monotonic() < limit):
            time.sleep(0.0002)


def _stop() -> None:
    """At exit: end the workers, without waiting for one that is stuck in a long kernel."""
    global _started
    with _lock:
        _started = False
        if _threads:
            _memory()[THREADS] = 1
            _end_workers(_threads, patience=0.5)
            _threads.clear()


def _forget() -> None:
    """In a child of fork: the threads are the parent's, and so is whatever the memory says about them."""
    global _started, _lock
    _lock = threading.Lock()
    _threads.clear()
    _started = False
    if _memory.cache_info().currsize:
        memory = _memory()
        memory[[GATE, SIGNAL, SLEEPERS, DEBT]] = 0
        memory[THREADS] = 1


atexit.register(_stop)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

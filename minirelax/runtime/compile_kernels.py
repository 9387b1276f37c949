"""Machine code of kernels: from the cache, or compiled by several processes.

Numba and LLVM hold locks while they compile, so threads do not help; processes do.  Each helper is a Python of its own that
imports Numba, then asks for one kernel after the other, while this process compiles, too: whoever is free takes the next one.
Starting helpers costs about a second of their time, so few kernels are compiled here alone.  Whatever happens to a helper, its
kernel is compiled here.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping

from minirelax.errors import PACKAGE
from minirelax.runtime import object_cache, pool
from minirelax.runtime.machine_code import ObjectCode, Options, compile_separately

KERNELS_PER_HELPER = 8  # fewer are not worth a helper's start
START = "import sys; sys.path[:] = {path!r}; from minirelax.runtime.compile_kernels import help_out; help_out()"


def kernel_addresses(sources: dict[str, str], on_kernel: Callable[[int, int, str], None] | None = None) -> dict[str, int]:
    """Addresses by name; `on_kernel(i, k, name)` is told of each of the `k` that have to be compiled.

    Numba is imported if there are any, and not before.  Raises CodegenError for a kernel that cannot be compiled.
    """
    from minirelax.schedule.machine import detect

    options = Options(vector_bits=8 * detect().vector_bytes)  # LLVM's own choice is half of what AVX-512 has

    def compile_missing(missing: tuple[str, ...]) -> dict[str, ObjectCode]:
        return _Compilation({name: sources[name] for name in missing}, options, on_kernel).run()

    return object_cache.load_or_compile_each({n: f"{s}\n{options.text}" for n, s in sources.items()}, compile_missing)


def compiled(name: str, source: str, options: Options) -> ObjectCode:
    """The machine code of one kernel."""
    from minirelax.codegen.numba_cpu import source_globals

    return compile_separately(source, [name], source_globals(), options=options)[name]


class _Compilation:
    """The kernels that wait, and those that are done."""

    def __init__(self, sources: Mapping[str, str], options: Options, on_kernel: Callable[[int, int, str], None] | None):
        self.sources, self.options, self.on_kernel = sources, options, on_kernel
        self.waiting = deque(sorted(sources, key=lambda name: -len(sources[name])))  # long ones first: they would be waited for
        self.done: dict[str, ObjectCode] = {}

    def run(self) -> dict[str, ObjectCode]:
        """All of them, by name."""
        with contextlib.ExitStack() as stack:
            helpers = [stack.enter_context(contextlib.closing(_Helper(self))) for _ in range(helper_count(len(self.sources)))]
            self._compile_here()
            for helper in helpers:
                helper.finish()
        self._compile_here()  # what a helper could not
        return self.done

    def next(self) -> str | None:
        """A kernel that nobody has begun yet."""
        try:
            name = self.waiting.popleft()
        except IndexError:
            return None
        if self.on_kernel:
            self.on_kernel(len(self.sources) - len(self.waiting) - 1, len(self.sources), name)
        return name

    def _compile_here(self) -> None:
        while (name := self.next()) is not None:
            self.done[name] = compiled(name, self.sources[name], self.options)


class _Helper:
    """A process, and the thread that hands it kernels."""

    def __init__(self, work: _Compilation):
        import subprocess  # a warm process needs none

        self.work = work
        self.name: str | None = None  # the kernel that it compiles now
        path = [os.path.dirname(PACKAGE.rstrip(os.sep)), *sys.path]
        self.process = subprocess.Popen(
            [sys.executable, "-c", START.format(path=path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def finish(self) -> None:
        """Wait for the kernel in hand; nothing else is waiting."""
        if self.name is not None:
            self.thread.join()

    def close(self) -> None:
        """End the process: it has done its work, or has not even started, or this process has failed."""
        self.process.kill()
        self.thread.join()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _serve(self) -> None:
        to, back, work = self.process.stdin, self.process.stdout, self.work
        try:
            pickle.load(back)  # it is ready
            while (name := work.next()) is not None:
                self.name = name
                pickle.dump((name, work.sources[name], work.options), to)
                to.flush()
                work.done[name] = pickle.load(back)
        except (OSError, EOFError, ValueError, pickle.UnpicklingError):  # it is dead
            if self.name is not None and self.name not in work.done:
                work.waiting.append(self.name)


def helper_count(kernels: int) -> int:
    """How many processes to start for so many kernels: no more than there are threads to use."""
    return max(0, min(pool.get_num_threads() - 1, kernels // KERNELS_PER_HELPER)) if sys.executable else 0


def help_out() -> None:
    """What a helper does: compile what comes in, until nobody sends any more, or a kernel cannot be compiled."""
    from minirelax.codegen.numba_cpu import source_globals

    source, sink = sys.stdin.buffer, os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever prints does not get between the answers
    source_globals()
    pickle.dump("ready", sink)
    sink.flush()
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            pickle.dump(compiled(*pickle.load(source)), sink)
            sink.flush()

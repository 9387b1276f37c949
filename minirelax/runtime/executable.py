"""An executable: a compiled program that can be bound to weights, called, pickled and inspected.

A call is: store the arguments' addresses in a context's frame, run the first part of the table, allocate the results, run the
second part.  Contexts (frame, arena, scratch) are taken from a free list, so concurrent calls do not meet.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np

from minirelax.errors import OUT_OF_RANGE, CodegenError, IndexingError, RunError
from minirelax.ir.graph import Module
from minirelax.ir.types import NUMPY_DTYPES
from minirelax.runtime import object_cache, pool
from minirelax.runtime.built import Action, Built, Placed
from minirelax.runtime.frame import FOUND, MESSAGE, Context
from minirelax.runtime.instructions import Status
from minirelax.runtime.vm import machine


class Executable:
    """A built program; `bind` gives something callable.

    `prepare` is a module with the function ``bind`` (if weights have to be prepared) and the constants.  `stages` are all
    intermediate modules, or a function that makes them when somebody looks.  Pickles as the built program and the last
    module's text; object code is found in the cache, or compiled again, on loading.
    """

    def __init__(self, built: Built, prepare: Module, stages: tuple | Callable[[], tuple], on_kernel=None):
        self.built, self.prepare = built, prepare
        self._stages = stages
        self._addresses = kernel_addresses(built.sources, on_kernel)

    def __getstate__(self):
        from dataclasses import replace

        module = self.module
        return replace(self.built, codes=()), str(module), {c.name: c.array.value for c in module.constants}

    def __setstate__(self, state):
        from minirelax.ir.graph import Array
        from minirelax.ir.parser import parse
        from minirelax.passes.base import Stage

        built, text, constants = state
        arrays = {name: Array(value) for name, value in constants.items()}
        for array in arrays.values():
            array.remember()
        module = parse(text, arrays)
        self.__init__(built, preparation(module), (Stage("bind_shapes", module, 0.0), Stage("build", built, 0.0)))

    @property
    def stages(self) -> tuple:
        """Every stage, from the trace to the build."""
        if callable(self._stages):
            self._stages = self._stages()
        return self._stages

    def keep(self, stages: tuple) -> None:
        """Remember the stages that led here, with the time that each took."""
        self._stages = stages

    @property
    def module(self) -> Module:
        """The module that was built."""
        return self.stages[-2].module

    @property
    def source(self) -> str:
        """The Numba source of all kernels."""
        return "\n".join(self.built.sources.values())

    @property
    def tiling(self):
        """How each kernel is split into tiles, and what that is reckoned to cost."""
        from minirelax.codegen.numba_cpu import kernel_code
        from minirelax.explore import Tiling

        codes = self.built.codes or tuple(kernel_code(k) for k in self.module.kernels)
        return Tiling(c.plan for c in codes)

    @property
    def table(self) -> str:
        """The instruction table as text."""
        return self.built.program.text()

    def bind(self, bound_arrays: Sequence[np.ndarray] = ()) -> Bound:
        """The program with its weights: `bound_arrays` are those that main's bound parameters name (after preparation by
        the module's function ``bind``, if it has one)."""
        return Bound(self, self._prepare(bound_arrays))

    def _prepare(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Run ``bind`` (transposes, packing) on the user's weights; constants of the module follow."""
        if self.prepare.functions:
            from minirelax.ir.interpret import interpret

            prepared = interpret(self.prepare, *arrays, function="bind")
            arrays = prepared if isinstance(prepared, tuple) else (prepared,)
        expected = len(self.built.bound) - len(self.prepare.constants)
        if len(arrays) != expected:
            raise RunError(f"{expected} bound arrays expected, {len(arrays)} given")
        found = [*arrays, *(c.array.value for c in self.prepare.constants)]
        return [
            np.ascontiguousarray(a, NUMPY_DTYPES[v.type.dtype]).reshape(v.type.shape)
            for a, v in zip(found, self.built.bound, strict=True)
        ]


def preparation(module: Module) -> Module:
    """The part of a module that binding weights needs: the function ``bind`` and the constants."""
    return Module(tuple(f for f in module.functions if f.name == "bind"), (), module.constants)


def kernel_addresses(sources: dict[str, str], on_kernel=None) -> dict[str, int]:
    """Machine code of kernels: from the cache, else compiled (Numba is imported then and not before)."""
    from minirelax.runtime.machine_code import Options, compile_separately
    from minirelax.schedule.machine import detect

    options = Options(vector_bits=8 * detect().vector_bytes)  # LLVM's own choice is half of what AVX-512 has

    def compile_missing(missing: tuple[str, ...]):
        from minirelax.codegen.numba_cpu import source_globals

        found = {}
        for i, name in enumerate(missing):
            if on_kernel:
                on_kernel(i, len(missing), name)
            found |= compile_separately(sources[name], [name], source_globals(), options=options)
        return found

    return object_cache.load_or_compile_each({n: f"{s}\n{options.text}" for n, s in sources.items()}, compile_missing)


class Bound:
    """An executable with its weights: call it with a sequence of arrays.

    A call gives the results as a tuple, or None if ranks, dtypes, sizes or guards of this program do not hold for the
    arrays.  Arrays that are not C-contiguous or aligned are copied first.  Raises IndexingError for a gather out of range.
    """

    def __init__(self, executable: Executable, arrays: list[np.ndarray]):
        built = executable.built
        self.executable, self.arrays, self.built = executable, arrays, built
        self.code = built.program.link(executable._addresses)
        self.machine = machine()
        self.tables = {d: _tile_addresses(d) for d in built.tables}
        self.plain = all(r.kind == "output" and r.index == i for i, r in enumerate(built.results)) and not built.actions
        self._free: list[_Call] = []
        self.run = self._runner()  # what a call does, one Python frame cheaper

    def __call__(self, arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...] | None:
        return self.run(arrays)

    def _runner(self) -> Callable:
        """The call itself, with everything that it needs at hand: on small arrays, looking things up is what costs."""
        free, plain, enter, enter_released = self._free, self.plain, self.machine.enter, self.machine.enter_released
        arena_bytes, empty, threads = self.built.arena_bytes, np.empty, pool.address()
        outputs = tuple(
            (NUMPY_DTYPES[o.dtype], itemgetter(*o.sizes) if o.sizes else lambda slots: ()) for o in self.built.outputs
        )
        (dtype, shape), one = outputs[0] if outputs else (None, None), len(outputs) == 1

        def run(arrays):
            try:
                call = free.pop()
            except IndexError:  # more calls at once than ever before
                call = _Call(self)
            frame, code, slots = call.addresses
            if not pool._started:  # a forked child
                pool.address()
            status = enter(frame, code, 0, threads, *arrays)
            if status & 255 != 5:  # PAUSE: everything fits
                status, arrays = call.second_look(arrays, status)
                if status is None:
                    free.append(call)
                    return None
            if slots[arena_bytes] > call.capacity:
                call.grow(slots[arena_bytes])
            made = (empty(shape(slots), dtype),) if one else tuple([empty(f(slots), d) for d, f in outputs])
            status = enter_released(frame, code, status >> 8, threads, *arrays, *made)
            if status & 255:  # not RETURN
                call.proceed(status, arrays, made)
            if call.error[0]:
                call.error[0] = 0
                free.append(call)
                raise IndexingError("an index is out of range of its axis", OUT_OF_RANGE)
            if not plain:
                made = call.results(arrays, made)
            free.append(call)
            return made

        return run

    def explain(self, arrays: Sequence[np.ndarray]) -> str | None:
        """Why `arrays` do not fit, or None if they do."""
        call = _Call(self)
        status = self.machine.enter(call.frame, call.code, 0, pool.address(), *map(_native, arrays))
        if status & 255 in (Status.PAUSE, Status.RETURN):
            return None
        message = int(call.context.slots[MESSAGE])
        if 0 <= message < len(self.built.checks):
            check, found = self.built.checks[message], int(call.context.slots[FOUND])
            where = f"axis {check.axis} of {check.subject}" if check.axis >= 0 else check.subject
            return (
                f"{where}: {check.expected} expected" + (f", found {found}" if check.kind == "size" else "")
                if check.kind != "guard"
                else check.subject
            )
        return "sizes do not fit"


class _Call:
    """The memory of one running call."""

    def __init__(self, bound: Bound):
        built = bound.built
        self.bound, self.built = bound, built
        self.context = Context(built.program, bound.code, max(pool.get_num_threads(), pool.usable_cores()))
        self.frame, self.code = self.context.address, self.context.code_address
        self.slots = memoryview(self.context.slots)
        self.addresses = self.frame, self.code, self.slots
        self.capacity = 0  # bytes of the arena
        self._error = np.zeros(8, np.int64)
        self.error = memoryview(self._error)
        self.slots[built.error_slot] = self._error.ctypes.data
        for slot, number in built.numbers.items():
            self.slots[slot] = number
        for dtype, slot in built.tables.items():
            self.slots[slot] = bound.tables[dtype].ctypes.data
        for slot, array in zip(built.bound_slots, bound.arrays, strict=True):
            self.slots[slot] = array.ctypes.data

    def second_look(self, arrays: Sequence[np.ndarray], status: int) -> tuple[int | None, Sequence[np.ndarray]]:
        """Arguments that the native check refused: copy what is not contiguous or not native, then ask once more."""
        if status & 255 not in (Status.NOT_CONTIGUOUS, Status.ARRAY) or not all(map(_is_array, arrays)):
            return None, arrays
        arrays = [_native(a) for a in arrays]
        status = self.bound.machine.enter(self.frame, self.code, 0, pool.address(), *arrays)
        return (status if status & 255 == Status.PAUSE else None), arrays

    def grow(self, size: int) -> None:
        """A larger arena, aligned to a cache line."""
        self.arena = np.empty(int(size * 1.25) + 64, np.uint8)
        address = self.arena.ctypes.data
        self.slots[self.built.arena_slot] = address + -address % 64
        self.capacity = self.arena.nbytes - 64

    def proceed(self, status: int, arrays, outputs) -> None:
        """Serve the table: scratch memory that is too small, library calls; until it returns."""
        self.values: dict[int, np.ndarray] = {}
        while status & 255 != Status.RETURN:
            match Status(status & 255):
                case Status.SCRATCH:
                    self.context.reserve_scratch(int(self.slots[FOUND] * 1.25) + 64)
                case Status.LIBRARY:
                    self._library(self.built.actions[self.slots[FOUND]], arrays)
                case Status.FAIL | Status.GUARD:
                    raise RunError(self._failed())
                case other:
                    raise CodegenError(f"the program stopped with status {other.name}")
            status = self.bound.machine.enter_released(self.frame, self.code, status >> 8, pool.address(), *arrays, *outputs)

    def _failed(self) -> str:
        message = int(self.slots[MESSAGE])
        if 0 <= message < len(self.built.checks):
            check = self.built.checks[message]
            return f"match_cast: axis {check.axis} of {check.subject} is {int(self.slots[FOUND])}, expected {check.expected}"
        return "a size expression divides by zero or overflows"

    def _library(self, action: Action, arrays) -> None:
        if not action.routine:
            placed, (index, slot) = action.out[0], action.values[0]
            self._keep(index, slot, np.empty([self.slots[s] for s in placed.sizes], NUMPY_DTYPES[placed.dtype]))
            return
        results = call_library(action.routine, [self._argument(a, arrays) for a in action.args], dict(action.options))
        results = results if isinstance(results, tuple) else (results,)
        for placed, result in zip(action.out, results, strict=False):
            view = self._memory(placed)
            if result.shape != view.shape:
                raise RunError(f"library routine {action.routine} returned shape {result.shape}, expected {view.shape}")
            view[...] = result
        for (index, slot), result in zip(action.values, results, strict=False):
            self._keep(index, slot, np.ascontiguousarray(result))

    def _keep(self, index: int, slot: int, array: np.ndarray) -> None:
        self.values[index] = array
        self.slots[slot] = id(array)

    def _argument(self, where, arrays) -> np.ndarray:
        kind, index = where
        match kind:
            case "argument":
                return arrays[index]
            case "bound":
                return self.bound.arrays[index]
            case "value":
                return self.values[index]
            case "literal":
                return np.asarray(index[0], NUMPY_DTYPES[index[1]])
        return self._memory(index)

    def _memory(self, placed: Placed) -> np.ndarray:
        """A NumPy view of memory that the program owns."""
        shape, dtype = tuple(self.slots[s] for s in placed.sizes), NUMPY_DTYPES[placed.dtype]
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.empty(shape, dtype)
        return read_bytes(self.slots[placed.address], count * dtype.itemsize).view(dtype).reshape(shape)

    def results(self, arrays, outputs) -> tuple[np.ndarray, ...]:
        """The result arrays; what is an argument, a weight or returned twice is copied."""
        found, given = [], set()
        for r in self.built.results:
            match r.kind:
                case "output":
                    array = outputs[r.index].reshape([self.slots[s] for s in r.sizes])
                    found.append(array.copy() if r.index in given else array)
                    given.add(r.index)
                case "value":
                    found.append(self.values[r.index])
                case _:
                    array = arrays[r.index] if r.kind == "argument" else self.bound.arrays[r.index]
                    found.append(np.array(array, order="C").reshape([self.slots[s] for s in r.sizes] if r.sizes else array.shape))
        return tuple(found)


def call_library(routine: str, arrays: Sequence[np.ndarray], options: dict[str, object]):
    """A registered routine on arrays, or an op that has no loop form, by its NumPy meaning."""
    from minirelax.ir.graph import Const, RunLibrary
    from minirelax.ir.library import LIBRARY, library_op

    if routine in LIBRARY:
        return LIBRARY[routine](*arrays, **options)
    import minirelax.ops  # noqa: F401  registers the ops

    placeholder = Const(0, "i64")
    op = library_op(RunLibrary(routine, (placeholder,) * len(arrays), (), tuple(options.items())))
    if op is None:
        raise RunError(f"no library routine is called {routine}", f"register it: library.register({routine!r}, function)")
    return op.numpy(*arrays)


def read_bytes(address: int, count: int) -> np.ndarray:
    """A writable view of raw memory."""
    import ctypes

    return np.frombuffer((ctypes.c_uint8 * count).from_address(address), np.uint8)


def _is_array(x: object) -> bool:
    """An ndarray that means what its elements say: masks and the products of matrices would be lost."""
    return type(x) is np.ndarray or isinstance(x, np.ndarray) and not isinstance(x, np.ma.MaskedArray | np.matrix)


def _native(array: np.ndarray) -> np.ndarray:
    """The same values in C order, aligned, in the machine's byte order, as a plain ndarray with NumPy's own dtype object.

    Unpickled arrays have a dtype object of their own, which even a copy keeps: only a view changes that.
    """
    dtype = array.dtype.newbyteorder("=")
    dtype = next((known for known in NUMPY_DTYPES.values() if known == dtype), dtype)
    if array.dtype == dtype and array.flags.c_contiguous and array.flags.aligned:
        array = np.asarray(array)
    else:
        array = np.array(array, dtype, order="C", copy=True, subok=False)
    return array if array.dtype is dtype else array.view(dtype)


@functools.cache
def _tile_addresses(dtype: str) -> np.ndarray:
    """The table of register tiles: entry r is the address of the tile with r rows."""
    from minirelax.runtime.tiles import tile_table

    return np.ascontiguousarray(tile_table(dtype).addresses, np.int64)

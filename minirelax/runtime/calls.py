"""Calls of an executable that has its weights.

A call is: store the arguments' addresses in a context's frame, run the first part of the table, allocate the results, run the
second part.  Contexts (frame and arena) are taken from a free list, so concurrent calls do not meet.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from minirelax.errors import (
    OUT_OF_RANGE,
    CodegenError,
    IndexingError,
    LibraryError,
    MemoryLimitError,
    RunError,
    ShapeError,
)
from minirelax.ir.library import call_into, call_line, call_returning
from minirelax.ir.types import NUMPY_DTYPES
from minirelax.runtime import pool
from minirelax.runtime.built import Allocate, Built, Choose, Invoke, Library, Placed, Repeat, Reserve, Sweep
from minirelax.runtime.frame import FOUND, MESSAGE, Context
from minirelax.runtime.instructions import Status
from minirelax.runtime.vm import machine

if TYPE_CHECKING:
    from minirelax.runtime.executable import Executable

TOO_DEEP = "a function calls itself too often"
OUT_OF_AXIS = 1  # the error word after an index that the program checks; other values: `minirelax.codegen.bounds`
OUTSIDE = "an index is out of range of its axis"


class Bound:
    """An executable with its weights: call it with a sequence of arrays.

    A call gives the results as a tuple, or None if ranks, dtypes, sizes or guards of this program do not hold for the
    arrays.  Arrays that are not C-contiguous or aligned are copied first.  Raises IndexingError for a gather out of range.
    """

    def __init__(self, executable: Executable, arrays: list[np.ndarray], built: Built | None = None, family: dict | None = None):
        built = executable.built if built is None else built
        self.executable, self.arrays, self.built = executable, arrays, built
        self._family: dict[str, Bound] = {} if family is None else family  # the programs of the module's other functions
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
                call.grow(slots[arena_bytes], arrays)
            made = (empty(shape(slots), dtype),) if one else tuple([empty(f(slots), d) for d, f in outputs])
            status = enter_released(frame, code, status >> 8, threads, *arrays, *made)
            if status & 255:  # not RETURN
                call.proceed(status, arrays, made)
            if call.error[0]:
                error = call.outside()
                free.append(call)
                raise error
            if not plain:
                made = call.results(arrays, made)
            free.append(call)
            return made

        return run

    def function(self, name: str) -> Bound:
        """The program of another function of the module, on the same constants."""
        if name not in self._family:
            built = self.executable.built.functions[name]
            constants = {v.name: a for v, a in zip(self.built.bound, self.arrays, strict=True)}
            arrays = [constants[v.name] for v in built.bound]
            self._family[name] = Bound(self.executable, arrays, built, self._family)
        return self._family[name]

    def invoke(self, arguments: Sequence[object]) -> tuple:
        """The results of a call from inside the program.  Raises ShapeError for arguments that do not fit."""
        try:
            found = self.run(arguments)
        except RecursionError:
            raise RunError(TOO_DEEP, "Python's limit on recursion holds for compiled programs, too", where="") from None
        if found is None:
            raise ShapeError(self.explain(arguments) or "sizes do not fit", where="")
        return found

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
        threads = pool.most_threads()
        self.context = Context(built.program, bound.code, min(threads, built.threads or threads))
        self.frame, self.code = self.context.address, self.context.code_address
        self.slots = memoryview(self.context.slots)
        self.addresses = self.frame, self.code, self.slots
        self.capacity = 0  # bytes of the arena
        self._error = np.zeros(8, np.int64)
        self.error = memoryview(self._error)
        self.slots[built.error_slot] = self._error.ctypes.data
        for slot, number in built.numbers.items():
            self.slots[slot] = number
        for slot, cell in built.cells.items():
            self.slots[slot] = self.frame + 8 * cell
        self.chunks: dict[int, np.ndarray] = {}  # memory of branches and loop bodies, by the slot of its address
        for dtype, slot in built.tables.items():
            self.slots[slot] = bound.tables[dtype].ctypes.data
        for slot, array in zip(built.bound_slots, bound.arrays, strict=True):
            self.slots[slot] = array.ctypes.data

    def second_look(self, arrays: Sequence[np.ndarray], status: int) -> tuple[int | None, Sequence[np.ndarray]]:
        """Arguments that the native check refused: copy what is not contiguous or not native, then ask once more."""
        if status & 255 not in (Status.NOT_CONTIGUOUS, Status.ARRAY):
            return None, arrays
        arrays = [_native(a) if _is_array(a) else a for a in arrays]
        status = self.bound.machine.enter(self.frame, self.code, 0, pool.address(), *arrays)
        return (status if status & 255 == Status.PAUSE else None), arrays

    def grow(self, size: int, arrays: Sequence[np.ndarray]) -> None:
        """A larger arena, aligned to a cache line.  Raises MemoryLimitError for one beyond the limit that was set."""
        self.arena = np.empty(self._allowed(size, arrays) + 64, np.uint8)
        address = self.arena.ctypes.data
        self.slots[self.built.arena_slot] = address + -address % 64
        self.capacity = self.arena.nbytes - 64

    def _allowed(self, size: int, arrays: Sequence[np.ndarray], taken: int = 0) -> int:
        """How many bytes to make for those that are needed: some more, for larger arrays to come, as far as the limit goes."""
        origin = self.bound.executable.origin
        limit = origin[1].memory_limit if origin else None
        if limit is None:
            return int(size * 1.25)
        if taken + size > limit:
            shapes = ", ".join(f"{p.name}: {getattr(a, 'shape', '')}" for p, a in zip(self.built.params, arrays, strict=False))
            what = f"this call needs {taken + size:,} bytes, more than its limit of {limit:,}"
            raise MemoryLimitError(
                f"{what}, for arguments of shapes {shapes}",
                "pass smaller arrays, or raise memory_limit=; .memory shows what takes them",
                where="",
            )
        return min(int(size * 1.25), limit - taken)

    def proceed(self, status: int, arrays, outputs) -> None:
        """Serve the table: library calls, memory that only now has a size; until it returns."""
        self.values: dict[int, np.ndarray] = {}
        self.held = arrays, outputs  # whoever keeps a view of the memory of this call keeps that memory
        while status & 255 != Status.RETURN:
            if self.error[0]:  # what Python would get, or finds to be wrong, means nothing
                raise self.outside()
            match Status(status & 255):
                case Status.LIBRARY:
                    self._act(self.built.actions[self.slots[FOUND]], arrays)
                case Status.FAIL | Status.GUARD | Status.ARRAY:
                    raise RunError(self._failed())
                case other:
                    raise CodegenError(f"the program stopped with status {other.name}")
            status = self.bound.machine.enter_released(self.frame, self.code, status >> 8, pool.address(), *arrays, *outputs)
        self.held = ()

    def outside(self) -> IndexingError:
        """What the error word says, which is cleared: an index out of range."""
        state, number, index, elements = self.error[:4].tolist()
        self.error[0] = 0
        if state != OUT_OF_AXIS:
            from minirelax.runtime.bounds import bounds_error

            return bounds_error(self.bound.executable.module, number, index, elements)
        return IndexingError(OUTSIDE, OUT_OF_RANGE)

    def _failed(self) -> str:
        message = int(self.slots[MESSAGE])
        if 0 <= message < len(self.built.checks):
            check = self.built.checks[message]
            where = f"{check.function or 'match_cast'}: "
            if check.axis < 0:
                return f"{where}{check.subject} is not {check.expected}"
            return f"{where}axis {check.axis} of {check.subject} is {int(self.slots[FOUND])}, expected {check.expected}"
        return "a size expression divides by zero or overflows"

    # ---- what the table leaves to Python

    def _act(self, action, arrays) -> None:
        match action:
            case Library():
                self._library(action, arrays)
            case Allocate(placed=placed, value=index, slot=slot):
                self._keep(index, slot, np.empty([self.slots[s] for s in placed.sizes], NUMPY_DTYPES[placed.dtype]))
            case Reserve(bytes=needed, address=address, capacity=capacity):
                self._reserve(int(self.slots[needed]), address, capacity, arrays)
            case Invoke(callee=callee, args=args, values=values):
                self._keep_all(values, self._argument(callee, arrays)(self._arguments(args, arrays)))
            case Choose(condition=condition, args=args):
                name = action.then if self._argument(condition, arrays) else action.otherwise
                self._keep_all(action.values, self.bound.function(name).invoke(self._arguments(args, arrays)))
            case Repeat():
                self._repeat(action, arrays)
            case Sweep():
                self._sweep(action, arrays)

    def _reserve(self, needed: int, address: int, capacity: int, arrays: Sequence[np.ndarray]) -> None:
        others = self.capacity + sum(m.nbytes - 64 for place, m in self.chunks.items() if place != address)
        memory = np.empty(self._allowed(needed, arrays, others) + 64, np.uint8)
        self.chunks[address] = memory
        at = memory.ctypes.data
        self.slots[address], self.slots[capacity] = at + -at % 64, memory.nbytes - 64

    def _repeat(self, action: Repeat, arrays) -> None:
        test, body = self.bound.function(action.test), self.bound.function(action.body)
        args, init = self._arguments(action.args, arrays), self._arguments(action.init, arrays)
        carried = init
        while test.invoke((*args, *carried))[0]:
            carried = body.invoke((*args, *carried))
        self._keep_all(action.values, map(_copied, init) if carried is init else carried)

    def _sweep(self, action: Sweep, arrays) -> None:
        body, length = self.bound.function(action.body), int(self.slots[action.length])
        args, carried, xs = (self._arguments(part, arrays) for part in (action.args, action.init, action.xs))
        if any(len(x) != length for x in xs):
            raise ShapeError(f"scan: {length} slices expected, the arrays have {', '.join(str(len(x)) for x in xs)}", where="")
        rows = []
        for i in reversed(range(length)) if action.reverse else range(length):
            made = body.invoke((*args, *carried, *(np.asarray(x[i]) for x in xs)))
            carried = made[: len(carried)]
            rows.append(made[len(carried) :])
        carried = carried if rows else map(_copied, carried)
        rows = rows[::-1] if action.reverse else rows
        made = zip(*rows, strict=True) if rows else ()
        stacked = map(np.stack, made) if rows else (_no_rows(dtype, ndim) for dtype, ndim in action.stacked)
        self._keep_all(action.values, (*carried, *stacked))

    def _keep_all(self, values, results) -> None:
        for (index, slot), result in zip(values, results, strict=True):
            self._keep(index, slot, result)

    def _library(self, action: Library, arrays) -> None:
        inputs, out = self._arguments(action.args, arrays), [self._memory(placed) for placed in action.out]
        sizes = [int(self.slots[s]) for s in action.sizes]
        op = _library_op(action.routine, len(inputs), action.options)
        if op and out and hasattr(op, "numpy_into"):
            try:
                op.numpy_into(*inputs, *out)
            except ShapeError as e:
                where = call_line(self.bound.executable.module, action.routine, action.result)
                raise ShapeError(e.what, e.hint, where) from None
            results = ()
        elif op:
            try:
                results = op.numpy(*inputs)
            except IndexError as e:
                raise IndexingError(str(e), OUT_OF_RANGE) from None
            is_shape = isinstance(results, tuple) and all(isinstance(n, int) for n in results)  # one value, not several
            results = results if isinstance(results, tuple) and not is_shape else (results,)
            if out and len(out) != len(results):
                raise RunError(f"{action.routine} gave {len(results)} arrays, not {len(out)}")
            for target, result in zip(out, results, strict=False):
                if result.shape != target.shape:
                    raise RunError(f"{action.routine} gave an array of shape {result.shape}, not {target.shape}")
                target[...] = result
        elif action.values:
            with self._named_line(action):
                results = call_returning(action.routine, inputs, [self._numbers(e) for e in action.expected], sizes)
        else:
            results = ()
            with self._named_line(action):
                call_into(action.routine, inputs, out, sizes, self._memory(action.work) if action.work else None)
        for (index, slot), result in zip(action.values, results, strict=False):
            self._keep(index, slot, result)

    @contextlib.contextmanager
    def _named_line(self, action: Library):
        """A routine's failure names the user's line, which the module has that was built."""
        try:
            yield
        except LibraryError as e:
            where = call_line(self.bound.executable.module, action.routine, action.result)
            raise LibraryError(e.what, e.hint, e.routine, where) from e.__cause__

    def _numbers(self, expected: tuple) -> tuple:
        dtype, sizes = expected
        return dtype, sizes and tuple(None if s is None else int(self.slots[s]) for s in sizes)

    def _keep(self, index: int, slot: int, result: object) -> None:
        """Hold what Python made; the table sees an array in C order, for a shape one of its entries."""
        if isinstance(result, tuple):
            result = np.array(result, np.int64)
        elif isinstance(result, np.ndarray | np.generic):
            result = _native(np.asarray(result))
        self.values[index] = result
        self.slots[slot] = id(result)

    def _arguments(self, sources, arrays) -> tuple:
        return tuple(self._argument(source, arrays) for source in sources)

    def _argument(self, where, arrays) -> object:
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
            case "shape":
                return np.array([self.slots[s] for s in index], np.int64)
            case "entries":
                return self._argument(index, arrays)
            case "function":
                return self.bound.function(index).invoke
        return self._memory(index)

    def _memory(self, placed: Placed) -> np.ndarray:
        """A NumPy view of memory that the program owns."""
        shape, dtype = tuple(self.slots[s] for s in placed.sizes), NUMPY_DTYPES[placed.dtype]
        count = int(np.prod(shape, dtype=np.int64))
        if count == 0:
            return np.empty(shape, dtype)
        owner = getattr(self, "arena", None), tuple(self.chunks.values()), tuple(self.values.values()), self.held
        return read_bytes(self.slots[placed.address], count * dtype.itemsize, owner).view(dtype).reshape(shape)

    def results(self, arrays, outputs) -> tuple[np.ndarray, ...]:
        """The result arrays; what is an argument, a weight or returned twice is copied."""
        found, given = [], set()
        for r in self.built.results:
            match r.kind:
                case "output":
                    array = outputs[r.index].reshape([self.slots[s] for s in r.sizes])
                    found.append(array.copy() if r.index in given else array)
                    given.add(r.index)
                case "value" | "view":
                    value = _copied(self.values[r.index]) if ("value", r.index) in given else self.values[r.index]
                    found.append(value.reshape([self.slots[s] for s in r.sizes]) if r.kind == "view" else value)
                    given.add(("value", r.index))
                case "shape":
                    found.append(tuple(int(self.slots[s]) for s in r.sizes))
                case "function":
                    found.append(self.bound.function(r.dtype).invoke)
                case _:
                    array = arrays[r.index] if r.kind == "argument" else self.bound.arrays[r.index]
                    found.append(np.array(array, order="C").reshape([self.slots[s] for s in r.sizes] if r.sizes else array.shape))
        return tuple(found)


def _copied(value: object) -> object:
    """A value as an array of its own: what a loop without rounds gives is somebody else's memory."""
    return value.copy() if isinstance(value, np.ndarray) else value


def _no_rows(dtype: str, ndim: int) -> np.ndarray:
    """What stacking nothing gives: a size that only a round would tell is 0, as no element has it."""
    return np.zeros((0,) * ndim, NUMPY_DTYPES[dtype])


@functools.lru_cache(1024)
def _library_op(routine: str, inputs: int, options: tuple[tuple[str, object], ...]):
    """The op that a library call with so many inputs stands for, None for a registered routine."""
    import minirelax.ops  # noqa: F401  registers the ops
    from minirelax.ir.graph import Const, RunLibrary
    from minirelax.ir.library import library_op

    return library_op(RunLibrary(routine, (Const(0, "i64"),) * inputs, (), options))


def read_bytes(address: int, count: int, owner: object = None) -> np.ndarray:
    """A writable view of raw memory, which keeps `owner` alive as long as anybody has it, without showing it to them."""
    import ctypes

    memory = (ctypes.c_uint8 * count).from_address(address)
    weakref.finalize(memory, _let_go, owner).atexit = False
    return np.frombuffer(memory, np.uint8)


def _let_go(owner: object) -> None:
    """Called when nobody has the memory any more: only now `owner` may go."""


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
    """What kernels are given to find the register tiles by: the address of their sweep."""
    from minirelax.runtime.tiles import sweep_address

    return np.array([sweep_address(dtype)], np.int64)

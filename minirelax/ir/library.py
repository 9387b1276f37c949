"""The routines that library calls can name: functions of arrays that somebody else wrote, registered under a name.

There is one contract, *destination passing*: a routine is called as ``routine(*inputs, *outputs, *sizes)`` and writes its
outputs, which are there already; it returns nothing (or, as NumPy's functions do, its outputs).  Inputs are read-only; arrays
are C-contiguous; sizes are Python integers.  Where the caller does not know the size of an output (``f32[_]``), nobody can
make room for it: then the routine is called as ``routine(*inputs, *sizes)`` and returns its outputs, an array or a tuple of
arrays.  A routine must depend on nothing but its arguments, since equal calls are made once and unread ones never, and must
keep none of them.  A routine that needs memory to work in can have it declared, and gets it between outputs and sizes: see
`minirelax.ir.workspace`.

What a routine can do wrong in Python is an error that names it, and never harms the program's memory: it gets array objects of
its own, whose base is just their elements' memory, read-only for inputs, so it can neither resize them, nor reach what lies
beside them, nor change what the program thinks of them.  Native code can write anywhere; where everything is checked
(`minirelax.ir.checked`), routines work on copies between guard zones, and damage to a zone, or to an input, is an error, too.

An op with ``library = True`` is not registered: it is called under its own name by its `numpy` rule.

>>> import numpy as np
>>> def add_into(x, y, out, n):
...     np.add(x, y, out=out)
>>> register_library("add_into", add_into) is add_into
True
>>> out = np.empty(3)
>>> call_into("add_into", [np.ones(3), np.arange(3.0)], [out], [3])
>>> out
array([1., 2., 3.])

One that would overwrite what it reads is given a copy's memory, so that the copy is in the program's plan:

>>> def median_into(x, out, work):
...     np.copyto(work, x)
...     out[...] = np.median(work, overwrite_input=True)
>>> _ = register_library("median_into", median_into, workspace=lambda x, out: x)
>>> out = np.empty(())
>>> call_into("median_into", [np.array([5.0, 1.0, 2.0])], [out])
>>> out
array(2.)
"""
from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence

import numpy as np

from minirelax.errors import ArgumentError, LibraryError, RunError, line_text
from minirelax.ir.checked import is_checked
from minirelax.ir.graph import Atom, Binding, CallLibrary, Module, RunLibrary, operand_names, tuple_operands
from minirelax.ir.op import OPS, Op
from minirelax.ir.types import NUMPY_DTYPES, Tensor, Tuple, Type, dtype_name
from minirelax.ir.workspace import WORKSPACES, workspace_at

ROUTINES: dict[str, Callable] = {}
ZONE, PATTERN = 4096, 0xA5                              # bytes around a watched array: a page, and what they hold

Expected = tuple[str | None, tuple[int | None, ...] | None]        # of an output that is returned: dtype, sizes, as far as known


def register_library(name: str, function: Callable, workspace: Callable | None = None) -> Callable:
    """Make `function` known as the library routine `name`, and return it; see the module for how it is called.

    workspace: what memory it needs to work in, a function of the types of inputs and outputs and of the sizes, as the routine
        gets them: ``lambda x, out: f64[x.shape[0]]``, or a number of bytes.  See `minirelax.ir.workspace`.

    Programs find a routine when they call it: registering another function under the name replaces it in all of them, with its
    workspace.  Raises ArgumentError for a name that an op of the compiler has, and for what is not a function.
    """
    if not isinstance(name, str) or not name:
        raise ArgumentError(f"the name of a library routine is a string, not {name!r}", "register_library('my_solver', function)")
    if not callable(function):
        raise ArgumentError(f"register_library({name!r}): not a function: {function!r}", "pass the function itself")
    if name in OPS:
        raise ArgumentError(f"register_library: {name} is an operation of the compiler", f"choose another name: 'my_{name}'")
    if workspace is not None and not callable(workspace):
        hint = "a function of the routine's arguments' types: workspace=lambda x, out: x"
        raise ArgumentError(f"register_library({name!r}): workspace is not a function: {workspace!r}", hint)
    ROUTINES[name] = function
    WORKSPACES.pop(name, None)
    if workspace is not None:
        WORKSPACES[name] = workspace
    return function


def routine(name: str) -> Callable:
    """The registered function.  Raises RunError, with the names that are most like it, if there is none."""
    found = ROUTINES.get(name) or _built_in(name)
    if found is None:
        close = difflib.get_close_matches(name, ROUTINES, 3)
        guess = f"did you mean {' or '.join(close)}? else " if close else ""
        hint = f"{guess}register it first: minirelax.register_library({name!r}, function)"
        raise RunError(f"no library routine is called {name}", hint, where="")
    return found


def _built_in(name: str) -> Callable | None:
    from minirelax.libraries import ROUTINES as built_in  # only here: it is far ahead in the order of the package
    return built_in.get(name)


def makes_room(type_: Type) -> bool:
    """Are all sizes of a library call's result known before it, so that the routine writes where its caller says?"""
    if isinstance(type_, Tuple):
        return bool(type_.items) and all(map(makes_room, type_.items))
    return isinstance(type_, Tensor) and type_.dtype is not None and type_.shape is not None and None not in type_.shape


def call_into(name: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], sizes: Sequence[int] = (),
              work: np.ndarray | None = None) -> None:
    """Let a registered routine write `outputs`; `work` is memory for its workspace, if it has one and the caller such memory.

    Raises LibraryError for whatever it raises, if it returns anything else than outputs, and if it changes the shape, the
    strides or the dtype of one or of its workspace.
    """
    with _Handed(name, inputs, outputs, workspace_at(name, inputs, outputs, sizes, work)) as handed:
        found = _called(name, handed.inputs, [*handed.outputs, *handed.work], sizes)
        handed.check()
        returned = found if isinstance(found, tuple | list) else (found,)
        if found is not None and not all(any(r is o for o in handed.outputs) for r in returned):
            what = f"the library routine {name} returned {_kind(found)}"
            raise LibraryError(what, "it is to write its outputs, the arguments after the inputs, and to return nothing", name)


def call_returning(name: str, inputs: Sequence[np.ndarray], expected: Sequence[Expected],
                   sizes: Sequence[int] = ()) -> tuple[np.ndarray, ...]:
    """What a registered routine returns, as new arrays.  Raises LibraryError for whatever it raises, and for other results."""
    with _Handed(name, inputs) as handed:
        found = _called(name, handed.inputs, [], sizes)
        handed.check()
    arrays = found if isinstance(found, tuple | list) else (found,)
    if found is None or len(arrays) != len(expected):
        what = f"the library routine {name} returned {_kind(found)}"
        raise LibraryError(what, f"it is to return {len(expected)} array{'s' * (len(expected) > 1)}", name)
    return tuple(_checked(name, i, a, e) for i, (a, e) in enumerate(zip(arrays, expected, strict=True)))


def _called(name: str, inputs: list[np.ndarray], outputs: list[np.ndarray], sizes: Sequence[int]) -> object:
    function = routine(name)
    given = ", ".join([*map(_kind, (*inputs, *outputs)), *map(str, sizes)])
    try:
        return function(*inputs, *outputs, *sizes)
    except Exception as e:
        what = f"the library routine {name} raised {type(e).__name__}: {e}"
        raise LibraryError(what, f"it was called as {name}({given})", name) from e


class _Handed:
    """The arrays that a routine gets in place of the program's, and what it may not have done to them."""

    def __init__(self, name: str, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] = (),
                 work: np.ndarray | None = None):
        self.name, self.given = name, [_in_order(a) for a in inputs]
        self.targets = [*outputs, *([] if work is None else [work])]  # what the routine may write to
        self.labels = [f"output {i}" for i in range(len(outputs))] + ["workspace"] * (work is not None)
        self.zones: list[GuardZones] = []
        if is_checked():
            self.zones = [GuardZones(a) for a in (*self.given, *self.targets)]
        memory = [z.array for z in self.zones] or [*self.given, *self.targets]
        self.inputs = [_own(a, writable=False) for a in memory[: len(inputs)]]
        own = [_own(a, writable=True) for a in memory[len(inputs) :]]
        self.outputs, self.work = own[: len(outputs)], own[len(outputs) :]
        self.layouts = [(a.shape, a.dtype, a.strides) for a in own]

    def __enter__(self) -> _Handed:
        return self

    def __exit__(self, *error: object) -> None:
        """What was written between zones goes where it belongs; zones hold, or nothing is believed."""
        if self.zones and error[0] is None:
            for target, zone in zip(self.targets, self.zones[len(self.inputs) :], strict=True):
                target[...] = zone.array

    def check(self) -> None:
        """Raises LibraryError for an output that is another array now, a damaged zone, or an input that was written to."""
        written = zip(self.labels, self.targets, (*self.outputs, *self.work), self.layouts, strict=True)
        for label, target, found, layout in written:
            if (found.shape, found.dtype, found.strides) != layout:
                now = f"strides {found.strides}" if (found.shape, found.dtype) == layout[:2] else _kind(found)
                what = f"the library routine {self.name} made {now} of its {label}, which is {_kind(target)}"
                raise LibraryError(what, "it is to write the elements of the array that it is given", self.name)
        for i, zone in enumerate(self.zones):
            which = f"input {i}" if i < len(self.inputs) else self.labels[i - len(self.inputs)]
            if side := zone.damaged():
                what = f"the library routine {self.name} wrote {side} {which}, which is {_kind(zone.array)}"
                raise LibraryError(what, "sizes and strides that it assumes are not those of the array", self.name)
            if i < len(self.inputs) and zone.array.tobytes() != self.given[i].tobytes():
                what = f"the library routine {self.name} wrote to its {which}, which is {_kind(zone.array)}"
                raise LibraryError(what, "inputs are read-only: others read them, too", self.name)


class GuardZones:
    """A copy of an array between two zones of known bytes.

    >>> zones = GuardZones(np.ones(3, np.int8))
    >>> zones.damaged(), zones.array.tolist()
    ('', [1, 1, 1])
    >>> zones.memory[ZONE + 3] = 1
    >>> zones.damaged()
    'behind'
    """

    def __init__(self, array: np.ndarray):
        self.memory = np.full(2 * ZONE + array.nbytes, PATTERN, np.uint8)
        self.array = np.ndarray(array.shape, array.dtype, self.memory.data, ZONE)
        self.array[...] = array

    def damaged(self) -> str:
        """The side whose zone is not what it was, empty if both are."""
        before, behind = self.memory[:ZONE], self.memory[len(self.memory) - ZONE :]
        return "in front of" if (before != PATTERN).any() else "behind" if (behind != PATTERN).any() else ""


def _in_order(array: np.ndarray) -> np.ndarray:
    return array if array.flags.c_contiguous else np.array(array, order="C")


def _own(array: np.ndarray, writable: bool) -> np.ndarray:
    """An array object of the routine's own, on the same elements; a read-only one cannot be made writable again."""
    memory = memoryview(array.view(np.ndarray))
    return np.asarray(memory if writable else memory.toreadonly())


def _checked(name: str, position: int, found: object, expected: Expected) -> np.ndarray:
    """A returned array as a new one, if it is what was declared."""
    dtype, shape = expected
    fits = isinstance(found, np.ndarray | np.generic) and dtype_name(found.dtype) and (
        dtype in (None, dtype_name(found.dtype)) and (shape is None or len(shape) == found.ndim and all(
            d is None or d == n for d, n in zip(shape, found.shape, strict=True))))
    if not fits:
        what = f"the library routine {name} returned {_kind(found)} as result {position}"
        raise LibraryError(what, f"{Tensor(dtype, shape)} was declared", name)
    return np.array(found, NUMPY_DTYPES[dtype_name(found.dtype)], order="C", subok=False)


def _kind(found: object) -> str:
    """What was passed or returned, in words: ``f32[3, 4]``, or the name of its class."""
    if isinstance(found, tuple | list):
        return f"({', '.join(map(_kind, found))})"
    if not isinstance(found, np.ndarray | np.generic):
        return "nothing" if found is None else f"a value of type {type(found).__name__}"
    name = dtype_name(found.dtype)
    return str(Tensor(name, found.shape)) if name else f"an array of dtype {found.dtype}"


def result_name(binding: Binding) -> str:
    """The name of the (first) array that a library call makes."""
    match binding.value:
        case RunLibrary(out=(first, *_)):
            return first.name
    return binding.var.name if binding.var else ""


def call_line(module: Module, routine: str, result: str) -> str:
    """The user's line with the call of `routine` that makes the value `result`; empty if none is known, or several are."""
    calls = (b for f in module.functions for b in f.bindings if isinstance(b.value, CallLibrary | RunLibrary))
    made = (b.source for b in calls if b.value.routine == routine and result_name(b) == result)
    lines = {line_text(s.file, s.line) for s in made if s is not None}
    return lines.pop() if len(lines) == 1 else ""


def library_op(call: CallLibrary | RunLibrary) -> Op | None:
    """The op that a library call stands for, if its routine is an op's name."""
    cls = OPS.get(call.routine)
    return None if cls is None else cls(**_grouped(cls, call.args), **dict(call.options))


def _grouped(cls: type[Op], args: tuple[Atom, ...]) -> dict[str, Atom | tuple[Atom, ...]]:
    """Arguments by operand field; one field may hold several, it takes what the others leave."""
    names, several = operand_names(cls), tuple_operands(cls)
    spare, rest, found = len(args) - len(names) + 1, list(args), {}
    for name in names:
        count = spare if name in several else 1
        found[name] = tuple(rest[:count]) if name in several else rest[0]
        rest = rest[count:]
    return found

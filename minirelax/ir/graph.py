"""The graph level: modules of functions made of one-operation bindings, in single-assignment form.

Everything here is a frozen dataclass compared by value.  A name is given once, when its binding is made, and is kept by
every pass, so any two stages can be diffed.  The right-hand sides are `Expr`s; an op of `minirelax.ops` *is* an `Expr`.
"""
from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, get_type_hints

import numpy as np

from minirelax.ir.dim import Dim
from minirelax.ir.types import Callable as CallableType
from minirelax.ir.types import Tensor, Type, dtype_name

if TYPE_CHECKING:
    from minirelax.ir.loop import Kernel


@dataclass(frozen=True)
class Var:
    """A named value."""

    name: str
    type: Type

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Const:
    """A scalar written in place: ``maximum(v0, 0.0)``."""

    value: complex | float | int | bool
    dtype: str

    def __eq__(self, other: object) -> bool:           # -0.0 differs from 0.0, and nan equals nan
        return isinstance(other, Const) and self.dtype == other.dtype and repr(self.value) == repr(other.value)

    def __hash__(self) -> int:
        return hash((repr(self.value), self.dtype))

    @property
    def type(self) -> Tensor:
        return Tensor(self.dtype, ())


Atom = Var | Const


@dataclass(frozen=True)
class Source:
    """Where a binding came from: the user's line, the op and its value (``exp v3``), and, if it was made of several, those.

    Without a line, `file` is empty and `line` is 0.
    """

    file: str = ""
    line: int = 0
    name: str = ""
    parts: tuple[Source, ...] = ()

    @property
    def leaves(self) -> tuple[Source, ...]:
        """What it was made of, each once, in order; itself, if it was not made of several."""
        return tuple(dict.fromkeys(leaf for part in self.parts for leaf in part.leaves)) if self.parts else (self,)


def joined(sources: Iterable[Source | None]) -> Source | None:
    """The source of what is made of several bindings: at the last line that is known, with all of them as its parts.

    >>> joined([Source("f.py", 3, "exp v0"), None, Source("f.py", 4, "add v1")])     # doctest: +NORMALIZE_WHITESPACE
    Source(file='f.py', line=4, name='', parts=(Source(file='f.py', line=3, name='exp v0', parts=()),
                                                Source(file='f.py', line=4, name='add v1', parts=())))
    """
    leaves = tuple(dict.fromkeys(leaf for s in sources if s is not None for leaf in s.leaves))
    if len(leaves) < 2:
        return leaves[0] if leaves else None
    last = next((s for s in reversed(leaves) if s.file), leaves[-1])
    return Source(last.file, last.line, "", leaves)


@dataclass(frozen=True)
class Expr:
    """The right-hand side of a binding.  Fields annotated `Atom` (or tuples of it) are its operands; the rest, attributes."""

    def operands(self) -> tuple[Atom, ...]:
        """The values read, in order."""
        return tuple(a for name in operand_names(type(self)) for a in _flat(getattr(self, name)))

    def attributes(self) -> dict[str, object]:
        """What is not an operand, by field name, in declaration order."""
        inside = operand_names(type(self))
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in inside}

    def map_operands(self, fn: Callable[[Atom], Atom]) -> Expr:
        """The same expression on other values."""
        names = operand_names(type(self))
        return replace(self, **{n: _mapped(fn, getattr(self, n)) for n in names}) if names else self


@functools.cache
def operand_names(cls: type[Expr]) -> tuple[str, ...]:
    """The fields of `cls` annotated ``Atom`` or ``tuple[Atom, ...]``."""
    hints = get_type_hints(cls)
    return tuple(f.name for f in fields(cls) if hints[f.name] in (Atom, tuple[Atom, ...]))


@functools.cache
def tuple_operands(cls: type[Expr]) -> tuple[str, ...]:
    """The fields of `cls` that hold several operands: those annotated ``tuple[Atom, ...]``."""
    hints = get_type_hints(cls)
    return tuple(f.name for f in fields(cls) if hints[f.name] == tuple[Atom, ...])


@dataclass(frozen=True)
class MatchCast(Expr):
    """Check at run time that `value` has this type; named sizes that appear here first are bound by it."""

    value: Atom
    type: Type


@dataclass(frozen=True)
class MakeTuple(Expr):
    """Several values as one: printed ``(a, b)``."""

    items: tuple[Atom, ...]


@dataclass(frozen=True)
class TupleItem(Expr):
    """One value of a tuple: printed ``v[0]``."""

    value: Atom
    index: int


@dataclass(frozen=True)
class MakeShape(Expr):
    """Sizes as a value: printed ``shape(n, 4)``."""

    values: tuple[Dim, ...]


@dataclass(frozen=True)
class Alias(Expr):
    """Another name for a value; of a function of the module, that function as a value: printed ``f0: Callable[...] = f``."""

    value: Atom


@dataclass(frozen=True)
class CallFunction(Expr):
    """Call another graph function of this module.  Sizes that no tensor shows come in `Shape` parameters (Relax, figure 8)."""

    function: str
    args: tuple[Atom, ...]


@dataclass(frozen=True)
class CallValue(Expr):
    """Call a function that is a value: printed ``f0(x)``, where `f0` is a name of type `Callable`."""

    callee: Atom
    args: tuple[Atom, ...]


@dataclass(frozen=True)
class Cond(Expr):
    """``then(*args)`` if the condition holds, else ``otherwise(*args)``: two functions of this module."""

    condition: Atom
    then: str
    otherwise: str
    args: tuple[Atom, ...]


@dataclass(frozen=True)
class While(Expr):
    """Carried values, a tuple that starts as `init`, replaced by ``body(*args, *carried)`` while ``test(*args, *carried)``."""

    test: str
    body: str
    args: tuple[Atom, ...]
    init: tuple[Atom, ...]


@dataclass(frozen=True)
class Scan(Expr):
    """``body(*args, *carried, *slices)`` for each of `length` slices of `xs` along their first axis.

    It gives the next carried values and one slice of each stacked result; the value is all of these in a tuple.
    """

    body: str
    args: tuple[Atom, ...]
    init: tuple[Atom, ...]
    xs: tuple[Atom, ...]
    length: Dim
    reverse: bool = False


@dataclass(frozen=True)
class CallKernel(Expr):
    """Run a kernel of this module on freshly allocated outputs; `sizes` are the values of the kernel's size parameters."""

    kernel: str
    args: tuple[Atom, ...]
    sizes: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class CallLibrary(Expr):
    """Call a routine that somebody else wrote, registered by name: NumPy, BLAS, a C function.  See `minirelax.ir.library`.

    `sizes` are further arguments of a registered routine; `options` are the attributes of an op that is called under its name.
    """

    routine: str
    args: tuple[Atom, ...]
    options: tuple[tuple[str, object], ...] = ()
    sizes: tuple[Dim, ...] = ()


@dataclass(frozen=True)
class AllocStorage(Expr):
    """Memory of so many bytes (after plan_memory)."""

    bytes: Dim


@dataclass(frozen=True)
class AllocTensor(Expr):
    """An uninitialised tensor (after lower_calls); in `storage` from byte `offset` on once memory is planned, else wherever."""

    storage: tuple[Atom, ...] = ()
    offset: Dim = 0


@dataclass(frozen=True)
class View(Expr):
    """The same elements in the same (row-major) order under another shape, or some of them, from number `offset` on: no copy."""

    value: Atom
    offset: Dim = 0


@dataclass(frozen=True)
class RunKernel(Expr):
    """A kernel call in destination-passing style: writes `out`.  An effect: its binding has no variable.

    `work` is memory that the kernel may use while it runs, one row of bytes per thread (after lift_workspaces), or empty.
    """

    kernel: str
    args: tuple[Atom, ...]
    out: tuple[Atom, ...]
    sizes: tuple[Dim, ...] = ()
    work: tuple[Atom, ...] = ()


@dataclass(frozen=True)
class RunLibrary(Expr):
    """A library call in destination-passing style: writes `out`.  An effect: its binding has no variable.

    `work` is memory that the routine may use while it runs (after lift_workspaces), or empty.
    """

    routine: str
    args: tuple[Atom, ...]
    out: tuple[Atom, ...]
    options: tuple[tuple[str, object], ...] = ()
    sizes: tuple[Dim, ...] = ()
    work: tuple[Atom, ...] = ()


@dataclass(frozen=True)
class RunCond(Expr):
    """`Cond` in destination-passing style: the chosen branch writes `out`.  An effect."""

    condition: Atom
    then: str
    otherwise: str
    args: tuple[Atom, ...]
    out: tuple[Atom, ...]


@dataclass(frozen=True)
class RunWhile(Expr):
    """`While` in destination-passing style: the last carried values end up in `out`.  An effect.

    The body reads one of `out` and `spare` and writes the other, in turn, so that no round allocates.
    """

    test: str
    body: str
    args: tuple[Atom, ...]
    init: tuple[Atom, ...]
    out: tuple[Atom, ...]
    spare: tuple[Atom, ...]


@dataclass(frozen=True)
class RunScan(Expr):
    """`Scan` in destination-passing style: `out` are the carried values, then the stacked results; `spare` as in `RunWhile`."""

    body: str
    args: tuple[Atom, ...]
    init: tuple[Atom, ...]
    xs: tuple[Atom, ...]
    out: tuple[Atom, ...]
    spare: tuple[Atom, ...]
    length: Dim
    reverse: bool = False


@dataclass(frozen=True)
class Heap(Expr):
    """Evaluate one size expression into slot `slot` of the shape heap (after bind_shapes).  An effect."""

    slot: int
    value: Dim


@dataclass(frozen=True)
class MatchShape(Expr):
    """Compare the sizes of an array, or the entries of a shape, with `pattern`; None, printed ``_``, is not looked at.

    Those in `binds` are stored on first sight (after bind_shapes).  An effect.
    """

    value: Atom
    pattern: tuple[Dim | None, ...]
    binds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Binding:
    """``var = value``; without a variable, an effect."""

    var: Var | None
    value: Expr
    source: Source | None = field(default=None, compare=False)


def named_source(binding: Binding) -> Source:
    """The binding's source with the names of what it computes and of its value (``exp v3``), unless it has names already."""
    source = binding.source or Source()
    if source.name or source.parts or binding.var is None:
        return source
    match binding.value:
        case CallKernel(kernel=what) | CallLibrary(routine=what) | CallFunction(function=what):
            pass
        case value:
            what = value.opname() if hasattr(value, "opname") else type(value).__name__
    return replace(source, name=f"{what} {binding.var.name}")


@dataclass(frozen=True)
class Dataflow:
    """Bindings without side effects: any may be moved, merged, or dropped if not in `outputs`."""

    bindings: tuple[Binding, ...]
    outputs: tuple[Var, ...]


@dataclass(frozen=True)
class Guard:
    """A fact about sizes under which this program is the right one; checked at every call (architecture 3)."""

    relation: str                     # "==", "!=", "<", "<=", ">", ">="
    left: Dim
    right: Dim
    source: Source | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Function:
    """A graph-level function.

    `bound` are parameters whose values are fixed when the program is bound (weights).  `returns` is the declared type of the
    result, where it is another than the result's own: checked when the function returns.  A `private` function has only callers
    in its module; a `group` is a private one that `fuse_ops` made, to become one kernel.
    """

    name: str
    params: tuple[Var, ...]
    body: tuple[Dataflow | Binding, ...]
    result: Atom
    bound: tuple[Var, ...] = ()
    guards: tuple[Guard, ...] = ()
    private: bool = False
    returns: Type | None = None
    group: bool = False

    def __str__(self) -> str:
        from minirelax.ir.printer import print_function
        return print_function(self)

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """All bindings, in order, inside dataflow blocks or not."""
        return tuple(b for part in self.body for b in (part.bindings if isinstance(part, Dataflow) else (part,)))

    @property
    def type(self) -> CallableType:
        """The signature: all that a caller needs to know."""
        return CallableType(tuple(v.type for v in (*self.params, *self.bound)), self.returns or self.result.type)

    @property
    def var(self) -> Var:
        """The function as a value."""
        return Var(self.name, self.type)


class Array:
    """A constant array, compared by content.  Immutable: the array is copied in and made read-only."""

    _known: weakref.WeakValueDictionary[str, Array] = weakref.WeakValueDictionary()

    def __init__(self, value: np.ndarray):
        value = np.array(value, dtype=np.asarray(value).dtype.newbyteorder("="), order="C")
        value.flags.writeable = False
        self.value = value
        self.type = Tensor(dtype_name(value.dtype), value.shape)

    @functools.cached_property
    def digest(self) -> str:
        """The first 16 hex digits of the content's SHA-256, over dtype, shape and bytes."""
        import hashlib  # loads OpenSSL: only for who has large constants
        return hashlib.sha256(f"{self.type}".encode() + self.value.tobytes()).hexdigest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and (self is other or (self.type == other.type and self.digest == other.digest))

    def __hash__(self) -> int:
        return hash(self.type)

    def __repr__(self) -> str:
        return f"Array({self.type}, {self.digest})"

    def __reduce__(self):
        return Array, (self.value,)

    def remember(self) -> str:
        """The digest, after making this array findable by `recall` for as long as it lives."""
        Array._known[self.digest] = self
        return self.digest

    @staticmethod
    def recall(digest: str) -> Array | None:
        """The living array with this digest, if any."""
        return Array._known.get(digest)


@dataclass(frozen=True)
class Constant:
    """A named array of the module, visible in all its functions."""

    name: str
    array: Array

    @property
    def var(self) -> Var:
        return Var(self.name, self.array.type)


@dataclass(frozen=True)
class Module:
    """Functions, kernels and constants: one program at one stage.  The first public function is the entry."""

    functions: tuple[Function, ...]
    kernels: tuple[Kernel, ...] = ()
    constants: tuple[Constant, ...] = ()

    def __str__(self) -> str:
        from minirelax.ir.printer import print_module
        return print_module(self)

    def __getitem__(self, name: str) -> Function | Kernel:
        found = self._by_name.get(name)
        if found is None:
            raise KeyError(f"no function or kernel {name!r}; there are {', '.join(self._by_name)}")
        return found

    @functools.cached_property
    def _by_name(self) -> dict[str, Function | Kernel]:
        return {f.name: f for f in (*reversed(self.functions), *reversed(self.kernels))}

    def __rich__(self):
        from minirelax.explore import highlighted
        return highlighted(self)

    def _repr_mimebundle_(self, include=None, exclude=None, **_):
        from minirelax.explore import mimebundle
        return mimebundle(self)


def called_functions(expr: Expr) -> tuple[str, ...]:
    """The functions of the module that a right-hand side names."""
    match expr:
        case CallFunction(function=name):
            return (name,)
        case Cond(then=a, otherwise=b) | RunCond(then=a, otherwise=b):
            return a, b
        case While(test=a, body=b) | RunWhile(test=a, body=b):
            return a, b
        case Scan(body=name) | RunScan(body=name):
            return (name,)
    return ()


def uses(function: Function) -> dict[str, int]:
    """How often each name is read; being a block's output or the result is a read."""
    count: dict[str, int] = {}
    for part in function.body:
        bindings = part.bindings if isinstance(part, Dataflow) else (part,)
        for atom in (a for b in bindings for a in b.value.operands()):
            if isinstance(atom, Var):
                count[atom.name] = count.get(atom.name, 0) + 1
    for atom in (*(v for part in function.body if isinstance(part, Dataflow) for v in part.outputs), function.result):
        if isinstance(atom, Var):
            count[atom.name] = count.get(atom.name, 0) + 1
    return count


def fresh_names(function: Function, module: Module | None = None, prefix: str = "v") -> Iterator[str]:
    """``v0, v1, ...``: the ones that `function` (and the module's constants) do not use."""
    taken = {v.name for v in (*function.params, *function.bound)} | {b.var.name for b in function.bindings if b.var}
    taken |= {c.name for c in module.constants} if module else set()
    i = 0
    while True:
        if f"{prefix}{i}" not in taken:
            taken.add(f"{prefix}{i}")
            yield f"{prefix}{i}"
        i += 1


def map_blocks(function: Function, fn: Callable[[Dataflow], Dataflow]) -> Function:
    """`function` with every dataflow block replaced by ``fn(block)``."""
    return replace(function, body=tuple(fn(part) if isinstance(part, Dataflow) else part for part in function.body))


def _flat(operand) -> tuple[Atom, ...]:
    return operand if isinstance(operand, tuple) else (operand,)


def _mapped(fn, operand):
    return tuple(map(fn, operand)) if isinstance(operand, tuple) else fn(operand)

"""The stand-in for an array while a function is traced: NumPy's operators, methods and protocols, recording what they do.

An array is a root, which holds its current value, or a view of another array.  Assigning to either replaces the root's
value, and every view reads what the root then holds, so in-place code means what it means in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from minirelax.errors import ArgumentError, BranchError, DTypeError, ShapeError, UnsupportedError
from minirelax.frontend.builder import Builder
from minirelax.frontend.scope import Scope
from minirelax.frontend.size import Size
from minirelax.frontend.views import View
from minirelax.ir.dim import Dim, product
from minirelax.ir.graph import Atom
from minirelax.ir.types import NUMPY_DTYPES, PARTS, Tensor

CHOOSE = "choose values with np.where(x > 0, x, -x), computations with minirelax.cond; loop with minirelax.while_loop"
LOOP = "for i in range(n) is minirelax.fori_loop(0, n, body, init)"
KEEP = "keep it an array: NumPy's functions take it where float(), int() and the module math do not"
COPY = "call .copy() on one of them first"
PASS = "pass it as an operand or carry it through the loop, write to what comes in, and return that"


class TracedArray:
    """An array whose shape and dtype are known and whose elements are not, yet.

    `weak` is the Python type of a scalar that promotes as a Python number does; None for arrays.
    """

    __slots__ = (
        "builder", "weak", "_atom", "_version", "_parent", "_view", "_unclear", "_tainted", "reshaped", "constant", "element",
        "scope", "undecided",
    )  # fmt: skip

    def __init__(
        self, builder: Builder, atom: Atom, weak: type | None = None, parent: TracedArray | None = None, view: View | None = None
    ):
        self.builder, self.weak = builder, weak
        self.scope = builder.scope  # where it is born
        self._atom, self._version = atom, 0
        self._parent, self._view = parent, view
        self._unclear: list[TracedArray] = []  # roots that share memory with this one or not, depending on strides
        self._tainted = False  # one of those was written to
        self.reshaped = False  # a view of another shape exists, as NumPy gives it if memory is in order
        self.element = False  # no array but a single element, as NumPy gives it: ``+=`` makes another
        self.constant = ""  # the reason why this array must not be written to
        self.undecided: ShapeError | None = None  # for a question about sizes: why it has no answer while tracing
        if parent is not None:
            self._version = parent.root._version

    # ---- value

    @property
    def root(self) -> TracedArray:
        """The array whose memory this one shows."""
        return self if self._parent is None else self._parent.root

    @property
    def changed(self) -> bool:
        """Has a root been written to?"""
        return self._version > 0

    @property
    def atom(self) -> Atom:
        """The current value.  Raises ArgumentError for a value that its scope has not returned."""
        self._check_scope()
        root = self.root
        if root._tainted:
            raise UnsupportedError("whether this array changed with the one it was reshaped from depends on its strides", COPY)
        if self._parent is not None and self._version != root._version:
            with self.builder.inside(self.scope):
                self._atom, self._version = self._view.read(self.builder, self._parent.atom), root._version
        return self._atom

    def _check_scope(self) -> None:
        if not self.scope.open:
            raise leaked("an array", self.scope)

    @property
    def type(self) -> Tensor:
        """Its type under all facts so far."""
        return self.builder.type_of(self._atom)

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Its sizes as the IR knows them."""
        self._check_scope()
        return self.type.shape

    def assign(self, atom: Atom) -> None:
        """Make `atom`, of the same type, the value; arrays that share memory see it."""
        root = self.root
        self._check_scope()
        if root.scope is not self.builder.scope:
            raise UnsupportedError(f"{self.builder.scope.name} writes to an array from outside, in place", PASS)
        if root.constant:
            raise UnsupportedError(f"{root.constant} cannot be written to", "copy it first: x = x.copy()")
        self._write(atom)
        for other in root._unclear:
            other._tainted = True

    def _write(self, atom: Atom) -> None:
        if self._parent is None:
            self._version += 1
        else:
            self._parent._write(self._view.write(self.builder, self._parent.atom, atom))
            self._version = self.root._version
        self._atom = atom

    def show(self, view: View) -> TracedArray:
        """A view of this array."""
        return TracedArray(self.builder, view.read(self.builder, self.atom), parent=self, view=view)

    def derived(self, atom: Atom, weak: type | None = None) -> TracedArray:
        """A new array with the value `atom`."""
        return TracedArray(self.builder, atom, weak)

    def as_element(self) -> TracedArray:
        """This array; if it has no axes, a single element with its value."""
        if self._atom.type.shape:
            return self
        one = self.derived(self.atom, self.weak)
        one.element = True
        return one

    def link(self, other: TracedArray) -> None:
        """Note that whether the two roots share memory is not known."""
        self.root._unclear.append(other.root)
        other.root._unclear.append(self.root)

    @property
    def in_order(self) -> bool:
        """Do the elements lie in row-major order without gaps (for an argument: if it does)?"""
        return self._parent is None or (self._view.keeps_order(self.builder, self._parent.dims) and self._parent.in_order)

    # ---- what NumPy's arrays know about themselves

    @property
    def dtype(self) -> np.dtype:
        """The element type."""
        return NUMPY_DTYPES[self._atom.type.dtype]

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """The sizes: integers, and `Size`s for those that depend on the arguments."""
        return tuple(map(self.builder.size, self.dims))

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._atom.type.shape)

    @property
    def size(self) -> int | Size:
        """The number of elements."""
        return self.builder.size(product(self.dims))

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int | Size:
        """Bytes of all elements."""
        return self.size * self.itemsize

    @property
    def T(self) -> TracedArray:
        """The axes in reverse order."""
        return self.transpose()

    @property
    def mT(self) -> TracedArray:
        """The last two axes exchanged."""
        return self.swapaxes(-1, -2)

    @property
    def real(self) -> TracedArray:
        """The real parts, a view; of real numbers, the array itself."""
        return self._part("real") if self._atom.type.dtype in PARTS else self

    @real.setter
    def real(self, value) -> None:
        self.real[...] = value

    @property
    def imag(self) -> TracedArray:
        """The imaginary parts, a view; of real numbers, zeros."""
        if self._atom.type.dtype in PARTS:
            return self._part("imag")
        zeros = _function("zeros_like")(self)
        zeros.weak = self.weak
        return zeros.as_element() if self.element else zeros

    @imag.setter
    def imag(self, value) -> None:
        if self._atom.type.dtype not in PARTS:
            raise DTypeError("the imaginary part of a real array cannot be written to", "make it complex: x.astype(complex)")
        self.imag[...] = value

    def _part(self, name: str) -> TracedArray:
        from minirelax.frontend.views import PartView

        part = self.show(PartView(name))
        part.weak = self.weak and float
        return part.as_element() if self.element else part

    @property
    def device(self) -> str:
        """Where the array lives, in the words of the array API standard."""
        return "cpu"

    def __array_namespace__(self, api_version=None):
        """The array API standard's namespace: `minirelax.numpy`."""
        import minirelax.numpy

        return minirelax.numpy

    def __repr__(self) -> str:
        return f"TracedArray({self._atom}: {self.type})" + (f", a Python {self.weak.__name__}" if self.weak else "")

    # ---- questions that have no answer yet

    def _branch(self, question: str, hint: str) -> BranchError:
        if self.weak:
            hint += "; or name the argument in jit(static=...), to compile for each of its values"
        return BranchError(f"{question} of a traced array ({self.type}) is not known while the function is traced", hint)

    def __bool__(self) -> bool:
        if self.undecided is not None:
            raise ShapeError(self.undecided.what, self.undecided.hint)
        raise self._branch("the truth value", CHOOSE)

    def __float__(self) -> float:
        raise self._branch("the value", KEEP)

    __int__ = __complex__ = __float__

    def __index__(self) -> int:
        raise self._branch("the value", f"{KEEP}; {LOOP}")

    def item(self, *index) -> float:
        """Raises BranchError: values are not known."""
        raise self._branch("the value", KEEP)

    tolist = tobytes = item

    def __array__(self, dtype=None, copy=None) -> np.ndarray:
        raise BranchError(
            f"NumPy asked for the elements of a traced array ({self.type}): not known while the function is traced",
            "call the function of that name in minirelax.numpy; make arrays to fill with minirelax.numpy.zeros or np.zeros_like",
        )

    def __hash__(self) -> int:
        raise TypeError("unhashable type: an array")

    def __len__(self) -> int:
        if not self.ndim:
            raise ShapeError("len() of an array without axes")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[TracedArray]:
        if not self.ndim:
            raise ShapeError("iteration over an array without axes")
        return (self[i] for i in range(len(self)))

    def __contains__(self, value) -> bool:
        raise self._branch("whether something is an element", "ask for an array: np.any(x == value)")

    def __format__(self, spec: str) -> str:
        if spec:
            raise self._branch("the value", "print what the compiled function returns")
        return repr(self)

    def __getattr__(self, name: str):
        if not name.startswith("_") and hasattr(np.ndarray, name):
            raise UnsupportedError(f"ndarray.{name} is not supported in a compiled function")
        raise AttributeError(f"a traced array has no attribute {name!r}")

    # ---- protocols

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        return array_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, func, types, args, kwargs):
        from minirelax.frontend.functions.registry import array_function

        return array_function(func, args, kwargs)

    def __getitem__(self, key) -> TracedArray:
        from minirelax.frontend.indexing import get_item

        return get_item(self, key)

    def __setitem__(self, key, value) -> None:
        from minirelax.frontend.indexing import set_item

        set_item(self, key, value)

    def __copy__(self) -> TracedArray:
        return self.copy()

    def __deepcopy__(self, memo) -> TracedArray:
        return self.copy()

    # ---- methods that differ from the function of the same name

    def astype(self, dtype, order="K", casting="unsafe", subok=True, copy=True) -> TracedArray:
        """A copy with another element type."""
        return _function("astype")(self, dtype, copy=copy)

    def copy(self, order="C") -> TracedArray:
        """A new array with the same elements."""
        same = self.derived(self.atom)
        return same.as_element() if self.element else same

    def flatten(self, order="C") -> TracedArray:
        """A copy with one axis."""
        return self.reshape(-1, order=order).copy()

    def reshape(self, *shape, order="C", copy=None) -> TracedArray:
        """The same elements in another shape."""
        return _function("reshape")(self, shape[0] if len(shape) == 1 else shape, order=order, copy=copy)

    def transpose(self, *axes) -> TracedArray:
        """The axes in another order."""
        return _function("transpose")(self, None if not axes else axes[0] if len(axes) == 1 else axes)

    def fill(self, value) -> None:
        """Set every element."""
        self[...] = value

    def sort(self, axis=-1, kind=None, order=None, *, stable=None) -> None:
        """Sort in place."""
        self.assign(_function("sort")(self, axis).atom)


def leaked(what: str, scope: Scope) -> ArgumentError:
    """The error for something from inside a branch or a loop's body that is used outside of it."""
    return ArgumentError(
        f"{what} that was made inside {scope.name} is used outside of it",
        f"return it from {scope.name}: what branches and bodies of loops store elsewhere is gone after them",
    )


def array_ufunc(ufunc: np.ufunc, method: str, inputs: tuple, options: dict):
    """What NumPy's ufuncs do when one of their operands is traced."""
    from minirelax.frontend.ufuncs import call_ufunc, call_ufunc_method

    if method == "__call__":
        return call_ufunc(ufunc, inputs, **options)
    return call_ufunc_method(ufunc, method, inputs, options)


def _function(name: str):
    from minirelax.frontend.functions import FUNCTIONS

    return FUNCTIONS[name]


def _method(name: str):
    def method(self, *args, **options):
        return _function(name)(self, *args, **options)

    method.__name__, method.__doc__ = name, f"As ``numpy.{name}``."
    return method


def _binary(ufunc: np.ufunc, reflected: bool = False):
    def operator(self, other):
        from minirelax.frontend.ufuncs import call_operator

        return call_operator(ufunc, *((other, self) if reflected else (self, other)))

    operator.__doc__ = f"As ``numpy.{ufunc.__name__}``."
    return operator


def _in_place(ufunc: np.ufunc):
    def operator(self, other):
        from minirelax.frontend.ufuncs import call_operator, call_ufunc

        return call_operator(ufunc, self, other) if self.weak or self.element else call_ufunc(ufunc, (self, other), out=(self,))

    operator.__doc__ = f"As ``numpy.{ufunc.__name__}``, in place."
    return operator


def _unary(ufunc: np.ufunc):
    def operator(self):
        from minirelax.frontend.ufuncs import call_operator

        return call_operator(ufunc, self)

    operator.__doc__ = f"As ``numpy.{ufunc.__name__}``."
    return operator


METHODS = (
    "sum",
    "prod",
    "mean",
    "var",
    "std",
    "min",
    "max",
    "argmin",
    "argmax",
    "any",
    "all",
    "cumsum",
    "cumprod",
    "dot",
    "ravel",
    "squeeze",
    "swapaxes",
    "clip",
    "round",
    "take",
    "repeat",
    "nonzero",
    "argsort",
    "diagonal",
    "trace",
    "compress",
    "conj",
    "conjugate",
    "searchsorted",
    "choose",
)
BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "matmul": np.matmul,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "divmod": np.divmod,
}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal}
UNARY = {"neg": np.negative, "pos": np.positive, "abs": np.absolute, "invert": np.invert}

for _name in METHODS:
    setattr(TracedArray, _name, _method(_name))
for _name, _ufunc in BINARY.items():
    setattr(TracedArray, f"__{_name}__", _binary(_ufunc))
    setattr(TracedArray, f"__r{_name}__", _binary(_ufunc, reflected=True))
    if _name != "divmod":
        setattr(TracedArray, f"__i{_name}__", _in_place(_ufunc))
for _name, _ufunc in COMPARE.items():
    setattr(TracedArray, f"__{_name}__", _binary(_ufunc))
for _name, _ufunc in UNARY.items():
    setattr(TracedArray, f"__{_name}__", _unary(_ufunc))

"""What users pass to functions, as traced arrays of one dtype and matching shapes.

Facts about sizes are asked for here, and only here, when an operation needs sizes to agree.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from minirelax.errors import RAGGED, ArgumentError, DTypeError, ShapeError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder, active
from minirelax.frontend.promotion import Kind, promote
from minirelax.frontend.size import Size
from minirelax.ir.dim import Dim
from minirelax.ir.graph import Atom, Const, MatchCast
from minirelax.ir.scalar import literal
from minirelax.ir.types import NUMPY_DTYPES, PARTS, Tensor

RANGE_HINT = "give the number the array's dtype, or cast the array: x.astype(...)"
MATCH_CAST = "if they are equal at run time, say so with minirelax.match_cast"
BROADCAST = "sizes broadcast if they are equal, or one of them is 1"


def builder() -> Builder:
    """The running trace.  Raises ArgumentError outside of one."""
    found = active()
    if found is None:
        raise ArgumentError(
            "a traced array was used after its trace had ended",
            "return arrays from the traced function; do not store them elsewhere",
        )
    return found


def asarray(x: object) -> TracedArray:
    """`x` as a traced array: numbers become weak scalars, arrays constants, lists are stacked."""
    if isinstance(x, TracedArray):
        if x.builder is not active():
            raise ArgumentError(
                "a traced array was used outside its trace", "pass it as an argument; do not store traced arrays elsewhere"
            )
        return x
    b = builder()
    match x:
        case Size():
            return b.number(x.dim)
        case np.ndarray() | np.generic():
            return TracedArray(b, b.constant(x))
        case bool():
            return TracedArray(b, Const(x, "bool"), weak=bool)
        case int():
            return TracedArray(b, weak_constant(x, "i64", x >= 2**63), weak=int)
        case float():
            return TracedArray(b, Const(x, "f64"), weak=float)
        case complex():
            return TracedArray(b, Const(x, "c128"), weak=complex)
        case list() | tuple():
            return _from_list(x)
    if hasattr(x, "__array__"):
        return TracedArray(b, b.constant(np.asarray(x)))
    raise ArgumentError(f"{type(x).__name__} is not an array")


def kind(x: object) -> Kind:
    """The dtype of an operand, or the Python type of a weak scalar."""
    match x:
        case TracedArray():
            return x.weak or x.dtype
        case bool():
            return bool
        case Size() | int():
            return int
        case float() if not isinstance(x, np.generic):
            return float
        case complex() if not isinstance(x, np.generic):
            return complex
        case np.ndarray() | np.generic():
            return x.dtype
    return kind(asarray(x))


def as_dtype(x: object, dtype: str) -> TracedArray:
    """`x` as an array of `dtype`.  Raises DTypeError for a Python integer that `dtype` cannot hold."""
    if isinstance(x, int) and not isinstance(x, Size | bool):
        return TracedArray(builder(), weak_constant(x, dtype))
    if isinstance(x, complex) and not isinstance(x, np.generic):
        return TracedArray(builder(), cast(builder(), Const(x, "c128"), dtype))
    if isinstance(x, float) and not isinstance(x, np.generic):
        return TracedArray(builder(), Const(literal(x, dtype).value, dtype))
    array = asarray(x)
    if isinstance(x, Size):
        _size_fits(x, dtype)
    return array if array.type.dtype == dtype and not array.weak else array.derived(cast(array.builder, array.atom, dtype))


def cast(b: Builder, atom: Atom, dtype: str) -> Atom:
    """`atom` converted to `dtype`; a literal at once.  Raises DTypeError for a complex number that is to be real."""
    if atom.type.dtype == dtype:
        return atom
    if atom.type.dtype in PARTS and dtype not in (*PARTS, "bool"):
        what = f"a {NUMPY_DTYPES[atom.type.dtype]} is not converted to {NUMPY_DTYPES[dtype]}: its imaginary part would be lost"
        raise DTypeError(what, "take the real part, or the magnitude: x.real, np.abs(x)")
    return Const(literal(atom.value, dtype).value, dtype) if isinstance(atom, Const) else b.op("cast", atom, dtype=dtype)


def weak_constant(value: int, dtype: str, wide: bool = False) -> Const:
    """A Python integer as a literal.  Raises DTypeError if `dtype` cannot hold it."""
    numpy_dtype = NUMPY_DTYPES["u64" if wide else dtype]
    if numpy_dtype.kind in "iu":
        info = np.iinfo(numpy_dtype)
        if not info.min <= value <= info.max:
            raise DTypeError(f"Python integer {value} out of bounds for {numpy_dtype}", RANGE_HINT)
    return Const(value, "u64") if wide else Const(literal(value, dtype).value, dtype)


def promoted(*xs: object) -> tuple[TracedArray, ...]:
    """All operands in their common dtype."""
    dtype = promote(tuple(map(kind, xs)))
    return tuple(as_dtype(x, dtype) for x in xs)


def promoted_arrays(*xs: object) -> tuple[TracedArray, ...]:
    """All operands in their common dtype, where NumPy makes arrays of Python numbers first: they are not weak then."""
    return promoted(*(a.derived(a.atom) for a in map(asarray, xs)))


def broadcast_shape(*shapes: tuple[Dim, ...], say: Callable[[str], str] | None = None) -> tuple[Dim, ...]:
    """The common shape, by NumPy's rule; facts are taken from the hints where the rule turns on them.

    Raises ShapeError with what `say` makes of the fact.
    """
    out: list[Dim] = [1] * max(map(len, shapes), default=0)
    for shape in shapes:
        for back in range(1, len(shape) + 1):
            common = common_size(out[-back], shape[-back])
            if common is None:
                fact = f"axis {-back} has sizes {sizes_text(out[-back], shape[-back])}"
                raise ShapeError(
                    say(fact) if say else f"shapes {' and '.join(map(shape_text, shapes))} do not broadcast: {fact}",
                    differ_hint(out[-back], shape[-back], BROADCAST),
                )
            out[-back] = common
    return tuple(map(builder().facts.resolve, out))


def common_size(a: Dim, b: Dim) -> Dim | None:
    """The size that two axes have together: equal sizes agree, and 1 agrees with anything.  None if they do not fit."""
    facts = builder().facts
    a, b = facts.resolve(a), facts.resolve(b)
    if a == 1 or facts.is_equal(a, b):
        return b if a == 1 else a
    if b == 1:
        return a
    for left, right, result in ((a, b, a), (a, 1, b), (b, 1, a)):
        if facts.truth("==", left, right) and facts.may_assume(left - right):
            facts.assume_equal(left, right)
            return facts.resolve(result)
    return None


def fits(dims: tuple[Dim, ...], target: tuple[Dim, ...]) -> bool:
    """Does an array of sizes `dims` broadcast to exactly `target`?  Facts are taken from the hints where that turns on them."""
    facts = builder().facts
    if len(dims) > len(target):
        return False
    for d, wanted in zip(dims, target[len(target) - len(dims) :], strict=True):
        d = facts.resolve(d)  # an axis before this one may have said something about it
        if facts.is_equal(d, 1) or facts.is_equal(d, wanted):
            continue
        other = next((o for o in (wanted, 1) if facts.truth("==", d, o) and facts.may_assume(d - o)), None)
        if other is None:
            return False
        facts.assume_equal(d, other)
    return True


def conform(x: TracedArray, shape: tuple[Dim, ...]) -> TracedArray:
    """`x` with the sizes of `shape`, to which its own are known to be equal (or 1), written the same way.

    Facts such as ``4*(n//4) == n`` hold by a guard, not by arithmetic; a match_cast tells the IR.
    """
    facts, own = x.builder.facts, x.dims
    target = tuple(map(facts.resolve, shape[len(shape) - len(own) :]))
    new = tuple(
        1 if d == 1 or (facts.is_equal(d, 1) and not facts.is_equal(d, t)) else t for d, t in zip(own, target, strict=True)
    )
    return x if new == own else x.derived(x.builder.emit(MatchCast(x.atom, Tensor(x.type.dtype, new))), x.weak)


def require_equal(a: Dim, b: Dim, what: str, hint: str = "") -> None:
    """Make sure of ``a == b``, by a guard if need be.  Raises ShapeError, saying `what` they are."""
    facts = builder().facts
    if facts.is_equal(a, b):
        return
    if facts.truth("==", a, b) and facts.may_assume(a - b):
        return facts.assume_equal(a, b)
    raise ShapeError(f"{what} {sizes_text(a, b)}", differ_hint(a, b, hint))


def is_nonnegative(d: Dim) -> bool:
    """Is ``d >= 0``, as sizes are?  Made sure of by a guard if need be; raises ShapeError where that cannot be decided."""
    facts = builder().facts
    d = facts.resolve(d)
    return d >= 0 if isinstance(d, int) else facts.is_nonnegative(d) or facts.decide("<=", 0, d, declared=True)


def require_nonempty(d: Dim, what: str, hint: str = "") -> None:
    """Make sure of ``d > 0``, by a guard if need be.  Raises ShapeError (a ValueError, as in NumPy) otherwise."""
    facts = builder().facts
    if facts.known("<", 0, d) or (not facts.may_assume(d, declared=True) and not isinstance(d, int)):
        return
    if not facts.decide("<", 0, d, declared=True):
        raise ShapeError(what, hint)


def differ_hint(a: Dim, b: Dim, certain: str = "") -> str:
    """What to do about two sizes that should be equal; `certain` if they are known not to be."""
    facts = builder().facts
    return certain if facts.known("==", a, b) is False or facts.truth("==", a, b) is False else MATCH_CAST


def shape_text(shape: tuple[Dim, ...]) -> str:
    """A shape as NumPy prints it."""
    sizes = [str(builder().facts.resolve(d)) for d in shape]
    return f"({', '.join(sizes)}{',' if len(sizes) == 1 else ''})"


def sizes_text(a: Dim, b: Dim) -> str:
    """Two sizes and, where they are symbols, what they are in this call."""
    facts = builder().facts
    a, b = facts.resolve(a), facts.resolve(b)
    if _numbers(a, b):
        return f"{a} and {b}, which differ"
    left, right = facts.hint(a), facts.hint(b)
    if left is None or right is None or left == right:
        return f"{a} and {b}, which cannot be shown equal"
    return f"{a} and {b}, which differ in this call: {left} and {right}"


def broadcast(x: TracedArray, shape: tuple[Dim, ...]) -> TracedArray:
    """`x` repeated to `shape`, to which it is known to broadcast."""
    shape = tuple(map(x.builder.facts.resolve, shape))
    if x.dims == shape:
        return x
    return x.derived(x.builder.op("broadcast_to", conform(x, shape).atom, shape=shape))


def is_traced(x: object) -> bool:
    """Is `x`, or something inside a list, traced?"""
    return isinstance(x, TracedArray | Size) or (isinstance(x, list | tuple) and any(map(is_traced, x)))


def axis_number(axis: object, ndim: int) -> int:
    """An axis counted from 0.  Raises ShapeError if there is none."""
    try:
        number = int(axis)
    except TypeError:
        raise ArgumentError(f"an axis must be an integer, not {type(axis).__name__}") from None
    if not -ndim <= number < ndim:
        what = f"axis {number} is out of bounds for array of dimension {ndim}"
        raise ShapeError(what, "axes count from 0, or from -1 at the end")
    return number % ndim


def axes_tuple(axis: object, ndim: int) -> tuple[int, ...]:
    """Axes counted from 0, in order; None means all.  Raises ShapeError if one is named twice."""
    if axis is None:
        return tuple(range(ndim))
    axes = tuple(axis_number(a, ndim) for a in (axis if isinstance(axis, tuple | list) else (axis,)))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"an axis appears twice in {axis}")
    return tuple(sorted(axes))


def as_sizes(shape: object) -> tuple | list:
    """A shape as users give it: a size, a sequence of them, or a traced vector of the numbers."""
    if isinstance(shape, TracedArray) and shape.ndim == 1:
        from minirelax.frontend.shapes import tensor_to_shape

        return tensor_to_shape(shape)
    return shape if isinstance(shape, tuple | list) else (shape,)


def shape_dims(shape: object) -> tuple[Dim, ...]:
    """A shape as users give it (a size or a sequence of them), as sizes of the IR.  Raises ShapeError for a negative one."""
    dims = builder().dims(as_sizes(shape))
    if any(isinstance(d, int) and d < 0 for d in dims):
        raise ShapeError("negative dimensions are not allowed")
    return dims


def _numbers(a: Dim, b: Dim) -> bool:
    return isinstance(a, int) and isinstance(b, int)


def _size_fits(size: Size, dtype: str) -> None:
    """A size mixed with a narrow dtype must fit it, as a Python integer must: a guard."""
    numpy_dtype = NUMPY_DTYPES[dtype]
    if numpy_dtype.kind in "iu" and dtype != "i64":
        info, facts = np.iinfo(numpy_dtype), size.builder.facts
        small = info.max >= 2**63 - 1 or facts.decide("<=", size.dim, info.max, declared=True)
        if not (small and facts.decide("<=", info.min, size.dim, declared=True)):
            raise DTypeError(f"Python integer {size} out of bounds for {numpy_dtype}", RANGE_HINT)


def _from_list(x: list | tuple) -> TracedArray:
    if is_traced(x):
        from minirelax.frontend.functions import FUNCTIONS

        parts = [asarray(e) for e in x]
        try:
            return FUNCTIONS["stack"](parts)
        except ShapeError as e:
            shapes = " and ".join(dict.fromkeys(shape_text(p.dims) for p in parts))
            raise ShapeError(f"a list whose parts have shapes {shapes} cannot become an array", RAGGED, e.where) from None
    try:
        value = np.asarray(x)
    except ValueError:
        raise ShapeError("a list whose parts have different lengths cannot become an array", RAGGED) from None
    return TracedArray(builder(), builder().constant(value))

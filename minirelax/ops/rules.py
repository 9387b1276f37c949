"""Checks and rules that ops share: accepted dtypes, known sizes, axes, and NumPy's broadcasting on symbolic sizes.

>>> from minirelax.ir.types import f32
>>> from minirelax.ops.arithmetic import Add
>>> broadcast(Add(None, None), (f32["n", 1], f32["m"]))
(n, m)
>>> try:
...     Add(None, None).infer(f32["n"], f32["m"])
... except ShapeError as error:
...     print(error.what)
add(x, y): axis -1 has sizes n and m, which cannot be shown equal
  where x: f32[n], y: f32[m]
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence

from minirelax.errors import DTypeError, ShapeError
from minirelax.ir.dim import Dim
from minirelax.ir.graph import Const, Var, operand_names
from minirelax.ir.op import Op
from minirelax.ir.scalar import Scalar
from minirelax.ir.syntax import number_text
from minirelax.ir.tensor import TensorExpr
from minirelax.ir.types import Shape, Tensor, Tuple, Type

FLOATS = ("f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
INTEGERS = (*SIGNED, "u8", "u16", "u32", "u64")
NUMBERS = (*INTEGERS, *FLOATS)                     # with an order: real numbers
ANY = ("bool", *NUMBERS)
COMPLEX = ("c64", "c128")
INEXACT = (*FLOATS, *COMPLEX)
EVERY = (*ANY, *COMPLEX)

MATCH_CAST = "if they are equal at run time, say so with match_cast"
PARTS_HINT = "complex numbers have no order, and no one real number to convert to: take x.real, x.imag or np.abs(x)"
SAY_TYPE = 'say what it is: match_cast(x, f32["n"])'
_AS_ARRAY = {Tuple: "take the arrays out of the tuple", Shape: "make it an array: shape_to_tensor(s)"}


def same_dtype(op: Op, types: Sequence[Type]) -> str:
    """The one dtype that all operands have.  Raises DTypeError if they differ."""
    tensors(op, types)
    for t in types[1:]:
        if t.dtype != types[0].dtype:
            raise dtype_error(op, types, f"operands have dtypes {types[0].dtype} and {t.dtype}", "cast one: x.astype(...)")
    return types[0].dtype


def accept(op: Op, types: Sequence[Type], dtype: str, allowed: Iterable[str]) -> str:
    """`dtype`, if it is among `allowed`.  Raises DTypeError otherwise."""
    if dtype not in allowed:
        hint = f"cast to one of {', '.join(allowed)}: x.astype(...)" if dtype not in COMPLEX else PARTS_HINT
        raise dtype_error(op, types, f"not defined for {dtype}", hint)
    return dtype


def tensors(op: Op, types: Sequence[Type]) -> None:
    """Raises DTypeError or ShapeError unless every type is an array of known dtype whose sizes all have a name or a number."""
    for t in types:
        if not isinstance(t, Tensor):
            raise not_an_array(op, types, t)
        if t.dtype is None:
            raise dtype_error(op, types, f"the dtype of {t} is known only at run time", SAY_TYPE)
        if t.shape is None:
            raise shape_error(op, types, f"the rank of {t} is known only at run time", SAY_TYPE)
        if None in t.shape:
            raise shape_error(op, types, f"a size of {t} is known only at run time", 'give it a name: match_cast(x, f32["k"])')


def not_an_array(op: Op, types: Sequence[Type], t: Type) -> DTypeError:
    """A DTypeError about an operand of another kind."""
    return dtype_error(op, types, f"an operand is {t}, not an array", _AS_ARRAY.get(type(t), SAY_TYPE))


def broadcast(op: Op, types: Sequence[Tensor]) -> tuple[Dim, ...]:
    """The common shape: aligned at the last axis, equal sizes agree and 1 agrees with anything.  Raises ShapeError otherwise."""
    tensors(op, types)
    out: list[Dim] = [1] * max(len(t.shape) for t in types)
    for t in types:
        for back in range(1, len(t.shape) + 1):
            old, new = out[-back], t.shape[-back]
            if old != 1 and new not in (1, old):
                raise shape_error(op, types, f"axis {-back} has sizes {old} and {new}, which {_differ(old, new)}")
            out[-back] = new if old == 1 else old
    return tuple(out)


def equal_sizes(op: Op, types: Sequence[Tensor], a: Dim, b: Dim, what: str) -> Dim:
    """`a`, if it equals `b`.  Raises ShapeError, saying `what` they are, otherwise."""
    if a != b:
        raise shape_error(op, types, f"{what} {a} and {b}, which {_differ(a, b)}")
    return a


def check_axes(op: Op, types: Sequence[Tensor], axes: Sequence[int], ndim: int) -> None:
    """Raises ShapeError unless `axes` are distinct axes, counted from 0, of an array with `ndim` of them."""
    if len(set(axes)) != len(axes) or not all(0 <= a < ndim for a in axes):
        raise shape_error(op, types, f"{tuple(axes)} are not distinct axes of an array with {ndim}", "count axes from 0")


def broadcast_at(x: TensorExpr, index: Sequence) -> Scalar:
    """The element of `x` at an index of a shape that `x` broadcasts to: size-1 axes are read at 0, leading axes ignored."""
    tail = index[len(index) - len(x.shape):]
    return x.at(*(0 if d == 1 else i for d, i in zip(x.shape, tail, strict=True)))


def broadcasts_to(shape: Sequence[Dim], target: Sequence[Dim]) -> bool:
    """Can an array of `shape` be shown to broadcast to exactly `target`?"""
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(reversed(shape), reversed(target), strict=False))


def dtype_error(op: Op, types: Sequence[Type], fact: str, hint: str) -> DTypeError:
    """A DTypeError about this op on these operand types."""
    return DTypeError(describe(op, types, fact), hint)


def shape_error(op: Op, types: Sequence[Type], fact: str, hint: str = MATCH_CAST) -> ShapeError:
    """A ShapeError about this op on these operand types."""
    return ShapeError(describe(op, types, fact), hint)


def describe(op: Op, types: Sequence[Type], fact: str) -> str:
    """``add(x, y): fact``, and on a second line the operands' types."""
    texts = _operand_texts(op, len(types))
    where = ", ".join(f"{name}: {t}" for name, t in dict(zip(texts, types, strict=True)).items())
    return f"{op.opname()}({', '.join(texts)}): {fact}" + (f"\n  where {where}" if where else "")


def _operand_texts(op: Op, count: int) -> list[str]:
    texts = []
    for field in operand_names(type(op)):
        value = getattr(op, field)
        if isinstance(value, tuple):
            texts += [_operand_text(v, f"{field}{i}") for i, v in enumerate(value)]
        else:
            texts.append(_operand_text(value, field))
    return texts if len(texts) == count else [f"x{i}" for i in range(count)]


def _operand_text(value: object, placeholder: str) -> str:
    return value.name if isinstance(value, Var) else number_text(value.value) if isinstance(value, Const) else placeholder


def _differ(a: Dim, b: Dim) -> str:
    return "differ" if isinstance(a, int) and isinstance(b, int) else "cannot be shown equal"

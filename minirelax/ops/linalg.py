"""Products summed over shared indices: `matmul` and `einsum`.

>>> from minirelax.ir.types import f32
>>> Matmul(None, None).infer(f32["n", 784], f32[784, 10])
f32[n, 10]
>>> Einsum((None, None), "bik,bjk->bij").infer(f32["b", "n", 64], f32["b", "m", 64])
f32[b, n, m]
"""
from __future__ import annotations

import functools

import numpy as np

from minirelax.ir.dim import Dim
from minirelax.ir.graph import Atom
from minirelax.ir.op import Op, op
from minirelax.ir.scalar import Scalar, apply
from minirelax.ir.tensor import KernelBuilder, TensorExpr
from minirelax.ir.types import Tensor
from minirelax.ops.elementwise import sample
from minirelax.ops.rules import broadcast, broadcast_at, equal_sizes, same_dtype, shape_error


@op
class Matmul(Op):
    """Matrix product: ``out[..., i, j] = sum over k of a[..., i, k] * b[..., k, j]``; leading axes broadcast."""

    a: Atom
    b: Atom

    def infer(self, a, b):
        dtype = same_dtype(self, (a, b))
        if len(a.shape) < 2 or len(b.shape) < 2:
            raise shape_error(self, (a, b), "needs at least two axes each", "reshape the vector to a matrix of one row or column")
        equal_sizes(self, (a, b), a.shape[-1], b.shape[-2], "inner sizes are")
        batch = broadcast(self, (Tensor(dtype, a.shape[:-2]), Tensor(dtype, b.shape[:-2])))
        return Tensor(dtype, (*batch, a.shape[-2], b.shape[-1]))

    def numpy(self, a, b):
        return a @ b

    def lower(self, k: KernelBuilder, a: TensorExpr, b: TensorExpr) -> TensorExpr:
        type_ = self.infer(a.type, b.type)

        def value(*index):
            *batch, i, j, inner = index
            return product_of([broadcast_at(a, (*batch, i, inner)), broadcast_at(b, (*batch, inner, j))])
        return k.reduce(sum_of(type_.dtype), type_.shape, (a.shape[-1],), value, type_.dtype)

    @classmethod
    def examples(cls):
        shapes = (((2, 3), (3, 5)), ((7, 2, 3), (3, 5)), ((2, 1, 2, 3), (3, 3, 5)), ((2, 1), (1, 3)), ((1, 3), (3, 1)),
                  ((2, 0), (0, 3)))
        return [(cls(None, None), (finite("f32", *a), finite("f32", *b))) for a, b in shapes] + [
            (cls(None, None), (finite(t, 2, 3), finite(t, 3, 5))) for t in ("i8", "i64", "f64", "bool", "c64", "c128")]


@op
class Einsum(Op):
    """Einstein's summation, written out: ``ij,jk->ik``.  A letter repeated in one operand walks its diagonal; letters that the
    result lacks are summed over.  One letter has one size, or 1 (which broadcasts).
    """

    arrays: tuple[Atom, ...]
    subscripts: str

    def infer(self, *xs):
        dtype = same_dtype(self, xs)
        sizes = self._sizes(xs)
        return Tensor(dtype, tuple(sizes[c] for c in self._parsed()[1]))

    def numpy(self, *arrays):
        return np.einsum(self.subscripts, *arrays, optimize=True)         # through matmul where it can

    def lower(self, k: KernelBuilder, *xs: TensorExpr) -> TensorExpr:
        type_, sizes = self.infer(*(x.type for x in xs)), self._sizes([x.type for x in xs])
        terms, result = self._parsed()
        letters = (*result, *(c for c in sizes if c not in result))

        def value(*index):
            at = dict(zip(letters, index, strict=True))
            return product_of([broadcast_at(x, [at[c] for c in term]) for x, term in zip(xs, terms, strict=True)])
        over = tuple(sizes[c] for c in letters[len(result):])
        if not over:
            return TensorExpr(type_.shape, type_.dtype, value)
        return k.reduce(sum_of(type_.dtype), type_.shape, over, value, type_.dtype)

    def _parsed(self) -> tuple[list[str], str]:
        terms, _, result = self.subscripts.partition("->")
        return terms.split(","), result

    def _sizes(self, xs) -> dict[str, Dim]:
        """The size of each letter, in order of appearance.  Raises ShapeError for subscripts that do not fit the operands."""
        terms, result = self._parsed()
        if "->" not in self.subscripts or [len(t) for t in terms] != [len(x.shape) for x in xs]:
            raise shape_error(self, xs, f"subscripts {self.subscripts!r} do not match the axes", "write one letter per axis")
        sizes: dict[str, Dim] = {}
        for c, d in ((c, d) for term, x in zip(terms, xs, strict=True) for c, d in zip(term, x.shape, strict=True)):
            known = sizes.setdefault(c, d)
            sizes[c] = d if known == 1 else known if d == 1 else equal_sizes(self, xs, known, d, f"index {c} has sizes")
        if len(set(result)) != len(result) or not set(result) <= sizes.keys() or not all(c.isalpha() for c in sizes):
            fact = f"subscripts {self.subscripts!r} do not define a result"
            raise shape_error(self, xs, fact, "write each letter after -> once, and only letters from before it")
        return sizes

    @classmethod
    def examples(cls):
        def case(subscripts, *shapes, dtype="f64"):
            return cls((None,) * len(shapes), subscripts), tuple(finite(dtype, *s) for s in shapes)
        return [case("ij,jk->ik", (2, 3), (3, 5)), case("bik,bjk->bij", (2, 3, 5), (2, 7, 5)), case("ii->i", (3, 3)),
                case("ii->", (3, 3)), case("ij->ji", (2, 3)), case("i,j,k->kji", (2,), (3,), (5,)), case(",i->i", (), (3,)),
                case("ij,kj,j->", (2, 1), (5, 3), (3,)), case("ij,jk->ik", (2, 3), (3, 5), dtype="bool"),
                case("ij,jk->ik", (2, 3), (3, 5), dtype="c64"), case("i,j->ij", (2,), (3,), dtype="c128"), case("ij->i", (2, 0)),
                case("ij,ij->i", (2, 3), (2, 3), dtype="i8")]


def sum_of(dtype: str) -> str:
    """The reduction that NumPy's products sum with: bools are combined by *or*."""
    return "any" if dtype == "bool" else "sum"


def product_of(factors: list[Scalar]) -> Scalar:
    """The product of scalars; of bools, *and*."""
    return functools.reduce(lambda a, b: apply("logical_and" if a.dtype == "bool" else "multiply", a, b), factors)


def finite(dtype: str, *shape: int) -> np.ndarray:
    """Sample values without infinities."""
    values = sample(dtype, *shape)
    return np.nan_to_num(values, nan=1.0, posinf=2.0, neginf=-2.0) if dtype[0] in "fc" else values

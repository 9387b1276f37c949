"""Every op, on its own examples: the inferred type is NumPy's, and the loops compute what NumPy computes.

Each example runs twice: with its sizes as numbers, and with names in place of all sizes but 0 and 1.
"""
from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from minirelax.ir.dim import names, substitute, symbol
from minirelax.ir.graph import Var, operand_names
from minirelax.ir.op import attribute_names
from minirelax.ir.tensor import lower_to_kernel
from minirelax.ir.types import Shape, Tensor, dtype_name, substitute_type
from minirelax.ops import OPS
from tests.ops.evaluate import evaluate

PRIMES = (2, 3, 5, 7, 11, 13)
SIZES = {f"n{p}": p for p in PRIMES}
CASES = [pytest.param(op, arrays, id=f"{name}-{i}") for name, cls in OPS.items() for i, (op, arrays) in enumerate(cls.examples())]
LOOPS = [case for case in CASES if not case.values[0].library]
EITHER_ZERO = ("fmax", "fmin", "maximum", "minimum", "max", "min")       # which of 0.0 and -0.0 these give, NumPy leaves open
TOLERANCE = {"f32": 4e-6, "f64": 1e-13, "c64": 4e-6, "c128": 1e-13}


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("op, arrays", CASES)
def test_inferred_type_is_numpys(op, arrays):
    for result, type_ in zip(results_of(op, arrays), as_tuple(op.infer(*map(type_of, arrays))), strict=True):
        assert isinstance(type_, Shape) or type_.dtype == dtype_name(result.dtype)
        assert_shape(type_, result)


@pytest.mark.parametrize("op, arrays", CASES)
def test_symbolic_type_stands_for_numpys(op, arrays):
    """The same with every size replaced by a product of names: the type, with the names replaced again, is NumPy's."""
    named, types = symbolic(op), [symbolic_type(type_of(a)) for a in arrays]
    for result, type_ in zip(results_of(op, arrays), as_tuple(named.infer(*types)), strict=True):
        assert_shape(substitute_type(type_, SIZES), result)


@pytest.mark.parametrize("op, arrays", LOOPS)
def test_loops_mean_what_numpy_does(op, arrays):
    assert_same(run(op, [type_of(a) for a in arrays], arrays), op.numpy(*arrays), op.opname() not in EITHER_ZERO)


@pytest.mark.parametrize("op, arrays", LOOPS)
def test_loops_for_symbolic_sizes(op, arrays):
    """One kernel for all sizes: no size is a number except 0 and 1."""
    types = [symbolic_type(type_of(a)) for a in arrays]
    assert_same(run(symbolic(op), types, arrays), op.numpy(*arrays), op.opname() not in EITHER_ZERO)


@pytest.mark.parametrize("name", OPS)
def test_examples_cover_and_compare(name):
    examples = OPS[name].examples()
    assert examples and all(op == replace(op) and hash(op) == hash(replace(op)) and op.opname() == name for op, _ in examples)


def run(op, types, arrays) -> np.ndarray:
    """The op's kernel on these arrays."""
    params = tuple(Var(f"a{i}", t) for i, t in enumerate(types))
    with_vars = replace(op, **dict(zip(operand_names(type(op)), distribute(op, params), strict=True)))
    kernel = lower_to_kernel(op.opname(), with_vars.lower, params, frozenset(SIZES))
    assert kernel.types == (with_vars.infer(*types),)
    return evaluate(kernel, arrays, SIZES)[0]


def distribute(op, params):
    """The parameters, grouped as the op's operand fields are."""
    rest = iter(params)
    for field in operand_names(type(op)):
        old = getattr(op, field)
        yield tuple(next(rest) for _ in old) if isinstance(old, tuple) else next(rest)


def symbolic(op):
    """The op with every number in a field for sizes replaced as in `symbolic_size`."""
    sized = [f.name for f in fields(op) if "Dim" in str(f.type) and f.name in attribute_names(type(op))]
    return replace(op, **{name: symbolic_tree(getattr(op, name)) for name in sized})


def symbolic_tree(attribute):
    return tuple(map(symbolic_tree, attribute)) if isinstance(attribute, tuple) else symbolic_size(attribute)


def symbolic_type(type_: Tensor | Shape) -> Tensor | Shape:
    if isinstance(type_, Shape):
        return Shape(tuple(map(symbolic_size, type_.values)))
    return Tensor(type_.dtype, tuple(map(symbolic_size, type_.shape)))


def symbolic_size(size: int):
    """A number as the product of a name for each of its prime factors, so that equal products stay equal; 0 and 1 stay."""
    if size < 2:
        return size
    prime = next(p for p in PRIMES if size % p == 0)
    return symbol(f"n{prime}") * symbolic_size(size // prime)


def type_of(array: np.ndarray | tuple) -> Tensor | Shape:
    return Shape(array) if isinstance(array, tuple) else Tensor(dtype_name(array.dtype), array.shape)


def as_tuple(results):
    return results if isinstance(results, tuple) else (results,)


def results_of(op, arrays) -> tuple:
    """The results by NumPy: several in a tuple, or one, which may be a shape and then is a tuple itself."""
    found = op.numpy(*arrays)
    return (found,) if isinstance(op.infer(*map(type_of, arrays)), Shape) else as_tuple(found)


def assert_shape(type_: Tensor | Shape, result: np.ndarray | tuple) -> None:
    sizes, found = (type_.values, result) if isinstance(type_, Shape) else (type_.shape, result.shape)
    assert type_.ndim in (None, len(found))
    assert all(d is None or d == n for d, n in zip(sizes or (), found, strict=sizes is not None)), (type_, found)


def assert_same(got: np.ndarray, want: np.ndarray, signed_zeros: bool = False) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype.kind == "c":
        return assert_same_parts(got, want)
    np.testing.assert_allclose(got, want, rtol=TOLERANCE.get(dtype_name(got.dtype), 0), atol=1e-30)
    if signed_zeros and got.dtype.kind == "f":
        assert np.array_equal(np.signbit(got[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


def assert_same_parts(got: np.ndarray, want: np.ndarray) -> None:
    """Infinities and NaN are in the same parts; else the distance is small against the number."""
    tolerance = TOLERANCE[dtype_name(got.dtype)]
    near = tolerance * np.where(np.isfinite(want), np.abs(want), 0)
    for g, w in ((got.real, want.real), (got.imag, want.imag)):
        fine = (np.abs(g - w) <= tolerance * np.abs(w) + near + 1e-30) | (g == w) | (np.isnan(g) & np.isnan(w))
        assert fine.all(), f"{got[~fine]} in place of {want[~fine]}"


def test_symbolic_size_stands_for_its_number():
    for size in (0, 1, 2, 4, 6, 15, 30):
        assert substitute(symbolic_size(size), SIZES) == size and bool(names(symbolic_size(size))) == (size > 1)

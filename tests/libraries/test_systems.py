"""Inverses, factors and determinants by routines that compute just what is asked for."""

from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
from minirelax import f64
from minirelax.errors import LibraryError
from minirelax.ir.interpret import interpret
from minirelax.ir.types import Tensor, dtype_name
from minirelax.libraries import blas, linalg
from minirelax.libraries.systems import BLOCK
from minirelax.passes.choose_libraries import choose_libraries
from minirelax.pipeline import GRAPH_PASSES, run

inv, solve, cholesky, det = np.linalg.inv, np.linalg.solve, np.linalg.cholesky, np.linalg.det


def chosen(fn, *types, rules=None):
    stage = run(mr.trace(fn, *types), (*GRAPH_PASSES, choose_libraries(rules or linalg())))[-1]
    return stage.module, " ".join(n for n in stage.notes if "never matched" not in n)


def matrices(*shape: int, dtype=np.float64) -> np.ndarray:
    """Random matrices far from singular."""
    return (np.random.default_rng(len(shape)).standard_normal(shape) + 4 * np.sqrt(shape[-1]) * np.eye(shape[-1])).astype(dtype)


def positive(*shape: int) -> np.ndarray:
    x = matrices(*shape)
    return x @ np.swapaxes(x, -1, -2)


PRODUCTS = {
    "linalg_solve": lambda a, b: inv(a) @ b,
    "linalg_solve_transposed": lambda a, b: np.swapaxes(inv(a), -1, -2) @ b,
    "linalg_solve_right": lambda a, b: np.swapaxes(b, -1, -2) @ inv(a),
    "linalg_solve_right_transposed": lambda a, b: np.swapaxes(b, -1, -2) @ np.swapaxes(inv(a), -1, -2),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("batch", [(), (3,)])
def test_products_with_an_inverse(name, batch):
    fn = PRODUCTS[name]
    module, notes = chosen(fn, Tensor("f64", f64[(*batch, "n", "n")].shape), Tensor("f64", f64[(*batch, "n", "k")].shape))
    assert notes.startswith(f"{name}: taken at v") and "inv(" not in str(module)
    for n, k in ((5, 2), (1, 1), (4, 0), (0, 3), (3, 7)):
        a, b = matrices(*batch, n, n), matrices(*batch, max(n, k), max(n, k))[..., :n, :k]
        np.testing.assert_allclose(interpret(module, a, b), fn(a, b), rtol=1e-9, atol=1e-12, strict=True)


def test_vectors_and_f32():
    for fn in (lambda a, b: inv(a) @ b, lambda a, b: b @ inv(a)):
        a, b = matrices(4, 4, dtype=np.float32), np.arange(4, dtype=np.float32)
        module, notes = chosen(fn, *(Tensor(dtype_name(x.dtype), x.shape) for x in (a, b)))
        assert "taken" in notes
        np.testing.assert_allclose(interpret(module, a, b), fn(a, b), rtol=1e-4, strict=True)


def test_the_solution_is_the_more_accurate():
    n = 8
    a = 1 / (np.arange(n)[:, None] + np.arange(n) + 1.0)  # Hilbert's matrix
    b = a @ np.ones(n)
    module, _ = chosen(lambda a, b: inv(a) @ b, f64["n", "n"], f64["n"])
    assert np.abs(a @ interpret(module, a, b) - b).max() < 1e-3 * np.abs(a @ (inv(a) @ b) - b).max()


def test_singular_matrices_are_errors_as_before():
    fn = mr.jit(lambda a, b: inv(a) @ b, libraries=linalg())
    with pytest.raises(LibraryError, match="Singular matrix"):
        fn(np.ones((3, 3)), np.ones((3, 2)))


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: (inv(a), inv(a) @ b)[1] + inv(a),  # the inverse is read, too
        lambda a, b: inv(a) @ inv(a),  # the other operand is the inverse itself
        lambda a, b: inv(a) @ b[None] * np.ones((3, 1, 1)) @ a,  # one inverse, a batch of products
        lambda a, b: inv(a) * b,
    ],
)
def test_what_stays(fn):
    module, notes = chosen(lambda a, b: fn(a, b), f64["n", "n"], f64["n", "n"])
    assert "taken" not in notes and "= inv(a)" in str(module), notes
    a, b = matrices(3, 3), matrices(3, 3)
    np.testing.assert_allclose(interpret(module, a, b), fn(a, b))


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("n", [0, 1, 5, BLOCK, 2 * BLOCK + 3])
def test_two_solutions_with_a_factor(batch, n):
    def fn(a, b):
        factor = cholesky(a)
        return solve(np.swapaxes(factor, -1, -2), solve(factor, b))

    module, notes = chosen(fn, Tensor("f64", f64[(*batch, "n", "n")].shape), f64["n", 3])
    assert "linalg_substitute_back: taken at v3" in notes and "linalg_substitute: taken at v1" in notes.replace("v2", "v1")
    a, b = positive(*batch, n, n), np.random.default_rng(1).standard_normal((n, 3))
    np.testing.assert_allclose(interpret(module, a, b), fn(a, b), rtol=1e-8, atol=1e-12, strict=True)


def test_a_transposed_factor_that_is_read_twice_and_a_vector():
    def fn(a, b):
        upper = cholesky(a).T
        return solve(upper, b) + upper[0]

    module, notes = chosen(fn, f64["n", "n"], f64["n"])
    assert "linalg_substitute: taken" in notes and "sizes=(0,)" in str(module)
    for n in (1, 4, BLOCK + 1):
        a, b = positive(n, n), np.arange(n) + 1.0
        np.testing.assert_allclose(interpret(module, a, b), fn(a, b), rtol=1e-8, strict=True)


def test_other_systems_are_not_triangular():
    module, notes = chosen(lambda a, b: solve(a, b) + solve(a.T, b), f64["n", "n"], f64["n", 2])
    assert "taken" not in notes and str(module).count("= solve(") == 2


def test_logarithms_of_determinants():
    for fn in (lambda a: np.log(det(a)), lambda a: np.log(np.abs(det(a)))):
        module, notes = chosen(fn, f64["b", "n", "n"])
        assert "taken at" in notes and "det(" not in str(module)
        a = np.stack([matrices(3, 3), matrices(3, 3)[::-1], np.zeros((3, 3)), np.full((3, 3), np.nan)])
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(interpret(module, a), fn(a), rtol=1e-12)
        assert interpret(module, a[:0]).shape == (0,) and interpret(module, np.zeros((2, 0, 0))).tolist() == [0, 0]
    large = 1e3 * np.eye(200)[None]
    with np.errstate(over="ignore"):
        assert det(large) == np.inf
    assert interpret(module, large) == pytest.approx(200 * np.log(1e3))


def test_compiled_beside_other_rules():
    def fn(a, b):
        return np.exp(-(inv(a) @ b)) @ b.T

    compiled = mr.jit(fn, libraries=blas() + linalg(priority=1))
    for n, k in ((5, 2), (1, 1), (0, 3)):
        a, b = matrices(n, n), np.ones((n, k))
        np.testing.assert_allclose(compiled(a, b), fn(a, b), rtol=1e-9)
    notes = compiled.stages["choose_libraries"].notes
    assert "linalg_solve: taken at v1" in notes and any(n.startswith("blas_matmul") and "taken" in n for n in notes)

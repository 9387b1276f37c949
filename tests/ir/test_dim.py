"""Symbolic sizes: every law agrees with numbers, polynomials agree with sympy, and text reads back."""
from __future__ import annotations

import operator
import pickle
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirelax.ir.dim import (
    atoms,
    ceildiv,
    dim,
    floordiv,
    is_nonnegative,
    less_equal,
    linear,
    maximum,
    minimum,
    mod,
    names,
    product,
    simplify,
    substitute,
    symbol,
    value,
)

LEAVES = st.integers(-6, 9) | st.sampled_from("nmik")
TREES = st.recursive(LEAVES, lambda e: st.tuples(st.sampled_from(("+", "-", "*", "//", "%", "min", "max")), e, e), max_leaves=7)
POLYNOMIALS = st.recursive(LEAVES, lambda e: st.tuples(st.sampled_from("+-*"), e, e), max_leaves=8)
RANGES = {"i": (0, dim("n - 1")), "k": (2, 7)}
NUMBERS = [{"n": n, "m": m, "i": i, "k": k}
           for n in (1, 2, 5, 8) for m in (0, 1, 3, 7) for i in {0, n // 2, n - 1} for k in (2, 7)]
PLAIN = {"+": operator.add, "-": operator.sub, "*": operator.mul,
         "//": operator.floordiv, "%": operator.mod, "min": min, "max": max}


def build(tree, ranges=None):
    """The size that a tree of operations spells."""
    match tree:
        case int():
            return tree
        case str():
            return symbol(tree)
        case (("//" | "%" | "min" | "max") as op, a, b):
            law = {"//": floordiv, "%": mod, "min": minimum, "max": maximum}[op]
            return law(build(a, ranges), build(b, ranges), ranges)
        case (op, a, b):
            return PLAIN[op](build(a, ranges), build(b, ranges))


def compute(tree, sizes):
    """The number that the same tree gives; ZeroDivisionError where it has none."""
    match tree:
        case int():
            return tree
        case str():
            return sizes[tree]
        case (op, a, b):
            return PLAIN[op](compute(a, sizes), compute(b, sizes))


def where_defined(tree, numbers=NUMBERS):
    """Pairs of sizes and the number that the tree has there."""
    for sizes in numbers:
        try:
            yield sizes, compute(tree, sizes)
        except ZeroDivisionError:
            continue


@given(TREES)
def test_laws_agree_with_numbers(tree):
    d = build(tree)
    for sizes, number in where_defined(tree):
        assert value(d, sizes) == number


@given(TREES)
def test_laws_under_ranges_agree_with_numbers(tree):
    at_once, afterwards = build(tree, RANGES), simplify(build(tree), RANGES)
    for sizes, number in where_defined(tree):
        assert value(at_once, sizes) == value(afterwards, sizes) == number


@given(TREES, st.booleans())
def test_what_is_shown_nonnegative_is(tree, ranged):
    if is_nonnegative(build(tree), RANGES if ranged else None):
        assert all(number >= 0 for _, number in where_defined(tree))


@given(TREES, TREES, TREES)
def test_substitution_agrees_with_numbers(tree, for_n, for_m):
    d = substitute(build(tree), {"n": build(for_n), "m": build(for_m)})
    for sizes in NUMBERS[::5]:
        try:
            inner = {**sizes, "n": compute(for_n, sizes), "m": compute(for_m, sizes)}
            number = compute(tree, inner)
        except ZeroDivisionError:
            continue
        if inner["n"] >= 0 and inner["m"] >= 0:
            assert value(d, sizes) == number


@given(TREES)
def test_text_reads_back(tree):
    d = build(tree)
    assert dim(str(d)) == d


@given(TREES, TREES, TREES)
def test_ring_laws_hold_exactly(a, b, c):
    a, b, c = build(a), build(b), build(c)
    assert a + b == b + a and a * b == b * a and a - a == 0 and a + b - b == a
    assert (a + b) + c == a + (b + c) and (a * b) * c == a * (b * c) and a * (b + c) == a * b + a * c
    assert hash(a + b) == hash(b + a)


@given(TREES, TREES)
def test_minimum_and_maximum_do_not_depend_on_order(a, b):
    a, b = build(a), build(b)
    assert minimum(a, b) == minimum(b, a) and maximum(a, b) == maximum(b, a)
    assert minimum(a, a) == maximum(a, a) == a


@settings(deadline=None)
@given(POLYNOMIALS, POLYNOMIALS)
def test_equality_of_polynomials_is_sympys(a, b):
    sympy = pytest.importorskip("sympy")
    unknowns = {n: sympy.Symbol(n, integer=True) for n in "nmik"}
    difference = sympy.expand(compute(a, unknowns) - compute(b, unknowns))
    assert (build(a) == build(b)) == (difference == 0)
    found = build(a) - build(b)
    assert sympy.expand(sympy.sympify(str(found), locals=unknowns)) == difference


@given(POLYNOMIALS, POLYNOMIALS)
def test_exact_division_is_found(a, b):
    a, b = build(a), build(b)
    if b != 0:
        assert floordiv(a * b, b) == a and mod(a * b, b) == 0


@given(TREES)
def test_linear_puts_the_parts_apart(tree):
    d = build(tree)
    if (found := linear(d, ("i", "k"))) is not None:
        coefficients, rest = found
        assert sum((c * symbol(v) for v, c in coefficients.items()), rest) == d
        assert not any(names(c) & {"i", "k"} for c in (*coefficients.values(), rest))


@pytest.mark.parametrize("text, normal", [
    ("2*n - n - n", "0"), ("(n + 1)*(n - 1)", "n*n - 1"), ("n*m - m*n", "0"), ("0*n", "0"),
    ("(4*n + 7)//4", "n + 1"), ("(4*n + 7) % 4", "3"), ("(n - 1)//4", "(n + 3)//4 - 1"), ("n//1", "n"), ("n % 1", "0"),
    ("n//4//8", "n//32"), ("6*n//4", "3*n//2"), ("6*n % 4", "2*(3*n % 2)"),
    ("(8*n + 3)//16", "n//2"), ("(8*n + 3) % 16", "8*(n % 2) + 3"),
    ("-(-n//4)", "(n + 3)//4"), ("n*m//m", "n"), ("n*(m + 1)//(m + 1)", "n"), ("(n*n - 1)//(n - 1)", "n + 1"),
    ("(n*m + k) % m", "k % m"), ("n*m*k//(n*k)", "m"), ("3*n*m//(2*m)", "3*n//2"), ("n % 4 % 4", "n % 4"), ("n % 8 % 4", "n % 4"),
    ("n % m // m", "0"), ("7 // (n + 8)", "0"), ("7 % (n + 8)", "7"), ("0//n", "0"),
    ("min(n, n + 1)", "n"), ("max(n, n + 1)", "n + 1"), ("min(n, 0)", "0"), ("max(n, 0)", "n"), ("max(n, 1 - 1)", "n"),
    ("min(m, n)", "min(n, m)"), ("min(n, min(m, n + 3))", "min(min(n, m), m)"), ("min(3, min(n, 5))", "min(n, 3)"),
    ("max(max(n, 2), max(m, 4))", "max(m, max(n, 4))"), ("min(n//2, n)", "n//2"), ("max(n % 8, 7)", "7")])
def test_normal_forms(text, normal):
    assert dim(text) == dim(normal)


@pytest.mark.parametrize("text, ranges, normal", [
    ("(32*h + k)//32", {"k": (0, 31)}, "h"), ("(32*h + k) % 32", {"k": (0, 31)}, "k"), ("(32*h + k)//64", {"k": (0, 31)}, "h//2"),
    ("(i*m + j)//m", {"j": (0, "m - 1")}, "i"), ("(i*m + j) % m", {"j": (0, "m - 1")}, "j"),
    ("(i*m + j)//(2*m)", {"j": (0, "m - 1")}, "i//2"), ("(i*m + j) % (n*m)", {"i": (0, "n - 1"), "j": (0, "m - 1")}, "i*m + j"),
    ("(i*(m + 1) + j)//(m + 1)", {"j": (0, "m")}, "i"), ("((i*m + j)*4 + k)//(4*m)", {"j": (0, "m - 1"), "k": (0, 3)}, "i"),
    ("min(i + 1, n)", {"i": (0, "n - 1")}, "i + 1"), ("min(n - 1, max(i, 0))", {"i": (0, "n - 1")}, "i"),
    ("n//4*4 + n % 4", {}, "n"), ("m*(i//n*n + i % n)", {}, "m*i"), ("i//n*n + i % m", {}, "i//n*n + i % m")])
def test_normal_forms_under_ranges(text, ranges, normal):
    bounds = {name: tuple(dim(str(end)) for end in ends) for name, ends in ranges.items()}
    assert simplify(dim(text), bounds) == dim(normal)


@pytest.mark.parametrize("small, large, ranges", [
    ("n", "(n + 3)//4*4", {}), ("n//4*4", "n", {}), ("n", "m*((n + m - 1)//m)", {}), ("n//4", "(n + 3)//4", {}),
    ("n % m", "m - 1", {}), ("n % m", "n", {}), ("i", "n - 1", {"i": (0, "n - 1")}),
    ("i*m + j", "n*m - 1", {"i": (0, "n - 1"), "j": (0, "m - 1")}),
    ("i", "min(i + 32, n)", {"i": (0, "n - 1")}), ("j", "n - 1", {"i": (0, "n - 1"), "j": (0, "i")}), ("max(i, j)", "n", {
        "i": (0, "n"), "j": (0, "n")}), ("-4", "k", {"k": (-4, 3)})])
def test_inequalities_that_are_shown(small, large, ranges):
    bounds = {name: tuple(dim(str(end)) for end in ends) for name, ends in ranges.items()}
    assert less_equal(dim(small), dim(large), bounds)
    assert not less_equal(dim(large) + 1, dim(small), bounds)


@pytest.mark.parametrize("small, large", [("n", "m"), ("n", "n*m"), ("1", "n"), ("n", "4*(n//4)"), ("k", "0"), ("n*n", "n")])
def test_inequalities_that_do_not_hold_are_not_shown(small, large):
    assert not less_equal(dim(small), dim(large))


def test_a_divisor_of_zero_has_no_value():
    assert str(dim("n//0")) == "n//0" and str(dim("5 % 0")) == "5%0"
    with pytest.raises(ZeroDivisionError):
        value(dim("n//m"), {"n": 1, "m": 0})


def test_helpers():
    n, m = symbol("n"), symbol("m")
    assert ceildiv(n, 8) == dim("(n + 7)//8") and product((n, 2, m)) == dim("2*n*m") and product(()) == 1
    assert names(dim("min(n, m//k)")) == {"n", "m", "k"} and names(7) == frozenset()
    assert [str(a) for a in atoms(dim("min(n//2, m)//3"))] == ["n//2", "min(m, n//2)", "min(m, n//2)//3"]
    assert linear(dim("i*i"), ("i",)) is None and linear(dim("i//2"), ("i",)) is None
    assert substitute(dim("n*m + n//2"), {"n": symbol("m"), "m": symbol("n")}) == dim("n*m + m//2")


@pytest.mark.parametrize("text", ["n/2", "f(n)", "n.m", "1.5", "True", "'n'", "n if m else k", "", "n +", "min(n)", "n**2"])
def test_other_expressions_are_not_sizes(text):
    with pytest.raises(SyntaxError):
        dim(text)


def test_pickled_sizes_are_found_by_other_processes():
    """Hashes of strings differ between processes: a cached hash must not travel."""
    d = dim("(n + 3)//4*m")
    hash(d), str(d)
    program = f"""import pickle
from minirelax.ir.dim import dim
print(pickle.loads({pickle.dumps(d)!r}) in {{dim({str(d)!r}): 1}})"""
    environment = {"PYTHONHASHSEED": "7", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "True\n"

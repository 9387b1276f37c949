"""What users expect of sizes: equalities that are found, orders that are shown, and nothing that numbers refute."""
from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirelax.ir.comparable import comparable
from minirelax.ir.dim import ceildiv, dim, floordiv, maximum, minimum, mod, names, simplify, symbol, value
from minirelax.ir.knowledge import prove

OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
              "//": floordiv, "%": mod, "min": minimum, "max": maximum}
LEAVES = st.integers(-6, 9) | st.sampled_from("nmk")
TREES = st.recursive(LEAVES, lambda e: st.tuples(st.sampled_from(tuple(OPERATIONS)), e, e), max_leaves=7)
POLYNOMIALS = st.recursive(LEAVES, lambda e: st.tuples(st.sampled_from("+-*"), e, e), max_leaves=5)
THOROUGH = settings(deadline=None, max_examples=150)

BY_NORMAL_FORM = """
2*n == n*2                                (n + 1)*4 - 4*n == 4                      n//1 == n
n*m == m*n                                (n + 1)*(n - 1) == n*n - 1                n - n == 0
n*4//4 == n                               n*m//m == n                               (n*m + k)//m == n + k//m
(4*n + 3)//4 == n                         (4*n + 3) % 4 == 3                        (n - 1)//4 == (n + 3)//4 - 1
n//4//8 == n//32                          n//m//4 == n//(4*m)                       n//m//k == n//(k*m)
((n + 1)//2 + 2)//3 == (n + 5)//6         (n//2 + 7)//4 == (n + 14)//8              (m + n//2)//3 == (2*m + n)//6
(n//4 + 3)//4 == (n + 12)//16             6*n//4 == 3*n//2                          6*n % 4 == 2*(3*n % 2)
(8*n + 3)//16 == n//2                     (8*n + 3) % 16 == 8*(n % 2) + 3           -(-n//4) == (n + 3)//4
n//-4 == -n//4                            n % -4 == -(-n % 4)                       (n - n % 4) % 4 == 0
n % 8 % 4 == n % 4                        (n % 8 + m) % 4 == (n + m) % 4            (3*(n % 4) + m) % 4 == (3*n + m) % 4
n % 8 // 4 == n//4 % 2                    n % (4*m) // m == n//m % 4                (m*(n % k) + k) % m == k % m
min(n + 1, m + 1) == min(n, m) + 1        max(n + 3, m + 1) == max(n + 2, m) + 1    max(n - 1, 0) + 1 == max(n, 1)
min(4*n, 4*m) == 4*min(n, m)              max(n*k, m*k) == k*max(n, m)              min(4*n + 4, 8) == 4*min(n, 1) + 4
min(n, m) == min(m, n)                    min(n, min(m, k)) == min(min(n, m), k)    min(m, n)*k == min(m*k, n*k)
(n*m + m - 1)//m == n                     (m - 1)//m == 0                           (n*m + m - 1) % m == m - 1
min(n, n + m) == n                        max(n, n + m) == n + m                    min(n, max(n, m)) == n
min(32, n - 32*m) + 32*m == min(32*m + 32, n)   min(min(n, m) + 1, k) == min(n + 1, min(m + 1, k))
"""

BY_PROOF = """
n//2 + (n + 1)//2 == n                    n//4*4 + n % 4 == n                       n//m*m + n % m == n
n//3 + (n + 1)//3 + (n + 2)//3 == n       n//4 + (n + 2)//4 == n//2                 (n + 3)//4*4 - n == -n % 4
5*n % 4 == n % 4                          3*n//2 == n + n//2                        (m - n)//4 == -((n - m + 3)//4)
min(n, m) + max(n, m) == n + m            min(n, m)*max(n, m) == n*m                max(n, m) - min(n, m) == max(n - m, m - n)
max(n - 1, 0) == n - min(n, 1)            max(n, m) == -min(-n, -m)                 max(n - m, 0) + min(n, m) == n
min(n, 512)//4 == min(n//4, 128)          (min(n, m) + 3)//4 == min((n + 3)//4, (m + 3)//4)
min(max(n, 2), 7) == max(min(n, 7), 2)    max(min(n, m), min(n, k)) == min(n, max(m, k))
n*(n + 1) % 2 == 0                        n*(n + 1)//2*2 == n*n + n                 n*(n + 1)*(n + 2) % 6 == 0
n*n % 2 == n % 2                          n*n*n % 3 == n % 3                        (2*n + 1)*(2*n + 1) % 8 == 1
n % 8 == n % 4 + n//4 % 2*4               (n + m) % 4 == (n % 4 + m % 4) % 4        (n - n % 4)//4 == n//4
n % 2*(n % 2) == n % 2                    n//8*2 + n//4 % 2 == n//4                 max(n, 1) - min(n, 1) == max(n - 1, 1 - n)
k - max(n, m) == min(k - n, k - m)        m*n//(m + n) == m*n//(n + m)              min(n, m)//2*2 + min(n, m) % 2 == min(m, n)
"""

ORDERS = """
n <= (n + 7)//8*8                         (n + 7)//8*8 <= n + 7                     n//4*4 <= n
n < n//4*4 + 4                            n % m < m                                 n % m <= n
n//4 <= (n + 3)//4                        n <= m*((n + m - 1)//m)                   min(n, m) <= n
n <= max(n, m)                            min(n, m) <= max(n, m)                    n + m <= 2*max(n, m)
n*n % 4 <= 1                              0 <= n*n - 2*n + n//1*2                   n//m <= n
(n + 1)//2 <= max(n, 1)                   n//3 + m//3 <= (n + m)//3                 n < n + 1
"""

UNDECIDED = """
n == m  n < m  n <= n*m  1 <= n  n == n//4*4  n*n == n  n*m == 0  n <= 512  n % 4 == 0  n//2 == n//3  min(n, 512) == n
"""


def claims(text: str) -> list[str]:
    """The claims in a table of them: cells are two or more blanks apart."""
    return [claim for line in text.strip().splitlines() for claim in re.split(r"\s{2,}", line.strip())]


def parts(claim: str):
    """``(relation, left, right)`` of ``"n <= m"``."""
    left, relation, right = re.fullmatch(r"(.*?) (==|!=|<=|>=|<|>) (.*)", claim).groups()
    return relation, dim(left), dim(right)


def numbers(claim: str, below: int = 14):
    """Names with numbers, where the text, read as Python, has a value; and whether it is true there."""
    used = sorted(set(re.findall(r"\b[nmk]\b", claim)))
    for row in itertools.product(range(below), repeat=len(used)):
        sizes = dict(zip(used, row, strict=True))
        try:
            yield sizes, eval(claim, {"min": min, "max": max}, sizes)      # noqa: S307 (our own text)
        except ZeroDivisionError:
            continue


@pytest.mark.parametrize("claim", claims(BY_NORMAL_FORM))
def test_equal_normal_forms(claim):
    _, left, right = parts(claim)
    assert left == right and prove("==", left, right) is True and prove("!=", left, right) is False
    assert all(holds for _, holds in numbers(claim))


@pytest.mark.parametrize("claim", claims(BY_PROOF))
def test_equalities_that_are_proven(claim):
    _, left, right = parts(claim)
    assert prove("==", left, right) is True and prove("==", left, right + 1) is False
    assert all(holds for _, holds in numbers(claim))


@pytest.mark.parametrize("claim", claims(ORDERS))
def test_orders_that_are_proven(claim):
    relation, left, right = parts(claim)
    assert prove(relation, left, right) is True
    assert prove({"<=": ">", "<": ">="}[relation], left, right) is False
    assert all(holds for _, holds in numbers(claim))


@pytest.mark.parametrize("claim", claims(UNDECIDED))
def test_what_is_true_for_some_sizes_only_is_not_decided(claim):
    assert prove(*parts(claim)) is None
    assert {holds for _, holds in numbers(claim, 600 if "512" in claim else 14)} == {True, False}


@pytest.mark.parametrize("text, printed", [
    ("(n + 3)//4*4", "4*((n + 3)//4)"), ("max(n - 1, 0)", "max(n - 1, 0)"), ("max(i - n - 1, 0)", "max(i - n - 1, 0)"),
    ("min(n, m) - 4", "min(m, n) - 4"), ("n - min(n, 1)", "n - min(n, 1)"), ("min(n - 4, m - 4)", "min(m, n) - 4"),
    ("3*max(n - 1, 0)", "3*max(n, 1) - 3"), ("min(32, n - 32*i)", "min(32, -32*i + n)"), ("n//m//4", "n//(4*m)")])
def test_the_words_of_a_normal_form(text, printed):
    assert str(dim(text)) == printed and dim(printed) == dim(text)


@THOROUGH
@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(("n", "n + m", "n*m", "n//3", "min(n, m)")))
def test_ceiling_divisions_compose(a, b, text):
    d = dim(text)
    assert prove("==", ceildiv(ceildiv(d, a), b), ceildiv(d, a * b)) is True
    assert prove("<=", d, ceildiv(d, a) * a) is True and prove("<", ceildiv(d, a) * a, d + a) is True
    assert prove("==", ceildiv(d * a, a), d) is True and prove("==", ceildiv(d, a), (d + a - 1) // a) is True


def build(tree, ranges=None):
    """The size that a tree of operations spells."""
    match tree:
        case int():
            return tree
        case str():
            return symbol(tree)
    op, a, b = tree
    a, b = build(a, ranges), build(b, ranges)
    return OPERATIONS[op](a, b, ranges) if op in ("//", "%", "min", "max") else OPERATIONS[op](a, b)


def text_of(tree) -> str:
    """The tree in Python's words."""
    match tree:
        case int() | str():
            return f"({tree})"
        case ("min" | "max") as op, a, b:
            return f"{op}({text_of(a)}, {text_of(b)})"
    op, a, b = tree
    return f"({text_of(a)} {op} {text_of(b)})"


@THOROUGH
@given(TREES)
def test_words_are_a_fixed_point(tree):
    d = build(tree)
    assert dim(str(d)) == d and str(dim(str(d))) == str(d) and dim(text_of(tree)) == d


@THOROUGH
@given(TREES)
def test_the_comparable_form_is_equal_for_all_numbers(tree):
    d = comparable(build(tree))
    assert "%" not in str(d) and "max" not in str(d)
    for sizes, number in numbers(text_of(tree), 7):
        assert value(d, {"n": 0, "m": 0, "k": 0} | sizes) == number


@THOROUGH
@given(POLYNOMIALS, POLYNOMIALS)
def test_minimum_and_maximum_add_up(a, b):
    a, b = build(a), build(b)
    assert comparable(minimum(a, b) + maximum(a, b)) == comparable(a + b)
    assert prove("==", minimum(a, b) * maximum(a, b), a * b) is True


@THOROUGH
@given(TREES, TREES, st.sampled_from(("==", "!=", "<", "<=", ">", ">=")))
def test_numbers_refute_no_proof(a, b, relation):
    found = prove(relation, build(a), build(b))
    assert found is None or all(holds is found for _, holds in numbers(f"{text_of(a)} {relation} {text_of(b)}", 7))


@THOROUGH
@given(TREES, st.fixed_dictionaries({name: st.tuples(st.integers(0, 9), st.integers(0, 4)) for name in "nmk"}))
def test_laws_under_ranges_hold_for_all_numbers_in_them(tree, drawn):
    ranges = {name: (low, low + more) for name, (low, more) in drawn.items()}
    at_once, afterwards = build(tree, ranges), simplify(build(tree), ranges)
    for row in itertools.product(*(range(low, high + 1) for low, high in ranges.values())):
        sizes = dict(zip(ranges, row, strict=True))
        try:
            number = eval(text_of(tree), {"min": min, "max": max}, sizes)      # noqa: S307
        except ZeroDivisionError:
            continue
        assert value(at_once, sizes) == value(afterwards, sizes) == number


@settings(deadline=None, max_examples=60)
@given(TREES)
def test_the_words_mean_the_same_to_sympy(tree):
    """SymPy reads the printed form with its own ``floor``, ``Mod``, ``Min`` and ``Max``."""
    sympy = pytest.importorskip("sympy")
    d = build(tree)
    known = {name: sympy.Symbol(name, integer=True, nonnegative=True) for name in "nmk"} | {"min": sympy.Min, "max": sympy.Max}
    for row in ((0, 1, 2), (5, 3, 1), (7, 7, 4), (12, 5, 9)):
        sizes = dict(zip("nmk", row, strict=True))
        try:
            number = eval(text_of(tree), {"min": min, "max": max}, sizes)      # noqa: S307
        except ZeroDivisionError:
            continue
        read = sympy.sympify(str(d), locals=known)
        assert read.subs({known[name]: sizes[name] for name in names(d)}) == number

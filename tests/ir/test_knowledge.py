"""What guards and bounds imply is found, and nothing is concluded that some admitted numbers refute."""
from __future__ import annotations

import functools
import itertools
import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from minirelax.ir.dim import dim, floordiv, maximum, minimum, mod, symbol, value
from minirelax.ir.graph import Function, Guard, Var
from minirelax.ir.interval import interval
from minirelax.ir.knowledge import Knowledge, prove
from minirelax.ir.types import Tensor

HOLDS = {"==": int.__eq__, "!=": int.__ne__, "<": int.__lt__, "<=": int.__le__, ">": int.__gt__, ">=": int.__ge__}
QUICK = settings(deadline=None, max_examples=60)

# claim if fact; fact
IMPLIED = """
n//4*4 == n                 if  n % 4 == 0
(n + 3)//4 == n//4          if  n % 4 == 0
n % 2 == 0                  if  n % 4 == 0
n*m % 4 == 0                if  n % 4 == 0
(n + m)//4 == n//4 + m//4   if  n % 4 == 0
(n - 1)//4 == n//4          if  n % 4 == 1
n % 12 == 0                 if  n % 4 == 0; n % 6 == 0
n % 12 == 5                 if  n % 4 == 1; n % 6 == 5
(n + m) % 4 == 0            if  n % 4 == 1; m % 4 == 3
(n + m)//4*4 == n + m       if  (n + m) % 4 == 0
3*n//4*4 == 3*n             if  3*n % 4 == 0
n//4*4 == n                 if  3*n % 4 == 0
n*m//4*4 == n*m             if  n*m % 4 == 0
n//m*m == n                 if  n % m == 0
n//(4*m)*m*4 == n           if  n % (4*m) == 0
min(n, 9)//3*3 == min(n, 9) if  min(n, 9) % 3 == 0
min(n, 8) == n              if  n <= 8
n//8 == 0                   if  n < 8
n % 8 == n - 8              if  n >= 8; n < 16
n//m == 0                   if  n < m
n % m == n                  if  n < m
n <= 8                      if  n == min(n, 8)
n <= 4                      if  2*n == min(2*n, 8)
n <= m                      if  max(n, k) <= m
n <= m                      if  n <= min(m, k)
n == m                      if  n <= m; m <= n
n < k                       if  n < m; m < k
n <= m                      if  n == 2*k; m == 3*k
n <= 2*m                    if  2*n == 3*m
2*m <= n                    if  4*m <= 2*n
n//2 <= m                   if  n <= 2*m
m < n//2                    if  n >= 2*m + 2
n*m <= 8*n                  if  m <= 8
n + m - 1 <= n*m            if  n > 0; m > 0
0 < n*m                     if  n > 0; m != 0
n > 0                       if  n != 0
n != m                      if  n != m
n != m                      if  n < m
m*n == k*n                  if  4*n*(m//4) == k*n; m*n == 4*n*(m//4)
m == k                      if  m + n == 7; k + n == 7
n - m == min(n, 3) - m      if  n <= 3
max(n - m, 0) == n - m      if  m <= n
n == m                      if  k > 0; n*k == m*k
n <= m                      if  k > 0; n*k <= m*k
n <= 2                      if  2*n < 6
(n + m - 1)//m*m == n       if  n % m == 0
n//m == 2                   if  2*m <= n; n < 3*m
n//4 == m                   if  n == 4*m + k; k < 4
"""

NOT_IMPLIED = """
n//4*4 == n                 if  n % 2 == 0
n <= 8                      if  n >= 1
min(n, 8) == n              if  n >= 1
n == m                      if  n <= m
n < k                       if  n < m; k < m
n*m > 0                     if  n > 0
n % 12 == 0                 if  n % 4 == 0; n % 2 == 0
n == m                      if  n*k == m*k
"""


def fact(text: str):
    left, relation, right = re.fullmatch(r"(.*?) (==|!=|<=|>=|<|>) (.*)", text.strip()).groups()
    return relation, dim(left), dim(right)


def rows(table: str):
    pairs = [line.split(" if ") for line in table.strip().splitlines()]
    return [pytest.param(fact(claim), tuple(map(fact, facts.split("; "))), id=f"{claim} if {facts}") for claim, facts in pairs]


def admitted(facts, below: int = 13):
    """All numbers below `below` that satisfy the facts."""
    for n, m, k in itertools.product(range(below), repeat=3):
        sizes = {"n": n, "m": m, "k": k}
        try:
            if all(holds(f, sizes) for f in facts):
                yield sizes
        except ZeroDivisionError:
            continue


def holds(claim, sizes) -> bool:
    relation, left, right = claim
    return HOLDS[relation](value(left, sizes), value(right, sizes))


@pytest.mark.parametrize("claim, facts", rows(IMPLIED))
def test_what_facts_imply(claim, facts):
    assert prove(*claim, facts) is True
    checked = [holds(claim, sizes) for sizes in admitted(facts) if sizes["m"] or "m" not in str(claim)]
    assert checked and all(checked)
    relation, left, right = claim
    opposite = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}[relation]
    assert prove(opposite, left, right, facts) is False


@pytest.mark.parametrize("claim, facts", rows(NOT_IMPLIED))
def test_what_facts_do_not_imply(claim, facts):
    assert prove(*claim, facts) is None
    assert {holds(claim, sizes) for sizes in admitted(facts)} == {True, False}


def test_a_lower_bound_alone_is_no_upper_bound():
    """apache/tvm #18663: sizes with a lower bound only were planned as if that were the largest."""
    n = symbol("n")
    known = Knowledge.of_facts((), {"n": (4, None)})
    assert known.interval(n) == (4, None) and known.interval(4 * n + 3) == (19, None)
    assert known.prove("<=", n, 4) is None and known.prove("==", n, 4) is None and known.prove(">=", n, 4) is True
    assert known.simplify(minimum(n, 4)) == 4 and known.simplify(minimum(n, 5)) == minimum(n, 5)
    assert known.interval(-1 * n) == (None, -4) and known.interval(minimum(n, 9)) == (4, 9)
    assert Knowledge.of_facts((), {"n": (None, 4)}).interval(n) == (0, 4)


def test_what_a_function_knows():
    x, y = Var("x", Tensor("f32", (symbol("n"), dim("m - 1")))), Var("y", Tensor("f32", (symbol("m"), 4)))
    guards = Guard("==", dim("n % 4"), 0), Guard("<=", dim("m"), dim("n"))
    known = Knowledge.of(Function("main", (x, y), (), x, (), guards), {"n": (1, 512)})
    n, m = symbol("n"), symbol("m")
    assert known.interval(m) == (1, 512)                     # the parameter's size m - 1 is not negative
    assert known.equal(n // 4 * 4, n) and known.divisible(n * m, 4) and not known.divisible(m, 4)
    assert known.less_equal(m * m, n * m) and known.less_equal(1, m) and not known.less_equal(n, m)
    assert known.simplify(minimum(n, m)) == m and known.simplify(mod(n, 4)) == 0
    assert known.interval(n - m) == (0, 511) and known.interval(symbol("k")) == (0, None)


def test_knowledge_is_not_changed_by_what_is_added():
    nothing = Knowledge()
    more = nothing.assuming("==", dim("n % 4"), 0).assuming("<", dim("n"), 9)
    assert more.equal(dim("n//4*4"), dim("n")) and not nothing.equal(dim("n//4*4"), dim("n"))
    replaced = more.replacing("n", dim("m + 1"))
    assert replaced.simplify(dim("n - m")) == 1 and replaced.interval(dim("m")) == (0, 7) and replaced.divisible(dim("m + 1"), 4)
    assert more.simplify(dim("n - m")) == dim("n - m")


def test_what_is_admitted():
    known = Knowledge().assuming("==", dim("n % 4"), 1).assuming("<", dim("m"), dim("n")).assuming("!=", dim("m"), 2)
    assert known.admits({"n": 5, "m": 4}) and known.admits({"n": 9, "m": 1})
    assert not any(known.admits({"n": n, "m": m}) for n, m in ((4, 1), (5, 5), (5, 2)))
    with pytest.raises(KeyError):
        known.admits({"n": 5})


def test_contradictions_are_no_error():
    n, facts = dim("n"), ("n < 3", "n > 5", "n % 4 == 1", "n % 2 == 0", "n == 2*m", "n == 2*m + 1")
    known = Knowledge.of_facts(map(fact, facts))
    assert not any(known.admits({"n": i, "m": j}) for i in range(9) for j in range(9))
    assert {known.prove(relation, n, 4) for relation in HOLDS} <= {True, False, None}       # of no numbers all is true
    assert known.prove("<", n, 3) is True and known.prove(">", n, 5) is True


OPERATIONS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
              "//": lambda a, b: floordiv(a, b), "%": lambda a, b: mod(a, b), "min": minimum, "max": maximum}


@st.composite
def sizes(draw, depth: int = 2):
    if depth == 0 or draw(st.integers(0, 2)) == 0:
        return draw(st.sampled_from("nmk").map(symbol) | st.integers(0, 6))
    op = draw(st.sampled_from(tuple(OPERATIONS)))
    right = st.integers(1, 4) if op in ("//", "%") else sizes(depth - 1)
    return OPERATIONS[op](draw(sizes(depth - 1)), draw(right))


CLAIMS = st.tuples(st.sampled_from(tuple(HOLDS)), sizes(), sizes())
SEVERAL = st.lists(sizes(), min_size=1, max_size=3)


@QUICK
@given(CLAIMS, st.lists(CLAIMS, max_size=3))
def test_numbers_refute_no_conclusion(claim, facts):
    numbers = list(admitted(facts, 7))
    assume(numbers)
    known = Knowledge.of_facts(facts)
    found, d = known.prove(*claim), claim[1]
    simpler, (low, high) = known.simplify(d), known.interval(d)
    for row in numbers:
        assert known.admits(row)
        assert found is None or holds(claim, row) is found
        assert value(d, row) == value(simpler, row)
        assert (low is None or low <= value(d, row)) and (high is None or value(d, row) <= high)


@QUICK
@given(SEVERAL, SEVERAL, st.lists(CLAIMS, max_size=2), sizes(1))
def test_the_largest_of_several_are_compared_by_sides(left, right, facts, more):
    """``max(a, b) + c <= max(d, e)`` takes a proof for each side on the left and for one on the right."""
    known, a, b = Knowledge.of_facts(facts), maximum_of(left) + more, maximum_of(right)
    assert known.less_equal(a, maximum_of([*left, *right]) + more) or not set(left) <= {symbol(name) for name in "nmk"}
    found, at_once, names_ = known.less_equal(a, b), known.shows_at_once(b - a), frozenset("nmk")
    may_be = known.may_be_less_equal(a, b, names_)
    assert all(known.admits(row) for row in known.samples(names_))
    for row in admitted(facts, 7):
        number = max(value(d, row) for d in left) + value(more, row)
        assert value(a, row) == number and (not (found or at_once) or number <= max(value(d, row) for d in right))
    assert may_be or not found or not list(admitted(facts))


def maximum_of(several):
    return functools.reduce(maximum, several)


@QUICK
@given(sizes(), sizes(0), st.integers(1, 6), st.lists(CLAIMS, max_size=2))
def test_divisibility_is_not_claimed_wrongly(d, factor, k, facts):
    numbers = list(admitted(facts, 7))
    if Knowledge.of_facts(facts).divisible(d, k):
        assert all(value(d, row) % k == 0 for row in numbers)
    assert Knowledge.of_facts(facts).divisible(d * factor * k, k)


@QUICK
@given(sizes(3), st.fixed_dictionaries({name: st.tuples(st.integers(0, 4), st.integers(0, 3) | st.none()) for name in "nmk"}))
def test_intervals_contain_every_value(d, drawn):
    ends = {name: (low, None if more is None else low + more) for name, (low, more) in drawn.items()}
    low, high = interval(d, ends)
    for row in itertools.product(*(range(low, (low + 4 if high is None else high) + 1) for low, high in ends.values())):
        number = value(d, dict(zip(ends, row, strict=True)))
        assert (low is None or low <= number) and (high is None or number <= high)

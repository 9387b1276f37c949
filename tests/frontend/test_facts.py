"""What a trace concludes about sizes is sound: it holds for every call that its guards and substitutions admit."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from minirelax.frontend.facts import HOLDS, Facts
from minirelax.ir.dim import Dim, dim, maximum, minimum, value

QUICK = settings(max_examples=80, deadline=None)
NAMES = ("n", "m", "k")


@st.composite
def sizes(draw, depth: int = 2) -> Dim:
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.one_of(st.sampled_from(NAMES).map(dim), st.integers(0, 6)))
    a, b = draw(sizes(depth - 1)), draw(sizes(depth - 1))
    match draw(st.sampled_from("+-*/%<>")):
        case "+":
            return a + b
        case "-":
            return a - b
        case "*":
            return a * b
        case "/":
            return a // draw(st.integers(1, 4))
        case "%":
            return a % draw(st.integers(1, 4))
        case "<":
            return minimum(a, b)
    return maximum(a, b)


questions = st.tuples(st.sampled_from(list(HOLDS)), sizes(), sizes())
hints = st.fixed_dictionaries({name: st.integers(0, 5) for name in NAMES})


@QUICK
@given(hints, st.lists(questions, min_size=1, max_size=4), st.lists(sizes(), min_size=1, max_size=3))
def test_answers_hold_for_every_admitted_call(hint, asked, expressions):
    facts = Facts()
    for name in NAMES:
        facts.new(hint[name], name)
    answers = [(relation, a, b, facts.decide(relation, a, b)) for relation, a, b in asked]
    resolved = [(d, facts.resolve(d)) for d in expressions]
    names = {name: facts.substituted(dim(name)) for name in NAMES}
    for n in range(6):
        for m in range(6):
            for k in range(6):
                call = {"n": n, "m": m, "k": k}
                admitted = all(value(d, call) == call[name] for name, d in names.items()) and all(
                    HOLDS[g.relation](value(facts.substituted(g.left), call), value(facts.substituted(g.right), call))
                    for g in facts.guards
                )
                if call == hint:
                    assert admitted, "the call that was traced must fit its own guards"
                if admitted:
                    for relation, a, b, answer in answers:
                        assert HOLDS[relation](value(a, call), value(b, call)) == answer
                    for d, r in resolved:
                        assert value(d, call) == value(r, call)


@QUICK
@given(hints, st.lists(questions, min_size=1, max_size=4))
def test_answers_stay(hint, asked):
    facts = Facts()
    for name in NAMES:
        facts.new(hint[name], name)
    first = [facts.decide(*q) for q in asked]
    assert [facts.decide(*q) for q in asked] == first


def test_the_youngest_size_is_replaced():
    facts = Facts()
    n, m = facts.new(4), facts.new(4)
    facts.assume_equal(n, m)
    assert facts.resolve(m) == n and facts.resolve(n) == n and not facts.guards


def test_a_size_is_never_replaced_by_a_difference_if_a_sum_will_do():
    facts = Facts()
    n, m = facts.new(4), facts.new(3)
    facts.assume_equal(n, m + 1)
    assert (facts.resolve(n), facts.resolve(m)) == (m + 1, m)


def test_what_follows_is_not_asked_again():
    """Each of these is implied by arithmetic or by the first guard: one guard is enough."""
    facts = Facts()
    n, m = facts.new(8), facts.new(3)
    assert facts.decide("==", n % 4, 0) is True
    assert facts.is_equal((n + 3) // 4 * 4, n) and facts.known("==", n * m % 2, 0) is True
    assert facts.known("==", n * (n + 1) % 2, 0) is True and facts.is_equal(m // 2 + (m + 1) // 2, m)
    assert facts.known("==", n % 4, 1) is False and facts.known("<=", n, (m + 7) // 8 * 8) is None
    assert [(str(g.left), g.relation, g.right) for g in facts.guards] == [("n%4", "==", 0)]


def test_a_size_that_is_not_zero_is_positive():
    facts = Facts()
    n = facts.new(3)
    assert facts.decide("!=", n, 0) and facts.known(">=", n, 1) is True and facts.resolve(maximum(n, 1)) == n
    assert len(facts.guards) == 1

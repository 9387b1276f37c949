"""`cond`, and what all control flow has in common: captures, containers, facts, names, leaks; programs at random."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirelax as mr
import minirelax.numpy as mnp
from minirelax import f32
from minirelax.errors import ArgumentError, BranchError, ShapeError, UnsupportedError
from minirelax.frontend.builder import Builder
from minirelax.frontend.finished import Finished
from minirelax.ir.graph import Cond, Var
from minirelax.ir.parser import parse
from minirelax.ir.printer import print_binding
from minirelax.ir.types import Tensor
from minirelax.ir.verify import verify
from tests.control_flow import check, nodes, same, z

# ---- cond


def test_cond_runs_one_branch():
    def f(p, x):
        return mr.cond(p, lambda x: np.sqrt(x), lambda x: x * x, x)

    g = check(lambda p, x: np.sqrt(x) if p else x * x, f, (True, z(4) ** 2), (False, z(4)), (True, z(0)))
    assert len(g.compilations) == 1 and len(nodes(g, Cond)) == 1


@pytest.mark.parametrize("p", [0, 3, 0.0, 2.5, float("nan"), np.float32(0), np.int8(2), np.array(True)])
def test_any_number_is_a_condition(p):
    check(lambda p, x: x if bool(p) else -x, lambda p, x: mr.cond(p, lambda: x, lambda: -x) * 1, (p, z(3)))


def test_a_condition_that_is_known_chooses_while_tracing():
    def f(x):
        def unreached():
            raise AssertionError

        return mr.cond(x.shape[0] > 2, lambda x: x + 1, lambda x: x - 1, x) + mr.cond(np.False_, unreached, lambda: x)

    g = check(lambda x: (x + 1 if len(x) > 2 else x - 1) + x, f, (z(3),), (z(2),))
    assert len(g.compilations) == 2 and not nodes(g, Cond)


def test_branches_capture_what_they_read_and_take_operands():
    def f(p, x, y, w):
        scaled = x * 2

        def first(a, pair):
            return {"sum": a + scaled @ w, "left": pair[0]}

        def second(a, pair):
            return {"left": pair[1], "sum": a - y}  # another order

        return mr.cond(p, first, second, y, (x, y))

    def plain(p, x, y, w):
        return {"sum": y + (2 * x) @ w, "left": x} if p else {"sum": y - y, "left": y}

    g = check(plain, f, (True, z(3, 3), z(3, 3), z(3, 3)), (False, z(5, 5), z(5, 5), z(5, 5)), constants=("w",))
    (binding,) = nodes(g, Cond)
    assert [f.name for f in g._all[-1].traced.module.functions] == ["main", "first", "second"]
    assert {"y", "x", "w"} <= {a.name for a in binding.value.args}


def test_results_are_promoted_as_where_promotes_them():
    def pick(a, b):
        f = mr.jit(lambda p: mr.cond(p, lambda: a, lambda: b), target="interpret")
        return f(True), f(False)

    one, other = pick(np.arange(3), np.ones(3, np.float32))
    assert one.dtype == other.dtype == np.float64
    assert pick(np.arange(3, dtype=np.int8), np.ones(3, np.float32))[0].dtype == np.float32
    same(pick(np.float32(0.5), 2), (np.float32(0.5), np.float32(2)))
    same(pick(1, 2.5), (1.0, 2.5))
    same(pick(True, 2), (1, 2))
    same(pick(None, None), (None, None))


def test_a_size_that_differs_is_known_while_running():
    def f(p, x, y):
        a, b, c = mr.cond(p, lambda: (x, x * 2, np.ones(2)), lambda: (y, y * 3, np.ones(2)))
        return (a + b).sum(), a * 2, c, a.shape[0]  # a and b have one size

    def plain(p, x, y):
        a, b, c = (x, x * 2, np.ones(2)) if p else (y, y * 3, np.ones(2))
        return (a + b).sum(), a * 2, c, a.shape[0]

    g = check(plain, f, (True, z(3), z(5)), (False, z(3), z(5)), (False, z(1), z(0)))
    assert len(g.compilations) == 1
    assert str(nodes(g, Cond)[0].var.type) == "Tuple[f32[_], f32[_], f64[2]]"


def test_sizes_that_agree_in_this_call_are_a_fact():
    def f(p, x, y):
        return mr.cond(p, lambda: x, lambda: y) + x

    g = mr.jit(f, target="interpret")
    same(g(False, z(3), z(3) + 1), 2 * z(3) + 1)
    same(g(False, z(1), z(1) + 1), 2 * z(1) + 1)
    assert "x.shape[0] == y.shape[0]" in str(g.compilations) and len(g.compilations) == 1
    with pytest.raises(ShapeError, match="cannot be shown equal"):
        g(False, z(3), z(4))


def test_a_branch_with_a_size_of_its_own():
    def f(p, x):
        kept = mr.cond(p, lambda: x[x > 0], lambda: x[x < 0])
        return kept, kept.sum(), mr.cond(p, lambda: mr.match_cast(x, f32["k"]) * 2, lambda: mr.match_cast(x, f32["k"]))

    def plain(p, x):
        kept = x[x > 0] if p else x[x < 0]
        return kept, kept.sum(), x * 2 if p else x

    check(plain, f, (True, z(7)), (False, z(7)), (True, z(0)))


def test_a_size_that_no_parameter_shows_is_passed_as_a_shape():
    def f(p, x):
        n = x.shape[0]
        return mr.cond(p, lambda: mnp.arange(n) * 2.0, lambda: mnp.zeros(n)), mr.cond(p, lambda: n * 2, lambda: n)

    def plain(p, x):
        return (np.arange(len(x)) * 2.0 if p else np.zeros(len(x))), len(x) * (2 if p else 1)

    g = check(plain, f, (True, z(3)), (False, z(5)), (True, z(0)))
    assert "s: Shape([n])" in str(g.stages["trace"].module)


def test_cond_inside_cond():
    def f(x):
        s = x.sum()

        def positive(x):
            return mr.cond(s > 10, lambda x: x * 3 + s, lambda x: x * 2, x)

        return mr.cond(s > 0, positive, lambda x: -x, x)

    def plain(x):
        s = x.sum()
        return (x * 3 + s if s > 10 else x * 2) if s > 0 else -x

    check(plain, f, (z(4),), (z(4) * 100,), (-z(4),), (z(4) + 100,))


# ---- named containers, facts, constants


class State(NamedTuple):
    position: np.ndarray
    time: float


def test_named_tuples_and_constants():
    matrix = np.array([[0.5, -0.2], [0.1, 0.9]])

    def f(x):
        def step(i, s):
            return State(matrix @ s.position + np.arange(2), s.time + 0.5)

        return mr.fori_loop(0, 4, step, State(x, 0))

    def plain(x):
        for _ in range(4):
            x = matrix @ x + np.arange(2)
        return State(x, 2.0)

    g = check(plain, f, (np.ones(2),))
    assert len(g._all[-1].traced.module.constants) == 2


def test_facts_from_inside_a_body_are_guards_of_the_program():
    def f(x, y):
        def body(i, s):
            return s + (y if y.shape[0] < 4 else y[:1])

        return mr.fori_loop(0, 2, body, x)

    def plain(x, y):
        for _ in range(2):
            x = x + (y if len(y) < 4 else y[:1])
        return x

    g = check(plain, f, (z(3), z(3)), (z(2), z(2)), (z(5), z(5)), (z(5), z(1)))
    assert len(g.compilations) == 3
    with pytest.raises(ShapeError):
        g(z(3), z(2))


def test_facts_found_after_a_region_hold_in_it():
    def f(p, x, y):
        a = mr.cond(p, lambda: x * 2, lambda: x + 1)
        b = mr.fori_loop(0, 3, lambda i, s: s + y, y)
        return a + b, mr.cond(p, lambda: mnp.arange(x.shape[0] + y.shape[0]), lambda: mnp.zeros(2 * x.shape[0], int))

    def plain(p, x, y):
        return (x * 2 if p else x + 1) + 4 * y, np.arange(len(x) * 2) if p else np.zeros(2 * len(x), int)

    g = check(plain, f, (True, z(3), z(3)), (False, z(4), z(4)))
    assert len(g.compilations) == 1


def test_a_match_cast_inside_a_body():
    def f(x):
        def body(i, s):
            kept = mr.match_cast(np.compress(x > 0, x), f32["k"])
            again = mr.match_cast(np.compress(x > 0, x * i), f32["k"])
            return s + (kept * again).sum()

        return mr.fori_loop(0, 3, body, 0.0), mr.match_cast(np.compress(x < 0, x), f32["k"])

    check(lambda x: ((x[x > 0] ** 2).sum() * 3, x[x < 0]), f, (z(7),), (z(1),))


def test_a_question_about_a_size_that_changes():
    def f(x):
        def step(x):
            return mr.cond(x.shape[0] % 2 == 0, lambda x: x[: x.shape[0] // 2], lambda x: x[1:], x)

        return mr.while_loop(lambda x: x.shape[0] > 1, step, x)

    def plain(x):
        while len(x) > 1:
            x = x[: len(x) // 2] if len(x) % 2 == 0 else x[1:]
        return x

    check(plain, f, (z(11),), (z(8),), (z(1),))

    def g(x):
        def step(x):
            return x[1:] if x.shape[0] > 4 else x[2:]

        return mr.while_loop(lambda x: x.shape[0] > 1, step, x)

    with pytest.raises(ShapeError, match="cannot be decided for all sizes"):
        mr.jit(g, target="interpret")(z(8))


def test_a_question_about_a_declared_size_is_answered_while_running():
    def f(x: f32["n"]):
        return mr.cond(x.shape[0] > 4, lambda: x * 2, lambda: -x), np.where(x.shape[0] == 3, x, x + 1)

    check(lambda x: (x * 2 if len(x) > 4 else -x, x if len(x) == 3 else x + 1), f, (z(3),), (z(5),))


def test_a_body_that_is_traced_again_leaves_nothing_behind():
    table = np.arange(4.0)
    calls = []

    def f(x):
        def body(i, s):
            calls.append(i)
            return s + (table * x[:4]).sum() + i

        return mr.fori_loop(0, 3, body, 0)

    g = mr.jit(f, target="interpret")
    same(g(z(5).astype(float)), 3 * (table * z(5)[:4]).sum() + 3)
    module = g.stages["trace"].module
    assert len(calls) == 2 and len(module.constants) == 1 and [f.name for f in module.functions] == ["main", "test", "body"]
    assert module["main"].body[0].value.body == "body"


def test_functions_of_one_name_and_names_of_operations():
    def add(x):
        return x + 1

    def main(x):
        return x * 2

    def f(p, x):
        return mr.cond(p, add, main, x) + mr.cond(p, main, add, x)

    g = check(lambda p, x: (x + 1) + 2 * x, f, (True, z(3)), (False, z(3)))
    assert [f.name for f in g._all[-1].traced.module.functions] == ["main", "add", "main_2", "main_3", "add_2"]


def test_jitted_functions_as_branches():
    double = mr.jit(lambda x: x * 2, target="interpret")
    check(lambda p, x: x * 2 if p else -x, lambda p, x: mr.cond(p, double, np.negative, x), (True, z(3)), (False, z(3)))


def test_calls_that_are_kept_inside_control_flow_and_control_flow_inside_them():
    @mr.jit(inline=False, target="interpret")
    def settle(x, rounds):
        return mr.fori_loop(0, rounds, lambda i, s: mr.cond(s.sum() > 1, lambda s: s * 0.5, lambda s: s + i, s), x)

    def f(x):
        grown = mr.while_loop(lambda x: x.size < 9, lambda x: np.concatenate([x, settle(x, 2)]), x)
        return grown, mr.cond(x.sum() > 0, settle, lambda x, k: x, x, 3)

    def plain(x):
        def settled(x, rounds):
            for i in range(rounds):
                x = x * 0.5 if x.sum() > 1 else x + i
            return x

        grown = x
        while grown.size < 9:
            grown = np.concatenate([grown, settled(grown, 2)])
        return grown, settled(x, 3) if x.sum() > 0 else x

    check(plain, f, (z(4),), (z(3) - 3,))


def test_control_flow_with_nothing_traced_in_it():
    def f(x):
        return x + mr.fori_loop(0, 3, lambda i, s: s + np.ones(2), np.zeros(2)).sum() + mr.cond(True, lambda: 1, lambda: 2)

    check(lambda x: x + np.float64(7), f, (z(3),))


def test_a_result_keeps_the_sizes_that_it_was_traced_with():
    """Facts taken since may give another spelling of them; callers know the first."""
    b = Builder()
    n, m = b.facts.new(3), b.facts.new(3)
    finished, bindings = Finished(b), []
    finished.final["x"] = Var("x", Tensor("f32", (n,)))
    assert finished._promised(Var("x", Tensor("f32", (n,))), bindings).name == "x" and not bindings
    found = finished._promised(Var("x", Tensor("f32", (m,))), bindings)
    assert str(found.type) == "f32[m]" and print_binding(bindings[0]) == "v0: f32[m] = match_cast(x, f32[m])"


# ---- what must not be done


def interpreted(f, *args):
    return mr.jit(f, target="interpret")(*args)


def test_values_do_not_leak():
    def f(x):
        kept = []

        def body(i, s):
            kept.append(s * 2)
            return s + 1

        mr.fori_loop(0, 3, body, x)
        return kept[0] + 1

    with pytest.raises(ArgumentError, match="an array that was made inside body is used outside of it"):
        interpreted(f, z(3))

    def returned(x):
        kept = []
        mr.cond(x.sum() > 0, lambda: kept.append(x * 2), lambda: None)
        return kept[0]

    with pytest.raises(ArgumentError, match="made inside the branch then is used"):
        interpreted(returned, z(3))

    def into_the_sibling(x):
        kept = []
        return mr.cond(x.sum() > 0, lambda: kept.append(x * 2) or x, lambda: kept[0])

    with pytest.raises(ArgumentError, match="made inside the branch then is used"):
        interpreted(into_the_sibling, z(3))

    def a_shape(x):
        kept = []
        mr.while_loop(lambda x: x.shape[0] < 9, lambda x: kept.append(x.shape[0]) or np.concatenate([x, x]), x)
        return kept[-1] + 1

    with pytest.raises(ArgumentError, match="the size . that was made inside the body is used outside of it"):
        interpreted(a_shape, z(3))


def test_a_known_size_may_be_kept():
    def f(x):
        kept = []
        s = mr.fori_loop(0, 3, lambda i, s: kept.append(x.shape[0]) or s + kept[-1], 0)
        return s + kept[0]

    same(interpreted(f, z(4)), 16)


WRITES = "x[0] = 1", "x += 1", "x[1:] *= 2", "np.add(x, 1, out=x)", "x.sort()", "y[...] = 2", "x.fill(0)"


@pytest.mark.parametrize("write", WRITES)
def test_arrays_from_outside_cannot_be_written_to(write):
    def f(x):
        y = x[:2]

        def body(i, s):
            exec(write, {"np": np, "x": x, "y": y})
            return s + x.sum()

        return mr.fori_loop(0, 3, body, 0.0)

    with pytest.raises(UnsupportedError, match="body writes to an array from outside, in place"):
        interpreted(f, z(3))


def test_branches_on_values_inside_a_body():
    def f(x):
        return mr.fori_loop(0, 3, lambda i, s: s + 1 if i > 1 else s, x)

    with pytest.raises(BranchError, match="minirelax.cond"):
        interpreted(f, z(3))


def test_an_error_in_a_body_leaves_the_trace_usable():
    def f(x):
        def bad(i, s):
            raise KeyError("mine")

        try:
            mr.fori_loop(0, 3, bad, x)
        except KeyError:
            pass
        return x + 1

    same(interpreted(f, z(3)), z(3) + 1)


# ---- programs at random


@st.composite
def steps(draw, depth: int = 2, slices: bool = True):
    """A function of (array, count) to the same, with control flow inside."""
    control = ("cond", "fori", "while", *(["scan"] if slices else []))
    kind = draw(st.sampled_from(("scale", "shift", "mask", *(control if depth else []))))
    if kind == "scale":
        k = draw(st.sampled_from((0.5, -1.0, 1.25)))
        return lambda x, n: (x * k, n)
    if kind == "shift":
        return lambda x, n: (x + n, n + 1)
    if kind == "mask":
        return lambda x, n: (np.where(x > n, x - 1, x), n)
    first, second = draw(steps(depth - 1, slices and kind != "scan")), draw(steps(depth - 1, slices))
    if kind == "cond":
        return lambda x, n: mr.cond(x.sum() > n, first, second, x, n)
    if kind == "fori":
        rounds = draw(st.integers(0, 3))
        return lambda x, n: mr.fori_loop(0, rounds, lambda i, s: second(s[0] + i, s[1]), first(x, n))
    if kind == "while":
        start = draw(st.integers(0, 2))

        def turn(s):
            x, n = first(*s[0])
            return (x, n), s[1] + 1

        return lambda x, n: mr.while_loop(lambda s: s[1] < 3, turn, ((x, n), start))[0]

    def row(c, v):
        y, c = first(v + c, c)
        return c, y

    def scanned(x, n):
        c, y = mr.scan(row, n, x)
        return second(y, c)

    return scanned


@settings(max_examples=25, deadline=None)
@given(steps(), st.integers(1, 4), st.integers(-2, 2))
def test_random_programs_traced_and_eager(program, size, n):
    g = mr.jit(program, target="interpret")
    for length in (size, size + 1):
        x = np.linspace(-2, 3, length)
        same(g(x, n), program(x, n))
    module = g._all[-1].traced.module
    verify(module)
    assert parse(str(module)) == module

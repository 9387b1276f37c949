"""`cond`, `while_loop`, `fori_loop` and `scan`: traced and interpreted, and eager, against plain Python and NumPy."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirelax as mr
import minirelax.numpy as mnp
from minirelax import f32, f64
from minirelax.errors import ArgumentError, BranchError, ShapeError, UnsupportedError
from minirelax.frontend.tree import flatten
from minirelax.ir.graph import Cond, Scan, While
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify
from minirelax.jit import JitFunction


def z(*shape: int) -> np.ndarray:
    """Distinct numbers, neither all positive nor all negative."""
    return np.linspace(-1.5, 2, int(np.prod(shape, dtype=int)), dtype=np.float32).reshape(shape)


def same(found: object, wanted: object) -> None:
    """Equal structures (but for the order of dicts), dtypes, shapes, and nearly equal numbers."""
    a, tree = flatten(found)
    b = tree.take(wanted)
    assert b is not None, f"{tree} is not {flatten(wanted)[1]}"
    for x, y in zip(a, b, strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype and type(x) is type(y)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def check(reference, f, *calls: tuple, **options) -> JitFunction:
    """`f` gives what `reference` does, traced and eagerly; its modules are well formed, and their text is read back."""
    g = mr.jit(f, target="interpret", **options)
    for args in calls:
        wanted = reference(*map(_copy, args))
        same(g(*map(_copy, args)), wanted)
        same(f(*map(_copy, args)), wanted)
    for entry in g._all:
        module = entry.traced.module
        verify(module)
        assert parse(str(module)) == module
    return g


def _copy(x: object) -> object:
    leaves, tree = flatten(x)
    return tree.unflatten([v.copy() if isinstance(v, np.ndarray) else v for v in leaves])


def nodes(g: JitFunction, cls: type) -> list:
    """The bindings of this kind in the latest trace."""
    return [b for f in g._all[-1].traced.module.functions for b in f.bindings if isinstance(b.value, cls)]


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


# ---- while_loop


def test_newton():
    def f(x):
        return mr.while_loop(lambda r: abs(r * r - x) > 1e-9 * x, lambda r: (r + x / r) / 2, x)

    check(np.sqrt, f, (np.float64(2),), (np.float64(1e6),))
    g = mr.jit(f, target="interpret")
    assert isinstance(g(2.0), float) and g(2.0) == pytest.approx(2**0.5)


def test_collatz():
    def f(n):
        def step(state):
            n, count = state
            return mr.cond(n % 2 == 0, lambda n: n // 2, lambda n: 3 * n + 1, n), count + 1

        return mr.while_loop(lambda s: s[0] != 1, step, (n, 0))[1]

    def plain(n):
        count = 0
        while n != 1:
            n, count = n // 2 if n % 2 == 0 else 3 * n + 1, count + 1
        return count

    g = check(plain, f, (27,), (1,), (97,))
    assert len(g.compilations) == 1


def test_power_iteration():
    def f(a, tolerance):
        def step(s):
            v = a @ s["v"]
            v = v / np.linalg.norm(v)
            return {"v": v, "change": np.abs(v - s["v"]).max(), "rounds": s["rounds"] + 1}

        start = {"v": np.ones_like(a[0]), "change": 1.0, "rounds": 0}
        s = mr.while_loop(lambda s: (s["change"] > tolerance) & (s["rounds"] < 200), step, start)
        return s["v"] @ a @ s["v"], s["rounds"]

    rng = np.random.default_rng(1)
    a = rng.normal(size=(5, 5))
    a = a @ a.T + np.eye(5)
    found, rounds = mr.jit(f, target="interpret")(a, 1e-9)
    assert found == pytest.approx(np.linalg.eigvalsh(a)[-1]) and 2 < rounds <= 200
    same(f(a, 1e-9), (found, rounds))


def test_an_array_that_grows():
    def f(x, limit):
        return mr.while_loop(lambda x: x.shape[0] < limit, lambda x: np.concatenate([x, x]), x)

    def plain(x, limit):
        while len(x) < limit:
            x = np.concatenate([x, x])
        return x

    g = check(plain, f, (z(3), 20), (z(5), 2), (z(1), 8))
    assert len(g.compilations) == 1
    assert str(nodes(g, While)[0].var.type) == "Tuple[f32[_]]"


def test_declared_sizes_may_change_too():
    def f(x: f64["n"], limit: f64):
        return mr.while_loop(lambda x: x.sum() < limit, lambda x: np.concatenate([x, x[:1] + 1]), x)

    def plain(x, limit):
        while x.sum() < limit:
            x = np.concatenate([x, x[:1] + 1])
        return x

    check(plain, f, (np.ones(2), 9.0), (np.ones(1), 0.0))


def test_compaction_keeps_what_has_one_size_together():
    def f(x, v):
        def step(s):
            x, v, _ = s
            inside = np.abs(x) < 1
            return (x[inside] + v[inside]) * 1.5, v[inside], (~inside).any()

        x, v, _ = mr.while_loop(lambda s: s[2], step, (x, v, True))
        return x, v, (x * v).sum()

    def plain(x, v):
        more = True
        while more:
            inside = np.abs(x) < 1
            x, v, more = (x[inside] + v[inside]) * 1.5, v[inside], (~inside).any()
        return x, v, (x * v).sum()

    check(plain, f, (z(9), z(9) / 4), (z(2), z(2)), (z(0), z(0)))


def test_sizes_that_stop_being_equal_are_kept_apart():
    def f(x, rounds):
        def step(s):
            i, a, b = s
            return i + 1, np.concatenate([a, b[:1]]), np.concatenate([b, a])

        _, a, b = mr.while_loop(lambda s: s[0] < rounds, step, (0, x, x))
        return a.sum(), b

    def plain(x, rounds):
        a = b = x
        for _ in range(rounds):
            a, b = np.concatenate([a, b[:1]]), np.concatenate([b, a])
        return a.sum(), b

    g = check(plain, f, (z(3), 3), (z(2), 0))
    step = next(f for f in g._all[-1].traced.module.functions if f.name == "step")
    assert len({str(p.type) for p in step.params if "f32" in str(p.type)}) == 2


def test_a_number_takes_the_dtype_that_the_body_gives_it():
    def f(x):
        total, count = mr.while_loop(lambda s: s[1] < 3, lambda s: (s[0] + x.sum(), s[1] + 1), (0, 0))
        return total, count

    g = check(lambda x: (x.sum() * 3, 3), f, (z(4),), (z(1),))
    assert str(nodes(g, While)[0].var.type) == "Tuple[f32[()], i64[()]]"
    assert str(nodes(check(lambda x: 1.5, lambda x: mr.while_loop(lambda a: a < 1, lambda a: a + 1.5, 0), (z(1),)), While)[0].var.type) == (
        "Tuple[f64[()]]"
    )


def test_numbers_adapt_to_the_array_that_is_carried():
    def f(x):
        return mr.while_loop(lambda s: s[1].sum() < 9, lambda s: (2, s[1] + 1), (x, np.zeros(2, np.float32)))

    check(lambda x: (np.float32(2), np.full(2, 5, np.float32)), f, (np.float32(0.5),))


def test_python_conditions():
    def f(x):
        return mr.while_loop(lambda x: False, lambda x: x + 1, x), mr.while_loop(lambda s: s[1], lambda s: (s[0] + 1, 0), (x, 5))[0]

    check(lambda x: (x, x + 1), f, (z(3),))


def test_while_inside_while():
    def f(x, n):
        def outer(s):
            i, x = s
            _, x = mr.while_loop(lambda t: t[0] < i, lambda t: (t[0] + 1, t[1] * 1.5 + i), (0, x))
            return i + 1, x

        return mr.while_loop(lambda s: s[0] < n, outer, (0, x))[1]

    def plain(x, n):
        for i in range(n):
            for _ in range(i):
                x = x * np.float32(1.5) + i
        return x

    g = check(plain, f, (z(3), 4), (z(1), 0), (z(0), 2))
    assert len(nodes(g, While)) == 2 and len(g._all[-1].traced.module.functions) == 5


def test_loop_in_a_branch_and_branch_in_a_loop():
    def f(x, n):
        def loop(x):
            def body(i, x):
                return mr.cond(i % 2 == 0, lambda x: x + i, lambda x: x * 2, x)

            return mr.fori_loop(0, n, body, x)

        return mr.cond(n > 0, loop, lambda x: x * 0, x)

    def plain(x, n):
        for i in range(n):
            x = x + i if i % 2 == 0 else x * 2
        return x if n > 0 else x * 0

    check(plain, f, (z(3), 5), (z(3), 0), (z(2), -3))


# ---- fori_loop


def test_factorial_and_bounds():
    def f(n):
        return mr.fori_loop(1, n + 1, lambda i, p: p * i, 1)

    check(lambda n: int(np.prod(np.arange(1, n + 1))), f, (5,), (0,), (1,), (-4,))


def test_bounds_may_be_sizes_and_arrays():
    def f(x, n):
        def body(i, total):
            return total + x[i] * i

        return mr.fori_loop(0, x.shape[0], body, 0.0), mr.fori_loop(n - 2, n, body, np.float32(0))

    def plain(x, n):
        return (x * np.arange(len(x), dtype=np.float32)).sum(), (x * np.arange(len(x), dtype=np.float32))[n - 2 : n].sum()

    g = check(plain, f, (z(5), np.int32(4)), (z(9), np.int32(2)))
    assert len(g.compilations) == 1


def test_the_counter_is_a_python_integer():
    def f(x):
        def body(i, s):
            x, k = s
            return x * 1.0 + i / 2 + np.float32(2) ** i, k + i * 2

        return mr.fori_loop(2, 5, body, (x, 0))

    def plain(x):
        k = 0
        for i in range(2, 5):
            x, k = x + np.float32(i / 2) + np.float32(2) ** i, k + i * 2
        return x, k

    check(plain, f, (z(3),), (z(1),))


def test_writing_to_what_is_carried():
    def f(x):
        def body(i, s):
            x, seen = s
            x[i] = x[i] * 2 + seen[0]
            x[1:] += 1
            seen[...] = x[i]
            return x, seen

        return mr.fori_loop(0, x.shape[0], body, (x, np.zeros(1, np.float32))), x

    def plain(x):
        before, seen = x.copy(), np.zeros(1, np.float32)
        for i in range(len(x)):
            x[i] = x[i] * 2 + seen[0]
            x[1:] += 1
            seen[...] = x[i]
        return (x, seen), before

    check(plain, f, (z(4),), (z(1),), (z(0),))


def test_writing_to_operands_and_slices_stays_inside():
    def f(p, x):
        def clear(x):
            x[:1] = 0
            return x.sum()

        def double(c, row):
            row *= 2
            return c + row.sum(), row

        return mr.cond(p, clear, lambda x: x[0], x[0]), mr.scan(double, 0.0, x), x

    def plain(p, x):
        row = x[0].copy()
        row[:1] = 0
        return (row.sum() if p else x[0, 0]), (2 * x.sum(dtype=np.float32), 2 * x), x

    check(plain, f, (True, z(3, 2)), (False, z(3, 2)))


def test_game_of_life():
    def f(board, rounds):
        def step(i, board):
            around = sum(np.roll(board, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0))
            return ((around == 3) | ((board == 1) & (around == 2))).astype(board.dtype)

        return mr.fori_loop(0, rounds, step, board)

    def plain(board, rounds):
        for _ in range(rounds):
            around = sum(np.roll(board, (a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if (a, b) != (0, 0))
            board = ((around == 3) | ((board == 1) & (around == 2))).astype(board.dtype)
        return board

    rng = np.random.default_rng(2)
    g = check(plain, f, ((rng.random((8, 6)) < 0.4).astype(np.int64), 5), ((rng.random((4, 5)) < 0.4).astype(np.int64), 1))
    assert len(g.compilations) == 1


def test_enclosing_arrays_are_read_as_they_are_before_the_loop():
    def f(x):
        y = x * 1
        first = y[:2]
        y[0] = 10

        def body(i, total):
            return total + first[0] + y.sum()  # a view, read anew because y was written to

        total = mr.fori_loop(0, 3, body, 0.0)
        y[0] = 20
        return total, first, mr.fori_loop(0, 2, body, 0.0)

    def plain(x):
        y = x * 1
        y[0] = 10
        total = 3 * (y[0] + y.sum())
        y[0] = 20
        return total, y[:2].copy(), 2 * (y[0] + y.sum())

    check(plain, f, (z(4),), (z(2),))


def test_arguments_that_are_written_to_before_and_after():
    def f(x):
        x += 1
        total = mr.fori_loop(0, 3, lambda i, t: t + x.sum(), 0.0)
        x *= 2
        return total

    def plain(x):
        x += 1
        total = 3 * x.sum()
        x *= 2
        return total

    g, x, y = mr.jit(f, target="interpret"), z(4), z(4)
    same(g(x), plain(y))
    same(x, y)


# ---- scan


def test_cumulative_algorithms():
    def f(x):
        def step(carry, v):
            total, top = carry
            total, top = total + v, np.maximum(top, v)
            return (total, top), (total, top)

        return mr.scan(step, (0.0, -np.inf), x)

    def plain(x):
        sums, tops = np.cumsum(x), np.maximum.accumulate(x)
        return (sums[-1], tops[-1]), (sums, tops)

    g = check(plain, f, (z(6),), (z(1),))
    assert len(g.compilations) == 1
    assert str(nodes(g, Scan)[0].value.length) == "n"


def test_a_recurrent_network():
    def f(x, p, reverse):
        def cell(h, x):
            h = np.tanh(x @ p["w"] + h @ p["u"] + p["b"])
            return h, {"h": h, "norm": (h * h).sum()}

        return mr.scan(cell, np.zeros_like(p["b"]), x, reverse=reverse)

    def plain(x, p, reverse):
        h, rows = np.zeros_like(p["b"]), []
        for row in x[::-1] if reverse else x:
            h = np.tanh(row @ p["w"] + h @ p["u"] + p["b"])
            rows.append(h)
        rows = np.stack(rows[::-1] if reverse else rows)
        return h, {"h": rows, "norm": (rows * rows).sum(1)}

    p = {"w": z(3, 4), "u": z(4, 4), "b": z(4)}
    g = check(plain, f, (z(5, 3), p, False), (z(5, 3), p, True), (z(1, 3), p, True), constants=("p",), static=("reverse",))
    assert len(g.compilations) == 2


def test_scan_without_slices_or_results():
    def f(x):
        powers = mr.scan(lambda c, _: (c * 2, c), x, length=4)
        counted = mr.scan(lambda c, r: (c + r["a"] * r["b"][0], None), 0.0, {"a": x, "b": (x,)}, length=x.shape[0])
        return powers, counted, mr.scan(lambda c, r: (None, r + 1), None, x)

    def plain(x):
        return (x * 16, np.stack([x * 2**i for i in range(4)])), ((x * x).sum(), None), (None, x + 1)

    check(plain, f, (z(3),), (z(5),))


def test_no_rounds():
    def f(x):
        return mr.scan(lambda c, r: (c + r.sum(), (r * 2, 1, r[0] > 0)), np.float32(3), x)

    check(lambda x: (3 + x.sum(), (x * 2, np.ones(len(x), int), x[:, 0] > 0)), f, (z(0, 2),), (z(3, 2),))


def test_slices_of_different_lengths():
    def f(x, y):
        return mr.scan(lambda c, r: (c + r[0] * r[1], None), 0.0, (x, y))[0]

    g = check(lambda x, y: (x * y).sum(), f, (z(3), z(3)), (z(4), z(4)))
    assert len(g.compilations) == 1
    with pytest.raises(ShapeError, match=r"scan: xs\[0\] and xs\[1\] say how many rounds there are: n and m, which differ"):
        g(z(3), z(4))
    with pytest.raises(ShapeError, match=r"scan: xs\[0\] and xs\[1\] say how many rounds there are: 3 and 4, which differ"):
        f(z(3), z(4))


def test_scan_inside_while():
    def f(x, limit):
        def step(s):
            return s[0] + 1, mr.scan(lambda c, v: (c + v, c + v), 0.0, s[1])[1]

        return mr.while_loop(lambda s: np.abs(s[1]).max() < limit, step, (0, x))

    def plain(x, limit):
        i = 0
        while np.abs(x).max() < limit:
            i, x = i + 1, np.cumsum(x)
        return i, x

    check(plain, f, (z(5), 100.0), (z(2), 0.1))


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


def test_control_flow_with_nothing_traced_in_it():
    def f(x):
        return x + mr.fori_loop(0, 3, lambda i, s: s + np.ones(2), np.zeros(2)).sum() + mr.cond(True, lambda: 1, lambda: 2)

    check(lambda x: x + np.float64(7), f, (z(3),))


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


@pytest.mark.parametrize("write", ["x[0] = 1", "x += 1", "x[1:] *= 2", "np.add(x, 1, out=x)", "x.sort()", "y[...] = 2", "x.fill(0)"])
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

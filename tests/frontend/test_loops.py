"""`while_loop`, `fori_loop` and `scan` mean what plain Python means, traced and eager."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
from minirelax import f64
from minirelax.errors import ShapeError
from minirelax.ir.graph import Scan, While
from tests.control_flow import check, nodes, same, z

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
    g = check(lambda x: 1.5, lambda x: mr.while_loop(lambda a: a < 1, lambda a: a + 1.5, 0), (z(1),))
    assert str(nodes(g, While)[0].var.type) == "Tuple[f64[()]]"


def test_numbers_adapt_to_the_array_that_is_carried():
    def f(x):
        return mr.while_loop(lambda s: s[1].sum() < 9, lambda s: (2, s[1] + 1), (x, np.zeros(2, np.float32)))

    check(lambda x: (np.float32(2), np.full(2, 5, np.float32)), f, (np.float32(0.5),))


def test_python_conditions():
    def f(x):
        never = mr.while_loop(lambda x: False, lambda x: x + 1, x)
        return never, mr.while_loop(lambda s: s[1], lambda s: (s[0] + 1, 0), (x, 5))[0]

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


def test_sizes_that_are_exchanged():
    def f(x, y, rounds):
        return mr.fori_loop(0, rounds, lambda i, s: (s[1], s[0] * 2), (x, y))

    def plain(x, y, rounds):
        for _ in range(rounds):
            x, y = y, x * 2
        return x, y

    g = check(plain, f, (z(3), z(3), 3), (z(3), z(4), 3), (z(2), z(5), 2), (z(1), z(0), 0))
    assert len(g.compilations) == 2  # two sizes that are equal in the first call may stay one


def test_growth_inside_growth():
    def f(x, rounds):
        def outer(i, x):
            def longer(y):
                total, _ = mr.scan(lambda c, v: (c + v, None), 0.0, y[1:])
                return np.concatenate([y, x[:1], y[-1:] * 0.5 + total])

            y = mr.while_loop(lambda y: y.shape[0] < x.shape[0] + 3, longer, x)
            return np.concatenate([y[::2], x])

        return mr.fori_loop(0, rounds, outer, x)

    def plain(x, rounds):
        for _ in range(rounds):
            y = x
            while len(y) < len(x) + 3:
                y = np.concatenate([y, x[:1], y[-1:] * 0.5 + y[1:].sum()])
            x = np.concatenate([y[::2], x])
        return x

    g = check(plain, f, (z(3), 3), (z(1), 1), (z(4), 0))
    assert len(g.compilations) == 1
    assert any(str(b.value.length) not in "nmklpqr" for b in nodes(g, Scan))


def test_conditions_with_control_flow():
    def f(x):
        def more(s):
            best, _ = mr.scan(lambda c, v: (np.maximum(c, v), None), -np.inf, s[1])
            return mr.cond(s[0] < 3, lambda: best < 100, lambda: False)

        return mr.while_loop(more, lambda s: (s[0] + 1, s[1] * 2 + 1), (0, x))

    def plain(x):
        i = 0
        while i < 3 and x.max() < 100:
            i, x = i + 1, x * 2 + 1
        return i, x

    check(plain, f, (z(4),), (z(2) * 200,))


# ---- fori_loop


def test_factorial_and_bounds():
    def f(n):
        return mr.fori_loop(1, n + 1, lambda i, p: p * i, 1, unroll=4)

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

"""The part of the corpus with branches and loops: outside of compiled functions they run in Python, on NumPy's arrays."""

from __future__ import annotations

import numpy as np

import minirelax as mr
import minirelax.numpy as mnp
from tests.programs import program

# ---------------------------------------------------------------- numbers


@program(
    lambda r, n, k: (r.positive(n, n), r.positive(n), np.array(k)),
    *((12, 5), (3, 2), (1, 1), (40, 0), (5, 30)),
    rtol=1e-4,
    atol=1e-5,
)
def dominant_eigenvector(a, v, rounds):
    def turn(i, v):
        v = a @ v
        return v / np.sqrt(np.sum(v * v))

    v = mr.fori_loop(0, rounds, turn, v)
    return v, v @ a @ v


@program(lambda r, n: (r.positive(n) * np.float32(100),), (20,), (3,), (1,), (500,), (0,), rtol=1e-4)
def newton_roots(x):
    def improved(s):
        root, rounds = s
        return (root + x / root) / 2, rounds + 1

    return mr.while_loop(lambda s: np.any(np.abs(s[0] * s[0] - x) > 1e-3 * x), improved, (x, 0))


@program(lambda r, n: (r.normal(n, n), r.normal(n)), (15,), (3,), (1,), (60,), rtol=1e-3, atol=1e-3)
def jacobi(a, b):
    size = np.sum(np.abs(a), axis=1) + 1  # makes the diagonal dominate

    def better(s):
        x, _ = s
        following = (b - a @ x) / (2 * size)
        return following, np.max(np.abs(following - x))

    return mr.while_loop(lambda s: s[1] > 1e-4, better, (np.zeros_like(b), np.max(np.abs(b)) + 1))[0]


@program(lambda r, n, m: (r.normal(n, m, scale=2), r.positive(m)), (6, 5), (2, 3), (1, 1), (40, 7), atol=1e-5)
def normalise_if_large(x, gain):
    largest = np.sum(np.abs(x))

    def shrunk(x):
        return x / (1.0 + np.max(np.abs(x), axis=0)), largest

    y, scale = mr.cond(largest > 12, shrunk, lambda x: (x * gain, 1.0), x)
    return y + 1, scale


@program(
    lambda r, h, w: (np.linspace(-2, 0.5, w), np.linspace(-1.1, 1.2, h)),
    *((11, 17), (2, 3), (1, 1), (40, 50), (3, 0)),
)
def mandelbrot(re, im):
    def turn(i, s):
        x, y, count = s
        inside = x * x + y * y <= 4
        new = x * x - y * y + re, 2 * x * y + im[:, None]
        return np.where(inside, new[0], x), np.where(inside, new[1], y), count + inside

    start = np.zeros_like(im[:, None] + re)
    return mr.fori_loop(0, 15, turn, (start, start, start.astype(np.int64)))[2]


# ---------------------------------------------------------------- data


@program(lambda r, n, k, d: (r.normal(n, d), r.normal(k, d)), (40, 5, 3), (5, 3, 2), (1, 4, 1), (200, 9, 4), atol=1e-5)
def k_means(points, centres):
    def step(i, s):
        centres, _ = s
        nearest = np.argmin(np.sum((points[:, None] - centres[None]) ** 2, axis=2), axis=1)
        member = (nearest[:, None] == mnp.arange(centres.shape[0])).astype(points.dtype)
        counts = np.sum(member, axis=0)
        moved = member.T @ points / np.maximum(counts, 1)[:, None]
        return np.where((counts > 0)[:, None], moved, centres), nearest

    return mr.fori_loop(0, 4, step, (centres, mnp.zeros(points.shape[0], np.int64)))


@program(lambda r, n, m: (r.normal(n, m), np.zeros(m, np.float32)), (20, 4), (4, 2), (1, 1), (300, 33), (0, 3))
def running_maximum(x, floor):
    def step(s, row):
        best, at, now = s
        larger = row > best
        best, at = np.where(larger, row, best), np.where(larger, now, at)
        return (best, at, now + 1), (best, at)

    (_, _, rounds), rows = mr.scan(step, (floor, mnp.full(floor.shape[0], -1), 0), x)
    return *rows, rounds


@program(lambda r, h, w, k: (r.integers(0, 2, h, w, dtype=np.uint8), np.array(k)),
         (9, 12, 3), (3, 4, 1), (1, 1, 2), (30, 40, 5), (2, 3, 0))  # fmt: skip
def game_of_life(board, rounds):
    def around(x, axis):
        first, last = (x[:1], x[-1:]) if axis == 0 else (x[:, :1], x[:, -1:])
        inner = (x[1:], x[:-1]) if axis == 0 else (x[:, 1:], x[:, :-1])
        return np.concatenate([inner[0], first], axis) + x + np.concatenate([last, inner[1]], axis)

    def step(i, board):
        count = around(around(board, 0), 1)
        return ((count == 3) | ((count == 4) & (board == 1))).astype(np.uint8)

    return mr.fori_loop(0, rounds, step, board)


@program(lambda r, n, m: (np.sort(r.integers(0, 50, n)), r.integers(-3, 60, m)), (20, 7), (3, 2), (1, 1), (500, 40), (4, 0))
def binary_search(ordered, wanted):
    def halve(s):
        low, high = s
        middle = (low + high) // 2
        right = ordered[np.minimum(middle, ordered.shape[0] - 1)] < wanted
        return np.where((low < high) & right, middle + 1, low), np.where((low < high) & ~right, middle, high)

    low = np.zeros_like(wanted)
    return mr.while_loop(lambda s: np.any(s[0] < s[1]), halve, (low, low + ordered.shape[0]))[0]


@program(lambda r, n, m: (r.integers(0, 4, n), r.integers(0, 4, m)), (7, 9), (2, 3), (1, 1), (0, 5), (4, 0), (20, 15))
def edit_distance(a, b):
    def row(above, letter):
        def cell(s, x):
            left, diagonal = s
            other, up = x
            here = np.minimum(np.minimum(left, up) + 1, diagonal + (letter != other))
            return (here, up), here

        _, below = mr.scan(cell, (above[0] + 1, above[0]), (b, above[1:]))
        return np.concatenate([above[:1] + 1, below]), None

    return mr.scan(row, mnp.arange(b.shape[0] + 1), a)[0][-1]


@program(lambda r, n: (np.arange(2, n + 2),), (40,), (6,), (1,), (300,), (0,))
def sieve(candidates):
    def step(s):
        left, count, total = s
        return left[left % left[0] != 0], count + 1, total + left[0]

    left, count, total = mr.while_loop(lambda s: s[0].shape[0] > 0, step, (candidates, 0, 0))
    return left, count, total


@program(lambda r, n: (np.maximum(np.arange(n) - r.integers(1, 4, n), 0),), (30,), (4,), (1,), (700,), (0,))
def pointer_jumping(parents):
    def jump(s):
        now, _, rounds = s
        following = now[now]
        return following, np.any(following != now), rounds + 1

    roots, _, rounds = mr.while_loop(lambda s: s[1], jump, (parents, True, 0))
    return roots, rounds


# ---------------------------------------------------------------- networks, blocks


@program(lambda r, t, b, n, d: (r.normal(t, b, n), r.normal(n, d, scale=0.5), r.normal(d, d, scale=0.5), r.normal(d)),
         (6, 3, 5, 8), (2, 1, 2, 3), (1, 1, 1, 1), (0, 2, 3, 4), (12, 4, 24, 40), rtol=1e-4, atol=1e-4)  # fmt: skip
def recurrent(x, w, u, b):
    def step(h, row):
        h = np.tanh(row @ w + h @ u + b)
        return h, h

    start = mnp.zeros((x.shape[1], u.shape[0]), x.dtype)
    last, all_of_them = mr.scan(step, start, x)
    return last, all_of_them, *mr.scan(lambda s, h: (s + h, np.sum(h)), last, all_of_them, reverse=True)


@program(lambda r, t, d: (r.normal(t, d), r.normal(d, 2 * d, scale=0.3)), (6, 4), (2, 3), (1, 1), (25, 16),
         rtol=1e-4, atol=1e-5)  # fmt: skip
def decode(tokens, project):
    t, d = tokens.shape

    def step(s, token):
        keys, values, now = s
        pair = token @ project
        keys[now] = pair[:d]
        values[now] = pair[d:]
        scores = np.where(mnp.arange(t) <= now, keys @ token, -1e9)
        weights = np.exp(scores - np.max(scores))
        return (keys, values, now + 1), weights / np.sum(weights) @ values

    (keys, _, _), out = mr.scan(step, (np.zeros_like(tokens), np.zeros_like(tokens), 0), tokens)
    return keys, out


@program(lambda r, n, k, m, s: (r.normal(n, k, s, s), r.normal(k, m, s, s)),
         (2, 3, 2, 4), (2, 1, 2, 2), (1, 1, 1, 1), (3, 4, 5, 8), (1, 0, 2, 3), rtol=1e-4, atol=1e-5)  # fmt: skip
def matmul_by_blocks(a, b):
    rows, inner, columns = a.shape[0], a.shape[1], b.shape[1]

    def row(i, out):
        def column(j, out):
            def add(k, total):
                return total + a[i, k] @ b[k, j]

            out[i, j] = mr.fori_loop(0, inner, add, out[i, j])
            return out

        return mr.fori_loop(0, columns, column, out)

    start = mnp.zeros((rows, columns, a.shape[2], b.shape[3]), a.dtype)
    return mr.fori_loop(0, rows, row, start)

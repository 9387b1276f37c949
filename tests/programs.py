"""The corpus: ordinary NumPy functions, unchanged, each with makers of inputs at several sizes.

The expected value of a program is the program itself, run by NumPy on the same inputs in float64, so that the tolerance
speaks about the compiled code and not about the reference.  The first sizes of each program are the ones it is traced with;
the others must be served by the same compilation.  The second sizes are small: there, every stage is interpreted.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PROGRAMS: dict[str, Program] = {}


@dataclass(frozen=True)
class Program:
    """A function, its inputs as a function of a random generator and the sizes, and how far from float64 it may be.

    `compilations` is how many programs all the sizes take together: 1, unless the code itself asks about a size.
    """

    name: str
    function: Callable
    make: Callable[..., tuple]
    sizes: tuple[tuple[int, ...], ...]
    rtol: float = 2e-5
    atol: float = 2e-6
    compilations: int = 1

    def inputs(self, sizes: tuple[int, ...]) -> tuple[np.ndarray, ...]:
        """The inputs at these sizes: the same ones each time."""
        return self.make(Inputs(np.random.default_rng([len(sizes), *sizes])), *sizes)

    def expected(self, *args: np.ndarray):
        """The result in float64: an array, or a tuple of them."""
        with np.errstate(all="ignore"):
            return self.function(*(np.array(a, np.float64) if a.dtype == np.float32 else a.copy() for a in args))

    @property
    def small(self) -> tuple[int, ...]:
        """Sizes at which plain Python loops are quick."""
        return self.sizes[1]


class Inputs:
    """Random arrays for programs."""

    def __init__(self, rng: np.random.Generator):
        self.rng = rng

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        """Normally distributed float32."""
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def positive(self, *shape: int) -> np.ndarray:
        """Float32 between 0.5 and 1.5."""
        return (self.rng.random(shape) + 0.5).astype(np.float32)

    def integers(self, low: int, high: int, *shape: int, dtype: type = np.int64) -> np.ndarray:
        """Integers with ``low <= k < high``."""
        return self.rng.integers(low, high, shape).astype(dtype)

    def flags(self, *shape: int) -> np.ndarray:
        """Booleans."""
        return self.rng.random(shape) < 0.5


def program(make: Callable[..., tuple], *sizes: tuple[int, ...], **options) -> Callable[[Callable], Callable]:
    """Decorator: put the function into `PROGRAMS`.  The function itself stays plain NumPy."""
    def register(function: Callable) -> Callable:
        PROGRAMS[function.__name__] = Program(function.__name__, function, make, sizes, **options)
        return function
    return register


def compare(program: Program, found, expected) -> None:
    """Assert that `found` is `expected` (float64): same structure, shapes, kinds of dtype, and values within tolerance."""
    if isinstance(expected, tuple):
        assert isinstance(found, tuple) and len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            compare(program, f, e)
        return
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape and found.dtype.kind == expected.dtype.kind
    if expected.dtype.kind in "fc":
        np.testing.assert_allclose(found, expected, rtol=program.rtol, atol=program.atol)
    else:
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


# ---------------------------------------------------------------- neural networks

@program(lambda r, n, m: (r.normal(n, m, scale=3),), (7, 33), (3, 4), (1, 5), (64, 100), (0, 8), (5, 1), (2, 1000))
def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


@program(lambda r, b, n, m: (r.normal(b, n, m), r.positive(m), r.normal(m)),
         (2, 5, 48), (2, 2, 3), (1, 1, 7), (3, 17, 384), (0, 4, 8))
def layer_norm(x, gain, bias):
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + 1e-5) * gain + bias


@program(lambda r, n, m: (r.normal(n, m), r.positive(m)), (6, 40), (2, 3), (1, 1), (33, 512), (0, 5))
def rms_norm(x, gain):
    return x / np.sqrt(np.mean(x ** 2, axis=-1, keepdims=True) + 1e-6) * gain


@program(lambda r, n, d, h: (
             r.normal(n, d), r.normal(d, h, scale=d ** -0.5), r.normal(h), r.normal(h, d, scale=h ** -0.5), r.normal(d)),
         (5, 24, 96), (2, 3, 4), (1, 16, 64), (37, 24, 96), (130, 40, 31), (0, 8, 8), rtol=1e-4, atol=1e-5)
def gelu_mlp(x, w1, b1, w2, b2):
    h = x @ w1 + b1
    h = 0.5 * h * (1.0 + np.tanh(0.7978845608028654 * (h + 0.044715 * h ** 3)))
    return h @ w2 + b2


@program(lambda r, b, h, s, t, d: (r.normal(b, h, s, d), r.normal(b, h, t, d), r.normal(b, h, t, d)),
         (2, 3, 9, 11, 16), (1, 2, 2, 3, 2), (1, 1, 1, 1, 8), (2, 4, 33, 65, 32), (1, 2, 1, 40, 8), rtol=1e-4, atol=1e-5)
def attention(q, k, v):
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) / q.shape[-1] ** 0.5
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.matmul(weights / weights.sum(axis=-1, keepdims=True), v)


@program(lambda r, b, s: (
             r.normal(b, s, 24), r.normal(24, 72, scale=0.2), r.normal(24, 24, scale=0.2), np.ones((b, s), np.float32)),
         (2, 7), (1, 3), (1, 1), (3, 32), (2, 50), rtol=1e-4, atol=1e-5)
def attention_block(x, project, merge, mask):
    b, s, width = x.shape
    heads = 4
    qkv = np.reshape(x @ project, (b, s, 3, heads, width // heads))
    q, k, v = (np.transpose(qkv[:, :, i], (0, 2, 1, 3)) for i in range(3))
    scores = q @ np.transpose(k, (0, 1, 3, 2)) / np.sqrt(width // heads)
    scores = scores + (1.0 - mask)[:, None, None, :] * -1e9
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = weights / np.sum(weights, axis=-1, keepdims=True)
    context = np.reshape(np.transpose(weights @ v, (0, 2, 1, 3)), (b, s, width))
    return x + context @ merge


@program(lambda r, b, s, v: (r.normal(v, 16), r.normal(40, 16), r.integers(0, v, b, s)),
         (2, 5, 30), (1, 3, 4), (3, 40, 100), (1, 1, 2))
def embed(table, positions, ids):
    return np.take(table, ids, axis=0) + positions[:ids.shape[1]]


@program(lambda r, n, c: (r.normal(n, c), r.integers(0, c, n)), (20, 7), (4, 3), (1, 2), (300, 10))
def accuracy(logits, labels):
    return np.mean(np.argmax(logits, axis=1) == labels)


# ---------------------------------------------------------------- statistics and data

@program(lambda r, n, k, d: (r.normal(n, d), r.normal(k, d)), (40, 5, 3), (5, 2, 2), (1, 1, 4), (333, 16, 8), atol=1e-5)
def k_means_step(points, centres):
    distances = np.sum((points[:, None, :] - centres[None, :, :]) ** 2, axis=2)
    nearest = np.argmin(distances, axis=1)
    member = (distances == np.min(distances, axis=1, keepdims=True)).astype(points.dtype)
    counts = np.sum(member, axis=0)
    moved = (member.T @ points) / np.maximum(counts, 1.0)[:, None]
    return np.where((counts > 0)[:, None], moved, centres), nearest


@program(lambda r, n, m, d: (r.normal(n, d), r.normal(m, d) + np.float32(3)),
         (12, 9, 5), (2, 3, 2), (1, 1, 1), (70, 131, 33), (0, 4, 3),
         rtol=1e-4, atol=1e-4)
def pairwise_distance(x, y):
    squares = np.sum(x * x, axis=1)[:, None] + np.sum(y * y, axis=1)[None, :] - 2.0 * (x @ y.T)
    return np.sqrt(np.maximum(squares, 0.0))


@program(lambda r, n: (r.normal(n, scale=0.5), r.normal(n)), (50,), (6,), (1,), (1000,), (7,), rtol=1e-4, atol=1e-4)
def normal_equations(x, y):
    design = np.stack([np.ones_like(x), x, x ** 2, x ** 3], axis=1)
    return design.T @ design, design.T @ y


@program(lambda r, n: (r.normal(4), r.normal(n)), (50,), (3,), (1,), (1000,), (0,), atol=1e-5)
def polynomial(coefficients, x):
    value = np.zeros_like(x)
    for k in range(4):
        value = value * x + coefficients[k]
    return value


@program(lambda r, n, d: (r.normal(n, d),), (30, 4), (4, 2), (2, 1), (500, 17), rtol=1e-4, atol=1e-5)
def standardise(x):
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-3)


@program(lambda r, n, m: (r.normal(n, m),), (12, 5), (3, 2), (2, 64), (257, 3), rtol=1e-4, atol=1e-5)
def spread(x):
    return np.var(x), np.std(x, axis=1), np.var(x, axis=0, ddof=1)


@program(lambda r, n, d: (r.normal(n, d), r.normal(n, d)), (11, 6), (2, 3), (1, 1), (100, 77))
def cosine_similarity(a, b):
    lengths = np.sqrt(np.sum(a * a, axis=-1)) * np.sqrt(np.sum(b * b, axis=-1))
    return np.sum(a * b, axis=-1) / np.maximum(lengths, 1e-9)


@program(lambda r, n, m: (r.normal(n, m, scale=10),), (9, 12), (2, 3), (1, 1), (40, 513))
def logsumexp(x):
    top = np.max(x, axis=1, keepdims=True)
    return np.squeeze(top, axis=1) + np.log(np.sum(np.exp(x - top), axis=1))


@program(lambda r, n, c: (r.integers(0, c, n), np.arange(c)), (10, 4), (3, 2), (1, 1), (200, 33), (0, 3))
def one_hot(labels, classes):
    return (labels[:, None] == classes).astype(np.float32)


@program(lambda r, n: (r.normal(n), r.flags(n)), (25,), (4,), (1,), (1000,))
def masked_mean(x, keep):
    return np.sum(np.where(keep, x, 0.0)) / np.maximum(np.count_nonzero(keep), 1)


@program(lambda r, n, m: (r.normal(n, m),), (8, 11), (2, 3), (1, 4), (50, 50))
def min_max_scale(x):
    low, high = x.min(axis=0), x.max(axis=0)
    return (x - low) / np.where(high > low, high - low, 1.0)


# ---------------------------------------------------------------- signals and images

@program(lambda r, n: (r.normal(n),), (20,), (5,), (3,), (1000,))
def moving_average(x):
    return (x[:-2] + x[1:-1] + x[2:]) / 3.0


@program(lambda r, h, w: (r.normal(h, w),), (12, 15), (4, 5), (3, 3), (64, 100), (3, 50))
def laplacian(u):
    return u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1]


@program(lambda r, h, w: (r.normal(h, w),), (10, 13), (4, 4), (3, 5), (64, 33))
def heat(u):
    u = u.copy()
    for _ in range(3):
        u[1:-1, 1:-1] += 0.1 * (u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:] - 4.0 * u[1:-1, 1:-1])
    return u


@program(lambda r, n, h, w: (r.positive(n, h, w, 3),), (2, 6, 8), (1, 2, 4), (1, 2, 2), (3, 30, 44))
def half_size_grey(images):
    grey = 0.299 * images[..., 0] + 0.587 * images[..., 1] + 0.114 * images[..., 2]
    return 0.25 * (grey[:, ::2, ::2] + grey[:, 1::2, ::2] + grey[:, ::2, 1::2] + grey[:, 1::2, 1::2])


@program(lambda r, n, m: (r.normal(n, m),), (7, 10), (2, 3), (1, 1), (40, 200), rtol=1e-4, atol=1e-5)
def running_total(x):
    return np.cumsum(x, axis=1)


@program(lambda r, n: (r.normal(n, scale=3),), (30,), (5,), (1,), (1000,))
def wave_shaper(x):
    clipped = np.clip(x, -2.0, 2.0)
    return np.where(x > 0, np.sin(clipped) * np.log1p(np.abs(x)), np.expm1(np.minimum(clipped, 0.0)) + np.cos(x) ** 2)


# ---------------------------------------------------------------- linear algebra, integers, movement

@program(lambda r, n: (r.normal(n, n), r.positive(n)), (12,), (3,), (1,), (100,), rtol=1e-4, atol=1e-5)
def power_iteration(a, v):
    for _ in range(2):
        v = a @ v
        v = v / np.sqrt(np.sum(v * v))
    return v, v @ (a @ v)


@program(lambda r, b, h, n, k, m: (r.normal(b, 1, n, k), r.normal(h, k, m)),
         (2, 3, 4, 5, 6), (2, 2, 2, 3, 2), (1, 4, 1, 8, 1), (3, 2, 20, 30, 40),
         rtol=1e-4, atol=1e-5)
def batched_matmul(a, b):
    return np.matmul(a, b)


@program(lambda r, n, m: (r.normal(n), r.normal(m)), (6, 9), (2, 3), (1, 1), (50, 33), (0, 4))
def outer_products(x, y):
    return np.outer(x, y) - x[:, None] / (1.0 + y * y)


@program(lambda r, n, k, m: (r.normal(n, m), r.normal(k, m), r.normal(m)), (3, 5, 4), (1, 2, 2), (2, 0, 3), (40, 31, 17))
def join(a, b, c):
    rows = np.concatenate([a, b, c[None]], axis=0)
    return np.stack([rows, rows[::-1]], axis=0)


@program(lambda r, n: (r.integers(-50, 50, n), r.integers(1, 9, n)), (20,), (5,), (1,), (500,), (0,))
def integer_mix(a, b):
    return a // b + a % b * 3 - (a & b) + (a | 7) ^ (b << 2), (-a) ** 2 > b


@program(lambda r, n: (r.integers(0, 256, n, dtype=np.uint8), r.integers(0, 256, n, dtype=np.uint8)), (20,), (5,), (1,), (500,))
def bytes_mix(a, b):
    return a + b, (a >> 1) + (b >> 1), np.maximum(a, b) - np.minimum(a, b), np.sum(a)


@program(lambda r, n, m: (r.flags(n, m), r.normal(n, m)), (6, 7), (2, 3), (1, 1), (40, 50))
def logic(keep, x):
    chosen = keep & (x > -0.5) | ~keep & (x > 1.0)
    return np.any(chosen, axis=1), np.all(keep | (x < 3), axis=0), np.sum(chosen), np.logical_xor(keep, chosen)


@program(lambda r, n, m: (r.normal(n, m), r.integers(0, n, m)), (8, 6), (3, 2), (1, 1), (60, 31))
def gather_rows(table, rows):
    return table[rows] - table[-1], table.T[:, rows]


@program(lambda r, b, n: (r.normal(b, n, 8),), (2, 5), (1, 2), (1, 1), (3, 40))
def rotate_pairs(x):
    even, odd = x[..., ::2], x[..., 1::2]
    angle = np.mean(x, axis=-1, keepdims=True)
    turned = np.stack([even * np.cos(angle) - odd * np.sin(angle), even * np.sin(angle) + odd * np.cos(angle)], axis=-1)
    return np.reshape(turned, x.shape)


@program(lambda r, b, n, m, d: (r.normal(b, n, d), r.normal(b, m, d), r.normal(d)),
         (2, 4, 5, 6), (1, 2, 3, 2), (1, 1, 1, 1), (3, 20, 30, 16),
         rtol=1e-4, atol=1e-5)
def weighted_scores(q, k, w):
    return np.einsum("bnd,bmd,d->bnm", q, k, w)


@program(lambda r, n: (r.normal(n),), (30,), (5,), (1,), (1001,))
def sorted_gaps(x):
    ordered = np.sort(x)
    return ordered[1:] - ordered[:-1], np.argsort(x)


@program(lambda r, b, n, m: (r.normal(b, n, 2 * m), r.normal(n, m), r.normal(m)),
         (2, 5, 3), (1, 2, 2), (1, 1, 1), (3, 40, 16), (0, 4, 2))
def turned_pairs(x, angle, gain):
    z = (x[..., ::2] + 1j * x[..., 1::2]) * np.exp(1j * angle)
    weighted = z * gain / (2.0 + np.abs(z)) - np.conj(z)
    return np.stack([z.real, z.imag], axis=-1), weighted, np.sum(weighted, axis=-1), np.angle(z + 4)

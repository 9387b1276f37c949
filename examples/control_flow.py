"""Three loops whose course depends on data, in ordinary functions that also run without the compiler.

* `recurrent`: a recurrent network reads a sequence (`mr.scan`), one row in each round, and keeps all its states.
* `roots`: Newton's method (`mr.while_loop`), for all numbers until the last of them is done.
* `cluster`: Lloyd's k-means (`mr.fori_loop`), for a number of rounds that the caller gives.

Each is compiled once for all sizes, and compared with NumPy at several.  Run it: ``python examples/control_flow.py``; the times
are in ``examples/benchmarks/loops.py``.
"""
from __future__ import annotations

import numpy as np

import minirelax as mr
import minirelax.numpy as mnp


def recurrent(p, x):
    """The states after each row of x (length, inputs), and the last one, from the weights p."""
    def cell(h, row):
        h = np.tanh(row @ p["w"] + h @ p["u"] + p["b"])
        return h, h

    return mr.scan(cell, np.zeros_like(p["b"]), x)


def recurrent_in_numpy(p, x):
    h, states = np.zeros_like(p["b"]), np.empty((len(x), len(p["b"])), x.dtype)
    for i, row in enumerate(x):
        h = states[i] = np.tanh(row @ p["w"] + h @ p["u"] + p["b"])
    return h, states


def roots(x):
    """The square roots of positive numbers, and how many rounds they took."""
    def improved(s):
        root, rounds = s
        return (root + x / root) / 2, rounds + 1

    return mr.while_loop(lambda s: np.max(np.abs(s[0] * s[0] - x) / x) > 1e-12, improved, (x, 0))


def roots_in_numpy(x):
    root, rounds = x, 0
    while np.max(np.abs(root * root - x) / x) > 1e-12:
        root, rounds = (root + x / root) / 2, rounds + 1
    return root, rounds


def nearest(x, centres):
    """For each row of x, which centre is the nearest: a row of zeros and a one."""
    distances = np.sum(centres * centres, axis=1) - 2 * (x @ centres.T)         # and the squares of x, equal for all centres
    return (np.argmin(distances, axis=1)[:, None] == mnp.arange(centres.shape[0])).astype(x.dtype)


def cluster(x, centres, rounds):
    """Centres of the rows of x, each the mean of the rows that are nearest to it; a centre of no rows stays where it is."""
    def improved(i, centres):
        member = nearest(x, centres)
        count = np.sum(member, axis=0)[:, None]
        return np.where(count > 0, member.T @ x / np.maximum(count, 1), centres)

    return mr.fori_loop(0, rounds, improved, centres)


def cluster_in_numpy(x, centres, rounds):
    for _ in range(rounds):
        member = nearest(x, centres)
        count = np.sum(member, axis=0)[:, None]
        centres = np.where(count > 0, member.T @ x / np.maximum(count, 1), centres)
    return centres


def network(rng: np.random.Generator, inputs: int, width: int) -> dict[str, np.ndarray]:
    """Weights for `recurrent`."""
    shapes = {"w": (inputs, width), "u": (width, width), "b": (width,)}
    return {name: (rng.standard_normal(shape) / width**0.5).astype(np.float32) for name, shape in shapes.items()}


def blobs(rng: np.random.Generator, rows: int, columns: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Points around k places, and k of them to begin with."""
    places = 9 * rng.standard_normal((k, columns))
    x = places[np.arange(rows) % k] + rng.standard_normal((rows, columns))
    return x, x[:k] + 0.1


def main() -> None:
    rng = np.random.default_rng(0)
    networks = mr.jit(recurrent, constants="p")
    p = network(rng, 16, 32)
    for length in (1, 5, 50):
        x = rng.standard_normal((length, 16), dtype=np.float32)
        for got, want in zip(networks(p, x), recurrent_in_numpy(p, x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-4)

    newton = mr.jit(roots)
    for n in (1, 10, 100_000):
        x = np.exp(rng.standard_normal(n))
        found, rounds = newton(x)
        np.testing.assert_allclose(found, np.sqrt(x), rtol=1e-12)
        assert rounds == roots_in_numpy(x)[1]

    means = mr.jit(cluster)
    for rows, columns, k, rounds in ((12, 2, 3, 4), (1000, 8, 5, 10), (7, 3, 7, 0)):
        x, centres = blobs(rng, rows, columns, k)
        np.testing.assert_allclose(means(x, centres, rounds), cluster_in_numpy(x, centres, rounds), rtol=1e-9)

    for name, f in (("recurrent", networks), ("roots", newton), ("cluster", means)):
        print(f"{name}: equal to NumPy at three sizes, {len(f.compilations)} compilation(s)")
    print("\nThe network, as it was traced (the weights p are bound, since they are the same in many calls):\n")
    print(networks.stages["trace"].module)
    print("\nIts memory: what a round needs is reserved before the first one.\n")
    print(networks.memory)


if __name__ == "__main__":
    main()

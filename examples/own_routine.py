"""A routine of your own in place of NumPy's expression for it: a rule of a few lines, in your own code.

The program says in NumPy what it computes: distances between all pairs of points, and for each point the nearest one of the
others.  The rule says that its first part is what a Numba function does: a pattern of operations, as a function of variables, a
check of the places where it matches, and the routine.  Programs stay as they are, and run with and without it.

Run it: ``python examples/own_routine.py``
"""

import numba
import numpy as np

import minirelax as mr
from minirelax.ops.arithmetic import Square, Subtract
from minirelax.ops.movement import Reshape
from minirelax.ops.reduce import Sum


def is_all_pairs(match) -> bool:
    """Are points (n, d) and (m, d) laid out as (n, 1, d) and (1, m, d)?  Sizes are symbols, compared as polynomials."""
    (n, d), (m, _) = match["x"].type.shape, match["y"].type.shape
    return match["a"] == (n, 1, d) and match["b"] == (1, m, d) and match["axes"] == (2,)


@mr.library_rule(lambda x, y, a, b, axes: Sum(Square(Subtract(Reshape(x, a), Reshape(y, b))), axes, False), check=is_all_pairs)
@numba.njit
def squared_distances(x, y, out):
    for i in range(len(x)):
        for j in range(len(y)):
            total = x.dtype.type(0)
            for k in range(x.shape[1]):
                total += (x[i, k] - y[j, k]) ** 2
            out[i, j] = total


def nearest(x, y):
    distances = np.sum((x[:, None, :] - y[None, :, :]) ** 2, axis=-1)
    return np.argmin(distances, axis=1), np.sqrt(np.min(distances, axis=1))


def main() -> None:
    compiled, rng = mr.jit(nearest, libraries=squared_distances), np.random.default_rng(0)
    for n, m, d in ((5, 7, 3), (1, 1, 1), (40, 30, 8), (0, 2, 2)):
        x, y = rng.standard_normal((n, d), np.float32), rng.standard_normal((m, d), np.float32)
        for found, wanted in zip(compiled(x, y), nearest(x, y), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5)
    print(f"Equal to NumPy at four sizes, with {len(compiled.compilations)} compilation.\n")
    print(*compiled.stages["choose_libraries"].notes, "\n", sep="\n")
    print(compiled.stages["choose_libraries"].module["main"])


if __name__ == "__main__":
    main()

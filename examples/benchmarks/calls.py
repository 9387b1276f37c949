"""The cost of a call: functions of arrays with 4 elements, where there is nothing else to pay for."""
from __future__ import annotations

import numpy as np

import minirelax as mr
from minirelax.explore.timing import Comparison, paired


def add(x, y):
    return x + y


def chain(x, y):
    return np.sqrt(np.abs(x * y + 1.0)) - x / 2.0


def total(x, y):
    return np.sum(x * y)


def nested(x, y):
    return {"sum": x + y, "parts": (x, {"product": x * y})}


def main() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 4), dtype=np.float32)
    table = Comparison("function", reference="NumPy")
    for function in (add, chain, total, nested):
        compiled = mr.jit(function)
        table.add(function.__name__, pair=paired(lambda: compiled(x, y), lambda: function(x, y), rounds=31))   # noqa: B023
    print(table)


if __name__ == "__main__":
    main()

"""The ops: each is one class that says its operands, its type, its meaning by NumPy, and its loops.

>>> len(OPS) > 90, OPS["matmul"].__name__
(True, 'Matmul')
"""
from __future__ import annotations

from minirelax.ir.op import OPS
from minirelax.ops import (
    arithmetic,
    comparison,
    complex,
    create,
    data_dependent,
    elementwise,
    fourier,
    index,
    lapack,
    linalg,
    logic,
    movement,
    panels,
    reduce,
    rounding,
    scatter,
    sequence,
    shape,
    transcendental,
)

__all__ = [
    "OPS", "arithmetic", "comparison", "complex", "create", "data_dependent", "elementwise", "fourier", "index", "lapack",
    "linalg", "logic",
    "movement", "panels", "reduce", "rounding", "scatter", "sequence", "shape", "transcendental",
]

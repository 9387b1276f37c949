"""What a kernel costs, by arithmetic alone: picoseconds per scalar operation, summed over the iteration space.

The numbers say how an operation compares with a vectorised f32 addition on a current core; they decide only how many
rows make a tile and whether going parallel pays, both of which tolerate a factor of two.
"""

from __future__ import annotations

from minirelax.ir.dim import Dim, product
from minirelax.ir.loop import Block
from minirelax.ir.scalar import Apply, Load, Scalar, walk

LOAD, STORE, SIMPLE = 100, 150, 60  # picoseconds per element
SLOW = {
    "divide": 400,
    "sqrt": 500,
    "exp": 500,
    "exp2": 500,
    "expm1": 900,
    "log": 700,
    "log2": 700,
    "log10": 700,
    "log1p": 900,
    "tanh": 900,
    "erf": 900,
    "power": 15000,
    "sin": 10000,
    "cos": 10000,
    "tan": 15000,
    "arctan2": 15000,
    "hypot": 5000,
    "floor_divide": 3000,
    "remainder": 3000,
    "fmod": 5000,
}
OTHER = 10000  # a libm call that is not vectorised
_CHEAP = {
    "add",
    "subtract",
    "multiply",
    "maximum",
    "minimum",
    "negative",
    "absolute",
    "where",
    "if_else",
    "cast",
    "square",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "sign",
    "copysign",
    "isnan",
    "isinf",
    "isfinite",
    "signbit",
    "check_index",
    "reciprocal",
    "fmax",
    "fmin",
    "complex",
    "real",
    "imag",
}
TILE = 20_000_000  # picoseconds of work that make a tile worth claiming


def scalar_cost(root: Scalar) -> int:
    """Picoseconds to evaluate a scalar once, shared parts counted once."""
    total = 0
    for s in walk(root):
        match s:
            case Load():
                total += LOAD
            case Apply(function=f):
                total += SLOW.get(f, SIMPLE if f in _CHEAP else OTHER)
    return total


def block_cost(block: Block) -> Dim:
    """Picoseconds of a block over its whole iteration space."""
    spatial, over = product([a.extent for a in block.axes]), product([a.extent for a in block.over])
    return spatial * over * (scalar_cost(block.value) + (SIMPLE if block.over else 0)) + spatial * STORE

"""NumPy's functions on traced arrays, one file per subject; `FUNCTIONS` has them by NumPy's name.

>>> len(FUNCTIONS) > 120, "einsum" in FUNCTIONS
(True, True)
"""

from minirelax.frontend.functions import (
    contract,
    create,
    fourier,
    join,
    linalg,
    move,
    reduce,
    scan,
    select,
    sets,
    special,
    statistics,
)
from minirelax.frontend.functions.registry import FUNCTIONS, public

__all__ = [
    "FUNCTIONS",
    "contract",
    "create",
    "fourier",
    "join",
    "linalg",
    "move",
    "public",
    "reduce",
    "scan",
    "select",
    "sets",
    "special",
    "statistics",
]

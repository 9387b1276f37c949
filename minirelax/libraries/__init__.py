"""Rules for libraries that are there anyway.

None is used unless it is asked for, ``jit(f, libraries=minirelax.libraries.sort())``:

- `blas`: matrix products by the BLAS that NumPy was built with
- `linalg`: inverses that are only multiplied with, and triangular factors, as solutions of linear systems
- `fft`: Fourier transforms by SciPy, and convolutions made of them as one call
- `sort`: parts of a sorted order, without sorting the rest

Operations that only a library has (sorting, `numpy.linalg`, `numpy.fft`) are library calls without any rule.  Each rule says
why its routine gives what the program says, and its check declines everything else.  Rules of several sets are added:
``blas() + sort()``.
"""

from __future__ import annotations

from minirelax.libraries import fourier, order, products, systems
from minirelax.libraries.fourier import fft
from minirelax.libraries.order import sort
from minirelax.libraries.products import blas
from minirelax.libraries.systems import linalg

# found without being registered, so that a saved program needs no more than this package
ROUTINES = {**products.ROUTINES, **systems.ROUTINES, **order.ROUTINES, **fourier.ROUTINES}
WORKSPACES = order.WORKSPACES

__all__ = ["ROUTINES", "WORKSPACES", "blas", "fft", "linalg", "sort"]

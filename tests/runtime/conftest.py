"""Small kernels for the tests of the runtime, compiled once per session."""

from __future__ import annotations

import pytest

from minirelax.runtime import object_cache
from minirelax.runtime.machine_code import DEFAULT, compile_separately

KERNELS = {
    "scale": """
def scale(a, low, high, scratch):   # out[t, :] = x[t, :] * factor; a: x, out, columns, factor
    x = doubles(a[0]); out = doubles(a[1]); n = a[2]
    for i in range(low * n, high * n):
        out[i] = x[i] * a[3]
""",
    "follow": """
def follow(a, low, high, scratch):  # out[t] = x[tiles - 1 - t] + t: reads what other threads' tiles wrote; a: x, out, tiles
    x = doubles(a[0]); out = doubles(a[1])
    for t in range(low, high):
        out[t] = x[a[2] - 1 - t] + t
""",
    "private": """
def private(a, low, high, scratch):  # out[t] = sum of t, t + 1, ... (length terms) by way of scratch memory; a: out, length
    out = doubles(a[0]); own = doubles(scratch)
    for t in range(low, high):
        for i in range(a[1]):
            own[i] = t + i
        total = 0.0
        for i in range(a[1]):
            total += own[i]
        out[t] = total
""",
    "exponential": """
def exponential(a, low, high, scratch):  # uses libm and integer division; a: x, out, divisor
    x = doubles(a[0]); out = doubles(a[1])
    for t in range(low, high):
        out[t] = math.exp(x[t]) + math.atan2(x[t], 2.0) + t // a[2] + t % a[2]
""",
}


def pointer_helper():
    """`doubles(address)`: the memory there as float64 without bounds."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def doubles(typing, address):
        def generate(context, builder, signature, arguments):
            return builder.inttoptr(arguments[0], ir.DoubleType().as_pointer())

        return types.CPointer(types.float64)(types.int64), generate

    return doubles


def compile_kernels(names):
    """Object code of some of the kernels."""
    import math

    source = "\n".join(KERNELS[name] for name in names)
    return compile_separately(source, names, {"doubles": pointer_helper(), "math": math})


@pytest.fixture(scope="session")
def kernels():
    """Addresses of the kernels by name."""
    return object_cache.load_or_compile_each({name: text + DEFAULT.text for name, text in KERNELS.items()}, compile_kernels)

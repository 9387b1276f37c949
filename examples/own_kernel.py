"""A kernel of your own, and a routine of somebody else's, inside a compiled function.

The weights of a layer are stored as 4-bit codes, two in a byte, with one scale for each row: an eighth of the memory of f32.
No array library has an operation for that.  Here it is a loop-level function, written in the language in which the compiler
prints its own kernels, for all sizes; the compiler fuses it into the matrix product, so that no decoded matrix is ever
stored.  The result is sorted by a routine that stands for any code that exists already.

Run it: ``python examples/own_kernel.py``
"""

# ruff: noqa: F821   (sizes are named in quotes)
import numpy as np

import minirelax as mr
from minirelax import f32, u8


@mr.kernel
def decode(codes: u8["n", "k"], scale: f32["n"], out: f32["n", "2*k"], *, n, k):
    for i in range(n):
        for j in range(2 * k):
            out[i, j] = (f32((codes[i, j // 2] >> u8(j % 2 * 4)) & 15) - 7.0) * scale[i]


def sort_rows(x, out):
    """The contract of a library routine: inputs are read, outputs are there already and are written."""
    out[...] = x
    out.sort(axis=1)


mr.register_library("sort_rows", sort_rows)


@mr.jit
def layer(x, codes, scale, bias):
    y = np.maximum(x @ decode(codes, scale).T + bias, 0)
    return mr.call_library("sort_rows", (y,), f32[y.shape])


def layer_in_numpy(x, codes, scale, bias):
    both = np.stack([codes & 15, codes >> 4], axis=-1).reshape(len(codes), -1)
    weights = (both.astype(np.float32) - 7) * scale[:, None]
    return np.sort(np.maximum(x @ weights.T + bias, 0), axis=1)


def main() -> None:
    rng = np.random.default_rng(0)
    print("The kernel alone, executed as Python on NumPy arrays (slow, every index checked):")
    print(decode(np.array([[0x87, 0xF0]], np.uint8), np.float32([0.5])), "\n")

    for batch, inputs, outputs in ((1, 64, 10), (5, 64, 10), (32, 256, 100)):
        x = rng.standard_normal((batch, inputs), np.float32)
        codes = rng.integers(0, 256, (outputs, inputs // 2), np.uint8)
        scale, bias = rng.random(outputs, np.float32), rng.standard_normal(outputs, np.float32)
        np.testing.assert_allclose(
            layer(x, codes, scale, bias), layer_in_numpy(x, codes, scale, bias), rtol=1e-3, atol=1e-3
        )
    print(f"Equal to NumPy at three sizes, with {len(layer.compilations)} compilation.\n")

    print("As traced:\n")
    print(layer.stages["trace"].module, "\n")
    print("After fusion: one kernel decodes, multiplies, adds and clips.\n")
    print(layer.stages["fuse_kernels"].module)


if __name__ == "__main__":
    main()

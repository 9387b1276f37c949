"""Run one kernel natively: compile its source, hand it arrays, give its outputs."""
from __future__ import annotations

import ctypes

import numpy as np

from minirelax.codegen.bounds import WORDS
from minirelax.codegen.numba_cpu import kernel_code
from minirelax.ir.dim import value
from minirelax.ir.loop import Kernel
from minirelax.runtime.compile_kernels import kernel_addresses
from minirelax.runtime.tiles import sweep_address


def run_natively(kernel: Kernel, arrays, sizes: dict[str, int], split: int | None = None) -> tuple[list[np.ndarray], int]:
    """The outputs and the error word; with `split`, the tiles run in runs of so many, last run first."""
    code = kernel_code(kernel)
    address = kernel_addresses({code.function: code.source})[code.function]
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)(address)
    outputs = [np.full([value(d, sizes) for d in v.type.shape], 77, v.type.numpy_dtype) for v in kernel.outputs]
    inputs = [np.ascontiguousarray(a) for a in arrays]
    error, table = np.zeros(WORDS, np.int64), np.zeros(1, np.int64)
    if code.table_dtype:
        table = np.array([sweep_address(code.table_dtype)], np.int64)
    words = [a.ctypes.data for a in (*inputs, *outputs, error, table)] + [sizes[s] for s in code.signature.sizes]
    args = np.array(words, np.int64)
    scratch = np.full(value(code.scratch_bytes, sizes) // 8 + 8, -1, np.int64)
    tiles = value(code.tiles, sizes)
    step = split or max(tiles, 1)
    for first in reversed(range(0, tiles, step)):
        function(args.ctypes.data, first, min(first + step, tiles), scratch.ctypes.data)
    return outputs, int(error[0])

"""What a failed bounds check says: the numbers in the error word (`minirelax.codegen.bounds`) in terms of the program."""

from __future__ import annotations

from minirelax.codegen.bounds import access_number
from minirelax.errors import BoundsError, line_text
from minirelax.ir.graph import Module, RunKernel
from minirelax.schedule.contraction import RESULT


def bounds_error(module: Module, number: int, index: int, elements: int) -> BoundsError:
    """An access that the code of a kernel refused, in the module's terms: kernel, buffer, and the lines that it came from."""
    kernel, buffer = next(
        ((k.name, b) for k in module.kernels for b in (*k.buffers, RESULT) if access_number(k.name, b) == number), ("?", "?"))
    calls = (b for f in module.functions for b in f.bindings if isinstance(b.value, RunKernel) and b.value.kernel == kernel)
    leaves = (s for b in calls if b.source for s in b.source.leaves)
    lines = dict.fromkeys(line_text(s.file, s.line) for s in leaves if s.file)
    return BoundsError(kernel, buffer, index, elements, "\n     ".join(lines))

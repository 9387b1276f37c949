"""Label every kernel with what its loops look like: elementwise, broadcast, injective, reduce, contraction, or opaque.

The label is read off the index expressions of loads and stores, so a kernel that somebody wrote by hand is labelled as
well as a generated one (Relax, section 4.2; the kinds are ordered, a kernel has the largest of its blocks').

* elementwise: reads at the index that it writes; broadcast: at some of the axes, in order; injective: at a function of the
  axes (transposes, slices, gathers);
* contraction: a sum of products in which both factors are used again along some axis, as in a matrix product; any other
  combination over axes is a reduce;
* opaque: stores anywhere else than at its own axes (a scatter), or more than one block for a buffer.

Differs from the published algorithm in one point: a reduction followed by elementwise blocks stays a reduce, as
`fuse_ops` looks at the blocks' axes themselves.

>>> from minirelax.ir.parser import parse
>>> module = parse('''
... @kernel
... def total(x: f32[n, m], out: f32[n], *, n, m):
...     for i in range(n):
...         out[i] = 0.0
...         for k in range(m):
...             out[i] += x[i, k]
...
... def main(x: f32[n, m]) -> f32[n]:
...     with dataflow():
...         v0: f32[n] = call_kernel(total, x, sizes=(n, m))
...         output(v0)
...     return v0''')
>>> print(annotate_patterns(module)["total"].pattern)
reduce
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from minirelax.ir.dim import names
from minirelax.ir.graph import Module
from minirelax.ir.loop import KINDS, Block, Kernel
from minirelax.ir.scalar import Apply, Load, Scalar
from minirelax.passes.inline import is_definition, moving


def annotate_patterns(module: Module) -> Module:
    """`module` with `pattern` set in every kernel."""
    return replace(module, kernels=tuple(k if k.pattern else replace(k, pattern=pattern_of(k)) for k in module.kernels))


def pattern_of(kernel: Kernel) -> str:
    """The kernel's kind, one of `loop.KINDS`."""
    if any(count > 1 for count in Counter(b.buffer for b in kernel.blocks).values()):
        return "opaque"
    return max((block_pattern(b) for b in kernel.blocks), key=KINDS.index)


def block_pattern(block: Block) -> str:
    """The block's kind, one of `loop.KINDS`."""
    if block.reduction is not None:
        return "contraction" if is_contraction(block) else "reduce"
    if not is_definition(block):
        return "opaque"
    kinds = [_read_pattern(read, block) for read in block.loads]
    if "elementwise" in kinds and "injective" not in kinds:  # out[i, j] = a[i, j] + b[j] is as good as elementwise
        return "elementwise"
    return max(kinds, key=KINDS.index, default="elementwise")


def is_contraction(block: Block) -> bool:
    """A sum of products of two loads, each of which is used again along a spatial axis that it does not have."""
    return contraction_factors(block) is not None


def contraction_factors(block: Block) -> tuple[Load, Load] | None:
    """The two loads that a contraction multiplies (casts aside), or None if `block` is no contraction."""
    match block:
        case Block(reduction="sum", value=Apply(function="multiply", args=(a, b))):
            a, b = _without_casts(a), _without_casts(b)
            if isinstance(a, Load) and isinstance(b, Load) and _is_reused(a, block) and _is_reused(b, block):
                return a, b
    return None


def _read_pattern(read: Load, block: Block) -> str:
    wanted, own = list(moving(read.indices)), list(moving(block.indices))
    if wanted == own:
        return "elementwise"
    remaining = iter(own)
    return "broadcast" if all(any(w == o for o in remaining) for w in wanted) else "injective"


def _without_casts(s: Scalar) -> Scalar:
    while isinstance(s, Apply) and s.function == "cast":
        s = s.args[0]
    return s


def _is_reused(read: Load, block: Block) -> bool:
    if any(isinstance(i, Scalar) for i in read.indices):
        return False
    used = frozenset().union(*(names(i) for i in read.indices))
    return any(a.name not in used for a in block.axes)

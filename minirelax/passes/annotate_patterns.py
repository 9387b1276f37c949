"""Label every kernel with what its loops look like: elementwise, broadcast, injective, reduce, contraction, or opaque.

The label is read off the index expressions of loads and stores, so a kernel that somebody wrote by hand is labelled as
well as a generated one (Relax, section 4.2; the kinds are ordered, a kernel has the largest of its blocks').

* elementwise: reads at the index that it writes; broadcast: at some of the axes, in order; injective: at a function of the
  axes (transposes, slices, gathers);
* contraction: a sum of products in which both factors are used again along some axis, as in a matrix product, whatever the
  factors are made of; any other combination over axes is a reduce;
* opaque: stores anywhere else than at its own axes (a scatter), or not to all of a buffer, or more than one block for a buffer.

Why it is right: each element of the buffer is written at the point that its own indices name, so the indices of a read, in
terms of these axes, *are* the relation between what is written and what is read; nothing else is looked at.  Where an index only
happens to equal an axis (``(2*i)//2``, or any index at sizes of 1), and for stores in another order than that of the axes, the
label is larger than need be, never smaller.  An axis that is written 1 does not count: its only index is 0.  A pattern that
somebody declared is taken if it is larger than what is found, as a wish to be left alone.

Differs from the published algorithm in two points: a reduction followed by elementwise blocks stays a reduce, as
`fuse_ops` looks at the blocks' axes themselves; and so does a reduction over windows (pooling, convolution), since no tile of
such a product is a matrix product.

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
from collections.abc import Mapping
from dataclasses import replace

from minirelax.ir.dim import names, symbol
from minirelax.ir.graph import Module
from minirelax.ir.loop import KINDS, Block, Kernel, scalar_dims
from minirelax.ir.scalar import Apply, Index, Load, Scalar, walk
from minirelax.ir.types import Tensor


def annotate_patterns(module: Module) -> Module:
    """`module` with `pattern` set in every kernel."""
    return replace(module, kernels=tuple(map(_annotated, module.kernels)))


def _annotated(kernel: Kernel) -> Kernel:
    """The kernel with its pattern; a larger one that somebody declared stays."""
    pattern = max(pattern_of(kernel), kernel.pattern or KINDS[0], key=KINDS.index)
    return kernel if kernel.pattern == pattern else replace(kernel, pattern=pattern)


def pattern_of(kernel: Kernel) -> str:
    """The kernel's kind, one of `loop.KINDS`."""
    types = kernel.buffers
    if any(count > 1 for count in Counter(b.buffer for b in kernel.blocks).values()):
        return "opaque"
    return max((block_pattern(b, types) for b in kernel.blocks), key=KINDS.index)


def block_pattern(block: Block, types: Mapping[str, Tensor]) -> str:
    """The block's kind, one of `loop.KINDS`; `types` are those of the buffers."""
    if not _is_whole(block, types[block.buffer]):
        return "opaque"
    if block.reduction is not None:
        return "contraction" if is_contraction(block) else "reduce"
    kinds = [_read_pattern(read, block, types) for read in block.loads]
    if "elementwise" in kinds and "injective" not in kinds:  # out[i, j] = a[i, j] + b[j] is as good as elementwise
        return "elementwise"
    return max(kinds, key=KINDS.index, default="elementwise")


def _is_whole(block: Block, type_: Tensor) -> bool:
    """Does the block store to each element of its buffer, at the point that the element's indices name?"""
    extents = {a.name: a.extent for a in block.axes if a.extent != 1}
    places, sizes = [str(i) for i in _moving(block.indices, type_, block)], [d for d in type_.shape if d != 1]
    return sorted(places) == sorted(extents) and [extents[name] for name in places] == sizes


def is_contraction(block: Block) -> bool:
    """A sum of products of two values, each of which is used again along a spatial axis that it does not have."""
    return contraction_factors(block) is not None


def contraction_factors(block: Block) -> tuple[Scalar, Scalar] | None:
    """The two values that a contraction multiplies (casts aside), or None if `block` is no contraction."""
    match block:
        case Block(reduction="sum", value=Apply(function="multiply", args=(a, b))):
            a, b = _without_casts(a), _without_casts(b)
            if _is_reused(a, block) and _is_reused(b, block):
                return a, b
    return None


def _read_pattern(read: Load, block: Block, types: Mapping[str, Tensor]) -> str:
    wanted, own = (_moving(at.indices, types[at.buffer], block) for at in (read, block))
    if wanted == own:
        return "elementwise"
    remaining = iter(own)
    return "broadcast" if all(any(w == o for o in remaining) for w in wanted) else "injective"


def _moving(indices: tuple[Index, ...], type_: Tensor, block: Block) -> list[Index]:
    """The indices that are not just 0 in an axis of one element, or that of a loop of one round, there."""
    single = {0, *(symbol(a.name) for a in (*block.axes, *block.over) if a.extent == 1)}
    return [i for i, d in zip(indices, type_.shape, strict=True) if d != 1 or i not in single]


def _without_casts(s: Scalar) -> Scalar:
    while isinstance(s, Apply) and s.function == "cast":
        s = s.args[0]
    return s


def _is_reused(factor: Scalar, block: Block) -> bool:
    used = frozenset().union(*(names(d) for d in scalar_dims(factor)))
    return any(isinstance(s, Load) for s in walk(factor)) and any(a.name not in used for a in block.axes)

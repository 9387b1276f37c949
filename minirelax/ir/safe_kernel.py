"""Make a kernel that somebody wrote as safe, and as regular, as one that the compiler makes.

Safe: it never touches memory outside its buffers, whatever its sizes.  An index that can be shown to stay inside is left as
it is; one that is outside for sure is an error; any other is checked while running (``check_index``, which raises IndexError).
In ``x[i - 1] if i > 0 else 0.0`` the condition counts for what can be shown.
Divisors of sizes must be positive.  Regular: loops of one round are gone, and where every buffer is written once and whole,
the loops of each block go along the buffer it writes; any other kernel is marked opaque, so that no pass takes it apart.

>>> from minirelax.ir.parse_loops import parse_kernel
>>> print(safe_kernel(parse_kernel('''
... @kernel
... def pick(x: f32[n], i: i64[m], out: f32[m], *, n, m):
...     for j in range(m):
...         out[j] = x[i[j]] + x[max(n - 1, 0)]''')))
@kernel
def pick(x: f32[n], i: i64[m], out: f32[m], *, n, m):
    for j in range(m):
        out[j] = x[check_index(i[j], n)] + x[check_index(max(n - 1, 0), n)]
"""
from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from minirelax.errors import VerifyError
from minirelax.ir.bounds import Facts
from minirelax.ir.dim import Dim, DimExpr, atoms, is_nonnegative, maximum, names, substitute, symbol
from minirelax.ir.guards import transform_under
from minirelax.ir.loop import Axis, Block, Kernel, block_dims
from minirelax.ir.scalar import (
    Apply,
    Index,
    Load,
    Scalar,
    apply,
    certain,
    load,
    simplify_indices,
    size_value,
    substitute_axes,
    substitute_index,
    walk,
)
from minirelax.ir.types import Tensor

CHECK = "check_index"
CLAMP = "indices count from 0; clamp them, as in x[max(i - 1, 0)], or read only what is there: x[i - 1] if i > 0 else 0.0"


def safe_kernel(kernel: Kernel, places: Sequence[str] = ()) -> Kernel:
    """`kernel` (which is verified) with what is needed to run it on any sizes.

    Raises VerifyError for what is never inside, and for a division of sizes by what may be 0.  `places` as in `verify_kernel`.
    """
    places = places or [f"kernel {kernel.name}"] * (1 + len(kernel.blocks))
    least = _least_sizes(d for v in (*kernel.inputs, *kernel.outputs, *kernel.local) for d in v.type.shape)
    for v in (*kernel.inputs, *kernel.outputs, *kernel.local):
        _Proof(least, {}, places[0]).check_divisors(v.type.shape)
    blocks = tuple(_safe_block(b, kernel.buffers, least, place) for b, place in zip(kernel.blocks, places[1:], strict=True))
    counts = Counter(b.buffer for b in blocks)
    if all(counts[b.buffer] == 1 and _is_whole(b, kernel.buffers[b.buffer]) for b in blocks):
        return replace(kernel, blocks=tuple(map(_along_buffer, blocks)))
    return replace(kernel, blocks=blocks, pattern="opaque")


def refuse_outside(kernel: Kernel) -> None:
    """Raises VerifyError for an index that is outside whenever its loops run, whatever the sizes: at their first or last rounds.

    >>> from minirelax.ir.parse_loops import parse_kernel
    >>> refuse_outside(parse_kernel('''
    ... @kernel
    ... def next(x: f32[n], out: f32[n], *, n):
    ...     for i in range(n):
    ...         out[i] = x[i + 1]'''))
    Traceback (most recent call last):
    minirelax.errors.VerifyError: x[i + 1] is outside x: f32[n] where i = n - 1
      at kernel next
      hint: indices count from 0; ...
    """
    types = kernel.buffers
    least = _least_sizes(d for t in types.values() for d in t.shape)
    for block in kernel.blocks:
        axes = (*block.axes, *block.over)
        proof = _Proof(_least_sizes((a.extent - 1 for a in axes), least), {}, f"kernel {kernel.name}")
        extents = {a.name: a.extent for a in axes}
        for buffer, indices in ((block.buffer, block.indices), *_certain_reads(block)):
            what = f"{_access(buffer, indices)} is outside {buffer}: {types[buffer]}"
            for index, extent in zip(indices, types[buffer].shape, strict=True):
                if not isinstance(index, Scalar):
                    _refuse_at_corners(proof, index, extent, extents, what)


def _certain_reads(block: Block) -> Iterator[tuple[str, tuple[Index, ...]]]:
    """What each round of the block reads, whatever conditions say."""
    roots = (*(i for i in block.indices if isinstance(i, Scalar)), block.value)
    return ((s.buffer, s.indices) for s in walk(*roots, inside=certain) if isinstance(s, Load))


def _refuse_at_corners(proof: _Proof, index: Dim, extent: Dim, extents: dict[str, Dim], what: str) -> None:
    """Look at an index where each of its axes is at one of its ends: these are rounds that take place."""
    axes = sorted(names(index) & extents.keys())
    for ends in itertools.product(*((0, extents[a] - 1) for a in axes)):
        at = substitute(index, dict(zip(axes, ends, strict=True)))
        if proof.shows(-1 - at) or proof.shows(at - extent):
            corner = ", ".join(f"{a} = {end}" for a, end in zip(axes, ends, strict=True))
            raise VerifyError(f"{what} where {corner}" if corner else what, CLAMP, where=proof.place)


def _access(buffer: str, indices: tuple[Index, ...]) -> str:
    return f"{buffer}[{', '.join(map(str, indices))}]"


def _safe_block(block: Block, types: dict[str, Tensor], least: dict[str, int], place: str) -> Block:
    axes = (*block.axes, *block.over)
    inside = _Proof(_least_sizes((a.extent - 1 for a in axes), least), block.ranges, place)
    outside = _Proof(least, {}, place)
    outside.check_divisors(a.extent for a in axes)
    inside.check_divisors(block_dims(block))

    def checked(s: Scalar, known: Facts) -> Scalar:
        where = inside.under(known)
        return load(s.buffer, where.indices(s.buffer, s.indices, types[s.buffer]), s.dtype) if isinstance(s, Load) else s

    indices = tuple(transform_under(i, checked) if isinstance(i, Scalar) else i for i in block.indices)
    found = replace(
        block, value=transform_under(block.value, checked), indices=inside.indices(block.buffer, indices, types[block.buffer]),
        axes=tuple(map(outside.axis, block.axes)), over=tuple(map(outside.axis, block.over)))
    return _without_single_rounds(found)


class _Proof:
    """What is known at one place: sizes are at least `least`, axes within `ranges`, and `known` is not negative."""

    def __init__(self, least: dict[str, int], ranges, place: str):
        self.place, self.known = place, ()
        self.shift: dict[str, Dim] = {name: symbol(name) + low for name, low in least.items()}
        self.ranges = {a: (self._shifted(low), self._shifted(high)) for a, (low, high) in ranges.items()}

    def _shifted(self, d: Dim) -> Dim:
        return substitute(d, self.shift) if self.shift else d

    def under(self, known: Facts) -> _Proof:
        """The same place, where a condition tells more."""
        if not known:
            return self
        more = copy.copy(self)
        more.known = tuple(map(self._shifted, known))
        return more

    def shows(self, d: Dim) -> bool:
        """Can ``d >= 0`` be shown?"""
        return is_nonnegative(self._shifted(d), self.ranges, self.known)

    def check_divisors(self, dims) -> None:
        """VerifyError for a division by something that may be 0."""
        for d in dims:
            for a in atoms(d):
                if a.op in ("//", "%") and not self.shows(a.right - 1):
                    what, hint = f"{d} divides by {a.right}, which may be 0", f"divide by max({a.right}, 1)"
                    raise VerifyError(what, hint, where=self.place)

    def indices(self, buffer: str, indices: tuple[Index, ...], type_: Tensor) -> tuple[Index, ...]:
        """Indices that are inside their axes, or checked."""
        return tuple(self._index(buffer, indices, i, d, type_) for i, d in zip(indices, type_.shape, strict=True))

    def _index(self, buffer: str, indices: tuple[Index, ...], index: Index, extent: Dim, type_: Tensor) -> Index:
        limit = size_value(extent)
        if isinstance(index, Scalar):
            is_checked = isinstance(index, Apply) and index.function == CHECK and index.args[1] is limit
            return index if is_checked else apply(CHECK, index, limit, dtype="i64")
        if self.shows(index) and self.shows(extent - 1 - index):
            return index
        if self.shows(-1 - index) or self.shows(index - extent):
            raise VerifyError(f"{_access(buffer, indices)} is outside {buffer}: {type_}", CLAMP, where=self.place)
        return apply(CHECK, size_value(index), limit, dtype="i64")

    def axis(self, axis: Axis) -> Axis:
        """The axis with as many rounds, none where its extent is negative."""
        return axis if self.shows(axis.extent) else Axis(axis.name, maximum(axis.extent, 0))


def _least_sizes(dims: Iterator[Dim], known: dict[str, int] | None = None) -> dict[str, int]:
    """How large sizes must be at least for all `dims` to be >= 0, as far as single terms tell."""
    least = dict(known or {})
    for d in dims:
        for name, low in _bounds(d):
            least[name] = max(low, least.get(name, 0))
    return {name: low for name, low in least.items() if low > 0}


def _bounds(d: Dim) -> Iterator[tuple[str, int]]:
    """``c*n + k >= 0`` says ``n >= -k/c``; ``c*n*m - k >= 0`` with positive k says that both are at least 1."""
    if not isinstance(d, DimExpr):
        return
    rest = next((k for mono, k in d.terms if not mono), 0)
    factors = [(mono, k) for mono, k in d.terms if mono]
    if len(factors) == 1 and rest < 0 and factors[0][1] > 0:
        mono, k = factors[0]
        alone = len(mono) == 1 and isinstance(mono[0], str)
        yield from ((f, -(rest // k) if alone else 1) for f in mono if isinstance(f, str))


def _without_single_rounds(block: Block) -> Block:
    """`block` without the axes of one round, and its indices simplified."""
    zero = {a.name: 0 for a in (*block.axes, *block.over) if a.extent == 1}
    axes, over = (tuple(a for a in part if a.name not in zero) for part in (block.axes, block.over))
    value = substitute_axes(block.value, zero) if zero else block.value
    indices = tuple(substitute_index(i, zero) for i in block.indices) if zero else block.indices
    return Block(axes, block.buffer, indices, simplify_indices(value, block.ranges), over, block.reduction if over else None)


def _is_whole(block: Block, type_: Tensor) -> bool:
    """Does the block write each element of its buffer exactly once?"""
    extents = {a.name: a.extent for a in block.axes}
    bare = [(str(i), d) for i, d in zip(block.indices, type_.shape, strict=True) if d != 1]
    return sorted(name for name, _ in bare) == sorted(extents) and all(extents[name] == d for name, d in bare)


def _along_buffer(block: Block) -> Block:
    """A block that writes its buffer whole, with its loops in the order of the buffer's axes: their order has no meaning."""
    order = [str(i) for i in block.indices]
    return replace(block, axes=tuple(sorted(block.axes, key=lambda a: order.index(a.name))))



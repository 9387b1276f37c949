"""Compose the blocks of one kernel: put a producer's expression where its value is read, or leave it in a buffer.

A block without reduction that writes each element of a local buffer once is a definition: ``t[i, j] = e(i, j)``.  Reading
``t[a, b]`` is the same as evaluating ``e(a, b)``, so the read may be replaced and the buffer goes.  It pays where that
does not repeat work: when one block reads the value and has no more axes than it, or when the value is very cheap.  A
contraction copies its operand into panels before it uses each element many times, and evaluates it then; what is worth that
was decided by `fuse_ops`.  What only chooses which element to move is read again, too.  A reduction is never repeated.

Of a value that costs and its cheap copy in other places (a transpose) one is kept if there are several readers: the copy, since
it is where they are.

>>> from minirelax.ir.dim import symbol
>>> from minirelax.ir.loop import Axis
>>> from minirelax.ir.scalar import apply, literal, load
>>> i, n = symbol("i"), symbol("n")
>>> t = apply("exp", load("x", (i,), "f32"))
>>> out = apply("multiply", load("t", (i,), "f32"), literal(2.0, "f32"))
>>> blocks = inline_producers([Block((Axis("i", n),), "t", (i,), t), Block((Axis("i", n),), "out", (i,), out)], {"out"})
>>> [(b.buffer, str(b.value)) for b in blocks]
[('out', 'exp(x[i]) * 2.0')]
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from minirelax.ir.bounds import Facts
from minirelax.ir.dim import DimExpr, Ranges, atoms, is_nonnegative, names, symbol
from minirelax.ir.guards import holds, transform_under
from minirelax.ir.loop import Block, block_dims
from minirelax.ir.scalar import (
    COMPARISONS,
    LAZY,
    Apply,
    Index,
    Literal,
    Load,
    Scalar,
    SizeValue,
    is_choice,
    literal,
    load,
    loads,
    simplify_indices,
    substitute_axes,
    transform,
    walk,
)
from minirelax.passes.annotate_patterns import is_contraction

CHEAP = 1  # a value that costs no more is computed again rather than kept
LIGHT = {
    *COMPARISONS,
    "add",
    "subtract",
    "multiply",
    "negative",
    "absolute",
    "maximum",
    "minimum",
    "where",
    "if_else",
    "square",
    "logical_and",
    "logical_or",
    "logical_not",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "bitwise_invert",
    "positive",
}
_PLACES = {*COMPARISONS, "logical_and"}
HEAVY = 8  # a division or a transcendental, in light operations
ATOM = 2  # a // or % inside an index


def inline_producers(blocks: list[Block], kept: set[str]) -> list[Block]:
    """`blocks` after every replacement that pays; buffers in `kept` (the kernel's outputs) stay, unread others go.

    From last to first: when a producer is looked at, its readers have been composed already, so two readers that ended up
    in one expression count as one.
    """
    result: list[Block | None] = list(blocks)
    made = {b.buffer: b for b in blocks if b.buffer not in kept and is_definition(b)}
    reads = [_buffers_read(b) for b in blocks]
    writers = Counter(b.buffer for b in blocks)
    for at in range(len(blocks) - 1, -1, -1):
        producer = result[at]
        if producer.buffer in kept:
            continue
        readers = [r for r in range(len(blocks)) if r != at and result[r] is not None and producer.buffer in reads[r]]
        if not readers:
            result[at] = None
        elif (
            all(r > at for r in readers)
            and is_definition(producer)
            and all(writers[b] <= 1 for b in (producer.buffer, *reads[at]))
            and _pays(producer, [result[r] for r in readers])
            and not (len(readers) > 1 and _moves_what_costs(producer, made))
        ):
            for r in readers:
                result[r] = compose(result[r], producer)
                reads[r] = (reads[r] - {producer.buffer}) | reads[at]
            result[at] = None
    return [b for b in result if b is not None]


def is_definition(block: Block) -> bool:
    """Does the block, without reduction, write each element of its buffer once, at its own axes?"""
    bare = [i for i in block.indices if i != 0 or not isinstance(i, int)]
    return block.reduction is None and sorted(map(str, bare)) == sorted(a.name for a in block.axes)


def compose(consumer: Block, producer: Block) -> Block:
    """`consumer` with every read of the producer's buffer replaced by the producer's expression at that index."""
    positions = {a.name: next(p for p, i in enumerate(producer.indices) if i == symbol(a.name)) for a in producer.axes}
    ranges = consumer.ranges

    def replaced(s: Scalar) -> Scalar:
        if not (isinstance(s, Load) and s.buffer == producer.buffer):
            return s
        return substitute_axes(producer.value, {name: s.indices[p] for name, p in positions.items()}, ranges)

    indices = tuple(transform(i, replaced) if isinstance(i, Scalar) else i for i in consumer.indices)
    return replace(consumer, value=transform(consumer.value, replaced), indices=indices)


def store_directly(blocks: list[Block], outputs: set[str]) -> list[Block]:
    """Let a block write into an output what another block would only copy there, element by element."""
    result = list(blocks)
    for copy in blocks:
        match copy:
            case Block(reduction=None, buffer=target, value=Load(buffer=source, indices=read)) if (
                target in outputs and source not in outputs
            ):
                pass
            case _:
                continue
        writers = [b for b in result if b.buffer == source]
        others = [b for b in result if b is not copy and source in _buffers_read(b)]
        axes = tuple(symbol(a.name) for a in copy.axes)
        straight = (
            moving(read) == axes == moving(copy.indices)
            and len(writers) == 1
            and moving(writers[0].indices) == tuple(symbol(a.name) for a in writers[0].axes)
            and tuple(a.extent for a in writers[0].axes) == tuple(a.extent for a in copy.axes)
        )
        if straight and not others and sum(b.buffer == target for b in result) == 1:
            own = iter(writers[0].axes)
            indices = tuple(i if isinstance(i, int) else symbol(next(own).name) for i in copy.indices)
            result[result.index(writers[0])] = replace(writers[0], buffer=target, indices=indices)
            result.remove(copy)
    return result


def cost(value: Scalar) -> int:
    """Work per evaluation, in light operations; loads, casts and literals are free."""
    total = 0
    for s in walk(value):
        match s:
            case Apply(function="cast" | "check_index"):
                pass
            case Apply(function=function):
                total += 1 if function in LIGHT else HEAVY
            case Load(indices=indices):
                total += ATOM * sum(1 for i in indices if isinstance(i, DimExpr) for _ in atoms(i))
            case SizeValue(dim=d):
                total += ATOM * sum(1 for _ in atoms(d))
    return total


def is_light(value: Scalar) -> bool:
    """Is the value made with additions, multiplications, comparisons and the like alone, with no division or function?"""
    free = {*LIGHT, "cast", "check_index"}
    return all(s.function in free for s in walk(value) if isinstance(s, Apply))


def is_movement(value: Scalar) -> bool:
    """Is the value one element of one buffer, possibly converted?"""
    while isinstance(value, Apply) and value.function == "cast":
        value = value.args[0]
    return isinstance(value, Load) and all(not isinstance(i, Scalar) for i in value.indices)


def is_moved(value: Scalar) -> bool:
    """Is the value one element of one of several buffers, possibly converted, or a constant, chosen by where it is?"""
    while isinstance(value, Apply) and value.function == "cast":
        value = value.args[0]
    match value:
        case Apply(function=function, args=(condition, yes, no)) if function == LAZY:
            placed = all(not isinstance(s, Load) and getattr(s, "function", "less") in _PLACES for s in walk(condition))
            return placed and is_moved(yes) and is_moved(no)
    return isinstance(value, Literal) or is_movement(value)


def repeats(block: Block, read: Load) -> bool:
    """May `block` read the same element of the buffer more than once, at this place in its expression?"""
    axes = {a.name for a in (*block.axes, *block.over)}
    varying = moving(read.indices)
    return (
        any(isinstance(i, Scalar) for i in varying)
        or len(axes) > len(varying)
        or not axes <= frozenset().union(*map(names, varying))
    )


def moving(indices: tuple[Index, ...]) -> tuple[Index, ...]:
    """The indices that are not just 0, which is how an axis of one element is read and written."""
    return tuple(i for i in indices if not (isinstance(i, int) and i == 0))


def tidy(block: Block) -> Block:
    """`block` with its indices simplified under the ranges of its axes: polynomials, and the checks that are never needed."""
    ranges = block.ranges
    needed = any(isinstance(d, DimExpr) and any(True for _ in atoms(d)) for d in block_dims(block))
    value = simplify_indices(block.value, ranges) if needed else block.value
    if any(isinstance(s, SizeValue) for s in walk(value)):
        value = transform(value, lambda s: _decided(s, ranges))
    if _chooses(value):
        value = transform_under(value, lambda s, known: _chosen(s, ranges, known))
    return block if value is block.value else replace(block, value=value)


def _decided(s: Scalar, ranges: Ranges) -> Scalar:
    """`s` without the handling of indices that cannot occur: negative ones, or ones outside a check."""
    match s:
        case Apply(function="where", args=(Apply(function="less", args=(SizeValue(dim=d), Literal(value=0))), _, other)) if (
            is_nonnegative(d, ranges)
        ):
            return other
        case Apply(function="check_index", args=(SizeValue(dim=d) as index, extent)) if isinstance(extent, SizeValue | Literal):
            top = extent.dim if isinstance(extent, SizeValue) else extent.value
            return index if is_nonnegative(d, ranges) and is_nonnegative(top - 1 - d, ranges) else s
        case Load(indices=indices) if any(isinstance(i, SizeValue) for i in indices):
            return load(s.buffer, tuple(i.dim if isinstance(i, SizeValue) else i for i in indices), s.dtype)
    return s


def _chosen(s: Scalar, ranges: Ranges, known: Facts) -> Scalar:
    """`s` without comparisons of sizes that have one result here, and without choices that they decide."""
    match s:
        case Apply(function="logical_and", args=(Literal(value=is_true), other)) | Apply(
            function="logical_and", args=(other, Literal(value=is_true))
        ) if other.dtype == "bool":
            return other if is_true else literal(False, "bool")
        case Apply(function=function, args=(Literal(value=is_true), yes, no)) if function == LAZY:
            return yes if is_true else no
        case Apply(function=function, args=(a, _)) if function in COMPARISONS and a.dtype == "i64":
            answer = holds(s, ranges, known)
            return s if answer is None else literal(answer, "bool")
    return s


def _chooses(value: Scalar) -> bool:
    return any(map(is_choice, walk(value)))


def _pays(producer: Block, readers: list[Block]) -> bool:
    if cost(producer.value) <= CHEAP:
        return True
    if is_moved(producer.value) and (_chooses(producer.value) or all(map(is_contraction, readers))):
        return True
    if len(readers) > 1:
        return False
    places = [
        s
        for s in loads(*(i for i in readers[0].indices if isinstance(i, Scalar)), readers[0].value)
        if s.buffer == producer.buffer
    ]
    return len(places) == 1 and (is_contraction(readers[0]) or not repeats(readers[0], places[0]))


def _moves_what_costs(copy: Block, made: dict[str, Block]) -> bool:
    """Does the block read a value that costs, made in this kernel, at other places than it writes, and each element once?"""
    moved = [s for s in copy.loads if s.buffer in made and moving(s.indices) != moving(copy.indices)]
    return any(_costs(made[s.buffer], made) for s in moved if not repeats(copy, s))


def _costs(block: Block, made: dict[str, Block]) -> bool:
    """Is the value, with all that it is made of, worth more than to be computed again?"""
    seen, total, stack = {block.buffer}, 0, [block]
    while stack and total <= CHEAP:
        at = stack.pop()
        total += cost(at.value)
        more = _buffers_read(at) & made.keys() - seen
        seen |= more
        stack += [made[buffer] for buffer in more]
    return total > CHEAP


def _buffers_read(block: Block) -> frozenset[str]:
    return frozenset(s.buffer for s in block.loads)

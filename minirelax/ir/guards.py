"""What holds where a side of ``a if condition else b`` is evaluated, as sizes that are not negative there.

>>> from minirelax.ir.dim import symbol
>>> from minirelax.ir.scalar import apply, literal, size_value
>>> inside = apply("less", size_value(symbol("i")), size_value(symbol("n")))
>>> facts(inside, True), facts(inside, False)
((-i + n - 1,), (i - n,))
"""
from __future__ import annotations

from collections.abc import Callable

from minirelax.ir.bounds import Facts, Ranges, is_nonnegative
from minirelax.ir.dim import Dim, names
from minirelax.ir.scalar import LAZY, Apply, Literal, Load, Scalar, SizeValue, apply, certain, children, load, walk

_NEGATED = {"less": "greater_equal", "less_equal": "greater", "greater": "less_equal", "greater_equal": "less"}


def facts(condition: Scalar, is_true: bool) -> Facts:
    """Sizes that are >= 0 where the condition is true, or where it is false; only what comparisons of sizes tell."""
    match condition:
        case Apply(function="logical_not", args=(inner,)):
            return facts(inner, not is_true)
        case Apply(function="logical_and", args=(a, b)):
            return (*facts(a, True), *facts(b, True)) if is_true else ()
        case Apply(function="logical_or", args=(a, b)):
            return () if is_true else (*facts(a, False), *facts(b, False))
        case Apply(function=name, args=(a, b)) if a.dtype == "i64" and name in (*_NEGATED, "equal", "not_equal"):
            x, y = _size(a), _size(b)
            return () if x is None or y is None else _compared(name if is_true else _NEGATED.get(name, name), x, y, is_true)
    return ()


def holds(condition: Scalar, ranges: Ranges, known: Facts) -> bool | None:
    """What the condition is wherever names are in their ranges and `known` is not negative; None if that cannot be shown."""
    for answer in (True, False):
        needed = facts(condition, answer)
        if needed and all(is_nonnegative(d, ranges, _about(d, known)) for d in needed):
            return answer
    return None


def _about(d: Dim, known: Facts) -> Facts:
    """The facts that mention a name of `d`: others only make the search for a proof longer."""
    return tuple(f for f in known if names(f) & names(d))


def _compared(name: str, x: Dim, y: Dim, is_true: bool) -> Facts:
    match name:
        case "less":
            return (y - x - 1,)
        case "less_equal":
            return (y - x,)
        case "greater":
            return (x - y - 1,)
        case "greater_equal":
            return (x - y,)
    return (x - y, y - x) if (name == "equal") == is_true else ()


def _size(s: Scalar) -> Dim | None:
    return s.dim if isinstance(s, SizeValue) else s.value if isinstance(s, Literal) else None


def transform_under(root: Scalar, fn: Callable[[Scalar, Facts], Scalar], known: Facts = ()) -> Scalar:
    """Rebuild `root`, where `fn` maps every rebuilt node with what holds there: one scalar may become several."""
    done: dict[int, Scalar] = {}
    for node in walk(root, inside=certain):
        new = node
        match node:
            case Apply(function=function, args=(condition, yes, no)) if function == LAZY:
                now = done[id(condition)]
                new = apply(LAZY, now, *(transform_under(side, fn, (*known, *facts(now, chosen)))
                                         for side, chosen in ((yes, True), (no, False))), dtype=node.dtype)
            case Apply(function=function, args=args):
                new = apply(function, *(done[id(a)] for a in args), dtype=node.dtype)
            case Load(buffer=buffer, indices=indices) if children(node):
                new = load(buffer, tuple(done[id(i)] if isinstance(i, Scalar) else i for i in indices), node.dtype)
        done[id(node)] = fn(new, known)
    return done[id(root)]

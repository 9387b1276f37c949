"""The order of types: least upper bounds, how well a value fits, what a call's result is.

Types form a lattice with `Object` at the top.  A type is finer where it knows more: ``f32[4]`` < ``f32[_]`` < ``f32[...]`` <
``Tensor[...]`` < ``Object``.  Branches that meet have the `join` of their types; a value given where a type is wanted fits
with one of four answers (`Compatibility`); a call's result follows from the signature alone (`derive_result`): a size that stands
alone in a parameter takes the argument's size, the result is written in those sizes, and what mentions any other is dropped.
No equation is solved: ``f32[n + 1]`` never tells what ``n`` is (Lai et al., "Relax", ASPLOS 2025, section 4.1).

>>> from minirelax.ir.reader import parse_type as t
>>> join(t("f32[n, 4]"), t("f32[n, 8]")), join(t("f32[n]"), t("f32[n, 4]")), join(t("f32[n]"), t("i64[n]"))
(f32[n, _], f32[...], Tensor[n])
>>> unique, wanted = t("f32[_]"), t("f32[m]")        # the result of unique: a match_cast to f32[m] is checked at run time
>>> compatibility(wanted, unique).name, compatibility(wanted, t("f32[m, 1]")).name, compatibility(wanted, t("Object")).name
('UNPROVEN', 'DISJOINT', 'MISMATCH')
>>> subfn = t("Callable[[Shape([n, m])], f32[n*m]]")
>>> for s in "Shape([a, 4])", "Shape([3, 4])", "Shape(ndim=2)":
...     print(derive_result(subfn, [t(s)]))
f32[4*a]
f32[12]
f32[_]
>>> fused = t("Callable[[f32[2*n], f32[2*n], Shape([n])], f32[2*n]]")       # the third parameter is there to say what n is
>>> derive_result(fused, [t("f32[2*k]"), t("f32[2*k]"), t("Shape([k])")])
f32[2*k]
"""
from __future__ import annotations

import functools
from collections.abc import Callable as Function
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum

from minirelax.errors import ShapeError, VerifyError
from minirelax.ir.dim import Dim, DimExpr, is_nonnegative, names, substitute, symbol
from minirelax.ir.types import Callable, Object, Shape, Storage, Tensor, Tuple, Type, substitute_type, symbols


class Compatibility(IntEnum):
    """How a value of one type fits where another is wanted; of several parts, the worst counts.

    DISJOINT: no value has both types.  MISMATCH: it may fit, but less is known (the kind, rank or dtype) than the wanted type
    needs; a match_cast must say it.  UNPROVEN: all but the sizes is right, and those are left to the check at run time.
    PASS: every value of the given type has the wanted one.
    """

    DISJOINT = 0
    MISMATCH = 1
    UNPROVEN = 2
    PASS = 3


DISJOINT, MISMATCH, UNPROVEN, PASS = Compatibility


def join(a: Type, b: Type) -> Type:
    """The least type above both: equal sizes stay, others become ``_``; other ranks, dtypes and kinds are forgotten.

    Signatures with the same parameters, but for the names of their own sizes, have their results joined, and the names that come
    first in the alphabet.  Other parameters are forgotten: ``Callable[..., result]``, and the result's sizes with them, since no
    parameter binds them.

    >>> from minirelax.ir.reader import parse_type as t
    >>> join(t("Callable[[f32[n], f32[m]], f32[n]]"), t("Callable[[f32[a], f32[b]], f32[b]]"))
    Callable[[f32[a], f32[b]], f32[_]]
    >>> join(t("Callable[[f32[n]], f32[n, 4]]"), t("Callable[[f32[4]], f32[4, 4]]"))
    Callable[..., f32[_, 4]]
    """
    if a == b:
        return a
    match a, b:
        case Tensor(), Tensor():
            shape = None if a.ndim is None or a.ndim != b.ndim else tuple(
                p if p == q else None for p, q in zip(a.shape, b.shape, strict=True))
            return Tensor(a.dtype if a.dtype == b.dtype else None, shape)
        case Shape(), Shape():
            return Shape(ndim=a.ndim if a.ndim == b.ndim else None)
        case Tuple(), Tuple() if len(a.items) == len(b.items):
            return Tuple(tuple(map(join, a.items, b.items)))
        case Callable(), Callable():
            return _join_signatures(a, b)
    return Object()


def compatibility(wanted: Type, given: Type) -> Compatibility:
    """How a value of type `given` fits where `wanted` is, both in the sizes of one function: equal names are equal sizes.

    A function is called as the wanted signature says and checks its own arguments: parameters that differ in more than names
    are DISJOINT if no such call can succeed, else UNPROVEN.
    """
    return PASS if wanted == given else _fit(wanted, given, lambda d: d)


def bind(wanted: Type, given: Type, sizes: dict[str, Dim]) -> Compatibility:
    """How `given` (in a caller's sizes) fits a parameter `wanted` (in the callee's), with what the callee's sizes are.

    A size that stands alone in `wanted` takes what `given` has there, if `sizes` does not have it yet: `sizes` gains it.  A
    compound size binds nothing and is compared last.  The signatures of functions among the values bind nothing.
    """
    for name, d in _bindings(wanted, given):
        sizes.setdefault(name, d)
    return _fit(wanted, given, functools.partial(_known_size, sizes))


def erase(type_: Type, known: Mapping[str, Dim]) -> Type:
    """`type_` outside the scope of its sizes: the `known` ones replaced, and what mentions another one left out.

    >>> from minirelax.ir.reader import parse_type as t
    >>> erase(t("Tuple[f32[n, m + n], Shape([n, m])]"), {"n": 3})
    Tuple[f32[3, _], Shape(ndim=2)]
    """
    match type_:
        case Tensor(dtype=dtype, shape=shape) if shape is not None:
            return Tensor(dtype, tuple(None if d is None else _known_size(known, d) for d in shape))
        case Shape(values=values) if values is not None:
            return substitute_type(type_, known) if symbols(type_) <= known.keys() else Shape(ndim=len(values))
        case Tuple(items=items):
            return Tuple(tuple(erase(t, known) for t in items))
        case Storage(bytes=size):
            return Storage(substitute(size, known)) if names(size) <= known.keys() else Object()
    return type_


def derive_result(signature: Callable, args: Sequence[Type], name: str = "the function", parameters: Sequence[str] = ()) -> Type:
    """The type of a call's result, from the signature and the arguments' types.

    `name` and `parameters` are for errors: VerifyError for a wrong number of arguments, ShapeError for one that is DISJOINT
    from its parameter or a MISMATCH.  What is UNPROVEN is left to the check at the callee's entry.
    """
    if signature.params is None:
        return erase(signature.result, {})
    return erase(signature.result, bind_arguments(signature, args, name, parameters)[0])


def bind_arguments(signature: Callable, args: Sequence[Type], name: str = "the function", parameters: Sequence[str] = ()
                   ) -> tuple[dict[str, Dim], Compatibility]:
    """What the signature's sizes are at a call, and the worst of how the arguments fit.  Raises as `derive_result` does."""
    if len(signature.params) != len(args):
        raise VerifyError(f"{name} takes {len(signature.params)} values, {len(args)} are given", where="")
    sizes: dict[str, Dim] = {}
    for param, arg in zip(signature.params, args, strict=True):
        for n, d in _bindings(param, arg):
            sizes.setdefault(n, d)
    worst = PASS
    for i, (param, arg) in enumerate(zip(signature.params, args, strict=True)):
        fit = _fit(param, arg, functools.partial(_known_size, sizes))
        if fit <= MISMATCH:
            raise _argument_error(fit, signature, args, i, name, parameters[i] if parameters else f"argument {i}")
        worst = min(worst, fit)
    return sizes, worst


def _argument_error(fit: Compatibility, signature: Callable, args: Sequence[Type], at: int, name: str, parameter: str
                    ) -> ShapeError:
    """Says the expected type in the sizes that the other arguments show."""
    param, sizes = signature.params[at], {}
    for i, (p, a) in enumerate(zip(signature.params, args, strict=True)):
        sizes = {**dict(_bindings(p, a)), **sizes} if i != at else sizes
    expected = substitute_type(param, sizes)
    shown = ", ".join(f"{n} = {sizes[n]}" for n in sorted(symbols(param) & sizes.keys()))
    declared = f" ({param} with {shown})" if expected != param else ""
    hint = f"less is known of it: insert match_cast to {expected}" if fit is MISMATCH else "no value has both types"
    return ShapeError(f"{name} expects {expected} as {parameter}{declared}, not {args[at]}", hint, where="")


def _known_size(sizes: Mapping[str, Dim], d: Dim) -> Dim | None:
    return substitute(d, sizes) if names(d) <= sizes.keys() else None


def _fit(wanted: Type, given: Type, at: Function[[Dim], Dim | None]) -> Compatibility:
    """`at` says what a size of `wanted` is in the names of `given`, or None if that is unknown."""
    match wanted, given:
        case Object(), _:
            return PASS
        case _, Object():
            return MISMATCH
        case Tensor(), Tensor():
            dtype = PASS if wanted.dtype in (None, given.dtype) else MISMATCH if given.dtype is None else DISJOINT
            return min(dtype, _fit_sizes(wanted.ndim, wanted.shape, given.ndim, given.shape, at))
        case Shape(), Shape():
            return _fit_sizes(wanted.ndim, wanted.values, given.ndim, given.values, at)
        case Tuple(), Tuple() if len(wanted.items) == len(given.items):
            return min((_fit(w, g, at) for w, g in zip(wanted.items, given.items, strict=True)), default=PASS)
        case Storage(), Storage():
            return _fit_size(wanted.bytes, given.bytes, at)
        case Callable(), Callable():
            return _fit_signature(wanted, given)
    return DISJOINT


def _fit_sizes(wanted_ndim, wanted, given_ndim, given, at) -> Compatibility:
    if wanted_ndim is None:
        return PASS
    if given_ndim != wanted_ndim:
        return MISMATCH if given_ndim is None else DISJOINT
    if wanted is None or not wanted_ndim:
        return PASS
    if given is None:
        return UNPROVEN
    return min(_fit_size(w, g, at) for w, g in zip(wanted, given, strict=True))


def _fit_size(wanted: Dim | None, given: Dim | None, at: Function[[Dim], Dim | None]) -> Compatibility:
    if wanted is None:
        return PASS
    if given is None or (expected := at(wanted)) is None:
        return UNPROVEN
    if expected == given:
        return PASS
    return DISJOINT if is_nonnegative(expected - given - 1) or is_nonnegative(given - expected - 1) else UNPROVEN


def _fit_signature(wanted: Callable, given: Callable) -> Compatibility:
    """How well a function with the signature `given` can be called as `wanted` says; the sizes of `wanted` may be any."""
    if wanted.params is None or given.params is None:
        return min(PASS if wanted.params is None else MISMATCH, compatibility(erase(wanted.result, {}), erase(given.result, {})))
    if len(wanted.params) != len(given.params):
        return DISJOINT
    fit, sizes = PASS, {}
    if _same_params(wanted, given):
        sizes = _renaming(given, wanted)
    else:
        fit = UNPROVEN if bind(Tuple(given.params), Tuple(wanted.params), sizes) else DISJOINT
    return min(fit, compatibility(erase(wanted.result, _renaming(wanted, wanted)), erase(given.result, sizes)))


def _join_signatures(a: Callable, b: Callable) -> Callable:
    if not _same_params(a, b):
        return Callable(None, join(erase(a.result, {}), erase(b.result, {})))
    first = min(a, b, key=_params_text)
    return Callable(first.params, join(*(erase(c.result, _renaming(c, first)) for c in (a, b))))


def _params_text(c: Callable) -> str:
    return "..." if c.params is None else str(Tuple(c.params))


def _same_params(a: Callable, b: Callable) -> bool:
    """Are the parameters the same but for the names of sizes?"""
    if a.params is None or b.params is None:
        return a.params is b.params
    return _canonical(Callable(a.params, Object())) == _canonical(Callable(b.params, Object()))


def _renaming(c: Callable, to: Callable) -> dict[str, Dim]:
    """What the sizes in the parameters of `c` are called in `to`, whose parameters are the same but for names."""
    return dict(zip(_own_names(c.params or ()), map(symbol, _own_names(to.params or ())), strict=True))


@functools.lru_cache(4096)
def _canonical(type_: Type) -> Type:
    """`type_` with the sizes of every signature renamed in their order: signatures that differ only in names become equal."""
    match type_:
        case Tuple(items=items):
            return Tuple(tuple(map(_canonical, items)))
        case Callable(params=params, result=result):
            whole = Tuple((*(params or ()), result))
            number = {n: symbol(f"#{i:06}") for i, n in enumerate(_own_names(whole.items))}
            *inside, result = _canonical(substitute_type(whole, number)).items
            return Callable(None if params is None else tuple(inside), result)
    return type_


def _own_names(types: Sequence[Type]) -> tuple[str, ...]:
    """The sizes that a signature's types mention: first those that stand alone, then those only found in compound ones.

    Within one compound size names have no order but the alphabet's, so two signatures that differ only there in the names of
    sizes that never stand alone may count as different.
    """
    alone = (n for d in _dims(types) if (n := bare_name(d)))
    return tuple(dict.fromkeys((*alone, *(n for d in _dims(types) for n in sorted(names(d))))))


def bare_name(d: Dim | None) -> str | None:
    """The name, if the size is nothing but a name.

    >>> from minirelax.ir.dim import dim
    >>> bare_name(dim("n")), bare_name(dim("n + 1")), bare_name(4)
    ('n', None, None)
    """
    match d:
        case DimExpr(terms=(((str(name),), 1),)):
            return name
    return None


def _dims(types: Sequence[Type]) -> Iterator[Dim]:
    for type_ in types:
        match type_:
            case Tensor(shape=dims) | Shape(values=dims) if dims is not None:
                yield from (d for d in dims if d is not None)
            case Tuple(items=items):
                yield from _dims(items)
            case Storage(bytes=size):
                yield size


def _bindings(wanted: Type, given: Type) -> Iterator[tuple[str, Dim]]:
    """Sizes that stand alone in `wanted`, with what `given` has in their places."""
    match wanted, given:
        case (Tensor(shape=dims), Tensor(shape=actual)) | (Shape(values=dims), Shape(values=actual)) if dims and actual:
            if len(dims) == len(actual):
                yield from ((n, a) for d, a in zip(dims, actual, strict=True) if a is not None and (n := bare_name(d)))
        case Tuple(items=items), Tuple(items=actual) if len(items) == len(actual):
            for w, g in zip(items, actual, strict=True):
                yield from _bindings(w, g)

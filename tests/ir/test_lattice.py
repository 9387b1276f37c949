"""The order of types: laws of join, compatibility and erasure on drawn types; tables of cases; results of calls."""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirelax.errors import ShapeError, VerifyError
from minirelax.ir.dim import dim, symbol
from minirelax.ir.lattice import (
    Compatibility,
    bare_name,
    bind,
    bind_arguments,
    compatibility,
    derive_result,
    erase,
    join,
)
from minirelax.ir.reader import parse_type
from minirelax.ir.types import Callable, Object, Shape, Tensor, f32, symbols
from tests.types_drawn import SIGNATURES, TYPES, coarser

DISJOINT, MISMATCH, UNPROVEN, PASS = Compatibility
FAST = settings(max_examples=100, deadline=None)
RENAMED = {"n": dim("j"), "m": dim("k")}


@FAST
@given(TYPES, TYPES)
def test_join_is_commutative_idempotent_and_above_both(a, b):
    both = join(a, b)
    assert both == join(b, a) and join(a, a) == a and join(both, a) == join(a, both)
    assert compatibility(both, a) is compatibility(both, b) is PASS


@FAST
@given(TYPES, TYPES, TYPES)
def test_join_is_associative(a, b, c):
    assert join(join(a, b), c) == join(a, join(b, c))


@FAST
@given(st.data(), TYPES)
def test_related_types_obey_the_laws_too(data, top):
    """Independent draws are often joined to Object: here all three have an ancestor."""
    a, b, c = (data.draw(coarser(top)) for _ in range(3))
    assert join(join(a, b), c) == join(a, join(b, c)) and join(a, b) == join(b, a)
    for low, high in ((a, join(a, b)), (top, a), (top, join(join(a, b), c))):
        assert compatibility(high, low) is PASS


@FAST
@given(st.data(), TYPES, TYPES)
def test_join_is_the_least_type_above_both(data, a, b):
    """Whatever is above both, drawn from what is above the first, is above their join."""
    above = data.draw(coarser(a))
    if compatibility(above, b) is PASS:
        assert compatibility(above, join(a, b)) is PASS


@FAST
@given(TYPES, TYPES)
def test_equally_compatible_both_ways_is_equally_joined(a, b):
    """PASS is an order: two types above one another are one type, spelled in one or more ways."""
    if compatibility(a, b) is compatibility(b, a) is PASS:
        assert compatibility(a, join(a, b)) is compatibility(b, join(a, b)) is PASS


@FAST
@given(st.data(), TYPES, TYPES)
def test_compatibility_is_monotone(data, wanted, given_):
    """A value of a finer type still fits; what is wanted less precisely is fitted at least as well."""
    fit = compatibility(wanted, given_)
    assert compatibility(data.draw(coarser(wanted)), given_) >= fit
    if compatibility(wanted, data.draw(coarser(given_))) is PASS:
        assert fit is PASS
    assert compatibility(given_, given_) is PASS and compatibility(Object(), given_) is PASS


@FAST
@given(st.data(), TYPES)
def test_coarser_given_types_are_never_disjoint(data, a):
    """A value of type `a` may be behind every type above it, so none of those can be refused as impossible."""
    assert compatibility(a, data.draw(coarser(a))) is not DISJOINT


@FAST
@given(TYPES, st.sets(st.sampled_from("nm")))
def test_erase_is_above_and_names_nothing_unknown(type_, known):
    outside = erase(type_, {n: symbol(n) for n in known})
    assert compatibility(outside, type_) is PASS and symbols(outside) <= known
    assert erase(type_, {n: symbol(n) for n in symbols(type_)}) == type_
    assert erase(outside, {}) == erase(type_, {})


@FAST
@given(TYPES, TYPES)
def test_erasing_and_joining_commute(a, b):
    assert compatibility(join(erase(a, {}), erase(b, {})), erase(join(a, b), {})) is PASS


@FAST
@given(SIGNATURES)
def test_a_call_with_the_parameters_types_has_the_result_type(signature):
    bound, fit = bind_arguments(signature, signature.params)
    assert all(d == symbol(n) for n, d in bound.items())
    assert derive_result(signature, signature.params) == erase(signature.result, bound)
    renamed = Callable(tuple(erase(p, RENAMED) for p in signature.params), signature.result)
    assert fit in (UNPROVEN, PASS) and bind_arguments(signature, renamed.params)[1] is fit


@FAST
@given(SIGNATURES, st.data())
def test_a_call_with_coarser_arguments_is_refused_or_has_a_coarser_result(signature, data):
    args = [data.draw(coarser(p)) for p in signature.params]
    try:
        result = derive_result(signature, args)
    except ShapeError as error:
        assert "insert match_cast" in error.hint            # less is known, but nothing contradicts
    else:
        assert compatibility(result, derive_result(signature, signature.params)) is PASS


@pytest.mark.parametrize("a, b, both", [
    ("f32[n, 4]", "f32[n, 4]", "f32[n, 4]"), ("f32[n, 4]", "f32[m, 4]", "f32[_, 4]"), ("f32[2*n]", "f32[n + n]", "f32[2*n]"),
    ("f32[n]", "f32[n, 4]", "f32[...]"), ("f32[n]", "f32[...]", "f32[...]"), ("f32[n]", "i64[n]", "Tensor[n]"),
    ("f32[n]", "i64[m, 4]", "Tensor[...]"), ("f32[()]", "f32[()]", "f32[()]"), ("f32[n]", "Shape([n])", "Object"),
    ("Shape([n, 4])", "Shape([n, 4])", "Shape([n, 4])"), ("Shape([n, 4])", "Shape([n, 3])", "Shape(ndim=2)"),
    ("Shape([n])", "Shape(ndim=2)", "Shape()"), ("Shape([n])", "Shape()", "Shape()"),
    ("Tuple[f32[n], f32[4]]", "Tuple[f32[n], f32[3]]", "Tuple[f32[n], f32[_]]"), ("Tuple[f32[n]]", "Tuple[()]", "Object"),
    ("Storage[n]", "Storage[n]", "Storage[n]"), ("Storage[n]", "Storage[m]", "Object"),
    ("Callable[[f32[n]], f32[n]]", "Callable[[f32[m]], f32[m]]", "Callable[[f32[m]], f32[m]]"),
    ("Callable[[f32[n]], f32[n]]", "Callable[[f32[m]], f32[2*m]]", "Callable[[f32[m]], f32[_]]"),
    ("Callable[[f32[n]], f32[4]]", "Callable[[f32[n, m]], f32[4]]", "Callable[..., f32[4]]"),
    ("Callable[[f32[n]], f32[n]]", "Callable[[f32[n], f32[m]], f32[n]]", "Callable[..., f32[_]]"),
    ("Callable[[f32[n]], f32[n]]", "Callable[..., f32[4]]", "Callable[..., f32[_]]"),
    ("Callable[[f32[n]], f32[n]]", "Callable[..., Object]", "Callable[..., Object]")])
def test_join(a, b, both):
    assert str(join(parse_type(a), parse_type(b))) == str(join(parse_type(b), parse_type(a))) == both


@pytest.mark.parametrize("wanted, given_, fit", [
    ("f32[n, m]", "f32[n, m, 4]", DISJOINT), ("f32[3]", "f32[4]", DISJOINT), ("f32[n]", "f32[n + 1]", DISJOINT),
    ("f32[n]", "f32[n + m + 1]", DISJOINT), ("f32[4]", "i64[4]", DISJOINT), ("f32[n]", "Shape([n])", DISJOINT),
    ("f32[n]", "Tuple[f32[n]]", DISJOINT), ("Tuple[f32[n]]", "Tuple[f32[n], f32[n]]", DISJOINT),
    ("Shape([3])", "Shape([4])", DISJOINT), ("Shape(ndim=2)", "Shape([n])", DISJOINT), ("Shape([n])", "Shape(ndim=2)", DISJOINT),
    ("f32[n]", "Object", MISMATCH), ("f32[_]", "Object", MISMATCH), ("f32[n]", "f32[...]", MISMATCH),
    ("f32[_]", "f32[...]", MISMATCH), ("f32[n]", "Tensor[n]", MISMATCH), ("Shape([n])", "Shape()", MISMATCH),
    ("Shape(ndim=2)", "Shape()", MISMATCH), ("Tuple[f32[n], Object]", "Tuple[Object, f32[n]]", MISMATCH),
    ("Tuple[f32[3], f32[n]]", "Tuple[f32[4], Object]", DISJOINT),        # of several parts the worst counts
    ("f32[3]", "Tensor[4]", DISJOINT), ("f32[n]", "f32[_]", UNPROVEN), ("f32[n]", "f32[m]", UNPROVEN),
    ("f32[4]", "f32[n]", UNPROVEN), ("f32[2*n]", "f32[m]", UNPROVEN), ("f32[n, 4]", "f32[_, 4]", UNPROVEN),
    ("f32[n, n]", "f32[n, n + m]", UNPROVEN), ("Shape([n, m])", "Shape(ndim=2)", UNPROVEN),
    ("Shape([n])", "Shape([4])", UNPROVEN),
    ("Storage[n]", "Storage[m]", UNPROVEN), ("Shape([])", "Shape(ndim=0)", PASS),
    ("Object", "Callable[..., Object]", PASS), ("Tensor[...]", "f32[n]", PASS), ("f32[...]", "f32[_, 4]", PASS),
    ("f32[_]", "f32[n]", PASS), ("f32[2*n]", "f32[n + n]", PASS), ("Shape()", "Shape([n])", PASS)])
def test_compatibility(wanted, given_, fit):
    assert compatibility(parse_type(wanted), parse_type(given_)) is fit


@pytest.mark.parametrize("wanted, given_, fit", [
    ("[[f32[n]], f32[2*n]]", "[[f32[m]], f32[2*m]]", PASS),                    # names of a signature are its own
    ("[[f32[n + 1], Shape([n])], f32[n]]", "[[f32[m + 1], Shape([m])], f32[m]]", PASS),
    ("[[f32[n]], f32[m]]", "[[f32[j]], f32[k]]", PASS),                           # no parameter binds m: it may be anything
    ("[[f32[n]], f32[n]]", "[[f32[m]], f32[m + 1]]", DISJOINT), ("[[f32[n]], f32[n]]", "[[f32[m]], f32[4]]", UNPROVEN),
    ("[[f32[n]], f32[_]]", "[[f32[n]], f32[n]]", PASS), ("[[f32[n]], f32[n]]", "[[f32[n]], f32[_]]", UNPROVEN),
    ("[[f32[4]], f32[4]]", "[[f32[n]], f32[n]]", UNPROVEN), ("[[f32[n]], f32[n]]", "[[f32[4]], f32[4]]", UNPROVEN),
    ("[[f32[4]], f32[4]]", "[[f32[n]], f32[n + 1]]", DISJOINT), ("[[f32[4]], Object]", "[[f32[3]], Object]", DISJOINT),
    ("[[Object], Object]", "[[f32[n]], Object]", UNPROVEN),                    # it checks its argument itself
    ("[[f32[n]], f32[n]]", "[[f32[n]], Object]", MISMATCH), ("[[f32[n]], f32[n]]", "[[], f32[4]]", DISJOINT),
    ("[..., Object]", "[[f32[n]], f32[n]]", PASS), ("[..., f32[_]]", "[[f32[n]], f32[n]]", PASS),
    ("[..., f32[4]]", "[[f32[n]], f32[n]]", UNPROVEN), ("[[f32[n]], f32[_]]", "[..., f32[_]]", MISMATCH),
    ("[[Callable[[f32[n]], f32[n]]], Object]", "[[Callable[[f32[m]], f32[m]]], Object]", PASS),
    ("[[Callable[[f32[n]], f32[n]], f32[n]], f32[n]]", "[[Callable[[f32[j]], f32[j]], f32[m]], f32[m]]", PASS)])
def test_compatibility_of_signatures(wanted, given_, fit):
    assert compatibility(parse_type(f"Callable{wanted}"), parse_type(f"Callable{given_}")) is fit


@pytest.mark.parametrize("wanted, given_, known, fit, bound", [
    ("f32[n, m]", "f32[a, 4]", {}, PASS, {"n": "a", "m": "4"}), ("f32[n, n]", "f32[a, b]", {}, UNPROVEN, {"n": "a"}),
    ("f32[n, n]", "f32[3, 4]", {}, DISJOINT, {"n": "3"}), ("f32[n]", "f32[b]", {"n": "a"}, UNPROVEN, {"n": "a"}),
    ("f32[n + 1]", "f32[a]", {}, UNPROVEN, {}), ("f32[n + 1]", "f32[a + 1]", {"n": "a"}, PASS, {"n": "a"}),
    ("f32[n + 1]", "f32[n + 1]", {}, UNPROVEN, {}),                                # the same letters, in two functions
    ("Tuple[f32[2*n], Shape([n])]", "Tuple[f32[6], Shape([3])]", {}, PASS, {"n": "3"}),
    ("f32[n, 4]", "f32[_, 4]", {}, UNPROVEN, {}), ("f32[n, n]", "f32[_, a]", {}, UNPROVEN, {"n": "a"}),
    ("Shape([n, m])", "Shape(ndim=2)", {}, UNPROVEN, {}), ("f32[n]", "Object", {}, MISMATCH, {}),
    ("f32[n]", "f32[a, b]", {}, DISJOINT, {}),
    ("Callable[[f32[n]], f32[n]]", "Callable[[f32[4]], f32[4]]", {}, UNPROVEN, {}),        # nothing is captured
    ("Tuple[Callable[[f32[n]], f32[n]], f32[n]]", "Tuple[Callable[[f32[m]], f32[m]], f32[4]]", {}, PASS, {"n": "4"})])
def test_bind(wanted, given_, known, fit, bound):
    sizes = {n: dim(d) for n, d in known.items()}
    assert bind(parse_type(wanted), parse_type(given_), sizes) is fit
    assert {n: str(d) for n, d in sizes.items()} == bound


SUBFN = parse_type("Callable[[Shape([n, m])], f32[n*m]]")                  # worked example B
FUSED = parse_type("Callable[[f32[2*n], f32[2*n], Shape([n])], f32[2*n]]")                 # worked example C
LAYER = Callable([f32["n", 4], f32[4, "m"]], f32["n", "m"])


@pytest.mark.parametrize("signature, args, result", [
    (SUBFN, ["Shape([a, 4])"], "f32[4*a]"), (SUBFN, ["Shape([3, 4])"], "f32[12]"), (SUBFN, ["Shape(ndim=2)"], "f32[_]"),
    (FUSED, ["f32[2*n]", "f32[2*n]", "Shape([n])"], "f32[2*n]"), (FUSED, ["f32[a]", "f32[a]", "Shape([n])"], "f32[2*n]"),
    (FUSED, ["f32[6]", "f32[6]", "Shape([3])"], "f32[6]"), (FUSED, ["f32[6]", "f32[6]", "Shape(ndim=1)"], "f32[_]"),
    (LAYER, ["f32[m, 4]", "f32[4, n]"], "f32[m, n]"),                   # the caller's names, all replaced at once
    (LAYER, ["f32[_, 4]", "f32[4, 2]"], "f32[_, 2]"),
    (parse_type("Callable[[f32[n], f32[n]], f32[n]]"), ["f32[a]", "f32[b]"], "f32[a]"),       # a == b is left to the run
    (parse_type("Callable[[f32[n], f32[n]], f32[n]]"), ["f32[_]", "f32[b]"], "f32[b]"),
    (parse_type("Callable[[f32[n]], Callable[[f32[n]], f32[n]]]"), ["f32[4]"], "Callable[[f32[n]], f32[n]]"),   # closed
    (parse_type("Callable[[f32[n]], Tuple[f32[k], Shape([n, k]), f32[n]]]"), ["f32[4]"], "Tuple[f32[_], Shape(ndim=2), f32[4]]"),
    (parse_type("Callable[..., f32[n, 4]]"), ["Object", "f32[n]"], "f32[_, 4]"),
    (parse_type("Callable[[], f32[4]]"), [], "f32[4]")])
def test_result_of_a_call(signature, args, result):
    assert str(derive_result(signature, [parse_type(a) for a in args])) == result


@pytest.mark.parametrize("args, what, hint", [
    (["f32[8, 4]", "f32[5, 2]"], "layer expects f32[4, m] as w, not f32[5, 2]", "no value has both types"),
    (["f32[8, 4]", "f32[...]"], "layer expects f32[4, m] as w, not f32[...]", "match_cast to f32[4, m]"),
    (["Object", "f32[4, 2]"], "layer expects f32[n, 4] as x, not Object", "match_cast to f32[n, 4]"),
    (["i64[8, 4]", "f32[4, 2]"], "layer expects f32[n, 4] as x, not i64[8, 4]", "no value has both types")])
def test_an_argument_that_does_not_fit_is_named(args, what, hint):
    with pytest.raises(ShapeError) as e:
        derive_result(LAYER, [parse_type(a) for a in args], "layer", ("x", "w"))
    assert e.value.what == what and hint in e.value.hint


def test_errors_of_calls():
    with pytest.raises(VerifyError, match="layer takes 2 values, 1 are given"):
        derive_result(LAYER, [f32[4, 4]], "layer")
    with pytest.raises(ShapeError, match=r"the function expects f32\[6\] as argument 1 \(f32\[2\*n\] with n = 3\), not f32\[5\]"):
        derive_result(FUSED, [f32[6], f32[5], Shape([3])])


def test_bare_names():
    assert [bare_name(d) for d in (dim("n"), dim("2*n"), dim("n*n"), dim("n//4"), 4, None)] == ["n", None, None, None, None, None]


def test_a_match_cast_of_any_tensor_needs_a_check():
    anything = Tensor[...]
    assert compatibility(f32["n"], anything) is MISMATCH and compatibility(anything, f32["n"]) is PASS

"""Functions of a module: calls, values of type Callable, recursion; the worked examples of the language (Relax, section 3)."""
from __future__ import annotations

import numpy as np
import pytest

from minirelax.errors import ArgumentError, DTypeError, RunError, ShapeError, VerifyError
from minirelax.ir.graph import Alias, CallFunction, CallValue
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify

X = np.array([[[3, 1], [2, 1]], [[3, 0], [1, 1]]], np.float32)
V = np.arange(6, dtype=np.float32)

# sizes are expressions: the flat array is known to have as many elements as x, and the last result the size of d
EXAMPLE_A = """\
def f(x: f32[n, 2, 2]) -> f32[m]:
    with dataflow():
        s: Shape([n, 4]) = shape(n, 4)
        a: f32[n, 4] = reshape_to(x, s)
        b: f32[4*n] = reshape(a, shape=(4*n,))
        c: f32[_] = call_library("unique", b)
        d: f32[m] = match_cast(c, f32[m])
        e: f32[m] = exp(d)
        output(e)
    return e"""

# a result's type follows from the signature, whether a function is called by its name or as a value
EXAMPLE_B = """\
def main(x: f32[a], t: Shape(ndim=2)) -> Tuple[f32[4*a], f32[12], f32[_], f32[4*a], f32[_]]:
    s: Shape([a, 4]) = shape(a, 4)
    s2: Shape([3, 4]) = shape(3, 4)
    v0: f32[4*a] = subfn(s)
    v1: f32[12] = subfn(s2)
    v2: f32[_] = subfn(t)
    f0: Callable[[Shape([n, m])], f32[m*n]] = subfn
    v3: f32[4*a] = f0(s)
    f1: Callable[[Shape([n, m])], f32[m*n]] = f0
    v4: f32[_] = f1(t)
    v5: Tuple[f32[4*a], f32[12], f32[_], f32[4*a], f32[_]] = (v0, v1, v2, v3, v4)
    return v5

@private
def subfn(s: Shape([n, m])) -> f32[m*n]:
    v0: f32[m*n] = full(f32(1.0), shape=(m*n,))
    return v0"""

# a letter that no array shows by itself comes in a shape
EXAMPLE_C = """\
def main(x: f32[2*n], y: f32[2*n], s: Shape([n])) -> f32[2*n]:
    v0: f32[2*n] = fused_add_relu(x, y, s)
    return v0

@private
def fused_add_relu(x: f32[2*k], y: f32[2*k], s: Shape([k])) -> f32[2*k]:
    with dataflow():
        v0: f32[2*k] = add(x, y)
        v1: f32[2*k] = maximum(v0, 0.0)
        output(v1)
    return v1"""

FACTORIAL = """\
def factorial(n: i64[()]) -> i64[()]:
    v0: bool[()] = less(n, 2)
    v1: i64[()] = cond(v0, one, times, n)
    return v1

@private
def one(n: i64[()]) -> i64[()]:
    v0: i64[()] = maximum(n, 1)
    return v0

@private
def times(n: i64[()]) -> i64[()]:
    v0: i64[()] = subtract(n, 1)
    v1: i64[()] = factorial(v0)
    v2: i64[()] = multiply(n, v1)
    return v2"""

EVEN = """\
def even(x: f32[n]) -> bool[()]:
    v0: i64[()] = size(size=n)
    v1: bool[()] = equal(v0, 0)
    v2: bool[()] = cond(v1, yes, odd_rest, x)
    return v2

def odd(x: f32[n]) -> bool[()]:
    v0: i64[()] = size(size=n)
    v1: bool[()] = equal(v0, 0)
    v2: bool[()] = cond(v1, no, even_rest, x)
    return v2

@private
def odd_rest(x: f32[n]) -> bool[()]:
    v0: f32[n - 1] = slice(x, starts=(1,), sizes=(n - 1,), steps=(1,))
    v1: bool[()] = odd(v0)
    return v1

@private
def even_rest(x: f32[n]) -> bool[()]:
    v0: f32[n - 1] = slice(x, starts=(1,), sizes=(n - 1,), steps=(1,))
    v1: bool[()] = even(v0)
    return v1

@private
def yes(x: f32[n]) -> bool[()]:
    return True

@private
def no(x: f32[n]) -> bool[()]:
    return False"""
EVEN = EVEN.replace("return True", "return bool(True)").replace("return False", "return bool(False)")

TWICE = """\
def main(x: f32[n], f: Callable[[f32[k]], f32[k]]) -> f32[n]:
    v0: f32[n] = twice(f, x)
    return v0

@private
def twice(f: Callable[[f32[k]], f32[k]], x: f32[n]) -> f32[n]:
    v0: f32[n] = f(x)
    v1: f32[n] = f(v0)
    return v1

def negated(x: f32[n]) -> f32[n]:
    v0: f32[n] = twice(square, x)
    v1: f32[n] = negative(v0)
    return v1

@private
def square(y: f32[l]) -> f32[l]:
    v0: f32[l] = multiply(y, y)
    return v0"""


def good(text: str):
    """The module, which verifies and reads back."""
    module = parse(text)
    verify(module)
    assert str(module) == text.strip() and parse(str(module)) == module
    return module


def test_example_a_sizes_are_expressions():
    found = interpret(good(EXAMPLE_A), X)
    np.testing.assert_allclose(found, np.exp(np.unique(X)))


def test_example_b_results_by_signature():
    module = good(EXAMPLE_B)
    found = interpret(module, V[:5], (2, 3))
    assert [len(v) for v in found] == [20, 12, 6, 20, 6]
    kinds = [type(b.value) for b in module["main"].bindings]
    assert kinds.count(CallFunction) == 3 and kinds.count(CallValue) == 2 and kinds.count(Alias) == 2


def test_example_c_letters_in_a_shape():
    module = good(EXAMPLE_C)
    np.testing.assert_allclose(interpret(module, V, V - 8, (3,)), np.maximum(V + V - 8, 0))
    with pytest.raises(ShapeError) as e:
        interpret(module, V, V, (2,))
    assert e.value.what == (
        "main: argument x: expected f32[2*n], got an array of shape (6,): axis 0 is 6, not 2*n = 4 (n = 2 is entry 0 of s)")


@pytest.mark.parametrize("wrong, what", [
    ("v3: f32[_] = f0(s)", "v3 is declared f32[_], but its value has type f32[4*a]"),
    ("v3: f32[4*a] = f0(x)", "f0 expects Shape([n, m]) as argument 0, not f32[a]"),
    ("v3: f32[4*a] = f0(s, s)", "f0 takes 1 values, 2 are given"),
    ("v3: f32[4*a] = t(s)", None)])
def test_calls_of_values_are_verified(wrong, what):
    text = EXAMPLE_B.replace("v3: f32[4*a] = f0(s)", wrong)
    with pytest.raises(VerifyError if what else Exception) as e:
        verify(parse(text))
    assert what is None or e.value.what == what


def test_recursion():
    assert interpret(good(FACTORIAL), 5) == 120


def test_functions_that_call_each_other_and_public_ones_by_name():
    module = good(EVEN)
    assert [bool(interpret(module, V[:n])) for n in range(4)] == [True, False, True, False]
    assert [bool(interpret(module, V[:n], function="odd")) for n in range(4)] == [False, True, False, True]
    assert [f.name for f in module.functions if not f.private] == ["even", "odd"]


def test_a_runaway_recursion_is_an_error():
    module = good("""\
def main(x: f32[n]) -> f32[n]:
    v0: f32[n] = again(x)
    return v0

@private
def again(x: f32[n]) -> f32[n]:
    v0: f32[n] = main(x)
    return v0""")
    with pytest.raises(RunError) as e:
        interpret(module, V)
    assert "calls itself too often" in e.value.what and e.value.hint


def test_functions_as_arguments():
    module = good(TWICE)
    np.testing.assert_allclose(interpret(module, V, function="negated"), -V ** 4)
    np.testing.assert_allclose(interpret(module, V, np.sqrt), np.sqrt(np.sqrt(V)))          # any Python function will do
    np.testing.assert_allclose(interpret(module, V, lambda v: interpret(module, v, function="negated")), -V ** 16)


def test_what_is_no_function():
    module = parse(TWICE)
    with pytest.raises(DTypeError) as e:
        interpret(module, V, 3)
    assert e.value.what == "main: argument f: expected Callable[[f32[k]], f32[k]], got a value of type int"
    with pytest.raises(ShapeError, match=r"twice: v0: expected f32\[n\], got an array of shape \(2,\): axis 0 is 2, not n = 6"):
        interpret(module, V, lambda v: v[:2])


def test_a_function_is_a_value_among_others():
    module = good("""\
def main(x: f32[n], c: bool[()]) -> f32[n]:
    v0: Tuple[Callable[[f32[n]], f32[n]], Callable[[f32[n]], f32[n]]] = (first, second)
    v1: Callable[[f32[n]], f32[n]] = v0[1]
    v2: f32[n] = v1(x)
    return v2

@private
def first(x: f32[n]) -> f32[n]:
    return x

@private
def second(x: f32[n]) -> f32[n]:
    v0: f32[n] = add(x, 1.0)
    return v0""")
    np.testing.assert_allclose(interpret(module, V, True), V + 1)


def test_a_coarse_value_is_passed_and_checked_at_the_boundary():
    module = good("""\
def main(x: f32[_], t: Shape(ndim=1)) -> f32[_]:
    v0: f32[_] = pick(x, t)
    return v0

@private
def pick(x: f32[n], s: Shape([n])) -> f32[n]:
    return x""")
    assert interpret(module, V, (6,)).shape == (6,)
    with pytest.raises(ShapeError) as e:
        interpret(module, V, (5,))
    assert e.value.what == "pick: argument s: expected Shape([n]), got (5,): entry 0 is 5, not n = 6 (the size of axis 0 of x)"
    with pytest.raises(ShapeError, match=r"main: argument t: expected Shape\(ndim=1\), got \(6, 1\): 2 entries, not 1"):
        interpret(module, V, (6, 1))


def test_functions_and_constants():
    module = good("""\
c0: f32[2] = constant([1.0, 2.0])

def main(x: f32[2]) -> f32[2]:
    v0: f32[2] = plus(x)
    return v0

@private
def plus(x: f32[2]) -> f32[2]:
    v0: f32[2] = add(x, c0)
    return v0""")
    assert interpret(module, V[:2]).tolist() == [1, 3]


def test_the_number_of_arguments():
    with pytest.raises(ArgumentError, match="factorial takes 1 arguments and 0 bound ones; 2 and 0 are given"):
        interpret(parse(FACTORIAL), 1, 2)

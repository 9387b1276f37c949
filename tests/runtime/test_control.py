"""Branches, loops and calls as native programs: each module is compiled, and every stage agrees with its meaning."""

from __future__ import annotations

import numpy as np
import pytest

from minirelax.errors import RunError, ShapeError
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.pipeline import compile_module

BRANCH = """
@private
def larger(x: f32[n], y: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = exp(x)
        v1: f32[n] = add(v0, y)
        v2: f32[n] = cumsum(v1, axis=0)
        v3: f32[n] = sqrt(v2)
        output(v3)
    return v3

@private
def itself(x: f32[n], y: f32[n]) -> f32[n]:
    return y

def main(x: f32[n], y: f32[n], p: bool[()]) -> f32[n]:
    v0: f32[n] = cond(p, larger, itself, x, y)
    with dataflow():
        v1: f32[n] = multiply(v0, 2.0)
        output(v1)
    return v1
"""

LOOP = """
@private
def test(limit: i64[()], i: i64[()], x: f32[n], y: f32[n]) -> bool[()]:
    with dataflow():
        v0: bool[()] = less(i, limit)
        output(v0)
    return v0

@private
def step(limit: i64[()], i: i64[()], x: f32[n], y: f32[n]) -> Tuple[i64[()], f32[n], f32[n]]:
    with dataflow():
        v0: i64[()] = add(i, 1)
        v1: f32[n] = multiply(x, 0.5)
        v2: f32[n] = cumsum(v1, axis=0)
        v3: Tuple[i64[()], f32[n], f32[n]] = (v0, y, v2)
        output(v3)
    return v3

def main(x: f32[n], limit: i64[()]) -> Tuple[i64[()], f32[n], f32[n]]:
    with dataflow():
        v0: f32[n] = add(x, 1.0)
        v1: i64[()] = full(i64(0), shape=())
        output(v0, v1)
    v2: Tuple[i64[()], f32[n], f32[n]] = while_loop(test, step, (limit,), (v1, x, v0))
    return v2
"""

NESTED = """
@private
def outer_test(x: f32[n, m]) -> bool[()]:
    with dataflow():
        v0: f32[()] = sum(x, axes=(0, 1), keepdims=False)
        v1: bool[()] = less(v0, 2.5)
        output(v1)
    return v1

@private
def grow(x: f32[n, m]) -> Tuple[f32[n, m]]:
    with dataflow():
        v0: f32[m] = sum(x, axes=(0,), keepdims=False)
        output(v0)
    v1: Tuple[f32[m], f32[n, m], f32[n]] = scan(row, (), (v0,), (x,), length=n)
    with dataflow():
        v2: f32[n, m] = v1[1]
        v3: f32[n, m] = add(v2, 1.5)
        v4: Tuple[f32[n, m]] = (v3,)
        output(v4)
    return v4

@private
def row(c: f32[m], x: f32[m]) -> Tuple[f32[m], f32[m], f32[()]]:
    with dataflow():
        v0: f32[m] = add(c, x)
        v1: f32[()] = max(v0, axes=(), keepdims=False)
        v2: f32[()] = sum(v0, axes=(0,), keepdims=False)
        v3: bool[()] = greater(v2, 3.0)
        output(v0, v2, v3)
    v4: f32[m] = cond(v3, halve, keep, x)
    v5: Tuple[f32[m], f32[m], f32[()]] = (v0, v4, v2)
    return v5

@private
def halve(x: f32[m]) -> f32[m]:
    with dataflow():
        v0: f32[m] = multiply(x, 0.5)
        output(v0)
    return v0

@private
def keep(x: f32[m]) -> f32[m]:
    return x

def main(x: f32[n, m]) -> f32[n, m]:
    v0: Tuple[f32[n, m]] = while_loop(outer_test, grow, (), (x,))
    with dataflow():
        v1: f32[n, m] = v0[0]
        output(v1)
    return v1
""".replace("        v1: f32[()] = max(v0, axes=(), keepdims=False)\n", "")

SCAN = """
@private
def step(w: f32[m, m], h: f32[m], x: f32[m]) -> Tuple[f32[m], f32[m], f32[()]]:
    with dataflow():
        v0: f32[1, m] = reshape(h, shape=(1, m))
        v1: f32[1, m] = matmul(v0, w)
        v2: f32[m] = reshape(v1, shape=(m,))
        v3: f32[m] = add(v2, x)
        v4: f32[m] = tanh(v3)
        v5: f32[()] = sum(v4, axes=(0,), keepdims=False)
        v6: Tuple[f32[m], f32[m], f32[()]] = (v4, v4, v5)
        output(v6)
    return v6

def main(x: f32[n, m], w: f32[m, m], h: f32[m]) -> Tuple[f32[m], f32[n, m], f32[n]]:
    v0: Tuple[f32[m], f32[n, m], f32[n]] = scan(step, (w,), (h,), (x,), length=n, reverse=REVERSE)
    return v0
"""

GROW = """
@private
def test(x: f32[k]) -> bool[()]:
    with dataflow():
        v0: i64[()] = size(size=k)
        v1: bool[()] = less(v0, 20)
        output(v1)
    return v1

@private
def twice(x: f32[k]) -> Tuple[f32[2*k]]:
    with dataflow():
        v0: f32[2*k] = concatenate((x, x), axis=0)
        v1: Tuple[f32[2*k]] = (v0,)
        output(v1)
    return v1

def main(x: f32[n]) -> f32[m]:
    v0: Tuple[f32[_]] = while_loop(test, twice, (), (x,))
    with dataflow():
        v1: f32[_] = v0[0]
        v2: f32[m] = match_cast(v1, f32[m])
        v3: f32[m] = add(v2, 1.0)
        output(v3)
    return v3
"""

CALLS = """
def main(x: f32[n], k: i64[()]) -> f32[2*n]:
    with dataflow():
        v0: f32[2*n] = double(x)
        v1: Shape([n]) = shape(n)
        v2: f32[2*n] = shifted(v0, v1)
        v3: f32[2*n] = repeated(v2, k)
        output(v3)
    return v3

@private
def double(x: f32[m]) -> f32[2*m]:
    with dataflow():
        v0: f32[2*m] = concatenate((x, x), axis=0)
        output(v0)
    return v0

@private
def shifted(x: f32[2*n], s: Shape([n])) -> f32[2*n]:
    with dataflow():
        v0: i64[()] = size(size=n)
        v1: f32[()] = cast(v0, dtype="f32")
        v2: f32[2*n] = add(x, v1)
        output(v2)
    return v2

@private
def repeated(x: f32[m], k: i64[()]) -> f32[m]:
    with dataflow():
        v0: bool[()] = greater(k, 0)
        output(v0)
    v1: f32[m] = cond(v0, again, last, x, k)
    return v1

@private
def again(x: f32[m], k: i64[()]) -> f32[m]:
    with dataflow():
        v0: f32[m] = multiply(x, 1.5)
        v1: i64[()] = subtract(k, 1)
        v2: f32[m] = repeated(v0, v1)
        output(v2)
    return v2

@private
def last(x: f32[m], k: i64[()]) -> f32[m]:
    return x
"""

VALUES = """
def main(x: f32[n], p: bool[()]) -> f32[n]:
    f: Callable[[f32[m]], f32[m]] = cond(p, first, second)
    with dataflow():
        v0: f32[n] = f(x)
        v1: f32[n] = apply(plus, v0)
        output(v1)
    return v1

@private
def first() -> Callable[[f32[m]], f32[m]]:
    return plus

@private
def second() -> Callable[[f32[m]], f32[m]]:
    return twice

@private
def plus(x: f32[m]) -> f32[m]:
    with dataflow():
        v0: f32[m] = add(x, 1.0)
        output(v0)
    return v0

@private
def twice(x: f32[m]) -> f32[m]:
    with dataflow():
        v0: f32[m] = multiply(x, 2.0)
        output(v0)
    return v0

@private
def apply(g: Callable[[f32[m]], f32[m]], x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = g(x)
        output(v0)
    return v0
"""


def array(*shape: int) -> np.ndarray:
    return np.linspace(0.1, 1.2, int(np.prod(shape)), dtype=np.float32).reshape(shape)


def agrees(text: str, *calls: tuple) -> None:
    module = parse(text)
    executable = compile_module(module)
    run = executable.bind()
    for args in calls:
        want = interpret(module, *args)
        want = want if isinstance(want, tuple) else (want,)
        got = run([np.asarray(a) for a in args])
        assert got is not None and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert g.dtype == w.dtype and g.shape == w.shape
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)
        for stage in executable.stages[:-1]:
            found = interpret(stage.module, *args)
            for g, w in zip(found if isinstance(found, tuple) else (found,), want, strict=True):
                np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6, err_msg=stage.name)


def test_a_branch_writes_where_its_caller_says():
    agrees(BRANCH, *((array(n), -array(n), np.array(p)) for n in (0, 1, 5) for p in (True, False)))


def test_a_loop_swaps_its_carried_values():
    agrees(LOOP, *((array(n), np.array(k)) for n in (0, 1, 4) for k in (0, 1, 2, 5)))


@pytest.mark.parametrize("reverse", ["False", "True"])
def test_a_scan_reads_and_writes_slices(reverse: str):
    agrees(SCAN.replace("REVERSE", reverse), *((array(n, m), array(m, m), array(m)) for n, m in ((0, 3), (1, 1), (4, 3), (3, 0))))


def test_loops_in_loops():
    agrees(NESTED, (array(3, 4),), (array(1, 1),), (array(1, 2),))


def test_carried_values_may_grow():
    agrees(GROW, (array(3),), (array(25),), (array(1),))


def test_functions_call_each_other_and_themselves():
    agrees(CALLS, *((array(n), np.array(k)) for n in (0, 1, 3) for k in (0, 1, 4)))


def test_functions_are_values():
    agrees(VALUES, *((array(n), np.array(p)) for n in (1, 3) for p in (True, False)))


def test_a_loop_reserves_its_memory_once(monkeypatch):
    from minirelax.runtime import calls as runtime

    counted = []
    reserve = runtime._Call._reserve
    monkeypatch.setattr(runtime._Call, "_reserve", lambda *a: (counted.append(a[1]), reserve(*a))[1])
    run = compile_module(parse(LOOP)).bind()
    for n in (1000, 1000, 800, 3000):
        run([array(n), np.array(50)])
    assert len(counted) == 2          # at the first call, and when the size grows


def test_what_a_loop_does_not_change_is_not_copied():
    text = LOOP.replace("(v0, y, v2)\n        output(v3)", "(v0, x, v2)\n        output(v3)")
    text = text.replace("multiply(x, 0.5)", "multiply(y, 0.5)")
    agrees(text, (array(4), np.array(3)))
    table = compile_module(parse(text)).table
    assert sum(line.split()[1] == "MOVE" for line in table.splitlines()) == 2 * 3 + 3 * 2     # x has two buffers, but never turns


def test_a_recursion_without_end_is_an_error():
    text = CALLS.replace("v0: bool[()] = greater(k, 0)", "v0: bool[()] = less(k, 1000000)")
    with pytest.raises(RunError, match="calls itself too often"):
        compile_module(parse(text)).bind()([array(3), np.array(1)])


def test_a_call_whose_argument_does_not_fit():
    text = """
def main(x: f32[n]) -> f32[2]:
    with dataflow():
        v0: f32[_] = unique(x)
        s: Shape([2]) = shape(2)
        v1: f32[2] = pairs(v0, s)
        output(v1)
    return v1

@private
def pairs(x: f32[2*m], s: Shape([m])) -> f32[m]:
    with dataflow():
        v0: f32[m, 2] = reshape(x, shape=(m, 2))
        v1: f32[m] = sum(v0, axes=(1,), keepdims=False)
        output(v1)
    return v1
"""
    run = compile_module(parse(text)).bind()
    np.testing.assert_array_equal(run([np.float32([1, 1, 2, 3, 4])])[0], [3, 7])
    with pytest.raises(ShapeError):
        run([np.float32([1, 1, 2])])


def test_a_result_whose_size_its_type_leaves_open():
    text = """
def main(x: f32[n], s: Shape([m, 2]), p: Tuple[f32[m], f32[n]]) -> Tuple[f32[_], f32[_]]:
    with dataflow():
        v0: f32[n] = p[1]
        v1: f32[n] = add(x, v0)
        v2: f32[_] = match_cast(v1, f32[_])
        v3: f32[m] = p[0]
        v4: f32[_] = match_cast(v3, f32[_])
        v5: Tuple[f32[_], f32[_]] = (v2, v4)
        output(v5)
    return v5
"""
    program = compile_module(parse(text))
    y, z = program(array(3), (2, 2), (array(2), array(3)))
    np.testing.assert_array_equal(y, 2 * array(3))
    np.testing.assert_array_equal(z, array(2))
    with pytest.raises(ShapeError, match=r"argument p.*\(3,\).*m = 2"):
        program(array(3), (2, 2), (array(3), array(3)))


def test_a_call_that_nobody_reads_still_checks_its_arguments():
    text = """
def main(x: f32[n], y: f32[m]) -> f32[n]:
    with dataflow():
        v0: f32[n] = pair(x, y)
        v1: f32[n] = exp(x)
        output(v1)
    return v1

@private
def pair(x: f32[n], y: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = add(x, y)
        output(v0)
    return v0
"""
    program = compile_module(parse(text))
    np.testing.assert_allclose(program(array(3), array(3))[0], np.exp(array(3)), rtol=1e-6)
    with pytest.raises(ShapeError):
        program(array(3), array(2))


def test_the_result_of_a_function_that_is_a_value_is_what_its_type_says():
    chosen = "f: Callable[[f32[m]], f32[m]] = cond(p, first, second)"
    text = VALUES.replace(chosen, """v7: Callable[..., Object] = cond(p, first, second)
    with dataflow():
        f: Callable[[f32[m]], f32[m]] = match_cast(v7, Callable[[f32[m]], f32[m]])
        output(f)""").replace("second() -> Callable[[f32[m]], f32[m]]", "second() -> Callable[[f32[m]], f32[2*m]]")
    text = text.replace("twice(x: f32[m]) -> f32[m]", "twice(x: f32[m]) -> f32[2*m]").replace(
        "v0: f32[m] = multiply(x, 2.0)", "v0: f32[2*m] = concatenate((x, x), axis=0)").replace(
        "v7: Callable[..., Object]", "v7: Callable[[f32[m]], f32[_]]")
    module = parse(text)
    program = compile_module(module)
    np.testing.assert_allclose(program(array(3), np.array(True))[0], array(3) + 2, rtol=1e-6)
    for call in (lambda: interpret(module, array(3), np.array(False)), lambda: program(array(3), np.array(False))):
        with pytest.raises((ShapeError, RunError), match="6"):
            call()

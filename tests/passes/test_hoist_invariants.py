"""What is the same in all rounds of a loop is computed before it; what might fail there, or is no gain, stays."""

import numpy as np
import pytest

import minirelax as mr
from minirelax import f64, i64
from minirelax.ir.graph import Scan, While, called_functions
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.passes.hoist_invariants import hoist_invariants
from minirelax.pipeline import GRAPH_PASSES, passes, run


def recurrent(x, w, u):
    """A scan whose body transposes its weights and scales them."""
    return mr.scan(lambda h, row: ((h := np.tanh(row @ (w * 0.5).T + h @ u.T)), h.sum()), np.zeros_like(x[0]), x)


def until(x, w, most):
    """A loop whose test has a sum of its own, over values that its body needs, too."""
    def step(s):
        return s[0] + np.exp(-w) @ s[1], s[1] * 0.5, s[2] + 1

    return mr.while_loop(lambda s: (s[0].sum() < np.exp(-w).sum() * 3) & (s[2] < most), step, (x, x, 0))


def nested(x, w, rounds):
    def inner(j, c):
        return c @ w.T + np.sqrt(np.abs(w))[0]

    return mr.fori_loop(0, rounds, lambda i, c: np.tanh(mr.fori_loop(0, 2, inner, c * (w[0] + 1))), x)


def branches(x, w, rounds):
    """A branch inside of a loop: what only it computes stays in it."""
    def step(i, c):
        return mr.cond(i % 2 == 0, lambda c: c + np.exp(w), lambda c: c * np.cos(w)[0, 0], c)

    return mr.fori_loop(0, rounds, step, x)


def run_eagerly(fn, args):
    found = fn(*args)
    return found if isinstance(found, tuple) else (found,)


def flat(values) -> list:
    return [a for v in values for a in flat(v)] if isinstance(values, tuple | list) else [np.asarray(values)]


ROUNDS = {  # with arguments for several numbers of rounds, none among them
    "recurrent": (recurrent, (f64["n", "m"], f64["m", "m"], f64["m", "m"]),
                  lambda r: [(r(n, 3), r(3, 3), r(3, 3)) for n in (4, 1)]),
    "until": (until, (f64["n"], f64["n", "n"], i64[()]), lambda r: [(r(3), r(3, 3), 4), (r(3) + 99, r(3, 3), 4)]),
    "nested": (nested, (f64["n", "m"], f64["m", "m"], i64[()]), lambda r: [(r(2, 3), r(3, 3), n) for n in (3, 0)]),
    "branches": (branches, (f64["n", "n"], f64["n", "n"], i64[()]), lambda r: [(r(3, 3), r(3, 3), n) for n in (3, 0)]),
}


@pytest.mark.parametrize("name", ROUNDS)
def test_every_stage_means_the_same(name):
    fn, types, arguments = ROUNDS[name]
    rng, stages = np.random.default_rng(0), run(mr.trace(fn, *types), passes())
    for stage in stages:
        assert parse(str(stage.module)) == stage.module
    for args in arguments(lambda *shape: rng.random(shape)):
        want = flat(run_eagerly(fn, args))
        for stage in stages:
            found = flat(interpret(stage.module, *map(np.asarray, args)))
            for a, b in zip(found, want, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-9, err_msg=stage.name)


def hoisted(fn, *types):
    """The traced function after the graph passes."""
    return run(mr.trace(fn, *types), GRAPH_PASSES)[-1].module


def ops(function) -> list[str]:
    return [b.value.opname() for b in function.bindings if hasattr(b.value, "opname")]


def in_loops(module) -> list[str]:
    """The ops of all functions that loops call, and of branches in them."""
    return [op for f in module.functions if f.private for op in ops(f)]


def test_where_things_go():
    module = hoisted(recurrent, *ROUNDS["recurrent"][1])
    assert ops(module["main"]).count("transpose") == 2 and "multiply" in ops(module["main"])
    assert "transpose" not in in_loops(module) and "multiply" not in in_loops(module)
    module = hoisted(until, *ROUNDS["until"][1])
    assert ops(module["main"]).count("exp") == 1  # the test's and the body's are one
    assert "exp" not in in_loops(module) and in_loops(module).count("sum") == 1
    module = hoisted(nested, *ROUNDS["nested"][1])
    assert {"transpose", "sqrt", "absolute", "add"} <= set(ops(module["main"]))  # from the inner loop, too
    assert not {"transpose", "sqrt", "absolute"} & set(in_loops(module))
    module = hoisted(branches, *ROUNDS["branches"][1])
    assert {"exp", "cos"} <= set(in_loops(module)) and "exp" not in ops(module["main"])


NESTED = """
def main(x: f32[n, m], w: f32[m]) -> Tuple[f32[n, m]]:
    v0: Tuple[f32[n, m]] = scan(outer, (w,), (x,), (), length=3, reverse=False)
    return v0

@private
def outer(w: f32[k], c: f32[r, k]) -> Tuple[f32[r, k]]:
    v0: Tuple[f32[r, k]] = scan(inner, (w,), (c,), (), length=2, reverse=False)
    return v0

@private
def inner(v: f32[k], c: f32[r, k]) -> Tuple[f32[r, k]]:
    with dataflow():
        v0: f32[k] = exp(v)
        v1: f32[1, k] = reshape(v0, shape=(1, k))
        v2: f32[r, k] = multiply(c, v1)
        v3: Tuple[f32[r, k]] = (v2,)
        output(v3)
    return v3
"""


def test_out_of_two_loops_in_other_letters():
    module = hoist_invariants(parse(NESTED))
    assert str(module) == """\
def main(x: f32[n, m], w: f32[m]) -> Tuple[f32[n, m]]:
    with dataflow():
        v1: f32[m] = exp(w)
        v2: f32[1, m] = reshape(v1, shape=(1, m))
        output(v2)
    v0: Tuple[f32[n, m]] = scan(outer, (v2,), (x,), (), length=3, reverse=False)
    return v0

@private
def outer(v2: f32[1, k], c: f32[r, k]) -> Tuple[f32[r, k]]:
    v0: Tuple[f32[r, k]] = scan(inner, (v2,), (c,), (), length=2, reverse=False)
    return v0

@private
def inner(v1: f32[1, k], c: f32[r, k]) -> Tuple[f32[r, k]]:
    with dataflow():
        v2: f32[r, k] = multiply(c, v1)
        v3: Tuple[f32[r, k]] = (v2,)
        output(v3)
    return v3"""


def test_a_function_that_two_loops_call():
    text = NESTED.replace("    return v0\n\n@private\ndef outer", """\
    with dataflow():
        v5: f32[n, m] = v0[0]
        v6: f32[m] = sum(v5, axes=(0,), keepdims=False)
        output(v5, v6)
    v7: Tuple[f32[n, m]] = scan(inner, (v6,), (v5,), (), length=2, reverse=False)
    return v7

@private
def outer""", 1)
    module = run(parse(text), (hoist_invariants,))[-1].module
    loops = [b.value for f in module.functions for b in f.bindings if isinstance(b.value, While | Scan)]
    assert sorted(n for loop in loops for n in called_functions(loop)) == ["inner", "inner_2", "outer"]
    assert "exp" not in in_loops(module)
    x, w = np.random.default_rng(0).random((2, 3, 3), np.float32) / 100
    np.testing.assert_allclose(interpret(module, x, w[0]), interpret(parse(text), x, w[0]), rtol=1e-6)


STAYS = {
    "an index from an array": (lambda c, w, i: c + w[i[0]], "take"),
    "a library call": (lambda c, w, i: c + np.sort(w, 0)[0], "sort"),
    "an inverse": (lambda c, w, i: c @ np.linalg.inv(w), "inv"),
    "integers to a power": (lambda c, w, i: c + (i ** i[::-1]).sum(), "power"),
    "a repeated row": (lambda c, w, i: c + np.sum(np.broadcast_to(np.exp(w[0]), (4096, *w.shape)) * c, 0), "broadcast_to"),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_stays(name):
    body, op = STAYS[name]
    if name == "a repeated row":
        module = hoisted(lambda x, w, i: mr.fori_loop(0, 3, lambda j, c: body(c, w, i), x), f64[8, 8], f64[8, 8], i64["k"])
        assert not any(str(v.type).startswith("f64[4096") for f in module.functions for v in f.params)
        return
    module = hoisted(lambda x, w, i: mr.fori_loop(0, 3, lambda j, c: body(c, w, i), x), f64["n", "n"], f64["n", "n"], i64[4])
    assert op in in_loops(module) and op not in ops(module["main"])


def test_a_loop_without_rounds_computes_nothing_that_fails():
    @mr.jit
    def fn(x, w, i, rounds):
        return mr.fori_loop(0, rounds, lambda j, c: c @ np.linalg.inv(w) + w[i[0]], x)

    x, singular, far = np.ones((2, 2)), np.zeros((2, 2)), np.array([9])
    np.testing.assert_array_equal(fn(x, singular, far, 0), x)
    np.testing.assert_allclose(fn(x, np.eye(2), far * 0, 1), x + np.eye(2)[0])


BODY = """
def main(x: f32[k], w: f32[{shape}]) -> Tuple[f32[_]]:
    v0: Tuple[f32[_]] = while_loop(test, body, (w,), (x,))
    return v0

@private
def test(w: f32[{shape}], c: f32[r]) -> bool[()]:
    with dataflow():
        v0: i64[()] = size(size=r)
        v1: bool[()] = less(v0, 9)
        output(v1)
    return v1

@private
def body(w: f32[{shape}], c: f32[r]) -> Tuple[f32[{result}]]:
    with dataflow():
        v0: f32[{made}] = {op}
        v1: f32[{result}] = {use}
        v2: Tuple[f32[{result}]] = (v1,)
        output(v2)
    return v2
"""


@pytest.mark.parametrize(
    "shape, made, op, goes",
    [
        ("n", "n", "exp(w)", True),
        ("n", "4", "slice(w, starts=(0,), sizes=(4,), steps=(1,))", False),  # there may be fewer
        ("n", "min(n, 4)", "slice(w, starts=(0,), sizes=(min(n, 4),), steps=(1,))", True),
        ("n", "n", "slice(w, starts=(n - 1,), sizes=(n,), steps=(-1,))", True),
        ("n", "n", "slice(w, starts=(n,), sizes=(n,), steps=(-1,))", False),
        ("n", "1", "max(w, axes=(0,), keepdims=True)", False),  # of none there is no greatest
        ("3", "1", "max(w, axes=(0,), keepdims=True)", True),
        ("n", "r", "full(f32(2.0), shape=(r,))", False),  # the carried array has another size in each round
        ("r", "r", "exp(w)", True),
    ],
)
def test_sizes_decide(shape, made, op, goes):
    values = dict(shape=shape, made=made, op=op, result=f"{made} + r", use="concatenate((v0, c), axis=0)")
    if shape == "r":
        values |= dict(result="r", use="add(v0, c)")
    text = BODY.format(**values).replace("f32[r + r]", "f32[2*r]")
    module = run(parse(text), (hoist_invariants,))[-1].module
    assert ops(module["main"]) == ([op.split("(")[0]] if goes else [])


def test_guards_show_what_sizes_do_not():
    def fn(x, w):
        return mr.fori_loop(0, 3, lambda i, c: c + np.exp(w[3]) + np.max(w), x)

    module = hoisted(fn, f64["n"], f64["m"])
    assert [str(g.relation) for g in module["main"].guards] and {"exp", "max"} <= set(ops(module["main"]))
    compiled = mr.jit(fn)
    x, w = np.arange(3.0), np.arange(5.0)
    np.testing.assert_allclose(compiled(x, w), fn(x, w))


def test_weights_go_on_to_bind():
    @mr.jit(constants="w")
    def fn(x, w):
        return mr.fori_loop(0, 3, lambda i, c: np.tanh(c @ w.T), x)

    x, w = np.random.default_rng(0).random((2, 4, 4))
    want = x
    for _ in range(3):
        want = np.tanh(want @ w.T)
    np.testing.assert_allclose(fn(x, w), want)
    module = fn.stages["bind_parameters"].module
    assert ops(module["bind"]) == ["transpose"] and "transpose" not in [*ops(module["main"]), *in_loops(module)]


def test_left_out():
    compiled = mr.jit(recurrent, without="hoist_invariants")
    args = np.random.default_rng(0).random((3, 3, 3))
    for found, wanted in zip(compiled(*args), recurrent(*args), strict=True):
        np.testing.assert_allclose(found, wanted)
    assert "hoist_invariants" not in [s.name for s in compiled.stages]

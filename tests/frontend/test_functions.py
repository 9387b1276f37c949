"""Jitted functions that call jitted functions: kept as calls, shared, in sizes of their own; declared results; recursion."""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
import minirelax.numpy as mnp
from minirelax import Shape, f32, i64
from minirelax.errors import ArgumentError, CompileError, DTypeError, ShapeError, UnsupportedError
from minirelax.ir.graph import CallFunction
from minirelax.ir.verify import verify
from tests.programs import PROGRAMS, compare

kept = mr.jit(inline=False)
X = np.arange(6, dtype=np.float32).reshape(2, 3)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


def functions(module: mr.ir.graph.Module) -> list[str]:
    """The functions of a good module that are called."""
    verify(module)
    return [f.name for f in module.functions[1:]]


def check(fn, *calls, names: list[str] | None = None, compilations: int = 1, target: str = "interpret"):
    """Results are those of plain Python; gives the module of the last compilation, whose functions are `names`."""
    f = mr.jit(fn, target=target)
    for args in calls:
        own = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        got, want = f(*args), fn(*own)
        for g, w in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, want)), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5)
            assert type(g) is type(w)
    module = f.stages["trace"].module
    assert len(f.compilations) == compilations and (names is None or functions(module) == names)
    return module


@kept
def layer(x, w, b):
    return np.maximum(x @ w + b, 0)


@kept
def tail(x: f32["n + 1"], y: f32["n"]):
    return x[1:] + y


@kept
def positive(x):
    y = x[x > 0]
    return y * 2, y + 1, y.shape[0], x.shape[0]


@kept
def twice(x):
    return np.concatenate([x, x])


# ---- calls


def test_a_call_is_kept():
    module = mr.trace(lambda x, w, b: layer(layer(x, w, b), w, b), f32["n", 8], f32[8, 8], f32[8])
    assert (
        str(module)
        == """\
def main(x: f32[n, 8], w: f32[8, 8], b: f32[8]) -> f32[n, 8]:
    with dataflow():
        v0: f32[n, 8] = layer(x, w, b)
        v1: f32[n, 8] = layer(v0, w, b)
        output(v1)
    return v1

@private
def layer(x: f32[n, 8], w: f32[8, 8], b: f32[8]) -> f32[n, 8]:
    with dataflow():
        v0: f32[n, 8] = matmul(x, w)
        v1: f32[n, 8] = add(v0, b)
        v2: f32[n, 8] = maximum(v1, 0.0)
        output(v2)
    return v2"""
    )


def test_by_default_its_lines_are_taken():
    inner = mr.jit(lambda x: x * 2)
    assert functions(mr.trace(lambda x: inner(x) + 1, f32["n"])) == []


def test_one_function_for_calls_with_other_sizes():
    def mlp(x, w1, b1, w2, b2):
        return layer(layer(x, w1, b1), w2, b2)

    shapes = ((3, 8), (8, 5), (5,), (5, 2), (2,)), ((4, 7), (7, 7), (7,), (7, 7), (7,))
    for target in ("interpret", "cpu"):
        check(mlp, *([numbers(*s) for s in call] for call in shapes), names=["layer"], target=target)


def test_other_types_are_other_functions():
    names = ["twice", "twice_2", "twice_3"]
    module = check(lambda x, y, z: (twice(x), twice(y), twice(z), twice(twice(x))), (X, X.astype(int), X[0]), names=names)
    assert [str(module[n].params[0].type) for n in names] == ["f32[n, m]", "i64[n, m]", "f32[n]"]


def test_static_arguments_and_plain_values_are_part_of_the_function():
    @mr.jit(inline=False, static="axis")
    def total(x, axis, scale=1.0, name="a"):
        return x.sum(axis) * scale if name else x

    def f(x):
        return total(x, 0), total(x, 1), total(x, 0, 2.0), total(x, axis=1), total(x, 0, scale=1.0), total(x, 0, -0.0)

    check(f, (X,), names=["total", "total_2", "total_3", "total_4"])


def test_containers_go_in_and_out():
    @kept
    def step(state, lr):
        return {"w": state["w"] - lr * state["g"], "old": [state["w"] * 1, (state["n"] + 1, None)]}

    def f(w, g):
        state = step({"w": w, "g": g, "n": 3}, 0.5)
        return state["w"], state["old"][0], state["old"][1][0]

    module = check(f, (X, X + 1), names=["step"])
    assert str(module["step"]).startswith("@private\ndef step(state_w: f32[n, m], state_g: f32[n, m]) -> ")


def test_constants_are_the_modules():
    table = np.arange(3, dtype=np.float32)

    @kept
    def add_table(x):
        return x + table

    module = check(lambda c0: add_table(c0) * table + add_table(c0), (X,), names=["add_table"])
    assert len(module.constants) == 1 and module.constants[0].name not in ("c0", "x")


def test_functions_inside_functions_and_names():
    @kept
    def v0(x):
        return twice(x) + 1

    @kept
    def main(x):
        return v0(x) * 2

    check(lambda bind: main(bind) + twice(bind), (X,), names=["main_2", "v0_", "twice"])


def test_kept_calls_in_branches_and_loops():
    @kept
    def halved(x):
        return mr.cond(x.sum() > 10, lambda: x / 2, lambda: x * 1)

    def f(x):
        return mr.fori_loop(0, 3, lambda i, y: halved(y), x), mr.cond(x[0, 0] > 0, lambda: halved(x), lambda: halved(x + 1))

    for target in ("interpret", "cpu"):
        f_ = mr.jit(f, target=target)
        got = f_(X)
        np.testing.assert_allclose(got[0], X / 2)
        np.testing.assert_allclose(got[1], (X + 1) / 2)
        assert functions(f_.stages["trace"].module).count("halved") == 1


def test_weights_scalars_and_elements_look_as_they_are():
    @kept
    def look(x, n, e):
        e += 1
        return x * n, x.astype(np.int8) + n, e

    @mr.jit(target="interpret", constants="w")
    def f(w, x, n):
        return look(w + x, n, x[0, 0])

    a, b, c = f(X, X, 3)
    assert a.dtype == np.float32 and b.dtype == np.int8 and c == 1


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_the_corpus_in_calls(program):
    """Each program as a function that another one calls: as many compilations as by itself, one function (and its bodies)."""
    inner = mr.jit(program.function, inline=False)
    f = mr.jit(lambda *args: inner(*args), target="interpret")
    for sizes in program.sizes:
        args = program.inputs(sizes)
        compare(program, f(*args), program.expected(*args))
    assert len(f.compilations) == program.compilations
    assert functions(f.stages["trace"].module)[0] == program.function.__name__
    assert len([b for b in f.stages["trace"].module.functions[0].bindings if isinstance(b.value, CallFunction)]) == 1


# ---- sizes


def test_declared_compound_sizes():
    for target in ("interpret", "cpu"):
        calls = [(numbers(n + 1), numbers(n)) for n in (3, 5)]
        module = check(lambda x, y: tail(x, y) * 2, *calls, names=["tail"], target=target)
    assert str(module["tail"]).startswith("@private\ndef tail(x: f32[n + 1], y: f32[n]) -> f32[n]:")
    assert "f32[k] = tail(x, y)" in str(mr.trace(lambda x, y: tail(x, y), f32["k + 1"], f32["k"]))


def test_what_is_not_known_of_a_declared_size_is_checked_while_running():
    module = mr.trace(lambda x, y: tail(x, y), f32["m"], f32["k"])
    assert "v0: f32[k + 1] = match_cast(x, f32[k + 1])\n        v1: f32[k] = tail(v0, y)" in str(module)
    with pytest.raises(ShapeError, match=r"expected f32\[k \+ 1\], got an array of shape \(3,\): axis 0 is 3, not k \+ 1 = 4"):
        mr.ir.interpret.interpret(module, numbers(3), numbers(3))


@pytest.mark.parametrize(
    "types, error, what",
    [
        ((f32[3], f32[3]), ShapeError,
         "tail: argument x: expected f32[n + 1], got f32[3]: axis 0 has sizes 3 and 4, which differ"),
        ((f32["n", 2], f32["n"]), ShapeError, "tail: argument x: expected f32[n + 1], got f32[n, 2]: 2 axes, not 1"),
        ((i64["n + 1"], f32["n"]), DTypeError, "tail: argument x: expected f32[n + 1], got i64[n + 1]"),
    ],
)
def test_arguments_that_never_fit(types, error, what):
    with pytest.raises(error) as e:
        mr.trace(lambda x, y: tail(x, y), *types)
    assert e.value.what == what and "lambda x, y: tail(x, y)" in e.value.where


def test_sizes_only_known_inside_get_names():
    def f(x):
        a, b, count, size = positive(x)
        return a + b, count, size, mnp.zeros(count) + a

    for target in ("interpret", "cpu"):
        module = check(f, (numbers(9),), (numbers(5),), names=["positive"], target=target)
    assert "kept" not in str(module)
    assert (
        """\
        v0: Tuple[f32[_], f32[_], Shape(ndim=1)] = positive(x)
        v1: f32[_] = v0[0]
        v2: f32[_] = v0[1]
        v3: Shape(ndim=1) = v0[2]
        v4: f32[m] = match_cast(v1, f32[m])
        v5: f32[m] = match_cast(v2, f32[m])
        v6: Shape([m]) = match_cast(v3, Shape([m]))
"""
        in str(module)
    )


def test_a_compound_size_is_any_size_to_a_function():
    for target in ("interpret", "cpu"):
        module = check(lambda x: twice(twice(x)), (X,), names=["twice"], target=target)
    assert "f32[4*n, m] = twice(v0)" in str(module)


def test_letters_that_no_parameter_shows_come_in_a_shape():
    """Relax, figure 8: two arrays with 2*n and 3*n elements."""

    @kept
    def both(x, y):
        return np.concatenate([x, y]) * x.shape[0]

    def f(x):
        return both(np.concatenate([x, x]), np.concatenate([x, x, x]))

    for target in ("interpret", "cpu"):
        module = check(f, (numbers(3),), (numbers(4),), names=["both"], target=target)
    assert "def both(x: f32[2*n], y: f32[3*n], s: Shape([n])) -> f32[5*n]:" in str(module)
    assert "v2: Shape([n]) = shape(n)\n        v3: f32[5*n] = both(v0, v1, v2)" in str(module)


def test_shapes_and_sizes_are_passed():
    @kept
    def filled(s: Shape(ndim=2), n, v):
        return mnp.full(s, v) * n, s[0] + n, s

    def f(x, y):
        a, b, c = filled(x.shape, x.shape[0], y[0])
        return a, b, c[::-1][0], filled((x.shape[0] * 2, x.shape[1] * 3), x.shape[1], y[0])[0]

    for target in ("interpret", "cpu"):
        module = check(f, (X, X[0]), (numbers(4, 5), X[1]), target=target)
    assert "(s: Shape([m, k]), n: Shape([m]), v: f32[()]" in str(module["filled"])


def test_facts_of_a_function_become_guards():
    @kept
    def add(x, y):
        return x + y if x.shape[0] > 2 else x - y

    f = mr.jit(lambda x, y: add(x, y) * add(y, x), target="interpret")
    for n in (4, 9, 2):
        np.testing.assert_allclose(f(numbers(n), numbers(n)), 4 * numbers(n) ** 2 if n > 2 else 0 * numbers(n))
    assert len(f.compilations) == 2 and functions(f.stages["trace"].module) == ["add"]
    with pytest.raises(ShapeError, match="differ in this call: 3 and 4"):
        f(numbers(3), numbers(4))


def test_a_call_for_which_a_fact_does_not_hold_has_its_own_function():
    @kept
    def size(x):
        return x * 2 if x.shape[0] > 2 else x * 3

    check(lambda x, y: (size(x), size(y), size(y[1:])), (numbers(5), numbers(2)), names=["size", "size_2"])


def test_a_fact_that_only_the_caller_knows_means_lines_in_place():
    @kept
    def first_half(x):
        return x.reshape(2, -1)[0] * 2

    def f(x: f32["2*n"], s: Shape(["n"])):
        return first_half(x) + first_half(x)

    module = mr.trace(f, f32["2*n"], Shape(["n"]))
    assert functions(module) == ["first_half"]
    np.testing.assert_allclose(mr.jit(f, target="interpret")(numbers(6), (3,)), numbers(6)[:3] * 4)

    @kept
    def first(x):
        return x[0] * 2 if x.shape[0] > 0 else x.sum()

    assert functions(mr.trace(lambda x, y: first(x) + y.sum(), f32["n + 1"], f32["n"])) == []


# ---- memory


def test_writes_to_an_argument_are_seen():
    @kept
    def clear(x, i):
        x[i] = 0
        return x.sum()

    def f(x, i):
        y = x.copy()
        total = clear(y, i)
        part = y[1:]
        clear(part, 0)
        return y, total

    for target in ("interpret", "cpu"):
        module = check(f, (numbers(5), np.array(3)), target=target)
    assert "clear" in functions(module)
    x = numbers(4)
    mr.jit(lambda x: clear(x, 1), target="interpret")(x)
    assert x[1] == 0


def test_what_a_call_cannot_say_is_run_in_place():
    @kept
    def view(x):
        return x[1:]

    @kept
    def same(x):
        return x, x * 1

    @kept
    def swap(x, y):
        x[:], y[:] = y * 1, x * 1
        return x.sum()

    def f(x, view, same, swap):
        y = x * 1
        view(y)[0] = 7
        z, w = same(y)
        z[0] = 5
        swap(y[:2], y[2:4])
        return y, w

    x = numbers(6)
    g = mr.jit(lambda x: f(x, view, same, swap), target="interpret")
    for got, want in zip(g(x), f(x, view.fn, same.fn, lambda x, y: swap.fn(x, y)), strict=True):
        np.testing.assert_allclose(got, want)
    assert functions(g.stages["trace"].module) == ["same"]
    module = check(lambda x: view(x) + 1, (numbers(6),))
    assert functions(module) == []


def test_arrays_of_the_function_around_it():
    def f(x, y):
        @kept
        def add(a):
            return a + y

        return add(x)

    check(f, (X, X), names=[])


def test_a_mistake_inside_is_shown_where_it_is_made():
    @kept
    def wrong(x):
        return x @ x

    with pytest.raises(ShapeError) as e:
        mr.trace(lambda x: wrong(x), f32[2, 3])
    assert "return x @ x" in e.value.where


def test_a_call_with_too_few_arguments():
    with pytest.raises(ArgumentError, match=r"layer\(\): missing a required argument: 'w'"):
        mr.trace(lambda x: layer(x), f32[2])


def test_arrays_outside_a_trace_run_it_as_any_jitted_function():
    np.testing.assert_allclose(mr.jit(lambda x: x * 2, inline=False, target="interpret")(X), X * 2)


def test_an_attempt_that_is_undone_takes_its_functions_along():
    """A loop's body is traced again if what it carries changes its type; what the first attempt made is gone."""

    @kept
    def longer(x):
        return np.concatenate([x, x[:1]]) + np.arange(3, dtype=np.float32)[0]

    def f(x):
        return mr.fori_loop(0, 3, lambda i, y: longer(y), x)

    got = mr.jit(f, target="interpret")
    np.testing.assert_allclose(got(numbers(3)), [*numbers(3), *numbers(3)[:1].repeat(3)])
    assert functions(got.stages["trace"].module).count("longer") == 1


# ---- recursion


def test_recursion_with_a_declared_result():
    @kept
    def power(x: f32["n"], k: i64) -> f32["n"]:
        return mr.cond(k == 0, lambda: np.ones_like(x), lambda: x * power(x, k - 1))

    for target in ("interpret", "cpu"):
        f = mr.jit(lambda x, k: power(x, k), target=target)
        np.testing.assert_allclose(f(X[1], np.array(3)), X[1] ** 3)
        assert functions(f.stages["trace"].module).count("power") == 1


def test_recursion_that_does_not_say_what_it_returns():
    @kept
    def power(x, k):
        return mr.cond(k == 0, lambda: x * 0 + 1, lambda: x * power(x, k - 1))

    with pytest.raises(UnsupportedError) as e:
        mr.trace(lambda x, k: power(x, k), f32["n"], i64[()])
    assert e.value.what == "power calls itself, and does not declare what it returns"
    assert 'end the recursion with minirelax.cond' in e.value.hint


# ---- declared results


def test_a_declared_result_that_is_known_costs_nothing():
    def f(x: f32["n"]) -> f32["n + 1"]:
        return np.concatenate([x, mnp.ones(1, np.float32)])

    assert "-> f32[n + 1]:" in str(mr.trace(f, f32["n"])) and mr.trace(f, f32["n"]).functions[0].returns is None


def test_a_declared_result_is_checked_when_the_function_returns():
    def f(x: f32["n"], keep) -> f32["n"]:
        return x[keep] * 2

    for target in ("interpret", "cpu"):
        g = mr.jit(f, target=target)
        np.testing.assert_allclose(g(X[0], X[0] > -1), X[0] * 2)
        with pytest.raises(ShapeError) as e:
            g(X[0], X[0] > 0)
        assert e.value.what == (
            "f: the result: expected f32[n], got an array of shape (2,): axis 0 is 2, not n = 3 (the size of axis 0 of x)"
        )
    assert str(g.stages["trace"].module["main"].returns) == "f32[n]"


def test_a_result_of_undeclared_size_becomes_a_guard():
    def f(x: f32["n"], y) -> f32["n"]:
        return y * 2

    g = mr.jit(f, target="interpret")
    assert g(X[0], X[1]).shape == (3,) and "y: f32[n]" in str(g.executable.module)
    with pytest.raises(ShapeError, match=r"the result: expected f32\[n\], got f32\[m\]: axis 0 has sizes m and n, which differ"):
        g(X[0], X[1, :2])


def test_declared_containers():
    def f(x: f32["n"], keep) -> (f32["n"], {"shape": Shape(["n", 2]), "kept": f32["_"]}):
        return x + 1, {"shape": (x.shape[0], 2), "kept": x[keep]}

    g = mr.jit(f, target="interpret")
    first, rest = g(X[0], X[0] > 0)
    assert first.shape == (3,) and rest["shape"] == (3, 2) and rest["kept"].shape == (2,)


@pytest.mark.parametrize(
    "returns, fn, error, what",
    [
        (f32["m"], lambda x: x, ArgumentError, "f: the result: no argument shows the size m of f32[m]"),
        (f32["n", 1], lambda x: x, ShapeError, "f: the result: expected f32[n, 1], got f32[n]: 1 axis, not 2"),
        (i64["n"], lambda x: x, DTypeError, "f: the result: expected i64[n], got f32[n]"),
        (
            f32["n + 1"],
            lambda x: x,
            ShapeError,
            "f: the result: expected f32[n + 1], got f32[n]: axis 0 has sizes n and n + 1, which cannot be shown equal",
        ),
        (Shape(["n"]), lambda x: x, DTypeError, "f: the result: expected Shape([n]), got a value of type TracedArray"),
        (Shape(["n"]), lambda x: (1, 2), ShapeError, "f: the result: expected Shape([n]), got Shape([1, 2]): 2 entries, not 1"),
        ((f32["n"], f32["n"]), lambda x: x, ArgumentError, None),
        (f32["n"], lambda x: "text", DTypeError, "f: the result: expected f32[n], got a value of type str"),
        ([f32["n"]], lambda x: [x, x], ArgumentError, None),
    ],
)
def test_results_that_are_never_what_is_declared(returns, fn, error, what):
    def f(x):
        return fn(x)

    f.__annotations__ = {"return": returns}
    with pytest.raises(CompileError) as e:
        mr.trace(f, f32["n"])
    assert type(e.value) is error and (what is None or e.value.what == what)


def test_the_call_in_the_module_is_a_call():
    module = mr.trace(lambda x: twice(x), f32["n"])
    call, = module["main"].bindings
    assert call.value == CallFunction("twice", module["main"].params) and module["twice"].private

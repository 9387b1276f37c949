"""Concatenations written by the producers of their parts: which parts, and that programs mean the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minirelax as mr
from minirelax import f32
from minirelax.errors import CodegenError
from minirelax.explore.memory import memory_plan
from minirelax.explore.timing import threads
from minirelax.ir.graph import RunKernel, View
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify
from minirelax.passes.options import Options
from minirelax.passes.write_in_place import write_in_place
from minirelax.pipeline import module_stages
from minirelax.runtime.build import build


def stages(f, *types, **options):
    return {s.name: s.module for s in module_stages(mr.trace(f, *types), Options.of(None, **options))}


def parts(module):
    """The offsets of the views that are written, and what is called."""
    main = module.functions[0]
    written = {v for b in main.bindings if isinstance(b.value, RunKernel) for v in b.value.out}
    found = [str(b.value.offset) for b in main.bindings if isinstance(b.value, View) and b.var in written]
    return found, [b.value.kernel for b in main.bindings if isinstance(b.value, RunKernel)]


def products(x, y, w):
    return np.concatenate([x @ w, y @ w])


def and_a_parameter(x, y, w):
    return np.concatenate([x @ w, w, y @ w])


def twice(x, y, w):
    a = x @ w
    return np.concatenate([a, a, y @ w])


def columns(x, y, w):
    return np.concatenate([x @ w, x @ w[::-1]], axis=1)


def one_row(x, y, w):
    return np.concatenate([w[:1] @ w, w[1:2] @ w], axis=1)


def one_of_the_other(x, y, w):
    a = x @ w
    return np.concatenate([a, a @ w])


def nested(x, y, w):
    return np.concatenate([np.concatenate([x @ w, y @ w]), x @ w[::-1]])


def read_later(x, y, w):
    a = x @ w
    both = np.concatenate([y @ w, a])
    return both, a @ w


def also_returned(x, y, w):
    a = x @ w
    return np.concatenate([y @ w, a]), a


PROGRAMS = {
    products: 2, and_a_parameter: 2, twice: 1, columns: 0, one_row: 2, one_of_the_other: 1, nested: 3, read_later: 2,
    also_returned: 1,
}


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("types", [(f32["n", 3], f32["m", 3]), (f32[4, 3], f32[2, 3])], ids=["names", "numbers"])
def test_which_parts_are_written_in_place(f, types):
    made = stages(f, *types, f32[3, 3])
    after = made["write_in_place"]
    assert len(parts(after)[0]) == PROGRAMS[f]
    rng = np.random.default_rng(0)
    for n, m in [(4, 2)] if types[0] == f32[4, 3] else [(4, 2), (1, 1), (0, 3), (2, 0)]:
        x, y, w = (rng.standard_normal(s).astype(np.float32) for s in ((n, 3), (m, 3), (3, 3)))
        wanted = f(*(a.astype(float) for a in (x, y, w)))
        for module in (after, made["bind_shapes"]):
            assert parse(str(module)) == module
            verify(module)
            found = interpret(module, x, y, w)
            for a, b in zip(*((v if isinstance(v, tuple) else (v,)) for v in (found, wanted)), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def loop(x, y, w):
    """A concatenation in a loop's body, whose result is carried."""
    return mr.fori_loop(0, 3, lambda i, c: np.concatenate([np.exp(c[:1] @ w) * 0.1, c[1:] @ w]), x)


def assembled_in_parts(f, a, b, w):
    """What a compiled program and NumPy give, as lists of arrays."""
    given_ = [np.asarray(v, np.float32) for v in (a, b, w)]
    return [r if isinstance(r, tuple) else (r,) for r in (f(*given_), f.fn(*(v.astype(float) for v in given_)))]


@pytest.mark.parametrize("f", [and_a_parameter, nested, read_later])
def test_compiled_programs(f):
    rng = np.random.default_rng(1)
    compiled = mr.jit(f, validate=True)
    for many, n, m in [(1, 5, 4), (2, 0, 3), (1, 3, 0), (2, 1, 1), (2, 70, 33)]:
        with threads(many):
            found, wanted = assembled_in_parts(compiled, *(rng.standard_normal(s) for s in ((n, 3), (m, 3), (3, 3))))
            for a, b in zip(found, wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


def test_in_a_loop_and_what_libraries_make():
    x, w = np.ones((4, 3), np.float32), np.full((3, 3), 0.3, np.float32)
    compiled = mr.jit(loop)
    wanted = x.astype(float)
    for _ in range(3):
        wanted = np.concatenate([np.exp(wanted[:1] @ w) * 0.1, wanted[1:] @ w])
    np.testing.assert_allclose(compiled(x, x, w), wanted, rtol=1e-5)
    both = mr.jit(lambda a, b: np.concatenate([np.linalg.inv(a), np.linalg.inv(b)]))
    a = np.diag([1.0, 2.0])
    np.testing.assert_allclose(both(a, a * 2), np.concatenate([np.linalg.inv(a), np.linalg.inv(a * 2)]))


def test_less_memory():
    def f(x, y, w):
        a = np.concatenate([x @ w, y @ w])
        return a - a.sum(axis=0), a @ w

    bytes_ = {without: memory_plan(stages(f, f32["n", 64], f32["m", 64], f32[64, 64], without=without)["plan_memory"])
              .least_bytes(n=1000, m=1000) for without in ((), ("write_in_place",))}
    assert bytes_[()] < 0.7 * bytes_["write_in_place",]


COPIES = """@kernel
def fill(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = exp(x[i])

@kernel
def put(a: f32[n], b: f32[n], out: {out}, *, n):
    {body}

def main(x: f32[n]) -> {out}:
    v0: f32[n] = alloc_tensor()
    run_kernel(fill, x, out=(v0,), sizes=(n,))
    {between}
    v1: {out} = alloc_tensor()
    run_kernel(put, x, v0, out=(v1,), sizes=(n,))
    {after}
    return v1"""
PLAIN = """for i in range(n):
        out[i] = a[i]
    for i in range(n):
        out[i + n] = b[i]"""


@pytest.mark.parametrize("why, body, changes", [
    ("", PLAIN, {}),
    ("", PLAIN, {"after": "v2: f32[n] = alloc_tensor()\n    run_kernel(fill, v0, out=(v2,), sizes=(n,))"}),
    ("backwards", PLAIN.replace("b[i]", "b[n - 1 - i]"), {}),
    ("changed", PLAIN.replace("b[i]", "b[i] * 2.0"), {}),
    ("under another block", PLAIN.replace("out[i] = a[i]", "out[i] = b[i]").replace("out[i + n] = b[i]", "out[i + n] = a[i]")
     + "\n    for i in range(n):\n        out[i] = a[i]", {}),
    ("read by two blocks", PLAIN.replace("a[i]", "a[i] + b[i]"), {}),
    ("written again", PLAIN, {"after": "run_kernel(fill, x, out=(v0,), sizes=(n,))"}),
    ("transposed", "for i in range(n):\n        for j in range(n):\n            out[j, i] = b[i] + a[j]", {"out": "f32[n, n]"}),
])
def test_only_plain_copies(why, body, changes):
    before = parse(COPIES.format(**{"out": "f32[2*n]", "body": body, "between": "", "after": "", **changes}))
    verify(before)
    after = write_in_place(before)
    verify(after)
    assert (after == before) == bool(why)
    for n in (0, 1, 3):
        x = np.linspace(0, 1, n, dtype=np.float32)
        np.testing.assert_array_equal(interpret(before, x), interpret(after, x))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from(["x", "x @ w", "y @ w", "np.exp(y)", "x @ w @ w", "y[::-1]"]), min_size=2, max_size=4),
       st.sampled_from([0, 1]), st.booleans(), st.integers(0, 3), st.integers(0, 3))
def test_drawn_programs(values, axis, named, n, m):
    """Any parts, along either axis: every stage means what NumPy computes."""
    m = n if axis else m
    f = eval(f"lambda x, y, w: np.concatenate([{', '.join(values)}], axis={axis})", {"np": np})  # noqa: S307
    names = ("n", "n" if axis else "m") if named else (n, m)
    rng = np.random.default_rng(n)
    x, y, w = (rng.standard_normal(s).astype(np.float32) for s in ((n, 3), (m, 3), (3, 3)))
    made = stages(f, f32[names[0], 3], f32[names[1], 3], f32[3, 3])
    for name in ("write_in_place", "bind_shapes"):
        verify(made[name])
        assert parse(str(made[name])) == made[name]
        np.testing.assert_allclose(interpret(made[name], x, y, w), f(*(v.astype(float) for v in (x, y, w))), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("offset", ["", ", offset=n"])
def test_a_part_is_no_result(offset):
    module = parse(f"""def main(x: f32[n]) -> f32[n]:
    v0: f32[2*n] = alloc_tensor()
    v1: f32[n] = view(v0{offset})
    return v1""")
    verify(module)
    with pytest.raises(CodegenError, match="v1 is a part of a value"):
        build(module)

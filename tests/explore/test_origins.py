"""What kernels are made of: the names of ops and the user's lines outlive fusion, library calls, branches and loops."""
from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
from minirelax.explore import Origins
from minirelax.ir.graph import Source, joined
from minirelax.ir.parser import parse
from minirelax.passes.legalize import legalize
from minirelax.pipeline import module_stages

rng = np.random.default_rng(0)


def softmax_of_product(x, w):
    y = x @ w
    e = np.exp(y - np.max(y, axis=-1, keepdims=True))
    s = np.sum(e, axis=-1, keepdims=True)
    return e / s


LINES = [f"test_origins.py:{softmax_of_product.__code__.co_firstlineno + i}   {text}" for i, text in enumerate((
    "def", "y = x @ w", "e = np.exp(y - np.max(y, axis=-1, keepdims=True))", "s = np.sum(e, axis=-1, keepdims=True)",
    "return e / s"))]


def ops_of(call):
    return [op.split()[0] for op in call.ops]


def test_fused_kernels_name_all_their_ops_and_lines():
    f = mr.jit(softmax_of_product)
    f(rng.normal(size=(5, 8)), rng.normal(size=(8, 4)))
    found = [op for c in f.kernels for op in ops_of(c)]
    assert sorted(found) == ["divide", "exp", "matmul", "max", "subtract", "sum"]
    assert len(f.kernels) < 6 and list(dict.fromkeys(line for c in f.kernels for line in c.lines)) == LINES[1:]
    assert str(f.executable.kernels) == str(f.kernels)
    assert all(c.pattern in ("reduce", "contraction") for c in f.kernels)


@pytest.mark.parametrize("stage", ["legalize", "fuse_ops", "fuse_kernels", "lower_calls", "plan_memory", "bind_shapes"])
def test_every_later_stage_knows_all_ops(stage):
    module = mr.trace(softmax_of_product, mr.f32["n", "m"], mr.f32["m", "k"])
    after = next(s.module for s in module_stages(module) if s.name == stage)
    leaves = {s for f in after.functions for b in f.bindings if b.source for s in b.source.leaves if s.name}
    assert {s.name.split()[0] for s in leaves} == {"divide", "exp", "matmul", "max", "subtract", "sum"}
    assert {s.line for s in leaves} == {int(line.split(":")[1].split()[0]) for line in LINES[1:]}


def test_names_are_those_of_the_values_in_the_trace():
    f = mr.jit(softmax_of_product)
    f(rng.normal(size=(5, 8)), rng.normal(size=(8, 4)))
    traced = {f"{b.value.opname()} {b.var}" for b in f.stages["trace"].module.functions[0].bindings}
    assert {op for c in f.kernels for op in c.ops} == traced


def test_two_calls_of_one_kernel_have_lines_of_their_own():
    def twice(x):
        a = np.exp(np.sort(x, axis=0))
        return np.sort(np.exp(np.sort(a, axis=0)), axis=0)

    f = mr.jit(twice)
    f(rng.normal(size=7))
    first = twice.__code__.co_firstlineno
    calls = [c for c in f.kernels if c.pattern != "library"]
    assert len({c.kernel for c in calls}) == 1
    assert [c.lines[0].split()[0] for c in calls] == [f"test_origins.py:{first + 1}", f"test_origins.py:{first + 2}"]
    assert [ops_of(c) for c in f.kernels if c.pattern == "library"] == [["sort"]] * 3


def test_a_user_kernel_and_a_branch_are_there():
    @mr.kernel
    def double(x: f64[n], out: f64[n], *, n):  # noqa: F821
        for i in range(n):
            out[i] = x[i] + x[i]

    def program(x):
        return mr.cond(np.sum(x) > 0, lambda a: double(np.exp(a)), lambda a: a, x)

    f = mr.jit(program)
    f(np.ones(3))
    assert {c.function for c in f.kernels} > {"main"}
    assert any(op.startswith("double ") for c in f.kernels for op in c.ops)


def test_products_that_are_joined_keep_the_names_and_lines_of_all():
    def heads(x, wq, wk, wv):
        q = x @ wq
        k = x @ wk
        return np.tanh(q), np.tanh(k), x @ wv

    f = mr.jit(heads, constants=("wq", "wk", "wv"))
    f(rng.normal(size=(5, 8)), *(rng.normal(size=(8, 16)) for _ in range(3)))
    first = heads.__code__.co_firstlineno
    found = [c for c in f.kernels if "matmul" in c.kernel]
    assert {op for c in found for op in ops_of(c)} >= {"matmul"}
    lines = {line.split()[0] for c in found for line in c.lines}
    assert lines == {f"test_origins.py:{first + k}" for k in (1, 2, 3)}
    assert len({op for c in found for op in c.ops if op.startswith("matmul ")}) == 3


def test_parsed_programs_have_names_without_lines():
    module = parse("""
def main(x: f32[n, m]) -> f32[n]:
    with dataflow():
        v0: f32[n, m] = exp(x)
        v1: f32[n] = sum(v0, axes=(1,), keepdims=False)
        output(v1)
    return v1""")
    origins = Origins(module_stages(module)[-1].module)
    (call,) = origins
    assert call.ops == ("exp v0", "sum v1") and call.lines == () and origins[call.kernel] is call
    assert str(origins).splitlines()[2].split("   ")[-1].strip() == "exp v0, sum v1"
    with pytest.raises(KeyError, match="no kernel 'sin'; there are"):
        origins["sin"]


def test_a_literal_that_is_returned_has_a_name_too():
    module = legalize(parse("def main(x: f32[n]) -> f32[()]:\n    return f32(2.0)"))
    assert [c.ops for c in Origins(module)] == [("full v0",)]


def test_the_ops_of_a_group_that_was_made_before_them_have_names():
    module = parse("""
@group
def pair(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = exp(x)
        v1: f32[n] = add(v0, 1.0)
        output(v1)
    return v1

def main(y: f32[n]) -> f32[n]:
    with dataflow():
        w0: f32[n] = call_function(pair, y)
        output(w0)
    return w0""")
    found = next(f for f in legalize(module).functions if f.name == "main").bindings[0].source
    assert [s.name for s in found.leaves] == ["exp v0", "add v1"]


def test_joined_sources_are_flat_and_unique():
    a, b, c = Source("f.py", 1, "exp v0"), Source("f.py", 2, "add v1"), Source(name="full v2")
    assert joined([]) is None and joined([None]) is None and joined([a, None, a]) == a
    assert joined([joined([a, b]), joined([b, c])]).parts == (a, b, c)
    assert (joined([a, b, c]).file, joined([a, b, c]).line) == ("f.py", 2)
    assert joined([c, c]) == c and c.leaves == (c,)


def test_nothing_is_compiled_to_be_interpreted():
    f = mr.jit(softmax_of_product, target="interpret")
    f(rng.normal(size=(5, 8)), rng.normal(size=(8, 4)))
    with pytest.raises(mr.errors.ArgumentError, match="compiles nothing, so there is no kernels"):
        f.kernels  # noqa: B018

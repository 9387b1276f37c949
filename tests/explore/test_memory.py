"""The memory view: lives, storages, peak bytes."""
from __future__ import annotations

import pytest

from minirelax.explore import memory_plan
from minirelax.ir.dim import dim
from minirelax.ir.graph import AllocStorage, AllocTensor, Binding, Function, MakeTuple, Module, RunKernel, Var, View
from minirelax.ir.parser import parse
from minirelax.ir.types import Storage, Tuple, f32
from minirelax.pipeline import passes
from minirelax.pipeline import run as run_passes

n = dim("n")
x, a, b, c, out = (Var(name, f32["n"]) for name in ("x", "v2", "v3", "v4", "v5"))
first, second = Var("v0", Storage(4 * n)), Var("v1", Storage(4 * n))


def run(name, source, target):
    return Binding(None, RunKernel(name, (source,), (target,), (n,)))


def chain(*extra, result=out) -> Module:
    """x -> a -> b -> c -> out, with a and c sharing one storage."""
    bindings = (
        Binding(first, AllocStorage(4 * n)), Binding(second, AllocStorage(4 * n)),
        Binding(a, AllocTensor((first,))), run("exp", x, a), Binding(b, AllocTensor((second,))), run("log", a, b),
        Binding(c, AllocTensor((first,))), run("sin", b, c), Binding(out, AllocTensor()), run("cos", c, out), *extra)
    return Module((Function("main", (x,), bindings, result),))


def test_tenants_and_their_lives():
    plan = memory_plan(chain())
    assert plan.steps == ("exp", "log", "sin", "cos")
    assert [(s.name, [(t.name, t.first, t.last) for t in s.tenants]) for s in plan.storages] == [
        ("v0", [("v2", 0, 1), ("v4", 2, 3)]), ("v1", [("v3", 1, 2)])]
    assert [t.name for t in plan.results] == ["v5"]


def test_peak_as_expression_and_number():
    plan = memory_plan(chain())
    assert plan.peak == 8 * n and plan.unplanned == 3 * dim("(4*n + 63)//64*64") and plan.peak_bytes(n=1000) == 8000
    with pytest.raises(KeyError):
        plan.peak_bytes(m=3)


def test_a_view_keeps_its_tensor_alive():
    seen, last = Var("v6", f32["n", 1]), Var("v7", f32["n", 1])
    plan = memory_plan(chain(Binding(seen, View(b)), Binding(last, AllocTensor()), run("tan", seen, last), result=last))
    tenant = plan.storages[1].tenants[0]
    assert (tenant.name, tenant.first, tenant.last) == ("v3", 1, 4)


def test_what_is_in_the_result_lives_to_the_end():
    pair = Var("v8", Tuple((f32["n"], f32["n"])))
    plan = memory_plan(chain(Binding(pair, MakeTuple((out, b))), result=pair))
    assert plan.storages[1].tenants[0].last == 3


def test_text():
    lines = str(memory_plan(chain()).at(n=1000)).splitlines()
    assert "4*n = 4,000" in lines[2] and "v2 (0-1), v4 (2-3)" in lines[2] and "██▒▒" in lines[2]
    assert "·██·" in lines[3]
    assert "peak             8*n = 8,000 bytes" in lines
    assert lines[-2].startswith("without sharing  192*((n + 15)//16) = 12,096 bytes")


def test_bodies_of_loops_take_turns_in_the_same_memory():
    text = """
@private
def then(x: f32[k]) -> f32[k]:
    with dataflow():
        v0: f32[k] = cumsum(x, axis=0)
        v1: f32[k] = sort(v0, axis=0)
        v2: f32[k] = cumsum(v1, axis=0)
        output(v2)
    return v2

@private
def otherwise(x: f32[k]) -> f32[k]:
    with dataflow():
        v0: f32[k] = sort(x, axis=0)
        v1: f32[k] = cumsum(v0, axis=0)
        output(v1)
    return v1

def main(x: f32[n, 16], p: bool[()]) -> f32[n, 16]:
    with dataflow():
        v0: f32[16*n] = reshape(x, shape=(16*n,))
        output(v0)
    v1: f32[16*n] = cond(p, then, otherwise, v0)
    with dataflow():
        v2: f32[n, 16] = reshape(v1, shape=(n, 16))
        v3: f32[n, 16] = cumsum(v2, axis=0)
        output(v3)
    return v3
"""
    module = next(s.module for s in run_passes(parse(text), passes()) if s.name == "plan_memory")
    plan = memory_plan(module)
    assert [(b.name, b.depth, str(b.bytes)) for b in plan.bodies] == [("then", 1, "128*n"), ("otherwise", 1, "64*n")]
    assert str(plan.peak) == "192*n" and str(plan.unplanned) == "256*n"      # v1, and the larger of the branches
    assert "otherwise" in str(plan)

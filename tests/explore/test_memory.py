"""The memory view: lives, storages, peak bytes."""
from __future__ import annotations

import pytest

from minirelax.explore import memory_plan
from minirelax.ir.dim import dim
from minirelax.ir.graph import AllocStorage, AllocTensor, Binding, Function, MakeTuple, Module, RunKernel, Var, View
from minirelax.ir.types import Storage, Tuple, f32

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

"""pack_weights, lower_calls, plan_memory, bind_shapes: the traps of memory and sizes."""

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32
from minirelax.ir.dim import dim
from minirelax.ir.graph import AllocStorage, AllocTensor, Heap, MatchShape, RunKernel, View
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.passes.bind_shapes import bind_shapes, heap_slots
from minirelax.passes.pack_weights import pack_weights
from minirelax.passes.plan_memory import plan_memory, planned_bytes, upper_bound
from minirelax.pipeline import GRAPH_PASSES, KERNEL_PASSES, call_passes, compile_module, passes, run
from tests.passes.programs import PROGRAMS


def compiled(text: str, **options):
    """The module after all passes."""
    return run(parse(text), passes(options.get("bounds")))[-1].module


def chain(*sizes: str) -> str:
    """A statement-level program: one tensor of each size made from the one before, the last one returned."""
    lines, before = [], "x"
    for i, size in enumerate(sizes):
        lines += [
            f"    v{i}: f32[{size}] = alloc_tensor()",
            f"    run_kernel(first, {before}, out=(v{i},), sizes=({'n' if before == 'x' else sizes[i - 1]}, {size}))",
        ]
        before = f"v{i}"
    return "\n".join(
        [
            """
@kernel
def first(x: f32[a], out: f32[b], *, a, b):
    for i in range(b):
        out[i] = x[i % a]

def main(x: f32[n], y: f32[m]) -> f32["""
            + sizes[-1]
            + "]:",
            *lines,
            f"    return {before}",
        ]
    )


def storages(module) -> list[str]:
    return [str(b.value.bytes) for b in module["main"].bindings if isinstance(b.value, AllocStorage)]


def test_memory_is_shared_by_symbolic_equality():
    assert storages(plan_memory()(parse(chain("16*n", "8*n + 8*n", "16*n", "n*16", "n")))) == ["64*n", "64*n"]


def test_sizes_that_can_be_ordered_need_to_be_equal_to_share():
    assert storages(plan_memory()(parse(chain("16*n", "16*n", "16*n + 16", "n")))) == ["64*n", "64*n", "64*n + 64"]


def test_where_sizes_cannot_be_compared_the_larger_of_two_is_shared():
    assert storages(plan_memory()(parse(chain("16*n", "16*m", "16*n + 16", "n")))) == ["64*n + 64", "64*m"]


def test_with_bounds_storage_is_constant_and_may_grow():
    """The third tensor is a little larger than the first, whose memory it takes over."""
    planned = plan_memory({"n": (0, 1024)})(parse(chain("2*n", "2*n", "2*n", "2*n + 2", "n")))
    assert storages(planned) == ["8192", "8256"] and planned_bytes(planned["main"]) == 8192 + 8256


def test_a_lower_bound_is_no_upper_bound():
    assert storages(plan_memory({"n": (8, None)})(parse(chain("16*n", "16*m", "n")))) == ["64*n", "64*m"]


def test_partly_bounded():
    assert storages(plan_memory({"m": (1, 20)})(parse(chain("16*m*n", "n")))) == ["1280*n"]


@pytest.mark.parametrize("text, bound", [("n", 9), ("3*n - m", 27 - 2), ("(n + 3)//4", 3), ("n % 4", 3), ("m*n", 45), ("k", "k")])
def test_upper_bounds(text, bound):
    assert upper_bound(dim(text), {"n": (1, 9), "m": (2, 5)}) == (dim(bound) if isinstance(bound, str) else bound)


def test_a_view_keeps_memory_alive():
    text = """
@kernel
def both(x: f32[n], y: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] + y[i]

def main(x: f32[16*n], y: f32[n]) -> f32[16*n]:
    v0: f32[16*n] = alloc_tensor()
    run_kernel(both, x, x, out=(v0,), sizes=(16*n,))
    v1: f32[n, 16] = view(v0)
    v2: f32[16*n] = alloc_tensor()
    run_kernel(both, x, x, out=(v2,), sizes=(16*n,))
    v3: f32[16*n] = view(v1)
    v4: f32[16*n] = alloc_tensor()
    run_kernel(both, v2, v3, out=(v4,), sizes=(16*n,))
    return v4"""
    planned = plan_memory()(parse(text))
    assert storages(planned) == ["64*n", "64*n"]
    x = np.ones(32, np.float32)
    np.testing.assert_array_equal(interpret(planned, x, np.ones(2, np.float32)), 4 * x)


def test_results_have_no_planned_storage():
    for name in ("concatenation", "aliases"):
        module = compiled(PROGRAMS[name][0])
        main = module["main"]
        leaves = next(b.value.items for b in main.bindings if b.var == main.result)
        home = {b.var: b.value for b in main.bindings if b.var}
        for leaf in leaves:
            while isinstance(home.get(leaf), View):
                leaf = home[leaf].value
            assert leaf not in home or not home[leaf].storage


def test_a_reshape_of_a_value_is_a_view_and_of_a_returned_argument_a_copy():
    text = """
def main(x: f32[n, 4]) -> Tuple[f32[4*n], f32[2*n, 2]]:
    with dataflow():
        v0: f32[n, 4] = sort(x, axis=1)
        v1: f32[4*n] = reshape(v0, shape=(4*n,))
        v2: f32[2*n, 2] = reshape(x, shape=(2*n, 2))
        v3: Tuple[f32[4*n], f32[2*n, 2]] = (v1, v2)
        output(v3)
    return v3"""
    main = compiled(text)["main"]
    assert [str(b.var) for b in main.bindings if isinstance(b.value, View)] == ["v1"]
    assert sum(isinstance(b.value, RunKernel) for b in main.bindings) == 1


@pytest.mark.parametrize(
    "old, new",
    [
        ("n, m, 4", "n, 4*m"),
        ("n, 4*m", "n, m, 4"),
        ("m*n, 6", "m, n, 2, 3"),
        ("n, 1, m", "n, m"),
        ("2*n, 3", "n, 6"),
        ("n, 6", "3*n, 2"),
    ],
)
def test_symbolic_reshapes_are_views(old, new):
    shape = f"({new},)"
    text = f"""
def main(x: f32[{old}], n: f32[n], m: f32[m]) -> f32[{new}]:
    with dataflow():
        v0: f32[{old}] = sort(x, axis=1)
        v1: f32[{new}] = reshape(v0, shape={shape})
        output(v1)
    return v1"""
    assert any(isinstance(b.value, View) for b in compiled(text)["main"].bindings)


def test_a_transpose_is_no_view():
    text = """
def main(x: f32[n, n]) -> f32[n, n]:
    with dataflow():
        v0: f32[n, n] = sort(x, axis=1)
        v1: f32[n, n] = transpose(v0, axes=(1, 0))
        output(v1)
    return v1"""
    assert not any(isinstance(b.value, View) for b in compiled(text)["main"].bindings)


@pytest.mark.parametrize(
    "step", ["slice(v0, starts=(0,), sizes=(3,), steps=(1,))", "slice(v0, starts=(1,), sizes=(3,), steps=(1,))"]
)
def test_a_part_is_no_view(step):
    text = f"""
def main(x: f32[5]) -> f32[3]:
    with dataflow():
        v0: f32[5] = sort(x, axis=0)
        v1: f32[3] = {step}
        output(v1)
    return v1"""
    assert not any(isinstance(b.value, View) for b in compiled(text)["main"].bindings)


def packed(text: str, width: int):
    stages = run(parse(text), (*GRAPH_PASSES, *KERNEL_PASSES, pack_weights(lambda dtype: width)))
    return stages[-1].module


PRODUCT = """
def main(x: f32[n, {k}], *, w: f32[{w}], z: f32[{k}, {j}]) -> f32[n, {j}]:
    with dataflow():
        v0: f32[n, {j}] = {product}
        v1: f32[n, {j}] = matmul(x, z)
        v2: f32[n, {j}] = {both}
        output(v2)
    return v2"""


@pytest.mark.parametrize("j", [7, 8, 9, 20])
@pytest.mark.parametrize(
    "weight, product, transposed",
    [("{k}, {j}", "matmul(x, w)", False), ("{j}, {k}", 'einsum((x, w), subscripts="ik,jk->ij")', True)],
)
def test_packed_products(j, weight, product, transposed):
    text = PRODUCT.format(k=8, j=j, w=weight.format(k=8, j=j), product=product, both="add(v0, v1)")
    module = packed(text, 8)
    names = [v.name for v in module["main"].bound]
    assert sorted(names) == ["w_packed", "z_packed"] and f"transposed={transposed}" in str(module["bind"])
    rng = np.random.default_rng(0)
    x, w, z = (rng.standard_normal(s).astype(np.float32) for s in ((3, 8), (j, 8) if transposed else (8, j), (8, j)))
    got = interpret(module, x, bound=interpret(module, w, z, function="bind"))
    np.testing.assert_allclose(got, interpret(parse(text), x, bound=(w, z)), rtol=1e-5, atol=1e-5)


def test_a_weight_that_is_read_elsewhere_stays_as_well():
    text = """
def main(x: f32[n, 8], *, w: f32[8, 8]) -> f32[n, 8]:
    with dataflow():
        v0: f32[n, 8] = matmul(x, w)
        v1: f32[8, 8] = multiply(w, w)
        v2: f32[n, 8] = matmul(v0, v1)
        v3: f32[n, 8] = take(w, y, axis=0, mode="clip")
        v4: f32[n, 8] = add(v2, v3)
        output(v4)
    return v4""".replace("x: f32[n, 8], *", "x: f32[n, 8], y: i64[n], *")
    assert [v.name for v in packed(text, 8)["main"].bound] == ["w", "w_packed", "v1_packed"]


@pytest.mark.parametrize("k, j", [(7, 16), (16, 3)])
def test_small_weights_are_not_packed(k, j):
    text = PRODUCT.format(k=k, j=j, w=f"{k}, {j}", product="matmul(x, w)", both="add(v0, v1)")
    assert [v.name for v in packed(text, 8)["main"].bound] == ["w", "z"]


def test_a_kernel_is_kept_for_calls_that_cannot_be_packed():
    text = """
def main(x: f32[n, 8], u: f32[8, 8], *, w: f32[8, 8]) -> f32[n, 8]:
    with dataflow():
        v0: f32[n, 8] = matmul(x, w)
        v1: f32[n, 8] = matmul(v0, u)
        output(v1)
    return v1"""
    assert [k.name for k in packed(text, 8).kernels] == ["matmul", "matmul_2"]


def test_constants_are_packed_now():
    weights = ", ".join(["[" + ", ".join(["1.0"] * 2) + "]"] * 8)
    text = f"""
c0: f32[8, 2] = constant([{weights}])

def main(x: f32[n, 8]) -> f32[n, 2]:
    with dataflow():
        v0: f32[n, 2] = matmul(x, c0)
        output(v0)
    return v0"""
    module = packed(text, 4)
    assert [(c.name, str(c.array.type)) for c in module.constants] == [("c0_packed", "f32[1, 8, 4]")]
    np.testing.assert_array_equal(interpret(module, np.ones((3, 8), np.float32)), np.full((3, 2), 8, np.float32))


def test_sizes_that_need_each_other_are_matched_in_two_rounds():
    text = """
@kernel
def keep(x: f32[a, b], out: f32[a, b], *, a, b):
    for i in range(a):
        for j in range(b):
            out[i, j] = x[i, j]

def main(x: f32[n, m + 1], y: f32[m, n + 1]) -> f32[n, m + 1]:
    v0: f32[n, m + 1] = alloc_tensor()
    run_kernel(keep, x, out=(v0,), sizes=(n, m + 1))
    return v0"""
    main = bind_shapes(parse(text))["main"]
    patterns = [(str(b.value.value), b.value.binds) for b in main.bindings if isinstance(b.value, MatchShape)]
    assert patterns == [("x", ("n",)), ("y", ("m",)), ("x", ()), ("y", ())]
    assert {str(d): s for d, s in heap_slots(main).items()} == {"n": 0, "m": 1, "m + 1": 2, "n + 1": 3}


def test_every_size_has_one_slot():
    main = compiled(PROGRAMS["attention"][0])["main"]
    slots = heap_slots(main)
    computed = [b.value.value for b in main.bindings if isinstance(b.value, Heap)]
    assert len(set(computed)) == len(computed) and sorted(slots.values()) == list(range(len(slots)))
    shapes = {d for b in main.bindings if isinstance(b.value, AllocTensor) for d in b.var.type.shape if not isinstance(d, int)}
    assert shapes <= slots.keys()


def test_options_reach_the_passes():
    names = ["pack_weights", "lower_calls", "write_in_place", "lift_workspaces", "reuse_inputs", "plan_memory", "bind_shapes"]
    assert [p.__name__ for p in call_passes({"n": (1, 2)})] == names
    assert all("n" not in s for s in storages(compiled(PROGRAMS["mlp"][0], bounds={"n": (1, 8)})))


@pytest.mark.parametrize("result", ["v1", "v2"])
def test_a_literal_that_is_returned_becomes_a_value(result):
    function, kind = {"v1": ("bool[()]", "bool[()]"), "v2": ("Tuple[bool[()], bool[()]]",) * 2}[result]
    module = parse(f"""
def main(x: f32[n], c: bool[()]) -> {function}:
    with dataflow():
        v0: bool[()] = full(bool(True), shape=())
        v1: bool[()] = where(c, v0, v0)
        v2: Tuple[bool[()], bool[()]] = (v1, v0)
        output({result})
    return {result}
""")
    found = compile_module(module).bind()((np.zeros(3, "f4"), np.array(False)))
    assert [bool(v) for v in found] == [True] * len(found)


def test_packing_keeps_the_kernels_of_other_functions():
    """A loop's body calls kernels of its own."""
    def grow(x, w):
        y = x @ w
        return mr.fori_loop(0, 3, lambda i, c: np.tanh(c) + y, y)

    module = run(mr.trace(grow, f32["n", 16], f32[16, 64], constants="w"), passes())[-1].module
    called = {b.value.kernel for f in module.functions for b in f.bindings if isinstance(b.value, RunKernel)}
    assert called == {k.name for k in module.kernels} and len(called) > 1


EXAMPLE = chain("2*n", "2*n", "2*n", "2*n + 4", "n")


@pytest.mark.parametrize("bounds, expected", [(None, 3), ({"n": (1, 1024)}, 2), ({"n": (4, None)}, 3)])
def test_four_tensors_in_three_storages_or_with_bounds_two(bounds, expected):
    """The sizes of Relax's figure 10: without a bound, the last one fits nowhere."""
    planned = plan_memory(bounds)(parse(EXAMPLE))
    found = storages(planned)
    assert len(found) == expected and (all(s.isdigit() for s in found) if expected == 2 else "n" in found[0])
    for n in (1, 8, 1024):
        x, y = np.arange(n, dtype=np.float32), np.zeros(n, np.float32)
        want = interpret(parse(EXAMPLE), x, y)
        np.testing.assert_array_equal(interpret(planned, x, y), want)


def test_small_tensors_share_what_a_large_one_had():
    text = chain("256*n", "64*n", "64*n", "64*n", "n")
    planned = plan_memory()(parse(text))
    assert planned_bytes(planned["main"]) == 1280 * dim("n") and parse(str(planned)) == planned
    x, y = np.arange(3, dtype=np.float32), np.zeros(3, np.float32)
    np.testing.assert_array_equal(interpret(planned, x, y), interpret(parse(text), x, y))


def test_a_call_beyond_the_limit_is_refused():
    program = compile_module(parse("""
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = sort(x, axis=0)
        v1: f32[n] = cumsum(v0, axis=0)
        output(v1)
    return v1"""), memory_limit=4096)
    assert program(np.ones(100, np.float32))[0][-1] == 100
    with pytest.raises(mr.errors.RunError, match="more than its limit of 4,096"):
        program(np.ones(10000, np.float32))

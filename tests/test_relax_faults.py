"""Open faults of TVM's Relax, as programs of ours: each is compiled, and means the same at every stage.

Each test names the report.  The programs and words here are our own; what they have in common with the reports is the fault.
"""

from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr
from minirelax.errors import ShapeError, VerifyError
from minirelax.ir.dim import dim
from minirelax.ir.graph import Module
from minirelax.ir.interpret import interpret
from minirelax.ir.parser import parse
from minirelax.ir.types import Storage, Tuple
from minirelax.passes.plan_memory import planned_bytes
from minirelax.pipeline import compile_module, passes, run


def agrees(text: str, *calls: tuple, native: bool = True) -> Module:
    """Every stage, and the compiled program, give what the text means.  The last module is returned."""
    module = parse(text)
    stages = run(module, passes())
    bound = compile_module(module).bind() if native else None
    for args in calls:
        want = _flat(interpret(module, *args))
        for stage in stages:
            _close(_flat(interpret(stage.module, *args)), want, stage.name)
        if bound is not None:
            found = bound([np.asarray(a, np.int64 if isinstance(a, tuple) else None) for a in _flat(args)])
            assert found is not None, "the program does not take the arguments"
            _close(_flat(found), want, "build")
    return stages[-1].module


def _flat(value) -> list:
    """The arrays in nested tuples; a tuple of integers is one shape."""
    if isinstance(value, tuple) and not (value and all(isinstance(n, int) for n in value)):
        return [leaf for item in value for leaf in _flat(item)]
    return [value]


def _close(got, want, where: str) -> None:
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert np.shape(g) == np.shape(w), where
        np.testing.assert_allclose(g, w, rtol=1e-5, err_msg=where)


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def test_a_call_stays_below_the_match_cast_that_binds_its_size():
    """https://github.com/apache/tvm/issues/20195: fusion moved a kernel above the binding of a size only its result mentions."""
    text = """
    def main(x: f32[n, 8], s: Shape(ndim=2)) -> Tuple[f32[n, 8], f32[p, 8]]:
        with dataflow():
            v0: f32[n, 8] = exp(x)
            v1: Shape([p, 8]) = match_cast(s, Shape([p, 8]))
            v2: f32[p, 8] = full(f32(1.0), shape=(p, 8))
            v3: f32[p, 8] = exp(v2)
            v4: f32[n, 8] = add(v0, 1.0)
            v5: Tuple[f32[n, 8], f32[p, 8]] = (v4, v3)
            output(v5)
        return v5
    """.replace("\n    ", "\n")
    agrees(text, *((floats(n, 8), (p, 8)) for n, p in ((3, 5), (0, 1), (1, 0))))


def test_another_branch_that_fuses_with_a_later_reader():
    """https://github.com/apache/tvm/issues/20177: the match_cast in between took its place after what needs it."""
    text = """
    def main(x: f32[n], keep: bool[n]) -> f32[m]:
        with dataflow():
            v0: f32[n] = exp(x)
            v1: f32[_] = compress(keep, v0, axis=0)
            v2: f32[m] = match_cast(v1, f32[m])
            v4: f32[m] = iota(size=m, dtype="f32")
            v5: f32[m] = multiply(v2, v4)
            v6: f32[m] = add(v5, v4)
            output(v6)
        return v6
    """.replace("\n    ", "\n")
    agrees(text, *((floats(n), floats(n) > 0.1) for n in (0, 1, 9)))


def test_a_fused_kernel_knows_all_sizes_that_it_mentions():
    """https://github.com/apache/tvm/issues/20238: height and width, only in the sizes between two strided steps, were unbound."""
    @mr.jit
    def f(x, w):
        y = (x[:, ::2, ::2] * w[:, None, None])[:, : x.shape[1] // 4, : x.shape[2] // 4]
        return np.maximum(y + 1, 0).reshape(x.shape[0], -1).sum(1)

    for h, w in ((8, 12), (9, 11), (16, 5)):
        x, k = floats(3, h, w), floats(3)
        np.testing.assert_allclose(f(x, k), f.fn(x, k), rtol=1e-5, atol=1e-5)
    assert len(f.compilations) == 1          # verify has seen every kernel: none mentions a size that it is not given


@pytest.mark.parametrize("change", ["", "v1: i64[2] = multiply(v6, 1)"])
def test_symbolic_sizes_are_not_folded(change: str):
    """https://github.com/apache/tvm/issues/20260: shape_to_tensor of symbols crashed constant folding, or became a constant."""
    text = """
    def main(x: f32[n, 4]) -> f32[n, 4]:
        with dataflow():
            v0: Shape([n, 4]) = shape_of(x)
            v1: i64[2] = shape_to_tensor(v0)
            v2: Shape(ndim=2) = tensor_to_shape(v1)
            v3: f32[_, _] = reshape_to(x, v2)
            v4: f32[n, 4] = match_cast(v3, f32[n, 4])
            v5: f32[n, 4] = exp(v4)
            output(v5)
        return v5
    """.replace("\n    ", "\n")
    if change:
        text = text.replace("v1: i64[2] = shape", "v6: i64[2] = shape").replace("        v2:", f"        {change}\n        v2:")
    agrees(text, (floats(3, 4),), (floats(0, 4),), (floats(1, 4),))


def test_storage_is_there_before_each_branch_that_uses_it():
    """https://github.com/apache/tvm/issues/20191: memory planned in one branch was used in the other, and the process crashed."""
    text = """
    @private
    def then(x: f32[n]) -> f32[n]:
        with dataflow():
            v0: f32[n] = cumsum(x, axis=0)
            v1: f32[n] = sort(v0, axis=0)
            v2: f32[n] = cumsum(v1, axis=0)
            output(v2)
        return v2

    @private
    def otherwise(x: f32[n]) -> f32[n]:
        with dataflow():
            v0: f32[n] = sort(x, axis=0)
            v1: f32[n] = cumsum(v0, axis=0)
            v2: f32[n] = multiply(v1, v0)
            v3: f32[n] = sort(v2, axis=0)
            output(v3)
        return v3

    def main(p: bool[()], x: f32[n]) -> f32[n]:
        with dataflow():
            v0: f32[n] = cumsum(x, axis=0)
            output(v0)
        v1: f32[n] = cond(p, then, otherwise, v0)
        with dataflow():
            v2: f32[n] = add(v1, v0)
            output(v2)
        return v2
    """.replace("\n    ", "\n")
    last = agrees(text, *((np.array(p), floats(n)) for p in (True, False) for n in (0, 1, 70)))
    for function in last.functions:                     # each function's tensors live in storage of its own
        mine = {b.var.name for b in function.bindings if b.var and isinstance(b.var.type, Storage)}
        used = {s.name for b in function.bindings for s in getattr(b.value, "storage", ())}
        assert used == mine


def test_a_lower_bound_is_not_an_upper_one():
    """https://github.com/apache/tvm/pull/18663: with only a smallest size given, memory was planned for that size."""
    text = """
    def main(x: f32[n]) -> f32[n]:
        with dataflow():
            v0: f32[n] = cumsum(x, axis=0)
            v1: f32[n] = sort(v0, axis=0)
            v2: f32[n] = cumsum(v1, axis=0)
            output(v2)
        return v2
    """.replace("\n    ", "\n")
    for bounds, numeric in (({"n": (16, None)}, False), ({"n": (None, 64)}, True), ({"n": (16, 64)}, True), (None, False)):
        planned = planned_bytes(run(parse(text), passes(bounds))[-1].module["main"])
        assert isinstance(planned, int) == numeric
    assert planned_bytes(run(parse(text), passes({"n": (16, None)}))[-1].module["main"]) == 2 * dim("(4*n + 63)//64*64")
    executable = compile_module(parse(text), bounds={"n": (16, None)})
    x = floats(5000)
    np.testing.assert_allclose(executable.bind()([x])[0], np.cumsum(np.sort(np.cumsum(x))), rtol=1e-4)


def test_a_shape_that_is_data():
    """https://github.com/apache/tvm/issues/20174: a reshape whose target is a tensor of numbers at run time was refused."""
    text = """
    def main(x: f32[n, m], t: i64[2]) -> f32[p, q]:
        with dataflow():
            v0: Shape(ndim=2) = tensor_to_shape(t)
            v1: Shape([p, q]) = match_cast(v0, Shape([p, q]))
            v2: f32[p, q] = reshape_to(x, v1)
            v3: f32[p, q] = exp(v2)
            output(v3)
        return v3
    """.replace("\n    ", "\n")
    agrees(text, *((floats(4, 6), np.array(t)) for t in ([6, 4], [24, 1], [3, 8])), (floats(0, 6), np.array([3, 0])))
    bound = compile_module(parse(text)).bind()
    for run_it in (lambda *a: interpret(parse(text), *a), lambda *a: bound(a)):
        with pytest.raises((ShapeError, mr.errors.RunError)):
            run_it(floats(4, 6), np.array([5, 5]))


def test_a_tuple_parameter_with_symbolic_fields():
    """https://github.com/apache/tvm/issues/20335: a tuple of weights, of unknown or symbolic sizes, crashed the compiler."""
    text = """
    def main(x: f32[n], p: Tuple[f32[n, m + 1], Tuple[f32[m], f32[_]]]) -> f32[m + 1]:
        with dataflow():
            v0: f32[n, m + 1] = p[0]
            v1: Tuple[f32[m], f32[_]] = p[1]
            v2: f32[_] = v1[1]
            v3: f32[m + 1] = match_cast(v2, f32[m + 1])
            v4: f32[1, n] = reshape(x, shape=(1, n))
            v5: f32[1, m + 1] = matmul(v4, v0)
            v6: f32[m + 1] = reshape(v5, shape=(m + 1,))
            v7: f32[m + 1] = add(v6, v3)
            output(v7)
        return v7
    """.replace("\n    ", "\n")
    agrees(text, *((floats(n), (floats(n, m + 1), (floats(m), floats(m + 1)))) for n, m in ((3, 4), (1, 0), (0, 2))))
    module = parse(text)
    assert isinstance(module["main"].params[1].type, Tuple)
    with pytest.raises(ShapeError, match="main: argument p"):
        interpret(module, floats(3), (floats(3, 5), (floats(5), floats(5))))
    with pytest.raises(VerifyError, match="the size m"):
        run(parse(text.replace("Tuple[f32[m], f32[_]]]", "Tuple[f32[_], f32[_]]]").replace(
            "v1: Tuple[f32[m], f32[_]]", "v1: Tuple[f32[_], f32[_]]")), passes())


@pytest.mark.parametrize("dtype", ["u1", "i8", "?", "f4"])
@pytest.mark.parametrize("name", ["argmin", "argmax"])
def test_the_place_of_an_extreme_that_nothing_beats(name: str, dtype: str):
    """https://github.com/apache/tvm/issues/17835: where all elements were the start value of the search, its place was -1."""
    kind = np.dtype(dtype)
    extreme = {"b": (False, True), "u": (0, 255), "i": (-(2**63), 2**63 - 1), "f": (-np.inf, np.inf)}[kind.kind]
    f = mr.jit(lambda x, y: (getattr(np, name)(np.where(y, x, x), axis=0), getattr(np, name)(x)))
    for value in extreme:
        for n in (1, 2, 24):
            x, y = np.full(n, value, kind), np.arange(n) % 2 == 0
            assert tuple(map(int, f(x, y))) == (0, 0)

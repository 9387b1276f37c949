"""Arrays put together (padded, concatenated, written over in part) are not stored where their reader can choose what it reads."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import minirelax as mr
from examples.benchmarks.workloads import conv_net, conv_net_weights, convolve
from minirelax import f32
from minirelax.codegen.numba_cpu import kernel_plan
from minirelax.ir.checked import VARIABLE
from minirelax.ir.graph import AllocTensor, RunKernel
from minirelax.ir.interpret import interpret
from minirelax.ir.parse_loops import parse_kernel
from minirelax.ir.parser import parse
from minirelax.passes.assemblies import definition
from minirelax.pipeline import passes

FEW = settings(deadline=None, derandomize=True, database=None, max_examples=30, suppress_health_check=list(HealthCheck))
NM, KM, NK = f32["n", "m"], f32["k", "m"], f32["n", "k"]


def padded(x):
    return np.pad(x, ((1, 2), (0, 3)), constant_values=0.5)


ONE_KERNEL = {
    "pad, then a function": (lambda x: np.exp(padded(x)), NM),
    "pad, then a sum of rows": (lambda x: np.sum(padded(x), axis=1), NM),
    "pad, then a sum of columns": (lambda x: np.sum(padded(x), axis=0), NM),
    "pad, transposed": (lambda x: padded(x).T * 2, NM),
    "rows, then a function": (lambda x, y: np.concatenate([x, y, x]) * 2, NM, KM),
    "columns, then a sum of rows": (lambda x, y: np.sum(np.abs(np.concatenate([x, y], axis=1)), axis=1), NM, NK),
    "on the left of a product": (lambda x, y, w: np.concatenate([x, y], axis=1) @ w, NM, NK, f32["m + k", "p"]),
    "on the right of a product": (lambda x, y, w: w @ np.concatenate([x, y]), NM, KM, f32["p", "n + k"]),
    "columns on the right of a product": (lambda x, y, w: w @ np.concatenate([x, y], axis=1), NM, NK, f32["p", "n"]),
    "padded on the left": (lambda x, w: padded(x) @ w, NM, f32["m + 3", "p"]),
    "padded on the right, transposed": (lambda x, w: w @ padded(x).T, NM, f32["p", "m + 3"]),
    "a convolution": (lambda x, w: convolve(x, w), f32["n", "m", "k", 2], f32[18, "p"]),
    "a convolution with steps": (lambda x, w: np.maximum(convolve(x, w, 2), 0), f32["n", "m", "k", 2], f32[18, "p"]),
}
SIZES = [dict(zip("nmkp", s, strict=True)) for s in (
    (0, 0, 0, 0), (1, 1, 1, 1), (0, 3, 2, 4), (3, 0, 2, 1), (2, 3, 0, 5), (4, 5, 7, 3))]


def arrays(types, sizes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal([mr.ir.dim.value(d, sizes) for d in t.shape]).astype("f4") for t in types]


@pytest.mark.parametrize("name", ONE_KERNEL)
def test_one_kernel_that_stores_only_its_result(name):
    function, *types = ONE_KERNEL[name]
    stages = mr.run(mr.trace(function, *types), passes())
    module = stages[-1].module
    call, = (b.value for b in module["main"].bindings if isinstance(b.value, RunKernel))
    kernel = module[call.kernel]
    assert all(v.type.shape == kernel.outputs[0].type.shape for v in kernel.local) and parse(str(module)) == module
    for sizes in SIZES:
        given = arrays(types, sizes)
        found = interpret(module, *given)
        np.testing.assert_allclose(found, function(*(a.astype(float) for a in given)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name, checked", [
    ("pad, then a function", False), ("columns, then a sum of rows", False), ("on the right of a product", False),
    ("columns on the right of a product", False),
    ("padded on the left", False), ("a convolution with steps", False),
    ("pad, then a sum of columns", True), ("on the left of a product", True), ("a convolution", True)])
def test_machine_code(name, checked, monkeypatch):
    """Also where every access is checked: parts without elements, and places beside a part, are not read."""
    if checked:
        monkeypatch.setenv(VARIABLE, "1")
    function, *types = ONE_KERNEL[name]
    compiled = mr.compile(mr.trace(function, *types))
    for sizes in (*SIZES, {"n": 3, "m": 70, "k": 41, "p": 67}):
        given = arrays(types, sizes)
        found, = compiled(*given)
        np.testing.assert_allclose(found, function(*(a.astype(float) for a in given)), rtol=1e-4, atol=1e-4)


READERS = {
    "exp": lambda x: np.exp(x * 0.1), "sum 0": lambda x: np.sum(x, 0), "sum 1": lambda x: np.sum(x, 1), "twice": lambda x: x + x,
    "left": lambda x: x @ np.exp(x).T, "right": lambda x: np.exp(x).T @ x}


@st.composite
def assembled(draw):
    """A function of a matrix that pads, concatenates, slices and writes over parts, then reads the result in some way."""
    steps = draw(st.lists(st.sampled_from(("pad", "concatenate", "slice", "write")), min_size=1, max_size=3))
    widths = [tuple(draw(st.tuples(st.integers(0, 2), st.integers(0, 2))) for _ in range(2)) for _ in steps]
    starts = [draw(st.tuples(st.integers(0, 2), st.sampled_from((-2, -1, 1, 2)), st.integers(0, 1))) for _ in steps]
    last = draw(st.sampled_from(sorted(READERS)))

    def function(x):
        for step, around, (start, stride, axis) in zip(steps, widths, starts, strict=True):
            if step == "pad":
                x = np.pad(x, around, constant_values=start)
            elif step == "concatenate":
                x = np.concatenate([x[:, :start], x, x[:, :0]] if axis else [x[::-1], x[:0], x[start:]], axis=axis)
            elif step == "slice":
                x = x[::stride, start:] if axis else x[start:, ::stride]
            else:
                x = np.copy(x)
                x[start:, :] = 1.5 if axis else x[start:, ::-1] * 2
        return READERS[last](x)
    return function


@given(assembled(), st.tuples(st.integers(0, 3), st.integers(0, 3)))
@settings(FEW)
def test_any_assembly(function, shape):
    x = np.random.default_rng(0).standard_normal(shape).astype("f4")
    module = mr.run(mr.trace(function, f32["n", "m"]), passes())[-1].module
    np.testing.assert_allclose(interpret(module, x), function(x.astype(float)), rtol=1e-5, atol=1e-5)


def test_a_convolutional_network_stores_no_padded_image_and_no_windows():
    """Nine products and a mean: what is stored are the images between them."""
    weights = conv_net_weights()
    traced = mr.trace(conv_net, {n: f32[w.shape] for n, w in weights.items()}, f32["b", "h", "w", 3])
    module = mr.run(traced, passes())[-1].module
    kernels = [module[b.value.kernel] for b in module["main"].bindings if isinstance(b.value, RunKernel)]
    assert not any(k.pattern == "opaque" for k in kernels)
    windows = [k for k in kernels if k.name.startswith("pad_slice")]
    assert len(windows) == 7 and all(k.pattern == "contraction" for k in windows)
    assert {len(p.a.rows) for p in map(kernel_plan, windows)} == {3}                   # batch, height and width are rows of A
    images = [b.var.type for b in module["main"].bindings if isinstance(b.value, AllocTensor)]
    assert images and all(len(t.shape) < 4 or t.shape[-1] <= 64 and "+ 2" not in str(t.shape[1]) for t in images)


def stored(function, *types) -> list[str]:
    """The kernels that a program runs."""
    module = mr.run(mr.trace(function, *types), passes())[-1].module
    return [b.value.kernel for b in module["main"].bindings if isinstance(b.value, RunKernel)]


def test_what_several_read_is_stored_once_as_plain_copies():
    def cache(old, new, q):
        keys = np.concatenate([old, new])
        return keys, q @ keys.T
    assert stored(cache, f32["n", 8], f32["k", 8], f32["p", 8]) == ["concatenate", "transpose_matmul"]
    assert stored(lambda x: padded(x), NM) == ["pad"]
    assert stored(lambda x: (np.exp(padded(x)), np.max(padded(x))), NM)[0] == "pad"


def test_what_is_computed_in_a_part_is_computed_once():
    """A part that is computed would be computed nine times in the windows of a convolution, and once for each panel."""
    names = stored(lambda x, w: convolve(np.exp(x), w), f32["n", "m", "k", 2], f32[18, 4])
    assert names[0] == "exp" and len(names) == 2
    names = stored(lambda x, w: convolve(x * x - 1, w), f32["n", "m", "k", 2], f32[18, 4])
    assert len(names) == 2 and "pad" in names[1]
    names = stored(lambda x, y, w: np.concatenate([np.exp(x), y], 1) @ w, NM, NK, f32["m + k", "p"])
    assert names[0].startswith("exp") and len(names) == 2


@pytest.mark.parametrize("loops, found", [
    ("for i in range(n):\n        out[i] = a[i]\n    for i in range(m):\n        out[n + i] = b[i]",
     "b[i - n] if i >= n else a[i]"),
    ("for i in range(m + n):\n        out[i] = 1.0\n    for i in range(m):\n        out[m + n - 1 - i] = b[i]",
     "b[-i + m + n - 1] if i >= n else 1.0"),
    ("for i in range(n):\n        out[i] = a[i]", None),                                      # not all of it
    ("for i in range(n):\n        out[n] = a[i]\n    for i in range(m):\n        out[i] = b[i]", None),
    ("for i in range(m):\n        out[i] = b[i]\n    for i in range(n):\n        out[2*i] = a[i]", None)])
def test_expressions_of_assemblies(loops, found):
    """If all of the result is shown to be written, at one place for each round."""
    kernel = parse_kernel(f"@kernel\ndef k(a: f32[n], b: f32[m], out: f32[m + n], *, n, m):\n    {loops}")
    block = definition(kernel)
    assert (block and str(block.value)) == found

"""Kernels made safe: which indices are shown to be inside, checked, or refused; and the table of functions against NumPy."""
from __future__ import annotations

import numpy as np
import pytest

from minirelax.codegen.scalars import ScalarWriter
from minirelax.codegen.source import Names, SourceWriter
from minirelax.errors import CodegenError, VerifyError
from minirelax.ir import execute
from minirelax.ir.dim import symbol
from minirelax.ir.functions import FUNCTIONS, complaint
from minirelax.ir.parse_loops import parse_kernel
from minirelax.ir.safe_kernel import safe_kernel
from minirelax.ir.scalar import apply, load, natural_dtype
from minirelax.ir.types import NUMPY_DTYPES
from minirelax.ir.verify_kernel import verify_kernel


def safe(body: str, out: str = "f32[n]", x: str = "f32[n]"):
    lines = "".join(f"\n    {line}" for line in body.split("\n"))
    kernel = parse_kernel(f"def k(x: {x}, y: i64[n], out: {out}, *, n, m):{lines}")
    verify_kernel(kernel)
    return safe_kernel(kernel)


@pytest.mark.parametrize("index, x, inside", [
    ("i", "f32[n]", True), ("n - 1 - i", "f32[n]", True), ("i + 1", "f32[n]", False), ("i + 1", "f32[n + 1]", True),
    ("i//2", "f32[n]", True), ("i//2", "f32[(n + 1)//2]", True), ("i%3", "f32[3]", True), ("i%4", "f32[3]", False),
    ("max(i - 1, 0)", "f32[n]", True), ("min(i + 1, n - 1)", "f32[n]", True), ("n - 1", "f32[n]", True), ("0", "f32[n]", True),
    ("0", "f32[m]", False), ("2*i + 1", "f32[2*n]", True), ("2*i + 2", "f32[2*n]", False), ("y[i]", "f32[n]", False),
    ("check_index(y[i], n)", "f32[n]", None)])
def test_indices(index, x, inside):
    kernel = safe(f"for i in range(n):\n    out[i] = x[{index}]", x=x)
    checks = str(kernel).count("check_index")
    assert checks == (0 if inside else 1) and (inside is not None or str(kernel).count("check_index(y[i], n)") == 1)
    verify_kernel(kernel)


@pytest.mark.parametrize("body, what", [
    ("for i in range(n):\n    out[i] = x[i - n]", "x[i - n] is outside x: f32[n]"),
    ("for i in range(n):\n    out[i] = x[n]", "x[n] is outside x: f32[n]"),
    ("for i in range(n):\n    out[i + n] = x[i]", "out[i + n] is outside out: f32[n]"),
    ("for i in range(n):\n    out[i] = x[i//m]", "i//m divides by m, which may be 0"),
    ("for i in range(n):\n    out[i] = f32(i % (m - 1))", "i%(m - 1) divides by m - 1, which may be 0"),
    ("for i in range(n//m):\n    out[i] = x[i]", "n//m divides by m, which may be 0")])
def test_what_is_refused(body, what):
    with pytest.raises(VerifyError) as e:
        safe(body)
    assert e.value.what == what and e.value.hint


def test_divisors_that_a_loop_shows_to_be_positive():
    kernel = safe("for i in range(n):\n    for j in range(m):\n        out[i, j] = x[(i*m + j)//m]", out="f32[n, m]")
    assert "x[i]" in str(kernel)
    safe("for i in range(n):\n    out[i] = x[i//max(m, 1)]")


def test_loops_along_the_buffer_and_without_single_rounds():
    kernel = safe("for a in range(1):\n    for i in range(n):\n        for j in range(m):\n            out[j, a, i] = x[i]",
                  out="f32[m, 1, n]")
    lines = ["for j in range(m):", "for i in range(n):", "out[j, 0, i] = x[i]"]
    assert [line.strip() for line in str(kernel).splitlines()[2:]] == lines
    one = safe("for i in range(n):\n    out[i] = 0.0\n    for k in range(1):\n        out[i] += x[i]")
    assert str(one).splitlines()[2:] == ["    for i in range(n):", "        out[i] = x[i]"]


@pytest.mark.parametrize("body", [
    "for i in range(m):\n    out[i] = x[i]", "for i in range(n):\n    out[y[i]] = x[i]", "for i in range(n):\n    out[0] = x[i]",
    "for i in range(n):\n    out[i] = x[i]\nfor i in range(n):\n    out[i] = 2.0"])
def test_buffers_that_are_not_written_once_and_whole_make_a_kernel_opaque(body):
    assert safe(body).pattern == "opaque"


def test_a_loop_of_negative_extent_has_no_rounds():
    kernel = safe("for i in range(n):\n    out[i] = 0.0\n    for k in range(m - 1):\n        out[i] += x[i]")
    assert "for k in range(max(m - 1, 0)):" in str(kernel)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_have_code_and_numpys_dtypes(name):
    """The table says for which dtypes a function has code, and gives a result of the dtype that the IR takes for granted."""
    for dtype in ("bool", "u8", "i16", "i64", "u64", "f32", "f64", "c64", "c128"):
        operands = [load(b, (symbol("i"),), dtype) for b in "xy"[: FUNCTIONS[name][0]]]
        try:
            ScalarWriter(SourceWriter(), Names(frozenset()), lambda read: "x[i]", {}).value(apply(name, *operands))
            has_code = True
        except CodegenError:
            has_code = False
        if complaint(name, (dtype,) * len(operands)):
            continue
        assert has_code, f"{name} of {dtype} has no code"
        if name != "erf":
            with np.errstate(all="ignore"):
                function = execute.FUNCTIONS.get(name) or getattr(np, name)
                found = function(*[NUMPY_DTYPES[dtype].type(1)] * len(operands))
            assert found.dtype == NUMPY_DTYPES[natural_dtype(name, tuple(operands))], name

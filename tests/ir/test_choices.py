"""``a if condition else b`` in kernels: only the one that is chosen is evaluated, at every stage, in every kind of build."""
from __future__ import annotations

import numpy as np
import pytest

from minirelax.errors import IndexingError, VerifyError
from minirelax.ir.checked import VARIABLE
from minirelax.ir.execute import execute
from minirelax.ir.guards import transform_under
from minirelax.ir.parse_loops import parse_kernel
from minirelax.ir.safe_kernel import refuse_outside, safe_kernel
from minirelax.ir.scalar import Load
from minirelax.ir.verify_kernel import verify_kernel
from tests.codegen.native import run_natively

HEAD = "@kernel\ndef k(x: f32[n], w: f32[m], c: i64[p], out: f32[p], *, n, m, p):\n    for i in range(p):\n"
SHIFT = "out[i] = x[i - 1] if logical_and(i > 0, i <= n) else w[0] if m > 0 else -1.0"
GATHER = "out[i] = (w[c[i]] if c[i] >= 0 else 0.0) + 1.0"
TWICE = "out[i] = exp(x[i]) * exp(x[i]) if i < n else 0.5"
SIZES = ((0, 0, 0), (0, 0, 4), (3, 0, 5), (0, 2, 3), (3, 2, 40), (40, 1, 40))


def kernel_of(line: str):
    kernel = parse_kernel(HEAD + "        " + line)
    verify_kernel(kernel)
    return kernel


def arrays(n: int, m: int, p: int):
    return np.arange(n, dtype="f4") / 8, 10 + np.arange(m, dtype="f4"), np.full(p, m - 1)


def expected(line: str, n: int, m: int, p: int):
    x, w, c = arrays(n, m, p)
    if line is SHIFT:
        return [x[i - 1] if 0 < i <= n else w[0] if m else -1 for i in range(p)]
    if line is GATHER:
        return [(w[c[i]] if c[i] >= 0 else 0) + 1 for i in range(p)]
    return [np.exp(x[i]) ** 2 if i < n else 0.5 for i in range(p)]


@pytest.mark.parametrize("line", [SHIFT, GATHER, TWICE, "out[i] = f32(1.0) if (c[i] if m > 0 else 3) == 3 else f32(0.0)",
                                  "out[i] = x[c[i] if c[i] < n else 0]", "out[i] = exp(1.0 if i > 0 else x[0]) + x[i]"])
def test_text_reads_back(line):
    kernel = kernel_of(line)
    assert f"        {line}" in str(kernel) and parse_kernel(str(kernel)) == kernel


@pytest.mark.parametrize("line", [SHIFT, GATHER, TWICE])
def test_what_is_not_chosen_is_not_read(line):
    """In the text's own meaning, where an index outside is an error, even of an array without elements."""
    for sizes in SIZES:
        found, = execute(kernel_of(line), arrays(*sizes), **dict(zip("nmp", sizes, strict=True)))
        np.testing.assert_allclose(found, np.array(expected(line, *sizes), "f4"), rtol=1e-6)


@pytest.mark.parametrize("line", [SHIFT, GATHER, TWICE])
@pytest.mark.parametrize("checked", [False, True])
def test_machine_code(line, checked, monkeypatch):
    """Also where every access is checked: only what is really read is."""
    if checked:
        monkeypatch.setenv(VARIABLE, "1")
    kernel = safe_kernel(kernel_of(line))
    for sizes in SIZES:
        (found,), error = run_natively(kernel, arrays(*sizes), dict(zip("nmp", sizes, strict=True)))
        np.testing.assert_allclose(found, np.array(expected(line, *sizes), "f4"), rtol=1e-6)
        assert error == 0


def test_a_check_that_fails_where_there_is_nothing_to_read():
    """The error is noted, and element 0 of no elements is not read."""
    kernel = safe_kernel(kernel_of(GATHER))
    for m, index in ((0, 0), (2, 2)):
        given = (np.zeros(1, "f4"), np.zeros(m, "f4"), np.full(3, index))
        assert run_natively(kernel, given, {"n": 1, "m": m, "p": 3})[1] == 1
        with pytest.raises(IndexingError):
            execute(kernel, given, n=1, m=m, p=3)


@pytest.mark.parametrize("line, checks", [
    ("out[i] = x[i - 1] if logical_and(i > 0, i <= n) else 0.0", 0),
    ("out[i] = 0.0 if logical_or(i < 1, n < i) else x[i - 1]", 0),
    ("out[i] = (x[i] if n > i else 0.0) if logical_not(i == n) else 1.0", 0),
    ("out[i] = x[i - 1] if i > 0 else 0.0", 1), ("out[i] = x[i] if i >= n else 0.0", None),
    ("out[i] = x[m] if m == n - 1 else 1.0", 0), ("out[i] = x[m] if m != n - 1 else 1.0", 1)])
def test_conditions_count_for_what_can_be_shown(line, checks):
    if checks is None:
        with pytest.raises(VerifyError, match=r"x\[i\] is outside x"):
            safe_kernel(kernel_of(line))
        return
    assert str(safe_kernel(kernel_of(line))).count("check_index") == checks


def test_only_what_is_always_read_is_refused():
    refuse_outside(kernel_of("out[i] = x[i + n] if n < 0 else 0.0"))
    with pytest.raises(VerifyError):
        refuse_outside(kernel_of("out[i] = 0.0 if x[i + n] > 0.0 else 1.0"))


def test_numbers_have_the_dtype_that_is_expected():
    assert kernel_of("out[i] = 1.0 if i < n else 2.0 if i < m else 3.0") == kernel_of(
        "out[i] = f32(1.0) if i < n else f32(2.0) if i < m else f32(3.0)")


def test_the_sides_know_their_condition():
    value, found = kernel_of(SHIFT).blocks[0].value, {}

    def note(s, known):
        found.update({str(s): tuple(map(str, known))} if isinstance(s, Load) else {})
        return s
    assert transform_under(value, note) is value
    assert found == {"x[i - 1]": ("i - 1", "-i + n"), "w[0]": ("m - 1",)}


def test_the_operands_have_one_dtype():
    with pytest.raises(VerifyError) as e:
        kernel_of("out[i] = x[i] if i else 0.0")
    assert e.value.what == "if_else of i64, f32, f32 cannot be f32"


def test_a_loop_without_rounds_reads_nothing(monkeypatch):
    """A choice that is the same in all rounds of a loop is not made before it: there may be no round."""
    monkeypatch.setenv(VARIABLE, "1")
    kernel = parse_kernel(
        "@kernel\ndef k(x: f32[n, m], out: f32[n], *, n, m):\n    for i in range(n):\n        out[i] = 0.0\n"
        "        for k in range(m):\n            out[i] += exp(x[i, 0] if i > 0 else 1.0) + x[i, k]")
    for n, m in ((3, 0), (3, 2)):
        x = np.ones((n, m), "f4")
        (found,), error = run_natively(kernel, [x], {"n": n, "m": m})
        assert error == 0 and np.allclose(found, m * (np.e + 1))

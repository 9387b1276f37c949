"""What depends on scalars alone is computed once per call, not once per element."""

import pytest

from minirelax.ir.dim import names
from minirelax.ir.loop import Kernel
from minirelax.ir.parser import parse
from minirelax.ir.scalar import Apply, Load, Scalar, SizeValue, loads, walk
from minirelax.passes.inline import CHEAP, cost
from minirelax.pipeline import passes, run

PROGRAMS = {
    "one reader": """
        v0: f32[()] = divide(a, b)
        v1: f32[n, m] = multiply(x, v0)
        output(v1)
    return v1""",
    "a chain of scalars": """
        v2: f32[()] = exp(a)
        v3: f32[()] = divide(v2, b)
        v0: f32[()] = sqrt(v3)
        v4: f32[n, m] = multiply(x, v0)
        v1: f32[n, m] = tanh(v4)
        output(v1)
    return v1""",
    "two readers": """
        v0: f32[()] = divide(a, b)
        v2: f32[n, m] = multiply(x, v0)
        v3: f32[n, m] = sqrt(v2)
        v1: f32[n, m] = subtract(v3, v0)
        output(v1)
    return v1""",
    "beside a reduction": """
        v0: f32[()] = divide(a, b)
        v2: f32[n, m] = multiply(x, v0)
        v3: f32[n, 1] = sum(v2, axes=(1,), keepdims=True)
        v1: f32[n, m] = subtract(v2, v3)
        output(v1)
    return v1""",
    "of a reduction": """
        v2: f32[()] = sum(x, axes=(0, 1), keepdims=False)
        v0: f32[()] = divide(v2, b)
        v1: f32[n, m] = multiply(x, v0)
        output(v1)
    return v1""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_loop_repeats_what_scalars_say(name):
    text = f"def main(x: f32[n, m], a: f32[()], b: f32[()]) -> f32[n, m]:\n    with dataflow():{PROGRAMS[name]}"
    module = run(parse(text), passes())[-1].module
    assert module.kernels and [b for k in module.kernels for b in repeated(k)] == []


def test_the_question_has_an_answer():
    """A kernel that does divide scalars once per element is found."""
    module = parse("""
@kernel
def scale(x: f32[n], a: f32[()], b: f32[()], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] * (a[()] / b[()])

def main(x: f32[n], a: f32[()], b: f32[()]) -> f32[n]:
    with dataflow():
        v0: f32[n] = call_kernel(scale, x, a, b, sizes=(n,))
        output(v0)
    return v0""")
    assert [str(v) for v in repeated(module.kernels[0])] == ["a[()] / b[()]"]


def repeated(kernel: Kernel) -> list[Apply]:
    """The expressions inside of loops that read something, but at no axis, and cost more than a light operation."""
    found = []
    for block in kernel.blocks:
        axes = {a.name for a in (*block.axes, *block.over)}
        for s in walk(block.value) if axes else ():
            if isinstance(s, Apply) and cost(s) > CHEAP and loads(s) and not axes & varying(s):
                found.append(s)
    return found


def varying(scalar: Scalar) -> set[str]:
    """The axes and sizes that an expression depends on."""
    dims = [i for s in walk(scalar) if isinstance(s, Load) for i in s.indices if not isinstance(i, Scalar)]
    dims += [s.dim for s in walk(scalar) if isinstance(s, SizeValue)]
    return {name for d in dims for name in names(d)}

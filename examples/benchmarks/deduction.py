"""How the deduction of types, and the verifier, grow with a program: straight-line functions of 100, 1 000 and 10 000 bindings.

Ten kinds of bindings in turn: elementwise ops, a reshape, a reduction, a data-dependent op and the match_cast that names its
size, a call of another function, a shape value and its use.  Both are to be linear: one local step for each binding.
"""
from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable

import minirelax as mr
from minirelax.ir.graph import Module
from minirelax.ir.infer import infer_binding, infer_op
from minirelax.ir.verify import verify

PERIOD = """\
        a{i}: f32[n, 4] = add({last}, x)
        b{i}: f32[4*n] = reshape(a{i}, shape=(4*n,))
        c{i}: f32[_] = unique(b{i})
        d{i}: f32[m{i}] = match_cast(c{i}, f32[m{i}])
        e{i}: f32[m{i}] = exp(d{i})
        f{i}: f32[()] = sum(e{i}, axes=(0,))
        g{i}: f32[n, 4] = multiply(a{i}, f{i})
        h{i}: f32[n, 4] = layer(g{i})
        s{i}: Shape([2*n, 2]) = shape(2*n, 2)
        t{i}: f32[2*n, 2] = reshape_to(h{i}, s{i})
"""
LAYER = """

@private
def layer(x: f32[k, 4]) -> f32[k, 4]:
    with dataflow():
        y: f32[k, 4] = tanh(x)
        output(y)
    return y
"""


def program(bindings: int) -> Module:
    """A module whose first function has so many bindings, a multiple of ten."""
    count = bindings // 10
    body = "".join(PERIOD.format(i=i, last=f"h{i - 1}" if i else "x") for i in range(count))
    head, result = "def main(x: f32[n, 4]) -> f32[2*n, 2]:\n    with dataflow():\n", f"t{count - 1}"
    return mr.parse(f"{head}{body}        output({result})\n    return {result}{LAYER}")


def deduce(module: Module) -> None:
    """Find the type of every right-hand side, and see that it is the one written down."""
    for binding in module.functions[0].bindings:
        assert infer_binding(binding.value, module) == binding.var.type


def seconds(work: Callable[[Module], None], module: Module, rounds: int) -> float:
    """The shortest of several runs, none of which finds remembered results."""
    found = []
    for _ in range(rounds):
        infer_op.cache_clear()
        gc.collect()
        start = time.perf_counter()
        work(module)
        found.append(time.perf_counter() - start)
    return min(found)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=5)
    rounds = options.parse_args().rounds
    columns = "{:>9} | {:>10} {:>14} {:>7} | {:>10} {:>14} {:>7}"
    print(columns.format("bindings", "deduce ms", "µs a binding", "ratio", "verify ms", "µs a binding", "ratio"))
    first = None
    for size in (100, 1_000, 10_000):
        module = program(size)
        each = [seconds(work, module, rounds) / size for work in (deduce, verify)]
        first = first or each
        cells = [c for e, f in zip(each, first, strict=True) for c in (f"{1e3 * e * size:.2f}", f"{1e6 * e:.2f}", f"{e / f:.2f}")]
        print(columns.format(size, *cells))


if __name__ == "__main__":
    main()

"""Choices in machine code: a padded elementwise chain is still a loop of vectors."""

from minirelax.codegen.numba_cpu import kernel_code, source_globals
from minirelax.ir.parse_loops import parse_kernel
from minirelax.runtime import machine_code

PADDED = """
@kernel
def padded(x: f32[n], out: f32[n + 2], *, n):
    for i in range(n + 2):
        out[i] = exp(x[i - 1] if logical_and(i >= 1, i < n + 1) else 0.0)"""


def test_a_padded_elementwise_chain_is_a_loop_of_vectors(monkeypatch):
    """What is not there is masked, where the processor has such loads."""
    emit, texts = machine_code._emit, []

    def noted(module, symbols, options):
        found = emit(module, symbols, options)
        texts.append(str(module))                                    # as it is after all of LLVM's passes
        return found
    monkeypatch.setattr(machine_code, "_emit", noted)
    code = kernel_code(parse_kernel(PADDED))
    machine_code.compile_functions(code.source, [code.function], source_globals())
    text, = texts
    assert ("llvm.masked.load" in text) == ("+avx" in machine_code.host_features().split(","))

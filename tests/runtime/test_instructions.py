"""The assembler: tables, labels, regions, printing, linking, pickling."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from minirelax.runtime.frame import HEADER, ZERO, Context
from minirelax.runtime.instructions import LAYOUT, Assembler, Comparison, Match, Opcode, disassemble


def everything():
    """A program with every instruction in it."""
    a = Assembler()
    x, n, p, q, c = (a.slot(name) for name in ("x", "n", "p", "q", "c"))
    skip, out = a.label(), a.label()
    a.array(x, 2, "f4", message=3)
    a.match(x, 0, Match.STORE, n)
    a.match(x, 1, Match.IMMEDIATE, 8, message=1)
    a.match(x, 1, Match.SLOT, n, message=2)
    a.data(p, x)
    a.load(q, p, "u1")
    a.const(c, -7)
    for emit in (a.add, a.sub, a.mul, a.floordiv, a.mod, a.minimum, a.maximum):
        emit(q, n, c)
    a.move(q, n)
    a.align(q, n)
    a.address(p, p, q)
    a.compare(Comparison.LT, c, n, q)
    a.branch_if_zero(c, skip)
    a.guard(Comparison.GE, n, q, 4)
    a.copy(p, p, n)
    a.jump(out)
    a.place(skip)
    a.pause()
    a.library(5)
    a.parallel(c)
    a.call("relu", tiles=n, slots=[p, q], cost=c)
    a.call("tanh", tiles=n, slots=[p], work=(p, q))
    a.end()
    a.place(out)
    return a.finish()


TEXT = """\
  0  ARRAY x 2d <f4 message 3
  7  MATCH x axis 0 store n
 14  MATCH x axis 1 immediate 8 message 1
 21  MATCH x axis 1 slot n message 2
 28  DATA p x
 32  LOAD q p -1
 37  CONST c -7
 41  ADD q n c
 46  SUB q n c
 51  MUL q n c
 56  FLOORDIV q n c
 61  MOD q n c
 66  MIN q n c
 71  MAX q n c
 76  MOVE q n
 80  ALIGN q n
 84  ADDRESS p p q
 89  COMPARE lt c n q
 95  BRANCH c to 113
 99  GUARD ge n q message 4
105  COPY p p n
110  JUMP to 144"""


def test_text_names_slots_targets_and_kernels():
    text = everything().text()
    assert text.startswith(TEXT)
    assert "CALL relu tiles=n cost=c work=0 (p, q)" in text and "CALL tanh tiles=n cost=0 work=p each q (p)" in text
    assert "PARALLEL cost=c to 142 (2 calls)" in text
    assert {line.split()[1] for line in text.splitlines()} == {opcode.name for opcode in Opcode}


def test_lengths_agree_with_the_layout():
    program = everything()
    pc = 0
    while pc < len(program.words):
        opcode, length = Opcode(program.words[pc]), program.words[pc + 1]
        extra = program.words[pc + 7] if opcode == Opcode.CALL else 0
        assert length == 2 + len(LAYOUT[opcode]) + extra
        pc += length
    assert pc == len(program.words)


def test_a_label_at_the_end_gets_a_return():
    a = Assembler()
    end = a.label()
    a.ret()
    a.place(end)
    assert a.finish().words == (0, 2, 0, 2)


def test_limits_for_the_context():
    program = everything()
    assert (program.arguments, program.parallel_calls, program.frame_words) == (2, 2, HEADER + 5)
    assert program.kernels == ("relu", "tanh")


def test_link_puts_addresses_in_place():
    program = everything()
    code = program.link({"relu": 0x1000, "tanh": 0x2000})
    assert not code.flags.writeable and code.dtype == np.int64
    assert {0x1000, 0x2000, id(np.ndarray), id(np.dtype("f4"))} <= set(code.tolist())
    with pytest.raises(KeyError):
        program.link({"relu": 0x1000})


def test_programs_pickle():
    program = everything()
    assert pickle.loads(pickle.dumps(program)) == program


def test_mistakes_of_a_program_builder():
    a = Assembler()
    n = a.slot("n")
    a.parallel(n)
    with pytest.raises(ValueError, match="CONST is not allowed"):
        a.const(n, 1)
    with pytest.raises(ValueError, match="without END"):
        a.finish()
    with pytest.raises(ValueError, match="nest"):
        a.parallel(n)
    a.end()
    with pytest.raises(ValueError, match="END without"):
        a.end()
    a.jump(a.label())
    with pytest.raises(ValueError, match="never placed"):
        a.finish()
    with pytest.raises(ValueError, match="no slot named m"):
        Assembler().finish(["m"])
    with pytest.raises(ValueError, match="LOAD takes"):
        a.load(n, n, "f8")


def test_disassemble_without_names():
    assert disassemble([9, 4, HEADER + 2, 1]) == f"  0  CONST s{HEADER + 2} 1"
    assert disassemble([10, 4, HEADER, ZERO], ["n"]) == "  0  MOVE n 0"


def test_context_memory_is_aligned_and_large_enough():
    program = everything()
    context = Context(program, program.link({"relu": 0, "tanh": 0}), threads=3)
    from minirelax.runtime import frame

    header = context.slots
    assert context.address % 64 == header[frame.ARGUMENTS] % 64 == header[frame.COUNTERS] % 64 == 0
    assert header[frame.ARGUMENT_BYTES] == 64
    assert header[frame.ZERO] == 0 and header[frame.THREADS] == 3 and header[frame.COUNTED_CALLS] == 2

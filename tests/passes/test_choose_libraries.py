"""Rules of a user's: which regions become library calls or groups, which do not and why, and that results stay the same."""

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32
from minirelax.errors import ArgumentError, CompileError, LibraryError
from minirelax.ir.interpret import interpret
from minirelax.ir.library import ROUTINES
from minirelax.ir.parser import parse
from minirelax.ops.arithmetic import Add, Divide, Maximum, Multiply, Subtract
from minirelax.ops.data_dependent import Unique
from minirelax.ops.linalg import Einsum, Matmul
from minirelax.ops.movement import Transpose
from minirelax.ops.reduce import Max, Sum
from minirelax.ops.sequence import Sort
from minirelax.ops.transcendental import Exp
from minirelax.passes.choose_libraries import LibraryRule, choose_libraries
from minirelax.passes.group_patterns import GroupRule, group_patterns
from minirelax.passes.options import Options
from minirelax.pipeline import compile_module, passes, run
from tests.passes.programs import PROGRAMS
from tests.passes.test_meaning import assert_same_meaning


@pytest.fixture(autouse=True)
def routines():
    """A registry of this test's own."""
    before = dict(ROUTINES)
    mr.register_library("product", np.matmul)
    mr.register_library("dense", dense)
    mr.register_library("scaled_exp", lambda x, out, n: np.multiply(np.exp(x), n, out=out))
    yield
    ROUTINES.clear()
    ROUTINES.update(before)


def dense(x, w, b, out):
    out[...] = np.maximum(x @ w + b, 0)


PRODUCT = LibraryRule("product", lambda x, w: Matmul(x, w))
DENSE = LibraryRule("dense", (lambda x, w, b: Maximum(Add(Matmul(x, w), b), 0), lambda x, w, b: Maximum(0, Add(b, Matmul(x, w)))))
EXP_EXP = LibraryRule("exp_exp", lambda x: Exp(Exp(x)), routine="product")

LAYERS = """
def main(x: f32[n, 4], *, w: f32[4, 5], b: f32[5], u: f32[5, 3], c: f32[3]) -> f32[n, 3]:
    with dataflow():
        v0: f32[n, 5] = matmul(x, w)
        v1: f32[n, 5] = add(v0, b)
        v2: f32[n, 5] = maximum(v1, 0.0)
        v3: f32[n, 3] = matmul(v2, u)
        v4: f32[n, 3] = add(c, v3)
        v5: f32[n, 3] = maximum(0.0, v4)
        v6: f32[n, 3] = multiply(v5, 2.0)
        output(v6)
    return v6"""

CHOSEN = """\
def main(x: f32[n, 4], *, w: f32[4, 5], b: f32[5], u: f32[5, 3], c: f32[3]) -> f32[n, 3]:
    with dataflow():
        v2: f32[n, 5] = call_library("dense", x, w, b)
        v5: f32[n, 3] = call_library("dense", v2, u, c)
        v6: f32[n, 3] = multiply(v5, 2.0)
        output(v6)
    return v6"""


def applied(text: str, *rules) -> tuple[str, tuple[str, ...]]:
    """The program after choose_libraries, verified, and what the stage notes."""
    stage = run(parse(text), (choose_libraries(rules),))[-1]
    return str(stage.module), stage.notes


def test_the_text():
    assert applied(LAYERS, DENSE) == (CHOSEN, ("dense: taken at v5, v2",))


@pytest.mark.parametrize("n", [3, 1, 0])
def test_means_the_same(n):
    rng, module = np.random.default_rng(0), parse(LAYERS)
    x, *bound = (rng.standard_normal(s, np.float32) for s in ((n, 4), (4, 5), (5,), (5, 3), (3,)))
    want = interpret(module, x, bound=bound)
    np.testing.assert_allclose(interpret(choose_libraries((DENSE,))(module), x, bound=bound), want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(compile_module(module, libraries=DENSE).bind(bound)((x,))[0], want, rtol=1e-5, atol=1e-6)


def test_what_is_read_elsewhere_stays():
    text = LAYERS.replace("multiply(v5, 2.0)", "multiply(v5, v4)")
    made, notes = applied(text, DENSE)
    assert 'v2: f32[n, 5] = call_library("dense", x, w, b)' in made and "v4: f32[n, 3] = add(c, v3)" in made
    assert notes == ("dense: taken at v2; not at v5: v4 is read elsewhere, too",)


LATER = "output(v4, v6)\n    with dataflow():\n        v7: f32[n, 3] = exp(v4)\n        output(v7)"


@pytest.mark.parametrize("result", [LATER, ""])
def test_what_leaves_the_block_or_the_function_stays(result):
    text = LAYERS.replace("output(v6)", result or "output(v4)").replace("return v6", "return v6" if result else "return v4")
    made, notes = applied(text, DENSE)
    assert "not at v5: v4 is read elsewhere" in notes[0] and "maximum(0.0, v4)" in made


def test_what_the_routine_would_read_from_inside_stays():
    text = """
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = exp(x)
        v1: f32[n] = add(v0, v0)
        output(v1)
    return v1"""
    rule = LibraryRule("exp_plus", lambda a, b: Add(Exp(a), b), routine="product")
    made, notes = applied(text, rule)
    assert made == text.strip() and notes == ("exp_plus: not at v1: v0 is inside, and passed to the routine",)


def test_priority_then_order():
    assert applied(LAYERS, PRODUCT, DENSE)[1] == ("product: taken at v3, v0", "dense: its pattern never matched")
    assert applied(LAYERS, DENSE, PRODUCT)[1] == ("dense: taken at v5, v2", "product: its pattern never matched")
    first = LibraryRule("first", DENSE.pattern, routine="dense", priority=1)
    assert applied(LAYERS, PRODUCT, first)[1] == ("first: taken at v5, v2", "product: its pattern never matched")


def test_a_binding_is_in_one_region():
    chain = """
def main(x: f32[n, n]) -> f32[n, n]:
    with dataflow():
        v0: f32[n, n] = exp(x)
        v1: f32[n, n] = exp(v0)
        v2: f32[n, n] = exp(v1)
        output(v2)
    return v2"""
    made, notes = applied(chain, EXP_EXP)
    assert notes == ("exp_exp: taken at v2",) and "v0: f32[n, n] = exp(x)" in made and 'call_library("product", v0)' in made


def test_a_variable_twice_and_attributes():
    text = """
def main(x: f32[n, m], y: f32[n, m]) -> f32[n, n]:
    with dataflow():
        v0: f32[m, n] = transpose(x, axes=(1, 0))
        v1: f32[n, n] = matmul(x, v0)
        v2: f32[n, n] = matmul(y, v0)
        v3: f32[n, n] = add(v1, v2)
        output(v3)
    return v3"""
    gram = LibraryRule("gram", lambda x, p: Matmul(x, Transpose(x, p)), routine="product", arguments=lambda m: [m["x"], m["x"]])
    assert applied(text, gram)[1] == ("gram: not at v1: v0 is read elsewhere, too",)
    once = text.replace("matmul(y, v0)", "matmul(y, y)").replace("y: f32[n, m]", "y: f32[n, n]")
    made, notes = applied(once, gram)
    assert notes == ("gram: taken at v1",) and 'v1: f32[n, n] = call_library("product", x, x)' in made


def test_operands_in_a_tuple():
    text = """
def main(x: f32[n, m], y: f32[m, k]) -> f32[n, k]:
    with dataflow():
        v0: f32[n, m] = exp(x)
        v1: f32[n, k] = einsum((v0, y), subscripts="ij,jk->ik")
        output(v1)
    return v1"""
    rule = LibraryRule("exp_product", lambda x, y, s: Einsum((Exp(x), y), s), lambda m: m["s"] == "ij,jk->ik", "dense")
    assert applied(text, rule)[1] == ("exp_product: taken at v1",)
    several = LibraryRule("any_einsum", lambda xs, s: Einsum(xs, s), routine="dense")
    assert '(v0, y)' not in applied(text, several)[0] and 'call_library("dense", v0, y)' in applied(text, several)[0]


SIZES = """
def main(x: f32[_]) -> f32[_]:
    with dataflow():
        v0: f32[n] = match_cast(x, f32[n])
        v1: f32[n] = exp(v0)
        v2: f32[n] = multiply(v1, 3.0)
        output(v2)
    return v2"""


def test_nothing_moves_above_the_match_cast_that_binds_its_size():
    rule = LibraryRule("scaled_exp", lambda x, c: Multiply(Exp(x), c), arguments=lambda m: [m["x"]],
                       sizes=lambda m: m["x"].type.shape)
    made, _ = applied(SIZES, rule)
    lines = [line.strip() for line in made.splitlines()]
    cast, call = "v0: f32[n] = match_cast(x, f32[n])", 'v2: f32[n] = call_library("scaled_exp", v0, sizes=(n,))'
    assert lines.index(cast) < lines.index(call)
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_allclose(interpret(parse(made), x), np.exp(x) * 3, rtol=1e-6)


def test_a_result_of_unknown_size_is_left_alone():
    text = """
def main(x: f32[n]) -> f32[_]:
    with dataflow():
        v0: f32[_] = unique(x)
        output(v0)
    return v0"""
    assert applied(text, LibraryRule("distinct", lambda x: Unique(x), routine="product"))[1] == (
        "distinct: not at v0: nobody knows its size before the call",)


def test_checks_see_types_sizes_and_readers():
    seen = []

    def check(match):
        seen.append((match["x"].type.shape, match.is_weight(match["w"]), match.is_weight(match["x"]),
                     [b.var.name for b in match.readers(match.root.var)], match.definition(match["x"])))
        return match["x"].type.shape[-1] == 4

    _, notes = applied(LAYERS, LibraryRule("dense", DENSE.pattern, check))
    assert notes == ("dense: taken at v2; not at v5: its check declined",)
    (second, _, _, after, made), (first, weight, other, _, none) = seen
    assert [str(d) for d in first] == ["n", "4"] and second[1] == 5 and weight and not other
    assert after == ["v6"] and isinstance(made, Maximum) and none is None


def test_a_rule_that_never_matches_is_in_the_table_of_stages():
    fn = mr.jit(lambda x: x + 1, libraries=(DENSE, PRODUCT))
    assert fn(np.float32([1]))[0] == 2
    assert fn.stages["choose_libraries"].notes == ("dense: its pattern never matched", "product: its pattern never matched")
    assert "dense: its pattern never matched" in str(fn.stages)


@pytest.mark.parametrize("part", ["check", "arguments", "sizes"])
def test_a_function_that_raises(part):
    rule = LibraryRule("dense", DENSE.pattern, **{part: lambda match: match["nothing"]})
    fn = mr.jit(lambda x, w, b: np.maximum(x @ w + b, 0), libraries=(rule,))
    with pytest.raises(CompileError, match=f"rule dense: its {part} raised KeyError") as error:
        fn(*(np.ones(s, np.float32) for s in ((2, 3), (3, 4), (4,))))
    assert "v2: f32[n, k] = maximum(v1, 0.0)" in str(error.value) and "test_choose_libraries.py" in error.value.where
    assert isinstance(error.value.__cause__, KeyError)


@pytest.mark.parametrize(
    ("part", "given", "said"),
    [("arguments", lambda m: [m.root.var], "v5 is not what a variable"), ("sizes", lambda m: [1.5], "1.5 is not a size")],
)
def test_what_cannot_be_passed(part, given, said):
    with pytest.raises(CompileError, match=f"rule dense: its {part} raised TypeError: {said}"):
        applied(LAYERS, LibraryRule("dense", DENSE.pattern, **{part: given}))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LibraryRule("r", lambda x: Matmul(x)), "rule r: its pattern raised TypeError"),
        (lambda: LibraryRule("r", lambda x: x), "rule r: its pattern returned Hole, not an op"),
        (lambda: LibraryRule("r", ()), "rule r: it has no pattern"),
        (lambda: LibraryRule("r", 3), "rule r: its pattern is no function"),
        (lambda: LibraryRule("not a name", lambda x: Exp(x)), "the name of a rule is an identifier"),
        (lambda: LibraryRule("r", lambda x: Exp(x), check=True), "rule r: check is no function"),
        (lambda: LibraryRule("r", lambda x: Exp(x), routine="sort"), "is not the name of a registered routine"),
        (lambda: GroupRule("r", lambda x: Exp(x), check=1), "rule r: check is no function"),
        (lambda: choose_libraries((PRODUCT, PRODUCT)), "two rules are called product"),
        (lambda: choose_libraries((np.matmul,)), "not a LibraryRule"),
        (lambda: group_patterns((PRODUCT,)), "not a GroupRule"),
    ],
)
def test_what_is_no_rule(make, said):
    with pytest.raises(ArgumentError, match=said) as error:
        make()
    assert "test_choose_libraries.py" in error.value.where


def test_a_routine_that_is_not_registered():
    rule = LibraryRule("nothing", lambda x: Exp(x), routine="denze")
    with pytest.raises(CompileError, match="rule nothing: no library routine is called denze") as error:
        applied(LAYERS, rule)
    assert "did you mean dense?" in str(error.value)


def test_a_routine_that_fails_names_itself():
    @mr.library_rule(lambda x: Exp(x))
    def wrong(x, out):
        raise ValueError("no")

    with pytest.raises(LibraryError, match="the library routine wrong raised ValueError: no"):
        mr.jit(lambda x: np.exp(x) + 1, libraries=(wrong,))(np.ones(2, np.float32))


def power_iteration(x, w, b):
    def turn(i, v):
        return np.maximum(v @ w + b, 0)

    big = mr.cond(np.sum(x) > 0, lambda v: np.maximum(v @ w + b, 0), lambda v: v, x)
    return mr.fori_loop(0, 3, turn, big)


def test_inside_of_loops_and_branches():
    fn, rng = mr.jit(power_iteration, libraries=(DENSE,), validate=True), np.random.default_rng(1)
    for n in (3, 0, 1):
        x, w, b = (rng.standard_normal(s, np.float32) for s in ((n, 4), (4, 4), (4,)))
        for given in (x, np.abs(x)):
            np.testing.assert_allclose(fn(given, w, b), power_iteration(given, w, b), rtol=1e-4, atol=1e-5)
    assert str(fn.stages["choose_libraries"].module).count('call_library("dense"') == 2


def test_a_saved_program_keeps_what_the_rules_made(tmp_path):
    fn = mr.jit(lambda x, w, b: np.maximum(x @ w + b, 0) * 2, libraries=(DENSE,))
    x, w, b = (np.ones(s, np.float32) for s in ((2, 3), (3, 4), (4,)))
    want = fn(x, w, b)
    fn.executable.save(tmp_path / "program.mr")
    loaded = mr.Executable.load(tmp_path / "program.mr")
    assert 'call_library("dense"' in str(loaded.stages[0].module)
    np.testing.assert_array_equal(loaded(x, w, b)[0], want)


# ---------------------------------------------------------------- conditions on sizes

BATCHED = LibraryRule("dense", DENSE.pattern, when=lambda m: (m["x"].type.shape[0], ">", 2))

BY_SIZE = """\
def main(x: f32[n, 4], *, w: f32[4, 5], b: f32[5], u: f32[5, 3], c: f32[3]) -> f32[n, 3]:
    with dataflow():
        v7: i64[()] = size(size=n - 2)
        v8: bool[()] = greater(v7, 0)
        output(v8)
    v2: f32[n, 5] = cond(v8, dense_library, dense_generated, x, w, b)
    with dataflow():
        v9: i64[()] = size(size=n - 2)
        v10: bool[()] = greater(v9, 0)
        output(v10)
    v5: f32[n, 3] = cond(v10, dense_library_2, dense_generated_2, v2, u, c)
    with dataflow():
        v6: f32[n, 3] = multiply(v5, 2.0)
        output(v6)
    return v6"""


def test_a_batch_of_one_stays_generated():
    module = choose_libraries((BATCHED,))(parse(LAYERS))
    assert str(module["main"]) == BY_SIZE
    assert 'v2: f32[n, 5] = call_library("dense", x, w, b)' in str(module["dense_library"])
    assert [b.value.opname() for b in module["dense_generated_2"].bindings] == ["matmul", "add", "maximum"]
    calls, rng = [], np.random.default_rng(3)
    mr.register_library("dense", lambda x, w, b, out: (calls.append(len(x)), dense(x, w, b, out))[1])
    _, *bound = (rng.standard_normal(s, np.float32) for s in ((1,), (4, 5), (5,), (5, 3), (3,)))
    program = compile_module(parse(LAYERS), libraries=BATCHED).bind(bound)
    for n in (0, 1, 2, 3, 5):
        x = rng.standard_normal((n, 4), np.float32)
        np.testing.assert_allclose(program((x,))[0], interpret(parse(LAYERS), x, bound=bound), rtol=1e-5, atol=1e-6)
    assert calls == [3, 3, 5, 5]


def test_regions_that_are_mixed_and_sizes_that_no_argument_shows():
    def fn(x, y):
        return np.exp(np.exp(x) * y) + np.exp(np.exp(y) * x)

    rule = LibraryRule("exp_power", lambda x, y: Exp(Multiply(Exp(x), y)), when=lambda m: (m["x"].type.shape[0], "<=", 4))
    mr.register_library("exp_power", lambda x, y, out: np.exp(np.exp(x) * y, out=out))
    compiled = mr.jit(lambda x, y: fn(x, y) * 2, libraries=rule, validate=True)
    for n in (3, 0, 4, 5, 9):
        x, y = np.random.default_rng(n).standard_normal((2, n))
        np.testing.assert_allclose(compiled(x, y), fn(x, y) * 2, rtol=1e-6)
    text = """
def main(x: f32[2*n], z: f32[n]) -> f32[2*n]:
    with dataflow():
        v0: f32[2*n] = exp(x)
        v1: f32[2*n] = exp(v0)
        output(v1)
    return v1"""
    rule = LibraryRule("twice", lambda x: Exp(Exp(x)), routine="scaled_exp", sizes=lambda m: (2,),
                       when=lambda m: (9, "<", m["x"].type.shape[0]))
    module = run(parse(text), (choose_libraries((rule,)),))[-1].module
    assert "def twice_generated(x: f32[2*n], s: Shape([n])) -> f32[2*n]" in str(module)
    x, z = np.zeros(4, np.float32), np.zeros(2, np.float32)
    np.testing.assert_allclose(compile_module(parse(text), libraries=rule).bind(())((x, z))[0], np.full(4, np.e), rtol=1e-6)
    np.testing.assert_allclose(interpret(module, np.zeros(10, np.float32), np.zeros(5, np.float32)), np.full(10, 2.0))


@pytest.mark.parametrize(
    ("when", "note"),
    [
        (lambda m: (m["x"].type.shape[0], ">=", 0), "dense: taken at v5, v2"),
        (lambda m: m["w"].type.shape[0] == 4, "dense: taken at v2; not at v5: its condition never holds"),
        (lambda m: (m["w"].type.shape[0], ">", 4), "dense: taken at v5; not at v2: its condition never holds"),
        (lambda m: (m["x"].type.shape[0], "<", 0),
         "dense: not at v5: its condition never holds; not at v2: its condition never holds"),
    ],
)
def test_conditions_that_are_known_are_decided_now(when, note):
    made, notes = applied(LAYERS, LibraryRule("dense", DENSE.pattern, when=when))
    assert notes == (note,) and "cond(" not in made


def test_what_is_no_condition():
    with pytest.raises(CompileError, match="rule dense: its when raised TypeError: 'n' is no condition"):
        applied(LAYERS, LibraryRule("dense", DENSE.pattern, when=lambda m: "n"))


# ---------------------------------------------------------------- groups


def softmax(s, last):
    e = Exp(Subtract(s, Max(s, last, True)))
    return Divide(e, Sum(e, last, True))


ATTENTION = GroupRule(
    "attention", lambda q, k, v, c, axes, last: Matmul(softmax(Multiply(Matmul(q, Transpose(k, axes)), c), last), v))


def attention(q, k, v):
    s = q @ np.swapaxes(k, -1, -2) / np.float32(2)
    e = np.exp(s - np.max(s, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True) @ v + 1


def test_all_of_attention_is_one_kernel():
    fn, rng = mr.jit(attention, groups=(ATTENTION,), validate=True), np.random.default_rng(2)
    for h, s, t in ((2, 3, 4), (1, 1, 1), (0, 2, 2), (2, 0, 3)):
        q, k, v = (rng.standard_normal(shape, np.float32) for shape in ((h, s, 8), (h, t, 8), (h, t, 8)))
        np.testing.assert_allclose(fn(q, k, v), attention(q, k, v), rtol=1e-4, atol=1e-5)
    assert fn.stages["group_patterns"].notes == ("attention: taken at v8",)
    assert [k.name for k in fn.stages["fuse_kernels"].module.kernels] == ["add", "attention"]


GROUPED = """\
c0: f32[3] = constant([1.0, 2.0, 3.0])

def main(x: f32[2*n, 3], y: f32[n]) -> f32[2*n, 3]:
    with dataflow():
        v5: Shape([n]) = shape(n)
        v1: f32[2*n, 3] = fused_shifted(x, c0, v5)
        v6: Shape([n]) = shape(n)
        v3: f32[2*n, 3] = fused_shifted(v1, c0, v6)
        v4: f32[2*n, 3] = exp(v3)
        output(v4)
    return v4

@group
def fused_shifted(x: f32[2*n, 3], c0_2: f32[3], s: Shape([n])) -> f32[2*n, 3]:
    with dataflow():
        v0: f32[2*n, 3] = multiply(x, 2.0)
        v1: f32[2*n, 3] = add(v0, c0_2)
        output(v1)
    return v1"""


def test_groups_that_do_the_same_share_a_function():
    text = """
c0: f32[3] = constant([1.0, 2.0, 3.0])

def main(x: f32[2*n, 3], y: f32[n]) -> f32[2*n, 3]:
    with dataflow():
        v0: f32[2*n, 3] = multiply(x, 2.0)
        v1: f32[2*n, 3] = add(v0, c0)
        v2: f32[2*n, 3] = multiply(v1, 2.0)
        v3: f32[2*n, 3] = add(v2, c0)
        v4: f32[2*n, 3] = exp(v3)
        output(v4)
    return v4"""
    rule = GroupRule("shifted", lambda x, a, b: Add(Multiply(x, a), b), lambda m: m.is_weight(m["b"]))
    stages = run(parse(text), (group_patterns((rule,)),))
    assert sorted(str(stages[-1].module).split("\n\n")) == sorted(GROUPED.split("\n\n"))
    x, y = np.arange(12, dtype=np.float32).reshape(4, 3) / 8, np.zeros(2, np.float32)
    want = interpret(parse(text), x, y)
    for stage in run(parse(text), passes(None)) + run(parse(text), (group_patterns((rule,)), *passes(None))):
        np.testing.assert_allclose(interpret(stage.module, x, y), want, rtol=1e-6, err_msg=stage.name)


def test_a_group_with_a_library_call_is_called():
    def fn(x):
        return np.sort(np.exp(x) * 2, axis=0) + 1

    rule = GroupRule("sorted_exp", lambda x, a: Sort(Multiply(Exp(x), 2), a))
    grouped = mr.jit(fn, groups=(rule,), validate=True)
    for n in (4, 0, 1):
        x = np.random.default_rng(n).standard_normal(n).astype(np.float32)
        np.testing.assert_allclose(grouped(x), fn(x), rtol=1e-5)
    notes = grouped.stages["group_patterns"].notes
    assert notes == ("sorted_exp: taken at v2", "fused_sorted_exp is called, not one kernel: sort is a library's")


def test_a_group_keeps_out_what_is_read_elsewhere():
    module = mr.trace(lambda x: np.exp(x * 2) + x * 2, f32["n"])
    stage = run(module, passes(None)[:6] + (group_patterns((GroupRule("g", lambda x, c: Exp(Multiply(x, c))),)),))[-1]
    assert stage.notes == ("g: not at v1: v0 is read elsewhere, too",)


# ---------------------------------------------------------------- the corpus

GENERAL = (
    GroupRule("product_sum", lambda x, w, b: Add(Matmul(x, w), b)),
    GroupRule("sums", (lambda x, a, k: Sum(Multiply(x, x), a, k), lambda x, y, a, k: Sum(Subtract(x, y), a, k))),
    GroupRule("scaled", (lambda x, y, z: Divide(Multiply(x, y), z), lambda x, y, z: Multiply(Add(x, y), z))),
    GroupRule("exp_difference", lambda x, y: Exp(Subtract(x, y))),
)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_mean_the_same_with_rules(name):
    text, assignments = PROGRAMS[name]
    by_size = LibraryRule("product", PRODUCT.pattern, when=lambda m: (m["x"].type.shape[0], ">", 2))
    for options in ({"libraries": by_size, "groups": GENERAL}, {"groups": GENERAL, "without": "fuse_ops"}):
        stages = run(parse(text), passes(Options.of(None, **options)))
        for sizes in assignments:
            assert_same_meaning(stages, sizes)

# %% [markdown]
# # The language
#
# What minirelax compiles is a small language: functions on arrays, whose sizes are expressions in letters. It is the graph
# language of the paper *Relax*, in Python's syntax. A NumPy function is traced into it; one can also write it by hand. This
# tutorial runs all of it. Most sections begin with something that does not work.

# %%
import contextlib

import numpy as np

import minirelax as mr
from minirelax import Shape, f32, f64, i64


@contextlib.contextmanager
def refused():
    """Prints the error that is expected here."""
    try:
        yield
    except mr.errors.CompileError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("nothing was wrong")


# %% [markdown]
# ## Sizes are expressions
#
# `mr.trace` shows a function as the compiler sees it, before any pass. Its arguments may be types: `f32["n"]` is a vector of any
# length.

# %%
def add(x, y):
    return x + y


with refused():
    mr.trace(add, f32["n"], f32["m"])

# %% [markdown]
# Two letters are two sizes, and nobody has said that they are equal. With one letter it works, and also where the letters give
# two expressions that are equal for every `n`:

# %%
mr.trace(lambda x: np.concatenate([x, x]).reshape(2, -1) + x, f32["n"])

# %% [markdown]
# Expressions are kept in one normal form, so comparing them is comparing texts. `True` means equal for all sizes. `False` means
# only that no law says so: the program may still meet equal numbers when it runs.

# %%
from minirelax.ir.dim import dim

for left, right in (("2*n", "n*2"), ("(n + 1)*4 - 4*n", "4"), ("(4*n + 3)//4", "n"), ("(n + 3)//4*4", "n"), ("n", "m")):
    print(f"{left:>16} == {right:4} {dim(left) == dim(right)!s:7} normal form {dim(left)}")

# %% [markdown]
# ## Types are ordered by what they know
#
# Not everything is known beforehand. `f32[_, 4]` has a size that is not, `f32[...]` not even a number of axes, and a value of
# type `Object` may be anything. Where two branches meet, the result has the type that is true of both: their *join*.

# %%
from minirelax.ir.lattice import compatibility, join
from minirelax.ir.reader import parse_type

for a, b in (("f32[n, 4]", "f32[n, 8]"), ("f32[n]", "f32[n, 4]"), ("f32[n]", "i64[n]"), ("Shape([n, 4])", "Shape([n, 2])"),
             ("f32[n]", "Shape([n])")):
    print(f"{a:14} or {b:14} is  {join(parse_type(a), parse_type(b))}")

# %% [markdown]
# Giving a value where a type is wanted has one of four answers.

# %%
for wanted, given in (("f32[n, 4]", "f32[n]"), ("f32[n]", "Object"), ("f32[n]", "f32[_]"), ("f32[_]", "f32[n]")):
    print(f"wanted {wanted:10} given {given:8} {compatibility(parse_type(wanted), parse_type(given)).name}")

# %% [markdown]
# | answer | | what happens |
# | --- | --- | --- |
# | `DISJOINT` | no value has both types | an error now |
# | `MISMATCH` | the kind, rank or dtype is not known | an error now; a `match_cast` says what it is |
# | `UNPROVEN` | only sizes are in question | accepted, and compared at each call |
# | `PASS` | every such value fits | nothing is left to check |
#
# ## Types follow from types
#
# Each operation has a rule that gives the type of its result, from the types of its operands, and from their values where a
# value is a shape. One walk from the first line to the last is enough.

# %%
def example(x: f32["n", 2, 2]):
    a = x.reshape(x.shape[0], 4)
    b = a.reshape(-1)
    c = np.unique(b)
    return np.exp(c) + c


mr.trace(example, f32["n", 2, 2])

# %% [markdown]
# `v1` is known to have as many elements as `x`, so it needs no memory of its own. How many distinct numbers there are, no rule
# can tell: `unique` gives `f32[_]`. A `match_cast` names that size at once: `m` is whatever comes when the program runs. From
# there on types are exact again. The exponentials are as many as the numbers, and their sum is no question. With a mark for
# "unknown" in place of a letter it would be one, so the language wants a name:

# %%
from minirelax.ir.verify import verify

with refused():
    verify(mr.parse("""
def f(x: f32[n]) -> f32[_]:
    with dataflow():
        c: f32[_] = unique(x)
        e: f32[_] = exp(c)
        output(e)
    return e
"""))

# %% [markdown]
# ## What you know and the compiler does not
#
# Adding the distinct elements to `x` cannot be right in general:

# %%
with refused():
    mr.trace(lambda x: np.unique(x) + x, f32["n"])

# %% [markdown]
# If your data has no duplicates, say so. `match_cast` gives a value a type; what is not known to be true is checked in each
# call.

# %%
@mr.jit
def shifted(x: f32["n"]):
    return mr.match_cast(np.unique(x), f32["n"]) + x


shifted(np.float32([1, 2, 4]))

# %%
with refused():
    shifted(np.float32([1, 2, 2]))

# %% [markdown]
# The result of an operation whose size depends on data has a type like any other: `x[x > 0]`, `np.nonzero`, `np.compress`,
# `np.repeat` with an array.

# %%
@mr.jit
def positive_parts(x, y):
    keep = (x > 0) & (y > 0)
    return (x[keep] * y[keep]).sum(), np.nonzero(keep)[0]


positive_parts(np.float32([1, -2, 3]), np.float32([4, 5, 6]))

# %% [markdown]
# ## Shapes are values
#
# `x.shape` is a tuple of sizes. It can be stored, passed, computed with and returned. A parameter can be a shape as well:

# %%
@mr.jit
def fold(x: f32["n"], s: Shape(["rows", "columns"])):
    return x.reshape(s), (s[0] + 1, s[1])


x = np.arange(6, dtype=np.float32)
for shape in ((2, 3), (6, 1)):
    folded, longer = fold(x, shape)
    print(folded.shape, longer)
len(fold.compilations)

# %%
with refused():
    fold(x, (2, 4))

# %% [markdown]
# ## Functions call functions
#
# By default the lines of a jitted function are taken into the function that calls it. With `inline=False` it stays a function,
# compiled once however often it is called. Its signature is all that a caller needs: a letter takes the size that it meets.

# %%
@mr.jit(inline=False)
def layer(x, w):
    return np.maximum(x @ w, 0)


mr.trace(lambda x, v, w: layer(layer(x, v), w), f32["a", "b"], f32["b", "c"], f32["c", "d"])

# %% [markdown]
# No equation is solved. `f32["n + 1"]` does not say what `n` is; some other parameter must, and then it can be compared:

# %%
@mr.jit(inline=False)
def differences(x: f32["n + 1"], y: f32["n"]):
    return x[1:] - x[:-1] + y


mr.trace(lambda x, y: differences(x, y), f32["m"], f32["k"])

# %% [markdown]
# The call was accepted, since `m` may be `k + 1`; the `match_cast` is what checks it. Where no parameter shows a size, it
# travels in one more parameter, a shape:

# %%
@mr.jit(inline=False)
def both(x, y):
    return np.concatenate([x, y]) * x.shape[0]


mr.trace(lambda x: both(np.concatenate([x, x]), np.concatenate([x, x, x])), f32["n"])

# %% [markdown]
# Functions are values, of a type that says what a call gives. So sizes are known through a name for a function, or a parameter
# that is one. This module is written by hand; `t` is known by its number of entries only, and the third result no better.

# %%
module = mr.parse("""
def main(x: f32[a], t: Shape(ndim=2)) -> Tuple[f32[4*a], f32[12], f32[_]]:
    s: Shape([a, 4]) = shape(a, 4)
    s2: Shape([3, 4]) = shape(3, 4)
    f: Callable[[Shape([n, m])], f32[m*n]] = ones
    v0: f32[4*a] = f(s)
    v1: f32[12] = f(s2)
    v2: f32[_] = f(t)
    v3: Tuple[f32[4*a], f32[12], f32[_]] = (v0, v1, v2)
    return v3

@private
def ones(s: Shape([n, m])) -> f32[m*n]:
    v0: f32[m*n] = full(f32(1.0), shape=(m*n,))
    return v0
""")
run = mr.compile(module)
[v.shape for v in run(x, (2, 5))]

# %%
with refused():
    verify(mr.parse(str(module).replace("v0: f32[4*a] = f(s)", "v0: f32[4*a] = f(t)")))

# %% [markdown]
# ## Branches and loops
#
# A function is traced without data, so it cannot decide by data:

# %%
@mr.jit
def scaled(x):
    return x / 10 if x.sum() > 10 else x


with refused():
    scaled(x)

# %% [markdown]
# `mr.cond` keeps both ways, as private functions, and only one of them runs. What they read from around them becomes their
# parameters. Here the results have different sizes, so their join is `f32[_]`. (Lines in a block `with dataflow():` have no
# effects, so passes may merge and drop them. Control flow stands between such blocks.)

# %%
def shorter(x, y):
    return mr.cond(x.sum() > 10, lambda: x / 10, lambda: y)


mr.trace(shorter, f32["n"], f32["m"])

# %% [markdown]
# The loops are `mr.while_loop`, `mr.fori_loop` and `mr.scan`. Names and signatures are those of JAX. What is carried from round
# to round may be a nested container, and outside of a jitted function everything runs in Python.

# %%
def root(x):
    """Newton's method, for all elements until the last one is done."""
    return mr.while_loop(lambda r: np.max(np.abs(r * r - x)) > 1e-9, lambda r: (r + x / r) / 2, x)


def power(x, k):
    return mr.fori_loop(0, k, lambda i, p: p * x, np.ones_like(x))


def recurrent(x, w, u):
    """A recurrent network: one row of x in each round, and the states of all rounds."""
    def cell(h, row):
        h = np.tanh(row @ w + h @ u)
        return h, h

    return mr.scan(cell, np.zeros_like(w[0]), x)


rng = np.random.default_rng(0)
args = rng.standard_normal((5, 3)), rng.standard_normal((3, 4)), rng.standard_normal((4, 4))
compiled = mr.jit(recurrent)
last, states = compiled(*args)
assert all(map(np.allclose, (last, states), recurrent(*args)))
assert np.allclose(power(args[0], 3), args[0] ** 3)
states.shape

# %% [markdown]
# What is carried keeps its dtype and its number of axes. Sizes may change in a `while_loop` and a `fori_loop`, which then
# allocates in each round.

# %%
with refused():
    mr.trace(lambda x: mr.while_loop(lambda s: s.sum() < 9, lambda s: s.reshape(1, -1), x), f32["n"])

# %%
def repeated(x, least):
    return mr.while_loop(lambda x: x.shape[0] < least, lambda x: np.concatenate([x, x]), x)


mr.trace(repeated, f32["n"], i64[()])

# %% [markdown]
# ## Reading a loop
#
# Here is Newton's method after fusion. Each round is two kernels: one to see whether to go on, one to go on. `x` does not
# change, so it stands apart from what is carried.

# %%
compiled = mr.jit(root)
assert np.allclose(compiled(np.array([2.0, 9.0])), [2**0.5, 3])
compiled.stages["fuse_kernels"].module

# %% [markdown]
# Three passes later memory is planned. A carried value has two places, its result's and a spare one, and a round reads one and
# writes the other.

# %%
print(compiled.stages["plan_memory"].module["main"])

# %% [markdown]
# Kernels are called by a table of instructions that native code walks over. The body stands in it once, with jumps around it.
# `PAUSE` is where arrays for results are made. After it nothing is allocated: a round ends with three `MOVE`s that exchange
# the two addresses.

# %%
table = compiled.executable.table
assert table.count("PAUSE") == 1 and table.index("PAUSE") < table.index("BRANCH")
print(table)

# %% [markdown]
# What a body needs for itself is reserved once, before the first round. It is part of the plan:

# %%
@mr.jit
def dominant(a):
    """The largest eigenvalue of a symmetric matrix, by power iteration."""
    def step(s):
        v = a @ s["v"]
        v = v / np.sqrt(np.sum(v * v))
        return {"v": v, "change": np.max(np.abs(v - s["v"]))}

    s = mr.while_loop(lambda s: s["change"] > 1e-9, step, {"v": np.ones_like(a[0]), "change": 1.0})
    return s["v"] @ a @ s["v"]


dominant(np.array([[2.0, 1.0], [1.0, 3.0]]))

# %%
dominant.memory.at(n=1000)

# %% [markdown]
# ## Kernels and routines of your own
#
# What NumPy cannot say in whole arrays, say in loops. A kernel is written in the language in which kernels are printed; it is
# fused like any other. (It does not solve equations either: `n` is given.)

# %%
@mr.kernel
def moving_mean(x: f32["n + 2"], out: f32["n"], *, n):
    for i in range(n):
        out[i] = (x[i] + x[i + 1] + x[i + 2]) / 3.0


@mr.jit
def smooth(x):
    return np.maximum(moving_mean(x, n=x.shape[0] - 2), 0) * 2


smooth(x)

# %%
smooth.stages["fuse_kernels"].module

# %% [markdown]
# And what exists already, call. A routine gets its inputs, and arrays for its results that it must fill:

# %%
def histogram(x, edges, out):
    out[...] = np.histogram(x, edges)[0]


mr.register_library("histogram", histogram)


@mr.jit
def shares(x, edges):
    counts = mr.call_library("histogram", (np.abs(x), edges), i64[edges.shape[0] - 1])
    return counts / x.shape[0]


shares(x, np.float32([0, 1, 4, 9]))

# %% [markdown]
# ## Checks at the boundary
#
# Inside a function types are true; where a value comes in, they are made true. A call of a compiled function compares what it
# is given with what is declared. An error names the function, the parameter and the axis, what was expected and what came, and
# where the expected number is from.

# %%
@mr.jit
def tail(x: f64["n", "m + 1"], y: f64["m"], s: Shape(["n", 2])):
    return (x[:, 1:] * y).sum() + s[1]


tail(np.ones((3, 5)), np.ones(4), (3, 2))

# %%
with refused():
    tail(np.ones((3, 4)), np.ones(4), (3, 2))
with refused():
    tail(np.ones((3, 5)), np.ones(4), (2, 2))
with refused():
    tail(np.ones((3, 5)), np.ones((4, 1)), (3, 2))
with refused():
    tail(np.ones((3, 5)), np.ones(4, np.int64), (3, 2))

# %% [markdown]
# ## Which pass was wrong
#
# A pass that keeps types and changes numbers is caught by no verifier. Here is one, made of a law that many believe: the
# square root of a square is the number.

# %%
from minirelax import pipeline
from minirelax.explore import Stages
from minirelax.ops.arithmetic import Multiply
from minirelax.ops.transcendental import Sqrt
from minirelax.passes.base import function_pass
from minirelax.passes.rules import rewrite, rule


@rule(lambda x: Sqrt(Multiply(x, x)))
def root_of_square(x):
    return x


@function_pass
def undo_squares(function):
    return rewrite(function, (root_of_square,))


length = mr.trace(lambda x: np.sqrt(x * x) + 1, f64["n"])
stages = mr.run(length, (undo_squares, *pipeline.passes()))
mr.validate(stages, np.array([3.0, 4.0]))

# %% [markdown]
# On these numbers it is right. `validate` runs every stage, on the values that it is given, and compares: other numbers tell.

# %%
with refused():
    mr.validate(stages, np.array([3.0, -4.0]))
Stages(stages).diff("undo_squares")

# %% [markdown]
# `mr.jit(f, validate=True)` does this at every call, generated code included. It is slow; use it if you doubt a result.

# %%
assert np.array_equal(mr.jit(lambda x: np.sqrt(x * x) + 1, validate=True)(np.array([3.0, -4.0])), [4, 5])

# %% [markdown]
# ## A program as a file
#
# An executable is saved with everything that it needs. Another process runs it, for all sizes, without your source:

# %%
import subprocess
import sys
import tempfile
from pathlib import Path

file = Path(tempfile.mkdtemp()) / "root.mrx"
compiled.executable.save(file)
script = """
import sys
import numpy as np, minirelax as mr
root = mr.Executable.load(sys.argv[1])
found, = root(np.array([2.0, 9.0, 144.0]))
print(found)
"""
print(subprocess.run([sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=True).stdout)

# %% [markdown]
# A file that was cut, changed, or made by another version is refused before anything of it runs. Still, it is a program: load
# it only from where you would run one.

# %%
data = bytearray(file.read_bytes())
data[len(data) // 2] ^= 1
file.write_bytes(data)
with refused():
    mr.Executable.load(file)

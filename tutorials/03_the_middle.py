# %% [markdown]
# # The middle of the compiler
#
# Between a traced function and machine code stand the passes of the paper *Relax*: operations become loops, loops are looked
# at, groups of them become one kernel, and values that are never alive together share memory. Each section begins with what
# goes wrong without its pass; `without=` leaves a pass out, so that you can see it.

# %%
import contextlib

import numpy as np

import minirelax as mr
from minirelax import f32, pipeline, u8
from minirelax.ir.graph import RunKernel


@contextlib.contextmanager
def refused():
    """Prints the error that is expected here."""
    try:
        yield
    except mr.errors.CompileError as error:
        print(f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("nothing was wrong")


def final(module, **options):
    """The module after all passes."""
    return mr.run(module, pipeline.passes(pipeline.Options.of(None, **options)))[-1].module


def calls(module):
    """The kernels that the program runs, in order."""
    return [b.value.kernel for b in module["main"].bindings if isinstance(b.value, RunKernel)]


# %% [markdown]
# ## Three levels in one module
#
# A compiler that lowers everything at once can no longer ask which operation a loop came from; one that never lowers cannot see
# what the loops do. Here operations, loop-level kernels and calls of library routines live in one module, and each pass lowers
# as much as it wants. After `legalize`, a sort is still a call by name, while the rest are loops with free sizes:

# %%
def scaled_sort(x):
    return np.sort(x * 2.0 + 1.0, axis=-1)


scaled = mr.run(mr.trace(scaled_sort, f32["n", 8]), (*pipeline.GRAPH_PASSES, *pipeline.KERNEL_PASSES[:1]))[-1].module
scaled

# %% [markdown]
# ## What do these loops do?
#
# Fusing by the names of operations works for the operations that somebody thought of, and never for a kernel that you wrote.
# `annotate_patterns` looks at the loops instead: where does a block read, compared with where it writes?

# %%
@mr.kernel
def decode(codes: u8["n", "k"], scale: f32["n"], out: f32["n", "2*k"], *, n, k):  # noqa: F821
    for i in range(n):
        for j in range(2 * k):
            out[i, j] = (f32((codes[i, j // 2] >> u8(j % 2 * 4)) & 15) - 7.0) * scale[i]


def several(x, w, b, codes, scale):
    return np.exp(x), x + b, x.T, np.sum(x, axis=1), x @ w, decode(codes, scale)


module = mr.trace(several, f32["n", "m"], f32["m", "k"], f32["m"], u8["p", "q"], f32["p"])
labelled = mr.run(module, (*pipeline.GRAPH_PASSES, *pipeline.KERNEL_PASSES[:2]))[-1].module
for kernel in labelled.kernels:
    print(f"{kernel.name:10} {kernel.pattern}")

# %% [markdown]
# The decoder of 4-bit weights is *injective*: each element is made of the inputs at places that follow from its own. Nobody
# had to say so.
#
# ## One kernel in place of many
#
# NumPy runs one loop after the other, and each writes its result to memory for the next to read. `fuse_ops` groups calls along
# the graph; `fuse_kernels` makes one kernel of each group.

# %%
def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


rows = mr.trace(softmax, f32["n", "m"])
print("apart:   ", calls(final(rows, without="fuse_ops")))
print("together:", calls(final(rows)))

# %% [markdown]
# The merged kernel is a list of stages over shared rows, not one long expression: the sum is not computed again for each
# element that it divides. What passes between the stages is local to a row.

# %%
final(rows)["max_subtract_exp_sum_divide"]

# %% [markdown]
# Weights of four bits, and a product with them: without fusion the decoded weights, eight times as large, are written and read.

# %%
def quantised(x, codes, scale, bias):
    return np.maximum(x @ decode(codes, scale).T + bias, 0)


types = f32["m", "2*k"], u8["n", "k"], f32["n"], f32["n"]
product = mr.trace(quantised, *types)
print("apart:   ", calls(final(product, without="fuse_ops")))
print("together:", calls(final(product)))

# %% [markdown]
# ## Who must not be moved
#
# A group is moved as one: all that it reads must be there before, all that reads it comes after. Sizes count as values here.
# Where `match_cast` finds a size at run time, nothing that uses the size may move above it, even if it reads nothing else from
# there. (In other compilers this was a long-lived fault: a call above the line that binds its size.)

# %%
def distinct(x, y):
    found = mr.match_cast(np.unique(x), f32["u"])
    return np.exp(y) + 1.0, np.exp(found) * found.shape[0]


print(mr.run(mr.trace(distinct, f32["n"], f32["n"]), pipeline.passes())[-1].module["main"])

# %% [markdown]
# ## Memory
#
# Every result of a kernel needs room. Allocating at each call costs time, and the sum of all values is far more than what is
# alive at once. `plan_memory` gives each value a place before the program runs, though sizes are letters: what is compared are
# expressions. Before that, `write_in_place` lets the parts of a concatenation be written into it by what makes them, and
# `reuse_inputs` lets a result be written over an input that nobody reads any more.

# %%
chain = """
@kernel
def copy(x: f32[n], out: f32[n], *, n):
    for i in range(n):
        out[i] = x[i] * 2.0

def main(x: f32[2*n], y: f32[n]) -> f32[2*n]:
    with dataflow():
        v0: f32[2*n] = call_kernel(copy, x, sizes=(2*n,))
        v1: f32[2*n] = call_kernel(copy, v0, sizes=(2*n,))
        v2: f32[2*n] = call_kernel(copy, v1, sizes=(2*n,))
        v3: f32[2*n] = call_kernel(copy, v2, sizes=(2*n,))
        output(v3)
    return v3
"""
apart = pipeline.Options.of(None, without="fuse_ops")
stages = mr.run(mr.parse(chain), pipeline.passes(apart))
plan = mr.explore.memory_plan(stages[-1].module)
plan.at(n=1000)

# %% [markdown]
# With bounds for the letters, bytes become numbers, and a storage serves whatever fits into it. A lower bound alone says
# nothing about how large a size becomes, and is not taken for an upper one.

# %%
for bounds in ({}, {"n": (16, None)}, {"n": (0, 1024)}):
    chosen = pipeline.Options.of(bounds, without="fuse_ops")
    print(bounds, mr.explore.memory_plan(mr.run(mr.parse(chain), pipeline.passes(chosen))[-1].module).peak)

# %% [markdown]
# What a kernel works in besides its inputs and outputs, packed panels of a matrix say, is no secret of the kernel: it is a tensor
# of bytes in the same plan (`lift_workspaces`), with a row for each thread; other tensors use the same place before and after.
# `.memory` shows who lives where and when, and compares the peak with the least that any plan could take.

# %%
@mr.jit
def attention(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2) / 8.0
    return softmax(scores) @ v


heads = np.random.default_rng(0).standard_normal((2, 3, 9, 64), np.float32)
attention(heads, heads, heads)
attention.memory

# %% [markdown]
# A server would rather refuse a request than run out of memory. With `memory_limit` a call that needs more is refused before
# it starts:

# %%
with refused():
    mr.jit(lambda x: np.cumsum(np.sort(x, axis=0), axis=0) * 2, memory_limit=1 << 20)(np.ones((1 << 19, 2)))

# %% [markdown]
# ## Long sums
#
# Threads share the results of a kernel among them. A sum of a million numbers has one result: one thread would do it all, while
# the others wait. `split_reductions` makes two kernels of it, the partial sums of blocks and their sum. The blocks depend on the
# shape alone, so the result is the same to the last bit for any number of threads.

# %%
total = mr.trace(lambda x: np.sum(x * x), f32["n"])
print("whole:", calls(final(total, without="split_reductions")))
print("split:", calls(final(total)))

# %% [markdown]
# ## What others do better
#
# Some parts of a program exist already as a fast routine: yours, or a library's. A compiler whose lowering is all or nothing
# cannot use it. Here a rule says which operations a routine computes: a pattern as a function of variables, if need be a check
# of the place, and the routine, which writes its last argument. The rest of the program flows on.

# %%
from minirelax.ops.arithmetic import Maximum
from minirelax.ops.linalg import Matmul


@mr.library_rule(lambda x, w: Maximum(Matmul(x, w), 0), check=lambda match: match.is_weight(match["w"]))
def dense_relu(x, w, out):
    np.maximum(x @ w, 0, out=out)


@mr.library_rule(lambda x, y: Matmul(Matmul(x, y), y))
def never(x, y, out):
    raise AssertionError("no place has this pattern")


def network(x, w, v):
    return np.maximum(np.maximum(x @ w, 0) @ v, 0) + np.maximum(x @ x.T, 0) @ x @ w


ruled = mr.jit(network, constants=("w", "v"), libraries=(dense_relu, never))
x, w, v = (np.random.default_rng(0).standard_normal(shape).astype(np.float32) for shape in ((5, 8), (8, 6), (6, 6)))
np.testing.assert_allclose(ruled(x, w, v), network(x.astype(float), w, v), rtol=1e-4)
print(*ruled.stages["choose_libraries"].notes, sep="\n")
print(ruled.stages["choose_libraries"].module["main"])

# %% [markdown]
# A rule that never matches says so, and one that fails is named, with the line of the program that it looked at:

# %%
@mr.library_rule(lambda x, w: Matmul(x, w), check=lambda match: match["z"] is None)
def careless(x, w, out):
    np.matmul(x, w, out=out)


with refused():
    mr.jit(network, libraries=(careless,))(x, w, v)

# %% [markdown]
# A routine is trusted with nothing but its outputs. One that writes something else than what was declared is an error of its own,
# not a wrong result somewhere else:

# %%
def two_dimensional(x, out):
    out.shape = (out.size, 1)


mr.register_library("two_dimensional", two_dimensional)
with refused():
    mr.jit(lambda x: mr.call_library("two_dimensional", (x,), f32[x.shape]) + 1)(np.ones(4, np.float32))

# %% [markdown]
# The same patterns make groups of your own: `mr.GroupRule` says what is to become one kernel before anything else is grouped.
#
# ## What became of my lines?
#
# After all this, a program is a list of kernels with names like `max_subtract_exp_sum_divide`. Each still knows which operations
# it is made of, and which of your lines asked for them. On the command line, `python -m minirelax explain` prints this too.

# %%
attention.kernels

# %% [markdown]
# ## What is each pass worth?
#
# Leave it out, and look. Results stay what they are; the number of kernels, the memory and the time change. Below are kernels
# and bytes (with the result's) for one program. Passes that change nothing here have nothing to do in it; for whole models, and
# with times, there is `examples/benchmarks/ablation.py`.

# %%
from minirelax.ir.dim import value
from minirelax.passes.options import OPTIONAL


def layer(x, w, v, g):
    h = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-5) * g.T.T
    return x + softmax((h @ w) @ (h @ v).T) @ x


def bytes_taken(module, **sizes):
    plan = mr.explore.memory_plan(module)
    return plan.peak_bytes(**sizes) + sum(value(tensor.bytes, sizes) for tensor in plan.results)


program = mr.trace(layer, f32["n", 64], f32[64, 32], f32[64, 32], f32[1, 64], constants=("w", "v", "g"))
for name in ("nothing", *OPTIONAL):
    module = final(program, **({} if name == "nothing" else {"without": name}))
    print(f"without {name:20} {len(calls(module)):2} kernels, {bytes_taken(module, n=1000):11,} bytes")

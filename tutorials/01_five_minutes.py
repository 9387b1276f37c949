# %% [markdown]
# # Five minutes with minirelax
#
# minirelax compiles NumPy functions. One compiled program serves every size of its arguments, and everything that happens
# on the way can be looked at: each step prints as Python text.

# %%
import numpy as np

import minirelax as mr


@mr.jit
def softmax(x):
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


# %% [markdown]
# The function is ordinary NumPy, and the decorator changes nothing about how it is called. The first call compiles.

# %%
rng = np.random.default_rng(0)
softmax(rng.standard_normal((2, 3), dtype=np.float32)).sum(axis=-1)

# %% [markdown]
# ## One program for all sizes
#
# Other sizes run the same program. Nothing is compiled again, and nothing is padded.

# %%
for shape in ((1, 5), (100, 7), (3, 4000), (0, 4)):
    x = rng.standard_normal(shape, dtype=np.float32)
    exact = np.exp(x - x.max(-1, keepdims=True), dtype=np.float64)
    assert np.allclose(softmax(x), exact / exact.sum(-1, keepdims=True), rtol=1e-5, atol=1e-7)

len(softmax.compilations)

# %% [markdown]
# ## What was compiled
#
# The function ran once on stand-ins for arrays, which noted what was done to them. That is the *trace*. Sizes are letters:
# `n` and `m` stand for whatever comes.

# %%
softmax.stages["trace"].module

# %% [markdown]
# Then a row of passes rewrote it, each of which does one thing.

# %%
softmax.stages

# %% [markdown]
# The most important one joins steps into *kernels*: loops over elements that keep what they can in registers and caches instead
# of writing whole arrays between one NumPy function and the next. A kernel prints as the Python loops that it means.

# %%
softmax.stages["fuse_kernels"].module

# %% [markdown]
# Since every value keeps its name from the first stage to the last, what a pass did is a difference of texts.

# %%
softmax.diff("fuse_kernels")

# %% [markdown]
# ## Facts about sizes
#
# Some code is right only for some sizes. Adding two matrices needs equal sizes, or a 1 to be stretched. When the question
# comes up, the compiler looks at the sizes at hand, and writes down what it assumed, and which line of yours asked.

# %%
@mr.jit
def add(x, y):
    return x + y


add(np.ones((4, 3), np.float32), np.ones((4, 3), np.float32))
add.compilations

# %% [markdown]
# The facts are checked at each call. A call that does not fit them is compiled anew; both programs are kept.

# %%
add(np.ones((4, 3), np.float32), np.ones((1, 3), np.float32))
add.compilations

# %% [markdown]
# ## Every stage runs
#
# The text of any stage is a program with a meaning: NumPy runs the graph, plain Python loops run the kernels. So one can ask any
# pass whether it changed the result.

# %%
from minirelax.ir.interpret import interpret

x = rng.standard_normal((3, 4), dtype=np.float32)
for name in ("trace", "fuse_kernels", "plan_memory"):
    assert np.allclose(interpret(softmax.stages[name].module, x), softmax(x), rtol=1e-5)

# %% [markdown]
# And the text can be read back: stop anywhere, edit, go on.

# %%
module = softmax.stages["trace"].module
assert mr.parse(str(module)) == module

# %% [markdown]
# ## Memory
#
# Results that are needed only for a while share storage; the peak is an expression in the sizes.

# %%
@mr.jit
def four_layers(x, w):
    for _ in range(4):
        x = np.maximum(x @ w, 0.0)
    return x


four_layers(rng.standard_normal((5, 8), dtype=np.float32), rng.standard_normal((8, 8), dtype=np.float32))
four_layers.memory

# %%
four_layers.memory.at(n=1000, m=784)

# %% [markdown]
# ## Where the time goes
#
# In the first compilation on a machine, to machine code: the last line of the table of stages. It is kept on disk, so the next
# process has it already, and shows no time there. In a call, mostly to memory: NumPy reads and writes whole arrays once per
# function, the kernel above walks over each row while it is in the nearest cache. This is how its loops are cut into tiles,
# and what a call is reckoned to cost:

# %%
softmax.tiling

# %%
from minirelax.explore.timing import paired

x = rng.standard_normal((1000, 768), dtype=np.float32)
pair = paired(lambda: softmax(x), lambda: softmax.fn(x), rounds=5)
print(f"{pair.ratio:.2f} of NumPy's time, which is {1e3 * pair.reference_seconds:.1f} ms")

# %% [markdown]
# ## Mistakes
#
# An error says what does not fit, in which line of your code, and what to do about it.

# %%
try:
    add(np.ones((4, 3), np.float32), np.ones((4, 5), np.float32))
except mr.errors.CompileError as error:
    print(error)

"""Bad input to a compiled function, on the default target: the whole message of each error, word for word.

A message says what is wrong, in which line of the user's file, and what to do.  The traceback shows the user's frames only.
"""

# ruff: noqa: F821, UP037   (sizes are named in quotes)
from __future__ import annotations

import traceback
from pathlib import Path

import numpy as np
import pytest

import minirelax as mr
import minirelax.numpy as mnp
from minirelax import f32
from minirelax.errors import (
    ArgumentError,
    BranchError,
    CompileError,
    DTypeError,
    IndexingError,
    ShapeError,
    UnsupportedError,
    VerifyError,
)

X = np.ones((3, 4), np.float32)
Z = np.ones(3, np.complex64)
PACKAGE = Path(mr.__file__).parent
CALL = "call(*args)"  # the line below that calls the compiled function


def error_of(call, args, error) -> CompileError:
    """What the call raises, which is of exactly this class, with a traceback of nothing but our entry and the user's frames."""
    with pytest.raises(error) as caught:
        call(*args)
    assert type(caught.value) is error
    ours = [f.name for f in traceback.extract_tb(caught.value.__traceback__) if Path(f.filename).is_relative_to(PACKAGE)]
    assert set(ours) == {"__call__"} and len(ours) <= 2  # two where one compiled function calls another
    return caught.value


def message(call, args, error) -> str:
    """The text of the error, without the line number."""
    lines = str(error_of(call, args, error)).splitlines()
    (at,) = [i for i, line in enumerate(lines) if line.startswith("  at test_bad_input.py:")]
    lines[at] = "  at test_bad_input.py   " + lines[at].split("   ", 1)[1]
    return "\n".join(lines)


@mr.jit
def add(x, y):
    return x + y


@mr.jit
def add_declared(x: f32["n", 4], y: f32["n", 4]):
    return x + y


@mr.jit
def add_two_sizes(x: f32["n", 4], y: f32["m", 4]):
    return x + y


@mr.jit
def product(x, y):
    return x @ y


@mr.jit
def product_declared(x: f32["n", 4], y: f32[3, "m"]):
    return x @ y


@mr.jit
def histogram(x):
    return np.histogram(x)


@mr.jit
def spectrum(x):
    return np.linalg.svd(x)


@mr.jit
def view(x):
    return x.view(np.int32)


@mr.jit
def relu(x):
    if x.sum() > 0:
        return x
    return 0 * x


@mr.jit
def halve(x):
    while x[0, 0] > 1:
        x = x / 2
    return x


@mr.jit
def scale(x, factor):
    return x if factor == 1 else x * factor


@mr.jit
def rows(x, i):
    return x[i]


@mr.jit
def last_row(x):
    return x[7]


@mr.jit
def columns(x, i):
    doubled = 2 * x
    return np.take(doubled, i, axis=1)


@mr.jit
def two_kept(x, keep):
    kept = np.compress(keep, x, axis=0)
    return np.exp(mr.match_cast(kept, f32[2, 4]))


@mr.jit
def square(x):
    return x.reshape(5, 5)


@mr.jit
def fives(x):
    return np.reshape(x, (5, -1))


@mr.jit
def sort_by_field(x):
    return np.sort(x, order="name")


@mr.jit
def add_unsafely(x):
    return np.add(x, 1, casting="unsafe")


@mr.jit
def nuclear_norm(x):
    return np.linalg.norm(x, ord="nuc")


@mr.jit
def misspelt(x):
    return mnp.sum(x, axes=0)


@mr.jit
def branches(x):
    return mr.cond(x.sum() > 0, lambda: {"x": x}, lambda: (x, 1))


@mr.jit
def branches_of_two_ranks(x):
    def first(x):
        return x[0]

    return mr.cond(x.sum() > 0, first, lambda x: x, x)


@mr.jit
def branch_of_no_function(x):
    return mr.cond(x.sum() > 0, x, -x)


@mr.jit
def branch_on_an_array(x):
    return mr.cond(x > 0, np.sqrt, np.negative, x)


@mr.jit
def branch_on_text(x, mode):
    return mr.cond(mode, np.sqrt, np.negative, x)


@mr.jit
def body_without_return(x):
    def body(i, x):
        x[i] = 0

    return mr.fori_loop(0, 3, body, x)


@mr.jit
def endless(x):
    return mr.while_loop(lambda x: x.shape[0] < 10, np.sqrt, x)


@mr.jit
def other_containers(x):
    return mr.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1], 2), (0, x))


@mr.jit
def other_dtype(x):
    def step(s):
        return {"n": s["n"] + 1, "x": s["x"] * np.float64(2)}

    return mr.while_loop(lambda s: s["n"] < 3, step, {"n": 0, "x": x})


@mr.jit
def other_rank(x):
    return mr.fori_loop(0, 3, lambda i, total: total + x, 0.0)


@mr.jit
def rounds_of_a_float(x):
    return mr.fori_loop(0, x.sum(), lambda i, s: s + 1, x)


@mr.jit
def carried_text(x):
    return mr.fori_loop(0, 3, lambda i, s: s, {"x": x, "mode": "fast"})


@mr.jit
def growing_scan(x):
    def step(c, row):
        return np.concatenate([c, row]), None

    return mr.scan(step, x[0], x)


@mr.jit
def scan_without_pair(x):
    return mr.scan(lambda c, row: c + row, x[0], x)


@mr.jit
def scan_backwards(x):
    return mr.scan(lambda c, _: (c + 1, None), x, length=-1)


@mr.jit
def scan_over_two(x, y):
    return mr.scan(lambda c, rows: (c, rows["a"] + rows["b"][0]), 0, {"a": x[0], "b": y})


@mr.jit
def ragged_scan(x):
    return mr.scan(lambda c, row: (c, row[row > 0]), 0, x)


@mr.jit
def leaking(x):
    kept = []

    def body(i, x):
        kept.append(x * 2)
        return x

    mr.fori_loop(0, 3, body, x)
    return kept[0] + 1


@mr.jit
def write_outside(x):
    def body(i, total):
        x[i] = total
        return total + 1

    return mr.fori_loop(0, 3, body, 0)


@mr.jit
def if_in_a_body(x):
    return mr.fori_loop(0, 3, lambda i, s: s if s.sum() > 0 else -s, x)


@mr.jit
def question_about_a_changing_size(x):
    def halve(x):
        return x[::2] if x.shape[0] > 4 else x[1:]

    return mr.while_loop(lambda x: x.shape[0] > 1, halve, x)


@mr.jit
def range_of_a_changing_size(x):
    def shorten(x):
        return sum(x[i] for i in range(x.shape[0])) + x[1:]

    return mr.while_loop(lambda x: x.shape[0] > 1, shorten, x)


@mr.jit
def normalise(x):
    return x / float(x.sum())


@mr.jit
def count(x):
    return [i for i in range(x[0, 0].astype(int))]


@mr.jit
def elementwise(x: f32["n", "m"]):
    return [row * 2 for row in x]


@mr.jit
def ordered(x):
    return sorted(x[0])


@mr.jit
def report(x):
    return f"{x[0, 0]:.3f}"


@mr.jit
def filled(x):
    out = np.empty(3)
    out[:] = x[:, 0]
    return out


@mr.jit
def element(x):
    out = np.empty(3)
    out[0] = x[0, 0]
    return out


@mr.jit
def clear(x):
    x[:] = 0


@mr.jit
def accumulate(x, total):
    total += x


@mr.jit
def total(x):
    return x.sum(axis=2)


@mr.jit
def largest(x):
    return x.max(axis=0)


@mr.jit
def both(x):
    return x & 1


@mr.jit
def smaller(x, y):
    return x < y


@mr.jit
def largest_complex(x):
    return np.max(x)


@mr.jit
def rounded_down(x):
    return np.floor(x)


@mr.jit
def as_floats(x):
    return x.astype(np.float32)


@mr.jit
def stored(x, z):
    x = x.copy()
    x[0, 0] = z[0]
    return x


@mr.jit
def imaginary(x):
    x = x.copy()
    x.imag = 1
    return x


@mr.jit
def joined(x, y):
    return np.concatenate([x, y])


@mr.jit
def outer(x, y):
    return 2 * add(x, y)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


CASES = {
    # sizes that clash, in a function and against a declaration
    "sizes": (add, (X, X[:, :3]), ShapeError, """\
add(x, y): axis -1 has sizes m and l, which differ in this call: 4 and 3
  where x: f32[n, m], y: f32[k, l]
  at test_bad_input.py   return x + y
  hint: sizes broadcast if they are equal, or one of them is 1"""),
    "sizes of two declarations": (add_two_sizes, (X, X[:2]), ShapeError, """\
add(x, y): axis -2 has sizes n and m, which differ in this call: 3 and 2
  where x: f32[n, 4], y: f32[m, 4]
  at test_bad_input.py   return x + y
  hint: sizes broadcast if they are equal, or one of them is 1"""),
    "sizes declared to be free": (add_two_sizes, (X, X), ShapeError, """\
add(x, y): axis -2 has sizes n and m, which cannot be shown equal
  where x: f32[n, 4], y: f32[m, 4]
  at test_bad_input.py   return x + y
  hint: if they are equal at run time, say so with minirelax.match_cast"""),
    "declared to be equal": (add_declared, (X, X[:2]), ShapeError, f"""\
add_declared: argument y: expected f32[n, 4], got an array of shape (2, 4): axis 0 is 2, not n = 3 (the size of axis 0 of x)
  at test_bad_input.py   {CALL}
  hint: pass an array of the declared shape, or declare another"""),
    "declared number": (add_declared, (X[:, :3], X), ShapeError, f"""\
add_declared: argument x: expected f32[n, 4], got an array of shape (3, 3): axis 1 is 3, not 4
  at test_bad_input.py   {CALL}
  hint: pass an array of the declared shape, or declare another"""),
    "declared number of axes": (add_declared, (X, X[0]), ShapeError, f"""\
add_declared: argument y: expected f32[n, 4], got an array of shape (4,): 1 axis, not 2
  at test_bad_input.py   {CALL}
  hint: pass an array of the declared shape, or declare another"""),
    "inner sizes": (product, (X, X), ShapeError, """\
matmul(x, y): inner sizes are m and k, which differ in this call: 4 and 3
  at test_bad_input.py   return x @ y
  hint: the last axis of one and the last but one of the other (of a vector: its only one) have one size"""),
    "declared inner sizes": (product_declared, (X, X), ShapeError, """\
matmul(x, y): inner sizes are 4 and 3, which differ
  at test_bad_input.py   return x @ y
  hint: the last axis of one and the last but one of the other (of a vector: its only one) have one size"""),
    "reshape": (square, (X,), ShapeError, """\
cannot reshape array of shape (n, m) into shape (5, 5): m*n and 25, which differ in this call: 12 and 25 elements
  at test_bad_input.py   return x.reshape(5, 5)
  hint: write -1 for one of the sizes, or pass another array"""),
    "reshape that does not divide": (fives, (X,), ShapeError, """\
cannot reshape array of shape (n, m) into shape (5, -1): m*n (here 12) elements are not a multiple of 5
  at test_bad_input.py   return np.reshape(x, (5, -1))
  hint: choose sizes that divide the number of elements, or pass another array"""),
    "concatenate": (joined, (X, X[:, :3]), ShapeError, """\
all the input array dimensions except for the concatenation axis must match; axis 1 has m and l, which differ in this call: \
4 and 3
  at test_bad_input.py   return np.concatenate([x, y])
  hint: concatenate along axis 1, or cut or pad one of them"""),
    "no such axis": (total, (X,), ShapeError, """\
axis 2 is out of bounds for array of dimension 2
  at test_bad_input.py   return x.sum(axis=2)
  hint: axes count from 0, or from -1 at the end"""),
    "largest of nothing": (largest, (X[:0],), ShapeError, """\
zero-size array to reduction operation maximum which has no identity
  at test_bad_input.py   return x.max(axis=0)
  hint: say what the result for no elements is: initial="""),
    "in a compiled function that another calls": (outer, (X, X[:, :3]), ShapeError, """\
add(x, y): axis -1 has sizes m and l, which differ in this call: 4 and 3
  where x: f32[n, m], y: f32[k, l]
  at test_bad_input.py   return x + y
  hint: sizes broadcast if they are equal, or one of them is 1"""),
    # functions and options that are not there
    "function": (histogram, (X,), UnsupportedError, """\
np.histogram is not supported in a compiled function
  at test_bad_input.py   return np.histogram(x)
  hint: minirelax.numpy has what is supported; do the rest outside the compiled function"""),
    "function of a submodule": (spectrum, (X,), UnsupportedError, """\
np.linalg.svd is not supported in a compiled function
  at test_bad_input.py   return np.linalg.svd(x)
  hint: minirelax.numpy has what is supported; do the rest outside the compiled function"""),
    "method": (view, (X,), UnsupportedError, """\
ndarray.view is not supported in a compiled function
  at test_bad_input.py   return x.view(np.int32)
  hint: minirelax.numpy has what is supported; do the rest outside the compiled function"""),
    "option of a function": (sort_by_field, (X,), UnsupportedError, """\
np.sort(..., order='name') is not supported in a compiled function
  at test_bad_input.py   return np.sort(x, order="name")
  hint: minirelax.numpy has what is supported; do the rest outside the compiled function"""),
    "option of a ufunc": (add_unsafely, (X,), UnsupportedError, """\
np.add(..., casting='unsafe') is not supported in a compiled function
  at test_bad_input.py   return np.add(x, 1, casting="unsafe")
  hint: minirelax.numpy has what is supported; do the rest outside the compiled function"""),
    "value of an option": (nuclear_norm, (X,), UnsupportedError, """\
np.linalg.norm(..., ord='nuc') is not supported in a compiled function
  at test_bad_input.py   return np.linalg.norm(x, ord="nuc")
  hint: minirelax.numpy has what is supported; do the rest outside the compiled function"""),
    "option that nobody has": (misspelt, (X,), ArgumentError, """\
np.sum: got an unexpected keyword argument 'axes'
  at test_bad_input.py   return mnp.sum(x, axes=0)"""),
    # branches and loops
    "branches: containers": (branches, (X,), ArgumentError, """\
cond: the branch then returns {'x': *}, but the branch otherwise returns (*, *)
  at test_bad_input.py   return mr.cond(x.sum() > 0, lambda: {"x": x}, lambda: (x, 1))
  hint: return the same containers; each * is an array or a number"""),
    "branches: axes": (branches_of_two_ranks, (X,), ShapeError, """\
cond: the result is f32[m] by first, but f32[n, m] by the branch otherwise
  at test_bad_input.py   return mr.cond(x.sum() > 0, first, lambda x: x, x)
  hint: give both as many axes: np.reshape, np.broadcast_to"""),
    "branches: no function": (branch_of_no_function, (X,), ArgumentError, """\
cond: true_fun is no function, but of type TracedArray
  at test_bad_input.py   return mr.cond(x.sum() > 0, x, -x)
  hint: pass a function: cond calls it where needed"""),
    "condition: axes": (branch_on_an_array, (X,), ShapeError, """\
cond: pred has 2 axes, not one truth value
  at test_bad_input.py   return mr.cond(x > 0, np.sqrt, np.negative, x)
  hint: reduce it with np.any or np.all; np.where chooses element by element"""),
    "condition: text": (branch_on_text, (X, "fast"), ArgumentError, """\
cond: pred is of type str, not a truth value
  at test_bad_input.py   return mr.cond(mode, np.sqrt, np.negative, x)
  hint: give a bool, or a number, which counts as true unless it is 0"""),
    "body: no return": (body_without_return, (X,), ArgumentError, """\
fori_loop: one value is carried, but body returns None
  at test_bad_input.py   return mr.fori_loop(0, 3, body, x)
  hint: return the same containers; each * is an array or a number"""),
    "condition: always true": (endless, (X,), ArgumentError, """\
while_loop: what the condition returns is always true: the loop never ends
  at test_bad_input.py   return mr.while_loop(lambda x: x.shape[0] < 10, np.sqrt, x)
  hint: compute the condition from what the body changes"""),
    "body: containers": (other_containers, (X,), ArgumentError, """\
while_loop: (*, *) is carried, but the body returns (*, *, *)
  at test_bad_input.py   return mr.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1], 2), (0, x))
  hint: return the same containers; each * is an array or a number"""),
    "body: dtype": (other_dtype, (X,), DTypeError, """\
while_loop: init_val['x'] is carried as f32[n, m], but step returns f64[n, m] for it
  at test_bad_input.py   return mr.while_loop(lambda s: s["n"] < 3, step, {"n": 0, "x": x})
  hint: convert what is returned, .astype(np.float32), or start with the other dtype"""),
    "body: axes": (other_rank, (X,), ShapeError, """\
fori_loop: init_val is carried as a Python float, but the body returns f32[n, m] for it
  at test_bad_input.py   return mr.fori_loop(0, 3, lambda i, total: total + x, 0.0)
  hint: the number of axes stays the same: start with an array that has as many, such as np.zeros_like(...)"""),
    "carried text": (carried_text, (X,), ArgumentError, """\
fori_loop: init_val['mode'] is of type str, neither an array nor a number
  at test_bad_input.py   return mr.fori_loop(0, 3, lambda i, s: s, {"x": x, "mode": "fast"})
  hint: a function sees everything else where it is defined"""),
    "bound": (rounds_of_a_float, (X,), DTypeError, """\
fori_loop: upper is f32[()], not an integer
  at test_bad_input.py   return mr.fori_loop(0, x.sum(), lambda i, s: s + 1, x)
  hint: count rounds with an integer: .astype(int)"""),
    "scan: size": (growing_scan, (X,), ShapeError, """\
scan: init is carried as f32[m], but step returns f32[2*m] for it
  at test_bad_input.py   return mr.scan(step, x[0], x)
  hint: scan keeps all sizes: begin with the final size and fill it, or use minirelax.while_loop, where sizes may change"""),
    "scan: no pair": (scan_without_pair, (X,), ArgumentError, """\
scan: the body returns one value, not a pair
  at test_bad_input.py   return mr.scan(lambda c, row: c + row, x[0], x)
  hint: return the next carry and the round's result: carry, y; a round without a result returns carry, None"""),
    "scan: length": (scan_backwards, (X,), ArgumentError, """\
scan: length is -1
  at test_bad_input.py   return mr.scan(lambda c, _: (c + 1, None), x, length=-1)
  hint: a number of rounds is not negative"""),
    "scan: lengths": (scan_over_two, (X, X), ShapeError, """\
scan: xs['a'] and xs['b'] say how many rounds there are: m and k, which differ in this call: 4 and 3
  at test_bad_input.py   return mr.scan(lambda c, rows: (c, rows["a"] + rows["b"][0]), 0, {"a": x[0], "b": y})
  hint: slices are taken from all arrays at once: make them equally long"""),
    "scan: results": (ragged_scan, (X,), ShapeError, """\
scan: the result is f32[k], and k may be another size in each round
  at test_bad_input.py   return mr.scan(lambda c, row: (c, row[row > 0]), 0, x)
  hint: say what it is with minirelax.match_cast, or give results of one size, filled up with zeros"""),
    "leak": (leaking, (X,), ArgumentError, """\
an array that was made inside body is used outside of it
  at test_bad_input.py   return kept[0] + 1
  hint: return it from body: what branches and bodies of loops store elsewhere is gone after them"""),
    "write to an array from outside": (write_outside, (X,), UnsupportedError, """\
body writes to an array from outside, in place
  at test_bad_input.py   x[i] = total
  hint: pass it as an operand or carry it through the loop, write to what comes in, and return that"""),
    "if in a body": (if_in_a_body, (X,), BranchError, """\
the truth value of a traced array (bool[()]) is not known while the function is traced
  at test_bad_input.py   return mr.fori_loop(0, 3, lambda i, s: s if s.sum() > 0 else -s, x)
  hint: choose values with np.where(x > 0, x, -x), computations with minirelax.cond; loop with minirelax.while_loop"""),
    "if on a changing size": (question_about_a_changing_size, (X,), ShapeError, """\
whether k > 4 cannot be decided for all sizes
  at test_bad_input.py   return x[::2] if x.shape[0] > 4 else x[1:]
  hint: state the fact with minirelax.match_cast, or decide while running: np.where, minirelax.cond, minirelax.while_loop"""),
    "range of a changing size": (range_of_a_changing_size, (X,), ShapeError, """\
the size k is used where only a number will do
  at test_bad_input.py   return sum(x[i] for i in range(x.shape[0])) + x[1:]
  hint: the size is known only while running: use whole-array operations, or minirelax.fori_loop"""),
    # values where there are none yet
    "if": (relu, (X,), BranchError, """\
the truth value of a traced array (bool[()]) is not known while the function is traced
  at test_bad_input.py   if x.sum() > 0:
  hint: choose values with np.where(x > 0, x, -x), computations with minirelax.cond; loop with minirelax.while_loop"""),
    "while": (halve, (X,), BranchError, """\
the truth value of a traced array (bool[()]) is not known while the function is traced
  at test_bad_input.py   while x[0, 0] > 1:
  hint: choose values with np.where(x > 0, x, -x), computations with minirelax.cond; loop with minirelax.while_loop"""),
    "if on a number": (scale, (X, 2), BranchError, """\
the truth value of a traced array (bool[()]) is not known while the function is traced
  at test_bad_input.py   return x if factor == 1 else x * factor
  hint: choose values with np.where(x > 0, x, -x), computations with minirelax.cond; loop with minirelax.while_loop; \
or name the argument in jit(static=...), to compile for each of its values"""),
    "float": (normalise, (X,), BranchError, """\
the value of a traced array (f32[()]) is not known while the function is traced
  at test_bad_input.py   return x / float(x.sum())
  hint: keep it an array: NumPy's functions take it where float(), int() and the module math do not"""),
    "range": (count, (X,), BranchError, """\
the value of a traced array (i64[()]) is not known while the function is traced
  at test_bad_input.py   return [i for i in range(x[0, 0].astype(int))]
  hint: keep it an array: NumPy's functions take it where float(), int() and the module math do not; \
for i in range(n) is minirelax.fori_loop(0, n, body, init)"""),
    "iteration over a free size": (elementwise, (X,), ShapeError, """\
the size n is used where only a number will do
  at test_bad_input.py   return [row * 2 for row in x]
  hint: leave the size undeclared: each size is then compiled for; or use whole-array operations, or minirelax.fori_loop"""),
    "sorted": (ordered, (X,), BranchError, """\
the truth value of a traced array (bool[()]) is not known while the function is traced
  at test_bad_input.py   return sorted(x[0])
  hint: choose values with np.where(x > 0, x, -x), computations with minirelax.cond; loop with minirelax.while_loop"""),
    "format": (report, (X,), BranchError, """\
the value of a traced array (f32[()]) is not known while the function is traced
  at test_bad_input.py   return f"{x[0, 0]:.3f}"
  hint: print what the compiled function returns"""),
    "an element into an ordinary array": (element, (X,), UnsupportedError, """\
a traced value cannot be written into an ordinary NumPy array
  at test_bad_input.py   out[0] = x[0, 0]
  hint: make the array with minirelax.numpy.zeros or np.zeros_like inside the compiled function, or pass it as an argument"""),
    "elements into an ordinary array": (filled, (X,), BranchError, """\
NumPy asked for the elements of a traced array (f32[n]): not known while the function is traced
  at test_bad_input.py   out[:] = x[:, 0]
  hint: call the function of that name in minirelax.numpy; make arrays to fill with minirelax.numpy.zeros or np.zeros_like"""),
    # element types
    "declared dtype": (add_declared, (X.astype(float), X), DTypeError, f"""\
add_declared: argument x: expected f32[n, 4], got an array of shape (3, 4): dtype float64, not float32
  at test_bad_input.py   {CALL}
  hint: convert it: x.astype(np.float32)"""),
    "half precision": (add, (X, X.astype(np.float16)), DTypeError, f"""\
argument y: an array of dtype float16 cannot be compiled
  at test_bad_input.py   {CALL}
  hint: use bool, an integer type, float32, float64, complex64 or complex128: x.astype(np.float32)"""),
    "objects": (add, (np.array([1, None]), X), DTypeError, f"""\
argument x: an array of dtype object cannot be compiled
  at test_bad_input.py   {CALL}
  hint: use bool, an integer type, float32, float64, complex64 or complex128: x.astype(np.float32)"""),
    "an operation that floats do not have": (both, (X,), DTypeError, """\
np.bitwise_and is not defined for float32, Python int
  at test_bad_input.py   return x & 1
  hint: convert first: x.astype(...)"""),
    # complex numbers
    "an order of complex numbers": (smaller, (Z, Z), DTypeError, """\
less(x, y): not defined for c64
  where x: c64[n], y: c64[n]
  at test_bad_input.py   return x < y
  hint: complex numbers have no order, and no one real number to convert to: take x.real, x.imag or np.abs(x)"""),
    "the largest complex number": (largest_complex, (Z,), DTypeError, """\
np.max of complex numbers is not supported in a compiled function
  at test_bad_input.py   return np.max(x)
  hint: compute with x.real and x.imag, or with np.abs(x)"""),
    "a function that complex numbers do not have": (rounded_down, (Z,), DTypeError, """\
np.floor is not defined for complex64
  at test_bad_input.py   return np.floor(x)
  hint: complex numbers have no order, and no one real number to convert to: take x.real, x.imag or np.abs(x)"""),
    "complex to real": (as_floats, (Z,), DTypeError, """\
a complex64 is not converted to float32: its imaginary part would be lost
  at test_bad_input.py   return x.astype(np.float32)
  hint: take the real part, or the magnitude: x.real, np.abs(x)"""),
    "complex into a real array": (stored, (X, Z), DTypeError, """\
a complex64 is not converted to float32: its imaginary part would be lost
  at test_bad_input.py   x[0, 0] = z[0]
  hint: take the real part, or the magnitude: x.real, np.abs(x)"""),
    "an imaginary part of a real array": (imaginary, (X,), DTypeError, """\
the imaginary part of a real array cannot be written to
  at test_bad_input.py   x.imag = 1
  hint: make it complex: x.astype(complex)"""),
    # arguments
    "ragged": (add_declared, ([[1.0, 2.0], [3.0]], X), ArgumentError, f"""\
argument x: parts of different lengths cannot become an array
  at test_bad_input.py   {CALL}
  hint: give all parts one length: pad the shorter ones"""),
    "ragged and not declared": (add, ([[1.0, 2.0], [3.0]], X), ShapeError, """\
a list whose parts have shapes (2,) and (1,) cannot become an array
  at test_bad_input.py   return x + y
  hint: give all parts one length: pad the shorter ones"""),
    "no array": (add, (X, object()), ArgumentError, f"""\
argument y: 'object' is not an array type
  at test_bad_input.py   {CALL}
  hint: pass an array or a number, or name the argument in jit(static=...)"""),
    "too few": (add, (X,), ArgumentError, f"""\
add(): missing a required argument: 'y'
  at test_bad_input.py   {CALL}
  hint: its parameters are (x, y)"""),
    "too many": (add, (X, X, X), ArgumentError, f"""\
add(): too many positional arguments
  at test_bad_input.py   {CALL}
  hint: its parameters are (x, y)"""),
    "read-only": (clear, (read_only(X),), ArgumentError, f"""\
argument x is written to, but is read-only
  at test_bad_input.py   {CALL}
  hint: pass a copy: np.array(x)"""),
    "shared memory": (accumulate, (X, X), ArgumentError, f"""\
argument total is written to and shares memory with x
  at test_bad_input.py   {CALL}
  hint: pass a copy: total.copy()"""),
    # indices
    "index": (last_row, (X,), IndexingError, """\
index 7 is out of bounds for axis 0 with size n (here 3)
  at test_bad_input.py   return x[7]
  hint: indices count from 0, or from -1 at the end"""),
    "index that is no integer": (rows, (X, np.array([0.0, 1.0])), IndexingError, """\
only integers, slices (`:`), ellipsis (`...`), np.newaxis (`None`) and integer or boolean arrays are valid indices, not float64
  at test_bad_input.py   return x[i]
  hint: convert the index: i.astype(np.int64)"""),
    "index while running": (rows, (X, np.array([0, 7])), IndexingError, """\
index 7 is out of bounds for axis 0 with size 3
  at test_bad_input.py   return x[i]
  hint: clip or wrap the indices, or use np.take(..., mode='clip')"""),
    "number as an index while running": (rows, (X, -4), IndexingError, """\
index -4 is out of bounds for axis 0 with size 3
  at test_bad_input.py   return x[i]
  hint: clip or wrap the indices, or use np.take(..., mode='clip')"""),
    "index of a fused kernel": (columns, (X, np.array([[0], [-5]])), IndexingError, """\
index -5 is out of bounds for axis 1 with size 4
  at test_bad_input.py   return np.take(doubled, i, axis=1)
  hint: clip or wrap the indices, or use np.take(..., mode='clip')"""),
    "match_cast while running": (two_kept, (X, np.array([True, True, True])), ShapeError, """\
two_kept: match_cast of v4: expected f32[2, 4], got an array of shape (3, 4): axis 0 is 3, not 2
  at test_bad_input.py   return np.exp(mr.match_cast(kept, f32[2, 4]))"""),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    call, args, error, expected = CASES[case]
    before = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    assert message(call, args, error) == expected
    for a, b in zip(args, before, strict=True):
        if isinstance(a, np.ndarray):
            np.testing.assert_array_equal(a, b)


def test_the_same_mistake_after_good_calls():
    """A program that exists already finds out natively; the message is the same."""
    for case, good in (("sizes", (X, X)), ("declared number", (X, X)), ("too few", (X, X)), ("index while running", (X, [0, 2]))):
        call, args, error, expected = CASES[case]
        good = tuple(np.asarray(a) for a in good)
        first = call(*good)
        assert message(call, args, error) == expected
        np.testing.assert_array_equal(call(*good), first)


def test_a_mistake_of_the_compiler_keeps_its_traceback(monkeypatch):
    """Whoever repairs a pass wants to see where it failed."""
    from minirelax import pipeline
    from minirelax.passes import base

    def broken(module):
        raise VerifyError("broken on purpose", where="nowhere")

    monkeypatch.setattr(pipeline, "module_stages", lambda module, *_: base.run(module, (broken,)))
    with pytest.raises(VerifyError) as caught:
        mr.jit(lambda x: x * 3 + 0.625)(X)
    assert "run" in [f.name for f in traceback.extract_tb(caught.value.__traceback__)]


def test_errors_are_those_of_numpy():
    """Code that catches NumPy's exceptions catches ours."""
    numpys = {"sizes": ValueError, "reshape": ValueError, "index while running": IndexError, "too few": TypeError}
    for case, error in numpys.items():
        call, args, ours, _ = CASES[case]
        assert issubclass(ours, error)
        with pytest.raises(error):
            call.fn(*args)


def test_linear_algebra_fails_as_in_numpy():
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        mr.jit(lambda x: np.linalg.inv(x))(np.zeros((2, 2)))

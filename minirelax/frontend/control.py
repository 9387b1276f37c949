"""`cond`, `while_loop`, `fori_loop` and `scan`: branches and loops that are decided while the program runs.

Names and signatures are JAX's.  What goes in and comes out may be nested containers of arrays and numbers.  In a compiled
function they become control flow of the program, each function being traced once (or until its types settle); on real arrays,
outside of compiled functions, they run in Python.  Functions may read all that they see where they are defined; they may write
in place to what is passed to them, which nobody else sees, and to nothing else.

>>> import numpy as np
>>> def newton(x):
...     return while_loop(lambda r: abs(r * r - x) > 1e-12 * x, lambda r: (r + x / r) / 2, x)
>>> newton(2.0)
1.414213562373095
>>> from minirelax import f64
>>> from minirelax.frontend.trace import trace
>>> print(trace(newton, f64[()]).main)
def main(x: f64[()]) -> f64[()]:
    v8: Tuple[f64[()]] = while_loop(test, body, (x,), (x,))
    with dataflow():
        v9: f64[()] = v8[0]
        output(v9)
    return v9
>>> cumulative = lambda total, x: (total + x, total + x)
>>> scan(cumulative, 0.0, np.array([1.0, 2.0, 4.0]))
(np.float64(7.0), array([1., 3., 7.]))
>>> fori_loop(0, 5, lambda i, total: total + i, 0), cond(True, np.sin, np.cos, 0.0)
(10, np.float64(0.0))
"""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from minirelax.errors import ArgumentError, DTypeError, ShapeError
from minirelax.frontend import eager_control as eager
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import active
from minirelax.frontend.carries import check_callable, function_name, leaves_of, pair, parameter_names, same_leaves
from minirelax.frontend.loops import Loop
from minirelax.frontend.operands import as_dtype, asarray, cast, require_equal
from minirelax.frontend.regions import trace_cond
from minirelax.frontend.size import Size
from minirelax.frontend.tree import flatten
from minirelax.ir.dim import Dim
from minirelax.ir.graph import Const

ONE_TRUTH = "reduce it with np.any or np.all; np.where chooses element by element"
ENDLESS = "compute the condition from what the body changes"
A_TRUTH = "give a bool, or a number, which counts as true unless it is 0"


def cond(pred: object, true_fun: Callable, false_fun: Callable, *operands: object) -> object:
    """``true_fun(*operands)`` if `pred` holds, else ``false_fun(*operands)``: only that one runs.

    pred: one truth value: a bool, or a number, which counts unless it is 0.  One that is known while tracing chooses then.
    Both functions return the same containers, with arrays of the same number of axes; dtypes are promoted as ``np.where`` does;
    a size that differs is known only while running.

    Raises ArgumentError, DTypeError or ShapeError for results that do not fit together or a `pred` that is no truth value.
    """
    check_callable("cond", "true_fun", true_fun)
    check_callable("cond", "false_fun", false_fun)
    flag = _truth("cond", "pred", pred)
    if isinstance(flag, TracedArray):
        return trace_cond(flag.builder, flag, (true_fun, false_fun), lambda: tuple(_own(v) for v in operands))
    return _own((true_fun if flag else false_fun)(*map(_own, operands)))


def while_loop(cond_fun: Callable, body_fun: Callable, init_val: object) -> object:
    """`init_val`, replaced by ``body_fun(val)`` as long as ``cond_fun(val)`` holds.

    `body_fun` returns what it takes: the same containers, with arrays of the same dtypes and numbers of axes.  Python numbers in
    `init_val` take the dtypes that the body gives them.  Sizes may change from round to round.

    Raises ArgumentError, DTypeError or ShapeError, naming the carried value, where the body returns something else.
    """
    check_callable("while_loop", "cond_fun", cond_fun)
    check_callable("while_loop", "body_fun", body_fun)
    leaves, tree = leaves_of("while_loop", "init_val", init_val)
    if not leaves:
        raise ArgumentError("while_loop: init_val has no value that could change", "carry what the condition depends on")
    said = f"what {function_name(cond_fun, 'the condition')} returns"
    b = active()
    if b is None:
        return eager.run_while(cond_fun, body_fun, init_val, lambda v: bool(_truth("while_loop", said, v)))
    names = tree.paths(parameter_names(body_fun, "carry")[0])
    loop = Loop(b, "while_loop", body_fun, leaves, tree.paths("init_val"), names)
    loop.trace(lambda now: same_leaves("while_loop", tree, body_fun(tree.unflatten(now)), loop.body_name))

    def goes_on(now: list[TracedArray]) -> TracedArray:
        flag = _truth("while_loop", said, cond_fun(tree.unflatten(now)))
        if flag is True:
            raise ArgumentError(f"while_loop: {said} is always true: the loop never ends", ENDLESS)
        return asarray(flag)

    return tree.unflatten(loop.while_node(cond_fun, goes_on))


def fori_loop(lower: object, upper: object, body_fun: Callable, init_val: object, *, unroll: int | bool | None = None) -> object:
    """`init_val`, replaced by ``body_fun(i, val)`` for `i` from `lower` up to, not including, `upper`.

    lower, upper: integers, sizes, or traced integers.  `i` is an integer that mixes with arrays as a Python integer does.
    unroll: taken for the sake of JAX's signature; rounds are not unrolled.  For the rest see `while_loop`.
    """
    check_callable("fori_loop", "body_fun", body_fun)
    leaves, tree = leaves_of("fori_loop", "init_val", init_val)
    start, stop = _bound("lower", lower), _bound("upper", upper)
    b = active()
    if b is None:
        return eager.run_fori(int(start), int(stop), body_fun, init_val)
    counter, value = parameter_names(body_fun, "i", "carry")
    loop = Loop(b, "fori_loop", body_fun, [start, *leaves], ["lower", *tree.paths("init_val")], [counter, *tree.paths(value)])

    def rounds(now: list[TracedArray]) -> list[object]:
        made = body_fun(now[0], tree.unflatten(now[1:]))
        return [now[0] + 1, *same_leaves("fori_loop", tree, made, loop.body_name)]

    loop.trace(rounds)
    return tree.unflatten(loop.while_node(lambda: None, lambda now: asarray(now[0] < stop))[1:])


def scan(
    f: Callable, init: object, xs: object = None, length: object = None, reverse: bool = False, unroll: int | bool = 1
) -> tuple[object, object]:
    """Carry `init` through ``carry, y = f(carry, x)`` for each slice of `xs` along its first axis: the last carry, and all `y`.

    xs: containers of arrays with equally long first axes; None, with `length` given, makes `length` rounds with ``x = None``.
    reverse: begin with the last slice.  The results `y`, which may be None, are stacked in the order of the slices.
    unroll: taken for the sake of JAX's signature; rounds are not unrolled.
    What is carried keeps its type, sizes too (Python numbers in `init` take the dtypes that `f` gives them).

    Raises ArgumentError, DTypeError or ShapeError, naming the carried value, where `f` returns something else.
    """
    check_callable("scan", "f", f)
    leaves, tree = leaves_of("scan", "init", init)
    slices, slices_tree = leaves_of("scan", "xs", xs)
    b = active()
    if b is None:
        return eager.run_scan(f, init, xs, int(_length(slices, slices_tree.paths("xs"), length)), reverse)
    arrays, name = list(map(asarray, slices)), function_name(f, "the body")
    rounds_count = b.dims((_length(arrays, slices_tree.paths("xs"), length),))[0]
    carry, row = parameter_names(f, "carry", "x")
    loop = Loop(b, "scan", f, leaves, tree.paths("init"), [*tree.paths(carry), *slices_tree.paths(row)])
    results: list = []

    def rounds(now: list[TracedArray]) -> list[object]:
        made, y = pair("scan", name, f(tree.unflatten(now[: len(leaves)]), slices_tree.unflatten(now[len(leaves) :])))
        results[:] = leaves_of("scan", f"the result of {name}", y)
        return [*same_leaves("scan", tree, made, name), *results[0]]

    ys, ys_tree = loop.trace(rounds, arrays, fixed=True), results[1]
    if not leaves and not ys:
        return tree.unflatten([]), ys_tree.unflatten([])
    loop.check_stackable(ys, ys_tree.paths("the result"))
    done = loop.scan_node(arrays, ys, rounds_count, bool(reverse))
    return tree.unflatten(done[: len(leaves)]), ys_tree.unflatten(done[len(leaves) :])


def _own(value: object) -> object:
    """`value` with its arrays as arrays of the current scope, or as copies: they may be written to."""
    b = active()
    if b is None:
        return eager.own(value)
    leaves, tree = flatten(value)
    return tree.unflatten([_own_leaf(x) if isinstance(x, TracedArray | np.ndarray) else x for x in leaves])


def _own_leaf(x: TracedArray | np.ndarray) -> TracedArray:
    x = asarray(x)
    same = x.derived(x.atom, x.weak)
    same.element = x.element
    return same


def _truth(what: str, said: str, value: object) -> bool | TracedArray:
    """The truth value of a condition: a bool where it is known already."""
    if isinstance(value, Size):
        value = value != 0
    if isinstance(value, TracedArray):
        value = asarray(value)
        known = bool(value.atom.value) if isinstance(value.atom, Const) else None
        if value.ndim == 0:
            return known if known is not None else value if value.type.dtype == "bool" else as_dtype(value != 0, "bool")
    elif not isinstance(value, bool | int | float | complex | np.generic | np.ndarray):
        raise ArgumentError(f"{what}: {said} is of type {type(value).__name__}, not a truth value", A_TRUTH)
    if rank := _rank(value):
        raise ShapeError(f"{what}: {said} has {rank} {'axis' if rank == 1 else 'axes'}, not one truth value", ONE_TRUTH)
    return bool(value)


def _bound(name: str, value: object) -> int | Size | TracedArray:
    """A bound of a counter.  Raises DTypeError for what is no integer."""
    if isinstance(value, TracedArray):
        if value.ndim == 0 and (value.weak in (bool, int) or value.dtype.kind in "iu"):
            return TracedArray(value.builder, cast(value.builder, asarray(value).atom, "i64"), weak=int)
        raise DTypeError(f"fori_loop: {name} is {value.type}, not an integer", "count rounds with an integer: .astype(int)")
    if isinstance(value, Size):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise DTypeError(
            f"fori_loop: {name} is {value!r}, not an integer", "count rounds with an integer, and compute other numbers from it"
        ) from None


def _length(arrays: list, paths: list[str], length: object) -> int | Size:
    """The number of rounds of a scan.  Raises ShapeError for slices that do not agree, or have none."""
    lengths: list[tuple[str, int | Size]] = []
    for x, path in zip(arrays, paths, strict=True):
        if not _rank(x):
            raise ShapeError(f"scan: {path} has no axis to go along", "f sees what is the same in all rounds where it is defined")
        lengths.append((path, x.shape[0]))
    if length is not None:
        lengths.append(("length", _rounds(length)))
    if not lengths:
        raise ArgumentError("scan: neither xs nor length says how many rounds there are", "pass length=")
    for path, size in lengths[1:]:
        _check_equal(f"scan: {lengths[0][0]} and {path} say how many rounds there are:", lengths[0][1], size)
    return lengths[0][1]


def _rounds(length: object) -> int | Size:
    try:
        number = length if isinstance(length, Size) else operator.index(length)
    except TypeError as e:
        if isinstance(length, TracedArray):
            raise
        raise ArgumentError(f"scan: length is {length!r}, not an integer", "it is a number of rounds") from e
    if not isinstance(number, Size) and number < 0:
        raise ArgumentError(f"scan: length is {number}", "a number of rounds is not negative")
    return number


def _check_equal(what: str, a: int | Size, b: int | Size) -> None:
    if active() is not None:
        require_equal(_dim(a), _dim(b), what, "slices are taken from all arrays at once: make them equally long")
    elif a != b:
        raise ShapeError(f"{what} {a} and {b}, which differ", "slices are taken from all arrays at once: make them equally long")


def _rank(x: object) -> int:
    return x.ndim if isinstance(x, TracedArray) else np.ndim(x)


def _dim(size: int | Size) -> Dim:
    return size.dim if isinstance(size, Size) else size

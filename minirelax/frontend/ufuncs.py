"""Universal functions on traced arrays: promotion, broadcasting, `out=`, `where=`, and the methods `reduce`, `outer`, `at`."""

from __future__ import annotations

import math

import numpy as np

from minirelax.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from minirelax.frontend import operands
from minirelax.frontend.array import TracedArray
from minirelax.frontend.operands import as_dtype, asarray, broadcast_shape, conform, kind, shape_text
from minirelax.frontend.promotion import WEAK_DTYPE, Kind, loop, name_of, promote
from minirelax.frontend.size import Size
from minirelax.ir.dim import Dim
from minirelax.ir.graph import Const
from minirelax.ir.types import NUMPY_DTYPES, PARTS
from minirelax.ops import OPS
from minirelax.ops.complex import FUNCTIONS
from minirelax.ops.complex_scalars import is_whole_power
from minirelax.ops.rules import describe

FILL = "make the array with minirelax.numpy.zeros or np.zeros_like inside the compiled function, or pass it as an argument"
PLAIN_OPTIONS = {"order": "K", "subok": True, "signature": None, "casting": "same_kind"}
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor", "logical_not")
ON_INTEGERS = {"isnan": False, "isinf": False, "isfinite": True}
OPERANDS = TracedArray | Size | int | float | complex | np.ndarray | np.generic | list | tuple
PYTHON = {"add", "subtract", "multiply", "floor_divide", "remainder", "power", "negative", "positive", "absolute"}


def call_operator(ufunc: np.ufunc, *inputs):
    """An operator: between Python numbers, Python's arithmetic; else the ufunc.  NotImplemented for foreign objects."""
    if not all(isinstance(x, OPERANDS) for x in inputs):
        return NotImplemented
    kinds = tuple(map(kind, inputs))
    if all(isinstance(k, type) for k in kinds):
        return _python_arithmetic(ufunc, inputs, kinds)
    if ufunc is np.power and type(inputs[1]) in (int, float, complex):
        ufunc, inputs = _easy_power(kinds[0], inputs)
    return call_ufunc(ufunc, inputs)


def call_ufunc(ufunc: np.ufunc, inputs: tuple, *, out=None, where=True, dtype=None, **options):
    """``ufunc(*inputs)``.  Raises UnsupportedError for options that cannot be traced."""
    for name, value in options.items():
        if value != PLAIN_OPTIONS.get(name, value) or name not in PLAIN_OPTIONS and name not in ("axes", "axis", "keepdims"):
            raise UnsupportedError(f"np.{ufunc.__name__}(..., {name}={value!r}) is not supported in a compiled function")
    if ufunc in SPECIAL:
        result = SPECIAL[ufunc](*inputs)
    else:
        result = _elementwise(ufunc, inputs, None if dtype is None else name_of(dtype))
    results = result if isinstance(result, tuple) else (result,)
    outs = (out if isinstance(out, tuple) else (out,)) if out is not None else (None,) * len(results)
    done = tuple(store(r, o, where, ufunc.__name__) for r, o in zip(results, outs, strict=True))
    return done if isinstance(result, tuple) else done[0]


def store(result: TracedArray, out: object, where: object = True, name: str = "") -> TracedArray:
    """`result`, written into `out` if there is one, as the ufuncs' `out=` and `where=` ask."""
    if out is None:
        if where is not True:
            raise UnsupportedError(f"np.{name}(..., where=...) needs out=: the other elements would be undefined", "use np.where")
        return result.as_element()
    if not isinstance(out, TracedArray):
        raise UnsupportedError("a traced value cannot be written into an ordinary NumPy array", FILL)
    if not np.can_cast(result.dtype, out.dtype, "same_kind"):
        raise DTypeError(
            f"cannot cast the result of np.{name} from {result.dtype} to {out.dtype} in place", "convert first: x = x.astype(...)"
        )
    if not operands.fits(result.dims, out.dims):
        raise ShapeError(
            f"the result of np.{name} has shape {shape_text(result.dims)}, the array to write to {shape_text(out.dims)}"
        )
    value = as_dtype(result, out.type.dtype)
    if where is not True:
        value = emit("where", as_dtype(where, "bool"), value, out)
    out.assign(operands.broadcast(value, out.dims).atom)
    return out


def call_ufunc_method(ufunc: np.ufunc, method: str, inputs: tuple, options: dict):
    """``np.add.reduce``, ``np.add.accumulate``, ``np.multiply.outer``, ``np.add.at``, as the functions that mean the same."""
    from minirelax.frontend.functions import FUNCTIONS
    from minirelax.frontend.indexing import add_at, get_item, set_item

    reductions = {
        np.add: "sum",
        np.multiply: "prod",
        np.maximum: "max",
        np.minimum: "min",
        np.logical_and: "all",
        np.logical_or: "any",
    }
    accumulations = {np.add: "cumsum", np.multiply: "cumprod"}
    if method == "reduce" and ufunc in reductions:
        axis = inputs[1] if len(inputs) > 1 else options.pop("axis", 0)
        return FUNCTIONS[reductions[ufunc]](inputs[0], axis=axis, **{k: v for k, v in options.items() if v is not None})
    if method == "accumulate" and ufunc in accumulations:
        return FUNCTIONS[accumulations[ufunc]](inputs[0], axis=inputs[1] if len(inputs) > 1 else options.get("axis", 0))
    if method == "outer":
        a, b = map(asarray, inputs)
        return call_ufunc(ufunc, (FUNCTIONS["reshape"](a, a.shape + (1,) * b.ndim), b), **options)
    if method == "at":
        x, key = inputs[:2]
        if ufunc is np.add:
            return add_at(x, key, inputs[2])
        if ufunc is np.subtract:
            return add_at(x, key, call_ufunc(np.negative, (asarray(inputs[2]),)))
        if ufunc.nin == 1:
            return set_item(x, key, call_ufunc(ufunc, (get_item(x, key),)))
    raise UnsupportedError(f"np.{ufunc.__name__}.{method} is not supported in a compiled function")


def _elementwise(ufunc: np.ufunc, inputs: tuple, dtype: str | None) -> TracedArray:
    name = OPNAMES.get(ufunc.__name__, ufunc.__name__)
    if name not in OPS:
        raise UnsupportedError(f"np.{ufunc.__name__} is not supported in a compiled function")
    kinds = tuple(map(kind, inputs))
    if name in COMPARISONS:
        return _compare(ufunc, name, inputs, kinds)
    casts, result = loop(ufunc, kinds) if name != "signbit" else ((_sign_kind(*kinds),), "bool")
    if name in LOGICAL:
        casts = ("bool",) * len(casts)
    elif dtype is not None:
        casts, result = loop(ufunc, tuple(NUMPY_DTYPES[dtype] for _ in kinds))
    if casts[0] in PARTS and (name in FUNCTIONS or name == "power"):
        return _of_complex(name, [as_dtype(x, d) for x, d in zip(inputs, casts, strict=True)])
    if name in ON_INTEGERS and casts[0][0] not in "fc":
        return _full(ON_INTEGERS[name], asarray(inputs[0]).dims)
    if name in ("fmax", "fmin") and casts[0] not in ("f32", "f64"):  # there is no NaN to step over
        name = {"fmax": "maximum", "fmin": "minimum"}[name]
    if name in ("floor", "ceil", "trunc") and casts[0] not in ("f32", "f64"):
        return as_dtype(inputs[0], result).copy()
    if name == "power" and result[0] in "iu":
        _check_integer_power(inputs[1])
    return emit(name, *(as_dtype(x, d) for x, d in zip(inputs, casts, strict=True)))


def emit(name: str, *arrays: TracedArray, weak: type | None = None) -> TracedArray:
    """The op on arrays that have the dtypes it wants; facts that broadcasting needs are taken first."""
    b = operands.builder()
    op = OPS[name](*(a.atom for a in arrays))
    shape = broadcast_shape(*(a.dims for a in arrays), say=lambda fact: describe(op, [a.type for a in arrays], fact))
    return TracedArray(b, b.op(name, *(conform(a, shape).atom for a in arrays)), weak)


def _of_complex(name: str, arrays: list[TracedArray]) -> TracedArray:
    """A function of complex numbers that NumPy computes, or a power, which may be made of products."""
    if name != "power":
        return arrays[0].derived(arrays[0].builder.op("complex_function", arrays[0].atom, function=name))
    exponent = arrays[1].atom
    return emit("power" if isinstance(exponent, Const) and is_whole_power(exponent.value) else "complex_power", *arrays)


def _compare(ufunc: np.ufunc, name: str, inputs: tuple, kinds: tuple) -> TracedArray:
    """Comparisons are exact: a Python integer outside the array's dtype is smaller or larger than all of it."""
    for this, other in ((0, 1), (1, 0)):
        number, dtype = inputs[this], kinds[other]
        if isinstance(number, int) and not isinstance(number, bool | Size) and isinstance(dtype, np.dtype) and dtype.kind in "iu":
            info = np.iinfo(dtype)
            if not info.min <= number <= info.max:
                sides = (0, 1 if number > 0 else -1) if other == 0 else (1 if number > 0 else -1, 0)
                return _full(bool(ufunc(*sides)), asarray(inputs[other]).dims)
    casts, _ = loop(ufunc, kinds)
    if set(casts) == {"i64", "u64"}:
        return _compare_signs(name, inputs, casts)
    common = promote(tuple(NUMPY_DTYPES[c] for c in casts))
    return emit(name, *(as_dtype(x, common) for x in inputs))


def _compare_signs(name: str, inputs: tuple, casts: tuple[str, str]) -> TracedArray:
    """int64 against uint64: a negative number is less than any of the others."""
    signed, unsigned = (0, 1) if casts[0] == "i64" else (1, 0)
    value, other = as_dtype(inputs[signed], "i64"), as_dtype(inputs[unsigned], "u64")
    negative = emit("less", value, as_dtype(0, "i64"))
    pair = (as_dtype(value, "u64"), other) if signed == 0 else (other, as_dtype(value, "u64"))
    if_negative = name == "not_equal" or name.startswith("less") == (signed == 0) and name not in ("equal",)
    return emit("where", negative, as_dtype(if_negative, "bool"), emit(name, *pair))


def _full(value: bool, shape: tuple[Dim, ...]) -> TracedArray:
    b = operands.builder()
    return TracedArray(b, b.op("full", Const(value, "bool"), shape=shape))


def _check_integer_power(exponent: object) -> None:
    if isinstance(exponent, int) and not isinstance(exponent, Size) and exponent < 0:
        raise ArgumentError("integers to negative integer powers are not allowed", "use a float: x ** -2.0")


def _easy_power(base: np.dtype, inputs: tuple) -> tuple[np.ufunc, tuple]:
    """``x**2`` and the like as NumPy's operator computes them: by a simpler function than `power`."""
    simpler = {2: np.square} if base.kind in "iub" else {2: np.square, 1: np.positive, 0.5: np.sqrt, -1: np.reciprocal}
    easy = inputs[1] in simpler and (base.kind in "fc" or type(inputs[1]) is int) and type(inputs[1]) is not complex
    return (simpler[inputs[1]], inputs[:1]) if easy else (np.power, inputs)


def _python_arithmetic(ufunc: np.ufunc, inputs: tuple, kinds: tuple):
    """Python's numbers: ``/`` gives a float, comparisons a bool, everything else the wider type; bools count as integers."""
    if ufunc is np.divmod:
        return call_operator(np.floor_divide, *inputs), call_operator(np.remainder, *inputs)
    name = OPNAMES.get(ufunc.__name__, ufunc.__name__)
    if complex in kinds:
        return _python_complex(ufunc, name, inputs)
    widest = float if float in kinds else int if int in kinds else bool
    if ufunc is np.divide:
        return _weak(name, inputs, float, float)
    if name in COMPARISONS:
        return _weak(name, inputs, widest, bool)
    if name in PYTHON:
        if name == "power" and any(isinstance(x, int) and not isinstance(x, Size) and x < 0 for x in inputs[1:]):
            widest = float
        widest = int if widest is bool else widest
    elif widest is float:
        raise DTypeError(f"np.{ufunc.__name__} is not defined for Python floats")
    if ufunc is np.invert:
        widest = int if widest is bool else widest
    if ufunc is np.positive:
        return _weak(None, inputs, widest, widest)
    return _weak(name, inputs, widest, widest)


def _python_complex(ufunc: np.ufunc, name: str, inputs: tuple):
    """Python's complex numbers: their absolute value is a float."""
    if ufunc is np.positive:
        return _weak(None, inputs, complex, complex)
    if name == "power":
        arrays = [as_dtype(x, "c128") for x in inputs]
        found = _of_complex(name, arrays)
        return found.derived(found.atom, complex)
    if name not in ("add", "subtract", "multiply", "divide", "negative", "absolute", "equal", "not_equal"):
        raise DTypeError(f"np.{ufunc.__name__} is not defined for Python complex numbers", "take .real, .imag or abs(x)")
    return _weak(name, inputs, complex, {"absolute": float, "equal": bool, "not_equal": bool}.get(name, complex))


def _weak(name: str | None, inputs: tuple, computed: type, result: type) -> TracedArray:
    dtype = WEAK_DTYPE[computed]
    arrays = [as_dtype(x, dtype) for x in inputs]
    return TracedArray(arrays[0].builder, arrays[0].atom, result) if name is None else emit(name, *arrays, weak=result)


def _sign_kind(x: Kind) -> str:
    """Where NumPy converts small integers to float16 to look at their sign, float32 does as well."""
    return "f32" if x is bool or isinstance(x, np.dtype) and x.kind in "iub" and x.itemsize == 1 else loop(np.signbit, (x,))[0][0]


def _float_kind(*xs: object) -> str:
    """The float dtype that a function like ``np.sin`` of these operands has."""
    return loop(np.arctan2, tuple(map(kind, xs)) * (2 // len(xs)))[1]


def _divmod(x, y):
    return call_ufunc(np.floor_divide, (x, y)), call_ufunc(np.remainder, (x, y))


def _modf(x):
    x = as_dtype(x, _float_kind(x))
    whole = call_ufunc(np.trunc, (x,))
    infinite = call_ufunc(np.isinf, (x,))
    return call_ufunc(np.copysign, (emit("where", infinite, as_dtype(0.0, x.type.dtype), x - whole), x)), whole


def _scaled(factor: float):
    def rule(x):
        x = as_dtype(x, _float_kind(x))
        return x * factor

    return rule


def _positive(x):
    loop(np.positive, (kind(x),))
    return asarray(x).copy()


def _conjugate(x):
    loop(np.conjugate, (kind(x),))
    x = asarray(x)
    return emit("conjugate", x, weak=x.weak) if x.type.dtype in PARTS else x.copy()


def _fabs(x):
    return call_ufunc(np.absolute, (as_dtype(x, _float_kind(x)),))


def _float_power(x, y):
    casts, _ = loop(np.float_power, (kind(x), kind(y)))
    return call_ufunc(np.power, tuple(as_dtype(v, d) for v, d in zip((x, y), casts, strict=True)))


def _heaviside(x, y):
    dtype = _float_kind(x, y)
    x, y = as_dtype(x, dtype), as_dtype(y, dtype)
    zero, one = as_dtype(0.0, dtype), as_dtype(1.0, dtype)
    step = emit("where", x < 0, zero, emit("where", x > 0, one, y))
    return emit("where", call_ufunc(np.isnan, (x,)), x, step)


def _logaddexp2(x, y):
    dtype = _float_kind(x, y)
    x, y = as_dtype(x, dtype), as_dtype(y, dtype)
    return call_ufunc(np.logaddexp, (x * math.log(2), y * math.log(2))) * (1 / math.log(2))


def _ldexp(x, n):
    x = as_dtype(x, _float_kind(x))
    return x * call_ufunc(np.exp2, (as_dtype(n, x.type.dtype),))


def _matmul(a, b):
    from minirelax.frontend.functions import FUNCTIONS

    return FUNCTIONS["matmul"](a, b)


def _vecdot(a, b):
    from minirelax.frontend.functions import FUNCTIONS

    return FUNCTIONS["vecdot"](a, b)


OPNAMES = {"true_divide": "divide", "bitwise_not": "invert", "abs": "absolute", "mod": "remainder", "pow": "power"}
SPECIAL = {
    np.divmod: _divmod,
    np.modf: _modf,
    np.positive: _positive,
    np.conjugate: _conjugate,
    np.fabs: _fabs,
    np.float_power: _float_power,
    np.degrees: _scaled(180 / math.pi),
    np.rad2deg: _scaled(180 / math.pi),
    np.radians: _scaled(math.pi / 180),
    np.deg2rad: _scaled(math.pi / 180),
    np.heaviside: _heaviside,
    np.logaddexp2: _logaddexp2,
    np.ldexp: _ldexp,
    np.matmul: _matmul,
    np.vecdot: _vecdot,
}

"""The functions that a kernel may apply to scalars: how many operands they take, and of which dtypes.

They are called as NumPy's ufuncs and mean what those mean; operands and result have one dtype, except that predicates give
bool, ``real(z)`` and ``imag(z)`` a float, and ``complex(x, y)`` of two floats a complex number.  A function of floats is not one
of integers here, although NumPy would convert: a kernel says its conversions.

>>> complaint("exp", ("f32",)), complaint("exp", ("u8",))
('', 'exp is for f32 and f64, not u8')
>>> complaint("sqr", ("f32",))
'there is no function sqr of scalars: did you mean sqrt or square?'
"""
from __future__ import annotations

import difflib

from minirelax.ir.types import NUMPY_DTYPES

_UNARY = {
    "f": ("arccos", "arccosh", "arcsin", "arcsinh", "arctan", "arctanh", "cbrt", "cos", "cosh", "erf", "exp", "exp2", "expm1",
          "fabs", "log", "log10", "log1p", "log2", "reciprocal", "rint", "sin", "sinh", "sqrt", "tan", "tanh"),
    "iuf": ("absolute", "ceil", "floor", "isfinite", "isinf", "isnan", "sign", "signbit", "square", "trunc"),
    "iufc": ("negative",),
    "c": ("real", "imag"),
    "biu": ("invert",),
    "biufc": ("logical_not",)}
_BINARY = {
    "f": ("arctan2", "complex", "copysign", "hypot"),
    "fc": ("divide",),
    "iu": ("left_shift", "right_shift"),
    "iuf": ("floor_divide", "fmax", "fmin", "fmod", "power", "remainder"),
    "iufc": ("subtract",),
    "biu": ("bitwise_and", "bitwise_or", "bitwise_xor"),
    "biuf": ("equal", "greater", "greater_equal", "less", "less_equal", "maximum", "minimum", "not_equal"),
    "biufc": ("add", "logical_and", "logical_or", "logical_xor", "multiply")}
FUNCTIONS: dict[str, tuple[int, str]] = {                         # name -> number of operands, NumPy kinds of their dtype
    **{name: (1, kinds) for kinds, names in _UNARY.items() for name in names},
    **{name: (2, kinds) for kinds, names in _BINARY.items() for name in names}}
MIXED = {"where": 3, "if_else": 3, "cast": 1, "check_index": 2}   # operands of several dtypes; `where` and `if_else` choose
_WORDS = {"f": "f32 and f64", "iu": "integers", "iuf": "real numbers", "biu": "integers and bool",
          "biuf": "bool and real numbers", "iufc": "numbers", "c": "c64 and c128", "fc": "f32, f64, c64 and c128"}
_ELSEWHERE = {"abs": "absolute", "pow": "power", "float_power": "power", "mod": "remainder", "round": "rint",
              "true_divide": "divide", "asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}


def complaint(function: str, dtypes: tuple[str, ...]) -> str:
    """What is wrong with applying the function to scalars of these dtypes; an empty string if nothing is."""
    if function in MIXED:
        count, kinds = MIXED[function], "biufc"
    elif function in FUNCTIONS:
        count, kinds = FUNCTIONS[function]
    else:
        return f"there is no function {function} of scalars{_similar(function)}"
    if len(dtypes) != count:
        return f"{function} takes {count} operand{'s' * (count > 1)}, not {len(dtypes)}"
    wrong = next((d for d in dtypes if NUMPY_DTYPES[d].kind not in kinds), None)
    return "" if wrong is None else f"{function} is for {_WORDS[kinds]}, not {wrong}"


def _similar(function: str) -> str:
    known = [*FUNCTIONS, *MIXED]
    close = [_ELSEWHERE[function]] if function in _ELSEWHERE else difflib.get_close_matches(function, known, 2)
    return f": did you mean {' or '.join(close)}?" if close else ""

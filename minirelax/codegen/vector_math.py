"""Elementary functions as straight-line LLVM IR, which LLVM's loop vectoriser widens to any vector length.

Calls into the C library keep a loop scalar; here each function is arithmetic, selects and bit operations only:
argument reduction, a polynomial, reconstruction.  NaN, infinities, signed zeros, denormals and overflow come out
as NumPy's.  Errors are below 2 units in the last place (tanh: 3), with or without fused multiply-add.

Methods: Cody and Waite, "Software Manual for the Elementary Functions" (1980); Sun's fdlibm for log, log1p and the
two-part logarithms; Payne and Hanek, "Radian reduction for trigonometric functions" (1983) for large angles.  The
polynomials interpolate at Chebyshev nodes, computed with 60 digits.

The instructions carry no fast-math flags, and must not be given ``reassoc``: that would undo the rounding tricks.
What is not in `SUPPORTED` (sin, cos and pow in f64) is better left to the C library.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from minirelax.codegen.value import F32, F64, I32, I64, Value, encoding, intrinsic, multiply_add, polynomial, select


@dataclass(frozen=True)
class _Format:
    """Constants of one floating-point format.  Pairs are (high, low): a product with the high part is exact."""

    mantissa: int  # stored bits
    bias: int
    smallest_normal: float
    round_to_integer: float  # adding 1.5 * 2**mantissa leaves the nearest integer in the low bits
    overflow: float  # exp is infinite above (a little more than log of the largest number)
    underflow: float  # exp is zero below
    ln2: tuple[float, float]
    inverse_ln2: tuple[float, float]
    inverse_ln10: tuple[float, float]
    log10_2: tuple[float, float]
    low_bits: int  # mask of the mantissa bits that a high part drops
    tanh_limit: float  # expm1(x) / (expm1(x) + 2) is 1 above
    erf_limit: float  # erf is 1 above
    exp: tuple[float, ...]  # (e**r - 1 - r) / r**2        on |r| <= ln(2)/2
    exp2: tuple[float, ...]  # (2**r - 1) / r              on |r| <= 1/2
    log: tuple[float, ...]  # (2 atanh(s) / s - 2) / s**2  in s**2, |s| <= 0.1716
    erf: tuple[float, ...]  # erf(x) / x - 1               in x**2, |x| <= 1
    erfcx: tuple[float, ...]  # exp(x**2) * erfc(x)        in 1 / (x + 2), 1 <= x <= erf_limit


_F32 = _Format(
    mantissa=23,
    bias=127,
    smallest_normal=2.0**-126,
    round_to_integer=1.5 * 2**23,
    overflow=89.0,
    underflow=-105.0,
    ln2=(0.693145751953125, 1.4286068203094173e-06),
    inverse_ln2=(1.44287109375, -0.00017605286103659264),
    inverse_ln10=(0.434326171875, -3.168997174817235e-05),
    log10_2=(0.3010292053222656, 7.903417155702138e-07),
    low_bits=0xFFF,
    tanh_limit=20.0,
    erf_limit=4.0,
    exp=(0.5, 0.16666667, 0.041666467, 0.0083333105, 0.0013933643, 0.00019890982),
    exp2=(0.6931472, 0.2402265, 0.05550357, 0.009618083, 0.0013390863, 0.00015453163),
    log=(0.6666667, 0.40000123, 0.2855082, 0.23330562),
    erf=(0.12837917, -0.37612626, 0.11283594, -0.026854211, 0.0051890872, -0.00080168643, 7.875875e-05),
    erfcx=(0.0006051184, 0.5472687, 1.3230286, 0.8119633, 6.4559207, -1.8260864, -3.4323473),
)
# fmt: off
_F64 = _Format(
    mantissa=52,
    bias=1023,
    smallest_normal=2.0**-1022,
    round_to_integer=1.5 * 2**52,
    overflow=710.0,
    underflow=-746.0,
    ln2=(0.6931471803691238, 1.9082149292705877e-10),
    inverse_ln2=(1.4426950407214463, 1.6751713164886512e-10),
    inverse_ln10=(0.4342944818781689, 2.5082946711645275e-11),
    log10_2=(0.30102999566361177, 3.694239077158931e-13),
    low_bits=0xFFFFFFFF,
    tanh_limit=45.0,
    erf_limit=6.0,
    exp=(0.5, 0.1666666666666667, 0.04166666666666667, 0.00833333333332614, 0.0013888888888883752, 0.00019841269874804214,
         2.4801587325536023e-05, 2.7557255421023506e-06, 2.7557273657975953e-07, 2.5105208339987698e-08, 2.0914680780540263e-09),
    exp2=(0.6931471805599453, 0.24022650695910097, 0.0555041086648216, 0.009618129107606888, 0.0013333558146416936,
          0.0001540353044173605, 1.525273382983612e-05, 1.321544258792169e-06, 1.0178062445845774e-07, 7.072585949269223e-09,
          4.4549605981865186e-10),
    log=(0.666666666666667, 0.39999999999899455, 0.2857142862599856, 0.2222221113102852, 0.1818288939967772,
         0.15331712479381301, 0.14616562422104645),
    erf=(0.1283791670955126, -0.3761263890318375, 0.11283791670954879, -0.026866170645076792, 0.0052239776248180145,
         -0.000854832698083379, 0.0001205533111164271, -1.4925595266831182e-05, 1.6461000484121368e-06, -1.6350312701054695e-07,
         1.4659775274047436e-08, -1.1372848856791674e-09, 5.957176147748911e-11),
    erfcx=(1.6242284740077591e-07, 0.5641771458640458, 1.1288205669506493, 1.9650380653313524, 2.965062607613792,
           1.112927254027886, 12.469269695695969, -86.0235241240357, 356.0254348102813, -1304.8727117633393, 3393.7192897611894,
           -5751.745781926398, 6141.244973872164, -3802.3193399400056, 1051.4775993545124),
)
# fmt: on
_FORMATS = {F32: _F32, F64: _F64}


def emit(builder: ir.IRBuilder, name: str, *arguments: ir.Value) -> ir.Value:
    """Emit function `name` of the arguments (two for ``pow``, else one), all f32 or all f64; returns the result.

    ``(name, dtype)`` must be in `SUPPORTED`; KeyError otherwise.
    """
    dtype = "f32" if arguments[0].type == F32 else "f64"
    return _EMITTERS[name, dtype](*(Value(builder, a) for a in arguments)).value


def _exp(x: Value) -> Value:
    fmt = _FORMATS[x.type]
    return _exp_clamped(_clamp(x, fmt.underflow, fmt.overflow))


def _exp_clamped(x: Value) -> Value:
    """e**x where 2**(x / ln 2) is within twice the range of exponents."""
    fmt = _FORMATS[x.type]
    n, r, _ = _reduce_by_ln2(x)
    return _scale(multiply_add(polynomial(r, fmt.exp), r * r, r) + 1, n)


def _exp2(x: Value) -> Value:
    fmt = _FORMATS[x.type]
    return _exp2_clamped(_clamp(x, 1.5 * fmt.underflow, 1.5 * fmt.overflow), fmt.exp2)


def _exp2_clamped(x: Value, coefficients: tuple[float, ...]) -> Value:
    """2**x where x is within twice the range of exponents."""
    fmt = _FORMATS[x.type]
    n = x + fmt.round_to_integer
    r = x - (n - fmt.round_to_integer)
    return _scale(multiply_add(polynomial(r, coefficients), r, 1.0), n)


def _expm1(x: Value) -> Value:
    """2**n * (e**r - 1) + (2**n - 1), with the rounding error of r put back where e**r - 1 is small."""
    fmt = _FORMATS[x.type]
    n, r, error = _reduce_by_ln2(_clamp(x, -1.5 * (fmt.mantissa + 1), fmt.overflow))
    small = multiply_add(polynomial(r, fmt.exp), r * r, error) + r
    opposite = 2 * fmt.round_to_integer - n  # -n in rounded form
    rest = 1 - _scale(x.constant(1.0), opposite)
    result = _scale(small + rest, n)
    return intrinsic("copysign", result, x)  # expm1(-0.0) is -0.0


def _tanh(x: Value) -> Value:
    """With t = e**2|x| - 1, tanh|x| = t / (t + 2): no cancellation near 0."""
    limit = _FORMATS[x.type].tanh_limit
    twice = intrinsic("fabs", x) * 2
    t = _expm1(select(twice > limit, limit, twice))
    return intrinsic("copysign", t / (t + 2), x)


def _erf(x: Value) -> Value:
    """A polynomial up to 1; beyond, 1 - erfc(x), where erfc falls like exp(-x**2) times a slow function."""
    fmt = _FORMATS[x.type]
    size = intrinsic("fabs", x)
    near = multiply_add(polynomial(x * x, fmt.erf), x, x)
    far = select(size > fmt.erf_limit, fmt.erf_limit, size)
    erfc = _exp_clamped(-(far * far)) * polynomial(1 / (far + 2), fmt.erfcx)
    return select(size < 1, near, intrinsic("copysign", 1 - erfc, x))


def _log(x: Value) -> Value:
    fmt = _FORMATS[x.type]
    k, f = _reduce_to_near_one(x)
    half_square, series = _log_series(f)
    high, low = fmt.ln2
    result = multiply_add(k, high, f - (half_square - (series + k * low)))
    return _log_specials(x, result)


def _log2(x: Value) -> Value:
    return _log_in_base(x, _FORMATS[x.type].inverse_ln2, (1.0, 0.0))


def _log10(x: Value) -> Value:
    fmt = _FORMATS[x.type]
    return _log_in_base(x, fmt.inverse_ln10, fmt.log10_2)


def _log_in_base(x: Value, inverse: tuple[float, float], log_of_two: tuple[float, float]) -> Value:
    """log(x) / log(base) in two parts, after fdlibm: the parts keep full precision near 1 and for powers of two."""
    fmt = _FORMATS[x.type]
    k, f = _reduce_to_near_one(x)
    half_square, series = _log_series(f)
    high = ((f - half_square).bits() & ~fmt.low_bits).as_float()
    low = (f - high) - half_square + series
    value_high = high * inverse[0]
    value_low = (low + high) * inverse[1] + low * inverse[0] + k * log_of_two[1]
    whole = k * log_of_two[0]
    result = whole + value_high
    value_low = value_low + ((whole - result) + value_high)
    return _log_specials(x, value_low + result)


def _log1p(x: Value) -> Value:
    """log(1 + x) from u = 1 + x, with the rounding error of u put back: log(u) + error / u."""
    fmt = _FORMATS[x.type]
    u = x + 1
    # The error of the sum: which of 1 and x it is computed from depends on which is the larger.
    error = select(x > 1, 1 - (u - x), x - (u - 1)) / u
    k, reduced = _reduce_to_near_one(u)
    exact = k == 0  # 1 + x is near 1, so f = x itself, no error to put back
    f, error = select(exact, x, reduced), select(exact, 0.0, error)
    half_square, series = _log_series(f)
    high, low = fmt.ln2
    result = multiply_add(k, high, f - (half_square - (series + (k * low + error))))
    result = _log_specials(u, result)
    return select(intrinsic("fabs", x) < fmt.smallest_normal, x, result)  # also keeps -0.0


def _sin_f32(x: Value) -> Value:
    quarter, r = _reduce_by_half_pi(x)
    sign = ((quarter & 2) << 30) ^ (x.bits() & encoding(-0.0, F32))
    return _sine_or_cosine(r, quarter & 1, sign, x)


def _cos_f32(x: Value) -> Value:
    quarter, r = _reduce_by_half_pi(x)
    quarter = quarter + 1
    return _sine_or_cosine(r, quarter & 1, (quarter & 2) << 30, x)


# Shorter than `_F64`'s, since the result is rounded to f32: relative errors 2**-33 and 2**-43.
_POW_EXP2 = (
    0.6931471805599453, 0.24022650922288757, 0.055504108839096185, 0.009618056678524637, 0.001333350238616277,
    0.0001546144469856913, 1.5297323760701075e-05,
)  # fmt: skip
_POW_LOG = (0.6666666666737538, 0.39999998796931535, 0.2857175461881594, 0.22191395567123384, 0.1936275597214568)


def _pow_f32(base: Value, power: Value) -> Value:
    """2**(power * log2|base|) in f64, whose 29 further bits make the result correct to rounding."""
    x, y = base.convert(F64), power.convert(F64)
    size = intrinsic("fabs", x)
    k, f = _reduce_to_near_one(size)
    half_square, series = _log_series(f, _POW_LOG)
    logarithm = _log_specials(size, multiply_add(f - (half_square - series), 1 / math.log(2), k))
    exponent = _clamp(y * logarithm, -300.0, 300.0)
    result = _exp2_clamped(exponent, _POW_EXP2).convert(F32)
    whole = intrinsic("floor", y) == y
    half = y * 0.5
    odd = whole & (intrinsic("floor", half) != half)
    negated = odd & (base.bits() < 0)
    result = select(negated, -result, result)
    result = select((x < 0) & ~whole & (size < math.inf), math.nan, result)
    unit = (x == 1) | (y == 0) | ((x == -1) & (intrinsic("fabs", y) == math.inf))
    return select(unit, 1.0, result)


# --- argument reduction and reconstruction ---------------------------------------------------------------------


def _clamp(x: Value, low: float, high: float) -> Value:
    """x limited to [low, high]; NaN stays."""
    x = select(x > high, high, x)
    return select(x < low, low, x)


def _reduce_by_ln2(x: Value) -> tuple[Value, Value, Value]:
    """(n, r, error): x = n ln 2 + r + error, |r| <= ln(2)/2, with n in rounded form (see `_scale`)."""
    fmt = _FORMATS[x.type]
    n = multiply_add(x, fmt.inverse_ln2[0] + fmt.inverse_ln2[1], fmt.round_to_integer)
    count = n - fmt.round_to_integer
    high = multiply_add(count, -fmt.ln2[0], x)
    low = count * fmt.ln2[1]
    r = high - low
    return n, r, (high - r) - low


def _scale(value: Value, n: Value) -> Value:
    """``value * 2**n``, to denormals and infinity, for n in rounded form: n + 1.5 * 2**mantissa.

    In that form the low bits of the encoding are n, so no conversion to integer is needed (which would be undefined
    for NaN).  Two factors, each half of n, reach further than one; only the second product can round.
    """
    fmt = _FORMATS[value.type]
    biased = n.bits() + (2 * fmt.bias - encoding(fmt.round_to_integer, value.type))
    first = biased.shift_right_logical(1)
    second = biased - first
    return value * (first << fmt.mantissa).as_float() * (second << fmt.mantissa).as_float()


def _reduce_to_near_one(x: Value) -> tuple[Value, Value]:
    """(k, f): x = 2**k * (1 + f) with sqrt(1/2) <= 1 + f < sqrt(2), for 0 < x < infinity."""
    fmt = _FORMATS[x.type]
    tiny = x < fmt.smallest_normal
    x = select(tiny, x * 2.0 ** (fmt.mantissa + 2), x)
    # Relative to sqrt(1/2), the exponent field counts the powers of two to take out.
    excess = x.bits() - encoding(math.sqrt(0.5), x.type)
    if x.type == F64:  # 32 bits hold the exponent, and convert to f64 with fewer instructions
        count = excess.shift_right_logical(32).convert(I32) >> (fmt.mantissa - 32)
        wide = count.convert(I64)
    else:
        count = wide = excess >> fmt.mantissa
    f = (x.bits() - (wide << fmt.mantissa)).as_float() - 1
    k = count.convert(x.type)
    return select(tiny, k - (fmt.mantissa + 2), k), f


def _log_series(f: Value, coefficients: tuple[float, ...] | None = None) -> tuple[Value, Value]:
    """(h, s): log(1 + f) = f - h + s, with h = f**2 / 2 and s from the series of atanh(f / (2 + f))."""
    s = f / (f + 2)
    z = s * s
    half_square = f * f * 0.5
    return half_square, s * multiply_add(polynomial(z, coefficients or _FORMATS[f.type].log), z, half_square)


def _log_specials(x: Value, result: Value) -> Value:
    """The logarithm where x is positive and finite, else -inf at 0, NaN below, and infinity or NaN itself."""
    outside = select(x == 0, -math.inf, select(x < 0, math.nan, x))
    return select((x > 0) & (x < math.inf), result, outside)


# The binary digits of 2/pi, 64 in a word, after 6 zeros (so that every shift below is non-negative).
_TWO_OVER_PI = (0x028BE60DB9391054, 0xA7F09D5F47D4D377, 0x036D8A5664F10E41, 0x07F9458EAF7AEF15)
_HALF_PI = (1.5707963267341256, 6.077100506506192e-11)  # 33 bits, and the rest
_EXACT_LIMIT = 2.0**19  # below, n has fewer than 20 bits and its product with 33 bits is exact in f64


def _reduce_by_half_pi(x: Value) -> tuple[Value, Value]:
    """(n mod 4 as i32, r): |x| = n pi/2 + r with |r| <= pi/4, for finite f32 x."""
    size = intrinsic("fabs", x)
    wide, magic = size.convert(F64), _F64.round_to_integer
    rounded = multiply_add(wide, 2 / math.pi, magic)
    count = rounded - magic
    near = multiply_add(count, -_HALF_PI[1], multiply_add(count, -_HALF_PI[0], wide))
    quarter, far = _reduce_large_angle(size)
    small = size < _EXACT_LIMIT
    return select(small, rounded.bits().convert(I32), quarter), select(small, near, far).convert(F32)


def _reduce_large_angle(size: Value) -> tuple[Value, Value]:
    """Payne and Hanek: of the product with 2/pi, only the digits that matter modulo 4 are computed, exactly.

    size = m * 2**e with an integer m of 24 bits.  96 digits of 2/pi, starting where digits times 2**e are below 4,
    give size * 2/pi modulo 4 in units of 2**-62.
    """
    bits = size.bits()
    m = ((bits & 0x7FFFFF) | 0x800000).convert(I64)
    start = bits.shift_right_logical(23) - (127 + 23 - 4)  # the digit of 2/pi, after the zeros, that the window begins with
    second_word = start >= 64
    first, middle, last = (
        select(second_word, m.constant(_signed(after)), m.constant(_signed(word)))
        for word, after in zip(_TWO_OVER_PI[:3], _TWO_OVER_PI[1:], strict=True)
    )
    shift = (start & 63).convert(I64)
    complement = 63 - shift
    high = (first << shift) | middle.shift_right_logical(1).shift_right_logical(complement)
    low = (middle << shift) | last.shift_right_logical(1).shift_right_logical(complement)
    turns = m * high + (m * low.shift_right_logical(32)).shift_right_logical(32)
    quarter = (turns + (1 << 61)).shift_right_logical(62)
    fraction = turns - (quarter << 62)
    return quarter.convert(I32), fraction.convert(F64) * (math.pi / 2 * 2.0**-62)


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


_SIN = (-0.16666667, 0.008333332, -0.00019840086, 2.7249864e-06)  # (sin(r) / r - 1) / r**2
_COS = (0.041666664, -0.0013888302, 2.4547891e-05)  # (cos(r) - 1 + r**2 / 2) / r**4


def _sine_or_cosine(r: Value, odd: Value, sign: Value, x: Value) -> Value:
    """sin(r), or cos(r) for an odd quarter, with its sign flipped by `sign`; NaN if x is not finite."""
    z = r * r
    sine = multiply_add(polynomial(z, _SIN) * z, r, r)
    cosine = multiply_add(polynomial(z, _COS), z * z, multiply_add(z, -0.5, 1.0))
    result = (select(odd == 1, cosine, sine).bits() ^ sign).as_float()
    return select(intrinsic("fabs", x) < math.inf, result, math.nan)


_BOTH: dict[str, Callable[..., Value]] = {
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _log,
    "log2": _log2,
    "log10": _log10,
    "log1p": _log1p,
    "tanh": _tanh,
    "erf": _erf,
}
_EMITTERS: dict[tuple[str, str], Callable[..., Value]] = {
    **{(name, dtype): function for name, function in _BOTH.items() for dtype in ("f32", "f64")},
    ("sin", "f32"): _sin_f32,
    ("cos", "f32"): _cos_f32,
    ("pow", "f32"): _pow_f32,
}

SUPPORTED: frozenset[tuple[str, str]] = frozenset(_EMITTERS)
"""The pairs of function name and dtype that `emit` has."""

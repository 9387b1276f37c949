"""What Numba kernels call beyond Python's operators: one Numba intrinsic for each function and dtype.

``numba_intrinsics()`` gives them by name, to be the globals of a kernel's source; Numba is imported then, not before.
The names end in the dtype: ``exp_f32`` takes and gives a float32 (Numba casts other arguments to it, silently).

=============================  ====================================================================================
``exp_f32 .. pow_f32``          the functions of `vector_math`
``maximum minimum``             floating point, NaN-propagating as NumPy's (``llvm.maximum``), vectorised also in reductions
``rint floor ceil trunc``       rounding to an integer, half to even for rint
``fabs sqrt copysign fma``      fma rounds once where the processor can, else twice
``add_reassoc mul_reassoc``     ``acc + x``, ``acc * x`` in a reduction that may be reordered, so LLVM can vectorise it
``fma_reassoc``                 ``acc + a * b``, likewise, with the product fused
``floordiv mod fmod``           NumPy's results for all integers and floats; never traps (see `division`)
``left_shift right_shift power`` NumPy's results for all integers (see `integer_math`)
``as_u64``                     a float as a uint64, as C does on x86: negative numbers wrap
``quotient rest``               ``//`` and ``%`` of sizes: non-negative int64
``complex real imag`` ...       the functions of `complex_math`
``select``                      ``select(condition, yes, no)`` without a branch, of two values of one type
``bitcast_i32_f32`` ...         the same bits as another type of the same size (source, then result)
``ptr_f32`` ...                 an address (int64) as a pointer that can be indexed; ``ptr_bool`` points to uint8
``copy_128`` ...                so many bytes from the second address to the first
``inside``, ``is_outside``      checks of indices, in builds that check bounds (see `bounds`)
``call_sweep``                 call the register tiles' sweep (see `micro_kernels`) by its address
=============================  ====================================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from llvmlite import ir

from minirelax.codegen import complex_math, division, integer_math, vector_math
from minirelax.codegen.bounds_intrinsics import bounds_intrinsics
from minirelax.codegen.value import Value, intrinsic, multiply_add

FLOATS = ("f32", "f64")
SIGNED = ("i8", "i16", "i32", "i64")
UNSIGNED = ("u8", "u16", "u32", "u64")
COMPLEX = ("c64", "c128")
POINTEES = ("bool", *SIGNED, *UNSIGNED, *FLOATS, *COMPLEX)

_UNARY = {"rint": "rint", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "fabs": "fabs", "sqrt": "sqrt"}
_BINARY = ("maximum", "minimum", "copysign")
_SAME_SIZE = (("i32", "f32"), ("i64", "f64"), ("u32", "f32"), ("u64", "f64"))
_BITCASTS = _SAME_SIZE + tuple((b, a) for a, b in _SAME_SIZE)

# Only the order of a reduction is left free: no flag claims that NaN or infinity do not occur.
_REORDERED = ("reassoc",)
_REORDERED_DOT = ("reassoc", "contract")

COPIES = (32, 64, 128)  # bytes of a panel's row

Emit = Callable[..., ir.Value]


@cache
def numba_intrinsics() -> dict[str, object]:
    """Numba intrinsics by name, callable in functions that Numba compiles.  Imports Numba on the first call."""
    from numba import types

    kinds = {"bool": types.uint8, "f32": types.float32, "f64": types.float64, "c64": types.complex64, "c128": types.complex128}
    kinds |= {d: getattr(types, d.replace("i", "int")) for d in SIGNED}
    kinds |= {d: getattr(types, d.replace("u", "uint")) for d in UNSIGNED}
    found = {}
    for name, (emit, result, arguments) in _numeric().items():
        found[name] = _wrap(name, emit, kinds[result], [kinds[a] for a in arguments])
    for dtype in POINTEES:
        found[f"ptr_{dtype}"] = _wrap(f"ptr_{dtype}", _emit_pointer, types.CPointer(kinds[dtype]), [types.int64])
    found["call_sweep"] = _wrap("call_sweep", _emit_call, types.void, [types.int64] * 13)
    found["select"] = _select()
    found |= bounds_intrinsics()
    for count in COPIES:
        found[f"copy_{count}"] = _wrap(f"copy_{count}", _copy(count), types.void, [types.int64, types.int64])
    return found


def _numeric() -> dict[str, tuple[Emit, str, tuple[str, ...]]]:
    """name -> (emit, result dtype, argument dtypes) for all that maps numbers to a number."""
    table: dict[str, tuple[Emit, str, tuple[str, ...]]] = {}
    for name, dtype in sorted(vector_math.SUPPORTED):
        arity = 2 if name == "pow" else 1
        table[f"{name}_{dtype}"] = (_math(name), dtype, (dtype,) * arity)
    for d in FLOATS:
        table |= {f"{name}_{d}": (_llvm(llvm), d, (d,)) for name, llvm in _UNARY.items()}
        table |= {f"{name}_{d}": (_llvm(name), d, (d, d)) for name in _BINARY}
        table |= {f"{name}_{d}": (_float_division(name), d, (d, d)) for name in division.NAMES}
        table[f"as_u64_{d}"] = (_emit_as_u64, "u64", (d,))
        table[f"fma_{d}"] = (_emit_fma, d, (d, d, d))
        table[f"add_reassoc_{d}"] = (lambda b, acc, x: b.fadd(acc, x, flags=_REORDERED), d, (d, d))
        table[f"mul_reassoc_{d}"] = (lambda b, acc, x: b.fmul(acc, x, flags=_REORDERED), d, (d, d))
        table[f"fma_reassoc_{d}"] = (_emit_dot_step, d, (d, d, d))
    for d in SIGNED + UNSIGNED:
        table |= {f"{name}_{d}": (_integer(division.emit_integer, name, d), d, (d, d)) for name in division.NAMES}
        table |= {f"{name}_{d}": (_integer(integer_math.emit_shift, name, d), d, (d, d)) for name in integer_math.SHIFTS}
        table[f"power_{d}"] = (_power(d), d, (d, d))
    for name, (emit, result, arguments) in complex_math.table().items():
        table[name] = (_numbers(emit), result, arguments)
    for name in ("quotient", "rest"):
        table[name] = (_size_division(name), "i64", ("i64", "i64"))
    for source, result in _BITCASTS:
        table[f"bitcast_{source}_{result}"] = (_bitcast(result), result, (source,))
    return table


def _math(name: str) -> Emit:
    return lambda builder, *arguments: vector_math.emit(builder, name, *arguments)


def _llvm(name: str) -> Emit:
    return lambda builder, *arguments: intrinsic(name, *(Value(builder, a) for a in arguments)).value


def _emit_as_u64(builder: ir.IRBuilder, x: ir.Value) -> ir.Value:
    word, half = ir.IntType(64), ir.Constant(x.type, 2.0**63)
    small = builder.fcmp_unordered("<", x, half)
    upper = builder.xor(builder.fptosi(builder.fsub(x, half), word), ir.Constant(word, 1 << 63))
    return builder.select(small, builder.fptosi(x, word), upper)


def _float_division(name: str) -> Emit:
    return lambda builder, a, b: division.emit_float(builder, name, a, b)


def _integer(emit: Emit, name: str, dtype: str) -> Emit:
    return lambda builder, a, b: emit(builder, name, a, b, signed=dtype in SIGNED)


def _power(dtype: str) -> Emit:
    return lambda builder, a, b: integer_math.emit_power(builder, a, b, signed=dtype in SIGNED)


def _numbers(emit: Emit) -> Emit:
    return lambda builder, *arguments: emit(*(Value(builder, a) for a in arguments)).value


def _size_division(name: str) -> Emit:
    return lambda builder, a, b: integer_math.emit_size_division(builder, name, a, b)


def _bitcast(result: str) -> Emit:
    kind = {"f32": ir.FloatType(), "f64": ir.DoubleType()}.get(result) or ir.IntType(int(result[1:]))
    return lambda builder, x: builder.bitcast(x, kind)


def _emit_fma(builder: ir.IRBuilder, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
    return multiply_add(*(Value(builder, v) for v in (a, b, c))).value


def _emit_dot_step(builder: ir.IRBuilder, acc: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
    return builder.fadd(acc, builder.fmul(a, b, flags=("contract",)), flags=_REORDERED_DOT)


def _copy(count: int) -> Emit:
    """So many bytes from one address (the second) to another, as vector moves."""

    def emit(builder: ir.IRBuilder, target: ir.Value, source: ir.Value) -> None:
        kind = ir.VectorType(ir.IntType(64), count // 8)
        pointers = [builder.inttoptr(address, ir.PointerType()) for address in (target, source)]
        builder.store(builder.load(pointers[1], align=4, typ=kind), pointers[0], align=4)

    return emit


def _emit_pointer(builder: ir.IRBuilder, address: ir.Value) -> ir.Value:
    return builder.inttoptr(address, ir.PointerType())


def _emit_call(builder: ir.IRBuilder, function: ir.Value, *arguments: ir.Value) -> None:
    i64 = ir.IntType(64)
    signature = ir.FunctionType(ir.VoidType(), [i64] * len(arguments))
    builder.call(builder.inttoptr(function, signature.as_pointer()), list(arguments))


def _wrap(name: str, emit: Emit, result: object, arguments: list[object]) -> object:
    """A Numba intrinsic with this signature, to which Numba casts the arguments."""
    from numba.extending import intrinsic as numba_intrinsic

    signature = result(*arguments)

    def generate(context, builder, _, values):
        value = emit(builder, *values)
        return context.get_dummy_value() if value is None else value

    # Numba reads the number of arguments off the Python function, so a typer is made for each arity.
    names = ", ".join(f"a{i}" for i in range(len(arguments)))
    scope: dict[str, object] = {"signature": signature, "generate": generate}
    exec(f"def {name}(typing_context, {names}):\n    return signature, generate", scope)
    return numba_intrinsic(scope[name])


def _select() -> object:
    """The one intrinsic without fixed types: the values are unified as Numba unifies a variable's."""
    from numba import types
    from numba.extending import intrinsic as numba_intrinsic

    def select(typing_context, condition, yes, no):
        kind = typing_context.unify_types(types.unliteral(yes), types.unliteral(no))
        if kind is None:
            return None
        return kind(types.boolean, kind, kind), lambda context, builder, _, values: builder.select(*values)

    return numba_intrinsic(select)

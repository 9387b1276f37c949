"""Values that build LLVM IR through Python's operators, so that emitted mathematics reads like mathematics.

>>> from llvmlite import ir
>>> f32 = ir.FloatType()
>>> function = ir.Function(ir.Module(), ir.FunctionType(f32, [f32]), "f")
>>> builder = ir.IRBuilder(function.append_basic_block())
>>> x = Value(builder, function.args[0])
>>> y = select(x < 0, -x, x * 2 + 1)
>>> [i.opname for i in builder.block.instructions]
['fcmp', 'fneg', 'fmul', 'fadd', 'select']

Floating-point instructions carry no fast-math flags: every one rounds as IEEE 754 says.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from llvmlite import ir

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()
_BITS = {F32: I32, F64: I64}
_SUFFIX = {F32: "f32", F64: "f64"}


class Value:
    """An LLVM scalar: f32, f64, or an integer that the operators treat as signed.

    The other operand may be a Python number, which takes this value's type.  Comparisons of floating-point values
    are false if an operand is NaN, except ``!=``, which is true.
    """

    def __init__(self, builder: ir.IRBuilder, value: ir.Value):
        self.builder, self.value = builder, value

    @property
    def type(self) -> ir.Type:
        return self.value.type

    @property
    def is_float(self) -> bool:
        return self.type in _BITS

    def constant(self, number: float | int | Value) -> Value:
        """`number` in this value's type; a Value stays as it is."""
        return number if isinstance(number, Value) else Value(self.builder, ir.Constant(self.type, number))

    def _operate(self, float_name: str, int_name: str, other: float | int | Value, swap: bool = False) -> Value:
        left, right = self.value, self.constant(other).value
        if swap:
            left, right = right, left
        return Value(self.builder, getattr(self.builder, float_name if self.is_float else int_name)(left, right))

    def __add__(self, other):
        return self._operate("fadd", "add", other)

    def __sub__(self, other):
        return self._operate("fsub", "sub", other)

    def __mul__(self, other):
        return self._operate("fmul", "mul", other)

    def __rsub__(self, other):
        return self._operate("fsub", "sub", other, swap=True)

    def __truediv__(self, other):
        return self._operate("fdiv", "sdiv", other)

    def __rtruediv__(self, other):
        return self._operate("fdiv", "sdiv", other, swap=True)

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return Value(self.builder, self.builder.fneg(self.value) if self.is_float else self.builder.neg(self.value))

    def __and__(self, other):
        return self._operate("", "and_", other)

    def __or__(self, other):
        return self._operate("", "or_", other)

    def __xor__(self, other):
        return self._operate("", "xor", other)

    def __invert__(self):
        return Value(self.builder, self.builder.not_(self.value))

    def __lshift__(self, other):
        return self._operate("", "shl", other)

    def __rshift__(self, other):
        return self._operate("", "ashr", other)

    def shift_right_logical(self, other: int | Value) -> Value:
        return self._operate("", "lshr", other)

    def _compare(self, operator: str, other: float | int | Value) -> Value:
        right = self.constant(other).value
        if not self.is_float:
            compare = self.builder.icmp_signed
        else:
            compare = self.builder.fcmp_unordered if operator == "!=" else self.builder.fcmp_ordered
        return Value(self.builder, compare(operator, self.value, right))

    def __lt__(self, other):
        return self._compare("<", other)

    def __le__(self, other):
        return self._compare("<=", other)

    def __gt__(self, other):
        return self._compare(">", other)

    def __ge__(self, other):
        return self._compare(">=", other)

    def __eq__(self, other):
        return self._compare("==", other)

    def __ne__(self, other):
        return self._compare("!=", other)

    __hash__ = None  # == builds an instruction, so values cannot be keys

    def bits(self) -> Value:
        """The IEEE 754 encoding, as an integer of the same size."""
        return Value(self.builder, self.builder.bitcast(self.value, _BITS[self.type]))

    def as_float(self) -> Value:
        """The floating-point number with this encoding."""
        kind = F32 if self.type == I32 else F64
        return Value(self.builder, self.builder.bitcast(self.value, kind))

    def convert(self, kind: ir.Type) -> Value:
        """The same number in another type: integers wrap or extend their sign, floats round.  Not float to integer."""
        build, source = self.builder, self.type
        if source == kind:
            return self
        if source in _BITS:
            convert = build.fpext if kind == F64 else build.fptrunc
        elif kind in _BITS:
            convert = build.sitofp
        else:
            convert = build.trunc if source.width > kind.width else build.sext
        return Value(build, convert(self.value, kind))

    def zero_extend(self, kind: ir.Type) -> Value:
        return Value(self.builder, self.builder.zext(self.value, kind))


def select(condition: Value, yes: Value | float, no: Value | float) -> Value:
    """`yes` where the condition holds, else `no`; one of the two must be a Value."""
    yes, no = (yes, yes.constant(no)) if isinstance(yes, Value) else (no.constant(yes), no)
    return Value(condition.builder, condition.builder.select(condition.value, yes.value, no.value))


def intrinsic(name: str, *arguments: Value) -> Value:
    """Call ``llvm.<name>`` for the type of the arguments, all of one floating-point type."""
    builder, kind = arguments[0].builder, arguments[0].type
    full_name = f"llvm.{name}.{_SUFFIX[kind]}"
    function = builder.module.globals.get(full_name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(kind, [kind] * len(arguments)), full_name)
    return Value(builder, builder.call(function, [a.value for a in arguments]))


def multiply_add(a: Value, b: Value | float, c: Value | float) -> Value:
    """``a * b + c``, rounded once where the processor has fused multiply-add, else twice."""
    return intrinsic("fmuladd", a, a.constant(b), a.constant(c))


def polynomial(x: Value, coefficients: Sequence[float]) -> Value:
    """``coefficients[0] + coefficients[1] * x + ...`` by Horner's rule."""
    result = x.constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = multiply_add(result, x, coefficient)
    return result


def encoding(number: float, kind: ir.Type) -> int:
    """The IEEE 754 encoding of a Python number rounded to f32 or f64."""
    return struct.unpack("<i" if kind == F32 else "<q", struct.pack("<f" if kind == F32 else "<d", number))[0]

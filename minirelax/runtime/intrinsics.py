"""What the native loop needs and Python lacks: raw memory, atomic words, calls through an address, a spin hint.

`intrinsics()` makes Numba intrinsics, so that `native_loop.py` reads as plain Python. Addresses are int64. All atomic
operations are sequentially consistent.
"""

from __future__ import annotations

import os

FUTEX = {"x86_64": 202, "aarch64": 98}.get(os.uname().machine if os.name == "posix" else "")  # the system call's number


def intrinsics() -> dict[str, object]:
    """The names that `native_loop.py` uses, by name. Imports Numba."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils
    from numba.extending import intrinsic

    word = ir.IntType(64)
    i64 = types.int64

    def at(builder, address, bits: int = 64):
        return builder.inttoptr(address, ir.IntType(bits).as_pointer())

    @intrinsic
    def words(typing, address):
        """The memory at an address as an array of int64, without bounds."""
        return types.CPointer(i64)(i64), lambda context, builder, signature, a: at(builder, a[0])

    @intrinsic
    def address_of(typing, pointer):
        return i64(types.CPointer(i64)), lambda context, builder, signature, a: builder.ptrtoint(a[0], word)

    def signed(bits: int):
        @intrinsic
        def load(typing, address):
            return i64(i64), lambda context, builder, signature, a: builder.sext(builder.load(at(builder, a[0], bits)), word)

        return load

    @intrinsic
    def atomic_load(typing, address):
        return i64(i64), lambda context, builder, signature, a: builder.load_atomic(at(builder, a[0]), "seq_cst", 8)

    @intrinsic
    def atomic_store(typing, address, value):
        def generate(context, builder, signature, a):
            builder.store_atomic(a[1], at(builder, a[0]), "seq_cst", 8)
            return context.get_dummy_value()

        return types.void(i64, i64), generate

    @intrinsic
    def atomic_add(typing, address, value):
        """Adds and returns the value before."""
        return i64(i64, i64), lambda context, builder, signature, a: builder.atomic_rmw("add", at(builder, a[0]), a[1], "seq_cst")

    @intrinsic
    def compare_and_swap(typing, address, expected, value):
        """Stores `value` if the word is `expected`; whether it was."""
        def generate(context, builder, signature, a):
            return builder.extract_value(builder.cmpxchg(at(builder, a[0]), a[1], a[2], "seq_cst", "seq_cst"), 1)

        return types.boolean(i64, i64, i64), generate

    def overflows(name: str):
        @intrinsic
        def test(typing, a, b):
            def generate(context, builder, signature, a):
                pair = ir.LiteralStructType([word, ir.IntType(1)])
                function = cgutils.get_or_insert_function(
                    builder.module, ir.FunctionType(pair, [word, word]), f"llvm.s{name}.with.overflow.i64")
                return builder.extract_value(builder.call(function, a), 1)

            return types.boolean(i64, i64), generate

        return test

    @intrinsic
    def lesser(typing, a, b):
        """min(a, b), without compiling Numba's."""
        def generate(context, builder, signature, a):
            return builder.select(builder.icmp_signed("<", a[0], a[1]), a[0], a[1])

        return i64(i64, i64), generate

    @intrinsic
    def call_kernel(typing, function, arguments, low, high, scratch):
        def generate(context, builder, signature, a):
            kernel = ir.FunctionType(ir.VoidType(), [word.as_pointer(), word, word, word])
            builder.call(builder.inttoptr(a[0], kernel.as_pointer()), [at(builder, a[1]), a[2], a[3], a[4]])
            return context.get_dummy_value()

        return types.void(i64, i64, i64, i64, i64), generate

    @intrinsic
    def spin_hint(typing):
        """Tells an x86 processor that this is a waiting loop; nothing elsewhere."""
        def generate(context, builder, signature, a):
            if builder.module.triple.startswith(("x86", "i686")):
                hint = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), []), "llvm.x86.sse2.pause")
                builder.call(hint, [])
            return context.get_dummy_value()

        return types.void(), generate

    def external(name: str, result, *arguments):
        return types.ExternalFunction(name, result(*arguments))

    return {
        "words": words, "address_of": address_of,
        "load_int8": signed(8), "load_int16": signed(16), "load_int32": signed(32), "load_int64": signed(64),
        "atomic_load": atomic_load, "atomic_store": atomic_store, "atomic_add": atomic_add,
        "compare_and_swap": compare_and_swap,
        "add_overflows": overflows("add"), "sub_overflows": overflows("sub"), "mul_overflows": overflows("mul"),
        "lesser": lesser, "call_kernel": call_kernel,
        "spin_hint": spin_hint,
        "memmove": external("memmove", i64, i64, i64, i64),
        "syscall": external("syscall", i64, *[i64] * 7),
        "sched_yield": external("sched_yield", types.int32),
        "clock_gettime": external("clock_gettime", types.int32, types.int32, i64),
        "PyLong_AsLongLong": external("PyLong_AsLongLong", i64, i64),
        "PyLong_FromLongLong": external("PyLong_FromLongLong", i64, i64),
        "PyEval_SaveThread": external("PyEval_SaveThread", i64),
        "PyEval_RestoreThread": external("PyEval_RestoreThread", types.void, i64),
    }

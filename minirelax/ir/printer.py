"""IR to text.  The text is Python syntax: editors colour it, `ast` reads it back, and kernels run.

>>> from minirelax.ir.graph import Binding, Dataflow, Function, MatchCast, Var
>>> from minirelax.ir.types import f32
>>> x, v0 = Var("x", f32["_"]), Var("v0", f32["n"])
>>> print(Function("main", (x,), (Dataflow((Binding(v0, MatchCast(x, v0.type)),), (v0,)),), v0))
def main(x: f32[_]) -> f32[n]:
    with dataflow():
        v0: f32[n] = match_cast(x, f32[n])
        output(v0)
    return v0
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

import numpy as np

from minirelax.ir.dim import Dim, DimExpr
from minirelax.ir.graph import (
    Alias,
    AllocStorage,
    AllocTensor,
    Array,
    Atom,
    Binding,
    CallFunction,
    CallKernel,
    CallLibrary,
    CallValue,
    Cond,
    Const,
    Constant,
    Dataflow,
    Expr,
    Function,
    Guard,
    Heap,
    MakeShape,
    MakeTuple,
    MatchCast,
    MatchShape,
    Module,
    RunCond,
    RunKernel,
    RunLibrary,
    RunScan,
    RunWhile,
    Scan,
    TupleItem,
    Var,
    View,
    While,
    operand_names,
)
from minirelax.ir.op import OPS, Op
from minirelax.ir.print_loops import TAB, print_kernel, print_scalar, quoted
from minirelax.ir.syntax import number_text
from minirelax.ir.types import Tensor

__all__ = ["print_attribute", "print_binding", "print_expr", "print_function", "print_kernel", "print_module", "print_scalar"]

WRITTEN_OUT = 16         # elements of a constant that are printed as numbers


def print_module(module: Module) -> str:
    """The whole module: constants, kernels, functions."""
    constants = ["\n".join(map(print_constant, module.constants))] if module.constants else []
    return "\n\n".join([*constants, *map(print_kernel, module.kernels), *map(print_function, module.functions)])


def print_constant(constant: Constant) -> str:
    """Small arrays as numbers; larger ones by their digest, by which they can be found as long as they live."""
    array = constant.array
    content = numbers(array) if array.value.size <= WRITTEN_OUT else None
    return f"{constant.name}: {array.type} = constant({content or quoted(array.remember())})"


def print_function(function: Function) -> str:
    """One graph-level function."""
    params = [f"{p.name}: {p.type}" for p in function.params]
    bound = ["*", *(f"{p.name}: {p.type}" for p in function.bound)] if function.bound else []
    lines = ["@group"] if function.group else ["@private"] if function.private else []
    lines.append(f"def {function.name}({', '.join([*params, *bound])}) -> {function.type.result}:")
    lines += [TAB + print_guard(g) for g in function.guards]
    for part in function.body:
        if isinstance(part, Dataflow):
            lines.append(f"{TAB}with dataflow():")
            lines += [f"{TAB * 2}{print_binding(b)}" for b in part.bindings]
            lines.append(f"{TAB * 2}output({', '.join(v.name for v in part.outputs)})")
        else:
            lines.append(TAB + print_binding(part))
    return "\n".join([*lines, f"{TAB}return {_atoms((function.result,))[0]}"])


def print_guard(guard: Guard) -> str:
    """``guard(n > 16)``."""
    return f"guard({guard.left} {guard.relation} {guard.right})"


def print_binding(binding: Binding) -> str:
    """One line: ``v0: f32[n] = exp(x)``, or an effect."""
    text = print_expr(binding.value)
    return f"{binding.var.name}: {binding.var.type} = {text}" if binding.var else text


def print_expr(expr: Expr) -> str:
    """A right-hand side; scalars among its operands are bare where they have the dtype of the first array that is not bool."""
    atoms = _atoms(expr.operands())
    match expr:
        case MatchCast(type=type_):
            return f"match_cast({atoms[0]}, {type_})"
        case MakeTuple():
            return print_tuple(atoms)
        case TupleItem(index=index):
            return f"{atoms[0]}[{index}]"
        case MakeShape(values=values):
            return call("shape", map(print_attribute, values))
        case Alias():
            return atoms[0]
        case CallFunction(function=name):
            plain = name not in OPS and name not in KEYWORDS
            return call(name, atoms) if plain else call("call_function", [name, *atoms])
        case CallValue():
            return call(atoms[0], atoms[1:])
        case Cond() | While() | Scan() | RunCond() | RunWhile() | RunScan():
            return _control(expr)
        case CallKernel(kernel=name, sizes=sizes):
            return call("call_kernel", [name, *atoms, *_sizes(sizes)])
        case CallLibrary(routine=name, options=options, sizes=sizes):
            return call("call_library", [quoted(name), *atoms, *_keywords(options), *_sizes(sizes)])
        case RunKernel(kernel=name, args=args, out=out, sizes=sizes):
            written, work = _written(atoms, len(args), len(out)), _work(atoms[len(args) + len(out):])
            return call("run_kernel", [name, *written, *_sizes(sizes), *work])
        case RunLibrary(routine=name, args=args, out=out, options=options, sizes=sizes):
            written, work = _written(atoms, len(args), len(out)), _work(atoms[len(args) + len(out):])
            return call("run_library", [quoted(name), *written, *_keywords(options), *_sizes(sizes), *work])
        case AllocStorage():
            return "alloc_storage()"
        case AllocTensor(offset=offset):
            return call("alloc_tensor", [*atoms, *([] if offset == 0 else [f"offset={print_attribute(offset)}"])])
        case View(offset=offset):
            return call("view", [*atoms, *([] if offset == 0 else [f"offset={print_attribute(offset)}"])])
        case Heap(slot=slot, value=value):
            return f"heap[{slot}] = {value}"
        case MatchShape(pattern=pattern, binds=binds):
            sizes = print_tuple(["_" if d is None else str(d) for d in pattern])
            return call("match_shape", [*atoms, sizes, *_keywords([("binds", binds)] if binds else [])])
        case Op():
            return call(expr.opname(), [*_op_operands(expr, atoms), *_keywords(expr.attributes().items())])
    raise TypeError(f"there is no text for {type(expr).__name__}")


CONTROL = {"cond": Cond, "while_loop": While, "scan": Scan, "run_cond": RunCond, "run_while": RunWhile, "run_scan": RunScan}
KEYWORDS = frozenset((
    *CONTROL, "shape", "match_cast", "call_function", "call_kernel", "call_library", "run_kernel", "run_library", "alloc_storage",
    "alloc_tensor", "view", "match_shape", "guard", "output", "dataflow", "constant"))


def _control(expr: Expr) -> str:
    """Control flow: functions by name, several values as a tuple, ``out=`` and what is no operand by keyword."""
    name = next(n for n, cls in CONTROL.items() if cls is type(expr))
    parts = []
    for field in fields(expr):
        value = getattr(expr, field.name)
        if field.name in ("then", "otherwise", "test", "body"):
            parts.append(value)
        elif isinstance(value, Var | Const):
            parts.append(_atoms((value,))[0])
        elif isinstance(expr, Cond) or isinstance(expr, RunCond) and field.name == "args":
            parts += _atoms(value)
        elif field.name in ("out", "spare"):
            parts.append(f"{field.name}={print_tuple(_atoms(value))}")
        elif field.name in ("length", "reverse"):
            parts.append(f"{field.name}={print_attribute(value)}")
        else:
            parts.append(print_tuple(_atoms(value)))
    return call(name, parts)


def call(name: str, arguments: Iterable[str]) -> str:
    """``name(a, b)``."""
    return f"{name}({', '.join(arguments)})"


def print_tuple(items: list[str]) -> str:
    """``(a, b)``, ``(a,)``, ``()``."""
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def print_attribute(value: object) -> str:
    """A number, string, None, size, or tuple of these, as Python text.  Raises TypeError for anything else."""
    match value:
        case None | bool() | int() | float() if type(value) in (type(None), bool, int, float):
            return repr(value)
        case DimExpr():
            return str(value)
        case str():
            return quoted(value)
        case tuple():
            return print_tuple([print_attribute(v) for v in value])
    raise TypeError(f"an attribute is a number, a string, None, a size or a tuple of these, not {type(value).__name__} {value!r}")


def numbers(array: Array) -> str | None:
    """An array as nested lists of numbers, or None if they would not give back every bit (the payload of a NaN)."""
    value = array.value
    lists = _exact(value) if value.dtype.kind != "c" else _paired(_exact(value.real), _exact(value.imag))
    return None if lists is None else _nested(lists)


def _exact(value: np.ndarray) -> list | float | None:
    """The numbers of an array without complex ones, with as few digits as give back every bit."""
    if value.dtype.kind == "f" and np.where(np.isnan(value), np.nan, value).astype(value.dtype).tobytes() != value.tobytes():
        return None
    short = np.frompyfunc(lambda x: float(str(np.float32(x))), 1, 1)
    for lists in ([np.asarray(short(value)).tolist()] if value.dtype == np.float32 else []) + [value.tolist()]:
        if np.array(lists, value.dtype).tobytes() == value.tobytes():
            return lists
    return None


def _paired(real: list | float | None, imag: list | float | None) -> list | complex | None:
    """Complex numbers of their parts."""
    if real is None or imag is None:
        return None
    return list(map(_paired, real, imag)) if isinstance(real, list) else complex(real, imag)


def _nested(lists: list | complex | float) -> str:
    return f"[{', '.join(map(_nested, lists))}]" if isinstance(lists, list) else number_text(lists)


def bare_dtype(atoms: Iterable[Atom]) -> str | None:
    """The dtype that a scalar written without one has among these operands: of the first array that is not bool."""
    dtypes = [a.type.dtype for a in atoms if isinstance(a, Var) and isinstance(a.type, Tensor)]
    return next((d for d in dtypes if d != "bool"), dtypes[0] if dtypes else None)


def _atoms(atoms: tuple[Atom, ...]) -> list[str]:
    """Variables by name; scalars bare if their dtype is that of the first array, else spelled ``f32(0.5)``."""
    bare = bare_dtype(atoms) if any(isinstance(a, Const) for a in atoms) else None
    numbers_ = [None if isinstance(a, Var) else number_text(a.value) for a in atoms]
    return [a.name if n is None else n if a.dtype == bare else f"{a.dtype}({n})" for a, n in zip(atoms, numbers_, strict=True)]


def _op_operands(op: Op, atoms: list[str]) -> list[str]:
    """Operands as the op's fields group them: a field that holds several is a tuple."""
    grouped, rest = [], iter(atoms)
    for name in operand_names(type(op)):
        field = getattr(op, name)
        grouped.append(print_tuple([next(rest) for _ in field]) if isinstance(field, tuple) else next(rest))
    return grouped


def _written(atoms: list[str], inputs: int, outputs: int) -> list[str]:
    """The inputs of a statement, and ``out=``: what it writes."""
    return [*atoms[:inputs], f"out={print_tuple(atoms[inputs:inputs + outputs])}"]


def _work(work: list[str]) -> list[str]:
    return [f"work={print_tuple(work)}"] if work else []


def _sizes(sizes: tuple[Dim, ...]) -> list[str]:
    return [f"sizes={print_attribute(sizes)}"] if sizes else []


def _keywords(options: Iterable[tuple[str, object]]) -> list[str]:
    return [f"{name}={print_attribute(value)}" for name, value in options]

"""Run a Python function on stand-ins for its arguments, and collect what it does as a graph module.

>>> import numpy as np
>>> from minirelax import f32
>>> print(trace(lambda x, w: np.maximum(x @ w, 0), f32["n", 4], f32[4, 2]).module)
def main(x: f32[n, 4], w: f32[4, 2]) -> f32[n, 2]:
    with dataflow():
        v0: f32[n, 2] = matmul(x, w)
        v1: f32[n, 2] = maximum(v0, 0.0)
        output(v1)
    return v1
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from minirelax.errors import ArgumentError, CompileError, ShapeError, UnsupportedError
from minirelax.frontend import functions as _functions
from minirelax.frontend import tree as trees
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder, tracing
from minirelax.frontend.facts import letters
from minirelax.frontend.mismatch import explain_mismatch, sizes_of
from minirelax.frontend.signature import STATIC_TYPES, Call, Leaf, Parameter, Signature, as_argument, identifier
from minirelax.frontend.size import Size
from minirelax.frontend.tree import Tree
from minirelax.frontend.ufuncs import FILL
from minirelax.ir.dim import Dim, DimExpr, names, substitute, symbol
from minirelax.ir.graph import Atom, Binding, Const, Dataflow, Expr, Function, Guard, MakeTuple, MatchCast, Module, Var
from minirelax.ir.op import substitute_dims
from minirelax.ir.types import DType, Tensor, Tuple, substitute_type, symbols
from minirelax.ir.verify_kernel import is_name

assert _functions.FUNCTIONS  # methods of traced arrays find their functions there


@dataclass(frozen=True)
class Result:
    """How one leaf of the result is made: an output (as an array or a Python number), an argument, or a value known already."""

    output: int | None = None
    python: type | None = None
    argument: int | None = None
    value: object = None


@dataclass(frozen=True)
class TraceResult:
    """A traced function: the module, and how its parameters and outputs relate to the user's arguments and results."""

    module: Module
    params: tuple[Parameter, ...]  # arrays, then weights
    out_tree: Tree
    results: tuple[Result, ...]  # one for each leaf of the result
    outputs: int  # how many arrays the program returns
    mutations: tuple[tuple[int, int], ...]  # (argument, output): written back after the call
    in_order: tuple[int, ...]  # arguments that are written to through a reshape: they must be C-contiguous
    facts: tuple[Guard, ...]  # everything assumed about this call's sizes, with the line that asked

    @property
    def main(self) -> Function:
        """The entry."""
        return self.module.functions[0]

    @property
    def arguments(self) -> str:
        """The parameters' types as text."""
        return ", ".join(f"{p.name}: {p.type}" for p in self.main.params)


def trace(
    fn: Callable,
    *args: object,
    static: tuple[str, ...] = (),
    constants: tuple[str, ...] = (),
    bounds: Mapping[str, tuple[int, int]] | None = None,
    **kwargs: object,
) -> TraceResult:
    """Trace `fn`; each argument is a type (``f32["n", 4]``: its sizes are declared) or a value (its sizes are the hints).

    Raises CompileError with the user's line for whatever cannot be compiled.
    """
    signature = Signature(fn, static, constants)
    leaves = trees.flatten((args, kwargs), lambda v: isinstance(v, Tensor | DType))[0]
    if not any(isinstance(v, Tensor | DType) for v in leaves):
        return trace_call(signature, signature.bind(args, kwargs), bounds)
    return trace_call(signature, _typed_call(signature, args, kwargs), bounds)


def trace_call(signature: Signature, call: Call, bounds: Mapping[str, tuple[int, int]] | None = None) -> TraceResult:
    """Trace a function for one call of it."""
    b = Builder(frozenset(map(identifier, call.paths)))
    params = _parameters(b, call)
    _set_bounds(b, bounds or {}, params)
    stand_ins = [_stand_in(b, p) for p in params]
    with tracing(b):
        args, kwargs = _arguments(signature, call, stand_ins)
        return _Finish(b, params, stand_ins).result(_run(signature.fn, args, kwargs))


def _run(fn: Callable, args: tuple, kwargs: dict) -> object:
    """Call the user's function.  NumPy hides our errors behind its own when it looks into a traced value: show ours."""
    try:
        return fn(*args, **kwargs)
    except (TypeError, ValueError) as e:
        if not isinstance(e, CompileError) and isinstance(e.__cause__, CompileError):
            raise UnsupportedError(
                "a traced value cannot be written into an ordinary NumPy array", FILL, e.__cause__.where
            ) from None
        raise


def _typed_call(signature: Signature, args: tuple, kwargs: dict) -> Call:
    """A call of which only types are known."""
    found = signature.inspected.bind(*args, **kwargs)
    found.apply_defaults()
    call = Call((), (), (), (), (), {}, {}, (), ())
    arrays, leaves, declared, paths = [], [], [], []
    for name, value in found.arguments.items():
        if name in signature.static:
            call.static[name] = value
            continue
        parts, call.trees[name] = trees.flatten(value, lambda v: isinstance(v, Tensor | DType))
        for path, part in zip(call.trees[name].paths(name), parts, strict=True):
            type_ = Tensor(part.name, ()) if isinstance(part, DType) else part
            if isinstance(type_, Tensor):
                if type_.shape is None:
                    raise ArgumentError(
                        f"{path}: the rank of {type_} must be known", 'write one size for each axis: f32["n", "m"]'
                    )
                arrays.append(None)
                leaves.append(Leaf(type_.dtype, len(type_.shape), None))
                declared.append(type_)
            elif isinstance(part, STATIC_TYPES):
                call.static[path] = part
                continue
            else:
                array, leaf = as_argument(part, path, None)
                arrays.append(array)
                leaves.append(leaf)
                declared.append(None)
            paths.append(path)
    call.arrays, call.leaves, call.declared, call.paths = tuple(arrays), tuple(leaves), tuple(declared), tuple(paths)
    return call


def _parameters(b: Builder, call: Call) -> list[Parameter]:
    """One parameter for each array: declared sizes, fresh ones for the rest; weights have the sizes they have."""
    for type_ in call.declared:
        for name in sorted(symbols(type_)) if type_ is not None else ():
            if not is_name(name):
                raise ArgumentError(f"a size cannot be called {name!r}", "choose a name that Python could give to a variable")
            b.facts.taken.add(name)
            b.user_sizes.setdefault(name, symbol(name))
            b.unique(name)
    params = []
    for array, leaf, type_, path in zip(call.arrays, call.leaves, call.declared, call.paths, strict=False):
        shape = (_declared_shape if type_ is not None else _fresh_shape)(b, type_, None if array is None else array.shape, leaf)
        params.append(Parameter(path, b.unique(identifier(path)), Tensor(leaf.dtype, shape), leaf.python))
    _check_declared(call, params)
    for array, path in zip(call.weights, call.paths[len(call.arrays) :], strict=True):
        params.append(
            Parameter(
                path, b.unique(identifier(path)), Tensor(as_argument(array, path, None)[1].dtype, array.shape), None, bound=True
            )
        )
    return params


def _declared_shape(b: Builder, type_: Tensor, sizes: tuple[int, ...] | None, leaf: Leaf) -> tuple[Dim, ...]:
    shape = []
    for axis, d in enumerate(type_.shape):
        hint = None if sizes is None or axis >= len(sizes) else sizes[axis]
        if d is None:
            d = b.facts.new(hint)
            b.facts.declared.add(str(d))
        elif isinstance(d, DimExpr):
            for name in names(d):
                b.facts.declare(name, hint if d == symbol(name) and name not in b.facts.hints else None)
        shape.append(d)
    return tuple(shape)


def _fresh_shape(b: Builder, type_: None, sizes: tuple[int, ...], leaf: Leaf) -> tuple[Dim, ...]:
    return tuple(b.facts.new(n) for n in sizes)


def _check_declared(call: Call, params: list[Parameter]) -> None:
    """The arrays must fit the declarations.  Raises ShapeError, naming the argument and the axis."""
    known = [i for i, a in enumerate(call.arrays) if a is not None and call.declared[i] is not None]
    standing = {str(d) for p in params for d in p.type.shape if isinstance(d, DimExpr)}
    for p in params:
        for name in sorted(symbols(p.type) - standing):
            raise ArgumentError(
                f"{p.path}: the size {name} of {p.type} stands alone in no argument's shape, so a call cannot tell what it is"
            )
    chosen = Function("main", tuple(Var(params[i].path, params[i].type) for i in known), (), Const(0, "i64"))
    arrays = [call.arrays[i] for i in known]
    if len(known) == sum(d is not None for d in call.declared) and sizes_of(chosen, arrays) is None:
        raise explain_mismatch(chosen, arrays)


def _set_bounds(b: Builder, bounds: Mapping[str, tuple[int, int]], params: list[Parameter]) -> None:
    for name, (low, high) in bounds.items():
        if name not in b.facts.declared:
            raise ArgumentError(f"bounds: no argument declares a size {name!r}", 'annotate it: def f(x: f32["n", 4])')
        hint = b.facts.hints.get(name)
        if hint is not None and not low <= hint <= high:
            raise ShapeError(
                f"the size {name} is {hint}, outside its bounds {low} to {high}", "widen bounds= of jit, or pass other arrays"
            )
        b.facts.bound(name, low, high)


def _stand_in(b: Builder, p: Parameter) -> TracedArray:
    x = TracedArray(b, Var(p.name, p.type), weak=p.python)
    if p.bound:
        x.constant = f"the weights {p.path}"
    return x


def _arguments(signature: Signature, call: Call, stand_ins: list[TracedArray]) -> tuple[tuple, dict]:
    """The user's arguments with stand-ins for the arrays."""
    arrays, weights = iter(stand_ins[: len(call.arrays)]), iter(stand_ins[len(call.arrays) :])
    bound = inspect.BoundArguments(signature.inspected, {})
    for name in signature.inspected.parameters:
        if name in signature.static:
            bound.arguments[name] = call.static[name]
        elif name in call.trees:
            source, tree = (weights if name in signature.constants else arrays), call.trees[name]
            bound.arguments[name] = tree.unflatten(
                [call.static[p] if p in call.static else next(source) for p in tree.paths(name)]
            )
    return bound.args, bound.kwargs


class _Finish:
    """Makes the module once the user's function has returned."""

    def __init__(self, b: Builder, params: list[Parameter], stand_ins: list[TracedArray]):
        self.b, self.params, self.stand_ins = b, params, stand_ins
        self.outputs: list[Atom] = []
        self.vars = {p.name: i for i, p in enumerate(params)}

    def result(self, value: object) -> TraceResult:
        """The trace's result for what the user's function returned."""
        leaves, out_tree = trees.flatten(value, lambda v: isinstance(v, TracedArray | Size))
        changed = {i: x for i, x in enumerate(self.stand_ins) if x.changed}
        results = tuple(self._leaf(leaf, changed) for leaf in leaves)
        mutations = tuple((i, self._output(x.atom)) for i, x in changed.items())
        module, facts = self._module()
        return TraceResult(
            module,
            tuple(
                replace(p, type=v.type)
                for p, v in zip(self.params, (*module.functions[0].params, *module.functions[0].bound), strict=True)
            ),
            out_tree,
            results,
            len(self.outputs),
            mutations,
            tuple(i for i, x in changed.items() if x.reshaped),
            facts,
        )

    def _leaf(self, leaf: object, changed: dict[int, TracedArray]) -> Result:
        if isinstance(leaf, Size):
            leaf = self.b.number(leaf.dim)
        if not isinstance(leaf, TracedArray):
            return Result(value=leaf)
        if leaf.builder is not self.b:
            raise ArgumentError("the result contains an array of another trace")
        for i, x in changed.items():
            if leaf is x:
                return Result(argument=i)
        return Result(self._output(leaf.atom), leaf.weak)

    def _output(self, atom: Atom) -> int:
        if isinstance(atom, Const):
            atom = self.b.op("full", atom, shape=())
        if atom not in self.outputs:
            self.outputs.append(atom)
        return self.outputs.index(atom)

    def _module(self) -> tuple[Module, tuple[Guard, ...]]:
        bindings, final = self.b.finished_bindings()
        facts = self.b.facts
        for p in self.params:
            final[p.name] = Var(p.name, self.b.resolve_type(p.type))
        constants = {c.name: c.var for c in self.b.constants}
        outputs = [final.get(a.name) or constants[a.name] for a in self.outputs]
        made = tuple(v for v in outputs if v.name not in self.vars and v.name not in constants)
        result: Atom = outputs[0] if len(outputs) == 1 else None
        if result is None:
            whole = MakeTuple(tuple(outputs))
            result = Var(self.b.fresh(), Tuple(tuple(v.type for v in outputs)))
            bindings, made = (*bindings, Binding(result, whole)), (result,)
        body = (Dataflow(bindings, made),) if bindings else ()
        own = [final[p.name] for p in self.params]
        guards = _strongest(g for g in map(self._final_guard, facts.guards) if g is not None)
        n = sum(not p.bound for p in self.params)
        main = Function("main", tuple(own[:n]), body, result, tuple(own[n:]), guards)
        module = Module((main,), (), tuple(self.b.constants))
        return _relettered(module, self.b), self._facts_in_words()

    def _final_guard(self, g: Guard) -> Guard | None:
        left, right = self.b.facts.substituted(g.left), self.b.facts.substituted(g.right)
        if isinstance(left, int) and isinstance(right, int):
            return None
        return replace(g, left=left, right=right)

    def _facts_in_words(self) -> tuple[Guard, ...]:
        """The facts with every size as the user knows it: ``x.shape[0]``, or the letter they gave it."""
        homes: dict[str, Dim] = {}
        for p in self.params:
            for axis, d in enumerate(p.type.shape):
                if isinstance(d, DimExpr) and d == symbol(str(d)) and str(d) not in self.b.facts.declared:
                    homes.setdefault(str(d), symbol(f"{p.path}.shape[{axis}]"))
        return tuple(replace(g, left=substitute(g.left, homes), right=substitute(g.right, homes)) for g in self.b.facts.assumed)


def _strongest(guards: Iterable[Guard]) -> tuple[Guard, ...]:
    """Each guard once; of several that compare one size with numbers in one direction, the narrowest."""
    kept: dict[tuple, Guard] = {}
    for g in guards:
        numeric = isinstance(g.right, int) and g.relation[0] in "<>"
        key = (g.relation, g.left) if numeric else (g.relation, g.left, g.right)
        old = kept.get(key)
        if old is None or (numeric and (g.right > old.right) == (g.relation[0] == ">")):
            kept[key] = g
    return tuple(kept.values())


def _relettered(module: Module, b: Builder) -> Module:
    """Fresh sizes renamed ``n, m, k, ...`` in order of appearance: substitutions have left gaps."""
    main = module.functions[0]
    order: dict[str, None] = {}
    for v in (*main.params, *main.bound, *(x.var for x in main.bindings)):
        for d in getattr(v.type, "shape", ()) or ():
            order |= dict.fromkeys(sorted(names(d))) if isinstance(d, DimExpr) else {}
    taken = b.facts.declared | b.facts.taken
    free = (letter for letter in letters() if letter not in taken)
    new = {old: symbol(next(free)) for old in order if old not in b.facts.declared}
    if all(str(v) == k for k, v in new.items()):
        return module
    done: dict[str, Var] = {}

    def var(v: Var) -> Var:
        return done.setdefault(v.name, Var(v.name, substitute_type(v.type, new)))

    def expr(e: Expr) -> Expr:
        e = replace(e, type=substitute_type(e.type, new)) if isinstance(e, MatchCast) else substitute_dims(e, new)
        return e.map_operands(lambda a: var(a) if isinstance(a, Var) else a)

    body = tuple(
        Dataflow(tuple(replace(x, var=var(x.var), value=expr(x.value)) for x in part.bindings), tuple(map(var, part.outputs)))
        for part in main.body
    )
    guards = tuple(replace(g, left=substitute(g.left, new), right=substitute(g.right, new)) for g in main.guards)
    return replace(
        module,
        functions=(
            replace(
                main,
                params=tuple(map(var, main.params)),
                bound=tuple(map(var, main.bound)),
                body=body,
                result=var(main.result),
                guards=guards,
            ),
        ),
    )

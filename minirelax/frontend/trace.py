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
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from minirelax.errors import ArgumentError, CompileError, ShapeError, UnsupportedError
from minirelax.frontend import functions as _functions
from minirelax.frontend import tree as trees
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder, tracing
from minirelax.frontend.facts import letters
from minirelax.frontend.finished import Finished, blocks
from minirelax.frontend.mismatch import checked
from minirelax.frontend.promises import Promises
from minirelax.frontend.signature import (
    STATIC_TYPES,
    Call,
    Leaf,
    Parameter,
    Signature,
    as_argument,
    as_types,
    identifier,
    is_type,
)
from minirelax.frontend.size import Size
from minirelax.frontend.tree import Tree
from minirelax.frontend.ufuncs import FILL
from minirelax.ir.boundary import Known, arguments
from minirelax.ir.dim import Dim, DimExpr, names, substitute, symbol
from minirelax.ir.graph import Atom, Binding, Const, Dataflow, Function, Guard, MatchCast, Module, Var
from minirelax.ir.infer import bound_sizes, mentioned
from minirelax.ir.lattice import bare_name
from minirelax.ir.op import substitute_dims
from minirelax.ir.types import Shape, Tensor, Tuple, as_type, substitute_type, symbols
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

    Types are tensors, ``Shape(ndim=2)``, and tuples, lists and dicts of types.

    Raises CompileError with the user's line for whatever cannot be compiled.
    """
    signature = Signature(fn, static, constants)
    if not any(map(is_type, trees.flatten((args, kwargs), is_type)[0])):
        return trace_call(signature, signature.bind(args, kwargs), bounds)
    return trace_call(signature, _typed_call(signature, args, kwargs), bounds)


def trace_call(signature: Signature, call: Call, bounds: Mapping[str, tuple[int, int]] | None = None) -> TraceResult:
    """Trace a function for one call of it."""
    b = Builder(frozenset(map(identifier, call.paths)))
    params = _parameters(b, call, signature.name)
    _set_bounds(b, bounds or {}, params)
    stand_ins = [_stand_in(b, p) for p in params]
    with tracing(b):
        args, kwargs = _arguments(signature, call, stand_ins)
        found, promises = run_traced(signature.fn, args, kwargs), Promises(b, signature.name, b.user_sizes)
        if signature.returns is not None:
            found = promises.kept(signature.returns, found)
        return _Finish(b, params, stand_ins, promises).result(found)


def run_traced(fn: Callable, args: tuple, kwargs: dict) -> object:
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
    arrays, leaves, declared, paths, weights, weight_paths = [], [], [], [], [], []
    for name, value in found.arguments.items():
        if name in signature.static:
            call.static[name] = value
            continue
        parts, call.trees[name], types_ = _parts(signature, name, value)
        if name in signature.constants:
            weight_paths += call.trees[name].paths(name)
            weights += [as_type(part) if is_type(part) else part for part in parts]
            continue
        for path, part, type_ in zip(call.trees[name].paths(name), parts, types_, strict=True):
            if is_type(part):
                type_ = as_type(part)
                array, leaf = None, _leaf_of(type_, path)
            elif isinstance(part, STATIC_TYPES) and type_ is None:
                call.static[path] = part
                continue
            else:
                array, leaf = as_argument(part, path, type_, signature.name)
            arrays.append(array)
            leaves.append(leaf)
            declared.append(type_)
            paths.append(path)
    call.arrays, call.leaves, call.weights = tuple(arrays), tuple(leaves), tuple(weights)
    call.declared, call.paths = (*declared, *(w for w in weights if is_type(w))), (*paths, *weight_paths)
    return call


def _parts(signature: Signature, name: str, value: object) -> tuple[list, Tree, list]:
    """The leaves of an argument, of which some or all are types, its structure, and what is declared of its values."""
    value = value if (types_ := as_types(value)) is None else types_
    leaves, tree = trees.flatten(value, is_type)
    return (leaves, tree, [None] * len(leaves)) if any(map(is_type, leaves)) else signature.parts(name, value)


def _leaf_of(type_: Tensor | Shape, path: str) -> Leaf:
    if type_.ndim is None:
        hint = "write Shape(ndim=2)" if isinstance(type_, Shape) else 'write one size for each axis: f32["n", "m"]'
        raise ArgumentError(f"{path}: the rank of {type_} must be known", hint)
    if isinstance(type_, Tensor) and type_.dtype is None:
        raise ArgumentError(f"{path}: the dtype of {type_} must be known", 'write f32["n"], say')
    return Leaf(type_.dtype if isinstance(type_, Tensor) else "shape", type_.ndim, None)


def _parameters(b: Builder, call: Call, function: str) -> list[Parameter]:
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
        params.append(Parameter(path, b.unique(identifier(path)), _parameter_type(b, array, leaf, type_), leaf.python))
    _check_declared(call, params, function)
    for weight, path in zip(call.weights, call.paths[len(call.arrays) :], strict=True):
        if is_type(weight):
            type_ = _parameter_type(b, None, _leaf_of(weight, path), weight)
        else:
            type_ = Tensor(as_argument(weight, path, None)[1].dtype, np.shape(weight))
        params.append(Parameter(path, b.unique(identifier(path)), type_, None, bound=True))
    return params


def _parameter_type(b: Builder, array: np.ndarray | None, leaf: Leaf, declared: Tensor | Shape | None) -> Tensor | Shape:
    """The type of an argument: with the declared sizes, and new ones for those that are not declared.

    A size declared to be ``_`` takes no guards, like any declared one; the entries of a ``Shape(ndim=2)`` do.
    """
    if leaf.dtype == "shape":
        entries = tuple(array.tolist()) if array is not None else (None,) * leaf.ndim
        dims = tuple(map(b.facts.new, entries)) if declared.values is None else _declared_sizes(b, declared.values, entries)
        b.facts.entries.update(n for d in dims if isinstance(d, DimExpr) for n in names(d))
        return Shape(dims)
    sizes = array.shape if array is not None else (None,) * leaf.ndim
    if declared is None or declared.shape is None:
        return Tensor(leaf.dtype, tuple(map(b.facts.new, sizes)))
    return Tensor(leaf.dtype, _declared_sizes(b, declared.shape, sizes))


def _declared_sizes(b: Builder, declared: tuple[Dim | None, ...], sizes: tuple[int | None, ...]) -> tuple[Dim, ...]:
    dims = []
    for d, hint in itertools.zip_longest(declared, sizes[: len(declared)]):
        if d is None:
            d = b.facts.new(hint)
            b.facts.declared.add(str(d))
        elif isinstance(d, DimExpr):
            for name in names(d):
                b.facts.declare(name, hint if d == symbol(name) and name not in b.facts.hints else None)
        dims.append(d)
    return tuple(dims)


def _check_declared(call: Call, params: list[Parameter], function: str) -> None:
    """The arrays must fit the declarations.  Raises ShapeError, naming the argument and the axis."""
    known = [i for i, a in enumerate(call.arrays) if a is not None and call.declared[i] is not None]
    standing = frozenset().union(*(bound_sizes(p.type) for p in params))
    for p in params:
        for name in sorted(symbols(p.type) - standing):
            raise ArgumentError(
                f"{p.path}: the size {name} of {p.type} stands alone in no argument's shape, so a call cannot tell what it is"
            )
    if len(known) == sum(d is not None for d in call.declared):
        given = arguments([Var(params[i].path, params[i].type) for i in known], [call.arrays[i] for i in known], function)
        checked(given, Known())


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


def _stand_in(b: Builder, p: Parameter) -> TracedArray | tuple[Size | int, ...]:
    if isinstance(p.type, Shape):
        return tuple(map(b.size, p.type.values))
    x = TracedArray(b, Var(p.name, p.type), weak=p.python)
    if p.bound:
        x.constant = f"the weights {p.path}"
    return x


def _arguments(signature: Signature, call: Call, stand_ins: list[TracedArray | tuple]) -> tuple[tuple, dict]:
    """The user's arguments with stand-ins for the arrays, and tuples of sizes for shapes."""
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

    def __init__(self, b: Builder, params: list[Parameter], stand_ins: list[TracedArray | tuple], promises: Promises):
        self.b, self.params, self.stand_ins, self.promises = b, params, stand_ins, promises
        self.outputs: list[Atom] = []

    def result(self, value: object) -> TraceResult:
        """The trace's result for what the user's function returned."""
        leaves, out_tree = trees.flatten(value, lambda v: isinstance(v, TracedArray | Size))
        changed = {i: x for i, x in enumerate(self.stand_ins) if isinstance(x, TracedArray) and x.changed}
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
        finished = Finished(self.b)
        for p in self.params:
            finished.final[p.name] = Var(p.name, self.b.resolve_type(p.type))
        own = [finished.final[p.name] for p in self.params]
        bindings = finished.bindings(self.b.scope)
        outputs = tuple(map(finished.latest, self.outputs))
        result = outputs[0] if len(outputs) == 1 else finished.packed(outputs, bindings)
        guards = _strongest(g for g in map(self._final_guard, self.b.facts.guards) if g is not None)
        n = sum(not p.bound for p in self.params)
        promised = self.promises.types
        declared = tuple(self.b.resolve_type(promised.get(a, v.type)) for a, v in zip(self.outputs, outputs, strict=True))
        returns = declared[0] if len(outputs) == 1 else Tuple(declared)
        main = Function("main", tuple(own[:n]), blocks(bindings, result), result, tuple(own[n:]), guards)
        main = replace(main, returns=None if returns == result.type else returns)
        functions = _relettered((main, *finished.functions.values()), self.b)
        functions = (*functions, *self.b.parts.functions.values())
        return Module(functions, tuple(self.b.kernels), tuple(self.b.constants)), self._facts_in_words()

    def _final_guard(self, g: Guard) -> Guard | None:
        left, right = self.b.facts.substituted(g.left), self.b.facts.substituted(g.right)
        if isinstance(left, int) and isinstance(right, int):
            return None
        return replace(g, left=left, right=right)

    def _facts_in_words(self) -> tuple[Guard, ...]:
        """The facts with every size as the user knows it: ``x.shape[0]``, or the letter they gave it."""
        homes: dict[str, Dim] = {}
        for p in self.params:
            dims, part = (p.type.values, "") if isinstance(p.type, Shape) else (p.type.shape, ".shape")
            for axis, d in enumerate(dims):
                if (name := bare_name(d)) is not None and name not in self.b.facts.declared:
                    homes.setdefault(name, symbol(f"{p.path}{part}[{axis}]"))
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


def _relettered(functions: tuple[Function, ...], b: Builder) -> tuple[Function, ...]:
    """Fresh sizes renamed ``n, m, k, ...`` in order of appearance: substitutions have left gaps."""
    types = (v.type for f in functions for v in (*f.params, *f.bound, *(x.var for x in f.bindings)))
    order = dict.fromkeys(name for t in types for name in mentioned(t))
    taken = b.facts.declared | b.facts.taken
    free = (letter for letter in letters() if letter not in taken)
    new = {old: symbol(next(free)) for old in order if old not in b.facts.declared}
    if all(str(v) == k for k, v in new.items()):
        return functions
    return tuple(_renamed(f, new) for f in functions)


def _renamed(f: Function, new: dict[str, Dim]) -> Function:
    """The function with its sizes renamed."""
    done: dict[str, Var] = {}

    def var(a: Atom) -> Atom:
        return done.setdefault(a.name, Var(a.name, substitute_type(a.type, new))) if isinstance(a, Var) else a

    def binding(x: Binding) -> Binding:
        e = x.value
        e = replace(e, type=substitute_type(e.type, new)) if isinstance(e, MatchCast) else substitute_dims(e, new)
        return replace(x, var=var(x.var), value=e.map_operands(var))

    def part(p: Dataflow | Binding) -> Dataflow | Binding:
        return Dataflow(tuple(map(binding, p.bindings)), tuple(map(var, p.outputs))) if isinstance(p, Dataflow) else binding(p)

    return replace(
        f,
        params=tuple(map(var, f.params)),
        bound=tuple(map(var, f.bound)),
        body=tuple(map(part, f.body)),
        result=var(f.result),
        guards=tuple(replace(g, left=substitute(g.left, new), right=substitute(g.right, new)) for g in f.guards),
        returns=None if f.returns is None else substitute_type(f.returns, new),
    )

"""The private function that a kept call becomes (see `calls`): the user's function, traced on stand-ins for its parameters.

It has sizes of its own.  What it takes for facts about them is told to the calls, which must see that they hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace

from minirelax.errors import ArgumentError, CompileError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder, tracing
from minirelax.frontend.carries import function_name
from minirelax.frontend.finished import Finished, blocks
from minirelax.frontend.parts import Parts
from minirelax.frontend.promises import Promises
from minirelax.frontend.signature import Signature, identifier, is_type
from minirelax.frontend.size import Size
from minirelax.frontend.trace import run_traced
from minirelax.frontend.tree import Tree, flatten
from minirelax.ir.dim import Dim, names, symbol
from minirelax.ir.graph import Atom, Const, Function, Guard, MakeShape, Var
from minirelax.ir.infer import bound_sizes
from minirelax.ir.types import Shape, Tensor, Tuple, Type, symbols

RECURSION = 'declare sizes and the result, -> f32["n"], and end the recursion with minirelax.cond; or use minirelax.while_loop'


class RunInPlace(Exception):
    """This call cannot be kept: its lines are run where it stands."""


@dataclass(frozen=True)
class Argument:
    """One value that is passed: an array; a shape, which users see as a tuple; or, if `single`, a size."""

    path: str
    value: TracedArray | tuple[Dim, ...]
    declared: Tensor | Shape | None
    given: object  # what the user's code passed
    single: bool = False

    @property
    def sizes(self) -> tuple[Dim, ...]:
        """Its sizes or entries, as the caller knows them."""
        return self.value.dims if isinstance(self.value, TracedArray) else self.value

    @property
    def looks(self) -> tuple:
        """What code can see of it besides its type."""
        x = self.value
        return (x.weak, x.element, bool(x.constant)) if isinstance(x, TracedArray) else (self.single,)


@dataclass(frozen=True)
class Letter:
    """A size of the function: which facts may be taken about it ("free", "declared", or "inner" ones), and what it is now."""

    name: str
    mode: str
    entry: bool  # of a shape that is a value
    hint: int | None


@dataclass(frozen=True)
class Request:
    """What a function is traced for: the types of its parameters, one for each argument, and everything else it depends on."""

    signature: Signature
    arguments: tuple[Argument, ...]
    types: tuple[Tensor | Shape, ...]
    letters: tuple[Letter, ...]
    static: dict[str, object]
    trees: dict[str, Tree]

    @property
    def key(self) -> tuple:
        """Calls with equal keys may have one function."""
        static = tuple((n, type(v), repr(v) if isinstance(v, float | complex) else v) for n, v in self.static.items())
        letters = tuple((v.name, v.mode, v.entry) for v in self.letters)
        return self.signature, self.types, tuple(a.looks for a in self.arguments), tuple(self.trees.items()), static, letters

    @property
    def hidden(self) -> tuple[str, ...]:
        """The letters that no parameter shows by itself."""
        shown = frozenset().union(*map(bound_sizes, self.types))
        return tuple(v.name for v in self.letters if v.name not in shown)

    @property
    def hidden_types(self) -> tuple[Shape, ...]:
        """The type of the parameter for letters that no other one shows, if there are any."""
        return (Shape(tuple(map(symbol, self.hidden))),) if self.hidden else ()


@dataclass(frozen=True)
class Made:
    """How one leaf of the result is made: an output, an argument, a size in the function's letters, or a value known already.

    Of an output, `weak` and `element` are as in `TracedArray`; `single`: it is a shape of which the one entry is meant.
    """

    output: int | None = None
    weak: type | None = None
    element: bool = False
    single: bool = False
    argument: int | None = None
    dim: Dim | None = None
    value: object = None


@dataclass(frozen=True)
class Callee:
    """A function, the facts that it was traced under, and what its outputs are to a call.

    `letters` are the names that a call has for its sizes, where they are others.
    """

    function: Function
    facts: tuple[Guard, ...]
    tree: Tree
    results: tuple[Made, ...]
    mutations: tuple[tuple[int, int], ...]  # (argument, output)
    letters: dict[str, str] | None = None

    def sizes(self, outside: Mapping[str, Dim]) -> dict[str, Dim]:
        """What its sizes are at a call, whose letters stand for `outside`."""
        return dict(outside) if self.letters is None else {own: outside[n] for own, n in self.letters.items()}


def trace_callee(request: Request, parts: Parts) -> tuple[Callee, tuple[Guard, ...]]:
    """Trace a function that is called; gives it with what remains of its facts where its parameters' types are what it made them.

    Raises RunInPlace, the module being as before, if it must be run in place.
    """
    restore, name = parts.saved(), function_name(request.signature.fn, "function")
    tracing_ = _Tracing(request, parts)
    name = tracing_.b.function_name(name)
    parts.functions[name] = Function(name, (), (), Const(0, "i64"))  # stands before the functions inside it
    try:
        with parts.call(request.key, name), tracing(tracing_.b):
            return tracing_.callee(name), tracing_.guards()
    except (CompileError, RunInPlace):
        restore()
        if request.signature in parts.recursive:
            raise
        raise RunInPlace from None


class _Tracing:
    def __init__(self, request: Request, parts: Parts):
        self.request, self.parts = request, parts
        self.b = Builder(frozenset(identifier(a.path) for a in request.arguments), parts)
        for v in request.letters:
            self._declare(v)
        self.params = [Var(self.b.unique(identifier(a.path)), t) for a, t in zip(request.arguments, request.types, strict=True)]
        self.stand_ins = list(map(self._stand_in, request.arguments, self.params))
        self.params += [Var(self.b.unique("s"), t) for t in request.hidden_types]
        self.outputs: list[Var] = []

    def callee(self, name: str) -> Callee:
        """The function, with what calls have to know."""
        signature = self.request.signature
        found = run_traced(signature.fn, *self._user_arguments())
        promises = Promises(self.b, signature.name, self.b.user_sizes)
        if signature.returns is not None:
            found = promises.kept(signature.returns, found)
        leaves, tree = flatten(found, lambda v: isinstance(v, TracedArray | Size))
        self._check_memory([x for x in leaves if isinstance(x, TracedArray)])
        results = tuple(map(self._made, leaves))
        changed = [i for i, x in enumerate(self.stand_ins) if isinstance(x, TracedArray) and x.changed]
        mutations = tuple((i, self._output(self.stand_ins[i].atom)) for i in changed)
        if not self.outputs:
            raise RunInPlace
        return Callee(self._function(name, promises), tuple(self.b.facts.assumed), tree, results, mutations)

    def guards(self) -> tuple[Guard, ...]:
        """The facts that the parameters' types do not say."""
        facts = self.b.facts
        found = (replace(g, left=facts.substituted(g.left), right=facts.substituted(g.right)) for g in facts.guards)
        return tuple(g for g in found if not (isinstance(g.left, int) and isinstance(g.right, int)))

    # ---- parameters

    def _declare(self, v: Letter) -> None:
        facts = self.b.facts
        if v.mode == "free":
            facts.new(v.hint, v.name)
        else:
            facts.declare(v.name, v.hint)
        facts.inner |= {v.name} if v.mode == "inner" else set()
        facts.entries |= {v.name} if v.entry else set()
        self.b.unique(v.name)
        if any(v.name in symbols(a.declared) for a in self.request.arguments if a.declared is not None):
            self.b.user_sizes[v.name] = symbol(v.name)

    def _stand_in(self, a: Argument, param: Var) -> TracedArray | tuple | Size | int:
        if isinstance(param.type, Shape):
            sizes = tuple(map(self.b.size, param.type.values))
            return sizes[0] if a.single else sizes
        x = TracedArray(self.b, param, a.value.weak)
        x.element, x.constant = a.value.element, a.value.constant
        return x

    def _user_arguments(self) -> tuple[tuple, dict]:
        """The arguments of the user's function."""
        request, given = self.request, iter(self.stand_ins)
        bound = inspect.BoundArguments(request.signature.inspected, {})
        for name in request.signature.inspected.parameters:
            if name in request.trees:
                paths = request.trees[name].paths(name)
                leaves = [request.static[p] if p in request.static else next(given) for p in paths]
                bound.arguments[name] = request.trees[name].unflatten(leaves)
            elif name in request.static:
                bound.arguments[name] = request.static[name]
        return bound.args, bound.kwargs

    # ---- results

    def _made(self, leaf: object) -> Made:
        if isinstance(leaf, Size):
            d = self.b.facts.resolve(leaf.dim)
            if names(d) <= {v.name for v in self.request.letters}:
                return Made(dim=d)
            return Made(self._output(self.b.emit(MakeShape((d,)))), single=True)
        if not isinstance(leaf, TracedArray):
            return Made(value=leaf)
        for i, x in enumerate(self.stand_ins):
            if leaf is x:
                return Made(argument=i)
        return Made(self._output(leaf.atom), leaf.weak, leaf.element)

    def _output(self, atom: Atom) -> int:
        if isinstance(atom, Const):
            atom = self.b.op("full", atom, shape=())
        if atom in self.params or any(c.name == atom.name for c in self.b.constants):
            raise RunInPlace  # what goes through unchanged is not what a function is called for
        if atom not in self.outputs:
            self.outputs.append(atom)
        return self.outputs.index(atom)

    def _check_memory(self, results: list[TracedArray]) -> None:
        """Raises RunInPlace where memory is shared in a way that a call does not tell: views among results, writes to views."""
        arguments = [x for x in self.stand_ins if isinstance(x, TracedArray)]
        if any(x.builder is not self.b for x in results) or any(x.changed and x.reshaped for x in arguments):
            raise RunInPlace
        new = [x for x in results if not any(x is a for a in arguments)]
        roots = [id(x.root) for x in (*arguments, *new)]
        if len(set(roots)) < len(roots) or any(x.root._unclear for x in new):
            raise RunInPlace
        passed = [a.given for a in self.request.arguments]
        written = [g for g, x in zip(passed, self.stand_ins, strict=True) if isinstance(x, TracedArray) and x.changed]
        given = [id(g.root) for g in passed if isinstance(g, TracedArray)]
        if written and (len(set(given)) < len(given) or not all(isinstance(g, TracedArray) for g in written)):
            raise RunInPlace

    # ---- the function

    def _function(self, name: str, promises: Promises) -> Function:
        finished = Finished(self.b)
        params = tuple(Var(p.name, self.b.resolve_type(p.type)) for p in self.params)
        finished.final.update({p.name: p for p in params})
        bindings = finished.bindings(self.b.scope)
        outputs = tuple(map(finished.latest, self.outputs))
        result = outputs[0] if len(outputs) == 1 else finished.packed(outputs, bindings)
        types = self._returns(promises, outputs)
        returns = types[0] if len(types) == 1 else Tuple(types)
        returns = None if returns == result.type else returns
        function = Function(name, params, blocks(bindings, result), result, private=True, returns=returns)
        self.parts.functions[name] = function
        self.parts.functions.update(finished.functions)
        return function

    def _returns(self, promises: Promises, outputs: tuple[Var, ...]) -> tuple[Type, ...]:
        if self.request.signature not in self.parts.recursive:
            types = (promises.types.get(a, v.type) for a, v in zip(self.outputs, outputs, strict=True))
            return tuple(map(self.b.resolve_type, types))
        declared = flatten(self.request.signature.returns, is_type)[0]  # calls inside rely on it, and on the sizes being any
        if self.b.facts.assumed or len(declared) != len(outputs):
            raise ArgumentError(f"{self.request.signature.name} calls itself, which its declarations do not allow", RECURSION)
        return tuple(declared)

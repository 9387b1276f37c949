"""A jitted function that another one calls, kept as a call: ``jit(inline=False)``.

It becomes a private function of the module, traced once for all calls with arguments of the same types up to the names of sizes.
Its parameters have the declared types, or the arguments' types in letters of its own.  A letter that no parameter shows by
itself (of two arrays with ``2*n`` and ``3*n`` elements) comes in one more parameter, a `Shape` (Relax, figure 8), and so does a
size that is passed as a number.

What tracing takes for facts about its sizes is true at a call or it is not: every such fact becomes one of the caller's, who
knows it or takes it as a guard; a call for which one does not hold has a function of its own.  Where that cannot be, and
wherever a call would differ from the function's lines run in place (it returns a view of an argument, writes to arguments that
share memory, reads arrays of the function around it), they are run in place.

>>> from minirelax import f32
>>> from minirelax.frontend.trace import trace
>>> double = Signature(lambda x: x + x)
>>> print(trace(lambda x, y: (call(double, (x,), {}), call(double, (y,), {})), f32["n", 4], f32["m", 4]).module)
def main(x: f32[n, 4], y: f32[m, 4]) -> Tuple[f32[n, 4], f32[m, 4]]:
    with dataflow():
        v0: f32[n, 4] = function(x)
        v1: f32[m, 4] = function(y)
        v2: Tuple[f32[n, 4], f32[m, 4]] = (v0, v1)
        output(v2)
    return v2
<BLANKLINE>
@private
def function(x: f32[n, 4]) -> f32[n, 4]:
    with dataflow():
        v0: f32[n, 4] = add(x, x)
        output(v0)
    return v0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from minirelax.errors import UnsupportedError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder
from minirelax.frontend.callees import RECURSION, Argument, Callee, Letter, Made, Request, RunInPlace, trace_callee
from minirelax.frontend.facts import letters
from minirelax.frontend.operands import as_dtype, asarray, builder
from minirelax.frontend.promises import Promises
from minirelax.frontend.signature import Signature, identifier, is_type
from minirelax.frontend.size import Size
from minirelax.frontend.tree import Tree, flatten
from minirelax.ir.dim import Dim, DimExpr, names, substitute, symbol
from minirelax.ir.graph import Atom, CallFunction, Const, Function, Guard, MakeShape, MatchCast, TupleItem, Var
from minirelax.ir.infer import bound_sizes, call_function_type
from minirelax.ir.lattice import bare_name
from minirelax.ir.types import Shape, Tensor, Tuple, Type, substitute_type, symbols


def call(signature: Signature, args: tuple, kwargs: dict) -> object:
    """The result of a jitted function for arguments of which some are traced: a call in the module that is being traced."""
    try:
        return _Call(builder(), signature, args, kwargs).result()
    except RunInPlace:
        return signature.fn(*args, **kwargs)


@dataclass
class Names:
    """The function's letters for the caller's sizes, and back.  They depend on the arguments alone: calls alike have the same."""

    free: Iterator[str]
    inside: dict[Dim, Dim] = field(default_factory=dict)
    outside: dict[str, Dim] = field(default_factory=dict)

    @staticmethod
    def of_arguments(arguments: Sequence[Argument], sizes: Sequence[tuple[Dim, ...]]) -> Names:
        """Letters for arguments with these sizes: declared ones stand for what they find, others come in order."""
        taken = {n for a in arguments for n in (identifier(a.path), *symbols(a.declared or Shape()))}
        found = Names(letter for letter in letters() if letter not in taken)
        for a, own in zip(arguments, sizes, strict=True):
            for d, o in zip(_dims(a.declared), own, strict=False):
                if (letter := bare_name(d)) is not None and letter not in found.outside:
                    found._bind(letter, o)
        dims = dict.fromkeys(d for own in sizes for d in own if isinstance(d, DimExpr))
        for d in dims:  # 2*n is any size to the function, if nothing else depends on n
            if bare_name(d) is None and d not in found.inside and not any(names(d) & names(e) for e in dims if e != d):
                found._bind(next(found.free), d)
        return found

    def type(self, a: Argument, sizes: tuple[Dim, ...]) -> Tensor | Shape:
        """The type of the parameter for an argument: as declared, and in letters where nothing is declared."""
        declared = _dims(a.declared) or (None,) * len(sizes)
        dims = tuple(self._of(o) if d is None else d for d, o in zip(declared, sizes, strict=True))
        return Tensor(a.value.type.dtype, dims) if isinstance(a.value, TracedArray) else Shape(dims)

    def _bind(self, letter: str, d: Dim) -> None:
        self.outside[letter] = d
        if isinstance(d, DimExpr):
            self.inside.setdefault(d, symbol(letter))

    def _of(self, d: Dim) -> Dim:
        if isinstance(d, int) or d in self.inside:
            return self.inside.get(d, d)
        for name in sorted(names(d)):
            if symbol(name) not in self.inside:
                self._bind(next(self.free), symbol(name))
        return substitute(d, {name: self.inside[symbol(name)] for name in names(d)})


class _Call:
    """One call: its arguments, taken apart, and the function that they ask for.

    `outside` is what the letters of the request stand for; `here`, what the sizes of the function do that was found for it.
    """

    def __init__(self, b: Builder, signature: Signature, args: tuple, kwargs: dict):
        self.b, self.signature = b, signature
        self.arguments: list[Argument] = []
        self.static: dict[str, object] = {}
        self.trees: dict[str, Tree] = {}
        for name, value in signature.arguments(args, kwargs).items():
            if name in signature.static:
                self.static[name] = value
            else:
                self._take_apart(name, value)
        self._fit_declared()
        found = Names.of_arguments(self.arguments, self._sizes())
        self.request, self.outside = self._request(found), found.outside
        self.here = self.outside

    def result(self) -> object:
        """What the user's code gets.  Raises RunInPlace if the call cannot be kept."""
        parts, key = self.b.parts, self.request.key
        try:
            running = parts.running.get(key)
        except TypeError:  # a value that cannot be hashed
            raise RunInPlace from None
        if running is not None:
            return self._recursive(running)
        for callee in parts.callees.get(key, ()):
            if self._may_have(callee):
                return self._called(callee)
        callee, guards = trace_callee(self.request, parts)
        parts.callees.setdefault(key, []).append(callee)
        self._keep_under_its_facts(callee, guards)
        if not self._may_have(callee):
            raise RunInPlace
        return self._called(callee)

    # ---- arguments

    def _take_apart(self, name: str, value: object) -> None:
        leaves, self.trees[name], declared = self.signature.parts(name, value)
        for path, leaf, type_ in zip(self.trees[name].paths(name), leaves, declared, strict=True):
            passed = self._passed(leaf, type_)
            if passed is None:
                self.static[path] = leaf
            else:
                self.arguments.append(Argument(path, passed, type_, leaf, type_ is None and isinstance(leaf, Size)))

    def _passed(self, leaf: object, declared: Tensor | Shape | None) -> TracedArray | tuple[Dim, ...] | None:
        """A leaf as an array or the entries of a shape; None for a plain Python value."""
        match declared, leaf:
            case Shape(), tuple() | list():
                return self.b.dims(leaf)
            case None, Size():
                return self.b.dims((leaf,))
            case Tensor(dtype=str() as dtype), bool() | int() | float() | complex() | Size():
                return as_dtype(leaf, dtype)
            case (Tensor(), list() | tuple()) | (_, TracedArray() | np.ndarray() | np.generic()):
                return asarray(leaf)
        return None

    def _fit_declared(self) -> None:
        """See that the arguments have the declared types, by facts, or by a match_cast where only the run shows it."""
        promises = Promises(self.b, self.signature.name, Names.of_arguments(self.arguments, self._sizes()).outside)
        for i, a in enumerate(self.arguments):
            if a.declared is not None:
                self.arguments[i] = replace(a, value=promises.passed(a.declared, a.value, f"argument {a.path}"))

    def _sizes(self) -> list[tuple[Dim, ...]]:
        return [tuple(map(self.b.facts.resolve, a.sizes)) for a in self.arguments]

    def _request(self, found: Names) -> Request:
        types = tuple(map(found.type, self.arguments, self._sizes()))
        values = {n for t in types if isinstance(t, Shape) for n in symbols(t)}
        known = tuple(self._letter(n, d, n in values) for n, d in found.outside.items())
        return Request(self.signature, tuple(self.arguments), types, known, self.static, self.trees)

    def _letter(self, name: str, d: Dim, is_entry: bool) -> Letter:
        """A size of the function: facts may be taken about it if they may be taken about the caller's."""
        used, facts = names(d), self.b.facts
        mode = "inner" if used & facts.inner else "declared" if not used or used & facts.declared else "free"
        return Letter(name, mode, is_entry or bool(used & facts.entries), facts.hint(d))

    # ---- functions and their facts

    def _keep_under_its_facts(self, callee: Callee, guards: tuple[Guard, ...]) -> None:
        """Let calls find the function whose arguments already have the types that its facts have given its parameters."""
        params = [v.type for v in callee.function.params]
        if self.request.hidden or tuple(params) == self.request.types:
            return
        sizes = list(map(_dims, params))
        found = Names.of_arguments(self.arguments, sizes)
        types, own = tuple(map(found.type, self.arguments, sizes)), {v.name: v for v in self.request.letters}
        renamed = {bare_name(d): n for n, d in found.outside.items()}
        if renamed.keys() <= own.keys():
            known = tuple(replace(own[bare_name(d)], name=n) for n, d in found.outside.items())
            key = replace(self.request, types=types, letters=known).key
            self.b.parts.callees.setdefault(key, []).append(replace(callee, facts=guards, letters=renamed))

    def _may_have(self, callee: Callee) -> bool:
        """Are the facts that the function was traced under known for this call, or can they become guards?"""
        here, facts = callee.sizes(self.outside), self.b.facts

        def may_hold(g: Guard) -> bool:
            left, right = (facts.resolve(substitute(d, here)) for d in (g.left, g.right))
            known = facts.known(g.relation, left, right)
            return (facts.truth(g.relation, left, right) and facts.may_assume(left - right, True)) if known is None else known

        return all(map(may_hold, callee.facts))

    def _outside(self, d: Dim) -> Dim:
        """A size of the function's in the caller's."""
        return self.b.facts.resolve(substitute(d, self.here))

    # ---- the call

    def _called(self, callee: Callee) -> object:
        self.here = callee.sizes(self.outside)
        for g in callee.facts:
            self.b.facts.decide(g.relation, self._outside(g.left), self._outside(g.right), declared=True)
        outputs = self._outputs(callee.function)
        for i, k in callee.mutations:
            asarray(self.arguments[i].given).assign(outputs[k])
        return callee.tree.unflatten([self._leaf(made, outputs) for made in callee.results])

    def _outputs(self, function: Function) -> list[Var]:
        """The function's outputs at this call, each with names for its sizes."""
        args = tuple(map(self._argument, self.arguments, function.params))
        if self.request.hidden:
            args = (*args, self.b.emit(MakeShape(tuple(self._outside(symbol(n)) for n in self.request.hidden))))
        type_ = call_function_type(function, tuple(map(self.b.type_of, args)))
        whole, inside = self.b.bind(CallFunction(function.name, args), type_), function.type.result
        inner: dict[str, Dim] = {}
        if not isinstance(type_, Tuple):
            return [self._named(whole, inside, inner)]
        items = [self.b.bind(TupleItem(whole, i), t) for i, t in enumerate(type_.items)]
        return [self._named(v, t, inner) for v, t in zip(items, inside.items, strict=True)]

    def _argument(self, a: Argument, param: Var) -> Atom:
        wanted = self.b.resolve_type(substitute_type(param.type, self.here))
        if not isinstance(a.value, TracedArray):
            return self.b.emit(MakeShape(wanted.values))
        atom = a.value.atom
        return atom if self.b.type_of(atom) == wanted or isinstance(atom, Const) else self.b.emit(MatchCast(atom, wanted))

    def _named(self, value: Var, inside: Type, inner: dict[str, Dim]) -> Var:
        """An output with names for the sizes that only the run tells; `inner` has those that are known by a letter inside."""
        made = _dims(inside)
        given = _dims(value.type) or (None,) * len(made)
        if None not in given:
            return value
        inner |= {n: self.b.inner_size() for n in sorted(bound_sizes(inside) - self.here.keys() - inner.keys())}
        dims = tuple(self.b.facts.resolve(self._size(i, inner) if d is None else d) for d, i in zip(given, made, strict=True))
        return self.b.emit(MatchCast(value, Shape(dims) if isinstance(inside, Shape) else Tensor(value.type.dtype, dims)))

    def _size(self, d: Dim | None, inner: Mapping[str, Dim]) -> Dim:
        known = self.here | inner
        return self.b.inner_size() if d is None or not names(d) <= known.keys() else substitute(d, known)

    def _leaf(self, made: Made, outputs: list[Var]) -> object:
        if made.argument is not None:
            return self.arguments[made.argument].given
        if made.dim is not None:
            return self.b.size(self._outside(made.dim))
        if made.output is None:
            return made.value
        if made.single:
            return self.b.size(outputs[made.output].type.values[0])
        x = TracedArray(self.b, outputs[made.output], made.weak)
        return x.as_element() if made.element else x

    def _recursive(self, name: str) -> object:
        """A call of the function that is being traced: what it returns, only its declaration can say."""
        parts, returns = self.b.parts, self.signature.returns
        parts.recursive.add(self.signature)
        leaves, tree = flatten(returns, is_type)
        if not leaves or not all(isinstance(t, Tensor) and t.dtype and t.shape is not None for t in leaves):
            raise UnsupportedError(f"{self.signature.name} calls itself, and does not declare what it returns", RECURSION)
        params = tuple(Var(f"p{i}", t) for i, t in enumerate((*self.request.types, *self.request.hidden_types)))
        result = Var("r", leaves[0] if len(leaves) == 1 else Tuple(tuple(leaves)))
        parts.functions[name] = Function(name, params, (), result, private=True)
        return tree.unflatten([TracedArray(self.b, v) for v in self._outputs(parts.functions[name])])


def _dims(type_: Tensor | Shape | None) -> tuple[Dim | None, ...]:
    """The sizes of an array's type, or the entries of a shape's, as far as the type says them."""
    match type_:
        case Tensor(shape=tuple() as dims) | Shape(values=tuple() as dims):
            return dims
    return ()

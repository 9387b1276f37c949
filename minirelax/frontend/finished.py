"""From what a trace has collected to functions of a module: every binding under the final facts, scopes as private functions.

A region's function takes what the region captures under its own names, then one `Shape` with the sizes that it mentions and
none of its parameters shows (Relax, figure 8), then the values that are carried through a loop, and slices.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from minirelax.errors import ShapeError, VerifyError
from minirelax.frontend.builder import Builder
from minirelax.frontend.scope import Region, Scope
from minirelax.ir.dim import symbol
from minirelax.ir.graph import (
    Atom,
    Binding,
    CallFunction,
    CallKernel,
    Cond,
    Const,
    Dataflow,
    Expr,
    Function,
    MakeShape,
    MakeTuple,
    MatchCast,
    Module,
    Scan,
    Source,
    TupleItem,
    Var,
    While,
    called_functions,
)
from minirelax.ir.infer import bound_sizes, call_function_type, infer_binding, mentioned
from minirelax.ir.op import Op, map_dims
from minirelax.ir.types import Shape, Tensor, Tuple, Type

CONTROL = Cond | While | Scan


class Finished:
    """The private functions made so far (by name, outer ones first), and every variable's final form."""

    def __init__(self, b: Builder):
        self.b = b
        self.final: dict[str, Var] = {}
        self.functions: dict[str, Function] = {}

    def bindings(self, scope: Scope) -> list[Binding]:
        """All bindings of a scope as they read under the final facts."""
        done: list[Binding] = []
        for binding, seen in zip(scope.bindings, scope.seen, strict=True):
            expr = self.b.resolved(binding.value).map_operands(self.latest)
            if isinstance(expr, CONTROL):
                expr = self._control(expr, [scope.regions[n] for n in called_functions(expr)], done, binding.source)
            try:
                type_ = self._type(expr, binding.var)
            except (ShapeError, VerifyError):
                expr = self._as_seen(binding, seen, done)
                type_ = self._type(expr, binding.var)
            self.final[binding.var.name] = Var(binding.var.name, type_)
            done.append(replace(binding, var=self.final[binding.var.name], value=expr))
        return done

    def latest(self, atom: Atom) -> Atom:
        """A value with its final type."""
        if isinstance(atom, Const):
            return atom
        return self.final.get(atom.name) or replace(atom, type=self.b.resolve_type(atom.type))

    def packed(self, results: tuple[Atom, ...], bindings: list[Binding]) -> Var:
        """The results as one tuple, whose binding is added."""
        bindings.append(Binding(Var(self.b.fresh(), Tuple(tuple(a.type for a in results))), MakeTuple(results)))
        return bindings[-1].var

    def _type(self, expr: Expr, var: Var) -> Type:
        match expr:
            case Op():
                type_ = expr.infer(*(a.type for a in expr.operands()))
                return Tuple(type_) if isinstance(type_, tuple) else type_
            case Cond() | While() | Scan():
                return infer_binding(expr, Module(tuple(self.functions[n] for n in called_functions(expr))))
            case CallFunction(function=name, args=args):
                return call_function_type(self.b.parts.functions[name], tuple(a.type for a in args))
            case CallKernel():
                return infer_binding(expr, Module((), tuple(self.b.kernels)))
            case TupleItem(value=Var(type=Tuple(items=items)), index=index):
                return items[index]
        return self.b.resolve_type(var.type)

    def _control(self, expr: CONTROL, regions: list[Region], done: list[Binding], source: Source | None) -> CONTROL:
        """Control flow with the functions of its regions made; a shape value for them is bound before it."""
        self.functions.update(dict.fromkeys(r.name for r in regions))  # a function stands before those inside it
        made = [self._function(r, expr.args) for r in regions]
        hidden = tuple(dict.fromkeys(n for r, f in zip(regions, made, strict=True) for n in _hidden_sizes(f, r.scope)))
        if hidden:
            sizes = Var(self.b.unique("s"), Shape(tuple(map(symbol, hidden))))
            done.append(Binding(sizes, MakeShape(sizes.type.values), source))
            count = len(expr.args)
            made = [replace(f, params=(*f.params[:count], sizes, *f.params[count:])) for f in made]
            expr = replace(expr, args=(*expr.args, sizes))
        self.functions.update({f.name: f for f in made})
        return expr

    def _function(self, region: Region, args: tuple[Atom, ...]) -> Function:
        own = tuple(Var(v.name, self.b.resolve_type(v.type)) for v in region.own)
        self.final.update({v.name: v for v in own})
        bindings = self.bindings(region.scope)
        results = tuple(self._promised(a, bindings) for a in region.results)
        result = self.packed(results, bindings) if region.packed or len(results) != 1 else results[0]
        return Function(region.name, (*args, *own), blocks(bindings, result), result, private=True)

    def _promised(self, atom: Atom, bindings: list[Binding]) -> Atom:
        """A result with the type that it had when its region was traced: facts taken since may spell its sizes differently."""
        found, wanted = self.latest(atom), self.b.resolve_type(atom.type)
        if found.type == wanted:
            return found
        bindings.append(Binding(Var(self.b.fresh(), wanted), MatchCast(found, wanted)))
        return bindings[-1].var

    def _as_seen(self, b: Binding, seen: tuple[Type, ...], done: list[Binding]) -> Expr:
        """The expression on operands with the sizes that they had when it was made, which fitted.

        Facts taken since may simplify two expressions of one size differently; a match_cast makes them one again.
        """
        types = {a: t for a, t in zip(b.value.operands(), seen, strict=True) if isinstance(t, Tensor)}
        substituted = self.b.facts.substituted

        def cast(atom: Atom) -> Atom:
            if atom not in types or isinstance(atom, Const):
                return self.latest(atom)
            var = Var(self.b.fresh(), Tensor(types[atom].dtype, tuple(map(substituted, types[atom].shape))))
            done.append(Binding(var, MatchCast(self.latest(atom), var.type), b.source))
            return var

        return map_dims(b.value, substituted).map_operands(cast)


def blocks(bindings: Iterable[Binding], result: Atom) -> tuple[Dataflow | Binding, ...]:
    """Bindings as dataflow blocks with control flow between them; a block's outputs are what is read after it.

    >>> from minirelax.ir.types import f32
    >>> x, y, z = (Var(name, f32[()]) for name in "xyz")
    >>> cond = Binding(z, Cond(Const(True, "bool"), "f", "g", (y,)))
    >>> [type(p).__name__ for p in blocks([Binding(x, MakeTuple(())), Binding(y, MakeTuple((x,))), cond], z)]
    ['Dataflow', 'Binding']
    >>> blocks([Binding(x, MakeTuple(())), Binding(y, MakeTuple((x,))), cond], z)[0].outputs
    (Var(name='y', type=f32[()]),)
    """
    parts: list[Binding | list[Binding]] = []
    for binding in bindings:
        if isinstance(binding.value, CONTROL):
            parts.append(binding)
        elif parts and isinstance(parts[-1], list):
            parts[-1].append(binding)
        else:
            parts.append([binding])
    read, body = {result}, []
    for part in reversed(parts):
        inside = part if isinstance(part, list) else [part]
        if isinstance(part, list):
            body.append(Dataflow(tuple(part), tuple(b.var for b in part if b.var in read)))
        else:
            body.append(part)
        read.update(a for b in inside for a in b.value.operands())
    return tuple(reversed(body))


def _hidden_sizes(function: Function, scope: Scope) -> list[str]:
    """The sizes from outside that a region's function mentions and that none of its parameters shows by a bare name."""
    shown = frozenset().union(*(bound_sizes(p.type) for p in function.params))
    things = [p.type for p in function.params]
    things += [t for b in function.bindings for t in (*b.value.attributes().values(), b.var.type)]
    return [n for n in dict.fromkeys(n for t in things for n in mentioned(t)) if n not in shown and n not in scope.sizes]

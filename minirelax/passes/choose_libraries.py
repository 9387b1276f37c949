"""Hand regions of ops to library routines, by rules; everything else flows on (partial lowering, Relax section 4.6).

A rule is a pattern of ops and the routine that computes it.  Rules with a higher priority choose first, then those that were
given first; a rule looks at every binding as the end of a match, from last to first, so that it finds the largest region. A
match is taken if nothing else reads the values inside of it, neither other bindings nor the routine, and the rule's `check`
agrees.  The region becomes one call of the routine, at the place of its last binding, with that binding's type: so it reads and
gives what the region did, and whether the routine computes the same is up to whoever wrote the rule (`minirelax.validate`
compares).

A rule may have a condition on sizes (`when`): where it is not decided by what is known now, the program has both ways, and each
call takes one (`choose_by_size`).  Nothing is fused across that choice.  With ``cost="measured"`` the condition is that the
routine is the faster way on this machine (`library_cost`).

>>> import numpy as np
>>> from minirelax.ir.parser import parse
>>> from minirelax.ops.arithmetic import Maximum
>>> from minirelax.ops.linalg import Matmul
>>> @library_rule(lambda x, w: Maximum(Matmul(x, w), 0))
... def matmul_relu(x, w, out):
...     np.maximum(x @ w, 0, out=out)
>>> before = parse('''
... def main(x: f32[n, 4], w: f32[4, 8]) -> f32[n, 8]:
...     with dataflow():
...         v0: f32[n, 8] = matmul(x, w)
...         v1: f32[n, 8] = maximum(v0, 0.0)
...         v2: f32[n, 8] = exp(v1)
...         output(v2)
...     return v2''')
>>> step = choose_libraries((matmul_relu,))
>>> print(step(before))
def main(x: f32[n, 4], w: f32[4, 8]) -> f32[n, 8]:
    with dataflow():
        v1: f32[n, 8] = call_library("matmul_relu", x, w)
        v2: f32[n, 8] = exp(v1)
        output(v2)
    return v2
>>> step.notes
('matmul_relu: taken at v1',)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from minirelax.errors import ArgumentError, CompileError, RunError
from minirelax.ir.dim import Dim, DimExpr
from minirelax.ir.graph import (
    Binding,
    CallLibrary,
    Const,
    Dataflow,
    Function,
    Module,
    Var,
    fresh_names,
    joined,
    named_source,
)
from minirelax.ir.library import makes_room, register_library, routine
from minirelax.ir.op import OPS
from minirelax.passes.base import BIND, Noted
from minirelax.passes.choose_by_size import RELATIONS, Branches, Comparison, cut
from minirelax.passes.library_cost import Costs, faster
from minirelax.passes.patterns import DefUse, Match, Pattern, blaming

SHOWN = 4  # places that a note names

Chosen = dict[Var, tuple["LibraryRule", Match]]


@dataclass(frozen=True)
class LibraryRule:
    """`pattern` is computed by the registered `routine` (called like the rule, by default), wherever `check` of a match holds.

    `arguments` of a match are what the routine reads: by default, what the pattern's variables stand for, in order, without
    attributes.  `sizes` of a match are integers or sizes to pass after the outputs.  `when` of a match is true or false, or
    compares two sizes: ``when=lambda match: (match["x"].type.shape[0], ">", 8)`` calls the routine for more than eight rows.  Of
    several rules for one place, the one with the higher `priority` is taken, else the first.  ``cost="measured"``, in place of
    `when`, has the routine called where it is faster than generated code: it is measured, on random arrays, once per machine.

    Raises ArgumentError for what is no rule.
    """

    name: str
    pattern: Callable | tuple[Callable, ...]
    check: Callable[[Match], bool] | None = None
    routine: str = ""
    priority: float = 0
    arguments: Callable[[Match], Sequence] | None = None
    sizes: Callable[[Match], Sequence] | None = None
    when: Callable[[Match], bool | tuple[Dim, str, Dim]] | None = None
    cost: str | None = None
    compiled: Pattern = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        check_name(self.name)
        object.__setattr__(self, "routine", self.routine or self.name)
        if not isinstance(self.routine, str) or self.routine in OPS:
            what = f"rule {self.name}: routine={self.routine!r} is not the name of a registered routine"
            raise ArgumentError(what, "minirelax.register_library('my_routine', function)")
        for part in ("check", "arguments", "sizes", "when"):
            if getattr(self, part) is not None and not callable(getattr(self, part)):
                raise ArgumentError(f"rule {self.name}: {part} is no function", f"{part}=lambda match: ...")
        if self.cost not in (None, "measured") or self.cost and self.when:
            raise ArgumentError(f"rule {self.name}: cost={self.cost!r}", "cost='measured', and then no `when`")
        object.__setattr__(self, "compiled", Pattern.of(self.name, self.pattern))


def library_rule(
    pattern: Callable | tuple[Callable, ...], workspace: Callable | None = None, **options: object
) -> Callable[[Callable], LibraryRule]:
    """Decorator: registers the decorated function as a routine under its name, and makes the rule that uses it.

    `workspace` is that of `register_library`; `options` are `check`, `priority`, `arguments`, `sizes`, `when` and `cost` of
    LibraryRule.
    """

    def decorate(function: Callable) -> LibraryRule:
        rule = LibraryRule(function.__name__, pattern, **options)
        register_library(rule.routine, function, workspace)
        return rule

    return decorate


def choose_libraries(rules: Sequence[LibraryRule], costs: Costs | None = None) -> Noted:
    """The pass for these rules; `costs` of this machine are asked by rules whose cost is measured.

    Raises ArgumentError for what is no rule, for two rules of one name, and for a rule whose cost is measured without `costs`.

    The pass raises CompileError, naming the rule, the binding and the user's line, if a function of a rule raises, or gives what
    cannot be passed, and naming the rule, if its routine is not registered.
    """
    check_rules(rules, LibraryRule, "library_rule")
    for r in rules:
        if r.cost and costs is None:
            raise ArgumentError(f"rule {r.name}: its cost is measured, but no costs of this machine are given")
    ordered = sorted(rules, key=lambda r: -r.priority)  # stable

    def run(module: Module) -> tuple[Module, tuple[str, ...]]:
        for r in ordered:
            _check_routine(r)
        branches, decided = Branches(module), {}

        def decide(rule: LibraryRule, match: Match) -> str:
            call = _call(rule, match)
            inner = {b.var for b in match.bindings}
            if kept := [a.name for a in call.value.args if a in inner]:
                return f"{', '.join(kept)} is inside, and passed to the routine"
            decided[match.root.var] = call, _condition(rule, match, call, module, costs)
            return "" if decided[match.root.var][1] else "the routine is slower" if rule.cost else "its condition never holds"

        def with_calls(block: Dataflow, chosen: Chosen, function: Function) -> tuple[Dataflow | Binding, ...]:
            return _with_calls(block, chosen, decided, branches, fresh_names(function, module))

        regions = Regions(ordered, decide)

        functions = tuple(f if f.name == BIND else regions.replaced(f, module, with_calls) for f in module.functions)
        if functions == module.functions:
            return module, regions.notes()
        return replace(module, functions=(*functions, *branches.functions)), regions.notes()

    return Noted("choose_libraries", run)


def _check_routine(rule: LibraryRule) -> None:
    try:
        routine(rule.routine)
    except RunError as e:
        raise CompileError(f"rule {rule.name}: {e.what}", e.hint, "") from None


def _with_calls(
    block: Dataflow, chosen: Chosen, decided: dict[Var, tuple], branches: Branches, names: Iterator[str]
) -> tuple[Dataflow | Binding, ...]:
    """The parts of the body that a block becomes."""
    inner = {b.var for _, m in chosen.values() for b in m.bindings} - chosen.keys()
    out: list[Binding] = []
    for b in block.bindings:
        if b.var in chosen:
            (rule, match), (call, condition) = chosen[b.var], decided[b.var]
            ways = ((f"{rule.name}_library", (call,)), (f"{rule.name}_generated", match.bindings))
            out += [call] if condition is True else branches.choice(b, condition, ways, names)
        elif b.var not in inner:
            out.append(b)
    return cut(out, block.outputs)


def _condition(rule: LibraryRule, match: Match, call: Binding, module: Module, costs: Costs | None) -> bool | Comparison:
    """When the rule's routine is called: always, never, or if a comparison holds."""
    if rule.cost:
        with blaming(rule.name, "cost", match.root):
            return faster(match, call.value, module, costs)
    if rule.when is None:
        return True
    with blaming(rule.name, "when", match.root):
        match rule.when(match):
            case bool() as known:
                return known
            case (int() | DimExpr() as left, str() as relation, int() | DimExpr() as right) if relation in RELATIONS:
                found = Comparison(left, relation, right)
                return found if found.decided is None else found.decided
            case other:
                raise TypeError(f"{other!r} is no condition, such as (match['x'].type.shape[0], '>', 8)")


def _call(rule: LibraryRule, match: Match) -> Binding:
    arguments, sizes = match.atoms, ()
    if rule.arguments is not None:
        with blaming(rule.name, "arguments", match.root):
            arguments = tuple(rule.arguments(match))
            for a in arguments:
                if not isinstance(a, Const) and a not in match.atoms:
                    raise TypeError(f"{a} is not what a variable of the pattern stands for")
    if rule.sizes is not None:
        with blaming(rule.name, "sizes", match.root):
            sizes = tuple(rule.sizes(match))
            for s in sizes:
                if not isinstance(s, int | DimExpr) or isinstance(s, bool):
                    raise TypeError(f"{s!r} is not a size")
    call = CallLibrary(rule.routine, arguments, (), sizes)
    return replace(match.root, value=call, source=joined(map(named_source, match.bindings)))


class Regions:
    """What rules choose in the functions of one module, and why they did not choose more."""

    def __init__(self, rules: Sequence, decide: Callable[[object, Match], str] = lambda rule, match: ""):
        self.rules, self.decide = rules, decide  # decide: why a region is not taken, empty if it is
        self.taken: dict[str, list[str]] = {r.name: [] for r in rules}
        self.refused: dict[str, list[str]] = {r.name: [] for r in rules}

    def replaced(self, function: Function, module: Module, change: Callable) -> Function:
        """`function` with the parts ``change(block, chosen, function)`` for each block in which rules choose."""
        uses = DefUse(function, module)
        body = []
        for part in function.body:
            chosen = self._chosen(part, uses) if isinstance(part, Dataflow) else {}
            body += change(part, chosen, function) if chosen else (part,)
        return replace(function, body=tuple(body))

    def _chosen(self, block: Dataflow, uses: DefUse) -> Chosen:
        """The regions of a block, by the variables of their last bindings."""
        free, chosen = {b.var: b.value for b in block.bindings if b.var is not None}, {}
        for rule in self.rules:
            for root in reversed(block.bindings):
                found = uses.match(rule.compiled, root, free) if root.var in free else None
                if found is not None and self._agrees(rule, found):
                    chosen[root.var] = rule, found
                    self.taken[rule.name].append(root.var.name)
                    for b in found.bindings:
                        del free[b.var]
        return chosen

    def _agrees(self, rule, match: Match) -> bool:
        where, refused = match.root.var.name, self.refused[rule.name]
        if match.escaping:
            refused.append(f"{where}: {', '.join(v.name for v in match.escaping)} is read elsewhere, too")
            return False
        if isinstance(rule, LibraryRule) and not makes_room(match.root.var.type):
            refused.append(f"{where}: nobody knows its size before the call")
            return False
        if rule.check is not None:
            with blaming(rule.name, "check", match.root):
                if not rule.check(match):
                    refused.append(f"{where}: its check declined")
                    return False
        if why := self.decide(rule, match):
            refused.append(f"{where}: {why}")
        return not why

    def notes(self) -> tuple[str, ...]:
        """A line for each rule: where it was taken, where it was not and why, or that its pattern never matched."""
        return tuple(self._note(r.name) for r in self.rules)

    def _note(self, name: str) -> str:
        taken, refused = self.taken[name], self.refused[name]
        if not taken and not refused:
            return f"{name}: its pattern never matched"
        parts = [f"taken at {_some(taken, ', ')}"] if taken else []
        return f"{name}: " + "; ".join([*parts, *([f"not at {_some(refused, '; not at ')}"] if refused else [])])


def _some(places: list[str], between: str) -> str:
    more = len(places) - SHOWN
    return between.join(places[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def check_name(name: object) -> None:
    """Raises ArgumentError for what does not name a rule."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(f"the name of a rule is an identifier, not {name!r}", "LibraryRule('my_routine', lambda x: ...)")


def check_rules(rules: Sequence, kind: type, maker: str) -> None:
    """Raises ArgumentError for what is no rule of this kind, or two rules of one name."""
    names = set()
    for r in rules:
        if not isinstance(r, kind):
            raise ArgumentError(f"not a {kind.__name__}: {r!r}", f"make it with minirelax.{maker}")
        if r.name in names:
            raise ArgumentError(f"two rules are called {r.name}", "one rule can have several patterns: a tuple of functions")
        names.add(r.name)

"""Group ops by rules of a user's; each group becomes a private function, and one kernel if `fuse_kernels` can make one of it.

`fuse_ops` groups what surely saves memory traffic; whoever knows more about a program, that all of an attention is one thing,
say, groups by a pattern before it.  How rules choose is said in `choose_libraries`: the regions are found alike, and a group
computes with the same ops on the same values, at the place of its last binding, so that nothing changes but where they are
written.  Sizes that no parameter shows reach the function as in `fuse_ops`.

A group that holds a call of a library, a sort say, is no kernel: its function is called, and a note says so.

>>> from minirelax.ir.parser import parse
>>> from minirelax.ops.arithmetic import Add, Multiply
>>> before = parse('''
... def main(x: f32[n], y: f32[n]) -> f32[n]:
...     with dataflow():
...         v0: f32[n] = multiply(x, 2.0)
...         v1: f32[n] = add(v0, y)
...         output(v1)
...     return v1''')
>>> print(group_patterns((GroupRule("scaled_sum", lambda x, y, c: Add(Multiply(x, c), y)),))(before))
def main(x: f32[n], y: f32[n]) -> f32[n]:
    with dataflow():
        v1: f32[n] = fused_scaled_sum(x, y)
        output(v1)
    return v1
<BLANKLINE>
@group
def fused_scaled_sum(x: f32[n], y: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[n] = multiply(x, 2.0)
        v1: f32[n] = add(v0, y)
        output(v1)
    return v1
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from minirelax.errors import ArgumentError
from minirelax.ir.graph import Binding, Dataflow, Function, Module, Var, fresh_names
from minirelax.passes.base import BIND, Noted
from minirelax.passes.choose_libraries import Regions, check_name, check_rules
from minirelax.passes.group_functions import GroupFunctions
from minirelax.passes.patterns import Match, Pattern


@dataclass(frozen=True)
class GroupRule:
    """What matches `pattern` becomes one group, wherever `check` of a match holds; rules are tried by `priority`, then in order.

    Raises ArgumentError for what is no rule.
    """

    name: str
    pattern: Callable | tuple[Callable, ...]
    check: Callable[[Match], bool] | None = None
    priority: float = 0
    compiled: Pattern = field(init=False, repr=False, compare=False)

    def __post_init__(self):
        check_name(self.name)
        if self.check is not None and not callable(self.check):
            raise ArgumentError(f"rule {self.name}: check is no function", "check=lambda match: ...")
        object.__setattr__(self, "compiled", Pattern.of(self.name, self.pattern))


def group_patterns(rules: Sequence[GroupRule]) -> Noted:
    """The pass for these rules.  Raises ArgumentError for what is no rule, or two rules of one name.

    The pass raises CompileError, naming the rule, the binding and the user's line, if a rule's `check` raises.
    """
    check_rules(rules, GroupRule, "GroupRule(name, pattern)")
    ordered = sorted(rules, key=lambda r: -r.priority)  # stable

    def run(module: Module) -> tuple[Module, tuple[str, ...]]:
        regions, made = Regions(ordered), _Groups(module)

        def with_calls(block: Dataflow, chosen: dict[Var, tuple[GroupRule, Match]], function: Function) -> tuple[Dataflow]:
            return (made.grouped(block, chosen, fresh_names(function, module)),)

        functions = tuple(f if f.name == BIND else regions.replaced(f, module, with_calls) for f in module.functions)
        notes = (*regions.notes(), *map(_stays_a_call, made.functions))
        if functions == module.functions:
            return module, notes
        return replace(module, functions=(*functions, *made.functions)), tuple(filter(None, notes))

    return Noted("group_patterns", run)


class _Groups(GroupFunctions):
    """Group functions that are called like the rule that they come from."""

    def __init__(self, module: Module):
        super().__init__(module)
        self.rules: dict[Var, str] = {}

    def name(self, bindings: list[Binding]) -> str:
        return self.rules[bindings[-1].var]

    def grouped(self, block: Dataflow, chosen: dict[Var, tuple[GroupRule, Match]], names) -> Dataflow:
        """The block with each region in the place of its last binding, as a call if it has several."""
        self.rules |= {v: rule.name for v, (rule, _) in chosen.items()}
        number = {b.var: n for n, b in enumerate(block.bindings)}
        inner = {b.var for _, m in chosen.values() for b in m.bindings} - chosen.keys()
        order = [
            [number[b.var] for b in chosen[v][1].bindings] if v in chosen else [n]
            for v, n in number.items()
            if v not in inner
        ]
        return self.regroup(block, order, names)


def _stays_a_call(group: Function) -> str:
    calls = dict.fromkeys(b.value.opname() for b in group.bindings if getattr(b.value, "library", False))
    return f"{group.name} is called, not one kernel: {', '.join(calls)} is a library's" if calls else ""

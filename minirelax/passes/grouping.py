"""The dependences of one dataflow block, and a partition of its bindings into convex groups.

Bindings are known by their number.  A dependence is a value read, or a size that a `match_cast` of the block binds.  A call of a
kernel with several outputs counts with the items that are taken from its tuple as one binding, which makes several values: they
are where the call is, and no reader tells them apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from minirelax.ir.dim import Dim, DimExpr, names, substitute
from minirelax.ir.graph import Atom, Binding, CallKernel, Dataflow, MatchCast, TupleItem, Var
from minirelax.ir.types import Tensor, Tuple, symbols
from minirelax.passes.inline import CHEAP
from minirelax.passes.kernel_facts import Facts, Read

MOST_BUFFERS = 32  # of one kernel: with more, its loops walk along more arrays than the nearest cache has lines for


@dataclass
class Group:
    """Bindings that belong together, in program order, and what they have in common (see `kernel_facts.Facts`).

    `size` is how many values they make: one for each, but for calls with several outputs.
    """

    members: list[int]
    role: str
    domain: tuple[Dim, ...] = ()
    rows: tuple[Dim, ...] = ()
    cost: int = 0
    size: int = 1
    done: bool = field(default=False)

    @property
    def first(self) -> int:
        return self.members[0]

    @property
    def last(self) -> int:
        return self.members[-1]

    @property
    def is_cheap(self) -> bool:
        """May its value be computed again at each use?"""
        return self.cost <= CHEAP


class Groups:
    """Who reads whom, and who is grouped with whom; at first every binding is alone."""

    def __init__(self, block: Dataflow, facts: dict[str, Facts], bound: set[str]):
        items = _items(block)
        taken = {b.var for found in items.values() for b in found}
        self.bindings = tuple(b for b in block.bindings if b.var not in taken)
        self.values = [tuple(i.var for i in items.get(b.var, ())) or (b.var,) for b in self.bindings]
        self.number = {v: n for n, b in enumerate(self.bindings) for v in (b.var, *self.values[n])}
        self.facts = [facts[b.value.kernel] if _is_groupable(b) or b.var in items else None for b in self.bindings]
        self.producers, self.needs = self._dependences(bound)
        self.users: list[set[int]] = [set() for _ in self.bindings]
        for n, needed in enumerate(self.needs):
            for p in needed:
                self.users[p].add(n)
        self.outputs = set(block.outputs)
        for v in block.outputs:
            self.users[self.number[v]].add(len(self.bindings))  # the outside, which comes last
        self.group = [self._alone(n) for n in range(len(self.bindings))]
        self.post_dominator = self._post_dominators()
        places = {b.var: at for at, b in enumerate(block.bindings)}
        self.places = [[places[v] for v in dict.fromkeys((b.var, *self.values[n]))] for n, b in enumerate(self.bindings)]

    def domain(self, n: int) -> tuple[Dim, ...]:
        """The extents of the loops that write this binding's value."""
        return self.group[n].domain

    def read(self, producer: int, reader: int) -> Read:
        """How the kernel of one binding reads the value of another, or those of its values that it does read."""
        args = self.bindings[reader].value.args
        found = [self.read_of(v, reader) for v in self.values[producer] if v in args]
        return found[0] if len(found) == 1 else together(found)

    def read_of(self, value: Atom, reader: int) -> Read:
        """How the kernel of a binding reads a value."""
        facts = self.facts[reader]
        position = self.bindings[reader].value.args.index(value)
        return facts.reads[facts.kernel.inputs[position].name]

    def edges(self, ours: Group, theirs: Group) -> list[tuple[int, int]]:
        """The values that pass from one group to the other, as pairs (binding, reader)."""
        inside = set(ours.members)
        return [(p, n) for n in theirs.members for p in self.producers[n] if p in inside]

    def results(self, group: Group) -> list[int]:
        """The members that are read outside of their group."""
        inside = set(group.members)
        return [n for n in group.members if self.users[n] - inside]

    def between(self, start: int, end: int) -> list[int]:
        """All bindings on paths from `start` to its post-dominator `end`, with `end`."""
        seen, stack = {end}, [start]
        while stack:
            for n in self.users[stack.pop()]:
                if n not in seen:
                    seen.add(n)
                    stack.append(n)
        return sorted(seen)

    def merge(self, members: Iterable[int]) -> bool:
        """Make one group of the groups of `members`, if no path leaves and re-enters it and it has not too many buffers.

        Says whether it did.
        """
        parts = {id(self.group[n]): self.group[n] for n in members}
        inside = {n for part in parts.values() for n in part.members}
        if self._leaves_and_returns(inside) or self._buffers(inside) > MOST_BUFFERS:
            return False
        groups = sorted(parts.values(), key=lambda g: g.last)
        roles = [g.role if g is groups[-1] or g.role != "assembly" else "pointwise" for g in groups]  # what is read is expressed
        role = max(roles, key=("pointwise", "rows", "contraction", "assembly").index)
        lead = next(g for g, r in zip(groups, roles, strict=True) if r == role)
        domain = lead.domain if role == "contraction" else groups[-1].domain
        merged = Group(sorted(inside), role, domain, lead.rows, sum(g.cost for g in groups), sum(g.size for g in groups))
        for n in inside:
            self.group[n] = merged
        return True

    def in_order(self) -> list[list[int]]:
        """The groups' bindings, by their places in the block, each group after all that it needs, otherwise as they were."""
        order: list[list[int]] = []
        for n in range(len(self.bindings)):
            if n == self.group[n].last:
                self._place(self.group[n], order)
        return [[at for n in members for at in self.places[n]] for members in order]

    def _place(self, group: Group, order: list[list[int]]) -> None:
        stack = [(group, False)]
        while stack:
            group, ready = stack.pop()
            if group.done:
                continue
            if ready:
                group.done = True
                order.append(group.members)
                continue
            stack.append((group, True))
            needed = {id(self.group[p]): self.group[p] for n in group.members for p in self.needs[n]}
            stack += [(g, False) for g in sorted(needed.values(), key=lambda g: -g.last) if g is not group and not g.done]

    def _dependences(self, bound: set[str]) -> tuple[list[list[int]], list[set[int]]]:
        """For each binding, the bindings it reads, and the same with those that bind its sizes."""
        binds: dict[str, int] = {}
        producers: list[list[int]] = []
        needs: list[set[int]] = []
        for n, b in enumerate(self.bindings):
            read = dict.fromkeys(self.number[a] for a in b.value.operands() if isinstance(a, Var) and a in self.number)
            sizes = symbols(b.var.type) | {name for a in b.value.attributes().values() for name in names_inside(a)}
            producers.append(list(read))
            needs.append(set(read) | {binds[s] for s in sizes if s in binds})
            if isinstance(b.value, MatchCast):
                for s in symbols(b.var.type) - bound - binds.keys():
                    binds[s] = n
        return producers, needs

    def _alone(self, n: int) -> Group:
        facts = self.facts[n]
        if facts is None:
            return Group([n], "opaque")
        call = self.bindings[n].value
        sizes = {s: d for s, d in zip(facts.kernel.sizes, call.sizes, strict=True) if str(d) != s}

        def here(dims):
            return tuple(substitute(d, sizes) for d in dims) if sizes else dims

        return Group([n], facts.role, here(facts.domain), here(facts.rows), facts.cost, len(facts.kernel.outputs))

    def _post_dominators(self) -> list[int | None]:
        """The nearest binding that every path from each binding passes; None if that is the outside."""
        outside = len(self.bindings)
        found, depth = [outside] * (outside + 1), [0] * (outside + 1)
        for n in range(outside - 1, -1, -1):
            common: int | None = None
            for user in self.users[n]:
                a, b = user, user if common is None else common
                while a != b:
                    a, b = (found[a], b) if depth[a] > depth[b] else (a, found[b])
                common = a
            found[n] = outside if common is None else common
            depth[n] = depth[found[n]] + 1
        return [None if p == outside else p for p in found[:-1]]

    def _buffers(self, inside: set[int]) -> int:
        """How many inputs and outputs a kernel of these bindings has."""
        made = {v for n in inside for v in self.values[n]}
        read = {a for n in inside for a in self.bindings[n].value.operands()} - made
        leaving = set(self.outputs & made)
        for user in {u for n in inside for u in self.users[n]} - inside - {len(self.bindings)}:
            leaving.update(made.intersection(self.bindings[user].value.operands()))
        return len(read) + len(leaving)

    def _leaves_and_returns(self, inside: set[int]) -> bool:
        """Is there a path from the groups in `inside`, through another group, back into them?"""
        last = max(inside)
        stack = [u for n in inside for u in self.users[n] if u not in inside]
        seen: set[int] = set()
        while stack:
            n = stack.pop()
            if n in inside:
                return True
            if n >= len(self.bindings) or n in seen or self.group[n].first > last:
                continue
            for member in self.group[n].members:
                seen.add(member)
                stack += self.users[member]
        return False


def together(reads: Iterable[Read]) -> Read:
    """Several reads of one kernel as one: it has what all of them have."""
    reads = tuple(reads)
    places = tuple(p for r in reads for p in r.places)
    return Read(all(r.identity for r in reads), min(r.aligned for r in reads), False, places)


def _is_groupable(binding: Binding) -> bool:
    return isinstance(binding.value, CallKernel) and isinstance(binding.var.type, Tensor)


def _items(block: Dataflow) -> dict[Var, list[Binding]]:
    """The calls of kernels with several outputs, with what is taken from their tuples: each output once at most, and no more."""
    found = {b.var: [] for b in block.bindings if isinstance(b.value, CallKernel) and isinstance(b.var.type, Tuple)}
    whole = set(block.outputs)
    for b in block.bindings:
        if isinstance(b.value, TupleItem) and b.value.value in found:
            found[b.value.value].append(b)
        else:
            whole.update(b.value.operands())
    once = {v for v, items in found.items() if items and len({b.value.index for b in items}) == len(items)}
    return {v: items for v, items in found.items() if v in once - whole}


def names_inside(attribute: object) -> Iterable[str]:
    """The sizes that an attribute mentions."""
    if isinstance(attribute, DimExpr):
        yield from names(attribute)
    elif isinstance(attribute, tuple):
        for item in attribute:
            yield from names_inside(item)

"""Group kernel calls that should become one kernel; each group becomes a private function.

A group is right whatever it holds, since merged blocks still run one after the other, as long as it is *convex*: no value
leaves it and comes back.  Sizes count as values here, so no call moves above the `match_cast` that binds a size it uses.
What is grouped is what saves memory traffic, in phases (after TVM's post-dominator partitioning, Relax section 4.2):

1. epilogue: a contraction takes the pointwise calls up to its post-dominator, if all run over its own axes (bias, gelu,
   residual), and where its rows are short for sure, also calls that make one value of each row, and read such (a norm, a
   softmax; see `ROW_EPILOGUE`); 2. prologue: a contraction takes a call that only moves (or converts) elements for it, while its
   accesses stay linear in the loops' indices (also by choosing, as a concatenation or values around an array do: what is moved
   may be read several times, as by the windows of a convolution, since nothing is computed again); 3. rows: reductions and
   pointwise calls that share leading axes (softmax, layer normalisation) and read each other along them; pointwise calls over
   the same axes, with several results if need be; what an assembly moves, for a reader that uses each element once; and any
   pointwise call whose single reader does so, or that is very cheap; a contraction takes one whose value is light
   (`PROLOGUE`), as it is when 4-bit weights are decoded: it is evaluated as the operand is packed;
4. siblings: reductions over the same rows of the same values, which then are read once.

A group has one contraction at most, and a contraction's result feeds reductions of its own rows only.  It has at most
`LARGEST` calls and `grouping.MOST_BUFFERS` inputs and results; what would exceed these starts a group of its own.
A kernel with several outputs, a user's say, is grouped by its loops and its rows, with what is taken from its tuple.
A copy in the same order (a reshape) is left alone: `lower_calls` makes it a view, which costs nothing.

>>> from minirelax.ir.parser import parse
>>> module = parse('''
... @kernel
... def exp(x: f32[n], out: f32[n], *, n):
...     for i in range(n):
...         out[i] = exp(x[i])
...
... def main(x: f32[2*n], y: f32[n]) -> f32[2*n]:
...     with dataflow():
...         v0: f32[2*n] = call_kernel(exp, x, sizes=(2*n,))
...         v1: f32[2*n] = call_kernel(exp, v0, sizes=(2*n,))
...         output(v1)
...     return v1''')
>>> print(fuse_ops(module)["fused_exp_exp"])
@group
def fused_exp_exp(x: f32[2*n], s: Shape([n])) -> f32[2*n]:
    with dataflow():
        v0: f32[2*n] = call_kernel(exp, x, sizes=(2*n,))
        v1: f32[2*n] = call_kernel(exp, v0, sizes=(2*n,))
        output(v1)
    return v1
"""

from __future__ import annotations

from dataclasses import replace

from minirelax.ir.dim import Dim, product, substitute, symbol
from minirelax.ir.graph import Atom, CallKernel, Dataflow, Function, Module, Var, fresh_names
from minirelax.ir.infer import bound_sizes
from minirelax.ir.loop import Block, Kernel
from minirelax.ir.types import substitute_type
from minirelax.passes.base import BIND
from minirelax.passes.contraction_rows import is_short_row, matrix_roles
from minirelax.passes.group_functions import GroupFunctions
from minirelax.passes.grouping import Groups
from minirelax.passes.inline import moving
from minirelax.passes.kernel_facts import Facts, changes_only_unit_axes, facts_of, is_affine_prologue
from minirelax.passes.recompute import recompute
from minirelax.passes.share_kernels import rename_block

LARGEST = 256  # calls in a group: a bound on the size of one kernel's code
# The longest sum of a product that takes a norm (0: none does).  The product is then never written and read again, but threads
# can share its rows only, so where there are very few, one thread does it all.  What is saved is a few bytes for each element;
# what the element costs grows with the sum, and tiles of few rows read the weights often: behind sums of 384 products, sentence
# embeddings (MiniLM) took 1.05 to 1.3 times as long with the norm inside.  A sum of unknown length counts as short.
ROW_EPILOGUE = 64
PROLOGUE = 16  # light operations for an element of a contraction's operand: next to nothing beside the products that it goes into


def fuse_ops(module: Module) -> Module:
    """`module` with groups of kernel calls moved into private functions."""
    facts = {k.name: facts_of(k) for k in module.kernels}
    made = GroupFunctions(module)
    functions = tuple(_fused(f, module, facts, made) for f in module.functions)
    return replace(module, functions=(*functions, *made.functions))


def _fused(function: Function, module: Module, facts: dict[str, Facts], made: GroupFunctions) -> Function:
    if function.group or function.name == BIND:
        return function
    bound = {n for v in (*function.params, *function.bound) for n in bound_sizes(v.type)}
    parts, names = [], fresh_names(function, module)
    for part in function.body:
        if isinstance(part, Dataflow):
            part = recompute(part, facts, names)
            groups = Groups(part, facts, bound)
            _Fusion(groups).run()
            part = made.regroup(part, groups.in_order(), names)
        parts.append(part)
    return replace(function, body=tuple(parts))


class _Fusion:
    """The three phases, on one dataflow block."""

    def __init__(self, groups: Groups):
        self.groups = groups
        self.sums: dict[tuple, bool] = {}

    def run(self) -> None:
        calls = [n for n in range(len(self.groups.bindings)) if self.groups.facts[n] is not None]
        contractions = [n for n in calls if self.groups.facts[n].role == "contraction"]
        for n in contractions:
            self._add_epilogue(n)
        for n in contractions:
            self._add_prologue(n)
        for n in calls:
            for producer in self.groups.producers[n]:
                self._join(producer, n)
        self._join_siblings(calls)

    def _add_epilogue(self, anchor: int) -> None:
        g, last, short = self.groups, anchor, self._has_short_rows(anchor)
        while (end := g.post_dominator[last]) is not None:
            path = g.between(last, end)
            inside = {last, *path}
            fits = all(
                self._is_pointwise_behind(n, anchor, inside) or (short and self._is_in_rows(n, anchor, inside)) for n in path
            )
            if not fits or g.group[anchor].size + len(path) > LARGEST or not g.merge([anchor, *path]):
                return
            last = end

    def _has_short_rows(self, anchor: int) -> bool:
        """May a tile of this contraction have whole rows, so that values of rows can follow in it, and does that pay?"""
        g, kernel, call = self.groups, self.groups.facts[anchor].kernel, self.groups.bindings[anchor].value
        block = next(b for b in kernel.blocks if b.reduction is not None)
        terms = substitute(product([a.extent for a in block.over]), dict(zip(kernel.sizes, call.sizes, strict=True)))
        if ROW_EPILOGUE == 0 or (isinstance(terms, int) and terms > ROW_EPILOGUE):
            return False
        return matrix_roles(block) is not None and is_short_row(g.domain(anchor)[-1], block.value.dtype)

    def _is_pointwise_behind(self, n: int, anchor: int, inside: set[int]) -> bool:
        """Is this pointwise, over the contraction's own axes, where it reads what is inside the group at its own place?"""
        g = self.groups
        return (
            self._is_alone(n, "pointwise")
            and g.domain(n) == g.domain(anchor)
            and all(g.read(p, n).identity for p in g.producers[n] if p in inside)
        )

    def _is_in_rows(self, n: int, anchor: int, inside: set[int]) -> bool:
        """Does this make a value of each element, or of each row, and reads what is inside the group in its own row only?"""
        g, domain = self.groups, self.groups.domain(anchor)
        if not (self._is_alone(n, "pointwise") or self._is_alone(n, "rows")) or len(g.facts[n].kernel.blocks) > 1:
            return False
        block, rows = g.facts[n].kernel.blocks[0], len(domain) - 1
        if g.domain(n) != domain[:rows] and (g.domain(n) != domain or block.over):
            return False
        own = tuple(symbol(a.name) for a in (*block.axes, *block.over))
        places = {domain[:rows]: own[:rows]} | ({domain: own} if len(own) == rows + 1 else {})
        made = {p: tuple(d for d in g.bindings[p].var.type.shape if d != 1) for p in g.producers[n] if p in inside}
        return all(moving(at.indices) == places.get(made[p]) for p in made for _, at in g.read(p, n).places)

    def _is_alone(self, n: int, role: str) -> bool:
        """Is this a call of such a kernel, in no group with others yet?"""
        facts = self.groups.facts[n]
        return facts is not None and facts.role == role and self.groups.group[n].size == 1

    def _add_prologue(self, anchor: int) -> None:
        """Take in what moves elements for an operand; what was moved may be read several times, since nothing is computed."""
        g, inside = self.groups, {anchor}
        while True:
            found = {n for reader in inside for n in g.producers[reader]} - inside
            n = next((n for n in sorted(found, reverse=True) if self._moves_into(n, inside) and g.merge([n, anchor])), None)
            if n is None:
                return
            inside.add(n)

    def _moves_into(self, n: int, inside: set[int]) -> bool:
        """Does this only move elements, for these bindings alone, each of which reads it at one place?"""
        g, facts = self.groups, self.groups.facts[n]
        return (
            facts is not None
            and facts.movement
            and not self._is_view(facts)
            and g.group[n].size == 1
            and g.users[n] <= inside
            and all(len(g.read(n, reader).places) == 1 and self._stays_linear(n, reader) for reader in g.users[n])
        )

    def _stays_linear(self, producer: int, reader: int) -> bool:
        g = self.groups
        call, into = g.bindings[producer].value, g.bindings[reader].value
        key = (call.kernel, into.kernel, call.sizes, into.sizes, into.args.index(g.bindings[producer].var))
        if key not in self.sums:
            ours = _block_at_sizes(g.facts[producer].definition, _sizes(g.facts[producer].kernel, call))
            theirs = _at_sizes(g.facts[reader].kernel, into)
            facts = facts_of(theirs)
            place = facts.reads[theirs.inputs[key[-1]].name].places[0]
            self.sums[key] = is_affine_prologue(facts, place, ours)
        return self.sums[key]

    def _join(self, producer: int, reader: int) -> None:
        """Merge the two bindings' groups if that pays for every value that passes between them."""
        g = self.groups
        if g.facts[producer] is None:
            return
        ours, theirs = g.group[producer], g.group[reader]
        if ours is theirs or "opaque" in (ours.role, theirs.role) or ours.size + theirs.size > LARGEST:
            return
        if self._is_lone_view(ours) or self._is_lone_view(theirs) or self._belongs_to_its_reader(ours, theirs):
            return
        if (
            self._rows_fit(ours, theirs)
            if ours.role == "rows"
            else self._is_read_once(ours, theirs)
            if ours.role == "assembly"
            else ours.role == "pointwise" and self._pointwise_fits(ours, theirs)
        ):
            g.merge([producer, reader])

    def _is_read_once(self, ours, theirs) -> bool:
        """Is this an assembly that only moves elements, each of which is read once?  Others are stored: copies are fast."""
        edges = self.groups.edges(ours, theirs)
        moves = ours.size == 1 and self.groups.facts[ours.first].movement and theirs.role in ("pointwise", "rows")
        return moves and self._leaves_once(ours, edges) and self.groups.read(*edges[0]).once

    def _rows_fit(self, ours, theirs) -> bool:
        """A reduction's rows, read row by row."""
        count = len(ours.rows)
        if theirs.role in ("contraction", "assembly") or (theirs.role == "rows" and theirs.rows != ours.rows):
            return False
        if theirs.domain[:count] != ours.rows or (count == 0 and theirs.domain != ()):
            return False
        return all(self.groups.read(p, n).aligned >= count for p, n in self.groups.edges(ours, theirs))

    def _pointwise_fits(self, ours, theirs) -> bool:
        g, edges = self.groups, self.groups.edges(ours, theirs)
        operands = self._operands(theirs) if theirs.role == "contraction" else set()
        if any(n in operands for _, n in edges):
            return self._can_be_packed(ours, operands, edges)
        if theirs.role == "assembly":
            return self._can_be_inlined(ours, edges)
        if theirs.role == "rows":
            count = len(theirs.rows)
            together = count > 0 and ours.domain[:count] == theirs.rows and all(g.read(p, n).aligned >= count for p, n in edges)
        else:
            together = ours.domain == theirs.domain and all(g.read(p, n).identity for p, n in edges)
        return together or self._can_be_inlined(ours, edges)

    def _operands(self, theirs) -> set[int]:
        """The contraction of a group, and those of its members that compute an operand of it."""
        g = self.groups
        stack = [n for n in theirs.members if g.facts[n].role == "contraction"]
        found = set(stack)
        while stack:
            more = {p for p in g.producers[stack.pop()] if p in theirs.members} - found
            found |= more
            stack += more
        return found

    def _can_be_packed(self, ours, operands: set[int], edges: list[tuple[int, int]]) -> bool:
        """One value leaves, to one place, and is light: a contraction evaluates it each time that it copies a panel."""
        g = self.groups
        if not self._leaves_once(ours, edges):
            return False
        read = g.read(*edges[0])
        at_once = len(read.places) == 1 and (g.facts[edges[0][1]].role == "contraction" or read.once)
        members = [*ours.members, *(n for n in operands if g.facts[n].role != "contraction")]
        cost = sum(g.facts[n].cost for n in members)
        return at_once and cost <= PROLOGUE and all(g.facts[n].light for n in ours.members)

    def _join_siblings(self, calls: list[int]) -> None:
        """Merge reductions over the same rows of the same values, which then are read once."""
        g = self.groups
        readers: dict[Atom, list[int]] = {}
        for n in calls:
            if g.group[n].role == "rows":
                for a in dict.fromkeys(g.bindings[n].value.args):
                    readers.setdefault(a, []).append(n)
        for value, found in readers.items():
            first = found[0]
            for n in found[1:]:
                ours, theirs = g.group[first], g.group[n]
                aligned = all(g.read_of(value, m).aligned >= len(ours.rows) for m in (first, n))
                if ours is not theirs and ours.rows == theirs.rows and aligned and ours.size + theirs.size <= LARGEST:
                    g.merge([first, n])

    def _can_be_inlined(self, ours, edges: list[tuple[int, int]]) -> bool:
        """One value leaves, to one reader, and is not computed more than once there, or is very cheap."""
        return self._leaves_once(ours, edges) and (self.groups.read(*edges[0]).once or ours.is_cheap)

    def _leaves_once(self, ours, edges: list[tuple[int, int]]) -> bool:
        """Does one value leave the group, to one reader, at the end of the only edge?"""
        g = self.groups
        return len(edges) == 1 and g.results(ours) == [edges[0][0]] and g.users[edges[0][0]] == {edges[0][1]}

    def _belongs_to_its_reader(self, ours, theirs) -> bool:
        """Is this a call after a reduction that a reduction over other rows will take in, so that it need not be stored?"""
        g = self.groups
        if ours.role != "rows" or theirs.role != "pointwise" or theirs.size > 1 or len(g.users[theirs.first]) != 1:
            return False
        reader = next(iter(g.users[theirs.first]))
        return (
            reader < len(g.bindings)
            and g.group[reader].role == "rows"
            and g.group[reader].rows != ours.rows
            and g.read(theirs.first, reader).once
        )

    def _is_lone_view(self, group) -> bool:
        return group.size == 1 and self._is_view(self.groups.facts[group.first])

    def _is_view(self, facts: Facts) -> bool:
        return facts.flat_copy and not changes_only_unit_axes(facts.kernel)


def _at_sizes(kernel: Kernel, call: CallKernel) -> Kernel:
    """The kernel in its caller's sizes, with axis names that no size has."""
    sizes = _sizes(kernel, call)
    blocks = tuple(_block_at_sizes(b, sizes) for b in kernel.blocks)
    return replace(kernel, blocks=blocks, sizes=(), inputs=tuple(_typed(v, sizes) for v in kernel.inputs))


def _sizes(kernel: Kernel, call: CallKernel) -> dict[str, Dim]:
    return dict(zip(kernel.sizes, call.sizes, strict=True))


def _block_at_sizes(block: Block, sizes: dict[str, Dim]) -> Block:
    return rename_block(block, {}, sizes, (f"_a{i}" for i in range(99)), (f"_r{i}" for i in range(99)))


def _typed(var: Var, sizes) -> Var:
    return Var(var.name, substitute_type(var.type, sizes))

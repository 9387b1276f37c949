"""What a kernel does, by brute force: which elements every element is made of, and the kind that follows from this alone.

The kinds, by extension.  For sizes and data at hand, a block is a list of rounds: an element that is written, the elements that
are read for it (one for each place in the expression), and the value.  Coordinates in axes of one element do not count.

* opaque: two blocks write one buffer, or a block writes an element at two points of its axes, or leaves an element out;
* else reduce: an element is made in more than one round.  Among these it is a contraction if the reduction is a sum, every round
  adds the product of the two elements that it reads, and each of the two stays the same along some coordinate of what is
  written (where factors are made of several elements, relations do not tell what is multiplied, and this says reduce);
* else elementwise: an element is made of those at its own coordinates, and perhaps of some at a part of them, in order;
  broadcast: only of such; injective: of any others.

A kernel's kind is the largest of its blocks', at all the sizes and data that were looked at.
"""
from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from dataclasses import dataclass, replace

import numpy as np

from minirelax.ir.dim import value as size
from minirelax.ir.loop import KINDS, Block, Kernel
from minirelax.ir.scalar import Apply, Index, Literal, Load, Scalar, SizeValue, literal

Element = tuple[int, ...]
COMBINED = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


@dataclass(frozen=True)
class Round:
    """One point of a block's loops."""

    written: Element
    reads: tuple[tuple[str, Element], ...]
    loaded: tuple[float, ...]
    value: float


class Run:
    """A kernel, executed on one choice of sizes and data, with every access written down."""

    def __init__(self, kernel: Kernel, sizes: dict[str, int], seed: int):
        self.kernel, self.sizes, rng = kernel, sizes, np.random.default_rng(seed)
        self.shapes = {name: tuple(size(d, sizes) for d in t.shape) for name, t in kernel.buffers.items()}
        indices = max(1, min((d for shape in self.shapes.values() for d in shape), default=1))   # inside of every axis
        self.data = {
            v.name: rng.integers(0, indices, self.shapes[v.name]) if v.type.dtype == "i64"
            else rng.integers(2, 9, self.shapes[v.name]).astype(float)
            for v in (*kernel.inputs, *kernel.local, *kernel.outputs)
        }
        self.rounds = [self._block(b) for b in kernel.blocks]

    def kind(self) -> str:
        """The kernel's kind in this run."""
        if max(Counter(b.buffer for b in self.kernel.blocks).values()) > 1:
            return "opaque"
        kinds = (self._kind(b, r) for b, r in zip(self.kernel.blocks, self.rounds, strict=True))
        return max(kinds, key=KINDS.index)

    def _block(self, block: Block) -> list[Round]:
        spans = [range(size(a.extent, self.sizes)) for a in (*block.axes, *block.over)]
        rounds = [self._round(block, at) for at in itertools.product(*spans)]
        made: dict[Element, float] = {}
        for r in rounds:
            with np.errstate(over="ignore"):
                again = block.over and r.written in made
                made[r.written] = COMBINED[block.reduction](made[r.written], r.value) if again else r.value
        for element, found in made.items():
            if self._inside(block.buffer, element):
                self.data[block.buffer][element] = found
        return rounds

    def _round(self, block: Block, at: Element) -> Round:
        env = {**self.sizes, **{a.name: i for a, i in zip((*block.axes, *block.over), at, strict=True)}}
        reads: list[tuple[str, Element]] = []
        loaded: list[float] = []

        def index(i: Index) -> int:
            if not isinstance(i, Scalar):
                return size(i, env)
            factors, found = len(loaded), int(evaluate(i))
            del loaded[factors:]  # an index is no factor of a product, though it may be 1
            return found

        def evaluate(s: Scalar) -> float:
            match s:
                case Literal(value=v):
                    return v
                case SizeValue(dim=d):
                    return size(d, env)
                case Load(buffer=buffer, indices=indices):
                    element = tuple(map(index, indices))
                    reads.append((buffer, element))
                    loaded.append(self.data[buffer][element] if self._inside(buffer, element) else 0)
                    return loaded[-1]
                case Apply(function="cast", args=(a,)):
                    return evaluate(a)
                case Apply(function="check_index", args=(a, _)):
                    return evaluate(a)
                case Apply(function=name, args=args):
                    with np.errstate(all="ignore"):
                        return getattr(np, name)(*map(evaluate, args))
            raise TypeError(s)

        written = tuple(map(index, block.indices))
        value = evaluate(block.value)
        return Round(written, tuple(reads), tuple(loaded), value)

    def _inside(self, buffer: str, element: Element) -> bool:
        return all(0 <= i < d for i, d in zip(element, self.shapes[buffer], strict=True))

    # ---- kinds

    def _kind(self, block: Block, rounds: list[Round]) -> str:
        stored = self._stored(block)
        if sorted(stored) != list(itertools.product(*map(range, self.shapes[block.buffer]))):
            return "opaque"
        if len(rounds) > len(stored):
            return "contraction" if self._is_contraction(block, rounds) else "reduce"
        return self._map_kind(block, rounds)

    def _stored(self, block: Block) -> list[Element]:
        """The element of each point of the axes; a reduction over nothing stores one, too."""
        once = replace(block, over=(), reduction=None, value=literal(0, "f64"))
        spans = [range(size(a.extent, self.sizes)) for a in block.axes]
        return [self._round(once, at).written for at in itertools.product(*spans)]

    def _is_contraction(self, block: Block, rounds: list[Round]) -> bool:
        product = all(len(r.loaded) == len(r.reads) == 2 and r.value == r.loaded[0] * r.loaded[1] for r in rounds)
        return block.reduction == "sum" and product and all(self._is_constant_along_one(block, rounds, k) for k in (0, 1))

    def _is_constant_along_one(self, block: Block, rounds: list[Round], k: int) -> bool:
        """Does the k-th read stay the same along a coordinate of what is written, the rounds being numbered for each element?"""
        read = {}
        for r in rounds:
            read.setdefault(r.written, []).append(r.reads[k])
        for c, extent in enumerate(self.shapes[block.buffer]):
            if extent > 1 and all(found == read[(*w[:c], 0, *w[c + 1 :])] for w, found in read.items()):
                return True
        return False

    def _map_kind(self, block: Block, rounds: list[Round]) -> str:
        read = defaultdict(lambda: defaultdict(set))
        for r in rounds:
            own = self._coordinates(block.buffer, r.written)
            for buffer, element in r.reads:
                read[buffer][own].add(self._coordinates(buffer, element))
        kinds = {kind for made_of in read.values() for kind in self._read_kinds(made_of)}
        if "elementwise" in kinds and "injective" not in kinds:
            return "elementwise"
        return max(kinds, key=KINDS.index, default="elementwise")

    def _read_kinds(self, made_of: dict[Element, set[Element]]) -> set[str]:
        """The kinds of the relation to one buffer: selections of coordinates, in order, that together are all that is read."""
        count = len(next(iter(made_of)))
        selections = [
            chosen
            for k in range(count + 1)
            for chosen in itertools.combinations(range(count), k)
            if all(tuple(w[c] for c in chosen) in found for w, found in made_of.items())
        ]
        covered = all(found == {tuple(w[c] for c in chosen) for chosen in selections} for w, found in made_of.items())
        return {"elementwise" if len(s) == count else "broadcast" for s in selections} if covered else {"injective"}

    def _coordinates(self, buffer: str, element: Element) -> Element:
        return tuple(i for i, d in zip(element, self.shapes[buffer], strict=True) if d != 1)


def kind_by_brute_force(kernel: Kernel, choices: list[dict[str, int]]) -> str:
    """The largest kind over these sizes, and two fillings of the inputs for each."""
    return max((Run(kernel, sizes, seed).kind() for sizes in choices for seed in (0, 1)), key=KINDS.index)

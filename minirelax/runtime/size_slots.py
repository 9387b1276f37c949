"""Size expressions as slots of the frame: each distinct one is evaluated once, by the native loop (Relax, section 4.7).

>>> from minirelax.ir.dim import dim
>>> asm = Assembler()
>>> sizes = SizeSlots(asm)
>>> sizes.bind(dim("n"), asm.slot("n"))
>>> sizes.slot(dim("2*n + 1")) == sizes.slot(dim("n + n + 1"))
True
>>> print(asm.finish().text())
  0  MUL 2*n n 2
  5  ADD 2*n + 1 1 2*n
 10  RETURN
"""

from __future__ import annotations

from minirelax.errors import CodegenError
from minirelax.ir.dim import Atom, Dim, DimExpr, symbol
from minirelax.ir.lattice import bare_name
from minirelax.runtime.instructions import Assembler


class SizeSlots:
    """The slots of all size expressions seen so far, in one scope.

    `literals` are numbers and their slots, filled before any call: all scopes of a program share them.
    """

    def __init__(self, asm: Assembler, literals: dict[int, int] | None = None):
        self.asm = asm
        self.literals: dict[int, int] = {} if literals is None else literals
        self._slots: dict[Dim, int] = {}

    def __contains__(self, d: Dim) -> bool:
        return d in self._slots

    def bind(self, d: Dim, slot: int) -> None:
        """`slot` holds the value of `d`."""
        self._slots[d] = slot

    def slot(self, d: Dim) -> int:
        """The slot that holds a size expression; emits its evaluation the first time."""
        if isinstance(d, int):
            if d not in self.literals:
                self.literals[d] = self.asm.slot(str(d))
            return self.literals[d]
        if d not in self._slots:
            self._slots[d] = self._evaluate(d)
        return self._slots[d]

    def _evaluate(self, d: DimExpr) -> int:
        asm = self.asm
        if (name := bare_name(d)) is not None:
            raise CodegenError(f"the size {name} is not bound by any argument", "give it a parameter whose shape names it")
        terms = d.terms
        if len(terms) == 1:
            return self._term(d, *terms[0])
        slot = asm.slot(str(d))
        positive = sorted(terms, key=lambda t: t[1] < 0)
        total = self.slot(DimExpr((positive[0],)) if positive[0][0] else positive[0][1])
        for mono, k in positive[1:]:
            part = self.slot(DimExpr(((mono, abs(k)),)) if mono else abs(k))
            (asm.add if k > 0 else asm.sub)(slot, total, part)
            total = slot
        return slot

    def _term(self, d: Dim, mono, k: int) -> int:
        """A product: of an atom's value, or of a coefficient and factors."""
        asm = self.asm
        if len(mono) == 1 and k == 1 and isinstance(mono[0], Atom):
            atom, slot = mono[0], asm.slot(str(d))
            operation = {"//": asm.floordiv, "%": asm.mod, "min": asm.minimum, "max": asm.maximum}[atom.op]
            operation(slot, self.slot(atom.left), self.slot(atom.right))
            return slot
        slot = asm.slot(str(d))
        factors = [self.slot(symbol(f) if isinstance(f, str) else DimExpr((((f,), 1),))) for f in mono]
        if k != 1:
            factors.append(self.slot(k))
        asm.mul(slot, factors[0], factors[1])
        for f in factors[2:]:
            asm.mul(slot, slot, f)
        return slot

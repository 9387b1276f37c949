"""What a function declares, against what it gets inside another trace and what it returns: ``(x: f32["n"]) -> f32["n + 1"]``.

What tracing shows to be so needs no check.  A size that is another one is an error at once; equality with an undeclared size
becomes a guard, as everywhere; what only the run shows is checked by it: of a result, when the function returns
(`Function.returns`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from minirelax.errors import ArgumentError, DTypeError, ShapeError
from minirelax.frontend.array import TracedArray
from minirelax.frontend.builder import Builder
from minirelax.frontend.operands import differ_hint, sizes_text
from minirelax.frontend.size import Size
from minirelax.ir.dim import Dim
from minirelax.ir.graph import Atom, MakeShape, MatchCast, Var
from minirelax.ir.types import Shape, Tensor, substitute_type, symbols

UNKNOWN = 'name sizes that an argument has, or write "_" for one that only the run shows'


@dataclass
class Promises:
    """The declared types, by value, that the run has to check.

    `function` is how errors call the function; `known` are the declared sizes, which its arguments show.
    """

    b: Builder
    function: str
    known: Mapping[str, Dim]
    types: dict[Atom, Tensor] = field(default_factory=dict)

    def kept(self, wanted: object, value: object, what: str = "the result") -> object:
        """`value`, or one that is equal and checked to be as `wanted`, a type or a container of types.

        Raises ArgumentError, DTypeError or ShapeError if it is not.
        """
        match wanted:
            case Tensor():
                return self._array(wanted, value, what)
            case Shape():
                if not isinstance(value, tuple) or not all(isinstance(n, int | Size) for n in value):
                    raise DTypeError(f"{self.function}: {what}: expected {wanted}, got a value of type {type(value).__name__}")
                return tuple(map(self.b.size, self._shape(wanted, self.b.dims(value), what)))
            case dict() if isinstance(value, dict) and value.keys() == wanted.keys():
                return type(value)((k, self.kept(wanted[k], v, f"{what}[{k!r}]")) for k, v in value.items())
            case list() | tuple() if isinstance(value, list | tuple) and len(value) == len(wanted):
                parts = [self.kept(w, v, f"{what}[{i}]") for i, (w, v) in enumerate(zip(wanted, value, strict=True))]
                return type(value)(parts) if type(value) in (list, tuple) else type(value)(*parts)
        raise ArgumentError(f"{self.function}: {what}: expected {wanted}, got a value of type {type(value).__name__}")

    def passed(self, wanted: Tensor | Shape, value: TracedArray | tuple[Dim, ...], what: str) -> TracedArray | tuple[Dim, ...]:
        """An argument, an array or the entries of a shape, which has the wanted type or is cast to it."""
        if isinstance(wanted, Shape):
            return self._shape(wanted, value, what)
        x = self._array(wanted, value, what)
        declared = self.types.get(x.atom) if isinstance(x.atom, Var) else None
        return x if declared is None else x.derived(self.b.emit(MatchCast(x.atom, declared)), x.weak)

    def _shape(self, wanted: Shape, dims: tuple[Dim, ...], what: str) -> tuple[Dim, ...]:
        found = f"{self.function}: {what}: expected {wanted}, got {Shape(dims)}"
        if wanted.ndim not in (None, len(dims)):
            raise ShapeError(f"{found}: {len(dims)} {'entry' if len(dims) == 1 else 'entries'}, not {wanted.ndim}")
        if wanted.values is None:
            return dims
        pairs = enumerate(zip(self._own(wanted, what).values, dims, strict=True))
        new = tuple([self._is(d, own, f"{found}: entry {i} has sizes") for i, (d, own) in pairs])
        new, old = (tuple(map(self.b.facts.resolve, x)) for x in (new, dims))
        if new != old:
            self.b.emit(MatchCast(self.b.emit(MakeShape(old)), Shape(new)))
        return new

    def _array(self, wanted: Tensor, value: object, what: str) -> object:
        if isinstance(value, Size):
            value = self.b.number(value.dim)
        if isinstance(value, np.ndarray):
            value = TracedArray(self.b, self.b.constant(value))
        if not isinstance(value, TracedArray):
            if isinstance(value, bool | int | float | complex | np.generic) and wanted.shape in (None, ()):
                return value
            raise DTypeError(f"{self.function}: {what}: expected {wanted}, got a value of type {type(value).__name__}")
        found = f"{self.function}: {what}: expected {wanted}, got {value.type}"
        if wanted.dtype not in (None, value.type.dtype):
            raise DTypeError(found, f"convert it: .astype(np.{wanted.numpy_dtype})")
        if wanted.shape is None:
            return value
        if len(wanted.shape) != value.ndim:
            raise ShapeError(f"{found}: {value.ndim} {'axis' if value.ndim == 1 else 'axes'}, not {len(wanted.shape)}")
        return self._with_sizes(Tensor(value.type.dtype, self._own(wanted, what).shape), value, found)

    def _with_sizes(self, wanted: Tensor, value: TracedArray, found: str) -> TracedArray:
        pairs = enumerate(zip(wanted.shape, value.dims, strict=True))
        dims = [self._is(own if d is None else d, own, f"{found}: axis {i} has sizes") for i, (d, own) in pairs]
        declared = Tensor(wanted.dtype, tuple(map(self.b.facts.resolve, dims)))
        if declared.shape == value.dims or not isinstance(value.atom, Var):
            return value
        if self.types.setdefault(value.atom, declared) == declared:
            return value
        return value.derived(self.b.emit(MatchCast(value.atom, declared)), value.weak)

    def _is(self, wanted: Dim, own: Dim, where: str) -> Dim:
        """The wanted size, if the one that was found may be it."""
        facts = self.b.facts
        if facts.is_equal(wanted, own):
            return own
        if facts.truth("==", wanted, own) is False or facts.known("==", wanted, own) is False:
            raise ShapeError(f"{where} {sizes_text(own, wanted)}", differ_hint(own, wanted, "declare another result"))
        if facts.truth("==", wanted, own) and facts.may_assume(wanted - own):
            facts.assume_equal(wanted, own)
            return facts.resolve(own)
        return facts.resolve(wanted)

    def _own(self, wanted: Tensor | Shape, what: str) -> Tensor | Shape:
        """The declared type in our names of sizes."""
        for name in sorted(symbols(wanted) - self.known.keys()):
            raise ArgumentError(f"{self.function}: {what}: no argument shows the size {name} of {wanted}", UNKNOWN)
        return self.b.resolve_type(substitute_type(wanted, dict(self.known)))

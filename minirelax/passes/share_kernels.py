"""Renaming inside kernels, and the table that keeps kernels that are equal up to names only once.

>>> from minirelax.ir.graph import Var
>>> from minirelax.ir.tensor import lower_to_kernel
>>> from minirelax.ir.types import f32
>>> copy = lower_to_kernel("copy", lambda k, x: x, (Var("x", f32["n", 2]),))
>>> again = lower_to_kernel("copy", lambda k, y: y, (Var("y", f32["m", 2]),))
>>> other = lower_to_kernel("copy", lambda k, x: x, (Var("x", f32["n"]),))
>>> table = KernelTable()
>>> table.add(copy), table.add(again), table.add(other)
('copy', 'copy', 'copy_2')
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from minirelax.ir.dim import Dim, substitute, symbol
from minirelax.ir.graph import Module, Var
from minirelax.ir.loop import Axis, Block, Kernel
from minirelax.ir.scalar import Index, Load, Scalar, load, substitute_index, transform
from minirelax.ir.types import substitute_type


class KernelTable:
    """Kernels under unique names; adding one that is there already, under any names, gives the name of that one.

    Those that it starts with are kept as they are: somebody may call each of them.
    """

    def __init__(self, kernels: Iterable[Kernel] = (), taken: Iterable[str] = ()):
        self._by_content: dict[tuple, str] = {}
        self._kernels = list(kernels)
        self._names = {*taken, *(k.name for k in self._kernels)}
        for kernel in self._kernels:
            self._by_content.setdefault(content(kernel), kernel.name)

    @classmethod
    def of(cls, module: Module) -> KernelTable:
        """The kernels of a module, whose functions' names are not given to kernels."""
        return cls(module.kernels, (f.name for f in module.functions))

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """All kernels, in the order in which they came."""
        return tuple(self._kernels)

    def add(self, kernel: Kernel) -> str:
        """The name under which the table has `kernel`; its buffers, sizes and axes may be called otherwise there."""
        key = content(kernel)
        if key not in self._by_content:
            name = self._by_content[key] = unique(kernel.name, self._names)
            self._names.add(name)
            self._kernels.append(kernel if name == kernel.name else replace(kernel, name=name))
        return self._by_content[key]


def content(kernel: Kernel) -> tuple:
    """What a kernel does, without any names: equal for two kernels that differ in names only."""
    sizes = {s: symbol(f"s{i}") for i, s in enumerate(kernel.sizes)}
    buffers = {v.name: f"b{i}" for i, v in enumerate((*kernel.inputs, *kernel.outputs, *kernel.local))}
    types = tuple(tuple(substitute_type(v.type, sizes) for v in part) for part in (kernel.inputs, kernel.outputs, kernel.local))
    blocks = tuple(
        rename_block(b, buffers, sizes, (f"a{i}" for i in range(99)), (f"r{i}" for i in range(99))) for b in kernel.blocks
    )
    return len(sizes), types, blocks, tuple((buffers[x], buffers[out]) for x, out in kernel.in_place)


def rename_block(
    block: Block,
    buffers: Mapping[str, str],
    sizes: Mapping[str, Dim],
    spatial: Iterable[str] | None = None,
    reduction: Iterable[str] | None = None,
) -> Block:
    """`block` on other buffers, with sizes replaced by sizes, and its axes renamed in order (or left as they are)."""
    values: dict[str, Dim] = dict(sizes)
    axes = _renamed_axes(block.axes, spatial, sizes, values)
    over = _renamed_axes(block.over, reduction, sizes, values)

    def rename(s: Scalar) -> Scalar:
        return load(buffers.get(s.buffer, s.buffer), s.indices, s.dtype) if isinstance(s, Load) else s

    known: dict[Index, Index] = {}  # the same few indices appear again and again

    def on_index(d: Index) -> Index:
        if d not in known:
            known[d] = substitute_index(d, values)
        return known[d]

    def on_store(i: Index) -> Index:
        return transform(i, rename, on_index) if isinstance(i, Scalar) else on_index(i)

    return Block(
        axes,
        buffers.get(block.buffer, block.buffer),
        tuple(map(on_store, block.indices)),
        transform(block.value, rename, on_index),
        over,
        block.reduction,
    )


def size_arguments(kernel: Kernel, values: Mapping[str, Dim]) -> tuple[Dim, ...]:
    """The `sizes` of a call of `kernel`, given what its size names stand for (themselves, if not mentioned)."""
    return tuple(values.get(s, symbol(s)) for s in kernel.sizes)


def named(variables: Iterable[Var], names: Mapping[str, str]) -> tuple[Var, ...]:
    """The variables under other names."""
    return tuple(Var(names.get(v.name, v.name), v.type) for v in variables)


def unique(name: str, taken: set[str]) -> str:
    """`name`, or the first of ``name_2, name_3, ...`` that is free."""
    return next(n for n in _variants(name) if n not in taken)


def _variants(name: str) -> Iterator[str]:
    yield name
    count = 2
    while True:
        yield f"{name}_{count}"
        count += 1


def _renamed_axes(
    axes: tuple[Axis, ...], names: Iterable[str] | None, sizes: Mapping[str, Dim], values: dict[str, Dim]
) -> tuple[Axis, ...]:
    chosen = [a.name for a in axes] if names is None else [n for n, _ in zip(names, axes, strict=False)]
    renamed = tuple(Axis(n, substitute(a.extent, sizes)) for n, a in zip(chosen, axes, strict=True))
    values.update((a.name, symbol(n)) for a, n in zip(axes, chosen, strict=True) if a.name != n or a.name in sizes)
    return renamed

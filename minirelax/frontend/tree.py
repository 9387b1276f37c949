"""Nested containers of arrays, taken apart into leaves and put together again.

Lists, tuples, named tuples, dicts and dataclasses are structure; so is None.  Everything else is a leaf.

>>> leaves, tree = flatten({"w": 1.5, "layers": [2.5, (3.5, None)]})
>>> leaves, tree.paths("p")
([1.5, 2.5, 3.5], ["p['w']", "p['layers'][0]", "p['layers'][1][0]"])
>>> tree.unflatten([x * 2 for x in leaves])
{'w': 3.0, 'layers': [5.0, (7.0, None)]}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Tree:
    """The structure of a value: the container's class, its keys, and the structures of its parts; a leaf has no class."""

    cls: type | None = None
    keys: tuple = ()
    parts: tuple[Tree, ...] = ()

    def unflatten(self, leaves: list) -> object:
        """The value with this structure and these leaves."""
        return self._build(iter(leaves))

    def paths(self, name: str) -> list[str]:
        """How each leaf is reached from the value called `name`, as Python writes it."""
        if self.cls is None:
            return [name]
        step = _step(self.cls)
        return [path for key, part in zip(self.keys, self.parts, strict=True) for path in part.paths(name + step(key))]

    def _build(self, leaves: Iterator) -> object:
        if self.cls is None:
            return next(leaves)
        if self is NONE:
            return None
        parts = [part._build(leaves) for part in self.parts]
        if self.cls in (list, tuple):
            return self.cls(parts)
        if issubclass(self.cls, dict):
            return dict(zip(self.keys, parts, strict=True))
        return self.cls(**dict(zip(self.keys, parts, strict=True)))


LEAF = Tree()
NONE = Tree(type(None))


def flatten(value: object, is_leaf: Callable[[object], bool] | None = None) -> tuple[list, Tree]:
    """The leaves of a value, in order, and its structure; `is_leaf` may stop earlier."""
    leaves: list = []
    return leaves, _take_apart(value, leaves, is_leaf)


def _take_apart(value: object, leaves: list, is_leaf: Callable[[object], bool] | None) -> Tree:
    if value is None:
        return NONE
    cls = value.__class__
    if is_leaf is not None and is_leaf(value):
        leaves.append(value)
        return LEAF
    if issubclass(cls, dict):
        keys, parts = tuple(value), value.values()
    elif cls is list or cls is tuple:
        keys, parts = tuple(range(len(value))), value
    elif issubclass(cls, tuple) and hasattr(cls, "_fields"):
        keys, parts = cls._fields, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        keys = tuple(f.name for f in dataclasses.fields(value) if f.init)
        parts = [getattr(value, key) for key in keys]
    else:
        leaves.append(value)
        return LEAF
    return Tree(cls, keys, tuple(_take_apart(part, leaves, is_leaf) for part in parts))


def _step(cls: type) -> Callable[[object], str]:
    """How a part of a container of this class is reached."""
    return (lambda key: f"[{key!r}]") if cls in (list, tuple) or issubclass(cls, dict) else (lambda key: f".{key}")

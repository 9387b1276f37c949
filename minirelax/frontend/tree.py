"""Nested containers of arrays, taken apart into leaves and put together again.

Lists, tuples, named tuples, dicts and dataclasses are structure; so is None.  Everything else is a leaf.

>>> leaves, tree = flatten({"w": 1.5, "layers": [2.5, (3.5, None)]})
>>> leaves, tree.paths("p")
([1.5, 2.5, 3.5], ["p['w']", "p['layers'][0]", "p['layers'][1][0]"])
>>> tree.unflatten([x * 2 for x in leaves])
{'w': 3.0, 'layers': [5.0, (7.0, None)]}
>>> print(tree)
{'w': *, 'layers': [*, (*, None)]}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Tree:
    """The structure of a value: the container's class, its keys, and the structures of its parts; a leaf has no class."""

    cls: type | None = None
    keys: tuple = ()
    parts: tuple[Tree, ...] = ()
    _hash: int | None = field(default=None, compare=False, repr=False, init=False)

    def __hash__(self) -> int:
        if self._hash is None:
            object.__setattr__(self, "_hash", hash((self.cls, self.keys, self.parts)))
        return self._hash

    def unflatten(self, leaves: list) -> object:
        """The value with this structure and these leaves."""
        return self._build(iter(leaves))

    def paths(self, name: str) -> list[str]:
        """How each leaf is reached from the value called `name`, as Python writes it."""
        if self.cls is None:
            return [name]
        step = _step(self.cls)
        return [path for key, part in zip(self.keys, self.parts, strict=True) for path in part.paths(name + step(key))]

    def shows(self, value: object, leaves: Iterator) -> bool:
        """Has `value` this structure, and these very objects as leaves?  Much cheaper than taking it apart again."""
        if self.cls is None:
            return next(leaves) is value
        if value.__class__ is not self.cls or (parts := _parts(value))[0] != self.keys:
            return False
        for part, inside in zip(self.parts, parts[1], strict=True):
            if next(leaves) is not inside if part is LEAF else not part.shows(inside, leaves):
                return False
        return True

    def take(self, value: object) -> list | None:
        """The leaves of a value that has this structure (dicts may be in any order); None if it has another one.

        >>> flatten({"a": 1, "b": (2, None)})[1].take({"b": (5, None), "a": 4})
        [4, 5]
        """
        leaves: list = []
        return leaves if self._take(value, leaves) else None

    def _take(self, value: object, leaves: list) -> bool:
        keys, parts = (None, ()) if value.__class__ is np.ndarray else _parts(value)
        if self.cls is None or keys is None:
            leaves.append(value)
            return self.cls is None and keys is None
        if issubclass(self.cls, dict):
            same = isinstance(value, dict) and len(keys) == len(self.keys) and all(key in value for key in self.keys)
            parts = [value[key] for key in self.keys] if same else ()
        else:
            same = value.__class__ is self.cls and keys == self.keys
        return same and all(part._take(inside, leaves) for part, inside in zip(self.parts, parts, strict=True))

    def __str__(self) -> str:
        return repr(self.unflatten([STAR] * len(self.paths(""))))

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


class _Star:
    """How a leaf shows in the text of a structure."""

    def __repr__(self) -> str:
        return "*"


STAR = _Star()
LEAF = Tree()
NONE = Tree(type(None))


def flatten(value: object, is_leaf: Callable[[object], bool] | None = None) -> tuple[list, Tree]:
    """The leaves of a value, in order, and its structure; `is_leaf` may stop earlier."""
    leaves: list = []
    return leaves, _take_apart(value, leaves, is_leaf)


def _take_apart(value: object, leaves: list, is_leaf: Callable[[object], bool] | None) -> Tree:
    if value is None:
        return NONE
    if value.__class__ is np.ndarray or (is_leaf is not None and is_leaf(value)):
        leaves.append(value)
        return LEAF
    keys, parts = _parts(value)
    if keys is None:
        leaves.append(value)
        return LEAF
    return Tree(value.__class__, keys, tuple(_take_apart(part, leaves, is_leaf) for part in parts))


def _parts(value: object) -> tuple[tuple | None, Iterable]:
    """The keys and parts of a container; None for anything else."""
    cls = value.__class__
    if issubclass(cls, dict):
        return tuple(value), value.values()
    if cls is list or cls is tuple:
        return tuple(range(len(value))), value
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        return cls._fields, value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        keys = tuple(f.name for f in dataclasses.fields(value) if f.init)
        return keys, [getattr(value, key) for key in keys]
    return ((), ()) if value is None else (None, ())


def _step(cls: type) -> Callable[[object], str]:
    """How a part of a container of this class is reached."""
    return (lambda key: f"[{key!r}]") if cls in (list, tuple) or issubclass(cls, dict) else (lambda key: f".{key}")

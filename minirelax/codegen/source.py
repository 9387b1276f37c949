"""Write source text: indentation, and one legal, distinct Python name per thing."""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from contextlib import contextmanager


class SourceWriter:
    """Lines of Python, indented by nested ``with writer.block("for ...:")``."""

    def __init__(self):
        self.lines: list[str] = []
        self.depth = 0

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        self.line(header)
        self.depth += 1
        yield
        self.depth -= 1

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


class Names:
    """Gives each key (a buffer, a size, an axis) a Python name: its own where it is free, else with underscores."""

    def __init__(self, reserved: frozenset[str]):
        self.taken = set(reserved)
        self.of: dict[object, str] = {}

    def give(self, key: object, wish: str) -> str:
        if key in self.of:
            return self.of[key]
        while wish in self.taken or keyword.iskeyword(wish):
            wish += "_"
        self.taken.add(wish)
        self.of[key] = wish
        return wish

    def fresh(self, prefix: str) -> str:
        """A new name ``prefix0, prefix1, ...`` that nothing has."""
        i = 0
        while f"{prefix}{i}" in self.taken:
            i += 1
        self.taken.add(f"{prefix}{i}")
        return f"{prefix}{i}"

"""A memory plan as a picture: steps from left to right, addresses downwards, a box for each tensor while it lives.

The heights are those at the plan's sizes; a size that has none counts as 64.
"""
from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from minirelax.ir.dim import Dim, names, value

if TYPE_CHECKING:
    from minirelax.explore.memory import MemoryPlan

WIDTH, HEIGHT, LEFT, TOP = 640, 320, 70, 20            # points
ASSUMED = 64                                            # a size that nobody gave
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#9d755d", "#eeca3b")


def memory_svg(plan: MemoryPlan) -> str:
    """The picture as SVG text."""
    given = dict(plan.sizes)

    def number(d: Dim) -> int:
        return value(d, {n: given.get(n, ASSUMED) for n in names(d)})

    total = max(1, sum(number(s.bytes) for s in plan.storages))
    steps = max(1, len(plan.steps))
    shapes = "".join(_shapes(plan, number, HEIGHT / total, WIDTH / steps))
    label = f"{total:,} bytes, {len(plan.storages)} storages, {len(plan.steps)} steps"
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" height="{TOP + HEIGHT + 10}" '
            f'font-family="sans-serif" font-size="10"><text x="{LEFT}" y="12">{label}</text>{shapes}</svg>')


def _shapes(plan: MemoryPlan, number, down: float, right: float) -> Iterator[str]:
    """The storages' frames and their tenants' boxes; `down` points a byte, `right` points a step."""
    top, colour = float(TOP), 0
    for s in plan.storages:
        height = number(s.bytes) * down
        yield f'<text x="2" y="{top + min(height, 12):.1f}">{escape(s.name)}</text>'
        yield _box(LEFT, top, WIDTH, height, "none", f"{s.name}: {s.bytes} bytes")
        for t in s.tenants:
            said = f"{t.name}: {t.type}, {t.bytes} bytes at {t.offset}, steps {t.first} to {t.last}"
            yield _box(LEFT + t.first * right, top + number(t.offset) * down, (t.last - t.first + 1) * right,
                       number(t.bytes) * down, COLOURS[colour % len(COLOURS)], said)
            colour += 1
        top += height


def _box(x: float, y: float, width: float, height: float, colour: str, said: str) -> str:
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}" stroke="#888" '
            f'fill-opacity="0.8"><title>{escape(said)}</title></rect>')

"""Comparing functions with control flow: traced and interpreted, and eager, against plain Python and NumPy."""

from __future__ import annotations

import numpy as np

import minirelax as mr
from minirelax.frontend.tree import flatten
from minirelax.ir.parser import parse
from minirelax.ir.verify import verify
from minirelax.jit import JitFunction


def z(*shape: int) -> np.ndarray:
    """Distinct numbers, neither all positive nor all negative."""
    return np.linspace(-1.5, 2, int(np.prod(shape, dtype=int)), dtype=np.float32).reshape(shape)


def same(found: object, wanted: object) -> None:
    """Equal structures (but for the order of dicts), dtypes, shapes, and nearly equal numbers."""
    a, tree = flatten(found)
    b = tree.take(wanted)
    assert b is not None, f"{tree} is not {flatten(wanted)[1]}"
    for x, y in zip(a, b, strict=True):
        assert np.asarray(x).dtype == np.asarray(y).dtype and type(x) is type(y)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def check(reference, f, *calls: tuple, **options) -> JitFunction:
    """`f` gives what `reference` does, traced and eagerly; its modules are well formed, and their text is read back."""
    g = mr.jit(f, target="interpret", **options)
    for args in calls:
        wanted = reference(*map(_copy, args))
        same(g(*map(_copy, args)), wanted)
        same(f(*map(_copy, args)), wanted)
    for entry in g._all:
        module = entry.traced.module
        verify(module)
        assert parse(str(module)) == module
    return g


def _copy(x: object) -> object:
    leaves, tree = flatten(x)
    return tree.unflatten([v.copy() if isinstance(v, np.ndarray) else v for v in leaves])


def nodes(g: JitFunction, cls: type) -> list:
    """The bindings of this kind in the latest trace."""
    return [b for f in g._all[-1].traced.module.functions for b in f.bindings if isinstance(b.value, cls)]

"""Is everything to be checked while running?  Asked for by ``MINIRELAX_BOUNDSCHECK=1``, or for a while by `checking`.

Then kernels are compiled with a check of every index (`minirelax.codegen.bounds`), and library routines get their arrays between
guard zones (`minirelax.ir.library`).

>>> with checking():
...     is_checked()
True
"""
from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

VARIABLE = "MINIRELAX_BOUNDSCHECK"
_asked: ContextVar[bool] = ContextVar("checking", default=False)


def kernels_are_checked() -> bool:
    """Are kernels to be compiled with checks?  Only the environment says so."""
    return os.environ.get(VARIABLE, "") not in ("", "0")


def is_checked() -> bool:
    """Are library routines to be watched?"""
    return _asked.get() or kernels_are_checked()


@contextmanager
def checking() -> Iterator[None]:
    """Have library routines watched inside the ``with``, by this thread."""
    token = _asked.set(True)
    try:
        yield
    finally:
        _asked.reset(token)

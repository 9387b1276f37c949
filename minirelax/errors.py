"""Errors that say what went wrong, where in the user's file, and what to do about it."""
from __future__ import annotations

import linecache
import os
import sys
from types import FrameType, TracebackType

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep
ELSEWHERE = "minirelax.numpy has what is supported; do the rest outside the compiled function"
RAGGED = "give all parts one length: pad the shorter ones"
OUT_OF_RANGE = "clip or wrap the indices, or use np.take(..., mode='clip')"  # said by every target
COMPILER = tuple(PACKAGE + part for part in ("passes", "schedule", "codegen", "pipeline.py"))  # where no mistake is the user's


class CompileError(Exception):
    """Base of everything that a mistake in a user's program, or in a call of it, can raise.

    `what` names the operation and the fact, `where` the user's line (found by walking out of this package when not
    given), `hint` the way out.
    """

    def __init__(self, what: str, hint: str = "", where: str | None = None):
        where = user_line() if where is None else where
        self.what, self.hint, self.where = what, hint, where
        super().__init__("\n".join(filter(None, [what, where and f"  at {where}", hint and f"  hint: {hint}"])))


class ShapeError(CompileError, ValueError):
    """Sizes that do not fit: of operands, of an argument against its declaration, of a match_cast."""


class DTypeError(CompileError, TypeError):
    """An element type that does not fit, or that the compiler does not have."""


class ArgumentError(CompileError, TypeError):
    """A call with too few, too many, or the wrong kind of arguments."""


class BranchError(CompileError, TypeError):
    """Python control flow on the value of an array, which is not known while tracing."""


class UnsupportedError(CompileError, TypeError):
    """A NumPy function, or an option of one, that the compiler does not have."""

    def __init__(self, what: str, hint: str = ELSEWHERE, where: str | None = None):
        super().__init__(what, hint, where)


class IndexingError(CompileError, IndexError):
    """An index outside its axis, or of a kind that cannot be traced."""


class BoundsError(IndexingError):
    """An access outside of a buffer, which a build with ``MINIRELAX_BOUNDSCHECK=1`` has found: in `kernel`, of `buffer`."""

    def __init__(self, kernel: str, buffer: str, index: int, elements: int, where: str):
        what = f"kernel {kernel} uses element {index} of {buffer}, which has {elements}"
        super().__init__(what, "elements are counted from 0, in row-major order; look at the kernel's indices", where)
        self.kernel, self.buffer, self.index, self.elements = kernel, buffer, index, elements


class ParseError(CompileError, SyntaxError):
    """Text that is not IR."""


class VerifyError(CompileError):
    """A module that breaks an invariant of the IR: a mistake in a pass or in hand-written text."""


class CodegenError(CompileError):
    """A kernel for which no machine code could be made."""


class RunError(CompileError):
    """A failure while a compiled program ran, such as an index out of range."""


class LibraryError(RunError):
    """A library routine that raised an error (its cause), or did not keep to how routines are called; `routine` is its name."""

    def __init__(self, what: str, hint: str = "", routine: str = "", where: str = ""):
        super().__init__(what, hint, where)
        self.routine = routine


class MemoryLimitError(RunError):
    """A call that would take more memory than `memory_limit` allows; nothing has run, or no more than led to a loop or branch."""


class FileError(CompileError, ValueError):
    """A saved executable that cannot be used: damaged, of another version, or something else.  Save it again."""


class CacheWarning(UserWarning):
    """The object-code cache could not be read or written; the code was compiled again."""


def user_line() -> str:
    """``file:line   text`` of the innermost stack frame outside this package, or an empty string."""
    found = user_frame()
    return line_text(*found) if found else ""


def line_text(name: str, line: int) -> str:
    """A place in a file as errors show it: ``file:line   text``; empty without a file."""
    if not name:
        return ""
    return f"{os.path.basename(name)}:{line}   {linecache.getline(name, line).strip()}".rstrip()


def user_frame() -> tuple[str, int] | None:
    """File name and line of the innermost stack frame outside this package (and outside NumPy's own dispatch)."""
    frame = sys._getframe()
    while frame and (_is_generated(frame) or frame.f_code.co_filename.startswith(PACKAGE) or _is_numpy(frame.f_code.co_filename)):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame else None


def _is_generated(frame: FrameType) -> bool:
    """Is this the constructor of a dataclass of this package, whose text is in no file?"""
    return frame.f_code.co_filename == "<string>" and frame.f_globals.get("__name__", "").startswith(f"{__package__}.")


def without_internals(error: CompileError) -> CompileError:
    """`error` with the user's frames as its traceback; one that comes out of the compiler proper keeps all of them."""
    kept, traceback = [], error.__traceback__
    while traceback:
        name = traceback.tb_frame.f_code.co_filename
        if name.startswith(COMPILER):
            return error
        if not (name.startswith(PACKAGE) or _is_numpy(name)):
            kept.append(traceback)
        traceback = traceback.tb_next
    users = None
    for t in reversed(kept):
        users = TracebackType(users, t.tb_frame, t.tb_lasti, t.tb_lineno)
    return error.with_traceback(users)


def _is_numpy(filename: str) -> bool:
    return f"{os.sep}numpy{os.sep}" in filename and "site-packages" in filename

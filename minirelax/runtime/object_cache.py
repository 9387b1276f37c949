"""The object-code cache: machine code by content, on disk, shared between processes.

An entry's key is the SHA-256 of the caller's text and of everything else that decides the code: processor, features,
versions. Its file is ``<key>.obj`` in MINIRELAX_CACHE_DIR or ``~/.cache/minirelax``:

    magic (8 bytes), key (32 bytes), SHA-256 of the rest (32 bytes), symbols (one line), object code

Files appear by rename, with permissions for the user alone, and are verified before use: code from a file that somebody else
may write is not run. Whatever goes wrong with the directory costs one warning and the time to compile, nothing else.
"""

from __future__ import annotations

import functools
import os
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from minirelax.errors import CacheWarning, CodegenError
from minirelax.runtime import machine_code
from minirelax.runtime.machine_code import ObjectCode

try:  # hashlib loads OpenSSL, several milliseconds for the same function
    from _sha2 import sha256
except ImportError:
    try:
        from _sha256 import sha256
    except ImportError:
        from hashlib import sha256

MAGIC = b"mrobj01\n"
SUFFIX = ".obj"

_lock = threading.RLock()
_loaded: dict[bytes, dict[str, int]] = {}  # what this process has linked already, by key
_warned = False


@dataclass(frozen=True)
class Info:
    """What the cache holds on disk."""

    directory: str
    entries: int
    bytes: int


def load_or_compile(key_text: str, compile: Callable[[], ObjectCode]) -> dict[str, int]:
    """Addresses of the functions of one object, by symbol: from this process, from disk, or from `compile()`.

    `key_text` must decide the code together with the processor and the versions (which are added here): pass the source text,
    the signatures and `Options.text`. Errors of `compile` come through.
    """
    key = entry_key(key_text)
    with _lock:
        if key not in _loaded:
            code = _read(key)
            addresses = _link([code]) if code else None
            if addresses is None:
                code = compile()
                _write(key, code)
                addresses = machine_code.load([code])
            _loaded[key] = addresses
        return _loaded[key]


def load_or_compile_each(key_texts: Mapping[str, str],
                         compile: Callable[[tuple[str, ...]], Mapping[str, ObjectCode]]) -> dict[str, int]:
    """Addresses of many functions, each an entry of its own: a program that changes in one kernel compiles one kernel.

    `key_texts` gives the key text of each symbol; `compile(missing)` returns an object for each missing one, under
    exactly that symbol (`machine_code.compile_separately` does). What is on disk is linked in one go.
    """
    keys = {symbol: entry_key(f"{symbol}\n{text}") for symbol, text in key_texts.items()}
    with _lock:
        stored = {symbol: code for symbol, key in keys.items() if key not in _loaded and (code := _read(key))}
        addresses = _link(stored.values()) or {}
        missing = tuple(symbol for symbol, key in keys.items() if key not in _loaded and symbol not in addresses)
        if missing:
            fresh = compile(missing)
            for symbol in missing:
                _write(keys[symbol], fresh[symbol])
            addresses |= machine_code.load([fresh[symbol] for symbol in missing])
        _loaded.update((keys[symbol], {symbol: address}) for symbol, address in addresses.items())
        return {symbol: _loaded[key][symbol] for symbol, key in keys.items()}


def read(key_text: str) -> bytes | None:
    """The bytes stored under a key text, verified; None if there are none."""
    found = _read(entry_key(key_text))
    return found.data if found else None


def write(key_text: str, data: bytes) -> None:
    """Store bytes under a key text."""
    _write(entry_key(key_text), ObjectCode(data, ()))


def entry_key(key_text: str) -> bytes:
    """The 32-byte key of a text on this processor with these versions."""
    return sha256(f"{_environment()}\n{key_text}".encode()).digest()


@functools.cache
def _environment() -> str:
    """Everything besides the caller's text that decides object code."""
    import llvmlite
    import llvmlite.binding as llvm
    import numpy

    package = sys.modules["minirelax"]
    return "\n".join([
        f"minirelax {getattr(package, '__version__', '')} recipe {machine_code.RECIPE}",
        f"numba {numba_version()} llvmlite {llvmlite.__version__} numpy {numpy.__version__}",
        f"python {sys.implementation.cache_tag}{sys.abiflags}",
        f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {machine_code.host_features()}",
    ])


def numba_version() -> str:
    """Numba's version, read from its text: importing it takes longer than loading all of a program's code.

    >>> numba_version()[0].isdigit()
    True
    """
    if "numba" in sys.modules:
        return sys.modules["numba"].__version__
    import importlib.util

    found = importlib.util.find_spec("numba")
    folder = os.path.dirname(found.origin) if found and found.origin else ""
    try:
        with open(os.path.join(folder, "_version.py"), encoding="utf-8") as file:
            text = file.read()
        return text.split('"version":', 1)[1].split('"')[1]
    except (OSError, IndexError):  # an unusual build of Numba: ask the package's metadata, slowly
        from importlib import metadata

        try:
            return metadata.version("numba")
        except metadata.PackageNotFoundError:
            return "none"


# --- the directory

def directory() -> str:
    """Where entries are, or would be, kept."""
    return os.environ.get("MINIRELAX_CACHE_DIR") or os.path.join(os.path.expanduser("~"), ".cache", "minirelax")


def info() -> Info:
    """Count the entries on disk and their bytes."""
    sizes = [entry.stat().st_size for entry in _entries()]
    return Info(directory(), len(sizes), sum(sizes))


def clear() -> int:
    """Remove every entry on disk (what this process has loaded stays); the number of entries removed."""
    count = 0
    for entry in list(_entries()):
        os.unlink(entry.path)
        count += 1
    return count


def _entries() -> Iterable[os.DirEntry[str]]:
    try:
        with os.scandir(directory()) as found:
            return [entry for entry in found if entry.name.endswith(SUFFIX) and entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []


def _path(key: bytes) -> str:
    return os.path.join(directory(), key.hex() + SUFFIX)


# --- one entry

def _read(key: bytes) -> ObjectCode | None:
    """The entry, verified; None if there is none. A file that is not exactly what was written is worth a warning."""
    try:
        _check_owner(os.stat(directory()), "the directory", stat.S_IWOTH)
        with open(os.open(_path(key), os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)), "rb") as file:
            _check_owner(os.fstat(file.fileno()), "an entry", stat.S_IWGRP | stat.S_IWOTH)
            data = file.read()
        return _unpack(key, data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _warn(f"cannot use {_path(key)}: {error}")
        return None


def _check_owner(status: os.stat_result, what: str, forbidden: int) -> None:
    """Refuse code that another user could have put there."""
    if hasattr(os, "geteuid") and (status.st_uid != os.geteuid() or status.st_mode & forbidden):
        raise ValueError(f"{what} belongs to another user or may be written by others")


def _pack(key: bytes, code: ObjectCode) -> bytes:
    payload = " ".join(code.symbols).encode() + b"\n" + code.data
    return MAGIC + key + sha256(payload).digest() + payload


def _unpack(key: bytes, data: bytes) -> ObjectCode:
    if data[:8] != MAGIC:
        raise ValueError("written by another version")
    if data[8:40] != key or sha256(data[72:]).digest() != data[40:72]:
        raise ValueError("damaged")
    symbols, _, code = data[72:].partition(b"\n")
    return ObjectCode(code, tuple(symbols.decode().split()))


def _write(key: bytes, code: ObjectCode) -> None:
    """Write the entry under another name, then rename: readers and other writers see a whole file or none."""
    path = _path(key)
    temporary = f"{path}.{os.getpid()}.{threading.get_ident()}"
    try:
        os.makedirs(directory(), mode=0o700, exist_ok=True)
        _check_owner(os.stat(directory()), "the directory", stat.S_IWOTH)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(_pack(key, code))
        os.replace(temporary, path)
    except (OSError, ValueError) as error:
        _warn(f"cannot write to {directory()}: {error}")
        try:
            os.unlink(temporary)
        except OSError:
            pass


def _link(codes: Iterable[ObjectCode]) -> dict[str, int] | None:
    """Addresses of stored code; None if there is none or LLVM does not take it."""
    try:
        codes = list(codes)
        return machine_code.load(codes) if codes else None
    except CodegenError as error:
        _warn(str(error))
        return None


def _warn(text: str) -> None:
    """Once per process: whatever is wrong with the directory is wrong for every entry."""
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(f"object-code cache: {text}; compiling again", CacheWarning, stacklevel=3)

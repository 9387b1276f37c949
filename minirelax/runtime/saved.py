"""A saved executable: one file, from which another process of the same version makes the program without its source.

The file is a zip archive whose members are stored as they are, so that ordinary tools show what is in it:

    minirelax.json        the number of this format, the version of minirelax, the options of the compilation
    module.txt            the traced program: the text that ``str`` of a module gives and `parse` reads
    constants/NAME.npy    the module's constant arrays
    weights/NAME.npy      arrays for main's bound parameters, where they were saved along

Its comment, the last 64 bytes, is the SHA-256 of everything before: whatever is cut off, added or changed is noticed before
anything else is looked at.  What is kept is the program as it was traced, not what it was compiled to.  So a file is right on
every processor, and fast on each; its machine code is found in the cache, or made at the first load.

A saved executable is a program, and whoever loads it runs it natively: the checksum guards against damage, not against
malice.  But a file can only say what the text of a module can: nothing in it is unpickled, evaluated or imported.
"""

from __future__ import annotations

import io
import os
import stat
import zipfile
from dataclasses import dataclass, field

import numpy as np

from minirelax.errors import CompileError, FileError
from minirelax.ir.graph import Module
from minirelax.ir.parser import parse
from minirelax.ir.types import dtype_name
from minirelax.ir.verify import verify
from minirelax.passes.base import entry
from minirelax.passes.options import Options
from minirelax.runtime.arguments import check_weights
from minirelax.runtime.object_cache import sha256

FORMAT = 1
MANIFEST, TEXT, CONSTANTS, WEIGHTS = "minirelax.json", "module.txt", "constants", "weights"
LARGEST_TEXT = 1 << 24  # bytes: reading it takes a hundred times as many
DIGEST = 64  # hexadecimal digits of a SHA-256
START = b"PK\3\4"  # of a zip archive; the first member's name follows 26 bytes later
LONG_AGO = (1980, 1, 1, 0, 0, 0)  # so that the same program gives the same file
AGAIN = "save it again: f.executable.save(path) for a jitted function f"


@dataclass(frozen=True)
class Saved:
    """What is in a file: the traced module, the options it is compiled with, and the weights, if any."""

    module: Module
    options: Options = field(default_factory=Options)
    weights: tuple[np.ndarray, ...] | None = None


# --- to a file


def write(path: str | os.PathLike, saved: Saved) -> None:
    """Write a file under another name, then rename it: at `path` there is the whole new file, or what was there before."""
    temporary = f"{os.fspath(path)}.{os.getpid()}.partial"
    try:
        with open(temporary, "xb") as file:
            file.write(pack(saved))
        os.replace(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def pack(saved: Saved) -> bytes:
    """The bytes of a file.  Raises FileError for a program too large to be read again."""
    import json

    from minirelax import __version__

    manifest = {"format": FORMAT, "minirelax": __version__, **_plain(saved.options)}
    members = {MANIFEST: json.dumps(manifest).encode(), TEXT: str(saved.module).encode("utf-8", "surrogatepass")}
    if len(members[TEXT]) > LARGEST_TEXT:
        raise FileError(f"the program's text has {len(members[TEXT])} bytes, more than {LARGEST_TEXT}", "save it in parts", "")
    members |= {_member(CONSTANTS, c.name): _npy(c.array.value) for c in saved.module.constants}
    bound = entry(saved.module).bound if saved.weights is not None else ()
    members |= {_member(WEIGHTS, v.name): _npy(a) for v, a in zip(bound, saved.weights or (), strict=True)}
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = b"0" * DIGEST
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name, LONG_AGO), data)
    content = whole.getbuffer()
    content[-DIGEST:] = _digest(content)
    return bytes(content)


def _plain(options: Options) -> dict[str, object]:
    """The options as JSON has them; rules of a user's are none of them."""
    return {"bounds": dict(options.bounds), "without": sorted(options.without), "memory_limit": options.memory_limit}


def _digest(content: memoryview) -> bytes:
    return sha256(content[:-DIGEST]).hexdigest().encode()


def _member(folder: str, name: str) -> str:
    return f"{folder}/{name}.npy"


def _npy(array: np.ndarray) -> bytes:
    data = io.BytesIO()
    np.lib.format.write_array(data, np.asarray(array, order="C"), version=(1, 0), allow_pickle=False)
    return data.getvalue()


# --- from a file


def read(path: str | os.PathLike) -> Saved:
    """What the file at `path` holds.  Raises FileError for one that is damaged, of another version, or something else.

    A file that is missing or cannot be opened raises OSError, as `open` does.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):
        raise FileError("this is no ordinary file", AGAIN, os.fspath(path))
    with open(path, "rb") as file:
        return unpack(file.read(), os.fspath(path))


def unpack(data: bytes, where: str) -> Saved:
    """What `pack` gave; `where` it is from, for errors."""
    if data[:4] != START or data[30 : 30 + len(MANIFEST)] != MANIFEST.encode():
        raise FileError("this is not a saved executable", AGAIN, where)
    if _digest(memoryview(data)) != data[-DIGEST:]:
        raise FileError("the file is damaged: cut off, or changed after it was saved", "copy it again, or save it again", where)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _unpacked(archive, where)
    except FileError:
        raise
    except CompileError as e:
        raise FileError(f"there is no valid program in the file: {e.what}", AGAIN, f"{where}, {e.where}") from None
    except Exception as e:  # the readers of archives, JSON, arrays and text raise many kinds for bytes that nobody wrote
        raise FileError(f"minirelax did not write this file: {e}", AGAIN, where) from e


def _unpacked(archive: zipfile.ZipFile, where: str) -> Saved:
    """The members, each looked at only if those before are right."""
    members = archive.infolist()
    names = {m.filename for m in members}
    if len(names) != len(members) or any(map(_is_compressed, members)):
        raise ValueError("a member is compressed, or there twice")
    options = _options(archive.read(MANIFEST), where)
    constants = {name: _array(archive.read(name)) for name in names if name.startswith(f"{CONSTANTS}/")}
    module = parse(_text(archive), {name[len(CONSTANTS) + 1 : -len(".npy")]: array for name, array in constants.items()})
    if all(f.private for f in module.functions):
        raise ValueError("no function in it can be called")
    verify(module)
    params = entry(module).bound
    needed = {MANIFEST, TEXT, *(_member(CONSTANTS, c.name) for c in module.constants)}
    weights = [_member(WEIGHTS, p.name) for p in params]
    if names == needed.union(weights):
        return Saved(module, options, check_weights(params, [_array(archive.read(name)) for name in weights]))
    if names == needed:
        return Saved(module, options)
    raise ValueError("its members are not those that the program needs")


def _text(archive: zipfile.ZipFile) -> str:
    if archive.getinfo(TEXT).file_size > LARGEST_TEXT:
        raise ValueError(f"{TEXT} has more than {LARGEST_TEXT} bytes")
    return archive.read(TEXT).decode("utf-8", "surrogatepass")


def _is_compressed(info: zipfile.ZipInfo) -> bool:
    return info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size


def _options(manifest: bytes, where: str) -> Options:
    """The options, from a manifest of this format and version."""
    import json

    from minirelax import __version__

    content = json.loads(manifest)
    if content["format"] != FORMAT:
        raise FileError(f"the file has format {content['format']}, and this minirelax reads {FORMAT}", AGAIN, where)
    if content["minirelax"] != __version__:
        hint = "save it again with this version, or load it with that one"
        raise FileError(f"saved by minirelax {content['minirelax']}, and this is {__version__}", hint, where)
    bounds = {name: (low, high) for name, (low, high) in content["bounds"].items()}
    if not all(type(x) in (int, type(None)) for pair in bounds.values() for x in pair):
        raise ValueError("bounds are numbers")
    return Options.of(bounds, without=map(str, content.get("without", ())), memory_limit=content.get("memory_limit"))


def _array(data: bytes) -> np.ndarray:
    """The array of an .npy file, which must be one that `_npy` could have written."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array in another version of the .npy format")
    shape, transposed, dtype = np.lib.format.read_array_header_1_0(stream)
    count = len(data) - stream.tell()
    if transposed or dtype_name(dtype) is None or int(np.prod(shape, dtype=object)) * dtype.itemsize != count:
        raise ValueError("an array that is not of its size, or of no type that programs have")
    return np.ndarray(shape, dtype, data, stream.tell())

"""Saved executables: one file that another process runs without the source, and that is refused when anything is wrong."""

import io
import json
import os
import pickle
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

import minirelax as mr
from minirelax import f32
from minirelax.errors import ArgumentError, DTypeError, FileError, ParseError, RunError, ShapeError
from minirelax.ir.graph import Array
from minirelax.runtime import object_cache, program_cache, saved

SCALE = np.linspace(0.5, 2, 24, dtype="f4")  # too long to be written out in the text
SHIFT = np.float32([1, 2])


def layer(p, x: f32["n", 8], z):  # noqa: F821   n is a size
    y = np.maximum(x @ p["w"] + p["b"], 0) * SCALE
    return y, (y.sum(axis=1), np.exp(x[:, :2]) + SHIFT, z * 2 if z.shape[0] != 3 else z)


WEIGHTS = {
    "w": np.random.default_rng(0).standard_normal((8, 24)).astype("f4"),
    "b": np.random.default_rng(1).standard_normal(24).astype("f4"),
}
MEMBERS = ("minirelax.json", "module.txt", "constants/c0.npy", "constants/c1.npy", "weights/p_b.npy", "weights/p_w.npy")


def want(x, z):
    y, rest = layer(WEIGHTS, x, z)
    return y, *rest


def rows(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 8)).astype("f4")


Z = np.arange(4.0)


@pytest.fixture(scope="module")
def executable() -> mr.Executable:
    f = mr.jit(layer, constants="p", bounds={"n": (1, 64)})
    f(WEIGHTS, rows(5), Z)
    return f.executable


@pytest.fixture(scope="module")
def whole(executable, tmp_path_factory) -> bytes:
    """A file with everything in it."""
    path = tmp_path_factory.mktemp("saved") / "layer.mrx"
    executable.save(path, WEIGHTS)
    return path.read_bytes()


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load bytes as a file called layer.mrx."""
    monkeypatch.chdir(tmp_path)

    def from_bytes(data: bytes) -> mr.Executable:
        Path("layer.mrx").write_bytes(data)
        return mr.Executable.load("layer.mrx")

    return from_bytes


@pytest.fixture
def refuse(load, monkeypatch):
    """The message with which a file is refused, before it is compiled."""

    def never(*_):
        raise AssertionError("compiled")

    def message(data: bytes) -> str:
        monkeypatch.setattr(program_cache, "compiled", never)
        with pytest.raises(FileError) as caught:
            load(data)
        return str(caught.value)

    return message


# ---- it comes back


def test_members_of_the_file(whole):
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        assert set(archive.namelist()) == set(MEMBERS)
        text = archive.read("module.txt").decode()
    assert "pack" not in text and "kernel" not in text  # nothing that depends on a machine
    assert np.load(io.BytesIO(whole))["weights/p_w"].tobytes() == WEIGHTS["w"].tobytes()


def test_loads_with_its_weights(load, whole):
    loaded = load(whole)
    for n in (1, 2, 5, 64):
        for got, right in zip(loaded(rows(n), Z), want(rows(n), Z), strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)
            assert got.dtype == right.dtype


def test_a_loaded_executable_can_be_inspected_and_saved_again(load, whole, executable, tmp_path):
    loaded = load(whole)
    assert loaded.stages[0].module == executable.stages[0].module and loaded.module == executable.module
    assert loaded.table == executable.table and loaded.source == executable.source
    assert loaded.tiling.names == executable.tiling.names
    assert repr(loaded) == repr(executable) == "<executable (x: f32[n, 8], z: f64[m]), 2 weights>"
    loaded.save(tmp_path / "again.mrx")
    assert (tmp_path / "again.mrx").read_bytes() == whole


def test_the_same_program_gives_the_same_file(executable, whole, tmp_path):
    executable.save(tmp_path / "a.mrx", weights=[WEIGHTS["w"], np.asfortranarray(WEIGHTS["b"])])
    assert (tmp_path / "a.mrx").read_bytes() == whole


def test_without_weights_they_are_bound_later(executable, tmp_path):
    executable.save(tmp_path / "bare.mrx")
    loaded = mr.Executable.load(tmp_path / "bare.mrx")
    with pytest.raises(ArgumentError) as caught:
        loaded(rows(4), Z)
    assert caught.value.what == "2 weights expected, 0 given"
    assert caught.value.hint == ".bind(weights) takes p_w: f32[8, 24], p_b: f32[24]"
    for weights in (WEIGHTS, list(WEIGHTS.values())):
        np.testing.assert_allclose(loaded.bind(weights)((rows(4), Z))[0], want(rows(4), Z)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "weights, kind, what",
    [
        ([WEIGHTS["w"]], ArgumentError, "2 weights expected, 1 given"),
        ([WEIGHTS["w"].T, WEIGHTS["b"]], ShapeError, "argument p_w: expected f32[8, 24], got an array of shape (24, 8)"),
        ([WEIGHTS["w"], WEIGHTS["b"].astype("f8")], DTypeError, "argument p_b: expected f32[24], got an array"),
    ],
)
def test_weights_that_do_not_fit(executable, tmp_path, weights, kind, what):
    for use in (executable.bind, lambda w: executable.save(tmp_path / "file", w)):
        with pytest.raises(kind, match=re.escape(what)):
            use(weights)
    assert not list(tmp_path.iterdir())


CALLS = {
    "too few": ((rows(4),), ArgumentError, "2 arguments expected, 1 given"),
    "too many": ((rows(4), Z, Z), ArgumentError, "2 arguments expected, 3 given"),
    "another shape": (
        (rows(4).T, Z),
        ShapeError,
        "argument x: expected f32[n, 8], got an array of shape (8, 4): axis 1 is 4, not 8",
    ),
    "another rank": ((rows(4)[0], Z), ShapeError, "argument x: expected f32[n, 8], got an array of shape (8,): 1 axis, not 2"),
    "another dtype": (
        (rows(4).astype("f8"), Z),
        DTypeError,
        "argument x: expected f32[n, 8], got an array of shape (4, 8): dtype float64, not float32",
    ),
    "no array": (("text", Z), ArgumentError, "argument x: 'str' is not an array type"),
    "a guard": ((rows(4), Z[1:]), ShapeError, "m != 3 does not hold: m = 3 (the size of axis 0 of z), 3"),
    "a bound": ((rows(65), Z), ShapeError, "n <= 64 does not hold: n = 65 (the size of axis 0 of x), 64"),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_do_not_fit(load, whole, name):
    args, kind, what = CALLS[name]
    loaded = load(whole)
    with pytest.raises(kind) as caught:
        loaded(*args)
    assert caught.value.what == what and "test_save_load.py" in caught.value.where


def test_a_call_takes_what_becomes_the_declared_array(load, whole):
    x = rows(4)
    for given in (x.tolist(), x.astype(">f4"), np.asfortranarray(x), x[::-1][::-1]):
        np.testing.assert_array_equal(load(whole)(given, Z)[0], load(whole)(x, Z)[0])


def test_scalars_empty_arrays_and_odd_constants(tmp_path):
    """Constants and weights of every kind: no axes, no elements, NaN payloads, bool, 64 bits."""
    odd = np.array([0x7FC12345], np.uint32).view("f4")
    flags, large = np.array([True, False]), np.array(2**62, np.int64)

    @mr.jit(constants=("empty", "scale"))
    def f(x, empty, scale):
        return np.where(flags, x * scale, odd), large + x[:1].astype(np.int64), np.sum(empty) + x

    x = np.float32([1, 2])
    right = f(x, np.zeros((0, 3), "f4"), np.float32(3))
    f.executable.save(tmp_path / "odd.mrx", (np.zeros((0, 3), "f4"), np.float32(3)))
    for got, r in zip(mr.Executable.load(tmp_path / "odd.mrx")(x), right, strict=True):
        assert got.tobytes() == r.tobytes() and got.dtype == r.dtype


def test_pickles_with_its_weights(load, whole):
    again = pickle.loads(pickle.dumps(load(whole)))
    np.testing.assert_array_equal(again(rows(4), Z)[0], load(whole)(rows(4), Z)[0])
    with pytest.raises(FileError, match="damaged.*\n  at a pickle"):
        saved.unpack(whole[:-1], "a pickle")


def test_what_was_not_compiled_cannot_be_saved(executable, tmp_path):
    bare = mr.Executable(executable.built, executable.prepare, executable.stages)
    with pytest.raises(ArgumentError, match="does not know what it was compiled from"):
        bare.save(tmp_path / "bare.mrx")


# ---- modules as text


def test_every_stage_reads_back_from_text_and_npz(executable, tmp_path, monkeypatch):
    """Not from arrays that happen to be alive: those are not found here."""
    monkeypatch.setattr(Array, "recall", staticmethod(lambda digest: None))
    for stage in executable.stages[:-1]:
        module = stage.module
        (tmp_path / "module.txt").write_text(str(module))
        np.savez(tmp_path / "module.npz", **{c.name: c.array.value for c in module.constants})
        with np.load(tmp_path / "module.npz") as constants:
            assert mr.parse((tmp_path / "module.txt").read_text(), constants) == module, stage.name
    with pytest.raises(ParseError, match="the array c0 is not given"):
        mr.parse((tmp_path / "module.txt").read_text())


# ---- writing


def test_a_failure_leaves_what_was_there(executable, tmp_path, monkeypatch):
    path = tmp_path / "layer.mrx"
    path.write_bytes(b"before")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as m, pytest.raises(OSError, match="No space"):
        m.setattr(os, "replace", full)
        executable.save(path)
    assert path.read_bytes() == b"before" and [p.name for p in tmp_path.iterdir()] == ["layer.mrx"]
    executable.save(path)
    assert path.read_bytes() != b"before" and [p.name for p in tmp_path.iterdir()] == ["layer.mrx"]
    with pytest.raises(FileNotFoundError):
        executable.save(tmp_path / "nowhere" / "layer.mrx")


def test_a_program_that_could_not_be_read_is_not_written(executable, tmp_path, monkeypatch):
    monkeypatch.setattr(saved, "LARGEST_TEXT", 100)
    with pytest.raises(FileError, match="the program's text has [0-9]+ bytes, more than 100"):
        executable.save(tmp_path / "layer.mrx")
    assert not list(tmp_path.iterdir())


# ---- another process


PROGRAM = """
import json, sys
import numpy as np
import minirelax as mr

run = mr.Executable.load("layer.mrx")
results = run(np.load("x.npy"), np.arange(4.0))
np.savez("results.npz", *results)
json.dump({"numba": "numba" in sys.modules, "pipeline": "minirelax.pipeline" in sys.modules}, sys.stdout)
"""


@pytest.mark.parametrize("cache", ["the same", "an empty"])
def test_another_process_runs_it_without_the_source(whole, tmp_path, cache):
    """Where the cache has the machine code, no pass runs, and nothing is compiled."""
    folder = object_cache.directory() if cache == "the same" else str(tmp_path / "cache")
    (tmp_path / "layer.mrx").write_bytes(whole)
    np.save(tmp_path / "x.npy", rows(7))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "MINIRELAX_CACHE_DIR": folder, "PYTHONPATH": str(Path(mr.__file__).parent.parent)},
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert json.loads(done.stdout) == dict.fromkeys(("numba", "pipeline"), cache == "an empty")
    with np.load(tmp_path / "results.npz") as found:
        for got, right in zip(found.values(), want(rows(7), Z), strict=True):
            np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)


AUDITED = """
import sys
import minirelax as mr
from minirelax.runtime import saved

saved.read("layer.mrx")                      # whatever has to be imported, is
events = []
sys.addaudithook(lambda event, args: events.append((event, args[0] if args else None)))
for _ in range(2):
    found = saved.read("layer.mrx")
seen = {event for event, _ in events}
assert {"open", "compile"} <= seen, seen     # the hook works, and so does Python's own parser, which makes a tree
opened = {name for event, name in events if event == "open"}
assert opened == {"layer.mrx"}, opened
print(sorted(seen - {"open", "compile"}))
"""


def test_reading_executes_nothing(whole, tmp_path):
    """Python reports what it runs: no code object, no pickled class, no marshalled code, no import, no process, no C call."""
    (tmp_path / "layer.mrx").write_bytes(whole)
    done = subprocess.run(
        [sys.executable, "-c", AUDITED], capture_output=True, text=True, timeout=300, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(mr.__file__).parent.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ran = {"exec", "import", "marshal.loads", "pickle.find_class", "os.system", "subprocess.Popen", "ctypes.dlopen"}
    assert not ran & set(json.loads(done.stdout.replace("'", '"'))), done.stdout


# ---- damage


def places(data: bytes) -> dict[str, int]:
    """Where to change a byte: all over every member and its header, in the directory, and in the checksum."""
    found = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for info in archive.infolist():
            start = info.header_offset + 30 + len(info.filename)
            found |= {
                f"{info.filename}: signature": info.header_offset,
                f"{info.filename}: time": info.header_offset + 10,
                f"{info.filename}: name": info.header_offset + 31,
                f"{info.filename}: first": start,
                f"{info.filename}: middle": start + info.file_size // 2,
                f"{info.filename}: last": start + info.file_size - 1,
            }
        found |= {f"directory + {i}": archive.start_dir + i for i in (0, 10, 20, 46, 60)}
    return found | {"end of the directory": len(data) - 64 - 22, "checksum": len(data) - 64, "last": len(data) - 1}


PLACES = [f"{m}: {part}" for m in MEMBERS for part in ("signature", "time", "name", "first", "middle", "last")]
PLACES += [f"directory + {i}" for i in (0, 10, 20, 46, 60)] + ["end of the directory", "checksum", "last"]


@pytest.mark.parametrize("place", PLACES)
def test_a_changed_byte_is_noticed_before_anything_is_read(refuse, whole, monkeypatch, place):
    monkeypatch.setattr(saved, "_unpacked", None)
    at = places(whole)[place]
    for flipped in (1, 0x80):
        message = refuse(whole[:at] + bytes([whole[at] ^ flipped]) + whole[at + 1 :])
        foreign = place in ("minirelax.json: signature", "minirelax.json: name")
        assert message.startswith("this is not a saved executable" if foreign else "the file is damaged"), message


@pytest.mark.parametrize("left", [0, 1, 4, 29, 43, 44, 45, 100, 0.1, 0.5, 0.9, -100, -65, -64, -63, -1])
def test_a_truncated_file_is_refused(refuse, whole, left):
    size = int(left * len(whole)) if isinstance(left, float) else left
    message = refuse(whole[:size])
    assert message.startswith("the file is damaged" if size < 0 or size >= 44 else "this is not a saved executable")


@pytest.mark.parametrize("added", [b"\0", b"x" * 64, b"PK"])
def test_a_file_that_has_grown_is_refused(refuse, whole, added):
    assert refuse(whole + added).startswith("the file is damaged")
    assert refuse(added + whole).startswith("this is not a saved executable")


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive_of(members, comment: bytes = b"", method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        archive.comment = comment
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


def sealed(members, method: int = zipfile.ZIP_STORED) -> bytes:
    """A file that nobody saved, with the right checksum."""
    content = archive_of(members, b"0" * 64, method)
    return content[:-64] + object_cache.sha256(content[:-64]).hexdigest().encode()


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_that_was_replaced_is_noticed(refuse, whole, name):
    """By a valid one, with everything that a zip program updates, and the old checksum."""
    members, other = members_of(whole), b'{"format": 1, "minirelax": "' + mr.__version__.encode() + b'", "bounds": {}}'
    members[name] = {".npy": npy(np.zeros(24, "f4")), ".txt": other, "json": other}[name[-4:]]
    assert refuse(archive_of(members.items(), whole[-64:])).startswith("the file is damaged")


OTHER_FILES = {
    "empty": b"",
    "text": b"def main(x: f32[n]) -> f32[n]:\n    return x\n",
    "a pickle": pickle.dumps([1, 2, 3]),
    "a zip archive": archive_of([("module.txt", b""), ("minirelax.json", b"{}")]),
    "an npy file": b"\x93NUMPY\1\0" + bytes(120),
}


@pytest.mark.parametrize("name", OTHER_FILES)
def test_other_files_are_refused(refuse, name):
    assert refuse(OTHER_FILES[name]).startswith("this is not a saved executable\n  at layer.mrx")


def test_what_is_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        mr.Executable.load(tmp_path / "missing.mrx")
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(FileError, match="this is no ordinary file"):
            mr.Executable.load(path)


# ---- files with the right checksum that minirelax did not write


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=array.dtype.hasobject)
    return out.getvalue()


def manifest(**changes) -> bytes:
    return json.dumps({"format": 1, "minirelax": mr.__version__, "bounds": {}, **changes}).encode()


class Bomb:
    """Unpickling one is noticed."""

    def __reduce__(self):
        return pytest.fail, ("unpickled",)


def huge_header() -> bytes:
    """An array that claims 2**60 elements."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f4", "fortran_order": False, "shape": (2**30, 2**30)})
    return out.getvalue()


NOT_OURS, INVALID = "minirelax did not write this file: ", "there is no valid program in the file: "
STARTS = {
    "another format": ({"minirelax.json": manifest(format=2)}, "the file has format 2, and this minirelax reads 1"),
    "another version": ({"minirelax.json": manifest(minirelax="0.0.7")}, "saved by minirelax 0.0.7, and this is "),
    "no JSON": ({"minirelax.json": b"format 1"}, NOT_OURS),
    "deep JSON": ({"minirelax.json": b"[" * 200000}, NOT_OURS),
    "a JSON list": ({"minirelax.json": b"[1]"}, NOT_OURS),
    "no version": ({"minirelax.json": b'{"format": 1}'}, NOT_OURS),
    "bounds that are none": ({"minirelax.json": manifest(bounds={"n": ["1", 2]})}, NOT_OURS),
    "bounds of one": ({"minirelax.json": manifest(bounds={"n": [1]})}, NOT_OURS),
    "no text": ({"module.txt": None}, NOT_OURS),
    "an import": ({"module.txt": b"import os\n"}, INVALID + "not part of a module"),
    "an expression": ({"module.txt": b"print(1)\n"}, INVALID + "not part of a module"),
    "no function": ({"module.txt": b""}, NOT_OURS + "no function in it can be called"),
    "no Python": ({"module.txt": b"def main("}, INVALID + "not Python syntax"),
    "not UTF-8": ({"module.txt": b"\xff\xfe"}, NOT_OURS),
    "a null byte": ({"module.txt": b"\0"}, INVALID + "not Python syntax"),
    "deep text": ({"module.txt": b"(" * 100000}, INVALID + "not Python syntax"),
    "a wrong type": ({"module.txt": b"f32[n + 1]"}, INVALID),
    "an unknown op": ({"module.txt": b"destroy(x)"}, INVALID + "no op or function is called destroy"),
    "a member too few": ({"weights/p_b.npy": None}, NOT_OURS + "its members are not those"),
    "no constant": ({"constants/c0.npy": None}, (INVALID + "the array c0 is not given", NOT_OURS + "its members are not those")),
    "a member too many": ({"constants/c9.npy": npy(SHIFT)}, NOT_OURS + "its members are not those"),
    "a path": ({"../evil": b""}, NOT_OURS + "its members are not those"),
    "a pickled array": ({"constants/c0.npy": npy(np.array([Bomb()]))}, NOT_OURS + "an array that is not"),
    "another shape": ({"weights/p_b.npy": npy(SHIFT)}, INVALID + "argument p_b: expected f32[24]"),
    "another dtype": ({"weights/p_b.npy": npy(np.zeros(24))}, INVALID + "argument p_b: expected f32[24]"),
    "half precision": ({"weights/p_b.npy": npy(np.zeros(24, "f2"))}, NOT_OURS + "an array that is not"),
    "Fortran's order": ({"weights/p_w.npy": npy(np.asfortranarray(WEIGHTS["w"]))}, NOT_OURS + "an array"),
    "more than its size": ({"weights/p_b.npy": npy(WEIGHTS["b"]) + b"\0"}, NOT_OURS + "an array"),
    "a huge array": ({"weights/p_b.npy": huge_header()}, NOT_OURS + "an array that is not of its size"),
    "no npy": ({"weights/p_b.npy": b"text"}, NOT_OURS),
}


@pytest.mark.parametrize("name", STARTS)
def test_members_that_minirelax_did_not_write(refuse, whole, name):
    changes, start = STARTS[name]
    members = members_of(whole)
    text = members["module.txt"].decode()
    if name == "a wrong type":
        changes = {"module.txt": text.replace("-> Tuple[f32[n, 24]", "-> Tuple[f32[n, 25]").encode()}
    elif name == "an unknown op":
        changes = {"module.txt": re.sub(r"= maximum\(", "= destroy(", text).encode()}
    members |= changes
    message = refuse(sealed((k, v) for k, v in members.items() if v is not None))
    assert message.startswith(start) and "\n  at layer.mrx" in message, message


def test_compressed_members_and_members_that_are_there_twice(refuse, whole):
    members = list(members_of(whole).items())
    bomb = [*members[:1], ("module.txt", bytes(1 << 22)), *members[2:]]
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = sealed([*members[:1], *members])
    for data in (sealed(bomb, zipfile.ZIP_DEFLATED), twice):
        assert refuse(data).startswith("minirelax did not write this file: a member is compressed, or there twice")


def test_a_text_that_is_too_long_is_not_read(refuse, whole, monkeypatch):
    monkeypatch.setattr(saved, "LARGEST_TEXT", 100)
    assert refuse(whole).startswith("minirelax did not write this file: module.txt has more than 100 bytes")


def test_files_of_chance_with_the_right_checksum_are_read_or_refused(whole):
    """Whatever the bytes, there is a program, or a FileError."""
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for at in rng.integers(0, len(whole) - 64, rng.integers(1, 4)):
            data[at] = rng.integers(256)
        data[-64:] = object_cache.sha256(bytes(data[:-64])).hexdigest().encode()
        try:
            saved.unpack(bytes(data), "chance")
        except FileError:
            refused += 1
    assert refused > 100  # the archive's own checksums tell the rest


MESSAGES = """\
this is not a saved executable
  at layer.mrx
  hint: save it again: f.executable.save(path) for a jitted function f

the file is damaged: cut off, or changed after it was saved
  at layer.mrx
  hint: copy it again, or save it again

saved by minirelax 0.0.7, and this is {version}
  at layer.mrx
  hint: save it again with this version, or load it with that one

there is no valid program in the file: not part of a module
  at layer.mrx, line 1   import os
  hint: save it again: f.executable.save(path) for a jitted function f"""


def test_messages(refuse, whole):
    members = members_of(whole)
    files = (
        b"",
        whole[:-1],
        sealed((members | {"minirelax.json": manifest(minirelax="0.0.7")}).items()),
        sealed((members | {"module.txt": b"import os"}).items()),
    )
    assert "\n\n".join(map(refuse, files)) == MESSAGES.format(version=mr.__version__)


def test_a_library_routine_that_is_not_there_is_missed_at_the_call(tmp_path, monkeypatch):
    from minirelax.ir import library

    text = """
def main(x: f32[n]) -> f32[n]:
    with dataflow():
        v0: f32[_] = call_library("test_routine", x)
        v1: f32[n] = match_cast(v0, f32[n])
        output(v1)
    return v1
"""
    mr.compile(mr.parse(text)).save(tmp_path / "routine.mrx")
    loaded = mr.Executable.load(tmp_path / "routine.mrx")
    with pytest.raises(RunError, match="no library routine is called test_routine"):
        loaded(np.ones(3, "f4"))
    monkeypatch.setattr(library, "ROUTINES", {})
    mr.register_library("test_routine", lambda x: -x)
    np.testing.assert_array_equal(loaded(np.ones(3, "f4"))[0], -np.ones(3, "f4"))


SHAPED = """
def main(x: f32[n], s: Shape([n, k])) -> f32[n, k]:
    with dataflow():
        v0: f32[n, 1] = reshape(x, shape=(n, 1))
        v1: f32[n, k] = broadcast_to(v0, shape=(n, k))
        output(v1)
    return v1
"""


def test_shapes_are_passed_as_tuples(tmp_path):
    mr.compile(mr.parse(SHAPED)).save(tmp_path / "shaped.mrx")
    loaded, x = mr.Executable.load(tmp_path / "shaped.mrx"), np.float32([1, 2, 3])
    for shape in ((3, 2), [3, 2], np.array([3, 2]), np.array([3, 2], np.uint8)):
        np.testing.assert_array_equal(loaded(x, shape)[0], np.broadcast_to(x[:, None], (3, 2)))
    for wrong, kind in (((4, 2), ShapeError), ((3,), ShapeError), ((3.0, 2.0), DTypeError), ("no", DTypeError)):
        with pytest.raises(kind, match="argument s: expected Shape"):
            loaded(x, wrong)


LANGUAGE = """
@private
def grow(x: f32[n], k: i64[()]) -> f32[n]:
    with dataflow():
        v0: f32[n] = add(x, 1.0)
        output(v0)
    return v0

@private
def keep(x: f32[n], k: i64[()]) -> f32[n]:
    return x

@private
def test(c: f32[n], k: i64[()]) -> bool[()]:
    with dataflow():
        v0: bool[()] = less(k, 5)
        output(v0)
    return v0

@private
def step(c: f32[n], k: i64[()]) -> Tuple[f32[n], i64[()]]:
    with dataflow():
        v0: f32[n] = multiply(c, 2.0)
        v1: i64[()] = add(k, 1)
        v2: Tuple[f32[n], i64[()]] = (v0, v1)
        output(v2)
    return v2

def main(x: f32[n], p: bool[()], k: i64[()]) -> Tuple[f32[n], Shape([n, 2])]:
    v0: f32[n] = cond(p, grow, keep, x, k)
    v1: Tuple[f32[n], i64[()]] = while_loop(test, step, (), (v0, k))
    v2: f32[n] = v1[0]
    s: Shape([n, 2]) = shape(n, 2)
    v3: Tuple[f32[n], Shape([n, 2])] = (v2, s)
    return v3
"""


def test_functions_branches_loops_and_shapes(tmp_path):
    mr.compile(mr.parse(LANGUAGE)).save(tmp_path / "language.mrx")
    loaded, x = mr.Executable.load(tmp_path / "language.mrx"), np.float32([0, 1, 2])
    for p, k in ((True, 2), (False, 5)):
        got, shape = loaded(x, p, k)
        np.testing.assert_array_equal(got, (x + p) * 2 ** (5 - k))
        assert shape == (3, 2)
        mr.validate(loaded, x, p, k)

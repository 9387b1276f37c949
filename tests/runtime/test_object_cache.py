"""The object-code cache: what goes wrong costs one warning and a compilation, never a wrong result."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import warnings

import pytest

from minirelax.errors import CacheWarning, CodegenError
from minirelax.runtime import machine_code, object_cache
from minirelax.runtime.machine_code import ObjectCode, Options, compile_functions, compile_separately

SOURCE = """
def answer():
    return 42
"""


def compiled():
    return compile_functions(SOURCE, ["answer"], signatures={"answer": "i()"})


@pytest.fixture(scope="module")
def code():
    return compiled()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """A cache of its own, as a new process would see it; `fresh` forgets what this process has loaded."""
    monkeypatch.setenv("MINIRELAX_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(object_cache, "_loaded", {})
    monkeypatch.setattr(object_cache, "_warned", False)
    return tmp_path / "cache"


def call(address):
    return ctypes.CFUNCTYPE(ctypes.c_int64)(address)()


def load(code, expect_compile):
    """Load through the cache as a new process would; check whether it compiled."""
    object_cache._loaded.clear()
    compilations = []

    def compile():
        compilations.append(1)
        return code

    address = object_cache.load_or_compile("answer", compile)["answer"]
    assert call(address) == 42 and bool(compilations) == expect_compile


def only_entry(cache):
    (entry,) = cache.glob("*.obj")
    return entry


def test_second_load_comes_from_disk(cache, code):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load(code, True)
        load(code, False)
    assert os.stat(cache).st_mode & 0o777 == 0o700 and os.stat(only_entry(cache)).st_mode & 0o777 == 0o600
    assert object_cache.info() == object_cache.Info(str(cache), 1, only_entry(cache).stat().st_size)
    assert object_cache.clear() == 1 and object_cache.info().entries == 0
    load(code, True)


def test_within_a_process_nothing_is_loaded_twice(cache, code):
    first = object_cache.load_or_compile("answer", lambda: code)
    assert object_cache.load_or_compile("answer", pytest.fail) is first


DAMAGE = {
    "empty": lambda data: b"",
    "truncated": lambda data: data[:-10],
    "header only": lambda data: data[:72],
    "edited": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "other version": lambda data: b"mrobj00\n" + data[8:],
    "other key": lambda data: data[:8] + bytes(32) + data[40:],
    "garbage": lambda data: os.urandom(500),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_noticed_once_and_repaired(cache, code, kind):
    load(code, True)
    entry = only_entry(cache)
    entry.write_bytes(DAMAGE[kind](entry.read_bytes()))
    with pytest.warns(CacheWarning) as caught:
        load(code, True)
        entry.write_bytes(DAMAGE[kind](entry.read_bytes()))
        load(code, True)
    assert len(caught) == 1
    load(code, False)


def test_an_object_that_llvm_refuses_is_compiled_again(cache, code):
    object_cache.load_or_compile("other", lambda: code)
    key = object_cache.entry_key("answer")
    (cache / (key.hex() + ".obj")).write_bytes(object_cache._pack(key, ObjectCode(b"not an object", ("answer",))))
    with pytest.warns(CacheWarning, match="cannot be linked"):
        load(code, True)


@pytest.mark.parametrize("mode", [0o622, 0o602, 0o620])
def test_a_file_that_others_may_write_is_not_run(cache, code, mode):
    load(code, True)
    only_entry(cache).chmod(mode)
    with pytest.warns(CacheWarning, match="written by others"):
        load(code, True)


def test_a_link_in_the_place_of_an_entry_is_not_followed(cache, code, tmp_path):
    load(code, True)
    entry = only_entry(cache)
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    with pytest.warns(CacheWarning):
        load(code, True)
    assert not entry.is_symlink()


def test_a_directory_that_cannot_be_written(cache, code):
    cache.write_text("a file where the directory should be")
    with pytest.warns(CacheWarning) as caught:
        load(code, True)
        load(code, True)
    assert len(caught) == 1


def test_a_directory_that_others_may_write(cache, code):
    cache.mkdir()
    cache.chmod(0o777)
    with pytest.warns(CacheWarning):
        load(code, True)
    assert object_cache.info().entries == 0


def test_the_key_holds_versions_and_text(cache, monkeypatch):
    first = object_cache.entry_key("text")
    assert first != object_cache.entry_key("text ")
    environment = object_cache._environment()
    import llvmlite
    import numba

    assert f"numba {numba.__version__} " in environment and llvmlite.__version__ in environment
    monkeypatch.setattr(object_cache, "_environment", lambda: environment + "newer")
    assert first != object_cache.entry_key("text")


def test_numbas_version_is_read_without_importing_it():
    text = "import sys; from minirelax.runtime.object_cache import numba_version; print(numba_version(), 'numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    import numba

    assert done.stdout.split() == [numba.__version__, "False"]


TWO = {"one": "def one(a, low, high, scratch):\n    a[0] = 1", "two": "def two(a, low, high, scratch):\n    a[0] = 2"}


def test_each_function_is_an_entry_of_its_own(cache):
    asked = []

    def compile(names):
        asked.append(names)
        return compile_separately("\n".join(TWO[name] for name in names), names)

    def effect(address):
        word = ctypes.c_int64()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_int64] * 3)(address)(ctypes.addressof(word), 0, 1, 0)
        return word.value

    object_cache.load_or_compile_each({"one": TWO["one"]}, compile)
    object_cache._loaded.clear()
    both = object_cache.load_or_compile_each(TWO, compile)
    assert asked == [("one",), ("two",)]
    assert [effect(both[name]) for name in TWO] == [1, 2]
    object_cache._loaded.clear()
    object_cache.load_or_compile_each(TWO, pytest.fail)


def test_two_processes_write_at_the_same_time(cache):
    text = textwrap.dedent("""
        import sys
        sys.path.insert(0, sys.argv[1])
        from test_object_cache import compiled, call
        from minirelax.runtime import object_cache
        code = compiled()
        for i in range(100):
            object_cache._loaded.clear()
            found = object_cache._read(object_cache.entry_key("answer"))
            object_cache._write(object_cache.entry_key("answer"), code)
            assert found is None or found == code
        print(call(object_cache.load_or_compile("answer", None)["answer"]))
    """)
    command = [sys.executable, "-W", "error", "-c", text, os.path.dirname(__file__)]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=60) for process in both] == [("42\n", "")] * 2
    assert [entry.name for entry in cache.iterdir()] == [only_entry(cache).name]


def test_a_second_process_needs_no_numba(cache, code):
    load(code, True)
    text = textwrap.dedent("""
        import ctypes, sys
        from minirelax.runtime import object_cache
        address = object_cache.load_or_compile("answer", None)["answer"]
        print(ctypes.CFUNCTYPE(ctypes.c_int64)(address)(), "numba" in sys.modules)
    """)
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout == "42 False\n"


# --- machine code

def test_code_that_needs_numbas_runtime_is_refused():
    import numpy as np

    source = "def grow(a, low, high, scratch):\n    a[0] = np.zeros(a[1]).size"
    with pytest.raises(CodegenError, match="grow"):
        compile_functions(source, ["grow"], {"np": np})


def test_text_that_numba_refuses_is_a_codegen_error():
    with pytest.raises(CodegenError, match="Numba cannot compile bad"):
        compile_functions("def bad(a, low, high, scratch):\n    a[0] = nowhere", ["bad"])


def test_functions_may_call_each_other():
    source = "def inner(x):\n    return x + 1\n\ndef outer(x):\n    return inner(x) * 2"
    addresses = machine_code.load([compile_functions(source, ["inner", "outer"], signatures={"inner": "i(i)", "outer": "i(i)"})])
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(addresses["outer"])(20) == 42


def test_options_reach_llvm():
    assert Options(vector_bits=512).text != Options().text
    source = """
def double(a, low, high, scratch):
    x = words(a[0])
    for i in range(low, high):
        x[i] = x[i] * 2 + 1
"""
    from minirelax.runtime.intrinsics import intrinsics

    helpers = intrinsics()
    objects = {bits: compile_functions(source, ["double"], helpers, options=Options(vector_bits=bits)) for bits in (None, 512)}
    wide = "+avx512f" in machine_code.host_features()
    assert (objects[None].data != objects[512].data) or not wide


def test_undefined_symbols_of_an_object(code):
    assert list(machine_code.undefined_symbols(code.data)) == []
    assert list(machine_code.undefined_symbols(b"not an object")) == []

"""From Python source text to object code (with Numba) and from object code to addresses (with LLVM only).

`compile_functions` lowers each function with Numba and takes it from there: the raw functions are linked into one module, each
gets a wrapper with a plain C signature that drops Numba's error status, LLVM optimises and emits one relocatable object.
Numba's own `cfunc` would compile and optimise every function twice, and its wrapper needs Numba in the process that runs it.
`load` links objects into the process; it never imports Numba.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import llvmlite.binding as llvm

from minirelax.errors import CodegenError

RECIPE = "1"  # part of every cache key: change it when the same source text comes to give other object code
KERNEL = "v(piii)"  # void kernel(int64* arguments, int64 low, int64 high, int64 scratch)
FASTMATH_NONE = frozenset[str]()


@dataclass(frozen=True)
class ObjectCode:
    """A relocatable object and the functions to be had from it."""

    data: bytes
    symbols: tuple[str, ...]


@dataclass(frozen=True)
class Options:
    """How LLVM makes code. `text` goes into cache keys.

    `vector_bits` is LLVM's "prefer-vector-width" (None: LLVM's choice, which on AVX-512 processors is often 256).
    `fastmath` names flags that Numba puts on float operations. `checked` turns on Numba's bounds checks of arrays.
    """

    vector_bits: int | None = None
    level: int = 3
    fastmath: frozenset[str] = FASTMATH_NONE
    checked: bool = False

    @property
    def text(self) -> str:
        return f"{RECIPE} O{self.level} vector {self.vector_bits} fast {','.join(sorted(self.fastmath))} checked {self.checked}"


DEFAULT = Options()

# --- source text to object code


def compile_functions(source: str, names: Sequence[str], globals: Mapping[str, object] | None = None, *,
                      signatures: Mapping[str, str] | None = None, options: Options = DEFAULT) -> ObjectCode:
    """Compile the functions `names` of `source` into one object.

    Each has the kernel signature (`KERNEL`) unless `signatures` gives another: result, then arguments in parentheses, each one
    of `i` int64, `p` pointer to int64, `v` nothing. They may call each other by name. Division follows NumPy's error model and
    nothing is allocated or raised. Raises CodegenError if Numba refuses the text or the code needs a symbol that a
    process without Numba does not have.
    """
    modules = _lower(source, names, globals or {}, signatures or {}, options)
    module = llvm.parse_assembly("")
    for _, part in modules:
        module.link_in(part)
    return _emit(module, tuple(names), options)


def compile_separately(source: str, names: Sequence[str], globals: Mapping[str, object] | None = None, *,
                       options: Options = DEFAULT) -> dict[str, ObjectCode]:
    """As `compile_functions`, but with an object per function; they cannot call each other."""
    return {name: _emit(module, (name,), options) for name, module in _lower(source, names, globals or {}, {}, options)}


def _lower(source: str, names: Sequence[str], globals: Mapping[str, object], signatures: Mapping[str, str],
           options: Options) -> list[tuple[str, llvm.ModuleRef]]:
    """Numba's part: a module of unoptimised LLVM IR for each function, with its wrapper."""
    from numba import types
    from numba.core import compiler, errors, registry
    from numba.core.compiler_lock import global_compiler_lock

    kinds = {"i": types.int64, "p": types.CPointer(types.int64), "v": types.void}
    namespace: dict[str, object] = dict(globals)
    exec(compile(source, "<kernels>", "exec"), namespace)
    functions = {name: namespace[name] for name in names}
    typed = {}
    for name in names:
        text = signatures.get(name, KERNEL)
        typed[name] = kinds[text[0]](*(kinds[kind] for kind in text[2:-1]))
        if name in signatures:
            namespace[name] = types.ExternalFunction(name, typed[name])
    target, flags = registry.cpu_target, _flags(options)
    modules = []
    target.typing_context.refresh()  # what other modules have registered with Numba since
    target.target_context.refresh()
    with global_compiler_lock:
        for name, function in functions.items():
            signature = typed[name]
            try:
                result = compiler.compile_extra(
                    target.typing_context, target.target_context, function, signature.args, signature.return_type, flags, {},
                    pipeline_class=_pipeline())
            except errors.NumbaError as error:
                raise CodegenError(f"Numba cannot compile {name}: {error}") from error
            modules.append((name, _with_wrapper(target.target_context, result, name, options)))
    return modules


def _flags(options: Options):
    """No reference counts, no Python wrappers, no compilation by Numba itself."""
    from numba.core import compiler
    from numba.core.cpu_options import FastMathOptions

    flags = compiler.Flags()
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = flags.no_compile = True
    flags.enable_pyobject = flags.nrt = False
    flags.error_model = "numpy"
    flags.boundscheck = options.checked
    flags.fastmath = FastMathOptions(set(options.fastmath)) if options.fastmath else FastMathOptions(False)
    return flags


@functools.cache
def _pipeline():
    """Numba's nopython pipeline without the passes that a kernel has no use for; they take a tenth of its time."""
    from numba.core.compiler import CompilerBase, DefaultPassBuilder

    unused = {"WithLifting", "InlineClosureLikes", "NopythonRewrites", "LiteralUnroll", "DumpParforDiagnostics"}

    class KernelCompiler(CompilerBase):
        def define_pipelines(self):
            passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
            passes.passes = [entry for entry in passes.passes if entry[0].__name__ not in unused]
            passes._finalized = False
            passes.finalize()
            return [passes]

    return KernelCompiler


def _with_wrapper(context, result, name: str, options: Options) -> llvm.ModuleRef:
    """The lowered function, private, inlined into `name`: the same with a C signature and without the error status."""
    from llvmlite import ir
    from numba.core import cgutils

    described = result.fndesc
    wrapper = context.create_module(f"wrapper.{name}")
    arguments = [context.get_value_type(kind) for kind in described.argtypes]
    convention = context.call_conv
    raw = ir.Function(wrapper, convention.get_function_type(described.restype, described.argtypes), described.llvm_func_name)
    void = described.restype.name == "none"
    function = ir.Function(
        wrapper, ir.FunctionType(ir.VoidType() if void else context.get_value_type(described.restype), arguments), name)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    _, value = convention.call_function(builder, raw, described.restype, described.argtypes, function.args)
    builder.ret_void() if void else builder.ret(value)
    text = cgutils.normalize_ir_text(str(wrapper))
    if options.vector_bits:
        width = f'"prefer-vector-width"="{options.vector_bits}"'
        text = "\n".join(f"{line} {width}" if line.startswith("define ") else line for line in text.split("\n"))
    module = result.library._final_module
    for library in dict.fromkeys(result.library._linking_libraries):
        if library.name != "nrt":  # reference counting, which kernels do not have
            module.link_in(library._get_module_for_linking(), preserve=True)
    module.link_in(llvm.parse_assembly(text))
    module.get_function(described.llvm_func_name).add_function_attribute("alwaysinline")
    _hide(module, (name,))
    return module


def _hide(module: llvm.ModuleRef, exported: tuple[str, ...]) -> None:
    """Make everything else private, so that it is inlined or dropped and no names clash."""
    for values in (module.functions, module.global_variables):
        for value in values:
            if not value.is_declaration and value.name not in exported:
                value.linkage = "internal"


def _emit(module: llvm.ModuleRef, symbols: tuple[str, ...], options: Options) -> ObjectCode:
    machine = target_machine(options.level)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    tuning = llvm.create_pipeline_tuning_options(speed_level=options.level)
    tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = options.level > 1
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    data = machine.emit_object(module)
    missing = [name for name in undefined_symbols(data) if not _in_process(name)]
    if missing:
        raise CodegenError(f"the code of {', '.join(symbols)} calls {', '.join(missing)}, which only Numba's own runtime has",
                           "kernels must not allocate, raise, or use NumPy functions that make arrays")
    return ObjectCode(data, symbols)


def target_machine(level: int = 3) -> llvm.TargetMachine:
    """LLVM's code generator for this very processor."""
    _initialize()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=host_features(), opt=level, reloc="pic", codemodel="default")


@functools.cache
def host_features() -> str:
    """The processor's features in LLVM's notation (``+avx2,-avx512f,...``)."""
    try:
        return llvm.get_host_cpu_features().flatten()
    except RuntimeError:  # LLVM does not know this kind of processor
        return ""


@functools.cache
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


def undefined_symbols(data: bytes) -> Iterator[str]:
    """Names that a 64-bit ELF object expects from elsewhere; none for another format.

    The section header table says where the symbol table and its names are (System V ABI, "Object Files").
    """
    if data[:6] != b"\x7fELF\x02\x01":
        return
    table, (size, count) = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQII", data, table + size * i) for i in range(count)]
    for _, kind, _, _, offset, length, link, _ in sections:
        if kind == 2:  # SHT_SYMTAB
            names = sections[link][4]
            for at in range(offset, offset + length, 24):
                name, _, _, section = struct.unpack_from("<IBBH", data, at)
                if name and section == 0:
                    yield data[names + name : data.index(b"\0", names + name)].decode()


@functools.cache
def _in_process(symbol: str) -> bool:
    return symbol == "_GLOBAL_OFFSET_TABLE_" or hasattr(ctypes.CDLL(None), symbol)


# --- object code to addresses

_lock = threading.Lock()
_serial = itertools.count()  # LLVM does not take a library's name twice, not even after a failure
_alive: list[object] = []  # the linker and what it has linked; code must outlive every thread that may run it


@functools.cache
def _linker() -> llvm.orcjit.LLJIT:
    _initialize()
    machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
    linker = llvm.create_lljit_compiler(machine, use_jit_link=machine.triple.startswith(("x86_64", "aarch64")))
    _keep(linker)
    return linker


def load(objects: Sequence[ObjectCode]) -> dict[str, int]:
    """Link objects into the process; the address of each of their symbols. What is loaded stays for good.

    Raises CodegenError if LLVM cannot link them. Symbols need to be unique among `objects` only.
    """
    builder = llvm.JITLibraryBuilder()
    builder.add_current_process()
    for code in objects:
        builder.add_object_img(code.data)
        for symbol in code.symbols:
            builder.export_symbol(symbol)
    with _lock:
        try:
            library = builder.link(_linker(), f"minirelax.{next(_serial)}")
            addresses = {symbol: library[symbol] for code in objects for symbol in code.symbols}
        except (RuntimeError, KeyError) as error:
            raise CodegenError(f"object code cannot be linked: {error}") from error
        _keep(library)
    return addresses


def _keep(thing: object) -> None:
    # One reference too many: at the interpreter's end the list goes, while a worker may still be on its way out.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    _alive.append(thing)

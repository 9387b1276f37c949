"""Register tiles for matrix products: small kernels that keep a block of the result in vector registers.

A tile of ``mr`` rows and ``nv`` vectors computes ``c[r, j] (+)= sum over k of a[r, k] * b[k, j]``; each step over k
loads nv vectors of b and broadcasts mr elements of a into mr * nv independent multiply-adds (Goto and van de Geijn,
"Anatomy of High-Performance Matrix Multiplication", 2008; Van Zee and van de Geijn, "BLIS", 2015).  The tiles depend
on the machine and the dtype only, not on any program: one module holds them all and is compiled once per machine.

Each tile is a C function (leading dimensions in elements, addresses of the first elements)::

    void tile_f32_3_2(int64 a, int64 lda, int64 b, int64 ldb, int64 c, int64 ldc, int64 kc, int64 accumulate)

    void sweep_f32(int64 a, int64 lda, int64 b, int64 ldb, int64 c, int64 ldc, int64 rows, int64 k, int64 accumulate)

``sweep`` runs the tiles down `rows` rows for one panel of b, in tiles of nearly equal height.

``accumulate`` 0 overwrites c (with zeros if kc is 0), 1 adds to it.  b need not be packed (ldb is free), but a
packed panel (ldb = nv * lanes) streams best.  There is a tile for every number of rows up to ``mr``, and all of
them add in the same order, so the bits of a row do not depend on how many rows share its tile.

>>> from minirelax.schedule.machine import Machine
>>> tile_shape(Machine("haswell", "avx2"), "f32")
TileShape(dtype='f32', lanes=8, nv=2, mr_max=6)
>>> symbols(Machine("haswell", "avx2"))["f64"][:3]
('sweep_f64', 'tile_f64_1_2', 'tile_f64_2_2')
"""

from __future__ import annotations

from dataclasses import dataclass

from llvmlite import ir

from minirelax.schedule.machine import Machine

DTYPES = ("f32", "f64")
VERSION = 4  # part of the cache key: change it when the same names come to stand for other code

# Vectors per row of a tile, measured.  Two vectors and as many rows as the registers hold are as fast as wider and
# flatter tiles on large products, and waste least on narrow ones.  NEON's short vectors want four.
_VECTORS_PER_ROW = {"avx512": 2, "avx2": 2, "sse": 2, "neon": 4, "generic": 2}
_UNROLL = 4  # steps over k in one iteration
_PREFETCH_STEPS = 8  # how many rows of b the prefetch runs ahead; 8 is also a scale that x86 addresses have
_ROWS_PER_POINTER = 3  # rows reached from one pointer: base, base + stride, base + 2 * stride

_I8, _I32, _I64, _POINTER = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.PointerType()
_SCALAR = {"f32": (ir.FloatType(), 4), "f64": (ir.DoubleType(), 8)}


@dataclass(frozen=True)
class TileShape:
    """The family of tiles for one dtype: nv vectors of `lanes` elements wide, 1 to `mr_max` rows high."""

    dtype: str
    lanes: int
    nv: int
    mr_max: int

    @property
    def width(self) -> int:
        """Columns of a tile, and of a packed panel of b."""
        return self.nv * self.lanes


def tile_shape(machine: Machine, dtype: str) -> TileShape:
    """The tiles used on `machine`: the result, nv vectors of b and one broadcast must fit the registers."""
    nv = _VECTORS_PER_ROW[machine.isa]
    return TileShape(dtype, machine.lanes(dtype), nv, (machine.vector_registers - nv - 1) // nv)


def symbols(machine: Machine) -> dict[str, tuple[str, ...]]:
    """For each dtype, the name of the sweep, then of the tiles with 1, 2, ... rows."""
    shapes = [tile_shape(machine, dtype) for dtype in DTYPES]
    return {s.dtype: (f"sweep_{s.dtype}", *(_symbol(s, rows) for rows in range(1, s.mr_max + 1))) for s in shapes}


def tile_module(machine: Machine) -> ir.Module:
    """LLVM IR of all tiles for `machine`."""
    module = ir.Module("minirelax_tiles")
    for shape in (tile_shape(machine, dtype) for dtype in DTYPES):
        tiles = [_Tile(module, shape, rows).emit() for rows in range(1, shape.mr_max + 1)]
        _emit_sweep(module, shape, tiles)
    return module


def object_code(machine: Machine) -> bytes:
    """Machine code of all tiles, an object file for this process's platform (about a second to make)."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    options = {"cpu": machine.name, "features": machine.features, "opt": 3, "reloc": "pic", "codemodel": "default"}
    target_machine = target.create_target_machine(**options)
    module = llvm.parse_assembly(str(tile_module(machine)))
    module.verify()
    return target_machine.emit_object(module)


def _symbol(shape: TileShape, rows: int) -> str:
    return f"tile_{shape.dtype}_{rows}_{shape.nv}"


class _Tile:
    """Emits one tile: two loops over k (unrolled, then the rest), then the store."""

    def __init__(self, module: ir.Module, shape: TileShape, rows: int):
        self.rows, self.nv, self.lanes = rows, shape.nv, shape.lanes
        self.scalar, self.item = _SCALAR[shape.dtype]
        self.vector = ir.VectorType(self.scalar, shape.lanes)
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64] * 8), _symbol(shape, rows))
        self.function.attributes.add("nounwind")
        bits = 8 * self.item
        name = f"llvm.fmuladd.v{shape.lanes}f{bits}"
        self.multiply_add = _declare(module, name, self.vector, [self.vector] * 3)
        self.prefetch = _declare(module, "llvm.prefetch.p0", ir.VoidType(), [_POINTER, _I32, _I32, _I32])
        self.launder = _declare(module, "llvm.launder.invariant.group.p0", _POINTER, [_POINTER])

    def emit(self) -> ir.Function:
        a, lda, b, ldb, c, ldc, kc, accumulate = self.function.args
        self.builder = builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.stride_a, self.stride_b, stride_c = (builder.mul(n, _I64(self.item)) for n in (lda, ldb, ldc))
        first_row = builder.inttoptr(a, _POINTER)
        pointers = [self._byte_offset(first_row, self.stride_a, r) for r in range(0, self.rows, _ROWS_PER_POINTER)]
        pointers.append(builder.inttoptr(b, _POINTER))
        zero = ir.Constant(self.vector, [0.0] * self.lanes)
        sums = [zero] * (self.rows * self.nv)
        whole = builder.and_(kc, _I64(-_UNROLL))
        k, pointers, sums = self._loop(_I64(0), whole, _UNROLL, pointers, sums)
        _, _, sums = self._loop(k, kc, 1, pointers, sums)
        self._store(builder.inttoptr(c, _POINTER), stride_c, accumulate, sums)
        return self.function

    def _loop(self, start: ir.Value, stop: ir.Value, steps: int, pointers: list, sums: list) -> tuple[ir.Value, list, list]:
        """``while start < stop: steps times multiply_add``; returns the counter, pointers and sums after it."""
        builder, before = self.builder, self.builder.block
        head, body, after = (self.function.append_basic_block(n) for n in ("head", "body", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        entering = [start, *pointers, *sums]
        carried = [builder.phi(value.type) for value in entering]
        k, pointers, sums = carried[0], carried[1 : 1 + len(pointers)], carried[1 + len(pointers) :]
        builder.cbranch(builder.icmp_signed("<", k, stop), body, after)

        builder.position_at_end(body)
        # Seen as induction variables, the pointers would be rewritten by LLVM's strength reduction into one register
        # per row, more than there are.  Laundered pointers are opaque to it and cost no instruction.
        opaque = [builder.call(self.launder, [p]) for p in pointers]
        result = sums
        for step in range(steps):
            result = self._step(opaque, step, result)
        moved = [builder.gep(p, [_I64(steps * self.item)], source_etype=_I8) for p in opaque[:-1]]
        moved.append(self._byte_offset(opaque[-1], self.stride_b, steps))
        leaving = [builder.add(k, _I64(steps)), *moved, *result]
        for phi, first, later in zip(carried, entering, leaving, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(later, body)
        builder.branch(head)
        builder.position_at_end(after)
        return k, pointers, sums

    def _step(self, pointers: list, step: int, sums: list) -> list:
        """The rank-one update of the tile by element `step` of each row of a and row `step` of b."""
        builder = self.builder
        row_of_b = self._byte_offset(pointers[-1], self.stride_b, step)
        ahead = self._byte_offset(row_of_b, self.stride_b, _PREFETCH_STEPS)
        vector_bytes = self.lanes * self.item
        for line in range(0, self.nv * vector_bytes, 64):
            address = builder.gep(ahead, [_I64(line)], source_etype=_I8)
            builder.call(self.prefetch, [address, _I32(0), _I32(3), _I32(1)])  # to read, keep in all levels, data
        b = [self._load_vector(row_of_b, v * vector_bytes) for v in range(self.nv)]
        result = []
        for r in range(self.rows):
            row_of_a = self._byte_offset(pointers[r // _ROWS_PER_POINTER], self.stride_a, r % _ROWS_PER_POINTER)
            element = builder.load(builder.gep(row_of_a, [_I64(step)], source_etype=self.scalar), typ=self.scalar)
            spread = self._broadcast(element)
            result += [builder.call(self.multiply_add, [spread, b[v], sums[r * self.nv + v]]) for v in range(self.nv)]
        return result

    def _store(self, c: ir.Value, stride_c: ir.Value, accumulate: ir.Value, sums: list) -> None:
        builder = self.builder
        addresses = []
        for r in range(self.rows):
            row = builder.gep(c, [builder.mul(stride_c, _I64(r))], source_etype=_I8)
            addresses += [builder.gep(row, [_I64(v)], source_etype=self.vector) for v in range(self.nv)]
        with builder.if_else(builder.icmp_signed("!=", accumulate, _I64(0))) as (add, overwrite):
            with add:
                for address, value in zip(addresses, sums, strict=True):
                    builder.store(builder.fadd(self._load_vector(address, 0), value), address, align=self.item)
            with overwrite:
                for address, value in zip(addresses, sums, strict=True):
                    builder.store(value, address, align=self.item)
        builder.ret_void()

    def _byte_offset(self, pointer: ir.Value, stride: ir.Value, count: int) -> ir.Value:
        """``pointer + count * stride``; a shift, where it can be one, becomes part of an x86 address."""
        if count == 0:
            return pointer
        power = count & (count - 1) == 0
        offset = self.builder.shl(stride, _I64(count.bit_length() - 1)) if power else self.builder.mul(stride, _I64(count))
        return self.builder.gep(pointer, [offset], source_etype=_I8)

    def _load_vector(self, pointer: ir.Value, offset: int) -> ir.Value:
        address = self.builder.gep(pointer, [_I64(offset)], source_etype=_I8)
        return self.builder.load(address, align=self.item, typ=self.vector)

    def _broadcast(self, element: ir.Value) -> ir.Value:
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = self.builder.insert_element(undefined, element, _I32(0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, self.lanes), [0] * self.lanes))


def _emit_sweep(module: ir.Module, shape: TileShape, tiles: list[ir.Function]) -> None:
    """``for each tile of rows: tile(...)``, through a table of the tiles by height."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64] * 9), f"sweep_{shape.dtype}")
    function.attributes.add("nounwind")
    a, lda, b, ldb, c, ldc, rows, k, accumulate = function.args
    item = _SCALAR[shape.dtype][1]
    kind = ir.ArrayType(_I64, len(tiles))
    table = ir.GlobalVariable(module, kind, f"heights_{shape.dtype}")
    table.linkage, table.global_constant = "internal", True
    table.initializer = ir.Constant(kind, [t.ptrtoint(_I64) for t in tiles])
    entry, down, tile, done = (function.append_basic_block(n) for n in ("entry", "down", "tile", "done"))
    builder = ir.IRBuilder(entry)
    builder.branch(down)

    builder.position_at_end(down)
    row = builder.phi(_I64)
    row.add_incoming(_I64(0), entry)
    builder.cbranch(builder.icmp_signed("<", row, rows), tile, done)

    builder.position_at_end(tile)
    rest = builder.sub(rows, row)
    count = builder.udiv(builder.add(rest, _I64(shape.mr_max - 1)), _I64(shape.mr_max))
    height = builder.udiv(builder.sub(builder.add(rest, count), _I64(1)), count)
    place = builder.gep(table, [_I64(0), builder.sub(height, _I64(1))], source_etype=kind)
    signature = ir.FunctionType(ir.VoidType(), [_I64] * 8)
    target = builder.inttoptr(builder.load(place, typ=_I64), signature.as_pointer())
    a_row = builder.add(a, builder.mul(builder.mul(row, lda), _I64(item)))
    c_row = builder.add(c, builder.mul(builder.mul(row, ldc), _I64(item)))
    builder.call(target, [a_row, lda, b, ldb, c_row, ldc, k, accumulate])
    row.add_incoming(builder.add(row, height), tile)
    builder.branch(down)
    builder.position_at_end(done)
    builder.ret_void()


def _declare(module: ir.Module, name: str, result: ir.Type, arguments: list) -> ir.Function:
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)

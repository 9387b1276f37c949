"""Register tiles for matrix products: small kernels that keep a block of the result in vector registers.

A tile of ``mr`` rows and ``nv`` vectors computes ``c[r, j] (+)= sum over k of a[r, k] * b[k, j]``; each step over k
loads nv vectors of b and broadcasts mr elements of a into mr * nv independent multiply-adds (Goto and van de Geijn,
"Anatomy of High-Performance Matrix Multiplication", 2008; Van Zee and van de Geijn, "BLIS", 2015).  The tiles depend
on the machine and the dtype only, not on any program: one module holds them all and is compiled once per machine.

A multiply-add takes several cycles, and a new one can start on each unit in every cycle, so a tile of few rows has too few
sums to keep the units busy: it takes several panels of b side by side instead.  Each is a C function (leading dimensions and
the distance of panels in elements, addresses of the first elements, `ahead` in bytes)::

    void tile_f32_3x2(int64 a, int64 lda, int64 b, int64 ldb, int64 panel, int64 c, int64 ldc, int64 kc, int64 accumulate,
                      int64 ahead, int64 every)

    void sweep_f32(int64 a, int64 lda, int64 b, int64 ldb, int64 panel, int64 c, int64 ldc, int64 rows, int64 panels, int64 k,
                   int64 accumulate, int64 after)

``sweep`` covers `rows` rows of a and `panels` panels of b, panel by panel, each in tiles of nearly equal height; a few rows are
divided into tall tiles and a thin one for several panels at once, such that none has too few sums.

``accumulate`` 0 overwrites c (with zeros if kc is 0), 1 adds to it.  b need not be packed (ldb and panel are free), but a
packed panel (ldb = nv * lanes) streams best.  There is a tile for every number of rows up to ``mr``, and all of
them add in the same order, so the bits of a row do not depend on how many rows share its tile.

What is needed next is fetched while a tile computes: a tile reads the memory `ahead` bytes behind its rows of b, of every
row or of one in `UNROLL`.  While several tiles share a panel, they fetch the next panel together, or, during the last one,
the panel at `after`; a tile that has a panel for itself fetches what it is going to read itself.

>>> from minirelax.schedule.machine import Machine
>>> shape = tile_shape(Machine("haswell", "avx2"), "f32")
>>> shape
TileShape(dtype='f32', lanes=8, nv=2, registers=16)
>>> shape.mr_max, [shape.panels(rows) for rows in (1, 2, 3, 4)]
(6, [4, 2, 2, 1])
>>> symbol(shape, 3, 2)
'tile_f32_3x2'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llvmlite import ir

from minirelax.schedule.machine import Machine

DTYPES = ("f32", "f64")
SWEEPS = {dtype: f"sweep_{dtype}" for dtype in DTYPES}  # the functions that kernels call
VERSION = 6  # part of the cache key: change it when the same names come to stand for other code

# Vectors per row of a tile, measured.  Two vectors and as many rows as the registers hold are as fast as wider and
# flatter tiles on large products, and waste least on narrow ones.  NEON's short vectors want four.
_VECTORS_PER_ROW = {"avx512": 2, "avx2": 2, "sse": 2, "neon": 4, "generic": 2}
_SUMS_IN_FLIGHT = 8  # multiply-adds that are under way at once: two units times four cycles
_MOST_PANELS = 4  # side by side: each is a stream of its own, and processors follow only so many
UNROLL = 4  # steps over k in one iteration
_RUN_AHEAD = 16  # how many rows of b a tile alone with its panel fetches before it gets there
_ROWS_PER_POINTER = 3  # rows reached from one pointer: base, base + stride, base + 2 * stride

_I8, _I32, _I64, _POINTER = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.PointerType()
_SCALAR = {"f32": (ir.FloatType(), 4), "f64": (ir.DoubleType(), 8)}
_TILE = ir.FunctionType(ir.VoidType(), [_I64] * 11)


@dataclass(frozen=True)
class TileShape:
    """The family of tiles for one dtype: nv vectors of `lanes` elements wide, 1 to `mr_max` rows high."""

    dtype: str
    lanes: int
    nv: int
    registers: int

    @property
    def mr_max(self) -> int:
        """The most rows: the result, nv vectors of b and one broadcast must fit the registers."""
        return (self.registers - self.nv - 1) // self.nv

    @property
    def width(self) -> int:
        """Columns of a tile, and of a packed panel of b."""
        return self.nv * self.lanes

    def panels(self, rows: int) -> int:
        """How many panels a tile of so many rows takes at once: enough sums to keep the units busy, if the registers do."""
        fitting = (self.registers - rows - 1) // (rows * self.nv)
        wanted = -(-_SUMS_IN_FLIGHT // (rows * self.nv))
        return max(1, min(wanted, fitting, _MOST_PANELS))

    @property
    def thinnest(self) -> int:
        """The most rows for which a tile takes several panels."""
        return max((rows for rows in range(1, self.mr_max + 1) if self.panels(rows) > 1), default=0)

    @property
    def most_split(self) -> int:
        """Beyond so many rows, tiles of nearly equal height are tall anyway."""
        return self.mr_max * UNROLL

    def thin_rows(self, rows: int) -> int:
        """How many of a few rows a thin tile takes, so that the others make tiles with more sums than it takes, if possible."""
        if rows <= self.thinnest:
            return rows
        tall = -(-(_SUMS_IN_FLIGHT + 1) // self.nv)
        choices = (t for t in range(self.thinnest + 1) if rows - t >= tall * -(-(rows - t) // self.mr_max) and rows > t)
        return next(choices, 0)


def tile_shape(machine: Machine, dtype: str) -> TileShape:
    """The tiles used on `machine`."""
    return TileShape(dtype, machine.lanes(dtype), _VECTORS_PER_ROW[machine.isa], machine.vector_registers)


def symbol(shape: TileShape, rows: int, panels: int = 1) -> str:
    """The name of a tile."""
    return f"tile_{shape.dtype}_{rows}x{panels}"


def tile_module(machine: Machine) -> ir.Module:
    """LLVM IR of all tiles for `machine`."""
    module = ir.Module("minirelax_tiles")
    for shape in (tile_shape(machine, dtype) for dtype in DTYPES):
        single = [_Tile(module, shape, rows, 1).emit() for rows in range(1, shape.mr_max + 1)]
        several = [_Tile(module, shape, rows, shape.panels(rows)).emit() for rows in range(1, shape.thinnest + 1)]
        _Sweep(module, shape, single, several).emit()
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


class _Tile:
    """Emits one tile: two loops over k (unrolled, then the rest), then the store."""

    def __init__(self, module: ir.Module, shape: TileShape, rows: int, panels: int):
        self.rows, self.nv, self.lanes, self.panels = rows, shape.nv, shape.lanes, panels
        self.scalar, self.item = _SCALAR[shape.dtype]
        self.vector = ir.VectorType(self.scalar, shape.lanes)
        self.function = ir.Function(module, _TILE, symbol(shape, rows, panels))
        self.function.attributes.add("nounwind")
        bits = 8 * self.item
        name = f"llvm.fmuladd.v{shape.lanes}f{bits}"
        self.multiply_add = _declare(module, name, self.vector, [self.vector] * 3)
        self.prefetch = _declare(module, "llvm.prefetch.p0", ir.VoidType(), [_POINTER, _I32, _I32, _I32])
        self.launder = _declare(module, "llvm.launder.invariant.group.p0", _POINTER, [_POINTER])

    def emit(self) -> ir.Function:
        a, lda, b, ldb, panel, c, ldc, kc, accumulate, self.ahead, every = self.function.args
        self.builder = builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.stride_a, self.stride_b, self.panel, stride_c = (builder.mul(n, _I64(self.item)) for n in (lda, ldb, panel, ldc))
        self.every = builder.icmp_signed("!=", every, _I64(0))
        first_row = builder.inttoptr(a, _POINTER)
        pointers = [self._byte_offset(first_row, self.stride_a, r) for r in range(0, self.rows, _ROWS_PER_POINTER)]
        pointers.append(builder.inttoptr(b, _POINTER))
        zero = ir.Constant(self.vector, [0.0] * self.lanes)
        sums = [zero] * (self.rows * self.panels * self.nv)
        whole = builder.and_(kc, _I64(-UNROLL))
        k, pointers, sums = self._loop(_I64(0), whole, UNROLL, pointers, sums)
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
        if steps > 1:
            self._fetch(opaque[-1], steps)
        result = sums
        for step in range(steps):
            result = self._step(opaque, step, result)
        moved = [builder.gep(p, [_I64(steps * self.item)], source_etype=_I8) for p in opaque[:-1]]
        moved.append(self._byte_offset(opaque[-1], self.stride_b, steps))
        leaving = [builder.add(k, _I64(steps)), *moved, *result]
        for phi, first, later in zip(carried, entering, leaving, strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(later, builder.block)
        builder.branch(head)
        builder.position_at_end(after)
        return k, pointers, sums

    def _fetch(self, row_of_b: ir.Value, steps: int) -> None:
        """Read the lines `ahead` bytes behind the next rows of b: behind the first one of an iteration, or behind each."""
        place = self.builder.gep(row_of_b, [self.ahead], source_etype=_I8)
        self._fetch_row(place, 0)
        with self.builder.if_then(self.every):
            for step in range(1, steps):
                self._fetch_row(place, step)

    def _fetch_row(self, place: ir.Value, step: int) -> None:
        builder, row = self.builder, self._byte_offset(place, self.stride_b, step)
        for panel in range(self.panels):
            here = self._byte_offset(row, self.panel, panel)
            for line in range(0, self.nv * self.lanes * self.item, 64):
                address = builder.gep(here, [_I64(line)], source_etype=_I8)
                builder.call(self.prefetch, [address, _I32(0), _I32(3), _I32(1)])  # to read, keep in all levels, data

    def _step(self, pointers: list, step: int, sums: list) -> list:
        """The rank-one update of the tile by element `step` of each row of a and row `step` of b."""
        row_of_b, columns = self._byte_offset(pointers[-1], self.stride_b, step), self.panels * self.nv
        spread, b = _Once(lambda r: self._spread(pointers, step, r)), _Once(lambda j: self._vector_of_b(row_of_b, j))
        result = list(sums)
        # The fewer values are held, the others come one at a time: with both at hand LLVM runs out of registers.
        across = [(r, j) for r in range(self.rows) for j in range(columns)]
        for r, j in across if columns < self.rows else sorted(across, key=lambda place: place[::-1]):
            i = r * columns + j
            result[i] = self.builder.call(self.multiply_add, [spread[r], b[j], sums[i]])
        return result

    def _spread(self, pointers: list, step: int, row: int) -> ir.Value:
        """An element of a in all lanes."""
        builder = self.builder
        row_of_a = self._byte_offset(pointers[row // _ROWS_PER_POINTER], self.stride_a, row % _ROWS_PER_POINTER)
        element = builder.load(builder.gep(row_of_a, [_I64(step)], source_etype=self.scalar), typ=self.scalar)
        undefined = ir.Constant(self.vector, ir.Undefined)
        first = builder.insert_element(undefined, element, _I32(0))
        return builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(_I32, self.lanes), [0] * self.lanes))

    def _vector_of_b(self, row: ir.Value, number: int) -> ir.Value:
        place = self._byte_offset(row, self.panel, number // self.nv)
        return self._load_vector(place, number % self.nv * self.lanes * self.item)

    def _store(self, c: ir.Value, stride_c: ir.Value, accumulate: ir.Value, sums: list) -> None:
        builder = self.builder
        addresses = []
        for r in range(self.rows):
            row = builder.gep(c, [builder.mul(stride_c, _I64(r))], source_etype=_I8)
            addresses += [builder.gep(row, [_I64(v)], source_etype=self.vector) for v in range(self.panels * self.nv)]
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


class _Once(dict):
    """Values by number, each made when it is first asked for."""

    def __init__(self, make: Callable[[int], ir.Value]):
        super().__init__()
        self.make = make

    def __missing__(self, number: int) -> ir.Value:
        self[number] = self.make(number)
        return self[number]


class _Sweep:
    """Emits the loops over panels and rows, which find their tiles in tables by numbers of rows."""

    def __init__(self, module: ir.Module, shape: TileShape, single: list[ir.Function], several: list[ir.Function]):
        self.shape, self.item = shape, _SCALAR[shape.dtype][1]
        none = _I64(0)
        self.single = self._table(module, "single", [none, *(t.ptrtoint(_I64) for t in single)])
        self.several = self._table(module, "several", [none, *(t.ptrtoint(_I64) for t in several)])
        self.panels = self._table(module, "panels", [_I64(1), *(_I64(shape.panels(r + 1)) for r in range(len(several)))])
        self.thin = self._table(module, "thin", [_I64(shape.thin_rows(rows)) for rows in range(shape.most_split + 1)])
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64] * 12), SWEEPS[shape.dtype])
        self.function.attributes.add("nounwind")
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))

    def _table(self, module: ir.Module, name: str, entries: list) -> ir.GlobalVariable:
        table = ir.GlobalVariable(module, ir.ArrayType(_I64, len(entries)), f"{name}_{self.shape.dtype}")
        table.linkage, table.global_constant = "internal", True
        table.initializer = ir.Constant(table.value_type, entries)
        return table

    def emit(self) -> None:
        """For each group of panels: the tall tiles of each panel, then a thin one of all."""
        builder, (rows, panels) = self.builder, self.function.args[7:9]
        is_short = builder.icmp_signed("<=", rows, _I64(self.shape.most_split))
        is_some = builder.icmp_signed(">", rows, _I64(0))
        index = builder.select(builder.and_(is_short, is_some), rows, _I64(0))
        thin = self._entry(self.thin, index)
        tall = builder.sub(rows, thin)
        at_once = self._entry(self.panels, thin)

        def group(panel: ir.Value) -> ir.Value:
            fits = builder.icmp_signed("<=", builder.add(panel, at_once), panels)
            taken = builder.select(fits, at_once, _I64(1))
            end = builder.add(panel, taken)
            self._while_less(end, lambda p: self._tall(p, tall), start=panel)
            with builder.if_then(builder.icmp_signed(">", thin, _I64(0))):
                tile = builder.select(fits, self._entry(self.several, thin), self._entry(self.single, thin))
                own = builder.mul(self.function.args[3], _I64(_RUN_AHEAD * self.item))  # of a packed panel; else to the right
                packed = builder.icmp_signed("==", self.function.args[3], _I64(self.shape.width))
                right = builder.mul(self.function.args[4], builder.mul(taken, _I64(self.item)))
                ahead = builder.select(builder.icmp_signed("==", tall, _I64(0)), builder.select(packed, own, right), _I64(0))
                self._call(tile, panel, tall, ahead, _I64(1))
            return end

        with builder.if_then(is_some):
            self._while_less(panels, group)
        builder.ret_void()

    def _tall(self, panel: ir.Value, rows: ir.Value) -> ir.Value:
        """Tiles of nearly equal height down the rows of one panel, which fetch the next one meanwhile; gives its number."""
        builder, most = self.builder, self.shape.mr_max
        _, _, _, ldb, stride, _, _, _, panels, _, _, after = self.function.args
        following = builder.icmp_signed("<", builder.add(panel, _I64(1)), panels)
        to_after = builder.sub(after, self._panel_of_b(panel))
        distance = builder.select(following, builder.mul(stride, _I64(self.item)), to_after)
        row_bytes = builder.mul(ldb, _I64(self.item))
        few = builder.zext(builder.icmp_signed("<=", rows, _I64((UNROLL - 1) * most)), _I64)

        def tile(row: ir.Value, number: ir.Value) -> tuple[ir.Value, ir.Value]:
            rest = builder.sub(rows, row)
            count = builder.udiv(builder.add(rest, _I64(most - 1)), _I64(most))
            height = builder.udiv(builder.sub(builder.add(rest, count), _I64(1)), count)
            # Few tiles fetch all of the next panel each; many, the first of them, a share of its rows each.
            share = builder.add(distance, builder.mul(number, row_bytes))
            ahead = builder.select(builder.icmp_signed("<", number, _I64(UNROLL)), share, _I64(0))
            self._call(self._entry(self.single, height), panel, row, ahead, few)
            return builder.add(row, height), builder.add(number, _I64(1))

        self._while_less(rows, tile, 1)
        return builder.add(panel, _I64(1))

    def _while_less(
        self, end: ir.Value, body: Callable[..., ir.Value | tuple], more: int = 0, start: ir.Value | None = None
    ) -> None:
        """``i = start; while i < end: i = body(i)`` , with `more` further values, from 0, carried along."""
        builder, before = self.builder, self.builder.block
        head, inside, after = (self.function.append_basic_block(name) for name in ("head", "inside", "after"))
        builder.branch(head)
        builder.position_at_end(head)
        carried = [builder.phi(_I64) for _ in range(1 + more)]
        builder.cbranch(builder.icmp_signed("<", carried[0], end), inside, after)
        builder.position_at_end(inside)
        made = body(*carried)
        firsts = [start or _I64(0), *[_I64(0)] * more]
        for phi, first, value in zip(carried, firsts, made if more else (made,), strict=True):
            phi.add_incoming(first, before)
            phi.add_incoming(value, builder.block)
        builder.branch(head)
        builder.position_at_end(after)

    def _call(self, tile: ir.Value, panel: ir.Value, row: ir.Value, ahead: ir.Value, every: ir.Value) -> None:
        """The tile at a panel and a row."""
        builder = self.builder
        a, lda, _, ldb, stride, c, ldc, _, _, k, accumulate, _ = self.function.args
        a_row = builder.add(a, builder.mul(builder.mul(row, lda), _I64(self.item)))
        c_row = builder.add(c, builder.mul(builder.mul(row, ldc), _I64(self.item)))
        place = builder.add(c_row, builder.mul(panel, _I64(self.shape.width * self.item)))
        target = builder.inttoptr(tile, _TILE.as_pointer())
        builder.call(target, [a_row, lda, self._panel_of_b(panel), ldb, stride, place, ldc, k, accumulate, ahead, every])

    def _panel_of_b(self, panel: ir.Value) -> ir.Value:
        builder, (_, _, b, _, stride, *_) = self.builder, self.function.args
        return builder.add(b, builder.mul(builder.mul(panel, stride), _I64(self.item)))

    def _entry(self, table: ir.GlobalVariable, index: ir.Value) -> ir.Value:
        place = self.builder.gep(table, [_I64(0), index], source_etype=table.value_type)
        return self.builder.load(place, typ=_I64)


def _declare(module: ir.Module, name: str, result: ir.Type, arguments: list) -> ir.Function:
    return module.globals.get(name) or ir.Function(module, ir.FunctionType(result, arguments), name)

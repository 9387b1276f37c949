"""Random NumPy programs as source text, for differential tests: every line is valid NumPy on the arrays that it is given.

Lines are tried as they are written, so shapes, dtypes and values are known; a line that NumPy refuses, or whose values say
little (huge arrays, numbers beyond what comparing allows), is dropped.  Functions that jump (floor, comparisons, sorting) are
applied to exact values only: those that rounding, and so another order of summation, cannot have touched.

>>> program = write_program(random.Random(1), lines=3)
>>> program.function().__name__
'program'
"""

from __future__ import annotations

import math
import random
import warnings
from dataclasses import dataclass, field

import numpy as np

SIZES = (0, 1, 1, 2, 3, 4, 5, 7)
DTYPES = ("float32", "float32", "float64", "int64", "int32", "bool", "uint8", "int8", "int16", "uint16", "uint32", "uint64")
NAMES = ("x", "n", "m", "i", "j", "k", "t0", "s0", "out", "args", "lo", "hi", "scratch", "row", "tile", "error", "table", "panel")
LARGEST = 3000  # elements of a value


@dataclass(frozen=True)
class Program:
    """A function as text, the dtypes and the sizes (as positions in `sizes`, or numbers) of its arguments, and `sizes`."""

    text: str
    arguments: tuple[tuple[str, str, tuple[int | str, ...]], ...]
    sizes: dict[str, int]
    seed: int

    def function(self):
        """The program as a Python function of its arguments."""
        scope: dict = {"np": np}
        exec(self.text, scope)
        return scope["program"]

    def inputs(self, sizes: dict[str, int] | None = None) -> list[np.ndarray]:
        """Arguments for these sizes (default: the ones the program was written for)."""
        known = sizes or self.sizes
        rng = np.random.default_rng(self.seed)
        return [values(rng, dtype, tuple(known.get(d, d) for d in shape)) for _, dtype, shape in self.arguments]


def values(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    """Small numbers that arithmetic keeps exact for a while; unsigned and signed ones of every size."""
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.startswith("float"):
        return (rng.integers(-8, 9, shape) / 4).astype(dtype)
    return rng.integers(0 if dtype[0] == "u" else -9, 10, shape).astype(dtype)


def write_program(r: random.Random, lines: int = 20) -> Program:
    """A program of about `lines` lines that returns some of its values, in a tuple, a dict or alone."""
    return _Writer(r).run(lines)


def is_exact(x: np.ndarray) -> bool:
    """Are all values integers, or few-digit binary fractions that no rounding has touched?"""
    if x.dtype.kind != "f":
        return True
    if not np.isfinite(x).all():
        return False
    scaled = x.astype(np.float64) * 1024
    return bool((scaled == np.rint(scaled)).all() and (np.abs(scaled) < 2**21).all())


@dataclass
class _Writer:
    r: random.Random
    scope: dict = field(default_factory=lambda: {"np": np})
    arrays: list[str] = field(default_factory=list)
    exact: dict[str, bool] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def run(self, count: int) -> Program:
        r, seed = self.r, self.r.randint(0, 2**31)
        sizes = {f"size{i}": r.choice(SIZES) for i in range(3)}
        arguments = []
        for name in r.sample(NAMES, r.randint(1, 4)):
            shape = tuple(r.choice([*sizes, *sizes, 1, 2]) for _ in range(r.choice((0, 1, 2, 2, 3))))
            arguments.append((name, r.choice(DTYPES), shape))
        draft = Program("", tuple(arguments), sizes, seed)
        for (name, _, _), array in zip(arguments, draft.inputs(), strict=True):
            self._know(name, array)
        tries = 0
        while len(self.lines) < count and tries < 5 * count:
            tries += 1
            self._try(r.choice(LINES)(self))
        header = f"def program({', '.join(a[0] for a in arguments)}):\n"
        body = "".join(f"    {line}\n" for line in [*self.lines, f"return {self._result()}"])
        return Program(header + body, tuple(arguments), sizes, seed)

    def _know(self, name: str, value: np.ndarray) -> None:
        self.scope[name] = value
        if name not in self.arrays:
            self.arrays.append(name)
        self.exact[name] = is_exact(value)

    def _try(self, text: str | None) -> None:
        """Run a line ``v = ...`` (or one that changes its first word in place) and keep it if its value is worth it."""
        if text is None:
            return
        saved = {k: self.scope[k].copy() for k in self.arrays}
        name = text.split("[")[0].split(" ")[0]
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec(text, self.scope)
            fine = self._is_fine(self.scope[name])
        except Exception:
            fine = False
        if fine:
            self.lines.append(text)
            for known in [*self.arrays, name]:  # views may have changed too
                self._know(known, self.scope[known])
        else:
            for k, v in saved.items():
                if v.shape and self.scope[k].flags.writeable:
                    self.scope[k][...] = v

    def _is_fine(self, x: object) -> bool:
        if not isinstance(x, np.ndarray | np.generic) or x.dtype.name not in DTYPES or x.size > LARGEST or x.ndim > 5:
            return False
        if x.dtype.kind != "f":
            return True
        return bool(np.isfinite(x).all() and (x.size == 0 or np.abs(x).max() < 1e6))

    def _result(self) -> str:
        r = self.r
        chosen = r.sample(self.arrays, min(len(self.arrays), r.randint(1, 6)))
        if self.lines and (last := self.lines[-1].split(" ")[0].split("[")[0]) not in chosen:
            chosen.append(last)
        match r.randint(0, 4):
            case 0:
                return f"{{'a': {chosen[0]}, 'b': [{', '.join(chosen)}], 'c': 3}}"
            case 1:
                return f"({chosen[0]}, ({', '.join(chosen)},), 2.5, None)"
            case 2:
                return chosen[-1]
        return f"({', '.join(chosen)},)"

    # ---- choices

    def new(self) -> str:
        return f"v{sum(not line.split(' ')[0].endswith(']') for line in self.lines)}"

    def pick(self, kinds: str = "fiub", exact: bool = False, rank: int = 0) -> str | None:
        """A value of these dtype kinds, recent ones more often."""
        fitting = [
            a
            for a in self.arrays
            if self.scope[a].dtype.kind in kinds and (self.exact[a] or not exact) and self.scope[a].ndim >= rank
        ]
        if not fitting:
            return None
        return self.r.choice(fitting[-4:] if self.r.random() < 0.6 else fitting)

    def axis(self, name: str) -> int:
        ndim = self.scope[name].ndim
        return self.r.randint(-ndim, ndim - 1) if ndim else 0

    def slices(self, name: str) -> str:
        """A basic index: slices with steps, integers, new axes."""
        r, parts = self.r, []
        for d in self.scope[name].shape:
            match r.randint(0, 5):
                case 0:
                    parts.append(":")
                case 1 if d:
                    parts.append(str(r.randint(-d, d - 1)))
                case 2:
                    parts.append(f"::{r.choice((1, 2, 3, -1, -2))}")
                case 3:
                    parts.append(f"{r.randint(-d - 1, d + 1)}:")
                case 4:
                    parts.append(f":{r.randint(-d - 1, d + 1)}")
                case _:
                    parts.append(f"{r.randint(-d - 1, d)}:{r.randint(-d - 1, d + 1)}:{r.choice((1, 2, -1))}")
            if r.random() < 0.1:
                parts.append("None")
        return ", ".join(parts) or "..."


FLOAT = "exp sqrt sin cos tanh log1p expm1 arctan cbrt".split()
ANY_UNARY = "negative absolute square positive".split()
JUMPING = "floor ceil rint trunc sign isnan isfinite signbit logical_not".split()
ARITHMETIC = "add subtract multiply maximum minimum add subtract multiply fmax fmin".split()
COMPARING = "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor".split()
DIVIDING = "floor_divide remainder fmod divmod".split()
BITWISE = "bitwise_and bitwise_or bitwise_xor left_shift right_shift gcd".split()
SMOOTH = "divide arctan2 hypot copysign logaddexp power".split()
NUMBERS = ("0", "1", "-1", "2", "0.5", "True", "3", "-2.5")


def unary(w: _Writer) -> str | None:
    kind = w.r.randint(0, 3)
    x = w.pick() if kind == 0 else w.pick("f") if kind == 1 else w.pick(exact=True) if kind == 2 else w.pick("iub")
    if x is None:
        return None
    name = w.r.choice((ANY_UNARY, FLOAT, JUMPING, ["invert", "absolute", "negative"])[kind])
    inside = f"np.absolute({x})" if name in ("sqrt", "log1p") else x
    return f"{w.new()} = np.{name}({inside})"


def binary(w: _Writer) -> str | None:
    kind = w.r.choice((0, 0, 0, 1, 1, 2, 3, 4))
    kinds, exact = ("fiub", "fiub", "fiu", "iub", "fiub")[kind], kind in (1, 2)
    x, y = w.pick(kinds, exact), w.pick(kinds, exact)
    if x is None or y is None:
        return None
    if w.r.random() < 0.25:
        y = w.r.choice(NUMBERS)
    if w.r.random() < 0.1:
        x, y = y, x
    name = w.r.choice((ARITHMETIC, COMPARING, DIVIDING, BITWISE, SMOOTH)[kind])
    if name == "divmod":
        return f"{w.new()} = np.divmod({x}, {y})[{w.r.randint(0, 1)}]"
    if name == "power":
        return f"{w.new()} = {x} ** {w.r.choice(('2', '3', '0', '1', '-1', '0.5', '2.0'))}"
    return f"{w.new()} = np.{name}({x}, {y})"


def operator(w: _Writer) -> str | None:
    sign = w.r.choice("+ - * < == % // & | ^".split())
    bits, jumps = sign in "&|^", sign in "<==%//"
    x, y = w.pick("iub" if bits else "fiub", jumps), w.pick("iub" if bits else "fiub", jumps)
    if x is None or y is None:
        return None
    if w.r.random() < 0.3:
        y = w.r.choice(NUMBERS)
    return f"{w.new()} = {x} {sign} {y}" if w.r.random() < 0.7 else f"{w.new()} = {y} {sign} {x}"


def reduction(w: _Writer) -> str | None:
    name = w.r.choice("sum sum max min prod any all mean argmax argmin var std ptp count_nonzero".split())
    x = w.pick(exact=name in ("argmax", "argmin", "any", "all", "count_nonzero"))
    if x is None:
        return None
    ndim = w.scope[x].ndim
    axis: object = w.r.choice((None, w.axis(x) if ndim else None))
    if ndim > 1 and w.r.random() < 0.3 and name not in ("argmax", "argmin"):
        axis = tuple(w.r.sample(range(ndim), w.r.randint(0, ndim)))
    keep = ", keepdims=True" if w.r.random() < 0.4 else ""
    return f"{w.new()} = np.{name}({x}, axis={axis}{keep})"


def movement(w: _Writer) -> str | None:
    r, x = w.r, w.pick()
    shape = w.scope[x].shape
    ndim = len(shape)
    choices = [
        f"np.transpose({x}, {tuple(r.sample(range(ndim), ndim))})",
        f"{x}.T",
        f"np.expand_dims({x}, {r.randint(-ndim - 1, ndim)})",
        f"np.flip({x}, {r.choice((None, w.axis(x) if ndim else None))})",
        f"np.roll({x}, {r.randint(-3, 3)}, axis={w.axis(x) if ndim and r.random() < 0.7 else None})",
        f"np.broadcast_to({x}, {(r.choice(SIZES), *shape)})",
        f"np.squeeze({x})",
        f"{x}.ravel()",
        f"np.reshape({x}, {_new_shape(r, shape)})",
        f"np.reshape({x}, (*{x}.shape[::-1],))",
        f"{x}.copy()",
        f"np.tile({x}, {r.randint(0, 3)})",
    ]
    if ndim:
        choices += [
            f"np.repeat({x}, {r.randint(0, 3)}, axis={w.axis(x)})",
            f"np.pad({x}, {r.randint(0, 2)})",
            f"np.moveaxis({x}, {w.axis(x)}, {w.axis(x)})",
            f"{x}[{w.slices(x)}]",
            f"{x}[{w.slices(x)}]",
            f"{x}[..., None]",
        ]
    return f"{w.new()} = {r.choice(choices)}"


def _new_shape(r: random.Random, shape: tuple[int, ...]) -> tuple[int, ...]:
    total, parts = math.prod(shape), []
    while total > 1 and len(parts) < 3:
        d = r.choice([d for d in range(1, total + 1) if total % d == 0])
        parts.append(d)
        total //= d
    parts.append(total)
    if 0 not in parts and r.random() < 0.4:
        parts[r.randrange(len(parts))] = -1
    return tuple(parts)


def join(w: _Writer) -> str | None:
    r, x = w.r, w.pick()
    others = [a for a in w.arrays if w.scope[a].ndim == w.scope[x].ndim]
    chosen = [x, *(r.choice(others) for _ in range(r.randint(0, 2)))]
    if r.random() < 0.5 and w.scope[x].ndim:
        return f"{w.new()} = np.concatenate(({', '.join(chosen)},), axis={w.axis(x)})"
    return f"{w.new()} = np.stack(({', '.join(chosen)},), axis={r.randint(-w.scope[x].ndim - 1, w.scope[x].ndim)})"


def choose(w: _Writer) -> str | None:
    c, x, y = w.pick("b"), w.pick(), w.pick()
    if w.r.random() < 0.3:
        y = w.r.choice(NUMBERS)
    if w.r.random() < 0.3:
        return f"{w.new()} = np.clip({x}, {w.r.choice(('0', '-1', 'None'))}, {w.r.choice(('1', '2'))})"
    return c and f"{w.new()} = np.where({c}, {x}, {y})"


def gather(w: _Writer) -> str | None:
    x, at = w.pick(rank=1), w.pick("iu", rank=0)
    if x is None or at is None:
        return None
    axis = w.axis(x)
    return w.r.choice((
        f"{w.new()} = np.take({x}, {at} % max(1, {x}.shape[{axis}]), axis={axis})",
        f"{w.new()} = {x}[{at} % max(1, {x}.shape[0])]",
        f"{w.new()} = np.take({x}, [0, -1, 0], axis={axis})",
        f"{w.new()} = np.take_along_axis({x}, np.argsort({x}, axis={axis}, kind='stable'), axis={axis})",
    ))


def cast(w: _Writer) -> str | None:
    x = w.pick(exact=True)
    return x and f"{w.new()} = {x}.astype(np.{w.r.choice(DTYPES)})"


def product(w: _Writer) -> str | None:
    x, y = w.pick("fiu", rank=1), w.pick("fiu", rank=1)
    if x is None or y is None:
        return None
    return w.r.choice((
        f"{w.new()} = {x} @ {y}",
        f"{w.new()} = {x} @ {y}.T",
        f"{w.new()} = np.matmul(np.swapaxes({x}, 0, -1), {y})",
        f"{w.new()} = np.dot({x}, {y})",
        f"{w.new()} = np.outer({x}, {y})",
        f"{w.new()} = np.einsum('ij,kj->ki', {x}, {y})",
        f"{w.new()} = np.einsum('...i,...i', {x}, {y})",
    ))


def scan(w: _Writer) -> str | None:
    x = w.pick(exact=True, rank=1)
    if x is None:
        return None
    name = w.r.choice("cumsum cumprod sort argsort diff".split())
    kind = ", kind='stable'" if "sort" in name else ""
    return f"{w.new()} = np.{name}({x}, axis={w.axis(x)}{kind})"


def softmax(w: _Writer) -> str | None:
    x = w.pick("f", rank=1)
    if x is None:
        return None
    axis = w.axis(x)
    return (
        f"{w.new()} = (lambda e: e / np.sum(e, axis={axis}, keepdims=True))"
        f"(np.exp({x} - np.max({x}, axis={axis}, keepdims=True)))"
    )


def assign(w: _Writer) -> str | None:
    """In place, on a value that is a copy of its own."""
    own = [line.split(" ")[0] for line in w.lines if line.endswith(".copy()")]
    if not own:
        x = w.pick(rank=1)
        return x and f"{w.new()} = {x}.copy()"
    x, y = w.r.choice(own), w.pick()
    sign = w.r.choice(("=", "=", "+=", "-=", "*="))
    return f"{x}[{w.slices(x)}] {sign} {y if w.r.random() < 0.7 else w.r.choice(('0', '1', '2'))}"


def triangle(w: _Writer) -> str | None:
    x = w.pick(rank=2)
    return x and f"{w.new()} = np.{w.r.choice(('tril', 'triu'))}({x}, {w.r.randint(-1, 1)})"


LINES = (
    unary, unary, binary, binary, binary, operator, reduction, reduction, movement, movement, movement,
    join, choose, gather, cast, product, scan, softmax, assign, assign, triangle,
)  # fmt: skip

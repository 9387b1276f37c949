"""Random functions with branches and loops as source text, for differential tests: whole numbers only, so every order of
computing gives the same.

Lines are tried as they are written, eagerly, so that a line which NumPy or a loop refuses is dropped.  What a body returns is
fitted to what it got: the same shape, a bounded range.  Sizes that only the run tells (`unique`, masks, values that grow) stand
in some programs.  Bodies see everything from outside, and write in place to what they are passed.

>>> program = write_control(random.Random(4), lines=2)
>>> program.function().__name__
'program'
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass, field

import numpy as np

import minirelax as mr
from tests.fuzz_programs import Program

DTYPES = ("float32", "float32", "float64", "int64", "int32", "bool")
SIZES = (0, 1, 2, 3, 4, 5, 6)
LARGEST = 500  # elements of a value
RANGE = 2000  # absolute value of a number


def write_control(r: random.Random, lines: int = 4, sizes_change: bool = True) -> Program:
    """A function of about so many statements, most of them branches and loops; `sizes_change`: with values of unknown size."""
    seed = r.randint(0, 2**31)
    sizes = dict(zip(("n", "m"), r.sample(SIZES, 2), strict=True))
    shapes = [("n",), ("n",), ("n", "m"), ("m",), ("m", "n"), ("n", "n"), (), (3,)]
    arguments = [
        (name, r.choice(DTYPES[:-1]), r.choice(shapes)) for name in r.sample(("x", "y", "w", "n", "out"), r.randint(1, 3))
    ]
    arguments += [("k", "int64", ()), ("p", "bool", ())]
    draft = Program("", tuple(arguments), sizes, seed)
    block = Block(r, dict(zip((a[0] for a in arguments), draft.inputs(), strict=True)), sizes_change)
    block.fill(lines, control=1.0)
    for _ in range(2):
        if not block.has_control():
            block.fill(2, control=1.0)
    names = [v for v in block.made if v in block.values] or list(block.values)
    chosen = r.sample(names, min(len(names), r.randint(2, 7)))
    chosen += r.choices(list(block.values), k=r.choice((0, 0, 1)))
    text = [f"def program({', '.join(a[0] for a in arguments)}):", *block.lines, f"return {_tuple(chosen)}"]
    body = "\n".join([text[0], *(f"    {line}" for line in text[1:])])
    return Control(body + "\n", tuple(arguments), sizes, seed)


class Control(Program):
    """A program whose arguments `k` and `p` are a small number and a flag."""

    def function(self, kept=lambda f: f):
        """The program as a Python function of its arguments; `kept` decorates the functions that it calls."""
        scope: dict = {"np": np, "mr": mr, "kept": kept}
        exec(self.text, scope)
        return scope["program"]

    def inputs(self, sizes: dict[str, int] | None = None) -> list[np.ndarray]:
        """Arguments for these sizes (default: the ones the program was written for), `k` and `p` among the sizes."""
        known = {**self.sizes, **(sizes or {})}
        rng = np.random.default_rng(self.seed)
        found = []
        for name, dtype, shape in self.arguments:
            drawn = rng.integers(-4, 5, tuple(known.get(d, d) for d in shape))
            drawn = np.asarray(drawn if name not in ("k", "p") else known.get(name, abs(int(drawn)) % 4))
            found.append(drawn.astype(dtype))
        return found


@dataclass
class Block:
    """The lines of one function, with the values that they have on an example."""

    r: random.Random
    values: dict[str, np.ndarray]  # everything that can be read
    sizes_change: bool = True
    depth: int = 0
    counter: list[int] = field(default_factory=lambda: [0])  # shared by all blocks of a program
    own: tuple[str, ...] = ()  # what may be written to
    lines: list[str] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def fill(self, count: int, control: float) -> None:
        """Add about `count` statements, the share `control` of them branches and loops."""
        for _ in range(5 * count):
            if count == 0:
                return
            kinds = CONTROL if self.depth < 3 and self.r.random() < control else LINES
            count -= self.accept(self.r.choice(kinds)(self))

    def accept(self, lines: list[str] | None) -> bool:
        """Run the lines; keep them if the values that they define are worth it."""
        if not lines:
            return False
        scope = {"np": np, "mr": mr, "kept": lambda f: f} | {
            k: v.copy() if isinstance(v, np.ndarray) else v for k, v in self.values.items()
        }
        before = set(scope)
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                exec("\n".join(lines), scope)
        except Exception:
            return False
        new = {k: v for k, v in scope.items() if k not in before and isinstance(v, np.ndarray | np.generic | int | bool)}
        if not all(map(_is_fine, new.values())):
            return False
        self.lines += lines
        self.made += list(new)
        self.values |= {k: v for k, v in scope.items() if k in self.values} | new
        return True

    def has_control(self) -> bool:
        return any(f"mr.{name}(" in line for line in self.lines for name in ("cond", "while_loop", "fori_loop", "scan"))

    # ---- choices

    def new(self) -> str:
        self.counter[0] += 1
        return f"v{self.counter[0]}"

    def pick(self, rank: int = 0, kinds: str = "fiub") -> str | None:
        """A value; arrays and recent ones more often."""
        fitting = [k for k, v in self.values.items() if np.asarray(v).dtype.kind in kinds and np.ndim(v) >= rank]
        if self.r.random() < 0.6:
            fitting = [k for k in fitting if np.ndim(self.values[k])] or fitting
        if not fitting:
            return None
        return self.r.choice(fitting[-4:] if self.r.random() < 0.6 else fitting)

    def result(self) -> str:
        """A value worth returning: most often one that was made here."""
        return self.r.choice(self.made[-4:]) if self.made and self.r.random() < 0.7 else self.pick()

    def truth(self) -> str:
        """A condition."""
        x = self.result()
        return self.r.choice(
            (
                "p",
                "~p",
                f"np.sum({x}) > 0",
                f"np.sum({x}) % 2 == 0",
                f"np.any({x} > 1)",
                "k > 1",
                "k",
                f"{self.pick(1) or 'np.ones(2)'}.shape[0] > 2",
            )
        )

    def inside(self, params: list[str], given: list[object], share: float = 0.35) -> Block:
        """The block of a function with these parameters, filled."""
        values = {k: v for k, v in self.values.items() if k not in params}
        values |= {k: np.array(v) if np.ndim(v) else v for k, v in zip(params, given, strict=True)}
        own = tuple(k for k, v in zip(params, given, strict=True) if np.ndim(v))
        block = Block(self.r, values, self.sizes_change, self.depth + 1, self.counter, own)
        block.fill(self.r.choice((0, 1, 1, 2, 3)), share)
        return block

    def fitted(self, name: str, value: object, shapes: bool = True) -> str:
        """An expression of the type of a value, which is called `name`; with `shapes` of its shape, too."""
        r, shape, dtype = self.r, np.shape(value), np.asarray(value).dtype
        others = [k for k, v in self.values.items() if np.shape(v) == shape]
        same = [k for k in others if np.asarray(self.values[k]).dtype == dtype and type(self.values[k]) is type(value)]
        kind = r.random()
        if kind < 0.15:
            return name
        if kind < 0.45 and same:
            return r.choice(same)
        x = self.result()
        choices = [f"{name} + 1", f"{name} * np.sum({x})", f"np.where({self.truth()}, {name}, 1)", f"{name} - {r.choice(others)}"]
        if shape:
            choices += [f"{name}[::-1]", f"np.cumsum({name}, axis={r.randint(-len(shape), len(shape) - 1)})"]
            choices += [
                f"np.sort({name}, axis=0)",
                f"{name}.reshape(-1)[::-1].reshape({name}.shape)",
                f"({name} + {x})[:{len(value)}]",
            ]
            choices += [f"np.zeros_like({name})", f"{r.choice(others)}", f"np.concatenate([{name}[1:], {name}[:1]])"]
        if len(shape) == 2:
            choices += [f"{name}.T", f"{name} @ {name}.T", f"{name}.T.reshape({name}.shape)"]
        elif not shape:
            choices += [f"np.sum({x})", f"{name} // 2", r.choice("0123")]
        if isinstance(value, bool | int):
            return f"{name} + {r.choice('012')}"
        text = r.choice(choices)
        if np.dtype(dtype).kind == "b":
            return f"{text} > 0"
        return f"np.clip({text}, -9, 9).astype(np.{dtype})"


def _is_fine(x: object) -> bool:
    x = np.asarray(x)
    return (
        x.dtype.name in DTYPES
        and x.size <= LARGEST
        and x.ndim <= 3
        and (x.dtype.kind == "b" or bool((np.abs(x) <= RANGE).all() and (x == np.floor(x)).all()))
    )


def _kind(x: object) -> tuple:
    """What two results of a branch have in common."""
    return np.ndim(x), np.asarray(x).dtype, isinstance(x, int)


def _tuple(parts: list[str]) -> str:
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


def _indented(header: str, lines: list[str]) -> list[str]:
    return [header, *(f"    {line}" for line in lines)]


# ---------------------------------------------------------------- plain statements


def elementwise(b: Block) -> list[str] | None:
    x, y = b.pick(), b.pick()
    name = b.r.choice("add subtract multiply maximum minimum add".split())
    return [f"{b.new()} = np.{name}({x}, {b.r.choice((y, y, '1', '2', '-1'))})"]


def choose(b: Block) -> list[str] | None:
    return [f"{b.new()} = np.where({b.pick()} > {b.pick()}, {b.pick()}, {b.pick()})"]


def reduce(b: Block) -> list[str] | None:
    x = b.pick()
    axis = b.r.choice(("", "", "axis=0", "axis=-1", "axis=0, keepdims=True"))
    return [f"{b.new()} = np.{b.r.choice(('sum', 'max', 'sum', 'argmax', 'any'))}({x}{', ' if axis else ''}{axis})"]


def move(b: Block) -> list[str] | None:
    x = b.pick(1)
    return x and [f"{b.new()} = " + b.r.choice((
        f"{x}.T", f"{x}[::-1]", f"{x}[1:]", f"{x}[:2]", f"{x}.reshape(-1)", f"{x}[None]", f"{x}[::2]", f"{x}[..., 0]", f"{x}[0]",
        f"{x}[:, None]", f"np.concatenate([{x}, {x}])", f"np.stack([{x}, {x}], axis=-1)", f"np.take({x}, [0, -1], axis=0)",
        f"{x}[k % max(1, {x}.shape[0])]", f"np.cumsum({x}, axis=0)", f"np.sort({x}, axis=-1)",
        f"np.argsort({x}, axis=0, kind='stable')",
        f"{x}.reshape({x}.shape + (1,))",
    ))]  # fmt: skip


def product(b: Block) -> list[str] | None:
    x, y = b.pick(1, "fi"), b.pick(1, "fi")
    return x and [f"{b.new()} = {x} {b.r.choice(('@', '@', '*'))} {y}"]


def constant(b: Block) -> list[str] | None:
    return [
        f"{b.new()} = " + b.r.choice(("np.arange(3)", "np.array([1.0, -2.0])", "np.ones(2, np.float32)", "3", "np.float32(2)"))
    ]


def of_unknown_size(b: Block) -> list[str] | None:
    x = b.pick(1)
    return (
        x
        and b.sizes_change
        and [
            f"{b.new()} = "
            + b.r.choice(
                (f"{x}[{x} > 0]", f"np.unique({x})", f"np.compress({x}.reshape(-1) > 0, {x}.reshape(-1))", f"np.nonzero({x})[0]")
            )
        ]
    )


def write(b: Block) -> list[str] | None:
    """In place, to something that the body was passed."""
    own = [v for v in b.own if isinstance(b.values.get(v), np.ndarray) and b.values[v].ndim and b.values[v].dtype.kind != "b"]
    if not own:
        return None
    x, at = b.r.choice(own), b.r.choice(("...", "0", "1:", "::2", "-1", f"k % max(1, {b.r.choice(own)}.shape[0])"))
    name = b.new()
    return [f"{x}[{at}] {b.r.choice(('=', '+=', '-='))} {b.r.choice((b.pick() or '1', '1', '2'))}", f"{name} = np.sum({x})"]


def call(b: Block) -> list[str] | None:
    """A function of its own, which sees only what it is passed; called twice."""
    name, r = b.new(), b.r
    passed = [b.pick() for _ in range(r.randint(1, 3))]
    params = [f"{name}_{i}" for i in range(len(passed))]
    block = Block(r, {p: b.values[v] for p, v in zip(params, passed, strict=True)}, b.sizes_change, b.depth + 1, b.counter)
    block.values |= {"p": np.asarray(r.random() < 0.5), "k": np.asarray(r.randint(0, 3))}
    block.fill(r.choice((1, 2, 3)), 0.3)
    results = [block.result() for _ in range(r.choice((1, 1, 2)))]
    like = [r.choice([v for v in b.values if _kind(b.values[v]) == _kind(b.values[w])]) for w in passed]
    return [
        "@kept",
        *_indented(f"def f{name}({', '.join([*params, 'p', 'k'])}):", [*block.lines, f"return {_tuple(results)}"]),
        f"{_tuple([b.new() for _ in results])} = f{name}({', '.join([*passed, 'p', 'k'])})",
        *([f"{_tuple([b.new() for _ in results])} = f{name}({', '.join([*like, 'p', 'k'])})"] if r.random() < 0.5 else []),
    ]


LINES = (elementwise, elementwise, choose, reduce, move, move, product, constant, of_unknown_size, write, write, call)


# ---------------------------------------------------------------- branches and loops


def cond(b: Block) -> list[str] | None:
    name, r = b.new(), b.r
    passed = [v for v in dict.fromkeys(b.pick() for _ in range(r.randint(0, 2)))]
    params = [f"{v}_" for v in passed]
    given = [b.values[v] for v in passed]
    first, second = b.inside(params, given), b.inside(params, given)
    picked = [first.result() for _ in range(r.choice((1, 1, 2, 3)))]
    wanted = [(v, first.values[v]) for v in picked]
    shared = [v for v in b.values if v in first.values]
    left, right = [], []
    for v, value in wanted:
        left.append(v)
        fitting = [
            k
            for k, other in second.values.items()
            if _kind(other) == _kind(value) and (b.sizes_change or np.shape(other) == np.shape(value))
        ]
        fitting = fitting if fitting and r.random() < 0.7 or v not in shared else [v]
        if not fitting:
            return None
        right.append(r.choice(fitting))
    single = len(left) == 1 and r.random() < 0.5
    results = [b.new() for _ in left]
    shown = (lambda parts: parts[0]) if single else _tuple
    return [
        *_indented(f"def then{name}({', '.join(params)}):", [*first.lines, f"return {shown(left)}"]),
        *_indented(f"def other{name}({', '.join(params)}):", [*second.lines, f"return {shown(right)}"]),
        f"{shown(results)} = mr.cond({', '.join([b.truth(), f'then{name}', f'other{name}', *passed])})",
    ]


def carried(b: Block) -> list[tuple[str, object]]:
    """What a loop starts with: texts and values."""
    found = []
    for _ in range(b.r.choice((1, 1, 2, 3))):
        v = b.pick()
        if b.r.random() < 0.15:
            found.append(b.r.choice((("0", 0), ("np.zeros(3)", np.zeros(3)), ("np.int64(1)", np.int64(1)))))
        else:
            found.append((v, b.values[v]))
    return found


def fori(b: Block) -> list[str] | None:
    name, r, start = b.new(), b.r, carried(b)
    params = [f"{name}_{i}" for i in range(len(start))]
    block = b.inside([*params, "i"], [*(v for _, v in start), 0])
    results = [block.fitted(p, v) for p, (_, v) in zip(params, start, strict=True)]
    upper = r.choice(("0", "1", "2", "3", "k", "k", "2 * k", f"{b.pick(1) or 'k'}.shape[0]" if b.pick(1) else "2"))
    return [
        *_indented(f"def step{name}(i, s):", [f"{_tuple(params)} = s", *block.lines, f"return {_tuple(results)}"]),
        f"{_tuple([b.new() for _ in start])} = mr.fori_loop({r.choice(('0', '0', '1', 'k'))}, {upper}, step{name}, "
        f"{_tuple([t for t, _ in start])})",
    ]


def while_(b: Block) -> list[str] | None:
    name, r, start = b.new(), b.r, carried(b)
    params = [f"{name}_{i}" for i in range(len(start))]
    block = b.inside([*params, f"{name}_n"], [*(v for _, v in start), 0])
    results = [block.fitted(p, v) for p, (_, v) in zip(params, start, strict=True)]
    if b.sizes_change and r.random() < 0.35:
        at = r.randrange(len(start))
        if np.ndim(start[at][1]) == 1:
            p = params[at]
            results[at] = r.choice(
                (f"np.concatenate([{p}, {p}[:1]])", f"{p}[1:]", f"np.unique({p})", f"{p}[{p} > 0]", f"{p}[::2]")
            )
    test = b.inside(params, [v for _, v in start], 0.2)
    limit = r.choice(("2", "3", "k", "0"))
    condition = r.choice(
        (f"{name}_n < {limit}", f"({name}_n < {limit}) & ({test.truth()})", f"np.logical_and({test.truth()}, {name}_n < 3)")
    )
    unpack = f"{_tuple([*params, f'{name}_n'])} = s"
    return [
        *_indented(f"def test{name}(s):", [unpack, *test.lines, f"return {condition}"]),
        *_indented(f"def step{name}(s):", [unpack, *block.lines, f"return {_tuple([*results, f'{name}_n + 1'])}"]),
        f"{_tuple([b.new() for _ in (*start, 0)])} = "
        f"mr.while_loop(test{name}, step{name}, {_tuple([*(t for t, _ in start), '0'])})",
    ]


def scan(b: Block) -> list[str] | None:
    name, r = b.new(), b.r
    start = [] if r.random() < 0.1 else carried(b)
    arrays = [v for v in (b.pick(1), b.pick(1)) if v][: r.randint(0, 2)]
    if arrays and any(len(b.values[v]) != len(b.values[arrays[0]]) for v in arrays):
        arrays = arrays[:1]
    length = "" if arrays else f", length={r.choice(('0', '1', '3'))}"
    if arrays and len(b.values[arrays[0]]) == 0:
        rows = [np.zeros(b.values[v].shape[1:], b.values[v].dtype)[()] for v in arrays]
    else:
        rows = [b.values[v][0] for v in arrays]
    params, slices = [f"{name}_{i}" for i in range(len(start))], [f"{name}_x{i}" for i in range(len(arrays))]
    block = b.inside([*params, *slices], [*(v for _, v in start), *rows])
    results = [block.fitted(p, v) for p, (_, v) in zip(params, start, strict=True)]
    ys = [block.result() for _ in range(r.choice((0, 1, 1, 2)))]
    return [
        *_indented(
            f"def step{name}(s, {name}_xs):",
            [
                *([f"{_tuple(params)} = s"] if params else []),
                *([f"{_tuple(slices)} = {name}_xs"] if slices else []),
                *block.lines,
                f"return {_tuple(results) if results else '()'}, {_tuple(ys) if ys else None}",
            ],
        ),
        f"{name}c, {name}y = mr.scan(step{name}, {_tuple([t for t, _ in start]) if start else '()'}, "
        f"{_tuple(arrays) if arrays else None}{length}{r.choice(('', '', ', reverse=True'))})",
        *([f"{_tuple([b.new() for _ in start])} = {name}c"] if start else []),
        *([f"{_tuple([b.new() for _ in ys])} = {name}y"] if ys else []),
    ]


CONTROL = (cond, fori, while_, scan, cond, fori, while_, scan, call, elementwise, move, of_unknown_size)

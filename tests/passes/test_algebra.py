"""Random programs on special values compute the same bits before and after `simplify` and `merge_common`.

NaN counts as equal to NaN, whatever it carries.  What has no one answer is left out: which of 0.0 and -0.0 `maximum` gives
(NumPy's depends on where the element lies), sums of floats in another order, and ``power(x, 2)``, rounded worse than a square.
"""

import numpy as np
import pytest

from minirelax.errors import CompileError
from minirelax.ir.dim import dim, value
from minirelax.ir.graph import Atom, Binding, Const, Dataflow, Function, MakeTuple, Module, Var
from minirelax.ir.interpret import interpret
from minirelax.ir.types import NUMPY_DTYPES, Tensor, Tuple
from minirelax.ir.verify import verify
from minirelax.ops import OPS
from minirelax.ops.elementwise import Cast, Where
from minirelax.ops.movement import BroadcastTo, Reshape, Transpose
from minirelax.passes.eliminate_dead_code import eliminate_dead_code
from minirelax.passes.merge_common import merge_common
from minirelax.passes.simplify import simplify

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of overflows and invalid values: they are meant

N, M, ONE = dim("n"), dim("m"), 1
SHAPES = ((N, M), (M, N), (M * N,), (N, ONE), (ONE, N), (N, ONE, M), (ONE, M))
SPECIAL = {
    "f32": (np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1.5, -1.5, 3.4e38, -3.4e38, 1.1754944e-38),
    "f64": (np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 0.1, -1.7e308, 2.2250738585072014e-308),
    "i8": (-128, -127, -9, -8, -1, 0, 1, 7, 8, 127),
    "u8": (0, 1, 2, 7, 8, 9, 128, 254, 255),
    "i64": (-(2**63), -(2**63) + 1, -5, -1, 0, 1, 3, 2**63 - 1),
    "bool": (False, True),
}
CONSTANTS = {
    "f": (0.0, -0.0, 1.0, -1.0, 2.0, 4.0, -0.5, 3.0, float("inf"), float("nan")),
    "i": (0, 1, 2, 3, 4, 8, 16, -1, -4),
    "u": (0, 1, 2, 3, 4, 8, 16, 255),
    "b": (False, True),
}
FLOAT_BOUNDS = (1.0, -1.0, 2.0, float("inf"), float("nan"))
UNARY = {
    "f": ("negative", "absolute", "square", "sqrt", "logical_not"),
    "i": ("negative", "absolute", "square", "invert", "logical_not"),
    "u": ("negative", "absolute", "square", "invert", "logical_not"),
    "b": ("absolute", "invert", "logical_not"),
}
ANY = ("add", "multiply", "equal", "not_equal", "less", "greater", "greater_equal", "less_equal", "logical_and", "logical_or",
       "logical_xor")
BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "maximum", "minimum")
BINARY = {
    "f": (*ANY, "subtract", "divide"),
    "i": (*ANY, *BITS, "subtract", "floor_divide", "remainder"),
    "u": (*ANY, *BITS, "subtract", "floor_divide", "remainder"),
    "b": (*ANY, *BITS),
}
CASTS = {"f32": ("f64", "bool", "f32"), "f64": ("f32", "bool"), "i8": ("i64", "f32", "bool"), "u8": ("i64", "f32", "bool"),
         "i64": ("i8", "u8", "bool"), "bool": ("f32", "i8", "u8")}


class Grower:
    """A random program: every new binding reads values that are there, the last ones more often."""

    def __init__(self, seed: int):
        self.rng = np.random.default_rng(seed)
        shapes = (SHAPES[0], self.pick(SHAPES), self.pick(SHAPES))  # the first one shows both sizes
        self.params = [Var(f"x{i}", Tensor(self.pick(tuple(SPECIAL)), shape)) for i, shape in enumerate(shapes)]
        self.values, self.bindings = list(self.params), []

    def pick(self, choices):
        return choices[int(self.rng.integers(len(choices)))]

    def value(self, dtype: str = "") -> Atom | None:
        """A value, or one of a dtype, if there is any."""
        known = [v for v in self.values[-5:] + self.values[-2:] + self.values if not dtype or v.type.dtype == dtype]
        return self.pick(known) if known else None

    def expression(self):
        x = self.value()
        kind, rank = x.type.dtype[0], len(x.type.shape)
        match self.pick(("unary", "binary", "constant", "bound", "power", "cast", "where", "move", "back", "reduce")):
            case "unary":
                return OPS[self.pick(UNARY[kind])](x)
            case "binary":
                return OPS[self.pick(BINARY[kind])](x, self.value(x.type.dtype))
            case "constant":
                c, name = Const(self.pick(CONSTANTS[kind]), x.type.dtype), self.pick(BINARY[kind])
                if kind == "f" or name not in ("maximum", "minimum"):
                    return OPS[name](*((x, c) if self.rng.random() < 0.7 else (c, x)))
                return OPS[name](x, c)
            case "bound":
                c = Const(self.pick(FLOAT_BOUNDS if kind == "f" else CONSTANTS[kind]), x.type.dtype)
                return OPS[self.pick(("maximum", "minimum"))](*((x, c) if self.rng.random() < 0.5 else (c, x)))
            case "power" if kind != "b":
                return OPS["power"](x, Const((float if kind == "f" else int)(self.pick((0, 1))), x.type.dtype))
            case "cast":
                return Cast(x, self.pick(CASTS[x.type.dtype]))
            case "where":
                c = self.value("bool") if self.rng.random() < 0.7 else Const(bool(self.rng.integers(2)), "bool")
                return c and Where(c, x, self.value(x.type.dtype))
            case "move":
                return Transpose(x, tuple(map(int, self.rng.permutation(rank)))) if rank > 1 else Reshape(x, self.pick(SHAPES))
            case "back":
                return self.pick((Reshape, Reshape, BroadcastTo))(x, self.pick(SHAPES))
            case "reduce" if kind != "f" and rank > 1:
                axes = tuple(sorted(map(int, self.rng.permutation(rank)[: self.rng.integers(rank)])))
                return OPS["any" if kind == "b" else self.pick(("sum", "prod", "max"))](x, axes, bool(self.rng.integers(2)))
            case "reduce" if rank > 1:
                return OPS[self.pick(("argmax", "argmin"))](x, int(self.rng.integers(rank)), bool(self.rng.integers(2)))
        return None

    def module(self, length: int) -> Module:
        while len(self.bindings) < length:
            expression = self.expression()
            try:
                type_ = expression and expression.infer(*(a.type for a in expression.operands()))
            except CompileError:  # operands that do not fit together: another one
                continue
            if type_:
                self.bindings.append(Binding(Var(f"v{len(self.bindings)}", type_), expression))
                self.values.append(self.bindings[-1].var)
        results = tuple(b.var for b in self.bindings[-3:])
        whole = Var("whole", Tuple(tuple(v.type for v in results)))
        block = Dataflow((*self.bindings, Binding(whole, MakeTuple(results))), (whole,))
        return Module((Function("main", tuple(self.params), (block,), whole),))

    def arrays(self, sizes: dict[str, int]) -> list[np.ndarray]:
        shapes = [[value(d, sizes) for d in v.type.shape] for v in self.params]
        return [self.rng.choice(np.array(SPECIAL[v.type.dtype], NUMPY_DTYPES[v.type.dtype]), shape)
                for v, shape in zip(self.params, shapes, strict=True)]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal to the last bit, but for what a NaN carries."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return bool(np.all((a.view(f"u{a.itemsize}") == b.view(f"u{b.itemsize}")) | ((a != a) & (b != b))))


@pytest.mark.parametrize("start", range(0, 200, 40))
def test_random_programs_keep_every_bit(start):
    for seed in range(start, start + 40):
        grower = Grower(seed)
        module = grower.module(14)
        after = eliminate_dead_code(merge_common(simplify(module)))
        verify(after)
        for sizes in (dict(n=3, m=4), dict(n=1, m=5), dict(n=2, m=1)):
            arrays = grower.arrays(sizes)
            for want, got in zip(interpret(module, *arrays), interpret(after, *arrays), strict=True):
                assert same_bits(want, got), f"seed {seed} at {sizes}\n{module}\n{after}\n{want}\n{got}"


def test_the_rules_are_met():
    """Most random programs get shorter, so that the test above tests something."""
    modules = [Grower(seed).module(14) for seed in range(40)]
    before = [len(eliminate_dead_code(m)["main"].bindings) for m in modules]
    after = [len(eliminate_dead_code(merge_common(simplify(m)))["main"].bindings) for m in modules]
    assert sum(a < b for a, b in zip(after, before, strict=True)) > 15

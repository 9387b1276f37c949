"""The tour behind ``python -m minirelax demo``: one function through every pass, then at twenty sizes against NumPy."""
from __future__ import annotations

import inspect
from collections.abc import Iterable

import numpy as np

from minirelax.explore.timing import Pair, geometric_mean, paired
from minirelax.explore.view import show

# (n, m, k): rows, inputs, outputs, as the IR names them.  The program is traced at the first; sizes of 1 and 0 are among them.
SIZES = (
    (32, 64, 10), (1, 64, 10), (2, 64, 10), (5, 64, 10), (17, 64, 10), (100, 64, 10), (333, 64, 10), (1000, 64, 10), (0, 64, 10),
    (7, 300, 33), (64, 300, 33), (250, 300, 33), (1, 784, 128), (31, 784, 128), (128, 784, 128), (500, 784, 128),
    (3, 1000, 1), (77, 1000, 257), (256, 512, 512), (1024, 256, 64))


def classify(x, w, b):
    """One layer of a classifier: a product, a bias, a rectifier, and a softmax over each row."""
    h = np.maximum(x @ w + b, 0.0)
    e = np.exp(h - np.max(h, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def main(rounds: int = 3) -> int:
    """Print the tour.  Returns the process's exit status: 0 if every result was right and one compilation served all sizes."""
    import minirelax as mr
    from minirelax.explore.highlight import highlighted
    heading("A NumPy function, unchanged")
    show(highlighted(inspect.getsource(classify)))
    compiled = mr.jit(classify)
    compiled(*inputs(*SIZES[0]))
    heading("What the compiler did with it")
    show(compiled.stages)
    show_stages(compiled.stages)
    heading("The kernels' source")
    show(highlighted(compiled.source))
    heading(f"{len(SIZES)} sizes, one after the other")
    return compare(compiled, rounds)


def heading(text: str) -> None:
    """A line that starts a part."""
    from rich.text import Text
    show("")
    show(Text(f"── {text} ──", style="bold"))


def show_stages(stages: Iterable) -> None:
    """The text after each pass, or a word where it left the program as it was."""
    from minirelax.explore.highlight import highlighted
    before = None
    for stage in stages:
        text = str(stage.module)
        heading(f"after {stage.name}" + (": unchanged" if text == before else ""))
        if text != before:
            show(highlighted(text))
        before = text


def inputs(n: int, m: int, k: int) -> tuple[np.ndarray, ...]:
    """Random float32 arguments for `classify`."""
    rng = np.random.default_rng((n, m, k))
    return (rng.standard_normal((n, m), dtype=np.float32), rng.standard_normal((m, k), dtype=np.float32) / np.float32(m ** 0.5),
            rng.standard_normal(k, dtype=np.float32))


def error(args: tuple[np.ndarray, ...], found: np.ndarray) -> float:
    """Largest absolute difference from NumPy in float64."""
    return float(np.max(np.abs(found - classify(*(a.astype(np.float64) for a in args))), initial=0.0))


def compare(compiled, rounds: int) -> int:
    """The table of errors and paired times against NumPy, and what it comes to."""
    from rich import box
    from rich.table import Table
    table = Table(box=box.SIMPLE_HEAD)
    for name in ("n", "m", "k", "max error", "NumPy us", "minirelax us", "time / NumPy's"):
        table.add_column(name, justify="right")
    errors, pairs = [], []
    for sizes in SIZES:
        args = inputs(*sizes)
        errors.append(error(args, compiled(*args)))
        pairs.append(measure(compiled, args, rounds))
        table.add_row(*map(str, sizes), f"{errors[-1]:.1e}", f"{1e6 * pairs[-1].reference_seconds:.1f}",
                      f"{1e6 * pairs[-1].seconds:.1f}", f"{pairs[-1].ratio:.2f}")
    show(table)
    mean, count = geometric_mean(p.ratio for p in pairs), len(compiled.compilations)
    show(f"{len(SIZES)} sizes, {count} compilation{'s' * (count != 1)}\n"
         f"largest error against NumPy in float64: {max(errors):.1e}\n"
         f"geometric mean of time / NumPy's time: {mean:.2f}")
    return 0 if max(errors) < 1e-5 and count == 1 else 1


def measure(compiled, args: tuple[np.ndarray, ...], rounds: int) -> Pair:
    """Paired time of the compiled function and of NumPy on the same arguments."""
    return paired(lambda: compiled(*args), lambda: classify(*args), rounds)

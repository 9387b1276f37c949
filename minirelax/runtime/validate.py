"""Run every stage of a compilation on the same arguments and name the first one that changes a result.

Stages are interpreted: graph ops by NumPy, kernels by executing their text.  That is slow, and exact enough to find the pass
that broke a program.

>>> from minirelax.ir.parser import parse
>>> from minirelax.passes.base import run
>>> module = parse('''
... def main(x: f32[n], y: f32[n]) -> f32[n]:
...     with dataflow():
...         v0: f32[n] = subtract(x, y)
...         output(v0)
...     return v0''')
>>> def improve(module):
...     return parse(str(module).replace("subtract", "add"))
>>> x, y = np.float32([1, 2]), np.float32([0, 8])
>>> validate(run(module, (improve,)), x, y)
Traceback (most recent call last):
minirelax.errors.RunError: improve changed result 0 of the program by up to 16.0: it is 10.0 at [1] in place of -6.0
...
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from minirelax.errors import RunError
from minirelax.ir.checked import checking
from minirelax.ir.graph import Module
from minirelax.ir.interpret import interpret
from minirelax.ir.types import Tuple, Type
from minirelax.passes.base import BIND, entry
from minirelax.runtime.arguments import call, check_weights
from minirelax.runtime.executable import Executable

TOLERANCE = {4: 1e-4, 8: 1e-9}  # of floats, relative to the largest value; sums may be taken in another order


def validate(stages: Iterable | Executable, *arrays: np.ndarray, weights: object = None, outputs: Sequence | None = None) -> None:
    """Run every stage on these arrays and compare its results with those of the first stage.

    stages: what `minirelax.run` gives, with passes of your own among its passes; or an executable, whose compiled program is
        run as well, under the name ``build``.
    arrays: the arguments of the program; `weights` are those for its bound parameters, as for `Executable.bind`.
    outputs: results of the compiled program, if they are there already.

    Returns nothing if all results agree: exactly, and floats up to what another order of sums explains.  Raises RunError with
    the name of the first stage that does not, the result and the place of the largest difference, or the reason why it cannot
    run; and what the program itself raises for these arguments.
    """
    executable = stages if isinstance(stages, Executable) else None
    if executable is not None:
        weights, stages = executable.weights if weights is None else weights, executable.stages
    first, *others = (s for s in stages if isinstance(s.module, Module))
    given, weights = weights, check_weights(entry(first.module).bound, () if weights is None else weights)
    want = results(first.module, arrays, weights)
    for stage in others:
        compare(stage.name, want, _results_of(stage, arrays, weights))
    if executable is not None:  # last: what interprets checks every index, machine code does not
        outputs = call(executable.bind(given), entry(first.module), arrays)
    if outputs is not None:
        compare("build", want, [np.asarray(a) for a in outputs])


def results(module: Module, arrays: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a module's entry; weights go through its function ``bind`` if it has one."""
    with checking(), np.errstate(all="ignore"):
        if any(f.name == BIND for f in module.functions):
            prepared = interpret(module, *weights, function=BIND)
            weights = prepared if isinstance(prepared, tuple) else (prepared,)
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in arrays]
        return list(_leaves(entry(module).result.type, interpret(module, *copies, bound=weights)))


def compare(stage: str, want: Sequence[np.ndarray], got: Sequence[np.ndarray]) -> None:
    """Raises RunError if any result differs by more than rounding explains."""
    if len(want) != len(got):
        raise RunError(f"{stage} changed the number of the program's results: {len(got)} in place of {len(want)}", _hint(stage))
    for i, (w, g) in enumerate(zip(want, got, strict=True)):
        if w.shape != g.shape or w.dtype != g.dtype:
            changed = f": {g.dtype}{list(g.shape)} in place of {w.dtype}{list(w.shape)}"
        elif (wrong := ~_close(w, g)).any():
            changed = _largest(w, g, wrong)
        else:
            continue
        raise RunError(f"{stage} changed result {i} of the program{changed}", _hint(stage))


def _results_of(stage, arrays: Sequence[np.ndarray], weights: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The results of a stage that is not the first: if it fails where the first does not, its pass is to blame."""
    try:
        return results(stage.module, arrays, weights)
    except Exception as e:  # a wrong program can fail in any way
        what = f"{stage.name} made a program that cannot run: {type(e).__name__}: {getattr(e, 'what', e)}"
        raise RunError(what, _hint(stage.name)) from e


def _leaves(type_: Type, value: object) -> Iterable[np.ndarray]:
    """The arrays of a result, and its shapes as arrays."""
    if isinstance(type_, Tuple):
        for item_type, item in zip(type_.items, value, strict=True):
            yield from _leaves(item_type, item)
    else:
        yield np.asarray(value)


def _close(want: np.ndarray, got: np.ndarray) -> np.ndarray:
    """Where the values agree."""
    if want.dtype.kind == "c":
        return _close(want.real, got.real) & _close(want.imag, got.imag)
    if want.dtype.kind != "f":
        return want == got
    finite = want[np.isfinite(want)]
    tolerance = TOLERANCE[want.dtype.itemsize]
    scale = float(np.max(np.abs(finite), initial=1))
    return np.isclose(got, want, rtol=tolerance, atol=tolerance * scale, equal_nan=True)


def _largest(want: np.ndarray, got: np.ndarray, wrong: np.ndarray) -> str:
    """The largest difference, in words."""
    with np.errstate(all="ignore"):
        size = np.abs(np.subtract(got, want, dtype=np.complex128 if want.dtype.kind == "c" else np.float64))
    size = np.where(wrong, np.where(np.isnan(size), np.inf, size), -1)
    at = np.unravel_index(np.argmax(size), size.shape)
    place = f" at [{', '.join(map(str, at))}]" if at else ""
    return f" by up to {size[at]}: it is {got[at]}{place} in place of {want[at]}"


def _hint(stage: str) -> str:
    if stage == "build":
        return "compare its last stage with the code in .source"
    return f'see what it did: .diff("{stage}") of the function, or of minirelax.explore.Stages(stages)'

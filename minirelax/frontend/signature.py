"""From the arguments of a call to parameters: declarations, static values, weights, and arrays with a name each.

A declaration is an annotation such as ``f32["n", 784]`` or ``Shape(ndim=2)``; it is read whether or not annotations are
postponed.  A shape, a tuple of integers to users, is an array of them from here on, as programs take it.
"""

from __future__ import annotations

import enum
import inspect
import keyword
import re
import sys
import types
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from minirelax.errors import PACKAGE, RAGGED, ArgumentError, DTypeError
from minirelax.frontend.mismatch import checked
from minirelax.frontend.tree import Tree, flatten
from minirelax.ir.boundary import Given, Known, shape_value
from minirelax.ir.types import NUMPY_DTYPES, DType, Shape, Tensor, Tuple, as_type, dtype_name

STATIC_TYPES = (
    str,
    bytes,
    type,
    np.dtype,
    enum.Enum,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.EllipsisType,
    slice,
    DType,
    np.ufunc,
)
RETURN = "return"  # no parameter can have this name
PYTHON = {bool: "bool", int: "i64", float: "f64", complex: "c128"}


@dataclass(frozen=True)
class Parameter:
    """One array (or shape) argument: how users reach it, its name in the IR, its type, the Python type if it is a number."""

    path: str
    name: str
    type: Tensor | Shape
    python: type | None = None
    bound: bool = False


@dataclass(frozen=True)
class Leaf:
    """What the types of a call's arguments say about one array: with the tree, the key under which programs are kept.

    A shape has the dtype "shape", and as many axes as entries.
    """

    dtype: str
    ndim: int
    python: type | None


@dataclass(frozen=True)
class WeightKind:
    """What a program depends on in a constant argument: structure, dtypes and shapes."""

    tree: Tree
    kinds: tuple[tuple[str, tuple[int, ...]], ...]

    def __hash__(self) -> int:
        return hash(self.tree)


@dataclass(frozen=True)
class Weights:
    """The arrays of a constant argument, as they were at the last call."""

    leaves: list
    arrays: list[np.ndarray]
    paths: tuple[str, ...]
    tree: Tree
    kind: WeightKind


@dataclass
class Call:
    """The arguments of one call, taken apart."""

    key: tuple
    arrays: tuple[np.ndarray, ...]  # traced arguments
    arguments: tuple  # the same as the user gave them
    leaves: tuple[Leaf, ...]
    weights: tuple[np.ndarray, ...]  # the leaves of constant arguments
    trees: dict[str, Tree]  # by argument
    static: dict[str, object]
    declared: tuple[Tensor | Shape | None, ...]  # one for each array
    paths: tuple[str, ...]  # of the arrays, then of the weights


class Signature:
    """The parameters of a user's function, read once."""

    def __init__(self, fn: Callable, static: str | tuple[str, ...] = (), constants: str | tuple[str, ...] = ()):
        self.fn = fn
        self.name = getattr(fn, "__name__", type(fn).__name__)
        self.inspected = inspect.signature(fn)
        self.static, self.constants = _names(static, self, "static"), _names(constants, self, "constants")
        self.declarations = declarations(fn, self.inspected)
        self.returns = self.declarations.pop(RETURN, None)
        parameters = self.inspected.parameters
        ordinary = all(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters.values())
        self._ordinary: dict[str, None] = dict.fromkeys(parameters) if ordinary else {}
        self._defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
        self._weights: dict[
            str, tuple[list, Tree, list, tuple]
        ] = {}  # by argument: leaves, structure, arrays, paths of the last call

    @property
    def annotated(self) -> bool:
        """Does any argument declare its type?"""
        return bool(self.declarations)

    def bind(self, args: tuple, kwargs: dict) -> Call:
        """The arguments of a call, checked.  Raises ArgumentError or DTypeError, naming the argument."""
        arguments = self.arguments(args, kwargs)
        call = Call((), (), (), (), (), {}, {}, (), ())
        arrays, given, leaves, weights, declared, paths, weight_paths, weight_keys = [], [], [], [], [], [], [], []
        for name, value in arguments.items():
            if name in self.static:
                call.static[name] = value
                continue
            if name in self.constants:
                found_weights = self._weights_of(name, value)
                call.trees[name] = found_weights.tree
                weights += found_weights.arrays
                weight_paths += found_weights.paths
                weight_keys.append(found_weights.kind)
                continue
            parts, call.trees[name], types_ = self.parts(name, value)
            for path, part, type_ in zip(call.trees[name].paths(name), parts, types_, strict=True):
                if isinstance(part, STATIC_TYPES) and type_ is None:
                    call.static[path] = part
                    continue
                array, leaf = as_argument(part, path, type_, self.name)
                arrays.append(array)
                given.append(part)
                leaves.append(leaf)
                declared.append(type_)
                paths.append(path)
        call.arrays, call.arguments, call.leaves, call.weights = tuple(arrays), tuple(given), tuple(leaves), tuple(weights)
        call.declared, call.paths = tuple(declared), (*paths, *weight_paths)
        call.key = self._key(call, tuple(weight_keys))
        return call

    def parts(self, name: str, value: object) -> tuple[list, Tree, list[Tensor | Shape | None]]:
        """What an argument consists of: its leaves, its structure, and the declared types."""
        wanted = self.declarations.get(name)
        lists = _declared_lists(value, wanted)
        leaves, tree = flatten(value, (lambda v: id(v) in lists) if lists else None)
        return leaves, tree, _spread(wanted, tree, name)

    def arguments(self, args: tuple, kwargs: dict) -> dict[str, object]:
        """Values by parameter name, defaults included.  Ordinary calls are matched here: ``inspect`` takes ten times as long."""
        if self._ordinary and len(args) <= len(self._ordinary):
            found = dict(self._defaults)
            found.update(zip(self._ordinary, args, strict=False))
            by_position = tuple(self._ordinary)[: len(args)]
            if not kwargs or (kwargs.keys() <= self._ordinary.keys() and not kwargs.keys() & set(by_position)):
                found.update(kwargs)
                if len(found) == len(self._ordinary):
                    return {name: found[name] for name in self._ordinary}
        try:
            bound = self.inspected.bind(*args, **kwargs)
        except TypeError as e:
            raise ArgumentError(f"{self.name}(): {e}", f"its parameters are {self.inspected}") from None
        bound.apply_defaults()
        return bound.arguments

    def _weights_of(self, name: str, value: object) -> Weights:
        """The arrays of a constant argument, looked at closely only if they are other objects than last time."""
        known = self._weights.get(name)
        if known is None or not known.tree.shows(value, iter(known.leaves)):
            leaves, tree = flatten(value)
            paths = tuple(tree.paths(name))
            types_ = _spread(self.declarations.get(name), tree, name)
            arrays = [as_argument(*x, self.name)[0] for x in zip(leaves, paths, types_, strict=True)]
            known = self._weights[name] = Weights(
                leaves, arrays, paths, tree, WeightKind(tree, tuple((w.dtype.str, w.shape) for w in arrays))
            )
        return known

    def _key(self, call: Call, weights: tuple[WeightKind, ...]) -> tuple:
        key = (call.leaves, tuple(call.trees.items()), weights, tuple((n, type(v), v) for n, v in call.static.items()))
        try:
            hash(key)
        except TypeError:
            name = next(n for n, v in call.static.items() if not _hashable(v))
            raise ArgumentError(
                f"{self.name}(): the static argument {name} cannot be hashed: {type(call.static[name]).__name__}",
                "use a tuple in place of a list",
            ) from None
        return key


def declarations(fn: Callable, signature: inspect.Signature) -> dict[str, object]:
    """The annotations that declare arguments: a `Tensor`, `Shape` or `Tuple` type, a bare dtype, or a container of them.

    What the result is declared to be stands under the name "return".
    """
    scope = _scope(fn)
    found = {}
    annotations = {p.name: p.annotation for p in signature.parameters.values()} | {RETURN: signature.return_annotation}
    for name, annotation in annotations.items():
        while isinstance(annotation, str):  # twice, where a string was postponed
            annotation = _evaluated(annotation, scope, name)
        annotation = as_types(annotation)
        if annotation is not None:
            found[name] = annotation
    return found


def _evaluated(text: str, scope: dict, name: str) -> object:
    """What a postponed annotation says: the user's own source text, evaluated as typing.get_type_hints does."""
    try:
        return eval(text, scope)
    except Exception as e:
        if re.search(r"\b((bool_|[cfiu]\d+|Tensor|Tuple)\s*\[|Shape\s*\()", text):
            what = "the result" if name == RETURN else f"argument {name}"
            raise ArgumentError(
                f"{what}: the declaration {text} cannot be read: {e}",
                "use names of the module, or write the sizes as numbers and strings",
            ) from None
        return None  # an annotation for somebody else


def as_argument(
    value: object, path: str, declared: Tensor | Shape | None, function: str = ""
) -> tuple[np.ndarray, Leaf]:
    """An argument as an array, and what its type says.  Raises ArgumentError or DTypeError, naming the argument."""
    if isinstance(declared, Shape):
        return _shape_argument(value, path, declared, function)
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray | np.matrix):
        raise ArgumentError(f"argument {path}: {type(value).__name__} is not supported", "pass np.asarray(...) of it")
    python = None
    if not isinstance(value, np.ndarray):
        python = None if isinstance(value, np.generic) else next((t for t in PYTHON if isinstance(value, t)), None)
        value = _converted(value, path, declared, python)
        python = None if declared is not None else python
    name = dtype_name(value.dtype)
    if name is None:
        raise DTypeError(
            f"argument {path}: an array of dtype {value.dtype} cannot be compiled",
            "use bool, an integer type, float32, float64, complex64 or complex128: x.astype(np.float32)",
        )
    if declared is not None and declared.dtype not in (None, name):
        checked((_given(value, path, Tensor(declared.dtype, None), function, declared),), Known())
    if not value.dtype.isnative:
        value = value.astype(value.dtype.newbyteorder("="))
    return np.asarray(value), Leaf(name, value.ndim, python)


def _shape_argument(value: object, path: str, declared: Shape, function: str) -> tuple[np.ndarray, Leaf]:
    """A shape, a tuple of integers, as an array of them: the one place where it becomes what programs take.

    Raises DTypeError or ShapeError for another value, a negative entry, or a wrong number of them; what the entries should
    be is compared with the sizes of all arguments.
    """
    checked((_given(value, path, Shape(ndim=declared.ndim), function, declared),), Known())
    sizes = np.array(shape_value(value), np.int64)
    return sizes, Leaf("shape", len(sizes), None)


def _given(value: object, path: str, type_: Tensor | Shape, function: str, declared: Tensor | Shape) -> Given:
    return Given(f"{function}{': ' if function else ''}argument {path}", path, type_, value, declared)


def identifier(path: str) -> str:
    """A path as a name of the IR: ``p['w']`` as ``p_w``."""
    name = re.sub(r"\W+", "_", path).strip("_")
    if keyword.iskeyword(name):
        return f"{name}_"
    return name if name.isidentifier() else f"_{name}"


def _converted(value: object, path: str, declared: Tensor | None, python: type | None) -> np.ndarray:
    dtype = None if declared is None or declared.dtype is None else NUMPY_DTYPES[declared.dtype]
    if python is not None:
        try:
            return np.asarray(value, dtype or NUMPY_DTYPES[PYTHON[python]])
        except TypeError:
            raise DTypeError(f"argument {path}: the complex number {value} is no {dtype}", "pass its real part") from None
        except OverflowError:
            raise DTypeError(f"argument {path}: the integer {value} does not fit {dtype or 'int64'}") from None
    listed = isinstance(value, list | tuple)
    if not (listed or isinstance(value, np.generic) or hasattr(value, "__array__")):
        raise ArgumentError(
            f"argument {path}: {type(value).__name__!r} is not an array type",
            "pass an array or a number, or name the argument in jit(static=...)",
        )
    try:
        return np.asarray(value, dtype if listed else None)
    except ValueError as e:
        if "inhomogeneous" in str(e):
            raise ArgumentError(f"argument {path}: parts of different lengths cannot become an array", RAGGED) from None
        raise ArgumentError(f"argument {path}: cannot become an array: {e}") from None
    except TypeError as e:
        raise ArgumentError(f"argument {path}: cannot become an array: {e}") from None


def as_types(annotation: object) -> object | None:
    """What an annotation declares: a `Tensor` or a `Shape`, or a container of them; None if it is for somebody else."""
    match annotation:
        case Tensor() | Shape() | DType():
            return as_type(annotation)
        case Tuple(items=items):
            return as_types(items)
        case list() | tuple() | dict():
            leaves, tree = flatten(annotation, is_type)
            types_ = [as_types(leaf) for leaf in leaves]
            return tree.unflatten(types_) if types_ and None not in types_ else None
    return as_type(annotation) if annotation is Shape or annotation is Tensor else None


def is_type(value: object) -> bool:
    """Is this a type of arguments, as annotations and `trace` have them?"""
    return isinstance(value, Tensor | Shape | DType | Tuple) or value is Shape


def _declared_lists(value: object, wanted: object) -> set[int]:
    """The lists and tuples (by identity) that stand where one array or shape is declared: no containers."""
    if isinstance(wanted, Tensor | Shape):
        return {id(value)} if isinstance(value, list | tuple) else set()
    if isinstance(wanted, dict) and isinstance(value, dict):
        return set().union(*(_declared_lists(value[k], wanted[k]) for k in wanted.keys() & value.keys()))
    if isinstance(wanted, list | tuple) and isinstance(value, list | tuple):
        return set().union(*map(_declared_lists, value, wanted))
    return set()


def _spread(wanted: object, tree: Tree, name: str) -> list[Tensor | Shape | None]:
    """One declared type (or None) for each leaf."""
    paths = tree.paths(name)
    if wanted is None:
        return [None] * len(paths)
    types_, declared = flatten(wanted, is_type)
    if declared.paths(name) != paths:
        raise ArgumentError(
            f"argument {name}: expected the parts {', '.join(declared.paths(name))}, got {', '.join(paths) or 'None'}"
        )
    return types_


def _scope(fn: Callable) -> dict:
    """What names in a function's annotations mean: its module's, and those of the functions around it."""
    inner = inspect.unwrap(fn)
    inner = getattr(inner, "__func__", inner)
    scope = dict(getattr(inner, "__globals__", {})) | _callers_names(inner)
    code, cells = getattr(inner, "__code__", None), getattr(inner, "__closure__", None) or ()
    for name, cell in zip(code.co_freevars if code else (), cells, strict=True):
        try:
            scope[name] = cell.cell_contents
        except ValueError:  # not yet assigned
            continue
    from minirelax.ir.types import DTYPES

    return {("bool_" if n == "bool" else n): t for n, t in DTYPES.items()} | scope


def _callers_names(fn: Callable) -> dict:
    """The local names where `jit` is applied, if inside the function that defines `fn`: postponed annotations need them."""
    frame = sys._getframe()
    while frame and frame.f_code.co_filename.startswith(PACKAGE):
        frame = frame.f_back
    here = frame is not None and f"{frame.f_code.co_qualname}.<locals>.{getattr(fn, '__name__', '')}" == getattr(
        fn, "__qualname__", None
    )
    return dict(frame.f_locals) if here else {}


def _names(names: str | tuple[str, ...], signature: Signature, option: str) -> frozenset[str]:
    names = (names,) if isinstance(names, str) else tuple(names)
    unknown = [n for n in names if n not in signature.inspected.parameters]
    if unknown:
        raise ArgumentError(
            f"jit(..., {option}={names!r}): {signature.name} has no parameter {unknown[0]!r}",
            f"its parameters are {', '.join(signature.inspected.parameters)}",
        )
    return frozenset(names)


def _hashable(value: object) -> bool:
    try:
        hash(value)
    except TypeError:
        return False
    return True

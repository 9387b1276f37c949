"""Types drawn by hypothesis: few names, sizes and ranks, so that drawn types often have something in common."""
from __future__ import annotations

from hypothesis import strategies as st

from minirelax.ir.dim import dim
from minirelax.ir.types import Callable, Object, Shape, Storage, Tensor, Tuple, Type

SIZES = st.sampled_from([3, 4, *map(dim, ("n", "m", "n + 1", "2*n", "m*n", "(n + 3)//4", "min(m, 8)"))])
DTYPES = st.sampled_from(["f32", "i64", None])


def up_to(count: int, items: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(items, max_size=count).map(tuple)


TENSORS = st.builds(Tensor, DTYPES, st.none() | up_to(2, st.none() | SIZES))
SHAPES = st.builds(Shape, up_to(2, SIZES)) | st.builds(Shape, st.none(), st.sampled_from([None, 0, 1, 2]))
STORAGES = st.builds(Storage, SIZES)                    # never in a signature: functions take and give values


def compound(parts: st.SearchStrategy, callables: bool = True) -> st.SearchStrategy:
    tuples = st.builds(Tuple, up_to(2, parts))
    return tuples | st.builds(Callable, st.none() | up_to(2, parts), parts) if callables else tuples


OBJECTS = st.just(Object())
VALUES = st.recursive(TENSORS | SHAPES | OBJECTS, compound, max_leaves=5)
TYPES = VALUES | STORAGES | compound(VALUES | STORAGES, callables=False)
SIGNATURES = st.builds(Callable, up_to(3, TENSORS | SHAPES), TENSORS | SHAPES)


@st.composite
def coarser(draw, type_: Type) -> Type:
    """`type_`, or one above it: some of what it says is left out."""
    if draw(st.integers(0, 9)) == 0:
        return Object()
    match type_:
        case Tensor(dtype=dtype, shape=shape):
            dims = None if shape is None else tuple(draw(st.sampled_from([d, None])) for d in shape)
            return Tensor(draw(st.sampled_from([dtype, None])), draw(st.sampled_from([dims, None])))
        case Shape():
            return draw(st.sampled_from([type_, Shape(ndim=type_.ndim), Shape()]))
        case Tuple(items=items):
            return Tuple(tuple(draw(coarser(t)) for t in items))
        case Callable(params=params, result=result):
            if draw(st.booleans()):
                return Callable(params, draw(coarser(result)))
            return Callable(None, draw(coarser(unnamed(result))))
    return type_


def unnamed(type_: Type) -> Type:
    """`type_` with no size that has a name."""
    match type_:
        case Tensor(dtype=dtype, shape=shape) if shape is not None:
            return Tensor(dtype, tuple(d if isinstance(d, int) else None for d in shape))
        case Shape(values=values) if values is not None and not all(isinstance(d, int) for d in values):
            return Shape(ndim=len(values))
        case Tuple(items=items):
            return Tuple(tuple(map(unnamed, items)))
    return type_

"""The passes together: what can be left out."""

import pytest

from minirelax.errors import ArgumentError
from minirelax.ir.parser import parse
from minirelax.passes.options import OPTIONAL, Options
from minirelax.pipeline import passes, run
from tests.passes.programs import PROGRAMS
from tests.passes.test_meaning import assert_same_meaning


def test_a_pass_can_be_left_out():
    names = [p.__name__ for p in passes(Options.of({}, without=("fuse_ops", "simplify")))]
    assert "fuse_kernels" in names and not {"fuse_ops", "simplify"} & set(names)
    with pytest.raises(ArgumentError, match="no such pass that can be left out"):
        Options.of(None, without="legalize")
    with pytest.raises(ArgumentError, match="there is no option 'tiles'"):
        Options.of(None, tiles=3)


@pytest.mark.parametrize("name", OPTIONAL)
def test_any_optional_pass_can_be_left_out(name):
    """No pass relies on another one that may be missing."""
    for text, (sizes, *_) in PROGRAMS.values():
        first, *_, last = run(parse(text), passes(Options.of({}, without=name)))
        assert_same_meaning((first, last), sizes)

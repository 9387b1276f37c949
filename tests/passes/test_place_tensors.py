"""Places of tensors in storages: apart at every size, close to what is needed at once, and found without many questions."""
from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minirelax.ir.dim import dim, value
from minirelax.ir.knowledge import Knowledge
from minirelax.ir.types import whole_lines
from minirelax.passes import stack_tensors
from minirelax.passes.place_tensors import Request, place

NUMBERS = (0, 1, 2, 3, 15, 16, 17, 64, 100, 257, 1000)
SIZES = ("4*n", "4*m", "4*n + 4", "4*n*m", "64*min(n*m, 17)", "8*((n + 7)//8)", "4*n*n", "256", "64*min(m, 100) + 4096",
         "4*((3*n*n*m + 3)//4)", "4*max(n, m)", "n*((m + 1)//2)*((n + 3)//4)", "4*n*m + 8*n + 8*m + 16")

# a transformer block that attends to what came before: bytes, first and last statement
BLOCK = """
2304*m*n 0 4; 3840*m*n 2 24; 512*min(m*n, 114) 3 4; 2304*m*n 6 13; 128*m 8 20; 128*m 9 20; 1152*m*n 11 15; 1152*m*n 12 15
2304*m*n 14 30; 768*m*n 16 20; 384*m*n 18 22; 384*m*n 19 22; k*m + m*m 26 30; 4*(9*k*m*n + 9*m*m*n) 28 33
896*min(m, 258) + 57344 29 30; 4*(9*k*m*n + 9*m*m*n) 31 36; 8*(k + m) 32 33; 2304*m*n 34 39; 1536*min(m, 44) + 196608 35 36
2304*m*n 38 43; 2304*m*n 41 54; 512*min(m*n, 114) 42 43; 2304*m*n 44 51; 6144*m*n 46 51; 512*min(m*n, 114) 47 48
6144*m*n 49 54; 512*min(m*n, 114) 50 51; 512*min(m*n, 96) 53 54
"""

# one of several equal layers, of 33 statements; what begins at 15 is what the next layer reads
LAYER = """
4608*m*n 0 12; 512*min(m*n, 174) 1 2; 48*m*m*n 4 9; 1920*min(m, 258) + 61440 5 6; 48*m*m*n 7 12; 8*m 8 9; 1536*m*n 10 14
256*min(m, 132) + 98304 11 12; 1536*m*n 13 18; 1536*m*n 16 20; 512*min(m*n, 174) 17 18; 1536*m*n 19 26; 6144*m*n 21 26
512*min(m*n, 174) 22 23; 1536*m*n 24 28; 512*min(m*n, 96) 25 26; 1536*m*n 27 47
"""


def requests(table: str, layers: int = 1, length: int = 29) -> list[Request]:
    rows = [row.rsplit(maxsplit=2) for line in table.strip().splitlines() for row in line.split("; ")]
    return [Request(f"v{layer}_{i}", whole_lines(dim(size)), int(first) + layer * length, int(last) + layer * length)
            for layer in range(layers) for i, (size, first, last) in enumerate(rows)]


def largest_live_set(asked, sizes) -> int:
    return max(sum(value(r.bytes, sizes) for r in asked if r.first <= at <= r.last) for at in {r.first for r in asked})


def check_apart(places, sizes) -> int:
    """Every tensor lies inside its storage, and apart from those it meets; returns the bytes of all storages."""
    total = 0
    for p in places:
        taken = max(value(e, sizes) for e in p.ends)
        total += taken
        ends = [(r, value(p.offsets[r.name], sizes), value(r.bytes, sizes)) for r in p.tenants]
        assert all(start % 64 == 0 and start + size <= taken for _, start, size in ends)
        for i, (a, a_start, a_size) in enumerate(ends):
            for b, b_start, b_size in ends[:i]:
                assert not a.meets(b) or a_start + a_size <= b_start or b_start + b_size <= a_start, (a, b, sizes)
    return total


LIFE = st.tuples(st.integers(0, 9), st.integers(0, 4), st.sampled_from(SIZES), st.booleans())


@settings(deadline=None, max_examples=60)
@given(st.lists(LIFE, min_size=1, max_size=9), st.sampled_from(("", "n > 0", "n <= m", "m <= 40", "n % 4 == 0")), st.data())
def test_tensors_are_apart_at_all_sizes(lives, fact, data):
    asked = [Request(f"v{i}", whole_lines(dim(size)), first, first + length, is_late)
             for i, (first, length, size, is_late) in enumerate(lives)]
    left, relation, right = fact.rsplit(maxsplit=2) if fact else ("0", "<=", "n")
    known = Knowledge().assuming(relation, dim(left), dim(right))
    places = place(asked, known)
    assert sorted(r.name for p in places for r in p.tenants) == sorted(r.name for r in asked)
    assert all(dim(str(d)) == d for p in places for d in (p.bytes, *p.offsets.values()) if not isinstance(d, int))
    for _ in range(8):
        sizes = {name: data.draw(st.sampled_from(NUMBERS)) for name in "nm"}
        if known.admits(sizes):
            taken = check_apart(places, sizes)
            assert largest_live_set(asked, sizes) <= taken <= sum(value(r.bytes, sizes) for r in asked)


@pytest.mark.parametrize("asked", [requests(BLOCK), requests(LAYER), requests(LAYER, 6)], ids=["block", "layer", "layers"])
def test_little_more_is_taken_than_is_needed_at_once(asked):
    """Small sizes, at which workspaces of a fixed size are largest, and large ones, at which they are nothing."""
    places = place(asked, Knowledge().assuming(">", dim("k + m"), 0))
    for n, m, k in ((1, 1, 0), (1, 1, 16), (1, 1, 256), (1, 1, 5000), (8, 1, 300), (1, 24, 0), (2, 8, 50), (5, 100, 100),
                    (8, 64, 0), (32, 256, 0), (1, 512, 512)):
        sizes = {"n": n, "m": m, "k": k}
        assert check_apart(places, sizes) <= 1.1 * largest_live_set(asked, sizes), sizes


def test_numbers_of_bytes_are_stacked():
    """Storages taken in turn would be 512 bytes: nobody finds room across two of them."""
    asked = [Request(name, size, *life) for name, size, life in [("d", 192, (0, 1)), ("f", 64, (0, 1)), ("a", 256, (2, 3)),
             ("c", 128, (2, 5)), ("b", 128, (5, 6)), ("e", 256, (6, 9))]]
    assert check_apart(place(asked, Knowledge()), {}) == largest_live_set(asked, {}) == 384


def test_storages_are_apart_where_nothing_reaches_across():
    asked = [Request("a", dim("64*n"), 0, 1), Request("b", dim("64*m"), 1, 2), Request("c", dim("64*n"), 2, 3)]
    places = place(asked, Knowledge())
    assert [(str(p.bytes), set(p.offsets.values())) for p in places] == [("64*n", {0}), ("64*m", {0})]


def test_more_layers_ask_no_more_questions(monkeypatch):
    """Layers repeat: what is to be shown of their sizes is the same, and placements are counted for each tensor."""
    asked, placed = [], []
    shows, lowest = Knowledge.shows_at_once, stack_tensors._lowest
    monkeypatch.setattr(Knowledge, "shows_at_once", lambda self, d: asked.append(d) or shows(self, d))
    monkeypatch.setattr(stack_tensors, "_lowest", lambda *args: placed.append(args) or lowest(*args))
    found = {}
    for layers in (2, 4, 8):
        asked.clear(), placed.clear()
        tensors = requests(LAYER, layers)
        place(tensors, Knowledge())
        found[layers] = len(asked)
        assert len(placed) <= 2 * (stack_tensors.PLACEMENTS + (stack_tensors.PER_TENSOR + 1) * len(tensors))     # from two ends
    assert found[8] <= found[2] + 10 and max(found.values()) < 100, found

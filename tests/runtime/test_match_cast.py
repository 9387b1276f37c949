"""match_cast while running: against the sizes of an array that Python holds, of a view of it, of what the program made."""

from __future__ import annotations

import numpy as np
import pytest

import minirelax as mr


def test_a_reshaped_argument_has_the_sizes_of_its_view():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(mr.jit(lambda x: x.reshape(3, 2))(x), x.reshape(3, 2))


def test_a_view_may_name_a_new_size():
    f = mr.jit(lambda x: mr.match_cast(x.reshape(-1, 2), mr.f32["q", 2]).sum(0))
    np.testing.assert_array_equal(f(np.ones((2, 3), np.float32)), [3, 3])


def test_sizes_of_a_view_and_of_a_selection_must_agree():
    f = mr.jit(lambda x, y: mr.match_cast(x.reshape(-1), mr.f32["q"]) + mr.match_cast(y[y > 0], mr.f32["q"]))
    x, y = np.ones((2, 3), np.float32), np.ones(6, np.float32)
    np.testing.assert_array_equal(f(x, y), np.full(6, 2))
    y[0] = -1
    with pytest.raises((mr.errors.RunError, mr.errors.ShapeError), match="match_cast"):
        f(x, y)


def test_a_guard_with_a_number_beyond_64_bits():
    f = mr.jit(lambda x: x + 1 if x.shape[0] < 2**70 else x)
    np.testing.assert_array_equal(f(np.zeros(3)), np.ones(3))
    np.testing.assert_array_equal(mr.jit(lambda x: x % x.shape[0])(np.array([5, 2**63], np.uint64)), [1, 0])

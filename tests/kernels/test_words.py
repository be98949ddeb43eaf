"""Counting and finding the 1 bits of a word, compiled and as plain Python."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels.words import count_ones, lowest_one

COMPILED = [numba.njit(lambda word: count_ones(word)), numba.njit(lambda word: lowest_one(word))]


@pytest.mark.parametrize("count, lowest", [(count_ones, lowest_one), COMPILED], ids=["plain", "compiled"])
def test_ones_of_a_word(count, lowest):
    @settings(deadline=None)
    @given(st.sets(st.integers(0, 63)))
    def test(ones):
        word = np.uint64(sum(1 << bit for bit in ones))
        assert count(word) == len(ones)
        assert lowest(word) == min(ones, default=64)

    test()

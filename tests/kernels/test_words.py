"""Counting, finding, making and obeying the 1 bits of a word, compiled and as plain Python."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels.words import are_within, count_ones, list_ones, lowest_one, write_where

COMPILED = [numba.njit(lambda word: count_ones(word)), numba.njit(lambda word: lowest_one(word))]
COMPILED_WITHIN = numba.njit(lambda numbers, at, first, last, other: are_within(numbers, at, first, last, other))
COMPILED_LIST = numba.njit(lambda word, first, at, room_end, places: list_ones(word, first, at, room_end, places))
COMPILED_WHERE = numba.njit(lambda word, value, numbers, at: write_where(word, value, numbers, at))


@pytest.mark.parametrize("count, lowest", [(count_ones, lowest_one), COMPILED], ids=["plain", "compiled"])
def test_ones_of_a_word(count, lowest):
    @settings(deadline=None)
    @given(st.sets(st.integers(0, 63)))
    def test(ones):
        word = np.uint64(sum(1 << bit for bit in ones))
        assert count(word) == len(ones)
        assert lowest(word) == min(ones, default=64)

    test()


@pytest.mark.parametrize("listed", [list_ones, COMPILED_LIST], ids=["plain", "compiled"])
@pytest.mark.parametrize("word", [0, 1, 2**63, 0xF, 0x1F, 2**64 - 1, 0x123456789ABCDEF])
@pytest.mark.parametrize("room", [0, 1, 3, 99])
def test_numbers_of_ones(listed, word, room):
    ones = [1000 + bit for bit in range(64) if word >> bit & 1]
    places = np.full(200, 77, np.int32)
    room_end = 5 + len(ones) + room
    with np.errstate(over="ignore"):  # of what is written unwanted
        end = listed(np.uint64(word), np.uint64(1000), np.uint64(5), room_end, places)
    assert end == 5 + len(ones) and places[5:end].tolist() == ones
    assert (places[:5] == 77).all() and (places[room_end:] == 77).all()


@pytest.mark.parametrize("within", [are_within, COMPILED_WITHIN], ids=["plain", "compiled"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("first, last, other", [(0, 0, 0), (3, 7, 9), (7, 7, 3), (0, 255, 2), (9, 255, 0), (249, 254, 255)])
def test_numbers_within(within, dtype, first, last, other):
    numbers = np.random.default_rng(first).permutation(np.arange(256)).astype(dtype)
    for at in (0, 1, 100, 192):
        word = int(within(numbers, np.uint64(at), np.uint64(first), np.uint64(last), np.uint64(other)))
        some = numbers[at : at + 64].tolist()
        assert [word >> i & 1 for i in range(64)] == [first <= n <= last or n == other for n in some]


@pytest.mark.parametrize("where", [write_where, COMPILED_WHERE], ids=["plain", "compiled"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
@pytest.mark.parametrize("word", [0, 1, 2**63, 2**64 - 1, 0x123456789ABCDEF])
def test_numbers_where_bits_are_1(where, dtype, word):
    numbers = np.arange(100).astype(dtype)
    where(np.uint64(word), 200, numbers, np.uint64(20))
    assert numbers.tolist() == [200 if 20 <= i < 84 and word >> (i - 20) & 1 else i for i in range(100)]

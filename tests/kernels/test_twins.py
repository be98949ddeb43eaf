"""Bins that hold the same rows, beside a dictionary of them, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.data.block import tilings_of
from psboost.kernels import twins
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(twins), ids=["compiled", "plain"])


def postings_of(rows_of_bins):
    offsets = np.cumsum([0, *map(len, rows_of_bins)])
    return offsets, np.array([row for rows in rows_of_bins for row in rows], np.int32)


@WAYS
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 200), st.sampled_from([2, 5, 1000]), st.integers(0, 9))
def test_elders_are_the_first_of_their_rows(kernels, seed, n_bins, n_rows, first):
    """Several bins of the same rows, of one row, and with rows in another order, which are none."""
    rng = np.random.default_rng(seed)
    rows_of_bins = [rng.permutation(n_rows)[: rng.integers(0, 4)].tolist() for _ in range(first + n_bins)]
    bins = np.flatnonzero(rng.random(n_bins) < 0.8).astype(np.int32)
    n_slots = 1 << int(len(bins)).bit_length()
    slots, numbers = np.zeros(n_slots, np.int32), np.full(len(bins), -7, np.int32)
    n_elders = kernels.find_twins(*postings_of(rows_of_bins), first, bins, slots, numbers)
    known = {}
    expected = [known.setdefault(tuple(rows_of_bins[first + b]), len(known)) for b in bins.tolist()]
    assert numbers.tolist() == expected and n_elders == len(known)

    places = np.full(len(bins), -7)
    assert kernels.find_elders(numbers.astype(np.int64), places) == n_elders
    assert places[:n_elders].tolist() == [expected.index(number) for number in range(n_elders)]


@WAYS
@pytest.mark.parametrize("numbers", [[1], [-1], [0, 2], [0, 1, -3], [0, 0, 2]])
def test_numbers_that_leave_one_out(kernels, numbers):
    assert kernels.find_elders(np.array(numbers), np.empty(len(numbers), np.int64)) == -1


@WAYS
@pytest.mark.parametrize("width", [np.int32, np.int64])
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("rows_ascend", [False, True])
def test_sums_of_some_bins_without_the_last_rows(kernels, width, pairs, rows_ascend):
    rng = np.random.default_rng(3)
    rows_of_bins = [rng.permutation(20)[: rng.integers(0, 15)].tolist() for _ in range(40)]
    if rows_ascend:
        rows_of_bins = [sorted(rows) for rows in rows_of_bins]
    bins, first, n_rows = np.array([0, 3, 4, 17, 30], np.int32), 5, 13
    offsets, rows = np.empty(6, np.int64), np.empty(90, np.int32)
    n_copied = kernels.copy_postings(*postings_of(rows_of_bins), first, bins, n_rows, offsets, rows)
    own = [[row for row in rows_of_bins[first + b] if row < n_rows] for b in bins]
    assert n_copied == offsets[-1] == sum(map(len, own))
    assert [rows[b:e].tolist() for b, e in zip(offsets, offsets[1:], strict=False)] == own

    values = [(int(rng.integers(-(2**14), 2**14)), int(rng.integers(1, 2**14))) for _ in range(n_rows)]
    packed = np.array([(grad << 4 * width().itemsize) + hess for grad, hess in values], width)
    acc, grads, hesses = np.full(10, 77), np.full(5, 77), np.full(5, 77)
    rows = rows[:n_copied].copy()
    tilings = tilings_of(offsets, rows, n_rows, rows_ascend, [(2, 1), (3, 0)])
    assert [len(tiles.bins) for tiles in tilings] == ([1, 3] if rows_ascend else [0, 0])
    kernels.sum_bins(offsets, rows, tilings, packed, pairs, acc, grads, hesses)
    assert grads.tolist() == [sum(values[row][0] for row in rows) for rows in own]
    assert hesses.tolist() == [sum(values[row][1] for row in rows) for rows in own]

    numbers, all_grads, all_hesses = np.array([4, 0, 0, 2], np.int32), np.empty(4, np.int64), np.empty(4, np.int64)
    kernels.spread(numbers, grads, hesses, all_grads, all_hesses)
    assert all_grads.tolist() == grads[numbers].tolist() and all_hesses.tolist() == hesses[numbers].tolist()

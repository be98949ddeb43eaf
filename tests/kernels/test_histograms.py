"""Histogram kernels beside the slow twins, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import histograms, slots
from psboost.kernels.row_bins import N_NONE
from tests.naive import gradients as naive_gradients
from tests.naive import histograms as naive
from tests.plain import as_python, both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(histograms), ids=["compiled", "plain"])
quick = settings(max_examples=60, deadline=None)
N_BINS = 12
BIN_OFFSETS = np.array([0, 3, 3, 4, 8, 12], np.int32)  # feature 1 has no bins
GRADS = st.integers(-(2**15), 2**15 - 1)
HALF_BITS = {np.int32: 16, np.int64: 32}
HESSES = st.one_of(st.just(0), st.integers(1, 2**15))
VALUES = st.tuples(GRADS, HESSES).map(lambda pair: pair if pair[1] else (0, 0))
WIDTHS = st.sampled_from([np.int32, np.int64])
ROW_BINS = st.sampled_from([(np.int64, np.int32), (np.int32, np.uint16)])


@st.composite
def blocks(draw):
    """(rows as lists of bins, (grad, hess) of each, the rows of a node)"""
    rows = draw(st.lists(st.sets(st.integers(0, N_BINS - 1)).map(sorted), max_size=8))
    values = draw(st.lists(VALUES, min_size=len(rows), max_size=len(rows)))
    which = [row for row in range(len(rows)) if draw(st.booleans())]
    return rows, values, which


def arrays(rows, values, which, width=np.int64, row_bins=(np.int64, np.int32)):
    indptr = np.cumsum([0, *map(len, rows)]).astype(row_bins[0])
    packed = np.array([naive_gradients.pack(*value, HALF_BITS[width]) for value in values], width)
    return indptr, np.array([b for row in rows for b in row], row_bins[1]), np.array(which, np.int32), packed


def padded(rows, row_bins, stride, n_bins=N_BINS):
    """Rows of bins as kernels.row_bins has them with this stride."""
    indptr = np.arange(0, stride * len(rows) + 1, stride, row_bins[0])
    bins = [[*row, *(n_bins + k for k in range(len(row), stride))] for row in rows]
    return indptr, np.array(bins, row_bins[1]).reshape(-1)


def postings(rows):
    """The rows of each bin."""
    of_bins = [[row for row, held in enumerate(rows) if b in held] for b in range(N_BINS)]
    offsets = np.cumsum([0, *map(len, of_bins)])
    return offsets, np.array([row for of_bin in of_bins for row in of_bin], np.int32)


def slots_held(acc):
    """{bin: (grad, hess)} of packed slots that are not 0."""
    return {b: (int(acc[b]) >> 32, int(acc[b]) & 0xFFFFFFFF) for b in np.flatnonzero(acc).tolist()}


def as_lists(histogram):
    sums = np.array(list(histogram.values()), np.int64).reshape(-1, 2)
    return np.array(list(histogram), np.int32), sums[:, 0].copy(), sums[:, 1].copy()


@WAYS
@quick
@given(blocks(), WIDTHS, ROW_BINS)
def test_build(kernels, block, width, row_bins):
    indptr, bins, which, packed = arrays(*block, width, row_bins)
    expected, read = naive.build(*block[0:1], block[2], block[1]), as_python(histograms).read
    posting_offsets, posting_rows = postings(block[0])
    in_node = np.zeros(len(packed), width)
    in_node[which] = packed[which]
    stride = next(n for n in (4, 8, 16) if max(map(len, block[0]), default=0) <= n)

    def build_padded(indptr, bins, *others):
        kernels.build_padded(bins, stride, stride // 2, *others)

    for pairs, is_padded, by_rows in (
        (False, False, kernels.build), (False, False, kernels.build_short), (False, False, kernels.build_few),
        (False, False, kernels.build_scattered), (True, False, kernels.build_pairs), (False, True, build_padded),
        (True, True, kernels.build_pairs),
    ):  # fmt: skip
        if is_padded:
            indptr, bins = padded(block[0], row_bins, stride)
        acc, again = np.zeros((N_BINS + N_NONE) * (1 + pairs), np.int64), np.full(N_BINS * (1 + pairs), 77)
        by_rows(indptr, bins, which, packed[which], acc)
        kernels.build_by_bins(posting_offsets, posting_rows, 99, in_node, pairs, again)
        np.testing.assert_array_equal(acc[: len(again)], again)
        found = {b: sums for b in range(N_BINS) if any(sums := read(acc, pairs, b))}
        assert found == expected
        marks = np.zeros(N_BINS // 64 + 1, np.uint64)
        kernels.mark_bins(indptr, bins, stride if is_padded else 0, N_BINS, which, marks)
        assert {b for b in range(N_BINS) if int(marks[b // 64]) >> b % 64 & 1} == set(expected) | {
            b for row in which.tolist() for b in block[0][row]
        }
        kernels.clear(indptr, bins, stride if is_padded else 0, which, 1 + pairs, acc)
        assert not acc.any()


@WAYS
@pytest.mark.parametrize("stride", [4, 8, 16])
@pytest.mark.parametrize("row_bins", [(np.int64, np.int32), (np.int32, np.uint16)])
@pytest.mark.parametrize("span", [(0, 0), (3, 4), (0, 3), (2, 6), (0, 23), (5, 22)])
def test_padded_rows_that_follow_each_other(kernels, stride, row_bins, span):
    rng = np.random.default_rng(stride)
    rows = [sorted(rng.choice(N_BINS, rng.integers(0, 1 + min(stride, N_BINS)), replace=False).tolist()) for _ in range(23)]
    values = [(int(rng.integers(-99, 99)), int(rng.integers(1, 99))) for _ in rows]
    which = range(*span)
    _, _, which, packed = arrays(rows, values, which)
    acc = np.zeros(N_BINS + N_NONE, np.int64)
    kernels.build_padded(padded(rows, row_bins, stride)[1], stride, 2, which, packed[which], acc)
    assert slots_held(acc) == naive.build(rows, which.tolist(), values)


@WAYS
@pytest.mark.parametrize(("stride", "n_held"), [(4, 0), (8, 1), (8, 8), (16, 9)])
@pytest.mark.parametrize("step", [1, 3])
def test_rows_of_bins_that_no_cache_holds(kernels, stride, n_held, step):
    rng, n_bins = np.random.default_rng(stride), 2 * slots.CACHED_SLOTS
    rows = [sorted(rng.choice(n_bins, rng.integers(0, 1 + stride), replace=False).tolist()) for _ in range(300)]
    values = [(int(rng.integers(-99, 99)), int(rng.integers(1, 99))) for _ in rows]
    indptr, bins, which, packed = arrays(rows, values, range(0, len(rows), step))
    acc, expected = np.zeros(n_bins + N_NONE, np.int64), naive.build(rows, which.tolist(), values)
    kernels.build_padded(padded(rows, (np.int64, np.int32), stride, n_bins)[1], stride, n_held, which, packed[which], acc)
    assert slots_held(acc) == expected
    acc[:] = 0
    kernels.build(indptr, bins, which, packed[which], acc)
    assert slots_held(acc) == expected


@pytest.mark.parametrize("held", [(3, 0), (3, 4), (16, 16), (17, 0)], ids=["short", "four", "sixteen", "long"])
@pytest.mark.parametrize(("most", "n_fit"), [(2**20, 1 << 11), (2**18, 1 << 13)], ids=["too few fit", "in pieces"])
@pytest.mark.parametrize("width", [np.int32, np.int64])
def test_pairs_are_made_of_packed_sums_of_some_thousand_rows(held, most, n_fit, width):
    rng, n_rows, n_bins, (n_held, stride) = np.random.default_rng(5), 30_000, 40, held
    rows = np.sort(np.argsort(rng.random((n_rows, n_bins)), axis=1)[:, :n_held].astype(np.int32), axis=1)
    rows[:, 0] *= rng.random(n_rows) < 0.3  # bin 0 is in most rows
    most = min(most, 2**15) if width == np.int32 else most
    values = np.stack([rng.integers(-most, most, n_rows), rng.integers(1, most, n_rows)], axis=1)
    packed = ((values[:, 0] << HALF_BITS[width]) + values[:, 1]).astype(width)
    expected = np.zeros((n_bins, 2), np.int64)
    own = np.flatnonzero(rng.random(n_rows) < 0.9).astype(np.int32)
    for column in rows[own].T:
        np.add.at(expected, column, values[own])
    nothing = np.broadcast_to(n_bins + np.arange(n_held, stride, dtype=np.int32), (n_rows, max(0, stride - n_held)))
    bins = np.hstack([rows, nothing])
    indptr = np.arange(0, bins.size + 1, bins.shape[1])
    offsets = np.concatenate(([0], np.cumsum(np.bincount(rows.reshape(-1), minlength=n_bins))))
    acc = np.zeros(2 * (n_bins + N_NONE), np.int64)
    span = np.array([0, 10_001, 10_001, len(own)])  # of two chunks
    histograms.build_by_rows(indptr, bins.reshape(-1).copy(), stride, offsets, own, span, packed[own], True, n_fit, acc)
    np.testing.assert_array_equal(acc[: 2 * n_bins].reshape(-1, 2), expected)


@WAYS
@pytest.mark.parametrize("most_rows", [3, 40])
def test_bins_of_few_rows_and_of_many(kernels, most_rows):
    """Sums that run on from bin to bin, also past 2^63, beside those of bins that are summed one by one."""
    rng, n_bins, n_rows = np.random.default_rng(6), 700, 50
    sizes = rng.integers(0, most_rows, n_bins)
    offsets = np.cumsum([0, *sizes])
    rows = rng.integers(0, n_rows, offsets[-1]).astype(np.int32)
    grads, hesses = rng.integers(2**24, 2**25, n_rows), rng.integers(1, 2**26, n_rows)
    packed, acc = (grads << 32) + hesses, np.full(n_bins, 77)
    kernels.build_by_bins(offsets, rows, 99, packed, False, acc)
    expected = [(grads[of_bin].sum(), hesses[of_bin].sum()) for of_bin in np.split(rows, offsets[1:-1])]
    assert list(zip(acc >> 32, acc & 0xFFFFFFFF, strict=True)) == expected
    assert (offsets[256] <= 2048) == (most_rows == 3) and grads[rows].sum() >> 31 > 0


def histograms_up_to(largest):
    return st.dictionaries(
        st.integers(0, N_BINS - 1), st.tuples(st.integers(-largest, largest), st.integers(1, largest)), max_size=9
    ).map(lambda histogram: dict(sorted(histogram.items())))


HISTOGRAMS = histograms_up_to(2**50)

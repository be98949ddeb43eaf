"""Routing kernels beside the slow twins, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import dense, routing
from tests.naive import routing as naive
from tests.plain import both_ways
from tests.shards import edges_of, members_of, shards, words_of

WAYS = pytest.mark.parametrize("kernels", both_ways(routing), ids=["compiled", "plain"])
quick = settings(max_examples=60, deadline=None)


def ascending(rows):
    return np.array(rows, np.int32)


@WAYS
def test_what_leaves_by_the_splits_of_a_part(kernels):
    """Every way in which a value can leave, of features 4 .. 6 of shard 1, which have 3 bins, 5 and one for NaN."""
    offsets, n_cuts, ways = np.array([0, 3, 9], np.int32), np.array([3, 5], np.int32), []
    for shard, local, bin_ in ((1, 3, 0), (1, 4, 0), (0, 4, 0), (1, 5, 2), (1, 6, 0)):
        ways += [(shard, local, bin_, left, unstored) for left in (0, 1) for unstored in (0, 1)]
    splits = np.array([(i, *way, 1) for i, way in enumerate(ways)], np.int32)
    held = np.array([(i // 2, 0, 0) if i % 2 else (-1, 10 + i, 20 + i) for i in range(len(ways))])
    leaving = np.full((len(ways), routing.N_OWN), -7, np.int64)
    n_large, n_small = kernels.find_leaving(splits, 1, 4, 6, offsets, n_cuts, held, leaving)

    large, small = [], []
    for i, (shard, local, bin_, nan_left, unstored_left) in enumerate(ways):
        if shard == 1 and local in (4, 5):
            n_numeric, nan_bin = (3, -1) if local == 4 else (5, 5)
            goes_left = [b <= bin_ for b in range(n_numeric)]
            away = [b for b, left in enumerate(goes_left) if left != bool(unstored_left)]
            nan_leaves = nan_bin >= 0 and nan_left != unstored_left
            of_bins = away[0], away[-1] + 1, nan_bin if nan_leaves else -1, local - 4
            if i % 2:
                large.append([i // 2, 0, *of_bins])
            else:
                small.insert(0, [10 + i, 20 + i, *of_bins])
    assert (n_large, n_small) == (len(large), len(small)) == (4, 4)
    assert leaving[:n_large].tolist() == large and leaving[-n_small:].tolist() == small
    assert (leaving[n_large:-n_small] == -7).all()


def bitmaps_of(offsets, posted, n_rows, bins):
    """What kernels take of bitmaps of these bins."""
    of_bins, words = np.full(len(offsets) - 1, -1, np.int32), np.zeros((len(bins), -(-n_rows // 64)), np.uint64)
    of_bins[bins] = np.arange(len(bins))
    routing.fill_bitmaps(offsets, posted, np.array(bins, np.int32), words)
    return of_bins, words


@WAYS
def test_bitmaps_hold_what_postings_do(kernels):
    rng, n_rows = np.random.default_rng(3), 200
    rows = [rng.permutation(n_rows)[:n].astype(np.int32) for n in (5, 0, 200, 60)]
    offsets, bitmaps = np.cumsum([0, *map(len, rows)]), np.zeros((3, 4), np.uint64)
    kernels.fill_bitmaps(offsets, np.concatenate(rows), np.array([3, 1, 2], np.int32), bitmaps)
    for bitmap, b in zip(bitmaps, (3, 1, 2), strict=True):
        assert bitmap.tolist() == naive.to_words([row in rows[b] for row in range(n_rows)])


@WAYS
@quick
@given(shards(), st.integers(2, 6), st.booleans(), st.booleans(), st.sampled_from([[], [2], [1, 0], [0, 1, 2]]))
def test_clear_bits(kernels, shard, node, ascend, in_parts, frequent):
    node_of_row, bits, rows = shard
    words, n, n_rows = words_of(bits), len(rows), len(node_of_row)
    offsets, bin_offsets = np.array([0, n // 9, n // 9, n], np.int64), np.array([0, 1, 3], np.int32)
    leaving = np.array([[0, 0, 0, 1, 1, 1], [1, 0, 0, 1, -1, 0], [0, 0, 1, 1, -1, 1]])  # bins 1 and 2, bin 0, none
    if frequent:
        leaving[0, 3:5] = 2, -1  # bins 1 and 2, next to each other
    posted = ascending(rows)
    if not ascend:
        posted[n // 9 :] = posted[n // 9 :][::-1].copy()
    bitmaps = bitmaps_of(offsets, posted, n_rows, frequent)
    for part in edges_of(n_rows, in_parts):
        members = members_of(node_of_row, [node, node + 1])
        kernels.clear_bits(offsets, posted, ascend, *bitmaps, bin_offsets, leaving, *part, members, words)
    expected = naive.clear_bits(rows[n // 9 :], node_of_row, node, bits)
    assert words.tolist() == naive.to_words(naive.clear_bits(rows[: n // 9], node_of_row, node + 1, expected))


def lists_of(own, feature, other, bins=(2, 5)):
    """Two lists, the second of which leaves by `bins` and `other`, counted within the feature; the first by none."""
    rows = np.array([*range(7), *own], np.int32)
    return rows, np.array([[0, 7, 0, 0, -1, feature], [7, len(rows), *bins, other, feature]])


@WAYS
@quick
@given(
    shards(), st.sampled_from([-1, 0, 1, 4, 7]), st.booleans(), st.booleans(), st.sampled_from([1, 300]),
    st.sampled_from([(np.int64, np.int32), (np.int32, np.uint16)]), st.sampled_from([0, 0, 8, 16]),
    st.sampled_from([[], [], [22], [24, 21], [20, 22, 23]]), st.sampled_from([(2, 5), (2, 3)]),
)  # fmt: skip
def test_clear_bits_of_lists(kernels, shard, other, ascend, in_parts, times, row_bins, stride, frequent, leaving):
    """Of rows of a few bins, padded or not, and of many; and of bins that have a few times as many rows or far more."""
    node_of_row, bits, own = shard
    words, n_rows = words_of(bits), len(node_of_row)
    rng = np.random.default_rng(n_rows)
    bins = [np.flatnonzero(rng.random(60) < rng.choice([0.1, 0.6])).tolist() for _ in range(n_rows)]
    if stride:
        bins = [sorted(rng.permutation(row)[:stride].tolist()) for row in bins]
    held = [row + [60 + k for k in range(len(row), stride)] for row in bins]
    indptr = np.cumsum([0, *map(len, held)]).astype(row_bins[0])
    of_all, bin_offsets = np.array([b for row in held for b in row], row_bins[1]), np.array([0, 20, 28, 60], np.int32)
    posted = [np.repeat([row for row in range(n_rows) if b in bins[row]], times)[:: 1 if ascend else -1] for b in range(60)]
    offsets, posted = np.cumsum([0, *map(len, posted)]), np.concatenate(posted).astype(np.int32)
    rows, lists = lists_of(own, 1, other, leaving)
    block = indptr, of_all, stride, offsets, posted, ascend, *bitmaps_of(offsets, posted, n_rows, frequent), bin_offsets
    for part in edges_of(n_rows, in_parts):
        kernels.clear_bits_of_lists(*block, rows, lists if n_rows > 7 else lists[1:], *part, words)
    first, last = (20 + b for b in leaving)
    leave = [row for row in own if any(first <= b < last or b == 20 + other and other >= 0 for b in bins[row])]
    assert words.tolist() == naive.to_words(naive.clear_bits(leave, [0] * n_rows, 0, bits))


@pytest.mark.parametrize("kernels", both_ways(dense), ids=["compiled", "plain"])
@quick
@given(
    shards(), st.sampled_from([np.uint8, np.uint16]), st.sampled_from([(2, 5), (0, 9), (0, 1), (4, 4), (0, 0)]),
    st.sampled_from([-1, 0, 1, 4, 8]), st.booleans(), st.booleans(),
)  # fmt: skip
def test_clear_bits_dense(kernels, shard, dtype, bins, other, highest, in_parts):
    """Also of the highest cells that there can be."""
    node_of_row, bits, own = shard
    n_rows, begin = len(node_of_row), int(np.iinfo(dtype).max) - 8 if highest else 0
    columns = (begin + np.random.default_rng(n_rows).integers(0, 9, (2, n_rows))).astype(dtype)
    bins, other = [begin + b for b in bins], other if other < 0 else begin + other
    column, (rows, lists) = columns[1], lists_of(own, 1, other, bins)
    leaving, members = np.array([[0, 0, 0, 0, -1, 0], [1, 0, *bins, other, 1]]), members_of(node_of_row, [4, 3])
    of_members, of_rows = words_of(bits), words_of(bits)
    for part in edges_of(n_rows, in_parts):
        kernels.clear_bits_dense(columns, leaving, *part, members, of_members)
    kernels.clear_bits_of_lists_dense(columns, rows, lists[1:], of_rows)
    leave = [row for row, cell in enumerate(column.tolist()) if bins[0] <= cell < bins[1] or cell == other]
    assert of_members.tolist() == naive.to_words(naive.clear_bits(leave, node_of_row, 3, bits))
    assert of_rows.tolist() == naive.to_words(naive.clear_bits(set(leave) & set(own), [0] * n_rows, 0, bits))

"""A node of a dense block of any number of features beside numpy, compiled and as plain Python."""

import numpy as np
import pytest

from psboost.kernels import dense_builds
from psboost.kernels.dense import BYTE_STRIDE, build_dense
from psboost.kernels.node_builds import N_SUMS, add_rows
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(dense_builds), ids=["compiled", "plain"])
N_ROWS = 30


def test_pairs_of_many_features_in_pieces():
    """More features than are added up at a time, and more rows than fit one slot."""
    rng = np.random.default_rng(0)
    n_rows, n_features = 2600, 200
    n_bins = rng.integers(1, 5, n_features)
    bin_offsets = np.concatenate([[0], np.cumsum(n_bins)]).astype(np.int32)
    cells = rng.integers(0, n_bins + 1, (n_rows, n_features)).astype(np.uint8)
    grads, hesses = rng.integers(-(2**20), 2**20, n_rows), rng.integers(1, 2**20, n_rows)
    rows = np.flatnonzero(rng.random(n_rows) < 0.9).astype(np.int32)
    wide, acc = np.zeros(n_features * BYTE_STRIDE, np.int64), np.zeros(2 * bin_offsets[-1], np.int64)
    packed = ((grads << 32) + hesses)[rows]
    build_dense(cells.reshape(-1), BYTE_STRIDE, bin_offsets, rows, packed, True, 1024, wide, acc)
    expected = np.zeros((bin_offsets[-1], 2), np.int64)
    for f in range(n_features):
        stored = rows[cells[rows, f] < n_bins[f]]
        np.add.at(expected, bin_offsets[f] + cells[stored, f], np.stack([grads[stored], hesses[stored]], axis=1))
    np.testing.assert_array_equal(acc.reshape(-1, 2), expected)
    assert not wide.any()


@WAYS
@pytest.mark.parametrize("code", [np.uint8, np.uint16])
@pytest.mark.parametrize("most", [3, 2**31 - 1])
@pytest.mark.parametrize("n_features", [1, 2, 3, 7, 8, 9, 12, 15, 16, 22, 64, 65, 128, 129, 200])
def test_rows_of_any_length(kernels, n_features, most, code):
    """Cells that are not stored among them; sums packed and in pairs; rows in two chunks, as two threads list them."""
    rng = np.random.default_rng(n_features)
    n_bins = rng.integers(1, 5, n_features)
    bin_offsets = np.concatenate([[0], np.cumsum(n_bins)]).astype(np.int32)
    cells = rng.integers(0, n_bins + 1, (N_ROWS, n_features)).astype(code)
    values = np.stack([rng.integers(-most, most, N_ROWS), rng.integers(1, most, N_ROWS)], axis=1)
    packed = (values[:, 0] << 32) + values[:, 1]
    rows, span = np.array([1, 4, 5, 29, 7, 8, 20], np.int32), np.array([0, 3, 4, 7])
    which = [1, 4, 5, 7, 8, 20]
    sums = np.zeros(N_SUMS, np.int64)
    add_rows(packed[which], sums)
    stride = BYTE_STRIDE if code == np.uint8 else int(n_bins.max()) + 1
    wide, acc = np.zeros(n_features * stride, np.int64), np.full(2 * bin_offsets[-1], 77)
    pairs = kernels.build_dense_node(cells.reshape(-1), stride, bin_offsets, rows, span, sums, packed[rows], wide, acc)
    assert pairs == (most > 3) and not wide.any()
    slots = acc[: bin_offsets[-1] << pairs]
    found = slots.reshape(-1, 2) if pairs else np.stack([slots >> 32, slots & 0xFFFFFFFF], axis=1)
    expected = np.zeros((bin_offsets[-1], 2), np.int64)
    for row in which:
        for f in np.flatnonzero(cells[row] < n_bins):
            expected[bin_offsets[f] + cells[row, f]] += values[row]
    np.testing.assert_array_equal(found, expected)

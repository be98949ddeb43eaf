"""Node numbers of a growing tree, and where zeros and missing values of a feature fall."""

import numpy as np
import pytest

from psboost.boosting.growth import Frontier, feature_range
from psboost.data.cut_points import CutPoints

FLOAT_MAX = float(np.finfo(np.float32).max)


def test_children_are_numbered_level_by_level():
    root = Frontier.root()
    assert (root.open, root.n_nodes) == ([0], 1)
    first = root.split(np.array([0], np.int32))
    assert (first.open, first.n_nodes) == ([1, 2], 3)
    nodes = np.array([2], np.int32)
    assert first.children(nodes) == [(2, 3, 4)] and first.positions(nodes) == [1]
    second = first.split(nodes)
    assert (second.open, second.n_nodes) == ([3, 4], 5)
    both = second.split(np.array([3, 4], np.int32))
    assert (both.open, both.n_nodes) == ([5, 6, 7, 8], 9)
    assert both.positions(np.array([5, 8])) == [0, 3] and both.positions([]) == []
    none = both.split(np.empty(0, np.int32))
    assert (none.open, none.n_nodes) == ([], 9)


CUTS = [[-1.0, 0.0, 2.0, FLOAT_MAX], [], [FLOAT_MAX], [0.5, FLOAT_MAX], [-2.0, -1.0, FLOAT_MAX]]
POINTS = CutPoints(
    np.cumsum([0, *map(len, CUTS)]), np.array(sum(CUTS, []), np.float32), np.array([1, 0, 1, 0, 0], np.uint8)
)
IDS = np.array([70, 3, 2**60, 5, 6])


def test_zeros_as_values():
    features = feature_range(IDS, np.zeros(5), np.arange(5), POINTS, zero_as_missing=False)
    assert features.bin_offsets.tolist() == [0, 5, 5, 7, 9, 12]
    pairs = features.default_bins.reshape(-1, 2)
    for (zero_bin, nan_bin), cuts, has_missing in zip(pairs.tolist(), CUTS, POINTS.has_missing, strict=True):
        if cuts:
            assert zero_bin == next(b for b, cut in enumerate(cuts) if cut > 0)
        assert nan_bin == (len(cuts) if has_missing else -1)
    assert features.ids.tolist() == IDS.tolist() and features.n_features == 5


@pytest.mark.parametrize("zero_as_missing", [True, "unstored"])
def test_zeros_as_missing_values(zero_as_missing):
    without = CutPoints(POINTS.offsets, POINTS.cuts, np.zeros(5, np.uint8))
    features = feature_range(IDS, np.zeros(5), np.arange(5), without, zero_as_missing)
    assert (features.default_bins == -1).all()
    assert features.bin_offsets.tolist() == [0, 4, 4, 5, 7, 10]


@pytest.mark.parametrize("zero_as_missing", [True, False, "unstored"])
def test_no_features(zero_as_missing):
    nothing = CutPoints(np.zeros(1, np.int64), np.empty(0, np.float32), np.empty(0, np.uint8))
    features = feature_range(np.empty(0), np.empty(0), np.empty(0), nothing, zero_as_missing)
    assert features.n_features == 0 and features.bin_offsets.tolist() == [0]
    assert (features.ids.dtype, features.shards.dtype, features.bin_offsets.dtype) == (
        np.int64, np.int32, np.int32,
    )  # fmt: skip

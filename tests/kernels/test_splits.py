"""Which splits are made of proposals, and by which thresholds, compiled and as plain Python. Which proposal is better:
tests/boosting/test_split.py."""

import numpy as np
import pytest

from psboost.data.cut_points import AllCuts, CutPoints
from psboost.kernels import splits
from tests.plain import both_ways

# Two shards of 9 and of 8 features, without cuts but for (0, 8), which has one, and (1, 7), which has three.
CUTS = AllCuts.of(
    [
        CutPoints(np.array([0] * 9 + [1]), np.array([2.5], np.float32), np.zeros(9, np.uint8)),
        CutPoints(np.array([0] * 8 + [3]), np.array([-3.5, -2.5, -1.5], np.float32), np.zeros(8, np.uint8)),
    ]
)
WAYS = pytest.mark.parametrize("kernels", both_ways(splits), ids=["compiled", "plain"])


@WAYS
def test_splits_to_make_of_proposals(kernels):
    """Of nodes 3 .. 6: two have no finite gain; the first right child is lighter, of two as heavy the left one is built."""
    gains = np.array([2.5, -np.inf, np.nan, 0.5])
    proposals = np.zeros((4, kernels.N_PROPOSED), np.int64)
    alike = kernels.SHARD, kernels.LOCAL, kernels.BIN, kernels.DEFAULT_LEFT, kernels.UNSTORED_LEFT
    sums = kernels.LEFT_GRAD, kernels.LEFT_HESS, kernels.NODE_GRAD, kernels.NODE_HESS
    for i, feature, where, of_sums in ((0, 2**40, (1, 7, 2, 1, 0), (-5, 30, 4, 50)), (3, 9, (0, 8, 0, 0, 1), (6, 4, -1, 8))):
        proposals[i, kernels.FEATURE], proposals[i, list(alike)], proposals[i, list(sums)] = feature, where, of_sums
    made = np.full((4, kernels.N_SPLIT), -9, np.int32), np.zeros(4, np.int64), np.zeros(4), np.zeros((4, 4), np.int64)
    assert kernels.choose(gains, proposals, 3, *made) == 2
    splits, features, split_gains, child_sums = (of_all[:2].tolist() for of_all in made)
    assert splits == [[3, 1, 7, 2, 1, 0, 0], [6, 0, 8, 0, 0, 1, 1]]
    assert (features, split_gains) == ([2**40, 9], [2.5, 0.5])
    assert child_sums == [[-5, 30, 9, 20], [6, 4, -7, 4]]
    thresholds = np.zeros(2, np.float32)
    assert kernels.find_thresholds(made[0][:2], *CUTS, thresholds) and thresholds.tolist() == [-1.5, 2.5]


@WAYS
@pytest.mark.parametrize("where", [(2, 0, 0), (-1, 0, 0), (0, 9, 0), (0, -1, 0), (1, 7, 3), (1, 7, -1)], ids=str)
def test_a_split_by_a_bin_that_no_feature_has_has_no_threshold(kernels, where):
    fields = np.zeros((1, kernels.N_SPLIT), np.int32)
    fields[0, [kernels.SHARD, kernels.LOCAL, kernels.BIN]] = where
    assert not kernels.find_thresholds(fields, *CUTS, np.zeros(1, np.float32))

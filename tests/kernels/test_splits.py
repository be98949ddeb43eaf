"""Which splits are made of proposals, compiled and as plain Python. Which one is better: tests/boosting/test_split.py."""

import numpy as np
import pytest

from psboost.kernels import splits
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(splits), ids=["compiled", "plain"])


@WAYS
def test_splits_to_make_of_proposals(kernels):
    """Of nodes 3 .. 6: two have no finite gain; the first right child is lighter, of two as heavy the left one is built."""
    gains = np.array([2.5, -np.inf, np.nan, 0.5])
    proposals = np.zeros((4, kernels.N_PROPOSED), np.int64)
    alike = kernels.SHARD, kernels.LOCAL, kernels.BIN, kernels.DEFAULT_LEFT
    sums = kernels.LEFT_GRAD, kernels.LEFT_HESS, kernels.NODE_GRAD, kernels.NODE_HESS
    for i, feature, where, of_sums in ((0, 2**40, (1, 7, 2, 1), (-5, 30, 4, 50)), (3, 9, (0, 8, 0, 0), (6, 4, -1, 8))):
        proposals[i, kernels.FEATURE], proposals[i, list(alike)], proposals[i, list(sums)] = feature, where, of_sums
    splits, features, split_gains = np.full((4, kernels.N_SPLIT), -9, np.int32), np.zeros(4, np.int64), np.zeros(4)
    child_sums = np.zeros((4, 4), np.int64)
    n = kernels.choose(gains, proposals, 3, splits, features, split_gains, child_sums)
    assert n == 2 and splits[:, kernels.UNSTORED_LEFT].tolist() == [-9] * 4
    assert splits[:2, [kernels.NODE, *alike, kernels.BUILD_LEFT]].tolist() == [[3, 1, 7, 2, 1, 0], [6, 0, 8, 0, 0, 1]]
    assert (features[:2].tolist(), split_gains[:2].tolist()) == ([2**40, 9], [2.5, 0.5])
    assert child_sums[:2].tolist() == [[-5, 30, 9, 20], [6, 4, -7, 4]]

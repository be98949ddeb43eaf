"""Node numbers of a growing tree, and where zeros and missing values of a feature fall."""

import numpy as np
import pytest

from psboost.boosting.fixed_point import Steps
from psboost.boosting.forest import TREE_DTYPES
from psboost.boosting.growth import Frontier, feature_range, grown_tree
from psboost.boosting.split import SplitRule, Splits
from psboost.data.cut_points import CutPoints
from psboost.errors import ProtocolError
from psboost.kernels.splits import BUILD_LEFT, DEFAULT_LEFT, N_SPLIT, NODE

FLOAT_MAX = float(np.finfo(np.float32).max)


def fields_of(nodes, build_left=0):
    fields = np.zeros((len(nodes), N_SPLIT), np.int32)
    fields[:, NODE], fields[:, BUILD_LEFT] = nodes, build_left
    return fields


def test_children_are_numbered_level_by_level():
    def positions(frontier, nodes, build_left=0):
        return [found.tolist() for found in frontier.positions(fields_of(nodes, build_left))]

    root = Frontier.root()
    assert root.open == range(1) and positions(root, [0]) == [[0], [1]]
    first = root.split(1)
    assert first.open == range(1, 3) and positions(first, [2], 1) == [[1], [0]]
    second = first.split(1)
    both = second.split(2)
    assert (second.open, both.open) == (range(3, 5), range(5, 9))
    assert positions(both, [5, 8]) == [[0, 3], [1, 3]] and positions(both, []) == [[], []]
    assert positions(both, [5, 7, 8], [1, 0, 1]) == [[0, 2, 3], [0, 3, 4]]
    assert len(both.split(0).open) == 0


@pytest.mark.parametrize("nodes", [[4], [5, 9], [6, 5], [6, 6], [-1]])
def test_splits_of_nodes_that_are_not_open(nodes):
    with pytest.raises(ProtocolError, match=f"nodes .*{nodes[-1]}.*, where 5 to 8 are open"):
        Frontier(range(5, 9)).positions(fields_of(nodes))


@pytest.mark.parametrize(
    ("nodes", "max_depth", "opened"),
    [
        ([], 3, range(1)), ([0], 3, range(1, 3)), ([0, 2], 3, range(3, 5)), ([0, 1, 2], 2, range(1, 3)),
        ([0, 2, 4], 3, range(3, 5)), ([0, 2, 4], 9, range(5, 7)), ([1, 2], 3, range(1)), ([0, 3], 3, range(1, 3)),
    ],
)  # fmt: skip
def test_the_last_open_nodes_of_a_grown_tree(nodes, max_depth, opened):
    """Also of what is none, whose later nodes nobody opened."""
    assert Frontier.after(nodes, lambda level: level + 1 >= max_depth).open == opened


def splits(nodes, features, default_left, gains, child_sums):
    fields = np.zeros((len(nodes), N_SPLIT), np.int32)
    fields[:, NODE], fields[:, DEFAULT_LEFT] = nodes, default_left
    sums = np.array(child_sums, np.int64).reshape(-1, 2, 2)
    return Splits(fields, False, np.array(features, np.int64), np.array(gains, np.float64), sums)


def test_the_nodes_of_a_grown_tree():
    r"""    0        1 stays a leaf, as 4 and the children of 3 do: nodes in order of levels, left before right.
          /   \
         1     2
              / \
             3   4
            / \
           5   6
    """
    child_sums = [[1, 10], [4, 30], [7, 20], [-3, 10], [6, 12], [1, 0]]
    of_all_levels = splits([0, 2, 3], [70, 2**60, 5], [1, 0, 1], [9.0, 1e99, 1.0], child_sums)
    thresholds, leaves = np.array([0.5, -1.0, 2.0], np.float32), np.array([0.5, 1.5, 2.5, 3.5], np.float32)
    steps, rule = Steps(4.0, 0.5, 1.0, 1.0), SplitRule(2.0, 3.0, 0.0, 0.0)
    tree = grown_tree(of_all_levels, thresholds, np.array([-5, 40]), leaves, steps, rule)
    assert tree.left.tolist() == [1, -1, 3, 5, -1, -1, -1] and tree.right.tolist() == [2, -1, 4, 6, -1, -1, -1]
    assert tree.feature.tolist() == [70, -1, 2**60, 5, -1, -1, -1]
    assert tree.threshold.tolist() == [0.5, 0, -1, 2, 0, 0, 0] and tree.gain.tolist() == [9, 0, FLOAT_MAX, 1, 0, 0, 0]
    assert tree.default_left.tolist() == [1, 0, 0, 1, 0, 0, 0]
    assert tree.sum_hess.tolist() == [20, 5, 15, 10, 5, 6, 0]
    inner = np.array([17 / 22, -13 / 17, -25 / 12], np.float32)
    np.testing.assert_array_equal(tree.value, [inner[0], 0.5, inner[1], inner[2], 1.5, 2.5, 3.5])
    assert {name: getattr(tree, name).dtype for name in TREE_DTYPES} == TREE_DTYPES


def test_the_sums_of_children_that_are_built():
    both = splits([3, 6], [2**40, 9], [1, 0], [2.5, 0.5], [[-5, 30], [9, 20], [6, 4], [-7, 4]])
    both.fields[:, BUILD_LEFT] = 0, 1
    assert both.built_sums.tolist() == [[9, 20], [6, 4]]


def test_a_tree_without_splits():
    none, leaf, steps = np.empty(0, np.float32), np.array([0.25], np.float32), Steps(1.0, 0.5, 1.0, 1.0)
    tree = grown_tree(splits([], [], [], [], []), none, np.array([5, 40]), leaf, steps, SplitRule(1.0, 0.0, 0.0, 0.0))
    assert [getattr(tree, name).tolist() for name in TREE_DTYPES] == [[-1], [-1], [-1], [0], [0], [0.25], [0], [20]]


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

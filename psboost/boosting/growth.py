"""Knows how a growing tree's nodes are numbered, which are open, and what comes of splits; not why nodes are split."""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from psboost.boosting.fixed_point import Steps
from psboost.boosting.forest import TREE_DTYPES, Tree
from psboost.boosting.split import FeatureRange, SplitRule, Splits
from psboost.data import zeros
from psboost.data.block import bin_offsets_of, bins_of
from psboost.data.cut_points import CutPoints
from psboost.errors import ProtocolError
from psboost.kernels import splits as kernels
from psboost.kernels import trees


@dataclass
class Frontier:
    """The open nodes of one level, the last of all so far. Children are numbered from the node count on: left, right, left,
    right."""

    open: range

    @staticmethod
    def root() -> "Frontier":
        return Frontier(range(1))

    @staticmethod
    def after(nodes: list[int], is_last: Callable[[int], bool]) -> "Frontier":
        """The last one of a tree of which these nodes, in ascending order, were split.

        is_last  of a level: whether its nodes' children are leaves
        """
        frontier, level = Frontier.root(), 0
        while not is_last(level):
            opened = frontier.open
            n_splits = bisect_left(nodes, opened.stop) - bisect_left(nodes, opened.start)
            if n_splits == 0:
                break
            frontier, level = frontier.split(n_splits), level + 1
        return frontier

    def positions(self, splits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int64: where in `open` the nodes of these splits (kernels.splits) stand; and where, among the open nodes that come
        of them, those stand whose histograms are built. ProtocolError for a node that is not open, or there twice, or
        behind a later one."""
        positions, built = np.empty((2, len(splits)), np.int64)
        if not kernels.find_positions(splits, self.open.start, len(self.open), positions, built):
            nodes = splits[:, kernels.NODE].tolist()
            raise ProtocolError(f"splits of nodes {nodes!r:.200}, where {self.open.start} to {self.open.stop - 1} are open")
        return positions, built

    def split(self, n_splits: int) -> "Frontier":
        """The frontier after so many nodes were split."""
        return Frontier(range(self.open.stop, self.open.stop + 2 * n_splits))


def grown_tree(
    splits: Splits, thresholds: np.ndarray, root_sums: np.ndarray, leaf_values: np.ndarray, steps: Steps, rule: SplitRule
) -> Tree:
    """The tree that comes of the splits of all its levels.

    thresholds   float32: of each split
    root_sums    int64 (2): of grad and hess, in steps
    leaf_values  float32: of its leaves, in order of node; others have what their sums are worth, at a learning rate of 1
    """
    n_nodes = 1 + 2 * len(splits.fields)
    sums = np.empty((n_nodes, 2), np.int64)
    sums[0], sums[1:] = root_sums, splits.child_sums.reshape(-1, 2)
    nodes = [np.empty(n_nodes, dtype) for dtype in TREE_DTYPES.values()]
    trees.grow(
        splits.fields, splits.features, thresholds, splits.gains, sums, steps.grad, steps.hess, rule.reg_lambda,
        rule.reg_alpha, leaf_values, *nodes,
    )  # fmt: skip
    return Tree(*nodes)


def feature_range(
    ids: np.ndarray, shards: np.ndarray, locals_: np.ndarray, cut_points: CutPoints, zero_as_missing: zeros.Rule
) -> FeatureRange:
    """The bins of features side by side, and where each one's zeros and missing values fall."""
    default_bins = np.full((len(ids), 2), -1, np.int32)
    if not zeros.unstored_is_missing(zero_as_missing):
        default_bins[:, 0] = bins_of(cut_points, 0.0)
        default_bins[:, 1] = np.where(cut_points.has_missing, np.diff(cut_points.offsets), -1)
    return FeatureRange(
        ids=np.ascontiguousarray(ids, np.int64),
        shards=np.ascontiguousarray(shards, np.int32),
        locals=np.ascontiguousarray(locals_, np.int32),
        bin_offsets=bin_offsets_of(cut_points),
        default_bins=default_bins.reshape(-1),
    )

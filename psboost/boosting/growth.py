"""Knows how a tree's nodes are numbered while it grows, and which are open; does not know why they are split."""

from dataclasses import dataclass

import numpy as np

from psboost.boosting.split import FeatureRange
from psboost.data import zeros
from psboost.data.block import bin_offsets_of, zero_bins_of
from psboost.data.cut_points import CutPoints


@dataclass
class Frontier:
    """The open nodes of one level. Children are numbered from the node count on: left, right, left, right."""

    open: list[int]
    n_nodes: int = 1

    @staticmethod
    def root() -> "Frontier":
        return Frontier([0])

    def children(self, nodes: list[int]) -> list[tuple[int, int, int]]:
        """(node, left, right) of each split."""
        return [(node, self.n_nodes + 2 * k, self.n_nodes + 2 * k + 1) for k, node in enumerate(nodes)]

    def split(self, nodes: list[int]) -> "Frontier":
        """The frontier after `nodes` (ascending) were split."""
        n_nodes = self.n_nodes + 2 * len(nodes)
        return Frontier(list(range(self.n_nodes, n_nodes)), n_nodes)

    def positions(self, nodes: list[int]) -> list[int]:
        """Where in `open` the nodes stand."""
        place = {node: i for i, node in enumerate(self.open)}
        return [place[node] for node in nodes]


def feature_range(
    ids: np.ndarray, shards: np.ndarray, locals_: np.ndarray, cut_points: CutPoints, zero_as_missing: zeros.Rule
) -> FeatureRange:
    """The bins of features side by side, and where each one's zeros and missing values fall (D9)."""
    default_bins = np.full((len(ids), 2), -1, np.int32)
    if not zeros.unstored_is_missing(zero_as_missing):
        default_bins[:, 0] = zero_bins_of(cut_points)
        default_bins[:, 1] = np.where(cut_points.has_missing, np.diff(cut_points.offsets), -1)
    return FeatureRange(
        ids=np.ascontiguousarray(ids, np.int64),
        shards=np.ascontiguousarray(shards, np.int32),
        locals=np.ascontiguousarray(locals_, np.int32),
        bin_offsets=bin_offsets_of(cut_points),
        default_bins=default_bins.reshape(-1),
    )

"""Knows how a growing tree's nodes are numbered, which are open, and what comes of splits; not why nodes are split."""

from dataclasses import dataclass

import numpy as np

from psboost.boosting.split import FeatureRange, Splits
from psboost.data import zeros
from psboost.data.block import bin_offsets_of, zero_bins_of
from psboost.data.cut_points import CutPoints
from psboost.errors import ProtocolError
from psboost.kernels import splits as kernels


@dataclass
class Frontier:
    """The open nodes of one level, the last of all so far. Children are numbered from the node count on: left, right, left,
    right."""

    open: range

    @staticmethod
    def root() -> "Frontier":
        return Frontier(range(1))

    def positions(self, splits: np.ndarray) -> np.ndarray:
        """int64: where in `open` the nodes of these splits (kernels.splits) stand. ProtocolError for one that does not, or
        twice, or behind a later one, or if these are no splits."""
        if splits.ndim != 2 or splits.shape[1] != kernels.N_SPLIT:
            raise ProtocolError(f"splits of shape {splits.shape}, expected (n, {kernels.N_SPLIT})")
        positions = np.empty(len(splits), np.int64)
        if not kernels.find_positions(splits, self.open.start, len(self.open), positions):
            nodes = splits[:, kernels.NODE].tolist()
            raise ProtocolError(f"splits of nodes {nodes!r:.200}, where {self.open.start} to {self.open.stop - 1} are open")
        return positions

    def split(self, n_splits: int) -> "Frontier":
        """The frontier after so many nodes were split."""
        return Frontier(range(self.open.stop, self.open.stop + 2 * n_splits))

    @staticmethod
    def built(splits: np.ndarray) -> np.ndarray:
        """int64: where, among the open nodes that come of these splits, those stand whose histograms are built."""
        return np.arange(0, 2 * len(splits), 2) + (splits[:, kernels.BUILD_LEFT] == 0)


class Growth:
    """A tree's splits so far, level by level. Of the k-th split (from 0) the children are nodes 2 k + 1 and 2 k + 2.

    n_nodes  how many there are
    left     int32 (n_nodes): left child; -1 for a leaf
    """

    def __init__(self, levels: list[Splits]):
        """Of at least one level."""
        self._levels = levels
        self._nodes = np.concatenate([splits.fields[:, kernels.NODE] for splits in levels])
        self.n_nodes = 1 + 2 * len(self._nodes)
        self.left = np.full(self.n_nodes, -1, np.int32)
        self.left[self._nodes] = np.arange(1, self.n_nodes, 2)

    @property
    def right(self) -> np.ndarray:
        """int32 (n_nodes): right child; -1 for a leaf."""
        return np.where(self.left < 0, np.int32(-1), self.left + np.int32(1))

    @property
    def feature(self) -> np.ndarray:
        """int64 (n_nodes): user number; -1 for a leaf."""
        return self._of_nodes(-1, np.int64, [splits.features for splits in self._levels])

    @property
    def threshold(self) -> np.ndarray:
        """float32 (n_nodes); 0 for a leaf."""
        return self._of_nodes(0, np.float32, [splits.thresholds for splits in self._levels])

    @property
    def default_left(self) -> np.ndarray:
        """uint8 (n_nodes); 0 for a leaf."""
        return self._of_nodes(0, np.uint8, [splits.fields[:, kernels.DEFAULT_LEFT] for splits in self._levels])

    @property
    def gain(self) -> np.ndarray:
        """float64 (n_nodes); 0 for a leaf."""
        return self._of_nodes(0, np.float64, [splits.gains for splits in self._levels])

    def sums(self, of_root: np.ndarray) -> np.ndarray:
        """int64 (n_nodes, 2): sum_grad and sum_hess, given those of the root."""
        return np.concatenate([of_root.reshape(1, 2), *(splits.child_sums.reshape(-1, 2) for splits in self._levels)])

    def _of_nodes(self, of_leaf: int, dtype, of_levels: list[np.ndarray]) -> np.ndarray:
        array = np.full(self.n_nodes, of_leaf, dtype)
        array[self._nodes] = np.concatenate(of_levels)
        return array


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

"""Knows which features may still be split in the open nodes of a level; does not know their histograms or messages."""

from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from psboost.kernels import open_nodes as kernels

_NO_FLAGS = np.zeros(1, np.uint64)  # words of flags are read two at once


@dataclass(frozen=True)
class LivingFeatures:
    """The features that lived in the parents of a level's nodes: one list for the two children of each, or for the root.

    features  int32 (n): list after list, each ascending
    offsets   int64 (n_lists + 1)
    """

    features: np.ndarray
    offsets: np.ndarray

    @staticmethod
    def of_root(n_features: int) -> "LivingFeatures":
        """All features."""
        return LivingFeatures(np.arange(n_features, dtype=np.int32), np.array([0, n_features]))

    @staticmethod
    def of_parents(lists: list[np.ndarray]) -> "LivingFeatures":
        """One list (int32, ascending) for each parent."""
        offsets = np.zeros(len(lists) + 1, np.int64)
        np.cumsum([len(features) for features in lists], out=offsets[1:])
        return LivingFeatures(np.concatenate(lists), offsets)

    def from_(self, first: int) -> "LivingFeatures":
        """The same, numbered from `first` on."""
        return LivingFeatures(self.features + np.int32(first), self.offsets)

    def n_flags(self, n_nodes: int, edges: np.ndarray) -> list[int]:
        """How many bits say of n_nodes open nodes which features live on in them, in each range of features
        edges[i] .. edges[i + 1] (int64)."""
        counts = np.empty(len(edges) - 1, np.int64)
        kernels.count_flags(self.features, self.offsets, edges, n_nodes, counts)
        return counts.tolist()

    def of_children(self, positions: np.ndarray, flags: list[np.ndarray], edges: np.ndarray) -> "LivingFeatures":
        """Those of the next level, for which the nodes at these positions were split.

        flags  of each range, uint64 words: bits of all open nodes, one behind the other, for each of a node's features of
               the range whether it lives on
        """
        chosen = np.empty(2 * len(self.features) + 1, np.int32)
        offsets = np.empty(len(positions) + 1, np.int64)
        first_words = np.array([0, *accumulate(map(len, flags))])
        kernels.choose_living(
            self.features, self.offsets, edges, np.concatenate((*flags, _NO_FLAGS)), first_words, positions, chosen, offsets,
        )  # fmt: skip
        return LivingFeatures(chosen[: offsets[-1]].copy(), offsets)

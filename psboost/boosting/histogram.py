"""Knows histograms as sorted bin ids with integer sums; does not know messages, or where gradients come from."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Histograms:
    """Histograms of several tree nodes over one range of bins, held one after another.

    offsets  int64 (n_nodes + 1): node i's entries are offsets[i] .. offsets[i+1]
    bins     int32 (n): bin ids, relative to the range, ascending within a node
    grads    int64 (n): sum_grad, in multiples of the tree's grad step
    hesses   int64 (n): sum_hess, in multiples of the tree's hess step, > 0
    """

    offsets: np.ndarray
    bins: np.ndarray
    grads: np.ndarray
    hesses: np.ndarray

    @property
    def n_nodes(self) -> int:
        return len(self.offsets) - 1

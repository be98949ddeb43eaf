"""Knows chunks of summed histograms, how they travel and how they are added; does not know messages or rings.

A chunk is a range of bins, of all nodes that a level builds. Its sums are float64, 16 bytes a bin, and whole numbers: exact
up to 2^53, so that the order of additions does not matter.
"""

from dataclasses import dataclass

import numpy as np

from psboost.errors import ProtocolError
from psboost.kernels import chunks as kernels

EXACT = 2**53  # float64 holds every whole number up to here
BYTES_PER_BIN = 16


@dataclass(frozen=True)
class DenseChunk:
    """All bins of a chunk, absent ones as zeros.

    sums  float64 (n_nodes, n_bins, 2): sum_grad and sum_hess, in multiples of the tree's steps
    """

    sums: np.ndarray

    form = "dense"

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return (self.sums,)

    def __add__(self, other: "DenseChunk") -> "DenseChunk":
        return DenseChunk(self.sums + other.sums)

    def load(self, node: int, begin: int, end: int, acc: np.ndarray) -> None:
        """Sets the pairs of `acc` to a node's sums of bins begin .. end."""
        kernels.to_pairs(self.sums[node, begin:end].reshape(-1), acc)


Chunk = DenseChunk


def read_chunk(form: str, arrays: tuple[np.ndarray, ...], n_nodes: int, n_bins: int) -> Chunk:
    """The chunk that a message holds; ProtocolError if it is none of so many nodes and bins."""
    if form == DenseChunk.form and len(arrays) == 1:
        [sums] = arrays
        if sums.dtype == np.float64 and sums.shape == (n_nodes, n_bins, 2):
            return DenseChunk(sums)
    found = ", ".join(f"{array.dtype}{array.shape}" for array in arrays)
    raise ProtocolError(f"a {form!r:.20} chunk of {found}, not of {n_nodes} nodes and {n_bins} bins")

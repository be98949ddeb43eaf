"""Knows chunks of summed histograms, how they travel and how they are added; does not know messages or rings.

A chunk is a range of bins, of all nodes that a level builds, its bins counted from 0. Its sums are float64 and whole
numbers, in multiples of the tree's steps: exact up to 2^53, so that the order of additions does not matter.

    form    arrays                                                         bytes
    dense   sums (n_nodes, n_bins, 2)                                      16 a bin, present or not
    sparse  offsets int64 (n_nodes + 1), bins int32 (n), sums (n, 2)       20 a present bin, 8 a node and 8
"""

from dataclasses import dataclass

import numpy as np

from psboost.boosting.histogram import Histograms
from psboost.errors import ProtocolError
from psboost.kernels import chunks as kernels

EXACT = 2**53  # float64 holds every whole number up to here


@dataclass(frozen=True)
class DenseChunk:
    """All bins of a chunk, absent ones as zeros. sums: float64 (n_nodes, n_bins, 2), sum_grad and sum_hess."""

    sums: np.ndarray

    form = "dense"

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return (self.sums,)

    def load(self, node: int, begin: int, end: int, acc: np.ndarray) -> None:
        """Sets the pairs of `acc` to a node's sums of bins begin .. end."""
        np.copyto(acc, self.sums[node, begin:end].reshape(-1), casting="unsafe")

    def unload(self, node: int, begin: int, end: int, acc: np.ndarray) -> None:
        """Makes `acc` ready for this chunk's next node: `load` sets all of it."""


@dataclass(frozen=True)
class SparseChunk:
    """The present bins of a chunk, node after node.

    offsets  int64 (n_nodes + 1): node i's entries are offsets[i] .. offsets[i+1]
    bins     int32 (n): ascending within a node;  sums  float64 (n, 2): sum_grad, and sum_hess > 0
    n_bins   of the whole chunk, present or not
    """

    offsets: np.ndarray
    bins: np.ndarray
    sums: np.ndarray
    n_bins: int

    form = "sparse"

    @staticmethod
    def of(histograms: Histograms, n_bins: int) -> "SparseChunk":
        sums = np.empty((len(histograms.bins), 2))
        sums[:, 0], sums[:, 1] = histograms.grads, histograms.hesses
        return SparseChunk(histograms.offsets, histograms.bins, sums, n_bins)

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        return self.offsets, self.bins, self.sums

    def load(self, node: int, begin: int, end: int, acc: np.ndarray) -> None:
        """Sets the pairs of `acc`, all 0 before, to a node's sums of bins begin .. end."""
        bins, sums = self._entries(node, begin, end)
        kernels.load(bins, sums, begin, acc)

    def unload(self, node: int, begin: int, end: int, acc: np.ndarray) -> None:
        """Makes `acc` ready for the next node: sets what `load` has set to 0."""
        kernels.unload(self._entries(node, begin, end)[0], begin, acc)

    def _entries(self, node: int, begin: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        entries = slice(self.offsets[node], self.offsets[node + 1])
        bins, sums = self.bins[entries], self.sums[entries]
        low, high = np.searchsorted(bins, (begin, end))
        return bins[low:high], sums[low:high].reshape(-1)

    def _add_to(self, sums: np.ndarray) -> None:
        kernels.scatter(self.offsets, self.bins, self.sums.reshape(-1), self.n_bins, sums.reshape(-1))

    def smallest(self) -> "Chunk":
        """This chunk in the form that takes fewer bytes."""
        n_nodes = len(self.offsets) - 1
        if sum(array.nbytes for array in self.arrays) <= 16 * n_nodes * self.n_bins:
            return self
        dense = np.zeros((n_nodes, self.n_bins, 2))
        self._add_to(dense)
        return DenseChunk(dense)


Chunk = DenseChunk | SparseChunk


def add(a: Chunk, b: Chunk) -> Chunk:
    """Their sum: dense if one of them is, else in the form that takes fewer bytes."""
    if isinstance(b, DenseChunk):
        a, b = b, a
    if isinstance(a, SparseChunk):
        return _merge(a, b).smallest()
    if isinstance(b, DenseChunk):
        return DenseChunk(a.sums + b.sums)
    sums = a.sums.copy()
    b._add_to(sums)
    return DenseChunk(sums)


def _merge(a: SparseChunk, b: SparseChunk) -> SparseChunk:
    most = len(a.bins) + len(b.bins)
    offsets, bins, sums = np.empty_like(a.offsets), np.empty(most, np.int32), np.empty(2 * most)
    n = kernels.merge(a.offsets, a.bins, a.sums.reshape(-1), b.offsets, b.bins, b.sums.reshape(-1), offsets, bins, sums)
    return SparseChunk(offsets, bins[:n].copy(), sums[: 2 * n].reshape(-1, 2).copy(), a.n_bins)


def read_chunk(form: str, arrays: tuple[np.ndarray, ...], n_nodes: int, n_bins: int) -> Chunk:
    """The chunk that a message holds; ProtocolError if it is none of so many nodes and bins."""
    dtypes, shapes = [array.dtype for array in arrays], [array.shape for array in arrays]
    if form == DenseChunk.form and dtypes == [np.float64] and shapes == [(n_nodes, n_bins, 2)]:
        return DenseChunk(*arrays)
    if form == SparseChunk.form and dtypes == [np.int64, np.int32, np.float64]:
        chunk, n = SparseChunk(*arrays, n_bins), arrays[1].size
        if shapes == [(n_nodes + 1,), (n,), (n, 2)] and kernels.is_list(chunk.offsets, chunk.bins, n_bins):
            return chunk
    found = ", ".join(f"{array.dtype}{array.shape}" for array in arrays)
    raise ProtocolError(f"a {form!r:.20} chunk of {found}, not of {n_nodes} nodes and {n_bins} bins")

"""Knows what a worker keeps of a level's sums while chunks go round the ring; does not know messages or trees.

Chunk c is the bins edges[c] .. edges[c+1] of all nodes that the level builds. In turn

    own sums of all chunks   ->  take and add: chunks leave for the next worker
    sums over all workers    ->  put: chunks as they come back  ->  acc: a node's sums, for a SplitFinder
"""

from collections.abc import Callable

import numpy as np

from psboost.boosting.histogram import Histograms
from psboost.kernels import chunks as kernels
from psboost.wire.chunks import Chunk, DenseChunk, SparseChunk, add


class DenseSums:
    """In all bins, in memory that is kept: new memory takes longer to touch first than to add to.

    16 bytes a bin of each node, first own sums as float64, then the sums over all workers as int64 in the same place.
    """

    def __init__(self, edges: list[int]):
        self._edges = edges
        self._room = np.empty((0, edges[-1], 2))

    def start(self, n_nodes: int) -> None:
        """A level begins, of so many nodes to build."""
        if len(self._room) < n_nodes:
            self._room = np.empty((n_nodes, self._edges[-1], 2))
        self._own = self._room[:n_nodes]
        self._whole = self._own.view(np.int64)

    def fill(self, node: int, begin: int, acc: np.ndarray, pairs: bool) -> None:
        """Sets a node's own sums from bin `begin` on, from an accumulator (kernels.histograms)."""
        n_bins = len(acc) >> pairs
        kernels.to_floats(acc, pairs, self._own[node, begin : begin + n_bins].reshape(-1))

    def take(self, c: int) -> DenseChunk:
        """Own chunk c."""
        return DenseChunk(self._of(self._own, c).copy())

    def add(self, c: int, received: DenseChunk) -> DenseChunk:
        """Own chunk c and a received one."""
        return DenseChunk(received.sums + self._of(self._own, c))

    def put(self, c: int, chunk: DenseChunk) -> None:
        """Chunk c over all workers; the own one has been added."""
        np.copyto(self._of(self._whole, c), chunk.sums, casting="unsafe")

    def acc(self, node: int, begin: int, end: int) -> np.ndarray:
        """int64: pairs of sums of bins begin .. end."""
        return self._whole[node, begin:end].reshape(-1)

    def _of(self, sums: np.ndarray, c: int) -> np.ndarray:
        return sums[:, self._edges[c] : self._edges[c + 1]]


class SparseSums:
    """In the bins that are present, or all of a chunk where these take less (wire/chunks.py)."""

    def __init__(self, edges: list[int]):
        self._edges = edges
        self._accs: dict[tuple[int, int], np.ndarray] = {}

    def start(self, own: Histograms, side_by_side: Callable) -> None:
        """A level begins, with the own sums of its nodes."""
        edges = list(zip(self._edges, self._edges[1:], strict=False))
        self._chunks: list[Chunk] = list(
            side_by_side(lambda edge: SparseChunk.of(own.restrict(*edge), edge[1] - edge[0]).smallest(), edges)
        )

    def take(self, c: int) -> Chunk:
        return self._chunks[c]

    def add(self, c: int, received: Chunk) -> Chunk:
        return add(received, self._chunks[c])

    def put(self, c: int, chunk: Chunk) -> None:
        self._chunks[c] = chunk

    def acc(self, node: int, begin: int, end: int) -> np.ndarray:
        """int64: pairs of sums of bins begin .. end, until the next node's, in order of nodes."""
        if (begin, end) not in self._accs:
            self._accs[begin, end] = np.empty(2 * (end - begin), np.int64)
        acc = self._accs[begin, end]
        if node == 0:
            acc.fill(0)
        for chunk, low, high, at in self._pieces(begin, end):
            sums = acc[2 * at : 2 * (at + high - low)]
            if node > 0:
                chunk.unload(node - 1, low, high, sums)
            chunk.load(node, low, high, sums)
        return acc

    def _pieces(self, begin: int, end: int):
        """The chunks that the bins begin .. end lie in, with bins of each low .. high, and where these lie from begin on."""
        for chunk, first, last in zip(self._chunks, self._edges, self._edges[1:], strict=False):
            low, high = max(begin, first), min(end, last)
            if low < high:
                yield chunk, low - first, high - first, low - begin


Sums = DenseSums | SparseSums

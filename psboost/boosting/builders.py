"""Knows how the histograms of a block's nodes are built; does not know messages, or where gradients come from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from psboost.boosting.histogram import DTYPES, Histograms, NodeSums, Sums, Total
from psboost.boosting.living import LivingFeatures
from psboost.boosting.partition import NodeRows
from psboost.data.block import Block, DenseBlock
from psboost.kernels import dense_builds, node_builds
from psboost.kernels.dense import BYTE_STRIDE
from psboost.kernels.row_bins import N_NONE


class _Parts:
    """Memory for entries over ranges of features, each in a part of the same arrays; kept for the next ones.

    arrays  bins, grads, hesses
    begins  int64 (n_ranges + 1): range s has begins[s] .. begins[s + 1]
    """

    def __init__(self, n_ranges: int):
        self.arrays, self.begins = [np.empty(0, dtype) for dtype in DTYPES], np.zeros(n_ranges + 1, np.int64)

    def make_room(self, used: np.ndarray, more: np.ndarray) -> None:
        """Room for so many entries more than are used (int64, of each range), and for half as much again."""
        sizes, needed = np.diff(self.begins), used + more
        begins = np.zeros_like(self.begins)
        np.cumsum(np.where(needed > sizes, needed + needed // 2, sizes), out=begins[1:])
        for i, held in enumerate(self.arrays):
            self.arrays[i] = np.empty(begins[-1], held.dtype)
            for old, new, n in zip(self.begins.tolist(), begins.tolist(), used.tolist(), strict=False):
                self.arrays[i][new : new + n] = held[old : old + n]
        self.begins = begins

    def histograms(self, ends: np.ndarray) -> list[Histograms]:
        """What was written to each range, until it is written over."""
        begins = self.begins.tolist()
        return [
            Histograms(of_range, *[held[begin : begin + int(of_range[-1])] for held in self.arrays])
            for begin, of_range in zip(begins, ends, strict=False)
        ]


class HistogramBuilder(ABC):
    """Builds the histograms of one block's nodes, in accumulators that are kept between calls."""

    def __init__(self, bin_offsets: np.ndarray):
        """bin_offsets (int32): bins of a feature."""
        self._bin_offsets = bin_offsets
        self._n_bins = int(bin_offsets[-1])
        # A node's sums, packed or in pairs (kernels.slots): of what is never used, an operating system makes no memory.
        self._acc = np.zeros(2 * (self._n_bins + N_NONE), np.int64)
        self._parts: _Parts | None = None

    @staticmethod
    def of(block: Block) -> "HistogramBuilder":
        if isinstance(block, DenseBlock):
            return DenseBuilder(block.cells, block.stride, block.bin_offsets)
        return SparseBuilder(
            block.indptr, block.bins, block.stride, block.posting_offsets, block.posting_rows, block.tilings,
            block.bin_offsets,
        )  # fmt: skip

    def sums(self, nodes: NodeRows) -> "BuiltSums":
        """Those of the nodes of a level, which are built when they are asked for."""
        return BuiltSums(self, nodes)

    @abstractmethod
    def sum(self, node: NodeRows) -> NodeSums:
        """The sums of one node."""

    @abstractmethod
    def held(self, packed: np.dtype) -> tuple:
        """What kernels take of it for packed rows of this type: the block, and memory to work in, the accumulator last."""

    @abstractmethod
    def share_out(self, k: int, nodes: NodeRows, memory, used, splits, least: int, open_) -> int:
        """Builds node k and some that follow, and shares their parents' histograms out, as Sums.share_out says."""

    def build(
        self, nodes: NodeRows, positions: np.ndarray, living: LivingFeatures, edges: list[int]
    ) -> list[Histograms]:
        """Histograms of nodes over each of several ranges of features.

        positions  int64: of each node, among the open ones
        edges      ranges of features, edges[i] .. edges[i + 1]; edges[0] is the block's first, edges[-1] behind its last
        returns    of each range, its bins counted from its first one, until the next call
        """
        ranges, n_nodes = np.array(edges), len(positions)
        if self._parts is None or len(self._parts.begins) != len(edges):
            self._parts = _Parts(len(edges) - 1)
        ends, done = np.zeros((len(edges) - 1, n_nodes + 1), np.int64), 0
        while done < n_nodes:
            where, to = (living, positions, ranges), (*self._parts.arrays, self._parts.begins, ends)
            before, done = done, self._build_from(done, nodes, where, to)
            if done == before:
                n_bins = np.diff(self._bin_offsets[ranges - edges[0]])
                self._parts.make_room(ends[:, done], np.minimum(nodes.size(done) * self._most_stored, n_bins) + 1)
        return self._parts.histograms(ends)

    @abstractmethod
    def _build_from(self, first: int, nodes: NodeRows, where: tuple, to: tuple) -> int:
        """Builds node `first` and some that follow; returns the next one: `first` itself if there is no room for it.

        where  living features, positions, ranges as `build` takes them
        to     as kernels.node_builds takes them
        """

    @property
    @abstractmethod
    def _most_stored(self) -> int:
        """How many cells a row stores at most."""


@dataclass(frozen=True)
class BuiltSums(Sums):
    """What a block's rows come to in the nodes of a level."""

    builder: HistogramBuilder
    nodes: NodeRows

    @property
    def totals(self):
        return self.nodes.totals

    def take(self, bin_offsets, least, room):
        return self.builder.sum(self.nodes.node(0)).take(bin_offsets, least, room)

    def share_out(self, memory, used, splits, k, least, nodes):
        return self.builder.share_out(k, self.nodes, memory, used, splits, least, nodes)


class DenseBuilder(HistogramBuilder):
    """Of a block that is held as a small number for each cell (data.block.DenseBlock)."""

    def __init__(self, cells: np.ndarray, stride: int, bin_offsets: np.ndarray):
        """stride: more than the greatest cell."""
        super().__init__(bin_offsets)
        self._cells, self._stride = cells, BYTE_STRIDE if cells.dtype == np.uint8 else stride
        self._wide = np.zeros((len(bin_offsets) - 1) * self._stride, np.int64)

    def sum(self, node):
        *of_block, rows, [span], [sums], packed, wide, acc = self._to_build(node)
        dense_builds.build_dense_node(*of_block, rows, span, sums, packed, wide, acc)
        total = Total(*sums[: len(Total._fields)].tolist())
        return NodeSums(acc[: self._n_bins << total.needs_pairs], total)

    def share_out(self, k, nodes, memory, used, splits, least, open_):
        return dense_builds.share_dense_nodes(*self._to_build(nodes), memory, used, *splits, k, least, open_)

    def _build_from(self, first, nodes, where, to):
        living, positions, ranges = where
        return dense_builds.build_dense_nodes(
            *self._to_build(nodes), living.features, living.offsets, positions, ranges, ranges[0], first, *to
        )

    def held(self, packed):
        return self._cells, self._stride, self._bin_offsets, self._wide, self._acc

    def _to_build(self, nodes: NodeRows) -> tuple:
        """What kernels.dense_builds takes first: the block, the nodes, and memory to work in."""
        *of_block, wide, acc = self.held(nodes.packed.dtype)
        return *of_block, *nodes, wide, acc

    @property
    def _most_stored(self):
        return len(self._bin_offsets) - 1


class SparseBuilder(HistogramBuilder):
    """Of a block that is held as sparse rows and postings (data.block.SparseBlock)."""

    def __init__(self, indptr, bins, stride, posting_offsets, posting_rows, tilings, bin_offsets):
        super().__init__(bin_offsets)
        self._indptr, self._bins, self._stride = indptr, bins, stride
        self._postings = posting_offsets, posting_rows, tilings
        self._most = int(np.diff(indptr).max(initial=0))
        self._single = bool((np.diff(bin_offsets) == 1).all())  # each feature has one bin
        self._marks = np.zeros(self._n_bins // 64 + 1, np.uint64)
        self._values: np.ndarray | None = None  # of all the block's rows, all 0
        self._dirty = self._acc[:0]  # what of it is not all 0

    @property
    def _most_stored(self):
        return self._most

    def sum(self, node):
        indptr, bins, stride, *postings, _, rows, [span], [sums], packed, values, acc = self._to_build(node)
        total = Total(*sums[: len(Total._fields)].tolist())
        slots = acc[: (self._n_bins + N_NONE) << total.needs_pairs]
        node_builds.build_node(indptr, bins, stride, *postings, rows, span, sums, packed, values, slots)
        self._dirty = slots
        return NodeSums(slots[: self._n_bins << total.needs_pairs], total)

    def share_out(self, k, nodes, memory, used, splits, least, open_):
        return node_builds.share_nodes(*self._to_build(nodes), memory, used, *splits, k, least, open_)

    def _build_from(self, first, nodes, where, to):
        living, positions, ranges = where
        *of_block, acc = self._to_build(nodes)
        return node_builds.build_nodes(
            *of_block, living.features, living.offsets, positions, ranges, ranges[0], self._most, self._single, first,
            self._marks, acc, *to,
        )  # fmt: skip

    def _to_build(self, nodes: NodeRows) -> tuple:
        """What kernels.node_builds takes first: the block, the nodes, and memory to work in, all 0."""
        *of_block, values, acc = self.held(nodes.packed.dtype)
        return *of_block, *nodes, values, acc

    def held(self, packed):
        self._dirty.fill(0)
        self._dirty = self._acc[:0]
        if self._values is None or self._values.dtype != packed:
            self._values = np.zeros(len(self._indptr) - 1, packed)  # postings have rows of evaluation sets too
        return self._indptr, self._bins, self._stride, *self._postings, self._bin_offsets, self._values, self._acc

"""Knows histograms as sorted bin ids with integer sums; does not know messages, or where gradients come from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from psboost.boosting.living import LivingFeatures
from psboost.data.block import Block, DenseBlock
from psboost.errors import ProtocolError
from psboost.kernels import dense as dense_kernels
from psboost.kernels import histograms as kernels
from psboost.kernels import node_histograms as node_kernels
from psboost.kernels import open_nodes
from psboost.kernels.node_histograms import NodeHistogram

_FEW_BINS = 1 << 20  # so many slots, the hot ones side by side, are quick to add to
_WINDOW = 1 << 15  # slots that stay in a core's cache


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

    @staticmethod
    def empty(n_nodes: int) -> "Histograms":
        return Histograms(
            np.zeros(n_nodes + 1, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int64)
        )

    def node(self, i: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """bins, grads, hesses of node i."""
        part = slice(self.offsets[i], self.offsets[i + 1])
        return self.bins[part], self.grads[part], self.hesses[part]

    def restrict(self, begin: int, end: int) -> "Histograms":
        """The part with begin <= bin < end, its bins counted from begin."""
        return Histograms(*kernels.restrict(self.offsets, self.bins, self.grads, self.hesses, begin, end))

    @staticmethod
    def join(parts: list["Histograms"], first_bins: list[int]) -> "Histograms":
        """The histograms of the same nodes over ranges of bins that follow each other, range i from first_bins[i] on."""
        if len(parts) == 1:
            return parts[0]
        offsets = sum(part.offsets for part in parts)
        columns: list[list[np.ndarray]] = [[], [], []]
        for i in range(parts[0].n_nodes):
            for first, part in zip(first_bins, parts, strict=True):
                bins, grads, hesses = part.node(i)
                for column, entries in zip(columns, (bins + np.int32(first), grads, hesses), strict=True):
                    column.append(entries)
        return Histograms(offsets, *(_join(column, dtype) for column, dtype in zip(columns, _DTYPES, strict=True)))


_DTYPES = (np.int32, np.int64, np.int64)


def _join(arrays: list[np.ndarray], dtype) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.empty(0, dtype)


class Total(NamedTuple):
    """What a node's rows come to: grads, hesses and absolute grads, UNKNOWN if nobody knows."""

    grad: int
    hess: int
    size: int

    @property
    def needs_pairs(self) -> bool:
        """Whether the sum of some of the rows may be too wide to be packed."""
        return self.size < 0 or self.size >= kernels.GRADS_FIT or self.hess >= kernels.HESSES_FIT


class Sums(ABC):
    """The sums of one node over all bins of a range, or of those of a level that were built, one for each split.

    totals  int64 (n, 3): what the rows of each come to (Total)
    """

    totals: np.ndarray

    @abstractmethod
    def take(self, bin_offsets: np.ndarray, least: int, room: NodeHistogram) -> int:
        """Writes the histogram of the features whose hesses come to `least`, of the only node, to `room`; returns how many
        these are."""

    @abstractmethod
    def share_out(self, memory: NodeHistogram, used: np.ndarray, splits, k: int, least: int, nodes: np.ndarray) -> int:
        """Shares parents' histograms out from split k on (kernels.open_nodes.add_sums); returns the split to go on with."""


@dataclass(frozen=True)
class NodeSums(Sums):
    """The sums of one node, until the next node's are made.

    acc    int64: a packed slot or, if its total needs them, a grad and a hess for each bin (kernels.histograms)
    total  of all rows
    """

    acc: np.ndarray
    total: Total

    @property
    def pairs(self) -> bool:
        return self.total.needs_pairs

    @property
    def totals(self):
        return np.array([self.total], np.int64)

    def take(self, bin_offsets, least, room):
        return node_kernels.take(bin_offsets, self.acc, self.pairs, least, room)

    def share_out(self, memory, used, splits, k, least, nodes):
        return open_nodes.add_sums(memory, used, *splits, k, self.acc, self.totals[0], least, nodes)


@dataclass(frozen=True)
class ListedSums(Sums):
    """What the lists of the nodes that were built come to.

    entries  bins, grads, hesses of all lists
    lists    int64 (n, 3 for each list): kernels.node_histograms.NodeLists
    acc      all 0: as long as kernels.open_nodes.add_lists wants it
    """

    entries: list[np.ndarray]
    lists: np.ndarray
    totals: np.ndarray
    acc: np.ndarray

    def take(self, bin_offsets, least, room):
        [lists], pairs = self.lists, Total(*self.totals[0].tolist()).needs_pairs
        acc = self.acc if pairs else self.acc[: len(self.acc) // 2]
        n_features = node_kernels.take_lists(
            bin_offsets, node_kernels.NodeLists(*self.entries, lists), pairs, acc, least, room
        )
        if n_features < 0:
            raise ProtocolError("a histogram's sums are not part of its node's")
        return n_features

    def share_out(self, memory, used, splits, k, least, nodes):
        return open_nodes.add_lists(memory, used, *splits, k, *self.entries, self.lists, self.totals, self.acc, least, nodes)


class Spare:
    """Memory to work in, kept for the next time: new memory is slow to touch first."""

    def __init__(self):
        self._words = np.empty(0, np.uint64)

    def words(self, n: int) -> np.ndarray:
        """uint64, n of them or more, of any content."""
        if n > len(self._words):
            self._words = np.empty(n + n // 4, np.uint64)
        return self._words


class Entries:
    """Memory for the entries of lists of histograms, one behind the other; for their packed bytes, and to work in; kept for
    the next ones.

    arrays  bins, grads, hesses
    end     behind the last list
    """

    def __init__(self):
        self.arrays, self.end = [np.empty(0, dtype) for dtype in _DTYPES], 0
        self.spare, self.packed = Spare(), Spare()

    def room(self, at: int, n: int) -> list[np.ndarray]:
        """The arrays with room for n entries from `at` on; those before it stay."""
        if at + n > len(self.arrays[0]):
            for i, held in enumerate(self.arrays):
                self.arrays[i] = np.empty(max(at + n, 2 * len(held)), held.dtype)
                self.arrays[i][:at] = held[:at]
        return self.arrays

    def histograms(self, offsets: np.ndarray) -> Histograms:
        """What was written, at these offsets; until it is written over."""
        self.end = int(offsets[-1])
        return Histograms(offsets, *(held[: self.end] for held in self.arrays))


class _Accumulators:
    """Memory for a node's sums, packed or in pairs, all 0 until somebody adds to it."""

    def __init__(self, n_bins: int):
        self._n_bins = n_bins
        self._held: dict[bool, np.ndarray] = {}

    def of(self, pairs: bool) -> np.ndarray:
        if pairs not in self._held:
            self._held[pairs] = np.zeros(self._n_bins * (1 + pairs), np.int64)
        return self._held[pairs]


class HistogramBuilder(ABC):
    """Builds the histograms of one block's nodes, in accumulators that are kept between calls."""

    def __init__(self, bin_offsets: np.ndarray):
        """bin_offsets (int32): bins of a feature."""
        self._bin_offsets = bin_offsets
        self._n_bins = int(bin_offsets[-1])
        self._accs = _Accumulators(self._n_bins)
        self._entries: list[Entries] = []

    @staticmethod
    def of(block: Block) -> "HistogramBuilder":
        if isinstance(block, DenseBlock):
            return DenseBuilder(block.cells, block.stride, block.bin_offsets)
        return SparseBuilder(block.indptr, block.bins, block.posting_offsets, block.posting_rows, block.bin_offsets)

    @abstractmethod
    def sum(self, rows: np.ndarray, packed: np.ndarray) -> NodeSums:
        """The sums of the node that holds `rows` (int32), each row's grad and hess packed (kernels.packed_rows)."""

    def build(
        self, rows_of_nodes: list[np.ndarray], positions: list[int], living: list[LivingFeatures], edges: list[int],
        packed: np.ndarray,
    ) -> tuple[list["Histograms"], np.ndarray]:  # fmt: skip
        """Histograms of nodes over each of several ranges of features, and the nodes' totals.

        rows_of_nodes  int32, of each node
        positions      of each node, among the open ones
        living         of each range (edges[0] is the block's first feature)
        edges          ranges of features, edges[i] .. edges[i + 1]
        returns        of each range, its bins counted from its first one, until the next call; and each node's
                       Total (int64, n_nodes x 3)
        """
        first_bins = self._bin_offsets[np.array(edges) - edges[0]].tolist()
        self._entries += [Entries() for _ in range(len(living) - len(self._entries))]
        offsets = np.zeros((len(living), len(rows_of_nodes) + 1), np.int64)
        totals = np.zeros((len(rows_of_nodes), len(Total._fields)), np.int64)
        for i, rows in enumerate(rows_of_nodes):
            sums = self.sum(rows, packed)
            totals[i], marks = sums.total, self._mark(rows)
            most = len(rows) * self._most_stored
            for s, of_range in enumerate(living):
                at = int(offsets[s, i])
                room = self._entries[s].room(at, min(most, first_bins[s + 1] - first_bins[s]) + 1)
                what = of_range.of(positions[i]), edges[0], self._bin_offsets, sums.acc, sums.pairs
                if marks is None:
                    offsets[s, i + 1] = kernels.extract(*what, first_bins[s], at, *room)
                else:
                    offsets[s, i + 1] = kernels.extract_marked(*what, marks, first_bins[s], at, *room)
        return [entries.histograms(of_nodes) for entries, of_nodes in zip(self._entries, offsets, strict=False)], totals

    @staticmethod
    def _sum_rows(rows: np.ndarray, packed: np.ndarray) -> tuple[Total, int, int]:
        """What `rows` come to; the greatest absolute grad and hess of a row."""
        sums = np.zeros(5, np.int64)
        kernels.sum_packed(rows, packed, sums)
        *total, most_grad, most_hess = sums.tolist()
        return Total(*total), most_grad, most_hess

    def _mark(self, rows: np.ndarray) -> np.ndarray | None:
        """A bit for each bin that `rows` hold (uint64 words), where that is quicker than going through all bins."""
        return None

    @property
    @abstractmethod
    def _most_stored(self) -> int:
        """How many cells a row stores at most."""


class DenseBuilder(HistogramBuilder):
    """Of a block that is held as a small number for each cell (data.block.DenseBlock)."""

    def __init__(self, cells: np.ndarray, stride: int, bin_offsets: np.ndarray):
        super().__init__(bin_offsets)
        self._cells, self._stride = cells, stride
        self._wide = np.zeros((len(bin_offsets) - 1) * stride, np.int64)

    def sum(self, rows, packed):
        total, most_grad, most_hess = self._sum_rows(rows, packed)
        n_fit = len(rows)
        if total.needs_pairs:
            n_fit = min(kernels.GRADS_FIT // (most_grad + 1), kernels.HESSES_FIT // (most_hess + 1), len(rows) - 1)
        acc = self._accs.of(total.needs_pairs)
        acc.fill(0)
        dense_kernels.build_dense(self._cells, self._stride, self._bin_offsets, rows, packed, n_fit, self._wide, acc)
        return NodeSums(acc, total)

    @property
    def _most_stored(self):
        return len(self._bin_offsets) - 1


class SparseBuilder(HistogramBuilder):
    """Of a block that is held as sparse rows and postings (data.block.SparseBlock)."""

    def __init__(self, indptr, bins, posting_offsets, posting_rows, bin_offsets):
        super().__init__(bin_offsets)
        self._indptr, self._bins = indptr, bins
        self._posting_offsets, self._posting_rows = posting_offsets, posting_rows
        self._most = int(np.diff(indptr).max(initial=0))
        self._marks: np.ndarray | None = None
        self._dirty: tuple[np.ndarray, np.ndarray | None] | None = None

    @property
    def _most_stored(self):
        return self._most

    def sum(self, rows, packed):
        self._clear()
        total, _, _ = self._sum_rows(rows, packed)
        n_stored, pairs = self._about(rows), total.needs_pairs
        acc = self._accs.of(pairs)
        if self._is_by_bins(n_stored):
            values = self._values_of_all(rows, packed)
            kernels.build_by_bins(self._posting_offsets, self._posting_rows, values, pairs, acc)
            self._dirty = acc, None
        else:
            by_rows = kernels.build_pairs if pairs else kernels.build
            by_rows(self._indptr, self._bins, rows, packed, acc)
            few = 16 * n_stored < self._n_bins
            self._dirty = acc, rows.copy() if few else None  # by the next call the rows may have moved
        return NodeSums(acc, total)

    def _about(self, rows: np.ndarray) -> int:
        """About how many values `rows` store."""
        return len(rows) * len(self._bins) // max(1, len(self._indptr) - 1)

    def _mark(self, rows):
        if 2 * self._about(rows) >= self._n_bins:
            return None
        if self._marks is None:
            self._marks = np.empty(self._n_bins // 64 + 1, np.uint64)
        self._marks.fill(0)
        kernels.mark_bins(self._indptr, self._bins, rows, self._marks)
        return self._marks

    def _is_by_bins(self, n_stored: int) -> bool:
        """Whether it is quicker to go through all bins' rows than through a node's rows' n_stored bins.

        The first reads the sums of all rows, which mostly are in the cache, in about 1 ns a value; the second adds to
        slots all over the accumulator, in the same time if these are few, and else in about four times as much.
        """
        return n_stored * (1 if self._n_bins < _FEW_BINS else 4) >= len(self._bins)

    def _values_of_all(self, rows: np.ndarray, packed: np.ndarray) -> np.ndarray:
        """`packed` for every row of the block, 0 for those not in `rows`."""
        n_rows = len(self._indptr) - 1
        if len(rows) == n_rows:
            return packed
        values = np.zeros(n_rows, packed.dtype)
        values[rows] = packed[rows]
        return values

    def _clear(self) -> None:
        if self._dirty is None:
            return
        acc, rows = self._dirty
        if rows is None:
            acc.fill(0)
        else:
            kernels.clear(self._indptr, self._bins, rows, len(acc) // self._n_bins, acc)
        self._dirty = None


class HistogramMerger:
    """Adds the histograms of row shards, and puts those of feature shards side by side.

    entries  where all of them are to be written
    """

    def __init__(self, bin_offsets: np.ndarray):
        """bin_offsets (int32): bins of a feature."""
        self.entries = Entries()
        self._acc = np.zeros(2 * max(_WINDOW, int(np.diff(bin_offsets).max(initial=0))), np.int64)

    def sum(self, parts: list[tuple[int, Histograms]], totals: np.ndarray) -> ListedSums:
        """The sums of nodes out of several histograms of them, each with the bin that its bins are counted from.

        totals  int64 (n, 3): the Total of each node's rows in all row shards
        """
        lists = np.empty((len(totals), len(parts), 3), np.int64)
        for i, (first_bin, part) in enumerate(parts):
            lists[:, i, 0], lists[:, i, 1], lists[:, i, 2] = part.offsets[:-1], part.offsets[1:], first_bin
        return ListedSums(self.entries.arrays, lists.reshape(len(totals), -1), totals, self._acc)

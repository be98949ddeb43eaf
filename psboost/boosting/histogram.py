"""Knows histograms as sorted bin ids with integer sums; does not know messages, or where gradients come from."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from psboost.errors import ProtocolError
from psboost.kernels import histograms as kernels
from psboost.kernels import node_histograms as node_kernels
from psboost.kernels import open_nodes
from psboost.kernels.node_histograms import NodeHistogram

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
        return Histograms(offsets, *(_join(column, dtype) for column, dtype in zip(columns, DTYPES, strict=True)))


DTYPES = (np.int32, np.int64, np.int64)  # of bins, grads, hesses


def _join(arrays: list[np.ndarray], dtype) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.empty(0, dtype)


class Total(NamedTuple):
    """What a node's rows come to: grads, hesses, and absolute grads, which are UNKNOWN where nobody knows them."""

    grad: int
    hess: int
    size: int

    @property
    def needs_pairs(self) -> bool:
        """Whether the sum of some of the rows may be too wide to be packed."""
        return open_nodes.needs_pairs(self.size, self.hess)


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

    acc    int64: a packed slot or, if its total needs them, a grad and a hess for each bin (kernels.slots)
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
        return open_nodes.add_sums(memory, used, *splits, k, self.acc, self.totals[0], least, False, nodes)


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
        self.arrays, self.end = [np.empty(0, dtype) for dtype in DTYPES], 0
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
        return Histograms(offsets, *[held[: self.end] for held in self.arrays])


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

"""Knows how the histogram of a root is made without twins, and what they get; does not know messages (kernels/twins.py)."""

from dataclasses import dataclass

import numpy as np

from psboost.boosting.histogram import Entries, Histograms, Total
from psboost.data.block import SparseBlock, tilings_of
from psboost.errors import ProtocolError
from psboost.kernels import twins as kernels


def number_elders(block: SparseBlock, first_bin: int, bins: np.ndarray) -> np.ndarray:
    """int32: of each of `bins` (int32, ascending, counted from first_bin) the number of its elder."""
    numbers, slots = np.empty(len(bins), np.int32), np.zeros(1 << int(2 * len(bins)).bit_length(), np.int32)
    kernels.find_twins(block.posting_offsets, block.posting_rows, first_bin, bins, slots, numbers)
    return numbers


def _elders(numbers: np.ndarray) -> np.ndarray:
    """int64: where each elder stands; ProtocolError for numbers that number_elders does not give."""
    places = np.empty(len(numbers), np.int64)
    n_elders = kernels.find_elders(numbers.astype(np.int64), places)
    if n_elders < 0:
        raise ProtocolError("numbers of twins that do not go up one by one")
    return places[:n_elders].copy()


class Elders:
    """Builds the root's histogram of the bins of a range that are no twins."""

    def __init__(self, block: SparseBlock, first_bin: int, bins: np.ndarray, numbers: np.ndarray, n_train: int):
        """bins, numbers: as number_elders has them. The rows that count come first, n_train of them."""
        self._bins = bins[_elders(numbers)]
        n_rows = np.diff(block.posting_offsets)[first_bin + self._bins].sum()
        self._offsets, rows = np.empty(len(self._bins) + 1, np.int64), np.empty(n_rows + 1, np.int32)
        n_rows = kernels.copy_postings(
            block.posting_offsets, block.posting_rows, first_bin, self._bins, n_train, self._offsets, rows
        )
        self._rows = rows[:n_rows].copy()
        self._tilings = tilings_of(self._offsets, self._rows, n_train, block.rows_ascend)
        self._sums = [np.empty(len(self._bins), np.int64) for _ in ("grads", "hesses")]
        self._acc = np.empty(2 * len(self._bins), np.int64)

    def sum(self, packed: np.ndarray, total: Total) -> Histograms:
        """Of the rows' grads and hesses, packed (kernels.packed_rows), which come to `total`; until the next call."""
        kernels.sum_bins(
            self._offsets, self._rows, self._tilings, packed, total.needs_pairs, self._acc, *self._sums
        )
        return Histograms(np.array([0, len(self._bins)]), self._bins, *self._sums)


@dataclass(frozen=True)
class Twins:
    """What is left out of the histogram of a root.

    bins     int32: of the whole histogram
    numbers  int32: of each bin the number of its elder
    elders   int32: the bins that are no twins
    """

    bins: np.ndarray
    numbers: np.ndarray
    elders: np.ndarray

    @staticmethod
    def of(whole: Histograms, numbers: np.ndarray) -> "Twins":
        """numbers: of the bins of a root. ProtocolError for more nodes, or numbers that number_elders does not give."""
        if whole.n_nodes != 1 or len(whole.node(0)[0]) != len(numbers):
            raise ProtocolError(f"numbers of twins ({len(numbers)}) for another histogram than a root's")
        bins = whole.node(0)[0].copy()
        return Twins(bins, numbers.astype(np.int32), bins[_elders(numbers)])

    def spread(self, sent: Histograms, entries: Entries) -> Histograms:
        """The whole histogram, behind the other `entries`, of one without twins. ProtocolError if it is of other bins."""
        if sent.n_nodes != 1 or not np.array_equal(sent.node(0)[0], self.elders):
            raise ProtocolError("a root's histogram without twins, of other bins than before")
        begin, n_bins = entries.end, len(self.bins)
        bins, grads, hesses = (held[begin : begin + n_bins] for held in entries.room(begin, n_bins))
        bins[:] = self.bins
        kernels.spread(self.numbers, sent.grads, sent.hesses, grads, hesses)
        return entries.histograms(begin + np.array([0, n_bins]))

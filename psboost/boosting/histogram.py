"""Knows histograms as sorted bin ids with integer sums; does not know messages, or where gradients come from."""

from dataclasses import dataclass

import numpy as np

from psboost.kernels import histograms as kernels


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
        edges = [
            (low + np.searchsorted(bins, begin), low + np.searchsorted(bins, end))
            for low, (bins, _, _) in zip(self.offsets, (self.node(i) for i in range(self.n_nodes)), strict=False)
        ]
        offsets = np.zeros(self.n_nodes + 1, np.int64)
        np.cumsum([b - a for a, b in edges], out=offsets[1:])
        parts = [slice(a, b) for a, b in edges]
        return Histograms(
            offsets,
            _join([self.bins[part] for part in parts], np.int32) - np.int32(begin),
            _join([self.grads[part] for part in parts], np.int64),
            _join([self.hesses[part] for part in parts], np.int64),
        )

    def __add__(self, other: "Histograms") -> "Histograms":
        """Node by node the sum of both."""
        size = len(self.bins) + len(other.bins)
        offsets, bins = np.empty(self.n_nodes + 1, np.int64), np.empty(size, np.int32)
        grads, hesses = np.empty(size, np.int64), np.empty(size, np.int64)
        kernels.merge(
            self.offsets, self.bins, self.grads, self.hesses, other.offsets, other.bins, other.grads, other.hesses,
            offsets, bins, grads, hesses,
        )  # fmt: skip
        end = offsets[-1]
        return Histograms(offsets, bins[:end], grads[:end], hesses[:end])


def side_by_side(parts: list[Histograms], bin_begins: np.ndarray) -> Histograms:
    """One set of histograms over several ranges: bins of part k are moved up by bin_begins[k]; ranges ascend."""
    if len(parts) == 1:
        return parts[0]
    n_nodes = parts[0].n_nodes
    pieces: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    offsets = np.zeros(n_nodes + 1, np.int64)
    for i in range(n_nodes):
        for part, begin in zip(parts, bin_begins, strict=True):
            bins, grads, hesses = part.node(i)
            pieces.append((bins + np.int32(begin), grads, hesses))
            offsets[i + 1] += len(bins)
    return Histograms(
        np.cumsum(offsets),
        _join([p[0] for p in pieces], np.int32),
        _join([p[1] for p in pieces], np.int64),
        _join([p[2] for p in pieces], np.int64),
    )


def _join(arrays: list[np.ndarray], dtype) -> np.ndarray:
    return np.concatenate(arrays).astype(dtype, copy=False) if arrays else np.empty(0, dtype)


class HistogramBuilder:
    """Builds the histograms of one block's nodes, in one accumulator that is kept between calls."""

    def __init__(self, indptr: np.ndarray, bins: np.ndarray, bin_offsets: np.ndarray, rows_per_sum: int):
        """`indptr` (int64) and `bins` (int32): CSR rows of bin ids; `bin_offsets` (int32): bins of a feature."""
        self._indptr, self._bins, self._bin_offsets = indptr, bins, bin_offsets
        self._rows_per_sum = rows_per_sum
        self._n_bins = int(bin_offsets[-1])
        self._acc = np.zeros(self._n_bins, np.int64)
        self._wide: np.ndarray | None = None

    def build(self, rows_of_nodes: list[np.ndarray], living: list[np.ndarray], packed: np.ndarray) -> Histograms:
        """Histograms of nodes, given each one's rows (int32) and living features (int32 ascending)."""
        sizes = [self._most_bins(rows, features) for rows, features in zip(rows_of_nodes, living, strict=True)]
        bins = np.empty(sum(sizes), np.int32)
        grads, hesses = np.empty(len(bins), np.int64), np.empty(len(bins), np.int64)
        offsets = np.zeros(len(rows_of_nodes) + 1, np.int64)
        at = 0
        for i, (rows, features) in enumerate(zip(rows_of_nodes, living, strict=True)):
            at = self._build_node(rows, features, packed, at, bins, grads, hesses)
            offsets[i + 1] = at
        return Histograms(offsets, bins[:at], grads[:at], hesses[:at])

    def _n_stored(self, rows: np.ndarray) -> int:
        return int((self._indptr[rows + 1] - self._indptr[rows]).sum())

    def _most_bins(self, rows: np.ndarray, features: np.ndarray) -> int:
        n_bins = int((self._bin_offsets[features + 1] - self._bin_offsets[features]).sum())
        return min(n_bins, self._n_stored(rows))

    def _build_node(self, rows, features, packed, at, bins, grads, hesses) -> int:
        if len(rows) <= self._rows_per_sum:
            kernels.build(self._indptr, self._bins, rows, packed, self._acc)
            at = kernels.extract(features, self._bin_offsets, self._acc, at, bins, grads, hesses)
            if 4 * self._n_stored(rows) < self._n_bins:
                kernels.clear(self._indptr, self._bins, rows, self._acc)
            else:
                self._acc.fill(0)
            return at
        if self._wide is None:
            self._wide = np.zeros(2 * self._n_bins, np.int64)
        if self._rows_per_sum < 1024:
            kernels.build_wide(self._indptr, self._bins, rows, packed, self._wide)
        else:
            for begin in range(0, len(rows), self._rows_per_sum):
                part = rows[begin : begin + self._rows_per_sum]
                kernels.build(self._indptr, self._bins, part, packed, self._acc)
                kernels.widen(self._acc, self._wide)
        at = kernels.extract_wide(features, self._bin_offsets, self._wide, at, bins, grads, hesses)
        self._wide.fill(0)
        return at

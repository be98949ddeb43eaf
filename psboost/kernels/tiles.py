"""Knows the rows of frequent bins by tiles, stretches of rows whose gradients are copied near; does not know blocks."""

from typing import NamedTuple

import numpy as np

from psboost.kernels.ascending import first_from
from psboost.kernels.compile import IN, OUT, boolean, inline, int32, int64, kernel, kernel_for, types, uint16, uint64, void
from psboost.kernels.histograms import build_by_bins
from psboost.kernels.packed_rows import WIDTHS, as_slot, grad_and_hess
from psboost.kernels.slots import LOW, write

_1, _2 = uint64(1), uint64(2)


class Tiles(NamedTuple):
    """Tile t has rows t * size .. (t + 1) * size.

    size    up to 2^16 - 1
    least   bins of so many rows and more are in these tiles, or in smaller ones
    bins    int32 (n): those that are in these
    counts  uint16 (n_tiles * n): how many rows of each tile each of them has, those of tile 0 first
    rows    uint16: of each tile and bin, in this order, counted from the tile's first row
    """

    size: int
    least: int
    bins: np.ndarray
    counts: np.ndarray
    rows: np.ndarray


_TILES = types.NamedTuple((int64, int64, OUT[int32], OUT[uint16], OUT[uint16]), Tiles)  # arrays as numpy makes them
TILINGS = types.UniTuple(_TILES, 2)  # of two sizes


@kernel(void(IN[int64], IN[int32], int64, IN[int32], OUT[uint16]))
def count_rows_of_tiles(posting_offsets, posting_rows, size, bins, counts):
    """`counts` (OUT) of `bins`, whose rows ascend."""
    for i in range(len(bins)):
        begin, end = posting_offsets[bins[i]], posting_offsets[bins[i] + 1]
        for tile in range(len(counts) // len(bins)):
            behind = first_from((tile + 1) * size, posting_rows, begin, end)
            counts[tile * len(bins) + i] = behind - begin
            begin = behind


@kernel(void(IN[int64], IN[int32], int64, IN[int32], IN[uint16], IN[int64], OUT[uint16]))
def fill_tiles(posting_offsets, posting_rows, size, bins, counts, begins, rows):
    """`rows` (OUT); those of each tile and bin begin at `begins`."""
    for i in range(len(bins)):
        k = uint64(posting_offsets[bins[i]])
        for tile in range(len(counts) // len(bins)):
            at, n_rows = uint64(begins[tile * len(bins) + i]), uint64(counts[tile * len(bins) + i])
            for j in range(n_rows):
                rows[at + j] = posting_rows[k + j] - tile * size
            k += n_rows


@inline
def _sum(own, rows, begin, end, fits):
    """grads, hesses of rows[begin:end] of a tile, whose rows' slots are `own`; fits: all of them come to one slot."""
    grads, hesses, slots = int64(0), int64(0), int64(0)
    if fits:
        for k in range(begin, end):
            slots += own[uint64(rows[k])]
        return slots >> int64(32), slots & int64(LOW)
    for k in range(begin, end):
        grad, hess = grad_and_hess(own, uint64(rows[k]))
        grads += grad
        hesses += hess
    return grads, hesses


@kernel_for(WIDTHS, signature=lambda width: void(IN[int64], IN[int32], TILINGS, IN[width], boolean, OUT[int64]))
def build_by_tiles(posting_offsets, posting_rows, tilings, packed, pairs, acc):
    """Sets every bin of `acc`, packed or in pairs, to the sums over its rows (kernels.histograms.build_by_bins).

    tilings  small tiles first
    """
    build_by_bins(posting_offsets, posting_rows, tilings[-1].least, packed, pairs, acc)
    fits = packed.itemsize == 4  # 2^16 rows of 16 bits each
    for tiles in tilings:
        n_bins, at, begin = uint64(len(tiles.bins)), uint64(0), uint64(0)
        sums, own, first = np.zeros(2 * len(tiles.bins), np.int64), np.empty(tiles.size, np.int64), 0
        while at < uint64(len(tiles.counts)):
            for row in range(min(tiles.size, len(packed) - first)):
                own[row] = as_slot(packed, first + row)
            for i in range(n_bins):
                end = begin + uint64(tiles.counts[at])
                grads, hesses = _sum(own, tiles.rows, begin, end, fits)
                sums[_2 * i] += grads
                sums[_2 * i + _1] += hesses
                at, begin = at + _1, end
            first += tiles.size
        for i in range(n_bins):
            write(sums[_2 * i], sums[_2 * i + _1], pairs, uint64(tiles.bins[i]), acc)

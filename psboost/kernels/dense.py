"""Knows blocks of which most cells are stored, as one small number for each cell; does not know sparse rows or gains.

    cells   row after row: cells[row * n_features + f] is the bin, counted within feature f, that the row's cell falls in,
            or another number, in or behind them, where none is stored
    columns the same cells, (n_features, n_rows): those of a feature side by side
    stride  more than the greatest cell, and BYTE_STRIDE where cells are bytes: a feature's sums lie at f * stride + cell of
            a wide accumulator
"""

import numpy as np
from numba.extending import overload

from psboost.kernels.binning import SEARCHED, find_bins, missing_bin
from psboost.kernels.compile import (
    IN,
    IN2,
    OUT,
    OUT2,
    boolean,
    float32,
    inline,
    int32,
    int64,
    kernel_for,
    uint8,
    uint16,
    uint64,
    void,
)
from psboost.kernels.packed_rows import WIDTHS, as_slot, grad_and_hess
from psboost.kernels.prefetch import prefetch, prefetch_far
from psboost.kernels.routing import (
    OWN_BEGIN,
    OWN_END,
    OWN_FEATURE,
    OWN_FIRST,
    OWN_LAST,
    OWN_NAN,
    OWN_PLACE,
    leaving_of_block,
)
from psboost.kernels.words import are_within, lowest_one

# A constant: with a variable, a cell takes a third more time. Not 256: of features of a few bins, sums a multiple of 2 KiB
# apart would compete for the same few lines of the cache.
BYTE_STRIDE = 264
CODES = {"dense": uint8, "seldom": uint16}  # of cells
_0, _1, _2, _4, _6, _8, _63, _64 = (uint64(k) for k in (0, 1, 2, 4, 6, 8, 63, 64))
_LOW = 0xFFFFFFFF
# How many rows ahead a row's cells are asked for, into the second cache and the nearest one: a node's rows are far apart.
_FAR_AHEAD, _AHEAD = uint64(32), uint64(4)
_PAIRS_AHEAD = uint64(32)  # the same where cells are added to pairs, into the nearest cache at once
_LINE = uint64(64)  # bytes of a cache's line
_ROWS_AT_ONCE = uint64(2048)
# So many features' sums, where cells are bytes, stay in a core's second cache: more of them are added by turns.
_FEATURES_AT_ONCE, _PAIRS_AT_ONCE = uint64(128), uint64(64)
_FEW = 1024  # rows: if no more fit one slot, moving what they come to takes longer than they do


@kernel_for(
    CODES,
    signature=lambda code: void(
        IN[int64], IN[int32], IN[float32], IN[int64], IN[float32], IN[int32], boolean, IN[int32], int64, OUT2[code],
        OUT[int64],
    ),
)  # fmt: skip
def fill_columns(
    offsets, rows, values, cut_offsets, cuts, bin_offsets, keep_nan, blanks, first_feature, columns, counts
):
    """Writes columns[first_feature ..] (n_features, n_rows), from columns of values; kernels.binning.bin_columns says which
    of these are left out: their cells are the feature's one of `blanks`. `counts` (OUT): how many of each column are not.
    What does not fit a cell is cut off."""
    found = np.empty(SEARCHED, np.int32)
    for f in range(len(offsets) - 1):
        column, n_bins = columns[first_feature + f], int64(bin_offsets[f + 1] - bin_offsets[f])
        first_cut, end_cut = cut_offsets[f], cut_offsets[f + 1]
        column[:] = blanks[f]
        counts[f] = 0
        if first_cut == end_cut:
            continue
        nan_bin = missing_bin(n_bins, end_cut - first_cut, keep_nan)
        for first in range(offsets[f], offsets[f + 1], SEARCHED):
            last = min(first + SEARCHED, offsets[f + 1])
            find_bins(cuts, first_cut, end_cut, values, first, last, nan_bin, found)
            for k in range(last - first):
                if found[k] >= 0:
                    column[rows[first + k]] = found[k]
                    counts[f] += 1


@kernel_for(CODES, signature=lambda code: void(IN2[code], OUT[code]))
def interleave(columns, cells):
    """Writes the columns (n_features, n_rows) to `cells`, row after row; some rows at once, which stay in the cache."""
    n_features, n_rows = uint64(columns.shape[0]), uint64(columns.shape[1])
    for begin in range(uint64(0), n_rows, _ROWS_AT_ONCE):
        end = min(begin + _ROWS_AT_ONCE, n_rows)
        for feature in range(n_features):
            at = begin * n_features + feature
            for row in range(begin, end):
                cells[at] = columns[feature, row]
                at += n_features


@inline
def _add_pairs(cells, n_features, bin_offsets, rows, first, last, packed, acc):
    """`build_dense` of the features first .. last straight into pairs, for values too wide to be added while packed."""
    n_rows = uint64(len(rows))
    for i in range(n_rows):
        if i + _PAIRS_AHEAD < n_rows:
            ahead = uint64(rows[i + _PAIRS_AHEAD])
            prefetch(cells, ahead * n_features + first)
            prefetch(cells, ahead * n_features + last - _1)
        row = uint64(rows[i])
        grad, hess = grad_and_hess(packed, i)
        for f in range(first, last):
            cell = int64(cells[row * n_features + f])
            if cell < bin_offsets[f + _1] - bin_offsets[f]:
                slot = _2 * uint64(bin_offsets[f] + cell)
                acc[slot] += grad
                acc[slot + _1] += hess


@inline
def _move(bin_offsets, stride, first, last, pairs, wide, acc):
    """Adds what the wide accumulator has of the features first .. last to `acc`, and sets it to 0."""
    for f in range(first, last):
        slot = f * stride
        for b in range(uint64(bin_offsets[f]), uint64(bin_offsets[f + uint64(1)])):
            value = wide[slot]
            if pairs:
                acc[uint64(2) * b] += value >> int64(32)
                acc[uint64(2) * b + uint64(1)] += value & int64(_LOW)
            else:
                acc[b] += value
            wide[slot] = 0
            slot += uint64(1)
        if slot < (f + uint64(1)) * stride:
            wide[slot] = 0  # of the cells that are not stored


def _stride_and_line(cells, stride):
    """The stride, and how many cells lie in a cache's line: constants where they are bytes."""
    return uint64(stride), _LINE // uint64(cells.itemsize)


@overload(_stride_and_line, jit_options={"forceinline": True})
def _compiled_stride_and_line(cells, stride):
    if cells.dtype == uint8:
        return lambda cells, stride: (uint64(BYTE_STRIDE), _LINE)
    return lambda cells, stride: (uint64(stride), _LINE // uint64(2))


@kernel_for(
    CODES, WIDTHS,
    signature=lambda code, width: void(
        IN[code], int64, IN[int32], IN[int32], IN[width], boolean, int64, OUT[int64], OUT[int64]
    ),
)  # fmt: skip
def build_dense(cells, stride, bin_offsets, rows, packed, pairs, n_fit, wide, acc):
    """acc[b] += packed[i] for every bin b that row rows[i] holds (kernels.slots says what slots and pairs are).

    pairs  whether acc is in pairs
    n_fit  so many rows' sums certainly fit one slot
    wide   n_features * stride slots, all 0 before and after  # OUT
    """
    n_features, n_rows = uint64(len(bin_offsets) - 1), uint64(len(rows))
    width, per_line = _stride_and_line(cells, stride)
    by_pairs = pairs and n_fit < _FEW
    at_once = _PAIRS_AT_ONCE if by_pairs else _FEATURES_AT_ONCE
    for first in range(_0, n_features, at_once):
        last = min(first + at_once, n_features)
        n_here = last - first
        if by_pairs:
            _add_pairs(cells, n_features, bin_offsets, rows, first, last, packed, acc)
            continue
        n_between = (n_here - _1) // per_line  # lines of a row's cells, between those of its first and its last
        for begin in range(_0, n_rows, uint64(n_fit)):
            end = min(begin + uint64(n_fit), n_rows)
            # Not in functions of their own: even inlined, these take up to five times as long.
            for i in range(begin, end):
                if i + _FAR_AHEAD < end:
                    ahead = uint64(rows[i + _FAR_AHEAD]) * n_features + first
                    prefetch_far(cells, ahead)
                    prefetch_far(cells, ahead + n_here - _1)
                    for line in range(n_between):
                        prefetch_far(cells, ahead + (line + _1) * per_line)
                if i + _AHEAD < end:
                    ahead = uint64(rows[i + _AHEAD]) * n_features + first
                    prefetch(cells, ahead)
                    prefetch(cells, ahead + n_here - _1)
                    for line in range(n_between):
                        prefetch(cells, ahead + (line + _1) * per_line)
                row = uint64(rows[i])
                value, at, slot = as_slot(packed, i), row * n_features + first, first * width
                behind = at + n_here
                # What eights leave is added without a loop: one over 14 or 15 cells ends where some processors never expect
                # it, which takes longer than all of them.
                while at + _8 <= behind:
                    for k in range(_8):
                        wide[slot + uint64(cells[at + k])] += value
                        slot += width
                    at += _8
                if n_here & _4:
                    for k in range(_4):
                        wide[slot + uint64(cells[at + k])] += value
                        slot += width
                    at += _4
                if n_here & _2:
                    for k in range(_2):
                        wide[slot + uint64(cells[at + k])] += value
                        slot += width
                    at += _2
                if n_here & _1:
                    wide[slot + uint64(cells[at])] += value
            _move(bin_offsets, width, first, last, pairs, wide, acc)


@inline
def _leaves(column, row, begin, end, other):
    cell = int64(column[row])
    return uint64(((cell >= begin) & (cell < end)) | (cell == other))


@kernel_for(CODES, signature=lambda code: void(IN2[code], IN2[int64], int64, int64, IN2[uint64], OUT[uint64]))
def clear_bits_dense(columns, leaving, first_row, last_row, members, bits):
    """Clears the bit of every member of the rows first_row .. last_row whose cell leaves, for each of `leaving`
    (kernels.routing) whose rows are bits; columns (n_features, n_rows). first_row is a multiple of 64, and so is last_row
    but for the last row.
    """
    for k in range(len(leaving)):
        column, place = columns[leaving[k, OWN_FEATURE]], uint64(leaving[k, OWN_PLACE])
        begin, end, other = leaving[k, OWN_FIRST], leaving[k, OWN_LAST], leaving[k, OWN_NAN]
        first, last, alone = begin, end - 1, other
        if first > last:  # of no bins, or no other cell, the one stands for both
            first = last = other
        if alone < 0:
            alone = first
        if alone < 0:
            continue
        for w in range(uint64(first_row) >> _6, (uint64(last_row) + _63) >> _6):
            word, base, away = members[place, w], w << _6, _0
            if base + _64 <= uint64(len(column)):
                if word != _0:
                    away = are_within(column, base, uint64(first), uint64(last), uint64(alone)) & word
            else:
                while word != _0:
                    bit = lowest_one(word)
                    away |= _leaves(column, base + bit, begin, end, other) << bit
                    word &= word - _1
            bits[w] &= ~away


@kernel_for(CODES, signature=lambda code: void(IN2[code], IN[int32], IN2[int64], OUT[uint64]))
def clear_bits_of_lists_dense(columns, rows, lists, bits):
    """The same for those `rows` of each of `lists`, of `leaving` whose rows are a list."""
    for s in range(len(lists)):
        column = columns[lists[s, OWN_FEATURE]]
        begin, end, nan_bin = lists[s, OWN_FIRST], lists[s, OWN_LAST], lists[s, OWN_NAN]
        low, high = lists[s, OWN_BEGIN], lists[s, OWN_END]
        for i in range(uint64(low), uint64(high)):
            row = uint64(rows[i])
            bits[row >> _6] &= ~(_leaves(column, row, begin, end, nan_bin) << (row & _63))


@kernel_for(
    CODES,
    signature=lambda code: boolean(
        IN2[code], IN[int32], IN[int32], IN2[int32], int64, int64, int64, int64, IN2[uint64], IN[int32], IN2[int64],
        OUT[uint64],
    ),
)  # fmt: skip
def clear_by_splits_dense(
    columns, bin_offsets, n_cuts, splits, shard, first, first_row, last_row, members, rows, held, bits
):
    """Clears the bits of the rows that leave by those of `splits` that are by the block's features, as
    kernels.routing.clear_by_splits does."""
    are_there, large, lists = leaving_of_block(splits, shard, first, bin_offsets, n_cuts, held)
    clear_bits_dense(columns, large, first_row, last_row, members, bits)
    clear_bits_of_lists_dense(columns, rows, lists, bits)
    return are_there

"""Knows which rows leave the default children of their nodes, as bits; does not know splits' gains or messages.

A bitvector holds one bit for each row of a row shard, bit r % 64 of word r // 64; 1: the row goes to its node's default
child, 0: a stored value sends it to the other one (QuickScorer, default first).

Which rows have a bin is in postings and, of frequent bins, in bitmaps too (O'Neil, "Model 204 Architecture and Performance",
1987), which say so of 64 rows at once, or of any one:

    posting_offsets, posting_rows, rows_ascend   as data.block.SparseBlock has them
    bitmap_of_bin   int32 (n_bins): its number, -1: none
    bitmaps         uint64 (n, n_words): bit r % 64 of word r // 64 of each: whether row r has the bin
"""

import numpy as np

from psboost.kernels.ascending import first_from
from psboost.kernels.compile import (
    IN,
    IN2,
    OUT,
    OUT2,
    boolean,
    inline,
    int32,
    int64,
    kernel,
    kernel_for,
    types,
    uint64,
    void,
)
from psboost.kernels.members import BEGIN, END, PLACE
from psboost.kernels.prefetch import prefetch
from psboost.kernels.row_bins import ROWS, bins_of
from psboost.kernels.splits import BIN, DEFAULT_LEFT, LOCAL, NODE, SHARD, UNSTORED_LEFT

_SCANNED = 64  # so many rows of a bin are gone through sooner than searched
_ASKED, _ROWS_PER_LINE = 1024, 16  # so many rows of a bin are asked for ahead, a cache line at a time
_FEW_BINS = 24  # and so many bins of a row
_PLACE_AHEAD, _BINS_AHEAD = uint64(32), uint64(16)  # rows: a node's are far apart
# To go through one row's few bins, one row's many bins, and on to another bin, takes as long as so many rows of a bin do.
_POSTED, _POSTED_LONG, _A_BIN = 32, 96, 16
_0, _1, _2, _4, _6, _63 = (uint64(k) for k in (0, 1, 2, 4, 6, 63))

# What leaves the default child of a split's node (int64, one a row): where the node's rows stand, as `held` says it
# (kernels.members); which bins of stored values: first .. last, counted within the feature, and one more, -1 for none; and
# the feature.
OWN_BEGIN, OWN_END, OWN_FIRST, OWN_LAST, OWN_NAN, OWN_FEATURE, N_OWN = range(7)
OWN_PLACE = OWN_BEGIN


@kernel(types.UniTuple(int64, 2)(IN2[int32], int64, int64, int64, IN[int32], IN[int32], IN2[int64], OUT2[int64]))
def find_leaving(splits, shard, first, last, bin_offsets, n_cuts, held, leaving):
    """What leaves by those of `splits` (kernels.splits) that are by features first .. last of the feature shard; returns how
    many of these are of nodes whose rows are bits, which come first, and how many of lists, which come last; -1 for both if
    one is by a bin that its feature does not have.

    bin_offsets, n_cuts  of these features: where their bins begin; how many of them are numeric
    held                 the rows of all nodes
    leaving              with room for all splits; features count from `first`  # OUT
    """
    n_large, n_small = 0, 0
    for s in range(len(splits)):
        if splits[s, SHARD] != shard or splits[s, LOCAL] < first or splits[s, LOCAL] >= last:
            continue
        feature, edge = int64(splits[s, LOCAL]) - first, int64(splits[s, BIN]) + 1  # the first bin that goes right
        if edge < 1 or edge > n_cuts[feature]:
            return -1, -1
        n_bins, unstored_left = bin_offsets[feature + 1] - bin_offsets[feature], splits[s, UNSTORED_LEFT] != 0
        nan_leaves = n_bins > n_cuts[feature] and (splits[s, DEFAULT_LEFT] != 0) != unstored_left
        node = splits[s, NODE]
        if held[node, PLACE] >= 0:
            k = n_large
            n_large += 1
            leaving[k, OWN_PLACE], leaving[k, OWN_END] = held[node, PLACE], 0
        else:
            n_small += 1
            k = len(splits) - n_small
            leaving[k, OWN_BEGIN], leaving[k, OWN_END] = held[node, BEGIN], held[node, END]
        leaving[k, OWN_FIRST] = edge if unstored_left else int64(0)
        leaving[k, OWN_LAST] = int64(n_cuts[feature]) if unstored_left else edge
        leaving[k, OWN_NAN] = int64(n_cuts[feature]) if nan_leaves else int64(-1)
        leaving[k, OWN_FEATURE] = feature
    return n_large, n_small


@inline
def leaving_of_block(splits, shard, first, bin_offsets, n_cuts, held):
    """What leaves by those of `splits` that are by a block's features, the first of which is feature `first` of the shard
    (find_leaving): whether all are by bins that it has; of nodes whose rows are bits; of those whose rows are lists."""
    leaving = np.empty((len(splits), N_OWN), np.int64)
    n_large, n_small = find_leaving(splits, shard, first, first + len(n_cuts), bin_offsets, n_cuts, held, leaving)
    return n_large >= 0, leaving[: max(0, n_large)], leaving[len(leaving) - max(0, n_small) :]


@inline
def _clear(row, place, members, bits):
    """Clears a row's bit if it is a member. No branch: which rows are is not to be guessed."""
    bits[row >> _6] &= ~(members[place, row >> _6] & (_1 << (row & _63)))


@inline
def _clear_rows(rows, begin, end, place, members, bits):
    """Clears the bits of all these rows that are members: in four places by turns, as each waits for the last change of its
    word."""
    begin, end = uint64(begin), uint64(end)
    step = (end - begin) >> _2
    for i in range(begin, begin + step):
        for k in range(_4):
            _clear(uint64(rows[i + k * step]), place, members, bits)
    for i in range(begin + _4 * step, end):
        _clear(uint64(rows[i]), place, members, bits)


@kernel(void(IN[int64], IN[int32], IN[int32], OUT2[uint64]))
def fill_bitmaps(posting_offsets, posting_rows, bins, bitmaps):
    """Makes the bitmaps of these bins, in their order, out of zeros  # OUT"""
    for i in range(uint64(len(bins))):
        for k in range(uint64(posting_offsets[bins[i]]), uint64(posting_offsets[bins[i] + 1])):
            row = uint64(posting_rows[k])
            bitmaps[i, row >> _6] |= _1 << (row & _63)


@inline
def _clear_posted(
    first_bin, last_bin, posting_offsets, posting_rows, rows_ascend, first_row, last_row, place, members, bits
):
    """Clears the bits of the members that have one of these bins, by the bins' rows."""
    if first_row == 0 and last_row > 64 * (len(bits) - 1):
        _clear_rows(posting_rows, posting_offsets[first_bin], posting_offsets[last_bin], place, members, bits)
        return
    n_rows = 64 * len(bits)
    for b in range(first_bin, last_bin):
        begin, end = posting_offsets[b], posting_offsets[b + 1]
        if b + 1 < last_bin:  # where the next bin's are, about; it would be over before a processor asks ahead
            n_next = posting_offsets[b + 2] - end
            low, high = end + n_next * first_row // n_rows, end + n_next * last_row // n_rows
            for k in range(low, min(high, low + _ASKED), _ROWS_PER_LINE):
                prefetch(posting_rows, uint64(k))
        if rows_ascend and end - begin > _SCANNED:
            begin = first_from(first_row, posting_rows, begin, end)
            end = first_from(last_row, posting_rows, begin, end)
            _clear_rows(posting_rows, begin, end, place, members, bits)
            continue
        for i in range(uint64(begin), uint64(end)):
            if posting_rows[i] >= first_row and posting_rows[i] < last_row:
                _clear(uint64(posting_rows[i]), place, members, bits)


@inline
def _clear_bins(
    first_bin, last_bin, posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, first_row, last_row, place,
    members, bits,
):  # fmt: skip
    """The same by bitmaps, where there are some."""
    begin = first_bin
    for b in range(first_bin, last_bin):
        bitmap = bitmap_of_bin[b]
        if bitmap >= 0:
            for w in range(uint64(first_row) >> _6, (uint64(last_row) + _63) >> _6):
                bits[w] &= ~(members[place, w] & bitmaps[bitmap, w])
            _clear_posted(begin, b, posting_offsets, posting_rows, rows_ascend, first_row, last_row, place, members, bits)
            begin = b + 1
    _clear_posted(begin, last_bin, posting_offsets, posting_rows, rows_ascend, first_row, last_row, place, members, bits)


@inline
def _clear_leaving(
    begin, end, other, posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, first_row, last_row, place,
    members, bits,
):  # fmt: skip
    """Clears the bits of the members that have one of bins begin .. end, or bin `other` (-1: none)."""
    for first, last in ((begin, end), (max(other, int64(0)), other + 1)):
        _clear_bins(
            first, last, posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, first_row, last_row, place,
            members, bits,
        )  # fmt: skip


_OF_BINS = IN[int64], IN[int32], boolean, IN[int32], IN2[uint64]  # and bitmaps


@kernel(void(*_OF_BINS, IN[int32], OUT2[int64], int64, int64, IN2[uint64], OUT[uint64]))
def clear_bits(
    posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, bin_offsets, leaving, first_row, last_row, members,
    bits,
):  # fmt: skip
    """Clears the bits of the rows first_row .. last_row in members[place] that leave, for each of `leaving` whose rows are
    bits. first_row is a multiple of 64, and so is last_row but for the last of all rows.
    """
    for k in range(len(leaving)):
        first, place = int64(bin_offsets[leaving[k, OWN_FEATURE]]), uint64(leaving[k, OWN_PLACE])
        begin, end = first + leaving[k, OWN_FIRST], first + leaving[k, OWN_LAST]
        other = first + leaving[k, OWN_NAN] if leaving[k, OWN_NAN] >= 0 else int64(-1)
        _clear_leaving(
            begin, end, other, posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, first_row, last_row,
            place, members, bits,
        )  # fmt: skip


@inline
def _clear_of_list(indptr, bins, stride, begin, end, other, rows, low, high, bits):
    """Clears the bits of those of rows[low:high] that have one of bins begin .. end, or bin `other`, by their own bins."""
    for i in range(uint64(low), uint64(high)):
        if stride == 0 and i + _PLACE_AHEAD < uint64(high):
            prefetch(indptr, uint64(rows[i + _PLACE_AHEAD]))
        if i + _BINS_AHEAD < uint64(high):
            prefetch(bins, bins_of(indptr, stride, uint64(rows[i + _BINS_AHEAD]))[0])
        row = uint64(rows[i])
        row_begin, row_end = bins_of(indptr, stride, row)
        leaves = _0
        if row_end - row_begin <= _FEW_BINS:
            for k in range(row_begin, row_end):
                b = int64(bins[k])
                leaves |= uint64(((b >= begin) & (b < end)) | (b == other))
        else:
            first, last = int64(row_begin), int64(row_end)
            at = first_from(begin, bins, first, last)
            leaves = uint64(at < last and bins[at] < end)
            if other >= 0 and leaves == _0:
                at = first_from(other, bins, first, last)
                leaves = uint64(at < last and bins[at] == other)
        bits[row >> _6] &= ~(leaves << (row & _63))


@kernel_for(
    ROWS,
    signature=lambda indptr, bins: void(
        IN[indptr], IN[bins], int64, *_OF_BINS, IN[int32], IN[int32], IN2[int64], int64, int64, OUT[uint64]
    ),
)
def clear_bits_of_lists(
    indptr, bins, stride, posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, bin_offsets, rows, lists,
    first_row, last_row, bits,
):  # fmt: skip
    """Clears the bits of those `rows` of each of `lists` that leave; all are from first_row to last_row, which are as
    clear_bits takes them, and a row's bins ascend.

    By a bin's bitmap, by the rows of the bins (clear_bits) or, where these are many more than the list's, by the bins of the
    list's rows.
    """
    members, n_rows = np.zeros((1, len(bits)), np.uint64), len(indptr) - 1  # of one list, as bits
    most = _POSTED if len(bins) <= _FEW_BINS * n_rows else _POSTED_LONG
    for s in range(len(lists)):
        first = int64(bin_offsets[lists[s, OWN_FEATURE]])
        begin, end = first + lists[s, OWN_FIRST], first + lists[s, OWN_LAST]
        other = first + lists[s, OWN_NAN] if lists[s, OWN_NAN] >= 0 else int64(-1)
        low, high = lists[s, OWN_BEGIN], lists[s, OWN_END]
        if end - begin == 1 and other < 0 and bitmap_of_bin[begin] >= 0:
            _clear_rows(rows, low, high, uint64(bitmap_of_bin[begin]), bitmaps, bits)
            continue
        n_posted = posting_offsets[end] - posting_offsets[begin] + _A_BIN * (end - begin)
        if other >= 0:
            n_posted += posting_offsets[other + 1] - posting_offsets[other]
        if n_posted * (last_row - first_row) > most * (high - low) * n_rows:
            _clear_of_list(indptr, bins, stride, begin, end, other, rows, low, high, bits)
            continue
        for i in range(uint64(low), uint64(high)):
            row = uint64(rows[i])
            members[_0, row >> _6] |= _1 << (row & _63)
        _clear_leaving(
            begin, end, other, posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, first_row, last_row, _0,
            members, bits,
        )  # fmt: skip
        for i in range(uint64(low), uint64(high)):
            members[_0, uint64(rows[i]) >> _6] = _0


@kernel_for(
    ROWS,
    signature=lambda indptr, bins: boolean(
        IN[indptr], IN[bins], int64, *_OF_BINS, IN[int32], IN[int32], IN2[int32], int64, int64, int64, int64, IN2[uint64],
        IN[int32], IN2[int64], OUT[uint64],
    ),
)  # fmt: skip
def clear_by_splits(
    indptr, bins, stride, posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, bin_offsets, n_cuts, splits,
    shard, first, first_row, last_row, members, rows, held, bits,
):  # fmt: skip
    """Clears the bits of the rows first_row .. last_row that leave by those of `splits` that are by the block's features, by
    clear_bits and clear_bits_of_lists; `first` as leaving_of_block takes it. False if one is by a bin that is not there."""
    are_there, large, lists = leaving_of_block(splits, shard, first, bin_offsets, n_cuts, held)
    clear_bits(
        posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, bin_offsets, large, first_row, last_row, members,
        bits,
    )  # fmt: skip
    if len(lists) > 0:
        clear_bits_of_lists(
            indptr, bins, stride, posting_offsets, posting_rows, rows_ascend, bitmap_of_bin, bitmaps, bin_offsets, rows,
            lists, first_row, last_row, bits,
        )  # fmt: skip
    return are_there

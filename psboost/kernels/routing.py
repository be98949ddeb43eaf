"""Knows rows, bits and nodes; does not know splits' gains or messages.

A bitvector holds one bit for each row of a row shard, bit r % 64 of word r // 64; 1: the row goes to its node's default
child, 0: a stored value sends it to the other one (QuickScorer, default first: D5). The rows of a large node are bits of
words too, so that 64 rows at once go to its children; those of a small one are a list.
"""

import numpy as np

from psboost.kernels.ascending import first_from
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
    kernel,
    types,
    uint8,
    uint64,
    void,
)  # fmt: skip
from psboost.kernels.prefetch import prefetch
from psboost.kernels.row_bins import ROW_BINS
from psboost.kernels.splits import BIN, BUILD_LEFT, DEFAULT_LEFT, LOCAL, NODE, SHARD, UNSTORED_LEFT
from psboost.kernels.words import count_ones, lowest_one, write_where

NODES = (uint8, int32)
_SCANNED = 64  # so many rows of a bin are gone through sooner than searched
_FEW_BINS = 24  # and so many bins of a row
_PLACE_AHEAD, _BINS_AHEAD = uint64(32), uint64(16)  # rows: a node's are far apart
# So many rows of a bin are gone through in the time that one row's bins take, few or more; and to go on to another bin.
_POSTED, _POSTED_LONG, _A_BIN = 32, 96, 16
_0, _1, _2, _3, _4, _6, _63, _64 = (uint64(k) for k in (0, 1, 2, 3, 4, 6, 63, 64))
_ALL = uint64(2**64 - 1)


# held (int64, one node a row, in order of number): where the node's rows are: the place of its bits among `members`, or -1
# and where its list begins and ends. That of a node which was split is empty.
PLACE, BEGIN, END, N_HELD = range(4)

# What leaves the default child of a split's node (int64, one a row): where the node's rows stand, as above; which bins of
# stored values: first .. last, counted within the feature, and one more, -1 for none; and the feature.
OWN_BEGIN, OWN_END, OWN_FIRST, OWN_LAST, OWN_NAN, OWN_FEATURE, N_OWN = range(7)
OWN_PLACE = OWN_BEGIN


@kernel(types.UniTuple(int64, 2)(IN2[int32], int64, int64, int64, IN[int32], IN[int32], IN2[int64], OUT2[int64]))
def find_leaving(splits, shard, first, last, bin_offsets, n_cuts, held, leaving):
    """What leaves by those of `splits` (kernels.splits) that are by features first .. last of the feature shard; returns how
    many of these are of nodes whose rows are bits, which come first, and how many of lists, which come last.

    bin_offsets, n_cuts  of these features: where their bins begin; how many of them are numeric
    held                 the rows of all nodes
    leaving              with room for all splits; features count from `first`  # OUT
    """
    n_large, n_small = 0, 0
    for s in range(len(splits)):
        if splits[s, SHARD] != shard or splits[s, LOCAL] < first or splits[s, LOCAL] >= last:
            continue
        feature, edge = int64(splits[s, LOCAL]) - first, int64(splits[s, BIN]) + 1  # the first bin that goes right
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
def _clear(row, place, members, bits):
    """Clears a row's bit if it is a member. No branch: which rows are is not to be guessed."""
    bits[row >> _6] &= ~(members[place, row >> _6] & (_1 << (row & _63)))


@inline
def _clear_bins(first_bin, last_bin, posting_offsets, posting_rows, rows_ascend, first_row, last_row, place, members, bits):
    if first_row == 0 and last_row > 64 * (len(bits) - 1):
        for i in range(uint64(posting_offsets[first_bin]), uint64(posting_offsets[last_bin])):
            _clear(uint64(posting_rows[i]), place, members, bits)
        return
    for b in range(first_bin, last_bin):
        begin, end = posting_offsets[b], posting_offsets[b + 1]
        if rows_ascend and end - begin > _SCANNED:
            begin = first_from(first_row, posting_rows, begin, end)
            end = first_from(last_row, posting_rows, begin, end)
            for i in range(uint64(begin), uint64(end)):
                _clear(uint64(posting_rows[i]), place, members, bits)
            continue
        for i in range(uint64(begin), uint64(end)):
            if posting_rows[i] >= first_row and posting_rows[i] < last_row:
                _clear(uint64(posting_rows[i]), place, members, bits)


@inline
def _clear_leaving(
    begin, end, other, posting_offsets, posting_rows, rows_ascend, first_row, last_row, place, members, bits
):
    """Clears the bits of the members that have one of bins begin .. end, or bin `other` (-1: none), by these bins' rows."""
    _clear_bins(begin, end, posting_offsets, posting_rows, rows_ascend, first_row, last_row, place, members, bits)
    if other >= 0:
        _clear_bins(other, other + 1, posting_offsets, posting_rows, rows_ascend, first_row, last_row, place, members, bits)


@kernel(void(IN[int64], IN[int32], boolean, IN[int32], OUT2[int64], int64, int64, IN2[uint64], OUT[uint64]))
def clear_bits(posting_offsets, posting_rows, rows_ascend, bin_offsets, leaving, first_row, last_row, members, bits):
    """Clears the bits of the rows first_row .. last_row in members[place] that leave, for each of `leaving` whose rows are
    bits. first_row is a multiple of 64, and so is last_row but for the last of all rows.

    The rows of bin b are posting_rows[posting_offsets[b] : posting_offsets[b + 1]]; rows_ascend: whether in their order.
    """
    for k in range(len(leaving)):
        first, place = int64(bin_offsets[leaving[k, OWN_FEATURE]]), uint64(leaving[k, OWN_PLACE])
        begin, end = first + leaving[k, OWN_FIRST], first + leaving[k, OWN_LAST]
        other = first + leaving[k, OWN_NAN] if leaving[k, OWN_NAN] >= 0 else int64(-1)
        _clear_leaving(
            begin, end, other, posting_offsets, posting_rows, rows_ascend, first_row, last_row, place, members, bits
        )


@inline
def own_part(own, rows, first_row, last_row):
    """Where those of a list are, which ascend, that are from first_row to last_row."""
    low = first_from(first_row, rows, own[OWN_BEGIN], own[OWN_END])
    return low, first_from(last_row, rows, low, own[OWN_END])


@inline
def _clear_of_list(indptr, bins, begin, end, other, rows, low, high, bits):
    """Clears the bits of those of rows[low:high] that have one of bins begin .. end, or bin `other`, by their own bins."""
    for i in range(uint64(low), uint64(high)):
        if i + _PLACE_AHEAD < uint64(high):
            prefetch(indptr, uint64(rows[i + _PLACE_AHEAD]))
        if i + _BINS_AHEAD < uint64(high):
            prefetch(bins, uint64(indptr[uint64(rows[i + _BINS_AHEAD])]))
        row = uint64(rows[i])
        row_begin, row_end = indptr[row], indptr[row + _1]
        leaves = _0
        if row_end - row_begin <= _FEW_BINS:
            for k in range(uint64(row_begin), uint64(row_end)):
                b = int64(bins[k])
                leaves |= uint64(((b >= begin) & (b < end)) | (b == other))
        else:
            at = first_from(begin, bins, row_begin, row_end)
            leaves = uint64(at < row_end and bins[at] < end)
            if other >= 0 and leaves == _0:
                at = first_from(other, bins, row_begin, row_end)
                leaves = uint64(at < row_end and bins[at] == other)
        bits[row >> _6] &= ~(leaves << (row & _63))


@kernel(
    [
        void(*held, IN[int64], IN[int32], boolean, IN[int32], IN[int32], IN2[int64], int64, int64, OUT[uint64])
        for held in ROW_BINS
    ]
)
def clear_bits_of_lists(
    indptr, bins, posting_offsets, posting_rows, rows_ascend, bin_offsets, rows, lists, first_row, last_row, bits
):
    """Clears the bits of those `rows` of each of `lists` from first_row to last_row that leave; a row's bins ascend.

    By the rows of the bins (clear_bits) or, where these are many more than the list's, by the bins of the list's rows.
    """
    members, n_rows = np.zeros((1, len(bits)), np.uint64), len(indptr) - 1  # of one list, as bits
    most = _POSTED if len(bins) <= _FEW_BINS * n_rows else _POSTED_LONG
    for s in range(len(lists)):
        first = int64(bin_offsets[lists[s, OWN_FEATURE]])
        begin, end = first + lists[s, OWN_FIRST], first + lists[s, OWN_LAST]
        other = first + lists[s, OWN_NAN] if lists[s, OWN_NAN] >= 0 else int64(-1)
        n_posted = posting_offsets[end] - posting_offsets[begin] + _A_BIN * (end - begin)
        if other >= 0:
            n_posted += posting_offsets[other + 1] - posting_offsets[other]
        low, high = own_part(lists[s], rows, first_row, last_row)
        if n_posted > most * (lists[s, OWN_END] - lists[s, OWN_BEGIN]):
            _clear_of_list(indptr, bins, begin, end, other, rows, low, high, bits)
            continue
        for i in range(uint64(low), uint64(high)):
            row = uint64(rows[i])
            members[_0, row >> _6] |= _1 << (row & _63)
        _clear_leaving(begin, end, other, posting_offsets, posting_rows, rows_ascend, first_row, last_row, _0, members, bits)
        for i in range(uint64(low), uint64(high)):
            members[_0, uint64(rows[i]) >> _6] = _0


# moves (int64, one split a row): where the members of a node that is split stand, and of its right child, which is
# elsewhere; the bit of those that go left; and the numbers of its children. A leaf goes to one place, whatever its bits are.
# Of a node that is a list: where its rows begin and end, in place of the first two. Nodes whose rows are bits come first.
LEFT_PLACE, RIGHT_PLACE, LEFT_BIT, LEFT, RIGHT, N_FIELDS = range(6)
ROWS_BEGIN, ROWS_END = LEFT_PLACE, RIGHT_PLACE


# room (int64): how many places are free, where lists end, and the free places
N_FREE, END_OF_LISTS, FIRST_FREE = range(3)


@kernel(int64(IN2[int32], int64, boolean, IN2[int64], OUT[int64], OUT2[int64]))
def plan_moves(splits, first_child, last, held, room, moves):
    """What is to be done to split nodes, whose children are numbered from first_child on; returns how many of the nodes have
    their rows as bits: their right children take free places, unless these are the last children.
    """
    n_large, n_small = 0, 0
    for s in range(len(splits)):
        node = splits[s, NODE]
        if held[node, PLACE] >= 0:
            k, right_place = n_large, int64(-1)
            if not last:
                room[N_FREE] -= 1
                right_place = room[FIRST_FREE + room[N_FREE]]
            n_large += 1
            moves[k, LEFT_PLACE], moves[k, RIGHT_PLACE] = held[node, PLACE], right_place
        else:
            n_small += 1
            k = len(splits) - n_small
            moves[k, ROWS_BEGIN], moves[k, ROWS_END] = held[node, BEGIN], held[node, END]
        moves[k, LEFT_BIT] = splits[s, UNSTORED_LEFT] != 0
        moves[k, LEFT], moves[k, RIGHT] = first_child + 2 * s, first_child + 2 * s + 1
    return n_large


@kernel(types.UniTuple(int64, 2)(IN2[int64], int64, OUT2[int64]))
def plan_leaves(held, n_nodes, moves):
    """The same for leaves that have rows; returns how many of these are bits, the first of `moves`, and how many are lists,
    the last."""
    n_large, n_small = 0, 0
    for node in range(n_nodes):
        if held[node, PLACE] >= 0:
            k = n_large
            n_large += 1
            moves[k, LEFT_PLACE], moves[k, RIGHT_PLACE] = held[node, PLACE], -1
        elif held[node, BEGIN] < held[node, END]:
            n_small += 1
            k = len(moves) - n_small
            moves[k, ROWS_BEGIN], moves[k, ROWS_END] = held[node, BEGIN], held[node, END]
        else:
            continue
        moves[k, LEFT_BIT], moves[k, LEFT], moves[k, RIGHT] = 1, node, node
    return n_large, n_small


@kernel(void(OUT2[int64], int64, int64, IN[uint64], OUT2[uint64], OUT[int64]))
def split_members(moves, first, last, bits, members, counts):
    """Splits words first .. last of the nodes' members: those that go left stay, the others go to the right child's place;
    counts (two for each): how many there are of each."""
    for s in range(len(moves)):
        place, right_place = uint64(moves[s, LEFT_PLACE]), uint64(moves[s, RIGHT_PLACE])
        flip = _0 if moves[s, LEFT_BIT] else _ALL
        n_left, n_right = _0, _0
        for w in range(uint64(first), uint64(last)):
            word = members[place, w]
            left = word & (bits[w] ^ flip)
            members[place, w], members[right_place, w] = left, word ^ left
            n_left += count_ones(left)
            n_right += count_ones(word ^ left)
        counts[2 * s], counts[2 * s + 1] = n_left, n_right


# lists (int64, one a row): where members stand; a row above those to be listed; and the room for these, begin .. end. There
# are as many for each chunk of the words, one chunk's behind the other's.
LIST_PLACE, LIST_ABOVE, LIST_BEGIN, LIST_END, N_LIST_FIELDS = range(5)


@kernel(void(OUT2[int64], int64, int64, IN2[uint64], OUT[int32]))
def list_members(lists, first, last, members, rows):
    """Writes which members of words first .. last are to be listed, of each of `lists`, to rows[begin:end], and sets end."""
    for k in range(len(lists)):
        place, n_rows = uint64(lists[k, LIST_PLACE]), uint64(lists[k, LIST_ABOVE])
        at, room_end = uint64(lists[k, LIST_BEGIN]), uint64(lists[k, LIST_END])
        for w in range(uint64(first), uint64(last)):
            word, base = members[place, w], w << _6
            if base + _64 > n_rows:
                word &= (_1 << (n_rows - base)) - _1 if base < n_rows else _0
            end = at + count_ones(word)
            # Four at once, wanted or not, without a branch to guess for each: half the time where a word has a few members.
            while at < end and at + _4 <= room_end:
                rows[at] = base + lowest_one(word)
                word &= word - _1
                rows[at + _1] = base + lowest_one(word)
                word &= word - _1
                rows[at + _2] = base + lowest_one(word)
                word &= word - _1
                rows[at + _3] = base + lowest_one(word)
                word &= word - _1
                at += _4
            while at < end:
                rows[at] = base + lowest_one(word)
                word &= word - _1
                at += _1
            at = end
        lists[k, LIST_END] = at


@inline
def _goes_left(row, bits, left_bit):
    return uint64(((bits[row >> _6] >> (row & _63)) & _1) == uint64(left_bit))


@inline
def _split_list(begin, end, left_bit, bits, rows, spare):
    """Puts those rows of a list first that go left, in place and in their order; returns where the others begin."""
    at, n_right = uint64(begin), _0
    for i in range(at, uint64(end)):
        row = rows[i]
        goes_left = _goes_left(uint64(row), bits, left_bit)
        rows[at], spare[n_right] = row, row
        at += goes_left
        n_right += _1 - goes_left
    for k in range(n_right):
        rows[at + k] = spare[k]
    return int64(at)


@kernel(
    int64(
        IN2[int32], int64, IN2[int64], int64, IN2[int64], IN[uint64], int64, OUT[int32], OUT[int32], OUT2[int64],
        OUT[int64], OUT2[int64],
    )
)  # fmt: skip
def settle(splits, first_child, moves, n_large, counts, bits, n_train, rows, spare, held, room, lists):
    """Says where the rows of the children are, once members are split, and splits lists; returns how many children's members
    are to be listed: the first `lists` of each chunk.

    A child of no more rows than there are words of bits becomes a list, behind those that are there, and its place is free
    again. Of another one whose histogram is built the training rows, those below n_train, are listed in the second half of
    `rows`, where `held` says which of the lists is its own.

    counts  of each chunk, as of split_members
    spare   room for the rows of any list and one more, to work in  # OUT
    rows, held, room, lists  # OUT
    """
    n_chunks, n_lists, n_rows = len(counts), 0, len(rows) // 2
    per_chunk = len(lists) // n_chunks
    for s in range(n_large, len(moves)):
        begin, end = moves[s, ROWS_BEGIN], moves[s, ROWS_END]
        middle = _split_list(begin, end, moves[s, LEFT_BIT], bits, rows, spare)
        left, right = moves[s, LEFT], moves[s, RIGHT]
        held[left, PLACE], held[left, BEGIN], held[left, END] = -1, begin, middle
        held[right, PLACE], held[right, BEGIN], held[right, END] = -1, middle, end
    end_of_large = n_rows
    for s in range(n_large):
        left_is_built = splits[(moves[s, LEFT] - first_child) // 2, BUILD_LEFT] != 0
        for side in range(2):
            child, place, size = moves[s, LEFT + side], moves[s, LEFT_PLACE + side], int64(0)
            for c in range(n_chunks):
                size += counts[c, 2 * s + side]
            if size <= len(bits):
                at, above = room[END_OF_LISTS], n_rows
                room[END_OF_LISTS] += size
                held[child, PLACE], held[child, BEGIN], held[child, END] = -1, at, at + size
                room[FIRST_FREE + room[N_FREE]] = place
                room[N_FREE] += 1
            else:
                held[child, PLACE], held[child, BEGIN], held[child, END] = place, n_lists, 0
                if left_is_built != (side == 0):
                    continue
                at, above = end_of_large, n_train
                end_of_large += size
            for c in range(n_chunks):
                k = c * per_chunk + n_lists
                lists[k, LIST_PLACE], lists[k, LIST_ABOVE] = place, above
                lists[k, LIST_BEGIN], lists[k, LIST_END] = at, at + counts[c, 2 * s + side]
                at += counts[c, 2 * s + side]
            n_lists += 1
    for s in range(len(splits)):
        node = splits[s, NODE]
        held[node, PLACE], held[node, BEGIN], held[node, END] = -1, 0, 0
    return n_lists


@kernel(void(IN2[int32], int64, IN2[int64], IN[int32], int64, IN2[int64], int64, OUT2[int64]))
def find_spans(splits, first_child, held, rows, n_train, lists, n_chunks, spans):
    """Where the training rows of each split's child that is built are listed, once they are: begin and end (OUT)."""
    per_chunk = len(lists) // n_chunks
    for s in range(len(splits)):
        child = first_child + 2 * s + int64(splits[s, BUILD_LEFT] == 0)
        begin, end = held[child, BEGIN], held[child, END]
        if held[child, PLACE] >= 0:
            k, n_listed = begin, int64(0)
            for c in range(n_chunks):
                n_listed += lists[c * per_chunk + k, LIST_END] - lists[c * per_chunk + k, LIST_BEGIN]
            begin = lists[k, LIST_BEGIN]
            end = begin + n_listed
        elif 2 * n_train < len(rows):
            end = first_from(n_train, rows, begin, end)
        spans[s, 0], spans[s, 1] = begin, end


@kernel([void(IN2[int64], int64, int64, IN[uint64], IN2[uint64], OUT[node]) for node in NODES])
def number_members(moves, first, last, bits, members, node_of_row):
    """Writes which child each of the nodes' members goes to, of words first .. last."""
    for s in range(len(moves)):
        place, flip = uint64(moves[s, LEFT_PLACE]), _0 if moves[s, LEFT_BIT] else _ALL
        left_child, right_child = moves[s, LEFT], moves[s, RIGHT]
        for w in range(uint64(first), uint64(last)):
            word, left, base = members[place, w], bits[w] ^ flip, w << _6
            if word != _0 and base + _64 <= uint64(len(node_of_row)):
                write_where(word & left, left_child, node_of_row, base)
                write_where(word & ~left, right_child, node_of_row, base)
                continue
            while word != _0:
                bit = lowest_one(word)
                node_of_row[base + bit] = left_child if (left >> bit) & _1 else right_child
                word &= word - _1


@kernel([void(IN2[int64], IN[uint64], IN[int32], OUT[node]) for node in NODES])
def number_lists(moves, bits, rows, node_of_row):
    """Writes which child each row of each list goes to."""
    for s in range(len(moves)):
        left_child, right_child = moves[s, LEFT], moves[s, RIGHT]
        for i in range(uint64(moves[s, ROWS_BEGIN]), uint64(moves[s, ROWS_END])):
            row = uint64(rows[i])
            node_of_row[row] = left_child if _goes_left(row, bits, moves[s, LEFT_BIT]) != _0 else right_child


@kernel([void(IN[node], IN[float32], OUT[float32]) for node in NODES])
def add_values(node_of_row, values, margins):
    """Adds to each row's margin the value of the node that the row is in."""
    for i in range(uint64(len(node_of_row))):
        margins[i] += values[uint64(node_of_row[i])]

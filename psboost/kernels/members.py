"""Knows which rows each node has, and moves those of a split node to its children; does not know why they go there.

The rows of a large node are bits of words, bit r % 64 of word r // 64, so that 64 rows at once go to its children; those of
a small one are a list. Where they go is a bit of each row, of a bitvector (kernels.routing).
"""

from psboost.kernels.ascending import first_from
from psboost.kernels.compile import IN, IN2, OUT, OUT2, boolean, inline, int32, int64, kernel, types, uint8, uint64, void
from psboost.kernels.splits import BUILD_LEFT, NODE, UNSTORED_LEFT
from psboost.kernels.words import count_ones, lowest_one, write_where

NODES = (uint8, int32)  # how nodes are numbered
_0, _1, _2, _3, _4, _6, _63, _64 = (uint64(k) for k in (0, 1, 2, 3, 4, 6, 63, 64))
_ALL = uint64(2**64 - 1)

# held (int64, one node a row, in order of number): where the node's rows are: the place of its bits among `members`, or -1
# and where its list begins and ends. That of a node which was split is empty.
PLACE, BEGIN, END, N_HELD = range(4)

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

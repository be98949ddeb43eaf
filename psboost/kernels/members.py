"""Knows which rows each node has, and moves those of a split node to its children; does not know why they go there.

The rows of a large node are bits of words, bit r % 64 of word r // 64, so that 64 rows at once go to its children; those of
a small one, of no more rows than there are words, are a list. Where they go is a bit of each row, of a bitvector
(kernels.routing). A kernel has words first .. last, a chunk of all rows, to itself: nodes are large or small in each chunk.

    members   places (a row each), for as many nodes' words
    rows      room for twice the chunk's rows: in the first half lists, which are split in place; in the second the rows of
              large nodes that are built, anew for each level
    held      where each node's rows are, in order of number
    room      free places, and where lists end
"""

from psboost.kernels.ascending import first_from
from psboost.kernels.compile import (
    IN,
    IN2,
    OUT,
    OUT2,
    inline,
    int32,
    int64,
    kernel,
    kernel_for,
    uint8,
    uint64,
    void,
)
from psboost.kernels.splits import BUILD_LEFT, NODE, UNSTORED_LEFT
from psboost.kernels.words import count_ones, list_ones, lowest_one, write_where

NODES = {"": uint8, "seldom": int32}  # how nodes are numbered: by a byte in trees of MOST_DEPTH and MOST_NODES at most
MOST_DEPTH, MOST_NODES = 7, 256
N_PLACES = 64  # a large node has more rows than there are words, so there are 63 of them at most; and one that is split
_0, _1, _6, _63, _64 = (uint64(k) for k in (0, 1, 6, 63, 64))
_ALL = uint64(2**64 - 1)

# held (int64, one node a row): the place of its bits, or -1 and where its list begins and ends. That of a node which was
# split is empty.
PLACE, BEGIN, END, N_HELD = range(4)

# room (int64): how many places are free, where lists end, and the free places
N_FREE, END_OF_LISTS, FIRST_FREE = range(3)


@inline
def _split_words(place, right_place, left_bit, first, last, bits, members):
    """Those that go left stay, the others go to the right child's place; returns how many there are of each."""
    flip, n_left, n_right = _0 if left_bit else _ALL, _0, _0
    for w in range(uint64(first), uint64(last)):
        word = members[place, w]
        left = word & (bits[w] ^ flip)
        members[place, w], members[right_place, w] = left, word ^ left
        n_left += count_ones(left)
        n_right += count_ones(word ^ left)
    return int64(n_left), int64(n_right)


@inline
def _list_words(place, first, last, n_rows, members, begin, room_end, rows):
    """Writes which members of a place are below n_rows to `rows` from `begin` on; returns the end. What is behind it, before
    room_end, is lost."""
    at, limit = uint64(begin), uint64(n_rows)
    for w in range(uint64(first), uint64(last)):
        word, base = members[place, w], w << _6
        if base + _64 > limit:
            word &= (_1 << (limit - base)) - _1 if base < limit else _0
        at = list_ones(word, base, at, room_end, rows)
    return int64(at)


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


@inline
def _hold(node, place, begin, end, held):
    held[node, PLACE], held[node, BEGIN], held[node, END] = place, begin, end


@kernel(void(int64, int64, int64, OUT2[uint64], OUT2[int64], OUT[int64]))
def hold_all(first, last, n_rows, members, held, room):
    """All rows of the chunk are in node 0, the root. Those behind it begin with row n_rows."""
    root = len(members) - 1
    room[N_FREE], room[END_OF_LISTS] = root, 0
    for place in range(root):
        room[FIRST_FREE + place] = place
    _hold(0, root, 0, 0, held)
    for w in range(first, last):
        members[root, w] = _ALL
    if n_rows < 64 * last:
        members[root, last - 1] = _ALL >> uint64(64 * last - n_rows)


@kernel(
    void(
        IN2[int32], int64, int64, int64, int64, IN[uint64], OUT2[uint64], OUT[int32], OUT[int32], OUT2[int64], OUT[int64],
        OUT2[int64],
    )
)  # fmt: skip
def split_rows(splits, first_child, first, last, n_train, bits, members, rows, spare, held, room, spans):
    """Moves the rows of split nodes to their children, which are numbered from first_child on.

    spare  room for the rows of any list and one more, to work in  # OUT
    spans  where the training rows, those below n_train, of each split's child that is built begin and end in `rows`  # OUT
    """
    n_words, n_rows, end_of_large = last - first, len(rows) // 2, len(rows) // 2
    for s in range(len(splits)):
        node, left, left_bit = int64(splits[s, NODE]), first_child + 2 * s, splits[s, UNSTORED_LEFT] != 0
        if held[node, PLACE] < 0:
            begin, end = held[node, BEGIN], held[node, END]
            middle = _split_list(begin, end, left_bit, bits, rows, spare)
            _hold(left, -1, begin, middle, held)
            _hold(left + 1, -1, middle, end, held)
        else:
            place = held[node, PLACE]
            room[N_FREE] -= 1
            right_place = room[FIRST_FREE + room[N_FREE]]
            sizes = _split_words(place, right_place, left_bit, first, last, bits, members)
            for side in range(2):
                own = right_place if side else place
                if sizes[side] > n_words:
                    _hold(left + side, own, 0, 0, held)
                    continue
                begin = room[END_OF_LISTS]
                end = _list_words(own, first, last, 64 * last, members, begin, n_rows, rows)
                _hold(left + side, -1, begin, end, held)
                room[END_OF_LISTS] = end
                room[FIRST_FREE + room[N_FREE]] = own
                room[N_FREE] += 1
        _hold(node, -1, 0, 0, held)
        built = left + int64(splits[s, BUILD_LEFT] == 0)
        begin, end = held[built, BEGIN], held[built, END]
        if held[built, PLACE] >= 0:
            begin = end_of_large
            end = _list_words(held[built, PLACE], first, last, n_train, members, begin, len(rows), rows)
            end_of_large = end
        elif 64 * last > n_train:
            end = first_from(n_train, rows, begin, end)
        spans[s, 0], spans[s, 1] = begin, end


@inline
def _number_words(place, left_bit, left, right, first, last, bits, members, node_of_row):
    """Writes which child each member of a place goes to."""
    flip = _0 if left_bit else _ALL
    for w in range(uint64(first), uint64(last)):
        word, goes_left, base = members[place, w], bits[w] ^ flip, w << _6
        if word != _0 and base + _64 <= uint64(len(node_of_row)):
            write_where(word & goes_left, left, node_of_row, base)
            write_where(word & ~goes_left, right, node_of_row, base)
            continue
        while word != _0:
            bit = lowest_one(word)
            node_of_row[base + bit] = left if (goes_left >> bit) & _1 else right
            word &= word - _1


@inline
def _number_list(begin, end, left_bit, left, right, bits, rows, node_of_row):
    """Writes which child each row of a list goes to."""
    for i in range(uint64(begin), uint64(end)):
        row = uint64(rows[i])
        node_of_row[row] = left if _goes_left(row, bits, left_bit) != _0 else right


@kernel_for(
    NODES,
    signature=lambda node: void(
        IN2[int32], int64, int64, int64, IN[uint64], IN2[uint64], IN[int32], OUT2[int64], OUT[node]
    ),
)
def number_children(splits, first_child, first, last, bits, members, rows, held, node_of_row):
    """Writes which child each row of split nodes goes to, as a leaf: neither has it any more."""
    for s in range(len(splits)):
        node, left, left_bit = int64(splits[s, NODE]), first_child + 2 * s, splits[s, UNSTORED_LEFT] != 0
        if held[node, PLACE] >= 0:
            _number_words(held[node, PLACE], left_bit, left, left + 1, first, last, bits, members, node_of_row)
        else:
            _number_list(held[node, BEGIN], held[node, END], left_bit, left, left + 1, bits, rows, node_of_row)
        for gone in (node, left, left + 1):
            _hold(gone, -1, 0, 0, held)


@kernel_for(NODES, signature=lambda node: void(int64, int64, int64, IN2[uint64], IN[int32], IN2[int64], OUT[node]))
def number_rows(node, first, last, members, rows, held, node_of_row):
    """Writes the node of each row that it has."""
    any_bits = members[0]
    if held[node, PLACE] >= 0:
        _number_words(held[node, PLACE], True, node, node, first, last, any_bits, members, node_of_row)
    else:
        _number_list(held[node, BEGIN], held[node, END], True, node, node, any_bits, rows, node_of_row)


@kernel_for(NODES, signature=lambda node: void(int64, int64, int64, IN2[uint64], IN[int32], IN2[int64], OUT[node]))
def number_leaves(n_nodes, first, last, members, rows, held, node_of_row):
    """Writes the node of each row that one of the nodes still has."""
    for node in range(n_nodes):
        number_rows(node, first, last, members, rows, held, node_of_row)


@kernel(int64(int64, int64, int64, IN2[uint64], IN[int32], IN2[int64], OUT[uint64]))
def mark_rows(node, first, last, members, rows, held, marks):
    """Sets the bit of each row of a node (OUT: a bitvector of all rows); returns how many there are."""
    n_rows = _0
    if held[node, PLACE] >= 0:
        for w in range(uint64(first), uint64(last)):
            word = members[held[node, PLACE], w]
            marks[w] |= word
            n_rows += count_ones(word)
        return int64(n_rows)
    for i in range(uint64(held[node, BEGIN]), uint64(held[node, END])):
        row = uint64(rows[i])
        marks[row >> _6] |= _1 << (row & _63)
    return held[node, END] - held[node, BEGIN]

"""Knows rows, bits and positions; does not know splits' gains or messages.

A bitvector holds one bit for each row of a row shard, row i in bit i % 64 of word i // 64; 1: the row goes to its node's
default child, 0: a stored value sends it to the other one (QuickScorer, default first: D5).
"""

from psboost.kernels.compile import IN, OUT, boolean, float32, int32, int64, kernel, uint64, void


@kernel(void(IN[int32], IN[int32], int32, OUT[uint64]))
def clear_bits(rows, node_of_row, node, words):
    """Clears the bit of every row of `rows` that is in `node`."""
    for row in rows:
        if node_of_row[row] == node:
            words[row >> 6] &= ~(uint64(1) << uint64(row & 63))


@kernel(int64(OUT[int32], IN[uint64], boolean, int32, int32, OUT[int32], OUT[int32]))
def partition(rows, words, default_is_left, left_node, right_node, node_of_row, spare):
    """Puts the rows that go left before those that go right, both in the order they had; returns how many go left."""
    at, others = int64(0), int64(0)
    for k in range(len(rows)):
        row = rows[k]
        keeps = (words[row >> 6] >> uint64(row & 63)) & uint64(1) != uint64(0)
        if keeps == default_is_left:
            rows[at] = row
            node_of_row[row] = left_node
            at += 1
        else:
            spare[others] = row
            node_of_row[row] = right_node
            others += 1
    for k in range(others):
        rows[at + k] = spare[k]
    return at


@kernel(void(IN[int32], float32, OUT[float32]))
def add_value(rows, value, margins):
    """margins[row] += value for every row of `rows`."""
    for row in rows:
        margins[row] += value

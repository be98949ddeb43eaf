"""Knows rows, bits and positions; does not know splits' gains or messages.

A bitvector holds one bit for each row of a row shard, row i in bit i % 64 of word i // 64; 1: the row goes to its node's
default child, 0: a stored value sends it to the other one (QuickScorer, default first: D5).
"""

from psboost.kernels.compile import IN, OUT, boolean, float32, int32, int64, kernel, uint64, void


@kernel(void(IN[int32], IN[int32], int32, OUT[uint64]))
def clear_bits(rows, node_of_row, node, words):
    """Clears the bit of every row of `rows` that is in `node`."""
    for row in rows:
        clears = uint64(node_of_row[uint64(row)] == node)
        words[uint64(row) >> uint64(6)] &= ~(clears << uint64(row & 63))


@kernel(int64(OUT[int32], IN[uint64], boolean, int32, int32, OUT[int32], OUT[int32]))
def partition(rows, words, default_is_left, left_node, right_node, node_of_row, spare):
    """Puts the rows that go left before those that go right, both in the order they had; returns how many go left."""
    at, others = int64(0), int64(0)
    kept = uint64(default_is_left)
    for k in range(len(rows)):
        row = rows[k]
        goes_left = (words[uint64(row) >> uint64(6)] >> uint64(row & 63)) & uint64(1) == kept
        # Either way goes about as often: both are written, without a branch to guess, and one moves on.
        rows[uint64(at)] = row
        spare[uint64(others)] = row
        node_of_row[uint64(row)] = left_node if goes_left else right_node
        at += goes_left
        others += not goes_left
    for k in range(others):
        rows[at + k] = spare[k]
    return at


@kernel(void(IN[int32], float32, OUT[float32]))
def add_value(rows, value, margins):
    """margins[row] += value for every row of `rows`."""
    for row in rows:
        margins[row] += value

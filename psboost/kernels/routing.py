"""Knows rows, bits and positions; does not know splits' gains or messages.

A bitvector holds one bit for each row of a row shard; 1: the row goes to its node's default child, 0: a stored value sends
it to the other one (QuickScorer, default first: D5). While it is made, and while rows move by it, each bit has a byte
of its own, so that threads may clear those of neighbours. The node that a row is in is a byte where that holds all nodes:
more rows' nodes stay in the cache.
"""

from psboost.kernels.compile import IN, OUT, float32, int32, int64, kernel, uint8, uint64, void

NODES = (uint8, int32)


@kernel([void(IN[int32], IN[node], int32, OUT[uint8]) for node in NODES])
def clear_bits(rows, node_of_row, node, bits):
    """Clears the bit of every row of `rows` that is in `node`."""
    for i in range(uint64(len(rows))):
        row = uint64(rows[i])
        if node_of_row[row] == node:
            bits[row] = 0


@kernel(int64(IN[int32], IN[uint8]))
def count_ones(rows, bits):
    """How many rows of `rows` have a bit that is 1."""
    n_ones = int64(0)
    for i in range(uint64(len(rows))):
        n_ones += int64(bits[uint64(rows[i])])
    return n_ones


@kernel([void(IN[int32], IN[uint8], uint8, int32, int32, int64, int64, OUT[int32], OUT[node]) for node in NODES])
def partition(rows, bits, left_bit, left_node, right_node, left_at, right_at, moved, node_of_row):
    """Writes `rows` to `moved` in their order: those whose bit is left_bit from left_at on, the others from right_at on."""
    at_left, at_right = uint64(left_at), uint64(right_at)
    for i in range(uint64(len(rows))):
        row = uint64(rows[i])
        goes_left = bits[row] == left_bit
        # Either way goes about as often: no branch to guess.
        moved[at_left if goes_left else at_right] = rows[i]
        node_of_row[row] = left_node if goes_left else right_node
        at_left += uint64(goes_left)
        at_right += uint64(not goes_left)


@kernel([void(IN[node], IN[float32], OUT[float32]) for node in NODES])
def add_values(node_of_row, values, margins):
    """Adds to each row's margin the value of the node that the row is in."""
    for i in range(uint64(len(node_of_row))):
        margins[i] += values[uint64(node_of_row[i])]

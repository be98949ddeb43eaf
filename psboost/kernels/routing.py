"""Knows rows, bits and positions; does not know splits' gains or messages.

A bitvector holds one bit for each row of a row shard; 1: the row goes to its node's default child, 0: a stored value sends
it to the other one (QuickScorer, default first: D5). While it is made, and while rows move by it, each bit has a byte
of its own, so that threads may clear those of neighbours. The node that a row is in is a byte where that holds all nodes:
more rows' nodes stay in the cache.
"""

from psboost.kernels.ascending import first_from
from psboost.kernels.compile import IN, IN2, OUT, OUT2, boolean, float32, int32, int64, kernel, uint8, uint64, void

NODES = (uint8, int32)
_SCANNED = 64  # so many rows of a bin are gone through sooner than searched


@kernel([void(IN[int64], IN[int32], boolean, IN2[int64], int64, int64, IN[node], OUT[uint8]) for node in NODES])
def clear_bits(posting_offsets, posting_rows, rows_ascend, slices, first_row, last_row, node_of_row, bits):
    """Clears the bits of the rows first_row .. last_row in `node` that hold one of the bins begin .. end, for each
    (begin, end, node) of `slices`.

    The rows of bin b are posting_rows[posting_offsets[b] : posting_offsets[b + 1]]; rows_ascend: whether in their order.
    """
    all_rows = first_row == 0 and last_row == len(node_of_row)
    for k in range(len(slices)):
        node = slices[k, 2]
        if all_rows:
            for i in range(uint64(posting_offsets[slices[k, 0]]), uint64(posting_offsets[slices[k, 1]])):
                row = uint64(posting_rows[i])
                if node_of_row[row] == node:
                    bits[row] = 0
            continue
        for b in range(slices[k, 0], slices[k, 1]):
            begin, end = posting_offsets[b], posting_offsets[b + 1]
            if rows_ascend and end - begin > _SCANNED:
                begin = first_from(first_row, posting_rows, begin, end)
                end = first_from(last_row, posting_rows, begin, end)
            for i in range(uint64(begin), uint64(end)):
                row = posting_rows[i]
                if row >= first_row and row < last_row and node_of_row[uint64(row)] == node:
                    bits[uint64(row)] = 0


# chunks (int64, one a row): some rows of a node that is split, rows[source, begin:end], of which those whose bit is left_bit
# go to the node `left`, the others to `right`; then how many go left, and where the first of each kind goes, in the other
# half of `rows`. All chunks of a node follow each other.
SOURCE, BEGIN, END, LEFT, RIGHT, LEFT_BIT, N_LEFT, AT_LEFT, AT_RIGHT, N_FIELDS = range(10)


@kernel(void(int64, int64, IN2[int32], IN[uint8], OUT2[int64]))
def count_left(first, last, rows, bits, chunks):
    """Counts the rows that go left, of chunks first .. last."""
    for c in range(first, last):
        source, n_ones = uint64(chunks[c, SOURCE]), int64(0)
        for i in range(uint64(chunks[c, BEGIN]), uint64(chunks[c, END])):
            n_ones += int64(bits[uint64(rows[source, i])])
        chunks[c, N_LEFT] = n_ones if chunks[c, LEFT_BIT] else chunks[c, END] - chunks[c, BEGIN] - n_ones


@kernel(void(OUT2[int64]))
def place(chunks):
    """Where the rows of each chunk go: all that go left of a node first, in their order, and then the others."""
    begin = int64(0)
    while begin < len(chunks):
        end, n_left = begin, int64(0)
        while end < len(chunks) and chunks[end, LEFT] == chunks[begin, LEFT]:
            n_left += chunks[end, N_LEFT]
            end += 1
        at_left = chunks[begin, BEGIN]
        at_right = at_left + n_left
        for c in range(begin, end):
            chunks[c, AT_LEFT], chunks[c, AT_RIGHT] = at_left, at_right
            at_left += chunks[c, N_LEFT]
            at_right += chunks[c, END] - chunks[c, BEGIN] - chunks[c, N_LEFT]
        begin = end


@kernel([void(int64, int64, IN[uint8], IN2[int64], OUT2[int32], OUT[node]) for node in NODES])
def move(first, last, bits, chunks, rows, node_of_row):
    """Writes the rows of chunks first .. last to where they go, and which node each is in."""
    for c in range(first, last):
        source, left_bit = uint64(chunks[c, SOURCE]), chunks[c, LEFT_BIT]
        target, left, right = uint64(1) - source, chunks[c, LEFT], chunks[c, RIGHT]
        at_left, at_right = uint64(chunks[c, AT_LEFT]), uint64(chunks[c, AT_RIGHT])
        for i in range(uint64(chunks[c, BEGIN]), uint64(chunks[c, END])):
            row = uint64(rows[source, i])
            goes_left = bits[row] == left_bit
            # Either way goes about as often: no branch to guess.
            rows[target, at_left if goes_left else at_right] = rows[source, i]
            node_of_row[row] = left if goes_left else right
            at_left += uint64(goes_left)
            at_right += uint64(not goes_left)


@kernel([void(int64, int64, IN[uint8], IN2[int64], IN2[int32], OUT[node]) for node in NODES])
def descend(first, last, bits, chunks, rows, node_of_row):
    """Writes which node each row of chunks first .. last goes to, and leaves the rows where they are."""
    for c in range(first, last):
        source, left_bit = uint64(chunks[c, SOURCE]), chunks[c, LEFT_BIT]
        left, right = chunks[c, LEFT], chunks[c, RIGHT]
        for i in range(uint64(chunks[c, BEGIN]), uint64(chunks[c, END])):
            row = uint64(rows[source, i])
            node_of_row[row] = left if bits[row] == left_bit else right


@kernel([void(IN[node], IN[float32], OUT[float32]) for node in NODES])
def add_values(node_of_row, values, margins):
    """Adds to each row's margin the value of the node that the row is in."""
    for i in range(uint64(len(node_of_row))):
        margins[i] += values[uint64(node_of_row[i])]

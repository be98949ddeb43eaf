"""Slow twins of psboost/kernels/routing.py and members.py: a bitvector is a list of bools."""


def clear_bits(rows, node_of_row, node, bits):
    """`bits` with False for every row of `rows` that is in `node`."""
    return [bit and not (row in rows and node_of_row[row] == node) for row, bit in enumerate(bits)]


def partition(rows, bits, default_is_left):
    """(rows that go left, rows that go right), in the order they had."""
    left = [row for row in rows if bits[row] == default_is_left]
    return left, [row for row in rows if bits[row] != default_is_left]


def to_words(bits):
    """Row i in bit i % 64 of word i // 64, as whole numbers."""
    words = [0] * ((len(bits) + 63) // 64)
    for row, bit in enumerate(bits):
        words[row // 64] |= int(bit) << (row % 64)
    return words

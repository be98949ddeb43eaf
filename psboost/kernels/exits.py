"""Knows partial bitvectors, which tell what a worker's own features leave of each tree's leaves; does not know files.

They are made row by row: 64 leaves to a word, a tree's words one after another, bit b of a tree's word w is its leaf
64 w + b. The nodes of a feature lie in three lists, list i at starts[3 f + i] .. starts[3 f + i + 1]:

    list 0   unstored goes left,  rising thresholds:  a node acts while value >= threshold
    list 1   unstored goes right, falling thresholds: a node acts while value <  threshold
    list 2   the nodes that a NaN sends elsewhere than an unstored value: they act on NaN

To act is `state[word] &= mask`; a node whose leaves span several words stands in its list once for each.
"""

import numba
import numpy as np

from psboost.kernels.compile import IN, IN2, OUT, OUT2, boolean, float32, inline, int32, int64, kernel, types, uint64
from psboost.kernels.words import lowest_one

NODE_RECORD = np.dtype([("threshold", np.float32), ("word", np.int32), ("mask", np.uint64)])

_NODES = types.Array(numba.from_dtype(NODE_RECORD), 1, "C", readonly=True)
_ALL, _ZERO = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0)


@inline
def _narrow(begin, end, features, values, skip_zeros, starts, nodes, state):
    """Let the stored values [begin, end) of one row act on its state."""
    for i in range(begin, end):
        value = values[i]
        at = 3 * int64(features[i])
        if value != value:
            for j in range(uint64(starts[at + 2]), uint64(starts[at + 3])):
                state[uint64(nodes[j].word)] &= nodes[j].mask
        elif value != float32(0) or not skip_zeros:
            for j in range(uint64(starts[at]), uint64(starts[at + 1])):
                if value < nodes[j].threshold:
                    break
                state[uint64(nodes[j].word)] &= nodes[j].mask
            for j in range(uint64(starts[at + 1]), uint64(starts[at + 2])):
                if not value < nodes[j].threshold:
                    break
                state[uint64(nodes[j].word)] &= nodes[j].mask


@kernel(
    int64(
        IN[int64], IN[int32], IN[float32], boolean, IN[int64], _NODES, IN[int64], int64, int64,
        OUT[uint64], OUT[int64], OUT2[uint64],
    )
)  # fmt: skip
def narrowed_exits(
    indptr, features, values, skip_zeros, starts, nodes, word_begin, row_begin, row_end,
    state,      # OUT: scratch, word_begin[-1] words
    positions,  # OUT: row * n_trees + tree, ascending
    masks,      # OUT: their bitvectors, padded with all-ones words
):  # fmt: skip
    """How many (row, tree) pairs of the rows [row_begin, row_end) are not all-ones; writes these."""
    n_trees = len(word_begin) - 1
    state[:] = _ALL
    n = 0
    for row in range(row_begin, row_end):
        _narrow(indptr[row], indptr[row + 1], features, values, skip_zeros, starts, nodes, state)
        for tree in range(n_trees):
            begin = word_begin[tree]
            end = word_begin[tree + 1]
            common = _ALL
            for word in range(begin, end):
                common &= state[word]
            if common != _ALL:
                positions[n] = row * n_trees + tree
                masks[n] = _ALL
                for word in range(begin, end):
                    masks[n, word - begin] = state[word]
                    state[word] = _ALL
                n += 1
    return n


@kernel(boolean(IN[int64], IN2[uint64], IN[int64], IN[float32], OUT[float32]))
def add_exits(
    positions, masks, word_begin, leaf_values,
    margins,  # OUT: each row's leaf values are added, tree by tree
):  # fmt: skip
    """Pairs that are not among `positions` leave by their tree's first leaf. False if `masks`, of as many words as the
    largest tree's bitvector, leave one of them no leaf, or `positions` do not ascend or are not of these rows and trees."""
    n_trees = len(word_begin) - 1
    at = 0
    for row in range(len(margins)):
        margin = margins[row]
        for tree in range(n_trees):
            leaf = 64 * word_begin[tree]
            if at < len(positions) and positions[at] == row * n_trees + tree:
                n_words, word = word_begin[tree + 1] - word_begin[tree], 0
                while word < n_words and masks[at, word] == _ZERO:
                    word += 1
                if word == n_words:
                    return False
                leaf += 64 * word + int64(lowest_one(masks[at, word]))
                at += 1
            margin += leaf_values[leaf]
        margins[row] = margin
    return at == len(positions)

"""Knows bitvectors, node lists and packed trees as arrays; does not know forests, files or what zeros mean.

A forest is scored by blocks of LANES rows, a row to a lane. The state of a block has a bit for each leaf, 8 leaves
to a byte and a byte for each lane: leaf 8 p + b of a tree is bit b of the tree's p-th plane of LANES bytes. The
first leaf that remains is the lowest 1 bit. leaf_values[8 * plane + bit] is the value of a leaf.

Values are compared as codes of one byte: 1 + how many of a key's thresholds are <= the value, 0 if the row does not
store one. A key is a feature, or a part of one that has more than KEY_THRESHOLDS; a feature's keys lie together.
`searches` says where a key's thresholds lie, padded with infinity to whole groups of COUNTED, and before that where
the last of each group is repeated (keys of one group have all-infinite ones there).

The records of a key and a chunk of trees lie in two lists, list i at starts[2 (chunk * n_keys + key) + i]:

    list 0   nodes where unstored goes left:  a record acts in the lanes with        code >= least, least rising
    list 1   nodes where unstored goes right: a record acts in the lanes with 256 - code >= least, if code > 0

To act is `state[plane] &= kept`; a node whose leaves span several planes has a record for each. nan_keys[feature]
is a key whose records act on NaN alone, on the nodes that send it elsewhere than an unstored value; -1 if none do.

Partial bitvectors, which workers send, are made row by row: 64 leaves to a word, a tree's words one after another,
bit b of a tree's word w is its leaf 64 w + b. The nodes of a feature lie in three lists, list i at
starts[3 f + i] .. starts[3 f + i + 1]:

    list 0   unstored goes left,  rising thresholds:  a node acts while value >= threshold
    list 1   unstored goes right, falling thresholds: a node acts while value <  threshold
    list 2   the nodes that a NaN sends elsewhere than an unstored value: they act on NaN

To act is `state[word] &= mask`; a node whose leaves span several words stands in its list once for each.
Hot indices are uint64: numba checks a signed one for being negative, which costs a third of the time here.
"""

import numba
import numpy as np

from psboost.kernels.cells import slot_of
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
    uint16,
    uint64,
    void,
)
from psboost.kernels.lanes import COUNTED, LANES, count_at_most, narrow, negate, take_lowest

NODE = np.dtype([("threshold", np.float32), ("word", np.int32), ("mask", np.uint64)])
# A step of a walk. The right child is left + 1, feature is 2 * position + default_left. A leaf's threshold is
# NaN and its left child the place before it, so that a walk that goes on from a leaf stays there.
STEP = np.dtype([("threshold", np.float32), ("feature", np.int32), ("left", np.int32), ("value", np.float32)])

# What a node does to one plane; see above.
RECORD = np.dtype([("least", np.uint8), ("kept", np.uint8), ("plane", np.uint16)])

KEY_THRESHOLDS = 254
FILTERED = 1024  # columns that are filtered together

_RECORDS = types.Array(numba.from_dtype(RECORD), 1, "C", readonly=True)
_NODES = types.Array(numba.from_dtype(NODE), 1, "C", readonly=True)
_STEPS = types.Array(numba.from_dtype(STEP), 1, "C", readonly=True)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_TWO, _SIX, _EIGHT, _63 = np.uint64(2), np.uint64(6), np.uint64(8), np.uint64(63)
_58 = np.uint64(58)
_LANES, _COUNTED = np.uint64(LANES), np.uint64(COUNTED)
MIX = 0x9E3779B97F4A7C15  # bit `column * MIX >> shift` of the set is 1 for the forest's own features
_MIX = np.uint64(MIX)

# A de Bruijn sequence: its product with 1 << b has b's own pattern in the six highest bits.
_DE_BRUIJN = np.uint64(0x03F79D71B4CB0A89)
_LOWEST = np.zeros(64, np.uint8)
for _bit in range(64):
    _LOWEST[(int(_DE_BRUIJN) << _bit & int(_ALL)) >> 58] = _bit


@inline
def _lowest(word):
    """Number of the lowest 1 bit of a word that is not 0."""
    return int64(_LOWEST[((word & (~word + _ONE)) * _DE_BRUIJN) >> _58])


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


@inline
def _filter(columns, begin, end, members, shift, found):
    """Number of the columns [begin, end) that may be the forest's; found: where these are, from `begin`."""
    n = 0
    for i in range(uint64(begin), uint64(end)):
        bit = (uint64(columns[i]) * _MIX) >> shift
        found[n] = i - uint64(begin)
        n += int64((members[bit >> _SIX] >> (bit & _63)) & _ONE)
    return n


@inline
def _code(thresholds, searches, key, value):
    if searches[_TWO * key] == 0:  # one group of thresholds
        return int64(count_at_most(thresholds, uint64(searches[_TWO * key + _ONE]), value)) + 1
    group = count_at_most(thresholds, uint64(searches[_TWO * key]), value)
    at = uint64(searches[_TWO * key + _ONE]) + _COUNTED * group
    return int64(_COUNTED * group + count_at_most(thresholds, at, value)) + 1


@inline
def _score_block(
    n_touched, starts, records, tree_begin, plane_begin, leaf_values, codes, tops, touched, state, negated, leaves, sums
):
    """Adds each lane's leaf values to its sum, tree by tree; forgets the codes."""
    for chunk in range(len(tree_begin) - 1):
        for i in range(n_touched):
            key = uint64(touched[i])
            top = tops[key]
            where = key * _LANES
            list_0 = _TWO * (uint64(chunk * len(tops)) + key)
            for j in range(uint64(starts[list_0]), uint64(starts[list_0 + _ONE])):
                if records[j].least > top:
                    break
                narrow(state, uint64(records[j].plane) * _LANES, codes, where, records[j].least, records[j].kept)
            begin, end = uint64(starts[list_0 + _ONE]), uint64(starts[list_0 + _TWO])
            if begin < end:
                negate(codes, where, negated)
                for j in range(begin, end):
                    narrow(state, uint64(records[j].plane) * _LANES, negated, _ZERO, records[j].least, records[j].kept)
        first = uint64(plane_begin[tree_begin[chunk]])
        for tree in range(tree_begin[chunk], tree_begin[chunk + 1]):
            begin = uint64(plane_begin[tree])
            take_lowest(state, begin - first, uint64(plane_begin[tree + 1]) - first, leaves)
            for lane in range(LANES):
                sums[lane] += leaf_values[_EIGHT * begin + uint64(leaves[lane])]
    for i in range(n_touched):
        key = uint64(touched[i])
        tops[key] = 0
        for lane in range(LANES):
            codes[key * _LANES + uint64(lane)] = 0


_LOOKUP = (IN[uint64], int64, IN[int64], IN[int32])
_FOREST = (
    IN[float32], IN[int32], IN[int64], IN[int64], IN[int64], _RECORDS, IN[int64], IN[int64], IN[float32],
)  # fmt: skip
_BLOCK = (OUT[uint8], OUT[uint8], OUT[int64], OUT[uint8], OUT[uint8], OUT[uint16], OUT[float32])


@kernel(
    [
        void(IN[int64], IN[index], IN[float32], boolean, *_LOOKUP, IN[int32], OUT[int32], *_FOREST, *_BLOCK, OUT[float32])
        for index in (int32, int64)
    ]
)
def add_scores(
    indptr, columns, values, skip_zeros,
    members, shift, hash_keys, hash_positions,  # a set of bits, and a hash table, of the forest's own features
    places,  # by column: its position in the forest's own features or -1, the last for all beyond; empty: use the table
    found,  # OUT: scratch, FILTERED + 1 places
    thresholds, searches, key_begin, nan_keys, starts, records, tree_begin, plane_begin, leaf_values,
    codes, tops, touched, state, negated, leaves, sums,  # OUT: scratch of a block; codes and tops 0, state all-ones
    margins,  # OUT: each row's leaf values are added, tree by tree
):  # fmt: skip
    direct = len(places) > 0
    beyond = uint64(len(places) - 1)
    for begin in range(0, len(margins), LANES):
        end = min(begin + LANES, len(margins))
        n_touched = 0
        for row in range(begin, end):
            sums[row - begin] = margins[row]
            for first in range(indptr[row], indptr[row + 1], FILTERED):
                last = min(first + FILTERED, indptr[row + 1])
                n_found = last - first if direct else _filter(columns, first, last, members, uint64(shift), found)
                for k in range(uint64(n_found)):
                    if direct:
                        i = uint64(first) + k
                        at = int64(places[min(uint64(columns[i]), beyond)])
                    else:
                        i = uint64(first + found[k])
                        slot = slot_of(hash_keys, columns[i])
                        at = int64(hash_positions[slot]) if hash_keys[slot] >= 0 else -1
                    value = values[i]
                    if at < 0 or (skip_zeros and value == float32(0)):
                        continue
                    position = uint64(at)
                    # No helper from here on: numba counts references to each array that it gets.
                    if value == value:
                        key, end_key = key_begin[position], key_begin[position + _ONE]
                    else:
                        key = nan_keys[position]
                        end_key = key + int64(key >= 0)
                    for own in range(uint64(key), uint64(end_key)):
                        code = _code(thresholds, searches, own, value)
                        codes[own * _LANES + uint64(row - begin)] = code
                        touched[n_touched] = own
                        n_touched += int64(tops[own] == 0)
                        tops[own] = max(int64(tops[own]), code)
        _score_block(
            n_touched, starts, records, tree_begin, plane_begin, leaf_values,
            codes, tops, touched, state, negated, leaves, sums,
        )  # fmt: skip
        for row in range(begin, end):
            margins[row] = sums[row - begin]


@kernel(void(types.Array(float32, 2, "A", readonly=True), boolean, IN[int64], *_FOREST, *_BLOCK, OUT[float32]))
def add_dense_scores(
    X, skip_zeros, features,
    thresholds, searches, key_begin, nan_keys, starts, records, tree_begin, plane_begin, leaf_values,
    codes, tops, touched, state, negated, leaves, sums,  # OUT: as in add_scores
    margins,  # OUT
):  # fmt: skip
    """add_scores of rows that store every cell."""
    for begin in range(0, len(margins), LANES):
        end = min(begin + LANES, len(margins))
        for row in range(begin, end):
            sums[row - begin] = margins[row]
        n_touched = 0
        for position in range(len(features)):
            column = features[position]
            for key in range(uint64(key_begin[position]), uint64(key_begin[position + 1])):
                top = 0
                for row in range(begin, end):
                    value = X[row, column]
                    if value == value and not (skip_zeros and value == float32(0)):
                        code = _code(thresholds, searches, key, value)
                        codes[key * _LANES + uint64(row - begin)] = code
                        top = max(top, code)
                tops[key] = top
                touched[n_touched] = key
                n_touched += int64(top > 0)
            if nan_keys[position] >= 0:
                key = uint64(nan_keys[position])
                for row in range(begin, end):
                    if X[row, column] != X[row, column]:
                        codes[key * _LANES + uint64(row - begin)] = 1
                        tops[key] = 1
                touched[n_touched] = key
                n_touched += int64(tops[key] > 0)
        _score_block(
            n_touched, starts, records, tree_begin, plane_begin, leaf_values,
            codes, tops, touched, state, negated, leaves, sums,
        )  # fmt: skip
        for row in range(begin, end):
            margins[row] = sums[row - begin]


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


@kernel(void(IN[int64], IN2[uint64], IN[int64], IN[float32], OUT[float32]))
def add_exits(
    positions, masks, word_begin, leaf_values,
    margins,  # OUT: each row's leaf values are added, tree by tree
):  # fmt: skip
    """Pairs that are not among `positions` leave by their tree's first leaf."""
    n_trees = len(word_begin) - 1
    at = 0
    for row in range(len(margins)):
        margin = margins[row]
        for tree in range(n_trees):
            leaf = 64 * word_begin[tree]
            if at < len(positions) and positions[at] == row * n_trees + tree:
                word = 0
                while masks[at, word] == _ZERO:
                    word += 1
                leaf += 64 * word + _lowest(masks[at, word])
                at += 1
            margin += leaf_values[leaf]
        margins[row] = margin


@inline
def _step(steps, at, cells, base):
    feature = uint64(steps[at].feature)
    value = cells[base + (feature >> _ONE)]
    by_value = uint64(value < steps[at].threshold)
    by_default = uint64(value != value) & feature
    return uint64(steps[at].left) + (_ONE - (by_value | by_default & _ONE))


@kernel(
    [
        void(IN[int64], IN[index], IN[float32], boolean, *_LOOKUP, OUT[int32], int64, int64, OUT[float32])
        for index in (int32, int64)
    ]
)
def lay_out(
    indptr, columns, values, skip_zeros, members, shift, hash_keys, hash_positions,
    found,  # OUT: scratch, FILTERED + 1 places
    begin, n_features,
    cells,  # OUT: n_features places for each of the rows from `begin` on
):  # fmt: skip
    """Puts stored values into their cells."""
    for row in range(begin, begin + len(cells) // max(n_features, 1)):
        for first in range(indptr[row], indptr[row + 1], FILTERED):
            last = min(first + FILTERED, indptr[row + 1])
            for k in range(_filter(columns, first, last, members, uint64(shift), found)):
                i = uint64(first + found[k])
                slot = slot_of(hash_keys, columns[i])
                if hash_keys[slot] >= 0 and not (skip_zeros and values[i] == float32(0)):
                    cells[uint64((row - begin) * n_features + hash_positions[slot])] = values[i]


@kernel(void(IN[float32], int64, _STEPS, IN[int64], IN[int64], OUT[float32]))
def walk(
    cells, n_features, steps, roots, depths,
    margins,  # OUT: each row's leaf values are added, tree by tree
):  # fmt: skip
    """A few rows, laid out densely (NaN is missing), are walked down each tree in turn.

    The first depths[tree] steps are taken without asking whether a leaf is reached, and none branches on the
    way to go: with no branch to guess wrong, a core works on several rows at once.
    """
    for tree in range(len(roots)):
        for row in range(len(margins)):
            base = uint64(row * n_features)
            at = uint64(roots[tree])
            for _ in range(depths[tree]):
                at = _step(steps, at, cells, base)
            while steps[at].threshold == steps[at].threshold:
                at = _step(steps, at, cells, base)
            margins[row] += steps[at].value

"""Knows which rows of a block reach each node of a forest, a bit for each row; does not know files or what zeros mean.

A forest is scored by blocks of LANES rows, a row to a lane. What its nodes ask is held once for each distinct condition,
(feature, threshold, where NaN goes), as a row of bits: 1 in each lane that goes left. Then a tree takes two operations for
each of its nodes, of all rows at once:

    reached[left] = reached[node] & condition        reached[right] = reached[node] & ~condition

and of the leaves, one of which each lane reaches, it takes the lanes' numbers, whose bits are those of leaf_values.

    conditions        those of feature f are condition_begin[f] .. condition_begin[f+1]
    usual             uint64: a condition's word of 64 lanes whose rows do not store the feature
    branches          a tree's nodes, parents before children, then in `reached` its leaves, as in leaf_values: tree t's
                      nodes are branch_begin[t] .. branch_begin[t+1], its leaves' values from branch_begin[t] + t on

Hot indices are uint64: numba checks a signed one for being negative.
"""

import numba
import numpy as np

from psboost.kernels.column_tables import FILTERED, LOOKUP, filter_columns, is_free, known_of, slot_of
from psboost.kernels.compile import (
    IN,
    OUT,
    boolean,
    float32,
    int32,
    int64,
    kernel,
    optimised,
    types,
    uint8,
    uint64,
    void,
)
from psboost.kernels.lanes import (
    LANES,
    WORDS,
    add_numbered,
    add_widely_numbered,
    fold,
    is_below,
    is_below_or_nan,
    part,
)

# A node of a tree: its condition; where its children's rows of bits lie.
BRANCH = np.dtype([("condition", np.int32), ("left", np.int32), ("right", np.int32)])
MOST_LEAVES = 1 << 16  # that a tree's numbers tell apart
NUMBER_BITS = 18  # as they are folded, 3 at a time
FEW = 16  # values of a feature in a block; with more, all lanes are compared at once

_BRANCHES = types.Array(numba.from_dtype(BRANCH), 1, "C", readonly=True)
_LANES, _WORDS, _FEW = np.uint64(LANES), np.uint64(WORDS), np.uint64(FEW)
_0, _1, _3, _6, _7, _8, _63, _64 = (np.uint64(k) for k in (0, 1, 3, 6, 7, 8, 63, 64))


@optimised
def _lay_out(indptr, columns, values, skip_zeros, places, begin, end, sums, margins, cells):
    """Puts what rows begin .. end store into the cells of a block (add_scores), and their margins into its sums."""
    beyond = uint64(len(places) - 1)
    nowhere = uint64(places[beyond])
    for row in range(begin, end):
        lane = uint64(row - begin)
        sums[lane] = margins[row]
        for i in range(uint64(indptr[row]), uint64(indptr[row + 1])):
            feature, value = uint64(places[min(uint64(columns[i]), beyond)]), values[i]
            feature = nowhere if skip_zeros & (value == float32(0)) else feature
            cells[feature * _LANES + lane] = value


@optimised
def _compare_all(feature, condition_begin, thresholds, nan_left, cells, conditions):
    """The conditions of a feature, from all of its cells."""
    cell = feature * _LANES
    for c in range(uint64(condition_begin[feature]), uint64(condition_begin[feature + _1])):
        for word in range(_WORDS):
            if nan_left[c]:
                conditions[c * _WORDS + word] = is_below_or_nan(cells, cell + word * _64, thresholds[c])
            else:
                conditions[c * _WORDS + word] = is_below(cells, cell + word * _64, thresholds[c])


@optimised
def _compare_few(feature, n, condition_begin, thresholds, nan_left, stored, cells, conditions):
    """The conditions of a feature, which are the usual ones but for n of the lanes."""
    for k in range(n):
        lane = uint64(stored[feature * _FEW + k])
        value, word, bit = cells[feature * _LANES + lane], lane >> _6, _1 << (lane & _63)
        for c in range(uint64(condition_begin[feature]), uint64(condition_begin[feature + _1])):
            goes_left = (value < thresholds[c]) | ((value != value) & nan_left[c])
            at = c * _WORDS + word
            conditions[at] = (conditions[at] & ~bit) | (bit * uint64(goes_left))


@optimised
def _forget(feature, n, condition_begin, usual, unstored, stored, n_stored, cells, conditions):
    """Makes n stored cells of a feature what they are if it is not stored."""
    if n <= _FEW:
        for k in range(n):
            cells[feature * _LANES + uint64(stored[feature * _FEW + k])] = unstored
    else:
        for cell in range(feature * _LANES, (feature + _1) * _LANES):
            cells[cell] = unstored
    for c in range(uint64(condition_begin[feature]), uint64(condition_begin[feature + _1])):
        for word in range(_WORDS):
            conditions[c * _WORDS + word] = usual[c]
    n_stored[feature] = 0


@optimised
def _add_leaves(conditions, branches, branch_begin, leaf_values, reached, planes, sums):
    """Adds each lane's leaf values to its sum, tree by tree."""
    for tree in range(uint64(len(branch_begin) - 1)):
        begin = uint64(branch_begin[tree])
        n = uint64(branch_begin[tree + _1]) - begin
        for node in range(n):
            branch = branches[begin + node]
            part(reached, node, conditions, uint64(branch.condition), uint64(branch.left), uint64(branch.right))
        n_planes, n_rows = _0, n + _1
        while n_rows > _1:
            n_groups = (n_rows + _7) >> _3
            for at in range(_WORDS * (n + n_rows), _WORDS * (n + _8 * n_groups)):
                reached[at] = _0
            fold(reached, n, n_groups, planes, n_planes)
            n_planes += _3
            n_rows = n_groups
        while n_planes > _0 and n >> (n_planes - _1) == _0:
            n_planes -= _1
        if n_planes <= _8:
            add_numbered(planes, n_planes, leaf_values, begin + tree, sums)
        else:
            add_widely_numbered(planes, n_planes, leaf_values, begin + tree, sums)


_FOREST = (
    IN[int64], IN[float32], IN[boolean], IN[uint64], float32, _BRANCHES, IN[int64], IN[float32],
)  # fmt: skip
_BLOCK = (OUT[float32], OUT[uint64], OUT[uint64], OUT[uint64], OUT[float32])


@kernel(
    [
        void(
            IN[int64], IN[index], IN[float32], boolean, *LOOKUP, IN[int32], OUT[int32], *_FOREST,
            OUT[uint8], OUT[int32], OUT[int32], *_BLOCK, OUT[float32],
        )
        for index in (int32, int64)
    ]
)  # fmt: skip
def add_scores(
    indptr, columns, values, skip_zeros,
    members, shift, table,  # a set of bits, and a hash table, of the forest's own features
    places,  # by column: its position in the forest's own features or their number, the last for all beyond; empty: use
             # the table
    found,  # OUT: scratch, FILTERED + 1 places
    condition_begin, thresholds, nan_left, usual, unstored, branches, branch_begin, leaf_values,
    stored, n_stored, touched,  # OUT: scratch: the first FEW lanes that store a feature; how many do: 0; features
    cells,       # OUT: scratch, LANES of each feature, and of one more for what does not count: unstored
    conditions,  # OUT: scratch, rows of bits: the usual ones
    reached,     # OUT: scratch, rows of bits of a tree's nodes and leaves and 7 more; the first one all ones
    planes, sums,  # OUT: scratch: NUMBER_BITS rows of bits; LANES sums
    margins,     # OUT
):  # fmt: skip
    """Adds each tree's leaf value to the margins of CSR rows, LANES rows at a time, tree by tree."""
    direct = len(places) > 0
    beyond, nowhere = uint64(len(places) - 1), uint64(len(condition_begin) - 1)
    for begin in range(0, len(margins), LANES):
        end = min(begin + LANES, len(margins))
        n_touched, last_listed = _0, end
        if direct and indptr[end] - indptr[begin] > FEW * (len(condition_begin) - 1):
            # Most features have more than FEW, it seems. None is counted, which takes a third less time.
            _lay_out(indptr, columns, values, skip_zeros, places, begin, end, sums, margins, cells)
            for feature in range(nowhere):
                touched[feature], n_stored[feature] = feature, LANES
            n_touched, last_listed = nowhere, begin
        for row in range(begin, last_listed):  # as a function, though inlined, this takes a quarter more
            lane = uint64(row - begin)
            sums[lane] = margins[row]
            for first in range(indptr[row], indptr[row + 1], FILTERED):
                last = min(first + FILTERED, indptr[row + 1])
                n_found = last - first if direct else filter_columns(columns, first, last, members, uint64(shift), found)
                for k in range(uint64(n_found)):  # without a branch to guess: what does not count goes to `nowhere`
                    if direct:
                        i = uint64(first) + k
                        feature = uint64(places[min(uint64(columns[i]), beyond)])
                    else:
                        i = uint64(first + found[k])
                        slot = slot_of(table, columns[i])
                        feature = uint64(known_of(table, slot)) if not is_free(table, slot) else nowhere
                    value = values[i]
                    feature = nowhere if skip_zeros & (value == float32(0)) else feature
                    n = uint64(n_stored[feature])
                    cells[feature * _LANES + lane] = value
                    stored[feature * _FEW + min(n, _FEW - _1)] = lane
                    touched[n_touched] = feature
                    n_touched += uint64((n == _0) & (feature != nowhere))
                    n_stored[feature] = n + _1
        for i in range(n_touched):
            feature = uint64(touched[i])
            n = uint64(n_stored[feature])
            if n <= _FEW:
                _compare_few(feature, n, condition_begin, thresholds, nan_left, stored, cells, conditions)
            else:
                _compare_all(feature, condition_begin, thresholds, nan_left, cells, conditions)
        _add_leaves(conditions, branches, branch_begin, leaf_values, reached, planes, sums)
        for i in range(n_touched):
            feature = uint64(touched[i])
            n = uint64(n_stored[feature])
            _forget(feature, n, condition_begin, usual, unstored, stored, n_stored, cells, conditions)
        for row in range(begin, end):
            margins[row] = sums[row - begin]


@kernel(void(types.Array(float32, 2, "A", readonly=True), boolean, IN[int64], *_FOREST, *_BLOCK, OUT[float32]))
def add_dense_scores(
    X, skip_zeros, features,
    condition_begin, thresholds, nan_left, usual, unstored, branches, branch_begin, leaf_values,
    cells, conditions, reached, planes, sums,  # OUT: as in add_scores
    margins,  # OUT
):  # fmt: skip
    """add_scores of rows that store every cell."""
    for begin in range(0, len(margins), LANES):
        end = min(begin + LANES, len(margins))
        for row in range(begin, end):
            sums[row - begin] = margins[row]
        for feature in range(uint64(len(features))):
            column = features[feature]
            for row in range(begin, end):
                value = X[row, column]
                skipped = skip_zeros and value == float32(0)
                cells[feature * _LANES + uint64(row - begin)] = unstored if skipped else value
            _compare_all(feature, condition_begin, thresholds, nan_left, cells, conditions)
        _add_leaves(conditions, branches, branch_begin, leaf_values, reached, planes, sums)
        for row in range(begin, end):
            margins[row] = sums[row - begin]

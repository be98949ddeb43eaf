"""Knows how rows go down trees node by node; does not know files or what zeros mean."""

import numba
import numpy as np

from psboost.kernels.column_tables import FILTERED, LOOKUP, filter_columns, is_free, known_of, slot_of
from psboost.kernels.compile import IN, OUT, boolean, float32, inline, int32, int64, kernel, types, uint64, void

# A step of a walk. The right child is left + 1, feature is 2 * position + default_left. A leaf's threshold is
# NaN and its left child the place before it, so that a walk that goes on from a leaf stays there.
STEP = np.dtype([("threshold", np.float32), ("feature", np.int32), ("left", np.int32), ("value", np.float32)])

_STEPS = types.Array(numba.from_dtype(STEP), 1, "C", readonly=True)
_ONE = np.uint64(1)


@inline
def _step(steps, at, cells, base):
    feature = uint64(steps[at].feature)
    value = cells[base + (feature >> _ONE)]
    by_value = uint64(value < steps[at].threshold)
    by_default = uint64(value != value) & feature
    return uint64(steps[at].left) + (_ONE - (by_value | by_default & _ONE))


@kernel(
    [
        void(IN[int64], IN[index], IN[float32], boolean, *LOOKUP, OUT[int32], int64, int64, OUT[float32])
        for index in (int32, int64)
    ]
)
def lay_out(
    indptr, columns, values, skip_zeros, members, shift, table,
    found,  # OUT: scratch, FILTERED + 1 places
    begin, n_features,
    cells,  # OUT: n_features places for each of the rows from `begin` on
):  # fmt: skip
    """Puts stored values into their cells."""
    for row in range(begin, begin + len(cells) // max(n_features, 1)):
        for first in range(indptr[row], indptr[row + 1], FILTERED):
            last = min(first + FILTERED, indptr[row + 1])
            for k in range(filter_columns(columns, first, last, members, uint64(shift), found)):
                i = uint64(first + found[k])
                slot = slot_of(table, columns[i])
                if not is_free(table, slot) and not (skip_zeros and values[i] == float32(0)):
                    cells[uint64((row - begin) * n_features + known_of(table, slot))] = values[i]


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

"""Knows the cells of CSR rows, and how columns are checked, filtered, counted and looked up; does not know text or files.

Which cells count: `keep_zeros` and `keep_nan` say whether zeros and NaN do, all others do.
"""

import numpy as np

from psboost.kernels.compile import (
    IN,
    OUT,
    boolean,
    float32,
    inline,
    int32,
    int64,
    kernel,
    kernel_for,
    types,
    uint32,
    uint64,
    void,
)
from psboost.kernels.floats import FLOAT32_MAX
from psboost.kernels.prefetch import prefetch

INDICES = {"": int32, "seldom": int64}  # of columns
_AHEAD = 64  # so many cells ahead, a column's count is asked for: 0.8 of the time where there are many columns
FILTERED = 1024  # columns that are filtered together
MIX = 0x9E3779B97F4A7C15  # bit `column * MIX >> shift` of the set is 1 for the columns looked for
LOOKUP = (IN[uint64], int64, IN[int64], IN[int32])  # that set: members, shift; a hash table of them: keys, positions
_ALL = np.uint64(2**64 - 1)
_MIX, _6, _63, _1 = (np.uint64(k) for k in (MIX, 6, 63, 1))


@inline
def does_count(value, keep_zeros, keep_nan):
    return (keep_zeros or value != 0) and (keep_nan or not np.isnan(value))


@kernel_for(
    INDICES,
    signature=lambda index: int64(IN[int64], IN[index], IN[float32], boolean, boolean, OUT[int64], OUT[index], OUT[float32]),
)
def compact(indptr, columns, values, keep_zeros, keep_nan, out_indptr, out_columns, out_values):
    """Number of cells that are left: those that count and whose column is not negative. -0.0 becomes 0.0."""
    n = 0
    out_indptr[0] = 0
    for row in range(len(indptr) - 1):
        for k in range(indptr[row], indptr[row + 1]):
            value = values[k]
            if columns[k] >= 0 and does_count(value, keep_zeros, keep_nan):
                out_columns[n] = columns[k]
                out_values[n] = value if value != 0 else np.float32(0)
                n += 1
        out_indptr[row + 1] = n
    return n


@kernel(int64(IN[float32]))
def first_infinite(values):
    """Position of the first value that float32 cannot hold, -1 if there is none."""
    some = False
    for k in range(len(values)):  # many at once: as a rule there is none
        some |= abs(values[k]) >= FLOAT32_MAX
    if some:
        for k in range(len(values)):
            if abs(values[k]) >= FLOAT32_MAX:
                return k
    return -1


@kernel_for(INDICES, signature=lambda index: types.UniTuple(int64, 2)(IN[int64], IN[index], int64))
def check_rows(indptr, columns, n_features):
    """(position of the first column outside 0 .. n_features or -1, 1 if each row's columns ascend else 0)."""
    most = int64(_ALL >> uint64(65 - 8 * columns.itemsize))  # np.iinfo would load 10 MB of what compiles kernels
    highest = columns.dtype.type(min(n_features - 1, most))
    outside = False
    for k in range(uint64(len(columns))):  # many at once, as below
        outside |= (columns[k] < 0) | (columns[k] > highest)
    if outside:
        for k in range(len(columns)):
            if columns[k] < 0 or columns[k] > highest:
                return k, 0
    descends = False
    for row in range(len(indptr) - 1):
        for k in range(uint64(indptr[row]) + uint64(1), uint64(indptr[row + 1])):
            descends |= columns[k] <= columns[k - uint64(1)]
    return -1, 0 if descends else 1


@kernel_for(INDICES, signature=lambda index: void(IN[index], IN[float32], boolean, boolean, OUT[uint32]))
def count_by_table(columns, values, keep_zeros, keep_nan, counts):
    """Add the cells that count, per column, to `counts`; columns beyond it are left out."""
    n_cells = len(columns)
    for k in range(n_cells):
        if k + _AHEAD < n_cells:
            prefetch(counts, uint64(columns[k + _AHEAD]))
        if columns[k] < len(counts) and does_count(values[k], keep_zeros, keep_nan):
            counts[columns[k]] += uint32(1)


# Hash tables for columns that are too many or too far apart for a table: open addressing, a power of two of
# slots, -1 where a slot is free, never more than half full.


@inline
def slot_of(keys, column):
    """Slot of `column` in `keys`: where it is, or the free one where it belongs."""
    last = np.uint64(len(keys) - 1)
    mixed = np.uint64(column) * _MIX
    slot = (mixed ^ (mixed >> np.uint64(32))) & last
    while keys[slot] != column and keys[slot] != -1:
        slot = (slot + np.uint64(1)) & last
    return slot


@kernel_for(
    INDICES,
    signature=lambda index: types.UniTuple(int64, 2)(
        IN[index], IN[float32], boolean, boolean, int64, int64, int64, OUT[int64], OUT[int64]
    ),
)
def count_by_hash(columns, values, keep_zeros, keep_nan, lowest, begin, n_keys, keys, counts):
    """(end, n_keys): count those of the cells begin .. end that count, in columns >= lowest; stops if it is half full."""
    for k in range(begin, len(columns)):
        if columns[k] < lowest or not does_count(values[k], keep_zeros, keep_nan):
            continue
        slot = slot_of(keys, columns[k])
        if keys[slot] == -1:
            if 2 * (n_keys + 1) > len(keys):
                return k, n_keys
            keys[slot] = columns[k]
            n_keys += 1
        counts[slot] += 1
    return len(columns), n_keys


@kernel_for(INDICES, signature=lambda payload: void(IN[int64], IN[payload], OUT[int64], OUT[payload]))
def fill_hash(columns, payloads, keys, out_payloads):
    """Put distinct columns with their payloads into an empty hash table; negative columns are left out."""
    for k in range(len(columns)):
        if columns[k] >= 0:
            slot = slot_of(keys, columns[k])
            keys[slot] = columns[k]
            out_payloads[slot] = payloads[k]


@kernel_for(INDICES.values(), signature=lambda index: void(IN[index], IN[int32], OUT[int32]))
def locate_by_table(columns, table, out):
    """out[k] = table[columns[k]], -1 beyond the table."""
    for k in range(len(columns)):
        out[k] = table[columns[k]] if columns[k] < len(table) else -1


@kernel_for(INDICES, signature=lambda index: void(IN[index], IN[int64], IN[int32], OUT[int32]))
def locate_by_hash(columns, keys, payloads, out):
    """out[k] = the payload of columns[k], -1 for one that is not in the hash table."""
    for k in range(len(columns)):
        slot = slot_of(keys, columns[k])
        out[k] = payloads[slot] if keys[slot] != -1 else -1


@inline
def filter_columns(columns, begin, end, members, shift, found):
    """Number of the columns [begin, end) that may be among those looked for; found: where these are, from `begin`."""
    n = 0
    for i in range(uint64(begin), uint64(end)):
        bit = (uint64(columns[i]) * _MIX) >> shift
        found[n] = i - uint64(begin)
        n += int64((members[bit >> _6] >> (bit & _63)) & _1)
    return n

"""Knows how columns are counted and looked up by their numbers, in tables and hash tables; does not know rows.

A hash table is for columns that are too many, or too far apart, for a table: open addressing with linear probing.

    table   int64 (2 * n_slots), n_slots a power of two: at 2 s slot s has a column, -1 if it is free; and behind that, in
            the same line of memory, what is known of the column. At most half of the slots are taken.
"""

from psboost.kernels.cells import INDICES, does_count
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
from psboost.kernels.prefetch import prefetch

FILTERED = 1024  # columns that are filtered together
MIX = 0x9E3779B97F4A7C15  # bit `column * MIX >> shift` of the set is 1 for the columns looked for
LOOKUP = (IN[uint64], int64, IN[int64])  # that set: members, shift; a hash table of them
_AHEAD = uint64(64)  # so many columns ahead, where one of them is counted or found is asked for
_MIX, _0, _1, _2, _6, _32, _63 = (uint64(k) for k in (MIX, 0, 1, 2, 6, 32, 63))


@inline
def _home(table, column):
    """Where a column's slot begins in a hash table if no other column's is there."""
    mixed = uint64(column) * _MIX
    return ((mixed ^ (mixed >> _32)) << _1) & uint64(len(table) - 2)


@inline
def slot_of(table, column):
    """Where the slot of a column begins in a hash table, or the free one where it belongs."""
    slot = _home(table, column)
    while table[slot] != column and table[slot] != -1:
        slot = (slot + _2) & uint64(len(table) - 2)
    return slot


@kernel_for(
    INDICES,
    signature=lambda index: types.UniTuple(int64, 2)(
        IN[index], IN[float32], boolean, boolean, int64, int64, OUT[uint32], OUT[int64]
    ),
)
def count_columns(columns, values, keep_zeros, keep_nan, begin, n_keys, counts, table):
    """Counts the cells from `begin` on that count (kernels.cells), per column: of columns below len(counts) in `counts`, of
    others in a hash table, which has n_keys of them. Returns (end, n_keys): stops before one that would fill more than half.
    """
    n_cells = uint64(len(columns))
    for k in range(uint64(begin), n_cells):
        if k + _AHEAD < n_cells:
            later = columns[k + _AHEAD]
            if later < len(counts):
                prefetch(counts, uint64(later))
            else:
                prefetch(table, _home(table, later))
        column = columns[k]
        if not does_count(values[k], keep_zeros, keep_nan):
            continue
        if column < len(counts):
            counts[uint64(column)] += uint32(1)
            continue
        slot = slot_of(table, column)
        if table[slot] == -1:
            if 4 * (n_keys + 1) > len(table):
                return int64(k), n_keys
            table[slot] = column
            n_keys += 1
        table[slot + _1] += 1
    return int64(n_cells), n_keys


@kernel(void(IN[int64], OUT[int64]))
def fill_hash(slots, table):
    """Puts the columns of `slots`, of which none is twice or there already, and what is known of them into a hash table."""
    n = uint64(len(slots))
    for k in range(_0, n, _2):
        if k + _2 * _AHEAD < n:
            prefetch(table, _home(table, slots[k + _2 * _AHEAD]))
        if slots[k] != -1:
            slot = slot_of(table, slots[k])
            table[slot], table[slot + _1] = slots[k], slots[k + _1]


@kernel_for(INDICES.values(), signature=lambda index: void(IN[index], IN[int32], OUT[int32]))
def locate_by_table(columns, table, out):
    """out[k] = table[columns[k]], -1 beyond the table."""
    for k in range(len(columns)):
        out[k] = table[columns[k]] if columns[k] < len(table) else -1


@kernel_for(INDICES, signature=lambda index: void(IN[index], IN[int64], OUT[int32]))
def locate_by_hash(columns, table, out):
    """out[k] = what the hash table knows of columns[k], -1 for one that is not in it."""
    n = uint64(len(columns))
    for k in range(n):
        if k + _AHEAD < n:
            prefetch(table, _home(table, columns[k + _AHEAD]))
        slot = slot_of(table, columns[k])
        out[k] = table[slot + _1] if table[slot] != -1 else -1


@inline
def filter_columns(columns, begin, end, members, shift, found):
    """Number of the columns [begin, end) that may be among those looked for; found: where these are, from `begin`."""
    n = 0
    for i in range(uint64(begin), uint64(end)):
        bit = (uint64(columns[i]) * _MIX) >> shift
        found[n] = i - uint64(begin)
        n += int64((members[bit >> _6] >> (bit & _63)) & _1)
    return n

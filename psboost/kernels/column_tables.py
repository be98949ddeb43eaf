"""Knows how columns are counted and looked up by their numbers, in tables and hash tables; does not know rows.

A hash table is for columns that are too many, or too far apart, for a table: open addressing with linear probing. Its slots,
a power of two of which at most half are taken, hold a column and what is known of it, a whole number, in the same line of
memory:

    narrow  uint64 (n_slots): column << 32 | known, for columns below 2^32, as most are; all bits are 1 where a slot is free
    wide    int64 (2 * n_slots): column, known; -1 and anything where it is free
"""

from numba.extending import overload

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
SLOTS = {"": uint64, "seldom": int64}  # narrow and wide
FREE = uint64(2**64 - 1)  # what is in a free slot, or in its first word
_MIX, _0, _1, _6, _32, _63, _LOW = (uint64(k) for k in (MIX, 0, 1, 6, 32, 63, 2**32 - 1))


def _words(table):
    """How many words a slot has: known when a kernel is compiled."""
    return uint64(1 if table.dtype == "uint64" else 2)


@overload(_words, jit_options={"forceinline": True})
def _compiled_words(table):
    n = 1 if table.dtype == uint64 else 2
    return lambda table: uint64(n)


@inline
def _column(table, slot):
    """The column of a slot that is not free."""
    return uint64(table[slot]) >> (_32 if _words(table) == _1 else _0)


@inline
def is_free(table, slot):
    return uint64(table[slot]) == FREE


@inline
def known_of(table, slot):
    """What is known of the column of a slot."""
    return int64(uint64(table[slot]) & _LOW if _words(table) == _1 else uint64(table[slot + _1]))


@inline
def _put(table, slot, column, known):
    """Writes what is known of a column to its slot, or to the free one where it belongs."""
    if _words(table) == _1:
        table[slot] = uint64(column) << _32 | uint64(known)
    else:
        table[slot], table[slot + _1] = column, known


@inline
def _home(table, column):
    """Where a column's slot begins in a hash table if no other column's is there."""
    mixed = uint64(column) * _MIX
    return (mixed ^ (mixed >> _32)) * _words(table) & (uint64(len(table)) - _words(table))


@inline
def slot_of(table, column):
    """Where the slot of a column begins in a hash table, or the free one where it belongs."""
    slot = _home(table, column)
    while _column(table, slot) != uint64(column) and not is_free(table, slot):
        slot = (slot + _words(table)) & (uint64(len(table)) - _words(table))
    return slot


@kernel_for(
    INDICES, SLOTS,
    signature=lambda index, slots: types.UniTuple(int64, 2)(
        IN[index], IN[float32], boolean, boolean, int64, int64, OUT[uint32], OUT[slots]
    ),
)  # fmt: skip
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
        n = known_of(table, slot)
        if is_free(table, slot):
            if 2 * (n_keys + 1) * int64(_words(table)) > len(table):
                return int64(k), n_keys
            n, n_keys = int64(0), n_keys + 1
        _put(table, slot, column, n + 1)
    return int64(n_cells), n_keys


@kernel(
    [void(IN[slots], OUT[table]) for slots, table in ((uint64, uint64), (int64, uint64), (int64, int64))],
    seldom=[void(IN[uint64], OUT[int64])],
)
def fill_hash(slots, table):
    """Puts the columns of `slots`, of which none is twice or there already, and what is known of them into a hash table."""
    n, words = uint64(len(slots)), _words(slots)
    for k in range(_0, n, words):
        later = k + words * _AHEAD
        if later < n:
            prefetch(table, _home(table, _column(slots, later)))
        if not is_free(slots, k):
            column = _column(slots, k)
            _put(table, slot_of(table, column), column, known_of(slots, k))


@kernel_for(INDICES.values(), signature=lambda index: void(IN[index], IN[int32], OUT[int32]))
def locate_by_table(columns, table, out):
    """out[k] = table[columns[k]], -1 beyond the table."""
    for k in range(len(columns)):
        out[k] = table[columns[k]] if columns[k] < len(table) else -1


@kernel_for(INDICES, SLOTS, signature=lambda index, slots: void(IN[index], IN[slots], OUT[int32]))
def locate_by_hash(columns, table, out):
    """out[k] = what the hash table knows of columns[k], -1 for one that is not in it."""
    n = uint64(len(columns))
    for k in range(n):
        if k + _AHEAD < n:
            prefetch(table, _home(table, columns[k + _AHEAD]))
        slot = slot_of(table, columns[k])
        out[k] = known_of(table, slot) if not is_free(table, slot) else -1


@inline
def filter_columns(columns, begin, end, members, shift, found):
    """Number of the columns [begin, end) that may be among those looked for; found: where these are, from `begin`."""
    n = 0
    for i in range(uint64(begin), uint64(end)):
        bit = (uint64(columns[i]) * _MIX) >> shift
        found[n] = i - uint64(begin)
        n += int64((members[bit >> _6] >> (bit & _63)) & _1)
    return n

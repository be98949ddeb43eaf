"""Knows tables by column number: where a column is wanted, how often it is stored; does not know rows or where they are."""

import numpy as np

from psboost.data import zeros
from psboost.kernels import column_tables as kernels

TABLE_COLUMNS = 1 << 22  # columns below are counted in a table, the others in a hash table
LOOKUP_COLUMNS = 1 << 26  # no lookup table is longer
PIECE_COLUMNS = 1 << 16  # as many are put into a hash table at a time
NARROW, WIDE = np.dtype(np.uint64), np.dtype(np.int64)  # slots of hash tables (kernels.column_tables)
NARROW_COLUMNS = 1 << 32  # columns below fit into narrow slots
_GROWTH = 4  # a full hash table is moved into one so many times as large
_KNOWN_BITS, _KNOWN = np.uint64(32), np.uint64(2**32 - 1)  # of narrow slots


class ColumnLookup:
    """Position of a column in `keep`, by a table, or by a hash table if keep's columns lie far apart."""

    def __init__(self, keep: np.ndarray):
        """keep: int64, distinct columns."""
        longest = min(LOOKUP_COLUMNS, max(1 << 16, 16 * len(keep)))
        n_columns = int(keep.max(initial=-1)) + 1
        self._is_direct = n_columns <= longest
        if self._is_direct:
            self._table = np.full(n_columns, -1, np.int32)
            self._table[keep] = np.arange(len(keep), dtype=np.int32)
        else:
            self._table = hash_of(keep, len(keep), _slots_for(n_columns))

    def locate(self, columns: np.ndarray) -> np.ndarray:
        """int32 positions of `columns` in keep, -1 for those that are not in it."""
        out = np.empty(len(columns), np.int32)
        locate = kernels.locate_by_table if self._is_direct else kernels.locate_by_hash
        locate(columns, self._table, out)
        return out


class ColumnCounter:
    """Counts the stored cells of each column: low columns in a table, high ones in a hash table."""

    def __init__(self, zero_as_missing: zeros.Rule | None):
        self._kept = zeros.keeps_zeros(zero_as_missing), zeros.keeps_nan(zero_as_missing)
        self._counts = np.zeros(0, np.uint32)  # no column has more rows than that
        self._hash, self._n_keys = _empty_hash(0, NARROW), 0

    def add(self, columns: np.ndarray, values: np.ndarray) -> None:
        """Counts cells: columns int32 or int64, values float32."""
        n_columns = int(columns.max(initial=-1)) + 1
        n_low = min(n_columns, TABLE_COLUMNS)
        if n_low > len(self._counts):
            longer = min(TABLE_COLUMNS, max(n_low, 2 * len(self._counts)))
            self._counts = np.concatenate([self._counts, np.zeros(longer - len(self._counts), self._counts.dtype)])
        if self._hash.dtype == NARROW != _slots_for(n_columns):
            self._move(_empty_hash(self._n_keys, WIDE))
        at = 0
        while at < len(columns):
            at, self._n_keys = kernels.count_columns(
                columns, values, *self._kept, at, self._n_keys, self._counts, self._hash
            )
            if at < len(columns):
                self._move(_empty_hash(_GROWTH * self._n_keys, self._hash.dtype))

    def _move(self, table: np.ndarray) -> None:
        """Has what is in the hash table in this one from now on."""
        kernels.fill_hash(self._hash, table)
        self._hash = table

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """(features, counts), int64: the columns that are stored, ascending, and how often."""
        low = np.flatnonzero(self._counts)
        high, counts = _sorted_slots(self._hash)
        return np.concatenate([low, high]), np.concatenate([self._counts[low].astype(np.int64), counts])


def hash_of(columns: np.ndarray, most: int, slots: np.dtype) -> np.ndarray:
    """A hash table of distinct columns (int64) and their positions, with room for `most` of them."""
    table = _empty_hash(most, slots)
    for begin in range(0, len(columns), PIECE_COLUMNS):
        some = columns[begin : begin + PIECE_COLUMNS]
        kernels.fill_hash(np.column_stack([some, np.arange(begin, begin + len(some))]).reshape(-1), table)
    return table


def _slots_for(n_columns: int) -> np.dtype:
    return NARROW if n_columns <= NARROW_COLUMNS else WIDE


def _empty_hash(most: int, slots: np.dtype) -> np.ndarray:
    """An empty hash table with room for `most` columns, or some more."""
    n_slots = 1 << (2 * max(most, 8) - 1).bit_length()
    if slots == NARROW:
        return np.full(n_slots, kernels.FREE)
    table = np.zeros((n_slots, 2), WIDE)
    table[:, 0] = -1
    return table.reshape(-1)


def _sorted_slots(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(columns, what is known of them), int64, of a hash table, columns ascending."""
    if table.dtype == NARROW:
        taken = table[table != kernels.FREE]
        taken.sort()
        return (taken >> _KNOWN_BITS).astype(np.int64), (taken & _KNOWN).astype(np.int64)
    taken = np.flatnonzero(table[::2] != -1)
    columns, known = table[::2][taken], table[1::2][taken]
    del taken
    order = _order_of(columns)
    return columns[order], known[order]


def _order_of(columns: np.ndarray) -> np.ndarray:
    """np.argsort of columns, int64 >= 0: with their places in the same integers where they fit, in a third of the time."""
    place_bits = len(columns).bit_length()
    if place_bits + int(columns.max(initial=0)).bit_length() > 63:
        return np.argsort(columns)
    order = columns << place_bits
    order |= np.arange(len(columns))
    order.sort()
    order &= (1 << place_bits) - 1
    return order

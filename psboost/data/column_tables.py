"""Knows tables by column number: where a column is wanted, how often it is stored; does not know rows or where they are."""

import numpy as np

from psboost.data import zeros
from psboost.kernels import cells as kernels

TABLE_COLUMNS = 1 << 22  # columns below are counted in a table, the others in a hash table
LOOKUP_COLUMNS = 1 << 26  # no lookup table is longer


class ColumnLookup:
    """Position of a column in `keep`, by a table, or by a hash table if keep's columns lie far apart."""

    def __init__(self, keep: np.ndarray):
        """keep: int64, distinct columns."""
        keep = np.ascontiguousarray(keep, np.int64)
        longest = min(LOOKUP_COLUMNS, max(1 << 16, 16 * len(keep)))
        positions = np.arange(len(keep), dtype=np.int32)
        n_columns = int(keep.max(initial=-1)) + 1
        self._table = self._keys = None
        if n_columns <= longest:
            self._table = np.full(n_columns, -1, np.int32)
            self._table[keep] = positions
        else:
            self._keys, self._positions = _empty_hash(len(keep), np.int32)
            kernels.fill_hash(keep, positions, self._keys, self._positions)

    def locate(self, columns: np.ndarray) -> np.ndarray:
        """int32 positions of `columns` in keep, -1 for those that are not in it."""
        out = np.empty(len(columns), np.int32)
        if self._table is not None:
            kernels.locate_by_table(columns, self._table, out)
        else:
            kernels.locate_by_hash(columns, self._keys, self._positions, out)
        return out


class ColumnCounter:
    """Counts the stored cells of each column: low columns in a table, high ones in a hash table."""

    def __init__(self, zero_as_missing: zeros.Rule | None):
        self._kept = zeros.keeps_zeros(zero_as_missing), zeros.keeps_nan(zero_as_missing)
        self._table = np.zeros(0, np.uint32)  # no column has more rows than that
        self._keys, self._counts = _empty_hash(0, np.int64)
        self._n_keys = 0

    def add(self, columns: np.ndarray, values: np.ndarray) -> None:
        """Counts cells: columns int32 or int64, values float32."""
        n_columns = int(columns.max(initial=-1)) + 1
        n_low = min(n_columns, TABLE_COLUMNS)
        if n_low > len(self._table):
            longer = min(TABLE_COLUMNS, max(n_low, 2 * len(self._table)))
            self._table = np.concatenate([self._table, np.zeros(longer - len(self._table), self._table.dtype)])
        kernels.count_by_table(columns, values, *self._kept, self._table)
        at = 0 if n_columns > TABLE_COLUMNS else len(columns)
        while at < len(columns):
            table = (self._n_keys, self._keys, self._counts)
            at, self._n_keys = kernels.count_by_hash(columns, values, *self._kept, TABLE_COLUMNS, at, *table)
            if at < len(columns):
                keys, counts = self._keys, self._counts
                self._keys, self._counts = _empty_hash(len(keys), np.int64)
                kernels.fill_hash(keys, counts, self._keys, self._counts)

    def result(self) -> tuple[np.ndarray, np.ndarray]:
        """(features, counts), int64: the columns that are stored, ascending, and how often."""
        low = np.flatnonzero(self._table)
        high = np.flatnonzero(self._keys >= 0)
        high = high[np.argsort(self._keys[high])]
        features = np.concatenate([low, self._keys[high]])
        return features, np.concatenate([self._table[low].astype(np.int64), self._counts[high]])


def _empty_hash(n_keys, dtype):
    """(keys, payloads) of an empty hash table that n_keys fill to less than a half."""
    n_slots = 1 << (2 * max(n_keys, 8) - 1).bit_length()
    return np.full(n_slots, -1, np.int64), np.zeros(n_slots, dtype)

"""Knows stored values by row and by column; does not know bins, labels or where the values came from."""

from dataclasses import dataclass

import numpy as np

from psboost.errors import DataError
from psboost.kernels import columns as kernels

MAX_INT32 = np.iinfo(np.int32).max


@dataclass(frozen=True)
class Columns:
    """The stored values of one block, column by column.

    offsets  int64 (n_features + 1): column f's entries are offsets[f] .. offsets[f+1]
    rows     int32 (n): ascending within a column
    values   float32 (n)
    """

    n_rows: int
    n_features: int
    offsets: np.ndarray
    rows: np.ndarray
    values: np.ndarray


def to_columns(indptr: np.ndarray, features: np.ndarray, values: np.ndarray, n_features: int) -> Columns:
    """The columns of CSR rows: indptr int64 (n_rows + 1), features int32 in [0, n_features), values float32.

    A row holds a feature at most once. Raises DataError if the arrays do not fit together.
    """
    n_rows = len(indptr) - 1
    if n_rows < 0 or n_rows > MAX_INT32 or not 0 <= n_features <= MAX_INT32:
        raise DataError(f"a block of {n_rows} rows x {n_features} features: use more row or feature shards")
    if indptr[0] != 0 or indptr[-1] != len(features) or len(values) != len(features):
        raise DataError(
            f"rows of {indptr[-1] - indptr[0]} stored values come with {len(features)} feature numbers "
            f"and {len(values)} values"
        )
    if n_rows and int(np.diff(indptr).min()) < 0:
        raise DataError(f"row {int(np.diff(indptr).argmin())} ends before it begins")
    least, greatest = (int(features.min()), int(features.max())) if len(features) else (0, -1)
    if least < 0 or greatest >= n_features:
        raise DataError(f"feature numbers {least}..{greatest} in a block of {n_features} features")
    offsets = np.zeros(n_features + 1, np.int64)
    kernels.count_features(features, offsets[1:])
    np.cumsum(offsets, out=offsets)
    rows = np.empty(len(features), np.int32)
    column_values = np.empty(len(features), np.float32)
    kernels.scatter_columns(indptr, features, values, offsets[:-1].copy(), rows, column_values)
    return Columns(n_rows, n_features, offsets, rows, column_values)

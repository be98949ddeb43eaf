"""Knows what a source hands over: cells, rows, columns, and how often each column is stored; does not know where from."""

from dataclasses import dataclass

import numpy as np

from psboost.data.bundles import Bundles
from psboost.data.columns import Columns, DenseColumns


@dataclass(frozen=True)
class Rows:
    """Rows of a source: CSR of stored values.

    indptr      int64 (n_rows + 1)
    features    int64: columns, zero-based; when read with `keep`, int32: positions in `keep`
    values      float32
    labels      float64 (n_rows), None when the source has none
    weights     float64 (n_rows) or None
    n_features  the declared width, or 1 + the largest column in what was parsed, kept or not
    bytes_read  from disk, for this call
    """

    indptr: np.ndarray
    features: np.ndarray
    values: np.ndarray
    labels: np.ndarray | None
    weights: np.ndarray | None
    n_features: int
    bytes_read: int

    @property
    def n_rows(self) -> int:
        return len(self.indptr) - 1


@dataclass(frozen=True)
class Counts:
    """What a span stores.

    span          the span itself
    features      int64, ascending: the columns in which something is stored
    counts        int64: how many cells are
    n_values      the sum of counts; the other fields are as in Rows
    stores_zeros  whether a zero is stored, counted or not
    borders       of its columns' bundles (data.bundles), None where there are none worth knowing
    value         what all stored cells have (OnlyValue), where a source looks for it
    """

    span: tuple[int, int]
    features: np.ndarray
    counts: np.ndarray
    n_rows: int
    n_values: int
    n_features: int
    labels: np.ndarray | None
    weights: np.ndarray | None
    bytes_read: int
    stores_zeros: bool
    borders: np.ndarray | None
    value: np.float32 | None = None

    @staticmethod
    def join(parts: list["Counts"]) -> "Counts":
        """What spans that follow each other store together."""
        if len(parts) == 1:
            return parts[0]
        features, counts = sum_counts([part.features for part in parts], [part.counts for part in parts])
        return Counts(
            span=(parts[0].span[0], parts[-1].span[1]),
            features=features,
            counts=counts,
            n_rows=sum(part.n_rows for part in parts),
            n_values=sum(part.n_values for part in parts),
            n_features=max(part.n_features for part in parts),
            **rest_of(parts),
            stores_zeros=any(part.stores_zeros for part in parts),
            borders=Bundles.join(part.borders for part in parts),
        )


def sum_counts(features: list[np.ndarray], counts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(features, counts): the sums of counts of features, int64, distinct and ascending in each."""
    if len(features) == 1:
        return features[0], counts[0]
    features, counts = np.concatenate(features), np.concatenate(counts)
    if len(features) == 0:
        return features, counts
    order = np.argsort(features, kind="stable")
    features, counts = features[order], counts[order]
    first = np.flatnonzero(np.concatenate([[True], features[1:] != features[:-1]]))
    return features[first], np.add.reduceat(counts, first)


@dataclass(frozen=True)
class Held:
    """Some rows, column by column.

    columns    of the columns that were asked for, in that order; the other fields are as in Rows
    """

    columns: Columns | DenseColumns
    labels: np.ndarray | None
    weights: np.ndarray | None
    bytes_read: int


@dataclass(frozen=True)
class Cells:
    """A piece of a span as a source hands it over, stored zeros and NaN still in it.

    indptr int64 (n_rows + 1), columns int32 or int64, values float32 (finite or NaN), labels and weights
    float64 (n_rows) or None; n_features and bytes_read of this piece alone.
    """

    indptr: np.ndarray
    columns: np.ndarray
    values: np.ndarray
    labels: np.ndarray | None
    weights: np.ndarray | None
    n_features: int
    bytes_read: int


@dataclass(frozen=True)
class DenseCells:
    """A piece of a span that stores every cell: values float32 (n_rows, n_columns), finite or NaN, in any layout."""

    values: np.ndarray
    n_features: int


def joined(arrays: list) -> np.ndarray | None:
    """One array of several, None if they are None; does not copy a single one."""
    return arrays[0] if len(arrays) == 1 or arrays[0] is None else np.concatenate(arrays)


def rest_of(parts: list) -> dict:
    """labels, weights and bytes_read of rows that come in parts."""
    return {
        "labels": joined([part.labels for part in parts]),
        "weights": joined([part.weights for part in parts]),
        "bytes_read": sum(part.bytes_read for part in parts),
    }

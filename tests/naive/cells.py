"""Knows what psboost/kernels/cells.py computes, in the slowest, plainest form; does not know numba.

Columns and values are Python lists.
"""

import numpy as np


def is_stored(value, zero_as_missing) -> bool:
    if np.isnan(value):
        return zero_as_missing is False
    return value != 0 or zero_as_missing in (None, "unstored")


def compact(rows, zero_as_missing):
    """`rows` (columns, values) without the cells that are not stored or whose column is negative."""
    kept = [
        [(c, v) for c, v in zip(columns, values, strict=True) if c >= 0 and is_stored(v, zero_as_missing)]
        for columns, values in rows
    ]
    return [([c for c, _ in row], [v for _, v in row]) for row in kept]


def count(rows, zero_as_missing) -> dict[int, int]:
    counts = {}
    for columns, values in rows:
        for column, value in zip(columns, values, strict=True):
            if is_stored(value, zero_as_missing):
                counts[column] = counts.get(column, 0) + 1
    return dict(sorted(counts.items()))


def locate(columns, keep) -> list[int]:
    return [keep.index(column) if column in keep else -1 for column in columns]

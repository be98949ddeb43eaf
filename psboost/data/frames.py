"""Knows data frames of pandas, without importing it: the matrix that one is, and its columns' names; not what is learnt."""

from typing import Any

import numpy as np

from psboost.errors import DataError


def is_frame(data) -> bool:
    return hasattr(data, "iloc") and data.ndim == 2


def matrix_of(frame) -> Any:
    """What a data frame of pandas holds, NA as NaN: sparse, if all its columns are, and hold zeros where they store nothing.
    DataError names the columns that hold no numbers."""
    kinds = list(frame.dtypes)
    wrong = [i for i, kind in enumerate(kinds) if kind.kind not in "biuf" and not _holds_numbers(frame.iloc[:, i])]
    if wrong:
        names = ", ".join(repr(frame.columns[i]) for i in wrong)
        raise DataError(f"X holds no numbers in column {names:.200}: make numbers of them, or a column of each category")
    if kinds and hasattr(frame, "sparse") and all(kind.fill_value == 0 for kind in kinds):
        alike = frame if len(set(kinds)) == 1 else frame.astype(type(kinds[0])(np.float64, 0))
        return alike.sparse.to_coo()
    matrix = np.asarray(frame)
    return frame.to_numpy(np.float64, na_value=np.nan) if matrix.dtype == object else matrix


def _holds_numbers(column) -> bool:
    """Whether the objects of a data frame's column are numbers, or NA."""
    if column.dtype.kind != "O":
        return False
    try:
        column.to_numpy(np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        return False
    return True


def names_of(data) -> tuple[str, ...] | None:
    """The columns' names, as XGBoost spells them, of a data frame that did not just number them."""
    columns = getattr(data, "columns", ())
    if hasattr(columns, "step") or not (is_frame(data) or all(isinstance(name, str) for name in columns)):
        return None  # pandas.RangeIndex, and what is no data frame
    return tuple(" ".join(map(str, name)) if isinstance(name, tuple) else str(name) for name in columns) or None

"""Knows ranges of columns of which no row stores two; does not know who gets them.

One-hot data are made of such ranges, one for each category: what LightGBM finds as exclusive feature bundles, where columns
that exclude each other also lie side by side.
"""

from collections.abc import Iterable

import numpy as np

from psboost.kernels import bundles as kernels


class Bundles:
    """The fewest that were found for rows which come piece by piece: not always the fewest there are.

    borders  int64 (n, 2): one bundle ends, and the next begins, behind column borders[i, 0] and not behind borders[i, 1];
             None: there are more than kernels.bundles.MOST_BORDERS
    """

    def __init__(self) -> None:
        self._n, self._between = 0, np.empty((kernels.MOST_BORDERS, 2), np.int64)

    def add(self, indptr: np.ndarray, columns: np.ndarray) -> None:
        """Rows: indptr int64 (n_rows + 1), from 0 on; columns int32 or int64, ascending in each row."""
        if self._n != kernels.TOO_MANY:
            self._n = kernels.part_rows(indptr, columns, self._n, self._between)

    @property
    def borders(self) -> np.ndarray | None:
        return None if self._n == kernels.TOO_MANY else self._between[: self._n]

    @staticmethod
    def join(parts: Iterable[np.ndarray | None]) -> np.ndarray | None:
        """The borders for all rows, of those for some of them each."""
        joined = Bundles()
        for borders in parts:
            if borders is None:
                return None
            joined.add(np.arange(0, borders.size + 1, 2), borders.reshape(-1))  # each border as a row of two columns
        return joined.borders


def bundles_of(borders: np.ndarray, features: np.ndarray) -> np.ndarray:
    """int64: the number of the bundle of each feature."""
    return np.searchsorted(borders[:, 1], features, side="right")

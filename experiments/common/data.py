"""Knows where an experiment's rows come from: a seeded generator or a file; does not know what is done with them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from sklearn.datasets import load_svmlight_file

from experiments.speed.shapes import SHAPES, make


@dataclass(frozen=True)
class Data:
    """Training rows, and test rows of the same truth: CSR or dense, with labels 0 or 1."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray


def load(spec: dict) -> Data:
    """The data that an entry of [data] asks for; the last ones are kept for the next run."""
    return _load(**spec)


@lru_cache(maxsize=1)
def _load(shape=None, file=None, test=None, n_features=None, rows=None, test_rows=0) -> Data:
    if shape is not None:
        n_all = SHAPES[shape][1]
        rows = rows or n_all
        X, y = make(shape, (rows + test_rows) / n_all)
        return Data(X[:rows], y[:rows], X[rows:], y[rows:])
    X, y = _read(file, n_features)
    X_test, y_test = (X[:0], y[:0]) if test is None else _read(test, X.shape[1])
    return Data(X[:rows], y[:rows], X_test, y_test)


def _read(path: str, n_features: int | None) -> tuple[Any, np.ndarray]:
    """X and labels of a svmlight file, features numbered from 1; a label above 0 is 1."""
    X, y = load_svmlight_file(path, n_features=n_features, dtype=np.float32, zero_based=False)
    return X, (y > 0).astype(np.float64)

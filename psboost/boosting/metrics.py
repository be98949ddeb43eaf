"""Knows how good margins are for labels; does not know how they came about.

Margins are float32, labels float64 (0 or 1 for the classification metrics); every row counts as much as any other.
"""

from collections.abc import Callable

import numpy as np


def auc(margins: np.ndarray, labels: np.ndarray) -> float:
    """Area under the ROC curve, ties counted half; NaN with a single class."""
    n_positive = int((labels > 0).sum())
    n_negative = len(labels) - n_positive
    if n_positive == 0 or n_negative == 0:
        return float("nan")
    _, rank, count = np.unique(margins, return_inverse=True, return_counts=True)
    middle = np.cumsum(count) - (count - 1) / 2.0
    positive_ranks = middle[rank[labels > 0]].sum()
    return float((positive_ranks - n_positive * (n_positive + 1) / 2.0) / (n_positive * n_negative))


def logloss(margins: np.ndarray, labels: np.ndarray) -> float:
    """Mean of -y log p - (1 - y) log(1 - p), without overflow for any margin."""
    m = margins.astype(np.float64)
    return float(np.mean(np.logaddexp(0.0, m) - labels * m)) if len(m) else float("nan")


def error(margins: np.ndarray, labels: np.ndarray) -> float:
    """Share of rows on the wrong side of p = 1/2."""
    return float(np.mean((margins > 0) != (labels > 0))) if len(labels) else float("nan")


def rmse(margins: np.ndarray, labels: np.ndarray) -> float:
    """Root mean squared error."""
    return float(np.sqrt(np.mean((margins.astype(np.float64) - labels) ** 2))) if len(labels) else float("nan")


def mae(margins: np.ndarray, labels: np.ndarray) -> float:
    """Mean absolute error."""
    return float(np.mean(np.abs(margins.astype(np.float64) - labels))) if len(labels) else float("nan")


METRICS: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "auc": auc, "logloss": logloss, "error": error, "rmse": rmse, "mae": mae,
}  # fmt: skip

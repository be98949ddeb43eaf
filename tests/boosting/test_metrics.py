"""Metrics beside scikit-learn's."""

import math
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting import metrics

FEW = st.sampled_from([-2.0, -0.5, 0.0, 0.25, 0.5, 3.0])
MARGINS = st.one_of(FEW, st.floats(-9, 9, width=32))


@pytest.fixture(scope="module")
def reference():
    learn = pytest.importorskip("sklearn.metrics")
    return types.SimpleNamespace(
        auc=lambda m, y: learn.roc_auc_score(y, m),
        logloss=lambda m, y: learn.log_loss(y, 1 / (1 + np.exp(-m.astype(float))), labels=[0, 1]),
        error=lambda m, y: 1 - learn.accuracy_score(y, m > 0),
        rmse=lambda m, y: learn.root_mean_squared_error(y, m.astype(float)),
        mae=lambda m, y: learn.mean_absolute_error(y, m.astype(float)),
    )


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(MARGINS, st.booleans()), min_size=2, max_size=20))
def test_classification(reference, rows):
    margins = np.array([m for m, _ in rows], np.float32)
    labels = np.array([y for _, y in rows], np.float64)
    for name in ("logloss", "error"):
        expected = getattr(reference, name)(margins, labels)
        assert metrics.METRICS[name](margins, labels) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    if 0 < labels.sum() < len(labels):
        assert metrics.auc(margins, labels) == pytest.approx(reference.auc(margins, labels), abs=1e-12)
    else:
        assert math.isnan(metrics.auc(margins, labels))


@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(MARGINS, st.floats(-1e6, 1e6)), min_size=1, max_size=20))
def test_regression(reference, rows):
    margins, labels = np.array(rows).T
    for name in ("rmse", "mae"):
        expected = getattr(reference, name)(margins.astype(np.float32), labels)
        assert metrics.METRICS[name](margins.astype(np.float32), labels) == pytest.approx(expected, rel=1e-12)


def test_known_values():
    margins, labels = np.array([0, 0, 1, -1], np.float32), np.array([0.0, 1, 1, 0])
    assert metrics.auc(margins, labels) == (0.5 + 3) / 4
    assert metrics.error(margins, labels) == 0.25
    assert metrics.logloss(np.array([1000, -1000], np.float32), np.array([1.0, 1.0])) == 500


def test_no_rows_have_no_metrics():
    nothing = np.empty(0, np.float32), np.empty(0)
    assert all(math.isnan(metric(*nothing)) for metric in metrics.METRICS.values())

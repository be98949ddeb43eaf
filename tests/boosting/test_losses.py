"""Losses: gradients as derivatives, their bounds, intercepts, links and refused labels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting.forest import base_margin
from psboost.boosting.losses import LOSSES
from psboost.boosting.metrics import logloss, rmse
from psboost.errors import DataError
from psboost.kernels.gradients import compute_gradients

LOGISTIC, SQUARED = LOSSES["binary:logistic"], LOSSES["reg:squarederror"]


def gradients(loss, margins, labels, weights):
    grads, hesses = np.empty((2, len(labels)), loss.dtype)
    labels = loss.check_labels(np.array(labels, float), str)
    compute_gradients(np.array(margins, np.float32), labels, np.array(weights, loss.dtype), grads, hesses)
    return grads, hesses


def half_square(margins, labels):
    return rmse(margins, labels) ** 2 / 2


@pytest.mark.parametrize(("loss", "value"), [(LOGISTIC, logloss), (SQUARED, half_square)])
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_gradients_are_the_derivatives_of_the_loss(loss, value, label):
    margins = np.linspace(-4, 4, 17)
    grads, hesses = gradients(loss, margins, np.full(17, label), np.full(17, 2.0))
    step, labels = 1e-4, np.array([label])
    for margin, grad, hess in zip(margins, grads, hesses, strict=True):
        below, here, above = (value(np.array([margin + d]), labels) for d in (-step, 0, step))
        assert grad == pytest.approx(2 * (above - below) / (2 * step), abs=1e-5)
        assert hess == pytest.approx(2 * (above - 2 * here + below) / step**2, abs=1e-4)


@pytest.mark.parametrize("margin", [-1e30, -90, 0, 90, 1e30])
def test_margins_far_out_keep_within_bounds(margin):
    bounds = LOGISTIC.bounds(3.0, 1.0)
    with np.errstate(over="ignore"):
        grads, hesses = gradients(LOGISTIC, [margin, margin], [0, 1], [3, 3])
    assert (np.abs(grads) <= bounds.grad).all() and (hesses <= bounds.hess).all() and (hesses > 0).all()


def test_bounds_of_the_squared_error_hold_at_margin_0():
    grads, hesses = gradients(SQUARED, [0, 0, 0], [-7, 2, 0], [0.5, 3, 3])
    bounds = SQUARED.bounds(3.0, 7.0)
    assert np.abs(grads).max() <= bounds.grad and hesses.max() <= bounds.hess


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.floats(0.01, 10)), min_size=1, max_size=8))
def test_the_intercept_is_the_weighted_mean(rows):
    labels, weights = np.array(rows).T
    for loss in (LOGISTIC, SQUARED):
        grads, hesses = gradients(loss, np.zeros(len(rows)), labels, weights)
        mean = float(np.average(labels, weights=weights))
        mean = min(max(mean, 1e-6), 1 - 1e-6) if loss is LOGISTIC else mean
        assert loss.intercept(grads.sum(), hesses.sum()) == pytest.approx(mean, abs=1e-6)
    assert LOGISTIC.intercept(0.0, 0.0) == 0.5 and SQUARED.intercept(0.0, 0.0) == 0.0


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(
        st.floats(0, 1, exclude_min=True, exclude_max=True), st.sampled_from([1e-300, 1e-9, 1 - 1e-9])
    )
)
def test_every_probability_has_a_finite_margin(base_score):
    margin = base_margin("binary:logistic", base_score)
    assert margin.dtype == np.float32 and np.isfinite(margin)


def test_labels():
    def place(row):
        return f"a.svm:{row + 1}"

    checked = LOGISTIC.check_labels(np.array([-1.0, 0, 1]), place)
    np.testing.assert_array_equal(checked, [0, 0, 1])
    assert checked.dtype == np.uint8
    with pytest.raises(DataError, match=r"a.svm:2: label 2: .* -1\) and 1; map the labels"):
        LOGISTIC.check_labels(np.array([1.0, 2.0, 3.0]), place)
    with pytest.raises(DataError, match="label nan"):
        LOGISTIC.check_labels(np.array([np.nan]), place)
    np.testing.assert_array_equal(SQUARED.check_labels(np.array([-3.5, 1e38]), place), [-3.5, 1e38])
    with pytest.raises(DataError, match=r"a.svm:3: label -1e\+39"):
        SQUARED.check_labels(np.array([0, 1, -1e39]), place)

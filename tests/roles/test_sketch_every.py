"""New cut points before every so-many-th tree, weighted by its hessians: whose they are, and what is refused."""

import numpy as np
import pytest

import psboost
from psboost.boosting.fixed_point import round_gradients, rounding_key, steps_for
from psboost.boosting.losses import Bounds
from psboost.data.columns import to_columns
from psboost.data.sketches import Sketches
from psboost.kernels.gradients import compute_gradients
from psboost.roles.modes import MODES
from psboost.wire.messages import PushSketches, ShareCutPoints
from tests import runs


def problem(n_values=30):
    """(X of few distinct values for a summary of 4 bins, but many for 4 bins, y)"""
    X, y = runs.dense_data(120, 5, seed=3, n_values=n_values)
    return np.nan_to_num(X), y


def train(X, y, n_rounds, where=None, **params):
    params = {"max_bin": 4, "sketch": "weighted", "max_depth": 3} | params
    return psboost.train(params, X, y, num_boost_round=n_rounds, transport="memory", seed=5, **(where or {}))


def cut_points_by_hand(X, y, margins, tree):
    """Of all rows, weighted by the rounded hessians that these margins give."""
    grads, hesses = np.empty((2, len(y)), np.float32)
    compute_gradients(margins, y.astype(np.uint8), np.ones(1, np.float32), grads, hesses)
    steps = steps_for(Bounds(1.0, 0.25), 32, len(y))
    weights = round_gradients(grads, hesses, steps, rounding_key(5, tree), 0) & 0xFFFFFFFF
    rows, features = np.nonzero(X)
    indptr = np.concatenate([[0], np.cumsum(np.count_nonzero(X, axis=1))])
    columns = to_columns([(indptr, features.astype(np.int32), X[rows, features])], X.shape[1])
    sketches = Sketches.summarise(columns, 0, X.shape[1], len(y), max_bin=4, kind="weighted", weights=weights)
    return sketches.cut_points(max_bin=4, zero_as_missing=False)


@pytest.mark.parametrize("where", [{}, {"grid": (1, 2)}, {"grid": (3, 2), "servers": 2}, {"grid": (2, 1), "mode": MODES[1]}])
def test_the_last_trees_cut_points_are_of_its_hessians(where):
    X, y = problem()
    for n_rounds, every, before in ((3, 1, 2), (4, 2, 2), (3, 2, 2), (2, 2, None)):
        forest = train(X, y, n_rounds, where, sketch_every=every)
        once = train(X, y, n_rounds)
        if before is None:
            assert runs.model_text(forest).replace('"sketch_every\\": 2', '"sketch_every\\": 0') == runs.model_text(once)
            continue
        margins = train(X, y, before, sketch_every=every).predict(X, output_margin=True)
        expected = cut_points_by_hand(X, y, margins, before)
        used = np.arange(4)  # the last feature is stored in one row, and nobody's
        got, expected = forest.bin_mapper.select(used), expected.part(0, 4)
        for name in ("offsets", "cuts", "has_missing"):
            np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
        assert not np.array_equal(forest.bin_mapper.cuts, once.bin_mapper.cuts)
        known = set(got.cuts.tolist())
        assert set(forest.trees[-1].threshold[forest.trees[-1].left >= 0].tolist()) <= known


def test_messages_and_bytes_of_each_tree():
    X, y = problem()
    job = runs.make_job(
        (2, 2), 2, n_rounds=4, zeros=False, sketch="weighted", sketch_every=2, max_bin=4, objective="binary:logistic"
    )  # fmt: skip
    roles = runs.make_roles(job, runs.make_source(job, X, y))
    sent = runs.recorded(roles)
    runs.run(roles)
    for kind, n_each in ((PushSketches, 4), (ShareCutPoints, 6)):
        trees = [message.tree for _, _, message in sent if isinstance(message, kind)]
        assert {tree: trees.count(tree) for tree in trees} == {-1: n_each, 2: n_each}
    report = train(X, y, 3, {"grid": (2, 2)}, sketch_every=1).report
    for tree in (1, 2):
        assert report["bytes_by_tree"][tree]["PushSketches"]["messages"] == 4
        assert {"sketch", "bin"} <= report["stages_by_tree"][tree]["workers"].keys()
    assert not {"sketch", "bin"} & report["stages_by_tree"][0]["workers"].keys()


def test_evaluation_rows_are_binned_again():
    """Their margins follow the trees' thresholds, as prediction does."""
    X, y = problem()
    other, labels = problem()[0][::-1] * np.float32(1.1), y[::-1]
    forest = train(X, y, 5, {"grid": (2, 2), "evals": [(other, labels, "other")]}, sketch_every=1)
    margins = forest.predict(other, output_margin=True).astype(np.float64)
    logloss = np.mean(np.logaddexp(0, np.where(labels > 0, -margins, margins)))
    assert forest.report["evaluation"]["other-logloss"][-1] == pytest.approx(logloss, abs=1e-6)


def test_processes_renew_cut_points_too():
    X, y = problem()
    params = {"max_bin": 4, "sketch": "weighted", "sketch_every": 1, "max_depth": 3}
    forest = psboost.train(params, X, y, num_boost_round=3, transport="tcp", grid=(2, 1), seed=5)
    assert runs.model_text(forest) == runs.model_text(train(X, y, 3, sketch_every=1))


def test_wrong_uses_are_refused():
    X, y = problem()
    for sketch in ("kll", "exact"):
        with pytest.raises(psboost.ParameterError, match="sketch=weighted"):
            train(X, y, 1, sketch=sketch, sketch_every=1)
    with pytest.raises(psboost.ParameterError, match="sketch_every"):
        train(X, y, 1, sketch_every=-1)
    mapper = train(X, y, 1).bin_mapper
    with pytest.raises(psboost.ParameterError, match="one of the two"):
        train(X, y, 1, {"bin_mapper": mapper}, sketch_every=1)

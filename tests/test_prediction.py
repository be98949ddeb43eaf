"""Block-distributed prediction: the same numbers as Forest.predict for every grid, transport and way of storing rows."""

import numpy as np
import pytest
from scipy import sparse

import psboost
from psboost.errors import DataError, ModelError, ParameterError
from psboost.roles.job import Grid
from psboost.roles.predicting import ROWS_TOGETHER, TREES_TOGETHER, PredictionServer
from psboost.wire.messages import PushPartialExits
from psboost.wire.packing import pack_ascending

RULES = [True, False, "unstored"]
GRIDS = [((1, 1), 1), ((1, 4), 2), ((4, 1), 3), ((2, 2), 1), ((3, 3), 4), ((2, 40), 2)]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(5)
    X = sparse.random_array((300, 12), density=0.4, rng=rng, format="csr")
    X.data = np.round(X.data, 1)  # with zeros that are stored
    X.data[::17] = np.nan
    X.data[1::5] = 0
    signal = np.nan_to_num(X.toarray()).sum(axis=1) + (X[:, [0]] != 0).toarray()[:, 0]
    y = (signal + rng.normal(0, 0.5, 300) > np.median(signal)).astype(float)
    return X, y


@pytest.fixture(scope="module")
def forests(data):
    X, y = data
    rounds = TREES_TOGETHER + 3
    return {
        rule: psboost.train({"zero_as_missing": rule, "max_depth": 0, "min_child_weight": 0.1}, X, y, num_boost_round=rounds)
        for rule in RULES
    }


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("grid", "servers"), GRIDS)
@pytest.mark.parametrize("transport", ["memory", "inproc"])
def test_every_grid_predicts_alike(data, forests, rule, grid, servers, transport):
    X, _ = data
    forest = forests[rule]
    for rows in (X, X.toarray(), X[:1], X[:0]):
        got = psboost.predict(forest, rows, grid=grid, servers=servers, transport=transport, output_margin=True)
        np.testing.assert_array_equal(got, forest.predict(rows, output_margin=True))


def test_trees_of_many_leaves_and_batches_of_rows(data, forests):
    X, _ = data
    forest = forests[True]
    assert max((tree.left < 0).sum() for tree in forest.trees) > 30
    many = sparse.vstack([X] * (ROWS_TOGETHER // 300 + 2)).tocsr()
    np.testing.assert_array_equal(
        psboost.predict(forest, many, grid=(2, 2), servers=2, transport="memory"), forest.predict(many)
    )


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_through_processes(data, forests, transport, tmp_path):
    X, _ = data
    for rule, rows in ((False, X), ("unstored", X), ("unstored", X.toarray())):
        forest = forests[rule]
        got = psboost.predict(forest, rows, grid=(2, 2), servers=2, transport=transport)
        np.testing.assert_array_equal(got, forest.predict(rows))
    assert (forest.predict(X) != forest.predict(X.toarray())).any()


def test_a_model_of_xgboost(data, tmp_path):
    """It does not say what a zero is: stored ones are values, as for XGBoost itself."""
    xgboost = pytest.importorskip("xgboost")
    X, y = data
    booster = xgboost.train({"objective": "binary:logistic", "nthread": 1}, xgboost.DMatrix(X, y), 5)
    booster.save_model(tmp_path / "m.json")
    forest = psboost.load_model(tmp_path / "m.json")
    sparse.save_npz(tmp_path / "rows.npz", X)
    for rows in (X, tmp_path / "rows.npz"):
        got = psboost.predict(forest, rows, grid=(2, 2), servers=2, output_margin=True)
        np.testing.assert_array_equal(got, booster.predict(xgboost.DMatrix(X), output_margin=True))


def test_a_stump_and_a_forest_without_splits(data):
    X, y = data
    for params in ({"max_depth": 1}, {"gamma": 1e9}):
        forest = psboost.train(params, X, y, num_boost_round=2)
        np.testing.assert_array_equal(psboost.predict(forest, X, grid=(2, 3)), forest.predict(X))


def test_what_cannot_be_predicted(data, forests):
    X, _ = data
    with pytest.raises(ModelError, match="13 features, the model was trained on 12"):
        psboost.predict(forests[True], np.zeros((2, 13)), grid=(2, 2))
    for rows, text in ((5, "X"), ([1, 2, 3], "X"), (None, "X")):
        for predict in (forests[True].predict, lambda rows: psboost.predict(forests[True], rows, grid=(1, 2))):
            with pytest.raises(DataError, match=text):
                predict(rows)
    with pytest.raises(ParameterError, match="grid"):
        psboost.predict(forests[True], X, grid=(0, 1))
    with pytest.raises(ParameterError, match="transport"):
        psboost.predict(forests[True], X, transport="smoke")
    with pytest.raises(ParameterError, match="forest is a str: give a Forest"):
        psboost.predict("model.json", X)
    with pytest.raises(ParameterError, match="'virtual' is for training"):
        psboost.predict(forests[True], X, transport="virtual")
    odd = psboost.Forest(forests[True].trees, "binary:logistic", 0.5, 12, "maybe")
    with pytest.raises(ParameterError, match="zero_as_missing must be True, False or"):
        psboost.predict(odd, X)


def test_a_matrix_in_a_file_that_is_narrower_than_the_model(forests, data, tmp_path):
    sparse.save_npz(tmp_path / "narrow.npz", data[0][:, :9].tocsr())
    for predict in (forests[True].predict, lambda rows: psboost.predict(forests[True], rows, grid=(1, 2))):
        with pytest.raises(ModelError, match=r"narrow\.npz has 9 features, the model was trained on 12"):
            predict(tmp_path / "narrow.npz")


def test_a_server_refuses_rows_that_differ_between_workers(forests):
    server = PredictionServer(Grid(1, 2, 1), 0, forests[True])
    server.start()
    nothing = {"n_positions": 0, "positions": pack_ascending(np.empty(0, np.int64))}
    masks = np.empty((0, forests[True].scorer.n_words), np.uint64)
    server.handle("worker 0,0", PushPartialExits(tree=0, level=0, n_rows=30, masks=masks, **nothing))
    with pytest.raises(DataError, match=r"worker 0,0 30, worker 0,1 29"):
        server.handle("worker 0,1", PushPartialExits(tree=0, level=0, n_rows=29, masks=masks, **nothing))


def test_a_file_wider_than_the_model(forests, tmp_path):
    path = tmp_path / "wide.svm"
    path.write_text("1 1:1\n0 2:1 13:5\n")
    with pytest.raises(ModelError, match=r"wide\.svm has 13 features, the model was trained on 12"):
        psboost.predict(forests[True], path, grid=(2, 1), transport="memory")

"""Knows what a forest predicts from every kind of input, and how it is saved; does not know the format."""

import os
import threading
from functools import partialmethod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from psboost.boosting import forest as forest_module
from psboost.boosting.forest import Forest, base_margin, load_model
from psboost.boosting.scorer import Scorer
from psboost.errors import DataError, ModelError, ParameterError
from tests.naive import scoring as naive

RULES = [True, False, "unstored"]


def make_forest(rule=True, objective="binary:logistic", seed=0):
    return naive.random_forest(np.random.default_rng(seed), [1, 5, 70, 20], 7, rule, objective)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([True, False]), st.integers(1, 40))
def test_a_prediction_does_not_depend_on_storage(seed, rule, n_rows):
    rng = np.random.default_rng(seed)
    forest = naive.random_forest(rng, [5, 90, 20], 8, rule)
    X, stored = naive.random_rows(rng, n_rows, 8)
    csr = naive.to_csr(X, stored | np.isnan(X))
    expected = naive.margins(forest.trees, naive.cells(X, stored, rule), forest.base_margin)
    inputs = [X, X.astype(np.float64), np.asfortranarray(X), X.tolist()]
    inputs += [csr, csr.tocsc(), csr.tocoo(), csr.astype(np.float64)]
    inputs += [sparse.csr_matrix(csr), sparse.csr_array(X)]
    for given_as in inputs:
        np.testing.assert_array_equal(forest.predict(given_as, output_margin=True), expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 40))
def test_unstored_tells_a_stored_zero_from_an_unstored_one(seed, n_rows):
    rng = np.random.default_rng(seed)
    forest = naive.random_forest(rng, [5, 90, 20], 8, "unstored")
    X, stored = naive.random_rows(rng, n_rows, 8)
    csr = naive.to_csr(X, stored)
    expected = naive.margins(forest.trees, naive.cells(X, stored, "unstored"), forest.base_margin)
    for given_as in (csr, csr.tocsc(), csr.tocoo()):
        np.testing.assert_array_equal(forest.predict(given_as, output_margin=True), expected)
    dense = naive.margins(forest.trees, X, forest.base_margin)
    np.testing.assert_array_equal(forest.predict(X, output_margin=True), dense)


@pytest.mark.parametrize("rule", RULES)
def test_repeated_and_unsorted_columns_count_as_their_sum(rule):
    forest = make_forest(rule)
    messy = sparse.csr_array(
        (np.array([1.0, 0.5, 0.5, 2.0]), np.array([6, 1, 1, 0]), np.array([0, 4])), shape=(1, 7)
    )
    tidy = sparse.csr_array(np.array([[2.0, 1.0, 0, 0, 0, 0, 1.0]]))
    np.testing.assert_array_equal(forest.predict(messy), forest.predict(tidy))
    assert messy.nnz == 4


@pytest.mark.parametrize("rule", RULES)
def test_rows_in_parts_and_no_rows(rule, monkeypatch):
    rng = np.random.default_rng(1)
    forest = make_forest(rule)
    X, stored = naive.random_rows(rng, 50, 7)
    csr = naive.to_csr(X, stored)
    whole = forest.predict(X), forest.predict(csr)
    monkeypatch.setattr("psboost.data.matrix.PIECE_CELLS", 49)
    np.testing.assert_array_equal(forest.predict(X), whole[0])
    np.testing.assert_array_equal(forest.predict(csr), whole[1])
    for nothing in (X[:0], csr[:0]):
        assert forest.predict(nothing).shape == (0,)
    assert forest.predict(X[:1]).dtype == np.float32


def test_true_feature_numbers_may_be_huge():
    numbers = np.array([3, 2**31, 2**40, 2**62])
    rng = np.random.default_rng(4)
    trees = [naive.random_tree(rng, 30, numbers, rng.normal(size=9)) for _ in range(4)]
    X, stored = naive.random_rows(rng, 30, 4)
    rows, columns = np.nonzero(stored)
    width = 2**63 - 1
    for rule in (True, "unstored"):
        wide = sparse.coo_array((X[rows, columns], (rows, numbers[columns])), shape=(30, width))
        cells = np.full((30, 4), np.nan)
        cells[:] = naive.cells(X, stored, rule)
        small = [_with_features(tree, np.searchsorted(numbers, tree.feature)) for tree in trees]
        expected = naive.margins(small, cells, 0)
        forest = Forest(trees, "reg:squarederror", 0.0, width, rule)
        np.testing.assert_array_equal(forest.predict(wide), expected)


def _with_features(tree, feature):
    return type(tree)(**{**tree.__dict__, "feature": feature})


@pytest.mark.parametrize("rule", [True, False])
@pytest.mark.parametrize("index_base", [0, 1])
def test_a_file_predicts_as_its_matrix(tmp_path, rule, index_base):
    rng = np.random.default_rng(8)
    forest = make_forest(rule)
    X, stored = naive.random_rows(rng, 40, 7)
    X = np.nan_to_num(X, nan=0.5)
    lines = []
    for row, is_stored in zip(X, stored, strict=True):
        lines.append(" ".join(["0", *(f"{c + index_base}:{row[c]:.9g}" for c in np.flatnonzero(is_stored))]))
    text = tmp_path / "rows.svm"
    text.write_text("\n".join(lines) + "\n")
    np.testing.assert_array_equal(forest.predict(text, index_base=index_base), forest.predict(X))
    np.testing.assert_array_equal(forest.predict(str(text), index_base=index_base), forest.predict(X))
    packed = tmp_path / "rows.npz"
    sparse.save_npz(packed, naive.to_csr(X, stored))
    np.testing.assert_array_equal(forest.predict(packed), forest.predict(X))


@pytest.mark.parametrize("method", ["bits", "walk"])
@pytest.mark.parametrize("threads", [2, 5, None])
def test_threads_predict_the_same(tmp_path, monkeypatch, method, threads):
    rng = np.random.default_rng(2)
    X, stored = naive.random_rows(rng, 300, 7)
    X = np.nan_to_num(X, nan=0.5)
    csr = naive.to_csr(X, stored)
    sparse.save_npz(tmp_path / "rows.npz", csr)
    cells = [[f"{c + 1}:{row[c]:.9g}" for c in np.flatnonzero(held)] for row, held in zip(X, stored, strict=True)]
    (tmp_path / "rows.svm").write_text("".join(" ".join(["0", *of_row]) + "\n" for of_row in cells))
    expected = make_forest().predict(X, threads=1)
    monkeypatch.setattr(forest_module, "ROWS_OF_THREAD", 50)
    monkeypatch.setattr(forest_module, "n_cores", lambda: 3)
    monkeypatch.setattr("psboost.data.matrix.PIECE_CELLS", 149)
    monkeypatch.setattr(Scorer, "margins", by := recorded(partialmethod(Scorer.margins, method=method)))
    for given_as in (X, csr, tmp_path / "rows.npz", tmp_path / "rows.svm"):
        by.threads.clear()
        np.testing.assert_array_equal(make_forest().predict(given_as, threads=threads), expected)
        assert threading.current_thread() not in by.threads


def recorded(method):
    """The method; `threads` has those that called it."""

    def call(self, *args):
        call.threads.add(threading.current_thread())
        return method.__get__(self)(*args)

    call.threads = set()
    return call


def test_few_rows_are_predicted_by_the_caller(monkeypatch):
    monkeypatch.setattr(Scorer, "margins", by := recorded(Scorer.margins))
    make_forest().predict(np.zeros((forest_module.ROWS_OF_THREAD - 1, 7)), threads=2)
    assert by.threads == {threading.current_thread()}


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2", 2**20, True])
def test_a_number_of_threads_that_is_none(threads):
    with pytest.raises(ParameterError, match="threads must be a whole number from 1 to 1024, not "):
        make_forest().predict(np.zeros((1, 7)), threads=threads)


def test_a_file_stores_zeros_too(tmp_path):
    rng = np.random.default_rng(8)
    forest = make_forest("unstored")
    X, stored = naive.random_rows(rng, 40, 7)
    csr = naive.to_csr(X, stored)
    expected = naive.margins(forest.trees, naive.cells(X, stored, "unstored"), forest.base_margin)
    text = tmp_path / "rows.svm"
    lines = [
        " ".join(["0", *(f"{c + 1}:{row[c]:.9g}" for c in np.flatnonzero(held))])
        for row, held in zip(X, stored, strict=True)
    ]
    text.write_text("\n".join(lines) + "\n")
    sparse.save_npz(tmp_path / "rows.npz", csr)
    for given_as in (csr, text, tmp_path / "rows.npz"):
        np.testing.assert_array_equal(forest.predict(given_as, output_margin=True), expected)


def test_what_does_not_fit_is_refused(tmp_path):
    forest = make_forest()
    for X in (np.zeros((2, 6)), np.zeros((2, 8)), sparse.csr_array((2, 8))):
        with pytest.raises(ModelError, match="X has . features, the model was trained on 7"):
            forest.predict(X)
    forest.zero_as_missing = "unstored"
    with pytest.raises(ModelError, match="X has 8 features"):
        forest.predict(sparse.csr_array((2, 8)))
    forest.zero_as_missing = True
    with pytest.raises(DataError, match="dimension"):
        forest.predict(np.zeros(7))
    with pytest.raises(DataError, match="real numbers"):
        forest.predict([["a"] * 7])
    with pytest.raises(DataError, match="no such file"):
        forest.predict(tmp_path / "absent.svm")
    path = tmp_path / "wide.svm"
    path.write_text("1 8:1\n")
    with pytest.raises(ModelError, match=r"wide\.svm has 8 features, the model was trained on 7"):
        forest.predict(path)
    forest.zero_as_missing = "unsaid"
    with pytest.raises(ParameterError, match='zero_as_missing must be True, False or "unstored", not'):
        forest.predict(path)
    for rule in ("unsaid", None, 2):
        forest.zero_as_missing = rule
        with pytest.raises(ModelError, match="zero_as_missing is .*: True, False or"):
            forest.save_model(tmp_path / "m.json")


def test_probabilities_and_margins():
    X = np.random.default_rng(0).normal(size=(30, 7))
    for objective in ("binary:logistic", "reg:logistic"):
        forest = make_forest(objective=objective)
        margins = forest.predict(X, output_margin=True).astype(np.float64)
        np.testing.assert_allclose(forest.predict(X), 1 / (1 + np.exp(-margins)), rtol=3e-7)
    for objective in ("binary:logitraw", "reg:squarederror"):
        forest = make_forest(objective=objective)
        assert forest.base_margin == np.float32(0.3)
        np.testing.assert_array_equal(forest.predict(X), forest.predict(X, output_margin=True))
    forest = Forest([], "binary:logistic", 1.0, 7, True)
    assert 0.99999 < forest.predict(X[:1])[0] < 1


def test_base_margin():
    assert base_margin("binary:logistic", 0.5) == 0
    assert base_margin("binary:logistic", 0.3) == np.float32(np.log(0.3 / 0.7))
    for score in (0.0, 1e-9):
        assert base_margin("binary:logistic", score) == np.float32(-13.81551)
    assert base_margin("reg:squarederror", -3.5) == np.float32(-3.5)
    for objective, score in (("binary:logistic", 1.5), ("reg:squarederror", np.nan), ("rank:ndcg", 0.5)):
        with pytest.raises(ModelError):
            base_margin(objective, score)


def test_trees_that_come_later_are_seen():
    forest = make_forest()
    X = np.random.default_rng(0).normal(size=(30, 7))
    before = forest.predict(X)
    forest.trees.append(naive.random_tree(np.random.default_rng(1), 9, np.arange(7), [0.0]))
    assert (forest.predict(X) != before).any()


def test_saving_replaces_the_file_at_once(tmp_path):
    path = tmp_path / "model.json"
    path.write_text("old")
    forest = make_forest()
    forest.save_model(path)
    assert [p.name for p in tmp_path.iterdir()] == ["model.json"]
    X = np.random.default_rng(0).normal(size=(30, 7))
    np.testing.assert_array_equal(load_model(str(path)).predict(X), forest.predict(X))
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_where_a_model_cannot_be_written_or_read(tmp_path):
    forest = make_forest()
    (tmp_path / "folder.json").mkdir()
    for path in (tmp_path / "absent" / "model.json", tmp_path / "folder.json"):
        with pytest.raises(ModelError, match=f"{path.name}: the model cannot be written"):
            forest.save_model(path)
        with pytest.raises(ModelError, match=f"{path.name}: the model cannot be read"):
            load_model(path)
    assert [p.name for p in Path(tmp_path).iterdir()] == ["folder.json"]


def test_a_forest_that_is_not_sound_is_not_saved(tmp_path):
    forest = make_forest()
    tree = forest.trees[1]
    for name, node, value, what in (
        ("left", 0, 99, "tree 1: node 0 has child 99"),
        ("left", 0, 0, "not a tree"),
        ("right", 0, -1, "node 0 has only one child"),
        ("feature", 0, 7, "node 0 splits feature 7"),
        ("threshold", 0, np.nan, "node 0 has threshold nan"),
        ("value", 8, np.inf, "node 8 has value inf"),
        ("gain", 0, np.inf, "not finite"),
    ):
        array = getattr(tree, name).copy()
        array[node] = value
        forest.trees[1] = type(tree)(**{**tree.__dict__, name: array})
        with pytest.raises(ModelError, match=what):
            forest.save_model(tmp_path / "model.json")
        assert not list(tmp_path.iterdir())
    forest.trees[1] = tree
    forest.attributes["psboost.seed"] = 7
    with pytest.raises(ModelError, match=r"attribute 'psboost\.seed' is 7"):
        forest.save_model(tmp_path / "model.json")

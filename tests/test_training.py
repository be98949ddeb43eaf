"""psboost.train from Python: input of every kind, callbacks, reports, evaluation, edge cases and bad input."""

import gc
import io
import json
import re
import threading
import weakref
from pathlib import Path

import numpy as np
import pandas
import pytest
import xgboost
from scipy import sparse

import psboost
from psboost.boosting.forest import base_margin
from psboost.boosting.metrics import METRICS
from psboost.errors import ClusterError, DataError, ModelError, ParameterError
from psboost.roles import dealing
from tests import runs

GRIDS = [((1, 1), 1), ((2, 2), 2), ((3, 3), 1)]
XGBOOST = tuple(map(int, xgboost.__version__.split(".")[:2]))


def train(X, y=None, params=None, **how):
    how = {"num_boost_round": 3, "transport": "memory"} | how
    return psboost.train({"max_depth": 3, "min_child_weight": 0} | (params or {}), X, y, **how)


# --- input


def svm_text(X, y):
    """Every cell that is stored, zeros and NaN among them."""
    lines = []
    for row, label in enumerate(y):
        cells = slice(X.indptr[row], X.indptr[row + 1])
        held = " ".join(f"{f + 1}:{value}" for f, value in zip(X.indices[cells], X.data[cells], strict=True))
        lines.append(f"{label:g} {held}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("rule", [None, True])
def test_every_form_of_a_sparse_matrix_gives_one_model(tmp_path, rule):
    X, y = runs.sparse_data()
    params = {"zero_as_missing": rule}
    forest = train(X, y, params)
    assert forest.zero_as_missing == (rule or "unstored")
    expected = runs.model_text(forest)
    for make in (
        sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix, sparse.csr_array, sparse.csc_array,
        sparse.coo_array, sparse.lil_matrix, lambda m: sparse.csr_array(m.astype(np.float64)),
    ):  # fmt: skip
        assert runs.model_text(train(make(X), y, params)) == expected
    if rule:
        assert runs.model_text(train(X.toarray(), y, params)) == expected
    assert runs.model_text(train(X, y.astype(bool), params)) == expected
    assert runs.model_text(train(X, [int(label) for label in y], params)) == expected
    assert runs.model_text(train(X, 2 * y - 1, params)) == expected  # -1 stands for 0

    np.savez(tmp_path / "a.npz", indptr=X.indptr, indices=X.indices, data=X.data, shape=X.shape, y=y)
    (tmp_path / "a.svm").write_text(svm_text(X, y))
    for path in (tmp_path / "a.npz", str(tmp_path / "a.svm")):
        for grid, servers in GRIDS:
            assert runs.model_text(train(path, None, params, grid=grid, servers=servers)) == expected
    sparse.save_npz(tmp_path / "b.npz", X)
    assert runs.model_text(train(tmp_path / "b.npz", y, params)) == expected


# --- the rule for zeros


def same_trees(forest, other):
    return runs.model_text(forest) == runs.model_text(other).replace(*(
        f'"psboost.zero_as_missing":"{str(f.zero_as_missing).lower()}"' for f in (other, forest)
    ))  # fmt: skip


def without_zeros(X):
    X = X.copy()
    X.eliminate_zeros()
    return X


def test_the_rule_follows_the_zeros_that_are_stored(tmp_path):
    X, y = runs.sparse_data()
    tidy = without_zeros(X)
    one_zero = tidy.copy()
    one_zero.data[-1] = 0  # only one worker of a grid sees it
    for i, (data, rule) in enumerate([(X, "unstored"), (tidy, True), (one_zero, "unstored")]):
        np.savez(tmp_path / f"{i}.npz", indptr=data.indptr, indices=data.indices, data=data.data, shape=data.shape, y=y)
        (tmp_path / f"{i}.svm").write_text(svm_text(data, y))
        expected = runs.model_text(train(data, y, {"zero_as_missing": rule}))
        for given in ((data, y), (tmp_path / f"{i}.npz",), (tmp_path / f"{i}.svm",)):
            for grid, servers in (*GRIDS, ((1, 2), 2), ((3, 1), 2)):
                forest = train(*given, grid=grid, servers=servers)
                assert forest.zero_as_missing == forest.bin_mapper.zero_as_missing == rule
                assert runs.model_text(forest) == expected
    assert same_trees(train(tidy, y), train(tidy, y, {"zero_as_missing": "unstored"}))
    assert not same_trees(train(X, y), train(X, y, {"zero_as_missing": True}))
    assert same_trees(train(tidy, y), train(X, y, {"zero_as_missing": True}))


def test_zeros_of_evaluation_data_decide_nothing():
    X, y = runs.sparse_data()
    forest = train(without_zeros(X), y, evals=[(X, y, "e")], grid=(2, 2))
    assert forest.zero_as_missing is True
    margins = forest.predict(X, output_margin=True)
    assert forest.report["evaluation"]["e-logloss"][-1] == METRICS["logloss"](margins, y)


@pytest.mark.parametrize("transport", ["memory", "tcp"])
def test_dense_evaluation_data_beside_sparse_training_data(transport):
    """A matrix stores all its zeros: they are values by the rule "unstored"."""
    X, y = runs.sparse_data()
    table, labels = runs.dense_data(37, seed=9)
    for data, rule in ((X, None), (without_zeros(X), None), (X, "unstored"), (X, True)):
        params = {"zero_as_missing": rule}
        forest = train(data, y, params, evals=[(table, labels, "e")], grid=(2, 1), transport=transport, num_boost_round=2)
        margins = forest.predict(table, output_margin=True)
        assert forest.report["evaluation"]["e-logloss"][-1] == METRICS["logloss"](margins, labels)
        assert runs.model_text(forest) == runs.model_text(train(data, y, params, num_boost_round=2))


def test_dense_data_by_the_rule_unstored_is_as_by_default():
    """Every cell is stored, so that NaN alone is missing."""
    X, y = runs.dense_data()
    forest = train(X, y, {"zero_as_missing": "unstored"})
    assert same_trees(forest, train(X, y))
    rows, columns = np.nonzero(np.ones(X.shape))
    stored = sparse.csr_array((X[rows, columns], (rows, columns)), shape=X.shape)
    assert runs.model_text(train(stored, y)) == runs.model_text(forest)
    np.testing.assert_array_equal(forest.predict(stored), forest.predict(X))


def test_negative_zeros_are_zeros():
    X, y = runs.sparse_data()
    expected = runs.model_text(train(X, y))
    X.data[np.flatnonzero(X.data == 0)[::2]] = -0.0
    assert np.signbit(X.data[X.data == 0]).any()
    for grid, servers in GRIDS:
        assert runs.model_text(train(X, y, grid=grid, servers=servers)) == expected


def test_dense_input():
    X, y = runs.dense_data()
    expected = runs.model_text(train(X, y))
    for other in (X.astype(np.float64), np.asfortranarray(X), X.tolist(), np.ascontiguousarray(X.T).T):
        assert runs.model_text(train(other, y)) == expected
    assert runs.model_text(train(sparse.csr_array(X), y, {"zero_as_missing": False})) == expected
    whole = np.nan_to_num(X * 2).astype(np.int64)
    assert runs.model_text(train(whole, y)) == runs.model_text(train(whole.astype(np.float32), y))


def test_the_caller_keeps_its_arrays():
    X, y = runs.sparse_data()
    weights = np.ones(len(y))
    before = [array.copy() for array in (X.indptr, X.indices, X.data, y, weights)]
    for array in (X.indptr, X.indices, X.data, y, weights):
        array.flags.writeable = False
    train(X, y, grid=(2, 2), sample_weight=weights, evals=[(X, y, "e")])
    for array, copy in zip((X.indptr, X.indices, X.data, y, weights), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_weights_of_0_1_and_2_are_rows_left_out_and_repeated():
    X, y = runs.dense_data(60)
    weights = np.random.default_rng(0).choice([0.0, 1.0, 2.0], 60)
    how = {"grad_bits": 32, "base_score": 0.5, "learning_rate": 1.0}
    weighted = train(X, y, how, sample_weight=weights, num_boost_round=1)
    mapper = weighted.bin_mapper
    repeat = np.repeat(np.arange(60), weights.astype(int))
    repeated = train(X[repeat], y[repeat], how, bin_mapper=mapper, num_boost_round=1)
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-5)


@pytest.mark.parametrize("grid", [(1, 1), (2, 1)])
def test_small_weights_beside_a_large_one_are_not_rounded_up(grid):
    """What 16 bits would do; a child then has rows of less weight than min_child_weight asks for."""
    n_rows = 16_384
    X = np.random.default_rng(0).integers(0, 50, (n_rows, 3))
    weights = np.ones(n_rows)
    weights[0] = 1e6  # squared error: a row's hess is its weight
    how = {"objective": "reg:squarederror", "max_depth": 8, "min_child_weight": 30}
    forest = train(X, X[:, 0] - X[:, 1] * 0.1, how, sample_weight=weights, grid=grid, num_boost_round=1)
    [tree] = forest.trees
    assert tree.sum_hess[0] == pytest.approx(weights.sum(), rel=1e-4)
    _, leaf = np.unique(forest.predict(X), return_inverse=True)
    assert np.bincount(leaf, weights).min() >= 30


def test_errors_in_evaluation_data_name_them():
    X, y = runs.sparse_data()
    for labels, said in (
        (None, "'w' has no labels"), (2 * y, "of the evaluation data 'w': label 2"), (y[:-1], "'w': labels has"),
    ):  # fmt: skip
        with pytest.raises(DataError, match=said):
            train(X, y, evals=[(X, labels, "w")], num_boost_round=1)


def test_bins_are_those_of_the_bin_mapper():
    X, y = runs.dense_data()
    mapper = train(X, y, {"max_bin": 16}, num_boost_round=1).bin_mapper
    assert train(X, y, bin_mapper=mapper, num_boost_round=1).bin_mapper.max_bin == 16
    with pytest.raises(ParameterError, match="max_bin=17, but the bin mapper was made with 16"):
        train(X, y, {"max_bin": 17}, bin_mapper=mapper, num_boost_round=1)
    with pytest.raises(ParameterError, match="bin_mapper is a int"):
        train(X, y, bin_mapper=3, num_boost_round=1)


@pytest.mark.parametrize("dtype", [np.float16, ">f8", ">i4", object])
def test_numbers_of_any_type_are_the_same_everywhere(dtype):
    X, y = runs.dense_data()
    X = np.round(2 * np.nan_to_num(X))
    expected = runs.model_text(train(X, y, num_boost_round=2))
    for how in ({}, {"transport": "ipc", "grid": (2, 1)}):
        assert runs.model_text(train(X.astype(dtype), y, num_boost_round=2, **how)) == expected


def test_objects_that_are_no_numbers():
    with pytest.raises(DataError, match="X holds objects that are not all numbers"):
        train(np.array([["a", 1.0], ["b", 2.0]], object), [0, 1], num_boost_round=1)


def test_a_forest_is_shown_in_a_line():
    X, y = runs.dense_data()
    forest = train(X, y, num_boost_round=3)
    assert len(repr(forest)) < 500 and "binary:logistic" in repr(forest)


def test_file_of_rows_by_number(tmp_path):
    path = tmp_path / "a.svm"
    path.write_text("1 0:1 5:2\n0 5:1\n1 0:2\n0 3:1\n")
    forest = train(path, index_base=0)
    assert forest.n_features == 6 and train(path, index_base=0, n_features=40).n_features == 40


# --- callbacks


@pytest.mark.parametrize("transport", ["memory", "inproc"])
@pytest.mark.parametrize(("grid", "servers"), [((1, 1), 1), ((2, 2), 2), ((1, 3), 1)])
def test_callbacks_see_each_round(transport, grid, servers):
    X, y = runs.sparse_data()
    rounds, others = [], []
    forest = train(
        X, y, grid=grid, servers=servers, transport=transport, num_boost_round=4, evals=[(X, y, "train")],
        callbacks=[rounds.append, others.append],
    )  # fmt: skip
    assert [r.number for r in rounds] == [0, 1, 2, 3] and rounds == others
    log = forest.report["evaluation"]
    for i, round_ in enumerate(rounds):
        assert round_.n_rounds == 4
        assert round_.n_leaves == (forest.trees[i].left < 0).sum()
        assert round_.metrics == {name: values[i] for name, values in log.items()}
        assert round_.bytes_sent > (rounds[i - 1].bytes_sent if i else 0)
        assert {"build", "search", "update"} <= round_.seconds.keys()


@pytest.mark.parametrize("transport", ["memory", "inproc"])
@pytest.mark.parametrize(("grid", "servers"), [((1, 1), 1), ((2, 2), 2), ((1, 3), 1), ((3, 1), 2)])
@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_a_callback_that_returns_true_ends_the_training(transport, grid, servers, objective):
    X, y = runs.sparse_data()
    seen = []

    def stop(round_):
        seen.append(round_.number)
        return round_.number == 1

    how = {"grid": grid, "servers": servers, "transport": transport}
    with runs.no_threads_left():
        forest = train(X, y, {"objective": objective}, **how, num_boost_round=50, callbacks=[stop, lambda _: None])
    assert seen == [0, 1] and len(forest.trees) == 2
    assert forest.report["trees"] == 2
    whole = train(X, y, {"objective": objective}, num_boost_round=2)
    assert runs.model_text(forest) == runs.model_text(whole)
    last = train(X, y, {"objective": objective}, **how, num_boost_round=2, callbacks=[stop])
    assert "StopTraining" not in last.report["bytes"]  # it was over anyway


@pytest.mark.parametrize("transport", ["memory", "inproc"])
def test_an_error_in_a_callback_comes_out_and_everything_ends(transport):
    X, y = runs.sparse_data()

    def fail(round_):
        if round_.number == 1:
            raise KeyError("mine")

    with runs.no_threads_left(), pytest.raises(KeyError, match="mine"):
        train(X, y, transport=transport, grid=(2, 2), callbacks=[fail])


@pytest.mark.parametrize("transport", ["memory", "inproc"])
def test_callbacks_say_by_true_alone_that_training_ends(transport):
    X, y = runs.sparse_data()
    for answer, n_trees in ((None, 3), (False, 3), (np.False_, 3), (np.True_, 1)):
        forest = train(X, y, callbacks=[lambda _, answer=answer: answer], transport=transport)
        assert len(forest.trees) == n_trees
    with runs.no_threads_left(), pytest.raises(ParameterError, match=r"<lambda> returned 7: return True to end the"):
        train(X, y, callbacks=[lambda _: None, lambda _: io.StringIO().write("a round")], transport=transport)


# --- the report


@pytest.mark.parametrize("transport", ["memory", "inproc"])
def test_report(transport):
    X, y = runs.sparse_data()
    rounds = []
    forest = train(
        X, y, grid=(2, 2), servers=2, transport=transport, evals=[(X, y, "e")], num_boost_round=3,
        callbacks=[rounds.append],
    )  # fmt: skip
    report = forest.report
    assert report["transport"] == transport and report["trees"] == 3 and report["rows"] == 90
    assert {"read", "sketch", "bin", "train", "total"} <= report["seconds"].keys()
    assert all(0 <= seconds <= report["seconds"]["total"] for seconds in report["seconds"].values())
    assert report["seconds"]["train"] > 0
    assert report["stages"].keys() == {"workers", "servers", "coordinator"}
    assert {"gradients", "build", "encode", "route", "update"} <= report["stages"]["workers"].keys()
    assert {"merge", "search", "encode"} <= report["stages"]["servers"].keys()
    assert "choose" in report["stages"]["coordinator"]
    table = np.nan_to_num(X.toarray())
    assert report["stored_values"] == np.count_nonzero(~np.isnan(X.data)) > np.count_nonzero(table)
    assert report["features"] == {"declared": 8, "stored": 7, "splittable": 7}
    assert report["bins"] == len(forest.bin_mapper.cuts)

    kinds = {
        "DescribeRows": 4, "DealFeatures": 4, "DealRanges": 2, "PushSketches": 4, "CloseTree": 16,
        "PushLeafSums": 8, "PushEvaluation": 6,
    }  # fmt: skip
    for kind, n_messages in kinds.items():
        assert report["bytes"][kind]["messages"] == n_messages
    n_levels = report["bytes"]["ProposeSplits"]["messages"]  # one server proposes to the other, who chooses
    assert report["bytes"]["PushHistograms"]["messages"] == 4 * n_levels
    # a server hears nothing of the last level, which all three trees have
    assert report["bytes"]["ApplySplits"]["messages"] == 5 * n_levels - 3
    assert report["bytes"]["PushSplits"]["messages"] == 3
    for sums in report["bytes"].values():
        assert sums.keys() == {"messages", "payload", "wire"}
        assert sums["wire"] >= sums["payload"] + 2 * sums["messages"]
    total = {}
    assert set(report["bytes_by_tree"]) == {-1, 0, 1, 2}
    for kinds in report["bytes_by_tree"].values():
        for kind, sums in kinds.items():
            for name, value in sums.items():
                total.setdefault(kind, dict.fromkeys(sums, 0))[name] += value
    assert total == report["bytes"]
    assert report["seconds_by_tree"].keys() == report["stages_by_tree"].keys() == {0, 1, 2}
    assert sum(report["seconds_by_tree"].values()) <= report["seconds"]["train"]
    for stages in report["stages_by_tree"].values():
        assert {"gradients", "build", "encode", "route", "update"} <= stages["workers"].keys()
    assert sum(report["dense"]["bytes_by_tree"]) == report["dense"]["bytes"]
    wire = sum(sums["wire"] for sums in total.values())
    assert wire == sum(role["bytes_sent"] for role in report["roles"].values()) == rounds[-1].bytes_sent
    assert report["roles"].keys() == {
        "coordinator", "server 0", "server 1", "worker 0,0", "worker 0,1", "worker 1,0", "worker 1,1"
    }  # fmt: skip

    dense = report["dense"]
    assert dense["bins"] == report["bins"] + 8 - 7 and dense["bytes_per_histogram"] == 16 * dense["bins"]
    n_built = sum(max(1, len(level) // 2) for tree in forest.trees for level in open_levels(tree, 3))
    assert dense["histograms"] == n_built
    assert dense["bytes"] == 2 * 3 * dense["bytes_per_histogram"] * n_built
    balance = report["balance"]
    assert sum(balance["rows_of_row_shards"]) == 90
    assert sum(balance["values_of_row_shards"]) == sum(balance["values_of_feature_shards"]) == report["stored_values"]
    assert len(balance["bins_of_servers"]) == 2


@pytest.mark.parametrize("callbacks", [[], [bool]], ids=["nobody asks between", "asked after each round"])
def test_a_worker_in_memory_counts_the_bytes_of_its_messages(callbacks):
    """It passes them on as they are; threads of one process do encode them."""
    X, y = runs.sparse_data()
    arguments = {"evals": [(X, y, "e")], "num_boost_round": 3}
    counted, sent = (
        train(X, y, transport=transport, callbacks=callbacks, **arguments).report for transport in ("memory", "inproc")
    )
    for key in ("bytes", "bytes_by_tree", "edges"):
        assert counted[key] == sent[key]


def open_levels(tree, max_depth):
    """The nodes whose splits are searched, level by level."""
    level, levels = [0], []
    while level and len(levels) < max_depth:
        levels.append(level)
        level = [child for n in level if tree.left[n] >= 0 for child in (tree.left[n], tree.right[n])]
    return levels


def test_bytes_do_not_depend_on_the_transport():
    X, y = runs.sparse_data()
    reports = [train(X, y, transport=t, grid=(2, 2)).report for t in ("memory", "inproc")]
    by_tree = [report["bytes_by_tree"] for report in reports]
    for tree in (0, 1, 2):
        assert by_tree[0][tree] == by_tree[1][tree]


def test_one_row_shard_sends_no_histograms_and_one_feature_shard_routes_nothing():
    X, y = runs.sparse_data()
    wide = train(X, y, grid=(1, 3), servers=2).report["bytes"]
    tall = train(X, y, grid=(3, 1), servers=2).report["bytes"]
    assert {"PushHistograms", "PushSketches", "DealRanges"} & wide.keys() == set()
    assert "PushBitvectors" not in tall
    assert "PushBitvectors" in wide and "PushHistograms" in tall


# --- evaluation


@pytest.mark.parametrize("dense", [False, True])
@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
@pytest.mark.parametrize("grid", [(1, 1), (2, 3)])
def test_evaluation_is_that_of_the_forests_margins(grid, objective, dense, tmp_path):
    """Exactly: training and forest give every row, seen or not, the same float32 margin."""
    make = runs.dense_data if dense else runs.sparse_data
    X, y = make(120)
    other, labels = make(37, seed=9, n_values=13)  # with values and NaN where training has none
    forest = train(
        X, y, {"objective": objective, "max_depth": 6}, grid=grid, num_boost_round=4,
        evals=[(X, y, "train"), (other, labels, "other")],
    )  # fmt: skip
    log = forest.report["evaluation"]
    metrics = ["auc", "logloss", "error"] if objective == "binary:logistic" else ["rmse", "mae"]
    assert list(log) == [f"{name}-{metric}" for name in ("train", "other") for metric in metrics]
    for n_trees in range(1, 5):
        part = psboost.Forest(
            forest.trees[:n_trees], objective, forest.base_score, forest.n_features, forest.zero_as_missing
        )
        for name, data, truth in (("train", X, y), ("other", other, labels)):
            margins = part.predict(data, output_margin=True)
            for metric in metrics:
                assert log[f"{name}-{metric}"][n_trees - 1] == METRICS[metric](margins, truth)
    forest.save_model(tmp_path / "m.json")
    again = psboost.load_model(tmp_path / "m.json")
    np.testing.assert_array_equal(again.predict(other), forest.predict(other))


@pytest.mark.parametrize("base_score", [1e-9, 1e-6, 0.1, 1 / 3, 0.7, 1 - 1e-9])
def test_evaluation_starts_from_the_forests_own_base_margin(base_score):
    X, y = runs.dense_data()
    forest = train(X, y, {"base_score": base_score}, num_boost_round=2, evals=[(X, y, "e")])
    margins = forest.predict(X, output_margin=True)
    assert forest.report["evaluation"]["e-logloss"][-1] == METRICS["logloss"](margins, y)


def test_metrics_that_were_asked_for():
    X, y = runs.dense_data()
    log = train(X, y, {"eval_metric": ["error"]}, evals=[(X, y, "a")]).report["evaluation"]
    assert list(log) == ["a-error"]
    assert train(X, y).report["evaluation"] == {}


LETTERS = [*"abcdefgh"]


def test_a_data_frame_brings_its_columns_names(tmp_path):
    X, y = runs.dense_data()
    frame = pandas.DataFrame(X, columns=LETTERS)
    forest, plain = train(frame, y, evals=[(frame, y, "e")]), train(X, y)
    assert forest.feature_names == tuple(LETTERS) and plain.feature_names is None
    for columns, names in (
        (None, None), ([*"abcdefgg"], None), (range(8), None), ([*range(1, 9)], [*"12345678"]),
        (["a", *range(7)], [*"a0123456"]),
        (pandas.MultiIndex.from_product([[*"ab"], [1, 2, 3, 4]]), [f"{a} {n}" for a in "ab" for n in range(1, 5)]),
        (pandas.date_range("2020-01-01", periods=8), [f"2020-01-0{day} 00:00:00" for day in range(1, 9)]),
        ([*"äöü中😀", "ß", "e", "f"], [*"äöü中😀", "ß", "e", "f"]),
    ):  # fmt: skip
        held = pandas.DataFrame(X, columns=columns)
        assert train(held, y).feature_names == (None if names is None else tuple(names))
        if names is not None:
            assert xgboost.DMatrix(held).feature_names == names
            train(held, y).save_model(tmp_path / "m.json")
            assert xgboost.Booster(model_file=tmp_path / "m.json").feature_names == names
    assert forest.report["evaluation"] == train(X, y, evals=[(X, y, "e")]).report["evaluation"]
    forest.save_model(tmp_path / "m.json")
    for held in (forest, psboost.load_model(tmp_path / "m.json")):
        np.testing.assert_array_equal(held.predict(frame), plain.predict(X))
        np.testing.assert_array_equal(held.predict(X), plain.predict(X))
        for predict in (held.predict, lambda rows, of=held: psboost.predict(of, rows, grid=(1, 2))):
            with pytest.raises(ModelError, match="X has 'h' as column 0, where 'a' was when the model was trained"):
                predict(frame[LETTERS[::-1]])
    booster = xgboost.Booster(model_file=tmp_path / "m.json")
    assert booster.feature_names == LETTERS
    np.testing.assert_array_equal(booster.predict(xgboost.DMatrix(frame)), forest.predict(frame))
    with pytest.raises(DataError, match="the evaluation data 'e' has 'b' as column 0, where 'a' was when"):
        train(frame, y, evals=[(frame.rename(columns={"a": "b", "b": "a"}), y, "e")])


def test_data_frames_of_other_kinds(tmp_path):
    X, y = runs.dense_data()
    frame = pandas.DataFrame(X, columns=LETTERS)
    frame["n"] = pandas.array([1, None] * (len(y) // 2), dtype="Int64")
    frame["b"] = pandas.array([None, True] * (len(y) // 2), dtype="boolean")
    assert runs.model_text(train(frame, y)) == runs.model_text(train(frame.astype(float), y))
    assert runs.model_text(train(frame.assign(a=frame["a"].astype(object)), y)) == runs.model_text(train(frame, y))
    texts, time = ["x", "y"] * (len(y) // 2), pandas.Timestamp("2020-01-01")
    for wrong in ({"g": texts}, {"g": pandas.Categorical(texts)}, {"g": time}, {"g": time - time}, {"g": 1j}):
        with pytest.raises(DataError, match="^X holds no numbers in column 'g': make numbers of them"):
            train(frame.assign(o=frame["a"].astype(object), **wrong), y)
    with pytest.raises(DataError, match="'g', 't'"):
        train(frame.assign(g=texts, t=time), y)

    X, y = runs.sparse_data()
    frame = pandas.DataFrame.sparse.from_spmatrix(X, columns=LETTERS)
    for how in ({}, {"transport": "tcp", "grid": (2, 1)}):
        forest, expected = train(frame, pandas.DataFrame({"y": y}), **how), train(X, y, **how)
        assert forest.zero_as_missing == expected.zero_as_missing
        assert [tree.threshold.tolist() for tree in forest.trees] == [tree.threshold.tolist() for tree in expected.trees]
        np.testing.assert_array_equal(forest.predict(frame), expected.predict(X))
        np.testing.assert_array_equal(psboost.predict(forest, frame, grid=(2, 2)), expected.predict(X))


def test_sparse_data_frames_of_several_kinds():
    X, y = runs.sparse_data()
    frame = pandas.DataFrame.sparse.from_spmatrix(X, columns=LETTERS)
    bits = frame["a"].astype(pandas.SparseDtype(bool, False))
    mixed = train(frame.assign(a=bits), y)
    as_matrix = sparse.hstack([X[:, [0]] != 0, X[:, 1:]], format="csr")
    assert mixed.zero_as_missing == train(as_matrix, y).zero_as_missing
    np.testing.assert_array_equal(mixed.predict(frame.assign(a=bits)), train(as_matrix, y).predict(as_matrix))
    for kind in (pandas.SparseDtype(np.float64, np.nan), pandas.SparseDtype(np.float64, 1.0)):  # which a matrix cannot be
        other = frame.assign(**{name: frame[name].sparse.to_dense().astype(kind) for name in LETTERS})
        assert train(other, y).zero_as_missing is False
        np.testing.assert_array_equal(train(other, y).predict(other), train(X.toarray(), y).predict(X.toarray()))
    assert train(frame[[]], y).n_features == 0


@pytest.mark.parametrize("transport", ["memory", "ipc"])
def test_labels_and_weights_beside_an_npz(transport, tmp_path):
    class Path:
        def __fspath__(self):
            return str(tmp_path / "x.npz")

    X, y = runs.sparse_data()
    weights = np.arange(len(y)) + 1.0
    sparse.save_npz(tmp_path / "x.npz", X)
    forest = train(Path(), y[:, None], sample_weight=weights, transport=transport)
    assert runs.model_text(forest) == runs.model_text(train(X, y, sample_weight=weights))


@pytest.mark.parametrize(
    "how",
    [{}, {"threads": 2}, {"grid": (2, 2)}, {"mode": "allreduce", "grid": (2, 1)}, {"callbacks": [lambda round_: True]}],
)
def test_data_are_let_go_after_the_training(how):
    """And not when Python next looks for garbage: a few large arrays do not make it look."""
    X, y = runs.dense_data()
    held = weakref.ref(X)
    gc.disable()
    try:
        forest = train(X, y, **how)
        forest.predict(X)
        del X
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("how", [{"threads": 2}, {"grid": (2, 2)}, {"transport": "inproc"}])
def test_data_are_let_go_if_a_training_is_interrupted(how, monkeypatch):
    """And its threads are gone."""
    monkeypatch.setattr(dealing, "WORK_OF_A_THREAD", 1)

    def interrupt(round_):
        raise KeyboardInterrupt

    X, y = runs.dense_data()
    held = weakref.ref(X)
    gc.disable()
    try:
        with pytest.raises(KeyboardInterrupt) as raised:
            train(X, y, callbacks=[interrupt], **how)
        assert [thread.name for thread in threading.enumerate() if "psboost" in thread.name] == []
        del X, raised
        assert held() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_text_to_train_or_evaluate_on_does_not_say_how_wide_it_is(grid, tmp_path):
    X, y = runs.sparse_data()
    wide, train_text, wide_text, narrow_text = sparse.hstack([X, X], format="csr"), *(tmp_path / name for name in "twn")
    for path, data in ((train_text, X), (wide_text, wide), (narrow_text, X[:, :3].tocsr())):
        path.write_text(svm_text(data, y))
    margins = train(X, y, grid=grid).predict(X, output_margin=True)
    for evaluation in ((wide_text,), (wide, y)):
        forest = train(train_text, grid=grid, evals=[(*evaluation, "e")])
        assert forest.n_features == 16
        assert forest.report["evaluation"]["e-logloss"][-1] == METRICS["logloss"](margins, y)
    assert train(X, y, grid=grid, evals=[(narrow_text, "e")]).n_features == 8
    with pytest.raises(DataError, match=f"{wide_text} has 16 features, X has 8: give the same columns in both"):
        train(X, y, grid=grid, evals=[(wide_text, "e")])


# --- edge cases that just work


def works(X, y, params=None, **how):
    """The forest, the same on all grids, that predicts what training says it does."""
    texts = set()
    for grid, servers in GRIDS:
        forest = train(X, y, params, grid=grid, servers=servers, evals=[(X, y, "e")], **how)
        texts.add(runs.model_text(forest))
        metric = "rmse" if forest.objective == "reg:squarederror" else "logloss"
        margins = forest.predict(X, output_margin=True)
        assert np.isfinite(margins).all()
        assert forest.report["evaluation"][f"e-{metric}"][-1] == METRICS[metric](margins, np.asarray(y, float))
    assert len(texts) == 1
    return forest


SQUARED = {"objective": "reg:squarederror"}
EACH_RULE = pytest.mark.parametrize("zero_as_missing", [True, False, "unstored"])


@EACH_RULE
def test_one_row(zero_as_missing):
    rule = {"zero_as_missing": zero_as_missing}
    forest = works(np.array([[1.0, 0.0, np.nan]]), [7.5], SQUARED | rule)
    assert forest.predict(np.array([[5.0, 5.0, 5.0]])).tolist() == [7.5]
    assert all(tree.n_nodes == 1 for tree in forest.trees)


@EACH_RULE
def test_identical_rows(zero_as_missing):
    forest = works(np.ones((10, 3)), np.arange(10) % 2, {"zero_as_missing": zero_as_missing})
    assert all(tree.n_nodes == 1 for tree in forest.trees)
    np.testing.assert_allclose(forest.predict(np.ones((2, 3))), 0.5, atol=1e-6)


@EACH_RULE
def test_constant_labels_of_a_regression(zero_as_missing):
    X, _ = runs.dense_data(20)
    forest = works(X, np.full(20, -3.25), SQUARED | {"zero_as_missing": zero_as_missing})
    np.testing.assert_allclose(forest.predict(X), -3.25, rtol=1e-6)


@EACH_RULE
def test_nothing_stored_at_all(zero_as_missing):
    rule = {"zero_as_missing": zero_as_missing}
    for X in (np.zeros((6, 2)), np.full((6, 2), np.nan), sparse.csr_array((6, 2)), np.zeros((6, 0))):
        forest = works(X, [0, 1, 1, 1, 0, 1], rule)
        assert all(tree.n_nodes == 1 for tree in forest.trees)
        np.testing.assert_allclose(forest.predict(X), 2 / 3, atol=1e-6)
        if X.shape[1] and np.isnan(X.sum()) or not X.shape[1]:
            works(X, [0, 1, 1, 1, 0, 1], SQUARED | rule)


@EACH_RULE
def test_a_feature_stored_once(zero_as_missing):
    X = np.zeros((8, 3))
    X[5, 1] = 4
    y = np.zeros(8)
    y[5] = 1
    forest = works(X, y, {"zero_as_missing": zero_as_missing}, num_boost_round=30)
    predicted = forest.predict(X)
    assert predicted[5] > 0.5 > predicted[4] and len(set(np.delete(predicted, 5).tolist())) == 1
    assert set(forest.trees[0].feature.tolist()) == {1, -1}


@EACH_RULE
def test_a_feature_that_is_missing_or_nothing_else(zero_as_missing):
    X = np.zeros((8, 2))
    X[:, 0] = [np.nan, np.nan, np.nan, np.nan, 1, 1, 1, 1]
    forest = works(X, [1, 1, 1, 1, 0, 0, 0, 0], {"zero_as_missing": zero_as_missing})
    assert (forest.predict(X) > 0.5).tolist() == [True] * 4 + [False] * 4
    X = np.where(np.arange(8)[:, None] < 4, np.nan, 0.0)
    forest = works(X, [1, 1, 1, 1, 0, 0, 0, 0], {"zero_as_missing": zero_as_missing})
    # Zeros that are values differ from NaN, zeros that are missing do not.
    assert len(set(forest.predict(X).tolist())) == (1 if zero_as_missing is True else 2)


def test_empty_shards():
    """All values in the first rows and the first feature: most blocks hold nothing."""
    X = sparse.csr_array(([1.0, 2.0, 1.0, 2.0], ([0, 1, 2, 3], [0, 0, 0, 0])), shape=(40, 50))
    forest = works(X, np.arange(40) % 2)
    assert forest.n_features == 50
    many = train(X, np.arange(40) % 2, grid=(5, 6), servers=7)
    assert runs.model_text(many) == runs.model_text(forest)


def test_rows_of_weight_0_teach_nothing():
    X, y = runs.dense_data(60)
    weights = np.r_[np.ones(40), np.zeros(20)]
    first = train(X, np.r_[y[:40], np.zeros(20)], sample_weight=weights)
    second = train(X, np.r_[y[:40], np.ones(20)], sample_weight=weights)
    assert runs.model_text(first) == runs.model_text(second)


@pytest.mark.parametrize("size", [1e-200, 1e-15, 1e6])
def test_weights_of_any_size(size):
    X, y = runs.dense_data(40)
    how = {"min_child_weight": 0, "reg_lambda": 0, "base_score": 0.5}
    plain = train(X, y, how, sample_weight=np.ones(40))
    scaled = train(X, y, how, sample_weight=np.full(40, size))
    if size > 1:
        np.testing.assert_allclose(scaled.predict(X), plain.predict(X), rtol=1e-5)
    assert np.isfinite(scaled.predict(X)).all()
    works(X, y, {"min_child_weight": 1}, sample_weight=np.full(40, size))


def test_a_min_child_weight_that_nothing_reaches(tmp_path):
    X, y = runs.dense_data()
    forest = works(X, y, {"min_child_weight": 1e300})
    assert all(tree.n_nodes == 1 for tree in forest.trees)
    forest.bin_mapper.save(tmp_path / "m.npz")
    assert psboost.BinMapper.load(tmp_path / "m.npz").min_rows == forest.bin_mapper.min_rows


def test_the_largest_values():
    largest = float(np.finfo(np.float32).max)
    X = np.array([[largest * 0.99, -largest * 0.99], [1, 1], [-1, 0], [0, largest * 0.99]])
    works(X, [0, 1, 0, 1])
    works(X, [1e37, -1e37, 0, 5], SQUARED)


def test_gains_and_sums_that_float32_cannot_hold(tmp_path):
    """Labels of 1e25 give gains of 1e50: the model is still one that can be read."""
    X, y = runs.dense_data(60)
    for params, labels, weight in ((SQUARED, 1e25 * y, 1.0), ({}, y, 3e38)):
        forest = works(X, labels, params, sample_weight=np.full(60, weight))
        forest.save_model(tmp_path / "m.json")
        again = psboost.load_model(tmp_path / "m.json")
        for tree in again.trees:
            assert np.isfinite(tree.gain).all() and np.isfinite(tree.sum_hess).all()
        np.testing.assert_array_equal(again.predict(X), forest.predict(X))


def test_feature_numbers_up_to_the_largest(tmp_path):
    path = tmp_path / "a.svm"
    last = 2**63 - 2
    path.write_text(f"1 1:1 {last + 1}:2\n0 7:1 {last + 1}:1\n1 {last + 1}:2\n0 {last + 1}:1\n")
    texts = {runs.model_text(train(path, grid=grid, servers=servers)) for grid, servers in GRIDS}
    assert len(texts) == 1
    forest = train(path)
    assert forest.n_features == 2**63 - 1 and last in forest.trees[0].feature.tolist()
    assert (forest.predict(path) > 0.5).tolist() == [True, False, True, False]


# --- bad input


X6 = np.arange(12.0).reshape(6, 2)
Y6 = np.array([0, 1, 0, 1, 0, 1])


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"params": {"max_dept": 3}}, ParameterError, "unknown parameter 'max_dept'.* did you mean max_depth?"),
        ({"params": {"objective": "multi:softmax"}}, ParameterError, "objective must be one of"),
        ({"params": {"grad_bits": 12}}, ParameterError, "grad_bits must be one of 4, 8, 16, 32, not 12"),
        ({"params": {"base_score": 1.5}}, ParameterError, "base_score is a probability"),
        ({"params": SQUARED | {"base_score": 1e39}}, ParameterError, r"at most 3.40282e\+38, not 1e\+39"),
        ({"y": np.ones(6)}, DataError, "all 6 labels are 1: a single class"),
        ({"y": np.zeros(6)}, DataError, "all 6 labels are 0"),
        ({"y": [0, 1, 0, 2, 0, 1]}, DataError, r"row 3 of X: label 2: .*wants 0 \(or -1\) and 1"),
        ({"y": [0, 1, np.nan, 1, 0, 1]}, DataError, r"labels\[2\] is nan"),
        ({"y": [0, 1, np.inf, 1, 0, 1], "params": SQUARED}, DataError, r"labels\[2\] is inf"),
        ({"y": [0, 1, 1e39, 1, 0, 1], "params": SQUARED}, DataError, r"row 2 of X: label 1e\+39"),
        ({"y": ["a", "b"] * 3}, DataError, "labels are not numbers"),
        ({"y": Y6.astype("M8[s]"), "params": SQUARED}, DataError, r"labels are not numbers: datetime64\[s\]"),
        ({"y": Y6.astype("m8[s]")}, DataError, r"labels are not numbers: timedelta64\[s\]"),
        ({"y": Y6[:5]}, DataError, "labels has 5 entries, X has 6 rows"),
        ({"y": None}, DataError, "X has no labels"),
        ({"X": np.empty((0, 2)), "y": []}, DataError, "X has no rows"),
        ({"X": np.where(X6 == 7, np.inf, X6)}, DataError, "the value in row 3, column 1 is infinite"),
        ({"X": np.where(X6 == 7, 1e39, X6)}, DataError, "the value in row 3, column 1 is infinite"),
        ({"X": np.arange(6.0)}, DataError, "X has 1 dimensions"),
        ({"X": {"a": 1}}, DataError, "X is a dict: give a matrix"),
        ({"y": np.ma.array(Y6, mask=Y6)}, DataError, "labels are a masked array"),
        ({"sample_weight": np.ma.array(Y6, mask=Y6)}, DataError, "weights are a masked array"),
        ({"X": "nowhere.svm", "y": None}, DataError, "nowhere.svm: no such file"),
        ({"sample_weight": np.ones(5)}, DataError, "weights has 5 entries, X has 6 rows"),
        ({"sample_weight": -np.ones(6)}, DataError, r"weights\[0\] is -1"),
        ({"sample_weight": np.full(6, np.nan)}, DataError, r"weights\[0\] is nan"),
        ({"sample_weight": np.full(6, 1e39)}, DataError, r"weight 1e\+39: scale weights"),
        ({"sample_weight": np.zeros(6)}, DataError, "all rows have weight 0"),
        ({"grid": (0, 1)}, ParameterError, r"grid must be .* at least 1.*, not \(0, 1\)"),
        ({"grid": "2x0"}, ParameterError, "grid must be"),
        ({"grid": 4}, ParameterError, "grid must be"),
        ({"servers": 0}, ParameterError, "servers must be"),
        ({"num_boost_round": 0}, ParameterError, "num_boost_round must be"),
        ({"seed": -1}, ParameterError, "seed must be"),
        ({"codec": "zip"}, ParameterError, "codec must be one of packed, csr, not 'zip'"),
        ({"transport": "udp"}, ParameterError, "transport must be one of tcp, ipc, inproc, memory, virtual, not 'udp'"),
        ({"index_base": 2}, ParameterError, "index_base is 2"),
        ({"n_features": 1}, DataError, "X has 2 columns, n_features declares 1"),
        ({"evals": [(X6, Y6)]}, ParameterError, r"evals\[0\]: give \(X, y, name\)"),
        ({"evals": [(X6, Y6, "a"), X6]}, ParameterError, r"evals\[1\]"),
        ({"evals": [(X6, Y6, "a"), (X6, Y6, "a")]}, ParameterError, "a, a are not all different"),
        ({"evals": [(X6, Y6[:4], "a")]}, DataError, "labels has 4 entries"),
        ({"evals": [(X6, Y6 + 1, "a")]}, DataError, "label 2"),
        ({"evals": [(X6, "a")]}, DataError, "has no labels"),
        ({"evals": [(X6[:0], Y6[:0], "a")]}, DataError, "the evaluation data 'a' has no rows"),
        ({"evals": [(X6[:, :1], Y6, "a")]}, DataError, "'a' has 1 features, X has 2: give the same columns"),
        ({"evals": [(np.c_[X6, X6], Y6, "a")]}, DataError, "'a' has 4 features, X has 2: give the same columns"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("transport", ["memory", "inproc"])
def test_bad_input(change, error, text, transport):
    arguments = {"X": X6, "y": Y6, "params": {}, "grid": (2, 2), "transport": transport} | change
    if "row 3" in text or "row 2" in text:
        arguments["grid"] = (1, 1)
    with runs.no_threads_left(), pytest.raises(error, match=text) as caught:
        train(arguments.pop("X"), arguments.pop("y"), arguments.pop("params"), **arguments)
    assert isinstance(caught.value, psboost.PSBoostError)
    assert not isinstance(caught.value, ClusterError)


@pytest.mark.parametrize(
    "change",
    [{"num_boost_round": -1}, {"codec": "zip"}, {"seed": -2}, {"threads": 0}, {"mode": "allreduce", "grid": (1, 2)}],
)
def test_settings_are_refused_before_anything_is_compiled(change, monkeypatch):
    def compile_kernels(*_, **__):
        raise AssertionError

    monkeypatch.setattr("psboost.training.prepare_kernels", compile_kernels)
    with pytest.raises(ParameterError):
        psboost.train({}, X6, Y6, **change)


def test_bin_mappers_that_do_not_fit():
    X, y = runs.sparse_data()
    mapper = train(X, y).bin_mapper
    for rule in (True, False):
        with pytest.raises(ParameterError, match=f"made with zero_as_missing=unstored, this training has {rule}"):
            train(X, y, {"zero_as_missing": rule}, bin_mapper=mapper)
    few = train(X, y, {"min_child_weight": 3}).bin_mapper
    assert len(few.features) < len(mapper.features)
    with pytest.raises(ParameterError, match=re.escape("fewer than 12 rows, but this training could split")):
        train(X, y, bin_mapper=few)
    assert train(X, y, {"min_child_weight": 3}, bin_mapper=few).report["trees"] == 3


def test_bin_mappers_of_other_data_do_not_fit(tmp_path):
    X, y = runs.sparse_data()
    mapper, text = train(X, y).bin_mapper, tmp_path / "a.svm"
    for other, n_features in ((X[:, :3], 3), (sparse.hstack([X, X]).tocsr(), 2 * X.shape[1])):
        with pytest.raises(DataError, match=f"X has {n_features} features, .* made of data with {X.shape[1]}: give"):
            train(other, y, bin_mapper=mapper)
    text.write_text("1 1:1 2:2\n0 2:1\n" * 40)
    narrow = train(text).bin_mapper
    assert narrow.n_features == 2
    assert train(text, bin_mapper=narrow).report["trees"] == 3
    wide = tmp_path / "wide.svm"
    wide.write_text("1 1:1\n0 2:1 9:3\n" * 40)
    with pytest.raises(DataError, match="wide.svm has 9 features, the bin mapper was made of data with 2"):
        train(wide, bin_mapper=narrow, grid=(2, 1))
    with pytest.raises(DataError, match="a.svm or an evaluation set has 9 features, the bin mapper was made"):
        train(text, bin_mapper=narrow, evals=[(wide, "wide")])


def test_a_bin_mapper_brings_its_rule_for_zeros(tmp_path):
    X, y = runs.sparse_data()
    for rule in (True, False, "unstored"):
        mapper = train(X, y, {"zero_as_missing": rule}).bin_mapper
        mapper.save(tmp_path / "b.npz")
        for data in (X, without_zeros(X), X.toarray()):
            expected = train(data, y, {"zero_as_missing": rule}, bin_mapper=mapper)
            for grid, servers in GRIDS:
                forest = train(data, y, bin_mapper=tmp_path / "b.npz", grid=grid, servers=servers)
                assert forest.zero_as_missing == rule
                assert runs.model_text(forest) == runs.model_text(expected)


def test_a_bin_mapper_serves_other_rows(tmp_path):
    X, y = runs.dense_data()
    first = train(X, y)
    first.bin_mapper.save(tmp_path / "b.npz")
    mapper = psboost.BinMapper.load(tmp_path / "b.npz")
    assert runs.model_text(train(X, y, bin_mapper=mapper)) == runs.model_text(first)
    other, labels = runs.dense_data(seed=8)
    texts = set()
    for grid, servers in GRIDS:
        forest = train(other, labels, bin_mapper=mapper, grid=grid, servers=servers, evals=[(other, labels, "e")])
        texts.add(runs.model_text(forest))
        margins = forest.predict(other, output_margin=True)
        assert forest.report["evaluation"]["e-logloss"][-1] == METRICS["logloss"](margins, labels)
        used = np.concatenate([tree.threshold[tree.left >= 0] for tree in forest.trees])
        assert set(used.tolist()) <= set(mapper.cuts.tolist())
    assert len(texts) == 1


# --- quality


def test_auc_beside_xgboost():
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(0)
    X = sparse.random_array((3000, 60), density=0.2, rng=rng, dtype=np.float64, format="csr").astype(np.float32)
    table = X.toarray()
    signal = 4 * table[:, 0] - 3 * table[:, 1] + 5 * table[:, 2] * table[:, 3] + table[:, 4:12].sum(axis=1)
    y = (signal + rng.normal(0, 0.5, 3000) > np.median(signal)).astype(float)
    params = {"objective": "binary:logistic", "max_depth": 4, "learning_rate": 0.2, "min_child_weight": 1.0}
    cut = 2000
    reference = xgboost.train(
        params | {"tree_method": "hist", "nthread": 1}, xgboost.DMatrix(X[:cut], y[:cut]), num_boost_round=30
    )
    margins = reference.predict(xgboost.DMatrix(X[cut:]), output_margin=True)
    expected = METRICS["auc"](margins, y[cut:])
    assert expected > 0.75
    for grid in ((1, 1), (2, 2)):
        forest = psboost.train(params, X[:cut], y[:cut], num_boost_round=30, grid=grid, servers=grid[0])
        found = METRICS["auc"](forest.predict(X[cut:], output_margin=True), y[cut:])
        assert found == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_trees_are_xgboosts(objective, weighted):
    """Of rows with zeros and missing values, many more than are cut exactly. Other rows are predicted alike, so they go left
    or right alike also between values that a node has seen."""
    if XGBOOST >= (3, 3):
        pytest.skip("from 3.3 on its sketches hold fewer values than these (dmlc/xgboost pull request 12167)")
    rng = np.random.default_rng(2)
    table = rng.normal(size=(8000, 8)).astype(np.float32)
    table[rng.random(table.shape) < 0.2] = 0
    table[rng.random(table.shape) < 0.1] = np.nan
    filled = np.nan_to_num(table)
    signal = filled[:, 0] * filled[:, 1] + filled[:, 2] + rng.normal(size=8000)
    y = (signal > 0.2).astype(float) if objective == "binary:logistic" else signal
    weights = rng.integers(1, 6, 4000).astype(float) if weighted else None
    params = {"objective": objective, "max_depth": 5, "learning_rate": 0.3, "max_bin": 64, "min_child_weight": 1.0}
    ours = train(table[:4000], y[:4000], params | {"grad_bits": 32}, sample_weight=weights, num_boost_round=5)
    matrix = xgboost.QuantileDMatrix(table[:4000], y[:4000], weight=weights, max_bin=64, nthread=1)
    theirs = xgboost.train(params | {"tree_method": "hist", "nthread": 1}, matrix, 5)
    expected = theirs.predict(xgboost.DMatrix(table[4000:]), output_margin=True)
    np.testing.assert_allclose(ours.predict(table[4000:], output_margin=True), expected, atol=1e-5)


@pytest.mark.parametrize("grad_bits", [4, 8, 16, 32])
def test_the_first_tree_is_xgboosts_where_features_gain_the_same(grad_bits):
    """Of features that part as many rows of each label, the first is taken, and not one by rounding."""
    rng = np.random.default_rng(4)
    X = sparse.csr_matrix((rng.random((600, 40)) < 0.15).astype(np.float32))
    y = (np.asarray(X.sum(axis=1)).ravel() + 4 * rng.normal(size=600) > 6).astype(float)
    params = {"objective": "binary:logistic", "max_depth": 6, "min_child_weight": 0.5}
    [ours] = train(X, y, params | {"grad_bits": grad_bits}, num_boost_round=1, grid=(2, 2)).trees
    theirs = xgboost.train(params | {"nthread": 1}, xgboost.DMatrix(X, y), 1)
    [tree] = json.loads(theirs.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    pairs = [(0, 0)]
    for node, other in pairs:
        assert ours.left[node] < 0 or ours.feature[node] == tree["split_indices"][other]
        assert (ours.left[node] < 0) == (tree["left_children"][other] < 0)
        if ours.left[node] >= 0:
            pairs += (ours.left[node], tree["left_children"][other]), (ours.right[node], tree["right_children"][other])
        assert ours.value[node] == pytest.approx(tree["base_weights"][other], rel=1e-4, abs=1e-5)
    assert len(pairs) > 50


@pytest.mark.parametrize("grid", [(1, 1), (2, 2)])
def test_a_root_may_be_lighter_than_min_child_weight(grid):
    """It is no child: it has its value, as in XGBoost from 3.4 on (dmlc/xgboost pull request 12322)."""
    X, y = np.arange(4.0).reshape(4, 1), np.array([0, 1, 1, 1])
    params = {"objective": "binary:logistic", "base_score": 0.3, "min_child_weight": 1.0}
    ours = train(X, y, params, num_boost_round=1, grid=grid).predict(X, output_margin=True)
    root = base_margin("binary:logistic", 0.3) + 0.3 * (3 - 4 * 0.3) / (4 * 0.3 * 0.7 + 1)
    np.testing.assert_allclose(ours, root, rtol=1e-6)
    if XGBOOST >= (3, 4):
        theirs = xgboost.train(params | {"nthread": 1}, xgboost.DMatrix(X, y), 1)
        np.testing.assert_allclose(ours, theirs.predict(xgboost.DMatrix(X), output_margin=True), rtol=1e-6)


def zeros_that_matter(n_rows, seed):
    """Sparse data where a fifth of the cells is stored, some of them 0, and whether one is says much of y."""
    rng = np.random.default_rng(seed)
    stored = rng.random((n_rows, 12)) < 0.2
    values = np.round(rng.normal(1, 1, stored.shape), 1).astype(np.float32)
    values[rng.random(stored.shape) < 0.4] = 0
    values[rng.random(stored.shape) < 0.05] = -0.0
    worth = np.where(stored, np.where(values == 0, 2, values / 2), 0)
    signal = worth @ np.linspace(-1, 1, 12) + rng.normal(0, 0.3, n_rows)
    rows, columns = np.nonzero(stored)
    X = sparse.csr_matrix((values[rows, columns], (rows, columns)), shape=stored.shape)
    return X, (signal > 0).astype(float)


def test_stored_zeros_beside_xgboost(tmp_path):
    """By its convention: the same margins to the bit, and learning as much from it, which the rule True cannot."""
    xgboost = pytest.importorskip("xgboost")
    X, y = zeros_that_matter(4000, 0)
    other, labels = zeros_that_matter(2000, 1)
    params = {"objective": "binary:logistic", "max_depth": 4, "learning_rate": 0.3, "min_child_weight": 1.0}
    matrix = xgboost.QuantileDMatrix(X, y, nthread=1)
    reference = xgboost.train(params | {"tree_method": "hist", "nthread": 1}, matrix, 20)
    expected = METRICS["logloss"](reference.predict(xgboost.DMatrix(other), output_margin=True), labels)

    losses = {}
    for rule, grid in ((None, (1, 1)), (None, (2, 2)), (True, (1, 1))):
        how = {"grid": grid, "evals": [(other, labels, "e")], "num_boost_round": 20}
        forest = train(X, y, params | {"zero_as_missing": rule, "sketch": "exact"}, **how)
        forest.save_model(tmp_path / "m.json")
        margins = forest.predict(other, output_margin=True)
        booster = xgboost.Booster(model_file=tmp_path / "m.json")
        theirs = xgboost.DMatrix(other) if rule is None else xgboost.DMatrix(other, missing=0.0)
        np.testing.assert_array_equal(booster.predict(theirs, output_margin=True), margins)
        losses[rule, grid] = METRICS["logloss"](margins, labels)
        assert forest.report["evaluation"]["e-logloss"][-1] == losses[rule, grid]
        if rule is None:
            offsets, cuts = matrix.get_quantile_cut()
            for f, begin, end in zip(range(12), forest.bin_mapper.offsets, forest.bin_mapper.offsets[1:], strict=False):
                ours = forest.bin_mapper.cuts[begin : end - 1]
                np.testing.assert_array_equal(ours, cuts[int(offsets[f]) + 1 : int(offsets[f + 1]) - 1])
    assert losses[None, (2, 2)] == losses[None, (1, 1)] == pytest.approx(expected, abs=0.003)
    assert losses[True, (1, 1)] > expected + 0.05


def test_paths_of_files_are_left_alone(tmp_path):
    X, y = runs.sparse_data()
    (tmp_path / "a.svm").write_text(svm_text(X, y))
    before = sorted(Path(tmp_path).iterdir())
    train(tmp_path / "a.svm", grid=(2, 2))
    assert sorted(Path(tmp_path).iterdir()) == before

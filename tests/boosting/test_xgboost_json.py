"""Knows the model file, what other libraries make of it, and how it can be broken; does not know training."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting.forest import TREE_DTYPES, Forest, load_model
from psboost.boosting.xgboost_json import dumps, loads
from psboost.errors import ModelError
from tests.naive import scoring as naive


def same_trees(a, b):
    for tree, other in zip(a.trees, b.trees, strict=True):
        for name, dtype in TREE_DTYPES.items():
            array = getattr(tree, name)
            expected = np.where(tree.left < 0, 0, array) if name == "threshold" else array
            assert getattr(other, name).dtype == dtype
            np.testing.assert_array_equal(getattr(other, name), expected)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32),
    st.lists(st.integers(1, 90), max_size=4),
    st.sampled_from([True, False, "unstored"]),
    st.floats(2**-20, 1 - 2**-20, width=32),
)
def test_a_forest_comes_back_as_it_was(seed, n_leaves, rule, base_score):
    forest = naive.random_forest(np.random.default_rng(seed), n_leaves, 6, rule, base_score=base_score)
    forest.attributes = {"psboost.seed": "7", "best_iteration": "3", "psboost.note": 'a "trees":[ in é'}
    text = dumps(forest)
    back = loads(text.encode())
    same_trees(forest, back)
    assert dumps(back) == text
    assert back.attributes == forest.attributes and back.zero_as_missing == rule
    assert json.loads(text)["learner"]["attributes"]["psboost.zero_as_missing"] == str(rule).lower()
    assert (back.objective, back.base_score, back.n_features) == (forest.objective, base_score, 6)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_every_float32_comes_back_to_the_bit(value):
    forest = naive.random_forest(np.random.default_rng(0), [1], 2, True)
    forest.trees[0].value[0] = value
    back = loads(dumps(forest).encode()).trees[0].value
    assert back.tobytes() == np.array([value], np.float32).tobytes()


def test_a_model_wider_than_xgboost_counts():
    numbers = np.array([0, 5, 2**31, 2**62])
    rng = np.random.default_rng(4)
    trees = [naive.random_tree(rng, 30, numbers, rng.normal(size=9)) for _ in range(4)]
    forest = Forest(trees, "reg:squarederror", 0.0, 2**63 - 1, True)
    text = dumps(forest)
    learner = json.loads(text)["learner"]
    assert learner["feature_names"] == [str(number) for number in numbers]
    assert learner["attributes"]["psboost.n_features"] == str(2**63 - 1)
    back = loads(text.encode())
    same_trees(forest, back)
    assert back.n_features == 2**63 - 1 and dumps(back) == text
    assert loads(dumps(Forest([], "reg:squarederror", 0.0, 2**40, True)).encode()).n_features == 2**40
    xgboost = pytest.importorskip("xgboost")
    X, stored = naive.random_rows(rng, 20, 4)
    expected = naive.margins(
        [type(t)(**{**t.__dict__, "feature": np.searchsorted(numbers, t.feature)}) for t in trees],
        naive.cells(X, stored, True), 0,
    )  # fmt: skip
    booster = xgboost.Booster(model_file=bytearray(text.encode()))
    matrix = xgboost.DMatrix(X, missing=0.0, feature_names=[str(number) for number in numbers])
    np.testing.assert_array_equal(booster.predict(matrix), expected)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([True, False, "unstored"]),
    st.sampled_from(["binary:logistic", "reg:squarederror", "reg:logistic", "binary:logitraw"]),
    st.floats(2**-20, 1 - 2**-20, width=32),
)
def test_xgboost_predicts_the_same_bits(seed, rule, objective, base_score):
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(seed)
    forest = naive.random_forest(rng, [1, 5, 64, 90, 200], 8, rule, objective, base_score)
    booster = xgboost.Booster(model_file=bytearray(dumps(forest).encode()))
    X, stored = naive.random_rows(rng, 50, 8)
    csr = naive.to_csr(X, stored | np.isnan(X))
    if rule == "unstored":
        pairs = [(csr, xgboost.DMatrix(csr)), (X, xgboost.DMatrix(X))]
    elif rule:
        # missing=0.0 drops the zeros, and xgboost takes NaN for missing in any case.
        matrices = [xgboost.DMatrix(csr, missing=0.0), xgboost.DMatrix(X, missing=0.0)]
        pairs = [(given_as, matrix) for given_as in (X, csr) for matrix in matrices]
    else:
        matrices = [xgboost.DMatrix(csr.toarray()), xgboost.DMatrix(X)]
        pairs = [(given_as, matrix) for given_as in (X, csr) for matrix in matrices]
    for given_as, matrix in pairs:
        for output_margin in (True, False):
            expected = booster.predict(matrix, output_margin=output_margin)
            np.testing.assert_array_equal(forest.predict(given_as, output_margin), expected)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([True, False, "unstored"]))
def test_treelite_predicts_the_same(seed, rule):
    treelite = pytest.importorskip("treelite")
    rng = np.random.default_rng(seed)
    forest = naive.random_forest(rng, [1, 5, 64, 90], 8, rule, base_score=0.25)
    model = treelite.frontend.from_xgboost_json(dumps(forest))
    X, stored = naive.random_rows(rng, 50, 8)
    cells = naive.cells(X, stored, rule)
    got = treelite.gtil.predict(model, cells, pred_margin=True).reshape(-1)
    rows = naive.to_csr(X, stored) if rule == "unstored" else X
    # treelite adds the base margin last, in another order than XGBoost: a few units in the last place.
    np.testing.assert_allclose(got, forest.predict(rows, output_margin=True), rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror", "reg:logistic"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"num_parallel_tree": 3},
        {"grow_policy": "lossguide", "max_leaves": 100, "max_depth": 0},
        {"tree_method": "exact", "gamma": 2.0},
    ],
)
def test_xgboosts_own_models_load(tmp_path, objective, more):
    xgboost = pytest.importorskip("xgboost")
    rng = np.random.default_rng(3)
    X, stored = naive.random_rows(rng, 400, 10)
    X += np.where(stored & (X != 0), rng.normal(size=X.shape), 0).astype(np.float32)
    y = (np.nansum(X, axis=1) + rng.normal(size=400) > 0).astype(float)
    csr = naive.to_csr(X, stored)
    booster = xgboost.train(
        {"objective": objective, "max_depth": 5, "nthread": 1, **more}, xgboost.DMatrix(csr, y), 8
    )
    booster.set_attr(note="kept")
    booster.save_model(tmp_path / "model.json")
    forest = load_model(tmp_path / "model.json")
    assert forest.zero_as_missing == "unstored" and forest.attributes == {"note": "kept"}
    forest.save_model(tmp_path / "again.json")
    for model in (forest, load_model(tmp_path / "again.json")):
        for given_as in (csr, X):
            for output_margin in (True, False):
                expected = booster.predict(xgboost.DMatrix(given_as), output_margin=output_margin)
                np.testing.assert_array_equal(model.predict(given_as, output_margin), expected)


def test_pruned_nodes_are_left_out():
    forest = naive.random_forest(np.random.default_rng(0), [5, 20], 4, True)
    root = json.loads(dumps(forest))
    tree = root["learner"]["gradient_booster"]["model"]["trees"][1]
    for values in tree.values():
        if isinstance(values, list) and values:
            values.insert(3, values[-1])  # a leaf that is nobody's child
    for key in ("left_children", "right_children"):
        tree[key] = [child + (child >= 3) for child in tree[key]]
    tree["tree_param"]["num_nodes"] = str(len(tree["left_children"]))
    with pytest.raises(ModelError, match="tree 1: node 3 is nobody's child"):
        loads(json.dumps(root).encode())
    tree["tree_param"]["num_deleted"] = "1"
    same_trees(forest, loads(json.dumps(root).encode()))


def _learner(root):
    return root["learner"]


def _param(root):
    return root["learner"]["learner_model_param"]


def _booster(root):
    return root["learner"]["gradient_booster"]


def _tree(root):
    return root["learner"]["gradient_booster"]["model"]["trees"][1]


BROKEN = [
    (_learner, "objective", {"name": "rank:ndcg"}, "objective 'rank:ndcg' is not supported"),
    (_learner, "attributes", {"psboost.zero_as_missing": "maybe"}, "psboost.zero_as_missing is 'maybe'"),
    (_learner, "attributes", {"note": 3}, "note is 3, text is needed"),
    (_learner, "learner_model_param", None, "'learner_model_param' is not dict"),
    (_param, "base_score", "half", "base_score is 'half'"),
    (_param, "base_score", "[0.5,0.5]", "base_score has 2 numbers"),
    (_param, "base_score", "1.5", "base_score is 1.5: a probability"),
    (_param, "num_class", "3", "3 classes are not supported"),
    (_param, "num_target", "2", "2 targets are not supported"),
    (_param, "num_feature", "2", "node . splits feature . of 2"),
    (_booster, "name", "dart", "booster 'dart' is not supported"),
    (_booster, "name", "gblinear", "booster 'gblinear' is not supported"),
    (lambda root: _booster(root)["model"], "tree_info", [0, 1], "more than one output"),
    (lambda root: _booster(root)["model"], "trees", [], "num_trees is 2, there are 0 trees"),
    (lambda root: _booster(root)["model"], "trees", [1, 2], "tree 0 is not an object"),
    (_tree, "split_type", [1] * 9, "categorical splits"),
    (_tree, "split_conditions", [0.5] * 8, "split_conditions has 8 entries, the tree has 9 nodes"),
    (_tree, "split_conditions", ["x"] * 9, "split_conditions holds something that is not a number"),
    (_tree, "split_indices", [0.5] * 9, "split_indices holds something that is not a number of type int64"),
    (_tree, "split_indices", [-1] * 9, "splits feature -1"),
    (_tree, "left_children", [9] + [-1] * 8, "tree 1: node 0 has "),
    (_tree, "left_children", [2**70] + [-1] * 8, "beyond 64 bits"),
    (_tree, "left_children", [2**40] + [-1] * 8, "tree 1: node 0 has child 2147483647"),
    (_tree, "left_children", [-2] * 9, "node 0 has a child below -1"),
    (_tree, "left_children", [0, -1, -1, -1, -1, -1, -1, -1, -1], "not a tree"),
    (_tree, "left_children", [-1] * 9, "node 0 has only one child"),
    (_tree, "tree_param", {"num_nodes": "9", "size_leaf_vector": "3"}, "vectors in its leaves"),
    (_tree, "tree_param", {"num_nodes": "nine"}, "num_nodes is 'nine'"),
    (_tree, "tree_param", {"num_nodes": "0", "num_deleted": "1"}, "tree 1 has no nodes"),
    (_tree, "split_type", 5, "'split_type' is not list"),
    (lambda root: _booster(root)["model"], "tree_info", None, "'tree_info' is not list"),
]


@pytest.mark.parametrize(("place", "key", "value", "message"), BROKEN)
def test_a_broken_model_is_refused(tmp_path, place, key, value, message):
    forest = naive.random_forest(np.random.default_rng(6), [4, 5], 4, True)
    root = json.loads(dumps(forest))
    tree = _tree(root)
    if key == "left_children" and value[1:] == [-1] * 8:  # one split only
        tree["right_children"] = [2] + [-1] * 8
    place(root)[key] = value
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(root))
    with pytest.raises(ModelError, match=message) as caught:
        load_model(path)
    assert str(caught.value).startswith(str(path))


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c", "d"], ["a", "a", "b"], []])
def test_names_that_no_data_frame_can_have_are_left_out(names):
    text = dumps(Forest([], "reg:squarederror", 0.0, 3, True, feature_names=("a", "b", "c")))
    assert loads(text.encode()).feature_names == ("a", "b", "c")
    changed = text.replace(json.dumps(["a", "b", "c"], separators=(",", ":")), json.dumps(names))
    assert changed != text and loads(changed.encode()).feature_names is None
    with pytest.raises(ModelError, match="different feature_names for 3 features"):
        dumps(Forest([], "reg:squarederror", 0.0, 3, True, feature_names=tuple(names)))


def test_names_that_are_no_text_are_refused():
    with pytest.raises(ModelError, match="ud800' has a letter that no file's text can have"):
        dumps(Forest([], "reg:squarederror", 0.0, 1, True, feature_names=("a\ud800",)))


def test_binary_models_are_called_that(tmp_path):
    xgboost = pytest.importorskip("xgboost")
    xgboost.train({}, xgboost.DMatrix(np.eye(2), [0, 1]), 1).save_model(tmp_path / "m.ubj")
    with pytest.raises(ModelError, match="^not JSON: XGBoost's binary formats, UBJSON among them, are not read"):
        loads((tmp_path / "m.ubj").read_bytes())
    with pytest.raises(ModelError, match="m.ubj: models are written as JSON"):
        Forest([], "reg:squarederror", 0.0, 3, True).save_model(tmp_path / "m.ubj")


def test_a_wide_model_without_names_is_refused():
    trees = [naive.random_tree(np.random.default_rng(6), 4, np.array([2**40]), [0.0])]
    root = json.loads(dumps(Forest(trees, "reg:squarederror", 0.0, 2**41, True)))
    _learner(root)["feature_names"], _param(root)["num_feature"] = [], "0"
    with pytest.raises(ModelError, match="a wide model of 0 features"):
        loads(json.dumps(root).encode())


def test_cycles_are_refused():
    root = json.loads(dumps(naive.random_forest(np.random.default_rng(6), [4, 4], 4, True)))
    tree = _tree(root)
    tree["left_children"] = [-1, 3, -1, 5, -1, 1, -1]
    tree["right_children"] = [-1, 4, -1, 6, -1, 2, -1]
    with pytest.raises(ModelError, match="tree 1: 6 nodes run in a cycle"):
        loads(json.dumps(root).encode())
    tree["tree_param"]["num_deleted"] = "6"
    assert loads(json.dumps(root).encode()).trees[1].n_nodes == 1


def test_any_missing_key_and_any_cut_is_refused():
    text = dumps(naive.random_forest(np.random.default_rng(6), [4, 5], 4, True))
    for length in [*range(0, len(text) - 2, 37), len(text) - 2]:
        with pytest.raises(ModelError, match="not JSON" if length else "the file is empty"):
            loads(text[:length].encode())
    keys = "learner learner_model_param base_score num_feature objective gradient_booster model trees"
    keys += " tree_param num_nodes left_children right_children split_conditions split_indices default_left"
    keys += " base_weights loss_changes sum_hessian"
    for key in keys.split():
        with pytest.raises(ModelError, match=f"no '{key}'"):
            loads(text.replace(f'"{key}"', '"other"').encode())
    for data in (b"", b"[]", b"3", b"\xff\xfe", b"{}", b"binf\x00", b"[" * 100_000):
        with pytest.raises(ModelError):
            loads(data)

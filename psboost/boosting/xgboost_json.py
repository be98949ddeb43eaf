"""Knows XGBoost's JSON model format, its versions and what we add to it; does not know how a model predicts.

Written as XGBoost 2.1 would: versions from 2.1 on and treelite read that. From 3.1 on XGBoost itself writes
base_score as a text "[5E-1]"; both forms are read. Of ours, in learner.attributes:

    psboost.zero_as_missing  the rule for zeros, "true", "false" or "unstored" (data/zeros.py); XGBoost's own files have
                             none, which means "unstored"
    psboost.n_features       the true width of a model wider than XGBoost can count. The file then numbers the
                             forest's own features 0, 1, ... and names them by their true numbers

The same forest gives the same bytes; a float32 is written in the fewest digits that give the same float32.
"""

import json

import numpy as np

from psboost.boosting.forest import OBJECTIVES, TREE_DTYPES, Forest, Tree
from psboost.data import zeros
from psboost.errors import ModelError

MAX_NUMBERED = 2**31 - 1  # XGBoost's feature numbers have 31 bits
VERSION = [2, 1, 0]
NO_PARENT = 2**31 - 1
ZERO_KEY, WIDTH_KEY = "psboost.zero_as_missing", "psboost.n_features"

_ARRAYS = {
    "left": "left_children",
    "right": "right_children",
    "feature": "split_indices",
    "threshold": "split_conditions",
    "default_left": "default_left",
    "value": "base_weights",
    "gain": "loss_changes",
    "sum_hess": "sum_hessian",
}


def dumps(forest: Forest) -> str:
    """The forest as text. Raises ModelError if it is not sound."""
    forest.check()
    attributes = {key: value for key, value in forest.attributes.items() if key not in (ZERO_KEY, WIDTH_KEY)}
    attributes[ZERO_KEY] = zeros.name_of(forest.zero_as_missing)
    for key, value in attributes.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ModelError(f"attribute {key!r} is {value!r}: keys and values must be text")
    for text in (*attributes, *attributes.values(), *(forest.feature_names or ())):
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ModelError(f"{text!r:.100} has a letter that no file's text can have: name columns otherwise") from None
    width, names, numbers = forest.n_features, list(forest.feature_names or ()), None
    if width > MAX_NUMBERED:
        inner = [tree.feature[tree.left >= 0] for tree in forest.trees]
        numbers = np.unique(np.concatenate([np.empty(0, np.int64), *inner]))
        attributes[WIDTH_KEY] = str(width)
        width, names = max(len(numbers), 1), [str(number) for number in numbers] or ["0"]
    objective = {"name": forest.objective, "reg_loss_param": {"scale_pos_weight": "1"}}
    n_trees = len(forest.trees)
    learner = {
        "attributes": dict(sorted(attributes.items())),
        "feature_names": names,
        "feature_types": ["float"] * len(names),
        "gradient_booster": {
            "model": {
                "gbtree_model_param": {"num_parallel_tree": "1", "num_trees": str(n_trees)},
                "iteration_indptr": list(range(n_trees + 1)),
                "tree_info": [0] * n_trees,
                "trees": [],
            },
            "name": "gbtree",
        },
        "learner_model_param": {
            "base_score": str(np.float32(forest.base_score)),
            "boost_from_average": "0",
            "num_class": "0",
            "num_feature": str(width),
            "num_target": "1",
        },
        "objective": objective,
    }
    text = json.dumps({"learner": learner, "version": VERSION}, separators=(",", ":"), ensure_ascii=False)
    # The trees go in as ready text: json.dumps would write a float32 in a float64's digits. No other place
    # looks like this one: quotation marks within a text are escaped.
    before, here, after = text.partition('"trees":[')
    trees = ",".join(_tree_text(number, tree, numbers, width) for number, tree in enumerate(forest.trees))
    return before + here + trees + after + "\n"


def loads(data: bytes) -> Forest:
    """The forest in a file's bytes. Raises ModelError, without the file's name."""
    if not data:
        raise ModelError("the file is empty")
    try:
        root = json.loads(data)
    except (ValueError, RecursionError) as error:
        if data[:1] != b"{" or data[1:2] not in b'"} \t\r\n':  # UBJSON begins with { too
            raise ModelError("not JSON: XGBoost's binary formats, UBJSON among them, are not read, save as .json") from None
        raise ModelError(f"not JSON ({error}); cut short?") from None
    learner = _get(root, "learner", dict, "the file")
    param = _get(learner, "learner_model_param", dict, "learner")
    objective = _get(_get(learner, "objective", dict, "learner"), "name", str, "learner.objective")
    if objective not in OBJECTIVES:
        raise ModelError(f"objective {objective!r} is not supported; supported are {', '.join(OBJECTIVES)}")
    booster = _get(learner, "gradient_booster", dict, "learner")
    name = _get(booster, "name", str, "learner.gradient_booster")
    if name != "gbtree":
        raise ModelError(f"booster {name!r} is not supported, only gbtree is")
    model = _get(booster, "model", dict, "learner.gradient_booster")
    where = "learner.learner_model_param"
    if _number(param.get("num_class", "0"), int, "num_class", where) > 1:
        raise ModelError(f"{param['num_class']} classes are not supported, one output is")
    if _number(param.get("num_target", "1"), int, "num_target", where) > 1:
        raise ModelError(f"{param['num_target']} targets are not supported, one output is")
    width = _number(_get(param, "num_feature", str, where), int, "num_feature", where)
    attributes = _get(learner, "attributes", dict, "learner", {})
    for key, value in attributes.items():
        if not isinstance(value, str):
            raise ModelError(f"learner.attributes: {key} is {value!r}, text is needed")

    numbers, n_features, names = None, width, ()
    if WIDTH_KEY in attributes:
        n_features = _number(attributes.pop(WIDTH_KEY), int, WIDTH_KEY, "learner.attributes")
        numbers = _true_numbers(_get(learner, "feature_names", list, "learner"), width)
    else:
        names = tuple(map(str, _get(learner, "feature_names", list, "learner", [])))
    rule = attributes.pop(ZERO_KEY, zeros.UNSTORED)
    if rule not in zeros.RULES:
        raise ModelError(f"learner.attributes: {ZERO_KEY} is {rule!r}, one of {', '.join(zeros.RULES)} is needed")

    trees = [
        _read_tree(i, tree, width, numbers) for i, tree in enumerate(_get(model, "trees", list, "model"))
    ]
    counted = _get(model, "gbtree_model_param", dict, "model").get("num_trees", str(len(trees)))
    if _number(counted, int, "num_trees", "gbtree_model_param") != len(trees):
        raise ModelError(f"num_trees is {counted}, there are {len(trees)} trees")
    if any(group != 0 for group in _get(model, "tree_info", list, "model", [])):
        raise ModelError("tree_info names more than one output, one is supported")
    forest = Forest(
        trees=trees,
        objective=objective,
        base_score=_base_score(_get(param, "base_score", str, where)),
        n_features=n_features,
        zero_as_missing=zeros.RULES[rule],
        attributes=attributes,
        feature_names=names if len(names) == len(set(names)) == n_features > 0 else None,  # XGBoost takes any
    )
    forest.check()
    return forest


def _tree_text(number, tree, numbers, width) -> str:
    """One tree as JSON, keys in XGBoost's order."""
    inner = tree.left >= 0
    n = tree.n_nodes
    feature = tree.feature if numbers is None else np.searchsorted(numbers, tree.feature)
    parents = np.full(n, NO_PARENT, np.int64)
    for children in (tree.left, tree.right):
        parents[children[inner]] = np.flatnonzero(inner)
    param = {"num_deleted": "0", "num_feature": str(width), "num_nodes": str(n), "size_leaf_vector": "1"}
    fields = {
        "base_weights": _floats(tree.value),
        "categories": "[]",
        "categories_nodes": "[]",
        "categories_segments": "[]",
        "categories_sizes": "[]",
        "default_left": _ints(tree.default_left * inner),
        "id": str(number),
        "left_children": _ints(np.where(inner, tree.left, -1)),
        "loss_changes": _floats(tree.gain),
        "parents": _ints(parents),
        "right_children": _ints(np.where(inner, tree.right, -1)),
        "split_conditions": _floats(np.where(inner, tree.threshold, tree.value)),
        "split_indices": _ints(np.where(inner, feature, 0)),
        "split_type": _ints(np.zeros(n, np.int64)),
        "sum_hessian": _floats(tree.sum_hess),
        "tree_param": json.dumps(param, separators=(",", ":")),
    }
    return "{" + ",".join(f'"{key}":{text}' for key, text in fields.items()) + "}"


def _ints(array) -> str:
    return "[" + ",".join(map(str, array.tolist())) + "]"


def _floats(array) -> str:
    if not np.isfinite(array).all():
        raise ModelError("a gain, sum_hess or value of the model is not finite")
    return "[" + ",".join(map(str, array.astype(np.float32))) + "]"


def _read_tree(number, tree, width, numbers) -> Tree:
    """Checks what can be said without the other nodes; Tree.check does the rest."""
    where = f"tree {number}"
    if not isinstance(tree, dict):
        raise ModelError(f"{where} is not an object")
    param = _get(tree, "tree_param", dict, where)
    if _number(param.get("size_leaf_vector", "1"), int, "size_leaf_vector", where) > 1:
        raise ModelError(f"{where} has vectors in its leaves: multi-target trees are not supported")
    if tree.get("categories_nodes") or any(_get(tree, "split_type", list, where, [])):
        raise ModelError(f"{where} has categorical splits: they are not supported")
    n_nodes = _number(_get(param, "num_nodes", str, where), int, "num_nodes", where)
    if n_nodes < 1:
        raise ModelError(f"{where} has no nodes: even a tree without splits has a root")
    arrays = {}
    for name, key in _ARRAYS.items():
        values = _get(tree, key, list, where)
        if len(values) != n_nodes:
            raise ModelError(f"{where}: {key} has {len(values)} entries, the tree has {n_nodes} nodes")
        dtype = TREE_DTYPES[name]
        kinds = (int, float) if dtype == np.float32 else (int,)
        if not all(isinstance(value, kinds) for value in values):  # True is an int, as some writers have it
            raise ModelError(f"{where}: {key} holds something that is not a number of type {dtype.__name__}")
        with np.errstate(over="ignore"):
            # Through int64: numbers out of range must not wrap around.
            try:
                arrays[name] = np.array(values, np.float32 if dtype == np.float32 else np.int64)
            except OverflowError:
                raise ModelError(f"{where}: {key} holds a number beyond 64 bits") from None
    is_leaf = arrays["left"] == -1
    for name in ("left", "right"):
        arrays[name] = np.clip(arrays[name], -2, 2**31 - 1)
    wrong = np.flatnonzero((arrays["left"] < -1) | (arrays["right"] < -1))
    if len(wrong):
        raise ModelError(f"{where}: node {wrong[0]} has a child below -1")
    # A leaf keeps its value where an inner node keeps its threshold.
    arrays["value"] = np.where(is_leaf, arrays["threshold"], arrays["value"])
    arrays["threshold"] = np.where(is_leaf, np.float32(0), arrays["threshold"])
    outside = ~is_leaf & ((arrays["feature"] < 0) | (arrays["feature"] >= width))
    if outside.any():
        node = int(np.argmax(outside))
        raise ModelError(f"{where}: node {node} splits feature {arrays['feature'][node]} of {width}")
    feature = arrays["feature"] if numbers is None else numbers[np.where(is_leaf, 0, arrays["feature"])]
    arrays["feature"] = np.where(is_leaf, -1, feature)
    arrays["default_left"] = (arrays["default_left"] != 0) & ~is_leaf
    n_deleted = _number(param.get("num_deleted", "0"), int, "num_deleted", where)
    if n_deleted:
        arrays = _without_deleted(arrays, n_deleted, where)
    return Tree(**{name: array.astype(TREE_DTYPES[name]) for name, array in arrays.items()})


def _without_deleted(arrays, n_deleted, where) -> dict:
    """The nodes that can be reached, in order: XGBoost leaves pruned ones in the file."""
    left, right = arrays["left"], arrays["right"]
    reached = np.zeros(len(left), bool)
    level = np.zeros(1, np.int64)
    while len(level):
        if reached[level].any():
            raise ModelError(f"{where}: node {level[reached[level]][0]} is reached twice: not a tree")
        reached[level] = True
        level = level[left[level] >= 0]
        level = np.concatenate([left[level], right[level]])
        if len(level) and not 0 <= level.min() <= level.max() < len(left):
            raise ModelError(f"{where}: a child is none of the {len(left)} nodes")
    if (~reached).sum() != n_deleted:
        raise ModelError(f"{where}: num_deleted is {n_deleted}, {(~reached).sum()} nodes are out of reach")
    place = np.cumsum(reached) - 1
    arrays = {name: array[reached] for name, array in arrays.items()}
    for name in ("left", "right"):
        arrays[name] = np.where(arrays[name] >= 0, place[arrays[name]], -1)
    return arrays


def _true_numbers(names, width) -> np.ndarray:
    """int64 (width): feature numbers from a wide model's feature_names."""
    if width < 1:
        raise ModelError(f"a wide model of {width} features: at least one has a name")
    try:
        numbers = np.array([int(name) for name in names], np.int64)
    except (TypeError, ValueError, OverflowError):
        raise ModelError("learner.feature_names of a wide model must be numbers below 2^63") from None
    if len(numbers) != width or (np.diff(numbers) <= 0).any():
        raise ModelError(f"learner.feature_names of a wide model must be {width} rising numbers")
    return numbers


def _base_score(text) -> float:
    scores = text.strip().removeprefix("[").removesuffix("]").split(",")
    if len(scores) != 1:
        raise ModelError(f"base_score has {len(scores)} numbers: one output is supported")
    return float(np.float32(_number(scores[0], float, "base_score", "learner.learner_model_param")))


def _get(parent, key, kind, where, default=None):
    """parent[key], which must be of `kind`; or `default`, where there is one and no such key."""
    if not isinstance(parent, dict) or key not in parent:
        if default is not None and isinstance(parent, dict):
            return default
        raise ModelError(f"{where} has no {key!r}: not a model of XGBoost, or not of a version from 1.0 on")
    if not isinstance(parent[key], kind):
        raise ModelError(f"{where}: {key!r} is not {kind.__name__}")
    return parent[key]


def _number(text, kind, key, where):
    """XGBoost writes its parameters as text."""
    try:
        return kind(text)
    except (TypeError, ValueError):
        raise ModelError(f"{where}: {key} is {text!r}, {kind.__name__} is needed") from None

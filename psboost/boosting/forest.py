"""Knows trees, what they predict and when a model is sound; does not know how it was grown or saved.

A forest's rule for zeros is `zero_as_missing`:

    True        a cell that is not stored, a stored 0 and NaN are all missing
    False       a cell that is not stored is 0.0, a number like others; NaN is missing
    "unstored"  a cell that is not stored and NaN are missing, a stored 0 is a number: what XGBoost's own models mean
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from psboost.boosting.scorer import Scorer
from psboost.cores import n_cores
from psboost.data import zeros
from psboost.data.matrix import DenseSource
from psboost.data.source import PATHS, PREDICTION, Source, open_source
from psboost.errors import ModelError, ParameterError
from psboost.files import replaced
from psboost.kernels import links
from psboost.kernels.prepare import prepare
from psboost.settings import MAX_FEATURES, THREADS

ROWS_OF_THREAD = 1 << 12  # to score fewer is not worth starting a thread
RT_EPS = np.float32(1e-6)  # XGBoost keeps a base_score that is a probability so far from 0 and 1

# objective: is base_score a probability, is the prediction one
OBJECTIVES = {
    "binary:logistic": (True, True),
    "reg:logistic": (True, True),
    "binary:logitraw": (False, False),
    "reg:squarederror": (False, False),
}

TREE_DTYPES = {
    "left": np.int32,
    "right": np.int32,
    "feature": np.int64,
    "threshold": np.float32,
    "default_left": np.uint8,
    "value": np.float32,
    "gain": np.float32,
    "sum_hess": np.float32,
}


@dataclass(frozen=True, eq=False)
class Tree:
    """Nodes numbered as grown: the root is 0, each split appends its left and its right child."""

    left: np.ndarray  # int32: left child, -1 for a leaf
    right: np.ndarray  # int32
    feature: np.ndarray  # int64: the user's column number, -1 for a leaf
    threshold: np.ndarray  # float32: value < threshold goes left
    default_left: np.ndarray  # uint8: 1 if a missing value goes left
    value: np.ndarray  # float32: of a leaf, times the learning rate; of an inner node, what it would have had without it
    gain: np.ndarray  # float32: 0 for a leaf
    sum_hess: np.ndarray  # float32

    @property
    def n_nodes(self) -> int:
        return len(self.left)

    def check(self, n_features: int) -> None:
        """Raises ModelError unless each node but the root is one node's child, and numbers are in range."""
        for name, dtype in TREE_DTYPES.items():
            array = getattr(self, name)
            if array.dtype != dtype or array.shape != (self.n_nodes,):
                raise ModelError(
                    f"{name} is {array.dtype} {array.shape}, {np.dtype(dtype)} ({self.n_nodes},) is needed"
                )
        if self.n_nodes == 0:
            raise ModelError("no nodes: even a tree without splits has a root")
        is_leaf = self.left < 0
        if (is_leaf != (self.right < 0)).any():
            node = int(np.argmax(is_leaf != (self.right < 0)))
            raise ModelError(
                f"node {node} has only one child (left {self.left[node]}, right {self.right[node]})"
            )
        inner = np.flatnonzero(~is_leaf)
        children = np.concatenate([self.left[inner], self.right[inner]])
        if (children >= self.n_nodes).any():
            at = int(np.argmax(children >= self.n_nodes))
            raise ModelError(
                f"node {inner[at % len(inner)]} has child {children[at]}, there are {self.n_nodes} nodes"
            )
        n_parents = np.bincount(children, minlength=self.n_nodes)
        n_parents[0] += 1  # the root hangs from nothing
        if (n_parents != 1).any():
            node = int(np.argmax(n_parents != 1))
            what = "is a child twice, or the root is a child" if n_parents[node] > 1 else "is nobody's child"
            raise ModelError(f"node {node} {what}: not a tree")
        # A cycle apart from the root leaves each of its nodes with one parent, but out of reach.
        n_reached, level = 0, np.zeros(1, np.int64)
        while len(level):
            n_reached += len(level)
            level = level[~is_leaf[level]]
            level = np.concatenate([self.left[level], self.right[level]])
        if n_reached != self.n_nodes:
            raise ModelError(f"{self.n_nodes - n_reached} nodes run in a cycle: not a tree")
        outside = (self.feature[inner] < 0) | (self.feature[inner] >= n_features)
        if outside.any():
            node = inner[np.argmax(outside)]
            raise ModelError(
                f"node {node} splits feature {self.feature[node]}, the model has {n_features} features"
            )
        for name, used in (("threshold", inner), ("value", np.flatnonzero(is_leaf))):
            wrong = used[~np.isfinite(getattr(self, name)[used])]
            if len(wrong):
                raise ModelError(
                    f"node {wrong[0]} has {name} {getattr(self, name)[wrong[0]]}: it must be finite"
                )


@dataclass(eq=False)
class Forest:
    """A trained model.

    objective        one of OBJECTIVES
    base_score       as XGBoost means it: a probability for the logistic objectives
    n_features       the width it was trained for, up to 2^63 - 1
    feature_names    of all features, if it was trained on a data frame
    zero_as_missing  see above
    report           of the training that made it; not saved
    attributes       text that is saved with it. Keys of ours begin with "psboost."
    bin_mapper       not saved here
    """

    trees: list[Tree] = field(repr=False)
    objective: str
    base_score: float
    n_features: int
    zero_as_missing: zeros.Rule
    report: dict | None = field(default=None, repr=False)
    attributes: dict[str, str] = field(default_factory=dict)
    bin_mapper: Any = field(default=None, repr=False)
    feature_names: tuple[str, ...] | None = field(default=None, repr=False)
    _scorers: dict = field(default_factory=dict, init=False, repr=False)

    @property
    def base_margin(self) -> np.float32:
        """What every margin starts with."""
        return base_margin(self.objective, self.base_score)

    @property
    def scorer(self) -> Scorer:
        """The forest's bitvectors, built at the first use and again if the trees are others by then."""
        return self._scorer(self.zero_as_missing)

    def check(self) -> None:
        """Raises ModelError if the model is not sound; the message names the tree and node."""
        if not 0 <= self.n_features <= MAX_FEATURES:
            raise ModelError(f"n_features is {self.n_features}: it must be between 0 and 2^63 - 1")
        self.base_margin  # noqa: B018
        if self.zero_as_missing not in zeros.NUMBERED:
            raise ModelError(f'zero_as_missing is {self.zero_as_missing!r}: True, False or "unstored" is needed')
        if self.feature_names is not None and len(set(self.feature_names)) != self.n_features:
            raise ModelError(f"{len(set(self.feature_names))} different feature_names for {self.n_features} features")
        for number, tree in enumerate(self.trees):
            try:
                tree.check(self.n_features)
            except ModelError as error:
                raise ModelError(f"tree {number}: {error}") from None

    def predict(self, X, output_margin=False, index_base=1, threads=None) -> np.ndarray:
        """float32 (n_rows): probabilities for the logistic objectives, or the margins.

        X           2-d numbers, a scipy sparse matrix or array, a data frame, or the path of a file
        index_base  of an svmlight file
        threads     how many score rows side by side; by default this machine's cores, and fewer for few rows

        ModelError unless X is as wide as the model (text may be narrower), DataError if it is unreadable, ParameterError.
        """
        try:
            n_threads = n_cores() if threads is None else THREADS.check(threads)
        except ValueError:
            raise ParameterError(f"threads must be {THREADS.expects}, not {threads!r}") from None
        margins = self._predict_margins(X, index_base, n_threads)
        return margins if output_margin else self.link(margins)

    def link(self, margins) -> np.ndarray:
        """float32: predictions from margins, probabilities for the logistic objectives."""
        if not OBJECTIVES[self.objective][1]:
            return margins
        probabilities = np.empty_like(margins)
        links.logistic(margins, probabilities)
        return probabilities

    def save_model(self, path) -> None:
        """Writes XGBoost's JSON to `path`, which at any time is the old file or the new one. ModelError."""
        from psboost.boosting.xgboost_json import dumps

        check_model_path(path)
        text = dumps(self)
        try:
            with replaced(path) as file:
                file.write(text)
        except OSError as error:
            raise ModelError(f"{path}: the model cannot be written: {error.strerror}") from error

    def _predict_margins(self, X, index_base, n_threads) -> np.ndarray:
        source = open_source(X, index_base=index_base, zero_as_missing=self.zero_as_missing, purpose=PREDICTION)
        self.check_columns(source)
        prepare("predict")
        if isinstance(X, PATHS):
            return self._predict_source(source, n_threads)
        if self.zero_as_missing == zeros.UNSTORED and isinstance(source, DenseSource):
            source = source.with_rule(False)  # the same where every cell is stored, and its zeros are not handed over then
        return self._predict_source(source, min(n_threads, 1 + source.size // ROWS_OF_THREAD))

    def _predict_source(self, source, n_threads) -> np.ndarray:
        scorer = self._scorer(source.zero_as_missing)

        def margins(rows) -> np.ndarray:
            if source.width is None:
                self.check_columns(source, rows.n_features)
            return scorer.margins(rows)

        if n_threads == 1:
            return np.concatenate(source.map_pieces(margins, 1))
        with ThreadPoolExecutor(n_threads) as threads:
            return np.concatenate(source.map_pieces(margins, n_threads, threads.map))

    def _scorer(self, rule) -> Scorer:
        trees, scorer = self._scorers.get(rule, (None, None))
        if trees != self.trees or scorer.base_margin != self.base_margin:
            scorer = Scorer(self.trees, rule, self.base_margin)
            self._scorers[rule] = (list(self.trees), scorer)
        return scorer

    def check_columns(self, source: Source, n_found: int = 0) -> None:
        """ModelError unless rows are as wide as the model; or narrower, of text, in which so many columns were found. And if
        columns have names, here and there, that are not the same."""
        if (n_columns := source.other_width(self.n_features, n_found)) is not None:
            more = f"leave the others out, or train with n_features={n_columns} (--n-features)"
            raise ModelError(
                f"{source.name} has {n_columns} features, the model was trained on {self.n_features}: "
                + (more if n_columns > self.n_features else "give all of them")
            )
        if difference := first_difference(source.feature_names, self.feature_names):
            raise ModelError(f"{source.name} has {difference} the model was trained: give the same columns in that order")


def first_difference(names: tuple[str, ...] | None, of_training: tuple[str, ...] | None) -> str:
    """Which column has another name, in words that "... was trained" may follow; empty if none has, or columns have none."""
    for i, pair in enumerate(zip(names or (), of_training or (), strict=False)):
        if pair[0] != pair[1]:
            return f"{pair[0]!r} as column {i}, where {pair[1]!r} was when"
    return ""


def check_model_path(path) -> None:
    """ModelError if XGBoost would look for something else there than a model of ours."""
    if Path(path).suffix.lower() == ".ubj":
        raise ModelError(f"{path}: models are written as JSON, which XGBoost does not look for there: name it .json")


def load_model(path) -> Forest:
    """The forest in a file of XGBoost's JSON, ours or XGBoost's own. ModelError names file and fault."""
    from psboost.boosting.xgboost_json import loads

    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: the model cannot be read: {error.strerror}") from error
    prepare("predict")
    try:
        return loads(data)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def base_margin(objective: str, base_score: float) -> np.float32:
    """What every margin starts with, to the bit as XGBoost 3 computes it. Raises ModelError."""
    if objective not in OBJECTIVES:
        raise ModelError(f"objective {objective!r} is not supported; supported are {', '.join(OBJECTIVES)}")
    score = np.float32(base_score)
    if not OBJECTIVES[objective][0]:
        if not np.isfinite(score):
            raise ModelError(f"base_score is {base_score}: it must be finite")
        return score
    if not 0 <= score <= 1:
        raise ModelError(f"base_score is {base_score}: a probability is needed for {objective}")
    return np.float32(links.logit(min(max(score, RT_EPS), np.float32(1) - RT_EPS)))

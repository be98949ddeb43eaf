"""Knows how good a model is after each of its trees, and what it had cost by then; does not know how that is drawn.

    block, allreduce, reduce-scatter   psboost on 4 virtual hosts with a core each: 2x2 and 2 servers, or 4 workers of rows
    one machine                        psboost with one worker of one thread, in CPU seconds
    XGBoost, LightGBM                  one thread, in CPU seconds, on the same rows; nothing is sent

seconds and bytes count from the matrix in memory on, so cut points and binning are in them.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate

import numpy as np

from experiments.common.data import Data
from experiments.common.here import NotHere
from experiments.common.plan import Settings
from experiments.common.training import train
from psboost.boosting.metrics import auc, logloss

HOWS = {
    "block": {"mode": "block", "grid": "2x2", "servers": 2},
    "allreduce": {"mode": "allreduce", "grid": "4x1"},
    "reduce-scatter": {"mode": "reduce-scatter", "grid": "4x1"},
}
Margins = Callable[[int], np.ndarray]  # of the test rows, after so many trees


def measure(settings: Settings, data: Data) -> list[dict]:
    who = settings["who"]
    how = {"one machine": one_machine, "XGBoost": xgboost, "LightGBM": lightgbm}.get(who, on_hosts)
    margins, seconds, sent = how(settings, data)
    rows = []
    for i, (spent, n_bytes) in enumerate(zip(seconds, sent, strict=True)):
        after = margins(i + 1)
        quality = {"auc": auc(after, data.y_test), "logloss": logloss(after, data.y_test)}
        rows.append({"round": i + 1, "seconds": spent, "bytes": n_bytes} | quality)
    return rows


def on_hosts(settings: Settings, data: Data) -> tuple[Margins, list[float], list[int]]:
    forest = train(settings | {"transport": "virtual", "hosts": 4} | HOWS[settings["who"]], data, own=("who",))
    by_tree = forest.report["bytes_by_tree"]
    sent = accumulate(sum(kind["wire"] for kind in by_tree[tree].values()) for tree in sorted(by_tree))  # -1, 0, 1, ...
    of_trees = [forest.report["virtual"]["seconds_by_tree"][tree] for tree in range(len(forest.trees))]
    seconds = accumulate(of_trees, initial=forest.report["virtual"]["seconds"] - sum(of_trees))
    return margins_of(forest, data), list(seconds)[1:], list(sent)[1:]


def one_machine(settings: Settings, data: Data) -> tuple[Margins, list[float], list[int]]:
    clock = Clock()
    forest = train(settings, data, own=("who", "gbit"), callbacks=[clock.tick])
    return margins_of(forest, data), clock.seconds(), [0] * len(forest.trees)


def margins_of(forest, data: Data) -> Margins:
    return lambda n: replace(forest, trees=forest.trees[:n]).predict(data.X_test, output_margin=True)


def xgboost(settings: Settings, data: Data) -> tuple[Margins, list[float], list[int]]:
    try:
        import xgboost
    except ImportError as error:
        raise NotHere("xgboost is not installed (pip install '.[experiments]')") from error

    class Ticks(xgboost.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log) -> bool:
            return clock.tick()

    n_rounds = settings["num_boost_round"]
    parameters = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6, "nthread": 1}
    parameters |= {"eta": settings["learning_rate"], "max_bin": settings["max_bin"]}
    clock = Clock()
    matrix = xgboost.QuantileDMatrix(data.X, data.y, max_bin=settings["max_bin"], nthread=1)
    booster = xgboost.train(parameters, matrix, n_rounds, callbacks=[Ticks()])
    test = xgboost.DMatrix(data.X_test, nthread=1)
    return lambda n: booster.predict(test, iteration_range=(0, n), output_margin=True), clock.seconds(), [0] * n_rounds


def lightgbm(settings: Settings, data: Data) -> tuple[Margins, list[float], list[int]]:
    try:
        import lightgbm
    except ImportError as error:
        raise NotHere("lightgbm is not installed (pip install '.[experiments]')") from error
    n_rounds = settings["num_boost_round"]
    parameters = {
        "objective": "binary", "max_depth": 6, "num_leaves": 63, "num_threads": 1, "verbosity": -1,
        "learning_rate": settings["learning_rate"], "max_bin": settings["max_bin"] - 1,
    }  # fmt: skip
    clock = Clock()
    matrix = lightgbm.Dataset(data.X, data.y, params=parameters).construct()
    booster = lightgbm.train(parameters, matrix, n_rounds, callbacks=[clock.tick])
    return lambda n: booster.predict(data.X_test, raw_score=True, num_iteration=n), clock.seconds(), [0] * n_rounds


class Clock:
    """CPU seconds of this process at each tick, since it was made."""

    def __init__(self):
        self._ticks = [time.process_time()]

    def tick(self, *_) -> bool:
        self._ticks.append(time.process_time())
        return False

    def seconds(self) -> list[float]:
        return [tick - self._ticks[0] for tick in self._ticks[1:]]

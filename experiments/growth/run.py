"""Knows what a tree costs on data of given sizes; does not know how costs of several sizes compare.

seconds_per_tree  CPU time of all roles, one thread, median over the trees after the first
bytes_per_tree    all that roles send, mean over the trees after the first
"""

import statistics
import time

import numpy as np

from experiments.common.data import Data
from experiments.common.plan import Settings
from experiments.common.training import train
from experiments.speed.shapes import labels, to_csr, zipf

OWN = ("features", "values_per_row")


def measure(settings: Settings, data: None) -> list[dict]:
    ends = []
    made = make(settings["rows"], settings["features"], settings["values_per_row"])
    forest = train(settings, made, own=OWN, callbacks=[lambda _: ends.append(time.process_time())])
    sent = [sum(kind["wire"] for kind in kinds.values()) for kinds in list_by_tree(forest.report)]
    return [
        {
            "values_stored": made.X.nnz / made.X.shape[0],
            "seconds_per_tree": statistics.median(np.diff(ends)),
            "bytes_per_tree": statistics.mean(sent[1:]),
        }
    ]


def list_by_tree(report: dict) -> list[dict]:
    """What was sent for each tree, by kind of message."""
    return [kinds for tree, kinds in sorted(report["bytes_by_tree"].items()) if tree >= 0]


def make(n_rows: int, n_features: int, values_per_row: int) -> Data:
    """Real values of words that are as frequent as in a text; a word that comes twice in a row is stored once."""
    rng = np.random.default_rng([11, n_rows, n_features, values_per_row])
    words = zipf(rng, (n_rows, values_per_row), n_features, 1.06, 25.0)
    X = to_csr(words, rng.random(words.shape).astype(np.float32), n_features)
    return Data(X, labels(X, rng), X[:0], np.empty(0))

"""Knows how many bytes of histograms each worker sends for each level of each tree; does not know how that is drawn.

    dense      what a worker gives into an all-reduce that knows nothing of the data: 16 bytes for each bin of each declared
               feature, in each node that is built (12 workers hold the same). By formula, for the nodes of the real trees
    allreduce  what each of 12 workers of rows really sends in psboost's ring, there and back; of features that can be split
    csr        what each of 9 workers (3x3) sends to 3 servers as the paper's arrays
    packed     the same in psboost's codec
    csr, two values or more    as csr, on the data without those features of which all stored values are the same

Array contents, without what frames messages. A row of the table is over all workers, levels and trees.
"""

from collections import Counter

import numpy as np

from experiments.common.data import Data
from experiments.common.plan import Settings
from experiments.common.training import train, watched
from psboost.wire.messages import PushHistograms, ReduceHistograms, ShareHistograms

BLOCKS = {"mode": "block", "grid": "3x3", "servers": 3}
WAYS = {
    "dense": BLOCKS | {"codec": "csr"},
    "allreduce": {"mode": "allreduce", "grid": "12x1"},
    "csr": BLOCKS | {"codec": "csr"},
    "packed": BLOCKS | {"codec": "packed"},
    "csr, two values or more": BLOCKS | {"codec": "csr"},
}


def measure(settings: Settings, data: Data) -> list[dict]:
    way = settings["way"]
    if way.endswith("two values or more"):
        data = Data(data.X[:, features_of_many_values(data.X)], data.y, data.X_test, data.y_test)
    sent: Counter = Counter()  # of (worker, level, tree)
    n_nodes: dict[tuple, int] = {}

    def see(sender, receiver, message, payload) -> None:
        key = sender, message.level, message.tree
        if isinstance(message, PushHistograms):
            sent[key] += sum(array.nbytes for array in (*message.arrays, *message.twins))
            n_nodes[key] = len(message.totals)
        elif isinstance(message, ReduceHistograms | ShareHistograms):
            sent[key] += payload

    with watched(see):
        forest = train(settings | WAYS[way], data, own=("way",))
    if way == "dense":
        size = forest.report["dense"]["bytes_per_histogram"]
        sent = Counter({key: n * size for key, n in n_nodes.items()})
    low, q1, median, q3, high = np.percentile(list(sent.values()), [0, 25, 50, 75, 100]).tolist()
    of_trees = Counter()
    for (_, _, tree), size in sent.items():
        of_trees[tree] += size
    return [
        {
            "least_bytes": low, "first_quartile_bytes": q1, "median_bytes": median, "third_quartile_bytes": q3,
            "most_bytes": high, "mean_bytes": float(np.mean(list(sent.values()))),
            "bytes_per_tree_of_all": float(np.mean(list(of_trees.values()))),
            "features_declared": forest.report["features"]["declared"],
            "features_splittable": forest.report["features"]["splittable"], "bins": forest.report["bins"],
        }
    ]  # fmt: skip


def features_of_many_values(X) -> np.ndarray:
    """The columns that store two different values or more."""
    columns = X.tocsc()
    stored = np.flatnonzero(np.diff(columns.indptr))
    starts = columns.indptr[stored]
    return stored[np.maximum.reduceat(columns.data, starts) > np.minimum.reduceat(columns.data, starts)]

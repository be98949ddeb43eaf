"""Knows how psboost, XGBoost and LightGBM, or none of them, do one thing; does not know what for, or who else does it.

Run as a process of its own, so that its memory and threads are its own: a job as JSON on stdin, what came of it as
JSON on the last line of stdout. Times are pairs: wall clock and CPU seconds since the job began, data already loaded.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partialmethod
from pathlib import Path

import datasets
import numpy as np
from scipy import sparse

PARAMETERS = {"objective": "binary:logistic", "max_depth": 6, "learning_rate": 0.3, "max_bin": 256}
PREDICT_SECONDS, PREDICT_TIMES = 1.0, 3  # a prediction is repeated for as long and as often, at least
MEMORY_BYTES, N_READS, READ_TIMES = 1 << 26, 1 << 22, 8  # so many random reads of so much memory, so often
STREAM_BYTES, STREAM_TIMES = 1 << 28, 10  # read in order, of which the quickest time counts


class Clock:
    """Seconds since it was made. After so many of wall clock as it is given, if any, the process ends, and says how many."""

    def __init__(self, timeout: float | None = None):
        self._begin = time.perf_counter(), time.process_time()
        if timeout is not None:
            watch = threading.Timer(timeout, self._give_up)
            watch.daemon = True
            watch.start()

    def _give_up(self) -> None:
        print(json.dumps({"unfinished": self()}), flush=True)
        os._exit(0)

    def __call__(self) -> tuple[float, float]:
        return time.perf_counter() - self._begin[0], time.process_time() - self._begin[1]


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmHWM")


def train(job: dict) -> dict:
    """binned and trees: when binning, and each tree, ended; total: when all had; peak: bytes, before any prediction."""
    X, y = datasets.load(job["train"])
    if "sample" in job:
        some = np.random.default_rng(job["sample"]).permutation(len(y))[: round(job["share"] * len(y))]
        X, y = X[some], y[some]
    n_values = X.nnz if sparse.issparse(X) else X.size
    facts = {"rows": X.shape[0], "columns": X.shape[1], "values": n_values}
    result, predict = _TRAIN[job["program"]](X, y, job)
    result["peak"] = peak_memory()
    del X, y
    if job.get("test"):
        from psboost.boosting.metrics import auc

        X, y = datasets.load(job["test"])
        result["auc"] = auc(predict(X), y)
    return facts | result


def _train_psboost(X, y, job: dict) -> tuple[dict, object]:
    import psboost
    from psboost.kernels.prepare import SELDOM, prepare
    from psboost.roles.coordinator import Coordinator
    from psboost.roles.modes import BLOCK, kernel_jobs

    # Compiles, if need be; kernels are loaded when they are called, in the time that is measured.
    prepare(*kernel_jobs(BLOCK, (1, 1)), variants=[(), SELDOM])

    binned, trees, boost = [], [], Coordinator._boost

    def first_tree(self):
        binned.append(clock())
        return boost(self)

    Coordinator._boost = first_tree
    read = _count_reads() if job.get("counts_reads") else []
    clock = Clock(job["timeout"])
    forest = psboost.train(
        PARAMETERS | job.get("parameters", {}), X, y, num_boost_round=job["rounds"],
        grid=tuple(job.get("grid", (1, 1))), servers=job.get("servers", 1), threads=job["threads"],
        callbacks=[lambda _: trees.append(clock()) and None],
    )  # fmt: skip
    result = {"binned": binned[0], "trees": trees, "total": clock(), "bytes": forest.report["bytes"], "bytes_read": read}
    result["stages"] = [
        Counter(of_tree["workers"]) + Counter(of_tree["coordinator"]) for of_tree in forest.report["stages_by_tree"].values()
    ]
    return result, forest.predict


def _count_reads() -> list[int]:
    """How many bytes the cells and gradients have of all rows whose histograms are built, of each tree that is grown."""
    from psboost.boosting.levels import Levels
    from psboost.data.block import DenseBlock

    read, grow = [], Levels.grow

    def watched(self, *of_tree):
        grown, blocks = grow(self, *of_tree), [part.block for part in self._parts]
        cells = sum((block.cells if isinstance(block, DenseBlock) else block.bins).nbytes for block in blocks)
        read.append(self.n_rows_built * (cells // blocks[0].n_rows + self._gradients.packed.itemsize))
        return grown

    Levels.grow = watched
    return read


def _train_xgboost(X, y, job: dict) -> tuple[dict, object]:
    import xgboost

    class Ends(xgboost.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log) -> bool:
            trees.append(clock())
            return False

    trees, threads = [], job["threads"]
    clock = Clock(job["timeout"])
    data = xgboost.QuantileDMatrix(X, y, max_bin=PARAMETERS["max_bin"], nthread=threads)
    binned = clock()
    booster = xgboost.train(
        PARAMETERS | {"tree_method": "hist", "nthread": threads}, data, job["rounds"], callbacks=[Ends()]
    )
    result = {"binned": binned, "trees": trees, "total": clock()}
    return result, lambda rows: booster.predict(xgboost.DMatrix(rows, nthread=threads))


def _train_lightgbm(X, y, job: dict) -> tuple[dict, object]:
    import lightgbm

    trees, parameters = [], {
        "objective": "binary", "num_leaves": 63, "max_depth": 6, "max_bin": 255, "learning_rate": 0.3,
        "num_threads": job["threads"], "verbosity": -1,
    }  # fmt: skip
    parameters |= job.get("parameters", {})
    clock = Clock(job["timeout"])
    data = lightgbm.Dataset(X, y, params=parameters).construct()
    binned = clock()
    booster = lightgbm.train(parameters, data, job["rounds"], callbacks=[lambda _: trees.append(clock())])
    result = {"binned": binned, "trees": trees, "total": clock()}
    return result, booster.predict


_TRAIN = {"psboost": _train_psboost, "xgboost": _train_xgboost, "lightgbm": _train_lightgbm}


def grow_forest(job: dict) -> dict:
    """Saves forests of job["trees"] trees, grown by psboost on the first rows: in all columns, and in those kept."""
    import psboost

    X, y = datasets.load(job["train"])
    X, y = X[: job["rows"]], y[: job["rows"]]
    columns = np.load(job["columns"])
    parameters = PARAMETERS | {"learning_rate": 0.02, "max_depth": job["depth"]}  # slow: the last trees split much, too
    forest = psboost.train(parameters, X, y, num_boost_round=max(map(int, job["trees"])))
    for n_trees, paths in job["trees"].items():
        some = replace(forest, trees=forest.trees[: int(n_trees)])
        some.save_model(paths["all"])
        moved = [
            replace(tree, feature=np.where(tree.feature < 0, -1, np.searchsorted(columns, tree.feature)))
            for tree in some.trees
        ]
        replace(some, trees=moved, n_features=len(columns)).save_model(paths["kept"])
    return {"leaves": float(np.mean([(tree.left < 0).sum() for tree in forest.trees]))}


def predict(job: dict) -> dict:
    """seconds: the CPU seconds of each of several predictions of the same rows; the margins are saved."""
    X, _ = datasets.load(job["rows"])
    X = X[: job["n_rows"]]
    margins_of = _predict_psboost(job) if job["program"] == "psboost" else _predict_xgboost(X, job)
    seconds = []
    while len(seconds) < PREDICT_TIMES or sum(seconds) < PREDICT_SECONDS:
        clock = Clock()
        margins = margins_of(X)
        seconds.append(clock()[1])
    np.save(job["out"], margins)
    return {"seconds": seconds, "rows": X.shape[0]}


def _predict_psboost(job: dict):
    import psboost

    forest = psboost.load_model(job["model"])
    if job["method"] is not None:
        from psboost.boosting.scorer import Scorer

        Scorer.margins = partialmethod(Scorer.margins, method=job["method"])
    return lambda X: forest.predict(X, output_margin=True, threads=1)


def _predict_xgboost(X, job: dict):
    import xgboost

    import psboost

    booster = xgboost.Booster({"nthread": 1}, model_file=job["model"])
    missing = 0.0 if psboost.load_model(job["model"]).zero_as_missing is True else np.nan  # a stored 0 is, or is not
    if job["method"] == "in place":
        return lambda X: booster.inplace_predict(X, predict_type="margin", missing=missing)
    return lambda X: booster.predict(xgboost.DMatrix(X, missing=missing, nthread=1), output_margin=True)


def read_memory(job: dict) -> dict:
    """seconds: wall clock and CPU of reading memory in random order, the same reads for one thread or shared by several."""
    rng, memory = np.random.default_rng(0), np.ones(MEMORY_BYTES // 8)
    parts = np.array_split(rng.integers(0, len(memory), N_READS), job["threads"])
    read = [np.empty(len(part)) for part in parts]

    def run(i: int) -> None:
        for _ in range(READ_TIMES):
            np.take(memory, parts[i], out=read[i], mode="clip")

    clock = Clock()
    with ThreadPoolExecutor(len(parts)) as pool:
        list(pool.map(run, range(len(parts))))
    return {"seconds": clock()}


def stream_memory(job: dict) -> dict:
    """bytes_a_second: as fast as memory is read in order, by one thread or shared by several."""
    parts = np.array_split(np.ones(STREAM_BYTES // 8), job["threads"])
    seconds = []
    with ThreadPoolExecutor(len(parts)) as pool:
        for _ in range(STREAM_TIMES):
            clock = Clock()
            list(pool.map(np.max, parts))
            seconds.append(clock()[0])
    return {"bytes_a_second": STREAM_BYTES / min(seconds)}


TASKS = {
    "train": train, "grow": grow_forest, "predict": predict, "read memory": read_memory, "stream memory": stream_memory,
}  # fmt: skip


if __name__ == "__main__":
    given = json.load(sys.stdin)
    done = TASKS[given["task"]](given)
    print("\n" + json.dumps(done), flush=True)

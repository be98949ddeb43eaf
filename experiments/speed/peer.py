"""Knows how one worker of XGBoost or LightGBM trains with others; does not know where it runs or what is asked of it.

    python peer.py tracker HOST N_WORKERS       # XGBoost's: prints its port, and stays until all have left
    python peer.py worker '{"program": ...}'    # see Spec

A worker prints a line of JSON for each mark: {"mark": "tree", "clock": s, "sent": bytes of eth0 so far}.
"""

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import TEST_ROWS
from scipy import sparse

SENT = Path("/sys/class/net/eth0/statistics/tx_bytes")
LIGHTGBM_PORT = 12400


@dataclass(frozen=True)
class Spec:
    """What a worker is told."""

    program: str  # xgboost, lightgbm
    rank: int
    hosts: list[str]
    part: str  # .npz of its rows, or of its columns
    test: str  # .npz
    rounds: int
    auc_after: list[int]  # trees
    parameters: dict  # the program's own
    split: str = "row"  # xgboost: or column
    port: int = 0  # xgboost: the tracker's, on the first host


def load(path: str | Path) -> tuple[sparse.csr_matrix, np.ndarray]:
    """X and y of an .npz file."""
    with np.load(path) as held:
        X = sparse.csr_matrix((held["data"], held["indices"], held["indptr"]), shape=tuple(held["shape"]))
        return X, held["y"]


def load_test(path: str | Path) -> tuple[sparse.csr_matrix, np.ndarray]:
    """X and y of the rows that qualities are told on."""
    X, y = load(path)
    return X[:TEST_ROWS], y[:TEST_ROWS]


def mark(what: str, **more) -> None:
    print(json.dumps({"mark": what, "clock": time.monotonic(), "sent": int(SENT.read_text())} | more), flush=True)


def mark_auc(spec: Spec, predict) -> None:
    """The qualities of predict(X, n_trees) after some trees, told by the first worker."""
    from psboost.boosting.metrics import auc

    if spec.rank == 0:
        X, y = load_test(spec.test)
        mark("auc", auc={n_trees: auc(predict(X, n_trees), y) for n_trees in spec.auc_after})


def train_xgboost(spec: Spec) -> None:
    import xgboost
    from xgboost import collective
    from xgboost.core import DataSplitMode

    class Marks(xgboost.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log) -> bool:
            mark("tree")
            return False

    X, y = load(spec.part)
    tracker = {"dmlc_tracker_uri": spec.hosts[0], "dmlc_tracker_port": spec.port, "dmlc_timeout": 600}
    with collective.CommunicatorContext(dmlc_communicator="rabit", dmlc_task_id=f"{spec.rank:03}", **tracker):
        if spec.split == "row":
            data = xgboost.QuantileDMatrix(X, y, max_bin=spec.parameters["max_bin"], nthread=1)
        else:
            data = xgboost.DMatrix(X, y, nthread=1, data_split_mode=DataSplitMode.COL)
        booster = xgboost.train(spec.parameters, data, spec.rounds, callbacks=[Marks()])

    def predict(X, n_trees: int) -> np.ndarray:
        return booster.predict(xgboost.DMatrix(X, nthread=1), iteration_range=(0, n_trees), output_margin=True)

    mark_auc(spec, predict)


def track_xgboost(host: str, n_workers: int) -> None:
    from xgboost.tracker import RabitTracker

    tracker = RabitTracker(n_workers=n_workers, host_ip=host, sortby="task")
    tracker.start()
    print(json.dumps({"port": tracker.worker_args()["dmlc_tracker_port"]}), flush=True)
    tracker.wait_for()


def train_lightgbm(spec: Spec) -> None:
    import lightgbm

    X, y = load(spec.part)
    network = {
        "num_machines": len(spec.hosts),
        "machines": ",".join(f"{host}:{LIGHTGBM_PORT}" for host in spec.hosts),
        "local_listen_port": LIGHTGBM_PORT,
        "pre_partition": True,
        "time_out": 2,  # minutes
    }
    parameters = spec.parameters | network
    booster = lightgbm.Booster(parameters, lightgbm.Dataset(X, y, params=parameters))
    for _ in range(spec.rounds):
        booster.update()
        mark("tree")
    mark_auc(spec, lambda X, n_trees: booster.predict(X, num_iteration=n_trees, raw_score=True, num_threads=1))


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "tracker":
        track_xgboost(arguments[0], int(arguments[1]))
        return
    spec = Spec(**json.loads(arguments[0]))
    {"xgboost": train_xgboost, "lightgbm": train_lightgbm}[spec.program](spec)


if __name__ == "__main__":
    main()

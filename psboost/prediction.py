"""Block-distributed prediction: psboost.predict; knows how arguments become a job, and which driver runs it."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from psboost.boosting.forest import Forest
from psboost.cluster.costs import sums
from psboost.cluster.inputs import as_file
from psboost.cluster.launch import predict_in_processes
from psboost.cluster.local import IN_PROCESS, predict_in_process
from psboost.config import check_setting
from psboost.data.source import PREDICTION, open_source
from psboost.errors import ParameterError
from psboost.kernels.prepare import prepare
from psboost.roles.job import Grid


def predict(
    forest: Forest,
    X: Any,
    *,
    grid: tuple[int, int] = (1, 1),
    servers: int = 1,
    transport: str = "inproc",
    output_margin: bool = False,
    index_base: int = 1,
) -> np.ndarray:
    """Predictions of rows that are cut into blocks: the same numbers as forest.predict(X).

    Each worker narrows the bitvectors of its rows by its own features only; servers AND them (QuickScorer). Arguments as
    in psboost.train; `output_margin` as in Forest.predict. Returns float32 (n_rows).
    """
    predictions, _ = predict_with_report(
        forest, X, grid=grid, servers=servers, transport=transport, output_margin=output_margin, index_base=index_base
    )
    return predictions


def predict_with_report(
    forest: Forest, X: Any, *, grid, servers, transport, output_margin: bool = False, index_base: int = 1
) -> tuple[np.ndarray, dict]:
    """`predict`, and what it cost: bytes by message kind, and each role's seconds, as in a training's report."""
    if not isinstance(forest, Forest):
        raise ParameterError(f"forest is a {type(forest).__name__}: give a Forest, as psboost.load_model(path) returns it")
    transport = check_setting("transport", transport)
    if transport == "virtual":
        raise ParameterError("transport 'virtual' is for training: predict by inproc, memory, ipc or tcp")
    shards = Grid(*check_setting("grid", grid), check_setting("servers", servers))
    rule = forest.zero_as_missing
    how = {"index_base": index_base, "zero_as_missing": rule, "purpose": PREDICTION}
    source = open_source(X, **how)
    forest.check_columns(source)
    prepare("predict", "send")
    if transport in IN_PROCESS:
        margins, costs = predict_in_process(shards, source, forest, transport=transport)
    else:
        with TemporaryDirectory(prefix="psboost-") as folder:
            model = str(Path(folder) / "model.json")
            forest.save_model(model)
            data = as_file(folder, "rows", X, None, None, **how)
            margins, costs = predict_in_processes(shards, data, model, transport=transport)
    return margins if output_margin else forest.link(margins), sums(costs)

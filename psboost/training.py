"""The Python entry point, psboost.train; knows how arguments become a job, and which driver runs it."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psboost.boosting.forest import Forest
from psboost.config import Parameters, check_setting
from psboost.data.bin_mapper import BinMapper
from psboost.data.source import open_source
from psboost.errors import ParameterError
from psboost.roles.coordinator import Round
from psboost.roles.job import Job

__all__ = ["Round", "train"]

IN_PROCESS = ("memory", "inproc")


def train(
    params: Mapping[str, Any],
    X: Any,
    y: Any = None,
    *,
    num_boost_round: int = 100,
    grid: tuple[int, int] = (1, 1),
    servers: int = 1,
    transport: str = "inproc",
    evals: Sequence[tuple] = (),
    seed: int = 0,
    sample_weight: Any = None,
    bin_mapper: BinMapper | None = None,
    callbacks: Sequence[Callable[[Round], bool | None]] = (),
    codec: str = "packed",
    index_base: int = 1,
    n_features: int | None = None,
) -> Forest:
    """Train gradient-boosted trees on data cut into a grid of row x column blocks.

    params           XGBoost's names (config.Parameters); an unknown one is a ParameterError
    X                numpy array (n_rows, n_features), any scipy sparse matrix or array, or the path of a file
                     (svmlight, also .gz and .bz2, or .npz)
    y                labels (n_rows); None for a file that holds them
    grid             (row shards, feature shards): one worker for each block
    servers          servers that merge histograms and route rows
    transport        "inproc" (threads), "memory" (one thread), "tcp" or "ipc" (processes on this machine)
    evals            (X, y, name) triples, or (path, name) pairs: metrics after each round
    seed             of the rounding of gradients; the model is the same for every grid, server count and transport
    sample_weight    float (n_rows), >= 0
    bin_mapper       the cut points of an earlier training (Forest.bin_mapper), instead of new ones
    callbacks        called with a Round after each round; one that returns True ends the training
    codec            how histograms are sent: "packed", or "csr" (the paper's)
    index_base       of svmlight files: 0 or 1
    n_features       declared width, where a file does not show it

    Returns the Forest, with `report` (see cluster.costs.make_report) and `bin_mapper`. Raises ParameterError, DataError
    or ClusterError.
    """
    parameters = Parameters.from_dict(dict(params))
    grid, transport = check_setting("grid", grid), check_setting("transport", transport)
    source = open_source(
        X, y, weights=sample_weight, index_base=index_base, n_features=n_features,
        zero_as_missing=parameters.zero_as_missing,
    )  # fmt: skip
    names, eval_data = _evaluation_sets(evals)
    job = Job(
        parameters=parameters,
        n_row_shards=grid[0],
        n_feature_shards=grid[1],
        n_servers=check_setting("servers", servers),
        n_rounds=check_setting("num_boost_round", num_boost_round),
        seed=check_setting("seed", seed),
        zero_as_missing=source.zero_as_missing,
        codec=check_setting("codec", codec),
        eval_names=names,
    )
    eval_sources = tuple(
        open_source(
            data, labels, index_base=index_base, n_features=n_features, zero_as_missing=source.zero_as_missing
        )
        for data, labels in eval_data
    )

    def on_round(round_: Round) -> bool:
        return any([callback(round_) for callback in callbacks])

    begin = time.perf_counter()
    if transport in IN_PROCESS:
        from psboost.cluster.local import train_in_process

        training, costs = train_in_process(
            job, source, eval_sources, transport=transport, on_round=on_round, bin_mapper=bin_mapper
        )
    else:
        from psboost.cluster.processes import train_in_processes

        training, costs = train_in_processes(
            job, source, eval_sources, transport=transport, on_round=on_round, bin_mapper=bin_mapper
        )
    return finish(training, costs, transport, time.perf_counter() - begin)


def finish(training, costs, transport: str, total_seconds: float) -> Forest:
    """The forest of a training, with its bin mapper and report."""
    from psboost.cluster.costs import make_report

    report = make_report(training.facts | {"transport": transport}, costs)
    report["seconds"]["total"] = total_seconds
    training.forest.bin_mapper = training.bin_mapper
    training.forest.report = report
    return training.forest


def _evaluation_sets(evals: Sequence[tuple]) -> tuple[tuple[str, ...], list[tuple]]:
    """Names and (data, labels) of the evaluation sets."""
    names, data = [], []
    for i, entry in enumerate(evals):
        if not isinstance(entry, tuple | list) or len(entry) not in (2, 3) or not isinstance(entry[-1], str):
            raise ParameterError(f"evals[{i}]: give (X, y, name), or (path, name) for a file that holds its labels")
        names.append(entry[-1])
        data.append((entry[0], entry[1] if len(entry) == 3 else None))
    if len(set(names)) < len(names):
        raise ParameterError(f"evals: the names {', '.join(names)} are not all different")
    return tuple(names), data

"""Knows which roles a training or a prediction has, and starts them here or in processes; does not know sockets."""

from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, replace

import numpy as np

from psboost.boosting.forest import load_model
from psboost.cluster.costs import Costs, Stopwatch
from psboost.cluster.inputs import DataInput
from psboost.cluster.processes import rendezvous_for, run_cluster
from psboost.cluster.runner import Listener
from psboost.cluster.threads import side_by_side
from psboost.data.bin_mapper import BinMapper
from psboost.errors import ProtocolError
from psboost.roles.cast import make_role
from psboost.roles.coordinator import Coordinator, Round, Training
from psboost.roles.job import Grid, Job
from psboost.roles.predicting import PredictionCoordinator, PredictionServer, PredictionWorker
from psboost.roles.role import COORDINATOR, Role


def train_in_processes(
    job: Job,
    data: DataInput,
    eval_data: tuple[DataInput, ...],
    *,
    transport: str,
    on_round: Callable[[Round], bool | None] | None = None,
    bin_mapper: BinMapper | None = None,
    rendezvous: str | None = None,
    on_join: Callable[[str, int], None] | None = None,
    on_wait: Callable[[], None] | None = None,
) -> tuple[Training, dict[str, Costs]]:
    """Trains with the coordinator in this process and every other role in another one.

    With `rendezvous`, others start the servers and workers, and the coordinator listens there; without, they are started
    here. `on_join` and `on_wait` as in run_cluster.
    """
    stopwatch = Stopwatch()
    heard: list[Listener] = []

    def with_costs(round_: Round) -> bool | None:
        if on_round is None:
            return None
        return on_round(replace(round_, bytes_sent=heard[0].bytes_sent, seconds=heard[0].seconds))

    coordinator = Coordinator(job, stopwatch.stage, with_costs, bin_mapper)
    spec = {
        "task": "train",
        "job": job.to_dict(),
        "data": data.to_dict(),
        "eval_data": [one.to_dict() for one in eval_data],
    }
    with nullcontext(rendezvous) if rendezvous else rendezvous_for(transport) as address:
        costs = run_cluster(
            coordinator,
            {"server": job.servers, "worker": job.workers},
            spec,
            rendezvous=address,
            start_members=rendezvous is None,
            stopwatch=stopwatch,
            on_wait=on_wait,
            on_start=heard.append,
            on_join=on_join,
        )
    return coordinator.result, costs


def predict_in_processes(
    grid: Grid, data: DataInput, model: str, *, transport: str, on_join=None
) -> tuple[np.ndarray, dict[str, Costs]]:
    """Predicts with every role but the coordinator in another process; `model`: the path of the forest's file.

    Returns margins (float32, n_rows), and what it cost.
    """
    stopwatch = Stopwatch()
    coordinator = PredictionCoordinator(grid, stopwatch.stage)
    spec = {"task": "predict", "grid": asdict(grid), "data": data.to_dict(), "model": model}
    with rendezvous_for(transport) as address:
        costs = run_cluster(
            coordinator,
            {"server": grid.servers, "worker": grid.workers},
            spec,
            rendezvous=address,
            start_members=True,
            stopwatch=stopwatch,
            on_join=on_join,
        )
    return coordinator.result, costs


def make_member_role(name: str, spec: dict, stopwatch: Stopwatch, stack: ExitStack) -> Role:
    """The role that a member process plays, from its name and what AssignRoles carries; `stack` ends its threads."""
    data = DataInput.from_dict(spec["data"])
    if spec["task"] == "train":
        job = Job.from_dict(spec["job"])
        if name not in job.workers:  # its host may not have the data
            return make_role(name, job, stage=stopwatch.stage)
        eval_sources = tuple(DataInput.from_dict(fields).open() for fields in spec["eval_data"])
        threads = stack.enter_context(side_by_side(job.n_threads, name))
        return make_role(name, job, data.open(), eval_sources, stage=stopwatch.stage, threads=threads)
    if spec["task"] == "predict":
        grid = Grid(**spec["grid"])
        forest = load_model(spec["model"])
        kind, _, number = name.partition(" ")
        shards = [int(part) for part in number.split(",")]
        if kind == "server":
            return PredictionServer(grid, *shards, forest, stopwatch.stage)
        return PredictionWorker(grid, *shards, data.open(), forest, stopwatch.stage)
    raise ProtocolError(f"{COORDINATOR}: unknown task {spec['task']!r}")

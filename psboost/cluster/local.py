"""Runs all roles of a job in this process: in one thread (memory) or one thread each (inproc); starts no processes."""

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from psboost.boosting.forest import Forest
from psboost.cluster.costs import Costs, peak_memory, slowest
from psboost.cluster.memory import run_in_memory
from psboost.cluster.runner import Mailbox, run_role
from psboost.cluster.threads import side_by_side
from psboost.data.bin_mapper import BinMapper
from psboost.data.source import Source
from psboost.interrupts import interrupts_wait
from psboost.roles.cast import make_role
from psboost.roles.coordinator import Coordinator, Round, Training
from psboost.roles.job import Grid, Job
from psboost.roles.predicting import PredictionCoordinator, PredictionServer, PredictionWorker
from psboost.roles.role import COORDINATOR, Role
from psboost.wire.codec import new_run
from psboost.wire.endpoint import Endpoint, Neighbours
from psboost.wire.ledger import Ledger

IN_PROCESS = "memory", "inproc"  # transports


def train_in_process(
    job: Job,
    source: Source,
    eval_sources: tuple[Source, ...],
    *,
    transport: str,
    on_round: Callable[[Round], bool | None] | None = None,
    bin_mapper: BinMapper | None = None,
) -> tuple[Training, dict[str, Costs]]:
    """Trains with roles that share `source`; `transport` is "memory" or "inproc". Returns the training and its costs."""
    costs = _fresh_costs(job)

    def with_costs(round_: Round) -> bool | None:
        if on_round is None:
            return None
        sent = sum(cost.ledger.bytes_sent for cost in costs.values())
        return on_round(replace(round_, bytes_sent=sent, seconds=slowest(cost.seconds for cost in costs.values())))

    coordinator = Coordinator(job, costs[COORDINATOR].stopwatch.stage, with_costs, bin_mapper)
    others: list[Role] = []
    with ExitStack() as stack:
        for name in (*job.servers, *job.workers):
            threads = stack.enter_context(side_by_side(job.n_threads if name in job.workers else 1, name))
            stopwatch = costs[name].stopwatch
            others.append(make_role(name, job, source, eval_sources, stage=stopwatch.stage, threads=threads))
        _run(coordinator, others, costs, transport)
    return coordinator.result, costs


def predict_in_process(
    grid: Grid, source: Source, forest: Forest, *, transport: str
) -> tuple[np.ndarray, dict[str, Costs]]:
    """Predicts with roles that share `source` and `forest`. Returns margins (float32, n_rows), and what it cost."""
    costs = _fresh_costs(grid)
    coordinator = PredictionCoordinator(grid, costs[COORDINATOR].stopwatch.stage)
    others: list[Role] = [
        PredictionServer(grid, s, forest, costs[name].stopwatch.stage) for s, name in enumerate(grid.servers)
    ]
    for i, name in enumerate(grid.workers):
        shards = divmod(i, grid.n_feature_shards)
        others.append(PredictionWorker(grid, *shards, source, forest, costs[name].stopwatch.stage))
    _run(coordinator, others, costs, transport)
    return coordinator.result, costs


def _fresh_costs(grid: Grid) -> dict[str, Costs]:
    return {name: Costs() for name in (COORDINATOR, *grid.servers, *grid.workers)}


def _run(coordinator: Role, others: list[Role], costs: dict[str, Costs], transport: str) -> None:
    ledgers = {name: cost.ledger for name, cost in costs.items()}
    if transport == "memory":
        # What workers send to servers and peers lies in memory that they use again.
        run_in_memory([coordinator, *others], ledgers, by_reference=len(others) == 1)
    else:
        run_in_threads(coordinator, others, ledgers)
    for role in others:
        costs[role.name].bytes_read = role.bytes_read
        costs[role.name].peak_memory = peak_memory()


class _Failure:
    """The first thing that went wrong in any thread."""

    def __init__(self):
        self._lock = threading.Lock()
        self.error: BaseException | None = None

    def report(self, error: BaseException) -> None:
        with self._lock:
            self.error = self.error or error

    def check(self) -> None:
        if self.error is not None:
            raise self.error


def run_in_threads(first: Role, others: list[Role], ledgers: dict[str, Ledger]) -> None:
    """Runs `first` in this thread and each of `others` in one of its own; raises the first error of any of them."""
    failure = _Failure()
    run = new_run()
    roles = [first, *others]
    with Neighbours() as neighbours:
        endpoints = {
            role.name: Endpoint(
                role.name, f"inproc://{run}/{role.name.replace(' ', '-')}",
                run=run, ledger=ledgers[role.name], neighbours=neighbours,
            )
            for role in roles
        }  # fmt: skip
        threads = [
            threading.Thread(target=_run_in_thread, args=(role, endpoints[role.name], failure), name=role.name)
            for role in others
        ]
        try:
            for endpoint in endpoints.values():
                for name, peer in endpoints.items():
                    endpoint.connect(name, peer.address)
            for thread in threads:
                thread.start()
            run_role(first, endpoints[first.name], Mailbox(endpoints[first.name], failure.check))
        except BaseException as error:
            failure.report(error)
        finally:
            _end(threads, endpoints.values(), failure)
    try:
        failure.check()
    finally:
        failure.error = None  # whose traceback has this frame: they would keep each other, and all data


def _end(threads: Iterable[threading.Thread], endpoints: Iterable[Endpoint], failure: _Failure) -> None:
    """Waits for the threads, and closes what they used: not before, whenever another Ctrl-C comes."""
    ended = False
    while not ended:
        try:
            with interrupts_wait():
                if (error := sys.exc_info()[1]) is not None:  # which came before the first one was reported
                    failure.report(error)
                for thread in threads:
                    if thread.ident is not None:
                        thread.join()
                for endpoint in endpoints:
                    endpoint.close()
                ended = True
        except KeyboardInterrupt as error:
            failure.report(error)


def _run_in_thread(role: Role, endpoint: Endpoint, failure: _Failure) -> None:
    try:
        run_role(role, endpoint, Mailbox(endpoint, failure.check))
    except BaseException as error:
        failure.report(error)

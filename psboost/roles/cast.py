"""Knows which class plays which role of a training; does not know where roles run."""

from psboost.data.source import Source
from psboost.roles.block_worker import BlockWorker
from psboost.roles.job import Job
from psboost.roles.ring_worker import RingWorker
from psboost.roles.role import Role, Stage
from psboost.roles.server import Server
from psboost.roles.worker import Threads, one_thread


def make_role(
    name: str,
    job: Job,
    source: Source | None = None,
    eval_sources: tuple[Source, ...] = (),
    *,
    stage: Stage | None = None,
    threads: Threads = one_thread,
) -> Role:
    """The server or worker of that name, of job.servers or job.workers. Only workers read `source` and `eval_sources`."""
    kind, _, number = name.partition(" ")
    shards = [int(part) for part in number.split(",")]
    if kind == "server":
        return Server(job, *shards, stage)
    worker = RingWorker if job.is_ring else BlockWorker
    return worker(job, *shards, source, eval_sources, stage, threads)

"""Knows how a real run in network namespaces is set beside one of the virtual cluster; does not know how that works.

    ./scripts/reproduce virtual-cluster        as root: it makes namespaces

Real: `psboost coordinator`, `server` and `worker`, each in its host's namespace and on its host's core of this machine
(hosts_per_core hosts share one), links shaped to `rate`. Virtual: `psboost train --transport virtual` on the same cluster.
Its clock is told what is measured here first, between two namespaces with links of that rate: what sockets take of the
CPU, on cores of their own or on one, and of the time from host to host what is not CPU time. In a real run both cores are
busy, and slow each other down by what they share, so virtual runs go in pairs too, one on each core. The machine may be
quicker now and slower then, so real and virtual runs take turns, `repeats` times.

A tree's seconds are the median of those after a run's first; figures are the means of runs. Bytes are those on the wire, by
the ledger of each run, of all messages that a role sends (those with which processes find each other and part are not in
the virtual cluster).
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from functools import cache, partial
from pathlib import Path

import numpy as np

from experiments.common.data import Data
from experiments.common.here import NotHere
from experiments.common.plan import Settings
from experiments.common.table import as_text
from psboost.boosting.parameters import Parameters
from psboost.lab.hosts import Cluster
from psboost.lab.namespaces import Lab, LabError, bits_per_second, burst_of
from psboost.lab.phases import OF_KIND
from psboost.roles.job import Job

PORT = 5555
WAIT_SECONDS = 300
GOODPUT = 1448 / 1514  # as tc counts the packets: without what Ethernet adds on a wire
PSBOOST = [sys.executable, "-P", "-m", "psboost"]
SOCKETS = [sys.executable, "-P", "-m", "psboost.lab.sockets"]


def measure(settings: Settings, data: Data) -> list[dict]:
    cores = sorted(os.sched_getaffinity(0))
    n_cores = settings["hosts"] // settings["hosts_per_core"]
    if len(cores) < n_cores:
        raise NotHere(f"it needs {n_cores} cores, this machine has {len(cores)}")
    cores = cores[:n_cores]
    sockets = sockets_here(tuple(cores), settings["rate"], settings["hosts_per_core"] > 1)
    cluster = {
        "hosts": settings["hosts"], "hosts_per_core": settings["hosts_per_core"],
        "gbit": bits_per_second(settings["rate"]) / 1e9, "burst_kb": burst_of(settings["rate"]) / 1e3,
        "goodput": GOODPUT, **sockets,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="psboost-virtual-") as name:
        folder = Path(name)
        X = data.X.tocsr()
        np.savez(folder / "train.npz", indptr=X.indptr, indices=X.indices, data=X.data, shape=X.shape, y=data.y)
        flags = [
            str(folder / "train.npz"), "--grid", settings["grid"], "--servers", str(settings["servers"]),
            "--mode", settings["mode"], "--num-boost-round", str(settings["num_boost_round"]), "--sketch", "exact",
            "--max-depth", str(settings["max_depth"]), "--threads", "1", "--quiet",
        ]  # fmt: skip
        real, virtual = [], []
        for _ in range(settings["repeats"]):
            real.append(run_really(settings, cluster, cores, folder, flags))
            virtual += run_virtually(cluster, cores, folder, flags)
    predicted = statistics.mean(seconds_per_tree(report["virtual"]["seconds_by_tree"]) for report in virtual)
    really = statistics.mean(seconds_per_tree(report["seconds_by_tree"]) for report in real)
    by_kind = {kind: sums for kind, sums in real[0]["bytes"].items() if kind in OF_KIND}
    row = {
        "predicted_seconds": predicted, "real_seconds": really, "error": predicted / really - 1,
        "predicted_bytes": bytes_of(virtual[0]["bytes"]), "real_bytes": bytes_of(by_kind),
        "same_bytes_by_kind": all(report["bytes"] == by_kind for report in virtual),
        **{name: round(value, 3) for name, value in sockets.items()},
    }  # fmt: skip
    print(", ".join(f"{name} {as_text(value)}" for name, value in row.items()), file=sys.stderr, flush=True)
    return [row]


def seconds_per_tree(by_tree: dict[str, float]) -> float:
    """The median; the first tree is not like others."""
    return statistics.median(list(by_tree.values())[1:])


def bytes_of(by_kind: dict[str, dict[str, int]]) -> int:
    return sum(sums["wire"] for sums in by_kind.values())


def environment() -> dict[str, str]:
    """No settings of psboost's but those given here."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PSBOOST_")} | {
        "OPENBLAS_NUM_THREADS": "1"
    }


def sockets_here(cores: tuple[int, ...], rate: str, share_a_core: bool) -> dict[str, float]:
    """Cluster's message_us, byte_ns and latency_ms between two namespaces with links of that rate."""
    apart = measure_sockets(cores[0], cores[-1], rate)
    # A message to the other end and back: twice the way, and four times the CPU time of an end.
    way_us = apart["round_trip_us"] / 2 - 2 * apart["message_us"]
    measured = measure_sockets(cores[0], cores[0], rate) if share_a_core else apart
    return {
        "message_us": measured["message_us"], "byte_ns": max(0.0, measured["byte_ns"]), "latency_ms": max(0.0, way_us / 1e3)
    }  # fmt: skip


@cache
def measure_sockets(there: int, here: int, rate: str) -> dict[str, float]:
    """What psboost.lab.sockets prints of two namespaces, each on the core given."""
    lines: list[str] = []
    try:
        with Lab(2, rate) as lab:
            start = partial(lab.start, on_line=lines.append, env=environment())
            far = start(0, [*SOCKETS, "--listen", f"tcp://{lab.hosts[0]}:{PORT}"], core=there)
            while not lines:
                lab.wait(0.1, [])
            near = start(1, [*SOCKETS, "--to", f"tcp://{lab.hosts[0]}:{PORT}", "--host", lab.hosts[1]], core=here)
            lab.wait(WAIT_SECONDS, [far, near])
    except LabError as error:
        raise NotHere(str(error)) from error
    return json.loads(lines[-1])


def run_really(settings: Settings, cluster: dict, cores: list[int], folder: Path, flags: list[str]) -> dict:
    """The report of a run in namespaces."""
    rows, columns = map(int, settings["grid"].split("x"))
    job = Job(
        rows, columns, settings["servers"], Parameters(), n_rounds=1, seed=0, zero_as_missing=None, mode=settings["mode"]
    )
    placed = Cluster(**cluster).place(job)
    with Lab(settings["hosts"], settings["rate"]) as lab:
        rendezvous = ["--rendezvous", f"{lab.hosts[placed['coordinator']]}:{PORT}"]

        def start(name: str, command: list[str]) -> None:
            host = placed[name]
            core = cores[host // settings["hosts_per_core"]]
            lab.start(host, [*PSBOOST, *command], env=environment(), core=core)

        outputs = ["--model", str(folder / "real.json"), "--report", str(folder / "real-report.json")]
        start("coordinator", ["coordinator", *rendezvous, *flags, *outputs])
        for kind, names in (("server", job.servers), ("worker", job.workers)):
            for rank, name in enumerate(names):
                start(name, [kind, *rendezvous, "--rank", str(rank)])
        lab.wait(WAIT_SECONDS)
    return json.loads((folder / "real-report.json").read_text())


def run_virtually(cluster: dict, cores: list[int], folder: Path, flags: list[str]) -> list[dict]:
    """The reports of runs on the virtual cluster, one on each core at the same time."""
    given = [f"--{name.replace('_', '-')}={value}" for name, value in cluster.items()]
    runs = []
    for core in cores:
        report = folder / f"virtual-{core}.json"
        command = ["--transport", "virtual", *given, "--model", str(folder / f"model-{core}.json"), "--report", str(report)]
        started = subprocess.Popen(
            [*PSBOOST, "train", *flags, *command], env=environment(), start_new_session=True,
            preexec_fn=partial(os.sched_setaffinity, 0, {core}),
        )  # fmt: skip
        runs.append((report, started))
    try:
        codes = [started.wait(WAIT_SECONDS) for _, started in runs]
    finally:
        for _, started in runs:
            started.kill()
    if any(codes):
        raise RuntimeError(f"psboost train --transport virtual ended with {codes}")
    return [json.loads(report.read_text()) for report, _ in runs]

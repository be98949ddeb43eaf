"""Knows what psboost and the peers send and how long they take on shaped links; does not know how they train.

    python experiments/speed/wire.py --shapes rcv1,bosch --rounds 5 --rate 1gbit        # root: it makes namespaces
    python experiments/speed/wire.py --data FOLDER     # FOLDER/url-small-train.npz and so on, as `data_of` writes them

Four hosts, each a namespace with its own link (psboost/lab/namespaces.py), one thread a process, everybody with depth 6,
256 bins and learning rate 0.3:

    psboost         2x2 grid and 2 servers, dealt to the hosts and started as scripts/launch_hosts does; it reads one .npz
    XGBoost         row split (QuantileDMatrix) and column split, a worker a host, each with an .npz of its part: as many
                    rows, or as many stored values
    LightGBM        data (defaults; min_data_in_leaf=1, so that it keeps rare columns too) and voting, the same way

Figures, for each shape and rate:

    bytes      MB a tree that the hosts send, counted at their interfaces with headers; what stays on a host is not in it.
               Trees after the first, which is cheaper than others
    wall       seconds a tree, median without the first
    raw wall   seconds from the start of the processes to the end of the 20th tree. Who is too slow for 20 gets, after those
               that were grown, the median tree for each that is missing

Once psboost has a host for each role, so that all it sends crosses an interface, and is beside what its report counts.
Slow peers grow few trees (--slow-rounds); ratios are of the same trees of both, and psboost trains again right after each
peer, for them: one turn of several, if the peer is quick.
Qualities are AUC on 20,000 test rows, after as many trees as the note says, and psboost's less the peer's after as many.

With --real-time all processes, the peers' too, run under SCHED_RR, and notes say so. Where hosts share two cores, Linux
often leaves one idle while a process waits for the other, as it seldom moves one that is waiting or has just run; how
often depends on the kernel, and on how many processes take turns. Under SCHED_RR an idle core takes whoever waits. Of
psboost, the threads that send and receive run so in any case, as they do wherever the user may have such threads.
"""

import argparse
import hashlib
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import peers
from datasets import TEST_ROWS, stamp
from installed import settle
from peer import Spec, load, load_test
from results import HEADER as TABLE_HEADER
from results import Figure, compare, keep, machine, path_of, show, versions
from shapes import SEED, SHAPES, make, named

import psboost
from psboost.boosting.forest import load_model
from psboost.boosting.metrics import auc
from psboost.cluster.signals import exit_code, signals_as_interrupt
from psboost.files import replaced
from psboost.lab.namespaces import Lab, LabError, OutOfTime

N_HOSTS = 4
FEW = 3  # trees of who is slow, if not told otherwise
MANY = 20  # trees of "raw wall"
WAIT_SECONDS = 900
PORT = 5555
CACHE = Path(tempfile.gettempdir()) / "psboost-wire"
MB = 1e6

PEERS = {
    peers.ROW_SPLIT: {"program": "xgboost", "split": "row"},
    peers.COLUMN_SPLIT: {"program": "xgboost", "split": "column"},
    peers.DATA: {"program": "lightgbm", "tree_learner": "data"},
    f"{peers.DATA}, min_data_in_leaf=1": {"program": "lightgbm", "tree_learner": "data", "min_data_in_leaf": 1},
    peers.VOTING: {"program": "lightgbm", "tree_learner": "voting"},
}
SLOW = {(peers.ROW_SPLIT, shape) for shape in ("url", "avazu", "rcv1")} | {
    (peers.COLUMN_SPLIT, shape) for shape in ("url", "avazu")
}
ASKED_BYTES = {
    peers.ROW_SPLIT: {"url": 1200, "avazu": 1200, "rcv1": 350, "bosch": 75},
    peers.DATA: {"url": 3.5, "avazu": 4, "rcv1": 15, "bosch": 18},
}
ASKED_BITS, ASKED_COLUMNS, ASKED_WALL = 1.3, 2.0, 1.5
MEMORY = {(peers.ROW_SPLIT, "url"): 18e9, (peers.ROW_SPLIT, "rcv1"): 15e9, (peers.COLUMN_SPLIT, "url"): 17e9}
LEAST_MEMORY = 1.2e9  # a run ends when less is left


@dataclass(frozen=True)
class Psboost:
    """A way to run psboost."""

    who: str
    grid: tuple[int, int] = (2, 2)
    servers: int = 2
    flags: tuple[str, ...] = ()
    apart: bool = False  # each role on a host of its own

    @property
    def n_workers(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def n_hosts(self) -> int:
        return 1 + self.servers + self.n_workers if self.apart else N_HOSTS

    def host_of(self, turn: int) -> int:
        """Of the servers, then the workers: dealt round robin, as scripts/launch_hosts does; the coordinator is on 0."""
        return 1 + turn if self.apart else turn % N_HOSTS


DEFAULT = Psboost("psboost")
EIGHT_BITS = Psboost("psboost, grad_bits=8", flags=("--grad-bits", "8"))
COLUMNS = Psboost("psboost, 1x4 grid", grid=(1, 4), servers=0)
APART = Psboost("psboost, a host for each role", apart=True)


@dataclass
class Run:
    """What a training cost. Lists have an entry for each tree, taken when it was done."""

    clock: list[float] = field(default_factory=list)  # seconds since the processes were started
    sent: list[int] = field(default_factory=list)  # bytes, by all hosts
    auc: dict[str, float] = field(default_factory=dict)  # after so many trees
    failed: str = ""
    report: dict = field(default_factory=dict)  # psboost's

    @property
    def seconds_per_tree(self) -> float:
        return statistics.median(np.diff(self.clock))

    @property
    def bytes_per_tree(self) -> float:
        return (self.sent[-1] - self.sent[0]) / (len(self.sent) - 1)

    def first(self, n_trees: int) -> "Run":
        """As if it had ended then: later trees are smaller, so only the same ones may be compared."""
        return replace(self, clock=self.clock[:n_trees], sent=self.sent[:n_trees])

    def seconds_to(self, n_trees: int) -> float:
        """From the start to the end of the n-th tree."""
        missing = max(0, n_trees - len(self.clock))
        return self.clock[min(n_trees, len(self.clock)) - 1] + missing * self.seconds_per_tree


@dataclass(frozen=True)
class Data:
    """Files of one shape."""

    shape: str
    train: Path
    test: Path
    cache: Path  # where parts of it go

    @property
    def name(self) -> str:
        """Of these training rows and no others."""
        return f"{self.train.stem}-{stamp(self.train)}"

    def parts(self, split: str) -> list[Path]:
        """The training rows in N_HOSTS row slices, or column slices of as many stored values, made once."""
        paths = [self.cache / f"{self.name}-{split}{i}of{N_HOSTS}.npz" for i in range(N_HOSTS)]
        if not all(path.exists() for path in paths):
            X, y = load(self.train)
            if split == "row":
                edges = np.linspace(0, X.shape[0], N_HOSTS + 1).astype(int)
            else:
                n_stored = np.cumsum(np.bincount(X.indices, minlength=X.shape[1]))
                inner = np.searchsorted(n_stored, X.nnz * np.arange(1, N_HOSTS) / N_HOSTS)
                edges = np.array([0, *inner, X.shape[1]])
            for path, begin, end in zip(paths, edges, edges[1:], strict=False):
                if split == "row":
                    save(path, X[begin:end], y[begin:end])
                else:  # no wider than its own columns: XGBoost numbers those of the workers on and on
                    save(path, X[:, begin:end], y)
        return paths


def save(path: Path, X, y: np.ndarray) -> None:
    """An .npz that psboost maps: its workers read their own bytes of it."""
    indices = X.indices.astype(np.int32)
    with replaced(path, "wb") as file:
        np.savez(file, indptr=X.indptr.astype(np.int64), indices=indices, data=X.data, shape=X.shape, y=y)


def data_of(shape: str, scale: float, cache: Path, given: Path | None = None, seed: int = SEED) -> Data:
    """The files of a shape, in the folder `given`, or made in `cache`."""
    cache.mkdir(parents=True, exist_ok=True)
    if given is not None:
        return Data(shape, *(given / f"{shape}-small-{part}.npz" for part in ("train", "test")), cache)
    data = Data(shape, *(cache / f"{shape}-{scale:g}-{seed}-{part}.npz" for part in ("train", "test")), cache)
    if not (data.train.exists() and data.test.exists()):
        n_rows = round(SHAPES[shape][1] * scale)
        X, y = make(shape, (n_rows + TEST_ROWS) / SHAPES[shape][1], seed)
        save(data.train, X[:n_rows], y[:n_rows])
        save(data.test, X[n_rows:], y[n_rows:])
    return data


# --- one training


def environment() -> dict[str, str]:
    """One thread a process, and no settings of psboost's but those given here."""
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return {name: value for name, value in os.environ.items() if not name.startswith("PSBOOST_")} | one_thread


def free_memory() -> int:
    """Bytes."""
    [line] = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable")]
    return int(line.split()[1]) * 1024


def check_memory() -> None:
    if free_memory() < LEAST_MEMORY:
        raise LabError("ended: the machine has hardly any memory left")


def run_psboost(way: Psboost, data: Data, n_rounds: int, rate: str, auc_after: set[int]) -> Run:
    """Trains one tree more than n_rounds: what is sent for a tree begins before the one before it is reported."""
    run = Run()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="psboost-wire-")))
        lab = stack.enter_context(Lab(way.n_hosts, rate))

        def on_line(line: str) -> None:
            if re.match(r"\[\d+\] ", line):
                run.sent.append(sum(lab.sent()))
                run.clock.append(time.monotonic() - begin)

        grid = "x".join(map(str, way.grid))
        rendezvous = ["--rendezvous", f"{lab.hosts[0]}:{PORT}"]
        command = [
            *rendezvous, str(data.train), "--model", str(folder / "model.json"), "--report", str(folder / "report.json"),
            "--grid", grid, "--servers", str(max(1, way.servers)), "--num-boost-round", str(n_rounds + 1),
            "--max-depth", "6", "--max-bin", "256", "--learning-rate", "0.3", "--objective", "binary:logistic",
            "--threads", "1", *way.flags,
        ]  # fmt: skip
        psboost, env = [sys.executable, "-P", "-m", "psboost"], environment()
        begin = time.monotonic()
        lab.start(0, [*psboost, "coordinator", *command], on_line=on_line, env=env)
        roles = [("server", i) for i in range(way.servers)] + [("worker", i) for i in range(way.n_workers)]
        of_hosts: dict[int, list[str]] = {}
        for turn, (role, rank) in enumerate(roles):
            of_hosts.setdefault(way.host_of(turn), []).extend((f"--{role}s", "1", f"--first-{role}", str(rank)))
        for host, members in of_hosts.items():
            lab.start(host, [*psboost, "members", *rendezvous, *members], env=env)
        lab.wait(WAIT_SECONDS, check=check_memory)
        run.report = json.loads((folder / "report.json").read_text())
        forest = load_model(folder / "model.json")
    run.clock, run.sent = run.clock[:n_rounds], run.sent[:n_rounds]
    X, y = load_test(data.test)
    for n_trees in auc_after:
        run.auc[str(n_trees)] = auc(replace(forest, trees=forest.trees[:n_trees]).predict(X, output_margin=True), y)
    return run


def run_peer(who: str, data: Data, n_rounds: int, rate: str, seconds: float, auc_after: set[int]) -> Run:
    """One worker a host. Raises OutOfTime, LabError."""
    how = dict(PEERS[who])
    program, split = how.pop("program"), how.pop("split", "row")
    if program == "xgboost":
        parameters = {"objective": "binary:logistic", "tree_method": "hist", "max_depth": 6, "eta": 0.3, "max_bin": 256}
        parameters |= {"nthread": 1}
    else:
        parameters = {"objective": "binary", "max_depth": 6, "num_leaves": 63, "learning_rate": 0.3, "max_bin": 255}
        parameters |= {"num_threads": 1, "verbosity": 1, "seed": 1} | how | peers.LIGHTGBM_ON.get(data.shape, {})
    script = [sys.executable, str(Path(__file__).with_name("peer.py"))]
    marks: list[list[dict]] = [[] for _ in range(N_HOSTS)]
    parts, env = data.parts(split), environment()
    with Lab(N_HOSTS, rate) as lab:
        spec = Spec(
            program=program, rank=0, hosts=lab.hosts, part="", test=str(data.test), rounds=n_rounds,
            auc_after=sorted(auc_after), parameters=parameters, split=split,
        )  # fmt: skip
        if program == "xgboost":
            ports: list[int] = []
            lab.start(
                0, [*script, "tracker", lab.hosts[0], str(N_HOSTS)], env=env,
                on_line=lambda line: ports.append(json.loads(line)["port"]) if line.startswith("{") else None,
            )  # fmt: skip
            while not ports:
                lab.wait(0.0, [])
                time.sleep(0.01)
            spec = replace(spec, port=ports[0])
        begin = time.monotonic()  # XGBoost's tracker stands ready; psboost's coordinator starts with the others
        workers = []
        for rank, part in enumerate(parts):
            told = json.dumps(asdict(replace(spec, rank=rank, part=str(part))))

            def on_line(line: str, its=marks[rank]) -> None:
                if line.startswith('{"mark"'):
                    its.append(json.loads(line))

            workers.append(lab.start(rank, [*script, "worker", told], on_line=on_line, env=env))
        lab.wait(seconds, workers, check_memory)
    trees = list(zip(*([one for one in of_worker if one["mark"] == "tree"] for of_worker in marks), strict=True))
    return Run(
        clock=[max(one["clock"] for one in tree) - begin for tree in trees],
        sent=[sum(one["sent"] for one in tree) for tree in trees],
        auc=next(one["auc"] for one in marks[0] if one["mark"] == "auc"),
    )


# --- figures


class Bench:
    """Trainings of one shape at one rate. Those of peers, with psboost's beside them, are kept in the cache for the day they
    are made, as long as psboost's code is the same."""

    def __init__(self, data: Data, rate: str, n_rounds: int, slow_rounds: int, *, again: bool, seconds: float):
        self.data, self.rate, self.n_rounds, self._slow_rounds = data, rate, n_rounds, slow_rounds
        self._again, self._seconds = again, seconds

    def of_psboost(self, way: Psboost) -> Run:
        return run_psboost(way, self.data, self.n_rounds, self.rate, {self._slow_rounds, self.n_rounds})

    def of_peer(self, who: str, n_turns: int) -> list[tuple[Run, Run]]:
        """Its trainings, each with psboost's right after it, so that both had the same machine: n_turns, or fewer where all
        would take longer than one may. Or a single one that says why it failed."""
        n_rounds = self._slow_rounds if (who, self.data.shape) in SLOW else self.n_rounds
        path = self._path(who, n_rounds, n_turns)
        if not self._again and path.exists() and time.localtime(path.stat().st_mtime)[:3] == time.localtime()[:3]:
            print(f"{self.data.shape}, {who}: as measured today already (--again: anew)", file=sys.stderr, flush=True)
            return [(Run(**theirs), Run(**ours)) for theirs, ours in json.loads(path.read_text())]
        needed = MEMORY.get((who, self.data.shape), 0)
        if free_memory() < needed:
            needs = f"not run: it needs {needed / 1e9:.0f} GB of memory, {free_memory() / 1e9:.0f} are free"
            return [(Run(failed=needs), Run())]
        turns: list[tuple[Run, Run]] = []
        begin = time.monotonic()
        for turn in range(n_turns):
            if turn and (time.monotonic() - begin) / turn * (turn + 1) > self._seconds:
                break
            try:
                theirs = run_peer(who, self.data, n_rounds, self.rate, self._seconds, {n_rounds})
            except OutOfTime:
                turns = turns or [(Run(failed=f"ended after {self._seconds:.0f} s"), Run())]
                break
            turns.append((theirs, self.of_psboost(DEFAULT)))
        path.write_text(json.dumps([(asdict(theirs), asdict(ours)) for theirs, ours in turns]))
        return turns

    def _path(self, who: str, n_rounds: int, n_turns: int) -> Path:
        what = [self.data.name, who, self.rate, _policy(), n_rounds, self.n_rounds, n_turns, _code_of_psboost()]
        return self.data.cache / f"turns-{hashlib.sha256(repr(what).encode()).hexdigest()[:16]}.json"


def _code_of_psboost() -> str:
    """A digest of all its sources."""
    sources = sorted(Path(psboost.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()


def measure(
    arguments, *, data: Path | None = None, again: bool = False, seconds: float = WAIT_SECONDS, slow_rounds: int = FEW
) -> Iterator[Figure]:
    """Figures of arguments.shapes at arguments.rates, each as soon as it is known.

    arguments    shapes and rates (lists of texts), scale (of rows), seed, rounds, repeats (of psboost's, and turns of a
                 peer), cache (a folder for files)
    data         a folder with files to use in place of generated ones
    again        whether peers run that have run today
    seconds      after which a peer's training is given up; no turn begins that would likely end later
    slow_rounds  trees of peers that take long for one; at most arguments.rounds
    """
    for rate in arguments.rates:
        with Lab(1, rate):  # who may not make one, or does not know the rate, is told before anything is made
            pass
    settle()
    for shape in arguments.shapes:
        files = data_of(shape, arguments.scale, Path(arguments.cache), data, arguments.seed)
        for rate in arguments.rates:
            few = min(slow_rounds, arguments.rounds)
            bench = Bench(files, rate, arguments.rounds, few, again=again, seconds=seconds)
            scale = "" if arguments.scale == 1 else f", {arguments.scale:g} of the rows"
            yield from figures(bench, arguments.repeats, f"{rate}{scale}{_policy()}")


def _policy() -> str:
    """What notes say of how processes are scheduled."""
    return ", real-time" if os.sched_getscheduler(0) == os.SCHED_RR else ""


def figures(bench: Bench, n_repeats: int, where: str) -> Iterator[Figure]:
    """psboost's figures, then each peer's beside them. `where`: how the notes begin."""
    shape, n_rounds = bench.data.shape, bench.n_rounds
    blank = Figure("", shape, "", 1, 0.0, "")
    ours = [bench.of_psboost(DEFAULT) for _ in range(n_repeats)]
    for who, runs in ((DEFAULT.who, ours), (COLUMNS.who, [bench.of_psboost(COLUMNS)])):
        yield from figures_of(replace(blank, who=who, repeats=len(runs)), runs, where)
    columns = runs[0]
    eight = bench.of_psboost(EIGHT_BITS)
    yield replace(
        blank, measure="bytes", who=EIGHT_BITS.who, value=eight.bytes_per_tree / MB, unit="MB a tree",
        ratio=ours[0].bytes_per_tree / eight.bytes_per_tree, asked=ASKED_BITS, auc=eight.auc[str(n_rounds)],
        note=f"{where}; ratio: of the default's bytes",
    )  # fmt: skip
    yield from figures_apart(blank, bench.of_psboost(APART), where)
    for who in PEERS:
        theirs, beside = map(list, zip(*bench.of_peer(who, n_repeats), strict=True))
        if theirs[0].failed:
            print(f"{shape}, {who}, {where}: {theirs[0].failed}", file=sys.stderr, flush=True)
            continue
        asked = ASKED_BYTES.get(who, {}).get(shape)
        yield from figures_of(replace(blank, who=who, repeats=len(theirs)), theirs, where, beside, asked)
        if who == peers.COLUMN_SPLIT:
            first = theirs[0]
            ratio = first.bytes_per_tree / columns.first(len(first.sent)).bytes_per_tree
            yield replace(
                blank, measure="bytes", who=who, value=first.bytes_per_tree / MB, unit="MB a tree", ratio=ratio,
                asked=ASKED_COLUMNS, note=f"{where}; ratio: to psboost on a 1x4 grid",
            )  # fmt: skip


def figures_of(blank: Figure, runs: list[Run], where: str, ours: list[Run] | None = None, asked=None) -> Iterator[Figure]:
    """bytes, wall and raw wall of some equal runs; with `ours`, beside psboost's of the same moments."""
    n_trees, asked_of_wall = len(runs[0].clock), None if ours is None else ASKED_WALL
    quantities = [
        ("bytes", "MB a tree", lambda run: run.bytes_per_tree / MB, asked),
        ("wall", "s a tree", lambda run: run.seconds_per_tree, asked_of_wall),
        ("raw wall", "s", lambda run: run.seconds_to(MANY), asked_of_wall),
    ]
    quality = runs[0].auc[str(n_trees)]
    for measured, unit, quantity, asked_of_it in quantities:
        values = [quantity(run) for run in runs]
        compared = {}
        if ours is not None:
            beside = [quantity(run if measured == "raw wall" else run.first(n_trees)) for run in ours]
            compared = compare(beside, values) | {"auc_gap": ours[0].auc[str(n_trees)] - quality}
        note = f"{where}; of {n_trees} trees"
        if measured == "raw wall" and n_trees < MANY:
            note += f"; then {MANY - n_trees} x the median tree"
        figure = replace(
            blank, measure=measured, value=statistics.median(values), unit=unit, asked=asked_of_it, auc=quality, note=note
        )  # fmt: skip
        yield replace(figure, **compared)


def figures_apart(blank: Figure, run: Run, where: str) -> Iterator[Figure]:
    """With each role on a host of its own, what interfaces count, and what the endpoints do."""
    of_trees = [sum(kind["wire"] for kind in run.report["bytes_by_tree"][str(i)].values()) for i in range(1, len(run.sent))]
    apart = replace(blank, measure="bytes", who=APART.who, unit="MB a tree")
    yield replace(apart, value=run.bytes_per_tree / MB, note=f"{where}; at the interfaces")
    yield replace(apart, value=statistics.mean(of_trees) / MB, note=f"{where}; as the report counts")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", type=named, default="url,avazu,rcv1,bosch")
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--slow-rounds", type=int, default=FEW, help="of peers that take long for a tree")
    parser.add_argument("--repeats", type=int, default=3, help="of psboost, and of each peer that is quick enough")
    parser.add_argument("--rate", default="1gbit", help="of every link: 1gbit, 100mbit, unlimited; several with commas")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--cache", type=Path, default=CACHE, help="a folder for files")
    parser.add_argument("--data", type=Path, help="a folder with SHAPE-small-train.npz and SHAPE-small-test.npz")
    parser.add_argument("--again", action="store_true", help="run peers that have run today again")
    parser.add_argument("--seconds", type=float, default=WAIT_SECONDS, help="that a peer has for a training, or for several")
    parser.add_argument("--real-time", action="store_true", help="schedule all processes, the peers' too, as SCHED_RR does")
    parser.add_argument("--out", type=Path, help="the table; results.csv here, if data and rounds are the usual ones")
    arguments = parser.parse_args()
    if arguments.out is None:
        arguments.out = path_of(parser, arguments, ("scale", "seed", "data", "rounds"))
    arguments.rates = arguments.rate.split(",")
    peers.need("xgboost", "lightgbm")
    print(f"{machine()}, {versions()}; {arguments.rounds} rounds, {arguments.repeats} repeats\n\n{TABLE_HEADER}", flush=True)
    try:
        run(arguments)
    except LabError as error:
        sys.exit(f"wire.py: {error}")
    except KeyboardInterrupt as interrupt:  # the lab is gone by now
        sys.exit(exit_code(interrupt))


def run(arguments: argparse.Namespace) -> None:
    """Shows and keeps all figures."""
    if arguments.real_time:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))  # as root may; whom it starts inherits it
    with signals_as_interrupt():
        told = {name: getattr(arguments, name) for name in ("data", "again", "seconds", "slow_rounds")}
        for figure in measure(arguments, **told):
            show(figure)
            keep([figure], arguments.out)


if __name__ == "__main__":
    main()

"""Knows seconds a tree, seconds of binning and peak memory beside XGBoost's; does not know how anyone is run."""

import statistics
from collections.abc import Iterator
from itertools import pairwise

import datasets
import peers
from datasets import GIVEN, KEPT, USED
from results import Figure, compare

MEASURES = ("training", "scaling", "binning", "memory")
TRAINING = {  # times psboost's
    GIVEN: {"url": 20, "avazu": 12, "rcv1": 5, "bosch": 1.4, "dense": 1},
    USED: {"url": 12, "avazu": 5, "rcv1": 5, "bosch": 1.4},
    KEPT: {"url": 3, "avazu": 2, "rcv1": 5, "bosch": 1.4},
}
SCALING = 1.7  # of two threads
READS = "random reads of memory"
BINNING = 1
MEMORY = {"url": 2, "avazu": 2, "rcv1": 2, "bosch": 1, "dense": 1}


def measure(arguments) -> Iterator[Figure]:
    for shape in arguments.shapes:
        ways = datasets.prepare(shape, arguments)
        rounds = arguments.rounds
        jobs = {("psboost", n): peers.training("psboost", ways[GIVEN], n, rounds) for n in (1, 2)}
        if "scaling" in arguments.only:
            jobs |= {(READS, n): {"task": "read memory", "threads": n} for n in (1, 2)}
        beside_peers = set(MEASURES) & set(arguments.only) - {"scaling"}
        if beside_peers:
            jobs |= {(way, n): peers.training("xgboost", ways[way], n, rounds) for way in ways for n in (1, 2)}
        results = peers.in_turns(jobs, arguments.repeats)
        if "scaling" in arguments.only:
            yield from _scaling(shape, results)
        if beside_peers:
            yield from (figure for figure in _figures(shape, ways, results) if figure.measure in beside_peers)


def _scaling(shape: str, results: dict) -> Iterator[Figure]:
    """What a second thread brings, and what it brings, between these trainings, to a loop that only waits for memory."""
    for who, value_of, unit, asked in (
        ("psboost", lambda result: a_tree(result, 0), "s a tree", SCALING),
        (READS, lambda result: result["seconds"][0], "s", None),
    ):
        one, two = (list(map(value_of, results[who, threads])) for threads in (1, 2))
        yield Figure(
            "scaling", shape, f"{who}{peers.ONE_THREAD}", 2, statistics.median(one), unit, **compare(two, one),
            asked=asked, repeats=len(one),
        )  # fmt: skip


def _figures(shape: str, ways: dict, results: dict) -> Iterator[Figure]:
    for threads in (1, 2):
        clock, unit = peers.clock_of(threads), peers.unit_of(threads)
        yield from _beside("training", shape, threads, ways, results, lambda r, c=clock: a_tree(r, c), f"{unit} a tree")
        yield from _beside("binning", shape, threads, ways, results, lambda r, c=clock: r["binned"][c], unit)
        yield from _beside("memory", shape, threads, ways, results, lambda r: r["peak"] / 1e6, "MB")


def _beside(name: str, shape: str, threads: int, ways, results, value_of, unit: str) -> Iterator[Figure]:
    """psboost's figure, then XGBoost's, each way."""
    ours = [value_of(result) for result in results["psboost", threads]]
    our_auc = statistics.median(result["auc"] for result in results["psboost", threads])
    with_auc = name == "training"
    yield Figure(
        name, shape, "psboost", threads, statistics.median(ours), unit, auc=our_auc if with_auc else None, repeats=len(ours)
    )
    for way in ways:
        theirs = [value_of(result) for result in results[way, threads]]
        auc = statistics.median(result["auc"] for result in results[way, threads])
        yield Figure(
            name, shape, f"{peers.XGBOOST}, {way}", threads, statistics.median(theirs), unit, **compare(ours, theirs),
            asked=_asked(name, shape, way), repeats=len(theirs),
            **({"auc": auc, "auc_gap": our_auc - auc} if with_auc else {}),
        )  # fmt: skip


def _asked(name: str, shape: str, way: str) -> float | None:
    if name == "training":
        return TRAINING[way].get(shape)
    if name == "memory":
        return MEMORY.get(shape) if way == GIVEN else None
    return BINNING


def a_tree(result: dict, clock: int) -> float:
    """Median over the trees after the first, which waits for memory that the others have."""
    return statistics.median(end[clock] - begin[clock] for begin, end in pairwise(result["trees"]))

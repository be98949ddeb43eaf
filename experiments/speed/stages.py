"""Knows where a tree's milliseconds go, by stage, beside what memory's bandwidth would allow; does not know any peer.

A tree cannot be grown without reading, for each histogram that is built, the cells and gradients of its rows. How long that
would take in order, as fast as memory gives, is the limit. What else a tree takes is adding where sums lie far apart, memory
that is read out of order, and all other stages.
"""

import statistics
from collections.abc import Iterator
from itertools import pairwise

import datasets
import peers
from datasets import GIVEN
from results import Figure

STAGES = "gradients", "build", "search", "choose", "route", "update"
BANDWIDTH = "memory"


def measure(arguments) -> Iterator[Figure]:
    for shape in arguments.shapes:
        folder = datasets.prepare(shape, arguments)[GIVEN]
        jobs = {n: peers.training("psboost", folder, n, arguments.rounds, test=None, counts_reads=True) for n in (1, 2)}
        jobs |= {(BANDWIDTH, n): {"task": "stream memory", "threads": n} for n in (1, 2)}
        results = peers.in_turns(jobs, arguments.repeats)
        for n in (1, 2):
            yield from _figures(shape, n, results[n], max(result["bytes_a_second"] for result in results[BANDWIDTH, n]))


def _figures(shape: str, threads: int, results: list[dict], bytes_a_second: float) -> Iterator[Figure]:
    seconds = [_of_trees(result) for result in results]
    lines = {"a tree": [of["tree"] for of in seconds]} | {stage: [of[stage] for of in seconds] for stage in STAGES}
    lines["messages, and waiting for threads"] = [of["rest"] for of in seconds]
    lines["reading once, at memory's bandwidth"] = [
        statistics.median(result["bytes_read"][1:]) / bytes_a_second for result in results
    ]
    for note, values in lines.items():
        ms = [1000 * value for value in values]
        yield Figure(
            "stages", shape, "psboost", threads, statistics.median(ms), "ms", least=min(ms), most=max(ms), note=note,
            repeats=len(ms),
        )  # fmt: skip


def _of_trees(result: dict) -> dict[str, float]:
    """Medians over the trees after the first: seconds of wall clock in all, by stage, and in no stage."""
    trees = [end[0] - begin[0] for begin, end in pairwise(result["trees"])]
    by_stage = {stage: [tree.get(stage, 0.0) for tree in result["stages"][1:]] for stage in STAGES}
    rest = [tree - sum(of_tree) for tree, *of_tree in zip(trees, *by_stage.values(), strict=True)]
    return {name: statistics.median(values) for name, values in ({"tree": trees, "rest": rest} | by_stage).items()}

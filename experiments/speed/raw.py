"""Knows seconds from a matrix in memory to 100 trees, everything included; does not know its parts."""

import statistics
from collections.abc import Iterator

import datasets
import peers
from datasets import GIVEN
from results import Figure, compare

ASKED = {"url": 2, "avazu": 2, "rcv1": 2, "bosch": 1.25}  # times psboost's


def measure(arguments) -> Iterator[Figure]:
    for shape in arguments.shapes:
        if shape not in ASKED:
            continue
        ways = datasets.prepare(shape, arguments)
        folder = list(ways.values())[-1]  # rare columns removed, where there are any; nobody pays for that
        for threads in (1, 2):
            how = threads, arguments.raw_rounds, arguments.timeout
            jobs = {
                "psboost": peers.training("psboost", ways[GIVEN], *how),
                peers.XGBOOST: peers.training("xgboost", folder, *how),
                peers.LIGHTGBM: peers.training("lightgbm", folder, *how, parameters=peers.LIGHTGBM_ON.get(shape, {})),
            }
            yield from _figures(shape, threads, peers.in_turns(jobs, arguments.repeats), arguments)


def _figures(shape: str, threads: int, results: dict, arguments) -> Iterator[Figure]:
    clock, unit = peers.clock_of(threads), f"{peers.unit_of(threads)} for {arguments.raw_rounds} trees"
    if any(map(peers.is_unfinished, results["psboost"])):
        raise TimeoutError(f"psboost took more than {arguments.timeout} s on {shape}")
    ours = [result["total"][clock] for result in results["psboost"]]
    auc = statistics.median(result["auc"] for result in results["psboost"])
    yield Figure("raw", shape, "psboost", threads, statistics.median(ours), unit, auc=auc, repeats=len(ours))
    for who, held in results.items():
        if who == "psboost":
            continue
        more, beside = {}, ours
        if peers.is_unfinished(held[-1]):
            theirs, of_unit = [held[-1]["unfinished"][clock]], f"{unit}: not finished"
            beside = [ours[len(held) - 1]]
        else:
            theirs, of_unit = [result["total"][clock] for result in held], unit
            their_auc = statistics.median(result["auc"] for result in held)
            more = {"auc": their_auc, "auc_gap": auc - their_auc}
        yield Figure(
            "raw", shape, who, threads, statistics.median(theirs), of_unit, **compare(beside, theirs), asked=ASKED[shape],
            repeats=len(theirs), **more,
        )  # fmt: skip

"""Knows how good models are beside XGBoost's, over several samples of the rows; does not know how anyone is run.

One training is no measure: XGBoost beside itself, on the same rows in another order, moves by more than is asked for.
"""

import statistics
from collections.abc import Iterator

import datasets
import peers
from datasets import GIVEN, USED
from results import Figure

MEASURES = ("quality",)
THREADS = 2
SHARE = 0.8  # of the rows, each sample's
ERRORS = 2  # standard errors each way: 95%, about


def measure(arguments) -> Iterator[Figure]:
    samples = range(max(2, arguments.samples))
    for shape in arguments.shapes:
        ways = datasets.prepare(shape, arguments)
        jobs = {
            (program, sample): peers.training(
                program, ways.get(way, ways[GIVEN]), THREADS, arguments.rounds, sample=sample, share=SHARE
            )
            for sample in samples
            for program, way in (("psboost", GIVEN), ("xgboost", USED))
        }
        results = peers.in_turns(jobs, 1)
        ours, theirs = ([results[program, sample][0]["auc"] for sample in samples] for program in ("psboost", "xgboost"))
        gaps = [our - their for our, their in zip(ours, theirs, strict=True)]
        yield _figure(shape, "psboost", ours)
        yield _figure(shape, peers.XGBOOST, theirs)
        gap, error = statistics.mean(gaps), statistics.stdev(gaps) / len(gaps) ** 0.5
        yield Figure(
            "quality", shape, f"psboost less {peers.XGBOOST}", THREADS, gap, "", least=gap - ERRORS * error,
            most=gap + ERRORS * error, auc_gap=gap, repeats=len(gaps),
        )  # fmt: skip


def _figure(shape: str, who: str, aucs: list[float]) -> Figure:
    return Figure(
        "quality", shape, who, THREADS, statistics.mean(aucs), "AUC", least=min(aucs), most=max(aucs), repeats=len(aucs)
    )

"""Knows how good models are, beside XGBoost's and with fewer bits, over several samples of rows; does not know how they run.

One training is no measure: XGBoost beside itself, on the same rows in another order, moves by more than is asked for.
"""

import statistics
from collections.abc import Iterator

import datasets
import peers
from datasets import GIVEN, USED
from results import Figure

THREADS = 2
SHARE = 0.8  # of the rows, each sample's
ERRORS = 2  # standard errors each way: 95%, about
PSBOOST, EIGHT_BITS = "psboost", "psboost, grad_bits=8"
RUNS = {  # who: the program, its matrix, and its parameters besides those that all have
    PSBOOST: ("psboost", GIVEN, {}),
    EIGHT_BITS: ("psboost", GIVEN, {"grad_bits": 8}),
    peers.XGBOOST: ("xgboost", USED, {}),
}
PAIRS = ((PSBOOST, peers.XGBOOST), (EIGHT_BITS, PSBOOST))


def measure(arguments) -> Iterator[Figure]:
    samples = range(max(2, arguments.samples))
    for shape in arguments.shapes:
        ways = datasets.prepare(shape, arguments)
        jobs = {
            (who, sample): peers.training(
                program, ways.get(way, ways[GIVEN]), THREADS, arguments.rounds, sample=sample, share=SHARE,
                parameters=parameters,
            )
            for sample in samples
            for who, (program, way, parameters) in RUNS.items()
        }  # fmt: skip
        results = peers.in_turns(jobs, 1)
        aucs = {who: [results[who, sample][0]["auc"] for sample in samples] for who in RUNS}
        for who, of_who in aucs.items():
            yield _figure(shape, who, of_who)
        for who, other in PAIRS:
            yield _gap(shape, who, other, [a - b for a, b in zip(aucs[who], aucs[other], strict=True)])


def _figure(shape: str, who: str, aucs: list[float]) -> Figure:
    return Figure(
        "quality", shape, who, THREADS, statistics.mean(aucs), "AUC", least=min(aucs), most=max(aucs), repeats=len(aucs)
    )


def _gap(shape: str, who: str, other: str, gaps: list[float]) -> Figure:
    gap, error = statistics.mean(gaps), statistics.stdev(gaps) / len(gaps) ** 0.5
    return Figure(
        "quality", shape, f"{who} less {other}", THREADS, gap, "", least=gap - ERRORS * error, most=gap + ERRORS * error,
        auc_gap=gap, repeats=len(gaps),
    )  # fmt: skip

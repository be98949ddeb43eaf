"""Knows the time to predict a row with the same forest, one thread, beside XGBoost's; does not know how trees are walked."""

import statistics
from collections.abc import Iterator

import datasets
import numpy as np
import peers
from datasets import GIVEN, USED
from results import Figure, compare

ASKED = {"url": 50, "avazu": 50, "rcv1": 3, "bosch": 3, "dense": 1}  # times psboost's
TREES, DEPTHS = (100, 1000), (6, 8)
DENSE_ROWS = 200_000


def measure(arguments) -> Iterator[Figure]:
    for shape in arguments.shapes:
        ways = datasets.prepare(shape, arguments)
        narrow = ways.get(USED, ways[GIVEN])
        for depth in DEPTHS:
            models = _forests(ways[GIVEN], narrow, depth)
            for n_trees in TREES:
                yield from _figures(shape, depth, n_trees, models[n_trees], ways[GIVEN], narrow, arguments)


def _forests(given, narrow, depth: int) -> dict:
    """{number of trees: {"all", "kept": path}} of forests grown on a tenth of the rows; made once."""
    folder = given.with_name(f"forests-{depth}")
    models = {n: {columns: folder / f"{n}-{columns}.json" for columns in ("all", "kept")} for n in TREES}
    if not (folder / "done").exists():
        folder.mkdir(exist_ok=True)
        n_rows = len(np.load(given / "train" / "y.npy", mmap_mode="r"))
        job = {"task": "grow", "train": given / "train", "columns": narrow / "columns.npy", "rows": max(n_rows // 10, 1)}
        peers.ask(job | {"depth": depth, "trees": models})
        (folder / "done").touch()
    return models


def _figures(shape: str, depth: int, n_trees: int, model: dict, given, narrow, arguments) -> Iterator[Figure]:
    part, n_rows = ("train", DENSE_ROWS) if shape == "dense" else ("test", None)
    note = f"{n_trees} trees of depth {depth}"
    jobs = {}
    for who, program, method in (
        ("psboost", "psboost", None),
        ("psboost, plain walk", "psboost", "walk"),
        (peers.BY_MATRIX, "xgboost", "matrix"),
        (peers.IN_PLACE, "xgboost", "in place"),
    ):
        ours = program == "psboost"
        jobs[who] = {
            "task": "predict", "program": program, "method": method, "model": model["all" if ours else "kept"],
            "rows": (given if ours else narrow) / part, "n_rows": n_rows, "out": given.with_name(f"margins-{len(jobs)}.npy"),
        }  # fmt: skip
    results = peers.in_turns(jobs, arguments.repeats)
    margins = {who: np.load(job["out"]) for who, job in jobs.items()}
    for who, theirs in margins.items():
        if not np.allclose(theirs, margins["psboost"], rtol=1e-6, atol=1e-6):
            raise AssertionError(f"{shape}, {note}: {who} and psboost do not predict the same")
    values = {
        who: [1e6 * statistics.median(result["seconds"]) / result["rows"] for result in held]
        for who, held in results.items()
    }
    quicker = min((who for who in values if who.startswith(peers.XGBOOST)), key=lambda who: statistics.median(values[who]))
    for who, of_who in values.items():
        more = {} if who == "psboost" else compare(values["psboost"], of_who)
        asked = ASKED[shape] if who == quicker else None
        value = statistics.median(of_who)
        yield Figure("prediction", shape, who, 1, value, "CPU us a row", **more, asked=asked, note=note, repeats=len(of_who))

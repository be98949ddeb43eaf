"""Knows how psboost's seconds, memory and bytes grow with width, rows and row shards; does not know any peer."""

from collections.abc import Iterator

import datasets
import numpy as np
import peers
from datasets import GIVEN
from results import Figure, compare
from scipy import sparse
from training import a_tree

WIDTHS, WIDTH_AT_MOST = (10, 1000), 1.1
ROWS_AT_MOST = 2.1
SHARDS_AT_MOST = {"rcv1": 1.6}
_COSTS = {
    "CPU s a tree": lambda result: a_tree(result, 1),
    "CPU s in all": lambda result: result["total"][1],
    "peak memory": lambda result: result["peak"],
}


def measure(arguments) -> Iterator[Figure]:
    for shape in arguments.shapes:
        if shape == "dense":
            continue
        folder = datasets.prepare(shape, arguments)[GIVEN]
        yield from _of_width(shape, folder, arguments)
        yield from _of_rows(shape, folder, arguments)
        yield from _of_row_shards(shape, folder, arguments)


def _spread(X, times: int) -> sparse.csr_matrix:
    """The same cells in `times` as many columns, with 64-bit column numbers."""
    wide = sparse.csr_matrix((X.shape[0], X.shape[1] * times), dtype=X.dtype)
    wide.data, wide.indices, wide.indptr = X.data, X.indices.astype(np.int64) * times, X.indptr.astype(np.int64)
    return wide


def _in_turns(folders: dict, arguments) -> dict:
    jobs = {key: _job(folder, arguments.rounds) for key, folder in folders.items()}
    return peers.in_turns(jobs, arguments.repeats)


def _job(folder, rounds: int, **more) -> dict:
    return peers.training("psboost", folder, 1, rounds, test=None, **more)


def _of_width(shape: str, folder, arguments) -> Iterator[Figure]:
    folders = {n: datasets.variant(folder, f"width-{n}", lambda X, y, n=n: (_spread(X, n), y)) for n in (1, *WIDTHS)}
    results = _in_turns(folders, arguments)
    for n in WIDTHS:
        for what, value_of in _COSTS.items():
            note = f"{what}, {n} times the declared features"
            yield _times(shape, results[1], results[n], value_of, WIDTH_AT_MOST, note)


def _of_rows(shape: str, folder, arguments) -> Iterator[Figure]:
    half = datasets.variant(folder, "half", lambda X, y: (X[: len(y) // 2], y[: len(y) // 2]))
    results = _in_turns({1: half, 2: folder}, arguments)
    yield _times(shape, results[1], results[2], lambda r: a_tree(r, 1), ROWS_AT_MOST, "CPU s a tree, twice the rows")


def _of_row_shards(shape: str, folder, arguments) -> Iterator[Figure]:
    rounds = min(arguments.rounds, 5)
    two, four = ([peers.ask(_job(folder, rounds, grid=(n, 1)))] for n in (2, 4))
    note = "bytes of histograms, grid 4x1 over 2x1"
    yield _times(shape, two, four, lambda r: r["bytes"]["PushHistograms"]["payload"], SHARDS_AT_MOST.get(shape), note)


def _times(shape: str, before: list, after: list, value_of, at_most: float | None, note: str) -> Figure:
    """A value of `after` over that of `before`; it is ours, so it stands as the figure's value."""
    times = compare([value_of(result) for result in before], [value_of(result) for result in after])
    return Figure(
        "growth", shape, "psboost", 1, times["ratio"], "times", least=times["least"],
        most=times["most"], at_most=at_most, note=note, repeats=len(after),
    )  # fmt: skip

"""Knows what CPU time psboost and XGBoost take from stored values to bins; does not know training.

    python experiments/binning/run.py                  # a url-shaped matrix, made here
    python experiments/binning/run.py --npz FILE       # a CSR matrix: indptr, indices, data, shape

Both work on the same renumbered matrix, in the same process, in turns, with one thread. CPU seconds,
as the machine may be shared; see README.md.
"""

import argparse
import statistics
import time

import numpy as np
from scipy import sparse

from psboost.data.block import build_block
from psboost.data.columns import to_columns
from psboost.data.sketches import Sketches


def url_shaped(n_rows: int, n_features: int, seed: int) -> sparse.csr_matrix:
    """About 57 Zipf-distributed binary words a row, 64 real columns: the shape of the url data."""
    rng = np.random.default_rng(seed)
    n_words, exponent, shift = 57, 1.2, 30.0
    low, high = shift ** (1 - exponent), (n_features - 64 + shift) ** (1 - exponent)
    drawn = (low + rng.random((n_rows, n_words)) * (high - low)) ** (1 / (1 - exponent)) - shift
    words = np.sort(64 + np.minimum(drawn.astype(np.int64), n_features - 65), axis=1)
    first = np.ones(words.shape, bool)
    first[:, 1:] = words[:, 1:] != words[:, :-1]
    real = np.round(rng.gamma(2.0, size=(n_rows, 64)).astype(np.float32), 4) + np.float32(1e-4)
    real[:, 32:] = np.round(real[:, 32:] * 8) / 8 + 1  # half of them of few distinct values
    indices = np.concatenate([np.broadcast_to(np.arange(64), (n_rows, 64)), words], axis=1)
    data = np.concatenate([real, np.ones(words.shape, np.float32)], axis=1)
    kept = np.concatenate([np.ones((n_rows, 64), bool), first], axis=1)
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    shape = (n_rows, n_features)
    return sparse.csr_matrix((data[kept], indices[kept].astype(np.int32), indptr), shape=shape)


def read(path: str) -> sparse.csr_matrix:
    with np.load(path, allow_pickle=False) as held:
        return sparse.csr_matrix((held["data"], held["indices"], held["indptr"]), shape=tuple(held["shape"]))


def renumber(matrix: sparse.csr_matrix, min_rows: int):
    """indptr, internal numbers by falling popularity, values: as psboost's reader hands them over."""
    counts = np.bincount(matrix.indices, minlength=matrix.shape[1])
    kept = np.flatnonzero(counts >= min_rows)
    kept = kept[np.argsort(-counts[kept], kind="stable")]
    number = np.full(matrix.shape[1], -1, np.int32)
    number[kept] = np.arange(len(kept))
    features = number[matrix.indices]
    stored = features >= 0
    up_to = np.concatenate([[0], np.cumsum(stored)])
    return up_to[matrix.indptr], features[stored], matrix.data[stored], len(kept)


def time_psboost(rows, max_bin: int, kind: str) -> dict[str, float]:
    """CPU seconds of each step on (indptr, features, values, n_features)."""
    n_rows, n_features = len(rows[0]) - 1, rows[3]
    marks = [time.process_time()]
    columns = to_columns([rows[:3]], n_features)
    marks.append(time.process_time())
    sketches = Sketches.summarise(columns, 0, n_features, n_rows, max_bin=max_bin, kind=kind)
    marks.append(time.process_time())
    merged = Sketches.merge([Sketches.from_arrays(sketches.to_arrays(), n_features)])
    cut_points = merged.cut_points(max_bin=max_bin, zero_as_missing=True)
    marks.append(time.process_time())
    build_block(columns, cut_points, True)
    marks.append(time.process_time())
    steps = dict(zip(("columns", "summarise", "cut points", "block"), np.diff(marks), strict=True))
    return steps | {"psboost": marks[-1] - marks[0]}


def time_xgboost(matrix: sparse.csr_matrix, max_bin: int) -> float:
    import xgboost

    begin = time.process_time()
    xgboost.QuantileDMatrix(matrix, max_bin=max_bin, nthread=1)
    return time.process_time() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--npz", help="a CSR matrix instead of the url-shaped one")
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=3_200_000)
    parser.add_argument("--min-rows", type=int, default=4, help="leave out features stored in fewer rows")
    parser.add_argument("--max-bin", type=int, default=256)
    parser.add_argument("--kind", choices=("weighted", "exact", "kll"), default="weighted")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    matrix = read(args.npz) if args.npz else url_shaped(args.rows, args.features, args.seed)
    rows = renumber(matrix, args.min_rows)
    kept = sparse.csr_matrix((rows[2], rows[1], rows[0]), shape=(matrix.shape[0], rows[3]))
    kept.sort_indices()
    print(f"{matrix.shape[0]} rows x {matrix.shape[1]} features, {matrix.nnz} values; "
          f"{rows[3]} features of {args.min_rows} rows or more hold {len(rows[1])} values")  # fmt: skip
    time_psboost(rows, args.max_bin, args.kind)  # compiled and loaded from here on
    seconds: dict[str, list[float]] = {}
    for _ in range(args.repeats):
        times = time_psboost(rows, args.max_bin, args.kind)
        times["xgboost"] = time_xgboost(kept, args.max_bin)
        times["ratio"] = times["xgboost"] / times["psboost"]
        for name, value in times.items():
            seconds.setdefault(name, []).append(value)
    print(f"{'median':>32} {'least':>8} {'most':>8}")
    for name, held in seconds.items():
        print(f"{name:<23} {statistics.median(held):8.3f} {min(held):8.3f} {max(held):8.3f}")


if __name__ == "__main__":
    main()

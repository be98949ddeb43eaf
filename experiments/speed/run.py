"""Knows how long psboost and XGBoost take to grow a tree on data of four shapes; does not know how they do it.

    python experiments/speed/run.py                          # all four shapes, writes results.csv
    python experiments/speed/run.py --shapes rcv1,bosch --repeats 5 --scale 0.5

Both train on the same matrix, in the same process, in turns, with one thread. See README.md.
"""

import argparse
import csv
import platform
import statistics
import time
from pathlib import Path

import numpy as np
import xgboost
from scipy import sparse

import psboost

PARAMETERS = {"objective": "binary:logistic", "max_depth": 6, "learning_rate": 0.3, "max_bin": 256}
RARE = 4  # rows: of fewer, none can make up a child's min_child_weight of 1

# --- data


def zipf(rng: np.random.Generator, size: tuple[int, int], n: int, exponent: float, shift: float) -> np.ndarray:
    """Numbers 0 .. n-1, number k as often as (k + shift)^-exponent."""
    low, high = shift ** (1 - exponent), (n + shift) ** (1 - exponent)
    drawn = (low + rng.random(size) * (high - low)) ** (1 / (1 - exponent)) - shift
    return np.minimum(drawn.astype(np.int64), n - 1)


def to_csr(features: np.ndarray, values: np.ndarray | None, n_features: int) -> sparse.csr_matrix:
    """From a table of feature numbers, row by row; n_features: nothing there. What comes twice in a row is taken once."""
    order = np.argsort(features, axis=1, kind="stable")
    features = np.take_along_axis(features, order, axis=1)
    kept = features < n_features
    kept[:, 1:] &= features[:, 1:] != features[:, :-1]
    data = np.ones(features.shape, np.float32) if values is None else np.take_along_axis(values, order, axis=1)
    indptr = np.concatenate([[0], np.cumsum(kept.sum(axis=1))])
    shape = (len(features), n_features)
    return sparse.csr_matrix((data[kept], features[kept].astype(np.int32), indptr), shape=shape)


def url(rng: np.random.Generator, n_rows: int) -> sparse.csr_matrix:
    """About 60 of 3.2M words and up to 64 real values a row."""
    n_features, n_reals = 3_231_961, 64
    words = n_reals + zipf(rng, (n_rows, 90), n_features - n_reals, 1.12, 12.0)
    reals = np.broadcast_to(np.arange(n_reals), (n_rows, n_reals))
    reals = np.where(rng.random(reals.shape) < np.linspace(1.0, 0.25, n_reals), reals, n_features)
    values = np.ceil(rng.random(reals.shape) ** np.resize([1, 3, 1], n_reals) * 1000).astype(np.float32) / 1000
    values = np.concatenate([values, np.ones(words.shape, np.float32)], axis=1)
    return to_csr(np.concatenate([reals, words], axis=1), values, n_features)


def avazu(rng: np.random.Generator, n_rows: int) -> sparse.csr_matrix:
    """15 categories a row, one-hot among 1M."""
    widths = [4, 5, 7, 7, 26, 36, 60, 172, 435, 559, 2626, 4737, 8200, 180_000]
    widths.append(1_000_000 - sum(widths))
    exponents, shifts = [1.3] * 13 + [1.05] * 2, [2.0] * 13 + [40.0] * 2
    fields = [
        begin + zipf(rng, (n_rows, 1), width, *shape)
        for begin, width, *shape in zip(np.cumsum([0, *widths]), widths, exponents, shifts, strict=False)
    ]
    return to_csr(np.concatenate(fields, axis=1), None, 1_000_000)


def rcv1(rng: np.random.Generator, n_rows: int) -> sparse.csr_matrix:
    """About 70 of 47,236 words a row, with weights."""
    n_features = 47_236
    words = zipf(rng, (n_rows, 300), n_features, 1.06, 25.0)
    n_words = np.clip(rng.lognormal(4.2, 0.55, (n_rows, 1)), 8, 300)
    words[np.arange(300) >= n_words] = n_features
    weights = (1 + np.log(rng.geometric(0.6, words.shape))) * (0.5 + np.log((n_features + 1000) / (words + 30)))
    return to_csr(words, (weights / np.sqrt(n_words * 40)).astype(np.float32), n_features)


def bosch(rng: np.random.Generator, n_rows: int) -> sparse.csr_matrix:
    """968 measurements at 52 stations; a part goes to a fifth of these, by its family."""
    n_features, n_stations, n_families = 968, 52, 8
    station = np.sort(rng.integers(0, n_stations, n_features))
    visits = np.where(rng.random((n_families, n_stations)) < 0.2, 0.95, 0.01)
    visited = rng.random((n_rows, n_stations)) < visits[rng.integers(0, n_families, n_rows)]
    rows, features = np.nonzero(visited[:, station])
    n_distinct = rng.choice([7, 30, 200, 1000], n_features, p=[0.15, 0.25, 0.3, 0.3])[features]
    values = np.round(rng.normal(0, 0.2, len(rows)) * n_distinct) / n_distinct + 2
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n_rows))])
    shape = (n_rows, n_features)
    return sparse.csr_matrix((values.astype(np.float32), features.astype(np.int32), indptr), shape=shape)


SHAPES = {"url": (url, 200_000), "avazu": (avazu, 1_000_000), "rcv1": (rcv1, 100_000), "bosch": (bosch, 100_000)}


def labels(X: sparse.csr_matrix, rng: np.random.Generator) -> np.ndarray:
    """0 or 1, by a noisy linear score of the hundred most frequent features and of a few of their products."""
    often = np.argsort(-np.bincount(X.indices, minlength=X.shape[1]), kind="stable")[:100]
    part = X[:, often].toarray()
    part = (part - part.mean(axis=0)) / (part.std(axis=0) + 1e-6)
    score = part @ rng.normal(0, 0.2, len(often))
    score += sum(part[:, i] * part[:, i + 1] * rng.normal(0, 0.3) for i in range(0, 20, 2))
    return (rng.random(len(score)) < 1 / (1 + np.exp(1 - score))).astype(np.float64)


# --- training


def seconds_per_tree(marks: list[float]) -> float:
    """Median, without the first tree, which waits for memory that the others have."""
    return statistics.median(np.diff(marks))


def auc(y: np.ndarray, scores: np.ndarray) -> float:
    """The chance that a positive row scores higher than a negative one (ties count half)."""
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    n_positive = y.sum()
    return (ranks[y == 1].sum() - n_positive * (n_positive + 1) / 2) / (n_positive * (len(y) - n_positive))


def time_psboost(X: sparse.csr_matrix, y: np.ndarray, n_rounds: int) -> tuple[float, float]:
    """CPU seconds a tree, AUC on the first 20,000 rows."""
    marks: list[float] = []

    def mark(_) -> None:
        marks.append(time.process_time())

    forest = psboost.train(PARAMETERS, X, y, num_boost_round=n_rounds, grid=(1, 1), callbacks=[mark])
    return seconds_per_tree(marks), auc(y[:20_000], forest.predict(X[:20_000]))


class Marks(xgboost.callback.TrainingCallback):
    def __init__(self):
        self.marks: list[float] = []

    def after_iteration(self, model, epoch, evals_log) -> bool:
        self.marks.append(time.process_time())
        return False


def time_xgboost(X: sparse.csr_matrix, y: np.ndarray, n_rounds: int) -> tuple[float, float]:
    """The same of XGBoost's hist."""
    parameters, marks = PARAMETERS | {"tree_method": "hist", "nthread": 1}, Marks()
    data = xgboost.QuantileDMatrix(X, y, max_bin=PARAMETERS["max_bin"], nthread=1)
    booster = xgboost.train(parameters, data, n_rounds, callbacks=[marks])
    return seconds_per_tree(marks.marks), auc(y[:20_000], booster.predict(xgboost.DMatrix(X[:20_000], nthread=1)))


def ways_of(X: sparse.csr_matrix) -> dict:
    """{who: (function, matrix)}; XGBoost thrice, as it pays for columns: all, the used ones, those used often enough."""
    counts = np.bincount(X.indices, minlength=X.shape[1])
    ways = {"psboost": (time_psboost, X), "XGBoost, as given": (time_xgboost, X)}
    if (counts == 0).any():
        ways["XGBoost, unused columns removed"] = (time_xgboost, X[:, counts > 0])
    if (counts < RARE).any():
        ways[f"XGBoost, columns of < {RARE} rows removed"] = (time_xgboost, X[:, counts >= RARE])
    return ways


def measure(shape: str, arguments) -> list[dict]:
    make, n_rows = SHAPES[shape]
    rng = np.random.default_rng([arguments.seed, sorted(SHAPES).index(shape)])
    X = make(rng, max(1, round(n_rows * arguments.scale)))
    y = labels(X, rng)
    ways = ways_of(X)
    seconds: dict[str, list[float]] = {who: [] for who in ways}
    quality = {}
    for _ in range(arguments.repeats):
        for who, (train, matrix) in ways.items():
            of_tree, quality[who] = train(matrix, y, arguments.rounds)
            seconds[who].append(of_tree)
    rows = []
    for who, (_, matrix) in ways.items():
        ratios = [theirs / ours for theirs, ours in zip(seconds[who], seconds["psboost"], strict=True)]
        rows.append(
            {
                "shape": shape, "who": who, "rows": X.shape[0], "columns": matrix.shape[1], "stored": matrix.nnz,
                "seconds_per_tree": f"{statistics.median(seconds[who]):.4f}",
                "ratio": f"{statistics.median(ratios):.2f}",
                "least_ratio": f"{min(ratios):.2f}", "most_ratio": f"{max(ratios):.2f}",
                "train_auc": f"{quality[who]:.4f}",
            }
        )  # fmt: skip
    return rows


def show(row: dict) -> None:
    ratio = f"{row['ratio']} ({row['least_ratio']}-{row['most_ratio']})"
    columns = (row["shape"], row["who"], row["columns"], row["seconds_per_tree"], ratio, row["train_auc"])
    print("| " + " | ".join(map(str, columns)) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--scale", type=float, default=1.0, help="of the number of rows")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("results.csv"))
    arguments = parser.parse_args()
    versions = f"psboost {psboost.__version__}, XGBoost {xgboost.__version__}, {platform.machine()}, numpy {np.__version__}"
    print(f"{versions}; {arguments.rounds} rounds, {arguments.repeats} repeats\n")
    print("| shape | who | columns | CPU s a tree | XGBoost / psboost | AUC, training rows |\n|---|---|---|---|---|---|")
    rows = []
    for shape in arguments.shapes.split(","):
        measured = measure(shape, arguments)
        for row in measured:
            show(row)
        rows += [row | {"rounds": arguments.rounds, "repeats": arguments.repeats} for row in measured]
    with open(arguments.out, "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()

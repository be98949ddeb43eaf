"""Knows how to make data of five shapes, from a seed; does not know who trains on them."""

import argparse

import numpy as np
from scipy import sparse

SEED = 7  # of usual data


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


def dense(rng: np.random.Generator, n_rows: int) -> np.ndarray:
    """50 real features, no cell missing: float32 (n_rows, 50)."""
    return rng.normal(size=(n_rows, 50)).astype(np.float32)


SHAPES = {
    "url": (url, 200_000),
    "avazu": (avazu, 1_000_000),
    "rcv1": (rcv1, 100_000),
    "bosch": (bosch, 100_000),
    "dense": (dense, 1_000_000),
}


def named(text: str) -> list[str]:
    """The shapes that a flag names, with commas; for argparse."""
    names = text.split(",")
    if unknown := set(names) - set(SHAPES):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(SHAPES)}")
    return names


def labels(X, rng: np.random.Generator) -> np.ndarray:
    """0 or 1, by a noisy linear score of the hundred most frequent features and of a few of their products."""
    if sparse.issparse(X):
        often = np.argsort(-np.bincount(X.indices, minlength=X.shape[1]), kind="stable")[:100]
        part = X[:, often].toarray()
    else:
        often = np.arange(X.shape[1])
        part = X.astype(np.float64)
    part = (part - part.mean(axis=0)) / (part.std(axis=0) + 1e-6)
    score = part @ rng.normal(0, 0.2, len(often))
    score += sum(part[:, i] * part[:, i + 1] * rng.normal(0, 0.3) for i in range(0, 20, 2))
    return (rng.random(len(score)) < 1 / (1 + np.exp(1 - score))).astype(np.float64)


def make(shape: str, scale: float = 1.0, seed: int = SEED):
    """X (CSR or dense, float32) and y (0 or 1) of a shape; `scale`: of its number of rows."""
    function, n_rows = SHAPES[shape]
    rng = np.random.default_rng([seed, list(SHAPES).index(shape)])
    X = function(rng, max(1, round(n_rows * scale)))
    return X, labels(X, rng)

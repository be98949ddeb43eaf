"""How long the kernels take on small data from a seed; not part of a plain pytest run, and judges nothing.

python -m pytest tests/kernels/bench_kernels.py     # pytest-benchmark is in the extra "bench"
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from psboost.boosting.scorer import Scorer
from psboost.data.aligned import aligned_empty
from psboost.data.source import open_source
from psboost.kernels import binning, columns, gains, histograms, members, node_histograms, splits
from psboost.kernels.left_sides import room_for
from psboost.kernels.row_bins import N_NONE
from psboost.wire import packing
from tests.naive import gradients as naive_gradients
from tests.naive import scoring as naive_scoring

N_ROWS, N_FEATURES, N_BINS, STORED = 20_000, 200, 32, 20


@pytest.fixture(scope="module")
def data():
    """A block of rows that store STORED of the features each, by rows, by columns and by bins; half are in a node."""
    rng = np.random.default_rng(1)
    features = np.sort(np.argsort(rng.random((N_ROWS, N_FEATURES)), axis=1)[:, :STORED], axis=1).astype(np.int32).ravel()
    values = rng.normal(size=len(features)).astype(np.float32)
    indptr = np.arange(0, len(features) + 1, STORED)
    offsets = np.zeros(N_FEATURES + 1, np.int64)
    np.cumsum(np.bincount(features, minlength=N_FEATURES), out=offsets[1:])
    rows_of, values_of = np.empty(len(features), np.int32), np.empty(len(features), np.float32)
    columns.scatter_columns(indptr, features, values, True, True, 0, offsets[:-1].copy(), rows_of, values_of)
    cuts = np.tile(np.append(np.linspace(-2, 2, N_BINS - 1), np.inf), N_FEATURES).astype(np.float32)
    cut_offsets = np.arange(0, len(cuts) + 1, N_BINS)
    grads, hesses = rng.integers(-1000, 1000, N_ROWS), rng.integers(1, 1000, N_ROWS)
    sums = zip(grads.tolist(), hesses.tolist(), strict=True)
    block = SimpleNamespace(
        indptr=indptr, features=features, values=values, offsets=offsets, rows_of=rows_of, values_of=values_of,
        cuts=cuts, cut_offsets=cut_offsets, bin_offsets=cut_offsets.astype(np.int32), n_bins=len(cuts),
        packed=np.array([naive_gradients.pack(*pair) for pair in sums], np.int64),
        total=np.array([grads.sum(), hesses.sum(), 1, abs(grads).sum()]),
        rows=np.flatnonzero(rng.random(N_ROWS) < 0.5).astype(np.int32),
        posting_offsets=np.zeros(len(cuts) + 1, np.int64), posting_rows=np.empty(len(features), np.int32),
    )  # fmt: skip
    _bin(block)
    by_row = np.argsort(block.posting_rows, kind="stable")
    block.bins = np.repeat(np.arange(block.n_bins, dtype=np.int32), np.diff(block.posting_offsets))[by_row]
    return block


def _bin(data):
    binning.bin_columns(
        data.offsets, data.rows_of, data.values_of, data.cut_offsets, data.cuts, data.bin_offsets, False,
        data.posting_offsets, data.posting_rows,
    )  # fmt: skip


def test_bin_columns(benchmark, data):
    benchmark(_bin, data)


@pytest.mark.parametrize("pairs", [False, True], ids=["packed", "pairs"])
def test_build_by_rows(benchmark, data, pairs):
    kernel = histograms.build_pairs if pairs else histograms.build
    acc = np.zeros((1 + pairs) * (data.n_bins + N_NONE), np.int64)
    benchmark(kernel, data.indptr, data.bins, data.rows, data.packed[data.rows], acc)


@pytest.mark.parametrize("pairs", [False, True], ids=["packed", "pairs"])
def test_build_padded(benchmark, data, pairs):
    """The first 16 bins of each row."""
    bins = np.ascontiguousarray(data.bins.reshape(N_ROWS, STORED)[:, :16]).reshape(-1)
    acc = np.zeros((1 + pairs) * (data.n_bins + N_NONE), np.int64)
    rows = np.arange(0, 16 * N_ROWS + 1, 16), bins, 16
    node = data.rows, np.array([0, len(data.rows)]), data.packed[data.rows]
    benchmark(histograms.build_by_rows, *rows, data.posting_offsets, *node, pairs, 4096, acc)


def test_build_far_apart(benchmark):
    """A tenth of a million padded rows, each in a line of memory of its own."""
    rng, n_rows, stride, n_bins = np.random.default_rng(1), 1_000_000, 16, 60_000
    bins = aligned_empty(n_rows * stride, np.int32)
    bins[:] = n_bins ** rng.random(len(bins))
    rows = np.flatnonzero(rng.random(n_rows) < 0.1).astype(np.int32)
    acc, packed = np.zeros(n_bins + N_NONE, np.int64), rng.integers(-(2**31), 2**31, len(rows)).astype(np.int32)
    benchmark(histograms.build_padded, bins, stride, stride, rows, packed, acc)


def test_build_scattered(benchmark):
    """A fifth of a hundred thousand rows of 70 values, in three million bins."""
    rng, n_rows, n_stored, n_bins = np.random.default_rng(1), 100_000, 70, 3_000_000
    bins = np.sort(n_bins * rng.random((n_rows, n_stored)) ** 2, axis=1).astype(np.int32).ravel()
    rows = np.flatnonzero(rng.random(n_rows) < 0.2).astype(np.int32)
    acc, packed = np.zeros(n_bins + N_NONE, np.int64), rng.integers(-(2**31), 2**31, len(rows)).astype(np.int32)
    benchmark(histograms.build_scattered, np.arange(0, len(bins) + 1, n_stored), bins, rows, packed, acc)


@pytest.mark.parametrize("pairs", [False, True], ids=["packed", "pairs"])
def test_build_by_bins(benchmark, data, pairs):
    acc = np.zeros((1 + pairs) * data.n_bins, np.int64)
    benchmark(histograms.build_by_bins, data.posting_offsets, data.posting_rows, N_ROWS + 1, data.packed, pairs, acc)


def _node(data, rows=None):
    """(acc, the histogram) of some rows or of all; sums as pairs."""
    acc = np.zeros(2 * (data.n_bins + N_NONE), np.int64)
    rows = np.arange(N_ROWS, dtype=np.int32) if rows is None else rows
    histograms.build_pairs(data.indptr, data.bins, rows, data.packed[rows], acc)
    node = _room(data)
    assert node_histograms.take(data.bin_offsets, acc, True, 1, node) == N_FEATURES
    return acc, node


def _room(data):
    sizes = N_FEATURES, N_FEATURES + 1, data.n_bins
    return node_histograms.NodeHistogram(*(np.zeros(n, np.int32) for n in sizes), np.zeros(2 * data.n_bins, np.int64))


def test_share_out(benchmark, data):
    acc = _node(data, data.rows)[0]
    forms, counts = np.ones(3, bool), np.zeros(3, np.int64)
    benchmark.pedantic(  # the node becomes its own child, so that each round needs a new one
        node_histograms.share_out, setup=lambda: ((_node(data)[1], acc, forms, 1, False, _room(data), counts), {}), rounds=50
    )


def test_find_split(benchmark, data):
    node = _node(data)[1]
    missing = np.full(2 * N_FEATURES, -1, np.int32)
    rule = np.array([2.0**-15, 2.0**-15, 1.0, 0.0, 1e-6])
    lefts, scores, best = np.empty((2, room_for(N_BINS))), np.empty(N_FEATURES), np.zeros(splits.N_PROPOSED, np.int64)
    of_features = data.bin_offsets, missing, np.arange(N_FEATURES)
    assert benchmark(
        lambda: gains.find_split(
            node, True, *of_features, data.total, rule, lefts, scores, best, np.full(1, -np.inf)
        )
    )


@pytest.mark.parametrize("share", [1.0, 0.03])
def test_split_rows(benchmark, share):
    """A node of that share of the rows, half of which go left; the left child is built."""
    rng, n_words = np.random.default_rng(2), N_ROWS // 64
    bits = rng.integers(0, 2**63, n_words, np.int64).view(np.uint64)
    own = np.packbits(rng.random(64 * n_words) < share, bitorder="little").view(np.uint64)
    split = np.zeros((1, splits.N_SPLIT), np.int32)
    split[0, splits.BUILD_LEFT] = 1
    lists, spare, spans = np.empty(2 * N_ROWS, np.int32), np.empty(n_words + 1, np.int32), np.empty((1, 2), np.int64)

    def setup():
        held, room = np.zeros((3, members.N_HELD), np.int64), np.array([1, 0, 1, 0])
        words = np.stack([own, own])
        return (split, 1, 0, n_words, N_ROWS, bits, words, lists, spare, held, room, spans), {}

    benchmark.pedantic(members.split_rows, setup=setup, rounds=50)


@pytest.mark.parametrize("way", ["encode", "decode"])
def test_packing(benchmark, way):
    rng = np.random.default_rng(3)
    values = (rng.normal(size=N_ROWS) * rng.choice([3, 100, 1e6], N_ROWS)).astype(np.int64)
    packed = packing.pack_integers(values)
    if way == "encode":
        benchmark(packing.pack_integers, values)
    else:
        np.testing.assert_array_equal(benchmark(packing.unpack_integers, packed, len(values)), values)


def test_svmlight_parse(benchmark, data, tmp_path):
    lines = []
    for row in range(2000):
        cells = range(STORED * row, STORED * (row + 1))
        lines.append(" ".join(["1", *(f"{data.features[i] + 1}:{data.values[i]:.6g}" for i in cells)]))
    path = tmp_path / "rows.svm"
    path.write_text("\n".join(lines) + "\n")
    source = open_source(path)
    rows = benchmark(lambda: source.read(*source.spans(1)))
    assert rows.n_rows == 2000


@pytest.mark.parametrize("stored", ["sparse", "dense"])
@pytest.mark.parametrize("n_leaves", [64, 256])
@pytest.mark.parametrize("method", ["bits", "walk"])
def test_scoring(benchmark, method, n_leaves, stored):
    rng = np.random.default_rng(4)
    trees = [naive_scoring.random_tree(rng, n_leaves, np.arange(50), rng.normal(size=200)) for _ in range(100)]
    scorer = Scorer(trees, True)
    X = rng.normal(size=(2000, 50)).astype(np.float32)
    if stored == "dense":
        rows = SimpleNamespace(values=X)
    else:
        csr = sparse.csr_array(np.where(rng.random(X.shape) < 0.2, X, 0))
        rows = SimpleNamespace(indptr=csr.indptr.astype(np.int64), columns=csr.indices, values=csr.data)
    benchmark(partial(scorer.margins, rows, method))

"""Histograms as a whole: built, cut, merged, beside the slow twin."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting.builders import DenseBuilder, SparseBuilder
from psboost.boosting.fixed_point import packed_rows
from psboost.boosting.histogram import DTYPES, HistogramMerger, Histograms, Total
from psboost.boosting.living import LivingFeatures
from psboost.boosting.partition import NodeRows, join_sums
from psboost.data.block import tilings_of
from psboost.errors import ProtocolError
from psboost.kernels.node_builds import N_SUMS, list_gradients
from psboost.kernels.node_histograms import NodeHistogram
from psboost.kernels.open_nodes import UNKNOWN
from tests.naive import gradients as naive_gradients
from tests.naive import histograms as naive

quick = settings(max_examples=60, deadline=None)
BIN_OFFSETS = np.array([0, 4, 4, 5, 11, 20], np.int32)
ALL = np.arange(5, dtype=np.int32)
EDGES = [0, 5]


def make_block(seed, n_rows, grad_bits=16):
    """(rows as lists of bins, one bin of a feature at most; (grad, hess) of each row)"""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        stored = [f for f in (0, 2, 3, 4) if rng.random() < 0.6]
        rows.append([int(rng.integers(BIN_OFFSETS[f], BIN_OFFSETS[f + 1])) for f in stored])
    most = 2 ** min(grad_bits - 1, 30) - 1
    values = [(int(rng.integers(-most, most + 1)), int(rng.integers(1, most + 1))) for _ in rows]
    return rows, [(0, 0) if rng.random() < 0.1 else value for value in values]


def csr(rows):
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    return indptr, np.array([b for row in rows for b in row], np.int32)


def pack(values, grad_bits=32):
    packed = packed_rows(grad_bits, len(values))
    packed[:] = [naive_gradients.pack(*value, 4 * packed.itemsize) for value in values]
    return packed


def builder(rows, n_bins=20, bin_offsets=BIN_OFFSETS, stride=0):
    """stride: of padded rows; 0: rows are not padded."""
    indptr, bins = csr(rows)
    counts = np.bincount(bins, minlength=n_bins)
    row_of_value = np.repeat(np.arange(len(rows), dtype=np.int32), np.diff(indptr))
    posting_rows = row_of_value[np.argsort(bins, kind="stable")]
    offsets = np.cumsum([0, *counts])
    tilings = tilings_of(offsets, posting_rows, len(rows), True, [(2, 1), (3, 1)])
    if stride:
        indptr = np.arange(0, stride * len(rows) + 1, stride)
        bins = np.array([row + [n_bins + k for k in range(len(row), stride)] for row in rows], np.int32).reshape(-1)
    return SparseBuilder(indptr, bins, stride, offsets, posting_rows, tilings, bin_offsets)


def dense_builder(rows, dtype):
    """Of rows that hold one bin of a feature at most."""
    n_bins = np.diff(BIN_OFFSETS)
    cells = np.repeat(n_bins[None], len(rows), axis=0).astype(dtype)
    for row, held in enumerate(rows):
        for b in held:
            f = int(np.searchsorted(BIN_OFFSETS, b, side="right")) - 1
            cells[row, f] = b - BIN_OFFSETS[f]
    return DenseBuilder(cells.reshape(-1), int(n_bins.max()) + 1, BIN_OFFSETS)


def padded_builder(rows):
    return builder(rows, stride=4)


def wide_builder(rows):
    return dense_builder(rows, np.uint16)


def in_turn(living):
    """Positions of nodes, and their living features, as a builder takes them."""
    return 2 * np.arange(len(living)), LivingFeatures.of_parents([*living, ALL[:0]])


def node_rows(which, packed, n_chunks=1):
    """Their rows chunk by chunk, as RowPartition lists them."""
    rows, spans, of_chunks = [], np.empty((len(which), 2 * n_chunks), np.int64), []
    for c in range(n_chunks):
        for i, own in enumerate(which):
            spans[i, 2 * c] = len(rows)
            rows += np.array_split(own, n_chunks)[c].tolist()
            spans[i, 2 * c + 1] = len(rows)
    rows, listed = np.array(rows, np.int32), np.empty(len(rows), packed.dtype)
    for c in range(n_chunks):
        of_chunks.append(np.empty((len(which), N_SUMS), np.int64))
        list_gradients(rows, spans[:, 2 * c : 2 * c + 2].copy(), packed, listed, of_chunks[-1])
    return NodeRows(rows, spans, join_sums(of_chunks), listed)


def totals_of(which, values):
    """grads, hesses, absolute grads of the rows `which`."""
    return [*naive.sums(which, values), sum(abs(values[row][0]) for row in which)]


def built(rows, which, values, living=None):
    """The nodes as {bin: (grad, hess)}, their totals checked."""
    which = [np.array(rows_of_node, np.int32) for rows_of_node in which]
    living = [ALL] * len(which) if living is None else living
    packed = pack(values)
    nodes = node_rows(which, packed)
    [histograms], totals = builder(rows).build(nodes, *in_turn(living), EDGES), nodes.totals
    expected = [totals_of(rows_of_node.tolist(), values) for rows_of_node in which]
    assert totals.tolist() == expected and totals.shape == (len(which), 3)
    return histograms


def dicts(histograms):
    """The nodes as {bin: (grad, hess)}."""
    nodes = [histograms.node(i) for i in range(histograms.n_nodes)]
    for bins, grads, hesses in nodes:
        assert (bins.dtype, grads.dtype, hesses.dtype) == (np.int32, np.int64, np.int64)
        assert (np.diff(bins) > 0).all() and (hesses > 0).all()
    return [
        dict(zip(b.tolist(), zip(g.tolist(), h.tolist(), strict=True), strict=True)) for b, g, h in nodes
    ]


@quick
@given(
    st.integers(0, 2**32), st.integers(0, 40), st.sampled_from([8, 16, 32]), st.integers(1, 4),
    st.sampled_from([builder, padded_builder, lambda rows: dense_builder(rows, np.uint8), wide_builder]), st.integers(1, 3),
)  # fmt: skip
def test_nodes_built_on_every_path(seed, n_rows, grad_bits, n_nodes, make, n_chunks):
    rows, values = make_block(seed, n_rows, grad_bits)
    rng = np.random.default_rng(seed)
    node_of_row = rng.integers(0, n_nodes, n_rows)
    members = [np.flatnonzero(node_of_row == node).astype(np.int32) for node in range(n_nodes)]
    living = [np.flatnonzero(rng.random(5) < 0.7).astype(np.int32) for _ in range(n_nodes)]
    expected = [
        naive.restrict(
            naive.build(rows, which.tolist(), values),
            {b for f in features for b in range(BIN_OFFSETS[f], BIN_OFFSETS[f + 1])},
        )
        for which, features in zip(members, living, strict=True)
    ]
    one = make(rows)
    for first, cut in ((0, 5), (0, 2), (3, 3)):  # the accumulators are clean again after a call
        packed = pack(values, grad_bits)
        nodes = node_rows(members, packed, n_chunks)
        lived = in_turn([f + np.int32(first) for f in living])
        parts, totals = one.build(nodes, *lived, [first, first + cut, first + 5]), nodes.totals
        begin = int(BIN_OFFSETS[cut])
        lower, upper = map(dicts, parts)
        found = [a | {b + begin: sums for b, sums in of_node.items()} for a, of_node in zip(lower, upper, strict=True)]
        assert found == expected and all(b < begin for of_node in lower for b in of_node)
        assert totals.tolist() == [totals_of(which.tolist(), values) for which in members]


@pytest.mark.parametrize("grad_bits", [16, 32])
def test_a_dense_block_of_more_rows_than_are_added_at_once(grad_bits):
    rows, values = make_block(1, 10_000, grad_bits)
    which = [np.arange(len(rows), dtype=np.int32), np.arange(1, 9_000, 2, dtype=np.int32)]
    one = dense_builder(rows, np.uint8)
    packed = pack(values, grad_bits)
    nodes = node_rows(which, packed)
    [histograms] = one.build(nodes, *in_turn([ALL, ALL]), EDGES)
    assert dicts(histograms) == [naive.build(rows, part.tolist(), values) for part in which]
    needs_pairs = sum(abs(grad) for grad, _ in values) >= 2**31
    assert one.sum(nodes.node(0)).pairs == needs_pairs == (grad_bits == 32)


@pytest.mark.parametrize("order", ["ascending", "descending"])
def test_a_builder_may_be_given_rows_that_move_afterwards(order):
    """Small nodes of a block of many bins: what was added is cleared by the rows as they were."""
    n_bins = 500
    rows = [[b, b + 100] for b in range(300)]
    one = builder(rows, n_bins, np.array([0, n_bins], np.int32))
    packed = pack([(row - 7, row + 1) for row in range(len(rows))])
    which = np.array([3, 50], np.int32)
    for nodes in ([3, 50], [60, 61], [3, 299]):
        which[:] = nodes if order == "ascending" else nodes[::-1]
        sums = one.sum(node_rows([which], packed))
        assert np.flatnonzero(sums.acc).tolist() == sorted({b for row in nodes for b in rows[row]})


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("few", [0, 90_000])
def test_worst_values_at_the_packed_limit(sign, few):
    """Just below the limit sums are packed, at the limit they are not: by bins, and (few) by rows."""
    n_rows = 2**16 + 1
    rows = [[0]] * n_rows + [[1]] * few
    one = builder(rows, 2, np.array([0, 2], np.int32))
    packed = np.full(len(rows), (sign * 2**15 << 32) + 2**15)
    for n in (2**16 - 1, 2**16, 2**16 + 1):
        which = np.arange(n, dtype=np.int32)
        nodes = node_rows([which], packed)
        assert one.sum(nodes).pairs == (n >= 2**16)
        [histograms], totals = one.build(nodes, *in_turn([np.zeros(1, np.int32)]), [0, 1]), nodes.totals
        assert dicts(histograms) == [{0: (sign * n * 2**15, n * 2**15)}]
        assert totals.tolist() == [[sign * n * 2**15, n * 2**15, n * 2**15]]


def test_when_sums_need_pairs():
    assert not Total(-5, 2**32 - 1, 2**31 - 1).needs_pairs
    assert Total(-5, 2**32, 5).needs_pairs and Total(5, 7, 2**31).needs_pairs
    assert Total(0, 1, UNKNOWN).needs_pairs


def merged(parts, n_bins=20):
    """The nodes, as {bin: (grad, hess)}, of [(first bin, Histograms)]; packed or in pairs, as their totals say."""
    merger = HistogramMerger(np.array([0, n_bins // 3, n_bins], np.int32))
    own = []
    for first_bin, part in parts:
        begin, n = merger.entries.end, len(part.bins)
        for held, values in zip(merger.entries.room(begin, n), (part.bins, part.grads, part.hesses), strict=True):
            held[begin : begin + n] = values
        own.append((first_bin, merger.entries.histograms(begin + part.offsets)))
    nodes, n_nodes = [], parts[0][1].n_nodes
    for node in range(n_nodes):
        both = []
        for total in (Total(1, 2, UNKNOWN), Total(1, 2, 3)):
            sums = merger.sum(own, np.array([total] * n_nodes))
            sums = replace(sums, lists=sums.lists[node : node + 1], totals=sums.totals[node : node + 1])
            room = NodeHistogram(*(np.empty(2 * n_bins, dtype) for dtype in (np.int32, np.int32, np.int32, np.int64)))
            end = room.starts[sums.take(np.array([0, n_bins // 3, n_bins], np.int32), 1, room)]
            held = room.sums[: 2 * end].reshape(-1, 2) if total.needs_pairs else room.sums[:end]
            pairs = held if total.needs_pairs else np.stack([held >> 32, held & 0xFFFFFFFF], axis=1)
            both.append({b: tuple(sums) for b, sums in zip(room.bins[:end].tolist(), pairs.tolist(), strict=True)})
        assert both[0] == both[1]
        nodes.append(both[0])
    return nodes


def test_sums_too_wide_for_their_totals_are_refused():
    merger = HistogramMerger(np.array([0, 5], np.int32))
    for held, value in zip(merger.entries.room(0, 1), (0, 2**31, 1), strict=True):
        held[0] = value
    wide = merger.entries.histograms(np.array([0, 1]))
    room = NodeHistogram(*(np.empty(9, dtype) for dtype in (np.int32, np.int32, np.int32, np.int64)))
    with pytest.raises(ProtocolError, match="sums are not part"):
        merger.sum([(0, wide)], np.array([[5, 5, 5]])).take(np.array([0, 5], np.int32), 1, room)


@quick
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 5))
def test_row_shards_add_up_to_the_whole(seed, n_rows, n_shards):
    rows, values = make_block(seed, n_rows)
    borders = sorted(np.random.default_rng(seed).integers(0, n_rows + 1, n_shards - 1).tolist())
    borders = [0, *borders, n_rows]
    shards = []
    for begin, end in zip(borders, borders[1:], strict=False):
        members = [list(range(0, end - begin, 2)), list(range(1, end - begin, 2))]
        if begin % 2:
            members.reverse()
        shards.append((0, built(rows[begin:end], members, values[begin:end])))
    expected = dicts(built(rows, [range(0, n_rows, 2), range(1, n_rows, 2)], values))
    assert merged(shards) == merged(shards[::-1]) == expected


@quick
@given(st.integers(0, 2**32), st.integers(0, 60))
def test_parent_is_left_plus_right(seed, n_rows):
    rows, values = make_block(seed, n_rows)
    goes_left = np.random.default_rng(seed).random(n_rows) < 0.4
    which = [np.arange(n_rows), np.flatnonzero(goes_left), np.flatnonzero(~goes_left)]
    parent, left, right = dicts(built(rows, which, values))
    assert parent == naive.merge(left, right)
    assert naive.subtract(parent, left) == right and naive.subtract(parent, right) == left


@quick
@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 20), st.integers(0, 20))
def test_ranges_cut_out_and_put_side_by_side(seed, n_rows, first, second):
    rows, values = make_block(seed, n_rows)
    which = [np.arange(k, n_rows, 3, dtype=np.int32) for k in range(3)]
    whole = built(rows, which, values)
    a, b = sorted((first, second))
    edges = [(0, a), (a, b), (b, 20)]
    parts = [whole.restrict(*edge) for edge in edges]
    for (begin, end), part in zip(edges, parts, strict=True):
        for got, wanted in zip(dicts(part), dicts(whole), strict=True):
            moved = {bin_ + begin: sums for bin_, sums in got.items()}
            assert moved == naive.restrict(wanted, range(begin, end))
    assert merged([(0, parts[0]), (a, parts[1]), (b, parts[2])]) == dicts(whole)


def test_no_nodes_and_no_features():
    empty = Histograms(np.zeros(3, np.int64), *[np.empty(0, dtype) for dtype in DTYPES])
    assert (empty.n_nodes, dicts(empty)) == (2, [{}, {}])
    assert merged([(0, empty), (3, empty)]) == [{}, {}]
    assert dicts(empty.restrict(0, 5)) == [{}, {}]
    assert built([], [], []).n_nodes == 0
    nothing = builder([[], [], []], 0, np.zeros(1, np.int32))
    packed = np.ones(3, np.int64)
    nodes = node_rows([np.arange(3, dtype=np.int32)], packed)
    for _ in range(2):
        [histograms] = nothing.build(nodes, *in_turn([np.empty(0, np.int32)]), [0, 0])
        assert (dicts(histograms), nodes.totals.tolist()) == ([{}], [[0, 3, 0]])

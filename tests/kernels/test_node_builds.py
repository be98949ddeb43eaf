"""The nodes of a level built in one call, and sums of rows, beside the naive twin, compiled and as plain Python."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.data.block import tilings_of
from psboost.kernels import node_builds, open_nodes
from psboost.kernels.node_histograms import NodeHistogram
from psboost.kernels.open_nodes import needs_pairs
from psboost.kernels.row_bins import N_NONE
from psboost.kernels.slots import read, write
from tests.naive import histograms as naive
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(node_builds), ids=["compiled", "plain"])


def block_of(seed, n_rows, n_features, width, row_bins=(np.int64, np.int32), stride=0):
    """(rows as lists of bins, (grad, hess) of each, its arrays)"""
    rng = np.random.default_rng(seed)
    # features whose bins lie in several words of marks, or have one bin each
    sizes = rng.choice([1, 2, 70, 130], n_features) if rng.random() < 0.7 else np.ones(n_features, int)
    bin_offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    rows = [
        [int(rng.integers(bin_offsets[f], bin_offsets[f + 1])) for f in range(n_features) if rng.random() < 0.6]
        for _ in range(n_rows)
    ]
    most = 2**13 if width == np.int32 else 2**30
    values = [(int(rng.integers(-most, most)), int(rng.integers(1, most))) for _ in rows]
    return rows, values, as_block(rows, values, bin_offsets, width, row_bins, stride)


def as_block(rows, values, bin_offsets, width, row_bins=(np.int64, np.int32), stride=0):
    """The arrays of a block of these rows."""
    n_rows, n_bins = len(rows), int(bin_offsets[-1])
    bins = np.array([b for row in rows for b in row], np.int32)
    of_row = np.repeat(np.arange(n_rows, dtype=np.int32), [len(row) for row in rows])
    bits = 16 if width == np.int32 else 32
    packed = np.array([(grad << bits) + hess for grad, hess in values], width)
    indptr, padded = np.cumsum([0, *map(len, rows)]), bins
    if stride:
        indptr = stride * np.arange(n_rows + 1)
        padded = np.array([row + [n_bins + k for k in range(len(row), stride)] for row in rows]).reshape(-1)
    return SimpleBlock(
        indptr=indptr.astype(row_bins[0]), bins=padded.astype(row_bins[1]), stride=stride,
        bin_offsets=bin_offsets, packed=packed,
        posting_offsets=np.cumsum([0, *np.bincount(bins, minlength=n_bins)]),
        posting_rows=of_row[np.argsort(bins, kind="stable")],
    )  # fmt: skip


class SimpleBlock:
    def __init__(self, **arrays):
        vars(self).update(arrays)


@WAYS
@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32), st.integers(1, 60), st.sampled_from([np.int32, np.int64]), st.sampled_from([0, 7]),
    st.sampled_from([(np.int64, np.int32), (np.int32, np.uint16)]), st.sampled_from([(6, 0), (6, 8), (16, 16), (40, 0)]),
)  # fmt: skip
def test_nodes_of_a_level(kernels, seed, n_rows, width, first, row_bins, form):
    """By bins and by padded, short and long rows, packed and in pairs, marked and not, in three ranges; what has no room
    comes next time."""
    rng = np.random.default_rng(seed)
    n_features, stride = form
    rows, values, block = block_of(seed, n_rows, n_features, width, row_bins, stride)
    shares = rng.choice(3, n_rows, p=[0.05, 0.15, 0.8]) if rng.random() < 0.7 else np.zeros(n_rows, int)
    members = [np.flatnonzero(shares == node) for node in range(3)]
    own = np.concatenate(members).astype(np.int32)
    ends_of_rows = np.cumsum([0, *map(len, members)])
    spans, sums = np.stack([ends_of_rows[:-1], ends_of_rows[1:]], axis=1), np.full((3, node_builds.N_SUMS), 77)
    listed = np.full(n_rows + 1, 77, width)
    kernels.list_gradients(own, spans, block.packed, listed, sums)
    assert listed.tolist() == [*block.packed[own].tolist(), 77]
    for node, total in zip(members, sums.tolist(), strict=True):
        grads, hesses = [abs(values[row][0]) for row in node], [values[row][1] for row in node]
        most = max(grads, default=0), max(hesses, default=0)
        assert total == [*naive.sums(node.tolist(), values), sum(grads), *most]
    added, halves = np.zeros(node_builds.N_SUMS, np.int64), np.array_split(block.packed[members[0]], 2)
    for half in halves:
        kernels.add_rows(half, added)
    assert added.tolist() == sums[0].tolist()

    lists = [sorted(rng.choice(n_features, rng.integers(0, n_features + 1), replace=False).tolist()) for _ in range(2)]
    features = np.array([f + first for one in lists for f in one], np.int32)
    offsets, positions = np.cumsum([0, *map(len, lists)]), np.array([0, 1, 3])
    edges = np.array([0, 2, 2, n_features]) + first
    n_bins = int(block.bin_offsets[-1])
    marks, acc = np.zeros(n_bins // 64 + 1, np.uint64), np.zeros(2 * (n_bins + N_NONE), np.int64)
    single = bool((np.diff(block.bin_offsets) == 1).all())
    sizes = [(2, 3), (4, 1)][:: rng.choice([1, -1])]
    tilings = tilings_of(block.posting_offsets, block.posting_rows, n_rows, True, sizes)
    spare, ends = np.zeros(n_rows, width), np.zeros((3, 4), np.int64)
    room, done, held = 8, 0, [np.zeros(0, dtype) for dtype in (np.int32, np.int64, np.int64)]
    begins = np.zeros(4, np.int64)
    while done < 3:
        before, old, begins = done, begins, np.array([0, 1, 2, 3]) * room
        grown = [np.zeros(3 * room, array.dtype) for array in held]
        for s in range(3):
            for array, of in zip(grown, held, strict=True):
                array[begins[s] : begins[s] + ends[s, done]] = of[old[s] : old[s] + ends[s, done]]
        held = grown
        done = kernels.build_nodes(
            block.indptr, block.bins, block.stride, block.posting_offsets, block.posting_rows, tilings, block.bin_offsets,
            own, spans, sums, listed, spare, features, offsets, positions, edges, first, max(map(len, rows)),
            single, done, marks, acc, *held, begins, ends,
        )  # fmt: skip
        assert before <= done and not marks.any() and not acc.any() and not spare.any()
        room *= 2
    for i, (node, position) in enumerate(zip(members, positions, strict=True)):
        for s, edge in enumerate(zip(edges[:-1] - first, edges[1:] - first, strict=True)):
            first_bin = int(block.bin_offsets[edge[0]])
            living = [f for f in lists[position // 2] if edge[0] <= f < edge[1]]
            present = {b for f in living for b in range(block.bin_offsets[f], block.bin_offsets[f + 1])}
            expected = naive.restrict(naive.build(rows, node.tolist(), values), present)
            part = slice(begins[s] + ends[s, i], begins[s] + ends[s, i + 1])
            bins, grads, hesses = (array[part].tolist() for array in held)
            assert bins == sorted(bins)
            assert {b + first_bin: sums for b, *sums in zip(bins, grads, hesses, strict=True)} == {
                b: list(sums) for b, sums in expected.items()
            }


class Shared:
    """Parents, which have some of a block's rows and features, and are shared out to two children each."""

    def __init__(self, rows, values, block, of_parents, living, width):
        self.rows, self.values, self.block, self.of_parents, self.living = rows, values, block, of_parents, living
        n_parents, n_bins = len(of_parents), int(block.bin_offsets[-1])
        kinds = np.int32, np.int32, np.int32, np.int64
        self.room = NodeHistogram(*(np.zeros(9 * n_parents * (n_bins + 9), kind) for kind in kinds))
        self.used, self.width = np.zeros(3, np.int64), width
        self.parents = np.zeros((n_parents, open_nodes.N_FIELDS), np.int64)
        for parent, own, features in zip(self.parents, of_parents, living, strict=True):
            self._keep(parent, *self.expected(own, features), own)

    def expected(self, own, features):
        """features, and {bin: (grad, hess)}, of what these rows hold of such features"""
        of_bins, held = naive.build(self.rows, own, self.values), {}
        for f in features:
            held |= {b: of_bins[b] for b in range(*self.block.bin_offsets[f : f + 2].tolist()) if b in of_bins}
        return [f for f in features if any(self._feature(b) == f for b in held)], held

    def _feature(self, b):
        return int(np.searchsorted(self.block.bin_offsets, b, side="right")) - 1

    def _keep(self, parent, features, held, own):
        grad, hess = naive.sums(own, self.values)
        size = sum(abs(self.values[row][0]) for row in own)
        pairs, (at_feature, at, slot) = needs_pairs(size, hess), self.used.tolist()
        n_features, n_bins = len(features), len(held)
        parent[:] = at_feature, at, slot, n_features, n_bins, pairs, grad, hess, size
        counts = [sum(self._feature(b) == f for b in held) for f in features]
        self.room.features[at_feature : at_feature + n_features] = features
        self.room.starts[at_feature : at_feature + n_features + 1] = np.cumsum([0, *counts])
        self.room.bins[at : at + n_bins] = list(held)
        for k, sums in enumerate(held.values()):
            write(*sums, pairs, k, self.room.sums[slot:])
        self.used += n_features + 1, n_bins, n_bins << pairs

    def share_out(self, kernels, children, built_left, tilings, n_chunks):
        """The rows of each node, its parent, and its histogram, as `expected` has it."""
        own = np.concatenate(children).astype(np.int32)
        ends, block, n_rows = np.cumsum([0, *map(len, children)]), self.block, len(self.rows)
        spans, sums = np.stack([ends[:-1], ends[1:]], axis=1), np.zeros((len(children), node_builds.N_SUMS), np.int64)
        listed, spare = np.zeros(len(own), self.width), np.zeros(n_rows, self.width)
        kernels.list_gradients(own, spans, block.packed, listed, sums)
        edges = [
            begin + np.searchsorted(child, np.arange(n_chunks + 1) * n_rows // n_chunks)
            for begin, child in zip(ends[:-1], children, strict=True)
        ]
        of_chunks = np.array([[at for edge in pairwise(of_node.tolist()) for at in edge] for of_node in edges])
        acc = np.zeros(2 * (int(block.bin_offsets[-1]) + N_NONE), np.int64)
        nodes = np.zeros((2 * len(children), open_nodes.N_FIELDS), np.int64)
        done = kernels.share_nodes(
            block.indptr, block.bins, block.stride, block.posting_offsets, block.posting_rows, tilings, block.bin_offsets,
            own, of_chunks, sums, listed, spare, acc, self.room, self.used, self.parents, built_left, 0, 1, nodes,
        )  # fmt: skip
        assert done == len(children) and not acc.any() and not spare.any()
        for k, (child, left) in enumerate(zip(children, built_left.tolist(), strict=True)):
            rest = sorted(set(self.of_parents[k]) - set(child))
            for node, of_node in zip(nodes[2 * k : 2 * k + 2], (child, rest) if left else (rest, child), strict=True):
                yield of_node, k, self._held(node)

    def _held(self, node):
        held = open_nodes.histogram_of(self.room, node)
        sums = [tuple(map(int, read(held.sums, bool(node[open_nodes.PAIRS]), k))) for k in range(len(held.bins))]
        assert [self._feature(b) for b in held.bins.tolist()] == np.repeat(held.features, np.diff(held.starts)).tolist()
        return held.features.tolist(), dict(zip(held.bins.tolist(), sums, strict=True))


def shared(rng, n_rows, density, living, width, row_bins=(np.int64, np.int32), stride=0):
    """Two parents, of such living features, of a block whose features are in such a share of the rows."""
    n_features = len(density)
    bin_offsets = np.cumsum([0, *rng.choice([1, 1, 3, 70], n_features)]).astype(np.int32)
    rows = [
        [int(rng.integers(bin_offsets[f], bin_offsets[f + 1])) for f in range(n_features) if rng.random() < density[f]]
        for _ in range(n_rows)
    ]
    most = 2**13 if width == np.int32 else 2**30
    values = [(int(rng.integers(-most, most)), int(rng.integers(1, most))) for _ in rows]
    of_rows = rng.integers(0, 2, n_rows)
    of_parents = [np.flatnonzero(of_rows == k).tolist() for k in range(2)]
    block = as_block(rows, values, bin_offsets, width, row_bins, stride)
    return Shared(rows, values, block, of_parents, living, width)


@WAYS
@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from([1, 7, 60, 200]), st.sampled_from([np.int32, np.int64]),
    st.sampled_from([(np.int64, np.int32), (np.int32, np.uint16)]), st.sampled_from([(6, 0), (6, 8), (30, 0)]),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.sampled_from([1, 3]),
)  # fmt: skip
def test_parents_are_shared_out_to_children(kernels, seed, n_rows, width, row_bins, form, share, n_chunks):
    rng, (n_features, stride) = np.random.default_rng(seed), form
    living = [np.flatnonzero(rng.random(n_features) < rng.choice([0.1, 0.7, 1.0])).tolist() for _ in range(2)]
    parents = shared(rng, n_rows, rng.choice([0.6, 0.02], n_features), living, width, row_bins, stride)
    children = [[row for row in own if rng.random() < share] for own in parents.of_parents]
    block, built_left = parents.block, rng.integers(0, 2, 2).astype(np.uint8)
    tilings = tilings_of(block.posting_offsets, block.posting_rows, n_rows, True, [(2, 3), (4, 1)])
    for own, k, held in parents.share_out(kernels, children, built_left, tilings, n_chunks):
        assert held == parents.expected(own, parents.living[k])


@WAYS
@pytest.mark.parametrize("n_chunks", [1, 3])
def test_rows_of_rare_bins_are_looked_for(kernels, n_chunks):
    """Not those of the child are gone through: none of these is where it should be."""
    rng = np.random.default_rng(5)
    parents = shared(rng, 900, [0.005] * 4 + [0.6] * 6, [[0, 1, 2, 3]] * 2, np.int32)
    parents.block.bins[:] = 0
    tilings = tilings_of(parents.block.posting_offsets, parents.block.posting_rows, 900, True)
    children = [own[::2] for own in parents.of_parents]
    for own, k, held in parents.share_out(kernels, children, np.ones(2, np.uint8), tilings, n_chunks):
        assert held[0] and held == parents.expected(own, parents.living[k])


def test_wide_sums_need_pairs():
    assert not needs_pairs(2**31 - 1, 2**32 - 1)
    assert needs_pairs(2**31, 1) and needs_pairs(1, 2**32) and needs_pairs(-1, 1)


@pytest.mark.parametrize(
    ("n_bins", "stride", "n_held", "n_own", "by_bins"),
    [
        (1 << 16, 0, 20, 40, False), (1 << 16, 0, 5, 40, True), (1 << 16, 0, 5, 28, False), (1 + (1 << 16), 0, 20, 30, True),
        (1 + (1 << 16), 0, 20, 29, False), (1 + (1 << 20), 0, 20, 30, True), (1 + (1 << 20), 0, 20, 29, False),
        (99, 16, 10, 40, True), (99, 16, 10, 39, False), (99, 8, 5, 34, True), (99, 8, 5, 33, False), (99, 4, 3, 30, True),
        (99, 4, 3, 29, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("pairs", [False, True])
def test_a_node_is_built_by_bins_where_slots_are_far_or_rows_short(n_bins, stride, n_held, n_own, by_bins, pairs):
    rng, n_rows = np.random.default_rng(1), 40
    rows = [sorted(rng.choice(n_bins, n_held, replace=False).tolist()) for _ in range(n_rows)]
    most = 2**30 if pairs else 2**20
    values = [(int(rng.integers(-most, most)), int(rng.integers(1, most))) for _ in rows]
    block = as_block(rows, values, np.array([0, n_bins], np.int32), np.int64, stride=stride)
    assert node_builds.prefers_bins(n_own, n_rows, n_rows * n_held, n_bins, stride) == by_bins
    own = np.sort(rng.choice(n_rows, n_own, replace=False)).astype(np.int32)
    sums = np.empty((1, node_builds.N_SUMS), np.int64)
    listed = np.empty(n_own, np.int64)
    node_builds.list_gradients(own, np.array([[0, n_own]]), block.packed, listed, sums)
    span = np.array([0, n_own // 3, n_own // 3, n_own])  # of two chunks
    assert needs_pairs(*sums[0, [node_builds.SUM_SIZE, node_builds.SUM_HESS]].tolist()) == pairs
    acc, spare = np.zeros((n_bins + N_NONE) << pairs, np.int64), np.zeros(n_rows, np.int64)
    tilings = tilings_of(block.posting_offsets, block.posting_rows, n_rows, True, [(8, 1), (16, 1)])
    n_filled = node_builds.build_node(
        block.indptr, block.bins, block.stride, block.posting_offsets, block.posting_rows, tilings, own, span, sums[0],
        listed, spare, acc,
    )  # fmt: skip
    assert (n_filled == n_bins) == by_bins and not spare.any()
    slots = acc[: n_bins << pairs]
    found = slots.reshape(-1, 2) if pairs else np.stack([slots >> 32, slots & 0xFFFFFFFF], axis=1)
    present = np.flatnonzero(found[:, 1])
    expected = naive.build(rows, own.tolist(), values)
    assert dict(zip(present.tolist(), map(tuple, found[present].tolist()), strict=True)) == expected

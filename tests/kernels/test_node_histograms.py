"""Kernels of nodes' histograms beside the slow twins, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import node_histograms
from tests.naive import histograms as naive
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(node_histograms), ids=["compiled", "plain"])
quick = settings(max_examples=60, deadline=None)
N_BINS, FAR = 12, node_histograms._FAR_SLOTS  # bins of a block; and of one whose accumulator is far from the processor
BIN_OFFSETS = np.array([0, 3, 3, 4, 8, 12], np.int32)  # feature 1 has no bins


def as_dict(bins, grads, hesses):
    found = list(zip(bins.tolist(), zip(grads.tolist(), hesses.tolist(), strict=True), strict=True))
    assert [b for b, _ in found] == sorted({b for b, _ in found})
    return dict(found)


def lists_at(parts):
    """NodeLists of [(first bin, {bin: sums})], with something before, between and behind the lists."""
    entries, lists = [(99, 9, 9)], []
    for first, histogram in parts:
        begin = len(entries)
        entries += [(b - first, *sums) for b, sums in sorted(histogram.items())]
        lists += [begin, len(entries), first]
        entries.append((-1, 9, 9))
    bins, *sums = zip(*entries, strict=True)
    columns = (np.array(column, np.int64) for column in sums)
    return node_histograms.NodeLists(np.array(bins, np.int32), *columns, np.array(lists, np.int64))


@st.composite
def lists_of(draw, histogram):
    """Lists that come to the histogram: of two row shards, and two feature shards."""
    border = draw(st.integers(0, N_BINS))
    shards = [{}, {}, {}, {}]
    for b, (grad, hess) in histogram.items():
        side, first_hess = 2 * (b >= border), draw(st.integers(0, hess))
        first_grad = draw(st.integers(-(2**28), 2**28)) if 0 < first_hess < hess else grad * (first_hess > 0)
        for shard, sums in ((side, (first_grad, first_hess)), (side + 1, (grad - first_grad, hess - first_hess))):
            if sums[1] > 0:
                shards[shard][b] = sums
    return lists_at([(border * (i > 1), shard) for i, shard in enumerate(shards)])


def room(size, pairs):
    n_features = len(BIN_OFFSETS) - 1
    return node_histograms.NodeHistogram(
        np.empty(n_features, np.int32), np.empty(n_features + 1, np.int32),
        np.empty(size, np.int32), np.empty(size * (1 + pairs), np.int64),
    )  # fmt: skip


def accumulator(histogram, pairs):
    return slots_of(histogram, N_BINS, pairs)


def slots_of(histogram, n_bins, pairs):
    acc = np.zeros((n_bins, 2), np.int64)
    for b, sums in histogram.items():
        acc[b] = sums
    return acc.reshape(-1) if pairs else (acc[:, 0] << 32) + acc[:, 1]


def as_node(histogram, pairs, kernels, least=1):
    """`take` on the histogram, and how many features live."""
    node = room(N_BINS, pairs)
    n_living = kernels.take(BIN_OFFSETS, accumulator(histogram, pairs), pairs, least, node)
    return cut(node, n_living, pairs), n_living


def cut(node, n_living, pairs):
    end = node.starts[n_living]
    return node_histograms.NodeHistogram(
        node.features[:n_living], node.starts[: n_living + 1], node.bins[:end], node.sums[: end * (1 + pairs)]
    )


def node_dict(node, pairs):
    """{feature: {bin: sums}}"""
    if pairs:
        grads, hesses = node.sums[::2], node.sums[1::2]
    else:
        grads, hesses = node.sums >> 32, node.sums & 0xFFFFFFFF
    return {
        int(feature): as_dict(*(array[begin:end] for array in (node.bins, grads, hesses)))
        for feature, begin, end in zip(node.features, node.starts, node.starts[1:], strict=False)
    }


SMALL = st.dictionaries(
    st.integers(0, N_BINS - 1), st.tuples(st.integers(-(2**27), 2**27), st.integers(1, 2**28)), max_size=N_BINS
).map(lambda histogram: dict(sorted(histogram.items())))
FORMS = st.sampled_from([(0, 0, 0), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)])  # of share_out
LEAST = st.sampled_from([1, 1, 2**20, 2**28, 2**29])


@WAYS
@quick
@given(SMALL, st.booleans(), LEAST, st.data())
def test_take(kernels, histogram, pairs, least, data):
    expected = naive.by_feature(histogram, BIN_OFFSETS.tolist(), least)
    node, _ = as_node(histogram, pairs, kernels, least)
    assert node_dict(node, pairs) == expected
    for window in (4, 7, N_BINS):
        node, acc = room(N_BINS, pairs), np.zeros(window * (1 + pairs), np.int64)
        n_living = kernels.take_lists(BIN_OFFSETS, data.draw(lists_of(histogram)), pairs, acc, least, node)
        assert node_dict(cut(node, n_living, pairs), pairs) == expected
        assert not acc.any()


@WAYS
@quick
@given(SMALL, LEAST, FORMS, st.data())
def test_share_out(kernels, parent, least, forms, data):
    child = {}
    for bin_, (grad, hess) in parent.items():
        if data.draw(st.booleans()):
            taken = data.draw(st.sampled_from([1, hess // 2 + 1, hess]))
            child[bin_] = (grad if taken == hess else grad // 3, taken)
    rest, offsets, forms = naive.subtract(parent, child), BIN_OFFSETS.tolist(), np.array(forms, bool)
    for window in (None, FAR, 4, 7, N_BINS):  # all sums, or lists of which so many bins are added up at once
        node, _ = as_node(parent, forms[0], kernels)
        one, counts = room(len(node.bins), forms[1]), np.zeros(3, np.int64)
        if window in (None, FAR):
            acc = accumulator(child, forms[1]) if window is None else slots_of(child, FAR, forms[1])
            clears = data.draw(st.booleans())
            kernels.share_out(node, acc, forms, least, clears, one, counts)
            assert not (clears and acc.any())
        else:
            acc = np.zeros(window * (1 + forms[1]), np.int64)
            kernels.share_out_lists(node, data.draw(lists_of(child)), forms, acc, least, one, counts)
            assert not acc.any()
        n_child, n_rest, n_wrong = counts.tolist()
        assert node_dict(cut(one, n_child, forms[1]), forms[1]) == naive.by_feature(child, offsets, least)
        assert node_dict(cut(node, n_rest, forms[2]), forms[2]) == naive.by_feature(rest, offsets, least)
        assert n_wrong == 0


@WAYS
@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32), st.lists(st.integers(0, 40), min_size=1, max_size=5) | st.lists(
        st.sampled_from([1] * 19 + [2]), min_size=8, max_size=40
    ) | st.integers(100, 300).map(lambda n: [1] * n), st.floats(0, 1), st.sampled_from([1, 30, 400]), FORMS,
)  # fmt: skip
def test_features_of_many_bins_and_many_of_one(kernels, seed, sizes, share, least, forms):
    """Which are looked at eight bins at once, and what is left over one by one. Pairs hold more than a packed slot does."""
    rng, offsets = np.random.default_rng(seed), np.cumsum([0, *sizes]).astype(np.int32)
    n_bins, least = int(offsets[-1]), int(least)
    unit = 2**40 if forms[2] else 0
    parent = {
        b: (int(rng.integers(-99, 99)) - unit, int(rng.integers(1, 99)) + unit) for b in range(n_bins) if rng.random() < 0.9
    }
    child = {}
    for b, (grad, hess) in parent.items():
        if rng.random() < share:
            taken = int(rng.choice([1, hess if forms[1] == forms[0] else min(hess, 99)]))
            child[b] = (grad if taken == hess else int(rng.integers(-9, 9)), taken)
    forms = np.array(forms, bool)
    node, room_of_child = (
        node_histograms.NodeHistogram(
            *(np.empty(n_bins + 6, np.int32) for _ in range(3)), np.empty((n_bins + 6) << pairs, np.int64)
        )
        for pairs in forms[:2]
    )
    n_living = kernels.take(offsets, slots_of(parent, n_bins, forms[0]), bool(forms[0]), 1, node)
    node, counts = cut(node, n_living, forms[0]), np.zeros(3, np.int64)
    sizes = len(node.features), len(node.starts), len(node.bins), len(node.bins) << forms[1]
    one = node_histograms.NodeHistogram(*(array[:n] for array, n in zip(room_of_child, sizes, strict=True)))
    acc = slots_of(child, n_bins, forms[1])
    kernels.share_out(node, acc, forms, least, True, one, counts)
    assert not acc.any()
    rest = naive.subtract(parent, child)
    assert node_dict(cut(one, counts[0], forms[1]), forms[1]) == naive.by_feature(child, offsets.tolist(), least)
    assert node_dict(cut(node, counts[1], forms[2]), forms[2]) == naive.by_feature(rest, offsets.tolist(), least)
    assert counts[2] == 0


@WAYS
@pytest.mark.parametrize("pairs", [False, True])
def test_share_out_counts_what_cannot_be(kernels, pairs):
    node, _ = as_node({0: (5, 4), 1: (5, 4), 3: (1, 1)}, pairs, kernels)
    child, counts = {0: (5, 5), 1: (5, 4)}, np.zeros(3, np.int64)
    kernels.share_out(node, accumulator(child, pairs), np.full(3, pairs), 1, False, room(3, pairs), counts)
    assert counts[2] == 1


@WAYS
@pytest.mark.parametrize("pairs", [False, True])
def test_share_out_counts_what_cannot_be_among_features_of_one_bin(kernels, pairs):
    features, held = np.arange(9, dtype=np.int32), slots_of(dict.fromkeys(range(9), (5, 4)), 9, pairs)
    node = node_histograms.NodeHistogram(features.copy(), np.arange(10, dtype=np.int32), features.copy(), held)
    room = node_histograms.NodeHistogram(*map(np.empty_like, node))
    child, counts = np.array([0, 4, 5, 0, 4, 4, 9, 1, 4]), np.zeros(3, np.int64)
    kernels.share_out(node, child, np.array([pairs, False, pairs]), 1, False, room, counts)
    assert counts[2] == 2


@WAYS
@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("window", [4, 5, 9, N_BINS])
@pytest.mark.parametrize("wrong", [{0: (5, 5)}, {2: (7, 7)}, {4: (1, 1)}, {6: (1, 1)}, {11: (1, 1)}, {0: (1, 1), 7: (2, 1)}])
def test_lists_that_cannot_be(kernels, pairs, window, wrong):
    """Too much, and bins that are not the node's: of its features, between them, before the first and behind the last."""
    node, _ = as_node({0: (5, 4), 1: (5, 4), 3: (1, 1), 8: (1, 1)}, pairs, kernels)
    counts, acc = np.zeros(3, np.int64), np.zeros(window * (1 + pairs), np.int64)
    lists = lists_at([(0, {0: (1, 1)}), (0, wrong)])
    kernels.share_out_lists(node, lists, np.full(3, pairs), acc, 1, room(4, pairs), counts)
    assert counts[2] > 0
    node, _ = as_node({3: (1, 1), 9: (1, 1)}, pairs, kernels)
    counts, acc = np.zeros(3, np.int64), np.zeros(window * (1 + pairs), np.int64)
    lists = lists_at([(0, {3: (1, 1)}), (0, wrong)])
    kernels.share_out_lists(node, lists, np.full(3, pairs), acc, 1, room(4, pairs), counts)
    assert counts[2] > 0


@WAYS
@pytest.mark.parametrize("sums", [(2**31, 1), (-(2**31) - 1, 1), (0, 2**32), (2**40, 2**40)])
def test_lists_that_do_not_fit_packed_slots(kernels, sums):
    lists = lists_at([(0, {1: (5, 5), 2: sums, 3: (-(2**31), 2**32 - 1)})])
    for pairs in (False, True):
        acc = np.zeros(N_BINS * (1 + pairs), np.int64)
        assert kernels.take_lists(BIN_OFFSETS, lists, pairs, acc, 1, room(N_BINS, pairs)) == (2 if pairs else -1)
    node, _ = as_node({1: (5, 5), 2: sums, 3: (1, 2**33)}, True, kernels)
    for child_pairs in (False, True):
        counts, acc = np.zeros(3, np.int64), np.zeros(N_BINS * (1 + child_pairs), np.int64)
        forms = np.array([True, child_pairs, True])
        kernels.share_out_lists(node, lists, forms, acc, 1, room(3, True), counts)
        assert (counts[2] > 0) == (not child_pairs)
        node, _ = as_node({1: (5, 5), 2: sums, 3: (1, 2**33)}, True, kernels)


@WAYS
def test_lists_behind_the_last_bin(kernels):
    acc = np.zeros(N_BINS, np.int64)
    assert kernels.take_lists(BIN_OFFSETS, lists_at([(0, {N_BINS: (1, 1)})]), False, acc, 1, room(N_BINS, False)) == -1

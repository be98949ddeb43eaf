"""Kernels of chunks beside the slow twins, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import chunks
from tests.naive import chunks as naive
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(chunks), ids=["compiled", "plain"])
quick = settings(max_examples=60, deadline=None)
N_BINS = 7
SUMS = st.tuples(st.integers(-(2**52), 2**52), st.integers(1, 2**52))
NODE = st.dictionaries(st.integers(0, N_BINS - 1), SUMS)
PAIRS = st.integers(0, 4).flatmap(lambda n: st.tuples(*[st.lists(NODE, min_size=n, max_size=n)] * 2))


def as_lists(nodes):
    """offsets, bins, sums"""
    entries = [(b, *sums) for node in nodes for b, sums in sorted(node.items())]
    offsets = np.cumsum([0, *map(len, nodes)])
    sums = np.array([value for _, *pair in entries for value in pair], np.float64)
    return offsets, np.array([b for b, *_ in entries], np.int32), sums


def as_nodes(offsets, bins, sums):
    entries = list(zip(bins.tolist(), map(tuple, sums.reshape(-1, 2).tolist()), strict=True))
    return [dict(entries[begin:end]) for begin, end in zip(offsets, offsets[1:], strict=False)]


@WAYS
@quick
@given(pair=PAIRS)
def test_merge(kernels, pair):
    a, b = map(as_lists, pair)
    most = len(a[1]) + len(b[1])
    offsets, bins, sums = np.empty_like(a[0]), np.empty(most, np.int32), np.empty(2 * most)
    n = kernels.merge(*a, *b, offsets, bins, sums)
    assert as_nodes(offsets.tolist(), bins[:n], sums[: 2 * n]) == naive.merge(*pair)
    assert kernels.is_list(offsets, bins[:n], N_BINS)


@WAYS
@quick
@given(pair=PAIRS)
def test_scatter(kernels, pair):
    dense = np.zeros((len(pair[0]), N_BINS, 2))
    for nodes in pair:
        kernels.scatter(*as_lists(nodes), N_BINS, dense.reshape(-1))
    found = [[tuple(sums) for sums in node] for node in dense.tolist()]
    assert found == naive.scatter(naive.merge(*pair), N_BINS)


@WAYS
@quick
@given(nodes=st.lists(NODE, min_size=1, max_size=1), first=st.integers(0, 3))
def test_load(kernels, nodes, first):
    _, bins, sums = as_lists([{b + first: pair for b, pair in nodes[0].items()}])
    acc = np.zeros(2 * N_BINS, np.int64)
    kernels.load(bins, sums, first, acc)
    assert [tuple(pair) for pair in acc.reshape(-1, 2).tolist()] == naive.scatter(nodes, N_BINS)[0]
    kernels.unload(bins, first, acc)
    assert not acc.any()


@WAYS
@quick
@given(offsets=st.lists(st.integers(-1, 6), max_size=4), bins=st.lists(st.integers(-1, N_BINS), max_size=5))
def test_is_list(kernels, offsets, bins):
    for given_offsets in (offsets, [0, *sorted(offsets)], [0, len(bins)]):
        found = kernels.is_list(np.array(given_offsets, np.int64), np.array(bins, np.int32), N_BINS)
        assert found == naive.is_list(given_offsets, bins, N_BINS)


@WAYS
@quick
@given(pairs=st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**32 - 1)), max_size=6))
def test_to_floats(kernels, pairs):
    packed = np.array([(grad << 32) + hess for grad, hess in pairs], np.int64)
    for acc, in_pairs in ((packed, False), (np.array(pairs, np.int64).reshape(-1), True)):
        sums = np.empty(2 * len(pairs))
        kernels.to_floats(acc, in_pairs, sums)
        assert [tuple(pair) for pair in sums.reshape(-1, 2).tolist()] == pairs

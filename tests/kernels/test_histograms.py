"""Histogram kernels beside the slow twins, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import histograms
from tests.naive import gradients as naive_gradients
from tests.naive import histograms as naive
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(histograms), ids=["compiled", "plain"])
quick = settings(max_examples=60, deadline=None)
N_BINS = 12
BIN_OFFSETS = np.array([0, 3, 3, 4, 8, 12], np.int32)  # feature 1 has no bins
GRADS = st.integers(-(2**15), 2**15)
HESSES = st.one_of(st.just(0), st.integers(1, 2**15))
VALUES = st.tuples(GRADS, HESSES).map(lambda pair: pair if pair[1] else (0, 0))
FEATURES = st.sets(st.integers(0, len(BIN_OFFSETS) - 2)).map(sorted)


@st.composite
def blocks(draw):
    """(rows as lists of bins, (grad, hess) of each, the rows of a node)"""
    rows = draw(st.lists(st.sets(st.integers(0, N_BINS - 1)).map(sorted), max_size=8))
    values = draw(st.lists(VALUES, min_size=len(rows), max_size=len(rows)))
    which = [row for row in range(len(rows)) if draw(st.booleans())]
    return rows, values, which


def arrays(rows, values, which):
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    packed = np.array([naive_gradients.pack(*value) for value in values], np.int64)
    return indptr, np.array([b for row in rows for b in row], np.int32), np.array(which, np.int32), packed


def empty_lists(size):
    return np.empty(size, np.int32), np.empty(size, np.int64), np.empty(size, np.int64)


def as_dict(bins, grads, hesses):
    found = list(zip(bins.tolist(), zip(grads.tolist(), hesses.tolist(), strict=True), strict=True))
    assert [b for b, _ in found] == sorted({b for b, _ in found})
    return dict(found)


def as_lists(histogram):
    sums = np.array(list(histogram.values()), np.int64).reshape(-1, 2)
    return np.array(list(histogram), np.int32), sums[:, 0].copy(), sums[:, 1].copy()


@WAYS
@quick
@given(blocks(), FEATURES, st.integers(0, 3))
def test_build_and_extract(kernels, block, features, begin):
    indptr, bins, which, packed = arrays(*block)
    living = {b for f in features for b in range(BIN_OFFSETS[f], BIN_OFFSETS[f + 1])}
    expected = naive.restrict(naive.build(*block[0:1], block[2], block[1]), living)
    features = np.array(features, np.int32)

    acc = np.zeros(N_BINS, np.int64)
    kernels.build(indptr, bins, which, packed, acc)
    out = empty_lists(begin + N_BINS)
    end = kernels.extract(features, BIN_OFFSETS, acc, begin, *out)
    assert as_dict(*(array[begin:end] for array in out)) == expected

    wide = np.zeros(2 * N_BINS, np.int64)
    kernels.build_wide(indptr, bins, which, packed, wide)
    out = empty_lists(begin + N_BINS)
    end = kernels.extract_wide(features, BIN_OFFSETS, wide, begin, *out)
    assert as_dict(*(array[begin:end] for array in out)) == expected

    twice = wide.copy()
    kernels.widen(acc.copy(), twice)
    np.testing.assert_array_equal(twice, 2 * wide)
    kernels.clear(indptr, bins, which, acc)
    assert not acc.any()


@WAYS
@quick
@given(blocks())
def test_sum_packed(kernels, block):
    _, _, which, packed = arrays(*block)
    sums = np.array([-5, 7])
    kernels.sum_packed(which, packed, sums)
    expected = naive.sums(block[2], block[1])
    assert sums.tolist() == [expected[0] - 5, expected[1] + 7]


HISTOGRAMS = st.dictionaries(
    st.integers(0, 30), st.tuples(st.integers(-(2**50), 2**50), st.integers(1, 2**50)), max_size=9
).map(lambda histogram: dict(sorted(histogram.items())))


@WAYS
@quick
@given(st.lists(st.tuples(HISTOGRAMS, HISTOGRAMS), max_size=3))
def test_merge(kernels, pairs):
    def joined(which):
        lists = [as_lists(pair[which]) for pair in pairs]
        offsets = np.cumsum([0, *(len(bins) for bins, _, _ in lists)])
        return offsets, *(
            np.concatenate([np.empty(0, dtype), *(parts[k] for parts in lists)]).astype(dtype)
            for k, dtype in enumerate((np.int32, np.int64, np.int64))
        )

    a, b = joined(0), joined(1)
    out = np.empty(len(pairs) + 1, np.int64), *empty_lists(len(a[1]) + len(b[1]))
    kernels.merge(*a, *b, *out)
    for node, (first, second) in enumerate(pairs):
        part = slice(out[0][node], out[0][node + 1])
        assert as_dict(*(array[part] for array in out[1:])) == naive.merge(first, second)


@WAYS
@quick
@given(HISTOGRAMS, st.data())
def test_subtract(kernels, parent, data):
    child = {}
    for bin_, (grad, hess) in parent.items():
        if data.draw(st.booleans()):
            taken = data.draw(st.sampled_from([1, hess, hess, hess + 1]))
            child[bin_] = (grad if taken == hess else 5, taken)
    if data.draw(st.integers(0, 5)) == 0:
        child = dict(sorted({**child, data.draw(st.sampled_from([-1, 31, 40])): (1, 1)}.items()))
    out = empty_lists(len(parent))
    end = kernels.subtract(*as_lists(parent), *as_lists(child), *out)
    expected = naive.subtract(parent, child)
    if expected is None:
        assert end == -1
    else:
        assert as_dict(*(array[:end] for array in out)) == expected
        # What was taken away gives the parent again when it is added.
        size = len(parent) + len(child)
        sums = np.empty(2, np.int64), *empty_lists(size)
        rest = [array[:end].copy() for array in out]
        kernels.merge(np.array([0, end]), *rest, np.array([0, len(child)]), *as_lists(child), *sums)
        assert as_dict(*(array[: sums[0][1]] for array in sums[1:])) == parent

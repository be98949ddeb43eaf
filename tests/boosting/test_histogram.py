"""Histograms as a whole: built, cut, put side by side, added, beside the slow twin."""

from functools import reduce
from operator import add

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting.fixed_point import rows_per_sum
from psboost.boosting.histogram import HistogramBuilder, Histograms, side_by_side
from psboost.boosting.split import _subtract
from tests.naive import histograms as naive

quick = settings(max_examples=60, deadline=None)
BIN_OFFSETS = np.array([0, 4, 4, 5, 11, 20], np.int32)
ALL = np.arange(5, dtype=np.int32)


def make_block(seed, n_rows, grad_bits=16):
    """(rows as lists of bins, one bin of a feature at most; (grad, hess) of each row)"""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n_rows):
        stored = [f for f in (0, 2, 3, 4) if rng.random() < 0.6]
        rows.append([int(rng.integers(BIN_OFFSETS[f], BIN_OFFSETS[f + 1])) for f in stored])
    most = 2 ** min(grad_bits - 1, 30)
    values = [(int(rng.integers(-most, most + 1)), int(rng.integers(1, most + 1))) for _ in rows]
    return rows, [(0, 0) if rng.random() < 0.1 else value for value in values]


def csr(rows):
    indptr = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=indptr[1:])
    return indptr, np.array([b for row in rows for b in row], np.int32)


def pack(values):
    return np.array([(grad << 32) + hess for grad, hess in values], np.int64)


def builder(rows, per_sum=65_535):
    return HistogramBuilder(*csr(rows), BIN_OFFSETS, per_sum)


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
@given(st.integers(0, 2**32), st.integers(0, 40), st.sampled_from([8, 16, 32]), st.integers(1, 4))
def test_nodes_built_on_every_path(seed, n_rows, grad_bits, n_nodes):
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
    ways = [rows_per_sum(grad_bits), 1]  # 1: every sum is wide
    for per_sum in ways:
        one = builder(rows, per_sum)
        for _ in range(2):  # the accumulator is clean again after a call
            assert dicts(one.build(members, living, pack(values))) == expected


def test_sums_of_more_rows_than_a_packed_sum_holds():
    rows, values = make_block(1, 5000)
    which = np.arange(5000, dtype=np.int32)
    whole = builder(rows).build([which], [ALL], pack(values))
    parts = builder(rows, per_sum=1024).build([which], [ALL], pack(values))  # several packed sums, widened
    wide = builder(rows, per_sum=1023).build([which], [ALL], pack(values))
    assert dicts(whole) == dicts(parts) == dicts(wide) == [naive.build(rows, which.tolist(), values)]


@pytest.mark.parametrize("sign", [-1, 1])
def test_worst_values_past_the_packed_limit(sign):
    n_rows = rows_per_sum(16) + 5000
    one = HistogramBuilder(
        np.arange(n_rows + 1), np.zeros(n_rows, np.int32), np.array([0, 1], np.int32), rows_per_sum(16)
    )
    packed = np.full(n_rows, (sign * 2**15 << 32) + 2**15)
    for n in (n_rows, rows_per_sum(16), rows_per_sum(16) + 1):
        built = one.build([np.arange(n, dtype=np.int32)], [np.zeros(1, np.int32)], packed)
        assert dicts(built) == [{0: (sign * n * 2**15, n * 2**15)}]


@quick
@given(st.integers(0, 2**32), st.integers(0, 60), st.integers(1, 5))
def test_row_shards_add_up_to_the_whole(seed, n_rows, n_shards):
    rows, values = make_block(seed, n_rows)
    borders = sorted(np.random.default_rng(seed).integers(0, n_rows + 1, n_shards - 1).tolist())
    borders = [0, *borders, n_rows]
    shards = []
    for begin, end in zip(borders, borders[1:], strict=False):
        members = [np.arange(0, end - begin, 2, dtype=np.int32), np.arange(1, end - begin, 2, dtype=np.int32)]
        if begin % 2:
            members.reverse()
        shards.append(builder(rows[begin:end]).build(members, [ALL, ALL], pack(values[begin:end])))
    whole = [np.arange(0, n_rows, 2, dtype=np.int32), np.arange(1, n_rows, 2, dtype=np.int32)]
    expected = builder(rows).build(whole, [ALL, ALL], pack(values))
    assert dicts(reduce(add, shards)) == dicts(expected)
    assert dicts(reduce(add, shards[::-1])) == dicts(expected)


@quick
@given(st.integers(0, 2**32), st.integers(0, 60))
def test_parent_is_left_plus_right(seed, n_rows):
    rows, values = make_block(seed, n_rows)
    goes_left = np.random.default_rng(seed).random(n_rows) < 0.4
    which = [np.arange(n_rows), np.flatnonzero(goes_left), np.flatnonzero(~goes_left)]
    built = builder(rows).build([w.astype(np.int32) for w in which], [ALL] * 3, pack(values))
    parent, left, right = (built.node(i) for i in range(3))
    in_dicts = dicts(built)
    assert in_dicts[0] == naive.merge(in_dicts[1], in_dicts[2])
    for rest, expected in ((_subtract(parent, left), right), (_subtract(parent, right), left)):
        for got, wanted in zip(rest, expected, strict=True):
            np.testing.assert_array_equal(got, wanted)


@quick
@given(st.integers(0, 2**32), st.integers(0, 30), st.integers(0, 20), st.integers(0, 20))
def test_ranges_cut_out_and_put_side_by_side(seed, n_rows, first, second):
    rows, values = make_block(seed, n_rows)
    which = [np.arange(k, n_rows, 3, dtype=np.int32) for k in range(3)]
    whole = builder(rows).build(which, [ALL] * 3, pack(values))
    a, b = sorted((first, second))
    edges = [(0, a), (a, b), (b, 20)]
    parts = [whole.restrict(*edge) for edge in edges]
    for (begin, end), part in zip(edges, parts, strict=True):
        for got, wanted in zip(dicts(part), dicts(whole), strict=True):
            moved = {bin_ + begin: sums for bin_, sums in got.items()}
            assert moved == naive.restrict(wanted, range(begin, end))
    assert dicts(side_by_side(parts, np.array([0, a, b]))) == dicts(whole)
    assert side_by_side([whole], np.array([0])) is whole


def test_no_nodes_and_no_features():
    empty = Histograms.empty(2)
    assert (empty.n_nodes, dicts(empty + empty)) == (2, [{}, {}])
    assert dicts(empty.restrict(0, 5)) == [{}, {}]
    assert builder([]).build([], [], np.empty(0, np.int64)).n_nodes == 0
    nothing = HistogramBuilder(np.zeros(4, np.int64), np.empty(0, np.int32), np.zeros(1, np.int32), 10)
    rows = [np.arange(3, dtype=np.int32)]
    assert dicts(nothing.build(rows, [np.empty(0, np.int32)], np.ones(3, np.int64))) == [{}]

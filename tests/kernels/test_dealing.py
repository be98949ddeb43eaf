"""Dealing beside its slow twin, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import dealing
from tests.naive import dealing as naive
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(dealing), ids=["compiled", "plain"])
LOADS = st.integers(0, 2**40)
PARTS = st.tuples(st.integers(1, 9), LOADS)  # share, load before


@WAYS
@settings(max_examples=60, deadline=None)
@given(st.lists(LOADS, max_size=12), st.lists(PARTS, min_size=1, max_size=5), st.integers(0, 12))
def test_each_item_goes_where_least_lies(kernels, loads, before, more):
    shares, held = map(list, zip(*before, strict=True))
    totals, parts = np.array(held, np.int64), np.full(len(loads), -1, np.int32)
    most = -(-len(loads) // len(shares)) + more
    kernels.deal(np.array(loads, np.int64), np.array(shares), most, totals, parts)
    assert (parts.tolist(), totals.tolist()) == naive.deal(loads, shares, most, held)
    assert np.bincount(parts).max(initial=0) <= most


@given(st.lists(st.integers(0, 1000), max_size=40), st.lists(st.integers(1, 9), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_no_part_exceeds_its_share_by_more_than_an_item(loads, shares):
    totals = np.zeros(len(shares), np.int64)
    dealing.deal(np.array(loads, np.int64), np.array(shares), len(loads), totals, np.empty(len(loads), np.int32))
    for total, share in zip(totals.tolist(), shares, strict=True):
        assert sum(shares) * (total - max(loads, default=0)) <= share * sum(loads)

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


@WAYS
@settings(max_examples=60, deadline=None)
@given(st.lists(LOADS, max_size=12), st.lists(LOADS, min_size=1, max_size=5))
def test_each_item_goes_where_least_lies(kernels, loads, before):
    totals, parts = np.array(before, np.int64), np.full(len(loads), -1, np.int32)
    kernels.deal(np.array(loads, np.int64), totals, parts)
    assert (parts.tolist(), totals.tolist()) == naive.deal(loads, before)


@given(st.lists(st.integers(0, 1000), max_size=40), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_no_part_exceeds_the_mean_by_more_than_an_item(loads, n_parts):
    totals = np.zeros(n_parts, np.int64)
    dealing.deal(np.array(loads, np.int64), totals, np.empty(len(loads), np.int32))
    assert n_parts * totals.max() <= sum(loads) + (n_parts - 1) * max(loads, default=0)

"""Routing kernels beside the slow twins, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import routing
from tests.naive import routing as naive
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(routing), ids=["compiled", "plain"])
quick = settings(max_examples=60, deadline=None)
SIZES = st.sampled_from([0, 1, 2, 63, 64, 65, 130])


@st.composite
def shards(draw):
    """(node of each row, bits, some rows ascending)"""
    n_rows = draw(SIZES)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    node_of_row = rng.integers(3, 6, n_rows).tolist()
    bits = (rng.random(n_rows) < draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))).tolist()
    return node_of_row, bits, np.flatnonzero(rng.random(n_rows) < 0.5).tolist()


@WAYS
@quick
@given(shards(), st.integers(2, 6))
def test_clear_bits(kernels, shard, node):
    node_of_row, bits, rows = shard
    array = np.array(bits, np.uint8)
    kernels.clear_bits(np.array(rows, np.int32), np.array(node_of_row, np.int32), node, array)
    assert array.tolist() == naive.clear_bits(rows, node_of_row, node, bits)


@WAYS
@quick
@given(shards(), st.booleans())
def test_partition(kernels, shard, default_is_left):
    node_of_row, bits, rows = shard
    left, right = naive.partition(rows, bits, default_is_left)
    array, nodes, held = np.array(rows, np.int32), np.array(node_of_row, np.int32), np.array(bits, np.uint8)
    n_ones = kernels.count_ones(array, held)
    assert n_ones == sum(bits[row] for row in rows)
    moved = np.full(len(rows) + 5, -1, np.int32)
    kernels.partition(array, held, default_is_left, 11, 12, 1, 3 + len(left), moved, nodes)
    assert moved.tolist() == [-1, *left, -1, -1, *right, -1, -1]
    expected = [11 if r in left else 12 if r in right else node for r, node in enumerate(node_of_row)]
    assert nodes.tolist() == expected


@WAYS
def test_add_values(kernels):
    margins = np.array([0.1, 0.2, 0.3], np.float32)
    kernels.add_values(np.array([4, 0, 4], np.int32), np.array([0, 9, 9, 9, 0.7], np.float32), margins)
    expected = [np.float32(0.1) + np.float32(0.7), np.float32(0.2), np.float32(0.3) + np.float32(0.7)]
    assert margins.tolist() == [float(margin) for margin in expected]

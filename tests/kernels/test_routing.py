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
SIZES = st.sampled_from([0, 1, 2, 63, 64, 65, 130, 400])


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
@given(shards(), st.integers(2, 6), st.booleans(), st.booleans())
def test_clear_bits(kernels, shard, node, ascend, in_parts):
    node_of_row, bits, rows = shard
    array, n, n_rows = np.array(bits, np.uint8), len(rows), len(node_of_row)
    offsets = np.array([0, n // 9, n // 9, n], np.int64)
    slices = np.array([[1, 3, node], [0, 1, node + 1], [2, 2, node]], np.int64)
    posted = np.array(rows, np.int32)
    if not ascend:
        posted[n // 9 :] = posted[n // 9 :][::-1].copy()
    edges = [0, n_rows // 3, n_rows] if in_parts else [0, n_rows]
    for first, last in zip(edges, edges[1:], strict=False):
        kernels.clear_bits(offsets, posted, ascend, slices, first, last, np.array(node_of_row, np.int32), array)
    expected = naive.clear_bits(rows[n // 9 :], node_of_row, node, bits)
    assert array.tolist() == naive.clear_bits(rows[: n // 9], node_of_row, node + 1, expected)


@WAYS
@quick
@given(shards(), st.booleans(), st.integers(0, 70))
def test_count_place_and_move(kernels, shard, default_is_left, edge):
    node_of_row, bits, rows = shard
    left, right = naive.partition(rows, bits, default_is_left)
    n, edge = len(rows), min(edge, len(rows))
    both = np.full((2, n + 6), -1, np.int32)
    both[1, 3 : 3 + n] = rows
    chunks = np.zeros((3, kernels.N_FIELDS), np.int64)
    other = 4, 5, not default_is_left  # of a node without rows
    for chunk, (begin, end, *children) in zip(
        chunks, [(3, 3 + edge, 11, 12, default_is_left), (3 + edge, 3 + n, 11, 12, default_is_left), (3 + n, 3 + n, *other)],
        strict=True,
    ):  # fmt: skip
        chunk[: kernels.N_LEFT] = 1, begin, end, *children
    nodes, held = np.array(node_of_row, np.int32), np.array(bits, np.uint8)
    alone = nodes.copy()
    kernels.count_left(0, 1, both, held, chunks)
    kernels.count_left(1, 3, both, held, chunks)
    kernels.place(chunks)
    assert chunks[0, kernels.AT_RIGHT] == 3 + len(left)
    for part in ((1, 3), (0, 1)):
        kernels.descend(*part, held, chunks, both, alone)
        kernels.move(*part, held, chunks, both, nodes)
    assert both[0].tolist() == [-1, -1, -1, *left, *right, -1, -1, -1]
    expected = [11 if r in left else 12 if r in right else node for r, node in enumerate(node_of_row)]
    assert nodes.tolist() == alone.tolist() == expected


@WAYS
def test_add_values(kernels):
    margins = np.array([0.1, 0.2, 0.3], np.float32)
    kernels.add_values(np.array([4, 0, 4], np.int32), np.array([0, 9, 9, 9, 0.7], np.float32), margins)
    expected = [np.float32(0.1) + np.float32(0.7), np.float32(0.2), np.float32(0.3) + np.float32(0.7)]
    assert margins.tolist() == [float(margin) for margin in expected]

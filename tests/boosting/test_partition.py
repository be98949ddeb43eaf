"""Rows grouped by node, while bits split them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting import partition as module
from psboost.boosting.partition import RowPartition, bits_of, words_of
from psboost.cluster.threads import side_by_side
from tests.naive import routing as naive


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), max_size=130))
def test_words_and_bits(bits):
    words = words_of(np.array(bits, np.uint8))
    assert words.tolist() == naive.to_words(bits)
    assert bits_of(words, len(bits)).tolist() == bits


@pytest.fixture(params=[1, 7, module.CHUNK_ROWS])
def chunk_rows(request, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_ROWS", request.param)
    monkeypatch.setattr(module, "GROUP_ROWS", 2 * request.param)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []), ([1], [(0, 1)]), ([9, 1, 1], [(0, 1), (1, 3)]), ([4, 3, 3, 0, 8, 1], [(0, 2), (2, 5), (5, 6)]),
        ([0, 0], [(0, 2)]),
    ],
)  # fmt: skip
def test_what_is_grouped_is_worth_a_thread(sizes, expected, monkeypatch):
    monkeypatch.setattr(module, "GROUP_ROWS", 6)
    assert module.groups_of(sizes) == expected


@pytest.mark.parametrize("n_threads", [1, 3])
def test_splits_move_the_rows_of_two_partitions_of_one_shard(chunk_rows, n_threads):
    with side_by_side(n_threads, "test") as threads:
        for seed in range(30):
            check_splits(np.random.default_rng(seed), threads)


def check_splits(rng, threads):
    n_train, n_eval, n_levels = rng.integers(0, [90, 90, 5])
    n_rows = n_train + n_eval
    node_of_row = np.full(n_rows, 99, np.int32)
    partitions = [RowPartition(0, n_train, node_of_row), RowPartition(n_train, n_rows, node_of_row)]
    for _ in range(2):
        for partition in partitions:
            partition.reset()
        members, n_nodes = {0: list(range(n_rows))}, 1
        for _ in range(n_levels):
            nodes = [node for node in sorted(members) if rng.random() < 0.7]
            children = [(node, n_nodes + 2 * i, n_nodes + 2 * i + 1) for i, node in enumerate(nodes)]
            n_nodes += 2 * len(nodes)
            bits, left_bits = rng.random(n_rows) < rng.choice([0, 0.5, 1]), rng.integers(0, 2, len(nodes), dtype=np.uint8)
            for partition in partitions:
                partition.split(children, bits.astype(np.uint8), left_bits, side_by_side=threads)
            for (node, left, right), left_bit in zip(children, left_bits, strict=True):
                members[left], members[right] = naive.partition(members.pop(node), bits.tolist(), left_bit)
        for node, rows in members.items():
            held = [partition.rows(node).tolist() for partition in partitions]
            assert held == [[r for r in rows if r < n_train], [r for r in rows if r >= n_train]]
            assert (node_of_row[rows] == node).all()

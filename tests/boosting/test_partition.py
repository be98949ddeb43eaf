"""Rows grouped by node, while bitvectors split them."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting.partition import RowPartition, n_words
from tests.naive import routing as naive


def test_words():
    assert [n_words(n) for n in (0, 1, 64, 65, 128, 129)] == [0, 1, 1, 2, 2, 3]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 90), st.integers(0, 90), st.integers(0, 6))
def test_splits_move_the_rows_of_two_partitions_of_one_shard(seed, n_train, n_eval, n_splits):
    rng = np.random.default_rng(seed)
    n_rows = n_train + n_eval
    node_of_row = np.full(n_rows, 99, np.int32)
    partitions = [RowPartition(0, n_train, node_of_row), RowPartition(n_train, n_rows, node_of_row)]
    for _ in range(2):
        for partition in partitions:
            partition.reset()
        members = {0: list(range(n_rows))}
        for split in range(n_splits):
            node = int(rng.choice(sorted(members)))
            left, right = 2 * split + 1, 2 * split + 2
            bits = (rng.random(n_rows) < 0.5).tolist()
            words, default_is_left = np.array(naive.to_words(bits), np.uint64), bool(rng.integers(2))
            for partition in partitions:
                partition.split(node, words, default_is_left, left, right)
            members[left], members[right] = naive.partition(members.pop(node), bits, default_is_left)
        for node, rows in members.items():
            held = [partition.rows(node).tolist() for partition in partitions]
            assert held == [[r for r in rows if r < n_train], [r for r in rows if r >= n_train]]
            assert (node_of_row[rows] == node).all()

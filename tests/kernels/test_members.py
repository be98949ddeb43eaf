"""Kernels that move a node's rows to its children beside the slow twins, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import members
from tests.naive import routing as naive
from tests.plain import both_ways
from tests.shards import edges_of, members_of, shards, words_of

WAYS = pytest.mark.parametrize("kernels", both_ways(members), ids=["compiled", "plain"])
quick = settings(max_examples=60, deadline=None)


@WAYS
@quick
@given(shards(), st.booleans(), st.booleans(), st.integers(0, 400))
def test_bits_are_split_listed_and_numbered(kernels, shard, default_is_left, in_parts, n_train):
    node_of_row, bits, _ = shard
    n_rows, words = len(bits), words_of(bits)
    rows = [row for row, node in enumerate(node_of_row) if node == 3]
    left, right = naive.partition(rows, bits, default_is_left)
    held = members_of(node_of_row, [4, 3])
    others = held[0].copy()
    splits = np.array([[1, 2, default_is_left, 11, 12]], np.int64)
    parts = [(first // 64, (last + 63) // 64) for first, last in edges_of(n_rows, in_parts)]
    numbers = np.array(node_of_row, np.int32)
    counts, listed, n_listed = np.zeros((len(parts), 2), np.int64), np.full(n_rows, -1, np.int32), 0
    for part, of_part in zip(parts, counts, strict=True):
        kernels.number_members(splits, *part, words, held, numbers)
        kernels.split_members(splits, *part, words, held, of_part)
        n_left = int(of_part[0])
        lists = np.array([[1, n_train, n_listed, n_listed + n_left]], np.int64)
        kernels.list_members(lists, *part, held, listed)
        assert n_listed <= lists[0, kernels.LIST_END] <= n_listed + n_left
        n_listed = int(lists[0, kernels.LIST_END])
    of_children = [words_of([row in child for row in range(n_rows)]).tolist() for child in (left, right)]
    assert held.tolist() == [others.tolist(), *of_children]
    assert counts.sum(axis=0).tolist() == [len(left), len(right)]
    assert listed[:n_listed].tolist() == [row for row in left if row < n_train]
    assert listed[len(left) :].tolist() == [-1] * (n_rows - len(left))
    expected = [11 if r in left else 12 if r in right else node for r, node in enumerate(node_of_row)]
    assert numbers.tolist() == expected


@WAYS
@quick
@given(shards(), st.booleans())
def test_lists_are_split_and_numbered(kernels, shard, default_is_left):
    """Two lists, with other numbers before, between and behind them."""
    node_of_row, bits, own = shard
    others = [row for row in range(len(bits)) if row not in own]
    ways = [(own, default_is_left), (others, not default_is_left)]
    rows = np.array([-7, *own, -8, -9, *others, -7], np.int32)
    begins = [1, 3 + len(own)]
    held = np.full((8, members.N_HELD), -5)
    held[:2] = [[-1, at, at + len(of)] for at, (of, _) in zip(begins, ways, strict=True)]
    splits = np.array([[k, 0, 0, 0, 0, way[1], 1] for k, way in enumerate(ways)], np.int32)
    moves, room, words = np.empty((2, members.N_FIELDS), np.int64), np.array([0, 7]), words_of(bits)
    numbers, spans = np.array(node_of_row, np.int32), np.empty((2, 2), np.int64)
    assert kernels.plan_moves(splits, 4, False, held, room, moves) == 0
    kernels.number_lists(moves, words, rows, numbers)
    nothing, spare = np.empty((1, 0), np.int64), np.empty(len(bits) + 1, np.int32)
    lists = np.empty((0, members.N_LIST_FIELDS), np.int64)
    assert kernels.settle(splits, 4, moves, 0, nothing, words, len(bits), rows, spare, held, room, lists) == 0
    kernels.find_spans(splits, 4, held, rows, len(bits), lists, 1, spans)
    expected, parts = list(node_of_row), []
    for k, (of, left_bit) in enumerate(ways):
        parts.append(naive.partition(of, bits, left_bit))
        for child, part in zip((4 + 2 * k, 5 + 2 * k), parts[-1], strict=True):
            for row in part:
                expected[row] = child
    assert numbers.tolist() == expected
    assert rows.tolist() == [-7, *parts[0][0], *parts[0][1], -8, -9, *parts[1][0], *parts[1][1], -7]
    middles = [at + len(left) for at, (left, _) in zip(begins, parts, strict=True)]
    ends = [at + len(of) for at, (of, _) in zip(begins, ways, strict=True)]
    assert held[:2].tolist() == [[-1, 0, 0]] * 2 and room.tolist() == [0, 7]
    cuts = zip(begins, middles, ends, strict=True)
    assert held[4:].tolist() == [[-1, *span] for a, b, c in cuts for span in ((a, b), (b, c))]
    assert spans.tolist() == [list(pair) for pair in zip(begins, middles, strict=True)]

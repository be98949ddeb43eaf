"""Kernels that move a node's rows to its children beside the slow twins, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import members
from psboost.kernels.splits import BUILD_LEFT, N_SPLIT, NODE, UNSTORED_LEFT
from tests.naive import routing as naive
from tests.plain import both_ways
from tests.shards import edges_of, members_of, shards, words_of

WAYS = pytest.mark.parametrize("kernels", both_ways(members), ids=["compiled", "plain"])
quick = settings(max_examples=60, deadline=None)


def splits_of(*splits):
    """Of (node, whether its bit 1 is that of those that go left, whether the left child is built)."""
    fields = np.zeros((len(splits), N_SPLIT), np.int32)
    fields[:, [NODE, UNSTORED_LEFT, BUILD_LEFT]] = splits
    return fields


@WAYS
@quick
@given(shards(), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 400))
def test_bits_are_split_listed_and_numbered(kernels, shard, left_bit, build_left, in_parts, n_train):
    """Node 0 of a chunk at place 1; another one is at place 0, place 2 is free, and a list of three rows is there."""
    node_of_row, bits, _ = shard
    n_rows, words, expected = len(bits), words_of(bits), list(node_of_row)
    places, splits = members_of(node_of_row, [4, 3]), splits_of((0, left_bit, build_left))
    numbers, of_leaves = np.array(node_of_row, np.int32), np.array(node_of_row, np.int32)
    for first_row, last_row in edges_of(n_rows, in_parts):
        first, last = first_row // 64, (last_row + 63) // 64
        own = [row for row in range(first_row, last_row) if node_of_row[row] == 3]
        children = naive.partition(own, bits, left_bit)
        for child, of_child in enumerate(children, 1):
            for row in of_child:
                expected[row] = child
        held = np.full((3, members.N_HELD), -5)
        held[0] = 1, 0, 0
        lists, spare = np.full(2 * (last_row - first_row + 3), -7, np.int32), np.empty(last - first + 1, np.int32)
        again = held.copy()
        kernels.number_children(splits, 1, first, last, words, places, lists, again, numbers)
        assert again.tolist() == [[-1, 0, 0]] * 3
        room, spans, others = np.array([1, 3, 2, 77]), np.empty((1, 2), np.int64), places[0].tolist()
        kernels.split_rows(splits, 1, first, last, n_train, words, places, lists, spare, held, room, spans)
        small = [child for child in children if len(child) <= last - first]
        assert room[: members.FIRST_FREE].tolist() == [len(small), 3 + sum(map(len, small))]
        assert held[0].tolist() == [-1, 0, 0] and places[0].tolist() == others
        for child, (place, begin, end) in zip(children, held[1:].tolist(), strict=True):
            assert (place < 0) == (len(child) <= last - first)
            if place < 0:
                assert lists[begin:end].tolist() == child
            else:
                of_child = words_of([row in child for row in range(n_rows)])
                assert places[place, first:last].tolist() == of_child[first:last].tolist()
        [[begin, end]], built = spans.tolist(), children[0 if build_left else 1]
        assert lists[begin:end].tolist() == [row for row in built if row < n_train]
        assert begin >= len(lists) // 2 or len(built) <= last - first
        assert lists[:3].tolist() == [-7] * 3
        kernels.number_leaves(3, first, last, places, lists, held, of_leaves)
    assert numbers.tolist() == of_leaves.tolist() == expected


@WAYS
@quick
@given(shards(), st.booleans(), st.booleans(), st.integers(0, 400))
def test_lists_are_split_and_numbered(kernels, shard, left_bit, build_left, n_train):
    """Two lists, with other numbers before, between and behind them."""
    node_of_row, bits, own = shard
    others = [row for row in range(len(bits)) if row not in own]
    ways = [(own, left_bit), (others, not left_bit)]
    rows = np.array([-7, *own, -8, -9, *others, -7] + [-6] * (len(bits) + 4), np.int32)
    begins = [1, 3 + len(own)]
    held = np.full((6, members.N_HELD), -5)
    held[:2] = [[-1, at, at + len(of)] for at, (of, _) in zip(begins, ways, strict=True)]
    splits = splits_of(*((k, way[1], build_left) for k, way in enumerate(ways)))
    room, words, n_words = np.array([0, 7]), words_of(bits), (len(bits) + 63) // 64
    numbers, spans, places = np.array(node_of_row, np.int32), np.empty((2, 2), np.int64), np.empty((1, n_words), np.uint64)
    again = held.copy()
    kernels.number_children(splits, 2, 0, n_words, words, places, rows, again, numbers)
    assert again.tolist() == [[-1, 0, 0]] * 6
    spare = np.empty(len(bits) + 1, np.int32)
    kernels.split_rows(splits, 2, 0, n_words, n_train, words, places, rows, spare, held, room, spans)
    expected, parts = list(node_of_row), []
    for k, (of, bit) in enumerate(ways):
        parts.append(naive.partition(of, bits, bit))
        for child, part in zip((2 + 2 * k, 3 + 2 * k), parts[-1], strict=True):
            for row in part:
                expected[row] = child
    assert numbers.tolist() == expected
    behind = [-7] + [-6] * (len(bits) + 4)
    assert rows.tolist() == [-7, *parts[0][0], *parts[0][1], -8, -9, *parts[1][0], *parts[1][1], *behind]
    middles = [at + len(left) for at, (left, _) in zip(begins, parts, strict=True)]
    ends = [at + len(of) for at, (of, _) in zip(begins, ways, strict=True)]
    assert held[:2].tolist() == [[-1, 0, 0]] * 2 and room.tolist() == [0, 7]
    cuts = zip(begins, middles, ends, strict=True)
    assert held[2:].tolist() == [[-1, *span] for a, b, c in cuts for span in ((a, b), (b, c))]
    for (begin, end), children in zip(spans.tolist(), parts, strict=True):
        assert rows[begin:end].tolist() == [row for row in children[0 if build_left else 1] if row < n_train]

"""Rows grouped by node, while bits split them."""

import numpy as np
import pytest

from psboost.boosting import partition as module
from psboost.boosting.partition import RowPartition, chunks_of
from psboost.cluster.threads import side_by_side
from psboost.kernels import members as kernels
from psboost.kernels import node_builds
from psboost.kernels.splits import BUILD_LEFT, N_SPLIT, NODE, UNSTORED_LEFT
from tests.naive import routing as naive


@pytest.mark.parametrize(
    ("n_rows", "n_threads", "edges"),
    [(0, 2, [0, 0]), (99, 1, [0, 99]), (99, 2, [0, 99]), (300, 2, [0, 128, 300]), (300, 4, [0, 64, 128, 192, 300])],
)
def test_chunks_are_whole_words_and_worth_a_thread(n_rows, n_threads, edges, monkeypatch):
    monkeypatch.setattr(module, "GROUP_ROWS", 100)
    assert chunks_of(n_rows, n_threads) == [slice(*edge) for edge in zip(edges, edges[1:], strict=False)]


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("max_depth", [0, 6])
def test_splits_move_the_rows_of_a_shard(n_threads, max_depth, monkeypatch):
    monkeypatch.setattr(module, "GROUP_ROWS", 40)
    n_large = 0
    with side_by_side(n_threads, "test") as threads:
        for seed in range(60):
            n_large += check_splits(np.random.default_rng(seed), max_depth, n_threads, threads(n_threads))
    assert n_large > 100  # beside small ones: a shard of 400 rows has seven words


def check_splits(rng, max_depth, n_threads, threads):
    """Returns how many of the nodes that were split were large."""
    n_train, n_eval, n_levels = rng.integers(0, [400, 90, 6])
    n_rows, n_large = n_train + n_eval, 0
    packed = ((rng.integers(-(2**15), 2**15, n_train) << 32) + rng.integers(0, 2**16, n_train)).astype(np.int64)
    partition = RowPartition(n_rows, n_train, max_depth, packed, n_threads, threads)
    for _ in range(2):
        partition.reset(np.zeros((1, node_builds.N_SUMS), np.int64))
        assert rows_listed(partition) == [list(range(n_train))]
        members, n_nodes = {0: list(range(n_rows))}, 1
        for level in range(n_levels):
            nodes = [node for node in sorted(members) if rng.random() < 0.7]
            if not nodes:
                continue
            children = [(node, n_nodes + 2 * i, n_nodes + 2 * i + 1) for i, node in enumerate(nodes)]
            n_nodes += 2 * len(nodes)
            n_large += sum(held_as_bits(partition, node) for node in nodes)
            bits, left_bits = rng.random(n_rows) < rng.choice([0, 0.5, 1]), rng.integers(0, 2, len(nodes)).tolist()
            build_left = rng.integers(0, 2, len(nodes)).tolist()
            words, last = np.array(naive.to_words(bits), np.uint64), level == n_levels - 1
            partition.split(splits_of(nodes, left_bits, build_left), words, last=last)
            for (node, left, right), left_bit in zip(children, left_bits, strict=True):
                members[left], members[right] = naive.partition(members.pop(node), bits.tolist(), left_bit)
            if last:
                continue
            listed = [left if is_left else right for (_, left, right), is_left in zip(children, build_left, strict=True)]
            assert rows_listed(partition) == [[row for row in members[node] if row < n_train] for node in listed]
            for i, (sums, rows) in enumerate(zip(partition.listed.sums.tolist(), rows_listed(partition), strict=True)):
                spans = partition.listed.spans[i].reshape(-1, 2).tolist()
                assert [x for begin, end in spans for x in partition.listed.packed[begin:end]] == packed[rows].tolist()
                grads, hesses = packed[rows] >> 32, packed[rows] & 0xFFFFFFFF
                most = np.abs(grads).max(initial=0), hesses.max(initial=0)
                assert sums == [grads.sum(), hesses.sum(), np.abs(grads).sum(), *most]
            assert members == {node: rows_of(partition, node) for node in members}
        partition.finish()
        for node, rows in members.items():
            assert (partition.node_of_row[rows] == node).all()
    return n_large


def splits_of(nodes, left_bits, build_left):
    fields = np.zeros((len(nodes), N_SPLIT), np.int32)
    fields[:, NODE], fields[:, UNSTORED_LEFT], fields[:, BUILD_LEFT] = nodes, left_bits, build_left
    return fields


def rows_listed(partition):
    listed = partition.listed
    spans = listed.spans.reshape(len(listed.spans), -1, 2).tolist()
    nodes = [sum((listed.rows[begin:end].tolist() for begin, end in of_node), []) for of_node in spans]
    assert [listed.size(i) for i in range(len(nodes))] == [*map(len, nodes)]
    return nodes


def chunks_held(partition):
    """The rows of each chunk, and where its nodes' are."""
    held = []
    partition.each(lambda rows, members: held.append((rows, members)))
    return sorted(held, key=lambda chunk: chunk[0].start)


def held_as_bits(partition, node):
    """In how many chunks."""
    return sum(int(members.held[node, kernels.PLACE] >= 0) for _, members in chunks_held(partition))


def rows_of(partition, node):
    found = []
    for rows, members in chunks_held(partition):
        place, begin, end = members.held[node].tolist()
        if place < 0:
            found += members.rows[begin:end].tolist()
        else:
            found += [row for row in range(rows.start, rows.stop) if int(members.words[place, row // 64]) >> row % 64 & 1]
    return found


def test_no_tree_has_more_nodes_held_as_bits_than_there_are_places():
    n_rows = 64 * 64 + 1
    partition = RowPartition(n_rows, n_rows, 0, np.zeros(n_rows, np.int64))
    partition.reset(np.zeros((1, node_builds.N_SUMS), np.int64))
    nodes, n_nodes = [0], 1
    for level in range(12):
        bits = [row >> level & 1 for row in range(n_rows)]
        partition.split(splits_of(nodes, 1, 0), np.array(naive.to_words(bits), np.uint64))
        nodes, n_nodes = list(range(n_nodes, n_nodes + 2 * len(nodes))), n_nodes + 2 * len(nodes)
        n_large = sum(held_as_bits(partition, node) for node in nodes)
        assert n_large < kernels.N_PLACES
    assert n_large == 0
    partition.finish()
    assert sorted(np.bincount(partition.node_of_row)[nodes].tolist()) == [1] * 4095 + [2]

"""Flags of living features there and back beside Python's sets, and memory that is too small, compiled and as plain Python.

What the nodes' histograms come to is tests/boosting/test_split.py's.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psboost.kernels import node_histograms, open_nodes
from tests.plain import as_python, both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(open_nodes), ids=["compiled", "plain"])
RUNS = st.sets(st.integers(0, 199), max_size=20).map(set(range(200)).difference)
FEATURES = st.one_of(st.sets(st.integers(0, 199), max_size=90), RUNS)
LISTS = st.lists(FEATURES, min_size=1, max_size=4)


def laid_out(lists):
    """features, offsets"""
    return np.array([f for one in lists for f in sorted(one)], np.int32), np.cumsum([0, *map(len, lists)])


def some_of(features, random):
    """Whole runs of them and single ones."""
    low, high = sorted(random.choices(range(len(features) + 1), k=2))
    mixture = features[low:high]
    return {*features[:low], *random.sample(mixture, random.randint(0, len(mixture)))}


@WAYS
@given(LISTS, st.randoms(), st.integers(0, 200))
def test_flags_say_what_lives_and_choose_it_again(kernels, lists, random, edge):
    features, offsets = laid_out(lists)
    nodes_have = [some_of(sorted(one), random) for one in lists for _ in range(2)]
    held, places = laid_out(nodes_have)
    nodes = np.zeros((len(nodes_have), open_nodes.N_FIELDS), np.int64)
    nodes[:, open_nodes.AT_FEATURE], nodes[:, open_nodes.N_FEATURES] = places[:-1], np.diff(places)

    of_ranges = []
    for first, last in ((0, 200), (0, edge), (edge, 200)):
        words = np.full(2 * len(features) // 64 + 1, 0xABAB, np.uint64)
        n_flags = kernels.flag_living(held, nodes, features, offsets, first, last, words)
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        expected = [f in has for i, has in enumerate(nodes_have) for f in sorted(lists[i // 2]) if first <= f < last]
        assert bits[:n_flags].tolist() == expected
        assert not bits[n_flags : -(-n_flags // 64) * 64].any()
        of_ranges.append(words[: -(-n_flags // 64)])

    counts = np.empty(2, np.int64)
    kernels.count_flags(features, offsets, np.array([0, edge, 200]), len(nodes), counts)
    n_low = 2 * sum(f < edge for one in lists for f in one)
    assert counts.tolist() == [n_low, 2 * len(features) - n_low]
    positions = np.array(sorted(random.sample(range(len(nodes)), random.randint(1, len(nodes)))))
    expected, ends = laid_out([nodes_have[p] for p in positions])
    for edges, flags in (([0, 200], of_ranges[:1]), ([0, edge, 200], of_ranges[1:])):
        chosen, chosen_offsets = np.empty(2 * len(features) + 1, np.int32), np.empty(len(positions) + 1, np.int64)
        first_words = np.cumsum([0, *map(len, flags)])
        flags = np.concatenate((*flags, np.array([0xABAB], np.uint64)))
        kernels.choose_living(features, offsets, np.array(edges), flags, first_words, positions, chosen, chosen_offsets)
        np.testing.assert_array_equal(chosen_offsets, ends)
        np.testing.assert_array_equal(chosen[: ends[-1]], expected)


@WAYS
@pytest.mark.parametrize("small", [None, 0, 1, 2], ids=["enough", "features", "bins", "slots"])
def test_nothing_is_done_where_memory_is_too_small(kernels, small):
    """A root of two features of one bin; the child takes as much memory as the root, of which it uses half."""
    sizes = [3 + 3, 2 + 2, 2 + 2]
    if small is not None:
        sizes[small] -= 1
    n_features, n_bins, n_slots = sizes
    memory = node_histograms.NodeHistogram(
        *(np.zeros(size, np.int32) for size in (n_features, n_features, n_bins)), np.zeros(n_slots, np.int64)
    )
    for array, values in zip(memory, ([0, 1], [0, 1, 2], [0, 1], [(7 << 32) + 2, (-3 << 32) + 1]), strict=True):
        array[: len(values)] = values
    used, left = np.array([3, 2, 2]), np.array([1], np.uint8)
    root = np.array([[0, 0, 0, 2, 2, 0, 4, 3, 10]])
    nodes = np.zeros((2, open_nodes.N_FIELDS), np.int64)
    acc, total = np.array([7 << 32 | 2, 0]), np.array([7, 2, 7])
    done = kernels.add_sums(memory, used, root, left, 0, acc, total, 1, True, nodes)
    if small is not None:
        assert acc.any()
        assert done == 0 and used.tolist() == [3, 2, 2]
        return
    assert not acc.any()
    assert done == 1 and used.tolist() == [5, 3, 3]
    assert nodes.tolist() == [[3, 2, 2, 1, 1, 0, 7, 2, 7], [0, 0, 0, 1, 1, 0, -3, 1, 3]]
    for node, feature, sums in ((nodes[0], 0, (7 << 32) + 2), (nodes[1], 1, (-3 << 32) + 1)):
        held = as_python(open_nodes).histogram_of(memory, node)
        assert [array.tolist() for array in held] == [[feature], [0, 1], [feature], [sums]]

"""Split rules, the order of splits, and a finder that keeps histograms over the levels of a tree."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting.fixed_point import Steps
from psboost.boosting.histogram import HistogramMerger, NodeSums, Total
from psboost.boosting.split import MIN_GAIN, FeatureRange, Proposals, SplitFinder, SplitRule, best_of
from psboost.errors import ProtocolError
from psboost.kernels.open_nodes import UNKNOWN
from psboost.kernels.splits import FEATURE, LEFT_GRAD, N_PROPOSED, NODE_GRAD, NODE_HESS
from psboost.wire.messages import ProposeSplits
from tests.boosting.test_histogram import BIN_OFFSETS, builder, dense_builder, make_block, node_rows, pack
from tests.naive import histograms as naive_histograms
from tests.naive import splits as naive

STEPS = Steps(grad=0.25, hess=0.5, leaf_grad=1.0, leaf_hess=1.0)


@pytest.mark.parametrize(
    ("alpha", "grad", "hess", "value"),
    [
        (0, 6, 2, -2), (0, -6, 2, 2), (1, 6, 2, -5 / 3), (1, -6, 2, 5 / 3), (9, 6, 2, 0), (0, 6, 0, 0),
        (0, 0, 5, 0),
    ],  # fmt: skip
)
def test_leaf_value(alpha, grad, hess, value):
    values = SplitRule(1.0, alpha, 0.0, 0.0).leaf_values(np.array([[grad, hess], [grad, 0]], np.float64), 0.5)
    assert values.dtype == np.float32 and values == pytest.approx([value / 2, 0])
    [most] = SplitRule(0.0, alpha, 0.0, 0.0).leaf_values(np.array([[-1e300, 1e-3]]), 1.0)
    assert most == np.finfo(np.float32).max  # what JSON holds


def test_better_is_one_order_of_all_features():
    ways = list(itertools.product((-np.inf, 1.0, 2.0), (-1, 4, 7)))
    splits = Proposals(np.empty(len(ways)), np.zeros((len(ways), N_PROPOSED), np.int64))
    for i, (gain, feature) in enumerate(ways):
        splits.gains[i], splits.fields[i, FEATURE] = gain, feature
    splits.fields[:, LEFT_GRAD] = np.arange(len(ways))

    pairs = np.array(list(itertools.product(range(len(ways)), repeat=2)))
    a, b = (Proposals(splits.gains[numbers], splits.fields[numbers]) for numbers in pairs.T)
    best, alone = best_of([b, a]), best_of([a])
    assert alone is a
    for i, (first, second) in enumerate(pairs.tolist()):
        one, other = ways[first], ways[second]
        expected = first if (-one[0], one[1]) < (-other[0], other[1]) else second
        assert (best.gains[i], best.fields[i].tolist()) == (ways[expected][0], splits.fields[expected].tolist())


@pytest.mark.parametrize(("n_gains", "n_splits"), [(2, 2), (3, 2), (2, 3)])
def test_proposals_of_other_nodes_are_refused(n_gains, n_splits):
    fields = np.zeros((n_splits, N_PROPOSED), np.int64)
    told = ProposeSplits(tree=0, level=0, gains=np.zeros(n_gains), fields=fields, living=())
    with pytest.raises(ProtocolError, match=f"proposals of {n_gains} gains and {n_splits} splits, expected 3"):
        Proposals.of(told, 3)


def make_range(ids, n_bins, zeros):
    """A FeatureRange; zeros = [(zero_bin, nan_bin)]."""
    pairs = [[-1 if b is None else b for b in pair] for pair in zeros]
    return FeatureRange(
        ids=np.array(ids, np.int64),
        shards=np.arange(len(ids), dtype=np.int32) % 2,
        locals=np.arange(len(ids), dtype=np.int32) + 10,
        bin_offsets=np.cumsum([0, *n_bins]).astype(np.int32),
        default_bins=np.array(pairs, np.int32).reshape(-1),
    )


def lived_in_parent(living, position):
    return living.features[living.offsets[position // 2] : living.offsets[position // 2 + 1]]


def sums_of(histogram, total, n_bins, packed, size=None):
    """A node's sums in an accumulator. Of packed ones, `size` says what its rows' absolute grads come to."""
    acc = np.zeros((n_bins, 2), np.int64)
    for bin_, sums in histogram.items():
        acc[bin_] = sums
    if packed:
        return NodeSums((acc[:, 0] << 32) + acc[:, 1], Total(*total, int(abs(acc[:, 0]).sum()) if size is None else size))
    return NodeSums(acc.reshape(-1), Total(*total, UNKNOWN))


@settings(max_examples=80, deadline=None)
@given(
    st.integers(0, 2**32), st.sampled_from([0.0, 1.0, 2.5]), st.sampled_from([0.0, 0.5, 3.0]),
    st.booleans(), st.sampled_from([0.0, 0.5]), st.booleans(),
)  # fmt: skip
def test_levels_of_a_tree(seed, min_child_weight, gamma, zeros_count, reg_alpha, packed):
    """Only one child of each split is built; both children's best splits are those of the brute force."""
    rng = np.random.default_rng(seed)
    ids, n_cuts = [9, 4, 30, 2], [3, 2, 4, 1]
    zeros = [(int(rng.integers(n)), n) if zeros_count else (None, None) for n in n_cuts]
    n_bins = [n + zeros_count for n in n_cuts]
    features = make_range(ids, n_bins, zeros)
    rule = SplitRule(1.0, reg_alpha, gamma, min_child_weight)
    finder = SplitFinder(features, rule)
    least = max(1, int(np.ceil(min_child_weight / STEPS.hess)))
    naive_rule = naive.Rule(STEPS.grad, STEPS.hess, 1.0, reg_alpha, MIN_GAIN, least)
    by_id = dict(zip(ids, zeros, strict=True))

    rows, values = [], []
    for _ in range(24):
        stored = [(f, n) for f, n in zip(ids, n_bins, strict=True) if rng.random() < 0.5]
        rows.append({f: int(rng.integers(n)) for f, n in stored})
        hess = int(rng.integers(0, 4))
        values.append((int(rng.integers(-6, 7)) if hess else 0, hess))

    def histogram(which, living):
        begins = dict(zip(ids, features.bin_offsets.tolist(), strict=False))
        as_bins = [[begins[f] + b for f, b in rows[i].items() if f in living] for i in which]
        return naive_histograms.build(as_bins, range(len(which)), [values[i] for i in which])

    for _ in range(2):  # a second tree starts anew
        finder.start_tree(STEPS)
        nodes, lived = [list(range(len(rows)))], [set(ids)]
        built = [0]
        for _level in range(3):
            for i in built:
                total = naive_histograms.sums(nodes[i], values)
                size = sum(abs(values[r][0]) for r in nodes[i])
                finder.add(sums_of(histogram(nodes[i], lived[i]), total, sum(n_bins), packed, size))
            proposals, living_of = finder.find(), finder.living
            chosen, children, next_lived, build_left = [], [], [], []
            for i, which in enumerate(nodes):
                node_rows, node_values = [rows[r] for r in which], [values[r] for r in which]
                gain_found, fields = proposals.gains[i], proposals.fields[i]
                assert fields[[NODE_GRAD, NODE_HESS]].tolist() == list(naive_histograms.sums(which, values))
                living = {f for f in lived[i] if naive.lives(node_rows, node_values, f, least)}
                assert {ids[f] for f in lived_in_parent(living_of, i)} == lived[i]
                alive = living_of.of_children(np.array([i]), [finder.flags(0, len(ids))[0]], np.array([0, len(ids)]))
                assert {ids[f] for f in alive.features} == living
                best = naive.find_split(node_rows, node_values, by_id, naive_rule)
                if best is None or best[0] < gamma:
                    assert gain_found == -np.inf and fields[:NODE_GRAD].tolist() == [-1, 0, 0, 0, 0, 0, 0, 0]
                    continue
                gain, feature, bin_, default_left, left_sums = best
                place = ids.index(feature) % 2, ids.index(feature) + 10
                assert gain_found == gain
                unstored_left = naive.goes_left({}, feature, bin_, default_left, *by_id[feature])
                assert fields[:NODE_GRAD].tolist() == [feature, *place, bin_, default_left, unstored_left, *left_sums]
                side = [naive.goes_left(rows[r], feature, bin_, default_left, *by_id[feature]) for r in which]
                chosen.append(i)
                children.append([r for r, left in zip(which, side, strict=True) if left])
                children.append([r for r, left in zip(which, side, strict=True) if not left])
                next_lived += [living, living]
                build_left.append(bool(rng.integers(2)))
            if not chosen:
                break
            finder.apply(chosen, np.array(build_left, np.uint8))
            nodes, lived = children, next_lived
            built = [2 * k + (not left) for k, left in enumerate(build_left)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("child", [{0: (-4, 3)}, {0: (-4, 2), 2: (1, 1)}], ids=["more", "another bin"])
def test_a_child_that_is_not_part_of_its_parent(child, packed):
    finder = SplitFinder(make_range([1, 2], [2, 2], [(None, None)] * 2), SplitRule(1.0, 0.0, 0.0, 0.0))
    finder.start_tree(STEPS)
    finder.add(sums_of({0: (-4, 2), 1: (4, 2)}, (0, 4), 4, packed=packed))
    finder.find()
    finder.apply([0], np.array([1], np.uint8))
    merger, (bins, sums) = HistogramMerger(np.array([0, 2, 4], np.int32)), zip(*child.items(), strict=True)
    columns = zip(merger.entries.room(0, len(child)), (bins, *zip(*sums, strict=True)), strict=True)
    for held, values in columns:
        held[: len(child)] = values
    part = merger.entries.histograms(np.array([0, len(child)]))
    with pytest.raises(ProtocolError, match="not part of its parent"):
        finder.add(merger.sum([(0, part)], np.array([[-4, 3, 4 if packed else UNKNOWN]])))


def test_no_features():
    finder = SplitFinder(make_range([], [], []), SplitRule(1.0, 0.0, 0.0, 1.0))
    for _ in range(2):
        finder.start_tree(STEPS)
        finder.add(sums_of({}, (3, 4), 0, packed=True))
        proposals = finder.find()
        assert proposals.gains.tolist() == [-np.inf] and proposals.fields.tolist() == [[-1, *[0] * 7, 3, 4]]
        assert finder.flags(0, 0)[1] == len(lived_in_parent(finder.living, 0)) == 0


def test_sums_are_packed_as_soon_as_they_fit():
    """A root in pairs, both of its children packed: each finds the split that it finds in pairs."""
    wide = {0: (-(2**31), 2**20), 1: (2**10, 2**20), 2: (5, 2**10), 3: (-7, 2**12)}
    child = {0: (-(2**31), 2**20), 3: (-6, 2**11)}
    sums = [(wide, (100 - 2**31, 2**22), 2**31 + 2**10 + 12), (child, (-(2**31) - 6, 2**21), 2**31 - 1)]
    found = []
    for packs in (False, True):
        finder = SplitFinder(make_range([4, 9], [2, 2], [(None, None)] * 2), SplitRule(1.0, 0.0, 0.0, 1.0))
        finder.start_tree(STEPS)
        for i, (histogram, total, size) in enumerate(sums):
            given_ = sums_of(histogram, total, 4, packed=packs and i == 1)
            finder.add(NodeSums(given_.acc, Total(*total, size if packs else UNKNOWN)))
            proposals = finder.find()
            finder.apply([0], np.array([1], np.uint8))
        found.append([array.tolist() for array in vars(proposals).values()])
    assert found[0] == found[1] and len(found[0][0]) == 2


@pytest.mark.parametrize("make", [builder, lambda rows: dense_builder(rows, np.uint8)], ids=["sparse", "dense"])
@pytest.mark.parametrize("grad_bits", [16, 32])
def test_sums_that_are_built_when_they_are_asked_for(make, grad_bits):
    """All nodes of a level at once, by bins and by rows, packed and in pairs, beside one by one."""
    rows, values = make_block(3, 4000, grad_bits)
    packed, everything = pack(values, grad_bits), np.arange(len(rows))
    levels = [[everything], [everything[:900]], [everything[:30], everything[900:902]]]  # the children that are built
    found = []
    for at_once in (False, True):
        one, features = make(rows), make_range(range(5), np.diff(BIN_OFFSETS), [(None, None)] * 5)
        finder = SplitFinder(features, SplitRule(1.0, 0.0, 0.0, 1.0))
        finder.start_tree(STEPS)
        for n_open, level in enumerate(levels):
            of_level = node_rows(level, packed)
            if at_once:
                finder.add(one.sums(of_level))
            else:
                for i in range(len(level)):
                    finder.add(one.sum(of_level.node(i)))
            found.append([array.tolist() for array in vars(finder.find()).values()])
            finder.apply(list(range(n_open + 1)), np.ones(n_open + 1, np.uint8))
    assert found[:3] == found[3:] and np.isfinite(found[2][0]).any()

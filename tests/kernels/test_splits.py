"""find_split beside a brute force over every partition of the rows, compiled and as plain Python."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import splits
from tests.naive import splits as naive
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(splits), ids=["compiled", "plain"])
RULES = st.builds(
    naive.Rule,
    grad_step=st.sampled_from([2.0**-15, 0.25, 1.0]),
    hess_step=st.sampled_from([2.0**-15, 0.25, 1.0]),
    reg_lambda=st.sampled_from([0.0, 1.0, 3.5]),
    reg_alpha=st.sampled_from([0.0, 0.0, 0.7, 4.0]),
    min_gain=st.sampled_from([1e-6, 1e-6, 0.5, 20.0]),
    least=st.sampled_from([1, 1, 2, 5, 12]),
)


@dataclass
class Found:
    split: tuple | None
    living: list
    kept: dict  # {user feature: {bin: sums}}


@st.composite
def nodes(draw):
    """(rows {feature: bin}, (grad, hess) of each, {feature: (zero_bin, nan_bin)}, {feature: n_bins})"""
    ids = draw(st.lists(st.sampled_from([3, 5, 8, 70, 2**40]), unique=True, min_size=1, max_size=4))
    zeros_count = draw(st.booleans())
    features, n_bins = {}, {}
    for feature in ids:  # in internal order, which is not that of the user's numbers
        n_cuts = draw(st.integers(1, 4))
        has_nan = zeros_count and draw(st.booleans())
        features[feature] = (
            (draw(st.integers(0, n_cuts - 1)), n_cuts if has_nan else None) if zeros_count else (None, None)
        )
        n_bins[feature] = n_cuts + has_nan
    few = draw(st.sampled_from([(-3, 2), (-1, 1), (-(2**20), 2**20)]))
    rows, values = [], []
    for _ in range(draw(st.integers(1, 10))):
        stored = [feature for feature in ids if draw(st.booleans())]
        rows.append({feature: draw(st.integers(0, n_bins[feature] - 1)) for feature in stored})
        hess = draw(st.sampled_from([0, 1, 1, 2, 3]))
        values.append((draw(st.integers(*few)) if hess else 0, hess))
    return rows, values, features, n_bins


def find(kernels, rows, values, features, n_bins, rule, lived=None):
    """find_split on the node's histogram; its answer in the user's numbers."""
    ids = list(features)
    bin_offsets = np.cumsum([0, *n_bins.values()]).astype(np.int32)
    histogram = {}
    for row, (grad, hess) in zip(rows, values, strict=True):
        for feature, bin_ in row.items():
            if hess and (lived is None or feature in lived):
                bin_id = int(bin_offsets[ids.index(feature)]) + bin_
                sums = histogram.get(bin_id, (0, 0))
                histogram[bin_id] = sums[0] + grad, sums[1] + hess
    bins = np.array(sorted(histogram), np.int32)
    grads = np.array([histogram[b][0] for b in sorted(histogram)], np.int64)
    hesses = np.array([histogram[b][1] for b in sorted(histogram)], np.int64)
    default_bins = np.array([-1 if b is None else b for pair in features.values() for b in pair], np.int32)
    parents = [i for i, feature in enumerate(ids) if lived is None or feature in lived]
    living = np.full(len(parents), 9, np.uint8)
    best, best_gain = np.zeros(7, np.int64), np.zeros(1)
    bin_features = np.repeat(np.arange(len(ids), dtype=np.int32), list(n_bins.values()))
    n_kept = kernels.find_split(
        bins, grads, hesses, bin_features, bin_offsets, default_bins,
        np.array(ids, np.int64), np.array(parents, np.int32),
        np.array([*naive.sums_of(range(len(rows)), values), rule.least]),
        np.array([rule.grad_step, rule.hess_step, rule.reg_lambda, rule.reg_alpha, rule.min_gain]),
        living, best, best_gain,
    )  # fmt: skip
    split = None
    if best[splits.FOUND]:
        split = (
            best_gain[0], ids[best[splits.FEATURE]], best[splits.BIN], best[splits.DEFAULT_LEFT],
            (best[splits.LEFT_GRAD], best[splits.LEFT_HESS]),
        )  # fmt: skip
    assert best[splits.N_ENTRIES] == n_kept
    kept = {}
    for bin_id, grad, hess in zip(bins[:n_kept], grads[:n_kept], hesses[:n_kept], strict=True):
        assert histogram[bin_id] == (grad, hess)
        f = int(np.searchsorted(bin_offsets, bin_id, side="right")) - 1
        kept.setdefault(ids[f], {})[int(bin_id - bin_offsets[f])] = int(hess)
    return Found(split, [ids[i] for i, alive in zip(parents, living, strict=True) if alive == 1], kept)


@WAYS
@settings(max_examples=400, deadline=None)
@given(nodes(), RULES)
def test_the_best_of_all_splits(kernels, node, rule):
    rows, values, features, n_bins = node
    found = find(kernels, rows, values, features, n_bins, rule)
    assert found.split == naive.find_split(rows, values, features, rule)
    living = [f for f in features if naive.lives(rows, values, f, rule.least)]
    assert found.living == living
    for feature in features:
        held = {row[feature] for row, (_, hess) in zip(rows, values, strict=True) if feature in row and hess}
        assert found.kept.get(feature, {}).keys() == (held if feature in living else set())


@WAYS
@settings(max_examples=100, deadline=None)
@given(nodes(), RULES, st.data())
def test_features_that_died_above_are_left_out(kernels, node, rule, data):
    rows, values, features, n_bins = node
    lived = {f for f in features if data.draw(st.booleans())}
    found = find(kernels, rows, values, features, n_bins, rule, lived)
    among = {f: pair for f, pair in features.items() if f in lived}
    assert found.split == naive.find_split(rows, values, among, rule)
    assert found.living == [f for f in among if naive.lives(rows, values, f, rule.least)]


PLAIN = naive.Rule(1.0, 1.0, 0.0, 0.0, 1e-6, 1)


@WAYS
def test_known_optimum(kernels):
    # G = (-2, -2, 3, 3), H = 1 each: cut in the middle, 16/2 + 36/2 - 4/4.
    rows = [{1: 0}, {1: 1}, {1: 2}, {1: 3}]
    values = [(-2, 1), (-2, 1), (3, 1), (3, 1)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 4}, PLAIN).split == (25.0, 1, 1, 0, (-4, 2))
    shrunk = naive.Rule(1.0, 1.0, 1.0, 1.0, 1e-6, 1)
    assert find(kernels, rows, values, {1: (None, None)}, {1: 4}, shrunk).split[0] == 9 / 3 + 25 / 3 - 1 / 5
    greedy = naive.Rule(1.0, 1.0, 0.0, 0.0, 25.0, 1)
    assert find(kernels, rows, values, {1: (None, None)}, {1: 4}, greedy).split is None


@WAYS
@pytest.mark.parametrize("order", [(7, 4), (4, 7)])
def test_of_two_equal_features_the_lower_number_wins_in_any_internal_order(kernels, order):
    rows = [{4: 0, 7: 0}, {4: 1, 7: 1}, {4: 1, 7: 1}]
    values = [(-1, 1), (1, 1), (1, 1)]
    features, n_bins = {f: (None, None) for f in order}, dict.fromkeys(order, 2)
    assert find(kernels, rows, values, features, n_bins, PLAIN).split[1] == 4


@WAYS
def test_missing_goes_right_when_it_makes_no_difference(kernels):
    rows = [{1: 0}, {1: 1}, {}]
    values = [(-1, 1), (1, 1), (0, 0)]  # the row without the value has no weight
    assert find(kernels, rows, values, {1: (None, None)}, {1: 2}, PLAIN).split[2:4] == (0, 0)
    # Left {0, missing} | right {1} and left {0} | right {1, missing} gain the same.
    values = [(-2, 1), (2, 1), (0, 1)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 2}, PLAIN).split[2:4] == (0, 0)


@WAYS
def test_the_lower_of_two_equal_bins(kernels):
    rows = [{1: 0}, {1: 1}, {1: 2}]
    values = [(-1, 1), (0, 1), (1, 1)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 3}, PLAIN).split[2] == 0


@WAYS
def test_stored_against_missing(kernels):
    rows = [{1: 0}, {1: 0}, {}, {}]
    values = [(-1, 1), (-1, 1), (1, 1), (1, 1)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 1}, PLAIN).split == (4.0, 1, 0, 0, (-2, 2))
    # Zeros as values: the unstored rows lie in bin 1, NaN alone in bin 2.
    zeros = find(kernels, rows, values, {1: (1, 2)}, {1: 3}, PLAIN)
    assert zeros.split == (4.0, 1, 0, 0, (-2, 2))
    rows = [{1: 2}, {1: 2}, {}, {}]
    nan = find(kernels, rows, values, {1: (1, 2)}, {1: 3}, PLAIN)
    assert nan.split == (4.0, 1, 1, 0, (2, 2))


@WAYS
def test_a_gain_without_a_number_is_no_split(kernels):
    rows, values = [{1: 0}, {1: 1}], [(0, 0), (0, 0)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 2}, PLAIN).split is None
    assert math.isfinite(find(kernels, rows, [(1, 1), (-1, 1)], {1: (None, None)}, {1: 2}, PLAIN).split[0])

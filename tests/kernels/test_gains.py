"""find_split beside a brute force over every partition of the rows, compiled and as plain Python."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import gains, splits
from psboost.kernels.node_histograms import NodeHistogram
from tests.naive import splits as naive
from tests.plain import as_kernel, both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(gains), ids=["compiled", "plain"])
RULES = st.builds(
    naive.Rule,
    grad_step=st.sampled_from([2.0**-15, 0.25, 1.0]),
    hess_step=st.sampled_from([2.0**-15, 0.25, 1.0]),
    reg_lambda=st.sampled_from([0.0, 1.0, 3.5]),
    reg_alpha=st.sampled_from([0.0, 0.0, 0.7, 4.0]),
    min_gain=st.sampled_from([1e-6, 1e-6, 0.5, 20.0]),
    least=st.sampled_from([1, 1, 2, 5, 12]),
)


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


def find(kernels, rows, values, features, n_bins, rule, lived=None, pairs=True):
    """find_split on the histogram of the node's living features; its answer in the user's numbers."""
    ids = list(features)
    bin_offsets = np.cumsum([0, *n_bins.values()]).astype(np.int32)
    living = [f for f in ids if (lived is None or f in lived) and naive.lives(rows, values, f, rule.least)]
    sums, bins, starts = [], [], [0]
    for feature in living:
        held = {}
        for row, (grad, hess) in zip(rows, values, strict=True):
            if hess and feature in row:
                before = held.get(row[feature], (0, 0))
                held[row[feature]] = before[0] + grad, before[1] + hess
        for bin_ in sorted(held):
            bins.append(int(bin_offsets[ids.index(feature)]) + bin_)
            sums += held[bin_] if pairs else [(held[bin_][0] << 32) + held[bin_][1]]
        starts.append(len(bins))
    node = NodeHistogram(
        np.array([ids.index(feature) for feature in living], np.int32), np.array(starts, np.int32),
        np.array(bins, np.int32), np.array(sums, np.int64),
    )  # fmt: skip
    default_bins = np.array([-1 if b is None else b for pair in features.values() for b in pair], np.int32)
    best, best_gain = np.zeros(splits.N_PROPOSED, np.int64), np.zeros(1)
    found = kernels.find_split(
        node, pairs, bin_offsets, default_bins, np.array(ids, np.int64),
        np.array([*naive.sums_of(range(len(rows)), values), rule.least, sum(abs(grad) for grad, _ in values)]),
        np.array([rule.grad_step, rule.hess_step, rule.reg_lambda, rule.reg_alpha, rule.min_gain]),
        np.empty((2, gains.room_for(max(n_bins.values())))), np.empty(len(ids)), best, best_gain,
    )  # fmt: skip
    assert found == (best[splits.FEATURE] >= 0)
    if not found:
        return None
    assert ids[best[splits.LOCAL]] == best[splits.FEATURE]
    return (
        best_gain[0], best[splits.FEATURE], best[splits.BIN], best[splits.DEFAULT_LEFT],
        (best[splits.LEFT_GRAD], best[splits.LEFT_HESS]),
    )  # fmt: skip


@WAYS
@settings(max_examples=400, deadline=None)
@given(nodes(), RULES, st.booleans())
def test_the_best_of_all_splits(kernels, node, rule, pairs):
    rows, values, features, n_bins = node
    found = find(kernels, rows, values, features, n_bins, rule, pairs=pairs)
    assert found == naive.find_split(rows, values, features, rule)


@WAYS
@settings(max_examples=100, deadline=None)
@given(nodes(), RULES, st.data())
def test_features_that_died_above_are_left_out(kernels, node, rule, data):
    rows, values, features, n_bins = node
    lived = {f for f in features if data.draw(st.booleans())}
    found = find(kernels, rows, values, features, n_bins, rule, lived)
    among = {f: pair for f, pair in features.items() if f in lived}
    assert found == naive.find_split(rows, values, among, rule)


@WAYS
@pytest.mark.parametrize("pairs", [True, False])
@pytest.mark.parametrize(
    ("seed", "single", "several"), [(0, 0.9, 40), (1, 0.9, 40), (2, 0.99, 40), (3, 0.995, 40), (4, 1.0, 40), (5, 0.5, 2)]
)
def test_more_candidates_than_are_tested_at_once(kernels, seed, single, several, pairs):
    """Many features of one bin and some of several, among them copies, whose splits gain the same."""
    rng = np.random.default_rng(seed)
    n_rows, n_bins = 60, {}
    rows = [{} for _ in range(n_rows)]
    for feature in rng.permutation(420).tolist():
        n_bins[feature] = 1 if rng.random() < single else several
        if feature % 7 == 3 and feature - 1 in n_bins:  # a copy
            n_bins[feature] = n_bins[feature - 1]
            for row in rows:
                if feature - 1 in row:
                    row[feature] = row[feature - 1]
            continue
        for row in rows:
            if rng.random() < 0.3:
                row[feature] = int(rng.integers(n_bins[feature]))
    values = [(int(rng.integers(-9, 10)), int(rng.integers(1, 4))) for _ in rows]
    features = dict.fromkeys(n_bins, (None, None))
    rule = naive.Rule(0.25, 0.5, 1.0, 0.0, 1e-6, 2)
    found = find(kernels, rows, values, features, n_bins, rule, pairs=pairs)
    assert found == naive.find_split(rows, values, features, rule)


@WAYS
@pytest.mark.parametrize("scale", [1, 2**30, 2**55])
def test_splits_that_gain_almost_the_same(kernels, scale):
    """Whole gains that differ by little in proportion: the greater one is found, wherever it stands."""
    for larger in (0, 1):
        sides = [-scale, -scale]
        sides[larger] -= max(1, scale >> 20)
        rows = [{1: 0}, {2: 0}, {}]
        values = [(sides[0], 1), (sides[1], 1), (scale, 1)]
        features, n_bins = {1: (None, None), 2: (None, None)}, {1: 1, 2: 1}
        found = find(kernels, rows, values, features, n_bins, PLAIN)
        assert found == naive.find_split(rows, values, features, PLAIN)


PLAIN = naive.Rule(1.0, 1.0, 0.0, 0.0, 1e-6, 1)


@WAYS
@pytest.mark.parametrize("zeros", [(None, None), (0, 2)])
@pytest.mark.parametrize("scale", [2**54, 2**58])
def test_a_small_sum_of_large_ones(kernels, scale, zeros):
    """What is stored in the lower bin and what is missing come to less than float64 knows of either."""
    rows = [{1: 0}, {1: 1}, {} if zeros[0] is None else {1: 2}]
    rule = naive.Rule(1.0, 2.0**-60, 0.0, 0.0, 1e-6, 2**31)
    for few in (1, 2, 3, 7):
        values = [(scale + few, 2**30), (-few, 2**31), (-scale, 2**30)]
        found = find(kernels, rows, values, {1: zeros}, {1: 3}, rule)
        assert found is not None and found == naive.find_split(rows, values, {1: zeros}, rule)


@WAYS
def test_known_optimum(kernels):
    # G = (-2, -2, 3, 3), H = 1 each: cut in the middle, 16/2 + 36/2 - 4/4.
    rows = [{1: 0}, {1: 1}, {1: 2}, {1: 3}]
    values = [(-2, 1), (-2, 1), (3, 1), (3, 1)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 4}, PLAIN) == (25.0, 1, 1, 0, (-4, 2))
    shrunk = naive.Rule(1.0, 1.0, 1.0, 1.0, 1e-6, 1)
    assert find(kernels, rows, values, {1: (None, None)}, {1: 4}, shrunk)[0] == 9 / 3 + 25 / 3 - 1 / 5
    greedy = naive.Rule(1.0, 1.0, 0.0, 0.0, 25.0, 1)
    assert find(kernels, rows, values, {1: (None, None)}, {1: 4}, greedy) is None


@WAYS
@pytest.mark.parametrize("order", [(7, 4), (4, 7)])
def test_of_two_equal_features_the_lower_number_wins_in_any_internal_order(kernels, order):
    rows = [{4: 0, 7: 0}, {4: 1, 7: 1}, {4: 1, 7: 1}]
    values = [(-1, 1), (1, 1), (1, 1)]
    features, n_bins = {f: (None, None) for f in order}, dict.fromkeys(order, 2)
    assert find(kernels, rows, values, features, n_bins, PLAIN)[1] == 4


@WAYS
def test_missing_goes_right_when_it_makes_no_difference(kernels):
    rows = [{1: 0}, {1: 1}, {}]
    values = [(-1, 1), (1, 1), (0, 0)]  # the row without the value has no weight
    assert find(kernels, rows, values, {1: (None, None)}, {1: 2}, PLAIN)[2:4] == (0, 0)
    # Left {0, missing} | right {1} and left {0} | right {1, missing} gain the same.
    values = [(-2, 1), (2, 1), (0, 1)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 2}, PLAIN)[2:4] == (0, 0)


@WAYS
def test_the_lower_of_two_equal_bins(kernels):
    rows = [{1: 0}, {1: 1}, {1: 2}]
    values = [(-1, 1), (0, 1), (1, 1)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 3}, PLAIN)[2] == 0


@WAYS
def test_stored_against_missing(kernels):
    rows = [{1: 0}, {1: 0}, {}, {}]
    values = [(-1, 1), (-1, 1), (1, 1), (1, 1)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 1}, PLAIN) == (4.0, 1, 0, 0, (-2, 2))
    # Zeros as values: the unstored rows lie in bin 1, NaN alone in bin 2.
    zeros = find(kernels, rows, values, {1: (1, 2)}, {1: 3}, PLAIN)
    assert zeros == (4.0, 1, 0, 0, (-2, 2))
    rows = [{1: 2}, {1: 2}, {}, {}]
    nan = find(kernels, rows, values, {1: (1, 2)}, {1: 3}, PLAIN)
    assert nan == (4.0, 1, 1, 0, (2, 2))


@WAYS
def test_a_gain_without_a_number_is_no_split(kernels):
    rows, values = [{1: 0}, {1: 1}], [(0, 0), (0, 0)]
    assert find(kernels, rows, values, {1: (None, None)}, {1: 2}, PLAIN) is None
    assert math.isfinite(find(kernels, rows, [(1, 1), (-1, 1)], {1: (None, None)}, {1: 2}, PLAIN)[0])


@WAYS
@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from([(1, 1), (300, 7), (2**31 - 1, 2**15), (2**40, 2**41)]))
def test_no_split_by_a_feature_scores_more_than_is_said(kernels, seed, pairs, most):
    """Beside exact scores, of whole numbers: of prefixes of a feature's bins, against what is left of the node."""
    rng = np.random.default_rng(seed)
    if not pairs:
        most = min(most[0], 2**24), min(most[1], 2**15)
    n = int(rng.integers(1, 70))
    grads = rng.integers(-most[0], most[0] + 1, n)
    hesses = rng.integers(1, most[1] + 1, n)
    rest_grad, rest_hess = int(rng.integers(-50, 50)) * most[0], int(rng.integers(0, 60)) * most[1]
    sums = np.stack([grads, hesses], axis=1).reshape(-1) if pairs else (grads << 32) + hesses
    total = np.array([grads.sum() + rest_grad, hesses.sum() + rest_hess])
    most_score = as_kernel(gains._most_score) if kernels is gains else kernels._most_score
    said = most_score(sums, pairs, 0, n, total, 1.0)
    for edge in range(1, n + 1):
        for left in ((grads[:edge], hesses[:edge]), (grads[edge:], hesses[edge:])):
            grad, hess = int(left[0].sum()), int(left[1].sum())
            score = Fraction(grad**2, hess + 1) + Fraction((int(total[0]) - grad) ** 2, int(total[1]) - hess + 1)
            assert float(score) * gains._SURELY_LESS <= said  # the slack that find_split leaves


@WAYS
@settings(max_examples=400, deadline=None)
@given(st.data(), st.booleans())
def test_no_split_that_may_win_is_left_out_roughly(kernels, data, pairs):
    """One split at a time, beside its exact score; and what scores clearly less is told from it."""
    most_grad, most_hess = (2**60, 2**61) if pairs else (2**31 - 1, 2**32 - 1)
    draw_grad = st.integers(-most_grad, most_grad) | st.integers(-9, 9)
    left, total = data.draw(draw_grad), data.draw(draw_grad)
    if abs(total - left) > most_grad:
        total = left
    hess = data.draw(st.integers(1, most_hess // 2) | st.integers(1, 9))
    rest = data.draw(st.integers(1, most_hess // 2) | st.integers(1, 9))
    least = data.draw(st.sampled_from([1, hess, rest, 2**33, 2**62]))
    alpha = data.draw(st.sampled_from([0.0, 0.0, 3.7, abs(left) * 0.999, 2.0**40]))
    reg_lambda = data.draw(st.sampled_from([0.0, 1.0, 2.0**20, 2.0**60]))
    sides = (left, hess), (total - left, rest)
    score = sum(max(abs(grad) - Fraction(alpha), 0) ** 2 / (side + Fraction(reg_lambda)) for grad, side in sides)
    node_sums, lefts = np.array([total, hess + rest, least, abs(left) + abs(total - left)]), np.zeros((2, 1))
    words = lefts[0].view(np.int64)
    if pairs:
        lefts[:, 0] = left, hess
    else:
        words[0] = (left << 32) + hess

    def may_win(bound):
        name, held = ("_some_may_win", lefts) if pairs else ("_some_may_win_packed", words)
        function = as_kernel(getattr(gains, name)) if kernels is gains else getattr(kernels, name)
        return function(1, node_sums, alpha, reg_lambda, bound, held)

    allowed = hess >= least and rest >= least
    if allowed:
        assert may_win(float(score) * gains._SURELY_LESS)
    exact = max(node_sums[1], node_sums[3]) < 2**53  # of more, float64 may not know which are few
    if exact and not allowed and least < 2**32:
        assert not may_win(float(score) * gains._SURELY_LESS)
    if exact and alpha == 0.0 and 0 < score < 2**60:
        assert not may_win(float(score) * (1.0 + 2.0**-16))


@WAYS
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 70), st.booleans())
def test_one_of_many_that_may_win_is_seen(kernels, seed, n, pairs):
    rng = np.random.default_rng(seed)
    grads, hesses = rng.integers(-9, 10, n), rng.integers(100, 200, n)
    winner = int(rng.integers(n))
    grads[winner] = 1000
    node_sums, bound = np.array([0, 400, 1, 2 * abs(grads).sum()]), 2 * 1000.0**2 / 300
    for may_win, lefts_of in ((True, grads), (False, np.where(grads == 1000, 5, grads))):
        held = np.array([lefts_of, hesses], np.float64) if pairs else (lefts_of << 32) + hesses
        name = "_some_may_win" if pairs else "_some_may_win_packed"
        function = as_kernel(getattr(gains, name)) if kernels is gains else getattr(kernels, name)
        assert function(n, node_sums, 0.0, 1.0, bound, held) == may_win


@WAYS
@settings(max_examples=300, deadline=None)
@given(st.data(), st.booleans())
def test_left_sides(kernels, data, pairs):
    """Those of one feature, behind others: all that can be made of its bins, of zeros and of what is missing."""
    n_bins, n = data.draw(st.integers(2, 6)), data.draw(st.integers(0, 3))
    zero_bin = data.draw(st.none() | st.integers(0, n_bins - 1))
    nan_bin = n_bins if zero_bin is not None and data.draw(st.booleans()) else None
    sum_of = st.tuples(st.integers(-99, 99), st.integers(1, 99))
    here = data.draw(st.dictionaries(st.integers(0, n_bins - (nan_bin is None)), sum_of, min_size=1))
    unstored = data.draw(sum_of | st.just((0, 0)))
    slots = np.array([sums if pairs else (sums[0] << 32) + sums[1] for _, sums in sorted(here.items())], np.int64)
    node = NodeHistogram(
        np.array([1], np.int32), np.array([0, len(here)], np.int32), np.array(sorted(here), np.int32) + 4, slots.reshape(-1)
    )
    places = [-1 if b is None else b for b in (zero_bin, nan_bin)]
    total = [sum(sums[side] for sums in (*here.values(), unstored)) for side in range(2)]
    given_total = total if pairs else [(total[0] << 32) + total[1], 0]
    lefts = np.zeros((2, gains.room_for(n_bins + 1)))
    words = lefts[0].view(np.int64)
    function = as_kernel(gains._add_lefts) if kernels is gains else kernels._add_lefts
    end = function(
        node, pairs, 0, np.array([0, 4, 5 + n_bins], np.int32), np.array([-1, -1, *places], np.int32), *given_total, n,
        lefts, words,
    )  # fmt: skip
    found = lefts[:, n:end].T if pairs else np.stack([words[n:end] >> 32, words[n:end] & 0xFFFFFFFF], axis=1)
    missing = here.pop(nan_bin, (0, 0)) if zero_bin is not None else unstored
    if zero_bin is not None and unstored[1]:
        here[zero_bin] = tuple(a + b for a, b in zip(here.get(zero_bin, (0, 0)), unstored, strict=True))
    without = np.cumsum([sums for _, sums in sorted(here.items())], axis=0).reshape(-1, 2)
    expected = np.concatenate([without, without + missing]) if missing[1] else without
    np.testing.assert_array_equal(found, expected)

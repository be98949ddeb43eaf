"""find_split beside a brute force over every partition of the rows, compiled and as plain Python."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import gains, left_sides, splits
from psboost.kernels.node_histograms import NodeHistogram
from tests.naive import splits as naive
from tests.plain import both_ways, helper

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


def find(kernels, rows, values, features, n_bins, rule, lived=None, pairs=True, known=-math.inf):
    """find_split on the histogram of the node's living features; its answer in the user's numbers.

    known  what the split of another feature gains
    """
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
    best, best_gain = np.zeros(splits.N_PROPOSED, np.int64), np.full(1, known)
    found = kernels.find_split(
        node, pairs, bin_offsets, default_bins, np.array(ids, np.int64),
        np.array([*naive.sums_of(range(len(rows)), values), rule.least, sum(abs(grad) for grad, _ in values)]),
        np.array([rule.grad_step, rule.hess_step, rule.reg_lambda, rule.reg_alpha, rule.min_gain]),
        np.empty((2, left_sides.room_for(max(n_bins.values())))), np.empty(len(ids)), best, best_gain,
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
@settings(max_examples=200, deadline=None)
@given(nodes(), RULES, st.booleans(), st.sampled_from([-math.inf, 0.5, 1.0, 1.25]))
def test_the_best_of_all_splits_where_another_is_known(kernels, node, rule, pairs, times):
    rows, values, features, n_bins = node
    expected = naive.find_split(rows, values, features, rule)
    known = times * (rule.min_gain if expected is None else expected[0])
    found = find(kernels, rows, values, features, n_bins, rule, pairs=pairs, known=known)
    if expected is None or times <= 1.0:
        assert found == expected
    else:
        assert found is None or found[0] <= expected[0]


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
@pytest.mark.parametrize("zeros", [(None, None), (0, 4)])
def test_splits_that_gain_the_same(kernels, zeros):
    """As in a first tree: rows of two labels, so that many splits of a feature gain the same."""
    rng, found = np.random.default_rng(0), []
    for _ in range(150):
        rows = [{1: int(rng.integers(4 + (zeros[1] is not None)))} if rng.random() < 0.7 else {} for _ in range(12)]
        values = [(int(grad), 1) for grad in rng.choice([-1, 1], 12)]
        found.append(find(kernels, rows, values, {1: zeros}, {1: 4 + (zeros[1] is not None)}, PLAIN))
        assert found[-1] == naive.find_split(rows, values, {1: zeros}, PLAIN)
    assert len({(split[2], split[3]) for split in found if split is not None}) > 3


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
    more = rng.integers(1, 9, int(rng.integers(0, 9)))  # of the next feature
    weighed = helper(kernels._weigh)(np.append(sums, more), pairs, 0, n)
    assert weighed[:2] == (grads.sum(), hesses.sum())
    said = helper(kernels._most_score)(n, *weighed, total, 1.0)
    for edge in range(1, n + 1):
        for left in ((grads[:edge], hesses[:edge]), (grads[edge:], hesses[edge:])):
            grad, hess = int(left[0].sum()), int(left[1].sum())
            score = Fraction(grad**2, hess + 1) + Fraction((int(total[0]) - grad) ** 2, int(total[1]) - hess + 1)
            assert float(score) * left_sides.SURELY_LESS <= said  # the slack that find_split leaves

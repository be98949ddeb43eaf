"""Splits by rare features beside a brute force over every partition of the rows, compiled and as plain Python."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import packed_rows, rare, splits
from psboost.kernels.words import n_words_of
from tests.kernels.test_gains import RULES
from tests.naive import splits as naive
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(rare), ids=["compiled", "plain"])
WIDTHS = st.sampled_from(["16 bits", "32 bits"])
DTYPES = {"16 bits": np.int32, "32 bits": np.int64}
FIRST_NODE = 3
MADE = (splits.FEATURE, splits.BIN, splits.DEFAULT_LEFT, splits.LEFT_GRAD, splits.LEFT_HESS)


@st.composite
def levels(draw):
    """(rows {feature: bin}, (grad, hess) of each, node of each, {feature: (zero_bin, nan_bin)}, {feature: n_bins}, which
    features are popular, how many nodes are open); the last rows, of no grad and hess, are not training rows."""
    n_nodes, zeros_count = draw(st.sampled_from([1, 2, 3, 40])), draw(st.booleans())
    ids = draw(st.lists(st.integers(0, 99), unique=True, min_size=1, max_size=6))
    features, n_bins = {}, {}
    for feature in ids:
        n_cuts, has_nan = draw(st.integers(1, 3)), zeros_count and draw(st.booleans())
        features[feature] = (draw(st.integers(0, n_cuts - 1)), n_cuts if has_nan else None) if zeros_count else (None, None)
        n_bins[feature] = n_cuts + has_nan
    most = draw(st.sampled_from([1, 9, 2**14]))
    n_rows = draw(st.integers(1, 30))
    rows, values, nodes = [{} for _ in range(n_rows)], [], []
    for _ in range(n_rows):
        hess = draw(st.sampled_from([0, 1, 1, 2, 3]))
        values.append((draw(st.integers(-most, most)) if hess else 0, hess))
        nodes.append(draw(st.integers(0, n_nodes - 1)))
    for feature in ids:
        for row in draw(st.lists(st.integers(0, n_rows - 1), unique=True, max_size=rare.MOST_ROWS)):
            rows[row][feature] = draw(st.integers(0, n_bins[feature] - 1))
    popular = [feature for feature in ids if draw(st.booleans())]
    return rows, values, nodes, features, n_bins, popular, n_nodes


def of_node(node, rows, values, nodes):
    own = [i for i in range(len(rows)) if nodes[i] == node]
    return [rows[i] for i in own], [values[i] for i in own]


def proposal_of(split, sums):
    """A proposal and its gain of what naive.find_split says."""
    fields = np.zeros(splits.N_PROPOSED, np.int64)
    fields[splits.FEATURE], fields[[splits.NODE_GRAD, splits.NODE_HESS]] = -1, sums
    if split is None:
        return fields, -math.inf
    gain, feature, bin_, default_left, left = split
    fields[list(MADE)] = feature, bin_, default_left, *left
    return fields, gain


def postings_of(rows, ids, n_bins):
    """bin_offsets, posting_offsets, posting_rows of these features."""
    bin_offsets = np.cumsum([0, *(n_bins[feature] for feature in ids)]).astype(np.int32)
    of_bins = [
        [row for row, held in enumerate(rows) if held.get(feature) == b] for feature in ids for b in range(n_bins[feature])
    ]
    posting_offsets = np.cumsum([0, *map(len, of_bins)])
    return bin_offsets, posting_offsets, np.array([row for own in of_bins for row in own], np.int32)


@WAYS
@settings(max_examples=150, deadline=None)
@given(levels(), RULES, WIDTHS, st.booleans(), st.integers(0, 3), st.sampled_from([0.0, 0.0, 1.0]))
def test_the_best_of_all_splits(kernels, level, rule, width, are_few, n_others, gamma):
    rows, values, nodes, features, n_bins, popular, n_nodes = level
    rng = np.random.default_rng(n_others)
    for _ in range(n_others):  # which are no training rows
        rows = [*rows, {feature: 0 for feature in features if sum(feature in row for row in rows) < rare.MOST_ROWS}]
        values, nodes = [*values, (0, 0)], [*nodes, int(rng.integers(n_nodes))]
    n_train = len(rows) - n_others
    ids = [feature for feature in features if feature not in popular]
    proposals, gains, expected = np.zeros((n_nodes, splits.N_PROPOSED), np.int64), np.empty(n_nodes), []
    for i in range(n_nodes):
        own_rows, own_values = of_node(i, rows, values, nodes)
        sums = naive.sums_of(range(len(own_rows)), own_values)
        known = naive.find_split(own_rows, own_values, {f: features[f] for f in popular}, rule)
        best = naive.find_split(own_rows, own_values, features, rule)
        known, best = (None if split is None or split[0] < gamma else split for split in (known, best))
        proposals[i], gains[i] = proposal_of(known, sums)
        expected.append(proposal_of(best, sums))
    in_use = np.array([rule.grad_step, rule.hess_step, rule.reg_lambda, rule.reg_alpha, rule.min_gain, gamma])
    packed = np.zeros(len(rows), DTYPES[width])
    for row, (grad, hess) in enumerate([*values[:n_train], *n_others * [(5, 7)]]):
        packed[row] = packed_rows.pack(grad, hess, packed)
    bin_offsets, posting_offsets, posting_rows = postings_of(rows, ids, n_bins)
    ends = rare.ends_of(np.diff(posting_offsets[bin_offsets]))
    default_bins = np.array([-1 if b is None else b for f in ids for b in features[f]], np.int32)
    needed, node_of_row = np.full(n_nodes, -1), np.array(nodes, np.uint8) + np.uint8(FIRST_NODE)
    most_grad, most_hess = (max(abs(value[k]) for value in values) for k in range(2))
    fewest = kernels.plan(gains, proposals, most_grad, most_hess, rule.least, in_use, needed)
    assert fewest == needed.min() and needed.min() >= 1
    marks = np.zeros(n_words_of(len(rows)), np.uint64)
    for n_rows in range(fewest, rare.NEVER):
        for row in np.flatnonzero(needed[nodes] == n_rows).tolist():
            marks[row // 64] |= np.uint64(1 << row % 64)
        kernels.look(
            ends, n_rows, fewest, marks, are_few, posting_offsets, posting_rows, bin_offsets, default_bins,
            np.array(ids, np.int64), np.full(len(ids), 7, np.int32), np.arange(len(ids), dtype=np.int32) + 100, node_of_row,
            FIRST_NODE, needed, n_train, packed, rule.least, in_use, proposals, gains,
        )  # fmt: skip
    for i, (fields, gain) in enumerate(expected):
        assert gains[i] == gain
        np.testing.assert_array_equal(proposals[i, MADE], fields[list(MADE)])
        np.testing.assert_array_equal(proposals[i, -2:], fields[-2:])
        if fields[splits.FEATURE] in ids:
            assert proposals[i, splits.SHARD] == 7
            assert proposals[i, splits.LOCAL] == 100 + ids.index(fields[splits.FEATURE])


@WAYS
def test_what_gains_much_leaves_nothing_to_look_at(kernels):
    proposals, needed = np.zeros((4, splits.N_PROPOSED), np.int64), np.empty(4, np.int64)
    proposals[:, splits.NODE_HESS] = 400, 400, 7, 400
    rule, gains = np.array([1.0, 1.0, 1.0, 0.0, 1e-6, 0.0]), np.array([1e3, 9.0, -np.inf, -np.inf])
    # Of c rows, whose grads are 1 and hesses 2 at most, c >= 2 come to a hess of 4, and gain c^2 / 5 at most and 2 c^2 / w,
    # w 400 or so, besides.
    assert kernels.plan(gains, proposals, 1, 2, 4, rule, needed) == 2
    assert needed.tolist() == [rare.NEVER, 7, rare.NEVER, 2]

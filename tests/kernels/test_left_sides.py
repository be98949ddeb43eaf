"""Left sides beside their sums one by one, and what is said of them beside exact scores, compiled and as plain Python."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import left_sides
from psboost.kernels.node_histograms import NodeHistogram
from tests.plain import both_ways, helper

WAYS = pytest.mark.parametrize("kernels", both_ways(left_sides), ids=["compiled", "plain"])


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
        name, held = ("some_may_win", lefts) if pairs else ("some_may_win_packed", words)
        return helper(getattr(kernels, name))(1, node_sums, alpha, reg_lambda, bound, held)

    allowed = hess >= least and rest >= least
    if allowed:
        assert may_win(float(score) * left_sides.SURELY_LESS)
    exact = max(node_sums[1], node_sums[3]) < 2**53  # of more, float64 may not know which are few
    if exact and not allowed and least < 2**32:
        assert not may_win(float(score) * left_sides.SURELY_LESS)
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
        name = "some_may_win" if pairs else "some_may_win_packed"
        assert helper(getattr(kernels, name))(n, node_sums, 0.0, 1.0, bound, held) == may_win


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
    lefts = np.zeros((2, left_sides.room_for(n_bins + 1)))
    words = lefts[0].view(np.int64)
    end = helper(kernels.add_lefts)(
        node, pairs, 0, np.array([0, 4, 5 + n_bins], np.int32), np.array([-1, -1, *places], np.int32), np.array(total), n,
        lefts, words,
    )  # fmt: skip
    found = lefts[:, n:end].T if pairs else np.stack([words[n:end] >> 32, words[n:end] & 0xFFFFFFFF], axis=1)
    missing = here.pop(nan_bin, (0, 0)) if zero_bin is not None else unstored
    if zero_bin is not None and unstored[1]:
        here[zero_bin] = tuple(a + b for a, b in zip(here.get(zero_bin, (0, 0)), unstored, strict=True))
    without = np.cumsum([sums for _, sums in sorted(here.items())], axis=0).reshape(-1, 2)
    expected = np.concatenate([without, without + missing]) if missing[1] else without
    np.testing.assert_array_equal(found, expected)

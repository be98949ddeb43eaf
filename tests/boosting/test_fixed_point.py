"""Steps, bounds of sums and the rounding of gradients to whole steps."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.boosting.fixed_point import (
    RoundingKeys,
    Steps,
    bits_for,
    exact_steps,
    least_rows,
    least_units,
    power_above,
    round_gradients,
    rounding_key,
    sizes_of,
    steps_for,
    usual_size,
)
from psboost.boosting.forest import base_margin
from psboost.boosting.losses import LOSSES, Bounds
from psboost.kernels.floats import WHOLE_BITS

BITS = pytest.mark.parametrize("grad_bits", [4, 8, 16, 32])
POSITIVE = st.floats(1e-30, 1e30)
INT64_MAX = 2**63 - 1
MOST = {4: (2**5, 2**3), 8: (2**9, 2**7), 16: (2**15, 2**15), 32: (2**30, 2**30)}  # steps of a row's grad and hess


@given(POSITIVE)
def test_power_above(x):
    k = power_above(x)
    assert 2.0**k >= x > 2.0 ** (k - 1)
    assert power_above(2.0**k) == k


def test_power_above_nothing():
    assert power_above(0.0) == -126


@BITS
@settings(max_examples=60, deadline=None)
@given(POSITIVE, POSITIVE, st.integers(1, 2**31 - 1))
def test_no_sum_overflows(grad_bits, max_grad, max_hess, n_rows):
    steps = steps_for(Bounds(max_grad, max_hess), grad_bits, n_rows)
    for bound, step, leaf_step, most in zip(
        (max_grad, max_hess), (steps.grad, steps.hess), (steps.leaf_grad, steps.leaf_hess), MOST[grad_bits], strict=True
    ):
        assert math.frexp(step)[0] == math.frexp(leaf_step)[0] == 0.5  # powers of two
        assert most / 2 < bound / step <= most
        assert leaf_step <= step
        assert bound / leaf_step < 2**WHOLE_BITS
        assert n_rows * (math.ceil(bound / leaf_step) + 1) <= INT64_MAX


@BITS
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_row_fits_its_halves(grad_bits, sign):
    steps = steps_for(Bounds(1.0, 0.25), grad_bits, 10**6)
    packed = round_gradients(np.array([sign * 1.0]), np.array([0.25]), steps, rounding_key(0, 0), 0)
    grad, hess = int(packed[0]) >> 32, int(packed[0]) & 0xFFFFFFFF
    most_grad, most_hess = MOST[grad_bits]
    assert (grad, hess) == (sign * most_grad, most_hess)


@given(st.one_of(st.floats(0, 1e300), st.floats(0, 100)), st.integers(-200, 10))
def test_least_units(min_child_weight, exponent):
    step = math.ldexp(1.0, exponent)
    least = least_units(min_child_weight, step)
    assert 1 <= least <= 2**62
    np.array([0, 0, least], np.int64)  # fits
    if least < 2**62:
        exact = Fraction(min_child_weight) / Fraction(step)
        assert least == max(1, math.ceil(exact))


@BITS
@settings(max_examples=100, deadline=None)
@given(st.floats(0, 100), st.floats(1e-6, 1e3), st.integers(0, 2**40))
def test_fewer_than_least_rows_never_reach_the_least_units(grad_bits, min_child_weight, max_hess, seed):
    bounds = Bounds(1.0, max_hess)
    steps = steps_for(bounds, grad_bits, 1000)
    too_few = min(least_rows(min_child_weight, bounds, steps) - 1, 2000)
    hesses = np.full(too_few, max_hess)
    packed = round_gradients(np.zeros(too_few), hesses, steps, rounding_key(seed, 0), 0)
    assert int((packed & 0xFFFFFFFF).sum()) < least_units(min_child_weight, steps.hess)


def test_least_rows_of_odd_bounds():
    steps = steps_for(Bounds(1.0, 0.25), 16, 10)
    assert least_rows(0.0, Bounds(1.0, 0.25), steps) == 1
    assert least_rows(1.0, Bounds(1.0, 0.25), steps) == 4
    assert least_rows(1.0, Bounds(1.0, 0.0), steps) == 1
    assert least_rows(1e300, Bounds(1.0, 1e-300), steps) == 2**62


def test_rounding_keys_differ_by_seed_and_tree():
    keys = {int(rounding_key(seed, tree)) for seed in (0, 1, 2, 2**62) for tree in range(50)}
    assert len(keys) == 200
    assert rounding_key(3, 4) == rounding_key(3, 4) and rounding_key(3, 4).dtype == np.uint64
    made = RoundingKeys(3)
    assert [made[tree] for tree in (*range(40), 39, 5)] == [rounding_key(3, tree) for tree in (*range(40), 39, 5)]


@BITS
def test_rounding_is_the_same_on_any_cut_into_shards(grad_bits):
    rng = np.random.default_rng(0)
    grads, hesses = rng.uniform(-1, 1, 100), rng.uniform(0, 0.25, 100)
    hesses[::7] = 0
    grads[::7] = 0
    steps, key = steps_for(Bounds(1.0, 0.25), grad_bits, 100), rounding_key(5, 1)
    whole = round_gradients(grads, hesses, steps, key, 0)
    for n_shards in (2, 3, 7, 150):
        borders = [100 * part // n_shards for part in range(n_shards + 1)]
        parts = [
            round_gradients(grads[b:e], hesses[b:e], steps, key, b)
            for b, e in zip(borders, borders[1:], strict=False)
        ]
        np.testing.assert_array_equal(np.concatenate(parts), whole)
    low = whole & 0xFFFFFFFF
    assert (low[hesses > 0] >= 1).all() and (whole[hesses == 0] == 0).all()


def test_tiny_hesses_count_as_one_step():
    steps = Steps(1.0, 1.0, 1.0, 1.0)
    packed = round_gradients(np.zeros(100), np.full(100, 1e-16), steps, rounding_key(0, 0), 0)
    assert (packed == 1).all()


LOGISTIC = LOSSES["binary:logistic"]
USUAL = steps_for(Bounds(1.0, 0.25), 16, 1000)


@pytest.mark.parametrize(("n_positive", "n_rows"), [(1, 2), (1, 3), (2, 40), (999, 32_000), (17_001, 32_003)])
@pytest.mark.parametrize("weight", [1.0, 0.1, 3e7])
def test_where_all_margins_are_one_gradients_are_whole_steps(n_positive, n_rows, weight):
    """k - n steps with the label 1, k without, where k / n is base_score, and a step of hess, whatever the key."""
    base_score = float(np.float32(n_positive / n_rows))
    steps = exact_steps(USUAL, LOGISTIC, base_score, weight)
    n = round(weight / steps.grad)
    k = round(n * base_score)
    assert steps.exact and n < 2**15 and abs(k / n - base_score) <= 2.0**-24
    assert steps.grad == pytest.approx(weight / n, rel=1e-15)
    assert steps.hess == pytest.approx(weight * base_score * (1 - base_score), rel=1e-15)
    assert (steps.leaf_grad, steps.leaf_hess) == (USUAL.leaf_grad, USUAL.leaf_hess)
    p = np.float32(1 / (1 + math.exp(-float(base_margin("binary:logistic", base_score)))))
    grads, hesses = np.array([p - 1, p]) * np.float32(weight), np.repeat(p * (1 - p), 2) * np.float32(weight)
    for tree in range(200):
        packed = round_gradients(grads, hesses, steps, rounding_key(0, tree), 0)
        assert (packed >> 32).tolist() == [k - n, k]
        assert (packed & 0xFFFFFFFF).tolist() == [1, 1]


def test_where_there_are_no_exact_steps_the_usual_ones_remain():
    for base_score in (0.500001, 1e-6, 1 - 1e-6, 0.33334):  # no k / n with n < 2^15 is near enough
        assert exact_steps(USUAL, LOGISTIC, base_score, 1.0) is USUAL
    assert exact_steps(USUAL, LOSSES["reg:squarederror"], 0.5, 1.0) is USUAL


def test_bits_that_were_not_asked_for():
    assert [bits_for(bits, n, 1e9) for bits in (8, 16, 32) for n in (1, 10**9)] == [8, 8, 16, 16, 32, 32]
    few, many = bits_for(None, 16_383, 1), bits_for(None, 16_384, 1)
    assert (few, many) == (32, 16)
    assert (bits_for(None, 16_384, 8192), bits_for(None, 16_384, 8193)) == (16, 32)


def test_bits_of_labels_with_an_outlier():
    """The same however rows are shared out; usual labels lie between half of what is said of them and all of it."""
    labels = np.concatenate([5 + np.random.default_rng(0).normal(size=20_000), [0, 0, -1e7, 1e-300]])
    usual = usual_size([sizes_of(labels)], len(labels))
    assert usual == usual_size([sizes_of(part) for part in np.array_split(labels, 7)], len(labels))
    assert usual / 2 <= np.abs(labels).mean() <= usual
    assert bits_for(None, len(labels), 1e7 / usual) == 32
    assert usual_size([sizes_of(np.zeros(3))], 3) == 0 and sizes_of(np.empty(0)).shape == (0, 2)

"""Gradients and their rounding beside the slow twins, compiled and as plain Python."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psboost.kernels import gradients
from tests.naive import gradients as naive
from tests.plain import both_ways

WAYS = pytest.mark.parametrize("kernels", both_ways(gradients), ids=["compiled", "plain"])
quick = settings(max_examples=60, deadline=None)
MARGINS = st.one_of(st.floats(-20, 20, width=32), st.floats(width=32, allow_nan=False))
WEIGHTS = st.one_of(st.just(0.0), st.just(1.0), st.floats(0.0009765625, 1, width=32))
FLOATS = pytest.mark.parametrize("dtype", [np.float32, np.float64])
STEPS = st.integers(-40, 10).map(lambda k: 2.0**k)


@st.composite
def gradient_rows(draw):
    """[(grad, hess)], at most 2^30 steps of 2^-30 each; numbers that float32 holds."""
    size = st.integers(0, 8)
    grads = draw(st.lists(st.floats(-1, 1, width=32), min_size=(n := draw(size)), max_size=n))
    least = float(np.float32(1e-12))
    hesses = draw(st.lists(st.one_of(st.just(0.0), st.floats(least, 1, width=32)), min_size=n, max_size=n))
    return list(zip(grads, hesses, strict=True))


def columns(rows, dtype=np.float64):
    table = np.array(rows, dtype).reshape(len(rows), 2)
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])


@WAYS
def test_logistic_bounds_hold_at_every_margin(kernels):
    """The bounds that the steps are chosen by, where p and 1 - p are rounded in all ways."""
    rng = np.random.default_rng(0)
    near = np.array([0, np.inf, -np.inf, 87, -87, 88, 16.635, -16.635], np.float32)
    margins = np.concatenate([near, rng.normal(0, 1e-6, 500), rng.normal(0, 30, 500)]).astype(np.float32)
    labels = rng.integers(0, 2, len(margins)).astype(np.uint8)
    grads, hesses = np.empty((2, len(margins)), np.float32)
    kernels.compute_gradients(margins, labels, np.ones(1, np.float32), grads, hesses)
    assert np.abs(grads).max() == 1 and hesses.max() == 0.25 and hesses.min() == np.float32(1e-16)
    assert (np.sign(grads) == np.where(labels, -1, 1)).all()
    assert (np.abs(grads[0]), hesses[0]) == (0.5, 0.25)


@WAYS
@quick
@given(st.lists(st.tuples(MARGINS, st.sampled_from([0.0, 1.0]), WEIGHTS), max_size=6))
def test_logistic(kernels, rows):
    table = np.array(rows, np.float32).reshape(len(rows), 3).T.copy()
    grads, hesses = np.empty((2, len(rows)), np.float32)
    kernels.compute_gradients(table[0], table[1].astype(np.uint8), table[2], grads, hesses)
    expected = naive.logistic_gradients(table[0].clip(-87, 87).tolist(), table[1].tolist(), table[2].tolist())
    np.testing.assert_allclose(np.array([grads, hesses]).T, np.array(expected).reshape(-1, 2), rtol=1e-6, atol=1e-37)
    # The bounds that the steps are chosen by hold exactly.
    assert (np.abs(grads) <= table[2]).all() and (hesses <= 0.25 * table[2]).all()
    assert ((hesses > 0) == (table[2] > 0)).all()


@WAYS
@quick
@given(st.lists(st.tuples(st.floats(-90, 90, width=32), st.floats(-1e6, 1e6), WEIGHTS), max_size=6))
def test_squared(kernels, rows):
    table = np.array(rows, np.float64).reshape(len(rows), 3).T.copy()
    grads, hesses = np.empty(len(rows)), np.empty(len(rows))
    kernels.compute_gradients(table[0].astype(np.float32), table[1], table[2], grads, hesses)
    expected = naive.squared_gradients(table[0].tolist(), table[1].tolist(), table[2].tolist())
    assert list(zip(grads.tolist(), hesses.tolist(), strict=True)) == expected


@WAYS
@FLOATS
@quick
@given(
    gradient_rows(),
    st.integers(-30, 0),
    st.integers(-30, 0),
    st.booleans(),
    st.integers(0, 2**64 - 1),
    st.one_of(st.integers(0, 2**40), st.integers(2**32 - 8, 2**32)),
)
def test_rounding(kernels, dtype, rows, grad_bits, hess_bits, exact, key, row_offset):
    packed = np.empty(len(rows), np.int64)
    steps = 2.0**grad_bits, 2.0**hess_bits
    kernels.round_gradients(*columns(rows, dtype), *steps, exact, np.uint64(key), row_offset, packed)
    expected = naive.round_gradients(rows, *steps, exact, key, row_offset)
    assert packed.tolist() == [naive.pack(*row) for row in expected]
    if max(-grad_bits, -hess_bits) <= 15:
        halves = packed.astype(np.int32)
        kernels.round_gradients(*columns(rows, dtype), *steps, exact, np.uint64(key), row_offset, halves)
        assert halves.tolist() == [naive.pack(*row, 16) for row in expected]
    assert [(value >> 32, value & 0xFFFFFFFF) for value in packed.tolist()] == expected
    for (grad, hess), (whole_grad, whole_hess) in zip(rows, expected, strict=True):
        assert abs(whole_grad - grad / steps[0]) <= 1
        assert (whole_hess >= 1) == (hess > 0) or whole_hess == hess == 0


@WAYS
def test_rounding_is_keyed_by_the_global_row(kernels):
    rng = np.random.default_rng(0)
    grads, hesses = rng.uniform(-1, 1, 50), rng.uniform(0, 1, 50)
    key = np.uint64(2**63 + 12345)

    def rounded(begin, end):
        packed = np.empty(end - begin, np.int64)
        kernels.round_gradients(
            grads[begin:end].copy(), hesses[begin:end].copy(), 0.125, 0.0625, False, key, 2**32 - 20 + begin, packed
        )
        return packed

    whole = rounded(0, 50)
    for cuts in ([0, 50], [0, 1, 50], [0, 0, 17, 17, 33, 50]):
        parts = [rounded(*pair) for pair in zip(cuts, cuts[1:], strict=False)]
        np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_rounding_has_no_bias():
    # 40,000 keys: the mean of a coin's deviation is 0 with a standard error of at most 0.5 / 200 steps.
    values = np.array([-0.9, -0.5, -0.1, 0.0, 0.3, 0.75, 5.6])
    hesses = np.array([1.0, 1.25, 1.5, 1.9, 2.3, 7.01, 3.0])
    sums, n_keys = np.zeros((2, len(values))), 40_000
    packed = np.empty(len(values), np.int64)
    keys = np.random.default_rng(1).integers(0, 2**64, n_keys, np.uint64)
    for key in keys:
        gradients.round_gradients(values, hesses, 1.0, 1.0, False, key, 7, packed)
        sums += packed >> 32, packed & 0xFFFFFFFF
    np.testing.assert_allclose(sums[0] / n_keys, values, atol=0.0125)
    np.testing.assert_allclose(sums[1] / n_keys, hesses, atol=0.0125)


@WAYS
@FLOATS
@quick
@given(gradient_rows(), STEPS, STEPS, st.data())
def test_sums_by_node(kernels, dtype, rows, grad_step, hess_step, data):
    node_of_row = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
    sums = np.arange(24)
    kernels.sum_by_node(*columns(rows, dtype), np.array(node_of_row, np.int32), grad_step, hess_step, sums)
    expected = naive.sum_by_node(rows, node_of_row, 3, grad_step, hess_step)
    added = (sums - np.arange(24)).reshape(3, 4, 2)
    np.testing.assert_array_equal(added.sum(axis=1), expected)
    of_each_fourth = naive.sum_by_node(rows[::4], node_of_row[::4], 3, grad_step, hess_step)
    np.testing.assert_array_equal(added[:, 0], of_each_fourth)


@WAYS
def test_add_values(kernels):
    margins = np.array([0.1, 0.2, 0.3], np.float32)
    kernels.add_values(np.array([4, 0, 4], np.int32), np.array([0, 9, 9, 9, 0.7], np.float32), margins)
    expected = [np.float32(0.1) + np.float32(0.7), np.float32(0.2), np.float32(0.3) + np.float32(0.7)]
    assert margins.tolist() == [float(margin) for margin in expected]

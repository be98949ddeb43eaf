"""Gradients of a shard's rows: in pieces and chunks, and margins that move when they are next asked for."""

import numpy as np
import pytest

from psboost.boosting import partition
from psboost.boosting.fixed_point import Steps, rounding_key
from psboost.boosting.losses import LOSSES
from psboost.boosting.row_gradients import RowGradients
from psboost.kernels.node_builds import N_SUMS, list_gradients
from psboost.kernels.row_gradients import PIECE

STEPS, KEY, N, N_EVAL = Steps(2.0**-8, 2.0**-8, 2.0**-30, 2.0**-30), rounding_key(3, 5), 2 * PIECE + 300, 40


def gradients(monkeypatch, margins, n_chunks, loss="binary:logistic", grad_bits=16, scale=1.0):
    """Of the first N rows. `scale`: of their weights."""
    monkeypatch.setattr(partition, "GROUP_ROWS", 64)
    rng = np.random.default_rng(1)
    labels, weights = rng.integers(0, 2, N + N_EVAL).astype(float), rng.random(N)
    labels = LOSSES[loss].check_labels(labels, str)
    return RowGradients(LOSSES[loss], margins, labels, weights * scale, scale, N, grad_bits, n_chunks, map)


def margins_of(seed=0):
    return np.random.default_rng(seed).standard_normal(N + N_EVAL).astype(np.float32)


@pytest.mark.parametrize("n_chunks", [1, 3])
@pytest.mark.parametrize("grad_bits", [16, 32])
def test_the_sums_of_all_rows_come_with_them(monkeypatch, n_chunks, grad_bits):
    rounded = gradients(monkeypatch, margins_of(), n_chunks, grad_bits=grad_bits)
    sums = rounded.round(STEPS, KEY, 7)
    expected = np.empty((1, N_SUMS), np.int64)
    listed = np.empty_like(rounded.packed)
    list_gradients(np.arange(N, dtype=np.int32), np.array([[0, N]]), rounded.packed, listed, expected)
    assert sums.tolist() == expected.tolist() and sums[0].all()


@pytest.mark.parametrize("n_chunks", [1, 3])
@pytest.mark.parametrize("first", ["round", "maxima", "sum_by_node"])
def test_margins_move_once_when_they_are_next_asked_for(monkeypatch, first, n_chunks):
    margins = margins_of()
    nodes = np.random.default_rng(2).integers(0, 3, N + N_EVAL).astype(np.uint8)
    values = np.array([0.5, -2.0, 9.0], np.float32)
    moved, beside = margins.copy(), margins.copy()
    moved[:N] += values[nodes[:N]]

    ours, direct = gradients(monkeypatch, beside, n_chunks), gradients(monkeypatch, moved, 1)
    ours.round(STEPS, KEY, 7)
    ours.move(nodes, values)
    assert np.array_equal(beside, margins)
    for ask in (first, "round", "sum_by_node", "maxima"):
        asked = {"round": (STEPS, KEY, 7), "maxima": (), "sum_by_node": (nodes, 3, STEPS)}[ask]
        assert np.array_equal(getattr(ours, ask)(*asked), getattr(direct, ask)(*asked))
        assert np.array_equal(beside, moved)  # not those of evaluation rows, and once
    assert np.array_equal(ours.packed, direct.packed)


@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("k", [-100, -1, 7, 127])
def test_weights_of_any_size_give_gradients_of_the_same_bits(monkeypatch, loss, k):
    """Weights 2^k times as large, and steps too: float32 would not hold the smallest as they are."""
    scale, nodes = 2.0**k, np.random.default_rng(2).integers(0, 3, N + N_EVAL).astype(np.uint8)
    as_given, scaled = (gradients(monkeypatch, margins_of(), 1, loss, scale=factor) for factor in (1.0, scale))
    steps = Steps(*(scale * step for step in (STEPS.grad, STEPS.hess, STEPS.leaf_grad, STEPS.leaf_hess)))
    assert np.array_equal(as_given.round(STEPS, KEY, 0), scaled.round(steps, KEY, 0))
    assert np.array_equal(as_given.packed, scaled.packed) and len(set(scaled.packed.tolist())) > 100
    assert np.array_equal(as_given.sum_by_node(nodes, 3, STEPS), scaled.sum_by_node(nodes, 3, steps))
    assert scaled.maxima() == tuple(scale * most for most in as_given.maxima())
    assert scaled.all_have_hess

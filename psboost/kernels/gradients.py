"""Knows margins, labels and integer rounding; does not know trees."""

import numpy as np

from psboost.kernels.compile import IN, OUT, float32, float64, inline, int64, kernel, uint64, void
from psboost.kernels.doubles import exp, floor, fraction
from psboost.kernels.packed_rows import WIDTHS, pack
from psboost.kernels.routing import NODES

_MOST = 700.0  # a greater margin has the same probability, to 300 digits
_GOLDEN = 0x9E3779B97F4A7C15


@inline
def _mix(x):
    """64 well mixed bits of x."""
    x = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> uint64(27))) * uint64(0x94D049BB133111EB)
    return x ^ (x >> uint64(31))


@inline
def _logistic(margin, label, weight):
    """grad, hess of a row."""
    p = 1.0 / (1.0 + exp(min(max(-float64(margin), -_MOST), _MOST)))
    return (p - label) * weight, max(p * (1.0 - p), 1e-16) * weight


@kernel(void(IN[float32], IN[float64], IN[float64], OUT[float64], OUT[float64]))
def logistic_gradients(margins, labels, weights, grads, hesses):
    """grad = (p - y) w and hess = p (1 - p) w of the log loss, p = 1 / (1 + exp(-margin)). A single weight is all rows'."""
    if len(weights) == 1:  # a loop of its own, which is vectorised
        weight = weights[0]
        for i in range(len(labels)):
            grads[i], hesses[i] = _logistic(margins[i], labels[i], weight)
    else:
        for i in range(len(labels)):
            grads[i], hesses[i] = _logistic(margins[i], labels[i], weights[i])


@kernel(void(IN[float32], IN[float64], IN[float64], OUT[float64], OUT[float64]))
def squared_gradients(margins, labels, weights, grads, hesses):
    """grad = (margin - y) w and hess = w of half the squared error. A single weight is all rows'."""
    step = int64(len(weights) > 1)
    for i in range(len(labels)):
        weight = weights[step * i]
        grads[i] = (float64(margins[i]) - labels[i]) * weight
        hesses[i] = weight


@kernel([void(IN[float64], IN[float64], float64, float64, uint64, int64, OUT[width]) for width in WIDTHS])
def round_gradients(grads, hesses, grad_step, hess_step, key, row_offset, packed):
    """Packs grad / grad_step and hess / hess_step (kernels.packed_rows), rounded up or down at random without bias.

    The random bits are those of SplitMix64 (Steele, Lea, Flood 2014) that starts from `key`, at the global row number
    row_offset + i, so they are the same on every grid. hess is at least 1 where it is above 0, so a bin is present exactly
    when its sum_hess is above 0. Both are at most 2^30 steps or, in int32, 2^15; and a grad of 2^15, for which a row must be
    as wrong as can be, then becomes 2^15 - 1.
    """
    per_grad, per_hess = 1.0 / grad_step, 1.0 / hess_step
    for i in range(len(grads)):
        word = _mix(key + uint64(row_offset + i) * uint64(_GOLDEN))
        grad = floor(grads[i] * per_grad + fraction(word >> uint64(32)))
        hess = floor(hesses[i] * per_hess + fraction(word & uint64(0xFFFFFFFF)))
        packed[i] = pack(grad, max(hess, int64(hesses[i] > 0.0)), packed)


@kernel([void(IN[float64], IN[float64], IN[node], float64, float64, OUT[int64]) for node in NODES])
def sum_by_node(grads, hesses, node_of_row, grad_step, hess_step, sums):
    """Adds grad / grad_step and hess / hess_step of each row, rounded to the nearest integer, to a pair of its node.

    sums  (n_nodes, 2, 2): for even rows and for odd ones, as a sum waits for the last one that was added to it  # OUT
    """
    per_grad, per_hess = 1.0 / grad_step, 1.0 / hess_step
    for row in range(uint64(len(node_of_row))):
        pair = uint64(4) * uint64(node_of_row[row]) + uint64(2) * (row & uint64(1))
        sums[pair] += int64(np.rint(grads[row] * per_grad))
        sums[pair + uint64(1)] += int64(np.rint(hesses[row] * per_hess))

"""Knows margins, labels and integer rounding; does not know trees."""

import math

import numpy as np

from psboost.kernels.compile import IN, OUT, float32, float64, inline, int32, int64, kernel, uint64, void

_HALF = 1.0 / 4294967296.0  # 2^-32: a 32-bit word as a fraction of 1


@inline
def _mix(x):
    """SplitMix64's finaliser (Steele, Lea, Flood 2014): 64 well mixed bits of x."""
    x = (x ^ (x >> uint64(30))) * uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> uint64(27))) * uint64(0x94D049BB133111EB)
    return x ^ (x >> uint64(31))


@kernel(void(IN[float32], IN[float64], IN[float64], OUT[float64], OUT[float64]))
def logistic_gradients(margins, labels, weights, grads, hesses):
    """grad = (p - y) w and hess = p (1 - p) w of the log loss, p = 1 / (1 + exp(-margin)). A single weight is all rows'."""
    step = int64(len(weights) > 1)
    for i in range(len(labels)):
        p = 1.0 / (1.0 + math.exp(-float64(margins[i])))
        weight = weights[step * i]
        grads[i] = (p - labels[i]) * weight
        hesses[i] = max(p * (1.0 - p), 1e-16) * weight


@kernel(void(IN[float32], IN[float64], IN[float64], OUT[float64], OUT[float64]))
def squared_gradients(margins, labels, weights, grads, hesses):
    """grad = (margin - y) w and hess = w of half the squared error. A single weight is all rows'."""
    step = int64(len(weights) > 1)
    for i in range(len(labels)):
        weight = weights[step * i]
        grads[i] = (float64(margins[i]) - labels[i]) * weight
        hesses[i] = weight


@kernel(void(IN[float64], IN[float64], float64, float64, uint64, int64, OUT[int64]))
def round_gradients(grads, hesses, grad_step, hess_step, key, row_offset, packed):
    """packed[i] = (grad / grad_step << 32) + hess / hess_step, rounded up or down at random without bias.

    The random bits are a hash of `key` and the global row number row_offset + i, so they are the same on every grid.
    hess is at least 1 where it is above 0, so a bin is present exactly when its sum_hess is above 0.
    """
    per_grad, per_hess = 1.0 / grad_step, 1.0 / hess_step
    for i in range(len(grads)):
        word = _mix(key ^ _mix(uint64(row_offset + i)))
        up_grad = float64(word >> uint64(32)) * _HALF
        up_hess = float64(word & uint64(0xFFFFFFFF)) * _HALF
        grad = int64(math.floor(grads[i] * per_grad + up_grad))
        hess = int64(math.floor(hesses[i] * per_hess + up_hess))
        if hess < 1 and hesses[i] > 0.0:
            hess = int64(1)
        packed[i] = grad * int64(4294967296) + hess


@kernel(void(IN[float64], IN[float64], IN[int32], float64, float64, OUT[int64]))
def sum_rows(grads, hesses, rows, grad_step, hess_step, sums):
    """Adds grad / grad_step and hess / hess_step of `rows`, each rounded to the nearest integer, to sums[0:2]."""
    per_grad, per_hess = 1.0 / grad_step, 1.0 / hess_step
    sum_grad, sum_hess = int64(0), int64(0)
    for i in range(uint64(len(rows))):
        row = uint64(rows[i])
        sum_grad += int64(np.rint(grads[row] * per_grad))
        sum_hess += int64(np.rint(hesses[row] * per_hess))
    sums[0] += sum_grad
    sums[1] += sum_hess

"""Slow twins of psboost/kernels/gradients.py: Python's floats and unbounded integers, one row at a time."""

import math

MASK = 2**32 - 1


def mix(x):
    """32 well mixed bits of x: lowbias32."""
    x &= MASK
    x = (x ^ (x >> 16)) * 0x7FEB352D & MASK
    x = (x ^ (x >> 15)) * 0x846CA68B & MASK
    return x ^ (x >> 16)


def logistic_gradients(margins, labels, weights):
    """[(grad, hess)] of the log loss; 1 - p is computed apart, as p may be too near to 1 to tell."""
    rows = []
    for margin, label, weight in zip(margins, labels, weights, strict=True):
        p, rest = 1 / (1 + math.exp(-margin)), 1 / (1 + math.exp(margin))
        rows.append(((-rest if label else p) * weight, max(p * rest, 1e-16) * weight))
    return rows


def squared_gradients(margins, labels, weights):
    """[(grad, hess)] of half the squared error."""
    return [((m - y) * w, w) for m, y, w in zip(margins, labels, weights, strict=True)]


def round_gradients(rows, grad_step, hess_step, exact, key, row_offset):
    """[(grad, hess)] in whole steps; a fraction f, but for what is behind 2^-15, is rounded up with probability f; or, where
    steps are exact, from a half on."""
    rounded = []
    for i, (grad, hess) in enumerate(rows):
        high, low = divmod(row_offset + i, 2**32)
        word = mix(low ^ (key & MASK) ^ mix((key >> 32) + high))
        more_grad, more_hess = (2**14, 2**14) if exact else (word % 2**15, word >> 17)
        whole_grad = (math.trunc(grad / grad_step * 2**15) + more_grad) // 2**15
        whole_hess = (math.trunc(hess / hess_step * 2**15) + more_hess) // 2**15
        rounded.append((whole_grad, max(whole_hess, 1) if hess > 0 else whole_hess))
    return rounded


def sum_by_node(rows, node_of_row, n_nodes, grad_step, hess_step):
    """[(grad, hess)] of each node's rows, each row's rounded to the nearest step."""
    of_nodes = [[row for row, own in zip(rows, node_of_row, strict=True) if own == node] for node in range(n_nodes)]
    return [(sum(round(g / grad_step) for g, _ in own), sum(round(h / hess_step) for _, h in own)) for own in of_nodes]


def pack(grad, hess, half_bits=32):
    """Both in one signed integer, in halves of so many bits; a grad that is too large becomes the largest."""
    return (min(grad, 2 ** (half_bits - 1) - 1) << half_bits) + hess

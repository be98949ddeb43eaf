"""Slow twins of psboost/kernels/gradients.py: Python's floats and unbounded integers, one row at a time."""

import math

MASK = 2**64 - 1


def mix(x):
    """64 well mixed bits of x: the end of SplitMix64."""
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB & MASK
    return x ^ (x >> 31)


def logistic_gradients(margins, labels, weights):
    """[(grad, hess)] of the log loss."""
    rows = []
    for margin, label, weight in zip(margins, labels, weights, strict=True):
        p = 1 / (1 + math.exp(-margin))
        rows.append(((p - label) * weight, max(p * (1 - p), 1e-16) * weight))
    return rows


def squared_gradients(margins, labels, weights):
    """[(grad, hess)] of half the squared error."""
    return [((m - y) * w, w) for m, y, w in zip(margins, labels, weights, strict=True)]


def round_gradients(rows, grad_step, hess_step, key, row_offset):
    """[(grad, hess)] in whole steps; a fraction f is rounded up with probability f."""
    rounded = []
    for i, (grad, hess) in enumerate(rows):
        word = mix((key + (row_offset + i) * 0x9E3779B97F4A7C15) & MASK)
        whole_grad = math.floor(grad / grad_step + (word >> 32) / 2**32)
        whole_hess = math.floor(hess / hess_step + (word & 0xFFFFFFFF) / 2**32)
        rounded.append((whole_grad, max(whole_hess, 1) if hess > 0 else whole_hess))
    return rounded


def sum_by_node(rows, node_of_row, n_nodes, grad_step, hess_step):
    """[(grad, hess)] of each node's rows, each row's rounded to the nearest step."""
    of_nodes = [[row for row, own in zip(rows, node_of_row, strict=True) if own == node] for node in range(n_nodes)]
    return [(sum(round(g / grad_step) for g, _ in own), sum(round(h / hess_step) for _, h in own)) for own in of_nodes]


def pack(grad, hess, half_bits=32):
    """Both in one signed integer, in halves of so many bits; a grad that is too large becomes the largest."""
    return (min(grad, 2 ** (half_bits - 1) - 1) << half_bits) + hess

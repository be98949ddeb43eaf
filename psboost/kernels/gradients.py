"""Knows margins, labels and integer rounding; does not know trees.

Gradients are float32 where the loss bounds them, and then in a unit that no row's weight exceeds; else float64.
"""

import numpy as np
from numba.extending import overload

from psboost.kernels.compile import (
    IN,
    OUT,
    boolean,
    float32,
    float64,
    inline,
    int32,
    int64,
    kernel_for,
    uint8,
    uint32,
    uint64,
    void,
)
from psboost.kernels.floats import MOST, exp, whole
from psboost.kernels.members import NODES
from psboost.kernels.packed_rows import WIDTHS, pack

LOSSES = {"logistic loss": (uint8, float32), "squared error": (float64, float64)}  # their labels and gradients
SUMS_OF_NODE = 8  # 4 of grad and of hess, in turns
FRACTION_BITS = 15  # of a step, by which it is decided whether a row's gradient is rounded up
_SOME = 512  # rows
_FRACTION = (1 << FRACTION_BITS) - 1
_HALVES = np.uint32((1 << 31) + (1 << FRACTION_BITS - 1))  # a word of which grad and hess each get half a step
_1, _LEAST_HESS, _MOST_HESS = np.float32(1), np.float32(1e-16), np.float32(0.25)


@inline
def _mix(x):
    """uint32: 32 well mixed bits of x."""
    x = uint32((x ^ (x >> uint32(16))) * uint32(0x7FEB352D))
    x = uint32((x ^ (x >> uint32(15))) * uint32(0x846CA68B))
    return uint32(x ^ (x >> uint32(16)))


@inline
def _logistic(margin, label, weight):
    """grad, hess of a row, both to an ulp or two, however near to 0: neither p nor 1 - p is 1 less the other."""
    odds = exp(min(max(-margin, -MOST), MOST))  # (1 - p) / p
    p = _1 / (_1 + odds)
    rest = min(odds * p, _1)
    return (-rest if label != uint8(0) else p) * weight, max(min(p * rest, _MOST_HESS), _LEAST_HESS) * weight


@inline
def _squared(margin, label, weight):
    """grad, hess of a row."""
    return (float64(margin) - label) * weight, weight


def _of_row(margin, label, weight):
    """grad, hess of a row, by the loss whose labels are of this type."""
    return (_logistic if isinstance(label, np.uint8) else _squared)(margin, label, weight)


@overload(_of_row, jit_options={"forceinline": True})
def _compiled_of_row(margin, label, weight):
    if label == uint8:
        return lambda margin, label, weight: _logistic(margin, label, weight)
    return lambda margin, label, weight: _squared(margin, label, weight)


@kernel_for(LOSSES, signature=lambda label, kind: void(IN[float32], IN[label], IN[kind], OUT[kind], OUT[kind]))
def compute_gradients(margins, labels, weights, grads, hesses):
    """Of the log loss, whose labels, 0 or 1, are uint8: grad = (p - y) w and hess = p (1 - p) w, p = 1 / (1 + exp(-margin)).
    Of half the squared error, whose labels are float64: grad = (margin - y) w and hess = w. A single weight is all rows'."""
    if len(weights) == 1:  # a loop of its own, which is vectorised
        weight = weights[0]
        for i in range(len(labels)):
            grads[i], hesses[i] = _of_row(margins[i], labels[i], weight)
    else:
        for i in range(len(labels)):
            grads[i], hesses[i] = _of_row(margins[i], labels[i], weights[i])


def scaled(value, factor, packed):
    """value * factor, cut to a whole number: in 32 bits, where `packed` and the value have no more."""
    return np.int64(value * value.dtype.type(factor))


@overload(scaled, jit_options={"forceinline": True})
def _scaled(value, factor, packed):
    if value == float32 and packed.dtype == int32:
        return lambda value, factor, packed: int32(value * float32(factor))
    return lambda value, factor, packed: int64(float64(value) * factor)


def round_up(whole, word):
    """`whole` 2^-FRACTION_BITS-ths of a step, rounded up if the lowest FRACTION_BITS bits of `word` and the fraction come to
    one."""
    return (int(whole) + (int(word) & _FRACTION)) >> FRACTION_BITS


@overload(round_up, jit_options={"forceinline": True})
def _round_up(whole, word):
    kind = int32 if whole == int32 else int64

    def compiled(whole, word):
        return kind(kind(whole + kind(word & uint32(_FRACTION))) >> kind(FRACTION_BITS))

    return compiled


@kernel_for(
    LOSSES, WIDTHS,
    signature=lambda _, kind, width: void(IN[kind], IN[kind], float64, float64, boolean, uint64, int64, OUT[width]),
)  # fmt: skip
def round_gradients(grads, hesses, grad_step, hess_step, exact, key, row_offset, packed):
    """Packs grad / grad_step and hess / hess_step (kernels.packed_rows), rounded up or down at random, without bias, or if
    they are `exact` to the nearest integers; but a hess is a step at least.

    The random bits are a mix (Wellons, "lowbias32", 2018) of `key` and the global row number row_offset + i, so they are the
    same on every grid; they are compared with a fraction's first FRACTION_BITS bits, and what is behind these is cut off.
    hess is at least 1 where it is above 0, so a bin is present exactly when its sum_hess is above 0. Both are at most 2^30
    steps or, in int32, 2^15; and a grad of 2^15, for which a row must be as wrong as can be, then becomes 2^15 - 1.
    """
    per_grad, per_hess = (1 << FRACTION_BITS) / grad_step, (1 << FRACTION_BITS) / hess_step
    first, high = uint32(row_offset & 0xFFFFFFFF), uint64(row_offset) >> uint64(32)
    low_key, high_key = uint32(key), uint64(key >> uint64(32))
    here = uint32(_mix(uint32(high_key + high)) ^ low_key)
    behind = uint32(_mix(uint32(high_key + high + uint64(1))) ^ low_key)
    kept, added = (uint32(0), _HALVES) if exact else (uint32(0xFFFFFFFF), uint32(0))
    for i in range(len(grads)):
        row = uint32(first + uint32(i))
        word = _mix(uint32(row ^ (here if row >= first else behind)))  # behind 2^32 rows, row numbers begin anew
        word = uint32((word & kept) + added)
        grad = round_up(scaled(grads[i], per_grad, packed), word)
        hess = round_up(scaled(hesses[i], per_hess, packed), word >> uint32(32 - FRACTION_BITS))
        packed[i] = pack(grad, max(hess, int32(hesses[i] > 0.0)), packed)


@kernel_for(LOSSES, NODES, signature=lambda _, kind, node: void(IN[kind], IN[kind], IN[node], float64, float64, OUT[int64]))
def sum_by_node(grads, hesses, node_of_row, grad_step, hess_step, sums):
    """Adds grad / grad_step and hess / hess_step of each row, rounded to the nearest integer, to a pair of its node.

    They are below 2^WHOLE_BITS (kernels.floats).

    sums  (n_nodes * SUMS_OF_NODE): of each four rows, one each, as a sum waits for the last one that was added to it  # OUT
    """
    per_grad, per_hess = 1.0 / grad_step, 1.0 / hess_step
    n_rows, some_grads, some_hesses = uint64(len(node_of_row)), np.empty(_SOME, np.int64), np.empty(_SOME, np.int64)
    for begin in range(uint64(0), n_rows, uint64(_SOME)):
        n = min(uint64(_SOME), n_rows - begin)
        for i in range(n):  # a loop of its own, which is vectorised
            some_grads[i] = whole(float64(grads[begin + i]) * per_grad)
            some_hesses[i] = whole(float64(hesses[begin + i]) * per_hess)
        for i in range(n):
            pair = uint64(SUMS_OF_NODE) * uint64(node_of_row[begin + i]) + uint64(2) * (i & uint64(3))
            sums[pair] += some_grads[i]
            sums[pair + uint64(1)] += some_hesses[i]


@kernel_for(NODES, signature=lambda node: void(IN[node], IN[float32], OUT[float32]))
def add_values(node_of_row, values, margins):
    """Adds to each row's margin the value of the node that the row is in."""
    for i in range(uint64(len(node_of_row))):
        margins[i] += values[uint64(node_of_row[i])]

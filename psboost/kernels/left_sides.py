"""Knows the left sides of all splits by a feature, many at once, and roughly whether one of them may win; does not know ids,
and no gain exactly.

    lefts   float64 (2, room_for(most bins of a feature)): of sums in pairs, grads and hesses
    words   int64, the same memory: packed ones

A slot's sums are said as two numbers: packed and 0, or grad and hess.
"""

import numpy as np

from psboost.kernels.ascending import first_from
from psboost.kernels.compile import float32, float64, inline, int32, int64, uint32, uint64
from psboost.kernels.slots import LOW

BATCH = 256  # so many left sides or more are tested at once
_1, _2 = uint64(1), uint64(2)
_EXACT = 1 << 53  # float64 holds sums that are less as they are

# A gain this much (relative) under the best one is under it after any rounding: each is a few operations of 1e-16.
SURELY_LESS = 1.0 - 1e-9
# The same where they are of 2^-24, in float32; and more than one of these takes from a number.
_LESS_IN_FLOAT32, _MORE_IN_FLOAT32 = 1.0 - 2.0**-18, 1.0 + 2.0**-21
_LEAST_IN_FLOAT32 = 2.0**-100  # a bound: rounding takes more from numbers that are much less


def room_for(most_bins: int) -> int:
    """How long a row of `lefts` is, for features of so many bins at most: one that comes last to a batch has two left sides
    for each, with what is missing and without."""
    return BATCH + 2 * most_bins


@inline
def _slot(sums, pairs, k):
    k = uint64(k)
    return (sums[_2 * k], sums[_2 * k + _1]) if pairs else (sums[k], int64(0))


@inline
def halves(slot, pairs):
    """grad, hess."""
    return slot if pairs else (slot[0] >> int64(32), slot[0] & int64(LOW))


@inline
def sum_slots(sums, pairs, begin, end):
    """What slots begin .. end come to."""
    first, second = int64(0), int64(0)
    if pairs:
        for k in range(uint64(begin), uint64(end)):
            first += sums[_2 * k]
            second += sums[_2 * k + _1]
        return first, second
    for k in range(uint64(begin), uint64(end)):
        first += sums[k]
    return first, second


@inline
def bins_of(node, pairs, i, bin_offsets, default_bins, node_sums):
    """Of the node's feature i: where its bins begin and end, but for that of NaN; the bin of zero, or -1; and two slots,
    what unstored zeros come to, and what is missing.

    Unstored cells are missing; or zeros, and then NaN is missing. Where there is no hess, there is no grad.
    """
    feature, begin, end = uint64(node.features[i]), int64(node.starts[i]), int64(node.starts[i + 1])
    first, zero_bin, nan_bin = int64(bin_offsets[feature]), default_bins[_2 * feature], default_bins[_2 * feature + _1]
    stored, stored_hess = sum_slots(node.sums, pairs, begin, end)
    if pairs:
        unstored = node_sums[0] - stored, node_sums[1] - stored_hess
    else:
        unstored = (node_sums[0] << int64(32)) + node_sums[1] - stored, int64(0)
    nothing = int64(0), int64(0)
    if zero_bin < 0:
        return begin, end, int64(-1), nothing, unstored
    if nan_bin >= 0 and node.bins[end - 1] == first + nan_bin:
        return begin, end - 1, first + zero_bin, unstored, _slot(node.sums, pairs, end - 1)
    return begin, end, first + zero_bin, unstored, nothing


@inline
def _put_left(left, hess, pairs, at, lefts, words):
    if pairs:
        lefts[0, at], lefts[1, at] = left, hess
    else:
        words[at] = left


@inline
def _put_lefts(sums, pairs, begin, end, left, hess, at, lefts, words):
    """A left side for each bin begin .. end, that ends with it; returns the last one's sums, and where the next goes."""
    for k in range(uint64(begin), uint64(end)):
        bin_sum, bin_hess = _slot(sums, pairs, k)
        left += bin_sum
        hess += bin_hess
        _put_left(left, hess, pairs, at, lefts, words)
        at += _1
    return left, hess, at


@inline
def add_lefts(node, pairs, i, bin_offsets, default_bins, node_sums, n, lefts, words):
    """Adds the left sides of all splits by the node's feature i to n that are there; returns how many are then.

    node_sums  as kernels.gains.find_split takes them
    lefts, words  # OUT
    """
    begin, end, zero_bin, zeros, missing = bins_of(node, pairs, i, bin_offsets, default_bins, node_sums)
    first = uint64(n)
    if zeros[0] | zeros[1] == 0:
        _, _, at = _put_lefts(node.sums, pairs, begin, end, int64(0), int64(0), first, lefts, words)
    else:
        after = first_from(zero_bin, node.bins, begin, end)
        left, hess, at = _put_lefts(node.sums, pairs, begin, after, int64(0), int64(0), first, lefts, words)
        left += zeros[0]
        hess += zeros[1]
        if after == end or node.bins[after] != zero_bin:
            _put_left(left, hess, pairs, at, lefts, words)
            at += _1
        _, _, at = _put_lefts(node.sums, pairs, after, end, left, hess, at, lefts, words)
    if missing[0] | missing[1] != 0:
        to, more, more_hess = at - first, float64(missing[0]), float64(missing[1])
        for k in range(first, at):
            if pairs:
                lefts[0, to + k] = lefts[0, k] + more
                lefts[1, to + k] = lefts[1, k] + more_hess
            else:
                words[to + k] = words[k] + missing[0]
        at += to
    return int64(at)


@inline
def some_may_win(n, node_sums, alpha, reg_lambda, bound, lefts):
    """Whether one of n splits, whose left sides are in pairs, may gain `bound` and is allowed: said too often, but never too
    seldom. Compiled to vector instructions.
    """
    if node_sums[1] >= _EXACT or node_sums[3] >= _EXACT:
        return n > 0
    total, total_hess, least = float64(node_sums[0]), float64(node_sums[1]), float64(node_sums[2])
    less, some = bound * SURELY_LESS, int64(0)
    for i in range(uint64(n)):
        left, h = lefts[0, i], lefts[1, i]
        right, k = max(abs(total - left) - alpha, 0.0), total_hess - h
        left = max(abs(left) - alpha, 0.0)
        allowed = (h >= least) & (k >= least)
        h += reg_lambda
        k += reg_lambda
        some |= int64(allowed & (not left * left * k + right * right * h < less * h * k))
    return some != 0


@inline
def some_may_win_packed(n, node_sums, alpha, reg_lambda, bound, words):
    """The same where they are packed: in float32, of which there are twice as many in a vector."""
    grads, hesses = words.view(np.int32), words.view(np.uint32)
    total, total_hess, least = int32(node_sums[0]), uint32(node_sums[1]), uint32(min(node_sums[2], int64(LOW)))
    more, shrunk, zero = float32(_MORE_IN_FLOAT32), float32(alpha / _MORE_IN_FLOAT32), float32(0)
    less = float32(bound * _LESS_IN_FLOAT32) if bound > _LEAST_IN_FLOAT32 else float32(0)
    more_hess, some = float32(reg_lambda), int32(0)
    for i in range(uint64(n)):
        grad, hess = grads[_2 * i + _1], hesses[_2 * i]
        rest_grad, rest_hess = int32(total - grad), uint32(total_hess - hess)
        left = max(abs(float32(grad)) * more - shrunk, zero)
        right = max(abs(float32(rest_grad)) * more - shrunk, zero)
        h, k = float32(hess) + more_hess, float32(rest_hess) + more_hess
        is_less = left * left * k + right * right * h < less * h * k
        some = int32(some | int32((hess >= least) & (rest_hess >= least) & (not is_less)))
    return some != 0

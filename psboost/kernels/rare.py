"""Knows features of few rows, and finds those of their splits that are a node's best without histograms; not levels.

A split by such a feature parts a few of a node's rows from all others, as those that do not store it stay together. With c
rows it gains no more than `_most_gain` says. So there is a number of rows that a feature must have in a node to gain more
than is known to be gained there; and to count rows, those of all nodes at once, takes much less time than to add up their
gradients. It is what search engines do with rare terms (MaxScore: Turtle and Flood, "Query evaluation: strategies and
optimizations", 1995). Where nodes gain little, too many features have rows enough, and histograms take less time.

    needed      int64: of each open node, numbered from first_node on, so many rows (plan)
    ends        int64 (NEVER + 1): features that k rows or more store are before ends[k]
"""

import numpy as np

from psboost.kernels.compile import (
    IN,
    IN2,
    OUT,
    OUT2,
    boolean,
    float64,
    inline,
    int32,
    int64,
    kernel,
    kernel_for,
    uint8,
    uint64,
)
from psboost.kernels.gains import GAMMA, GRAD_STEP, HESS_STEP, MIN_GAIN, REG_LAMBDA, improve_split
from psboost.kernels.left_sides import SURELY_LESS
from psboost.kernels.node_histograms import NodeHistogram
from psboost.kernels.packed_rows import WIDTHS, grad_and_hess
from psboost.kernels.splits import NODE_GRAD, NODE_HESS

MOST_ROWS = 15  # that a rare feature has: four bits count them
NEVER = MOST_ROWS + 1  # so many it has nowhere
_AT_ONCE = 32  # nodes, whose rows are counted in two words
_MOST_NODES = 256  # that a byte numbers
_0, _1, _4, _6, _63 = (uint64(k) for k in (0, 1, 4, 6, 63))
_LOW_FOURS, _HIGHEST = uint64(0x0F0F0F0F0F0F0F0F), uint64(0x8080808080808080)


def ends_of(n_rows: np.ndarray) -> np.ndarray:
    """`ends` of features that so many rows store (int64)."""
    return np.array([1 + np.flatnonzero(n_rows >= k).max(initial=-1) for k in range(NEVER + 1)])


@inline
def _most_gain(n_rows, grad, hess, most_grad, most_hess, least, rule):
    """No split that parts n_rows rows from all others of a node gains more.

    A child of sums g, h scores g^2 / (h + lambda). Its gain is that and, where the other child is worth w, 2 |w g| + w^2 h
    besides at most, as scores are convex in a node's sums: what the parent scores is not below a tangent.

    grad, hess            what the node's rows come to
    most_grad, most_hess  of any row
    least                 hess of a child
    """
    reg_lambda, own, own_hess = rule[REG_LAMBDA], n_rows * most_grad * rule[GRAD_STEP], n_rows * most_hess * rule[HESS_STEP]
    least_hess = least * rule[HESS_STEP]
    rest_hess = max(hess * rule[HESS_STEP] - own_hess, least_hess)
    worth = (abs(grad) * rule[GRAD_STEP] + own) / (rest_hess + reg_lambda)
    return own * own / (least_hess + reg_lambda) + 2.0 * worth * own + worth * worth * own_hess


@kernel(int64(IN[float64], IN2[int64], int64, int64, int64, IN[float64], OUT[int64]))
def plan(gains, proposals, most_grad, most_hess, least, rule, needed):
    """How many rows a rare feature must have in each node to gain what its proposal does, NEVER if none can  # OUT: needed

    gains                    of the proposals, -inf where there is none
    most_grad, most_hess     of any row
    least, rule              as gains.find_splits takes them
    returns                  the least of them
    """
    fewest = int64(NEVER)
    for i in range(len(gains)):
        grad, hess = float64(proposals[i, NODE_GRAD]), float64(proposals[i, NODE_HESS])
        known, n_rows = max(gains[i], rule[MIN_GAIN], rule[GAMMA]), int64(1)
        score = (grad * rule[GRAD_STEP]) ** 2 / (hess * rule[HESS_STEP] + rule[REG_LAMBDA])
        while n_rows < NEVER:
            most = _most_gain(float64(n_rows), grad, hess, float64(most_grad), float64(most_hess), float64(least), rule)
            # What cannot be computed, 0 / 0, is not said to be less.
            if n_rows * most_hess >= least and not score + most < (score + known) * SURELY_LESS:
                break
            n_rows += 1
        needed[i] = n_rows if hess >= 2 * least else NEVER
        fewest = min(fewest, needed[i])
    return fewest


@inline
def _note_node(node, place, n_rows, counters, limits):
    """Has the rows of a node counted by four bits, as number `place`, and told if they are n_rows or more."""
    word, fours = uint64(place) >> _4, uint64(place & 15)
    counters[word, node] = _1 << (_4 * fours)
    limits[word, fours & _1] += uint64(0x80 - n_rows) << (uint64(8) * (fours >> _1))


@inline
def _reach(counts, limits, word):
    """Not 0 if one of 16 numbers of four bits, each of which gets a byte, reaches its limit: even ones and odd ones."""
    return (((counts & _LOW_FOURS) + limits[word, 0]) | (((counts >> _4) & _LOW_FOURS) + limits[word, 1])) & _HIGHEST


@inline
def _n_marked(rows, begin, end, marks):
    """How many of these rows have their bit set."""
    n = _0
    for at in range(begin, end):
        row = uint64(rows[at])
        n += (marks[row >> _6] >> (row & _63)) & _1
    return n


@inline
def _has_less(fewest, rows, begin, end, marks):
    """Whether less than `fewest` of these rows have their bit set. If none of the first has, the others are too few."""
    if end - begin < uint64(fewest):
        return True
    middle = end - uint64(fewest - 1)
    n = _n_marked(rows, begin, middle, marks)
    return n == _0 or n + _n_marked(rows, middle, end, marks) < uint64(fewest)


@inline
def _add_up(feature, node, n_train, posting_offsets, posting_rows, bin_offsets, node_of_row, packed, histogram):
    """The histogram of a node's rows (OUT) by one feature, in pairs; returns how many bins it has, and what hess."""
    n_bins, stored = _0, int64(0)
    for b in range(uint64(bin_offsets[feature]), uint64(bin_offsets[feature + _1])):
        grads, hesses = int64(0), int64(0)
        for at in range(uint64(posting_offsets[b]), uint64(posting_offsets[b + _1])):
            row = uint64(posting_rows[at])
            if row < uint64(n_train) and node_of_row[row] == node:
                grad, hess = grad_and_hess(packed, row)
                grads += grad
                hesses += hess
        if hesses != 0:
            at = n_bins + n_bins
            histogram.bins[n_bins], histogram.sums[at], histogram.sums[at + _1] = b, grads, hesses
            stored += hesses
            n_bins += _1
    histogram.features[0], histogram.starts[1] = feature, n_bins
    return n_bins, stored


@kernel_for(
    WIDTHS,
    signature=lambda width: int64(
        IN[int64], int64, int64, IN[uint64], boolean, IN[int64], IN[int32], IN[int32], IN[int32], IN[int64], IN[int32],
        IN[int32], IN[uint8], int64, IN[int64], int64, IN[width], int64, IN[float64], OUT2[int64], OUT[float64],
    ),
)  # fmt: skip
def look(
    ends, n_rows, fewest, marks, are_few, posting_offsets, posting_rows, bin_offsets, default_bins, ids, shards, locals_,
    node_of_row, first_node, needed, n_train, packed, least, rule, proposals, gains,
):  # fmt: skip
    """Puts splits by those of a block's features that n_rows rows store in the place of proposals for nodes that they are
    better than; returns how often gradients were added up.

    fewest           the least that is needed in any node
    marks            a bit for each row: whether no more than n_rows are needed in its node
    are_few          whether most features are likely to have less than `fewest` such rows
    posting_offsets, posting_rows, bin_offsets   as data.block.SparseBlock has them
    default_bins, ids, shards, locals_           as gains.find_splits takes them
    node_of_row      of all rows; the first n_train count
    packed           gradients of all rows
    proposals        and what they gain, -inf where there is none  # OUT
    """
    n_closer, begin, node_sums, places = int64(0), 0, np.array([0, 0, least, 0]), np.empty(_AT_ONCE, np.int64)
    histogram = NodeHistogram(
        np.empty(1, np.int32), np.zeros(2, np.int32), np.empty(MOST_ROWS, np.int32), np.empty(2 * MOST_ROWS, np.int64)
    )
    while begin < len(needed):
        counters, limits, n_here = np.zeros((2, _MOST_NODES), np.uint64), np.zeros((2, 2), np.uint64), 0
        while begin < len(needed) and n_here < _AT_ONCE:
            if needed[begin] <= n_rows:
                _note_node(first_node + begin, n_here, needed[begin], counters, limits)
                places[n_here] = begin
                n_here += 1
            begin += 1
        for feature in range(uint64(ends[n_rows + 1]), uint64(ends[n_rows])):
            first = uint64(posting_offsets[uint64(bin_offsets[feature])])
            end = uint64(posting_offsets[uint64(bin_offsets[feature + _1])])
            if are_few and _has_less(fewest, posting_rows, first, end, marks):
                continue
            low, high = _0, _0
            for at in range(first, end):
                node = uint64(node_of_row[uint64(posting_rows[at])])
                low += counters[_0, node]
                high += counters[_1, node]
            if _reach(low, limits, 0) | _reach(high, limits, 1) == _0:
                continue
            for place in range(n_here):
                i, counts = places[place], high if place >= 16 else low
                if int64((counts >> (_4 * uint64(place & 15))) & uint64(15)) < needed[i]:
                    continue
                n_closer += 1
                n_bins, stored = _add_up(
                    feature, first_node + i, n_train, posting_offsets, posting_rows, bin_offsets, node_of_row, packed,
                    histogram,
                )  # fmt: skip
                if n_bins > _0 and stored >= least:
                    node_sums[0], node_sums[1] = proposals[i, NODE_GRAD], proposals[i, NODE_HESS]
                    improve_split(
                        histogram, bin_offsets, default_bins, ids, shards, locals_, node_sums, rule, proposals[i],
                        gains[i : i + 1],
                    )  # fmt: skip
    return n_closer

"""Knows gains over sorted bins, and which split of a node gains most; does not know what becomes of it.

A node's best split is written down as a proposal (kernels.splits).
"""

import numpy as np

from psboost.kernels.compile import (
    IN,
    OUT,
    OUT2,
    boolean,
    estimate,
    float32,
    float64,
    inline,
    int32,
    int64,
    kernel,
    uint32,
    uint64,
    void,
)
from psboost.kernels.fills import fill
from psboost.kernels.histograms import read
from psboost.kernels.node_histograms import NODE_HISTOGRAM
from psboost.kernels.open_nodes import GRAD, HESS, PAIRS, histogram_of
from psboost.kernels.packing import mask_of
from psboost.kernels.splits import (
    BIN,
    DEFAULT_LEFT,
    FEATURE,
    LEFT_GRAD,
    LEFT_HESS,
    LOCAL,
    NODE_GRAD,
    NODE_HESS,
    SHARD,
)
from psboost.kernels.words import lowest_one

# rule (float64): what a unit of grad and of hess is worth, and the regularisation
GRAD_STEP, HESS_STEP, REG_LAMBDA, REG_ALPHA, MIN_GAIN, GAMMA = range(6)

# Candidates are tested many at once: those of several features together where these have few bins.
BATCH = 256
_FEW_BINS = 128  # of 64 features, which are tested at once: those that are their feature's only one matter
_0, _1 = uint64(0), uint64(1)
# candidates (int64, one a column): the sums of the left side with missing values on the right; what is missing; where
# it is, feature << 32 | bin; which of the two ways may win: 1 missing right, 2 missing left
_GRAD, _HESS, _MISSING_GRAD, _MISSING_HESS, _WHERE, _MAY_WIN, N_FIELDS = range(7)

# Twice the most that rounding to float32 takes from a sum, for each number that is added and each step to it.
_LOST = 2.0**-23

# A gain this much (relative) under the best one is under it after any rounding: each is a few operations of 1e-16.
_SURELY_LESS = 1.0 - 1e-9


@inline
def _score(grad, hess, rule):
    """T(G)^2 / (H + lambda), T shrinking by reg_alpha (XGBoost paper, equation 7)."""
    g = grad * rule[GRAD_STEP]
    alpha = rule[REG_ALPHA]
    if alpha > 0.0:
        g = g - alpha if g > alpha else (g + alpha if g < -alpha else 0.0)
    return g * g / (hess * rule[HESS_STEP] + rule[REG_LAMBDA])


@inline
def _may_win(left_grad, left_hess, node_sums, alpha, reg_lambda, bound):
    """1 if the split is allowed and may gain `bound`, or else 0: all in whole steps, without branch or division.

    L^2 / h + R^2 / k < bound is tested as L^2 k + R^2 h < bound h k.
    """
    right_hess = node_sums[1] - left_hess
    left, right = float64(left_grad), float64(node_sums[0] - left_grad)
    left -= min(max(left, -alpha), alpha)
    right -= min(max(right, -alpha), alpha)
    h, k = float64(left_hess) + reg_lambda, float64(right_hess) + reg_lambda
    is_less = left * left * k + right * right * h < bound * h * k
    return int64(left_hess >= node_sums[2]) & int64(right_hess >= node_sums[2]) & int64(not is_less)


@inline
def _mark(n, node_sums, alpha, reg_lambda, bound, candidates):
    """Marks which of n candidates may gain `bound`; returns whether any does. Compiled to vector instructions."""
    grads, hesses = candidates[_GRAD], candidates[_HESS]
    missing_grads, missing_hesses = candidates[_MISSING_GRAD], candidates[_MISSING_HESS]
    marks = candidates[_MAY_WIN]
    sums = (node_sums[0], node_sums[1], node_sums[2])
    any_mark = int64(0)
    for i in range(n):
        mark = _may_win(grads[i], hesses[i], sums, alpha, reg_lambda, bound)
        grad, hess = grads[i] + missing_grads[i], hesses[i] + missing_hesses[i]
        mark |= 2 * (int64(missing_hesses[i] > 0) & _may_win(grad, hess, sums, alpha, reg_lambda, bound))
        marks[i] = mark
        any_mark |= mark
    return any_mark != 0


@inline
def _consider(grad, hess, where, default_left, parent_score, ids, node_sums, rule, best, best_gain):
    """Keeps the split if it is better; on a tie the lower user number."""
    feature = where >> int64(32)
    gain = (
        _score(float64(grad), float64(hess), rule)
        + _score(float64(node_sums[0] - grad), float64(node_sums[1] - hess), rule)
        - parent_score
    )
    better = gain > best_gain[0]
    if not better and gain == best_gain[0]:
        better = ids[feature] < best[FEATURE]
    if better:
        best_gain[0] = gain
        best[FEATURE] = ids[feature]
        best[LOCAL] = feature
        best[BIN] = where & int64(0xFFFFFFFF)
        best[DEFAULT_LEFT] = default_left
        best[LEFT_GRAD] = grad
        best[LEFT_HESS] = hess


@inline
def _choose(n, parent_score, ids, node_sums, rule, candidates, best, best_gain):
    """Keeps the best of the marked candidates. A feature's come with ascending bins, missing right first."""
    for i in range(n):
        mark = candidates[_MAY_WIN, i]
        if mark == 0:
            continue
        grad, hess, where = candidates[_GRAD, i], candidates[_HESS, i], candidates[_WHERE, i]
        if mark & 1:
            _consider(grad, hess, where, 0, parent_score, ids, node_sums, rule, best, best_gain)
        if mark & 2:
            grad, hess = grad + candidates[_MISSING_GRAD, i], hess + candidates[_MISSING_HESS, i]
            _consider(grad, hess, where, 1, parent_score, ids, node_sums, rule, best, best_gain)


@estimate
def _weigh(sums, pairs, begin, end):
    """Over slots begin .. end, of hesses above 0: sum of grad^2 / hess, sum of |grad|, nearly; sum of grad, of hess."""
    squares, size = float32(0), float32(0)
    total_grad, total_hess = int64(0), int64(0)
    if pairs:
        for k in range(begin, end):
            total_grad += sums[2 * k]
            total_hess += sums[2 * k + 1]
            grad, hess = float32(sums[2 * k]), float32(sums[2 * k + 1])
            squares += grad * grad / hess
            size += abs(grad)
        return squares, size, total_grad, total_hess
    total = int64(0)
    for k in range(begin, end):
        total += sums[k]
        grad, hess = float32(int32(sums[k] >> int64(32))), float32(uint32(sums[k] & int64(0xFFFFFFFF)))
        squares += grad * grad / hess
        size += abs(grad)
    return squares, size, total >> int64(32), total & int64(0xFFFFFFFF)


@inline
def _most_score(sums, pairs, begin, end, node_sums, reg_lambda):
    """No split by a feature, whose bins are slots begin .. end, has children that score more than this, in whole steps.

    One of the children holds a few of the stored values, s and k the sums of their grads and hesses. Its score is
    s^2 / (k + lambda) <= sum(g^2 / h) K / (K + lambda), over all bins of the feature (Cauchy and Schwarz), K their
    hesses; the other's is (G - s)^2 / (H - k + lambda), k <= K, with s between the sums of the negative and of the
    positive grads.
    """
    squares, size, grad, hess = _weigh(sums, pairs, uint64(begin), uint64(end))
    more = 1.0 + _LOST * (end - begin + 8)
    rest = abs(float64(node_sums[0]) - 0.5 * float64(grad)) + 0.5 * more * float64(size)
    few = more * float64(squares) * float64(hess) / (float64(hess) + reg_lambda)
    return few + rest * rest / (float64(node_sums[1] - hess) + reg_lambda)


@inline
def _add_bins(node, pairs, begin, end, first, node_sums, n, candidates):
    """Adds the candidates of a feature whose unstored cells are missing, one for each bin; returns how many there are.

    first + bin is what a candidate's field _WHERE says.
    """
    at = uint64(n)
    if end - begin == 1:  # as in one-hot data: without the loops' preparations
        grad, hess = read(node.sums, pairs, begin)
        candidates[_GRAD, at], candidates[_HESS, at] = grad, hess
        candidates[_MISSING_GRAD, at], candidates[_MISSING_HESS, at] = node_sums[0] - grad, node_sums[1] - hess
        candidates[_WHERE, at] = first + node.bins[uint64(begin)]
        return n + 1
    grad, hess = int64(0), int64(0)
    for k in range(begin, end):
        bin_grad, bin_hess = read(node.sums, pairs, k)
        grad += bin_grad
        hess += bin_hess
        candidates[_GRAD, at], candidates[_HESS, at], candidates[_WHERE, at] = grad, hess, first + node.bins[uint64(k)]
        at += uint64(1)
    grad, hess = node_sums[0] - grad, node_sums[1] - hess
    for k in range(uint64(n), at):
        candidates[_MISSING_GRAD, k], candidates[_MISSING_HESS, k] = grad, hess
    return int64(at)


@inline
def _add_bins_and_zeros(node, pairs, begin, end, first, zero_bin, nan_bin, node_sums, n, candidates):
    """The same where unstored cells are zeros, whose sums join those of zero_bin, and NaN, in nan_bin, is missing."""
    zero_grad, zero_hess = node_sums[0], node_sums[1]
    for k in range(begin, end):
        grad, hess = read(node.sums, pairs, k)
        zero_grad -= grad
        zero_hess -= hess
    missing_grad, missing_hess = int64(0), int64(0)
    if node.bins[end - 1] == nan_bin:
        end -= 1
        missing_grad, missing_hess = read(node.sums, pairs, end)
    zeros_due = zero_hess > 0
    grad, hess = int64(0), int64(0)
    n_before = n
    for k in range(begin, end):
        if zeros_due and zero_bin <= node.bins[k]:
            zeros_due = False
            grad += zero_grad
            hess += zero_hess
            if zero_bin < node.bins[k]:
                candidates[_GRAD, n], candidates[_HESS, n], candidates[_WHERE, n] = grad, hess, first + zero_bin
                n += 1
        bin_grad, bin_hess = read(node.sums, pairs, k)
        grad += bin_grad
        hess += bin_hess
        candidates[_GRAD, n], candidates[_HESS, n], candidates[_WHERE, n] = grad, hess, first + node.bins[k]
        n += 1
    if zeros_due:
        grad, hess = grad + zero_grad, hess + zero_hess
        candidates[_GRAD, n], candidates[_HESS, n], candidates[_WHERE, n] = grad, hess, first + zero_bin
        n += 1
    for k in range(n_before, n):
        candidates[_MISSING_GRAD, k], candidates[_MISSING_HESS, k] = missing_grad, missing_hess
    return n


@inline
def _with_several(starts, first, n):
    """A bit for each of n features from `first` on, 64 at most: 1 if it has several bins."""
    if starts[first + n] - starts[first] == n:
        return _0
    bits = _0
    for k in range(uint64(n)):
        bits |= uint64(starts[uint64(first) + k + _1] - starts[uint64(first) + k] != 1) << k
    return bits


@inline
def _may_gain(grad, hess, node_sums, reg_lambda, bound):
    """Whether the split of a feature's only bin from all other rows may gain `bound`."""
    left, right = float64(grad), float64(node_sums[0] - grad)
    h, k = float64(hess) + reg_lambda, float64(node_sums[1] - hess) + reg_lambda
    return not left * left * k + right * right * h < bound * h * k


@inline
def _some_may_gain(sums, pairs, begin, end, node_sums, reg_lambda, bound):
    """_may_gain of some of the bins begin .. end. Compiled to vector instructions."""
    total, some = (node_sums[0], node_sums[1]), False
    for k in range(uint64(begin), uint64(end)):
        grad, hess = read(sums, pairs, k)
        some |= _may_gain(grad, hess, total, reg_lambda, bound)
    return some


@inline
def _add_feature(node, pairs, i, bin_offsets, default_bins, node_sums, n, candidates):
    """Adds the candidates of the node's feature i; returns how many there are."""
    begin, end, feature = int64(node.starts[i]), int64(node.starts[i + 1]), int64(node.features[i])
    zero_bin, nan_bin = default_bins[2 * feature], default_bins[2 * feature + 1]
    first_bin = int64(bin_offsets[feature])
    first = (feature << int64(32)) - first_bin
    if zero_bin < 0:
        return _add_bins(node, pairs, begin, end, first, node_sums, n, candidates)
    zero_bin, nan_bin = first_bin + zero_bin, first_bin + nan_bin if nan_bin >= 0 else int64(-1)
    return _add_bins_and_zeros(node, pairs, begin, end, first, zero_bin, nan_bin, node_sums, n, candidates)


@kernel(
    boolean(
        NODE_HISTOGRAM, boolean, IN[int32], IN[int32], IN[int64], IN[int64], IN[float64],
        OUT2[int64], OUT[float64], OUT[int64], OUT[float64],
    )
)  # fmt: skip
def find_split(node, pairs, bin_offsets, default_bins, ids, node_sums, rule, candidates, scores, best, best_gain):
    """Finds a node's best split, a proposal whose LOCAL is the feature's number here (OUT); returns whether there is one.

    node          the node's histogram; pairs: whether its sums are
    bin_offsets   int32 (n_features + 1)
    default_bins  int32 (n_features, 2 as pairs): the bin in the feature of value zero, or -1 if an unstored
                  cell is missing; and the bin in the feature that holds NaN, or -1
    ids           int64: user number of a feature
    node_sums     int64: sum_grad, sum_hess of all rows, least sum_hess of a child
    candidates    int64 (N_FIELDS, BATCH + 1 + most bins of a feature): spare room  # OUT
    scores        float64 (n_features): spare room  # OUT
    """
    total_grad, total_hess = node_sums[0], node_sums[1]
    parent_score = _score(float64(total_grad), float64(total_hess), rule)
    fill(best, 0)
    best[FEATURE] = -1
    best_gain[0] = rule[MIN_GAIN]
    # In whole steps nothing has to be scaled for each candidate; steps are powers of two, so this is exact.
    alpha, reg_lambda = rule[REG_ALPHA] / rule[GRAD_STEP], rule[REG_LAMBDA] / rule[HESS_STEP]
    score_step = _SURELY_LESS / rule[GRAD_STEP] / rule[GRAD_STEP] * rule[HESS_STEP]
    n_features = len(node.features)
    # The most that each feature's children can score; of one bin, which takes a sixth of the time below, it is not asked.
    promising, most = int64(-1), -1.0
    for first in range(0, n_features, 64):
        several = _with_several(node.starts, first, min(64, n_features - first))
        while several != _0:
            i = first + int64(lowest_one(several))
            several &= several - _1
            scores[i] = _most_score(node.sums, pairs, node.starts[i], node.starts[i + 1], node_sums, reg_lambda)
            if scores[i] > most:
                promising, most = i, scores[i]
    # The most promising feature goes first, so that others fall behind it at once; that it comes again changes nothing.
    # To mark and choose stands here three times: in a function, though inlined, it takes 1.15 times as long on dense data.
    bound, n = (parent_score + best_gain[0]) * score_step, int64(0)
    if promising >= 0:
        n = _add_feature(node, pairs, promising, bin_offsets, default_bins, node_sums, n, candidates)
        if _mark(n, node_sums, alpha, reg_lambda, bound, candidates):
            _choose(n, parent_score, ids, node_sums, rule, candidates, best, best_gain)
            bound = (parent_score + best_gain[0]) * score_step
        n = int64(0)
    for first in range(0, n_features, 64):
        n_here = min(64, n_features - first)
        several = _with_several(node.starts, first, n_here)
        left, begin, end = mask_of(uint64(n_here)), int64(node.starts[first]), int64(node.starts[first + n_here])
        if end - begin <= _FEW_BINS and not _some_may_gain(node.sums, pairs, begin, end, node_sums, reg_lambda, bound):
            left = several
        while left != _0:
            i = first + int64(lowest_one(left))
            left &= left - _1
            begin = int64(node.starts[i])
            if node.starts[i + 1] - begin == 1:
                grad, hess = read(node.sums, pairs, begin)
                if not _may_gain(grad, hess, node_sums, reg_lambda, bound):
                    continue
            elif scores[i] < bound:
                continue
            n = _add_feature(node, pairs, i, bin_offsets, default_bins, node_sums, n, candidates)
            if n >= BATCH:
                if _mark(n, node_sums, alpha, reg_lambda, bound, candidates):
                    _choose(n, parent_score, ids, node_sums, rule, candidates, best, best_gain)
                    bound = (parent_score + best_gain[0]) * score_step
                n = int64(0)
    if _mark(n, node_sums, alpha, reg_lambda, bound, candidates):
        _choose(n, parent_score, ids, node_sums, rule, candidates, best, best_gain)
    return best[FEATURE] >= 0


@kernel(
    void(
        NODE_HISTOGRAM, OUT2[int64], IN[int32], IN[int32], IN[int64], IN[int32], IN[int32], int64, IN[float64], OUT2[int64],
        OUT[float64], OUT2[int64], OUT[float64],
    )
)  # fmt: skip
def find_splits(
    memory, nodes, bin_offsets, default_bins, ids, shards, locals_, least, rule, candidates, scores, proposals, gains
):
    """find_split of each open node (kernels.open_nodes): `proposals` and their `gains`, -inf where there is none.  # OUT

    shards, locals_  int32: SHARD and LOCAL of each feature
    """
    node_sums = np.empty(3, np.int64)
    node_sums[2] = least
    for i in range(len(nodes)):
        node_sums[0], node_sums[1] = nodes[i, GRAD], nodes[i, HESS]
        best = proposals[i]
        found = find_split(
            histogram_of(memory, nodes[i]), nodes[i, PAIRS] != 0, bin_offsets, default_bins, ids, node_sums, rule,
            candidates, scores, best, gains[i : i + 1],
        )  # fmt: skip
        if found and gains[i] >= rule[GAMMA]:
            feature = uint64(best[LOCAL])
            best[SHARD], best[LOCAL] = shards[feature], locals_[feature]
        else:
            fill(best, 0)
            best[FEATURE], gains[i] = -1, -np.inf
        best[NODE_GRAD], best[NODE_HESS] = node_sums[0], node_sums[1]

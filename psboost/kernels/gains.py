"""Knows gains over sorted bins, and which split of a node gains most; does not know what becomes of it.

A node's best split is written down as a proposal (kernels.splits).
"""

import numpy as np

from psboost.kernels import eights
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
from psboost.kernels.left_sides import (
    BATCH,
    SURELY_LESS,
    add_lefts,
    bins_of,
    halves,
    some_may_win,
    some_may_win_packed,
    sum_slots,
)
from psboost.kernels.node_histograms import NODE_HISTOGRAM
from psboost.kernels.open_nodes import GRAD, HESS, PAIRS, SIZE, histogram_of
from psboost.kernels.packing import mask_of
from psboost.kernels.slots import LOW, read
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
    UNSTORED_LEFT,
)
from psboost.kernels.words import lowest_one

# rule (float64): what a unit of grad and of hess is worth, and the regularisation
GRAD_STEP, HESS_STEP, REG_LAMBDA, REG_ALPHA, MIN_GAIN, GAMMA, N_CONSTANTS = range(7)

# Splits are tested many at once, roughly (kernels.left_sides), those of several features together where these have few bins.
# Only if one may win are the splits of these features looked at, each by itself.
_FEW_BINS = 128  # of 64 features, which are tested at once: those that are their feature's only one matter
_0, _1 = uint64(0), uint64(1)

# Twice the most that rounding to float32 takes from a sum, for each number that is added and each step to it.
_LOST = 2.0**-23


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
    """Whether the split is allowed and may gain `bound`: all in whole steps, without division.

    L^2 / h + R^2 / k < bound is tested as L^2 k + R^2 h < bound h k.
    """
    right_hess = node_sums[1] - left_hess
    left, right = float64(left_grad), float64(node_sums[0] - left_grad)
    left -= min(max(left, -alpha), alpha)
    right -= min(max(right, -alpha), alpha)
    h, k = float64(left_hess) + reg_lambda, float64(right_hess) + reg_lambda
    is_less = left * left * k + right * right * h < bound * h * k
    return left_hess >= node_sums[2] and right_hess >= node_sums[2] and not is_less


@inline
def _consider(grad, hess, feature, bin_, default_left, parent_score, ids, node_sums, rule, best, best_gain):
    """Keeps the split if it is better; on a tie the lower user number. Of one feature's, which come by bin, missing right
    first: the lowest bin with missing right, else the highest with missing left. XGBoost goes through them in that order.
    """
    gain = (
        _score(float64(grad), float64(hess), rule)
        + _score(float64(node_sums[0] - grad), float64(node_sums[1] - hess), rule)
        - parent_score
    )
    better = gain > best_gain[0]
    if not better and gain == best_gain[0]:
        better = ids[feature] < best[FEATURE] or (ids[feature] == best[FEATURE] and best[DEFAULT_LEFT] == 1)
    if better:
        best_gain[0] = gain
        best[FEATURE] = ids[feature]
        best[LOCAL] = feature
        best[BIN] = bin_
        best[DEFAULT_LEFT] = default_left
        best[LEFT_GRAD] = grad
        best[LEFT_HESS] = hess


@inline
def _in_steps(rule):
    """reg_alpha and reg_lambda in whole steps, and what a score is in these; a little less, for SURELY_LESS.

    In whole steps nothing has to be scaled for each candidate. Steps are powers of two, or what is rounded is far less than
    SURELY_LESS allows for.
    """
    score_step = SURELY_LESS / rule[GRAD_STEP] / rule[GRAD_STEP] * rule[HESS_STEP]
    return rule[REG_ALPHA] / rule[GRAD_STEP], rule[REG_LAMBDA] / rule[HESS_STEP], score_step


@inline
def _next_bin(node, k, end, zero_bin, zeros_due):
    """The bin of entry k, or that of zeros if they are due and come before it."""
    bin_ = int64(node.bins[k]) if k < end else zero_bin
    return min(bin_, zero_bin) if zeros_due else bin_


@inline
def _choose(node, pairs, i, bin_offsets, default_bins, parent_score, ids, node_sums, in_steps, rule, best, best_gain):
    """Keeps the best split by the node's feature i, if it is better.

    Of bins at which the same rows go left, a split is at the first, or where missing goes left at the last: thresholds are
    XGBoost's, which goes through bins upwards in the one case and downwards in the other.

    in_steps  reg_alpha, reg_lambda, and what a score is in whole steps
    """
    alpha, reg_lambda, score_step = in_steps
    feature, first_bin = int64(node.features[i]), int64(bin_offsets[node.features[i]])
    k, end, zero_bin, zeros, missing = bins_of(node, pairs, i, bin_offsets, default_bins, node_sums)
    zeros_grad, zeros_hess = halves(zeros, pairs)
    missing_grad, missing_hess = halves(missing, pairs)
    grad, hess, zeros_due = int64(0), int64(0), zeros_hess > 0
    while k < end or zeros_due:
        bin_ = _next_bin(node, k, end, zero_bin, zeros_due)
        if zeros_due and zero_bin == bin_:
            zeros_due = False
            grad += zeros_grad
            hess += zeros_hess
        if k < end and node.bins[k] == bin_:
            bin_grad, bin_hess = read(node.sums, pairs, k)
            grad += bin_grad
            hess += bin_hess
            k += 1
        bound = (parent_score + best_gain[0]) * score_step
        for default_left in range(1 + int64(missing_hess > 0)):
            left_grad, left_hess = grad + default_left * missing_grad, hess + default_left * missing_hess
            if _may_win(left_grad, left_hess, node_sums, alpha, reg_lambda, bound):
                if default_left:  # then there is a next bin, as no child is without hess
                    bin_ = _next_bin(node, k, end, zero_bin, zeros_due) - 1
                _consider(
                    left_grad, left_hess, feature, bin_ - first_bin, default_left, parent_score, ids, node_sums, rule, best,
                    best_gain,
                )  # fmt: skip


@estimate
def _weigh_one_by_one(sums, pairs, begin, end):
    squares, size = float32(0), float32(0)
    if pairs:
        for k in range(begin, end):
            grad, hess = float32(sums[2 * k]), float32(sums[2 * k + 1])
            squares += grad * grad / hess
            size += abs(grad)
        return squares, size
    for k in range(begin, end):
        grad, hess = float32(int32(sums[k] >> int64(32))), float32(uint32(sums[k] & int64(LOW)))
        squares += grad * grad / hess
        size += abs(grad)
    return squares, size


@inline
def _weigh(sums, pairs, begin, end):
    """Of slots begin .. end, of hesses above 0: what they come to, grad and hess; and, nearly, the sum of grad^2 / hess and
    that of |grad|.
    """
    n = end - begin
    if eights.CAN_WEIGH and not pairs and begin + ((n + 7) & ~7) <= len(sums):
        total, squares, size = eights.weigh(sums, begin, n)
        grad, hess = halves((total, int64(0)), False)
    else:
        grad, hess = halves(sum_slots(sums, pairs, begin, end), pairs)
        squares, size = _weigh_one_by_one(sums, pairs, uint64(begin), uint64(end))
    return grad, hess, squares, size


@inline
def _most_score(n, grad, hess, squares, size, node_sums, reg_lambda):
    """No split by a feature of n bins, of which _weigh says this, has children that score more, in whole steps.

    One of the children holds a few of the stored values, s and k the sums of their grads and hesses. Its score is
    s^2 / (k + lambda) <= sum(g^2 / h) K / (K + lambda), over all bins of the feature (Cauchy and Schwarz), K their
    hesses; the other's is (G - s)^2 / (H - k + lambda), k <= K, with s between the sums of the negative and of the
    positive grads.
    """
    more = 1.0 + _LOST * (n + 8)
    rest = abs(float64(node_sums[0]) - 0.5 * float64(grad)) + 0.5 * more * float64(size)
    few = more * float64(squares) * float64(hess) / (float64(hess) + reg_lambda)
    return few + rest * rest / (float64(node_sums[1] - hess) + reg_lambda)


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


@kernel(
    boolean(
        NODE_HISTOGRAM, boolean, IN[int32], IN[int32], IN[int64], IN[int64], IN[float64], OUT2[float64], OUT[float64],
        OUT[int64], OUT[float64],
    )
)  # fmt: skip
def find_split(node, pairs, bin_offsets, default_bins, ids, node_sums, rule, lefts, scores, best, best_gain):
    """Finds a node's best split, a proposal whose LOCAL is the feature's number here (OUT); returns whether there is one.

    node          the node's histogram; pairs: whether its sums are
    bin_offsets   int32 (n_features + 1)
    default_bins  int32 (n_features, 2 as pairs): the bin in the feature of value zero, or -1 if an unstored
                  cell is missing; and the bin in the feature that holds NaN, or -1
    ids           int64: user number of a feature
    node_sums     int64: sum_grad, sum_hess of all rows, least sum_hess of a child, sum of absolute grads; this UNKNOWN only
                  where float64 holds all sums
    lefts         float64 (2, room_for(most bins of a feature)): spare room  # OUT
    scores        float64 (n_features): spare room  # OUT
    best_gain     at first, what a split by another feature gains, or -inf: one that gains less need not be found  # OUT
    """
    total_grad, total_hess = node_sums[0], node_sums[1]
    parent_score = _score(float64(total_grad), float64(total_hess), rule)
    fill(best, 0)
    best[FEATURE] = -1
    known, best_gain[0] = best_gain[0], rule[MIN_GAIN]
    alpha, reg_lambda, score_step = _in_steps(rule)
    n_features, words = len(node.features), lefts[0].view(np.int64)
    # The most that each feature's children can score; of one bin, which takes a sixth of the time below, it is not asked,
    # nor of one that most rows store: it would be more than any do.
    promising, most = int64(-1), -1.0
    for first in range(0, n_features, 64):
        several = _with_several(node.starts, first, min(64, n_features - first))
        while several != _0:
            i = first + int64(lowest_one(several))
            several &= several - _1
            scores[i], begin, end = np.inf, int64(node.starts[i]), int64(node.starts[i + 1])
            grad, hess, squares, size = _weigh(node.sums, pairs, begin, end)
            if 2 * hess < total_hess:
                scores[i] = _most_score(end - begin, grad, hess, squares, size, node_sums, reg_lambda)
                if scores[i] > most:
                    promising, most = i, scores[i]
    # The most promising feature goes first (block -1), so that others fall behind it; that it comes again changes nothing.
    bound = (parent_score + max(known, best_gain[0])) * score_step
    for block in range(-1 if promising >= 0 else 0, (n_features + 63) >> 6):
        first = 64 * block if block >= 0 else promising & ~63
        n_here = min(64, n_features - first)
        several = _with_several(node.starts, first, n_here)
        left, begin, end = mask_of(uint64(n_here)), int64(node.starts[first]), int64(node.starts[first + n_here])
        if block < 0:
            left = _1 << uint64(promising & 63)
        elif end - begin <= _FEW_BINS and not _some_may_gain(node.sums, pairs, begin, end, node_sums, reg_lambda, bound):
            left = several
        n, tested, chosen = int64(0), _0, _0  # of the 64, a bit for each feature that is tested, and to be looked at
        while left != _0:
            i, bit = first + int64(lowest_one(left)), left & (_0 - left)
            left ^= bit
            if several & bit == _0:
                grad, hess = read(node.sums, pairs, int64(node.starts[i]))
                if _may_gain(grad, hess, node_sums, reg_lambda, bound):
                    chosen |= bit
            elif not scores[i] < bound:
                tested |= bit
                if pairs:
                    n = add_lefts(node, True, i, bin_offsets, default_bins, node_sums, n, lefts, words)
                else:
                    n = add_lefts(node, False, i, bin_offsets, default_bins, node_sums, n, lefts, words)
            if n < BATCH and left != _0:
                continue
            if pairs:
                some = some_may_win(n, node_sums, alpha, reg_lambda, bound, lefts)
            else:
                some = some_may_win_packed(n, node_sums, alpha, reg_lambda, bound, words)
            if some:
                chosen |= tested
            while chosen != _0:
                i = first + int64(lowest_one(chosen))
                chosen &= chosen - _1
                _choose(
                    node, pairs, i, bin_offsets, default_bins, parent_score, ids, node_sums, (alpha, reg_lambda, score_step),
                    rule, best, best_gain,
                )  # fmt: skip
            bound = (parent_score + max(known, best_gain[0])) * score_step
            n, tested = int64(0), _0
    return best[FEATURE] >= 0


@inline
def _settle(default_bins, shards, locals_, node_sums, rule, best, gain):
    """Writes the rest of a proposal (OUT) whose LOCAL is the feature's number here; of none, and of one that gains less than
    gamma, that there is none."""
    if best[FEATURE] >= 0 and gain[0] >= rule[GAMMA]:
        feature = uint64(best[LOCAL])
        zero_bin = int64(default_bins[uint64(2) * feature])
        best[SHARD], best[LOCAL] = shards[feature], locals_[feature]
        best[UNSTORED_LEFT] = best[DEFAULT_LEFT] if zero_bin < 0 else int64(zero_bin <= best[BIN])
    else:
        fill(best, 0)
        best[FEATURE], gain[0] = -1, -np.inf
    best[NODE_GRAD], best[NODE_HESS] = node_sums[0], node_sums[1]


@kernel(
    void(
        NODE_HISTOGRAM, OUT2[int64], IN[int32], IN[int32], IN[int64], IN[int32], IN[int32], int64, IN[float64],
        OUT2[float64], OUT[float64], OUT2[int64], OUT[float64],
    )
)  # fmt: skip
def find_splits(
    memory, nodes, bin_offsets, default_bins, ids, shards, locals_, least, rule, lefts, scores, proposals, gains
):
    """find_split of each open node (kernels.open_nodes): `proposals` and their `gains`, -inf where there is none.  # OUT

    gains            at first, as best_gain
    shards, locals_  int32: SHARD and LOCAL of each feature
    """
    node_sums = np.empty(4, np.int64)
    node_sums[2] = least
    for i in range(len(nodes)):
        node_sums[0], node_sums[1], node_sums[3] = nodes[i, GRAD], nodes[i, HESS], nodes[i, SIZE]
        best = proposals[i]
        find_split(
            histogram_of(memory, nodes[i]), nodes[i, PAIRS] != 0, bin_offsets, default_bins, ids, node_sums, rule, lefts,
            scores, best, gains[i : i + 1],
        )  # fmt: skip
        _settle(default_bins, shards, locals_, node_sums, rule, best, gains[i : i + 1])


@kernel(
    void(
        NODE_HISTOGRAM, IN[int32], IN[int32], IN[int64], IN[int32], IN[int32], IN[int64], IN[float64], OUT[int64],
        OUT[float64],
    )
)  # fmt: skip
def improve_split(node, bin_offsets, default_bins, ids, shards, locals_, node_sums, rule, best, best_gain):
    """Puts the best split by the only feature of a node's histogram, with sums in pairs, in the place of `best`, a proposal,
    if it is better  # OUT

    best_gain  what `best` gains, -inf if it is none  # OUT; all others as find_split and find_splits take them
    """
    before = best[FEATURE]
    best_gain[0] = max(best_gain[0], rule[MIN_GAIN])
    parent_score = _score(float64(node_sums[0]), float64(node_sums[1]), rule)
    _choose(
        node, True, 0, bin_offsets, default_bins, parent_score, ids, node_sums, _in_steps(rule), rule, best, best_gain
    )
    if best[FEATURE] != before or before < 0:
        _settle(default_bins, shards, locals_, node_sums, rule, best, best_gain)

"""Knows gains over sorted bins; does not know who sent them or what a feature is called outside."""

from psboost.kernels.compile import IN, OUT, float64, inline, int32, int64, kernel, uint8

# rule (float64): what a unit of grad and of hess is worth, and the regularisation
GRAD_STEP, HESS_STEP, REG_LAMBDA, REG_ALPHA, MIN_GAIN = range(5)
# best (int64): the split found; FOUND is 0 when there is none
FOUND, FEATURE, BIN, DEFAULT_LEFT, LEFT_GRAD, LEFT_HESS, N_ENTRIES = range(7)


@inline
def _score(grad, hess, rule):
    """T(G)^2 / (H + lambda), T shrinking by reg_alpha (XGBoost paper, equation 7)."""
    g = grad * rule[GRAD_STEP]
    alpha = rule[REG_ALPHA]
    if alpha > 0.0:
        g = g - alpha if g > alpha else (g + alpha if g < -alpha else 0.0)
    return g * g / (hess * rule[HESS_STEP] + rule[REG_LAMBDA])


@inline
def _consider(gain, feature, bin_in_feature, default_left, left_grad, left_hess, ids, best, best_gain):
    """Keeps the split if it is better; on a tie the lower user number. Bins come ascending, missing right first."""
    better = gain > best_gain[0]
    if not better and gain == best_gain[0] and best[FOUND] != 0:
        better = ids[feature] < ids[best[FEATURE]]
    if better:
        best_gain[0] = gain
        best[FOUND] = 1
        best[FEATURE] = feature
        best[BIN] = bin_in_feature
        best[DEFAULT_LEFT] = default_left
        best[LEFT_GRAD] = left_grad
        best[LEFT_HESS] = left_hess


@kernel(
    int64(
        OUT[int32], OUT[int64], OUT[int64], IN[int32], IN[int32], IN[int32], IN[int64], IN[int32],
        IN[int64], IN[float64], OUT[uint8], OUT[int64], OUT[float64],
    )
)  # fmt: skip
def find_split(
    bins, grads, hesses, bin_features, bin_offsets, default_bins, ids, parent_living, node, rule,
    living, best, best_gain,
):  # fmt: skip
    """Finds a node's best split, and drops its dead features (D3) from the histogram, in place; returns what is left.

    bins, grads, hesses   the node's histogram, compacted in place            # OUT
    bin_features          int32: feature of a bin
    bin_offsets           int32 (n_features + 1)
    default_bins          int32 (n_features, 2 as pairs): the bin in the feature of value zero, or -1 if an unstored
                          cell is missing (D9); and the bin in the feature that holds NaN, or -1
    ids                   int64: user number of a feature
    parent_living         int32 ascending: the features that lived in the node's parent
    node                  int64: sum_grad, sum_hess of all rows, least sum_hess of a child
    living                uint8 (as parent_living): 1 if the feature lives on  # OUT
    """
    n_entries = len(bins)
    total_grad, total_hess, least = node[0], node[1], node[2]
    parent_score = _score(float64(total_grad), float64(total_hess), rule)
    best[FOUND] = 0
    best_gain[0] = rule[MIN_GAIN]
    kept = int64(0)
    begin = 0
    position = 0
    living[:] = 0
    while begin < n_entries:
        feature = bin_features[bins[begin]]
        first_bin = bin_offsets[feature]
        next_bin = bin_offsets[feature + 1]
        stored_grad, stored_hess = int64(0), int64(0)
        end = begin
        while end < n_entries and bins[end] < next_bin:
            stored_grad += grads[end]
            stored_hess += hesses[end]
            end += 1
        if stored_hess < least:
            begin = end
            continue
        while parent_living[position] < feature:
            position += 1
        living[position] = 1

        zero_bin = default_bins[2 * feature]
        nan_bin = default_bins[2 * feature + 1]
        rest_grad, rest_hess = total_grad - stored_grad, total_hess - stored_hess
        missing_grad, missing_hess = rest_grad, rest_hess
        if zero_bin >= 0:
            missing_grad, missing_hess = int64(0), int64(0)
            if nan_bin >= 0 and bins[end - 1] == first_bin + nan_bin:
                missing_grad, missing_hess = grads[end - 1], hesses[end - 1]
        left_grad, left_hess = int64(0), int64(0)
        zeros_due = zero_bin >= 0 and rest_hess > 0
        k = begin
        while k < end or zeros_due:
            at_bin = bins[k] - first_bin if k < end else int32(2147483647)
            if zeros_due and zero_bin <= at_bin:
                left_grad += rest_grad
                left_hess += rest_hess
                zeros_due = False
                if zero_bin < at_bin:
                    at_bin = zero_bin
            if k < end and bins[k] - first_bin == at_bin:
                if at_bin == nan_bin:
                    break
                left_grad += grads[k]
                left_hess += hesses[k]
                k += 1
            right_hess = total_hess - left_hess
            if left_hess >= least and right_hess >= least:
                gain = (
                    _score(float64(left_grad), float64(left_hess), rule)
                    + _score(float64(total_grad - left_grad), float64(right_hess), rule)
                    - parent_score
                )
                _consider(gain, feature, at_bin, 0, left_grad, left_hess, ids, best, best_gain)
            if missing_hess > 0 and left_hess + missing_hess >= least and right_hess - missing_hess >= least:
                grad, hess = left_grad + missing_grad, left_hess + missing_hess
                gain = (
                    _score(float64(grad), float64(hess), rule)
                    + _score(float64(total_grad - grad), float64(total_hess - hess), rule)
                    - parent_score
                )
                _consider(gain, feature, at_bin, 1, grad, hess, ids, best, best_gain)
        for k in range(begin, end):
            bins[kept], grads[kept], hesses[kept] = bins[k], grads[k], hesses[k]
            kept += 1
        begin = end
    best[N_ENTRIES] = kept
    return kept

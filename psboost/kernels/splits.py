"""Knows what proposals and splits are, which proposal is better and which splits are made; not how they are found."""

import numpy as np

from psboost.kernels.compile import IN, IN2, OUT, OUT2, boolean, float32, float64, int32, int64, kernel, void

# A proposal (int64, one a row): the best split of an open node, and the node's sums. FEATURE is the user's number, or -1:
# there is no split, and all others but the sums are 0. SHARD is the feature shard, LOCAL the feature's number and BIN in it.
FEATURE, SHARD, LOCAL, BIN, DEFAULT_LEFT, LEFT_GRAD, LEFT_HESS, NODE_GRAD, NODE_HESS, N_PROPOSED = range(10)
# A split (int32, one a row): SHARD to DEFAULT_LEFT as they were proposed; whether a cell that is not stored goes left, so
# that the left child is the default child; whether the left child is the one that is built.
NODE, UNSTORED_LEFT, BUILD_LEFT, N_SPLIT = 0, 5, 6, 7


@kernel(void(IN2[int64], IN[float64], OUT2[int64], OUT[float64]))
def keep_better(proposals, gains, best, best_gains):
    """Puts each proposal in the place of the one in `best` (OUT) if it is better: greater gain, lower feature. Nobody else
    proposes the same feature."""
    for i in range(len(gains)):
        if gains[i] > best_gains[i] or (gains[i] == best_gains[i] and proposals[i, FEATURE] < best[i, FEATURE]):
            best_gains[i] = gains[i]
            for column in range(N_PROPOSED):  # one by one: an array at once takes two seconds to compile
                best[i, column] = proposals[i, column]


@kernel(
    int64(
        IN[float64], IN2[int64], int64, IN[int64], IN[int64], IN[float32], boolean, OUT2[int32], OUT[int64], OUT[float32],
        OUT[float64], OUT2[int64],
    )
)  # fmt: skip
def choose(
    gains, proposals, first_node, firsts, offsets, cuts, unstored_is_missing, splits, features, thresholds, split_gains,
    child_sums,
):  # fmt: skip
    """Writes the splits that `proposals` for nodes first_node, first_node + 1 ... come to, of those that have a finite gain.

    firsts, offsets, cuts  as data.cut_points.AllCuts has them
    unstored_is_missing    whether a cell that is not stored is missing; else it is 0
    returns                how many; -1 if one is of a bin that no feature has
    splits                 the lighter child is built  # OUT
    features, split_gains  FEATURE and gain of each  # OUT
    thresholds             a value below it goes left  # OUT
    child_sums             (n, 4): sums of grad and hess of its left child, and of its right one  # OUT
    """
    n = 0
    for i in range(len(gains)):
        if not np.isfinite(gains[i]):
            continue
        shard, local, bin_ = proposals[i, SHARD], proposals[i, LOCAL], proposals[i, BIN]
        if shard < 0 or shard + 1 >= len(firsts) or local < 0 or local >= firsts[shard + 1] - firsts[shard]:
            return -1
        feature = firsts[shard] + local
        if bin_ < 0 or bin_ >= offsets[feature + 1] - offsets[feature]:
            return -1
        threshold = cuts[offsets[feature] + bin_]
        grad, hess = proposals[i, LEFT_GRAD], proposals[i, LEFT_HESS]
        right_grad, right_hess = proposals[i, NODE_GRAD] - grad, proposals[i, NODE_HESS] - hess
        splits[n, NODE], splits[n, BUILD_LEFT] = first_node + i, hess <= right_hess
        for column in range(SHARD, DEFAULT_LEFT + 1):
            splits[n, column] = proposals[i, column]
        splits[n, UNSTORED_LEFT] = proposals[i, DEFAULT_LEFT] if unstored_is_missing else int64(threshold > 0)
        features[n], thresholds[n], split_gains[n] = proposals[i, FEATURE], threshold, gains[i]
        child_sums[n, 0], child_sums[n, 1], child_sums[n, 2], child_sums[n, 3] = grad, hess, right_grad, right_hess
        n += 1
    return n


@kernel(boolean(IN2[int32], int64, int64, OUT[int64], OUT[int64]))
def find_positions(splits, first, n_open, positions, built):
    """Where each split's node stands among n_open nodes from `first` on (OUT); False if one does not, or not behind the one
    before it.

    built  where that of its children that is built stands among the children of all, left, right, left, right  # OUT
    """
    least = first
    for s in range(len(splits)):
        node = int64(splits[s, NODE])
        if node < least or node >= first + n_open:
            return False
        positions[s], built[s], least = node - first, 2 * s + int64(splits[s, BUILD_LEFT] == 0), node + 1
    return True

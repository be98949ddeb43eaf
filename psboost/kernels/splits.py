"""Knows what proposals and splits are, which proposal is better and which splits are made; not how they are found."""

import numpy as np

from psboost.kernels.compile import IN, IN2, OUT, OUT2, boolean, float32, float64, int32, int64, kernel, void

# A proposal (int64, one a row): the best split of an open node, and the node's sums. FEATURE is the user's number, or -1:
# there is no split, and all others but the sums are 0. SHARD is the feature shard, LOCAL the feature's number and BIN in it;
# UNSTORED_LEFT: a cell that is not stored goes left, so that the left child is the default child.
FEATURE, SHARD, LOCAL, BIN, DEFAULT_LEFT, UNSTORED_LEFT, LEFT_GRAD, LEFT_HESS, NODE_GRAD, NODE_HESS, N_PROPOSED = range(11)
# A split (int32, one a row): the node; SHARD to UNSTORED_LEFT as they were proposed; whether the left child is built.
NODE, BUILD_LEFT, N_SPLIT = 0, 6, 7


@kernel(void(IN2[int64], IN[float64], OUT2[int64], OUT[float64]))
def keep_better(proposals, gains, best, best_gains):
    """Puts each proposal in the place of the one in `best` (OUT) if it is better: greater gain, lower feature. Nobody else
    proposes the same feature."""
    for i in range(len(gains)):
        if gains[i] > best_gains[i] or (gains[i] == best_gains[i] and proposals[i, FEATURE] < best[i, FEATURE]):
            best_gains[i] = gains[i]
            for column in range(N_PROPOSED):  # one by one: an array at once takes two seconds to compile
                best[i, column] = proposals[i, column]


@kernel(int64(IN[float64], IN2[int64], int64, OUT2[int32], OUT[int64], OUT[float64], OUT2[int64]))
def choose(gains, proposals, first_node, splits, features, split_gains, child_sums):
    """Writes the splits that `proposals` for nodes first_node, first_node + 1 ... come to, of those that have a finite gain.

    returns                how many
    splits                 the lighter child is built  # OUT
    features, split_gains  FEATURE and gain of each  # OUT
    child_sums             (n, 4): sums of grad and hess of its left child, and of its right one  # OUT
    """
    n = 0
    for i in range(len(gains)):
        if not np.isfinite(gains[i]):
            continue
        grad, hess = proposals[i, LEFT_GRAD], proposals[i, LEFT_HESS]
        right_grad, right_hess = proposals[i, NODE_GRAD] - grad, proposals[i, NODE_HESS] - hess
        splits[n, NODE], splits[n, BUILD_LEFT] = first_node + i, hess <= right_hess
        for column in range(SHARD, UNSTORED_LEFT + 1):
            splits[n, column] = proposals[i, column]
        features[n], split_gains[n] = proposals[i, FEATURE], gains[i]
        child_sums[n, 0], child_sums[n, 1], child_sums[n, 2], child_sums[n, 3] = grad, hess, right_grad, right_hess
        n += 1
    return n


@kernel(boolean(IN2[int32], IN[int64], IN[int64], IN[float32], OUT[float32]))
def find_thresholds(splits, firsts, offsets, cuts, thresholds):
    """A value below the threshold (OUT) goes left, for each split; False if one is of a bin that no feature has.

    firsts, offsets, cuts  as data.cut_points.AllCuts has them
    """
    for s in range(len(splits)):
        shard, local, bin_ = int64(splits[s, SHARD]), int64(splits[s, LOCAL]), int64(splits[s, BIN])
        if shard < 0 or shard + 1 >= len(firsts) or local < 0 or local >= firsts[shard + 1] - firsts[shard]:
            return False
        feature = firsts[shard] + local
        if bin_ < 0 or bin_ >= offsets[feature + 1] - offsets[feature]:
            return False
        thresholds[s] = cuts[offsets[feature] + bin_]
    return True


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

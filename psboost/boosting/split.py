"""Knows how splits are found, compared and written down; does not know messages or rows."""

from dataclasses import dataclass, fields

import numpy as np

from psboost.boosting.fixed_point import Steps, least_units
from psboost.boosting.histogram import Sums, Total
from psboost.boosting.living import LivingFeatures
from psboost.boosting.partition import n_words_of
from psboost.data import zeros
from psboost.data.sketches import CutPoints
from psboost.errors import ProtocolError
from psboost.kernels import open_nodes
from psboost.kernels import splits as kernels
from psboost.kernels.node_histograms import NodeHistogram

MIN_GAIN = 1e-6  # a smaller gain is no gain (XGBoost's kRtEps)


@dataclass(frozen=True)
class SplitRule:
    """What makes a split good, and allowed."""

    reg_lambda: float
    reg_alpha: float
    gamma: float
    min_child_weight: float

    def leaf_values(self, sum_grads: np.ndarray, sum_hesses: np.ndarray) -> np.ndarray:
        """float64: -T(G) / (H + lambda), before the learning rate (XGBoost paper, equation 5)."""
        shrunk = np.sign(sum_grads) * np.maximum(np.abs(sum_grads) - self.reg_alpha, 0.0)
        present = sum_hesses > 0
        return np.where(present, -shrunk / np.where(present, sum_hesses + self.reg_lambda, 1.0), 0.0)


@dataclass(frozen=True)
class FeatureRange:
    """Features side by side, as one role numbers them: 0 .. n_features, possibly out of several feature shards.

    ids           int64: the user's number of each feature
    shards        int32: its feature shard
    locals        int32: its number within that shard
    bin_offsets   int32 (n_features + 1): its bins
    default_bins  int32 (2 n_features), as kernels.splits.find_split takes them
    """

    ids: np.ndarray
    shards: np.ndarray
    locals: np.ndarray
    bin_offsets: np.ndarray
    default_bins: np.ndarray

    @property
    def n_features(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Proposals:
    """The best split of each open node within one range; fields as in the message ProposeSplits."""

    gains: np.ndarray
    features: np.ndarray
    shards: np.ndarray
    locals: np.ndarray
    bins: np.ndarray
    default_left: np.ndarray
    left_sums: np.ndarray
    node_sums: np.ndarray

    @staticmethod
    def empty(n_nodes: int) -> "Proposals":
        return Proposals(
            gains=np.full(n_nodes, -np.inf),
            features=np.full(n_nodes, -1, np.int64),
            shards=np.zeros(n_nodes, np.int32),
            locals=np.zeros(n_nodes, np.int32),
            bins=np.zeros(n_nodes, np.int32),
            default_left=np.zeros(n_nodes, np.uint8),
            left_sums=np.zeros((n_nodes, 2), np.int64),
            node_sums=np.zeros((n_nodes, 2), np.int64),
        )


def best_of(proposals: list) -> Proposals:
    """The best proposal of each open node, of several ranges'."""
    first, *others = proposals
    best = Proposals(*(getattr(first, field.name) for field in fields(Proposals)))
    for other in others:
        wins = better(other, best)
        columns = {name: np.where(wins.reshape(-1, *[1] * (column.ndim - 1)), getattr(other, name), column)
                   for name, column in vars(best).items()}  # fmt: skip
        best = Proposals(**columns)
    return best


def better(a, b) -> np.ndarray:
    """bool, for each node: whether `a` proposes the better split: greater gain, lower feature, lower bin, missing right
    (D1)."""
    wins, ties = a.gains > b.gains, a.gains == b.gains
    for name in ("features", "bins", "default_left"):
        of_a, of_b = getattr(a, name), getattr(b, name)
        wins, ties = wins | (ties & (of_a < of_b)), ties & (of_a == of_b)
    return wins


@dataclass(frozen=True)
class Splits:
    """The splits of a level, in order of node number: what Proposals and the message ApplySplits say of each, and

    thresholds   float32: a value below it goes left
    built_sums   int64 (n x 2): sums of the child whose histogram is built
    """

    nodes: np.ndarray
    features: np.ndarray
    shards: np.ndarray
    locals: np.ndarray
    bins: np.ndarray
    thresholds: np.ndarray
    default_left: np.ndarray
    unstored_left: np.ndarray
    gains: np.ndarray
    left_sums: np.ndarray
    built_sums: np.ndarray
    build_left: np.ndarray
    last: bool


def choose_splits(
    best: Proposals, open_nodes: list[int], cut_points: list[CutPoints], rule: zeros.Rule, last: bool
) -> Splits:
    """The splits to make of the best proposals of all open nodes; whoever chooses, it is the same.

    cut_points  of each feature shard
    last        whether the children will be leaves
    """
    chosen = np.flatnonzero(np.isfinite(best.gains))
    shards, locals_, bins = best.shards[chosen], best.locals[chosen], best.bins[chosen]
    thresholds = np.empty(len(chosen), np.float32)
    for shard in np.unique(shards).tolist():
        points, own = cut_points[shard], shards == shard
        thresholds[own] = points.cuts[points.offsets[locals_[own]] + bins[own]]
    default_left, left_sums = best.default_left[chosen], best.left_sums[chosen]
    unstored_left = default_left if zeros.unstored_is_missing(rule) else (thresholds > 0).astype(np.uint8)
    right_sums = best.node_sums[chosen] - left_sums
    build_left = left_sums[:, 1] <= right_sums[:, 1]
    return Splits(
        nodes=np.array(open_nodes, np.int32)[chosen],
        features=best.features[chosen],
        shards=shards,
        locals=locals_,
        bins=bins,
        thresholds=thresholds,
        default_left=default_left,
        unstored_left=unstored_left,
        gains=best.gains[chosen],
        left_sums=left_sums,
        built_sums=np.where(build_left[:, None], left_sums, right_sums),
        build_left=build_left.astype(np.uint8),
        last=last,
    )


class SplitFinder:
    """Keeps the histograms of one range level by level, and finds each open node's best split.

    `add` gets the sums of the nodes that were built, one after the other or all at once; a sibling's are parent - child,
    which is exact; and `find` proposes. Then `apply` says which nodes are split, and the children are the next open nodes.

    living  LivingFeatures: those of the open nodes' parents
    """

    def __init__(self, features: FeatureRange, rule: SplitRule):
        self._range, self._rule = features, rule
        most_bins = int(np.diff(features.bin_offsets).max(initial=0))
        # Rows a multiple of 4 KiB apart would compete for the same few lines of the cache.
        room = -(-(kernels.BATCH + 1 + most_bins) // 512) * 512 + 72
        self._candidates, self._scores = np.empty((kernels.N_FIELDS, room), np.int64), np.empty(features.n_features)
        # Of all nodes' histograms, kept for the next tree: new memory is slow to touch first.
        self._memory = NodeHistogram(*(np.empty(0, dtype) for dtype in (np.int32, np.int32, np.int32, np.int64)))
        self._used = np.zeros(3, np.int64)

    def start_tree(self, steps: Steps) -> None:
        rule = self._rule
        self._constants = np.array([steps.grad, steps.hess, rule.reg_lambda, rule.reg_alpha, MIN_GAIN])
        self._least = least_units(rule.min_child_weight, steps.hess)
        self._used[:] = 0
        self._nodes = np.zeros((1, open_nodes.N_FIELDS), np.int64)
        self._splits: tuple[np.ndarray, np.ndarray] | None = None
        self._n_added = 0
        self.living = LivingFeatures.of_root(self._range.n_features)

    def apply(self, positions: list[int], build_left: np.ndarray) -> None:
        """The open nodes to split, by position, and which child of each is built (uint8)."""
        parents = self._nodes[positions]
        places = parents[:, [open_nodes.AT_FEATURE, open_nodes.N_FEATURES]].tolist()
        self.living = LivingFeatures.of_parents([self._memory.features[at : at + n] for at, n in places])
        self._splits, self._n_added = (parents, build_left), 0
        self._nodes = np.zeros((2 * len(positions), open_nodes.N_FIELDS), np.int64)

    def add(self, sums: Sums) -> None:
        """The sums of the root; or, split by split, those of the children that are built. ProtocolError if these are not
        part of their parent's."""
        if self._splits is None:
            self._add_root(sums)
            return
        k, end = self._n_added, self._n_added + len(sums.totals)
        while k < end:
            done = sums.share_out(self._memory, self._used, self._splits, k, self._least, self._nodes)
            if done == open_nodes.MISFIT:
                raise ProtocolError("a child's histogram is not part of its parent's")
            if done < end:
                _, _, _, n_features, n_bins, *_ = self._splits[0][done].tolist()
                self._make_room(n_features, n_bins, 2 * n_bins)
            k = done
        self._n_added = end

    def find(self) -> Proposals:
        """The best split of each open node."""
        nodes, of_range = self._nodes, self._range
        n_nodes = len(nodes)
        best, gains = np.zeros((n_nodes, kernels.N_BEST), np.int64), np.zeros(n_nodes)
        kernels.find_splits(
            self._memory, nodes, of_range.bin_offsets, of_range.default_bins, of_range.ids, self._least, self._constants,
            self._candidates, self._scores, best, gains,
        )  # fmt: skip
        found = np.flatnonzero((best[:, kernels.FOUND] != 0) & (gains >= self._rule.gamma))
        proposals, best, features = Proposals.empty(n_nodes), best[found], best[found, kernels.FEATURE]
        proposals.node_sums[:] = nodes[:, [open_nodes.GRAD, open_nodes.HESS]]
        proposals.gains[found] = gains[found]
        proposals.features[found] = of_range.ids[features]
        proposals.shards[found] = of_range.shards[features]
        proposals.locals[found] = of_range.locals[features]
        proposals.bins[found] = best[:, kernels.BIN]
        proposals.default_left[found] = best[:, kernels.DEFAULT_LEFT]
        proposals.left_sums[found] = best[:, [kernels.LEFT_GRAD, kernels.LEFT_HESS]]
        return proposals

    def flags(self, begin: int, end: int) -> tuple[np.ndarray, int]:
        """Of each open node, for each feature begin .. end that lived in its parent, a bit: whether it lives on. Words
        (uint64), and how many bits."""
        living = self.living
        n_flags = 2 * len(living.features)
        words = np.empty(n_words_of(n_flags), np.uint64)
        n_flags = open_nodes.flag_living(
            self._memory.features, self._nodes, living.features, living.offsets, begin, end, words
        )
        return words[: n_words_of(n_flags)], n_flags

    def _add_root(self, sums: Sums) -> None:
        bin_offsets, [total] = self._range.bin_offsets, sums.totals.tolist()
        n_features, n_bins, pairs = self._range.n_features, int(bin_offsets[-1]), Total(*total).needs_pairs
        self._make_room(n_features, n_bins, n_bins << pairs)
        n_features = sums.take(bin_offsets, self._least, self._memory)
        n_bins = int(self._memory.starts[n_features])
        self._nodes[0] = 0, 0, 0, n_features, n_bins, pairs, *total
        self._used[:] = n_features + 1, n_bins, n_bins << pairs

    def _make_room(self, n_features: int, n_bins: int, n_slots: int) -> None:
        """Room for so many more features, bins and slots, and, as more nodes will come, for half as much again."""
        used = self._used.tolist()
        more = n_features + 1, n_bins, n_slots
        sizes = [at + n for at, n in zip(used, more, strict=True)]
        held = []
        for array, size, at in zip(self._memory, (sizes[0], *sizes), (used[0], *used), strict=True):
            grown = array if size <= len(array) else np.empty(size + size // 2, array.dtype)
            if grown is not array:
                grown[:at] = array[:at]
            held.append(grown)
        self._memory = NodeHistogram(*held)
